"""Scatter matrices of rows that come a panel at a time, from wherever they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.counting.scatter import (
    FAR,
    GROUP,
    HELD,
    MEAN,
    SCRATCH,
    SEEN,
    TOTAL,
    BlockMemory,
    add_range,
    begin_block,
    from_sums,
    grouped,
    is_missing,
    merge_groups,
    put_shift,
)
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import call, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints

SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "begin_rows": [SCRATCH],
    "add_rows": [(writes("uint64"), GROUP, *SCRATCH)],
    "end_rows": [(reads("int64"), *SCRATCH, *HELD, writes("int64"))],
}


def add_few(
    read: Callable[[int], Iterator[tuple[NDArray[np.uint64], int]]],
    n_columns: int,
    group: NDArray[np.unsignedinteger],
    here: Ints,
    count: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    left: Ints,
) -> None:
    """Add the moments of rows that are read a panel at a time: bit by bit what `add_scatter` adds.

    read   yields addresses of the columns of the next rows, of no more than so many, and their
           number
    left   OUT  (1,) int64   += 1 if nothing was added: a value is missing, or a group needs its
           rows once more
    count, mean, rest, scatter  OUT  moments of all rows, to which these are added
    """
    group, begin = grouped(group), 0
    own = BlockMemory.of(len(group), n_columns, len(here))
    call(begin_rows, *own)
    for places, n in read(len(own.slot)):
        call(add_rows, places, readonly(group[begin : begin + n]), *own)
        begin += n
    call(end_rows, readonly(here), *own, count, mean, rest, scatter, left)


@kernel
def begin_rows(marks, slot, whole, zeros, roots, shift, panel, row, count, parts, scatter):
    """Begin a block of rows that come a panel at a time: see `add_few`; scratch as `add_block`."""
    begin_block(marks, zeros, roots, shift, count, parts, scatter)


@kernel
def add_rows(
    places, group, marks, slot, whole, zeros, roots, shift, panel, row, count, parts, scatter
):
    """Add the rows of a panel; places (p,) uint64 and group (n,) uint32 are theirs."""
    put_shift(places, group, None, marks[SEEN], shift)
    add_range(places, group, None, 0, group.size, marks, slot, whole, zeros, roots, shift, panel,
              count, parts[TOTAL], scatter)  # fmt: skip


@kernel
def end_rows(
    here, marks, slot, whole, zeros, roots, shift, panel, row, count, parts, scatter, counts,
    means, rests, scatters, left,
):  # fmt: skip
    """Add the moments of a block to those of all rows, or 1 to `left`."""
    fill(marks[FAR], 0, count.size, 0)
    n_far = from_sums(row.size, shift, marks, count, parts, scatter)
    if n_far > 0 or is_missing(row.size, parts[MEAN]):
        left[0] += 1
    else:
        merge_groups(here, row, count, parts, scatter, counts, means, rests, scatters)
