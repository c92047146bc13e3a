"""Leave-one-out losses of nested models: every model by itself, every count anew for every row.

Rows are lists of states, None where a feature is not observed.
"""

from __future__ import annotations

import math


class Left:
    """What is left of the rows without one of them."""

    def __init__(self, rows, y, weights, gone):
        self.rows = rows, y
        self.weights = [w - min(w, 1) if r == gone else w for r, w in enumerate(weights)]

    def count(self, c, cells):
        """Weight of the rows of a class (None: of any) in which these cells are so."""
        total = math.fsum(
            w
            for row, label, w in zip(*self.rows, self.weights, strict=True)
            if c in (None, label)
            and all(row[j] is not None and v in (None, row[j]) for j, v in cells)
        )
        return total if total > 1e-12 else 0.0


def ratio(n, total, mass, size):
    below = total + size * mass
    return (n + mass) / below if below > 0 else 1 / size


def judged(joint, prior, y, weight):
    """Return the loss of one row, and its error."""
    joint = joint if sum(joint) > 0 else prior
    p = joint[y] / sum(joint)
    best = max(joint)
    first = next(c for c, value in enumerate(joint) if value > best * (1 - 1e-12))
    return -weight * math.log(max(p, 1e-15)), weight * (first != y)


def network_losses(rows, y, weights, priors, parents, sizes, mass, levels):
    n_classes, m = len(priors[0]), len(sizes)
    loss = [[0.0] * (m + 1) for _ in range(levels)]
    errors = [[0.0] * (m + 1) for _ in range(levels)]
    for r, row in enumerate(rows):
        left = Left(rows, y, weights, r)
        for level in range(levels):
            joint = list(priors[r])
            for j in range(m + 1):
                if j and row[j - 1] is not None:
                    above = []
                    for p in parents[j - 1][:level]:
                        if row[p] is None:
                            break
                        above.append((p, row[p]))
                    for c in range(n_classes):
                        n = left.count(c, [*above, (j - 1, row[j - 1])])
                        total = left.count(c, [*above, (j - 1, None)])
                        joint[c] *= ratio(n, total, mass, sizes[j - 1])
                added = judged(joint, priors[r], y[r], weights[r])
                loss[level][j] += added[0]
                errors[level][j] += added[1]
    return loss, errors


def average_losses(rows, y, weights, priors, sizes, told):
    """`told`: of each feature (weight, mass as child, mass with the class), least count, given."""
    n_classes, m = len(priors[0]), len(sizes)
    each, least, given = told
    loss, errors = [0.0] * (m + 1), [0.0] * (m + 1)
    for r, row in enumerate(rows):
        left = Left(rows, y, weights, r)
        for m_taken in range(m + 1):
            seen = [j for j in range(m_taken) if row[j] is not None]
            joint, parents = [0.0] * n_classes, 0
            for p in seen:
                weight, _, mass = each[p]
                if weight == 0 or left.count(None, [(p, row[p])]) < least * (1 - 1e-12):
                    continue
                parents += 1
                for c in range(n_classes):
                    n, known = left.count(c, [(p, row[p])]), left.count(c, [(p, None)])
                    if given:
                        q = priors[r][c] * ratio(n, known, mass, sizes[p])
                    else:
                        everyone = left.count(None, [(p, None)])
                        q = ratio(n, everyone, mass, sizes[p] * n_classes)
                    for j in seen:
                        if j != p:
                            n = left.count(c, [(p, row[p]), (j, row[j])])
                            total = left.count(c, [(p, row[p]), (j, None)])
                            q *= ratio(n, total, each[j][1], sizes[j])
                    joint[c] += weight * q
            if not parents:
                joint = list(priors[r])
                for c in range(n_classes):
                    for j in seen:
                        n, known = left.count(c, [(j, row[j])]), left.count(c, [(j, None)])
                        joint[c] *= ratio(n, known, each[j][1], sizes[j])
            added = judged(joint, priors[r], y[r], weights[r])
            loss[m_taken] += added[0]
            errors[m_taken] += added[1]
    return loss, errors
