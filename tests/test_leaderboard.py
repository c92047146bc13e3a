"""How sure the leaderboard is, which models stand on it, and what comes of models of others."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from extras import needs
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scoring import evaluate_probabilities

import fastbayes as fb
from fastbayes.data.folds import folds_for
from fastbayes.evaluation.validate import comparison
from fastbayes.evaluation.validate.paired_losses import PairedLosses
from fastbayes.models.registry import Effort, candidates

FEW = ["naive-bayes", "naive-bayes-bins", "tan", "gaussian-bayes", "prior"]


def rows(seed: int, n: int = 240, *, told: bool = True, weights: Any = None) -> pa.Table:
    """Return rows with gaps, whose class is told by the columns or by none of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    by = y if told else rng.integers(0, 2, n)
    columns: dict[str, Any] = {
        "a": np.where(rng.random(n) < 0.7, by, 1 - by).astype(str),
        "b": rng.choice(list("uvw"), n),
        "z": rng.normal(size=n) + by,
        "flat": np.ones(n),
        "none": [None] * n,
    }
    columns["z"] = np.where(rng.random(n) < 0.1, np.nan, columns["z"])
    columns["fold"] = rng.integers(0, 4, n)
    columns["y"] = np.array(["no", "yes"])[y]
    if weights is not None:
        columns["w"] = rng.choice(weights, n)
    return pa.table(columns)


def losses(name: str, table: pa.Table, **options: Any) -> NDArray[np.float64]:
    """Return the log-loss of each row, by a model that `k_fold` fits by itself."""
    entry, how = candidates()[name]
    y = np.array(table["y"].to_pylist()) == "yes"
    proba = fb.k_fold(entry.make(how), table, "y", **options).proba
    return np.asarray(-np.log(np.maximum(proba[np.arange(len(y)), y.astype(int)], 1e-15)))


@pytest.mark.parametrize("weights", [None, (0.0, 0.5, 1.0, 3.0)])
def test_gap_error__is_that_of_the_differences_row_by_row(weights: Any) -> None:
    table = rows(1, weights=weights)
    names = ["naive-bayes", "tan", "kdb", "logistic"]
    given = {"folds": "fold", "sample_weight": None if weights is None else "w"}
    board = fb.compare(table, "y", models=names, **given)
    by_row = {name: losses(name, table, **given) for name in names}
    w = np.ones(len(table)) if weights is None else table["w"].to_numpy()
    kept = w > 0
    for entry in board.entries:
        gaps = (by_row[entry.name] - by_row[board.best.name])[kept]
        mean = np.average(gaps, weights=w[kept])
        variance = np.average((gaps - mean) ** 2, weights=w[kept])
        assert entry.gap == pytest.approx(mean, rel=1e-9, abs=1e-12)
        assert entry.gap_error == pytest.approx(math.sqrt(variance / w.sum()), rel=1e-6, abs=1e-9)
    assert (board.best.gap, board.best.gap_error) == (0.0, 0.0)


def test_gap_error__counts_a_row_of_weight_two_as_two_rows() -> None:
    table = rows(2)
    twice = pa.concat_tables([table, table])
    heavy = table.append_column("w", pa.array(np.full(len(table), 2.0)))
    given: dict[str, Any] = {"models": ["tan", "naive-bayes", "aode"], "folds": "fold"}
    two = fb.compare(twice, "y", **given)
    one = fb.compare(heavy, "y", sample_weight="w", **given)
    for entry in two.entries:
        assert one[entry.name].gap_error == pytest.approx(entry.gap_error, rel=1e-9, abs=1e-12)


