"""The work done by a long count, kept so that a stopped one goes on to the same bits."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from fastbayes import files
from fastbayes.errors import DataError, FileFormatError
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")
SECONDS = 20.0


class Checkpoint:
    """A file with the statistics of the first segments of a scan.

    Parameters
    ----------
    directory
        Where the file is; made if it is not there.
    job
        What is counted and how: a checkpoint of another job is refused, never mixed in.
    seconds
        Least time between two writes.
    """

    def __init__(
        self, directory: str | os.PathLike[str], job: Any, seconds: float = SECONDS
    ) -> None:
        self.path = Path(directory) / "checkpoint.fbs"
        self.job = hashlib.sha256(repr(job).encode()).hexdigest()
        self.seconds = seconds
        self._last = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{directory}: cannot be made ({error}); name another place") from error

    def load(self) -> tuple[int, Statistics] | None:
        """Return how many segments were done and their statistics; None where there is nothing.

        Raises
        ------
        DataError
            When the checkpoint is of another job.
        """
        if not self.path.exists():
            return None
        header, arrays = files.read(self.path)
        if header.get("kind") != "checkpoint":
            raise FileFormatError(f"{self.path}: is no checkpoint; name another directory")
        if header["job"] != self.job:
            raise DataError(
                f"{self.path}: is of another count (other data, target or options); name another "
                "directory or remove it"
            )
        done = int(header["done"])
        logger.info("%s: going on after %d segments", self.path, done)
        return done, Statistics.from_state(header["statistics"], arrays, str(self.path))

    def due(self) -> bool:
        """Return whether it is time to write again."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, done: int, stats: Statistics) -> None:
        """Replace the checkpoint; a stop in the middle leaves the old one."""
        header, arrays = stats.state()
        files.write(
            self.path,
            {"kind": "checkpoint", "job": self.job, "done": done, "statistics": header},
            arrays,
            force=True,
        )
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the checkpoint of a finished count."""
        self.path.unlink(missing_ok=True)
