"""SPODE: one feature is the parent of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastbayes.classifiers.cells import Cells
from fastbayes.classifiers.held_out import spode_scores
from fastbayes.classifiers.log_space import Floats
from fastbayes.classifiers.structure import by_relevance
from fastbayes.classifiers.tan import check_feature, dependence
from fastbayes.classifiers.tree import TreeClassifier
from fastbayes.statistics.bundle import Statistics

CRITERIA = ("loo_joint", "cmi")


class SPODE(TreeClassifier):
    """Super-parent one-dependence estimator: every feature depends on the class and on one feature.

    Parameters
    ----------
    alpha
        Pseudo-count of every cell: 1 is Laplace, 0 maximum likelihood.
    super_parent
        Name of the parent of all others, or how to choose it: "loo_joint" (leave-one-out log
        joint), "cmi" (sum of I(X_j; X_p | C)).
    class_prior
        None (smoothed by alpha), "empirical", "uniform", or (n_classes,) probabilities.
    discretize
        How numeric columns become bins: "mdl", "quantile", "width", ("quantile", n), ("width", n),
        or {column: any of these or cut points}.
    domains
        Declared values by column name: smoothing counts them, other values are an error.
    categorical
        Names or indices of columns to treat as categorical whatever their type.
    missing
        "marginalize": a missing value is summed out; "category": it is a value of its own.
    unseen
        A value not seen at fit is treated as missing ("ignore"), has the mass of a count of 0
        ("smooth"), or is an error ("error").
    precision
        "exact" (float64), or "fast": float32 tables, posteriors to about 1e-5.
    threads
        Worker threads, all processors by default; they never change a bit of a result.
    memory_limit
        Bytes that the counts may take.

    Attributes
    ----------
    classes_
        (n_classes,) labels, sorted.
    super_parent_
        Name of the parent of all other features.
    parents_
        {feature: the feature it depends on, or None}.
    statistics_
        The `Statistics` that every parameter is read from.
    schema_
        Columns, domains, cut points and classes.
    class_log_prior_
        (n_classes,) nats.
    n_features_in_, feature_names_in_
        Number of features, and their names where they have any.

    Notes
    -----
    P(c, x) = P(c) P(x_p | c) prod_{j != p} P(x_j | c, x_p); a missing super-parent is summed out.
    The leave-one-out log joint is a closed form of the counts: no data are read to choose. Ties go
    by feature name.

    References
    ----------
    Keogh, Pazzani (1999), Learning augmented Bayesian classifiers, AI and Statistics.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> model = fb.SPODE().fit(table, "y")
    >>> model.super_parent_
    'a'
    >>> model.predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    """

    super_parent_: str

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        super_parent: str = "loo_joint",
        class_prior: str | ArrayLike | None = None,
        discretize: Any = "mdl",
        domains: Mapping[str, Any] | None = None,
        categorical: Iterable[str | int] | None = None,
        missing: str = "marginalize",
        unseen: str = "ignore",
        precision: str = "exact",
        threads: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.super_parent = super_parent
        self.class_prior = class_prior
        self.discretize = discretize
        self.domains = domains
        self.categorical = categorical
        self.missing = missing
        self.unseen = unseen
        self.precision = precision
        self.threads = threads
        self.memory_limit = memory_limit

    def _structure(self, stats: Statistics, cells: Cells) -> dict[str, Any]:
        names = stats.schema.names
        if self.super_parent in CRITERIA:
            parent = int(by_relevance(self._worth(cells), names)[0])
        else:
            check_feature(stats.schema, self.super_parent)
            parent = names.index(self.super_parent)
        parents = np.full(len(names), parent)
        parents[parent] = -1
        return {"_parents": parents, "super_parent_": names[parent]}

    def _worth(self, cells: Cells) -> Floats:
        """Return how good a parent of all others each feature would be, (n_features,)."""
        if self.super_parent == "cmi":
            return np.asarray(dependence(cells).sum(axis=0))
        return spode_scores(cells, self._smoothing())
