"""Which files and batches were counted, and how often: what tells that rows count twice."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Of a longer file so many first and so many last bytes make the digest: where the formats have
# their first values and their footer, with the sizes and extremes of all columns.
EDGE = 1 << 16
# Shares that are scaled up and down again are off by so much of themselves, by rounding.
ROUNDING = 1e-9
_DIGEST = re.compile(r"[0-9a-f]{32}")

# (n, times): how often each of the next n row groups was counted.
Runs = tuple[tuple[int, float], ...]


class CountedFile(NamedTuple):
    """A file from which rows were counted, or a batch of rows that has a name alone.

    digest    of its size, its first and its last bytes, which tells copies from other files; of a
              batch that of its name
    path      where it was, or the name
    size      bytes; a batch has none
    modified  ns since 1970, if known
    runs      how often its row groups were counted; a file without row groups is one
    copies    paths of files with the same bytes that were counted besides
    """

    digest: str
    path: str
    size: int
    modified: int | None
    runs: Runs
    copies: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it was, and its copies that were counted."""
        return self.path, *self.copies

    def at(self, paths: Sequence[str]) -> CountedFile:
        """Return the entry of a file and copies at these paths."""
        path, *copies = paths
        modified = self.modified if path == self.path else None
        return self._replace(path=path, modified=modified, copies=tuple(copies))

    @property
    def is_batch(self) -> bool:
        """Whether these rows are no file, but go by a name."""
        return self.size == 0  # a file without bytes is none of data


