"""Counts laid out as scoring reads them, and the one formula that smooths them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics import PairCounts, ValueCounts


class Smoothing:
    """What is added to each count: alpha, or m spread over the cells of a distribution.

    Parameters
    ----------
    kind
        "laplace" or "m_estimate".
    alpha
        Pseudo-count of each cell ("laplace").
    m
        Pseudo-count of each distribution ("m_estimate").
    """

    def __init__(self, kind: str = "laplace", alpha: float = 1.0, m: float = 1.0) -> None:
        self.kind, self.alpha, self.m = kind, alpha, m

    def mass(self, cells: Any) -> Any:
        """Return the pseudo-count of one of so many cells."""
        if self.kind == "laplace":
            return np.full(np.shape(cells), self.alpha) if np.ndim(cells) else self.alpha
        return self.m / np.maximum(cells, 1)

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n + mass) / (total + cells mass); 0/0 is its limit 1/cells."""
        mass = self.mass(cells)
        below = total + cells * mass
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = 1.0 / np.maximum(cells, 1)
            return np.asarray(np.where(below > 0, (n + mass) / below, limit))

    def joint(self, n: Floats, known: Floats, total: Any, cells: Any, prior: Any) -> Floats:
        """Return P(c, v) from n(c, v), with as many classes as the last axis has.

        (n + mass) / (total + K cells mass), or of a given prior P(c) its product with (n + mass) /
        (known + cells mass), the mass being that of one of all K cells.
        """
        k = n.shape[-1]
        if prior is None:
            return self.ratio(n, total, k * cells)
        mass = self.mass(k * cells)
        below = known + cells * mass
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(below > 0, (n + mass) / below, 1.0 / np.maximum(cells, 1))
        return np.asarray(prior * share)


class WithOthers(NamedTuple):
    """Counts of one feature's values together with those of all others.

    rows    (n,) rows of the other features in `CountTables`
    widths  (m - 1,) rows of each
    counts  (S_p + 2, n, n_classes)
    """

    rows: NDArray[np.int64]
    widths: NDArray[np.int64]
    counts: Floats

    def together(self) -> Floats:
        """Return n(c, x_p = a, x_j known), (S_p + 2, n, n_classes)."""
        if not len(self.widths):
            return self.counts
        begins = np.cumsum(self.widths) - self.widths
        known = np.add.reduceat(self.counts, begins, axis=1)
        return np.asarray(np.repeat(known, self.widths, axis=1))


