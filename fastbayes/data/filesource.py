"""Files as sources: what all readers share, and those of Parquet and Arrow IPC."""

from __future__ import annotations

import copy
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, FileFormatError, SchemaError, refuse
from fastbayes.core.ledger import CountedFile, Ledger, Runs, runs_of
from fastbayes.core.threads import in_order
from fastbayes.data.column_chunks import (
    BATCH_ROWS,
    INSTANTS_IN,
    LEAST_READ,
    PAGE_ROWS,
    ColumnChunk,
    Dictionaries,
    FileColumns,
    Footers,
    GroupsReader,
    HandedOver,
    filling,
    read_chunks,
)
from fastbayes.data.decoded_rows import DecodedRows, is_indices
from fastbayes.data.memory import TableSource
from fastbayes.data.nested import flat, flat_schema, may_open, opened, roots
from fastbayes.data.number_chunks import NumberCalls, NumberChunks, of_numbers, reading_numbers
from fastbayes.data.paths import DataFile, Listing
from fastbayes.data.rejects import Rejects
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    AlikeParts,
    FileChangedError,
    LateNumbers,
    OnError,
    Read,
    Rows,
    Segment,
    SegmentPart,
    Source,
    behind,
    leaving_out,
    numbers,
    reading,
    reblock,
    row_bytes,
    sound,
    stream_segments,
    waiting,
)
from fastbayes.data.store_errors import StoreError
from fastbayes.data.unify import (
    Columns,
    ColumnsOfFiles,
    asked_of,
    check_names,
    index_of,
    is_binary,
    is_text,
    odd_ones,
    unify_schemas,
    without_dictionary,
)
from fastbayes.kernels import dispatch

# From this many files on, footers are read by several threads (latency, above all remote).
MANY_FILES = 16
# Below this many cells of Parquet files pyarrow is done in 50 ms; our kernels take seconds to
# compile.
SMALL_FILES = 10_000_000
# Without the kernels the footer takes as long for a column chunk as so many cells.
CHUNK_CELLS = 1_000
# What pyarrow holds of a column that it decodes: a page and the dictionary, as they are stored and
# unpacked, each of up to a MiB.
ARROW_COLUMN = 4 << 20
# How files of different columns are read together; see `unify_schemas`.
SCHEMA_MODES = ("union", "strict", "first")
# With this begin the notes of columns that files lack.
LACKED = "absent: "
_REMEDY = "write the file again or leave it out"

log = logging.getLogger(__name__)


# See `Piece.apart`.
ReadApart = Callable[
    [Sequence[str]], AbstractContextManager[tuple[Read, bool, NumberChunks | None]]
]


Alike = Callable[[Sequence[Sequence[int]], DecodedRows, NumberCalls | None], AlikeParts]


class Piece(NamedTuple):
    """Rows of one file that one worker reads.

    together  whether its batches are few, and handed out as a table, or as they were decoded
    apart     opens columns of numbers of these names to be decoded block by block, those for which
              that can be, and returns what reads the other columns, whether `together`, and these;
              None: it cannot
    groups    row groups of which it is decoded at once, where others may take their place
    alike     tells of such groups of pieces, up to the first not decoded like some earlier rows and
              numbers
    goes_on   whether the next piece is of the same segment
    unused    positions of rows that are left out, among all, known once it is read
    """

    first_row: int
    n_rows: int | None
    read: Read
    together: bool = False
    apart: ReadApart | None = None
    groups: Sequence[int] = ()
    alike: Alike | None = None
    goes_on: bool = False
    unused: Sequence[int] = ()


class FileReader(ABC):
    """One file: opened to learn its schema, closed, opened again for every piece."""

    # Whether a column that this file lacks is null in all its rows (formats that omit nulls).
    absent_is_null: ClassVar[bool] = False
    # Whether single rows may be left out.
    by_rows: ClassVar[bool] = False
    # Columns that may hold what no model takes, where rows are left out.
    copied: Container[str] = ()
    # Whether it hands out many blocks at once, where that is asked for.
    many_blocks: ClassVar[bool] = False
    file: DataFile
    schema: pa.Schema
    n_rows: int | None
    # Rows of the largest piece; 0 for a few blocks.
    rows_of_piece: int = 0
    # Parts of it that may be read apart from the others.
    n_parts: int = 1
    # What to do for reading to take less memory, as an error says it.
    takes_less: ClassVar[str] = "read fewer with `columns`"

    @abstractmethod
    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield the pieces of the columns in `schema`, all of which the file has.

        `batch_bytes` is what is decoded at a time, where there is a choice; so many `threads` read.
        Small pieces may be `merged` into one.
        """

    @abstractmethod
    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes threads hold that read pieces, and what waits for them."""

    def handed_over(self) -> dict[str, str]:
        """Return the columns that pyarrow decodes where our kernels could, with the reasons."""
        return {}

    def part(self, first: int, last: int) -> Self:
        """Return a reader of the parts from one to another."""
        return self

    def runs(self) -> Runs:
        """Return how often its row groups are counted."""
        return ((1, 1.0),)

    def part_ends(self) -> NDArray[np.int64] | None:
        """Return the rows up to the end of each part, (n_parts,); None where nobody knows."""
        return None

    def part_sizes(self) -> NDArray[np.float64]:
        """Return about how many bytes of the file each part has, (n_parts,)."""
        return np.array([self.file.size], np.float64)


R = TypeVar("R", bound=FileReader)


