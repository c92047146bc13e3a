"""What models have in common some of whose parameters are found by iteration."""

from __future__ import annotations

from typing import Any

from fastbayes.core.iteration import Convergence
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.model import Model
from fastbayes.models.estimator.parameters import MAX_ITER, fitted


class Iterative(Model):
    """A model with `max_iter`, and attributes that tell how its fit converged.

    A subclass declares `tol`, and `_read` gives the attributes by `_went`.
    """

    max_iter: int = MAX_ITER
    converged_: bool = fitted("Whether the fit got where `tol` says; True without iteration.")
    n_iter_: int = fitted("Steps of the fit; 1 without iteration.")
    trace_: Floats = fitted(
        """
        (n_iter_ + 1,) what is maximised, where the fit began and after each step, in nats; empty
        without iteration.
        """
    )
    _convergence: Convergence = fitted()

    def _went(self, convergence: Convergence) -> dict[str, Any]:
        """Return the attributes that tell how the fit converged."""
        return {**convergence.attributes(), "_convergence": convergence}

    def _caution(self) -> None:
        super()._caution()
        self._convergence.warn()
