"""How moments of two parts of the rows become those of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastbayes.kernels.shared.arrays import Floats


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a + b rounded, and what rounding took from it, exactly (Knuth 1969)."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
        part = total - a
        rest = (a - (total - part)) + (b - part)
    return total, np.where(np.isfinite(rest), rest, 0.0)


def overflowed(sums: Floats) -> Floats:
    """Return sums in which an overflow is infinite, and so equal to itself, never inf - inf."""
    lost = np.isnan(sums)
    return np.where(lost, np.inf, sums) if lost.any() else sums


def merged(mine: Sequence[Floats], theirs: Sequence[Floats]) -> tuple[Floats, ...]:
    """Return count, mean, its rest and scatter of the rows of both (`ClassMoments`)."""
    before, mean, rest, scatter = mine
    first, n = before == 0, before + theirs[0]
    # An overflow stays in the numbers, where whoever reads them finds it.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.where(n > 0, theirs[0] / n, 0.0)
        delta = (theirs[1] - mean) + (theirs[2] - rest)
        between = delta * delta * before * share
        moved, rest = two_sum(mean, rest + delta * share)
        scatter = scatter + theirs[3] + between
    return (
        n,
        overflowed(np.where(first, theirs[1], moved)),
        np.where(first, theirs[2], rest),
        overflowed(np.where(first, theirs[3], scatter)),
    )
