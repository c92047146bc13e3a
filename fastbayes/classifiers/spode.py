"""SPODE: one feature is the parent of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fastbayes.classifiers.base import Scans
from fastbayes.classifiers.cells import Cells, Smoothing
from fastbayes.classifiers.chosen_parent import FOLDS, best_held_out, best_left_out
from fastbayes.classifiers.held_out import spode_scores
from fastbayes.classifiers.log_space import Floats
from fastbayes.classifiers.one_dependence import check_all_pairs
from fastbayes.classifiers.smoothing import best_of
from fastbayes.classifiers.structure import by_relevance
from fastbayes.classifiers.tan import check_feature, dependence
from fastbayes.classifiers.tree import TreeClassifier
from fastbayes.data.folds import FoldsByPlace
from fastbayes.engine import resolved_threads
from fastbayes.errors import DataError, SchemaError
from fastbayes.statistics.bundle import Statistics

CRITERIA = ("loo_joint", "loo", "cv", "cmi")
# Those that read the rows once more.
READING = ("loo", "cv")


class SPODE(TreeClassifier):
    """Super-parent one-dependence estimator: every feature depends on the class and on one feature.

    Parameters
    ----------
    alpha
        Pseudo-count of every cell: 1 is Laplace, 0 maximum likelihood, "loo" the value that
        maximises the leave-one-out log joint.
    super_parent
        Name of the parent of all others, or how to choose it: "loo_joint" (leave-one-out log
        joint), "cmi" (sum of I(X_j; X_p | C)); or by a scan that scores the rows, in `fit` only:
        "loo" (leave-one-out log-loss), "cv" (log-loss of ten folds).
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
    alpha_
        The pseudo-count in use.
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
    The leave-one-out log joint is a closed form of the counts: no data are read to choose. "loo"
    and "cv" score all super-parents in one more scan, -ln P(c | x) of each row by the counts
    without it, or without its fold. Ties go by feature name.

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
    _chosen: str | None = None
    _named: str | None = None

    def __init__(
        self,
        *,
        alpha: float | str = 1.0,
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.super_parent, str):
            raise ValueError(
                f"super_parent={self.super_parent!r}: use the name of a column, or one of "
                f"{CRITERIA}"
            )

    # -- learning ------------------------------------------------------------------------------

    @property
    def _reads_rows(self) -> bool:
        """Whether the super-parent is chosen by scoring the rows."""
        return self._named is None and self.super_parent in READING

    def _with_parent(self, name: str) -> SPODE:
        """Return an unfitted model with this super-parent, though it be called as a criterion."""
        model = type(self)(**self.get_params(deep=False))
        model._named = name
        return model

    def _suited(self, stats: Any) -> Statistics:
        if self._reads_rows:
            raise SchemaError(
                f"super_parent={self.super_parent!r} scores the rows themselves: use fit, or "
                "choose by counts alone with 'loo_joint' or 'cmi'"
            )
        stats = super()._suited(stats)
        check_all_pairs(stats)
        return stats

    def _scanned(self, scans: Scans) -> Statistics:
        if not self._reads_rows:
            return super()._scanned(scans)
        if not scans.first:
            raise SchemaError(
                f"super_parent={self.super_parent!r} takes all rows at once: use fit, or choose by "
                "counts alone with 'loo_joint' or 'cmi'"
            )
        if not scans.source.rereadable:
            raise SchemaError(
                f"{scans.source.description} can be read only once, but super_parent="
                f"{self.super_parent!r} takes a scan of its own: pass a table or a path, or choose "
                "by counts alone with 'loo_joint'"
            )
        folds = FoldsByPlace(FOLDS) if self.super_parent == "cv" else None
        wanted: dict[str, dict[str, Any]] = {name: {} for name in self._statistics}
        stats = scans.count(self, wanted, folds=folds)
        self._chosen = None if not stats.n_rows else self._best(stats, scans, folds)
        return replace(stats, folds=(), fold_names=())

    def _best(self, stats: Statistics, scans: Scans, folds: FoldsByPlace | None) -> str:
        reading = scans, resolved_threads(self.threads)
        if folds is None:
            return best_left_out(self._with_parent, stats, *reading)
        return best_held_out(self._with_parent, stats, folds, *reading)

    def _structure(self, stats: Statistics, cells: Cells) -> dict[str, Any]:
        names = stats.schema.names
        if self._reads_rows:
            if self._chosen is None:
                raise DataError("there are no rows to choose a super-parent by")
            parent = names.index(self._chosen)
        elif self._named is not None:
            parent = names.index(self._named)
        elif self.super_parent in CRITERIA:
            # A column without a value is not chosen if there is another.
            ranked = by_relevance(self._worth(cells), names)
            parent = int(ranked[np.argmax(cells.choices[ranked] > 0)])
        else:
            check_feature(stats.schema, self.super_parent)
            parent = names.index(self.super_parent)
        # A column without a value is nobody's parent: then the model is naive Bayes.
        parents = np.full(len(names), parent if cells.choices[parent] > 0 else -1)
        parents[parent] = -1
        return {"_parents": parents, "super_parent_": names[parent]}

    def _worth(self, cells: Cells) -> Floats:
        """Return how good a parent of all others each feature would be, (n_features,)."""
        if self.super_parent == "cmi":
            return np.asarray(dependence(cells).sum(axis=0))
        if self.alpha != "loo":
            return spode_scores(cells, self._smoothing())
        best = best_of(lambda alpha: float(spode_scores(cells, Smoothing(alpha=alpha)).max()))
        return spode_scores(cells, Smoothing(alpha=best))

    # -- copies and files: the rows are not there, the choice is kept ----------------------------

    def _copy_with(self, **params: Any) -> Self:
        copy = type(self)(**{**self.get_params(deep=False), **params})
        copy._set_features(vars(self).get("feature_names_in_"), self.n_features_in_)
        copy._chosen = self._chosen
        return copy._learned(self.statistics_)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        header, arrays = super().state()
        return {**header, "super_parent": self.super_parent_}, arrays

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        stats = super()._loaded(header, arrays, source)
        if self._reads_rows:
            if header["super_parent"] not in stats.schema.names:
                raise ValueError("the super-parent is no feature")
            self._chosen = header["super_parent"]
        return stats
