"""Several models on the same rows by the same folds: their held-out posteriors, row by row."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, FastBayesWarning
from fastbayes.core.picks import free_name
from fastbayes.core.schema import Schema
from fastbayes.data.folds import Noted, NotedFolds, WithoutFold
from fastbayes.data.segments import Source
from fastbayes.evaluation.calibrate.held_out_posteriors import served_log_posterior
from fastbayes.evaluation.calibrate.pools import HeldPosteriors, Pools
from fastbayes.evaluation.calibrate.posterior_maps import RowBuffer
from fastbayes.evaluation.validate import race
from fastbayes.evaluation.validate.comparison import ComparisonRunner, Runner, wanted
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import scores
from fastbayes.evaluation.validate.shared_tallies import NUMBERS
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.registry import candidates
from fastbayes.scan.request import stage
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")

# The members where none are named, those that the columns allow. The densities of "auto" are none:
# they take longer than all others together, and add nothing to what models of bins say.
MEMBERS = (
    "naive-bayes",
    "naive-bayes-bins",
    "tan",
    "tan-quantile",
    "kdb",
    "aode",
    "aode-quantile",
    "aode-missing",
    "joint-gaussian",
    "gaussian-bayes",
    "gaussian-bayes-tied",
    "logistic",
    "logistic-pairs",
)

# Those of them that take part with so many columns at most: what they take grows with the square of
# the number of columns.
OF_PAIRS = {
    *("tan", "tan-quantile", "kdb", "aode", "aode-quantile", "aode-missing", "logistic-pairs"),
    *("joint-gaussian", "gaussian-bayes", "gaussian-bayes-tied"),
}
MOST_COLUMNS = 256

# What is counted of all rows besides what the members need.
COUNTED = ("values", "moments")


class PosteriorSample(RowBuffer):
    """Posteriors of rows, or their logarithms: of every `step` rows the first, without a limit."""

    def __init__(self, n_classes: int, step: int) -> None:
        super().__init__(n_classes)
        self._room, self._step, self._seen = sys.maxsize, step, 0

    def update(self, posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows, which come after those before."""
        at = np.arange(-self._seen % self._step, len(y), self._step)
        self._seen += len(y)
        super().update(posterior[at], y[at], None if weight is None else weight[at])

    def thinned(self, step: int) -> PosteriorSample:
        """Return a sample of every so many of these rows the first."""
        found = PosteriorSample(self._n_classes, self._step * step)
        found._add(self.rows().some(slice(None, None, step)))
        return found


class HeldOutMembers(NamedTuple):
    """Models fitted to all rows, with posteriors of rows by models without them.

    names    of the models
    models   fitted to all rows
    folds    rows of each fold that holds some, with posteriors in the order of the models
    failed   why other models do not take part, could not be fitted or cannot score some row, by
             name
    stats    counts of all rows, numeric columns as numbers
    """

    names: list[str]
    models: list[Any]
    folds: list[HeldPosteriors]
    failed: dict[str, str]
    stats: Statistics


def held_out_members(
    contest: ComparisonRunner, members: Any, missing: str, most: int, *, racing: bool = True
) -> HeldOutMembers:
    """Fit models to all rows and without each fold, and score the rows by those without them.

    When `racing`, and of many rows, a model is fitted no further that has no weight in pools of
    the rows of the first fold, by models without it.

    Rows are counted once for all models, and scored once. Of the posteriors about `most` are kept,
    over models, rows and classes: of more rows those of a systematic sample.

    Where no members are named, those that would take long are left out.

    Raises DataError where no model is left, with what each of them says.
    """
    failed, unasked = {}, members is None
    contest.ask = "name it among the members"
    if unasked:
        known, columns = candidates(), len(contest.opened.learning().features)
        members = [name for name in MEMBERS if contest.suits(known[name][1])]
        if columns > MOST_COLUMNS:
            reason = (
                f"there are {columns:,} columns, and with more than {MOST_COLUMNS} it takes long: "
                "name it among the members to have it take part"
            )
            failed = {name: reason for name in members if name in OF_PAIRS}
            members = [name for name in members if name not in OF_PAIRS]
    contest.enter(wanted(members, contest, missing, tables=True, unasked=unasked))
    stats, where = contest.stats, contest.opened.source.description
    if any(fold.n_rows == stats.n_rows for fold in stats.folds):
        raise DataError(f"{where}: one sample is too few to hold any out: pass more rows")
    scoring = HeldOutScoring(contest, most, racing=racing)
    with warnings.catch_warnings():
        # What there is to be said of the rows has been said, and this is of rows without a fold.
        warnings.simplefilter("ignore", FastBayesWarning)
        contest.fit_by_folds(scoring.first if scoring.racing else None)
    samples = scoring.all()
    standing = contest.standing()
    failed |= {runner.name: runner.reason for runner in contest.runners if not runner.stands}
    if not standing:
        raise contest.none_left()
    for name, reason in failed.items():
        logger.info("no member of the blend: %s: %s", name, reason)
    by_fold = zip(*(samples[runner.name] for runner in standing), strict=True)
    folds = [held for same in by_fold if (held := _together(same)) is not None]
    counted = contest.seen[NUMBERS]
    parts = {name: counted.parts[name] for name in COUNTED}
    return HeldOutMembers(
        [runner.name for runner in standing],
        [runner.model for runner in standing],
        folds,
        failed,
        replace(counted, parts=parts, folds=(), fold_names=()),
    )


