"""BIF: what is written is read, however it is spelt; what contradicts itself is refused."""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_files import HARD, check_posteriors, networks, read_file, refused_file
from networks_made import asia, burglary, random_network, read_plain_bif

from fastbayes.core.errors import DataError, FastBayesWarning, FileFormatError
from fastbayes.networks.graph.coded import SparseTable
from fastbayes.networks.io import bif, pyagrum_formats
from fastbayes.networks.io.parsed_network import (
    SIX_DIGITS,
    WRITTEN,
    Family,
    NetworkBuilder,
    TableRow,
)
from fastbayes.networks.network import BayesianNetwork

few = settings(max_examples=30)

RAIN = """network unknown {
}
variable rain {
  type discrete [ 2 ] { no, yes };
}
variable wet {
  type discrete [ 3 ] { 0, 1, -1.5 };
}
probability ( rain ) {
  table 0.75, 0.25;
}
probability ( wet | rain ) {
  (no) 0.5, 0.25, 0.25;
  (yes) 0.0, 1.0, 0.0;
}
"""


def read(folder: Path, text: str | bytes) -> BayesianNetwork:
    return read_file(folder / "n.bif", text)


def refused(folder: Path, text: str | bytes) -> str:
    return refused_file(folder / "n.bif", text)


# -- reading -----------------------------------------------------------------------------------


def test_read__gives_what_is_written_in_the_file(tmp_path: Path) -> None:
    network = read(tmp_path, RAIN)
    assert network.states == {"rain": ("no", "yes"), "wet": ("0", "1", "-1.5")}
    assert network.parents == {"rain": (), "wet": ("rain",)}
    assert network.tables["rain"].tolist() == [0.75, 0.25]
    assert network.tables["wet"].tolist() == [[0.5, 0.25, 0.25], [0, 1, 0]]


# The same network in other words.
SPELT = {
    "packed": RAIN.replace("\n", " ").replace("  ", " ").replace(", ", ",").replace(" {", "{"),
    "in quotes": RAIN.replace("rain", '"rain"').replace("(no)", '("no")'),
    "without commas": RAIN.replace(",", " "),
    "without a bar": RAIN.replace("wet |", '"wet" '),
    "carriage returns": RAIN.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + RAIN,
    "no network": RAIN.partition("}\n")[2],
    "rows in another order": RAIN.replace("  (no) 0.5, 0.25, 0.25;\n", "").replace(
        "0.0, 1.0, 0.0;", "0.0, 1.0, 0.0; (no) 0.5 0.25 0.25;"
    ),
    "a table, the node slowest": RAIN.replace("  (no) 0.5, 0.25, 0.25;\n", "").replace(
        "(yes) 0.0, 1.0, 0.0", "table 0.5 0.0  0.25 1.0  0.25 0.0"
    ),
    "a default": RAIN.replace("(yes)", "default"),
    "a default for all": RAIN.replace("(no) 0.5, 0.25, 0.25;", "(yes) 0 1 0;").replace(
        "(yes) 0.0, 1.0, 0.0;", "default 5e-1, .25, +0.25;"
    ),
    "a default for nothing": RAIN.replace("(yes) 0.0", "default 0.1, 0.2, 0.7; (yes) 0.0"),
    "comments": "// one {\n/* two ; ** / */" + RAIN.replace(",", "/**/, // {(\n").replace(
        "(no)", "/* ( */(/*;*/no//)\n)"
    ),
    "properties": RAIN.replace("{\n", '{\n property p = (1, 2) "; }" ;\n', 2)
    .replace(" (no)", ' property "a; b";\n (no)')
    .replace("\n}\nprobability", "\n property x;}\nproperty y ;\nprobability"),
    "probabilities first": "probability" + RAIN.partition("probability")[2]
    + RAIN.partition("probability")[0],
}  # fmt: skip


@pytest.mark.parametrize("text", SPELT.values(), ids=SPELT)
def test_read__spelt_otherwise_is_the_same(tmp_path: Path, text: str) -> None:
    assert text != RAIN
    found, expected = read(tmp_path, text), read(tmp_path, RAIN)
    assert found == expected


