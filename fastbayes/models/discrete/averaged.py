"""What AODE and A2DE share: a mean over super-parents, their weights, subsumption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import SchemaError
from fastbayes.core.suggestions import meant_column, use_one_of
from fastbayes.kernels import dispatch
from fastbayes.models.discrete.one_dependence import OneDependence, code_rows
from fastbayes.models.estimator.column_table import Distribution
from fastbayes.models.estimator.information import class_information
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import (
    COUNTED_PRIOR,
    fitted,
    number,
    parameter,
    pseudo_count,
    switch,
)
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, logs
from fastbayes.statistics.bundle import Statistics

# Numbers that explaining a block of rows may take at a time: 32 MiB.
NUMBERS = 1 << 22


class Averaged(OneDependence):
    """A mean over models in which features of the row are parents of all others.

    A subclass reads the statistics (`_read`), gives a scorer (`_mean_scorer`), what each feature
    says in rows (`_spoken`), how many numbers that takes a row (`_numbers`), what each model
    averaged gives to the classes (`_models`), and random codes (`_drawn_codes`).
    """

    _averages: ClassVar[bool] = True

    alpha: float = parameter(
        'Pseudo-count of every cell ("laplace").', default=1.0, check=pseudo_count()
    )
    subsumption: bool | float = parameter(
        """
        Whether a value is left out of a row if another value of the row implies it: one that was
        seen often, and always together with it (Zheng et al. 2012). True means over 100 times, as
        in Weka's AODE; a number over how often, in units of weight.
        """,
        default=False,
    )
    smoothing: str = parameter(
        '"laplace", or "m_estimate": m rows spread over the cells of each distribution.',
        default="laplace",
        choices=("laplace", "m_estimate"),
    )
    m: float = parameter(
        'Pseudo-count of each distribution ("m_estimate").', default=1.0, check=number()
    )
    class_prior: str | ArrayLike | None = COUNTED_PRIOR
    missing: str = parameter(
        '"marginalize": a missing value is neither parent nor child; "category": it is a value.',
        default="marginalize",
        choices=("marginalize", "category"),
    )

    class_log_prior_: Floats = fitted("(n_classes,) nats: the prior of the naive Bayes fallback.")
    _implied: Subsumption | None = fitted()
    _rule: Smoothing = fitted()
    _given_prior: Floats | None = fitted()

    min_count: float = fitted()

    # -- what a subclass gives -----------------------------------------------------------------

    def _mean_scorer(self, cells: float) -> Any:
        """Return the scorer of rows from which implied values were taken out."""
        raise NotImplementedError

    def _numbers(self) -> int:
        """Return how many numbers `_spoken` holds for each row."""
        raise NotImplementedError

    def _spoken(self, rows: NDArray[np.int64], out: Floats) -> Floats:
        """Write contributions, and return the share of each super-parent, shaped like them.

        rows  (n_features, n_rows) row (offset + code) of each cell
        """
        raise NotImplementedError

    def _models(self, prior: Floats | None) -> tuple[Floats, Floats]:
        """Return the weight of each model averaged, (n_models,), and P(c) in it, (n_models, K).

        For a prior that is given, or None.
        """
        raise NotImplementedError

    # -- parameters ----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        threshold = checked_threshold(self.subsumption)
        if threshold is not None and (self.missing, self.unseen) == ("category", "smooth"):
            raise ValueError(
                "subsumption leaves values out of a row as not observed, which nothing is with "
                "missing='category' and unseen='smooth'; use unseen='ignore'"
            )

    def _smoothing(self) -> Smoothing:
        return Smoothing(self.smoothing, float(self.alpha), float(self.m))

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, threshold = super()._read(stats), checked_threshold(self.subsumption)
        implied = None
        if threshold is not None:
            implied = Subsumption(found["_cells"], stats.schema.names, threshold)
        return found | {
            "_rule": self._smoothing(),
            "_implied": implied,
            "_given_prior": None if self.class_prior is None else np.exp(found["class_log_prior_"]),
        }

    @property
    def subsumptions_(self) -> list[tuple[str, Any, str, Any]]:
        """Values that imply another: (column, value, column, implied value)."""
        self._check_fitted()
        rules = [] if self._implied is None else self._implied.rules.tolist()
        names = self.schema_.names
        values = [[*pa.array(f.values).to_pylist(), None] for f in self.schema_.features]
        return [(names[i], values[i][a], names[j], values[j][b]) for i, a, j, b in rules]

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:  # noqa: D102
        # The prior of each super-parent's rows differs, so begin from the model that has just one.
        if self.class_prior is None:
            self._check_fitted()
            start = self._copy_with(class_prior=np.exp(self.class_log_prior_))
            return start.adapt_prior(X, tolerance=tolerance, max_iter=max_iter)
        return super().adapt_prior(X, tolerance=tolerance, max_iter=max_iter)

    adapt_prior.__doc__ = OneDependence.adapt_prior.__doc__

    # -- answers -------------------------------------------------------------------------------

    def _value_smoothing(self) -> Smoothing:
        return self._rule

    def _distribution(self, place: int) -> Distribution:
        return super()._distribution(place)._replace(note="super-parents summed out")

    def _scorer(self, cells: float) -> Any:
        scorer, implied = self._mean_scorer(cells), self._implied
        return scorer if implied is None else SubsumptionScorer(scorer, implied, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        self._shares(batch, out)

    def _class_margin(self) -> Floats:
        # Without a given prior, each super-parent has its own of the rows where it is known.
        weights, margins = self._models(self._given_prior)
        return logs(weights @ margins / weights.sum()) if weights.any() else self.class_log_prior_

    def _even_prior(self) -> Floats | None:
        """Return a prior for sampling given the class, which a given one has no part in."""
        return None if self._given_prior is None else np.ones(len(self._given_prior))

    def _chosen(self, codes: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.int64]:
        """Return one of the models averaged for each class code, by P(model | c)."""
        weights, margins = self._models(self._even_prior())
        return value_codes(weights[:, None] * some_of_each(margins), codes, random)

    def _draw_others(
        self,
        drawn: NDArray[np.int64],
        here: NDArray[np.intp],
        parents: tuple[int, ...],
        state: NDArray[np.int64],
        table: Floats,
        codes: NDArray[np.intp],
        random: np.random.Generator,
    ) -> None:
        """Draw features of rows `here`, by a (states, n_rows, K) table of their parents."""
        cells = self._cells
        cell = state * cells.n_classes + codes
        for j in np.setdiff1d(np.flatnonzero(cells.choices > 0), parents):
            rows = slice(cells.offsets[j], cells.offsets[j] + int(cells.choices[j]))
            given = table[:, rows].transpose(1, 0, 2)
            drawn[j, here] = value_codes(given.reshape(len(given), -1), cell, random)

    def _shares(self, batch: Batch, out: Floats) -> Floats:
        if self._implied is not None:
            batch = self._implied.of_batch(batch)
        rows, shares = code_rows(batch, self._cells.offsets), np.empty(out.shape)
        step = max(1, NUMBERS // max(1, self._numbers()))
        for lo in range(0, batch.n_rows, step):
            some = slice(lo, lo + step)
            shares[some] = self._spoken(rows[:, some], out[some])
        return shares


def some_of_each(table: Floats) -> Floats:
    """Return a table (n, n_classes) with 1 for every entry of a class that has none: 0/0."""
    return np.where(table.any(axis=0), table, 1.0)


# Rows that a value must occur in more often than, before what always comes with it is implied.
THRESHOLD = 100.0

# Sums of weights closer than this share of themselves are equal.
ROUNDING = 1e-12


def checked_threshold(subsumption: Any) -> float | None:
    """Return how often a value must occur to imply another, None where nothing is implied."""
    return switch("subsumption", subsumption, on=THRESHOLD)


class Subsumption:
    """Which values imply which, and rows without the implied ones.

    Value a of feature i implies value b of j where every row that has a has b, and those are
    more than `threshold` rows, by weight, as in Weka. What is implied says nothing new: it is left
    out. Of values that imply each other the first by feature name stays. Implication is transitive,
    so that the order of the rules does not matter.

    rules  (n_rules, 4) feature and code that imply, feature and code that are implied
    """

    def __init__(self, cells: CountTables, names: Sequence[str], threshold: float) -> None:
        m = len(names)
        rank = np.argsort(np.argsort(np.array(names, dtype=object)))
        total, found = cells.n.sum(axis=1), []
        for i in range(m):
            own = total[cells.offsets[i] : cells.offsets[i + 1], None]
            rows, _, counts = cells.beside(i)
            both, other = counts.sum(axis=2), total[rows]
            implies = (own > threshold) & (both >= own * (1 - ROUNDING))
            back = (other > threshold) & (both >= other * (1 - ROUNDING))
            first = (rank[i] < rank)[cells.feature[rows]]
            a, column = np.nonzero(implies & (first | ~back))
            row = rows[column]
            j = cells.feature[row]
            found.append(np.stack((np.full(len(a), i), a, j, row - cells.offsets[j]), axis=1))
        self.rules = np.concatenate(found) if found else np.zeros((0, 4), np.int64)
        # Of each pair of features what each value implies, -1 for nothing.
        self._implied: list[tuple[int, int, NDArray[np.int64]]] = []
        pairs, pair_of = np.unique(self.rules[:, [0, 2]], axis=0, return_inverse=True)
        for q, (i, j) in enumerate(pairs.tolist()):
            _, a, _, b = self.rules[pair_of.reshape(-1) == q].T
            implied = np.full(cells.sizes[i] + 2, -1)
            implied[a] = b
            self._implied.append((i, j, implied))
        # The code of what is left out: missing, or unseen where missing is a value.
        self._gap = cells.gaps

    def resolved(self, batch_codes: Sequence[Codes], cells: float) -> tuple[Codes, ...]:
        """Return the codes of rows, of a job of so many cells, without what others imply."""
        leave_out = dispatch.load("scoring.subsumption", cells).leave_out
        new = [group.codes.copy() if self._implied else group.codes for group in batch_codes]
        place = {
            int(feature): (g, i)
            for g, group in enumerate(batch_codes)
            for i, feature in enumerate(group.features)
        }
        for i, j, implied in self._implied:
            (g, row), (h, column) = place[i], place[j]
            x, y = batch_codes[g].codes[row], batch_codes[h].codes[column]
            leave_out(x, y, implied, int(self._gap[j]), new[h][column])
        return tuple(
            group._replace(codes=codes) for group, codes in zip(batch_codes, new, strict=True)
        )

    def of_batch(self, batch: Batch) -> Batch:
        """Return the batch without the values that others imply."""
        return replace(batch, codes=self.resolved(batch.codes, batch.cells))


class SubsumptionScorer:
    """A scorer of rows from which implied values were taken out, for a job of so many cells."""

    def __init__(self, scorer: Any, subsumption: Subsumption, cells: float) -> None:
        self._scorer = scorer
        self._resolved = partial(subsumption.resolved, cells=cells)

    def log_joint(self, batch_codes: Sequence[Codes], numeric: Any, out: Floats) -> None:
        """Write the log joint of every row and class into `out` (n_rows, n_classes)."""
        self._scorer.log_joint(self._resolved(batch_codes), numeric, out)

    def posterior(self, batch_codes: Sequence[Codes], numeric: Any, out: Floats) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        return int(self._scorer.posterior(self._resolved(batch_codes), numeric, out))

    def predict(self, batch_codes: Sequence[Codes], numeric: Any, out: NDArray[np.intp]) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return int(self._scorer.predict(self._resolved(batch_codes), numeric, out))


RULES = ("uniform", "mutual_information")


def check_weights(_: str, weights: Any) -> None:
    """Raise ValueError where weights are no rule, nor finite numbers >= 0 with one > 0."""
    if isinstance(weights, str):
        if weights not in RULES:
            raise ValueError(
                f"weights={weights!r}: give a number per column, or {use_one_of(weights, RULES)}"
            )
        return
    given = list(weights.values()) if isinstance(weights, Mapping) else weights
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.ndim != 1 or not (np.isfinite(numbers).all() and (numbers >= 0).all()):
        raise ValueError(f"weights={weights!r}: use finite numbers >= 0, one per column")
    if not (numbers > 0).any():
        raise ValueError(f"weights={weights!r}: some column must weigh more than 0")


def super_parent_weights(weights: Any, cells: CountTables, names: Sequence[str]) -> Floats:
    """Return the weight u_p of each feature as a super-parent, (m,).

    "uniform"; "mutual_information", I(X_p; C) in nats from unsmoothed counts, and 1 for all where
    none tells anything of the class; a mapping from name to weight, 0 for the rest; or (m,)
    weights.
    """
    m = len(names)
    if isinstance(weights, str):
        if weights == "uniform":
            return np.ones(m)
        values = cells.values
        choices = cells.choices.astype(np.int64)
        information = class_information(values.counts, values.offsets, choices)
        return information if (information > 0).any() else np.ones(m)
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in names:
                raise SchemaError(
                    f"weights: no column {name!r}; there are {list(names)}"
                    + meant_column(name, names)
                )
        return np.array([float(weights.get(name, 0.0)) for name in names])
    given = np.asarray(weights, np.float64)
    if len(given) != m:
        raise SchemaError(f"weights has {len(given)} numbers, but there are {m} columns")
    return given.copy()
