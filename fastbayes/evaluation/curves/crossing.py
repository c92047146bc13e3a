"""`crossover`: the size of sample from which one model is better than another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.text_tables import ShortRepr
from fastbayes.evaluation.curves.curve_table import METRICS, LearningCurve, check_metric

Floats = NDArray[np.float64]

DRAWS = 10_000
# Figures closer than this share of themselves are equal.
SAME = 1e-12


@dataclass(frozen=True, repr=False)
class Crossover(ShortRepr):
    """Where one model overtakes another.

    Attributes
    ----------
    generative, discriminative
        Names of the models: the one that is ahead at first, and the one that overtakes.
    metric
        What they are compared by.
    size
        Rows from which on the discriminative model is ahead; None where it is so at every size, or
        is behind at the largest.
    low, high
        Bounds of the size; None where it may as well lie below the smallest size or above the
        largest.
    confidence
        Of the interval.
    significant
        Whether there is a crossing, and the interval has both bounds: neither that the one is ahead
        everywhere nor that it is behind at the largest size can be held.
    share
        Share of the resampled curves that cross within the sizes.
    reason
        Why there is no size, else "".
    """

    generative: str
    discriminative: str
    metric: str
    size: float | None
    low: float | None
    high: float | None
    confidence: float
    significant: bool
    share: float
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what is known as plain values for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        names = f"{self.discriminative} overtakes {self.generative} in {self.metric}"
        if self.size is None:
            return f"{names} at no size: {self.reason}"
        low = "below" if self.low is None else f"{self.low:,.0f}"
        high = "above" if self.high is None else f"{self.high:,.0f}"
        sure = "" if self.significant else ", not significant"
        rows = "row" if round(self.size) == 1 else "rows"
        return f"{names} at {self.size:,.0f} {rows} ({self.confidence:.0%}: {low} to {high}{sure})"


def crossover(
    curve: LearningCurve,
    generative: str,
    discriminative: str,
    metric: str = "log_loss",
    *,
    seed: int = 0,
) -> Crossover:
    """Return the size from which on one model is better than another.

    Parameters
    ----------
    curve
        As `learning_curve` returns it.
    generative
        Name of the model that is ahead at small sizes, such as naive Bayes.
    discriminative
        Name of the model that may overtake it, such as logistic regression.
    metric
        "log_loss", "accuracy" or "brier".
    seed
        Of the resampling.

    Returns
    -------
    Crossover
        The size with its interval; print it.

    Raises
    ------
    ValueError
        When there is no such model or metric, both models are one, or it is no curve.

    Notes
    -----
    The mean difference of the two over the repeats is followed from size to size, straight in the
    logarithm of the size; the crossing is where it changes for good. For the interval repeats are
    resampled with replacement, whole curves at a time, since the sizes of a repeat are parts of
    each other (Efron, Tibshirani 1993, percentile interval); deviations from the mean are then as
    much larger as the variance of repeats that share rows asks for (`LearningCurve.interval`).

    References
    ----------
    Ng, Jordan (2001), On discriminative vs. generative classifiers, NIPS 14.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([[[0.6, 0.6], [0.5, 0.5]], [[0.7, 0.7], [0.4, 0.4]]])
    >>> curve = LearningCurve(
    ...     ("naive-bayes", "logistic"), np.array([10, 1000]), 2000, 400, np.array([0, 1]), 0, 0.95,
    ...     values, values, values, values,
    ... )
    >>> round(crossover(curve, "naive-bayes", "logistic").size)
    100
    """
    check_metric(metric)
    if not isinstance(curve, LearningCurve):
        raise ValueError(
            f"crossover takes a curve, as fastbayes.learning_curve returns it, not "
            f"{type(curve).__name__}"
        )
    if generative == discriminative:
        raise ValueError(
            f"{generative!r} stands for both models: name the one that may be overtaken, and the "
            f"other, of {list(curve.models)}"
        )
    first, second = (curve.figures(name, metric) for name in (generative, discriminative))
    apart = second - first if METRICS[metric] else first - second
    # Models that say the same may differ by how it was summed, which is no lead.
    ahead = np.where(np.abs(apart) <= SAME * np.maximum(abs(first), abs(second)), 0.0, apart)
    known = np.flatnonzero(~np.isnan(ahead).any(axis=1))
    nothing = Crossover(
        *(generative, discriminative, metric),
        size=None,
        low=None,
        high=None,
        confidence=curve.confidence,
        significant=False,
        share=0.0,
    )
    if not len(known):
        return replace(nothing, reason="there is no size at which both could be fitted")
    log_sizes, ahead = np.log(curve.sizes[known]), ahead[known]
    mean = ahead.mean(axis=1)
    at = float(_crossings(log_sizes, mean[:, None])[0])
    resampled = _resampled(ahead, mean, curve.overlap, seed)
    found = np.full(1, at) if resampled is None else _crossings(log_sizes, resampled)
    share = float(np.isfinite(found).mean())
    if not math.isfinite(at):
        reason = "it is ahead at every size" if at < 0 else "it is not ahead at the largest size"
        return replace(nothing, reason=reason, share=share)
    low = high = None
    if resampled is not None:
        tail = (1 - curve.confidence) / 2
        # A crossing below all sizes, or above, has its place among the others.
        ends = np.quantile(found, [tail, 1 - tail], method="inverted_cdf")
        low, high = (float(np.exp(x)) if math.isfinite(x) else None for x in ends)
    significant = low is not None and high is not None
    return replace(
        nothing, size=math.exp(at), low=low, high=high, significant=significant, share=share
    )


def _crossings(log_sizes: Floats, ahead: Floats) -> Floats:
    """Return the log size from which on each difference is above 0, (n,).

    Parameters
    ----------
    log_sizes
        (n_sizes,) ascending.
    ahead
        (n_sizes, n) how far the second model is ahead.

    Returns
    -------
    numpy.ndarray
        -inf where it is at every size, inf where it is not at the largest.
    """
    behind = ahead <= 0
    last = len(ahead) - 1 - np.argmax(behind[::-1], axis=0)
    found = np.where(behind.any(axis=0), np.inf, -np.inf)
    inside = np.flatnonzero(behind.any(axis=0) & (last < len(ahead) - 1))
    i = last[inside]
    before, after = ahead[i, inside], ahead[i + 1, inside]
    found[inside] = log_sizes[i] + (log_sizes[i + 1] - log_sizes[i]) * before / (before - after)
    return found


def _resampled(ahead: Floats, mean: Floats, overlap: float, seed: int) -> Floats | None:
    """Return the mean differences of resampled repeats, (n_sizes, DRAWS); None of one repeat."""
    repeats = ahead.shape[1]
    if repeats < 2:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(repeats, np.full(repeats, 1 / repeats), size=DRAWS).T / repeats
    # The variance of a resampled mean is (J - 1)/J s^2/J; that of the mean s^2 (1/J + r/(1 - r)).
    wider = math.sqrt(repeats / (repeats - 1) * (1 + repeats * overlap / (1 - overlap)))
    return np.asarray(mean[:, None] + wider * (ahead @ drawn - mean[:, None]))