def test_table__counts_the_node_slowest(tmp_path: Path) -> None:
    # The dog problem of the format's own description.
    head = "".join(
        f"variable {n} {{ type discrete[2] {{ true false }}; }} " for n in ("out", "ill", "alone")
    )
    roots = "".join(f"probability ({n}) {{ table 0.5 0.5; }}" for n in ("ill", "alone"))
    text = f"{head}{roots}probability (out ill alone) {{ table .99 .97 .9 .3 .01 .03 .1 .7; }}"
    expected = [[[0.99, 0.01], [0.97, 0.03]], [[0.9, 0.1], [0.3, 0.7]]]
    assert read(tmp_path, text).tables["out"].tolist() == expected
    said = refused(tmp_path, text.replace(".99 .97 .9 .3 .01 .03 .1 .7", ".9 .1 .2 .8 .7 .3 .4 .6"))
    assert "a table counts the node's states slowest" in said


def test_rows_of_few_digits__are_scaled_with_one_warning(tmp_path: Path) -> None:
    text = RAIN.replace("0.75, 0.25", "0.7500004, 0.25").replace("(yes) 0.0", "(yes) 0.0000002")
    with pytest.warns(FastBayesWarning) as caught:
        network = read(tmp_path, text)
    assert len(caught) == 1
    said = str(caught[0].message)
    assert "2 of 3 rows do not sum to 1 and were scaled" in said
    assert "by 4e-07, is node 'rain'" in said
    assert Path(caught[0].filename).parent == Path(__file__).parent
    np.testing.assert_array_equal(network.tables["rain"], np.array([0.7500004, 0.25]) / 1.0000004)
    assert abs(network.tables["wet"].sum(axis=1) - 1).max() < 1e-15
    said = refused(tmp_path, RAIN.replace("(yes) 0.0", "(yes) 0.000002"))
    assert said == "line 14: node 'wet' where 'rain' is 'yes': the probabilities sum to 1.000002"


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize(("digits", "most_off"), [(6, WRITTEN), (4, SIX_DIGITS)])
def test_decimals_that_miss_1_by_what_they_may__are_scaled(
    digits: int, most_off: float, off: int
) -> None:
    """As binary numbers, some of them miss it by a little more."""
    for n in range(2, 40):
        whole = 10**digits
        parts = [whole // n] * (n - 1)
        numbers = [part / whole for part in (*parts, whole - sum(parts) + off)]
        builder = NetworkBuilder("n.bif", most_off=most_off)
        builder.node("a", [*map(str, range(n))], 0)
        builder.family(Family("a", (), 0, table=TableRow((), numbers, 0)))
        with pytest.warns(FastBayesWarning, match="1 of 1 rows do not sum to 1"):
            table = builder.parts().tables["a"]
        assert np.asarray(table).sum() == pytest.approx(1, rel=1e-15)


def test_read__agrees_with_another_reader(shared_data: Path) -> None:
    for path in sorted((shared_data / "bif").glob("*.bif")):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if path.stem != "sachs" else "ignore")
            found = BayesianNetwork.read_bif(path)
        expected = read_plain_bif(path)
        assert (found.nodes, found.parents) == (expected.nodes, expected.parents)
        assert found.states == expected.states
        for node, table in found.tables.items():
            np.testing.assert_allclose(table, expected.tables[node], rtol=1e-15)


@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "sachs", "survey"])
def test_posteriors__are_the_recorded_ones(shared_data: Path, tmp_path: Path, name: str) -> None:
    check_posteriors(shared_data, name, ".bif", tmp_path)


# -- writing -----------------------------------------------------------------------------------


