"""Log-losses of several models on the same rows, as sums that add: how sure a difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Rows of which differences are formed at a time.
CHUNK = 4_096


class PairedLosses:
    """The log-losses of one model beside those of each other on the same rows.

    `squares` are (n_models,) sums over rows of weight times the squared difference to each model,
    this one included. Parts merge in the order of their rows. Rows that some model scores only when
    all others are known are kept aside until then.
    """

    def __init__(self, n_models: int) -> None:
        self.squares = np.zeros(n_models)
        self._late: list[Floats] = []  # (2, n) losses, NaN where not known yet, and weights

    @staticmethod
    def update(
        models: Sequence[PairedLosses | None], losses: Mapping[int, Floats], weight: Floats
    ) -> None:
        """Add a block of rows, those of weight 0 left out.

        `losses` are those of the models that could score it, by their place, NaN where a model
        does not know them yet; of others nothing more is said.
        """
        found, at = [model for model in models if model is not None], sorted(losses)
        if not at:
            return
        rows = np.flatnonzero(weight > 0)
        own, weight = np.stack([losses[i][rows] for i in at]), weight[rows]
        late = np.isnan(own).any(axis=0)
        if late.any():
            for i, known in zip(at, own, strict=True):
                found[i]._late.append(np.stack([known[late], weight[late]]))
            own, weight = own[:, ~late], weight[~late]
        _add_squares([found[i] for i in at], at, own, weight)

    def know(self, losses: Floats) -> None:
        """Take the log-losses that were not known, in the order of their rows."""
        late = self._all_late()
        late[0, np.isnan(late[0])] = losses
        self._late = [late]

    @staticmethod
    def settle(models: Sequence[PairedLosses | None], able: Sequence[int]) -> None:
        """Add the rows that were kept aside, of the models that could score all rows."""
        found = [model for i in able if (model := models[i]) is not None]
        late = [model._all_late() for model in found]
        if found and late[0].size:
            _add_squares(found, able, np.stack([own for own, _ in late]), late[0][1])
        for model in found:
            model._late = []

    def _all_late(self) -> Floats:
        return np.concatenate([np.empty((2, 0)), *self._late], axis=1)

    def add(self, other: PairedLosses) -> None:
        """Add the rows of another, which come after these."""
        self.squares += other.squares
        self._late += other._late

    def arrays(self) -> dict[str, Floats]:
        """Return the sums as named arrays, which `take` adds to others."""
        return {"squares": self.squares, "late": self._all_late()}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """Add the rows of such arrays, which come after these."""
        self.squares += arrays["squares"]
        self._late.append(arrays["late"])


def standard_error(square: float, difference: float, weight: float) -> float:
    """Return the standard error of a mean difference of log-losses, in nats.

    That is the standard deviation of the rows' differences over the root of their number; a row of
    weight w counts as w rows. `square` is the sum of their squares, `difference` their mean, and
    `weight` that of all rows.
    """
    return math.sqrt(max(square / weight - difference**2, 0.0) / weight)


def _add_squares(
    models: Sequence[PairedLosses], at: Sequence[int], losses: Floats, weight: Floats
) -> None:
    """Add rows to the squares of models at these places; losses are (n_models, n_rows)."""
    places = np.asarray(at)
    for start in range(0, len(weight), CHUNK):
        own, w = losses[:, start : start + CHUNK], weight[start : start + CHUNK]
        for i in range(len(at) - 1):
            gaps = own[i + 1 :] - own[i]
            # Not a product of matrices: BLAS would wake threads of its own.
            found = np.einsum("mr,mr,r->m", gaps, gaps, w)
            models[i].squares[places[i + 1 :]] += found
            for model, square in zip(models[i + 1 :], found.tolist(), strict=True):
                model.squares[places[i]] += square
