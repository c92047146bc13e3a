"""`evaluate`: figures of a model on labelled data of any size."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError
from fastbayes.data.apply import open_for
from fastbayes.data.encode import Encoder
from fastbayes.data.join import is_name
from fastbayes.data.segments import Segment
from fastbayes.evaluation.validation import Evaluation, Evaluator
from fastbayes.scan import engine
from fastbayes.scan.counting import with_labels
from fastbayes.scan.engine import Progress
from fastbayes.scan.sink import log_rest, schema_of

logger = logging.getLogger("fastbayes")


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
        When the data cannot be used, or hold a class that the model does not know; the message
        names it and its row.
    """
    schema = schema_of(model, "evaluate")
    workers = engine.resolved_threads(threads)
    truth = schema.target if target is None else target
    also = [name for name in (truth, sample_weight) if is_name(name)]
    opened, rest = open_for(schema, source, also=also, filesystem=filesystem)
    log_rest(rest, opened.description)
    labelled, target_name, weight_name = with_labels(opened, truth, sample_weight)
    encoder = Encoder.applying_to(
        schema, labelled.schema, unseen=model.unseen, target=target_name, weight=weight_name
    )
    encoder.expect(labelled.n_rows)
    scorers = model._scorers()
    total = Evaluator(model.classes_, loss=loss)

    names = [f.name for f in schema.categorical]
    # Rows, rows without a class, rows that the prior answers, and unseen values by column.
    tally = np.zeros(3 + len(names), dtype=np.int64)

    def score(segment: Segment) -> tuple[Evaluator, NDArray[np.int64]]:
        part, found = Evaluator(model.classes_, loss=loss), np.zeros_like(tally)
        for block, encoded in engine.encoded_blocks(segment, encoder):
            batch = encoded.batch
            assert batch.classes is not None
            posterior = np.empty((batch.n_rows, len(schema.classes)))
            lost = scorers(batch.cells).posterior(batch.codes, batch.numeric, posterior)
            part.update(posterior, batch.classes, batch.weight)
            found += [block.num_rows, encoded.dropped, lost, *encoded.unseen]
        return part, found

    for part, found in engine.in_order(score, labelled.segments(BLOCK_ROWS), workers):
        total.merge(part)
        tally += found
        if progress is not None:
            progress(int(found[0]))
    n_rows, dropped, lost, *unseen = tally.tolist()
    if n_rows and dropped == n_rows:
        raise DataError(
            f"{labelled.description}: column {target_name!r} is null in all {n_rows} rows; name "
            "the column of the true classes as target"
        )
    if dropped:
        logger.info("left out %d rows without a class", dropped)
    if lost:
        logger.info("%d rows are impossible under every class", lost)
    for name, n in zip(names, unseen, strict=True):
        if n:
            logger.info("column %r: %d values were not seen at fit", name, n)
    try:
        return total.result()
    except DataError as error:
        raise DataError(f"{labelled.description}: {error}") from error
