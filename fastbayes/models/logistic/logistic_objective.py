"""What logistic regression minimises: the loss of rows, a penalty, and what earlier rows said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.layout import Layout
from fastbayes.core.schema import Alignment
from fastbayes.scan.packed_rows import PackedRows

Floats = NDArray[np.float64]

# Coefficients of which all second derivatives are kept, and cells that may be gone over for them.
MOST_KEPT, MOST_CELLS = 512, 2e8


@dataclass(frozen=True, eq=False)
class Memory:
    """The loss of rows that are gone, as a quadratic around coefficients (Laplace's approximation).

    theta      (P, M) where the loss was looked at
    gradient   (P, M) its derivatives there
    curvature  (P, M) its second derivatives there, or all of them, (P M, P M)
    loss       the loss there
    weight     sum of the weights of the rows
    """

    theta: Floats
    gradient: Floats
    curvature: Floats
    loss: float
    weight: float

    @property
    def full(self) -> bool:
        """Whether all second derivatives are kept, not only those of each coefficient by itself."""
        return self.curvature.shape != self.theta.shape

    def product(self, direction: Floats) -> Floats:
        """Return the second derivatives times a direction."""
        if not self.full:
            return np.asarray(self.curvature * direction)
        return np.asarray((self.curvature @ direction.ravel()).reshape(direction.shape))

    def value_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the quadratic and its gradient."""
        away = theta - self.theta
        bent = self.product(away)
        value = self.loss + float((self.gradient * away).sum()) + float((away * bent).sum()) / 2
        return value, self.gradient + bent

    def diagonal(self) -> Floats:
        """Return the second derivatives of each coefficient by itself, (P, M)."""
        if not self.full:
            return self.curvature
        return np.ascontiguousarray(np.diag(self.curvature)).reshape(self.theta.shape)

    def moved(self, rows: NDArray[np.int64]) -> Memory:
        """Return the same of a layout that has more rows.

        Parameters
        ----------
        rows
            (P,) the row that each had, -1 for a new one: of it nothing is known.
        """
        kept = rows >= 0

        def spread(array: Floats) -> Floats:
            out = np.zeros((len(rows), array.shape[1]))
            out[kept] = array[rows[kept]]
            return out

        if not self.full:
            curvature = spread(self.curvature)
        else:
            m = self.theta.shape[1]
            cells = np.zeros((len(rows), m, len(rows), m))
            before = self.curvature.reshape(len(self.theta), m, len(self.theta), m)
            at, of = np.flatnonzero(kept), rows[kept]
            cells[at[:, None], :, at] = before[of[:, None], :, of]
            curvature = cells.reshape(len(rows) * m, len(rows) * m)
        return Memory(spread(self.theta), spread(self.gradient), curvature, self.loss, self.weight)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return named arrays from which `from_arrays` rebuilds."""
        sums = np.array([self.loss, self.weight])
        return {"theta": self.theta, "gradient": self.gradient, "curvature": self.curvature,
                "sums": sums}  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.float64]]) -> Memory:
        """Return what `arrays` described.

        Raises
        ------
        ValueError
            When they do not fit together.
        """
        theta, gradient, curvature = (arrays[n] for n in ("theta", "gradient", "curvature"))
        fits = curvature.shape in (theta.shape, (theta.size, theta.size))
        if not (fits and gradient.shape == theta.shape and len(arrays["sums"]) == 2):
            raise ValueError("what is remembered of earlier rows does not fit together")
        return cls(theta, gradient, curvature, *arrays["sums"].tolist())


def rows_before(before: Layout, after: Layout, to: Alignment) -> NDArray[np.int64]:
    """Return the row that each row of a layout had before more values were seen, -1 for new ones.

    Parameters
    ----------
    before, after
        The layouts; pairs are of the same columns.
    to
        Where values and numbers of the schema after stand in the one before.
    """
    found = np.full(after.n_rows, -1, np.int64)
    found[0] = 0
    old, new = before.rows, after.rows
    codes = []
    for j, (place, values) in enumerate(zip(to.categorical, to.values, strict=True)):
        size, had = int(after.sizes[j]), int(before.sizes[place])
        code = np.full(size, -1, np.int64)
        code[: len(values)] = values
        known = int((values >= 0).sum())
        if size > len(values) and had > known:
            code[-1] = had - 1  # missing is a value, the last one
        codes.append(code)
        at = slice(new.values[j], new.values[j] + size)
        found[at] = np.where(code >= 0, old.values[place] + code, -1)
    numeric = new.numeric + np.arange(after.n_numeric)
    found[numeric] = np.where(to.numeric >= 0, old.numeric + to.numeric, -1)
    for i, (a, b) in enumerate(after.pairs):
        v, w = codes[a][:, None], codes[b][None, :]
        width = before.sizes[before.pairs[i][1]]
        cells = np.where((v >= 0) & (w >= 0), old.pairs[i] + v * width + w, -1)
        found[new.pairs[i] : new.pairs[i] + cells.size] = cells.ravel()
    return found


class Penalised:
    """Σ w_r loss_r + ½ Σ penalty theta² of rows, and what is remembered of earlier ones.

    Parameters
    ----------
    rows
        The rows.
    penalty
        (P, 1) of squared coefficients.
    memory
        Of earlier rows.
    """

    def __init__(self, rows: PackedRows, penalty: Floats, memory: Memory | None = None) -> None:
        self.rows, self.penalty, self.memory = rows, penalty, memory
        self.total = rows.total + (0.0 if memory is None else memory.weight)

    @property
    def passes(self) -> float:
        """Times that the rows have been gone over."""
        return self.rows.passes

    def value_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient."""
        loss, gradient = self.rows.sums(self.rows.gradient.loss_gradient(theta))
        value = loss + float((self.penalty * theta * theta).sum()) / 2
        gradient = gradient + self.penalty * theta
        if self.memory is not None:
            before, pull = self.memory.value_gradient(theta)
            value, gradient = value + before, gradient + pull
        return value, gradient

    def hessian_product(self, theta: Floats) -> Callable[[Floats], Floats]:
        """Return the function from a direction to the Hessian's product with it."""
        hessian = self.rows.hessian(theta)

        def product(direction: Floats) -> Floats:
            bent: Floats = self.rows.sums(hessian.product(direction))
            bent = bent + self.penalty * direction
            return bent if self.memory is None else bent + self.memory.product(direction)

        return product

    def curvature(self, theta: Floats) -> Floats:
        """Return the diagonal of the Hessian."""
        found: Floats = self.rows.sums(self.rows.gradient.curvature(theta)) + self.penalty
        return found if self.memory is None else found + self.memory.diagonal()


def remembered(rows: PackedRows, theta: Floats, memory: Memory | None) -> Memory:
    """Return the loss of rows as a quadratic around some coefficients, added to what was known.

    All second derivatives are kept where the coefficients are few and the rows not too many;
    elsewhere those of each coefficient by itself.
    """
    loss, gradient = rows.sums(rows.gradient.loss_gradient(theta))
    p, m = theta.shape
    size = p * m
    if (
        (memory is None or memory.full)
        and size <= MOST_KEPT
        and size * p * rows.n_rows <= MOST_CELLS
    ):
        curvature, hessian = np.empty((size, size)), rows.hessian(theta)
        for i in range(size):
            unit = np.zeros(size)
            unit[i] = 1.0
            curvature[i] = rows.sums(hessian.product(unit.reshape(p, m))).ravel()
        curvature = (curvature + curvature.T) / 2
    else:
        curvature = rows.sums(rows.gradient.curvature(theta))
    if memory is None:
        return Memory(theta, gradient, curvature, loss, rows.total)
    before, pull = memory.value_gradient(theta)
    earlier = memory.curvature
    if earlier.shape != curvature.shape:
        if memory.full:
            curvature = np.diag(curvature.ravel())
        else:
            earlier = memory.diagonal()
    return Memory(
        theta,
        gradient + pull,
        curvature + earlier,
        loss + before,
        rows.total + memory.weight,
    )
