"""Leave-one-out losses of nested models, in numpy: the twin of `compiled.nested`.

Probabilities are products of ratios of counts less the row itself. They are scaled on the way, and
one that falls below `LEAST` of the largest or so stays there: products neither overflow nor vanish.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.nested import (
    CLIP,
    LEAST,
    ROUNDING,
    TIE,
    Averages,
    NestedRows,
    Networks,
)


def add_network_losses(model: Networks, rows: NestedRows, loss: Floats, errors: Floats) -> None:
    """Add the losses of every k and every number of features; see the compiled twin."""
    m, most = model.parents.shape
    n, k = rows.prior.shape
    mine, every = _own(rows), np.arange(k)
    posteriors = [_scaled(rows.prior) for _ in range(most + 1)]
    for level, posterior in enumerate(posteriors):
        _add(posterior, rows, loss[level, :1], errors[level, :1])
    for j in range(m):
        value, size = rows.states[j].astype(np.int64), int(model.sizes[j])
        whole, joint, ratio = value >= 0, np.zeros(n, np.int64), np.ones((n, k))
        for level, posterior in enumerate(posteriors):
            p = int(model.parents[j, level - 1]) if level else j
            whole = whole & (rows.states[p] >= 0) if p >= 0 else np.zeros_like(whole)
            some = np.flatnonzero(whole)
            if level:
                joint[some] = joint[some] * int(model.sizes[p]) + rows.states[p][some]
            cell = (joint[some] * size + value[some])[:, None] * k + every
            ratio[some] = _ratio(
                model.counts[model.cells[j, level] + cell],
                model.counts[model.margins[j, level] + joint[some][:, None] * k + every],
                *(mine[some], model.mass, size),
            )
            posterior[:] = _scaled(posterior * ratio)
            at = slice(j + 1, j + 2)
            _add(posterior, rows, loss[level, at], errors[level, at])


def add_average_losses(model: Averages, rows: NestedRows, loss: Floats, errors: Floats) -> None:
    """Add the losses of every number of features; see the compiled twin."""
    m, (n, k) = len(model.sizes), rows.prior.shape
    mine, every = _own(rows), np.arange(k)
    naive = _scaled(rows.prior)
    _add(naive, rows, loss[:1], errors[:1])
    seen, at = rows.states >= 0, model.offsets[:, None] + np.maximum(rows.states, 0)
    # What each super-parent says; 0 where it is none.
    each, parent = np.zeros((m, n, k)), np.zeros((m, n), np.bool_)
    scales = np.ones((m, n, 1))
    for j in range(m):
        size, alone, known = float(model.sizes[j]), model.alone[at[j]], model.known[j]
        given = _ratio(alone, known, mine, model.child[j], size)
        naive = np.where(seen[j][:, None], _scaled(naive * given), naive)
        if model.given:
            own = rows.prior * _ratio(alone, known, mine, model.joint[j], size)
        else:
            total = _less(known.sum(), rows.gone)[:, None]
            own = _divided(_less(alone, mine), total, model.joint[j], size * k)
        often = _less(alone.sum(axis=1), rows.gone) >= model.least * (1 - ROUNDING)
        parent[j] = seen[j] & often & (model.weight[j] > 0)
        each[j] = np.where(parent[j][:, None], model.weight[j] * own, 0.0)
        for p in range(j):
            both = (seen[p] & seen[j])[:, None]
            a, b = at[p] - model.offsets[p], at[j] - model.offsets[j]
            cell = model.cells[p, j] + a * model.steps[p, j] + b * model.steps[j, p]
            count = model.counts[cell[:, None] + every]
            for above, below in ((p, j), (j, p)):
                ratio = _ratio(
                    *(count, model.together[at[above], below], mine),
                    *(model.child[below], float(model.sizes[below])),
                )
                each[above] = np.where(both, each[above] * ratio, each[above])
            # What the others were scaled by on the way.
            each[j] *= scales[p]
        so_far = each[: j + 1]
        largest = so_far.max(axis=(0, 2))[:, None]
        scales[j] = 1.0 / np.where(largest > 0, largest, 1.0)
        so_far *= scales[j]
        so_far[(so_far > 0) & (so_far < LEAST)] = LEAST
        some = np.asarray(parent.any(axis=0))
        mean = np.where(some[:, None], so_far.sum(axis=0), naive)
        _add(_scaled(mean), rows, loss[j + 1 : j + 2], errors[j + 1 : j + 2])


def _own(rows: NestedRows) -> Floats:
    """Return what each row takes out of the counts of each class, (n, K)."""
    return rows.gone[:, None] * (rows.y[:, None] == np.arange(rows.prior.shape[1]))


def _less(n: NDArray[np.float64] | float, gone: Floats) -> Floats:
    left = n - gone
    return np.where(left > ROUNDING * np.asarray(n), left, 0.0)


def _ratio(n: Floats, total: Floats, gone: Floats, mass: float, size: float) -> Floats:
    return _divided(_less(n, gone), _less(total, gone), mass, size)


def _divided(n: Floats, total: Floats, mass: float, size: float) -> Floats:
    """Return (n + mass) / (total + size mass); 0/0 is its limit 1/size."""
    below = total + size * mass
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, (n + mass) / below, 1.0 / max(size, 1))


def _scaled(joint: Floats) -> Floats:
    """Return the rows scaled to sum to 1, those of zeros as they are."""
    total = joint.sum(axis=1, keepdims=True)
    scaled = joint / np.where(total > 0, total, 1.0)
    scaled[(scaled > 0) & (scaled < LEAST)] = LEAST
    return scaled


def _add(posterior: Floats, rows: NestedRows, loss: Floats, errors: Floats) -> None:
    """Add the losses of rows with these posteriors; a row of zeros gets the prior."""
    lost = ~(posterior > 0).any(axis=1, keepdims=True)
    posterior = np.where(lost, rows.prior, posterior)
    true = np.take_along_axis(posterior, rows.y[:, None], axis=1)
    loss -= rows.weight @ np.log(np.maximum(true, CLIP))
    before = np.arange(posterior.shape[1]) < rows.y[:, None]
    better: NDArray[np.bool_] = posterior > np.where(before, true * (1 - TIE), true * (1 + TIE))
    better[np.arange(len(rows.y)), rows.y] = False
    errors += rows.weight @ better.any(axis=1)
