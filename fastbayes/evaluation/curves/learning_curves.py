"""`learning_curve`: how good models become with more rows, from samples each part of the next."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import (
    DataError,
    FastBayesError,
    FastBayesWarning,
    MemoryLimitError,
    SchemaError,
)
from fastbayes.core.numbers import check_whole, is_number
from fastbayes.core.picks import Picks, free_name
from fastbayes.core.schema import Schema
from fastbayes.core.suggestions import use_one_of
from fastbayes.data.columns import floats
from fastbayes.data.dates import with_parts
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import Census, Draw, Drawn, Increments, checked_seed
from fastbayes.data.memory import TableSource
from fastbayes.data.segments import Place, Segment, Source
from fastbayes.evaluation.calibrate.calibration import Calibrated
from fastbayes.evaluation.curves.curve_table import METRICS, LearningCurve
from fastbayes.evaluation.curves.fit_source import fit_rows
from fastbayes.evaluation.intervals import check_confidence
from fastbayes.evaluation.validate.comparison import enter, named_models
from fastbayes.evaluation.validate.scored_rows import Part, Parts, ScoredBlock
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    check_models_held,
    encoders_by,
    held_by,
    learns_by_subtraction,
    scores,
)
from fastbayes.evaluation.validation import Evaluator
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.base import Classifier, check_learnable
from fastbayes.models.estimator.inputs import require_labels
from fastbayes.models.registry import candidates
from fastbayes.scan import engine
from fastbayes.scan.budget import SLACK
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.opening import Opened, census_of, opened_to_learn
from fastbayes.scan.request import Progress
from fastbayes.scan.row_blocks import encoded_blocks
from fastbayes.statistics.bundle import Statistics

# Rows kept to test on by default: a fifth, but no more than say all that is to be said.
TEST_SHARE, MOST_TEST_ROWS = 0.2, 100_000
# Default sizes, from this many rows on.
N_SIZES, LEAST_ROWS = 8, 10


def learning_curve(
    models: Any,
    source: Any,
    target: Any,
    sizes: Any = None,
    repeats: int = 10,
    seed: int = 0,
    *,
    test: float | None = None,
    confidence: float = 0.95,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Picks = None,
    discretize: Any = "mdl",
    missing: str = "marginalize",
    columns: Picks = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> LearningCurve:
    """Fit models to more and more rows, and test each on the same rows that none learned from.

    Parameters
    ----------
    models
        Names as in `compare`, but for "prior"; models with their parameters; or {name: either}. All
        read the rows alike: `missing`, `columns`, `exclude`, `categorical`, `domains` and `dates`
        are for the curve, not for a model.
        Estimators of scikit-learn get numeric columns as an array, others in a pandas frame.
    source
        As in `fastbayes.count`, to be read several times; it need not fit in memory.
    target
        Name of the class column or (n_rows,) labels. Rows without a class take no part.
    sizes
        Numbers of rows, or shares (floats to 1.0) of those that are not tested on; eight in
        geometric order by default.
    repeats
        How often rows are drawn anew.
    seed
        What decides the order in which each repeat draws them.
    test
        Rows, or the share of all rows, that each repeat keeps to test on; a fifth by default, but
        100,000 at most.
    confidence
        Of the intervals.
    sample_weight
        Name of the weight column, or (n_rows,) weights. A row counts as one of a size whatever it
        weighs, and as its weight in learning and in the figures.
    domains, categorical
        As in `fastbayes.count`.
    discretize
        As in `fastbayes.count`, for models given by name.
    missing, columns, exclude, dates, null_values, filesystem, threads
        As in `fastbayes.count`.
    memory_limit
        As in `fastbayes.count`. Models are scored some at a time. Those whose counts of all sizes
        exceed it count every size by itself: sums of numbers and weights are then made in another
        order, which changes their last digits.
    progress
        Called with the number of rows counted since the last call, in every scan that counts.

    Returns
    -------
    LearningCurve
        Print it, or see its `table`, `differences()` and `plot()`; `crossover` finds where one
        model overtakes another.

    Raises
    ------
    DataError
        When the data cannot be used, or no model can be fitted to them.
    MemoryLimitError
        When what is counted exceeds the limit, that of every model.
    SchemaError
        When the source can be read only once.
    ValueError
        When an option is not usable, or a size is above the rows that there are to learn from.

    Notes
    -----
    Each repeat orders the rows at random and takes a size from the front, so that every size holds
    all smaller ones, and test rows from the end. Models that learn from counts get the sum of the
    last size's counts and those of the rows beyond it, all from one scan a repeat; models that
    learn from rows, and those that learn cut points or a structure by scans, are fitted to the rows
    of each size, ours of them from the coefficients of the size before.

    Classes and domains are those of all rows, at every size. A class that no row of a size has gets
    what the model's smoothing gives it; where that is nothing (an unsmoothed prior, an estimator of
    scikit-learn, which was never shown it) its probability is 0, counts as 1e-15 in the log-loss,
    34.5 nats, and the share of such rows is reported as `clipped`. What a model warns of is kept as
    `cautions`: of few rows there is much to be said.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("0011") * 50, "b": list("0101") * 50, "y": list("nppn") * 50}
    >>> curve = fb.learning_curve(["naive-bayes", "tan"], table, "y", sizes=[10, 160], repeats=3)
    >>> curve.accuracy[:, -1].mean(axis=1).round(2)
    array([0.4, 1. ])
    """
    check_whole("repeats", repeats, 1)
    checked_seed(seed)
    sure = check_confidence(confidence)
    require_labels("learning_curve", target)
    opened = opened_to_learn(
        source,
        target,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        missing=missing,
        columns=columns,
        exclude=exclude,
        dates=dates,
        null_values=null_values,
        filesystem=filesystem,
        threads=threads,
        again="learning_curve reads it for every repeat",
    )
    given: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    options = {"missing": missing, "discretize": discretize}
    limits = {name: value for name, value in given.items() if value is not None}
    entered = learners(models, opened, options, limits)
    whole = engine.scan(opened.source, opened.learning(), ("values",), progress=progress, **given)
    for learner in entered:
        check_suits(learner, whole)
    census = census_of(opened, threads)
    if census.n_rows < 2:
        raise DataError(
            f"{opened.source.description}: {census.n_rows} rows have a class and a weight above 0: "
            "a learning curve takes one to learn from and one to test on, at least"
        )
    check_learnable(whole, opened.source.description)
    n_test = _test_rows(test, census.n_rows)
    at = _sizes(sizes, census.n_rows, n_test)
    rows = SampledRows(opened, whole.schema, encoders_by(opened, whole.schema))
    laboratory = CurveRunner(rows, census, entered, at, n_test, given, progress)
    shape = len(entered), len(at), int(repeats)
    figures = {name: np.full(shape, np.nan) for name in (*METRICS, "clipped")}
    for r in range(shape[2]):
        for (m, s), evaluator in laboratory.repeat(Draw(census.n_rows, int(seed), r)).items():
            found = evaluator.result()
            for name in METRICS:
                figures[name][m, s, r] = getattr(found, name)
            figures["clipped"][m, s, r] = found.clipped / found.n
    if np.isnan(figures["log_loss"]).all():
        why = "; ".join(f"{name}: {reason}" for name, reason in laboratory.reasons.items())
        short = why and laboratory.over_limit == laboratory.reasons.keys()
        kind = MemoryLimitError if short else DataError
        raise kind(f"{opened.source.description}: no model can be fitted: {why}")
    return LearningCurve(
        models=tuple(learner.name for learner in entered),
        sizes=at,
        rows=census.n_rows,
        test_rows=n_test,
        classes=whole.schema.class_labels,
        seed=int(seed),
        confidence=sure,
        reasons=laboratory.reasons,
        cautions={name: f"{n} fits, {first}" for name, (first, n) in laboratory.cautions.items()},
        **figures,
    )


def _test_rows(test: Any, n_rows: int) -> int:
    least = min(math.ceil(TEST_SHARE * n_rows), MOST_TEST_ROWS)
    n = least if test is None else _rows(test, n_rows)
    if n is None:
        raise ValueError(f"test={test!r}: use a number of rows, or a share between 0 and 1")
    if not 0 < n < n_rows:
        raise ValueError(
            f"test={test!r} keeps {n:,} of {n_rows:,} rows to test on, which leaves none for the "
            "one or the other; use a share such as 0.2, or more rows"
        )
    return n


def _rows(size: Any, of: int) -> int | None:
    """Return a number of rows, or of a share of them; None where it is neither."""
    if not is_number(size):
        return None
    x = float(size)
    # 1 is a row, but 1.0 all of them, as scikit-learn has it.
    if 0 < x < 1 or (x == 1 and isinstance(size, (float, np.floating))):
        return max(1, round(x * of))
    return int(x) if x >= 1 and x.is_integer() else None


def _sizes(sizes: Any, n_rows: int, n_test: int) -> NDArray[np.int64]:
    """Return the sizes, ascending and none twice."""
    most = n_rows - n_test
    if sizes is None:
        least = min(LEAST_ROWS, most)
        return np.unique(np.geomspace(least, most, N_SIZES).round().astype(np.int64))
    given = [sizes] if isinstance(sizes, (int, float, np.number)) else list(sizes)
    if not given:
        raise ValueError("sizes: name one at least")
    found = set()
    for size in given:
        n = _rows(size, most)
        if n is None:
            raise ValueError(f"sizes: {size!r} is neither a number of rows nor a share of them")
        if n > most:
            raise ValueError(
                f"sizes: there are {most:,} rows to learn from, not {n:,}: {n_test:,} of "
                f"{n_rows:,} are tested on; use smaller sizes, or a smaller test="
            )
        found.add(n)
    return np.array(sorted(found), np.int64)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Learner:
    """A model of a learning curve.

    name   in the table
    make   returns it unfitted
    way    what it learns from: "counts", of which each size is the sum of the last and an
           increment; "rows" of tables; or "arrays", as estimators of scikit-learn do
    warm   whether it goes on from the coefficients of the size before
    """

    name: str
    make: Callable[[], Any]
    way: str
    warm: bool = False


def learners(
    models: Any, opened: Opened, given: Mapping[str, Any], limits: Mapping[str, Any]
) -> list[Learner]:
    """Return the models that are to learn.

    Models asked for by name have those of the parameters `given` that they know, but for those that
    make the name; every model has the `limits` of threads and memory that the caller sets. Raises
    ValueError when a model is unknown or stands twice, or has no probabilities.
    """
    found: dict[str, Learner] = {}
    for name, model in named_models(models):
        if isinstance(model, str):
            if model not in (known := candidates()):
                raise ValueError(f"models: {model!r}: {use_one_of(model, known)}")
            name, model = name or model, _named(model, given)
        if isinstance(model, type) or not hasattr(model, "fit"):
            raise ValueError(f"models: {model!r} is neither a name nor an unfitted model")
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"models: {type(model).__name__} has no predict_proba, which a log-loss takes: "
                "give a model of probabilities"
            )
        ours = isinstance(model, (Classifier, Calibrated))
        name = str(name or (repr(model) if ours else type(model).__name__))
        enter(found, name, _learner(name, model, opened, limits))
    return list(found.values())


def _named(name: str, given: Mapping[str, Any]) -> Any:
    entry, candidate = candidates()[name]
    model = entry.make(candidate)
    has = model.get_params(deep=False)
    if model._discretizes and "discretize" not in has:
        if not (given["discretize"] == "mdl" or isinstance(given["discretize"], Mapping)):
            raise ValueError(
                f"models: {name!r} is cut by discretize='mdl' or at points of your own, "
                f"not by {given['discretize']!r}"
            )
        model.set_params(numeric=given["discretize"])
    # What makes the name stays: the bins of "tan-quantile", "aode-missing"'s missing values.
    own = candidate.parameters
    return model.set_params(**_those(model, {n: given[n] for n in given if n not in own}))


def _those(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are parameters of a model."""
    has = model.get_params(deep=False)
    return {name: value for name, value in given.items() if name in has}


