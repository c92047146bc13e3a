"""`compare`: every model on the same rows; one scan counts for all, one scores them all."""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from fastbayes.core.allocators import releasing
from fastbayes.core.batch import Batch
from fastbayes.core.errors import (
    DataError,
    FastBayesError,
    FastBayesWarning,
    MemoryLimitError,
    SchemaError,
)
from fastbayes.core.picks import Picks, several
from fastbayes.core.schema import Schema
from fastbayes.core.suggestions import use_one_of
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import Folds
from fastbayes.evaluation.validate.array_estimators import (
    ArrayScorer,
    FeatureMatrix,
    HeldRows,
    check_room,
    fitted,
    held_rows,
    is_estimator,
)
from fastbayes.evaluation.validate.cross_validation import Validation, of_folds, validation
from fastbayes.evaluation.validate.leaderboard import SAME, Comparison, Entry, figures_of, ranked
from fastbayes.evaluation.validate.member_rows import MemberRows
from fastbayes.evaluation.validate.paired_losses import standard_error
from fastbayes.evaluation.validate.race import Lagging, Race, race_sample
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    FoldScans,
    RanksShare,
    Score,
    check_models_held,
    cuts_by_folds,
    encoding_of,
    held_by,
    learned_cuts,
    learns_by_subtraction,
    scores,
)
from fastbayes.evaluation.validate.shared_tallies import (
    NUMBERS,
    OF_CELLS,
    OtherBins,
    SharedTally,
    View,
    Way,
)
from fastbayes.kernels import dispatch
from fastbayes.models.discrete.one_dependence import OneDependence
from fastbayes.models.estimator.base import Classifier, Scans, TableRows, check_learnable
from fastbayes.models.estimator.inputs import array_width, require_labels
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.models.estimator.store import jsonable
from fastbayes.models.leave_one_out.loo import kind_of, loo_scorer
from fastbayes.models.registry import MODELS, Candidate, by_name, candidates
from fastbayes.networks.network import BayesianNetwork
from fastbayes.scan import engine
from fastbayes.scan.budget import SLACK
from fastbayes.scan.data_warnings import remark
from fastbayes.scan.discretization import cuts_by_rules, learned_columns
from fastbayes.scan.dual_encoding import OF_NUMBERS, Views
from fastbayes.scan.fold_statistics import training
from fastbayes.scan.opening import (
    Opened,
    folds_apart,
    number_of_folds,
    opened_to_learn,
    with_folds,
)
from fastbayes.scan.request import Counter, Progress, stage
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.parts import Wanted

logger = logging.getLogger("fastbayes")

# Parameters that a column of the leaderboard can hold.
MOST = (1 << 63) - 1
# What a model of no columns is called, and what stands for all models.
PRIOR, ALL = "prior", "all"
# Seconds of processor time that a model may take unasked, and those of each row in addition.
UNASKED, UNASKED_ROW = 5.0, 1e-5


@contextmanager
def unsaid() -> Iterator[None]:
    """Keep what this thread would warn and note: of all rows it has been said."""
    here = threading.get_ident()

    def heard(record: logging.LogRecord) -> bool:
        return record.thread != here or record.levelno > logging.INFO

    logger.addFilter(heard)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FastBayesWarning)
            yield
    finally:
        logger.removeFilter(heard)


@dataclass
class CountedScans(Scans):
    """Scans of rows of which much has been counted before.

    have  what was: nothing in it is counted again
    """

    have: Statistics = field(kw_only=True)

    def count(
        self,
        model: Classifier,
        wanted: Wanted,
        known: Schema | None = None,
        folds: Folds | None = None,
        *,
        fewer: bool = True,
    ) -> Statistics:
        """Return what was counted, or scan once."""
        had = self.have.parts
        if folds is None and all(name in had and not wanted[name] for name in wanted):
            parts = {name: had[name] for name in wanted}
            return replace(self.have, parts=parts, folds=(), fold_names=())
        found = super().count(model, wanted, known or self.have.schema, folds, fewer=fewer)
        # The very schema of the counts: that of a fold is not held once for each model.
        found = replace(found.aligned(self.have.schema), schema=self.have.schema)
        if found.values.allclose(self.have.values, 1e-12):
            # Sums of weights, less those of a fold, are off by their rounding.
            found = replace(found, parts={**found.parts, "values": self.have.values})
        return found


@dataclass
class Runner:
    """A model on its way through the contest.

    name        what the leaderboard calls it
    make        gives the model, unfitted
    way         how it sees numeric columns
    given       the name or the model that it was asked for by
    seconds     gives what it takes, as `Candidate.seconds`, where it is left out if that is long
    of_gaps     whether it takes part only where a value is missing
    bare        whether it sees no columns at all
    of_arrays   whether it is an estimator of arrays
    counted     counts of all rows that it alone needs, by folds, while it learns from them
    reason      why it cannot be used
    """

    name: str
    make: Callable[[], Any]
    way: Way = NUMBERS
    given: Any = None
    seconds: Callable[..., float] | None = None
    of_gaps: bool = False
    bare: bool = False
    of_arrays: bool = False
    counted: Statistics | None = None
    reason: str = ""
    model: Any = None
    scorers: list[Any] = field(default_factory=list)
    fit_seconds: float = 0.0
    memory: int | None = None
    lost: Entry | None = None
    behind: str = ""

    @property
    def stands(self) -> bool:
        """Whether it may win."""
        return not self.reason and self.lost is None

    def attempt(self, step: Callable[[Runner], list[Any] | None]) -> None:
        """Take a step, which may return scorers, or note why there is no going on."""
        if self.stands:
            try:
                if (found := step(self)) is not None:
                    self.scorers = found
            except (FastBayesError, ValueError, MemoryError) as error:
                self.reason = str(error) or type(error).__name__
                self.scorers = []  # whose memory others may have

    def fail(self, error: FastBayesError | None) -> None:
        """Note why the model cannot score some row, if it cannot."""
        if error is not None:
            self.reason = str(error) or type(error).__name__

    def drop(self, figures: Validation, lagging: Lagging) -> None:
        """Leave the race, and the model with its counts to be forgotten."""
        entry = self.entry(figures, lagging.score.seconds)
        self.lost = replace(entry, dropped=str(lagging), model=None)
        self.behind, self.model, self.scorers = lagging.best, None, []

    def entry(self, figures: Validation, seconds: float) -> Entry:
        """Return what the leaderboard says of the model."""
        parameters = MOST + 1 if self.of_arrays else self.model.n_parameters_
        return Entry(
            self.name,
            figures=figures,
            model=self.model,
            fit_seconds=self.fit_seconds,
            predict_seconds=seconds,
            memory=self.memory,
            parameters=parameters if parameters <= MOST else None,
        )


