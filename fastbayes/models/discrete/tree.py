"""Features that hang on a tree: each depends on the class and on at most one other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.kernels import dispatch
from fastbayes.kernels.numpy.factors import children_first
from fastbayes.models.discrete.families import FamilyTables, from_pairs
from fastbayes.models.discrete.family_model import FamilyModel
from fastbayes.models.discrete.held_out import best_tree_alpha
from fastbayes.models.estimator.count_tables import CountTables, Smoothing
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter, pseudo_count
from fastbayes.networks.infer.scorer import Network
from fastbayes.statistics.bundle import Statistics


class TreeClassifier(FamilyModel):
    """A classifier whose features form a forest; a subclass chooses it (`_structure`)."""

    alpha: float | str = parameter(
        """
        Pseudo-count of every cell: 1 is Laplace, 0 maximum likelihood, "loo" the value that
        maximises the leave-one-out log joint.
        """,
        default=1.0,
        check=pseudo_count(besides=("loo",)),
    )

    alpha_: float = fitted("The pseudo-count in use.")
    parents_: dict[str, str | None] = fitted("{feature: the feature it depends on, or None}.")
    _parents: NDArray[np.int64] = fitted()

    def _structure(self, stats: Statistics, cells: CountTables) -> dict[str, Any]:
        """Return fitted attributes with `_parents`, (n_features,), -1 for none."""
        raise NotImplementedError

    def _read(self, stats: Statistics) -> dict[str, Any]:
        pairs, names = self._cells_of(stats), stats.schema.names
        found = self._structure(stats, pairs)
        parents = found["_parents"]
        if self.alpha == "loo":
            alpha = best_tree_alpha(pairs, parents, with_prior=self.class_prior is None)
        else:
            alpha = float(self.alpha)
        smoothing, above = Smoothing(alpha=alpha), parents.tolist()
        order = children_first(parents)[::-1]
        families = [(j,) if above[j] < 0 else (above[j], j) for j in order]
        counted = from_pairs(stats, families)
        cells = FamilyTables(counted, missing=self.missing, unseen=self.unseen)
        return found | {
            "alpha_": alpha,
            "class_log_prior_": self._prior_of(stats, smoothing),
            "parents_": {names[j]: None if p < 0 else names[p] for j, p in enumerate(above)},
            "_cells": cells,
            "_rule": smoothing,
            "_network": cells.network(self._tables_of(cells, smoothing), names),
        }

    def _dependencies(self) -> dict[str, tuple[str, ...]]:
        return {name: () if p is None else (p,) for name, p in self.parents_.items()}

    def _network_scorer(
        self, log_prior: Floats, network: Network, precision: str, cells: float
    ) -> Any:
        if network.summed is not network.tables:  # the tree's kernel knows one table of each family
            return super()._network_scorer(log_prior, network, precision, cells)
        parents = np.full(len(network.hidden), -1)
        tables: list[Any] = [None] * len(parents)
        for (*above, j), table in zip(network.families, network.tables, strict=True):
            parents[j] = above[0] if above else -1
            tables[j] = table if above else table[None]
        kernel = dispatch.load("factors", cells).TreeScorer
        return kernel(log_prior, parents, tables, network.hidden, precision)


def check_feature(schema: Schema, name: str | None) -> None:
    """Raise SchemaError where a feature that was named is not there."""
    if name is not None and name not in schema.names:
        raise SchemaError(f"there is no feature {name!r}; the features are {list(schema.names)}")
