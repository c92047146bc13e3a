"""Numbers as people give them."""

from __future__ import annotations

import math
from typing import Any


def as_float(value: Any) -> float:
    """Return a real number as a float: infinity for a whole number beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
