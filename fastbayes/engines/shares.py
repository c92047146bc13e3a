"""Files counted by any engine that maps a function over parts: each worker reads some of them."""

from __future__ import annotations

import builtins
import functools
import json
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa

from fastbayes.core.errors import DataError, FastBayesError, described, error_of
from fastbayes.data.filesource import FileSource
from fastbayes.data.memory import StreamSource
from fastbayes.data.nested import roots
from fastbayes.data.paths import FILES
from fastbayes.data.segments import Source
from fastbayes.data.source import open_source
from fastbayes.data.unify import Columns
from fastbayes.kernels import dispatch
from fastbayes.scan.engine import OfStatistics
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest
from fastbayes.statistics.bundle import Statistics

T = TypeVar("T")
U = TypeVar("U")
# Applies a function to each of some items: what it gives comes in their order.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
# See `Streams`.
Counts = Callable[[Iterable[pa.RecordBatch]], bytes]
OnPartitions = Callable[
    [Sequence[str], Counts, Callable[[Iterable[bytes]], bytes]], Iterable[bytes]
]
# What the bytes of a share begin with: "=", whether nothing was cached, its rows, its positions.
HEAD = struct.Struct("<c?QI")


def map_reduce(
    parts: Iterable[T],
    f: Callable[[T], U],
    add: Callable[[U, U], U],
    map: Map = builtins.map,
) -> U:
    """Return the sum of what a function gives for parts.

    Parameters
    ----------
    parts
        At least one.
    f
        Gives a value for a part.
    add
        Adds two values.
    map
        Applies a function to each of some items, as the built-in does, perhaps elsewhere: that of
        an executor, of a pool, of a cluster. What it gives comes in the order of the parts.

    Returns
    -------
    object
        The sum, added in the order of the parts.

    Raises
    ------
    ValueError
        When there are no parts.

    Examples
    --------
    >>> import operator
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import fastbayes as fb
    >>> parts = [{"x": ["a", "b"], "y": ["no", "yes"]}, {"x": ["a"], "y": ["yes"]}]
    >>> with ThreadPoolExecutor(2) as pool:
    ...     stats = map_reduce(parts, lambda part: fb.count(part, "y"), operator.add, pool.map)
    >>> stats.n_rows
    3
    """
    try:
        return functools.reduce(add, map(f, parts))
    except TypeError as error:
        if "reduce() of empty" not in str(error):
            raise
        raise ValueError("there are no parts to add; give at least one") from None


class Paths:
    """Files that workers read, as a source: for `fit`, `count` and whatever takes one.

    Parameters
    ----------
    source
        A path, glob, directory or URI, or a list of paths, as `count` takes them. Every worker
        must find the files there.
    map
        As in `map_reduce`; function and items may be pickled, and results are bytes.
    parts
        Into how many parts the files are divided, at most: some for each worker, so that all end
        at about the same time.
    filesystem
        A pyarrow or fsspec file system for paths, which may be pickled.
    """

    def __init__(self, source: Any, map: Map, parts: int, filesystem: Any = None) -> None:
        self.source, self.map, self.parts, self.filesystem = source, map, parts, filesystem

    def __repr__(self) -> str:
        return f"<Paths {self.source!r} in {self.parts} parts>"

    def __fastbayes_source__(self, *, filesystem: Any = None, **options: Any) -> Shares:
        """Open the files here, to learn their columns and types."""
        where = self.filesystem if filesystem is None else filesystem
        files = open_source(self.source, filesystem=where, **options)
        if not isinstance(files, FileSource):
            raise DataError(f"{files.description}: workers read files; {FILES}")
        return Shares(files, self)


class PartOfFiles:
    """Some of the files, or of their row groups, as a source; see `part`."""

    def __init__(self, source: Any, i: int, n: int) -> None:
        self.source, self.i, self.n = source, i, n

    def __repr__(self) -> str:
        return f"<PartOfFiles {self.i}/{self.n} of {self.source!r}>"

    def __fastbayes_source__(self, **options: Any) -> Source:
        """Open all files, whose types the part has, too."""
        files = open_source(self.source, **options)
        if not isinstance(files, FileSource):
            raise DataError(f"{files.description}: only files have parts; {FILES}")
        return files.part(self.i, self.n)


