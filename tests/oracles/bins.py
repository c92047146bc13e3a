"""Bins of numbers, one row and one cut at a time."""

from __future__ import annotations

import math


def assign(values, cuts, missing, out):
    for r in range(len(values)):
        x = float(values[r])
        out[r] = missing if math.isnan(x) else sum(float(cut) < x for cut in cuts)
