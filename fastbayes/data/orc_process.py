"""ORC files in an interpreter of its own: requests on stdin, record batches on stdout.

`orc` runs this file as a script. It imports nothing of fastbayes, and `orc` does not import
pyarrow's ORC reader, which a corrupt file can end by a signal. The bytes of a file are asked for,
so that it may lie in any file system: this process opens none.

A message is a kind, a length and so many bytes. In come requests, JSON, and bytes of the file; out
go ranges of bytes that are wanted, what was asked for, its end, or what went wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

HEAD = struct.Struct("<cQ")
RANGE = struct.Struct("<QQ")  # first byte, number of bytes
WANTED, SCHEMA, BATCH, DONE, FAILED, GIVEN = b"?", b"s", b"b", b".", b"!", b"="

# Seconds without a request after which the process ends.
IDLE = 2.0
# Seconds between looks at whether the process that asks is still there.
LOOK = 0.5


class Channel:
    """Messages with another process."""

    def __init__(self, read_from: IO[bytes], write_to: IO[bytes]) -> None:
        self._in, self._out = read_from, write_to

    def send(self, kind: bytes, data: Any = b"") -> None:
        """Send a message."""
        data = memoryview(data)
        self._out.write(HEAD.pack(kind, data.nbytes))
        self._out.write(data)
        self._out.flush()

    def head(self) -> tuple[bytes, int]:
        """Return the kind of the next message and its bytes; raise EOFError if there is none."""
        head = bytearray(HEAD.size)
        self.fill(head)
        return HEAD.unpack(head)

    def fill(self, room: Any) -> None:
        """Fill `room` with what comes next."""
        view = memoryview(room).cast("B")
        while len(view):
            n = self._in.readinto(view)  # type: ignore[attr-defined]
            if not n:
                raise EOFError
            view = view[n:]

    def read(self) -> bytes:
        """Return the bytes of the next message."""
        room = bytearray(self.head()[1])
        self.fill(room)
        return bytes(room)


class RemoteFile:
    """A file whose bytes the other process has, as pyarrow reads one of Python's."""

    closed = False

    def __init__(self, channel: Channel, size: int) -> None:
        self._channel, self._size, self._at = channel, size, 0

    def read(self, n: int = -1) -> bytes:
        """Return the next bytes, as many as there are."""
        left = max(self._size - self._at, 0)
        n = left if n < 0 else min(n, left)
        if not n:
            return b""
        self._channel.send(WANTED, RANGE.pack(self._at, n))
        data = self._channel.read()
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, from the beginning, from here or from the end."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def close(self) -> None:
        """Close the file."""
        self.closed = True


def answer(
    channel: Channel, size: int, stripe: int | None, columns: list[str] | None, rows: int
) -> Iterator[tuple[bytes, Any]]:
    """Yield the schema with the numbers of rows and stripes, or the batches of a stripe."""
    import pyarrow as pa
    import pyarrow.orc

    orc = pa.orc.ORCFile(pa.PythonFile(RemoteFile(channel, size), mode="r"))
    if stripe is None:
        numbers = {"rows": str(orc.nrows), "stripes": str(orc.nstripes)}
        yield SCHEMA, orc.schema.with_metadata(numbers).serialize()
        return
    batch = orc.read_stripe(stripe, columns=columns)
    yield SCHEMA, batch.schema.serialize()
    for first in range(0, batch.num_rows, rows):
        yield BATCH, batch.slice(first, rows).serialize()


def bound() -> None:
    """Leave no core file, and be the one that is ended where memory runs out."""
    with contextlib.suppress(ImportError, OSError):  # a system that knows no such thing
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")


def end_with(parent: int) -> None:
    """End when the process is gone that asks: others may hold its end of the pipes."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(0)


def is_asked() -> bool:
    """Wait for a request; return whether there is one, or the end of all."""
    return os.name != "posix" or bool(select.select([0], [], [], IDLE)[0])


def main() -> None:
    """Answer requests until there are none."""
    # What libraries print goes to stderr, not among the messages. Nothing is buffered here that
    # `is_asked` would not see.
    with os.fdopen(0, "rb", buffering=0) as ours, os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        channel = Channel(ours, out)
        if os.name == "posix":
            threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
        bound()
        # Not needed by pyarrow here, and half of the time that it takes to import.
        sys.modules["numpy"] = None  # type: ignore[assignment]
        while is_asked():
            try:
                asked = json.loads(channel.read())
            except EOFError:
                return
            sys.path[:] = asked.pop("path")
            try:
                for kind, data in answer(channel, **asked):
                    channel.send(kind, data)
            except (EOFError, BrokenPipeError):
                return
            except Exception as error:  # pyarrow's own, and whatever else it makes of a file
                channel.send(FAILED, (str(error).strip() or type(error).__name__).encode())
            else:
                channel.send(DONE)


if __name__ == "__main__":
    main()
