"""What pairs of features tell of each other given the class, from one or several scans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.kernels.numpy.information import class_information
from fastbayes.models.discrete.families import Family
from fastbayes.models.discrete.structure import k_dependence
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.count_tables import CountTables
from fastbayes.models.estimator.log_space import Floats
from fastbayes.scan import engine
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.pair_counts import all_pairs

logger = logging.getLogger("fastbayes")

Ints = NDArray[np.int64]


def dependence(cells: CountTables) -> Floats:
    """Return I(X_i; X_j | C) in nats of all pairs, (n_features, n_features)."""
    layout, m = cells.pairs.layout, len(cells.sizes)
    found = np.empty(len(layout.first))
    dispatch.load("information", float(layout.total)).pair_information(
        *(cells.pairs.flat, layout.first, layout.second, layout.starts),
        *(layout.sizes + (cells.as_value & layout.missing), layout.widths, layout.n_classes, found),
    )
    result = np.zeros((m, m))
    result[layout.first, layout.second] = result[layout.second, layout.first] = found
    return result


def k_dependent(
    cells: CountTables, names: Sequence[str], k: int, information: Floats | None = None
) -> list[Family]:
    """Return the families of the k-dependence structure, in the order of its features.

    A family is the parents of a feature, the one of most information first, and the feature.
    Features without a value come last and have no part in it.

    Parameters
    ----------
    cells
        Counts of values and of all pairs.
    names
        Names of the features; they settle ties.
    k
        Most parents of a feature.
    information
        (n_features, n_features) I(X_i; X_j | C), where the cells do not hold all pairs.
    """
    told = np.flatnonzero(cells.choices > 0)
    void = np.flatnonzero(cells.choices == 0)
    relevance = class_information(cells.n, cells.offsets, cells.sizes + cells.as_value)
    if information is None:
        information = dependence(cells) if k else np.zeros((len(names), len(names)))
    order, parents = k_dependence(
        information[np.ix_(told, told)], relevance[told], [names[j] for j in told.tolist()], k
    )
    families = [(*told[parents[j]].tolist(), int(told[j])) for j in order.tolist()]
    return families + [(int(j),) for j in sorted(void.tolist(), key=names.__getitem__)]


def counts_of_tree(
    model: Any,
    scans: Scans,
    tree: Callable[[Statistics, CountTables, Floats, Floats], Ints],
) -> Statistics:
    """Return the counts of a tree's edges alone, found by counting some pairs in each scan.

    Parameters
    ----------
    model
        The classifier, for its threads, its memory limit and what it does with missing values.
    scans
        The source.
    tree
        Returns the parents, (n_features,), from statistics, cells, and for each pair of features
        (n_features, n_features) its information and the rows in which both are observed.

    Raises
    ------
    MemoryLimitError
        When not even the pairs of one column fit.
    """
    found, cells, information, together = information_in_runs(model, scans)
    parents = tree(found, cells, information, together)
    children = np.flatnonzero(parents >= 0)
    edges = np.sort(np.stack((parents[children], children), axis=1), axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    return scans.count(model, {"values": {}, "pairs": {"pairs": edges}}, found.schema)


def information_in_runs(model: Any, scans: Scans) -> tuple[Statistics, CountTables, Floats, Floats]:
    """Return what all pairs tell, counting some of them in each scan.

    Returns
    -------
    tuple
        Statistics and cells with the counts of values, and for each pair of features
        (n_features, n_features) its information and the rows in which both are observed.

    Raises
    ------
    MemoryLimitError
        When not even the pairs of one column fit.
    """
    values = scans.count(model, {"values": {}})
    m = len(values.schema.categorical)
    information, together = np.zeros((m, m)), np.zeros((m, m))
    found = values
    limit = engine.left_for_pairs(model.memory_limit, model.threads, values.schema.shape)
    runs = list(_runs(values, limit))
    logger.info("%d columns: the pairs are counted in %d scans", m, len(runs))
    for pairs in runs:
        found = scans.count(model, {"values": {}, "pairs": {"pairs": pairs}}, values.schema)
        cells = CountTables(found.values, found.pairs, missing=model.missing, unseen=model.unseen)
        information += dependence(cells)
        together += cells.known_together()
    cells = CountTables(found.values, found.pairs, missing=model.missing, unseen=model.unseen)
    return found, cells, information, together


def _runs(values: Statistics, limit: int) -> Iterator[Ints]:
    """Yield stretches of the sorted pairs whose counts fit in so many bytes."""
    counts = values.values
    widths = counts.shape.sizes + (counts.missing != 0).any(axis=1)
    first, second = all_pairs(len(widths))
    needed = np.cumsum(8 * counts.shape.n_classes * widths[first] * widths[second])
    begin = 0
    while begin < len(first):
        done = int(needed[begin - 1]) if begin else 0
        end = int(np.searchsorted(needed, done + limit, side="right"))
        if end == begin:
            names = [f.name for f in values.schema.categorical]
            raise MemoryLimitError(
                f"columns {names[first[begin]]!r} and {names[second[begin]]!r}: their counts alone "
                f"need {int(needed[begin]) - done:,} bytes, over the {limit:,} that there are; "
                "leave one out or group its values, or raise memory_limit"
            )
        yield np.stack((first[begin:end], second[begin:end]), axis=1)
        begin = end


def same_pairs(stats: Statistics, scans: Scans) -> Ints:
    """Return the pairs of features of statistics, as they are numbered in another source."""
    where = np.array(scans.places([f.name for f in stats.schema.categorical]), np.int64)
    layout = stats.pairs.layout
    pairs = np.sort(np.stack((where[layout.first], where[layout.second]), axis=1), axis=1)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])
