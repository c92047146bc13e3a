"""Passes of logistic regression over rows in numpy: the twin of `compiled.gradient`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.core.one_thread import FEWEST, ONE_THREAD, pieces
from fastbayes.kernels.shared.arrays import Floats

# What a multiplication of a product of matrices takes, over what a term of a row does otherwise;
# products with directions that a step of Newton's method takes, about.
CHEAPER, PRODUCTS = 1 / 80, 16


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows that are read repeatedly.

    index    (n_terms, n_rows) the coefficients' row that each column and each pair of columns
             picks, one beyond the last where a value is missing or unseen
    sorted   (n_terms * n_rows,) the row of each entry of `index`, in the order of what it picks
    starts   (n_picked,) where that of each coefficients' row begins
    picked   (n_picked,) which that is
    numbers  (n_numeric, n_rows) z = (x - center) / scale, 0 where missing
    classes  (n_rows,), or None where none are known
    weight   (n_rows,), or None where every row weighs 1
    kept     bytes that a Hessian may keep of them in addition
    """

    n_rows: int
    index: NDArray[np.intp]
    sorted: NDArray[np.intp]
    starts: NDArray[np.intp]
    picked: NDArray[np.intp]
    numbers: Floats
    classes: NDArray[np.unsignedinteger] | None
    weight: Floats | None
    kept: int

    def indicators(self, layout: Layout) -> Floats:
        """Return the rows as a matrix, (n_rows, P): 1 where a column has a value, and numbers."""
        x = np.zeros((self.n_rows, layout.n_rows + 1))
        x[np.arange(self.n_rows), self.index] = 1.0
        x[:, 0] = 1.0
        x[:, layout.numeric] = self.numbers.T
        return np.ascontiguousarray(x[:, :-1])

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take, and what a Hessian may keep of them."""
        entries = self.index, self.sorted, self.starts, self.picked
        parts = *entries, self.numbers, self.classes, self.weight
        return self.kept + sum(part.nbytes for part in parts if part is not None)


class Gradient:
    """Loss, gradient and Hessian of logistic regression over rows; immutable, thread-safe.

    Parameters
    ----------
    layout
        Where the coefficients stand.

    Notes
    -----
    A pass is made for some coefficients and takes packed rows; many threads may use it at once.
    With one output, the margin m is the log-odds of class 1 and a row's loss ln(1 + eᵐ) - y m.
    With one output per class, it is ln Σ_k e^{m_k} - m_y. All sums are weighted and unpenalised.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def packed(self, batch: Batch, weight: Floats | None) -> Packed:
        """Return a copy of a batch's rows for the passes, of these weights and not its own."""
        layout, n = self.layout, batch.n_rows
        rows = layout.rows
        d = len(layout.sizes)
        codes = np.empty((d, n), np.intp)
        for group in batch.codes:
            codes[group.features] = group.codes
        index = np.empty((d + len(layout.pairs), n), np.intp)
        known = codes < layout.sizes[:, None]
        index[:d] = np.where(known, codes + rows.values[:, None], layout.n_rows)
        for t, (a, b) in enumerate(layout.pairs):
            at = rows.pairs[t] + codes[a] * layout.sizes[b] + codes[b]
            index[d + t] = np.where(known[a] & known[b], at, layout.n_rows)
        numbers = np.empty((layout.n_numeric, n))
        for j, x in enumerate(batch.numeric):
            z = (x - layout.center[j]) / layout.scale[j]
            numbers[j] = np.where(np.isnan(z), 0.0, z)
        classes = None if batch.classes is None else batch.classes.copy()
        own = None if weight is None else weight.copy()
        entries = index, *_grouped(index, layout.n_rows + 1)
        return Packed(n, *entries, numbers, classes, own, 8 * layout.n_outputs * n)

    def loss_gradient(self, theta: Floats) -> Callable[[Packed], tuple[float, Floats]]:
        """Return the pass that gives the loss and its gradient (P, M) at coefficients (P, M)."""
        margins = self.margins(theta)

        def run(packed: Packed) -> tuple[float, Floats]:
            assert packed.classes is not None
            m, y = margins(packed), packed.classes
            if m.shape[1] == 1:
                sign = 1.0 - 2.0 * y[:, None]
                losses = np.logaddexp(0.0, sign * m)[:, 0]
                residual = sign * _sigmoid(sign * m)
            else:
                shares, top, rest = _softmax(m)
                own = np.arange(len(y)), y
                losses = (top - m[own]) + rest
                residual = shares
                residual[own] = 0.0
                residual[own] = -residual.sum(axis=1)
            if packed.weight is not None:
                losses *= packed.weight
            return float(losses.sum()), self.sums(packed, residual)

        return run

    def hessian(self, theta: Floats, keep: bool = False) -> Hessian:
        """Return the Hessian, for its products with one direction after the other.

        Parameters
        ----------
        theta
            (P, M) coefficients.
        keep
            Whether what products need of each row is kept for the next: for rows that are packed
            once, not for those that come and go.
        """
        return Hessian(self, theta, keep)

    def hessian_product(self, theta: Floats, direction: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the Hessian's product with a direction (P, M)."""
        return self.hessian(theta).product(direction)

    def curvature(self, theta: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the diagonal of the Hessian (P, M)."""
        margins = self.margins(theta)

        def run(packed: Packed) -> Floats:
            m = margins(packed)
            shares = _sigmoid(m) if m.shape[1] == 1 else _softmax(m)[0]
            return self.sums(packed, shares * (1.0 - shares), power=2)

        return run

    def margins(self, theta: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives every row's margins (n_rows, M)."""
        table = np.zeros((len(theta) + 1, theta.shape[1]))
        table[:-1] = theta
        rows = self.layout.rows
        slopes = table[rows.numeric : rows.numeric + self.layout.n_numeric]

        def run(packed: Packed) -> Floats:
            result = np.empty((packed.n_rows, theta.shape[1]))
            for some in pieces(packed.n_rows, slopes.size):
                np.matmul(packed.numbers[:, some].T, slopes, out=result[some])
            result += table[0]
            # All columns at once: calls take longer than what they do with a few rows.
            for k, column in enumerate(table.T):
                result[:, k] += column.take(packed.index).sum(axis=0)
            return result

        return run

    def sums(self, packed: Packed, factors: Floats, power: int = 1) -> Floats:
        """Return what factors (n_rows, M) of the rows add up to in each coefficient's row.

        Parameters
        ----------
        packed
            The rows.
        factors
            (n_rows, M), each of which a row adds to all coefficients that it has.
        power
            Of its numbers, by which it multiplies theirs.
        """
        layout, length = self.layout, self.layout.n_rows + 1
        if packed.weight is not None:
            factors = factors * packed.weight[:, None]
        result = np.zeros((length, factors.shape[1]))
        for k, factor in enumerate(factors.T):
            each = factor.take(packed.sorted)
            result[packed.picked, k] = np.add.reduceat(each, packed.starts)
        result[0] = factors.sum(axis=0)
        first = layout.rows.numeric
        own, numbers = result[first : first + layout.n_numeric], packed.numbers
        numbers = numbers if power == 1 else numbers**power
        for some in pieces(packed.n_rows, own.size):
            own += numbers[:, some] @ factors[some]
        return result[:-1]


class Hessian:
    """Second derivatives of the loss of rows at some coefficients; thread-safe.

    Parameters
    ----------
    gradient
        The passes.
    theta
        (P, M) coefficients.
    keep
        Whether the classes' shares are kept of each row.
    """

    def __init__(self, gradient: Gradient, theta: Floats, keep: bool) -> None:
        self._gradient, self._margins = gradient, gradient.margins(theta)
        self._kept: dict[int, tuple[Packed, Floats]] | None = {} if keep else None

    def product(self, direction: Floats) -> Callable[[Packed], Floats]:
        """Return the pass that gives the product with a direction (P, M)."""
        slopes = self._gradient.margins(direction)

        def run(packed: Packed) -> Floats:
            shares, v = self._shares_of(packed), slopes(packed)
            if v.shape[1] > 1:
                v = v - (shares * v).sum(axis=1, keepdims=True)
            return self._gradient.sums(packed, shares * v)

        return run

    def matrix(self, products: float = PRODUCTS) -> Callable[[Packed], Floats] | None:
        """Return the pass that gives the whole matrix, (P M, P M).

        None where so many products with directions take less.
        """
        layout = self._gradient.layout
        size, m = layout.n_rows, layout.n_outputs
        own = max(1, m - 1)  # over classes rows sum to 0: the last one's follow from the others
        terms = 1 + len(layout.sizes) + len(layout.pairs) + layout.n_numeric
        if CHEAPER * size * size * (own + 1) / 2 > products * terms:
            return None

        def run(packed: Packed) -> Floats:
            shares, x = self._shares_of(packed), packed.indicators(layout)
            found = np.zeros((size, m, size, m))
            first, second = np.triu_indices(own)
            p = shares[:, first]
            if m > 1:  # of two classes the product of both shares is what is kept
                p *= (first == second) - shares[:, second]
            if packed.weight is not None:
                p *= packed.weight[:, None]
            for k, other, block in zip(first, second, _weighted_products(x, p), strict=True):
                found[:, k, :, other] = found[:, other, :, k] = block
            if m > 1:
                found[..., -1] = -found[..., :-1].sum(axis=3)
                found[:, -1] = -found[:, :-1].sum(axis=1)
            return found.reshape(size * m, size * m)

        return run

    def _shares_of(self, packed: Packed) -> Floats:
        """Return P(c) (n_rows, K) of rows, of two classes P(0) P(1) (n_rows, 1)."""
        found = None if self._kept is None else self._kept.get(id(packed))
        if found is not None:
            return found[1]
        m = self._margins(packed)
        shares = _sigmoid(m) * _sigmoid(-m) if m.shape[1] == 1 else _softmax(m)[0]
        if self._kept is not None:
            # The rows are kept with theirs, lest others take their place in memory.
            self._kept[id(packed)] = packed, shares
        return shares


def _grouped(
    index: NDArray[np.intp], length: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return `sorted`, `starts` and `picked` of packed rows.

    Sums of what lies together take half of the time that sums by index do.
    """
    flat = index.ravel().astype(np.min_scalar_type(length))  # of 16 bits it is sorted by radix
    order = flat.argsort(kind="stable")
    picks = flat[order]
    starts = np.flatnonzero(np.diff(picks, prepend=length))
    return order % max(index.shape[1], 1), starts, picks[starts].astype(np.intp)


def _weighted_products(x: Floats, weights: Floats) -> Floats:
    """Return Xᵀ diag(w) X for each column w of weights, (n_weights, P, P)."""
    n, size = x.shape
    found = np.zeros((weights.shape[1], size, size))
    each = size * (size + 1) // 2 * len(found)
    if len(found) > size and each * FEWEST <= ONE_THREAD:
        # Products of two columns, for all weights at once.
        left, right = np.triu_indices(size)
        sums = np.zeros((len(left), len(found)))
        for some in pieces(n, each):
            rows = np.ascontiguousarray(x[some].T)
            sums += (rows[left] * rows[right]) @ weights[some]
        found[:, left, right] = found[:, right, left] = sums.T
        return found
    for block, weight in zip(found, weights.T, strict=True):
        for some in pieces(n, size * size):
            block += (x[some].T * weight[some]) @ x[some]
    return found


def _sigmoid(m: Floats) -> Floats:
    """Return 1 / (1 + exp(-m)), which neither overflows nor loses small shares."""
    e = np.exp(-np.abs(m))
    return np.where(m > 0, 1.0, e) / (1.0 + e)


def _softmax(m: Floats) -> tuple[Floats, Floats, Floats]:
    """Return shares (n_rows, K), the greatest margins t (n_rows,) and ln Σ_k exp(m_k - t)."""
    best = np.arange(len(m)), m.argmax(axis=1)
    top = m[best]
    shares = np.exp(m - top[:, None])
    shares[best] = 0.0
    others = shares.sum(axis=1)
    shares[best] = 1.0
    return shares / (1.0 + others)[:, None], top, np.log1p(others)
