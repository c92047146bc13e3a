"""Smoothing by back-off: P(x | class, parents) drawn towards fewer and fewer parents.

A distribution is a node of a tree: at the root P(x), below it P(x | c), P(x | c, p_1),
P(x | c, p_1, p_2), ... Each is Dirichlet around the one above,

    theta_u ~ Dir(a_d theta_parent(u)),

with one concentration a_d for all nodes of a depth d, so that its mean, given counts n of the node,
is (n_x + a_d theta_parent,x) / (n + a_d). Rows are counted where all parents are known; a node
above them counts, of each value x below it, how many were drawn from itself rather than repeated:
with n_x rows below and a mean of m_x = a_d theta_x, that are on average

    t_x = m_x (psi(m_x + n_x) - psi(m_x)),

between 1 and n_x (Antoniak 1974). Where Petitjean, Buntine, Webb, Zaidi (2018) sample these
pseudo-counts t and the concentrations, here t is its mean and ln a_d the one of largest posterior
density, each given the rest, in turn until they settle: the same input gives the same numbers, and
weights may be fractions. A priori the say n / (n + a_d) of a node of n = h rows is uniform between
0 and 1: without a prior, nodes that repeat one value each would be sure of it after a row. So the
concentration is where a_d = (sum t + 1) / (sum_u (psi(a_d + n_u) - psi(a_d)) + 2 / (a_d + h)),
Minka's (2000) fixed point with the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.iteration import Convergence, Found, Step, Steps, converged
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import without
from fastbayes.models.estimator.parameters import number, parameter
from fastbayes.models.estimator.smoothing import CountTables, logs

Ints = NDArray[np.int64]

# Rows of a node that are as likely to have more than half of the say as less, before any is seen:
# from 4 to 8 the loss of generated tables of 30 to 2,000 rows was least. 0: there is no prior.
HALF = 5.0
# Logarithms of concentrations stay in this range, begin at 0, and move by a leap at most.
RANGE, LEAP = (float(np.log(1e-3)), float(np.log(1e6))), 2.0
# Those that are not at rest after so many sweeps go round in a circle: every few sweeps leaps are
# half as long, and still so long that to be at rest is no matter of them.
PATIENCE, FEW, LEAST = 50, 10, 0.05
# A step below this is the rounding of digamma, and says nothing of the next one.
NOISE = 1e-11
# Steps of a concentration in a sweep; by how much its logarithm may move in the last one, and how
# many there may be, by default.
STEPS, TOL, SWEEPS = 2, 1e-3, 200


class _Level:
    """The counts of all nodes of one depth, those above 0 alone.

    node    (n_cells,) node of each count
    parent  (n_cells,) place of the count of the same value in the level above
    direct  (n_cells,) rows counted at the node itself: those below are not known
    n       (n_cells,) these, and what nodes below drew from the node
    theta   (n_cells,) the mean of the node
    half    median of the concentration before any row; 0: there is no prior
    """

    def __init__(self, total: Floats, direct: Floats, above: _Level | None, half: float) -> None:
        self.half = half
        n_values = total.shape[1]
        self.shape = total.shape
        self.cells = np.flatnonzero(total.reshape(-1) > 0)
        self.node, self.value = np.divmod(self.cells, n_values)
        self.direct = direct.reshape(-1)[self.cells]
        self.n = total.reshape(-1)[self.cells]
        self.theta = np.empty(len(self.cells))
        self.log_a = 0.0
        self.before: tuple[float, float] | None = None
        self.parent = self.value
        if above is not None:
            over = self.node // (len(total) // above.shape[0])
            self.parent = np.searchsorted(above.cells, over * n_values + self.value)

    def settle(self, mean: Floats, leap: float) -> tuple[Floats, float]:
        """Move the concentration towards that of largest posterior, given the mean above.

        Return how many of each count were drawn from the node above, and how far ln a moved.
        """
        above, occupied = mean[self.parent], self.totals
        occupied = occupied[occupied > 0]
        start = self.log_a
        t, off = self._drawn(start, above, occupied)
        # Minka's step goes the right way, but ever more slowly: a secant through two of them.
        for _ in range(STEPS):
            at, step = self.log_a, off
            if self.before is not None and at != self.before[0] and abs(off) > NOISE:
                slope = (off - self.before[1]) / (at - self.before[0])
                step = -off / slope if slope < 0 else float(np.sign(off)) * leap
            self.before = at, off
            self.log_a = float(np.clip(at + np.clip(step, -leap, leap), *RANGE))
            t, off = self._drawn(self.log_a, above, occupied)
        return t, abs(self.log_a - start)

    def _drawn(self, log_a: float, above: Floats, occupied: Floats) -> tuple[Floats, float]:
        """Return the counts drawn from above, and Minka's step in the logarithm of a."""
        a = float(np.exp(log_a))
        m = a * above
        t = np.ones(len(m))
        # One row was drawn from above whatever the mean.
        more = np.flatnonzero(self.n != 1)
        few = m[more]
        # All at once: of a few numbers a call takes as long as of one.
        psi = digamma(np.concatenate([few + self.n[more], few + 1, a + occupied, [a]]))
        k = len(few)
        t[more] += few * (psi[:k] - psi[k : 2 * k])
        t = np.minimum(t, self.n)
        below = float((psi[2 * k : -1] - psi[-1]).sum())
        drawn = float(t.sum())
        if self.half:
            drawn, below = drawn + 1.0, below + 2.0 / (a + self.half)
        return t, float(np.log(drawn / below)) - log_a if drawn > 0 and below > 0 else 0.0

    @property
    def totals(self) -> Floats:
        """Rows of each node, (n_nodes,)."""
        return np.asarray(np.bincount(self.node, self.n, minlength=self.shape[0]), np.float64)

    def update(self, mean: Floats) -> None:
        """Set the means of the nodes, given those of the nodes above."""
        a = float(np.exp(self.log_a))
        self.theta = (self.n + a * mean[self.parent]) / (self.totals[self.node] + a)


