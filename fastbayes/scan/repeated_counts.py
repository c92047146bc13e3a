"""Row groups that are alike in all but their indices, counted by the calls of the first of them.

What a scan does in Python for row groups takes as long as their count. Most row groups of a file
are of as many rows and have the same values: these are decoded to where the first one lies, and the
kernels are called with the same arguments again, with other tables of codes where the values of a
column stand in another order, as many a writer has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

from fastbayes.data.decoded_rows import DecodedRows
from fastbayes.data.encode import LookedUp
from fastbayes.data.segments import SegmentPart
from fastbayes.statistics.parts import GrowingStatistics

# After so many row groups that are not like those before none is tried any more: they were read in
# vain.
MOST_UNLIKE = 8


class RepeatedCounts:
    """What threads count again and again, each with rows and counts of its own."""

    def __init__(self) -> None:
        self._of_threads: dict[int, list[_Repeated]] = {}
        self._unlike = 0  # in a row, of all threads

    def add(self, part: SegmentPart) -> bool:
        """Count a part if the thread counted rows like it; return whether it did."""
        before = self._of_threads.get(get_ident())
        if not before or self._unlike > MOST_UNLIKE:
            return False
        found = part.into([each.rows for each in before])
        if found is None:
            self._unlike += 1
            return False
        self._unlike = 0
        rows, orders = found
        for each in before:
            if each.rows is rows:
                each.known.reorder(orders)
                each.calls()
                each.known.check()
        return True

    def counts(self) -> GrowingStatistics | None:
        """Return to what the thread adds."""
        before = self._of_threads.get(get_ident())
        return before[0].counts if before else None

    def keep(
        self,
        rows: DecodedRows | None,
        known: LookedUp,
        calls: Callable[[], None] | None,
        counts: GrowingStatistics,
    ) -> bool:
        """Take note of rows that were counted, if they last; return whether counts are added to.

        They are held as long as they are. Files end with fewer rows: rows of two lengths are held.
        """
        before = [each for each in self._of_threads.pop(get_ident(), []) if each.holds()]
        if rows is not None and calls is not None:
            before = [each for each in before if each.rows.num_rows != rows.num_rows]
            before.sort(key=lambda each: each.rows.num_rows)
            before = [_Repeated(rows, known, calls, counts, _arrays(counts)), *before[-1:]]
        if before:
            self._of_threads[get_ident()] = before
        return bool(before)

    def all_counts(self) -> Iterator[GrowingStatistics]:
        """Yield what all threads added to."""
        for each, *_ in self._of_threads.values():
            yield each.counts


class _Repeated(NamedTuple):
    """Rows, the calls that count them, and to what these add.

    held  the arrays of the counts then
    """

    rows: DecodedRows
    known: LookedUp
    calls: Callable[[], None]
    counts: GrowingStatistics
    held: list[Any]

    def holds(self) -> bool:
        """Return whether the calls add to what counts: no room was made for more values since."""
        return [*map(id, self.held)] == [*map(id, _arrays(self.counts))]


def _arrays(counts: GrowingStatistics) -> list[Any]:
    return [array for part in counts.held.values() for array in part.added_to]
