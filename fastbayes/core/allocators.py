"""Memory that nobody uses, but allocators keep for later: given back to the system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")

# Looking through all that was freed takes milliseconds: once the process has grown by so much.
GROWTH = 1 << 24
_STATM = Path("/proc/self/statm")


def release() -> None:
    """Give back what pyarrow's allocator and, in glibc, that of numpy and Python hold for later."""
    pa.default_memory_pool().release_unused()
    if (trim := _malloc_trim()) is not None:
        trim(0)


def releasing(results: Iterable[T]) -> Generator[T, None, None]:
    """Yield results; whenever the process has grown by them, and in the end, give back memory.

    Each thread of glibc has a heap of its own, and keeps of it what it freed: what several threads
    made some after others could take several times what it ever took at once.
    """
    before = _resident()
    for result in results:
        yield result
        if _resident() > before + GROWTH:
            release()
            before = _resident()
    release()


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function; other systems have none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def _resident() -> int:
    """Return the bytes of the process that are in memory; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
