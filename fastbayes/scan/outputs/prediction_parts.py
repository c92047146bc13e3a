"""Predictions in directories of parts, written where rows are read: by threads, or by workers."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.errors import DataError
from fastbayes.core.files import sync, sync_directory, telling_full
from fastbayes.core.threads import in_order
from fastbayes.data.segments import Segment, Source, first_line
from fastbayes.scan.outputs.partitioned_files import PartitionedFiles, check_number
from fastbayes.scan.outputs.prediction_blocks import Predicted, Predicting
from fastbayes.scan.outputs.row_files import SUFFIXES
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest


class PartFile(NamedTuple):
    """A file of some rows.

    share   position of the share whose rows these are
    number  of the part within it
    rows    how many
    name    of the file
    place   directories of its partition, "" where there are none
    """

    share: int
    number: int
    rows: int
    name: str
    place: str = ""


class PartsWritten(NamedTuple):
    """Files that hold what was predicted of some rows.

    parts   the files
    counts  numbers of rows, rows of the prior, and unseen values by column
    """

    parts: tuple[PartFile, ...]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class WritingParts(ScanRequest[PartsWritten]):
    """Predictions, written where rows are read into a directory that all find by its name.

    A share that is tried again writes other files: the answer says which ones count.

    Parameters
    ----------
    predicting
        How rows are predicted.
    folder
        The directory.
    target
        What messages call it.
    """

    predicting: Predicting
    folder: Path
    target: str

    def count(
        self, rows: Source, threads: int | None, progress: Progress | None = None
    ) -> Partial[PartsWritten]:
        """Write the parts of some rows."""
        apart = not self.predicting.partition_by
        predicted = Predicted(self.predicting, rows, threads, parts=apart)
        with self._telling():
            found = (self._parts if apart else self._partitions)(predicted, rows.position, progress)
        return Partial(int(found.counts[0]), found)

    def _parts(self, predicted: Predicted, share: int, progress: Progress | None) -> PartsWritten:
        """Write part after part, each by a thread."""
        stopped, attempt = threading.Event(), secrets.token_hex(8)

        def write_part(
            numbered: tuple[int, list[Segment]],
        ) -> tuple[PartFile, NDArray[np.int64]]:
            number, segments = numbered
            name = f"{share:05d}-{number:05d}-{attempt}"
            file, counts = self.folder / name, self.predicting.nothing
            with predicted.writing(file) as write:
                for segment in segments:
                    for block, new in predicted.blocks(segment):
                        write(block)
                        counts += new
                    if stopped.is_set():
                        break
            sync(file)
            return PartFile(share, number, int(counts[0]), name), counts

        parts, total = [], self.predicting.nothing
        numbered = enumerate(predicted.parts())
        for part, counts in in_order(write_part, numbered, predicted.threads, stopped):
            parts.append(part)
            np.add(total, counts, out=total)
            if progress is not None:
                progress(part.rows)
        return PartsWritten(tuple(parts), total)

    def _partitions(
        self, predicted: Predicted, share: int, progress: Progress | None
    ) -> PartsWritten:
        """Write a file for each partition; the threads predict, the calling one writes."""
        attempt = secrets.token_hex(8)
        writer = PartitionedFiles(
            self.predicting.kind,
            predicted.schema,
            predicted.uncoded,
            [(name, predicted.place_of(name)) for name in self.predicting.partition_by],
            lambda number: self.folder / f"{share:05d}-{number:05d}-{attempt}",
            predicted.sorted_rows,
        )
        total = self.predicting.nothing
        for batch in predicted.in_order(total, progress):
            writer.write(batch)
        parts = []
        for number, (place, path, n_rows) in enumerate(writer.close()):
            sync(path)
            parts.append(PartFile(share, number, n_rows, path.name, place))
        return PartsWritten(tuple(parts), total)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn errors of writing into those that name the target."""
        try:
            with telling_full(self.target):
                yield
        except OSError as error:
            raise DataError(
                f"{self.target}: a part cannot be written ({first_line(error)}); name a directory "
                "that all who write parts find by this path, and may write in"
            ) from error

    def asked(
        self, rows: Source, threads: int | None, progress: Progress | None
    ) -> Partial[PartsWritten]:
        """Write the parts of all rows, whoever reads them."""
        if isinstance(rows, Counter):
            return rows.run(self, threads, progress)
        return self.count(rows, threads, progress)

    def zero(self) -> PartsWritten:
        """Return what no rows leave."""
        return PartsWritten((), self.predicting.nothing)

    def add(self, a: PartsWritten, b: PartsWritten) -> PartsWritten:
        """Return the files of both."""
        return PartsWritten(a.parts + b.parts, a.counts + b.counts)

    def to_bytes(self, value: PartsWritten) -> bytes:
        """Return the bytes of a list of files."""
        header = {"kind": "parts", "parts": [[*part] for part in value.parts]}
        return files.to_bytes(header, {"counts": value.counts})

    def from_bytes(self, data: bytes) -> PartsWritten:
        """Return the list of files whose bytes these are."""
        header, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        parts = tuple(PartFile(*part) for part in header["parts"])
        return PartsWritten(parts, np.asarray(arrays["counts"]))


def written_parts(
    how: Predicting,
    source: Source,
    folder: Path,
    target: str | os.PathLike[str],
    threads: int | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Fill a directory with parts; return the numbers of rows, rows of the prior, unseen values.

    Parts get their names here, in the order of the rows: what attempts left that failed, or that
    nobody waits for any more, does not.
    """
    unordered = folder / "unordered"
    unordered.mkdir()
    request = WritingParts(how, unordered, os.fspath(target))
    parts, counts = request.asked(source, threads, progress).value
    kept = sorted(part for part in parts if part.rows) or sorted(parts)[:1]
    numbers: dict[str, int] = {}
    for part in kept:
        number = numbers.setdefault(part.place, 0)
        numbers[part.place] += 1
        check_number(len(numbers), how.partition_by)
        place = folder / part.place
        place.mkdir(parents=True, exist_ok=True)
        (unordered / part.name).rename(place / f"part-{number:05d}{SUFFIXES[how.kind]}")
    shutil.rmtree(unordered)
    made = {folder / above for place in numbers for above in (Path(place), *Path(place).parents)}
    for directory in sorted(made - {folder}):
        sync_directory(directory)
    return counts
