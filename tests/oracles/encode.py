"""Codes from indices, integers and bits, one row at a time."""

from __future__ import annotations


def known(validity, bit_offset, r):
    if validity is None:
        return True
    bit = bit_offset + r
    return bool(int(validity[bit // 8]) >> (bit % 8) & 1)


def take(indices, validity, bit_offset, table, missing, out):
    limit = missing if table is None else len(table)
    inside = True
    for r in range(len(indices)):
        if not known(validity, bit_offset, r):
            out[r] = missing
        elif not 0 <= int(indices[r]) < limit:
            inside = False  # what out holds is then nobody's business
        else:
            out[r] = indices[r] if table is None else table[indices[r]]
    return inside


def spread(values, minimum, table, missing, validity, bit_offset, out):
    inside = True
    for r in range(len(values)):
        if not known(validity, bit_offset, r):
            out[r] = missing
        elif not 0 <= int(values[r]) - minimum < len(table):
            out[r] = missing + 1
            inside = False
        else:
            out[r] = table[int(values[r]) - minimum]
    return inside


def unpack(bitmap, bit_offset, n, validity, validity_offset, codes, out):
    for r in range(n):
        value = codes[1] if known(bitmap, bit_offset, r) else codes[0]
        out[r] = value if known(validity, validity_offset, r) else codes[2]


def min_max(values, validity, bit_offset):
    seen = [int(values[r]) for r in range(len(values)) if known(validity, bit_offset, r)]
    return (min(seen), max(seen)) if seen else (1, 0)
