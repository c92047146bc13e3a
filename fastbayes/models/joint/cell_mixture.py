"""P(v, x | c): a joint table of values with a normal density of the numbers in each cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.joint.cell_gaussians import CellGaussians, Numbers
from fastbayes.models.joint.joint_table import (
    Bools,
    CellIndex,
    Ints,
    JointTable,
    distinct_codes,
    grouped,
    patterns,
)

# Pairs of a row and a density that are worked out at a time.
PAIRS = 1 << 20
# Patterns of missing columns for which cells are kept sorted.
PATTERNS = 32


class Sorted(NamedTuple):
    """Densities in the order of their class and of some of their values.

    order   (n,) densities
    where   of the combinations of values and class that occur
    begins  (n_combinations + 2,) where each begins, and where the last one ends
    share   (n_combinations + 1,) what its densities have of the product of margins; at last 0
    rows    (n_combinations + 1,) how many rows they were counted in; at last 0
    unknown (n,) of each density the sum of ln P(v_j | c) over the other values
    """

    order: Ints
    where: CellIndex
    begins: Ints
    share: Floats
    rows: Floats
    unknown: Floats


class CellMixture:
    """P(v, x | c), where values may be unknown: then a mixture of all cells that agree.

    table      P(v | c).
    gaussians  Densities of cells, then those of classes.
    keys       (n, m) codes of the cells of `gaussians.which`.

    A cell that does not occur with a class has the density of the class; with kappa = 0 it has
    none. Cells that do not occur are summed over in closed form: what they have together is what
    the others leave of the product of margins.
    """

    def __init__(self, table: JointTable, gaussians: CellGaussians, keys: Ints) -> None:
        self.table, self.gaussians, self.keys = table, gaussians, keys
        self.n_classes = len(table.totals)
        self.backs = gaussians.kappa > 0
        labels = gaussians.labels
        self._index = CellIndex(
            np.concatenate([keys, labels[:, None]], axis=1), [*table.widths, self.n_classes]
        )
        every = np.arange(len(keys))
        self._weight = table.log_likelihood(keys.T)[every, labels]
        whole = np.zeros(keys.T.shape, np.bool_)
        self.rows = table.matching(keys.T, whole)[every, labels]
        self._sorted: dict[bytes, Sorted] = {}

    def found(self, codes: Ints, classes: NDArray[np.integer]) -> Ints:
        """Return the density of each cell of codes (m, n) and class, -1 where there is none."""
        return self._index.find(np.concatenate([codes, np.asarray(classes)[None]]))

    def log_likelihood(
        self, group: NDArray[np.uint32], codes: Ints, x: Numbers, job: float
    ) -> Floats:
        """Return ln P(v, x | c), (n_rows, n_classes).

        group, codes  (n_rows,) the cell of each row, and (m, n_cells) the codes of these cells.
        x             Numbers of the rows.
        job           Cells of the job, on which numpy or compiled kernels are chosen.
        """
        out = np.empty((len(group), self.n_classes))
        hidden = self.table.hidden(codes)
        for gone, cells in patterns(hidden):
            here = np.zeros(codes.shape[1], np.bool_)
            here[cells] = True
            rows = np.flatnonzero(here[group])
            place = np.cumsum(here) - 1
            told = place[group[rows]], codes[:, cells], rows, x, job
            out[rows] = self._mixed(gone, *told) if gone.any() else self._whole(*told)
        return out

    def _whole(self, of: Ints, codes: Ints, rows: Ints, x: Numbers, job: float) -> Floats:
        """Return ln P(v, x | c) of rows whose values are all known."""
        k, n = self.n_classes, codes.shape[1]
        every = np.repeat(np.arange(k)[None], n, axis=0)
        at = self.found(np.repeat(codes, k, axis=1), every.ravel()).reshape(n, k)
        none = at < 0
        at = np.where(none, len(self.keys) + every, at)
        weight = self.table.log_likelihood(codes)
        if not self.backs:
            weight[none] = -np.inf
        out = weight[of]
        for c in range(k):
            out[:, c] += self.gaussians.log_density(x, rows, at[of, c], job)
        return out

    def _mixed(
        self, gone: Bools, of: Ints, codes: Ints, rows: Ints, x: Numbers, job: float
    ) -> Floats:
        """Return ln P(v, x | c) of rows in which the same values are unknown, summed over these."""
        out = np.empty((len(rows), self.n_classes))
        known = self.by_known(gone)
        there = self.table.matching(codes, self.table.hidden(codes))
        margins = self.table.of_margins(codes)
        for c in range(self.n_classes):
            asked = np.concatenate([codes[~gone], np.full((1, codes.shape[1]), c)])
            at = known.where.find(asked)
            begin = known.begins[at]
            size = np.where(at >= 0, known.begins[at + 1] - begin, 0)
            # All cells that agree and have no density of their own, together.
            left = 1.0 - np.where(at >= 0, known.share[at], 0.0)
            counted = there[:, c] - np.where(at >= 0, known.rows[at], 0.0)
            with np.errstate(divide="ignore"):
                others = margins[:, c] + np.log(np.clip(left, 0.0, 1.0))
            rest = self.table.smoothed(np.maximum(counted, 0.0), others, self.table.totals[c])
            for some in stretches(size[of]):
                mine, n = rows[some], size[of[some]]
                row = np.repeat(np.arange(len(mine)), n)
                within = np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)
                g = known.order[np.repeat(begin[of[some]], n) + within]
                terms = self._weight[g] + self.gaussians.log_density(x, mine[row], g, job)
                last = np.full(len(mine), -np.inf)
                if self.backs:
                    back = np.full(len(mine), len(self.keys) + c)
                    last = rest[of[some]] + self.gaussians.log_density(x, mine, back, job)
                out[some, c] = summed(row, terms, last)
        return out

    def by_known(self, gone: Bools) -> Sorted:
        """Return the densities, those that agree where values are not gone side by side."""
        name = np.packbits(gone).tobytes()
        if name not in self._sorted:
            asked = np.concatenate([self.keys[:, ~gone], self.gaussians.labels[:, None]], axis=1)
            distinct, of = grouped(asked)
            widths = [w for w, g in zip(self.table.widths, gone, strict=True) if not g]
            n, labels = len(distinct), self.gaussians.labels
            # How likely the unknown values are by the margins.
            aside = np.repeat(~gone[:, None], len(self.keys), axis=1)
            unknown = self.table.of_margins(self.keys.T, aside)[np.arange(len(labels)), labels]
            made = Sorted(
                np.argsort(of, kind="stable"),
                CellIndex(distinct, [*widths, self.n_classes]),
                np.concatenate(([0], np.cumsum(np.bincount(of, minlength=n)), [0])),
                np.asarray(np.bincount(of, np.exp(unknown), n + 1), np.float64),
                np.asarray(np.bincount(of, self.rows, n + 1), np.float64),
                unknown,
            )
            for old in list(self._sorted)[: 1 - PATTERNS]:
                self._sorted.pop(old, None)
            self._sorted[name] = made
            return made
        return self._sorted[name]


def stretches(sizes: Ints) -> Iterator[slice]:
    """Yield stretches of rows with about `PAIRS` pairs together."""
    ends = np.cumsum(sizes + 1)
    begin = 0
    while begin < len(sizes):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + PAIRS, side="right")))
        yield slice(begin, end)
        begin = end


def summed(row: Ints, terms: Floats, last: Floats) -> Floats:
    """Return the log of the sum of the exponentials of each row's terms, and of one more."""
    top = last.copy()
    np.maximum.at(top, row, terms)
    safe = np.where(np.isneginf(top), 0.0, top)
    total = np.exp(last - safe) + np.bincount(row, np.exp(terms - safe[row]), len(last))
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(total))