class Ledger:
    """Files and batches that were counted, a value that adds, subtracts and scales like counts."""

    def __init__(self, files: Iterable[CountedFile] = ()) -> None:
        self._files: dict[str, CountedFile] = {}
        self._enter(files, 1.0)

    def _enter(self, files: Iterable[CountedFile], factor: float) -> None:
        held = self._files
        for file in files:
            before = held.pop(file.digest, file._replace(runs=()))
            if runs := together(before.runs, file.runs, factor):
                if before.paths != file.paths and overlap(before.runs, file.runs):
                    before = before.at(_paths(before, file, factor))
                held[file.digest] = before._replace(runs=runs)

    def _with(self, other: Ledger, factor: float) -> Ledger:
        result = Ledger()
        result._files = dict(self._files)
        result._enter(other, factor)
        return result

    def __iter__(self) -> Iterator[CountedFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<Ledger of {len(self):,} entries>"

    def __add__(self, other: Ledger) -> Ledger:
        return self._with(other, 1.0)

    def __sub__(self, other: Ledger) -> Ledger:
        return self._with(other, -1.0)

    def __mul__(self, factor: float) -> Ledger:
        result = Ledger()
        result._enter(self, factor)
        return result

    @classmethod
    def sum(cls, ledgers: Iterable[Ledger]) -> Ledger:
        """Return the sum of many, without one of each few."""
        return cls(file for ledger in ledgers for file in ledger)

    def of(self, digest: str) -> CountedFile | None:
        """Return what was counted from a file; None for nothing."""
        return self._files.get(digest)

    def common(self, other: Ledger) -> Iterator[CountedFile]:
        """Yield files of the other from which both have rows of the same row groups."""
        for theirs in other:
            mine = self.of(theirs.digest)
            if mine is not None and overlap(mine.runs, theirs.runs):
                yield theirs

    def lacking(self, other: Ledger) -> Iterator[CountedFile]:
        """Yield files of the other that it does not have as often as the other."""
        for theirs in other:
            mine = self.of(theirs.digest)
            runs = () if mine is None else mine.runs
            if any(b - a > ROUNDING * abs(b) for _, a, b in _beside(runs, theirs.runs)):
                yield theirs

    # -- in a file ---------------------------------------------------------------------------------

    def to_array(self) -> NDArray[np.uint8]:
        """Return the ledger as bytes of JSON, (n_bytes,)."""
        # Earlier versions read entries without copies.
        entries = [file if file.copies else file[:-1] for file in self]
        return np.frombuffer(json.dumps(entries).encode(), np.uint8)

    @classmethod
    def from_array(cls, data: NDArray[np.uint8]) -> Ledger:
        """Return the ledger of such bytes; ValueError when they are none of a ledger."""
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError("the ledger is not made of bytes")
        try:
            return cls([_checked(*entry) for entry in json.loads(data.tobytes())])
        except (TypeError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"the ledger is none ({error})") from error


def _paths(before: CountedFile, file: CountedFile, factor: float) -> Sequence[str]:
    """Return the paths of copies of which the rows of some are added, or taken out."""
    if factor > 0:
        return [*dict.fromkeys(before.paths + file.paths)]
    return [path for path in before.paths if path not in file.paths] or before.paths


def _checked(
    digest: Any, path: Any, size: Any, modified: Any, runs: Any, copies: Any = ()
) -> CountedFile:
    sizes = [size, 0 if modified is None else modified, *(n for n, _ in runs)]
    sound = (
        isinstance(digest, str)
        and _DIGEST.fullmatch(digest)
        and isinstance(copies, list | tuple)
        and all(isinstance(each, str) for each in (path, *copies))
        and len({path, *copies}) == 1 + len(copies)
        and all(type(n) is int and -(2**63) <= n < 2**63 for n in sizes)
        and all(n > 0 and type(t) in (int, float) and math.isfinite(t) for n, t in runs)
    )
    if not sound:
        raise ValueError("an entry of the ledger is none")
    times = tuple((n, float(t)) for n, t in runs)
    return CountedFile(digest, path, size, modified, times, tuple(copies))


def _beside(a: Runs, b: Runs) -> Iterator[tuple[int, float, float]]:
    """Yield (n, times of the one, times of the other) along the row groups of both."""
    left, right = [*reversed(a)], [*reversed(b)]
    while left or right:
        n, times = left.pop() if left else (right[-1][0], 0.0)
        m, others = right.pop() if right else (n, 0.0)
        least = min(n, m)
        yield least, times, others
        if n > least:
            left.append((n - least, times))
        if m > least:
            right.append((m - least, others))


def overlap(a: Runs, b: Runs) -> bool:
    """Return whether both have the same row group."""
    return any(mine and theirs for _, mine, theirs in _beside(a, b))


def together(a: Runs, b: Runs, factor: float) -> Runs:
    """Return a + factor b; () where nothing is left."""
    terms = [(n, x, factor * y) for n, x, y in _beside(a, b)]
    sums = [(n, x + y if abs(x + y) > ROUNDING * abs(x) else 0.0) for n, x, y in terms]
    runs = groupby(sums, lambda run: run[1])
    found = tuple((sum(n for n, _ in run), times) for times, run in runs)
    return found if any(times for _, times in found) else ()


def batch_of(name: str) -> CountedFile:
    """Return the entry of rows that go by a name."""
    # The digest of a file begins with its size, that of a batch with no digit.
    digest = hashlib.blake2b(f"batch {name}".encode(), digest_size=16).hexdigest()
    return CountedFile(digest, name, 0, None, ((1, 1.0),))


def runs_of(groups: range, n_groups: int) -> Runs:
    """Return that some of the row groups of a file were counted once."""
    some = [(groups.start, 0.0), (len(groups), 1.0), (n_groups - groups.stop, 0.0)]
    return tuple(run for run in some if run[0])


def digest_of(handle: BinaryIO | Any, size: int) -> str:
    """Return the digest of an open file: that of all its bytes, of a long one of its two ends."""
    ends: Sequence[tuple[int, int]] = [(0, EDGE), (size - EDGE, EDGE)]
    found = hashlib.blake2b(str(size).encode(), digest_size=16)
    for first, n in ends if size > 2 * EDGE else [(0, size)]:
        handle.seek(first)
        found.update(handle.read(n))
    return found.hexdigest()
