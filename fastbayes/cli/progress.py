"""Progress of a job: a bar on a terminal, a line now and then without one."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from fastbayes.cli.show import on_terminal, say
from fastbayes.data.pipes import Pipe
from fastbayes.data.source import open_source

HEARTBEAT = 10.0  # seconds between two lines without a terminal


class JobProgress:
    """Counts what is done of a stage: of its rows, or of another unit if it says so.

    A stage begins at 0 and ends with the next one; rows beyond its total are another scan.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.name, self.rows = what, "", total
        self.total, self.unit, self.scans = total, "rows", 1
        self.n, self.done, self.start = 0, 0, time.perf_counter()
        self._counting = threading.Lock()

    def __call__(self, done: int) -> None:
        """Add what was done since the last call."""
        with self._counting:
            if self.total and self.n + done > self.total and self.n:  # the rows are read again
                self.scans += 1
                self.begun()
            self.n += done
            self.done += done * (self.unit == "rows")
            self.shown(done)

    def known(self, rows: int | None) -> None:
        """Take in how many rows there are, which is known late; any thread may say it."""
        with self._counting:
            self.rows = rows
            if not rows or self.total is not None:  # or of so many others a stage is
                return
            if (n := self.n) > rows:  # they were read again, at one pace
                self.scans += (n - 1) // rows
                self.n = (n - 1) % rows + 1
                now = time.perf_counter()
                self.start = now - (now - self.start) * self.n / n
            self.total = rows

    def stage(self, name: str, total: int | None = None, unit: str = "rows") -> None:
        """Begin a stage, by default one of all rows."""
        self.name, self.unit, self.scans = name, unit, 1
        self.total = self.rows if total is None else total
        self.begun()

    def begun(self) -> None:
        """Begin at 0."""
        self.n, self.start = 0, time.perf_counter()

    def shown(self, done: int) -> None:
        """Show that so much more is done."""

    @property
    def title(self) -> str:
        """What is being done."""
        stage = f": {self.name}" if self.name else ""
        return f"{self.what}{stage}" + (f", scan {self.scans}" if self.scans > 1 else "")

    def __str__(self) -> str:
        seconds = max(time.perf_counter() - self.start, 1e-9)
        if not self.n:  # no row is read yet, or none at all: a model is made of counts
            return f"{self.title}: {seconds:,.0f} s"
        of = f" of {self.total:,} {self.unit}, {self.n / self.total:.0%}" if self.total else ""
        return f"{self.title}: {self.n:,}{of or f' {self.unit}'}, {self.n / seconds:,.0f} a second"


class Bar(JobProgress):
    """JobProgress that a bar shows."""

    def __init__(self, what: str, total: int | None, shown: Any) -> None:
        super().__init__(what, total)
        self.tqdm = shown

    def begun(self) -> None:
        """Begin at 0."""
        super().begun()
        self.tqdm.unit = f" {self.unit}"
        self.tqdm.reset(self.total)
        self.tqdm.set_description(self.title)

    def shown(self, done: int) -> None:
        """Show that so much more is done."""
        self.tqdm.update(done)


@contextmanager
def bar(what: str, data: Any) -> Iterator[JobProgress | None]:
    """Show what is done of a source, or so many rows; nothing if the command is to be quiet."""
    given = click.get_current_context().find_root().params
    if given.get("quiet"):
        yield None
        return
    start = time.perf_counter()
    with _on_terminal(what, data) if on_terminal(sys.stderr) else _heartbeat(what, data) as steps:
        yield steps
    if given.get("verbose") and steps.done:
        seconds = time.perf_counter() - start
        rate = steps.done / max(seconds, 1e-9)
        say(f"note: {what}: read {steps.done:,} rows in {seconds:.3g} s, {rate:,.0f} rows/s")


def _rows_of(data: Any) -> int | None:
    if isinstance(data, Pipe):
        return None
    return data if isinstance(data, int) else open_source(data).n_rows


@contextmanager
def _on_terminal(what: str, data: Any) -> Iterator[JobProgress]:
    from tqdm import tqdm

    rows = _rows_of(data)
    known = os.get_terminal_size(sys.stderr.fileno()).columns > 0  # not so under some containers
    with tqdm(
        desc=what,
        total=rows,
        unit=" rows",
        unit_scale=True,
        ncols=None if known else 80,
        nrows=None if known else 24,
        dynamic_ncols=known,
        file=sys.stderr,
    ) as shown:
        yield Bar(what, rows, shown)


@contextmanager
def _heartbeat(what: str, data: Any) -> Iterator[JobProgress]:
    """Say every few seconds how far it is, also while no row is read."""
    steps, over = JobProgress(what, data if isinstance(data, int) else None), threading.Event()
    asked: list[bool] = []  # short jobs need no total, which takes opening every file

    def beat() -> None:
        while not over.wait(HEARTBEAT):
            if steps.rows is None and not asked:
                asked.append(True)
                with suppress(Exception):  # the job itself says what is wrong with the data
                    steps.known(_rows_of(data))
            say(str(steps))

    thread = threading.Thread(target=beat, name="fastbayes-heartbeat", daemon=True)
    thread.start()
    try:
        yield steps
    finally:
        over.set()
        thread.join()
