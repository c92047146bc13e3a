"""Numpy twin of `fastbayes.kernels.compiled.reading.repeat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray


def over_blocks(
    work: Callable[[int, int], None],
    parts: Sequence[tuple[int, int, int]],
    moving: Sequence[tuple[NDArray[Any], int]],
    threads: int = 1,
) -> None:
    """Do work(first row, rows) for block after block; see the compiled twin."""
    for first, n, times in parts:
        for block in range(times):
            work(first + block * n, n)
