"""Structures in which features have several parents, and the counts that they need."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.models.estimator.count_tables import CountTables, Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.infer.class_scorer import ClassNetwork
from fastbayes.networks.infer.inference import joint_posterior
from fastbayes.networks.infer.scorer import Network
from fastbayes.statistics import FamilyCounts
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

Family = tuple[int, ...]


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


class FamilyTables(CountTables):
    """Value and family counts, with S_j + 2 codes per feature: its values, missing, unseen.

    Parameters
    ----------
    stats
        Statistics with values and families: these are the structure, in its order.
    k
        Most parents of a feature: the first ones are taken, the others summed over; None for all.
    missing, unseen
        As in `CountTables`.

    Attributes
    ----------
    families
        Parents and feature of each family, parents without a value left out.
    class_is
        What the class is in each of them, APART or ABOVE.
    above
        Parents of the class, those without a value left out.

    Raises
    ------
    SchemaError
        When a feature has two families, or a parent does not stand before it.
    """

    def __init__(
        self, stats: Statistics, k: int | None = None, *, missing: str, unseen: str
    ) -> None:
        super().__init__(stats.values, missing=missing, unseen=unseen)
        self._counts, names = stats.families, stats.schema.names
        self.families: list[Family] = []
        self.class_is = list[int]()
        self.above: Family = ()
        self._places, self._below = list[int](), -1
        before: set[int] = set()
        for q, (family, part) in enumerate(
            zip(self._counts.families, self._counts.class_is, strict=True)
        ):
            *parents, j = family
            of_class = part == BELOW
            node = "the class" if of_class else f"column {names[j]!r}"
            if self._below >= 0 if of_class else j in before:
                raise SchemaError(f"{node} has two families; a network has one of it")
            known = family if of_class else parents
            if late := [names[p] for p in known if p not in before]:
                of = "the class" if of_class else repr(names[j])
                raise SchemaError(
                    f"column {late[0]!r} is a parent of {of}, but has no family before it"
                )
            if of_class:
                self._below, self.above = q, tuple(p for p in family if self.choices[p])
                continue
            before.add(j)
            self.families.append((*(p for p in parents[:k] if self.choices[p]), j))
            self.class_is.append(part)
            self._places.append(q)
        if under := self._under().intersection(self.above):
            raise SchemaError(f"column {names[min(under)]!r} is both above and below the class")

    def _under(self) -> set[int]:
        """Return the features below the class."""
        found: set[int] = set()
        for (*parents, j), part in zip(self.families, self.class_is, strict=True):
            if part == ABOVE or not found.isdisjoint(parents):
                found.add(j)
        return found

    def over(self) -> set[int]:
        """Return the features above the class."""
        found = {*self.above}
        for *parents, j in reversed(self.families):
            if j in found:
                found.update(parents)
        return found

    def counts(self, q: int, k: int | None = None) -> Floats:
        """Return n(c, parents, x_j) of family q, (S_p + 2, ..., S_j + 2, K), of k parents at most.

        0 where a code is not counted.
        """
        *parents, j = self.families[q]
        return self._laid_out(self._places[q], (*parents[:k], j))

    def class_counts(self) -> Floats:
        """Return n(parents, c) of a class with parents, (S_p + 2, ..., K); 0 if not counted."""
        return self._laid_out(self._below, self.above)

    def _laid_out(self, place: int, kept: Family) -> Floats:
        block = self._counts.group(place)
        summed = tuple(a for a, f in enumerate(self._counts.features(place)) if f not in kept)
        block = block.sum(axis=summed) if summed else block
        result = np.zeros((*(self.sizes[list(kept)] + 2), self.n_classes))
        result[tuple(slice(w) for w in block.shape[:-1])] = block
        for axis, f in enumerate(kept):
            if not self.as_value[f]:
                result[(slice(None),) * axis + (self.sizes[f],)] = 0.0
        return result

    def ratio(self, q: int, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + S_j mass) of cells of family q."""
        *parents, j = self.families[q]
        states = self.n_classes if self.class_is[q] == ABOVE else 1
        return self._spread(smoothing, parents, states).ratio(n, total, self.choices[j])

    def class_ratio(self, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + K mass) of cells of the family of the class."""
        return self._spread(smoothing, self.above).ratio(n, total, self.n_classes)

    def _spread(self, smoothing: Smoothing, parents: Sequence[int], states: int = 1) -> Smoothing:
        """Return the rule of each distribution: BDeu spreads its mass over all of them."""
        if smoothing.kind != "bdeu":
            return smoothing
        rule = copy.copy(smoothing)
        rule.m = smoothing.m / max(states * math.prod(self.choices[list(parents)].tolist()), 1.0)
        return rule

    def table(self, q: int, smoothing: Smoothing) -> Floats:
        """Return ln P(x_j | parents, c), or ln P(x_j | parents) for all classes, of family q.

        Shaped as its counts; 0 where x_j is no observation.
        """
        n, j = self.counts(q), self.families[q][-1]
        whole = n.shape
        if self.class_is[q] == APART:
            n = n.sum(axis=-1, keepdims=True)
        table = self.ratio(q, smoothing, n, n.sum(axis=-2, keepdims=True))
        table[..., ~self.shown(j), :] = 1.0
        return np.broadcast_to(logs(table), whole)

    def of_class(self, smoothing: Smoothing) -> Floats:
        """Return P(c | parents), (S_p + 2, ..., K)."""
        n = self.class_counts()
        return self.class_ratio(smoothing, n, n.sum(axis=-1, keepdims=True))

    def shown(self, j: int) -> NDArray[np.bool_]:
        """Return whether each code of a feature is an observation, (S_j + 2,)."""
        return ~self.hidden[self.offsets[j] : self.offsets[j + 1]]

    def network(
        self,
        tables: Sequence[Floats],
        names: Sequence[str],
        says: Floats | None = None,
        summed: Sequence[Floats] | None = None,
        says_summed: Floats | None = None,
    ) -> Network:
        """Return the network of tables of the families; `says` is of a class with parents."""
        hidden = [~self.shown(j) for j in range(len(names))]
        parts = self.families, tables, hidden, self.choices.astype(np.int64), names
        if says is None:
            return Network(*parts, summed)
        return ClassNetwork(self.above, says, *parts, summed, says_summed)

    def margin(self, tables: Sequence[Floats], of_class: Floats, names: Sequence[str]) -> Floats:
        """Return P(c) of a class with parents, which are summed out of the tables of all families.

        Raises
        ------
        MemoryLimitError
            When that takes too large a table; the message names its nodes.
        """
        m, states = len(names), self.choices.astype(np.int64)
        parents: list[Family] = [*[()] * m, self.above]
        at: list[Any] = [slice(int(n)) for n in states]
        dense = [np.zeros(0)] * m + [of_class[tuple(at[p] for p in self.above)]]
        above = self.over()
        for family, table in zip(self.families, tables, strict=True):
            if family[-1] in above:
                here = *(at[f] for f in family), 0
                dense[family[-1]], parents[family[-1]] = np.exp(table[here]), family[:-1]
        coded = Coded((*names, "the class"), np.append(states, self.n_classes), parents, dense)
        return joint_posterior(coded, {}, [m])[0]
