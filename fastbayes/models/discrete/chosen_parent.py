"""The super-parent whose SPODE predicts best the classes of rows that it was not fitted with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch, taken
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import FoldsByPlace
from fastbayes.data.segments import Segment
from fastbayes.models.discrete.loo_families import LooFamilies
from fastbayes.models.discrete.structure import by_relevance
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.scan import engine
from fastbayes.scan.fold_statistics import fold_positions, training
from fastbayes.statistics.bundle import Statistics

# A probability below this counts as this.
CLIP = 1e-15
# Folds of "cv".
FOLDS = 10

Posterior = Callable[[Batch, Floats], object]
# Rows of a block by the fold that they are held out with.
Split = Callable[[Segment, Encoder], Iterator[tuple[int, Batch]]]


def best_left_out(make: Callable[[str], Any], stats: Statistics, scans: Scans, threads: int) -> str:
    """Return the super-parent of the least leave-one-out log-loss.

    Parameters
    ----------
    make
        Returns the unfitted SPODE of a super-parent.
    stats
        Counts of all pairs.
    scans
        Of the rows that were counted.
    threads
        Worker threads.
    """
    models = [make(name).fit_statistics(stats) for name in stats.schema.names]
    scorers: list[list[Posterior]] = [[LooFamilies(model).posterior for model in models]]

    def split(segment: Segment, encoder: Encoder) -> Iterator[tuple[int, Batch]]:
        for _, encoded in engine.encoded_blocks(segment, encoder):
            yield 0, encoded.batch

    return _best(scorers, split, stats, scans, threads)


def best_held_out(
    make: Callable[[str], Any],
    stats: Statistics,
    folds: FoldsByPlace,
    scans: Scans,
    threads: int,
) -> str:
    """Return the super-parent of the least log-loss on folds that were held out.

    Parameters
    ----------
    make, scans, threads
        As in `best_left_out`.
    stats
        Counts of all pairs, with those of the folds.
    folds
        Which fold a row belongs to.
    """
    names = stats.schema.names
    scorers = []
    for rest in training(stats):
        made = [make(name).fit_statistics(rest)._scorers() for name in names]
        scorers.append([_posterior(scorer) for scorer in made])
    order, _ = folds.names()

    def split(segment: Segment, encoder: Encoder) -> Iterator[tuple[int, Batch]]:
        done = 0
        for block, encoded in engine.encoded_blocks(segment, encoder):
            codes = folds.of(segment, done, block)
            done += block.num_rows
            codes = codes if encoded.kept is None else codes[encoded.kept]
            for fold, rows in fold_positions(order, codes):
                yield fold, taken(encoded.batch, rows)

    return _best(scorers, split, stats, scans, threads)


def _posterior(scorer: Callable[[float], Any]) -> Posterior:
    return lambda batch, out: scorer(batch.cells).posterior(batch.codes, batch.numeric, out)


def _best(
    scorers: Sequence[Sequence[Posterior]],
    split: Split,
    stats: Statistics,
    scans: Scans,
    threads: int,
) -> str:
    """Return the feature whose scorers, one for each fold, lose least."""
    schema, source = stats.schema, scans.source
    learning = scans.learning(cuts=scans.cuts)
    encoder = Encoder.applying_to(
        schema, source.schema, target=schema.target, weight=learning.weight
    )
    encoder.expect(source.n_rows)

    def lost(segment: Segment) -> tuple[Floats, int]:
        total, rows = np.zeros(len(schema.names)), 0
        for fold, batch in split(segment, encoder):
            assert batch.classes is not None
            rows += batch.n_rows
            posterior = np.empty((batch.n_rows, len(schema.classes)))
            for p, score in enumerate(scorers[fold]):
                score(batch, posterior)
                total[p] += _loss(posterior, batch.classes, batch.weight)
        # Rows without a class are done, too, where it is known that there are some.
        return total, rows if segment.n_rows is None else segment.n_rows

    total = np.zeros(len(schema.names))
    for some, rows in engine.in_order(lost, source.segments(BLOCK_ROWS), threads):
        total += some
        if scans.progress is not None:
            scans.progress(rows)
    # A column without a value is not chosen if there is another.
    held = np.array([f.size > 0 or schema.missing == "category" for f in schema.features])
    ranked = by_relevance(-total, schema.names)
    return schema.names[int(ranked[np.argmax(held[ranked])])]


def _loss(posterior: Floats, classes: NDArray[np.unsignedinteger], weight: Floats | None) -> float:
    """Return the sum of -ln P(class) over rows."""
    chosen = np.maximum(posterior[np.arange(len(posterior)), classes], CLIP)
    nats = -np.log(chosen)
    return float((nats if weight is None else weight * nats).sum())
