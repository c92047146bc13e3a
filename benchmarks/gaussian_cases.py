"""The cases of models that see numeric columns together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.kernels import dispatch

GEMM = "numpy, a product per class"
Floats = NDArray[np.float64]
Blocks = list[tuple[list[Floats], data.Bytes]]


def numpy_scatter(blocks: Blocks, n_classes: int) -> Callable[[], Any]:
    """Take out the rows of each class, less their mean, and multiply them, on one thread."""
    from threadpoolctl import threadpool_limits

    def one(block: tuple[list[Floats], data.Bytes]) -> list[tuple[Floats, Floats]]:
        columns, classes = block
        found = []
        for c in range(n_classes):
            rows = np.flatnonzero(classes == c)
            part = np.array([column[rows] for column in columns])
            mean = part.mean(axis=1)
            part -= mean[:, None]
            found.append((mean, part @ part.T))
        return found

    def run() -> list[list[tuple[Floats, Floats]]]:
        with threadpool_limits(1):
            return [one(block) for block in blocks]

    return run


def _scatter(columns: int, n_classes: int) -> Callable[[int, Path], Work]:
    def build(rows: int, _: Path) -> Work:
        blocks = data.numbers(rows, columns, n_classes)
        module = dispatch.load("counting.scatter")
        values = float(rows * columns)

        def ours() -> list[Any]:
            return [module.block_scatter(block, y, n_classes, None) for block, y in blocks]

        sides = {OURS: Side(ours, values), GEMM: Side(numpy_scatter(blocks, n_classes), values)}

        def check(results: dict[str, Any]) -> None:
            for ours, numpys in zip(results[OURS], results[GEMM], strict=True):
                for c, (mean, scatter) in enumerate(numpys):
                    np.testing.assert_allclose(ours[1][c], mean, rtol=1e-12)
                    root = np.sqrt(np.diagonal(scatter))
                    apart = np.abs(ours[3][c] - scatter)
                    assert (apart <= 1e-9 * root[:, None] * root).all()

        return Work(sides, check)

    return build


# 15 billion of the 2 d² operations a row, at d = 64, is 8.5 ns for each of its values.
CASES = tuple(
    Case(
        f"scatter-{columns}",
        f"scatter matrices of {{rows}} × {columns} doubles, {n_classes} classes, one thread",
        rows_of(rows, rows // 4),
        _scatter(columns, n_classes),
        (Claim(None, most=most), Claim(GEMM)),
        unit="value",
        threads="one",
    )
    for columns, n_classes, rows, most in (
        (8, 2, 2_000_000, 2.5),
        (30, 3, 600_000, 3.0),
        (64, 10, 300_000, 8.5),
    )
)
