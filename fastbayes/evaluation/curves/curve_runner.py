"""Models fitted to samples of rows, each a part of the next, and tested on rows of no sample."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import FastBayesError, FastBayesWarning, MemoryLimitError
from fastbayes.core.schema import Schema
from fastbayes.data.draws import Census, Draw, Drawn, Increments, takers
from fastbayes.data.encode import Encoder, Place
from fastbayes.data.memory import TableSource
from fastbayes.data.segments import Segment, Source
from fastbayes.evaluation.curves.curve_models import (
    Arrays,
    Learner,
    SampledRows,
    by_schema,
    from_counts,
    from_rows,
)
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    Part,
    ScoredBlock,
    applying,
    scores,
)
from fastbayes.evaluation.validation import Evaluator
from fastbayes.scan import engine
from fastbayes.scan.counting import Opened
from fastbayes.scan.engine import Progress
from fastbayes.statistics.bundle import Statistics

logger = logging.getLogger("fastbayes")

# Cells of a sample that are held in memory rather than read again for every size.
HELD_CELLS = 1 << 26

At = tuple[int, int]  # a model and a size, by their places


def census_of(opened: Opened, threads: int | None) -> Census:
    """Return which rows have a class and a weight above 0, from one scan.

    Parameters
    ----------
    opened
        The rows.
    threads
        Worker threads.
    """
    full = opened.learning()
    encoder = Encoder([], full.target, template=full.template, weight=full.weight)
    encoder.expect(opened.source.n_rows)

    def count(segment: Segment) -> tuple[int, int]:
        done, kept = 0, 0
        for rows in segment.batches():
            at = takers(encoder, segment, done, rows)
            done += rows.num_rows
            kept += rows.num_rows if at is None else len(at)
        return done, kept

    workers = engine.resolved_threads(threads)
    found = list(engine.in_order(count, opened.source.segments(BLOCK_ROWS), workers))
    n_rows, kept = np.array([(0, 0), *found], np.int64).T
    return Census(encoder, np.cumsum(kept), bool((n_rows == kept).all()))


class Sample:
    """One random order of the rows: samples from its front, test rows from its end.

    Parameters
    ----------
    rows
        The rows.
    census
        Which of them take part.
    draw
        The order.
    sizes
        (n_sizes,) of the samples, ascending.
    n_test
        Rows to test on.
    """

    def __init__(
        self, rows: SampledRows, census: Census, draw: Draw, sizes: NDArray[np.int64], n_test: int
    ) -> None:
        self.rows, self.sizes = rows, sizes
        source = rows.opened.source
        self.most, self.n_rows = int(sizes[-1]), census.n_rows
        self.place = "place"
        while self.place in source.schema.names:
            self.place += "_"
        self._source, self._census, self._draw = source, census, draw
        self.n_test = n_test

    def _drawn(self, least: int, most: int, column: str | None = None) -> Drawn:
        return Drawn(self._source, self._census, self._draw, least, most, column)

    def _held(self, n_rows: int) -> bool:
        width = len(self._source.schema.names)
        return self._source.in_memory or n_rows * width <= HELD_CELLS

    @cached_property
    def train_table(self) -> pa.Table:
        """The largest sample, in order: its first rows are those of the smaller ones."""
        return self._drawn(0, self.most, self.place).table()

    @cached_property
    def test_table(self) -> pa.Table:
        """The rows to test on."""
        return self._drawn(self.n_rows - self.n_test, self.n_rows, self.place).table()

    @cached_property
    def train_arrays(self) -> Arrays:
        """The largest sample as estimators of scikit-learn take it."""
        return Arrays.of(self.train_table, self.rows)

    @cached_property
    def test_arrays(self) -> Arrays:
        """The rows to test on as estimators of scikit-learn take them."""
        return Arrays.of(self.test_table, self.rows)

    def of(self, size: int) -> Source:
        """Return the rows of a sample."""
        if not self._held(self.most):
            return self._drawn(0, size)
        return TableSource(self.train_table.slice(0, size), description=self._source.description)

    @cached_property
    def test(self) -> Source:
        """The rows to test on, as a source."""
        if not self._held(self.n_test):
            return self._drawn(self.n_rows - self.n_test, self.n_rows)
        return TableSource(self.test_table, description=self._source.description)

    def counted(
        self,
        learning: Callable[..., Encoder],
        names: Iterable[str],
        limits: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> list[Statistics]:
        """Return the statistics of every sample: those of the last and of the rows beyond it.

        Parameters
        ----------
        learning
            Gives an encoder.
        names
            Of the statistics.
        limits
            Threads and memory_limit as in `fastbayes.count`.
        progress
            Called with the number of rows counted since the last call.

        Raises
        ------
        MemoryLimitError
            When the counts of all increments at once exceed the limit.
        """
        stats = engine.scan(
            self._drawn(0, self.most, self.place),
            learning(),
            names,
            folds=Increments(self.place, self.sizes),
            progress=progress,
            **limits,
        )
        return list(accumulate(stats.folds))


class CurveRunner:
    """Models that are fitted and tested, one random order of the rows after the other.

    Parameters
    ----------
    rows
        The rows.
    census
        Which of them take part.
    entered
        The models.
    sizes
        (n_sizes,) ascending.
    n_test
        Rows to test on.
    limits
        Threads and memory_limit as in `fastbayes.count`.
    progress
        As in `learning_curve`.
    """

    def __init__(
        self,
        rows: SampledRows,
        census: Census,
        entered: Sequence[Learner],
        sizes: NDArray[np.int64],
        n_test: int,
        limits: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        self.rows, self.census, self.entered = rows, census, list(entered)
        self.sizes, self.n_test = sizes, n_test
        self.limits, self.progress = limits, progress
        # Of each model: why it could not be fitted to some size; what it had to say of a fit, and
        # of how many there was something to say.
        self.reasons: dict[str, str] = {}
        self.cautions: dict[str, tuple[str, int]] = {}
        by_counts = [learner for learner in entered if learner.way == "counts"]
        self.groups = list(by_schema(by_counts, rows))

    def repeat(self, draw: Draw) -> dict[At, Evaluator]:
        """Return what each model, by its place, made of the test rows from each size, by its."""
        sample = Sample(self.rows, self.census, draw, self.sizes, self.n_test)
        fitted: dict[At, Any] = {}
        found: dict[At, Evaluator] = {}
        for learning, members in self.groups:
            fitted |= self._from_counts(sample, learning, members)
        for m, learner in enumerate(self.entered):
            if learner.way == "rows":
                fitted |= self._from_rows(sample, m, learner)
            elif learner.way == "arrays":
                for at, model in self._from_arrays(sample, m, learner):
                    found[at] = sample.test_arrays.scored(model, self._classes)
        return found | self._scored(sample, fitted)

    @property
    def _classes(self) -> NDArray[Any]:
        return self.rows.schema.class_labels

    def _from_counts(
        self, sample: Sample, learning: Callable[..., Encoder], members: Sequence[Learner]
    ) -> dict[At, Any]:
        """Fit models to counts of which each size is the sum of the last and an increment."""
        needed = (name for learner in members for name in learner.make()._statistics)
        names = [*dict.fromkeys(needed)]
        try:
            stats = sample.counted(learning, names, self.limits, self.progress)
        except MemoryLimitError as error:
            logger.info("%s; each size is counted by itself", error)
            stats = []
        fitted: dict[At, Any] = {}
        for learner in members:
            m = self.entered.index(learner)
            if not stats:
                fitted |= self._from_rows(sample, m, learner)
            for s, counted in enumerate(stats):
                with self._noting(learner, s):
                    fitted[m, s] = from_counts(learner.make(), counted)
        return fitted

    def _from_rows(self, sample: Sample, m: int, learner: Learner) -> dict[At, Any]:
        """Fit a model to the rows of each size, a warm one from the coefficients of the last."""
        fitted: dict[At, Any] = {}
        model = learner.make()
        for s, size in enumerate(self.sizes.tolist()):
            with self._noting(learner, s):
                found = from_rows(model, self.rows, sample.of(size))
                fitted[m, s] = copy.copy(found) if learner.warm else found
            model = model if learner.warm else learner.make()
        return fitted

    def _from_arrays(self, sample: Sample, m: int, learner: Learner) -> Iterator[tuple[At, Any]]:
        """Yield an estimator fitted to the rows of each size; one that is warm goes on."""
        model, seen = learner.make(), 0
        for s, size in enumerate(self.sizes.tolist()):
            some = sample.train_arrays.first(size)
            # Coefficients of fewer classes have another shape: it begins anew.
            if not learner.warm or len(np.unique(some.codes)) != seen:
                model, seen = learner.make(), len(np.unique(some.codes))
            fitted = None
            with self._noting(learner, s):
                fitted = some.fitted(model)
            if fitted is not None:
                yield (m, s), fitted

    @contextmanager
    def _noting(self, learner: Learner, s: int) -> Iterator[None]:
        """Take note of why a model cannot be fitted to a size, or of what it warns."""
        n = int(self.sizes[s])
        size = f"{n:,} row{'s' * (n > 1)}"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", FastBayesWarning)
            try:
                yield
            except (FastBayesError, ValueError) as error:
                self.reasons.setdefault(learner.name, f"{size}: {error}")
        cautions = [one for one in said if issubclass(one.category, FastBayesWarning)]
        if cautions:
            first, fits = self.cautions.get(learner.name, (f"{size}: {cautions[0].message}", 0))
            self.cautions[learner.name] = first, fits + 1
        for one in said:
            if one not in cautions:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    def _scored(self, sample: Sample, fitted: Mapping[At, Any]) -> dict[At, Evaluator]:
        """Score the test rows by all models of tables in one scan."""
        if not fitted:
            return {}
        encoders: list[tuple[Schema, Encoder, list[int]]] = []
        for i, model in enumerate(fitted.values()):
            for schema, _, members in encoders:
                if schema == model.schema_:
                    members.append(i)
                    break
            else:
                encoder = applying(self.rows.opened, model.schema_)
                encoder.expect(sample.n_test)
                encoders.append((model.schema_, encoder, [i]))

        def parts(segment: Segment) -> Iterator[ScoredBlock]:
            for rows in segment.batches():
                for _, encoder, members in encoders:
                    encoded = encoder.encode(rows, Place(segment.origin, -1))
                    # The codes last until the next encoding: a block for each encoder.
                    yield ScoredBlock(
                        rows.num_rows, [Part(i, encoded.batch, None) for i in members]
                    )

        contestant = Contestant(self._classes, [Fitted(model) for model in fitted.values()])
        (score,), _ = scores(
            sample.test, parts, [contestant], threads=self.limits["threads"], ranks=False
        )
        return dict(zip(fitted, score.evaluators, strict=True))