def _learner(name: str, model: Any, opened: Opened, limits: Mapping[str, Any]) -> Learner:
    if isinstance(model, Calibrated):
        model._check_parameters()
        inner = _learner(name, model.unfitted(), opened, limits)
        params = model.get_params(deep=False)
        return Learner(name, lambda: Calibrated(**{**params, "model": inner.make()}), "rows")
    if not isinstance(model, Classifier):
        # A warm forest would keep its old trees: only who asks for it gets it.
        warm = bool(getattr(model, "warm_start", False))
        return Learner(name, partial(_unfitted, model), "arrays", warm)
    more = _those(model, limits)
    if warm := "warm_start" in model.get_params(deep=False):
        more["warm_start"] = True  # the optimum is the same, and near
    make = partial(type(model), **{**model.get_params(deep=False), **more})
    make()._check_parameters()
    by_counts = hasattr(model, "fit_statistics") and learns_by_subtraction(
        make(), opened.learning()
    )
    return Learner(name, make, "counts" if by_counts else "rows", warm)


def _unfitted(model: Any) -> Any:
    """Return an estimator with the parameters of another, unfitted."""
    if not hasattr(model, "get_params"):
        return copy.deepcopy(model)
    return type(model)(**copy.deepcopy(model.get_params(deep=False)))


