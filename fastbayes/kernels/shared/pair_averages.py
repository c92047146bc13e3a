"""Pairs of parents, and rows that have none: what scoring of A2DE starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats

# Of pair q: (n_states, n_classes) P(c, x_i, x_j), and (n_states, n_slots, n_classes) P(x_k = v |
# c, x_i, x_j), of which the rows of i and j themselves are not used: an array, or what numpy makes
# one; it is indexed by states and slots, one of each feature.
Tables = Callable[[int], tuple[Floats, Any]]


class Pair(NamedTuple):
    """Two features i < j, and which of their values are parents together.

    state  (S_i + 2, S_j + 2) int64   number of a pair of values, 0, 1, ...; -1 if it is no parent
    """

    first: int
    second: int
    state: NDArray[np.int64]


def fill_own(pair: Pair, children: Floats, offsets: NDArray[np.int64]) -> None:
    """Write 1 into the rows of the children that are those of the parents themselves."""
    for parent in (pair.first, pair.second):
        children[:, offsets[parent] : offsets[parent + 1]] = 1.0


def fall_back(
    scorer: Any, batch_codes: Sequence[Codes], where: NDArray[np.bool_], out: Floats
) -> None:
    """Write the log joints of another scorer into some rows of `out`."""
    rows = np.flatnonzero(where)
    if len(rows):
        some = [g._replace(codes=np.ascontiguousarray(g.codes[:, rows])) for g in batch_codes]
        joint = np.empty((len(rows), out.shape[1]))
        scorer.log_joint(some, [], joint)
        out[rows] = joint
