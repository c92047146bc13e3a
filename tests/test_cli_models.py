"""The models that see pairs of columns, from the command line: fit, count, inspect, predict."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, parquet, run
from test_cli_stopping import on_terminal, shown

import fastbayes as fb
from fastbayes.cli import models, statistics
from fastbayes.cli.models import fit
from fastbayes.cli.options import method, super_parents, takers
from fastbayes.cli.show import size
from fastbayes.models.estimator.store import jsonable
from fastbayes.models.registry import by_name

ROWS = 3000


def trips(rows: int = ROWS, seed: int = 5) -> pa.Table:
    """Return rows in which columns depend on each other, numbers, missing values and weights."""
    random = np.random.default_rng(seed)
    late = random.random(rows) < 0.4
    city = random.integers(0, 5, rows)
    line = (city + late * random.integers(0, 2, rows)) % 4
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    return pa.table(
        {
            "city": pa.array(names[city], mask=random.random(rows) < 0.1),
            "line": pa.array(np.array(["-", "r", "s", "t"])[line]),
            "miles": pa.array(
                random.normal(size=rows) + late + 0.5 * city, mask=random.random(rows) < 0.1
            ),
            "stops": pa.array(random.integers(0, 3, rows) + late),
            "w": pa.array(random.integers(0, 3, rows) / 2),
            "late": pa.array(np.where(late, "yes", "no")),
        }
    )


FEATURES = ["city", "line", "miles", "stops"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return parquet(trips().drop_columns("w"), tmp_path / "d.parquet")


# The model, its options, and what the library is told.
CASES: dict[str, tuple[str, list[str], Any]] = {
    "average": ("naive-bayes", ["--feature-averaging"],
                lambda: fb.NaiveBayes(feature_averaging=True)),
    "spode": ("spode", [], fb.SPODE),
    "spode, chosen": ("spode", ["--super-parent", "city", "--unseen", "smooth"],
                      lambda: fb.SPODE(super_parent="city", unseen="smooth")),
    "spode, cmi": ("spode", ["--super-parent", "cmi"], lambda: fb.SPODE(super_parent="cmi")),
    "spode, by rows": ("spode", ["--super-parent", "loo", "--alpha", "loo"],
                       lambda: fb.SPODE(super_parent="loo", alpha="loo")),
    "tan": ("tan", ["--alpha", "0.5"], lambda: fb.TAN(alpha=0.5)),
    "tan, root": ("tan", ["--root", "line", "--prune", "bic", "--discretize", "quantile:5"],
                  lambda: fb.TAN(root="line", prune="bic", discretize=("quantile", 5))),
    "aode": ("aode", ["--class-prior", "uniform"], lambda: fb.AODE(class_prior="uniform")),
    "aode, weighted": (
        "aode",
        ["--weights", "city=2, line=0.5", "--subsumption", "40", "--min-count", "3",
         "--smoothing", "m_estimate", "--m", "2", "--discretize", "width"],
        lambda: fb.AODE(weights={"city": 2.0, "line": 0.5}, subsumption=40.0, min_count=3.0,
                        smoothing="m_estimate", m=2.0, discretize="width"),
    ),
    "aode, by rule": ("aode", ["--weights", "mutual_information"],
                      lambda: fb.AODE(weights="mutual_information")),
    "aode, selected": ("aode", ["--select", "leave_one_out"],
                       lambda: fb.AODE(select="leave_one_out")),
    "kdb": ("kdb", [], fb.KDB),
    "kdb, selected": ("kdb", ["--select", "leave_one_out", "--criterion", "error"],
                      lambda: fb.KDB(select="leave_one_out", criterion="error")),
    "kdb, three": ("kdb", ["--k", "3", "--missing", "category", "--categorical", "stops"],
                   lambda: fb.KDB(k=3, missing="category", categorical=["stops"])),
}  # fmt: skip
CASES["joint-bayes"] = ("joint-bayes", ["--tau", "2"], lambda: fb.JointBayes(tau=2.0))
CASES["joint-gaussian"] = (
    *(
        "joint-gaussian",
        ["--cells", "naive", "--backoff", "3", "--tau", "loo", "--density", "normal"],
    ),
    lambda: fb.JointGaussian(cells="naive", backoff=3.0, tau="loo", density="normal"),
)
CASES["network"] = ("network", ["--max-parents", "2"], lambda: fb.NetworkClassifier(max_parents=2))
CASES["weighted"] = (
    *("weighted-naive-bayes", ["--l2", "0.5", "--discretize", "quantile:4"]),
    lambda: fb.WeightedNaiveBayes(l2=0.5, discretize=("quantile", 4)),
)
CASES["a2de"] = ("a2de", ["--min-count", "2"], lambda: fb.A2DE(min_count=2.0))


# -- fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_fit__gives_the_model_of_the_library(data: Path, case: str) -> None:
    name, told, make = CASES[case]
    out = data.with_name("m.fb")
    said = answer("fit", data, "--target", "late", "--model", name, *told, "-o", out)
    expected, made = make().fit(str(data), "late"), fb.load(out)
    assert type(made) is type(expected)
    assert jsonable(made.get_params()) == jsonable(expected.get_params())
    assert made.statistics_ == expected.statistics_
    assert np.array_equal(made.predict_proba(data), expected.predict_proba(data))
    assert said["rows"] == ROWS
    assert said["parameters"] == expected.n_parameters_
    again = type(made)(**made.get_params()).fit(str(data), "late")
    assert again.statistics_ == expected.statistics_
    assert answer("evaluate", out, data) == fb.evaluate(expected, str(data)).to_dict()


def test_fit__says_what_it_found(data: Path) -> None:
    out = data.with_name("m.fb")
    told = ("fit", data, "--target", "late", "--force", "-o", out, "--model")
    tan = answer(*told, "tan", "--root", "line")
    model = fb.load(out)
    assert tan["parents"] == {n: [p] if p else [] for n, p in model.parents_.items()}
    assert "city given line" in run(*told, "tan", "--root", "line").stdout
    kdb = answer(*told, "kdb")
    assert kdb["parents"] == {n: list(p) for n, p in fb.load(out).parents_.items()}
    spode = answer(*told, "spode", "--super-parent", "city")
    assert spode["super_parent"] == "city"
    assert "variance_floored" not in spode


@pytest.mark.parametrize("model", ["aode", "kdb"])
def test_fit__reading_options_reach_every_scan(tmp_path: Path, model: str) -> None:
    table = trips()
    data = parquet(table, tmp_path / "d.parquet")
    run(
        "fit", data, "--target", "late", "--model", model, "--columns", "line,city,stops",
        "--categorical", "stops", "--weight", "w", "--missing", "category", "--null-values", "-,?",
        "--memory-limit", "1M", "--threads", "2", "-o", tmp_path / "m.fb",
    )  # fmt: skip
    reading: dict[str, Any] = {
        "columns": ["line", "city", "stops"], "categorical": ["stops"], "sample_weight": "w",
        "missing": "category", "null_values": ["-", "?"], "moments": False,
    }  # fmt: skip
    made = fb.load(tmp_path / "m.fb")
    expected = fb.count(table, "late", pairs=True, **reading)
    if model == "kdb":
        families = fb.KDB(missing="category").families(expected)
        expected = fb.count(table, "late", families=families, **reading)
    assert made.statistics_ == expected
    assert made.statistics_.schema.null_values == ("-", "?")
    assert (made.threads, made.memory_limit) == (None, None)


def test_fit__tan_streams_what_does_not_fit(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    columns = {f"c{j}": random.integers(0, 20, 2000).astype(str) for j in range(6)}
    columns["c3"] = columns["c0"]
    data = parquet({**columns, "y": random.integers(0, 2, 2000)}, tmp_path / "d.parquet")
    told = ("fit", data, "--target", "y", "-o", tmp_path / "m.fb", "--threads", "1")
    less = ("--memory-limit", "120k")
    run(*told, "--model", "tan")
    whole = fb.load(tmp_path / "m.fb")
    result = run(*told, *less, "--model", "tan", "--force")
    assert "the tree is found in several scans" in result.stderr
    some = fb.load(tmp_path / "m.fb")
    assert some.parents_ == whole.parents_
    assert not some.statistics_.pairs.layout.complete
    assert np.array_equal(some.predict_proba(data), whole.predict_proba(data))
    assert "--memory-limit 120,000" in fails(
        *told[:4], "-o", tmp_path / "a.fb", *less, "--threads", 1, "--model", "aode",
        folder=tmp_path,
    )  # fmt: skip


def test_fit__statistics_of_pairs_make_every_model_of_pairs(data: Path, tmp_path: Path) -> None:
    counted, out = tmp_path / "s.fbs", tmp_path / "m.fb"
    run("count", data, "--target", "late", "--triples", "-o", counted)
    stats = fb.Statistics.load(counted)
    assert stats == fb.count(str(data), "late", triples=True)
    for name, told, model in [
        ("spode", [], fb.SPODE()),
        ("tan", ["--prune", "aic"], fb.TAN(prune="aic")),
        ("aode", ["--min-count", "9"], fb.AODE(min_count=9.0)),
        ("kdb", ["--k", "1"], fb.KDB(k=1)),
        ("a2de", [], fb.A2DE()),
    ]:
        run("fit", "--statistics", counted, "--model", name, *told, "--force", "-o", out)
        expected = model.fit_statistics(stats).predict_proba(data)
        assert np.array_equal(fb.load(out).predict_proba(data), expected)


@pytest.mark.parametrize(
    ("asked", "name", "model"),
    [
        (["--cells", "--cell-scatter"], "joint-gaussian", fb.JointGaussian()),
        (["--cells", "--discretize", "width:4"], "joint-bayes", fb.JointBayes()),
    ],
)
def test_fit__statistics_of_cells_make_the_joint_models(
    data: Path, tmp_path: Path, asked: list[str], name: str, model: Any
) -> None:
    counted, out = tmp_path / "s.fbs", tmp_path / "m.fb"
    run("count", data, "--target", "late", *asked, "-o", counted)
    assert "cells" in json.loads(run("inspect", counted, "--json").stdout)["counts"]
    run("fit", "--statistics", counted, "--model", name, "-o", out)
    expected = model.fit_statistics(fb.Statistics.load(counted)).predict_proba(data)
    assert np.array_equal(fb.load(out).predict_proba(data), expected)
    if name == "joint-bayes":
        direct = fb.JointBayes(discretize=("width", 4)).fit(str(data), "late")
        assert np.array_equal(direct.predict_proba(data), expected)


@pytest.mark.parametrize(
    ("counted", "model", "words"),
    [
        ([], "tan", "holds no pairs, which tan needs; count again with --pairs"),
        (["--pairs"], "a2de", "holds no triples, which a2de needs; count again with --triples"),
        (["--pairs"], "kdb", "holds no families, which kdb needs; fit it from DATA"),
        ([], "joint-bayes", "holds no cells, which joint-bayes needs; count again with --cells"),
        (["--cells"], "joint-gaussian", "no cell scatter, which joint-gaussian needs; count again"),
    ],
)
def test_fit__statistics_that_lack_what_the_model_needs(
    data: Path, tmp_path: Path, counted: list[str], model: str, words: str
) -> None:
    run("count", data, "--target", "late", *counted, "-o", tmp_path / "s.fbs")
    said = fails(
        "fit", "--statistics", tmp_path / "s.fbs", "--model", model, "-o", tmp_path / "m.fb",
        folder=tmp_path,
    )  # fmt: skip
    assert words in said


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["--model", "tan", "--k", "3"], "--k does not go with --model tan, but with kdb"),
        (["--root", "city"], "--root does not go with --model naive-bayes, but with tan"),
        (["--discretize", "width"], "--discretize does not go with --model naive-bayes"),
        (["--model", "aode", "--variance", "single"], "--variance does not go with --model aode"),
        (["--model", "spode", "--weights", "uniform"], "--weights does not go with --model spode"),
        (["--model", "aode", "--alpha", "loo"], "--alpha loo goes with --model naive-bayes or"),
        (["--model", "kdb", "--criterion", "error"], "--criterion goes with --select"),
        (["--model", "aode", "--m", "3"], "--m goes with --smoothing m_estimate"),
        (["--model", "aode", "--smoothing", "hdp"], "--smoothing hdp: use one of 'laplace'"),
        (["--model", "aode", "--weights", "equal"], "--weights equal: give a number"),
        (["--model", "aode", "--weights", "city=x"], "a number after each ="),
        (["--model", "aode", "--weights", "city=0"], "more than 0"),
        (["--model", "aode", "--subsumption", "0"], "--subsumption"),
        (["--model", "tan", "--discretize", "quantile:1"], "quantile:20"),
        (["--model", "tan", "--discretize", "mdl:4"], "quantile:20"),
        (["--model", "kdb", "--k", "-1"], "--k"),
    ],
)
def test_fit__an_option_that_cannot_be_used(data: Path, told: list[str], words: str) -> None:
    out = ("-o", data.with_name("m.fb"))
    assert words in fails("fit", data, "--target", "late", *told, *out, folder=data.parent, code=2)


@pytest.mark.parametrize(
    "told",
    [
        ["--model", "tan", "--root", "citty"],
        ["--model", "spode", "--super-parent", "citty"],
        ["--model", "aode", "--weights", "line=1,citty=2"],
    ],
)
def test_fit__a_column_that_is_not_there_is_told_before_the_scan(
    data: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    def scan(*_: Any, **__: Any) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr("fastbayes.scan.engine.scan", scan)
    out = ("-o", data.with_name("m.fb"))
    said = fails("fit", data, "--target", "late", *told, *out, folder=data.parent)
    assert "no column 'citty'" in said
    assert "did you mean 'city'" in said


def test_options__each_is_a_parameter_of_the_models_that_its_help_names() -> None:
    shared = {"missing", "categorical", "columns", "dates", "exclude"}
    found = set()
    for option in fit.get_params(click.Context(fit)):
        assert isinstance(option, click.Parameter)
        who = takers(str(option.name))
        if option.name in ("data", "threads", "memory_limit") or not who:
            continue
        found.add(option.name)
        assert (option.name in shared) == (len(who) == len(by_name()))
        if option.name not in shared | {"discretize"}:
            said = option.get_help_record(click.Context(fit))
            assert f"({', '.join(who)})" in str(said)
    assert found == shared | {
        "alpha", "unseen", "covariance", "ddof", "shrinkage", "singular", "prior",
        "numeric", "parametric", "variance", "discretize", "super_parent", "root", "prune", "k",
        "min_count", "weights", "subsumption", "smoothing", "m", "select", "criterion", "tau",
        "concentration", "cells", "backoff", "density", "feature_averaging", "ess", "graph_score",
        "search", "order",
        "max_parents",
        "l2", "class_prior", "penalty", "C", "standardize", "solver", "learning_rate", "init",
            "class_weight",
        "interactions", "tol", "max_iter", "standard_errors", "members", "folds", "race",
    }  # fmt: skip


def test_options__values() -> None:
    assert [method(None, None, v) for v in (None, "mdl", "width")] == [None, "mdl", "width"]
    assert method(None, None, "quantile:20") == ("quantile", 20)
    assert super_parents(None, None, "uniform") == "uniform"
    assert super_parents(None, None, ' a=2 , "b, c=d=1.5"') == {"a": 2.0, "b, c=d": 1.5}


# -- count -------------------------------------------------------------------------------------


def halves(folder: Path) -> list[Path]:
    table = trips().drop_columns("w")
    return [
        parquet(table.slice(lo, ROWS // 2), folder / f"{i}.parquet")
        for i, lo in enumerate((0, ROWS // 2))
    ]


def test_fit__takes_the_cut_points_of_a_network(tmp_path: Path) -> None:
    first, second = halves(tmp_path)
    net, model = tmp_path / "n.fb", tmp_path / "m.fb"
    told = ("--columns", "city,miles,stops", "--discretize", "quantile:3")
    run("network", "learn", first, "--categorical", "city", *told, "-o", net)
    run("fit", second, "--target", "late", "--model", "tan", "--discretize", net, "-o", model)
    cuts = {f.name: f.cuts.tolist() for f in fb.load(model).schema_.features if f.cuts is not None}
    as_learned = {"categorical": ["city"], "columns": ["city", "miles", "stops"]}
    again = fb.BayesianNetwork.learn(str(first), discretize=("quantile", 3), **as_learned)
    assert cuts == {name: points.tolist() for name, points in again._cuts.items()}


@pytest.mark.parametrize("kind", ["statistics", "model"])
def test_count__takes_the_cut_points_of_a_file(tmp_path: Path, kind: str) -> None:
    first, second = halves(tmp_path)
    a, b, c, cuts = (tmp_path / name for name in ("a.fbs", "b.fbs", "c.fbs", "m.fb"))
    told = ("--target", "late", "--pairs")
    run("count", first, *told, "-o", a)
    run("count", second, *told, "-o", b)
    assert "cut" in fails("merge", a, b, "-o", c, folder=tmp_path)
    if kind == "model":
        run("fit", first, "--target", "late", "--model", "tan", "-o", cuts)
    run("count", second, *told, "--discretize", cuts if kind == "model" else a, "--force", "-o", b)
    run("merge", a, b, "-o", c)
    known = {f.name: f.cuts for f in fb.Statistics.load(a).schema.features if f.cuts is not None}
    assert set(known) == {"miles", "stops"}
    whole = fb.count(trips().drop_columns("w"), "late", pairs=True, discretize=known)
    assert fb.Statistics.load(c) == whole
    fewer = ("--columns", "city,miles", "--discretize", a, "-o", tmp_path / "d.fbs")
    run("count", second, *told, *fewer)
    assert answer("inspect", tmp_path / "d.fbs")["columns"]["miles"]["cuts"] == list(known["miles"])


def test_count__no_cut_points_to_take(data: Path, tmp_path: Path) -> None:
    run("count", data, "--target", "late", "-o", tmp_path / "s.fbs")
    told = ("count", data, "--target", "late", "-o", tmp_path / "t.fbs", "--discretize")
    fb.CategoricalNB().fit([[0], [1]], [0, 1]).save(tmp_path / "d.fb")
    for name in ("s.fbs", "d.fb"):
        assert "holds no cut points" in fails(*told, tmp_path / name, "--pairs", folder=tmp_path)
    assert "--discretize goes with --pairs" in fails(*told, "mdl", folder=tmp_path, code=2)


def test_count__leaves_damaged_files_out_of_both_scans(tmp_path: Path) -> None:
    first, second = halves(tmp_path)
    blob = bytearray(second.read_bytes())
    blob[4 : len(blob) // 2] = b"\xff" * (len(blob) // 2 - 4)
    second.write_bytes(blob)
    gone = parquet(trips(), tmp_path / "2.parquet")
    os.truncate(gone, gone.stat().st_size - 20)
    told = ("count", tmp_path / "*.parquet", "--target", "late", "--pairs")
    fails(*told, "-o", tmp_path / "s.fbs", folder=tmp_path)
    result = run(*told, "--on-error", "skip", "-o", tmp_path / "s.fbs")
    stats = fb.Statistics.load(tmp_path / "s.fbs")
    assert stats == fb.count(str(first), "late", pairs=True)
    for name in ("1.parquet", "2.parquet"):
        assert sum("left out" in p and name in p for p in stats.provenance) == 1
        assert len(re.findall(rf"left out: .*{name}", result.stderr)) == 1


def test_count__says_once_what_breaks_off_in_both_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastbayes.data.text.infer_bytes", lambda _: 4096)
    whole, text = trips().drop_columns("w"), io.BytesIO()
    pyarrow.csv.write_csv(whole, text)
    (tmp_path / "0.csv").write_bytes(text.getvalue())
    header, rows = text.getvalue().split(b"\n", 1)
    packed = gzip.compress(header + b"\n" + 30 * rows)
    (tmp_path / "1.csv.gz").write_bytes(packed[: len(packed) * 3 // 4])
    told = ("count", tmp_path / "*.csv*", "--target", "late", "--pairs", "--on-error", "skip")
    result = run(*told, "-o", tmp_path / "s.fbs")
    stats = fb.Statistics.load(tmp_path / "s.fbs")
    assert sum("left out" in p and "1.csv.gz" in p for p in stats.provenance) == 1
    assert result.stderr.count("left out: ") == 1


def test_count__goes_on_where_it_was_stopped(data: Path, tmp_path: Path) -> None:
    told = ("count", data, "--target", "late", "--pairs", "--checkpoint", tmp_path / "kept")
    run(*told, "-o", tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == fb.count(str(data), "late", pairs=True)


@pytest.mark.parametrize(("folds", "told"), [("4", 4), ("line", "line")])
def test_count__folds(data: Path, tmp_path: Path, folds: str, told: Any) -> None:
    said = answer(
        "count", data, "--target", "late", "--pairs", "--folds", folds, "-o", tmp_path / "s.fbs"
    )
    stats = fb.Statistics.load(tmp_path / "s.fbs")
    assert stats == fb.count(str(data), "late", pairs=True, folds=told)
    assert said["folds"] == len(stats.folds) == 4


# -- progress ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "scans"),
    [
        (("count", "--pairs"), 2),
        (("count", "--pairs", "--columns", "city,line"), 1),
        (("count", "--pairs", "--discretize", "quantile:4"), 2),
        (("fit", "--model", "tan"), 2),
        (("fit", "--model", "kdb"), 3),
        (("fit", "--model", "aode", "--select", "leave_one_out"), 3),
    ],
)
def test_bar__counts_every_row_of_every_scan(
    data: Path, monkeypatch: pytest.MonkeyPatch, told: tuple[str, ...], scans: int
) -> None:
    steps: list[int] = []

    @contextmanager
    def recorded(what: str, data: Any) -> Any:
        yield steps.append

    for module in (models, statistics):
        monkeypatch.setattr(module, "bar", recorded)
    run(told[0], data, "--target", "late", *told[1:], "-o", data.with_name("out"))
    assert sum(steps) == scans * ROWS


def test_bar__begins_again_with_every_scan(data: Path) -> None:
    told = ("fit", data, "--target", "late", "--model", "kdb", "-o", data.with_name("m.fb"))
    with on_terminal(*told) as (process, end):
        said = shown(end)
        assert process.wait(60) == 0
    assert re.search(r"counting, scan 3: 100%\|█+\| 3\.00k/3\.00k", said)
    assert "scan 4" not in said


# -- inspect -----------------------------------------------------------------------------------


def test_inspect__statistics_of_pairs(data: Path, tmp_path: Path) -> None:
    run("count", data, "--target", "late", "--pairs", "-o", tmp_path / "s.fbs")
    stats = fb.Statistics.load(tmp_path / "s.fbs")
    said = answer("inspect", tmp_path / "s.fbs")
    assert said["counts"]["pairs"] == {"groups": 6, "bytes": stats.pairs.nbytes}
    assert said["counts"]["values"] == {"bytes": stats.values.nbytes}
    assert said["bytes"] == sum(count["bytes"] for count in said["counts"].values())
    shown = run("inspect", tmp_path / "s.fbs").stdout
    assert re.search(rf"^counts +6 pairs in {re.escape(size(stats.pairs.nbytes))}$", shown, re.M)
    assert "given" not in shown


@pytest.mark.parametrize("model", ["spode", "tan", "kdb"])
def test_inspect__a_model_and_what_depends_on_what(data: Path, model: str) -> None:
    out = data.with_name("m.fb")
    run("fit", data, "--target", "late", "--model", model, "-o", out)
    fitted, said, shown = fb.load(out), answer("inspect", out), run("inspect", out).stdout
    for name, above in fitted.parents_.items():
        parents = [above] if isinstance(above, str) else list(above or ())
        assert said["columns"][name]["parents"] == parents
        given = f"given {' and '.join(parents)} " if parents else ""
        assert re.search(rf"^  {name} +{given} *\d+ (values|bins)", shown, re.M)
    assert said.get("super_parent") == getattr(fitted, "super_parent_", None)


def test_inspect__plans_pairs_of_data(data: Path) -> None:
    told = ("inspect", data, "--target", "late", "--pairs", "--threads", "2")
    plan = fb.plan(str(data), "late", pairs=True, threads=2)
    said = answer(*told)["plan"]
    assert plan.pairs is not None
    assert said["bytes"] == plan.total
    assert said["pairs"]["bytes"] == plan.pairs.total
    assert said["pairs"]["scans"] == 1
    assert said["pairs"]["strategies"] == plan.pairs.strategies
    assert said["pairs"]["groups"] == 6
    sizes = [block["bytes"] for block in said["pairs"]["largest"]]
    assert sizes == sorted(plan.pairs.blocks()["bytes"].to_pylist(), reverse=True)[:5]
    shown = run(*told).stdout
    assert re.search(rf"^pairs +6 need {re.escape(size(plan.pairs.total))}$", shown, re.M)
    limit = plan.total - plan.pairs.total // 2
    tight = (*told, "--memory-limit", limit)
    scans = fb.plan(str(data), "late", pairs=True, threads=2, memory_limit=limit).pairs.scans
    assert answer(*tight)["plan"]["pairs"]["scans"] == scans > 1
    assert f"TAN and KDB take {scans} scans" in run(*tight).stdout
    wide = [f"v{i}" for i in range(1500)]
    many = parquet(pa.table({"a": wide, "b": wide, "y": ["n", "p"] * 750}), data.with_name("w"))
    tightest = ("inspect", many, "--target", "y", "--pairs", "--memory-limit", "5M")
    assert answer(*tightest)["plan"]["pairs"]["scans"] is None
    assert "over the limit, as a x b is alone: models of pairs refuse" in run(*tightest).stdout
    coarse = answer(*told, "--discretize", "quantile:2")["plan"]["pairs"]["bytes"]
    assert coarse < plan.pairs.total
    assert "pairs" not in answer(*told[:4])["plan"]


# -- predict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_predict__explains(data: Path, case: str) -> None:
    name, told, _ = CASES[case]
    model, out = data.with_name("m.fb"), data.with_name("p.parquet")
    run("fit", data, "--target", "late", "--model", name, *told, "-o", model)
    run("predict", model, data, "--proba", "--explain", "-o", out)
    fitted, table = fb.load(model), trips()
    written, why = pq.read_table(out), fitted.explain(table.select(FEATURES))
    assert written["prediction"].to_pylist() == fitted.predict(table.select(FEATURES)).tolist()
    best = np.array([list(fitted.classes_).index(p) for p in written["prediction"].to_pylist()])
    rows = np.arange(ROWS)
    margin = why.contributions[rows, :, best] - why.contributions[rows, :, 1 - best]
    assert np.allclose(written["because_nats"], margin.max(axis=1))
    told_by = [FEATURES.index(n) for n in written["because"].to_pylist()]
    assert np.allclose(margin[rows, told_by], margin.max(axis=1))