class SampledRows(NamedTuple):
    """Rows of which models learn, and how they are read.

    opened    all rows
    schema    of all rows: classes and domains
    learning  gives an encoder that learns, with the classes and domains of all rows declared
    """

    opened: Opened
    schema: Schema
    learning: Callable[..., Encoder]

    def cut(self, model: Any) -> Callable[..., Encoder]:
        """Return what gives encoders for a model whose cut points are given, if it has any."""
        if (to_cut := model._to_cut(self.learning())) is None:
            return self.learning
        return partial(self.learning, cuts=numeric_cuts(self.opened.source, *to_cut))


def from_counts(model: Any, stats: Statistics) -> Any:
    """Return a model fitted to statistics that hold what it needs, and may hold more."""
    own = replace(stats, parts={name: stats.parts[name] for name in model._statistics})
    return model.fit_statistics(own)


def from_rows(model: Any, rows: SampledRows, source: Source) -> Any:
    """Return a model fitted to rows, with the classes and domains of all rows."""
    model._check_parameters()
    if isinstance(model, Calibrated):
        inner = from_rows(model.unfitted(), rows, source)
        return model.calibrate(inner, source, str(rows.opened.target), rows.opened.weight)
    return fit_rows(model, source, rows.learning)


def applying(opened: Opened, schema: Schema, n_rows: int | None = None) -> Encoder:
    """Return an encoder of the rows, `n_rows` of them or all, by the schema of models."""
    encoder = Encoder.applying_to(
        schema, opened.source.schema, target=opened.target, weight=opened.weight
    )
    encoder.expect(opened.source.n_rows if n_rows is None else n_rows)
    return encoder


