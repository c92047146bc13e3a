"""What this process may use of the machine: memory and processors, fewer in a container."""

from __future__ import annotations

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
    limits = [*_said("", "memory.max", root), *_said("memory", "memory.limit_in_bytes", root)]
    return min([memory, *(float(limit) for limit, *_ in limits if limit.isdecimal())])


def usable_processors(root: Path = _ROOT) -> int:
    """Return how many processors this process may use.

    Those that it may run on, or of whose time the control groups that it is in give it the least.
    """
    # os.process_cpu_count is new in Python 3.13, and sees no quotas either.
    some = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shares = [
        math.ceil(int(quota) / int(period))
        for quota, period in _said("", "cpu.max", root)
        if quota.isdecimal()
    ]
    return max(1, min([some or 1, *shares]))


def _said(controller: str, name: str, root: Path) -> Iterator[list[str]]:
    """Yield the words of a file of each control group that the process is in, and of those above.

    Those of version 2 have no `controller`. In a container the groups above it are not to be seen.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller not in controllers.split(","):
                continue
            group = (root / "sys/fs/cgroup" / controller).joinpath(*path.strip("/").split("/"))
            for folder in (group, *group.parents):
                with suppress(OSError):
                    yield (folder / name).read_text().split()
