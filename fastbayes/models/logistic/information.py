"""All second derivatives of the loss of rows: observed information, and steps of Newton by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.scoring import with_pairs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.scan.packed_rows import Reading, RowsElsewhere
from fastbayes.statistics.pair_counts import all_pairs

# Coefficients of which all second derivatives are taken: a matrix of 32 MB.
MOST = 2_000
# Points of which they are kept: the last one, and where a step from there may lead.
KEPT = 2


def information(coefficients: Coefficients, layout: Layout, batch: Batch, weight: Any) -> Floats:
    """Return the Hessian of the negative log likelihood of some rows.

    batch         Rows, encoded by the schema of the model.
    weight        (n_rows,), None where every row weighs 1.

    Returns: (n_outputs, n_outputs, layout.n_rows, layout.n_rows): for outputs k and l the sum over
    rows of w q_kl x xᵀ, q_kl being p_k (1 - p_k) for the same and -p_k p_l for two.

    O(n (d + p)²) sums by code, for each of K (K - 1)/2 pairs of classes.
    """
    m, size = layout.n_outputs, layout.n_rows
    proba = np.empty((batch.n_rows, len(coefficients.prior)))
    coefficients.scorer(batch.cells).posterior(batch.codes, batch.numeric, proba)
    columns = _Columns.of(coefficients, layout, batch)
    found = np.zeros((m, m, size, size))
    # Rows of the whole sum to 0: what belongs to the last class follows from the others.
    own = 1 if m == 1 else m - 1
    for k in range(own):
        for other in range(k, own):
            p, q = (proba[:, -1 if m == 1 else c] for c in (k, other))
            share = p * (1 - p) if k == other else -p * q
            product = columns.product(share if weight is None else share * weight, size)
            found[k, other] = found[other, k] = product
    if m > 1:
        found[:own, own] = found[own, :own] = -found[:own, :own].sum(axis=1)
        found[own, own] = -found[:own, own].sum(axis=0)
    return found


def information_of(reading: Reading, coefficients: Coefficients) -> Floats:
    """Return the Hessian of the negative log likelihood of all rows, as `information` does.

    reading       Which rows, their weights and the layout.
    """
    layout = reading.layout
    found = reading.passed(SecondDerivatives(coefficients, layout)).found
    if found is not None:
        return np.asarray(found[0])
    return np.zeros((layout.n_outputs, layout.n_outputs, layout.n_rows, layout.n_rows))


class SecondDerivatives(NamedTuple):
    """A pass over rows, wherever they are, that gives their `information`."""

    coefficients: Coefficients
    layout: Layout

    def of(self, gradient: Any) -> Callable[[Batch, Floats | None], tuple[Floats]]:
        """Return the pass where the rows are."""
        return lambda batch, weight: (information(self.coefficients, self.layout, batch, weight),)


class Expansion(NamedTuple):
    """A pass over rows, wherever they are: loss, gradient and all second derivatives at a point.

    theta  (P, M) the point
    """

    theta: Floats
    layout: Layout

    def of(self, gradient: Any) -> Callable[[Batch, Floats | None], tuple[float, Floats, Floats]]:
        """Return the pass where the rows are."""
        first = gradient.loss_gradient(self.theta)
        coefficients = Coefficients.from_theta(self.theta, self.layout)

        def run(batch: Batch, weight: Floats | None) -> tuple[float, Floats, Floats]:
            loss, slope = first(gradient.packed(batch, weight))
            return loss, slope, information(coefficients, self.layout, batch, weight)

        return run


@dataclass
class ExpandedRows(RowsElsewhere):
    """Rows that workers read once for each point: second derivatives come with the first.

    `ahead` says whether they are asked for at every point, since a step is taken from there; else
    only where they are needed.
    """

    ahead: bool = True
    known: dict[bytes, tuple[float, Floats, Floats]] = field(default_factory=dict)

    @staticmethod
    def need(size: int) -> int:
        """Return the bytes of the matrices of so many coefficients, 0 where they are too many."""
        return 8 * size * size * (KEPT + 2) if size <= MOST else 0

    @classmethod
    def like(cls, rows: RowsElsewhere, *, ahead: bool) -> Self:
        """Return the same rows."""
        given = rows.gradient, None, rows.total, rows.n_rows, rows.threads
        return cls(*given, passes=rows.passes, reading=rows.reading, ahead=ahead)

    def sums(self, run: Any) -> Any:
        """Return what a pass gives of all rows."""
        theta = run.arguments[0]
        if run.name == "loss_gradient" and not self.ahead and theta.tobytes() not in self.known:
            return super().sums(run)
        loss, gradient, hessian = self._at(theta)
        if run.name == "loss_gradient":
            return loss, gradient
        if run.name == "curvature":
            return np.diag(hessian).reshape(theta.shape).copy()
        return (hessian @ run.arguments[1].ravel()).reshape(theta.shape)

    def _at(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return loss, gradient and the Hessian (P M, P M) at a point, in a pass if it is new."""
        if (key := theta.tobytes()) not in self.known:
            assert self.reading is not None
            loss, gradient, blocks = self.passed(Expansion(theta, self.reading.layout))
            hessian = blocks.transpose(2, 0, 3, 1).reshape(theta.size, theta.size)
            while len(self.known) >= KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = loss, gradient, hessian
        return self.known[key]