def part(source: Any, i: int, n: int) -> PartOfFiles:
    """Return one of n parts of files as a source, for jobs that each count one.

    Parameters
    ----------
    source
        A path, glob, directory or URI, or a list of paths, as `count` takes them.
    i
        Which part, from 1 to n.
    n
        How many parts: files, or row groups, of about as many bytes each, the same on every machine
        that finds the same files. Some are empty where there are fewer.

    Returns
    -------
    PartOfFiles
        A source for `count`, and for whatever takes one. Columns have the types that they have in
        all files. What parts learn for themselves, such as cut points, is not the same in all:
        `count(schema=)` gives it.

    Raises
    ------
    ValueError
        When i and n are not whole numbers, 1 <= i <= n.

    Examples
    --------
    >>> import fastbayes as fb
    >>> fb.engines.part("flights/*.parquet", 3, 8)
    <PartOfFiles 3/8 of 'flights/*.parquet'>
    """
    if not all(type(k) is int for k in (i, n)) or not 1 <= i <= n:
        raise ValueError(f"part {i!r} of {n!r}: parts are numbered from 1 to their number")
    return PartOfFiles(source, i, n)


class Workers(Counter):
    """Rows that workers read; a subclass says how work gets to them."""

    @abstractmethod
    def counted(self, work: Work[Any]) -> Iterable[bytes]:
        """Return what `work` says of each share, or sums of that (`Work.sum`)."""

    def held(self, threads: int) -> int:
        """Return the bytes of rows that are held here: none."""
        return 0

    def run(
        self, request: ScanRequest[T], threads: int | None = None, progress: Progress | None = None
    ) -> Partial[T]:
        """Return what all rows say; see `Counter.run`."""
        work = Work(request, threads or 1)

        def readings() -> Iterator[SharesRead[T]]:
            for data in self.counted(work):
                read = work.read(data)
                if progress is not None:
                    progress(read.part.rows)
                yield read

        nothing = SharesRead((), Partial(0, request.zero()))
        found = functools.reduce(work.add, readings(), nothing)
        self.check(found.shares)
        if found.uncached and not dispatch.uncached():  # which said it
            dispatch.warn_of_workers()
        return found.part

    def check(self, shares: Sequence[int]) -> None:
        """Raise DataError unless each share answered once, where that can be known."""


class Shares(Workers):
    """Rows of files, each share of which a worker reads."""

    ordered = True

    def __init__(self, files: FileSource, paths: Paths) -> None:
        super().__init__(files.schema, None, None, files.description, paths)
        self._files, self._paths = files, paths
        self.available, self.index_columns = files.available, files.index_columns
        self.n_rows, self.versions = files.n_rows, files.versions
        self._n_shares = 0

    def only(self, columns: Sequence[str]) -> Shares:
        """Return the source with these columns; workers read no others."""
        return Shares(self._files.only(columns), self._paths)

    def check_unchanged(self) -> None:
        """Raise DataError where files are no longer those that were found."""
        self._files.check_unchanged()

    def local_files(self) -> list[str]:
        """Return the paths of files of this machine that are read."""
        return self._files.local_files()

    def counted(self, work: Work[Any]) -> Iterable[bytes]:
        """Return what `work` says of the files of each worker."""
        shares = self._files.shares(self._paths.parts)
        self._n_shares = len(shares)
        return self._paths.map(work, shares)

    def check(self, shares: Sequence[int]) -> None:
        """Raise DataError unless each share answered once."""
        for i in range(self._n_shares):
            if (times := shares.count(i)) != 1:
                raise DataError(
                    f"{self.description}: share {i + 1} of {self._n_shares} was counted {times} "
                    "times; `map` must give one result for each item"
                )


