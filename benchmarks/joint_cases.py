"""The cases of joint tables, and of numbers in their cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes
from fastbayes.core.schema import Shape
from fastbayes.statistics import CellCounts

NUMPY, PANDAS, BY_CELL = "numpy, joint codes", "pandas, groupby", "numpy, a cell at a time"
SIZES, K, P = (4, 3, 5, 8), 3, 5


def _columns(rows: int) -> tuple[list[NDArray[np.uint8]], NDArray[np.uint8]]:
    generator = np.random.default_rng(7)
    columns = [generator.integers(0, size, rows).astype(np.uint8) for size in SIZES]
    return columns, generator.integers(0, K, rows).astype(np.uint8)


def _batches(columns: list[NDArray[np.uint8]], y: NDArray[np.uint8]) -> list[Batch]:
    sizes, none = np.array(SIZES), np.zeros(len(SIZES), np.bool_)
    found = []
    for first in range(0, len(y), BLOCK_ROWS):
        some = slice(first, first + BLOCK_ROWS)
        codes = np.array([column[some] for column in columns])
        groups = (Codes(np.arange(len(SIZES)), codes, sizes),)
        found.append(Batch(len(y[some]), y[some], K, groups, none, (), None, float("inf")))
    return found


def _cells(rows: int, _: Path) -> Work:
    """Count the joint table of ready codes on one thread."""
    columns, y = _columns(rows)
    batches = _batches(columns, y)
    frame = pd.DataFrame({f"c{j}": column for j, column in enumerate(columns)} | {"y": y})

    def ours() -> Any:
        counts = CellCounts.zeros(Shape(np.array(SIZES), 0, K))
        for batch in batches:
            counts.update(batch)
        return counts.counts

    def numpys() -> Any:
        code = np.zeros(len(y), np.int64)
        for column, size in zip(columns, SIZES, strict=True):
            code = code * size + column
        return np.unique(code * K + y, return_counts=True)

    def pandas() -> Any:
        return frame.groupby([*frame.columns], sort=False).size()

    def check(results: dict[str, Any]) -> None:
        expected = np.zeros(int(np.prod(SIZES)) * K, np.int64)
        codes, counts = results[NUMPY]
        expected[codes] = counts
        assert np.array_equal(
            results[OURS].ravel(), expected[expected.reshape(-1, K).any(axis=1).repeat(K)]
        )
        assert results[PANDAS].sum() == counts.sum()

    runs = {OURS: ours, NUMPY: numpys, PANDAS: pandas}
    return Work({name: Side(run, float(rows)) for name, run in runs.items()}, check)


def _posterior(rows: int, _: Path) -> Work:
    """Score values and numbers of a table on one thread."""
    columns, y = _columns(rows)
    generator = np.random.default_rng(8)
    cell = np.zeros(rows, np.int64)
    for column, size in zip(columns, SIZES, strict=True):
        cell = cell * size + column
    x = generator.normal(size=(rows, P)) + 0.3 * y[:, None] + 0.01 * cell[:, None]
    named: dict[str, Any] = {
        f"c{j}": pa.array(column.astype(str)).dictionary_encode()
        for j, column in enumerate(columns)
    }
    named |= {f"x{j}": x[:, j] for j in range(P)}
    table = pa.table(named | {"y": y})
    model = fb.JointGaussian(density="normal", threads=1).fit(table, "y")
    X = table.drop_columns("y")
    n_cells = int(np.prod(SIZES))
    prior, weight, (mean, whiten, level) = _parameters(model, n_cells)

    def by_cell() -> NDArray[np.float64]:
        out = np.empty((rows, K))
        order = np.argsort(cell, kind="stable")
        ends = np.cumsum(np.bincount(cell, minlength=n_cells))
        for v, some in enumerate(np.split(order, ends[:-1])):
            for c in range(K):
                z = (x[some] - mean[v, c]) @ whiten[v, c].T
                out[some, c] = weight[v, c] + level[v, c] - 0.5 * (z * z).sum(axis=1)
        out += prior
        out -= out.max(axis=1, keepdims=True)
        np.exp(out, out=out)
        out /= out.sum(axis=1, keepdims=True)
        return out

    def check(results: dict[str, Any]) -> None:
        np.testing.assert_allclose(results[OURS], results[BY_CELL], rtol=1e-7, atol=1e-12)

    runs: dict[str, Callable[[], Any]] = {OURS: lambda: model.predict_proba(X), BY_CELL: by_cell}
    return Work({name: Side(run, float(rows)) for name, run in runs.items()}, check)


def _parameters(model: Any, n_cells: int) -> tuple[Any, Any, tuple[Any, Any, Any]]:
    """Return ln P(c), ln P(v | c), and the densities, dense by cell and class."""
    mixture = model._mixture
    codes = np.array(np.unravel_index(np.arange(n_cells), SIZES))
    every = np.repeat(np.arange(K)[None], n_cells, axis=0)
    at = mixture.found(np.repeat(codes, K, axis=1), every.ravel()).reshape(n_cells, K)
    at = np.where(at < 0, len(mixture.keys) + every, at)
    normals = mixture.gaussians.densities.found
    deviation = normals.deviation[at]
    mean = normals.mean[at] + normals.rest[at]
    covariance = normals.correlation[at] * deviation[..., None] * deviation[..., None, :]
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    level = np.log(np.diagonal(whiten, axis1=2, axis2=3)).sum(axis=2) - P / 2 * np.log(2 * np.pi)
    return model.class_log_prior_, mixture.table.log_likelihood(codes), (mean, whiten, level)


CASES = (
    Case(
        "cells",
        f"joint table of {{rows}} × {len(SIZES)} ready codes, {K} classes, one thread",
        rows_of(2_000_000, 300_000),
        _cells,
        (Claim(None, most=15), Claim(NUMPY), Claim(PANDAS)),
        unit="row",
        threads="one",
    ),
    Case(
        "joint-gaussian",
        f"`predict_proba` of `JointGaussian`, Arrow table, {{rows}} × {len(SIZES)} text columns "
        f"and {P} doubles, {int(np.prod(SIZES))} cells, {K} classes, one thread (other: ready "
        "codes)",
        rows_of(1_000_000, 200_000),
        _posterior,
        (Claim(BY_CELL),),
        unit="row",
        threads="one",
    ),
)
