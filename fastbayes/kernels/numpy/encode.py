"""Numpy twins of `fastbayes.kernels.compiled.encode`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.numpy.texts import add_texts as add_texts
from fastbayes.kernels.numpy.texts import find_texts as find_texts
from fastbayes.kernels.numpy.texts import indexed as indexed


def take(
    indices: NDArray[np.integer],
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    table: NDArray[np.uint32] | None,
    missing: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    """Write the codes of dictionary indices; see the compiled twin."""
    known = _bits(validity, bit_offset, len(indices))
    outside = (indices < 0) | (indices >= (missing if table is None else len(table)))
    index = np.where(outside, 0, indices).astype(np.intp)
    codes: NDArray[np.integer] = index
    if table is not None:
        codes = table[index] if len(table) else np.full(len(indices), missing)
    out[:] = np.where(known, codes, missing)
    return not np.any(outside & known)


def take_columns(
    columns: Sequence[NDArray[np.uint32]],
    tables: Sequence[NDArray[np.uint32] | None],
    rows: Sequence[int],
    out: NDArray[np.uint8],
) -> NDArray[np.uint32]:
    """Write the codes of several columns without nulls; see the compiled twin."""
    for column, table, row in zip(columns, tables, rows, strict=True):
        out[row] = column if table is None else table.take(column, mode="clip")
    return np.array([column.max(initial=0) for column in columns], np.uint32)


def spread(
    values: NDArray[np.int64],
    minimum: int,
    table: NDArray[np.uint32],
    missing: int,
    validity: NDArray[np.uint8] | None,
    bit_offset: int,
    out: NDArray[np.unsignedinteger],
) -> bool:
    """Write the codes of integers in a range; see the compiled twin."""
    known = _bits(validity, bit_offset, len(values))
    outside = (values < minimum) | (values > minimum + len(table) - 1)
    # The difference wraps outside the range, where it is not used.
    index = np.where(outside, 0, values - np.int64(minimum))
    codes = table[index] if len(table) else 0
    codes = np.where(outside, missing + 1, codes)
    out[:] = np.where(known, codes, missing).astype(out.dtype)
    return not np.any(outside & known)


def unpack(
    bitmap: NDArray[np.uint8],
    bit_offset: int,
    n: int,
    validity: NDArray[np.uint8] | None,
    validity_offset: int,
    codes: NDArray[np.unsignedinteger],
    out: NDArray[np.unsignedinteger],
) -> None:
    """Write the codes of Arrow booleans; see the compiled twin."""
    values = _bits(bitmap, bit_offset, n)
    known = _bits(validity, validity_offset, n)
    out[:] = np.where(known, np.where(values, codes[1], codes[0]), codes[2])


def min_max(
    values: NDArray[np.int64], validity: NDArray[np.uint8] | None, bit_offset: int
) -> tuple[int, int]:
    """Return the least and the greatest known value, (1, 0) if there is none."""
    if validity is not None:
        values = values[_bits(validity, bit_offset, len(values))]
    return (int(values.min()), int(values.max())) if len(values) else (1, 0)


def _bits(bitmap: NDArray[np.uint8] | None, bit_offset: int, n: int) -> NDArray[np.bool_]:
    """Return n bits of an Arrow bitmap (least significant first); no bitmap, all set."""
    if bitmap is None:
        return np.ones(n, np.bool_)
    first, last = bit_offset // 8, (bit_offset + n + 7) // 8
    bits = np.unpackbits(bitmap[first:last], bitorder="little")
    return bits[bit_offset % 8 :][:n].view(np.bool_)
