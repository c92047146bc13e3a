"""One scan: a source through an encoder into statistics, on a thread pool of its own."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from fastbayes.core import files
from fastbayes.core.allocators import release
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.core.schema import Shape
from fastbayes.core.text_tables import size
from fastbayes.core.threads import resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import Folds, FoldsByColumn
from fastbayes.data.order import sorted_values
from fastbayes.data.segments import Segment, Source
from fastbayes.scan.budget import (
    SLACK,
    Budget,
    ReadShare,
    capacity,
    check_limit,
    default_limit,
    encoded_width,
    needs_of,
    roomy,
    total_of,
)
from fastbayes.scan.checkpoint import KeptCounts, Progressed
from fastbayes.scan.dual_encoding import named_alike, named_apart
from fastbayes.scan.fold_statistics import Crossing, with_folds_of
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest, stage
from fastbayes.scan.row_blocks import rows_at_once, rows_on_all
from fastbayes.scan.segment_counts import SegmentCounts
from fastbayes.statistics.base import Room, Statistic
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.parts import GrowingStatistics, Wanted
from fastbayes.statistics.registry import kind_of, wanting
from fastbayes.statistics.value_counts import ValueCounts

# Blocks that are looked up at once where Python goes over them: more would save little.
MOST_BLOCKS = 16
# Bytes of sums, by what is known before the first row, that each thread may hold until they are
# added in order.
HELD_SUMS = 1 << 20

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
    names: Sequence[str],
    threads: int | None,
    memory_limit: int | None,
    unbound: Collection[str] = (),
) -> list[ReadShare]:
    """Return how rows are going to be read to be counted, all columns or some after others.

    Counts that are `unbound` are not refused: some may be made after others, or rows tell their
    sizes.

    Raises
    ------
    MemoryLimitError
        When the schema tells that the counts exceed the limit, or reading; the message names the
        column.
    """
    check_limit(memory_limit)
    bound: Wanted = {name: {} for name in names if name not in unbound}
    budget = Budget(memory_limit, resolved_threads(threads), bound)
    cut, apart = bool(wanting(names, "bins")), all(kind_of(name).by_column for name in names)
    runs = _runs(source, encoder, budget, memory_limit, apart=apart, cut=cut)
    return [share for _, share in runs]


def left_for_pairs(
    memory_limit: int | None, threads: int | None, shape: Shape, besides: int = 0
) -> int:
    """Return the bytes that one set of counts of pairs may take besides those of values.

    Each thread has a set, of half of the threads, or half of these, where the largest pair would
    not fit otherwise. `besides` are the bytes that reading takes.
    """
    limit = (default_limit() if memory_limit is None else int(memory_limit)) - besides
    larger = shape._replace(sizes=roomy(shape.sizes))
    largest = 8 * shape.n_classes * math.prod(sorted((shape.sizes + 1).tolist())[-2:])
    threads = resolved_threads(threads)
    while True:
        copies = threads + 1  # the result is one more
        needs = needs_of({"values": {}, "moments": {}}, Room(larger, larger.sizes, copies))
        left = max(limit - total_of(needs), 0) // copies
        if left >= largest or threads == 1:
            return left
        threads //= 2


class _Total(NamedTuple):
    """What one reading of the rows gave; `read` are the files of which some were; None: all."""

    parts: GrowingStatistics
    rows: int
    dropped: int
    provenance: list[str]
    read: set[str] | None


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
    fewer: bool = True,
) -> Statistics:
    """Count a source once and return its statistics.

    Where counts turn out not to fit for each thread, the rows are counted anew on fewer threads.

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
    fewer
        Whether that is done: else the caller has a better way for what does not fit for each.

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
        by_column = None if folds is None else folds_elsewhere(source, folds)
        request = Counting(encoder, wanted, memory_limit, on_error, by_column)
        rows, (stats, values) = source.run(request, threads, progress)
        if by_column is not None:
            by_column.know(values)
        stats = named_alike(stats)
        _check_classes(encoder, rows, stats.dropped_rows, classless=classless)
        return stats
    kept = None if checkpoint is None else checkpoint.load()
    if kept is not None and kept.complete:
        return kept.statistics
    encoder.expect(source.n_rows, _tables_of_whole(encoder, wanted))
    # When folds are told apart, their counts stand beside those of all, and sums of them, too.
    least = 2 if folds is None else 3
    apart = checkpoint is None and folds is None and on_error == "stop"
    threads = resolved_threads(threads)
    while True:
        budget = Budget(memory_limit, threads, wanted, besides, least)
        runs = _runs(source, encoder, budget, memory_limit, apart=apart, fewer=fewer)
        crossing = None if folds is None else Crossing(folds)
        try:
            counted, totals = _run_by_run(
                *(source, runs, budget),
                progress=progress,
                unlabelled=unlabelled,
                on_error=on_error,
                checkpoint=checkpoint,
                kept=kept,
                crossing=crossing,
            )
            break
        except MemoryLimitError as error:
            if not (fewer and budget.fewer and source.rereadable):
                raise
            # An error that a log keeps would keep these counts.
            logger.info("%s; the rows are counted anew with threads=%d", str(error), budget.fewer)
        release()
        stage(progress, "counting anew")
        threads = budget.fewer
        if unlabelled is not None:
            unlabelled.clear()
        if checkpoint is not None:
            kept = checkpoint.load()
    _check_classes(encoder, counted.rows, counted.dropped, classless=classless)
    result = _finished(encoder, totals, counted.dropped, counted.provenance, crossing)
    provenance = (*result.provenance, *source.left_out())
    result = replace(result, ledger=source.ledger(counted.read), provenance=provenance)
    for file in result.ledger if logger.isEnabledFor(logging.DEBUG) else ():
        logger.debug("read %s, %s", file.path, size(file.size))
    if checkpoint is not None:
        checkpoint.save(Progressed(0, counted.rows, result, complete=True))
    return result


