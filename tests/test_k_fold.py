"""k-fold by subtraction equals fitting without the fold (SEMANTICS §9)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparing import close
from numpy.typing import NDArray
from refitting import TARGET, WEIGHT, counted, random_rows
from scoring import evaluate_probabilities

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.data.encode import filtered
from fastbayes.data.folds import WithoutFold
from fastbayes.scan.discretization import cuts_by_rules, numeric_cuts
from fastbayes.scan.opening import opened_to_learn

WEIGHTS = [None, (0.3, 1.0, 2.5)]
MODELS = [
    fb.NaiveBayes(),
    fb.NaiveBayes(alpha="loo", missing="category"),
    fb.NaiveBayes(alpha=0, class_prior="empirical"),
    fb.SPODE(),
    fb.SPODE(super_parent="cmi", alpha=0),
    fb.TAN(alpha=0.5),
    fb.TAN(prune="aic", missing="category"),
    fb.AODE(min_count=3),
    fb.AODE(smoothing="m_estimate", weights="mutual_information", subsumption=5),
    fb.KDB(2),
    fb.JointBayes(tau=0.5, missing="category"),
    fb.JointGaussian(tau=1),
]
# A class of one row has no covariance.
pytestmark = [
    pytest.mark.usefixtures("kernels"),
    pytest.mark.filterwarnings("ignore:the covariance of class"),
]
every_model = pytest.mark.parametrize("model", MODELS, ids=repr)


def weight_of(table: pa.Table) -> str | None:
    return WEIGHT if WEIGHT in table.column_names else None


def without_folds(
    model: Any, table: pa.Table, fold: NDArray[Any], domains: Any
) -> NDArray[np.float64]:
    """Return the posterior of each row by a model fitted to the rows of other folds."""
    params = {**model.get_params(deep=False), "domains": domains}
    features = [n for n in table.column_names if n not in (TARGET, WEIGHT)]
    found = np.full((table.num_rows, len(domains[TARGET])), np.nan)
    for f in np.unique(fold):
        rest, here = table.filter(pa.array(fold != f)), np.flatnonzero(fold == f)
        fitted = type(model)(**params).fit(rest, TARGET, sample_weight=weight_of(table))
        found[here] = fitted.predict_proba(table.select(features).take(here))
    return found


def domains_of(table: pa.Table, missing: str = "marginalize") -> Any:
    schema = counted(table, missing=missing).schema
    return {f.name: f.values for f in schema.categorical} | {TARGET: schema.classes}


def tolerance(model: Any) -> float:
    # The best alpha is found where its score is flat: to half the digits.
    return 1e-6 if model.alpha == "loo" else 1e-12


def k_fold(model: Any, table: pa.Table, **options: Any) -> Any:
    return fb.k_fold(model, table, TARGET, sample_weight=weight_of(table), **options)


@every_model
@pytest.mark.parametrize("weights", WEIGHTS)
def test_refit__categorical_columns(model: Any, weights: Any) -> None:
    table = random_rows(1, n=40, weights=weights)
    fold = np.random.default_rng(2).integers(0, 4, 40)
    expected = without_folds(model, table, fold, domains_of(table, model.missing))
    close(k_fold(model, table, folds=fold).proba, expected, tolerance(model))


@every_model
@pytest.mark.parametrize("weights", WEIGHTS)
def test_refit__numeric_columns(model: Any, weights: Any) -> None:
    table = random_rows(3, n=60, weights=weights, numeric=2)
    fold = np.random.default_rng(4).integers(0, 3, 60)
    expected = without_folds(model, table, fold, domains_of(table, model.missing))
    close(k_fold(model, table, folds=fold).proba, expected, tolerance(model))


def test_cuts__are_learned_without_the_fold() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=300)
    y = np.where(rng.random(300) < 0.1, "a", np.where(x > 0.3, "b", "a"))
    table = pa.table({"x": x, "flag": rng.choice(["s", "t"], 300), TARGET: y})
    fold = (x > 0.1).astype(int)  # without a fold the cut is elsewhere, or nowhere
    for discretize in ("mdl", ("quantile", 5), {"x": "width"}):
        model = fb.TAN(discretize=discretize)
        expected = without_folds(model, table, fold, domains_of(table.drop_columns(["x"])))
        close(k_fold(model, table, folds=fold).proba, expected)
    given = fb.TAN(discretize={"x": [0.3]})
    expected = without_folds(given, table, fold, domains_of(table.drop_columns(["x"])))
    close(k_fold(given, table, folds=fold).proba, expected)
    stats = counted(table, pairs=True, discretize={"x": [0.3]})
    whole = fb.leave_one_out(given, stats, table)
    learned = k_fold(fb.TAN(), table, folds=fold)
    assert learned.log_loss > whole.log_loss + 0.1


@pytest.mark.parametrize("weight", [None, "w"])
def test_cuts__of_one_scan_are_those_of_a_scan_without_each_fold(weight: str | None) -> None:
    rng = np.random.default_rng(13)
    n = 150_000
    x = rng.normal(size=n)
    columns = {"x": x, "z": np.round(rng.exponential(size=n), 2), "e": 1.7e9 + x}
    table = pa.table(
        columns
        | {"y": np.where(x + rng.normal(size=n) > 0, "p", "q"), "w": rng.choice([0, 0.3, 2.5], n)}
    )
    if weight is None:
        table = table.drop_columns(["w"])
    discretize = {"z": ("quantile", 7), "e": "width"}
    opened = opened_to_learn(table, "y", folds=3, sample_weight=weight)
    assert opened.folds is not None
    # A column of which one rule asks for the extremes alone is cut otherwise by another rule.
    rules = [discretize, ("quantile", 3), {"z": [1.0], "x": "width"}]
    given = opened.source, opened.learning(), rules
    for folds in (opened.folds, None):
        for rule, by_fold in zip(rules, cuts_by_rules(*given, folds), strict=True):
            assert len(by_fold) == (1 if folds is None else 3)
            for fold, cuts in enumerate(by_fold):
                rest = opened.source if folds is None else WithoutFold(opened.source, folds, fold)
                expected = numeric_cuts(rest, opened.learning(), rule)
                assert list(cuts) == list(expected)
                for name, points in cuts.items():
                    assert np.array_equal(points, expected[name])
    (learned,) = cuts_by_rules(opened.source, opened.learning(), [discretize], opened.folds)
    assert not np.array_equal(learned[0]["z"], learned[1]["z"]) or not np.array_equal(
        learned[0]["x"], learned[1]["x"]
    )


def test_rows_without_a_fold__those_of_a_table_of_one_block_are_picked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, picked = pa.table({"x": range(12), "y": [*"ab"] * 6}), list[int]()

    def noted(rows: Any, keep: NDArray[np.bool_]) -> Any:
        picked.append(rows.num_rows)
        return filtered(rows, keep)

    monkeypatch.setattr("fastbayes.data.folds.filtered", noted)
    pq.write_table(table, tmp_path / "rows.parquet")
    for data, reads in ((table, [12]), (tmp_path / "rows.parquet", [12, 12])):
        opened = opened_to_learn(data, "y", folds=3)
        assert opened.folds is not None
        rest, found = WithoutFold(opened.source, opened.folds, 0), list[pa.Table]()
        picked.clear()
        for _ in range(2):
            blocks = (b for segment in rest.segments(BLOCK_ROWS) for b in segment.batches())
            found.append(pa.concat_tables(pa.Table.from_batches([block]) for block in blocks))
        assert found[0].num_rows == 8
        assert found[0] == found[1]
        assert picked == reads


@pytest.mark.parametrize(
    "model", [fb.NaiveBayes(), fb.SPODE(super_parent="x1"), fb.AODE(min_count=2)], ids=repr
)
@pytest.mark.parametrize("numeric", [0, 1])
def test_a_fold_for_each_row__is_leave_one_out(model: Any, numeric: int) -> None:
    table = random_rows(6, numeric=numeric)
    options: dict[str, Any] = {}
    if numeric and not isinstance(model, fb.NaiveBayes):
        options["discretize"] = {"z0": [0.0, 1.0]}
        model = type(model)(**{**model.get_params(deep=False), **options})
    pairs = not isinstance(model, fb.NaiveBayes)
    stats = counted(table, pairs=pairs, **options)
    alone = fb.leave_one_out(model, stats, table)
    result = k_fold(model, table, folds=np.arange(table.num_rows))
    close(result.proba, alone.proba, 1e-9)
    close(result.log_loss, alone.log_loss, 1e-9)
    assert len(result.folds) == table.num_rows


@every_model
def test_figures__are_those_of_the_probabilities(model: Any) -> None:
    table = random_rows(7, n=70, weights=(0, 1, 2.5), numeric=1)
    result = k_fold(model, table, folds=4)
    labels = result.classes.tolist()
    y = np.array([labels.index(c) for c in table[TARGET].to_pylist()])
    w = table[WEIGHT].to_numpy()
    assert np.isnan(result.proba[w == 0]).all()
    p = np.where(w[:, None] > 0, result.proba, 1 / 3)
    expected = evaluate_probabilities(p, y, labels, weight=w)
    for name in ("n", "accuracy", "log_loss", "brier", "auc", "confusion"):
        close(getattr(result, name), getattr(expected, name))
    assert list(result.folds) == ["0", "1", "2", "3"]
    n = [fold.n for fold in result.folds.values()]
    losses = [fold.log_loss for fold in result.folds.values()]
    assert math.isclose(np.average(losses, weights=n), result.log_loss)
    assert str(result).startswith("k-fold, schema fixed\nrows")
    told = result.to_dict()
    assert "proba" not in told
    assert told["folds"]["2"]["accuracy"] == result.folds["2"].accuracy


def test_folds__of_many_rows_are_those_of_count() -> None:
    table = random_rows(8, n=1_003)
    result = k_fold(fb.NaiveBayes(), table)
    stats = counted(table, folds=10)
    assert [f.n for f in result.folds.values()] == [f.n_rows for f in stats.folds]


def test_folds__move_with_the_seed() -> None:
    table = random_rows(8, n=103)
    result = k_fold(fb.AODE(), table)
    assert sorted(f.n for f in result.folds.values()) == [10] * 7 + [11] * 3
    again, other = k_fold(fb.AODE(), table, seed=0), k_fold(fb.AODE(), table, seed=1)
    assert np.array_equal(result.proba, again.proba)
    assert not np.allclose(result.proba, other.proba)
    named = table.append_column("part", pa.array(np.arange(103) % 3))
    assert np.array_equal(
        k_fold(fb.AODE(), named, folds="part").proba,
        k_fold(fb.AODE(), table, folds=np.arange(103) % 3).proba,
    )
    some = k_fold(fb.AODE(), named, folds="part", columns=["x0", "x1"])
    close(
        some.proba, k_fold(fb.AODE(), table.select(["x0", "x1", TARGET]), folds=named["part"]).proba
    )


@pytest.mark.parametrize("model", [fb.NaiveBayes(), fb.TAN()], ids=repr)
def test_threads__change_nothing(model: Any, tmp_path: Path) -> None:
    table = pa.concat_tables([random_rows(seed, n=70_000, numeric=1) for seed in range(2)])
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=131_072)
    one = k_fold(model, table, folds=3, threads=1)
    two = k_fold(model, table, folds=3, threads=2)
    assert np.array_equal(one.proba, two.proba)
    assert one.to_dict() == two.to_dict()
    path = str(tmp_path / "rows.parquet")
    files = fb.k_fold(model, path, TARGET, folds=3, proba=False)
    assert files.proba is None
    close(files.log_loss, one.log_loss)


def test_structure__is_learned_anew() -> None:
    rng = np.random.default_rng(9)
    n = 400
    a, b, c = rng.integers(0, 2, (3, n))
    fold = np.arange(n) % 2
    # In one half of the rows a copies b, in the other c.
    a = np.where(fold == 0, b, c)
    table = pa.table({k: v.astype(str) for k, v in {"a": a, "b": b, "c": c}.items()})
    table = table.append_column(TARGET, pa.array(rng.choice(["p", "q"], n)))
    expected = without_folds(fb.TAN(), table, fold, domains_of(table))
    result = k_fold(fb.TAN(), table, folds=fold)
    close(result.proba, expected)
    assert result.fixed == ("schema",)


def test_cut_points__by_a_rule_in_a_list_are_learned_anew() -> None:
    """A file of a model makes a list of a tuple: it is the rule still, and no cut points."""
    table, fold = random_rows(10, n=60, numeric=1), np.arange(60) % 3
    found = [
        k_fold(fb.AODE(discretize={"z0": rule}), table, folds=fold).proba
        for rule in (("quantile", 4), ["quantile", 4])
    ]
    assert np.array_equal(*found)


def test_model__is_left_as_it_is() -> None:
    table, model = random_rows(10, n=40), fb.TAN()
    fitted = fb.TAN().fit_statistics(counted(table, pairs=True))
    before = dict(vars(fitted))
    close(k_fold(fitted, table).proba, k_fold(model, table).proba)
    assert all(vars(fitted)[k] is before[k] for k in before)
    assert not hasattr(model, "classes_")


def test_a_small_fold__may_be_empty() -> None:
    table = random_rows(11, n=7)
    result = k_fold(fb.NaiveBayes(), table, folds=20)
    assert len(result.folds) == 7
    assert result.n == 7


def test_errors__name_the_remedy() -> None:
    table = random_rows(12, n=20)
    numbers = random_rows(12, n=20, numeric=2).select(["z0", "z1", TARGET])
    for model in (fb.AODE(), fb.KDB(2), fb.NaiveBayes(), fb.GaussianBayes(), fb.JointGaussian()):
        some = numbers if isinstance(model, fb.GaussianBayes) else table
        with pytest.raises(fb.DataError, match="fold 'x' holds all rows"):
            k_fold(model, some, folds=["x"] * 20)
        with pytest.raises(fb.DataError, match="nothing to learn from, there are no rows"):
            k_fold(model, some.slice(0, 0), folds=pa.array([], pa.string()))
    with pytest.raises(fb.SchemaError, match="not GaussianNB"):
        k_fold(fb.GaussianNB(), table)
    with pytest.raises(ValueError, match="use a whole number >= 2"):
        k_fold(fb.AODE(), table, folds=1)
    with pytest.raises(fb.SchemaError, match="can be read only once"):
        fb.k_fold(
            fb.AODE(), pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), "y"
        )
    with pytest.raises(ValueError, match="alpha=-1"):
        k_fold(fb.AODE(alpha=-1), table)
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.k_fold(fb.AODE(), table, "z")
