"""`alpha_sweep`: how good a model is by how much it smooths, from one statistic and one scan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.text_tables import aligned, brief
from fastbayes.evaluation.curves.fit_source import fit_source
from fastbayes.evaluation.plots import figure, written
from fastbayes.evaluation.validate.cross_validation import labelled, left_out_scores
from fastbayes.evaluation.validate.scoring import Contestant, Fitted, scores
from fastbayes.evaluation.validation import Evaluation
from fastbayes.models.discrete.naive_bayes import NaiveBayes
from fastbayes.models.estimator.base import Classifier
from fastbayes.scan.engine import Progress
from fastbayes.statistics.bundle import Statistics

Floats = NDArray[np.float64]

# Three to each power of ten.
ALPHAS = tuple(float(f"{x:.3g}") for x in np.geomspace(1e-3, 1e2, 16))
METHODS = ("leave_one_out", "training", "held_out")
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
        told = ["log-loss", "accuracy", f"best: {self.best:g}"]
        made.legend([loss, right, mark], told, loc="outside upper center", ncols=3)
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
        raise ValueError(f"evaluate={evaluate!r}: use one of {', '.join(map(repr, METHODS))}")
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

    Parameters
    ----------
    model
        A classifier of tables that has an `alpha` and learns from counts; or the statistics of the
        rows, as `fastbayes.count` returns them, of which `NaiveBayes` is made. The statistics of a
        model that is fitted are taken, and its rows not counted again.
    source
        The rows, as in `fastbayes.count`.
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
        When the model cannot be left one out, or does not suit the statistics.
    DataError
        When the data cannot be used, or are not the rows that were counted.

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
        model, source, target, sample_weight=sample_weight, filesystem=filesystem, progress=progress
    )
    params = model.get_params(deep=False)
    made = [type(model)(**{**params, "alpha": alpha}) for alpha in values.tolist()]
    told: dict[str, Any] = {"threads": threads, "progress": progress}
    fixed: tuple[str, ...] = ()
    if method == "leave_one_out":
        told["sample_weight"] = sample_weight
        found, scorers, where = left_out_scores(
            *(made, stats, source, target), ranks=False, filesystem=filesystem, **told
        )
        fixed = scorers[0].fixed
    else:
        rows, labels, weight = source, target, sample_weight
        if method == "held_out":
            rows, labels = test if isinstance(test, tuple) else (test, None)
            weight = test_weight
        opened = labelled(
            *(stats.schema, rows, labels, weight), unseen=model.unseen, filesystem=filesystem
        )
        fitted = [one.fit_statistics(stats) for one in made]
        contestants = [Contestant(one.classes_, [Fitted(one)]) for one in fitted]
        found, _ = scores(opened.source, opened.parts, contestants, ranks=False, **told)
        where = opened.description
    try:
        figures = [score.evaluators[0].result() for score in found]
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return Sweep(**swept("alpha", values, figures, method=method, fixed=fixed))


def _counted(model: Any, source: Any, target: Any, **more: Any) -> tuple[Statistics, Any]:
    """Return the statistics of the rows, and the model with its parameters."""
    if isinstance(model, Statistics):
        return model, NaiveBayes(missing=model.schema.missing)
    if not isinstance(model, Classifier) or "alpha" not in model.get_params(deep=False):
        raise ValueError(f"alpha_sweep takes a classifier of tables with an alpha, not {model!r}")
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
        model = type(model)(**model.get_params(deep=False))
        fit_source(model, source, target, **more)
    stats: Statistics = model.statistics_
    return stats, model
