"""The work done by a long count, kept so that a stopped one goes on to the same bits."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fastbayes.core import files
from fastbayes.core.errors import DataError, FileFormatError, warn
from fastbayes.statistics.bundle import Statistics

# Least time between two writes, unless another is given.
SECONDS = 20.0

logger = logging.getLogger("fastbayes")


class Progressed(NamedTuple):
    """What a scan had counted: all rows, or those of its first segments."""

    segments: int
    rows: int
    statistics: Statistics
    complete: bool = False


class CutsProgressed(NamedTuple):
    """What scans for cut points had learned.

    cuts      the cut points of columns whose scan is done
    columns   those of the scan that was stopped
    segments  of that scan
    rows      of these
    arrays    what the learner of cut points says of them
    classes   the classes that it numbers; None without classes
    """

    cuts: dict[str, list[float]]
    columns: list[str]
    segments: int
    rows: int
    arrays: dict[str, Any]
    classes: pa.Array | None


class Kept:
    """One file of a checkpoint; a subclass says what is in it.

    Parameters
    ----------
    path
        Where the file is.
    identity
        Digests of the data and of the job. What is kept of other data or another job is refused,
        never mixed in, unless that work is complete: then there is nothing to lose.
    seconds
        Least time between two writes.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], seconds: float | None) -> None:
        self.path, self._identity, self._seconds = path, identity, seconds
        self._last = time.monotonic()

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return what was written for this job; None where there is nothing.

        Raises DataError when it is damaged, of other data, or of another job.
        """
        if not self.path.exists():
            return None
        try:
            header, arrays = files.read(self.path)
        except FileFormatError as error:
            raise FileFormatError(f"{error}; or remove the checkpoint to begin anew") from error
        if header.get("kind") != "checkpoint":
            raise FileFormatError(f"{self.path}: is no checkpoint; name another directory")
        for what, why in (
            ("data", "the data have changed since, or are others"),
            ("job", "it is of a count with other columns or options, or by another version"),
        ):
            if what in self._identity and header[what] != self._identity[what]:
                if header.get("complete"):
                    return None
                raise DataError(
                    f"{self.path}: {why}; name another directory, or remove it to begin anew"
                )
        return header, arrays

    def due(self) -> bool:
        """Return whether it is time to write again."""
        seconds = SECONDS if self._seconds is None else self._seconds
        return time.monotonic() - self._last >= seconds

    def _write(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Replace the file; a stop in the middle leaves the old one.

        One that cannot be written is warned of, and the count goes on.
        """
        try:
            files.write(
                self.path, {"kind": "checkpoint", **self._identity, **header}, arrays, force=True
            )
        except (OSError, DataError) as error:
            warn(f"the count goes on without a checkpoint of its last rows: {error}")
        self._last = time.monotonic()


class KeptCounts(Kept):
    """The statistics of the first segments of a scan, or of all."""

    def load(self) -> Progressed | None:
        """Return what was done before; None where there is nothing. Errors as of a checkpoint."""
        if (found := self._read()) is None:
            return None
        header, arrays = found
        stats = Statistics.from_state(header["statistics"], arrays, str(self.path))
        kept = Progressed(
            int(header["segments"]), int(header["rows"]), stats, bool(header.get("complete"))
        )
        if kept.complete:
            logger.info("%s: already complete", self.path)
        else:
            logger.info("%s: going on after %s rows", self.path, f"{kept.rows:,}")
        return kept

    def save(self, kept: Progressed) -> None:
        """Keep what is done."""
        state, arrays = kept.statistics.state()
        header = {"segments": kept.segments, "rows": kept.rows, "complete": kept.complete}
        self._write(header | {"statistics": state}, arrays)


class KeptCuts(Kept):
    """The cut points of some columns, and what the first segments of a scan say of others."""

    def load(self) -> CutsProgressed | None:
        """Return what was done before; None where there is nothing. Errors as of a checkpoint."""
        if (found := self._read()) is None:
            return None
        header, arrays = found
        classes = arrays.pop("classes", None)
        given = header["cuts"], header["columns"], int(header["segments"]), int(header["rows"])
        kept = CutsProgressed(*given, arrays, classes)
        if kept.rows:
            logger.info("%s: going on after %s rows", self.path, f"{kept.rows:,}")
        return kept

    def save(self, kept: CutsProgressed) -> None:
        """Keep what is done."""
        header = kept._asdict()
        arrays, classes = header.pop("arrays"), header.pop("classes")
        header["complete"] = not kept.columns
        self._write(header, arrays | ({} if classes is None else {"classes": classes}))


class Checkpoint:
    """A directory that keeps the work of one count at a time: its cut points, and its counts.

    Parameters
    ----------
    directory
        Where the files are; made if it is not there.
    data
        What is counted, as values that change when the data do.
    seconds
        Least time between two writes; 20 by default.

    Raises
    ------
    DataError
        When it cannot be a directory, holds what is left of a count of other data, or another
        process is counting into it.
    """

    def __init__(
        self, directory: str | os.PathLike[str], data: Any, seconds: float | None = None
    ) -> None:
        files.check_local(directory)
        self.directory, self._data, self._seconds = Path(directory), _digest(data), seconds
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{os.fspath(directory)}: cannot be made a directory ({error.strerror}); name "
                "another one"
            ) from error
        files.check_target(self.directory / "checkpoint.fbs", force=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the directory."""
        with files.alone(self.directory) as alone:
            if not alone:
                raise DataError(
                    f"{self.directory}: another process is counting with this checkpoint; wait "
                    "for it, or name another directory"
                )
            files.remove_abandoned(self.directory)
            KeptCounts(self.directory / "checkpoint.fbs", {"data": self._data}, 0)._read()
            yield

    def counts(self, job: Any) -> KeptCounts:
        """Return what is kept of the counts of a job, given as values that say how it counts."""
        return KeptCounts(self.directory / "checkpoint.fbs", self._identity(job), self._seconds)

    def cuts(self, job: Any) -> KeptCuts:
        """Return what is kept of the cut points of a job."""
        return KeptCuts(self.directory / "cuts.fbs", self._identity(job), self._seconds)

    def _identity(self, job: Any) -> dict[str, str]:
        return {"data": self._data, "job": _digest(job)}


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
