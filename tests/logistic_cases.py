"""Tables for logistic regression, with scikit-learn's optimum on their indicator columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracles.logistic import Problem
from reading import Table
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression

ROOT = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass
class Case:
    """Columns of cells, None where missing; the class of each row."""

    columns: dict[str, list[Any]]
    labels: list[Any]
    numeric: list[str] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        kinds = {j: pa.float64() for j in self.numeric}
        arrays = {j: pa.array(cells, kinds.get(j)) for j, cells in self.columns.items()}
        return pa.table({**arrays, "y": self.labels})

    def problem(self, **options: Any) -> Problem:
        return Problem(self.columns, self.labels, numeric=self.numeric, **options)


def numbers(X: Any, labels: Any) -> Case:
    names = [f"x{j}" for j in range(X.shape[1])]
    columns = {j: x.tolist() for j, x in zip(names, X.T, strict=True)}
    return Case(columns, list(np.asarray(labels).tolist()), names)


def shared(name: str, *, drop: tuple[str, ...] = (), n: int | None = None) -> Callable[[], Case]:
    def make() -> Case:
        if not ROOT.is_dir():
            pytest.skip("no ../shared/data beside the repository")
        table = Table(ROOT, name)
        rows = [r for r in table.rows if r["class"] is not None][:n]
        names = [j for j in rows[0] if j not in (*drop, "class")]
        columns = {j: [r[j] for r in rows] for j in names}
        return Case(columns, [r["class"] for r in rows], [j for j in table.numeric if j in names])

    return make


def generated(
    k: int, seed: int = 0, n: int = 400, scales: tuple[float, ...] = (1.0, 20.0), offset: float = 0
) -> Case:
    """Return mixed columns with holes, numbers at several scales, classes that depend on them."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, n), rng.integers(0, 3, n)
    z = rng.normal(size=(n, len(scales)))
    margin = (
        rng.normal(size=(4, k))[a]
        + rng.normal(size=(3, k))[b]
        + z @ rng.normal(size=(len(scales), k))
    )
    labels = np.argmax(margin + rng.gumbel(size=(n, k)), axis=1)
    columns: dict[str, list[Any]] = {
        "a": ["pqrs"[i] for i in a],
        "b": ["uvw"[i] for i in b],
        **{f"z{j}": (z[:, j] * s + offset).tolist() for j, s in enumerate(scales)},
        "flat": ["same"] * n,
    }
    for cells in columns.values():
        for r in np.flatnonzero(rng.random(n) < 0.1):
            cells[r] = None
    return Case(columns, [f"c{i}" for i in labels], [f"z{j}" for j in range(len(scales))])


CASES: dict[str, Callable[[], Case]] = {
    "iris": lambda: numbers(*load_iris(return_X_y=True)),
    "two irises": lambda: numbers(*(part[50:] for part in load_iris(return_X_y=True))),
    "wisconsin": lambda: numbers(*load_breast_cancer(return_X_y=True)),
    "penguins": shared("penguins"),
    "car": shared("car"),
    "breast-cancer": shared("breast-cancer"),
    "vote": shared("vote"),
    "two classes": lambda: generated(2),
    "three classes": lambda: generated(3, seed=1),
    "ten classes": lambda: generated(10, seed=2, n=600),
    "numbers far from 0": lambda: generated(3, seed=3, scales=(1.0, 20.0), offset=1e6),
}


def weights(n: int) -> Any:
    """Return weights that are no whole numbers."""
    return np.random.default_rng(n).choice([0.25, 0.5, 1.7, 3.1], n)


def scikit(problem: Problem, **options: Any) -> tuple[Any, Any]:
    """Return (intercept at the means, coef (P, M)) of scikit-learn on the indicator columns."""
    told = {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 1000, **options}
    C = math.inf if problem.penalty is None else problem.C
    with warnings.catch_warnings():
        # Its line search ends with a warning where no step makes the loss smaller by a bit.
        warnings.simplefilter("ignore")
        theirs = LogisticRegression(C=C, **told)
        theirs.fit(problem.Z, problem.y, sample_weight=problem.weight)
    return theirs.intercept_, theirs.coef_.T
