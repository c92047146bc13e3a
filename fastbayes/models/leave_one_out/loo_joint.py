"""Rows scored by JointBayes and JointGaussian without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.errors import SchemaError
from fastbayes.kernels.shared.arrays import Ints
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    ROUNDING,
    LooRows,
    LooScorer,
    own_likelihood,
    without,
)
from fastbayes.models.estimator.smoothing import Smoothing, logs
from fastbayes.models.joint.cell_gaussians import (
    CHUNK,
    FLOOR,
    Backing,
    CellMixture,
    MixtureScorer,
    Numbers,
    known_moments,
    log_density,
    merged,
    stretches,
    summed,
    with_prior,
)
from fastbayes.models.joint.joint import Bools, JointTableScorer, distinct_codes, patterns
from fastbayes.models.numeric.covariance import diagonal, normals_of
from fastbayes.statistics.class_moments import LEAST_SHARE, GroupMoments
from fastbayes.statistics.joint_moments import JointMoments


class LooJoint(LooScorer):
    """A `JointBayes` by the counts without each row, and its margins without it, too."""

    def __init__(self, model: Any) -> None:
        self.table = model._table
        super().__init__(model, self.table.cells.values.class_counts, self.table.rule)
        if model.tau == "loo":
            self.fixed = ("schema", "tau")

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = JointTableScorer(np.zeros(self.table.cells.n_classes), self.table, cells)
        return scorer, scorer

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        table, y, batch = self.table, rows.y, rows.batch
        every, gone = np.arange(len(out)), np.ones(len(out)) if rows.gone is None else rows.gone
        others.log_joint(batch.codes, (), out)
        group, codes = distinct_codes(batch.codes, len(out), table.widths, batch.cells)
        hidden = table.hidden(codes)
        n = table.matching(codes, hidden)[group, y]
        # A row that is not complete was counted in no cell, but in the margins of what is known.
        lost = np.where(hidden.any(axis=0)[group], 0.0, gone)
        at = code_rows(batch, table.cells.offsets)
        margins = own_likelihood(table.cells, table.rule, at, y, gone)
        out[every, y] = table.smoothed(without(n, lost), margins, without(table.totals[y], lost))
        out += self.prior(y, rows.gone)


def less(groups: GroupMoments, x: Floats, gone: Floats) -> GroupMoments:
    """Return moments without a row of each, which weighs so much; none is left of none."""
    left = groups.n - gone
    some = left > ROUNDING * groups.n
    n = np.where(some, left, 1.0)
    apart = (x - groups.mean) - groups.rest
    mean, rest = two_sum(groups.mean, groups.rest - (gone / n)[:, None] * apart)
    share = (gone * groups.n / n)[:, None, None]
    scatter = groups.scatter - share * apart[:, :, None] * apart[:, None, :]
    # What rounding leaves of the scatter of one row is none.
    kept = (diagonal(scatter) > ROUNDING * diagonal(groups.scatter)) & some[:, None]
    scatter = np.where(kept[:, :, None] & kept[:, None, :], scatter, 0.0)
    return GroupMoments(np.where(some, left, 0.0), mean, rest, scatter)


def less_known(of_class: JointMoments, y: Ints, x: Floats, gone: Floats) -> GroupMoments:
    """Return moments of the class of each row without the row, which weighs so much.

    x  (n_rows, p), NaN where a number is missing: the class took the others.
    """
    n, p = x.shape
    nothing = np.zeros((n, p, p))
    count, mean = gone[:, None, None], x[:, :, None]
    if of_class.count.shape[1] > 1:
        there = ~np.isnan(x)
        both = there[:, :, None] & there[:, None, :]
        count, mean = count * both, np.where(both, mean, 0.0)
    row = JointMoments(count, mean, np.zeros_like(mean), nothing)
    own = JointMoments(*(part[y] for part in of_class.arrays()))
    alone = without(own.count, row.count)
    left, before = known_moments(own.without(row, alone)), known_moments(of_class).scatter
    # What rounding leaves of the scatter of one row is none.
    kept = (diagonal(left.scatter) > ROUNDING * diagonal(before)[y]) & (left.n > 0)
    scatter = np.where(kept[:, :, None] & kept[:, None, :], left.scatter, 0.0)
    return left._replace(scatter=scatter)


class LooJointGaussian(LooScorer):
    """Cells and classes by the counts and moments without each row.

    A row changes the density of its own class, and with it those of all cells of that class. Raises
    SchemaError when a density may be undefined without some row.
    """

    def __init__(self, model: Any) -> None:
        self.mixture: CellMixture = model._mixture
        counts = self.mixture.table.cells.values.class_counts
        super().__init__(model, counts, Smoothing(alpha=0.0))
        gaussians = self.mixture.gaussians
        bare = model.backed_off_ or gaussians.shrunk or gaussians.kappa == 0
        if len(gaussians.kept) and gaussians.prior is None and bare:
            why = "with backoff=0 a cell may have no density without some row"
            if gaussians.kappa > 0:
                why = f"classes {model.backed_off_} have no density of their own"
            raise SchemaError(f"leave_one_out takes rows out of densities, but {why}; use k_fold")
        of_all = {
            "tau": model.tau == "loo" and model.cells == "joint",
            "prior": gaussians.prior is not None,
        }
        self.fixed = ("schema", *(what for what, learned in of_all.items() if learned))
        self.labels = model.classes_.tolist()

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = MixtureScorer(np.zeros(self.mixture.n_classes), self.mixture, cells)
        return scorer, scorer

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        batch, every = rows.batch, np.arange(len(out))
        gone = np.ones(len(out)) if rows.gone is None else rows.gone
        others.log_joint(batch.codes, batch.numeric, out)
        # Every row has matrices of its own.
        step = max(256, CHUNK // max(1, len(batch.numeric) ** 2))
        for low in range(0, len(out), step):
            some = every[low : low + step]
            few = batch if step >= len(out) else taken(batch, some)
            own_rows = _Own(self, few, rows.y[some], gone[some])
            out[some, rows.y[some]] = own_rows.log_likelihood()
        out += self.prior(rows.y, rows.gone)


class _Own:
    """Rows of a block, each scored for its own class by what is left without it."""

    def __init__(self, model: LooJointGaussian, batch: Batch, y: Ints, gone: Floats) -> None:
        self.mixture, self.y, self.gone, self.job = model.mixture, y, gone, batch.cells
        table = self.mixture.table
        n = len(y)
        self.x = np.stack(batch.numeric, axis=1) if batch.numeric else np.zeros((n, 0))
        group, codes = distinct_codes(batch.codes, n, table.widths, batch.cells)
        self.codes = codes[:, group]
        self.hidden = table.hidden(self.codes)
        rows = code_rows(batch, table.cells.offsets)
        self.margins = own_likelihood(table.cells, table.rule, rows, y, gone)
        there = ~np.isnan(self.x)
        self.complete: Bools = np.asarray(there.all(axis=1) & (self.x.shape[1] > 0))
        # Of a row that lacks a number the class took the others, if it was asked to.
        known = model.mixture.gaussians.known
        pairs = known is not None and known.count.shape[1] > 1
        self.counted: Bools = np.asarray(there.any(axis=1)) if pairs else self.complete
        self.place = np.cumsum(self.counted) - 1
        self.parent = self._classes(model.labels)

    def _classes(self, labels: list[Any]) -> Backing:
        """Return the densities of the classes without each row that was counted in them."""
        gaussians, some = self.mixture.gaussians, np.flatnonzero(self.counted)
        y = self.y[some]
        if gaussians.prior is not None:
            assert gaussians.known is not None
            known = less_known(gaussians.known, y, self.x[some], self.gone[some])
            self.left = known.n
            return gaussians.regular(with_prior(known, gaussians.prior), known.n.mean(axis=1))[0]
        of_class = GroupMoments(*(part[y] for part in gaussians.of_class))
        left = less(of_class, self.x[some], self.gone[some])
        self.left = left.n[:, None]
        found = merged(left, Backing(left.mean, left.rest, left.scatter), 0.0)
        spread, before = diagonal(left.scatter), diagonal(of_class.scatter)
        variance = diagonal(found.covariance)
        bad = (spread < LEAST_SHARE * before) | (variance < FLOOR * gaussians.spread)
        lost = (bad & gaussians.kept).any(axis=1) | (left.n <= gaussians.kept.sum())
        if len(some) and not lost.any():
            lost |= gaussians.singular(found.covariance)
        if lost.any():
            label = labels[int(y[int(np.argmax(lost))])]
            raise SchemaError(
                f"leave_one_out takes rows out of densities, but without some row class {label!r} "
                "has none of its own; use k_fold"
            )
        return found

    def log_likelihood(self) -> Floats:
        """Return ln P(v, x | own class) of each row by what is left without it, (n_rows,)."""
        result = np.empty(len(self.y))
        for gone, some in patterns(self.hidden):
            result[some] = self._mixed(gone, some) if gone.any() else self._whole(some)
        return result

    def _whole(self, some: Ints) -> Floats:
        table, y, codes = self.mixture.table, self.y[some], self.codes[:, some]
        every, gone = np.arange(len(some)), self.gone[some]
        n = table.matching(codes, self.hidden[:, some])[every, y]
        weight = table.smoothed(
            without(n, gone), self.margins[some], without(table.totals[y], gone)
        )
        return weight + self._density(some, self.mixture.found(codes, y), inside=True)

    def _mixed(self, gone: Bools, some: Ints) -> Floats:
        """Score rows in which the same values are unknown: they were counted in no cell."""
        mixture, y, codes = self.mixture, self.y[some], self.codes[:, some]
        table, known = mixture.table, mixture.by_known(gone)
        margins, totals = self.margins[some], table.totals[y]
        at = known.cells.find(np.concatenate([codes, y[None]]))
        begin = known.cells.begins[at]
        size = np.where(at >= 0, known.cells.begins[at + 1] - begin, 0)
        agree = table.matching(codes, self.hidden[:, some])[np.arange(len(some)), y]
        others = margins + logs(known.remaining[at])
        last = table.smoothed(np.maximum(agree - known.rows[at], 0.0), others, totals)
        last += self._density(some, np.full(len(some), -1), inside=False)
        result = np.empty(len(some))
        for part in stretches(size):
            n = size[part]
            row = np.repeat(np.arange(len(n)), n)
            within = np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)
            g = known.cells.cells(np.repeat(begin[part], n) + within)
            weight = table.smoothed(
                mixture.rows[g], margins[part][row] + known.unknown[g], totals[part][row]
            )
            terms = weight + self._density(some[part][row], g, inside=False)
            result[part] = summed(row, terms, last[part])
        return result

    def _density(self, rows: Ints, g: Ints, *, inside: bool) -> Floats:
        """Return ln of the densities of rows in cells of their class, -1 for that of the class.

        `inside` says whether a row was counted in that cell.
        """
        mixture, result = self.mixture, np.empty(len(rows))
        there = self.counted[rows]
        rest = np.flatnonzero(~there)
        if len(rest):
            at = np.where(g[rest] < 0, len(mixture.keys) + self.y[rows[rest]], g[rest])
            few = Numbers(self.x[rows[rest]])
            result[rest] = mixture.gaussians.log_density(few, np.arange(len(rest)), at, self.job)
        whole = np.flatnonzero(there)
        # Pairs with cells are more than rows.
        step = max(256, CHUNK // max(1, self.x.shape[1] ** 2))
        for low in range(0, len(whole), step):
            some = whole[low : low + step]
            result[some] = self._without(rows[some], g[some], inside)
        return result

    def _without(self, rows: Ints, g: Ints, inside: bool) -> Floats:
        gaussians, x = self.mixture.gaussians, self.x[rows]
        parent = Backing(*(part[self.place[rows]] for part in self.parent))
        left = self.left[self.place[rows]]
        own: NDArray[np.bool_] = g >= 0
        n_rows = left
        if len(gaussians.groups.n):
            cell = GroupMoments(*(part[np.maximum(g, 0)] for part in gaussians.groups))
            if inside:
                # A row that lacks a number was not counted in the cell.
                lacking = ~self.complete[rows, None]
                gone = np.where(lacking[:, 0], 0.0, self.gone[rows])
                cell = less(cell, np.where(lacking, cell.mean, x), gone)
            cell = cell._replace(n=np.where(own, cell.n, 0.0))
            parent = merged(cell, parent, gaussians.kappa)
            n_rows = np.where(cell.n[:, None] > 0, gaussians.rows(cell.n, left), left)
        regular = gaussians.regular(parent, np.maximum(self.gone[rows], 1.0))[0]
        densities = gaussians.of_rows(normals_of(*regular, gaussians.kept), n_rows)
        result = np.empty(len(rows))
        for known, some in patterns(~np.isnan(x).T):
            every = np.arange(len(some))
            found = densities if known.all() and len(some) == len(x) else densities.of(known, some)
            result[some] = log_density(x[np.ix_(some, known)], every, every, found, self.job)
        return result
