"""Codes of integers in memory, one row at a time."""

from __future__ import annotations


def bit(bitmap, offset, r):
    return bool(int(bitmap[(offset + r) // 8]) >> (offset + r) % 8 & 1)


def values(column, n):
    """Return the integers of n rows, None where null."""
    found = []
    for r in range(n):
        value = int(bit(column.values, column.bit, r)) if column.bit >= 0 else int(column.values[r])
        known = column.validity is None or bit(column.validity, column.valid_bit, r)
        found.append(value if known else None)
    return found


def codes(column, translation, n):
    """Return codes, known rows that no entry stands for, and rows of the watched code."""
    *entries, other, null = translation.table.tolist()
    entries = [*range(translation.own), *entries]
    found, outside = [], 0
    for value in values(column, n):
        place = None if value is None else value - translation.minimum
        inside = place is not None and 0 <= place < len(entries)
        outside += place is not None and not inside
        found.append(null if place is None else entries[place] if inside else other)
    return found, outside, found.count(translation.watched)
