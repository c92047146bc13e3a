"""What semi-naive models, and their validation, make of things they were not meant for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.statistics import packed_counts

T = {"a": list("uuuuvvvv") * 25, "b": list("uuvvuuvv") * 25, "c": list("uvuvuvuv") * 25}
T["y"] = ["n" if a == b else "p" for a, b in zip(T["a"], T["b"], strict=True)]
X = {name: T[name] for name in "abc"}
WIDE_LIMIT = 600_000


def wide() -> dict[str, Any]:
    """Return more columns than the pairs of which fit `WIDE_LIMIT`."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"c{j}": rng.choice(list("uvw"), 40) for j in range(60)}
    return table | {"y": rng.choice(["n", "p"], 40)}


def selected() -> fb.AODE:
    model = fb.AODE(select="leave_one_out").fit(T, "y")
    assert model.n_selected_ == 2
    return model


def test_the_winner__is_a_whole_model() -> None:
    best = fb.compare(T, "y", models=["aode"]).best.model
    assert best.n_features_in_ == 3
    assert best.feature_names_in_.tolist() == list("abc")
    with pytest.raises(AttributeError, match=r"model_\.adapt_prior"):
        best.adapt_prior(X)
    adapted = best.model_.adapt_prior(X)  # the model without its temperature
    assert adapted.predict_proba(X).shape == (200, 2)
    A = np.array([[0, 1.0], [1, 0], [0, 0], [1, 1]] * 5)
    array = fb.compare(A, list("nppn") * 5).best.model
    assert not hasattr(array, "feature_names_in_")
    assert array.predict(A).tolist() == list("nppn") * 5


@pytest.mark.parametrize("kind", [fb.TAN, fb.AODE])
@pytest.mark.parametrize("discretize", [{"f": [0.7]}, ("width", 3), "quantile"])
def test_a_column_without_a_value_at_first__is_cut_as_was_asked(kind: Any, discretize: Any) -> None:
    rng = np.random.default_rng(1)
    f = rng.normal(size=60)
    y = np.where(f > 0, "n", "p")
    empty = {"f": [None, None], "y": ["n", "p"]}
    model = kind(discretize=discretize).partial_fit(empty, "y").partial_fit({"f": f, "y": y}, "y")
    whole = kind(discretize=discretize).fit({"f": f, "y": y}, "y")
    (mine,), (theirs,) = model.schema_.features, whole.schema_.features
    np.testing.assert_array_equal(mine.cuts, theirs.cuts)


@pytest.mark.parametrize("how", ["loo", "cv"])
@pytest.mark.parametrize("name", ["loo", "cv", "cmi", "loo_joint"])
def test_a_column_called_as_a_criterion__is_a_column_like_others(how: str, name: str) -> None:
    rng = np.random.default_rng(39)
    for _ in range(4):
        table = {n: rng.choice(list("uv"), 60) for n in "abcd"} | {"y": rng.choice(["n", "p"], 60)}
        plain = fb.SPODE(super_parent=how).fit(table, "y").super_parent_
        for column in "ad":
            renamed = {name if n == column else n: values for n, values in table.items()}
            model = fb.SPODE(super_parent=how).fit(renamed, "y")
            # Names break ties; these tables have none.
            assert model.super_parent_ == (name if plain == column else plain)
            stats = fb.count(renamed, "y", pairs=True)
            figures = fb.leave_one_out(model, stats, renamed)
            assert figures.fixed == ("schema", "structure")


@pytest.mark.parametrize(
    "fit",
    [
        lambda s: fb.SPODE().fit_statistics(s),
        lambda s: fb.KDB(1).fit_statistics(s),
        lambda s: fb.KDB(2).families(s),
        lambda s: fb.TAN().fit_statistics(s),
        lambda s: fb.TAN(prune="bic").fit_statistics(s),
    ],
)
def test_counts_of_some_pairs__are_not_taken_for_all(fit: Callable[[Any], Any]) -> None:
    with pytest.raises(fb.SchemaError, match="some pairs of columns only"):
        fit(selected().statistics_)


def test_counts_of_a_tree__are_those_of_its_own_rule() -> None:
    table = wide()
    plain = fb.TAN(memory_limit=WIDE_LIMIT, threads=2).fit(table, "y")
    stats = plain.statistics_
    assert not stats.pairs.layout.complete
    again = fb.TAN(alpha=0.5).fit_statistics(stats)
    assert again.parents_ == plain.parents_
    with pytest.raises(fb.SchemaError, match="some pairs of columns only"):
        fb.TAN(prune="bic").fit_statistics(stats)
    with pytest.raises(fb.SchemaError, match="some pairs"):
        fb.SPODE().fit_statistics(stats)