class Arrays(NamedTuple):
    """Rows as estimators of scikit-learn take them.

    X       (n_rows, n_features) float64 where all columns are numeric, else a pandas frame
    y       (n_rows,) labels
    codes   (n_rows,) their positions among the classes
    weight  (n_rows,); None where every row weighs 1
    """

    X: Any
    y: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats | None

    @classmethod
    def of(cls, table: pa.Table, rows: SampledRows) -> Arrays:
        """Return the rows of a table, all of which have a class."""
        encoder = applying(rows.opened, replace(rows.schema, features=()))
        batches = [
            encoded.batch
            for segment in TableSource(table).segments(BLOCK_ROWS)
            for _, encoded in encoded_blocks(segment, encoder)
        ]
        codes = np.concatenate([np.asarray(b.classes, np.int64) for b in batches])
        weights = [b.weight for b in batches if b.weight is not None]
        X = with_parts(table, rows.schema).select(rows.schema.names)
        if rows.schema.categorical:
            try:
                X = X.to_pandas()
            except ImportError as error:
                raise FastBayesError(
                    "an estimator of scikit-learn gets categorical columns in a pandas frame: "
                    "install pandas, or give a model of fastbayes"
                ) from error
        else:
            kernels = dispatch.load("reading.encode", X.num_rows * X.num_columns)
            X = np.column_stack([floats(column, kernels)[0] for column in X.columns])
        labels = rows.schema.class_labels
        return cls(X, labels[codes], codes, np.concatenate(weights) if weights else None)

    def first(self, n: int) -> Arrays:
        """Return the first rows."""
        return Arrays(
            self.X[:n], self.y[:n], self.codes[:n], None if self.weight is None else self.weight[:n]
        )

    def fitted(self, model: Any) -> Any:
        """Return an estimator fitted to a copy of the rows, which it may work on in place."""
        own = copy.deepcopy(self)
        more = {} if own.weight is None else {"sample_weight": own.weight}
        model.fit(own.X, own.y, **more)
        return model

    def scored(self, model: Any, classes: NDArray[Any]) -> Evaluator:
        """Return what an estimator makes of the rows; classes it has not seen have no chance."""
        place = {label: i for i, label in enumerate(classes.tolist())}
        proba = np.zeros((len(self.codes), len(classes)))
        proba[:, [place[label] for label in np.asarray(model.classes_).tolist()]] = (
            model.predict_proba(copy.deepcopy(self.X))
        )
        found = Evaluator(classes, ranks=False)
        found.update(proba, self.codes, self.weight)
        return found