def test_gap_error__of_leave_one_out_has_the_rows_that_wait_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that nearly makes up a class alone is scored last, and is a row like others."""
    waited, know = [], PairedLosses.know

    def noted(mine: PairedLosses, late: NDArray[np.float64]) -> None:
        waited.append(len(late))
        know(mine, late)

    monkeypatch.setattr(PairedLosses, "know", noted)
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=60), [1e9]])
    y = np.array([*rng.choice(["no", "yes"], 60), "no"])
    table = pa.table({"x": x, "v": rng.choice(list("pq"), 61), "y": y})
    models = {"normal": fb.NaiveBayes(), "bins": fb.NaiveBayes(numeric="mdl")}
    board = fb.compare(table, "y", models=models, validation="leave_one_out")
    assert waited == [1]
    of_row = []
    for model in (board.best.name, board.entries[1].name):
        stats = fb.count(table, "y", numeric="gaussian" if model == "normal" else "mdl")
        proba = fb.leave_one_out(models[model], stats, table).proba
        of_row.append(-np.log(np.maximum(proba[np.arange(61), (y == "yes").astype(int)], 1e-15)))
    gaps = of_row[1] - of_row[0]
    assert board.entries[1].gap == pytest.approx(gaps.mean(), rel=1e-9)
    assert board.entries[1].gap_error == pytest.approx(gaps.std() / math.sqrt(61), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_paired_losses__add_over_blocks_and_keep_late_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, weight = rng.exponential(size=(3, 90)), rng.choice([0.0, 1.0, 2.5], 90)
    late = rng.random((3, 90)) < 0.2
    whole = [PairedLosses(3) for _ in range(3)]
    for block in np.split(np.arange(90), [7, 50]):
        parts = [PairedLosses(3) for _ in range(3)]
        known = np.where(late, np.nan, table)[:, block]
        PairedLosses.update(parts, dict(enumerate(known)), weight[block])
        for mine, part in zip(whole, parts, strict=True):
            mine.take(part.arrays())
    for mine, own, waits in zip(whole, table, late, strict=True):
        mine.know(own[waits & (weight > 0)])
    PairedLosses.settle(whole, [0, 1, 2])
    for mine, own in zip(whole, table, strict=True):
        np.testing.assert_allclose(mine.squares, ((table - own) ** 2) @ weight, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_random_labels__let_no_model_beat_the_prior(seed: int) -> None:
    """What is held out holds nothing back: bins, trees, weights and graphs too."""
    table, rng = rows(seed, 300, told=False).drop_columns(["fold"]), np.random.default_rng(seed)
    for j in range(20):
        table = table.append_column(f"z{j}", pa.array(rng.normal(size=300)))
    board = fb.compare(table, "y")
    prior = board["prior"]
    assert sum(entry.figures is not None for entry in board.entries) >= 13
    assert prior.gap <= 3 * prior.gap_error + 1e-12  # and the others are behind the winner
    if not math.isnan(board.best.calibrated):  # nor does a temperature
        least = prior.figures.log_loss - 3 * max(prior.gap_error, 0.01)
        assert board.best.calibrated >= least


def numbers(seed: int, n: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {f"z{j}": rng.normal(size=n) + 0.35 * y for j in range(24)}
    return pa.table({**columns, "y": y.astype(str)})


def test_new_rows__are_scored_no_worse_than_the_board_says() -> None:
    """Cut points of all rows make held-out rows look easier than new ones; the board says so."""
    names = ["naive-bayes-bins", "tan", "kdb", "aode"]
    worse: dict[str, list[float]] = {"k_fold": [], "leave_one_out": []}
    for seed in range(3):
        table, new = numbers(seed, 150), numbers(100 + seed, 2000)
        for validation, found in worse.items():
            board = fb.compare(table, "y", models=names, validation=validation)
            for entry in board.entries:
                found.append(fb.evaluate(entry.model, new).log_loss - entry.figures.log_loss)
                leaks = validation == "leave_one_out"
                assert ("cut points of all rows" in entry.scored) == leaks
    assert np.mean(worse["k_fold"]) < 0.01
    assert np.mean(worse["leave_one_out"]) > 0.04


@pytest.mark.filterwarnings("ignore:pyarrow.Table. the model does not use")
def test_prior__is_the_shares_of_the_classes_without_the_fold() -> None:
    table = rows(5)
    board = fb.compare(table, "y", models=["prior", "tan"], folds="fold")
    y, fold = (np.array(table[name].to_pylist()) for name in ("y", "fold"))
    own = np.empty(len(y))
    for f in range(4):
        rest = y[fold != f]
        own[fold == f] = [(np.sum(rest == c) + 1) / (len(rest) + 2) for c in y[fold == f]]
    assert board["prior"].figures.log_loss == pytest.approx(-np.log(own).mean(), rel=1e-12)
    assert board["prior"].parameters == 1
    proba = board["prior"].model.predict_proba(table.select([]).append_column("a", table["a"]))
    np.testing.assert_allclose(proba[0, 1], (np.sum(y == "yes") + 1) / (len(y) + 2), rtol=1e-12)


def test_threads_and_sources__change_nothing(tmp_path: Path) -> None:
    table = rows(6, 3000)
    pq.write_table(table, tmp_path / "t.parquet")
    one = fb.compare(table, "y", threads=1)
    for other in (
        fb.compare(table, "y", threads=3),
        fb.compare(str(tmp_path / "t.parquet"), "y", threads=2),
    ):
        for mine, theirs in zip(other.entries, one.entries, strict=True):
            told = [entry.to_dict() for entry in (mine, theirs)]
            for each in told:
                del each["fit_seconds"], each["predict_seconds"]
            assert told[0] == told[1]


def test_costly_models__have_to_be_asked_for_where_there_is_much() -> None:
    rng = np.random.default_rng(7)
    n, d = 1_000, 70
    many = {f"c{j}": rng.integers(0, 2, n) for j in range(d)}
    table = pa.table(many | {"y": rng.choice(["p", "q"], n)})
    board = fb.compare(table, "y", categorical=[*many], columns=[*many], folds=5)
    # Ten nanoseconds of each class, of each row and each of eight joint values of three columns.
    seconds = 6 * 10e-9 * 2 * math.comb(d, 3) * (n + 8)
    assert board["a2de"].reason == (
        f"would take about {seconds:,.0f} s, and unasked a model may take 5 s of so many rows: "
        "name it, or say models='all'"
    )
    assert "  a2de: would take about" in str(board)
    assert not board["network"].reason
    asked = fb.compare(table, "y", models=["a2de"], categorical=[*many][:9], columns=[*many][:9])
    assert not asked["a2de"].reason


@pytest.mark.parametrize("models", [None, "all", ["tan", "logistic", "prior"]])
def test_only_unasked__a_model_is_left_out(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "UNASKED", 0.0)
    monkeypatch.setattr(comparison, "UNASKED_ROW", 0.0)
    board = fb.compare(rows(1, 90), "y", models=models)
    left = {entry.name for entry in board.entries if "would take about" in str(entry.reason)}
    known = {
        name
        for name, (_, candidate) in candidates().items()
        if candidate.effort and candidate.when != "all_numeric"
    }
    assert left == (known if models is None else set())


@given(
    st.none() | st.integers(1, 3), st.integers(0, 50), st.lists(st.integers(0, 5), max_size=6),
    st.integers(1, 4), st.integers(0, 4), *[st.booleans()] * 3,
)  # fmt: skip
def test_effort__is_that_of_rows_and_joint_values_of_every_set_of_columns(
    together: int | None,
    n: int,
    sizes: list[int],
    n_classes: int,
    n_numbers: int,
    by_class: bool,
    numbers: bool,
    by_cell: bool,
) -> None:
    sizes = [*sizes, *[0] * n_numbers]
    work, values = 0.0, [max(size, 1) for size in sizes]
    joint = math.prod(values)
    if together is None:  # of all columns, of which no more joint values occur than there are rows
        work = 2.0 * min(n, joint)
    for some in combinations([1] * n_numbers if numbers else values, together) if together else []:
        work += 2.0 * (n + math.prod(some)) + 3.0 * math.prod(some)
    times = n_classes if by_class else 1
    if by_cell and joint > 1:
        times += min(n, joint * n_classes)
    effort = Effort(2.0, together, by_class, 3.0, numbers, by_cell)
    found = effort.seconds(n, sizes, n_classes, n_numbers)
    assert found == pytest.approx(1e-9 * work * times, rel=1e-12)


def test_effort__of_pairs_in_logistic_regression_is_that_of_each_class() -> None:
    pairs = candidates()["logistic-pairs"][1]
    digits = pairs.seconds(1_797, [4] * 64, 10)
    assert 6 * digits < comparison.UNASKED / 5
    assert 6 * pairs.seconds(3_000, [371, 9, 31], 1_000) > comparison.UNASKED
    assert pairs.seconds(1_797, [4] * 64, 1_000) > 50 * digits


@pytest.mark.parametrize("most", [3e-4, 2e-3, 1e-2, 0.1])
@pytest.mark.parametrize(("n_numbers", "n_texts"), [(30, 0), (0, 30), (15, 15)])
def test_what_takes_part__is_what_is_expected_to_take_no_more_than_it_may(
    n_numbers: int, n_texts: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "UNASKED", most)
    monkeypatch.setattr(comparison, "UNASKED_ROW", 0.0)
    rng, n, n_folds = np.random.default_rng(3), 60, 3
    columns: dict[str, Any] = {f"x{j}": rng.normal(size=n) for j in range(n_numbers)}
    columns |= {f"c{j}": rng.permutation([*"abc"] * (n // 3)) for j in range(n_texts)}
    table = pa.table(columns | {"y": np.repeat(["p", "q"], n // 2)})
    # Of noise there are no cut points: a number in bins has one value, too.
    no_cuts = {f"x{j}": [] for j in range(n_numbers)}
    board = fb.compare(table, "y", folds=n_folds, discretize=no_cuts)
    for name, (entry, candidate) in candidates().items():
        if candidate.when == "gaps" or (candidate.when == "numeric" and not n_numbers):
            continue
        if candidate.when == "all_numeric" and n_texts:
            continue
        bins = entry.make(candidate)._discretizes
        sizes = [*[0] * n_numbers, *[3] * n_texts]
        work = candidate.seconds(n, sizes, 2, 0 if bins else n_numbers)
        assert ("would take about" in board[name].reason) == ((1 + n_folds) * work > most), name


def test_of_thousands_of_columns__there_is_what_takes_each_by_itself() -> None:
    n, d = 300, 5_000
    each = {"naive-bayes", "naive-bayes-bins", "weighted-naive-bayes", "logistic", "joint-bayes"}
    for sizes, n_numbers in (([3] * d, 0), ([0] * d, d)):
        little = {
            name
            for name, (_, candidate) in candidates().items()
            if candidate.when == "always" or (n_numbers and candidate.when != "gaps")
            if 11 * candidate.seconds(n, sizes, 2, n_numbers) <= comparison.UNASKED
        }
        assert little == (each if n_numbers else each - {"naive-bayes-bins"})


# -- estimators of arrays ----------------------------------------------------------------------


class Shares:
    """An estimator of arrays that gives the shares of the classes, and notes what it was given."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Shares:
        if self.wrong == "fit":
            raise RuntimeError("no such thing\nand more of it")
        self.X, self.weight = X, sample_weight
        self.classes_ = np.unique(y)
        w = np.ones(len(y)) if sample_weight is None else sample_weight
        self.shares = np.array([w[y == c].sum() for c in self.classes_]) / w.sum()
        return self

    def predict_proba(self, X: Any) -> Any:
        if self.wrong == "predict":
            raise ValueError("not these rows")
        shares = self.shares * 2 if self.wrong == "sum" else self.shares
        return np.tile(shares, (len(X), 2 if self.wrong == "shape" else 1))


