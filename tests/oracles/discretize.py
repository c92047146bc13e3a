"""Fayyad and Irani (1993) on a list of rows, every cut of every range tried anew."""

from __future__ import annotations

import math
from collections import Counter

SAME = 1e-12


def mdl_cuts(rows):
    """Return the cut points of [(value, label, weight)], ascending."""
    rows = sorted(row for row in rows if row[2] > 0)
    values = [value for value, *_ in rows]
    n = weight_of(rows)
    tried = []
    for at in range(1, len(rows)):
        if values[at - 1] < values[at]:
            tried.append((scatter(rows[:at]) + scatter(rows[at:]), at))
    if not tried:
        return []
    noise = SAME * n * math.log(n) if n > 1 else 0.0
    least = min(tried)[0]
    best, at = next((s, at) for s, at in tried if s <= least + noise)
    if scatter(rows) - best <= noise:
        return []
    left, right = rows[:at], rows[at:]
    gain = (scatter(rows) - best) / n / math.log(2)
    k, k1, k2 = (len({label for _, label, _ in part}) for part in (rows, left, right))
    e, e1, e2 = (scatter(part) / weight_of(part) / math.log(2) for part in (rows, left, right))
    delta = math.log2(3**k - 2) - (k * e - k1 * e1 - k2 * e2)
    if gain <= (math.log2(max(n - 1, 1)) + delta) / n:
        return []
    return [*mdl_cuts(left), (values[at - 1] + values[at]) / 2, *mdl_cuts(right)]


def weight_of(rows):
    return math.fsum(weight for *_, weight in rows)


def scatter(rows):
    """Return N times the class entropy in nats."""
    counts = Counter()
    for _, label, weight in rows:
        counts[label] += weight
    n = weight_of(rows)
    return math.fsum(-c * math.log(c / n) for c in counts.values())