def by_schema(schemas: Iterable[Schema]) -> list[tuple[Schema, list[int]]]:
    """Return the different schemas, each with the places at which it stands."""
    groups: list[tuple[Schema, list[int]]] = []
    for place, schema in enumerate(schemas):
        members = next((places for known, places in groups if known == schema), None)
        if members is None:
            groups.append((schema, [place]))
        else:
            members.append(place)
    return groups


def check_suits(learner: Learner, stats: Statistics) -> None:
    """Raise SchemaError where a model wants rows to be read otherwise than all others."""
    if learner.way == "arrays":
        return
    model = learner.make()
    model = model.unfitted() if isinstance(model, Calibrated) else model
    try:
        Classifier._check_suits(model, stats, "a learning curve")
    except SchemaError as error:
        raise SchemaError(f"{learner.name}: {error}") from error


logger = logging.getLogger("fastbayes")

# Cells of a sample that are held in memory rather than read again for every size.
HELD_CELLS = 1 << 26

At = tuple[int, int]  # a model and a size, by their places


class Sample:
    """One random order of the rows: samples from its front, `n_test` test rows from its end.

    `census` tells which rows take part; `sizes` are those of the samples, ascending.
    """

    def __init__(
        self, rows: SampledRows, census: Census, draw: Draw, sizes: NDArray[np.int64], n_test: int
    ) -> None:
        self.rows, self.sizes = rows, sizes
        source = rows.opened.source
        self.most, self.n_rows = int(sizes[-1]), census.n_rows
        self.place = free_name("place", source.schema.names)
        self._source, self._census, self._draw = source, census, draw
        self.n_test = n_test

    def _drawn(self, least: int, most: int, column: str | None = None) -> Drawn:
        return Drawn(self._source, self._census, self._draw, least, most, column)

    def _held(self, n_rows: int) -> bool:
        n_cells = n_rows * len(self._source.schema.names)
        return self._source.in_memory or n_cells <= HELD_CELLS

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
    ) -> Iterator[Statistics]:
        """Return the statistics of every sample: those of the last and of the rows beyond it.

        Raises MemoryLimitError when the counts of all increments at once, and what is made of them,
        exceed the limit.
        """
        stats = engine.scan(
            self._drawn(0, self.most, self.place),
            learning(),
            names,
            folds=Increments(self.place, self.sizes),
            progress=progress,
            **limits,
        )
        # The sums up to two sizes, and models of these: tables are as large as counts.
        made = 4 * max(fold.nbytes for fold in stats.folds)
        need = stats.nbytes + made
        check_models_held(need, limits["memory_limit"], "counts of every size", "sizes")
        return accumulate(stats.folds)


class EncodedByAll(NamedTuple):
    """Encodes every row for all models, those of each schema by an encoder of theirs.

    encoders  with the places of their models, which stand for folds
    """

    encoders: Sequence[tuple[Encoder, Sequence[int]]]

    def parts(self, columns: pa.Schema, n_rows: int | None, *, once: bool = False) -> Parts:
        """Return what encodes the blocks of the rows."""
        return self._blocks

    def _blocks(self, segment: Segment) -> Iterator[ScoredBlock]:
        for rows in segment.batches():
            for encoder, members in self.encoders:
                encoded = encoder.encode(rows, Place(segment.origin, -1))
                # The codes last until the next encoding: a block for each encoder.
                yield ScoredBlock(rows.num_rows, [Part(i, encoded.batch, None) for i in members])


