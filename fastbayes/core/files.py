"""Model and statistics files: one Arrow IPC file holding a JSON header and named arrays.

The file has one record batch of one row. Each array is a large_list column whose field metadata
give its shape and dtype; whole numbers are stored in the narrowest type that holds them. The
header is JSON in the schema metadata, with a SHA-256 of the whole file, without which no byte is
given to Arrow. Nothing in it is ever executed, and nothing is believed before it was checked.

Format 1 stored whole numbers as they are, compressed every batch, and had an array for each domain
of a schema (`fastbayes.core.schema_file`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import re
import secrets
import shutil
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from fastbayes.core.alike_files import FileLayout
from fastbayes.core.errors import DataError, FileFormatError, MemoryLimitError, refuse
from fastbayes.core.exact_arrays import exact
from fastbayes.core.machine import usable_memory

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

FORMAT = "fastbayes"
VERSION = 2
MAGIC = b"ARROW1"
# Where the first message stands: behind the magic, its padding, a mark and its length.
FIRST_MESSAGE = 16

HEADER_KEY, DIGEST_KEY = b"fastbayes", b"sha256"

DTYPES = {
    np.dtype(name).name: np.dtype(name)
    for name in ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
}
ARROW_TYPES = {
    *(pa.from_numpy_dtype(dtype) for dtype in DTYPES.values()),
    *(pa.string(), pa.large_string(), pa.null()),
}
# By dtype: the Arrow types, by id, as which arrays are stored; whole numbers may be narrower.
STORED_AS = {
    name: {
        pa.from_numpy_dtype(other).id
        for other in DTYPES.values()
        if other == dtype or ({other.kind, dtype.kind} <= {*"iu"} and np.can_cast(other, dtype))
    }
    for name, dtype in DTYPES.items()
}

# From so many bytes on, a batch is compressed: below, making a decoder for each buffer takes longer
# than reading what it would save.
COMPRESSED_BYTES = 1 << 18

# A zstd block expands to at most 128 KiB and takes at least 4 bytes, so that a longer claim is a
# lie that can be refused before anything is allocated.
ZSTD_RATIO = 2**15

# What a header may be, so that no file of some bytes becomes objects of thirty times as many: bytes
# of JSON, values in it, and lists or objects around a value.
HEADER_BYTES, HEADER_VALUES, NESTING = 1 << 26, 1 << 22, 32
# Up to so many bytes the last one is remembered, and so many layouts of files are.
REMEMBERED_BYTES, MOST_LAYOUTS = 1 << 16, 8
# The JSON of a shape: numpy's arrays have at most 64 dimensions.
SHAPE_BYTES = 64 * 24

UNREADABLE: dict[type[Exception], str] = {
    FileNotFoundError: "no such file; check the name",
    IsADirectoryError: "is a directory; name a file in it",
    PermissionError: "no permission to read it; ask its owner",
}
# What reading a damaged file may raise, besides what Arrow and struct do.
DAMAGE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError, OSError),
    StopIteration,  # where a message should begin, the file ends
)
PART = re.compile(r"part-\d+\.\w+")  # what parts are called
PARTITION = re.compile(r"[^=/]*=[^/]*")  # what directories of partitions are called
HIDDEN = re.compile(r"\.fastbayes-[0-9a-f]{16}(\..*)?")  # what is not finished
# Schemes of servers that are asked for each file, in whose URIs a query may follow the path.
WEB = ("http", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What tells a file from those that take its place: inode, bytes, ns since 1970; () for no file.
Version: TypeAlias = tuple[int, ...]


def write(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any] | pa.Array | pa.ChunkedArray],
    *,
    force: bool = False,
) -> None:
    """Write a header and named arrays to a file that appears whole or not at all.

    Parameters
    ----------
    path
        Where to write; the directory must exist.
    header
        Any nesting of dict (string keys), list, str, int, float, bool and None.
    arrays
        Name to array: numpy of any shape (bool, integers, float32, float64), or Arrow (the same
        types and strings, nulls allowed).
    force
        Overwrite an existing file.

    Raises
    ------
    DataError
        The file exists and `force` is off, the directory is missing, the disk is full, or the
        header is larger than `HEADER_BYTES` and `HEADER_VALUES` allow.
    TypeError
        The header or an array holds what the format cannot give back exactly; names where.
    """
    blob = to_bytes(header, arrays)
    with atomic(path, force=force) as temporary:
        temporary.write_bytes(blob)


def to_bytes(
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any] | pa.Array | pa.ChunkedArray],
) -> bytes:
    """Return the bytes of the file of a header and named arrays; errors as of `write`."""
    _check_json(header, "header")
    # The digest covers the bytes that surround it: hash with zeros in its place, then fill it in.
    # The place is found by a random name that no data can contain.
    place = secrets.token_hex(32).encode()
    blob = _encode(header, arrays, place)
    return blob.replace(place, _digest(blob, place))


def digest(
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any] | pa.Array | pa.ChunkedArray],
) -> str:
    """Return the SHA-256 of a header and named arrays, in hexadecimal, whatever file holds them."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        if isinstance(array, np.ndarray):
            native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
            kind, content = f"{array.dtype.name}{array.shape}", native.tobytes()
        else:
            kind, content = str(array.type), json.dumps(array.to_pylist()).encode()
        found.update(f"{name} {kind} {len(content)} ".encode())
        found.update(content)
    return found.hexdigest()


