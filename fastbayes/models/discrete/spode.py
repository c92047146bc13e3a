"""SPODE: one feature is the parent of all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.folds import FoldsByPlace
from fastbayes.data.segments import Segment
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.discrete.family_model import LooFamilies
from fastbayes.models.discrete.one_dependence import check_all_pairs
from fastbayes.models.discrete.structure import dependence
from fastbayes.models.discrete.tan import TreeClassifier, check_feature
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter
from fastbayes.models.estimator.protocol import as_counted, fresh
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, left_out
from fastbayes.networks.graph.spanning import by_relevance
from fastbayes.scan.fold_statistics import fold_positions, training
from fastbayes.scan.row_sums import Sums
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.retraction import left

CRITERIA = ("loo_joint", "loo", "cv", "cmi")
# Those that read the rows once more.
READING = ("loo", "cv")
# Folds of "cv".
FOLDS = 10

Posterior = Callable[[Batch, Floats], object]


class SPODE(TreeClassifier):
    """Super-parent one-dependence estimator: every feature depends on the class and on one feature.

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

    super_parent: str = parameter(
        """
        Name of the parent of all others, or how to choose it: "loo_joint" (leave-one-out log
        joint), "cmi" (sum of I(X_j; X_p | C)); or by a scan that scores the rows, in `fit` only:
        "loo" (leave-one-out log-loss), "cv" (log-loss of ten folds by place, as of `count`).
        """,
        default="loo_joint",
    )
    super_parent_: str = fitted("Name of the parent of all other features.")

    _of_rows: ClassVar[tuple[str, ...]] = ("_chosen",)
    _chosen: str | None = None
    _named: str | None = None

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
        model = fresh(self)
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
        scans.check_rereadable(
            f"super_parent={self.super_parent!r} takes a scan of its own",
            ", or choose by counts alone with 'loo_joint'",
        )
        folds = FoldsByPlace(FOLDS) if self.super_parent == "cv" else None
        wanted: dict[str, dict[str, Any]] = {name: {} for name in self._statistics}
        stats = scans.count(self, wanted, folds=folds)
        self._chosen = None if not stats.n_rows else self._best(stats, scans, folds)
        return replace(stats, folds=(), fold_names=())

    def _best(self, stats: Statistics, scans: Scans, folds: FoldsByPlace | None) -> str:
        """Return the super-parent of the least log-loss, of rows left out or of folds held out."""
        names, held_out = stats.schema.names, [stats] if folds is None else [*training(stats)]
        scorers: list[list[Posterior]] = []
        for others in held_out:
            like = (as_counted(self._with_parent(name)) for name in names)
            models = [model.fit_statistics(others) for model in like]
            scorers.append(
                [LooFamilies(model).posterior for model in models]
                if folds is None
                else [_posterior(model._scorers()) for model in models]
            )
        losses = ParentLosses(scorers, folds, len(stats.schema.classes))
        (total,) = scans.summed(self, stats.schema, losses, (np.zeros(len(names)),))
        # A column without a value is not chosen if there is another.
        held = np.array([f.size > 0 or self.missing == "category" for f in stats.schema.features])
        ranked = by_relevance(-total, names)
        return names[int(ranked[np.argmax(held[ranked])])]

    def _structure(self, stats: Statistics, cells: CountTables) -> dict[str, Any]:
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

    def _worth(self, cells: CountTables) -> Floats:
        """Return how good a parent of all others each feature would be, (n_features,)."""
        if self.super_parent == "cmi":
            return np.asarray(dependence(cells).sum(axis=0))
        if self.alpha != "loo":
            return spode_scores(cells, self._smoothing())
        best = self._best_alpha(
            lambda alpha: float(spode_scores(cells, Smoothing(alpha=alpha)).max())
        )
        return spode_scores(cells, Smoothing(alpha=best.point))

    # -- copies and files: the rows are not there, the choice is kept ----------------------------

    def _state_of_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"super_parent": self.super_parent_}, {}

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        stats = super()._loaded(header, arrays, source)
        if self._reads_rows:
            if header["super_parent"] not in stats.schema.names:
                raise ValueError("the super-parent is no feature")
            self._chosen = header["super_parent"]
        return stats


@dataclass(frozen=True)
class ParentLosses:
    """Adds up -ln P(class) of the rows of a segment by each super-parent.

    scorers  [fold][super-parent], which say P(c | x) of rows that they were not made of
    folds    which fold a row belongs to; None: each row is one
    """

    scorers: list[list[Posterior]]
    folds: FoldsByPlace | None
    n_classes: int

    def __call__(self, segment: Segment, blocks: Iterator[tuple[Any, Any]]) -> Sums:
        """Return the losses, (n_super_parents,)."""
        total, done = np.zeros(len(self.scorers[0])), 0
        for block, encoded in blocks:
            parts = [(0, encoded.batch)]
            if self.folds is not None:
                codes = self.folds.of(segment, done, block)
                codes = codes if encoded.kept is None else codes[encoded.kept]
                found = fold_positions(self.folds.names()[0], codes)
                parts = [(fold, taken(encoded.batch, rows)) for fold, rows in found]
            done += block.num_rows
            for fold, batch in parts:
                posterior = np.empty((batch.n_rows, self.n_classes))
                for p, score in enumerate(self.scorers[fold]):
                    score(batch, posterior)
                    total[p] += _loss(posterior, batch.classes, batch.weight)
        return (total,)


def _posterior(scorer: Callable[[float], Any]) -> Posterior:
    return lambda batch, out: scorer(batch.cells).posterior(batch.codes, batch.numeric, out)


def _loss(posterior: Floats, classes: NDArray[np.unsignedinteger], weight: Floats | None) -> float:
    """Return the sum of -ln P(class) over rows."""
    chosen = np.maximum(posterior[np.arange(len(posterior)), classes], CLIP)
    nats = -np.log(chosen)
    return float((nats if weight is None else weight * nats).sum())


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
        explained = np.zeros_like(cells.n)
        explained[rows] = given.sum(axis=0)
        alone = np.maximum(left(cells.n, explained), 0.0)
        scores[p] += left_out(cells.n, known, choices, mass, rows=alone)
    return scores
