"""Footers of Parquet files: where the column chunks are, and what it says of each.

No byte of a file is believed. What is read is Thrift's compact protocol, as in headers of pages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.unaligned import byte, span_of
from fastbayes.kernels.dispatch import (
    helper,
    interpreted,
    kernel,
    numpy_twin,
    readonly,
    reads,
    writes,
)
from fastbayes.kernels.shared import pages as p

U = np.uint64
# The most structures and lists within one another.
_DEEPEST = 12
_CHUNK_FIELDS = np.array(p.CHUNK_FIELDS)

SIGNATURES = {
    "find_chunks": [(reads("uint8"), "int64", writes("int64", 2), writes("int64", 2))],
}


def list_chunks(footer: NDArray[np.uint8], chunks: NDArray[np.int64]) -> bool:
    """Read where column chunks are; return whether the footer tells of as many, and is sound.

    footer  IN   uint8   with SLACK bytes behind it
    chunks  OUT  (n_groups, n_columns, N_CHUNK) int64
    """
    if interpreted():  # without the compiler there are no pointers
        return bool(numpy_twin("reading.footers").list_chunks(footer, chunks))
    n_groups, n_columns, _ = chunks.shape
    chunks[...] = 0
    flat = chunks.reshape(-1, p.N_CHUNK)
    found = find_chunks(readonly(footer), n_columns, flat, np.zeros((2, _DEEPEST), np.int64))
    return bool(found == n_groups * n_columns)


@kernel
def find_chunks(footer, n_columns, chunks, opened):
    """Read the footer, Thrift's compact protocol; return its number of chunks, -1 if unsound.

    See `list_chunks`; chunks is (n_chunks, N_CHUNK), opened scratch of zeros, (2, _DEEPEST).
    """
    x, at, end = span_of(footer), 0, footer.size - p.SLACK
    # for each structure or list that is open: its field or kind, and elements to come (list)
    field, left = opened[0], opened[1]
    left[0] = -1
    depth, row = 0, -1
    while True:
        if left[depth] == 0:
            depth -= 1
            continue
        if at >= end:
            return -1
        kind, value = field[depth], 0
        if left[depth] > 0:
            left[depth] -= 1
        else:
            head = byte(x, at)
            at += 1
            kind = head & 15
            if kind == 0:
                depth -= 1
                if depth < 0:
                    return row + 1
                continue
            field[depth] += head >> 4
            if head >> 4 == 0:
                value, at = read_varint(x, at, end)
                if at < 0:
                    return -1
                field[depth] = zigzag(value)
        within = field[0] == p.ROW_GROUPS and depth >= 4 and field[2] == p.COLUMNS
        if within and depth == 4 and (field[4] in (1, 8, 9)):
            chunks[row, p.CHUNK_ELSEWHERE] = 1
        within = within and depth >= 5 and field[4] == p.METADATA
        if kind in (4, 5, 6, 8):
            value, at = read_varint(x, at, end)
            if at < 0:
                return -1
        if kind in (5, 6):
            value = zigzag(value)
            if within and depth == 5 and 0 <= field[5] < len(p.CHUNK_FIELDS):
                name = _CHUNK_FIELDS[field[5]]
                if name >= 0:
                    chunks[row, name] = value
            if within and depth == 6 and field[5] == p.ENCODINGS:
                if not 0 <= value < 63:
                    return -1
                chunks[row, p.CHUNK_ENCODINGS] |= 1 << value
            of_nulls = depth == 6 and field[5] == p.STATISTICS and field[6] == p.COUNT_OF_NULLS
            if within and of_nulls and left[6] < 0:
                chunks[row, p.CHUNK_NULLS] = max(value, -1) + 1
        elif kind == 8:
            if value < 0 or value > end - at:
                return -1
            at += value
        elif kind == 3 or (kind <= 2 and left[depth] >= 0):
            at += 1
        elif kind == 7:
            at += 8
        elif kind in (9, 10, 12):
            if depth + 1 == _DEEPEST:
                return -1
            depth += 1
            field[depth], left[depth] = 0, -1
            if kind != 12:
                if at >= end:
                    return -1
                head = byte(x, at)
                at += 1
                value = head >> 4
                if value == 15:
                    value, at = read_varint(x, at, end)
                    if at < 0 or value < 0:
                        return -1
                field[depth], left[depth] = head & 15, value
                columns = depth == 3 and field[0] == p.ROW_GROUPS and field[2] == p.COLUMNS
                if columns and (value != n_columns or head & 15 != 12):
                    return -1
            elif depth == 4 and field[0] == p.ROW_GROUPS and field[2] == p.COLUMNS:
                row += 1
                if row == chunks.shape[0]:
                    return -1
        elif kind > 2 and kind != 4:
            return -1


@helper
def read_varint(body, at, end):
    """Return a number of 7 bits a byte and the place behind it: -1 if cut off, -2 if too long."""
    found, shift = 0, 0
    while shift < 64:
        if at >= end:
            return 0, -1
        digit = byte(body, at)
        at += 1
        found |= (digit & 127) << shift
        if digit < 128:
            return found, at
        shift += 7
    return 0, -2


@helper
def zigzag(number):
    """Return the signed number that Thrift writes as this one."""
    return np.int64(U(number) >> U(1)) ^ -(number & 1)
