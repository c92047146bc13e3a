"""A call of the file system fails, or the disk is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stress.jobs import DRAWN, JOBS, Process, check_next, check_whole, finished, old
from stress.traced import STRACE, reads, traced

ABOUT = (
    "the n-th open to read or write, mkdir, rename or fsync fails, files may grow to so many bytes "
    "only, the disk is full, the n-th read of the input fails or ends the file (by strace, where "
    "that is installed): a line that says so, the old output or the new one whole, nothing else "
    "left"
)
SECONDS, BATCH = 300.0, 100
ERRORS = ["ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES"]


def case(rng: np.random.Generator, folder: Path) -> str:
    """Have one command meet one failure."""
    name = str(rng.choice([job for job in DRAWN if JOBS[job][1]]))
    kind = str(rng.choice(["call", "call", "call", "size", "disk", *(["read"] if STRACE else [])]))
    if kind == "disk" and os.geteuid():
        kind = "size"  # who is not root cannot mount a small disk
    kernels = "always" if kind == "read" and rng.integers(3) == 0 else "never"
    n_reads = reads(name, kernels) if kind == "read" else 0
    whole, calls, _ = finished(name, kernels)
    size = max(map(len, whole.values()))
    plan: dict[str, Any] = {}
    if kind == "call":
        plan = {"at": int(rng.integers(1, len(calls) + 1)), "do": str(rng.choice(ERRORS))}
    elif kind == "size":
        plan = {"size": int(rng.integers(0, size + size // 4 + 2))}
    # a page for each file and directory, and not enough for what is to be written
    pages = len(whole) + 2 + int(rng.integers(0, max(2, sum(map(len, whole.values())) // 4096)))
    with disk(folder, pages) if kind == "disk" else place(folder):
        before = old(name, folder, rng)
        if kind == "read":
            code, said, _ = traced(name, folder, kernels, *failing(n_reads, rng))
        else:
            process = Process(name, folder, plan)
            code, said = process.wait(), process.said
        found = check_whole(name, folder, before, unfinished=False, kernels=kernels)
        hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        assert not hidden, hidden
        if code == 0:
            assert found == "new" or before == whole, said
        else:
            assert code == 1, (code, said)
            assert not spared(calls, plan), f"a checkpoint that fails ended the count: {said}"
            *_, last = said.splitlines()
            assert last.startswith("Error: "), said
            assert "Traceback" not in said, said
    if kind != "disk":
        check_next(name, folder, kernels)
    return f"{kind}: {'done' if code == 0 else 'an error'}, {found}"


def failing(n_reads: int, rng: np.random.Generator) -> tuple[str, str]:
    """Return what happens at which read: it fails, or finds the end of the file."""
    n = int((n_reads + 1) ** rng.random())  # a thread that reads has few of them
    what, more = str(rng.choice(["error=EIO", "retval=0"])), str(rng.choice(["", "+"]))
    return what, f"when={n}{more}"


def spared(calls: tuple[str, ...], plan: dict[str, Any]) -> bool:
    """Return whether the call that fails is one of those that write a checkpoint."""
    name, _, path = calls[plan["at"] - 1].partition(" ") if "at" in plan else ("", "", "")
    return path.startswith("kept/.") and name in ("open", "fsync", "os.rename")


@contextmanager
def place(folder: Path) -> Iterator[None]:
    yield


@contextmanager
def disk(folder: Path, pages: int) -> Iterator[None]:
    """Mount a file system of so many pages at a directory."""
    size = f"size={4096 * pages}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
