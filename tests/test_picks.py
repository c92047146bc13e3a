"""Columns named by patterns mean the same wherever they are given."""

from __future__ import annotations

import json
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.errors import SchemaError
from fastbayes.core.picks import AllButIndex, ByPick, Selection, chosen, several
from fastbayes.core.suggestions import did_you_mean, meant_column
from fastbayes.data.source import open_source
from fastbayes.models.estimator.protocol import fresh
from tests.commands import run

NAMES = ["id_a", "id_b", "a", "b*", "y"]


@pytest.mark.parametrize(
    ("picks", "found"),
    [
        ("id_*", ["id_a", "id_b"]),
        (["b*"], ["b*"]),  # a name is no pattern
        (["?"], ["a", "y"]),
        (["[ay]", "a"], ["a", "y"]),
        ([-1, "id_?"], ["y", "id_a", "id_b"]),
    ],
)
def test_chosen__patterns(picks: Any, found: list[str]) -> None:
    assert chosen(NAMES, picks) == found


@pytest.mark.parametrize(
    ("pick", "says"),
    [
        ("id_x", "exclude: no column 'id_x'; .*; did you mean 'id_"),
        ("x_*", r"exclude: no column matches 'x_\*'"),
    ],
)
def test_chosen__says_what_stands_for_nothing(pick: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        chosen(NAMES, [pick], "exclude")


def test_suggestions__columns_have_fields_and_values_have_none() -> None:
    assert meant_column("when", ["when.hour", "whens"]) == "; of 'when' there are 'when.hour'"
    assert did_you_mean("1", [1.0, 2.0]) == ""
    assert did_you_mean(1, ["1", "1.5"]) == "; write '1', not 1"
    assert did_you_mean("A", ["A.1", "B"]) == ""


def test_selection__keeps_what_no_pattern_stands_for() -> None:
    everything = Selection.made(None, "*a*", ["y"])
    assert everything is not None
    assert everything.of(NAMES, "t") == ["id_b", "b*", "y"]
    assert "y" in everything
    assert "id_a" not in everything
    assert Selection.made(None, None) is None
    with pytest.raises(SchemaError, match="column 'y' holds the classes, weights or folds"):
        Selection(exclude=["y"], keep=("y",)).of(NAMES, "t")
    with pytest.raises(SchemaError, match="leave no column of t"):
        Selection(exclude=["*"], keep=("y",)).of(NAMES, "t")
    with pytest.raises(SchemaError, match="no column 'z' in t"):
        Selection(exclude=["a"], keep=("z",)).of(NAMES, "t")


def test_by_pick__a_name_comes_before_a_pattern() -> None:
    said = ByPick({"id_*": 1, "id_b": 2})
    assert (said.get("id_a"), said.get("id_b"), said.get("a")) == (1, 2, None)
    assert (len(said), [*said]) == (2, ["id_*", "id_b"])


def table(n: int = 200) -> dict[str, list[Any]]:
    random = np.random.default_rng(1)
    return {
        "id_a": [f"r{i}" for i in range(n)],
        "a": [*"uv" * (n // 2)],
        "x": random.normal(size=n).round(2).tolist(),
        "z1": random.integers(0, 3, n).tolist(),
        "id_b": [*range(n)],
        "y": random.choice([*"np"], n).tolist(),
        "w": random.integers(1, 3, n).tolist(),
    }


def fewer(held: dict[str, list[Any]], *names: str) -> dict[str, list[Any]]:
    return {name: held[name] for name in held if name not in names}


SAME: list[dict[str, Any]] = [
    {"exclude": "id_*"},
    {"exclude": [0, "id_b"]},
    {"columns": ["a", "x", "z?"]},
    {"columns": "*", "exclude": ["id_?"]},
]


@pytest.mark.parametrize("given", SAME, ids=str)
def test_count__is_that_of_the_columns_that_are_left(given: dict[str, Any]) -> None:
    held = table()
    wanted = fb.count(fewer(held, "id_a", "id_b"), "y", sample_weight="w", categorical=["z1"])
    found = fb.count(held, "y", sample_weight="w", categorical="z*", **given)
    assert found.schema == wanted.schema
    assert found == wanted


@pytest.mark.parametrize("given", SAME, ids=str)
def test_fit__is_that_of_the_columns_that_are_left(given: dict[str, Any]) -> None:
    held, own = table(), fewer(table(), "id_a", "id_b")
    wanted = fb.NaiveBayes().fit(own, "y", sample_weight="w")
    model = fb.NaiveBayes(**given).fit(held, "y", sample_weight="w")
    assert model.statistics_ == wanted.statistics_
    assert model.feature_names_in_.tolist() == ["a", "x", "z1"]
    left_out = ("id_a", "id_b") if 0 in [*given.get("exclude", [])] else ()
    np.testing.assert_array_equal(  # patterns tell what it does not use: no warning
        model.predict_proba(fewer(held, "y", "w", *left_out)),
        wanted.predict_proba(fewer(own, "y", "w")),
    )
    assert model.partial_fit(held, "y", sample_weight="w").statistics_ == (
        wanted.partial_fit(own, "y", sample_weight="w").statistics_
    )


def test_fit__leaves_out_columns_of_an_array() -> None:
    X = np.random.default_rng(2).normal(size=(60, 4))
    y = np.arange(60) % 2
    wanted = fb.NaiveBayes().fit(X[:, [0, 2, 3]], y)
    model = fb.NaiveBayes(exclude=[1]).fit(X, y)
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.predict_proba(X), wanted.predict_proba(X[:, [0, 2, 3]]))
    assert model.partial_fit(X, y).statistics_.n_rows == 120


MODELS = ["naive-bayes", "tan"]


@pytest.mark.parametrize("given", [{"exclude": [1]}, {"columns": ["x0", 2]}], ids=str)
@pytest.mark.parametrize(
    "fitted",
    [
        lambda X, y, **given: fb.NaiveBayes(**given).fit(X, y),
        lambda X, y, **given: fb.Calibrated(fb.TAN(**given)).fit(X, y),
        lambda X, y, **given: fb.Blend(MODELS, **given).fit(X, y),
        lambda X, y, **given: fb.fit(X, y, members=MODELS, **given),
        lambda X, y, **given: fb.compare(X, y, models=MODELS, **given).best.model,
        lambda X, y, **given: fb.compare(X, y, models=MODELS, **given).blend(),
    ],
    ids=["model", "Calibrated", "Blend", "fit", "best", "blend"],
)
def test_a_classifier__takes_the_array_that_it_was_fitted_to(
    fitted: Any, given: dict[str, Any], tmp_path: Path
) -> None:
    X = np.random.default_rng(2).normal(size=(90, 3))
    y = np.arange(90) % 2
    X[:, 2] += y
    model, wanted = fitted(X, y, **given), fitted(X[:, [0, 2]], y).predict_proba(X[:, [0, 2]])
    model.save(tmp_path / "m.fb")
    for one in (model, fb.load(tmp_path / "m.fb")):
        assert one.n_features_in_ == 3
        assert not hasattr(one, "feature_names_in_")
        np.testing.assert_allclose(one.predict_proba(X), wanted, rtol=1e-9)
        for member in getattr(one, "members_", {}).values():
            assert member.model.predict(X).shape == (90,)
        with pytest.raises(fb.DataError, match=r"2 features, but .* is expecting 3"):
            one.predict(X[:, :2])
    if hasattr(model, "members_"):
        piped = make_pipeline(StandardScaler(), fresh(model))
        assert cross_val_score(piped, X, y, cv=3, error_score="raise").min() > 0.5


def test_a_file_that_does_not_say_how_wide_the_array_was__takes_the_columns_left(
    tmp_path: Path,
) -> None:
    X = np.random.default_rng(2).normal(size=(90, 3))
    y = np.arange(90) % 2
    for model in (fb.TAN(exclude=[1]), fb.Blend(MODELS, exclude=[1])):
        wanted = model.fit(X, y).predict_proba(X)
        model.save(path := tmp_path / "m.fb", force=True)
        header, arrays = files.read(path)
        del header["state"]["width"]
        files.write(path, header, dict(arrays), force=True)
        np.testing.assert_array_equal(fb.load(path).predict_proba(X[:, [0, 2]]), wanted)


def test_validation__takes_the_same_columns() -> None:
    held, own = table(), fewer(table(), "id_a", "id_b", "w")
    wanted = fb.k_fold(fb.NaiveBayes(), own, "y", folds=4).log_loss
    left_out = ["id_*", "w"]
    assert fb.k_fold(fb.NaiveBayes(), held, "y", folds=4, exclude=left_out).log_loss == wanted
    assert fb.k_fold(fb.NaiveBayes(exclude=left_out), held, "y", folds=4).log_loss == wanted
    boards = [
        fb.compare(source, "y", models=["naive-bayes", "tan"], **given)
        for source, given in ((own, {}), (held, {"exclude": left_out}))
    ]
    figures = [[e.figures.log_loss for e in board.entries if e.figures] for board in boards]
    assert figures[0] == figures[1]
    model = fb.NaiveBayes(exclude=left_out)
    stats = fb.count(held, "y", exclude=left_out)
    assert fb.leave_one_out(model, stats, held).log_loss == (
        fb.leave_one_out(fb.NaiveBayes(), fb.count(own, "y"), own).log_loss
    )


def test_network__takes_the_same_columns() -> None:
    held = fewer(table(), "x")
    wanted = fb.BayesianNetwork.learn(fewer(held, "id_a", "id_b"), categorical=["z1", "w"])
    found = fb.BayesianNetwork.learn(held, exclude="id_*", categorical=["z*", "w"])
    assert found == wanted


def test_statistics__with_a_column_that_the_model_leaves_out_are_refused() -> None:
    stats = fb.count(fewer(table(), "id_a"), "y")
    with pytest.raises(SchemaError, match="counted with column 'id_b', which the model leaves out"):
        fb.NaiveBayes(exclude="id_*").fit_statistics(stats)


def test_files__what_is_excluded_may_differ_between_files(tmp_path: Path) -> None:
    held = fewer(table(), "id_b", "w")
    pq.write_table(pa.table(held), tmp_path / "a.parquet")
    other = pa.table({**held, "id_a": range(200), "id_c": range(200)})
    pq.write_table(other, tmp_path / "b.parquet")
    twice = fb.count(tmp_path, "y", exclude="id_*")
    assert twice.n_rows == 400
    with pytest.raises(SchemaError, match="has a column 'id_c' that"):
        open_source(tmp_path, columns=Selection.made(None, ["id_a"]), schema_mode="strict")


def test_csv__a_pattern_makes_text_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip_a,zip_b,y\n007,1,n\n08,2,p\n")
    stats = fb.count(tmp_path / "t.csv", "y", categorical="zip_*")
    assert [f.values.to_pylist() for f in stats.schema.categorical] == [["007", "08"], ["1", "2"]]


def test_a_file__says_of_columns_only_where_they_were_given(tmp_path: Path) -> None:
    held = fewer(table(), "id_a", "id_b", "w")
    fb.NaiveBayes().fit(held, "y").save(tmp_path / "plain.fb")
    fb.NaiveBayes(exclude="z*").fit(held, "y").save(tmp_path / "fewer.fb")
    plain, less = (fb.load(tmp_path / name) for name in ("plain.fb", "fewer.fb"))
    assert b'"exclude"' not in (tmp_path / "plain.fb").read_bytes()
    assert (plain.exclude, less.exclude, less.schema_.names) == (None, "z*", ("a", "x"))


def test_command_line(tmp_path: Path) -> None:
    pq.write_table(pa.table(fewer(table(), "w")), tmp_path / "t.parquet")
    data, model = str(tmp_path / "t.parquet"), str(tmp_path / "m.fb")
    run("fit", data, "--target", "y", "--exclude", "id_*", "--categorical", "z*", "-o", model)
    assert fb.load(model).schema_.names == ("a", "x", "z1")
    stats = str(tmp_path / "s.fbs")
    run("count", data, "--target", "y", "--columns", "id_*,a", "--exclude", "id_b", "-o", stats)
    assert fb.load(stats).schema.names == ("id_a", "a")
    made = run("compare", data, "--target", "y", "--models", "naive-bayes", "--exclude", "id_*",
               "--json")  # fmt: skip
    assert json.loads(made.stdout)["models"][0]["model"] == "naive-bayes"
    network = str(tmp_path / "n.bif")
    run("network", "learn", data, "--exclude", "id_*,x", "--categorical", "z*", "-o", network)
    assert sorted(fb.BayesianNetwork.read_bif(network).nodes) == ["a", "y", "z1"]
    wrong = run("fit", data, "--target", "y", "--exclude", "ix_*", "-o", model, "--force", code=1)
    assert "exclude: no column matches 'ix_*'" in wrong.stderr


@pytest.mark.parametrize("name", ["id", None])
@pytest.mark.parametrize(
    "form", ["t.parquet", "t.arrow", "table", "nested", "reader", "batches", "dataset", "polars"]
)
def test_the_index_of_a_pandas_frame__is_no_feature_unless_it_is_named(
    tmp_path: Path, form: str, name: str | None
) -> None:
    index = pd.Index(np.arange(30) * 3, name=name)
    frame = pd.DataFrame({"x": [*"uvw"] * 10, "y": np.repeat([*"ab"], 15)}, index=index)
    column = name or "__index_level_0__"
    rows = pa.Table.from_pandas(frame)

    pq.write_table(rows, path := tmp_path / "t.parquet")
    feather.write_feather(rows, tmp_path / "t.arrow")
    makers: dict[str, Any] = {
        "table": lambda: rows,
        "nested": lambda: rows.append_column("s", pa.array([{"v": "w"}] * 30)),
        "reader": rows.to_reader,
        "batches": lambda: iter(rows.to_batches()),
        "dataset": lambda: ds.dataset(path),
        "polars": lambda: rows if name else pl.scan_parquet(path),
    }
    source = makers.get(form, lambda: tmp_path / form)
    usual = ("x", "s.v") if form == "nested" else ("x",)
    for learned in (
        fb.count(source(), "y").schema,
        fb.count(source(), "y", columns="*").schema,
        fb.count(source(), "y", exclude=[]).schema,
        fb.NaiveBayes().fit(source(), "y").partial_fit(source(), "y").schema_,
    ):
        assert learned.names == usual
    assert fb.count(source(), "y", sample_weight=column).weighted
    assert fb.count(source(), column, columns="x").schema.target == column
    plain = fb.NaiveBayes().fit(frame, "y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if form != "nested":
            assert plain.score(source(), "y") == plain.score(frame, "y")
            fb.evaluate(plain, source())
    asked = fb.NaiveBayes(columns=["x", column]).fit(source(), "y")
    assert asked.schema_.names == ("x", column)
    assert asked.partial_fit(source(), "y").predict(source()).shape == (30,)
    fb.predict_to(plain, source(), tmp_path / "p.parquet", keys=[column])
    assert pq.read_table(tmp_path / "p.parquet")[column].to_pylist() == index.to_list()


def indexed(**index: Any) -> pd.DataFrame:
    """Return rows of an index of this name and these values."""
    [(name, values)] = index.items()
    rows = {"x": [*"uvw"] * 10, "z": np.arange(30) / 7, "y": [*"ab"] * 15, name: values}
    return pd.DataFrame(rows).set_index(name)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"categorical": ["k"]}, "k"),
        ({"categorical": "k"}, "k"),
        ({"domains": {"k": [*range(30)]}}, "k"),
        ({"numeric": {"k": "kde"}}, "k"),
        ({"discretize": {"k": [5.0, 9.0]}, "pairs": True}, "k"),
        ({"columns": ["x", -1]}, "k"),
        ({"columns": "*", "categorical": ["k"]}, "k"),
        ({"dates": {"k": ["hour"]}}, "k.hour"),
    ],
)
def test_an_index_that_an_option_names__is_read(options: dict[str, Any], name: str) -> None:
    hours = pd.date_range("2024-01-01", periods=30, freq="h")
    frame = indexed(k=hours if "dates" in options else range(30))
    rows = pa.Table.from_pandas(frame, preserve_index=True)
    assert name in fb.count(rows, "y", **options).schema.names
    model = fb.NaiveBayes(**{k: v for k, v in options.items() if k not in ("discretize", "pairs")})
    if "discretize" in options:
        model = fb.TAN(discretize=options["discretize"])
    if "numeric" not in options:
        assert name in model.fit(rows, "y").schema_.names
        with pytest.raises(SchemaError, match="'k' is the index of a pandas frame: make it a col"):
            model.predict(frame)


