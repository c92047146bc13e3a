"""Twins of `fastbayes.kernels.compiled.reading.texts`: a dictionary of Python holds the table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.texts import OUTSIDE, UNSEEN, Texts, TextTable


def indexed(table: TextTable) -> TextTable:
    """Return a table in which texts can be found; see the compiled twin."""
    first = len(table.codes)
    if first < table.n_texts:  # another thread may have gone on with a later table
        fresh = _bytes(table.offsets[first : table.n_texts + 1], table.data)
        table.codes.update((text, first + i) for i, text in enumerate(fresh))
    return table


def find_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> bool:
    """Write the codes of texts that are known; see the compiled twin."""
    known, n_texts = indexed(table).codes, table.n_texts
    # Another thread may have added texts since the table was taken.
    found = (known.get(text, n_texts) for text in _bytes(*texts))
    every = np.fromiter((c if c < n_texts else UNSEEN for c in found), np.uint32, len(codes))
    sought = codes == UNSEEN
    codes[sought] = every[sought]
    return not (codes == UNSEEN).any()


def add_texts(table: TextTable, texts: Texts, codes: NDArray[np.uint32]) -> TextTable:
    """Write the codes of texts, new ones after those known; see the compiled twin."""
    known, first = indexed(table).codes, table.n_texts
    given = _bytes(*texts)
    sought = np.flatnonzero(codes == UNSEEN).tolist()
    added = [text for text in dict.fromkeys(given[r] for r in sought) if text not in known]
    size, last = sum(map(len, added)), first + len(added)
    table = table.with_room(len(added), size)
    known.update((text, first + i) for i, text in enumerate(added))
    codes[sought] = [known[given[r]] for r in sought]
    start = int(table.offsets[first])
    table.data[start : start + size] = np.frombuffer(b"".join(added), np.uint8)
    ends = np.cumsum([len(text) for text in added], dtype=np.int64)
    table.offsets[first + 1 : last + 1] = start + ends
    # The hash table of the compiled kernels does not know the new texts.
    return table._replace(n_texts=last, slots=table.slots[: 0 if added else None])


def _bytes(offsets: NDArray[np.integer], data: NDArray[np.uint8]) -> list[bytes]:
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > len(data) or (offsets[1:] < offsets[:-1]).any():
        raise IndexError(OUTSIDE)
    joined, ends = data[first:last].tobytes(), (offsets - first).tolist()
    return [joined[a:b] for a, b in pairwise(ends)]
