"""Which columns are counted how.

Each column is counted by the cheapest of four methods of `count`. The choice depends on sizes
alone, never on the data:

* `minima`: byte vectors instead of counters in memory, indifferent to skew; few values times
  classes.
* `packed`: several columns in one 16-bit code, so one increment counts them all.
* `private`: one increment per cell, into up to four 32-bit tables, so that equal neighbours do
  not wait for each other's store.
* `in_place`: one increment per cell, straight into `out`: tables that are large beside the
  number of rows.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled import vector
from fastbayes.kernels.dispatch import readonly

# Costs in ns per cell, measured on one core of Zen 5 with 64-byte vectors; their ratios decide.
MINIMA_BASE, MINIMA_STEP = 0.012, 0.0021 * 64 / vector.WIDTH  # and per value and class
INCREMENT, CODE = 0.21, 0.03  # an increment; making its code, per column

# Cells of a packed table: four 32-bit copies are 32 KiB and leave the first-level cache room.
PACKED_CELLS = 2048
# Cells of all private copies of one table: 64 KiB, beyond which copies cost more than they save.
PRIVATE_CELLS = 16_384
# Clearing a private cell and adding it to `out` costs about as much as an increment: worth it
# only if the rows outnumber the cells by this factor.
ROWS_PER_CELL = 8
# Cells of a table that no cache holds: reading ahead gains a quarter there and loses below.
FAR_CELLS = 1 << 22
AHEAD = 32  # rows


class CountPlan(NamedTuple):
    """Which columns are counted how."""

    minima: NDArray[np.int64]
    packed: NDArray[np.int64]  # columns of group g: packed[borders[g] : borders[g + 1]]
    borders: NDArray[np.int64]
    radices: NDArray[np.uint16]  # what a code of the column is multiplied with
    private: list[tuple[int, NDArray[np.int64]]]  # by number of copies
    in_place: list[tuple[int, NDArray[np.int64]]]  # by rows read ahead


@functools.lru_cache(maxsize=64)
def choose(sizes_bytes: bytes, n_classes: int, n_rows: int, bytes_only: bool) -> CountPlan:
    """Choose the cheapest method for every column.

    sizes_bytes  IN   (m,) int64 as bytes, so that the choice is kept
    n_rows       IN   about how many
    bytes_only   IN   codes and classes are uint8
    """
    sizes = np.frombuffer(sizes_bytes, np.int64)
    cells = sizes * n_classes
    most = n_rows // ROWS_PER_CELL
    copies = np.select(
        [4 * cells <= min(most, PRIVATE_CELLS), 2 * cells <= min(most, PRIVATE_CELLS)],
        [4, 2],
        cells <= most,
    )
    ahead = np.where((cells >= FAR_CELLS) & vector.AVAILABLE, AHEAD, 0)
    minima = np.zeros(len(sizes), np.bool_)
    groups: list[list[int]] = []
    if bytes_only:
        together = np.maximum(np.log(PACKED_CELLS / n_classes) // np.log(np.maximum(sizes, 2)), 1)
        cost = MINIMA_BASE + MINIMA_STEP * cells
        minima = (cost < INCREMENT / together + CODE) & (cells <= 256) & vector.AVAILABLE
        groups = _pack(sizes, np.flatnonzero(~minima), n_classes)
    packed = [i for group in groups for i in group]
    radices = [n_classes * np.prod(sizes[g[:i]], dtype=int) for g in groups for i in range(len(g))]
    single = ~minima
    single[packed] = False
    return CountPlan(
        readonly(_widest_first(sizes, np.flatnonzero(minima))),
        readonly(np.array(packed, np.int64)),
        readonly(np.cumsum([0, *map(len, groups)])),
        readonly(np.array(radices, np.uint16)),
        _by(copies, single & (copies > 0)),
        _by(ahead, single & (copies == 0)),
    )


def _widest_first(sizes: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move one column of the largest size to the front.

    The others stay in order, so that reading ahead runs on from one column into the next.
    """
    if not len(columns):
        return columns
    widest = columns[np.argmax(sizes[columns])]
    return np.concatenate([[widest], columns[columns != widest]])


def _pack(sizes: NDArray[np.int64], columns: NDArray[np.int64], n_classes: int) -> list[list[int]]:
    """Return groups of two or more, of like sizes, with joint tables of at most PACKED_CELLS."""
    groups: list[list[int]] = []
    cells = PACKED_CELLS
    for i in columns[np.argsort(-sizes[columns], kind="stable")]:
        cells *= sizes[i]
        if cells <= PACKED_CELLS and groups:
            groups[-1].append(int(i))
        else:
            groups.append([int(i)])
            cells = n_classes * sizes[i]
    return [group for group in groups if len(group) > 1]


def _by(values: NDArray[np.int64], among: NDArray[np.bool_]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the columns of each value, among some."""
    return [
        (int(value), readonly(np.flatnonzero(among & (values == value))))
        for value in np.unique(values[among])
    ]
