"""Densities of numeric columns without each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.numeric.numeric_density import ColumnDensities, log_density


class LooDensities:
    """Log densities of columns within each class, without each row's own kernel or count.

    Parameters
    ----------
    densities
        Of a fitted model: bandwidths, bins and the choice among them stay as all rows have them.

    Notes
    -----
    A row changes the density of its own class alone. It is taken out where the sketch has it: of
    more than 4,096 values within a class it stands for its range.
    """

    def __init__(self, densities: ColumnDensities) -> None:
        self.by_place = densities.by_place
        # Log density of each value of a class without one row there, by place and class.
        self._without_one: dict[tuple[int, int], Floats] = {}
        kinds = {densities.kinds[place] for place in self.by_place}
        self.fixed = (*["bandwidths"] * ("kde" in kinds), *["bins"] * (len(kinds - {"kde"}) > 0))

    def log_density(
        self, numeric: Sequence[Floats], y: NDArray[np.intp], gone: Floats | None, cells: float
    ) -> Floats:
        """Return the sum over the known columns of ln f(x_j | c), (n_rows, n_classes).

        Parameters
        ----------
        numeric
            One (n_rows,) array per numeric column, NaN where missing.
        y
            (n_rows,) classes.
        gone
            (n_rows,) what each row takes out of the weights; None: 1 each.
        cells
            Rows x columns of the whole job.
        """
        total: Floats | float = 0.0
        for place, density in self.by_place.items():
            x = numeric[place]
            found = log_density(density.curves, x, cells)
            for c in np.unique(y).tolist():
                rows = np.flatnonzero((y == c) & ~np.isnan(x))
                if len(rows):
                    less = np.ones(len(rows)) if gone is None else gone[rows]
                    found[rows, c] = self._own(place, c, x[rows], less)
            total = total + found
        return np.asarray(total)

    def _own(self, place: int, label: int, x: Floats, less: Floats) -> Floats:
        """Return the log density of the class of rows, without what each weighs."""
        density = self.by_place[place]
        at = density.values.cell(label, x)
        if (place, label) not in self._without_one:
            every = np.arange(len(density.values.points[label]))
            one = np.ones(len(every))
            self._without_one[place, label] = density.left_out(label, every, one)
        found = self._without_one[place, label][at]
        if len(light := np.flatnonzero(less < 1)):
            # Rows that share a value, and as much of its weight, are one question.
            asked = np.stack([at[light], less[light]])
            different, which = np.unique(asked, axis=1, return_inverse=True)
            answers = density.left_out(label, different[0].astype(np.int64), different[1])
            found[light] = answers[which.reshape(-1)]
        return found
