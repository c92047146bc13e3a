"""How much memory a call adds to a process: of its own, files that are mapped excluded."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

STATUS = Path("/proc/self/status")

CHILD = """
import gc, os, sys, warnings
import fastbayes as fb, numpy as np, pyarrow as pa, pyarrow.parquet as pq
warnings.simplefilter("ignore")

tiny = {tiny!r}

def call(data, memory_limit):
    {call}

# The same call of few rows first: modules are loaded and kernels compiled.
given = os.environ.get("FASTBAYES_KERNELS")
os.environ["FASTBAYES_KERNELS"] = given or "always"
call(tiny, None)
if given is None:
    del os.environ["FASTBAYES_KERNELS"]
gc.collect()
print("ready", flush=True)
sys.stdin.readline()
try:
    result = call({data!r}, {limit!r})
    print("done", flush=True)
except fb.MemoryLimitError as error:
    print("refused:", error, flush=True)
sys.stdin.readline()
"""


class Growth(NamedTuple):
    """What a call added to its process at most, in bytes, and how it ended."""

    peak: int
    end: str


def growth_of(call: str, data: Path, tiny: Path, limit: int | None) -> Growth:
    """Return the growth by a call in a process of its own.

    Parameters
    ----------
    call
        What to do, with `data`, `tiny` and `memory_limit`.
    data, tiny
        The rows, and few like them for the first call, which does not count.
    limit
        The memory limit.
    """
    code = CHILD.format(call=call, tiny=str(tiny), data=str(data), limit=limit)
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            first = peak = own_bytes(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            while not select.select([process.stdout], [], [], 0)[0]:
                peak = max(peak, own_bytes(process.pid))
                time.sleep(0.002)
            return Growth(peak - first, process.stdout.readline().strip())
        finally:
            process.kill()


def own_bytes(pid: int) -> int:
    """Return the bytes that belong to a process alone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(
        1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))
    )


def measurable() -> bool:
    """Return whether the system tells how much memory a process has of its own."""
    return STATUS.exists() and "RssAnon:" in STATUS.read_text()