def read(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any] | pa.Array]]:
    """Read what `write` wrote, checking everything on the way.

    Parameters
    ----------
    path
        The file to read.

    Returns
    -------
    header, arrays
        Equal to what was written: types, shapes, order and every bit of every number. The numpy
        arrays are writable and own their memory.

    Raises
    ------
    FileFormatError
        No such file, not a file of fastbayes, of a newer format, or damaged; names the file and
        the remedy.
    MemoryLimitError
        The arrays are larger than the memory of this machine, or of its container; nothing was
        allocated.
    """
    with _naming(os.fspath(path)):
        return _decode(_contents(path))


def from_bytes(
    blob: bytes, origin: str
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any] | pa.Array]]:
    """Return what `to_bytes` was given; errors as of `read`, in which they are called `origin`."""
    with _naming(origin):
        return _decode(blob)


@contextlib.contextmanager
def _naming(origin: str) -> Iterator[None]:
    """Turn what damaged bytes raise into errors that name where they are from."""
    try:
        yield
    except (MemoryLimitError, FileFormatError) as error:
        raise type(error)(f"{origin}: {error}") from error
    except (*DAMAGE, pa.ArrowException, struct.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileFormatError(
            f"{origin}: damaged, or not a file of fastbayes ({reason}); take another "
            "copy, or write it again"
        ) from error


@contextlib.contextmanager
def atomic(
    path: str | os.PathLike[str], *, force: bool = False, expecting: Version | None = None
) -> Iterator[Path]:
    """Give a temporary name next to the target, which takes the target's name on success.

    Whatever ends the block early (Ctrl-C included) removes the temporary file and leaves the
    target as it was.

    Parameters
    ----------
    path
        The target; a symbolic link is followed.
    force
        Replace an existing target.
    expecting
        The `version_of` what was read, of which the new file is a continuation: no other may be
        replaced.

    Yields
    ------
    temporary
        A path with the target's suffix, for the block to create and close.

    Raises
    ------
    DataError
        The target exists and `force` is off, it is not the one expected, it cannot be made, or the
        disk is full.
    """
    target = real_path(path)
    _check_target(path, target, force)
    with telling_full(path), _temporary(path, target, Path.touch) as temporary:
        _guard_alike(temporary, target, also=0o600)
        yield temporary
        sync(temporary)
        _check_target(path, target, force)
        _guard_alike(temporary, target)
        with contextlib.nullcontext() if expecting is None else _unchanged(path, target, expecting):
            os.replace(temporary, target)
        sync_directory(target.parent)


def version_of(path: str | os.PathLike[str]) -> Version:
    """Return what tells a file from those that take its place; of none there is, ()."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _unchanged(name: str | os.PathLike[str], target: Path, expecting: Version) -> Iterator[None]:
    """Raise DataError where the target is not the one expected; keep it so in the block.

    Of several processes that expect the same file, one has its lock, and the next finds another.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # no target, or a file system without locks
                descriptor = os.open(target, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        refuse(
            version_of(target) != expecting,
            f"{os.fspath(name)} was written by another process since it was read, and what that "
            "added would be lost: run it again, which begins with what is there now",
        )
        yield


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary directory next to the target, which takes the target's name on success.

    Whatever ends the block early (Ctrl-C included) removes the temporary directory and leaves the
    target as it was.

    Parameters
    ----------
    path
        The target; a symbolic link is followed.
    force
        Replace a target that holds parts.

    Yields
    ------
    temporary
        An empty directory, for the block to fill with files that it has passed to `sync`.

    Raises
    ------
    DataError
        As `check_directory`; or the disk is full.
    """
    target = real_path(path)
    check_directory(path, force=force)
    with telling_full(path), _temporary(path, target, Path.mkdir) as temporary:
        _guard_alike(temporary, target, also=0o700)
        yield temporary
        sync_directory(temporary)
        check_directory(path, force=force)
        if target.exists():
            _guard_alike(temporary, target)
            _exchange(temporary, target)
        else:
            temporary.rename(target)
        sync_directory(target.parent)


@contextlib.contextmanager
def _temporary(
    name: str | os.PathLike[str], target: Path, make: Callable[[Path], None]
) -> Iterator[Path]:
    """Give a hidden file or directory next to the target, locked while this process has it.

    The lock ends with the process, however that ends: what nobody has locked was abandoned.
    """
    remove_abandoned(target.parent)
    with contextlib.ExitStack() as stack:
        descriptor = None
        while descriptor is None:
            path = target.with_name(f".fastbayes-{secrets.token_hex(8)}{target.suffix}")
            # Twice: what a signal raises may come just as the first is called, before it begins.
            for _ in range(2):
                stack.callback(_remove_whole, path)
            with _telling(name):
                make(path)
            descriptor = _own(path)
        stack.callback(os.close, descriptor)
        yield path


def remove_abandoned(directory: Path) -> None:
    """Remove the unfinished files and directories of runs that were killed.

    What belongs to another user, or is on a file system without locks, stays.
    """
    with contextlib.suppress(PermissionError), os.scandir(directory) as entries:
        for entry in entries:
            if not HIDDEN.fullmatch(entry.name) or entry.is_symlink():
                continue
            with contextlib.suppress(PermissionError, FileNotFoundError):
                descriptor = _opened(Path(entry.path))
                try:
                    if _locked(descriptor):
                        _remove(Path(entry.path))
                finally:
                    os.close(descriptor)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Lock a directory; yield whether no other process has. Where there are no locks, none has."""
    if fcntl is None:
        yield True
        return
    descriptor = _opened(directory)
    try:
        yield _locked(descriptor) is not False
    finally:
        os.close(descriptor)


def _own(path: Path) -> int | None:
    """Return the descriptor that locks a file just made; None if a run took it for abandoned."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = _opened(path)
        try:
            if _locked(descriptor) is not False and os.path.samestat(
                os.fstat(descriptor), os.stat(path)
            ):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)


def _locked(descriptor: int) -> bool | None:
    """Lock a file; return False if another process has, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # such as a directory on NFS
        return None
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove_whole(path: Path) -> None:
    """Remove a file or a directory, even if a signal comes in the middle: it is raised then."""
    try:
        _remove(path)
    except BaseException:
        _remove(path)
        raise


def _guard_alike(made: Path, target: Path, also: int = 0) -> None:
    """Give what is made the owner and permissions of the target that it replaces, if there is one.

    Where this process may not give it to the same group, it opens nothing to another one.

    also  Permissions that are needed while it is written.
    """
    with contextlib.suppress(OSError):  # no target, or a file system without permissions
        old, new = target.stat(), made.stat()
        mode = stat.S_IMODE(old.st_mode)
        if not stat.S_ISDIR(old.st_mode):
            mode &= 0o777  # who runs a file as its owner trusted what was in it
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            _give(made, old.st_uid, old.st_gid)
            if made.stat().st_gid != old.st_gid:
                mode &= ~0o070
        made.chmod(mode | also)


def _give(made: Path, owner: int, group: int) -> None:
    """Give a file or directory to an owner and a group, or to the group alone, if that may be."""
    for uid in (owner, -1):
        with contextlib.suppress(OSError, AttributeError):  # of a system without owners
            os.chown(made, uid, group)
            return


def _exchange(made: Path, target: Path) -> None:
    """Exchange two directories, so that at no time either name is missing.

    Where the system has no call for this (Linux has renameat2), the target is missing for a
    moment, in which its old content is next to it, under a name that says so.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename and not rename(here, os.fsencode(made), here, os.fsencode(target), exchange):
        return
    replaced = target.with_name(f"{target.name}.replaced-{secrets.token_hex(8)}")
    target.rename(replaced)
    try:
        made.rename(target)
    except BaseException:
        replaced.rename(target)
        raise
    _remove_whole(replaced)


def sync(path: Path) -> None:
    """Make the bytes of a file survive a power cut."""
    with open(path, "rb") as written:
        os.fsync(written.fileno())


@contextlib.contextmanager
def _telling(name: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of the system, but that of a full disk, into one that names the target."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        raise DataError(
            f"{os.fspath(name)} cannot be written ({(error.strerror or str(error)).lower()}): "
            "name another place"
        ) from error


@contextlib.contextmanager
def telling_full(
    path: str | os.PathLike[str],
    remedy: str = "nothing was written: free some space, or name another place",
) -> Iterator[None]:
    """Turn the error of a full disk into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            reason = os.strerror(error.errno).lower()
            raise DataError(f"{os.fspath(path)}: {reason}; {remedy}") from error
        raise


def scheme_of(name: str) -> str | None:
    """Return the scheme of a URI, None for a path."""
    found = _SCHEME.match(name)
    return None if found is None else found[1].lower()


def check_local(path: str | os.PathLike[str]) -> None:
    """Raise DataError where the target is a URI, of which the system would make directories."""
    name = os.fspath(path)
    scheme = scheme_of(name)
    remedy = "write to a path of this machine, and copy from there"
    if scheme == "file":
        remedy = f"name the path, {unquote(name.partition('://')[2])}"
    refuse(scheme is not None, f"{name} is a URI, and those are only read: {remedy}")


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return what the path of a target leads to.

    DataError for a URI, for "", which would be the working directory, and for a path from a working
    directory that is gone.
    """
    refuse(not os.fspath(path), "the path to write to is empty: name a file, or a directory")
    check_local(path)
    try:
        target = Path(os.path.realpath(path))
    except FileNotFoundError as error:
        raise DataError(
            f"{os.fspath(path)}: the working directory was removed, from which this path leads: "
            "name an absolute path"
        ) from error
    with _telling(path):  # of a name that is too long
        target.is_dir()
    return target


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise DataError unless `path` may be written: asked before long work.

    A symbolic link is followed; `force` is whether what is there may be replaced.
    """
    _check_target(path, real_path(path), force)


def check_apart(path: str | os.PathLike[str], read: Iterable[str]) -> None:
    """Raise DataError where the target `path` is one of the files that are read, or holds one."""
    name, target = os.fspath(path), real_path(path)
    for file in read if target.exists() else ():
        found = Path(os.path.realpath(file))
        refuse(
            target == found,
            f"{name} is what is read, which the output would replace; name another place",
        )
        refuse(
            target in found.parents,
            f"{name} holds {file}, which is read, and which the output would replace; name another "
            "place",
        )


def check_directory(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise DataError unless `path` may become a directory of parts.

    A symbolic link is followed; `force` is whether a directory that holds nothing but parts may be
    replaced.
    """
    name, target = os.fspath(path), real_path(path)
    _check_no_device(name)
    refuse(
        target.exists() and not target.is_dir(),
        f"{name} is not a directory: name one for the parts, or a file that ends in its format",
    )
    held = [*target.iterdir()] if target.is_dir() else []
    refuse(
        bool(held) and not force,
        f"{name} is not empty: name another directory, or overwrite it with force=True",
    )
    if (other := _no_part(held)) is not None:
        raise DataError(
            f"{name} holds {other.relative_to(target).as_posix()!r}, which is no part and would be "
            "lost: name another directory"
        )
    _check_parent(name, target)


def _no_part(held: Iterable[Path]) -> Path | None:
    """Return the first of these that is neither a part nor a directory of partitions of parts."""
    for path in sorted(held):
        if path.is_dir() and not path.is_symlink() and PARTITION.fullmatch(path.name):
            if (other := _no_part(path.iterdir())) is not None:
                return other
        elif path.is_dir() or not PART.fullmatch(path.name):
            return path
    return None


def _check_target(path: str | os.PathLike[str], target: Path, force: bool) -> None:
    name = os.fspath(path)
    refuse(target.is_dir(), f"{name} is a directory: name a file in it")
    _check_no_device(name)
    refuse(
        target.exists() and not force,
        f"{name} exists: name another file, or overwrite it with force=True",
    )
    _check_parent(name, target)


def _check_no_device(name: str) -> None:
    # Of what the name stands for: that of standard output may lead to no path.
    refuse(
        os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name)),
        f"{name} is a device or a pipe, whose place no file can take: name a file, or '-' for "
        "predictions on standard output",
    )


def _check_parent(name: str, target: Path) -> None:
    refuse(
        not target.parent.is_dir(), f"{name}: there is no directory {target.parent}: make it first"
    )
    refuse(
        not os.access(target.parent, os.W_OK | os.X_OK),
        f"{name}: no permission to write in {target.parent}",
    )


def sync_directory(directory: Path) -> None:
    """Make a rename survive a power cut, where directories can be opened."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_json(value: Any, where: str, nested: int = 0) -> None:
    """Raise unless JSON gives this value back as it is, and it may be read again."""
    refuse(nested > NESTING, f"{where} is nested more than {NESTING} deep", TypeError)
    if isinstance(value, dict):
        for key, item in value.items():
            refuse(
                not isinstance(key, str),
                f"{where} has the key {key!r}: a file's header takes text only",
                TypeError,
            )
            _check_json(item, f"{where}[{key!r}]", nested + 1)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _check_json(item, f"{where}[{position}]", nested + 1)
    elif value is not None and type(value) not in (str, int, float, bool):
        raise TypeError(
            f"{where} is a {type(value).__name__}: JSON would not give it back as it is"
        )


def _parsed(text: bytes) -> Any:
    """Return the JSON of a header; raise DataError where it is larger or deeper than one may be."""
    refuse(len(text) > HEADER_BYTES, f"a header of {len(text):,} bytes, over {HEADER_BYTES:,}")
    # Each value but the first has a comma, or a bracket that opens, before it.
    values = len(text) - len(text.translate(None, b",[{"))
    refuse(values > HEADER_VALUES, f"a header of {values:,} values, over {HEADER_VALUES:,}")
    content = json.loads(text)
    level: list[Any] = [[content]]
    nested = 0
    while level := [
        item
        for value in level
        for item in (value.values() if isinstance(value, dict) else value)
        if type(item) in (dict, list)
    ]:
        nested += 1
        # Around the header is the content, inside the last list are values.
        refuse(nested > NESTING + 2, f"a header nested more than {NESTING} deep")
    return content


def _encode(
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any] | pa.Array | pa.ChunkedArray],
    place: bytes,
) -> bytes:
    """Return the bytes of the file, with `place` where its digest goes."""
    fields, columns = [], []
    for name, array in arrays.items():
        if isinstance(array, np.ndarray):
            refuse(
                array.dtype.name not in DTYPES,
                f"array {name!r}: a file cannot hold dtype {array.dtype}",
                TypeError,
            )
            native = array.astype(array.dtype.newbyteorder("="), copy=False)
            values = pa.array(_narrowed(native.ravel()))
            metadata = {"shape": json.dumps(array.shape), "dtype": array.dtype.name}
        else:
            values = exact(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
            refuse(
                values.type not in ARROW_TYPES,
                f"array {name!r}: a file cannot hold Arrow type {values.type}",
                TypeError,
            )
            metadata = {"shape": json.dumps([len(values)]), "dtype": "arrow"}
        offsets = pa.array([0, len(values)], pa.int64())
        column = pa.LargeListArray.from_arrays(offsets, values)
        fields.append(pa.field(name, column.type, nullable=False, metadata=metadata))
        columns.append(column)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": written_by(),
        "header": header,
    }
    text = json.dumps(content).encode()
    _parsed(text)  # or else it could be written, but not read
    schema = pa.schema(fields, {HEADER_KEY: text, DIGEST_KEY: place})
    sink = pa.BufferOutputStream()
    much = sum(column.nbytes for column in columns) >= COMPRESSED_BYTES
    options = pa.ipc.IpcWriteOptions(compression="zstd" if much else None)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return sink.getvalue().to_pybytes()


def _narrowed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return whole numbers in the narrowest type that holds them all; others as they are."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    least, most = int(values.min()), int(values.max())
    # With numbers below 0, a type with a sign: it holds ~most where it holds most.
    narrowest = np.min_scalar_type(min(least, ~most) if least < 0 else most)
    fits = np.can_cast(narrowest, values.dtype, "safe")
    return values.astype(narrowest, copy=False) if fits else values


@functools.cache
def written_by() -> str:
    """Return the name and version of this library, as files hold them."""
    try:
        return f"fastbayes {importlib.metadata.version('fastbayes')}"
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "fastbayes"


def _digest(blob: bytes, place: bytes) -> bytes:
    """Return the SHA-256, in hexadecimal, of the file with its digest blanked out."""
    return hashlib.sha256(blob.replace(place, bytes(len(place)))).hexdigest().encode()


def _contents(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            status, memory = os.fstat(file.fileno()), usable_memory()
            refuse(
                not stat.S_ISREG(status.st_mode),
                "not a regular file; name a file that fastbayes wrote",
                FileFormatError,
            )
            refuse(
                status.st_size > memory,
                f"a file of {status.st_size / 1e9:.1f} GB, this process may use {memory / 1e9:.1f} "
                "GB of memory; open it on a larger machine",
                MemoryLimitError,
            )
            return file.readall()
    except tuple(UNREADABLE) as error:
        raise FileFormatError(UNREADABLE[type(error)]) from None


def _decode(blob: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any] | pa.Array]]:
    """Return header and arrays of a whole file; any exception means that it is damaged.

    The messages are read one by one, not by the file's footer, so that the sizes that are checked
    are the sizes that are used.
    """
    refuse(
        not (len(blob) > 16 and blob.startswith(MAGIC + b"\0\0") and blob.endswith(MAGIC)),
        "not a model or statistics file of fastbayes, or cut short; name a file that "
        "fastbayes wrote",
        FileFormatError,
    )
    for known in _layouts:
        if (digest := known.digest_of(blob)) is not None:
            _check_digest(digest, blob)
            return json.loads(known.text)["header"], known.read(blob)
    before = _last
    text, digest, header = _read_header(blob)
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(blob).read_buffer()[8:])
    schema = pa.ipc.read_schema(_next(messages, "schema"))
    refuse(
        len(set(schema.names)) != len(schema.names),
        "an array occurs twice; write it again",
        FileFormatError,
    )
    message = _next(messages, "record batch")
    _check_sizes(message)
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    refuse(
        schema.names and batch.num_rows != 1, f"{batch.num_rows} rows instead of one", ValueError
    )
    stored = {
        field.name: _stored(field, column)
        for field, column in zip(schema, batch.columns, strict=True)
    }
    # What is stored narrow is wider once it is read.
    _check_memory(sum(len(one.values) * one.dtype.itemsize for one in stored.values() if one.dtype))
    arrays = {name: one.array() for name, one in stored.items()}
    if text == before:
        columns = {name: one.values for name, one in stored.items()}
        _remember(FileLayout.of(blob, digest, text, columns, arrays))
    return header, arrays