class MixtureScorer(JointScorer):
    """Log joints, posteriors and predictions of values and numbers; immutable, thread-safe.

    log_prior  (n_classes,) nats.
    mixture    P(v, x | c).
    job        Cells of the job, on which numpy or compiled kernels are chosen.
    """

    def __init__(self, log_prior: Floats, mixture: CellMixture, job: float) -> None:
        super().__init__(np.array(log_prior, np.float64), mixture.table.tie(log_prior))
        self._mixture, self._job = mixture, job

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, v, x) of every row and class into `out` (n_rows, n_classes)."""
        mixture = self._mixture
        group, codes = distinct_codes(batch_codes, len(out), mixture.table.widths, self._job)
        x = np.stack(numeric, axis=1) if len(numeric) else np.zeros((len(out), 0))
        out[:] = self._log_prior + mixture.log_likelihood(group, codes, Numbers(x), self._job)

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | v, x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        joint = self._by_class(batch_codes, numeric, len(out))
        finish = dispatch.load("posterior", self._job).to_posterior
        lost: int = finish(joint, self._log_prior, self._tie, out)
        return lost

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        joint = self._by_class(batch_codes, numeric, len(out))
        finish = dispatch.load("posterior", self._job).to_class
        lost: int = finish(joint, self._log_prior, self._tie, len(joint), out)
        return lost

    def _by_class(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Floats:
        joint = np.empty((n_rows, len(self._log_prior)))
        self.log_joint(batch_codes, numeric, joint)
        return np.ascontiguousarray(joint.T)
