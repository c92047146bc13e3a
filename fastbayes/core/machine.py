"""What this process may use of the machine: memory and processors, fewer in a container."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def usable_memory(root: Path = _ROOT) -> float:
    """Return the bytes of memory that this process may use; infinity where no system says.

    Those of the machine, or the least limit of the control groups that it is in.
    """
    try:
        memory = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        memory = math.inf
    return min(memory, _limit(root))


def usable_processors(root: Path = _ROOT) -> int:
    """Return how many processors this process may use.

    Those that it may run on, or of whose time the control groups that it is in give it the least.
    """
    # os.process_cpu_count is new in Python 3.13, and sees no quotas either.
    some = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(min(some or 1, _quota(root))))


# Every job asks, and a process hardly ever changes its groups.
@functools.cache
def _limit(root: Path) -> float:
    limits = [*_said("", root, "memory.max"), *_said("memory", root, "memory.limit_in_bytes")]
    return min([math.inf, *(float(limit) for (limit,) in limits)])


@functools.cache
def _quota(root: Path) -> float:
    quotas = [
        *_said("", root, "cpu.max"),
        *_said("cpu", root, "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ]
    return min([math.inf, *(math.ceil(int(quota) / int(period)) for quota, period in quotas)])


def _said(controller: str, root: Path, *names: str) -> Iterator[list[str]]:
    """Yield the numbers in files of each control group that the process is in, and of those above.

    Where there is a limit. Those of version 2 have no `controller`. In a container the groups above
    it are not to be seen.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(errors="replace").splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            if controller not in controllers.split(","):
                continue
            group = (root / "sys/fs/cgroup" / controller).joinpath(*path.strip("/").split("/"))
            for folder in (group, *group.parents):
                with suppress(OSError):
                    words = " ".join((folder / name).read_text() for name in names).split()
                    if words and all(word.isdecimal() for word in words):  # not "max", nor -1
                        yield words


def _forget() -> None:
    _limit.cache_clear()
    _quota.cache_clear()


if hasattr(os, "register_at_fork"):  # a worker may be put into another group
    os.register_at_fork(after_in_child=_forget)
