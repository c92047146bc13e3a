"""What is known of row groups that others like them are decoded to the place of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.columns import VALIDITY, VALUES, address_of


class Chunks(NamedTuple):
    """Memory that row groups are read and decoded to, and what the first ones left there.

    columns   (3, n_columns, N_COLUMN) int64   now, before the first page, when all was decoded
    pages     (room, N_PAGE) int64
    held      bytes of the dictionary page of each column, empty where there is none
    source    uint8   bytes of the file
    unpacked, tables, indices, out   as `pages.decode` takes them
    first     uint8   the tables of the first row groups
    """

    columns: NDArray[np.int64]
    pages: NDArray[np.int64]
    held: Sequence[bytes]
    source: NDArray[np.uint8]
    unpacked: NDArray[np.uint8]
    tables: NDArray[np.uint8]
    indices: NDArray[np.uint8]
    out: NDArray[np.uint8]
    first: NDArray[np.uint8]

    def elsewhere(self, lend: Callable[[int], NDArray[np.uint8]], within: Chunks | None) -> Chunks:
        """Return as much other memory: within some that is large enough, or as a function gives."""
        fresh: dict[str, Any] = {}
        for name in ("source", "unpacked", "tables", "indices", "out"):
            size, held = len(getattr(self, name)), getattr(within, name, b"")
            fresh[name] = held[:size] if len(held) >= size > 0 else lend(size)
        return self._replace(columns=self.columns.copy(), pages=np.empty_like(self.pages), **fresh)


class WriterPieces(NamedTuple):
    """What a `CodeWriter` knows of columns, as it stands for the first row groups.

    pieces   (n_pieces, fields) int64
    outside  (n_columns,) int64
    tables   number of a piece, chunk whose entries it has, (n_entries + 2,) uint32 codes of these,
             of any other value, of null: of columns whose entries may stand in another order
    """

    pieces: NDArray[np.int64]
    outside: NDArray[np.int64]
    tables: Sequence[tuple[int, int, NDArray[np.uint32]]]

    def moved(self, ranges: Sequence[tuple[NDArray[np.uint8], NDArray[np.uint8]]]) -> WriterPieces:
        """Return the same of values and bits that lie in other arrays."""
        pieces = self.pieces.copy()
        for old, new in ranges:
            begin, places = address_of(old), pieces[:, [VALUES, VALIDITY]]
            within = (places >= begin) & (places < begin + old.nbytes)
            pieces[:, [VALUES, VALIDITY]] = places + within * (address_of(new) - begin)
        return self._replace(pieces=pieces, outside=np.zeros_like(self.outside))
