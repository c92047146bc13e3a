"""Features that hang on a tree: each depends on the class and on at most one other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.scoring import children_first
from fastbayes.models.discrete.as_network import AsNetwork
from fastbayes.models.discrete.held_out import best_tree_alpha
from fastbayes.models.discrete.one_dependence import OneDependence, by_chain_rule, code_rows
from fastbayes.models.estimator.count_tables import CountTables, Smoothing
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter, pseudo_count
from fastbayes.models.estimator.sampling import value_codes
from fastbayes.statistics.bundle import Statistics


class TreeClassifier(AsNetwork, OneDependence):
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
    _tables: list[Floats] = fitted()

    def _structure(self, stats: Statistics, cells: CountTables) -> dict[str, Any]:
        """Return fitted attributes with `_parents`, (n_features,), -1 for none."""
        raise NotImplementedError

    def _read(self, stats: Statistics) -> dict[str, Any]:
        cells = self._cells_of(stats)
        found = {"_cells": cells, **self._structure(stats, cells)}
        parents = found["_parents"]
        if self.alpha == "loo":
            alpha = best_tree_alpha(cells, parents, with_prior=self.class_prior is None)
        else:
            alpha = float(self.alpha)
        smoothing = Smoothing(alpha=alpha)
        found |= {"alpha_": alpha, "class_log_prior_": self._prior_of(stats, smoothing)}
        names, above = stats.schema.names, parents.tolist()
        found["parents_"] = {
            name: None if p < 0 else names[p] for name, p in zip(names, above, strict=True)
        }
        found["_tables"] = [self._table(cells, p, j, smoothing) for j, p in enumerate(above)]
        return found

    def _table(self, cells: CountTables, p: int, j: int, smoothing: Smoothing) -> Floats:
        """Return ln P(x_j | x_p, c), (S_p + 2, S_j + 2, K), or (1, S_j + 2, K) where p is -1."""
        return cells.root(j, smoothing) if p < 0 else cells.edge(p, j, smoothing)

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, and K S_parent (S_j - 1) for each feature."""
        self._check_fitted()
        sizes, k = self._cells.choices.astype(np.int64), len(self.classes_)
        above = np.where(self._parents >= 0, sizes[self._parents], 1)
        return k - 1 + k * int((above * np.maximum(sizes - 1, 0)).sum())

    def _dependencies(self) -> dict[str, tuple[str, ...]]:
        return {name: () if p is None else (p,) for name, p in self.parents_.items()}

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        above = self._parents.tolist()
        for name, p, table in zip(self.schema_.names, above, self._tables, strict=True):
            yield name, table[0] if p < 0 else table

    def _hidden(self) -> list[NDArray[np.bool_]]:
        cells = self._cells
        return [cells.hidden[rows] for rows in cells.rows]

    def _scorer(self, cells: float) -> Any:
        return dispatch.load("factors", cells).TreeScorer(
            self.class_log_prior_, self._parents, self._tables, self._hidden(), self.precision
        )

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | x_parent, c); where a parent is not observed, by the chain rule.

        In such rows a feature gets what its value adds to ln P(the features before it | c), in the
        order root first.
        """
        cells = self._cells
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        for j, (p, table) in enumerate(zip(self._parents.tolist(), self._tables, strict=True)):
            out[:, j] = table[codes[p] if p >= 0 else 0, codes[j]]
        inner = np.unique(self._parents[self._parents >= 0])
        gone = np.array([h[c] for h, c in zip(self._hidden(), codes, strict=True)])
        rows = np.flatnonzero(gone[inner].any(axis=0)) if len(inner) else np.empty(0, np.int64)
        if not len(rows):
            return
        scorer = dispatch.load("factors", 0).TreeScorer(
            np.zeros(cells.n_classes), self._parents, self._tables, self._hidden()
        )
        order = children_first(self._parents)[::-1]
        out[rows] = by_chain_rule(scorer, order, codes[:, rows], cells)

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        cells = self._cells
        drawn = np.broadcast_to(cells.sizes[:, None], (len(cells.sizes), len(codes))).copy()
        for j in children_first(self._parents)[::-1]:
            if not (states := int(cells.choices[j])):
                continue
            table = np.exp(self._tables[j])
            p = int(self._parents[j])
            above = drawn[p] if p >= 0 else np.zeros(len(codes), np.int64)
            given = table[:, :states].transpose(1, 0, 2).reshape(states, -1)
            drawn[j] = value_codes(given, above * cells.n_classes + codes, random)
        return list(drawn)
