"""How NaiveBayes describes numeric columns: what `numeric` must agree with, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, run

import fastbayes as fb

N = 400
RNG = np.random.default_rng(4)
Y = RNG.choice(["a", "b", "c"], N)
SHIFT = (Y == "a") * 2.0 - (Y == "b") * 3.0
ROWS = pa.table(
    {
        "x": pa.array(RNG.normal(size=N) + SHIFT, mask=RNG.random(N) < 0.1),
        "k": RNG.choice(["p", "q"], N),
        "z": np.exp(RNG.normal(size=N) + SHIFT / 2),
        "y": Y,
    }
)


def cut_by_hand(rows: pa.Table, name: str, cuts: Any) -> pa.Table:
    """Return the rows with a column replaced by the text of its bins."""
    x = rows[name].to_numpy(zero_copy_only=False)
    bins = np.array([f"{i:03}" for i in range(len(cuts) + 1)], dtype=object)
    codes = np.searchsorted(cuts, x, side="left")
    texts = np.where(np.isnan(x), None, bins[np.minimum(codes, len(cuts))])
    column = pa.array(texts, pa.string(), from_pandas=True)
    return rows.set_column(rows.schema.get_field_index(name), name, column)


# -- bins --------------------------------------------------------------------------------------


def test_mdl__is_the_column_cut_at_the_points_of_tan() -> None:
    model = fb.NaiveBayes(numeric="mdl").fit(ROWS, "y")
    cuts = {f.name: f.cuts for f in fb.TAN().fit(ROWS, "y").schema_.features if f.cuts is not None}
    assert {f.name for f in model.schema_.categorical} == {"x", "k", "z"}
    by_hand, domains = ROWS, {}
    for name, points in cuts.items():
        np.testing.assert_array_equal(model.schema_.features["xkz".index(name)].cuts, points)
        assert len(points) > 0
        by_hand = cut_by_hand(by_hand, name, points)
        domains[name] = [f"{i:03}" for i in range(len(points) + 1)]
    plain = fb.NaiveBayes(domains=domains).fit(by_hand, "y")
    np.testing.assert_array_equal(model.log_joint(ROWS), plain.log_joint(by_hand))
    assert model.n_parameters_ == plain.n_parameters_


def test_mdl__of_one_column_leaves_the_others() -> None:
    model = fb.NaiveBayes(numeric={"x": "mdl"}).fit(ROWS, "y")
    assert [f.name for f in model.schema_.numeric] == ["z"]
    whole = fb.NaiveBayes(numeric="mdl").fit(ROWS, "y")
    mixed = model.explain(ROWS).contributions
    np.testing.assert_array_equal(mixed[:, 0], whole.explain(ROWS).contributions[:, 0])
    gaussian = fb.NaiveBayes().fit(ROWS, "y").explain(ROWS).contributions
    np.testing.assert_array_equal(mixed[:, 2], gaussian[:, 2])


def test_mdl__cut_points_may_be_given() -> None:
    model = fb.NaiveBayes(numeric={"x": [0.0, 1.0], "z": "gaussian"}).fit(ROWS, "y")
    assert model.schema_.features[0].cuts.tolist() == [0.0, 1.0]
    stats = fb.count(ROWS, "y", numeric={"x": [0.0, 1.0]})
    assert stats == model.statistics_
    assert stats == fb.count(ROWS, "y", numeric={"x": "mdl"}, discretize={"x": [0.0, 1.0]})


def test_mdl__partial_fit_keeps_the_cuts() -> None:
    model = fb.NaiveBayes(numeric={"x": "mdl"})
    model.partial_fit(ROWS.slice(0, 250), "y")
    cuts = model.schema_.features[0].cuts
    model.partial_fit(ROWS.slice(250), "y")
    np.testing.assert_array_equal(model.schema_.features[0].cuts, cuts)
    given = fb.NaiveBayes(numeric={"x": cuts}).fit(ROWS, "y")
    np.testing.assert_allclose(model.predict_proba(ROWS), given.predict_proba(ROWS), rtol=1e-10)


def test_mdl__k_fold_learns_cuts_without_each_fold() -> None:
    fold = np.arange(N) % 3
    for numeric in ("mdl", {"x": "mdl"}, {"x": [0.5]}):
        found = fb.k_fold(fb.NaiveBayes(numeric=numeric), ROWS, "y", folds=fold)
        for f in range(3):
            rest, held = ROWS.filter(pa.array(fold != f)), ROWS.filter(pa.array(fold == f))
            expected = fb.NaiveBayes(numeric=numeric).fit(rest, "y").predict_proba(held)
            np.testing.assert_allclose(found.proba[fold == f], expected, rtol=0, atol=1e-10)


def test_mdl__leave_one_out_is_refitting_at_the_same_points() -> None:
    few = ROWS.slice(0, 40)
    model = fb.NaiveBayes(numeric={"x": [0.0, 1.0], "z": [1.0]})
    stats = fb.count(few, "y", numeric=model.numeric)
    found = fb.leave_one_out(model, stats, few).proba
    for r in range(len(few)):
        rest = pa.concat_tables([few.slice(0, r), few.slice(r + 1)])
        expected = model.fit(rest, "y").predict_proba(few.slice(r, 1))[0]
        np.testing.assert_allclose(found[r], expected, rtol=0, atol=1e-12)


def test_mdl__draws_numbers_and_is_a_network() -> None:
    model = fb.NaiveBayes(numeric="mdl").fit(ROWS, "y")
    drawn = model.sample(200, seed=0)
    assert drawn.column("z").type == pa.float64()
    again = fb.NaiveBayes(numeric="mdl").fit(drawn, "y")
    assert again.score(ROWS, "y") > 0.5
    assert len(model.to_network().nodes) == 4


def test_mdl__rows_without_a_class_take_part() -> None:
    unknown = pa.array([None if r % 5 == 0 else v for r, v in enumerate(Y)])
    rows = ROWS.set_column(3, "y", unknown)
    cuts = {"x": [-1.0, 0.5], "z": [1.0, 3.0]}
    model = fb.NaiveBayes(numeric=cuts, unlabelled="em").fit(rows, "y")
    by_hand = cut_by_hand(cut_by_hand(rows, "x", cuts["x"]), "z", cuts["z"])
    plain = fb.NaiveBayes(unlabelled="em").fit(by_hand, "y")
    np.testing.assert_allclose(model.predict_proba(rows), plain.predict_proba(by_hand), rtol=1e-6)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("numeric", ["normal", None, 3, ["mdl"], {"x": "normal"}])
def test_kind__that_is_not_known_is_refused(numeric: Any) -> None:
    for call in (
        lambda: fb.NaiveBayes(numeric=numeric).fit(ROWS, "y"),
        lambda: fb.count(ROWS, "y", numeric=numeric),
    ):
        with pytest.raises(ValueError, match=r"numeric.*use one of 'gaussian'"):
            call()


@pytest.mark.parametrize(
    ("numeric", "message"),
    [
        ({"w": "mdl"}, "there is no column 'w'; the numeric columns are"),
        ({"k": "mdl"}, "column 'k' is categorical; leave it out of `numeric`"),
        ({"x": [1.0, 1.0]}, "column 'x': cut points must be finite numbers in ascending order"),
    ],
)
def test_kind__of_what_is_no_numeric_column_is_refused(numeric: Any, message: str) -> None:
    with pytest.raises(fb.SchemaError, match=message):
        fb.NaiveBayes(numeric=numeric).fit(ROWS, "y")
    with pytest.raises(fb.SchemaError, match=message):
        fb.count(ROWS, "y", numeric=numeric)
    with pytest.raises(fb.SchemaError, match=message):
        fb.NaiveBayes(numeric=numeric).fit_statistics(fb.count(ROWS, "y"))


def test_statistics__counted_in_another_way_are_refused() -> None:
    numbers, bins = fb.count(ROWS, "y"), fb.count(ROWS, "y", numeric="mdl")
    for numeric, stats, message in (
        ("mdl", numbers, "column 'x' as a number, the model wants it in bins"),
        ({"z": "mdl"}, numbers, "column 'z' as a number"),
        ({"z": "mdl"}, bins, "column 'x' in bins, the model describes it by numeric='gaussian'"),
        ({"x": [7.0], "z": "mdl"}, bins, "the model has 2 bins cut at 7; count again"),
    ):
        with pytest.raises(fb.SchemaError, match=message):
            fb.NaiveBayes(numeric=numeric).fit_statistics(stats)
    assert fb.NaiveBayes().fit_statistics(bins).predict(ROWS).shape == (N,)


# -- the command line --------------------------------------------------------------------------


def test_command_line__counts_and_fits(tmp_path: Path) -> None:
    csv, stats, model = (tmp_path / name for name in ("d.csv", "s.fbs", "m.fb"))
    ROWS.to_pandas().to_csv(csv, index=False)
    run("count", csv, "--target", "y", "-o", stats, "--numeric", "z=mdl")
    assert fb.Statistics.load(stats).schema.numeric[0].name == "x"
    run("fit", "--statistics", stats, "-o", model, "--numeric", "z=mdl")
    assert fb.load(model).numeric == {"z": "mdl"}
    run("fit", csv, "--target", "y", "-o", model, "--force", "--numeric", "mdl")
    plain = fb.NaiveBayes(numeric="mdl").fit(str(csv), "y")
    np.testing.assert_array_equal(fb.load(model).log_joint(ROWS), plain.log_joint(ROWS))
    told = fails("fit", csv, "--target", "y", "--numeric", "z=curve", folder=tmp_path, code=2)
    assert "'curve': use one of 'gaussian'" in told


def test_command_line__says_which_density_was_chosen(tmp_path: Path) -> None:
    csv, stats, model = (tmp_path / name for name in ("d.csv", "s.fbs", "m.fb"))
    ROWS.to_pandas().to_csv(csv, index=False)
    told = answer("fit", csv, "--target", "y", "-o", model, "--numeric", "auto", "--json")
    kinds = fb.NaiveBayes(numeric="auto").fit(str(csv), "y").numeric_
    assert told["densities"] == kinds
    assert answer("inspect", model, "--json")["densities"] == kinds
    run("count", csv, "--target", "y", "-o", stats)
    refused = fails("fit", "--statistics", stats, "-o", "n.fb", "--numeric", "kde", folder=tmp_path)
    assert "holds no sketches, which naive-bayes needs; count again with --numeric" in refused
    run("count", csv, "--target", "y", "-o", stats, "--numeric", "histogram", "--force")
    run("fit", "--statistics", stats, "-o", model, "--numeric", "x=kde,z=auto", "--force")
    assert fb.load(model).numeric_["x"] == "kde"


# -- what it takes ------------------------------------------------------------------------------


def test_plan__tells_the_bytes_of_sketches() -> None:
    plain, sketched = (fb.plan(ROWS, "y", numeric=n, threads=1) for n in ("gaussian", "kde"))
    # Two columns, three classes, two copies; so few rows fit in 2048 slots of 32 bytes.
    assert sketched.total - plain.total == 2 * 3 * 2 * 2048 * 32
    assert sketched.columns["x"] - plain.columns["x"] == 3 * 2 * 2048 * 32
    bins = fb.plan(ROWS, "y", numeric="mdl", threads=1)
    assert bins.columns["x"] != plain.columns["x"]
    stats = fb.count(ROWS, "y", numeric="kde", threads=1, memory_limit=sketched.total)
    assert "sketches" in stats.parts
    with pytest.raises(fb.MemoryLimitError, match="sketching numeric columns needs"):
        fb.count(ROWS, "y", numeric="kde", threads=1, memory_limit=sketched.total // 2)


def test_checkpoint__and_no_class_and_skipping(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(ROWS, path)
    whole = fb.count(str(path), "y", numeric="auto")
    kept = fb.count(str(path), "y", numeric="auto", checkpoint=tmp_path / "c", on_error="skip")
    assert kept == whole
    alone = fb.count(ROWS.drop_columns("y"), None, numeric="kde")
    held = alone.sketches.of(0, 0)
    assert held.weight.sum() == N - ROWS["x"].null_count