def _run_by_run(
    source: Source,
    runs: Sequence[tuple[Encoder, ReadShare]],
    budget: Budget,
    **how: Any,
) -> tuple[_Total, list[tuple[Encoder, GrowingStatistics]]]:
    """Return what the last run gave, and the counts of each; arguments as of `_scanned`."""
    totals: list[tuple[Encoder, GrowingStatistics]] = []
    counted, besides = None, budget.besides
    for part, share in runs:
        budget.begin(share, besides + sum(total.nbytes for _, total in totals))
        logger.debug(
            "plan: count %s of %d columns of %s on %d threads, reading takes about %s",
            *(
                ", ".join(budget.wanted).replace("_", " "),
                len(part.features),
                source.description,
                share.threads,
            ),
            size(share.held),
        )
        if totals:  # what other columns were decoded to is no use any more
            release()
        before, counted = counted, _scanned(share, part, budget, **how)
        if before is not None and before[1:] != counted[1:]:
            raise DataError(f"{source.description} changed while it was read; count again")
        totals.append((part, counted.parts))
    assert counted is not None
    return counted, totals


def _check_classes(encoder: Encoder, rows: int, dropped: float, *, classless: bool) -> None:
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


class Counted(NamedTuple):
    """Statistics, and where their folds are by a column, the value that each fold is of."""

    statistics: Statistics
    folds: pa.Array | None


@dataclass(frozen=True)
class Counting(ScanRequest[Counted]):
    """Statistics of rows; arguments as those of `scan`, with an encoder that has met no rows.

    A column that is counted both ways has a name for either: see `named_apart`. Shares may have
    folds of their own.
    """

    encoder: Encoder
    wanted: Wanted
    memory_limit: int | None = None
    on_error: str = "stop"
    folds: FoldsByColumn | None = None

    def count(self, rows: Source, threads: int | None) -> Partial[Counted]:
        """Return the statistics of rows, sorted like those of all; those of their folds, too."""
        done: list[int] = []
        folds = copy.deepcopy(self.folds)
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
        return Partial(sum(done), Counted(named_apart(found), folds and folds.ordered()))

    def zero(self) -> Counted:
        """Return the statistics of no rows, without folds."""
        encoder = copy.deepcopy(self.encoder)
        parts = GrowingStatistics(self.wanted, weighted=encoder.weight is not None)
        stats = named_apart(_finished(encoder, [(encoder, parts)], 0, []))
        return Counted(stats, self.folds and self.folds.ordered()[:0])

    def add(self, a: Counted, b: Counted) -> Counted:
        """Return the statistics of both, with the folds of both."""
        if self.folds is None:
            return Counted(a.statistics + b.statistics, None)
        folds = copy.deepcopy(self.folds)
        for part in (a, b):
            folds.know(part.folds)
        together = [with_folds_of(*part, folds) for part in (a, b)]
        return Counted(together[0] + together[1], folds.ordered())

    def to_bytes(self, value: Counted) -> bytes:
        """Return the bytes of statistics and values."""
        header, arrays = value.statistics.state()
        values = {} if value.folds is None else {"fold_values": value.folds}
        return files.to_bytes({"kind": "counted", **header}, {**arrays, **values})

    def from_bytes(self, data: bytes) -> Counted:
        """Return the statistics and values whose bytes these are."""
        origin = f"{len(data):,} bytes"
        header, arrays = files.from_bytes(data, origin)
        values = arrays.pop("fold_values", None)
        return Counted(Statistics.from_state(header, arrays, origin), values)


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
    limit: int | None,
    *,
    apart: bool,
    cut: bool = False,
    fewer: bool = True,
) -> list[tuple[Encoder, ReadShare]]:
    """Return how all columns are read at once or, where they do not fit, some after others.

    Raises MemoryLimitError where what the schema and the footers tell does not fit.

    Parameters
    ----------
    source, encoder, budget, limit
        Of the scan.
    apart
        Whether nothing is against the latter, which can be where each column is counted for itself.
    cut
        Whether numbers are yet to be cut into bins.
    fewer
        Whether fewer threads than the budget's may count, if these do not fit.
    """
    while True:
        try:
            return _runs_on_all(source, encoder, budget, limit, apart=apart, cut=cut)
        except MemoryLimitError:
            if not fewer or budget.threads == 1:
                raise
        budget.threads //= 2


