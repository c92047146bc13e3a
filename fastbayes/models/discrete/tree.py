"""Features that hang on a tree: each depends on the class and on at most one other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.scoring import children_first
from fastbayes.models.discrete.family_model import FamilyModel, FamilyTables, from_pairs
from fastbayes.models.estimator.count_tables import CountTables, Smoothing
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter, pseudo_count
from fastbayes.models.estimator.smoothing import best_of, left_out
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


# A difference of sums of weights below this share of them is their rounding.
ROUNDING = 1e-9


def spode_scores(cells: CountTables, smoothing: Smoothing) -> Floats:
    """Return the leave-one-out log joint of the SPODE of every super-parent, (m,) in nats.

    For super-parent p the sum over rows of ln [P(c) P(x_p | c) prod_j P(x_j | c, x_p)] with that
    row taken out of every count. With complete data this is what refitting without each row gives.

    Super-parents are compared on the same cells of the data: each known cell of each row has one
    factor. In a row whose super-parent is missing that factor is the naive one, P(x_j | c) from
    all rows but this one; the model sums the super-parent out, for which there is no closed form.
    """
    n_c = cells.values.class_counts.astype(np.float64)
    k = np.array(len(n_c))
    prior = left_out(n_c, n_c.sum(keepdims=True), k, smoothing.mass(k))
    choices = cells.choices[cells.feature][:, None]
    mass = smoothing.mass(choices)
    known = cells.known[cells.feature]
    scores = np.full(len(cells.sizes), prior)
    for p in range(len(scores)):
        rows, _, given = beside = cells.beside(p)
        scores[p] += left_out(given, beside.together(), choices[rows], mass[rows])
        # What no value of p explains: all of p itself, and the rows where p is missing.
        alone = cells.n.copy()
        alone[rows] -= given.sum(axis=0)
        alone[alone <= ROUNDING * cells.n] = 0.0
        scores[p] += left_out(cells.n, known, choices, mass, rows=alone)
    return scores


def best_tree_alpha(cells: CountTables, parents: NDArray[np.int64], *, with_prior: bool) -> float:
    """Return the alpha in [1e-6, 1e4] that maximises the leave-one-out log joint of a forest.

    The sum over rows of ln [P(c) prod_j P(x_j | c, x_parent)] with that row taken out of every
    count; where the parent is missing, of P(x_j | c), as in `spode_scores`. P(c) has no part in it
    where alpha does not smooth it.
    """
    terms = []
    for j, p in enumerate(parents.tolist()):
        mine, choices = slice(*cells.offsets[j : j + 2]), np.asarray(cells.choices[j])
        n, known = cells.n[mine], np.broadcast_to(cells.known[j], cells.n[mine].shape)
        alone = n
        if p >= 0:
            family = cells.family(p, j)
            together = np.broadcast_to(family.sum(axis=1, keepdims=True), family.shape)
            terms.append((family, together, choices, family))
            alone = n - family.sum(axis=0)
            alone = np.where(alone > ROUNDING * n, alone, 0.0)
        terms.append((n, known, choices, alone))
    if with_prior:
        n_c = cells.values.class_counts.astype(np.float64)
        terms.append((n_c, np.broadcast_to(n_c.sum(), n_c.shape), np.array(len(n_c)), n_c))
    n, known, rows = (
        np.concatenate([term[i].ravel() for term in terms]) if terms else np.empty(0)
        for i in (0, 1, 3)
    )
    counted = np.flatnonzero(rows)
    sizes = [np.full(term[0].size, term[2], np.float64) for term in terms]
    choices = np.concatenate(sizes)[counted] if terms else np.empty(0)
    n, known, rows = n[counted], known[counted], rows[counted]
    return best_of(lambda alpha: left_out(n, known, choices, alpha, rows=rows))
