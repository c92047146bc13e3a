"""Scoring of normal and Student t densities: tiles of rows, whitened in registers.

The squared distance of a row from a class is that of `whiten @ (row - mean)` from 0. Nothing as
large as the rows is ever written. A missing value makes the distance NaN, seen at its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.scoring.log_joint import BLOCK_SUMS, BlockScorer, Sum, odds_of
from fastbayes.kernels.compiled.simd import lanes
from fastbayes.kernels.compiled.simd.instructions import number_at
from fastbayes.kernels.compiled.simd.memory import addresses, fill
from fastbayes.kernels.compiled.simd.whitening import (
    TILE,
    WIDTH,
    add_distances,
    add_squares,
    put_deviations,
    put_products,
    put_row,
    put_sum,
    shrink,
    square,
    take_out,
)
from fastbayes.kernels.dispatch import kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U
from fastbayes.kernels.shared.quadratic import (
    Marginal,
    Quadratics,
    features_used,
    kept,
    known_part,
    patterns,
    tie_of,
)

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
        self.addresses = addresses([*self.arrays, self.tail], [*range(len(columns) + 1)])

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


# Nanoseconds that the densities of one pattern of missing values are worth making for.
WORTH = 300_000

_INT, _FLOAT = "int64", "float64"
_NUMBERS, _MATRIX, _MATRICES = (reads(_FLOAT, ndim) for ndim in (1, 2, 3))
_ADDRESSES, _ROWS = reads("uint64"), reads(_INT)
_OUT, _FOUND = writes(_FLOAT, 2), writes(_INT)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "put_densities": [
        (
            *(_ADDRESSES, _INT, _INT, _FLOAT, _MATRIX, _MATRIX, _NUMBERS, _INT, _INT),
            *(_MATRIX, *[_NUMBERS] * 3, _OUT, _OUT, _OUT, _FOUND),
        )
    ],
    "mark_missing": [(_ADDRESSES, _INT, _ROWS, writes("uint64", 2))],
    "put_marginals": [
        (
            *(_ADDRESSES, _INT, _ROWS, _ROWS, _FLOAT, _MATRIX, _MATRIX, _MATRICES, _MATRICES),
            *(_MATRIX, _NUMBERS, _NUMBERS, _MATRIX, _NUMBERS, _OUT, writes(_FLOAT)),
            *(writes(_INT, 2), _OUT, _FOUND),
        )
    ],
}


class _Part:
    """Densities of rows that know all of its features."""

    def __init__(self, densities: Quadratics, relative: bool) -> None:
        self.densities, self.relative = densities, relative
        self.limit = densities.limit(relative)
        self._tables = density_tables(densities, relative)

    def put(self, columns: Columns, lo: int, n: int, acc: Floats) -> NDArray[np.int64]:
        """Put log joints of n rows into acc, and return those of them that `put_rest` is for.

        They have missing values, or are what `Quadratics.far` is for.
        """
        height = (len(columns.arrays) + 3) // 4 * 4 + 4
        scratch = np.zeros((height + max(height, len(acc) + 3) + 3, TILE))
        found = np.empty(n + 1, np.int64)
        put_densities(
            *(columns.addresses, lo, n, self.limit, *self._tables),
            *(scratch, columns.tail, acc, found),
        )
        return found[1 : 1 + found[0]]

    def put_far(self, columns: Sequence[Floats], rows: NDArray[np.int64], acc: Floats) -> None:
        """Put the log joints of columns of far rows into these rows of acc."""
        x = np.reshape(columns, (len(columns), len(rows))).T
        acc[:, rows] = self.densities.joint(x, self.relative).T

    def put_all(self, columns: Sequence[Floats], rows: NDArray[np.int64], acc: Floats) -> None:
        """Put the log joints of columns without missing values into these rows of acc."""
        some = Columns(columns)
        own = np.empty((len(acc), len(rows)))
        far = self.put(some, 0, len(rows), own)
        if len(far):
            self.put_far(some.rows(far, np.arange(len(columns))), far, own)
        acc[:, rows] = own


class _Incomplete:
    """Densities of rows with missing values.

    The distance from a class, in what is known, is the least that missing values could make it:
    z = whiten @ (row - mean) without its part in the space of their columns of the matrix. Many
    rows of one pattern are scored as rows without missing values by its own densities.
    """

    def __init__(self, whole: _Part, pattern: Callable[[bytes], Quadratics]) -> None:
        self._whole = whole
        self._k, self._p = k, p = whole.densities.mean.shape
        self._known = lru_cache(kept(k, p))(lambda known: _Part(pattern(known), whole.relative))

    @cached_property
    def _tables(self) -> tuple[Any, ...]:
        return marginal_tables(self._whole.densities, 4 * WIDTH)

    def put(self, columns: Columns, lo: int, rows: NDArray[np.int64], acc: Floats) -> None:
        """Put log joints of rows of this block, far or with missing values, into acc."""
        k, p = self._k, self._p
        words = np.empty((-(-p // 64), len(rows)), np.uint64)
        mark_missing(columns.addresses, lo, readonly(rows), words)
        order, starts = patterns(words)
        sizes = np.diff(starts)
        first = np.ascontiguousarray(words[:, order[starts[:-1]]].T, "<u8")
        missing = np.unpackbits(first.view(np.uint8), axis=1, count=p, bitorder="little") > 0
        absent = missing.sum(axis=1)
        cost = k * (sizes * (30 + p * (p + 8 * absent) / 16) + p * absent**2 / 8)
        alone = (cost > WORTH) & (absent < p) | (absent == 0)
        for pattern in np.flatnonzero(alone).tolist():
            which = rows[order[starts[pattern] : starts[pattern + 1]]]
            self._put_pattern(~missing[pattern], columns, lo, which, acc)
        rest = rows[order[np.repeat(~alone, sizes)]]
        if len(rest):
            self._put_rest(columns, lo, rest, np.cumsum([0, *sizes[~alone]]), acc)

    def _put_pattern(
        self,
        known: NDArray[np.bool_],
        columns: Columns,
        lo: int,
        rows: NDArray[np.int64],
        acc: Floats,
    ) -> None:
        """Put the log joints of rows of one pattern into acc."""
        chosen = columns.rows(lo + rows, np.flatnonzero(known))
        if known.all():
            self._whole.put_far(chosen, rows, acc)
        else:
            self._known(known.tobytes()).put_all(chosen, rows, acc)

    def _put_rest(
        self,
        columns: Columns,
        lo: int,
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        acc: Floats,
    ) -> None:
        """Put the log joints of rows into acc, of which those of one pattern stand together."""
        k, p, wide = self._tables[2].shape
        found = np.empty(len(rows) + 1, np.int64)
        scratch = np.zeros((k * p + 3, wide)), np.empty(k), np.empty((k, p + 1), np.int64)
        put_marginals(
            *(columns.addresses, lo, readonly(rows), readonly(starts), self._whole.limit),
            *(*self._tables, *scratch, acc, found),
        )
        for row in found[1 : 1 + found[0]]:
            known = ~np.isnan([column[lo + row] for column in columns.arrays])
            self._put_pattern(known, columns, lo, np.array([row]), acc)


class _QuadraticSum(Sum):
    """Log joints, or where `relative` what answers depend on: with two classes the log odds."""

    def __init__(
        self,
        densities: Quadratics,
        used: NDArray[np.intp],
        pattern: Callable[[bytes], Quadratics],
        relative: bool,
    ) -> None:
        prior = densities.log_prior
        self._n_classes, self._used = len(prior), used.tolist()
        self._is_odds = relative and len(prior) == 2
        super().__init__(odds_of(prior) if self._is_odds else prior, np.float64)
        self._whole = _Part(densities, relative)
        self._incomplete = _Incomplete(self._whole, pattern)

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the sums."""
        columns = Columns([numeric[j] for j in self._used])
        rows = max(min(BLOCK_SUMS // self._n_classes, n_rows), TILE)
        # One cache line more, lest all classes of a row fall into the same cache set.
        acc = np.zeros((self._n_classes, rows + 8))
        for lo in range(0, n_rows, rows):
            n = min(rows, n_rows - lo)
            rare = self._whole.put(columns, lo, n, acc)
            if len(rare):
                self._incomplete.put(columns, lo, rare, acc)
            if self._is_odds:
                acc[0, :n] = acc[1, :n] - acc[0, :n]
            yield lo, n, acc


class QuadraticScorer(BlockScorer):
    """Log joints, posteriors and predictions of normal or t densities; immutable, thread-safe.

    Parameters as for the numpy twin, which says what is computed.

    Notes
    -----
    `marginal` is asked for patterns that many rows of a block have; other rows with missing
    values are scored one by one. Where the classes share a matrix, posteriors and classes of a
    row cost as many products as there are classes and features.
    """

    def __init__(
        self,
        log_prior: Floats,
        mean: Floats,
        rest: Floats,
        whiten: Floats,
        level: Floats,
        dof: Floats | None,
        marginal: Marginal,
    ) -> None:
        whole = Quadratics(log_prior, mean, rest, whiten, level, dof)
        used = features_used(whole.whiten)
        n_features = whole.mean.shape[1]
        pattern = partial(known_part, marginal, whole.log_prior, used, n_features)
        joint, compared = (
            _QuadraticSum(whole.only(used), used, pattern, relative) for relative in (False, True)
        )
        super().__init__(joint, compared, tie_of(whole))


@kernel
def put_densities(
    addresses, lo, n, limit, mean, rest, matrix, step, way, centres, start, dof, power, scratch,
    tail, acc, found,
):  # fmt: skip
    """Write log densities: acc[c, r] = start[c] - ½ |z|², or start - power ln(1 + |z|² / dof).

    addresses  IN   (p + 1,) uint64   of columns of float64, and of `tail`
    lo         IN   row of the columns that is acc's first
    n          IN   rows
    limit      IN   squared distance to the nearest class from which on a row is not near
    mean       IN   (n_classes, p) float64; (1, p) unless rows are whitened for each class
    rest       IN   likewise, what rounding took from it
    matrix     IN   (any,) float64   packed: of each class; or linear, of four classes each
    step       IN   length of one, 0 where there is but one
    way        IN   EACH, WHITENED or LINEAR
    centres    IN   (n_classes, p and padding) float64   whitened means less the first
    start      IN   (n_classes,) float64
    dof        IN   (n_classes,) float64, or none for normal densities
    power      IN   likewise
    scratch    OUT  (enough, TILE) float64   0 at entry
    tail       OUT  (p + 1, TILE) float64   scratch
    acc        OUT  (n_classes, >= n) float64
    found      OUT  (>= n + 1,) int64   how many rows are not near, or NaN; which
    """
    p, k = mean.shape[1], start.size
    height = (p + 3) // 4 * 4
    pad = height - p
    last = len(scratch) - 3
    squares, least, total = scratch[last], scratch[last + 1], scratch[last + 2]
    found[0] = 0
    for b in range(0, n, TILE):
        w = min(TILE, n - b)
        at = U(8) * U(lo + b)
        if w < TILE:
            for j in range(p):
                for r in range(w):
                    tail[j, r] = number_at(addresses[j] + at, U(r))
        fill(least, 0, least.size, np.inf)
        fill(total, 0, total.size, 0.0)
        for c in range(k):
            if c == 0 or way == EACH:
                for j in range(p):
                    own = addresses[j] + at if w == TILE else addresses[p] + U(8 * TILE) * U(j)
                    put_deviations(own, mean[c, j], rest[c, j], scratch, (pad + j) * TILE)
            fill(squares, 0, squares.size, 0.0)
            if way == LINEAR:
                if c % 4 == 0:
                    of, to = c // 4 * step, height + 4 + c
                    put_products(matrix, of, scratch, pad, height, to)
                for r in range(TILE):
                    squares[r] = -2.0 * scratch[height + 4 + c, r]
            elif way == WHITENED:
                for row in range(0, height if c == 0 else 0, 4):
                    of = 2 * row * (row // 4 + 1)
                    put_products(matrix, of, scratch, pad, row, height + row)
                begin, end = height + pad, 2 * height
                add_distances(scratch, begin, end, centres, c * height + pad, last)
            else:
                for row in range(0, height, 4):
                    of = c * step + 2 * row * (row // 4 + 1)
                    add_squares(matrix, of, scratch, pad, row, last)
            for r in range(TILE):
                least[r] = squares[r] if squares[r] < least[r] else least[r]
                total[r] += squares[r]
            a, top = acc[c, b : b + w], start[c]
            if dof.size:
                nu, factor = dof[c], power[c]
                for r in range(w):
                    a[r] = top - factor * lanes.log_positive(1.0 + squares[r] / nu)
            else:
                for r in range(w):
                    a[r] = top - 0.5 * squares[r]
        near = 0
        for r in range(TILE):
            near += (least[r] < limit) & (abs(total[r]) < np.inf)
        if near < TILE:
            for r in range(w):
                if not (least[r] < limit and abs(total[r]) < np.inf):
                    found[0] += 1
                    found[found[0]] = b + r


@kernel
def mark_missing(addresses, lo, rows, words):
    """Write which values are missing: bit j of words[:, r] is 1 where column j is NaN.

    addresses  IN   (p + 1,) uint64   of columns of float64, and one more
    lo         IN   row of the columns from which rows count
    rows       IN   (n,) int64
    words      OUT  (enough for p bits, n) uint64
    """
    for i in range(len(words)):
        for r in range(rows.size):
            at, bits = U(lo + rows[r]), U(0)
            for j in range(64 * i, min(addresses.size - 1, 64 * i + 64)):
                x = number_at(addresses[j], at)
                bits |= U(x != x) << U(j - 64 * i)
            words[i, r] = bits


@kernel
def put_marginals(
    addresses, lo, rows, starts, limit, mean, rest, columns, directions, lengths, prior, start,
    gained, shape, scratch, volume, begins, acc, found,
):  # fmt: skip
    """Write log densities of what is known of rows with missing values.

    acc[c, r] = start[c] + gained - volume - ½ |z|², z without its part in the space of the columns
    of what is missing, whose volume is a logarithm; or with dof ν and rank ρ, less the number of
    these columns, start[c] + gained - volume - ½ (ν + ρ) ln(1 + |z|² / ν).

    addresses   IN   (p + 1,) uint64   of columns of float64, and one more
    lo          IN   row of the columns that is acc's first
    rows        IN   (n,) int64   of acc; those of one pattern stand together
    starts      IN   (n_patterns + 1,) int64   where each pattern begins
    limit       IN   squared distance to the nearest class from which on a row is not near
    mean, rest  IN   (n_classes, p) float64
    columns     IN   (n_classes or 1, p, p and padding) float64   of the matrices
    directions  IN   likewise, of length 1 or 0
    lengths     IN   (n_classes or 1, p) float64   logarithms of what they were
    prior       IN   (n_classes,) float64   where nothing is known
    start       IN   (n_classes,) float64
    gained      IN   (n_classes, p + 1) float64   by the number of missing values
    shape       IN   (2 n_classes,) float64   ranks and dof; ranks alone for normal densities
    scratch     OUT  (matrices p + 3, p and padding) float64   0 at entry
    volume      OUT  (matrices,) float64   scratch
    begins      OUT  (matrices, p + 1) int64   scratch: how many columns are missing, and which
    acc         OUT  (n_classes, > largest row) float64
    found       OUT  (n + 1,) int64   how many rows are not near; which
    """
    p, k = mean.shape[1], start.size
    z = len(scratch) - 1
    values, deviations = scratch[z - 2], scratch[z - 1]
    found[0] = 0
    for g in range(starts.size - 1):
        for q in range(starts[g], starts[g + 1]):
            row = rows[q]
            nothing = True
            for j in range(p):
                values[j] = number_at(addresses[j], U(lo + row))
                nothing &= values[j] != values[j]
            if nothing:
                for c in range(k):
                    acc[c, row] = prior[c]
                continue
            if q == starts[g]:
                for c in range(len(columns)):
                    # Gram and Schmidt; a column begins with zeros, the last one with most.
                    size, own = 0, c * p
                    volume[c] = 0.0
                    for j in range(p - 1, -1, -1):
                        if values[j] == values[j] or lengths[c, j] == -np.inf:
                            continue
                        put_row(scratch, own + size, directions, c * p + j)
                        for e in range(size):
                            take_out(scratch, own + size, own + e, begins[c, e])
                        if size:
                            length = math.sqrt(square(scratch, own + size, j))
                            shrink(scratch, own + size, length)
                            volume[c] += math.log(length)
                        volume[c] += lengths[c, j]
                        begins[c, size] = j
                        size += 1
                    begins[c, p] = size
            least, total = np.inf, 0.0
            for c in range(k):
                of = c if len(columns) > 1 else 0
                for j in range(p):
                    d = (values[j] - mean[c, j]) - rest[c, j]
                    deviations[j] = d if values[j] == values[j] else 0.0
                put_sum(columns, of * p, deviations, p, scratch, z)
                size = begins[of, p]
                for e in range(size):
                    take_out(scratch, z, of * p + e, begins[of, e])
                far = square(scratch, z, 0)
                least = far if far < least else least
                total += far
                top = start[c] + gained[c, size] - volume[of]
                if shape.size > k:
                    rank, dof = shape[c] - size, shape[k + c]
                    acc[c, row] = top - 0.5 * (dof + rank) * math.log1p(far / dof)
                else:
                    acc[c, row] = top - 0.5 * far
            if not (least < limit and total < np.inf):
                found[0] += 1
                found[found[0]] = row
