"""`evaluate`: figures of a model on labelled data of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes import engine
from fastbayes.batch import BLOCK_ROWS
from fastbayes.counting import open_labelled
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment
from fastbayes.engine import Progress
from fastbayes.errors import DataError, SchemaError
from fastbayes.validation import Evaluation, Evaluator

Scored = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64] | None]


def evaluate(
    model: Any,
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    loss: Any = None,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score labelled rows in one scan: accuracy, log-loss, AUC, Brier, calibration, confusion.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`.
    target
        Name of the class column or (n_rows,) labels; the name at fit by default. Rows without a
        class are left out.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    loss
        Loss matrix as in `decide`.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Evaluation
        The figures.

    Raises
    ------
    DataError
        When the data cannot be used, or hold a class that the model does not know.
    """
    model._check_fitted()
    if not hasattr(model, "schema_"):
        raise SchemaError(
            f"evaluate needs a model of named columns; {type(model).__name__} reads bare arrays"
        )
    schema = model.schema_
    source_, name, weight = open_labelled(
        source,
        schema.target if target is None else target,
        sample_weight=sample_weight,
        filesystem=filesystem,
    )
    encoder = Encoder.applying_to(
        schema, source_.schema, unseen=model.unseen, target=name, weight=weight
    )
    encoder.expect(source_.n_rows)
    scorers = model._scorers()

    def score(segment: Segment) -> tuple[list[Scored], int]:
        scored: list[Scored] = []
        rows = 0
        for block, encoded in engine.encoded_blocks(segment, encoder):
            batch = encoded.batch
            posterior = np.empty((batch.n_rows, len(schema.classes)))
            scorers(batch.cells).posterior(batch.codes, batch.numeric, posterior)
            assert batch.classes is not None
            scored.append((posterior, batch.classes, batch.weight))
            rows += block.num_rows
        return scored, rows

    evaluator = Evaluator(model.classes_, loss=loss)
    workers = engine.resolved_threads(threads)
    for scored, rows in engine.in_order(score, source_.segments(BLOCK_ROWS), workers):
        for posterior, truth, weights in scored:
            evaluator.update(posterior, truth, weights)
        if progress is not None:
            progress(rows)
    try:
        return evaluator.result()
    except DataError as error:
        raise DataError(f"{source_.description}: {error}") from error
