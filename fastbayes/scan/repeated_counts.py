"""Row groups that are alike in all but their indices, counted by the calls of the first of them.

What a scan does in Python for row groups takes as long as their count. Most row groups of a file
are of as many rows and have the same values: these are decoded to where the first one lies, and the
kernels are called with the same arguments again, with other tables of codes where the values of a
column stand in another order, as many a writer has them. One call does so for many of them.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

from numpy.typing import NDArray

from fastbayes.data.decoded_rows import DecodedRows
from fastbayes.data.encode import LookedUp
from fastbayes.data.lent_memory import lend
from fastbayes.data.segments import AlikeParts, Segment
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.row_groups import Chunks, WriterPieces
from fastbayes.scan.repeated_sums import RepeatedSums
from fastbayes.statistics.base import Statistic
from fastbayes.statistics.parts import GrowingStatistics

# Rows of so many lengths are held.
LENGTHS = 4
# After so many row groups that are not like those before none is tried any more: they were read in
# vain.
MOST_UNLIKE = 8
# As so many count those whose numbers were summed in vain, which takes longer.
IN_VAIN = 4
# Cells of one call, which no signal interrupts: some tenths of a second.
MOST_CELLS = 1 << 28


class RepeatedCounts:
    """What threads count again and again, each with memory and counts of its own.

    What one thread has noted down the others copy: in Python that takes a tenth of the time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_threads: dict[int, list[_Repeated]] = {}
        self._unlike = 0  # in a row, of all threads
        self._numbers = itertools.count()
        # How many rows a thread reads for itself: which thread, and whether it is done.
        self._reading: dict[int, tuple[int, threading.Event]] = {}

    def add(
        self, segment: Segment, first: int, *, apart: bool = False
    ) -> tuple[int, GrowingStatistics | None]:
        """Count parts of a segment, from one on, that are like rows which were counted.

        Returns how many they were, and the sums of their numbers where these are read apart; None
        if Python is to read these. Where no part is, this thread is to read the first one for
        itself (`keep`, `let_go`). Others wait for that which come to as many rows meanwhile, unless
        numbers are `apart`: then kernels take most of the time.
        """
        self.let_go()
        if segment.alike is None:
            return 0, None
        while self.hopeful:
            own, others = self._held()
            # What is ready; of what is yet to be made all threads take the same.
            for each in sorted(
                [*own, *others], key=lambda each: (each.counter is None, each.number)
            ):
                noted = each.sums  # whoever made them may let go of them
                parts = segment.alike(first, each.rows, noted and noted.reader)
                if not len(parts.starts):
                    continue
                mine = each if each in own else self._copied(each, own)
                if mine is not None:
                    found, sums = mine.count(parts)
                    alike = found > 0 and (sums is not None or mine.sums is None)
                    self._unlike = 0 if alike else self._unlike + (IN_VAIN if found else 1)
                    return found, sums
            if apart:
                self._unlike += bool(own)
                break
            with self._lock:
                reads = get_ident(), threading.Event()
                other, done = self._reading.setdefault(segment.parts[first].n_rows, reads)
            if other == get_ident():
                self._unlike += bool(own)
                break
            done.wait()
        return 0, None

    @property
    def hopeful(self) -> bool:
        """Whether it is worth to try if the next rows are like others."""
        return self._unlike <= MOST_UNLIKE

    def in_vain(self) -> None:
        """Take note of numbers that were summed in vain."""
        with self._lock:
            self._unlike += IN_VAIN

    def _copied(self, other: _Repeated, own: list[_Repeated]) -> _Repeated | None:
        """Take note of what another thread did; return None where the own counts do not fit."""
        mine = other.copy(own)
        if mine is not None:
            left = [each for each in own if each.rows.num_rows != mine.rows.num_rows]
            with self._lock:
                self._of_threads[get_ident()] = [mine, *_longest(left)]
        return mine

    def _held(self) -> tuple[list[_Repeated], list[_Repeated]]:
        """Return what this thread counts again, and the others."""
        with self._lock:
            of_threads = {**self._of_threads}
        own = of_threads.pop(get_ident(), [])
        return own, [each for held in of_threads.values() for each in held if not each.copied]

    def counts(self) -> GrowingStatistics | None:
        """Return to what the thread adds."""
        own, _ = self._held()
        return own[0].counts if own else None

    def keep(
        self,
        rows: DecodedRows | None,
        known: LookedUp,
        calls: Any,
        counts: GrowingStatistics,
        sums: RepeatedSums | None = None,
    ) -> bool:
        """Take note of rows that were counted, if they last; return whether counts are added to.

        They are held as long as they are. Files end with fewer rows: rows of some lengths are held.
        `sums` are those of their numbers, where these were read apart.
        """
        before = [each for each in self._held()[0] if each.holds()]
        if rows is not None and calls is not None and rows.reader.again:
            before = [each for each in before if each.rows.num_rows != rows.num_rows]
            parts = {**counts.held}
            held = rows, known, calls, counts, parts, _arrays(parts)
            before = [_Repeated(*held, sums, next(self._numbers)), *_longest(before)]
        with self._lock:
            self._unlike += rows is None
            self._of_threads.pop(get_ident(), None)
            if before:
                self._of_threads[get_ident()] = before
        self.let_go()
        return bool(before)

    def let_go(self) -> None:
        """Let threads go on that wait for rows that this one reads."""
        with self._lock:
            mine = [n for n, (thread, _) in self._reading.items() if thread == get_ident()]
            for _, done in map(self._reading.pop, mine):
                done.set()

    def all_counts(self) -> Iterator[GrowingStatistics]:
        """Yield what all threads added to."""
        for each, *_ in self._of_threads.values():
            yield each.counts