class FileSource(Source):
    """Files of one format, read one after another in pieces."""

    many_blocks = True

    def __init__(
        self,
        readers: Sequence[FileReader],
        *,
        columns: Columns,
        null_values: Sequence[str] | None,
        description: str,
        native: Any,
        on_error: OnError | None = None,
        schema_mode: str = "union",
        listing: Listing | None = None,
        rejects: Rejects | None = None,
    ) -> None:
        self._listing, self._rejects = listing, rejects
        self._readers = readers
        self._on_error = on_error
        self.description = description
        schema = self._unified(schema_mode, columns)
        stored = [*{id(reader.schema): reader.schema for reader in self._readers}.values()]
        self._nested = any(map(may_open, stored))
        # The columns of all files before structs are opened, each as the first has it.
        self._stored = {f.name: f for one in stored[::-1] for f in one} if self._nested else {}
        every = self.available, self.index_columns
        super().__init__(schema, None, null_values, description, native)
        self.available, self.index_columns = every
        self._note_files()

    def _note_files(self) -> None:
        readers = self._readers
        self.versions = [(r.file.origin, r.file.size, r.file.modified) for r in readers]
        known = [reader.n_rows for reader in readers if reader.n_rows is not None]
        self.n_rows = sum(known) if len(known) == len(readers) else None

    def shares(self, most: int) -> list[FileSource]:
        """Return sources that have all the rows between them, each some of the files, in order.

        They may be pickled and are read anywhere. There are at most so many, of about as many
        bytes each; files are divided where their format allows it. What cannot be read is an error
        in each, whatever `on_error` says here.
        """
        if self._rejects is not None:
            raise DataError(
                f"{self.description}: workers keep no rejected rows (on_error='skip-rows'); mend "
                "the files, or read them here"
            )
        shares = [self._of(readers) for readers in self._divided(most) if readers]
        for position, share in enumerate(shares):
            share.native, share._on_error, share.position = None, None, position
        return shares

    def part(self, i: int, n: int) -> Source:
        """Return the i-th of n parts of the rows, counted from 1, of about as many bytes each.

        Files alike, of the same names and sizes, are divided alike on every machine. A part may
        have no rows.
        """
        readers = self._divided(n)[i - 1]
        description = f"{self.description}, part {i}/{n}"
        part: Source
        if readers:
            part = self._of(readers)
            part.description = description
        else:
            nothing = self.schema.empty_table()
            part = TableSource(
                nothing, columns=None, null_values=None, description=description, native=None
            )
        part.of_whole = n == 1
        return part

    def behind(self, rows: int) -> FileSource | None:
        """Return the row groups that come after so many rows; None where they do not begin one."""
        left: list[FileReader] = []
        for reader in self._readers:
            ends = reader.part_ends()
            if ends is None or (0 < rows < ends[-1] and rows not in ends):
                return None
            if rows < ends[-1]:
                first = int(np.searchsorted(ends, rows, side="right"))
                left.append(reader.part(first, len(ends)))
            rows = max(rows - int(ends[-1]), 0)
        return self._of(left)

    def without(self, ledger: Ledger) -> FileSource | None:
        """Return the files that are not in a ledger, of copies the first; None where all are.

        Raises
        ------
        DataError
            When a file that was counted is gone, is another one now, or was counted in part.
        """
        counted = {(file.path, file.size, file.modified): file.digest for file in ledger}
        readers, digest_of = self._readers, partial(self._digest, known=counted)
        here = [*zip(readers, in_order(digest_of, readers, _threads_for(readers)), strict=True)]
        there = Counter(digest for _, digest in here)
        paths = {reader.file.origin: digest for reader, digest in here}
        for file in ledger:
            if there[file.digest] < len(file.paths) and not file.is_batch:
                lost = next(path for path in file.paths if paths.get(path) != file.digest)
                found = self._readers[0].file.filesystem.get_file_info(lost)
                refuse(
                    lost not in paths and found.type != pafs.FileType.NotFound,
                    f"{lost} is not among the files that are named, and its rows are in the "
                    "statistics; name it, too, or count the new files alone and merge",
                )
                why = "changed since it was counted" if lost in paths else "is gone"
                raise DataError(
                    f"{lost} {why}, and its rows are in the statistics; count anew, or take its "
                    "old rows out first"
                )
        # By their digests: paths of files whose rows are in, or will be, and how many were moved.
        stand = {f.digest: [p for p in f.paths if paths.get(p) == f.digest] for f in ledger}
        moved = {file.digest: len(file.paths) - len(stand[file.digest]) for file in ledger}
        new = []
        for reader, digest in here:
            origin = reader.file.origin
            held = ledger.of(digest)
            if held is not None and not all(times for _, times in held.runs):
                raise DataError(
                    f"{origin}: only some of its row groups are in the statistics; count anew"
                )
            if digest not in stand:
                if reader.n_rows != 0:
                    new.append(reader)
                    stand[digest] = [origin]
            elif origin in stand[digest]:
                continue
            elif moved.get(digest, 0) > 0:
                moved[digest] -= 1
                stand[digest].append(origin)
            else:
                log.warning(
                    "%s has the same bytes as %s, which is in the statistics: left out",
                    origin,
                    stand[digest][0],
                )
        return self._of(new) if new else None

    @staticmethod
    def _digest(reader: FileReader, known: Mapping[Any, str]) -> str:
        file = reader.file
        digest = known.get((file.origin, file.size, file.modified))
        if digest is not None and file.modified is not None:
            return digest
        with reading(file.origin):
            return file.digest()

    def _of(self, readers: Sequence[FileReader]) -> FileSource:
        """Return the rows of some of the files."""
        other = copy.copy(self)
        other._readers, other._listing = readers, None
        other._note_files()
        return other

    def _divided(self, n: int) -> list[list[FileReader]]:
        """Return the readers of n parts of about as many bytes each, in order."""
        parts = [(reader, i) for reader in self._readers for i in range(reader.n_parts)]
        sizes = np.concatenate([reader.part_sizes() for reader in self._readers])
        ends = np.cumsum(sizes)
        middle = (ends - sizes / 2) / max(float(ends[-1]), 1.0)
        owner = np.minimum((middle * n).astype(np.int64), n - 1)
        found: list[list[FileReader]] = [[] for _ in range(n)]
        owned = zip(owner.tolist(), parts, strict=True)
        for (share, reader), group in groupby(owned, lambda part: (part[0], part[1][0])):
            some = [i for _, (_, i) in group]
            found[share].append(reader.part(some[0], some[-1] + 1))
        return found

    def _unified(self, mode: str, columns: Columns) -> pa.Schema:
        """Return the columns of all files; with `on_error` files that do not fit are left out."""
        if mode not in SCHEMA_MODES:
            raise ValueError(f"schema_mode={mode!r}: use one of {', '.join(SCHEMA_MODES)}")
        parts, where = self._kinds(columns), self.description
        if self._on_error is not None and (odd := odd_ones(parts, mode, columns, where)):
            lost = {file for i in odd for file in parts[i].files}
            for i, error in odd.items():
                for file in parts[i].files:
                    self._on_error(SchemaError(str(error).replace(parts[i].files[0], file)))
            self._readers = [r for r in self._readers if r.file.origin not in lost]
            parts = [part for i, part in enumerate(parts) if i not in odd]
        schema = unify_schemas(parts, mode, columns, where)
        self.available = [*dict.fromkeys(name for part in parts for name in part.schema.names)]
        if mode != "union":
            self.available = parts[0].schema.names
        index = index_of(parts)
        self.index_columns = [name for name in self.available if name in index]
        self.notes = [*_absences(schema.names, parts)]
        return schema

    def _kinds(self, columns: Columns) -> list[ColumnsOfFiles]:
        """Return the columns that files have, each with the files that have them.

        A column without a type has the fields that it has in other files, or that are asked for.
        """
        kinds: dict[tuple[int, tuple[str, ...]], ColumnsOfFiles] = {}
        for reader in self._readers:  # ten thousand files, one schema
            shape = (id(reader.schema), tuple(key for key, _ in reader.file.partitions))
            if shape not in kinds:
                kinds[shape] = ColumnsOfFiles(_with_partitions(reader), [], reader.absent_is_null)
            kinds[shape].files.append(reader.file.origin)
        parts = [*kinds.values()]
        schemas = opened([part.schema for part in parts], asked_of(columns))
        return [replace(part, schema=one) for part, one in zip(parts, schemas, strict=True)]

    def check_unchanged(self) -> None:
        """Raise FileChangedError where files are no longer those that were found."""
        checks = [reader.file.check_unchanged for reader in self._readers]
        for _ in in_order(lambda check: check(), checks, _threads_for(checks)):
            pass

    def local_files(self) -> list[str]:
        """Return the paths of files of this machine that are read."""
        return [reader.file.path for reader in self._readers if reader.file.local]

    def ledger(self, read: Container[str] | None = None) -> Ledger:
        """Return the files and their row groups; of those that are known to be empty none.

        Of these alone some rows were `read`; None: of all.

        Raises
        ------
        DataError
            When a file of which rows were read is gone, or no longer what it was when it was found;
            when another one is there now: `on_error` gets that.
        """

        def counted(reader: FileReader) -> CountedFile:
            file = reader.file
            with reading_file(file):
                file.check_unchanged()
                given = file.digest(), file.origin, file.size, file.modified
            return CountedFile(*given, reader.runs())

        for origin in self._listing.appeared() if self._listing else ():
            with leaving_out(self._on_error):
                raise DataError(f"{origin} appeared while {self.description} was read; count again")
        full = [reader for reader in self._readers if reader.n_rows != 0]
        if read is not None:
            full = [reader for reader in full if reader.file.origin in read]
        return Ledger(in_order(counted, full, _threads_for(full)))

    def only(self, columns: Sequence[str]) -> FileSource:
        """Return the source with these columns; the others are not decoded."""
        fewer = copy.copy(self)
        fewer.schema = pa.schema([self.schema.field(name) for name in columns])
        fewer._projection = self._projection.onto(fewer.schema)
        return fewer

    def check_lost(self, origin: str, n_rows: int, error: DataError) -> None:
        """Raise RejectLimitError where so many rows may not be left out together for an error.

        Of files whose single rows may be.
        """
        if self._rejects is not None and self._readers[0].by_rows:
            self._rejects.check_block(origin, n_rows, error)

    def copying(self, names: Sequence[str]) -> None:
        """Take note of columns that are copied, so that no row is left out for what they hold."""
        for reader in self._readers:
            reader.copied = frozenset(names)

    def left_out(self) -> list[str]:
        """Return how many rows of which file were left out."""
        return [] if self._rejects is None else self._rejects.notes()

    def handed_over(self) -> dict[str, str]:
        """Return the columns of the first file that pyarrow decodes, with the reasons."""
        found = self._readers[0].handed_over()
        names = self.schema.names
        return {n: found[root] for n in names for root in roots([n], found) if root in found}

    def held(self, threads: int) -> int:
        """Return about how many bytes so many threads hold that read, by the first file.

        Its own bytes and those of a block that is put together from several batches.
        """
        reader = self._readers[0]
        alike = sum(other.n_rows != 0 for other in self._readers[:threads])
        with reading_file(reader.file):
            columns = self._columns_of(reader)
            held = reader.held(columns, threads, self.batch_bytes)
            if alike > 1:  # a thread each
                held = max(held, threads * reader.held(columns, 1, self.batch_bytes))
        return held

    @property
    def takes_less(self) -> str:
        """What to do for reading the first file to take less memory, as an error says it."""
        return self._readers[0].takes_less

    def rows_of_segment(self) -> int:
        """Return about how many rows the largest segment has, by the first file."""
        return self._readers[0].rows_of_piece or super().rows_of_segment()

    def _columns_of(self, reader: FileReader) -> pa.Schema:
        own = {*reader.schema.names}
        fields = {field.name: field for field in self.schema}
        if self._nested:  # of a struct all fields are read
            known = self._stored | {field.name: field for field in reader.schema}
            held = roots(fields, own)
            if reader.absent_is_null:
                held = roots(held, known)
            fields = {name: fields[name] if name in fields else known[name] for name in held}
        if reader.absent_is_null:  # the first rows may lack a key that later ones have
            own |= set(fields) - {key for key, _ in reader.file.partitions}
        read = [field for name, field in fields.items() if name in own]
        return pa.schema(read or [reader.schema.field(0)])  # only directories: rows are counted

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the pieces of every file in turn."""
        index, threads, before = 0, self.threads or pa.cpu_count(), 0
        for reader in self._readers:
            columns = self._columns_of(reader)
            rows, merged = min(block_rows, BLOCK_ROWS), self.merged and block_rows > BLOCK_ROWS
            pieces: list[Piece] = []
            with leaving_out(self._on_error), reading_file(reader.file):
                for piece in reader.pieces(columns, rows, self.batch_bytes, threads, merged):
                    pieces.append(piece)
                    if not piece.goes_on:
                        yield self._segment(index, reader, pieces, block_rows, before)
                        index, pieces = index + 1, []
            before = -1 if before < 0 or reader.n_rows is None else before + reader.n_rows

    def _segment(
        self,
        index: int,
        reader: FileReader,
        pieces: Sequence[Piece],
        block_rows: int,
        before: int,
    ) -> Segment:
        """Return the segment of pieces that follow on each other, behind files of so many rows."""
        reads = [partial(self._read, reader, piece, block_rows) for piece in pieces]
        sizes = [piece.n_rows for piece in pieces]
        parts, alike, first = [], None, pieces[0]
        if all(p.groups for p in pieces) and (tell := first.alike) and not self._twice(reader):
            order = _in_turn(sizes)
            groups = [pieces[k].groups for k in order]
            parts = [
                SegmentPart(pieces[k].first_row - first.first_row, sizes[k] or 0, reads[k])
                for k in order
            ]

            def alike(part: int, *rows: Any) -> AlikeParts:
                return tell(groups[part:], *rows)

        apart = None
        if first.apart and len(pieces) == 1:
            apart = partial(self._read_apart, reader, first, block_rows)
        return Segment(
            index,
            reader.file.origin,
            first.first_row,
            None if None in sizes else sum(n or 0 for n in sizes),
            reads[0] if len(pieces) == 1 else lambda: (rows for read in reads for rows in read()),
            -1 if before < 0 or first.first_row < 0 else before + first.first_row,
            read_apart=apart,
            parts=parts,
            alike=alike,
            unused=first.unused,
        )

    @contextmanager
    def _read_apart(
        self, reader: FileReader, piece: Piece, block_rows: int, names: Sequence[str]
    ) -> Iterator[tuple[Iterator[Rows], LateNumbers | None]]:
        assert piece.apart is not None
        # Of another type in this file or in others they are cast; what it lacks is null.
        kinds = dict(zip(reader.schema.names, reader.schema.types, strict=True))
        for name in self._twice(reader):  # is looked at
            del kinds[name]
        names = [n for n in names if kinds.get(n) == self.schema.field(n).type == pa.float64()]
        with ExitStack() as stack:
            with reading_file(reader.file):
                read, whole, numbers = stack.enter_context(piece.apart(names))
            rest = self
            if numbers is not None:
                rest = self.only([n for n in self.schema.names if n not in numbers.names])
            piece = piece._replace(read=read, together=whole)
            yield rest._read(reader, piece, block_rows), numbers

    def _read(self, reader: FileReader, piece: Piece, block_rows: int) -> Iterator[pa.RecordBatch]:
        with reading_file(reader.file):
            batches = self._conformed(reader, piece)
            if piece.together:
                yield from together(batches)
            else:
                many = block_rows > BLOCK_ROWS and reader.many_blocks
                yield from reblock(batches, min(block_rows, BLOCK_ROWS), many=many)
        reader.file.check_unchanged()  # so that no scan takes rows of two files for those of one

    def _conformed(self, reader: FileReader, piece: Piece) -> Iterator[pa.RecordBatch]:
        twice = self._twice(reader)
        n_rows = 0
        for rows in piece.read():
            n_rows += rows.num_rows
            decoded = isinstance(rows, DecodedRows)
            if decoded and not twice and self._projection.leaves(rows.schema):
                yield rows
                continue
            for batch in rows.batches() if decoded else [rows]:
                own = flat(batch) if self._nested else batch
                for name, value in twice.items():
                    _check_key(name, value, own.column(name), reader.file)
                complete = self._completed(own, reader)
                yield self._projection.blank(self._projection.conform(complete, reader.file.origin))
        if piece.n_rows is not None and n_rows != piece.n_rows:
            raise FileFormatError(
                f"{reader.file.origin} holds {n_rows} rows from row {piece.first_row} on but its "
                f"metadata says {piece.n_rows}; write it again"
            )

    def _twice(self, reader: FileReader) -> dict[str, str | None]:
        """Return the columns that a file and its directories have, with what these say."""
        own = {*self.schema.names}.intersection(reader.schema.names)
        return {key: value for key, value in reader.file.partitions if key in own}

    def _completed(self, batch: pa.RecordBatch, reader: FileReader) -> pa.RecordBatch:
        """Add the columns that are not in the file: of its directories, or null."""
        absent = set(self.schema.names) - set(batch.schema.names)
        if not absent:
            return batch
        constant = dict(reader.file.partitions)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in absent:
            if fields := [n for n in batch.schema.names if n.startswith(f"{name}.")]:
                raise SchemaError(
                    f"{reader.file.origin}: column {name!r} has fields here, {fields[0]!r}, and "
                    f"none where rows came first; columns=[{fields[0]!r}, ...] names those to read"
                )
            n_rows = batch.num_rows
            arrays[name] = (
                _constant(constant[name], n_rows) if name in constant else pa.nulls(n_rows)
            )
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


@contextmanager
def reading_file(file: DataFile) -> Iterator[None]:
    """Turn what is raised while a file is read into a DataError: that it changed, where it did."""
    with reading(file.origin, _REMEDY):
        try:
            yield
        except (FileNotFoundError, FileChangedError):
            raise
        except Exception:
            with suppress(FileFormatError, StoreError):  # where its store does not answer
                file.check_unchanged()
            raise


def _in_turn(sizes: Sequence[int | None]) -> list[int]:
    """Return in which order pieces of so many rows are best read.

    The last one of a file mostly has fewer rows than any other: a thread reads it first, while
    another one reads rows that those before it are like.
    """
    *others, last = range(len(sizes))
    fewer = others and (sizes[last] or 0) < (sizes[0] or 0)
    return [last, *others] if fewer else [*others, last]


def together(batches: Iterable[pa.RecordBatch | DecodedRows]) -> Iterator[pa.Table | DecodedRows]:
    """Yield batches as one table, as several where the types of their columns differ."""
    for _, alike in groupby(batches, lambda batch: (type(batch), batch.schema)):
        some = [*alike]
        if isinstance(some[0], DecodedRows):
            yield from some
        else:
            yield pa.Table.from_batches(some)


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    left_out = {*names}
    return pa.schema([field for field in schema if field.name not in left_out])


def _with_partitions(reader: FileReader) -> pa.Schema:
    """Return the file's columns and those of its directories; where both have one, the file's."""
    kind = pa.dictionary(pa.int32(), pa.string())
    extra = [
        pa.field(key, kind) for key, _ in reader.file.partitions if key not in reader.schema.names
    ]
    return flat_schema(pa.schema([*reader.schema, *extra], reader.schema.metadata))


def _absences(names: Sequence[str], parts: Sequence[ColumnsOfFiles]) -> Iterator[str]:
    """Yield a line for each column that some files lack, in which it is null."""
    lacking: dict[str, list[str]] = {}
    for part in parts:
        if not part.absent:
            for name in {*names}.difference(part.schema.names):
                lacking.setdefault(name, []).extend(part.files)
    n_files = sum(len(part.files) for part in parts)
    for name in names:
        if files := lacking.get(name):
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            yield (
                f"{LACKED}column {name!r} is null in {len(files):,} of {n_files:,} files, which "
                f"lack it: {files[0]}{more}"
            )


def _check_key(name: str, value: str | None, column: pa.Array, file: DataFile) -> None:
    """Raise DataError where a file says another thing of a column than its directory."""
    column = without_dictionary(column)
    try:
        said = pa.scalar(value, pa.string()).cast(column.type)
        alike = column.is_null() if value is None else pc.equal(column, said).fill_null(False)
    except pa.ArrowException:
        alike = pa.array([False] * len(column))
    if not pc.all(alike).as_py():
        found = column[pc.index(alike, False).as_py()].as_py()
        raise SchemaError(
            f"{file.origin}: column {name!r} holds {found!r}, and the directory says {value!r}; "
            "partitions=False ignores directories, or leave the column out"
        )


def _constant(value: str | None, n_rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(n_rows, pa.dictionary(pa.int32(), pa.string()))
    text = value.encode()
    ends = pa.py_buffer(np.array([0, len(text)], np.int32))
    dictionary = pa.StringArray.from_buffers(1, ends, pa.py_buffer(text))
    return pa.DictionaryArray.from_arrays(numbers(np.zeros(n_rows, np.int32)), dictionary)


def _threads_for(files: Sequence[Any]) -> int:
    return 1 if len(files) < MANY_FILES else 8


def open_all(
    files: Sequence[DataFile], open_one: Callable[[DataFile], R], on_error: OnError | None
) -> list[R]:
    """Read every footer up front, so that a broken file is found before counting starts.

    `on_error` gets the error of each broken file, in order; without it the first one is raised.
    """

    def guarded(file: DataFile) -> R | DataError:
        try:
            with reading(file.origin, _REMEDY):
                reader = open_one(file)
                check_names(reader.schema.names, file.origin)
                return reader
        except DataError as error:
            return error

    readers: list[R] = []
    reasons: list[str] = []  # no errors: their frames hold what a reader of a broken file holds

    def take(outcomes: Iterable[R | DataError]) -> None:
        for outcome in outcomes:
            with leaving_out(on_error):
                if isinstance(outcome, DataError):
                    reasons.append(str(outcome))
                    raise outcome
                readers.append(outcome)

    # closed, as what is raised would hold it, and files would be read on after that
    with closing(in_order(guarded, files, _threads_for(files))) as outcomes:
        take(outcomes)
    if not readers:
        raise FileFormatError(f"none of the files can be read: {reasons[0]}")
    for reader, before in zip(readers[1:], readers, strict=False):
        if reader.schema.equals(before.schema):
            reader.schema = before.schema  # ten thousand files, one schema
    return readers


# A row group is read in pieces of this many bytes of each column, and decoded block by block: what
# is decoded is then still in the cache when it is encoded, and no row group is held as a whole.
READ_BYTES = 1 << 20
MOST_READ = 1 << 26

# What our kernels decode at a time: more would leave the cache before it is encoded.
DECODED_BYTES = 1 << 24

# Rows of row groups that are decoded together where Python takes no time for each column of them.
JOINED_ROWS = 1 << 17

# Pieces of Parquet files for each thread, where there are so many row groups; the last ones are in
# smaller pieces, so that threads end about at once.
PIECES = 4

# An index into a dictionary takes less; a string takes 4 bytes and its own.
BYTES_OF_INDEX = 6


class _InCommon:
    """What the readers of the Parquet files of a source share; those elsewhere begin anew."""

    def __init__(self) -> None:
        self.footers = Footers()
        self.dictionaries = Dictionaries()
        self._read_as: tuple[Any, pa.Schema, list[str]] | None = None

    def read_as(self, columns: FileColumns) -> tuple[pa.Schema, list[str]]:
        """Return as what columns are read, and those of texts or bytes."""
        known = self._read_as
        if known is None or known[0] is not columns:
            plain = columns.arrow
            text = [f.name for f in plain if dictionary_type(f.type) is not None]
            fields = [f.with_type(dictionary_type(f.type) or f.type) for f in plain]
            schema = pa.schema(fields, plain.metadata)
            self._read_as = known = columns, schema, text
        return known[1:]

    def __reduce__(self) -> tuple[type[_InCommon], tuple[()]]:
        return _InCommon, ()


class ParquetReader(FileReader):
    """Row group by row group; columns of strings are read as dictionaries.

    But not where a row group of many blocks stores them one by one, going by its size: of these
    Arrow would hand out a dictionary that grows with every block.
    """

    many_blocks = True
    takes_less = "read fewer with `columns`, write files with smaller row groups"
    # Row groups of all files together, and of those before this one.
    groups_in_all = groups_before = 0

    def __init__(self, file: DataFile, common: _InCommon) -> None:
        self.file = file
        self._common = common
        footer = common.footers(file)
        self.n_rows, self._rows = footer.n_rows, footer.rows
        self._groups = range(len(self._rows))  # those that are read
        self.rows_of_piece = max(self._rows, default=0)
        check_total(file, sum(self._rows), self.n_rows)
        self.schema, self._text = common.read_as(footer.columns)
        # of all files together
        self.n_cells = float((self.n_rows + CHUNK_CELLS * len(self._rows)) * len(self.schema))

    @property
    def n_groups(self) -> int:
        """Number of row groups."""
        return len(self._groups)

    @property
    def n_parts(self) -> int:  # type: ignore[override]
        """Number of row groups, or 1."""
        return max(self.n_groups, 1)

    def part(self, first: int, last: int) -> ParquetReader:
        """Return a reader of the row groups from one to another."""
        other = copy.copy(self)
        other._groups = self._groups[first:last]
        other.n_rows = sum(self._rows[group] for group in other._groups)
        return other

    def runs(self) -> Runs:
        """Return how often its row groups are counted: those of this part once."""
        return runs_of(self._groups, len(self._rows))

    def part_ends(self) -> NDArray[np.int64] | None:
        """Return the rows up to the end of each row group, (n_parts,)."""
        return np.cumsum([self._rows[group] for group in self._groups] or [0])

    def part_sizes(self) -> NDArray[np.float64]:
        """Return about how many bytes each row group has, (n_parts,)."""
        rows = np.array([self._rows[group] for group in self._groups] or [0], np.float64)
        return self.file.size * rows / max(sum(self._rows), 1)

    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield one piece per row group, or one of several."""
        at_once, ours = self._at_once(threads) if merged else 1, self._is_ours()
        # of the types that this file has
        own = pa.schema([self.schema.field(name) for name in schema.names])
        most = joined = self._most_together(schema, batch_bytes) if merged else 0
        if merged and is_indices(schema):  # one may take the place of another
            joined = min(joined, JOINED_ROWS)
        first = sum(self._rows[: self._groups.start])
        full = [group for group in self._groups if self._rows[group]]
        for some in self._in_turn(full, at_once, threads):
            while some:
                n_rows, k = self._rows[some[0]], 1
                while k < len(some) and n_rows + self._rows[some[k]] <= joined:
                    n_rows, k = n_rows + self._rows[some[k]], k + 1
                groups, some = some[:k], some[k:]
                fits = merged and n_rows <= most and ours
                alone = at_once > 1 or (fits and self.groups_in_all >= threads)
                sharing = 1 if alone else self._sharing(groups[0], threads)
                how = block_rows, batch_bytes, sharing
                whole = fits and sharing == 1
                read = partial(self._read, own, groups[0], *how)
                apart = None
                if whole:
                    read = partial(self._read_groups, own, groups, *how)
                if len(groups) == 1 and self.file.local and ours:
                    apart = partial(self._apart, own, groups[0], *how)
                first += n_rows
                goes_on = whole and bool(some)
                fixed = whole if merged else apart is not None and sharing == 1
                again = groups if fixed and self.file.local else ()
                alike = partial(self._alike, own) if again else None
                yield Piece(first - n_rows, n_rows, read, whole, apart, again, alike, goes_on)

    def _in_turn(self, groups: Sequence[int], at_once: int, threads: int) -> Iterator[list[int]]:
        """Yield row groups that are one piece; of many the last quarter in smaller pieces."""
        k, many = 0, threads > 1 and self.groups_in_all >= 2 * PIECES * threads
        while k < len(groups):
            last = many and 4 * (self.groups_before + k) >= 3 * self.groups_in_all
            n = -(-at_once // 4) if last else at_once
            yield [*groups[k : k + n]]
            k += n

    def _at_once(self, threads: int) -> int:
        """Return how many row groups may be decoded one after another, as one piece.

        What is done once for a column of a piece is then done once for all of them. There are
        enough pieces that threads end about at once; of few row groups, as many for each.
        """
        n = self.groups_in_all
        if not (n and self._is_ours()):
            return 1
        if n >= 2 * PIECES * threads:
            return n // (PIECES * threads)
        return next((n // (k * threads) for k in range(1, PIECES) if n % (k * threads) == 0), 1)

    def _most_together(self, schema: pa.Schema, batch_bytes: int) -> int:
        """Return the most rows of several row groups that are held at once."""
        return min(batch_bytes // self._decoded_bytes(schema), BATCH_ROWS)

    def _decoded_bytes(self, schema: pa.Schema) -> int:
        """Return about how many bytes a row takes, as the largest row group tells."""
        return self._common.footers(self.file).row_bytes.of(schema, self._row_bytes)

    def _row_bytes(self, schema: pa.Schema) -> int:
        footer, kernels = self._common.footers(self.file), self._kernels
        found = 0
        if self._is_ours() and self._rows:
            largest = int(np.argmax(self._rows))
            own = footer.divide(schema, largest, kernels)[0]
            fields = {field.name: field for field in schema}
            read = pa.schema([fields.pop(chunk.name) for chunk in own])
            found = footer.decoded_bytes(read, largest, kernels)
            schema = pa.schema([*fields.values()])
        # indices of pyarrow are narrow, too, and a flag tells what is there
        coded = sum(pa.types.is_dictionary(field.type) for field in schema)
        return max(found + row_bytes(schema) - 2 * coded + len(schema), 1)

    def _sharing(self, group: int, threads: int) -> int:
        """Return how many threads decode a row group.

        Each thread takes row groups of its own. For the last ones, if they are fewer than threads,
        several share out the columns.
        """
        last = self.groups_in_all % threads
        before = self.groups_before + group - self._groups.start
        if before < self.groups_in_all - last:
            return 1
        return -(-threads // last)

    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes threads hold that read a row group each.

        What is read of the file and what is decoded, each with the next of it; before that come
        at least a block of rows and the rest of its pages.
        """
        if not self.n_rows:
            return 0
        largest = int(np.argmax(self._rows))
        group = self._common.footers(self.file).metadata.row_group(largest)
        row, every = self._decoded_bytes(schema), self._decoded_bytes(self.schema)
        packed = group_bytes = group.total_byte_size * row // every
        at_once = min(batch_bytes, DECODED_BYTES)
        rows = max(at_once // row, BLOCK_ROWS) + PAGE_ROWS
        joined = min(self._most_together(schema, batch_bytes), self.n_rows)
        joined *= self._at_once(threads) > 1
        decoded = max(min(rows, group.num_rows), joined) * row
        ahead = at_once if self.file.local else batch_bytes
        packed = min(packed, max(ahead, len(schema) * LEAST_READ))
        # threads that share out the columns are a batch ahead
        batches = 3 if self.groups_in_all % threads else 2
        by_arrow = 0 if self._is_ours() else min(2 * group_bytes, len(schema) * ARROW_COLUMN)
        return min(threads, self.n_groups) * (batches * (decoded + packed) + by_arrow)

    def handed_over(self) -> dict[str, str]:
        """Return what the footer tells: not where the values outgrow a dictionary in mid-chunk."""
        footer, kernels = self._common.footers(self.file), self._kernels
        reasons = [footer.divide(self.schema, group, kernels)[1] for group in self._groups]
        return {name: why for found in reasons for name, why in found.items()}

    @contextmanager
    def _apart(
        self,
        schema: pa.Schema,
        group: int,
        block_rows: int,
        batch_bytes: int,
        n_threads: int,
        wanted: Sequence[str],
    ) -> Iterator[tuple[Read, bool, NumberChunks | None]]:
        """Open columns of plain numbers to be decoded block by block; see `Piece`."""
        footer, n_rows = self._common.footers(self.file), self._rows[group]
        chunks, _ = footer.divide(schema, group, self._kernels)
        chunks = [chunk for chunk in chunks if chunk.name in set(wanted) and of_numbers(chunk)]
        how = block_rows, batch_bytes, n_threads
        with ExitStack() as stack:
            numbers = None
            if len(chunks) == len(schema):  # another one tells how many rows there are
                chunks = chunks[1:]
            if chunks:
                apart = pa.schema([schema.field(chunk.name) for chunk in chunks])
                shapes = footer.shapes(apart, np.array([[group]]), self._kernels)
                given = self._place(group), chunks, shapes, n_rows, self.file
                numbers = stack.enter_context(
                    reading_numbers(*given, partial(self._whole_column, group), n_threads)
                )
            if numbers is not None:
                schema = _without(schema, numbers.names)
                held = n_rows * footer.decoded_bytes(schema, group, self._kernels)
                few = n_rows <= BATCH_ROWS and held <= min(batch_bytes, DECODED_BYTES)
                if few and is_indices(schema):  # others may take their place
                    yield partial(self._read_groups, schema, [group], *how), True, numbers
                    return
            yield partial(self._read, schema, group, *how), False, numbers

    def _whole_column(self, group: int, name: str) -> NDArray[np.float64]:
        """Return a column of numbers of a row group as pyarrow decodes it."""
        log.info("%s: pyarrow reads column %r", self._place(group), name)
        with reading(self._place(group), _REMEDY):
            batches = [*self._by_arrow([name], group, self._rows[group], 1)]
        column = pa.chunked_array([batch.column(0) for batch in batches], pa.float64())
        if len(column) != self._rows[group]:
            raise FileFormatError(
                f"{self._place(group)}: column {name!r} holds fewer rows than it says; {_REMEDY}"
            )
        return np.asarray(column.to_numpy(), np.float64)

    def _alike(
        self,
        schema: pa.Schema,
        groups: Sequence[Sequence[int]],
        rows: DecodedRows,
        numbers: NumberCalls | None,
    ) -> AlikeParts:
        """Tell of groups of columns, up to the first ones not decoded like rows; see `Piece`."""
        n = next((k for k, some in enumerate(groups) if len(some) != len(groups[0])), len(groups))
        which = np.array(groups[:n], np.int64)
        footer, size = self._common.footers(self.file), self.file.size
        apart = np.zeros((n, 2, 0), np.int64)
        if numbers is not None and {*numbers.names} <= {*schema.names}:
            own = pa.schema([schema.field(name) for name in numbers.names])
            shapes = footer.shapes(own, which, self._kernels)
            n = shapes.like(numbers.shapes, size, size)
            apart = np.stack([shapes.starts, shapes.sizes], axis=1)
            schema = _without(schema, numbers.names)
        shapes = footer.shapes(schema, which, self._kernels)
        n = min(n, shapes.like(rows.reader.shapes, size, DECODED_BYTES))
        return AlikeParts(self.file.path, shapes.starts[:n], shapes.sizes[:n], apart[:n])

    def _read_groups(
        self, schema: pa.Schema, groups: list[int], *how: int
    ) -> Iterator[pa.RecordBatch | DecodedRows]:
        """Decode row groups; those of which our kernels read all columns, several at a time."""
        for some, chunks in self._runs(schema, groups):
            decoded = self._decoded_together(schema, some, chunks) if chunks else None
            if decoded is not None:
                yield decoded
                continue
            for group in some:
                yield from self._read(schema, group, *how)

    def _runs(
        self, schema: pa.Schema, groups: list[int]
    ) -> Iterator[tuple[list[int], list[ColumnChunk]]]:
        """Yield runs of row groups that take no more of the file together than is decoded at once.

        With their column chunks, where our kernels read them all.
        """
        footer = self._common.footers(self.file)
        some: list[int] = []
        chunks: list[ColumnChunk] = []
        held = 0
        for group in groups:
            own, _ = footer.divide(schema, group, self._kernels)
            size = sum(chunk.size for chunk in own)
            ours = len(own) == len(schema) and size <= DECODED_BYTES
            if some and (not ours or held + size > DECODED_BYTES):
                yield some, chunks
                some, chunks, held = [], [], 0
            if not ours:
                yield [group], []
                continue
            some.append(group)
            chunks += own
            held += size
        if some:
            yield some, chunks

    def _decoded_together(
        self, schema: pa.Schema, groups: list[int], chunks: list[ColumnChunk]
    ) -> DecodedRows | None:
        """Return the rows of row groups; None where pyarrow must read some of their columns."""
        numbers = np.array([groups], np.int64)
        shapes = self._common.footers(self.file).shapes(schema, numbers, self._kernels)
        try:
            with filling(self.file) as fill:
                known = self._common.dictionaries
                return GroupsReader(schema, chunks, shapes, fill, known).take_all()
        except HandedOver:
            return None

    def _read(
        self, schema: pa.Schema, group: int, block_rows: int, batch_bytes: int, n_threads: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns by our kernels, those that they do not read by pyarrow."""
        names: list[str] = schema.names
        chunks: list[ColumnChunk] = []
        if self._is_ours():
            chunks, _ = self._common.footers(self.file).divide(schema, group, self._kernels)
        done = 0
        while chunks:
            try:
                decoded = self._decoded(chunks, names, group, block_rows, batch_bytes, n_threads)
                for batch in behind(done, decoded):
                    yield batch
                    done += batch.num_rows
                return
            except HandedOver as found:
                chunks = [chunk for chunk in chunks if chunk.name != found.name]
                log.info("%s: pyarrow reads column %r", self._place(group), found.name)
        yield from behind(done, self._by_arrow(names, group, block_rows, n_threads))

    def _decoded(
        self,
        chunks: list[ColumnChunk],
        names: list[str],
        group: int,
        block_rows: int,
        batch_bytes: int,
        n_threads: int,
    ) -> Iterator[pa.RecordBatch]:
        own = [chunk.name for chunk in chunks]
        others = [name for name in names if name not in own]
        with filling(self.file) as fill:
            rest = reblock(self._by_arrow(others, group, block_rows, n_threads), block_rows)
            for arrays in read_chunks(
                chunks,
                fill,
                self._common.dictionaries,
                block_rows=block_rows,
                batch_bytes=min(batch_bytes, DECODED_BYTES),
                ahead=0 if self.file.local else batch_bytes,
                n_threads=n_threads,
            ):
                batch = pa.RecordBatch.from_arrays(arrays, names=own)
                if not others:
                    yield batch
                    continue
                for first in range(0, batch.num_rows, block_rows):
                    block, more = batch.slice(first, block_rows), next(rest, None)
                    if more is None or more.num_rows != block.num_rows:
                        raise FileFormatError(
                            f"{self._place(group)}: columns {others} hold fewer rows than it says; "
                            + _REMEDY
                        )
                    columns = block.columns + more.columns
                    yield pa.RecordBatch.from_arrays(columns, names=own + more.schema.names)

    def _is_ours(self) -> bool:
        return dispatch.compiled(self.n_cells, SMALL_FILES) and not dispatch.interpreted()

    @property
    def _kernels(self) -> ModuleType:
        return dispatch.load("reading.footers", self.n_cells, SMALL_FILES)

    def _place(self, group: int) -> str:
        return f"{self.file.origin}, row group {group}"

    def _by_arrow(
        self, names: list[str], group: int, n_rows: int, n_threads: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        footer, kernels = self._common.footers(self.file), self._kernels
        encoded = self._as_dictionaries(group, set(names), n_rows)
        if encoded:
            plain = footer.without_dictionaries(group, kernels)
            encoded = [name for name in encoded if name not in plain]
        # Of a damaged page pyarrow believes the size, where it does not hold the whole column.
        room = min(READ_BYTES, MOST_READ // len(names))
        if not self.file.local or 0 < footer.largest(group, kernels) <= room:
            room = 0
        with (
            self.file.open() as handle,
            pq.ParquetFile(
                handle,
                metadata=footer.metadata,
                read_dictionary=encoded,
                # one round trip for many columns, where that counts
                pre_buffer=not self.file.local,
                buffer_size=room,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=INSTANTS_IN,
            ) as parquet,
        ):
            # Not `sound`: the encoder checks the indices, and another pass costs a tenth.
            try:
                yield from parquet.iter_batches(n_rows, [group], names, use_threads=n_threads > 1)
            except (pa.ArrowException, OSError):
                # pyarrow does not say which column it is.
                for name in names:
                    with reading(f"{self._place(group)}, column {name!r}", _REMEDY):
                        parquet.read_row_group(group, [name], use_threads=False)
                raise

    def _as_dictionaries(self, group: int, wanted: set[str], block_rows: int) -> list[str]:
        """Return the columns of strings to read as dictionaries from a row group."""
        names = [name for name in self._text if name in wanted]
        if not names or self._rows[group] <= block_rows:
            return names
        sizes = self._common.footers(self.file).sizes(group, self._kernels)
        return [name for name in names if sizes[name][1] <= BYTES_OF_INDEX * sizes[name][0]]


def dictionary_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the dictionary type that a column of strings or bytes is read as."""
    if is_text(kind):
        return pa.dictionary(pa.int32(), pa.string())
    return pa.dictionary(pa.int32(), pa.binary()) if is_binary(kind) else None


def check_total(file: DataFile, found: int, said: int | None) -> None:
    """Raise FileFormatError where a file does not hold as many rows as it says."""
    if found != said:
        raise FileFormatError(
            f"{file.origin} holds {found} rows but its footer says {said}; write it again"
        )


def open_parquet(files: Sequence[DataFile], on_error: OnError | None = None) -> list[ParquetReader]:
    """Open Parquet files."""
    common = _InCommon()
    readers = open_all(files, lambda file: ParquetReader(file, common), on_error)
    n_cells = sum(reader.n_cells for reader in readers)
    for reader in readers:
        reader.n_cells = n_cells
    n_groups = sum(reader.n_groups for reader in readers)
    before = 0
    for reader in readers:
        reader.groups_in_all, reader.groups_before = n_groups, before
        before += reader.n_groups
    return readers


class IpcReader(FileReader):
    """Arrow IPC file, mapped into memory where it is local; record batches grouped or cut."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with self._open() as reader:
            self.schema = reader.schema
            self.n_rows = reader.count_rows()

    @contextmanager
    def _open(self, fields: Sequence[int] = ()) -> Iterator[Any]:
        options = pa.ipc.IpcReadOptions(included_fields=list(fields), use_threads=False)
        # what was read keeps the mapping alive after the file is closed
        with pa.memory_map(self.file.path) if self.file.local else self.file.open() as handle:
            yield pa.ipc.open_file(handle, options=options)

    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes threads hold, each of them blocks joined from batches."""
        rows = min(BLOCK_ROWS, self.n_rows or 0)
        return threads * 2 * rows * row_bytes(schema)

    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield pieces of up to a few blocks: whole record batches, or parts of a long one."""
        fields = [self.schema.get_field_index(name) for name in schema.names]
        step = SEGMENT_BLOCKS * block_rows
        first = rows = 0
        held: list[int] = []
        # the lengths of compressed batches are known only by decoding a column: the cheapest
        widths = {self.schema.field(j).name: _width(self.schema.field(j).type) for j in fields}
        narrow = min(widths, key=widths.__getitem__) if widths else self.schema.names[0]
        with self._open([self.schema.get_field_index(narrow)]) as reader:
            for index in range(reader.num_record_batches):
                n_rows = reader.get_batch(index).num_rows
                if held and rows + n_rows > step:
                    yield Piece(first, rows, partial(self._read, held, fields, block_rows))
                    first, rows, held = first + rows, 0, []
                if n_rows > step:
                    shared = _Shared(partial(self._batch, index, fields))
                    parts = -(-n_rows // step)
                    part = -(-n_rows // (parts * block_rows)) * block_rows
                    for start in range(0, n_rows, part):
                        count = min(part, n_rows - start)
                        read = partial(self._slices, shared, start, count, block_rows)
                        yield Piece(first + start, count, read)
                    first += n_rows
                elif n_rows:
                    held.append(index)
                    rows += n_rows
        if held:
            yield Piece(first, rows, partial(self._read, held, fields, block_rows))

    def _batch(self, index: int, fields: Sequence[int]) -> pa.RecordBatch:
        with self._open(fields) as reader:
            return reader.get_batch(index)

    def _read(
        self, indices: Sequence[int], fields: Sequence[int], block_rows: int
    ) -> Iterator[pa.RecordBatch]:
        with self._open(fields) as reader:
            for index in indices:
                yield sound(reader.get_batch(index))

    def _slices(
        self, shared: _Shared, start: int, count: int, block_rows: int
    ) -> Iterator[pa.RecordBatch]:
        part = shared.get().slice(start, count)
        for first in range(0, count, block_rows):
            yield sound(part.slice(first, block_rows))


class _Shared:
    """A record batch that several pieces are cut from, decoded by whichever comes first."""

    def __init__(self, decode: Callable[[], pa.RecordBatch]) -> None:
        self._decode = decode
        self._lock = threading.Lock()
        self._batch: pa.RecordBatch | None = None

    def get(self) -> pa.RecordBatch:
        with self._lock:
            if self._batch is None:
                self._batch = self._decode()
            return self._batch


def _width(kind: pa.DataType) -> int:
    try:
        return kind.bit_width
    except ValueError:
        return 1 << 20


class IpcStreamReader(FileReader):
    """Arrow IPC stream: read in the thread that asks for pieces, checked by the workers."""

    n_rows = None

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with file.stream() as handle, pa.ipc.open_stream(handle) as reader:
            self.schema = reader.schema

    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes wait for threads, a piece each."""
        return waiting(threads) * SEGMENT_BLOCKS * BLOCK_ROWS * row_bytes(schema)

    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield pieces of a few blocks."""
        with self.file.stream() as handle, pa.ipc.open_stream(handle) as reader:
            batches = (sound(batch).select(schema.names) for batch in reader)
            for first, blocks in stream_segments(batches, block_rows):
                yield Piece(first, sum(block.num_rows for block in blocks), partial(iter, blocks))


def open_ipc(files: Sequence[DataFile], on_error: OnError | None = None) -> list[FileReader]:
    """Open Arrow IPC files of either kind."""

    def open_one(file: DataFile) -> FileReader:
        with file.open() as handle:
            magic = handle.read(6)
        if magic.startswith(b"FEA1"):
            raise FileFormatError(
                f"{file.origin}: Feather version 1; write it again as version 2 or Parquet"
            )
        return IpcReader(file) if magic == b"ARROW1" else IpcStreamReader(file)

    return open_all(files, open_one, on_error)