def _runs_on_all(
    source: Source,
    encoder: Encoder,
    budget: Budget,
    limit: int | None,
    *,
    apart: bool,
    cut: bool,
) -> list[tuple[Encoder, ReadShare]]:
    """Return the runs on all threads of the budget, so far as reading allows; see `_runs`."""
    m, threads = len(encoder.features), budget.threads
    width = encoded_width(encoder) + cut * (m - len(encoder.books))
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
    source, threads = share.source, share.threads
    skip = on_error == "skip"
    counts = SegmentCounts(
        source, encoder, budget, crossing, one_by_one=skip or checkpoint is not None, skip=skip
    )
    block_rows, behind = BLOCK_ROWS, None
    at_once = 0  # rows that all threads work on together
    if counts.repeatable:
        # Nothing is summed by segments, but a checkpoint must find the first ones again.
        if checkpoint is not None and not skip:
            behind = source.behind(0 if kept is None else kept.rows)
            counts.merged = behind is not None
        if counts.merged:
            source = (behind or source).merging()
        block_rows = rows_at_once(source, threads)
        if counts.shared:
            at_once = rows_on_all(source, encoder, threads, block_rows)
    elif crossing is None:
        most = _blocks_of_sums(source, encoder, counts.own, budget)
        block_rows = rows_at_once(source, threads, most)

    total = GrowingStatistics(counts.own, weighted=encoder.weight is not None)
    done = rows = dropped = 0
    read: set[str] = set()
    provenance = [*([] if source.versions else [source.description]), *source.notes]
    if kept is not None:
        done, rows, start, _ = kept
        dropped, provenance = int(start.dropped_rows), list(start.provenance)
        encoder.know(start.schema)
        total.held = dict(start.aligned(encoder.schema()).parts)
        if progress is not None:
            progress(rows)

    def keep() -> None:
        assert checkpoint is not None
        so_far = _finished(encoder, [(encoder, total)], dropped, provenance)
        checkpoint.save(Progressed(done, rows, so_far))

    def segments(n_rows: int) -> Iterator[Segment]:
        found = source.segments(n_rows)
        # Which of these were left out nobody wrote down.
        read.update(segment.origin for segment in islice(found, done if behind is None else 0))
        return found

    # Segments of such sources hold no rows, and of what is counted nothing waits.
    more = threads if source.many_blocks and not counts.own and not encoder.keep_unlabelled else 1
    between = True  # two segments
    try:
        for counted in share.on_all(counts.count, segments, block_rows, at_once, more):
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
            else:
                read.add(counted.origin)
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
    for parts in counts.sets():
        total.add(parts)
        budget.check_held(total)
    total.wanted = budget.wanted
    return _Total(total, rows, dropped, provenance, read if skip else None)


def _blocks_of_sums(source: Source, encoder: Encoder, own: Wanted, budget: Budget) -> int:
    """Return how many rows may be looked up at once where sums of each stretch wait to be added."""
    if own and source.in_memory:
        if budget.given:
            return BLOCK_ROWS
        shape = capacity(encoder)
        need = total_of(needs_of(own, Room(shape, shape.sizes, 1)))
        return BLOCK_ROWS * min(MOST_BLOCKS, HELD_SUMS // max(need, 1))
    return BLOCK_ROWS * MOST_BLOCKS


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
