"""From counts and moments to log parameters: the one place where smoothing is applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError
from fastbayes.models.estimator.count_tables import CountTables, Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics import ClassMoments, ValueCounts


class Gaussians(NamedTuple):
    """Per (numeric feature, class): log N(x) = constant - half_precision ((x - mean) - rest)^2."""

    mean: Floats
    half_precision: Floats
    constant: Floats
    rest: Floats  # what rounding took from the mean


def log_prior(
    class_counts: NDArray[Any],
    alpha: float,
    class_prior: str | ArrayLike | None,
    classes: NDArray[Any] | None = None,
) -> Floats:
    """Return ln P(c), (n_classes,) in nats.

    `class_prior` is None (alpha is added to each count), "empirical" (unsmoothed), "uniform" or
    (n_classes,) probabilities; where these have an index, such as a pandas Series, it must be in
    the order of the classes. Other values are a ValueError.
    """
    k = len(class_counts)
    total = float(class_counts.sum())
    if class_prior is None:
        prior = (class_counts + alpha) / (total + k * alpha) if total + alpha else np.ones(k) / k
    elif isinstance(class_prior, str):
        if class_prior == "uniform":
            prior = np.full(k, 1.0 / k)
        elif class_prior == "empirical":
            prior = class_counts / total if total else np.full(k, 1.0 / k)
        else:
            raise ValueError(
                f"class_prior={class_prior!r}: use None, 'empirical', 'uniform' or probabilities"
            )
    else:
        prior = np.asarray(class_prior, dtype=np.float64)
        if prior.shape != (k,):
            raise ValueError(f"class_prior has shape {prior.shape}, but there are {k} classes")
        if not (np.isfinite(prior).all() and (prior >= 0).all()):
            raise ValueError("class_prior holds a value that is not a probability")
        if not math.isclose(prior.sum(), 1.0, rel_tol=0, abs_tol=1e-8):
            raise ValueError(f"class_prior sums to {prior.sum():.12g}; it must sum to 1")
        index = getattr(class_prior, "index", None)
        if classes is not None and index is not None and not callable(index):
            given = list(index)
            if given not in (classes.tolist(), list(range(k))):
                raise ValueError(
                    f"class_prior has the index {given}, but the classes are {classes.tolist()}; "
                    "reindex it by these"
                )
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(prior, dtype=np.float64))


def log_likelihood(
    counts: ValueCounts, alpha: float, *, missing: str, unseen: str
) -> tuple[Floats, NDArray[np.int64]]:
    """Return ln P(x_j = v | c) = ln((n_cv + alpha) / (n_c,known(j) + S_j alpha)) and its offsets.

    The table is (n_slots, n_classes) with S_j + 2 rows per feature: its values, the missing
    value (factor 1, or a value of its own under "category") and an unseen value (factor 1, or
    under "smooth" the mass of a value that was never counted). 0/0 is its limit 1/S_j.
    """
    cells = CountTables(counts, missing=missing, unseen=unseen)
    return logs(cells.likelihood(Smoothing(alpha=alpha))), cells.offsets


def leave_one_out_log_joint(
    counts: ValueCounts, alpha: float, *, missing: str = "marginalize"
) -> float:
    """Return the leave-one-out log joint of naive Bayes, in nats, from counts alone.

    The sum over rows of ln P(c, x) with that row taken out of every count:
    sum_c n_c ln((n_c - 1 + a)/(N - 1 + K a)) + sum_jcv n_cv ln((n_cv - 1 + a)/(n_c - 1 + S_j a)),
    n - 1 read as n - min(n, 1) and 0/0 as its limit 1/K or 1/S_j.
    """
    n_c, sizes = counts.class_counts.astype(np.float64), counts.shape.sizes
    total = n_c.sum(keepdims=True)
    result = left_out(n_c, total, np.array([len(n_c)]), alpha)
    as_value = np.asarray(counts.missing.any(axis=1)) & (missing == "category")
    kept = np.ones(len(counts.counts), dtype=np.bool_)
    kept[counts.offsets[1:] - 1] = as_value
    choices = sizes + as_value
    known = np.where(as_value[:, None], n_c, counts.known)
    n = counts.counts[kept].astype(np.float64)
    rows = np.repeat(np.arange(len(sizes)), choices)
    return result + left_out(n, known[rows], choices[rows, None], alpha)


def left_out(
    n: Floats, known: Floats, choices: NDArray[Any], mass: Any, rows: Floats | None = None
) -> float:
    """Return the sum of rows ln((n - 1 + mass)/(known - 1 + choices mass)), in nats.

    n is the count of each cell, `known` that of all the cells of its distribution, which are
    `choices` many. n - 1 is read as n - min(n, 1) and 0/0 as its limit 1/choices. `rows` of each
    cell are scored, at most n; None means all.
    """
    above, below = n - np.minimum(n, 1) + mass, known - np.minimum(known, 1) + choices * mass
    rows = n if rows is None else rows
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(below > 0, above / below, 1 / choices)
        return float(np.where(rows > 0, rows * np.log(ratio), 0.0).sum())


def best_alpha(counts: ValueCounts, *, missing: str = "marginalize") -> float:
    """Return the alpha in [1e-6, 1e4] that maximises the leave-one-out log joint."""
    return best_of(lambda alpha: leave_one_out_log_joint(counts, alpha, missing=missing))


def best_of(score_of: Callable[[float], float]) -> float:
    """Return the alpha in [1e-6, 1e4] of the highest score, to half the digits."""

    def score(log_alpha: float) -> float:
        return score_of(math.exp(log_alpha))

    grid = np.linspace(math.log(1e-6), math.log(1e4), 47)
    at = int(np.argmax([score(t) for t in grid]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    # Golden section: the sum is smooth and has one peak between the neighbours of the best point.
    ratio = (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if score(a) >= score(b):
            high = b
        else:
            low = a
    return math.exp((low + high) / 2)


class Spread(NamedTuple):
    """Gaussian parameters with what was done to get them."""

    gaussians: Gaussians
    variance: Floats  # (n_numeric, n_classes) as used
    floored: NDArray[np.bool_]  # (n_numeric, n_classes) raised to the floor
    constant: NDArray[np.bool_]  # (n_numeric,) constant within every class: factor 1
    floor: Floats  # (n_numeric,) least variance


def gaussians(
    moments: ClassMoments,
    *,
    names: Sequence[str],
    ddof: int,
    variance: str,
    var_floor: float,
) -> Spread:
    """Return the normal densities of the numeric features within each class.

    Parameters
    ----------
    moments
        Counts, means and scatters.
    names
        Names of the numeric features, for messages.
    ddof
        0 (maximum likelihood) or 1 (unbiased).
    variance
        "per_class", "shared" (over classes) or "single" (over classes and features).
    var_floor
        Least variance of a feature, as a share of its overall variance.
    """
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise ValueError(f"ddof={ddof!r}: use 0 or 1")
    if variance not in ("per_class", "shared", "single"):
        raise ValueError(f"variance={variance!r}: use 'per_class', 'shared' or 'single'")
    if not (isinstance(var_floor, (int, float, np.number)) and 0 <= var_floor < math.inf):
        raise ValueError(f"var_floor={var_floor!r}: use a finite number >= 0")
    return spread_of(
        *(moments.count, moments.mean, moments.rest, moments.scatter),
        names=names,
        ddof=ddof,
        variance=variance,
        var_floor=var_floor,
    )


def spread_of(
    n: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    *,
    names: Sequence[str],
    ddof: int,
    variance: str,
    var_floor: float,
) -> Spread:
    """Return the normal densities of moments, each (..., n_numeric, n_classes).

    What is pooled is pooled over the last two axes: those before hold moments of other data.
    """
    total = n.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grand = np.where(total > 0, (n * mean).sum(axis=-1) / total, 0.0)
        within = scatter.sum(axis=-1)
        between = (n * (mean - grand[..., None]) ** 2).sum(axis=-1)
        overall = np.where(total > 0, (within + between) / total, 0.0)
        classes = (n > 0).sum(axis=-1)
        shared = within / (total - ddof * classes)
        shared = np.where(np.isfinite(shared) & (shared > 0), shared, 0.0)
        if variance == "single":
            pooled = (within, total - ddof * classes)
            single = np.divide(*(part.sum(axis=-1)[..., None, None] for part in pooled))
            used = np.where(np.isfinite(single), single, 0.0) + np.zeros(n.shape)
        elif variance == "shared":
            used = shared[..., None] + np.zeros(n.shape)
        else:
            used = np.where(n > ddof, scatter / (n - ddof), shared[..., None])
    if not (fine := np.isfinite(overall)).all():
        raise DataError(
            f"column {names[int(np.argwhere(~fine)[0][-1])]!r}: squares of its values overflow; "
            "rescale it"
        )
    constant = within == 0
    floor = var_floor * overall[..., None]
    floored = (used < floor) & ~constant[..., None]
    used = np.where(floored, floor, used)
    # A class without a known value is described by the pooled moments.
    centre = np.where(n > 0, mean, grand[..., None])
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.where(constant[..., None], 0.0, 0.5 / used)
        level = np.where(constant[..., None], 0.0, -0.5 * np.log(2 * math.pi * used))
    if not (np.isfinite(half).all() and np.isfinite(level).all()):
        feature = int(np.argwhere(~(np.isfinite(half) & np.isfinite(level)))[0][-2])
        raise DataError(
            f"column {names[feature]!r} has variance 0 in a class and var_floor={var_floor}; "
            "raise var_floor or leave the column out"
        )
    rest = np.where(n > 0, rest, 0.0)
    return Spread(Gaussians(centre, half, level, rest), used, floored, constant, floor[..., 0])
