"""P(v | c) over the joint values of all columns, from the cells that occur and the margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import SchemaError
from fastbayes.kernels import dispatch
from fastbayes.kernels.numpy.joint_codes import MOST_CODES
from fastbayes.kernels.numpy.log_joint import EXACT, largest_sum
from fastbayes.kernels.numpy.posterior import JointScorer, to_class, to_posterior
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import own_likelihood, without
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, best_of, logs
from fastbayes.statistics.bundle import Statistics

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Patterns of missing columns whose margins are kept.
PATTERNS = 64


class CellIndex:
    """Where each cell of a table stands.

    Parameters
    ----------
    keys
        (n, m) codes, no two rows equal.
    widths
        (m,) codes of each column.
    """

    def __init__(self, keys: Ints, widths: Sequence[int]) -> None:
        self._steps: list[tuple[int, int, Ints]] = []
        self._widths = [int(w) for w in widths]
        n, m = keys.shape
        number, room, start = np.zeros(n, np.int64), 1, 0
        while start < m:
            # As many columns at a time as one number tells apart.
            stop = start
            while stop < m and (stop == start or room * self._widths[stop] <= MOST_CODES):
                room *= self._widths[stop]
                stop += 1
            known, number = np.unique(
                self._packed(number, keys.T, start, stop), return_inverse=True
            )
            self._steps.append((start, stop, known))
            room, start = max(len(known), 1), stop
        self._place = np.zeros(max(n, 1), np.int64)
        self._place[number] = np.arange(n)
        self._n = n

    def _packed(self, number: Ints, codes: Ints, start: int, stop: int) -> Ints:
        for j in range(start, stop):
            number = number * self._widths[j] + codes[j]
        return number

    def find(self, codes: Ints) -> Ints:
        """Return the row of each cell of codes (m, n_rows), -1 where there is none."""
        n_rows = codes.shape[1]
        if not self._n:
            return np.full(n_rows, -1)
        number, there = np.zeros(n_rows, np.int64), np.ones(n_rows, np.bool_)
        for start, stop, known in self._steps:
            packed = self._packed(number, codes, start, stop)
            number = np.minimum(np.searchsorted(known, packed), len(known) - 1)
            there &= known[number] == packed
        return np.where(there, self._place[number], -1)


class JointTable:
    """P(v | c) = (n_vc + tau prod_j P(v_j | c)) / (n_c + tau), where columns may be unknown.

    Parameters
    ----------
    stats
        Statistics with values and cells of all columns.
    tau
        Pseudo-count of the product of the margins; "loo" for that of largest leave-one-out
        likelihood.
    alpha
        Pseudo-count of each value in a margin.
    missing, unseen
        As in `CountTables`.
    joint
        Whether rows of cells count; else there are the margins alone.

    Attributes
    ----------
    cells
        Counts of values: the margins, and which codes are no observation.
    keys, counts
        (n, m) codes of the cells in which every column is observed, and (n, K) their rows.
    totals
        (K,) rows of all of these, n_c.
    log_margins
        (n_codes, K) ln P(v_j | c), S_j + 2 rows for each column; 0 where a code is no observation.
    """

    def __init__(
        self,
        stats: Statistics,
        *,
        tau: float | str,
        alpha: float,
        missing: str,
        unseen: str,
        joint: bool = True,
    ) -> None:
        found, m = stats.cells, len(stats.schema.categorical)
        if len(found.columns) < m:
            raise SchemaError(
                f"the cells of the statistics are those of {len(found.columns)} columns out of "
                f"{m}; count again with cells=True"
            )
        self.rule = Smoothing(alpha=alpha)
        self.cells = CountTables(stats.values, missing=missing, unseen=unseen)
        keys = found.keys.astype(np.int64)
        keys = np.where(keys < 0, self.cells.sizes, keys)
        whole = ~self.hidden(keys.T).any(axis=0) & joint
        self.keys, self.counts = keys[whole], found.counts[whole].astype(np.float64)
        self.totals: Floats = self.counts.sum(axis=0)
        self.log_margins = logs(self.cells.likelihood(self.rule))
        self.widths = (self.cells.sizes + 2).tolist()
        self.tau = 1.0 if not joint else self._best_tau() if tau == "loo" else float(tau)
        self._patterns: dict[bytes, tuple[CellIndex, Floats]] = {}

    def _best_tau(self) -> float:
        """Return the tau under which complete rows are likeliest, each by the counts of the others.

        The sum over rows of ln((n_vc - 1 + tau prod_j P(v_j | c)) / (n_c - 1 + tau)), the margins
        less the row, too; n - 1 is read as n - min(n, 1).
        """
        at, c = np.nonzero(self.counts)
        n = self.counts[at, c]
        gone = np.minimum(n, 1.0)
        rows = self.cells.offsets[:-1, None] + self.keys[at].T
        margins = own_likelihood(self.cells, self.rule, rows, c, gone)
        left, totals = without(n, gone), without(self.totals[c], gone)
        # What is impossible under any tau cannot choose one.
        told = (left > 0) | np.isfinite(margins)
        if not told.any():
            return 1.0
        n, margins, left, totals = (part[told] for part in (n, margins, left, totals))
        scale = max(1.0, float(self.totals.mean()))
        with np.errstate(divide="ignore"):
            log_left = np.log(left)

        def score(share: float) -> float:
            tau = share * scale
            terms = np.logaddexp(log_left, np.log(tau) + margins) - np.log(totals + tau)
            return float((n * terms).sum())

        # The peak is flat: more digits would be those of rounding, other ones for other batches.
        return float(f"{best_of(score) * scale:.3g}")

    def hidden(self, codes: Ints) -> Bools:
        """Return which codes of (m, n) are no observation."""
        if not len(codes):
            return np.zeros(codes.shape, np.bool_)
        return np.asarray(self.cells.hidden[self.cells.offsets[:-1, None] + codes])

    def matching(self, codes: Ints, hidden: Bools) -> Floats:
        """Return the rows of the cells that agree with what is observed, (n, K)."""
        result = np.zeros((codes.shape[1], len(self.totals)))
        for known, rows in patterns(~hidden):
            index, counts = self._margin(known)
            at = index.find(codes[known][:, rows])
            there = at >= 0
            result[rows[there]] = counts[at[there]]
        return result

    def _margin(self, known: Bools) -> tuple[CellIndex, Floats]:
        """Return the cells of some of the columns, the others summed out."""
        name = np.packbits(known).tobytes()
        if name not in self._patterns:
            keys, counts = self.keys, self.counts
            if not known.all():
                keys, of = grouped(keys[:, known])
                counts = np.zeros((len(keys), counts.shape[1]))
                np.add.at(counts, of, self.counts)
            made = CellIndex(keys, [w for w, k in zip(self.widths, known, strict=True) if k])
            for old in list(self._patterns)[: 1 - PATTERNS]:
                self._patterns.pop(old, None)
            self._patterns[name] = made, counts
            return made, counts
        return self._patterns[name]

    def of_margins(self, codes: Ints, hidden: Bools | None = None) -> Floats:
        """Return sum_j ln P(v_j | c) over what is observed, (n, K).

        `hidden` hides more than is hidden by itself.
        """
        total = np.zeros((codes.shape[1], len(self.totals)))
        for j, first in enumerate(self.cells.offsets[:-1].tolist()):
            term = self.log_margins[first + codes[j]]
            total += term if hidden is None else np.where(hidden[j][:, None], 0.0, term)
        return total

    def smoothed(self, n: Floats, margins: Floats, totals: Any) -> Floats:
        """Return ln((n + tau e^margins) / (totals + tau)); 0/0 is the margins."""
        below = totals + self.tau
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.logaddexp(np.log(n), np.log(self.tau) + margins)
            return np.asarray(np.where(below > 0, above - np.log(below), margins))

    def log_likelihood(self, codes: Ints) -> Floats:
        """Return ln P(what is observed | c) of codes (m, n), (n, K)."""
        n = self.matching(codes, self.hidden(codes))
        return self.smoothed(n, self.of_margins(codes), self.totals)

    def tie(self, log_prior: Floats) -> float:
        """Return how close to each other log joints are equal."""
        largest = largest_sum(log_prior, self.log_margins, self.cells.offsets)
        most = [self.tau, float(self.totals.max(initial=0.0)) + self.tau]
        return EXACT * (largest + sum(abs(float(np.log(x))) for x in most if x > 0))


def grouped(keys: Ints) -> tuple[Ints, Ints]:
    """Return the different rows of keys (n, m), and which of them each row is."""
    if not keys.size:
        return keys[: min(len(keys), 1)], np.zeros(len(keys), np.int64)
    columns = [key.astype(np.uint32) for key in keys.T]
    sizes = [int(column.max()) + 1 for column in columns]
    of, first = dispatch.load("joint_codes", float(keys.size)).factorise(columns, sizes)
    return keys[first], of.astype(np.int64)


def patterns(bits: Bools) -> list[tuple[Bools, Ints]]:
    """Return the different columns of (m, n) bits, and where each of them stands."""
    m, n = bits.shape
    if bits.all():
        return [(np.ones(m, np.bool_), np.arange(n))] if n else []
    packed, which = np.unique(np.packbits(bits, axis=0), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=packed.shape[1]))
    columns = np.unpackbits(packed, axis=0, count=m).T.astype(np.bool_)
    return list(zip(columns, np.split(order, ends[:-1]), strict=True))


def distinct_codes(
    batch_codes: Sequence[Codes], n_rows: int, widths: Sequence[int], cells: float
) -> tuple[NDArray[np.uint32], Ints]:
    """Return the number of each row's cell, and the codes of the cells, (m, n_cells)."""
    columns: list[Any] = [None] * len(widths)
    for features, block, _ in batch_codes:
        for feature, column in zip(features.tolist(), block, strict=True):
            columns[feature] = column
    if not columns or not n_rows:
        return np.zeros(n_rows, np.uint32), np.zeros((len(columns), min(n_rows, 1)), np.int64)
    group, first = dispatch.load("joint_codes", cells).factorise(columns, widths)
    return group, np.array([column[first] for column in columns], np.int64)


