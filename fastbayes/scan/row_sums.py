"""Rows that have been counted, in one more scan: what is made of each segment, and sums of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoded, Encoder
from fastbayes.data.segments import Rows, Segment, Source
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.budget import encoded_width
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest

Result = TypeVar("Result")
# Makes something of a segment and its encoded blocks.
Work = Callable[[Segment, Iterator[tuple[Rows, Encoded]]], Result]
Sums = tuple[NDArray[np.float64], ...]


def scanned_again(
    source: Source,
    schema: Schema,
    weight: str | None,
    work: Work[Result],
    *,
    threads: int | None,
    memory_limit: int | None,
    progress: Progress | None = None,
) -> Iterator[Result]:
    """Yield what `work` makes of each segment, in order.

    The rows are encoded by the schema that they were counted with; `weight` is the column of
    weights.
    """
    encoder = Encoder.applying_to(
        schema, source.schema, unseen="error", target=schema.target, weight=weight
    )
    encoder.expect(source.n_rows)

    def one(segment: Segment) -> tuple[Result, int]:
        seen: list[int] = []

        def blocks() -> Iterator[tuple[Rows, Encoded]]:
            for block, encoded in row_blocks.encoded_blocks(segment, encoder):
                seen.append(block.num_rows)
                yield block, encoded

        return work(segment, blocks()), sum(seen)

    share = engine.share_of(source, threads, memory_limit, width=encoded_width(encoder))
    for result, rows in share.in_order(one, share.source.segments(BLOCK_ROWS)):
        yield result
        if progress is not None:
            progress(rows)


@dataclass(frozen=True)
class Summing(ScanRequest[Sums]):
    """Sums of the arrays that are made of segments, in their order.

    Parameters
    ----------
    schema, weight, memory_limit
        As in `scanned_again`.
    work
        Makes arrays of a segment and its encoded blocks; of rows that are elsewhere it may be
        pickled.
    start
        Those of no rows.
    """

    schema: Schema
    weight: str | None
    work: Work[Sums]
    start: Sums
    memory_limit: int | None = None

    def of(self, rows: Source, threads: int | None, progress: Progress | None) -> Sums:
        """Return the sums of all rows, wherever they are."""
        if isinstance(rows, Counter):
            return rows.run(self, threads, progress).value
        how: dict[str, Any] = {"threads": threads, "progress": progress}
        total = self.start
        for found in scanned_again(
            rows, self.schema, self.weight, self.work, memory_limit=self.memory_limit, **how
        ):
            total = self.add(total, found)
        return total

    def count(self, rows: Source, threads: int | None) -> Partial[Sums]:
        """Return the sums of rows."""
        done: list[int] = []
        found = self.of(rows, threads, done.append)
        return Partial(sum(done), found)

    def zero(self) -> Sums:
        """Return the sums of no rows."""
        return self.start

    def add(self, a: Sums, b: Sums) -> Sums:
        """Return the sums of the rows of both."""
        return tuple(map(add, a, b))

    def to_bytes(self, value: Sums) -> bytes:
        """Return the bytes of sums."""
        arrays = {str(i): np.asarray(part) for i, part in enumerate(value)}
        return files.to_bytes({"kind": "sums"}, arrays)

    def from_bytes(self, data: bytes) -> Sums:
        """Return the sums whose bytes these are."""
        _, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        return tuple(arrays[str(i)] for i in range(len(self.start)))
