"""What a file says of a network, held against itself before any table is made."""

from __future__ import annotations

import graphlib
import math
import os
import reprlib
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastbayes.core.domains import cut_points
from fastbayes.core.errors import DataError, FileFormatError, warn
from fastbayes.core.files import atomic
from fastbayes.networks.graph.coded import Floats, SparseTable, Table, fits

# What rows of a table in BIF may miss 1 by.
WRITTEN = 1e-6
# The same where programs write six digits of each number.
SIX_DIGITS = 1e-4
# What sums of r numbers near 1 may miss it by, in units of r eps: they are as they should be.
ROUNDING = 4 * float(np.finfo(np.float64).eps)
# Numbers that rows called `default` fill in, over the file; beyond, tables keep what stands in it.
MOST_DEFAULT = 1 << 22
# Axes of an array, one of them the node's own.
MOST_PARENTS = 63

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 80
brief = _brief.repr


class ParsedNetwork(NamedTuple):
    """What a network is made of, as `BayesianNetwork` takes it."""

    states: dict[str, tuple[str | None, ...]]
    parents: dict[str, tuple[str, ...]]
    tables: dict[str, Table]


class TableRow(NamedTuple):
    """The probabilities of a node's states where its parents are in these."""

    given: Sequence[str]
    numbers: list[float]
    at: int


@dataclass
class Family:
    """A node, its parents, and the probabilities that a file gives.

    `table` has all numbers, in the order of `node_first`: the node counts slowest, or fastest.
    """

    node: str
    parents: tuple[str, ...]
    at: int
    node_first: bool = False
    table: TableRow | None = None
    default: TableRow | None = None
    rows: list[TableRow] = field(default_factory=list)


class Made(NamedTuple):
    """Rows of a table, and which configuration of the parents each is about.

    `places` is None where they are all in order; -1 stands for all others.
    """

    shape: list[int]
    rows: Floats
    places: list[int] | None = None

    def place(self, row: int) -> int:
        """Return which configuration a row is about."""
        return row if self.places is None else self.places[row]

    def table(self) -> Table:
        """Return the table."""
        if self.places is None:
            return self.rows.reshape(self.shape)
        return SparseTable(self.shape, np.array(self.places[:-1], np.int64), self.rows)