@pytest.mark.parametrize("exclude", ["__index*", ["__index_level_0__"], [-1]])
def test_an_index__is_excluded_as_any_column(exclude: Any) -> None:
    frame = indexed(k=range(30)).rename_axis(None)
    rows = pa.Table.from_pandas(frame, preserve_index=True)
    assert fb.count(rows, "y", exclude=exclude).schema.names == ("x", "z")
    assert fb.NaiveBayes(exclude=exclude).fit(rows, "y").schema_.names == ("x", "z")


@pytest.mark.parametrize("mode", ["union", "strict", "first"])
def test_indices_that_differ__keep_no_files_from_being_read(tmp_path: Path, mode: str) -> None:
    numbers, texts = range(5, 35), [f"r{i}" for i in range(30)]
    frames = [indexed(k=numbers).rename_axis(None), indexed(k=texts).rename_axis(None)]
    frames += [frames[0].reset_index(drop=True)]
    paths = [tmp_path / f"{j}.parquet" for j in range(3)]
    for frame, path in zip(frames, paths, strict=True):
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=frame is not frames[2]), path)
    for given in (paths, paths[::-1]):
        stats = fb.count(fb.Files(given, schema_mode=mode), "y", on_error="skip")
        assert stats.schema.names == ("x", "z")
        assert stats.n_rows == 90
        model = fb.NaiveBayes().fit(fb.Files(given, schema_mode=mode), "y")
        assert len(model.predict(fb.Files(given, schema_mode=mode))) == 90
        named = fb.Files(given, schema_mode=mode)
        with pytest.raises(SchemaError, match="'__index_level_0__'"):
            fb.count(named, "y", categorical=["__index_level_0__"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["k"]}, r"columns: no column 'k' .*: make it a column by reset_index\(\)$"),
        ({"categorical": ["k"]}, "no column 'k' .*'k' is the index of a pandas frame: make it"),
        ({"columns": "k*"}, "'k' is the index of a pandas frame: make it a column"),
    ],
)
def test_the_index_of_a_frame_that_is_named__is_told(options: dict[str, Any], says: str) -> None:
    frame = indexed(k=[*"pq"] * 15)
    rows = pa.Table.from_pandas(frame)
    with pytest.raises(SchemaError, match=says):
        fb.count(frame, "y", **options)
    with pytest.raises(SchemaError, match=says):
        fb.NaiveBayes(**options).fit(frame, "y")
    with pytest.raises(SchemaError, match="name it in `columns`, or make it a column"):
        fb.count(rows, "y", columns=["x"], categorical=["k"])
    with pytest.raises(
        SchemaError, match=r"columns: .*'k' is the .*: name it without a pattern, or"
    ):
        fb.count(rows, "y", columns="k*")
    with pytest.raises(SchemaError, match=r"no column 'k' .*'k' is the index of a pandas frame"):
        fb.NaiveBayes().fit(frame, "k")
    with pytest.raises(SchemaError, match=r"no column 'k' .*'k' is the index of a pandas frame"):
        fb.count(frame, "k")
    # A column of the same name is what is meant.
    assert fb.count(frame.reset_index().set_index("k", drop=False), "k").n_rows == 30


