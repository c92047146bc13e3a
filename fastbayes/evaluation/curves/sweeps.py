"""`alpha_sweep` and `threshold_sweep`: how good a model is for each value of a parameter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.schema import Shape
from fastbayes.core.suggestions import use_one_of
from fastbayes.core.text_tables import aligned, brief
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.evaluation.curves.fit_source import fit_source
from fastbayes.evaluation.plots import figure, written
from fastbayes.evaluation.validate.cross_validation import labelled, left_out_scores
from fastbayes.evaluation.validate.scoring import (
    BYTES_OF_COLUMN,
    Contestant,
    Fitted,
    scores_in_turn,
)
from fastbayes.evaluation.validation import Evaluation, Evaluator
from fastbayes.models.discrete.naive_bayes import NaiveBayes
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.inputs import (
    check_features,
    check_labels,
    check_length,
    check_weight,
    encode_labels,
    split_target,
)
from fastbayes.models.estimator.protocol import as_counted, fresh
from fastbayes.models.leave_one_out.loo_bernoulli import LooBernoulli
from fastbayes.models.sklearn.array_rows import BLOCK_CELLS
from fastbayes.models.sklearn.naive_bayes import BernoulliNB
from fastbayes.scan.budget import default_limit
from fastbayes.scan.request import Progress
from fastbayes.statistics.array_statistics import ArrayStatistics
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.feature_sums import FeatureSums

Floats = NDArray[np.float64]

# Three to each power of ten.
ALPHAS = tuple(float(f"{x:.3g}") for x in np.geomspace(1e-3, 1e2, 16))
METHODS = ("leave_one_out", "training", "held_out")
# What scores each row by a model without it holds, in bytes of the counts: tables of all rows, of
# those without one, and both as they are scored.
TABLES_OF_COUNTS = 6
# Values that a `repr` shows, besides the best.
SHOWN = 12
# Log-losses closer than this share of themselves are equal.
SAME = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Sweep:
    """How good a model is for each value of a parameter.

    Attributes
    ----------
    parameter
        Its name.
    values
        (n,) its values, ascending.
    accuracy
        (n,) share of rows whose most probable class is the true one.
    log_loss
        (n,) mean of -ln p(true class), in nats, p clipped at 1e-15.
    clipped
        (n,) share of rows whose p(true class) was below 1e-15.
    rows
        Rows that were scored, or the sum of their weights.
    method
        "leave_one_out": each by the model without it; "training": by the model that was fitted to
        it, too; "held_out": rows that were not learned from.
    fixed
        What was learned from all rows, those left out included.
    """

    parameter: str
    values: Floats
    accuracy: Floats
    log_loss: Floats
    clipped: Floats
    rows: float
    method: str
    fixed: tuple[str, ...] = ()

    @property
    def best(self) -> float:
        """The value with the least log-loss, of equals the smallest."""
        return float(self.values[self._best])

    @property
    def _best(self) -> int:
        least = self.log_loss.min()
        return int(np.argmax(self.log_loss <= least + SAME * abs(least)))

    @property
    def best_accuracy(self) -> float:
        """The value with the highest accuracy, of equals that with the least log-loss."""
        equal = self.accuracy == self.accuracy.max()
        return float(self.values[np.where(equal, self.log_loss, np.inf).argmin()])

    @property
    def table(self) -> pa.Table:
        """The sweep as an Arrow table, one row a value."""
        names = ("accuracy", "log_loss", "clipped")
        return pa.table({self.parameter: self.values, **{n: getattr(self, n) for n in names}})

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain values for JSON."""
        return {
            "parameter": self.parameter,
            "best": self.best,
            "best_accuracy": self.best_accuracy,
            "method": self.method,
            "fixed": list(self.fixed),
            "rows": self.rows,
            "values": self.table.to_pylist(),
        }

    def to_json(self) -> str:
        """Return the sweep as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def plot(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> Any:
        """Draw accuracy and log-loss over the values, the best one marked.

        Parameters
        ----------
        path
            File to write, by custom .png, .svg or .pdf; None for none.
        force
            Whether to replace a file that is there.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        FastBayesError
            When matplotlib is not installed; the message names the extra.
        """
        made, axes = figure("`table`")
        (loss,) = axes.plot(self.values, self.log_loss, marker=".", color="tab:blue")
        axes.set_xlabel(self.parameter)
        axes.set_ylabel("log-loss, nats", color="tab:blue")
        positive = self.values[self.values > 0]
        if self.parameter == "alpha" or (self.values[0] > 0 and positive[-1] > 100 * positive[0]):
            # Of 0 there is no logarithm.
            axes.set_xscale("symlog", linthresh=float(positive[0]) if len(positive) else 1.0)
        other = axes.twinx()
        (right,) = other.plot(self.values, self.accuracy, marker=".", color="tab:orange")
        other.set_ylabel("accuracy", color="tab:orange")
        mark = axes.axvline(self.best, color="0.5", linestyle="--")
        given = ["log-loss", "accuracy", f"best: {self.best:g}"]
        made.legend([loss, right, mark], given, loc="outside upper center", ncols=3)
        return written(made, path, force=force)

    def __str__(self) -> str:
        return self._text(range(len(self.values)))

    def __repr__(self) -> str:
        some = np.linspace(0, len(self.values) - 1, SHOWN).astype(int)
        return brief(self._text(sorted({*some.tolist(), self._best})))

    def _text(self, which: Iterable[int]) -> str:
        """Return the figures of some values, by their places."""
        head = f"{self.method.replace('_', '-')} of {self.rows:,.10g} rows"
        head += f", {' and '.join(self.fixed)} fixed" if self.fixed else ""
        rows = [(self.parameter, "accuracy", "log-loss", "")]
        for i in which:
            mark = "best" if i == self._best else ""
            figures = f"{self.accuracy[i]:.6f}", f"{self.log_loss[i]:.6f}"
            rows.append((f"{self.values[i]:.6g}", *figures, mark))
        return "\n".join([head, "", *(line.rstrip() for line in aligned(rows))])


def swept(
    parameter: str, values: Floats, figures: Sequence[Evaluation], **more: Any
) -> dict[str, Any]:
    """Return the figures of each value as the arguments of `Sweep`."""
    return {
        "parameter": parameter,
        "values": values,
        "accuracy": np.array([f.accuracy for f in figures]),
        "log_loss": np.array([f.log_loss for f in figures]),
        "clipped": np.array([f.clipped / f.n for f in figures]),
        "rows": figures[0].n,
        **more,
    }


def method_of(evaluate: str | None, test: Any) -> str:
    """Return which rows are scored by which models."""
    if evaluate is None:
        return "leave_one_out" if test is None else "held_out"
    if evaluate not in METHODS:
        raise ValueError(f"evaluate={evaluate!r}: {use_one_of(evaluate, METHODS)}")
    if (evaluate == "held_out") != (test is not None):
        raise ValueError(f"evaluate={evaluate!r}: rows to test on go with 'held_out', and only so")
    return evaluate


def grid(name: str, values: ArrayLike) -> Floats:
    """Return the values of a parameter, ascending and none twice; finite numbers, one at least."""
    try:
        found = np.unique(np.asarray(values, dtype=np.float64).reshape(-1))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {values!r} are not all numbers") from error
    if not len(found):
        raise ValueError(f"{name}: name one at least")
    if not np.isfinite(found).all():
        raise ValueError(f"{name}: {found[~np.isfinite(found)][0]} is no finite number")
    return found


def alpha_sweep(
    model: Any,
    source: Any,
    target: Any = None,
    alphas: ArrayLike | None = None,
    *,
    evaluate: str | None = None,
    test: Any = None,
    sample_weight: Any = None,
    test_weight: Any = None,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Return how good a model is for each alpha: rows are counted once, and scored once for all.

    Where the models of all alphas together exceed the model's `memory_limit`, rows are scored once
    for as many as fit, to the same figures.

    Parameters
    ----------
    model
        A classifier of tables that has an `alpha` and learns from counts; or the statistics of the
        rows, as `fastbayes.count` returns them, of which `NaiveBayes` is made. The statistics of a
        model that is fitted are taken, and its rows not counted again.
    source
        The rows, as in `fastbayes.count`; of those that are counted a part will do.
    target
        Name of the class column or (n_rows,) labels; the name at counting by default.
    alphas
        Pseudo-counts, not negative; by default from 0.001 to 100, three to each power of ten.
    evaluate
        "leave_one_out": each row by the model without it (the default), exact by subtraction;
        "training": by the model fitted to it, which is too good for small alpha; "held_out": the
        rows of `test` (the default where there are any).
    test
        Rows to test on, with the class column; or (rows, labels).
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    test_weight
        Those of `test`.
    filesystem
        A pyarrow or fsspec file system for paths.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Sweep
        Print it, or see its `best`, `table` and `plot()`.

    Raises
    ------
    ValueError
        When an alpha is negative, or the model has none, or learns from rows.
    SchemaError
        When the model cannot be left one out, or does not suit the statistics; when rows that are
        counted and scored can be read only once.
    DataError
        When the data cannot be used, or hold rows that were not counted.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nnppnnpp")}
    >>> sweep = alpha_sweep(fb.NaiveBayes(), table, "y", [0.1, 1, 10])
    >>> sweep.best, sweep.accuracy
    (0.1, array([1., 1., 1.]))
    """
    method = method_of(evaluate, test)
    values = grid("alphas", ALPHAS if alphas is None else alphas)
    if values[0] < 0:
        raise ValueError(f"alphas: {values[0]:g} is negative")
    stats, model = _counted(
        *(model, source, target),
        sample_weight=sample_weight,
        filesystem=filesystem,
        progress=progress,
        again=None if method == "held_out" else "alpha_sweep counts and then scores",
    )
    params = model.get_params(deep=False)
    made = [type(model)(**params | {"alpha": alpha}) for alpha in values.tolist()]
    at_once = _at_once(model, stats, len(made))
    options: dict[str, Any] = {"ranks": False, "threads": threads, "progress": progress}
    fixed: tuple[str, ...] = ()
    if method == "leave_one_out":
        more = {"sample_weight": sample_weight, "filesystem": filesystem, "at_once": at_once}
        found, fixed, where = left_out_scores(made, stats, source, target, **more, **options)
    else:
        rows, labels, weight = source, target, sample_weight
        if method == "held_out":
            rows, labels = test if isinstance(test, tuple) else (test, None)
            weight = test_weight
        opened, encoding, _ = labelled(
            *(stats.schema, rows, labels, weight), unseen=model.unseen, filesystem=filesystem
        )

        def contestant(one: Any) -> Contestant:
            fitted = fresh(one).fit_statistics(stats)
            return Contestant(fitted.classes_, [Fitted(fitted)])

        makers = [partial(contestant, one) for one in made]
        found, _ = scores_in_turn(opened, encoding, makers, at_once, **options)
        where = opened.description
    figures = [score.figures(where) for score in found]
    return Sweep(**swept("alpha", values, figures, method=method, fixed=fixed))


