"""Student's t of single columns: normal densities whose mean and variance are integrated out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.moments import two_sum
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import check_finite
from fastbayes.models.numeric.conjugate import KAPPA, ColumnSpreads
from fastbayes.models.numeric.covariance import log_shape
from fastbayes.statistics import ClassMoments

# Degrees of freedom of the prior: its expected variance exists, and is its scale.
NU = 3.0


class Students:
    """Student's t of some numeric columns within each class.

    places      by the place of each of the p columns among the numeric ones which one it is
    mean, rest  (p, n_classes) the centre of each density, and what rounding took from it
    rows        (p, n_classes) kappa_n: rows of the class, and those that the prior's mean is worth
    dof         (p, n_classes) degrees of freedom
    squares     (p, n_classes) scale_n: sums of squares of the class and of the prior
    scale       (p,) those of the prior; 0 for a column that is constant within every class

    Raises DataError when squares of the values of a column overflow.

    It is `GaussianBayes(prior="niw")` of each column by itself: the prior has the mean of all rows,
    worth kappa = 0.01 rows, and the pooled variance within the classes, worth one. With n rows of
    mean x̄ and scatter S, kappa_n = kappa + n, and scale_n = scale + S + kappa n/kappa_n (x̄ - m)²,
    a new row has Student's t of n + 3 degrees of freedom about (kappa m + n x̄)/kappa_n, of squared
    scale (kappa_n + 1)/(kappa_n (n + 3)) scale_n. A class without a row has n = 0.

    References
    ----------
    Murphy (2007), Conjugate Bayesian analysis of the Gaussian distribution, section 3. Fraley,
    Raftery (2007), Bayesian regularization for normal mixture estimation and model-based
    clustering, Journal of Classification 24.
    """

    def __init__(self, moments: ClassMoments, places: Sequence[int], names: Sequence[str]) -> None:
        self.places = {place: which for which, place in enumerate(places)}
        arrays = moments.arrays()
        n, mean, rest, scatter = (
            np.asarray(arrays[name][list(places)], np.float64)
            for name in ("count", "mean", "rest", "scatter")
        )
        spreads, some = ColumnSpreads.of(n, mean, rest, scatter), n > 0
        self.scale, self.rows, self.dof = spreads.pooled, KAPPA + n, NU + n
        centre = spreads.mean[:, None], spreads.rest[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            # Columns that say nothing keep the numbers that they have.
            moved = some & (self.scale[:, None] > 0)
            apart = np.where(moved, (mean - centre[0]) + (rest - centre[1]), 0.0)
            between = KAPPA * n / self.rows * apart**2
            self.squares = self.scale[:, None] + scatter + between
        check_finite(self.squares.max(axis=1, initial=0.0), names)
        mean, rest = two_sum(mean, rest - KAPPA / self.rows * apart)
        self.mean, self.rest = np.where(some, mean, centre[0]), np.where(some, rest, centre[1])

    def only(self, places: Sequence[int]) -> Students:
        """Return the densities of some of these columns."""
        found, which = object.__new__(Students), [self.places[place] for place in places]
        found.places = {place: which for which, place in enumerate(places)}
        for name in ("mean", "rest", "rows", "dof", "squares", "scale"):
            setattr(found, name, getattr(self, name)[which])
        return found

    @property
    def silent(self) -> list[int]:
        """Places of columns that are constant within every class: they say nothing."""
        return [place for place, which in self.places.items() if not self.scale[which] > 0]

    @property
    def width(self) -> Floats:
        """(p, n_classes) the scale of each density."""
        return np.sqrt(self.squares) * np.sqrt((self.rows + 1) / (self.rows * self.dof))

    @property
    def deviation(self) -> Floats:
        """(p, n_classes) the standard deviation of each density."""
        return np.asarray(self.width * np.sqrt(self.dof / (self.dof - 2)))

    @cached_property
    def parts(self) -> dict[int, Floats]:
        """By the place of each column what `add_student` takes, (5, n_classes)."""
        kept = self.scale[:, None] > 0
        width = np.where(kept, self.width, 1.0)
        inverse = 1 / (width * np.sqrt(self.dof))
        level = log_shape(np.zeros(()), 1, self.dof) - np.log(width)
        power = (self.dof + 1) / 2
        shape = (np.where(kept, part, 0.0) for part in (inverse, level, power))
        found = np.stack([self.mean, self.rest, *shape], axis=1)
        return dict(zip(self.places, found, strict=True))

    def drawn(self, place: int, codes: NDArray[np.intp], random: np.random.Generator) -> Floats:
        """Return a number of each class, of the column at a place."""
        which = self.places[place]
        apart = random.standard_t(self.dof[which][codes]) * self.width[which][codes]
        return np.asarray(self.mean[which][codes] + (self.rest[which][codes] + apart))

    def left_out(self, place: int, label: int, x: Floats, less: Floats | float) -> Floats:
        """Return the log density of a class at its own values, each taken out of its moments.

        place  Of the column.
        x      (n,) values of the class.
        less   (n,) how much of each is taken out; or the same of all.

        The prior stays. Without weight g of a row that stands d from the centre, kappa_n, n and
        the degrees of freedom are less by g, scale_n by g kappa_n/(kappa_n - g) d², and the row
        stands kappa_n/(kappa_n - g) d from the centre.
        """
        which = self.places[place]
        if not self.scale[which] > 0:
            return np.zeros(len(x))
        apart = (x - self.mean[which, label]) - self.rest[which, label]
        # What rounding leaves of one row that was there is the prior alone.
        rows = np.maximum(self.rows[which, label] - less, KAPPA)
        # As a rule each is taken out whole: the gamma functions of few degrees are enough.
        few, at = np.unique(np.maximum(self.dof[which, label] - less, NU), return_inverse=True)
        level = (log_shape(np.zeros(()), 1, few) + 0.5 * np.log(few))[at]
        factor = self.rows[which, label] / rows
        squares = self.squares[which, label] - less * factor * apart**2
        squares = np.maximum(squares, self.scale[which])
        wide = (rows + 1) / rows * squares
        distance = (factor * apart) ** 2 / wide
        return np.asarray(level - 0.5 * np.log(wide) - (few[at] + 1) / 2 * np.log1p(distance))


def log_density(parts: Floats, x: Floats, cells: float = 0.0) -> Floats:
    """Return the log density of each number within each class, 0 for NaN, (n, n_classes).

    parts  (5, n_classes) as in `Students.parts`.
    cells  Rows x columns of the whole job: whether compiling pays.
    """
    out = np.zeros((parts.shape[1], len(x)))
    given = (dispatch.readonly(array) for array in (x, parts))
    dispatch.load("scoring.density", cells).add_student(*given, 1, 0, len(x), out)
    return np.ascontiguousarray(out.T)
