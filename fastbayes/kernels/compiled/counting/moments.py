"""Moments of numeric columns per class: count, mean and sum of squared deviations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import lanes, vector
from fastbayes.kernels.compiled.simd.instructions import carray, pointer_to
from fastbayes.kernels.compiled.simd.memory import addresses, fill
from fastbayes.kernels.dispatch import (
    call,
    helper,
    in_one_piece,
    in_python,
    kernel,
    numpy_twin,
    readonly,
    reads,
    scalar,
    unswitched,
    writes,
)
from fastbayes.kernels.shared.arrays import Floats, Ints, U

# So many classes are compared with at once: their sums fill half the registers.
AT_ONCE = 4 if vector.WIDTH == 64 else 2
# Up to this many, comparing each value with every class is faster than scattering it.
FEW_CLASSES = 2 * AT_ONCE
# Above this many, one table of sums: four would leave the first-level cache.
MANY_CLASSES = 256

_X, _OUT = reads("float64"), writes("float64")
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_columns": [
        (
            *(reads("uint64"), reads("uint16"), reads("uint8"), weight),
            *(_OUT, writes("float64", 2), known, _OUT, writes("float64", 2)),
            *(reads("int64"), *[writes("float64", 2)] * 4),
        )
        for weight, known in (("none", writes("int64")), (_X, _OUT))
    ],
}


def class_codes(n_classes: int) -> type[np.unsignedinteger]:
    """Return the type of codes of classes that is not converted."""
    return np.uint8 if n_classes <= FEW_CLASSES else np.uint16


def columns_moments(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    n_classes: int,
    weight: Floats | None = None,
) -> Floats:
    """Return the moments of columns, (4, n_columns, n_classes); see the numpy twin."""
    in_python()  # they are looked at
    moments = np.zeros((4, len(columns), n_classes))
    add_moments(columns, y, np.arange(n_classes), weight, *moments)
    return moments


def add_moments(
    columns: Sequence[Floats],
    y: NDArray[np.unsignedinteger],
    here: Ints,
    weight: Floats | None,
    count: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
) -> None:
    """Add the moments of columns to those of the rows before.

    columns  IN   (n,) float64 each
    y        IN   (n,) uint8 | uint16   classes, numbered among those that occur
    here     IN   (n_here,) int64   which these are of all
    weight   IN   (n,) float64 or None
    count, mean, rest, scatter  OUT  (n_columns, n_classes) float64   see `merged`
    """
    if not vector.AVAILABLE:  # without the compiler there are no pointers
        numpy_twin("counting.moments").add_moments(
            columns, y, here, weight, count, mean, rest, scatter
        )
        return
    held, n_classes = [in_one_piece(column) for column in columns], len(here)
    y, weight = readonly(y), None if weight is None else readonly(weight)
    # Few classes are compared with, one after the other. For more a copy costs little.
    few, many = y, _NO_CLASSES
    if n_classes > FEW_CLASSES or y.itemsize > 1 or weight is not None:
        if y.dtype != np.uint16:
            in_python()  # a copy
        few, many = _NO_BYTES, readonly(y.astype(np.uint16, copy=False))
    copies = 4 if n_classes <= MANY_CLASSES else 1
    call(
        add_columns,
        *(addresses(held, [*range(len(held))]), many, few, weight),
        *(np.empty(n_classes), np.empty((3, n_classes))),
        np.empty(copies * n_classes, np.int64 if weight is None else np.float64),
        *(np.empty(2 * copies * n_classes), np.empty((4, n_classes))),
        *(readonly(here), count, mean, rest, scatter),
    )


_NO_BYTES, _NO_CLASSES = (readonly(np.empty(0, kind)) for kind in (np.uint8, np.uint16))
_float = pointer_to(types.float64)


@kernel
@unswitched
@scalar
def add_columns(
    columns, y, few, weight, shift, sums, count, pairs, found, here, counts, means, rests, scatters
):
    """Add the moments of columns to those of the rows before.

    columns  IN   (n_columns,) uint64   of (n,) float64 each
    y        IN   (n,) uint16, or empty
    few      IN   (n,) uint8 instead of y where there are few classes, else empty
    weight   IN   (n,) float64 or None
    shift    OUT  (n_classes,) float64   scratch
    sums     OUT  (3, n_classes) float64   scratch
    count    OUT  (copies n_classes,) int64, float64 with weights   scratch, copies 1 or 4
    pairs    OUT  (2 copies n_classes,) float64   scratch
    found    OUT  (4, n_classes) float64   scratch
    here     IN   (n_classes,) int64   which classes these are of all
    counts, means, rests, scatters  OUT  (n_columns, all classes) float64
    """
    n_classes = found.shape[1]
    for j in range(columns.size):
        x = carray(_float(columns[j]), y.size + few.size)
        fill(shift, 0, shift.size, np.nan)
        if few.size > 0:
            first_known(x, few, weight, shift)
        else:
            first_known(x, y, weight, shift)
        for c in range(shift.size):
            shift[c] = 0.0 if shift[c] != shift[c] else shift[c]
        for _ in range(2):
            fill(sums[0], 0, shift.size, 0.0)
            fill(sums[1], 0, shift.size, 0.0)
            fill(sums[2], 0, shift.size, 0.0)
            if weight is None and few.size > 0:
                add_few_classes(x, few, shift, sums)
            else:
                fill(count, 0, count.size, 0)
                fill(pairs, 0, pairs.size, 0.0)
                copy = n_classes if count.size > n_classes else 0
                add_classes(x, y, weight, shift, copy, count, pairs, sums)
            if from_sums(shift, sums, found) == 0:
                break
            for c in range(n_classes):
                shift[c] = found[1, c]
        merge(found, here, counts[j], means[j], rests[j], scatters[j])


@helper
@scalar
def merge(found, here, count, mean, rest, scatter):
    """Add moments to those of the rows before: see `merged` (fastbayes.kernels.shared.moments).

    found  IN   (4, n_here) float64   count, mean, rest, scatter
    here   IN   (n_here,) int64   which classes these are
    count, mean, rest, scatter  OUT  (n_classes,) float64
    """
    for k in range(here.size):
        c = here[k]
        before, n = count[c], count[c] + found[0, k]
        count[c] = n
        moved, left, squares = found[1, k], found[2, k], found[3, k]
        if before != 0.0:
            share = found[0, k] / n if n > 0.0 else 0.0
            delta = (moved - mean[c]) + (left - rest[c])
            squares = scatter[c] + squares + delta * delta * before * share
            more = rest[c] + delta * share
            moved = mean[c] + more
            part = moved - mean[c]
            left = (mean[c] - (moved - part)) + (more - part)
            left = left if np.isfinite(left) else 0.0
        mean[c] = moved if moved == moved else np.inf
        rest[c] = left
        scatter[c] = squares if squares == squares else np.inf


@helper
def first_known(x, y, weight, shift):
    """Find one value of each class: shift[c] = first x[r] that is not NaN with y[r] = c.

    x       IN   (n,) float64
    y       IN   (n,) uint8 | uint16
    weight  IN   (n,) float64 or None   rows of weight 0 are passed over
    shift   OUT  (n_classes,) float64   NaN at entry; 0 where that value is infinite
    """
    left = shift.size
    n = x.size
    r = U(0)
    # Most classes show up at once. A few that do not are sought one by one, many rows at a time.
    while left > 0 and (r < U(n) if left > 4 else r < U(min(n, 256))):
        c = U(y[r])
        if shift[c] != shift[c]:
            v = x[r]
            if v == v and (weight is None or weight[r] > 0.0):
                shift[c] = v if np.isfinite(v) else 0.0
                left -= 1
        r += U(1)
    if left == 0 or r >= U(n):
        return
    for c in range(shift.size):
        b = np.int64(r)
        while b < n and shift[c] != shift[c]:
            part = y[b : b + 1024]
            here = False
            for k in range(part.size):
                here |= part[k] == c
            if here:
                for k in range(b, b + part.size):
                    v = x[k]
                    if y[k] == c and v == v and (weight is None or weight[k] > 0.0):
                        shift[c] = v if np.isfinite(v) else 0.0
                        break
            b += 1024


@helper
def add_few_classes(x, y, shift, sums):
    """Add the moments of a few classes, each compared with every row: see `lanes.add_moments`.

    x      IN   (n,) float64
    y      IN   (n,) uint8
    shift  IN   (n_classes,) float64
    sums   OUT  (3, n_classes) float64
    """
    whole = x.size // 8 * 8
    c = 0
    while c < shift.size:
        left = shift.size - c
        if left >= 4 and AT_ONCE == 4:
            lanes.add_moments(x, y, whole, c, shift, sums, 4)
            c += 4
        elif left >= 3 and AT_ONCE == 4:
            lanes.add_moments(x, y, whole, c, shift, sums, 3)
            c += 3
        elif left >= 2:
            lanes.add_moments(x, y, whole, c, shift, sums, 2)
            c += 2
        else:
            lanes.add_moments(x, y, whole, c, shift, sums, 1)
            c += 1
    for r in range(U(whole), U(x.size)):
        k = U(y[r])
        if x[r] == x[r]:
            d = x[r] - shift[k]
            add_three(sums, k, 1.0, d, d * d)


@helper
def add_three(sums, c, count, total, squares):
    """Add to the sums of a class."""
    sums[0, c] += count
    sums[1, c] += total
    sums[2, c] += squares


@helper
def add_classes(x, y, weight, shift, copy, count, pairs, sums):
    """Add the moments of any number of classes: sums[:, y[r]] += w, w d, w d².

    d = x[r] - shift[y[r]], NaN and weight 0 left out. Neighbouring rows add into different copies
    of the sums, because an addition must wait for the one before it into the same place.

    x       IN   (n,) float64
    y       IN   (n,) uint16
    weight  IN   (n,) float64 or None
    shift   IN   (n_classes,) float64
    copy    IN   n_classes where there are four copies, 0 where there is one
    count   OUT  (copies n_classes,) int64, float64 with weights   scratch, 0 at entry
    pairs   OUT  (2 copies n_classes,) float64   scratch, 0 at entry
    sums    OUT  (3, n_classes) float64
    """
    first, second, third = U(copy), U(2 * copy), U(3 * copy)
    whole = U(x.size // 4 * 4)
    for r in range(U(0), whole, U(4)):
        add_value(x, y, weight, r, shift, U(0), count, pairs)
        add_value(x, y, weight, r + U(1), shift, first, count, pairs)
        add_value(x, y, weight, r + U(2), shift, second, count, pairs)
        add_value(x, y, weight, r + U(3), shift, third, count, pairs)
    for r in range(whole, U(x.size)):
        add_value(x, y, weight, r, shift, U(0), count, pairs)
    n_classes = copy if copy > 0 else count.size
    for k in range(count.size):
        add_three(sums, k % n_classes, count[k], pairs[2 * k], pairs[2 * k + 1])


@helper
def add_value(x, y, weight, r, shift, copy, count, pairs):
    """Add x[r] to count[copy + y[r]] and, deviation and square at once, to its pair."""
    c = U(y[r])
    d = x[r] - shift[c]
    c += copy
    if weight is None:
        count[c] += np.int64(d == d)
        d = d if d == d else 0.0
        both = lanes.pair(d, d * d)
    else:
        w = weight[r] if d == d else 0.0
        count[c] += w
        d = d if w > 0.0 else 0.0
        both = lanes.pair(w * d, w * d * d)
    at = c * U(2)
    lanes.store(pairs, at, lanes.add(lanes.load(pairs, at, 2), both))


@helper
@scalar
def from_sums(shift, sums, moments):
    """Turn sums into moments: mean + rest = shift + Σwd / Σw, scatter = Σwd² - (Σwd)² / Σw.

    Return of how many classes the shift was so far from the mean that digits were lost.

    shift    IN   (n_classes,) float64
    sums     IN   (3, n_classes) float64   Σw, Σwd, Σwd²
    moments  OUT  (4, n_classes) float64   count, mean, rest, scatter
    """
    far = 0
    for c in range(moments.shape[1]):
        count, total, squares = sums[0, c], sums[1, c], sums[2, c]
        offset = total / count if count > 0.0 else 0.0
        scatter = squares - total * offset
        # Rounding can leave -1e-17 for 0; -inf is an overflow and must not become a number.
        if -np.inf < scatter < 0.0:
            scatter = 0.0
        mean = shift[c] + offset
        part = mean - shift[c]
        rest = (shift[c] - (mean - part)) + (offset - part)
        moments[0, c] = count
        moments[1, c] = mean
        moments[2, c] = rest if np.isfinite(rest) else 0.0
        moments[3, c] = scatter
        far += np.isfinite(scatter) and count * offset * offset > 256.0 * scatter
    return far
