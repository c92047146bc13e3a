"""Features that hang on a tree: what TAN and SPODE share, and TAN."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.core.iteration import Convergence, Found
from fastbayes.core.schema import Schema
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.scoring import children_first
from fastbayes.models.discrete.family_model import BackOff, FamilyModel, FamilyTables, from_pairs
from fastbayes.models.discrete.hierarchical import CONCENTRATION, SWEEPS
from fastbayes.models.discrete.one_dependence import check_all_pairs
from fastbayes.models.discrete.structure import counts_of_tree, dependence, relevance
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import (
    MAX_ITER,
    fitted,
    number,
    parameter,
    pseudo_count,
    tolerance,
)
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, best_of, left_out
from fastbayes.networks.graph.spanning import maximum_spanning_forest
from fastbayes.networks.infer.scorer import Network
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.retraction import left


class TreeClassifier(FamilyModel, Iterative):
    """A classifier whose features form a forest; a subclass chooses it (`_structure`)."""

    alpha: float | str = parameter(
        """
        Pseudo-count of every cell: 1 is Laplace, 0 maximum likelihood, "loo" the value from
        1e-6 to 1e4 that maximises the leave-one-out log joint.
        """,
        default=1.0,
        check=pseudo_count(besides=("loo",)),
    )

    tol: float | None = tolerance(
        'alpha="loo" stops where ln alpha lies in an interval of this width, as far as rounding '
        "tells: the last half of its digits are not known.",
        1e-9,
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
        alpha, search = self.alpha, Convergence()
        if alpha == "loo":
            score = left_out_of_tree(pairs, parents, with_prior=self.class_prior is None)
            search = best = self._best_alpha(score)
            alpha = best.point
        alpha = float(alpha)
        smoothing, above = Smoothing(alpha=alpha), parents.tolist()
        order = children_first(parents)[::-1]
        families = [(j,) if above[j] < 0 else (above[j], j) for j in order]
        cells = FamilyTables(from_pairs(stats, families), missing=self.missing, unseen=self.unseen)
        tables, more = self._tables_of(cells, smoothing)
        return found | {
            "alpha_": alpha,
            **self._went(search),
            **more,
            "class_log_prior_": self._prior_of(stats, smoothing),
            "parents_": {names[j]: None if p < 0 else names[p] for j, p in enumerate(above)},
            "_cells": cells,
            "_rule": smoothing,
            "_network": cells.network(tables, names),
        }

    def _best_alpha(self, score: Callable[[float], float]) -> Found[float]:
        tol = 1e-9 if self.tol is None else float(self.tol)
        return best_of(score, tol, int(self.max_iter), "alpha='loo'")

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
        kernel = dispatch.load("scoring.factors", cells).TreeScorer
        return kernel(log_prior, parents, tables, network.hidden, precision)


def check_feature(schema: Schema, name: str | None) -> None:
    """Raise SchemaError where a feature that was named is not there."""
    if name is not None and name not in schema.names:
        raise SchemaError(f"there is no feature {name!r}; the features are {list(schema.names)}")


def left_out_of_tree(
    cells: CountTables, parents: NDArray[np.int64], *, with_prior: bool
) -> Callable[[float], float]:
    """Return the leave-one-out log joint of a forest as a function of alpha.

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
            alone = np.maximum(left(n, family.sum(axis=0)), 0.0)
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
    return lambda alpha: left_out(n, known, choices, alpha, rows=rows)


logger = logging.getLogger("fastbayes")


