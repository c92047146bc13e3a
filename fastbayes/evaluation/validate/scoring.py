"""One scan of labelled rows that scores several models, each fold by models without it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch, joined, taken
from fastbayes.core.errors import FastBayesError, MemoryLimitError, SchemaError
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoded, Encoder, filtered
from fastbayes.data.folds import Folds, WithoutFold
from fastbayes.data.segments import Segment, Source
from fastbayes.evaluation.roc_auc import LEAST_HISTOGRAM, RanksNeed, ranked_columns
from fastbayes.evaluation.validation import Evaluation, Evaluator
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.scan import engine
from fastbayes.scan.budget import SLACK, check_limit
from fastbayes.scan.counting import Opened
from fastbayes.scan.discretization import cuts_without_folds, numeric_cuts
from fastbayes.scan.engine import Progress
from fastbayes.scan.fold_statistics import fold_positions, refuse, training
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


class Part(NamedTuple):
    """Rows of a block that belong to one fold.

    fold   index of the fold
    batch  the rows with their classes, encoded for the models of this fold
    rows   their positions in the block; None: all of it
    """

    fold: int
    batch: Batch
    rows: Positions | None


class ScoredBlock(NamedTuple):
    """Rows as they came, and those of them that take part.

    encoded  how all of them were encoded, where there are no folds
    """

    n_rows: int
    parts: Sequence[Part]
    encoded: Encoded | None = None


# Encodes the blocks of a segment.
Parts = Callable[[Segment], Iterator[ScoredBlock]]


class Fitted(LooScorer):
    """A model of named columns that was fitted without the rows that it is to score."""

    def __init__(self, model: Any) -> None:
        self._of = model._scorers()

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`; return how many rows took the prior."""
        lost: int = self._of(batch.cells).posterior(batch.codes, batch.numeric, out)
        return lost

    def log_joint(self, batch: Batch, out: Floats) -> float:
        """Write ln P(c, x) into `out`."""
        self._of(batch.cells).log_joint(batch.codes, batch.numeric, out)
        return 0.0


@dataclass
class Contestant:
    """A model under validation.

    classes  (n_classes,) labels
    scorers  one for each fold
    view     which columns of a batch the model takes; None: all
    error    why it could not score some row; then its score is worth nothing
    summary  gives what sums the scores of a fold up, with `update` and `merge`; None: `Evaluator`
    """

    classes: NDArray[Any]
    scorers: Sequence[LooScorer]
    view: Callable[[Batch], Batch] | None = None
    error: FastBayesError | None = None
    summary: Callable[[], Any] | None = None

    @contextmanager
    def trying(self, strict: bool) -> Iterator[None]:
        """Take note of an error, unless the first is to be raised."""
        try:
            yield
        except FastBayesError as error:
            if strict:
                raise
            self.error = error


@dataclass
class Score:
    """What a model made of some rows.

    evaluators  one for each fold, or what sums up in their place
    proba       probabilities of block after block, NaN in rows that take no part
    held        ill-conditioned rows: where their probabilities go, their positions there, and they
    moments     moments of the other rows
    lost        rows that took the prior
    seconds     processor time
    """

    evaluators: list[Any]
    proba: list[Floats] = field(default_factory=list)
    held: list[tuple[Floats | None, Positions, Batch]] = field(default_factory=list)
    moments: Any = None
    lost: int = 0
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        """Add the rows of another, which come after these."""
        for mine, theirs in zip(self.evaluators, other.evaluators, strict=True):
            mine.merge(theirs)
        self.proba += other.proba
        self.held += other.held
        self.add_moments(other.moments)
        self.lost += other.lost
        self.seconds += other.seconds

    def figures(self, where: str = "") -> Evaluation:
        """Return the figures of rows that have no folds; `where` says what data they are."""
        found: Evaluation = self.evaluators[0].result(where)
        return found

    def add_moments(self, moments: Any) -> None:
        """Add moments, if there are any."""
        if moments is not None:
            self.moments = moments if self.moments is None else self.moments + moments