class NetworkBuilder:
    """Collects nodes and families, and makes tables of them once they fit together.

    path      the file, for messages
    line      returns the line of a place in it; None where lines are not known
    most_off  rows of a table may miss 1 by this; they are scaled
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        line: Callable[[int], int] | None = None,
        most_off: float = WRITTEN,
    ) -> None:
        self._path, self._line_of, self._most_off = os.fspath(path), line, most_off
        self._codes: dict[str, dict[str, int]] = {}
        self._at: dict[str, int] = {}
        self._families: dict[str, Family] = {}

    def fault(self, at: int, message: str) -> FileFormatError:
        """Return the error that names the file and the line of a place in it."""
        where = "" if self._line_of is None else f", line {self._line_of(at)}"
        return FileFormatError(f"{self._path}{where}: {message}")

    def _first(self, at: int) -> str:
        return "" if self._line_of is None else f", first in line {self._line_of(at)}"

    def node(self, name: str, states: Sequence[str], at: int) -> None:
        """Add a node with its states."""
        if name in self._codes:
            raise self.fault(
                at, f"node {brief(name)} is declared again{self._first(self._at[name])}"
            )
        codes = {state: code for code, state in enumerate(states)}
        if not states:
            raise self.fault(at, f"node {brief(name)} has no states")
        if len(codes) < len(states):
            twice = next(s for i, s in enumerate(states) if codes[s] != i)
            raise self.fault(at, f"node {brief(name)}: its state {brief(twice)} stands twice")
        self._codes[name], self._at[name] = codes, at

    def family(self, family: Family) -> None:
        """Add what a file says of P(node | parents)."""
        name = brief(family.node)
        if family.node in self._families:
            first = self._first(self._families[family.node].at)
            raise self.fault(family.at, f"node {name} has a second table{first}")
        if len({*family.parents}) < len(family.parents):
            raise self.fault(family.at, f"node {name}: one of its parents stands twice")
        if len(family.parents) > MOST_PARENTS:
            raise self.fault(
                family.at,
                f"node {name} has {len(family.parents):,} parents; at most {MOST_PARENTS} can be",
            )
        self._families[family.node] = family

    def parts(self) -> ParsedNetwork:
        """Return states, parents and tables; nothing is allocated before all sizes are known."""
        if not self._codes:
            raise FileFormatError(f"{self._path}: it declares no node; is it a network at all?")
        for node, family in self._families.items():
            for name, what in ((node, "node"), *((p, "parent") for p in family.parents)):
                if name not in self._codes:
                    about = f"the {what} {brief(name)} is declared nowhere"
                    raise self.fault(family.at, f"table of {brief(node)}: {about}")
        for node, at in self._at.items():
            if node not in self._families:
                raise self.fault(at, f"node {brief(node)} has no table")
        self._check_cycles()
        room, made = MOST_DEFAULT, {}
        filled = {node: self._check_sizes(family) for node, family in self._families.items()}
        for node in self._codes:
            whole = filled[node] <= room
            room -= filled[node] if whole else 0
            made[node] = self._made(self._families[node], whole)
        self._scale(made)
        return ParsedNetwork(
            {node: _states(codes) for node, codes in self._codes.items()},
            {node: self._families[node].parents for node in self._codes},
            {node: rows.table() for node, rows in made.items()},
        )

    def _check_cycles(self) -> None:
        above = {node: family.parents for node, family in self._families.items()}
        try:
            graphlib.TopologicalSorter(above).prepare()
        except graphlib.CycleError as error:
            cycle = error.args[1]
            more = " -> ..." if len(cycle) > 12 else ""
            shown = " -> ".join(map(brief, cycle[:12])) + more
            raise self.fault(
                self._families[cycle[0]].at,
                f"the parents of {brief(cycle[0])} go round in a circle: {shown}",
            ) from None

    def _sizes(self, family: Family) -> list[int]:
        return [len(self._codes[n]) for n in (*family.parents, family.node)]

    def _check_sizes(self, family: Family) -> int:
        """Raise unless there are as many numbers as states ask; return how many are filled in."""
        name, r = brief(family.node), len(self._codes[family.node])
        q = math.prod(self._sizes(family)[:-1])
        if family.table is not None:
            if family.rows or family.default:
                raise self.fault(family.at, f"node {name} has a table, and rows besides it")
            if len(family.table.numbers) != q * r:
                raise self.fault(
                    family.table.at,
                    f"node {name}: its table has {len(family.table.numbers):,} numbers, its "
                    f"states and its parents' ask {q * r:,}",
                )
            return 0
        for row in (*family.rows, *([family.default] if family.default else [])):
            if len(row.numbers) != r:
                message = f"node {name} has {r:,} states, the row {len(row.numbers):,} numbers"
                raise self.fault(row.at, message)
        if family.default:
            if not fits(self._sizes(family)):
                raise self.fault(family.at, f"node {name}: its parents have over 2^62 joint states")
            return max(q - len(family.rows), 0) * r
        if len(family.rows) < q:
            few = f"{len(family.rows):,} of {q:,} rows"
            raise self.fault(family.at, f"node {name}: its table has {few}, and no `default`")
        return 0

    def _made(self, family: Family, whole: bool) -> Made:
        """Return the rows of a table: all of them, or those that the file distinguishes."""
        sizes = self._sizes(family)
        if family.table is not None:
            table = np.array(family.table.numbers, np.float64)
            if family.node_first:
                table = np.ascontiguousarray(table.reshape(sizes[-1], -1).T)
            return Made(sizes, table.reshape(-1, sizes[-1]))
        at: dict[int, TableRow] = {}
        for row in family.rows:
            place = self._place(family, row)
            if place in at:
                message = f"{self._given(family, place)} has a second row"
                raise self.fault(row.at, message + self._first(at[place].at))
            at[place] = row
        if not whole:
            assert family.default is not None
            places = sorted(at)
            rows = [*(at[place].numbers for place in places), family.default.numbers]
            return Made(sizes, np.array(rows, np.float64), [*places, -1])
        table = np.empty((math.prod(sizes[:-1]), sizes[-1]))
        if family.default:
            table[:] = family.default.numbers
        if at:
            table[[*at]] = [row.numbers for row in at.values()]
        return Made(sizes, table)

    def _place(self, family: Family, row: TableRow) -> int:
        if len(row.given) != len(family.parents):
            raise self.fault(
                row.at,
                f"node {brief(family.node)}: {len(row.given)} states for "
                f"{len(family.parents)} parents",
            )
        place = 0
        for parent, state in zip(family.parents, row.given, strict=True):
            codes = self._codes[parent]
            if state not in codes:
                message = f"{brief(state)} is no state of its parent {brief(parent)}"
                raise self.fault(row.at, f"node {brief(family.node)}: {message}")
            place = place * len(codes) + codes[state]
        return place

    def _given(self, family: Family, place: int) -> str:
        """Return a configuration of a node's parents as messages name it."""
        if place < 0:
            return f"node {brief(family.node)} by default"
        words = []
        for parent in reversed(family.parents):
            place, code = divmod(place, len(self._codes[parent]))
            words.append(f"{brief(parent)} is {brief([*self._codes[parent]][code])}")
        return f"node {brief(family.node)}" + " where " * bool(words) + ", ".join(words[::-1])

    def _scale(self, made: Mapping[str, Made]) -> None:
        """Scale rows that miss 1 by what digits leave out; refuse those that miss it by more."""
        n_rows = n_off = 0
        worst, where = 0.0, ""
        for node, table in made.items():
            family, rows, r = self._families[node], table.rows, table.shape[-1]
            if not (np.isfinite(rows).all() and (rows >= 0).all()):
                row, state = np.argwhere(~(np.isfinite(rows) & (rows >= 0)))[0].tolist()
                place, number = table.place(row), float(rows[row, state])
                message = f"{self._given(family, place)}: {number!r} is no probability"
                raise self.fault(self._row_at(family, place), message)
            with np.errstate(over="ignore"):
                sums = rows.sum(axis=1)
            off = np.abs(sums - 1)
            row = int(off.argmax())
            place = table.place(row)
            if off[row] > self._most_off + ROUNDING * r:
                message = f"{self._given(family, place)}: the probabilities sum to {sums[row]:.9g}"
                if self._sums_otherwise(family):
                    message += "; a table counts the node's states slowest, its last parent's first"
                raise self.fault(self._row_at(family, place), message)
            n_rows += len(rows)
            scaled = off > ROUNDING * r
            rows[scaled] /= sums[scaled, None]
            n_off += int(np.count_nonzero(scaled))
            if off[row] > worst:
                worst, where = float(off[row]), self._given(family, place)
        if n_off:
            warn(
                f"{self._path}: {n_off:,} of {n_rows:,} rows do not sum to 1 and were scaled; "
                f"the farthest off, by {worst:.2g}, is {where}"
            )

    def _sums_otherwise(self, family: Family) -> bool:
        """Return whether a table that counts its node slowest would be one if it did fastest."""
        if family.table is None or not family.node_first:
            return False
        r = self._sizes(family)[-1]
        rows = np.array(family.table.numbers).reshape(-1, r)
        return bool((np.abs(rows.sum(axis=1) - 1) <= WRITTEN + ROUNDING * r).all())

    def _row_at(self, family: Family, place: int) -> int:
        for row in family.rows:
            if self._place(family, row) == place:
                return row.at
        given = family.table or family.default
        return given.at if given else family.at