# Of files whose header came twice in a row, those read last: the parts of a job differ in how wide
# the numbers are that they store.
_layouts: tuple[FileLayout, ...] = ()


def _remember(layout: FileLayout | None) -> None:
    global _layouts
    if layout is not None:
        _layouts = (layout, *_layouts[: MOST_LAYOUTS - 1])


def _next(messages: Any, kind: str) -> pa.Message:
    """Return the next message of a kind; Arrow would read any other as if it were of that."""
    message = messages.read_next_message()
    refuse(message.type != kind, f"a message of type {message.type} instead of {kind}", ValueError)
    return message


def _read_header(blob: bytes) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return the header as it stands, the digest, and the header, once all of them are right."""
    metadata = _metadata(blob)
    refuse(
        not {HEADER_KEY, DIGEST_KEY} <= {*metadata},
        "an Arrow file, but not one that fastbayes wrote; to use it as data, name it as data",
        FileFormatError,
    )
    content = _content(metadata[HEADER_KEY])
    refuse(
        not isinstance(content, dict) or content.get("format") != FORMAT, "no header", ValueError
    )
    version = content["version"]
    refuse(type(version) is not int or version < 1, f"version {version!r}", ValueError)
    refuse(
        version > VERSION,
        f"file format {version}, this fastbayes reads formats up to {VERSION}; upgrade "
        f"fastbayes (the file was written by {str(content.get('written_by'))[:40]})",
        FileFormatError,
    )
    digest = metadata[DIGEST_KEY]
    _check_digest(digest, blob)
    refuse(not isinstance(content["header"], dict), "no header", ValueError)
    return metadata[HEADER_KEY], digest, content["header"]


def _check_digest(digest: bytes, blob: bytes) -> None:
    refuse(
        len(digest) != 64 or _digest(blob, digest) != digest,
        "its SHA-256 does not match",
        ValueError,
    )


# The header that was checked last: the parts of a job have all the same.
_last = b""


def _content(text: bytes) -> Any:
    global _last
    if text == _last:
        return json.loads(text)
    content = _parsed(text)
    if len(text) <= REMEMBERED_BYTES:
        _last = text
    return content


def _check_sizes(message: pa.Message) -> None:
    """Raise unless the buffers of a batch can be what they say: in the file, and not longer."""
    body, metadata = message.body, message.metadata.to_pybytes()
    batch = _follow(metadata, _member(metadata, _follow(metadata, 0), 2))
    compressed, end = _member(metadata, batch, 3) > 0, body.size
    total = 0
    for offset, length in _buffers(metadata, batch):
        if offset < 0 or length < 0 or offset + length > end or offset % 8:
            raise ValueError(f"a buffer of {length} bytes at {offset} of {end}")
        size = length
        if compressed and length:
            (size,) = struct.unpack_from("<q", body, offset)
            size = length - 8 if size == -1 else size  # -1: stored as it is
            if not 0 <= size <= ZSTD_RATIO * length:
                raise ValueError(f"{length} bytes that claim to hold {size}")
        total += size
    _check_memory(total)


def _check_memory(size: int) -> None:
    if size > (memory := usable_memory()):
        raise MemoryLimitError(
            f"holds {size / 1e9:.1f} GB, this process may use {memory / 1e9:.1f} GB; "
            "open it on a larger machine"
        )


def _metadata(blob: bytes) -> dict[bytes, bytes]:
    """Return the first two metadata of the schema (ours has no more) without a call of Arrow.

    The digest is one of them. Until it is checked, what the file says may be anything: a wrong
    place gives other bytes here, or an error, where compiled code may end the process.

    The schema is Message.header, field 2; its metadata are Schema.custom_metadata, field 2; key and
    value of each are fields 0 and 1 (format/Message.fbs, Schema.fbs of the Arrow specification).
    """
    schema = _follow(blob, _member(blob, _follow(blob, FIRST_MESSAGE), 2))
    if not (place := _member(blob, schema, 2)):
        return {}
    vector = _follow(blob, place)
    (count,) = struct.unpack_from("<I", blob, vector)
    pairs = [_follow(blob, vector + 4 * i) for i in range(1, 1 + min(count, 2))]
    return {_text(blob, _member(blob, one, 0)): _text(blob, _member(blob, one, 1)) for one in pairs}


def _text(blob: bytes, place: int) -> bytes:
    start = _follow(blob, place)
    (size,) = struct.unpack_from("<I", blob, start)
    return blob[start + 4 : start + 4 + size]


def _buffers(metadata: bytes, batch: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each buffer of a record batch's flatbuffer, which Arrow verified.

    Message.header is field 2; RecordBatch.buffers is field 2, RecordBatch.compression field 3
    (format/Message.fbs of the Arrow specification).
    """
    vector = _follow(metadata, _member(metadata, batch, 2))
    (count,) = struct.unpack_from("<I", metadata, vector)
    yield from struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count])


