"""Which features depend on which: trees, forests, k-dependence, and what they are chosen by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.information import class_information
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import CountTables
from fastbayes.networks.graph.dag import graph
from fastbayes.scan import engine
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.pair_counts import all_pairs

Integers = NDArray[np.int64]
Family = tuple[int, ...]

# Weights closer than this share of themselves are equal.
TIE = 1e-12


def maximum_spanning_tree(
    weights: Floats, names: Sequence[str], *, relevance: Floats, root: str | None = None
) -> Integers:
    """Return the parent of each feature in the tree of largest total weight.

    As `maximum_spanning_forest`, but over all edges whose weight is not -inf.

    Examples
    --------
    >>> weights = np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    >>> relevance = np.array([0.1, 0.2, 0.3])
    >>> maximum_spanning_tree(weights, ["a", "b", "c"], relevance=relevance).tolist()
    [1, 2, -1]
    """
    return maximum_spanning_forest(weights, names, relevance=relevance, root=root, above=-np.inf)


def maximum_spanning_forest(
    weights: Floats,
    names: Sequence[str],
    *,
    relevance: Floats,
    root: str | None = None,
    above: float = 0.0,
) -> Integers:
    """Return the parent of each feature, -1 for a root, in the forest of largest total weight.

    Weights are (d, d), symmetric; only edges of more than `above` are taken. The most relevant
    feature of each tree is its root, of equals the first by name; `root` is to be one, too. This
    takes O(d²) memory and O(d² log d) time.

    References
    ----------
    Friedman, Geiger, Goldszmidt (1997), Bayesian network classifiers, section 4.1; Prim (1957).

    Examples
    --------
    >>> weights = np.array([[0.0, 3.0, -1.0], [3.0, 0.0, -2.0], [-1.0, -2.0, 0.0]])
    >>> relevance = np.array([0.1, 0.2, 0.3])
    >>> maximum_spanning_forest(weights, ["a", "b", "c"], relevance=relevance).tolist()
    [1, -1, -1]
    """
    if root is not None and root not in names:
        raise ValueError(f"root={root!r} is not a feature; the features are {list(names)}")
    # A spanning forest of those edges is what a spanning tree of all edges has of them.
    edges = [(i, j) for i, j in _tree(_ordered_edges(weights, names)) if weights[i, j] > above]
    neighbours: list[list[int]] = [[] for _ in names]
    for i, j in edges:
        neighbours[i].append(j)
        neighbours[j].append(i)
    parents = np.full(len(names), -1, np.int64)
    reached = np.zeros(len(names), np.bool_)
    first = [] if root is None else [list(names).index(root)]
    for start in first + by_relevance(relevance, names).tolist():
        waiting = [] if reached[start] else [start]
        reached[start] = True
        while waiting:
            parent = waiting.pop()
            for child in neighbours[parent]:
                if not reached[child]:
                    reached[child] = True
                    parents[child] = parent
                    waiting.append(child)
    return parents


def penalty(sizes: Integers, n_classes: int, unit: float) -> Floats:
    """Return what the parameters of each edge cost, (d, d): unit K (S_i - 1)(S_j - 1).

    A parameter costs ½ ln N nats by the Bayesian criterion, 1 by Akaike's.
    """
    free = np.maximum(sizes - 1, 0).astype(np.float64)
    return np.asarray(unit * n_classes * np.outer(free, free))


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
    edges = _ordered_edges(weights, names)
    parents = [np.empty(0, np.int64)] * len(order)
    for at, feature in enumerate(order):
        earlier = order[:at]
        earlier = earlier[weights[feature, earlier] > -np.inf]
        parents[feature] = earlier[np.argsort(-edges[feature, earlier])[:k]]
    return order, parents


def by_relevance(relevance: Floats, names: Sequence[str]) -> Integers:
    """Return the features by falling relevance, equals by name, (d,)."""
    place = np.empty(len(names), np.int64)
    place[_by_name(names)] = np.arange(len(names))
    return np.lexsort((place, -_levels(relevance))).astype(np.int64)


def _by_name(names: Sequence[str]) -> Integers:
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)


def _levels(values: Floats) -> Integers:
    """Return the rank of each value from below, (n,); values that are equal share theirs."""
    order = np.argsort(values)
    rising = values[order]
    above, below = rising[1:], rising[:-1]
    near = np.isfinite(above) & np.isfinite(below)
    steps = np.zeros(len(values), np.int64)
    steps[1:] = above > below
    with np.errstate(invalid="ignore"):  # -inf, the score of what is impossible, equals itself
        steps[1:] &= ~(near & (above - below <= TIE * np.maximum(np.abs(above), np.abs(below))))
    levels = np.empty(len(values), np.int64)
    levels[order] = np.cumsum(steps)
    return levels


def _ordered_edges(weights: Floats, names: Sequence[str]) -> Integers:
    """Return the edges as different numbers in the order of weight and names, (d, d) symmetric.

    The larger the better; the diagonal is -1.
    """
    order = _by_name(names)
    d = len(order)
    first, second = np.triu_indices(d, 1)
    first, second = order[first], order[second]
    n_edges = len(first)
    keys = _levels(np.asarray(weights, dtype=np.float64)[first, second]) * n_edges
    keys += np.arange(n_edges - 1, -1, -1)  # of equals, the first by name
    edges = np.full((d, d), -1, np.int64)
    edges[first, second] = keys
    edges[second, first] = keys
    return edges


def _tree(edges: Integers) -> list[tuple[int, int]]:
    """Return the d - 1 edges of the one tree that is best, by Prim's algorithm."""
    found: list[tuple[int, int]] = []
    if not len(edges):
        return found
    best, source = edges[0].copy(), np.zeros(len(edges), np.int64)
    outside = np.ones(len(edges), np.bool_)
    outside[0] = False
    for _ in range(len(edges) - 1):
        near = int(best.argmax())
        found.append((int(source[near]), near))
        outside[near] = False
        best[near] = -1
        better = (edges[near] > best) & outside
        best[better] = edges[near][better]
        source[better] = near
    return found


def tree_dot(target: str, parents: Mapping[str, Sequence[str]]) -> str:
    """Return the structure of a classifier as Graphviz text.

    Parameters
    ----------
    target
        Name of the class, the parent of every feature.
    parents
        The feature parents of each feature: none in naive Bayes, one in a tree, k in KDB.

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
    found = values
    share = engine.share_of(scans.source, model.threads, model.memory_limit)
    held = share.charged + scans.besides()
    limit = engine.left_for_pairs(model.memory_limit, share.threads, values.schema.shape, held)
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
    return _sorted_pairs(where[layout.first], where[layout.second])


def _sorted_pairs(first: Ints, second: Ints) -> Ints:
    pairs = np.sort(np.stack((first, second), axis=1), axis=1)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])
