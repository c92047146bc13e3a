"""Rows scored by naive Bayes without them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.errors import SchemaError
from fastbayes.kernels import dispatch
from fastbayes.models.discrete.naive_bayes import checked_chance
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import CountTables, Smoothing, logs
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import (
    LooRows,
    LooScorer,
    Without,
    light_rows,
    own_likelihood,
    rows_of,
)
from fastbayes.models.numeric.loo_gaussian import LooGaussians
from fastbayes.models.numeric.numeric_density import ColumnDensities, log_density, some_columns
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.statistics import ClassMoments


class LooDensities:
    """Log densities of columns within each class, without each row's own kernel or count.

    Bandwidths, bins and the choice among them stay as all rows have them. A row changes the density
    of its own class alone. It is taken out where the sketch has it: of more than 4,096 values
    within a class it stands for its range.
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

        `numeric` is one array per column, NaN where missing; `gone` is what each row takes out of
        the weights, None for 1 each; `cells` are those of the whole job.
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


class LooNaive(LooScorer):
    """A `NaiveBayes` by the counts and moments without each row."""

    def __init__(self, model: Any) -> None:
        if checked_chance(model.feature_averaging) is not None:
            raise SchemaError(
                "leave_one_out does not take rows out of feature_averaging, whose probabilities of "
                "features change with every row; k_fold validates it"
            )
        values = model.statistics_.values
        super().__init__(model, values.class_counts, Smoothing(alpha=model.alpha_))
        self.cells = CountTables(values, missing=model.missing, unseen=model.unseen)
        self.precision = model.precision
        if model.alpha == "loo":
            self.fixed = ("schema", "alpha")
        normal = model._densities.gaussian
        self.normal = np.flatnonzero(normal).tolist()
        numeric = [model.schema_.numeric[place].name for place in self.normal]
        self.densities = None
        if model._densities.by_place:
            self.densities = LooDensities(model._densities)
            chosen = ("densities",) if DensitySpec(model.numeric).chooses else ()
            self.fixed = (*self.fixed, *chosen, *self.densities.fixed)
        self.gaussians = None
        self.scatter: Floats | None = None
        if numeric:
            self.gaussians = LooGaussians(
                some_columns(model.statistics_.moments, self.normal),
                weighted=values.weighted,
                names=numeric,
                ddof=model.ddof,
                variance=model.variance,
                var_floor=model.var_floor,
            )
            self.pooled = self.gaussians.of(~self.gaussians.plain)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = dispatch.load("log_joint", cells).NaiveScorer
        nothing, offsets = np.zeros(self.cells.n_classes), self.cells.offsets
        numbers = self.gaussians
        plain = None if numbers is None or not numbers.plain.any() else numbers.gaussians
        others, own = (
            scorer(nothing, logs(self.cells.likelihood(rule)), offsets, curves, self.precision)
            for rule, curves in ((self.rule, plain), (Without(self.rule), None))
        )
        return others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        every_column = rows.batch
        rows = rows._replace(batch=self._normal(every_column))
        codes, every = rows.batch.codes, np.arange(len(out))
        column = np.empty(out.shape)
        others.log_joint(codes, self._plain(rows.batch), out)
        own.log_joint(codes, (), column)
        mine = column[every, rows.y]
        if len(light := light_rows(rows)):
            assert rows.gone is not None
            at = code_rows(rows.batch, self.cells.offsets)[:, light]
            mine[light] = own_likelihood(self.cells, self.rule, at, rows.y[light], rows.gone[light])
        if self.gaussians is None:
            out[every, rows.y] = mine
        else:
            self._numbers(self.gaussians, rows, others, mine, out)
        if self.densities is not None:
            numeric, cells = every_column.numeric, every_column.cells
            out += self.densities.log_density(numeric, rows.y, rows.gone, cells)
        out += self.prior(rows.y, rows.gone)

    def _normal(self, batch: Batch) -> Batch:
        """Return a batch of the Gaussian columns alone among the numeric ones."""
        if self.densities is None:
            return batch
        return replace(batch, numeric=tuple(batch.numeric[place] for place in self.normal))

    def _plain(self, batch: Batch) -> tuple[Floats, ...]:
        """Return the columns in which a row changes the density of its own class alone."""
        if self.gaussians is None:
            return ()
        return tuple(
            x for x, plain in zip(batch.numeric, self.gaussians.plain, strict=True) if plain
        )

    def _numbers(
        self, numbers: LooGaussians, rows: LooRows, others: Any, mine: Floats, out: Floats
    ) -> None:
        """Put numbers into log joints of values, and `mine` into the column of the row's class.

        `out` holds the densities of the plain columns for the other classes.
        """
        batch, y, gone = rows
        numeric, every = batch.numeric, np.arange(len(out))
        dense, low = numbers.own_log_density(numeric, y, gone)
        out[every, y] = mine + dense
        if not numbers.plain.all():
            rest = [x for x, plain in zip(numeric, numbers.plain, strict=True) if not plain]
            out += self.pooled.log_density(rest, y, gone)
        if self.scatter is not None:
            low[:] = True
        if len(some := np.flatnonzero(low)):
            few = taken(batch, some)
            nothing = tuple(np.full(len(some), np.nan) for _ in self._plain(few))
            exact = np.empty((len(some), out.shape[1]))
            others.log_joint(few.codes, nothing, exact)
            exact[np.arange(len(some)), y[some]] = mine[some]
            told = few.numeric, y[some], None if gone is None else gone[some]
            out[some] = exact + numbers.log_density(*told, self.scatter)

    def doubtful(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of rows that hold nearly all of the scatter of their class."""
        if self.gaussians is None:
            return super().doubtful(batch)
        rows = rows_of(batch)
        return self.gaussians.doubtful(self._normal(batch).numeric, rows.y, rows.gone)

    def rest(self, batch: Batch) -> ClassMoments | None:
        """Return the moments of rows, none of them doubtful."""
        if self.gaussians is None:
            return None
        moments = ClassMoments(self.gaussians.moments.shape)
        moments.update(self._normal(batch))
        return moments

    def settled(self, batch: Batch, others: ClassMoments) -> LooScorer:
        """Return what scores a batch of all doubtful rows, given the moments of the others."""
        assert self.gaussians is not None
        better = copy(self)
        y = rows_of(batch).y
        numeric = self._normal(batch).numeric
        better.scatter = self.gaussians.scatter_without(others, numeric, y, batch.weight)
        return better
