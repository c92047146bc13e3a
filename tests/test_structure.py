"""Trees, forests and k-dependence structures: against brute force, and whatever the order.

Paragraphs: order §1, one-dependence §5 of the conventions.
"""

from __future__ import annotations

import csv
import html
import itertools
import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastbayes.kernels.numpy.fitting.information import pair_information
from fastbayes.models.discrete.structure import k_dependence, tree_dot
from fastbayes.models.estimator.information import class_information
from fastbayes.networks.graph.spanning import by_relevance, maximum_spanning_forest

Weights = NDArray[np.float64]
maximum_spanning_tree = partial(maximum_spanning_forest, above=-np.inf)
# Few different weights, so that most of them tie; some are equal up to rounding only.
LEVELS = [-1.0, 0.0, 0.1, 0.3, 0.1 + 0.2, 1.0, 1.0 + 1e-13, 1.0 + 1e-11, 7e-20, 7e-20 * (1 + 1e-15)]


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> tuple[Weights, list[str], Weights]:
    """Return symmetric weights, names in any order and relevances."""
    d = draw(st.integers(0, most))
    value = st.sampled_from(LEVELS) | st.floats(-1, 1, allow_subnormal=False)
    weights = np.full((d, d), np.nan)
    for i, j in itertools.combinations(range(d), 2):
        weights[i, j] = weights[j, i] = draw(value)
    names = draw(st.permutations(["", "B", "a", "aa", "ä", "z"]))[:d]
    relevance = np.array([draw(st.sampled_from(LEVELS[1:])) for _ in range(d)])
    return weights, names, relevance


def same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=0)


def edges(parents: NDArray[np.int64], names: list[str]) -> set[frozenset[str]]:
    return {frozenset((names[j], names[p])) for j, p in enumerate(parents) if p >= 0}


def named(parents: NDArray[np.int64], names: list[str]) -> dict[str, str | None]:
    return {names[j]: names[p] if p >= 0 else None for j, p in enumerate(parents)}


def best_forest(weights: Weights, names: list[str], positive: bool) -> set[frozenset[str]]:
    """Take edge after edge, the heaviest first and equals by name, unless it closes a circle."""
    rest = list(itertools.combinations(sorted(range(len(names)), key=names.__getitem__), 2))
    component, found = list(range(len(names))), set()
    while rest:
        heaviest = max(weights[edge] for edge in rest)
        # Equal to the heaviest, or to one that is equal to it.
        level = sorted({weights[edge] for edge in rest}, reverse=True)
        last = heaviest
        for value in level:
            if not same(value, last):
                break
            last = value
        i, j = next(edge for edge in rest if weights[edge] >= last)
        rest.remove((i, j))
        if component[i] != component[j] and (not positive or weights[i, j] > 0):
            found.add(frozenset((names[i], names[j])))
            component = [component[i] if c == component[j] else c for c in component]
    return found


@pytest.mark.parametrize("positive", [False, True])
@given(graph=graphs())
def test_spanning__takes_the_heaviest_edges_that_close_no_circle(
    positive: bool, graph: tuple[Weights, list[str], Weights]
) -> None:
    weights, names, relevance = graph
    span = maximum_spanning_forest if positive else maximum_spanning_tree
    parents = span(weights, names, relevance=relevance)
    assert edges(parents, names) == best_forest(weights, names, positive)
    roots = int((parents < 0).sum())
    assert roots == len(names) - len(edges(parents, names))
    assert positive or roots == min(len(names), 1)


@given(graph=graphs(5))
def test_spanning_tree__is_the_best_of_all_trees(graph: tuple[Weights, list[str], Weights]) -> None:
    weights, names, relevance = graph
    if len(names) < 2:
        return
    parents = maximum_spanning_tree(weights, names, relevance=relevance)
    total = sum(weights[j, p] for j, p in enumerate(parents) if p >= 0)
    for tree in itertools.product(range(len(names)), repeat=len(names) - 1):
        # Nodes 1, 2, ... each under another: a tree where all paths lead to node 0.
        above = [0, *tree]
        if all(0 in path(j, above) for j in range(len(names))):
            assert sum(weights[j, above[j]] for j in range(1, len(names))) <= total + 1e-9


