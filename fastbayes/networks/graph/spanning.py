"""Trees and forests of largest total weight over features, in an order without ties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats

Integers = NDArray[np.int64]

# Weights closer than this share of themselves are equal.
TIE = 1e-12


def maximum_spanning_forest(
    weights: Floats,
    names: Sequence[str],
    *,
    relevance: Floats,
    root: str | None = None,
    above: float = 0.0,
) -> Integers:
    """Return the parent of each feature, -1 for a root, in the forest of largest total weight.

    Weights are (d, d), symmetric; only edges of more than `above` are taken: those of a tree where
    that is -inf. The most relevant feature of each tree is its root, of equals the first by name;
    `root` is to be one, too. This takes O(d²) memory and O(d² log d) time.

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
    edges = [(i, j) for i, j in _tree(ordered_edges(weights, names)) if weights[i, j] > above]
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


def ordered_edges(weights: Floats, names: Sequence[str]) -> Integers:
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
