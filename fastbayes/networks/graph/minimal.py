"""From an order of nodes to the sparsest graph that tells no independence that is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastbayes.networks.graph.dag import DAG

# Says whether a node is independent of another one, given some more.
Independent = Callable[[str, str, frozenset[str]], bool]


def ordered_parents(order: Sequence[str], rule: DAG | Independent) -> dict[str, tuple[str, ...]]:
    """Return for each node the fewest nodes before it given which it is independent of the others.

    Parameters
    ----------
    order
        The nodes.
    rule
        A graph, whose d-separations are the independences; or independent(x, y, given), which
        says whether they are in a distribution.

    Returns
    -------
    dict
        {node: its parents}, in the order given: the minimal map of independences for this order.

    Raises
    ------
    ValueError
        When a node stands twice, or the order is not one of all nodes of the graph.

    References
    ----------
    Pearl (1988), section 3.3.

    Examples
    --------
    How many numbers a network takes depends on the order: from causes to effects it takes few.

    >>> alarm = DAG({"A": ["B", "E"], "J": ["A"], "M": ["A"]})
    >>> [DAG(ordered_parents(o, alarm)).n_parameters(2) for o in ("BEAJM", "MJABE", "MJEBA")]
    [10, 13, 31]
    """
    names = list(order)
    if len({*names}) < len(names):
        raise ValueError(f"order: a node stands twice in {names}")
    if isinstance(rule, DAG):
        if unknown := {*names} ^ {*rule.nodes}:
            raise ValueError(f"order: {min(unknown, key=str)!r} is not in both order and graph")
        return {
            node: tuple(sorted(rule._boundary(node, names[:i]), key=names.index))
            for i, node in enumerate(names)
        }
    parents = {}
    for i, node in enumerate(names):
        left = names[:i]
        # By contraction and weak union, leaving out one after the other ends at a minimal set.
        for other in names[:i]:
            if rule(node, other, frozenset(left) - {other}):
                left.remove(other)
        parents[node] = tuple(left)
    return parents