def test_estimators_of_arrays__see_numbers_places_and_gaps() -> None:
    table = rows(8, weights=(0.0, 1.0, 2.0))
    given: dict[str, Any] = {"folds": "fold", "sample_weight": "w", "columns": ["b", "z", "none"]}
    board = fb.compare(table, "y", models={"shares": Shares(), "prior": "prior"}, **given)
    kept = table.filter(pa.array(table["w"].to_numpy() > 0))
    model = board["shares"].model
    b = np.searchsorted(["u", "v", "w"], kept["b"].to_pylist())
    np.testing.assert_array_equal(model.X[:, 0], b)
    np.testing.assert_array_equal(model.X[:, 1], kept["z"].to_numpy())
    assert np.isnan(model.X[:, 2]).all()
    np.testing.assert_array_equal(model.weight, kept["w"].to_numpy())
    assert board["shares"].parameters is None
    assert board["shares"].to_dict()["memory"] is None
    assert board["shares"].figures.log_loss == pytest.approx(
        board["prior"].figures.log_loss, abs=0.01
    )
    json.dumps(board.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("fit", "RuntimeError: no such thing"),
        ("predict", "ValueError: not these rows"),
        ("sum", "is no probability"),
        ("shape", "ValueError: predict_proba gave ("),
    ],
)
def test_estimators_of_arrays__that_fail_are_listed(wrong: str, reason: str) -> None:
    board = fb.compare(rows(9), "y", models={"it": Shares(wrong), "tan": "tan"})
    assert board.best.name == "tan"
    assert reason in board["it"].reason
    assert "and more" not in board["it"].reason


