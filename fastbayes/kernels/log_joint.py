"""Scoring of naive Bayes: log joints, posteriors and predictions of blocks of rows.

Rows are scored in blocks, class-major: acc[c, r]. With two classes one row of log odds is
enough. A few columns at a time are joined into one 16-bit code whose table holds the sums of
their log likelihoods, so that memory is touched once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from fastbayes._jit import kernel, readonly, reads, writes
from fastbayes.batch import Codes
from fastbayes.kernels import lanes
from fastbayes.kernels.joint_tables import Plan, join_tables
from fastbayes.plain.log_joint import EXACT, Gaussian, largest_sum

Floats = NDArray[np.float64]
U = np.uint64

# Rows and groups at a time: codes stay in the second-level cache, and rows of codes do not fall
# into the same cache set. Sums of a block of rows stay there, too.
SINGLE_ROWS, LANE_ROWS, GROUPS = 8_192, 2_080, 16
BLOCK_SUMS = 65_536
SOFTMAX_ROWS = 512

_INT, _FLOAT = "int64", "float64"
_PLAN = (reads(_INT), reads("uint16"), reads(_INT), reads(_INT))
_CODE, _ACC = writes("uint16", 2), writes(_FLOAT, 2)
SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "add_single": [
        (reads(codes, 2), *_PLAN, reads(_FLOAT), _CODE, _INT, _INT, _ACC)
        for codes in ("uint8", "uint16")
    ],
    **{
        f"add_lanes_{width}": [
            (reads(codes, 2), *_PLAN, reads(table), _INT, _CODE, _INT, _INT, _ACC)
            for codes in ("uint8", "uint16")
            for table in (_FLOAT, "float32")
        ]
        for width in (4, 8, 16)
    },
    "add_wide": [(reads("uint32", 2), reads(_INT), reads(_FLOAT, 2), _INT, _INT, _ACC)],
    "add_gaussian": [(*[reads(_FLOAT)] * 2, reads(_FLOAT, 3), _INT, _INT, _INT, _ACC)],
    **{
        name: [(_INT, _FLOAT, reads(_FLOAT), _ACC, _ACC, out, writes(_INT))]
        for name, out in {
            "odds_to_posterior": _ACC,
            "odds_to_class": writes(_INT),
            "joint_to_posterior": _ACC,
            "joint_to_class": writes(_INT),
        }.items()
    },
    "joint_to_rows": [(_INT, _ACC, _ACC)],
}


class Scorer:
    """Log joints, posteriors and predictions of a naive Bayes model; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    tables
        (n_slots, n_classes) log likelihoods; each feature has S_j + 2 rows: its values, missing,
        unseen. -inf is a legal entry.
    offsets
        (n_categorical + 1,) first row of each feature in `tables`.
    gaussian
        None, or mean, 1/(2σ²) and -½ ln(2πσ²), each (n_numeric, n_classes). A missing value (NaN)
        contributes 0.
    precision
        "exact" is float64 throughout. "fast" adds the tables of three and more classes in
        float32, which leaves an error of at most d 2⁻²³ of the largest sum of a row's terms.
    """

    def __init__(
        self,
        log_prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        gaussian: Gaussian | None = None,
        precision: str = "exact",
    ) -> None:
        prior = np.array(log_prior, np.float64)
        tables = np.array(tables, np.float64)
        offsets = np.array(offsets, np.int64)
        n_classes = len(prior)
        curves = np.empty((0, 3, n_classes)) if gaussian is None else np.stack(gaussian, axis=1)
        coarse = precision == "fast" and n_classes > 2
        largest = largest_sum(prior, tables, offsets)
        self._tie = min(2.0**-22 * largest, 1e-5) if coarse else EXACT * largest
        self._joint = _Sum(prior, tables, offsets, curves, np.float32 if coarse else np.float64)
        self._odds = None
        if n_classes == 2:
            # ±inf where one class is impossible, NaN where both are: sums keep exactly that.
            with np.errstate(invalid="ignore"):
                odds = np.diff(prior), np.diff(tables, axis=1)
            curves[:, 1:] *= [-1, 1]
            self._odds = _Sum(*odds, offsets, curves, np.float64)

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c) + Σ ln P(x_j | c) of every row and class into `out` (n_rows, n_classes)."""
        for lo, n, acc in self._joint.blocks(batch_codes, numeric, len(out)):
            joint_to_rows(0, acc, out[lo : lo + n])

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        kernels = odds_to_posterior, joint_to_posterior
        return self._finish(kernels, batch_codes, numeric, out)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return self._finish((odds_to_class, joint_to_class), batch_codes, numeric, out)

    def _finish(
        self,
        kernels: tuple[Any, Any],
        batch_codes: Sequence[Codes],
        numeric: Sequence[Floats],
        out: NDArray[Any],
    ) -> int:
        """Run the kernel for odds or for log joints over all blocks; return the lost rows."""
        total, finish = (self._odds, kernels[0]) if self._odds else (self._joint, kernels[1])
        lost, scratch = np.zeros(1, np.int64), np.empty((2, SOFTMAX_ROWS))
        start = readonly(total.start - (0.0 if self._odds else total.start.max()))
        for lo, n, acc in total.blocks(batch_codes, numeric, len(out)):
            finish(n, self._tie, start, scratch, acc, out[lo : lo + n], lost)
        return int(lost[0])


