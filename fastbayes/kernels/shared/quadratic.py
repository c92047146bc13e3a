"""Normal and Student t densities of classes, of rows and of patterns of what is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.one_thread import FEWEST, pieces
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.scoring import EXACT, largest_term

Flags = NDArray[np.bool_]
Marginal = Callable[[Flags], tuple[Floats, Floats, Floats, Floats, Floats | None]]
# Beyond this squared distance from every class, differences of squares are mostly rounding.
FAR = 2.0**30
LARGEST = float(np.finfo(np.float64).max)
# Densities of patterns of what is known that are kept, in bytes of their matrices.
KEPT = 2**26
# Products of a scaled matrix and rows at a time.
PRODUCTS = 2**18
# An exponent below that of every product of numbers.
LOW = -(2**20)


class Quadratics:
    """A normal or Student t density of each class, of rows without missing values.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    mean
        (n_classes, p).
    rest
        (n_classes, p) what rounding took from the mean.
    whiten
        (n_classes, p, p), or (1, p, p) where all classes share it: lower triangular, whiten Σ
        whitenᵀ = 1. The rows of features that do not take part are 0, and so are their columns.
    level
        (n_classes,) log density at the mean.
    dof
        (n_classes,) degrees of freedom of Student's t, or None for normal densities.
    """

    def __init__(
        self,
        log_prior: Floats,
        mean: Floats,
        rest: Floats,
        whiten: Floats,
        level: Floats,
        dof: Floats | None,
    ) -> None:
        self.log_prior = np.array(log_prior, np.float64)
        self.mean = np.array(mean, np.float64)
        self.rest = np.array(rest, np.float64)
        self.whiten = np.array(whiten, np.float64)
        self.level = np.array(level, np.float64)
        self.dof = None if dof is None else np.array(dof, np.float64)
        self.start = self.log_prior + self.level
        self.ranks = np.broadcast_to(self.whiten.any(axis=2).sum(axis=1), self.start.shape)

    @property
    def shared(self) -> bool:
        """Whether all of several classes have one covariance."""
        return len(self.whiten) < len(self.start)

    def limit(self, relative: bool) -> float:
        """Return the squared distance to the nearest class from which on `far` answers."""
        return FAR if relative and self.shared and self.dof is None else LARGEST

    def only(self, features: NDArray[np.intp]) -> Quadratics:
        """Return the same densities without features that do not take part."""
        return Quadratics(
            self.log_prior,
            self.mean[:, features],
            self.rest[:, features],
            self.whiten[:, features[:, None], features],
            self.level,
            self.dof,
        )

    def joint(self, x: Floats, relative: bool) -> Floats:
        """Return the log joints (n, n_classes) of rows (n, p).

        Where `relative`, up to a constant of each row: far from all classes differences are then
        exact that the log joints themselves round away.
        """
        squares = np.empty((len(x), len(self.start)))
        with np.errstate(over="ignore", invalid="ignore"):
            for c in range(len(self.start)):
                deviation = (x - self.mean[c]) - self.rest[c]
                matrix = self.whiten[c % len(self.whiten)].T
                for some in pieces(len(x), matrix.size, fewest=FEWEST):
                    rows, sums = deviation[some], 0.0
                    for columns in pieces(len(matrix), rows.size):
                        z = rows @ matrix[:, columns]
                        sums = sums + (z * z).sum(axis=1)
                    squares[some, c] = sums
            near = (squares.min(axis=1) < self.limit(relative)) & (squares.sum(axis=1) < np.inf)
            if self.dof is None:
                result = self.start - squares / 2
            else:
                result = self.start - (self.dof + self.ranks) / 2 * np.log1p(squares / self.dof)
        rows = np.flatnonzero(~near)
        some = max(PRODUCTS // max(x.shape[1] ** 2, 1), 1)
        for begin in range(0, len(rows), some):
            chosen = rows[begin : begin + some]
            result[chosen] = self.far(x[chosen], relative)
        return result

    def far(self, x: Floats, relative: bool) -> Floats:
        """Return what `joint` does of rows whose squared distances overflow, or all are far.

        A number here is a float and an exponent of its own. A log joint below the least float
        is the least float; a class that `log_prior` excludes has -inf.
        """
        parts = [self._whitened(x, c) for c in range(len(self.start))]
        squares = np.stack([(z * z).sum(axis=1) for z, _ in parts], axis=1)
        exponents = 2 * np.stack([exponent for _, exponent in parts], axis=1)
        if self.dof is not None:
            with np.errstate(divide="ignore"):
                log = np.log(squares) + exponents * np.log(2.0) - np.log(self.dof)
            return self.start - (self.dof + self.ranks) / 2 * np.logaddexp(0.0, log)
        if not relative:
            with np.errstate(over="ignore"):
                half = np.minimum(np.ldexp(squares, exponents - 1), LARGEST)
            return self.start - half
        squares, more = np.frexp(squares)
        exponents = np.where(squares > 0, exponents + more, LOW)
        possible = np.where(self.start > -np.inf, exponents, -LOW)
        least = possible == possible.min(axis=1, keepdims=True)
        best = np.where(least, squares, 2.0).argmin(axis=1)
        if self.shared:
            return self.start - self._beside(parts, best) / 2
        rows = np.arange(len(x))
        # Where even the least is too large for a float, so is any difference: less will do.
        down = np.maximum(exponents[rows, best] - 900, 0)[:, None]
        result = np.ldexp(squares, np.minimum(exponents - down, 1000))
        return self.start - (result - result[rows, best][:, None]) / 2

    def _whitened(self, x: Floats, c: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return z (n, p) and e (n,): whiten @ (row - mean) is z 2ᵉ."""
        matrix = self.whiten[c % len(self.whiten)]
        with np.errstate(over="ignore", invalid="ignore"):
            z = ((x - self.mean[c]) - self.rest[c]) @ matrix.T
        if (np.abs(z) < 1e150).all():
            return z, np.zeros(len(x), np.int64)
        z, exponents = scaled_product(matrix, x / 4 - self.mean[c] / 4 - self.rest[c] / 4)
        return z, exponents + 2

    def _beside(
        self, parts: list[tuple[Floats, NDArray[np.int64]]], best: NDArray[np.intp]
    ) -> Floats:
        """Return how much further the rows are from each class than from `best`, squared.

        z = W (x - mean): |z_c|² - |z_b|² = (z_c - z_b) · (z_c + z_b), the first a constant.
        """
        found = np.zeros((len(best), len(parts)))
        exponents = np.full(found.shape, LOW)
        for b in np.unique(best).tolist():
            rows = np.flatnonzero(best == b)
            apart = self.mean[b] / 4 - self.mean / 4 + (self.rest[b] / 4 - self.rest / 4)
            steps, scales = scaled_product(self.whiten[0], apart)
            for c in range(len(parts)):
                (z, own), (other, its) = ((part[rows], e[rows]) for part, e in (parts[b], parts[c]))
                top = np.maximum(own, its)
                both = np.ldexp(z, (own - top)[:, None]) + np.ldexp(other, (its - top)[:, None])
                found[rows, c] = both @ steps[c]
                exponents[rows, c] = top + scales[c] + 2
        found, more = np.frexp(found)
        exponents += more
        highest = np.where(found != 0, exponents, LOW).max(axis=1, keepdims=True)
        return np.ldexp(found, exponents - np.maximum(highest - 900, 0))


