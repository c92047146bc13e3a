"""The leaderboard: figures of leave-one-out and k-fold, all models in one scan."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refitting import TARGET, WEIGHT, counted, random_rows

import fastbayes as fb
from fastbayes.data.memory import TableSource
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.protocol import fresh
from fastbayes.models.registry import candidates
from fastbayes.scan import budget

# There only where columns are numeric.
NUMERIC = {name for name, (_, how) in candidates().items() if "numeric" in how.when}
GAPS = {name for name, (_, how) in candidates().items() if how.when == "gaps"}
NAMES = [*candidates(), "prior"]
SHARED: dict[str, Any] = {  # fitted from the counts of one scan
    "naive-bayes": partial(fb.NaiveBayes, numeric="student"),
    "naive-bayes-bins": fb.NaiveBayes,
    "spode": fb.SPODE,
    "tan": fb.TAN,
    "aode": fb.AODE,
}
MODELS: dict[str, Any] = {**SHARED, "kdb": fb.KDB, "a2de": fb.A2DE}
MODELS |= {"joint-bayes": fb.JointBayes, "joint-gaussian": fb.JointGaussian}
WEIGHTS = [None, (0.3, 1.0, 2.5)]
FIGURES = ("n", "accuracy", "log_loss", "brier", "auc", "confusion")


def rows(seed: int = 0, n: int = 300, weights: Any = None) -> pa.Table:
    """Return rows of every kind of column, of which some numbers tell the class."""
    rng = np.random.default_rng(seed)
    table = random_rows(seed, n, weights=weights, numeric=1)
    y = np.array(table[TARGET].to_pylist()) == "yes"
    for name, x in (("z1", rng.normal(size=n) + 2 * y), ("flag", rng.random(n) < 0.2 + 0.5 * y)):
        table = table.append_column(name, pa.array(x))
    return table


def weight_of(table: pa.Table) -> str | None:
    return WEIGHT if WEIGHT in table.column_names else None


def compare(table: pa.Table, **options: Any) -> Any:
    return fb.compare(table, TARGET, sample_weight=weight_of(table), **options)


def as_judged(entry: Any) -> Any:
    """Return the model of an entry without the temperature that a winner has."""
    return getattr(entry.model, "model_", entry.model)


def same_figures(got: Any, expected: Any) -> None:
    for name in FIGURES:
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_leave_one_out__is_that_of_each_model(missing: str, weights: Any) -> None:
    table = rows(weights=weights)
    result = compare(table, missing=missing, validation="leave_one_out")
    plain = counted(table, missing=missing)
    bins = counted(table, missing=missing, pairs=True)
    gone = GAPS if missing == "category" else set()
    assert {entry.name for entry in result.entries} == set(NAMES) - gone
    for name in ("a2de", "weighted-naive-bayes", "logistic"):
        assert "takes counts apart: it knows NaiveBayes, SPODE" in result[name].reason
    families = fb.KDB(missing=missing).families(bins)
    # A class of one row has a density, and none once it is left out.
    numbers = counted(table, missing=missing, cells=True, cell_scatter=True, scatter=True)
    gaussian = fb.JointGaussian(missing=missing)
    alone = fb.leave_one_out(gaussian, numbers, table, sample_weight=weight_of(table))
    same_figures(result["joint-gaussian"].figures, alone)
    for name, make in {**SHARED, "kdb": fb.KDB, "joint-bayes": fb.JointBayes}.items():
        stats = plain if name == "naive-bayes" else bins
        if name == "kdb":
            stats = counted(table, missing=missing, families=families)
        if name == "joint-bayes":
            stats = counted(table, missing=missing, families=[], cells=True)
        model = make(missing=missing)
        alone = fb.leave_one_out(model, stats, table, sample_weight=weight_of(table))
        same_figures(result[name].figures, alone)
        assert result[name].figures.fixed == alone.fixed
        cut = name not in ("naive-bayes", "prior")
        assert ("cut points" in result[name].scored) == cut
        fitted = make(missing=missing).fit_statistics(stats)
        entry = result[name]
        assert entry.parameters == fitted.n_parameters_
        assert entry.memory == sum(stats.parts[p].nbytes for p in fitted._statistics)
        X = table.select(stats.schema.names)
        np.testing.assert_allclose(as_judged(entry).log_joint(X), fitted.log_joint(X), rtol=1e-12)
    assert result.rows == pytest.approx(plain.n_rows)
    assert result.classes.tolist() == ["alone", "no", "yes"]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("folds", [None, 4])
def test_gaussian_bayes__takes_part_where_all_columns_are_numbers(folds: Any, weights: Any) -> None:
    table = rows(4, weights=weights)
    table = table.filter(pa.array(np.array(table[TARGET].to_pylist()) != "alone"))
    names = [name for name in (TARGET, WEIGHT) if name in table.column_names]
    told: dict[str, Any] = {"validation": "k_fold", "folds": folds}
    if folds is None:
        told = {"validation": "leave_one_out"}
    mixed = compare(table, models=["gaussian-bayes", "naive-bayes"], **told)
    assert "column 'x0' is categorical" in mixed["gaussian-bayes"].reason
    table = table.select(["z0", "z1", *names])
    result = compare(table, **told)
    for name, covariance in (("gaussian-bayes", "full"), ("gaussian-bayes-tied", "tied")):
        model = fb.GaussianBayes(covariance=covariance, prior="niw")
        weight = {"sample_weight": weight_of(table)}
        if folds is None:
            stats = counted(table, scatter=True)
            alone = fb.leave_one_out(model, stats, table, **weight)
            held = stats.values, stats.scatter
            assert result[name].memory == sum(part.nbytes for part in held)
        else:
            alone = fb.k_fold(model, table, TARGET, folds=folds, **weight)
        same_figures(result[name].figures, alone)
    # One scan counts for both.
    seen: list[int] = []
    compare(table, models=["gaussian-bayes", "gaussian-bayes-tied"], progress=seen.append, **told)
    assert sum(seen) == 3 * len(table)  # and one scan scores the winner for its temperature


@pytest.mark.filterwarnings("ignore:the covariance of class 'alone' is singular")  # of k_fold
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("numeric", [True, False])
def test_k_fold__is_that_of_each_model(numeric: bool, weights: Any) -> None:
    table = rows(1, weights=weights)
    if not numeric:
        table = table.drop_columns(["z0", "z1"])
    options: dict[str, Any] = {"folds": 4, "seed": 3}
    result = compare(table, validation="k_fold", **options)
    assert result.validation == "k-fold"
    for name in [*MODELS][: None if numeric else -1]:
        if name == "naive-bayes-bins":
            continue
        alone = fb.k_fold(MODELS[name](), table, TARGET, sample_weight=weight_of(table), **options)
        same_figures(result[name].figures, alone)
        for fold, figures in alone.folds.items():
            same_figures(result[name].figures.folds[fold], figures)
    names = {entry.name for entry in result.entries}
    assert names == set(NAMES) - (set() if numeric else NUMERIC)


def test_k_fold__learns_bins_without_the_fold() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=300)
    y = np.where(rng.random(300) < 0.1, "a", np.where(x > 0.3, "b", "a"))
    table = pa.table({"x": x, TARGET: y})
    fold = (x > 0.1).astype(int)
    models = ["naive-bayes-bins", "tan", "aode"]
    options: dict[str, Any] = {"validation": "k_fold", "folds": fold, "models": models}
    learned = compare(table, **options)
    fixed = compare(table, **options, discretize={"x": [0.3]})
    for name in models:
        assert learned[name].figures.log_loss > fixed[name].figures.log_loss + 0.1
    assert "counting folds" in learned.seconds
    assert "counting folds" not in fixed.seconds


def test_scans__are_one_to_count_and_one_to_score(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    in_order = budget.in_order

    def counting(function: Any, items: Any, threads: int, **given: Any) -> Any:
        if not isinstance(function, partial):  # that cuts columns by what has been read
            scans.append(function)
        return in_order(function, items, threads, **given)

    monkeypatch.setattr(budget, "in_order", counting)
    table = rows()
    seen: list[int] = []
    plain = table.drop_columns(["z0", "z1"])
    compare(plain, models=list(SHARED), progress=seen.append)
    assert len(scans) == 2 + 1  # the last one for the temperature of the winner
    assert sum(seen) == 3 * len(table)
    scans.clear()
    # One scan more for cut points.
    compare(table, models=list(SHARED), validation="leave_one_out", progress=seen.append)
    assert len(scans) == 3 + 1
    assert sum(seen) == 7 * len(table)
    scans.clear()
    compare(plain, models=list(SHARED), validation="k_fold")
    assert len(scans) == 2 + 1
    scans.clear()
    # KDB counts the families of its structure, which the pairs of the first scan told.
    compare(plain, models=["tan", "kdb"], validation="leave_one_out")
    assert len(scans) == 3 + 1
    scans.clear()
    compare(plain, models=["tan", "a2de"], validation="k_fold", folds=4)
    assert len(scans) == 3 + 1  # A2DE counts triples, by folds, and these add
    scans.clear()
    compare(plain, models=["kdb"], validation="k_fold", folds=4)
    assert len(scans) == 1 + 1 + 4 + 1 + 1  # the families of each fold are others


def test_order__is_by_log_loss_then_parameters_then_name() -> None:
    table = rows()
    result = compare(table)
    losses = [entry.figures.log_loss for entry in result.entries if not entry.reason]
    assert losses == sorted(losses)
    assert [entry.winner for entry in result.entries] == [True] + [False] * (
        len(result.entries) - 1
    )
    assert result.best is result.entries[0]
    # With one column only, one-dependence models are naive Bayes.
    one = compare(table.select(["x1", TARGET]), models=list(SHARED))
    by_size = [(entry.parameters, entry.name) for entry in one.entries if entry.name != "aode"]
    assert len({round(entry.figures.log_loss, 12) for entry in one.entries[:3]}) == 1
    assert by_size == sorted(by_size)


def test_parameters__are_exact_or_unknown() -> None:
    """Those of all joint values are soon more than a column of the leaderboard can hold."""
    rng = np.random.default_rng(0)
    for columns, known in ((5, 2 * 4**5 - 1), (40, None)):
        table = {f"c{j}": rng.permutation([*"abcd"] * 10) for j in range(columns)}
        board = fb.compare({**table, "y": [*"pq"] * 20}, "y", models=["joint-bayes", "prior"])
        assert board["joint-bayes"].parameters == known
        rows = {row["model"]: row for row in board.table.to_pylist()}
        assert rows["joint-bayes"]["parameters"] == known
        assert "9,223" not in str(board)


def test_models__may_be_chosen_and_have_parameters() -> None:
    table = rows()
    models = ["aode", fb.AODE(min_count=30), fb.NaiveBayes(alpha="loo")]
    result = compare(table, models=models, validation="leave_one_out")
    assert {e.name for e in result.entries} == {
        "aode",
        "AODE(min_count=30)",
        "NaiveBayes(alpha='loo')",
    }
    stats = counted(table, pairs=True)
    alone = fb.leave_one_out(fb.AODE(min_count=30), stats, table)
    same_figures(result["AODE(min_count=30)"].figures, alone)
    named = compare(table, models={"flat": fb.NaiveBayes(alpha=100), "tree": "tan"})
    assert {e.name for e in named.entries} == {"flat", "tree"}
    assert compare(table, models="tan").entries[0].name == "tan"
    assert "cut points" not in compare(table, models="naive-bayes").seconds


def test_unusable_models__are_listed_with_the_reason() -> None:
    table = rows()
    dates = fb.NaiveBayes(dates={"c0": "number"})
    models = ["naive-bayes", dates, fb.A2DE(), fb.KDB(smoothing="hdp"), fb.TAN(alpha=-1)]
    result = compare(table, models=models, validation="leave_one_out")
    assert result.best.name == "naive-bayes"
    assert "not counted with the model's dates['c0']" in result[repr(dates)].reason
    assert "k_fold validates any classifier, A2DE too" in result["A2DE()"].reason
    assert "use k_fold, or smoothing='laplace'" in result["KDB(smoothing='hdp')"].reason
    assert "alpha=-1" in result["TAN(alpha=-1)"].reason
    for entry in result.entries[1:]:
        assert not entry.winner
        assert entry.figures is None
        assert f"  {entry.name}: {entry.reason}" in str(result)
    table_of = result.table.to_pylist()
    assert table_of[1]["log_loss"] is None
    assert table_of[1]["reason"] == result.entries[1].reason
    with pytest.raises(fb.DataError, match=r"no model can be used: A2DE\(\): leave_one_out"):
        compare(table, models=fb.A2DE(), validation="leave_one_out")


@pytest.mark.parametrize("validation", ["leave_one_out", "k_fold"])
@pytest.mark.parametrize(
    "model",
    [
        fb.SPODE(super_parent="loo"),
        fb.SPODE(super_parent="cv"),
        fb.AODE(select="leave_one_out"),
        fb.KDB(3, select="leave_one_out"),
    ],
    ids=repr,
)
def test_models_that_choose_by_rows__do(model: Any, validation: str) -> None:
    table = rows(6)
    folds = 3 if validation == "k_fold" else None
    result = compare(table, models={"it": model, "tan": "tan"}, validation=validation, folds=folds)
    X = table.drop_columns([TARGET])
    alone = type(model)(**model.get_params(deep=False)).fit(X, table[TARGET])
    np.testing.assert_allclose(as_judged(result["it"]).log_joint(X), alone.log_joint(X), rtol=1e-12)
    if validation == "k_fold":
        same_figures(result["it"].figures, fb.k_fold(model, table, TARGET, folds=3))
    else:
        assert result["it"].figures.fixed == ("schema", "structure", "cut points")
        again = fb.leave_one_out(alone, alone.statistics_, table, TARGET)
        same_figures(result["it"].figures, again)


def test_memory__leaves_out_what_does_not_fit() -> None:
    rng = np.random.default_rng(3)
    many = {f"c{j}": rng.integers(0, 60, 500).astype(str) for j in range(8)}
    table = pa.table(many | {TARGET: rng.choice(["p", "q"], 500)})
    result = compare(table, memory_limit=300_000)
    left = {entry.name for entry in result.entries if not entry.reason}
    by_value = {"naive-bayes", "joint-bayes", "weighted-naive-bayes", "logistic", "network"}
    assert left == by_value | {"prior"}
    for name in ("spode", "tan", "aode"):
        assert "counting pairs needs" in result[name].reason
        assert "memory_limit=300,000" in result[name].reason
    assert "counting families needs" in result["kdb"].reason
    # TAN may keep the counts along its tree only.
    tree = compare(table, models=["tan", "aode"], memory_limit=2_500_000)
    assert [entry.name for entry in tree.entries if not entry.reason] == ["tan"]
    whole = counted(table, pairs=True)
    same_figures(tree["tan"].figures, fb.k_fold(fb.TAN(), table, TARGET, folds=10))
    assert tree["tan"].memory < whole.pairs.nbytes
    with pytest.raises(fb.MemoryLimitError):
        compare(table, memory_limit=1000)
    numbers = pa.table({f"z{j}": rng.normal(size=500) for j in range(3)} | {TARGET: table[TARGET]})
    result = compare(numbers, memory_limit=6_500)
    assert not result["naive-bayes"].reason
    for name in ("naive-bayes-bins", "tan"):
        assert "learning the cut points of column 'z0' needs" in result[name].reason
    # Where the folds do not fit at once, each has a scan of its own, to the same cut points.
    models = ["naive-bayes", "naive-bayes-bins"]
    narrow, wide = (compare(numbers, models=models, memory_limit=m) for m in (20_000, None))
    for entry in wide.entries:
        same_figures(narrow[entry.name].figures, entry.figures)


def test_a_model_that_fails_on_a_row__does_not_end_the_others() -> None:
    table = pa.table({"x": [1.0, 1.0, 2.0, 5.0, 6.0, 9.0], TARGET: list("aaabbb")})
    strict = fb.NaiveBayes(var_floor=0)  # without the 2.0 class a has no variance
    result = compare(table, models=[strict, "naive-bayes", "tan"])
    assert "variance 0 in a class" in result["NaiveBayes(var_floor=0)"].reason
    assert result["naive-bayes"].figures.n == 6


def test_forms__text_table_and_json() -> None:
    result = compare(rows(), models=["tan", "aode", fb.A2DE()], validation="leave_one_out")
    text = str(result).splitlines()
    assert text[0] == "leave-one-out of 300 rows, 3 classes"
    assert text[2].split()[:4] == ["model", "accuracy", "log-loss", "gap"]
    assert text[3].startswith(f"* {result.best.name} ")
    assert text[4].startswith("  ")
    assert text[5].startswith("  A2DE(): ")
    assert text[2].endswith("learned from all rows")
    assert {text[3].split()[-1], text[4].split()[-1]} == {"points"}
    assert "structure, cut points" in "\n".join(text[3:5])
    assert result["tan"].scored == "leave-one-out, structure and cut points of all rows"
    assert text[7].startswith(f"{result.best.name}: its model is calibrated by the temperature ")
    assert text[8].startswith("shared by all: cut points ")
    assert len({len(line) for line in text[2:5]}) == 1
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert told["classes"] == ["alone", "no", "yes"]
    assert told["models"][0]["model"] == result.best.name
    assert told["models"][0]["winner"] is True
    assert told["models"][2]["accuracy"] is None
    assert set(told["seconds"]) == {"cut points", "counting", "scoring", "temperature"}
    arrow = result.table
    assert arrow["model"].to_pylist()[0] == result.best.name
    assert arrow["log_loss"].to_pylist()[0] == result.best.figures.log_loss
    assert arrow.schema.field("parameters").type == pa.int64()
    for row in arrow.slice(0, 2).to_pylist():
        assert row["fit_seconds"] >= 0
        assert row["predict_seconds"] > 0
    assert [*result] == [entry.name for entry in result.entries]
    assert [*result.values()] == [*result.entries]
    assert len(result) == 3
    assert "tan" in result
    with pytest.raises(KeyError, match="'tann' is not on the board; did you mean 'tan'"):
        result["tann"]


def test_loss__is_that_of_the_figures() -> None:
    table = rows()
    costly = compare(table, models="tan", loss=5 * (1 - np.eye(3)))
    plain = compare(table, models="tan")
    assert math.isclose(costly.best.figures.expected_loss, 5 * plain.best.figures.expected_loss)


@pytest.mark.parametrize("validation", ["leave_one_out", "k_fold"])
def test_files_and_threads__change_nothing(validation: str, tmp_path: Path) -> None:
    table = rows(4, 140_000)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=131_072)
    options: dict[str, Any] = {"folds": 3 if validation == "k_fold" else None}
    one = compare(table, threads=1, **options)
    two = compare(table, threads=2, **options)
    files = fb.compare(str(tmp_path / "t.parquet"), TARGET, **options)
    for entry in (entry for entry in one.entries if not entry.reason):
        assert two[entry.name].figures.to_dict() == entry.figures.to_dict()
        same_figures(files[entry.name].figures, entry.figures)


def test_columns_in_bins_by_hand__truth_values_too() -> None:
    table = rows()
    given = {"z0": [0.0], "flag": [0.5], "z1": [-0.4, 1.2]}
    result = compare(table, discretize=given, validation="leave_one_out")
    stats = counted(table, pairs=True, discretize=given)
    same_figures(result["tan"].figures, fb.leave_one_out(fb.TAN(), stats, table))
    assert "counting folds" not in compare(table, discretize=given).seconds  # given, not learned
    chosen = compare(table, columns=["x0", "z1"], categorical=["x0"])
    assert chosen["tan"].model.schema_.names == ("x0", "z1")


def test_errors__name_the_remedy() -> None:
    table = rows(5, 40)
    with pytest.raises(ValueError, match="validation='loo': use 'leave_one_out' or 'k_fold'"):
        compare(table, validation="loo")
    with pytest.raises(ValueError, match="'forest': use one of"):
        compare(table, models=["tan", "forest"])
    with pytest.raises(ValueError, match="'tan' stands twice"):
        compare(table, models=["tan", "tan"])
    for other in (fb.Blend(["tan"]), fb.Calibrated()):
        with pytest.raises(ValueError, match="is made of other models, which are to be named"):
            compare(table, models=[other])
    with pytest.raises(ValueError, match="use NetworkClassifier"):
        compare(table, models=[fb.BayesianNetwork.from_edges([("a", "b")])])
    for other in (fb.GaussianNB, 3):
        with pytest.raises(ValueError, match="neither a name nor a classifier of tables, nor an"):
            compare(table, models=[other])
    with pytest.raises(ValueError, match="name one at least"):
        compare(table, models=[])
    with pytest.raises(fb.SchemaError, match="can be read only once"):
        fb.compare(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), TARGET)
    with pytest.raises(fb.SchemaError, match="no column 'why'"):
        fb.compare(table, "why")
    with pytest.raises(fb.DataError, match="nothing to learn from"):
        compare(table.slice(0, 0))
    with pytest.raises(fb.DataError, match="fold 'x' holds all rows"):
        compare(table, validation="k_fold", folds=["x"] * 40)


@pytest.mark.parametrize("labelled", [False, True])
def test_texts_that_are_coded_once__are_no_other_rows(
    labelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All figures are those of texts, also where a value stands beside no class alone."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 90)
    lost = np.arange(90) == 7
    heard = np.where(lost, "lost", np.where(rng.random(90) < 0.8, y, 1 - y).astype(str))
    classes = pa.array(np.array(["no", "yes"])[y], mask=None if labelled else lost)
    height = pa.array(rng.normal(size=90) + y, mask=rng.random(90) < 0.1)
    table = pa.table({"heard": heard, "height": height, "y": classes})

    def figures() -> list[tuple[str, float, int | None]]:
        board = fb.compare(table, "y", models=["naive-bayes", "tan", "kdb", "logistic", "prior"])
        found = [(e.name, e.figures, e.parameters) for e in board.entries]
        return [(name, f.log_loss, parameters) for name, f, parameters in found if f is not None]

    coded = figures()
    monkeypatch.setattr(TableSource, "coded", lambda source: source)
    assert coded == figures()
    assert len(coded) == 5


@pytest.mark.parametrize("folds", [5, None])
def test_temperature__of_a_winner_that_rules_classes_out_is_worth_it_on_new_rows(
    folds: int | None,
) -> None:
    """No temperature changes a posterior of 0; one that is as small as 1e-308 it does."""

    def rows(n: int, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        columns = {"a": rng.choice(list("abcdef"), n), "b": rng.choice(list("uvwxyz"), n)}
        return pa.table(columns | {"y": rng.choice(["p", "q", "r"], n, p=[0.8, 0.15, 0.05])})

    best = fb.compare(rows(150, 0), "y", models={"m": fb.NaiveBayes(alpha=0)}, folds=folds).best
    new = rows(5000, 1)
    before, after = (fb.evaluate(m, new).log_loss for m in (best.model.model_, best.model))
    assert after < before + 0.1
    assert best.calibrated > after - 0.1


def test_models_without_a_fold__take_the_kernels_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many rows a fold leaves, which may be fewer than compiled kernels are worth."""
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 3, 90).astype(str) for name in "ay"} | {"x": rng.random(90)}
    chosen_by = list[float]()

    def load(name: str, cells: float = math.inf, small: int = 0) -> Any:
        if name == "fitting.gradient":
            chosen_by.append(cells * dispatch._times.get())
        return dispatch.numpy_twin(name)

    monkeypatch.setattr(dispatch, "load", load)
    fb.compare(pa.table(columns), "y", models=["logistic"], folds=3, race=False)
    assert len(chosen_by) == 4  # of all rows, and without each fold
    np.testing.assert_allclose(chosen_by, chosen_by[0], rtol=1e-12)


