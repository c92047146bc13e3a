"""Codebooks: the values of a categorical column, numbered as they come, sorted at the end.

Of a numeric column that is cut into bins, the cut points.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.domains import cast_domain, common_type, value_type
from fastbayes.core.errors import DataError, SchemaError

MISSING = np.uint32(0xFFFFFFFF)
UNSEEN = np.uint32(0xFFFFFFFE)
# Integers spanning at most this range are looked up by offset instead of hashed.
SPAN = 1 << 20


class Lookup(NamedTuple):
    """Codes of the entries of one dictionary.

    `table` (n,) uint32 may hold MISSING and UNSEEN; `identity` says that it is 0, 1, 2 …
    """

    table: NDArray[np.uint32]
    identity: bool
    has_missing: bool
    has_unseen: bool


class Codebook:
    """The values of one categorical column, of a canonical Arrow type, and their codes.

    `values` are known from the start, coded 0, 1, 2 …; where the book is `fixed`, others are
    UNSEEN.

    Several threads may look up at once. Codes only ever get added, so a code once handed out stays
    right, whatever the threads' order; the final domain is sorted.
    """

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        values: Iterable[Any] = (),
        *,
        fixed: bool = False,
        null_values: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.fixed = fixed
        self.null_values = frozenset(null_values)
        self.codes: dict[Any, int] = {value: code for code, value in enumerate(values)}
        self._lock = threading.Lock()
        self._last: tuple[pa.Array, Lookup] | None = None
        self._integers: tuple[int, NDArray[np.uint32], int] | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def widen(self, kind: pa.DataType) -> None:
        """Make room for values of another type: any after nulls, floats after integers.

        Raises SchemaError when they cannot stand beside those known; a closed book only checks.
        """
        if kind != self.kind:
            common = common_type(self.name, self.kind, kind)
            if not self.fixed:
                self.kind = common

    def values(self) -> pa.Array:
        """Return the values in code order."""
        return cast_domain(self.name, list(self.codes), self.kind)

    def lookup(self, dictionary: pa.Array) -> Lookup:
        """Return the codes of a dictionary's entries, adding new ones to an open book."""
        last = self._last
        if last is not None and (last[0] is dictionary or last[0].equals(dictionary)):
            return last[1]
        try:
            entries = dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise DataError(
                f"column {self.name!r} holds bytes that are not UTF-8 text ({error.reason}); "
                "write the file again as UTF-8"
            ) from error
        table = self.encode(entries)
        special = int(table.max(initial=0)) >= UNSEEN
        found = Lookup(
            table,
            not special and np.array_equal(table, np.arange(len(table))),
            bool(special and (table == MISSING).any()),
            bool(special and (table == UNSEEN).any()),
        )
        self._last = (dictionary, found)
        return found

    def encode(self, entries: list[Any]) -> NDArray[np.uint32]:
        """Return the codes of Python values, adding new ones to an open book."""
        codes, null_values = self.codes, self.null_values
        table = np.empty(len(entries), dtype=np.uint32)
        if self.fixed:
            for i, value in enumerate(entries):
                table[i] = codes.get(value, UNSEEN)
                if value is None or value != value or value in null_values:
                    table[i] = MISSING
            return table
        with self._lock:
            for i, value in enumerate(entries):
                if value is None or value != value or value in null_values:
                    table[i] = MISSING
                else:
                    table[i] = codes.setdefault(value, len(codes))
        return table

    def integers(self, low: int, high: int) -> tuple[int, NDArray[np.uint32]]:
        """Return (first, table): the code of integer v is table[v - first], UNSEEN if unknown."""
        cached = self._integers
        if cached is not None and cached[2] == len(self.codes):
            first, table, _ = cached
            if first <= low and high < first + len(table):
                return first, table
        known = list(self.codes)  # meanwhile other threads may add to it
        # Infinity and fractions are no integers.
        near = (v for v in known if abs(v - low) < SPAN and abs(v - high) < SPAN)
        inside = [int(v) for v in near if v == int(v)]
        first, last = min([low, *inside]), max([high, *inside])
        if last - first >= SPAN:
            first, last = low, high
        table = np.full(last - first + 1, UNSEEN, dtype=np.uint32)
        for value in inside:
            if first <= value <= last:
                table[value - first] = self.codes[value]
        self._integers = (first, table, len(known))
        return first, table


class BinBook:
    """The bins of a numeric column, a book that is closed from the start.

    Code k is the bin (cuts[k - 1], cuts[k]]; cut points are ascending.
    """

    fixed = True

    def __init__(self, name: str, cuts: NDArray[np.float64]) -> None:
        self.name = name
        self.cuts = cuts

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def values(self) -> pa.Array:
        """Return the numbers of the bins."""
        return pa.array(range(len(self)), pa.int64())


def open_book(
    name: str, kind: pa.DataType, declared: pa.Array | None, null_values: Iterable[str]
) -> Codebook:
    """Return the codebook to learn a column of this type with, closed where values are declared."""
    canonical = value_type(name, kind)
    if declared is None:
        return Codebook(name, canonical, null_values=null_values)
    common = common_type(name, declared.type, canonical)
    listed = cast_domain(name, declared, common).to_pylist()
    return Codebook(name, common, listed, fixed=True, null_values=null_values)


def closed_book(
    name: str, kind: pa.DataType, values: pa.Array, null_values: Iterable[str]
) -> Codebook:
    """Return the codebook of a learned domain for a column of this type.

    Raises SchemaError when the column was of another type when it was learned.
    """
    own = value_type(name, kind)
    try:
        common_type(name, values.type, own)
    except SchemaError as error:
        raise SchemaError(
            f"column {name!r} was {values.type} at fit and is {kind} now; cast it to {values.type}"
        ) from error
    return Codebook(name, values.type, values.to_pylist(), fixed=True, null_values=null_values)