def scaled_product(matrix: Floats, rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return z (n, p) and e (n,) with matrix @ row = z 2ᵉ for rows (n, p), whatever their size."""
    a, up = np.frexp(matrix)
    b, more = np.frexp(rows)
    products = a * b[:, None, :]
    exponents = np.where(products != 0, up.astype(np.int64) + more[:, None, :], LOW)
    top = exponents.max(axis=(1, 2), initial=LOW)
    top[top == LOW] = 0
    scaled = np.ldexp(products, np.maximum(exponents - top[:, None, None], -1100))
    return scaled.sum(axis=2), top


def features_used(whiten: Floats) -> NDArray[np.intp]:
    """Return the features that take part in any class's density."""
    return np.flatnonzero(whiten.any(axis=(0, 1)) | whiten.any(axis=(0, 2)))


def patterns(words: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return an order of rows that puts equal ones together, and where each of these begins.

    words (any, n) are the bits of the rows. The second result has one entry more: n.
    """
    n = words.shape[1]
    code = np.zeros(n, np.int64)
    for word in words:
        more = np.unique(word, return_inverse=True)[1].ravel()
        code = np.unique(code * (n + 1) + more, return_inverse=True)[1].ravel()
    order = np.argsort(code, kind="stable")
    return order, np.flatnonzero(np.diff(code[order], prepend=-1, append=n))


def kept(n_classes: int, n_features: int) -> int:
    """Return how many patterns' densities are kept."""
    return max(KEPT // (8 * n_classes * (n_features + 1) ** 2), 16)


def known_part(
    marginal: Marginal,
    log_prior: Floats,
    used: NDArray[np.intp],
    n_features: int,
    known: bytes,
) -> Quadratics:
    """Return the densities of the features among those `used` that are known, one byte each."""
    flags = np.zeros(n_features, np.bool_)
    flags[used] = np.frombuffer(known, np.bool_)
    if not flags.any():
        k = len(log_prior)
        nothing = np.empty((k, 0))
        return Quadratics(log_prior, nothing, nothing, np.empty((k, 0, 0)), np.zeros(k), None)
    return Quadratics(log_prior, *marginal(flags))


def tie_of(densities: Quadratics) -> float:
    """Return how close log joints are equal."""
    return EXACT * (largest_term(densities.log_prior) + largest_term(densities.level))
