"""The scan that learns where numeric columns are cut, before anything is counted."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.batch import BLOCK_ROWS, taken
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.schema import Feature
from fastbayes.core.threads import resolved_threads
from fastbayes.data.columns import Codebook
from fastbayes.data.discretize import (
    FEW_ROWS,
    GREATEST_WEIGHT,
    CutLearner,
    Method,
    cuts_of,
    methods,
)
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import Folds
from fastbayes.data.segments import Segment, Source
from fastbayes.data.store_errors import NotSkippedError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.sketch import bytes_needed
from fastbayes.scan.budget import ReadShare, check_limit
from fastbayes.scan.checkpoint import CutsProgressed, KeptCuts
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest
from fastbayes.scan.row_blocks import encoded_blocks, threads_for


def numeric_cuts(
    source: Source,
    encoder: Encoder,
    discretize: Any = "mdl",
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    on_error: str = "stop",
    progress: Progress | None = None,
    checkpoint: KeptCuts | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return the cut points of numeric columns, from one scan where they must be learned.

    Parameters
    ----------
    source
        Where the rows come from; it is scanned only if there is something to learn.
    encoder
        An encoder that learns, made without `cuts`: it says which columns are numeric, which is
        the target and which the weight. It is left as it was. Hand the result to
        `Encoder.learning(..., cuts=...)` to count.
    discretize
        "mdl" (Fayyad and Irani), "quantile", "width", ("quantile", n), ("width", n), or by
        column one of these or a list of cut points; columns that are not named: "mdl".
    threads
        Worker threads; they never change a bit of the result.
    memory_limit
        Bytes that reading and the sketches of the columns may take: where there is no room for all
        of them at once, the source is scanned once for every few. It never changes a result.
    on_error
        "stop", or "skip" to leave out segments that cannot be read.
    progress
        Called with the number of rows done since the last call, in every scan.
    checkpoint
        Keeps what is learned; what it has is not learned again. Not where workers read.

    Returns
    -------
    dict
        By column name, ascending cut points of every numeric column and of those that
        `discretize` gives points for; an empty array for a column that is one bin. Rows without
        a class or of weight 0 took no part.

    Raises
    ------
    SchemaError
        When `discretize` names a column that is not numeric, cut points are not ascending, there
        is no class for "mdl", or the source can be read only once.
    DataError
        When the data cannot be read, or a row weighs more than `GREATEST_WEIGHT`.
    MemoryLimitError
        When the limit has no room for the sketch of one column.

    Notes
    -----
    Up to `FEW_ROWS` rows are looked at exactly, and so are any columns of few different values.
    Of others ranges of values are told apart, thousands of them, by least and greatest value:
    see `ValueSketch`.
    """
    how: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit, "progress": progress}
    how |= {"on_error": on_error, "checkpoint": checkpoint}
    return cuts_by_rules(source, encoder, [discretize], **how)[0][0]


class Rules(NamedTuple):
    """How columns are cut in several ways at once.

    asked    by each rule, by column: a method, or cut points
    learned  by column of which some rule learns cut points, what tells enough for all methods
    """

    asked: list[dict[str, Any]]
    learned: dict[str, Method]

    @classmethod
    def of(cls, source: Source, encoder: Encoder, discretize: Iterable[Any]) -> Rules:
        """Return rules, each given as the `discretize` of `numeric_cuts`."""
        rules = cls([_asked(source, encoder, rule)[0] for rule in discretize], {})
        for asked in rules.asked:
            for name, how in asked.items():
                known = rules.learned.get(name)
                # Of equal widths only the extremes matter, and all sketches have them.
                if isinstance(how, Method) and (known is None or known.kind == "width"):
                    rules.learned[name] = how
        return rules

    def read(
        self,
        learners: Sequence[CutLearner],
        classes: NDArray[np.intp],
        jobs: Sequence[tuple[int, str]],
    ) -> list[list[Any]]:
        """Return the cut points of columns by each rule, None by one that does not have it.

        `jobs` are the places of the learners that they are read off, and the names of the columns.
        """
        hows = [[asked.get(name) for asked in self.asked] for _, name in jobs]
        learned = [[how for how in some if isinstance(how, Method)] for some in hows]
        sketches = [learners[place].sketches[name] for place, name in jobs]
        found = cuts_of(sketches, [name for _, name in jobs], learned, classes)
        return [
            [next(points) if isinstance(how, Method) else how for how in some]
            for some, points in zip(hows, map(iter, found), strict=True)
        ]


