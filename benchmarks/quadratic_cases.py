"""The cases of normal densities of many columns together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from threadpoolctl import threadpool_limits

import fastbayes as fb
from benchmarks import rivals
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.threads import default_threads, in_order
from fastbayes.kernels import dispatch

Floats = NDArray[np.float64]
Build = Callable[[int, Path], Work]
Parts = tuple[Floats, Floats, Floats]

SKLEARN, NUMPY = "scikit-learn", "numpy, tuned"
K, D = 3, 30
# Rows at a time that are fastest by numpy: what belongs to them stays in the cache.
FEW = 2_048


def _rows(rows: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return columns that depend on each other, differently in each class, and classes."""
    generator = np.random.default_rng(5)
    classes = generator.integers(0, K, rows)
    x = generator.normal(size=(rows, D))
    for c in range(K):
        mixed = np.eye(D) + 0.1 * generator.normal(size=(D, D))
        x[classes == c] = x[classes == c] @ mixed + 0.2 * c
    return x, classes


def _fitted(x: Floats, classes: NDArray[np.intp], shared: bool) -> Parts:
    """Return means, matrices that whiten and levels, as scikit-learn estimates them."""
    parts = [x[classes == c] for c in range(K)]
    mean = np.array([part.mean(axis=0) for part in parts])
    scatter = [(part - m).T @ (part - m) for part, m in zip(parts, mean, strict=True)]
    if shared:
        covariance = np.array([sum(scatter) / len(x)])
    else:
        covariance = np.array([s / len(part) for s, part in zip(scatter, parts, strict=True)])
    return mean, *_whitened(covariance)


def _whitened(covariance: Floats) -> tuple[Floats, Floats]:
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    diagonals = np.diagonal(whiten, axis1=1, axis2=2)
    level = np.log(diagonals).sum(axis=1) - covariance.shape[1] / 2 * np.log(2 * np.pi)
    return whiten, np.broadcast_to(level, K)


