"""A sketch as it is defined: every shift is tried on all rows together."""

from __future__ import annotations

import math
import struct

FRACTION = 2**44


def key(number):
    """Return the integer that has the place of the number among all numbers."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number + 0.0))
    return 2**64 - 1 - bits if bits >> 63 else bits + 2**63


def entries(values, labels, weights, limit, few):
    """Return (shift, sorted [label, least, greatest, whole, fraction])."""
    rows = []
    for value, label, weight in zip(values, labels, weights, strict=True):
        units = math.floor(weight) * FRACTION + int((weight - math.floor(weight)) * FRACTION)
        if not math.isnan(value) and units:
            rows.append((int(label), key(float(value)), units))
    if sum(units for *_, units in rows) // FRACTION <= few:
        limit = few
    for shift in range(64):
        held = {}
        for label, k, units in rows:
            low, high, sum_ = held.get((label, k >> shift), (k, k, 0))
            held[label, k >> shift] = min(low, k), max(high, k), sum_ + units
        if len(held) <= limit or shift == 63:
            return shift, sorted(
                [label, low, high, *divmod(units, FRACTION)]
                for (label, _), (low, high, units) in held.items()
            )
    raise AssertionError