def test_columns_but_an_index__need_no_copy_and_late_ones_are_found() -> None:
    array = np.zeros((4, 3))
    assert np.shares_memory(open_source(array, columns=AllButIndex())._rows, array)  # type: ignore[attr-defined]
    late = [
        pa.record_batch({"x": ["a"], "y": ["b"]}),
        pa.record_batch({"x": ["a"], "y": ["b"], "w": [1]}),
    ]
    with pytest.raises(SchemaError, match="a later batch has a column 'w'"):
        fb.count(iter(late), "y")
    with pytest.raises(SchemaError, match="no column but the index of a pandas frame, k; name it"):
        open_source(
            pa.Table.from_pandas(indexed(k=range(30))[[]], preserve_index=True),
            columns=AllButIndex(),
        )


def test_keys__one_number_of_numpy(tmp_path: Path) -> None:
    rows = fewer(table(), "w")
    model = fb.NaiveBayes().fit(rows, "y")
    for keys in (1, np.int64(1), [np.int64(1)]):
        made = fb.predict_to(model, rows, tmp_path / "p.parquet", keys=keys, force=True)
        assert made.columns == ([*rows][1], "prediction")


def test_metadata_of_pandas_that_is_none__is_passed_over() -> None:
    rows = pa.table({"x": [1.0, 2.0], "y": ["a", "b"]})
    for said in (b"{", b"[]", b"5", b'{"index_columns": 5}', b'{"index_columns": [{"kind": "x"}]}'):
        assert fb.count(rows.replace_schema_metadata({b"pandas": said}), "y").schema.names == ("x",)


