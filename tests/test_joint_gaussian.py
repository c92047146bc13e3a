"""Gaussians in cells against plain loops, and what must hold of them."""

from __future__ import annotations

import math
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.joint_gaussian import JointGaussian
from sklearn.datasets import load_breast_cancer

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning, MemoryLimitError
from fastbayes.models.joint import cell_gaussians
from fastbayes.models.numeric import covariance
from fastbayes.statistics import cell_runs, cell_scatter

NAMES = ("a", "b")
DOMAINS = ("pq", "uvw")


pytestmark = pytest.mark.usefixtures("kernels")


def drawn(seed: int, n: int = 60, p: int = 2, gaps: float = 0.15) -> tuple[Any, Any, Any]:
    """Return rows of values, numbers that depend on them and on each other, and classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(2, n)
    codes = [(rng.integers(0, len(d), n) + y * (rng.random(n) < 0.3)) % len(d) for d in DOMAINS]
    base = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) if p else np.zeros((n, 0))
    x = base + 2.0 * (codes[0] * (2 * y - 1))[:, None] + codes[1][:, None] + 50
    x[rng.random(x.shape) < gaps] = np.nan
    values = [np.array(list(d), object)[c] for d, c in zip(DOMAINS, codes, strict=True)]
    for column in values:
        column[rng.random(n) < gaps] = None
    return list(zip(*values, strict=True)), x, [("no", "yes")[c] for c in y]


def table_of(rows: Any, x: Any, classes: Any = None) -> pa.Table:
    columns = zip(*rows, strict=True)
    told = {name: pa.array(list(v), pa.string()) for name, v in zip(NAMES, columns, strict=True)}
    told |= {f"x{j}": pa.array(column) for j, column in enumerate(np.asarray(x).T)}
    return pa.table(told | ({} if classes is None else {"y": pa.array(classes)}))


def fitted(rows: Any, x: Any, classes: Any, **options: Any) -> fb.JointGaussian:
    domains = dict(zip(NAMES, map(list, DOMAINS), strict=True))
    model = fb.JointGaussian(domains=domains, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the covariance of")
        return model.fit(table_of(rows, x, classes), "y")


def asked(x: Any, seed: int = 0) -> tuple[Any, Any]:
    """Return every combination of values, missing ones too, with numbers near those given."""
    rng = np.random.default_rng(seed)
    rows = list(product(*([None, *d] for d in DOMAINS)))
    new = np.nanmean(x, axis=0) + rng.normal(size=(len(rows), x.shape[1])) * 3
    new[rng.random(new.shape) < 0.3] = np.nan
    return rows, new


@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 3),
    n=st.sampled_from([12, 60]),
    backoff=st.sampled_from([0.5, 10.0, 1e9]),
    tau=st.sampled_from([0, 1, 0.5]),
    cells=st.sampled_from(["joint", "naive"]),
    density=st.sampled_from(["student", "normal"]),
    gaps=st.sampled_from([0.15, 0.7]),
)
def test_log_joint__is_that_of_plain_loops(
    seed: int, p: int, n: int, backoff: float, tau: float, cells: str, density: str, gaps: float
) -> None:
    rows, x, classes = drawn(seed, n, p, gaps)
    there = [(~np.isnan(x[[k == c for k in classes]])).sum(axis=0) for c in {*classes}]
    if len(there) < 2 or not (np.max(there, axis=0) > 1).all():
        return  # a column that does not vary within any class
    if density == "normal" and np.isnan(x).any(axis=1).sum() > n - p - 2:
        return  # too few complete rows
    how: dict[str, Any] = {"backoff": backoff, "tau": tau, "cells": cells, "density": density}
    model = fitted(rows, x, classes, **how)
    assert not model._mixture.gaussians.shrunk
    twin = JointGaussian(rows, x, classes, DOMAINS, **how)
    new, numbers = asked(x, seed)
    got = model.log_joint(table_of(new, numbers))
    for row, u, joint in zip(new, numbers, got, strict=True):
        for c, value in zip(model.classes_.tolist(), joint, strict=True):
            expected = twin.joint(row, u, c)
            if expected > 1e-280:
                assert value == pytest.approx(math.log(expected), rel=1e-8, abs=1e-8)
            else:
                assert value < -600


DENSITIES: dict[str, Any] = {"student": "niw", "normal": None}
either = pytest.mark.parametrize("density", DENSITIES)


@either
def test_limit__infinite_backoff_is_the_density_of_the_class(density: str) -> None:
    rows, x, classes = drawn(1, 400, gaps=0)
    model = fitted(rows, x, classes, backoff=math.inf, tau=1, density=density)
    bayes = fb.JointBayes(alpha=1, class_prior="uniform").fit(
        table_of(rows, x, classes).select([*NAMES, "y"]), "y"
    )
    gaussian = fb.GaussianBayes(prior=DENSITIES[density])
    gaussian.fit(table_of(rows, x, classes).drop_columns(list(NAMES)), "y")
    new, numbers = asked(x)
    X = table_of(new, numbers)
    expected = bayes.log_joint(X.select(NAMES)) + math.log(2)
    expected += gaussian.log_joint(X.drop_columns(list(NAMES)))
    np.testing.assert_allclose(model.log_joint(X), expected, rtol=1e-9)
    large = fitted(rows, x, classes, backoff=1e12, tau=1, density=density)
    np.testing.assert_allclose(large.log_joint(X), expected, rtol=1e-7)


def test_law__without_numbers_it_is_the_joint_table() -> None:
    rows, x, classes = drawn(2, 100)
    table = table_of(rows, x[:, :0], classes)
    prior = [0.25, 0.75]
    model = fb.JointGaussian(tau=2, class_prior=prior).fit(table, "y")
    bayes = fb.JointBayes(tau=2, class_prior=prior).fit(table, "y")
    naive = fb.JointGaussian(cells="naive", class_prior=prior).fit(table, "y")
    independent = fb.NaiveBayes(class_prior=prior).fit(table, "y")
    X = table_of(*asked(x[:, :0]))
    np.testing.assert_allclose(model.log_joint(X), bayes.log_joint(X), atol=1e-12)
    np.testing.assert_allclose(naive.log_joint(X), independent.log_joint(X), atol=1e-12)


@either
def test_law__without_categories_it_is_the_class_gaussian(density: str) -> None:
    _, x, classes = drawn(3, 100, 3)
    some = x[~np.isnan(x).any(axis=1)]
    labels = np.array(classes)[~np.isnan(x).any(axis=1)]
    model = fb.JointGaussian(density=density).fit(some, labels)
    gaussian = fb.GaussianBayes(prior=DENSITIES[density]).fit(some, labels)
    np.testing.assert_allclose(model.log_joint(x), gaussian.log_joint(x), rtol=1e-9)
    assert model.n_parameters_ == gaussian.n_parameters_


def test_statistics_without_scatter__leave_out_rows_that_lack_a_number() -> None:
    _, x, classes = drawn(3, 100, 3)
    table = pa.table({f"x{j}": x[:, j] for j in range(3)} | {"y": classes})
    stats = fb.count(table, "y", cells=True, cell_scatter=True)
    model = fb.JointGaussian().fit_statistics(stats)
    gaussian = fb.GaussianBayes(prior="niw").fit(table, "y")
    np.testing.assert_allclose(model.log_joint(table), gaussian.log_joint(table), rtol=1e-9)
    stats = fb.count(table, "y", cells=True, cell_scatter=True, scatter=True)
    again = fb.JointGaussian().fit_statistics(stats)
    whole = fb.JointGaussian().fit(table, "y")
    np.testing.assert_array_equal(again.log_joint(table), whole.log_joint(table))


def test_no_complete_row__is_no_reason_to_drop_out() -> None:
    rng = np.random.default_rng(8)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 2)) + y[:, None]
    x[np.arange(300), rng.integers(0, 2, 300)] = np.nan
    k = rng.choice(["p", "q"], 300)
    table = pa.table({"k": k, "x0": x[:, 0], "x1": x[:, 1], "y": y})
    board = fb.compare(table, "y", models=["joint-gaussian", "prior"])
    assert not board["joint-gaussian"].reason
    assert board["joint-gaussian"].figures.log_loss < board["prior"].figures.log_loss
    with pytest.raises(DataError, match=r"no row in which every .* density='student'"):
        fb.JointGaussian(density="normal").fit(table, "y")


@pytest.mark.parametrize("density", ["student", "normal"])
@pytest.mark.parametrize("cells", ["joint", "naive"])
def test_a_category_without_values__is_as_if_it_were_not_there(density: str, cells: str) -> None:
    rows, x, classes = drawn(7, 80)
    table = table_of(rows, x, classes)
    gaps = pa.nulls(len(table), pa.string())
    options: Any = {"density": density, "cells": cells}
    plain = fb.JointGaussian(**options).fit(table, "y")
    for domains in ({}, {"void": ["k", "l"]}):
        void = table.append_column("void", gaps)
        model = fb.JointGaussian(**options, domains=domains).fit(void, "y")
        joint = plain.log_joint(table)
        np.testing.assert_array_equal(model.log_joint(void), joint)
        held_out = [
            fb.leave_one_out(m, m.statistics_, t, "y").log_loss
            for m, t in ((plain, table), (model, void))
        ]
        assert held_out[0] == held_out[1]
        if domains:
            declared = table.append_column("void", pa.array(["l"] * len(table)))
            np.testing.assert_allclose(model.log_joint(declared), joint - math.log(2), atol=1e-12)
            assert set(model.sample(100, seed=0)["void"].to_pylist()) == {"k", "l"}


def test_a_number_without_values__is_refused_by_its_name_where_cells_need_it() -> None:
    rows, x, classes = drawn(7, 80)
    table = table_of(rows, x, classes).append_column("void", pa.nulls(80, pa.float64()))
    with pytest.raises(DataError, match=r"column 'void' has no value in any row.*leave it out"):
        fb.JointGaussian().fit(table, "y")
    assert fb.JointGaussian(backoff=math.inf).fit(table, "y").constant_ == ["void"]
    assert fb.JointGaussian(exclude="void").fit(table, "y").n_cells_ > 0


def test_a_number_that_a_class_never_knows__has_the_variance_within_the_others() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(60, 2)) + np.array([3.0, -2.0])
    y = np.arange(60) % 2
    x[y == 1, 1] = np.nan
    model = fb.JointGaussian().fit(pa.table({"a": x[:, 0], "b": x[:, 1], "y": y}), "y")
    known = model._mixture.gaussians.densities
    np.testing.assert_allclose(known.mean[1, 1], np.nanmean(x[:, 1]))
    wider = np.sqrt((1 + 1 / 0.01) * (1 - 2 / known.dof[1]))
    np.testing.assert_allclose(known.found.deviation[1, 1], np.nanstd(x[:, 1]) * wider)


def test_law__a_missing_value_is_a_sum_and_a_missing_number_an_integral() -> None:
    rows, x, classes = drawn(4, 300, 1)
    model = fitted(rows, x, classes)
    grid = np.linspace(-100, 200, 60_001)
    along = table_of([("p", None)] * len(grid), grid[:, None])
    dense = np.exp(model.log_joint(along))
    known = np.exp(model.log_joint(table_of([("p", None)], [[np.nan]])))[0]
    np.testing.assert_allclose(dense.sum(axis=0) * (grid[1] - grid[0]), known, rtol=1e-6)
    apart = sum(
        np.exp(model.log_joint(table_of([("p", v)] * 5, grid[30_000:30_005, None])))
        for v in DOMAINS[1]
    )
    np.testing.assert_allclose(dense[30_000:30_005], apart, rtol=1e-9)


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_law__a_missing_value_is_a_sum_however_wide_the_class_is(seed: int, rare: bool) -> None:
    """What rounding left of 1 was weighed by the density of the class, e^900 times a cell's."""
    rng = np.random.default_rng(seed)
    n = 6_000
    h, k, y = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    if rare:  # a cell that does not occur, whose share is small
        k[(h == 2) & (y == 0)] = 0
        h[y == 0] = np.minimum(h[y == 0], np.where(np.arange((y == 0).sum()) < 9, 2, 1))
    x = 100.0 * h + rng.normal(size=n) * np.where(y == 0, 1.0, 15.0)
    rows = [(DOMAINS[0][b], DOMAINS[1][a]) for a, b in zip(h.tolist(), k.tolist(), strict=True)]
    model = fitted(rows, x[:, None], np.array(["narrow", "wide"])[y].tolist())
    far = np.array([-150.0, 50.0, 350.0, 450.0])
    for given_row in product([None, *DOMAINS[0]], [None, *DOMAINS[1]]):
        open_ = [d if v is None else [v] for d, v in zip(DOMAINS, given_row, strict=True)]
        each = [model.log_joint(table_of([row] * 4, far[:, None])) for row in product(*open_)]
        found = model.log_joint(table_of([given_row] * 4, far[:, None]))
        np.testing.assert_allclose(found, np.logaddexp.reduce(each, axis=0), rtol=1e-9)


