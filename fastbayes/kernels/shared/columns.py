"""A column of integers, and the codes that they stand for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class IntegerColumn(NamedTuple):
    """Integers in memory, dictionary indices say, or the bits of truth values.

    values      (n,) of any integer type; of truth values the bitmap, uint8
    bit         bit of the first truth value; -1: these are integers
    validity    bitmap of rows that are not null, uint8; None: all of them
    valid_bit   bit of the first row in it
    """

    values: NDArray[Any]
    bit: int
    validity: NDArray[np.uint8] | None
    valid_bit: int


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
