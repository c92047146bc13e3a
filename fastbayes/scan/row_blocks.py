"""Rows in blocks: how many are looked up at once, on how many threads work goes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.data.encode import Encoded, Encoder, LookedUp, NumbersApart
from fastbayes.data.segments import SEGMENT_BLOCKS, Rows, Segment, Source
from fastbayes.kernels import dispatch

# Segments of a table in memory for each of several threads: the one that is done first takes more.
# Where they would have fewer cells, one: Python takes as long for a segment as kernels for 2^24.
SEGMENTS, LEAST_CELLS = 2, 1 << 27
# Cells of a batch on a thread, which no signal interrupts: a tenth of a second where values are
# counted.
MOST_CELLS = 1 << 29
# Cells for which it pays to ask another thread for help.
HELP_CELLS = 1 << 21


def rows_at_once(source: Source, threads: int, most: int = MOST_CELLS) -> int:
    """Return the rows of a batch of whole blocks: columns are looked up for many blocks at once.

    A few segments for each thread, of as many rows as there are: the fewer calls, the better. What
    is no dictionary may be converted first, which takes up to 8 bytes a value. `most` is a number
    of rows.
    """
    if not (source.many_blocks and source.n_rows):
        return BLOCK_ROWS
    converted = sum(not pa.types.is_dictionary(field.type) for field in source.schema)
    most = min(most, MOST_CELLS // max(len(source.schema), 1))
    most = min(most, source.batch_bytes // (1 + 8 * converted))
    if source.in_memory:  # of files, as many as are decoded together
        cells = source.n_rows * len(source.schema)
        parts = max(threads, min(SEGMENTS * threads, cells // LEAST_CELLS)) if threads > 1 else 1
        most = min(most, -(-source.n_rows // parts))
    whole = SEGMENT_BLOCKS * BLOCK_ROWS
    return BLOCK_ROWS if most <= BLOCK_ROWS else whole * -(-most // whole)


def rows_on_all(source: Source, encoder: Encoder, threads: int, few: int) -> int:
    """Return the rows that all threads take the blocks of; 0 where each has rows of its own.

    That is where looking up takes time that grows with the rows. A multiple of so few.
    """
    if threads == 1 or not (source.many_blocks and encoder.is_indexing(source)):
        return 0
    return few * max(threads * MOST_CELLS // (max(len(source.schema), 1) * few), 1)


def threads_for(cells: float, threads: int) -> int:
    """Return on how many of the threads it pays to work through so many cells."""
    return int(min(threads, 1 + cells / HELP_CELLS))


def over_blocks(
    rows: LookedUp,
    work: Callable[[Batch, int], None],
    *,
    sizes: NDArray[np.int64] | None = None,
    moving: Sequence[tuple[NDArray[Any], int]] = (),
    repeatable: bool = False,
    blank: bool = False,
    threads: int = 1,
    last: bool = True,
) -> Any:
    """Do work(batch, first row) on rows block by block; return the calls of kernels that do it.

    They do the same once more, with other rows in the same place; None if none were noted. Blocks
    are those of the rows that were read, whichever of them were kept, unless the work is
    repeatable.

    Parameters
    ----------
    rows
        Rows whose values have codes.
    sizes
        As in `LookedUp.block`.
    moving
        Arrays that hold something of every row and that the work writes, with the bytes of a row.
    repeatable
        Whether the work does nothing with rows but call kernels by `dispatch.call`: compiled, they
        are then called for all blocks without Python in between, unless numbers are decoded there.
    blank
        Whether codes are 0 while calls are noted down, for work that looks at them.
    threads
        How many take the blocks, at most. With several NotRepeatableError is raised, before
        anything is done, where the work is not repeatable.
    last
        Whether no others will take the place of these rows.
    """
    repeatable = repeatable and not rows.reads_numbers()
    if threads > 1 and not repeatable:
        raise dispatch.NotRepeatableError
    threads = threads_for(rows.n_rows * max(len(rows.sizes), 1), threads)
    noted = repeatable and (rows.n_rows > BLOCK_ROWS or not last)
    n = rows.n_rows
    whole = n - n % BLOCK_ROWS
    parts = [(0, BLOCK_ROWS, n // BLOCK_ROWS), (whole, n % BLOCK_ROWS, 1)]
    if not noted:
        parts = [(first, last - first, 1) for _, first, last in rows.parts(BLOCK_ROWS)]
    # Only compiled kernels can be noted down: where those of codes are, those of counts are, too.
    repeat = (
        dispatch.load("reading.repeat", rows.coding)
        if noted
        else dispatch.numpy_twin("reading.repeat")
    )
    return repeat.over_blocks(
        lambda at, some: work(rows.block(at, some, sizes, blank=noted and blank, noted=noted), at),
        [part for part in parts if part[1] and part[2]],
        [*rows.moving(), *moving],
        threads,
    )


def looked_up(
    segment: Segment, encoder: Encoder, late: Sequence[str] = ()
) -> Iterator[tuple[Rows, LookedUp]]:
    """Yield the rows of a segment, and as their values have codes that are not yet written.

    Columns of numbers that are `late` the rows may lack. They are decoded block by block, each time
    to the same memory: only the next block may be asked for.
    """
    done = 0
    with segment.apart(late) as (batches, numbers):
        for rows in batches:
            place = segment.place(done)
            apart = None if numbers is None else NumbersApart(numbers, done, place)
            yield rows, encoder.look_up(rows, place, apart)
            done += rows.num_rows


def encoded_blocks(
    segment: Segment, encoder: Encoder, late: Sequence[str] = ()
) -> Iterator[tuple[Rows, Encoded]]:
    """Yield the blocks of a segment with their codes; see `looked_up`."""
    for rows, known in looked_up(segment, encoder, late):
        for place, encoded in enumerate(known.encoded(BLOCK_ROWS)):
            whole = rows.num_rows <= BLOCK_ROWS  # a wide table is slow to be cut
            yield rows if whole else rows.slice(place * BLOCK_ROWS, BLOCK_ROWS), encoded