def test_estimators_of_arrays__keep_to_the_limit_and_take_weights_or_say_so() -> None:
    table = rows(10, 2000, weights=(1.0, 2.0))
    models = {"it": Shares(), "naive": "naive-bayes"}
    board = fb.compare(table.drop_columns(["w"]), "y", models=models, memory_limit=100_000)
    assert "holding 2,000 rows x 6 columns, twice while it learns" in board["it"].reason
    assert board.best.name == "naive"
    board = fb.compare(table, "y", models=models, validation="leave_one_out")
    assert "an estimator of arrays has none: use k_fold" in board["it"].reason

    class Unweighted(Shares):
        def fit(self, X: Any, y: Any) -> Shares:  # type: ignore[override]
            return super().fit(X, y)

    board = fb.compare(table, "y", models={**models, "un": Unweighted()}, sample_weight="w")
    assert "fit of Unweighted takes no sample_weight" in board["un"].reason
    assert not board["it"].reason


def test_estimators_of_arrays__are_cross_validated_as_scikit_learn_does() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    selection = pytest.importorskip("sklearn.model_selection")
    table = rows(11)
    y = np.array(table["y"].to_pylist())
    X = np.column_stack(
        [
            np.searchsorted(["0", "1"], table["a"].to_pylist()),
            np.searchsorted(["u", "v", "w"], table["b"].to_pylist()),
            table["z"].to_numpy(),
        ]
    )
    forest = ensemble.RandomForestClassifier(20, random_state=0)
    split = selection.PredefinedSplit(table["fold"].to_numpy())
    proba = selection.cross_val_predict(forest, X, y, cv=split, method="predict_proba")
    wanted = evaluate_probabilities(proba, (y == "yes").astype(int), ["no", "yes"])
    given: dict[str, Any] = {"columns": ["a", "b", "z"], "folds": "fold"}
    board = fb.compare(table, "y", models={"forest": forest, "tan": "tan"}, **given)
    for name in ("log_loss", "accuracy", "auc", "brier"):
        got = getattr(board["forest"].figures, name)
        assert got == pytest.approx(getattr(wanted, name), rel=1e-12)
    assert not hasattr(forest, "classes_")  # it was left as it is


