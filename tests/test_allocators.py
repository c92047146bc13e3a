"""Memory that allocators keep for later goes back to the system under a limit."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from growth import measurable

import fastbayes as fb
from fastbayes.core import allocators
from fastbayes.core.allocators import GROWTH, releasing

# Four threads make and let go of many arrays, some after others, and keep a few bytes of each.
GARBAGE = """
import sys
import numpy as np
from fastbayes.core.allocators import releasing
from fastbayes.core.threads import in_order

def own():
    lines = open("/proc/self/status").read().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

def made(i):
    some = [np.full(5_000 + 10 * i, i, np.int64) for _ in range(600)]
    return [array[:100].copy() for array in some]

before, found = own(), in_order(made, range(64), 4)
kept = list(releasing(found) if sys.argv[1] == "releasing" else found)
print(own() - before)
"""


@pytest.mark.skipif(not measurable(), reason="the system does not tell")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_what_threads_let_go_of_goes_back() -> None:
    grown = {
        how: int(subprocess.check_output([sys.executable, "-c", GARBAGE, how]))
        for how in ("keeping", "releasing")
    }
    assert grown["releasing"] < grown["keeping"] / 2


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by 1 at each release, which does nothing."""
    times: list[int] = []
    monkeypatch.setattr(allocators, "release", lambda: times.append(1))
    return times


def test_nothing_is_released_but_in_the_end_while_the_process_does_not_grow(
    released: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocators, "_resident", lambda: 1 << 30)
    assert list(releasing(range(5))) == [0, 1, 2, 3, 4]
    assert len(released) == 1


def test_what_grows_is_released(released: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, GROWTH, GROWTH + 1, 0, GROWTH, GROWTH + 1, GROWTH + 1])
    monkeypatch.setattr(allocators, "_resident", lambda: next(sizes))
    before = [len(released) for _ in releasing(range(4))]
    assert before == [0, 0, 1, 1]
    assert len(released) == 3


def test_without_glibc_and_proc_only_pyarrow_gives_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(allocators, "_STATM", tmp_path / "none")
    monkeypatch.setattr(allocators, "_malloc_trim", lambda: None)
    assert list(releasing("abc")) == ["a", "b", "c"]


def test_a_limit_decides(released: list[int]) -> None:
    table = {"a": np.arange(100) % 3, "y": np.arange(100) % 2}
    fb.count(table, "y")
    assert not released
    fb.count(table, "y", memory_limit=1 << 30)
    assert released
