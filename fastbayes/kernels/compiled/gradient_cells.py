"""Cells of joint tables: filled from coefficients, and taken apart into their sums."""

from __future__ import annotations

from fastbayes.kernels.dispatch import kernel


@kernel
def fill_cells(theta, width, first, bounds, size, known, row, radix, pairs, start, table):
    """Write sums of coefficients: table[(start[g] + code) width + lane] = Σ theta[·, first + lane].

    theta  IN   (P, M) float64
    width  IN   lanes of a cell; those beyond the last output are 0
    first  IN   output of the first lane
    bounds, size, known, row, radix, pairs, start  IN  the plan
    table  OUT  (cells * width,) float64
    """
    used = min(theta.shape[1] - first, width)
    for g in range(bounds.size - 1):
        t = table[start[g] * width : start[g + 1] * width]
        t[:width] = 0.0
        for q in range(bounds[g], bounds[g + 1]):
            n = radix[q] * width
            # The first value's part is what the others are made of, so it is the last to change.
            for v in range(size[q] - 1, -1, -1):
                part = t[v * n : (v + 1) * n]
                part[:] = t[:n]
                if v < known[q] and row[q] >= 0:
                    for u in range(0, n, width):
                        for c in range(used):
                            part[u + c] += theta[row[q] + v, first + c]
    for i in range(pairs.shape[0]):
        g, a, b, row_of = pairs[i]
        for code in range(start[g + 1] - start[g]):
            v, w = code // radix[a] % size[a], code // radix[b] % size[b]
            if v < known[a] and w < known[b]:
                at = (start[g] + code) * width
                for c in range(used):
                    table[at + c] += theta[row_of + v * known[b] + w, first + c]


@kernel
def take_apart(acc, width, first, bounds, size, known, row, radix, pairs, start, out):
    """Add cells up to each coefficient's sum: out[·, first + lane] += Σ acc[cell width + lane].

    acc    OUT  (cells * width,) float64   sums of the cells; overwritten
    out    OUT  (P, M) float64
    The others as for `fill_cells`.
    """
    used = min(out.shape[1] - first, width)
    for i in range(pairs.shape[0]):
        g, a, b, row_of = pairs[i]
        for code in range(start[g + 1] - start[g]):
            v, w = code // radix[a] % size[a], code // radix[b] % size[b]
            if v < known[a] and w < known[b]:
                at = (start[g] + code) * width
                for c in range(used):
                    out[row_of + v * known[b] + w, first + c] += acc[at + c]
    for g in range(bounds.size - 1):
        t = acc[start[g] * width : start[g + 1] * width]
        # The last member's sums, then all its values into one: the next is then the last.
        for q in range(bounds[g + 1] - 1, bounds[g] - 1, -1):
            n = radix[q] * width
            if row[q] >= 0:
                for v in range(known[q]):
                    for c in range(used):
                        total = 0.0
                        for u in range(v * n + c, (v + 1) * n, width):
                            total += t[u]
                        out[row[q] + v, first + c] += total
            for v in range(1, size[q]):
                x, y = t[:n], t[v * n : (v + 1) * n]
                for u in range(n):
                    x[u] += y[u]
