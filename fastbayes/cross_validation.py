"""`leave_one_out`: how good a model is on rows it has not seen, from the counts it was made of."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes import engine
from fastbayes.classifiers.left_out import kind_of, left_out
from fastbayes.counting import with_labels
from fastbayes.data.apply import open_for
from fastbayes.data.encode import Encoded, Encoder
from fastbayes.data.join import is_name
from fastbayes.data.segments import Segment
from fastbayes.engine import Progress
from fastbayes.errors import DataError, SchemaError
from fastbayes.schema import Schema
from fastbayes.scoring import Block, Contestant, Part, scores
from fastbayes.statistics.bundle import Statistics
from fastbayes.validation import Evaluation

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Validation(Evaluation):
    """Figures of a classifier on rows that it was not fitted with.

    Attributes
    ----------
    method
        "leave-one-out" or "k-fold".
    fixed
        What was learned from all rows, those that were held out included.
    proba
        (n_rows, n_classes) P(c | x) of every row of the source by the model without it, NaN in
        rows that took no part (no class, weight 0); None where it was not kept.
    folds
        The figures of each fold; none for leave-one-out.
    """

    method: str = ""
    fixed: tuple[str, ...] = ()
    proba: Floats | None = field(default=None, repr=False)
    folds: tuple[Evaluation, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists for JSON, without the probabilities."""
        told = super().to_dict()
        del told["proba"]
        return told | {"fixed": list(self.fixed), "folds": [f.to_dict() for f in self.folds]}

    def __str__(self) -> str:
        fixed = f", {' and '.join(self.fixed)} fixed" if self.fixed else ""
        return f"{self.method}{fixed}\n{super().__str__()}"


def validation(figures: Evaluation, **more: Any) -> Validation:
    """Return figures with what they were taken of."""
    return Validation(**{f.name: getattr(figures, f.name) for f in fields(figures)}, **more)


def leave_one_out(
    model: Any,
    stats: Statistics,
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    loss: Any = None,
    proba: bool = True,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Score every row by the model that was fitted without it, in one scan and without refitting.

    Parameters
    ----------
    model
        A `NaiveBayes`, `SPODE`, `TAN` or `AODE` with its parameters; it need not be fitted, and is
        left as it is.
    stats
        The statistics of the rows, as `fastbayes.count` returns them.
    source
        The rows that were counted, as in `fastbayes.count`.
    target
        Name of the class column or (n_rows,) labels; the name at counting by default. Rows without
        a class take no part.
    sample_weight
        Name of the weight column, or (n_rows,) weights, if the rows were counted with weights.
    loss
        Loss matrix as in `decide`.
    proba
        Whether to keep the probabilities: 8 bytes for each row and class.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Validation
        The figures, and the probabilities in the order of the rows.

    Raises
    ------
    DataError
        When the rows are not those that were counted.
    SchemaError
        When the model cannot be validated so, or does not suit the statistics.

    Notes
    -----
    Equal to fitting without the row, to 1e-12 of a probability (Gaussian columns: 1e-9), with
    classes, domains, cut points, a chosen alpha and the structure of SPODE and TAN as all rows
    have them. A row of weight w takes min(w, 1) out of the counts, and its loss counts w times:
    weight 3 is three rows. Two scorings a row, and nothing is fitted anew.
    """
    if not isinstance(stats, Statistics):
        raise SchemaError(
            f"leave_one_out takes the statistics of the rows, as fastbayes.count returns them, not "
            f"{type(stats).__name__}"
        )
    if stats.weighted and sample_weight is None:
        raise SchemaError(
            "the statistics were counted with weights: name the column of the weights, or give "
            "them, in `sample_weight`"
        )
    kind_of(model)
    fitted = type(model)(**model.get_params(deep=False)).fit_statistics(stats)
    scorer, schema, classes = left_out(fitted), stats.schema, fitted.classes_
    truth = schema.target if target is None else target
    also = [str(name) for name in (truth, sample_weight) if is_name(name)]
    opened, _ = open_for(schema, source, also=also, filesystem=filesystem)
    labelled, target_name, weight_name = with_labels(opened, truth, sample_weight)
    encoder = Encoder.applying_to(schema, labelled.schema, target=target_name, weight=weight_name)
    encoder.expect(labelled.n_rows)

    def parts(segment: Segment) -> Iterator[Block]:
        for block, encoded in engine.encoded_blocks(segment, encoder):
            _check_counted(encoded, schema)
            yield Block(block.num_rows, [Part(0, encoded.batch, encoded.kept)])

    contestant = Contestant(classes, [scorer])
    (score,), counted = scores(
        labelled, parts, [contestant], loss=loss, proba=proba, threads=threads, progress=progress
    )
    _check_rows(counted, stats)
    try:
        figures = score.evaluators[0].result()
    except DataError as error:
        raise DataError(f"{labelled.description}: {error}") from error
    kept = np.concatenate([np.empty((0, len(classes))), *score.proba]) if proba else None
    return validation(figures, method="leave-one-out", fixed=scorer.fixed, proba=kept)


def _check_counted(encoded: Encoded, schema: Schema) -> None:
    if encoded.unseen.any():
        name = schema.categorical[int(encoded.unseen.argmax())].name
        raise DataError(
            f"column {name!r} holds values that were not counted: leave_one_out takes the rows "
            "that the statistics were counted from"
        )


def _check_rows(counted: Floats, stats: Statistics) -> None:
    """Raise DataError where there were more rows of a class than have been counted."""
    known = stats.values.class_counts
    more = counted > known * (1 + 1e-9)
    if more.any():
        label = stats.schema.classes[int(more.argmax())].as_py()
        at = int(more.argmax())
        raise DataError(
            f"class {label!r} has {counted[at]:,.10g} rows, but {known[at]:,.10g} were counted: "
            "leave_one_out takes the rows that the statistics were counted from"
        )
    if counted.sum() < known.sum() * (1 - 1e-9):
        logger.info("%.10g of %.10g counted rows were scored", counted.sum(), known.sum())
