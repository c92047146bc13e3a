"""`compare`: every model on the same rows; one scan counts for all, one scores them all."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.allocators import releasing
from fastbayes.core.errors import DataError, FastBayesError, MemoryLimitError, SchemaError
from fastbayes.core.picks import Picks
from fastbayes.core.schema import Schema
from fastbayes.core.suggestions import use_one_of
from fastbayes.core.text_tables import ShortRepr, aligned, size
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import Folds, FoldsByPlace
from fastbayes.data.segments import check_rereadable
from fastbayes.evaluation.validate.cross_validation import Validation, of_folds, validation
from fastbayes.evaluation.validate.race import Lagging, Race, race_sample
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    FoldScans,
    RanksShare,
    Score,
    encoding_of,
    learned_cuts,
    scores,
)
from fastbayes.models.discrete.one_dependence import OneDependence
from fastbayes.models.estimator.base import Classifier, Scans, check_learnable
from fastbayes.models.estimator.inputs import is_array
from fastbayes.models.leave_one_out.loo import kind_of, loo_scorer
from fastbayes.models.registry import Candidate, candidates
from fastbayes.scan import engine
from fastbayes.scan.counting import Opened, opened_to_learn
from fastbayes.scan.data_warnings import remark
from fastbayes.scan.discretization import cuts_without_folds, numeric_cuts
from fastbayes.scan.dual_encoding import OF_NUMBERS, Views, dual_encoding
from fastbayes.scan.engine import Progress
from fastbayes.scan.fold_statistics import training
from fastbayes.scan.request import stage
from fastbayes.statistics.bundle import Statistics

# Log-losses closer than this share of themselves are equal.
SAME = 1e-12
# What the table tells of a model, and of what it took.
FIGURES = ("accuracy", "log_loss", "brier", "auc", "expected_loss")
COSTS = ("fit_seconds", "predict_seconds", "memory", "parameters")
_HEAD = (
    *("model", "accuracy", "log-loss", "Brier", "fit s", "predict s", "memory", "parameters"),
    "rows",
)


@dataclass(frozen=True, eq=False, repr=False)
class Entry(ShortRepr):
    """One model of a leaderboard.

    Attributes
    ----------
    name
        Its name.
    reason
        Why it could not be used, and then nothing else is known; "" where it could.
    dropped
        Why it was left out once a sample of the rows had shown that it cannot win; "" where it was
        not. Then `figures` are those of the sample, without the AUC, and `model` is None.
    figures
        How good it is on rows that it was not fitted with; their `n` says on how many.
    model
        The model, fitted to all rows.
    fit_seconds
        Seconds from the counts to the model of all rows.
    predict_seconds
        Processor seconds, over all threads, that scoring the rows of `figures` took: leave-one-out
        scores each row twice.
    memory
        Bytes of the counts that it is made of.
    parameters
        Free parameters.
    winner
        Whether it has the lowest log-loss, of equals the fewest parameters.
    """

    name: str
    reason: str = ""
    dropped: str = ""
    figures: Validation | None = None
    model: Any = field(default=None, repr=False)
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    memory: int = 0
    parameters: int = 0
    winner: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values for JSON, None for what is not known."""
        f = self.figures
        figures = {name: getattr(f, name, None) for name in FIGURES}
        costs = {name: None if f is None else getattr(self, name) for name in COSTS}
        return {
            "model": self.name,
            "winner": self.winner,
            "rows": None if f is None else f.n,
            **{n: None if x is None or math.isnan(x) else x for n, x in figures.items()},
            **costs,
            "fixed": None if f is None else list(f.fixed),
            "reason": self.reason or None,
            "dropped": self.dropped or None,
        }

    def __str__(self) -> str:
        f = self.figures
        if f is None:
            return f"<Entry {self.name}: {self.reason}>"
        dropped = self.dropped and f"; {self.dropped}"
        return f"<Entry {self.name}: accuracy {f.accuracy:.6f}, log-loss {f.log_loss:.6f}{dropped}>"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ShortRepr):
    """A leaderboard of models on the same rows.

    Attributes
    ----------
    entries
        The models, the best first; those that were dropped stand after those that were not, and
        last those that could not be used.
    validation
        "leave-one-out", or "k-fold".
    rows
        Rows that took part, or the sum of their weights.
    classes
        (n_classes,) labels.
    seconds
        Seconds of the scans that all models share, by what was done in them.
    """

    entries: tuple[Entry, ...]
    validation: str
    rows: float
    classes: NDArray[Any]
    seconds: dict[str, float]

    @property
    def best(self) -> Entry:
        """The winner."""
        return self.entries[0]

    def __getitem__(self, name: str) -> Entry:
        """Return the entry of a model, by its name."""
        return {entry.name: entry for entry in self.entries}[name]

    @property
    def table(self) -> pa.Table:
        """The leaderboard as an Arrow table, one row a model, null for what is not known."""
        rows = [entry.to_dict() for entry in self.entries]
        types = {
            "model": pa.string(),
            "winner": pa.bool_(),
            **dict.fromkeys(("rows", *FIGURES, *COSTS[:2]), pa.float64()),
            **dict.fromkeys(COSTS[2:], pa.int64()),
            "fixed": pa.list_(pa.string()),
            "reason": pa.string(),
            "dropped": pa.string(),
        }
        return pa.table({n: pa.array([r[n] for r in rows], t) for n, t in types.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the leaderboard as plain values for JSON."""
        return {
            "validation": self.validation,
            "rows": self.rows,
            "classes": self.classes.tolist(),
            "seconds": self.seconds,
            "models": [entry.to_dict() for entry in self.entries],
        }

    def __str__(self) -> str:
        used = [entry for entry in self.entries if entry.figures is not None]
        head = f"{self.validation} of {self.rows:,.10g} rows, {len(self.classes):,} classes"
        rows = [_HEAD, *map(_cells, used)]
        if not any(entry.dropped for entry in used):
            rows = [cells[:-1] for cells in rows]
        lines = [head, "", *aligned(rows, len(used[:1]))]
        noted = [(e.name, e.dropped or e.reason) for e in self.entries]
        lines += [f"  {name}: {why}" for name, why in noted if why]
        shared = ", ".join(f"{what} {seconds:.3g} s" for what, seconds in self.seconds.items())
        return "\n".join([*lines, "", *_fixed(used), f"shared by all: {shared}"])


def _cells(entry: Entry) -> tuple[str, ...]:
    f = entry.figures
    assert f is not None
    return (
        entry.name,
        f"{f.accuracy:.6f}",
        f"{f.log_loss:.6f}",
        f"{f.brier:.6f}",
        f"{entry.fit_seconds:.3g}",
        f"{entry.predict_seconds:.3g}",
        size(entry.memory),
        f"{entry.parameters:,}",
        f"{f.n:,.10g}",
    )


def _fixed(used: Sequence[Entry]) -> list[str]:
    """Return lines that say what was learned from all rows, those held out included."""
    by_what: dict[str, list[str]] = {}
    for entry in used:
        assert entry.figures is not None
        for what in entry.figures.fixed:
            by_what.setdefault(what, []).append(entry.name)
    every = [what for what, names in by_what.items() if len(names) == len(used)]
    given = [f"{what} fixed" for what in every]
    given += [f"{what} fixed: {', '.join(n)}" for what, n in by_what.items() if what not in every]
    return ["; ".join(given)] if given else []


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries by log-loss, equals by parameters and then by name.

    Those that were dropped follow, then those that were not used.
    """
    used = sorted((e for e in entries if e.figures is not None and not e.dropped), key=_loss)
    result: list[Entry] = []
    while rest := used[len(result) :]:
        most = _loss(rest[0]) + SAME * max(abs(_loss(rest[0])), SAME)
        equal = [e for e in rest if _loss(e) <= most]
        result += sorted(equal, key=lambda e: (e.parameters, e.name))
    result += sorted((e for e in entries if e.dropped), key=lambda e: (_loss(e), e.name))
    return result + [e for e in entries if e.figures is None]


def _loss(entry: Entry) -> float:
    assert entry.figures is not None
    return float(np.nan_to_num(entry.figures.log_loss, nan=np.inf))


logger = logging.getLogger("fastbayes")

# Parameters that a column of the leaderboard can hold.
MOST = (1 << 63) - 1


@dataclass
class CountedScans(Scans):
    """Scans of rows of which much has been counted before.

    have  what was: nothing in it is counted again
    """

    have: Statistics = field(kw_only=True)

    def count(
        self,
        model: Classifier,
        wanted: engine.Wanted,
        known: Schema | None = None,
        folds: Folds | None = None,
    ) -> Statistics:
        """Return what was counted, or scan once."""
        had = self.have.parts
        if folds is None and all(name in had and not wanted[name] for name in wanted):
            parts = {name: had[name] for name in wanted}
            return replace(self.have, parts=parts, folds=(), fold_names=())
        found = super().count(model, wanted, known or self.have.schema, folds)
        found = found.aligned(self.have.schema)
        if found.values.allclose(self.have.values, 1e-12):
            # Sums of weights, less those of a fold, are off by their rounding.
            found = replace(found, parts={**found.parts, "values": self.have.values})
        return found


@dataclass
class Runner:
    """A model on its way through the contest."""

    name: str
    make: Callable[[], Any]
    bins: bool
    reason: str = ""
    model: Any = None
    scorers: list[Any] = field(default_factory=list)
    fit_seconds: float = 0.0
    memory: int = 0
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
                self.scorers = step(self) or []
            except (FastBayesError, ValueError, MemoryError) as error:
                self.reason = str(error) or type(error).__name__

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
        return Entry(
            self.name,
            figures=figures,
            model=self.model,
            fit_seconds=self.fit_seconds,
            predict_seconds=seconds,
            memory=self.memory,
            parameters=min(self.model.n_parameters_, MOST),
        )


def _check_leaves_out(runner: Runner) -> None:
    """Raise SchemaError where a model cannot score rows without themselves."""
    kind_of(runner.make())


class ComparisonRunner:
    """Models on the same rows: counted together, scored together.

    The rows are `opened` with folds if they are to be scored by these; `named` is whether their
    columns have names, which those of an array have not.
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
        named: bool = True,
    ) -> None:
        self.opened, self.discretize = opened, discretize
        self.loss, self.racing = loss, race
        self.race: Race | None = None
        self.rows: RowEncoding
        self.figures: Callable[[Runner, Score], Validation]
        self.named = named
        self.limits = {} if memory_limit is None else {"memory_limit": memory_limit}
        self.options: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
        self.progress = progress
        self.seconds: dict[str, float] = {}
        kinds = {book is None for _, book in opened.learning().features}
        self.numeric, self.categorical = True in kinds, False in kinds
        self.pairs, self.of_numbers, self.n_read = False, list[str](), 0

    def suits(self, candidate: Candidate, *, named: bool = False) -> bool:
        """Return whether the columns allow a candidate; `named`: one that has to be asked for."""
        return {
            "always": True,
            "numeric": self.numeric,
            "all_numeric": self.numeric and not self.categorical,
            "named": named,
        }[candidate.when]

    # -- counting and fitting ------------------------------------------------------------------

    def enter(self, wanted: Sequence[tuple[str, Callable[[], Any], bool]]) -> None:
        """Count all rows for every model."""
        opened = self.opened
        self.runners = [Runner(*one) for one in wanted]
        if opened.folds is None:
            for runner in self.runners:
                runner.attempt(_check_leaves_out)
        self.cuts: dict[str, Any] | None = None
        start = time.perf_counter()
        if any(runner.bins for runner in self.runners):
            try:
                stage(self.progress, "cut points")
                self.cuts = numeric_cuts(
                    *(opened.source, opened.learning(), self.discretize),
                    progress=self.progress,
                    **self.options,
                )
            except MemoryLimitError as error:
                logger.info("%s; going on without bins", error)
                for runner in self.runners:
                    runner.reason = runner.reason or str(error) * runner.bins
            if self.numeric:
                self.seconds["cut points"] = time.perf_counter() - start
        self.pairs = any(isinstance(runner.make(), OneDependence) for runner in self._standing())
        needed = {name for r in self._standing() for name in r.make()._statistics}
        self.of_numbers = [name for name in OF_NUMBERS if name in needed]
        start = time.perf_counter()
        stage(self.progress, "counting")
        self.stats = self._counted()
        self.seconds["counting"] = time.perf_counter() - start
        check_learnable(self.stats, self.opened.source.description)
        remark(self.stats)
        self.views = Views(self.stats.schema)
        self.seen = {b: self.views.counted(self.stats, bins=b) for b in (False, True)}

    def _counted(self) -> Statistics:
        try:
            return self._scan(self.opened.source, self.opened.learning, self.cuts, whole=True)
        except MemoryLimitError as error:
            if not (self.pairs or self.of_numbers):
                raise
            self.pairs, self.of_numbers = False, []
            logger.info("%s; models that need them count by themselves", error)
            return self._scan(self.opened.source, self.opened.learning, self.cuts, whole=True)

    def _scan(
        self, source: Any, learning: Callable[..., Encoder], cuts: Any, *, whole: bool
    ) -> Statistics:
        read: list[int] = []

        def progress(rows: int) -> None:
            read.append(rows)
            if self.progress is not None:
                self.progress(rows)

        found = engine.scan(
            source,
            dual_encoding(learning, cuts),
            ["values", "moments"] + ["pairs"] * self.pairs + self.of_numbers,
            progress=progress,
            folds=self.opened.folds if whole else None,
            **self.options,
        )
        if whole:
            self.n_read = sum(read)
        return found

    def _fit(self, runner: Runner) -> None:
        start, rows = time.perf_counter(), (self.opened.source, self.opened.learning)
        stage(self.progress, f"fitting {runner.name}")
        runner.model = self._trained(runner, self.seen[runner.bins], *rows, self.cuts)
        runner.fit_seconds = time.perf_counter() - start
        parts = runner.model.statistics_.parts
        runner.memory = sum(parts[name].nbytes for name in runner.model._statistics)

    def _trained(
        self,
        runner: Runner,
        have: Statistics,
        source: Any,
        learning: Callable[..., Encoder],
        cuts: Any,
    ) -> Any:
        """Return the model fitted to rows that were counted; it scans for what was not."""
        model: Classifier = runner.make().set_params(**self.limits)
        if runner.bins:
            self._cut_alike(model)
        model._check_parameters()
        model._check_suits(have)
        cuts = cuts if runner.bins else None
        scans = CountedScans(
            *(source, learning, cuts, [], True, self.progress, self.held()),
            n_rows=round(self.n_read * have.n_rows / self.stats.n_rows),
            last=source is not self.opened.source,
            have=have,
        )
        stats = model._scanned(scans)
        model._learned(stats)
        names, n_features = model._features_of(stats)
        model._set_features(names if self.named else None, n_features)
        return model

    def _cut_alike(self, model: Classifier) -> None:
        """Raise SchemaError where a model has columns cut otherwise than all others."""
        if "discretize" not in model.get_params(deep=False):
            return
        if repr(model.discretize) not in (repr("mdl"), repr(self.discretize)):
            raise SchemaError(
                f"the model has discretize={model.discretize!r}, but columns are cut alike for "
                f"all models: give it to compare, which has {self.discretize!r}"
            )
        model.set_params(discretize=self.discretize)

    def _fitted(self, scorers: Callable[[Runner], list[Any]]) -> None:
        """Fit every model and race it: those that take a scan of their own meet all others."""
        have = self.stats.parts.keys()
        alone = [r for r in self._standing() if not have >= set(r.make()._statistics)]
        for runners in ([r for r in self._standing() if r not in alone], *([r] for r in alone)):
            for runner in runners:
                runner.attempt(self._fit)
                runner.attempt(scorers)
            self._raced(runners)

    # -- scoring -------------------------------------------------------------------------------

    def by_leaving_out(self) -> list[Entry]:
        """Score every row by the counts without it."""

        def figures(runner: Runner, score: Score) -> Validation:
            fixed = runner.scorers[0].fixed
            return validation(score.figures(), method="leave-one-out", fixed=fixed)

        self.rows, self.figures = encoding_of(self.opened, [self.stats.schema]), figures
        self._fitted(lambda r: [loo_scorer(r.model)])
        return self._entries()

    def by_folds(self) -> list[Entry]:
        """Score the rows of each fold by models of the other folds."""
        names = self.stats.fold_names

        def figures(runner: Runner, score: Score) -> Validation:
            return of_folds(score, self.classes, names, self.loss, self.opened.source.description)

        self.figures = figures
        self.fit_by_folds()
        return self._entries()

    def fit_by_folds(self) -> None:
        """Fit every model to all rows, and without each fold."""
        if self.cuts is not None and learned_cuts(self.opened.learning(), self.discretize):
            for runner in self._standing():
                runner.attempt(self._fit)
            self.rows = encoding_of(self.opened, self._learned_by_folds())
            self._raced(self._standing())
        else:
            self.rows = encoding_of(self.opened, [self.stats.schema])
            ways = {runner.bins for runner in self._standing()}
            rests = {bins: training(self.seen[bins]) for bins in ways}
            scans = FoldScans(self.opened, self.stats)
            self._fitted(
                lambda r: [
                    Fitted(self._trained(r, rest, *scans.of(fold), self.cuts))
                    for fold, rest in enumerate(rests[r.bins])
                ]
            )

    def contestant(self, runner: Runner, summary: Callable[[], Any] | None = None) -> Contestant:
        """Return a model as it is scored; `summary` gives what sums its posteriors up."""
        view = self.views.batches(bins=runner.bins)
        return Contestant(self.classes, runner.scorers, view, summary=summary)

    def _raced(self, runners: Sequence[Runner]) -> None:
        """Have models join the race, and drop those that a sample shows to lose."""
        if not self.racing or len(self._standing()) < 2:
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

    def _learned_by_folds(self) -> list[Schema]:
        """Fit every model without each fold, bins included; return the schemas of the folds."""
        start = time.perf_counter()
        scans, folds = FoldScans(self.opened, self.stats), self.opened.folds
        assert folds is not None
        stage(self.progress, "cut points of folds")
        cuts = cuts_without_folds(
            *(self.opened.source, self.opened.learning(), self.discretize, folds),
            progress=self.progress,
            **self.options,
        )
        schemas = []
        for fold in range(len(scans.names)):
            given = *scans.of(fold), cuts[fold]
            without = f"counting without fold {fold + 1} of {len(scans.names)}"
            stage(self.progress, without, self._rows_without(fold))
            rest = self._scan(*given, whole=False)
            views = Views(rest.schema)
            seen = {bins: views.counted(rest, bins=bins) for bins in (False, True)}
            for runner in self._standing():
                runner.attempt(
                    lambda r, seen=seen, given=given: [  # type: ignore[misc]
                        *r.scorers,
                        Fitted(self._trained(r, seen[r.bins], *given)),
                    ]
                )
            schemas.append(rest.schema)
        self.seconds["counting folds"] = time.perf_counter() - start
        return schemas

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
        if not (standing := self._standing()):
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
        threads = min(share.ranking, engine.resolved_threads(self.options["threads"]))

        def entry(one: tuple[Runner, Score]) -> Entry:
            return one[0].entry(self.figures(*one), one[1].seconds)

        entries: list[Entry] = []
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
                weighted=weighted,
                besides=held,
            )
            for runner, contestant in zip(runners, contestants, strict=True):
                runner.fail(contestant.error)
            scored = [both for both in zip(runners, found, strict=True) if both[0].stands]
            done = stage(self.progress, "ranking", len(scored), "models")
            made = engine.in_order(entry, scored, threads)
            for one in made if limit is None else releasing(made):
                entries.append(one)
                done(1)
            del found, scored
        self.seconds["scoring"] = time.perf_counter() - start
        return entries

    def held(self) -> int:
        """Return about how many bytes are held so far: counts, tables of models, and the race."""
        models = [runner.model for runner in self._standing() if runner.model is not None]
        bundles = [self.stats, *(model.statistics_ for model in models)]
        parts = {id(part): part for stats in bundles for part in stats.parts.values()}
        race = 0 if self.race is None else self.race.nbytes
        return race + 2 * sum(part.nbytes for part in parts.values())

    def _standing(self) -> list[Runner]:
        return [runner for runner in self.runners if runner.stands]

    def misled(self) -> bool:
        """Return whether models were dropped for one that then could not score all rows."""
        failed = {runner.name for runner in self.runners if runner.reason}
        return any(runner.behind in failed for runner in self.runners)

    def none_left(self) -> DataError:
        """Return the error that no model can be used, with what each of them says."""
        shown = "; ".join(f"{runner.name}: {runner.reason}" for runner in self.runners)
        return DataError(f"{self.opened.source.description}: no model can be used: {shown}")

    def result(self, how: str, entries: Sequence[Entry]) -> Comparison:
        """Return the leaderboard."""
        if not entries:
            raise self.none_left()
        lost = [r.lost or Entry(r.name, r.reason) for r in self.runners if not r.stands]
        first, *others = ranked([*entries, *lost])
        return Comparison(
            (replace(first, winner=True), *others),
            how,
            self.stats.n_rows,
            self.classes,
            self.seconds,
        )


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
        "leave_one_out": each row is scored by the counts without it, in the cut points and
        structures of all rows; "k_fold": by models of the other folds, which learn these anew.
        By default "k_fold" where `folds` is given.
    models
        Names out of "naive-bayes", "naive-bayes-bins", "naive-bayes-auto", "spode", "tan", "kdb",
        "aode", "a2de", "joint-bayes", "joint-gaussian", "gaussian-bayes", "gaussian-bayes-tied",
        "weighted-naive-bayes", "logistic", "network"; unfitted models with parameters of their own;
        or {name: model}. By default all that the columns allow but the last three: two have no
        leave-one-out, one searches for a graph.
    folds, seed
        As in `k_fold`; ten folds by default.
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
        rows.

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
    Numeric columns take one scan more, for cut points; with k-fold two for each fold, since bins
    are learned without the fold. So do KDB, for the counts of its families, A2DE, for those of
    triples, and the joint models, for those of cells. Leave-one-out does not know A2DE.

    From 131,072 rows on the models race: one scan draws a random sample of the rows, at most an
    eighth and 262,144 of them, and of 8,192, 16,384, ... of these all models are scored that are
    still in the race. One whose log-loss on the same rows is higher than the best one's, by a test
    that errs with a probability below 0.001 for all models and rounds together, is dropped: it is
    listed with its figures on the sample, and forgotten. The others are scored on all rows, as with
    race=False, to the same figures.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> board = fb.compare(table, "y")
    >>> [entry.name for entry in board.entries]
    ['joint-bayes', 'aode', 'kdb', 'spode', 'tan', 'naive-bayes', 'a2de']
    >>> board.best.figures.accuracy
    1.0
    """
    if validation is None:
        validation = "leave_one_out" if folds is None else "k_fold"
    if validation not in ("leave_one_out", "k_fold"):
        raise ValueError(f"validation={validation!r}: use 'leave_one_out' or 'k_fold'")
    by_folds = validation == "k_fold"
    if folds is not None and not by_folds:
        raise ValueError("validation='leave_one_out' has no folds: leave one of the two out")
    folds = 10 if folds is None else folds
    if by_folds and isinstance(folds, (int, np.integer)) and not isinstance(folds, bool):
        folds = FoldsByPlace(int(folds), seed) if folds >= 2 else folds
    opened = opened_to_learn(
        source,
        target,
        folds=folds if by_folds else None,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        missing=missing,
        columns=columns,
        exclude=exclude,
        dates=dates,
        null_values=null_values,
        filesystem=filesystem,
        threads=threads,
    )
    check_rereadable(opened.source, "compare counts and then scores")

    def judged(race: bool) -> tuple[ComparisonRunner, list[Entry]]:
        contest = ComparisonRunner(
            *(opened, discretize, threads, memory_limit, progress),
            loss=loss,
            race=race,
            named=not is_array(source),
        )
        contest.enter(wanted(models, contest, missing))
        return contest, contest.by_folds() if by_folds else contest.by_leaving_out()

    contest, entries = judged(race)
    if contest.misled():
        logger.info("a model for which others were dropped cannot score all rows: judging them all")
        contest, entries = judged(False)
    return contest.result("k-fold" if by_folds else "leave-one-out", entries)


def wanted(
    models: Any, contest: ComparisonRunner, missing: str
) -> list[tuple[str, Callable[[], Any], bool]]:
    """Return name, maker and whether it sees bins of each model that is to take part."""
    known = candidates()
    if models is None:
        models = [name for name, (_, candidate) in known.items() if contest.suits(candidate)]
    found: dict[str, tuple[str, Callable[[], Any], bool]] = {}
    for name, model in named_models(models):
        if isinstance(model, str):
            if model not in known:
                raise ValueError(f"models: {model!r}: {use_one_of(model, known)}")
            entry, candidate = known[model]
            make = partial(entry.load(), **candidate.parameters, missing=missing)
            bins = make()._discretizes if candidate.bins is None else candidate.bins
            name = name or model
        elif isinstance(model, Classifier):
            bins, name = model._discretizes, name or repr(model)
            make = partial(type(model), **model.get_params(deep=False))
        else:
            raise ValueError(f"models: {model!r} is neither a name nor a classifier of tables")
        enter(found, name, (str(name), make, bins))
    return list(found.values())


def named_models(models: Any) -> list[tuple[Any, Any]]:
    """Return the names, None by default, and the models of one, several, or a dict of them."""
    if isinstance(models, (str, bytes)) or hasattr(models, "fit"):
        models = [models]
    found = [*models.items()] if isinstance(models, Mapping) else [(None, m) for m in models]
    if not found:
        raise ValueError("models: name one at least")
    return found


def enter(found: dict[str, Any], name: Any, entry: Any) -> None:
    """Add an entry to those of other models."""
    if name in found:
        raise ValueError(f"models: {name!r} stands twice; give a dict with a name for each")
    found[name] = entry