CUT = pytest.mark.parametrize(
    "discretize",
    ["mdl", "quantile", ("width", 4), {"z0": [0.5, 1.5]}, {"z0": "quantile", "z1": [0.0]}],
    ids=str,
)


@CUT
def test_naive_bayes_of_bins__says_how_it_was_cut(discretize: Any) -> None:
    """Fitted again, it is the model that it was: bins by other rules are said by their points."""
    table = rows()
    given: dict[str, Any] = {"discretize": discretize, "race": False}
    board = compare(table, models=["naive-bayes-bins", fb.NaiveBayes(numeric="mdl")], **given)
    blend = fb.Blend(["naive-bayes-bins"], discretize=discretize).fit(table, TARGET)
    models = [as_judged(entry) for entry in board.entries]
    for model in (*models, blend.members_["naive-bayes-bins"].model):
        assert (model.numeric == "mdl") == (discretize == "mdl")
        again = fresh(model).fit(table, TARGET)
        assert again.numeric_ == model.numeric_
        np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))


def test_options_of_a_model__that_say_less_are_those_of_the_board() -> None:
    table = rows()
    given: dict[str, Any] = {"categorical": ["z0", "z1"], "exclude": ["x0", "flag"]}
    own = {"few": fb.NaiveBayes(categorical=["z0"]), "less": fb.TAN(exclude=["x0"])}
    board = compare(table, models=own, race=False, **given)
    for entry in board.entries:
        model = as_judged(entry)
        again = fresh(model).fit(table, TARGET)
        assert again.schema_ == model.schema_
        np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))


