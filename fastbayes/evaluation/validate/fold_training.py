"""Models fitted without each fold in turn: by subtraction, or where that is not all, by scans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastbayes.core.batch import taken
from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoder, Place, filtered
from fastbayes.data.folds import Folds, WithoutFold
from fastbayes.data.segments import Segment
from fastbayes.evaluation.validate.scoring import Part, Parts, ScoredBlock
from fastbayes.models.estimator.base import Scans
from fastbayes.scan import engine
from fastbayes.scan.counting import Opened
from fastbayes.scan.discretization import cuts_without_folds, numeric_cuts
from fastbayes.scan.fold_statistics import fold_positions, refuse, training
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")


class FoldScans:
    """Scans of all rows but those of a fold, in the classes and domains of all rows.

    Parameters
    ----------
    opened
        The rows.
    whole
        Counts of their values, by folds.

    Raises
    ------
    DataError
        When a fold holds all rows.
    """

    def __init__(self, opened: Opened, whole: Statistics) -> None:
        assert opened.folds is not None
        self.opened, self.folds = opened, opened.folds
        self.order, self.names = opened.folds.names()
        for fold, name in zip(whole.folds, whole.fold_names, strict=True):
            if fold.n_rows == whole.n_rows:
                refuse(name)
        schema = whole.schema
        domains = {f.name: f.values for f in schema.categorical if f.cuts is None and not f.void}
        domains[str(opened.target)] = schema.classes
        self.learning = partial(opened.learning, domains=domains)

    def of(self, fold: int) -> tuple[WithoutFold, Callable[..., Encoder]]:
        """Return the rows without those of a fold, by its place, and what gives encoders."""
        return WithoutFold(self.opened.source, self.folds, self.order[fold]), self.learning


def parts_of_folds(folds: Folds, order: Sequence[int], encoder: Encoder) -> Parts:
    """Return what splits blocks into folds that share one encoder."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block, encoded in engine.encoded_blocks(segment, encoder):
            codes = folds.of(segment, done, block)
            done += block.num_rows
            kept = np.arange(block.num_rows) if encoded.kept is None else encoded.kept
            yield ScoredBlock(
                block.num_rows,
                [
                    Part(fold, taken(encoded.batch, rows), kept[rows])
                    for fold, rows in fold_positions(order, codes[kept])
                ],
            )

    return parts


def parts_by_encoder(folds: Folds, order: Sequence[int], encoders: Sequence[Encoder]) -> Parts:
    """Return what splits blocks into folds, each with an encoder of its own."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block in segment.batches():
            codes = folds.of(segment, done, block)
            place = Place(
                segment.origin, segment.first_row + done if segment.first_row >= 0 else -1
            )
            done += block.num_rows
            found = []
            for fold, rows in fold_positions(order, codes):
                mine = np.zeros(block.num_rows, np.bool_)
                mine[rows] = True
                encoded = encoders[fold].encode(filtered(block, mine), place)
                # The codes last until the thread encodes again.
                batch = taken(encoded.batch, np.arange(encoded.batch.n_rows))
                found.append(
                    Part(fold, batch, rows if encoded.kept is None else rows[encoded.kept])
                )
            yield ScoredBlock(block.num_rows, found)

    return parts


def applying(opened: Opened, schema: Schema) -> Encoder:
    """Return an encoder of the rows, with their classes, by the schema of models."""
    encoder = Encoder.applying_to(
        schema, opened.source.schema, target=opened.target, weight=opened.weight
    )
    encoder.expect(opened.source.n_rows)
    return encoder


def learns_by_subtraction(model: Any, encoder: Encoder) -> bool:
    """Return whether statistics of folds are all that a model learns from.

    Parameters
    ----------
    model
        An unfitted classifier of tables.
    encoder
        An encoder that learns, made without cut points.
    """
    by_rows = getattr(model, "_reads_rows", False) or getattr(model, "select", None)
    if "families" in model._statistics or by_rows:
        return False
    to_cut = model._to_cut(encoder)
    return to_cut is None or not learned_cuts(*to_cut)


def learned_cuts(encoder: Encoder, discretize: Any) -> bool:
    """Return whether cut points depend on the rows: there are such columns, and none are given."""
    numeric = [feature.name for feature, book in encoder.features if book is None]
    if not numeric:
        return False
    given = discretize if isinstance(discretize, Mapping) else {}
    return not all(
        name in given
        and not isinstance(given[name], str)
        and not (isinstance(given[name], tuple) and isinstance(given[name][0], str))
        for name in numeric
    )


def fitted_without_folds(
    make: Callable[[], Any], opened: Opened, threads: int | None, memory_limit: int | None
) -> tuple[list[Any], tuple[str, ...], Parts]:
    """Return a model fitted without each fold, names of the folds, and what splits blocks.

    Parameters
    ----------
    make
        Returns the model, unfitted.
    opened
        The rows, with folds.
    threads, memory_limit
        As in `fastbayes.count`.
    """
    model, encoder, folds = make(), opened.learning(), opened.folds
    assert folds is not None
    to_cut = model._to_cut(encoder)
    told: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    if learns_by_subtraction(model, encoder):
        cut = encoder
        if to_cut is not None:
            cut = opened.learning(cuts=numeric_cuts(opened.source, *to_cut, **told))
        try:
            stats = engine.scan(opened.source, cut, model._statistics, folds=folds, **told)
        except MemoryLimitError as error:
            logger.info("%s; each fold is left out in scans of its own", error)
        else:
            models = [make().fit_statistics(rest) for rest in training(stats)]
            parts = parts_of_folds(folds, folds.names()[0], applying(opened, stats.schema))
            return models, stats.fold_names, parts
    whole = engine.scan(opened.source, encoder, ("values",), folds=folds, **told)
    scans = FoldScans(opened, whole)
    cuts: list[Any] = [None] * len(scans.names)
    if to_cut is not None:
        alone, discretize = to_cut
        cuts = cuts_without_folds(opened.source, alone, discretize, folds, **told)
    models = []
    for fold, points in enumerate(cuts):
        model = make()
        model._check_parameters()
        source, learning = scans.of(fold)
        models.append(model._learned(model._scanned(Scans(source, learning, points, [], True))))
    encoders = [applying(opened, model.schema_) for model in models]
    return models, scans.names, parts_by_encoder(folds, scans.order, encoders)
