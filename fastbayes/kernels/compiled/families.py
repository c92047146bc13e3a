"""Class-conditional counts of families of features: their codes joined to one, then counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled import count
from fastbayes.kernels.dispatch import kernel, numpy_twin, readonly, reads, writes

_CODES = ("uint8", "uint16", "uint32")

SIGNATURES = {
    "join": [
        (reads(column), code, writes(code))
        for width, code in enumerate(_CODES)
        for column in _CODES[: width + 1]
    ]
}

# Bytes of joint codes made before they are counted: few enough for the caches, enough families for
# `count` to take together those that it can.
JOINED = 1 << 20


def add_family_counts(
    columns: Sequence[NDArray[np.unsignedinteger]],
    sizes: NDArray[np.int64],
    y: NDArray[np.unsignedinteger],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    families: Sequence[Sequence[int]],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Add one block of rows to class-conditional counts of families.

    out[start + ((x_1 S_2 + x_2) S_3 + ...) n_classes + y] += 1, or += weight, in row order.

    columns   IN   m arrays (n,) uint8 | uint16 | uint32   columns[j][r] < sizes[j]
    sizes     IN   (m,) int64
    y         IN   (n,) uint8 | uint16   class < n_classes
    weight    IN   (n,) float64 or None
    families  IN   features of each family, one or more
    starts    IN   (n_families,) int64   multiples of n_classes
    out       OUT  (n_cells,) int64, float64 with weights
    """
    if not len(y):
        return
    cells = [int(np.prod([float(sizes[f]) for f in family])) for family in families]
    kinds = [
        np.result_type(_least(size), *(columns[f].dtype for f in family))
        for size, family in zip(cells, families, strict=True)
    ]
    for kind in {*kinds}:
        alike = [q for q, its in enumerate(kinds) if its == kind]
        if kind.itemsize > 4:  # more cells than four bytes tell apart
            given = columns, sizes, y, weight, n_classes
            add = numpy_twin("families").add_family_counts
            add(*given, [families[q] for q in alike], starts[alike], out)
            continue
        step = max(1, JOINED // (kind.itemsize * len(y)))
        codes = np.empty((min(step, len(alike)), len(y)), kind)
        for b in range(0, len(alike), step):
            some = alike[b : b + step]
            for code, q in zip(codes, some, strict=False):
                _join([columns[f] for f in families[q]], sizes[list(families[q])], code)
            of = np.array([cells[q] for q in some])
            slots = starts[some] // n_classes
            table = out.reshape(-1, n_classes)
            count.add_counts(codes[: len(some)], of, slots, y, weight, table)


def _least(cells: int) -> type[np.unsignedinteger]:
    """Return the type of the codes below so many."""
    return (
        np.uint8
        if cells <= 1 << 8
        else np.uint16
        if cells <= 1 << 16
        else np.uint32
        if cells <= 1 << 32
        else np.uint64
    )


def _join(
    columns: Sequence[NDArray[np.unsignedinteger]], sizes: NDArray[np.int64], code: NDArray[Any]
) -> None:
    """Write the joint code of columns of these sizes."""
    np.copyto(code, columns[0], casting="unsafe")
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        # A size that the type cannot hold is that of a column whose parents have one value.
        join(readonly(column), code.dtype.type(int(size) % (1 << 8 * code.itemsize)), code)


@kernel
def join(column, size, code):
    """Make column the last digit of a code, in the type of the code: code = code size + column."""
    for r in range(code.size):
        code[r] = code.dtype.type(code[r] * size) + code.dtype.type(column[r])
