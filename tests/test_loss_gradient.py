"""LossGradient: a value with the laws of statistics, and the gradient that differences say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.errors import DataError, FileFormatError, SchemaError


def rows(n, k, seed=0):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "a": pa.array([None if v == 3 else f"v{v}" for v in random.integers(0, 4, n)]),
            "x": pa.array(random.normal(5, 20, n), mask=random.random(n) < 0.2),
            "y": [f"c{v}" for v in random.permutation(np.arange(n) % k)],
            "w": random.uniform(0.1, 2, n),
        }
    )


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    table = rows(300, request.param)
    model = fb.LogisticRegression(max_iter=50, class_weight="balanced")
    return model.fit(table, "y", sample_weight="w"), table


def of(model, table):
    return model.loss_gradient(table, "y", sample_weight="w")


@given(st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=15, deadline=None)
def test_sums_of_parts(fitted, a, b):
    model, table = fitted
    a, b = sorted((a, b))
    parts = [of(model, table.slice(i, j - i)) for i, j in ((0, a), (a, b), (b, 300))]
    whole = of(model, table)
    assert sum(parts).allclose(whole, 1e-12)
    assert (parts[0] + parts[1]) == (parts[1] + parts[0])
    assert (parts[0] + (parts[1] + parts[2])).allclose(whole, 1e-12)
    assert (whole - parts[2]).allclose(parts[0] + parts[1], 1e-9)


def test_weights_scale(fitted):
    model, table = fitted
    whole = of(model, table)
    double = table.set_column(3, "w", pa.array(2 * table["w"].to_numpy()))
    found = of(model, double)
    assert replace(found, n_rows=600).allclose(2 * whole, 1e-12)
    assert (whole * 0.5 + 0.5 * whole).allclose(whole, 1e-12)
    with pytest.raises(ValueError, match="finite number"):
        whole * float("nan")


def test_gradient_by_differences(fitted):
    model, table = fitted
    # Of some rows: where all of them are the derivatives by intercepts are 0.
    table = table.slice(0, 100)
    whole = of(model, table)
    assert np.abs(whole.gradient[0]).max() > 0.1
    c = model.coefficients_

    def loss(intercept, coef):
        m = np.tile(intercept, (table.num_rows, 1))
        mean = c.center[0]
        x = np.nan_to_num(table["x"].to_numpy(zero_copy_only=False), nan=mean)
        for at, (name, value) in enumerate(model.coef_names_):
            hit = np.array([v == value for v in table["a"].to_pylist()]) if name == "a" else x
            m += hit[:, None] * coef[:, at]
        if m.shape[1] == 1:
            m = np.column_stack([np.zeros(len(m)), m])
        y = np.searchsorted(model.classes_, table["y"].to_pylist())
        counts = model.statistics_.values.class_counts
        weight = table["w"].to_numpy() * (counts.sum() / (len(counts) * counts))[y]
        return weight @ (np.logaddexp.reduce(m, axis=1) - m[np.arange(len(m)), y])

    assert whole.loss == pytest.approx(loss(model.intercept_, model.coef_), rel=1e-9)
    theta = np.vstack([model.intercept_, model.coef_.T])
    for place in np.ndindex(theta.shape):
        step = 1e-4 / (20 if place[0] == len(theta) - 1 else 1)
        up, down = theta.copy(), theta.copy()
        up[place] += step
        down[place] -= step
        slope = (loss(up[0], up[1:].T) - loss(down[0], down[1:].T)) / (2 * step)
        assert whole.gradient[place] == pytest.approx(slope, abs=1e-4 * max(1, abs(slope)))


def test_keeping(fitted, tmp_path):
    model, table = fitted
    whole = of(model, table)
    assert fb.LossGradient.from_table(whole.to_table()) == whole
    parts = [of(model, table.slice(i, 100)) for i in (0, 100, 200)]
    together = pa.concat_tables([part.to_table() for part in parts])
    assert fb.LossGradient.from_table(together) == parts[0] + parts[1] + parts[2]
    whole.save(tmp_path / "g.fbs")
    assert fb.LossGradient.load(tmp_path / "g.fbs") == whole
    with pytest.raises(DataError, match="exists"):
        whole.save(tmp_path / "g.fbs")
    fb.count(table, "y").save(tmp_path / "s.fbs")
    with pytest.raises(FileFormatError, match="no LossGradient"):
        fb.LossGradient.load(tmp_path / "s.fbs")
    with pytest.raises(SchemaError, match="no column 'loss'"):
        fb.LossGradient.from_table(whole.to_table().drop(["loss"]))
    with pytest.raises(SchemaError, match="no row"):
        fb.LossGradient.from_table(whole.to_table().slice(0, 0))
    assert whole.nbytes == whole.gradient.nbytes
    assert "300 rows" in repr(whole)


def test_other_coefficients_do_not_add_up(fitted):
    model, table = fitted
    other = fb.LogisticRegression(C=0.1).fit(table, "y")
    with pytest.raises(SchemaError, match="different coefficients"):
        of(model, table) + other.loss_gradient(table, "y")
    assert not of(model, table).allclose(other.loss_gradient(table, "y"))
    assert of(model, table) != other.loss_gradient(table, "y")


def test_parts_of_a_beginning_at_zero(fitted):
    # What an engine that maps and merges would do.
    model, table = fitted
    start = fb.LogisticRegression(max_iter=1, tol=1e-3, init="zeros", solver="gradient",
                                  learning_rate=1e-9)  # fmt: skip
    with pytest.warns(fb.FastBayesWarning, match="did not converge"):
        start.fit(table, "y", sample_weight="w")
    found = sum(
        start.loss_gradient(table.slice(i, 75), "y", sample_weight="w") for i in range(0, 300, 75)
    )
    assert found.loss == pytest.approx(found.weight * np.log(len(model.classes_)), rel=1e-6)
    assert found.gradient.shape == (1 + len(model.coef_names_), max(1, len(model.coef_)))
