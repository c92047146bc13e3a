"""A column of integers, and the codes that they stand for."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

# What is known of a piece of a column, its fields: up to which row of the column it goes, where its
# values are, bit of the first one if they are bits, its bitmap of what is not null (0: none), bit
# of the first row in that, and which of the column's translations is its own.
END, VALUES, BIT, VALIDITY, VALID_BIT, TABLE = range(6)
FIELDS = 6


class IntegerColumn(NamedTuple):
    """Integers in memory, dictionary indices say, or truth values, in pieces one after the other.

    kind    "i1", "i2" ... "u8"; "b1" for truth values, which are the bits of a bitmap
    pieces  (n_pieces, FIELDS) int64
    owner   what holds the memory
    """

    kind: str
    pieces: NDArray[np.int64]
    owner: object = None

    @classmethod
    def of(
        cls,
        values: NDArray[Any],
        bit: int = -1,
        validity: NDArray[np.uint8] | None = None,
        valid_bit: int = 0,
    ) -> Self:
        """Return the column of one array; with a `bit` its values are bits from that one on."""
        n = len(values) if bit < 0 else 8 * len(values) - bit
        where = 0 if validity is None else address_of(validity)
        pieces = np.array([(n, address_of(values), max(bit, 0), where, valid_bit, 0)])
        kind = values.dtype.str[1:] if bit < 0 else "b1"
        return cls(kind, pieces.reshape(-1, FIELDS), (values, validity))

    @property
    def has_nulls(self) -> bool:
        """Return whether a piece says which of its values are known."""
        # faster than any() of a few
        return bool(np.count_nonzero(self.pieces[:, VALIDITY]))

    def only(self, table: int) -> Self:
        """Return the pieces of one translation."""
        chosen = self.pieces[:, TABLE] == table
        pieces = self.pieces[chosen]
        pieces[:, END] = np.cumsum(np.diff(self.pieces[:, END], prepend=0)[chosen])
        return self._replace(pieces=pieces)

    @property
    def n_rows(self) -> int:
        """Return the rows of all pieces."""
        return int(self.pieces[-1, END]) if len(self.pieces) else 0


class Translation(NamedTuple):
    """Which code an integer stands for: itself below `own`, else table[value - minimum - own].

    minimum   value of the first entry, 0 where there are integers before it
    table     (n_entries + 2,) uint32   codes of the entries, of any other value, of null
    watched   a code whose rows are counted; -1: none
    own       integers that are codes themselves
    same      whether so are the entries: 0, 1, 2 ...
    """

    minimum: int
    table: NDArray[np.uint32]
    watched: int
    own: int = 0
    same: bool = False


def address_of(array: NDArray[Any]) -> int:
    """Return where an array lies."""
    if array.flags.carray and array.size:  # numpy takes five times as long to tell
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    address: int = array.__array_interface__["data"][0]
    return address


def array_at(address: int, n: int, kind: str) -> NDArray[Any]:
    """Return n numbers in memory that is held by another."""
    return np.asarray(_InMemory(address, n, kind))


class _InMemory:
    def __init__(self, address: int, n: int, kind: str) -> None:
        where = {"data": (address, True), "shape": (n,), "typestr": f"{_ORDER}{kind}"}
        self.__array_interface__ = {**where, "version": 3}


_ORDER = np.dtype(np.int64).str[0]