@pytest.mark.parametrize("kind", [fb.AODE, fb.KDB])
def test_leave_one_out__keeps_what_was_selected(kind: Any) -> None:
    model = kind(select="leave_one_out").fit(T, "y")
    stats = fb.count(T, "y", pairs=True, families=fb.KDB(2).families(fb.count(T, "y", pairs=True)))
    own = fb.leave_one_out(model, model.statistics_, T)
    full = fb.leave_one_out(model, stats, T)
    np.testing.assert_array_equal(full.proba, own.proba)
    assert full.fixed == ("schema", "structure")
    with pytest.raises(fb.SchemaError, match="chosen by the rows: fit the model first"):
        fb.leave_one_out(kind(select="leave_one_out"), stats, T)
    half = {n: v[:100] for n, v in T.items()}
    with pytest.raises(fb.SchemaError, match="by other rows"):
        fb.leave_one_out(kind(select="leave_one_out").fit(half, "y"), stats, T)
    folds = fb.k_fold(kind(select="leave_one_out"), T, "y", folds=4)
    assert folds.log_loss < fb.k_fold(kind(), T, "y", folds=4).log_loss


def test_compare__cuts_columns_alike_where_it_is_told_how() -> None:
    f = np.random.default_rng(0).normal(size=300)
    table = {"f": f, "y": np.where(f < 0, "n", "p")}
    models = {"w": fb.AODE(discretize=("width", 3)), "tan": "tan"}
    board = fb.compare(table, "y", models=models)
    assert [len(board[n].model.schema_.features[0].cuts) for n in models] == [2, 1]
    left_out = fb.compare(table, "y", models=models, validation="leave_one_out")
    assert [len(left_out[n].model.schema_.features[0].cuts) for n in models] == [2, 1]
    assert not left_out["tan"].reason
    alike = fb.compare(table, "y", models=models, discretize=("width", 3))
    for entry in alike.entries:
        model = getattr(entry.model, "model_", entry.model)
        assert model.discretize == ("width", 3)
        assert len(entry.model.schema_.features[0].cuts) == 2


def test_cut_points_of_the_model__are_those_of_the_statistics() -> None:
    f = np.random.default_rng(0).normal(size=50)
    stats = fb.count({"f": f, "y": np.where(f < 0, "n", "p")}, "y", pairs=True)
    with pytest.raises(fb.SchemaError, match=r"column 'f' cut at .*discretize=\{'f': \[9.0\]\}"):
        fb.AODE(discretize={"f": [9.0]}).fit_statistics(stats)


@pytest.mark.parametrize(
    "use",
    [
        lambda d: fb.AODE(discretize=d).fit(T, "y"),
        lambda d: fb.count(T, "y", pairs=True, discretize=d),
        lambda d: fb.compare(T, "y", discretize=d, models=["aode"]),
        lambda d: fb.k_fold(fb.TAN(discretize=d), T, "y", folds=2),
    ],
)
def test_how_to_cut__is_checked_where_there_is_nothing_to_cut(use: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="use 'mdl', 'quantile'"):
        use("foo")
    with pytest.raises(fb.SchemaError, match="there is no column 'no_such'"):
        use({"no_such": [1.0]})


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_where_many_pairs_stand__is_within_the_limit(threads: int) -> None:
    m = 520  # of so many columns the places of the pairs take half as much as counts of 9 cells
    assert m * (m - 1) // 2 > packed_counts.MANY_GROUPS
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"c{j}": rng.choice(list("uvw"), 20) for j in range(m)}
    table["y"] = rng.choice(["n", "p"], 20)
    limit = 12_000_000
    found = fb.TAN(memory_limit=limit, threads=threads).fit(table, "y")
    assert not found.statistics_.pairs.layout.complete
    assert found.parents_ == fb.TAN().fit(table, "y").parents_
    assert fb.plan(table, "y", pairs=True, memory_limit=limit, threads=threads).pairs.scans > 1


# With one thread, the pairs of the first fold fit the limit, and leave no room for the second's.
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_k_fold__of_more_pairs_than_fit(threads: int) -> None:
    table = wide()
    options = {"folds": 2, "threads": threads, "memory_limit": WIDE_LIMIT}
    within = fb.k_fold(fb.TAN(), table, "y", **options)
    np.testing.assert_allclose(
        within.proba, fb.k_fold(fb.TAN(), table, "y", folds=2).proba, rtol=1e-12
    )
    with pytest.raises(fb.MemoryLimitError):
        fb.k_fold(fb.AODE(memory_limit=10), T, "y", folds=2)