def _check_leaves_out(runner: Runner) -> None:
    """Raise SchemaError where a model cannot score rows without themselves."""
    if runner.of_arrays:
        raise SchemaError(
            "leave_one_out takes counts apart, and an estimator of arrays has none: use k_fold"
        )
    kind_of(runner.make())


def _name_of(rule: Any) -> Way:
    """Return what a rule by which columns are cut is called: equal rules alike."""
    with suppress(SchemaError):  # of what is no rule the model itself says so
        rule = jsonable(rule)
    return repr(rule)


def _names(runners: Sequence[Runner]) -> str:
    return ", ".join(runner.name for runner in runners)


def has_gaps(stats: Statistics) -> bool:
    """Return whether a value is missing, of categories or of bins."""
    values = stats.values
    return bool(values.counts[values.offsets[1:] - 1].any())


def without_columns(batch: Batch) -> Batch:
    """Return rows of which nothing but their class and weight is known."""
    return replace(batch, codes=(), missing=batch.missing[:0], numeric=())


def reading_by(**options: Any) -> dict[str, Any]:
    """Return which options say how rows are read, picks as lists that can be read twice."""
    said = {name: value for name, value in options.items() if value is not None}
    picks = said.keys() & {"categorical", "columns", "exclude"}
    return said | {name: several(said[name], name) for name in picks}


