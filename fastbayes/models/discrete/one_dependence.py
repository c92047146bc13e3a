"""What SPODE, TAN and AODE share: columns made discrete, value and pair counts, their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.models.discrete.structure import same_pairs
from fastbayes.models.estimator.base import Classifier, Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import (
    CLASS_PRIOR,
    DISCRETIZE,
    PRECISION,
    SUMMED_OUT,
    UNSEEN,
    fitted,
    parameter,
    pseudo_count,
)
from fastbayes.models.estimator.sampling import drawn_values
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, log_prior
from fastbayes.statistics.bundle import Statistics


class OneDependence(Classifier):
    """A model of discrete columns in which a feature depends on the class and on one other.

    A subclass reads the statistics (`_read`), gives a scorer (`_scorer`), contributions
    (`_contributions`) and random codes (`_drawn_codes`).
    """

    _statistics: ClassVar[tuple[str, ...]] = ("values", "pairs")
    _discretizes: ClassVar[bool] = True

    alpha: Any = parameter(
        "Pseudo-count of every cell: 1 is Laplace, 0 maximum likelihood.",
        default=1.0,
        check=pseudo_count(),
    )
    class_prior: str | ArrayLike | None = CLASS_PRIOR
    discretize: Any = DISCRETIZE
    missing: str = SUMMED_OUT
    unseen: str = UNSEEN
    precision: str = PRECISION

    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    _cells: CountTables = fitted()

    def _smoothing(self) -> Smoothing:
        return Smoothing(alpha=float(self.alpha))

    def _scanned(self, scans: Scans) -> Statistics:
        known = None if scans.first else self.statistics_.parts.get("pairs")
        if known is None or known.layout.complete:
            return super()._scanned(scans)
        # The pairs of the first batch are the structure.
        pairs = same_pairs(self.statistics_, scans)
        return scans.count(self, {"values": {}, "pairs": {"pairs": pairs}})

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        for feature in stats.schema.numeric:
            raise SchemaError(
                f"the statistics were counted with column {feature.name!r} as numeric; "
                f"{type(self).__name__} needs it discrete: count again with pairs=True"
            )
        if isinstance(self.discretize, Mapping):
            check_cuts(stats.schema, self.discretize)
        return stats

    def _read(self, stats: Statistics) -> dict[str, Any]:
        return {"class_log_prior_": self._prior_of(stats), "_cells": self._cells_of(stats)}

    def _prior_of(self, stats: Statistics, smoothing: Smoothing | None = None) -> Floats:
        """Return ln P(c)."""
        counts, smoothing = stats.values.class_counts, smoothing or self._smoothing()
        mass, classes = smoothing.mass(len(counts)), stats.schema.class_labels
        return log_prior(counts, mass, self.class_prior, classes)

    def _cells_of(self, stats: Statistics) -> CountTables:
        return CountTables(stats.values, stats.pairs, missing=self.missing, unseen=self.unseen)

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        drawn = zip(self.schema_.features, self._drawn_codes(codes, random), strict=True)
        return {feature.name: drawn_values(feature, column, random) for feature, column in drawn}

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Return one code per row for each feature; S_j is a missing value."""
        raise NotImplementedError


def check_cuts(schema: Schema, discretize: Mapping[str, Any]) -> None:
    """Raise SchemaError where columns were not cut at the points that a model gives."""
    for feature in schema.features:
        points = discretize.get(feature.name, "mdl")
        if feature.cuts is None or isinstance(points, (str, tuple)):
            continue
        if not np.array_equal(feature.cuts, np.asarray(points, np.float64)):
            raise SchemaError(
                f"the statistics were counted with column {feature.name!r} cut at "
                f"{feature.cuts.tolist()}, the model has discretize={discretize!r}; count again "
                "with the points of the model"
            )


def check_all_pairs(stats: Statistics) -> None:
    """Raise SchemaError where the statistics of a tree, or of a selection, lack pairs."""
    if "pairs" in stats.parts and not stats.pairs.layout.complete:
        raise SchemaError(
            "the statistics hold the counts of some pairs of columns only, which a model with a "
            "structure of its own left; count again with pairs=True"
        )


def code_rows(batch: Batch, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row (offset + code) of each cell of a batch, (n_features, n_rows)."""
    rows = np.empty((len(offsets) - 1, batch.n_rows), np.int64)
    for features, codes, _sizes in batch.codes:
        rows[features] = codes
    rows += offsets[:-1, None]
    return rows


def by_chain_rule(
    scorer: Any, order: Sequence[int], codes: NDArray[np.int64], cells: CountTables
) -> Floats:
    """Return what each feature adds to ln P(the features before it | c), (n_rows, m, n_classes).

    The scorer writes log joints of rows, without a prior; features that are not in the order add 0.
    """
    partial = np.broadcast_to(cells.gaps[:, None], codes.shape).astype(np.uint32)
    out = np.zeros((codes.shape[1], len(codes), cells.n_classes))
    before = np.zeros((codes.shape[1], cells.n_classes))
    for j in order:
        partial[j] = codes[j]
        after = np.empty_like(before)
        scorer.log_joint([Codes(np.arange(len(partial)), partial, cells.sizes + 2)], (), after)
        with np.errstate(invalid="ignore"):
            out[:, j] = np.where(np.isneginf(before), 0.0, after - before)
        before = after
    return out