class JointTableScorer(JointScorer):
    """Log joints, posteriors and predictions of a joint table; immutable, thread-safe.

    What rows have in common is worked out once for each different row of a block.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    table
        P(v | c).
    cells
        Cells of the job, on which numpy or compiled kernels are chosen.
    """

    def __init__(self, log_prior: Floats, table: JointTable, cells: float) -> None:
        super().__init__(np.array(log_prior, np.float64), table.tie(log_prior))
        self._table, self._job = table, cells

    def _distinct(
        self, batch_codes: Sequence[Codes], n_rows: int
    ) -> tuple[NDArray[np.uint32], Floats]:
        group, codes = distinct_codes(batch_codes, n_rows, self._table.widths, self._job)
        return group, self._log_prior + self._table.log_likelihood(codes)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        group, joint = self._distinct(batch_codes, len(out))
        out[:] = joint[group]

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        group, joint = self._distinct(batch_codes, len(out))
        answer = np.empty(joint.shape)
        to_posterior(joint.T, self._log_prior, self._tie, answer)
        out[:] = answer[group]
        return _lost(group, joint)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        group, joint = self._distinct(batch_codes, len(out))
        answer = np.empty(len(joint), np.intp)
        to_class(joint.T, self._log_prior, self._tie, joint.shape[1], answer)
        out[:] = answer[group]
        return _lost(group, joint)


def _lost(group: NDArray[np.uint32], joint: Floats) -> int:
    """Return the rows that no class can have made."""
    lost = np.isneginf(joint).all(axis=1)
    return int(np.bincount(group, minlength=len(joint))[lost].sum()) if lost.any() else 0
