"""Bytes that counting takes: what a scan may allocate, and what a plan foretells."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.schema import Shape
from fastbayes.data.encode import Encoder, LookedUp
from fastbayes.statistics.base import Need, Room
from fastbayes.statistics.parts import GrowingStatistics, Wanted
from fastbayes.statistics.registry import REGISTRY

# A number of an open codebook is a Python object in a dictionary: about this many bytes. A text has
# its own, 4 for where it lies and up to 48 in a hash table that doubles twice at a time.
BYTES_OF_VALUE = 120
# Up to so many values a column has no room for more: kernels choose their method by it.
FEW_VALUES = 1024


def needs_of(wanted: Wanted, room: Room) -> dict[str, Need]:
    """Return what each statistic needs, and under "" what the codebooks do."""
    shape = room.shape._replace(n_classes=max(1, room.shape.n_classes))
    needs = {n: REGISTRY[n].need(room._replace(shape=shape), **o) for n, o in wanted.items()}
    return {"": Need(BYTES_OF_VALUE * shape.sizes), **needs}


def total_of(needs: Mapping[str, Need]) -> int:
    """Return the bytes that statistics need together."""
    return sum(int(need.columns.sum()) + need.numbers + need.rest for need in needs.values())


def has_gaps(rows: LookedUp) -> bool:
    """Return whether a numeric value is missing."""
    # The least of numbers is a number: no second array to look through.
    return any(np.isnan(x.min(initial=np.inf)) for x in rows.numeric)


class Budget:
    """Refuses to allocate beyond the memory limit, naming the columns that need the most.

    Parameters
    ----------
    limit
        Bytes; None for half of the machine's memory, and for no limit where all that is wanted
        stays small.
    copies
        Sets of statistics, one for each thread and one of the result.
    wanted
        What is counted.
    """

    def __init__(self, limit: int | None, copies: int, wanted: Wanted) -> None:
        limited = any(REGISTRY[name].limited for name in wanted)
        self.limit = default_limit() if limit is None and limited else limit
        self.over = "half of this machine's memory" if limit is None else "memory_limit"
        self.copies, self.wanted = copies, wanted
        self.gaps = False
        self.missing: NDArray[np.bool_] | None = None

    def check(self, encoder: Encoder, shape: Shape, rows: LookedUp) -> None:
        """Refuse what adding rows needs."""
        if self.limit is None:
            return
        self.missing = rows.missing if self.missing is None else self.missing | rows.missing
        known = np.array([len(book) for book in encoder.books], dtype=np.int64)
        columns = len(encoder.features)
        n = math.inf if encoder.cells is None or not columns else encoder.cells / columns
        room = Room(shape, known + self.missing, self.copies, n)
        needs = needs_of(self.wanted, room)
        if total_of(needs) > self.limit:
            # Missing numbers are looked for only where they would need too much.
            self.gaps = self.gaps or has_gaps(rows)
            needs = needs_of(self.wanted, room._replace(gaps=self.gaps))
        if (need := total_of(needs)) <= self.limit:
            return
        most = {n: max(int(x.columns.max(initial=0)), x.numbers) for n, x in needs.items() if n}
        # Of equals the last, which counts more columns at once.
        name = max(reversed(most), key=lambda name: most[name])
        kind, each = REGISTRY[name], sum(part.columns for part in needs.values())
        column: tuple[str, int] = ("", 0)
        if len(shape.sizes):
            j = int(np.argmax(each))
            column = encoder.books[j].name, int(known[j])
        what = kind.most.format(
            name=column[0], values=column[1], numbers=shape.n_numeric, bytes=needs[name].numbers
        )
        raise MemoryLimitError(
            f"{kind.work} needs {need:,} bytes, over {self.over}={self.limit:,}: {what} the most; "
            "leave it out with `columns`, group its values, or raise memory_limit"
        )

    def check_held(self, parts: GrowingStatistics) -> None:
        """Refuse what has grown too large: how many cells occur only rows tell."""
        self.gaps |= any(part.gaps for part in parts.held.values())
        if self.limit is None:
            return
        found = [part.unforeseen() for part in parts.held.values()]
        if (need := self.copies * sum(n for n, _ in found)) > self.limit:
            raise MemoryLimitError(
                f"counting cells needs {need:,} bytes and more, over {self.over}={self.limit:,}: "
                f"{max(found)[1]}; leave some out with `columns`, group their values, or raise "
                "memory_limit"
            )


def default_limit() -> int:
    """Return the bytes that counts of pairs may take unless given: half of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not a Unix
        return 4 << 30


def capacity(encoder: Encoder) -> Shape:
    """Return room for what the codebooks know, doubling where that is much: growth is rare then."""
    sizes = np.array([len(book) for book in encoder.books], dtype=np.int64)
    open_ = np.array([not book.fixed for book in encoder.books], dtype=np.bool_)
    n_classes = 1 if encoder.target is None else len(encoder.target)
    sizes = np.where(open_ & (sizes > FEW_VALUES), roomy(sizes), sizes)
    return Shape(sizes, len(encoder.features) - len(sizes), n_classes)


def roomy(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the next power of two of each size, at least 4."""
    return np.maximum(4, 2 ** np.ceil(np.log2(np.maximum(sizes, 1)))).astype(np.int64)