def step_of(contest: ComparisonRunner, n_models: int, most: int) -> int:
    """Return the step in which rows are taken of which about `most` posteriors are kept.

    Over so many models, all rows and classes.
    """
    return max(1, -(-contest.n_read * n_models * len(contest.classes) // most))


def posterior_samples(
    contest: ComparisonRunner,
    runners: Sequence[Runner],
    step: int,
    source: Source | None = None,
    rows: RowEncoding | None = None,
    *,
    logs: bool = False,
) -> dict[str, list[PosteriorSample]]:
    """Return the posteriors of every so many rows of each fold, by model, or their logarithms.

    The rows are those of the contest where no others are given. Notes why a model cannot score some
    row.
    """
    summary = partial(PosteriorSample, len(contest.classes), step)
    contestants = [contest.contestant(runner, summary) for runner in runners]
    if logs:
        for contestant in contestants:
            contestant.answer = served_log_posterior
    found, _ = scores(
        contest.opened.source if source is None else source,
        contest.rows if rows is None else rows,
        contestants,
        **contest.options,
        progress=contest.progress,
        strict=False,
        ranks=False,
        weighted=contest.opened.weight is not None,
        besides=contest.held(),
    )
    for runner, contestant in zip(runners, contestants, strict=True):
        runner.fail(contestant.error)
    return {r.name: score.evaluators for r, score in zip(runners, found, strict=True)}


class HeldOutScoring:
    """Scores the rows of each fold by the models without it, and keeps a sample of posteriors.

    Over models, rows and classes about `most` are kept. When `racing`, models are dropped by the
    first fold if there are many rows, and one fold is as good as another.
    """

    def __init__(self, contest: ComparisonRunner, most: int, *, racing: bool) -> None:
        self._contest, folds = contest, contest.opened.folds
        step = step_of(contest, len(contest.standing()), most)
        # Of the first fold, while there is no other, so many times more rows are kept.
        assert folds is not None
        self.racing = racing and contest.n_read >= race.LEAST_ROWS and folds.column is None
        self._more = min(step, len(folds.names()[0])) if self.racing else 1
        self._step = -(-step // self._more)
        # What is known of the first fold, by model.
        self._first: dict[str, PosteriorSample] = {}

    def first(self, schema: Schema) -> None:
        """Score the first fold, and give models without weight in its pools a reason.

        `schema` is that of the models, of which there are none yet but those without this fold.
        """
        opened, runners = self._contest.opened, self._contest.standing()
        if len(runners) < 2:
            return
        stage(self._contest.progress, "race")
        rows = RowEncoding([schema], opened.target, opened.weight)
        source = WithoutFold(opened.source, *self._fold(), alone=True)
        found = self._scored(source, rows, runners, self._step)
        held = _together([samples[0] for samples in found.values()])
        self._first = {name: samples[0].thinned(self._more) for name, samples in found.items()}
        if held is None:
            return
        losses, used = held.log_loss().tolist(), Pools.learned(held).used.tolist()
        for runner, loss, stays in zip(self._contest.standing(), losses, used, strict=True):
            if not stays:
                runner.reason = (
                    f"below 1 % in both pools of {len(held.y):,} rows of the first fold: its "
                    f"log-loss is {loss:.4g} there"
                )
                del self._first[runner.name]

    def all(self) -> dict[str, list[PosteriorSample]]:
        """Return the posteriors of each fold by model; note why a model cannot score some row."""
        if not (runners := self._contest.standing()):
            return {}
        stage(self._contest.progress, f"scoring {len(runners)} models")
        source, rows = self._contest.opened.source, self._contest.rows
        if self._first:
            folds, first = self._fold()
            # The others' folds are those of the places that they have among all rows.
            noted = NotedFolds(free_name("fold", source.schema.names), folds)
            source, rows = (
                WithoutFold(Noted(source, noted), noted, first),
                replace(rows, folds=noted),
            )
        found = self._scored(source, rows, runners, self._step * self._more)
        for name, samples in found.items():
            samples[0] = self._first.get(name, samples[0])
        return found

    def _fold(self) -> tuple[Any, int]:
        folds = self._contest.opened.folds
        assert folds is not None
        return folds, folds.names()[0][0]

    def _scored(
        self, source: Source, rows: RowEncoding, runners: Sequence[Runner], step: int
    ) -> dict[str, list[PosteriorSample]]:
        """Return the posteriors of every so many rows, by model and fold."""
        found = posterior_samples(self._contest, runners, step, source, rows)
        return {runner.name: found[runner.name] for runner in runners if runner.stands}


def _together(samples: Sequence[PosteriorSample]) -> HeldPosteriors | None:
    """Return what several models say of the same rows; None of no rows, or no models."""
    rows = [sample.rows() for sample in samples]
    if not rows or not len(rows[0][1]):
        return None
    return HeldPosteriors(np.stack([posterior for posterior, *_ in rows]), *rows[0][1:])
