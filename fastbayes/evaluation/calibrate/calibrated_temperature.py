"""Temperature: one number that makes posteriors as sure as they are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.evaluation.calibrate.calibrated_rows import RowBuffer, possible
from fastbayes.models.estimator.log_space import Floats, normalise, row_max, row_sum

# What an impossible class counts as in sums: its products stay finite, and are 0.
NEVER = -1e100
# Newton's steps end with one that changes the power by no more than this share of it: what is left
# then is its square.
SETTLED, MOST_STEPS = 1e-8, 200

# Scans all held-out rows into what `make` gives, which has update and merge.
Scan = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True)
class Temperature:
    """Posteriors to the power of 1/T, made to sum to 1.

    Parameters
    ----------
    temperature
        T > 0: above 1 posteriors become less sure, below 1 surer. Their order stays.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.
    """

    method: ClassVar[str] = "temperature"
    temperature: float

    def __call__(self, log_posterior: Floats) -> None:
        """Change log posteriors in place, (n_rows, n_classes) nats."""
        log_posterior /= self.temperature
        normalise(log_posterior, np.zeros(log_posterior.shape[1]))

    @classmethod
    def learned(cls, kept: RowBuffer, scan: Scan, n_classes: int) -> Self:
        """Return the temperature of least log-loss.

        Parameters
        ----------
        kept
            The rows, or the first of them.
        scan
            Scans all of them, where they were not all kept.
        n_classes
            Number of classes.

        Raises
        ------
        DataError
            When Newton's method did not settle.
        """
        blocks = kept.rows().blocks()

        def sums(power: float) -> TemperatureLoss:
            found = TemperatureLoss(power)
            for block in blocks:
                found.update(*block)
            return found

        power = least(sums, 1.0)
        if not kept.complete:
            power = least(lambda p: scan(partial(TemperatureLoss, p)), power)
        return cls(1.0 / power)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `of` rebuilds it from."""
        return {"temperature": np.array([self.temperature])}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the map that `arrays` described."""
        return cls(float(arrays["temperature"][0]))


class TemperatureLoss:
    """Log-loss of rows whose posteriors are raised to a power, with its two derivatives.

    A row whose own class is impossible is lost at any power, and left out.

    Parameters
    ----------
    power
        1/T.

    Attributes
    ----------
    loss, slope, curvature
        Sums over rows of the loss and its derivatives with respect to the power.
    """

    def __init__(self, power: float) -> None:
        self.power = power
        self.loss = self.slope = self.curvature = 0.0

    def update(self, log_posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows."""
        s, y, w = possible(log_posterior, y, weight)
        own = s[np.arange(len(y)), y]
        if (lost := np.isneginf(own)).any():
            s, own, w = s[~lost], own[~lost], w[~lost]
        s = np.maximum(s, NEVER)
        raised = s * self.power
        top = row_max(raised)
        p = np.exp(raised - top[:, None])
        total = row_sum(p)
        p /= total[:, None]
        mean = row_sum(p * s)
        self.loss += float(np.sum(w * (top + np.log(total) - self.power * own)))
        self.slope += float(np.sum(w * (mean - own)))
        self.curvature += float(np.sum(w * row_sum(p * (s - mean[:, None]) ** 2)))

    def merge(self, other: TemperatureLoss) -> None:
        """Add the rows of another."""
        self.loss += other.loss
        self.slope += other.slope
        self.curvature += other.curvature


def least(sums: Callable[[float], TemperatureLoss], start: float) -> float:
    """Return the power of least log-loss, by Newton's method kept between bounds.

    Parameters
    ----------
    sums
        Gives the loss of all rows at a power.
    start
        Where to begin.

    Returns
    -------
    float
        The power > 0. It minimises the loss plus power - 1 - ln power, which weighs as much as one
        row: of rows that are all told apart, or all mistaken, the power is still a number, and
        since that term is least at 1 the loss is never above what it is without a map.
    """
    known: dict[float, TemperatureLoss] = {}

    def at(power: float) -> TemperatureLoss:
        if power not in known:
            known[power] = sums(power)
        return known[power]

    power, below, above = start, 0.0, np.inf
    for _ in range(MOST_STEPS):
        found = at(power)
        slope = found.slope + 1 - 1 / power
        below, above = (power, above) if slope < 0 else (below, power)
        step = power - slope / (found.curvature + 1 / power**2)
        near = abs(step - power) <= SETTLED * power
        if not (near or below < step < above):
            step = (below + above) / 2 if above < np.inf else 2 * power
        power = step
        if near:
            return 1.0 if at(power).loss > at(1.0).loss else power
    raise DataError(
        f"the temperature did not settle in {MOST_STEPS} steps (last 1/T {power:g}); use "
        "method='isotonic'"
    )
