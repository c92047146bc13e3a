"""Numbers as people give them."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np


def as_float(value: Any) -> float:
    """Return a real number as a float: infinity for a whole number beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_number(value: Any) -> bool:
    """Return whether a value is a real number; truth values are not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer; truth values are not."""
    # of numpy's integers durations are some
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def check_whole(name: str, value: Any, least: int, besides: str = "") -> None:
    """Raise ValueError where a value is no whole number of at least `least`.

    `besides` ends the sentence that says what may be used.
    """
    if not is_whole(value) or value < least:
        given = reprlib.repr(value)  # of a whole column, the beginning
        raise ValueError(f"{name}={given}: use a whole number >= {least}{besides}")


def check_seed(seed: Any) -> None:
    """Raise ValueError where a seed of random numbers is neither a whole number >= 0 nor None."""
    if seed is not None:
        check_whole("seed", seed, 0, ", or None")
