"""CSV after RFC 4180: UTF-8, one row of column names, an empty cell is null and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.data.filesource import open_all
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import OnError, first_line
from fastbayes.data.text import NOT_UTF8, TextReader, Types, csv_header, cut_rows, infer_bytes
from fastbayes.data.unify import check_names

_HEADER_BYTES = 1 << 20


class CsvReader(TextReader):
    """One CSV file."""

    def __init__(
        self,
        file: DataFile,
        columns: Sequence[str] | None,
        types: Mapping[str, pa.DataType],
        null_values: Sequence[str],
        size: int,
    ) -> None:
        with file.stream() as stream:
            start = stream.read(_HEADER_BYTES)
        tabs = re.search(r"\.(tsv|tab)(\.|$)", file.path.lower()) is not None
        self._names, self._delimiter, skip = csv_header(start, tabs, file.origin)
        check_names(self._names, file.origin)
        super().__init__(file, cut_rows(self._delimiter), skip)
        self._nulls = ["", *null_values]
        wanted: Types = {
            name: types.get(name) for name in self._names if columns is None or name in columns
        }
        found = self.infer(wanted, size)
        for name, kind in found.items():
            if pa.types.is_binary(kind):  # what pyarrow infers from bytes that are not UTF-8
                text = next(self.blocks(size))
                raise self._not_text(name, text, types)
        # Columns nobody asked for are not parsed: their type stays open.
        self.schema = pa.schema([(name, found.get(name, pa.null())) for name in self._names])

    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`."""
        return self._parse(text, types, None)

    def _parse(self, text: bytes, types: Types, on_ragged: Callable[[Any], str] | None) -> pa.Table:
        from pyarrow import csv

        known = {name: kind for name, kind in types.items() if kind is not None}
        if not text or not types:
            return pa.schema([(name, known.get(name, pa.null())) for name in types]).empty_table()
        return csv.read_csv(
            pa.BufferReader(text),
            # one block in one thread: the workers are parallel, and rows keep their numbers
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=self._names
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # in a file of one column an empty line is an empty cell
                ignore_empty_lines=len(self._names) > 1,
                invalid_row_handler=on_ragged,
            ),
            convert_options=csv.ConvertOptions(
                column_types=known,
                include_columns=list(types),
                null_values=self._nulls,
                strings_can_be_null=True,
                # RFC 4180 knows no difference between "" and an empty cell
                quoted_strings_can_be_null=True,
            ),
        )

    def count_rows(self, text: bytes) -> int:
        """Return the rows of a block, those of a wrong width included."""
        ragged: list[Any] = []

        def skip(row: Any) -> str:
            ragged.append(row)
            return "skip"

        return int(self._parse(text, {self._names[0]: pa.binary()}, skip).num_rows) + len(ragged)

    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""
        said = str(error)
        row = self.rows_before(index)
        if ragged := re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): ?(.*)", said):
            return DataError(
                f"{self.file.origin}, row {row + int(ragged[1] or 1) - 1}: {ragged[3]} cells "
                f"instead of {ragged[2]}: {ragged[4][:80]!r}; mend the row, or quote the cell "
                f"that holds the delimiter {self._delimiter!r}"
            )
        cell = re.search(r"CSV column #(\d+): (?:Row #(\d+): )?(.*)", said, re.DOTALL)
        if cell is None:
            return FileFormatError(f"{self.file.origin}, row {row} or after: {first_line(error)}")
        name = self._names[int(cell[1])]
        if "UTF8" in said:
            return self._not_text(name, text, types, row)
        value = cell[3].partition("invalid value ")[2]
        return self.misfit(name, types.get(name), value[:80], row + int(cell[2] or 1) - 1)

    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""
        return (
            f"null_values=[...] with that text if it means missing, categorical=[{name!r}] to read "
            "the column as text"
        )

    def _not_text(self, name: str, text: bytes, types: Types, before: int = 0) -> DataError:
        for row, cell in enumerate(self._parse(text, {name: pa.binary()}, None)[name]):
            try:
                (cell.as_py() or b"").decode()
            except UnicodeDecodeError:
                where = f"{self.file.origin}, row {before + row}: column {name!r}"
                return FileFormatError(f"{where} {NOT_UTF8}")
        return FileFormatError(f"{self.file.origin}: column {name!r} {NOT_UTF8}")


def open_csv(
    files: Sequence[DataFile],
    columns: Sequence[str] | None,
    types: Mapping[str, pa.DataType],
    null_values: Sequence[str],
    on_error: OnError | None = None,
) -> list[CsvReader]:
    """Open CSV files."""
    size = infer_bytes(files)
    return open_all(
        files, lambda file: CsvReader(file, columns, types, null_values, size), on_error
    )
