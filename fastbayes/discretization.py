"""The scan that learns where numeric columns are cut, before anything is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.batch import BLOCK_ROWS
from fastbayes.data.discretize import CutLearner, Method, methods
from fastbayes.data.encode import Encoder
from fastbayes.data.infer import Codebook
from fastbayes.data.segments import Segment, Source
from fastbayes.engine import Progress, encoded_blocks, in_order, resolved_threads
from fastbayes.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.schema import Feature


def numeric_cuts(
    source: Source,
    encoder: Encoder,
    discretize: Any = "mdl",
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    on_error: str = "stop",
) -> dict[str, NDArray[np.float64]]:
    """Return the cut points of numeric columns, from one scan where they must be learned.

    Parameters
    ----------
    source
        Where the rows come from; it is scanned only if there is something to learn.
    encoder
        An encoder that learns, made without `cuts`: it says which columns are numeric, which is
        the target and which the weight. It is left as it was. Hand the result to
        `Encoder.learning(..., cuts=...)` to count.
    discretize
        "mdl" (Fayyad and Irani), "quantile", "width", ("quantile", n), ("width", n), or by
        column one of these or a list of cut points; columns that are not named: "mdl".
    threads
        Worker threads; they never change a bit of the result.
    memory_limit
        Bytes that the sketches of the columns may take.
    progress
        Called with the number of rows done since the last call.
    on_error
        "stop", or "skip" to leave out segments that cannot be read.

    Returns
    -------
    dict
        By column name, ascending cut points of every numeric column and of those that
        `discretize` gives points for; an empty array for a column that is one bin. Rows without
        a class or of weight 0 took no part.

    Raises
    ------
    SchemaError
        When `discretize` names a column that is not numeric, cut points are not ascending, there
        is no class for "mdl", or the source can be read only once.
    DataError
        When the data cannot be read.
    MemoryLimitError
        When the sketches would exceed the limit; the message names the column.
    """
    numeric = [feature.name for feature, book in encoder.features if book is None]
    others = {f.name: book for f, book in encoder.features if book is not None}
    loose = [name for name, book in others.items() if isinstance(book, Codebook) and _loose(book)]
    asked = methods(discretize, numeric, list(others), loose)
    cuts = {name: how for name, how in asked.items() if not isinstance(how, Method)}
    learned = {name: how for name, how in asked.items() if isinstance(how, Method)}
    if learned:
        _check(source, encoder, learned)
        threads = resolved_threads(threads)
        own = _encoder(encoder, learned)
        learner = _scan(source, own, learned, threads, memory_limit, progress, on_error)
        # Codes are numbered as threads come upon the classes; sums go in sorted order.
        order = np.zeros(1, np.intp)
        if own.target is not None:
            order = pc.array_sort_indices(own.target.values()).to_numpy().astype(np.intp)
        found = in_order(lambda name: learner.cuts(name, order), learned, threads)
        cuts |= dict(zip(learned, found, strict=True))
    return {name: cuts[name] for name in asked}


def _loose(book: Codebook) -> bool:
    """Return whether a categorical column may just as well be numbers."""
    return not book.fixed and (pa.types.is_null(book.kind) or pa.types.is_boolean(book.kind))


def _check(source: Source, encoder: Encoder, learned: dict[str, Method]) -> None:
    name = next(iter(learned))
    if encoder.target is None and any(how.kind == "mdl" for how in learned.values()):
        raise SchemaError(
            f"column {name!r}: discretize='mdl' cuts where classes change, and there is no class "
            "column; use 'quantile' or 'width', or cut points of your own"
        )
    if not source.rereadable:
        raise SchemaError(
            f"{source.description} can be read only once, but the cut points of column {name!r} "
            "are learned in a scan of their own: pass a table or a path, give cut points in "
            "`discretize`, use partial_fit, whose first batch fixes them, or name the column in "
            "`categorical`"
        )


def _encoder(encoder: Encoder, learned: dict[str, Method]) -> Encoder:
    """Return an encoder of the columns to be cut, with a class codebook of its own."""
    book = encoder.target
    target = None
    if book is not None:
        known = list(book.codes) if book.fixed else ()
        target = Codebook(
            book.name, book.kind, known, fixed=book.fixed, null_values=book.null_values
        )
    features = [(Feature(name, "numeric"), None) for name in learned]
    return Encoder(features, target, template=encoder.template, weight=encoder.weight)


def _scan(
    source: Source,
    encoder: Encoder,
    learned: dict[str, Method],
    threads: int,
    memory_limit: int | None,
    progress: Progress | None,
    on_error: str,
) -> CutLearner:
    encoder.expect(source.n_rows)
    learner = CutLearner(learned)

    def learn(segment: Segment) -> int:
        # What is left of a segment that turns out to be damaged must not stay behind.
        mine = CutLearner(learned) if on_error == "skip" else learner
        rows = 0
        try:
            for block, encoded in encoded_blocks(segment, encoder):
                rows += block.num_rows
                batch = encoded.batch
                assert batch.classes is not None
                mine.update(batch.numeric, batch.classes, batch.weight, batch.cells)
        except DataError:
            if on_error != "skip":
                raise
            return 0
        if mine is not learner:
            learner.__iadd__(mine)
        _check_memory(learner, memory_limit)
        return rows

    for rows in in_order(learn, source.segments(BLOCK_ROWS), threads):
        if progress is not None:
            progress(rows)
    return learner


def _check_memory(learner: CutLearner, memory_limit: int | None) -> None:
    if memory_limit is not None and learner.nbytes > memory_limit:
        sketches = learner.sketches
        name = max(sketches, key=lambda n: sketches[n].nbytes)
        raise MemoryLimitError(
            f"learning cut points needs {learner.nbytes:,} bytes, over memory_limit="
            f"{memory_limit:,}: column {name!r} needs {sketches[name].nbytes:,}; give cut points "
            "for it in `discretize`, leave it out with `columns`, or raise memory_limit"
        )