@dataclass(eq=False)
class _Repeated:
    """Rows, the calls that counted them, and to what these add.

    parts    what the counts held then
    arrays   to which the calls add
    sums     what adds up the numbers that are read apart, if any are
    number   how many were noted down before
    counter  counts others that take the place of the rows; made when there are some
    copied   whether another thread has noted it down
    """

    rows: DecodedRows
    known: LookedUp
    calls: Any
    counts: GrowingStatistics
    parts: dict[str, Statistic]
    arrays: list[NDArray[Any]]
    sums: RepeatedSums | None
    number: int
    counter: Any = None
    copied: bool = False

    def holds(self) -> bool:
        """Return whether the calls add to what counts: no room was made for more values since."""
        return [*map(id, self.arrays)] == [*map(id, _arrays(self.counts.held))]

    def copy(self, others: list[_Repeated]) -> _Repeated | None:
        """Return the same for another thread, which counts others; None if it is laid out anew.

        It adds to what these add to, and works where the longest of them does.
        """
        if others:
            counts = others[0].counts
        else:
            counts = GrowingStatistics(self.counts.wanted, weighted=self.counts.weighted)
            counts.held = {name: part.blank() for name, part in self.parts.items()}
        own = {**counts.held}
        alike = own.keys() == self.parts.keys() and all(
            part.is_laid_out_like(own[name]) for name, part in self.parts.items()
        )
        if not alike:
            return None
        with _making:
            for each in others:
                if each.counter is None and each.rows.num_rows == self.rows.num_rows:
                    each.sums = None  # this takes its place, and its memory
        own = {name: own[name] for name in self.parts}  # in the same order
        arrays = _arrays(own)
        counter, pairs = self.made(), [*zip(self.arrays, arrays, strict=True)]
        sums = None
        if self.sums is not None:
            sums = self.sums.elsewhere()
            pairs += zip(self.sums.arrays, sums.arrays, strict=True)
        within = _longest(others, 1)[0].counter if others else None
        made: dict[str, Any] = {"counter": counter.copy(pairs, lend, within), "sums": sums}
        return replace(self, counts=counts, parts=own, arrays=arrays, copied=True, **made)

    def made(self) -> Any:
        """Return the counter, made at the first time; from then on the sums are kept."""
        with _making:
            if self.counter is None:
                calls = self.calls
                if self.sums is not None:
                    calls = self.sums.behind(calls)
                self.counter = _counter(self.rows, self.known, calls)
        return self.counter

    def count(self, parts: AlikeParts) -> tuple[int, GrowingStatistics | None]:
        """Count parts, up to the first that turns out to be not alike; see `RepeatedCounts.add`."""
        counter, n_chunks = self.made(), parts.starts.shape[1]
        step = max(MOST_CELLS // (self.rows.num_rows * n_chunks), 1)
        try:
            descriptor = os.open(parts.path, os.O_RDONLY)
        except OSError:
            return 0, None  # who reads it for itself says what it is
        try:
            for first in range(0, len(parts.starts), step):
                some = [each[first : first + step] for each in (parts.starts, parts.sizes)]
                if self.sums is not None:  # of one part
                    self.sums.begin(descriptor, parts.numbers[0])
                found = int(counter.count(descriptor, *some))
                self.known.check(counter.outside)
                if found < len(some[0]):
                    return first + found, None
        finally:
            os.close(descriptor)
        return len(parts.starts), None if self.sums is None else self.sums.end()


def _longest(held: list[_Repeated], n: int = LENGTHS - 1) -> list[_Repeated]:
    """Return those of the most rows."""
    return sorted(held, key=lambda each: -each.rows.num_rows)[:n]


# Held while a thread makes a counter, which another one may ask for, too, or lets go of its sums.
_making = threading.Lock()


def _after_fork() -> None:
    # A child forked while another thread held the lock would wait for ever.
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _counter(rows: DecodedRows, known: LookedUp, calls: Any) -> Any:
    """Return what counts row groups that take the place of others."""
    reader, kernels = rows.reader, dispatch.compiled_module("reading.row_groups")
    chunks = {name: c for c, name in enumerate(rows.schema.names) if reader.is_short(c)}
    writers = []
    for writer, columns in known.code_writers():
        places = zip(writer.firsts(), columns, strict=True)
        tables = [(k, chunks[name], codes) for k, (name, codes) in places if name in chunks]
        writers.append(WriterPieces(writer.pieces, writer.outside, tables))
    return kernels.AlikeGroups(Chunks(**reader.memory()), rows.bitmaps(), writers, calls)


def _arrays(parts: Mapping[str, Statistic]) -> list[NDArray[Any]]:
    return [array for part in parts.values() for array in part.added_to]
