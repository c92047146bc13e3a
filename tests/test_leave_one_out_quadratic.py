"""Leave-one-out of GaussianBayes by subtraction equals fitting without the row (SEMANTICS §9)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from comparing import close
from refitting import TARGET, WEIGHT, counted, refitted

import fastbayes as fb
from fastbayes.models.leave_one_out import loo_quadratic
from fastbayes.models.leave_one_out.loo_quadratic import LooQuadratic

WEIGHTS = [None, (1.0, 2.5), (0.3, 1.0, 2.5)]
COVARIANCES = ["full", "tied", "diagonal", "spherical"]
every_covariance = pytest.mark.parametrize("covariance", COVARIANCES)
pytestmark = [
    pytest.mark.usefixtures("kernels"),
    pytest.mark.filterwarnings(
        "ignore:the covariance of",
        "ignore:column .* hardly varies",
        "ignore:class .* has no row without",
        "ignore:there is only one class",
    ),
]


def rows(seed: int, n: int = 40, p: int = 3, *, weights: Any = None, holes: float = 0.1) -> Any:
    """Return classes that differ in covariance, one of a single row, with missing values."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["no", "yes"], n).astype(object)
    turned = rng.normal(size=(n, p)) @ (rng.normal(size=(p, p)) + np.eye(p))
    X = np.where((y == "yes")[:, None], turned + 1, rng.normal(size=(n, p)))
    y[rng.integers(n)] = "alone"
    columns = {f"z{j}": pa.array(X[:, j], mask=rng.random(n) < holes) for j in range(p)}
    columns[TARGET] = pa.array(y)
    if weights is not None:
        columns[WEIGHT] = pa.array(rng.choice(weights, n))
    return pa.table(columns)


def told(model: Any) -> dict[str, Any]:
    return {"scatter": True} if model.covariance in ("full", "tied") else {}


def left_out(model: Any, table: pa.Table) -> Any:
    weight = WEIGHT if WEIGHT in table.column_names else None
    stats = counted(table, **told(model))
    return fb.leave_one_out(model, stats, table, sample_weight=weight)


def same(model: Any, table: pa.Table, tolerance: float = 1e-9) -> None:
    result = left_out(model, table)
    close(result.proba, refitted(model, table, **told(model)), tolerance)
    weight = table[WEIGHT].to_numpy().sum() if WEIGHT in table.column_names else len(table)
    assert math.isclose(float(result.confusion.sum()), weight)


@every_covariance
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    "more",
    [{}, {"ddof": 1, "class_prior": "uniform"}, {"var_floor": 0.7}, {"prior": "niw"},
     {"prior": {"kappa": 2, "scale": [0.5, 1, 2]}, "class_prior": [0.25, 0.25, 0.5]}],
)  # fmt: skip
def test_refit(covariance: str, more: dict[str, Any], weights: Any) -> None:
    if "prior" in more and covariance in ("diagonal", "spherical"):
        return
    table = rows(0, weights=weights)
    same(fb.GaussianBayes(covariance=covariance, **more), table)
    # Of a class of which no row is complete.
    alone = [i for i, c in enumerate(table[TARGET].to_pylist()) if c == "alone"]
    gap = table["z1"].to_pylist()
    gap[alone[0]] = None
    holes = table.set_column(1, "z1", pa.array(gap, pa.float64()))
    same(fb.GaussianBayes(covariance=covariance, **more), holes)


@every_covariance
def test_refit__complete_rows_of_large_classes(covariance: str) -> None:
    # Every row is scored in closed form.
    table = rows(3, 80, 5, holes=0.0)
    table = table.filter(pa.compute.not_equal(table[TARGET], "alone"))
    same(fb.GaussianBayes(covariance=covariance), table, 1e-11)


@every_covariance
@pytest.mark.parametrize("few", [2, 3, 4, 5, 6])
def test_refit__a_class_of_few_rows(covariance: str, few: int) -> None:
    """Without a row it has too few for a covariance, which then takes rows of that of all."""
    rng = np.random.default_rng(few)
    X = rng.normal(size=(30, 3)) + np.r_[np.zeros(few), np.ones(30 - few)][:, None]
    y = np.array(["few"] * few + ["many"] * (30 - few))
    table = pa.table({**{f"z{j}": X[:, j] for j in range(3)}, TARGET: y})
    model = fb.GaussianBayes(covariance=covariance)
    if covariance == "full" and few in (2, 3):
        with pytest.raises(fb.SchemaError, match=r"of class 'few' is singular.* use k_fold"):
            left_out(fb.GaussianBayes(singular="shrink"), table)
        same(fb.GaussianBayes(prior="niw"), table)
    same(model, table)
    same(fb.GaussianBayes(covariance=covariance, ddof=1), table)