def path(j: int, above: list[int]) -> list[int]:
    """Return the nodes above a node, as many as there can be."""
    found = [j]
    for _ in above:
        found.append(above[found[-1]])
    return found


@pytest.mark.parametrize("span", [maximum_spanning_tree, maximum_spanning_forest])
@given(graph=graphs(), data=st.data())
def test_spanning__order_of_the_columns(
    span: Any, graph: tuple[Weights, list[str], Weights], data: st.DataObject
) -> None:
    weights, names, relevance = graph
    order = data.draw(st.permutations(range(len(names))))
    root = data.draw(st.none() | st.sampled_from(names)) if names else None
    parents = span(weights, names, relevance=relevance, root=root)
    other_names = [names[j] for j in order]
    moved = weights[np.ix_(order, order)]
    # Another order also means other roundings.
    moved = moved * (1 + np.random.default_rng(0).integers(-1, 2, moved.shape) * 2.0**-52)
    moved = np.triu(moved) + np.triu(moved, 1).T
    other = span(moved, other_names, relevance=relevance[order], root=root)
    assert named(parents, names) == named(other, other_names)


@pytest.mark.parametrize("span", [maximum_spanning_tree, maximum_spanning_forest])
@given(graph=graphs())
def test_spanning__the_root_turns_edges_and_changes_none(
    span: Any, graph: tuple[Weights, list[str], Weights]
) -> None:
    weights, names, relevance = graph
    expected = edges(span(weights, names, relevance=relevance), names)
    for root in names:
        parents = span(weights, names, relevance=relevance, root=root)
        assert edges(parents, names) == expected
        assert parents[names.index(root)] == -1


@given(graph=graphs())
def test_spanning_forest__each_tree_hangs_on_its_most_relevant_feature(
    graph: tuple[Weights, list[str], Weights],
) -> None:
    weights, names, relevance = graph
    parents = maximum_spanning_forest(weights, names, relevance=relevance)
    for j in range(len(names)):
        root = j
        while parents[root] >= 0:
            root = int(parents[root])
        if root != j:
            equal = same(relevance[root], relevance[j])
            assert relevance[root] > relevance[j] or equal
            assert names[root] < names[j] or not equal


def test_spanning_forest__a_root_is_one_of_its_own_tree_only() -> None:
    weights = np.full((4, 4), -1.0)
    weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 1.0
    relevance = np.array([4.0, 3.0, 2.0, 1.0])
    parents = maximum_spanning_forest(weights, list("abcd"), relevance=relevance, root="d")
    assert named(parents, list("abcd")) == {"a": None, "b": "a", "c": "d", "d": None}


def test_structures__where_there_can_be_no_edge() -> None:
    """The second feature stands alone, in a tree as before and after others."""
    weights = np.array([[0.0, -np.inf, 0.0], [-np.inf, 0.0, -np.inf], [0.0, -np.inf, 0.0]])
    relevance = np.array([1.0, 2.0, 3.0])
    parents = maximum_spanning_tree(weights, list("abc"), relevance=relevance)
    assert parents.tolist() == [2, -1, -1]
    _, several = k_dependence(weights, relevance, list("abc"), 2)
    assert [p.tolist() for p in several] == [[2], [], []]


def test_spanning__an_edge_worth_nothing_is_kept_in_a_tree_only() -> None:
    weights, relevance = np.zeros((2, 2)), np.zeros(2)
    assert maximum_spanning_tree(weights, ["b", "a"], relevance=relevance).tolist() == [1, -1]
    assert maximum_spanning_forest(weights, ["b", "a"], relevance=relevance).tolist() == [-1, -1]


@pytest.mark.parametrize("span", [maximum_spanning_tree, maximum_spanning_forest])
def test_spanning__unknown_root(span: Any) -> None:
    with pytest.raises(ValueError, match=r"root='c' is not a feature; the features are \['a'"):
        span(np.zeros((2, 2)), ["a", "b"], relevance=np.zeros(2), root="c")


