"""Rows scored by the counts without them: what the models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, logs

# What a subtraction leaves of a sum of weights below this share of it is rounding.
ROUNDING = 1e-12


def without(n: NDArray[Any], gone: Any = 1.0) -> Floats:
    """Return counts less what is taken away; what rounding leaves, or would be below 0, is 0."""
    left = n - gone
    return np.asarray(np.where(left > ROUNDING * n, left, 0.0))


class Without(Smoothing):
    """A rule of smoothing that finds one row less in each cell and in each total."""

    def __init__(self, rule: Smoothing) -> None:
        super().__init__(rule.kind, rule.alpha, rule.m)

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n - 1 + mass) / (total - 1 + cells mass); 0/0 is its limit 1/cells."""
        return super().ratio(without(n), without(total), cells)

    def ratio_within(
        self, n: Floats, total: Floats, cells: NDArray[Any], bounds: NDArray[np.int64]
    ) -> Floats:
        """Return `ratio` of cells, by the totals of their distributions."""
        return super().ratio_within(without(n), without(total), cells, bounds)


class LooRows(NamedTuple):
    """Rows that are to be scored without themselves.

    batch  encoded by the schema of the model
    y      (n_rows,) class codes
    gone   (n_rows,) what each row takes out of the counts, min(weight, 1); None: 1 each
    """

    batch: Batch
    y: NDArray[np.intp]
    gone: Floats | None


class PriorWithout:
    """ln P(c) by the (n_classes,) counts without a row, smoothed where no prior is given.

    `fitted` is ln P(c) of all rows: a prior that is given stays.
    """

    def __init__(
        self, counts: NDArray[Any], rule: Smoothing, class_prior: Any, fitted: Floats
    ) -> None:
        self.counts = counts.astype(np.float64)
        self.rule: Smoothing | None = rule
        self.fitted = fitted
        if isinstance(class_prior, str) and class_prior == "empirical":
            self.rule = Smoothing(alpha=0.0)
        elif class_prior is not None:
            self.rule = None

    @property
    def of_others(self) -> Floats:
        """Log prior without a row of another class, (n_classes,)."""
        return self._given(self.counts, without(self.counts.sum()))

    @property
    def of_own(self) -> Floats:
        """Log prior without a row of class c, (n_classes,)."""
        return self._given(without(self.counts), without(self.counts.sum()))

    def __call__(self, y: NDArray[np.intp], gone: Floats | None) -> Floats:
        """Return ln P(c) for rows of these classes, (n_rows, n_classes)."""
        every = np.arange(len(self.counts))
        if gone is None:
            table = np.where(every == every[:, None], self.of_own, self.of_others)
            return np.asarray(table[y])
        counts = without(self.counts, gone[:, None] * (y[:, None] == every))
        return self._given(counts, without(self.counts.sum(), gone)[:, None])

    def _given(self, counts: Floats, total: Floats) -> Floats:
        if self.rule is None:
            return np.broadcast_to(self.fitted, counts.shape)
        return logs(self.rule.ratio(counts, total, len(self.counts)))


Scorers = tuple[Any, Any]


