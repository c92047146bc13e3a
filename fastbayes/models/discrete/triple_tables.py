"""Counts of triples laid out as scoring reads them: two features as parents of all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.pair_averages import Pair
from fastbayes.models.estimator.count_tables import CountTables, Smoothing
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics import TripleCounts

Ints = NDArray[np.int64]


class TripleTables:
    """What pairs of values say of the class and of all other features.

    Parameters
    ----------
    cells
        Counts of values and pairs, S_j + 2 rows per feature.
    triples
        Counts of triples.
    """

    def __init__(self, cells: CountTables, triples: TripleCounts) -> None:
        self.cells, self.triples = cells, triples

    def pairs(self, min_count: float) -> list[Pair]:
        """Return the pairs of features of which some values are parents.

        Both values are observed, and stand together in min_count rows or more.
        """
        cells, found = self.cells, []
        seen = np.split(~cells.hidden, cells.offsets[1:-1])
        m = len(cells.sizes)
        for i in range(m - 1):
            for j in range(i + 1, m):
                often = cells.family(i, j).sum(axis=2) >= min_count
                here = often & seen[i][:, None] & seen[j]
                if here.any():
                    state = np.full(here.shape, -1)
                    state[here] = np.arange(here.sum())
                    found.append(Pair(i, j, state))
        return found

    def own(self, i: int, j: int, smoothing: Smoothing, prior: Floats | None) -> Floats:
        """Return P(c, x_i = a, x_j = b), (S_i + 2, S_j + 2, K).

        (n(c, a, b) + mass) / (n(i and j known) + K S_i S_j mass), or the prior of c times
        (n(c, a, b) + mass) / (n(c, i and j known) + S_i S_j mass).
        """
        cells = self.cells
        n = cells.family(i, j)
        known, choices = n.sum(axis=(0, 1)), cells.choices[i] * cells.choices[j]
        if prior is None:
            return smoothing.ratio(n, known.sum(), cells.n_classes * choices)
        mass = smoothing.mass(cells.n_classes * choices)
        below = known + choices * mass
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(below > 0, (n + mass) / below, 1.0 / np.maximum(choices, 1))
        return np.asarray(prior * share)

    def conditional(self, i: int, j: int, a: Ints, b: Ints, smoothing: Smoothing) -> Floats:
        """Return P(x_k = v | c, x_i = a, x_j = b), (n_states, n_rows, K), of some codes a and b.

        (n(c, a, b, v) + mass) / (n(c, a, b, k known) + S_k mass); 1 where v is no observation.
        The rows of i and j themselves mean nothing.
        """
        cells = self.cells
        n = self._given(i, j, a, b)
        known = np.add.reduceat(n, cells.offsets[:-1], axis=1)
        choices = cells.choices[cells.feature][:, None]
        table = smoothing.ratio(n, known[:, cells.feature], choices)
        table[:, cells.hidden] = 1.0
        return table

    def _given(self, i: int, j: int, a: Ints, b: Ints) -> Floats:
        """Return n(c, x_i = a, x_j = b, x_k = v), (n_states, n_rows, K), of observed a and b."""
        cells, widths = self.cells, self.triples.layout.widths
        result = np.zeros((len(a), cells.offsets[-1], cells.n_classes))
        here = (a < widths[i]) & (b < widths[j])  # others never occurred
        for k in range(len(widths)):
            if k in (i, j):
                continue
            block: Any = self.triples.block(i, j, k)[a[here], b[here]]
            first = cells.offsets[k]
            result[here, first : first + widths[k]] = block
            if not cells.as_value[k]:
                result[:, first + cells.sizes[k]] = 0.0
        return result


def states(pair: Pair) -> tuple[Ints, Ints]:
    """Return the codes of both features in each state of a pair, (n_states,) each."""
    a, b = np.nonzero(pair.state >= 0)
    order = np.argsort(pair.state[a, b])
    return a[order], b[order]