def test_spanning_tree__many_features() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((500, 500))
    weights += weights.T
    names = [f"f{j}" for j in rng.permutation(500)]
    parents = maximum_spanning_tree(weights, names, relevance=rng.random(500))
    component = np.arange(500)
    total = 0.0
    first, second = np.triu_indices(500, 1)
    for e in np.argsort(-weights[first, second]):
        i, j = component[first[e]], component[second[e]]
        if i != j:
            total += weights[first[e], second[e]]
            component[component == j] = i
    assert math.isclose(sum(weights[j, p] for j, p in enumerate(parents) if p >= 0), total)


# Relevance


def test_by_relevance__equal_up_to_rounding_goes_by_name() -> None:
    relevance = np.array([0.1 + 0.2, 0.3, 0.3 * (1 + 1e-11), 0.0, -0.0, 1e-300])
    assert by_relevance(relevance, list("fedcba")).tolist() == [2, 1, 0, 5, 4, 3]


def test_by_relevance__what_is_impossible_comes_last_by_name() -> None:
    scores = np.array([-math.inf, -5.0, -math.inf, -4.0])
    assert by_relevance(scores, list("dcba")).tolist() == [3, 1, 2, 0]
    assert by_relevance(np.empty(0), []).tolist() == []


# k-dependence


@given(graph=graphs(), k=st.integers(0, 4))
def test_k_dependence__takes_the_best_of_those_before(
    graph: tuple[Weights, list[str], Weights], k: int
) -> None:
    weights, names, relevance = graph
    order, parents = k_dependence(weights, relevance, names, k)
    assert order.tolist() == by_relevance(relevance, names).tolist()
    for at, j in enumerate(order):
        chosen, earlier = parents[j].tolist(), order[:at].tolist()
        assert len(chosen) == len(set(chosen)) == min(k, at)
        assert set(chosen) <= set(earlier)
        for better, worse in [
            *itertools.pairwise(chosen),
            *((chosen[-1], i) for i in earlier if chosen and i not in chosen),
        ]:
            equal = same(weights[j, better], weights[j, worse])
            assert equal or weights[j, better] > weights[j, worse]


@given(graph=graphs(), k=st.integers(0, 3), data=st.data())
def test_k_dependence__order_of_the_columns(
    graph: tuple[Weights, list[str], Weights], k: int, data: st.DataObject
) -> None:
    weights, names, relevance = graph
    order = data.draw(st.permutations(range(len(names))))
    other_names = [names[j] for j in order]
    _, parents = k_dependence(weights, relevance, names, k)
    _, other = k_dependence(weights[np.ix_(order, order)], relevance[order], other_names, k)
    expected = {names[j]: [names[p] for p in its] for j, its in enumerate(parents)}
    assert {
        other_names[j]: [other_names[p] for p in its] for j, its in enumerate(other)
    } == expected


def test_k_dependence__equal_parents_go_by_name() -> None:
    weights = np.ones((4, 4))
    _, parents = k_dependence(weights, np.array([3.0, 2.0, 1.0, 0.0]), list("cabd"), 2)
    assert [p.tolist() for p in parents] == [[], [0], [1, 0], [1, 2]]


# Graphviz