class TAN(BackOff, TreeClassifier):
    """Tree-augmented naive Bayes: each feature depends on the class and on one other feature.

    Notes
    -----
    P(c, x) = P(c) prod_j P(x_j | x_parent(j), c), the tree of greatest total I(X_i; X_j | C), from
    unsmoothed counts of the rows where both are known. Ties go by feature name. A pruned forest
    maximises N I - ln(N)/2 K (S_i - 1)(S_j - 1) ("bic"; factor 1 for "aic") over positive edges.
    Where the counts of all pairs exceed the memory limit, `fit` counts some pairs in each of
    several scans, and keeps those of the tree's edges: the structure is then fixed.

    With "hdp" each P(x_j | u, c) = (n_x + a_1 P(x_j | c)) / (n + a_1) and P(x_j | c) = (t_x + a_0
    P(x_j)) / (t + a_0), t being how many rows below were drawn from it rather than repeated, on
    average. The a are the likeliest, under the prior of `concentration`. Both are found in turn
    until they settle: no sampling, so that equal counts give equal numbers. Rows whose parent is
    missing count in P(x_j | c).

    References
    ----------
    Friedman, Geiger, Goldszmidt (1997), Bayesian network classifiers, Machine Learning 29, sec. 4;
    the weight of an edge is I(X_i; X_j | C) with P(x_i, x_j, c) as the outer factor. Petitjean,
    Buntine, Webb, Zaidi (2018), Accurate parameter estimation for Bayesian network classifiers
    using hierarchical Dirichlet processes, Machine Learning 107 ("hdp").

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> model = fb.TAN().fit(table, "y")
    >>> model.parents_
    {'a': None, 'b': 'a'}
    >>> model.predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    """

    _at_once = False

    smoothing: str = parameter(
        """
        "laplace": alpha is added to every count; "hdp": P(x | parent, c) is drawn towards P(x | c),
        and that towards P(x), by hierarchical Dirichlet distributions whose concentrations are
        learned; alpha is then the pseudo-count of P(x) alone.
        """,
        default="laplace",
        choices=("laplace", "hdp"),
    )
    concentration: float = CONCENTRATION
    root: str | None = parameter(
        "Name of the feature at the root; None takes the one that says most about the class.",
        default=None,
    )
    prune: str | None = parameter(
        """
        None for a tree over all features; "bic" or "aic" keep the edges that are worth their
        parameters, a forest.
        """,
        default=None,
        choices=(None, "bic", "aic"),
    )
    tol: float | None = parameter(
        """
        alpha="loo" stops where ln alpha lies in an interval of this width, by default 1e-9, as far
        as rounding tells: the last half of its digits are not known; smoothing="hdp" where a sweep
        moves the logarithm of no concentration by more, by default 1e-3.
        """,
        default=None,
        check=number(above=0.0, besides=(None,)),
    )
    max_iter: int = replace(MAX_ITER, default=SWEEPS)
    trace_: Floats = fitted(
        """
        (n_iter_ + 1,) of alpha="loo" the highest score so far, in nats; of "hdp" by how much
        the logarithm of a concentration moved in each sweep, of the feature that took most; empty
        without iteration.
        """
    )
    information_: Floats = fitted(
        "(n_features, n_features) I(X_i; X_j | C) in nats of the pairs counted, 0 for others."
    )

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        if "pairs" in stats.parts and not stats.pairs.layout.complete:
            # Of a tree of all columns without pruning, as it is found under a memory limit.
            held = sum(feature.size > 0 for feature in stats.schema.features)
            if self.prune is not None or len(stats.pairs.layout.members) < held - 1:
                check_all_pairs(stats)
        return stats

    def _scanned(self, scans: Scans) -> Statistics:
        if not (scans.first and scans.source.rereadable):
            return super()._scanned(scans)
        try:
            return scans.count(self, {name: {} for name in self._statistics}, fewer=False)
        except MemoryLimitError as error:
            logger.info("%s; the tree is found in several scans", error)
            return counts_of_tree(self, scans, self._tree)

    def _structure(self, stats: Statistics, cells: CountTables) -> dict[str, Any]:
        check_feature(stats.schema, self.root)
        information = dependence(cells)
        if cells.pairs.layout.complete:
            parents = self._tree(stats, cells, information, cells.known_together)
        else:
            parents = self._counted_tree(stats, cells)
        return {"_parents": parents, "information_": information}

    def _tree(
        self,
        stats: Statistics,
        cells: CountTables,
        information: Floats,
        together: Callable[[], Floats],
    ) -> NDArray[np.int64]:
        """Return the parent of each feature, from the information of every pair.

        `together` gives the rows in which both are observed, which a whole tree does not ask for.
        """
        names, worth = stats.schema.names, relevance(cells)
        if self.prune is None:
            # Where a feature has no value at all, nothing depends on it.
            empty = cells.choices == 0
            weights = np.where(empty[:, None] | empty, -np.inf, information)
            above = -np.inf
        else:
            # A parameter costs ½ ln N nats by the Bayesian criterion, 1 by Akaike's.
            n = max(float(cells.values.class_counts.sum()), 1.0)
            unit = 0.5 * math.log(n) if self.prune == "bic" else 1.0
            free = np.maximum(cells.sizes + cells.as_value - 1, 0).astype(np.float64)
            cost = unit * cells.n_classes * np.outer(free, free)
            weights, above = together() * information - cost, 0.0
        return maximum_spanning_forest(weights, names, relevance=worth, root=self.root, above=above)

    def _counted_tree(self, stats: Statistics, cells: CountTables) -> NDArray[np.int64]:
        """Return the parents where only the edges of a tree were counted, which is it then."""
        layout = cells.pairs.layout
        weights = np.full((len(cells.sizes),) * 2, -1.0)
        weights[layout.first, layout.second] = weights[layout.second, layout.first] = 1.0
        parents = maximum_spanning_forest(
            weights, stats.schema.names, relevance=relevance(cells), root=self.root
        )
        if (parents >= 0).sum() < len(layout.members):
            raise SchemaError(
                "the statistics hold the counts of some pairs of columns only, and these form no "
                "tree; count again with pairs=True"
            )
        return parents
