"""Classifiers that are Bayesian networks: their graph, and the network itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.structure import class_node, tree_dot
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted
from fastbayes.networks.network import BayesianNetwork


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
        for name, table in self._log_tables():
            if states[name]:
                # A parent without a value stands at its code of missing, the first one.
                here = [slice(len(states[n])) if states[n] else 0 for n in (*above[name], name)]
                tables[name] = np.exp(np.moveaxis(table, -1, 0)[(slice(None), *here)])
                parents[name] = (target, *(p for p in above[name] if states[p]))
        return BayesianNetwork({node: states[node] for node in parents}, parents, tables)
