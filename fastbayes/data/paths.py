"""From what names files (path, glob, directory, URI, list of these) to the files, in one order."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from fastbayes.core.errors import DataError, FileFormatError, refuse
from fastbayes.core.files import WEB, scheme_of
from fastbayes.core.ledger import digest_of
from fastbayes.data.filesystems import answered, file_system, why_not_found
from fastbayes.data.segments import FileChangedError, OnError, leaving_out, reading
from fastbayes.data.store_errors import CHECK

FORMATS = {
    "parquet": "parquet", "pq": "parquet", "parq": "parquet",
    "arrow": "ipc", "feather": "ipc", "ipc": "ipc", "arrows": "ipc",
    "csv": "csv", "tsv": "csv", "tab": "csv", "txt": "csv",
    "json": "json", "jsonl": "json", "ndjson": "json",
    "orc": "orc",
}  # fmt: skip
COMPRESSIONS = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc", b"\xff\xff\xff\xff": "ipc", b"ORC": "orc"}
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
# Why a directory is not read, as messages go on.
DELTA = (
    "holds a Delta table, whose directories have deleted rows, too; pass "
    "deltalake.DeltaTable(...), or what its to_pyarrow_dataset() is when filtered"
)
# What to pass where files are needed, as messages end.
FILES = (
    "pass paths: of a Delta table without deletion vectors and renamed columns, those of its "
    "file_uris()"
)
_WILD = re.compile(r"[*?\[]")
# A directory that says what a column is in all files below it.
_KEY = re.compile(r"\w[^/=]*=[^/]*")
# The value in it where the column is missing.
MISSING = "__HIVE_DEFAULT_PARTITION__"
# Files of models and of statistics, which are no rows where a job keeps them among these.
OWN = (".fb", ".fbs")
# What tells a directory from all others, by whatever path: device and inode.
_Inode: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class DataFile:
    """One file: where it is, what messages call it, what its directories say about its rows."""

    # Whether its bytes come over a pipe.
    read_once: ClassVar[bool] = False
    filesystem: pafs.FileSystem = field(hash=False)
    path: str
    origin: str
    size: int
    modified: int | None = None  # ns since 1970
    partitions: tuple[tuple[str, str | None], ...] = ()
    format: str = ""
    compression: str | None = None

    @property
    def local(self) -> bool:
        """Whether the file can be mapped into memory."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def check_unchanged(self) -> None:
        """Raise FileChangedError where the file is gone, or another one is in its place."""
        with reading(self.origin):
            info = self.filesystem.get_file_info(self.path)
        if (info.size, info.mtime_ns) != (self.size, self.modified):
            gone = info.type == pafs.FileType.NotFound
            what = ": no such file or directory any more" if gone else " changed while it was read"
            raise FileChangedError(
                f"{self.origin}{what}; begin again, as rows of it may be in already"
            )

    def digest(self) -> str:
        """Return what tells copies of the file, wherever they are, from other files."""
        with self.open() as handle:
            return digest_of(handle, self.size)

    def open(self) -> pa.NativeFile:
        """Open for random access."""
        return self.filesystem.open_input_file(self.path)

    def stream(self) -> pa.NativeFile:
        """Open from the beginning, decompressed."""
        return self.filesystem.open_input_stream(self.path, compression=self.compression)


class Listing:
    """What files paths named when they were looked up."""

    def __init__(
        self, names: Sequence[str], filesystem: Any, storage_options: Mapping[str, Any]
    ) -> None:
        self._names, self._where = names, (filesystem, storage_options)
        self._there: set[str] = set()

    def look_up(self, name: str, *, partitions: bool) -> list[DataFile]:
        """Return the files of one path, glob, directory or URI."""
        files = _resolve(name, *self._where, partitions)
        self._there.update(file.origin for file in files)
        return files

    def appeared(self) -> list[str]:
        """Return files that are there now and were not, by what messages call them."""
        now: list[DataFile] = []
        for name in self._names:
            with suppress(DataError):  # what is named vanished: of its files that is known
                now += _resolve(name, *self._where, False)
        return [file.origin for file in now if file.origin not in self._there]


