"""One scan of labelled rows that scores several models, each fold by models without it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.batch import BLOCK_ROWS, Batch, joined, taken
from fastbayes.core.domains import declared
from fastbayes.core.errors import (
    DataError,
    FastBayesError,
    MemoryLimitError,
    described,
    error_of,
)
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.schema import Schema, Shape
from fastbayes.data.discretize import Cuts, Method, methods
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import WithoutFold
from fastbayes.data.segments import Segment, Source, check_rereadable
from fastbayes.evaluation.roc_auc import LEAST_HISTOGRAM, RanksNeed, ranked_columns
from fastbayes.evaluation.validate.paired_losses import PairedLosses
from fastbayes.evaluation.validate.scored_rows import (
    Encoding,
    Parts,
    Positions,
    RowEncoding,
    ScoredBlock,
)
from fastbayes.evaluation.validation import Evaluation, Evaluator
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.estimator.base import Scans, check_learnable, forget_scorers
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.models.estimator.protocol import as_counted
from fastbayes.models.estimator.store import packed, unpacked
from fastbayes.scan import engine
from fastbayes.scan.budget import SLACK, check_limit
from fastbayes.scan.discretization import cuts_by_rules, numeric_cuts
from fastbayes.scan.fold_statistics import check_apart, training
from fastbayes.scan.opening import Opened
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest, ViewElsewhere
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.registry import kind_of

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]

# Bytes of a feature in a schema, its cut points included, and of each column in a fitted model:
# names, parameters and places, beside its counts and tables.
BYTES_OF_FEATURE, BYTES_OF_COLUMN = 500, 400


class Fitted(LooScorer):
    """A model of named columns that was fitted without the rows that it is to score."""

    def __init__(self, model: Any) -> None:
        self.model, self._of = model, model._scorers()

    def __reduce__(self) -> tuple[Any, ...]:
        return _fitted, packed(self.model)

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`; return how many rows took the prior."""
        lost: int = self._of(batch.cells).posterior(batch.codes, batch.numeric, out)
        return lost

    def log_joint(self, batch: Batch, out: Floats) -> float:
        """Write ln P(c, x) into `out`."""
        self._of(batch.cells).log_joint(batch.codes, batch.numeric, out)
        return 0.0

    def forget(self) -> None:
        """Let go of the tables that score rows; they are made anew where they are needed."""
        forget_scorers(self.model)
        self._of = self.model._scorers()


def held_by(models: Iterable[Any]) -> int:
    """Return about how many bytes fitted models hold: counts, tables taken to be as large, columns.

    Counts and schemas that several of them have are held once.
    """
    models = [*models]
    parts = {id(part): part for model in models for part in model.statistics_.parts.values()}
    schemas = {id(model.schema_): len(model.schema_.features) for model in models}
    of_columns = BYTES_OF_FEATURE * sum(schemas.values())
    of_columns += BYTES_OF_COLUMN * sum(len(model.schema_.features) for model in models)
    return of_columns + 2 * sum(part.nbytes for part in parts.values())


def _fitted(cls: type, data: bytes) -> Fitted:
    return Fitted(unpacked(cls, data))


def posterior(scorer: LooScorer, batch: Batch, out: Floats) -> int:
    """Write P(c | x) into `out`; return how many rows took the prior."""
    return scorer.posterior(batch, out)


