"""Models chosen among nested ones by leave-one-out, all scored in one scan."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import SchemaError
from fastbayes.data.segments import Segment
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.nested import Averages, NestedRows, Networks
from fastbayes.models.discrete.averaged import super_parent_weights
from fastbayes.models.discrete.family_model import FamilyTables, with_families
from fastbayes.models.discrete.structure import relevance
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import PriorWithout
from fastbayes.models.estimator.smoothing import CountTables
from fastbayes.networks.graph.spanning import by_relevance
from fastbayes.scan.row_sums import Sums
from fastbayes.statistics import PairCounts
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")

CRITERIA = ("log_loss", "error")
# Losses closer than this share of themselves are equal.
TIE = 1e-12

Ints = NDArray[np.int64]


class NestedLosses(NamedTuple):
    """Leave-one-out losses of nested models: means over rows, weighted.

    log_loss  (..., m + 1) nats, by the number of features
    error     (..., m + 1) share of rows whose most probable class is another
    """

    log_loss: Floats
    error: Floats

    def best(self, criterion: str, least: int) -> tuple[int, ...]:
        """Return where the least loss is, of equals the first, with at least so many features."""
        loss = getattr(self, criterion)[..., least:]
        equal = np.argwhere(loss <= loss.min() * (1 + TIE))[0]
        return (*equal[:-1].tolist(), int(equal[-1]) + least)


class RowsOf:
    """Batches as rows that are scored without themselves.

    The features are those of models, in their order; the prior is that without a row.
    """

    def __init__(self, cells: CountTables, features: list[int], prior: PriorWithout) -> None:
        self._place = {feature: at for at, feature in enumerate(features)}
        self._prior = prior
        # An unseen value, where it is not hidden, is a state of count 0, the last one.
        self._states = [
            np.where(hidden, -1, np.arange(len(hidden))).astype(np.int32)
            for hidden in np.split(cells.hidden, cells.offsets[1:-1])
        ]

    def __call__(self, batch: Batch) -> NestedRows:
        """Return the rows of a batch."""
        assert batch.classes is not None
        states = np.empty((len(self._place), batch.n_rows), np.int32)
        columns = columns_of(batch.codes)
        for feature, at in self._place.items():
            states[at] = self._states[feature][columns[feature]]
        y = batch.classes.astype(np.int64)
        weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        gone = np.minimum(weight, 1.0)
        light = gone if (gone < 1).any() else None
        return NestedRows(states, y, np.exp(self._prior(y, light)), weight, gone)


@dataclass(frozen=True)
class LossSums:
    """Adds up the losses of nested models over the rows of a segment, each without itself.

    kernel  name of the function of the kernels that adds the losses of a batch, and the weight of
            its errors, to two arrays
    nested  the models
    rows    makes rows of a batch
    shape   of the arrays
    """

    kernel: str
    nested: Networks | Averages
    rows: RowsOf
    shape: tuple[int, ...]

    @property
    def start(self) -> Sums:
        """The sums of no rows."""
        return np.zeros(self.shape), np.zeros(self.shape), np.zeros(())

    def __call__(self, _: Segment, blocks: Iterator[tuple[Any, Any]]) -> Sums:
        """Return losses, errors and the weight of the rows."""
        loss, errors, n = self.start
        for _block, encoded in blocks:
            batch = encoded.batch
            if batch.n_rows:
                add = getattr(dispatch.load("fitting.nested", batch.cells), self.kernel)
                add(self.nested, self.rows(batch), loss, errors)
            n += batch.n_rows if batch.weight is None else batch.weight.sum()
        return loss, errors, n


def losses(model: Any, scans: Scans, stats: Statistics, sums: LossSums) -> NestedLosses:
    """Return the losses of nested models, in one more scan of what was counted."""
    loss, errors, weight = scans.summed(model, stats.schema, sums, sums.start)
    n = float(weight)
    scans.check_unchanged(np.isclose(n, float(stats.n_rows), rtol=1e-9))
    return NestedLosses(loss / max(n, 1e-300), errors / max(n, 1e-300))


def network_losses(
    model: Any, scans: Scans, stats: Statistics, cells: FamilyTables, log_prior: Floats
) -> NestedLosses:
    """Return the losses of a KDB of every k and every number of features, (k + 1, m + 1)."""
    counts, rule = stats.values.class_counts, model._smoothing()
    prior = PriorWithout(counts, rule, model.class_prior, log_prior)
    features = [family[-1] for family in cells.families]
    rows, nested = RowsOf(cells, features, prior), _networks(cells, int(model.k), model.alpha)
    shape = (int(model.k) + 1, len(features) + 1)
    return losses(model, scans, stats, LossSums("add_network_losses", nested, rows, shape))


def _networks(cells: FamilyTables, k: int, alpha: float) -> Networks:
    place = {family[-1]: at for at, family in enumerate(cells.families)}
    m = len(place)
    parents = np.full((m, k), -1)
    first, margins = np.full((m, k + 1), -1), np.full((m, k + 1), -1)
    pieces, at = [np.zeros(0)], 0
    states = cells.choices.astype(np.int64)
    for q, family in enumerate(cells.families):
        for level in range(len(family)):
            if level:
                parents[q, level - 1] = place[family[level - 1]]
            counts = cells.counts(q, level)
            counts = counts[tuple(slice(states[f]) for f in (*family[:level], family[-1]))]
            for where, piece in ((first, counts), (margins, counts.sum(axis=-2))):
                where[q, level] = at
                pieces.append(piece.reshape(-1))
                at += piece.size
    sizes = states[[family[-1] for family in cells.families]]
    return Networks(parents, sizes, first, margins, np.concatenate(pieces), float(alpha))


def reduced(stats: Statistics, k: int, n_features: int) -> Statistics:
    """Return statistics with the first families alone, and k parents in each at most."""
    whole, families, blocks = stats.families, [], []
    for q, family in enumerate(whole.families[:n_features]):
        axes = tuple(range(k, len(family) - 1))
        families.append((*family[:-1][:k], family[-1]))
        blocks.append(whole.group(q).sum(axis=axes, dtype=whole.flat.dtype))
    return with_families(stats, families, blocks, whole.layout.missing)


def best_average(model: Any, scans: Scans, stats: Statistics) -> Statistics:
    """Return statistics with the pairs of the best features of an `AODE` alone, two at least."""
    cells, names = model._cells_of(stats), stats.schema.names
    features = ranked(cells, names)
    if not stats.n_rows or len(features) < 2:
        return stats
    given = average_losses(model, scans, stats, cells, features)
    (best,) = given.best("log_loss", 2)
    logger.info(
        "selected %d of %d features: log_loss %.6g by leave-one-out",
        *(best, len(features), given.log_loss[best]),
    )
    parts: dict[str, Any] = {**stats.parts, "pairs": _among(stats.pairs, features[:best])}
    return replace(stats, parts=parts)


def ranked(cells: CountTables, names: tuple[str, ...]) -> Ints:
    """Return the features that have a value by falling I(X_j; C), equals by name."""
    given = np.flatnonzero(cells.choices > 0)
    return given[by_relevance(relevance(cells)[given], [names[j] for j in given.tolist()])]


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
    shape = (len(features) + 1,)
    return losses(model, scans, stats, LossSums("add_average_losses", nested, rows, shape))


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