def _scored(x: Floats, log_prior: Floats, parts: Parts, threads: int) -> Callable[[], Floats]:
    """Score columns block by block, as they come from a table."""
    mean, whiten, level = parts
    covariance = np.linalg.inv(whiten.swapaxes(1, 2) @ whiten)

    def marginal(known: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, Floats, None]:
        part = mean[:, known]
        return part, np.zeros_like(part), *_whitened(covariance[:, known][:, :, known]), None

    scorer = dispatch.load("scoring.quadratic").QuadraticScorer(
        log_prior, mean, np.zeros_like(mean), whiten, level, None, marginal
    )
    firsts = range(0, len(x), BLOCK_ROWS)
    blocks = [list(np.ascontiguousarray(x[first : first + BLOCK_ROWS].T)) for first in firsts]

    def run() -> Floats:
        out = np.empty((len(x), K))

        def one(block: int) -> None:
            piece = out[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
            scorer.posterior((), blocks[block], piece)

        for _ in in_order(one, range(len(blocks)), threads):
            pass
        return out

    return run


def _by_hand(x: Floats, log_prior: Floats, parts: Parts) -> Callable[[], Floats]:
    """Score rows by BLAS, so few at a time that nothing leaves the cache, on all threads."""
    mean, whiten, level = parts
    whitened = [
        (m @ w.T, w.T) for m, w in zip(mean, np.broadcast_to(whiten, (K, D, D)), strict=True)
    ]

    def run() -> Floats:
        out = np.empty((len(x), K))

        def one(first: int) -> None:
            rows, joint = x[first : first + FEW], out[first : first + FEW]
            for c, (m, matrix) in enumerate(whitened):
                z = rows @ matrix
                z -= m
                joint[:, c] = np.einsum("ij,ij->i", z, z)
            joint *= -0.5
            joint += log_prior + level
            joint -= joint.max(axis=1, keepdims=True)
            np.exp(joint, out=joint)
            joint /= joint.sum(axis=1, keepdims=True)

        with threadpool_limits(1, "blas"):
            list(rivals.pool().map(one, range(0, len(x), FEW)))
        return out

    return run


def _posterior(*, shared: bool) -> Build:
    """Score on all threads, beside scikit-learn and numpy by hand."""

    def build(rows: int, _: Path) -> Work:
        x, classes = _rows(rows)
        parts = _fitted(x, classes, shared)
        log_prior = np.log(np.bincount(classes) / rows)
        model = LinearDiscriminantAnalysis() if shared else QuadraticDiscriminantAnalysis()
        model.fit(x, classes)
        runs = {
            OURS: _scored(x, log_prior, parts, default_threads()),
            NUMPY: _by_hand(x, log_prior, parts),
            SKLEARN: lambda: model.predict_proba(x),
        }

        def check(results: dict[str, Any]) -> None:
            for name in runs:
                np.testing.assert_allclose(results[OURS], results[name], rtol=1e-7, atol=1e-10)

        return Work({name: Side(run, float(rows * D)) for name, run in runs.items()}, check)

    return build


def _incomplete(rows: int, _: Path) -> Work:
    """Score rows of which four in five lack something, on one thread."""
    x, classes = _rows(rows)
    parts = _fitted(x, classes, False)
    x[np.random.default_rng(6).random(x.shape) < 0.05] = np.nan
    log_prior = np.log(np.bincount(classes) / rows)
    run = _scored(x, log_prior, parts, 1)

    def check(results: dict[str, Any]) -> None:
        mean, whiten, _ = parts
        covariance = np.linalg.inv(whiten.swapaxes(1, 2) @ whiten)
        for r in range(50):
            known = ~np.isnan(x[r])
            own, level = _whitened(covariance[:, known][:, :, known])
            z = np.einsum("cij,cj->ci", own, x[r, known] - mean[:, known])
            joint = log_prior + level - (z * z).sum(axis=1) / 2
            expected = np.exp(joint - joint.max())
            np.testing.assert_allclose(results[OURS][r], expected / expected.sum(), rtol=1e-7)

    return Work({OURS: Side(run, float(rows * D))}, check)


def _whole(*, shared: bool) -> Build:
    """Fit from a table of doubles on all threads, beside scikit-learn from an array."""

    def build(rows: int, _: Path) -> Work:
        x, classes = _rows(rows)
        labels = np.array(["a", "b", "c"])[classes]
        table = pa.table({f"x{j:02d}": x[:, j] for j in range(D)} | {"class": labels})
        rival = QuadraticDiscriminantAnalysis()
        if shared:
            rival = LinearDiscriminantAnalysis(solver="lsqr")
        covariance = "tied" if shared else "full"
        runs = {
            OURS: lambda: fb.GaussianBayes(covariance=covariance).fit(table, "class"),
            SKLEARN: lambda: clone(rival).fit(x, classes),
        }

        def check(results: dict[str, Any]) -> None:
            few = table.slice(0, 1_000)
            expected = results[SKLEARN].predict_proba(x[:1_000])
            np.testing.assert_allclose(
                results[OURS].predict_proba(few), expected, rtol=1e-6, atol=1e-9
            )

        return Work({name: Side(run, float(rows * D)) for name, run in runs.items()}, check)

    return build


CASES = (
    Case(
        "qda-fit",
        f"`GaussianBayes` fitted to an Arrow table, {{rows}} × {D} doubles, {K} classes "
        "(scikit-learn: QDA, an array)",
        rows_of(1_000_000, 200_000),
        _whole(shared=False),
        (Claim(SKLEARN, least=8),),
        unit="value",
    ),
    Case(
        "lda-fit",
        f"`GaussianBayes` of one covariance, {{rows}} × {D} doubles, {K} classes "
        "(scikit-learn: LDA by lsqr, an array)",
        rows_of(1_000_000, 200_000),
        _whole(shared=True),
        (Claim(SKLEARN),),
        unit="value",
    ),
    Case(
        "quadratic",
        f"posteriors of normal densities, ready columns, {{rows}} × {D} doubles, {K} classes",
        rows_of(1_000_000, 200_000),
        _posterior(shared=False),
        (Claim(SKLEARN, least=3), Claim(NUMPY)),
        unit="value",
    ),
    Case(
        "quadratic-tied",
        f"posteriors of normal densities of one covariance, ready columns, {{rows}} × {D} "
        f"doubles, {K} classes",
        rows_of(1_000_000, 200_000),
        _posterior(shared=True),
        (Claim(SKLEARN), Claim(NUMPY)),
        unit="value",
    ),
    Case(
        "quadratic-missing",
        f"posteriors of normal densities, ready columns, {{rows}} × {D} doubles, 1 in 20 missing, "
        f"{K} classes, one thread",
        rows_of(1_000_000, 200_000),
        _incomplete,
        (),
        unit="value",
        threads="one",
    ),
)
