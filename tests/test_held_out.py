"""Leave-one-out log joints in closed form: against refitting without each row (§9)."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.models.discrete.spode import spode_scores
from fastbayes.models.estimator.smoothing import (
    CountTables,
    Smoothing,
    leave_one_out_log_joint,
    left_out,
)

NAMES = ["a", "b", "c"]
SIZES = [2, 3, 2]


def table(seed: int, n: int, missing: float = 0.0) -> tuple[pa.Table, list[str]]:
    """Return features that depend on one another and on the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    first = (y + (rng.random(n) < 0.3)) % 2
    columns = {}
    for name, size in zip(NAMES, SIZES, strict=True):
        codes = (first + rng.integers(0, size, n) * (rng.random(n) < 0.4)) % size
        columns[name] = pa.array([f"v{c}" for c in codes], mask=rng.random(n) < missing)
    return pa.table(columns), [f"c{c}" for c in y]


def counted(X: pa.Table, y: list[str], weight: Any = None, missing: str = "marginalize") -> Any:
    domains = {name: [f"v{v}" for v in range(s)] for name, s in zip(NAMES, SIZES, strict=True)}
    return fb.count(X, y, pairs=True, domains={**domains}, sample_weight=weight, missing=missing)


def scores(stats: Any, alpha: float, **options: Any) -> Any:
    options = {"missing": "marginalize", "unseen": "ignore"} | options
    return spode_scores(CountTables(stats.values, stats.pairs, **options), Smoothing(alpha=alpha))


def refitted(X: pa.Table, y: list[str], alpha: float, super_parent: str) -> float:
    """Return the sum of log joints of rows, each of the model fitted to the others."""
    whole, total = counted(X, y), 0.0
    for r in range(len(y)):
        rest = whole - counted(X.slice(r, 1), [y[r]])
        model = fb.SPODE(alpha=alpha, super_parent=super_parent).fit_statistics(rest)
        joint = model.log_joint(X.slice(r, 1))[0]
        total += float(joint[model.classes_.tolist().index(y[r])])
    return total


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_spode_scores__equal_refitting_where_the_super_parent_is_known(
    alpha: float, gaps: float
) -> None:
    X, y = table(1, 40, gaps)
    if alpha == 0:  # every cell more than once, or the sum is -inf
        X, y = pa.concat_tables([X, X]), y * 2
    for p, name in enumerate(NAMES):
        known = X if not gaps else X.set_column(p, name, X[name].fill_null("v0"))
        found = scores(counted(known, y), alpha)
        assert math.isfinite(found[p])
        assert found[p] == pytest.approx(refitted(known, y, alpha, name), rel=1e-12)


def by_rows(X: pa.Table, y: list[str], alpha: Fraction, p: str, weight: list[int]) -> float:
    """Score row after row, all counted anew without it; no super-parent means naive factors."""
    rows = [r for r, w in zip(X.to_pylist(), weight, strict=True) for _ in range(w)]
    y = [c for c, w in zip(y, weight, strict=True) for _ in range(w)]
    terms = []
    for r, row in enumerate(rows):
        others = [o | {"y": c} for i, (o, c) in enumerate(zip(rows, y, strict=True)) if i != r]
        row = row | {"y": y[r]}

        def share(j: str, given: list[str], size: int, row: Any = row, others: Any = others) -> Any:
            alike = [o for o in others if all(o[g] == row[g] for g in given) and o[j] is not None]
            n = sum(o[j] == row[j] for o in alike)
            below = len(alike) + size * alpha
            return (n + alpha) / below if below else Fraction(1, size)

        terms.append(share("y", [], 2))
        for j, size in zip(NAMES, SIZES, strict=True):
            if row[j] is not None:
                alone = j == p or row[p] is None
                terms.append(share(j, ["y"] if alone else ["y", p], size))
    return math.fsum(math.log(t) if t else -math.inf for t in terms)


