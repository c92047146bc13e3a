"""Rows that are read and turned into what is written of them, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.threads import in_order
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import (
    SEGMENT_BLOCKS,
    Segment,
    Source,
    reading,
    row_bytes,
    sound,
    waiting,
)
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.budget import encoded_width
from fastbayes.scan.outputs.prediction_columns import PredictionColumns
from fastbayes.scan.outputs.row_files import GROUP_ROWS, Prepared, Sink, Write, prepared, writing
from fastbayes.scan.request import Progress

# About so many parts at most: enough for the threads of any machine, few enough to handle.
MOST_PARTS = 128
# Groups of rows that wait until they are written partition by partition.
SORTED_GROUPS = 4


@dataclass(frozen=True)
class Predicting:
    """How rows are predicted, whoever reads them; it may be pickled.

    Parameters
    ----------
    model
        A fitted model of named columns.
    columns
        Makes what is written of a block of rows.
    kind
        Format of the files.
    n_rows
        Of all rows, some of which may be read elsewhere; None if nobody knows.
    metadata
        Of the files.
    partition_by
        Columns that stand in the names of directories.
    """

    model: Any
    columns: Callable[[], PredictionColumns]
    kind: str
    n_rows: int | None
    metadata: dict[bytes, bytes]
    partition_by: tuple[str, ...] = ()

    @property
    def nothing(self) -> NDArray[np.int64]:
        """How many rows, rows of the prior and unseen values by column there are in no rows."""
        return np.zeros(2 + len(self.model.schema_.categorical), dtype=np.int64)


class Predicted:
    """Rows that are read here and turned into what is written.

    Parameters
    ----------
    how
        How they are predicted.
    source, threads
        As in `predict_to`.
    parts
        Whether each thread writes what it makes, or all hand it over in order.
    """

    def __init__(
        self, how: Predicting, source: Source, threads: int | None, *, parts: bool
    ) -> None:
        self._how, self._n_rows = how, how.n_rows
        self._encoder = Encoder.applying_to(
            how.model.schema_, source.schema, unseen=how.model.unseen
        )
        self._encoder.expect(how.n_rows)
        self._columns = how.columns()
        copied = {*self._columns.copied}
        self._late = [name for name in self._encoder.plain_numbers() if name not in copied]
        self.schema = self._columns.written.with_metadata(how.metadata)
        self.uncoded = self._columns.uncoded
        self.sorted_rows = SORTED_GROUPS * GROUP_ROWS  # at a time, where there are partitions
        width = row_bytes(self._columns.schema)
        sorts = bool(how.partition_by)
        share = engine.share_of(
            source,
            threads,
            getattr(how.model, "memory_limit", None),
            width=encoded_width(self._encoder),
            made=lambda n: width * _rows_held(source, n, parts=parts, sorts=sorts),
        )
        self.source, self.threads = share.source, share.threads
        at_once = row_blocks.rows_at_once(self.source, self.threads, GROUP_ROWS)
        # Parts are whole groups.
        self.at_once = GROUP_ROWS if at_once == GROUP_ROWS else BLOCK_ROWS

    def place_of(self, name: str) -> int:
        """Return which of the columns that are written has a name of the source or the answer."""
        return int(self._columns.schema.get_field_index(name))

    def parts(self) -> Iterator[list[Segment]]:
        """Yield the segments of part after part, at least one; threads do not change the cuts.

        Segments of a source that does not know its rows hold them: then parts are small.
        """
        least = GROUP_ROWS * max(1, -(-(self._n_rows or 0) // (MOST_PARTS * GROUP_ROWS)))
        held: list[Segment] = []
        n_rows = n_parts = 0
        for segment in self.source.segments(self.at_once):
            held.append(segment)
            n_rows += SEGMENT_BLOCKS * BLOCK_ROWS if segment.n_rows is None else segment.n_rows
            if n_rows >= least:
                yield held
                held, n_rows, n_parts = [], 0, n_parts + 1
        if held or not n_parts:
            yield held

    def blocks(self, segment: Segment) -> Iterator[tuple[Prepared, NDArray[np.int64]]]:
        """Yield what is written, with the numbers of rows, rows of the prior, unseen values.

        Rows of partitions stay record batches, which are sorted yet.
        """
        kind = "rows" if self._how.partition_by else self._how.kind
        for rows, encoded in row_blocks.encoded_blocks(segment, self._encoder, self._late):
            copied = rows.select(self._columns.copied)
            with reading(segment.origin):
                for piece in copied.to_batches() if isinstance(copied, pa.Table) else [copied]:
                    sound(piece)
            batch, impossible = self._columns.of(rows, encoded)
            counts = np.array([batch.num_rows, impossible, *encoded.unseen])
            yield prepared(kind, batch), counts

    def in_order(
        self, total: NDArray[np.int64], progress: Progress | None = None
    ) -> Iterator[Prepared]:
        """Yield all blocks in the order of the rows, which the threads make ahead.

        Their numbers are added to `total`, those of rows given to `progress`, once a block was
        taken care of: when the next one is asked for.
        """
        # One thread writes what it makes before it makes more.
        gathered = self.blocks if self.threads == 1 else lambda segment: [*self.blocks(segment)]
        segments = self.source.segments(self.at_once)
        for made in in_order(gathered, segments, self.threads):
            for block, counts in made:
                yield block
                np.add(total, counts, out=total)
                if progress is not None:
                    progress(int(counts[0]))

    def writing(self, sink: Sink, *, streamed: bool = False) -> AbstractContextManager[Write]:
        """Open a file for what blocks are; see `row_files.writing`."""
        return writing(
            self._how.kind,
            sink,
            self.schema,
            self.uncoded,
            group_rows=GROUP_ROWS,
            streamed=streamed,
        )


def _rows_held(source: Source, threads: int, *, parts: bool, sorts: bool) -> int:
    """Return the rows of answers that are held: gathered to groups, of which a writer makes more.

    Of one file, what the other threads have made of a segment waits.
    """
    group = min(GROUP_ROWS, GROUP_ROWS if source.n_rows is None else source.n_rows)
    rows = 3 * group * (SORTED_GROUPS if sorts else 1)
    if parts:
        return rows * threads
    segment = max(source.rows_of_segment(), group)
    return rows + (waiting(threads) * segment if threads > 1 else 0)
