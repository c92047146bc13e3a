"""LogisticRegression from any source, in parts, kept in memory or not, saved (§8)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparing import close
from logistic_cases import Case, generated, weights

import fastbayes as fb


def bits(model: Any) -> tuple[Any, ...]:
    found = (model.coef_, model.intercept_, model.trace_, np.array(model.objective_))
    return tuple(a.tobytes() for a in found)


def fitted(source: Any, y: Any = "y", **options: Any) -> Any:
    weight = options.pop("sample_weight", None)
    return fb.LogisticRegression(**options).fit(source, y, sample_weight=weight)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    case = generated(3, seed=30, n=500)
    return case.table.append_column("w", pa.array(weights(500)))


def large(k: int = 3, n: int = 210_000) -> pa.Table:
    """Return rows enough for several segments of blocks, some equal in their categories."""
    rng = np.random.default_rng(k)
    a, b, z = rng.integers(0, 5, n), rng.integers(0, 3, n), rng.normal(size=n)
    score = (
        rng.normal(size=(5, k))[a] + rng.normal(size=(3, k))[b] + np.outer(z, rng.normal(size=k))
    )
    y = np.argmax(score + rng.gumbel(size=(n, k)), axis=1)
    return pa.table(
        {
            "a": pa.array(np.array(list("pqrst"))[a], mask=rng.random(n) < 0.05),
            "b": np.array(["u", "v", "w"])[b],
            "z": pa.array(20 * z + 5, mask=rng.random(n) < 0.05),
            "y": y,
        }
    )


# -- sources -----------------------------------------------------------------------------------


def test_sources_of_the_same_rows_give_the_same_bits(table: pa.Table, tmp_path: Path) -> None:
    whole = fitted(table, sample_weight="w")
    pq.write_table(table, tmp_path / "whole.parquet")
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"part{i}.parquet")
        pq.write_table(table.slice(250 * i, 250), paths[-1])
    pandas = table.to_pandas()
    polars = pl.from_arrow(table)
    assert isinstance(polars, pl.DataFrame)  # from_arrow may make a series, too
    sources = {
        "path": tmp_path / "whole.parquet",
        "list": paths,
        "glob": str(tmp_path / "part*.parquet"),
        "pandas": pandas,
        "polars": polars,
        "lazy": polars.lazy(),
        "columns": {
            name: column.to_pylist()
            for name, column in zip(table.column_names, table.columns, strict=True)
        },
        "chunks": pa.Table.from_batches(table.to_batches(max_chunksize=77)),
    }
    for name, source in sources.items():
        model = fitted(source, sample_weight="w")
        assert model.coef_names_ == whole.coef_names_, name
        if name in ("list", "glob"):
            # Each file is a block of its own, and sums of two blocks round otherwise.
            close(model.coef_, whole.coef_, 1e-7)
            close(model.intercept_, whole.intercept_, 1e-7)
        else:
            assert bits(model) == bits(whole), name


def test_a_stream_is_read_once(table: pa.Table) -> None:
    whole = fitted(table, sample_weight="w")
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
    model = fitted(stream, sample_weight="w")
    assert model.coef_names_ == whole.coef_names_
    assert bits(model) == bits(whole)


def test_arrays() -> None:
    rng = np.random.default_rng(31)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    X[::7, 1] = np.nan
    weight = rng.random(300)
    a = fitted(X, y, sample_weight=weight)
    assert a.coef_.shape == (3, 3)
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    b = fitted(frame, y, sample_weight=weight)
    assert bits(a) == bits(b)
    assert b.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(frame))
    codes = rng.integers(0, 4, (300, 2))
    c = fitted(codes, y, categorical=[0, 1])
    assert [v for _, v in c.coef_names_] == [0, 1, 2, 3] * 2
    named = fitted(pd.DataFrame(codes.astype(str), columns=["p", "q"]), y)
    close(c.coef_, named.coef_, 1e-12)


def test_numbers_of_narrow_types() -> None:
    rng = np.random.default_rng(32)
    X, y = rng.integers(-5, 6, (200, 2)), rng.integers(0, 2, 200)
    wide = fitted({"a": X[:, 0].astype(float), "b": X[:, 1].astype(float), "y": y})
    for kind in (np.int8, np.int64, np.float32):
        narrow = fitted({"a": X[:, 0].astype(kind), "b": X[:, 1].astype(kind), "y": y})
        assert bits(narrow) == bits(wide)


# -- threads, memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs"])
def test_threads_change_no_bit(solver: str) -> None:
    table = large()
    one, two = (fitted(table, solver=solver, threads=t) for t in (1, 2))
    assert bits(one) == bits(two)


@pytest.mark.parametrize("k", [2, 3])
def test_rows_read_again_and_again_change_no_bit(k: int, tmp_path: Path) -> None:
    table = large(k)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    kept = fitted(tmp_path / "t.parquet")
    scanned = fitted(tmp_path / "t.parquet", memory_limit=20 << 20, threads=1)
    less = fitted(tmp_path / "t.parquet", memory_limit=20 << 20, threads=2)
    assert bits(kept) == bits(scanned) == bits(less)


@pytest.mark.parametrize("weight", [None, "w"])
def test_samples_of_rows_are_the_same_whatever_the_room(weight: str | None, tmp_path: Path) -> None:
    # So many coefficients that the larger sample has more rows than the least.
    rng = np.random.default_rng(0)
    n = 160_000
    a = rng.integers(0, 300, n)
    y = (rng.normal(size=300)[a] + rng.logistic(size=n) > 0).astype(int)
    table = pa.table({"a": a.astype(str), "z": rng.normal(size=n) + y, "w": rng.random(n), "y": y})
    table = table if weight else table.drop_columns(["w"])
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    # All is kept; rows are not; the larger sample is not either; nor the smaller one.
    limits = [None, 4_000_000, 2_000_000, 300_000]
    models = [
        fitted(tmp_path / "t.parquet", sample_weight=weight, memory_limit=m, threads=2)
        for m in limits
    ]
    assert (models[0].trace_[:, 0] < 1).any()
    assert len({bits(model) for model in models}) == 1


def test_few_rows_read_again_and_again_change_no_bit(table: pa.Table) -> None:
    table = table.drop_columns(["w"])
    assert bits(fitted(table)) == bits(fitted(table, memory_limit=20_000))


def test_many_rows_reach_the_tolerance() -> None:
    table = large(2)
    model = fitted(table)
    assert model.converged_
    assert model.gradient_norm_ <= model.tol
    sums = model.loss_gradient(table, "y")
    coef = np.concatenate([model.intercept_[None], model.coef_.T])
    penalty = np.vstack([0 * coef[:1], coef[1:]]) / model.C
    scale = np.ones(len(coef))
    scale[-1] = 20  # of the numbers
    at_means = sums.gradient + penalty
    at_means[-1] -= 5 * at_means[0]
    assert np.abs(at_means[:, 0] / scale).max() <= 2e-6 * table.num_rows
    close(model.objective_, sums.loss + (coef[1:] ** 2).sum() / 2, 1e-9)


# -- in parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_one_batch_is_fit(k: int) -> None:
    table = generated(k, seed=33).table
    a = fitted(table)
    b = fb.LogisticRegression().partial_fit(table, "y")
    close(b.coef_, a.coef_, 1e-12)
    close(b.intercept_, a.intercept_, 1e-12)
    assert a.coef_names_ == b.coef_names_


@pytest.mark.parametrize("k", [2, 3])
def test_batches_come_near_fit(k: int) -> None:
    table = generated(k, seed=34, n=4000).table
    whole = fitted(table)
    model = fb.LogisticRegression()
    for i in range(4):
        model.partial_fit(table.slice(1000 * i, 1000), "y", classes=whole.classes_)
    apart = np.abs(model.predict_proba(table) - whole.predict_proba(table))
    one = fitted(table.slice(0, 1000)).predict_proba(table)
    assert apart.max() < 0.05
    assert apart.mean() < np.abs(one - whole.predict_proba(table)).mean() / 10


def test_a_batch_without_one_class() -> None:
    table = generated(3, seed=35, n=900).table
    c2 = np.array(table["y"].to_pylist()) == "c2"
    model = fb.LogisticRegression()
    with pytest.warns(fb.FastBayesWarning, match="'c2' has no row"):
        model.partial_fit(table.filter(~c2), "y", classes=["c0", "c1", "c2"])
    assert model.predict_proba(table).shape == (900, 3)
    assert np.isfinite(model.coef_).all()
    # A class without rows has no finite optimum of its intercept; it is held low.
    assert model.predict_proba(table)[:, 2].max() < 0.05
    model.partial_fit(table, "y")
    close(model.predict_proba(table).sum(axis=1), 1, 1e-12)
    assert model.predict_proba(table)[c2, 2].mean() > model.predict_proba(table)[~c2, 2].mean()
    with pytest.raises(fb.DataError, match="new"):
        model.partial_fit({**{n: table[n] for n in table.column_names}, "y": ["new"] * 900}, "y")


def test_batches_of_a_binary_model_without_one_class() -> None:
    table = generated(2, seed=36, n=600).table
    c1 = np.array(table["y"].to_pylist()) == "c1"
    model = fb.LogisticRegression()
    with pytest.warns(fb.FastBayesWarning, match="'c1' has no row"):
        model.partial_fit(table.filter(~c1), "y", classes=["c0", "c1"])
    assert np.isfinite(model.coef_).all()
    model.partial_fit(table, "y")
    assert model.predict_proba(table).shape == (600, 2)
    assert model.score(table, "y") > 0.6


def test_values_that_come_later() -> None:
    table = generated(2, seed=37, n=800).table
    p = np.array([v == "p" for v in table["a"].to_pylist()])
    model = fb.LogisticRegression().partial_fit(table.filter(~p), "y")
    assert ("a", "p") not in model.coef_names_
    model.partial_fit(table.filter(p), "y")
    assert ("a", "p") in model.coef_names_
    assert np.isfinite(model.coef_).all()


def test_warm_start_begins_where_it_ended() -> None:
    table = generated(3, seed=38).table
    model = fitted(table, warm_start=True)
    first, n_iter = model.coef_.copy(), model.n_iter_
    model.fit(table, "y")
    assert model.n_iter_ < n_iter
    close(model.coef_, first, 1e-5)


# -- loss and gradient as a value ----------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_loss_gradient__is_the_objectives(k: int) -> None:
    case = generated(k, seed=39)
    weight = weights(400)
    problem = case.problem(weight=weight, class_weight={"c0": 2.5})
    model = fitted(case.table, sample_weight=weight, class_weight={"c0": 2.5}, max_iter=50)
    sums = model.loss_gradient(case.table, "y", sample_weight=weight)
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    close(sums.loss, problem.weight @ problem.losses(at_means, own), 1e-10)
    close(sums.weight, problem.weight.sum(), 1e-12)
    assert sums.n_rows == 400
    expected = problem.gradient(at_means, own)
    expected[1:] += np.outer(problem.shift, expected[0])  # of columns that are not shifted
    close(sums.gradient, expected, 1e-8)
    # By finite differences of the losses.
    h = 1e-6
    for i in range(len(problem.names)):
        for m in range(problem.n_outputs):
            step = np.zeros_like(own)
            step[i, m] = h
            moved = [
                problem.weight @ problem.losses(at_means + s * problem.shift @ step, own + s * step)
                for s in (1, -1)
            ]
            close(sums.gradient[1 + i, m], (moved[0] - moved[1]) / (2 * h), 1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_loss_gradient__of_shards_is_that_of_the_whole(k: int, tmp_path: Path) -> None:
    case = generated(k, seed=40)
    table, weight = case.table, weights(400)
    model = fitted(table, sample_weight=weight)
    whole = model.loss_gradient(table, "y", sample_weight=weight)
    cuts = [0, 1, 1, 130, 399, 400]
    parts = [
        model.loss_gradient(table.slice(a, b - a), "y", sample_weight=weight[a:b])
        for a, b in pairwise(cuts)
        if b > a
    ]
    assert sum(parts[1:], parts[0]).allclose(whole, 1e-12)
    assert sum(parts).allclose(whole, 1e-12)  # `sum` begins with 0
    assert (whole - parts[0]).allclose(sum(parts[1:]), 1e-11)
    assert (2 * whole).allclose(whole + whole)
    assert (whole * 0.5).weight == whole.weight / 2
    assert not whole.allclose(parts[0])
    assert whole != parts[0]
    tables = pa.concat_tables([part.to_table() for part in parts])
    assert fb.LossGradient.from_table(tables).allclose(whole, 1e-12)
    assert fb.LossGradient.from_table(whole.to_table()) == whole
    whole.save(tmp_path / "g.fbs")
    assert fb.LossGradient.load(tmp_path / "g.fbs") == whole
    with pytest.raises(fb.DataError, match="exists"):
        whole.save(tmp_path / "g.fbs")
    other = fitted(table, C=2.0).loss_gradient(table, "y")
    with pytest.raises(fb.SchemaError, match="different coefficients"):
        whole + other


# -- kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_saved_and_read_again(k: int, tmp_path: Path) -> None:
    case = generated(k, seed=41)
    options: dict[str, Any] = {"interactions": [("a", "b")], "C": 0.7, "class_weight": {"c1": 2.0}}
    model = fitted(case.table, **options)
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert isinstance(again, fb.LogisticRegression)
    assert again.get_params() == model.get_params()
    assert again.coef_names_ == model.coef_names_
    assert again.converged_ == model.converged_
    assert again.n_iter_ == model.n_iter_
    assert bits(again) == bits(model)
    asked = case.table.drop_columns("y")
    np.testing.assert_array_equal(again.predict_proba(asked), model.predict_proba(asked))
    close(
        again.loss_gradient(case.table, "y").gradient, model.loss_gradient(case.table, "y").gradient
    )
    # What JSON has no keys for comes back as it was.
    whole = case.table.set_column(
        case.table.column_names.index("y"), "y", pa.array([int(c[1]) for c in case.labels])
    )
    numbered = fitted(whole, class_weight={0: 2.0, 1: 0.5})
    numbered.save(tmp_path / "n.fb")
    read = fb.load(tmp_path / "n.fb")
    assert read.get_params() == numbered.get_params()
    assert read.loss_gradient(whole, "y") == numbered.loss_gradient(whole, "y")
    # A model that was read goes on learning.
    more = generated(k, seed=42).table
    close(again.partial_fit(more, "y").coef_, model.partial_fit(more, "y").coef_, 1e-12)


def test_a_stranger_sees_what_it_cannot_do() -> None:
    case: Case = generated(2, seed=43)
    model = fitted(case.table)
    for name, arguments in {"log_evidence": (case.table,), "sample": (3,)}.items():
        with pytest.raises((TypeError, AttributeError, fb.FastBayesError)) as caught:
            getattr(model, name)(*arguments)
        assert "discriminative" in str(caught.value) or "P(x)" in str(caught.value), name
