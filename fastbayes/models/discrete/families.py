"""Structures in which features have several parents, and the counts that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.kernels.shared.information import class_information
from fastbayes.models.discrete.structure import k_dependence
from fastbayes.models.discrete.tan import dependence
from fastbayes.models.estimator.count_tables import CountTables, Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics import FamilyCounts, PairCounts
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE

Family = tuple[int, ...]


def k_dependent(
    cells: CountTables, names: Sequence[str], k: int, information: Floats | None = None
) -> list[Family]:
    """Return the families of the k-dependence structure, in the order of its features.

    A family is the parents of a feature, the one of most information first, and the feature.
    Features without a value come last and have no part in it.

    Parameters
    ----------
    cells
        Counts of values and of all pairs.
    names
        Names of the features; they settle ties.
    k
        Most parents of a feature.
    information
        (n_features, n_features) I(X_i; X_j | C), where the cells do not hold all pairs.
    """
    told = np.flatnonzero(cells.choices > 0)
    void = np.flatnonzero(cells.choices == 0)
    relevance = class_information(cells.n, cells.offsets, cells.sizes + cells.as_value)
    if information is None:
        information = dependence(cells) if k else np.zeros((len(names), len(names)))
    order, parents = k_dependence(
        information[np.ix_(told, told)], relevance[told], [names[j] for j in told.tolist()], k
    )
    families = [(*told[parents[j]].tolist(), int(told[j])) for j in order.tolist()]
    return families + [(int(j),) for j in sorted(void.tolist(), key=names.__getitem__)]


def from_pairs(stats: Statistics, families: Sequence[Family]) -> Statistics:
    """Return statistics with families of at most two features, from those of pairs."""
    values = stats.values
    counts = FamilyCounts(values.shape, weighted=values.weighted, families=families)
    missing = np.asarray((values.missing != 0).any(axis=1))
    layout = counts.layout.resized(values.shape.sizes, missing, values.shape.n_classes)
    blocks = [np.zeros(0, values.counts.dtype)]
    for family in families:
        if len(family) == 1:
            first = values.offsets[family[0]]
            block = values.counts[first : first + layout.widths[family[0]]]
        else:
            block = stats.pairs.block(*family)
        blocks.append(block.reshape(-1))
    counts.layout, counts.flat = layout, np.concatenate(blocks)
    parts: dict[str, Any] = {"values": values, "families": counts}
    return replace(stats, parts=parts)


def no_pairs(stats: Statistics) -> PairCounts:
    """Return the counts of no pairs."""
    return PairCounts(stats.values.shape, pairs=np.empty((0, 2), np.int64))


class FamilyTables(CountTables):
    """Value and family counts, with S_j + 2 codes per feature: its values, missing, unseen.

    Parameters
    ----------
    stats
        Statistics with values and families: these are the structure, in its order.
    k
        Most parents of a feature: the first ones are taken, the others summed over.
    missing, unseen
        As in `CountTables`.

    Attributes
    ----------
    families
        Parents and feature of each family, parents without a value left out.

    Raises
    ------
    SchemaError
        When a feature has two families, or a parent does not stand before it.
    """

    def __init__(self, stats: Statistics, k: int, *, missing: str, unseen: str) -> None:
        super().__init__(stats.values, no_pairs(stats), missing=missing, unseen=unseen)
        self._counts, names = stats.families, stats.schema.names
        if {*self._counts.class_is} - {ABOVE}:
            raise SchemaError(
                "the families are those of a network in which some column does not depend on the "
                "class: NetworkClassifier reads them"
            )
        before: set[int] = set()
        self.families: list[Family] = []
        for *parents, j in self._counts.families:
            if j in before:
                raise SchemaError(f"column {names[j]!r} has two families; a network has one of it")
            if late := [names[p] for p in parents if p not in before]:
                raise SchemaError(
                    f"column {late[0]!r} is a parent of {names[j]!r}, but has no family before it"
                )
            before.add(j)
            self.families.append((*(p for p in parents[:k] if self.choices[p]), j))

    def counts(self, q: int, k: int | None = None) -> Floats:
        """Return n(c, parents, x_j) of family q, (S_p + 2, ..., S_j + 2, K), of k parents at most.

        0 where a code is not counted.
        """
        kept, all_of_it = self.families[q], self._counts.features(q)
        kept = (*kept[:-1][:k], kept[-1])
        block = self._counts.group(q)
        gone = tuple(axis for axis, f in enumerate(all_of_it) if f not in kept)
        block = block.sum(axis=gone) if gone else block
        result = np.zeros((*(self.sizes[list(kept)] + 2), self.n_classes))
        result[tuple(slice(w) for w in block.shape[:-1])] = block
        for axis, f in enumerate(kept):
            if not self.as_value[f]:
                result[(slice(None),) * axis + (self.sizes[f],)] = 0.0
        return result

    def table(self, q: int, smoothing: Smoothing) -> Floats:
        """Return ln P(x_j | parents, c) of family q, shaped as its counts.

        0 where x_j is no observation.
        """
        n, j = self.counts(q), self.families[q][-1]
        table = smoothing.ratio(n, n.sum(axis=-2, keepdims=True), self.choices[j])
        table[..., ~self.shown(j), :] = 1.0
        return logs(table)

    def shown(self, j: int) -> NDArray[np.bool_]:
        """Return whether each code of a feature is an observation, (S_j + 2,)."""
        return ~self.hidden[self.offsets[j] : self.offsets[j + 1]]
