"""Sums of normal kernels at the points that they are of, in linear time (fast Gauss transform)."""

from __future__ import annotations

import functools

import numpy as np

from fastbayes.kernels.shared.arrays import Floats

# Terms of an expansion, and boxes to either side that matter: what is left out of a sum is less
# than ERROR of the weights.
TERMS, NEIGHBOURS, ERROR = 22, 6, 1e-13
# Points from which on this is quicker than all pairs.
WORTH = 100
# Boxes between the least and the greatest point, at most: a point must know its place in its box.
MOST_BOXES = 1e6
# Boxes whose expansions are multiplied at a time: so few that no BLAS shares them out.
TOGETHER = 20


def own_sums(points: Floats, weight: Floats, bandwidth: float) -> Floats | None:
    """Return Σ_j w_j exp(-(p_i - p_j)²/2h²) at every point, to ERROR of the sum of the weights.

    None where the points are few, or lie so far apart that they are few to a kernel.

    Parameters
    ----------
    points
        (n,) ascending.
    weight
        (n,) not negative.
    bandwidth
        h.

    Notes
    -----
    Points lie in boxes as wide as δ = √2 h. Those of a box are one Hermite expansion about its
    middle, which becomes a Taylor expansion about the middle of each box nearby.

    References
    ----------
    Greengard, Strain (1991), The fast Gauss transform, SIAM Journal on Scientific and Statistical
    Computing 12.
    """
    if len(points) < WORTH:
        return None
    with np.errstate(over="ignore"):
        off = (points - points[0]) / (np.sqrt(2.0) * bandwidth)
    if not off[-1] < MOST_BOXES:
        return None
    box = np.floor(off)
    powers = np.empty((TERMS, len(points)))  # u^k / k!, u the distance from the middle of the box
    powers[0], u = 1.0, off - box - 0.5
    for k in range(1, TERMS):
        np.multiply(powers[k - 1], u * (1 / k), out=powers[k])
    starts = np.flatnonzero(np.diff(box, prepend=-1.0))
    boxes = box[starts]
    sources = np.zeros((len(boxes) + 1, TERMS))  # the last one has no point
    sources[:-1] = np.add.reduceat(powers * weight, starts, axis=1).T
    nearby = boxes[:, None] - np.arange(-NEIGHBOURS, NEIGHBOURS + 1)
    at = np.searchsorted(boxes, nearby)
    at[boxes[np.minimum(at, len(boxes) - 1)] != nearby] = len(boxes)
    local, moved = np.empty((len(boxes), TERMS)), translations()
    for first in range(0, len(boxes), TOGETHER):
        some = slice(first, first + TOGETHER)
        local[some] = sources[at[some]].reshape(-1, len(moved)) @ moved
    counts = np.diff(starts, append=len(points))
    return np.asarray(np.einsum("kn,kn->n", powers, np.repeat(local.T, counts, axis=1)))


@functools.cache
def translations() -> Floats:
    """Return what makes the expansions of the boxes nearby that of one, (their TERMS, TERMS).

    (-1)^l h_{k+l}(D) for term k of the one and l of the other, h_n the Hermite function.
    """
    found = []
    order = np.add.outer(np.arange(TERMS), np.arange(TERMS))
    for apart in range(-NEIGHBOURS, NEIGHBOURS + 1):
        h = np.zeros(2 * TERMS)
        h[0] = np.exp(-float(apart * apart))
        h[1] = 2 * apart * h[0]
        for n in range(1, len(h) - 1):
            h[n + 1] = 2 * apart * h[n] - 2 * n * h[n - 1]
        found.append(h[order] * (-1.0) ** np.arange(TERMS))
    return np.concatenate(found)
