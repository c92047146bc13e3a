"""Counts of a network with a class node, as its scoring reads them, and its tables."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.families import Family, FamilyTables, no_pairs
from fastbayes.models.estimator.count_tables import CountTables, Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.infer.inference import joint_posterior
from fastbayes.statistics import FamilyCounts
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

Structure = list[tuple[Family, int]]


class ClassNetworkTables(FamilyTables):
    """Value and family counts of a network, with S_j + 2 codes per feature.

    Parameters
    ----------
    stats
        Statistics with values and families: these are the structure, in its order.
    missing, unseen
        As in `CountTables`.

    Attributes
    ----------
    families
        Parents and feature of each family, features without a value left out as parents.
    class_is
        What the class is in each of them, APART or ABOVE.
    above
        Parents of the class, those without a value left out.

    Raises
    ------
    SchemaError
        When a feature has two families or none, or a parent does not stand before it.
    """

    def __init__(self, stats: Statistics, *, missing: str, unseen: str) -> None:
        CountTables.__init__(self, stats.values, no_pairs(stats), missing=missing, unseen=unseen)
        self._counts, names = stats.families, stats.schema.names
        self.families, self.class_is = [], list[int]()
        self.above: Family = ()
        self._places, below = list[int](), -1
        before: set[int] = set()
        for q, (family, part) in enumerate(
            zip(self._counts.families, self._counts.class_is, strict=True)
        ):
            *parents, j = family
            known = parents if part != BELOW else family
            if j in before if part != BELOW else below >= 0:
                node = f"column {names[j]!r}" if part != BELOW else "the class"
                raise SchemaError(f"{node} has two families; a network has one of it")
            if late := [names[p] for p in known if p not in before]:
                raise SchemaError(
                    f"column {late[0]!r} is a parent in the family of {names[j]!r}, but has no "
                    "family before it"
                )
            if part == BELOW:
                below = q
                self.above = tuple(p for p in family if self.choices[p])
                continue
            before.add(j)
            self.families.append((*(p for p in parents if self.choices[p]), j))
            self.class_is.append(part)
            self._places.append(q)
        if lost := [name for j, name in enumerate(names) if j not in before]:
            raise SchemaError(
                f"the statistics hold no family of column {lost[0]!r}; count again with it"
            )
        self._below = below
        if under := {*self._under()}.intersection(self.above):
            raise SchemaError(f"column {names[min(under)]!r} is both above and below the class")

    def _under(self) -> list[int]:
        """Return the features below the class."""
        found: set[int] = set()
        for (*parents, j), part in zip(self.families, self.class_is, strict=True):
            if part == ABOVE or not found.isdisjoint(parents):
                found.add(j)
        return sorted(found)

    def over(self) -> set[int]:
        """Return the features above the class."""
        found = {*self.above}
        parents = {family[-1]: family[:-1] for family in self.families}
        waiting = list(found)
        while waiting:
            new = {*parents[waiting.pop()]} - found
            found |= new
            waiting += new
        return found

    def counts(self, q: int, k: int | None = None) -> Floats:
        """Return n(c, parents, x_j) of family q, (S_p + 2, ..., S_j + 2, K); 0 if not counted."""
        return self._laid_out(self._places[q], self.families[q])

    def _laid_out(self, place: int, kept: Family) -> Floats:
        block = self._counts.group(place)
        gone = tuple(a for a, f in enumerate(self._counts.features(place)) if f not in kept)
        block = block.sum(axis=gone) if gone else block
        result = np.zeros((*(self.sizes[list(kept)] + 2), self.n_classes))
        result[tuple(slice(w) for w in block.shape[:-1])] = block
        for axis, f in enumerate(kept):
            if not self.as_value[f]:
                result[(slice(None),) * axis + (self.sizes[f],)] = 0.0
        return result

    def ratio(self, q: int, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + S_j mass) of cells of family q."""
        *parents, j = self.families[q]
        configurations = math.prod(self.choices[list(parents)].tolist())
        if self.class_is[q] == ABOVE:
            configurations *= self.n_classes
        return _spread(smoothing, configurations).ratio(n, total, self.choices[j])

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

    def class_counts(self) -> Floats:
        """Return n(parents, c) of a class with parents, (S_p + 2, ..., K); 0 if not counted."""
        return self._laid_out(self._below, self.above)

    def class_ratio(self, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + K mass) of cells of the family of the class."""
        rule = _spread(smoothing, math.prod(self.choices[list(self.above)].tolist()))
        return rule.ratio(n, total, self.n_classes)

    def margin(self, tables: Sequence[Floats], of_class: Floats, names: Sequence[str]) -> Floats:
        """Return P(c) of a class with parents, which are summed out.

        Parameters
        ----------
        tables
            ln P(x_j | parents) of each family.
        of_class
            P(c | parents).
        names
            Of the features.

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