@few
@given(network=networks())
def test_written__is_read_to_the_last_bit(network: BayesianNetwork, tmp_path: Path) -> None:
    network.write_bif(tmp_path / "n.bif", force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert BayesianNetwork.read_bif(tmp_path / "n.bif") == network


def test_written__is_plain_where_it_can_be(tmp_path: Path) -> None:
    network = read(tmp_path, RAIN)
    network.write_bif(tmp_path / "again.bif")
    assert (tmp_path / "again.bif").read_text() == RAIN
    for name in HARD:
        text = bif._quoted(name)
        assert (text == name) == bool(bif.PLAIN.fullmatch(name))
        lexer = bif.Lexer(f"  {text}{{")
        assert lexer.advance() == name
        assert lexer.advance() == "{"


def test_write__what_is_no_text_becomes_it(tmp_path: Path) -> None:
    states: dict[str, Any] = {"a": [0, 1], "b": [True, None]}
    half = [0.5, 0.5]
    network = BayesianNetwork(states, {"b": ["a"]}, {"a": half, "b": [half, half]})
    network.write_bif(tmp_path / "n.bif")
    found = BayesianNetwork.read_bif(tmp_path / "n.bif")
    assert found.states == {"a": ("0", "1"), "b": ("true", "None")}
    for bad in ([1, "1"], ["a", "\ud800"]):
        one = BayesianNetwork({"a": bad}, {}, {"a": half})
        with pytest.raises(DataError, match="states of node 'a'"):
            one.write_bif(tmp_path / "m.bif")
    two = BayesianNetwork({1: ["x"], "1": ["x"]}, {}, {1: [1.0], "1": [1.0]})  # type: ignore
    with pytest.raises(DataError, match="two nodes are '1' as text"):
        two.write_bif(tmp_path / "m.bif")
    assert not (tmp_path / "m.bif").exists()


@pytest.mark.parametrize("name", ["n.bif", "n.xml"])
def test_write__states_are_the_text_that_data_have(name: str, tmp_path: Path) -> None:
    table = pa.table({"b": [True, False] * 9, "x": [1.0, 2.5] * 9, "y": ["p", "q"] * 9})
    network = BayesianNetwork.learn(table, categorical="x")
    network.write(tmp_path / name)
    found = BayesianNetwork.read(tmp_path / name)
    assert found.states == {"b": ("false", "true"), "x": ("1", "2.5"), "y": ("p", "q")}
    told = table.set_column(0, "b", table["b"].cast("string"))
    told = told.set_column(1, "x", table["x"].cast("string"))
    np.testing.assert_array_equal(found.predict_proba(told, "y"), network.predict_proba(table, "y"))


@pytest.mark.parametrize("name", ["n.bif", "n.xml"])
def test_written__bins_and_a_missing_value_are_read_as_they_were(name: str, tmp_path: Path) -> None:
    data = {"x": [1.0, 2.0, 3.0, 4.0, None, None], "y": list("aabbab")}
    network = BayesianNetwork.learn(
        data, discretize={"x": [2.0]}, required=[("x", "y")], missing="category"
    )
    network.write(tmp_path / name)
    found = BayesianNetwork.read(tmp_path / name)
    assert found == network
    assert found.states["x"] == ("(-inf, 2]", "(2, inf)", None)
    for value in (1.5, None):
        expected = network.query("y", {"x": value}).probabilities
        assert (found.query("y", {"x": value}).probabilities == expected).all()
    rows = {"x": [1.5, None]}
    assert (found.predict_proba(rows, "y") == network.predict_proba(rows, "y")).all()
    # Beside other states, and beside bins with gaps between them, it is a text.
    for states in (("a", "None"), ("(-inf, 2]", "(3, inf)", "None")):
        share = [1 / len(states)] * len(states)
        BayesianNetwork({"x": states}, {}, {"x": share}).write(tmp_path / name, force=True)
        assert BayesianNetwork.read(tmp_path / name).states == {"x": states}


def test_evidence_of_which_nothing_is_a_state__is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = BayesianNetwork({"b": ["false", "true"]}, {}, {"b": [0.5, 0.5]})
    network.log_likelihood({"b": ["True", "False"]})
    assert "'b': none of its values is a state of the node, such as 'false'" in caplog.text
    caplog.clear()
    network.log_likelihood({"b": ["True", "true"]})
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_write__leaves_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    burglary().write_bif(path)
    with pytest.raises(DataError, match="exists"):
        asia().write_bif(path)
    assert BayesianNetwork.read_bif(path) == burglary()
    asia().write_bif(path, force=True)
    assert BayesianNetwork.read_bif(path) == asia()
    with pytest.raises(ValueError, match="not fitted"):
        BayesianNetwork.from_edges([("a", "b")]).write_bif(path, force=True)
    with pytest.raises(DataError, match="no node"):
        BayesianNetwork({}, {}, {}).write_bif(path, force=True)
    with pytest.raises(DataError, match="the name says no format"):
        asia().write(tmp_path / "n.txt")
    assert os.listdir(tmp_path) == ["n.bif"]


def test_other_formats__name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyagrum", None)
    (tmp_path / "n.net").write_text("net {}")
    with pytest.raises(DataError, match=r"pip install fastbayes\[bn\]"):
        BayesianNetwork.read(tmp_path / "n.net")
    with pytest.raises(DataError, match=r"pip install fastbayes\[bn\]"):
        asia().write(tmp_path / "m.dsl")


# Nothing here imports pyAgrum: made errors, as warnings are here, its own end the process.
needs_pyagrum = pytest.mark.skipif(find_spec("pyagrum") is None, reason="pyagrum is missing")


@needs_pyagrum
@pytest.mark.parametrize("suffix", [".net", ".dsl", ".o3prm"])
def test_other_formats__are_read_and_written(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.chdir(tmp_path)
    drawn = (random_network(seed, 5, 0.6, most=4) for seed in itertools.count())
    network = next(n for n in drawn if {*map(len, n.states.values())} == {2, 3, 4})
    network.write(f"n{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)  # they write fewer digits
        found = BayesianNetwork.read(f"n{suffix}")
    assert "pyagrum" not in sys.modules
    assert {*found.nodes} == {*network.nodes}
    for node in network.nodes:
        if suffix != ".o3prm":  # states that are numbers are written as a range
            assert found.states[node] == network.states[node]
        assert {*found.parents[node]} == {*network.parents[node]}
        order = [found.parents[node].index(p) for p in network.parents[node]]
        table = found.tables[node].transpose([*order, len(order)])
        np.testing.assert_allclose(table, network.tables[node], atol=1e-5)


@needs_pyagrum
@pytest.mark.parametrize("suffix", [".net", ".dsl", ".o3prm"])
def test_other_formats__without_nodes_of_one_state_say_so(tmp_path: Path, suffix: str) -> None:
    tables = {"a": np.ones(1), "c": np.array([[0.5, 0.5]])}
    network = BayesianNetwork({"a": ["x"], "c": ["u", "v"]}, {"c": ["a"]}, tables)
    with pytest.raises(DataError, match=r"does not read it again .* or leave out 'a'"):
        network.write(tmp_path / f"n{suffix}")
    assert not [*tmp_path.iterdir()]


@needs_pyagrum
@pytest.mark.parametrize(
    ("suffix", "node", "state"),
    [
        (".net", "dept 1", "s"), (".net", "d", "s t"), (".o3prm", "dept 1", "s"),
        (".net", "node", "s"),
    ],
)  # fmt: skip
def test_other_formats__that_cannot_hold_a_name_are_refused(
    tmp_path: Path, suffix: str, node: str, state: str
) -> None:
    network = BayesianNetwork({node: [state, "t"]}, {}, {node: [0.25, 0.75]})
    odd = {"s": node, "s t": state}[state]
    remedy = f"write .bif or .xml, or rename {'nodes and states' if odd == 'node' else repr(odd)}"
    with pytest.raises(DataError, match=rf"{suffix} cannot hold the network.*{remedy}"):
        network.write(tmp_path / f"n{suffix}")
    assert not [*tmp_path.iterdir()]


# Numbers that pyAgrum, which reads floats of 24 bits, reads as they are.
NET = """net {}
node zebra { states = ("no" "yes"); }
node ant { states = ("a" "b" "c"); }
potential (zebra) { data = (0.123456776142120361328125 0.876543223857879638671875); }
potential (ant | zebra) { data = ((0.25 0.625 0.125) (0 0.5 0.5)); }
"""


@needs_pyagrum
def test_other_formats__are_read_in_order_to_the_last_bit(tmp_path: Path) -> None:
    (tmp_path / "n.net").write_text(NET)
    found = BayesianNetwork.read(tmp_path / "n.net")
    assert list(found.nodes) == ["zebra", "ant"]
    assert found.tables["zebra"].tolist() == [2071261 / 2**24, 1 - 2071261 / 2**24]
    assert found.tables["ant"].tolist() == [[0.25, 0.625, 0.125], [0, 0.5, 0.5]]


# P(c | two parents), `c` fastest and the first parent slowest; floats of 24 bits have these whole.
OF_TWO = [number for k in range(1, 7) for number in (k / 8, 1 - k / 8)]
STATES = {"a": ["x", "y"], "b": ["p", "q", "r"], "c": ["u", "v"]}
ALONE = {"a": [0.25, 0.75], "b": [0.25, 0.5, 0.25]}


def net_file(parents: list[str]) -> str:
    text = "net {}\n"
    for node, states in STATES.items():
        text += f"node {node} {{ states = ({' '.join(map(repr, states))}); }}\n".replace("'", '"')
    for node, numbers in ALONE.items():
        text += f"potential ({node}) {{ data = ({' '.join(map(str, numbers))}); }}\n"
    return (
        text + f"potential (c | {' '.join(parents)}) {{ data = ({' '.join(map(str, OF_TWO))}); }}"
    )


def dsl_file(parents: list[str]) -> str:
    text = "net n\n{\n"
    for node, states in STATES.items():
        above = ", ".join(parents) if node == "c" else ""
        numbers = ", ".join(map(str, ALONE.get(node, OF_TWO)))
        text += (
            f'node {node}\n{{\nTYPE = CPT;\nHEADER =\n{{\nID = {node};\nNAME = "{node}";\n}};\n'
            f"PARENTS = ({above});\nDEFINITION =\n{{\nNAMESTATES = ({', '.join(states)});\n"
            f"PROBABILITIES = ({numbers});\n}};\n}};\n"
        )
    return text + "};\n"


def o3prm_file(parents: list[str]) -> str:
    text = "class n {\n"
    for node, numbers in ALONE.items():
        text += f"labels({', '.join(STATES[node])}) {node} {{ {numbers} }};\n"
    rows = itertools.product(*(STATES[p] for p in parents))
    told = zip(rows, OF_TWO[::2], OF_TWO[1::2], strict=True)
    rules = "".join(f"{', '.join(given)} : {u}, {v};\n" for given, u, v in told)
    return text + f"labels(u, v) c dependson {', '.join(parents)} {{\n{rules}}};\n}}\n"


@needs_pyagrum
@pytest.mark.parametrize("parents", [["a", "b"], ["b", "a"]])
@pytest.mark.parametrize("written", [net_file, dsl_file, o3prm_file])
def test_other_formats__count_the_first_parent_slowest(
    tmp_path: Path, written: Any, parents: list[str]
) -> None:
    path = tmp_path / f"n.{written.__name__.removesuffix('_file')}"
    path.write_text(written(parents))
    for _ in range(2):  # as it was written by hand, and as it is written from what was read
        found = BayesianNetwork.read(path)
        order = [found.parents["c"].index(p) for p in parents]
        assert found.tables["c"].transpose([*order, 2]).ravel().tolist() == OF_TWO
        found.write(path, force=True)


@needs_pyagrum
@pytest.mark.parametrize(
    ("name", "text"),
    [("n.net", "net {"), ("n.o3prm", "class m {"), ("n.dsl", "")],
)
def test_other_formats__what_is_none_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileFormatError, match="pyagrum does not read it") as error:
        BayesianNetwork.read(tmp_path / name)
    assert str(error.value).startswith(str(tmp_path / name))
    assert "\n" not in str(error.value)


@needs_pyagrum
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, time alone bounds it")
def test_other_formats__what_takes_too_much_is_refused(tmp_path: Path) -> None:
    parents = [f"p{i}" for i in range(31)]  # a table of 2^32 numbers
    nodes = "".join(f'node {name} {{ states = ("n" "y"); }}\n' for name in [*parents, "child"])
    wide = f"potential (child | {' '.join(parents)}) {{ data = (0.5 0.5); }}\n"
    (tmp_path / "n.net").write_text("net {}\n" + nodes + wide)
    with pytest.raises(FileFormatError, match="pyagrum does not read it"):
        BayesianNetwork.read(tmp_path / "n.net")


BREAKDOWNS = {
    "import os\nos.kill(os.getpid(), 11)": r"broke down .*\(Segmentation fault",
    "raise SystemExit(3)": r"broke down .*\(exit status 3\)",
    "": r"broke down .*\(exit status 0\)",
    "while True: pass": r"did not (read|write) it in 0 s and was stopped",
    'print(\'{"missing": "no libgomp"}\')': r"does not start \(no libgomp\): pip install",
}


@needs_pyagrum
@pytest.mark.parametrize("script", BREAKDOWNS)
def test_other_formats__a_breakdown_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    (tmp_path / "child.py").write_text(script)
    (tmp_path / "n.net").write_text(NET)
    monkeypatch.setattr(pyagrum_formats, "CHILD", tmp_path / "child.py")
    if "while" in script:
        monkeypatch.setattr(pyagrum_formats, "LONGEST", 0.2)
    with pytest.raises(DataError, match=BREAKDOWNS[script]) as error:
        BayesianNetwork.read(tmp_path / "n.net")
    assert isinstance(error.value, FileFormatError) == ("missing" not in script)
    with pytest.raises(DataError, match=BREAKDOWNS[script]) as error:
        asia().write(tmp_path / "n.net", force=True)
    said = str(error.value)
    assert said.startswith(str(tmp_path / "n.net"))
    assert ("write .bif or .xml" in said) == ("missing" not in script)
    assert (tmp_path / "n.net").read_text() == NET
    assert sorted(os.listdir(tmp_path)) == ["child.py", "n.net"]


@needs_pyagrum
def test_other_formats__need_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"none' does not start .*; write \.bif or \.xml"):
        asia().write(tmp_path / "n.net")


# -- what is no network ------------------------------------------------------------------------

TABLE = "table 0.75, 0.25;"
ROW = "(no) 0.5, 0.25, 0.25;"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[ 2 ]", "[ 3 ]", "line 4: node 'rain' has 2 states, '3' are declared"),
        ("[ 2 ]", "[ two ]", "line 4: node 'rain' has 2 states, 'two' are declared"),
        ("[ 2 ]", f"[ {'9' * 10_000} ]", "line 4: node 'rain' has 2 states, '999"),
        ("discrete", "continuous", "'discrete': the nodes of a network have states"),
        ("  type discrete [ 2 ] { no, yes };\n", "", "line 3: node 'rain' has no type"),
        ("{ no, yes }", "{ no | yes }", "line 4: there is '|' where a state or '}' should be"),
        ("{ no, yes };", "{ no, yes }; type discrete [ 1 ] { no };", "line 4: there is 'type' whe"),
        ("{ no, yes }", "{ }", "node 'rain' has 0 states, '2' are declared"),
        ("{ no, yes }", "{ no, no }", "line 3: node 'rain': its state 'no' stands twice"),
        ("[ 2 ] { no, yes }", "[ 0 ] { }", "node 'rain' has 0 states"),
        ("variable wet", "variable rain", "line 6: node 'rain' is declared again, first in line 3"),
        ("( wet | rain )", "( wet | sky )", "line 12: table of 'wet': the parent 'sky' is d"),
        ("( wet | rain )", "( sky | rain )", "line 12: table of 'sky': the node 'sky' is declared"),
        ("( wet | rain )", "( rain )", "line 12: node 'rain' has a second table, first in line 9"),
        ("( wet | rain )", "( wet | rain, rain )", "node 'wet': one of its parents stands twice"),
        ("( wet | rain )", "( wet | wet )", "line 12: the parents of 'wet' go round in a circle"),
        ("( rain )", "( rain | wet )", "go round in a circle: "),
        (f"probability ( rain ) {{\n  {TABLE}\n}}\n", "", "line 3: node 'rain' has no table"),
        (TABLE, "", "line 9: node 'rain': its table has 0 of 1 rows, and no `default`"),
        (TABLE, TABLE + TABLE, "line 10: node 'rain' has a second 'table'"),
        (TABLE, TABLE + "() 0.75 0.25;", "line 9: node 'rain' has a table, and rows besides it"),
        (TABLE, "table 0.75, 0.20, 0.05;", "line 10: node 'rain': its table has 3 numbers, "),
        (TABLE, "table 0.75, x;", "line 10: 'x' is no number"),
        (TABLE, "table 0.75,\n\n0_25;", "line 12: '0_25' is no number"),
        (TABLE, "table 0.75, /**/ ٣;", "is no number"),
        (TABLE, "table 0.75, nan;", "line 10: node 'rain': nan is no probability"),
        (TABLE, "table 1e999, 0;", "line 10: node 'rain': inf is no probability"),
        (TABLE, "table 1.25, -0.25;", "line 10: node 'rain': -0.25 is no probability"),
        (TABLE, "table 0.75, 0.24;", "line 10: node 'rain': the probabilities sum to 0.99"),
        (TABLE, "table 0.75, 0.25", "line 11: there is '}' where a number or ';' should be"),
        (TABLE, "chair 0.75, 0.25;", "line 10: there is 'chair' where a row or '}' should be"),
        (ROW, "", "line 12: node 'wet': its table has 1 of 2 rows, and no `default`"),
        (ROW, ROW + ROW, "line 13: node 'wet' where 'rain' is 'no' has a second row, first in"),
        (ROW, "(no, no) 0.5, 0.25, 0.25;", "line 13: node 'wet': 2 states for 1 parents"),
        (ROW, "(snow) 0.5, 0.25, 0.25;", "line 13: node 'wet': 'snow' is no state of its parent"),
        (ROW, "(no) 0.5, 0.5;", "line 13: node 'wet' has 3 states, the row 2 numbers"),
        (ROW, ROW + "default 1;", "line 13: node 'wet' has 3 states, the row 1 numbers"),
        (ROW, "(no) 0.5, 0.25, 0.20;", "line 13: node 'wet' where 'rain' is 'no': the prob"),
        (ROW, ROW[:-1], "line 14: there is '(' where a number or ';' should be"),
        (ROW, '("no) 0.5, 0.25, 0.25;', "line 13: there is a quotation mark without another one"),
        (ROW, "/* " + ROW, "line 13: there is a comment that does not end"),
        (ROW, "property a { b;", "line 13: there is '{' where the ';' of a property should be"),
        ("variable rain {", "variable rain ", "line 4: there is 'type' where '{' should be"),
        ("variable rain {", "variable {", "line 3: there is '{' where the name of a node should"),
        ("variable rain", "rain", "line 3: there is 'rain' where network, variable or prob"),
    ],
)  # fmt: skip
def test_contradiction__is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in RAIN
    said = refused(tmp_path, RAIN.replace(old, new, 1))
    assert message in said
    assert said.startswith("line ")


