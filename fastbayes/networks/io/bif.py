"""The Bayesian Interchange Format: networks as text, read and written without loss."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fastbayes.core.errors import FileFormatError
from fastbayes.networks.graph.coded import SparseTable, Table
from fastbayes.networks.io.parsed_network import (
    Family,
    NetworkBuilder,
    ParsedNetwork,
    TableRow,
    brief,
    names_of,
    numbers_in,
    text_in,
    write_text,
)

# White space and comments, then a word, a text in quotes, or a mark. The possessive `+` after a
# repeat keeps the time linear whatever the text.
TOKEN = re.compile(
    r"""(?:\s++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+
    (?:(?P<word>(?:[^\s{}()\[\];,|"/]|/(?![/*]))++)
    |"(?P<text>(?:[^"\\]++|\\.)*+)"
    |(?P<mark>[{}()\[\];,|]))?+""",
    re.VERBOSE | re.DOTALL,
)
# Rows, and numbers up to a semicolon, without quotes and comments: nearly all of a file.
ROW = re.compile(r'\s*+\(([^(){}\[\]"|/;]*+)\)\s*+([^(){}\[\]"|/;]*+);')
NUMBERS = re.compile(r'\s*+([^(){}\[\]"|/;]*+);')
ESCAPED = re.compile(r'\\([\\"])')
# Words that every reader takes without quotes.
PLAIN = re.compile(r"[A-Za-z0-9_.+<>=%-]+")


class Lexer:
    """Goes through a text token by token; `value` and `kind` are those of the last one.

    Kinds are "word", "text" (it stood in quotes), "mark", and "" at the end.
    """

    def __init__(self, text: str) -> None:
        self.text, self.at, self.end = text, 0, 0
        self.kind, self.value = "", ""

    def advance(self) -> str:
        """Go on to the next token and return its value."""
        found = TOKEN.match(self.text, self.end)
        assert found is not None  # every part of the pattern may be empty
        self.end = found.end()
        if found.lastgroup is None:
            self.kind, self.value, self.at = "", "", self.end
            if self.end < len(self.text):
                self.kind, self.value = "stray", self.text[self.end : self.end + 2]
            return self.value
        self.kind, self.value = found.lastgroup, found[found.lastgroup]
        self.at = found.start(found.lastgroup)
        if self.kind == "text" and "\\" in self.value:
            self.value = ESCAPED.sub(r"\1", self.value)
        return self.value


class Parser:
    """Reads what the text of a file declares."""

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        self._lexer = Lexer(text)
        self._declared = NetworkBuilder(path, lambda at: text.count("\n", 0, at) + 1)

    def parts(self) -> ParsedNetwork:
        """Return what the network is made of."""
        lexer = self._lexer
        read = {
            "network": self._network,
            "variable": self._variable,
            "probability": self._probability,
            "property": self._property,
        }
        while lexer.advance() or lexer.kind:
            if lexer.kind != "word" or lexer.value not in read:
                raise self._unexpected("network, variable or probability")
            read[lexer.value]()
        return self._declared.parts()

    def _unexpected(self, wanted: str) -> FileFormatError:
        lexer = self._lexer
        if not lexer.kind:
            found = "the file ends"
        elif lexer.value == "/*":
            found = "there is a comment that does not end"
        elif lexer.kind == "stray":
            found = "there is a quotation mark without another one"
        else:
            found = f"there is {brief(lexer.value)}"
        return self._declared.fault(lexer.at, f"{found} where {wanted} should be")

    def _mark(self, mark: str) -> None:
        if self._lexer.advance() != mark or self._lexer.kind != "mark":
            raise self._unexpected(repr(mark))

    def _is(self, mark: str) -> bool:
        return self._lexer.kind == "mark" and self._lexer.value == mark

    def _name(self, what: str) -> str:
        self._lexer.advance()
        if self._lexer.kind not in ("word", "text"):
            raise self._unexpected(what)
        return self._lexer.value

    def _names(self, end: str, what: str, marks: str = ",") -> list[str]:
        """Return names up to a mark; they stand between commas or white space."""
        found = []
        while True:
            value = self._lexer.advance()
            if self._lexer.kind in ("word", "text"):
                found.append(value)
            elif self._is(end):
                return found
            elif self._lexer.kind != "mark" or value not in marks:
                raise self._unexpected(f"{what} or {end!r}")

    def _property(self) -> None:
        """Go past a property: it says nothing of the distribution."""
        while not self._is(";"):
            self._lexer.advance()
            if self._lexer.kind in ("", "stray") or self._is("{") or self._is("}"):
                raise self._unexpected("the ';' of a property")

    def _network(self) -> None:
        self._lexer.advance()
        if not self._is("{"):
            self._mark("{")
        while self._lexer.advance() == "property" and self._lexer.kind == "word":
            self._property()
        if not self._is("}"):
            raise self._unexpected("a property or '}'")

    def _variable(self) -> None:
        name, at = self._name("the name of a node"), self._lexer.at
        self._mark("{")
        states = None
        while True:
            word = self._lexer.advance()
            if self._is("}"):
                break
            if self._lexer.kind == "word" and word == "property":
                self._property()
            elif self._lexer.kind == "word" and word == "type" and states is None:
                states = self._type(name)
            else:
                raise self._unexpected(f"the type of {brief(name)}, a property or '}}'")
        if states is None:
            raise self._declared.fault(at, f"node {brief(name)} has no type")
        self._declared.node(name, states, at)

    def _type(self, name: str) -> list[str]:
        if self._name("a type") != "discrete":
            raise self._unexpected("'discrete': the nodes of a network have states")
        self._mark("[")
        size, at = self._name("a number of states"), self._lexer.at
        self._mark("]")
        self._mark("{")
        states = self._names("}", "a state")
        self._mark(";")
        # Compared as text: a number of a million digits is not worth making.
        if size.lstrip("0") != str(len(states)):
            raise self._declared.fault(
                at, f"node {brief(name)} has {len(states):,} states, {brief(size)} are declared"
            )
        return states

    def _probability(self) -> None:
        self._mark("(")
        node, at = self._name("the name of a node"), self._lexer.at
        # The first one is the node; some programs write nothing between it and its parents.
        family = Family(node, tuple(self._names(")", "a parent", ",|")), at, node_first=True)
        self._mark("{")
        while self._row(family):
            pass
        self._declared.family(family)

    def _row(self, family: Family) -> bool:
        """Read a line of a table; return whether there was one."""
        lexer = self._lexer
        whole = ROW.match(lexer.text, lexer.end)
        if whole is not None:
            numbers = self._floats(whole[2], whole.start(2))
            row = TableRow(whole[1].replace(",", " ").split(), numbers, whole.start(1) - 1)
            family.rows.append(row)
            lexer.end = whole.end()
            return True
        word = lexer.advance()
        at = lexer.at
        if self._is("}"):
            return False
        if self._is("("):
            family.rows.append(TableRow(self._names(")", "a state"), self._numbers(), at))
        elif lexer.kind == "word" and word == "property":
            self._property()
        elif lexer.kind == "word" and word in ("table", "default"):
            if getattr(family, word) is not None:
                raise self._declared.fault(at, f"node {brief(family.node)} has a second {word!r}")
            setattr(family, word, TableRow((), self._numbers(), at))
        else:
            raise self._unexpected("a row or '}'")
        return True

    def _numbers(self) -> list[float]:
        lexer = self._lexer
        plain = NUMBERS.match(lexer.text, lexer.end)
        if plain is not None:
            lexer.end = plain.end()
            return self._floats(plain[1], plain.start(1))
        found = []
        while True:
            lexer.advance()
            if lexer.kind == "word":
                found += self._floats(lexer.value, lexer.at)
            elif self._is(";"):
                return found
            elif not self._is(","):
                raise self._unexpected("a number or ';'")

    def _floats(self, listed: str, at: int) -> list[float]:
        try:
            return numbers_in(listed.replace(",", " "))
        except ValueError as error:
            (word,) = error.args
            at += listed.index(word)
            raise self._declared.fault(at, f"{brief(word)} is no number") from None


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from a BIF file, as `BayesianNetwork.read_bif` says."""
    return Parser(path, text_in(path, "BIF")).parts()


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to a BIF file, as `BayesianNetwork.write_bif` says."""
    write_text(path, _lines(network, *names_of(network)), force)


def _lines(
    network: Any, names: dict[object, str], states: dict[object, list[str]]
) -> Iterator[str]:
    quoted = {node: _quoted(name) for node, name in names.items()}
    listed = {node: [_quoted(state) for state in some] for node, some in states.items()}
    yield "network unknown {\n}\n"
    for node in network.nodes:
        some = ", ".join(listed[node])
        yield f"variable {quoted[node]} {{\n"
        yield f"  type discrete [ {len(listed[node])} ] {{ {some} }};\n}}\n"
    for node in network.nodes:
        above, table = network.parents[node], network.tables[node]
        given = f" | {', '.join(quoted[p] for p in above)}" if above else ""
        yield f"probability ( {quoted[node]}{given} ) {{\n"
        if above:
            yield from _configurations([listed[p] for p in above], table)
        else:
            yield f"  table {', '.join(map(repr, table.tolist()))};\n"
        yield "}\n"


def _configurations(states: list[list[str]], table: Table) -> Iterator[str]:
    given: Iterable[Sequence[str]] = itertools.product(*states)
    rows = table.rows[:-1] if isinstance(table, SparseTable) else table
    if isinstance(table, SparseTable):
        yield f"  default {', '.join(map(repr, table.rows[-1].tolist()))};\n"
        codes = table.kept()[0][:-1, :: table.shape[-1]].T.tolist()
        given = ([some[code] for some, code in zip(states, row, strict=True)] for row in codes)
    for where, row in zip(given, rows.reshape(-1, table.shape[-1]), strict=True):
        yield f"  ({', '.join(where)}) {', '.join(map(repr, row.tolist()))};\n"


def _quoted(name: str) -> str:
    """Return a name as it stands in a file; backslashes keep quotation marks in it apart."""
    if PLAIN.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