def _states(texts: Iterable[str]) -> tuple[str | None, ...]:
    """Return states as they are written; `None` beside bins is a missing value, no text.

    Data have numbers for bins, and none where one is missing: no text could stand for it.
    """
    listed = tuple(texts)
    gap = str(None)
    if gap in listed and cut_points([text for text in listed if text != gap]) is not None:
        return tuple(None if text == gap else text for text in listed)
    return listed


def contents(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file; others may have no end."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileFormatError(f"{name}: not a regular file; name a file of a network")
            return file.read()
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise FileFormatError(f"{name}: {said}; name a file of a network") from error


def text_in(path: str | os.PathLike[str], form: str) -> str:
    """Return the text of a file, which is UTF-8 if it is of the format that `form` names."""
    blob = contents(path)
    try:
        return blob.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = blob.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{os.fspath(path)}, line {line}: byte {error.start:,} is no UTF-8 text; is it {form}?"
        ) from None


def write_text(path: str | os.PathLike[str], lines: Iterable[str], force: bool) -> None:
    """Write a file that appears whole or not at all."""
    with (
        atomic(path, force=force) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        file.writelines(lines)


def numbers_in(text: str) -> list[float]:
    """Return the numbers in a text, or raise ValueError(word) for the first that is none."""
    words = text.split()
    # Python reads 1_000 and the digits of other scripts, too; nobody else does.
    try:
        if "_" not in text and text.isascii():
            return list(map(float, words))
    except ValueError:
        pass
    for word in words:
        try:
            if "_" not in word and word.isascii():
                float(word)
                continue
        except ValueError:
            pass
        raise ValueError(word)
    return list(map(float, words))


def check_whole(network: Any, path: str | os.PathLike[str]) -> None:
    """Raise DataError where a table keeps some of its rows alone: no format but BIF can say so."""
    for node, table in network.tables.items():
        if isinstance(table, SparseTable):
            raise DataError(
                f"{os.fspath(path)}: the table of {node!r} has {table.size:,} cells, of which "
                f"{len(table.keys):,} rows are kept; only BIF can say so: write .bif"
            )


def names_of(network: Any) -> tuple[dict[object, str], dict[object, list[str]]]:
    """Return nodes and states as text, as files hold them.

    Raises DataError when two of them are the same text, or one cannot be encoded.
    """
    names = {node: str(node) for node in network.nodes}
    texts = {node: [_as_text(state) for state in network.states[node]] for node in names}
    several = {f"states of node {names[node]!r}": listed for node, listed in texts.items()}
    for what, listed in {"nodes": [*names.values()], **several}.items():
        seen: set[str] = set()
        for text in listed:
            if text in seen:
                raise DataError(f"two {what} are {text!r} as text; a file cannot tell them apart")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"{what}: {text!r} is no text that a file can hold") from error
            seen.add(text)
    return names, texts


def _as_text(state: Any) -> str:
    """Return a state as data have it that are cast to text: "true", "1" for 1.0."""
    if isinstance(state, (bool, float, np.bool_, np.floating)):
        return str(pa.scalar(state).cast(pa.string()).as_py())
    return str(state)