class _Sum:
    """What is added up for each row: a start and one term per feature, for several outputs.

    The outputs are the log joints of the classes, or one: the log odds of class 1 over class 0.
    curves (n_numeric, 3, n_curves) holds mean, precision and constant of one Gaussian per output,
    or of both classes' in the odds, the first with its sign changed.
    """

    def __init__(
        self,
        start: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        curves: Floats,
        dtype: type[np.floating],
    ) -> None:
        self.start = start
        self._tables = readonly(tables)
        self._offsets = offsets
        self._curves = curves.copy()
        self._dtype = dtype
        self._plans: dict[tuple[bytes, int], Plan] = {}
        self._tiles: list[tuple[int, int, Any]] = []
        first = 0
        while first < len(start) > 1:
            left = len(start) - first
            width, add = LANES[0] if left <= 4 else LANES[1] if left <= 8 else LANES[2]
            self._tiles.append((first, width, add))
            first += width
        self._height = first or 1

    def blocks(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], n_rows: int
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, rows, acc) of block after block, acc[c, :rows] being the sums."""
        rows = min(max(BLOCK_SUMS // self._height, 2 * LANE_ROWS), max(-(-n_rows // 4), 1) * 4)
        # One cache line more, lest all outputs of a row fall into the same cache set.
        acc = np.zeros((self._height, rows + 8))
        steps = list(self._steps(batch_codes, numeric))
        for lo in range(0, n_rows, rows):
            n = min(rows, n_rows - lo)
            acc[: len(self.start)] = self.start[:, None]
            for add, arguments in steps:
                add(*arguments, lo, n, acc)
            yield lo, n, acc

    def _steps(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats]
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each kernel with the arguments that are the same for every block of rows."""
        for group in batch_codes:
            if not len(group.features):
                continue
            codes = readonly(group.codes)
            if codes.dtype.itemsize > 2:
                yield add_wide, (codes, readonly(self._offsets[group.features]), self._tables)
            elif not self._tiles:
                scratch = np.empty((4, SINGLE_ROWS), np.uint16)
                yield add_single, (codes, *self._plan(group.features, 0, 1), scratch)
            else:
                scratch = np.empty((GROUPS, LANE_ROWS), np.uint16)
                for first, width, add in self._tiles:
                    yield add, (codes, *self._plan(group.features, first, width), first, scratch)
        columns = [readonly(column) for column in numeric]
        for j in range(0, len(columns), 2):
            curves = np.zeros((2, *self._curves.shape[1:]))
            curves[: len(columns) - j] = self._curves[j : j + 2]
            pair = columns[j], columns[min(j + 1, len(columns) - 1)]
            yield add_gaussian, (*pair, readonly(curves), int(len(self.start) > 1))

    def _plan(self, features: NDArray[np.int64], first: int, width: int) -> Plan:
        """Return the joint tables of these features for `width` outputs from `first` on."""
        key = features.tobytes(), first
        plan = self._plans.get(key)
        if plan is None:
            outputs = slice(first, first + width)
            bounds = zip(self._offsets[features], self._offsets[features + 1], strict=True)
            tables = [self._tables[begin:end, outputs] for begin, end in bounds]
            plan = self._plans[key] = join_tables(tables, width, self._dtype)
        return plan


@register_jitable
def join(codes, order, radix, begin, end, lo, out):
    """Join columns into one code per row: out[r] = Σ radix[q] codes[order[q], lo + r].

    codes  IN   (m, n_rows) uint8 | uint16
    order  IN   (m,) int64   columns order[begin:end] are joined
    radix  IN   (m,) uint16
    lo     IN   first row
    out    OUT  (n,) uint16
    """
    # Every product is of two uint16: wider ones would halve the lanes.
    n = out.size
    x = codes[order[begin], lo : lo + n]
    if end - begin == 1:
        for r in range(n):
            out[r] = np.uint16(x[r])
    else:
        y = codes[order[begin + 1], lo : lo + n]
        by = radix[begin + 1]
        for r in range(n):
            out[r] = np.uint16(np.uint16(x[r]) + np.uint16(np.uint16(y[r]) * by))
    for q in range(begin + 2, end):
        z = codes[order[q], lo : lo + n]
        bz = radix[q]
        for r in range(n):
            out[r] = np.uint16(out[r] + np.uint16(np.uint16(z[r]) * bz))


