"""Codes of columns: limits, and joint codes of as many columns as an integer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Ints, Unsigned

Columns = dict[int, Unsigned]
Numbered = tuple[NDArray[np.uint32], NDArray[np.int64]]
# Joint codes of columns stay below this.
MOST_CODES = 1 << 63
# Up to this many entries, comparing bytes with each of them, 64 at a time, is faster than
# reading a table: 0.2 ns a row for 8 entries, where reading takes 0.4 and more.
FEW_ENTRIES = 16


def columns_of(groups: Iterable[Codes]) -> Columns:
    """Return the codes of each feature."""
    return {
        int(feature): column
        for group in groups
        for feature, column in zip(group.features, group.codes, strict=True)
    }


def indices_of(groups: Iterable[Codes]) -> dict[int, Ints]:
    """Return the codes of each feature, as indices."""
    return {feature: column.astype(np.int64) for feature, column in columns_of(groups).items()}


def chained(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: Sequence[int],
    joint: Callable[[list[Any], list[int]], NDArray[np.uint64]],
    numbered: Callable[[NDArray[np.uint64]], Numbered],
) -> Numbered:
    """Number rows by joint codes of as many columns as 63 bits tell apart, one set after the other.

    The numbers of one set are the first column of the next.
    """
    group: list[Any] = []
    widths: list[int] = []
    room = 1
    for column, size in zip(columns, sizes, strict=True):
        if group and room * size > MOST_CODES:
            number, first = numbered(joint(group, widths))
            group, widths, room = [number], [max(len(first), 1)], max(len(first), 1)
        group.append(column)
        widths.append(int(size))
        room *= int(size)
    return numbered(joint(group, widths))