def _at_once(model: Any, stats: Statistics, n: int) -> int:
    """Return how many of `n` models of the same counts fit in the memory limit beside these."""
    limit = default_limit() if model.memory_limit is None else int(model.memory_limit)
    needed = [stats.parts[name] for name in model._statistics if name in stats.parts]
    each = TABLES_OF_COUNTS * sum(part.nbytes for part in needed)
    each += BYTES_OF_COLUMN * len(stats.schema.features)
    return min(max((limit - stats.nbytes) // max(each, 1), 1), n)


def _counted(model: Any, source: Any, target: Any, **more: Any) -> tuple[Statistics, Any]:
    if isinstance(model, Statistics):
        return model, NaiveBayes(missing=model.schema.missing)
    if not isinstance(model, Classifier) or "alpha" not in model.get_params(deep=False):
        raise ValueError(f"alpha_sweep takes a classifier of tables with an alpha, not {model!r}")
    smoothing = getattr(model, "smoothing", None)
    if smoothing in (instead := {"m_estimate": "m", "bdeu": "ess"}):
        raise ValueError(
            f"alpha_sweep: alpha has no effect with smoothing={smoothing!r}, which smooths by "
            f"`{instead[smoothing]}`: use k_fold of a model of each, or smoothing='laplace'"
        )
    if not hasattr(type(model), "fit_statistics"):
        raise ValueError(
            f"alpha_sweep reads a model of each alpha off the same counts, but "
            f"{type(model).__name__} learns from rows, too: use k_fold of a model of each alpha"
        )
    if not hasattr(model, "statistics_"):
        if target is None:
            raise ValueError(
                "alpha_sweep counts the rows for a model that is not fitted: name their target"
            )
        model = fresh(model)
        fit_source(model, source, target, **more)
    return model.statistics_, as_counted(fresh(model))


# Default thresholds.
N_THRESHOLDS = 64
# Thresholds of a feature looked at together, and rows.
CHUNK, LEAST_ROWS = 1 << 16, 4_096


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ThresholdSweep(Sweep):
    """How good Bernoulli naive Bayes is for each threshold.

    Attributes
    ----------
    parameter
        "binarize".
    values
        (n,) thresholds, ascending: numbers above are 1, others 0.
    accuracy
        (n,) share of rows whose most probable class is the true one.
    log_loss
        (n,) mean of -ln p(true class), in nats, p clipped at 1e-15.
    clipped
        (n,) share of rows whose p(true class) was below 1e-15.
    rows
        Rows that were scored, or the sum of their weights.
    method
        As in `Sweep`.
    fixed
        What was learned from all rows, those left out included.
    features
        Arrow table of one row a feature: `feature`, its own best `threshold` (null where it is
        constant), the `conditional_entropy` of the class given its indicator there, and the
        `information` that this is below the entropy of the class, both in nats.
    separate
        Figures of the model with these thresholds, each feature cut at its own.
    """

    features: pa.Table
    separate: Evaluation

    def binarized(self, X: Any) -> NDArray[np.int8]:
        """Return indicators of the numbers above each feature's own threshold.

        Parameters
        ----------
        X
            (n_rows, n_features) numbers, columns as in the sweep.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_features) of 0 and 1, for `BernoulliNB(binarize=None)`.
        """
        cuts = np.array(self.features["threshold"].to_pylist(), dtype=np.float64)
        return (np.asarray(X) > cuts).astype(np.int8)

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain values for JSON."""
        options = {"accuracy": self.separate.accuracy, "log_loss": self.separate.log_loss}
        return {**super().to_dict(), "features": self.features.to_pylist(), "separate": options}

    def _text(self, which: Iterable[int]) -> str:
        s = self.separate
        own = f"each feature at its own: accuracy {s.accuracy:.6f}, log-loss {s.log_loss:.6f}"
        return f"{super()._text(which)}\n\n{own}"


def threshold_sweep(
    X: Any,
    y: Any = None,
    thresholds: ArrayLike | str | None = None,
    *,
    model: BernoulliNB | None = None,
    evaluate: str | None = None,
    test: tuple[Any, Any] | None = None,
    sample_weight: ArrayLike | None = None,
    test_weight: ArrayLike | None = None,
    threads: int | None = None,
) -> ThresholdSweep:
    """Return how good Bernoulli naive Bayes is for each threshold, from one sorted pass a feature.

    Parameters
    ----------
    X
        (n_rows, n_features) numbers, without missing values: an array, frame or table.
    y
        (n_rows,) classes, or the name of a column where X is a frame or table.
    thresholds
        Numbers; "all", one between each two numbers that occur; by default 64 of these, or all
        where there are fewer.
    model
        `BernoulliNB` with its parameters, whose `binarize` is not looked at.
    evaluate
        "leave_one_out": each row by the model without it (the default), exact by subtraction;
        "training": by the model fitted to it; "held_out": the rows of `test` (the default where
        there are any).
    test
        (X, y) to test on.
    sample_weight
        (n_rows,) weights, finite and not negative.
    test_weight
        Those of the rows of `test`.
    threads
        Worker threads; they never change a bit of the result.

    Returns
    -------
    ThresholdSweep
        Print it, or see its `best`, `features`, `table` and `plot()`.

    Raises
    ------
    ValueError
        When X, y or an option cannot be used.

    Notes
    -----
    Each figure is that of fitting `BernoulliNB(binarize=t)` anew, for leave-one-out without each
    row, the classes staying as they are. A feature is sorted once; sums by class from the top down
    then tell how many numbers of each class any threshold has above it, which is all that the model
    learns. Scoring takes n_rows x n_features x n_classes steps for each threshold.

    `BernoulliNB` takes thresholds from 0 up, as scikit-learn does: a negative one, as of centred
    columns, is that of `BernoulliNB(binarize=None)` on the indicators `X > t`.

    A feature's own threshold leaves least uncertainty of the class, H(C | x > t); of equals it is
    the lowest. It is chosen by all rows, those left out included, so that `separate` is a little
    too good.

    Examples
    --------
    >>> sweep = threshold_sweep([[1.0], [2.0], [3.0], [8.0], [9.0], [10.0]], list("aaabbb"))
    >>> sweep.best, sweep.values
    (5.5, array([1.5, 2.5, 5.5, 8.5, 9.5]))
    """
    method = method_of(evaluate, test)
    if model is not None and not isinstance(model, BernoulliNB):
        raise ValueError(f"threshold_sweep takes a BernoulliNB, not {model!r}")
    like = BernoulliNB() if model is None else model
    like = fresh(like, binarize=None)
    like._check_parameters()
    workers = resolved_threads(threads)
    rows = NumberRows.checked(like, X, y, sample_weight)
    if len(rows.y) < 2 and method == "leave_one_out":
        raise DataError("leave-one-out takes two rows or more of a weight above 0")
    judged = rows
    if method == "held_out":
        if not isinstance(test, tuple) or len(test) != 2:
            raise ValueError("test: give a tuple (X, y)")
        judged = NumberRows.checked(like, *test, test_weight, rows.classes)
    values = _thresholds(thresholds, rows.X)
    features = range(rows.X.shape[1])
    found = list(in_order(lambda j: _of_feature(rows, j, values), features, workers))
    own = np.array([cut.threshold for cut in found])
    jobs: list[tuple[Floats, Any]] = [
        (np.stack([cut.above[i] for cut in found], axis=1), t) for i, t in enumerate(values)
    ]
    jobs.append((np.stack([cut.above_own for cut in found], axis=1), own))
    judge = partial(_judged, like, rows, judged, method)
    *figures, separate = in_order(judge, jobs, workers)
    entropy = np.array([cut.entropy for cut in found])
    table = pa.table(
        {
            "feature": pa.array(rows.names, pa.string()),
            "threshold": pa.array(own, mask=np.isnan(own)),
            "conditional_entropy": entropy,
            "information": np.maximum(_entropy(rows.counts[None])[0] - entropy, 0.0),
        }
    )
    fixed = ("classes",) if method == "leave_one_out" else ()
    options = swept("binarize", values, figures, method=method, fixed=fixed)
    return ThresholdSweep(**options, features=table, separate=separate)


class NumberRows(NamedTuple):
    """Rows of numbers and their classes, those of weight 0 left out.

    X        (n_rows, n_features) float64
    y        (n_rows,) class codes
    weight   (n_rows,); None where every row weighs 1
    classes  (n_classes,) labels
    names    of the features
    """

    X: Floats
    y: NDArray[np.intp]
    weight: Floats | None
    classes: NDArray[Any]
    names: list[str]

    @classmethod
    def checked(
        cls, like: BernoulliNB, X: Any, y: Any, weight: Any, classes: NDArray[Any] | None = None
    ) -> NumberRows:
        """Return rows as the estimator's `fit` takes them; known classes where they are tested."""
        if isinstance(X, (str, os.PathLike)):
            raise ValueError(
                f"threshold_sweep takes numbers that are in memory, not {os.fspath(X)!r}: read the "
                "file first, as pyarrow or pandas does"
            )
        X, y = split_target(X, y)
        labels = check_labels(like, y)
        X = check_features(like, X, reset=classes is None)
        if not isinstance(X, np.ndarray):
            raise DataError("threshold_sweep sorts each column: use X.toarray()")
        check_length(X, labels)
        w = check_weight(weight, len(labels), allow_zero=True)
        known, found = encode_labels(labels, classes)
        X, codes = np.asarray(X, np.float64), found.astype(np.intp)
        if w is not None and not (w > 0).all():
            X, codes, w = X[w > 0], codes[w > 0], w[w > 0]
        if not len(codes):
            raise DataError("there are no rows of a weight above 0")
        return cls(X, codes, w, known, list(like._feature_names()))

    @property
    def counts(self) -> Floats:
        """Rows of each class, or their weight, (n_classes,)."""
        return np.asarray(np.bincount(self.y, self.weight, len(self.classes)), dtype=np.float64)


class Cut(NamedTuple):
    """Where a feature may be cut.

    above      (n_thresholds, n_classes) rows of each class above each threshold
    threshold  its own best, NaN where it is constant
    entropy    H(C | x > threshold) in nats
    above_own  (n_classes,) rows of each class above it
    """

    above: Floats
    threshold: float
    entropy: float
    above_own: Floats


def _thresholds(thresholds: Any, X: Floats) -> Floats:
    """Return the thresholds to try, ascending."""
    if isinstance(thresholds, str):
        if thresholds != "all":
            raise ValueError(f"thresholds={thresholds!r}: use numbers, 'all' or None")
    elif thresholds is not None:
        return grid("thresholds", thresholds)
    different = np.unique(X)
    if len(different) < 2:
        return different
    found = between(different)
    if thresholds is None and len(found) > N_THRESHOLDS:
        shares = (np.arange(N_THRESHOLDS) + 1) / (N_THRESHOLDS + 1)
        at = np.searchsorted(different, np.quantile(X, shares, method="inverted_cdf"))
        found = found[np.unique(np.minimum(at, len(found) - 1))]
    return found


def between(different: Floats) -> Floats:
    """Return a number between each two in succession: a <= t < b, so that a is not above it."""
    a, b = different[:-1], different[1:]
    middle = a / 2 + b / 2
    return np.where((middle >= a) & (middle < b), middle, a)


def _of_feature(rows: NumberRows, j: int, thresholds: Floats) -> Cut:
    """Return the counts above each threshold, and the best threshold, of a feature."""
    x, counts = rows.X[:, j], rows.counts
    # Each class by itself, in order, and the weight from each row up.
    by_class: list[tuple[Floats, Floats]] = []
    for c in range(len(counts)):
        mine = np.flatnonzero(rows.y == c)
        order = mine[np.argsort(x[mine], kind="stable")]
        weight = np.ones(len(order)) if rows.weight is None else rows.weight[order]
        by_class.append((x[order], np.append(np.cumsum(weight[::-1])[::-1], 0.0)))

    def above(t: Floats) -> Floats:
        result = np.empty((len(t), len(counts)))
        for c, (values, weight) in enumerate(by_class):
            first = np.searchsorted(values, t, side="right")
            # All of a class is what it counts, to the last bit.
            result[:, c] = np.where(first == 0, counts[c], np.minimum(weight[first], counts[c]))
        return result

    different = np.unique(x)
    if len(different) < 2:
        nothing = np.zeros(len(counts))
        return Cut(above(thresholds), np.nan, float(_entropy(counts[None])[0]), nothing)
    points, total = between(different), counts.sum()
    best = (np.inf, 0)
    for start in range(0, len(points), CHUNK):
        over = above(points[start : start + CHUNK])
        under = np.maximum(counts - over, 0.0)
        share = over.sum(axis=1) / total
        left = share * _entropy(over) + (1 - share) * _entropy(under)
        # Of equals, up to rounding, the lowest.
        at = int(np.argmax(left <= left.min() + SAME))
        if left[at] < best[0] - SAME:
            best = float(left[at]), start + at
    own = points[best[1]]
    return Cut(above(thresholds), float(own), best[0], above(points[best[1]][None])[0])


def _entropy(counts: Floats) -> Floats:
    """Return the entropy of each row of counts in nats, 0 where there are none, (n,)."""
    total = counts.sum(axis=1, keepdims=True)
    p = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    return -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)


def _judged(
    like: BernoulliNB, rows: NumberRows, judged: NumberRows, method: str, job: tuple[Floats, Any]
) -> Evaluation:
    """Return the figures of the model whose numbers above a threshold are counted."""
    sums, threshold = job
    part = FeatureSums(Shape(np.empty(0, np.int64), sums.shape[1], len(sums)))
    part.sums[:], part.class_counts[:] = sums, rows.counts
    stats = ArrayStatistics(rows.classes, {"sums": part}, None, like._options())
    model = fresh(like).fit_statistics(stats)
    without = LooBernoulli(model) if method == "leave_one_out" else None
    scorer, evaluator = model._scorer(0), Evaluator(rows.classes, ranks=False)
    step = max(LEAST_ROWS, BLOCK_CELLS // sums.shape[1])
    for start in range(0, len(judged.y), step):
        some = slice(start, start + step)
        # A constant feature, whose own threshold is NaN, is above it nowhere.
        X, y = (judged.X[some] > threshold).astype(np.float64), judged.y[some]
        weight = None if judged.weight is None else judged.weight[some]
        if without is not None:
            proba = without.posterior(X, y, weight)
        else:
            proba = np.empty((len(y), len(rows.classes)))
            scorer.posterior(X, proba)
        evaluator.update(proba, y, weight)
    return evaluator.result()
