"""Numpy twin of `fastbayes.kernels.compiled.reading.footers`, in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared import pages as p

Bytes = NDArray[np.uint8]

_DEEPEST = 11


def list_chunks(footer: Bytes, chunks: NDArray[np.int64]) -> bool:
    """Read where column chunks are; see the compiled twin."""
    chunks[...] = 0
    try:
        groups = _structure(footer[: -p.SLACK], 0, 0)[0].get(p.ROW_GROUPS, [])
        for group, row in zip(groups, chunks, strict=True):
            for column, chunk in zip(group[p.COLUMNS], row, strict=True):
                metadata = column.get(p.METADATA, {})
                for field, name in enumerate(p.CHUNK_FIELDS):
                    if name >= 0 and metadata.get(field) is not None:
                        chunk[name] = metadata[field]
                for encoding in metadata.get(p.ENCODINGS, []):
                    _need(0 <= encoding < 63)
                    chunk[p.CHUNK_ENCODINGS] |= 1 << encoding
                nulls = (metadata.get(p.STATISTICS) or {}).get(p.COUNT_OF_NULLS)
                chunk[p.CHUNK_NULLS] = 0 if nulls is None else max(nulls, -1) + 1
                chunk[p.CHUNK_ELSEWHERE] = not {1, 8, 9}.isdisjoint(column)
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
        return False
    return True


def _structure(source: Bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a structure of Thrift's compact protocol, and the place behind it."""
    fields: dict[int, Any] = {}
    field = 0
    while True:
        head, at = _byte(source, at)
        if head & 15 == 0:
            return fields, at
        field += head >> 4
        if head >> 4 == 0:
            value, at = _varint(source, at)
            field = _signed(value)
        found = None
        if head & 15 > 2:  # a truth value has no bytes of its own
            found, at = _element(source, at, head & 15, depth)
        before = fields.setdefault(field, found)
        # What comes twice is read into the same structure, and skipped if it is of another type.
        if isinstance(found, dict) and isinstance(before, dict):
            fields[field] = before | found
        elif found is not None:
            fields[field] = found


def _element(source: Bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return an integer, a list or the fields of a structure; of what else there is None."""
    if kind <= 3 or kind == 7:
        return None, at + (8 if kind == 7 else 1)
    if kind in (4, 5, 6):
        value, at = _varint(source, at)
        return (None if kind == 4 else _signed(value)), at
    if kind == 8:
        value, at = _varint(source, at)
        return None, at + value
    _need(kind in (9, 10, 12) and depth < _DEEPEST)
    if kind == 12:
        return _structure(source, at, depth + 1)
    head, at = _byte(source, at)
    n, found = head >> 4, []
    if n == 15:
        n, at = _varint(source, at)
    _need(n <= len(source) - at)  # each takes a byte at least
    for _ in range(n):
        value, at = _element(source, at, head & 15, depth + 1)
        found.append(value)
    return found, at


def _byte(source: Bytes, at: int) -> tuple[int, int]:
    return int(source[at]), at + 1


def _varint(source: Bytes, at: int) -> tuple[int, int]:
    found = 0
    for k in range(10):
        digit, at = _byte(source, at)
        found |= (digit & 127) << 7 * k
        if digit < 128:
            return found, at
    raise ValueError("a number of more than ten bytes")


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _need(holds: bool) -> None:
    if not holds:
        raise ValueError("the footer is not sound")
