"""LogisticRegression on data and options that break such models (§1, §8)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import close
from logistic_cases import Case, generated, scikit

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning, MemoryLimitError, SchemaError

N = 200
RNG = np.random.default_rng(50)
COLOURS = np.array(["red", "green", "blue"])
ROWS = {
    "colour": COLOURS[RNG.integers(0, 3, N)],
    "size": RNG.normal(size=N),
    "y": RNG.integers(0, 2, N),
}


pytestmark = pytest.mark.usefixtures("kernels")


def fit(rows: Any, y: Any = "y", *, weight: Any = None, **options: Any) -> Any:
    return fb.LogisticRegression(**options).fit(rows, y, sample_weight=weight)


@contextmanager
def said(error: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error of one line with these words in it."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


@contextmanager
def warned(*words: str) -> Iterator[None]:
    """Expect one warning with these words in it, and no other."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(w.message) for w in caught]
    assert len(messages) == 1, messages
    assert issubclass(caught[0].category, FastBayesWarning)
    assert [word for word in words if word not in messages[0]] == [], messages


def sound(model: Any, rows: Any) -> None:
    """Hold that everything a model says is finite and adds up."""
    parts = (model.coef_, model.intercept_, model.gradient_norm_, model.objective_, model.trace_)
    assert all(np.isfinite(part).all() for part in parts)
    asked = {name: cells for name, cells in dict(rows).items() if name != "y"}
    got = model.predict_proba(asked)
    assert np.isfinite(got).all()
    close(got.sum(axis=1), 1, 1e-12)


# -- separable rows ------------------------------------------------------------------------------

SEPARABLE: dict[str, dict[str, Any]] = {
    "numbers": {"x": [1.0, 2.0, 3.0, 7.0, 8.0, 9.0], "y": [0, 0, 0, 1, 1, 1]},
    "values": {"a": list("ppqqss"), "y": [0, 0, 0, 1, 1, 1]},
    "three classes": {"x": [1.0, 2.0, 3.0, 7.0, 8.0, 9.0], "y": [0, 0, 1, 1, 2, 2]},
    "some rows only": {"a": list("ppppqqqq"), "y": [0, 0, 0, 0, 0, 1, 0, 1]},
    "one value of three classes": {"a": list("ppppqqqqq"), "y": [0, 0, 0, 0, 0, 1, 2, 1, 2]},
    "far apart": {"x": [1e6, 1e6 + 1, 1e6 + 5, 1e6 + 6], "y": [0, 0, 1, 1]},
    "tiny numbers": {"x": [1e-9, 2e-9, 7e-9, 8e-9], "y": [0, 0, 1, 1]},
    "a weight of 0 beside": {"x": [1.0, 2.0, 3.0, 1.5], "y": [0, 0, 1, 1], "w": [1, 1, 1, 0]},
}

SLOW = ("values", "some rows only", "one value of three classes")


def parts_of(name: str) -> tuple[dict[str, Any], Any]:
    rows = dict(SEPARABLE[name])
    return rows, rows.pop("w", None)


@pytest.mark.parametrize("init", ["naive_bayes", "zeros"])
@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs", "conjugate_gradient", "gradient"])
@pytest.mark.parametrize("name", SEPARABLE)
def test_separable__without_penalty(name: str, solver: str, init: str) -> None:
    rows, weight = parts_of(name)
    # Plain gradient steps may end long before coefficients have grown so that it shows.
    words = ("max_iter",) if solver == "gradient" and name in SLOW else ("penalty='l2'",)
    with warned(*words):
        model = fit(rows, weight=weight, penalty=None, solver=solver, init=init)
    sound(model, rows)
    assert not model.converged_
    assert (model.predict_proba({n: c for n, c in rows.items() if n != "y"}) >= 0).all()