def cuts_by_rules(
    source: Source,
    encoder: Encoder,
    discretize: Sequence[Any],
    folds: Folds | None = None,
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    on_error: str = "stop",
    checkpoint: KeptCuts | None = None,
) -> list[list[dict[str, NDArray[np.float64]]]]:
    """Return the cut points by several rules, without each fold perhaps, all from one scan.

    Parameters
    ----------
    source, encoder, threads, memory_limit, progress, on_error, checkpoint
        As in `numeric_cuts`; a checkpoint of one rule, without folds.
    discretize
        Rules, each as in `numeric_cuts`.
    folds
        Which fold a row belongs to; the source has been scanned by it, so that all are known.

    Returns
    -------
    list of list of dict
        By rule, and by fold in its final order those that the rows of all other folds give, or
        else one of all rows; and by column as `numeric_cuts` has them.
    """
    rules = Rules.of(source, encoder, discretize)
    n_folds = 1 if folds is None else len(folds.names()[0])
    cuts: list[list[dict[str, Any]]] = [
        [dict(asked) for _ in range(n_folds)] for asked in rules.asked
    ]
    given_threads, threads = threads, resolved_threads(threads)
    kept = None if checkpoint is None else checkpoint.load()
    known = {} if kept is None else kept.cuts
    # There are sketches of each fold, and of those before and behind it.
    for some, share in _groups(
        *(source, encoder, rules.learned, threads, memory_limit),
        whole=on_error == "skip",  # the same segments must break off as when they are counted
        beside=None if folds is None else folds.column,
        copies=1 if folds is None else 3 * n_folds,
    ):
        if some.keys() <= known.keys():
            cuts[0][0] |= {name: np.array(known[name], np.float64) for name in some}
            continue
        own, keeping = _encoder(encoder, some), None
        if checkpoint is not None:
            keeping = KeepingCuts(checkpoint, known, list(some), own.target, kept)
        request = Cutting(own, some, on_error, folds)
        learners, classes = _sketched(share, request, given_threads, progress, keeping)
        rests = learners if folds is None else _without_each(learners, some)
        jobs = [(fold, name) for fold in range(n_folds) for name in some]
        found = _read(rules, rests, classes, jobs, share)
        for (fold, name), by_rule in zip(jobs, found, strict=True):
            for of_rule, at in zip(cuts, by_rule, strict=True):
                if at is not None:
                    of_rule[fold][name] = at
        if checkpoint is not None:
            known |= {name: cuts[0][0][name].tolist() for name in some}
            checkpoint.save(CutsProgressed(known, [], 0, 0, {}, None))
    return cuts


def _sketched(
    share: ReadShare,
    request: Cutting,
    threads: int | None,
    progress: Progress | None,
    keeping: KeepingCuts | None = None,
) -> tuple[list[CutLearner], NDArray[np.intp]]:
    """Return what rows, here or elsewhere, say of columns, and the order of their classes."""
    if isinstance(share.source, Counter):
        learners, classes = share.source.run(request, threads, progress).value
    else:
        encoder = request.encoder
        how = request.on_error, progress, request.folds, keeping
        learners = _scan(share, encoder, request.learned, *how)
        classes = None if encoder.target is None else encoder.target.values()
    return learners, _order(classes)