def read_dot(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the nodes and edges of Graphviz text as they are drawn."""
    quoted = r'"((?:[^"\\]|\\.)*)"'
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == ("digraph {", "}")
    nodes, found = [], []
    for line in lines[1:-1]:
        edge = re.fullmatch(rf"    {quoted} -> {quoted};", line)
        node = re.fullmatch(rf"    {quoted}(?: \[shape=box\])?;", line)
        assert (edge is None) != (node is None), line
        if edge is not None:
            found.append((drawn(edge[1]), drawn(edge[2])))
        elif node is not None:
            nodes.append(drawn(node[1]))
    return nodes, found


def drawn(label: str) -> str:
    """Return what Graphviz makes of a label: escapes, then entities of HTML."""
    signs = {"n": "\n", "\\": "\\", '"': '"'}
    text = re.sub(r"\\(.)", lambda found: signs[found[1]], label)
    return re.sub(r"&#?\w+;", lambda found: html.unescape(found[0]), text)


AWKWARD = [
    "plain",
    'a "b"',
    "c\\",
    "\\n",
    "two\nlines",
    "ä;",
    "x -> y",
    "&lt;b&gt;",
    "&amp;amp;",
    "&#65;",
    "a & b",
    "",
]


@given(names=st.lists(st.sampled_from(AWKWARD) | st.text(), min_size=1, max_size=6, unique=True))
def test_tree_dot__names_of_any_kind(names: list[str]) -> None:
    parents = {name: names[:j][-2:] for j, name in enumerate(names)}
    nodes, found = read_dot(tree_dot("play", parents))
    target = nodes[0]
    assert target not in names
    assert nodes[1:] == names
    assert found[: len(names)] == [(target, name) for name in names]
    assert found[len(names) :] == [(p, name) for name, its in parents.items() for p in its]


def test_tree_dot__a_feature_called_like_the_class() -> None:
    nodes, found = read_dot(tree_dot("class", {"class": [], "class (class)": ["class"]}))
    assert nodes == ["class (class) (class)", "class", "class (class)"]
    assert found[-1] == ("class", "class (class)")


# Against another system: bnclassify 0.4.8 on R 4.2.2, weights and structures as it prints them


CAR = ["buying", "maint", "doors", "persons", "lug_boot", "safety"]


@pytest.fixture(scope="module")
def car(shared_data: Path) -> tuple[Weights, Weights, NDArray[np.int64], int]:
    """Return information, relevance and sizes of the features of car.csv, and its rows."""
    with open(shared_data / "tables" / "car.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [*CAR, "class"]
    values = {name: sorted({row[name] for row in rows}) for name in names}
    codes = {name: np.array([values[name].index(r[name]) for r in rows]) for name in names}
    sizes = np.array([len(values[name]) for name in CAR])
    k = len(values["class"])
    first, second = np.triu_indices(6, 1)
    blocks = []
    for i, j in zip(first, second, strict=True):
        block = np.zeros((sizes[i], sizes[j], k), np.int64)
        np.add.at(block, (codes[CAR[i]], codes[CAR[j]], codes["class"]), 1)
        blocks.append(block.reshape(-1))
    starts = np.cumsum([0, *map(len, blocks)])[:-1]
    out = np.empty(15)
    pair_information(np.concatenate(blocks), first, second, starts, sizes, sizes, k, out)
    weights = np.zeros((6, 6))
    weights[first, second] = weights[second, first] = out
    counts = np.zeros((sizes.sum(), k), np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    for j, name in enumerate(CAR):
        np.add.at(counts, (offsets[j] + codes[name], codes["class"]), 1)
    return weights, class_information(counts, offsets, sizes), sizes, len(rows)


def test_car__weights(
    car: tuple[Weights, Weights, NDArray[np.int64], int], shared_data: Path
) -> None:
    """The matrix is printed in two parts, of five columns and of two."""
    text = (shared_data / "exact" / "bnclassify_car_output.txt").read_text(encoding="utf-8")
    rows: dict[str, list[float]] = {name: [] for name in CAR}
    for line in text[text.index("                    buying  ") :].splitlines():
        name, *numbers = line.split() or [""]
        if name in rows and len(numbers) in (2, 4):
            rows[name] += [math.nan if n == "NA" else float(n) for n in numbers]
    printed = np.array([rows[name] for name in CAR])
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(car[0][off], printed[off], rtol=0, atol=1e-12)


def test_car__tree_and_forests(car: tuple[Weights, Weights, NDArray[np.int64], int]) -> None:
    weights, relevance, sizes, n = car
    tree = {
        "buying": None,
        "maint": "buying",
        "doors": "lug_boot",
        "persons": "safety",
        "lug_boot": "safety",
        "safety": "buying",
    }
    found = maximum_spanning_tree(weights, CAR, relevance=relevance, root="buying")
    assert named(found, CAR) == tree
    found = maximum_spanning_tree(weights, CAR, relevance=relevance)
    assert named(found, CAR) == {**tree, "buying": "safety", "safety": None}
    each = 4 * np.outer(sizes - 1, sizes - 1)  # parameters of an edge
    gains = {unit: n * weights - unit * each for unit in (1.0, 0.5 * math.log(n))}
    akaike, bayes = (
        maximum_spanning_forest(gain, CAR, relevance=relevance) for gain in gains.values()
    )
    assert edges(akaike, CAR) == {
        frozenset(pair)
        for pair in (("maint", "buying"), ("lug_boot", "safety"), ("safety", "persons"))
    }
    assert edges(bayes, CAR) == set()