@dataclass
class Contestant:
    """A model under validation.

    classes  (n_classes,) labels
    scorers  one for each fold
    views    for each fold what makes of a batch what the model takes, None: all; or none at all
    error    why it could not score some row; then its score is worth nothing
    summary  gives what sums the scores of a fold up, with `update` and `merge`; None: `Evaluator`
    answer   writes what a scorer says of rows, and returns how many of them no class can have made
    """

    classes: NDArray[Any]
    scorers: Sequence[LooScorer]
    views: Sequence[Callable[[Batch], Batch] | None] = ()
    error: FastBayesError | None = None
    summary: Callable[[], Any] | None = None
    answer: Callable[[LooScorer, Batch, Floats], int] = posterior

    def seen(self, batch: Batch, fold: int) -> Batch:
        """Return what the model without a fold takes of rows."""
        view = self.views[fold] if self.views else None
        seen = batch if view is None else view(batch)
        # Of all rows it scores those of its fold, and kernels are chosen by how many these are.
        return replace(seen, cells=seen.cells / len(self.scorers))

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
    proba       probabilities of block after block, NaN in rows that take no part; None where they
                are not kept
    held        ill-conditioned rows: where their probabilities go, their positions there, and they
    moments     moments of the other rows
    paired      its log-losses beside those of the other models; None where they are not wanted
    lost        rows that took the prior
    seconds     processor time
    """

    evaluators: list[Any]
    proba: list[Floats] | None = None
    held: list[tuple[Floats | None, Positions, Batch]] = field(default_factory=list)
    moments: Any = None
    paired: PairedLosses | None = None
    lost: int = 0
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        """Add the rows of another, which come after these."""
        for mine, theirs in zip(self.evaluators, other.evaluators, strict=True):
            mine.merge(theirs)
        if self.proba is not None:
            self.proba += other.proba or []
        self.held += other.held
        self.add_moments(other.moments)
        if self.paired is not None and other.paired is not None:
            self.paired.add(other.paired)
        self.lost += other.lost
        self.seconds += other.seconds

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-able header and named arrays, which `take` adds to another.

        Probabilities of rows are not among them.
        """
        header: dict[str, Any] = {"lost": int(self.lost), "seconds": self.seconds, "moments": None}
        parts: dict[Any, Any] = {i: each.arrays() for i, each in enumerate(self.evaluators)}
        if self.held:
            parts["held"] = joined([batch for _, _, batch in self.held]).arrays()
        if self.paired is not None:
            parts["paired"] = self.paired.arrays()
        arrays = named_arrays(parts)
        if self.moments is not None:
            sizes, *n = self.moments.shape
            header["moments"] = [self.moments.name, *map(int, n)]
            arrays["sizes"] = sizes
            arrays |= named_arrays({"moments": self.moments.arrays()})
        return header, arrays

    def take(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Add the rows of a header and arrays."""
        for fold, evaluator in enumerate(self.evaluators):
            evaluator.take(arrays_of(arrays, f"{fold}."))
        if own := arrays_of(arrays, "held."):
            batch = Batch.from_arrays(own)
            self.held.append((None, np.arange(batch.n_rows), batch))
        if header["moments"] is not None:
            name, *n = header["moments"]
            shape = Shape(arrays["sizes"], *n)
            self.add_moments(kind_of(name).from_arrays(shape, arrays_of(arrays, "moments.")))
        if self.paired is not None:
            self.paired.take(arrays_of(arrays, "paired."))
        self.lost += header["lost"]
        self.seconds += header["seconds"]

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
    n_rows   rows; where one encoder encoded all, `dropped` of them had no class
    unseen   values that its schema does not know, by categorical column
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

        They may take half of what the limit leaves `besides` what is held already, little always;
        MemoryLimitError when not even the least histograms fit.
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


class Scores(NamedTuple):
    """What models made of rows.

    scores   one for each model
    scanned  the rows
    errors   why a model could not score some row, None where it could
    """

    scores: list[Score]
    scanned: Scanned
    errors: list[FastBayesError | None]


@dataclass(frozen=True)
class Scoring(ScanRequest[Scores]):
    """What models make of rows, each of which is scored by all of them: options as of `scores`.

    What an AUC needs may take `room` bytes, of each model and fold; so many are `held` while rows
    are scored, and by each `segment` that waits.
    """

    rows: Encoding
    contestants: Sequence[Contestant]
    loss: Any = None
    proba: bool = False
    ranks: bool = True
    strict: bool = True
    paired: bool = False
    memory_limit: int | None = None
    room: float = math.inf
    held: int = 0
    segment: int = 0

    @property
    def _n_classes(self) -> int:
        return len(self.contestants[0].classes)

    def _begun(self) -> list[Score]:
        given = {"loss": self.loss, "ranks": self.ranks, "room": self.room}
        makers = [c.summary or partial(Evaluator, c.classes, **given) for c in self.contestants]
        n = len(self.contestants)
        return [
            Score(
                [make() for _ in c.scorers],
                [] if self.proba else None,
                paired=PairedLosses(n) if self.paired else None,
            )
            for c, make in zip(self.contestants, makers, strict=True)
        ]

    def _scored(self, parts: Parts, segment: Segment, *, once: bool) -> tuple[list[Score], Scanned]:
        found, scanned = self._begun(), Scanned(np.zeros(self._n_classes))
        for block in parts(segment):
            of_all = (0, 0) if (e := block.encoded) is None else (e.dropped, e.unseen)
            counted = np.zeros(self._n_classes)
            for part in block.parts:
                assert part.batch.classes is not None
                counted += np.bincount(part.batch.classes, part.batch.weight, self._n_classes)
            scanned += (counted, block.n_rows, *of_all)
            losses: dict[int, Floats] = {}
            for i, (contestant, mine) in enumerate(zip(self.contestants, found, strict=True)):
                if contestant.error is None:
                    with contestant.trying(self.strict):
                        losses[i] = score_block(contestant, block, mine, self._n_classes, once=once)
            if self.paired:
                PairedLosses.update([mine.paired for mine in found], losses, block.weights())
        return found, scanned

    def scored(self, source: Source, threads: int | None, progress: Progress | None) -> Scores:
        """Return what is made of rows that are read here."""
        n_segments = math.inf
        if source.n_rows is not None:
            n_segments = -(-source.n_rows // max(source.rows_of_segment(), 1))
        # Of a row there are probabilities, what they are made of, and figures; and scored segments
        # wait.
        share = engine.share_of(
            source,
            threads,
            self.memory_limit,
            besides=self.held,
            width=8 * (4 * self._n_classes + 16 + 2 * len(self.contestants) * self.paired),
            made=lambda threads: int(min(threads + 2, n_segments)) * self.segment,
        )

        segments = share.source.segments(BLOCK_ROWS)
        begun = [*islice(segments, 2)]
        # Of a single block each fold is scored once: the tables of all folds are not held together.
        once = source.n_rows is not None and source.n_rows <= BLOCK_ROWS and len(begun) == 1
        parts = self.rows.parts(source.schema, source.n_rows, once=once)

        def score(segment: Segment) -> tuple[list[Score], Scanned]:
            return self._scored(parts, segment, once=once)

        total, scanned = self._begun(), Scanned(np.zeros(self._n_classes))
        for found, counted in share.in_order(score, chain(begun, segments)):
            for mine, theirs in zip(total, found, strict=True):
                mine.add(theirs)
            scanned += counted
            if progress is not None:
                progress(counted.n_rows)
        return Scores(total, scanned, [contestant.error for contestant in self.contestants])

    def count(self, rows: Source, threads: int | None) -> Partial[Scores]:
        """Return what is made of rows."""
        found = self.scored(rows, threads, None)
        return Partial(found.scanned.n_rows, found)

    def zero(self) -> Scores:
        """Return what is made of no rows."""
        nothing = Scanned(np.zeros(self._n_classes))
        return Scores(self._begun(), nothing, [None] * len(self.contestants))

    def add(self, a: Scores, b: Scores) -> Scores:
        """Return what is made of the rows of both."""
        total = self.zero().scores
        for part in (a, b):
            for mine, theirs in zip(total, part.scores, strict=True):
                mine.add(theirs)
        errors = [first or second for first, second in zip(a.errors, b.errors, strict=True)]
        return Scores(total, a.scanned + b.scanned, errors)

    def to_bytes(self, value: Scores) -> bytes:
        """Return the bytes of scores."""
        rows = {name: np.asarray(n) for name, n in value.scanned._asdict().items()}
        parts: dict[Any, Any] = {"rows": rows}
        models = []
        for i, (score, error) in enumerate(zip(value.scores, value.errors, strict=True)):
            header, parts[i] = score.state()
            models.append({**header, "error": None if error is None else described(error)})
        return files.to_bytes({"kind": "scores", "models": models}, named_arrays(parts))

    def from_bytes(self, data: bytes) -> Scores:
        """Return the scores whose bytes these are."""
        header, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        scores, _, errors = self.zero()
        for i, (score, given) in enumerate(zip(scores, header["models"], strict=True)):
            score.take(given, arrays_of(arrays, f"{i}."))
            errors[i] = None if given["error"] is None else error_of(*given["error"])
        counted = arrays_of(arrays, "rows.")
        n_rows, dropped = int(counted["n_rows"]), int(counted["dropped"])
        return Scores(
            scores, Scanned(counted["classes"], n_rows, dropped, counted["unseen"]), errors
        )


def scores(
    source: Source,
    rows: Encoding,
    contestants: Sequence[Contestant],
    *,
    loss: Any = None,
    proba: bool | None = False,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    strict: bool = True,
    ranks: bool = True,
    paired: bool = False,
    weighted: bool = True,
    besides: int = 0,
) -> tuple[list[Score], Scanned]:
    """Score all rows by all models in one scan, wherever they are; return scores, and of what rows.

    All models know the same classes. `proba` is whether to keep the probabilities, None to do so
    where rows are read here, `ranks` whether to keep what the AUC needs, and `paired` whether to
    take the log-losses of each two models together; `strict`, whether a model that cannot score a
    row ends it all, rather than itself; `weighted`, whether rows have weights. `besides` are bytes
    within the limit that are held already.

    Raises MemoryLimitError before a row is read where the answers, or the least that can be read
    and scored at a time, do not fit.
    """
    check_limit(memory_limit)
    if proba and isinstance(source, Counter):
        raise DataError(
            f"{source.description}: workers read its rows, and keep the probabilities of none: "
            "leave them out with proba=False, or pass the paths themselves"
        )
    proba = not isinstance(source, Counter) if proba is None else bool(proba)
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
    held: dict[str, Any] = {"room": kept.room, "held": besides + kept.held, "segment": kept.segment}
    request = Scoring(rows, contestants, loss, proba, ranks, strict, paired, memory_limit, **held)
    if isinstance(source, Counter):
        found = source.run(request, threads, progress).value
        for contestant, error in zip(contestants, found.errors, strict=True):
            contestant.error = error
    else:
        found = request.scored(source, threads, progress)
    for contestant, mine in zip(contestants, found.scores, strict=True):
        if contestant.error is None:
            with contestant.trying(strict):
                _settle(contestant, mine)
    if paired:
        able = [i for i, contestant in enumerate(contestants) if contestant.error is None]
        PairedLosses.settle([mine.paired for mine in found.scores], able)
    return found.scores, found.scanned


def scores_in_turn(
    source: Source,
    rows: Encoding,
    makers: Sequence[Callable[[], Contestant]],
    at_once: int,
    **options: Any,
) -> tuple[list[Score], Scanned]:
    """Score all rows by each model, as `scores` does by those that are made and held `at_once`.

    Raises SchemaError where that takes several scans, and the rows can be read only once.
    """
    if at_once < len(makers):
        need = f"the memory limit lets {at_once:,} of {len(makers):,} models be scored at a time"
        check_rereadable(source, need)
    found, scanned = list[Score](), Scanned()
    for first in range(0, len(makers), at_once):
        some = [make() for make in makers[first : first + at_once]]
        mine, scanned = scores(source, rows, some, **options)
        found += mine
        del some  # before the next are made
    return found, scanned


def score_block(
    contestant: Contestant,
    block: ScoredBlock,
    mine: Score,
    n_classes: int,
    *,
    once: bool = False,
) -> Floats:
    """Add the rows of a block to a score; those that wait for all others are held in it.

    Where a fold is scored `once`, its scorer lets go of what it made. Of one for all rows, which
    may be a model that is used further, it is kept.

    Returns the log-loss of each row, (n_rows,), NaN of those that wait or take no part.
    """
    kept, losses = None, np.full(block.n_rows, np.nan)
    if mine.proba is not None:
        kept = np.full((block.n_rows, n_classes), np.nan)
        mine.proba.append(kept)
    for fold, batch, rows in block.parts:
        scorer = contestant.scorers[fold]
        start = time.thread_time()
        seen = contestant.seen(batch, fold)
        posterior = np.empty((batch.n_rows, n_classes))
        mine.lost += contestant.answer(scorer, seen, posterior)
        if len(aside := np.sort(scorer.ill_conditioned(seen))):
            mine.held.append((kept, aside if rows is None else rows[aside], taken(seen, aside)))
            certain = np.delete(np.arange(batch.n_rows), aside)
            seen, posterior = taken(seen, certain), posterior[certain]
            rows = certain if rows is None else rows[certain]
        mine.add_moments(scorer.other_moments(seen))
        if once and len(contestant.scorers) > 1:
            scorer.forget()
        mine.seconds += time.thread_time() - start
        assert seen.classes is not None
        mine.evaluators[fold].update(posterior, seen.classes, seen.weight)
        at = slice(None) if rows is None else rows
        losses[at] = log_losses(posterior, seen.classes)
        if kept is not None:
            kept[at] = posterior
    return losses


def log_losses(posterior: Floats, y: NDArray[Any]) -> Floats:
    """Return -ln p(true class) of rows, in nats, p clipped at 1e-15, (n_rows,)."""
    own = posterior[np.arange(len(posterior)), y]
    return np.asarray(-np.log(np.maximum(own, CLIP)))


def _settle(contestant: Contestant, mine: Score) -> None:
    """Add rows that had to wait for all others."""
    if not mine.held:
        return
    batch = joined([held for _, _, held in mine.held])
    posterior = np.empty((batch.n_rows, len(contestant.classes)))
    contestant.answer(contestant.scorers[0].resolved(batch, mine.moments), batch, posterior)
    assert batch.classes is not None
    mine.evaluators[0].update(posterior, batch.classes, batch.weight)
    if mine.paired is not None:
        mine.paired.know(log_losses(posterior, batch.classes))
    ends = np.cumsum([held.n_rows for _, _, held in mine.held])
    for (kept, rows, _), part in zip(mine.held, np.split(posterior, ends[:-1]), strict=True):
        if kept is not None:
            kept[rows] = part


def encoders_by(opened: Opened, schema: Schema) -> Callable[..., Encoder]:
    """Return what gives encoders with the classes and domains of a schema, however few rows."""
    return partial(opened.learning, domains=declared(domains_of(schema, str(opened.target))))


def domains_of(schema: Schema, target: str) -> dict[str, Any]:
    """Return the domains of a schema, that of its classes among them, however few rows are read."""
    found = {f.name: f.values for f in schema.categorical if f.cuts is None and f.size}
    return {**found, target: schema.classes}


class FoldScans:
    """Scans of all rows but those of a fold, in the classes and domains of all rows.

    `whole` are counts of their values, by folds. Raises DataError when a fold holds all rows.
    """

    def __init__(self, opened: Opened, whole: Statistics) -> None:
        assert opened.folds is not None
        self.opened, self.folds = opened, opened.folds
        self.order, self.names = opened.folds.names()
        check_apart(whole)
        self.learning = encoders_by(opened, whole.schema)

    def of(self, fold: int) -> tuple[Source, Callable[..., Encoder]]:
        """Return the rows without those of a fold, by its place, and what gives encoders."""
        source: Source = self.opened.source
        without = partial(WithoutFold, folds=self.folds, fold=self.order[fold])
        if isinstance(source, Counter):
            return ViewElsewhere(source, without, [str(self.folds.column)]), self.learning
        return without(source), self.learning


def cuts_by_folds(
    scans: FoldScans, cutting: Callable[[Encoder], tuple[Encoder, Any]], **options: Any
) -> list[list[dict[str, Any]]]:
    """Return the cut points that the rows of all other folds give, by rule and for each fold.

    They come from one scan; where what is held of all folds at once exceeds the memory limit, from
    one for each fold, to the same points. `cutting` returns what encodes the columns to be cut, and
    the rules by which they are; `options` are those of `cuts_by_rules`.
    """
    try:
        given = cutting(scans.opened.learning())
        return cuts_by_rules(scans.opened.source, *given, scans.folds, **options)
    except MemoryLimitError as error:
        logger.info("%s; those of each fold are learned in a scan of their own", error)
    rests = (scans.of(fold) for fold in range(len(scans.names)))
    found = [cuts_by_rules(rows, *cutting(learning()), **options) for rows, learning in rests]
    return [[cuts for (cuts,) in of_rule] for of_rule in zip(*found, strict=True)]


def encoding_of(opened: Opened, schemas: Sequence[Schema]) -> RowEncoding:
    """Return how rows and their folds are encoded by the schema of all models, or of each fold."""
    return RowEncoding(schemas, opened.target, opened.weight, folds=opened.folds)


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
    return any(isinstance(how, Method) for how in _cut_how(encoder, discretize))


def supervised_cuts(encoder: Encoder, discretize: Any) -> bool:
    """Return whether cut points depend on the classes of the rows, as those of "mdl" do."""
    return any(isinstance(h, Method) and h.kind == "mdl" for h in _cut_how(encoder, discretize))


def _cut_how(encoder: Encoder, discretize: Any) -> Iterable[Method | Cuts]:
    numeric = [feature.name for feature, book in encoder.features if book is None]
    if isinstance(discretize, Mapping):  # of other columns, too
        discretize = {name: discretize[name] for name in numeric if name in discretize}
    return methods(discretize, numeric).values()


def check_models_held(
    need: int, memory_limit: int | None, models: str = "models without each fold", of: str = "folds"
) -> None:
    """Raise MemoryLimitError where models without folds leave no room to score rows.

    need    bytes of these and of what is held beside them
    models  what they are, and what there are as many `of`, as the message says it
    """
    need += SLACK
    if memory_limit is not None and need > max(memory_limit, 2 * SLACK):
        raise MemoryLimitError(
            f"{models}, and reading, need {need:,} bytes and more, over "
            f"memory_limit={memory_limit:,}: take fewer {of}, leave out columns of many values, "
            "or raise memory_limit"
        )


def fitted_without_folds(
    make: Callable[[], Any], opened: Opened, threads: int | None, memory_limit: int | None
) -> tuple[list[Any], tuple[str, ...], RowEncoding]:
    """Return a model fitted without each fold, names of the folds, and how rows are encoded."""
    model, encoder, folds, models = make(), opened.learning(), opened.folds, list[Any]()
    assert folds is not None
    to_cut = model._to_cut(encoder)
    options: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    if learns_by_subtraction(model, encoder):
        cut = encoder
        if to_cut is not None:
            cut = opened.learning(cuts=numeric_cuts(opened.source, *to_cut, **options))
        try:
            stats = engine.scan(opened.source, cut, model._statistics, folds=folds, **options)
            each = BYTES_OF_COLUMN * len(stats.schema.features)
            each += 2 * sum(part.nbytes for part in stats.parts.values())
            check_models_held(stats.nbytes + len(stats.folds) * each, memory_limit)
        except MemoryLimitError as error:
            logger.info("%s; each fold is left out in scans of its own", error)
        else:
            check_learnable(stats, opened.source.description)
            models = [as_counted(make()).fit_statistics(rest) for rest in training(stats)]
            return models, stats.fold_names, encoding_of(opened, [stats.schema])
    whole = engine.scan(opened.source, encoder, ("values",), folds=folds, **options)
    check_learnable(whole, opened.source.description)
    scans = FoldScans(opened, whole)
    cuts: list[Any] = [None] * len(scans.names)
    if to_cut is not None:

        def cutting(encoder: Encoder) -> tuple[Encoder, list[Any]]:
            cut, rule = model._to_cut(encoder)
            return cut, [rule]

        (cuts,) = cuts_by_folds(scans, cutting, **options)

    def learned(besides: Callable[[list[Any]], int]) -> list[Any]:
        found = list[Any]()
        for fold, points in enumerate(cuts):
            model = make()
            model._check_parameters()
            held = partial(besides, found)
            of_fold = Scans(*scans.of(fold), points, [], True, last=True, besides=held)
            found.append(model._learned(model._scanned(of_fold)))
            # Those of the folds to come are about as large.
            check_models_held(held_by(found) * len(cuts) // len(found), memory_limit)
        return found

    try:
        models = learned(held_by)
    except MemoryLimitError as error:
        if memory_limit is None:
            raise
        logger.info("%s; each fold's model is given an equal share", error)
        refused = error.with_traceback(None)  # that holds the models
    else:
        return models, scans.names, encoding_of(opened, [model.schema_ for model in models])
    # The first kept what it could do without (a tree: all pairs), and left the others no room.
    others = memory_limit - memory_limit // len(cuts)
    try:
        models = learned(lambda _: others)
    except MemoryLimitError:
        raise refused from None
    return models, scans.names, encoding_of(opened, [model.schema_ for model in models])
