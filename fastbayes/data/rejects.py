"""Rows of text that cannot be used: left out, counted, and written down with the reason."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fastbayes.core.errors import DataError, RejectLimitError, SystemLimitError, refuse
from fastbayes.core.files import atomic
from fastbayes.data.segments import EXHAUSTED

_NAMES = ("file", "line", "reason", "text")
_HEADERS = {".csv": (",".join(_NAMES) + "\n").encode(), ".jsonl": b""}
_BEGINS = {".csv": _HEADERS[".csv"], ".jsonl": b'{"file": '}


class BadRow(NamedTuple):
    """A row that cannot be used.

    line    of its file where it begins, counted from 1
    reason  what is wrong with it
    text    as it stands in the file
    """

    line: int
    reason: str
    text: bytes


class Rejects:
    """Keeps count of rows that are left out, and writes them to a file.

    path   file to write, .csv or .jsonl; None: they are only counted
    share  of the rows of a block of text (16 MiB, or the file) that may be left out, rounded up
    """

    def __init__(self, path: str | os.PathLike[str] | None, share: float) -> None:
        self.path = None if path is None else Path(path)
        self.share = share
        self.rows: dict[str, int] = {}  # by file
        self._seen: dict[tuple[str, int], set[int]] = {}  # by block
        self._lock = threading.Lock()
        self._begun = False
        self._failed = ""  # why the file was given up, in words
        if self.path is not None and self.path.suffix not in _HEADERS:
            raise DataError(f"{self.path}: rejected rows go to a .csv or .jsonl file")

    @property
    def total(self) -> int:
        """Number of rows that were left out."""
        return sum(self.rows.values())

    def begin(self, read: Sequence[str], appeared: Callable[[], Sequence[str]]) -> None:
        """Begin the file anew; one that holds anything but rejected rows is not replaced.

        It may neither be one of the files that are `read` nor appear among them.
        """
        if self.path is None or self._begun:
            return
        self._check_apart(read)
        begins = _BEGINS[self.path.suffix]
        refuse(self.path.is_dir(), f"{self.path} is a directory: rejected rows go to a file")
        if self.path.exists():
            with self.path.open("rb") as file:
                start = file.read(len(begins))
            refuse(
                start not in (b"", begins),
                f"{self.path} exists and holds no rejected rows; name another file",
            )
        with atomic(self.path, force=True) as temporary:
            temporary.write_bytes(_HEADERS[self.path.suffix])
        try:
            self._check_apart(appeared())
        except DataError:
            self.path.unlink()
            raise
        self._begun, self._failed = True, ""

    def _check_apart(self, files: Sequence[str]) -> None:
        own = os.path.realpath(self.path or "")
        refuse(
            any(os.path.realpath(file) == own for file in files),
            f"{self.path} would be among the files that are read; write rejected rows elsewhere",
        )

    def most(self, n: int) -> int:
        """Return how many of n may be bad."""
        return math.ceil(self.share * n)

    def check(self, origin: str, n_rows: int, bad: Sequence[BadRow]) -> None:
        """Raise RejectLimitError when there are too many bad rows in a block of n_rows."""
        if len(bad) > self.most(n_rows):
            first = bad[0]
            raise RejectLimitError(
                f"{origin}: {len(bad):,} of {n_rows:,} rows cannot be used, more than "
                f"max_rejected={self.share:g} allows; the first in line "
                f"{first.line}: {first.reason}"
            )

    def check_block(self, origin: str, n_rows: int, error: DataError) -> None:
        """Raise RejectLimitError where a block cannot be left out as a whole for an error."""
        if n_rows > self.most(n_rows):
            raise RejectLimitError(
                f"{origin}: {n_rows:,} rows would be left out together, more than "
                f"max_rejected={self.share:g} allows: {error}"
            ) from error

    def add(self, origin: str, block: int, n_rows: int, bad: Sequence[BadRow]) -> None:
        """Take note of the bad rows of a block of n_rows; one that is read again changes nothing.

        Raises RejectLimitError when there are too many of them, SystemLimitError when they cannot
        be written.
        """
        self.check(origin, n_rows, bad)
        with self._lock:
            refuse(self._failed, self._failed, SystemLimitError)
            # A scan of more columns may find more.
            seen = self._seen.setdefault((origin, block), set())
            bad = [row for row in bad if row.line not in seen]
            if not bad:
                return
            if self.path is not None:
                self._append(self.path, self._lines(origin, bad).encode())
            seen.update(row.line for row in bad)
            self.rows[origin] = self.rows.get(origin, 0) + len(bad)

    def _append(self, path: Path, lines: bytes) -> None:
        """Write lines behind the others, or give up the file: some rows would look like all.

        The file that is read is not at fault, which a DataError would leave out.
        """
        try:
            with path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            self._begun = False
            self.rows.clear()
            self._seen.clear()
            try:
                path.resolve().unlink()
                became = "was removed"
            except OSError:
                became = "is incomplete"
            remedy = EXHAUSTED.get(error.errno or 0, "free some space, or name another file")
            said = (error.strerror or str(error)).lower()
            self._failed = f"{path}: {said}; the file of rejected rows {became}: {remedy}"
            raise SystemLimitError(self._failed) from error

    def _lines(self, origin: str, bad: Sequence[BadRow]) -> str:
        texts = [row.text.decode(errors="backslashreplace").rstrip("\r\n") for row in bad]
        rows = [(origin, row.line, row.reason, text) for row, text in zip(bad, texts, strict=True)]
        assert self.path is not None
        if self.path.suffix == ".jsonl":
            return "".join(json.dumps(dict(zip(_NAMES, row, strict=True))) + "\n" for row in rows)
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows(rows)
        return sink.getvalue()

    def notes(self) -> list[str]:
        """Return a line for each file of which rows were left out."""
        where = "" if self.path is None else f"; they are in {self.path}"
        return [
            f"left out: {n:,} row{'s' * (n > 1)} of {file}{where}"
            for file, n in sorted(self.rows.items())
        ]
