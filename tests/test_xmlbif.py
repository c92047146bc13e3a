"""XMLBIF: what is written is read, however it is spelt; what contradicts itself is refused."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_files import HARD, check_posteriors, names, networks, read_file, refused_file
from networks_made import asia, random_network

from fastbayes.core.errors import DataError, FastBayesWarning, FileFormatError
from fastbayes.networks.io import xmlbif
from fastbayes.networks.network import BayesianNetwork

few = settings(max_examples=30)

RAIN = """<?xml version="1.0"?>
<BIF VERSION="0.3">
<NETWORK>
<NAME>weather</NAME>
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature">
  <NAME>wet</NAME><OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME><OUTCOME>-1.5</OUTCOME>
</VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.75 0.25</TABLE></DEFINITION>
<DEFINITION>
  <FOR>wet</FOR><GIVEN>rain</GIVEN>
  <TABLE>0.5 0.25 0.25 0.0 1.0 0.0</TABLE>
</DEFINITION>
</NETWORK>
</BIF>
"""


def read(folder: Path, text: str | bytes) -> BayesianNetwork:
    return read_file(folder / "n.xml", text)


def refused(folder: Path, text: str | bytes) -> str:
    return refused_file(folder / "n.xml", text)


def test_read__gives_what_is_written_in_the_file(tmp_path: Path) -> None:
    network = read(tmp_path, RAIN)
    assert network.states == {"rain": ("no", "yes"), "wet": ("0", "1", "-1.5")}
    assert network.parents == {"rain": (), "wet": ("rain",)}
    assert network.tables["rain"].tolist() == [0.75, 0.25]
    assert network.tables["wet"].tolist() == [[0.5, 0.25, 0.25], [0, 1, 0]]


DTD = """
<!DOCTYPE BIF [
  <!ELEMENT BIF (NETWORK)*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
  <!ELEMENT NETWORK (NAME, (PROPERTY | VARIABLE | DEFINITION)*)>
  <!ATTLIST VARIABLE TYPE (nature | decision | utility) "nature">
  <!ELEMENT DEFINITION (FOR | GIVEN | TABLE | PROPERTY)*>
]>
"""
SPELT = {
    "with a document type": RAIN.replace("\n", DTD, 1),
    "comments": RAIN.replace("<TABLE>", "<TABLE><!-- <TABLE> 7 -->").replace(
        "0.25 0.25", "0.25<!-- (no) --> 0.25"
    ),
    "properties": RAIN.replace("</NAME>", "</NAME><PROPERTY>position = (1, 2)</PROPERTY>"),
    "white space": RAIN.replace("<NAME>", "<NAME>\n  ").replace("0.25", "\n0.25\t"),
    "references": RAIN.replace("<FOR>rain", "<FOR>&#114;ain").replace("wet", "<![CDATA[wet]]>"),
    "older names": RAIN.replace("OUTCOME", "VALUE").replace("DEFINITION", "PROBABILITY"),
    "no type": RAIN.replace(' TYPE="nature"', ""),
    "carriage returns": RAIN.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + RAIN,
    "wide": RAIN.replace('"1.0"', '"1.0" encoding="UTF-16"').encode("utf-16"),
}


@pytest.mark.parametrize("text", SPELT.values(), ids=SPELT)
def test_read__spelt_otherwise_is_the_same(tmp_path: Path, text: str | bytes) -> None:
    assert text != RAIN
    found, expected = read(tmp_path, text), read(tmp_path, RAIN)
    assert found == expected


def test_table__counts_the_node_fastest_and_the_first_parent_slowest(tmp_path: Path) -> None:
    network = random_network(2, 5, 0.8)
    network.write(tmp_path / "n.xml")
    text = (tmp_path / "n.xml").read_text()
    for node in network.nodes:
        listed = text.partition(f"<FOR>{node}</FOR>")[2].partition("<TABLE>")[2]
        numbers = [float(word) for word in listed.partition("</TABLE>")[0].split()]
        assert numbers == network.tables[node].ravel().tolist()


def test_rows_of_few_digits__are_scaled_with_one_warning(tmp_path: Path) -> None:
    with pytest.warns(FastBayesWarning, match="1 of 3 rows do not sum to 1") as caught:
        network = read(tmp_path, RAIN.replace("0.75 0.25", "0.7500004 0.25"))
    assert len(caught) == 1
    np.testing.assert_array_equal(network.tables["rain"], np.array([0.7500004, 0.25]) / 1.0000004)
    said = refused(tmp_path, RAIN.replace("0.0 1.0", "0.000002 1.0"))
    assert said == "line 12: node 'wet' where 'rain' is 'yes': the probabilities sum to 1.000002"


@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "sachs", "survey"])
def test_posteriors__are_the_recorded_ones(shared_data: Path, tmp_path: Path, name: str) -> None:
    check_posteriors(shared_data, name, ".xml", tmp_path)


# -- writing -----------------------------------------------------------------------------------


@few
@given(network=networks(names.filter(lambda text: not xmlbif.UNTOLD.search(text))))
def test_written__is_read_to_the_last_bit(network: BayesianNetwork, tmp_path: Path) -> None:
    network.write(tmp_path / "n.xml", force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert BayesianNetwork.read(tmp_path / "n.xml") == network


def test_written__hard_names_are_kept(tmp_path: Path) -> None:
    table = np.full(len(HARD), 1 / len(HARD))
    network = BayesianNetwork({"a": HARD, " b\r\n": HARD}, {}, {"a": table, " b\r\n": table})
    network.write(tmp_path / "n.xml")
    assert BayesianNetwork.read(tmp_path / "n.xml") == network


def test_write__refuses_what_xml_cannot_hold(tmp_path: Path) -> None:
    for bad in ("a\0", "\x1b", "\uffff"):
        one = BayesianNetwork({"a": [bad]}, {}, {"a": [1.0]})
        with pytest.raises(DataError, match="write BIF instead"):
            one.write(tmp_path / "m.xmlbif")
    path = tmp_path / "n.bifxml"
    asia().write(path)
    with pytest.raises(DataError, match="exists"):
        asia().write(path)
    assert BayesianNetwork.read(path) == asia()
    assert [p.name for p in tmp_path.iterdir()] == ["n.bifxml"]


# -- what is no network ------------------------------------------------------------------------

NAME = "<NAME>rain</NAME>"
TABLE = "<TABLE>0.75 0.25</TABLE>"
BOMB = (
    '<!DOCTYPE BIF [<!ENTITY a "ha ha ha ">'
    + "".join(
        f"<!ENTITY {b} \"{f'&{a};' * 10}\">"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (NAME, "", "line 5: no <NAME> in an element that needs one"),
        (NAME, NAME + NAME, "line 5: more than one <NAME>"),
        (NAME, "<NAME>wet</NAME>", "line 7: node 'wet' is declared again, first in line 5"),
        ("<OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>", "", "line 5: node 'rain' has no states"),
        (">no<", ">yes<", "line 5: node 'rain': its state 'yes' stands twice"),
        ('"nature"', '"utility"', "line 5: a node of type 'utility', not nature"),
        ("<FOR>rain</FOR>", "", "line 9: no <FOR>"),
        ("<FOR>rain", "<FOR>wet", "line 11: node 'wet' has a second table, first in line 9"),
        ("<GIVEN>rain", "<GIVEN>sky", "line 11: table of 'wet': the parent 'sky' is declared now"),
        ("<GIVEN>rain", "<GIVEN>wet", "line 11: the parents of 'wet' go round in a circle"),
        (TABLE, "", "line 9: no <TABLE>"),
        (TABLE, TABLE + TABLE, "line 9: more than one <TABLE>"),
        (TABLE, "<TABLE>0.75 x</TABLE>", "line 9: node 'rain': 'x' is no number"),
        (TABLE, "<TABLE>0.75 0_25</TABLE>", "line 9: node 'rain': '0_25' is no number"),
        (TABLE, "<TABLE>0.75</TABLE>", "line 9: node 'rain': its table has 1 numbers, "),
        (TABLE, "<TABLE>0.75 nan</TABLE>", "line 9: node 'rain': nan is no probability"),
        (TABLE, "<TABLE>1.25 -0.25</TABLE>", "line 9: node 'rain': -0.25 is no probability"),
        (TABLE, "<TABLE>0.75 0.24</TABLE>", "line 9: node 'rain': the probabilities sum to 0.99"),
        ("</NETWORK>", "", "line 15: mismatched tag; is it XMLBIF?"),
        ("</NETWORK>", "</NETWORK><NETWORK></NETWORK>", "line 14: a second network"),
        ("\n", BOMB, "line 1: the entity 'a': entities are not read"),
        ("\n", '<!DOCTYPE BIF SYSTEM "file:///etc/passwd" [<!ENTITY % p SYSTEM "x"> %p;]>',
         "line 1: the entity 'p': entities are not read"),
        ("\n", '<!DOCTYPE BIF [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "the entity 'x'"),
        ("rain", "&nothing;", "line 5: undefined entity; is it XMLBIF?"),
        ('"1.0"', '"1.0" encoding="nonsense"', "line 1: unknown encoding"),
    ],
)  # fmt: skip
def test_contradiction__is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in RAIN
    assert message in refused(tmp_path, RAIN.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no element found"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not well-formed"),
        ("<html><body/></html>", "<BIF> should be where <'html'> is"),
        ('<BIF VERSION="0.3"></BIF>', "it declares no node"),
    ],
)
def test_something_else__is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_entities_from_elsewhere__are_refused(tmp_path: Path) -> None:
    """Where a document type stands elsewhere, a parser may skip what it does not know."""
    text = RAIN.replace("\n", '<!DOCTYPE BIF SYSTEM "bif.dtd">\n', 1).replace("rain", "&rain;", 1)
    assert "the entity 'rain': entities are not read" in refused(tmp_path, text)


def test_truncated__is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = RAIN.rstrip()
    for end in range(len(whole)):
        assert refused(tmp_path, whole[:end])


def test_hostile__is_refused_in_bounded_memory(tmp_path: Path) -> None:
    values = "".join(f"<OUTCOME>{i}</OUTCOME>" for i in range(1000))
    huge = "".join(
        f"<VARIABLE><NAME>v{i}</NAME>{values}</VARIABLE>"
        f"<DEFINITION><FOR>v{i}</FOR><TABLE>{'0.001 ' * 1000}</TABLE></DEFINITION>"
        for i in range(3)
    )
    wide = huge.replace("<FOR>v2</FOR>", "<FOR>v2</FOR><GIVEN>v0</GIVEN><GIVEN>v1</GIVEN>")
    deep = "<a>" * 100_000
    for text, message in (
        (f"<BIF><NETWORK>{wide}</NETWORK></BIF>", "has 1,000 numbers, its states and its parents"),
        (f"<BIF><NETWORK>{deep}", "no element found"),
        (RAIN.replace(NAME, f"<NAME>{'x' * 500_000}</NAME>"), "the node 'rain' is declared"),
    ):
        tracemalloc.start()
        try:
            assert message in refused(tmp_path, text)
            assert tracemalloc.get_traced_memory()[1] < 20e6 + 20 * len(text)
        finally:
            tracemalloc.stop()


@few
@given(data=st.data())
def test_damaged__is_refused_or_a_network(tmp_path: Path, data: st.DataObject) -> None:
    text = SPELT[data.draw(st.sampled_from([*SPELT]))]
    blob = bytearray(text if isinstance(text, bytes) else text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at, cut = data.draw(st.integers(0, len(blob))), data.draw(st.integers(0, 12))
        pieces = st.sampled_from([b"<", b">", b"/", b"&", b"<!--", b"0", b"<TABLE>", b"<FOR>"])
        blob[at : at + cut] = data.draw(pieces | st.binary(max_size=3))
    path = tmp_path / "n.xml"
    path.write_bytes(bytes(blob))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastBayesWarning)
        try:
            network = BayesianNetwork.read(path)
        except FileFormatError as error:
            assert str(path) in str(error)
        else:
            network.write(path, force=True)
            assert BayesianNetwork.read(path) == network


def test_both_formats__say_the_same(tmp_path: Path) -> None:
    network = random_network(1, 300, 0.01)
    for name in ("n.xml", "n.bif"):
        network.write(tmp_path / name)
    assert BayesianNetwork.read(tmp_path / "n.xml") == BayesianNetwork.read(tmp_path / "n.bif")