CONCENTRATION: Any = parameter(
    """
    Of smoothing="hdp", the median of a concentration before any row: a node of so many rows is as
    likely to have more than half of the say as less. 0: there is no prior, as in files written
    before there was one, and concentrations are the most likely ones.
    """,
    default=HALF,
    check=number(),
    before=0.0,
)


def backed_off(
    totals: Sequence[Floats],
    cells: CountTables,
    j: int,
    alpha: float,
    **how: Any,
) -> tuple[Floats, Convergence]:
    """Return ln P(x_j | parents, c), 0 where x_j is no observation, and its fit.

    It is smoothed towards fewer parents, as the last of `totals`; what else is given goes to
    `concentrations`.
    """
    choices = float(cells.choices[j])
    found = concentrations(totals, choices, alpha, **how)
    table = _whole(*found.point, totals[-1].shape)
    table[..., cells.hidden[cells.offsets[j] : cells.offsets[j + 1]], :] = 1.0
    return logs(table), found


def concentrations(
    totals: Sequence[Floats],
    choices: float,
    alpha: float,
    *,
    tol: float,
    max_iter: int,
    half: float = HALF,
) -> Found[tuple[list[_Level], Floats]]:
    """Return the nodes of each depth, and P(x), with the concentrations of largest posterior.

    totals   for d = 0, 1, ... parents: (S_1, ..., S_d, n_values, n_classes) counts of the rows in
             which the first d parents and x are known
    choices  values that the pseudo-counts at the root are shared among; further values, of count 0,
             are those of which nothing was seen
    alpha    pseudo-count of each value at the root: P(x) = (t_x + alpha) / (t + choices alpha)
    half     median of a concentration before any row; 0: there is no prior

    Nothing is known that every sweep raises: what is least at the end is how far the logarithm of a
    concentration moved in the last one, which `tol` bounds and the trace keeps, from infinity.
    """
    return converged(
        _sweeps(totals, choices, alpha, tol, half),
        tol=tol,
        max_iter=max_iter,
        what="smoothing='hdp'",
        measure="the largest change of the logarithm of a concentration",
    )


def _sweeps(
    totals: Sequence[Floats], choices: float, alpha: float, tol: float, half: float
) -> Steps[tuple[list[_Level], Floats]]:
    """Yield the nodes of each depth, and P(x), after ever more sweeps."""
    levels: list[_Level] = []
    flat = [_nodes(total) for total in totals]
    for depth, total in enumerate(flat):
        direct = total
        if depth + 1 < len(flat):
            below = flat[depth + 1].reshape(len(total), -1, total.shape[1]).sum(axis=1)
            direct = without(total, below)
        levels.append(_Level(total, direct, levels[-1] if levels else None, half))
    n_values = flat[0].shape[1]
    root = _root(flat[0].sum(axis=0), choices, alpha)
    _top_down(levels, root)
    moved, n = np.inf, 0
    while True:
        # A sweep replaces the arrays of a level, and changes none.
        yield Step(([*map(copy, levels)], root), moved, moved, moved, moved < tol)
        leap = max(LEAST, LEAP * 0.5 ** max(0, (n - PATIENCE) // FEW + 1))
        moved, n = 0.0, n + 1
        for depth in range(len(levels) - 1, -1, -1):
            level = levels[depth]
            t, far = level.settle(levels[depth - 1].theta if depth else root, leap)
            moved = max(moved, far)
            if depth:
                above = levels[depth - 1]
                drawn = np.bincount(level.parent, t, minlength=len(above.cells))
                above.n = above.direct + drawn
            else:
                drawn = np.bincount(level.parent, t, minlength=n_values)
                root = _root(np.asarray(drawn, np.float64), choices, alpha)
        _top_down(levels, root)


def _nodes(total: Floats) -> Floats:
    """Return counts by node and value: (n_classes S_1 ... S_d, n_values), in C order."""
    by_class = np.moveaxis(total, -1, 0)
    return np.ascontiguousarray(by_class).reshape(-1, total.shape[-2])


def _root(n: Floats, choices: float, alpha: float) -> Floats:
    below = n.sum() + choices * alpha
    if not below > 0:
        return np.full(len(n), 1.0 / max(choices, 1.0))
    return np.asarray((n + alpha) / below)


def _top_down(levels: list[_Level], root: Floats) -> None:
    mean = root
    for level in levels:
        level.update(mean)
        mean = level.theta


def _whole(levels: list[_Level], root: Floats, shape: tuple[int, ...]) -> Floats:
    """Return the means of all nodes of the last level, those without a row too."""
    mean = root[None]
    for level in levels:
        n = np.zeros(level.shape)
        n.reshape(-1)[level.cells] = level.n
        a = float(np.exp(level.log_a))
        mean = np.repeat(mean, len(n) // len(mean), axis=0)
        mean = (n + a * mean) / (level.totals[:, None] + a)
    *parents, n_values, k = shape
    return np.moveaxis(mean.reshape(k, *parents, n_values), 0, -1)


def digamma(x: Floats) -> Floats:
    """Return the derivative of ln Gamma at x > 0, to about 1e-12."""
    result = np.zeros_like(x)
    for _ in range(6):
        result -= 1.0 / x
        x = x + 1.0
    z = 1.0 / (x * x)
    series = 1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132)))
    return np.asarray(result + np.log(x) - 0.5 / x - z * series)
