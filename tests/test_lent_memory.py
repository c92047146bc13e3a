"""Laws of memory that is used again: it is the same, of the right size, and not kept for ever."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from fastbayes.data import lent_memory
from fastbayes.data.lent_memory import lend


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with nothing that is free or lent."""
    monkeypatch.setattr(lent_memory, "_FREE", defaultdict(list))
    monkeypatch.setattr(lent_memory, "_LENT", {})


def _free() -> int:
    return sum(size * len(held) for size, held in lent_memory._FREE.items())


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, 43_018 << 10])
def test_memory_has_the_size_asked_for_and_at_most_a_quarter_more(size: int) -> None:
    held = lend(size)
    assert (held.dtype, held.size) == (np.uint8, size)
    held[...] = 1
    assert sum(lent_memory._LENT.values()) <= max(size * 5 / 4, 512)


def test_memory_that_nobody_refers_to_is_lent_again() -> None:
    held = lend(1 << 21)
    address = held.__array_interface__["data"][0]
    part = held[5:]
    del held
    again = lend(1 << 21)
    assert again.__array_interface__["data"][0] != address  # a view still holds it
    del part, again
    some = lend(1 << 21), lend(1 << 21)
    assert address in {each.__array_interface__["data"][0] for each in some}


def test_as_much_is_kept_as_is_lent_and_little_of_it_when_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 1 << 20
    monkeypatch.setattr(lent_memory, "MOST_FREE", 2 * size)
    held = [lend(size) for _ in range(8)]
    del held[4:]
    assert _free() == 4 * size  # four threads work on, and those that ended may begin again
    held.clear()
    assert _free() == 2 * size


def test_memory_that_is_too_small_makes_way() -> None:
    small = [lend(1 << 20) for _ in range(4)]
    small.clear()
    large = lend(1 << 23)
    assert _free() == 0
    assert large.size == 1 << 23


def test_memory_that_is_too_large_stays() -> None:
    large = lend(1 << 23)
    address = large.__array_interface__["data"][0]
    del large
    small = lend(1 << 10)
    assert small.size == 1 << 10
    assert lend(1 << 23).__array_interface__["data"][0] == address