def _spread(smoothing: Smoothing, configurations: float) -> Smoothing:
    """Return the rule for one of so many distributions: BDeu spreads its mass over all of them."""
    if smoothing.kind != "bdeu":
        return smoothing
    rule = copy.copy(smoothing)
    rule.m = smoothing.m / max(configurations, 1.0)
    return rule


def structure_of(
    parents: Mapping[str, Sequence[str]], names: Sequence[str], target: str
) -> Structure:
    """Return the families of a network, parents first, and what the class is in each.

    Parameters
    ----------
    parents
        Parents of the nodes; a feature that is not named has no neighbour.
    names
        The features.
    target
        The class.

    Raises
    ------
    SchemaError
        When a node is no column.
    """
    place = {name: j for j, name in enumerate(names)}
    graph = DAG({**dict.fromkeys((target, *names), ()), **parents})
    if unknown := [node for node in graph.nodes if node != target and node not in place]:
        raise SchemaError(
            f"the network has a node {unknown[0]!r}, but there is no such column; there are "
            f"{[target, *names]}"
        )
    result: Structure = []
    for node in graph.order:
        above = tuple(place[p] for p in graph.parents[node] if p != target)
        if node != target:
            part = ABOVE if target in graph.parents[node] else APART
            result.append(((*above, place[node]), part))
        elif above:
            result.append((above, BELOW))
    return result


def parents_of(stats: Statistics, target: str) -> dict[str, tuple[str, ...]]:
    """Return {node: its parents} of the structure that statistics were counted for."""
    names, counts = stats.schema.names, stats.families
    found: dict[str, tuple[str, ...]] = {target: ()}
    for family, part in zip(counts.families, counts.class_is, strict=True):
        if part == BELOW:
            found[target] = tuple(names[p] for p in family)
        else:
            first = (target,) if part == ABOVE else ()
            found[names[family[-1]]] = (*first, *(names[p] for p in family[:-1]))
    return found


def arranged(stats: Statistics, structure: Structure) -> Statistics:
    """Return statistics with the families of a structure, from those that were counted.

    Raises
    ------
    SchemaError
        When the features of a family were not counted together; the message names them.
    """
    had, names = stats.families, stats.schema.names
    if had.families == [f for f, _ in structure] and had.class_is == tuple(p for _, p in structure):
        return stats
    where = {frozenset(family): q for q, family in enumerate(had.families)}
    blocks = [np.zeros(0, had.flat.dtype)]
    for family, _ in structure:
        if frozenset(family) not in where:
            raise SchemaError(
                f"the statistics do not count {[names[j] for j in family]} together; count again "
                "with families=model.families(statistics)"
            )
        q = where[frozenset(family)]
        axes = [had.features(q).index(f) for f in family]
        blocks.append(had.group(q).transpose(*axes, len(axes)).reshape(-1))
    counts = FamilyCounts(
        had.shape,
        weighted=had.weighted,
        families=[family for family, _ in structure],
        class_is=[part for _, part in structure],
    )
    layout = had.layout
    counts.layout = counts.layout.resized(layout.sizes, layout.missing, layout.n_classes)
    counts.flat = np.concatenate(blocks)
    parts: dict[str, Any] = {**stats.parts, "families": counts.settled()}
    return replace(stats, parts=parts, folds=(), fold_names=())