class ComparisonRunner:
    """Models on the same rows: counted together, scored together.

    The rows are `opened` with folds if they are to be scored by these; `width` is how many columns
    they have where these have no names, those of an array; `whole` is what the models are for, and
    `reading` the options of models by which the rows were opened.
    """

    def __init__(
        self,
        opened: Opened,
        discretize: Any,
        threads: int | None,
        memory_limit: int | None,
        progress: Progress | None,
        *,
        loss: Any = None,
        race: bool = True,
        width: int | None = None,
        whole: str = "a comparison",
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        self.opened = opened
        self.loss, self.racing = loss, race
        self.race: Race | None = None
        self.rows: RowEncoding
        self.figures: Callable[[Runner, Score], Validation]
        self.width, self.whole, self.reading = width, whole, reading or {}
        # How a model is asked for that would take long.
        self.ask = f"name it, or say models={ALL!r}"
        self.limits = {} if memory_limit is None else {"memory_limit": memory_limit}
        self.options: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
        self.progress = progress
        self.seconds: dict[str, float] = {}
        features = opened.learning().features
        self.numbers = [feature.name for feature, book in features if book is None]
        self.n_numbers = len(self.numbers)
        self.categorical = self.n_numbers < len(features)
        self.n_read = 0
        # The rule of each way in which numeric columns are cut; that of all models first.
        self.shared = _name_of(discretize)
        self.rules = {self.shared: discretize}
        # The numeric columns that stay numbers in a way in which others are bins.
        self.uncut: dict[Way, set[str]] = {}
        self.tallies: list[SharedTally] = []
        # What is known of each way: cut points and counts of all rows, and how rows are seen.
        self.cuts: dict[Way, Any] = {}
        self.seen: dict[Way, Statistics] = {}
        self.takes: dict[Way, list[View]] = {}

    def suits(self, candidate: Candidate) -> bool:
        """Return whether the columns allow a candidate."""
        return not candidate.of_numbers or (
            self.n_numbers > 0 and not (candidate.when == "all_numeric" and self.categorical)
        )

    def not_a_number(self) -> str:
        """Return why a model of numbers alone does not suit the columns."""
        features = self.opened.learning().features
        name = next(feature.name for feature, book in features if book is not None)
        return f"column {name!r} is categorical, and this model takes numbers alone: exclude such"

    def way_of(self, model: Any) -> Way:
        """Return how a model sees numeric columns, which is in bins or not.

        It is in those of all models where it has no cut points of its own, or asks for "mdl" of
        all columns.
        """
        if not model._discretizes:
            return NUMBERS
        options = model.get_params(deep=False)
        if "discretize" not in options:
            return self._way_of_some(model)
        if not self.n_numbers:
            return self.shared
        rule = options["discretize"]
        way = self.shared if _name_of(rule) == _name_of("mdl") else _name_of(rule)
        self.rules.setdefault(way, rule)
        return way

    def _way_of_some(self, model: Any) -> Way:
        """Return how a model sees numeric columns that itself says which of them are bins."""
        if (to_cut := model._to_cut(self.opened.learning())) is None:
            return NUMBERS
        rule = to_cut[1]
        if all(isinstance(rule.get(n), str) and rule[n] == "mdl" for n in self.numbers):
            return self.shared
        uncut = {name for name in self.numbers if name not in rule}
        # Of those that stay numbers there is nothing to be learned, as of given cut points.
        whole = {**rule, **{name: [] for name in uncut}}
        way = f"{_name_of(whole)} but {sorted(uncut)}"
        self.rules[way], self.uncut[way] = whole, uncut
        return way

    def _cut_alone(self, way: Way, cuts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cut points of the columns that are bins in a way."""
        uncut = self.uncut.get(way, ())
        return {name: points for name, points in cuts.items() if name not in uncut}

    # -- counting and fitting ------------------------------------------------------------------

    def enter(self, wanted: Sequence[Runner]) -> None:
        """Count all rows for every model."""
        opened = self.opened
        self.runners = list(wanted)
        # What is not known yet is taken to be little.
        width = len(opened.learning().features)
        self._check_cost(opened.source.n_rows or 0, lambda _: [1] * width, 1)
        if opened.folds is None:
            for runner in self.runners:
                runner.attempt(_check_leaves_out)
        start = time.perf_counter()
        self._cut()
        if self.n_numbers and self.cuts:
            self.seconds["cut points"] = time.perf_counter() - start
        start = time.perf_counter()
        stage(self.progress, "counting")
        first = self._tally(self.shared, both=True)
        self._count(first)
        assert first.stats is not None
        self.stats = first.stats
        self.seconds["counting"] = time.perf_counter() - start
        check_learnable(self.stats, self.opened.source.description)
        remark(self.stats)
        if not (has_gaps(self.stats) and self.stats.schema.missing == "marginalize"):
            self.runners = [runner for runner in self.runners if not runner.of_gaps]
        # The domains are known now: what stands in a dictionary alone does not come to them.
        self.opened = opened = opened._replace(source=opened.source.coded())
        self.views = Views(self.stats.schema)
        for way in first.ways:
            self.takes[way] = [self.views.batches(bins=way != NUMBERS)]

        def sizes(way: Way) -> list[int]:
            schema = self.views.numbers if way == NUMBERS else self.views.bins
            return [feature.size for feature in schema.features]

        self._check_cost(opened.source.n_rows or self.stats.n_rows, sizes, len(self.classes))
        self._ask(first)
        start = time.perf_counter()
        for way in dict.fromkeys(runner.way for runner in self._ours()):
            if way not in first.ways:
                self._count_way(way)
        self.seconds["counting"] += time.perf_counter() - start

    def _cut(self) -> None:
        """Learn the cut points of all ways from one scan."""
        opened, learning = self.opened, self.opened.learning()

        def check(runner: Runner) -> None:
            learned_columns(opened.source, learning, self.rules[runner.way])

        for runner in self._ours():
            if runner.way not in (NUMBERS, self.shared):
                runner.attempt(check)
        ways = dict.fromkeys(runner.way for runner in self._ours() if runner.way != NUMBERS)
        by_rows = [way for way in ways if learned_cuts(learning, self.rules[way])]
        if ways:
            stage(self.progress, "cut points")
        for some in ([way for way in ways if way not in by_rows], by_rows):
            rules = [self.rules[way] for way in some]
            try:
                found = cuts_by_rules(
                    opened.source, learning, rules, progress=self.progress, **self.options
                )
            except MemoryLimitError as error:
                logger.info("%s; going on without bins", error)
                for runner in self.runners:
                    runner.reason = runner.reason or str(error) * (runner.way in some)
            else:
                self.cuts |= {
                    way: self._cut_alone(way, cuts)
                    for way, (cuts,) in zip(some, found, strict=True)
                }

    def _tally(self, way: Way, *, both: bool = False) -> SharedTally:
        """Begin what is counted for models that see numeric columns in a way."""
        learned = way in self.cuts and learned_cuts(self.opened.learning(), self.rules[way])
        self.tallies.append(SharedTally(way, both, learned, besides=self.held()))
        self._ask(self.tallies[-1])
        return self.tallies[-1]

    def _ask(self, tally: SharedTally) -> None:
        """Have a tally count what several of its models need; later less of it, never more."""
        first = tally.stats is None
        ours = [runner.make() for runner in self._of(tally)]
        needed = {name for model in ours for name in model._statistics}
        some = [name for name in OF_NUMBERS if first or name in tally.of_numbers]
        tally.of_numbers = [name for name in some if name in needed]
        tally.pairs = (first or tally.pairs) and any(isinstance(m, OneDependence) for m in ours)
        tally.cells = (tally.both if first else tally.cells) and needed.issuperset(OF_CELLS)

    def _of(self, tally: SharedTally) -> list[Runner]:
        """Return the models that stand and see numeric columns as a tally counts them."""
        return [runner for runner in self._ours() if runner.way in tally.ways]

    def _count_way(self, way: Way) -> None:
        """Count all rows for models that cut numeric columns otherwise than the others."""
        tally = self._tally(way)
        runners = self._of(tally)
        stage(self.progress, f"counting for {_names(runners)}")
        try:
            self._count(tally)
            assert tally.stats is not None
            self.takes[way] = [self._view(tally.stats)]
        except (FastBayesError, ValueError) as error:
            self.tallies.remove(tally)
            for runner in runners:
                runner.reason = str(error)

    def _view(self, stats: Statistics) -> OtherBins:
        """Return what makes of rows as they are encoded those in the bins of some counts."""
        rows = MemberRows(self.views.numbers, stats.schema)
        return OtherBins(self.views.batches(bins=False), rows)

    def repeated(self) -> AbstractContextManager[None]:
        """Return the context in which kernels are chosen by how often the rows come."""
        return dispatch.repeated(self._times)

    @property
    def _times(self) -> int:
        """How often the rows come: all of them, and those without each fold, as far as known."""
        folds = self.opened.folds
        return 1 if folds is None else 1 + len(folds.names()[0])

    def _check_cost(
        self, n_rows: float, sizes: Callable[[Way], Sequence[int]], n_classes: int
    ) -> None:
        """Leave out models that were not asked for by name and would take long.

        `sizes` are the numbers of values of columns, as models see these.
        """
        times, most = self._times, UNASKED + UNASKED_ROW * n_rows
        for runner in self.standing():
            if runner.seconds is None:
                continue
            numbers = self.n_numbers if runner.way == NUMBERS else 0
            seconds = times * runner.seconds(n_rows, sizes(runner.way), n_classes, numbers)
            if seconds > most:
                runner.reason = (
                    f"would take about {seconds:,.0f} s, and unasked a model may take {most:,.0f} "
                    f"s of so many rows: {self.ask}"
                )

    def _count(self, tally: SharedTally) -> None:
        rows = self.opened.source, self.opened.learning
        try:
            tally.stats = self._scan(tally, *rows, self.cuts, whole=True)
        except MemoryLimitError as error:
            if not (tally.pairs or tally.of_numbers):
                raise
            tally.pairs, tally.of_numbers = False, []
            logger.info("%s; models that need them count by themselves", error)
            tally.stats = self._scan(tally, *rows, self.cuts, whole=True)
        self.seen |= tally.seen(tally.stats)

    def _scan(
        self,
        tally: SharedTally,
        source: Any,
        learning: Callable[..., Encoder],
        cuts: Mapping[Way, Any],
        *,
        whole: bool,
    ) -> Statistics:
        read: list[int] = []

        def progress(rows: int) -> None:
            read.append(rows)
            if self.progress is not None:
                self.progress(rows)

        encoder = tally.encoder(learning, cuts)
        # In cut points of all rows folds are of no use to models that learn others without each.
        by_folds = whole and (tally.both or not tally.learned)
        found = engine.scan(
            source,
            encoder,
            tally.counted if whole else tally.counted_without(encoder),
            progress=progress,
            folds=self.opened.folds if by_folds else None,
            besides=tally.besides,
            **self.options,
        )
        if whole:
            # Some may be read more than once.
            self.n_read = sum(read) if source.n_rows is None else source.n_rows
        return found

    def _fit(self, runner: Runner) -> None:
        start, rows = time.perf_counter(), (self.opened.source, self.opened.learning)
        stage(self.progress, f"fitting {runner.name}")
        counted = self.seen[runner.way] if runner.counted is None else runner.counted
        seen = self._seen_by(runner, counted)
        runner.model = self._trained(runner, seen, *rows, self.cuts)
        runner.fit_seconds = time.perf_counter() - start
        parts = runner.model.statistics_.parts
        runner.memory = sum(parts[name].nbytes for name in runner.model._statistics)

    def _seen_by(self, runner: Runner, counted: Statistics) -> Statistics:
        """Return counts of all columns, or of none for a model that sees none.

        What a missing value is to the model changes nothing in the counts.
        """
        if not runner.bare:
            return counted.treating_missing(runner.make()._counts_missing)
        parts = {name: counted.parts[name] for name in ("values", "moments")}
        counted = replace(counted, parts=parts, folds=(), fold_names=())
        return counted.aligned(replace(counted.schema, features=()))

    def _trained(
        self,
        runner: Runner,
        have: Statistics,
        source: Any,
        learning: Callable[..., Encoder],
        cuts: Mapping[Way, Any],
    ) -> Any:
        """Return the model fitted to rows that were counted; it scans for what was not."""
        model: Classifier = runner.make().set_params(**self.limits)
        if runner.way != NUMBERS and runner.way not in self.uncut:
            model._set_rule(self.rules[runner.way], cuts.get(runner.way, {}))
        model._check_parameters()
        model._check_suits(have, self.whole)
        # Fitted to other rows, or to the same again, it is to read them as it does here: options of
        # its own agree, and may say less.
        model.set_params(**self.reading)
        learning = partial(learning, missing=model._counts_missing)
        known: dict[str, Any] = {
            "besides": self.held,
            "n_rows": round(self.n_read * have.n_rows / self.stats.n_rows),
            "last": source is not self.opened.source,
        }
        given: Any = (source, learning, cuts.get(runner.way), [], True, self.progress)
        scans = CountedScans(*given, **known, have=have)
        stats = model._scanned(scans)
        model._learned(stats)
        names, n_features = model._features_of(stats)
        model._set_features(*((names, n_features) if self.width is None else (None, self.width)))
        return model

    def _without(self, runner: Runner, rest: Statistics, *rows: Any) -> LooScorer:
        """Return a model fitted without a fold, of which nothing is said but how it scores.

        Kernels are chosen as for all rows: those that these take are loaded.
        """
        share = self.stats.n_rows / rest.n_rows if rest.n_rows else 1.0
        with unsaid(), dispatch.repeated(share):
            fitted = Fitted(self._trained(runner, self._seen_by(runner, rest), *rows))
        if (limit := self.options["memory_limit"]) is not None:
            held = self.held(fitted.model)
            # Those of the folds to come take about as much as this one.
            left = len(self.stats.fold_names) - len(runner.scorers) - 1
            check_models_held(held + left * (held - self.held()), limit)
        return fitted

    def _alone(self) -> list[Runner]:
        """Return the models that take a scan of their own."""
        have = {way: stats.parts.keys() for way, stats in self.seen.items()}
        return [r for r in self._ours() if not have[r.way] >= set(r.make()._statistics)]

    def _fitted(self, some: Sequence[Runner], scorers: Callable[[Runner], list[Any]]) -> None:
        """Fit models and race them: those that take a scan of their own meet all others."""
        alone = [runner for runner in self._alone() if runner in some]
        together = [runner for runner in some if runner not in alone]
        for runners in (together, *([runner] for runner in alone)):
            for runner in runners:
                if runner in alone:
                    runner.attempt(self._count_folds)
                runner.attempt(self._fit)
                runner.attempt(scorers)
                runner.counted = None
            self._raced(runners)

    def _count_folds(self, runner: Runner) -> None:
        """Count what a model alone needs by folds, in one scan, where it learns from counts."""
        model, folds, learning = runner.make(), self.opened.folds, self.opened.learning
        if folds is None or runner.counted is not None:
            return
        if not learns_by_subtraction(model, learning()):
            return
        stage(self.progress, f"counting for {runner.name}")
        try:
            runner.counted = engine.scan(
                self.opened.source,
                learning(cuts=self.cuts.get(runner.way)),
                model._statistics,
                folds=folds,
                progress=self.progress,
                besides=self.held(),
                **self.options,
            )
        except MemoryLimitError as error:
            logger.info("%s; each fold is left out in scans of its own", error)

    def _fit_estimators(self) -> None:
        """Fit the estimators of arrays to all rows, and without each fold, from memory."""
        runners = [runner for runner in self.standing() if runner.of_arrays]
        if not runners:
            return
        source, schema = self.opened.source, self.views.numbers
        columns, held = FeatureMatrix(schema), list[HeldRows]()
        stage(self.progress, "reading rows for estimators of arrays")

        def read(_: Runner) -> None:
            if isinstance(source, Counter):
                raise DataError(
                    "workers read the rows, and an estimator of arrays learns from rows in memory "
                    "here: pass the paths themselves"
                )
            limit = self.options["memory_limit"]
            check_room(source.n_rows or self.stats.n_rows, columns.n, limit, self.held())
            held.append(
                held_rows(
                    *(source, self.rows, self.views.batches(bins=False), columns),
                    weighted=self.opened.weight is not None,
                    threads=self.options["threads"],
                    progress=self.progress,
                )
            )

        def fit(runner: Runner) -> list[Any]:
            rows, model, start = held[0], runner.make(), time.perf_counter()
            stage(self.progress, f"fitting {runner.name}")
            runner.model = fitted(model, rows.of(rows.fold >= 0), self.classes)
            runner.fit_seconds = time.perf_counter() - start
            folds = range(len(self.stats.fold_names))
            rests = (fitted(model, rows.of(rows.fold != f), self.classes) for f in folds)
            return [ArrayScorer(rest, columns, self.classes) for rest in rests]

        runners[0].attempt(read)
        for runner in runners:
            runner.reason = runners[0].reason if not held else runner.reason
            runner.attempt(fit)
        self._raced(runners)

    # -- scoring -------------------------------------------------------------------------------

    def by_leaving_out(self) -> list[Entry]:
        """Score every row by the counts without it."""

        def figures(runner: Runner, score: Score) -> Validation:
            fixed = runner.scorers[0].fixed
            return validation(score.figures(), method="leave-one-out", fixed=fixed)

        self.rows, self.figures = encoding_of(self.opened, [self.stats.schema]), figures
        self._fitted(self._ours(), lambda r: [loo_scorer(r.model)])
        return self._entries()

    def by_folds(self) -> list[Entry]:
        """Score the rows of each fold by models of the other folds."""
        names = self.stats.fold_names

        def figures(runner: Runner, score: Score) -> Validation:
            return of_folds(score, self.classes, names, self.loss, self.opened.source.description)

        self.figures = figures
        self.fit_by_folds()
        return self._entries()

    def fit_by_folds(self, trial: Callable[[Schema], None] | None = None) -> None:
        """Fit every model to all rows, and without each fold.

        `trial` is called with the schema of the models without the first fold, once there are none
        but these: a model that is given a `reason` then is fitted no further.
        """
        scans, start = FoldScans(self.opened, self.stats), time.perf_counter()
        learned = [tally for tally in self.tallies if tally.learned]
        cuts, schemas = self._cuts_by_folds(scans, learned), list[Schema]()
        for way in (tally.way for tally in learned if not tally.both):
            self.takes[way] = []
        apart = {
            way: training(self.seen[way])
            for way in {runner.way for runner in self._ours()}
            if not any(way in tally.ways for tally in learned)
        }

        def without(runner: Runner, most: int | None = None) -> list[Any]:
            """Return the models without the first folds, learned from all but their counts."""
            own = runner.counted
            rests = apart[runner.way] if own is None else training(own)
            for fold in range(len(runner.scorers), len(rests) if most is None else most):
                rest = rests[fold]
                scorer = self._without(runner, rest, *scans.of(fold), self.cuts)
                runner.scorers = [*runner.scorers, scorer]
            return runner.scorers

        def subtracted() -> list[Runner]:
            return [runner for runner in self._ours() if runner.way in apart]

        if trial is not None:
            for runner in self._alone():
                if runner.way in apart:
                    runner.attempt(self._count_folds)
            for runner in subtracted():
                runner.attempt(partial(without, most=1))
        for fold in range(len(scans.names)) if learned else []:
            schemas.append(self._learn_without(fold, learned, scans, cuts[fold]))
            if trial is not None and not fold:
                trial(schemas[0])
                for tally in learned:
                    self._ask(tally)
        if learned:
            self.seconds["counting folds"] = time.perf_counter() - start
        elif trial is not None:
            trial(self.stats.schema)
        by_rows = [runner for runner in self._ours() if runner.way not in apart]
        for runner in by_rows:
            runner.attempt(self._fit)
        same = not self.tallies[0].learned
        self.rows = encoding_of(self.opened, [self.stats.schema] if same else schemas)
        self._raced(by_rows)
        self._fitted(subtracted(), without)
        self._fit_estimators()

    def contestant(self, runner: Runner, summary: Callable[[], Any] | None = None) -> Contestant:
        """Return a model as it is scored; `summary` gives what sums its posteriors up."""
        n, views = len(runner.scorers), self.takes[runner.way]
        if runner.bare:
            views = [without_columns]
        # The same of all folds, or one for each.
        views = views * n if len(views) < n else views
        return Contestant(self.classes, runner.scorers, views, summary=summary)

    def _raced(self, runners: Sequence[Runner]) -> None:
        """Have models join the race, and drop those that a sample shows to lose."""
        if not (self.racing and runners) or len(self.standing()) < 2:
            return
        start = time.perf_counter()
        stage(self.progress, "race")
        if self.race is None:
            given = self.opened, self.stats, *self.options.values(), self.progress
            if (sample := race_sample(*given)) is None:
                self.racing = False
                return
            source = self.opened.source
            rows = replace(self.rows, folds=sample.folds)
            parts = rows.parts(source.schema, source.n_rows)
            self.race = Race(sample, parts, len(self.runners), self.loss, self.options["threads"])
        for runner in runners:
            if runner.stands:
                self.race.enter(runner.name, self.contestant(runner))
        found = {lagging.name: lagging for lagging in self.race.run()}
        for runner in self.runners:
            if (lagging := found.get(runner.name)) is not None:
                runner.drop(self.figures(runner, lagging.score), lagging)
            runner.fail(self.race.errors.get(runner.name))
        self.seconds["race"] = self.seconds.get("race", 0.0) + time.perf_counter() - start

    def _cuts_by_folds(
        self, scans: FoldScans, tallies: Sequence[SharedTally]
    ) -> list[dict[Way, dict[str, Any]]]:
        """Return for each fold the cut points of tallies that learn them without it, by way."""
        if not tallies:
            return []
        stage(self.progress, "cut points of folds")
        rules = [self.rules[tally.way] for tally in tallies]
        found = cuts_by_folds(
            scans, lambda encoder: (encoder, rules), progress=self.progress, **self.options
        )
        ways = [tally.way for tally in tallies]
        return [
            {way: self._cut_alone(way, points) for way, points in zip(ways, cuts, strict=True)}
            for cuts in zip(*found, strict=True)
        ]

    def _learn_without(
        self,
        fold: int,
        tallies: Sequence[SharedTally],
        scans: FoldScans,
        cuts: Mapping[Way, dict[str, Any]],
    ) -> Schema:
        """Count all rows but those of a fold, and fit the models that see them so.

        Return the schema by which the rows of the fold are encoded.
        """
        given, schema = (*scans.of(fold), cuts), self.stats.schema
        without = f"counting without fold {fold + 1} of {len(scans.names)}"
        for tally in tallies:
            if not (runners := self._of(tally)):
                continue
            name = without if tally.both else f"{without} for {_names(runners)}"
            stage(self.progress, name, self._rows_without(fold))
            try:
                rest = self._scan(tally, *given, whole=False)
            except MemoryLimitError as error:
                if not tally.cells:
                    raise
                tally.cells = False
                logger.info("%s; a model that needs them counts by itself", error)
                rest = self._scan(tally, *given, whole=False)
            if tally.both:
                schema = rest.schema
            else:
                self.takes[tally.way].append(self._view(rest))
            seen = tally.seen(rest)

            def learn(runner: Runner, seen: Any = seen) -> list[Any]:
                return [*runner.scorers, self._without(runner, seen[runner.way], *given)]

            for runner in runners:
                runner.attempt(learn)
        return schema

    def _rows_without(self, fold: int) -> int | None:
        """Return how many rows are read without a fold, where the counts tell."""
        stats = self.stats
        if stats.weighted or stats.dropped_rows:
            return None
        return int(stats.n_rows - stats.folds[fold].n_rows)

    @property
    def classes(self) -> NDArray[Any]:
        """The labels, (n_classes,)."""
        return self.stats.schema.class_labels

    def _entries(self) -> list[Entry]:
        """Score all rows by all models in one scan."""
        if not (standing := self.standing()):
            return []
        limit, source = self.options["memory_limit"], self.opened.source
        weighted, held = self.opened.weight is not None, self.held()
        n_folds = max(len(runner.scorers) for runner in standing)
        share = RanksShare.within(
            *(source, limit, len(self.classes), len(standing), n_folds),
            weighted=weighted,
            besides=held,
        )
        # Ranking millions of scores takes as long as making them.
        threads = min(share.ranking, resolved_threads(self.options["threads"]))

        def entry(one: tuple[Runner, Score]) -> Entry:
            return one[0].entry(self.figures(*one), one[1].seconds)

        entries: list[Entry] = []
        pairs: dict[tuple[str, str], float] = {}
        start = time.perf_counter()
        for first in range(0, len(standing), share.models):
            runners = standing[first : first + share.models]
            contestants = [self.contestant(runner) for runner in runners]
            stage(self.progress, f"scoring {len(runners)} models")
            found, _ = scores(
                source,
                self.rows,
                contestants,
                loss=self.loss,
                **self.options,
                progress=self.progress,
                strict=False,
                paired=True,
                weighted=weighted,
                besides=held,
            )
            pairs |= squares(runners, found)
            for runner, contestant in zip(runners, contestants, strict=True):
                runner.fail(contestant.error)
            scored = [both for both in zip(runners, found, strict=True) if both[0].stands]
            done = stage(self.progress, "ranking", len(scored), "models")
            with closing(in_order(entry, scored, threads)) as made:
                for one in made if limit is None else releasing(made):
                    entries.append(one)
                    done(1)
            del found, scored
        entries = self._with_gaps(entries, pairs) if entries else entries
        self.seconds["scoring"] = time.perf_counter() - start
        return entries

    def _with_gaps(
        self, entries: Sequence[Entry], pairs: dict[tuple[str, str], float]
    ) -> list[Entry]:
        """Return the entries with how far behind the winner they are; `pairs` are `squares`."""
        best = ranked(entries)[0]
        apart = [e.name for e in entries if (e.name, best.name) not in pairs]
        if apart:  # those that were scored in other scans: once more, beside the winner
            runners = [r for r in self.standing() if r.name in (best.name, *apart)]
            stage(self.progress, f"scoring {len(runners)} models")
            found, _ = scores(
                self.opened.source,
                self.rows,
                [self.contestant(runner) for runner in runners],
                **self.options,
                progress=self.progress,
                ranks=False,
                paired=True,
                besides=self.held(),
            )
            pairs |= squares(runners, found)
        return [
            replace(e, gap=gap, gap_error=standard_error(square, gap, self.stats.n_rows))
            for e in entries
            for gap in (figures_of(e).log_loss - figures_of(best).log_loss,)
            for square in (pairs[e.name, best.name],)
        ]

    def _winners_by_others(self, entries: Sequence[Entry]) -> list[Runner]:
        """Return for each fold the model of least log-loss on the rows of all other folds.

        Of equals the first of the entries; without folds there is none.
        """
        runners, found = {runner.name: runner for runner in self.runners}, []
        for fold in self.stats.fold_names:
            best, least = "", math.inf
            for entry in entries:
                others = (f for name, f in figures_of(entry).folds.items() if name != fold)
                lost = sum(f.n * f.log_loss for f in others)
                if not best or lost < least * (1 - SAME):
                    best, least = entry.name, lost
            found.append(runners[best])
        return found

    def _with_temperature(self, entry: Entry, entries: Sequence[Entry]) -> Entry:
        """Return the winner, its posteriors mapped by a temperature; its figures are those before.

        Shares of classes need none, and of an estimator of arrays there is no `Calibrated`.
        """
        (runner,) = (runner for runner in self.runners if runner.name == entry.name)
        if runner.bare or runner.of_arrays:
            return entry
        start = time.perf_counter()
        of_winner = MODELS["Calibrated"].load()._of_winner
        by_fold = self._winners_by_others(ranked(entries))
        model, calibrated = of_winner(self, runner, by_fold, figures_of(entry).fixed)
        self.seconds["temperature"] = time.perf_counter() - start
        temperature = model.calibration_.temperature
        return replace(entry, model=model, temperature=temperature, calibrated=calibrated)

    def held(self, *more: Any) -> int:
        """Return about how many bytes are held so far: counts, tables of models, and the race.

        Models without a fold, and `more` of them, count from where they exceed what is free.
        """
        models = [runner.model for runner in self._ours() if runner.model is not None]
        scorers = [scorer for runner in self._ours() for scorer in runner.scorers]
        without = [scorer.model for scorer in scorers if isinstance(scorer, Fitted)]
        counted = [tally.stats for tally in self.tallies if tally.stats is not None]
        bundles = [*counted, *(model.statistics_ for model in models)]
        parts = {id(part): part for stats in bundles for part in stats.parts.values()}
        race = 0 if self.race is None else self.race.nbytes
        beyond = max(held_by([*without, *more]) - SLACK, 0)
        return race + beyond + 2 * sum(part.nbytes for part in parts.values())

    def standing(self) -> list[Runner]:
        """Return the models that may win."""
        return [runner for runner in self.runners if runner.stands]

    def _ours(self) -> list[Runner]:
        """Return the models of tables that may win."""
        return [runner for runner in self.standing() if not runner.of_arrays]

    def misled(self) -> bool:
        """Return whether models were dropped for one that then could not score all rows."""
        failed = {runner.name for runner in self.runners if runner.reason}
        return any(runner.behind in failed for runner in self.runners)

    def none_left(self) -> DataError:
        """Return the error that no model can be used, with what each of them says."""
        shown = "; ".join(f"{runner.name}: {runner.reason}" for runner in self.runners)
        return DataError(f"{self.opened.source.description}: no model can be used: {shown}")

    def result(
        self, how: str, entries: Sequence[Entry], blended: Callable[[Sequence[str]], Any]
    ) -> Comparison:
        """Return the leaderboard."""
        if not entries:
            raise self.none_left()
        lost = [r.lost or Entry(r.name, r.reason) for r in self.runners if not r.stands]
        first, *others = ranked([*entries, *lost])
        return Comparison(
            (self._with_temperature(replace(first, winner=True), entries), *others),
            how,
            self.stats.n_rows,
            self.classes,
            self.seconds,
            blended,
        )


def squares(runners: Sequence[Runner], found: Sequence[Score]) -> dict[tuple[str, str], float]:
    """Return the sums of the squared differences of the log-losses of each two models of a scan."""
    return {
        (runner.name, other.name): square
        for runner, score in zip(runners, found, strict=True)
        if score.paired is not None
        for other, square in zip(runners, score.paired.squares.tolist(), strict=True)
    }


def compare(
    source: Any,
    target: Any,
    *,
    validation: str | None = None,
    models: Any = None,
    folds: Any = None,
    seed: int = 0,
    sample_weight: Any = None,
    loss: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Picks = None,
    discretize: Any = "mdl",
    missing: str = "marginalize",
    columns: Picks = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    race: bool = True,
) -> Comparison:
    """Judge every model on the same rows: one scan counts for all of them, one scores them all.

    Parameters
    ----------
    source
        As in `fastbayes.count`, to be read twice or more; of `engines` workers count and score.
    target
        Name of the class column or (n_rows,) labels. Rows without a class take no part.
    validation
        "k_fold", the default: each row is scored by models of the other folds, which learn all
        anew, cut points, structures and coefficients too. "leave_one_out": by the counts without
        it, in the cut points and structures of all rows, as `Entry.scored` says: by these a figure
        may promise too much. It is the default where workers read the rows and `folds` is not
        given: they know no folds by place.
    models
        Names out of "naive-bayes", "naive-bayes-bins", "naive-bayes-auto", "spode", "tan",
        "tan-quantile", "kdb", "aode", "aode-quantile", "aode-missing", "a2de", "joint-bayes",
        "joint-gaussian", "gaussian-bayes", "gaussian-bayes-tied", "weighted-naive-bayes",
        "logistic", "logistic-pairs", "network", and "prior", the shares of the classes
        ("naive-bayes" has numeric="student", "naive-bayes-auto" numeric="auto", "logistic"
        standardize=True, init="zeros" and tol=0.01, the two of Gaussian Bayes prior="niw", those of
        quantiles five bins; "logistic-pairs" has interactions="auto", bins, C=10 and tol=0.3, so
        that its fit stops where rounding still tells, and its figures depend on the order of
        columns, the names of classes and how rows are cut into files, of a few hundred rows by up
        to 3e-3 nats of log-loss; "aode-missing" has missing="category", and
        unasked takes part only where a value of a category or a bin is missing); unfitted models
        with parameters of their own; estimators of arrays by scikit-learn's protocol (see Notes);
        or {name: model}. All read the rows alike: `columns`, `exclude`, `categorical`, `domains`
        and `dates` are for `compare`, not for a model. "all" is all that the columns allow, and so
        is the default, but for models that would take long (see Notes).
    folds, seed
        As in `k_fold`; by default 20 folds of up to 100 rows, 10 of up to 1,000 and 5 of more: the
        fewer the rows, the more a model misses those of a fold. Of up to 20 rows as many as the
        smallest class has, from 3 to 10: else a row's own class lacks more of its rows than others.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    loss
        Loss matrix as in `decide`.
    domains, categorical, discretize, missing, columns, exclude, dates
        As in `fastbayes.count`.
    null_values, filesystem, threads
        As in `fastbayes.count`.
    memory_limit
        As in `fastbayes.count`. Models whose counts exceed it are listed with the reason. With less
        models are scored in several scans, some after others; where ranks of a single one do not
        fit, its AUC is that of histograms, with `auc_error`.
    progress
        Called with the number of rows done since the last call, in every scan. One that has a
        method `stage(name, total, unit)` is given the name of each stage when it begins, and of
        how many rows (or models, as the unit says) it is; None: of all rows.
    race
        Whether to drop a model once a sample of the rows has shown that it cannot win. Where
        workers read the rows none is.

    Returns
    -------
    Comparison
        The leaderboard; print it, or see its `table`. `best.model` is the winner, fitted to all
        rows, and `Calibrated` by a temperature; `best.model.model_` is without it. Models have as
        parameters the `domains`, `categorical`, `columns`, `exclude` and `dates` by which the rows
        were read.

    Raises
    ------
    DataError
        When the data cannot be used, or none of the models can be.
    SchemaError
        When the source can be read only once.
    ValueError
        When an option or the name of a model is unknown.

    Notes
    -----
    By default a model takes part that is expected to take 5 seconds of one processor at most, and
    10 more for each million rows. What it takes is estimated from the rows, the folds and the
    columns: models of pairs of columns and searches for a network grow with the square of their
    number, A2DE with its cube, and with what values are joint; models with a covariance of all
    numbers with the cube of theirs; the joint models with the rows that may differ, in categories
    or bins; "naive-bayes-auto" with each number, by much; A2DE, logistic and weighted models with
    the number of classes, too. Others are listed with the estimate.

    The counts of folds add, so that k-fold takes no more scans than leave-one-out, where columns
    are categories. Numeric columns take one scan more for cut points, and by folds one for those of
    all folds and one for the counts without each. A2DE takes one scan more, for triples, and so do
    the joint models, for cells, of all folds at once where columns are categories; KDB takes one
    for its families, and one without each fold. Models whose `discretize` is neither "mdl" nor
    that of `compare`, and naive Bayes with bins of some columns or cut points in `numeric`, have
    other bins: their cut points come from the same scans, and all models of the same bins share one
    more scan for counts, and one without each fold. Leave-one-out knows
    neither A2DE, nor logistic regression, nor weighted naive Bayes.

    The figures are those of the models as they are, and the winner is chosen by them. Its
    temperature comes from posteriors of each fold by the model that wins by the other folds, since
    the winner's own are better than those of new rows: of few rows the best of many models is in
    part the luckiest. It is 1 where another gains no more than a nat on all rows together: that is
    less than a parameter costs on new rows (Akaike's criterion). One more scan scores these models,
    and keeps 2,097,152 numbers at most, of more rows each k-th. An estimator of arrays has no
    temperature, nor has the prior.

    `Entry.gap_error` is the standard error of the difference to the winner's log-loss, from the
    differences row by row. A probability below 1e-15 counts as that in a log-loss, which therefore
    is finite; the leaderboard says of how many rows.

    An estimator of arrays (`fit`, `predict_proba`, `classes_`) is given a column of float64 for
    each feature, in the order of the columns: numbers as they are, categorical values as their
    places among the sorted values of the column, from 0, and NaN for what is missing. The rows are
    held in memory for it, and `model` is fitted to such columns. Weights go to its `sample_weight`.
    What it raises is the reason in its row.

    From 131,072 rows on the models race: one scan draws a random sample of the rows, at most an
    eighth and 262,144 of them, and of 8,192, 16,384, ... of these all models are scored that are
    still in the race. One whose log-loss on the same rows is higher than the best one's, by a test
    that errs with a probability below 0.001 for all models and rounds together, is dropped: it is
    listed with its figures on the sample, and forgotten. The others are scored on all rows, as with
    race=False, to the same figures.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": [*"0011"] * 10, "b": [*"0101"] * 10, "y": [*"nppn"] * 10}
    >>> board = fb.compare(table, "y", models=["naive-bayes", "tan", "aode", "prior"])
    >>> [(entry.name, entry.figures.accuracy) for entry in board.entries[:2]]
    [('aode', 1.0), ('tan', 1.0)]
    >>> board["tan"].gap < board["prior"].gap, board["tan"].scored
    (True, '20 folds')
    """
    if validation not in (None, "leave_one_out", "k_fold"):
        raise ValueError(f"validation={validation!r}: use 'leave_one_out' or 'k_fold'")
    if folds is not None and validation == "leave_one_out":
        raise ValueError("validation='leave_one_out' has no folds: leave one of the two out")
    number = number_of_folds(folds)
    require_labels("compare", target)
    reading = reading_by(
        domains=domains, categorical=categorical, columns=columns, exclude=exclude, dates=dates
    )
    how: dict[str, Any] = {**reading, "missing": missing, "threads": threads}
    opened = opened_to_learn(
        source,
        target,
        folds=folds if number is None else None,
        sample_weight=sample_weight,
        null_values=null_values,
        filesystem=filesystem,
        again="compare counts and then scores",
        **how,
    )
    elsewhere = isinstance(opened.source, Counter)
    by_default = folds is None and (validation == "k_fold" or not (validation or elsewhere))
    if by_default or number is not None:
        apart = folds_apart(opened.source, str(opened.target), number, seed, opened.weight)
        opened = opened._replace(folds=with_folds(opened.source, apart)[1])
    by_folds, width = opened.folds is not None, array_width(source)

    def judged(race: bool) -> tuple[ComparisonRunner, list[Entry]]:
        contest = ComparisonRunner(
            *(opened, discretize, threads, memory_limit, progress),
            loss=loss,
            race=race,
            width=width,
            reading=reading,
        )
        with contest.repeated():
            contest.enter(wanted(models, contest, missing))
            return contest, contest.by_folds() if by_folds else contest.by_leaving_out()

    contest, entries = judged(race)
    if contest.misled():
        logger.info("a model for which others were dropped cannot score all rows: judging them all")
        contest, entries = judged(False)
    options = {**how, "race": race, "discretize": discretize, "memory_limit": memory_limit}
    members = {runner.name: runner.given for runner in contest.runners if not runner.of_arrays}
    rows, where = None if elsewhere else opened, opened.source.description
    blended = Blending(rows, where, members, options, width, progress)
    return contest.result("k-fold" if by_folds else "leave-one-out", entries, blended)


@dataclass(frozen=True)
class Blending:
    """What a board makes a blend of its models with; a value, so that it pickles with the board.

    opened    the rows, with folds where the board has them; None where workers read them
    where     what messages call the rows
    members   models of tables by name, as they were asked for
    options   parameters of `Blend`
    width     how many columns rows without names of columns have, those of an array
    progress  called with the number of rows done; it does not leave the process
    """

    opened: Opened | None
    where: str
    members: Mapping[str, Any]
    options: Mapping[str, Any]
    width: int | None
    progress: Progress | None

    def __call__(self, names: Sequence[str]) -> Any:
        """Return a blend of some of the models."""
        if self.opened is None:
            raise DataError(
                f"{self.where}: workers read the rows, and a blend learns from posteriors of rows "
                "here: pass the paths themselves"
            )
        able = {n: self.members[n] for n in names if self.members.get(n, PRIOR) != PRIOR}
        if not able:
            raise DataError(
                f"{self.where}: a blend combines models of tables, and of those that compete there "
                f"are {', '.join(map(repr, names))} alone: compare others, too"
            )
        blend = by_name()["blend"].load()(able, **self.options)
        blend._check_parameters()
        opened = self.opened
        if opened.folds is None:
            given = opened.source, str(opened.target), opened.weight
            opened = opened._replace(folds=blend.apart(*given))
        return blend.learn(opened, width=self.width, progress=self.progress)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled."""
        return {**self.__dict__, "progress": None}


def wanted(
    models: Any,
    contest: ComparisonRunner,
    missing: str,
    *,
    tables: bool = False,
    unasked: bool = False,
) -> list[Runner]:
    """Return the models that are to take part.

    tables   Classifiers of tables alone: they are the members of a blend.
    unasked  Nobody has asked for them by name: those that would take long are left out.
    """
    known, what = candidates(), "members" if tables else "models"
    names = [*known] if tables else [*known, PRIOR]
    every = models is None or (isinstance(models, str) and models == ALL)
    unasked, by_name = unasked or models is None, not (unasked or every)
    if every:
        # Models of numbers are listed where there are some, with the reason if there is more.
        models = [n for n, (_, c) in known.items() if not c.of_numbers or contest.n_numbers]
        models += names[len(known) :]
    found: dict[str, Runner] = {}
    for name, model in named_models(models, what):
        given = Runner("", partial(_itself, model), given=model)
        if isinstance(model, str):
            if model not in names:
                raise ValueError(f"{what}: {model!r}: {use_one_of(model, names)}")
            entry, candidate = known["naive-bayes" if model == PRIOR else model]
            given.make = partial(entry.load(), **{"missing": missing, **candidate.parameters})
            given.way = contest.way_of(given.make())
            given.bare, name = model == PRIOR, name or model
            given.seconds = candidate.seconds if unasked else None
            given.of_gaps = candidate.when == "gaps" and not by_name
            if not contest.suits(candidate) and contest.n_numbers:
                given.reason = contest.not_a_number()
        elif isinstance(model, Classifier):
            name = name or repr(model)
            try:
                given.way = contest.way_of(model)
            except ValueError as error:  # a SchemaError is one
                given.reason = str(error)
            given.make = partial(type(model), **model.get_params(deep=False))
        elif isinstance(model, BayesianNetwork):
            raise ValueError(
                f"{what}: a BayesianNetwork has no class of its own: use NetworkClassifier"
            )
        elif isinstance(model, TableRows):
            instead = (
                "a blend weighs and calibrates what it combines"
                if tables
                else "the winner is calibrated, and `blend` of the result combines them"
            )
            raise ValueError(
                f"{what}: {type(model).__name__} is made of other models, which are to be named: "
                f"{instead}"
            )
        elif is_estimator(model) and not tables:
            given.of_arrays, name = True, name or type(model).__name__
        else:
            arrays = "" if tables else ", nor an estimator of arrays with fit and predict_proba"
            raise ValueError(
                f"{what}: {model!r} is neither a name nor a classifier of tables{arrays}"
            )
        given.name = str(name)
        enter(found, name, given, what)
    return list(found.values())


def _itself(model: Any) -> Any:
    return model


def named_models(models: Any, what: str = "models") -> list[tuple[Any, Any]]:
    """Return the names, None by default, and the models of one, several, or a dict of them.

    `what` they are to the caller, for messages.
    """
    if isinstance(models, (str, bytes)) or hasattr(models, "fit"):
        models = [models]
    found = [*models.items()] if isinstance(models, Mapping) else [(None, m) for m in models]
    if not found:
        raise ValueError(f"{what}: name one at least")
    return found


def enter(found: dict[str, Any], name: Any, entry: Any, what: str = "models") -> None:
    """Add an entry to those of other models."""
    if name in found:
        raise ValueError(f"{what}: {name!r} stands twice; give a dict with a name for each")
    found[name] = entry