@given(
    seed=st.integers(0, 2**32),
    alpha=st.sampled_from([0, 0.25, 1, 3]),
    gaps=st.sampled_from([0.0, 0.2, 0.7]),
    weighted=st.booleans(),
)
def test_spode_scores__row_by_row(seed: int, alpha: float, gaps: float, weighted: bool) -> None:
    """A row without its super-parent is scored by naive factors; weight w is w rows."""
    X, y = table(seed, 12, gaps)
    y[:2] = ["c0", "c1"]
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 4, 12) if weighted else np.ones(12, np.int64)
    stats = counted(X, y, weight.astype(float) if weighted else None)
    expected = [by_rows(X, y, Fraction(alpha), p, weight.tolist()) for p in NAMES]
    np.testing.assert_allclose(scores(stats, alpha), expected, rtol=1e-12)


def test_spode_scores__a_super_parent_that_is_never_known_is_naive_bayes() -> None:
    X, y = table(3, 30, 0.1)
    X = X.set_column(0, "a", pa.nulls(30, pa.string()))
    stats = counted(X, y)
    naive = leave_one_out_log_joint(stats.values, "marginalize")(0.5)
    assert scores(stats, 0.5)[0] == pytest.approx(naive, rel=1e-13)


def test_spode_scores__missing_as_a_category_is_a_value() -> None:
    X, y = table(4, 50, 0.2)
    filled = pa.table({name: X[name].fill_null("v9") for name in NAMES})
    domains = {n: [*(f"v{v}" for v in range(s)), "v9"] for n, s in zip(NAMES, SIZES, strict=True)}
    expected = scores(fb.count(filled, y, pairs=True, domains=domains), 0.5)
    found = scores(counted(X, y, missing="category"), 0.5, missing="category")
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_spode_scores__rounding_of_weights_is_no_row_without_super_parent() -> None:
    """0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1, and what is over would be scored ln 0."""
    rows = [("v2", "p", 0.1), ("v1", "p", 0.2), ("v0", "p", 0.3), ("v3", "q", 2), ("v3", "q", 2)]
    rows += [(f"v{a}", None, 5) for a in range(3)]
    a, b, weight = zip(*rows, strict=True)
    stats = fb.count(
        pa.table({"a": a, "b": b}), ["c"] * 8, pairs=True, sample_weight=[float(w) for w in weight]
    )
    assert math.isfinite(scores(stats, 0.0)[0])


@given(order=st.permutations(range(3)))
def test_spode_scores__order_of_the_columns(order: list[int]) -> None:
    X, y = table(6, 40, 0.1)
    moved = fb.count(X.select([NAMES[j] for j in order]), y, pairs=True)
    expected = scores(fb.count(X, y, pairs=True), 1.0)
    np.testing.assert_allclose(scores(moved, 1.0), expected[list(order)], rtol=1e-13)


# One family


def family_score(counts: Any, alpha: float) -> float:
    n = np.asarray(counts, np.float64)
    return left_out(n, n.sum(axis=1, keepdims=True), np.array(n.shape[1]), alpha)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
    seed=st.integers(0, 2**32),
    alpha=st.sampled_from([0.0, 0.5, 2.0]),
    unit=st.sampled_from([1.0, 0.3]),
)
def test_family_score__cell_by_cell(
    shape: tuple[int, int, int], seed: int, alpha: float, unit: float
) -> None:
    counts = np.random.default_rng(seed).integers(0, 4, shape)
    n = counts if unit == 1 else counts * unit
    terms = [0.0]
    for u, v, c in itertools.product(*map(range, shape)):
        cell, whole = float(n[u, v, c]), float(n[u, :, c].sum())
        if not cell:
            continue
        below = whole - min(whole, 1) + shape[1] * alpha
        ratio = (cell - min(cell, 1) + alpha) / below if below > 0 else 1 / shape[1]
        terms.append(cell * (math.log(ratio) if ratio else -math.inf))
    assert family_score(n, alpha) == pytest.approx(math.fsum(terms), rel=1e-12)


def test_family_score__a_cell_that_stands_once() -> None:
    counts = np.array([[[1], [4]]])
    assert family_score(counts, 0.0) == -math.inf
    assert family_score(counts, 1.0) == pytest.approx(math.log(1 / 6) + 4 * math.log(4 / 6))
    # The only row of its parent's value: 0/0 is 1/S_v.
    assert family_score(np.array([[[1], [0]]]), 0.0) == math.log(0.5)
    assert family_score(np.zeros((2, 2, 2)), 0.0) == 0.0
