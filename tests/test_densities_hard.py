"""Columns that are hard on kernels and histograms: constant, empty, of any scale, overflowing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_densities import KINDS, fitted, rows_of

import fastbayes as fb


@pytest.mark.parametrize("numeric", KINDS)
@pytest.mark.parametrize(
    "column",
    [
        [7.0] * 8,
        [1.0] * 4 + [2.0] * 4,
        [1.0] * 4 + [2.0, 3.0, 4.0, 5.0],
        [None] * 8,
        [None] * 4 + [1.0, 2.0, 3.0, 3.0],
        [None] * 7 + [1.0],
        [0.1, 0.1 + 1e-16, 0.2, 5.0, 1.0, 1.0, 1.0, np.nextafter(5.0, 6.0)],
        [1e-300, -1e-300, 0.0, 5e-324, 1e-310, -0.0, 1e-305, 0.0],
        [1e-320, 2e-320, -3e-320, 5e-320, 4e-320, -5e-320, 6e-320, 1e-321],
        [*(i * 1e-200 - 1.5e-200 for i in range(7)), 1e120],
        [-1.0, 2.0, 1e-200, -3.0, 2.5, -4.0, -1e-200, 3.5],
        [1e150, -1e150, 1.0, 2.0, 3.0, 4.0, 5.0, 1e149],
        [1.7e9 + i / 4 for i in (0, 1, 5, 7, 2, 3, 9, 4)],
        [-1e9, 1e9, 1e-9, 2e-9, -1e-9, 3e-9, 1e-9, 5e-9],
    ],
    ids=["constant", "in each class", "in one class", "missing", "in one class missing", "one row",
         "touching", "tiny", "subnormal", "tiny and huge", "about 0", "huge", "epoch", "scales"],
)  # fmt: skip
@pytest.mark.parametrize("weighted", [False, True])
def test_column__of_any_kind_gives_probabilities(
    kernels: str, numeric: str, column: list[Any], weighted: bool
) -> None:
    table = pa.table({"x": pa.array(column, pa.float64()), "y": ["a"] * 4 + ["b"] * 3 + ["c"]})
    weight = np.array([1.0, 0.0, 2.5, 1, 0.25, 1, 1, 1]) if weighted else None
    model = fb.NaiveBayes(numeric=numeric).fit(table, "y", sample_weight=weight)
    far = pa.table({"x": [0.0, 1e300, -1e300, None, 1e-300, 1.7e9, float(model.n_features_in_)]})
    for rows in (table, far):
        proba = model.predict_proba(rows)
        assert np.isfinite(proba).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-9)
        # A Gaussian is 0 where squares overflow.
        assert numeric == "auto" or np.isfinite(model.log_joint(rows)).all()
    stats = fb.count(table, "y", numeric=numeric, sample_weight=weight)
    left = fb.leave_one_out(model, stats, table, sample_weight=weight).proba
    kept = np.ones(8, bool) if weight is None else weight > 0
    assert np.isfinite(left[kept]).all()
    drawn = model.sample(20, seed=0)["x"].to_numpy()
    assert np.isfinite(drawn).all()


@pytest.mark.parametrize("numeric", ["kde", "auto"])
def test_squares__that_overflow_are_refused_by_name(numeric: str) -> None:
    table = pa.table({"x": [1e200, -1e200, 1.0], "y": ["a", "b", "b"]})
    with pytest.raises(fb.DataError, match="column 'x': squares of its values overflow; rescale"):
        fb.NaiveBayes(numeric=numeric).fit(table, "y")


def test_bandwidth__of_nothing_is_refused_by_name() -> None:
    table = pa.table({"x": [1.0, 1.0, 1.0, 2.0, 3.0], "y": ["a", "a", "a", "b", "b"]})
    with pytest.raises(fb.DataError, match="column 'x' has bandwidth 0 in a class and var_floor=0"):
        fb.NaiveBayes(numeric="kde", var_floor=0).fit(table, "y")
    assert fb.NaiveBayes(numeric="histogram", var_floor=0).fit(table, "y").score(table, "y") == 1


@pytest.mark.parametrize("numeric", ["kde", "histogram"])
@pytest.mark.parametrize("tiny", [1e-9, 1e-15])
def test_weights__of_which_sums_lose_digits_are_refused(numeric: str, tiny: float) -> None:
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=50), "y": rng.choice(["a", "b"], 50)}
    with pytest.raises(fb.DataError, match=r"column 'x'.* too little .* multiply all weights"):
        fb.NaiveBayes(numeric=numeric).fit(table, "y", sample_weight=np.full(50, tiny))
    fb.NaiveBayes(numeric=numeric).fit(table, "y", sample_weight=np.full(50, 1e-7))


def test_auto__uses_what_is_constant_within_every_class() -> None:
    table = pa.table({"x": [1.0] * 30 + [4e3] * 40, "y": ["a"] * 30 + ["b"] * 40})
    model = fb.NaiveBayes(numeric="auto").fit(table, "y")
    assert model.numeric_ == {"x": "mdl"}
    assert model.score(table, "y") == 1
    assert fb.NaiveBayes(numeric="auto").fit(table.slice(0, 31), "y").numeric_ == {"x": "histogram"}


@pytest.mark.parametrize("constant", [False, True])
def test_bandwidth__within__is_that_of_a_fifth_of_the_deviation(constant: bool) -> None:
    other = np.arange(8.0) if not constant else np.full(8, 5.0)
    table = pa.table({"x": [3.0] * 32 + [*other], "y": ["a"] * 32 + ["b"] * 8})
    found = fb.NaiveBayes(numeric="kde").fit(table, "y")._densities.by_place[0]
    # Of the variance within the classes; where there is none, of that of all rows.
    variance = np.var(table["x"]) if constant else 8 / 40 * np.var(other)
    assert found.floored.tolist() == [True, constant]
    assert found.bandwidth[0] == pytest.approx(0.9 * 0.2 * np.sqrt(variance) * 32**-0.2)


def test_bandwidth__that_was_raised_is_reported() -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "one": [*([3.0] * 5), *rng.normal(size=5)],
            "none": rng.normal(size=10),
            "gauss": [*([4.0] * 5), *rng.normal(size=5)],
            "y": ["a"] * 5 + ["b"] * 5,
        }
    )
    kinds = {"one": "kde", "none": "kde"}
    model = fb.NaiveBayes(numeric=kinds, var_floor=1e-4).fit(table, "y")
    assert model.variance_floored_ == ["one", "gauss"]
    found = model._densities.by_place[0]
    assert found.bandwidth[0] == pytest.approx(1e-2 * np.std(table["one"]))
    assert model.mean_.shape == (1, 2)


def test_epoch_seconds__keep_their_digits() -> None:
    table = rows_of(17, n=200)
    x = np.round(table["z"].to_numpy() * 2) / 2
    near = table.set_column(2, "z", pa.array(x))
    late = table.set_column(2, "z", pa.array(x + 1.7e9))
    for numeric in ("kde", "histogram"):
        a, b = fitted(near, numeric=numeric), fitted(late, numeric=numeric)
        np.testing.assert_allclose(a.predict_proba(near), b.predict_proba(late), atol=1e-5)
