"""From log odds, log joints or weights of a block of rows to posteriors and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd import lane_functions as functions
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.memory import fill
from fastbayes.kernels.compiled.simd.unaligned import (
    copy,
    copy_16,
    eights_at,
    fours_at,
    span_of,
)
from fastbayes.kernels.dispatch import (
    call,
    helper,
    in_python,
    kernel,
    numpy_twin,
    readonly,
    reads,
    unrolled,
    writes,
)
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
    **{
        f"weights_to_posterior_{width}": [
            (_FLOAT, reads(_FLOAT), _ACC, _ACC, _ACC, writes("int64"))
        ]
        for width in (4, 8, 16)
    },
    "weights_to_class": [
        (_FLOAT, reads(_FLOAT), writes(_FLOAT), _ACC, writes("int64"), writes("int64"))
    ],
    "take_labels": [(reads("int64"), reads("uint8", 2), writes("uint8", 2))],
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


def normalise(
    weights: Floats, prior: Floats, tie: float, out: Floats, lost: Ints | None = None
) -> int:
    """Turn weights into posteriors; see `kernels.shared.posterior`, and `to_posterior`.

    weights has 4, 8 or 16 columns, and rows up to a multiple of 4.
    """
    width = weights.shape[1]
    lost = np.zeros(1, np.int64) if lost is None else lost
    scratch = np.empty((4, width))
    call(WEIGHTS_TO_POSTERIOR[width], tie, readonly(prior), scratch, weights, out, lost)
    return int(lost[0])


def heaviest(
    weights: Floats, prior: Floats, tie: float, out: NDArray[np.intp], lost: Ints | None = None
) -> int:
    """Turn weights into classes; see `kernels.shared.posterior`, and `normalise`."""
    lost = np.zeros(1, np.int64) if lost is None else lost
    call(weights_to_class, tie, readonly(prior), np.empty(4), weights, out, lost)
    return int(lost[0])


def to_labels(which: NDArray[np.intp], labels: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the labels of class indices; see `kernels.shared.posterior`."""
    if labels.dtype.hasobject:
        in_python()
        numpy_twin("scoring.posterior").to_labels(which, labels, out)
        return
    size = labels.itemsize
    texts = np.ascontiguousarray(labels).view(np.uint8).reshape(-1, size)
    call(take_labels, readonly(which), readonly(texts), out.view(np.uint8).reshape(-1, size))


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
@unrolled
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
@unrolled
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
@unrolled
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


@helper
def four_shares(weights, at, size, limit, scale, share):
    """Return the shares of four classes in four rows: weights times scale, `share` from the limit.

    at    IN  place of the first weight
    size  IN  weights of a row
    """
    w, x, y, z = lanes.load_rows(weights, at, size, 4)
    return (
        functions.where_less(w, limit, lanes.mul(w, scale), share),
        functions.where_less(x, limit, lanes.mul(x, scale), share),
        functions.where_less(y, limit, lanes.mul(y, scale), share),
        functions.where_less(z, limit, lanes.mul(z, scale), share),
    )


def _from_weights(width: int) -> Any:
    @kernel
    def weights_to_posterior(tie, prior, scratch, weights, out, lost):
        """Turn weights into posteriors: out[r, c] = weights[r, c] / Σ weights[r, ·].

        tie      IN   weights this much less than the largest, relatively, are equal to it
        prior    IN   (n_classes,) float64   1 at its largest; for rows of zeros alone
        scratch  OUT  (4, width) float64
        weights  IN   (>= n up to fours, width) float64   0 beyond the classes
        out      OUT  (n, n_classes) float64
        lost     OUT  (1,) int64   += rows that took the prior
        """
        n, k = out.shape
        size, stride = U(width), U(k)
        none, one = functions.splat(0.0, 4), functions.splat(1.0, 4)
        near = functions.splat(1.0 - tie, 4)
        gone = none
        for r in range(0, n, 4):
            at = U(r) * size
            best = none
            for first in range(0, width, 4):
                w, x, y, z = lanes.load_rows(weights, at + U(first), size, 4)
                best = functions.larger(best, functions.larger(w, x))
                best = functions.larger(best, functions.larger(y, z))
            limit, scale = lanes.mul(best, near), functions.inverse(best)
            total = none
            for first in range(0, width, 4):
                w, x, y, z = four_shares(weights, at + U(first), size, limit, scale, one)
                total = lanes.add(lanes.add(total, w), x)
                total = lanes.add(lanes.add(total, y), z)
            gone = lanes.add(gone, functions.where_equal(best, none, one, none))
            share = functions.inverse(total)
            scale = lanes.mul(scale, share)
            if k >= 4 and r + 4 <= n:
                # Four classes of four rows at once, the last of them over those before. Where one
                # place is all there is, it is a constant: what was loaded above need not be again.
                to = U(r) * stride
                for first in range(0, k - 4 if width > 4 else 0, 4):
                    four = four_shares(weights, at + U(first), size, limit, scale, share)
                    lanes.store_columns(out, to + U(first), stride, four)
                last = U(k - 4 if width > 4 else 0)
                four = four_shares(weights, at + last, size, limit, scale, share)
                lanes.store_columns(out, to + last, stride, four)
            else:
                for first in range(0, width, 4):
                    four = four_shares(weights, at + U(first), size, limit, scale, share)
                    lanes.store_columns(scratch, U(first), size, four)
                for i in range(min(4, n - r)):
                    for c in range(k):
                        out[r + i, c] = scratch[i, c]
        if lanes.total(gone) > 0.0:
            lost[0] += put_prior(tie, prior, weights, out)

    return weights_to_posterior