@pytest.mark.parametrize("C", [1.0, 1e4])
@pytest.mark.parametrize("name", SEPARABLE)
def test_separable__with_penalty(name: str, C: float) -> None:
    rows, weight = parts_of(name)
    model = fit(rows, weight=weight, C=C)
    sound(model, rows)
    assert model.converged_


def test_separable__one_value_of_many() -> None:
    # A column with a value that only one class has, among rows that are not separable.
    case = generated(2, seed=51)
    cells = [
        "only" if label == "c1" and i % 9 == 0 else "other" for i, label in enumerate(case.labels)
    ]
    table = case.table.append_column("tell", pa.array(cells))
    with warned("without a penalty", "penalty='l2'"):
        model = fit(table, penalty=None)
    assert np.isfinite(model.coef_).all()
    assert not model.converged_
    assert fit(table).converged_


# -- columns that say nothing, or too much ---------------------------------------------------------


def test_collinear() -> None:
    rows = {**ROWS, "twice": 2 * ROWS["size"], "again": ROWS["size"], "tint": ROWS["colour"]}
    model = fit(rows, tol=1e-9)
    sound(model, rows)
    assert model.converged_
    found = dict(zip(model.coef_names_, model.coef_[0], strict=True))
    close(found["again", None], found["size", None], 1e-6)
    close(found["twice", None], 2 * found["size", None], 1e-6)
    for colour in COLOURS:
        close(found["tint", colour], found["colour", colour], 1e-6)
    free = fit(rows, penalty=None)
    assert free.converged_
    sound(free, rows)
    plain = fit(ROWS, penalty=None)
    close(free.predict_proba(rows), plain.predict_proba(ROWS), 1e-4)


@pytest.mark.parametrize("penalty", ["l2", "l1", None])
@pytest.mark.parametrize("constant", [0.0, 3.0, -1e9, 1e300])
def test_constant_number(constant: float, penalty: str | None) -> None:
    rows = {**ROWS, "flat": np.full(N, constant)}
    model, plain = fit(rows, penalty=penalty), fit(ROWS, penalty=penalty)
    assert model.converged_
    sound(model, rows)
    found = dict(zip(model.coef_names_, model.coef_[0], strict=True))
    assert found["flat", None] == 0
    close(model.predict_proba(rows), plain.predict_proba(ROWS), 1e-6)


@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_constant_value(penalty: str | None) -> None:
    rows = {**ROWS, "flat": ["same"] * N}
    model, plain = fit(rows, penalty=penalty), fit(ROWS, penalty=penalty)
    assert model.converged_
    sound(model, rows)
    close(model.predict_proba(rows), plain.predict_proba(ROWS), 1e-5)


@pytest.mark.parametrize("kind", [pa.null(), pa.string(), pa.float64()])
@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_column_of_nulls(kind: pa.DataType, penalty: str | None) -> None:
    table = pa.table(ROWS).append_column("none", pa.array([None] * N, kind))
    model, plain = fit(table, penalty=penalty), fit(ROWS, penalty=penalty)
    assert model.converged_
    close(model.predict_proba(table), plain.predict_proba(ROWS), 1e-6)
    # What it is later is unseen, or a number that nothing is known of.
    later = pa.array([7.5] * N) if kind == pa.float64() else pa.array(["new"] * N)
    asked = table.set_column(table.column_names.index("none"), "none", later)
    close(model.predict_proba(asked), plain.predict_proba(ROWS), 1e-6)


def test_nothing_but_a_column_of_nulls() -> None:
    rows = {"none": pa.array([None] * 6, pa.string()), "y": [0, 0, 0, 0, 1, 1]}
    model = fit(rows)
    close(model.predict_proba({"none": [None]}), [[2 / 3, 1 / 3]], 1e-5)


