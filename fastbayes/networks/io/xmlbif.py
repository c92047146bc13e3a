"""XMLBIF 0.3: networks as XML, read and written without loss."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar
from xml.sax.saxutils import escape

from fastbayes.core.errors import DataError
from fastbayes.networks.io.parsed_network import (
    Family,
    ParsedNetwork,
    TableRow,
    brief,
    check_whole,
    contents,
    names_of,
    write_text,
)
from fastbayes.networks.io.xml_reader import XmlReader

# Without a document type: not all programs that read the format can go past one.
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<BIF VERSION="0.3">
<NETWORK>
<NAME>unknown</NAME>
"""
FOOT = "</NETWORK>\n</BIF>\n"

# What no XML can hold, however it is written.
UNTOLD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class XmlbifReader(XmlReader):
    """Reads what a document declares."""

    form, root = "XMLBIF", "BIF"
    # The names of version 0.2, too.
    reads: ClassVar = {
        "VARIABLE": ("NAME", "OUTCOME", "VALUE"),
        "DEFINITION": ("FOR", "GIVEN", "TABLE"),
        "PROBABILITY": ("FOR", "GIVEN", "TABLE"),
    }
    _networks = 0

    def _opened(self, name: str, above: str, attributes: dict[str, str]) -> None:
        if name == "NETWORK":
            self._networks += 1
            if self._networks > 1:
                raise self._declared.fault(self._line, "a second network")
        kind = attributes.get("TYPE", "nature")
        if name == "VARIABLE" and kind != "nature":
            raise self._declared.fault(self._line, f"a node of type {brief(kind)}, not nature")

    def _closed(self, name: str) -> None:
        if name == "VARIABLE":
            node, at = self._one("NAME")
            states = [*self._said.get("OUTCOME", []), *self._said.get("VALUE", [])]
            self._declared.node(node, [state for state, _ in states], at)
            return
        node, at = self._one("FOR")
        given = tuple(parent for parent, _ in self._said.get("GIVEN", []))
        numbers, where = self._numbers(node, "TABLE")
        self._declared.family(Family(node, given, at, table=TableRow((), numbers, where)))


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from an XMLBIF file, as `BayesianNetwork.read` says.

    White space around names counts under `xml:space="preserve"` alone.

    References
    ----------
    Cozman (1998), The Interchange Format for Bayesian Networks, XMLBIF version 0.3.
    """
    return XmlbifReader(path).parts(contents(path))


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to an XMLBIF file, as `BayesianNetwork.write` says."""
    check_whole(network, path)
    names, states = names_of(network)
    for text in (*names.values(), *(s for some in states.values() for s in some)):
        if UNTOLD.search(text):
            raise DataError(f"{text!r} holds a character that XML cannot; write BIF instead")
    write_text(path, _lines(network, names, states), force)


def _lines(
    network: Any, names: dict[object, str], states: dict[object, list[str]]
) -> Iterator[str]:
    yield HEAD
    for node, name in names.items():
        yield f'<VARIABLE TYPE="nature">\n  {_element("NAME", name)}'
        for state in states[node]:
            yield f"  {_element('OUTCOME', state)}"
        yield "</VARIABLE>\n"
    for node, name in names.items():
        yield f"<DEFINITION>\n  {_element('FOR', name)}"
        for parent in network.parents[node]:
            yield f"  {_element('GIVEN', names[parent])}"
        yield "  <TABLE>\n"
        for row in network.tables[node].reshape(-1, len(states[node])):
            yield f"    {' '.join(map(repr, row.tolist()))}\n"
        yield "  </TABLE>\n</DEFINITION>\n"
    yield FOOT


def _element(tag: str, text: str) -> str:
    kept = ' xml:space="preserve"' if text != text.strip() else ""
    return f"<{tag}{kept}>{escape(text, {chr(13): '&#13;'})}</{tag}>\n"