def test_a_model_that_reads_rows_otherwise__says_what_to_ask_for_instead() -> None:
    table = rows()
    own: dict[str, Any] = {
        "exclude": ["z0"],
        "columns": ["z1", "x0"],
        "categorical": ["z0"],
        "domains": {"x0": ["only"]},
        "dates": {"z0": ["hour"]},
    }
    models = {option: fb.NaiveBayes(**{option: value}) for option, value in own.items()}
    board = compare(table, models=models | {"tan": "tan"})
    blend = fb.Blend(models | {"tan": "tan"}).fit(table, TARGET)
    for option in own:
        says = {"a comparison": board[option].reason, "a blend": blend.dropped_[option]}
        for whole, reason in says.items():
            assert reason.startswith("the rows were "), reason
            instead = f"all models of {whole} read the rows alike: ask for that with `{option}`"
            assert reason.endswith(f"; {instead}, or leave the model out")


@pytest.mark.filterwarnings("ignore:.* the model does not use")  # what an index leaves out
@pytest.mark.parametrize(
    ("given", "of_names"),
    [
        ({"categorical": ["z0"], "exclude": "x0", "domains": {"flag": [False, True]}}, True),
        ({"columns": ["z*", "flag", "day"], "dates": {"day": ["weekday", "elapsed"]}}, True),
        ({"exclude": [0], "categorical": -1}, True),
        ({"exclude": [2], "categorical": [0]}, False),
        ({"exclude": "x2", "discretize": "quantile"}, False),
        ({"columns": [0, 1, 3], "categorical": "x3", "domains": {"x3": [*range(9)]}}, False),
        ({"exclude": 2, "discretize": {"x3": [0.5, 3.0]}}, False),
    ],
    ids=str,
)
def test_models__read_other_rows_as_these_were_read(
    given: dict[str, Any], of_names: bool, tmp_path: Path
) -> None:
    """Fitted again, models of a board and members of a blend are what they were."""
    rng = np.random.default_rng(4)
    days = pa.array(np.datetime64("2024-01-01") + np.arange(300))
    whole = np.arange(300) % 6
    table = rows().append_column("day", days).append_column("code", pa.array(whole))
    X, y = table, TARGET
    if not of_names:
        X = np.column_stack([whole % 5, rng.normal(size=(300, 2)), np.arange(300) % 7])
        y = np.array(table[TARGET].to_pylist())
    names = ["naive-bayes", "naive-bayes-bins", "tan", "logistic"]
    board = fb.compare(X, y, models=names, race=False, **given)
    blend = fb.Blend(names, **given).fit(X, y)
    for model in (*map(as_judged, board.entries), *(m.model for m in blend.members_.values())):
        again = fresh(model).fit(X, y)
        assert again.schema_ == model.schema_
        assert again.n_features_in_ == model.n_features_in_
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-6)
        model.save(tmp_path / "m.fb", force=True)
        assert repr(fb.load(tmp_path / "m.fb")) == repr(model)
