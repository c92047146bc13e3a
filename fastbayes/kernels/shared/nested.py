"""Counts and rows as leave-one-out losses of nested models read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints

LEAST = 1e-300
# Least probability of the true class in the log-loss.
CLIP = 1e-15
# Probabilities this close, relative to each other, are equal.
TIE = 1e-12
# What a subtraction leaves of a sum of weights below this share of it is rounding.
ROUNDING = 1e-12


class NestedRows(NamedTuple):
    """Rows to be scored without themselves.

    states  (m, n) int32: what each feature is, -1 where it is not observed
    y       (n,) int64
    prior   (n, K) float64: P(c) without the row
    weight  (n,) float64: what its loss counts
    gone    (n,) float64: what it takes out of the counts
    """

    states: NDArray[np.int32]
    y: Ints
    prior: Floats
    weight: Floats
    gone: Floats


class Networks(NamedTuple):
    """Counts of the families of a k-dependence structure, at every number of parents.

    parents  (m, most) int64: features before, -1 after the last
    sizes    (m,) int64: states of each feature
    cells    (m, most + 1) int64: first number of n(c, parents, x_j) in `counts`, by parents taken
    margins  (m, most + 1) int64: first number of n(c, parents, j known) in `counts`
    counts   float64
    mass     pseudo-count of a cell
    """

    parents: Ints
    sizes: Ints
    cells: Ints
    margins: Ints
    counts: Floats
    mass: float


class Averages(NamedTuple):
    """Counts of one-dependence estimators, features in the order in which they are taken.

    sizes     (m,) int64
    offsets   (m,) int64: first state of each feature
    cells     (m, m) int64: n(c, x_p = a, x_j = b) is counts[cells[p, j] + a steps[p, j] + b
              steps[j, p] + c]; -1 on the diagonal
    steps     (m, m) int64
    counts    float64
    together  (n_states, m, K) float64: n(c, x_p = a, j known)
    alone     (n_states, K) float64: n(c, x_p = a)
    known     (m, K) float64: n(c, j known)
    weight    (m,) float64: of each feature as super-parent
    least     n(x_p) of a super-parent
    child     (m,) float64: pseudo-count of a value of x_j
    joint     (m,) float64: pseudo-count of a cell of (c, x_p)
    given     whether the prior is given, rather than counted
    """

    sizes: Ints
    offsets: Ints
    cells: Ints
    steps: Ints
    counts: Floats
    together: Floats
    alone: Floats
    known: Floats
    weight: Floats
    least: float
    child: Floats
    joint: Floats
    given: bool
