"""What a process may use in a container, by files like those of the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastbayes.core.machine import usable_memory, usable_processors

MIB = 1 << 20
LIMITED_2 = {
    "proc/self/cgroup": "0::/pods/one\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/pods/memory.max": f"{64 * MIB}\n",
    "sys/fs/cgroup/pods/one/memory.max": f"{96 * MIB}\n",
    "sys/fs/cgroup/pods/two/memory.max": f"{1 * MIB}\n",
}
LIMITED_1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/c\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{64 * MIB}\n",
    "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
}
# A container that sees its own group alone, though it is told the path from outside.
INSIDE = {
    "proc/self/cgroup": "4:memory:/docker/0123\n0::/../outside\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{64 * MIB}\n",
}


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("files", [LIMITED_2, LIMITED_1, INSIDE])
def test_memory__is_the_least_limit_of_the_groups(tmp_path: Path, files: dict[str, str]) -> None:
    assert usable_memory(system(tmp_path, files)) == 64 * MIB


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the system does not say")
@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/\n"},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{1 << 60}\n"},
    ],
)
def test_memory__is_that_of_the_machine_without_a_limit(
    tmp_path: Path, files: dict[str, str]
) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert usable_memory(system(tmp_path, files)) == machine


@pytest.mark.parametrize(
    ("quotas", "most"),
    [
        (["max 100000"], 1 << 30),
        (["50000 100000"], 1),
        (["100000 100000"], 1),
        (["150000 100000"], 2),
        (["max 100000", "100000 100000", "400000 100000"], 1),
        (["100000000 100000"], 1000),
    ],
)
def test_processors__are_those_of_the_least_quota(
    tmp_path: Path, quotas: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    path = "".join(f"/{i}" for i in range(1, len(quotas)))
    files = {"proc/self/cgroup": f"0::{path or '/'}\n"}
    for i, quota in enumerate(quotas):
        files["/".join(["sys/fs/cgroup", *map(str, range(1, i + 1)), "cpu.max"])] = f"{quota}\n"
    assert usable_processors(system(tmp_path, files)) == min(8, most)


@pytest.mark.parametrize(("quota", "most"), [("-1", 8), ("50000", 1), ("250000", 3)])
def test_processors__by_a_quota_of_version_1(
    tmp_path: Path, quota: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a/b\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": f"{quota}\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
    }
    assert usable_processors(system(tmp_path, files)) == most


def test_files_that_say_nothing_are_no_limits(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "nothing\n\n0::/a\n", "sys/fs/cgroup/a/memory.max": ""}
    files |= {"sys/fs/cgroup/a/cpu.max": "\n"}
    root = system(tmp_path, files)
    assert usable_memory(root) == usable_memory(tmp_path / "none")
    assert usable_processors(root) == usable_processors(tmp_path / "none")


def test_processors__are_those_it_may_run_on_without_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_processors(tmp_path) == 2
