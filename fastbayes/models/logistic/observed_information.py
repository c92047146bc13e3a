"""The observed information of a logistic regression: second derivatives, summed over rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import DataError
from fastbayes.core.layout import Layout
from fastbayes.data.segments import Segment
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.scoring import with_pairs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.logistic_fit import Options, penalty_of
from fastbayes.models.logistic.logistic_model import Fit
from fastbayes.scan import engine
from fastbayes.scan.packed_rows import Reading
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.pair_counts import all_pairs

# Coefficients whose matrix is inverted: 32 MB, and a second or two.
MOST = 2_000


def check_wald(layout: Layout, *, first: bool) -> None:
    """Raise DataError where there can be no standard errors.

    Parameters
    ----------
    layout
        Where the coefficients stand.
    first
        Whether these are all rows so far.
    """
    if not first:
        raise DataError(
            "standard_errors=True needs all rows at once: use fit, or set it to False for more "
            "batches"
        )
    size = layout.n_rows * layout.n_outputs
    if size > MOST:
        raise DataError(
            f"standard_errors=True inverts a matrix of the squared number of coefficients, and "
            f"there are {size:,}, more than {MOST:,}: leave columns of many values out, or fit "
            "without standard errors"
        )


def with_information(fit: Fit, reading: Reading, options: Options, stats: Statistics) -> Fit:
    """Return a fit with what standard errors are made of.

    Parameters
    ----------
    fit
        To rows.
    reading
        Which rows.
    options
        How they were fitted.
    stats
        Their counts.
    """
    found = information_of(reading, fit.coefficients)
    layout, values = reading.layout, stats.values
    references = None
    if options.penalty == "l2":
        for output in range(layout.n_outputs):
            np.fill_diagonal(
                found[output, output],
                found[output, output].diagonal() + penalty_of(layout, 1 / options.C, 2)[:, 0],
            )
    else:
        references = np.array([most_frequent(counts) for counts in (
            values.of(j) for j in range(len(layout.sizes))
        )], np.int64)  # fmt: skip
    return replace(fit, information=found, references=references)


def most_frequent(counts: NDArray[Any]) -> int:
    """Return the value that most rows have, the first of equals, -1 where there is none."""
    return int(counts.sum(axis=1).argmax()) if len(counts) else -1


def information(coefficients: Coefficients, layout: Layout, batch: Batch, weight: Any) -> Floats:
    """Return the Hessian of the negative log likelihood of some rows.

    Parameters
    ----------
    coefficients
        Where it is taken.
    layout
        Where each coefficient stands.
    batch
        Rows, encoded by the schema of the model.
    weight
        (n_rows,), None where every row weighs 1.

    Returns
    -------
    numpy.ndarray
        (n_outputs, n_outputs, layout.n_rows, layout.n_rows): for outputs k and l the sum over rows
        of w q_kl x xᵀ, q_kl being p_k (1 - p_k) for the same and -p_k p_l for two.

    Notes
    -----
    O(n (d + p)²) sums by code, for each of K (K - 1)/2 pairs of classes.
    """
    m, size = layout.n_outputs, layout.n_rows
    proba = np.empty((batch.n_rows, len(coefficients.prior)))
    coefficients.scorer(batch.cells).posterior(batch.codes, batch.numeric, proba)
    columns = _Columns.of(coefficients, layout, batch)
    found = np.zeros((m, m, size, size))
    # Rows of the whole sum to 0: what belongs to the last class follows from the others.
    own = 1 if m == 1 else m - 1
    for k in range(own):
        for other in range(k, own):
            p, q = (proba[:, -1 if m == 1 else c] for c in (k, other))
            share = p * (1 - p) if k == other else -p * q
            product = columns.product(share if weight is None else share * weight, size)
            found[k, other] = found[other, k] = product
    if m > 1:
        found[:own, own] = found[own, :own] = -found[:own, :own].sum(axis=1)
        found[own, own] = -found[:own, own].sum(axis=0)
    return found


def information_of(reading: Reading, coefficients: Coefficients) -> Floats:
    """Return the Hessian of the negative log likelihood of all rows, as `information` does.

    Parameters
    ----------
    reading
        Which rows, their weights and the layout.
    coefficients
        Where it is taken.
    """
    layout, encoder = reading.layout, reading.encoder()

    def one(segment: Segment) -> list[Floats]:
        batches = reading.batches(encoder, segment)
        return [information(coefficients, layout, batch, w) for batch, w in batches]

    shape = layout.n_outputs, layout.n_outputs, layout.n_rows, layout.n_rows
    found = np.zeros(shape)
    for some in engine.in_order(one, reading.source.segments(BLOCK_ROWS), reading.threads):
        for part in some:
            found += part
    return found


class _Columns(NamedTuple):
    """Rows as columns of codes and of numbers, with the row of the layout at which each begins.

    codes    unsigned codes of columns, and of pairs of them; those of known values come first
    starts   first row of each
    known    (m,) rows of each
    sizes    (m,) codes of each
    numbers  (1 + p, n_rows): ones, then numbers about their center, 0 where missing
    places   (1 + p,) row of each
    cells    of the whole job
    """

    codes: list[NDArray[np.unsignedinteger]]
    starts: list[int]
    known: list[int]
    sizes: NDArray[np.int64]
    numbers: Floats
    places: NDArray[np.int64]
    cells: float

    @classmethod
    def of(cls, coefficients: Coefficients, layout: Layout, batch: Batch) -> _Columns:
        """Return the columns of a batch; missing numbers are at their center."""
        rows, d = layout.rows, len(layout.sizes)
        codes, starts, known, sizes = [], [], [], []
        for group in with_pairs(batch.codes, coefficients.offsets, coefficients.pairs):
            for place, column in zip(group.features.tolist(), group.codes, strict=True):
                n_codes = int(coefficients.offsets[place + 1] - coefficients.offsets[place])
                values, start = n_codes - 2, int(rows.values[place]) if place < d else 0
                if place >= d:
                    # Pairs of known values as the layout has them, one code for all others.
                    a, b = (int(layout.sizes[j]) for j in coefficients.pairs[place - d])
                    v, w = np.divmod(column.astype(np.int64), b + 2)
                    values, start = a * b, int(rows.pairs[place - d])
                    n_codes = values + 1
                    column = np.where((v < a) & (w < b), v * b + w, values).astype(np.uint32)
                codes.append(column)
                starts.append(start)
                known.append(values)
                sizes.append(n_codes)
        z = np.ones((1 + layout.n_numeric, batch.n_rows))
        for j, x in enumerate(batch.numeric):
            z[1 + j] = np.nan_to_num((x - layout.center[j]) / layout.scale[j], nan=0.0)
        places = np.array([rows.intercept, *range(rows.numeric, rows.numeric + len(z) - 1)])
        return cls(codes, starts, known, np.array(sizes, np.int64), z, places, batch.cells)

    def product(self, weight: Floats, size: int) -> Floats:
        """Return the sum over rows of weight x xᵀ, (size, size)."""
        out = np.zeros((size, size))
        weighted = self.numbers * weight
        out[np.ix_(self.places, self.places)] = weighted @ self.numbers.T
        for code, start, known, n_codes in zip(
            self.codes, self.starts, self.known, self.sizes.tolist(), strict=True
        ):
            own = slice(start, start + known)
            for place, column in zip(self.places, weighted, strict=True):
                out[own, place] = out[place, own] = np.bincount(code, column, n_codes)[:known]
            np.fill_diagonal(out[own, own], out[own, self.places[0]])
        first, second = all_pairs(len(self.codes))
        n_cells = self.sizes[first] * self.sizes[second]
        begin = np.cumsum(n_cells) - n_cells
        cells, alone = np.zeros(int(n_cells.sum())), np.zeros(len(weight), np.uint8)
        dispatch.load("pairs", self.cells).add_pair_counts(
            *(self.codes, self.sizes, alone, weight, 1), *(first, second, begin, cells)
        )
        for i, j, at, n in zip(first, second, begin, n_cells, strict=True):
            block = cells[at : at + n].reshape(self.sizes[i], self.sizes[j])
            some = block[: self.known[i], : self.known[j]]
            one, other = self.starts[i], self.starts[j]
            out[one : one + self.known[i], other : other + self.known[j]] = some
            out[other : other + self.known[j], one : one + self.known[i]] = some.T
        return out
