"""The cases of logistic regression: passes over packed rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, log_softmax

from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes
from fastbayes.core.layout import Layout
from fastbayes.kernels import dispatch

Floats = NDArray[np.float64]

SCIPY, NUMPY = "scipy, one-hot", "numpy"
SIZE = 4


class _Rows:
    """Random codes, of classes that depend on them, and coefficients.

    codes  (d, rows) uint8
    y      (rows,) uint8
    """

    def __init__(self, rows: int, d: int, n_classes: int) -> None:
        generator = np.random.default_rng(13)
        self.codes = generator.integers(0, SIZE, (d, rows)).astype(np.uint8)
        self.layout = Layout.of([SIZE] * d, n_classes)
        shape = self.layout.n_rows, self.layout.n_outputs
        self.theta, self.direction = generator.normal(size=(2, *shape)) / 4
        m = self.theta[0] + sum(
            self.theta[1 + j * SIZE :][column] for j, column in enumerate(self.codes)
        )
        m = np.hstack([np.zeros((rows, 1)), m]) if n_classes == 2 else m
        self.y = (m + generator.gumbel(size=m.shape)).argmax(axis=1).astype(np.uint8)
        self.n_classes = n_classes

    def one_hot(self) -> sparse.csr_array:
        """Return the indicators of all values."""
        d, rows = self.codes.shape
        columns = (self.codes.T + SIZE * np.arange(d)).ravel()
        ends = np.arange(rows + 1) * d
        return sparse.csr_array((np.ones(rows * d), columns, ends), shape=(rows, d * SIZE))

    def packed(self, module: str) -> tuple[Any, list[Any]]:
        """Return the passes, compiled or in numpy, and the blocks of rows as they take them."""
        d, rows = self.codes.shape
        cells = np.inf if module == OURS else 0
        gradient = dispatch.load("fitting.gradient", cells).Gradient(self.layout)
        blocks = []
        for first in range(0, rows, BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            codes = np.ascontiguousarray(self.codes[:, some])
            group = Codes(np.arange(d), codes, np.full(d, SIZE))
            n, known = codes.shape[1], np.zeros(d, np.bool_)
            batch = Batch(n, self.y[some], self.n_classes, (group,), known, (), None, cells)
            blocks.append(gradient.packed(batch, None))
        return gradient, blocks


def _gradient(d: int, n_classes: int) -> Callable[[int, Path], Work]:
    """Loss and gradient of packed rows, beside scipy's sparse products of indicators."""

    def build(n_rows: int, _: Path) -> Work:
        rows = _Rows(n_rows, d, n_classes)
        x, y, each = rows.one_hot(), rows.y, np.arange(n_rows)
        b, w = rows.theta[0], rows.theta[1:]

        def by_scipy() -> tuple[float, Floats]:
            m = x @ w + b
            if n_classes == 2:
                m = m[:, 0]
                loss = np.logaddexp(0.0, m).sum() - m[y == 1].sum()
                residual = (expit(m) - y)[:, None]
            else:
                logs = log_softmax(m, axis=1)
                loss, residual = -logs[each, y].sum(), np.exp(logs)
                residual[each, y] -= 1.0
            return loss, np.vstack([residual.sum(axis=0), x.T @ residual])

        def over(module: str) -> Callable[[], tuple[float, Floats]]:
            gradient, blocks = rows.packed(module)

            def run() -> tuple[float, Floats]:
                go = gradient.loss_gradient(rows.theta)
                parts = [go(block) for block in blocks]
                return sum(part[0] for part in parts), sum(part[1] for part in parts)

            return run

        runs = {OURS: over(OURS), SCIPY: by_scipy, NUMPY: over(NUMPY)}

        def check(results: dict[str, Any]) -> None:
            for name in runs:
                np.testing.assert_allclose(results[OURS][0], results[name][0], rtol=1e-10)
                atol = 1e-10 * n_rows
                np.testing.assert_allclose(results[OURS][1], results[name][1], 1e-9, atol)

        return Work({name: Side(run, float(n_rows * d)) for name, run in runs.items()}, check)

    return build


def _hessian(d: int, n_classes: int) -> Callable[[int, Path], Work]:
    """The Hessian's product with one direction after the other, of packed rows."""

    def build(n_rows: int, _: Path) -> Work:
        rows = _Rows(n_rows, d, n_classes)
        x = rows.one_hot()

        def margins(theta: Floats) -> Floats:
            return np.asarray(x @ theta[1:] + theta[0])

        m = margins(rows.theta)
        shares = expit(m) * expit(-m) if n_classes == 2 else np.exp(log_softmax(m, axis=1))

        def by_scipy() -> Floats:
            v = margins(rows.direction)
            if n_classes > 2:
                v -= (shares * v).sum(axis=1, keepdims=True)
            v *= shares
            return np.vstack([v.sum(axis=0), x.T @ v])

        def over(module: str) -> Callable[[], Floats]:
            gradient, blocks = rows.packed(module)
            hessian = gradient.hessian(rows.theta, keep=True)

            def run() -> Floats:
                go = hessian.product(rows.direction)
                total: Floats = sum(go(block) for block in blocks)
                return total

            return run

        runs = {OURS: over(OURS), SCIPY: by_scipy, NUMPY: over(NUMPY)}

        def check(results: dict[str, Any]) -> None:
            for name in runs:
                atol = 1e-6 * n_rows
                np.testing.assert_allclose(results[OURS], results[name], 1e-6, atol)

        return Work({name: Side(run, float(n_rows * d)) for name, run in runs.items()}, check)

    return build


CASES = (
    Case(
        "logistic-gradient",
        "loss and gradient of logistic regression, packed rows, {rows} × 24, 4 values, one thread",
        rows_of(500_000, 200_000),
        _gradient(24, 2),
        (Claim(None, most=0.8), Claim(SCIPY), Claim(NUMPY)),
        threads="one",
    ),
    Case(
        "logistic-hessian",
        "a Hessian's product with a direction, packed rows, {rows} × 24, 4 values, one thread",
        rows_of(500_000, 200_000),
        _hessian(24, 2),
        (Claim(None, most=1.2), Claim(SCIPY), Claim(NUMPY)),
        threads="one",
    ),
    Case(
        "logistic-gradient-4",
        "loss and gradient of four classes, packed rows, {rows} × 30, 4 values, one thread",
        rows_of(500_000, 200_000),
        _gradient(30, 4),
        (Claim(None, most=1.5), Claim(SCIPY), Claim(NUMPY)),
        threads="one",
    ),
    Case(
        "logistic-hessian-4",
        "a Hessian's product, four classes, packed rows, {rows} × 30, 4 values, one thread",
        rows_of(500_000, 200_000),
        _hessian(30, 4),
        (Claim(None, most=1.5), Claim(SCIPY), Claim(NUMPY)),
        threads="one",
    ),
)
