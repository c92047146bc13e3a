"""How often two values of two categorical features occur together, with each class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes import _jit
from fastbayes.batch import Batch
from fastbayes.errors import SchemaError
from fastbayes.schema import Alignment, Shape
from fastbayes.statistics.value_counts import close

Ints = NDArray[np.int64]
# Pairs of values whose places are worked out at a time: the index arrays stay small.
CHUNK = 1 << 18


class Layout:
    """Where the block of each pair of features stands in one flat array.

    Parameters
    ----------
    sizes
        (m,) values of each feature.
    missing
        (m,) whether a feature has a slot for its missing values, after the others.
    n_classes
        Classes.
    first, second
        (n_pairs,) features of each pair, sorted, first < second.
    """

    def __init__(
        self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int, first: Ints, second: Ints
    ) -> None:
        self.sizes = np.asarray(sizes, np.int64)
        self.missing = np.asarray(missing, np.bool_)
        self.n_classes = n_classes
        self.first, self.second = first, second
        self.widths = self.sizes + self.missing
        self.cells = self.widths[first] * self.widths[second]
        ends = np.cumsum(self.cells)
        self.starts = (ends - self.cells) * n_classes
        self.total = int(ends[-1]) * n_classes if len(ends) else 0

    def same(self, other: Layout) -> bool:
        """Return whether every cell stands at the same place."""
        return self.n_classes == other.n_classes and all(
            np.array_equal(a, b)
            for a, b in (
                (self.sizes, other.sizes),
                (self.missing, other.missing),
                (self.first, other.first),
                (self.second, other.second),
            )
        )

    def resized(self, sizes: Ints, missing: NDArray[np.bool_], n_classes: int) -> Layout:
        """Return the layout of the same pairs for other sizes."""
        return Layout(sizes, missing, n_classes, self.first, self.second)

    @cached_property
    def complete(self) -> bool:
        """Whether every pair of features is there."""
        m = len(self.sizes)
        return len(self.first) == m * (m - 1) // 2

    def place(self, i: int, j: int) -> int:
        """Return the position of the pair (i, j), i < j.

        Raises
        ------
        KeyError
            When it is not among the pairs.
        """
        m = len(self.sizes)
        if self.complete:
            return i * (2 * m - i - 1) // 2 + j - i - 1
        key = self.first * m + self.second
        q = int(np.searchsorted(key, i * m + j))
        if q == len(key) or key[q] != i * m + j:
            raise KeyError((i, j))
        return q

    def chunks(self) -> list[tuple[int, int]]:
        """Return ranges of pairs that hold about `CHUNK` pairs of values each."""
        ends = np.cumsum(self.cells)
        if not len(ends):
            return []
        cuts = np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]) + CHUNK, CHUNK)) + 1
        bounds = np.unique(np.concatenate(([0], np.minimum(cuts, len(ends)))))
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def all_pairs(m: int) -> tuple[Ints, Ints]:
    """Return the features of all pairs i < j, sorted."""
    first, second = np.triu_indices(m, 1)
    return first.astype(np.int64), second.astype(np.int64)


class PairCounts:
    """Counts n(class, feature i = a, feature j = b): the statistic of one-dependence models.

    Parameters
    ----------
    shape
        Sizes to allocate for.
    weighted
        Whether rows carry weights: then counts are float64 sums, else exact int64.
    pairs
        (n_pairs, 2) features i < j, sorted; None for all pairs.

    Notes
    -----
    `flat` holds one block (w_i, w_j, n_classes) per pair, in C order, at `layout.starts`. w is
    the number of values, and one more where a missing value occurred: most columns have none, and
    a third value would more than double the work of a pair of two-valued columns. Memory is
    8 K sum_{i<j} w_i w_j bytes.
    """

    name: ClassVar[str] = "pairs"

    def __init__(self, shape: Shape, *, weighted: bool = False, pairs: Ints | None = None) -> None:
        self.shape = shape
        m = len(shape.sizes)
        first, second = all_pairs(m) if pairs is None else np.asarray(pairs, np.int64).T.copy()
        # Nothing is allocated before a batch tells which values are in use.
        self.layout = Layout(np.zeros(m, np.int64), np.zeros(m, np.bool_), 0, first, second)
        self.flat: NDArray[Any] = np.zeros(0, np.float64 if weighted else np.int64)

    @classmethod
    def zeros(
        cls, shape: Shape, *, weighted: bool = False, pairs: Ints | None = None
    ) -> PairCounts:
        """Return the empty statistic."""
        return cls(shape, weighted=weighted, pairs=pairs)

    @property
    def weighted(self) -> bool:
        """Whether the counts are sums of weights."""
        return self.flat.dtype == np.float64

    @classmethod
    def order_free(cls, weighted: bool) -> bool:
        """Return whether sums are exact, so that the order of addition changes no bit."""
        return not weighted

    @property
    def nbytes(self) -> int:
        """Bytes held once the statistic is settled."""
        return sum(array.nbytes for array in self.arrays().values())

    # -- reading -------------------------------------------------------------------------------

    def block(self, i: int, j: int) -> NDArray[Any]:
        """Return the (w_i, w_j, n_classes) counts of two features, missing values included."""
        if i > j:
            return self.block(j, i).transpose(1, 0, 2)
        layout, q = self.layout, self.layout.place(i, j)
        start, k = int(layout.starts[q]), layout.n_classes
        cells = self.flat[start : start + int(layout.cells[q]) * k]
        return cells.reshape(int(layout.widths[i]), int(layout.widths[j]), k)

    def of(self, i: int, j: int) -> NDArray[Any]:
        """Return the (S_i, S_j, n_classes) counts of rows where both features are known, a view."""
        return self.block(i, j)[: self.shape.sizes[i], : self.shape.sizes[j]]

    def where(self, cell: int) -> tuple[int, int]:
        """Return the pair of features to which a position in `flat` belongs."""
        q = int(np.searchsorted(self.layout.starts, cell, side="right")) - 1
        return int(self.layout.first[q]), int(self.layout.second[q])

    def given(self, p: int) -> NDArray[Any]:
        """Return n(class, p = a, j = b) as (S_p + 1, n_slots, n_classes), in `ValueCounts` slots.

        The last row and the last slot of each feature are missing values; the slots of feature p
        itself are 0.
        """
        layout, shape, k = self.layout, self.shape, self.shape.n_classes
        m, widths = len(shape.sizes), layout.widths
        others = np.delete(np.arange(m), p)
        # Place of (p = 0, j = 0), and how far the next value of p and of j stands.
        q = [layout.place(min(p, j), max(p, j)) for j in others.tolist()]
        base, left = layout.starts[q], others < p
        step_p = np.where(left, 1, widths[others]) * k
        step_j = np.where(left, widths[p], 1) * k
        result = np.zeros((int(shape.sizes[p]) + 1, int(shape.offsets[-1]), k), self.flat.dtype)
        feature = np.repeat(np.arange(len(others)), widths[others])
        begins = np.cumsum(widths[others]) - widths[others]
        value = np.arange(len(feature)) - begins[feature]
        cell = base[feature] + value * step_j[feature]
        rows = np.arange(widths[p])[:, None, None] * step_p[feature][:, None]
        slots = shape.offsets[others][feature] + value
        result[: widths[p], slots] = self.flat[cell[:, None] + rows + np.arange(k)]
        return result

    # -- learning ------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        """Count the rows of a batch whose codes fit this shape or an earlier stage of it."""
        assert batch.classes is not None
        layout = self.layout
        columns: list[NDArray[Any]] = [np.zeros(0, np.uint8)] * len(layout.sizes)
        known = np.zeros_like(layout.sizes)
        for features, codes, sizes in batch.codes:
            known[features] = sizes - batch.missing[features]
            for feature, column in zip(features.tolist(), codes, strict=True):
                columns[feature] = column
        sizes = np.maximum(layout.sizes, known)
        self._lay_out(
            layout.resized(
                sizes, layout.missing | batch.missing, max(layout.n_classes, batch.n_classes)
            )
        )
        # A batch made while the codebooks still grew has its missing code where a value now is.
        for j in np.flatnonzero(batch.missing & (known < sizes)).tolist():
            wide = columns[j].astype(np.uint32)
            columns[j] = np.where(wide == known[j], np.uint32(sizes[j]), wide).astype(
                columns[j].dtype if sizes[j] <= np.iinfo(columns[j].dtype).max else np.uint32
            )
        weight = batch.weight
        if self.weighted and weight is None:
            weight = np.ones(batch.n_rows)
        layout = self.layout
        _jit.load("pairs", batch.cells).add_pair_counts(
            *(columns, layout.widths, batch.classes, weight, layout.n_classes),
            *(layout.first, layout.second, layout.starts, self.flat),
        )

    def _lay_out(self, wanted: Layout) -> None:
        """Move the counts, in place, to another layout of the same pairs."""
        old = self.layout
        if old.same(wanted):
            return
        codes = []
        for j, (width, gap) in enumerate(zip(wanted.widths, wanted.missing, strict=True)):
            where = np.full(width, -1)
            n = min(old.sizes[j], wanted.sizes[j])
            where[:n] = np.arange(n)
            if gap and old.missing[j]:
                where[-1] = old.sizes[j]
            codes.append(where)
        classes = np.full(wanted.n_classes, -1)
        n = min(old.n_classes, wanted.n_classes)
        classes[:n] = np.arange(n)
        self.flat = _moved(self.flat, old, wanted, np.arange(len(old.sizes)), codes, classes)
        self.layout = wanted

    def grown(self, shape: Shape) -> PairCounts:
        """Return the statistic with room for at least `shape`; values and classes are appended."""
        result = self._like(
            Shape(
                np.maximum(shape.sizes, self.shape.sizes),
                shape.n_numeric,
                max(self.shape.n_classes, shape.n_classes),
            )
        )
        result.layout, result.flat = self.layout, self.flat
        return result

    def _like(self, shape: Shape) -> PairCounts:
        pairs = np.stack((self.layout.first, self.layout.second), axis=1)
        return PairCounts(shape, weighted=self.weighted, pairs=pairs)

    def take(self, to: Alignment) -> PairCounts:
        """Return the statistic with its cells moved to another shape; new cells are 0."""
        old, m = self.layout, len(to.categorical)
        inverse = np.full(len(old.sizes), -1)
        inverse[to.categorical] = np.arange(m)
        if old.complete:
            first, second = all_pairs(m)
        else:
            pairs = np.sort(np.stack((inverse[old.first], inverse[old.second]), axis=1), axis=1)
            pairs = pairs[(pairs >= 0).all(axis=1)]
            first, second = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].T.copy()
        missing = old.missing[to.categorical]
        wanted = Layout(to.shape.sizes, missing, to.shape.n_classes, first, second)
        codes = []
        for i, values, gap in zip(to.categorical.tolist(), to.values, missing, strict=True):
            # Values beyond the room that was ever needed have no counts.
            held = np.where(values < old.sizes[i], values, -1)
            codes.append(np.append(held, old.sizes[i]) if gap else held)
        classes = np.where(to.classes < old.n_classes, to.classes, -1)
        result = PairCounts(to.shape, weighted=self.weighted, pairs=np.empty((0, 2), np.int64))
        result.layout = wanted
        result.flat = _moved(self.flat, old, wanted, to.categorical, codes, classes)
        return result

    # -- arithmetic ----------------------------------------------------------------------------

    def settled(self) -> PairCounts:
        """Return the statistic laid out for its whole shape, without unused missing slots."""
        shape, missing = self.shape, self.layout.missing.copy()
        for j in np.flatnonzero(missing).tolist():
            missing[j] = self._has_missing(j)
        wanted = self.layout.resized(shape.sizes, missing, shape.n_classes)
        if self.layout.same(wanted):
            return self
        result = self.grown(shape)
        result._lay_out(wanted)
        return result

    def _has_missing(self, j: int) -> bool:
        layout = self.layout
        last = layout.sizes[j]
        ends = ((layout.first, layout.second), (layout.second, layout.first))
        return any(
            self.block(j, int(i))[last].any() for mine, other in ends for i in other[mine == j]
        )

    def __add__(self, other: PairCounts) -> PairCounts:
        return self._combined(other, np.add)

    def __sub__(self, other: PairCounts) -> PairCounts:
        return self._combined(other, np.subtract).settled()

    def _combined(self, other: PairCounts, operation: np.ufunc) -> PairCounts:
        a, b = self._together(other)
        a.flat = operation(a.flat, b.flat)
        return a

    def _together(self, other: PairCounts) -> tuple[PairCounts, PairCounts]:
        """Return both with one layout that has room for either."""
        a, b = self.layout, other.layout
        if not (np.array_equal(a.first, b.first) and np.array_equal(a.second, b.second)):
            raise SchemaError("the counts are of different pairs of columns; count both alike")
        wanted = a.resized(
            np.maximum(a.sizes, b.sizes), a.missing | b.missing, max(a.n_classes, b.n_classes)
        )
        both = self.grown(other.shape), other.grown(self.shape)
        for part in both:
            part._lay_out(wanted)
        return both

    def __mul__(self, factor: float) -> PairCounts:
        result = self.grown(self.shape)
        result.flat = self.flat * float(factor)
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairCounts):
            return NotImplemented
        if not (
            np.array_equal(self.shape.sizes, other.shape.sizes)
            and self.shape.n_classes == other.shape.n_classes
        ):
            return False
        a, b = self._together(other)
        return np.array_equal(a.flat, b.flat)

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: PairCounts, rtol: float) -> bool:
        """Return whether all numbers agree, relative to the largest of their array."""
        a, b = self._together(other)
        return close(a.flat, b.flat, rtol)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistic as named arrays."""
        whole = self.settled()
        layout = whole.layout
        arrays = {"counts": whole.flat, "missing": layout.missing.astype(np.uint8)}
        if not layout.complete:
            arrays["pairs"] = np.stack((layout.first, layout.second), axis=1)
        return arrays

    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> PairCounts:
        """Return the statistic held by the arrays of `arrays()`."""
        m, flat = len(shape.sizes), arrays["counts"]
        missing, pairs = arrays["missing"], arrays.get("pairs")
        if missing.shape != (m,) or missing.dtype != np.uint8:
            raise ValueError(f"missing: {missing.dtype}{missing.shape} does not fit {m} columns")
        if pairs is not None:
            key = pairs[:, 0] * m + pairs[:, 1]
            inside = (pairs >= 0).all() and (pairs < m).all()
            if not (inside and (pairs[:, 0] < pairs[:, 1]).all() and (np.diff(key) > 0).all()):
                raise ValueError("the pairs of columns are no sorted pairs")
        result = cls(shape, weighted=flat.dtype == np.float64, pairs=pairs)
        result.layout = result.layout.resized(shape.sizes, missing != 0, shape.n_classes)
        if flat.shape != (result.layout.total,) or flat.dtype not in (np.int64, np.float64):
            raise ValueError(
                f"counts: {flat.dtype}{flat.shape} does not fit the schema, which wants "
                f"{result.layout.total} counts of pairs"
            )
        result.flat = np.array(flat)
        return result


