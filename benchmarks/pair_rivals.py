"""Counting pairs of values by hand, in the best forms found: one-hot BLAS, and numpy.bincount."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Coded
from benchmarks.rivals import Run, pool

# Rows at a time: their one-hot matrix stays small, and float32 sums of ones are exact.
ROWS = 16_384


def blas_pairs(data: Coded) -> Run:
    """Multiply the one-hot rows of each class with themselves in float32; BLAS takes all threads.

    Returns (n_classes, n_slots, n_slots), the counts of every two slots.
    """
    offsets = np.cumsum(data.sizes) - data.sizes
    slots = int(data.sizes.sum())

    def run() -> NDArray[np.float64]:
        total = np.zeros((data.n_classes, slots, slots))
        room = np.zeros((ROWS, slots), np.float32)
        for codes, classes in data.blocks:
            for first in range(0, len(classes), ROWS):
                some, label = codes[:, first : first + ROWS], classes[first : first + ROWS]
                order = np.argsort(label, kind="stable")
                hot, at = room[: len(label)], offsets[:, None] + some[:, order]
                np.put_along_axis(hot, at.T, 1.0, axis=1)
                ends = np.cumsum(np.bincount(label, minlength=data.n_classes))
                for c, (a, b) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                    # numpy sees that both sides are one matrix: half the work.
                    total[c] += hot[a:b].T @ hot[a:b]
                np.put_along_axis(hot, at.T, 0.0, axis=1)
        return total

    return run


def bincount_every_pair(data: Coded) -> Run:
    """Count every pair by numpy.bincount of a joint code, whole columns on all threads."""
    columns = [np.concatenate([b[j] for b, _ in data.blocks]) for j in range(len(data.sizes))]
    classes = np.concatenate([classes for _, classes in data.blocks])
    k = data.n_classes
    inner = [c.astype(np.uint16) * np.uint16(k) + classes for c in columns]

    def one(pair: tuple[int, int]) -> NDArray[np.int64]:
        i, j = pair
        step = np.uint16(int(data.sizes[j]) * k)
        joint = columns[i] * step + inner[j]
        return np.bincount(joint, minlength=int(data.sizes[i]) * int(step))

    pairs = list(combinations(range(len(columns)), 2))
    return lambda: np.concatenate(list(pool().map(one, pairs)))


def as_blocks(total: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what BLAS counted as one block (S_i, S_j, n_classes) per pair, end to end."""
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    ranges = [slice(a, b) for a, b in pairwise(bounds)]
    blocks = [total[:, a, b].transpose(1, 2, 0).ravel() for a, b in combinations(ranges, 2)]
    return np.concatenate(blocks).astype(np.int64)