def test_too_many_rows_of_a_singular_class__are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    table = pa.table({**{f"z{j}": X[:, j] for j in range(3)}, TARGET: ["few"] * 3 + ["many"] * 27})
    monkeypatch.setattr(loo_quadratic, "MOST_WORK", 30 * 3**3)
    same(fb.GaussianBayes(), table)
    monkeypatch.setattr(loo_quadratic, "MOST_WORK", 30 * 3**3 - 1)
    with pytest.raises(fb.SchemaError, match=r"of class 'few' is singular.* use k_fold"):
        left_out(fb.GaussianBayes(), table)


@every_covariance
@pytest.mark.parametrize("weights", [None, (0.3, 1.0, 2.5)])
@pytest.mark.parametrize("prior", [None, "niw"])
def test_refit__a_row_that_is_nearly_all_the_scatter(
    covariance: str, weights: Any, prior: Any
) -> None:
    if prior and covariance in ("diagonal", "spherical"):
        return
    rng = np.random.default_rng(5)
    n = 40
    spikes = rng.normal(size=(3, n)) * [[1.0], [1e-4], [1e-3]]
    spikes[0, :] = 0
    spikes[0, [0, 3]] = 1e3, 2e3  # one in each class: without it the column is constant
    spikes[1, [1, 5]] = 7, 1e4
    spikes[2, [2, 4]] = 1e7, -3e6
    table = pa.table(
        {
            **{f"z{j}": x for j, x in enumerate(spikes)},
            TARGET: np.array(["a", "b"])[np.arange(n) % 2],
        }
    )
    if weights is not None:
        table = table.append_column(WEIGHT, pa.array(rng.choice(weights, n)))
    same(fb.GaussianBayes(covariance=covariance, prior=prior), table, 1e-7)


@every_covariance
def test_refit__a_row_that_drowns_the_digits_of_the_others(covariance: str) -> None:
    rng = np.random.default_rng(5)
    y = np.array(["a", "b"])[np.arange(40) % 2]
    for i in range(3):
        x = rng.normal(size=(2, 40))
        # Without row 7, b is the narrower class, and the row is nearer to the other.
        x[0] *= np.where(y == "a", 1e-3, 5e-4)
        x[0, 7] = (1 + i / 7) * 1e6
        same(fb.GaussianBayes(covariance=covariance), pa.table({"z0": x[0], "z1": x[1], TARGET: y}))


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_refit__a_row_without_which_columns_depend_on_each_other(covariance: str) -> None:
    rng = np.random.default_rng(8)
    y = np.array(["a", "b"])[np.arange(40) % 2]
    x = rng.normal(size=40)
    near = x + 2e-5 * rng.normal(size=40)
    near[0] += 0.1
    if covariance == "full":
        near[1::2] += rng.normal(size=20)
    table = pa.table({"z0": x, "z1": near, TARGET: y})
    model = fb.GaussianBayes(covariance=covariance)
    same(model, table, 1e-6)
    # Its posterior is that of a covariance that was shrunk.
    result = left_out(model, table).proba[0]
    closed = LooQuadratic(model.fit_statistics(counted(table, scatter=True)))
    certain, _ = closed._closed_form(np.array([[x[0], near[0]]]), np.array([0]), np.ones(1))
    assert not certain[0]
    assert np.isfinite(result).all()


@every_covariance
def test_refit__variances_that_come_below_the_floor(covariance: str) -> None:
    table = rows(13, 40, 2, holes=0.0)
    model = fb.GaussianBayes(covariance=covariance)
    table = table.filter(pa.compute.not_equal(table[TARGET], "alone"))
    X = np.column_stack([table["z0"], table["z1"]])
    fitted = model.fit_statistics(counted(table, **told(model)))
    kind = (
        fitted.covariance_
        if covariance != "full"
        else np.array([*map(np.diag, fitted.covariance_)])
    )
    kind = np.diag(kind) if covariance == "tied" else kind
    overall = X.var(axis=0) if covariance != "spherical" else X.var(axis=0).mean()
    # Just above it; without a row that stands apart it is not.
    floor = 0.93 * float((kind / overall).min())
    model = fb.GaussianBayes(covariance=covariance, var_floor=floor)
    assert model.fit_statistics(counted(table, **told(model))).variance_floored_ == []
    same(model, table)


