"""Scoring of averaged two-dependence estimators, a block of rows at a time.

A row is the sum, over the pairs of its features, of products of a table's entries, one for each
feature: d³/2 look-ups a row. The entries of all classes stand side by side and are multiplied as
one vector. Each was divided by a reference for its value, about its probability whatever class
and parents, so that products stay in the range of floats without any logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.simd import lanes, vector
from fastbayes.kernels.compiled.simd.memory import borrow
from fastbayes.kernels.dispatch import kernel, numpy_twin, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U
from fastbayes.kernels.shared.pair_averages import Pair, Tables, fall_back, fill_own
from fastbayes.kernels.shared.posterior import JointScorer

# Rows at a time: many, since all tables are read for them, few enough to stay in the caches.
ROWS = 8192
# Powers of two that a product may reach either way: the sum of all pairs' fits, too.
RANGE = {np.dtype(np.float64): 1000.0, np.dtype(np.float32): 110.0}
WIDTHS = (2, 4, 8)

_INT = reads("int64")
SIGNATURES = {
    f"add_products_{width}": [
        (
            *(reads("uint32", 2), _INT, _INT, _INT, _INT, reads("int32"), reads(table)),
            *(reads(table), "int64", writes("float64"), writes("int64")),
        )
        for table in ("float64", "float32")
    ]
    for width in WIDTHS
}


class PairAverageScorer(JointScorer):
    """Log joints, posteriors and predictions of A2DE; see the numpy twin.

    The twin stands in where products could leave the range of floats. "fast" multiplies in float32,
    which leaves an error of about d 2⁻²⁴ in a log joint.
    """

    def __init__(
        self,
        fallback: Any,
        log_prior: Floats,
        offsets: NDArray[np.int64],
        reference: Floats,
        pairs: Sequence[Pair],
        tables: Tables,
        tie: float,
        precision: str = "exact",
    ) -> None:
        prior, offsets = np.array(log_prior, np.float64), np.array(offsets, np.int64)
        given = offsets, np.array(reference, np.float64), pairs, tables
        for coarse in [True] * (precision == "fast") + [False]:
            products = _Products(len(prior), *given, np.float32 if coarse else np.float64)
            if products.fit:
                break
        self._fallback, self._products, self._twin = fallback, products, None
        if not (products.fit and vector.AVAILABLE):
            self._twin = numpy_twin("scoring.pair_averages").PairAverageScorer(
                fallback, prior, *given, tie
            )
        super().__init__(prior, min(tie + 2.0**-22 * len(offsets), 1e-5) if coarse else tie)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        if self._twin is not None:
            self._twin.log_joint(batch_codes, numeric, out)
            return
        alone = np.empty(len(out), np.bool_)
        for lo in range(0, len(out), ROWS):
            block = slice(lo, min(lo + ROWS, len(out)))
            alone[block] = self._products.log_sums(batch_codes, block, out[block])
        fall_back(self._fallback, batch_codes, alone, out)


class _Products:
    """The tables of a model in one type of floats, and sums of their products.

    fit  whether no product leaves the range of the type
    """

    def __init__(
        self,
        n_classes: int,
        offsets: NDArray[np.int64],
        reference: Floats,
        pairs: Sequence[Pair],
        tables: Tables,
        kind: type[np.floating],
    ) -> None:
        width, self._add = next((t for t in PRODUCTS if t[0] >= n_classes), PRODUCTS[-1])
        self._offsets, self._log_reference = offsets, np.log(reference)
        begins = np.cumsum([0, *(int(pair.state.max(initial=-1)) + 1 for pair in pairs)])
        self._where = _places(offsets, pairs, begins)
        # Classes by so many as are multiplied at a time; those that only fill up are 0.
        shape = -(-n_classes // width), int(begins[-1])
        self._own = np.zeros((*shape, width), kind)
        self._children = np.ones((*shape, int(offsets[-1]), width), kind)
        of_classes, reach = np.repeat(reference, n_classes), 0.0
        for q, pair in enumerate(pairs):
            own, children = tables(q)
            a, b = np.nonzero(pair.state >= 0)
            order = np.argsort(pair.state[a, b])
            a, b = a[order] + offsets[pair.first], b[order] + offsets[pair.second]
            own = own / (reference[a] * reference[b])[:, None]
            children = np.asarray(children)
            children = (children.reshape(len(children), -1) / of_classes).reshape(children.shape)
            fill_own(pair, children, offsets)
            one = _reach(own[:, None], np.zeros(1, np.int64)) + _reach(children, offsets[:-1])
            reach = max(reach, one)
            mine = slice(begins[q], begins[q + 1])
            with np.errstate(over="ignore", under="ignore"):
                for chunk, first in enumerate(range(0, n_classes, width)):
                    lanes_used = slice(min(width, n_classes - first))
                    classes = slice(first, first + width)
                    self._own[chunk, mine, lanes_used] = own[:, classes]
                    self._children[chunk, mine, :, lanes_used] = children[..., classes]
        self.fit = reach + np.log2(1 + len(pairs)) <= RANGE[np.dtype(kind)]

    def log_sums(
        self, batch_codes: Sequence[Codes], block: slice, out: Floats
    ) -> NDArray[np.bool_]:
        """Write the log joints of a block of rows; return which of them have no parents."""
        n, d = len(out), len(self._offsets) - 1
        rows = borrow("pair_average_rows", (n, d), np.uint32)
        for features, codes, _sizes in batch_codes:
            rows[:, features] = codes[:, block].T + self._offsets[features].astype(np.uint32)
        total = np.zeros(n, np.int64)
        for chunk, (own, children) in enumerate(zip(self._own, self._children, strict=True)):
            width = own.shape[1]
            sums = borrow("pair_average_sums", (n * width,), np.float64)
            sums[:] = 0
            total[:] = 0
            tables = readonly(own.reshape(-1)), readonly(children.reshape(-1))
            self._add(readonly(rows), *self._where, *tables, children.shape[1], sums, total)
            classes = slice(chunk * width, (chunk + 1) * width)
            part = sums.reshape(n, width)[:, : out[:, classes].shape[1]]
            with np.errstate(divide="ignore"):
                out[:, classes] = np.log(part)
        out += (self._log_reference[rows].sum(axis=1) - np.log(np.maximum(total, 1)))[:, None]
        return np.asarray(total == 0)


def _places(
    offsets: NDArray[np.int64], pairs: Sequence[Pair], begins: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    """Return what tells the state of a pair in a row: features, places and steps, and states.

    That of rows a and b of features i and j is states[at + a step + b].
    """
    first, second = (np.array([pair[t] for pair in pairs], np.int64) for t in (0, 1))
    states = [np.where(p.state < 0, -1, p.state + b) for p, b in zip(pairs, begins, strict=False)]
    sizes = np.array([state.size for state in states], np.int64)
    step = np.diff(offsets)[second]
    at = np.cumsum(sizes) - sizes - offsets[first] * step - offsets[second]
    flat = np.concatenate([np.zeros(0, np.int32), *(s.ravel().astype(np.int32) for s in states)])
    return tuple(map(readonly, (first, second, at, step, flat)))


def _reach(tables: Floats, starts: NDArray[np.int64]) -> float:
    """Return how far, in powers of two, a product of one positive entry of each feature gets."""
    if not tables.size:
        return 0.0
    # The logarithm ascends: it is taken of the extremes alone.
    least, most = tables.min(axis=0), tables.max(axis=0)
    if not (least.min() > 0 and most.max() < np.inf):
        some = np.where((tables > 0) & (tables < np.inf), tables, 1.0)
        least, most = some.min(axis=0), some.max(axis=0)
    powers = np.maximum(np.log2(most).max(axis=1), -np.log2(least).min(axis=1))
    return float(np.maximum.reduceat(powers, starts).sum())


def _products_of(width: int) -> Any:
    @kernel
    def add_products(rows, first, second, at, step, states, own, children, n_slots, sums, total):
        """Add the products of each pair of features: sums[r] += own[s] Π_k children[s, rows[r, k]].

        s = states[at + rows[r, i] step + rows[r, j]] is the state of pair (i, j) in row r.

        rows      IN   (n, d) uint32   row of each cell in a table of all features
        first, second, at, step  IN  (n_pairs,) int64   i, j, and where their states are
        states    IN   int32   -1 where the values are no parents
        own       IN   (n_states * width,) float64 | float32
        children  IN   (n_states * n_slots * width,) float64 | float32   1 in rows of the parents
        n_slots   IN   rows of a table of all features
        sums      OUT  (n * width,) float64
        total     OUT  (n,) int64   += pairs that are parents
        """
        n, d = rows.shape
        size, flat = U(width), rows.reshape(-1)
        pitch, block = U(d), U(n_slots) * size
        for q in range(first.size):
            i, j, base, skip = U(first[q]), U(second[q]), at[q], step[q]
            for r in range(n):
                row = U(r) * pitch
                s = states[U(base + np.int64(flat[row + i]) * skip + np.int64(flat[row + j]))]
                if s < 0:
                    continue
                table = U(s) * block
                a = lanes.load(own, U(s) * size, width)
                b = lanes.load(children, table + U(flat[row + pitch - U(1)]) * size, width)
                # Two chains: each product waits for the one before.
                k, last = row, row + pitch - U(2)
                while k < last:
                    a = lanes.mul(a, lanes.load(children, table + U(flat[k]) * size, width))
                    b = lanes.mul(b, lanes.load(children, table + U(flat[k + U(1)]) * size, width))
                    k += U(2)
                if k == last:
                    a = lanes.mul(a, lanes.load(children, table + U(flat[k]) * size, width))
                here = U(r) * size
                sum_ = lanes.add(lanes.load(sums, here, width), lanes.widen(lanes.mul(a, b)))
                lanes.store(sums, here, sum_)
                total[r] += 1

    return add_products


add_products_2, add_products_4, add_products_8 = (_products_of(width) for width in WIDTHS)
PRODUCTS = tuple(zip(WIDTHS, (add_products_2, add_products_4, add_products_8), strict=True))
