"""Scores of a model whose posteriors go through a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastbayes.models.estimator.log_space import (
    Floats,
    log_sum_exp,
    normalise,
    row_argmax,
    row_max,
    settle,
)

# Log joints this close to the best, in units of it, tie: they differ by rounding alone.
EXACT = 8 * 2.0**-53


class CalibratedScorer:
    """Log joints, posteriors and predictions of a calibrated model; immutable, thread-safe.

    Parameters
    ----------
    scorer
        That of the model.
    calibration
        Changes log posteriors in place.
    log_prior
        (n_classes,) nats: what a row gets that no class can have made; it is not changed.
    """

    def __init__(
        self, scorer: Any, calibration: Callable[[Floats], None], log_prior: Floats
    ) -> None:
        self._scorer = scorer
        self._map = calibration
        self._log_prior = log_prior

    def log_joint(self, *told: Any) -> None:
        """Write calibrated log posterior + log evidence of the model, (n_rows, n_classes).

        Told are rows, as the model's scorer takes them, and where to write.
        """
        out = told[-1]
        self._scorer.log_joint(*told)
        evidence = log_sum_exp(out)
        possible = np.isfinite(evidence)
        if possible.all():
            self._calibrate(out)
            out += evidence[:, None]
        elif possible.any():
            some = out[possible]
            self._calibrate(some)
            out[possible] = some + evidence[possible, None]

    def posterior(self, *told: Any) -> int:
        """Write P(c | x), (n_rows, n_classes); return how many rows took the prior."""
        lost = self._log_posterior(*told)
        np.exp(told[-1], out=told[-1])
        return lost

    def predict(self, *told: Any) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        *rows, out = told
        posterior = np.empty((len(out), len(self._log_prior)))
        lost = self._log_posterior(*rows, posterior)
        out[:] = row_argmax(posterior)
        return lost

    def _log_posterior(self, *told: Any) -> int:
        out = told[-1]
        self._scorer.log_joint(*told)
        lost = np.isneginf(row_max(out))
        self._calibrate(out)
        out[lost] = self._log_prior
        return int(lost.sum())

    def _calibrate(self, joint: Floats) -> None:
        """Turn log joints into calibrated log posteriors, in place."""
        nothing = np.zeros(joint.shape[1])
        settle(joint, nothing)
        top = row_max(joint)[:, None]
        np.copyto(joint, top, where=joint >= top - EXACT * np.abs(top))
        normalise(joint, nothing)
        self._map(joint)
