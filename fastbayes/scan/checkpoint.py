"""The work done by a long count, kept so that a stopped one goes on to the same bits."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from fastbayes.core import files
from fastbayes.core.errors import DataError, FileFormatError, warn
from fastbayes.statistics.bundle import Statistics

# Least time between two writes.
SECONDS = 20.0

logger = logging.getLogger("fastbayes")


class Progressed(NamedTuple):
    """What a stopped scan had done."""

    segments: int
    rows: int
    statistics: Statistics


class Checkpoint:
    """A file with the statistics of the first segments of a scan.

    Parameters
    ----------
    directory
        Where the file is; made if it is not there.
    data
        What is counted, as values that change when the data do.
    job
        How it is counted, as values. A checkpoint of other data or another job is refused, never
        mixed in.
    """

    def __init__(self, directory: str | os.PathLike[str], data: Any, job: Any) -> None:
        self.path = Path(directory) / "checkpoint.fbs"
        self._identity = {"data": _digest(data), "job": _digest(job)}
        self._last = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{os.fspath(directory)}: cannot be made a directory ({error.strerror}); name "
                "another one"
            ) from error
        files.check_target(self.path, force=True)
        files.remove_abandoned(self.path.parent)

    def load(self) -> Progressed | None:
        """Return what was done before; None where there is nothing.

        Raises
        ------
        DataError
            When the checkpoint is damaged, of other data, or of another job.
        """
        if not self.path.exists():
            return None
        header, arrays = files.read(self.path)
        if header.get("kind") != "checkpoint":
            raise FileFormatError(f"{self.path}: is no checkpoint; name another directory")
        for what, why in (
            ("data", "the data have changed since, or are others"),
            ("job", "it is of a count with other columns or options, or by another version"),
        ):
            if header[what] != self._identity[what]:
                raise DataError(
                    f"{self.path}: {why}; name another directory, or remove it to begin anew"
                )
        stats = Statistics.from_state(header["statistics"], arrays, str(self.path))
        kept = Progressed(int(header["segments"]), int(header["rows"]), stats)
        logger.info("%s: going on after %s rows", self.path, f"{kept.rows:,}")
        return kept

    def due(self) -> bool:
        """Return whether it is time to write again."""
        return time.monotonic() - self._last >= SECONDS

    def save(self, kept: Progressed) -> None:
        """Replace the checkpoint; a stop in the middle leaves the old one.

        One that cannot be written is warned of, and the count goes on.
        """
        state, arrays = kept.statistics.state()
        header = {
            "kind": "checkpoint",
            **self._identity,
            "segments": kept.segments,
            "rows": kept.rows,
            "statistics": state,
        }
        try:
            files.write(self.path, header, arrays, force=True)
        except (OSError, DataError) as error:
            warn(f"the count goes on without a checkpoint of its last rows: {error}")
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the checkpoint of a finished count; warn where that fails."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            warn(f"the count is complete, its checkpoint cannot be removed: {error}")


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
