"""Directed graphs without cycles, and what they say about independence."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.suggestions import did_you_mean


def graph(parents: Mapping[str, Sequence[str]], boxes: Sequence[str] = ()) -> str:
    """Return a directed graph in Graphviz' language; the edges of nodes drawn as boxes come first.

    Examples
    --------
    >>> print(graph({"play": [], "wind": ["play"]}, boxes=["play"]))
    digraph {
        "play" [shape=box];
        "wind";
        "play" -> "wind";
    }
    """
    lines = [quoted(node) + " [shape=box]" * (node in boxes) for node in parents]
    edges = [(p, node) for node, above in parents.items() for p in above]
    edges.sort(key=lambda edge: edge[0] not in boxes)
    lines += [f"{quoted(p)} -> {quoted(node)}" for p, node in edges]
    return "\n".join(["digraph {", *(f"    {line};" for line in lines), "}"])


def quoted(name: Any) -> str:
    """Return a name as an identifier of Graphviz that is drawn as the name."""
    text = str(name).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # What reads as an entity of HTML would be drawn as its character.
    return '"' + re.sub(r"&(?=#?\w+;)", "&amp;", text) + '"'


Names = str | Iterable[str]

Node = TypeVar("Node", bound=Hashable)

# Statements of independence that are looked at for a list of all of them.
MOST_STATEMENTS = 1 << 22


def reachable(nodes: Iterable[Node], near: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return nodes and all to which steps lead from them."""
    found = {*nodes}
    waiting = list(found)
    while waiting:
        new = [node for node in near(waiting.pop()) if node not in found]
        found.update(new)
        waiting += new
    return found


def joined(
    start: Iterable[Any], closed: Collection[Any], among: Collection[Any], above: Any, below: Any
) -> tuple[set[Any], set[Any]]:
    """Return what paths lead to in the moral graph of `among`, ends in `closed` included.

    And the nodes whose families (with the parents `above`) they go through: a family is a clique of
    the moral graph and walked through once, so that the time is that of reading the edges.
    """
    found, families = {*start}, set[Any]()
    waiting = [node for node in found if node not in closed]
    while waiting:
        node = waiting.pop()
        for child in (node, *below[node]):
            if child in among and child not in families:
                families.add(child)
                new = [v for v in (child, *above[child]) if v not in found]
                found.update(new)
                waiting += [v for v in new if v not in closed]
    return found, families


def pairs(edges: Iterable[Any], what: str = "") -> Iterator[tuple[str, str]]:
    """Yield edges, or raise where one is no pair; `what` they are stands before the message."""
    for edge in edges:
        if isinstance(edge, str) or len(edge) != 2:
            raise ValueError(f"{what}{edge!r} is no edge: use pairs (parent, child)")
        yield tuple(edge)


class Independence(NamedTuple):
    """A node is independent of another one given some more."""

    x: str
    y: str
    given: frozenset[str]

    def __str__(self) -> str:
        given = f" | {', '.join(sorted(map(str, self.given)))}" if self.given else ""
        return f"{self.x} independent of {self.y}{given}"


