"""Logistic regression begun at naive Bayes and at zeros: how many passes over the rows it takes.

    python -m benchmarks.starts [ROWS]

prints, as Markdown, the passes after which the objective is within 1 %, 0.01 % and 0.0001 % of its
least value. A pass goes over all rows once, for a gradient or for a product with the Hessian.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb

# How often a column repeats its neighbour instead of what its class would say.
DATA = {"independent given the class": 0.0, "3 of 10 cells repeat a neighbour": 0.3}
SOLVERS = ("newton-cg", "lbfgs", "conjugate_gradient", "gradient")
INITS = ("zeros", "naive_bayes")
CLOSE = (1e-2, 1e-4, 1e-6)
ROWS = 20_000


def rows_of(n: int, repeat: float, *, columns: int = 15, seed: int = 0) -> pa.Table:
    """Return rows of so many columns of 6 values, and of 4 classes."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, n)
    found: dict[str, NDArray[np.int64]] = {}
    before: NDArray[np.int64] | None = None
    for j in range(columns):
        bounds = random.dirichlet(np.full(6, 2.0), 4).cumsum(axis=1)[:, :-1]
        x = (random.random(n)[:, None] >= bounds[y]).sum(axis=1)
        if before is not None:
            x = np.where(random.random(n) < repeat, before, x)
        before = found[f"x{j}"] = x
    names = {name: x.astype(str) for name, x in found.items()}
    return pa.table({**names, "y": y.astype(str)})


@dataclass(frozen=True)
class Way:
    """How a fit went down.

    solver, init  parameters of the model
    gap           how far the objective was above its least value, as a share of it, at each step
    passes        times that all rows had been gone over by then
    proba         posteriors of the rows at the end
    """

    solver: str
    init: str
    gap: NDArray[np.float64]
    passes: NDArray[np.float64]
    proba: NDArray[np.float64]

    def passes_to(self, gap: float) -> float:
        """Return the passes after which the objective was so close, infinity if it never was."""
        near = self.gap <= gap
        return float(self.passes[near.argmax()]) if near.any() else np.inf


def ways(table: pa.Table, solvers: tuple[str, ...] = SOLVERS, max_iter: int = 500) -> Iterator[Way]:
    """Yield how each solver goes down from each start."""
    best = fb.LogisticRegression(tol=1e-9).fit(table, "y").objective_
    X = table.drop_columns(["y"])
    for solver in solvers:
        for init in INITS:
            with warnings.catch_warnings():
                # Plain gradient steps do not always arrive.
                warnings.simplefilter("ignore", fb.FastBayesWarning)
                model = fb.LogisticRegression(solver=solver, init=init, max_iter=max_iter)
                model.fit(table, "y")
            _, objective, _, passes = model.trace_.T
            yield Way(solver, init, objective / best - 1, passes, model.predict_proba(X))


def main(n: int, solvers: tuple[str, ...] = SOLVERS) -> None:
    """Print the table."""
    told = " | ".join(f"within {100 * gap:g} %" for gap in CLOSE)
    print(f"| {n:,} rows, 15 columns of 6 values, 4 classes | solver | begun at | {told} |")
    print("|---|---|---|" + "--:|" * len(CLOSE))
    for name, repeat in DATA.items():
        for way in ways(rows_of(n, repeat), solvers):
            counts = (way.passes_to(gap) for gap in CLOSE)
            cells = " | ".join("–" if c == np.inf else f"{c:.0f}" for c in counts)
            print(f"| {name} | {way.solver} | {way.init.replace('_', ' ')} | {cells} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
