"""Memory for what is read and decoded, used again as soon as nobody refers to it any more."""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Free memory by its size: fresh memory would cost three times the decoding, a page fault every
# 4 KiB.
_FREE: dict[int, list[Bytes]] = defaultdict(list)
# The size of what is lent, by its identity.
_LENT: dict[int, int] = {}
# So many bytes are kept at most; more only while as much is lent, since threads will lend it again.
MOST_FREE = 1 << 27
# From this size on memory comes from the system and goes back there: allocators would keep it.
LARGE = 1 << 20


def lend(size: int) -> Bytes:
    """Return an array of bytes, whatever they hold; its memory is used again when it is free."""
    # What is asked for varies: by steps of a quarter the same memory will do.
    step = 1 << max(max(size - 1, 0).bit_length() - 3, 9)
    room = max(-(-size // step), 1) * step
    held = _found(room)
    if held is None:
        # What is larger stays: others will ask for it again.
        _make_way(room, [size for size in [*_FREE] if size < room])
        held = np.frombuffer(_pages(room), np.uint8) if room >= LARGE else np.empty(room, np.uint8)
    # parts of what a memoryview gave keep it alive, those of an array only its memory
    lent = np.frombuffer(held.data, np.uint8, size)
    _LENT[id(held)] = held.size
    weakref.finalize(lent, _give_back, held).atexit = False
    return lent


def _pages(size: int) -> mmap.mmap:
    """Return fresh memory of the system, of this process alone."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # not a Unix
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _found(room: int) -> Bytes | None:
    """Return the smallest free memory of this size, or up to twice as much."""
    for size in sorted(size for size in [*_FREE] if room <= size <= 2 * room):
        if (held := _taken(size)) is not None:
            return held
    return None


def _make_way(room: int, sizes: list[int]) -> None:
    """Let go of so much free memory of some sizes, the largest first."""
    for size in sorted(sizes, reverse=True):
        while room > 0 and _taken(size) is not None:
            room -= size


def _taken(size: int) -> Bytes | None:
    try:
        return _FREE[size].pop()
    except IndexError:  # or another thread took it
        return None


def _give_back(held: Bytes) -> None:
    _LENT.pop(id(held), None)
    _FREE[held.size].append(held)
    kept = sum(size * len(free) for size, free in [*_FREE.items()])
    _make_way(kept - max(MOST_FREE, sum([*_LENT.values()])), [*_FREE])