@kernel
def add_single(codes, order, radix, bounds, start, table, code, lo, n, acc):
    """Add one number per row and group: acc[0, r] += Σ_g table[start[g] + joint code of (g, r)].

    codes, order, radix, bounds, start, table  IN  a matrix of codes and its plan
    code  OUT  (4, any) uint16   scratch
    lo    IN   row of `codes` that is acc's first
    n     IN   rows
    acc   OUT  (1, >= n) float64
    """
    groups = bounds.size - 1
    for b in range(0, n, code.shape[1]):
        w = min(code.shape[1], n - b)
        end = U(w)
        a = acc[0, b : b + w]
        c0, c1, c2, c3 = code[0, :w], code[1, :w], code[2, :w], code[3, :w]
        g = 0
        while g < groups:
            together = 4 if g + 4 <= groups else 1
            for k in range(together):
                join(codes, order, radix, bounds[g + k], bounds[g + k + 1], lo + b, code[k, :w])
            t0 = table[start[g] :]
            r = U(0)
            if together == 4:
                t1, t2, t3 = table[start[g + 1] :], table[start[g + 2] :], table[start[g + 3] :]
                while r < end:
                    a[r] += (t0[U(c0[r])] + t1[U(c1[r])]) + (t2[U(c2[r])] + t3[U(c3[r])])
                    r += U(1)
            else:
                while r < end:
                    a[r] += t0[U(c0[r])]
                    r += U(1)
            g += together


def _lanes_of(width: int) -> Any:
    @kernel
    def add_lanes(codes, order, radix, bounds, start, table, first, code, lo, n, acc):
        """Add `width` outputs per row: acc[first + lane, r] += Σ_g table[start[g] + ... + lane].

        codes, order, radix, bounds, start, table  IN  a matrix of codes and its plan
        first  IN   output of the first lane
        code   OUT  (groups at a time, rows at a time) uint16   scratch; a multiple of 4 rows
        lo     IN   row of `codes` that is acc's first
        n      IN   rows
        acc    OUT  (>= first + width, >= n) float64   a multiple of 4 columns
        """
        groups = bounds.size - 1
        size = U(width)
        stride = U(acc.shape[1])
        for b in range(0, n, code.shape[1]):
            w = min(code.shape[1], n - b)
            padded = (w + 3) // 4 * 4
            at = U(first * acc.shape[1] + b)
            for g0 in range(0, groups, code.shape[0]):
                together = min(code.shape[0], groups - g0)
                for k in range(together):
                    begin, end = bounds[g0 + k], bounds[g0 + k + 1]
                    join(codes, order, radix, begin, end, lo + b, code[k, :w])
                    code[k, w:padded] = 0
                r = U(0)
                while r < U(padded):
                    s0 = lanes.zero(table, width)
                    s1 = s0
                    s2 = s0
                    s3 = s0
                    k = U(0)
                    while k < U(together):
                        t = U(start[U(g0) + k])
                        c = code[k]
                        s0 = lanes.add(s0, lanes.load(table, t + U(c[r]) * size, width))
                        s1 = lanes.add(s1, lanes.load(table, t + U(c[r + U(1)]) * size, width))
                        s2 = lanes.add(s2, lanes.load(table, t + U(c[r + U(2)]) * size, width))
                        s3 = lanes.add(s3, lanes.load(table, t + U(c[r + U(3)]) * size, width))
                        k += U(1)
                    lanes.add_columns(acc, at + r, stride, s0, s1, s2, s3)
                    r += U(4)

    return add_lanes


add_lanes_4, add_lanes_8, add_lanes_16 = (_lanes_of(width) for width in (4, 8, 16))
LANES = ((4, add_lanes_4), (8, add_lanes_8), (16, add_lanes_16))


@kernel
def add_wide(codes, offsets, tables, lo, n, acc):
    """Add columns of very many values one by one: acc[c, r] += tables[offsets[i] + codes[i, r], c].

    codes    IN   (m, n_rows) uint32
    offsets  IN   (m,) int64
    tables   IN   (n_slots, n_outputs) float64
    acc      OUT  (>= n_outputs, >= n) float64
    """
    for i in range(codes.shape[0]):
        x = codes[i, lo : lo + n]
        t = tables[offsets[i] :]
        for r in range(n):
            row = t[U(x[r])]
            for c in range(tables.shape[1]):
                acc[c, r] += row[c]