def test_law__any_batching_and_any_order_of_columns() -> None:
    rows, x, classes = drawn(5, 120)
    table = table_of(rows, x, classes)
    whole, parts = (
        fitted(rows, x, classes),
        fb.JointGaussian(**fitted(rows, x, classes).get_params()),
    )
    for first in range(0, 120, 40):
        parts.partial_fit(table.slice(first, 40), "y")
    X = table_of(*asked(x))
    np.testing.assert_allclose(parts.log_joint(X), whole.log_joint(X), rtol=1e-10)
    turned = fb.JointGaussian(**whole.get_params()).fit(
        table.select(["x1", "b", "y", "x0", "a"]), "y"
    )
    np.testing.assert_allclose(turned.log_joint(X), whole.log_joint(X), rtol=1e-10)


def test_backoff_0__is_maximum_likelihood_in_the_cell() -> None:
    rng = np.random.default_rng(6)
    a, y = np.arange(400) % 2, np.arange(400) // 2 % 2
    x = rng.normal(size=(400, 2)) + np.stack([a * y, a - y], axis=1) * 3
    table = pa.table({"a": pa.array(np.array(["p", "q"])[a]), "x0": x[:, 0], "x1": x[:, 1], "y": y})
    model = fb.JointGaussian(backoff=0, tau=0).fit(table, "y")
    got = model.log_joint(table)
    for v, c in product(range(2), repeat=2):
        rows = np.flatnonzero((a == v) & (y == c))
        mean, covariance = x[rows].mean(axis=0), np.cov(x[rows].T, bias=True)
        apart = x[rows] - mean
        q = (apart * np.linalg.solve(covariance, apart.T).T).sum(axis=1)
        dense = -q / 2 - np.log(np.linalg.det(2 * np.pi * covariance)) / 2
        np.testing.assert_allclose(got[rows, c], np.log(len(rows) / 400) + dense, rtol=1e-9)
    # Where the value never occurs with a class, there is no density, and the class is impossible.
    few = table.filter(pa.array((a == 0) | (y == 0)))
    pure = fb.JointGaussian(backoff=0).fit(few, "y")
    assert np.isneginf(pure.log_joint(table.filter(pa.array(a == 1)))[:, 1]).all()


