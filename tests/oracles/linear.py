"""Naive twin of linear scores: one row, one class, one feature at a time, with `math` only."""

from __future__ import annotations

import math


def scores(prior, tables, offsets, center, slope, level, absent, pairs, codes, numeric):
    """Return rows of scores.

    codes[j][r] is the code of categorical feature j; numeric[j][r] a float, NaN where missing;
    tables has S_j + 2 rows for each feature, and (S_a + 2)(S_b + 2) for each pair after them.
    """
    n_rows = len(codes[0]) if len(codes) else len(numeric[0]) if len(numeric) else 0
    result = []
    for r in range(n_rows):
        row = []
        for c, start in enumerate(prior):
            terms = [float(start)]
            for j, column in enumerate(codes):
                terms.append(float(tables[int(offsets[j]) + int(column[r])][c]))
            for i, (a, b) in enumerate(pairs):
                rows_of_b = int(offsets[b + 1]) - int(offsets[b])
                code = int(codes[a][r]) * rows_of_b + int(codes[b][r])
                terms.append(float(tables[int(offsets[len(codes) + i]) + code][c]))
            for j, column in enumerate(numeric):
                x = float(column[r])
                if math.isnan(x):
                    terms.append(float(absent[j][c]))
                else:
                    terms.append(float(slope[j][c]) * (x - float(center[j])))
                    terms.append(float(level[j][c]))
            row.append(math.fsum(terms))
        result.append(row)
    return result
