"""Files that differ in their numbers alone: what was checked of one holds for the others.

The parts of a job have the same header, the same texts, and arrays of the same types and shapes.
`FileLayout` knows where the numbers are in a file that was read and checked, and what all else is:
a file that has the same around its numbers is read by looking at these and its digest alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

# What a file has for its layout to be kept, at most, and what it has around its numbers.
MOST, MOST_AROUND = 1 << 20, 1 << 16


class StoredNumbers(NamedTuple):
    """Where an array is in a file, and as what it is stored there."""

    start: int
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + int(np.prod(self.shape)) * self.stored.itemsize

    def read(self, blob: bytes) -> np.ndarray[Any, Any]:
        """Return the array, which owns its memory."""
        found: np.ndarray[Any, Any] = np.ndarray(self.shape, self.stored, blob, self.start)
        return found.astype(self.dtype)


@dataclass(frozen=True, eq=False)
class FileLayout:
    """A file without its numbers.

    Parameters
    ----------
    size
        Its bytes.
    digests
        Where its digest stands, which is another one in each file.
    digest_size
        Bytes of that.
    around
        (start, bytes) of all that is neither a number nor the digest.
    text
        The header.
    arrays
        By name: where it is, or an array that is the same in all files.
    """

    size: int
    digests: tuple[int, ...]
    digest_size: int
    around: tuple[tuple[int, bytes], ...]
    text: bytes
    arrays: Mapping[str, StoredNumbers | np.ndarray[Any, Any] | pa.Array]

    @classmethod
    def of(
        cls, blob: bytes, digest: bytes, text: bytes, columns: Mapping[str, pa.Array],
        arrays: Mapping[str, np.ndarray[Any, Any] | pa.Array],
    ) -> Self | None:  # fmt: skip
        """Return the layout of a file that was read; None where it is compressed or large.

        columns  by name: the values of an array, as Arrow reads them
        arrays   by name: the array
        """
        base = pa.py_buffer(blob).address
        found: dict[str, StoredNumbers | np.ndarray[Any, Any] | pa.Array] = {}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype == bool or not array.size:
                found[name] = _own(array, blob)
                continue
            values = columns[name]
            data = values.buffers()[-1]
            start = data.address - base
            if not 0 <= start <= len(blob) - data.size:
                return None
            stored = np.dtype(values.type.to_pandas_dtype())
            start += values.offset * stored.itemsize
            found[name] = StoredNumbers(start, stored, array.shape, array.dtype)
        digests = tuple(_places(blob, digest))
        taken = [(at, at + len(digest)) for at in digests]
        taken += [(one.start, one.end) for one in found.values() if isinstance(one, StoredNumbers)]
        ends = [(0, 0), *sorted(taken), (len(blob), len(blob))]
        gaps = [(end, start) for (_, end), (start, _) in pairwise(ends)]
        if len(blob) > MOST or sum(end - start for start, end in gaps) > MOST_AROUND:
            return None
        around = tuple((start, blob[start:end]) for start, end in gaps)
        return cls(len(blob), digests, len(digest), around, text, found)

    def digest_of(self, blob: bytes) -> bytes | None:
        """Return the digest that a file gives; None where the file is not like this one."""
        if len(blob) != self.size:
            return None
        if not all(blob.startswith(same, start) for start, same in self.around):
            return None
        digest = blob[self.digests[0] :][: self.digest_size]
        return digest if all(blob.startswith(digest, at) for at in self.digests) else None

    def read(self, blob: bytes) -> dict[str, np.ndarray[Any, Any] | pa.Array]:
        """Return the arrays of a file like this one."""
        return {name: _own(one, blob) for name, one in self.arrays.items()}


def _own(one: Any, blob: bytes) -> Any:
    if isinstance(one, StoredNumbers):
        return one.read(blob)
    return one.copy() if isinstance(one, np.ndarray) else one


def _places(blob: bytes, some: bytes) -> Iterator[int]:
    at = blob.find(some)
    while at >= 0:
        yield at
        at = blob.find(some, at + len(some))
