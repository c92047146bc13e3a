"""The cases of linear scores over values and numbers, and of the information of coefficients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression as Rival

from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes
from fastbayes.core.layout import Layout
from fastbayes.models.logistic.information import information
from fastbayes.models.logistic.linear import Coefficients

Floats = NDArray[np.float64]

SKLEARN, NUMPY = "scikit-learn", "numpy, tuned"
VALUES, NUMBERS, SIZE = 12, 12, 4
D = VALUES + NUMBERS


class _Problem:
    """Rows as blocks of codes and numbers, and as one sparse matrix of indicators and numbers."""

    def __init__(self, rows: int, n_classes: int) -> None:
        generator = np.random.default_rng(11)
        self.codes = generator.integers(0, SIZE, (VALUES, rows)).astype(np.uint8)
        self.numbers = generator.normal(size=(NUMBERS, rows))
        self.layout = Layout.of(
            [SIZE] * VALUES, n_classes, center=np.zeros(NUMBERS), scale=np.ones(NUMBERS)
        )
        self.theta = generator.normal(size=(self.layout.n_rows, self.layout.n_outputs)) / 3
        self.coefficients = Coefficients.from_theta(self.theta, self.layout)
        features, sizes = np.arange(VALUES), np.full(VALUES, SIZE + 2)
        none = np.zeros(VALUES, np.bool_)
        self.batches = []
        for first in range(0, rows, BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            codes = Codes(features, np.ascontiguousarray(self.codes[:, some]), sizes)
            numbers = tuple(np.ascontiguousarray(x[some]) for x in self.numbers)
            n = codes.codes.shape[1]
            self.batches.append(Batch(n, None, n_classes, (codes,), none, numbers, None, np.inf))

    def expanded(self) -> sparse.csr_array:
        """Return indicators and numbers, as scikit-learn's encoder has them."""
        n = self.codes.shape[1]
        columns = (self.codes.T + SIZE * np.arange(VALUES)).ravel()
        ones = np.ones(n * VALUES)
        indicators = sparse.csr_array((ones, columns, np.arange(n + 1) * VALUES))
        indicators.resize((n, VALUES * SIZE))
        return sparse.csr_array(sparse.hstack([indicators, self.numbers.T]))


def _posterior(n_classes: int) -> Callable[[int, Path], Work]:
    """Score ready codes and numbers on one thread."""

    def build(rows: int, _: Path) -> Work:
        problem = _Problem(rows, n_classes)
        scorer = problem.coefficients.scorer(np.inf)
        design, theta = problem.expanded(), problem.theta
        rival = Rival()
        rival.classes_ = np.arange(n_classes)
        rival.coef_, rival.intercept_ = np.ascontiguousarray(theta[1:].T), theta[0]
        tables = theta[1 : 1 + VALUES * SIZE].reshape(VALUES, SIZE, -1)

        def ours() -> Floats:
            out = np.empty((rows, n_classes))
            for i, batch in enumerate(problem.batches):
                piece = out[i * BLOCK_ROWS : (i + 1) * BLOCK_ROWS]
                scorer.posterior(batch.codes, batch.numeric, piece)
            return out

        def by_hand() -> Floats:
            out = np.empty((rows, n_classes))
            for i in range(0, rows, BLOCK_ROWS):
                some = slice(i, i + BLOCK_ROWS)
                margin = problem.numbers[:, some].T @ theta[1 + VALUES * SIZE :]
                margin += theta[0]
                for table, column in zip(tables, problem.codes[:, some], strict=True):
                    margin += table[column]
                if n_classes == 2:
                    margin = np.concatenate([np.zeros_like(margin), margin], axis=1)
                margin -= margin.max(axis=1, keepdims=True)
                np.exp(margin, out=margin)
                out[some] = margin / margin.sum(axis=1, keepdims=True)
            return out

        runs: dict[str, Callable[[], Floats]] = {
            OURS: ours,
            NUMPY: by_hand,
            SKLEARN: lambda: rival.predict_proba(design),
        }

        def check(results: dict[str, Any]) -> None:
            for name in runs:
                np.testing.assert_allclose(results[OURS], results[name], rtol=0, atol=1e-12)

        return Work({name: Side(run, float(rows * D)) for name, run in runs.items()}, check)

    return build


def _information(rows: int, _: Path) -> Work:
    """Sum second derivatives on one thread, beside a product of sparse matrices."""
    problem = _Problem(rows, 2)
    design = problem.expanded()

    def ours() -> Floats:
        told = problem.coefficients, problem.layout
        parts = [information(*told, batch, None)[0, 0] for batch in problem.batches]
        return np.asarray(sum(parts))

    def by_hand() -> Floats:
        p = 1 / (1 + np.exp(-(design @ problem.theta[1:, 0] + problem.theta[0, 0])))
        return np.asarray((design.T @ (design * (p * (1 - p))[:, None])).todense())

    def check(results: dict[str, Any]) -> None:
        np.testing.assert_allclose(results[OURS][1:, 1:], results[NUMPY], rtol=1e-9, atol=1e-9)

    runs = {OURS: ours, NUMPY: by_hand}
    return Work({name: Side(run, float(rows * D)) for name, run in runs.items()}, check)


CASES = (
    Case(
        "linear-2",
        "Posteriors of a logistic regression, {rows} × (12 values + 12 numbers), 2 classes",
        rows_of(1_000_000, 300_000),
        _posterior(2),
        (Claim(SKLEARN, least=3.0), Claim(NUMPY, least=3.0)),
        threads="one",
    ),
    Case(
        "linear-4",
        "Posteriors of a logistic regression, {rows} × (12 values + 12 numbers), 4 classes",
        rows_of(1_000_000, 300_000),
        _posterior(4),
        (Claim(SKLEARN, least=2.0), Claim(NUMPY, least=2.0)),
        threads="one",
    ),
    Case(
        "information",
        "Second derivatives of a logistic regression, {rows} × (12 values + 12 numbers), 2 classes",
        rows_of(1_000_000, 300_000),
        _information,
        (Claim(NUMPY, least=2.0),),
        threads="one",
    ),
)
