"""Codes that are no observations, and the rows that have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes

Bools = NDArray[np.bool_]
# So few rows are looked at together: a look at each column would cost more.
FEW_ROWS = 64


class HiddenCodes:
    """Codes that are no observations, of some features.

    Parameters
    ----------
    hidden
        One per feature: (n_codes,) bool, which codes are no observations.
    features
        Those that are looked at.
    """

    def __init__(self, hidden: Sequence[Bools], features: Iterable[int]) -> None:
        empty = np.empty(0, np.bool_)
        self._of = {j: hidden[j] for j in features if hidden[j].any()}
        slots = np.cumsum([0, *map(len, hidden)])
        watched = [self._of.get(j, np.zeros_like(flags)) for j, flags in enumerate(hidden)]
        self._start, self._flat = slots[:-1], np.concatenate([empty, *watched])

    def rows(self, batch_codes: Sequence[Codes], n_rows: int) -> Bools:
        """Return which rows have such a code, (n_rows,)."""
        found = np.zeros(n_rows, np.bool_)
        for features, codes, _ in batch_codes if self._of and n_rows else ():
            if n_rows <= FEW_ROWS:
                found |= self._flat[self._start[features][:, None] + codes].any(axis=0)
                continue
            for feature, column in zip(features.tolist(), codes, strict=True):
                # Most columns hold no such code, which their largest one tells.
                flags = self._of.get(feature)
                if flags is None or int(column.max()) < (least := int(flags.argmax())):
                    continue
                found |= column >= least if flags[least:].all() else flags[column]
        return found
