"""Several models on the same rows by the same folds: their held-out posteriors, row by row."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, FastBayesWarning
from fastbayes.evaluation.calibrate.pools import HeldPosteriors
from fastbayes.evaluation.validate.comparison import ComparisonRunner, Runner, wanted
from fastbayes.evaluation.validate.scoring import scores
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.registry import candidates
from fastbayes.scan.counting import census_of
from fastbayes.scan.request import stage
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")

# The members where none are named, those that the columns allow.
MEMBERS = (
    "naive-bayes",
    "naive-bayes-bins",
    "naive-bayes-auto",
    "tan",
    "tan-quantile",
    "kdb",
    "aode",
    "aode-quantile",
    "joint-gaussian",
    "gaussian-bayes",
    "gaussian-bayes-tied",
    "logistic",
    "logistic-pairs",
)

# Those of them that take part with so many columns at most: what they take grows with the square of
# the number of columns, or is a search in each column.
OF_PAIRS = {
    *("tan", "tan-quantile", "kdb", "aode", "aode-quantile", "logistic-pairs"),
    *("joint-gaussian", "gaussian-bayes", "gaussian-bayes-tied"),
}
OF_FEW, MOST_COLUMNS = OF_PAIRS | {"naive-bayes-auto"}, 256

# What is counted of all rows besides what the members need.
COUNTED = ("values", "moments")


class PosteriorSample:
    """Posteriors of rows, of every so many the first; blocks update and parts merge.

    Of a row that weighs nothing there are none.
    """

    def __init__(self, n_classes: int, step: int) -> None:
        self._step, self._seen = step, 0
        self._posterior = [np.empty((0, n_classes))]
        self._y, self._weight = [np.empty(0, np.intp)], [np.empty(0)]

    def update(self, posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows, which come after those before."""
        at = np.arange(-self._seen % self._step, len(y), self._step)
        self._seen += len(y)
        if weight is not None:
            at = at[weight[at] > 0]
        self._posterior.append(posterior[at])
        self._y.append(y[at].astype(np.intp))
        self._weight.append(np.ones(len(at)) if weight is None else weight[at])

    def merge(self, other: PosteriorSample) -> None:
        """Add the rows of another, which come after these."""
        self._posterior += other._posterior
        self._y += other._y
        self._weight += other._weight

    def rows(self) -> tuple[Floats, NDArray[np.intp], Floats]:
        """Return posteriors, class codes and weights."""
        y, weight = np.concatenate(self._y), np.concatenate(self._weight)
        return np.concatenate(self._posterior), y, weight


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
    contest: ComparisonRunner, members: Any, missing: str, most: int
) -> HeldOutMembers:
    """Fit models to all rows and without each fold, and score the rows by those without them.

    Rows are counted once for all models, and scored once. Of the posteriors about `most` are kept,
    over models, rows and classes: of more rows those of a systematic sample.

    Raises DataError where no model is left, with what each of them says.
    """
    failed = {}
    if members is None:
        known, columns = candidates(), len(contest.opened.learning().features)
        members = [name for name in MEMBERS if contest.suits(known[name][1])]
        if columns > MOST_COLUMNS:
            reason = (
                f"there are {columns:,} columns, and with more than {MOST_COLUMNS} it takes long: "
                "name it among the members to have it take part"
            )
            failed = {name: reason for name in members if name in OF_FEW}
            members = [name for name in members if name not in OF_FEW]
    contest.enter(wanted(members, contest, missing, tables=True))
    stats, where = contest.stats, contest.opened.source.description
    if any(fold.n_rows == stats.n_rows for fold in stats.folds):
        raise DataError(f"{where}: one sample is too few to hold any out: pass more rows")
    with warnings.catch_warnings():
        # What there is to be said of the rows has been said, and this is of rows without a fold.
        warnings.simplefilter("ignore", FastBayesWarning)
        contest.fit_by_folds()
    samples = _scored(contest, [r for r in contest.runners if r.stands], most)
    standing = [runner for runner in contest.runners if runner.stands]
    failed |= {runner.name: runner.reason for runner in contest.runners if not runner.stands}
    if not standing:
        raise contest.none_left()
    for name, reason in failed.items():
        logger.info("no member of the blend: %s: %s", name, reason)
    folds = []
    for same in zip(*(samples[runner.name] for runner in standing), strict=True):
        rows = [sample.rows() for sample in same]
        _, y, weight = rows[0]
        if len(y):
            folds.append(HeldPosteriors(np.stack([posterior for posterior, *_ in rows]), y, weight))
    counted = contest.seen[False]
    parts = {name: counted.parts[name] for name in COUNTED}
    return HeldOutMembers(
        [runner.name for runner in standing],
        [runner.model for runner in standing],
        folds,
        failed,
        replace(counted, parts=parts, folds=(), fold_names=()),
    )


def _scored(
    contest: ComparisonRunner, runners: Sequence[Runner], most: int
) -> dict[str, list[PosteriorSample]]:
    """Return the posteriors of each fold by model; note why a model cannot score some row."""
    if not runners:
        return {}
    opened, n_classes = contest.opened, len(contest.classes)
    n_rows = opened.source.n_rows
    if n_rows is None:  # weights say nothing of the number of rows
        weighted, threads = contest.stats.weighted, contest.options["threads"]
        n_rows = census_of(opened, threads).n_rows if weighted else int(contest.stats.n_rows)
    step = max(1, -(-n_rows * len(runners) * n_classes // most))
    summary = partial(PosteriorSample, n_classes, step)
    contestants = [contest.contestant(runner, summary) for runner in runners]
    stage(contest.progress, f"scoring {len(runners)} models")
    found, _ = scores(
        opened.source,
        contest.rows,
        contestants,
        **contest.options,
        progress=contest.progress,
        strict=False,
        ranks=False,
        weighted=opened.weight is not None,
        besides=contest.held(),
    )
    for runner, contestant in zip(runners, contestants, strict=True):
        runner.fail(contestant.error)
    return {r.name: score.evaluators for r, score in zip(runners, found, strict=True)}
