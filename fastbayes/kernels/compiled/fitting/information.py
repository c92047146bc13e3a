"""Information between features, and of features about the class, from counts.

The twin of `kernels.numpy.fitting.information`, where the sum is given. Here no term of it takes a
logarithm or a branch, so that the compiler works on many at once: with o and e the count and the
expected count, both times n(c), and 2^k the power of two that brings e' = 2^k e next to o,

    o ln(o/e) - (o - e) = d s (1 + (1 + s) s (1/3 + s²/5 + s⁴/7 + ...)) + o k ln 2 + (e - e'),

d = o - e', s = d / (o + e'). Where features are nearly independent, k = 0 and what is left is a
series in the small number s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U
from fastbayes.kernels.shared.information import NOTHING, ROUNDING, by_shape

# Pairs of one shape that go side by side, and the cells of each up to which they do: their
# scratch is then 128 KiB.
MANY = 8
CELLS = 1024

# In a class of fewer rows every product of two counts is exact in float64.
EXACT = 94_906_265.0
# Differences of products of int64 below this are right even where the products wrap around.
LARGE = 2.0**62

# Added to both sides of a ratio it is nothing, except that 0/0 becomes 1.
TINY = 1e-250

LN2 = float(np.log(2))
# Bits of a float64: the exponent stands above the mantissa, 1023 more than it is.
MANTISSA = U(52)
BIAS_AND_HALF = U((1023 << 52) + (1 << 51))
# These bits above an integer below 2^52 make it 2^52 + that integer.
ABOVE = np.float64(2.0**52).view(np.uint64)
ABOVE_AND_BIAS = 2.0**52 + 1023

_SIGNATURES = [
    (
        *(reads("float64"), reads("int64"), *["int64"] * 4, "float64", "float64"),
        *(writes("float64"), writes("float64", 2), writes("float64")),
    )
]
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "write_one": _SIGNATURES,
    "write_many": _SIGNATURES,
}


def pair_information(
    flat: NDArray[Any],
    first: Ints,
    second: Ints,
    starts: Ints,
    sizes: Ints,
    widths: Ints,
    n_classes: int,
    out: Floats,
) -> None:
    """Compute the conditional mutual information of pairs from their counts; see the numpy twin."""
    scale, exact = 1.0, EXACT
    if flat.dtype == np.float64:
        scale, exact = float(np.ldexp(1.0, min(-np.frexp(flat.max(initial=0.0))[1], 1000))), np.inf
    # Counts are whole numbers that float64 holds.
    flat, starts = readonly(flat.astype(np.float64, copy=False)), np.asarray(starts, dtype=np.int64)
    for alike in by_shape(first, second, sizes, widths):
        i, j = first[alike[0]], second[alike[0]]
        shape = int(sizes[i]), int(sizes[j]), int(widths[j]), n_classes
        n_cells = shape[0] * shape[1]
        side = len(alike) // MANY * MANY if n_cells <= CELLS else 0
        for write, lanes, some in (
            (write_many, MANY, alike[:side]),
            (write_one, 1, alike[side:]),
        ):
            if not len(some):
                continue
            margins = np.empty((shape[0] + shape[1] + 3) * lanes)
            scratch, part = np.empty((3, n_cells * lanes)), np.empty(len(some))
            write(flat, readonly(starts[some]), *shape, scale, exact, margins, scratch, part)
            out[some] = part


def _writer(lanes: int) -> Callable[..., None]:
    """Return the kernel that takes so many pairs at a time; `lanes` is a constant in it."""

    def write(flat, starts, size_a, size_b, width, n_classes, scale, exact, margins, scratch, out):
        """Write I(A; B | C) = 1/n Σ_c 1/n_c Σ_ab term(n_abc n_c, n_ac n_bc) of pairs of one shape.

        flat       IN   float64   n(c, a, b) at starts[q] + (a width + b) n_classes + c
        starts     IN   (n_pairs,) int64, a multiple of lanes
        scale      IN   power of two that brings the largest count to about 1, or 1
        exact      IN   rows of a class from which products of counts are rounded
        margins    OUT  ((size_a + size_b + 3) lanes,) float64   scratch
        scratch    OUT  (3, size_a size_b lanes) float64   scratch
        out        OUT  (n_pairs,) float64   nats
        """
        n_a = margins[: size_a * lanes]
        n_b = margins[size_a * lanes : (size_a + size_b) * lanes]
        n_c = margins[(size_a + size_b) * lanes : (size_a + size_b + 1) * lanes]
        n = margins[(size_a + size_b + 1) * lanes : (size_a + size_b + 2) * lanes]
        total = margins[(size_a + size_b + 2) * lanes :]
        o, e, rest = scratch[0], scratch[1], scratch[2]
        end = U(size_a * size_b * lanes)
        for q in range(0, starts.size, lanes):
            fill(n, 0, n.size, 0.0)
            fill(total, 0, total.size, 0.0)
            for c in range(n_classes):
                fill(n_b, 0, n_b.size, 0.0)
                most = 0.0
                for k in range(lanes):
                    m = U(k)
                    n_c[k] = 0.0
                    for a in range(size_a):
                        at, mb = U(starts[q + k] + a * width * n_classes + c), U(k)
                        sum_a = 0.0
                        for _ in range(size_b):
                            # A retraction of weights can leave -1e-17.
                            x = flat[at] * scale
                            x = x if x > NOTHING else 0.0
                            o[m] = x
                            sum_a += x
                            n_b[mb] += x
                            at += U(n_classes)
                            m += U(lanes)
                            mb += U(lanes)
                        n_a[a * lanes + k] = sum_a
                        n_c[k] += sum_a
                    n[k] += n_c[k]
                    most = max(most, n_c[k])
                m = U(0)
                for a in range(size_a):
                    for b in range(size_b):
                        for k in range(lanes):
                            e[m + U(k)] = n_a[a * lanes + k] * n_b[b * lanes + k]
                        m += U(lanes)
                if most >= exact:
                    add_rest(o, n_a, n_b, n_c, rest)
                for m in range(U(0), end, U(lanes)):
                    for k in range(lanes):
                        o[m + U(k)] *= n_c[k]
                if most >= exact:
                    for m in range(end):
                        o[m] = term(o[m], e[m], rest[m])
                else:
                    for m in range(end):
                        o[m] = term(o[m], e[m], 0.0)
                for k in range(lanes):
                    n_c[k] = 1.0 / n_c[k] if n_c[k] > 0.0 else 0.0
                for m in range(U(0), end, U(lanes)):
                    for k in range(lanes):
                        total[k] += o[m + U(k)] * n_c[k]
            for k in range(lanes):
                out[q + k] = total[k] / n[k] if n[k] > 0.0 else 0.0

    return write


@helper
def add_rest(o, n_a, n_b, n_c, rest):
    """Find what rounding takes from each n_abc n_c - n_ac n_bc of whole numbers."""
    lanes = n_c.size
    for m in range(n_a.size // lanes * n_b.size):
        k = m % lanes
        a = m // n_b.size * lanes + k
        b = m % n_b.size
        rounded = o[m] * n_c[k] - n_a[a] * n_b[b]
        rest[m] = 0.0
        if abs(rounded) < LARGE:
            difference = np.int64(o[m]) * np.int64(n_c[k]) - np.int64(n_a[a]) * np.int64(n_b[b])
            rest[m] = np.float64(difference - np.int64(rounded))


@helper
def term(o, e, rest):
    """Return o ln(o/e) - (o - e), where o - e is exactly o - e + rest."""
    above, below = np.float64(o + TINY), np.float64(e + TINY)
    # The difference of the bits is about log2(o/e) 2^52: good to 0.09, so that |s| < 0.21.
    power = (above.view(np.uint64) + BIAS_AND_HALF - below.view(np.uint64)) >> MANTISSA
    k = np.uint64(power | ABOVE).view(np.float64) - ABOVE_AND_BIAS
    near = e * np.uint64(power << MANTISSA).view(np.float64)
    d = (o - near) + rest
    s = d / (o + near + TINY)
    s = s if abs(s) > ROUNDING else 0.0
    z = s * s
    series = 1 / 21
    series = series * z + 1 / 19
    series = series * z + 1 / 17
    series = series * z + 1 / 15
    series = series * z + 1 / 13
    series = series * z + 1 / 11
    series = series * z + 1 / 9
    series = series * z + 1 / 7
    series = series * z + 1 / 5
    series = series * z + 1 / 3
    return d * s * (1.0 + (1.0 + s) * s * series) + (o * (k * LN2) + (e - near))


write_one = kernel(_writer(1))
write_many = kernel(_writer(MANY))