# -- options of a model beside counts of rows --------------------------------------------------


def leaking(n: int = 120) -> dict[str, Any]:
    """Return rows whose first column is the class."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, n)
    noisy = np.where(rng.random(n) < 0.3, 1 - y, y)
    columns = {"leak": y, "a": noisy, "b": rng.integers(0, 3, n), "y": y}
    return {name: np.array([*"uvw"])[codes] for name, codes in columns.items()}


BY_INDEX = pytest.mark.parametrize(
    ("at", "named"),
    [
        ({"exclude": [0]}, {"exclude": ["leak"]}),
        ({"columns": [1, np.int64(2)]}, {"columns": ["a", "b"]}),
        ({"columns": -1}, {"columns": "b"}),
    ],
    ids=str,
)


@BY_INDEX
def test_an_index_of_a_model__counts_no_columns_of_statistics(
    at: dict[str, Any], named: dict[str, Any]
) -> None:
    """They do not know what was left out: an index must not leave nothing out instead."""
    rows, model = leaking(), fb.TAN(**at)
    stats, (option,) = fb.count(rows, "y", pairs=True), at
    refused = rf"{option}=\[.*\]: an index counts the columns of rows, and says nothing of those"
    for call in (
        lambda: model.fit_statistics(stats),
        lambda: fb.leave_one_out(model, stats, rows),
    ):
        with pytest.raises(SchemaError, match=rf"{refused} .*; use names, or patterns of names"):
            call()
    models = {"m": model, "other": "tan"}
    instead = rf"read the rows alike: ask for that with `{option}` instead, or leave the model out"
    reason = fb.compare(rows, "y", models=models)["m"].reason
    assert re.search(rf"{refused} .* all models of a comparison {instead}", reason)
    reason = fb.Blend(models).fit(rows, "y").dropped_["m"]
    assert re.search(rf"{refused} .* all models of a blend {instead}", reason)
    with pytest.raises(SchemaError, match=rf"m: {refused} .* a learning curve {instead}"):
        fb.learning_curve(models, rows, "y", [60], 1)


@BY_INDEX
def test_an_index_of_a_model__counts_columns_wherever_it_reads_the_rows(
    at: dict[str, Any], named: dict[str, Any]
) -> None:
    rows = leaking()

    def figures(options: dict[str, Any]) -> list[Any]:
        model = fb.NaiveBayes(**options)
        spode = fb.SPODE(super_parent="cv", **options).fit(rows, "y")
        return [
            fb.k_fold(model, rows, "y", folds=4).log_loss,
            *fb.alpha_sweep(model, rows, "y", [0.1, 1.0]).log_loss,
            *fb.Calibrated(model, folds=3).fit(rows, "y").log_loss_,
            model.fit(rows, "y").importance(rows).table.to_pylist(),
            spode.super_parent_,
        ]

    assert figures(at) == figures(named)


@BY_INDEX
def test_an_index_of_a_model__is_no_matter_beside_its_own_statistics(
    at: dict[str, Any], named: dict[str, Any]
) -> None:
    rows = leaking()

    def figures(options: dict[str, Any]) -> list[float]:
        models = [fb.TAN(**options), fb.SPODE(super_parent="cv", **options)]
        fitted = [model.fit(rows, "y") for model in models]
        return [fb.leave_one_out(model, model.statistics_, rows).log_loss for model in fitted]

    assert figures(at) == figures(named)


def test_several__are_plain_names_and_numbers() -> None:
    assert repr(several(np.array(["a", "b"]))) == "['a', 'b']"
    assert repr(several(("a", 1))) == "['a', 1]"


@pytest.mark.parametrize("picks", [["k"], [1], [-2]], ids=str)
def test_categorical__an_index_counts_columns_beside_parts_of_dates(picks: list[Any]) -> None:
    n = 200
    days = pd.date_range("2024-01-01", periods=n, freq="17h")
    rows = {"when": days, "k": np.arange(n) ** 2 % 3, "z": np.arange(n) % 7.0, "y": [*"ab"] * 100}
    table = pa.table(rows)
    model = fb.NaiveBayes(categorical=picks, dates={"when": ["hour", "elapsed"]})
    model.fit(table, "y")
    given: dict[str, Any] = {"categorical": ["k"], "dates": model.dates}
    stats = fb.count(table, "y", **given)
    assert fb.NaiveBayes(**model.get_params()).fit_statistics(stats).schema_ == model.schema_
    board = fb.compare(table, "y", models=[model, "tan"], **given)
    assert not board[repr(model)].reason
    with pytest.raises(SchemaError, match="counted with column 'k' as numeric"):
        model.fit_statistics(fb.count(table, "y", dates=model.dates))
    parts = fb.NaiveBayes(**model.get_params()).partial_fit(table[:100], "y")
    assert parts.partial_fit(table[100:], "y").schema_ == model.schema_


@pytest.mark.parametrize("option", ["categorical", "columns", "exclude"])
def test_an_iterator_of_a_model__is_refused_for_it_is_gone_after_one_fit(option: str) -> None:
    rows = leaking()
    gone = rf"{option}: an iterator can be read only once, and a model may be fitted again: use a"
    for make in (fb.NaiveBayes, fb.TAN, partial(fb.Blend, ["naive-bayes"])):
        model = make(**{option: iter(["a"])})
        with pytest.raises(ValueError, match=gone):
            model.fit(rows, "y")
        assert [*getattr(model, option)] == ["a"]
    with pytest.raises(ValueError, match=gone):
        fb.k_fold(fb.NaiveBayes(**{option: iter(["a"])}), rows, "y", folds=3)
    models = {"m": fb.NaiveBayes(**{option: iter(["a"])}), "other": "tan"}
    assert re.match(gone, fb.compare(rows, "y", models=models)["m"].reason)
    for again in ({"a": None}, {"a": None}.keys(), ("a",), {"a"}):
        model = fb.NaiveBayes(**{option: again}).fit(rows, "y")
        assert model.fit(rows, "y").schema_ == fb.count(rows, "y", **{option: iter(["a"])}).schema
