"""LogisticRegression: options, rows of every kind, convergence that is never silent."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logistic_rows import rows

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning, MemoryLimitError, SchemaError
from fastbayes.core.layout import Layout
from fastbayes.models.logistic.logistic_fit import Memory, rows_before

LR = fb.LogisticRegression


# -- what is learned ---------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_attributes_by_hand(k):
    table = rows(300, k)
    model = LR().fit(table, "y")
    m = 1 if k == 2 else 3
    assert model.coef_.shape == (m, 11)
    assert model.intercept_.shape == (m,)
    assert model.coef_names_[:2] == [("a", "v0"), ("a", "v1")]
    assert model.coef_names_[-1] == ("x", None)
    assert model.converged_ is True
    assert model.n_iter_ >= 1
    assert model.gradient_norm_ <= model.tol
    assert model.trace_[-1, 1] == model.objective_
    assert model.n_parameters_ == (k - 1) * (1 + 3 + 5 + 1)
    if k == 3:
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(model.intercept_.sum(), 0, atol=1e-9)
    # Scores are what the coefficients say.
    row = {"a": ["v2"], "b": ["w5"], "x": [7.0]}
    at = [model.coef_names_.index(name) for name in (("a", "v2"), ("b", "w5"))]
    score = model.intercept_ + model.coef_[:, at].sum(axis=1) + 7 * model.coef_[:, -1]
    joint = model.log_joint(row)[0]
    np.testing.assert_allclose(np.diff(joint)[0] if k == 2 else joint - joint.mean(),
                               score[0] if k == 2 else score, atol=1e-9)  # fmt: skip
    if k == 2:
        assert joint[0] == 0
        np.testing.assert_allclose(model.decision_function(row), score, atol=1e-9)


def test_missing_and_unseen_values_add_nothing_and_missing_numbers_are_the_mean():
    table = rows(300, 3)
    model = LR().fit(table, "y")
    mean = float(np.mean(table["x"].to_numpy()))
    for row in ({"a": [None], "b": ["w1"], "x": [None]}, {"a": ["new"], "b": ["w1"], "x": [mean]}):
        frame = pa.table({"a": pa.array(row["a"], pa.string()), "b": row["b"],
                          "x": pa.array(row["x"], pa.float64())})  # fmt: skip
        at = model.coef_names_.index(("b", "w1"))
        score = model.intercept_ + model.coef_[:, at] + mean * model.coef_[:, -1]
        joint = model.log_joint(frame)[0]
        np.testing.assert_allclose(joint - joint.mean(), score, atol=1e-9)
    with pytest.raises(DataError, match=r"'a'.*'new' was not seen at fit; use unseen='ignore', or"):
        LR(unseen="error").fit(table, "y").predict({"a": ["new"], "b": ["w1"], "x": [mean]})


def test_loss_gradient_is_zero_at_the_optimum_but_for_the_penalty():
    table = rows(400, 3, missing=True)
    model = LR(C=2.0, tol=1e-10).fit(table, "y")
    found = model.loss_gradient(table, "y")
    assert found.n_rows == 400
    np.testing.assert_allclose(found.gradient[0], 0, atol=1e-5)
    np.testing.assert_allclose(found.gradient[1:], -model.coef_.T / 2, atol=1e-4)
    penalty = (model.coef_**2).sum() / 4
    assert found.loss + penalty == pytest.approx(model.objective_, rel=1e-9)


# -- sources -----------------------------------------------------------------------------------


@pytest.fixture
def big():
    return rows(150_000, 3, seed=3, missing=True)


def same(one, two, atol=1e-7):
    np.testing.assert_allclose(one.coef_, two.coef_, atol=atol)
    np.testing.assert_allclose(one.intercept_, two.intercept_, atol=atol)


def test_threads_never_change_a_bit(big):
    models = [LR(threads=threads).fit(big, "y") for threads in (1, 2, 5)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.trace_, models[0].trace_)


def test_rows_that_do_not_fit_are_read_again(big, tmp_path, caplog):
    path = tmp_path / "rows.parquet"
    pq.write_table(big, path, row_group_size=50_000)
    held = LR().fit(str(path), "y")
    with caplog.at_level(logging.INFO, "fastbayes"):
        scanned = LR(memory_limit=200_000).fit(str(path), "y")
    assert "read in every pass" in caplog.text
    np.testing.assert_array_equal(held.coef_, scanned.coef_)
    np.testing.assert_array_equal(held.trace_, scanned.trace_)


def test_a_stream_is_read_once(big):
    one = LR().fit(big, "y")
    two = LR().fit(pa.RecordBatchReader.from_batches(big.schema, big.to_batches(7_000)), "y")
    same(one, two)


def test_equal_rows_are_taken_together(caplog):
    table = rows(20_000, 3, numbers=False)
    with caplog.at_level(logging.INFO, "fastbayes"):
        model = LR(tol=1e-9).fit(table, "y")
    assert "different ones" in caplog.text
    # A weight that is 1, nearly: rows with and without it are equal, and none of it is lost.
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 20_000)
    apart = table.append_column("n", pa.array(np.zeros(20_000)))
    one = LR(tol=1e-9).fit(table, "y", sample_weight=weight)
    two = LR(tol=1e-9).fit(apart, "y", sample_weight=weight)
    np.testing.assert_allclose(one.coef_, two.coef_[:, :-1], atol=1e-6)
    same(model, LR(tol=1e-9).fit(apart.drop(["n"]), "y"), atol=1e-6)


def test_samples_lead_to_the_same_optimum():
    table = rows(400_000, 2, seed=4)
    model = LR(tol=1e-8).fit(table, "y")
    assert (model.trace_[:, 0] < 1).any()
    assert (np.diff(model.trace_[:, 3]) >= 0).all()
    plain = LR(tol=1e-7, solver="lbfgs").fit(table, "y")
    assert (plain.trace_[:, 0] == 1).all()
    assert model.objective_ <= plain.objective_ * (1 + 1e-9)
    same(model, plain, atol=1e-4)


# -- hard to break -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs"])
@pytest.mark.parametrize("k", [2, 3])
def test_separable_rows(solver, k):
    table = {"x": [float(i) for i in range(30)], "y": [f"c{i * k // 30}" for i in range(30)]}
    with pytest.warns(FastBayesWarning, match="told apart without error.*use penalty='l2'"):
        model = LR(None, solver=solver).fit(table, "y")
    assert model.converged_ is False
    assert np.isfinite(model.coef_).all()
    assert model.score(table, "y") == 1
    penalised = LR(C=1e4).fit(table, "y")
    assert penalised.converged_


def test_nothing_is_said_of_densities(caplog):
    table = {"x": [1.0, 1.0, 2.0, 2.0], "z": [0.0, 1.0, 0.0, 1.0], "y": list("aabb")}
    LR().fit(table, "y")
    assert "Gaussian" not in caplog.text
    fb.NaiveBayes().fit(table, "y")
    assert "column 'x' is constant within every class, so a Gaussian" in caplog.text


def test_a_value_of_one_class_alone_is_separable():
    table = {"a": list("ppqqpq" * 5) + ["r"] * 3, "y": list("010101" * 5) + ["1"] * 3}
    with pytest.warns(FastBayesWarning, match="told apart"):
        model = LR(None).fit(table, "y")
    assert np.isfinite(model.coef_).all()
    assert not model.converged_


def test_what_is_not_separable_is_not_called_so():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LR(None).fit(rows(500, 3), "y").converged_


def test_collinear_and_constant_columns():
    table = rows(300, 3)
    more = table.append_column("same", table["x"]).append_column("one", pa.array(["u"] * 300))
    more = more.append_column("seven", pa.array(np.full(300, 7.25)))
    more = more.append_column("copy", table["a"]).append_column("none", pa.nulls(300, pa.float64()))
    for penalty in ("l2", "l1", None):
        model = LR(penalty).fit(more, "y")
        assert model.converged_
        assert np.isfinite(model.coef_).all()
    plain = LR(None).fit(table, "y")
    np.testing.assert_allclose(model.predict_proba(more), plain.predict_proba(table), atol=1e-5)


def test_numbers_far_from_zero_keep_their_digits():
    table = rows(400, 2)
    near = LR(None, tol=1e-9).fit(table, "y")
    far = table.set_column(2, "x", pa.array(table["x"].to_numpy() / 20 + 1.7e9))
    model = LR(None, tol=1e-9).fit(far, "y")
    assert model.converged_
    np.testing.assert_allclose(model.coef_[0, -1], 20 * near.coef_[0, -1], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(far), near.predict_proba(table), atol=1e-5)


def test_columns_of_very_different_scale():
    table = rows(300, 2)
    x = table["x"].to_numpy()
    random = np.random.default_rng(0)
    more = table.append_column("tiny", pa.array(1e-9 * random.normal(size=300)))
    more = more.append_column("huge", pa.array(1e12 * (random.normal(size=300) + x / 50)))
    model = LR().fit(more, "y")
    assert model.converged_
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_standardize__is_the_penalty_of_standardised_columns(penalty, k):
    table = rows(300, k)
    x = table["x"].to_numpy()
    mean, deviation = np.nanmean(x), np.nanstd(x)

    def told(numbers):
        at = table.column_names.index("x")
        return table.set_column(at, "x", pa.array(numbers, from_pandas=True))

    options = {"penalty": penalty, "C": 0.05, "tol": 1e-9}
    expected = LR(**options).fit(told((x - mean) / deviation), "y")
    for scale in (1e-3, 1e4):
        model = LR(standardize=True, **options).fit(told(scale * x), "y")
        slopes = model.coef_[:, -1] * scale * deviation
        np.testing.assert_allclose(slopes, expected.coef_[:, -1], atol=1e-6)
        np.testing.assert_allclose(
            model.predict_proba(told(scale * x)),
            expected.predict_proba(told((x - mean) / deviation)),
            atol=1e-6,
        )
    slopes = LR(**options).fit(told(1e-3 * x), "y").coef_[:, -1] * 1e-3 * deviation
    assert np.abs(slopes).sum() < 0.5 * np.abs(expected.coef_[:, -1]).sum()


def test_standardize__has_the_standard_errors_of_standardised_columns():
    table = rows(300, 2)
    x = table["x"].to_numpy()
    scaled = table.set_column(
        table.column_names.index("x"), "x", pa.array((x - x.mean()) / x.std())
    )
    told = {"C": 0.05, "standard_errors": True}
    one = LR(standardize=True, **told).fit(table, "y").coefficients()
    other = LR(**told).fit(scaled, "y").coefficients()
    errors = [found["standard_error"].to_numpy()[-1] for found in (one, other)]
    np.testing.assert_allclose(errors[0] * x.std(), errors[1], rtol=1e-5)


def test_many_values():
    random = np.random.default_rng(0)
    n = 30_000
    ids = random.integers(0, 10_000, n)
    y = (ids % 3 == 0) ^ (random.random(n) < 0.1)
    table = pa.table({"id": pa.array(ids).cast(pa.string()), "y": pa.array(y.astype(int))})
    model = LR().fit(table, "y")
    assert model.converged_
    assert model.coef_.shape[1] == len(set(ids.tolist()))
    with pytest.raises(MemoryLimitError, match=r"column 'id' with .* memory_limit"):
        LR(memory_limit=100_000).fit(table, "y")


def test_coefficients_of_numbers_that_do_not_fit():
    random = np.random.default_rng(0)
    table = pa.table({f"x{j}": random.normal(size=100) for j in range(40)})
    table = table.append_column("y", pa.array(random.integers(0, 3, 100)))
    with pytest.raises(MemoryLimitError, match=r"123 coefficients need .* numeric columns"):
        LR(memory_limit=11_800, threads=1).fit(table, "y")


def test_one_class_only():
    with pytest.warns(FastBayesWarning, match="only one class"):
        model = LR().fit({"a": ["p", "q"], "x": [1.0, 2.0], "y": ["n", "n"]}, "y")
    assert model.predict({"a": ["p"], "x": [3.0]}).tolist() == ["n"]
    assert model.predict_proba({"a": ["p"], "x": [3.0]}).tolist() == [[1.0]]
    assert model.coef_.shape == (1, 3)


def test_a_declared_class_without_a_row_is_said():
    table = rows(100, 2)
    with pytest.warns(FastBayesWarning, match="class 'c9' has no row"):
        model = LR(domains={"y": ["c0", "c1", "c9"]}).fit(table, "y")
    assert np.isfinite(model.coef_).all()
    assert model.predict_proba(table)[:, 2].max() < 1e-3


def test_too_few_steps_are_said():
    with pytest.warns(FastBayesWarning, match="did not converge in 1 steps.*raise `max_iter`"):
        model = LR(max_iter=1, tol=1e-9).fit(rows(200, 3), "y")
    assert model.converged_ is False
    assert model.gradient_norm_ > 1e-9


def test_infinite_numbers_are_refused():
    with pytest.raises(DataError, match="infinite"):
        LR().fit(pa.table({"x": [1.0, np.inf, 2.0], "y": [0, 1, 0]}), "y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "l3"}, "penalty='l3': use one of"),
        ({"C": 0}, "C=0: use a finite number > 0"),
        ({"C": float("nan")}, "C=nan"),
        ({"solver": "sag"}, "solver='sag'"),
        ({"penalty": "l1", "solver": "lbfgs"}, "use solver='newton-cg'"),
        ({"penalty": "l1", "solver": "conjugate_gradient"}, "use solver='newton-cg'"),
        ({"learning_rate": 0.1}, "learning_rate is of solver='gradient'"),
        ({"learning_rate": -1, "solver": "gradient"}, "learning_rate=-1"),
        ({"init": "random"}, "init='random'"),
        ({"class_weight": "auto"}, "class_weight='auto'"),
        ({"class_weight": 3}, "class_weight=3"),
        ({"class_weight": np.ones(2)}, "use None, 'balanced' or"),
        ({"class_weight": {"c7": 2}}, "there is no class 'c7'"),
        ({"class_weight": {"c0": -2}}, "finite number >= 0"),
        ({"tol": 0}, "tol=0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"missing": "drop"}, "missing='drop'"),
        ({"unseen": "smooth"}, "has no coefficient"),
        ({"interactions": [("a", "x")]}, "column 'x' is numeric"),
        ({"interactions": [("a", "q")]}, "column 'q' is not there"),
        ({"interactions": [("a", "a")]}, "twice in a pair"),
        ({"interactions": [("a", "b"), ("b", "a")]}, "named twice"),
        ({"interactions": ["ab"]}, "no pair"),
    ],
)
def test_parameters_are_checked_at_fit(options, message):
    with pytest.raises(ValueError, match=message):
        LR(**options).fit(rows(50), "y")


def test_an_infinite_C_is_no_penalty():
    table = rows(300, 3)
    same(LR(C=np.inf).fit(table, "y"), LR(None).fit(table, "y"))


@pytest.mark.parametrize("name", ["fit_statistics", "log_evidence", "sample"])
def test_what_a_discriminative_model_has_not(name):
    assert not hasattr(LR, name)
    with pytest.raises(AttributeError, match="LogisticRegression"):
        getattr(LR(), name)


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"pip install 'fastbayes\[optimize\]'"):
        LR(solver="lbfgs").fit(rows(50), "y")


# -- further learning --------------------------------------------------------------------------


def test_warm_start_begins_where_the_model_is():
    table = rows(2_000, 3)
    model = LR(warm_start=True).fit(table, "y")
    steps, coef = model.n_iter_, model.coef_
    model.fit(table, "y")
    assert model.n_iter_ < steps
    np.testing.assert_allclose(model.coef_, coef, atol=1e-6)
    # New values begin at 0, classes that are others anew.
    more = pa.concat_tables([table, rows(50, 3, seed=9)])
    same(model.fit(more, "y"), LR().fit(more, "y"), atol=1e-5)
    other = rows(300, 2)
    same(model.fit(other, "y"), LR().fit(other, "y"), atol=1e-5)


@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_one_batch_is_fit(penalty):
    table = rows(300, 3, missing=True)
    same(LR(penalty).partial_fit(table, "y"), LR(penalty).fit(table, "y"), atol=0)


@pytest.mark.parametrize("k", [2, 3])
def test_batches_come_near_one_fit(k):
    table = rows(6_000, k, missing=True)
    whole = LR().fit(table, "y")
    first = LR().fit(table.slice(0, 2_000), "y")
    model = LR()
    for start in (0, 2_000, 4_000):
        model.partial_fit(table.slice(start, 2_000), "y")
    assert model.converged_
    near = np.abs(model.predict_proba(table) - whole.predict_proba(table)).max()
    assert near < 0.3 * np.abs(first.predict_proba(table) - whole.predict_proba(table)).max()
    assert model.statistics_.n_rows == 6_000


def test_batches_with_new_values_and_no_row_of_a_class():
    table = rows(3_000, 3)
    a = np.array(table["a"].to_pylist())
    y = np.array(table["y"].to_pylist())
    early = (a != "v3") & (y != "c2")
    with pytest.warns(FastBayesWarning, match="class 'c2' has no row"):
        model = LR().partial_fit(table.filter(early), "y", classes=["c0", "c1", "c2"])
    model.partial_fit(table.filter(~early), "y")
    assert ("a", "v3") in model.coef_names_
    assert np.isfinite(model.coef_).all()
    # A later batch of one class alone.
    with pytest.warns(FastBayesWarning, match=r"no row of class 'c0'.*mix the classes"):
        model.partial_fit(table.filter(y == "c1"), "y")
    with pytest.raises(DataError, match=r"class 'd' is (new|not)|'d'"):
        model.partial_fit({"a": ["v1"], "b": ["w1"], "x": [1.0], "y": ["d"]}, "y")


def test_a_new_class_is_refused_with_the_remedy():
    table = rows(100, 2)
    model = LR().partial_fit(table, "y")
    before = model.coef_
    with pytest.raises(DataError, match=r"class 'd' is new.*`classes` at the first partial_fit"):
        model.partial_fit({"a": ["v1"], "b": ["w1"], "x": [1.0], "y": ["d"]}, "y")
    np.testing.assert_array_equal(model.coef_, before)


def test_batches_with_interactions_and_missing_as_a_category():
    table = rows(2_000, 2, missing=True)
    a = np.array([str(v) for v in table["a"].to_pylist()])
    model = LR(interactions=[("b", "a")], missing="category")
    whole = LR(interactions=[("b", "a")], missing="category").fit(table, "y")
    model.partial_fit(table.filter((a != "None") & (a != "v1")), "y")
    model.partial_fit(table.filter((a == "None") | (a == "v1")), "y")
    assert model.coef_names_ == whole.coef_names_
    far = np.abs(model.predict_proba(table) - whole.predict_proba(table)).mean()
    assert far < 0.05


def test_a_numeric_column_may_come_after_batches_without_any_number():
    model = LR().partial_fit({"a": ["u", "v"], "x": [None, None], "y": ["n", "p"]}, "y")
    model.partial_fit({"a": ["u", "v"], "x": [1.5, 2.5], "y": ["n", "p"]}, "y")
    assert model.predict_proba({"a": ["u"], "x": [1.5]}).shape == (1, 2)


def test_rows_of_coefficients_move_with_their_values():
    def schema(a, b):
        told = pa.table({"a": a, "b": b, "x": np.arange(4.0), "y": list("mnmn")})
        return fb.count(told, "y", missing="category").schema

    before = schema(["p", "r", None, "p"], ["u", "u", "w", "w"])
    after = schema(["p", "q", "r", None], ["u", "v", "w", None])
    # p, r, missing; u, w; x; pairs of both.
    old = Layout.of([3, 2], 2, center=[0], scale=[1], pairs=[(0, 1)])
    new = Layout.of([4, 4], 2, center=[0], scale=[1], pairs=[(0, 1)])
    found = rows_before(old, new, after.alignment(before))
    a, b, first = [0, -1, 1, 2], [0, -1, 1, -1], 7
    pairs = [first + 2 * v + w if v >= 0 and w >= 0 else -1 for v in a for w in b]
    assert found.tolist() == [0, 1, -1, 2, 3, 4, -1, 5, -1, 6, *pairs]
    # Derivatives move with them.
    random = np.random.default_rng(0)
    theta = random.normal(size=(old.n_rows, 1))
    full = random.normal(size=(old.n_rows, old.n_rows))
    for curvature in (theta**2, full @ full.T):
        memory = Memory(theta, theta, curvature, 1.0, 4.0)
        moved = memory.moved(found)
        there = np.where(found[:, None] >= 0, random.normal(size=(new.n_rows, 1)), 0)
        same_place = np.zeros_like(theta)
        same_place[found[found >= 0]] = there[found >= 0]
        assert moved.value_gradient(there)[0] == pytest.approx(memory.value_gradient(same_place)[0])
        value, pull = moved.value_gradient(there)
        np.testing.assert_allclose(
            pull[found >= 0][:, 0], memory.value_gradient(same_place)[1][found[found >= 0]][:, 0]
        )
        assert (pull[found < 0] == 0).all()
        assert np.isfinite(value)


# -- keeping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:there is only one class")
def test_saving(tmp_path, k):
    table = rows(500, k, missing=True)
    model = LR(C=0.5, interactions=[("a", "b")], class_weight="balanced").fit(table, "y")
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    np.testing.assert_array_equal(loaded.trace_, model.trace_)
    assert loaded.coef_names_ == model.coef_names_
    assert (loaded.converged_, loaded.n_iter_) == (model.converged_, model.n_iter_)
    assert loaded.statistics_ == model.statistics_
    # It goes on learning as the one that was saved.
    for one in (loaded, model):
        one.partial_fit(rows(200, k, seed=5), "y")
    np.testing.assert_array_equal(loaded.coef_, model.coef_)


def test_explanations_add_up():
    table = rows(200, 3, missing=True)
    model = LR(interactions=[("a", "b")]).fit(table, "y")
    told = model.explain(table)
    np.testing.assert_allclose(
        told.contributions.sum(axis=1) + told.prior, model.log_joint(table), atol=1e-9
    )


def test_adapted_prior():
    table = rows(4_000, 3)
    model = LR().fit(table, "y")
    y = np.array(table["y"].to_pylist())
    fewer = table.filter((y != "c0") | (np.arange(4_000) % 10 == 0))
    adapted = model.adapt_prior(fewer)
    assert adapted.predict_proba(fewer)[:, 0].mean() < model.predict_proba(fewer)[:, 0].mean()
    np.testing.assert_array_equal(adapted.coef_, model.coef_)
    truth = np.array(fewer["y"].to_pylist())
    share = (truth == "c0").mean()
    assert adapted.predict_proba(fewer)[:, 0].mean() == pytest.approx(share, abs=0.02)


def test_folds_are_refitted():
    table = rows(400, 3)
    figures = fb.k_fold(LR(), table, "y", folds=5)
    assert len(figures.folds) == 5
    own = LR().fit(table, "y")
    assert 0.3 < figures.accuracy <= own.score(table, "y") + 0.02
    held = np.arange(400) % 5
    by_hand = fb.k_fold(LR(), table, "y", folds=held)
    some = LR().fit(table.filter(pa.array(held != 0)), "y").predict_proba(table)
    np.testing.assert_allclose(by_hand.proba[held == 0], some[held == 0], atol=1e-9)


def test_leave_one_out_is_refused_with_the_remedy():
    table = rows(60)
    with pytest.raises(SchemaError, match="k_fold"):
        fb.leave_one_out(LR(), fb.count(table, "y"), table)


def test_frames_without_names_and_names_without_order():
    frame = pd.DataFrame({"p": [1.0, 2, 3, 4], "q": [0.0, 1, 0, 1]})
    model = LR().fit(frame, [0, 0, 1, 1])
    np.testing.assert_allclose(
        model.predict_proba(frame[["q", "p"]]), model.predict_proba(frame), atol=1e-12
    )
