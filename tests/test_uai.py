"""UAI: the last variable of a scope counts fastest; tables stand in the order of the scopes."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_files import networks, read_file, refused_file

from fastbayes.core.errors import DataError, FastBayesWarning, FileFormatError
from fastbayes.networks.network import BayesianNetwork

few = settings(max_examples=30)

GRASS = """BAYES
3
2 3 2
3
1 0
1 1
3 0 1 2

2
 0.75 0.25
3
 0.25 0.7 0.05
12
 0.01 0.99 0.02 0.98 0.03 0.97
 0.04 0.96 0.05 0.95 0.06 0.94
"""


def read(folder: Path, text: str | bytes) -> BayesianNetwork:
    return read_file(folder / "n.uai", text)


def refused(folder: Path, text: str | bytes) -> str:
    return refused_file(folder / "n.uai", text)


def test_read__counts_in_the_order_of_the_scope(tmp_path: Path) -> None:
    network = read(tmp_path, GRASS)
    assert network.states == {"0": ("0", "1"), "1": ("0", "1", "2"), "2": ("0", "1")}
    assert network.parents == {"0": (), "1": (), "2": ("0", "1")}
    assert network.tables["2"][:, :, 0].tolist() == [[0.01, 0.02, 0.03], [0.04, 0.05, 0.06]]
    other = read(tmp_path, GRASS.replace("3 0 1 2", "3 1 0 2"))
    assert other.parents["2"] == ("1", "0")
    assert other.tables["2"][:, :, 0].tolist() == [[0.01, 0.02], [0.03, 0.04], [0.05, 0.06]]


def test_read__takes_tables_in_the_order_of_the_scopes(tmp_path: Path) -> None:
    network = read(tmp_path, "BAYES 2 2 2 2  1 1  1 0  2 0.1 0.9  2 0.3 0.7")
    assert list(network.nodes) == ["0", "1"]
    assert network.tables["0"].tolist() == [0.3, 0.7]
    assert network.tables["1"].tolist() == [0.1, 0.9]


@pytest.mark.parametrize("scope", ["3 0 1 2", "3 1 0 2"])
def test_write__is_what_was_read(tmp_path: Path, scope: str) -> None:
    source = GRASS.replace("3 0 1 2", scope)
    read(tmp_path, source).write(tmp_path / "m.uai")
    assert (tmp_path / "m.uai").read_text().split() == source.split()


SPELT = {
    "comments": "# by hand\n" + GRASS.replace("2 3 2\n", "2 3 2  # rain soil wet\n# BAYES 9\n"),
    "no leading 0": GRASS.replace(" 0.", " ."),
    "exponents": GRASS.replace("0.05", "5E-2").replace("0.25", "+2.5e-1"),
    "one line": " ".join(GRASS.split()),
    "a word a line": "\n".join(GRASS.split()),
    "carriage returns": GRASS.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + GRASS,
}


@pytest.mark.parametrize("text", SPELT.values(), ids=SPELT)
def test_read__spelt_otherwise_is_the_same(tmp_path: Path, text: str) -> None:
    assert text != GRASS
    found, expected = read(tmp_path, text), read(tmp_path, GRASS)
    assert found == expected


def test_rows_of_six_digits__are_scaled_with_one_warning(tmp_path: Path) -> None:
    with pytest.warns(FastBayesWarning, match="1 of 8 rows do not sum to 1"):
        network = read(tmp_path, GRASS.replace("0.25 0.7 0.05", "0.333333 0.333333 0.333333"))
    np.testing.assert_allclose(network.tables["1"], 1 / 3, rtol=1e-15)
    said = refused(tmp_path, GRASS.replace("0.02 0.98", "0.02 0.9798"))
    assert said == "line 13: node '2' where '0' is '0', '1' is '1': the probabilities sum to 0.9998"


@few
@given(network=networks())
def test_written__is_read_to_the_last_bit(network: BayesianNetwork, tmp_path: Path) -> None:
    network.write(tmp_path / "n.uai", force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = BayesianNetwork.read(tmp_path / "n.uai")
    place = {node: str(i) for i, node in enumerate(network.nodes)}
    assert list(found.nodes) == [*place.values()]
    for node, table in network.tables.items():
        assert found.parents[place[node]] == tuple(place[p] for p in network.parents[node])
        np.testing.assert_array_equal(found.tables[place[node]], table)


def test_write__leaves_what_is_there(tmp_path: Path) -> None:
    network = read(tmp_path, GRASS)
    with pytest.raises(DataError, match="exists"):
        network.write(tmp_path / "n.uai")
    assert (tmp_path / "n.uai").read_text() == GRASS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BAYES", "MARKOV", "line 1: 'MARKOV' where BAYES should be: only Bayesian networks"),
        ("2 3 2", "2 3 -2", "line 3: '-2' where the number of states of variable 2 should be"),
        ("2 3 2", "2 3 ²", "line 3: '²' where the number of states of variable 2 should be"),
        ("3\n1 0", "2\n1 0", "line 4: 2 functions for 3 variables: each needs one"),
        ("1 1\n", "1 0\n", "line 6: node '0' has a second table, first in line 5"),
        ("1 1\n", "1 3\n", "line 6: variable 3 where there are 3, counted from 0"),
        ("1 1\n", "0\n", "line 6: a function of no variable"),
        ("3 0 1 2", "3 0 0 2", "line 7: node '2': one of its parents stands twice"),
        ("1 1\n", "2 2 1\n", "line 11: node '1': its table has 3 numbers, its states and its par"),
        ("12\n", "6\n", "line 13: node '2': its table has 6 numbers, its states and its parents'"),
        ("0.7 ", "x ", "line 12: node '1': 'x' is no number"),
        ("0.75 0.25", "1.25 -0.25", "line 9: node '0': -0.25 is no probability"),
        ("0.06 0.94", "0.06", "line 16: the file ends where a number of node '2' should be"),
        ("0.06 0.94", "0.06 0.94\n1", "line 16: '1' stands after the last table"),
        ("BAYES", "", "line 2: '3' where BAYES should be"),
    ],
)  # fmt: skip
def test_contradiction__is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GRASS
    assert message in refused(tmp_path, GRASS.replace(old, new))


def test_circle__is_refused(tmp_path: Path) -> None:
    text = "BAYES 2 2 2 2  2 0 1  2 1 0" + "  4 0.5 0.5 0.5 0.5" * 2
    assert "go round in a circle" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends where BAYES should be"),
        ("# nothing", "line 1: the file ends where BAYES should be"),
        ("BAYES 0 0", "declares no node"),
        (b"BAYES\n1\n\xff", "line 3: byte 8 is no UTF-8 text; is it UAI?"),
    ],
)
def test_something_else__is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_truncated__is_refused_wherever_it_ends(tmp_path: Path) -> None:
    words = GRASS.split()
    for end in range(len(words)):
        assert refused(tmp_path, " ".join(words[:end]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BAYES 1 999999999 1 1 0 2 0.5 0.5", "its states and its parents' ask 999,999,999"),
        ("BAYES 1 9999999999 1 1 0 2 0.5 0.5", "'9999999999' where the number of states"),
        ("BAYES 999999999 2", "the file ends where the number of states of variable 1"),
        ("BAYES 1 999999999 0", "0 functions for 1 variables"),
        ("BAYES 1 2 1 999999999 0 0", "the file ends where a variable of a function"),
        ("BAYES 99 " + "999999999 " * 99 + "99 99 " + " ".join(map(str, range(99))) + " 1 0" * 98,
         "node '98' has 98 parents; at most 63 can be"),
        ("BAYES 2 9999999 0 2  2 1 0  1 1  0  0", "line 1: variable 1 has no states"),
    ],
)  # fmt: skip
def test_hostile__is_refused_in_bounded_memory(tmp_path: Path, text: str, message: str) -> None:
    tracemalloc.start()
    try:
        assert message in refused(tmp_path, text)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@few
@given(data=st.data())
def test_damaged__is_refused_or_a_network(tmp_path: Path, data: st.DataObject) -> None:
    words = GRASS.split()
    for _ in range(data.draw(st.integers(1, 3))):
        at, cut = data.draw(st.integers(0, len(words))), data.draw(st.integers(0, 2))
        words[at : at + cut] = data.draw(
            st.lists(st.sampled_from(["0", "1", "3", "0.5", "#\n", "x"]))
        )
    path = tmp_path / "n.uai"
    path.write_text(" ".join(words))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)
        try:
            network = BayesianNetwork.read(path)
        except FileFormatError as error:
            assert str(path) in str(error)
        else:
            network.write(path, force=True)
            assert BayesianNetwork.read(path) == network
