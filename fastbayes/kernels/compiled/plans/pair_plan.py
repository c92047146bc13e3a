"""Which pairs are counted how.

Each pair is counted by the cheapest of three methods of `pairs`. The choice depends on sizes
alone, never on the data:

* `bitmap`: a row of bits for every value but the last, split by class; a count is the number of
  bits set in two rows. Many pairs share the rows of a column, so few values are nearly free.
* `direct`: one 16-bit code per row of the pair and one increment for it.
* `wide`: one increment per row too, where 16 bits are too few.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import bits
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Ints

# Costs in ns, measured on one core of 2.6 GHz, with AVX-512 and without; their ratios decide.
MEETING = 0.0011 if bits.LANES == 8 else 0.0036  # of two bits
SEGMENT = 1.1  # of two bit rows of one class: to begin, and to add up the lanes
INCREMENT = 0.39  # of one row
CELL = 0.5  # of a table: to clear it and to add it to `out`
PREPARE = 0.04  # of one row: to make a bit row
# Of one row: to split one plane of bits by one class; to make a plane of bytes; to put one byte of
# codes in order of class; to find that order.
EXTRACT, PLANE, GATHER, ORDER = 0.016, 0.03, 0.22, 1.1

# What codes of one byte, and joint codes of two bytes, can hold.
BYTE, CODES = 1 << 8, 1 << 16
# Bits of padding, one vector a class, for each bit that holds a row of data.
MOST_PADDING = 4
# Bit rows of a group of columns, and counts of a tile of two groups, at most unless a column has
# more: both stay in the second-level cache.
GROUP_ROWS, TILE_COUNTS = 64, 1 << 16
NAMES = ("bitmap", "direct", "wide")


class Bitmaps(NamedTuple):
    """Pairs counted by bit rows, in tiles of one group of columns by another."""

    columns: Ints  # those of byte g: columns[borders[g] : borders[g + 1]]
    borders: Ints
    by_bits: bool  # whether bits are split by class, or bytes of codes put in order of class
    rows: Ints  # first bit row of each column
    n_rows: int
    pairs: Ints  # places in the list of pairs, tile after tile
    # (n_tiles, 6): first bit row and number of rows of one group, of the other, range of `pairs`
    tiles: Ints
    cells: int  # of the largest tile


class PairMethods(NamedTuple):
    """Which pairs are counted how, as places in the list of pairs."""

    columns: list[int]  # those that occur
    few: list[bool]  # whether a byte holds their codes
    bitmaps: Bitmaps | None
    direct: Ints
    wide: Ints


def methods(
    size_i: Ints,
    size_j: Ints,
    n_classes: int,
    n_rows: int,
    weighing: bool = False,
    preparing: NDArray[np.float64] | float = 0.0,
) -> NDArray[np.intp]:
    """Return which of `NAMES` is cheapest for pairs of columns of these sizes.

    Weights are summed row by row: bits cannot hold them.

    preparing  IN   ns per row of data that a pair adds for its columns to have bit rows; next to
                    nothing where a column is in many pairs
    """
    cells = size_i * size_j * n_classes
    meetings = (size_i - 1) * (size_j - 1) * (MEETING * n_rows + SEGMENT * n_classes)
    increments = INCREMENT * n_rows + CELL * np.minimum(cells, n_rows)
    narrow = np.maximum(size_i, size_j) <= BYTE
    padded = n_classes * 64 * bits.LANES > MOST_PADDING * n_rows
    bitmap = narrow & (meetings + preparing * n_rows <= increments)
    bitmap &= not (weighing or padded)
    return np.select([bitmap, narrow & (cells <= CODES)], [0, 1], 2)


def choose(
    sizes: Ints,
    first: Ints,
    second: Ints,
    n_classes: int,
    n_rows: int,
    bytes_only: bool,
    weighing: bool = False,
) -> PairMethods:
    """Choose the cheapest method for every pair.

    n_rows      IN   about how many
    bytes_only  IN   classes are uint8
    weighing    IN   rows have weights
    """
    pairs = sizes[first], sizes[second], n_classes, n_rows, weighing
    method = methods(*pairs)
    bitmap = method == 0
    degree = sum(np.bincount(side[bitmap], minlength=len(sizes)) for side in (first, second))
    share = PREPARE * (sizes - 1) / np.maximum(degree, 1)
    method = methods(*pairs, share[first] + share[second])
    direct, wide = (readonly(np.flatnonzero(method == kind)) for kind in (1, 2))
    chosen = np.flatnonzero(method == 0)
    columns = np.unique(np.concatenate((first, second)))
    return PairMethods(
        columns.tolist(),
        (sizes[columns] <= BYTE).tolist(),
        _tile(sizes, first, second, chosen, n_classes, bytes_only) if len(chosen) else None,
        direct,
        wide,
    )


def _tile(
    sizes: Ints, first: Ints, second: Ints, chosen: Ints, n_classes: int, bytes_only: bool
) -> Bitmaps:
    """Lay out bit rows, columns of like sizes side by side, and bring pairs into tiles.

    Columns of one value have no bit row; they come first, and `rows` says 0.
    """
    columns = np.unique(np.concatenate((first[chosen], second[chosen])))
    columns = columns[np.argsort(sizes[columns], kind="stable")]
    rows = np.full(len(sizes), -1)
    group = np.full(len(sizes), -1)
    begins = [0]
    end = 0
    most = min(GROUP_ROWS, math.isqrt(TILE_COUNTS // n_classes))
    for i in columns.tolist():
        if end - begins[-1] + sizes[i] - 1 > most and end > begins[-1]:
            end = _whole_blocks(end)
            begins.append(end)
        rows[i], group[i] = end, len(begins) - 1
        end += int(sizes[i]) - 1
    begins.append(_whole_blocks(end))
    borders = np.array(begins)
    low, high = np.sort(np.stack((group[first[chosen]], group[second[chosen]])), axis=0)
    key = low * len(begins) + high
    order = np.argsort(key, kind="stable")
    low, high = low[order], high[order]
    cuts = np.flatnonzero(np.diff(key[order], prepend=-1))
    tiles = np.stack(
        (
            *(borders[low[cuts]], borders[low[cuts] + 1] - borders[low[cuts]]),
            *(borders[high[cuts]], borders[high[cuts] + 1] - borders[high[cuts]]),
            *(cuts, np.append(cuts[1:], len(order))),
        ),
        axis=1,
    )
    bytes_of = _share(columns.tolist(), sizes)
    n_planes = sum(planes_of(int(size)) for size in sizes[columns])
    extracting = EXTRACT * n_classes * n_planes
    ordering = ORDER + GATHER * len(bytes_of) + PLANE * n_planes
    return Bitmaps(
        readonly(np.array([i for members in bytes_of for i in members], np.int64)),
        readonly(np.cumsum([0, *map(len, bytes_of)])),
        bits.FAST_EXTRACT and bytes_only and extracting <= ordering,
        readonly(rows),
        int(borders[-1]),
        readonly(chosen[order]),
        readonly(tiles),
        int((tiles[:, 1] * tiles[:, 3]).max()),
    )


def planes_of(size: int) -> int:
    """Return the number of bits of the largest code."""
    return (size - 1).bit_length()


def _share(columns: list[int], sizes: Ints) -> list[list[int]]:
    """Return columns whose codes have eight bits together at most, widest first."""
    shared: list[list[int]] = []
    room: dict[int, list[int]] = {left: [] for left in range(9)}  # bytes by bits left
    for i in sorted(columns, key=lambda i: -sizes[i]):
        planes = planes_of(int(sizes[i]))
        left = next((left for left in range(planes, 9) if room[left]), None)
        if left is None:
            shared.append([])
            left = 8
            room[left].append(len(shared) - 1)
        byte = room[left].pop()
        shared[byte].append(i)
        room[left - planes].append(byte)
    return shared


def _whole_blocks(rows: int) -> int:
    return -(-rows // bits.BLOCK) * bits.BLOCK