def test_folds__are_k_fold() -> None:
    table = {**T, "fold": [0, 1] * 100}
    board = fb.compare(table, "y", folds="fold", models=["aode"])
    assert board.validation == "k-fold"
    assert board.best.model.schema_.names == ("a", "b", "c")
    with pytest.raises(ValueError, match="has no folds"):
        fb.compare(table, "y", validation="leave_one_out", folds="fold")


@pytest.mark.parametrize("kind", [fb.NaiveBayes, fb.SPODE, fb.TAN, fb.AODE, fb.KDB])
def test_sums_that_would_overflow__are_refused(kind: Any) -> None:
    with pytest.raises(fb.DataError, match=r"1e\+100 at most"):
        kind().fit(T, "y", sample_weight=[1e308] * 200)
    with pytest.raises(ValueError, match=r"alpha=1e\+308: use a finite number >= 0, 1e"):
        kind(alpha=1e308).fit(T, "y")
    whole = kind().fit(T, "y").statistics_
    with pytest.raises(fb.DataError, match="scale them down"):
        kind()._learned(whole * 1e300)
    large = kind()._learned(whole * 1e90).predict_proba(X)
    np.testing.assert_allclose(large.sum(axis=1), 1)


def test_large_weights_of_super_parents__can_be_drawn_from() -> None:
    drawn = fb.AODE(weights=[1e308] * 3).fit(T, "y").sample(3, seed=0)
    assert drawn.num_rows == 3


def test_leave_one_out__of_rows_that_were_not_counted() -> None:
    rows = {"a": list("xxzz"), "b": list("pqpq"), "y": list("nnpp")}
    stats = fb.count(rows, "y", pairs=True)
    with pytest.raises(fb.DataError, match="column 'a' holds values that were not counted"):
        fb.leave_one_out(fb.AODE(), stats, {"a": ["z", "x"], "b": ["p", "q"], "y": ["n", "p"]})
    with pytest.raises(fb.SchemaError, match="counted without weights"):
        fb.leave_one_out(fb.AODE(), stats, rows, sample_weight=[0.5] * 4)


Q = {"a": list("xxzz"), "y": list("nnpp")}


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda: fb.compare({"y": ["n", "p"] * 3}, "y"), fb.DataError, "no column besides"),
        (lambda: fb.compare(fb_zero(), "y"), fb.DataError, "there are no rows"),
        (lambda: fb.AODE(alpha="loo").fit(Q, "y"), ValueError, "1e\\+100 at most$"),
        (lambda: fb.TAN(alpha="what").fit(Q, "y"), ValueError, "at most, or 'loo'"),
        (lambda: fb.SPODE(super_parent=None).fit(Q, "y"), ValueError, "super_parent=None: use"),  # type: ignore[arg-type]
        (lambda: fb.k_fold(fb.AODE(), Q, "y", folds=None), ValueError, "folds=None: use"),
        (lambda: fb.count(Q, "y", pairs="yes"), ValueError, "pairs='yes': use True"),  # type: ignore[arg-type]
        (
            lambda: fb.leave_one_out(fb.AODE, fb.count(Q, "y", pairs=True), Q),
            fb.SchemaError,
            "takes a model, not a class",
        ),
        (
            lambda: fb.k_fold(fb.AODE(), Q, "y", folds=2, seed="x"),  # type: ignore[arg-type]
            ValueError,
            "seed='x': use a whole number",
        ),
        (
            lambda: fb.AODE(memory_limit="1GB").fit({"f": [1.0, 2.0], "y": ["n", "p"]}, "y"),  # type: ignore[arg-type]
            ValueError,
            "memory_limit='1GB': use a number of bytes",
        ),
        (
            lambda: fb.AODE().fit_statistics(2 * (s := fb.count(Q, "y", pairs=True)) - s - s),
            fb.DataError,
            "all rows were taken away",
        ),
    ],
)
def test_errors__say_what_to_do(use: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        use()


def fb_zero() -> pa.Table:
    return pa.table(Q).slice(0, 0)


def test_an_identifier__is_remarked_upon(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(2)
    table = {"id": [f"r{i}" for i in range(1200)], "x": rng.choice(list("uv"), 1200)}
    fb.compare(table | {"y": rng.choice(["n", "p"], 1200)}, "y", models=["naive-bayes"])
    assert "an identifier says nothing about new rows; leave it out" in caplog.text