def test_estimators_of_arrays__that_work_in_place_spoil_no_rows() -> None:
    bayes = pytest.importorskip("sklearn.naive_bayes").GaussianNB

    class InPlace(bayes):  # type: ignore[misc, valid-type]
        def fit(self, X: Any, y: Any, sample_weight: Any) -> InPlace:
            super().fit(X, y, sample_weight)
            X[:], y[:], sample_weight[:] = 0.0, y[0], 1.0
            return self

        def predict_proba(self, X: Any) -> Any:
            proba = super().predict_proba(X)
            X[:] = 0.0
            return proba

    table = rows(17, weights=[0.5, 1.0, 2.0])
    given: dict[str, Any] = {"columns": ["a", "b"], "sample_weight": "w", "folds": "fold"}
    models = {"first": InPlace(), "second": InPlace(), "plain": bayes()}
    board = fb.compare(table, "y", models=models, **given)
    assert len({entry.figures.log_loss for entry in board.entries}) == 1


# -- tables of little --------------------------------------------------------------------------

Z = np.random.default_rng(12).normal(size=20)
TABLES: dict[str, dict[str, Any]] = {
    "one class": {"a": [*"pq"] * 10, "z": Z, "y": ["n"] * 20},
    "a class of one row": {"a": [*"pq"] * 10, "z": Z, "y": ["m"] + ["n", "o"] * 9 + ["n"]},
    "classes of a row each": {"a": [*"pq"] * 3, "z": Z[:6], "y": [*"abcdef"]},
    "all rows equal": {"a": ["p"] * 20, "z": [1.5] * 20, "y": ["n"] * 20},
    "all rows equal but the class": {"a": ["p"] * 20, "z": [1.5] * 20, "y": ["n", "o"] * 10},
    "only missing values": {
        "a": pa.nulls(20, pa.string()),
        "z": pa.nulls(20, pa.float64()),
        "y": ["n", "o"] * 10,
    },
    "rows with gaps": {"z": np.where(Z > 1, np.nan, Z), "v": np.where(Z < -1, np.nan, Z**2),
                       "y": ["n", "o"] * 10},
    "ten rows": {"a": [*"pq"] * 5, "z": Z[:10], "y": ["n", "o"] * 5},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize("name", TABLES)
def test_little__every_model_has_figures_or_a_reason(name: str) -> None:
    table = pa.table(TABLES[name])
    k = folds_for(len(table), [*Counter(table["y"].to_pylist()).values()])
    board = fb.compare(table, "y")
    gaps = any(pc.any(column.is_null(nan_is_null=True)).as_py() for column in table.columns)
    gone = () if gaps else {n for n, (_, how) in candidates().items() if how.when == "gaps"}
    assert {entry.name for entry in board.entries} == {*candidates(), "prior"}.difference(gone)
    for entry in board.entries:
        if entry.reason:
            assert entry.figures is None
            assert f"  {entry.name}: {entry.reason}" in str(board)
            continue
        assert entry.figures.n == len(table)
        assert math.isfinite(entry.figures.log_loss)
        assert entry.scored == f"{k} folds"
        assert entry.gap_error >= 0
        assert entry.model.predict(table.drop_columns(["y"])).shape == (len(table),)
    assert not board["naive-bayes"].reason
    assert not board["prior"].reason
    json.dumps(board.to_dict(), allow_nan=False)


def test_folds__are_not_remarked_upon(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fastbayes")
    fb.compare(rows(16), "y", models=["network", "prior"])
    # Of all rows, not of those without each fold.
    assert caplog.text.count("rows have missing values") == 1


def test_clipped_rows__are_told() -> None:
    table = rows(13)
    board = fb.compare(table, "y", models={"sure": Sure(), "tan": "tan"})
    wrong = board["sure"].figures.clipped
    assert wrong > 0
    assert f"rows whose class had a probability below 1e-15, taken as that: sure {wrong}" in str(
        board
    )
    assert board["sure"].to_dict()["clipped"] == wrong
    assert math.isfinite(board["sure"].gap_error)


class Sure(Shares):
    """An estimator that is always sure of the first class."""

    def predict_proba(self, X: Any) -> Any:
        return np.tile([1.0, 0.0], (len(X), 1))


# -- a blend of them ---------------------------------------------------------------------------


def test_blend__is_that_of_the_models_that_stand(tmp_path: Path) -> None:
    table = rows(14, 600)
    given: dict[str, Any] = {"folds": "fold", "exclude": ["none", "flat"]}
    models = {"tree": "tan", "naive": fb.NaiveBayes(alpha=0.5), "it": Shares(), "prior": "prior"}
    board = fb.compare(table, "y", models=models, **given)
    blend = board.blend()
    assert {*blend.members_, *blend.dropped_} == {"tree", "naive"}
    for name, loss in blend.member_log_loss_.items():
        assert loss == pytest.approx(board[name].figures.log_loss, rel=1e-9)
    fb.save(blend, tmp_path / "b.fb")
    X = table.drop_columns(["y", "none", "flat", "fold"])
    again = fb.load(tmp_path / "b.fb").predict_proba(X)
    np.testing.assert_array_equal(again, blend.predict_proba(X))
    left = fb.compare(table, "y", models=["tan", "naive-bayes"], validation="leave_one_out").blend()
    direct = fb.Blend(["tan", "naive-bayes"]).fit(table, "y")
    np.testing.assert_allclose(left.predict_proba(table), direct.predict_proba(table), rtol=1e-9)


def test_blend__of_no_model_of_tables_is_an_error() -> None:
    board = fb.compare(rows(15), "y", models={"it": Shares(), "prior": "prior"})
    with pytest.raises(fb.DataError, match=r"a blend combines models of tables, and of those that"):
        board.blend()


@pytest.mark.parametrize("kind", ["table", "path", "dataset", "polars", "lazy"])
def test_pickle__of_a_board_can_be_blended(kind: str, tmp_path: Path) -> None:
    if kind in ("polars", "lazy"):
        needs("polars")
    table, path = rows(16, 200), tmp_path / "d.parquet"
    pq.write_table(table, path)
    source: Any = {
        "table": lambda: table,
        "path": lambda: path,
        "dataset": lambda: ds.dataset(path),
        "polars": lambda: import_module("polars").from_arrow(table),
        "lazy": lambda: import_module("polars").scan_parquet(path),
    }[kind]()
    how = "leave_one_out" if kind == "path" else "k_fold"
    board = fb.compare(
        *(source, "y"), models=["tan", "prior"], validation=how, progress=lambda n: None
    )
    again = pickle.loads(pickle.dumps(board))
    assert str(again) == str(board)
    X = table.drop_columns("y")
    np.testing.assert_array_equal(again.blend().predict_proba(X), board.blend().predict_proba(X))