class Scanned(NamedTuple):
    """What a scan came by.

    classes  (n_classes,) weight of the rows of each class
    n_rows   rows; without folds `dropped` of them had no class
    unseen   values that the schema does not know, by categorical column, where there are no folds
    """

    classes: Any = 0.0
    n_rows: int = 0
    dropped: int = 0
    unseen: Any = 0

    def __add__(self, other: tuple[Any, ...]) -> Scanned:
        return Scanned(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class RanksShare:
    """How what the AUC of models needs is held within a share of the memory.

    It does not depend on the number of threads, so that no result does.

    models   so many are scored in one scan
    ranking  so many are ranked at a time
    room     bytes that an evaluator may take; infinite where it may keep all scores
    held     bytes of all evaluators together
    segment  bytes beyond these of a segment that has been scored and waits for those before it
    """

    models: int
    ranking: int
    room: float
    held: int
    segment: int = 0

    @classmethod
    def within(
        cls,
        source: Source,
        limit: float | None,
        n_classes: int,
        n_models: int,
        n_folds: int,
        *,
        weighted: bool,
        besides: int = 0,
    ) -> RanksShare:
        """Choose how many models are scored at once; one has histograms where ranks do not fit.

        They may take half of what the limit leaves `besides` what is held already, little always.

        Raises
        ------
        MemoryLimitError
            When not even the least histograms fit.
        """
        rows = math.inf if source.n_rows is None else source.n_rows
        need = RanksNeed.of(n_classes, rows, weighted=weighted)
        some = RanksNeed.of(n_classes, source.rows_of_segment(), weighted=weighted).kept
        # Where all scores are kept, those of a segment that waits are among them.
        waits = 0 if need.whole else some
        if limit is None:
            return cls(n_models, n_models, math.inf, n_models * need.kept, n_models * waits)
        half = int(max(limit - besides, SLACK) / 2)
        if (n := (half - need.ranking) // max(need.kept, 1)) >= 1:
            n = min(n, n_models)
            ranking = 1 + (half - n * need.kept - need.ranking) // max(need.ranking, 1)
            return cls(n, ranking, math.inf, n * need.kept + need.ranking, n * waits)
        # The evaluators of the folds, and of all of them together.
        evaluators = n_folds + (n_folds > 1)
        least = evaluators * LEAST_HISTOGRAM * len(ranked_columns(n_classes))
        if least > half:
            raise MemoryLimitError(
                f"{source.description}: scoring by {n_classes:,} classes needs "
                f"{besides + 2 * least:,} bytes, over memory_limit={limit:,}: group classes, take "
                "fewer models at a time, or raise memory_limit"
            )
        room = half // evaluators
        return cls(1, 1, room, half, min(some, n_folds * room))


def scores(
    source: Source,
    parts: Parts,
    contestants: Sequence[Contestant],
    *,
    loss: Any = None,
    proba: bool = False,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    strict: bool = True,
    ranks: bool = True,
    weighted: bool = True,
    besides: int = 0,
) -> tuple[list[Score], Scanned]:
    """Score all rows by all models in one scan; return their scores, and of what rows.

    All models know the same classes. `proba` is whether to keep the probabilities, and `ranks` what
    the AUC needs; `strict`, whether a model that cannot score a row ends it all, rather than
    itself; `weighted`, whether rows have weights. `besides` are bytes within the limit that are
    held already.

    Raises MemoryLimitError before a row is read where the answers, or the least that can be read
    and scored at a time, do not fit.
    """
    check_limit(memory_limit)
    n_classes = len(contestants[0].classes)
    n_folds = max(len(contestant.scorers) for contestant in contestants)
    if proba:  # block by block, and then of all rows
        answers = 16 * n_classes * len(contestants) * (source.n_rows or 0)
        if memory_limit is not None and answers > memory_limit:
            raise MemoryLimitError(
                f"{source.description}: the probabilities of all rows need {answers:,} bytes, over "
                f"memory_limit={memory_limit:,}: leave them out with proba=False, or raise "
                "memory_limit"
            )
        besides += answers
    kept = RanksShare(len(contestants), 1, math.inf, 0)
    if ranks and any(contestant.summary is None for contestant in contestants):
        kept = RanksShare.within(
            *(source, memory_limit, n_classes, len(contestants), n_folds),
            weighted=weighted,
            besides=besides,
        )

    def begun() -> list[Score]:
        evaluators = [
            partial(Evaluator, c.classes, loss=loss, ranks=ranks, room=kept.room)
            for c in contestants
        ]
        makers = [c.summary or own for c, own in zip(contestants, evaluators, strict=True)]
        return [
            Score([make() for _ in c.scorers]) for c, make in zip(contestants, makers, strict=True)
        ]

    def score(segment: Segment) -> tuple[list[Score], Scanned]:
        found, scanned = begun(), Scanned(np.zeros(n_classes))
        for block in parts(segment):
            of_all = (0, 0) if (e := block.encoded) is None else (e.dropped, e.unseen)
            counted = np.zeros(n_classes)
            for part in block.parts:
                assert part.batch.classes is not None
                counted += np.bincount(part.batch.classes, part.batch.weight, n_classes)
            scanned += (counted, block.n_rows, *of_all)
            for contestant, mine in zip(contestants, found, strict=True):
                if contestant.error is None:
                    with contestant.trying(strict):
                        score_block(contestant, block, mine, n_classes, proba)
        return found, scanned

    total, scanned = begun(), Scanned(np.zeros(n_classes))
    n_segments = math.inf
    if source.n_rows is not None:
        n_segments = -(-source.n_rows // max(source.rows_of_segment(), 1))
    # Of a row there are probabilities, what they are made of, and figures. Scored segments wait.
    share = engine.share_of(
        source,
        threads,
        memory_limit,
        besides=besides + kept.held,
        width=8 * (4 * n_classes + 16),
        made=lambda threads: int(min(threads + 2, n_segments)) * kept.segment,
    )
    segments = share.source.segments(BLOCK_ROWS)
    for found, counted in share.in_order(score, segments):
        for mine, theirs in zip(total, found, strict=True):
            mine.add(theirs)
        scanned += counted
        if progress is not None:
            progress(counted.n_rows)
    for contestant, mine in zip(contestants, total, strict=True):
        if contestant.error is None:
            with contestant.trying(strict):
                _settle(contestant, mine)
    return total, scanned


def score_block(
    contestant: Contestant, block: ScoredBlock, mine: Score, n_classes: int, proba: bool
) -> None:
    """Add the rows of a block to a score; those that wait for all others are held in it."""
    kept = np.full((block.n_rows, n_classes), np.nan) if proba else None
    if kept is not None:
        mine.proba.append(kept)
    for fold, batch, rows in block.parts:
        scorer = contestant.scorers[fold]
        start = time.thread_time()
        seen = batch if contestant.view is None else contestant.view(batch)
        posterior = np.empty((batch.n_rows, n_classes))
        mine.lost += scorer.posterior(seen, posterior)
        if len(aside := scorer.ill_conditioned(seen)):
            mine.held.append((kept, aside if rows is None else rows[aside], taken(seen, aside)))
            certain = np.delete(np.arange(batch.n_rows), aside)
            seen, posterior = taken(seen, certain), posterior[certain]
            rows = certain if rows is None else rows[certain]
        mine.add_moments(scorer.other_moments(seen))
        mine.seconds += time.thread_time() - start
        assert seen.classes is not None
        mine.evaluators[fold].update(posterior, seen.classes, seen.weight)
        if kept is not None:
            kept[slice(None) if rows is None else rows] = posterior


def _settle(contestant: Contestant, mine: Score) -> None:
    """Score the rows that had to wait for all others."""
    if not mine.held:
        return
    batch = joined([held for _, _, held in mine.held])
    posterior = np.empty((batch.n_rows, len(contestant.classes)))
    contestant.scorers[0].resolved(batch, mine.moments).posterior(batch, posterior)
    assert batch.classes is not None
    mine.evaluators[0].update(posterior, batch.classes, batch.weight)
    ends = np.cumsum([held.n_rows for _, _, held in mine.held])
    for (kept, rows, _), part in zip(mine.held, np.split(posterior, ends[:-1]), strict=True):
        if kept is not None:
            kept[rows] = part


def encoders_by(opened: Opened, schema: Schema) -> Callable[..., Encoder]:
    """Return what gives encoders with the classes and domains of a schema, however few rows."""
    return partial(opened.learning, domains=domains_of(schema, str(opened.target)))


def domains_of(schema: Schema, target: str) -> dict[str, Any]:
    """Return the domains of a schema, that of its classes among them, however few rows are read."""
    found = {f.name: f.values for f in schema.categorical if f.cuts is None and not f.void}
    return {**found, target: schema.classes}


class FoldScans:
    """Scans of all rows but those of a fold, in the classes and domains of all rows.

    `whole` are counts of their values, by folds. Raises DataError when a fold holds all rows.
    """

    def __init__(self, opened: Opened, whole: Statistics) -> None:
        assert opened.folds is not None
        self.opened, self.folds = opened, opened.folds
        self.order, self.names = opened.folds.names()
        for fold, name in zip(whole.folds, whole.fold_names, strict=True):
            if fold.n_rows == whole.n_rows:
                refuse(name)
        self.learning = encoders_by(opened, whole.schema)

    def of(self, fold: int) -> tuple[WithoutFold, Callable[..., Encoder]]:
        """Return the rows without those of a fold, by its place, and what gives encoders."""
        return WithoutFold(self.opened.source, self.folds, self.order[fold]), self.learning


def parts_of(encoder: Encoder, check: Callable[[Encoded], None] | None = None) -> Parts:
    """Return what encodes blocks that have no folds, and checks each if it is to."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        for block, encoded in engine.encoded_blocks(segment, encoder):
            if check is not None:
                check(encoded)
            yield ScoredBlock(block.num_rows, [Part(0, encoded.batch, encoded.kept)], encoded)

    return parts


def parts_of_folds(folds: Folds, order: Sequence[int], encoder: Encoder) -> Parts:
    """Return what splits blocks into folds that share one encoder."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block, encoded in engine.encoded_blocks(segment, encoder):
            codes = folds.of(segment, done, block)
            done += block.num_rows
            kept = np.arange(block.num_rows) if encoded.kept is None else encoded.kept
            yield ScoredBlock(
                block.num_rows,
                [
                    Part(fold, taken(encoded.batch, rows), kept[rows])
                    for fold, rows in fold_positions(order, codes[kept])
                ],
            )

    return parts


def parts_by_encoder(folds: Folds, order: Sequence[int], encoders: Sequence[Encoder]) -> Parts:
    """Return what splits blocks into folds, each with an encoder of its own."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block in segment.batches():
            codes = folds.of(segment, done, block)
            place = segment.place(done)
            done += block.num_rows
            found = []
            for fold, rows in fold_positions(order, codes):
                mine = np.zeros(block.num_rows, np.bool_)
                mine[rows] = True
                encoded = encoders[fold].encode(filtered(block, mine), place)
                # The codes last until the thread encodes again.
                batch = taken(encoded.batch, np.arange(encoded.batch.n_rows))
                found.append(
                    Part(fold, batch, rows if encoded.kept is None else rows[encoded.kept])
                )
            yield ScoredBlock(block.num_rows, found)

    return parts


def check_rereadable(source: Source, why: str) -> None:
    """Raise SchemaError where rows that are read several times can be read only once."""
    if not source.rereadable:
        raise SchemaError(
            f"{source.description} can be read only once, but {why}: pass a table or a path"
        )


def applying(opened: Opened, schema: Schema, n_rows: int | None = None) -> Encoder:
    """Return an encoder of the rows, `n_rows` of them or all, by the schema of models."""
    encoder = Encoder.applying_to(
        schema, opened.source.schema, target=opened.target, weight=opened.weight
    )
    encoder.expect(opened.source.n_rows if n_rows is None else n_rows)
    return encoder


def learns_by_subtraction(model: Any, encoder: Encoder) -> bool:
    """Return whether statistics of folds are all that an unfitted classifier of tables learns from.

    The encoder learns, and is made without cut points.
    """
    by_rows = getattr(model, "_reads_rows", False) or getattr(model, "select", None)
    if "families" in model._statistics or by_rows:
        return False
    to_cut = model._to_cut(encoder)
    return to_cut is None or not learned_cuts(*to_cut)


def learned_cuts(encoder: Encoder, discretize: Any) -> bool:
    """Return whether cut points depend on the rows: there are such columns, and none are given."""
    given = discretize if isinstance(discretize, Mapping) else {}
    rules = [given.get(f.name, "mdl") for f, book in encoder.features if book is None]
    # A rule is a name, or a name with its arguments; all else are the cut points themselves.
    return any(isinstance(r[0] if isinstance(r, tuple) else r, str) for r in rules)


def fitted_without_folds(
    make: Callable[[], Any], opened: Opened, threads: int | None, memory_limit: int | None
) -> tuple[list[Any], tuple[str, ...], Parts]:
    """Return a model fitted without each fold, names of the folds, and what splits blocks."""
    model, encoder, folds = make(), opened.learning(), opened.folds
    assert folds is not None
    to_cut = model._to_cut(encoder)
    options: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    if learns_by_subtraction(model, encoder):
        cut = encoder
        if to_cut is not None:
            cut = opened.learning(cuts=numeric_cuts(opened.source, *to_cut, **options))
        try:
            stats = engine.scan(opened.source, cut, model._statistics, folds=folds, **options)
        except MemoryLimitError as error:
            logger.info("%s; each fold is left out in scans of its own", error)
        else:
            models = [make().fit_statistics(rest) for rest in training(stats)]
            parts = parts_of_folds(folds, folds.names()[0], applying(opened, stats.schema))
            return models, stats.fold_names, parts
    whole = engine.scan(opened.source, encoder, ("values",), folds=folds, **options)
    scans = FoldScans(opened, whole)
    cuts: list[Any] = [None] * len(scans.names)
    if to_cut is not None:
        alone, discretize = to_cut
        cuts = cuts_without_folds(opened.source, alone, discretize, folds, **options)
    models = []
    for fold, points in enumerate(cuts):
        model = make()
        model._check_parameters()
        scanned = model._scanned(Scans(*scans.of(fold), points, [], True))
        models.append(model._learned(scanned))
    encoders = [applying(opened, model.schema_) for model in models]
    return models, scans.names, parts_by_encoder(folds, scans.order, encoders)
