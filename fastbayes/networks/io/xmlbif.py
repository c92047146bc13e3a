"""XMLBIF 0.3: networks as XML, read and written without loss."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from fastbayes.core.errors import DataError
from fastbayes.networks.io.parsed_network import (
    Family,
    NetworkBuilder,
    ParsedNetwork,
    TableRow,
    brief,
    check_whole,
    contents,
    names_of,
    numbers_in,
    write_text,
)

# Without a document type: not all programs that read the format can go past one.
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<BIF VERSION="0.3">
<NETWORK>
<NAME>unknown</NAME>
"""
FOOT = "</NETWORK>\n</BIF>\n"

# Elements whose text is read, by the element around them; the names of version 0.2, too.
READ = {
    "VARIABLE": ("NAME", "OUTCOME", "VALUE"),
    "DEFINITION": ("FOR", "GIVEN", "TABLE"),
    "PROBABILITY": ("FOR", "GIVEN", "TABLE"),
}
# What no XML can hold, however it is written.
UNTOLD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Reader:
    """Reads what a document declares."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        # The places of this format are lines.
        self._declared = NetworkBuilder(path, lambda at: at)
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # Entities may grow without bound, and read other files: no network needs them.
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._entity
        self._stack: list[str] = []
        self._said: dict[str, list[tuple[str, int]]] = {}
        self._text: list[str] | None = None
        self._kept = False
        self._begun, self._networks = 0, 0

    def parts(self, blob: bytes) -> ParsedNetwork:
        """Return what the network is made of."""
        try:
            self._parser.Parse(blob, True)
        except expat.ExpatError as error:
            said = expat.ErrorString(error.code)
            raise self._declared.fault(error.lineno, f"{said}; is it XMLBIF?") from None
        except (LookupError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            # An encoding that is not known, or not one for documents.
            raise self._declared.fault(1, f"{error}; is it XMLBIF?") from error
        return self._declared.parts()

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber)

    def _entity(self, name: str, *_: Any) -> None:
        raise self._declared.fault(self._line, f"the entity {brief(name)}: entities are not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        above = self._stack[-1] if self._stack else ""
        if not above and name != "BIF":
            raise self._declared.fault(self._line, f"<BIF> should be where <{brief(name)}> is")
        if name == "NETWORK":
            self._networks += 1
            if self._networks > 1:
                raise self._declared.fault(self._line, "a second network")
        if name in READ:
            self._said, self._begun = {}, self._line
            kind = attributes.get("TYPE", "nature")
            if name == "VARIABLE" and kind != "nature":
                raise self._declared.fault(self._line, f"a node of type {brief(kind)}, not nature")
        elif name in READ.get(above, ()):
            self._text = []
            self._kept = attributes.get("xml:space") == "preserve"
        self._stack.append(name)

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._stack.pop()
        if name in READ.get(self._stack[-1] if self._stack else "", ()) and self._text is not None:
            text = "".join(self._text)
            said = self._said.setdefault(name, [])
            said.append((text if self._kept else text.strip(), self._line))
            self._text = None
        elif name == "VARIABLE":
            self._variable()
        elif name in READ:
            self._definition()

    def _one(self, what: str) -> tuple[str, int]:
        found = self._said.get(what, [])
        if len(found) != 1:
            many = "no" if not found else "more than one"
            raise self._declared.fault(self._begun, f"{many} <{what}> in an element that needs one")
        return found[0]

    def _variable(self) -> None:
        name, at = self._one("NAME")
        states = [*self._said.get("OUTCOME", []), *self._said.get("VALUE", [])]
        self._declared.node(name, [state for state, _ in states], at)

    def _definition(self) -> None:
        node, at = self._one("FOR")
        given = tuple(parent for parent, _ in self._said.get("GIVEN", []))
        listed, where = self._one("TABLE")
        try:
            numbers = numbers_in(listed)
        except ValueError as error:
            message = f"node {brief(node)}: {brief(error.args[0])} is no number"
            raise self._declared.fault(where, message) from None
        self._declared.family(Family(node, given, at, table=TableRow((), numbers, where)))


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from an XMLBIF file, as `BayesianNetwork.read` says.

    White space around names counts under `xml:space="preserve"` alone.

    References
    ----------
    Cozman (1998), The Interchange Format for Bayesian Networks, XMLBIF version 0.3.
    """
    return Reader(path).parts(contents(path))


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