def test_nan_is_the_mean() -> None:
    size = ROWS["size"].copy()
    size[::5] = np.nan
    mean = np.nanmean(size)
    filled = np.where(np.isnan(size), mean, size)
    a, b = fit({**ROWS, "size": size}, tol=1e-10), fit({**ROWS, "size": filled}, tol=1e-10)
    close(a.coef_, b.coef_, 1e-7)
    close(a.predict_proba({"colour": ["red"], "size": [np.nan]}),
          a.predict_proba({"colour": ["red"], "size": [mean]}), 1e-12)  # fmt: skip


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_numbers_are_refused(value: float) -> None:
    size = ROWS["size"].copy()
    size[3] = value
    with said(DataError, "size"):
        fit({**ROWS, "size": size})
    model = fit(ROWS)
    with said(DataError, "size"):
        model.predict({"colour": ["red"], "size": [value]})


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e-8, 1e8, 1e30, 1e150])
@pytest.mark.parametrize("penalty", ["l2", None])
def test_units_far_from_1(scale: float, penalty: str | None) -> None:
    rows = {**ROWS, "size": ROWS["size"] * scale}
    model = fit(rows, penalty=penalty)
    sound(model, rows)
    assert model.converged_
    if penalty is None:
        close(model.coef_[0, 3] * scale, fit(ROWS, penalty=None).coef_[0, 3], 1e-4)


def test_numbers_in_any_units_without_a_penalty() -> None:
    plain = fit(ROWS, penalty=None, tol=1e-9)
    moved = fit({**ROWS, "size": 1.7e9 + 1e-3 * ROWS["size"]}, penalty=None, tol=1e-9)
    close(moved.coef_[0, 3] / 1e3, plain.coef_[0, 3], 1e-3)


# -- weights ---------------------------------------------------------------------------------------


def test_weights_of_0_are_no_rows() -> None:
    weight = RNG.integers(0, 2, N).astype(float)
    kept = weight > 0
    a = fit(ROWS, weight=weight)
    b = fit({name: cells[kept] for name, cells in ROWS.items()})
    close(a.coef_, b.coef_, 1e-8)
    with said(ValueError, "weight", "zero"):
        fit(ROWS, weight=np.zeros(N))
    with said(DataError, "weight"):
        fit(ROWS, weight=np.full(N, -1.0))
    with said(DataError, "weight"):
        fit(ROWS, weight=np.full(N, np.nan))
    with said(DataError, "weight", "1e+100"):
        fit(ROWS, weight=np.full(N, 1e300))


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e-12, 1e12, 1e90])
@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_weights_of_any_size(scale: float, penalty: str | None) -> None:
    weight = RNG.choice([0.5, 1.0, 2.0], N)
    model = fit(ROWS, weight=weight * scale, penalty=penalty)
    sound(model, ROWS)
    free = fit(ROWS, weight=weight, penalty=None)
    got = model.predict_proba(ROWS)
    if penalty is None or scale > 1:
        assert model.converged_
        close(got, free.predict_proba(ROWS), 1e-4)
    else:
        # The penalty is all there is.
        shares = np.bincount(ROWS["y"], weight) / weight.sum()
        assert np.abs(got - shares).max() < 1e-2


def test_weights_and_strength_together_change_nothing() -> None:
    weight = RNG.choice([0.5, 1.0, 2.0], N)
    plain = fit(ROWS, weight=weight, tol=1e-9)
    for scale in (1e-200, 1e-20, 1e20, 1e90):
        model = fit(ROWS, weight=weight * scale, C=1 / scale, tol=1e-9)
        close(model.coef_, plain.coef_, 1e-6)
        close(model.objective_ / scale, plain.objective_, 1e-9)


@pytest.mark.parametrize("C", [1e-300, 1e-12, 1e12, 1e300, float("inf")])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_strength_of_any_size(C: float, penalty: str) -> None:
    model = fit(ROWS, C=C, penalty=penalty)
    sound(model, ROWS)
    assert model.converged_
    if C < 1:
        assert np.abs(model.coef_).max() <= 1e-9
        odds = np.bincount(ROWS["y"])
        close(model.intercept_, np.log(odds[1] / odds[0]), 1e-5)
    else:
        close(model.predict_proba(ROWS), fit(ROWS, penalty=None).predict_proba(ROWS), 1e-4)


