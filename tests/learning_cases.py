"""Small tables that a graph may have made, for tests of scores and searches."""

from __future__ import annotations

import pyarrow as pa


def random_graph(rng, n_nodes):
    """Return the parents of each node, at most three, in a random order."""
    order = rng.permutation(n_nodes).tolist()
    graph = [()] * n_nodes
    for k, v in enumerate(order):
        some = rng.permutation(order[:k])[: rng.integers(0, 4)]
        graph[v] = tuple(sorted(some.tolist()))
    return graph


def random_codes(rng, n_rows, n_nodes):
    """Return columns that follow one another, and how many values each may have."""
    sizes = rng.integers(1, 5, n_nodes).tolist()
    columns = []
    for size in sizes:
        column = rng.integers(0, size, n_rows)
        if columns:
            same = rng.random(n_rows) < rng.random()
            column[same] = columns[rng.integers(len(columns))][same] % size
        columns.append(column)
    return columns, sizes


def table_of(columns, sizes):
    """Return columns v0, v1, ... of text, and their domains."""
    names = [f"v{j}" for j in range(len(columns))]
    texts = [pa.array([f"s{code}" for code in column.tolist()]) for column in columns]
    domains = {
        name: [f"s{k}" for k in range(size)] for name, size in zip(names, sizes, strict=True)
    }
    return pa.table(dict(zip(names, texts, strict=True))), domains
