"""Normal and t densities as the kernels that score them take their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.whitening import TILE
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.quadratic import Quadratics

# Whitened means this far apart leave too few digits to a distance measured between them.
APART = 2.0**20
# So far apart, differences between squared distances are computed as well without these.
CLOSE = 2.0**10
# How rows are compared with classes: whitened for each, once for all, or not at all.
EACH, WHITENED, LINEAR = 0, 1, 2


class Columns:
    """Columns of rows as the kernels take them: by the addresses of their first numbers."""

    def __init__(self, columns: Sequence[Floats]) -> None:
        self.arrays = [readonly(column) for column in columns]
        self.tail = np.zeros((len(columns) + 1, TILE))
        addresses = [array.ctypes.data for array in (*self.arrays, self.tail)]
        self.addresses = readonly(np.array(addresses, np.uint64))

    def rows(self, rows: NDArray[np.int64], features: NDArray[np.intp]) -> list[Floats]:
        """Return some of these columns of some rows."""
        return [self.arrays[j][rows] for j in features.tolist()]


def density_tables(densities: Quadratics, relative: bool) -> tuple[Any, ...]:
    """Return mean, rest, matrix, step, way, centres, start, dof and power for `put_densities`.

    Classes that share their matrix have centres, whitened: then rows are whitened but once. If
    only differences between classes count, these are linear: rows are not whitened at all.
    """
    mean, rest, whiten = densities.mean, densities.rest, densities.whiten
    start, way, centres = densities.start, EACH, np.zeros((0, 0))
    packed = np.array([packed_rows(matrix) for matrix in whiten])
    if densities.shared:
        with np.errstate(over="ignore", invalid="ignore"):
            apart = ((mean - mean[0]) + (rest - rest[0])) @ whiten[0].T
        farthest = np.abs(apart).max(initial=0.0)
        if farthest < APART:
            way, centres = WHITENED, np.pad(apart, ((0, 0), (-mean.shape[1] % 4, 0)))
            mean, rest = mean[:1], rest[:1]
        if farthest < CLOSE and relative and densities.dof is None:
            # z less a centre, squared, is z² - 2 z·centre + centre²; z² is common.
            way, packed = LINEAR, packed_columns(apart @ whiten[0])
            start = start - (apart**2).sum(axis=1) / 2
    dof, power = np.empty(0), np.empty(0)
    if densities.dof is not None:
        dof, power = densities.dof, (densities.dof + densities.ranks) / 2
    return (
        *(readonly(mean), readonly(rest), readonly(packed.reshape(-1))),
        *(packed.shape[1] * int(len(packed) > 1), way, readonly(centres)),
        *(readonly(start), readonly(dof), readonly(power)),
    )


def packed_columns(matrix: Floats) -> Floats:
    """Return the rows of a matrix, four at a time and these column by column.

    Columns of 0 come first, as many as make it a multiple of four; and four at the end.
    """
    k, p = matrix.shape
    padded = np.pad(matrix, ((0, -k % 4), (-p % 4, 4)))
    return padded.reshape(-1, 4, padded.shape[1]).swapaxes(1, 2).reshape(-(-k // 4), -1)


def packed_rows(matrix: Floats) -> Floats:
    """Return the rows of a lower triangular matrix, four at a time and then column by column.

    Rows and columns of 0 come first, as many as make it a multiple of four.
    """
    pad = -len(matrix) % 4
    padded = np.pad(matrix, ((pad, 0), (pad, 0)))
    blocks = [padded[i : i + 4, : i + 4].T.ravel() for i in range(0, len(padded), 4)]
    return np.concatenate([np.empty(0), *blocks])


def marginal_tables(densities: Quadratics, width: int) -> tuple[Any, ...]:
    """Return mean, rest, columns and so on for `put_marginals`, columns in multiples of `width`."""
    k, p = densities.mean.shape
    columns = np.zeros((len(densities.whiten), p, -(-p // width) * width))
    columns[:, :, :p] = densities.whiten.swapaxes(1, 2)
    # Scaled first, so that squares of what is very large or small are neither.
    largest = np.abs(columns).max(axis=2, initial=0.0)
    taking_part = largest > 0
    largest[~taking_part] = 1.0
    directions = columns / largest[:, :, None]
    length = np.sqrt((directions**2).sum(axis=2))
    length[~taking_part] = 1.0
    directions /= length[:, :, None]
    lengths = np.where(taking_part, np.log(length) + np.log(largest), -np.inf)
    gained = np.array([_gained(densities, c, p) for c in range(k)])
    dof = np.empty(0) if densities.dof is None else densities.dof
    return (
        *(readonly(densities.mean), readonly(densities.rest), readonly(columns)),
        *(readonly(directions), readonly(lengths), readonly(densities.log_prior)),
        *(readonly(densities.start), readonly(gained)),
        readonly(np.concatenate([densities.ranks, dof])),
    )


def _gained(densities: Quadratics, c: int, p: int) -> list[float]:
    """Return what the level gains where 0, 1, … p features that take part are missing.

    Without the logarithm of the volume that their columns of the matrix span.
    """
    if densities.dof is None:
        return [m / 2 * math.log(2 * math.pi) for m in range(p + 1)]
    dof, rank = float(densities.dof[c]), int(densities.ranks[c])
    gained = [0.0] * (p + 1)
    for m in range(1, rank + 1):
        gained[m] = math.lgamma((dof + rank - m) / 2) - math.lgamma((dof + rank) / 2)
        gained[m] += m / 2 * math.log(dof * math.pi)
    return gained