class _Columns(NamedTuple):
    """Rows as columns of codes and of numbers, with the row of the layout at which each begins.

    codes    unsigned codes of columns, and of pairs of them; those of known values come first
    starts   first row of each
    known    (m,) rows of each
    sizes    (m,) codes of each
    numbers  (1 + p, n_rows): ones, then numbers about their center, 0 where missing
    places   (1 + p,) row of each
    cells    of the whole job
    """

    codes: list[NDArray[np.unsignedinteger]]
    starts: list[int]
    known: list[int]
    sizes: NDArray[np.int64]
    numbers: Floats
    places: NDArray[np.int64]
    cells: float

    @classmethod
    def of(cls, coefficients: Coefficients, layout: Layout, batch: Batch) -> _Columns:
        """Return the columns of a batch; missing numbers are at their center."""
        rows, d = layout.rows, len(layout.sizes)
        codes, starts, known, sizes = [], [], [], []
        found = columns_of(with_pairs(batch.codes, coefficients.offsets, coefficients.pairs))
        for place, column in found.items():
            n_codes = int(coefficients.offsets[place + 1] - coefficients.offsets[place])
            values, start = n_codes - 2, int(rows.values[place]) if place < d else 0
            if place >= d:
                # Pairs of known values as the layout has them, one code for all others.
                a, b = (int(layout.sizes[j]) for j in coefficients.pairs[place - d])
                v, w = np.divmod(column.astype(np.int64), b + 2)
                values, start = a * b, int(rows.pairs[place - d])
                n_codes = values + 1
                column = np.where((v < a) & (w < b), v * b + w, values).astype(np.uint32)
            codes.append(column)
            starts.append(start)
            known.append(values)
            sizes.append(n_codes)
        z = np.ones((1 + layout.n_numeric, batch.n_rows))
        for j, x in enumerate(batch.numeric):
            z[1 + j] = np.nan_to_num((x - layout.center[j]) / layout.scale[j], nan=0.0)
        places = np.array([rows.intercept, *range(rows.numeric, rows.numeric + len(z) - 1)])
        return cls(codes, starts, known, np.array(sizes, np.int64), z, places, batch.cells)

    def product(self, weight: Floats, size: int) -> Floats:
        """Return the sum over rows of weight x xᵀ, (size, size)."""
        out = np.zeros((size, size))
        weighted = self.numbers * weight
        out[np.ix_(self.places, self.places)] = weighted @ self.numbers.T
        for code, start, known, n_codes in zip(
            self.codes, self.starts, self.known, self.sizes.tolist(), strict=True
        ):
            own = slice(start, start + known)
            for place, column in zip(self.places, weighted, strict=True):
                out[own, place] = out[place, own] = np.bincount(code, column, n_codes)[:known]
            np.fill_diagonal(out[own, own], out[own, self.places[0]])
        first, second = all_pairs(len(self.codes))
        n_cells = self.sizes[first] * self.sizes[second]
        begin = np.cumsum(n_cells) - n_cells
        cells, alone = np.zeros(int(n_cells.sum())), np.zeros(len(weight), np.uint8)
        dispatch.load("counting.pairs", self.cells).add_pair_counts(
            *(self.codes, self.sizes, alone, weight, 1), *(first, second, begin, cells)
        )
        for i, j, at, n in zip(first, second, begin, n_cells, strict=True):
            block = cells[at : at + n].reshape(self.sizes[i], self.sizes[j])
            some = block[: self.known[i], : self.known[j]]
            one, other = self.starts[i], self.starts[j]
            out[one : one + self.known[i], other : other + self.known[j]] = some
            out[other : other + self.known[j], one : one + self.known[i]] = some.T
        return out