@pytest.mark.parametrize(
    ("spoil", "rows"),
    [
        (lambda x: x[:, :], 2),  # too few rows
        (lambda x: x * [1.0, 0.0], 30),  # a constant column
        (lambda x: x[:, [0, 0]], 30),  # columns that depend on each other
        (lambda x: x * np.nan, 30),  # nothing known
    ],
)
def test_backoff_0__names_the_cell_that_has_no_density(spoil: Any, rows: int) -> None:
    rng = np.random.default_rng(7)
    x, a = rng.normal(size=(200, 2)), np.repeat(np.array(["p", "q"], object), 100)
    a[:rows] = "odd"
    x[:rows] = spoil(x[:rows])
    y = np.array([0, 1])[np.arange(200) % 2].astype(str)
    y[:rows] = "1"
    table = pa.table({"a": a, "x0": x[:, 0], "x1": x[:, 1], "y": y})
    with pytest.raises(DataError, match=r"cell {'a': 'odd'} of class '1'.*use backoff > 0"):
        fb.JointGaussian(backoff=0).fit(table, "y")
    found = fb.JointGaussian().fit(table, "y").predict_proba(table)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def hard() -> dict[str, tuple[Any, int]]:
    """Return numbers that are hard on covariances, and how many things are done about them."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(60, 3))
    scales = x * [1e-9, 1.0, 1e9]
    flat, wide = x.copy(), rng.normal(size=(60, 80))
    flat[::2, 1] = 3.0
    epoch = x + 1.7e9
    return {
        "scales": (scales, 0),
        "constant within a class": (flat, 1),
        "constant": (np.where([False, True, False], 3.0, x), 0),
        "duplicates": (x[:, [0, 1, 0]], 1),
        "more columns than rows": (wide, 1),
        "epoch seconds": (epoch, 0),
    }


@pytest.mark.parametrize("case", hard())
@pytest.mark.parametrize("backoff", [1e-6, 10.0, math.inf])
@either
def test_hard_numbers__finite_posteriors_and_one_warning(
    case: str, backoff: float, density: str
) -> None:
    x, said = hard()[case]
    a = np.array(["p", "q", "r"])[np.arange(60) % 3]
    a[0] = "once"
    columns = {f"x{j}": column for j, column in enumerate(x.T)}
    table = pa.table({"a": a, **columns, "y": np.arange(60) % 2})
    model = fb.JointGaussian(backoff=backoff, density=density)
    said *= density == "normal"  # a prior makes every covariance regular
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(table, "y")
    assert [w.category for w in seen] == [FastBayesWarning] * said
    for far in (0.0, 1.0, 1e12, 1e300):
        moved = pa.table({"a": a, **{name: v + far for name, v in columns.items()}})
        joint, found = model.log_joint(moved), model.predict_proba(moved)
        assert np.isfinite(joint).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    if case == "scales":
        plain = pa.table(
            {
                "a": a,
                **{f"x{j}": v for j, v in enumerate((x / [1e-9, 1, 1e9]).T)},
                "y": np.arange(60) % 2,
            }
        )
        again = fb.JointGaussian(backoff=backoff, density=density).fit(plain, "y")
        np.testing.assert_allclose(
            again.predict_proba(plain), model.predict_proba(table), rtol=1e-8
        )


def test_retraction__is_a_fit_to_the_rest() -> None:
    rows, x, classes = drawn(10, 300)
    table = table_of(rows, x, classes)
    options = {"cells": True, "cell_scatter": True, "scatter": True}
    whole, gone = fb.count(table, "y", **options), fb.count(table.slice(0, 100), "y", **options)
    left = fb.JointGaussian().fit_statistics(whole - gone)
    direct = fb.JointGaussian().fit(table.slice(100), "y")
    X = table_of(*asked(x))
    np.testing.assert_allclose(left.log_joint(X), direct.log_joint(X), rtol=1e-8)


def test_explain__sums_to_the_log_joint() -> None:
    rows, x, classes = drawn(11, 200)
    model = fitted(rows, x, classes)
    X = table_of(*asked(x))
    told = model.explain(X)
    np.testing.assert_allclose(
        told.prior + told.contributions.sum(axis=1), model.log_joint(X), atol=1e-9
    )
    first = model.log_joint(table_of([("p", None)], [[np.nan] * 2]))[0] - told.prior
    whole = model.explain(table_of([("p", "u")], [[50.0, 50.0]])).contributions[0]
    np.testing.assert_allclose(whole[0], first, atol=1e-12)


def test_sample__has_the_moments_of_the_model() -> None:
    rows, x, classes = drawn(12, 300, gaps=0)
    model = fitted(rows, x, classes)
    some, mixture = model.sample(60_000, seed=1), model._mixture
    drawn_x = np.stack([some[f"x{j}"].to_numpy() for j in range(2)], axis=1)
    keys = np.stack(
        [
            np.searchsorted(list(d), some[name].to_numpy())
            for name, d in zip(NAMES, DOMAINS, strict=True)
        ],
        axis=1,
    )
    labels = np.searchsorted(model.classes_, some["y"].to_numpy().astype(str))
    shares = np.exp(model.log_joint(table_of(list(product(*DOMAINS)), [[np.nan] * 2] * 6)))
    gaussians = mixture.gaussians
    covariance = gaussians.densities.covariance()
    assert len(mixture.keys) == 12
    for g, (key, c) in enumerate(zip(mixture.keys, gaussians.labels, strict=True)):
        here = (keys == key).all(axis=1) & (labels == c)
        assert here.mean() == pytest.approx(shares[key[0] * 3 + key[1], c], abs=0.01)
        found = drawn_x[here]
        scale = np.sqrt(np.diagonal(covariance[g]))
        apart = (found.mean(axis=0) - gaussians.densities.mean[g]) / scale
        np.testing.assert_allclose(apart, 0, atol=6 / np.sqrt(len(found)))
        ratio = np.cov(found.T) / np.outer(scale, scale)
        expected = covariance[g] / np.outer(scale, scale)
        np.testing.assert_allclose(ratio, expected, atol=9 / np.sqrt(len(found)))


def test_memory_limit__is_refused_with_the_figure_and_the_remedy() -> None:
    rng = np.random.default_rng(13)
    columns: Any = {"k": rng.permutation(5_000).astype(str)}
    columns |= {f"x{j}": rng.normal(size=5_000) for j in range(20)}
    table = pa.table(columns | {"y": rng.integers(0, 2, 5_000).astype(str)})
    with pytest.raises(MemoryLimitError, match=r"5,000 joint values of 1 .*raise memory_limit"):
        fb.JointGaussian(memory_limit=10_000_000).fit(table, "y")


@pytest.mark.parametrize(
    "option", [{"backoff": -1}, {"backoff": math.nan}, {"tau": -1}, {"cells": "all"}, {"alpha": -1}]
)
def test_parameters__are_checked_at_fit(option: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        fitted(*drawn(14), **option)


def dependent(n: int, seed: int = 0, cells: int = 3) -> pa.Table:
    """Return rows in which correlations, and the sense of numbers, turn with the category."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    k, m = rng.integers(0, cells, n), rng.integers(0, 2, n)
    turn = np.where((k + m + y) % 2 == 0, 1.0, -1.0)
    u = rng.normal(size=n)
    x0 = u + 1.5 * m
    x1 = turn * u + 0.5 * rng.normal(size=n) + k
    return pa.table({"k": k.astype(str), "m": m.astype(str), "x0": x0, "x1": x1, "y": y})


