"""Bayesian networks from the command line: learn, query, sample, show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import answer, fails, parquet, run, tennis
from networks_made import asia, burglary
from test_cli_stopping import on_terminal, shown

import fastbayes as fb
from fastbayes.networks.network import BayesianNetwork


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "asia.bif"
    asia().write_bif(path)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return parquet(asia().sample(3000, seed=7), tmp_path / "d.parquet")


# -- learn -------------------------------------------------------------------------------------

LEARN: dict[str, tuple[list[str], dict[str, Any]]] = {
    "as it is": ([], {}),
    "k2": (
        ["--search", "k2", "--order", ",".join(asia().nodes), "--score", "bdeu", "--ess", "4",
         "--max-parents", "1", "--prior", "bdeu"],
        {"search": "k2", "order": list(asia().nodes), "score": "bdeu", "ess": 4.0,
         "max_parents": 1, "prior": "bdeu"},
    ),
    "tabu": (
        ["--search", "tabu", "--score", "aic", "--restarts", "1", "--seed", "3", "--alpha", "0.5",
         "--required", "asia->dysp", "--required", " xray -> asia", "--forbidden", "lung->either"],
        {"search": "tabu", "score": "aic", "restarts": 1, "seed": 3, "alpha": 0.5,
         "required": [("asia", "dysp"), ("xray", "asia")], "forbidden": [("lung", "either")]},
    ),
    "columns": (
        ["--search", "exact", "--columns", "smoke,lung,bronc", "--missing", "category",
         "--null-values", "no", "--threads", "2", "--memory-limit", "50M"],
        {"search": "exact", "columns": ["smoke", "lung", "bronc"], "missing": "category",
         "null_values": ["no"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEARN)
def test_learn__gives_the_network_of_the_library(rows: Path, case: str) -> None:
    told, options = LEARN[case]
    out = rows.with_name("m.fb")
    said = answer("network", "learn", rows, *told, "-o", out)
    expected = BayesianNetwork.learn(str(rows), **options)
    made = fb.load(out)
    assert made == expected
    assert said["edges"] == [list(edge) for edge in expected.edges]
    assert said["nodes"] == len(expected.nodes)
    assert said["parameters"] == expected.n_parameters()
    assert said[options.get("score", "mdl")] == pytest.approx(expected.search_.score, rel=1e-12)
    assert said["rows"] + said["rows_left_out"] == 3000
    assert said["finished"]
    run("network", "learn", rows, *told, "-o", rows.with_name("m.bif"))
    written = BayesianNetwork.read(rows.with_name("m.bif"))
    assert written.parents == expected.parents
    assert all(np.array_equal(written.tables[n], expected.tables[n]) for n in expected.nodes)


def test_learn__fractions_are_cut(tmp_path: Path) -> None:
    data = parquet(tennis(), tmp_path / "d.parquet")
    told = ("network", "learn", data, "-o", tmp_path / "m.bif", "--force")
    assert "'degrees'" in fails(*told, folder=tmp_path)
    run(*told, "--discretize", "quantile:2")
    expected = BayesianNetwork.learn(str(data), discretize=("quantile", 2))
    assert BayesianNetwork.read(tmp_path / "m.bif").parents == expected.parents
    assert "mdl needs a class" in fails(*told, "--discretize", "mdl", folder=tmp_path, code=2)


def test_learn__says_what_it_found(rows: Path) -> None:
    out = rows.with_name("m.xml")
    text = run("network", "learn", rows, "-o", out).stdout
    expected = BayesianNetwork.learn(str(rows))
    assert re.search(rf"^edges +{len(expected.edges)}$", text, re.M)
    for node, above in expected.parents.items():
        assert (f"  {node} given {', '.join(above)}\n" in text) == bool(above)
    late = run("network", "learn", rows, "-o", out, "--force", "--time-limit", "1e-9")
    assert "the time limit ended the search" in late.stderr


def test_learn__refuses(rows: Path) -> None:
    told = ("network", "learn", rows, "-o")
    folder = rows.parent
    for bad in ("a", "a->", "a->b->c"):
        assert "is no edge" in fails(*told, "m.bif", "--required", bad, folder=folder, code=2)
    said = fails(*told, folder / "m.txt", folder=folder, code=2)
    assert "the name says no format; end it in .fb, .bif" in said
    both = ("--required", "asia->tub", "--forbidden", "asia->tub")
    assert "asia" in fails(*told, folder / "m.bif", *both, folder=folder)
    (folder / "m.bif").write_text("mine")
    assert "exists" in fails(*told, folder / "m.bif", folder=folder)
    none = ("network", "learn", folder / "none.parquet", "-o", folder / "m.bif")
    assert "m.bif exists" in fails(*none, folder=folder)  # said before the work, not after it
    assert "order" in fails(*told, folder / "k.bif", "--search", "k2", folder=folder)


# -- query -------------------------------------------------------------------------------------


def test_query__exact(file: Path) -> None:
    told = ("network", "query", file, "--target", "tub", "-t", "bronc")
    given = ("--evidence", "asia=yes", "-e", "dysp=yes")
    said = answer(*told, *given)
    expected = asia().query(["tub", "bronc"], {"asia": "yes", "dysp": "yes"})
    assert said == {
        "targets": ["tub", "bronc"],
        "evidence": {"asia": "yes", "dysp": "yes"},
        "method": "exact",
        "log_evidence": expected.log_evidence,
        "answer": expected.table.to_pylist(),
    }
    assert said["log_evidence"] == pytest.approx(np.log(0.004501375))
    text = run(*told, *given).stdout
    assert text.startswith(str(expected))
    assert re.search(r"^P\(evidence\) +0\.00450138$", text, re.M)
    assert "P(evidence)" not in run(*told).stdout


@pytest.mark.parametrize("how", ["gibbs", "likelihood_weighting"])
def test_query__by_random_draws(file: Path, how: str) -> None:
    told = ("network", "query", file, "-t", "bronc", "-e", "dysp=yes", "--method", how)
    options: dict[str, Any] = {"draws": 2000, "seed": 5}
    if how == "gibbs":
        options |= {"chains": 4, "burn_in": 10, "thin": 2}
    words = [w for name, n in options.items() for w in (f"--{name.replace('_', '-')}", n)]
    said = answer(*told, *words)
    expected = asia().query("bronc", {"dysp": "yes"}, how, **options)
    found = expected.table.to_pylist()
    assert said["method"] == how
    assert [{k: v for k, v in row.items() if v is not None} for row in said["answer"]] == found
    again = answer(*told, "--draws", 2000)
    assert again == answer(*told, "--draws", 2000, "--threads", 1)
    assert again["answer"] != said["answer"]


@pytest.mark.parametrize("how", ["exact", "gibbs"])
@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_query__of_each_node_by_itself(file: Path, how: str) -> None:
    told = ("network", "query", file, "-e", "dysp=yes", "--method", how)
    options: dict[str, Any] = {} if how == "exact" else {"draws": 2000, "seed": 5}
    words = [w for name, n in options.items() for w in (f"--{name}", n)]
    expected = asia().marginals({"dysp": "yes"}, method=how, **options)
    said = answer(*told, *words)
    assert said == answer(*told, *words, "--marginals")
    assert said == {
        "targets": [node for node in asia().nodes if node != "dysp"],
        "evidence": {"dysp": "yes"},
        "method": how,
        "log_evidence": expected.log_evidence,
        "answer": expected.table.to_pylist(),
    }
    assert run(*told, *words).stdout.startswith(f"{expected}\n")
    some = answer(*told, *words, "--marginals", "-t", "tub", "-t", "dysp")
    assert some["targets"] == ["tub", "dysp"]
    found = [row["probability"] for row in some["answer"]]
    assert found == pytest.approx([*expected["tub"].probabilities, 1, 0], rel=1e-12)


def test_query__takes_names_with_equals_signs_and_states_that_are_no_text(tmp_path: Path) -> None:
    half = [[0.5, 0.5], [0.25, 0.75]]
    states: dict[str, Any] = {"a": [1, 2], "a=b": ["c=d", "e"], "t": [True, None]}
    tables = {"a": [0.5, 0.5], "a=b": half, "t": half}
    network = BayesianNetwork(states, {"a=b": ["a"], "t": ["a=b"]}, tables)
    file = tmp_path / "n.fb"
    network.save(file)
    said = answer("network", "query", file, "-t", "t", "-e", "a=2", "-e", "a=b=c=d")
    assert said["answer"] == network.query("t", {"a": 2, "a=b": "c=d"}).table.to_pylist()
    assert answer("network", "query", file, "-t", "a", "-e", "t = None")["evidence"] == {"t": None}


def test_query__refuses(file: Path) -> None:
    folder = file.parent
    told = ("network", "query", file, "-t")
    assert "no node 'sky'; there are asia" in fails(*told, "sky", folder=folder)
    assert "no node 'sky'" in fails(*told, "tub", "-e", "sky=blue", folder=folder)
    assert "no state 'maybe'; it has yes, no" in fails(
        *told, "tub", "-e", "asia=maybe", folder=folder
    )
    twice = ("-e", "asia=yes", "-e", "asia=yes")
    assert "'asia' is observed twice" in fails(*told, "tub", *twice, folder=folder)
    assert "NODE=STATE" in fails(*told, "tub", "-e", "asia", folder=folder, code=2)
    assert "impossible" in fails(*told, "asia", "-e", "either=no", "-e", "lung=yes", folder=folder)
    for option, method in (
        ("--draws", "exact"), ("--seed", "exact"), ("--chains", "likelihood_weighting"),
        ("--burn-in", "likelihood_weighting"),
    ):  # fmt: skip
        more = (option, 3, "--method", method)
        said = fails(*told, "tub", *more, folder=folder, code=2)
        assert f"{option} does not go with --method {method}" in said


def test_network__is_read_from_all_files(tmp_path: Path) -> None:
    network = burglary()
    network.write(tmp_path / "n.bif")
    network.write(tmp_path / "n.xml")
    network.save(tmp_path / "n.fb")
    for name in ("n.bif", "n.xml", "n.fb"):
        told = ("-t", "B", "-e", "J=yes", "-e", "M=yes")
        first = answer("network", "query", tmp_path / name, *told)["answer"][0]
        assert first["B"] == "yes"
        assert first["probability"] == pytest.approx(0.284171835364, abs=1e-12)
    data = parquet(tennis(), tmp_path / "d.parquet")
    options = ("--target", "play", "--columns", "sky,warmth")
    run("fit", data, *options, "--model", "tan", "-o", tmp_path / "t.fb")
    expected = fb.load(tmp_path / "t.fb").to_network()
    said = answer("network", "query", tmp_path / "t.fb", "-t", "play", "-e", "sky=rain")
    assert said["answer"] == expected.query("play", {"sky": "rain"}).table.to_pylist()
    run("fit", data, *options, "--model", "aode", "-o", tmp_path / "a.fb")
    run("count", data, *options, "-o", tmp_path / "s.fbs")
    (tmp_path / "s.fb").write_bytes((tmp_path / "s.fbs").read_bytes())
    for name, message in (
        ("a.fb", "holds AODE, which is no network"), ("s.fb", "which is no network"),
        ("s.fbs", "the name says no format"), ("none.bif", "no such file"),
    ):  # fmt: skip
        assert message in fails("network", "show", tmp_path / name, folder=tmp_path)
    (tmp_path / "bad.bif").write_text("variable a {\n type discrete [ 1000000000 ] { x };\n}")
    said = fails("network", "show", tmp_path / "bad.bif", folder=tmp_path)
    assert "bad.bif, line 2: node 'a' has 1 states, '1000000000' are declared" in said


# -- sample ------------------------------------------------------------------------------------


def test_sample__writes_the_rows_of_the_library(file: Path) -> None:
    told = ("network", "sample", file, "--rows", 70_000, "-e", "smoke=yes")
    out = file.with_name("s.parquet")
    said = answer(*told, "-o", out)
    assert said["rows"] == 70_000
    expected = asia().sample(70_000, {"smoke": "yes"}, seed=0)
    assert pq.read_table(out).to_pydict() == expected.to_pydict()
    run(*told, "-o", out, "--seed", 5, "--threads", 1, "--force")
    other = pq.read_table(out)
    assert other.to_pydict() == asia().sample(70_000, {"smoke": "yes"}, seed=5).to_pydict()
    assert other["bronc"].to_pylist() != expected["bronc"].to_pylist()
    run("network", "sample", file, "--rows", 10, "-o", file.with_name("s.csv"))
    assert pa.csv.read_csv(file.with_name("s.csv")).num_rows == 10
    run("network", "sample", file, "--rows", 0, "-o", file.with_name("none.parquet"))
    assert pq.read_table(file.with_name("none.parquet")).num_rows == 0


def test_sample__refuses(file: Path) -> None:
    folder = file.parent
    told = ("network", "sample", file, "--rows", 5, "-o")
    assert "the name says no format" in fails(*told, folder / "s.txt", folder=folder, code=2)
    (folder / "s.parquet").write_text("mine")
    assert "exists" in fails(*told, folder / "s.parquet", folder=folder)
    given = ("-e", "either=no", "-e", "lung=yes")
    assert "impossible" in fails(*told, folder / "t.parquet", *given, folder=folder)


# -- show --------------------------------------------------------------------------------------


def test_show__says_what_is_in_it(file: Path) -> None:
    network = asia()
    said = answer("network", "show", file)
    assert said["nodes"] == 8
    assert said["edges"] == [list(edge) for edge in network.edges]
    assert said["parameters"] == 18
    assert said["columns"]["either"] == {
        "states": ["yes", "no"], "parents": ["lung", "tub"], "children": ["xray", "dysp"],
    }  # fmt: skip
    text = run("network", "show", file).stdout
    assert re.search(r"^parameters +18$", text, re.M)
    assert re.search(r"^  either +given lung, tub +2 states: yes, no$", text, re.M)
    assert re.search(r"^  asia +2 states: yes, no$", text, re.M)
    assert run("network", "show", file, "--dot").stdout == network.to_dot() + "\n"


def test_show__graph_alone(tmp_path: Path) -> None:
    BayesianNetwork.from_edges([("a", "b")]).save(tmp_path / "g.fb")
    assert answer("network", "show", tmp_path / "g.fb")["parameters"] is None
    assert "  b  given a" in run("network", "show", tmp_path / "g.fb").stdout
    said = fails("network", "query", tmp_path / "g.fb", "-t", "a", folder=tmp_path)
    assert "not fitted" in said


def test_show__what_is_independent(file: Path) -> None:
    told = ("network", "show", file, "--separated")
    for x, y, z in (
        ("asia", "smoke", []), ("asia", "smoke", ["dysp"]), ("lung", "bronc", []),
        ("lung", "bronc", ["smoke"]), ("xray", "dysp", ["either", "lung"]),
    ):  # fmt: skip
        given = [word for name in z for word in ("--given", name)]
        expected = asia().d_separated(x, y, z)
        said = answer(*told, x, y, *given)
        assert said == {"x": x, "y": y, "given": z, "independent": expected}
        more = f" given {', '.join(z)}" if z else ""
        word = "independent" if expected else "dependent"
        assert run(*told, x, y, *given).stdout == f"{x} and {y} are {word}{more}\n"
    folder = file.parent
    assert "no node 'sky'" in fails(*told, "asia", "sky", folder=folder)
    given = ("--given", "tub")
    assert "--separated" in fails("network", "show", file, *given, folder=folder, code=2)
    for more in (["--json"], ["--separated", "asia", "tub"]):
        said = fails("network", "show", file, "--dot", *more, folder=folder, code=2)
        assert "--dot is alone" in said


def test_learn__shows_its_score_on_a_terminal(rows: Path) -> None:
    with on_terminal("network", "learn", rows, "-o", rows.with_name("m.bif")) as (process, end):
        said = shown(end)
        assert process.wait(60) == 0
    assert re.search(r"learning: \d+ steps .*score [\d,.]+\]", said)
