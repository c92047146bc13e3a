"""ORC files, read by pyarrow in processes of their own, whose death is an error like others.

A corrupt file can end pyarrow's ORC reader by a signal, and the process with it. Each thread that
reads has a process at work, which it gives the bytes of the file and gets record batches from, both
through pipes. Processes that have nothing to do wait a moment for the next stripe, then end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.data import orc_process
from fastbayes.data.filesource import FileReader, Piece, check_total, open_all
from fastbayes.data.orc_process import BATCH, DONE, FAILED, GIVEN, RANGE, SCHEMA, WANTED, Channel
from fastbayes.data.paths import DataFile
from fastbayes.data.segments import OnError, row_bytes, sound

SCRIPT = Path(orc_process.__file__)
# Asks for the schema and the numbers of rows and stripes.
OPENING: dict[str, Any] = {"stripe": None, "columns": None, "rows": 0}
# Seconds until a process that has closed its pipes must have ended.
LONGEST = 10.0


class _EndedError(Exception):
    """The process has ended; how, or None if that was before it did anything for a request."""

    def __init__(self, how: str | None) -> None:
        super().__init__(how)
        self.how = how


class _OrcProcess:
    """An interpreter that reads ORC files. Not multiprocessing: that would import `__main__`."""

    def __init__(self, where: str) -> None:
        self._owner = os.getpid()
        self.idle = False  # it has answered, and waits
        try:
            self._process = subprocess.Popen(
                # without `site`: its `sys.path` is ours
                [sys.executable or "", "-P", "-S", "-W", "ignore", os.fspath(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        except OSError as error:
            said = (error.strerror or str(error)).lower()
            raise DataError(
                f"{where}: ORC files are read in an interpreter of their own, and "
                f"{sys.executable!r} does not start ({said}); write the file as Parquet"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipes = self._process.stdin, self._process.stdout
        self._channel = Channel(self._process.stdout, self._process.stdin)

    def _send(self, data: Any) -> None:
        try:
            self._channel.send(GIVEN, data)
        except BrokenPipeError:
            raise _EndedError(self._how()) from None

    def _how(self) -> str | None:
        """Return how the process has ended; None if it waited until then."""
        try:
            code = self._process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            return "it closed its pipes"
        if self.idle:
            return None
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"

    @property
    def waits(self) -> bool:
        """Whether it can be asked: not in a process that was forked from the one that began it."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, handle: pa.NativeFile, **request: Any) -> Iterator[pa.Schema | pa.RecordBatch]:
        """Yield what a process answers that may read the file.

        Raises
        ------
        ArrowInvalid
            With pyarrow's words, when it cannot read the file.
        _EndedError
            When the process has ended.
        """
        where = {"path": [*map(str, sys.path)], "size": handle.size()}
        self._send(json.dumps(where | request).encode())
        schema = None
        while True:
            try:
                kind, n_bytes = self._channel.head()
                self.idle = False
                self._channel.fill(room := pa.allocate_buffer(n_bytes))
            except EOFError:
                raise _EndedError(self._how()) from None
            if kind == WANTED:
                first, n = RANGE.unpack(room)
                self._send(handle.read_at(n, first))
            elif kind == SCHEMA:
                schema = pa.ipc.read_schema(room)
                yield schema
            elif kind == BATCH:
                yield pa.ipc.read_record_batch(room, schema)
            elif kind == FAILED:
                self.idle = True
                raise pa.ArrowInvalid(room.to_pybytes().decode(errors="replace"))
            elif kind == DONE:
                self.idle = True
                return
            else:
                raise _EndedError(f"it sent {kind!r}")

    def close(self) -> None:
        """End the process, if it is ours, and wait for that."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
        else:
            self._process.returncode = 0  # of the process that this one was forked from
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # what was still to be sent
                pipe.close()


class _OrcProcesses:
    """The processes that read the files of a source: as many as threads, ended with the source."""

    def __init__(self) -> None:
        self._idle: list[_OrcProcess] = []
        weakref.finalize(self, _close_all, self._idle)

    def __reduce__(self) -> tuple[type[_OrcProcesses], tuple[()]]:
        return _OrcProcesses, ()  # elsewhere others are begun

    def ask(self, file: DataFile, **request: Any) -> Iterator[pa.Schema | pa.RecordBatch]:
        """Yield what a process answers about a file.

        Raises
        ------
        FileFormatError
            When the process breaks down; the message names the file and how it ended.
        """
        where = file.origin if (at := request["stripe"]) is None else f"{file.origin}, stripe {at}"
        with file.open() as handle:
            while True:
                process = None
                try:
                    process = self._taken() or _OrcProcess(where)
                    yield from process.ask(handle, **request)
                except _EndedError as error:
                    if process is not None:
                        process.close()
                    if error.how is None:
                        continue
                    raise FileFormatError(
                        f"{where}: pyarrow's ORC reader, in a process of its own, broke down "
                        f"({error.how}); write the file again, best as Parquet, or leave it out"
                    ) from error
                except BaseException:
                    if process is not None:
                        process.close()
                    raise
                self._idle.append(process)
                return

    def _taken(self) -> _OrcProcess | None:
        """Return a process that waits; those that have ended meanwhile are cleared away."""
        while True:
            try:
                process = self._idle.pop()
            except IndexError:  # other threads have all of them
                return None
            if process.waits:
                return process
            process.close()


def _close_all(processes: list[_OrcProcess]) -> None:
    while processes:
        processes.pop().close()


class OrcReader(FileReader):
    """ORC file, stripe by stripe."""

    takes_less = "read fewer with `columns`, write files with smaller stripes"

    def __init__(self, file: DataFile, processes: _OrcProcesses) -> None:
        self.file = file
        self._processes = processes
        (schema,) = processes.ask(file, **OPENING)
        n_rows, self._stripes = (int(schema.metadata[key]) for key in (b"rows", b"stripes"))
        self.schema, self.n_rows = schema.remove_metadata(), n_rows
        self.rows_of_piece = -(-n_rows // max(self._stripes, 1))
        if self._stripes == 0:
            check_total(file, 0, n_rows)

    def held(self, schema: pa.Schema, threads: int, batch_bytes: int) -> int:
        """Return about how many bytes threads and their processes hold, a stripe each."""
        return min(threads, self._stripes) * 2 * self.rows_of_piece * row_bytes(schema)

    def pieces(
        self, schema: pa.Schema, block_rows: int, batch_bytes: int, threads: int, merged: bool
    ) -> Iterator[Piece]:
        """Yield one piece per stripe."""
        # stripes do not tell their rows, so the whole is checked when the last one has been read
        found: list[int] = []
        for stripe in range(self._stripes):
            first = 0 if stripe == 0 else -1
            read = partial(self._read, schema.names, stripe, block_rows, found)
            yield Piece(first, None, read)

    def _read(
        self, names: list[str], stripe: int, block_rows: int, found: list[int]
    ) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        answers = self._processes.ask(self.file, stripe=stripe, columns=names, rows=block_rows)
        next(answers)  # the schema
        for batch in answers:
            n_rows += batch.num_rows
            yield sound(batch)
        found.append(n_rows)
        if len(found) == self._stripes:
            check_total(self.file, sum(found), self.n_rows)


def open_orc(files: Sequence[DataFile], on_error: OnError | None = None) -> list[OrcReader]:
    """Open ORC files."""
    processes = _OrcProcesses()
    return open_all(files, lambda file: OrcReader(file, processes), on_error)
