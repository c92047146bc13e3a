"""XDSL: what GeNIe means is read, and written; what is no network of tables is refused."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_files import check_posteriors, networks, read_file, refused_file
from networks_made import random_network

from fastbayes.core.errors import DataError, FastBayesWarning, FileFormatError
from fastbayes.networks.io import xdsl
from fastbayes.networks.network import BayesianNetwork

few = settings(max_examples=30)

# As GeNIe writes it, but for looks: 12 numbers of which each is found once.
GRASS = """<?xml version="1.0" encoding="UTF-8"?>
<!-- This network was created in GeNIe -->
<smile version="1.0" id="Network1" numsamples="10000" discsamples="10000">
  <nodes>
    <cpt id="rain"><state id="no" /><state id="yes" /><probabilities>0.75 0.25</probabilities></cpt>
    <cpt id="soil">
      <state id="clay" /><state id="sand" /><state id="turf" />
      <probabilities>0.25 0.7 0.05</probabilities>
    </cpt>
    <cpt id="wet">
      <state id="dry" /><state id="damp" />
      <parents>rain soil</parents>
      <probabilities>0.01 0.99 0.02 0.98 0.03 0.97 0.04 0.96 0.05 0.95 0.06 0.94</probabilities>
      <property id="source">by hand</property>
    </cpt>
  </nodes>
  <extensions>
    <genie version="1.0" app="GeNIe 4.0" name="Network1">
      <node id="rain"><name>Did it rain?</name><position>0 0 76 30</position></node>
    </genie>
  </extensions>
