"""Names of array types that kernels and their drivers speak of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger]

# Indices of this type are not checked for being negative: loops of kernels are faster by it.
U = np.uint64