class CountTables:
    """Value and pair counts in S_j + 2 rows per feature: its values, missing, unseen.

    Parameters
    ----------
    values, pairs
        The statistics; None for no pairs.
    missing
        "marginalize", or "category": a missing value that occurred is a value of its own.
    unseen
        "smooth" gives an unseen value the mass of a count of 0; otherwise it is not observed.

    Attributes
    ----------
    sizes, choices
        (m,) S_j, and the values that smoothing shares its mass among.
    offsets
        (m + 1,) first row of each feature.
    n
        (n_rows, K) counts; 0 in rows that are not observed.
    known
        (m, K) rows in which a feature is observed.
    hidden
        (n_rows,) whether a code is no observation: it is marginalised out.
    feature
        (n_rows,) the feature of each row.
    """

    def __init__(
        self, values: ValueCounts, pairs: PairCounts | None = None, *, missing: str, unseen: str
    ) -> None:
        self.values = values
        self.pairs = pairs or PairCounts(values.shape, pairs=np.empty((0, 2), np.int64))
        sizes = self.sizes = values.shape.sizes
        m = len(sizes)
        self.n_classes = values.shape.n_classes
        as_value = np.zeros(m, np.bool_)
        if missing == "category":
            as_value = np.asarray((values.missing != 0).any(axis=1))
        self.as_value = as_value
        self.choices = (sizes + as_value).astype(np.float64)
        self.offsets = np.concatenate(([0], np.cumsum(sizes + 2))).astype(np.int64)
        self.feature = np.repeat(np.arange(m), sizes + 2)
        gaps = self.offsets[:-1] + sizes
        self.hidden = np.zeros(self.offsets[-1], np.bool_)
        smooth = (unseen == "smooth") & (self.choices > 0)
        self.hidden[gaps + 1] = ~smooth
        # A missing value that was never counted is an unseen one, where it is a category.
        self.hidden[gaps] = ~as_value & ~(smooth & (missing == "category"))
        # Row of each slot: every feature before has one row more than slots.
        self._rows = np.arange(values.offsets[-1]) + np.repeat(np.arange(m), sizes + 1)
        self._counted = np.ones(values.offsets[-1], np.bool_)
        self._counted[values.offsets[1:] - 1] = as_value
        self.n = np.zeros((self.offsets[-1], self.n_classes))
        self.n[self._rows[self._counted]] = values.counts[self._counted]
        self.known = np.where(as_value[:, None], values.class_counts, values.known).astype(float)

    @property
    def gaps(self) -> NDArray[np.int64]:
        """The code of each feature for what is no observation: missing, or else unseen, (m,)."""
        return self.sizes + ~self.hidden[self.offsets[1:] - 2]

    def likelihood(self, smoothing: Smoothing) -> Floats:
        """Return P(x_j = v | c), (n_rows, K); 1 where a code is no observation."""
        table = smoothing.ratio(
            self.n, self.known[self.feature], self.choices[self.feature][:, None]
        )
        table[self.hidden] = 1.0
        return table

    def beside(self, p: int) -> WithOthers:
        """Return n(c, x_p = a, x_j = b) of the other features; 0 where a code is not counted."""
        slots = np.flatnonzero(np.repeat(np.arange(len(self.sizes)), self.sizes + 1) != p)
        counted = self._counted[slots]
        rows = np.flatnonzero(self.feature != p)
        counts = np.zeros((self.sizes[p] + 2, len(rows), self.n_classes))
        at = np.searchsorted(rows, self._rows[slots[counted]])
        counts[:-1, at] = self.pairs.beside(p)[:, counted]
        if not self.as_value[p]:
            counts[self.sizes[p]] = 0.0
        widths = np.delete(self.sizes, p) + 2
        return WithOthers(rows, widths, counts)

    def spread(self, beside: WithOthers, table: Floats | None = None) -> Floats:
        """Return counts, or a table beside them, in all rows: (S_p + 2, n_rows, K).

        The rows of p itself are 0. They are never touched, so that they take no memory where p
        has very many values.
        """
        counts = beside.counts if table is None else table
        result = np.zeros((len(counts), self.offsets[-1], self.n_classes))
        result[:, beside.rows] = counts
        return result

    def conditional(self, p: int, smoothing: Smoothing) -> Floats:
        """Return P(x_j = b | c, x_p = a), (S_p + 2, n_rows, K); 1 where b is no observation.

        (n(c, a, b) + mass) / (n(c, a, x_j known) + S_j mass). The rows of p itself mean nothing.
        """
        beside = self.beside(p)
        choices = self.choices[self.feature[beside.rows]][:, None]
        table = smoothing.ratio(beside.counts, beside.together(), choices)
        table[:, self.hidden[beside.rows]] = 1.0
        return self.spread(beside, table)

    def family(self, p: int, j: int) -> Floats:
        """Return n(c, x_p = a, x_j = b), (S_p + 2, S_j + 2, K); 0 where a code is not counted."""
        block = self.pairs.block(p, j)
        result = np.zeros((self.sizes[p] + 2, self.sizes[j] + 2, self.n_classes))
        result[: block.shape[0], : block.shape[1]] = block
        if not self.as_value[p]:
            result[self.sizes[p]] = 0.0
        if not self.as_value[j]:
            result[:, self.sizes[j]] = 0.0
        return result

    def known_together(self) -> Floats:
        """Return the rows in which both features of each pair are observed, (m, m)."""
        layout, m = self.pairs.layout, len(self.sizes)
        if layout.total:
            rows = np.add.reduceat(self.pairs.flat, layout.starts[layout.cells > 0])
        total = np.zeros(len(layout.first))
        total[layout.cells > 0] = rows if layout.total else 0
        gap = layout.missing & ~self.as_value
        for q in np.flatnonzero(gap[layout.first] | gap[layout.second]).tolist():
            total[q] = self.family(int(layout.first[q]), int(layout.second[q])).sum()
        result = np.zeros((m, m))
        result[layout.first, layout.second] = result[layout.second, layout.first] = total
        return result


def logs(probabilities: Floats) -> Floats:
    """Return logarithms; ln 0 is -inf."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)
