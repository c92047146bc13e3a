"""Products of matrices in pieces that no BLAS shares out among threads."""

from __future__ import annotations

from collections.abc import Iterator

# Multiplications of a product that runs on one thread: others cost more than such products take,
# and more threads than the caller asked for would wait for each other.
ONE_THREAD = 1 << 17
# Rows of a product of matrices, at least: of less it is one with vectors, which takes longer.
FEWEST = 8


def pieces(n: int, each: int, fewest: int = 1) -> Iterator[slice]:
    """Yield stretches of n rows, or columns, few enough to be multiplied on one thread.

    each    multiplications that one of them takes
    fewest  of a stretch, however many these take
    """
    step = max(fewest, ONE_THREAD // max(each, 1))
    for first in range(0, n, step):
        yield slice(first, first + step)
