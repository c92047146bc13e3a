"""Log densities as curves in pieces, which are fast to look up: how they are made of what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.density import BUCKET_BITS
from fastbayes.models.estimator.log_space import Floats

# Beyond so many doublings of 1 + the distance from the centre there is one bucket for all.
MOST_DOUBLINGS = 10
# A piece is halved until it is as close as this, in nats, down to e^-DEEP of the greatest density;
# below, by a share of the depth: there every class but the nearest is out of the question.
CLOSE, DEEP, LOOSE = 2e-7, 40.0, 1e-4
# Pieces of a curve at most.
MOST_PIECES = 1 << 17
# The outermost knots stand so many doublings of the bandwidth from the outermost point: what is
# left of all points but that one is then less than rounding.
DOUBLINGS = 22
# Knots that are no farther apart, as points on both sides of 0 may be, are one: the square of what
# lies between them would be 0.
APART = 1e-100


class Curve(NamedTuple):
    """The log densities of a column in all classes, in pieces; arrays as `add_curve` takes them.

    place   (4,) float64   centre, 1/scale: pieces are functions of t = (x - centre)/scale; and
            likewise of what is compared with the ends
    bounds  (4 * buckets,) uint32
    ends    (n_pieces,) float64   in t, or numbers x
    rows    (n_pieces * (1 + 4 * n_classes),) float64
    """

    place: Floats
    bounds: NDArray[np.uint32]
    ends: Floats
    rows: Floats

    @property
    def table(self) -> Floats:
        """Origin and coefficients of each piece, (n_pieces, 1 + 4 * n_classes)."""
        return self.rows.reshape(len(self.ends), -1)


def curve_of(
    centre: float,
    scale: float,
    knots: Floats,
    pieces: Floats,
    reach: float,
    numbers: Floats | None = None,
) -> Curve:
    """Return a curve of polynomials between knots.

    centre, scale  Numbers x stand at t = (x - centre)/scale.
    knots          (m,) ascending, in t.
    pieces         (m + 1, n_classes, 4) coefficients of (t - origin)^k, the origin being the knot
                   below, for the first piece the first knot. A number on a knot belongs to the
                   piece above.
    reach          Most numbers are nearer to the centre than this, in t.
    numbers        (m,) ascending, the numbers x at the knots: where pieces do not meet, numbers
                   are compared with these, since several of them may be one t. The knots are then
                   (x - centre) (1/scale), rounded as kernels do.
    """
    origin = np.concatenate((knots[:1], knots))
    rows = np.column_stack([origin, pieces.reshape(len(origin), -1)])
    doublings = min(max(math.ceil(math.log2(reach + 1)), 1), MOST_DOUBLINGS)
    steps = np.arange((doublings << BUCKET_BITS) + 1)
    whole, part = steps >> BUCKET_BITS, steps & ((1 << BUCKET_BITS) - 1)
    edge = np.ldexp(1 + part / (1 << BUCKET_BITS), whole) - 1
    slack = 1e-14 * (edge + 1)  # what 1 + t rounds to
    below, above = edge - slack, edge + slack
    above[-1] = np.inf
    bounds = np.empty((2, len(steps) - 1, 2), np.uint32)
    for side, (low, high) in enumerate(((below[:-1], above[1:]), (-above[1:], -below[:-1]))):
        bounds[side, :, 0] = np.searchsorted(knots, low, side="right")
        bounds[side, :, 1] = np.searchsorted(knots, high, side="right")
    ends, compared = (knots, (centre, 1 / scale)) if numbers is None else (numbers, (0.0, 1.0))
    return Curve(
        np.array([centre, 1 / scale, *compared]),
        bounds.reshape(-1),
        np.append(ends, np.inf),
        rows.reshape(-1),
    )


def flat(n_classes: int) -> Curve:
    """Return a curve that says nothing."""
    return curve_of(0.0, 1.0, np.zeros(1), np.zeros((2, n_classes, 4)), 1.0)


class Bumps(NamedTuple):
    """Normal kernels of one class: ln f(t) = level + ln sum_i weight_i exp(-(t - point_i)²/2h²).

    points, weight  (n,) float64   points ascending
    bandwidth       h
    level           ln of what makes it a density
    """

    points: Floats
    weight: Floats
    bandwidth: float
    level: float


LogSums = Callable[..., tuple[Floats, Floats]]


def tabulated(classes: Sequence[Bumps], log_sums: LogSums) -> tuple[Floats, Floats]:
    """Return knots and pieces of the log densities of classes, close to the exact sums.

    log_sums  As in `kernels.numpy.scoring.density`.

    Returns: knots (m,) and pieces (m + 1, n_classes, 4), as `curve_of` takes them: cubics with the
    value and the slope of the sum at both ends, and beyond the outermost knots parabolas with the
    curvature of a single kernel.

    An interval is halved until the cubics of all classes are within `CLOSE` nats of the sums, and
    their slopes likewise, in its middle.
    """
    knots = _first_knots(classes)
    values, slopes = _evaluated(classes, knots, log_sums)
    done_knots, done_values, done_slopes = [knots], [values], [slopes]
    left, right = (
        [knots[some], values[:, some], slopes[:, some]] for some in (slice(-1), slice(1, None))
    )
    peak = values.max(axis=1, keepdims=True)
    total = len(knots)
    while len(left[0]) and total < MOST_PIECES:
        middle = left[0] + (right[0] - left[0]) / 2
        exact = _evaluated(classes, middle, log_sums)
        length = right[0] - left[0]
        value = (left[1] + right[1]) / 2 + length * (left[2] - right[2]) / 8
        slope = 1.5 * (right[1] - left[1]) / length - (left[2] + right[2]) / 4
        # By its highest point: a piece that begins in the bulk is close all along.
        depth = peak - np.maximum(np.maximum(left[1], right[1]), exact[0])
        allowed = CLOSE + LOOSE * np.maximum(depth - DEEP, 0.0)
        off = np.maximum(np.abs(value - exact[0]), np.abs(slope - exact[1]) * length / 8)
        # Where halves no longer differ there is nothing to halve.
        split = (off > allowed).any(axis=0) & (middle > left[0]) & (middle < right[0])
        new = (middle[split], exact[0][:, split], exact[1][:, split])
        for done, part in zip((done_knots, done_values, done_slopes), new, strict=True):
            done.append(part)
        total += len(new[0])
        left, right = (
            [np.concatenate(halves, axis=-1) for halves in zip(*both, strict=True)]
            for both in (
                ([a[..., split] for a in left], new),
                (new, [a[..., split] for a in right]),
            )
        )
    knots = np.concatenate(done_knots)
    order = np.argsort(knots)
    values, slopes = np.concatenate(done_values, axis=1), np.concatenate(done_slopes, axis=1)
    return knots[order], _pieces(classes, knots[order], values[:, order], slopes[:, order])


def _first_knots(classes: Sequence[Bumps]) -> Floats:
    """Return a knot within half a bandwidth of every point, and some beyond the outermost."""
    found = []
    with np.errstate(over="ignore"):
        for points, _, bandwidth, _ in classes:
            step = np.floor(points / (bandwidth / 2))
            first = np.ones(len(points), np.bool_)
            first[1:] = step[1:] != step[:-1]
            beyond = bandwidth * np.exp2(np.arange(-1, DOUBLINGS))
            found += [points[first], points[0] - beyond, points[-1] + beyond]
    knots = np.unique(np.concatenate(found))
    return knots[np.diff(knots, prepend=-np.inf) > APART]


def _evaluated(
    classes: Sequence[Bumps], queries: Floats, log_sums: LogSums
) -> tuple[Floats, Floats]:
    """Return log densities and their slopes, (n_classes, n_queries) each."""
    none, nothing = np.full(len(queries), -1), np.zeros(len(queries))
    found = [log_sums(b.points, b.weight, b.bandwidth, queries, none, nothing) for b in classes]
    level = np.array([b.level for b in classes])[:, None]
    return np.array([v for v, _ in found]) + level, np.array([s for _, s in found])


def _pieces(classes: Sequence[Bumps], knots: Floats, values: Floats, slopes: Floats) -> Floats:
    pieces = np.zeros((len(knots) + 1, len(classes), 4))
    length = np.diff(knots)
    rise = np.diff(values, axis=1) / length
    before, after = slopes[:, :-1], slopes[:, 1:]
    middle: Any = pieces[1:-1].transpose(1, 0, 2)
    middle[..., 0], middle[..., 1] = values[:, :-1], before
    middle[..., 2] = (3 * rise - 2 * before - after) / length
    middle[..., 3] = (before + after - 2 * rise) / length**2
    for end, knot in ((0, 0), (-1, -1)):
        pieces[end, :, 0], pieces[end, :, 1] = values[:, knot], slopes[:, knot]
        pieces[end, :, 2] = [-0.5 / b.bandwidth**2 for b in classes]
    return pieces
