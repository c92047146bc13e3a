"""Learning curves as a value, and the size from which one model is better than another."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.suggestions import use_one_of
from fastbayes.core.text_tables import ShortRepr, aligned
from fastbayes.evaluation.intervals import Interval, mean_interval
from fastbayes.evaluation.plots import figure, written

Floats = NDArray[np.float64]

# What a curve tells, and whether more of it is better.
METRICS = {"accuracy": True, "log_loss": False, "brier": False}
MOST = {"accuracy": 1.0, "log_loss": math.inf, "brier": 2.0}
NAMES = {"accuracy": "accuracy", "log_loss": "log-loss, nats", "brier": "Brier score"}


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve(ShortRepr):
    """How good models are that learned from more and more rows.

    Attributes
    ----------
    models
        Their names.
    sizes
        (n_sizes,) rows that were learned from, ascending.
    rows
        Rows of the source that have a class and a weight above 0.
    test_rows
        Those of them that each repeat keeps to test on.
    classes
        (n_classes,) labels.
    seed
        Of the order in which each repeat draws rows.
    confidence
        Of the intervals.
    accuracy
        (n_models, n_sizes, repeats) share of the test rows whose most probable class is the true
        one; NaN where the model could not be fitted.
    log_loss
        Likewise, mean of -ln p(true class), in nats, p clipped at 1e-15.
    brier
        Likewise, mean over rows of the sum over classes of (p - truth)^2.
    clipped
        Likewise, share of the test rows whose p(true class) was below 1e-15.
    reasons
        Why a model could not be fitted to some sizes, by its name.
    cautions
        What a model warned of, by its name: in how many fits, and the first.
    """

    models: tuple[str, ...]
    sizes: NDArray[np.int64]
    rows: int
    test_rows: int
    classes: NDArray[Any]
    seed: int
    confidence: float
    accuracy: Floats
    log_loss: Floats
    brier: Floats
    clipped: Floats
    reasons: dict[str, str] = field(default_factory=dict)
    cautions: dict[str, str] = field(default_factory=dict)

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return int(self.accuracy.shape[2])

    @property
    def overlap(self) -> float:
        """Share of the rows that a repeat tests on: what two repeats have in common."""
        return self.test_rows / self.rows

    def figures(self, model: str, metric: str = "log_loss") -> Floats:
        """Return what a model made of each size in each repeat.

        Parameters
        ----------
        model
            Its name.
        metric
            "log_loss", "accuracy" or "brier".

        Returns
        -------
        numpy.ndarray
            (n_sizes, repeats).

        Raises
        ------
        ValueError
            When there is no such model or metric.
        """
        check_metric(metric)
        if model not in self.models:
            raise ValueError(f"there is no model {model!r}: {use_one_of(model, self.models)}")
        found: Floats = getattr(self, metric)[self.models.index(model)]
        return found

    def interval(self, values: Floats) -> Interval:
        """Return the mean of figures over the repeats, and its interval.

        Parameters
        ----------
        values
            (..., repeats) figures, or differences of figures.

        Returns
        -------
        Interval
            `mean`, `low` and `high`, each (...,); NaN where a repeat has no figure.

        Notes
        -----
        By Student's t, with the correction for repeats that share rows of Nadeau and Bengio (2003):
        the variance of the mean of J repeats is s^2 (1/J + r/(1 - r)), r the share of test rows.
        """
        return mean_interval(values, self.confidence, self.overlap)

    @property
    def table(self) -> pa.Table:
        """The curves as an Arrow table, one row a model and size; null where it has no figure."""
        found = {
            "model": pa.array(
                np.repeat(np.array(self.models, object), len(self.sizes)), pa.string()
            ),
            "size": pa.array(np.tile(self.sizes, len(self.models)), pa.int64()),
        }
        for metric in METRICS:
            for bound, values in self.interval(getattr(self, metric))._asdict().items():
                found[metric if bound == "mean" else f"{metric}_{bound}"] = _known(values)
        return pa.table({**found, "clipped": _known(self.clipped.mean(axis=2))})

    @property
    def values(self) -> pa.Table:
        """The figures of every repeat as an Arrow table, one row a model, size and repeat."""
        m, s, r = (axis.reshape(-1) for axis in np.indices(self.accuracy.shape))
        found = {
            "model": pa.array([self.models[i] for i in m.tolist()], pa.string()),
            "size": pa.array(self.sizes[s], pa.int64()),
            "repeat": pa.array(r, pa.int64()),
        }
        names = (*METRICS, "clipped")
        return pa.table({**found, **{name: _known(getattr(self, name)) for name in names}})

    def differences(self, metric: str = "log_loss") -> pa.Table:
        """Return how far models lie apart, paired: both learned from and were tested on one sample.

        Parameters
        ----------
        metric
            "log_loss", "accuracy" or "brier".

        Returns
        -------
        pyarrow.Table
            One row a pair of models and a size: `model`, `other`, `size`, `difference` (the
            model's figure less the other's), `low`, `high`.

        Raises
        ------
        ValueError
            When there is no such metric.
        """
        check_metric(metric)
        values = getattr(self, metric)
        first, second = np.triu_indices(len(self.models), 1)
        given = self.interval(values[first] - values[second])
        of_pairs = np.repeat(np.stack([first, second]), len(self.sizes), axis=1)
        names = pa.array(self.models, pa.string())
        return pa.table(
            {
                "model": names.take(pa.array(of_pairs[0])),
                "other": names.take(pa.array(of_pairs[1])),
                "size": pa.array(np.tile(self.sizes, len(first)), pa.int64()),
                **dict(zip(("difference", "low", "high"), map(_known, given), strict=True)),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain values for JSON, None where there is no figure."""
        return {
            "models": list(self.models),
            "sizes": self.sizes.tolist(),
            "rows": self.rows,
            "test_rows": self.test_rows,
            "repeats": self.repeats,
            "seed": self.seed,
            "confidence": self.confidence,
            "classes": self.classes.tolist(),
            "curves": self.table.to_pylist(),
            "values": self.values.to_pylist(),
            "differences": {metric: self.differences(metric).to_pylist() for metric in METRICS},
            "reasons": dict(self.reasons),
            "cautions": dict(self.cautions),
        }

    def to_json(self) -> str:
        """Return the curves, the figures of every repeat and the differences as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        metric: str = "log_loss",
        force: bool = False,
    ) -> Any:
        """Draw the curves with their intervals over the size, which has a scale of logarithms.

        Parameters
        ----------
        path
            File to write, by custom .png, .svg or .pdf; None for none.
        metric
            "log_loss", "accuracy" or "brier".
        force
            Whether to replace a file that is there.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        FastBayesError
            When matplotlib is not installed; the message names the extra.
        ValueError
            When there is no such metric.
        """
        check_metric(metric)
        made, axes = figure("`table`")
        means, *bounds = self.interval(getattr(self, metric))
        ends = np.clip(bounds, 0, MOST[metric])
        for name, mean, low, high in zip(self.models, means, *ends, strict=True):
            (line,) = axes.plot(self.sizes, mean, marker="o", label=name)
            axes.fill_between(self.sizes, low, high, alpha=0.15, color=line.get_color())
        axes.set_ylim(*_limits(means, np.array([means, *ends])))
        axes.set_xscale("log")
        axes.set_xlabel("rows learned from")
        axes.set_ylabel(NAMES[metric])
        axes.legend()
        return written(made, path, force=force)

    def __str__(self) -> str:
        times = "1 repeat" if self.repeats == 1 else f"{self.repeats} repeats"
        head = (
            f"{times}, {self.test_rows:,} of {self.rows:,} rows to test on, "
            f"{len(self.classes):,} classes; intervals of {self.confidence:.0%}"
        )
        options = {
            metric: self.interval(getattr(self, metric)) for metric in ("accuracy", "log_loss")
        }
        rows: list[Sequence[str]] = [("model", "rows", "accuracy", "log-loss")]
        for i, name in enumerate(self.models):
            for s, size in enumerate(self.sizes.tolist()):
                cells = [_shown(*(float(x[i, s]) for x in options[metric])) for metric in options]
                rows.append((name if s == 0 else "", f"{size:,}", *cells))
        notes = [f"  {name}: not fitted to {reason}" for name, reason in self.reasons.items()]
        notes += [f"  {name}: cautions of {caution}" for name, caution in self.cautions.items()]
        return "\n".join([head, "", *aligned(rows), *notes])


def _limits(means: Floats, ends: Floats) -> tuple[float, float]:
    """Return what to show: all means, and of the intervals what leaves these in sight."""
    least, most = float(np.nanmin(means)), float(np.nanmax(means))
    room = 0.6 * (most - least) or 0.1
    low = max(float(np.nanmin(ends)), least - room)
    high = min(float(np.nanmax(ends)), most + room)
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def check_metric(metric: str) -> None:
    """Raise ValueError where there is no such metric."""
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r}: {use_one_of(metric, METRICS)}")


def _known(values: Floats) -> pa.Array:
    """Return figures as a column, null where there is none."""
    return pa.array(values.reshape(-1), pa.float64(), mask=np.isnan(values.reshape(-1)))


def _shown(mean: float, low: float, high: float) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.4f}" if math.isnan(low) else f"{mean:.4f} ± {(high - low) / 2:.4f}"


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
    """Return the log size from which on each of n differences is above 0, (n,).

    (n_sizes, n) is how far the second model is `ahead`; -inf where it is at every size, inf where
    it is not at the largest.
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