@every_covariance
def test_refit__columns_that_are_constant(covariance: str) -> None:
    rng = np.random.default_rng(6)
    y = np.array(["a", "b", "c"])[rng.integers(0, 3, 40)]
    X = rng.normal(size=(40, 4)) + (y == "a")[:, None]
    X[y == "b", 1] = 3
    X[:, 2] = np.where(y == "a", 1, 2)
    table = pa.table({**{f"z{j}": X[:, j] for j in range(4)}, TARGET: y})
    same(fb.GaussianBayes(covariance=covariance), table)


@every_covariance
def test_refit__numbers_far_from_zero_and_of_any_scale(covariance: str) -> None:
    table = rows(7, 50, holes=0.0)
    X = np.column_stack([table[f"z{j}"].to_numpy() for j in range(3)])
    X = X * ([1, 1e-9, 1e6] if covariance != "spherical" else [1, 1, 1]) + [1.7e9, 0, 1e12]
    moved = pa.table({**{f"z{j}": X[:, j] for j in range(3)}, TARGET: table[TARGET]})
    same(fb.GaussianBayes(covariance=covariance), moved, 1e-8)


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_weight__is_so_many_rows(covariance: str) -> None:
    table = rows(8, weights=(1, 2, 3), n=60)
    times = table[WEIGHT].to_numpy()
    repeated = table.drop_columns([WEIGHT]).take(np.repeat(np.arange(len(times)), times))
    model = fb.GaussianBayes(covariance=covariance, prior="niw")
    weighted, plain = left_out(model, table), left_out(model, repeated)
    close(np.repeat(weighted.proba, times, axis=0), plain.proba, 1e-9)
    for name in ("n", "accuracy", "log_loss", "brier", "auc"):
        close(getattr(weighted, name), getattr(plain, name), 1e-9)


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_threads_and_chunks__change_nothing(covariance: str, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    table = rows(9, 70_000, 2, holes=0.01)
    table = table.filter(pa.compute.not_equal(table[TARGET], "alone"))
    model = fb.GaussianBayes(covariance=covariance)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=30_000)
    stats = counted(table, scatter=True)
    one = fb.leave_one_out(model, stats, table, threads=1)
    two = fb.leave_one_out(model, stats, table, threads=2)
    np.testing.assert_array_equal(one.proba, two.proba)
    files = fb.leave_one_out(model, stats, str(tmp_path / "rows.parquet"), proba=False)
    close(files.log_loss, one.log_loss)
    # A row among so many makes no difference.
    close(one.proba, model.fit_statistics(stats).predict_proba(table.drop_columns(TARGET)), 0.01)


def test_words__say_what_is_fixed() -> None:
    table = rows(10)
    assert left_out(fb.GaussianBayes(), table).fixed == ("schema",)
    assert left_out(fb.GaussianBayes(prior="niw"), table).fixed == ("schema", "prior")
    given = {"mean": [0, 0, 0], "kappa": 1, "nu": 5, "scale": [1, 1, 1]}
    assert left_out(fb.GaussianBayes(prior=given), table).fixed == ("schema",)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"shrinkage": "auto"}, "a covariance that is shrunk.* use k_fold"),
        ({"shrinkage": 0.1, "covariance": "tied"}, "a covariance that is shrunk.* use k_fold"),
        ({"missing": "impute_mean"}, "missing='impute_mean' fills in.* use k_fold"),
    ],
)
def test_what_does_not_come_apart__says_so(parameters: dict[str, Any], words: str) -> None:
    table = rows(11)
    model = fb.GaussianBayes(**parameters)
    with pytest.raises(fb.SchemaError, match=words):
        left_out(model, table)
    large = table.filter(pa.compute.not_equal(table[TARGET], "alone"))
    figures = fb.k_fold(model, large, TARGET, folds=4)
    assert 0 < figures.accuracy <= 1


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_k_fold__is_fitting_without_the_fold(covariance: str) -> None:
    table = rows(12, 60)
    table = table.filter(pa.compute.not_equal(table[TARGET], "alone"))
    folds = np.arange(len(table)) % 5
    model = fb.GaussianBayes(covariance=covariance)
    proba = fb.k_fold(model, table, TARGET, folds=folds).proba
    for fold in range(5):
        held = folds == fold
        fitted = fb.GaussianBayes(covariance=covariance).fit(table.filter(~held), TARGET)
        close(proba[held], fitted.predict_proba(table.filter(held).drop_columns(TARGET)), 1e-9)
