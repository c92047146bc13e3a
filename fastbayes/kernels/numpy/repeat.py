"""Numpy twin of `fastbayes.kernels.compiled.repeat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray


def over_blocks(
    work: Callable[[int], None],
    first: int,
    n: int,
    times: int,
    moving: Sequence[tuple[NDArray[Any], int]],
) -> None:
    """Do work(first row) for block after block of n rows; see the compiled twin."""
    for block in range(times):
        work(first + block * n)