def _follow(metadata: bytes, position: int) -> int:
    return position + int(struct.unpack_from("<I", metadata, position)[0])


def _member(metadata: bytes, table: int, field: int) -> int:
    """Return where a field of a flatbuffer table stands, 0 if it is absent."""
    vtable = table - int(struct.unpack_from("<i", metadata, table)[0])
    (size,) = struct.unpack_from("<H", metadata, vtable)
    entry = 4 + 2 * field
    offset = int(struct.unpack_from("<H", metadata, vtable + entry)[0]) if entry < size else 0
    return table + offset if offset else 0


class _Stored(NamedTuple):
    """An array as the file holds it: a numpy array of a shape and dtype, or Arrow's own."""

    values: pa.Array
    shape: Any
    dtype: np.dtype[Any] | None

    def array(self) -> np.ndarray[Any, Any] | pa.Array:
        """Return the array; a numpy one is writable and owns its memory."""
        if self.dtype is None:
            return self.values
        values = self.values.to_numpy(zero_copy_only=False)
        return np.array(values.reshape(self.shape), self.dtype)


# The arrays of many files have few shapes.
@functools.lru_cache(1 << 10)
def _shape(text: bytes) -> Any:
    return json.loads(text)


def _stored(field: pa.Field, column: pa.Array) -> _Stored:
    """Return what one column of one row holds, once its metadata agree with it."""
    metadata, name = field.metadata or {}, field.name
    if len(metadata[b"shape"]) > SHAPE_BYTES:
        raise ValueError("a shape of too many numbers")
    shape, dtype = _shape(metadata[b"shape"]), metadata[b"dtype"].decode()
    if not pa.types.is_large_list(column.type) or column.null_count:
        raise ValueError(f"array {name!r} is no list")
    values = column[0].values
    if not isinstance(shape, list) or math.prod(shape) != len(values):
        raise ValueError(f"array {name!r} of shape {shape} has {len(values)} values")
    if dtype == "arrow":
        if values.type not in ARROW_TYPES or len(shape) != 1:
            raise ValueError(f"array {name!r} is of Arrow type {values.type}")
        return _Stored(values, shape, None)
    if values.type.id not in STORED_AS.get(dtype, ()):
        raise ValueError(f"array {name!r} is {dtype} in name, {values.type} in fact")
    if values.null_count:
        raise ValueError(f"array {name!r} has nulls")
    return _Stored(values, shape, DTYPES[dtype])