def _read(
    rules: Rules,
    learners: Sequence[CutLearner],
    classes: NDArray[np.intp],
    jobs: Sequence[tuple[int, str]],
    share: ReadShare,
) -> Iterator[list[Any]]:
    """Yield the cut points of each job of `Rules.read`, by rule."""
    # Of few rows Python takes longer than kernels: columns are cut together, and threads wait for
    # each other.
    n_rows = math.inf if share.source.n_rows is None else share.source.n_rows
    share = replace(share, threads=threads_for(n_rows * len(jobs), share.threads))
    step = max(1, int(FEW_ROWS // max(n_rows, 1)))
    parts = [jobs[at : at + step] for at in range(0, len(jobs), step)]
    return itertools.chain.from_iterable(
        share.in_order(partial(rules.read, learners, classes), parts)
    )


def learned_columns(source: Source, encoder: Encoder, discretize: Any) -> list[str]:
    """Return the columns whose cut points `numeric_cuts` would learn."""
    return list(_asked(source, encoder, discretize)[1])


def _asked(
    source: Source, encoder: Encoder, discretize: Any
) -> tuple[dict[str, Any], dict[str, Method]]:
    numeric = [feature.name for feature, book in encoder.features if book is None]
    others = {f.name: book for f, book in encoder.features if book is not None}
    loose = [name for name, book in others.items() if isinstance(book, Codebook) and _loose(book)]
    asked = methods(discretize, numeric, list(others), loose)
    learned = {name: how for name, how in asked.items() if isinstance(how, Method)}
    if learned:
        _check(source, encoder, learned)
    return asked, learned


def _order(classes: pa.Array | None) -> NDArray[np.intp]:
    """Return the codes of the classes in their sorted order: threads number them as they come."""
    if classes is None:
        return np.zeros(1, np.intp)
    return pc.array_sort_indices(classes).to_numpy().astype(np.intp)


class CutSketches(NamedTuple):
    """What rows say of columns that are to be cut.

    learners  their values in each fold, of all rows without folds
    classes   the values of the classes, by their codes; None without classes
    """

    learners: list[CutLearner]
    classes: pa.Array | None


@dataclass(frozen=True)
class Cutting(ScanRequest[CutSketches]):
    """What the cut points of columns are learned from.

    Parameters
    ----------
    encoder
        Of these columns alone, that has met no rows.
    learned
        How each of them is cut.
    on_error
        As in `numeric_cuts`.
    folds
        As in `cuts_by_rules`.
    """

    encoder: Encoder
    learned: dict[str, Method]
    on_error: str = "stop"
    folds: Folds | None = None

    def count(self, rows: Source, threads: int | None) -> Partial[CutSketches]:
        """Return what rows say."""
        own, done = copy.deepcopy(self.encoder), [0]
        beside = None if self.folds is None else self.folds.column
        target = None if own.target is None else own.target.name
        names = {*own.columns, own.weight, target, beside}
        if self.on_error == "stop":
            rows = rows.only([name for name in rows.schema.names if name in names])
        share = ReadShare.within(rows, resolved_threads(threads), None)
        learners = _scan(share, own, self.learned, self.on_error, done.append, self.folds)
        classes = None if own.target is None else own.target.values()
        return Partial(sum(done), CutSketches(learners, classes))

    def _begun(self) -> list[CutLearner]:
        n_folds = 1 if self.folds is None else len(self.folds.names()[0])
        return [CutLearner(self.learned) for _ in range(n_folds)]

    def zero(self) -> CutSketches:
        """Return what no rows say."""
        target = self.encoder.target
        return CutSketches(self._begun(), None if target is None else target.values())

    def add(self, a: CutSketches, b: CutSketches) -> CutSketches:
        """Return what the rows of both say, with the classes of both."""
        total, book = self._begun(), copy.deepcopy(self.encoder.target)
        for part in (a, b):
            codes = _codes_of(part.classes, book)
            for mine, theirs in zip(total, part.learners, strict=True):
                mine.take(theirs.arrays(), codes)
        return CutSketches(total, None if book is None else book.values())

    def to_bytes(self, value: CutSketches) -> bytes:
        """Return the bytes of what rows say."""
        classes = {} if value.classes is None else {"classes": value.classes}
        arrays = named_arrays({i: each.arrays() for i, each in enumerate(value.learners)})
        return files.to_bytes({"kind": "cuts"}, {**arrays, **classes})

    def from_bytes(self, data: bytes) -> CutSketches:
        """Return what the bytes say."""
        _, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        learners, classes = self._begun(), arrays.pop("classes", None)
        codes = np.arange(1 if classes is None else len(classes), dtype=np.uint32)
        for fold, learner in enumerate(learners):
            learner.take(arrays_of(arrays, f"{fold}."), codes)
        return CutSketches(learners, classes)


def _codes_of(classes: pa.Array | None, book: Codebook | None) -> NDArray[np.unsignedinteger]:
    """Return the codes of classes in a codebook, which learns them; 0 without classes."""
    if book is None or classes is None:
        return np.zeros(1, np.uint32)
    book.widen(classes.type)
    return book.encode(classes, dispatch.numpy_twin("reading.encode"))


class KeepingCuts(NamedTuple):
    """What keeps a scan for cut points, and what it begins with.

    checkpoint  where it is kept
    cuts        the cut points of columns whose scan is done
    columns     those of this scan
    book        of the classes
    kept        what was kept before, of this scan or another
    """

    checkpoint: KeptCuts
    cuts: dict[str, list[float]]
    columns: list[str]
    book: Codebook | None
    kept: CutsProgressed | None

    def begun(self, learner: CutLearner) -> tuple[int, int]:
        """Give a learner what was kept; return how many segments and rows that is."""
        if (kept := self.kept) is None or kept.columns != self.columns:
            return 0, 0
        learner.take(kept.arrays, _codes_of(kept.classes, self.book))
        return kept.segments, kept.rows

    def keep(self, learner: CutLearner, segments: int, rows: int) -> None:
        """Keep what is learned."""
        arrays, classes = learner.arrays(), None if self.book is None else self.book.values()
        done = CutsProgressed(self.cuts, self.columns, segments, rows, arrays, classes)
        self.checkpoint.save(done)


def _without_each(learners: list[CutLearner], asked: dict[str, Method]) -> list[CutLearner]:
    """Return for each learner the sum of all others."""

    def sums(parts: list[CutLearner]) -> list[CutLearner]:
        found = [CutLearner(asked)]
        for part in parts[:-1]:
            total = CutLearner(asked)
            total.merge(found[-1])
            total.merge(part)
            found.append(total)
        return found

    before, behind = sums(learners), sums(learners[::-1])[::-1]
    for rest, more in zip(before, behind, strict=True):
        rest.merge(more)
    return before


def _loose(book: Codebook) -> bool:
    """Return whether a categorical column may just as well be numbers."""
    return not book.fixed and (pa.types.is_null(book.kind) or pa.types.is_boolean(book.kind))


def _check(source: Source, encoder: Encoder, learned: dict[str, Method]) -> None:
    name = next(iter(learned))
    if encoder.target is None and any(how.kind == "mdl" for how in learned.values()):
        raise SchemaError(
            f"column {name!r}: discretize='mdl' cuts where classes change, and there is no class "
            "column; use 'quantile' or 'width', or cut points of your own"
        )
    if not source.rereadable:
        raise SchemaError(
            f"{source.description} can be read only once, but the cut points of column {name!r} "
            "are learned in a scan of their own: pass a table or a path, give cut points in "
            "`discretize`, name the column in `categorical`, or, where the model has partial_fit, "
            "use that: its first batch fixes them"
        )


def _encoder(encoder: Encoder, learned: Iterable[str]) -> Encoder:
    book = encoder.target
    target = None
    if book is not None:
        known = book.values() if book.fixed else None
        target = Codebook(
            book.name, book.kind, known, fixed=book.fixed, null_values=book.null_values
        )
    parts = {f.name: f.part for f, _ in encoder.features}
    features = [(Feature(name, "numeric", part=parts.get(name)), None) for name in learned]
    return Encoder(features, target, template=encoder.template, weight=encoder.weight)


def _groups(
    source: Source,
    encoder: Encoder,
    learned: dict[str, Method],
    threads: int,
    memory_limit: int | None,
    *,
    whole: bool = False,
    beside: str | None = None,
    copies: int = 1,
) -> Iterator[tuple[dict[str, Method], ReadShare]]:
    """Yield the columns by as many as may be learned in one scan, and how they are read.

    whole   whether all columns are read, too, whichever are learned
    beside  a column that is needed besides
    copies  sketches of each column
    """
    check_limit(memory_limit)
    if not learned:
        return
    names, limit = list(learned), memory_limit
    known = [None if encoder.target is None else encoder.target.name, encoder.weight, beside]
    rows, weighted = source.n_rows, encoder.weight is not None
    need = copies * bytes_needed(math.inf if rows is None else rows, FEW_ROWS, weighted=weighted)

    def share(some: list[str]) -> ReadShare:
        taken = {*_encoder(encoder, some).columns, *known}
        read = source if whole else source.only([n for n in source.schema.names if n in taken])
        return ReadShare.within(read, threads, limit, need * len(some))

    def fits(some: ReadShare, n: int) -> bool:
        return some.fits and (limit is None or n * need <= limit - some.charged)

    # As many columns as sketches have room, fewer where reading has not.
    n = max(1, len(names) if limit is None else min(len(names), int(limit // need)))
    every = least = share(names[:n])
    while n > 1 and not fits(least, n):
        n = -(-n // 2)
        least = share(names[:n])
    if limit is None and least.held >= every.held:  # fewer columns take no less
        n, least = len(names), every
    if not (limit is None or fits(least, n)):
        least.check(limit)
        raise MemoryLimitError(
            f"learning the cut points of column {names[0]!r} needs {need:,} bytes, over "
            f"memory_limit={limit:,}; raise it, or give cut points in `discretize`"
        )
    for first in range(0, len(names), n):
        some = names[first : first + n]
        yield {name: learned[name] for name in some}, share(some)


def _scan(
    share: ReadShare,
    encoder: Encoder,
    learned: dict[str, Method],
    on_error: str,
    progress: Progress | None,
    folds: Folds | None = None,
    keeping: KeepingCuts | None = None,
) -> list[CutLearner]:
    """Return what the rows of each fold, in order, say of the columns; of all without folds."""
    source = share.source
    encoder.expect(source.n_rows)
    learners = {fold: CutLearner(learned) for fold in ([0] if folds is None else folds.names()[0])}
    # What is left of a segment that turns out to be damaged must not stay behind, and what is kept
    # is that of the first segments.
    apart = on_error == "skip" or keeping is not None

    def learn(segment: Segment) -> tuple[int, CutLearner | None]:
        mine = {0: CutLearner(learned)} if apart else learners
        rows = 0
        try:
            for block, encoded in encoded_blocks(segment, encoder):
                batch = encoded.batch
                _check_weights(encoder.weight, batch.weight)
                parts = [(0, batch)]
                if folds is not None:
                    codes = folds.of(segment, rows, block)
                    codes = codes if encoded.kept is None else codes[encoded.kept]
                    parts = [
                        (f, taken(batch, np.flatnonzero(codes == f))) for f in np.unique(codes)
                    ]
                rows += block.num_rows
                for fold, part in parts:
                    assert part.classes is not None
                    mine[fold].update(part.numeric, part.classes, part.weight, part.cells)
        except DataError as error:
            if on_error != "skip" or isinstance(error, NotSkippedError):
                raise
            return 0, None
        return rows, mine[0] if apart else None

    done, sum_rows = (0, 0) if keeping is None else keeping.begun(learners[0])
    if progress is not None and sum_rows:
        progress(sum_rows)
    between = True  # two segments
    try:
        for rows, more in share.in_order(learn, islice(source.segments(BLOCK_ROWS), done, None)):
            between = False
            if more is not None:
                learners[0].merge(more)
            done, sum_rows = done + 1, sum_rows + rows
            between = True
            if progress is not None:
                progress(rows)
            if keeping is not None and keeping.checkpoint.due():
                keeping.keep(learners[0], done, sum_rows)
    except KeyboardInterrupt:
        if keeping is not None and between and done:
            keeping.keep(learners[0], done, sum_rows)
        raise
    return list(learners.values())


def _check_weights(name: str | None, weight: NDArray[np.float64] | None) -> None:
    if weight is not None and (greatest := weight.max(initial=0)) > GREATEST_WEIGHT:
        raise DataError(
            f"weight {name!r}: {greatest:g} is too much for sums of weights to be exact; divide "
            "all weights by a power of ten"
        )
