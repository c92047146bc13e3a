"""Rows split into files by the values of some columns, which name directories as Hive's do.

Rows wait until there are many, are sorted by partition, and each partition's become a row group of
its file. No file stays open meanwhile: a writer keeps what belongs at the end of its file, and the
file is opened to append to it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.domains import decoded
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.suggestions import meant_column
from fastbayes.data.paths import MISSING
from fastbayes.scan.outputs.format_types import has_words, implemented
from fastbayes.scan.outputs.row_files import TEXT, RowWriter, prepared

# More directories are a mistake: a column of identifiers, say.
MOST_PARTITIONS = 10_000
# Bytes that file systems allow in a name.
LONGEST_NAME = 255
# ASCII besides letters, digits and _ . ~ -, which pyarrow and Spark (most of it) escape as well.
UNSAFE = re.compile(r"[\x00-,/:-@\[-^`{-}\x7f]")


def check_partition_by(
    by: Sequence[str], columns: pa.Schema, copied: Sequence[str], read: Sequence[str]
) -> None:
    """Raise SchemaError unless columns that are written may name directories.

    `read` are the columns of the rows that are read, of which some may be copied as well.
    """
    possible = [*copied, "prediction"]
    for name in by:
        meant = "" if name in read else meant_column(name, [*possible, *read])
        refuse(
            name not in possible,
            f"partition_by={name!r} is no column that is copied, nor 'prediction'"
            + (meant or "; name it in `keys`, too"),
            SchemaError,
        )
        kind = decoded(columns.field(name).type)
        refuse(
            not _can_name(kind),
            f"partition_by={name!r} is {kind}, which cannot stand in the name of a directory; cast "
            "it to text, or choose another column",
            SchemaError,
        )
    refuse(len({*by}) < len(by), f"partition_by={[*by]} names a column twice", SchemaError)
    refuse(
        len(by) == len(columns),
        f"partition_by={[*by]} leaves no column for the files; copy another one by `keys`",
        SchemaError,
    )


def _can_name(kind: pa.DataType) -> bool:
    """Return whether values of a type are found apart, and text says them."""
    return has_words(kind) and implemented(lambda: pa.array([], kind).dictionary_encode())


def check_number(n_partitions: int, by: Sequence[str]) -> None:
    """Raise DataError where there are too many partitions."""
    refuse(
        n_partitions > MOST_PARTITIONS,
        f"partition_by={[*by]} makes more than {MOST_PARTITIONS:,} directories; choose columns of "
        "fewer values",
    )


class PartitionFile(NamedTuple):
    """A file of the rows of one partition.

    place  its directories
    path   where it was written
    rows   how many
    """

    place: str
    path: Path
    rows: int


class PartitionedFiles:
    """Files that are being written, one for each partition.

    Parameters
    ----------
    kind
        Format of the files.
    schema
        The columns as they are written, those of `by` included.
    uncoded
        As in `RowWriter`.
    by
        Name and position of each column that stands in the names of directories.
    path_of
        Returns the path to write for each partition, counted from 0.
    rows
        How many rows wait until they are written.
    """

    def __init__(
        self,
        kind: str,
        schema: pa.Schema,
        uncoded: Collection[str],
        by: Sequence[tuple[str, int]],
        path_of: Callable[[int], Path],
        rows: int,
    ) -> None:
        self._kind, self._uncoded, self._by, self._path_of = kind, uncoded, by, path_of
        self._rows = rows
        places = {place for _, place in by}
        self._others = [place for place in range(len(schema)) if place not in places]
        self._schema = pa.schema([schema.field(i) for i in self._others], schema.metadata)
        self._held: list[pa.RecordBatch] = []
        self._n_held = 0
        self._files: dict[str, _GrowingFile] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which come after those before in each partition."""
        self._held.append(batch)
        self._n_held += batch.num_rows
        if self._n_held >= self._rows:
            self._sort()

    def close(self) -> list[PartitionFile]:
        """Complete the files; return them in the order in which their first rows came."""
        if self._n_held:
            self._sort()
        for file in self._files.values():
            file.close()
        return [PartitionFile(place, f.path, f.rows) for place, f in self._files.items()]

    def _sort(self) -> None:
        """Write the rows that are held, partition by partition."""
        table = pa.Table.from_batches(self._held).combine_chunks()
        self._held, self._n_held = [], 0
        keys = [_Keys(name, table.column(place)) for name, place in self._by]
        order, starts = _grouped([key.codes for key in keys])
        check_number(len(starts), [name for name, _ in self._by])
        rest = table.select(self._others).rename_columns(self._schema.names)
        rest = rest.replace_schema_metadata(self._schema.metadata)
        groups = [*pairwise([*starts.tolist(), len(order)])]
        groups.sort(key=lambda group: int(order[group[0]]))  # as their first rows come
        for first, last in groups:
            place = "/".join(key.directory(order[first]) for key in keys)
            if place not in self._files:
                check_number(len(self._files) + 1, [name for name, _ in self._by])
                path = self._path_of(len(self._files))
                self._files[place] = _GrowingFile(self._kind, path, self._schema, self._uncoded)
            rows = rest if len(groups) == 1 else rest.take(pa.array(order[first:last]))
            self._files[place].write(rows)


