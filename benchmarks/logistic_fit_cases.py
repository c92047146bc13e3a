"""The cases of whole fits of logistic regression, and of what fitted models say of tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression as Rival
from sklearn.preprocessing import OneHotEncoder

import fastbayes as fb
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes import generate

Floats = NDArray[np.float64]
Build = Callable[[int, Path], Work]

LBFGS = "scikit-learn, lbfgs"
AS_IT_COMES = "scikit-learn, lbfgs, its own tolerance of 1e-4, indicators made in the clock"
NEWTON, CHOLESKY = "scikit-learn, newton-cg", "scikit-learn, newton-cholesky"
SOLVERS = {NEWTON: "newton-cg", CHOLESKY: "newton-cholesky"}
SKLEARN = "scikit-learn"
# How much larger our objective may be, of theirs.
CLOSE = 1e-6
# Where the rival stops; it is as near the minimum as ours at its own tolerance of 1e-6 then.
TOL, MOST_STEPS = 1e-6, 5_000
FEW = 100_000


@dataclass(frozen=True)
class Task:
    """A table, and the same rows as indicators and numbers.

    table   the class is "class"; numbers are standardised, so that both penalise the same
    codes   (rows, d) of the categorical columns
    numbers (rows, p)
    names   (column, value) of each column of the design, the value None of a number
    y       (rows,) classes, as codes
    """

    table: pa.Table
    codes: NDArray[np.uint8]
    numbers: Floats
    names: list[tuple[str, Any]]
    y: NDArray[np.intp]

    @property
    def cells(self) -> float:
        return float(self.table.num_rows * (self.table.num_columns - 1))

    @property
    def design(self) -> Any:
        """The design as scikit-learn takes it best: sparse where there are indicators."""
        if not self.codes.shape[1]:
            return self.numbers
        indicators = OneHotEncoder(dtype=np.float64).fit_transform(self.codes)
        if not self.numbers.shape[1]:
            return indicators
        return sparse.csr_matrix(sparse.hstack([indicators, sparse.csr_matrix(self.numbers)]))


def task(preset: str, rows: int, columns: int | None = None) -> Task:
    """Return generated rows, of the first so many columns."""
    made = generate.table(preset, rows)
    features = made.column_names[:-1][:columns]
    table, codes, numbers, names = {}, [], [], []
    for name in features:
        column = made[name].unify_dictionaries().combine_chunks()
        if not pa.types.is_dictionary(column.type):
            x = column.to_numpy()
            numbers.append((x - x.mean()) / x.std())
            table[name] = pa.array(numbers[-1])
            continue
        table[name] = column
        codes.append(column.indices.to_numpy())
        # The encoder gives no column to a value that does not occur.
        names += [(name, column.dictionary[int(c)].as_py()) for c in np.unique(codes[-1])]
    names += [(name, None) for name in features if not pa.types.is_dictionary(made[name].type)]
    target = made["class"].unify_dictionaries().combine_chunks()
    matrix = np.array(codes, np.uint8).reshape(len(codes), rows).T
    return Task(
        pa.table(table | {"class": target}),
        np.ascontiguousarray(matrix),
        np.ascontiguousarray(np.array(numbers).reshape(len(numbers), rows).T),
        names,
        np.asarray(target.indices.to_numpy(), np.intp),
    )


def coefficients(model: fb.LogisticRegression, names: list[tuple[str, Any]]) -> Floats:
    """Return our coefficients as scikit-learn has them, (n_outputs, columns of the design)."""
    found = dict(zip(model.coef_names_, model.coef_.T, strict=True))
    return np.ascontiguousarray(np.array([found[name] for name in names]).T)


def objective(design: Any, y: NDArray[np.intp], coef: Floats, intercept: Floats) -> float:
    """Return what both minimise: the losses of all rows, and half the sum of squares."""
    loss = 0.0
    for first in range(0, len(y), FEW):
        margin = np.asarray(design[first : first + FEW] @ coef.T) + intercept
        if margin.shape[1] == 1:
            margin = np.hstack([np.zeros_like(margin), margin])
        own = margin[np.arange(len(margin)), y[first : first + FEW]]
        loss += float((logsumexp(margin, axis=1) - own).sum())
    return loss + float((coef**2).sum()) / 2


def _fit(preset: str, columns: int | None = None, rivals: tuple[str, ...] = (LBFGS,)) -> Build:
    """Fit from an Arrow table, beside scikit-learn from a matrix that is ready."""

    def build(rows: int, _: Path) -> Work:
        given = task(preset, rows, columns)
        design, cells = given.design, given.cells

        def rival(name: str) -> Any:
            solver = SOLVERS.get(name, "lbfgs")
            tol, x = (1e-4, given.design) if name == AS_IT_COMES else (TOL, design)
            return Rival(solver=solver, tol=tol, max_iter=MOST_STEPS).fit(x, given.y)

        sides = {OURS: Side(lambda: fb.LogisticRegression().fit(given.table, "class"), cells)}
        for name in rivals:
            sides[name] = Side(functools.partial(rival, name), cells, once=True)

        def check(results: dict[str, Any]) -> None:
            ours = results[OURS]
            assert ours.converged_
            coef = coefficients(ours, given.names)
            found = objective(design, given.y, coef, ours.intercept_)
            np.testing.assert_allclose(found, ours.objective_, rtol=1e-9)
            for name in rivals:
                theirs = results[name]
                assert (theirs.n_iter_ < MOST_STEPS).all(), name
                value = objective(design, given.y, theirs.coef_, theirs.intercept_)
                assert found <= value * (1 + CLOSE), name
                # A rival that stopped far from the minimum would be timed at something else.
                assert name == AS_IT_COMES or value <= found * (1 + 10 * CLOSE), name

        return Work(sides, check)

    return build


def _posteriors(preset: str) -> Build:
    """Apply a fitted model to an Arrow table, beside scikit-learn with the same coefficients."""

    def build(rows: int, _: Path) -> Work:
        given = task(preset, rows)
        model = fb.LogisticRegression().fit(given.table.slice(0, FEW), "class")
        features, design = given.table.drop_columns(["class"]), given.design
        rival = Rival()
        known = dict(zip(model.coef_names_, model.coef_.T, strict=True))
        nothing = np.zeros(len(model.coef_))
        coef = np.array([known.get(name, nothing) for name in given.names]).T
        rival.classes_, rival.intercept_ = model.classes_, model.intercept_
        rival.coef_ = np.ascontiguousarray(coef)
        runs: dict[str, Callable[[], Floats]] = {
            OURS: lambda: model.predict_proba(features),
            SKLEARN: lambda: rival.predict_proba(design),
        }

        def check(results: dict[str, Any]) -> None:
            np.testing.assert_allclose(results[OURS], results[SKLEARN], rtol=0, atol=1e-11)

        return Work({name: Side(run, given.cells) for name, run in runs.items()}, check)

    return build


FITTED = "`LogisticRegression` fitted to an Arrow table, {rows} × "
TURNS = {"full": 7, "quick": 3, "test": 1}
CASES = (
    Case(
        "logistic-fit",
        FITTED + "30 of 2–12 values, 4 classes (scikit-learn: indicators that are ready)",
        rows_of(1_000_000, 100_000),
        _fit("cat", rivals=(LBFGS, AS_IT_COMES, NEWTON)),
        (Claim(LBFGS, least=20), Claim(AS_IT_COMES), Claim(NEWTON)),
        turns=TURNS,
    ),
    Case(
        "logistic-fit-binary",
        FITTED + "24 of 2–4 values, 2 classes (scikit-learn: indicators that are ready)",
        rows_of(1_000_000, 100_000),
        _fit("binary", 24, (LBFGS, NEWTON)),
        (Claim(LBFGS, least=8), Claim(NEWTON)),
        turns=TURNS,
    ),
    Case(
        "logistic-fit-numbers",
        FITTED + "30 standardised doubles, 3 classes (scikit-learn: an array)",
        rows_of(1_000_000, 100_000),
        _fit("gauss", rivals=(LBFGS, CHOLESKY)),
        (Claim(LBFGS, least=8), Claim(CHOLESKY)),
        unit="value",
        turns=TURNS,
    ),
    Case(
        "logistic-fit-mixed",
        FITTED + "(15 columns of values + 10 standardised doubles), 3 classes (scikit-learn: a "
        "sparse matrix that is ready)",
        rows_of(1_000_000, 100_000),
        _fit("mixed", rivals=(LBFGS, NEWTON)),
        (Claim(LBFGS, least=20), Claim(NEWTON)),
        turns=TURNS,
    ),
    Case(
        "logistic-predict",
        "`predict_proba` of a logistic regression, an Arrow table, {rows} × 30 of 2–12 values, "
        "4 classes (scikit-learn: indicators that are ready)",
        rows_of(1_000_000, 300_000),
        _posteriors("cat"),
        (Claim(SKLEARN, least=2),),
    ),
)  # fmt: skip
