"""How often each value of each categorical feature occurs with each class."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Schema
from fastbayes.kernels import dispatch
from fastbayes.statistics.base import CLASSES, SLOTS, Classes, Floats, Ints, Statistic, array


class ValueCounts(Statistic):
    """Counts n(class, feature = value): the sufficient statistic of discrete naive Bayes.

    Notes
    -----
    `counts` is (n_slots, n_classes) with slot = offsets[j] + code; the last slot of a feature
    holds its missing values. `class_counts` is (n_classes,). Memory is 8 bytes a cell.
    """

    name = "values"
    title = "counts of values"
    most = "column {name!r} with {values} values needs"
    repeatable = True
    by_column = True
    limited = False  # counts of values stay small unless a column is an identifier

    counts: NDArray[Any] = array(SLOTS, CLASSES, rows=True)
    class_counts: NDArray[Any] = array(CLASSES, rows=True)

    @cached_property
    def offsets(self) -> Ints:
        """First slot of each categorical feature, and the end of the last."""
        return self.shape.offsets

    @property
    def missing(self) -> NDArray[Any]:
        """Rows in which a feature is missing, (n_categorical, n_classes)."""
        return self.counts[self.offsets[1:] - 1]

    @property
    def known(self) -> NDArray[Any]:
        """Rows in which a feature is known, (n_categorical, n_classes).

        The sum of its values: a difference of weights would be off by their rounding.
        """
        values = self.counts.copy()
        values[self.offsets[1:] - 1] = 0
        known: NDArray[Any] = np.add.reduceat(values, self.offsets[:-1], axis=0)
        return known

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each slot is counted with any class, (n_slots,)."""
        # Class by class along the slots: rows of a few classes would each be a loop of their own.
        marks = np.not_equal(self.counts.T, 0, order="C").any(axis=0)
        return np.asarray(marks)

    def of(self, feature: int) -> NDArray[Any]:
        """Return the (S_j, n_classes) counts of one categorical feature, a view."""
        return self.counts[self.offsets[feature] : self.offsets[feature + 1] - 1]

    def _add(self, batch: Batch, classes: Classes, weight: Floats | None) -> None:
        count = dispatch.load("counting.count", batch.cells)
        count.add_class_counts(classes, weight, self.class_counts)
        for features, codes, sizes in batch.codes:
            slots = self.offsets[features]
            count.add_counts(codes, sizes, slots, classes, weight, self.counts)

    def check_left(self, schema: Schema) -> None:
        """Raise DataError where a count is below 0: rows were taken away that were never added."""

        def refuse(at: Any, what: str, message: str) -> None:
            label = repr(schema.classes[int(at)].as_py())
            raise DataError(f"{what} {message.format(label)}; these rows were never added")

        for j, feature in enumerate(schema.categorical):
            column = f"column {feature.name!r}:"
            rows, classes = np.nonzero(self.of(j) < 0)
            if len(rows):
                value = feature.values[int(rows[0])].as_py()  # type: ignore[index]
                column += f" value {value!r}"
                refuse(classes[0], column, "would occur fewer than 0 times with class {}")
            if (missing := self.missing[j] < 0).any():
                message = "it would be missing fewer than 0 times with class {}"
                refuse(missing.argmax(), column, message)
        if (below := self.class_counts < 0).any():
            refuse(below.argmax(), "class", "{} would have fewer than 0 rows")
