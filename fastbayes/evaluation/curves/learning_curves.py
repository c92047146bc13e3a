"""`learning_curve`: how good models become with more rows, from samples each part of the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.draws import Draw
from fastbayes.evaluation.curves.curve_runner import (
    CurveRunner,
    SampledRows,
    census_of,
    check_suits,
    learners,
)
from fastbayes.evaluation.curves.curve_table import METRICS, LearningCurve
from fastbayes.evaluation.intervals import check_confidence
from fastbayes.scan import engine
from fastbayes.scan.counting import opened_to_learn
from fastbayes.scan.engine import Progress

# Rows kept to test on unless told: a fifth, but no more than say all that is to be said.
TEST_SHARE, MOST_TEST_ROWS = 0.2, 100_000
# Sizes unless told, from this many rows on.
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
    categorical: Iterable[str | int] | None = None,
    discretize: Any = "mdl",
    missing: str = "marginalize",
    columns: Sequence[str] | None = None,
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
        Names as in `compare`, or "logistic"; models with their parameters; or {name: either}.
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
    missing, columns, null_values, filesystem, threads
        As in `fastbayes.count`.
    memory_limit
        Bytes that the counts may take. Models whose counts exceed it count every size by itself.
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
    34.5 nats, and the share of such rows is told as `clipped`. What a model warns of is kept as
    `cautions`: of few rows there is much to be said.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("0011") * 50, "b": list("0101") * 50, "y": list("nppn") * 50}
    >>> curve = fb.learning_curve(["naive-bayes", "tan"], table, "y", sizes=[10, 160], repeats=3)
    >>> curve.accuracy[:, -1].mean(axis=1).round(2)
    array([0.4, 1. ])
    """
    _check_count("repeats", repeats)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"seed={seed!r}: use a whole number")
    sure = check_confidence(confidence)
    opened = opened_to_learn(
        source,
        target,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        missing=missing,
        columns=columns,
        null_values=null_values,
        filesystem=filesystem,
    )
    if not opened.source.rereadable:
        raise SchemaError(
            f"{opened.source.description} can be read only once, but learning_curve reads it for "
            "every repeat: pass a table or a path"
        )
    given: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    told = {"missing": missing, "discretize": discretize}
    limits = {name: value for name, value in given.items() if value is not None}
    entered = learners(models, opened, told, limits)
    whole = engine.scan(opened.source, opened.learning(), ("values",), progress=progress, **given)
    for learner in entered:
        check_suits(learner, whole)
    census = census_of(opened, threads)
    if census.n_rows < 2:
        raise DataError(
            f"{opened.source.description}: {census.n_rows} rows have a class and a weight above 0: "
            "a learning curve takes one to learn from and one to test on, at least"
        )
    n_test = _test_rows(test, census.n_rows)
    at = _sizes(sizes, census.n_rows, n_test)
    laboratory = CurveRunner(
        SampledRows.declared(opened, whole.schema), census, entered, at, n_test, given, progress
    )
    shape = len(entered), len(at), int(repeats)
    figures = {name: np.full(shape, np.nan) for name in (*METRICS, "clipped")}
    for r in range(shape[2]):
        for (m, s), evaluator in laboratory.repeat(Draw(census.n_rows, int(seed), r)).items():
            found = evaluator.result()
            for name in METRICS:
                figures[name][m, s, r] = getattr(found, name)
            figures["clipped"][m, s, r] = found.clipped / found.n
    reasons = laboratory.reasons
    if np.isnan(figures["log_loss"]).all():
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise DataError(f"{opened.source.description}: no model can be fitted: {why}")
    return LearningCurve(
        models=tuple(learner.name for learner in entered),
        sizes=at,
        rows=census.n_rows,
        test_rows=n_test,
        classes=whole.schema.class_labels,
        seed=int(seed),
        confidence=sure,
        reasons=reasons,
        cautions={name: f"{n} fits, {first}" for name, (first, n) in laboratory.cautions.items()},
        **figures,
    )


def _check_count(name: str, n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"{name}={n!r}: use a whole number >= 1")


def _test_rows(test: Any, n_rows: int) -> int:
    """Return how many rows to test on."""
    if test is None:
        n = min(math.ceil(TEST_SHARE * n_rows), MOST_TEST_ROWS)
    elif isinstance(test, bool) or not isinstance(test, (int, float, np.number)):
        raise ValueError(f"test={test!r}: use a number of rows, or a share between 0 and 1")
    else:
        told = _rows(test, n_rows)
        if told is None:
            raise ValueError(f"test={test!r}: use a number of rows, or a share between 0 and 1")
        n = told
    if not 0 < n < n_rows:
        raise ValueError(
            f"test={test!r} keeps {n:,} of {n_rows:,} rows to test on, which leaves none for the "
            "one or the other; use a share such as 0.2, or more rows"
        )
    return n


def _rows(size: Any, of: int) -> int | None:
    """Return a number of rows, or of a share of them; None where it is neither."""
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
    told = [sizes] if isinstance(sizes, (int, float, np.number)) else list(sizes)
    if not told:
        raise ValueError("sizes: name one at least")
    found = set()
    for size in told:
        number = isinstance(size, (int, float, np.number)) and not isinstance(size, bool)
        n = _rows(size, most) if number else None
        if n is None:
            raise ValueError(f"sizes: {size!r} is neither a number of rows nor a share of them")
        if n > most:
            raise ValueError(
                f"sizes: there are {most:,} rows to learn from, not {n:,}: {n_test:,} of "
                f"{n_rows:,} are tested on; use smaller sizes, or a smaller test="
            )
        found.add(n)
    return np.array(sorted(found), np.int64)