</smile>
"""
# Full where rain falls on clay.
POND = """<deterministic id="pond">
      <state id="none" /><state id="full" />
      <parents>rain soil</parents>
      <resultingstates>none none none full none none</resultingstates>
    </deterministic>
  </nodes>"""


def read(folder: Path, text: str | bytes) -> BayesianNetwork:
    return read_file(folder / "n.xdsl", text)


def refused(folder: Path, text: str | bytes) -> str:
    return refused_file(folder / "n.xdsl", text)


def test_read__counts_the_first_parent_slowest(tmp_path: Path) -> None:
    network = read(tmp_path, GRASS)
    assert network.states["soil"] == ("clay", "sand", "turf")
    assert network.parents == {"rain": (), "soil": (), "wet": ("rain", "soil")}
    assert network.tables["wet"][:, :, 0].tolist() == [[0.01, 0.02, 0.03], [0.04, 0.05, 0.06]]
    other = read(tmp_path, GRASS.replace("rain soil", "soil rain"))
    assert other.tables["wet"][:, :, 0].tolist() == [[0.01, 0.02], [0.03, 0.04], [0.05, 0.06]]


@pytest.mark.parametrize("parents", ["rain soil", "soil rain"])
def test_write__counts_the_first_parent_slowest(tmp_path: Path, parents: str) -> None:
    source = GRASS.replace("rain soil", parents)
    read(tmp_path, source).write(tmp_path / "m.xdsl")
    text = (tmp_path / "m.xdsl").read_text()
    for element in ("parents", "probabilities"):
        listed = [part.partition("<")[0] for part in source.split(f"<{element}>")[1:]]
        assert [part.partition("<")[0] for part in text.split(f"<{element}>")[1:]] == listed


def test_deterministic__is_in_the_state_that_its_parents_say(tmp_path: Path) -> None:
    network = read(tmp_path, GRASS.replace("</nodes>", POND))
    assert network.tables["pond"][:, :, 1].tolist() == [[0, 0, 0], [1, 0, 0]]
    network.write(tmp_path / "m.xdsl")
    assert BayesianNetwork.read(tmp_path / "m.xdsl") == network


SPELT = {
    "latin": GRASS.replace("UTF-8", "ISO-8859-1").replace("by hand", "é").encode("latin-1"),
    "a comment": GRASS.replace("0.7 ", "0.7<!-- <state id='x'/> --> "),
    "white space": GRASS.replace("<parents>rain ", "<parents>\n rain\t\n"),
    "no extensions": GRASS.partition("  <extensions>")[0] + "</smile>",
    "short numbers": GRASS.replace("0.25 0.7 0.05", ".25 .7 5e-2"),
}


@pytest.mark.parametrize("text", SPELT.values(), ids=SPELT)
def test_read__spelt_otherwise_is_the_same(tmp_path: Path, text: str | bytes) -> None:
    assert text != GRASS
    found, expected = read(tmp_path, text), read(tmp_path, GRASS)
    assert found == expected


def test_read__children_may_stand_before_their_parents(tmp_path: Path) -> None:
    text = GRASS.replace("</nodes>", POND.replace("pond", "first"))
    child, end = text.index("<deterministic"), text.index("</nodes>")
    moved = text[:child].replace("<nodes>", "<nodes>" + text[child:end]) + text[end:]
    network = read(tmp_path, moved)
    assert list(network.nodes) == ["first", "rain", "soil", "wet"]
    assert network.tables["first"][:, :, 1].tolist() == [[0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "sachs", "survey"])
def test_posteriors__are_the_recorded_ones(shared_data: Path, tmp_path: Path, name: str) -> None:
    check_posteriors(shared_data, name, ".xdsl", tmp_path)


def test_rows_of_six_digits__are_scaled_with_one_warning(tmp_path: Path) -> None:
    with pytest.warns(FastBayesWarning, match="1 of 8 rows do not sum to 1"):
        network = read(tmp_path, GRASS.replace("0.25 0.7 0.05", "0.333333 0.333333 0.333333"))
    np.testing.assert_allclose(network.tables["soil"], 1 / 3, rtol=1e-15)
    assert "sum to 0.9998" in refused(tmp_path, GRASS.replace("0.7 0.05", "0.7 0.0498"))


# -- writing -----------------------------------------------------------------------------------


@few
@given(network=networks(st.from_regex(xdsl.NAME, fullmatch=True)))
def test_written__is_read_to_the_last_bit(network: BayesianNetwork, tmp_path: Path) -> None:
    network.write(tmp_path / "n.xdsl", force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = BayesianNetwork.read(tmp_path / "n.xdsl")
    assert found.states == network.states
    assert found.parents == network.parents
    for node, table in network.tables.items():
        np.testing.assert_array_equal(found.tables[node], table)


def test_written__has_parents_before_their_children(tmp_path: Path) -> None:
    network = random_network(3, 40, 0.1)
    network.write(tmp_path / "n.xdsl")
    nodes = list(BayesianNetwork.read(tmp_path / "n.xdsl").nodes)
    for node in nodes:
        assert {*network.parents[node]} <= {*nodes[: nodes.index(node)]}


@pytest.mark.parametrize(
    ("node", "state", "odd"), [("a&b", "s", "a&b"), ("a b", "s", "a b"), ("a", "0", "0"),
                               ("_a", "s", "_a"), ("", "s", ""), ("a", "é", "é")],
)  # fmt: skip
def test_write__refuses_names_that_genie_does_not_take(
    tmp_path: Path, node: str, state: str, odd: str
) -> None:
    network = BayesianNetwork({node: [state, "t"]}, {}, {node: [0.25, 0.75]})
    with pytest.raises(DataError, match=rf"n\.xdsl: '{odd}' is no name for GeNIe.*write \.bif"):
        network.write(tmp_path / "n.xdsl")
    assert not [*tmp_path.iterdir()]


# -- what is no network of tables ---------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["noisymax", "noisyadder", "decision", "utility", "mau", "equation"]
)
def test_nodes_without_a_table__are_refused_by_name(tmp_path: Path, kind: str) -> None:
    more = f'  <{kind} id="more"><state id="x" /><state id="y" /></{kind}>\n  </nodes>'
    said = refused(tmp_path, GRASS.replace("</nodes>", more))
    assert said.startswith(f"line 16: node 'more' is of type {kind!r}, which has no table")
    assert said.endswith("in GeNIe, make it a chance node of type General, or remove it")


LISTED = "0.25 0.7 0.05"
TABLE = f"<probabilities>{LISTED}</probabilities>"
RESULTING = "none none none full none none"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</nodes>", '</nodes><dynamic numslices="9"><cpt id="wet" order="1"></cpt></dynamic>',
         "line 16: <dynamic>: a network over time; unroll it in GeNIe"),
        ('<cpt id="rain">', "<cpt>", "line 5: a <'cpt'> without id"),
        ('<state id="no" />', "<state />", "line 5: a <'state'> without id"),
        ('id="no"', 'id="yes"', "line 5: node 'rain': its state 'yes' stands twice"),
        ('<cpt id="wet">', '<cpt id="rain">', "line 10: node 'rain' is declared again, first in "),
        (TABLE, "", "line 6: no <probabilities>"),
        (TABLE, TABLE + TABLE, "line 6: more than one <probabilities>"),
        (LISTED, "0.25 0.75", "line 8: node 'soil': its table has 2 numbers, its states and"),
        (LISTED, "0.25 0.7 x", "line 8: node 'soil': 'x' is no number"),
        (LISTED, "0.25 0.8 -0.05", "line 8: node 'soil': -0.05 is no probability"),
        ("0.02 0.98", "0.02 0.99",
         "line 13: node 'wet' where 'rain' is 'no', 'soil' is 'sand': the probabilities sum to"),
        ("rain soil", "rain sky", "line 10: table of 'wet': the parent 'sky' is declared nowhere"),
        ("rain soil", "rain rain", "line 10: node 'wet': one of its parents stands twice"),
        ("</nodes>", POND.replace("full none", "half none"),
         "line 19: node 'pond': 'half' is none of its states"),
        ("</nodes>", POND.replace("full none", "full"), "line 19: node 'pond': its table has 10 "),
        ("\n<!--", '\n<!DOCTYPE smile [<!ENTITY a "ha">]><!--', "line 2: the entity 'a': entities"),
        ("</smile>", "", "no element found; is it XDSL?"),
        ("smile", "BIF", "line 3: <smile> should be where <'BIF'> is"),
    ],
)  # fmt: skip
def test_contradiction__is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GRASS
    assert message in refused(tmp_path, GRASS.replace(old, new))


def test_truncated__is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = GRASS.rstrip()
    for end in range(len(whole)):
        assert refused(tmp_path, whole[:end])


def test_hostile__is_refused_in_bounded_memory(tmp_path: Path) -> None:
    states = "".join(f'<state id="s{i}"/>' for i in range(3000))
    wide = f'<deterministic id="d">{states}<resultingstates>{"s1 " * 3000}</resultingstates>'
    text = GRASS.replace("</nodes>", f"{wide}</deterministic></nodes>")
    tracemalloc.start()
    try:
        assert "node 'd': its table has over 4,194,304 numbers" in refused(tmp_path, text)
        assert tracemalloc.get_traced_memory()[1] < 20e6 + 20 * len(text)
    finally:
        tracemalloc.stop()


@few
@given(data=st.data())
def test_damaged__is_refused_or_a_network(tmp_path: Path, data: st.DataObject) -> None:
    blob = bytearray(GRASS.replace("</nodes>", POND).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at, cut = data.draw(st.integers(0, len(blob))), data.draw(st.integers(0, 12))
        pieces = st.sampled_from(
            [b"<", b">", b"/", b"&", b"<!--", b"0", b"<cpt id='wet'>", b"soil"]
        )
        blob[at : at + cut] = data.draw(pieces | st.binary(max_size=3))
    path = tmp_path / "n.xdsl"
    path.write_bytes(bytes(blob))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)
        try:
            BayesianNetwork.read(path)
        except FileFormatError as error:
            assert str(path) in str(error)
