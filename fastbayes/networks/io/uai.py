"""UAI: networks of variables without names, read and written without loss."""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Iterator
from typing import Any

from fastbayes.networks.io.parsed_network import (
    SIX_DIGITS,
    Family,
    NetworkBuilder,
    ParsedNetwork,
    TableRow,
    brief,
    check_whole,
    numbers_in,
    text_in,
    write_text,
)


class UaiReader:
    """Reads what the words of a file declare; the places are those of words.

    A function is about the variables of its scope, the last of which is the node. Its table counts
    the first variable slowest and the last fastest. Tables stand in the order of the scopes.
    """

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        self._words: list[str] = []
        ends = []  # how many words there are up to the end of each line
        for line in text.split("\n"):
            self._words += line.partition("#")[0].split()
            ends.append(len(self._words))
        self._next = 0
        last = len(ends) - 1
        self._declared = NetworkBuilder(
            path, lambda at: min(bisect.bisect_right(ends, at), last) + 1, SIX_DIGITS
        )

    def parts(self) -> ParsedNetwork:
        """Return what the network is made of."""
        kind = self._word("BAYES")
        if kind != "BAYES":
            message = f"{brief(kind)} where BAYES should be: only Bayesian networks are read"
            raise self._declared.fault(0, message)
        sizes = [
            self._count(f"the number of states of variable {i}")
            for i in range(self._count("the number of variables"))
        ]
        if 0 in sizes:
            i = sizes.index(0)
            raise self._declared.fault(2 + i, f"variable {i} has no states")
        n_functions = self._count("the number of functions")
        if n_functions != len(sizes):
            message = f"{n_functions:,} functions for {len(sizes):,} variables: each needs one"
            raise self._declared.fault(self._next - 1, message)
        for at, scope in [self._scope(len(sizes)) for _ in sizes]:
            self._function(at, scope, [sizes[i] for i in scope])
        if self._next < len(self._words):
            message = f"{brief(self._words[self._next])} stands after the last table"
            raise self._declared.fault(self._next, message)
        # Only now: a table has at least as many numbers as its node has states.
        for i, size in enumerate(sizes):
            self._declared.node(str(i), [str(state) for state in range(size)], 2 + i)
        return self._declared.parts()

    def _word(self, wanted: str) -> str:
        if self._next >= len(self._words):
            raise self._declared.fault(self._next, f"the file ends where {wanted} should be")
        self._next += 1
        return self._words[self._next - 1]

    def _count(self, wanted: str) -> int:
        word = self._word(wanted)
        # No file has as many as ten digits say; a number of a million is not worth making.
        if not (word.isascii() and word.isdigit() and len(word) < 10):
            raise self._declared.fault(self._next - 1, f"{brief(word)} where {wanted} should be")
        return int(word)

    def _scope(self, n: int) -> tuple[int, list[int]]:
        at, scope = self._next, []
        for _ in range(self._count("the number of variables of a function")):
            scope.append(self._count("a variable of a function"))
            if scope[-1] >= n:
                message = f"variable {scope[-1]:,} where there are {n:,}, counted from 0"
                raise self._declared.fault(self._next - 1, message)
        if not scope:
            raise self._declared.fault(at, "a function of no variable")
        return at, scope

    def _function(self, at: int, scope: list[int], sizes: list[int]) -> None:
        *given, node = map(str, scope)
        family = Family(node, tuple(given), at)
        self._declared.family(family)
        begin = self._next
        n_numbers, asked = self._count("the number of numbers of a table"), math.prod(sizes)
        if n_numbers != asked:
            message = f"node {node!r}: its table has {n_numbers:,} numbers, its states and its "
            raise self._declared.fault(begin, f"{message}parents' ask {asked:,}")
        words = self._words[self._next : self._next + n_numbers]
        try:
            numbers = numbers_in(" ".join(words))
        except ValueError as error:
            (word,) = error.args
            message = f"node {node!r}: {brief(word)} is no number"
            raise self._declared.fault(self._next + words.index(word), message) from None
        self._next += len(words)
        if len(words) < n_numbers:
            self._word(f"a number of node {node!r}")
        family.table = TableRow((), numbers, begin)


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from a UAI file, as `BayesianNetwork.read` says.

    Nodes and states are numbers from 0. What follows `#` in a line is a comment, which the format
    does not have, but files of pyAgrum.

    References
    ----------
    UAI 2008 Workshop, Evaluation of Probabilistic Inference Systems: file format.
    """
    return UaiReader(path, text_in(path, "UAI")).parts()


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to a UAI file, as `BayesianNetwork.write` says."""
    check_whole(network, path)
    write_text(path, _lines(network), force)


def _lines(network: Any) -> Iterator[str]:
    place = {node: str(i) for i, node in enumerate(network.nodes)}
    sizes = " ".join(str(len(network.states[node])) for node in place)
    yield f"BAYES\n{len(place)}\n{sizes}\n{len(place)}\n"
    for node in place:
        scope = [place[n] for n in (*network.parents[node], node)]
        yield f"{len(scope)} {' '.join(scope)}\n"
    for node in place:
        table = network.tables[node]
        yield f"\n{table.size}\n"
        for row in table.reshape(-1, table.shape[-1]):
            yield f"{' '.join(map(repr, row.tolist()))}\n"