def local_paths(name: str) -> list[str]:
    """Return the paths of files of this machine that a name stands for; itself, if of none."""
    if scheme_of(name) not in (None, "file"):
        return []
    with suppress(DataError):
        return [file.path for file in _resolve(name, None, {}, False)]
    return [name]


class FoundFiles(NamedTuple):
    """The files that paths name.

    files        in their order, of one format
    description  for messages
    listing      what was looked up
    """

    files: list[DataFile]
    description: str
    listing: Listing


def find_files(
    source: Any,
    filesystem: Any = None,
    on_error: OnError | None = None,
    *,
    partitions: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> FoundFiles:
    """Return the files that `source` names.

    A path or a sequence of paths: a file, a directory (searched through; names that begin with "."
    or "_" are ignored), a glob (`**` too), or a URI of one of these. With `partitions` directories
    `key=value` are columns: those below what is named, and those that lead to it, one after
    another. `storage_options` are those of the file system that a URI names. `on_error` gets the
    error of each file that is empty or not recognised, which is left out then; an empty one of JSON
    lines has no rows, and is left out where there are others. Raises DataError for a path that does
    not exist, is empty or matches nothing.
    """
    listed = [source] if isinstance(source, str | os.PathLike) else list(source)
    for item in listed:
        refuse(
            not isinstance(item, str | os.PathLike),
            f"{item!r} among the paths is no path but {type(item).__name__}",
        )
    names = [os.fspath(item) for item in listed]
    listing = Listing(names, filesystem, storage_options or {})
    files: list[DataFile] = []
    for name in names:
        for file in listing.look_up(name, partitions=partitions):
            with leaving_out(on_error):
                files.append(_with_format(file))
    refuse(not files, f"{os.fspath(listed[0])}: none of the files can be read")
    seen: set[tuple[str, str]] = set()
    for file in files:
        key = (file.filesystem.type_name, file.path)
        refuse(key in seen, f"{file.origin} is named twice; its rows would count double")
        seen.add(key)
    formats = {file.format: file for file in reversed(files)}
    if len(formats) > 1:
        one, two = list(formats.items())[-1], list(formats.items())[-2]
        raise DataError(
            f"{one[1].origin} is {one[0]} but {two[1].origin} is {two[0]}; name the files of one "
            "format, for instance by a glob"
        )
    # A file of JSON lines without a line has no columns: among others it adds nothing.
    files = [file for file in files if file.size] or files
    _check_bytes(files[0])
    count = f" ({len(files)} files)" if len(files) > 1 else ""
    more = ", ..." if len(listed) > 1 else ""
    return FoundFiles(files, f"{names[0]}{more}{count}", listing)


def _resolve(
    name: str, filesystem: Any, storage_options: Mapping[str, Any], partitions: bool
) -> list[DataFile]:
    """Return the files of one path, glob, directory or URI."""
    _check_name(name)

    def ask() -> tuple[pafs.FileSystem, str, pafs.FileInfo]:
        fs, path = _filesystem(name, filesystem, storage_options)
        return fs, path, fs.get_file_info(path)

    remote = scheme_of(name) not in (None, "file", "memory")
    with reading(name, CHECK if remote else ""):
        fs, path, info = answered(name, ask, storage_options) if remote else ask()
        if info.type == pafs.FileType.NotFound:
            wild = _wildcard(path)
            if wild is None:
                raise DataError(f"{name}: {why_not_found(fs, path)}")
            found = _glob(fs, path)
            refuse(not found, f"{name}: no file matches")
            base = path[: wild.start()].rpartition("/")[0]
            _check_no_part_of_a_table(fs, base)
            start = _start(base) if partitions else None
            return [file for info in found for file in _contents(fs, info, start)]
        base = _without_query(path).rstrip("/")
        if info.type != pafs.FileType.Directory:
            base = base.rpartition("/")[0]
        else:
            _check_no_part_of_a_table(fs, base)
        files = _contents(fs, info, _start(base) if partitions else None)
    refuse(not files, f"{name}: the directory holds no data files")
    return files


def _filesystem(
    name: str, filesystem: Any, storage_options: Mapping[str, Any]
) -> tuple[pafs.FileSystem, str]:
    if filesystem is not None:
        path = name if scheme_of(name) is None else name.split("://", 1)[1]
        if isinstance(filesystem, pafs.FileSystem):
            return filesystem, path
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path
    if scheme_of(name) is None:
        refuse(storage_options, f"{name}: storage options go with a URI, such as s3://bucket/path")
        return pafs.LocalFileSystem(), os.path.expanduser(name)
    # wildcards are not legal everywhere in a URI: only what stands before them is one
    wild = _wildcard(name)
    fixed = name[: wild.start()].rpartition("/")[0] if wild else name
    fs, path = file_system(fixed, storage_options)
    return fs, f"{path.rstrip('/')}/{name[len(fixed) + 1 :]}" if wild else path


def _wildcard(name: str) -> re.Match[str] | None:
    """Return the first wildcard of a path or URI; what follows "?" in one of HTTP is a query."""
    return _WILD.search(_without_query(name))


def _without_query(name: str) -> str:
    return name.partition("?")[0] if scheme_of(name) in WEB else name


def _start(base: str) -> int:
    """Return where the part of a path begins whose directories may be columns."""
    while _KEY.fullmatch(base.rpartition("/")[2]):
        base = base.rpartition("/")[0]
    return len(base)


def _check_no_part_of_a_table(fs: pafs.FileSystem, base: str) -> None:
    """Raise DataError where a directory is that of a Delta table, or of its partitions.

    Who names one of the files means it as it is.
    """
    root = base[: _start(base)]
    log = f"{root}/_delta_log" if root else "_delta_log"
    refuse(
        fs.get_file_info(log).type == pafs.FileType.Directory,
        f"{root or '.'} {DELTA}",
    )


def _contents(fs: pafs.FileSystem, info: pafs.FileInfo, base: int | None) -> list[DataFile]:
    """Return one file, or the files below a directory in the order of their paths."""
    if info.type != pafs.FileType.Directory:
        return [_data_file(fs, info, base)]
    root = info.path.rstrip("/")
    inside = _below(fs, info.path)
    refuse(
        any("/_delta_log/" in child.path[len(root) :] for child in inside),
        f"{root} {DELTA}",
    )
    kept = [
        child
        for child in inside
        if child.type != pafs.FileType.Directory
        and not child.base_name.startswith((".", "_"))
        and not _hidden(child.path[len(root) :])
        and not child.path.endswith(OWN)
    ]
    return [_data_file(fs, child, base) for child in sorted(kept, key=_path)]


def _below(fs: pafs.FileSystem, root: str) -> list[pafs.FileInfo]:
    """Return all that is below a directory; of one with a hidden name, only that it is there."""
    if not isinstance(fs, pafs.LocalFileSystem):
        return list(fs.get_file_info(pafs.FileSelector(root, recursive=True)))
    # pyarrow follows a symbolic link to a directory above it until the system stops at 40 links.
    found: list[pafs.FileInfo] = []
    left = [(root, _entered(fs, root, frozenset()))]
    while left:
        folder, above = left.pop()
        inside = _inside(fs, pafs.FileSelector(folder))
        found += inside
        left += [
            (child.path, _entered(fs, child.path, above))
            for child in inside
            if child.type == pafs.FileType.Directory
            and (not _hidden(child.base_name) or child.base_name == "_delta_log")
        ]
    return found


class _Unsaid(NamedTuple):
    """What pyarrow does not say: names that are not UTF-8, links whose targets are gone."""

    path: str
    base_name: str
    type: pafs.FileType
    size: int = 0
    mtime_ns: int | None = None


def _inside(fs: pafs.FileSystem, selector: pafs.FileSelector) -> list[Any]:
    """Return what is in a directory, of this machine also what pyarrow does not say."""
    if not isinstance(fs, pafs.LocalFileSystem):
        return list(fs.get_file_info(selector))
    folder = selector.base_dir
    with reading(folder):
        try:
            found = [info for info in fs.get_file_info(selector) if _has_path(info)]
        except PermissionError:  # of the directory, or of what a link in it leads to
            found = []
        said = {info.base_name for info in found}
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in said:
                    continue
                if not _is_utf8(entry.name):
                    found.append(_Unsaid(entry.path, entry.name, pafs.FileType.File))
                elif _leads_nowhere(entry.path):
                    found.append(_Unsaid(entry.path, entry.name, pafs.FileType.NotFound))
                elif os.path.exists(entry.path):  # or else it vanished
                    found.append(fs.get_file_info(entry.path))
    return found


def _leads_nowhere(path: str) -> bool:
    """Return whether there is a symbolic link and nothing behind it."""
    return os.path.islink(path) and not os.path.exists(path)


def _has_path(info: pafs.FileInfo) -> bool:
    try:
        return isinstance(info.path, str)
    except UnicodeDecodeError:
        return False


def _is_utf8(name: str) -> bool:
    """Return whether the bytes of a name are; others Python gives as halves of surrogate pairs."""
    return _shown(name) == name


def _shown(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def _check_name(name: str) -> None:
    refuse(not _is_utf8(name), f"{_shown(name)}: the name is not UTF-8; rename it", FileFormatError)


def _entered(fs: pafs.FileSystem, folder: str, above: frozenset[_Inode]) -> frozenset[_Inode]:
    """Return the directories above and this one; raise DataError where it is one of them."""
    if not isinstance(fs, pafs.LocalFileSystem):
        return above
    try:
        found = os.stat(folder)
    except OSError:  # it was removed since it was listed
        return above
    if not found.st_ino:  # of a file system that numbers nothing
        return above
    inode = found.st_dev, found.st_ino
    refuse(
        inode in above,
        f"{folder} leads back to a directory above it, whose rows would count again and again: "
        "remove the symbolic link, or name the files by a glob without **",
    )
    return above | {inode}


def _path(info: pafs.FileInfo) -> list[str]:
    return info.path.split("/")


def _data_file(fs: pafs.FileSystem, info: pafs.FileInfo, base: int | None) -> DataFile:
    path = _without_query(info.path)
    below = [] if base is None else path[base:].strip("/").split("/")[:-1]
    keys = dict(part.split("=", 1) for part in below if "=" in part)
    partitions = tuple(
        (unquote(key), None if value == MISSING else unquote(value)) for key, value in keys.items()
    )
    # A list of files need not tell their sizes, nor has a pipe one.
    if info.size is None and not isinstance(fs, pafs.LocalFileSystem):
        with reading(info.path, CHECK):
            info = fs.get_file_info(info.path)
        if info.type == pafs.FileType.NotFound:
            raise DataError(f"{info.path}: {why_not_found(fs, info.path)}")
        refuse(
            info.size is None,
            f"{info.path}: its store does not say how many bytes it has; download the file and "
            "name the copy",
            FileFormatError,
        )
    return DataFile(fs, info.path, _shown(info.path), info.size or 0, info.mtime_ns, partitions)


def _hidden(path: str) -> bool:
    """Return whether a name on the way says that it is passed over; no partition's does."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.split("/"))


def _glob(fs: pafs.FileSystem, pattern: str) -> list[pafs.FileInfo]:
    """Return what matches, in the order of paths, level by level like a shell does."""
    parts = pattern.split("/")
    wild = next(j for j, part in enumerate(parts) if _WILD.search(part))
    base = "/".join(parts[:wild]) or ("/" if pattern.startswith("/") else "")
    found = {info.path: info for info in _match(fs, base, parts[wild:])}
    return sorted(found.values(), key=_path)


def _match(
    fs: pafs.FileSystem,
    base: str,
    parts: Sequence[str],
    above: frozenset[_Inode] = frozenset(),
) -> Iterator[pafs.FileInfo]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        above = _entered(fs, base or ".", above)
    if part == "**" and rest:
        yield from _match(fs, base, rest)
    elif part != "**" and not _WILD.search(part):
        info = fs.get_file_info(_under(base, part))
        gone = info.type == pafs.FileType.NotFound
        if gone and not (isinstance(fs, pafs.LocalFileSystem) and _leads_nowhere(info.path)):
            return
        if gone or not rest:
            yield info
        elif info.type == pafs.FileType.Directory:
            yield from _match(fs, info.path, rest)
        return
    selector = pafs.FileSelector(base or ".", allow_not_found=True)
    for info in _inside(fs, selector):
        name, folder = info.base_name, info.type == pafs.FileType.Directory
        partition = folder and "=" in name  # which a shell would pass over, but a directory has
        if name.startswith(".") and not part.startswith(".") and not partition:
            continue
        if not base and info.path.startswith("./"):
            bare = info.path[2:]
            said = isinstance(info, pafs.FileInfo)
            info = fs.get_file_info(bare) if said else info._replace(path=bare)
        file = not rest or info.type == pafs.FileType.NotFound  # who knows what is not there
        if part == "**":
            if folder and not _hidden(name):
                yield from _match(fs, info.path, parts, above)
            elif file and not folder and not name.startswith("_") and not name.endswith(OWN):
                yield info
        elif fnmatch.fnmatchcase(name, part):
            if file:
                yield info
            elif folder:
                yield from _match(fs, info.path, rest)


def _under(base: str, name: str) -> str:
    return f"{base.rstrip('/')}/{name}" if base else name


def _with_format(file: DataFile) -> DataFile:
    """Tell the format by the extension, otherwise by the first bytes."""
    _check_name(file.path)
    _check_is_file(file)
    name = _without_query(file.path).rpartition("/")[2].lower()
    stem, _, last = name.rpartition(".")
    compression = COMPRESSIONS.get(last)
    if compression:
        last = stem.rpartition(".")[2]
    kind = FORMATS.get(last)
    if kind != "json" or compression:
        _check_bytes(file)
    if kind is None:
        with reading(file.origin):
            kind, compression = _sniff(file, compression)
    refuse(
        compression and kind not in ("csv", "json"),
        f"{file.origin}: a {kind} file compressed as a whole; unpack it first",
        FileFormatError,
    )
    return replace(file, format=kind, compression=compression)


def _check_is_file(file: DataFile) -> None:
    if file.size or not file.local:
        return
    refuse(
        not os.path.exists(file.path),
        f"{file.origin}: {why_not_found(file.filesystem, file.path)}",
    )
    refuse(
        not os.path.isfile(file.path),
        f"{file.origin} is a pipe or a device, and a file is read more than once: write the rows "
        "to one, or send them to standard input and name '-'",
        FileFormatError,
    )


def _check_bytes(file: DataFile) -> None:
    refuse(
        file.size == 0,
        f"{file.origin} is empty (0 bytes); write it again or leave it out",
        FileFormatError,
    )


def _sniff(file: DataFile, compression: str | None) -> tuple[str, str | None]:
    with file.filesystem.open_input_stream(file.path, compression=compression) as stream:
        start = stream.read(4096)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    packed = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    if kind is None and packed is not None and compression is None:
        return _sniff(file, packed)
    refuse(
        kind is None and not start.lstrip().startswith(b"{"),
        f"{file.origin}: not recognised as Parquet, Arrow IPC, ORC or JSON lines; text needs a "
        "name that ends in .csv or .tsv",
        FileFormatError,
    )
    return kind or "json", compression
