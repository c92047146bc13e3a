"""The coefficients of a linear model: what it scores, explains and saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.arrays import counted_up
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.kernels.shared.scoring import on_line, with_pairs
from fastbayes.models.estimator.log_space import Floats

ARRAYS = ("prior", "tables", "offsets", "center", "slope", "level", "absent", "common", "pairs")


def offsets_of(sizes: Any, pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the first row of each feature and each pair in tables, and where the last one ends."""
    rows = [size + 2 for size in sizes]
    return np.cumsum([0, *rows, *(rows[a] * rows[b] for a, b in pairs)], dtype=np.int64)


def rows_of_known(
    offsets: NDArray[np.int64], sizes: NDArray[np.int64], pairs: Sequence[tuple[int, int]]
) -> NDArray[np.int64]:
    """Return the rows of known values in tables: of each feature, then of each pair."""
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    # A pair has a line of its second values for each of its first ones, a feature one line.
    lines = np.concatenate([np.ones_like(sizes), sizes[a]])
    length = np.concatenate([sizes, sizes[b]])
    of_line = np.repeat(np.arange(len(lines)), lines)
    begins = offsets[:-1][of_line] + counted_up(lines) * (length + 2)[of_line]
    cells = length[of_line]
    return np.repeat(begins, cells) + counted_up(cells)


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """What each value and each number adds to the score of each class.

    With two classes the scores of the first are 0: those of the second are log odds.

    prior                 (n_classes,) what every row has.
    tables                (n_slots, n_classes); each categorical feature has S_j + 2 rows, its
                          values, missing, unseen, and after them each pair of features (S_a +
                          2)(S_b + 2).
    offsets               (n_categorical + n_pairs + 1,) first row of each feature and each pair in
                          `tables`.
    center                (n_numeric,) from which slopes are counted: no digits are lost far from 0.
    slope, level, absent  (n_numeric, n_classes): a number x adds slope (x - center) + level, a
                          missing one absent.
    pairs                 Places of the categorical features whose values together have a row: that
                          of code a and code b is a (S_b + 2) + b.
    common                (1 + n_numeric,) intercept and slopes that all classes have besides these,
                          which no posterior depends on and no score holds; of more than two
                          classes.
    """

    prior: Floats
    tables: Floats
    offsets: NDArray[np.int64]
    center: Floats
    slope: Floats
    level: Floats
    absent: Floats
    pairs: tuple[tuple[int, int], ...]
    common: Floats

    @classmethod
    def of(
        cls,
        prior: Floats,
        tables: Floats,
        offsets: NDArray[np.int64],
        center: Floats,
        slope: Floats,
        level: Floats | None = None,
        absent: Floats | None = None,
        pairs: Sequence[tuple[int, int]] = (),
        common: Floats | None = None,
    ) -> Self:
        """Return the coefficients of these scores, less those of the first of two classes."""
        slope = np.asarray(slope, np.float64).reshape(len(center), len(prior))
        parts = [prior, tables, slope, *(np.zeros_like(slope) if a is None else a
                                         for a in (level, absent))]  # fmt: skip
        if len(prior) == 2:
            parts = [part - part[..., :1] for part in parts]
            common = None
        prior, tables, slope, level, absent = (np.array(part, np.float64) for part in parts)
        shared = np.zeros(1 + len(center)) if common is None else common
        return cls(
            prior,
            tables,
            np.array(offsets, np.int64),
            np.array(center, np.float64),
            slope,
            level,
            absent,
            tuple((int(a), int(b)) for a, b in pairs),
            shared,
        )

    @classmethod
    def from_theta(cls, theta: Floats, layout: Layout) -> Self:
        """Return the coefficients of parameters that stand as a layout says.

        theta   (n_rows, n_outputs).
        layout  Where they stand; missing and unseen values add nothing.
        """
        first = [np.zeros_like(theta)] if layout.n_outputs == 1 else []
        wide = np.concatenate([*first, theta], axis=1)
        offsets = offsets_of(layout.sizes, layout.pairs)
        tables = np.zeros((offsets[-1], wide.shape[1]))
        numbers = layout.numeric
        known = np.concatenate([wide[1 : numbers.start], wide[numbers.stop :]])
        tables[rows_of_known(offsets, layout.sizes, layout.pairs)] = known
        slope = wide[numbers] / layout.scale[:, None]
        return cls.of(wide[0], tables, offsets, layout.center, slope, pairs=layout.pairs)

    # -- what they are -------------------------------------------------------------------------

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(n_categorical,) S_j, values of each categorical feature."""
        return np.diff(self.offsets[: len(self.offsets) - len(self.pairs)]) - 2

    @property
    def n_outputs(self) -> int:
        """1 for two classes, else the classes."""
        return 1 if len(self.prior) == 2 else len(self.prior)

    @property
    def intercept(self) -> Floats:
        """(n_outputs,) score of a row of zeros without any value that has a coefficient."""
        lines = self.level - self.slope * self.center[:, None]
        return self._outputs(self.prior + lines.sum(axis=0) + self.common[0])

    @property
    def coef(self) -> Floats:
        """(n_outputs, n_coefficients): of values, of numbers as they are, of pairs of values."""
        return np.ascontiguousarray(np.concatenate(self._blocks()).T)

    def layout(self) -> Layout:
        """Return a layout of these coefficients: numbers about their center, unscaled."""
        where = {"center": self.center, "scale": np.ones(len(self.center))}
        return Layout.of(self.sizes, len(self.prior), **where, pairs=self.pairs)

    def theta(self, layout: Layout) -> Floats:
        """Return them as parameters that stand as a layout says, (n_rows, n_outputs).

        layout  Of the same features and pairs; its centers and scales may be others.

        Raises ValueError when it is of other features.

        Scores of rows with missing or unseen values are the same if such values add nothing, and a
        missing number what its center adds.
        """
        mine = self.layout()
        if mine.n_rows != layout.n_rows or (mine.sizes != layout.sizes).any():
            raise ValueError(f"the coefficients are of {mine}, not of {layout}")
        moved = self.level + self.slope * (layout.center - self.center)[:, None]
        values, numbers, pairs = self._blocks(common=False)
        intercept = self._outputs(self.prior + moved.sum(axis=0))
        numbers = numbers * layout.scale[:, None]
        return np.concatenate([intercept[None], values, numbers, pairs])

    def shared(self, layout: Layout) -> Floats:
        """Return what all classes have besides their parameters, (n_rows, 1).

        layout  As in `theta`.
        """
        found = np.zeros((layout.n_rows, 1))
        found[0] = self.common[0] + layout.center @ self.common[1:]
        found[layout.numeric, 0] = self.common[1:] * layout.scale
        return found

    def _blocks(self, *, common: bool = True) -> tuple[Floats, Floats, Floats]:
        """Return coefficients of values, numbers and pairs, each (any, n_outputs)."""
        known = self.tables[rows_of_known(self.offsets, self.sizes, self.pairs)]
        values, pairs = np.split(known, [int(self.sizes.sum())])
        numbers = self.slope + self.common[1:, None] if common else self.slope
        return self._outputs(values), self._outputs(numbers), self._outputs(pairs)

    def _outputs(self, scores: Floats) -> Floats:
        return scores[..., 1:] if len(self.prior) == 2 else scores

    # -- what they say of rows -----------------------------------------------------------------

    def scorer(self, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        return dispatch.load("scoring.linear", cells).LinearModelScorer(
            *(self.prior, self.tables, self.offsets, self.center),
            *(self.slope, self.level, self.absent, self.pairs),
        )

    def contributions(self, batch: Batch, places: Mapping[str, Sequence[int]], out: Floats) -> None:
        """Write what each feature adds to the scores.

        places  Of the categorical and of the numeric features among all.
        out     (n_rows, n_features, n_classes); each feature of a pair has half of what it adds.
        """
        d = len(self.sizes)
        out[:] = 0.0
        codes = columns_of(with_pairs(batch.codes, self.offsets, self.pairs))
        for feature, column in codes.items():
            added = self.tables[self.offsets[feature] + column.astype(np.int64)]
            both = (feature,) if feature < d else self.pairs[feature - d]
            for one in both:
                out[:, places["categorical"][one]] += added / len(both)
        lines = zip(self.center, self.slope, self.level, self.absent, strict=True)
        for x, line, place in zip(batch.numeric, lines, places["numeric"], strict=True):
            out[:, place] = on_line(x, *line)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return named arrays from which `from_arrays` rebuilds."""
        found = {name: np.asarray(getattr(self, name)) for name in ARRAYS}
        found["pairs"] = np.array(self.pairs, np.int64).reshape(-1, 2)
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the coefficients that `arrays` described.

        arrays  By name; others are ignored.

        Raises KeyError when one is not there.

        Raises ValueError when they do not fit together.
        """
        parts = {name: np.array(arrays[name]) for name in ARRAYS}
        pairs = tuple((int(a), int(b)) for a, b in parts.pop("pairs").tolist())
        found = cls(**parts, pairs=pairs)
        k, p, n = len(found.prior), len(found.center), len(found.offsets) - 1
        shapes = {
            "prior": (k,), "tables": (int(found.offsets[-1]), k), "center": (p,),
            "slope": (p, k), "level": (p, k), "absent": (p, k), "common": (1 + p,),
        }  # fmt: skip
        for name, shape in shapes.items():
            array = parts[name]
            if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"the coefficients' {name} are not {shape} finite numbers")
        rows = np.diff(found.offsets)
        d = n - len(pairs)
        good = d >= 0 and found.offsets[0] == 0 and bool((rows >= 2).all())
        good = good and all(0 <= a < d and 0 <= b < d for a, b in pairs)
        if not (good and [rows[a] * rows[b] for a, b in pairs] == rows[d:].tolist()):
            raise ValueError("the coefficients' offsets and pairs do not fit their tables")
        return found
