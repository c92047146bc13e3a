"""Which features depend on which, k of each at most, and what that is chosen by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.information import class_information
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import CountTables
from fastbayes.networks.graph.dag import graph
from fastbayes.networks.graph.spanning import by_relevance, ordered_edges
from fastbayes.scan import engine
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.pair_counts import runs_of_pairs

Integers = NDArray[np.int64]
Family = tuple[int, ...]


def k_dependence(
    weights: Floats, relevance: Floats, names: Sequence[str], k: int
) -> tuple[Integers, list[Integers]]:
    """Return features by falling relevance, (d,), and the up to k parents of each feature.

    The parents are those of the k earlier features of largest weight, the largest first. Weights
    are (d, d), symmetric: I(X_i; X_j | C), -inf where there can be no edge. The relevance is I(X_j;
    C); ties go by name. With k = 0 the structure is naive Bayes.

    References
    ----------
    Sahami (1996), Learning limited dependence Bayesian classifiers, section 3.

    Examples
    --------
    >>> weights = np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    >>> order, parents = k_dependence(weights, np.array([0.3, 0.2, 0.1]), ["a", "b", "c"], k=1)
    >>> order.tolist(), [p.tolist() for p in parents]
    ([0, 1, 2], [[], [0], [1]])
    """
    order = by_relevance(relevance, names)
    edges = ordered_edges(weights, names)
    parents = [np.empty(0, np.int64)] * len(order)
    for at, feature in enumerate(order):
        earlier = order[:at]
        earlier = earlier[weights[feature, earlier] > -np.inf]
        parents[feature] = earlier[np.argsort(-edges[feature, earlier])[:k]]
    return order, parents


def tree_dot(target: str, parents: Mapping[str, Sequence[str]]) -> str:
    """Return a classifier as Graphviz text: the class is one more parent of every feature.

    Examples
    --------
    >>> print(tree_dot("play", {"wind": [], "humidity": ["wind"]}))
    digraph {
        "play" [shape=box];
        "wind";
        "humidity";
        "play" -> "wind";
        "play" -> "humidity";
        "wind" -> "humidity";
    }
    """
    target = class_node(target, parents)
    everything = {name: [target, *above] for name, above in parents.items()}
    return graph({target: [], **everything}, boxes=[target])


def class_node(target: str, features: Collection[str]) -> str:
    """Return a name for the class that no feature has."""
    while target in features:
        target += " (class)"
    return target


logger = logging.getLogger("fastbayes")

Ints = NDArray[np.int64]


def dependence(cells: CountTables) -> Floats:
    """Return I(X_i; X_j | C) in nats of all pairs, (n_features, n_features)."""
    layout, m = cells.pairs.layout, len(cells.sizes)
    found = np.empty(len(layout.first))
    dispatch.load("fitting.information", float(layout.total)).pair_information(
        *(cells.pairs.flat, layout.first, layout.second, layout.starts),
        *(layout.sizes + (cells.as_value & layout.missing), layout.widths, layout.n_classes, found),
    )
    result = np.zeros((m, m))
    result[layout.first, layout.second] = result[layout.second, layout.first] = found
    return result


def relevance(cells: CountTables) -> Floats:
    """Return I(X_j; C) in nats of each feature, (n_features,)."""
    return class_information(cells.n, cells.offsets, cells.sizes + cells.as_value)


def k_dependent(
    cells: CountTables, names: Sequence[str], k: int, information: Floats | None = None
) -> list[Family]:
    """Return the families of the k-dependence structure, in the order of its features.

    A family is the parents of a feature, the one of most information first, and the feature.
    Features without a value come last and have no part in it. `information` is that of all pairs,
    where the cells do not hold them.
    """
    given = np.flatnonzero(cells.choices > 0)
    void = np.flatnonzero(cells.choices == 0)
    worth = relevance(cells)
    if information is None:
        information = dependence(cells) if k else np.zeros((len(names), len(names)))
    order, parents = k_dependence(
        information[np.ix_(given, given)], worth[given], [names[j] for j in given.tolist()], k
    )
    families = [(*given[parents[j]].tolist(), int(given[j])) for j in order.tolist()]
    return families + [(int(j),) for j in sorted(void.tolist(), key=names.__getitem__)]


def counts_of_tree(
    model: Any,
    scans: Scans,
    tree: Callable[[Statistics, CountTables, Floats, Callable[[], Floats]], Ints],
) -> Statistics:
    """Return the counts of a tree's edges alone, found by counting some pairs in each scan.

    `tree` returns the parents, (n_features,), from statistics, cells, and for each pair of features
    (n_features, n_features) its information and what gives the rows in which both are observed.
    """
    found, cells, information, together = information_in_runs(model, scans)
    parents = tree(found, cells, information, lambda: together)
    children = np.flatnonzero(parents >= 0)
    edges = _sorted_pairs(parents[children], children)
    return scans.count(model, {"values": {}, "pairs": {"pairs": edges}}, found.schema)


def information_in_runs(model: Any, scans: Scans) -> tuple[Statistics, CountTables, Floats, Floats]:
    """Return what all pairs tell, counting some of them in each scan.

    That is statistics and cells with the counts of values, and for each pair of features
    (n_features, n_features) its information and the rows in which both are observed.
    """
    values = scans.count(model, {"values": {}})
    m = len(values.schema.categorical)
    information, together = np.zeros((m, m)), np.zeros((m, m))
    share = engine.share_of(scans.source, model.threads, model.memory_limit)
    held = share.charged + scans.besides()
    limit = engine.left_for_pairs(model.memory_limit, model.threads, values.schema.shape, held)
    counts, options = values.values, {"missing": model.missing, "unseen": model.unseen}
    runs = list(
        runs_of_pairs(
            [f.name for f in values.schema.categorical],
            counts.shape.sizes + (counts.missing != 0).any(axis=1),
            counts.shape.n_classes,
            limit,
        )
    )
    logger.info("%d columns: the pairs are counted in %d scans", m, len(runs))
    for pairs in runs:
        found = scans.count(model, {"values": {}, "pairs": {"pairs": pairs}}, values.schema)
        cells = CountTables(found.values, found.pairs, **options)
        information += dependence(cells)
        together += cells.known_together()
        del found, cells  # before others are counted
    return values, CountTables(counts, **options), information, together


def same_pairs(stats: Statistics, scans: Scans) -> Ints:
    """Return the pairs of features of statistics, as they are numbered in another source."""
    where = np.array(scans.places([f.name for f in stats.schema.categorical]), np.int64)
    layout = stats.pairs.layout
    return _sorted_pairs(where[layout.first], where[layout.second])


def _sorted_pairs(first: Ints, second: Ints) -> Ints:
    pairs = np.sort(np.stack((first, second), axis=1), axis=1)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])
