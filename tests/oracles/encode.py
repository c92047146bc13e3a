"""Codes of integers in memory, one row at a time."""

from __future__ import annotations


def bit(bitmap, offset, r):
    return bool(int(bitmap[(offset + r) // 8]) >> (offset + r) % 8 & 1)


def values(pieces):
    """Return (integer, None where null, and its piece) of the rows of pieces.

    A piece is (values, bit of the first one or -1, validity, bit of its first row, rows).
    """
    found = []
    for p, (held, first, validity, valid_bit, n) in enumerate(pieces):
        for r in range(n):
            value = int(bit(held, first, r)) if first >= 0 else int(held[r])
            known = validity is None or bit(validity, valid_bit, r)
            found.append((value if known else None, p))
    return found


def codes(pieces, translations):
    """Return of every row the codes that it may have: several if no entry stands for it."""
    found = []
    for value, p in values(pieces):
        translation = translations[p]
        *entries, other, null = translation.table.tolist()
        entries = [*range(translation.own), *entries]
        place = None if value is None else value - translation.minimum
        if place is None:
            found.append({null})
        elif 0 <= place < len(entries):
            found.append({entries[place]})
        else:
            found.append({*entries, other, null, -1})
    return found
