"""Cases run in child processes, a few at once, each category for an equal share of the time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CATEGORIES = tuple(
    path.stem for path in sorted((ROOT / "stress" / "cases").glob("*.py")) if path.stem[0] != "_"
)
BATCH = 20
TURN = 30  # seconds of one process, about
LONGEST = 4000  # characters of what is said of a failure
TAIL = 30  # lines of what a process said that died


@dataclass
class Failure:
    """A case that broke a promise, and how to see it again."""

    command: str
    what: str


@dataclass
class Category:
    """What came of the cases of one category so far."""

    name: str
    first: int
    module: Any
    next: int = 0
    seconds: float = 0.0
    held: Counter[str] = field(default_factory=Counter)
    failed: int = 0


class Run:
    """Run cases until the time or the cases are used up.

    Parameters
    ----------
    categories
        Their names.
    seed
        Of all cases.
    seconds
        How long to begin cases; what has begun is finished.
    first, count
        The first case of each category, and how many at most; None is no limit.
    workers
        Child processes at once.
    root
        The directory whose `fastbayes` and `stress` are run.
    stop
        Whether the first failure ends it all.
    kernels
        "always" compiled or "never"; by default what each case draws.
    """

    def __init__(
        self,
        categories: list[str],
        seed: int,
        seconds: float,
        first: int = 0,
        count: int | None = None,
        workers: int = 2,
        root: Path = ROOT,
        stop: bool = False,
        kernels: str | None = None,
    ) -> None:
        self.categories = [
            Category(name, first, import_module(f"stress.cases.{name}"), first)
            for name in categories
        ]
        self.seed, self.count, self.workers = seed, count, workers
        self.seconds, self.root, self.stop = seconds, root, stop
        self.environment = {} if kernels is None else {"STRESS_KERNELS": kernels}
        self.failures: list[Failure] = []
        self._lock = threading.Lock()

    def go(self) -> None:
        """Run, in threads that each wait for a child process."""
        self._end = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self._work) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def table(self) -> str:
        """Return what was tried how often, as a table in Markdown."""
        lines = [
            "| category | cases | failed | minutes | what came of them |",
            "|---|--:|--:|--:|---|",
        ]
        for category in sorted(self.categories, key=lambda c: c.name):
            held = ", ".join(f"{n:,} {what}" for what, n in category.held.most_common())
            n = category.held.total() + category.failed
            minutes = category.seconds / 60
            lines.append(
                f"| {category.name} | {n:,} | {category.failed} | {minutes:.1f} | {held} |"
            )
        return "\n".join(lines) + "\n"

    def _work(self) -> None:
        """Run batch after batch, each of the category that had least time."""
        while True:
            with self._lock:
                open_ = [c for c in self.categories if self._left(c)]
                late = time.monotonic() >= self._end
                if not open_ or (late and self.count is None) or (self.stop and self.failures):
                    return
                category = min(open_, key=lambda c: c.seconds)
                first, size = category.next, self._left(category)
                category.next += size
                category.seconds += 1e-3  # so that the other worker takes another one
            begun = time.monotonic()
            done = self._batch(category, first, size)
            with self._lock:
                category.seconds += time.monotonic() - begun
                if done < first + size and category.next == first + size:
                    category.next = done  # the process died: the cases behind go to another

    def _left(self, category: Category) -> int:
        """Return how many cases of a category come next."""
        size: int = getattr(category.module, "BATCH", BATCH)
        if self.count is None:
            return size
        return min(size, category.first + self.count - category.next)

    def _batch(self, category: Category, first: int, count: int) -> int:
        """Run cases in a process of their own; return the number of the next one."""
        command = [sys.executable, "-m", "stress.child", category.name]
        command += map(str, (self.seed, first, count, TURN))
        path = os.pathsep.join([str(self.root), str(self.root / "tests")])
        last, ended = first, False
        with (
            tempfile.TemporaryFile("w+", errors="replace") as said,
            tempfile.TemporaryDirectory(prefix="stress-", ignore_cleanup_errors=True) as folder,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": folder, **self.environment},
                start_new_session=True,
            ) as child,
        ):
            assert child.stdout is not None
            for line in child.stdout:
                told = json.loads(line)
                last, ended = told["case"], len(told) > 1
                with self._lock:
                    if "held" in told:
                        category.held[told["held"]] += 1
                    elif ended:
                        self._failed(category, last, told["failed"])
                if ended and time.monotonic() >= self._end and self.count is None:
                    break
            with_group(child)
            if not ended:
                said.seek(0)
                why = "".join(said.readlines()[-TAIL:])
                with self._lock:
                    self._died(category, last, child.wait(), why)
        return last + 1

    def _died(self, category: Category, n: int, code: int, why: str) -> None:
        """Note a process that ended within a case."""
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        self._failed(category, n, f"the process ended by {how}\n{why}")

    def _failed(self, category: Category, n: int, what: str) -> None:
        category.failed += 1
        command = f"scripts/stress --only {category.name} --seed {self.seed} --case {n}"
        self.failures.append(Failure(command, what[-LONGEST:]))
        print(f"failed: {command}", file=sys.stderr, flush=True)


def with_group(child: subprocess.Popen[str]) -> None:
    """Let a child end by itself if it is about to, and end what it started in any case."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(1)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
