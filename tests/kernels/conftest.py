from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numba import config


@pytest.fixture(autouse=True)
def overflow() -> Iterator[None]:
    """Interpreted, numpy notices that a hash wraps or a product is infinite; compiled, nobody."""
    with np.errstate(over="ignore" if config.DISABLE_JIT else "warn"):
        yield
