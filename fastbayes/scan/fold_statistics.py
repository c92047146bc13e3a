"""The statistics of every fold from one scan: class and fold together are counted as classes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, code_type
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Schema, Shape
from fastbayes.data.encode import MAX_CLASSES
from fastbayes.data.folds import Folds, FoldsByColumn
from fastbayes.data.segments import Segment
from fastbayes.statistics import Statistic
from fastbayes.statistics.bundle import Statistics


class Crossing:
    """Numbers the pairs of class and fold that occur, in the order in which they are met."""

    def __init__(self, folds: Folds) -> None:
        self.folds = folds
        self._lock = threading.Lock()
        # (class, fold) -> number, -1 for none; replaced as a whole, never changed.
        self._codes = np.full((1, 1), -1)
        self._n = 0

    def crossed(
        self,
        segment: Segment,
        done: int,
        rows: pa.RecordBatch,
        kept: NDArray[np.int64] | None,
        batch: Batch,
        shape: Shape,
    ) -> tuple[Batch, Shape]:
        """Return a block with classes crossed with folds, and the shape that it needs.

        kept  which of the rows are in the block, None for all
        """
        folds = self.folds.of(segment, done, rows)
        if kept is not None:
            folds = folds[kept]
        assert batch.classes is not None
        known, n = self._known(batch.classes, folds)
        crossed = known[batch.classes, folds].astype(code_type(n))
        return replace(batch, classes=crossed, n_classes=n), shape._replace(n_classes=n)

    def _known(
        self, classes: NDArray[np.unsignedinteger], folds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of pairs, those of these rows among them, and how many there are."""
        codes, n = self._codes, self._n
        need = int(classes.max(initial=0)) + 1, int(folds.max(initial=0)) + 1
        if need[0] <= codes.shape[0] and need[1] <= codes.shape[1]:
            found = codes[classes, folds]
            if not len(found) or found.min() >= 0:
                return codes, max(n, int(found.max(initial=-1)) + 1)
        with self._lock:
            shape = [max(have, want) for have, want in zip(self._codes.shape, need, strict=True)]
            codes = np.full(shape, -1)
            codes[: self._codes.shape[0], : self._codes.shape[1]] = self._codes
            pairs = np.unique(classes.astype(np.int64) * shape[1] + folds)
            new = pairs[codes.reshape(-1)[pairs] < 0]
            codes.reshape(-1)[new] = np.arange(self._n, self._n + len(new))
            if self._n + len(new) > MAX_CLASSES:
                raise DataError(
                    f"there are more than {MAX_CLASSES} pairs of class and fold; use fewer folds"
                )
            self._codes, self._n = codes, self._n + len(new)
            return codes, self._n

    def room(self, shape: Shape) -> Shape:
        """Return a shape that holds all pairs met so far."""
        return shape._replace(n_classes=self._n)

    def counts_of_classes(self, crossed: NDArray[Any], n_classes: int) -> NDArray[Any]:
        """Return the rows of each class from those of pairs, (n_classes,)."""
        result = np.zeros(n_classes, crossed.dtype)
        c, f = np.nonzero(self._codes >= 0)
        np.add.at(result, c, crossed[self._codes[c, f]])
        return result

    def split(
        self, schema: Schema, to: Alignment, parts: Mapping[str, Statistic]
    ) -> dict[str, Any]:
        """Return the statistics of the folds and of the whole, as arguments of `Statistics`.

        Parameters
        ----------
        schema
            The final schema.
        to
            Where its cells stand in `parts`, but for the classes: these as they were met.
        parts
            Counted with classes crossed.
        """
        order, names = self.folds.names()
        folds = []
        for fold in order:
            here = np.full(len(to.classes), -1)
            if fold < self._codes.shape[1]:
                here = np.where(
                    to.classes < self._codes.shape[0],
                    self._codes[np.minimum(to.classes, self._codes.shape[0] - 1), fold],
                    -1,
                )
            of_fold = to._replace(classes=here)
            folds.append({name: part.take(of_fold) for name, part in parts.items()})
        none = to._replace(classes=np.full(len(to.classes), -1))
        return {
            "parts": {
                name: reduce(add, (fold[name] for fold in folds)) if folds else part.take(none)
                for name, part in parts.items()
            },
            "folds": tuple(Statistics(schema, fold) for fold in folds),
            "fold_names": names,
        }


def others(stats: Statistics, fold: int) -> Statistics:
    """Return the statistics of all rows but those of one fold, under the schema of all rows.

    Exact counts are subtracted. Sums of floats of the other folds are added up, so that nothing is
    left of what cancels.
    """
    rest = [f for i, f in enumerate(stats.folds) if i != fold]
    parts: dict[str, Statistic] = {}
    for name, part in stats.parts.items():
        if part.comes_apart and part.order_free(stats.weighted):
            parts[name] = part - stats.folds[fold].parts[name]
        else:
            parts[name] = reduce(add, (f.parts[name] for f in rest))
    return Statistics(stats.schema, parts)


def with_folds_of(stats: Statistics, values: pa.Array, folds: FoldsByColumn) -> Statistics:
    """Return statistics with all folds that are known; those of other rows are empty.

    `values` are those of the folds that the statistics have.
    """
    to = stats.schema.alignment(stats.schema)
    none = to._replace(classes=np.full(len(to.classes), -1))
    empty = Statistics(stats.schema, {name: part.take(none) for name, part in stats.parts.items()})
    found = dict(zip(values.to_pylist(), stats.folds, strict=True))
    together = tuple(found.get(value, empty) for value in folds.ordered().to_pylist())
    return replace(stats, folds=together, fold_names=folds.names()[1])


def training(stats: Statistics) -> list[Statistics]:
    """Return the statistics without each fold; DataError when a fold holds all rows."""
    check_apart(stats)
    return [others(stats, i) for i in range(len(stats.folds))]


def check_apart(stats: Statistics) -> None:
    """Raise DataError where a fold holds all rows."""
    filled = [name for name, fold in zip(stats.fold_names, stats.folds, strict=True) if fold.n_rows]
    if len(filled) == 1:
        raise DataError(
            f"fold {filled[0]!r} holds all rows: without it there is nothing to learn from; use "
            "more rows, other folds, or leave-one-out where the model has it"
        )


def fold_positions(
    order: Sequence[int], codes: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each fold that occurs, by its place in the order, with the positions of its rows."""
    place = np.full(max(*order, codes.max(initial=-1), -1) + 1, -1)
    place[list(order)] = np.arange(len(order))
    folds = place[codes]
    if folds.min(initial=0) < 0:
        raise DataError("there are folds that were not counted: the rows changed; count again")
    sorted_ = np.argsort(folds, kind="stable")
    for fold, rows in enumerate(
        np.split(sorted_, np.cumsum(np.bincount(folds, minlength=len(order)))[:-1])
    ):
        if len(rows):
            yield fold, rows
