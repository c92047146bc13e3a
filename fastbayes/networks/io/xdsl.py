"""XDSL: networks as GeNIe and SMILE write them, read and written without loss."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from fastbayes.core.errors import DataError
from fastbayes.networks.io.parsed_network import (
    MOST_DEFAULT,
    SIX_DIGITS,
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

# What GeNIe takes as the name of a node or a state.
NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")


class XdslReader(XmlReader):
    """Reads what a document declares.

    A table counts the first parent slowest and the states of the node fastest. What it says of
    time slices, decisions and utilities is no Bayesian network, and refused.
    """

    form, root = "XDSL", "smile"
    reads: ClassVar = {
        "cpt": ("parents", "probabilities"),
        "deterministic": ("parents", "resultingstates"),
    }
    _node = ""

    def _opened(self, name: str, above: str, attributes: dict[str, str]) -> None:
        if name == "dynamic" and above == self.root:
            message = "<dynamic>: a network over time; unroll it in GeNIe, and save that"
            raise self._declared.fault(self._line, message)
        if above == "nodes" or name in self.reads:
            self._node = self._id(name, attributes)
            if name not in self.reads:
                raise self._declared.fault(
                    self._line,
                    f"node {brief(self._node)} is of type {brief(name)}, which has no table of "
                    "probabilities; in GeNIe, make it a chance node of type General, or remove it",
                )
        elif name == "state" and above in self.reads:
            self._say(name, self._id(name, attributes))

    def _id(self, name: str, attributes: dict[str, str]) -> str:
        if "id" not in attributes:
            raise self._declared.fault(self._line, f"a <{brief(name)}> without id")
        return attributes["id"]

    def _closed(self, name: str) -> None:
        node, at = self._node, self._begun
        states = [state for state, _ in self._said.get("state", [])]
        self._declared.node(node, states, at)
        given = tuple(p for listed, _ in self._said.get("parents", []) for p in listed.split())
        read = self._numbers(node, "probabilities") if name == "cpt" else self._resulting(states)
        self._declared.family(Family(node, given, at, table=TableRow((), *read)))

    def _resulting(self, states: list[str]) -> tuple[list[float], int]:
        """Return the table of a node which is in the one state that its parents' states say."""
        listed, at = self._one("resultingstates")
        found = listed.split()
        if len(found) * len(states) > MOST_DEFAULT:
            message = f"node {brief(self._node)}: its table has over {MOST_DEFAULT:,} numbers"
            raise self._declared.fault(at, message)
        for state in found:
            if state not in states:
                message = f"node {brief(self._node)}: {brief(state)} is none of its states"
                raise self._declared.fault(at, message)
        return [1.0 if state == said else 0.0 for said in found for state in states], at


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from an XDSL file, as `BayesianNetwork.read` says.

    References
    ----------
    BayesFusion, GeNIe Modeler: User Manual, XDSL file format.
    """
    return XdslReader(path, SIX_DIGITS).parts(contents(path))


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to an XDSL file, as `BayesianNetwork.write` says.

    Raises DataError when GeNIe would not take a name.
    """
    check_whole(network, path)
    names, states = names_of(network)
    for text in (*names.values(), *(s for some in states.values() for s in some)):
        if not NAME.fullmatch(text):
            raise DataError(
                f"{os.fspath(path)}: {text!r} is no name for GeNIe, whose names have letters, "
                "digits and '_', a letter first; rename it, or write .bif or .xml"
            )
    write_text(path, _lines(network, names, states), force)


def _lines(
    network: Any, names: dict[object, str], states: dict[object, list[str]]
) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<smile version="1.0" id="unknown">\n<nodes>\n'
    # SMILE wants parents before their children.
    for node in network.order:
        yield f'<cpt id="{names[node]}">\n'
        for state in states[node]:
            yield f'  <state id="{state}" />\n'
        if network.parents[node]:
            yield f"  <parents>{' '.join(names[p] for p in network.parents[node])}</parents>\n"
        numbers = map(repr, network.tables[node].ravel().tolist())
        yield f"  <probabilities>{' '.join(numbers)}</probabilities>\n</cpt>\n"
    yield "</nodes>\n<extensions>\n"
    yield '<genie version="1.0" app="fastbayes" name="unknown">\n'
    for node in network.order:
        yield f'  <node id="{names[node]}"><name>{names[node]}</name></node>\n'
    yield "</genie>\n</extensions>\n</smile>\n"
