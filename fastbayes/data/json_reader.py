"""JSON lines: one object per line; a key that is absent is null."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError, FileFormatError, SchemaError
from fastbayes.data.filesource import open_all
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import OnError, first_line
from fastbayes.data.text import NOT_UTF8, TextReader, Types, cut_lines, infer_bytes
from fastbayes.data.unify import is_text


class JsonReader(TextReader):
    """One file of JSON lines. Values carry their type: a text type asked for changes no number."""

    absent_is_null = True

    def __init__(
        self,
        file: DataFile,
        columns: Sequence[str] | None,
        types: Mapping[str, pa.DataType],
        size: int,
    ) -> None:
        super().__init__(file, cut_lines)
        self._complete = columns is None
        with file.stream() as stream:
            start = stream.read(4096)
        if start.lstrip().startswith(b"["):
            raise FileFormatError(
                f"{file.origin}: a JSON array; write JSON lines, one object per line"
            )
        found = self.infer({}, size)
        for name, kind in types.items():
            if name in found and (not is_text(kind) or not _is_value(found[name])):
                found[name] = kind
        self.schema = pa.schema(list(found.items()))

    def parse(self, text: bytes, types: Types) -> pa.Table:
        """Return the columns of a block, in the order of `types`; all of them if that is empty."""
        from pyarrow import json as arrow_json

        known = {
            name: kind
            for name, kind in types.items()
            if kind is not None and not pa.types.is_null(kind)
        }
        if not text.strip():
            return pa.schema([(name, known.get(name, pa.null())) for name in types]).empty_table()
        every = self._complete or len(known) < len(types) or not types
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(known.items())),
                unexpected_field_behavior="infer" if every else "ignore",
            ),
        )
        table.validate(full=True)  # pyarrow does not check here that text is UTF-8
        if not types:
            return table
        present = set(table.schema.names)
        if self._complete and (late := present - set(types)):
            raise SchemaError(
                f"{self.file.origin}: a key {min(late)!r} that the first rows lack; "
                "columns=[...] selects those to read"
            )
        return pa.table(
            {
                name: table[name] if name in present else pa.nulls(table.num_rows, known.get(name))
                for name in types
            }
        )

    def count_rows(self, text: bytes) -> int:
        """Return the lines that are not blank."""
        return len(_lines(text))

    def remedy(self, name: str) -> str:
        """Return what to do about a column of several types."""
        return "write its values as one type, null where one is missing"

    def fault(self, error: Exception, text: bytes, index: int, types: Types) -> DataError:
        """Return the error for a block that cannot be parsed, naming column and row."""
        said = first_line(error)
        before = self.rows_before(index)
        kinds: dict[str, tuple[str, int]] = {}
        for row, line in enumerate(_lines(text), before):
            where = f"{self.file.origin}, row {row}"
            try:
                record = json.loads(line)
            except UnicodeDecodeError:
                return FileFormatError(f"{where} {NOT_UTF8}")
            except (ValueError, RecursionError) as wrong:
                return FileFormatError(f"{where} is not JSON ({wrong}): {line[:60]!r}")
            if not isinstance(record, dict):
                return FileFormatError(
                    f"{where}: {line[:60]!r} is no object; write one object per line"
                )
            for name, value in record.items():
                if value is None or (types and name not in types):
                    continue
                kind = _kind_of(types.get(name)) or kinds.setdefault(name, (_kind(value), row))[0]
                if kind != _kind(value):
                    return self.misfit(name, types.get(name) or kind, f"{value!r:.80}", row)
        return FileFormatError(f"{self.file.origin}, row {before} or after: {said}")


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.strip()]


def _is_value(kind: pa.DataType) -> bool:
    """Return whether JSON wrote it as a number or a truth value."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "object"


def _kind_of(kind: pa.DataType | None) -> str | None:
    if kind is None or pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return "truth value"
    return "number" if _is_value(kind) else "string" if is_text(kind) else None


def open_json(
    files: Sequence[DataFile],
    columns: Sequence[str] | None,
    types: Mapping[str, pa.DataType],
    on_error: OnError | None = None,
) -> list[JsonReader]:
    """Open files of JSON lines."""
    size = infer_bytes(files)
    return open_all(files, lambda file: JsonReader(file, columns, types, size), on_error)