weights_to_posterior_4, weights_to_posterior_8, weights_to_posterior_16 = (
    _from_weights(width) for width in (4, 8, 16)
)
WEIGHTS_TO_POSTERIOR = {
    4: weights_to_posterior_4,
    8: weights_to_posterior_8,
    16: weights_to_posterior_16,
}


@helper
def impossible(weights, r, k):
    """Return whether no class has a weight above 0."""
    top = 0.0
    for c in range(k):
        top = max(top, weights[r, c])
    return top == 0.0


@helper
def put_prior(tie, prior, weights, out):
    """Write the prior to rows without weights; return how many these are."""
    n, k = out.shape
    lost = 0
    for r in range(n):
        if impossible(weights, r, k):
            lost += 1
            total = 0.0
            for c in range(k):
                out[r, c] = prior[c] if prior[c] < 1.0 - tie else 1.0
                total += out[r, c]
            for c in range(k):
                out[r, c] /= total
    return lost


@kernel
def weights_to_class(tie, prior, scratch, weights, out, lost):
    """Turn weights into classes: the lowest c whose weights[r, c] is within `tie` of the largest.

    Arguments as for `weights_to_posterior`, but scratch (4,) float64 and out (n,) int64.
    """
    n, k, width = out.size, prior.size, weights.shape[1]
    size = U(width)
    none, one = functions.splat(0.0, 4), functions.splat(1.0, 4)
    near = functions.splat(1.0 - tie, 4)
    gone = none
    for r in range(0, n, 4):
        at = U(r) * size
        best = none
        for first in range(0, width, 4):
            w, x, y, z = lanes.load_rows(weights, at + U(first), size, 4)
            best = functions.larger(best, functions.larger(w, x))
            best = functions.larger(best, functions.larger(y, z))
        limit = lanes.mul(best, near)
        found = none
        for first in range(width - 4, -1, -4):
            w, x, y, z = lanes.load_rows(weights, at + U(first), size, 4)
            c = np.float64(first)
            found = functions.where_less(z, limit, found, functions.splat(c + 3.0, 4))
            found = functions.where_less(y, limit, found, functions.splat(c + 2.0, 4))
            found = functions.where_less(x, limit, found, functions.splat(c + 1.0, 4))
            found = functions.where_less(w, limit, found, functions.splat(c, 4))
        gone = lanes.add(gone, functions.where_equal(best, none, one, none))
        lanes.store(scratch, U(0), found)
        for i in range(min(4, n - r)):
            out[r + i] = np.int64(scratch[i])
    if lanes.total(gone) > 0.0:
        chosen = k
        for c in range(k - 1, -1, -1):
            chosen = c if prior[c] >= 1.0 - tie else chosen
        for r in range(n):
            if impossible(weights, r, k):
                lost[0] += 1
                out[r] = chosen


@kernel
def take_labels(which, labels, out):
    """Write the bytes of labels.

    which   IN   (n,) int64
    labels  IN   (n_classes, size) uint8
    out     OUT  (n, size) uint8
    """
    source, target, size = span_of(labels), span_of(out), labels.shape[1]
    if size == 4:
        of_4, to_4 = fours_at(source, 0, len(labels)), fours_at(target, 0, which.size)
        for r in range(which.size):
            to_4[r] = of_4[which[r]]
    elif size == 8:
        of_8, to_8 = eights_at(source, 0, len(labels)), eights_at(target, 0, which.size)
        for r in range(which.size):
            to_8[r] = of_8[which[r]]
    elif size % 16 == 0:
        for r in range(which.size):
            for k in range(0, size, 16):
                copy_16(source, which[r] * size + k, target, r * size + k)
    else:
        for r in range(which.size):
            copy(source, which[r] * size, target, r * size, size)
