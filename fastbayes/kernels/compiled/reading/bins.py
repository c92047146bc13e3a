"""Bins of numbers between ascending cut points: out[r] is how many cuts lie below values[r].

A few cuts are compared with every number. For more of them the line between the first and the
last is divided evenly, so finely that hardly a part holds two cuts: the part of a number tells
its bin but for one comparison. That takes 1.2 ns a number however many cuts there are, where
a binary search takes 4 to 10; it is left for cuts too unevenly spread to be divided so.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.dispatch import call, in_python, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import U

# Cuts up to which comparing with each takes less time than looking up a part.
FEW_CUTS = 8
# Cuts compared in one pass.
PASS = 4
# Numbers of parts, least first, and cuts of one part beyond which searching is faster.
PARTS = (256, 1024, 4096)
MOST_STEPS = 4
# Rows of a block of sums or places: 16 KiB or less.
ROWS = 2048

_NUMBERS, _INT64 = reads("float64"), writes("int64")

SIGNATURES = {
    "compare": [(_NUMBERS, _NUMBERS, reads("uint8"), writes("int64"), writes("uint8"))],
    "divide": [
        (
            *(_NUMBERS, *["float64"] * 3, reads("uint16"), _NUMBERS, "int64", reads(code)),
            *(writes("int32"), writes(code)),
        )
        for code in ("uint8", "uint16")
    ],
    "search": [(_NUMBERS, _NUMBERS, "int64", reads("uint32"), writes("uint32"))],
}


class EvenGrid(NamedTuple):
    """The line between the first and the last cut, divided evenly.

    low, scale, top  part of x: (x - low) * scale, cut off below 0 and above top
    first            (parts,) uint16   cuts in all parts before
    cuts             cuts and infinities behind them
    steps            most cuts of one part
    """

    low: float
    scale: float
    top: float
    first: NDArray[np.uint16]
    cuts: NDArray[np.float64]
    steps: int


def assign(
    values: NDArray[np.float64],
    cuts: NDArray[np.float64],
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write the bin of each number: bin k is (cuts[k - 1], cuts[k]].

    values   IN   (n,) float64, NaN where missing
    cuts     IN   (n_cuts,) float64 finite, ascending
    missing  IN   code of NaN
    out      OUT  (n,) uint8 | uint16 | uint32   n_cuts fits
    """
    values, few = readonly(values), len(cuts) <= FEW_CUTS and missing < 1 << 8
    parts = None if few or missing >= 1 << 16 else _parts(cuts.tobytes())
    # Each kernel writes codes as wide as it needs; a wider column is a copy.
    kind = np.dtype(f"u{1 if few else 4 if parts is None else min(out.itemsize, 2)}")
    codes = out
    if out.dtype != kind:
        in_python()
        codes = np.empty(len(out), kind)
    nan = readonly(np.full(1, missing, kind))
    if few:
        padded = _padded(cuts, -len(cuts) % PASS)
        call(compare, values, padded, nan, np.empty(ROWS, np.int64), codes)
    elif parts is not None:
        call(divide, values, *parts, nan, np.empty(ROWS, np.int32), codes)
    else:
        levels = len(cuts).bit_length()
        call(search, values, _padded(cuts, (1 << levels) - 1 - len(cuts)), levels, nan, codes)
    if codes is not out:
        out[:] = codes


@functools.lru_cache(maxsize=4096)
def _parts(points: bytes) -> EvenGrid | None:
    """Return an even division that leaves few cuts to one part; None if there is none."""
    cuts = np.frombuffer(points, np.float64)
    for parts in PARTS:
        with np.errstate(all="ignore"):
            low, top = float(cuts[0]), float(parts - 1)
            scale = float(top / (cuts[-1] - low))
            where = np.clip((cuts - low) * scale, 0.0, top)
        if not 0.0 < scale < np.inf or np.isnan(where).any() or len(cuts) >= 1 << 16:
            return None
        part = where.astype(np.int64)
        steps = int(np.bincount(part).max())
        if steps == 1 or (parts == PARTS[-1] and steps <= MOST_STEPS):
            first = np.searchsorted(part, np.arange(parts)).astype(np.uint16)
            return EvenGrid(low, scale, top, readonly(first), _padded(cuts, 1), steps)
    return None


def _padded(cuts: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return cuts and n infinities, which no number exceeds."""
    return readonly(np.append(cuts, np.full(n, np.inf)))


@kernel
def compare(values, cuts, nan, sums, out):
    """Count the cuts below each number, four in a pass.

    values  IN   (n,) float64
    cuts    IN   (4 * passes,) float64
    nan     IN   (1,) code of NaN
    sums    OUT  (block of rows,) int64   scratch, as wide as the numbers
    out     OUT  (n,) uint8
    """
    missing = nan[0]
    for start in range(0, values.size, sums.size):
        x = values[start : start + sums.size]
        codes, s = out[start : start + sums.size], sums[: x.size]
        for r in range(x.size):
            s[r] = 0
        for k in range(0, cuts.size, 4):
            a, b, c, d = cuts[k], cuts[k + 1], cuts[k + 2], cuts[k + 3]
            for r in range(x.size):
                number = x[r]
                low = np.int64(number > a) + np.int64(number > b)
                s[r] += low + np.int64(number > c) + np.int64(number > d)
        for r in range(x.size):
            codes[r] = s[r] if x[r] == x[r] else missing


@kernel
def divide(values, low, scale, top, first, cuts, steps, nan, places, out):
    """Find the part of each number, and its bin in `steps` comparisons from there.

    The part grows with the number, roundings included: cuts of earlier parts are below it, those
    of later ones are not. low ... steps are of `EvenGrid`; places is scratch for a block of rows.
    """
    missing = nan[0]
    for start in range(0, values.size, places.size):
        x = values[start : start + places.size]
        codes, part = out[start : start + places.size], places[: x.size]
        for r in range(x.size):
            t = (x[r] - low) * scale
            t = t if t > 0.0 else 0.0  # NaN too
            part[r] = np.int32(t if t < top else top)
        for r in range(x.size):
            code = U(first[U(part[r])])
            codes[r] = code + U(x[r] > cuts[code])
        for _ in range(1, steps):
            for r in range(x.size):
                code = U(codes[r])
                codes[r] = code + U(x[r] > cuts[code])
        for r in range(x.size):
            codes[r] = codes[r] if x[r] == x[r] else missing


@kernel
def search(values, cuts, levels, nan, out):
    """Count the cuts below each number by halves, without branches; 2^levels - 1 cuts.

    Other arguments as for `compare`.
    """
    missing = nan[0]
    for r in range(values.size):
        x, code = values[r], U(0)
        for level in range(levels):
            half = U(levels - 1 - level)
            code += U(cuts[code + (U(1) << half) - U(1)] < x) << half
        out[r] = code if x == x else missing
