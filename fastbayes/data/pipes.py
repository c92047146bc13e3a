"""Rows that come over a pipe, such as standard input: an Arrow stream, CSV or JSON lines."""

from __future__ import annotations

import io
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from fastbayes.core.errors import DataError, FileFormatError, refuse
from fastbayes.core.ledger import Ledger
from fastbayes.data.filesource import FileSource
from fastbayes.data.memory import StreamSource
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import OnError, Source, reading
from fastbayes.data.text import BLOCK_BYTES, open_csv, open_json
from fastbayes.data.unify import Columns

FORMATS = ("ipc", "csv", "jsonl")
# What is kept of the beginning, for those who look at names and types before the rows are read.
KEPT_BYTES = 2 * BLOCK_BYTES
# Files of Arrow begin so, of which the rest is a stream with a footer behind it.
_ARROW_FILE = b"ARROW1\0\0"
_ARROW_STREAM = b"\xff\xff\xff\xff"
_NOT_HERE = {
    b"PAR1": "Parquet, which is not read from its beginning",
    b"ORC": "ORC, which is not read from its beginning",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"BZh": "compressed by bzip2",
}


class Pipe:
    """Rows that come over a pipe, as a source that is read once, in pieces.

    Parameters
    ----------
    stream
        The open binary file.
    format
        "ipc" (Arrow), "csv" or "jsonl"; None: what the first bytes say.
    name
        What messages call it.
    """

    def __init__(self, stream: BinaryIO, format: str | None = None, name: str = "stdin") -> None:
        self.name, self._stream, self._format = name, stream, format
        self._kept, self._spent = bytearray(), False

    def __fastbayes_source__(
        self,
        *,
        columns: Columns,
        null_values: Sequence[str] | None,
        filesystem: Any,
        types: Mapping[str, pa.DataType] | None,
        on_error: OnError | None,
    ) -> Source:
        """Open it with the options of `open_source`."""
        kind = self._format or self._recognised()
        if kind == "ipc":
            return self._arrow(columns, null_values)
        file, known = _PipedText(None, self.name, self.name, BLOCK_BYTES, open=self.opened), types
        if kind == "jsonl":
            readers: Sequence[Any] = open_json([file], columns, known or {})
        else:
            nulls, null_values = [*(null_values or [])], None  # the parser makes them null
            readers = open_csv([file], columns, known or {}, nulls)
        return _PipedRows(
            readers,
            columns=columns,
            null_values=null_values,
            description=self.name,
            native=self,
        )

    def _arrow(self, columns: Columns, null_values: Sequence[str] | None) -> Source:
        def rows() -> pa.RecordBatchReader:
            stream = self.opened()
            if self.opened().read(len(_ARROW_FILE)) == _ARROW_FILE:
                stream.read(len(_ARROW_FILE))
            return pa.ipc.open_stream(pa.PythonFile(stream, "r"))

        with reading(self.name, "it must be an Arrow IPC stream"):
            schema = rows().schema
        return StreamSource(
            rows,
            schema,
            rereadable=False,
            columns=columns,
            null_values=null_values,
            description=self.name,
            native=self,
        )

    def _recognised(self) -> str:
        start = self.opened().read(len(_ARROW_FILE))
        refuse(not start, f"{self.name} is empty; it needs rows", FileFormatError)
        if start.startswith((_ARROW_STREAM, _ARROW_FILE)):
            return "ipc"
        for magic, what in _NOT_HERE.items():
            refuse(
                start.startswith(magic),
                f"{self.name} is {what}; name the file, or unpack it into the pipe",
                FileFormatError,
            )
        return "jsonl" if start.lstrip().startswith(b"{") else "csv"

    def opened(self) -> _FromStart:
        """Return what is read from the beginning.

        Raises
        ------
        DataError
            When more was read of it than is kept.
        """
        if self._spent:
            raise DataError(f"{self.name} can be read only once and has been; name a file")
        return _FromStart(self)

    def read(self, place: int, size: int) -> bytes:
        """Return bytes from a place on, which is in what is kept or where the pipe is read."""
        if not self._spent:
            if (missing := place + size - len(self._kept)) > 0:
                self._kept += self._stream.read(missing)
            self._spent = len(self._kept) > KEPT_BYTES
            return bytes(self._kept[place : place + size])
        held = bytes(self._kept[place : place + size])
        if len(held) < size:
            self._kept = bytearray()
            held += self._stream.read(size - len(held))
        return held


class _FromStart(io.RawIOBase):
    """A pipe from its beginning on."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe, self._place = pipe, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        found = self._pipe.read(self._place, size)
        self._place += len(found)
        return found


@dataclass(frozen=True)
class _PipedText(DataFile):
    """Text that is read once, from its beginning."""

    read_once: ClassVar[bool] = True
    open: Callable[[], Any] = io.BytesIO

    def stream(self) -> Any:
        return self.open()

    def check_unchanged(self) -> None:
        """Do nothing: what was read is all that there was."""


class _PipedRows(FileSource):
    """Rows of text that are read once; no file says which ones they were."""

    rereadable = False

    def _note_files(self) -> None:
        self.versions, self.n_rows = (), None

    def ledger(self, read: Container[str] | None = None) -> Ledger:
        return Ledger()