class LooScorer:
    """Posteriors of rows by the counts without them; immutable, thread-safe.

    Without a row of weight 1 the counts of its own class are less by 1 where the row is, and those
    of other classes as they were: two ordinary scorers, one of each kind, say all about it. Rows
    of which that is not true are scored cell by cell.

    counts  (n_classes,) rows of each class
    rule    how counts are smoothed
    fixed   what is as all rows have it, in words
    prior   the class prior without a row
    remade  returns the function and arguments that make the scorer anew, which are pickled in its
            place: a model takes less than tables. None where it is pickled as it is
    """

    fixed: tuple[str, ...] = ("schema",)
    remade: Callable[[], tuple[Any, ...]] | None = None

    def __init__(self, model: Any, counts: NDArray[Any], rule: Smoothing) -> None:
        self._made: dict[bool, Scorers] = {}
        self.rule = rule
        self.prior = PriorWithout(counts, rule, model.class_prior, model.class_log_prior_)

    def __getstate__(self) -> dict[str, Any]:
        # Kernels do not travel: scorers are made where they are needed.
        return {**vars(self), "_made": {}}

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return super().__reduce_ex__(protocol) if self.remade is None else self.remade()

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def _scorers(self, cells: float) -> Scorers:
        """Return what scores the other classes, and what scores the class of the row."""
        raise NotImplementedError

    def ill_conditioned(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of rows that `posterior` cannot score to full precision.

        They need the moments of all other rows, of those that are not, and one another: see
        `resolved`.
        """
        return np.empty(0, np.int64)

    def other_moments(self, batch: Batch) -> Any:
        """Return the moments of rows that are not ill-conditioned, where these are of use."""
        return None

    def resolved(self, batch: Batch, others: Any) -> LooScorer:
        """Return what scores all ill-conditioned rows, given the moments of the others."""
        return self

    def forget(self) -> None:
        """Let go of what can be made anew, once the rows of a fold are scored; here of nothing."""

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        """Write ln P(c, x) of rows by the counts without them into `out`, (n_rows, n_classes).

        Here: what the two scorers say, and of rows that weigh less than 1 `_cell_by_cell`.
        """
        codes, every = rows.batch.codes, np.arange(len(out))
        column = np.empty(out.shape)
        others.log_joint(codes, (), out)
        own.log_joint(codes, (), column)
        out[every, rows.y] = column[every, rows.y]
        if rows.gone is not None and len(light := np.flatnonzero(rows.gone < 1)):
            out[light] = self._cell_by_cell(rows, light, rows.gone[light])

    def _cell_by_cell(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return what `_joint` writes of some rows, (n_some, n_classes), which weigh `gone`."""
        raise NotImplementedError

    def log_joint(self, batch: Batch, out: Floats) -> float:
        """Write ln P(c, x) into `out`, and return how close to each other two of them are equal.

        The rows have their classes, encoded by the schema of the model, as they were counted.
        """
        kind = dispatch.compiled(batch.cells)
        if kind not in self._made:
            self._made[kind] = self._scorers(batch.cells)
        others, own = self._made[kind]
        self._joint(rows_of(batch), others, own, out)
        return float(max(others._tie, own._tie))

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`; return how many rows took the prior."""
        tie = self.log_joint(batch, out)
        lost = np.flatnonzero(np.isneginf(out).all(axis=1))
        if len(lost):
            rows = rows_of(batch)
            out[lost] = self.prior(rows.y[lost], None if rows.gone is None else rows.gone[lost])
        joint, start = np.ascontiguousarray(out.T), np.zeros(out.shape[1])
        dispatch.load("scoring.posterior", batch.cells).to_posterior(joint, start, tie, out)
        return len(lost)


def rows_of(batch: Batch) -> LooRows:
    """Return a batch as rows to be scored without themselves."""
    assert batch.classes is not None
    gone = None
    if batch.weight is not None and (batch.weight < 1).any():
        gone = np.minimum(batch.weight, 1.0)
    return LooRows(batch, batch.classes.astype(np.intp), gone)


def own_likelihood(cells: CountTables, rule: Smoothing, at: Any, y: Any, gone: Floats) -> Floats:
    """Return ln P(x | class of the row) by the counts without each row, (n_rows,).

    `at` is the row (offset + code) of each cell, (m, n_rows), y the classes, and `gone` what each
    row takes out of the counts.
    """
    total = np.zeros(len(y))
    for rows, together, choices in zip(at, cells.known, cells.choices, strict=True):
        n = without(cells.n[rows, y], gone)
        term = logs(rule.ratio(n, without(together[y], gone), choices))
        total += np.where(cells.hidden[rows], 0.0, term)
    return total