@kernel
def add_gaussian(x, y, curves, step, lo, n, acc):
    """Add two numeric columns: acc[c step, r] += Σ constant - (x[r] - mean)² precision.

    x, y    IN   (n_rows,) float64   NaN contributes 0
    curves  IN   (2, 3, n_curves) float64   mean, precision and constant for x and for y
    step    IN   1, or 0 to add all curves into acc[0]
    acc     OUT  (>= n_curves or 1, >= n) float64
    """
    for b in range(0, n, 512):
        w = min(512, n - b)
        u, v = x[lo + b : lo + b + w], y[lo + b : lo + b + w]
        for c in range(curves.shape[2]):
            a = acc[c * step, b : b + w]
            mu, hu, cu = curves[0, 0, c], -curves[0, 1, c], curves[0, 2, c]
            mv, hv, cv = curves[1, 0, c], -curves[1, 1, c], curves[1, 2, c]
            for r in range(w):
                du = u[r] - mu
                dv = v[r] - mv
                tu = lanes.fma(du * du, hu, cu)
                tv = lanes.fma(dv * dv, hv, cv)
                a[r] += (tu if tu == tu else 0.0) + (tv if tv == tv else 0.0)


@kernel
def odds_to_posterior(n, tie, start, scratch, acc, out, lost):
    """Turn log odds into both posteriors: out[r, 1] = 1 / (1 + exp(-acc[0, r])).

    n        IN   rows
    tie      IN   log odds this close to 0 are 0
    start    IN   (1,) float64   prior log odds, for rows whose own are NaN
    scratch  OUT  (2, any) float64
    acc      OUT  (1, >= n) float64   log odds; overwritten
    out      OUT  (n, 2) float64
    lost     OUT  (1,) int64   += rows that took the prior
    """
    prior = start[0]
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
def odds_to_class(n, tie, start, scratch, acc, out, lost):
    """Turn log odds into classes: out[r] = acc[0, r] > tie.

    Arguments as for `odds_to_posterior`, but out (n,) int64.
    """
    x = acc[0, :n]
    prior = start[0]
    gone = 0
    for r in range(n):
        gone += x[r] != x[r]
        v = x[r] if x[r] == x[r] else prior
        out[r] = v > tie
    lost[0] += gone


@kernel
def joint_to_posterior(n, tie, start, scratch, acc, out, lost):
    """Turn log joints into posteriors: out[r, c] = exp(acc[c, r]) / Σ exp(acc[·, r]).

    n        IN   rows
    tie      IN   log joints this close to the best are equal to it
    start    IN   (n_classes,) float64   log prior, 0 at its best; for rows of -inf alone
    scratch  OUT  (2, any) float64
    acc      OUT  (>= n_classes, >= n) float64   log joints; overwritten
    out      OUT  (n, n_classes) float64
    lost     OUT  (1,) int64   += rows that took the prior
    """
    for b in range(0, n, scratch.shape[1]):
        w = min(scratch.shape[1], n - b)
        best, total, o = scratch[0, :w], scratch[1, :w], out[b : b + w]
        best[:] = acc[0, b : b + w]
        for c in range(1, start.size):
            x = acc[c, b : b + w]
            for r in range(w):
                best[r] = x[r] if x[r] > best[r] else best[r]
        gone = 0
        for r in range(w):
            gone += best[r] == -np.inf
            total[r] = 0.0
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
        lost[0] += gone


@kernel
def joint_to_class(n, tie, start, scratch, acc, out, lost):
    """Turn log joints into classes: the lowest c whose acc[c, r] is within `tie` of the best.

    Arguments as for `joint_to_posterior`, but out (n,) int64.
    """
    for b in range(0, n, scratch.shape[1]):
        w = min(scratch.shape[1], n - b)
        best, o = scratch[0, :w], out[b : b + w]
        best[:] = acc[0, b : b + w]
        for c in range(1, start.size):
            x = acc[c, b : b + w]
            for r in range(w):
                best[r] = x[r] if x[r] > best[r] else best[r]
        gone = 0
        for r in range(w):
            gone += best[r] == -np.inf
        for c in range(start.size - 1, -1, -1):
            x = acc[c, b : b + w]
            prior = start[c]
            for r in range(w):
                z = x[r] - best[r]
                z = z if best[r] > -np.inf else prior
                o[r] = c if z >= -tie else o[r]
        lost[0] += gone


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
    row = U(0)
    while row < whole:
        for c in range(0, k, 4):
            first = U(min(c, k - 4))
            at = first * stride + U(lo) + row
            lanes.store_columns(
                out,
                row * width + first,
                width,
                lanes.load(acc, at, 4),
                lanes.load(acc, at + stride, 4),
                lanes.load(acc, at + U(2) * stride, 4),
                lanes.load(acc, at + U(3) * stride, 4),
            )
        row += U(4)
    while row < U(n):
        for c in range(k):
            out[row, c] = acc[c, U(lo) + row]
        row += U(1)