# -- few rows, many things -------------------------------------------------------------------------


def test_one_row_and_one_class() -> None:
    for rows in ({"a": ["p"], "y": [1]}, {"x": [2.0, 3.0], "y": ["only", "only"]}):
        with warned("only one class"):
            model = fit(rows)
        label = rows["y"][0]
        asked = {name: cells for name, cells in rows.items() if name != "y"}
        assert model.classes_.tolist() == [label]
        assert model.predict(asked).tolist() == [label] * len(rows["y"])
        assert model.predict_proba(asked).tolist() == [[1.0]] * len(rows["y"])


def test_no_rows() -> None:
    with said(DataError, "row"):
        fit(pa.table({"a": pa.array([], pa.string()), "y": pa.array([], pa.string())}))
    with said(DataError, "y"):
        fit({"a": ["p", "q"], "y": pa.array([None, None], pa.string())})


def test_two_rows() -> None:
    rows = {"x": [0.0, 1.0], "y": ["a", "b"]}
    model = fit(rows)
    sound(model, rows)
    theirs = scikit(Case({"x": rows["x"]}, rows["y"], ["x"]).problem())
    close(model.coef_, theirs[1].T, 1e-5)


def test_a_thousand_classes() -> None:
    n, k = 2000, 1000
    y = np.concatenate([np.arange(k), RNG.integers(0, k, n - k)])
    rows = {"a": y % 7, "b": (y + RNG.integers(0, 2, n)) % 5, "x": RNG.normal(size=n), "y": y}
    model = fit(rows, categorical=["a", "b"], C=1e-3)
    assert model.converged_
    assert model.coef_.shape == (k, 13)
    got = model.predict_proba({name: cells[:50] for name, cells in rows.items() if name != "y"})
    assert np.isfinite(got).all()
    close(got.sum(axis=1), 1, 1e-12)
    close(model.coef_.sum(axis=0), 0, 1e-8)


def test_five_thousand_columns() -> None:
    n, d = 60, 5000
    X = RNG.integers(0, 3, (n, d))
    y = (X[:, 0] + RNG.integers(0, 2, n) > 1).astype(int)
    model = fit(X.astype(np.int64), y, categorical=list(range(d)), C=0.01)
    assert model.converged_
    close(model.predict_proba(X).sum(axis=1), 1, 1e-12)
    numbers = fit(X + 0.5, y, C=0.01)
    assert numbers.converged_
    assert numbers.coef_.shape == (1, d)


def test_a_hundred_thousand_values() -> None:
    n = 100_000
    who = np.arange(n)
    y = RNG.integers(0, 2, n)
    colour = COLOURS[(y + RNG.integers(0, 2, n)) % 3]
    rows = {"who": np.char.add("id", who.astype(str)), "colour": colour, "y": y}
    model = fit(rows)
    assert model.converged_
    assert model.coef_.shape == (1, n + 3)
    # Each value has one row: its coefficient is what the penalty lets that row say.
    asked = {name: cells[:100] for name, cells in rows.items() if name != "y"}
    p = model.predict_proba(asked)[:, 1]
    own = dict(zip(model.coef_names_, model.coef_[0], strict=True))
    close([own["who", f"id{i}"] for i in range(100)], y[:100] - p, 1e-4)
    with said(MemoryLimitError, "who", "memory_limit"):
        fit(rows, memory_limit=1 << 20)
    with warned("penalty='l2'"):
        assert not fit(rows, penalty=None).converged_


# -- steps and options -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs", "conjugate_gradient", "gradient"])
def test_too_few_steps_are_said(solver: str) -> None:
    table = generated(3, seed=52).table
    with warned(f"solver={solver!r}", "did not converge", "max_iter"):
        model = fit(table, solver=solver, max_iter=1)
    assert not model.converged_
    assert model.n_iter_ == 1
    assert model.gradient_norm_ > model.tol
    assert np.isfinite(model.coef_).all()