class _Keys:
    """A column whose values name directories.

    codes  of the value of each row
    """

    def __init__(self, name: str, column: pa.ChunkedArray) -> None:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values = coded.combine_chunks()
        self._name, self._values = name, values.dictionary
        codes = values.indices.fill_null(len(values.dictionary))
        self.codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)

    def directory(self, row: int) -> str:
        code = int(self.codes[row])
        value = self._values[code] if code < len(self._values) else None
        text = None if value is None else value.cast(pa.string()).as_py()
        return directory_of(self._name, text)


def directory_of(name: str, text: str | None) -> str:
    """Return what the directory of a value is called; None: of rows in which it is missing."""
    refuse(
        text == MISSING,
        f"column {name!r} holds {MISSING!r}, which says in the name of a directory that a value is "
        "missing; write it without partition_by",
    )
    found = f"{_escaped(name)}={MISSING if text is None else _escaped(text)}"
    if (n_bytes := len(found.encode())) > LONGEST_NAME:
        raise DataError(
            f"column {name!r} holds {text!r:.80}, which makes the name of a directory {n_bytes} "
            f"bytes long, over {LONGEST_NAME}; choose another column for partition_by"
        )
    return found


def _escaped(text: str) -> str:
    return UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _grouped(keys: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows sorted by their keys, equal ones in order, and where each group starts."""
    codes = keys[0]
    for more in keys[1:]:
        _, found = np.unique(codes, return_inverse=True)
        codes = found.astype(np.int64) * (int(more.max()) + 1) + more
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    return order, np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


class _GrowingFile:
    """A file to which rows are appended; it is open only while they are."""

    def __init__(self, kind: str, path: Path, schema: pa.Schema, uncoded: Collection[str]) -> None:
        self.path, self.rows, self._kind = path, 0, kind
        self._end = _End()
        self._writer = RowWriter(kind, self._end, schema, uncoded)

    def write(self, rows: pa.Table) -> None:
        pieces: Sequence[Any] = [rows]
        if self._kind in TEXT:
            pieces = [prepared(self._kind, batch) for batch in rows.to_batches()]
        for piece in pieces:
            self._writer.write(piece)
        self.rows += rows.num_rows
        self._append()

    def close(self) -> None:
        self._writer.close()
        self._append()

    def _append(self) -> None:
        with open(self.path, "ab") as file:
            file.writelines(self._end.taken())


class _End(io.RawIOBase):
    """What comes next in a file."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def taken(self) -> list[bytes]:
        """Return what was written since it was last taken."""
        pieces, self._pieces = self._pieces, []
        return pieces
