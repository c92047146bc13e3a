"""What models have in common that multiply P(c) by a table P(x_j | parents, c) per feature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.families import Family, FamilyTables
from fastbayes.models.discrete.hierarchical import backed_off
from fastbayes.models.discrete.one_dependence import OneDependence, by_chain_rule, code_rows
from fastbayes.models.discrete.structure import class_node, tree_dot
from fastbayes.models.estimator.base import Classifier, Scans
from fastbayes.models.estimator.count_tables import Smoothing
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.sampling import drawn_codes, value_codes
from fastbayes.networks.infer.scorer import Network, NetworkScorer
from fastbayes.networks.network import BayesianNetwork
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE


class AsNetwork(Classifier):
    """A classifier that multiplies P(c) by one P(x_j | parents, c) for each feature.

    A subclass says what each feature depends on (`_dependencies`) and gives the tables
    (`_log_tables`).
    """

    class_log_prior_: Floats = fitted("(n_classes,) nats.")

    def _dependencies(self) -> Mapping[str, Sequence[str]]:
        """Return the parents of each feature beside the class."""
        raise NotImplementedError

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        """Yield each feature and (S_parent + 2, ..., S_j + 2, n_classes) ln P(x_j | parents, c)."""
        raise NotImplementedError

    def to_dot(self) -> str:
        """Return the structure in Graphviz' language.

        Returns
        -------
        str
            A directed graph from the class to every feature, and from feature to feature.
        """
        self._check_fitted()
        return tree_dot(self.schema_.target or "class", self._dependencies())

    def to_network(self) -> BayesianNetwork:
        """Return the model as a Bayesian network of the class and the features.

        Returns
        -------
        BayesianNetwork
            The class is a node with the labels as states; the parents of a feature are the class
            and then its own. Values are states; so are the bins of a column that was cut, as
            text, and None where missing is a value. A column without a value is left out, and so
            is one that was not selected.

        Raises
        ------
        SchemaError
            When a column is numeric: the nodes of a network are discrete.
        """
        self._check_fitted()
        schema, above = self.schema_, self._dependencies()
        target = class_node(schema.target or "class", above)
        for feature in schema.numeric:
            raise SchemaError(
                f"column {feature.name!r} has a density; the nodes of a network are "
                "discrete: name it in `categorical`, or use a model that cuts it into bins"
            )
        as_value = np.zeros(len(schema.names), np.bool_)
        if self.missing == "category":
            as_value = (self.statistics_.values.missing != 0).any(axis=1)
        states: dict[str, list[Any]] = {target: schema.classes.to_pylist()}
        for feature, more in zip(schema.features, as_value, strict=True):
            assert feature.values is not None
            values = feature.values.to_pylist() if feature.cuts is None else feature.intervals
            states[feature.name] = [*values, None] if more else [*values]
        prior = np.exp(self.class_log_prior_)
        tables: dict[str, Floats] = {target: prior / prior.sum()}
        parents: dict[str, tuple[str, ...]] = {target: ()}
        logs = dict(self._log_tables())
        for name in above:
            if states[name]:
                # A parent without a value stands at its code of missing, the first one.
                here = [slice(len(states[n])) if states[n] else 0 for n in (*above[name], name)]
                tables[name] = np.exp(np.moveaxis(logs[name], -1, 0)[(slice(None), *here)])
                parents[name] = (target, *(p for p in above[name] if states[p]))
        return BayesianNetwork({node: states[node] for node in parents}, parents, tables)


class FamilyModel(AsNetwork, OneDependence):
    """A network of features below the class: a structure, and a table for each family.

    A subclass learns the structure. It gives the tables of counts of its families (`_cells_of`),
    or reads them itself (`_read`); all that a fitted model answers follows from them.
    """

    _cells: FamilyTables = fitted()
    _rule: Smoothing = fitted()
    _network: Network = fitted()

    # -- learning ------------------------------------------------------------------------------

    def _families(
        self,
        scans: Scans,
        families: Sequence[Family],
        class_is: Sequence[int] | None = None,
        known: Statistics | None = None,
    ) -> Statistics:
        """Return the counts of families; `known` are statistics of the same rows."""
        told = {"families": families} | ({} if class_is is None else {"class_is": class_is})
        wanted = {"values": {}, "families": told}
        counted = scans.count(self, wanted, None if known is None else known.schema)
        if known is not None:
            scans.check_unchanged(counted.values == known.values)
        return counted

    def _same_families(self, scans: Scans) -> Statistics:
        """Return the counts of the families that the model was fitted to."""
        known, at = self.statistics_.families, scans.places(self.schema_.names)
        families = [tuple(at[j] for j in family) for family in known.families]
        return self._families(scans, families, known.class_is)

    def _tables_of(self, cells: FamilyTables, smoothing: Smoothing) -> list[Floats]:
        """Return ln P(x_j | parents, c) of each family."""
        if getattr(self, "smoothing", None) != "hdp":
            return [cells.table(q, smoothing) for q in range(len(cells.families))]
        tables = []
        for q, family in enumerate(cells.families):
            totals = [cells.counts(q, depth) for depth in range(len(family))]
            tables.append(backed_off(totals, cells, family[-1], smoothing.alpha))
        return tables

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, rule = super()._read(stats), self._smoothing()
        cells, names = found["_cells"], stats.schema.names
        network = cells.network(self._tables_of(cells, rule), names)
        return found | {"_rule": rule, "_network": network}

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: S_j - 1 times the joint values of the parents of each node."""
        self._check_fitted()
        cells, k = self._cells, len(self.classes_)
        sizes: list[int] = cells.choices.astype(np.int64).tolist()
        each = [
            math.prod(sizes[p] for p in parents)
            * max(sizes[j] - 1, 0)
            * (k if part == ABOVE else 1)
            for (*parents, j), part in zip(cells.families, cells.class_is, strict=True)
        ]
        return (k - 1) * math.prod(sizes[p] for p in cells.above) + sum(each)

    def _dependencies(self) -> Mapping[str, Sequence[str]]:
        names = self.schema_.names
        return {names[j]: tuple(names[p] for p in parents) for *parents, j in self._cells.families}

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        for family, table in zip(self._cells.families, self._network.tables, strict=False):
            yield self.schema_.names[family[-1]], table

    def _network_scorer(
        self, log_prior: Floats, network: Network, precision: str, cells: float
    ) -> Any:
        """Return what scores rows by a network like that of the model."""
        return NetworkScorer(log_prior, network, precision, cells)

    def _scorer(self, cells: float) -> Any:
        prior, network = self.class_log_prior_, self._network
        return self._network_scorer(prior, network, self.precision, cells)

    def _likelihood(self) -> Any:
        """Return what scores ln P(x | c)."""
        return self._network_scorer(np.zeros(len(self.classes_)), self._network, "exact", 0)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | parents); where one is not observed, or the class has some, as follows.

        A feature gets what its value adds to ln P(the features before it | c).
        """
        cells, network = self._cells, self._network
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        out[:] = 0.0
        rows = np.arange(batch.n_rows)
        if not cells.above:
            for family, table in zip(network.families, network.tables, strict=True):
                out[:, family[-1]] = table[tuple(codes[j] for j in family)]
            rows = np.flatnonzero(network.rows(batch.codes, batch.n_rows))
        if len(rows):
            order = [family[-1] for family in cells.families]
            out[rows] = by_chain_rule(self._likelihood(), order, codes[:, rows], cells)

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Draw features in the order of the structure, those above the class given what is below.

        Those that are in no family are missing.
        """
        cells, above, before = self._cells, self._cells.over(), list[int]()
        drawn = np.broadcast_to(cells.sizes[:, None], (len(cells.sizes), len(codes))).copy()
        for (*parents, j), table in zip(cells.families, self._network.tables, strict=False):
            if states := int(cells.choices[j]):
                if j in above:
                    drawn[j] = drawn_codes(self._given_class(j, drawn, before, codes), random)
                else:
                    given = np.exp(np.moveaxis(table[..., :states, :], -2, 0))
                    cell = np.ravel_multi_index(
                        (*(drawn[p] for p in parents), codes), given.shape[1:]
                    )
                    drawn[j] = value_codes(given.reshape(states, -1), cell, random)
            before.append(j)
        return list(drawn)

    def _given_class(
        self, j: int, drawn: NDArray[np.int64], before: list[int], codes: NDArray[np.intp]
    ) -> Floats:
        """Return P(x_j | features drawn before, c) up to a factor, (n_rows, S_j)."""
        cells, scorer, every = self._cells, self._likelihood(), np.arange(len(codes))
        partial = np.broadcast_to(cells.gaps[:, None], drawn.shape).astype(np.uint32)
        partial[before] = drawn[before]
        joint = np.empty((len(codes), int(cells.choices[j])))
        out = np.empty((len(codes), cells.n_classes))
        group = Codes(np.arange(len(partial)), partial, cells.sizes + 2)
        for v in range(joint.shape[1]):
            partial[j] = v
            scorer.log_joint([group], (), out)
            joint[:, v] = out[every, codes]
        top = joint.max(axis=1, keepdims=True)
        return np.asarray(np.exp(joint - np.where(np.isneginf(top), 0.0, top)))
