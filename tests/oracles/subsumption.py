"""Values that others imply, one row at a time."""

from __future__ import annotations


def leave_out(x, y, implied, gap, out):
    for r in range(len(x)):
        if int(implied[int(x[r])]) == int(y[r]):
            out[r] = gap
