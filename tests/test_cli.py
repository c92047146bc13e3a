"""What each command does, prints and leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from commands import answer, fails, parquet, run, tennis

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.cli.options import n_bytes, names
from fastbayes.cli.show import plain, size
from fastbayes.data.paths import find_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return parquet(tennis(), tmp_path / "tennis.parquet")


@pytest.fixture
def model(data: Path) -> Path:
    path = data.with_name("m.fb")
    run("fit", data, "--target", "play", "-o", path)
    return path


def csv_of(text: str, path: Path) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# -- fit ---------------------------------------------------------------------------------------


def test_fit__gives_the_model_of_the_library(data: Path, tmp_path: Path) -> None:
    said = answer(
        "fit", data, "--target", "play", "--alpha", "0.5", "--variance", "shared", "--unseen",
        "smooth", "--class-prior", "uniform", "--model", "naive-bayes", "--numeric", "gaussian",
        "-o", tmp_path / "m.fb",
    )  # fmt: skip
    expected = fb.NaiveBayes(
        alpha=0.5, variance="shared", unseen="smooth", class_prior="uniform"
    ).fit(tennis(), "play")
    made = fb.load(tmp_path / "m.fb")
    assert made.statistics_ == expected.statistics_
    assert made.get_params() == expected.get_params()
    assert np.array_equal(made.predict_proba(tennis()), expected.predict_proba(tennis()))
    assert said["rows"] == 1000
    assert said["classes"] == ["no", "yes"]
    assert said["parameters"] == expected.n_parameters_
    assert said["alpha"] == 0.5


def test_fit__options_reach_the_count(tmp_path: Path) -> None:
    table = tennis().append_column("n", pa.array(np.arange(1000) % 3))
    table = table.append_column("w", pa.array(np.arange(1000) / 1000))
    data = parquet(table, tmp_path / "d.parquet")
    run(
        "fit", data, "--target", "play", "--columns", "sky,n", "--categorical", "n", "--weight",
        "w", "--missing", "category", "--null-values", "rain", "--memory-limit", "1M", "--threads",
        "2", "-o", tmp_path / "m.fb",
    )  # fmt: skip
    made = fb.load(tmp_path / "m.fb")
    expected = fb.count(
        table, "play", columns=["sky", "n"], categorical=["n"], sample_weight="w",
        missing="category", null_values=["rain"],
    )  # fmt: skip
    assert made.statistics_ == expected
    assert made.missing == "category"


def test_fit__alpha_by_leave_one_out(data: Path, tmp_path: Path) -> None:
    said = answer("fit", data, "--target", "play", "--alpha", "loo", "-o", tmp_path / "m.fb")
    assert said["alpha"] == fb.NaiveBayes(alpha="loo").fit(tennis(), "play").alpha_


def test_fit__statistics_instead_of_data(data: Path, model: Path, tmp_path: Path) -> None:
    run("count", data, "--target", "play", "-o", tmp_path / "s.fbs")
    run("fit", "--statistics", tmp_path / "s.fbs", "-o", tmp_path / "n.fb")
    assert fb.load(tmp_path / "n.fb").statistics_ == fb.load(model).statistics_
    said = fails(
        "fit", "--statistics", tmp_path / "s.fbs", "--columns", "sky", "-o", tmp_path / "x.fb",
        folder=tmp_path, code=2,
    )  # fmt: skip
    assert "--columns goes with DATA" in said


@pytest.mark.parametrize("given", [[], ["DATA", "--statistics", "s.fbs"], ["DATA"]])
def test_fit__needs_data_or_statistics(data: Path, given: list[str]) -> None:
    args = [str(data) if arg == "DATA" else arg for arg in given]
    fails("fit", *args, "-o", data.with_name("x.fb"), folder=data.parent, code=2)


# -- predict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ""])
def test_predict__writes_what_the_model_says(model: Path, data: Path, suffix: str) -> None:
    out = data.with_name(f"out{suffix}")
    said = answer("predict", model, data, "--proba", "-o", out)
    readers = {".parquet": pq.read_table, ".arrow": _ipc, ".csv": _csv, "": pq.read_table}
    read = readers[suffix](out)
    fitted = fb.load(model)
    assert read.column_names == ["prediction", "proba_no", "proba_yes"] == said["columns"]
    assert read["prediction"].to_pylist() == fitted.predict(tennis()).tolist()
    proba = np.column_stack([read["proba_no"], read["proba_yes"]])
    assert np.array_equal(proba, fitted.predict_proba(tennis()))
    assert said["rows"] == 1000
    assert said["unseen_values"] == {}


def test_predict__parts_and_chosen_probabilities(model: Path, data: Path) -> None:
    one, parts = data.with_name("one.arrow"), data.with_name("parts.arrow")
    options = ("--proba", "predicted", "--precision", "fast")
    said = answer("predict", model, data, *options, "--no-parts", "-o", one)
    assert said["columns"] == ["prediction", "proba"]
    run("predict", *options, model, data, "--parts", "-o", parts)
    read = _ipc(parts / "part-00000.arrow")
    assert read.equals(_ipc(one))
    expected = fb.load(model).predict_proba(tennis()).max(axis=1).astype(np.float32)
    assert np.array_equal(read["proba"], expected)
    again = fails("predict", model, data, "--parts", "-o", parts, folder=data.parent)
    assert "is not empty" in again
    run("predict", model, data, "--parts", "--force", "-o", parts)
    assert _ipc(parts / "part-00000.arrow").column_names == ["prediction"]
    wrong = fails("predict", model, data, "-o", data.with_name("x.txt"), folder=data.parent, code=2)
    assert "the name says no format" in wrong


def _ipc(path: Path) -> pa.Table:
    return pa.ipc.open_file(path).read_all()


def _csv(path: Path) -> pa.Table:
    import pyarrow.csv

    return pyarrow.csv.read_csv(path)


def test_predict__copies_the_columns_the_model_does_not_know(model: Path, tmp_path: Path) -> None:
    table = tennis(50).append_column("id", pa.array(range(50))).append_column("x", pa.nulls(50))
    data = parquet(table, tmp_path / "d.parquet")
    run("predict", model, data, "-o", tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").column_names == ["id", "x", "prediction"]
    result = run("predict", model, data, "--keys", "id,sky", "-o", tmp_path / "some.parquet")
    some = pq.read_table(tmp_path / "some.parquet")
    assert some.column_names == ["id", "sky", "prediction"]
    assert some.select(["id", "sky"]).equals(table.select(["id", "sky"]))
    assert result.stderr == f"note: {data}: the model does not use ['x']\n"
    run("predict", model, data, "--keys", "", "-o", tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").column_names == ["prediction"]


def test_predict__decides_by_a_loss(model: Path, data: Path) -> None:
    costs = {"play": {"no": 4, "yes": 0}, "stay": {"no": 0, "yes": 1}}
    loss = csv_of(json.dumps(costs), data.with_name("loss.json"))
    out = data.with_name("out.parquet")
    run("predict", model, data, "--loss", loss, "--reject", "0.3", "-o", out)
    decided = fb.load(model).decide(tennis(), loss=costs, reject=0.3)
    read = pq.read_table(out)
    assert read["prediction"].to_pylist() == decided.decision.tolist()
    assert read["expected_loss"].to_pylist() == decided.expected_loss.tolist()
    assert None in read["prediction"].to_pylist()


def test_predict__says_what_was_unseen(model: Path, tmp_path: Path) -> None:
    table = tennis(30).set_column(0, "sky", pa.array(["fog"] * 20 + ["rain"] * 10))
    data = parquet(table, tmp_path / "d.parquet")
    said = answer("predict", model, data, "-o", tmp_path / "out.csv")
    assert said["unseen_values"] == {"sky": 20}
    shown = run("predict", model, data, "-o", tmp_path / "again.csv").stdout
    assert "unseen values    sky 20\n" in shown


# -- evaluate ----------------------------------------------------------------------------------


def test_evaluate__equals_the_library(model: Path, data: Path) -> None:
    said = answer("evaluate", model, data)
    assert said == fb.evaluate(fb.load(model), tennis()).to_dict()
    shown = run("evaluate", model, data).stdout
    assert f"accuracy           {said['accuracy']:.6f}" in shown.splitlines()
    assert shown.splitlines() == str(fb.evaluate(fb.load(model), tennis())).splitlines()


def test_evaluate__other_target_weight_and_loss(model: Path, tmp_path: Path) -> None:
    table = tennis().rename_columns(["sky", "warmth", "degrees", "played"])
    table = table.append_column("w", pa.array(np.arange(1000) % 4 / 2))
    costs = {"no": {"no": 0, "yes": 3}, "yes": {"no": 1, "yes": 0}}
    said = answer(
        "evaluate", model, parquet(table, tmp_path / "d.parquet"), "--target", "played", "--weight",
        "w", "--loss", csv_of(json.dumps(costs), tmp_path / "loss.json"),
    )  # fmt: skip
    expected = fb.evaluate(fb.load(model), table, "played", sample_weight="w", loss=costs)
    assert said == expected.to_dict()


def test_evaluate__many_classes_are_left_to_json(tmp_path: Path) -> None:
    labels = np.arange(200) % 40
    data = parquet({"x": labels // 2 + 0.5, "y": labels}, tmp_path / "d.parquet")
    run("fit", data, "--target", "y", "-o", tmp_path / "m.fb")
    assert "40 classes: see --json" in run("evaluate", tmp_path / "m.fb", data).stdout
    assert len(answer("evaluate", tmp_path / "m.fb", data)["confusion"]) == 40


def test_evaluate__undefined_figures_are_null(model: Path, tmp_path: Path) -> None:
    one = tennis().filter(pa.compute.equal(tennis()["play"], "yes"))
    said = answer("evaluate", model, parquet(one, tmp_path / "one.parquet"))
    assert said["auc"] is None


# -- reading -----------------------------------------------------------------------------------


def test_null_values__of_the_fit_hold_ever_after(tmp_path: Path) -> None:
    data = csv_of("x,s,y\n1,a,no\nNA,b,yes\n3,NA,no\n4,a,yes\n", tmp_path / "d.csv")
    run("fit", data, "--target", "y", "--null-values", "NA,?", "-o", tmp_path / "m.fb")
    assert answer("evaluate", tmp_path / "m.fb", data)["n"] == 4
    run("predict", tmp_path / "m.fb", data, "--proba", "-o", tmp_path / "p.parquet")
    with_nulls = {"x": [1.0, None, 3.0, 4.0], "s": ["a", "b", None, "a"]}
    expected = fb.load(tmp_path / "m.fb").predict_proba(with_nulls)
    found = pq.read_table(tmp_path / "p.parquet")
    assert np.array_equal(np.column_stack([found["proba_no"], found["proba_yes"]]), expected)


def test_types__of_text_files_are_those_of_the_fit(tmp_path: Path) -> None:
    data = csv_of("zip,y\n00x,1\n011,0\n011,1\n", tmp_path / "d.csv")
    run("fit", data, "--target", "y", "-o", tmp_path / "m.fb")
    new = csv_of("zip\n011\n012\n", tmp_path / "new.csv")
    said = answer("predict", tmp_path / "m.fb", new, "-o", tmp_path / "p.csv")
    assert said["unseen_values"] == {"zip": 1}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns__what_is_not_named_is_not_read(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        table = tennis().append_column("tags", pa.array([["a"]] * 1000))
        data = parquet(table, tmp_path / "d.parquet")
    else:
        bad = b"sky,degrees,play,bad\nsunny,1.5,no,\xff\nrain,2.5,yes,\xfe\n"
        data = tmp_path / "d.csv"
        data.write_bytes(bad)
    out = tmp_path / "m.fb"
    fails("fit", data, "--target", "play", "-o", out, folder=tmp_path)
    run("fit", data, "--target", "play", "--columns", "sky,degrees", "-o", out)
    run("evaluate", out, data)
    run("predict", out, data, "--keys", "sky", "-o", tmp_path / "p.csv")


def test_columns__extra_ones_are_ignored_and_said_once(model: Path, tmp_path: Path) -> None:
    table = tennis(300_000).append_column("id", pa.array(np.arange(300_000)))
    data = parquet(table, tmp_path / "d.parquet", row_group_size=50_000)
    assert run("evaluate", model, data).stderr == f"note: {data}: the model does not use ['id']\n"
    assert run("-q", "evaluate", model, data).stderr == ""


def test_names__commas_and_spaces() -> None:
    assert names(None, None, "a, b ,c") == ["a", "b", "c"]
    assert names(None, None, '"a, b",c') == ["a, b", "c"]
    assert names(None, None, "") == []
    assert names(None, None, None) is None


# -- count, merge, inspect ---------------------------------------------------------------------


def test_count__and_merge_equal_one_count(data: Path, tmp_path: Path) -> None:
    first, second = tennis().slice(0, 400), tennis().slice(400)
    for name, part in (("a", first), ("b", second)):
        parquet(part, tmp_path / f"{name}.parquet")
        run(
            "count",
            tmp_path / f"{name}.parquet",
            "--target",
            "play",
            "-o",
            tmp_path / f"{name}.fbs",
        )
    said = answer("merge", tmp_path / "a.fbs", tmp_path / "b.fbs", "-o", tmp_path / "c.fbs")
    whole = fb.count(tennis(), "play")
    assert fb.Statistics.load(tmp_path / "c.fbs").allclose(whole)
    assert said["rows"] == 1000
    assert said["classes"] == {"no": 400, "yes": 600}


def test_count__weights_and_rows_without_a_class(tmp_path: Path) -> None:
    table = tennis(20).set_column(3, "play", pa.array([None] * 5 + ["yes"] * 15))
    table = table.append_column("w", pa.array([0.5] * 20))
    data = parquet(table, tmp_path / "d.parquet")
    said = answer("count", data, "--target", "play", "--weight", "w", "-o", tmp_path / "s.fbs")
    assert said["total_weight"] == 7.5
    assert said["rows_without_class"] == 5


def test_explain__is_the_table_of_the_library(data: Path, model: Path) -> None:
    table, fitted = tennis().drop_columns("play"), fb.load(model)
    (said,) = answer("explain", model, data, "--row", "7")
    assert said["row"] == 7
    assert said["lines"] == fitted.explain(table).table(7).to_pylist()
    assert [*said["proba"].values()] == fitted.predict_proba(table)[7].tolist()
    two = answer("explain", model, data, "--row", "999", "--row", "7")
    assert [one["row"] for one in two] == [7, 999]
    assert two[0] == said
    first = answer("explain", model, data, "--rows", "3")
    assert [one["lines"] for one in first] == [
        fitted.explain(table).table(row).to_pylist() for row in range(3)
    ]
    assert answer("explain", model, data) == first[:1]
    shown = run("explain", model, data, "--rows", "2").stdout
    assert shown.startswith("row 0: no ")
    assert "contribution_yes" in shown


def test_explain__reads_as_it_advises(model: Path, tmp_path: Path) -> None:
    good = ["sky,warmth,degrees", "sunny,hot,29.4", "rain,mild,20"]
    (tmp_path / "good.csv").write_text("\n".join(good))
    (tmp_path / "bad.csv").write_text("\n".join([*good[:2], "rain,mild", good[2]]))
    said = fails("explain", model, tmp_path / "bad.csv", "--row", "1", folder=tmp_path)
    assert said.endswith("leave such rows out (--on-error skip-rows)")
    options = ["--row", "1", "--on-error", "skip-rows", "--max-rejected", "0.5"]
    found = answer("explain", model, tmp_path / "bad.csv", *options)
    assert found == answer("explain", model, tmp_path / "good.csv", "--row", "1")


def test_explain__rows_that_are_not_there(data: Path, model: Path, tmp_path: Path) -> None:
    said = fails("explain", model, data, "--row", "1000", folder=tmp_path)
    assert "there is no row 1000" in said
    assert len(answer("explain", model, data, "--rows", "2000")) == 1000
    assert (
        "give one of them"
        in run("explain", model, data, "--row", "1", "--rows", "2", code=2).stderr
    )


def test_inspect__statistics_and_models(data: Path, model: Path, tmp_path: Path) -> None:
    run("count", data, "--target", "play", "-o", tmp_path / "s.fbs")
    statistics, of_model = answer("inspect", tmp_path / "s.fbs"), answer("inspect", model)
    assert statistics["columns"]["sky"] == {
        "kind": "categorical", "values": ["overcast", "rain", "sunny"], "declared": False,
        "missing": 0.1,
    }  # fmt: skip
    assert statistics["columns"]["degrees"]["kind"] == "numeric"
    assert statistics["columns"]["degrees"]["missing"] == 0.1
    assert statistics["classes"] == {"no": 400, "yes": 600}
    assert of_model["model"] == "NaiveBayes()"
    found = fb.load(model)
    for name, column in of_model["columns"].items():
        said = found.table(name)
        assert column.items() >= statistics["columns"][name].items()
        assert column["missing"] == said.missing
        if "numbers" in column:
            means = [one["mean"] for one in column["numbers"].values()]
            assert means == said.table["mean"].to_pylist()
        else:
            assert column["telling"] == [*said.telling]
    shown = run("inspect", model).stdout
    assert "sky      3 values  overcast, rain, sunny" in shown
    assert f"no {found.table('degrees').table['mean'][0].as_py():.5g} ±" in shown
    assert "classes             no 400, yes 600" in shown


def test_inspect__a_model_of_arrays(tmp_path: Path) -> None:
    fb.GaussianNB().fit([[1.0, 2.0], [2.0, 3.5]], [0, 1]).save(tmp_path / "m.fb")
    assert "bare arrays" in fails("inspect", tmp_path / "m.fb", folder=tmp_path)


def test_inspect__a_model_by_another_name(model: Path) -> None:
    renamed = model.rename(model.with_suffix(".bin"))
    assert answer("inspect", renamed)["model"] == "NaiveBayes()"


def test_inspect__data_and_the_plan(data: Path) -> None:
    said = answer("inspect", data, "--target", "play", "--threads", "2")
    plan = fb.plan(data, "play", threads=2)
    assert said["rows"] == 1000
    assert said["plan"] == {
        "bytes": plan.total, "reading_bytes": plan.reading, "classes": 2, "exact": True,
    }  # fmt: skip
    assert said["columns"]["sky"] == {
        "type": "string", "kind": "categorical", "bytes": plan.columns["sky"],
    }  # fmt: skip
    assert said["columns"]["play"]["kind"] == "target"
    assert f"needs {size(plan.total)}\n" in run("inspect", data, "--target", "play").stdout
    assert "for each class" in run("inspect", data).stdout


def test_inspect__says_what_our_kernels_do_not_decode(tmp_path: Path) -> None:
    data = tmp_path / "d.parquet"
    table = pa.table({"x": np.arange(50) / 7, "y": ["a", "b"] * 25})
    pq.write_table(table, data, use_dictionary=["y"], column_encoding={"x": "BYTE_STREAM_SPLIT"})
    columns = answer("inspect", data, "--target", "y")["columns"]
    assert columns["x"]["by_pyarrow"] == "encoded as BYTE_STREAM_SPLIT"
    assert "by_pyarrow" not in columns["y"]
    shown = run("inspect", data, "--target", "y").stdout
    assert "read by pyarrow: encoded as BYTE_STREAM_SPLIT" in shown


@pytest.mark.parametrize(
    "option", [["--target", "play"], ["--pairs"], ["--numeric", "mdl"], ["--on-error", "skip"]]
)
def test_inspect__options_of_data_go_with_data(
    model: Path, tmp_path: Path, option: list[str]
) -> None:
    said = fails("inspect", model, *option, folder=tmp_path, code=2)
    assert f"{option[0]} goes with DATA: {model} is a file of a model or statistics" in said


def test_inspect__data_that_cannot_be_used_as_they_are(tmp_path: Path) -> None:
    table = tennis(10).append_column("tags", pa.array([["a"]] * 10))
    data = parquet(table, tmp_path / "d.parquet")
    said = answer("inspect", data, "--target", "play")["columns"]["tags"]
    assert said["kind"] == "unusable"
    assert "explode" in said["why"]
    assert "explode" in run("inspect", data).stdout


# -- generate ----------------------------------------------------------------------------------


def test_generate__is_what_the_library_makes(tmp_path: Path) -> None:
    out = tmp_path / "made"
    said = answer(
        "generate", "--preset", "survey", "--rows", "500", "--seed", "7", "--files", "2",
        "--missing", "0.1", "--row-group-rows", "100", "-o", out,
    )  # fmt: skip
    from fastbayes.generate import table

    assert said["rows"] == 500
    assert said["files"] == 2
    expected = table("survey", 500, 7, missing=0.1)
    assert pq.read_table(out).to_pylist() == expected.to_pylist()
    assert "already exists" in fails(
        "generate", "--preset", "survey", "--rows", "5", "-o", out, folder=tmp_path
    )
    run("generate", "--preset", "survey", "--rows", "5", "-o", out, "--force")
    assert pq.read_table(out).num_rows == 5


def test_generate__lists_presets() -> None:
    assert "flights" in answer("generate", "--list")
    assert "flights that leave late" in run("generate", "--list").stdout


# -- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["predcit"], "predict"),
        (["fit", "d", "--traget", "y"], "--target"),
        (["generate", "--preset", "flihgts", "--rows", "5", "-o", "x"], "flights"),
        (["generate", "--rows", "5"], "--preset"),
        (["generate", "--preset", "flights", "--rows", "-1", "-o", "x"], "--rows"),
        (["fit", "d", "--target", "y", "-o", "m", "--alpha", "-1"], "'-1'"),
        (["fit", "d", "--target", "y", "-o", "m", "--alpha", "x"], "'x'"),
        (["fit", "d", "--target", "y", "-o", "m", "--alpha", "nan"], "'nan'"),
        (["fit", "d", "--target", "y", "-o", "m", "--max-rejected", "nan"], "'nan' is no number"),
        (["count", "d", "-o", "s", "--checkpoint-seconds", "nan"], "'nan' is no number"),
        (["fit", "d", "--target", "y", "-o", "m", "--threads", "0"], "--threads"),
        (["fit", "d", "--target", "y", "-o", "m", "--numeric", "normal"], "gaussian"),
        (["fit", "d", "--target", "y", "-o", "m", "--model", "bayes"], "naive-bayes"),
        (["fit", "d", "--target", "y", "-o", "m", "--memory-limit", "big"], "500M"),
        (["fit", "d", "--target", "y", "-o", "m", "--columns", '"a'], "--columns"),
        (["predict", "m.fb", "d", "-o", "out.txt"], ".parquet"),
        (["predict", "m.fb", "d"], "--output"),
        (["fit", "d", "--target", "y", "-o", "-"], "a path is needed"),
        (["count", "d", "--target", "y", "-o", "-"], "a path is needed"),
        (["merge", "a.fbs", "b.fbs", "-o", "-"], "a path is needed"),
        (["generate", "--preset", "flights", "--rows", "5", "-o", "-"], "a path is needed"),
    ],
)
def test_usage__exit_2_and_a_hint(tmp_path: Path, args: list[str], hint: str) -> None:
    assert hint in fails(*args, folder=tmp_path, code=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", 500), ("500M", 5 * 10**8), ("1.5 GiB", 3 * 2**29), ("2kb", 2000), (".5K", 500)],
)
def test_usage__sizes(text: str, expected: int) -> None:
    assert n_bytes(None, None, text) == expected


@pytest.mark.parametrize(
    ("n", "said"), [(0, "0 B"), (999, "999 B"), (1234, "1.2 kB"), (3 * 10**9, "3.0 GB")]
)
def test_show__sizes(n: int, said: str) -> None:
    assert size(n) == said


def test_show__json_has_no_special_numbers() -> None:
    value = {"a": np.float64("nan"), "b": [np.inf, 1], "c": np.array([[1, 2]]), 4: Path("p")}
    assert plain(value) == {"a": None, "b": [None, 1], "c": [[1, 2]], "4": "p"}


def test_output__is_not_replaced_unless_forced(data: Path, model: Path) -> None:
    before = model.read_bytes()
    said = fails("fit", data, "--target", "play", "--alpha", "9", "-o", model, folder=data.parent)
    assert "--force" in said
    run("fit", data, "--target", "play", "--alpha", "9", "-o", model, "--force")
    assert fb.load(model).alpha_ == 9
    assert model.read_bytes() != before


def test_names_that_stdout_cannot_encode__are_escaped(tmp_path: Path) -> None:
    data = csv_of("sky,play\nå,☃\nb,no\n" * 5, tmp_path / "d.csv")
    run("fit", data, "--target", "play", "-o", tmp_path / "m.fb")
    command = [sys.executable, "-m", "fastbayes", "inspect", str(tmp_path / "m.fb")]
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2603" in done.stdout


def test_verbose__adds_the_traceback(tmp_path: Path) -> None:
    args = ["-v", "inspect", str(tmp_path / "none.parquet")]
    result = CliRunner().invoke(main, args)
    assert isinstance(result.exception, fb.DataError)
    done = subprocess.run(
        [sys.executable, "-m", "fastbayes", *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_logs__are_set_back_after_a_command(data: Path) -> None:
    import logging
    import warnings

    logger = logging.getLogger("fastbayes")
    before = (list(logger.handlers), logger.level, warnings.showwarning, warnings.filters[:])
    run("-v", "inspect", data)
    after = (list(logger.handlers), logger.level, warnings.showwarning, warnings.filters[:])
    assert after == before


def test_links_to_directories(tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    for folder in (lake, other):
        folder.mkdir()
        (folder / "a.csv").write_text("a,y\nu,1\nv,0\n")
    (lake / "more").symlink_to(other)
    (lake / ".hidden").symlink_to(".")
    for named in (lake, lake / "**" / "*.csv"):
        assert len(find_files(named).files) == 2
    (other / "back").symlink_to(lake)
    for named in (lake, lake / "**" / "*.csv"):
        with pytest.raises(fb.DataError, match="back leads back to a directory above it"):
            find_files(named)


def test_no_command_replaces_what_it_reads(tmp_path: Path) -> None:
    data, s, m = tmp_path / "a.csv", tmp_path / "s.fbs", tmp_path / "m.fb"
    data.write_text("a,b,y\nu,p,1\nv,q,0\nu,q,1\nv,p,1\n")
    run("count", data, "--target", "y", "-o", s)
    run("fit", "--statistics", s, "-o", m)
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    cuts, part = tmp_path / "cuts.fbs", tmp_path / "part.fbs"
    (tmp_path / "other").mkdir()
    numbers = tmp_path / "other" / "numbers.csv"
    numbers.write_text("n,y\n" + "".join(f"{i},{i // 5}\n" for i in range(10)))
    run("count", numbers, "--target", "y", "--pairs", "-o", cuts)
    run("count", data, "--target", "y", "-o", part)
    read = ("--target", "y", "--discretize", cuts)
    before = {path: path.read_bytes() for path in (data, s, m, cuts, part)}
    for words, out in (
        (("count", numbers, *read, "--pairs"), cuts),
        (("fit", numbers, *read, "--model", "tan"), cuts),
        (("merge", s, "--minus", part), part),
        (("fit", data, "--target", "y"), data),
        (("fit", data, "--target", "y"), link),
        (("fit", tmp_path / "*.csv", "--target", "y"), data),
        (("fit", "--statistics", s), s),
        (("count", data, "--target", "y"), data),
        (("count", data, "--target", "y", "--schema", s), s),
        (("predict", m, data, "--format", "csv"), m),
        (("predict", m, data), data),
        (("network", "learn", data), data),
    ):
        said = run(*words, "-o", out, "--force", code=None)
        assert said.exit_code != 0
        if words[:2] != ("network", "learn"):  # its output is named for its format first
            assert "is what is read, which the output would replace" in said.stderr
    assert {path: path.read_bytes() for path in before} == before
    run("count", data, "--target", "y", "--update", "-o", s)
    run("fit", data, "--target", "y", "-o", m, "--force")
