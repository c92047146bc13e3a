"""Sums over the cells of tables of counts, what scores of families are made of.

Tables are given, or are those of all sets of columns, each made from that of a smaller set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U

SIGNATURES = {
    "visit": [
        (
            *(reads("uint32", 2), reads("int64"), reads("float64"), "int64", "int64", "int64"),
            "float64",
            *(reads("float64"), "float64", writes("uint32", 2), writes("float64")),
            *(writes("uint32"), writes("int64", 2), writes("float64"), writes("float64", 2)),
        )
    ],
    "sum_cells": [(reads("float64"), reads("int64"), reads("float64", 2), writes("float64", 2))],
}


def write_subset_sums(
    codes: NDArray[Any],
    sizes: Ints,
    weight: Floats,
    prefix: int,
    begin: int,
    most: int,
    most_cells: float,
    offsets: Floats,
    ess: float,
    out: Floats,
) -> None:
    """Write the sums of tables of all sets of columns with some first ones.

    out[t, mask] = Σ n ln n where a = offsets[t] < 0, else Σ lnΓ(n + a) - lnΓ(a), a = ess / cells
    of the table where offsets[t] = 0; sums over the cells n > 0 of the joint table of the columns
    whose bits are set in mask. Written for every mask of at most `most` columns, whose table has at
    most `most_cells`, which agrees with `prefix` in the first `begin` columns.

    codes    IN   (m, n) uint8 | uint16 | uint32   codes[j, r] < sizes[j]
    sizes    IN   (m,) int64
    weight   IN   (n,) float64   greater than 0
    prefix   IN   columns, a set of bits below `begin`
    offsets  IN   (n_sums,) float64
    out      OUT  (n_sums, 2^m) float64
    """
    m, n = codes.shape
    # Joint values that occur are numbered anew in every set, so that there are n at most.
    room = max(n, 1) * int(sizes.max(initial=1))
    inputs = readonly(codes.astype(np.uint32)), readonly(sizes), readonly(weight)
    scratch = np.empty((m + 1, n), np.uint32), np.zeros(room), np.zeros(room, np.uint32)
    stacks = np.zeros((m + 2, 3), np.int64), np.zeros(m + 2)
    visit(
        *(*inputs, prefix, begin, most, float(most_cells), readonly(offsets), ess),
        *(*scratch, *stacks, out),
    )


@helper
def extend(codes, size, weight, code, width, further, joint, table, number):
    """Join a column to a code, and number the values that occur; return how many there are.

    Counts of them are left at the beginning of `table`, which else stays 0 wherever it was.
    """
    cells = width * size
    n = codes.size
    for r in range(n):
        cell = U(code[r]) * U(size) + U(codes[r])
        joint[r] = cell
        table[cell] += weight[r]
    used = 0
    for cell in range(cells):
        if table[cell] > 0.0:
            number[cell] = used
            count = table[cell]
            table[cell] = 0.0
            table[used] = count
            used += 1
    if further:
        for r in range(n):
            joint[r] = number[joint[r]]
    return used


@helper
def write_sums(table, used, offsets, ess, cells, mask, out):
    """Write the sums over the first cells of a table."""
    for t in range(offsets.size):
        a = offsets[t]
        total = 0.0
        if a < 0.0:
            for cell in range(used):
                total += table[cell] * math.log(table[cell])
        else:
            if a == 0.0:
                a = ess / cells
            base = math.lgamma(a)
            for cell in range(used):
                total += math.lgamma(table[cell] + a) - base
        out[t, mask] = total


@kernel
def visit(
    codes, sizes, weight, prefix, begin, most, most_cells, offsets, ess,
    joint, table, number, stack, cells, out,
):  # fmt: skip
    """Write the sums of all sets that begin with a prefix, depth first; see `write_subset_sums`.

    joint    OUT  (m + 1, n) uint32   scratch: the code of the set at each depth
    table    OUT  (n max(sizes),) float64   scratch, 0
    number   OUT  (n max(sizes),) uint32   scratch
    stack    OUT  (m + 2, 3) int64   scratch: mask, joint values, column to go on with
    cells    OUT  (m + 2,) float64   scratch: cells of the table, those that never occur included
    """
    m, n = codes.shape
    depth, width = 0, 1
    fill(joint[0], 0, n, 0)
    cells[0] = 1.0
    table[0] = 0.0
    for r in range(n):
        table[0] += weight[r]
    used = 1
    for j in range(begin):
        if prefix >> j & 1:
            for cell in range(used):
                table[cell] = 0.0
            used = extend(
                codes[j], sizes[j], weight, joint[depth], width, True, joint[depth + 1], table,
                number,
            )  # fmt: skip
            cells[depth + 1] = cells[depth] * sizes[j]
            depth, width = depth + 1, used
    if depth <= most and cells[depth] <= most_cells:
        write_sums(table, used, offsets, ess, cells[depth], prefix, out)
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = prefix, width, begin
        first = depth
        while depth >= first:
            u = stack[depth, 2]
            if u >= m or depth >= most:
                depth -= 1
                continue
            stack[depth, 2] = u + 1
            if cells[depth] * sizes[u] > most_cells:
                continue
            mask = stack[depth, 0] | 1 << u
            for cell in range(used):
                table[cell] = 0.0
            used = extend(
                codes[u], sizes[u], weight, joint[depth], stack[depth, 1], u + 1 < m,
                joint[depth + 1], table, number,
            )  # fmt: skip
            cells[depth + 1] = cells[depth] * sizes[u]
            write_sums(table, used, offsets, ess, cells[depth + 1], mask, out)
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = mask, used, u + 1
    for cell in range(used):
        table[cell] = 0.0


def add_set_sums(
    counts: NDArray[Any], bounds: NDArray[np.int64], offsets: Floats, out: Floats
) -> None:
    """Add the sums over the cells of tables that scores are made of.

    out[s, t] += Σ n ln n where a = offsets[s, t] < 0, else Σ lnΓ(n + a) - lnΓ(a), sums over the
    cells n > 0 of table s.

    counts   IN   int64 | float64   the tables, end to end
    bounds   IN   (n_tables + 1,) int64   where each begins
    offsets  IN   (n_tables, n_sums) float64   not 0
    out      OUT  (n_tables, n_sums) float64
    """
    numbers = counts.astype(np.float64, copy=False)
    sum_cells(readonly(numbers), readonly(bounds), readonly(offsets), out)


@kernel
def sum_cells(counts, bounds, offsets, out):
    """Add Σ n ln n or Σ lnΓ(n + a) - lnΓ(a) over the cells of each table: see `add_set_sums`."""
    for s in range(out.shape[0]):
        cells = counts[bounds[s] : bounds[s + 1]]
        for t in range(out.shape[1]):
            a = offsets[s, t]
            total = 0.0
            if a < 0.0:
                for n in cells:
                    if n > 0:
                        total += n * math.log(n)
            else:
                base = math.lgamma(a)
                for n in cells:
                    if n > 0:
                        total += math.lgamma(n + a) - base
            out[s, t] += total
