"""Graphs and what they say about independence, held against the joint distribution."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.networks.graph.dag import DAG, ordered_parents

BURGLARY = DAG({"B": [], "E": [], "A": ["B", "E"], "J": ["A"], "M": ["A"]})
Floats = NDArray[np.float64]


def all_graphs(n: int) -> Iterator[DAG]:
    """Yield every DAG of n labelled nodes once."""
    names = "abcdefgh"[:n]
    pairs = list(itertools.combinations(names, 2))
    for kinds in itertools.product((None, True, False), repeat=len(pairs)):
        edges = [
            (a, b) if forth else (b, a)
            for (a, b), forth in zip(pairs, kinds, strict=True)
            if forth is not None
        ]
        try:
            yield DAG.from_edges(edges, nodes=names)
        except ValueError:
            continue


def random_graph(n: int, density: float, random: np.random.Generator) -> DAG:
    names = [f"n{i}" for i in random.permutation(n)]
    edges = [pair for pair in itertools.combinations(names, 2) if random.random() < density]
    return DAG.from_edges(edges, nodes=sorted(names))


def joint_of(graph: DAG, random: np.random.Generator) -> Floats:
    """Return a joint distribution of two-valued nodes with this graph, an axis for each node."""
    at = {node: i for i, node in enumerate(graph.nodes)}
    joint = np.ones((2,) * len(at))
    for node, above in graph.parents.items():
        p = random.uniform(0.1, 0.9, (2,) * len(above))
        table = np.stack([p, 1 - p], axis=-1)
        axes = [at[n] for n in (*above, node)]
        shape = [2 if i in axes else 1 for i in range(len(at))]
        joint = joint * table.transpose(np.argsort(axes)).reshape(shape)
    return joint


def independent(joint: Floats, x: int, y: int, z: frozenset[int]) -> bool:
    """Return whether P(x, y, z) P(z) = P(x, z) P(y, z)."""
    rest = tuple(i for i in range(joint.ndim) if i not in {x, y, *z})
    xyz = joint.sum(axis=rest, keepdims=True)
    xz, yz = xyz.sum(axis=y, keepdims=True), xyz.sum(axis=x, keepdims=True)
    return bool(np.abs(xyz * xz.sum(axis=x, keepdims=True) - xz * yz).max() < 1e-9)


def test_d_separation__is_independence_in_all_graphs_of_four_nodes() -> None:
    random, graphs = np.random.default_rng(5), 0
    for graph in all_graphs(4):
        joint = joint_of(graph, random)
        found = {(i.x, i.y, i.given) for i in graph.independences()}
        for x, y in itertools.combinations(range(4), 2):
            rest = [i for i in range(4) if i not in (x, y)]
            for z in itertools.chain(*(itertools.combinations(rest, k) for k in range(3))):
                given = frozenset(graph.nodes[i] for i in z)
                said = (graph.nodes[x], graph.nodes[y], given) in found
                assert said == independent(joint, x, y, frozenset(z)), (graph.parents, x, y, z)
        graphs += 1
    assert graphs == 543


@settings(max_examples=30)
@given(n=st.integers(2, 7), density=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_node__is_independent_of_non_descendants_given_its_parents(
    n: int, density: float, seed: int
) -> None:
    graph = random_graph(n, density, np.random.default_rng(seed))
    for node, above in graph.parents.items():
        others = {*graph.nodes} - {node, *above, *graph.descendants(node)}
        assert graph.d_separated(node, others, above)
        blanket = graph.markov_blanket(node)
        assert graph.d_separated(node, {*graph.nodes} - {node, *blanket}, blanket)
        assert {*graph.ancestors(node)}.isdisjoint(graph.descendants(node))
        assert graph.order.index(node) > max([graph.order.index(p) for p in above], default=-1)


@settings(max_examples=30)
@given(n=st.integers(3, 7), density=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_sets__are_separated_where_the_moral_graph_of_ancestors_is_cut(
    n: int, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    graph = random_graph(n, density, random)
    part = random.integers(0, 4, n)
    part[:2] = 0, 1
    x, y, z = (
        [node for node, p in zip(graph.nodes, part, strict=True) if p == k] for k in (0, 1, 2)
    )
    near = graph.moral_graph([*x, *y, *z])
    found, waiting = {*x}, list(x)
    while waiting:
        for other in near[waiting.pop()]:
            if other not in found and other not in z:
                found.add(other)
                waiting.append(other)
    assert graph.d_separated(x, y, z) == found.isdisjoint(y)
    assert graph.d_separated(y, x, z) == graph.d_separated(x, y, z)
    assert all(node in near[other] for node in near for other in near[node])


def test_canonical_structures() -> None:
    chain, common = DAG({"c": ["a"], "b": ["c"]}), DAG({"a": ["c"], "b": ["c"]})
    v = DAG({"c": ["a", "b"], "d": ["c"]})
    for graph in (chain, common):
        assert not graph.d_separated("a", "b")
        assert graph.d_separated("a", "b", "c")
    assert v.d_separated("a", "b")
    assert not v.d_separated("a", "b", "c")
    assert not v.d_separated("a", "b", "d")
    assert not v.d_separated(["a"], ["b"], ["c", "d"])
    # Moralised as a whole, a and b would be neighbours: only the ancestors count.
    assert "b" in v.moral_graph()["a"]
    assert "b" not in v.moral_graph(["a", "b"])["a"]


@pytest.mark.parametrize(("order", "size"), [("BEAJM", 10), ("MJABE", 13), ("MJEBA", 31)])
def test_order__sets_how_many_parameters_there_are(order: str, size: int) -> None:
    parents = ordered_parents(order, BURGLARY)
    assert DAG(parents).n_parameters(2) == size
    joint, at = joint_of(BURGLARY, np.random.default_rng(3)), BURGLARY.nodes.index

    def told(x: str, y: str, z: frozenset[str]) -> bool:
        return independent(joint, at(x), at(y), frozenset(map(at, z)))

    assert ordered_parents(order, told) == parents


@settings(max_examples=20)
@given(n=st.integers(1, 6), density=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_minimal_parents__leave_nothing_out_and_nothing_in(
    n: int, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    graph = random_graph(n, density, random)
    order = [graph.nodes[i] for i in random.permutation(n)]
    for i, (node, above) in enumerate(ordered_parents(order, graph).items()):
        before = order[:i]
        assert graph.d_separated(node, [b for b in before if b not in above], above)
        for parent in above:
            assert not graph.d_separated(node, parent, [p for p in above if p != parent])
    assert ordered_parents(graph.order, graph) == {
        node: tuple(sorted(graph.parents[node], key=graph.order.index)) for node in graph.order
    }


def test_two_servers__are_a_complete_graph() -> None:
    graph = DAG({"server1": ["weather"], "server2": ["server1", "weather"]})
    assert graph.n_parameters(2) == 2**3 - 1
    assert graph.independences() == []


def test_edges__make_the_graph() -> None:
    graph = DAG.from_edges([("a", "b"), ("c", "b"), ("b", "d")], nodes=["z"])
    assert graph.nodes == ("z", "a", "b", "c", "d")
    assert graph.order == ("z", "a", "c", "b", "d")
    assert graph.edges == [("a", "b"), ("c", "b"), ("b", "d")]
    assert graph.children["b"] == ("d",)
    assert graph.ancestors("d") == ("a", "b", "c")
    assert graph.descendants(["a", "c"]) == ("b", "d")
    assert graph.markov_blanket("a") == ("b", "c")
    assert repr(graph) == "<DAG: 5 nodes, 3 edges>"
    assert DAG.from_edges([]).independences() == []
    assert [str(i) for i in DAG.from_edges([], "ab").independences()] == ["a independent of b"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DAG.from_edges([("a", "b"), ("b", "a")]), "in a circle: a -> b -> a$"),
        (lambda: DAG.from_edges([("a", "a")]), "in a circle: a -> a$"),
        (
            lambda: DAG.from_edges([("x", "c"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "y")]),
            "of 'c' go round in a circle: c -> d -> b -> c$",
        ),
        (lambda: DAG.from_edges([("a", "b"), ("a", "b")]), "node 'b': a parent stands twice"),
        (lambda: DAG.from_edges(["ab"]), "'ab' is no edge"),
        (lambda: DAG.from_edges([("a", "b", "c")]), "is no edge"),  # type: ignore[list-item]
        (lambda: BURGLARY.d_separated("B", "X"), "'X' is not among the nodes"),
        (lambda: BURGLARY.d_separated("B", "E", ["A", "E"]), "'E' stands in two of the sets"),
        (lambda: BURGLARY.d_separated("B", "B"), "'B' stands in two of the sets"),
        (lambda: BURGLARY.n_parameters({"B": 2}), "node 'E': its number of states"),
        (lambda: ordered_parents("BEAJ", BURGLARY), "'M' is not in both"),
        (lambda: ordered_parents("BEAJMB", BURGLARY), "a node stands twice"),
    ],
)
def test_what_cannot_be__is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_many_independences__are_refused() -> None:
    graph = DAG.from_edges([], nodes=map(str, range(30)))
    with pytest.raises(MemoryLimitError, match="set max_given"):
        graph.independences()
    assert len(graph.independences(max_given=0)) == 435


def test_thousand_nodes() -> None:
    random = np.random.default_rng(0)
    names = [f"n{i}" for i in range(1000)]
    edges = [
        (names[p], names[i])
        for i in range(1, 1000)
        for p in random.choice(i, min(i, 3), replace=False)
    ]
    graph = DAG.from_edges(edges, nodes=names)
    ends = [graph.d_separated("n0", f"n{i}", f"n{i - 1}") for i in range(2, 102)]
    again = DAG(ordered_parents(graph.order, graph))
    assert len(ends) == 100
    assert {*again.edges} == {*graph.edges}
