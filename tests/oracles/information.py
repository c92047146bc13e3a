"""Conditional mutual information, one cell at a time, in forty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext


def pair_information(flat, first, second, starts, sizes, widths, n_classes, out):
    for q in range(len(out)):
        i, j = int(first[q]), int(second[q])
        cells = {}
        for a in range(int(sizes[i])):
            for b in range(int(sizes[j])):
                for c in range(n_classes):
                    at = int(starts[q]) + (a * int(widths[j]) + b) * n_classes + c
                    cells[a, b, c] = flat[at].item()
        out[q] = information(cells)


def information(cells):
    """Return I(A; B | C) in nats of counts {(a, b, c): n}; 0 where there are none."""
    with localcontext(prec=40):
        n_ac, n_bc, n_c = {}, {}, {}
        counts = {key: Decimal(float(n)) for key, n in cells.items() if n > 0}
        for (a, b, c), n in counts.items():
            n_ac[a, c] = n_ac.get((a, c), 0) + n
            n_bc[b, c] = n_bc.get((b, c), 0) + n
            n_c[c] = n_c.get(c, 0) + n
        terms = [
            n * (n * n_c[c] / (n_ac[a, c] * n_bc[b, c])).ln() for (a, b, c), n in counts.items()
        ]
        return float(sum(terms) / sum(n_c.values())) if counts else 0.0


def class_information(counts, offsets, sizes):
    result = []
    for j, size in enumerate(sizes):
        rows = counts[offsets[j] : offsets[j] + size]
        cells = {(v, c, 0): rows[v, c].item() for v in range(size) for c in range(rows.shape[1])}
        result.append(information(cells))
    return result
