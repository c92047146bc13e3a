"""P(v, x | c): a joint table of values with a density of the numbers in each cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import DataError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import check_finite, logs
from fastbayes.models.joint.joint import (
    Bools,
    CellIndex,
    Ints,
    JointTable,
    Patterns,
    SortedCells,
    distinct_codes,
    kept_orders,
    patterns,
)
from fastbayes.models.numeric.conjugate import KAPPA, ColumnSpreads, NormalInverseWishart
from fastbayes.models.numeric.covariance import (
    TOLERANCE,
    ClassDensities,
    CovarianceRule,
    Normals,
    diagonal,
    normals_of,
    regular,
    standardised,
)
from fastbayes.statistics.cell_scatter import pooled
from fastbayes.statistics.class_moments import GroupMoments
from fastbayes.statistics.joint_moments import JointMoments

# Least variance of a class that has a density of its own, as a share of that of all rows.
FLOOR = 1e-9
# A squared distance beyond this one is taken for it: log densities stay finite.
FARTHEST = 1e300
# Patterns of missing numbers whose densities are kept, and numbers in all covariances up to which
# they are: else those that a block asks for are made again.
PATTERNS, KEPT = 64, 1 << 18
# Correlation matrices are looked at so many numbers at a time.
CHUNK = 1 << 20


class Backing(NamedTuple):
    """Densities that others are drawn to.

    mean, rest  (n, p)
    covariance  (n, p, p)
    """

    mean: Floats
    rest: Floats
    covariance: Floats


def merged(groups: GroupMoments, parent: Backing, kappa: float) -> Backing:
    """Return the densities of groups of rows, each together with kappa rows of its parent.

    mean = (n x + kappa m0) / (n + kappa), covariance = (S + kappa C0 + n kappa/(n + kappa)
    (x - m0)(x - m0)^T) / (n + kappa): Chan's merge of n rows with kappa pseudo-rows.
    """
    n = groups.n
    # Of both together; kappa may be infinite.
    share = np.divide(n, n + kappa, out=np.zeros_like(n), where=(n > 0) & np.isfinite(n + kappa))
    with np.errstate(over="ignore", invalid="ignore"):
        apart = (groups.mean - parent.mean) + (groups.rest - parent.rest)
        some = (n > 0)[:, None]
        # From its own mean: it may be known to more digits than it is far from the other.
        mean, rest = two_sum(groups.mean, groups.rest - (1 - share)[:, None] * apart)
        mean, rest = np.where(some, mean, parent.mean), np.where(some, rest, parent.rest)
        apart = np.where(some, apart, 0.0)
        own = groups.scatter / np.where(n > 0, n, 1.0)[:, None, None]
        w = share[:, None, None]
        between = apart[:, :, None] * apart[:, None, :]
        return Backing(mean, rest, w * own + (1 - w) * parent.covariance + w * (1 - w) * between)


def known_moments(moments: JointMoments) -> GroupMoments:
    """Return what moments two by two tell of groups of rows in which numbers may be missing.

    n is (n_groups, p) then, the rows in which each number is known, and the scatter 0 where one is
    missing.
    """
    return GroupMoments(moments.known(), *moments.of_all())


def prior_of(spreads: ColumnSpreads) -> NormalInverseWishart:
    """Return the prior of means and covariances: nu = p + 2, a variance being that within classes.

    The mean is that of all rows, worth `KAPPA` of them.
    """
    scale = np.diag(spreads.pooled)
    return NormalInverseWishart(spreads.mean, spreads.rest, KAPPA, len(scale) + 2.0, scale)


def with_prior(groups: GroupMoments, prior: NormalInverseWishart) -> Backing:
    """Return expected means and covariances of groups of rows, by a prior of p + 2 degrees.

    covariance = D (scale + S + d d^T) D, with D = diag((n + 1)^(-1/2)) and d = (n kappa /
    (n + kappa))^(1/2) (x - m0) by column: the prior counts as one row of its expectation, which is
    its scale, and a product of two deviations of which one is missing as 0.
    """
    n, some = groups.n, groups.n > 0
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.where(some, (groups.mean - prior.mean) + (groups.rest - prior.rest), 0.0)
        share = prior.kappa / (prior.kappa + n)
        mean, rest = two_sum(groups.mean, groups.rest - share * apart)
        mean, rest = np.where(some, mean, prior.mean), np.where(some, rest, prior.rest)
        apart *= np.sqrt(share * n)
        scatter = prior.scale + groups.scatter + apart[:, :, None] * apart[:, None, :]
        root = np.sqrt(n + 1.0)
        return Backing(mean, rest, scatter / (root[:, :, None] * root[:, None, :]))


def student(found: Normals, rows: Floats, kappa: float) -> Normals:
    """Return Student's t of a new row, means and covariances being those that rows let expect.

    With N rows and the prior: N + 3 degrees of freedom, which are nu + N - p + 1 with nu = p + 2,
    and as scale (kappa + N + 1)/(kappa + N) (N + 1)/(N + 3) times the expected covariance. Where
    some rows lack a number, degrees are those of the mean over columns.

    rows   (n, p) what each column of each density is made of.
    kappa  Rows that the mean of the prior is worth.
    """
    finite = np.where(np.isfinite(rows), rows, FARTHEST)
    dof = finite.mean(axis=1, where=found.kept) + 3.0 if found.kept.any() else finite[:, 0] + 3.0
    wider = (1.0 + 1.0 / (kappa + rows)) * (1.0 - 2.0 / dof)[:, None]
    deviation = np.where(found.kept, found.deviation * np.sqrt(wider), 1.0)
    return found._replace(deviation=deviation, dof=dof)


class Numbers:
    """Numbers of rows, by which of them are known.

    columns  (n_rows, p), NaN where missing.

    Attributes
    ----------
    whole      Whether all of them are known.
    known, of  (n_patterns, p) which columns are known, and (n_rows,) the pattern of each row.
    """

    def __init__(self, columns: Floats) -> None:
        self.columns = columns
        gaps = np.isnan(columns)
        self.whole = not gaps.any()
        self.known, self.of = np.ones((1, columns.shape[1]), np.bool_), np.zeros(0, np.int64)
        if not self.whole:
            found = patterns(~gaps.T)
            self.known = np.array([bits for bits, _ in found])
            self.of = np.empty(len(gaps), np.int64)
            for which, (_, rows) in enumerate(found):
                self.of[rows] = which
        self._parts: dict[int, Floats] = {}

    def part(self, which: int) -> Floats:
        """Return the columns that a pattern knows, of all rows."""
        if which not in self._parts:
            self._parts[which] = np.ascontiguousarray(self.columns[:, self.known[which]])
        return self._parts[which]


def log_density(x: Floats, rows: Ints, at: Ints, densities: ClassDensities, job: float) -> Floats:
    """Return ln of the density of pairs of a row of x and a density, (n_pairs,)."""
    if not x.shape[1]:
        return np.zeros(len(rows))
    parts = densities.mean, densities.rest, densities.whiten
    whitened = tuple(np.ascontiguousarray(part) for part in parts)
    q = dispatch.load("counting.joint_codes", job).squared_distances(x, rows, at, whitened)
    q = np.fmin(q, FARTHEST)
    if densities.dof is None:
        return np.asarray(densities.level[at] - 0.5 * q)
    dof = densities.dof[at]
    half = 0.5 * (dof + densities.found.kept.sum())
    return np.asarray(densities.level[at] - half * np.log1p(q / dof))


class AskedFor:
    """Densities that are made when they are first asked for: of many cells few rows need one.

    What threads make at the same time is the same.

    n        Densities there may be.
    kept     (p,) features that vary.
    student  Whether they are Student's t.
    make     Gives those of some places, which ascend.
    """

    def __init__(
        self, n: int, kept: Bools, student: bool, make: Callable[[Ints], ClassDensities]
    ) -> None:
        self._make, self._given = make, (n, kept, student)
        self._begin()

    def _begin(self) -> None:
        n, kept, student = self._given
        self._all = ClassDensities.room(n, kept, student=student)
        self._there = np.zeros(n, np.bool_)
        # Some at a time: the matrices on the way to a density are many.
        self._step = max(1, CHUNK // max(len(kept), 1) ** 2)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._make, self._given  # what is there would be much, and can be made again

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._make, self._given = state
        self._begin()

    def of(self, at: Ints) -> ClassDensities:
        """Return densities among which those of some places are made."""
        lacking = np.zeros(len(self._there), np.bool_)
        lacking[at] = True
        new = np.flatnonzero(lacking & ~self._there)
        for low in range(0, len(new), self._step):
            some = new[low : low + self._step]
            self._all.put(some, self._make(some))
        self._there[new] = True
        return self._all


class CellGaussians:
    """Densities of numbers in each cell of each class, then those of the classes.

    groups          Moments of (cell, class), sorted.
    labels          (n,) class of each.
    inside          (n,) whether each is a cell in which every column is observed; others count in
                    their class.
    known           Moments of the classes two by two, of all rows, for densities that are Student's
                    t by a prior of the means and covariances; None: normal ones, of complete rows.
    kappa           Pseudo-rows of the class in each cell.
    names, classes  Names of the numeric columns, and labels of the classes.

    Attributes
    ----------
    which                   (n_cells,) groups that have a density.
    kept                    (p,) columns that vary; the others have factor 1.
    backed                  (n_classes,) classes without a density of their own.
    shrunk                  Whether the covariance of all rows is singular, and was drawn to its
                            diagonal.
    of_class, groups        Moments of complete rows, of the classes, and of the cells that have a
                            density.

    Raises DataError when squares of values overflow, or no row is complete and densities are to be
    normal.
    """

    def __init__(
        self,
        groups: GroupMoments,
        labels: NDArray[Any],
        inside: NDArray[np.bool_],
        known: JointMoments | None,
        kappa: float,
        names: Sequence[str],
        classes: Sequence[Any],
    ) -> None:
        self.kappa, self.names, n_classes = kappa, names, len(classes)
        of_class = pooled(groups, labels, n_classes)
        p = len(names)
        self._rule = CovarianceRule(False, 0, None, "shrink", FLOOR, names, classes)
        self.shrunk, self.backed = False, np.zeros(n_classes, np.bool_)
        self.prior: NormalInverseWishart | None = None
        self.known, self._rows = known, np.repeat(of_class.n[:, None], p, axis=1)
        if known is not None and p:
            moments = known_moments(known)
            self._rows = moments.n
            each = moments.n, moments.mean, moments.rest, diagonal(moments.scatter)
            spreads = ColumnSpreads.of(*(part.T for part in each))
            check_finite(spreads.within + spreads.between, names)
            self.prior, self.spread = prior_of(spreads), spreads.variance
            self.kept = diagonal(self.prior.scale) > 0
            found = with_prior(moments, self.prior)
            self._classes = self.regular(found, self._rows.mean(axis=1))[0]
        else:
            every = pooled(of_class, np.zeros(n_classes, np.int64), 1)
            if p and not every.n[0] > 0:
                raise DataError(
                    "there is no row in which every numeric column has a value; use "
                    "density='student', or leave columns out that are mostly missing"
                )
            check_finite(diagonal(every.scatter)[0], names)
            self.spread = diagonal(every.scatter)[0] / max(float(every.n[0]), 1.0)
            self.kept = self.spread > 0
            self._classes = self._likeliest(of_class, every)
        self.which = np.flatnonzero(inside)
        mine = groups if inside.all() else GroupMoments(*(part[self.which] for part in groups))
        self.of_class, self.groups = of_class, mine
        self.labels, self.n = labels[self.which], mine.n
        self._asked = AskedFor(len(self.n) + n_classes, self.kept, self._student, self._made)
        self._patterns: Patterns[AskedFor] = Patterns(PATTERNS)

    @property
    def _student(self) -> bool:
        return self.prior is not None

    @property
    def densities(self) -> ClassDensities:
        """Those of the cells, then of the classes."""
        return self._asked.of(np.arange(len(self.n) + len(self.of_class.n)))

    def _made(self, some: Ints) -> ClassDensities:
        """Return the densities of some cells and classes, whose places ascend."""
        n = len(self.n)
        cells, classes = some[some < n], some[some >= n] - n
        parts = self._cells(cells), _at(self._classes, classes)
        mean, rest, covariance = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        own = self.rows(self.n[cells], self._rows[self.labels[cells]])
        rows = np.concatenate([own, self._rows[classes]])
        return self.of_rows(normals_of(mean, rest, covariance, self.kept), rows)

    def _likeliest(self, of_class: GroupMoments, every: GroupMoments) -> Backing:
        """Return the classes' densities of maximum likelihood, some of them drawn to all rows."""
        kappa, p, n_classes = self.kappa, len(self.names), len(of_class.n)
        whole = merged(every, _of(every, np.zeros((1, p, p))), 0.0)
        whole, sick = self.regular(whole, every.n)
        self.shrunk = bool(sick.any())
        own = merged(of_class, _of(of_class, of_class.scatter), 0.0)
        low = (diagonal(own.covariance) < FLOOR * self.spread) & self.kept
        self.backed = low.any(axis=1) | (of_class.n <= self.kept.sum())
        self.backed = (self.backed | self.singular(own.covariance)) & bool(p)
        # kappa = 0 asks for no class; one that has none of its own is at least like all rows.
        parents = _at(whole, np.zeros(n_classes, np.int64))
        back = merged(of_class, parents, kappa if kappa > 0 else math.inf)
        back = self.regular(back, of_class.n)[0]
        return _where(self.backed, back, own)

    def rows(self, of_cell: Floats, of_class: Floats) -> Floats:
        """Return how many rows densities of cells are made of: of the class no more than it has.

        of_cell   (n,) rows of each.
        of_class  (n, p) rows in which its class knows each number.
        """
        return np.asarray(np.minimum((of_cell + self.kappa)[:, None], of_class))

    def of_rows(self, found: Normals, rows: Floats) -> ClassDensities:
        """Return densities each column of which is made of so many rows, (n, p)."""
        return ClassDensities(
            found if self.prior is None else student(found, rows, self.prior.kappa)
        )

    def _cells(self, some: Ints) -> Backing:
        """Return the densities of some cells; of those that have none, that of their class."""
        found, parents = self._merged(some)
        if self.kappa > 0:
            return self.regular(found, self.n[some])[0]
        return _where(~self._undefined(found, self.n[some]), found, parents)

    def _merged(self, some: Ints) -> tuple[Backing, Backing]:
        """Return some cells, merged with their classes, and these."""
        parents = _at(self._classes, self.labels[some])
        mine = GroupMoments(*(part[some] for part in self.groups))
        return merged(mine, parents, self.kappa), parents

    def _undefined(self, found: Backing, n: Floats) -> Bools:
        bad = (n <= len(self.names)) | (diagonal(found.covariance) <= 0).any(axis=1)
        return bad | self.singular(found.covariance)

    def undefined(self, some: Ints) -> Bools:
        """Return which cells have no density of maximum likelihood, which kappa = 0 asks for."""
        result = np.empty(len(some), np.bool_)
        for low in range(0, len(some), step := max(1, CHUNK // max(len(self.names), 1) ** 2)):
            part = some[low : low + step]
            result[low : low + step] = self._undefined(self._merged(part)[0], self.n[part])
        return result

    def singular(self, covariance: Floats) -> NDArray[np.bool_]:
        """Return which covariances have no inverse, by their correlations."""
        if not len(self.kept):
            return np.zeros(len(covariance), np.bool_)
        values = np.linalg.eigvalsh(standardised(covariance, self.kept)[1])
        return np.asarray(values[:, 0] < TOLERANCE * values[:, -1])

    def regular(self, found: Backing, n: Floats) -> tuple[Backing, NDArray[np.bool_]]:
        """Return densities none of which is singular, and which of them were."""
        p, sick = len(self.kept), np.zeros(len(n), np.bool_)
        if not p:
            return found, sick
        covariance = found.covariance.copy()
        # What a merge leaves of a variance may be less than rounding leaves of its correlations.
        floor = FLOOR**2 * self.spread
        every = np.arange(p)
        covariance[:, every, every] = np.maximum(covariance[:, every, every], floor)
        for low in range(0, len(n), step := max(1, CHUNK // p**2)):
            some = slice(low, low + step)
            deviation, correlation = standardised(covariance[some], self.kept)
            share, size = np.zeros(len(correlation)), np.array([max(int(self.kept.sum()), 1)])
            better, _, bad = regular(correlation, share, n[some], size, self._rule)
            if bad.any():
                sick[some] = bad
                scaled = better * deviation[:, :, None] * deviation[:, None, :]
                covariance[some] = np.where(bad[:, None, None], scaled, covariance[some])
        return found._replace(covariance=covariance), sick

    # -- densities -----------------------------------------------------------------------------

    def log_density(self, x: Numbers, rows: Ints, at: Ints, job: float) -> Floats:
        """Return ln of the density of pairs of a row and a density, (n_pairs,).

        Missing numbers are integrated out.

        rows, at  (n_pairs,) row and density of each pair.
        job       Cells of the job, on which numpy or compiled kernels are chosen.
        """
        if not len(self.kept) or not len(rows):
            return np.zeros(len(rows))
        if x.whole:
            return log_density(x.columns, rows, at, self._asked.of(at), job)
        result, of = np.empty(len(rows)), x.of[rows]
        for which in np.flatnonzero(np.bincount(of, minlength=len(x.known))).tolist():
            here, known = np.flatnonzero(of == which), x.known[which]
            where = at[here]
            if known.all():
                densities, part = self._asked.of(where), x.columns
            else:
                densities, where = self._marginal(known, where)
                part = x.part(which)
            result[here] = log_density(part, rows[here], where, densities, job)
        return result

    def prepare(self, at: Ints) -> None:
        """Make densities that will be asked for: together they take less than one by one."""
        if len(self.kept):
            self._asked.of(at)

    def drawn(self, at: Ints, random: np.random.Generator) -> Floats:
        """Return a random row of each density, (n_rows, p)."""
        return self._asked.of(at).drawn(at, random, cells=True)

    def _marginal(self, known: Bools, at: Ints) -> tuple[ClassDensities, Ints]:
        """Return densities of the numbers that are known, and where some stand among them."""
        n = len(self.n) + len(self.of_class.n)
        if n * len(known) ** 2 > KEPT:
            some, where = np.unique(at, return_inverse=True)
            return self._some_marginal(known, some), where.ravel()
        make = partial(self._some_marginal, known)
        kept = partial(AskedFor, n, self.kept[known], self._student, make)
        return self._patterns.of(known, kept).of(at), at

    def _some_marginal(self, known: Bools, some: Ints) -> ClassDensities:
        return self._asked.of(some).of(known, some)


def _of(groups: GroupMoments, covariance: Floats) -> Backing:
    return Backing(groups.mean, groups.rest, covariance)


def _at(some: Backing, places: NDArray[Any]) -> Backing:
    return Backing(*(part[places] for part in some))


def _where(which: NDArray[np.bool_], a: Backing, b: Backing) -> Backing:
    masks = which[:, None], which[:, None], which[:, None, None]
    return Backing(*map(np.where, masks, a, b))


# Pairs of a row and a density that are worked out at a time.
PAIRS = 1 << 20

# A share below this is added up, of up to so many cells at a time; where that takes more times than
# the last number, tenths of a second, it stays a difference.
LITTLE, COMPLETIONS, LONGEST = 1e-3, 1 << 20, 32


class Sorted(NamedTuple):
    """Densities in the order of their class and of some of their values.

    cells   their order, and combinations of values and class that occur
    remaining
            (n_combinations + 1,) what cells without a density have of the product of margins; at
            last 1
    rows    (n_combinations + 1,) how many rows they were counted in; at last 0
    unknown (n,) of each density the sum of ln P(v_j | c) over the other values
    """

    cells: SortedCells
    remaining: Floats
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
        self._cells = self._index.by(np.ones(keys.shape[1] + 1, np.bool_))
        self._sorted: Patterns[Sorted] = Patterns(kept_orders(len(keys)))

    @cached_property
    def rows(self) -> Floats:
        """Rows in which the values of each cell were counted with its class, (n,)."""
        codes = self.keys.T
        there = self.table.matching(codes, np.zeros(codes.shape, np.bool_))
        return there[np.arange(len(self.keys)), self.gaussians.labels]

    @cached_property
    def _weight(self) -> Floats:
        """The logarithm of P(v | c) of each cell and its class, (n,)."""
        labels = self.gaussians.labels
        margins = self.table.of_margins(self.keys.T)[np.arange(len(labels)), labels]
        return self.table.smoothed(self.rows, margins, self.table.totals[labels])

    def found(self, codes: Ints, classes: NDArray[np.integer]) -> Ints:
        """Return the density of each cell of codes (m, n) and class, -1 where there is none."""
        at = self._cells.find(np.concatenate([codes, np.asarray(classes)[None]]))
        return np.where(at < 0, -1, self._cells.cells(at)) if len(self.keys) else at

    def log_likelihood(
        self, group: NDArray[np.uint32], codes: Ints, x: Numbers, job: float
    ) -> Floats:
        """Return ln P(v, x | c), (n_rows, n_classes).

        group, codes  (n_rows,) the cell of each row, and (m, n_cells) the codes of these cells.
        job           Cells of the job, on which numpy or compiled kernels are chosen.
        """
        out = np.empty((len(group), self.n_classes))
        for gone, cells in patterns(self.table.hidden(codes)):
            here = np.zeros(codes.shape[1], np.bool_)
            here[cells] = True
            rows = np.flatnonzero(here[group])
            given = (np.cumsum(here) - 1)[group[rows]], codes[:, cells], rows, x, job
            out[rows] = self._mixed(gone, *given) if gone.any() else self._whole(*given)
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
        if x.whole:
            self.gaussians.prepare(at[of].ravel())
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
            at = known.cells.find(np.concatenate([codes, np.full((1, codes.shape[1]), c)]))
            begin = known.cells.begins[at]
            size = np.where(at >= 0, known.cells.begins[at + 1] - begin, 0)
            # All cells that agree and have no density of their own, together.
            counted = there[:, c] - known.rows[at]
            others = margins[:, c] + logs(known.remaining[at])
            rest = self.table.smoothed(np.maximum(counted, 0.0), others, self.table.totals[c])
            for some in stretches(size[of]):
                mine, n = rows[some], size[of[some]]
                row = np.repeat(np.arange(len(mine)), n)
                within = np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)
                g = known.cells.cells(np.repeat(begin[of[some]], n) + within)
                terms = self._weight[g] + self.gaussians.log_density(x, mine[row], g, job)
                last = np.full(len(mine), -np.inf)
                if self.backs:
                    back = np.full(len(mine), len(self.keys) + c)
                    last = rest[of[some]] + self.gaussians.log_density(x, mine, back, job)
                out[some, c] = summed(row, terms, last)
        return out

    def by_known(self, gone: Bools) -> Sorted:
        """Return the densities, those that agree where the same values are known."""

        def made() -> Sorted:
            cells = self._index.by(np.append(~gone, [True]))
            labels = self.gaussians.labels
            # How likely the unknown values are by the margins.
            aside = np.repeat(~gone[:, None], len(self.keys), axis=1)
            unknown = self.table.of_margins(self.keys.T, aside)[np.arange(len(labels)), labels]
            every = np.arange(len(cells.begins) - 1)
            remaining, rows = self._remaining(gone, cells, unknown), cells.sums(self.rows, every)
            return Sorted(cells, np.append(remaining, 1.0), np.append(rows, 0.0), unknown)

        return self._sorted.of(gone, made)

    def _remaining(self, gone: Bools, cells: SortedCells, unknown: Floats) -> Floats:
        """Return what cells without a density have of the product of margins, (n_combinations,).

        Where that is little it is no difference from 1: rounding would leave some, and the density
        of a class may be greater than those of its cells by any power of ten.
        """
        every = np.arange(len(cells.begins) - 1)
        remaining = np.clip(1.0 - cells.sums(np.exp(unknown), every), 0.0, 1.0)
        labels = self.gaussians.labels[cells.cells(cells.begins[:-1])]
        table, margins = self.table, []
        for j in np.flatnonzero(gone).tolist():
            begin, states = int(table.cells.offsets[j]), int(table.cells.choices[j])
            margins.append(np.exp(table.log_margins[begin : begin + states]))
        # What has no share counts for nothing.
        there = cells.sums((unknown > -np.inf).astype(np.float64), every)
        whole = np.prod([np.count_nonzero(p, axis=0) for p in margins], axis=0, dtype=np.float64)
        lacking = there < whole[labels]
        remaining[~lacking] = 0.0
        shape = [len(p) for p in margins]
        n, some = math.prod(shape), np.flatnonzero(lacking & (remaining < LITTLE))
        step = COMPLETIONS // n
        if not step or len(some) > LONGEST * step:
            return remaining
        product = np.ones((1, self.n_classes))
        for p in margins:
            product = (product[:, None] * p).reshape(-1, self.n_classes)
        for first in range(0, len(some), step):
            few = some[first : first + step]
            begins, own = cells.members(few)
            row = np.repeat(np.arange(len(few)), np.diff(begins))
            absent = np.ones((len(few), n), np.bool_)
            absent[row, np.ravel_multi_index(self.keys[own][:, gone].T, shape)] = False
            remaining[few] = (absent * product.T[labels[few]]).sum(axis=1)
        return remaining


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
    total: Floats = np.exp(last - safe) + np.bincount(row, np.exp(terms - safe[row]), len(last))
    return np.asarray(safe + logs(total))


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
        table = mixture.table
        group, codes = distinct_codes(batch_codes, len(out), table.widths, self._job)
        x = np.stack(numeric, axis=1) if len(numeric) else np.zeros((len(out), 0))
        given = mixture.log_likelihood(group, table.in_cells(codes), Numbers(x), self._job)
        out[:] = self._log_prior + (given + table.aside(codes)[group])

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | v, x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        return self._answer("to_posterior", batch_codes, numeric, out)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return self._answer("to_class", batch_codes, numeric, out, len(self._log_prior))

    def _answer(self, name: str, codes: Any, numeric: Any, out: Any, *more: int) -> int:
        joint = np.empty((len(out), len(self._log_prior)))
        self.log_joint(codes, numeric, joint)
        finish = getattr(dispatch.load("scoring.posterior", self._job), name)
        return int(finish(np.ascontiguousarray(joint.T), self._log_prior, self._tie, *more, out))
