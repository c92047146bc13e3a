"""Intervals of means of few repeats, without scipy: quantiles of Student's t."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Halvings after which two doubles have no double between them.
HALVINGS = 1_100


class Interval(NamedTuple):
    """A mean and the bounds of its interval; NaN where they are not known."""

    mean: Floats
    low: Floats
    high: Floats


def mean_interval(values: Floats, confidence: float, overlap: float = 0.0) -> Interval:
    """Return the mean over the last axis of (..., J) figures, and its interval by Student's t.

    Figures of two repeats have the correlation `overlap`, below 1: of repeats that test on random
    rows of the same source, the share of rows that are tested on. The mean of J figures then has
    the variance s^2 (1/J + r/(1 - r)), s^2 being the variance seen among them, 1 - r of their own
    (Nadeau and Bengio 2003, Inference for the generalization error, Machine Learning 52). Without
    the correction repeats on the same rows look surer than they are. One repeat has no interval.
    """
    repeats = values.shape[-1]
    mean = values.mean(axis=-1)
    if repeats < 2:
        return Interval(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    spread = values.std(axis=-1, ddof=1) * math.sqrt(1 / repeats + overlap / (1 - overlap))
    half = t_quantile((1 + confidence) / 2, repeats - 1) * spread
    return Interval(mean, mean - half, mean + half)


def check_confidence(confidence: Any) -> float:
    """Return the confidence of an interval, which lies between 0 and 1, as a number."""
    if not (isinstance(confidence, (float, np.number)) and 0 < confidence < 1):
        raise ValueError(f"confidence={confidence!r}: use a number between 0 and 1, such as 0.95")
    return float(confidence)


def t_quantile(p: float, df: float) -> float:
    """Return t with P(T <= t) = p, 1/2 <= p < 1, of Student's t distribution.

    P(|T| <= t) = I_y(1/2, df/2) with y = t^2/(df + t^2), the incomplete beta function (Abramowitz,
    Stegun 1964, 26.7.1), which rises with y: y is found by halving.
    """
    wanted, low, high = 2 * p - 1, 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (
            (middle, high) if incomplete_beta(0.5, df / 2, middle) < wanted else (low, middle)
        )
    return math.sqrt(df * low / (1 - low)) if low < 1 else math.inf


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), a and b above 0.

    The continued fraction of Abramowitz, Stegun 1964, 26.5.8, by Lentz's method; it converges fast
    below (a + 1)/(a + b + 2), and I_x(a, b) = 1 - I_(1-x)(b, a) is used above.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            total *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return math.exp(log_front) * total / a


def _not_zero(x: float) -> float:
    return x if abs(x) > 1e-300 else 1e-300
