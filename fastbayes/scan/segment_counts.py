"""What a scan counts of segments, on threads that each have sets of counts, added up at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.core.schema import Shape
from fastbayes.data.encode import Encoder, LookedUp, NumbersApart
from fastbayes.data.segments import LateNumbers, Rows, Segment, Source
from fastbayes.data.store_errors import NotSkippedError
from fastbayes.scan.budget import Budget, capacity
from fastbayes.scan.fold_statistics import Crossing
from fastbayes.scan.repeated_counts import RepeatedCounts
from fastbayes.scan.repeated_sums import RepeatedSums
from fastbayes.scan.row_blocks import over_blocks
from fastbayes.statistics.parts import GrowingStatistics, Wanted
from fastbayes.statistics.registry import kind_of, order_free

# Returns the sums that the rows of a block, from this row on, belong to.
OwnOf = Callable[[int], GrowingStatistics]
# Returns a block whose classes are crossed with folds, and the shape that it has then.
Crossed = Callable[[Batch, Shape], tuple[Batch, Shape]]


@dataclass
class CountedSegment:
    """What one segment left behind, apart from counts that went into a shared set.

    parts    a set for each stretch of rows
    skipped  why it was left out
    """

    origin: str
    parts: list[GrowingStatistics] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    unlabelled: list[pa.RecordBatch] = field(default_factory=list)
    skipped: str | None = None


class SegmentCounts:
    """Counts segments, on any thread.

    Exact counts do not depend on the order of addition, so threads pick up whichever set is idle.
    Floating-point sums, and all of them where a segment may have to be left out or a prefix kept,
    are made afresh for each segment, to be added in the order of segments.

    Parameters
    ----------
    source, encoder, budget, crossing
        Of the scan; what is counted is the budget's.
    one_by_one
        Whether all that is counted of a segment is to stand by itself.
    skip
        Whether segments that cannot be read are left out.

    Attributes
    ----------
    own
        What is made for each segment.
    shared
        What goes into sets that all segments share.
    repeatable
        Whether Python has no part in the work, and calls of kernels may be made for more rows.
    merged
        Whether row groups that are like others are counted by the calls of these, and the source
        gives them together; the scan sets it where a checkpoint goes on.
    """

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        budget: Budget,
        crossing: Crossing | None,
        *,
        one_by_one: bool,
        skip: bool,
    ) -> None:
        self._source, self._encoder, self._budget = source, encoder, budget
        self._crossing, self._skip = crossing, skip
        self._weighted = encoder.weight is not None
        wanted, n_numeric = budget.wanted, len(encoder.features) - len(encoder.books)
        vacuous = {name for name in wanted if kind_of(name).vacuous(n_numeric)}
        alike = {*order_free(wanted, n_numeric, weighted=self._weighted)}
        self.shared: Wanted = {n: wanted[n] for n in wanted if n in alike and not one_by_one}
        self.own: Wanted = {n: wanted[n] for n in wanted if n not in self.shared}
        self.repeatable = crossing is None and all(
            n in vacuous or (n in alike and kind_of(n).repeatable) for n in wanted
        )
        self.merged = self.repeatable and not one_by_one
        self._idle: list[GrowingStatistics] = []
        self._repeated = RepeatedCounts()
        # Blocks are worked on one by one, in their order: numbers are decoded as late.
        late = not self.repeatable and crossing is None and not encoder.keep_unlabelled
        self._late = encoder.plain_numbers() if late else []
        # Whether what is counted of codes and what is summed of numbers need nothing of each other.
        self._twofold = (
            bool(self._late and self.shared)
            and not self._weighted
            and all(kind_of(name).repeatable for name in {*self.shared} - vacuous)
            and all(kind_of(name).sums_repeatable for name in self.own)
        )

    def count(self, segment: Segment, threads: int) -> CountedSegment:
        """Count a segment with the help of so many threads."""
        found = CountedSegment(segment.origin)
        try:
            alike, sums = 0, None
            if self._twofold and segment.parts:
                alike, sums = self._repeated.add(segment, 0, apart=True)
            if sums is not None:
                found.parts, found.rows = [sums], segment.parts[0].n_rows
                return found
            with segment.apart(self._late) as (batches, numbers):
                self._add(found, segment, batches, numbers, threads, counted=alike > 0)
            return found
        except DataError as error:
            if not self._skip or isinstance(error, NotSkippedError):
                raise
            return CountedSegment(segment.origin, skipped=self._skipped(error, segment))
        finally:
            self._repeated.let_go()

    def sets(self) -> Iterator[GrowingStatistics]:
        """Yield the sets that segments share, once all are counted."""
        return chain(self._idle, self._repeated.all_counts())

    def _add(
        self,
        found: CountedSegment,
        segment: Segment,
        batches: Iterator[Rows],
        numbers: LateNumbers | None,
        threads: int,
        *,
        counted: bool,
    ) -> None:
        """Count a segment; only sums are left to make where its codes were counted."""
        sums = _Sums(self.own, segment, found.parts, weighted=self._weighted)
        for at, block in self._unlike(found, segment, batches):
            place = segment.place(at)
            late = None if numbers is None else NumbersApart(numbers, at, place)
            known = self._encoder.look_up(block, place, late)
            found.dropped += known.dropped()
            if known.unlabelled is not None:
                found.unlabelled.append(known.unlabelled)
            crossed = None
            if self._crossing is not None:
                crossed = partial(self._crossed, self._crossing, segment, at, block, known)
            held = self._idle_set() if self.shared and not counted else None
            self._add_rows(block, known, at, sums, held, crossed, threads)
            found.rows += block.num_rows

    def _crossed(
        self,
        crossing: Crossing,
        segment: Segment,
        done: int,
        rows: Rows,
        known: LookedUp,
        batch: Batch,
        shape: Shape,
    ) -> tuple[Batch, Shape]:
        """Return a block with classes crossed with folds; refuse what counting it so needs."""
        batch, shape = crossing.crossed(segment, done, rows, known.kept, batch, shape)
        self._budget.check(self._encoder, shape, known)
        return batch, shape

    def _unlike(
        self, found: CountedSegment, segment: Segment, batches: Iterator[Rows]
    ) -> Iterator[tuple[int, Rows]]:
        """Yield rows and how many stand before them; those that are like others are counted."""
        if not (self.merged and segment.parts):
            for block in batches:
                yield found.rows, block
            return
        first = 0
        while first < len(segment.parts):
            alike, _ = self._repeated.add(segment, first)
            found.rows += sum(part.n_rows for part in segment.parts[first : first + alike])
            first += alike
            if not alike:
                at = segment.parts[first].before
                for block in segment.parts[first].read():
                    yield at, block
                    at += block.num_rows
                first += 1

    def _add_rows(
        self,
        rows: Rows,
        known: LookedUp,
        at: int,
        sums: _Sums,
        held: GrowingStatistics | None,
        crossed: Crossed | None,
        threads: int,
    ) -> None:
        """Count rows that were looked up, `at` of the segment before them, into a set and sums."""
        shape = capacity(self._encoder)
        for part in [*sums.parts[-1:], *([] if held is None else [held])]:
            shape = part.room(shape)
        self._budget.check(self._encoder, shape, known)
        own_of: OwnOf | None = partial(sums.at, at, known)
        codes, kept, summed = known, False, None
        apart = self._twofold and held is not None and known.n_rows > 0
        apart = apart and known.numbers_apart() is not None
        try:
            if apart:
                codes = known.without_numbers()
            fixed = (apart or (self.repeatable and not self.own)) and codes.is_lasting(rows)
            if apart:
                tried = codes if fixed and self._repeated.hopeful else None
                summed = sums.of_numbers(known, tried, at, shape, self._budget)
                if tried is not None and summed is None:
                    self._repeated.in_vain()
                own_of, fixed = None, summed is not None
            lasting = rows if fixed else None
            calls = over_blocks(
                codes,
                partial(_update, self._budget, own_of, held, shape, crossed),
                sizes=shape.sizes,
                repeatable=self.repeatable or apart,
                threads=threads,
                last=lasting is None,
            )
            codes.check()
            if held is not None:
                kept = self._repeated.keep(lasting, codes, calls, held, summed)
        finally:
            if held is not None and not kept:
                self._idle.append(held)

    def _idle_set(self) -> GrowingStatistics:
        """Return a set to which no other thread adds."""
        if (own := self._repeated.counts()) is not None:
            return own
        try:
            return self._idle.pop()
        except IndexError:  # or another thread took the last one
            return GrowingStatistics(self.shared, weighted=self._weighted)

    def _skipped(self, error: DataError, segment: Segment) -> str:
        """Return what is said of a segment that is left out: the error, and the rows lost."""
        n_rows = segment.n_rows
        if n_rows is None and isinstance(error, FileFormatError):  # nor can it be
            return str(error)
        if n_rows is None:  # so far it was not read to its end
            try:
                n_rows = sum(rows.num_rows for rows in segment.batches())
            except DataError:
                return str(error)
        self._source.check_lost(segment.origin, n_rows, error)
        return f"{error} ({n_rows:,} row{'s' * (n_rows != 1)} left out with it)"


class _Sums:
    """Sets of statistics whose bits depend on the order of rows, one for each stretch of a segment.

    parts  receives those of the stretches that have rows
    """

    def __init__(
        self, wanted: Wanted, segment: Segment, parts: list[GrowingStatistics], *, weighted: bool
    ) -> None:
        self.parts = parts
        self._wanted, self._weighted = wanted, weighted
        self._rows, self._stretch = segment.sum_rows, -1

    def at(self, done: int, rows: LookedUp, first: int) -> GrowingStatistics:
        """Return the set of a row, of those that come after so many of the segment."""
        place = done + (first if rows.kept is None else int(rows.kept[first]))
        stretch = 0 if self._rows is None else place // self._rows
        if stretch != self._stretch:
            self._stretch = stretch
            self.parts.append(GrowingStatistics(self._wanted, weighted=self._weighted))
        return self.parts[-1]

    def of_numbers(
        self, rows: LookedUp, fixed: LookedUp | None, done: int, shape: Shape, budget: Budget
    ) -> RepeatedSums | None:
        """Add up numbers that are read apart, of rows behind so many of the segment.

        By noted calls, which are returned, where these do: then others may take the place of the
        rows. `fixed` are the rows without their numbers, if that can be.
        """
        numbers, own = rows.numbers_apart(), self.at(done, rows, 0)
        repeated = None
        if fixed is not None and numbers is not None:
            repeated = RepeatedSums.of(numbers.numbers, own, shape, fixed)
        found = None if repeated is None else repeated.made()
        if found is None:
            alone = partial(_update, budget, partial(self.at, done, rows), None, shape, None)
            over_blocks(rows.without_codes(), alone)
            return None
        self.parts[-1] = found
        budget.check_held(found)
        return repeated


def _update(
    budget: Budget,
    own_of: OwnOf | None,
    held: GrowingStatistics | None,
    shape: Shape,
    crossed: Crossed | None,
    batch: Batch,
    first: int,
) -> None:
    """Add a block of rows to sets of statistics, its classes crossed with folds if it is so."""
    if crossed is not None:
        batch, shape = crossed(batch, shape)
    for part in (None if own_of is None else own_of(first), held):
        if part is not None:
            part.update(batch, shape)
            budget.check_held(part)
