"""What single columns tell of the class, from counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.information import class_pairs
from fastbayes.models.estimator.log_space import Floats

Ints = NDArray[np.int64]


def class_information(counts: NDArray[Any], offsets: Ints, sizes: Ints) -> Floats:
    """Return the mutual information I(X_j; C) of each feature with the class, (m,) in nats.

    Parameters
    ----------
    counts
        (n_slots, n_classes) counts of values, int64 or float64.
    offsets
        (m + 1,) first slot of each feature.
    sizes
        (m,) values of each feature; its further slots (missing) are left out.
    """
    out = np.zeros(len(sizes))
    dispatch.numpy_twin("information").pair_information(*class_pairs(counts, offsets, sizes), out)
    return out
