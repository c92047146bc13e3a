"""A network as numbers: what inference, sampling and learning work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Coded:
    """Nodes 0, 1, 2 ... with states 0, 1, 2 ..., their parents and their tables.

    Parameters
    ----------
    names
        Name of each node, for messages; the order is the network's own, not a topological one.
    sizes
        (n,) number of states of each node.
    parents
        Parents of each node.
    tables
        P(node | parents) of each node, (sizes of the parents ..., size of the node).
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
        below: list[list[int]] = [[] for _ in self.names]
        for node, above in enumerate(self.parents):
            for parent in above:
                below[parent].append(node)
        return [tuple(some) for some in below]

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
