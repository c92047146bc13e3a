"""Leave-one-out by subtraction equals fitting without the row (SEMANTICS §9)."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from comparing import close
from refitting import TARGET, WEIGHT, counted, random_rows, refitted

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


def seeds() -> range:
    """Return more of them where a model is quickly made."""
    return range(1 if os.environ["FASTBAYES_KERNELS"] == "always" else 4)


WEIGHTS = [None, (1.0, 2.5), (0.3, 1.0, 2.5)]
MODELS = [
    fb.NaiveBayes(),
    fb.NaiveBayes(alpha=0),
    fb.NaiveBayes(alpha="loo", class_prior="empirical"),
    fb.SPODE(alpha=0),
    fb.SPODE(super_parent="x1", class_prior="uniform"),
    fb.TAN(alpha=0.5),
    fb.TAN(alpha=0),
    fb.TAN(prune="aic", class_prior="empirical"),
    fb.AODE(),
    fb.AODE(alpha=0, min_count=3),
    fb.AODE(min_count=0),
    fb.AODE(min_count=0.3),
    fb.AODE(min_count=2.5),
    fb.AODE(smoothing="m_estimate", min_count=3, class_prior=[0.25, 0.25, 0.5]),
    fb.AODE(smoothing="m_estimate", m=0.5, class_prior="empirical"),
    fb.AODE(min_count=100, alpha=2),
]


JOINT = [
    fb.JointBayes(),
    fb.JointBayes(tau=0, alpha=0),
    fb.JointBayes(tau=2.5, alpha=0.5, class_prior="empirical"),
    fb.JointBayes(tau=0, class_prior="uniform"),
    fb.JointBayes(tau="loo"),
]


def left_out(model: Any, table: pa.Table, **options: Any) -> Any:
    weight = WEIGHT if WEIGHT in table.column_names else None
    stats = counted(table, **needed(model), **options)
    return fb.leave_one_out(model, stats, table, sample_weight=weight)


def needed(model: Any) -> dict[str, bool]:
    """Return what to count for a model."""
    if isinstance(model, fb.JointBayes):
        return {"cells": True}
    return {"pairs": not isinstance(model, fb.NaiveBayes)}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("model", [*MODELS, *JOINT], ids=repr)
def test_refit__categorical_columns(model: Any, weights: Any) -> None:
    for seed in seeds():
        table = random_rows(seed, weights=weights)
        expected = refitted(model, table, **needed(model))
        close(left_out(model, table).proba, expected)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("variance", ["per_class", "shared", "single"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_refit__gaussian_columns(variance: str, ddof: int, weights: Any) -> None:
    model = fb.NaiveBayes(variance=variance, ddof=ddof)
    for seed in seeds():
        table = random_rows(seed, weights=weights, numeric=2)
        close(left_out(model, table).proba, refitted(model, table), 1e-9)
        # Without a class of one row, each row changes the density of its own class alone.
        large = table.filter(pc.not_equal(table[TARGET], "alone"))
        close(left_out(model, large).proba, refitted(model, large), 1e-9)


def zero_inflated(n: int = 40) -> pa.Table:
    """Return numbers that are nearly all alike: without some row its class is constant."""
    rng = np.random.default_rng(5)
    spikes = np.zeros((3, n))
    spikes[0, 0] = 1e3
    spikes[1, :2] = 7, 1e4
    spikes[2] = rng.normal(size=n) * 1e-3
    spikes[2, [3, 4]] = 1e7, -3e6
    columns = {f"z{j}": pa.array(x, mask=rng.random(n) < 0.1) for j, x in enumerate(spikes)}
    return pa.table(columns | {TARGET: np.array(["a", "b"])[np.arange(n) % 2]})


@pytest.mark.parametrize("floor", [1e-9, 1e-3, "within"])
@pytest.mark.parametrize("weights", [None, (0.3, 1.0, 2.5)])
@pytest.mark.parametrize("variance", ["per_class", "shared"])
def test_refit__a_row_that_is_nearly_all_the_scatter(
    variance: str, floor: float | str, weights: Any
) -> None:
    model, table = fb.NaiveBayes(variance=variance, var_floor=floor), zero_inflated()
    if weights is not None:
        weight = np.random.default_rng(6).choice(weights, table.num_rows)
        table = table.append_column(WEIGHT, pa.array(weight))
    stats = counted(table)
    result = left_out(model, table)
    close(result.proba, refitted(model, table), 1e-9)
    assert not np.isnan(result.proba).any()
    # Rows in doubt are in the figures too.
    assert math.isclose(float(result.confusion.sum()), stats.n_rows)


def test_refit__a_class_of_two_rows() -> None:
    for seed in range(20):  # the scatter of one row is 0, whatever rounding leaves of it
        z = np.random.default_rng(seed).normal(size=3)
        few = pa.table({"z": z, TARGET: ["a", "a", "b"]})
        close(left_out(fb.NaiveBayes(), few).proba, refitted(fb.NaiveBayes(), few), 1e-9)
    table = pa.table({"z": [1.5, 2.25, 4.0, 0.1, 0.2], "k": ["p", "q", "p", "p", "q"]})
    for classes in ("aabbb", "aabcd", "aabbc"):
        some = table.append_column(TARGET, pa.array(list(classes)))
        close(left_out(fb.NaiveBayes(), some).proba, refitted(fb.NaiveBayes(), some), 1e-9)
        heavy = some.append_column(WEIGHT, pa.array([1 + 1e-8, 1, 1, 0.5, 2]))
        close(left_out(fb.NaiveBayes(), heavy).proba, refitted(fb.NaiveBayes(), heavy), 1e-9)


def test_refit__numbers_far_from_zero() -> None:
    rng = np.random.default_rng(7)
    y = rng.choice(["a", "b"], 60)
    table = pa.table({"epoch": 1.7e9 + rng.normal(size=60) + (y == "a"), TARGET: y})
    close(left_out(fb.NaiveBayes(), table).proba, refitted(fb.NaiveBayes(), table), 1e-9)


EVERY = [fb.NaiveBayes(), fb.SPODE(), fb.TAN(), fb.AODE(min_count=2), fb.AODE(subsumption=5)]
every_model = pytest.mark.parametrize("model", EVERY, ids=repr)


@every_model
@pytest.mark.parametrize("weights", WEIGHTS)
def test_missing_as_category__is_a_value_like_any_other(model: Any, weights: Any) -> None:
    table = random_rows(8, weights=weights)
    cells = table["x2"].to_pylist()
    cells = [v or "s" for v in cells]
    cells[5] = None  # the only one: without its row, missing still is a value
    table = table.set_column(table.column_names.index("x2"), "x2", pa.array(cells))
    named = table
    for i, name in enumerate(table.column_names):
        if name.startswith("x"):
            named = named.set_column(i, name, pa.array([v or "~" for v in table[name].to_pylist()]))
    params = {**model.get_params(deep=False), "missing": "category"}
    if isinstance(model, fb.AODE) and model.subsumption:
        params["subsumption"] = False
    result = left_out(type(model)(**params), table, missing="category")
    close(result.proba, left_out(type(model)(**{**params, "missing": "marginalize"}), named).proba)


@every_model
def test_weight__is_so_many_rows(model: Any) -> None:
    table = random_rows(9, n=60, weights=(1, 2, 3))
    times = table[WEIGHT].to_numpy()
    repeated = table.drop_columns([WEIGHT]).take(np.repeat(np.arange(len(times)), times))
    weighted, plain = left_out(model, table), left_out(model, repeated)
    close(np.repeat(weighted.proba, times, axis=0), plain.proba)
    for name in ("n", "accuracy", "log_loss", "brier", "auc", "confusion"):
        close(getattr(weighted, name), getattr(plain, name))


@pytest.mark.parametrize("discretize", ["mdl", ("quantile", 3)])
def test_refit__numeric_columns_in_bins(discretize: Any) -> None:
    table = random_rows(10, n=40, numeric=2)
    for model in (fb.TAN(), fb.AODE()):
        expected = refitted(model, table, pairs=True, discretize=discretize)
        close(left_out(model, table, discretize=discretize).proba, expected)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("changes", [{"subsumption": 3}, {"weights": "mutual_information"}])
def test_refit__aode_with_what_it_learned_of_all_rows(changes: Any, weights: Any) -> None:
    table, model = random_rows(11, n=30, weights=weights), fb.AODE(**changes)
    result = left_out(model, table)
    close(result.proba, refitted(model, table, pairs=True))
    assert np.abs(result.proba - left_out(fb.AODE(), table).proba).max() > 1e-3
    assert f"{next(iter(changes))} fixed" in str(result)


def fitted(model: Any, table: pa.Table) -> Any:
    return type(model)(**model.get_params(deep=False)).fit_statistics(counted(table, pairs=True))


@every_model
def test_rows_that_take_no_part__are_nan(model: Any) -> None:
    table = random_rows(12, n=40, weights=(0, 1, 2))
    classes = [None if r % 7 == 0 else c for r, c in enumerate(table[TARGET].to_pylist())]
    table = table.set_column(table.column_names.index(TARGET), TARGET, pa.array(classes))
    part = (table[WEIGHT].to_numpy() > 0) & (np.arange(40) % 7 != 0)
    assert not part.all()
    result, rest = left_out(model, table), left_out(model, table.filter(pa.array(part)))
    assert np.isnan(result.proba[~part]).all()
    close(result.proba[part], rest.proba)
    assert result.to_dict() == rest.to_dict()


@every_model
def test_figures__are_those_of_the_probabilities(model: Any) -> None:
    from scoring import evaluate_probabilities

    table = random_rows(13, n=50)
    result = left_out(model, table)
    labels = result.classes.tolist()
    y = np.array([labels.index(c) for c in table[TARGET].to_pylist()])
    loss = 5 * (1 - np.eye(3))
    expected = evaluate_probabilities(result.proba, y, labels)
    told = {k: v for k, v in result.to_dict().items() if k in expected.to_dict()}
    assert told == expected.to_dict()
    stats = counted(table, pairs=True)
    costly = fb.leave_one_out(model, stats, table, loss=loss)
    assert math.isclose(costly.expected_loss, 5 * result.expected_loss)


def test_words__say_what_is_fixed() -> None:
    table = random_rows(14)
    said = {
        "schema fixed": [fb.NaiveBayes(), fb.AODE(), fb.SPODE(super_parent="x0")],
        "schema and structure fixed": [fb.TAN(), fb.SPODE(), fb.SPODE(super_parent="cmi")],
        "schema and alpha fixed": [fb.NaiveBayes(alpha="loo")],
        "schema and weights fixed": [fb.AODE(weights="mutual_information")],
    }
    for words, models in said.items():
        for model in models:
            result = left_out(model, table)
            assert str(result).startswith(f"leave-one-out, {words}\nrows")
            assert result.to_dict()["fixed"] == list(result.fixed)


@every_model
def test_threads_and_chunks__change_nothing(model: Any, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    table = pa.concat_tables([random_rows(seed, n=70_000) for seed in range(2)])
    table = table.append_column("z", pa.array(np.random.default_rng(0).normal(size=len(table))))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=30_000)
    pairs = not isinstance(model, fb.NaiveBayes)
    stats = counted(table, pairs=pairs)
    one = fb.leave_one_out(model, stats, table, threads=1)
    two = fb.leave_one_out(model, stats, table, threads=2)
    assert np.array_equal(one.proba, two.proba)
    assert one.to_dict() == two.to_dict()
    files = fb.leave_one_out(model, stats, str(tmp_path / "rows.parquet"), proba=False)
    assert files.proba is None
    close(files.log_loss, one.log_loss)
    assert files.n == one.n == len(table)


@every_model
def test_model__is_left_as_it_is(model: Any) -> None:
    table = random_rows(15)
    done = fitted(model, table) if not isinstance(model, fb.NaiveBayes) else model
    before = dict(vars(done))
    close(left_out(done, table).proba, left_out(model, table).proba)
    assert vars(done) == before or all(vars(done)[k] is before[k] for k in before)


def test_labels_and_weights__may_stand_beside_the_rows() -> None:
    table = random_rows(16, weights=(0.3, 2.5))
    expected = left_out(fb.AODE(), table)
    X, y, w = table.drop_columns([TARGET, WEIGHT]), table[TARGET], table[WEIGHT].to_numpy()
    stats = fb.count(X, y, sample_weight=w, pairs=True)
    close(fb.leave_one_out(fb.AODE(), stats, X, y, sample_weight=w).proba, expected.proba)


def test_progress__counts_every_row() -> None:
    table, seen = random_rows(17, n=30), []
    fb.leave_one_out(fb.AODE(), counted(table, pairs=True), table, progress=seen.append)
    assert sum(seen) == 30


def test_a_part_of_the_rows__is_scored_by_all() -> None:
    table = random_rows(18, n=40)
    stats = counted(table, pairs=True)
    whole, part = (fb.leave_one_out(fb.AODE(), stats, t) for t in (table, table.slice(10, 15)))
    assert np.array_equal(part.proba, whole.proba[10:25])


def test_errors__name_what_is_wrong() -> None:
    table = random_rows(19)
    stats = counted(table, pairs=True)
    twice = pa.concat_tables([table, table])
    with pytest.raises(fb.DataError, match="class 'alone' has 2 rows, but 1 were counted"):
        fb.leave_one_out(fb.AODE(), stats, twice)
    other = table.set_column(0, "x0", pa.array(["new"] * len(table)))
    with pytest.raises(fb.DataError, match="column 'x0' holds values that were not counted"):
        fb.leave_one_out(fb.AODE(), stats, other)
    with pytest.raises(fb.SchemaError, match="hold no pairs; count again with pairs=True"):
        fb.leave_one_out(fb.AODE(), counted(table), table)
    with pytest.raises(fb.SchemaError, match="name the column of the weights"):
        weighted = random_rows(19, weights=(1.0, 2.0))
        fb.leave_one_out(fb.AODE(), counted(weighted, pairs=True), weighted)
    with pytest.raises(fb.SchemaError, match="use scikit-learn's cross_val_predict for GaussianNB"):
        fb.leave_one_out(fb.GaussianNB(), counted(random_rows(0, numeric=1)), table)
    with pytest.raises(fb.SchemaError, match="not Table"):
        fb.leave_one_out(fb.AODE(), table, table)
    with pytest.raises(fb.DataError, match="no rows"):
        fb.leave_one_out(fb.AODE(), stats, table.slice(0, 0))


def mixed_rows(seed: int, weights: Any = None, n: int = 28) -> pa.Table:
    table = random_rows(seed, n, weights=weights, numeric=2)
    return table.filter(pc.not_equal(table[TARGET], "alone"))


CELLS = {"cells": True, "cell_scatter": True, "scatter": True}


@pytest.mark.parametrize("weights", [None, (0.3, 1.0, 2.5)])
@pytest.mark.parametrize(
    "model",
    [
        fb.JointGaussian(),
        fb.JointGaussian(tau=0.5, backoff=2, class_prior="uniform"),
        fb.JointGaussian(cells="naive", backoff=0.1, alpha=0.5),
        fb.JointGaussian(tau=0, alpha=0, backoff=math.inf),
        fb.JointGaussian(density="normal"),
        fb.JointGaussian(tau=0.5, backoff=2, class_prior="uniform", density="normal"),
        fb.JointGaussian(cells="naive", backoff=0.1, alpha=0.5, density="normal"),
        fb.JointGaussian(tau=0, alpha=0, backoff=math.inf, density="normal"),
    ],
    ids=repr,
)
def test_refit__gaussians_in_cells(model: Any, weights: Any) -> None:
    for seed in range(len(seeds()) // 2 + 1):
        table = mixed_rows(seed, weights)
        weight = WEIGHT if WEIGHT in table.column_names else None
        result = fb.leave_one_out(model, counted(table, **CELLS), table, sample_weight=weight)
        close(result.proba, refitted(model, table, **CELLS), 1e-9)


@pytest.mark.parametrize("columns", [["z0", "z1"], ["x0", "x1"]])
def test_refit__gaussians_in_cells__of_one_kind_of_column(columns: list[str]) -> None:
    table = mixed_rows(1).select([*columns, TARGET])
    for model in (fb.JointGaussian(), fb.JointGaussian(tau=0, density="normal")):
        result = fb.leave_one_out(model, counted(table, **CELLS), table)
        close(result.proba, refitted(model, table, **CELLS), 1e-9)


def test_gaussians_in_cells__are_refused_where_a_class_lives_by_one_row() -> None:
    few = pa.table({"z": [1.0, 2.0, 3.0, 5.0, 7.0], TARGET: ["a", "a", "b", "b", "b"]})
    with pytest.raises(fb.SchemaError, match=r"backoff=0 a cell may have no density.*k_fold"):
        fb.leave_one_out(fb.JointGaussian(backoff=0, tau=0), counted(few, **CELLS), few)
    normal = fb.JointGaussian(density="normal")
    with pytest.raises(fb.SchemaError, match="without some row class 'a' has none"):
        fb.leave_one_out(normal, counted(few, **CELLS), few)
    alone = pa.table({"z": [1.0, 2.0, 3.0, 5.0, 7.0], TARGET: ["a", "b", "b", "b", "b"]})
    with (
        pytest.warns(fb.FastBayesWarning, match="the covariance of class 'a' is singular"),
        pytest.raises(fb.SchemaError, match=r"classes \['a'\] have no density of their own"),
    ):
        fb.leave_one_out(normal, counted(alone, **CELLS), alone)
    # Student's t has a density of one row, and of none.
    for table in (few, alone):
        result = fb.leave_one_out(fb.JointGaussian(), counted(table, **CELLS), table)
        assert result.fixed == ("schema", "tau", "prior")
        close(result.proba, refitted(fb.JointGaussian(), table, **CELLS), 1e-9)


def test_gaussians_in_cells__few_rows_at_a_time_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = mixed_rows(2, n=700)
    stats = counted(table, **CELLS)
    whole = fb.leave_one_out(fb.JointGaussian(), stats, table).proba
    monkeypatch.setattr("fastbayes.models.leave_one_out.loo_joint.CHUNK", 1)
    close(fb.leave_one_out(fb.JointGaussian(), stats, table).proba, whole)