def log_loss(model: Any, table: pa.Table, **options: Any) -> float:
    return float(fb.k_fold(model, table, "y", **options).log_loss)


def test_dependence__beats_naive_gaussian() -> None:
    table = dependent(1_500)
    naive = log_loss(fb.NaiveBayes(), table)
    assert log_loss(fb.JointGaussian(), table) < naive - 0.2
    assert log_loss(fb.JointGaussian(cells="naive"), table) < naive - 0.2


def starving(n: int = 600) -> pa.Table:
    """Return rows of which hardly two share a cell, with columns independent given the class."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, n)
    columns: Any = {
        f"k{j}": np.where(rng.random(n) < 0.3, y, rng.integers(0, 12, n)).astype(str)
        for j in range(3)
    }
    columns |= {f"x{j}": rng.normal(size=n) + 0.5 * y for j in range(3)}
    return pa.table(columns | {"y": y})


def test_starving_cells__do_not_lose() -> None:
    table = starving()
    naive = log_loss(fb.NaiveBayes(), table)
    for cells in ("joint", "naive"):
        assert log_loss(fb.JointGaussian(cells=cells), table) < naive + 0.03
    told = fb.JointGaussian().fit(table, "y")
    assert told.n_cells_ > 300
    assert told.tau_ > 1_000
    assert log_loss(fb.JointGaussian(tau=1), table) > naive + 0.3
    assert log_loss(fb.JointGaussian(backoff=100), table) < naive + 0.005


def penguins() -> pa.Table:
    path = Path(fb.__file__).parent / "examples" / "penguins.csv"
    options = pc.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pc.read_csv(path, convert_options=options)


@pytest.mark.parametrize(("target", "gain"), [("species", 0.04), ("sex", 0.2)])
def test_penguins__beat_naive_gaussian(target: str, gain: float) -> None:
    table = penguins()
    table = table.filter(table[target].is_valid())
    mixed, naive = (fb.k_fold(m, table, target) for m in (fb.JointGaussian(), fb.NaiveBayes()))
    assert mixed.log_loss < naive.log_loss - gain
    assert mixed.accuracy > naive.accuracy


def test_breast_cancer_with_categories__beats_naive_gaussian() -> None:
    data = load_breast_cancer()
    columns: Any = {}
    for j in (0, 1, 4):
        thirds = np.quantile(data.data[:, j], [1 / 3, 2 / 3])
        columns[f"k{j}"] = np.array(["low", "mid", "high"])[
            np.searchsorted(thirds, data.data[:, j])
        ]
    columns |= {f"x{j}": data.data[:, j] for j in (5, 6, 7, 8, 20, 21, 24, 25)}
    table = pa.table(columns | {"y": data.target})
    assert log_loss(fb.JointGaussian(), table) < log_loss(fb.NaiveBayes(), table) - 0.1


@pytest.mark.parametrize("backoff", [0.0, 10.0])
def test_cells__may_be_worked_on_in_any_stretches(
    backoff: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    n = 600
    table = pa.table(
        {f"x{j}": rng.choice(list("abc"), n) for j in range(2)}
        | {f"z{j}": rng.normal(size=n) for j in range(3)}
        | {"y": rng.choice(["p", "q"], n)}
    )

    def fitted() -> Any:
        halves = (table.slice(0, 250), table.slice(250))
        first, second = (fb.count(half, "y", cells=True, cell_scatter=True) for half in halves)
        return fb.JointGaussian(backoff=backoff).fit_statistics(first + second)

    whole = fitted()
    for module, name in (
        *((cell_runs, "STRETCH"), (cell_scatter, "STRETCH")),
        *((cell_gaussians, "CHUNK"), (covariance, "CHUNK")),
    ):
        monkeypatch.setattr(module, name, 4)
    parts = fitted()
    assert parts.statistics_ == whole.statistics_
    mine, other = parts._mixture.gaussians, whole._mixture.gaussians
    for name in ("mean", "rest", "whiten", "level"):
        a, b = getattr(mine.densities, name), getattr(other.densities, name)
        np.testing.assert_array_equal(a, b)
    every = np.arange(len(mine.n))
    np.testing.assert_array_equal(mine.undefined(every), other.undefined(every))
    np.testing.assert_array_equal(parts.log_joint(table), whole.log_joint(table))


def test_density__of_files_of_before_is_normal(tmp_path: Any) -> None:
    rows, x, classes = drawn(4, 80)
    model = fitted(rows, x, classes, density="normal")
    params = model.get_params()
    del params["density"]
    old = fb.JointGaussian.from_state(params, *model.state(), "old.fb")
    assert old.density == "normal"
    X = table_of(*asked(x))
    np.testing.assert_array_equal(old.log_joint(X), model.log_joint(X))
    new = fitted(rows, x, classes)
    new.save(tmp_path / "new.fb")
    assert fb.load(tmp_path / "new.fb").density == "student"


@pytest.mark.parametrize("per_class", [5, 10])
def test_few_rows__are_worse_to_normal_densities(per_class: int) -> None:
    """A normal density of a handful of rows is too narrow: new rows lie far outside it."""
    losses: dict[str, list[float]] = {"student": [], "normal": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        means, shapes = rng.normal(size=(3, 3)) * 1.5, rng.normal(size=(3, 3, 3)) + np.eye(3)

        def table(n: int, rng: Any = rng, means: Any = means, shapes: Any = shapes) -> pa.Table:
            y = np.repeat(np.arange(3), n)
            x = means[y] + (shapes[y] @ rng.normal(size=(3 * n, 3, 1)))[..., 0]
            return pa.table({**dict(zip("uvw", x.T, strict=True)), "y": y})

        few, new = table(per_class), table(200)
        for density, found in losses.items():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the covariance of")
                model = fb.JointGaussian(density=density).fit(few, "y")
            found.append(fb.evaluate(model, new).log_loss)
    assert np.mean(losses["student"]) < math.log(3)
    assert np.mean(losses["student"]) < np.mean(losses["normal"])


def test_very_many_rows__make_the_densities_normal() -> None:
    rows, x, classes = drawn(5, 40_000, gaps=0)
    X = table_of(*asked(x))
    student, normal = (fitted(rows, x, classes, density=d) for d in ("student", "normal"))
    np.testing.assert_allclose(student.predict_proba(X), normal.predict_proba(X), atol=2e-3)