class DAG:
    """A directed graph without cycles: every node has its parents.

    Parameters
    ----------
    parents
        {node: its parents}; the nodes are in this order, then come parents that are not named.

    Attributes
    ----------
    nodes
        Names of the nodes.
    parents, children
        {node: its parents}, {node: its children}.
    order
        The nodes, each after its parents; of those that may come next, the first.

    Raises
    ------
    ValueError
        When parents go round in a circle, which the message shows, or one stands twice.

    Notes
    -----
    A node is independent of its non-descendants given its parents. What follows from this for
    three nodes is all there is to d-separation:

    common parent   a <- c -> b    a and b are dependent, independent given c
    chain           a -> c -> b    a and b are dependent, independent given c
    v-structure     a -> c <- b    a and b are independent, dependent given c, or given what
                                   c causes

    References
    ----------
    Pearl (1988), Probabilistic reasoning in intelligent systems. Lauritzen, Dawid, Larsen,
    Leimer (1990), Independence properties of directed Markov fields, Networks 20, proposition 3.

    Examples
    --------
    >>> chain, common = DAG({"c": ["a"], "b": ["c"]}), DAG({"a": ["c"], "b": ["c"]})
    >>> [g.d_separated("a", "b") for g in (chain, common)]
    [False, False]
    >>> [g.d_separated("a", "b", "c") for g in (chain, common)]
    [True, True]
    >>> v = DAG({"c": ["a", "b"], "d": ["c"]})
    >>> v.d_separated("a", "b"), v.d_separated("a", "b", "c"), v.d_separated("a", "b", "d")
    (True, False, False)

    Whether a server fails depends on the other one and on the weather, and so on: where every
    two nodes are tied, the graph is complete and says nothing; it takes all 2^3 - 1 numbers.

    >>> DAG({"server1": ["weather"], "server2": ["server1", "weather"]}).n_parameters(2)
    7
    """

    def __init__(self, parents: Mapping[str, Iterable[str]]) -> None:
        self._link({node: tuple(above) for node, above in parents.items()})

    def _link(self, parents: Mapping[str, tuple[str, ...]]) -> None:
        self.nodes = tuple(dict.fromkeys([*parents, *itertools.chain(*parents.values())]))
        self.parents: dict[str, tuple[str, ...]] = {n: parents.get(n, ()) for n in self.nodes}
        below: dict[str, list[str]] = {node: [] for node in self.nodes}
        for node, above in self.parents.items():
            if len({*above}) < len(above):
                raise ValueError(f"node {node!r}: a parent stands twice in {list(above)}")
            for parent in above:
                below[parent].append(node)
        self.children = {node: tuple(some) for node, some in below.items()}
        self.order = self._ordered()

    @classmethod
    def _of(cls, parents: Mapping[str, Sequence[str]]) -> Self:
        """Return the graph; a subclass may know more than the parents."""
        return cls(parents)

    @classmethod
    def from_edges(
        cls, edges: Iterable[tuple[str, str]], nodes: Iterable[str] | None = None
    ) -> Self:
        """Return the graph with these edges.

        Parameters
        ----------
        edges
            Pairs (parent, child).
        nodes
            Nodes that come first, in this order; needed for those without an edge.

        Returns
        -------
        Self
            The other nodes are in the order in which the edges name them.

        Raises
        ------
        ValueError
            When edges go round in a circle, which the message shows, or one stands twice.

        Examples
        --------
        >>> DAG.from_edges([("rain", "wet")], nodes=["wind"]).parents
        {'wind': (), 'rain': (), 'wet': ('rain',)}
        """
        above: dict[str, list[str]] = {node: [] for node in nodes or ()}
        for parent, child in pairs(edges):
            above.setdefault(parent, [])
            above.setdefault(child, []).append(parent)
        return cls._of(above)

    def _ordered(self) -> tuple[str, ...]:
        place = {node: i for i, node in enumerate(self.nodes)}
        waiting = {node: len(above) for node, above in self.parents.items()}
        ready = [place[node] for node, n in waiting.items() if not n]
        order: list[str] = []
        while ready:
            order.append(self.nodes[heapq.heappop(ready)])
            for child in self.children[order[-1]]:
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, place[child])
        if len(order) < len(self.nodes):
            cycle = self._cycle([node for node in self.nodes if waiting[node]])
            raise ValueError(
                f"the parents of {cycle[0]!r} go round in a circle: {' -> '.join(map(str, cycle))}"
            )
        return tuple(order)

    def _cycle(self, left: list[str]) -> list[str]:
        """Return a cycle among nodes each of which has a parent among them."""
        among, path = {*left}, [left[0]]
        while path[-1] not in path[:-1]:
            path.append(next(p for p in self.parents[path[-1]] if p in among))
        cycle = path[path.index(path[-1]) :][:0:-1]
        start = cycle.index(min(cycle, key=self.nodes.index))
        return [*cycle[start:], *cycle[:start], cycle[start]]

    def __repr__(self) -> str:
        edges = sum(map(len, self.parents.values()))
        return f"<{type(self).__name__}: {len(self.nodes)} nodes, {edges} edges>"

    # -- the graph -----------------------------------------------------------------------------

    @property
    def edges(self) -> list[tuple[str, str]]:
        """The edges as pairs (parent, child), by child."""
        return [(parent, node) for node, above in self.parents.items() for parent in above]

    def _named(self, what: Names) -> list[str]:
        alone = isinstance(what, str) or not isinstance(what, Iterable)
        names: list[Any] = [what] if alone else [*dict.fromkeys(what)]
        for name in names:
            if name not in self.parents:
                raise ValueError(
                    f"{name!r} is not among the nodes {list(self.nodes)}"
                    f"{did_you_mean(name, self.nodes)}"
                )
        return names

    def _above(self, names: Iterable[str]) -> set[str]:
        return reachable(names, self.parents.__getitem__)

    def _sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        some = {*names}
        return tuple(node for node in self.nodes if node in some)

    def ancestors(self, nodes: Names) -> tuple[str, ...]:
        """Return all nodes from which a path leads to these, which are not among them.

        Parameters
        ----------
        nodes
            A name or several.
        """
        names = self._named(nodes)
        return self._sorted(self._above(names) - {*names})

    def descendants(self, nodes: Names) -> tuple[str, ...]:
        """Return all nodes to which a path leads from these, which are not among them.

        Parameters
        ----------
        nodes
            A name or several.
        """
        names = self._named(nodes)
        return self._sorted(reachable(names, self.children.__getitem__) - {*names})

    def markov_blanket(self, node: str) -> tuple[str, ...]:
        """Return parents, children and the children's other parents: they tell all of a node.

        Parameters
        ----------
        node
            Its name.

        Returns
        -------
        tuple of str
            Given these, the node is independent of all others.
        """
        (name,) = self._named([node])
        blanket = {*self.parents[name], *self.children[name]}
        for child in self.children[name]:
            blanket.update(self.parents[child])
        return self._sorted(blanket - {name})

    def moral_graph(self, nodes: Names | None = None) -> dict[str, tuple[str, ...]]:
        """Return the undirected graph in which parents of one node are neighbours, too.

        Parameters
        ----------
        nodes
            Take the graph of these and their ancestors alone, which tells what is independent
            of what; None takes all nodes.

        Returns
        -------
        dict
            {node: its neighbours}.
        """
        among = {*self.nodes} if nodes is None else self._above(self._named(nodes))
        near: dict[str, set[str]] = {node: set() for node in self.nodes if node in among}
        for node in near:
            family = {node, *self.parents[node]}
            for member in family:
                near[member] |= family
        return {node: self._sorted(some - {node}) for node, some in near.items()}

    # -- independence --------------------------------------------------------------------------

    def _reached(self, start: Iterable[str], closed: set[str], among: set[str]) -> set[str]:
        return joined(start, closed, among, self.parents, self.children)[0]

    def d_separated(self, x: Names, y: Names, z: Names = ()) -> bool:
        """Return whether the graph says that x and y are independent given z.

        Parameters
        ----------
        x, y, z
            A name or several of each.

        Returns
        -------
        bool
            True: independent in every distribution with this graph. False: dependent in almost
            every one.

        Raises
        ------
        ValueError
            When a name is no node, or stands in two of the sets.

        Notes
        -----
        Every path between x and y in the moral graph of x, y, z and their ancestors passes z. The
        time is that of reading the edges.

        References
        ----------
        Lauritzen et al. (1990), proposition 3.
        """
        sets = [self._named(some) for some in (x, y, z)]
        for some, other in itertools.combinations(sets, 2):
            if both := [name for name in some if name in other]:
                raise ValueError(f"{both[0]!r} stands in two of the sets x, y and z")
        given = {*sets[2]}
        among = self._above([*sets[0], *sets[1], *sets[2]])
        return self._reached(sets[0], given, among).isdisjoint(sets[1])

    def independences(self, max_given: int | None = None) -> list[Independence]:
        """Return all independences of two nodes given others.

        Parameters
        ----------
        max_given
            Nodes that are given, at most; None for all.

        Returns
        -------
        list of Independence
            (x, y, given), x before y, those with fewer given nodes first.

        Raises
        ------
        MemoryLimitError
            When there are too many statements to look at: they double with every node.

        Examples
        --------
        >>> for statement in DAG({"c": ["a"], "b": ["c"]}).independences():
        ...     print(statement)
        b independent of a | c
        """
        n = len(self.nodes)
        most = max(n - 2, 0) if max_given is None else min(max_given, max(n - 2, 0))
        each = sum(math.comb(max(n - 2, 0), k) for k in range(most + 1))
        if math.comb(n, 2) * each > MOST_STATEMENTS:
            raise MemoryLimitError(
                f"{n:,} nodes with up to {most:,} given make over {MOST_STATEMENTS:,} statements "
                "of independence: set max_given, lower than that, or ask d_separated"
            )
        return [
            Independence(x, y, z)
            for k in range(most + 1)
            for z in map(frozenset, itertools.combinations(self.nodes, k))
            for x, y in itertools.combinations([n for n in self.nodes if n not in z], 2)
            if self.d_separated(x, y, z)
        ]

    def _boundary(self, node: str, before: Iterable[str]) -> tuple[str, ...]:
        """Return the fewest of some nodes given which another one is independent of the rest."""
        closed = {*before}
        return self._sorted(self._reached([node], closed, self._above([node, *closed])) & closed)

    # -- size ----------------------------------------------------------------------------------

    def n_parameters(self, states: int | Mapping[str, int]) -> int:
        """Return the free parameters of tables for this graph, sum of q (r - 1).

        Parameters
        ----------
        states
            Number of states of every node, or {node: its states}.

        Returns
        -------
        int
            r states of a node, q joint states of its parents.
        """
        r = states if isinstance(states, Mapping) else dict.fromkeys(self.nodes, int(states))
        if unknown := [node for node in self.nodes if node not in r]:
            raise ValueError(f"node {unknown[0]!r}: its number of states is not among {list(r)}")
        return sum(
            math.prod(int(r[p]) for p in above) * (int(r[node]) - 1)
            for node, above in self.parents.items()
        )

    def to_dot(self) -> str:
        """Return the graph in Graphviz' language."""
        return graph(self.parents)


# Says whether a node is independent of another one, given some more.
Independent = Callable[[str, str, frozenset[str]], bool]


def ordered_parents(order: Sequence[str], rule: DAG | Independent) -> dict[str, tuple[str, ...]]:
    """Return for each node the fewest nodes before it given which it is independent of the others.

    That is the minimal map of independences for this order. `rule` is a graph, whose d-separations
    are the independences; or independent(x, y, given), which says them of a distribution. Raises
    ValueError when a node stands twice, or the order is not one of all nodes of the graph.

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
