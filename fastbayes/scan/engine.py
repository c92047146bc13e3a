"""One scan: a source through an encoder into statistics, on a thread pool of its own."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.allocators import release
from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import DataError, FileFormatError, MemoryLimitError
from fastbayes.core.ledger import Ledger
from fastbayes.core.schema import Shape
from fastbayes.core.text_tables import size
from fastbayes.core.threads import default_threads as default_threads
from fastbayes.core.threads import in_order as in_order
from fastbayes.core.threads import resolved_threads as resolved_threads
from fastbayes.data.encode import Encoded, Encoder, LookedUp, NumbersApart
from fastbayes.data.folds import Folds, FoldsByColumn
from fastbayes.data.order import sorted_values
from fastbayes.data.segments import SEGMENT_BLOCKS, LateNumbers, Rows, Segment, Source
from fastbayes.kernels import dispatch
from fastbayes.scan.budget import (
    SLACK,
    Budget,
    ReadShare,
    capacity,
    check_limit,
    encoded_width,
    needs_of,
    roomy,
    total_of,
)
from fastbayes.scan.budget import default_limit as default_limit
from fastbayes.scan.checkpoint import KeptCounts, Progressed
from fastbayes.scan.dual_encoding import named_alike, named_apart
from fastbayes.scan.fold_statistics import Crossing, with_folds_of
from fastbayes.scan.repeated_counts import RepeatedCounts
from fastbayes.scan.repeated_sums import RepeatedSums
from fastbayes.scan.request import Counter, Partial, ScanRequest
from fastbayes.scan.request import Progress as Progress
from fastbayes.statistics.base import Room, Statistic
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.parts import GrowingStatistics
from fastbayes.statistics.parts import Wanted as Wanted
from fastbayes.statistics.registry import kind_of
from fastbayes.statistics.value_counts import ValueCounts

# Segments of a table in memory for each of several threads: the one that is done first takes more.
# Where they would have fewer cells, one: Python takes as long for a segment as kernels for 2^24.
SEGMENTS, LEAST_CELLS = 2, 1 << 27
# Cells of a batch on a thread, which no signal interrupts: a tenth of a second where values are
# counted.
MOST_CELLS = 1 << 29
# Cells for which it pays to ask another thread for help.
HELP_CELLS = 1 << 21
# Blocks that are looked up at once where Python goes over them: more would save little.
MOST_BLOCKS = 16
# Bytes of sums, by what is known before the first row, that each thread may hold until they are
# added in order.
HELD_SUMS = 1 << 20

# Returns the sums that the rows of a block, from this row on, belong to.
OwnOf = Callable[[int], GrowingStatistics]

logger = logging.getLogger("fastbayes")


def share_of(
    source: Source,
    threads: int | None,
    memory_limit: int | None,
    *,
    besides: int = 0,
    width: int = 0,
    made: Callable[[int], int] | None = None,
) -> ReadShare:
    """Return how the rows of a source are read within a limit.

    Parameters
    ----------
    source, threads, memory_limit
        As in `count`.
    besides
        Bytes that are needed for the answers of all rows.
    width
        Bytes that are made of a row that is read, and let go with its block.
    made
        Returns the bytes that so many threads hold of what they make of the rows.

    Raises
    ------
    MemoryLimitError
        When the answers, or the least that can be read at a time, do not fit.
    """
    check_limit(memory_limit)
    if memory_limit is not None and besides > max(memory_limit, SLACK):
        raise MemoryLimitError(
            f"{source.description}: the answers need {besides:,} bytes, over "
            f"memory_limit={memory_limit:,}: write them to a file (`predict_to`), take fewer rows "
            "at a time, or raise memory_limit"
        )
    most = resolved_threads(threads)
    share = ReadShare.within(source, most, memory_limit, besides, width, made)
    share.check(memory_limit)
    return share


def foreseen(
    source: Source,
    encoder: Encoder,
    names: Iterable[str] | Wanted,
    threads: int | None,
    memory_limit: int | None,
) -> list[ReadShare]:
    """Return how rows are going to be read to be counted, all columns or some after others.

    Raises
    ------
    MemoryLimitError
        When the schema tells that the counts exceed the limit, or reading; the message names the
        column.
    """
    check_limit(memory_limit)
    wanted: Wanted = names if isinstance(names, Mapping) else {name: {} for name in names}
    threads = resolved_threads(threads)
    budget = Budget(memory_limit, threads + 1, wanted)
    return [share for _, share in _runs(source, encoder, budget, threads, memory_limit, apart=True)]


def left_for_pairs(
    memory_limit: int | None, threads: int | None, shape: Shape, besides: int = 0
) -> int:
    """Return the bytes that one set of counts of pairs may take besides those of values.

    `besides` are the bytes that reading takes.
    """
    limit = (default_limit() if memory_limit is None else int(memory_limit)) - besides
    # Each thread has a set, and the result is one more.
    copies, larger = resolved_threads(threads) + 1, shape._replace(sizes=roomy(shape.sizes))
    needs = needs_of({"values": {}, "moments": {}}, Room(larger, larger.sizes, copies))
    return max(limit - total_of(needs), 0) // copies


def rows_at_once(source: Source, threads: int, most: int = MOST_CELLS) -> int:
    """Return the rows of a batch of whole blocks: columns are looked up for many blocks at once.

    A few segments for each thread, of as many rows as there are: the fewer calls, the better. What
    is no dictionary may be converted first, which takes up to 8 bytes a value. `most` is a number
    of rows.
    """
    if not (source.many_blocks and source.n_rows):
        return BLOCK_ROWS
    converted = sum(not pa.types.is_dictionary(field.type) for field in source.schema)
    most = min(most, MOST_CELLS // max(len(source.schema), 1))
    most = min(most, source.batch_bytes // (1 + 8 * converted))
    if source.in_memory:  # of files, as many as are decoded together
        cells = source.n_rows * len(source.schema)
        parts = max(threads, min(SEGMENTS * threads, cells // LEAST_CELLS)) if threads > 1 else 1
        most = min(most, -(-source.n_rows // parts))
    whole = SEGMENT_BLOCKS * BLOCK_ROWS
    return BLOCK_ROWS if most <= BLOCK_ROWS else whole * -(-most // whole)


def rows_on_all(source: Source, encoder: Encoder, threads: int, few: int) -> int:
    """Return the rows that all threads take the blocks of; 0 where each has rows of its own.

    That is where looking up takes time that grows with the rows. A multiple of so few.
    """
    if threads == 1 or not (source.many_blocks and encoder.is_indexing(source)):
        return 0
    return few * max(threads * MOST_CELLS // (max(len(source.schema), 1) * few), 1)


def threads_for(cells: float, threads: int) -> int:
    """Return on how many of the threads it pays to work through so many cells."""
    return int(min(threads, 1 + cells / HELP_CELLS))


def over_blocks(
    rows: LookedUp,
    work: Callable[[Batch, int], None],
    *,
    sizes: NDArray[np.int64] | None = None,
    moving: Sequence[tuple[NDArray[Any], int]] = (),
    repeatable: bool = False,
    blank: bool = False,
    threads: int = 1,
    last: bool = True,
) -> Any:
    """Do work(batch, first row) on rows block by block; return the calls of kernels that do it.

    They do the same once more, with other rows in the same place; None if none were noted. Blocks
    are those of the rows that were read, whichever of them were kept, unless the work is
    repeatable.

    Parameters
    ----------
    rows
        Rows whose values have codes.
    sizes
        As in `LookedUp.block`.
    moving
        Arrays that hold something of every row and that the work writes, with the bytes of a row.
    repeatable
        Whether the work does nothing with rows but call kernels by `dispatch.call`: compiled, they
        are then called for all blocks without Python in between.
    blank
        Whether codes are 0 while calls are noted down, for work that looks at them.
    threads
        How many take the blocks, at most. With several NotRepeatableError is raised, before
        anything is done, where the work is not repeatable.
    last
        Whether no others will take the place of these rows.
    """
    if threads > 1 and not repeatable:
        raise dispatch.NotRepeatableError
    threads = threads_for(rows.n_rows * max(len(rows.sizes), 1), threads)
    noted = repeatable and (rows.n_rows > BLOCK_ROWS or not last)
    n = rows.n_rows
    whole = n - n % BLOCK_ROWS
    parts = [(0, BLOCK_ROWS, n // BLOCK_ROWS), (whole, n % BLOCK_ROWS, 1)]
    if not noted:
        parts = [(first, last - first, 1) for _, first, last in rows.parts(BLOCK_ROWS)]
    # Only compiled kernels can be noted down: where those of codes are, those of counts are, too.
    repeat = (
        dispatch.load("reading.repeat", rows.coding)
        if noted
        else dispatch.numpy_twin("reading.repeat")
    )
    return repeat.over_blocks(
        lambda at, some: work(rows.block(at, some, sizes, blank=noted and blank, noted=noted), at),
        [part for part in parts if part[1] and part[2]],
        [*rows.moving(), *moving],
        threads,
    )


def encoded_blocks(segment: Segment, encoder: Encoder) -> Iterator[tuple[Rows, Encoded]]:
    """Yield the blocks of a segment with their codes."""
    done = 0
    for rows in segment.batches():
        blocks = encoder.look_up(rows, segment.place(done)).encoded(BLOCK_ROWS)
        for place, encoded in enumerate(blocks):
            whole = rows.num_rows <= BLOCK_ROWS  # a wide table is slow to be cut
            yield rows if whole else rows.slice(place * BLOCK_ROWS, BLOCK_ROWS), encoded
        done += rows.num_rows


class _Counted(NamedTuple):
    """What one segment left behind, apart from counts that went into a shared set."""

    parts: Sequence[GrowingStatistics] = ()  # a set for each stretch of rows
    rows: int = 0
    dropped: int = 0
    unlabelled: tuple[pa.RecordBatch, ...] = ()
    skipped: str | None = None  # why it was left out
    origin: str = ""


class _Total(NamedTuple):
    """What one reading of the rows gave; `lost` are the files of which nothing could be read."""

    parts: GrowingStatistics
    rows: int
    dropped: int
    provenance: list[str]
    lost: set[str]


def scan(
    source: Source,
    encoder: Encoder,
    names: Iterable[str] | Wanted = ("values", "moments"),
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    unlabelled: list[pa.RecordBatch] | None = None,
    on_error: str = "stop",
    checkpoint: KeptCounts | None = None,
    classless: bool = False,
    folds: Folds | None = None,
    besides: int = 0,
) -> Statistics:
    """Count a source once and return its statistics.

    Parameters
    ----------
    source, threads, memory_limit, progress, on_error
        As in `count`.
    encoder
        An encoder that learns.
    names
        Names of registered statistics; a mapping gives each the options of its `zeros`.
    unlabelled
        Receives the rows without a class, in order, if the encoder keeps them.
    checkpoint
        Keeps the work done; a scan that finds it goes on from there, to the same bits.
    classless
        Whether it is no error when no row has a class: a batch of many may be so.
    folds
        Count these apart, too; not with a checkpoint.
    besides
        Bytes within the limit that are held already.

    Returns
    -------
    Statistics
        Domains sorted, values that never occur left out.

    Raises
    ------
    MemoryLimitError
        When the counts would exceed the limit; the message names the column.
    DataError
        When the data cannot be read, or no row has a class.
    """
    wanted: Wanted = names if isinstance(names, Mapping) else {name: {} for name in names}
    check_limit(memory_limit)
    if isinstance(source, Counter):
        if encoder.keep_unlabelled or checkpoint is not None:
            kept_here = "a checkpoint" if checkpoint is not None else "unlabelled='em'"
            raise DataError(
                f"{source.description}: workers read its rows, and {kept_here} needs them here; "
                "pass the paths themselves, or what the frame computes to"
            )
        request = Counting(encoder, wanted, memory_limit, on_error)
        if folds is None:
            rows, stats = source.run(request, threads, progress)
        else:
            by_column = folds_elsewhere(source, folds)
            rows, known = source.run(CountingFolds(request, by_column), threads, progress)
            by_column.know(known.values)
            stats = known.statistics
        stats = named_alike(stats)
        _check_classes(encoder, rows, stats.dropped_rows, classless=classless)
        return stats
    kept = None if checkpoint is None else checkpoint.load()
    if kept is not None and kept.complete:
        return kept.statistics
    threads = resolved_threads(threads)
    encoder.expect(source.n_rows, _tables_of_whole(encoder, wanted))
    budget = Budget(memory_limit, threads + 1, wanted, besides)
    apart = checkpoint is None and folds is None and on_error == "stop"
    runs = _runs(source, encoder, budget, threads, memory_limit, apart=apart)
    crossing = None if folds is None else Crossing(folds)
    totals: list[tuple[Encoder, GrowingStatistics]] = []
    counted = None
    for part, share in runs:
        budget.besides = besides + share.charged + sum(total.nbytes for _, total in totals)
        budget.copies, budget.missing = share.threads + 1, None
        logger.debug(
            "plan: count %s of %d columns of %s on %d threads, reading takes about %s",
            *(
                ", ".join(wanted).replace("_", " "),
                len(part.features),
                source.description,
                share.threads,
            ),
            size(share.held),
        )
        if totals:  # what other columns were decoded to is no use any more
            release()
        before, counted = (
            counted,
            _scanned(
                *(share, part, budget),
                progress=progress,
                unlabelled=unlabelled,
                on_error=on_error,
                checkpoint=checkpoint,
                kept=kept,
                crossing=crossing,
            ),
        )
        if before is not None and before[1:] != counted[1:]:
            raise DataError(f"{source.description} changed while it was read; count again")
        totals.append((part, counted.parts))
    assert counted is not None
    _check_classes(encoder, counted.rows, counted.dropped, classless=classless)
    result = _finished(encoder, totals, counted.dropped, counted.provenance, crossing)
    files = (file for file in source.ledger() if file.path not in counted.lost)
    provenance = (*result.provenance, *source.left_out())
    result = replace(result, ledger=Ledger(files), provenance=provenance)
    for file in result.ledger if logger.isEnabledFor(logging.DEBUG) else ():
        logger.debug("read %s, %s", file.path, size(file.size))
    if checkpoint is not None:
        checkpoint.save(Progressed(0, counted.rows, result, complete=True))
    return result


def _check_classes(encoder: Encoder, rows: int, dropped: int, *, classless: bool) -> None:
    if rows and dropped == rows and not classless:
        raise DataError(
            f"column {encoder.template.target!r} is null in all {rows} rows: there is no "
            "class to learn; choose another target or fill it in"
        )


class OfStatistics(ScanRequest[Statistics]):
    """A request whose answer is statistics."""

    def add(self, a: Statistics, b: Statistics) -> Statistics:
        """Return the statistics of both."""
        return a + b

    def to_bytes(self, value: Statistics) -> bytes:
        """Return the bytes of statistics."""
        return value.to_bytes()

    def from_bytes(self, data: bytes) -> Statistics:
        """Return the statistics whose bytes these are."""
        return Statistics.from_bytes(data)


@dataclass(frozen=True)
class Counting(OfStatistics):
    """Statistics of rows; arguments as those of `scan`, with an encoder that has met no rows.

    A column that is counted both ways has a name for either: see `named_apart`.
    """

    encoder: Encoder
    wanted: Wanted
    memory_limit: int | None = None
    on_error: str = "stop"

    def count(
        self, rows: Source, threads: int | None, folds: Folds | None = None
    ) -> Partial[Statistics]:
        """Return the statistics of rows, sorted like those of all; those of their folds, too."""
        done: list[int] = []
        found = scan(
            rows,
            copy.deepcopy(self.encoder),
            self.wanted,
            threads=threads,
            memory_limit=self.memory_limit,
            progress=done.append,
            on_error=self.on_error,
            classless=True,
            folds=folds,
        )
        return Partial(sum(done), named_apart(found))

    def zero(self) -> Statistics:
        """Return the statistics of no rows."""
        encoder = copy.deepcopy(self.encoder)
        parts = GrowingStatistics(self.wanted, weighted=encoder.weight is not None)
        return named_apart(_finished(encoder, [(encoder, parts)], 0, []))


class CountedFolds(NamedTuple):
    """Statistics with those of their folds, and the value of the column that each fold is of."""

    statistics: Statistics
    values: pa.Array


@dataclass(frozen=True)
class CountingFolds(ScanRequest[CountedFolds]):
    """Statistics of rows, and of their folds by a column; shares may have folds of their own."""

    counting: Counting
    folds: FoldsByColumn

    def count(self, rows: Source, threads: int | None) -> Partial[CountedFolds]:
        """Return the statistics of rows and of their folds."""
        folds = copy.deepcopy(self.folds)
        n_rows, found = self.counting.count(rows, threads, folds)
        return Partial(n_rows, CountedFolds(found, folds.ordered()))

    def zero(self) -> CountedFolds:
        """Return the statistics of no rows, without folds."""
        return CountedFolds(self.counting.zero(), self.folds.ordered()[:0])

    def add(self, a: CountedFolds, b: CountedFolds) -> CountedFolds:
        """Return the statistics of both, with the folds of both."""
        folds = copy.deepcopy(self.folds)
        for part in (a, b):
            folds.know(part.values)
        together = [with_folds_of(*part, folds) for part in (a, b)]
        return CountedFolds(together[0] + together[1], folds.ordered())

    def to_bytes(self, value: CountedFolds) -> bytes:
        """Return the bytes of statistics and values."""
        header, arrays = value.statistics.state()
        return files.to_bytes({"kind": "folds", **header}, {**arrays, "fold_values": value.values})

    def from_bytes(self, data: bytes) -> CountedFolds:
        """Return the statistics and values whose bytes these are."""
        origin = f"{len(data):,} bytes"
        header, arrays = files.from_bytes(data, origin)
        values = arrays.pop("fold_values")
        return CountedFolds(Statistics.from_state(header, arrays, origin), values)


def folds_elsewhere(source: Counter, folds: Folds) -> FoldsByColumn:
    """Return folds of rows that workers read; DataError where the place of a row tells its fold."""
    if isinstance(folds, FoldsByColumn):
        return folds
    raise DataError(
        f"{source.description}: workers read its rows, which have no numbers, so folds by place "
        "cannot be told: name a column of folds, or pass the paths themselves"
    )


def _tables_of_whole(encoder: Encoder, wanted: Wanted) -> int | None:
    """Return to how many tables each row adds; None if anything but whole numbers is added."""
    weighted, m = encoder.weight is not None, len(encoder.features)
    kinds = [(kind_of(name), given) for name, given in wanted.items()]
    kinds = [each for each in kinds if not each[0].vacuous(m - len(encoder.books))]
    if not all(kind.repeatable and kind.order_free(weighted) for kind, _ in kinds):
        return None
    return sum(kind.tables(m, **given) for kind, given in kinds)


def _runs(
    source: Source,
    encoder: Encoder,
    budget: Budget,
    threads: int,
    limit: int | None,
    *,
    apart: bool,
) -> list[tuple[Encoder, ReadShare]]:
    """Return how all columns are read at once or, where they do not fit, some after others.

    That can be where each column is counted for itself; `apart` is whether nothing else is against
    it. Raises MemoryLimitError where what the schema and the footers tell does not fit.
    """
    width, m = encoded_width(encoder), len(encoder.features)
    counts = budget.besides + budget.foreseen(encoder)
    whole, n = ReadShare.within(source, threads, limit, counts, width), 1
    beside = [None if encoder.target is None else encoder.target.name, encoder.weight]
    apart = apart and all(kind_of(name).by_column for name in budget.wanted)
    apart = apart and source.rereadable and not encoder.keep_unlabelled
    while apart and not whole.fits and (n := 2 * n) <= m:
        parts = [encoder.part(m * k // n, m * (k + 1) // n) for k in range(n)]
        found = []
        for part in parts:
            names = {*part.columns, *beside}
            some = source.only([name for name in source.schema.names if name in names])
            taken = ReadShare.within(some, threads, limit, counts, encoded_width(part))
            # Of text, fewer columns take no less.
            apart = taken.held < whole.held
            if not (apart and taken.fits):
                break
            found.append((part, taken))
        else:
            return found
    whole.check(limit)
    return [(encoder, whole)]


def _scanned(
    share: ReadShare,
    encoder: Encoder,
    budget: Budget,
    *,
    progress: Progress | None,
    unlabelled: list[pa.RecordBatch] | None,
    on_error: str,
    checkpoint: KeptCounts | None,
    kept: Progressed | None,
    crossing: Crossing | None,
) -> _Total:
    """Count what is read once."""
    source, threads, wanted = share.source, share.threads, budget.wanted
    weighted = encoder.weight is not None
    # Exact counts do not depend on the order of addition, so workers pick up whichever set is
    # idle; floating-point sums, and all of them where a segment may have to be left out or a
    # prefix kept, are made afresh per segment and folded in segment order.
    whole = on_error == "skip" or checkpoint is not None
    n_numeric = len(encoder.features) - len(encoder.books)
    vacuous = {n for n in wanted if kind_of(n).vacuous(n_numeric)}
    shared = {
        n: given
        for n, given in wanted.items()
        if (kind_of(n).order_free(weighted) or n in vacuous) and not whole
    }
    own = {n: given for n, given in wanted.items() if n not in shared}
    new = partial(GrowingStatistics, shared, weighted=weighted)
    idle: list[GrowingStatistics] = []
    repeated = RepeatedCounts()
    repeatable = crossing is None and all(
        n in vacuous or (kind_of(n).repeatable and kind_of(n).order_free(weighted)) for n in wanted
    )
    block_rows = BLOCK_ROWS
    behind, merged = None, False
    at_once = 0  # rows that all threads work on together
    if repeatable:
        # Nothing is summed by segments, but a checkpoint must find the first ones again.
        if checkpoint is not None and on_error == "stop":
            behind = source.behind(0 if kept is None else kept.rows)
        merged = behind is not None or not whole
        if merged:
            source = (behind or source).merging()
        block_rows = rows_at_once(source, threads)
        if not whole:
            at_once = rows_on_all(source, encoder, threads, block_rows)
    elif crossing is None:
        block_rows = rows_at_once(source, threads, _blocks_of_sums(source, encoder, own, budget))

    # Blocks are worked on one by one, in their order: numbers are decoded as late.
    late: list[str] = []
    if not repeatable and crossing is None and not encoder.keep_unlabelled:
        late = encoder.plain_numbers()
    # Whether what is counted of codes and what is summed of numbers need nothing of each other.
    twofold = bool(late and shared) and not weighted and _come_apart({*shared} - vacuous, own)

    def count(segment: Segment, threads: int) -> _Counted:
        try:
            alike, found = 0, None
            if twofold and segment.parts:
                alike, found = repeated.add(segment, 0, apart=True)
            if found is not None:
                return _Counted([found], segment.parts[0].n_rows, origin=segment.origin)
            with segment.apart(late) as (batches, numbers):
                return counted_in(segment, batches, numbers, threads, counted=alike > 0)
        except DataError as error:
            if on_error != "skip":
                raise
            return _Counted(skipped=_skipped(error, segment, source), origin=segment.origin)
        finally:
            repeated.let_go()

    def counted_in(
        segment: Segment,
        batches: Iterator[Rows],
        numbers: LateNumbers | None,
        threads: int,
        *,
        counted: bool,
    ) -> _Counted:
        """Count a segment; only sums are left to make where its codes were counted."""
        sums = _Sums(own, segment, weighted=weighted)
        rows = dropped = 0
        left: list[pa.RecordBatch] = []

        def read() -> Iterator[tuple[int, Rows]]:
            """Yield rows that are still to be counted, each behind those that stand before them."""
            nonlocal rows
            if not (merged and segment.parts):
                for block in batches:
                    yield rows, block
                return
            first = 0
            while first < len(segment.parts):
                found, _ = repeated.add(segment, first)
                rows += sum(part.n_rows for part in segment.parts[first : first + found])
                first += found
                if not found:
                    at = segment.parts[first].before
                    for block in segment.parts[first].read():
                        yield at, block
                        at += block.num_rows
                    first += 1

        for at, block in read():
            place = segment.place(at)
            late_numbers = None if numbers is None else NumbersApart(numbers, at, place)
            known = encoder.look_up(block, place, late_numbers)
            dropped += known.dropped()
            if known.unlabelled is not None:
                left.append(known.unlabelled)
            held = [] if counted or not shared else [repeated.counts() or _taken(idle) or new()]
            shape = capacity(encoder)
            for part in [*sums.parts[-1:], *held]:
                shape = part.room(shape)
            budget.check(encoder, shape, known)
            crossed = None
            if crossing is not None:
                crossed = partial(crossing.crossed, segment, at, block, known.kept)
            own_of: OwnOf | None = partial(sums.at, at, known)
            codes, kept, summed = known, False, None
            apart = bool(twofold and held and known.n_rows) and known.numbers_apart() is not None
            try:
                if apart:
                    codes = known.without_numbers()
                fixed = (apart or (repeatable and not own)) and codes.is_lasting(block)
                if apart:
                    tried = codes if fixed and repeated.hopeful else None
                    summed = sums.of_numbers(known, tried, at, shape, budget)
                    if tried is not None and summed is None:
                        repeated.in_vain()
                    own_of, fixed = None, summed is not None
                lasting = block if fixed else None
                calls = over_blocks(
                    codes,
                    partial(_update, budget, own_of, held, shape, crossed),
                    sizes=shape.sizes,
                    repeatable=repeatable or apart,
                    threads=threads,
                    last=lasting is None,
                )
                codes.check()
                if held:
                    kept = repeated.keep(lasting, codes, calls, held[0], summed)
            finally:
                if not kept:
                    idle.extend(held)
            rows += block.num_rows
        return _Counted(sums.parts, rows, dropped, tuple(left), origin=segment.origin)

    total = GrowingStatistics(own, weighted=weighted)
    done = rows = dropped = 0
    read: set[str] = set()
    lost: set[str] = set()
    provenance = [*([] if source.versions else [source.description]), *source.notes]
    if kept is not None:
        done, rows, start, _ = kept
        dropped, provenance = start.dropped_rows, list(start.provenance)
        encoder.know(start.schema)
        total.held = dict(start.aligned(encoder.schema()).parts)
        if progress is not None:
            progress(rows)

    def keep() -> None:
        assert checkpoint is not None
        so_far = _finished(encoder, [(encoder, total)], dropped, provenance)
        checkpoint.save(Progressed(done, rows, so_far))

    def segments(n_rows: int) -> Iterator[Segment]:
        return islice(source.segments(n_rows), done if behind is None else 0, None)

    # Segments of such sources hold no rows, and of what is counted nothing waits.
    more = threads if source.many_blocks and not own and not encoder.keep_unlabelled else 1
    between = True  # two segments
    try:
        for counted in share.on_all(count, segments, block_rows, at_once, more):
            between = False
            for parts in counted.parts:
                total.add(parts)
            budget.check_held(total)
            done += 1
            rows += counted.rows
            dropped += counted.dropped
            if counted.skipped is not None:
                logger.warning("left out: %s", counted.skipped)
                provenance.append(f"left out: {counted.skipped}")
            (read if counted.skipped is None else lost).add(counted.origin)
            if unlabelled is not None:
                unlabelled += counted.unlabelled
            between = True
            if progress is not None:
                progress(counted.rows)
            if checkpoint is not None and checkpoint.due():
                keep()
    except KeyboardInterrupt:  # of Ctrl-C, and on the command line of SIGTERM
        if checkpoint is not None and between and done:
            keep()
        raise
    for parts in [*idle, *repeated.all_counts()]:
        total.add(parts)
        budget.check_held(total)
    total.wanted = wanted
    return _Total(total, rows, dropped, provenance, lost - read)


def _come_apart(counts: Iterable[str], sums: Iterable[str]) -> bool:
    """Return whether counts of codes and sums of numbers can be made by kernels alone."""
    return all(kind_of(name).repeatable for name in counts) and all(
        kind_of(name).sums_repeatable for name in sums
    )


def _skipped(error: DataError, segment: Segment, source: Source) -> str:
    """Return what is said of a segment that is left out: the error, and the rows lost with it."""
    n_rows = segment.n_rows
    if n_rows is None and isinstance(error, FileFormatError):  # nor can it be
        return str(error)
    if n_rows is None:  # so far it was not read to its end
        try:
            n_rows = sum(rows.num_rows for rows in segment.batches())
        except DataError:
            return str(error)
    source.check_lost(segment.origin, n_rows, error)
    return f"{error} ({n_rows:,} row{'s' * (n_rows != 1)} left out with it)"


class _Sums:
    """Sets of statistics whose bits depend on the order of rows, one for each stretch of a segment.

    parts  those of the stretches that have rows
    """

    def __init__(self, wanted: Wanted, segment: Segment, *, weighted: bool) -> None:
        self.parts: list[GrowingStatistics] = []
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
            alone = partial(_update, budget, partial(self.at, done, rows), (), shape, None)
            over_blocks(rows.without_codes(), alone)
            return None
        self.parts[-1] = found
        budget.check_held(found)
        return repeated


def _update(
    budget: Budget,
    own_of: OwnOf | None,
    held: Sequence[GrowingStatistics],
    shape: Shape,
    crossed: Callable[[Batch, Shape], tuple[Batch, Shape]] | None,
    batch: Batch,
    first: int,
) -> None:
    """Add a block of rows to sets of statistics, its classes crossed with folds if it is so."""
    if crossed is not None:
        batch, shape = crossed(batch, shape)
    own = [] if own_of is None else [own_of(first)]
    for part in [*own, *held]:
        part.update(batch, shape)
        budget.check_held(part)


def _blocks_of_sums(source: Source, encoder: Encoder, own: Wanted, budget: Budget) -> int:
    """Return how many rows may be looked up at once where sums of each stretch wait to be added."""
    if own and source.in_memory:
        if budget.given:
            return BLOCK_ROWS
        shape = capacity(encoder)
        need = total_of(needs_of(own, Room(shape, shape.sizes, 1)))
        return BLOCK_ROWS * min(MOST_BLOCKS, HELD_SUMS // max(need, 1))
    return BLOCK_ROWS * MOST_BLOCKS


def _taken(idle: list[GrowingStatistics]) -> GrowingStatistics | None:
    try:
        return idle.pop()
    except IndexError:  # another worker took the last one
        return None


def _finished(
    encoder: Encoder,
    totals: Sequence[tuple[Encoder, GrowingStatistics]],
    dropped: int,
    provenance: list[str],
    crossing: Crossing | None = None,
) -> Statistics:
    """Leave out what never occurred, sort what did, and lay the cells out accordingly."""
    # In this order: workers that are ahead may add values between the two lines, never remove any.
    grown = encoder.schema()
    room = capacity(encoder) if crossing is None else crossing.room(capacity(encoder))
    parts: dict[str, Statistic] = {}
    for name in totals[0][1].wanted:
        if len(totals) == 1:
            parts[name] = totals[0][1].of(name, room)
            continue
        rooms = [capacity(part)._replace(n_classes=room.n_classes) for part, _ in totals]
        held = [total.of(name, own) for (_, total), own in zip(totals, rooms, strict=True)]
        parts[name] = type(held[0]).of_columns(held, room)
    values = parts["values"]
    assert isinstance(values, ValueCounts)
    seen = values.seen
    marks = [
        seen[first : first + feature.size]
        for first, feature in zip(values.offsets, grown.categorical, strict=False)
    ]
    rows = values.class_counts
    if crossing is not None:
        rows = crossing.counts_of_classes(rows, len(grown.classes))
    schema, to = grown.in_order(marks, rows[: len(grown.classes)] != 0, sorted_values)
    if crossing is None:
        moved: dict[str, Any] = {"parts": {name: part.take(to) for name, part in parts.items()}}
    else:
        moved = crossing.split(schema, to, parts)
    return Statistics(schema, dropped_rows=dropped, provenance=tuple(provenance), **moved)