def test_no_file__is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "") == ": it declares no node; is it a network at all?"
    assert refused(tmp_path, b"\x89PNG\r\n\x1a\n\0\0") == (
        "line 1: byte 0 is no UTF-8 text; is it BIF?"
    )
    assert "line 1: there is " in refused(tmp_path, b"\0" * 5000)
    os.mkfifo(tmp_path / "pipe.bif")
    for name, message in (
        ("none.bif", "no such file"), ("", "is a directory"), ("pipe.bif", "not a regular file"),
    ):  # fmt: skip
        path = tmp_path / name
        if name == "pipe.bif":
            # Opened for reading and writing, so that opening it does not wait for a writer.
            kept = os.open(path, os.O_RDWR)
        with pytest.raises(FileFormatError, match=message):
            BayesianNetwork.read_bif(path)
    os.close(kept)


def test_truncated__is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = RAIN.rstrip()
    for end in range(len(whole)):
        assert refused(tmp_path, whole[:end])


def variables(sizes: list[int]) -> str:
    return "".join(
        f"variable v{i} {{ type discrete [ {n} ] {{ {' '.join(map(str, range(n)))} }}; }}\n"
        for i, n in enumerate(sizes)
    )


# A table of 10^9 numbers, or of far more, in a short text; deep and long ones.
HOSTILE = {
    "a huge table declared": (
        variables([1000] * 3) + "probability (v0 | v1 v2) { table 0.5, 0.5; }",
        "ask 1,000,000,000",
    ),
    "huge rows": (
        variables([1000] * 4) + "probability (v0 | v1 v2 v3) { (0 0 0) 0.5, 0.5; }",
        "the row 2 numbers",
    ),
    "more joint states than can be numbered": (
        variables([2] + [1000] * 21)
        + f"probability (v0 | {' '.join(f'v{i}' for i in range(1, 22))}) {{ default 0.5, 0.5; }}",
        "its parents have over 2^62 joint states",
    ),
    "many parents": (
        variables([2] * 100)
        + f"probability (v0 | {' '.join(f'v{i}' for i in range(1, 100))}) {{ default 0.5 0.5; }}",
        "99 parents; at most 63",
    ),
    "a long circle": (
        variables([2] * 3000)
        + "".join(
            f"probability (v{i} | v{(i + 1) % 3000}) {{ default 0.5 0.5; }}\n" for i in range(3000)
        ),
        "go round in a circle",
    ),
    "braces": ("{" * 200_000, "there is '{'"),
    "brackets": (variables([2]) + "probability " + "(" * 200_000, "there is '('"),
    "spaces": (variables([2]) + "probability (v0) { table" + " " * 200_000, "the file ends"),
    "spaces in rows": (
        variables([2]) + "probability (v0) { (" + " " * 100_000 + ")" + " " * 100_000 + "0.5 {",
        "there is '{'",
    ),
    "stars": ("/" + "*" * 200_000, "a comment that does not end"),
    "slashes": ("/*/" * 50_000 + "/*", "where network, variable or probability should be"),
    "backslashes": ('variable "' + "\\" * 200_001, "a quotation mark without another one"),
    "a long name": ("variable " + "x" * 500_000 + " { }", "has no type"),
    "a long number": (variables([2]) + f"probability (v0) {{ table {'9' * 300_000} x; }}", "'x'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile__is_refused_in_bounded_memory(tmp_path: Path, case: str) -> None:
    text, message = HOSTILE[case]
    named = dict.fromkeys(v for v in text.split() if v.startswith("v") and v[1:].isdecimal())
    for name in named:  # the roots that a case leaves out
        if f"probability ({name} " not in text and case not in ("brackets", "spaces"):
            text += f"\nprobability ({name} ) {{ default 0.5 0.5; }}"
    tracemalloc.start()
    try:
        assert message in refused(tmp_path, text)
        assert tracemalloc.get_traced_memory()[1] < 30e6 + 20 * len(text)
    finally:
        tracemalloc.stop()


VAST = (
    variables([2] + [1000] * 3)
    + "probability (v0 | v1 v2 v3) { (9 8 7) 0.25 0.75; default 0.5, 0.5; (0 0 1) 1 0; }"
    + "".join(f"probability (v{i}) {{ default {'0.001 ' * 1000}; }}" for i in (1, 2, 3))
)


def test_vast_default__keeps_the_rows_that_are_told(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        network = read(tmp_path, VAST)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    table = network.tables["v0"]
    assert isinstance(table, SparseTable)
    assert table.shape == (1000, 1000, 1000, 2)
    assert table.keys.tolist() == [1, 9_008_007]
    assert table.rows.tolist() == [[1, 0], [0.25, 0.75], [0.5, 0.5]]
    given_ = {"v1": "9", "v2": "8", "v3": "7"}
    assert network.query("v0", given_).probability({"v0": "1"}) == 0.75
    network.write_bif(tmp_path / "again.bif")
    assert BayesianNetwork.read_bif(tmp_path / "again.bif") == network
    for name in ("n.xmlbif", "n.net"):
        with pytest.raises(DataError, match=r"table of 'v0' has 2,000,000,000 cells.*write \.bif"):
            network.write(tmp_path / name)
    text = VAST.replace("0.25 0.75", "0.25 0.7500004").replace("0.5, 0.5", "0.5, 0.5000003")
    with pytest.warns(FastBayesWarning, match=r"2 of 6 rows .* is node 'v0' where 'v1' is '9'"):
        read(tmp_path, text)
    said = refused(tmp_path, VAST.replace("0.5, 0.5", "0.5, 0.6"))
    assert said == "line 5: node 'v0' by default: the probabilities sum to 1.1"
    said = refused(tmp_path, VAST.replace("(0 0 1)", "(9 8 7)"))
    assert "node 'v0' where 'v1' is '9', 'v2' is '8', 'v3' is '7' has a second row" in said


def test_many_wide_defaults__fill_a_few_tables_alone(tmp_path: Path) -> None:
    text = variables([2] * 300) + "".join(
        f"probability (v{i} | {' '.join(f'v{j}' for j in range(i - min(i, 18), i))}) "
        "{ default 0.5, 0.5; }\n"
        for i in range(300)
    )
    tracemalloc.start()
    try:
        network = read(tmp_path, text)
        assert tracemalloc.get_traced_memory()[1] < 150e6
    finally:
        tracemalloc.stop()
    sparse = [isinstance(table, SparseTable) for table in network.tables.values()]
    assert sparse == [False] * sparse.index(True) + [True] * (300 - sparse.index(True))


@few
@given(data=st.data())
def test_damaged__is_refused_or_a_network(tmp_path: Path, data: st.DataObject) -> None:
    blob = bytearray(SPELT[data.draw(st.sampled_from([*SPELT]))].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(blob)))
        cut = data.draw(st.integers(0, 12))
        piece = data.draw(
            st.sampled_from([b"{", b"}", b'"', b";", b"(", b"|", b"/*", b"0", b"\\", b"variable "])
            | st.binary(max_size=3)
        )
        blob[at : at + cut] = piece
    path = tmp_path / "n.bif"
    path.write_bytes(bytes(blob))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)
        try:
            network = BayesianNetwork.read_bif(path)
        except FileFormatError as error:
            assert str(path) in str(error)
        else:
            network.write_bif(path, force=True)
            assert BayesianNetwork.read_bif(path) == network


# -- sizes -------------------------------------------------------------------------------------


def test_sizes__one_state_a_thousand_states_a_thousand_nodes(tmp_path: Path) -> None:
    wide = [f"s{i}" for i in range(1000)]
    row = np.full(1000, 0.001)
    states = {"one": ["x"], "wide": wide, "alone": ["a", "b"]}
    tables = {"one": [1.0], "wide": [row], "alone": [0.5, 0.5]}
    thousand = random_network(1, 1000, 0.003)
    for network in (BayesianNetwork(states, {"wide": ["one"]}, tables), thousand):
        network.write_bif(tmp_path / "n.bif", force=True)
        assert BayesianNetwork.read_bif(tmp_path / "n.bif") == network


def test_both_ways_through_a_row__agree(tmp_path: Path) -> None:
    """Rows without quotes and comments take a short way."""
    network = random_network(3, 8, 0.5)
    network.write_bif(tmp_path / "n.bif")
    text = (tmp_path / "n.bif").read_text()
    head, mark, rest = text.partition("probability")
    assert read(tmp_path, head + mark + rest.replace(")", "/**/)").replace(";", "/**/;")) == network
