"""Joint tables: a few columns become one code, their tables one table of sums."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import helper, readonly, unrolled
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.columns import address_of

# A joint table stays within `LARGEST` bytes, or within `LARGE` where all of them together would
# take more than `ALL`.
LARGEST, LARGE, ALL = 32_768, 8_192, 2**25


class JointTablePlan(NamedTuple):
    """Joint tables of the columns of one matrix of codes; arguments of the kernels."""

    order: NDArray[np.int64]  # columns, group after group
    radix: NDArray[np.uint16]  # factor of a column's code in its group's code
    bounds: NDArray[np.int64]  # group g is order[bounds[g]:bounds[g + 1]]
    start: NDArray[np.int64]  # first element of each group's table
    table: NDArray[np.floating]


def join_tables(
    tables: list[NDArray[np.float64]], width: int, dtype: type[np.floating]
) -> JointTablePlan:
    """Return the plan for columns with these tables (codes, outputs), padded to `width` outputs."""
    sizes = np.array([len(table) for table in tables])
    order, radix, bounds = pack(sizes, width * np.dtype(dtype).itemsize)
    joint = []
    for begin, end in itertools.pairwise(bounds):
        group: NDArray[np.float64] = np.zeros((1, width))
        with np.errstate(invalid="ignore"):
            for column in order[begin:end].tolist():
                one = tables[column]
                if one.shape[1] < width:
                    one = np.zeros((len(one), width))
                    one[:, : tables[column].shape[1]] = tables[column]
                group = (one[:, None] + group).reshape(-1, width)
        joint.append(group.reshape(-1))
    start = np.cumsum([0, *(group.size for group in joint)])
    table = aligned(int(start[-1]), dtype)
    for group, at in zip(joint, start[:-1], strict=True):
        table[at : at + group.size] = group
    return JointTablePlan(*(readonly(part) for part in (order, radix, bounds, start, table)))


def pack(
    sizes: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int64]]:
    """Return order, radix and bounds of groups of columns whose joint tables fit the caches."""
    order = np.argsort(sizes, kind="stable")
    radix = np.ones(len(sizes), np.uint16)
    bounds = [0]
    for limit in (LARGEST, LARGE):
        bounds, product, total = [0], 1, 0
        for at, size in enumerate(sizes[order].tolist()):
            if product > 1 and product * size * width > limit:
                bounds.append(at)
                total += product
                product = 1
            radix[at] = product
            product *= size
        if (total + product) * width <= ALL:
            break
    return order, radix, np.array([*bounds, len(sizes)])


def aligned(length: int, dtype: type[np.floating]) -> NDArray[np.floating]:
    """Return an empty array that starts a cache line: half of all loads would cross one."""
    size = length * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -address_of(raw) % 64
    return raw[start : start + size].view(dtype)


@helper
@unrolled
def join(codes, order, radix, begin, end, lo, out):
    """Join columns into one code per row: out[r] = Σ radix[q] codes[order[q], lo + r].

    codes  IN   (m, n_rows) uint8 | uint16
    order  IN   (m,) int64   columns order[begin:end] are joined
    radix  IN   (m,) uint16
    lo     IN   first row
    out    OUT  (n,) uint16
    """
    # Every product is of two uint16: wider ones would halve the lanes.
    n = out.size
    x = codes[order[begin], lo : lo + n]
    if end - begin == 1:
        for r in range(n):
            out[r] = np.uint16(x[r])
    else:
        y = codes[order[begin + 1], lo : lo + n]
        by = radix[begin + 1]
        for r in range(n):
            out[r] = np.uint16(np.uint16(x[r]) + np.uint16(np.uint16(y[r]) * by))
    for q in range(begin + 2, end):
        z = codes[order[q], lo : lo + n]
        bz = radix[q]
        for r in range(n):
            out[r] = np.uint16(out[r] + np.uint16(np.uint16(z[r]) * bz))


@helper
def look_up(codes, start, table, lo, m):
    """Add one number per row and group: m[r] += Σ_g table[start[g] + codes[g, lo + r]].

    codes  IN   (groups, >= lo + n) uint16
    start  IN   (>= groups,) int64
    table  IN   float64
    m      OUT  (n,) float64
    """
    n = m.size
    end = U(n)
    groups = codes.shape[0]
    g = 0
    while g < groups:
        c0 = codes[g, lo : lo + n]
        t0 = table[start[g] :]
        if g + 4 <= groups:
            c1 = codes[g + 1, lo : lo + n]
            c2 = codes[g + 2, lo : lo + n]
            c3 = codes[g + 3, lo : lo + n]
            t1, t2, t3 = table[start[g + 1] :], table[start[g + 2] :], table[start[g + 3] :]
            for r in range(end):
                m[r] += (t0[U(c0[r])] + t1[U(c1[r])]) + (t2[U(c2[r])] + t3[U(c3[r])])
            g += 4
        else:
            for r in range(end):
                m[r] += t0[U(c0[r])]
            g += 1
