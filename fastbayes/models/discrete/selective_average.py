"""AODE of the features that are worth it, chosen by leave-one-out in one scan."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import SchemaError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.information import class_information
from fastbayes.kernels.shared.nested import Averages
from fastbayes.models.discrete.selective import NestedLosses, RowsOf, losses
from fastbayes.models.discrete.structure import by_relevance
from fastbayes.models.discrete.super_parents import super_parent_weights
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.count_tables import CountTables
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import PriorWithout
from fastbayes.statistics import PairCounts
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")

Ints = NDArray[np.int64]


def best_average(model: Any, scans: Scans, stats: Statistics) -> Statistics:
    """Return statistics with the pairs of the best features alone, two features at least.

    Parameters
    ----------
    model
        An `AODE`.
    scans
        The source.
    stats
        Counts of values and of all pairs.
    """
    cells, names = model._cells_of(stats), stats.schema.names
    features = ranked(cells, names)
    if not stats.n_rows or len(features) < 2:
        return stats
    told = average_losses(model, scans, stats, cells, features)
    (best,) = told.best("log_loss", 2)
    logger.info(
        "selected %d of %d features: log_loss %.6g by leave-one-out",
        *(best, len(features), told.log_loss[best]),
    )
    parts: dict[str, Any] = {**stats.parts, "pairs": _among(stats.pairs, features[:best])}
    return replace(stats, parts=parts)


def ranked(cells: CountTables, names: tuple[str, ...]) -> Ints:
    """Return the features that have a value by falling I(X_j; C), equals by name."""
    told = np.flatnonzero(cells.choices > 0)
    relevance = class_information(cells.n, cells.offsets, cells.sizes + cells.as_value)[told]
    return told[by_relevance(relevance, [names[j] for j in told.tolist()])]


def average_losses(
    model: Any, scans: Scans, stats: Statistics, cells: CountTables, features: Ints
) -> NestedLosses:
    """Return the losses of AODE of the first features, (m + 1,) by their number."""
    rule, values = model._smoothing(), stats.values
    prior = PriorWithout(values.class_counts, rule, model.class_prior, model._prior_of(stats))
    rows = RowsOf(cells, features.tolist(), prior)
    weight = super_parent_weights(model.weights, cells, stats.schema.names)
    weight = weight[features] / weight.max(initial=np.nextafter(0.0, 1.0))
    nested = _averages(cells, features, rule, weight, model)

    def add(batch: Batch, loss: Floats, errors: Floats) -> None:
        dispatch.load("nested", batch.cells).add_average_losses(nested, rows(batch), loss, errors)

    return losses(model, scans, stats, (len(features) + 1,), add)


def _averages(
    cells: CountTables, features: Ints, rule: Any, weight: Floats, model: Any
) -> Averages:
    m, k, layout = len(features), cells.n_classes, cells.pairs.layout
    sizes = cells.choices[features].astype(np.int64)
    offsets = np.cumsum(sizes) - sizes
    first, steps = np.full((m, m), -1), np.zeros((m, m), np.int64)
    for i, p in enumerate(features.tolist()):
        for j, q in enumerate(features.tolist()):
            if i != j:
                first[i, j] = layout.starts[layout.place(min(p, q), max(p, q))]
                steps[i, j] = k * (layout.widths[q] if p < q else 1)
    together = np.zeros((int(sizes.sum()), m, k))
    alone, known = np.zeros((int(sizes.sum()), k)), np.zeros((m, k))
    for i, p in enumerate(features.tolist()):
        mine = slice(offsets[i], offsets[i] + sizes[i])
        alone[mine] = cells.n[cells.offsets[p] : cells.offsets[p] + sizes[i]]
        known[i] = alone[mine].sum(axis=0)
        for j, q in enumerate(features.tolist()):
            if i != j:
                together[mine, j] = cells.family(p, q)[: sizes[i]].sum(axis=1)
    return Averages(
        *(sizes, offsets, first, steps, cells.pairs.flat.astype(np.float64)),
        *(together, alone, known, weight, float(model.min_count)),
        *(rule.mass(sizes.astype(np.float64)), rule.mass(k * sizes.astype(np.float64))),
        model.class_prior is not None,
    )


def _among(pairs: PairCounts, features: Ints) -> PairCounts:
    """Return the counts of the pairs among some features."""
    layout, k = pairs.layout, pairs.layout.n_classes
    kept = np.isin(layout.members, features).all(axis=1)
    result = PairCounts(pairs.shape, weighted=pairs.weighted, pairs=layout.members[kept])
    result.layout = result.layout.resized(layout.sizes, layout.missing, k)
    result.flat = pairs.flat[np.repeat(kept, layout.cells * k)]
    return result.settled()


def without_unpaired(cells: CountTables) -> CountTables:
    """Return cells in which a feature of no pair is as one without values: it takes no part.

    The pairs say which features were selected: all of them, unless some were not counted.

    Raises
    ------
    SchemaError
        When pairs among the features that were selected were not counted.
    """
    layout = cells.pairs.layout
    if not layout.complete:
        paired = np.unique(layout.members)
        if len(layout.members) < len(paired) * (len(paired) - 1) // 2:
            raise SchemaError(
                "the statistics hold some pairs of columns, not all pairs of some columns; count "
                "again with pairs=True"
            )
        alone = np.setdiff1d(np.arange(len(cells.sizes)), paired)
        cells.choices[alone] = 0.0
        cells.hidden[np.isin(cells.feature, alone)] = True
    return cells
