"""A network as numbers: what inference, sampling and learning work on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.networks.graph.dag import reachable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Coded:
    """Nodes 0, 1, 2 ... with states 0, 1, 2 ..., their parents and their tables.

    names    of each node, for messages; the order is the network's own, not a topological one
    sizes    (n,) number of states of each node
    parents  of each node
    tables   P(node | parents) of each node, (sizes of the parents ..., size of the node)
    """

    names: tuple[str, ...]
    sizes: Ints
    parents: list[tuple[int, ...]]
    tables: list[Floats]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def children(self) -> list[tuple[int, ...]]:
        """Children of each node, ascending."""
        below = holding(enumerate(self.parents))
        return [tuple(below.get(node, ())) for node in range(len(self))]

    def ancestral(self, nodes: Iterable[int]) -> list[int]:
        """Return nodes and all their ancestors: the others are barren, they sum to 1."""
        return sorted(reachable(nodes, self.parents.__getitem__))

    @property
    def order(self) -> list[int]:
        """The nodes, each after its parents."""
        waiting = [len(above) for above in self.parents]
        children, order = self.children, [v for v, n in enumerate(waiting) if not n]
        for node in order:
            for child in children[node]:
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
        return order


def holding(scopes: Iterable[tuple[T, Iterable[int]]]) -> dict[int, list[T]]:
    """Return for each node whose scopes hold it, in order, from pairs (whose, scope)."""
    found: dict[int, list[T]] = {}
    for whose, scope in scopes:
        for node in scope:
            found.setdefault(node, []).append(whose)
    return found


class SparseTable:
    """P(node | parents) where most configurations of the parents have the same row.

    shape  (sizes of the parents ..., size of the node)
    keys   (n_kept,) configurations whose rows are kept, ascending: the place in C order
    rows   (n_kept + 1, size of the node) their rows, then the one of all others
    """

    def __init__(self, shape: Sequence[int], keys: Ints, rows: Floats) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.keys, self.rows = np.asarray(keys, np.int64), np.asarray(rows, np.float64)
        if not fits(self.shape) or self.rows.shape != (len(self.keys) + 1, self.shape[-1]):
            raise ValueError(f"rows {self.rows.shape} do not fit a table of shape {self.shape}")
        ends = self.keys[[0, -1]] if len(self.keys) else np.zeros(1)
        if (np.diff(self.keys) <= 0).any() or ends.min() < 0 or ends.max() >= self.n_rows:
            raise ValueError("keys: they are not ascending configurations of the parents")
        for array in (self.keys, self.rows):
            array.setflags(write=False)

    @property
    def n_rows(self) -> int:
        """Configurations of the parents."""
        return math.prod(self.shape[:-1])

    @property
    def size(self) -> int:
        """Cells, were all rows kept."""
        return math.prod(self.shape)

    def row(self, codes: Sequence[Any]) -> Any:
        """Return the number among `rows` of configurations, given by the codes of each parent."""
        key: Any = np.int64(0)
        for code, size in zip(codes, self.shape, strict=False):
            key = key * size + np.asarray(code, np.int64)
        at = np.searchsorted(self.keys, key)
        return np.where(np.append(self.keys, -1)[at] == key, at, len(self.keys))

    def gathered(self, index: Sequence[Any]) -> Floats:
        """Return the cells at codes of each parent and of the node, broadcast together."""
        *codes, last = index
        return np.asarray(self.rows[self.row(codes), last])

    def kept(self) -> tuple[Ints, Floats]:
        """Return the codes, (n_parents + 1, n_cells), and the cells of the rows kept."""
        r = self.shape[-1]
        key, codes = np.repeat(self.keys, r), [np.tile(np.arange(r), len(self.keys))]
        for size in self.shape[-2::-1]:
            key, code = np.divmod(key, size)
            codes.append(code)
        return np.array(codes[::-1]), self.rows[:-1].ravel()

    def mapped(self, function: Any) -> SparseTable:
        """Return the table of a function of each cell."""
        return SparseTable(self.shape, self.keys, function(self.rows))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseTable):
            return NotImplemented
        return (
            self.shape == other.shape
            and np.array_equal(self.keys, other.keys)
            and np.array_equal(self.rows, other.rows)
        )

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Floats:
        raise MemoryLimitError(
            f"a table of {self.size:,} cells keeps {len(self.keys):,} rows alone: it answers exact "
            "queries in which its parents are known, and draws rows; other methods take whole "
            "tables: use fewer parents"
        )


Table = Floats | SparseTable


def cells_at(table: Table, index: Sequence[Any]) -> Floats:
    """Return cells at codes of each parent and of the node, broadcast together."""
    if isinstance(table, SparseTable):
        return table.gathered(index)
    return np.asarray(table[tuple(index)])


def logs(table: Floats) -> Floats:
    """Return ln of each cell."""
    with np.errstate(divide="ignore"):
        return np.log(table)


def logs_of(table: Table) -> Table:
    """Return ln of each cell of a whole table, or of one that keeps some rows."""
    return table.mapped(logs) if isinstance(table, SparseTable) else logs(table)


def fits(shape: Sequence[int]) -> bool:
    """Return whether configurations can be numbered."""
    return math.prod(map(int, shape)) < 1 << 62


def from_counts(
    shape: Sequence[int], codes: Ints, counts: NDArray[Any], of_cell: float
) -> SparseTable:
    """Return the table (n + a) / (sum n + a r) of a family of which few cells occur.

    shape    (sizes of the parents ..., size of the node)
    codes    (n_cells, n_parents + 1) of the cells that occur, `counts` how often
    of_cell  what is added to every cell, a
    """
    keys, table = rows_of(shape, codes, counts)
    table = table + of_cell
    r = int(shape[-1])
    rows = np.full((len(keys) + 1, r), 1.0 / r)
    rows[:-1] = table / table.sum(axis=1, keepdims=True)
    return SparseTable(shape, keys, rows)


def rows_of(shape: Sequence[int], codes: Ints, counts: NDArray[Any]) -> tuple[Ints, Floats]:
    """Return the configurations of parents that occur, and (n_kept, r) the counts of each."""
    key = np.zeros(len(codes), np.int64)
    for column, size in zip(codes.T[:-1], shape, strict=False):
        key = key * int(size) + column
    keys, which = np.unique(key, return_inverse=True)
    table = np.zeros((len(keys), int(shape[-1])))
    np.add.at(table, (which.ravel(), codes[:, -1]), counts)
    return keys, table
