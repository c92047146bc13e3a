"""Leave-one-out losses of nested models: every smaller model on the way to the largest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, writes
from fastbayes.kernels.shared.arrays import Floats, U
from fastbayes.kernels.shared.nested import (
    CLIP,
    LEAST,
    ROUNDING,
    TIE,
    Averages,
    NestedRows,
    Networks,
)

# A product of probabilities below this takes no other factor; joints below that are scaled.
FULL, FADED = 1e-250, 1e-100

_INT, _FLOAT = "int64", "float64"
_ROWS = (
    reads("int32", 2), reads(_INT), reads(_FLOAT, 2), reads(_FLOAT), reads(_FLOAT)
)  # fmt: skip

SIGNATURES: dict[str, list[tuple[str, ...]]] = {
    "network_losses": [
        (
            *(reads(_INT, 2), reads(_INT), reads(_INT, 2), reads(_INT, 2), reads(_FLOAT), _FLOAT),
            *(*_ROWS, *[writes(_FLOAT, 2)] * 4),
        )
    ],
    "average_losses": [
        (
            *(reads(_INT), reads(_INT), reads(_INT, 2), reads(_INT, 2), reads(_FLOAT)),
            *(reads(_FLOAT, 3), reads(_FLOAT, 2), reads(_FLOAT, 2), reads(_FLOAT), _FLOAT),
            *(reads(_FLOAT), reads(_FLOAT), "bool", reads(_FLOAT, 3)),
            *(*_ROWS, *[writes(_FLOAT, 2)] * 2, *[writes(_FLOAT)] * 4),
        )
    ],
}


def add_network_losses(model: Networks, rows: NestedRows, loss: Floats, errors: Floats) -> None:
    """Add the losses of every k and every number of features of a k-dependence structure.

    loss[k, j] += -sum_r w_r ln P(y_r | x_r) of the first j features with their first k parents,
    by counts from which row r is taken; errors likewise the weight of the rows whose most
    probable class is another. Where a parent is not observed, those before it are the parents.

    loss, errors  OUT  (most + 1, m + 1) float64
    """
    k, most = rows.prior.shape[1], model.parents.shape[1]
    network_losses(
        *_arrays(model),
        *_arrays(rows),
        *(np.empty((most + 1, k)), np.ones(loss.shape), loss, errors),
    )


def add_average_losses(model: Averages, rows: NestedRows, loss: Floats, errors: Floats) -> None:
    """Add the losses of AODE of every number of features.

    loss[j] += -sum_r w_r ln P(y_r | x_r) of the first j features, by counts from which row r is
    taken; errors likewise the weight of the rows whose most probable class is another.

    loss, errors  OUT  (m + 1,) float64
    """
    k, m = rows.prior.shape[1], len(model.sizes)
    below = model.together + (model.sizes * model.child)[:, None]
    inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)
    average_losses(
        *_arrays(model),
        readonly(inverse),
        *_arrays(rows),
        *(np.empty((m, k)), np.empty((2, k)), np.empty(m), np.ones(m + 1), loss, errors),
    )


def _arrays(parts: tuple[Any, ...]) -> Iterator[Any]:
    return (readonly(part) if isinstance(part, np.ndarray) else part for part in parts)


@helper
def less(n, gone):
    """Return what is left of a count; what rounding leaves of it is 0."""
    left = n - gone
    return left if left > ROUNDING * n else 0.0


@helper
def divided(n, total, mass, size):
    """Return (n + mass) / (total + size mass); 0/0 is its limit 1/size."""
    below = total + size * mass
    return (n + mass) / below if below > 0.0 else 1.0 / size


@helper
def times(x, factor):
    """Return a product that is 0 only where a factor is."""
    product = x * factor
    return LEAST if product < LEAST and x > 0.0 and factor > 0.0 else product


# Unsigned indices, and no views: three times as fast as the plain loops.
@kernel
def network_losses(
    parents, sizes, cells, margins, counts, mass,
    states, y, prior, weight, gone, joint, kept, loss, errors,
):  # fmt: skip
    """See `add_network_losses`.

    parents ... mass   IN   `Networks`
    states ... gone    IN   `NestedRows`
    joint   OUT  (most + 1, K) float64       scratch
    kept    OUT  (most + 1, m + 1) float64   ones; products of probabilities not yet taken
    loss, errors  OUT  (most + 1, m + 1) float64
    """
    m, levels, k = U(sizes.size), U(joint.shape[0]), U(joint.shape[1])
    for r in range(y.size):
        c_r, w, g = U(y[r]), weight[r], gone[r]
        for level in range(levels):
            for c in range(k):
                joint[level, c] = prior[r, c]
        j = U(0)
        while j <= m:
            # Before the first feature the prior is judged.
            f = j - U(1) if j > U(0) else U(0)
            seen = j > U(0) and states[f, r] >= 0
            value, size, whole = U(states[f, r]), U(sizes[f]), seen
            at, cell, margin, own = U(0), U(0), U(0), 1.0
            for level in range(levels):
                if whole and level > U(0):
                    p = parents[f, level - U(1)]
                    whole = p >= 0 and states[U(p), r] >= 0
                    if whole:
                        at = at * U(sizes[U(p)]) + U(states[U(p), r])
                if whole:
                    cell = U(cells[f, level]) + (at * size + value) * k
                    margin = U(margins[f, level]) + at * k
                    n, total = less(counts[cell + c_r], g), less(counts[margin + c_r], g)
                    own = divided(n, total, mass, size)
                total = 0.0
                for c in range(k):
                    x = joint[level, c]
                    if seen:
                        factor = own
                        if c != c_r:
                            factor = divided(counts[cell + c], counts[margin + c], mass, size)
                        x = times(x, factor)
                        joint[level, c] = x
                    total += x
                lost = not total > 0.0
                true = prior[r, c_r] if lost else joint[level, c_r]
                wrong, c = False, U(0)
                while c < k:
                    x = prior[r, c] if lost else joint[level, c]
                    wrong |= (c != c_r) & (x > true * (1.0 - TIE if c < c_r else 1.0 + TIE))
                    c += U(1)
                errors[level, j] += w if wrong else 0.0
                q = max(true if lost else true / total, CLIP)
                if w == 1.0:
                    # Logarithms of products: the next factor is CLIP at least.
                    q *= kept[level, j]
                    kept[level, j] = 1.0 if q < FULL else q
                if w != 1.0 or q < FULL:
                    loss[level, j] -= w * np.log(q)
                if total < FADED and total > 0.0:
                    for c in range(k):
                        joint[level, c] /= total
            j += U(1)
    for level in range(levels):
        for j in range(m + U(1)):
            loss[level, j] -= np.log(kept[level, j])


@kernel
def average_losses(
    sizes, offsets, cells, steps, counts, together, alone, known, parent_weight, least, child,
    own, given, inverse, states, y, prior, weight, gone, each, naive, scales, kept, loss, errors,
):  # fmt: skip
    """See `add_average_losses`.

    sizes ... given    IN   `Averages`
    inverse            IN   (n_states, m, K) float64   1 / (together + size child), 0 for 1 / 0
    states ... gone    IN   `NestedRows`
    each    OUT  (m, K) float64     scratch: what each super-parent says
    naive   OUT  (2, K) float64     scratch: naive Bayes, and the sum of super-parents
    scales  OUT  (m,) float64       scratch: what each step scaled by
    kept    OUT  (m + 1,) float64   ones; products of probabilities not yet taken
    loss, errors  OUT  (m + 1,) float64
    """
    m, k = U(sizes.size), U(naive.shape[1])
    for r in range(y.size):
        c_r, w, g = U(y[r]), weight[r], gone[r]
        for c in range(k):
            naive[0, c] = prior[r, c]
        parents = False
        s = U(0)
        while s <= m:
            j = s - U(1) if s > U(0) else U(0)
            scales[j] = 1.0
            if s > U(0):
                for c in range(k):
                    each[j, c] = 0.0
            if s > U(0) and states[j, r] >= 0:
                value, size = U(states[j, r]), float(sizes[j])
                at, occurs, total, sum_of = U(offsets[j]) + value, 0.0, 0.0, 0.0
                for c in range(k):
                    mine = g if c == c_r else 0.0
                    n, n_c = less(alone[at, c], mine), less(known[j, c], mine)
                    naive[0, c] = times(naive[0, c], divided(n, n_c, child[j], size))
                    sum_of += naive[0, c]
                    occurs += alone[at, c]
                    total += known[j, c]
                if sum_of < FADED and sum_of > 0.0:
                    for c in range(k):
                        naive[0, c] /= sum_of
                if less(occurs, g) >= least * (1.0 - ROUNDING) and parent_weight[j] > 0.0:
                    parents = True
                    for c in range(k):
                        mine = g if c == c_r else 0.0
                        n, n_c = less(alone[at, c], mine), less(known[j, c], mine)
                        if given:
                            share = prior[r, c] * divided(n, n_c, own[j], size)
                        else:
                            share = divided(n, less(total, g), own[j], size * k)
                        each[j, c] = parent_weight[j] * share
                largest = 0.0
                i = U(0)
                while i < j:
                    if states[i, r] < 0:
                        for c in range(k):
                            each[j, c] *= scales[i]
                            largest = max(largest, each[i, c])
                    else:
                        above = U(offsets[i]) + U(states[i, r])
                        cell = U(
                            cells[i, j] + states[i, r] * steps[i, j] + states[j, r] * steps[j, i]
                        )
                        other = float(sizes[i])
                        n = less(counts[cell + c_r], g)
                        under = less(together[above, j, c_r], g)
                        own_of_i = divided(n, under, child[j], size)
                        under = less(together[at, i, c_r], g)
                        own_of_j = divided(n, under, child[i], other)
                        # The others were scaled on the way.
                        behind = scales[i]
                        for c in range(k):
                            n, of_i, of_j = counts[cell + c], own_of_i, own_of_j
                            if c != c_r:
                                of_i, of_j = inverse[above, j, c], inverse[at, i, c]
                                of_i = (n + child[j]) * of_i if of_i > 0.0 else 1.0 / size
                                of_j = (n + child[i]) * of_j if of_j > 0.0 else 1.0 / other
                            x = times(each[i, c], of_i)
                            each[i, c] = x
                            largest = max(largest, x)
                            each[j, c] = times(each[j, c], of_j) * behind
                    i += U(1)
                for c in range(k):
                    largest = max(largest, each[j, c])
                if largest < FADED and largest > 0.0:
                    scales[j] = 1.0 / largest
                    for i in range(s):
                        for c in range(k):
                            each[i, c] *= scales[j]
            total = 0.0
            for c in range(k):
                x = naive[0, c]
                if parents:
                    x = 0.0
                    for i in range(s):
                        x += each[i, c]
                naive[1, c] = x
                total += x
            lost = not total > 0.0
            true = prior[r, c_r] if lost else naive[1, c_r]
            wrong = False
            for c in range(k):
                x = prior[r, c] if lost else naive[1, c]
                wrong |= (c != c_r) & (x > true * (1.0 - TIE if c < c_r else 1.0 + TIE))
            errors[s] += w if wrong else 0.0
            q = max(true if lost else true / total, CLIP)
            if w == 1.0:
                q *= kept[s]
                kept[s] = 1.0 if q < FULL else q
            if w != 1.0 or q < FULL:
                loss[s] -= w * np.log(q)
            s += U(1)
    for s in range(m + U(1)):
        loss[s] -= np.log(kept[s])