class Streams(Workers):
    """Rows of a frame whose partitions, all of one schema, workers turn into record batches.

    `on_partitions` calls a function, which may be pickled, with the record batches of each
    partition, where it lies, and returns what it gives: its arguments are the columns that are
    wanted, at least, the function, and one that adds what it gives.
    """

    def __init__(
        self,
        schema: pa.Schema,
        on_partitions: OnPartitions,
        description: str,
        native: Any,
        columns: Columns = None,
        null_values: Sequence[str] | None = None,
    ) -> None:
        super().__init__(schema, columns, null_values, description, native)
        self._on_partitions, self._null_values = on_partitions, null_values
        self._whole = schema

    def only(self, columns: Sequence[str]) -> Streams:
        """Return the source with these columns."""
        given = self._on_partitions, self.description, self.native
        return Streams(self._whole, *given, columns, self._null_values)

    def counted(self, work: Work[Any]) -> Iterable[bytes]:
        """Return what `work` says of each partition, or of several."""
        counts = partial(_of_stream, work, self.schema, self._null_values, self.description)
        columns = roots(self.schema.names, self._whole.names)
        return self._on_partitions(columns, counts, work.sum)


def _of_stream(
    work: Work[Any],
    schema: pa.Schema,
    null_values: Sequence[str] | None,
    description: str,
    batches: Iterable[pa.RecordBatch],
) -> bytes:
    given = {"null_values": null_values, "description": description, "columns": schema.names}
    return work(StreamSource(lambda: batches, schema, rereadable=False, **given))


class Given(OfStatistics):
    """Statistics that a function gives for a part, whatever that is."""

    def __init__(self, f: Callable[[Any], Statistics]) -> None:
        self.f = f

    def count(self, rows: Any, threads: int | None) -> Partial[Statistics]:
        """Return the statistics of a part."""
        return Partial(0, self.f(rows))

    def zero(self) -> Statistics:
        """Refuse: nobody knows the columns."""
        raise ValueError("there are no parts to add; give at least one")


class SharesRead(NamedTuple, Generic[T]):
    """What shares say.

    shares    their positions, of those that have one
    part      what their rows say
    uncached  whether compiled code could not be kept on a disk where they were read
    """

    shares: tuple[int, ...]
    part: Partial[T]
    uncached: bool = False


class Work(Generic[T]):
    """Counts a share where it is called; its errors are bytes, too, whatever carries them."""

    def __init__(self, request: ScanRequest[T], threads: int) -> None:
        self.request, self.threads = request, threads

    def __call__(self, share: Source) -> bytes:
        """Return what a share says."""
        shares: tuple[int, ...] = ()
        try:
            if isinstance(share, FileSource):  # found elsewhere, a while ago
                share.check_unchanged()
                shares = (share.position,)
            part = self.request.count(share, self.threads)
            return self._bytes(SharesRead(shares, part, dispatch.uncached()))
        except FastBayesError as error:
            return _error(error)

    def _bytes(self, read: SharesRead[T]) -> bytes:
        shares, (rows, value), uncached = read
        head = HEAD.pack(b"=", uncached, rows, len(shares))
        return head + struct.pack(f"<{len(shares)}I", *shares) + self.request.to_bytes(value)

    def read(self, data: bytes) -> SharesRead[T]:
        """Return what a share says; raises its error."""
        if data[:1] == b"!":
            raise error_of(*json.loads(data[1:]))
        _, uncached, rows, n = HEAD.unpack_from(data)
        shares = struct.unpack_from(f"<{n}I", data, HEAD.size)
        value = self.request.from_bytes(data[HEAD.size + 4 * n :])
        return SharesRead(shares, Partial(rows, value), uncached)

    def add(self, a: SharesRead[T], b: SharesRead[T]) -> SharesRead[T]:
        """Return what the rows of both say."""
        (mine, theirs), value = (a.part, b.part), self.request.add(a.part.value, b.part.value)
        part = Partial(mine.rows + theirs.rows, value)
        return SharesRead(a.shares + b.shares, part, a.uncached or b.uncached)

    def sum(self, found: Iterable[bytes]) -> bytes:
        """Return what several shares say together: the first error, if there is one."""
        parts = [*found]
        for data in parts:
            if data[:1] == b"!":
                return data
        if len(parts) == 1:
            return parts[0]
        try:
            return self._bytes(functools.reduce(self.add, map(self.read, parts)))
        except FastBayesError as error:
            return _error(error)


def _error(error: FastBayesError) -> bytes:
    return b"!" + json.dumps(described(error)).encode()