class CurveRunner:
    """Models that are fitted and tested, one random order of the rows after the other."""

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
        self.over_limit: set[str] = set()  # models of which that is the memory limit
        self.cautions: dict[str, tuple[str, int]] = {}
        by_counts = [learner for learner in entered if learner.way == "counts"]
        learning = [rows.cut(learner.make()) for learner in by_counts]
        self.groups = [
            (learning[places[0]], [by_counts[i] for i in places])
            for _, places in by_schema(one().schema() for one in learning)
        ]

    def repeat(self, draw: Draw) -> dict[At, Evaluator]:
        """Return what each model, by its place, made of the test rows from each size, by its."""
        sample = Sample(self.rows, self.census, draw, self.sizes, self.n_test)
        found: dict[At, Evaluator] = {}
        limit, held = self.limits["memory_limit"], dict[At, Any]()
        for at, model in self._of_tables(sample):
            held[at] = model
            del model
            # Beside the next that is fitted within the limit there is room for little.
            if limit is not None and held_by(held.values()) > SLACK:
                found |= self._scored(sample, held)
                held.clear()
        found |= self._scored(sample, held)
        held.clear()
        for m, learner in enumerate(self.entered):
            if learner.way == "arrays":
                for at, model in self._from_arrays(sample, m, learner):
                    found[at] = sample.test_arrays.scored(model, self._classes)
        return found

    def _of_tables(self, sample: Sample) -> Iterator[tuple[At, Any]]:
        """Yield each model of tables fitted to each size; none is held here once it is yielded."""
        for learning, members in self.groups:
            yield from self._from_counts(sample, learning, members)
        for m, learner in enumerate(self.entered):
            if learner.way == "rows":
                yield from self._from_rows(sample, m, learner)

    @property
    def _classes(self) -> NDArray[Any]:
        return self.rows.schema.class_labels

    def _from_counts(
        self, sample: Sample, learning: Callable[..., Encoder], members: Sequence[Learner]
    ) -> Iterator[tuple[At, Any]]:
        """Fit models to counts of which each size is the sum of the last and an increment."""
        needed = [*dict.fromkeys(n for one in members for n in one.make()._statistics)]
        try:
            stats = sample.counted(learning, needed, self.limits, self.progress)
        except MemoryLimitError as error:
            if len(members) > 1:  # which may exceed it only together
                for learner in members:
                    yield from self._from_counts(sample, learning, [learner])
                return
            (learner,) = members
            logger.info("%s; each size is counted by itself", error)
            yield from self._from_rows(sample, self.entered.index(learner), learner)
            return
        for s, counted in enumerate(stats):
            for learner in members:
                fitted = None
                with self._noting(learner, s):
                    fitted = from_counts(learner.make(), counted)
                if fitted is not None:
                    yield (self.entered.index(learner), s), fitted
                del fitted

    def _from_rows(self, sample: Sample, m: int, learner: Learner) -> Iterator[tuple[At, Any]]:
        """Fit a model to the rows of each size, a warm one from the coefficients of the last."""
        model = learner.make()
        for s, size in enumerate(self.sizes.tolist()):
            fitted = None
            with self._noting(learner, s):
                found = from_rows(model, self.rows, sample.of(size))
                fitted = copy.copy(found) if learner.warm else found
                del found
            if fitted is not None:
                yield (m, s), fitted
            del fitted
            model = model if learner.warm else learner.make()

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

    def _note(self, learner: Learner, size: str, error: Exception) -> None:
        """Take note of why a model cannot be fitted to a size, if it could be to those before."""
        if learner.name not in self.reasons:
            self.reasons[learner.name] = f"{size}: {error}"
            if isinstance(error, MemoryLimitError):
                self.over_limit.add(learner.name)

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
                self._note(learner, size, error)
        cautions = [one for one in said if issubclass(one.category, FastBayesWarning)]
        if cautions:
            first, fits = self.cautions.get(learner.name, (f"{size}: {cautions[0].message}", 0))
            self.cautions[learner.name] = first, fits + 1
        for one in said:
            if one not in cautions:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    def _scored(self, sample: Sample, fitted: Mapping[At, Any]) -> dict[At, Evaluator]:
        """Score the test rows by models of tables in one scan."""
        if not fitted:
            return {}
        groups = by_schema(model.schema_ for model in fitted.values())
        encoders = [
            (applying(self.rows.opened, schema, sample.n_test), members)
            for schema, members in groups
        ]

        contestant = Contestant(self._classes, [Fitted(model) for model in fitted.values()])
        (score,), _ = scores(
            sample.test, EncodedByAll(encoders), [contestant], ranks=False, **self.limits
        )
        return dict(zip(fitted, score.evaluators, strict=True))
