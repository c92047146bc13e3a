"""Which tables of counts are asked for, and where they stand, end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Request(NamedTuple):
    """Tables n(base, other), one for each of some others.

    base    nodes that all tables have
    others  the node that each has beside them
    """

    base: tuple[int, ...]
    others: tuple[int, ...]


class Places(NamedTuple):
    """Where the tables of requests stand, end to end.

    widths  joint values of the base of each request
    first   column of each table's base, after those of the nodes
    second  column of its other node
    bounds  (n_tables + 1,) first cell of each
    """

    widths: Sequence[int]
    first: Ints
    second: Ints
    bounds: Ints

    @classmethod
    def of(cls, requests: Sequence[Request], widths: Sequence[int], sizes: Sequence[int]) -> Places:
        """Return the places of tables over nodes of these sizes, bases of these widths."""
        each = [len(request.others) for request in requests]
        second = np.concatenate([np.array(request.others, np.int64) for request in requests])
        cells = np.repeat(widths, each) * np.array(sizes)[second]
        first = len(sizes) + np.repeat(np.arange(len(requests)), each)
        return cls(widths, first, second, np.concatenate([[0], np.cumsum(cells)]))