def test_a_learning_rate_that_is_too_large_is_said() -> None:
    case = generated(3, seed=53)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(case.table, solver="gradient", learning_rate=1e6, max_iter=50)
    assert np.isfinite(model.coef_).all()
    assert not model.converged_
    assert [w for w in caught if "learning_rate" in str(w.message)]


WRONG: dict[str, list[Any]] = {
    "penalty": ["l3", "none", 2, ["l2"]],
    "C": [0, -1, float("nan"), "1", None, True],
    "solver": ["newton", "liblinear", None, 3],
    "learning_rate": [0, -0.5, float("nan"), float("inf"), "fast"],
    "init": ["random", None],
    "class_weight": ["even", 3, {"c0": -1}, {"c0": float("nan")}, {"nobody": 1}, {"c0": "2"}],
    "tol": [0, -1e-6, float("nan"), float("inf"), None],
    "max_iter": [0, -1, 2.5, "many", None, True],
    "missing": ["drop", None],
    "unseen": ["smooth", "drop", None],
    "threads": [0, -2, 1.5, "all"],
    "memory_limit": [0, -5, "much"],
    "interactions": ["ab", ["ab"], [("a",)], [("a", "b", "a")], 0, -1, 1.5, True],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_wrong_options_are_named(name: str, value: Any) -> None:
    table = generated(2, seed=54).table
    more = {"solver": "gradient"} if name == "learning_rate" else {}
    with said((ValueError, SchemaError, MemoryLimitError), name):  # type: ignore[arg-type]
        fit(table, **{name: value}, **more)


def test_options_that_contradict_each_other() -> None:
    table = generated(2, seed=55).table
    with said(ValueError, "learning_rate", "gradient"):
        fit(table, learning_rate=0.1)
    for solver in ("lbfgs", "conjugate_gradient", "gradient"):
        with said(ValueError, "l1", solver):
            fit(table, penalty="l1", solver=solver)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("a", "nowhere")], ("nowhere",)),
        ([("a", "y")], ("'y'",)),
        ([("a", "z0")], ("z0", "numeric", "categorical")),
        ([("a", "a")], ("'a'", "twice")),
        ([("a", "b"), ("b", "a")], ("'a'", "'b'", "twice")),
        ([("a", 3)], ("3",)),
    ],
)
def test_interactions_that_cannot_be(pairs: Any, words: tuple[str, ...]) -> None:
    with said(SchemaError, "interactions", *words):
        fit(generated(2, seed=56).table, interactions=pairs)


def test_interactions_of_columns_by_number() -> None:
    X = RNG.integers(0, 3, (N, 2))
    model = fit(X, ROWS["y"], categorical=[0, 1], interactions=[("x0", "x1")])
    assert (("x0", "x1"), (0, 0)) in model.coef_names_


def test_class_weights_of_0_leave_a_class_out() -> None:
    table = generated(3, seed=57).table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)
        model = fit(table, class_weight={"c2": 0.0})
    assert np.isfinite(model.coef_).all()
    assert model.predict_proba(table)[:, 2].max() < 0.01
    with said(ValueError, "class_weight"):
        fit(table, class_weight={"c0": 0.0, "c1": 0.0, "c2": 0.0})


def test_predicting_before_fitting() -> None:
    model = fb.LogisticRegression()
    with pytest.raises(ValueError, match="fit"):
        model.predict(ROWS)
    with pytest.raises(ValueError, match="fit"):
        model.loss_gradient(ROWS, "y")


def test_fitting_leaves_the_data_as_it_was() -> None:
    rows = {name: cells.copy() for name, cells in ROWS.items()}
    fit(rows)
    for name, cells in rows.items():
        np.testing.assert_array_equal(cells, ROWS[name])