def _moved(
    flat: NDArray[Any],
    old: Layout,
    new: Layout,
    features: Ints,
    codes: list[NDArray[Any]],
    classes: NDArray[Any],
) -> NDArray[Any]:
    """Return the cells of `old` laid out as `new` has them; -1 in a map is a new, empty cell.

    features (m_new,), codes[j] (w_j,) and classes (K_new,): where each was before.
    """
    result = np.zeros(new.total, flat.dtype)
    kept = np.flatnonzero(classes >= 0)
    if not (len(flat) and len(result) and len(kept)):
        return result
    table = np.concatenate(codes)
    begins = np.concatenate(([0], np.cumsum(new.widths)))
    m = len(old.sizes)
    key = old.first * m + old.second
    for lo, hi in new.chunks():
        i, j = new.first[lo:hi], new.second[lo:hi]
        a, b = features[i], features[j]
        swapped = a > b
        q = np.searchsorted(key, np.where(swapped, b * m + a, a * m + b))
        pair = np.repeat(np.arange(hi - lo), new.cells[lo:hi])
        ends = np.cumsum(new.cells[lo:hi])
        cell = np.arange(ends[-1]) - (ends - new.cells[lo:hi])[pair]
        v, w = np.divmod(cell, new.widths[j][pair])
        v, w = table[begins[i][pair] + v], table[begins[j][pair] + w]
        step_v = np.where(swapped, 1, old.widths[b])
        step_w = np.where(swapped, old.widths[a], 1)
        there = np.flatnonzero((v >= 0) & (w >= 0))
        at = pair[there]
        source = old.starts[q][at] + (v[there] * step_v[at] + w[there] * step_w[at]) * old.n_classes
        target = int(new.starts[lo]) + there * new.n_classes
        for c in kept.tolist():
            result[target + c] = flat[source + classes[c]]
    return result
