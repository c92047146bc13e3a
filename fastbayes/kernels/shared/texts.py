"""Distinct texts, numbered in the order in which they came, and texts to look up among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What stands for no code. A look-up table holds them in the same order as codes at predict.
MISSING = np.uint32(0xFFFFFFFE)
UNSEEN = np.uint32(0xFFFFFFFF)
# Bytes that may be read beyond the last text of a table: two words.
SPARE = 16
# Room of a table that begins to grow: texts, and their bytes.
FIRST_ROOM, FIRST_BYTES = 16, 256
# Offsets of Arrow's strings are int32.
MOST_BYTES = np.iinfo(np.int32).max

OUTSIDE = "texts do not lie one after the other in their bytes"

_NONE = np.empty(0, np.uint32)
_NO_WORDS = np.empty((0, 2), np.uint64)


class Texts(NamedTuple):
    """Strings side by side, as Arrow holds them: text r is data[offsets[r]:offsets[r + 1]].

    offsets  (n + 1,) int32 | int64
    data     (n_bytes,) uint8
    """

    offsets: NDArray[np.signedinteger]
    data: NDArray[np.uint8]

    def spared(self) -> int:
        """Return how many texts have SPARE bytes behind them."""
        kind = self.offsets.dtype.type  # numpy would convert all of them to another one
        last = kind(min(len(self.data) - SPARE, np.iinfo(kind).max))
        return max(int(np.searchsorted(self.offsets, last, "right")) - 1, 0)

    def with_spare(self) -> Texts:
        """Return the texts with SPARE bytes behind the last one, copied where there are fewer.

        Raises IndexError where they are not inside their bytes.
        """
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        if not 0 <= first <= last <= len(self.data):
            raise IndexError(OUTSIDE)
        if last + SPARE <= len(self.data):
            return self
        data = np.zeros(last - first + SPARE, np.uint8)
        data[:-SPARE] = self.data[first:last]
        return Texts(self.offsets - first, data)


class TextTable(NamedTuple):
    """The texts known so far. A table stays right while another one grows out of it.

    offsets  (room + 1,) int32   text c is data[offsets[c]:offsets[c + 1]]
    data     (n_bytes,) uint8    SPARE bytes more than the texts, at least
    n_texts  texts
    slots    hash table of the compiled kernels, empty where they have not seen the texts
    words    what they compare first, two words for each text
    near     of the first so many texts, where the compiled kernels find most of them at once
    codes    code of each text, as far as the numpy twin has seen them
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    n_texts: int
    slots: NDArray[np.uint32]
    words: NDArray[np.uint64]
    near: dict[int, NDArray[np.uint64]]
    codes: dict[bytes, int]

    @classmethod
    def of(cls, texts: Texts) -> TextTable:
        """Return the table of distinct texts."""
        first, last = int(texts.offsets[0]), int(texts.offsets[-1])
        own = Texts(texts.offsets - first, texts.data[first:last]).with_spare()
        offsets, data = own.offsets.astype(np.int32), own.data
        return cls(offsets, data, len(offsets) - 1, _NONE, _NO_WORDS, {}, {})

    def forgotten(self) -> TextTable:
        """Return the table as it is before either twin has seen its texts."""
        return self._replace(slots=_NONE, words=_NO_WORDS, near={}, codes={})

    def with_room(self, texts: int, size: int) -> TextTable:
        """Return the table with room for more texts of so many bytes, at least doubled if short.

        Raises OverflowError beyond the bytes that Arrow's strings can have.
        """
        offsets, data = self.offsets, self.data
        if self.n_texts + texts >= len(offsets):
            room = max(FIRST_ROOM, 2 * len(offsets), self.n_texts + texts + 1)
            offsets = np.empty(room, np.int32)
            offsets[: self.n_texts + 1] = self.offsets[: self.n_texts + 1]
        used = int(offsets[self.n_texts])
        if used + size > MOST_BYTES:
            raise OverflowError(f"{used + size:,} bytes")
        if used + size + SPARE > len(data):
            room = max(FIRST_BYTES, 2 * len(data), used + size + SPARE)
            data = np.empty(min(room, MOST_BYTES + SPARE), np.uint8)
            data[:used] = self.data[:used]
        return self._replace(offsets=offsets, data=data)
