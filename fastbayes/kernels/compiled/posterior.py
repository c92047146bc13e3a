"""From log odds or log joints of a block of rows, class by class, to posteriors and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.dispatch import call, helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, Ints, U

# Rows at a time: their scratch stays in the first-level cache.
ROWS = 512

_FLOAT = "float64"
_ACC = writes(_FLOAT, 2)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    **{
        name: [(_FLOAT, reads(_FLOAT), _ACC, _ACC, out, writes("int64"))]
        for name, out in {
            "odds_to_posterior": _ACC,
            "odds_to_class": writes("int64"),
            "joint_to_posterior": _ACC,
            "joint_to_class": writes("int64"),
        }.items()
    },
    "joint_to_rows": [("int64", _ACC, _ACC)],
}


def to_posterior(
    acc: Floats, start: Floats, tie: float, out: Floats, lost: Ints | None = None
) -> int:
    """Turn log joints into posteriors; see `kernels.shared.posterior`.

    lost  OUT  (1,) += rows that took the prior
    """
    odds = len(start) < out.shape[1]
    finish = odds_to_posterior if odds else joint_to_posterior
    return _finish(finish, acc, start, tie, odds, out, lost)


def to_class(
    acc: Floats,
    start: Floats,
    tie: float,
    n_classes: int,
    out: NDArray[np.intp],
    lost: Ints | None = None,
) -> int:
    """Turn log joints into classes; see `kernels.shared.posterior`, and `to_posterior`."""
    odds = len(start) < n_classes
    return _finish(odds_to_class if odds else joint_to_class, acc, start, tie, odds, out, lost)


def to_rows(acc: Floats, out: Floats) -> None:
    """Write log joints row by row; see `kernels.shared.posterior`."""
    call(joint_to_rows, 0, acc, out)


def _finish(
    finish: Any,
    acc: Floats,
    start: Floats,
    tie: float,
    odds: bool,
    out: NDArray[Any],
    lost: Ints | None,
) -> int:
    lost = np.zeros(1, np.int64) if lost is None else lost
    start = start if odds else start - start.max()
    call(finish, tie, readonly(start), np.empty((2, ROWS)), acc, out, lost)
    return int(lost[0])


@kernel
def odds_to_posterior(tie, start, scratch, acc, out, lost):
    """Turn log odds into both posteriors: out[r, 1] = 1 / (1 + exp(-acc[0, r])).

    tie      IN   log odds this close to 0 are 0
    start    IN   (1,) float64   prior log odds, for rows whose own are NaN
    scratch  OUT  (2, any) float64
    acc      OUT  (1, >= n) float64   log odds; overwritten
    out      OUT  (n, 2) float64
    lost     OUT  (1,) int64   += rows that took the prior
    """
    n, prior = len(out), start[0]
    for b in range(0, n, scratch.shape[1]):
        w = min(scratch.shape[1], n - b)
        x, s, o = acc[0, b : b + w], scratch[0, :w], out[b : b + w]
        gone = 0
        for r in range(w):
            v = x[r]
            gone += v != v
            v = v if v == v else prior
            a = abs(v)
            e = lanes.exp_negative(-a if a > tie else 0.0)
            large = 1.0 / (1.0 + e)
            small = e * large
            s[r] = small if v > 0.0 else large
            x[r] = large if v > 0.0 else small
        for r in range(w):
            o[r, 0] = s[r]
            o[r, 1] = x[r]
        lost[0] += gone


@kernel
def odds_to_class(tie, start, scratch, acc, out, lost):
    """Turn log odds into classes: out[r] = acc[0, r] > tie.

    Arguments as for `odds_to_posterior`, but out (n,) int64.
    """
    n, prior = len(out), start[0]
    x = acc[0, :n]
    gone = 0
    for r in range(n):
        gone += x[r] != x[r]
        v = x[r] if x[r] == x[r] else prior
        out[r] = v > tie
    lost[0] += gone


@helper
def put_best(acc, k, b, best):
    """Write the best log joint of rows from b on; return how many have none above -inf."""
    w, lost = best.size, 0
    x = acc[0, b : b + w]
    for r in range(w):
        best[r] = x[r]
    for c in range(1, k):
        x = acc[c, b : b + w]
        for r in range(w):
            best[r] = x[r] if x[r] > best[r] else best[r]
    for r in range(w):
        lost += best[r] == -np.inf
    return lost


@kernel
def joint_to_posterior(tie, start, scratch, acc, out, lost):
    """Turn log joints into posteriors: out[r, c] = exp(acc[c, r]) / Σ exp(acc[·, r]).

    tie      IN   log joints this close to the best are equal to it
    start    IN   (n_classes,) float64   log prior, 0 at its best; for rows of -inf alone
    scratch  OUT  (2, any) float64
    acc      OUT  (>= n_classes, >= n) float64   log joints; overwritten
    out      OUT  (n, n_classes) float64
    lost     OUT  (1,) int64   += rows that took the prior
    """
    n = len(out)
    for b in range(0, n, scratch.shape[1]):
        w = min(scratch.shape[1], n - b)
        best, total, o = scratch[0, :w], scratch[1, :w], out[b : b + w]
        lost[0] += put_best(acc, start.size, b, best)
        fill(total, 0, w, 0.0)
        for c in range(start.size):
            x = acc[c, b : b + w]
            prior = start[c]
            for r in range(w):
                z = x[r] - best[r]
                z = z if best[r] > -np.inf else prior
                e = lanes.exp_negative(z if z < -tie else 0.0)
                total[r] += e
                x[r] = e
        for r in range(w):
            total[r] = 1.0 / total[r]
        for c in range(start.size):
            x = acc[c, b : b + w]
            for r in range(w):
                x[r] *= total[r]
        joint_to_rows(b, acc, o)


@kernel
def joint_to_class(tie, start, scratch, acc, out, lost):
    """Turn log joints into classes: the lowest c whose acc[c, r] is within `tie` of the best.

    Arguments as for `joint_to_posterior`, but out (n,) int64.
    """
    n = len(out)
    for b in range(0, n, scratch.shape[1]):
        w = min(scratch.shape[1], n - b)
        best, o = scratch[0, :w], out[b : b + w]
        lost[0] += put_best(acc, start.size, b, best)
        for c in range(start.size - 1, -1, -1):
            x = acc[c, b : b + w]
            prior = start[c]
            for r in range(w):
                z = x[r] - best[r]
                z = z if best[r] > -np.inf else prior
                o[r] = c if z >= -tie else o[r]


@kernel
def joint_to_rows(lo, acc, out):
    """Turn class-major into row-major: out[r, c] = acc[c, lo + r].

    lo   IN   first row
    acc  IN   (>= n_classes, >= lo + n) float64
    out  OUT  (n, n_classes) float64
    """
    n, k = out.shape
    if k < 4:
        for c in range(k):
            x = acc[c, lo : lo + n]
            for r in range(n):
                out[r, c] = x[r]
        return
    # Tiles of four rows and four classes; the last one of a row overlaps the one before.
    stride, width = U(acc.shape[1]), U(k)
    whole = U(n // 4 * 4)
    for row in range(U(0), whole, U(4)):
        for c in range(0, k, 4):
            first = U(min(c, k - 4))
            at = first * stride + U(lo) + row
            four = lanes.load_four(acc, at, at + stride, at + U(2) * stride, at + U(3) * stride, 4)
            lanes.store_columns(out, row * width + first, width, four)
    for row in range(whole, U(n)):
        for c in range(k):
            out[row, c] = acc[c, U(lo) + row]
