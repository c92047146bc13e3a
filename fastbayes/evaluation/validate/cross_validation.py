"""`evaluate`, `leave_one_out` and `k_fold`: how good a model is on labelled rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.picks import Picks
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoded
from fastbayes.data.memory import is_name
from fastbayes.data.segments import Source
from fastbayes.data.source import open_for
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    Score,
    fitted_without_folds,
    held_by,
    scores,
    scores_in_turn,
)
from fastbayes.evaluation.validation import Evaluation, Evaluator
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.inputs import require_labels
from fastbayes.models.leave_one_out.loo import kind_of, unfitted_loo_scorer
from fastbayes.scan.opening import (
    folds_apart,
    number_of_folds,
    opened_to_learn,
    with_folds,
    with_labels,
)
from fastbayes.scan.outputs.sink import log_rest, schema_of, takes_absent
from fastbayes.scan.request import Progress
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.value_counts import ValueCounts

logger = logging.getLogger("fastbayes")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Validation(Evaluation):
    """Figures of a classifier on rows that it was not fitted with.

    Attributes
    ----------
    method
        "leave-one-out" or "k-fold".
    fixed
        What was learned from all rows, those that were held out included.
    proba
        (n_rows, n_classes) P(c | x) of every row of the source by the model without it, NaN in
        rows that took no part (no class, weight 0); None where it was not kept.
    folds
        The figures of each fold that holds rows, by name; none for leave-one-out.
    """

    method: str = ""
    fixed: tuple[str, ...] = ("schema",)
    proba: Floats | None = None
    folds: dict[str, Evaluation] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists for JSON, without the probabilities."""
        given = super().to_dict()
        del given["proba"]
        folds = {name: figures.to_dict() for name, figures in self.folds.items()}
        return given | {"fixed": list(self.fixed), "folds": folds}

    def __str__(self) -> str:
        *others, last = self.fixed
        fixed = f"{', '.join(others)} and {last}" if others else last
        return f"{self.method}, {fixed} fixed\n{super().__str__()}"


def validation(figures: Evaluation, **more: Any) -> Validation:
    """Return figures with what they were taken of."""
    return Validation(**{f.name: getattr(figures, f.name) for f in fields(figures)}, **more)


def evaluate(
    model: Any,
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    loss: Any = None,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score labelled rows in one scan: accuracy, log-loss, AUC, Brier, calibration, confusion.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`; of `engines` workers score the rows, where they are.
    target
        Name of the class column or (n_rows,) labels; the name at fit by default. Rows without a
        class are left out.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    loss
        Loss matrix as in `decide`.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Evaluation
        The figures.

    Raises
    ------
    DataError
        When the data cannot be used, or hold a class that the model does not know; the message
        names it and its row.
    """
    schema = schema_of(model, "evaluate")
    rows, encoding, unused = labelled(
        *(schema, source, target, sample_weight),
        unseen=model.unseen,
        lenient=takes_absent(model),
        filesystem=filesystem,
    )
    log_rest(unused, rows.description)
    (score,), found = scores(
        rows,
        encoding,
        [Contestant(model.classes_, [Fitted(model)])],
        loss=loss,
        threads=threads,
        memory_limit=getattr(model, "memory_limit", None),
        progress=progress,
        weighted=sample_weight is not None,
    )
    if found.n_rows and found.dropped == found.n_rows:
        raise DataError(
            f"{rows.description}: column {encoding.target!r} is null in all {found.n_rows} "
            "rows; name the column of the true classes as target"
        )
    if found.dropped:
        logger.info("left out %d rows without a class", found.dropped)
    if score.lost:
        logger.info("%d rows are impossible under every class", score.lost)
    for feature, n in zip(schema.categorical, np.atleast_1d(found.unseen), strict=False):
        if n:
            logger.info("column %r: %d values were not seen at fit", feature.name, n)
    return score.figures(rows.description)


def leave_one_out(
    model: Any,
    stats: Statistics,
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    loss: Any = None,
    proba: bool | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Score every row by the model that was fitted without it, in one scan and without refitting.

    Parameters
    ----------
    model
        A `NaiveBayes`, `SPODE`, `TAN`, `KDB`, `AODE`, `JointBayes`, `GaussianBayes`,
        `JointGaussian` or `NetworkClassifier`, with its parameters; it need not be fitted, and is
        left as it is.
    stats
        The statistics of the rows, as `fastbayes.count` returns them.
    source
        The rows that were counted, as in `fastbayes.count`, or a part of them, each of which is
        scored by the model of all others; of `engines` workers score them.
    target
        Name of the class column or (n_rows,) labels; the name at counting by default. Rows without
        a class take no part.
    sample_weight
        Name of the weight column, or (n_rows,) weights, if the rows were counted with weights.
    loss
        Loss matrix as in `decide`.
    proba
        Whether to keep the probabilities: 8 bytes for each row and class. By default they are where
        the rows are read here, not where workers read them.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Validation
        The figures, and the probabilities in the order of the rows.

    Raises
    ------
    DataError
        When there are more rows of a class than were counted, or a value that was not counted with
        its class.
    SchemaError
        When the model cannot be validated so, or does not suit the statistics.

    Notes
    -----
    Equal to fitting without the row, to 1e-12 of a probability (Gaussian columns: 1e-9), with
    classes, domains, cut points, a chosen alpha or tau, the prior of means and covariances, the
    bandwidths, bins and choice of densities, the structure of SPODE and TAN, and AODE's learned
    weights and subsumption as all rows have them (`fixed` names them). A row of weight w takes
    min(w, 1) out of the counts, and its loss counts w times: weight 3 is three rows. Two
    scorings a row, and nothing is fitted anew.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> stats = fb.count(table, "y", pairs=True)
    >>> [fb.leave_one_out(m, stats, table).accuracy for m in (fb.NaiveBayes(), fb.TAN())]
    [0.0, 1.0]
    """
    (score,), fixed, where = left_out_scores(
        [model],
        stats,
        source,
        target,
        sample_weight=sample_weight,
        loss=loss,
        proba=proba,
        filesystem=filesystem,
        threads=threads,
        progress=progress,
    )
    kept = probabilities(score, len(stats.schema.classes))
    return validation(score.figures(where), method="leave-one-out", fixed=fixed, proba=kept)


def left_out_scores(
    models: Sequence[Any],
    stats: Statistics,
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    filesystem: Any = None,
    at_once: int | None = None,
    **options: Any,
) -> tuple[list[Score], tuple[str, ...], str]:
    """Score every row by each model without it, in one scan for all, or for each so many `at_once`.

    The models learn from the same statistics, as `leave_one_out` takes them; `options` are those of
    `scores`. Returns a score for each, what the first has fixed, and what the rows are called.
    """
    if not isinstance(stats, Statistics):
        raise SchemaError(
            f"leave_one_out takes the statistics of the rows, as fastbayes.count returns them, not "
            f"{type(stats).__name__}"
        )
    if stats.weighted and sample_weight is None:
        raise SchemaError(
            "the statistics were counted with weights: name the column of the weights, or give "
            "them, in `sample_weight`"
        )
    if sample_weight is not None and not stats.weighted:
        raise SchemaError(
            "the statistics were counted without weights: leave `sample_weight` out, or count with "
            "it"
        )
    schema, fixed = stats.schema, list[tuple[str, ...]]()
    for model in models:
        kind_of(model)  # before rows are opened
    limits = [m.memory_limit for m in models if getattr(m, "memory_limit", None) is not None]
    given = schema, source, target, sample_weight
    rows, encoding, _ = labelled(*given, filesystem=filesystem, counted=stats)

    def contestant(model: Any) -> Contestant:
        scorer = unfitted_loo_scorer(model, stats)
        fixed.append(scorer.fixed)
        return Contestant(schema.class_labels, [scorer])

    found, scanned = scores_in_turn(
        rows,
        encoding,
        [partial(contestant, model) for model in models],
        at_once or len(models),
        memory_limit=min(limits, default=None),
        weighted=stats.weighted,
        **options,
    )
    _check_rows(scanned.classes, stats)
    return found, fixed[0], rows.description


def labelled(
    schema: Schema,
    source: Any,
    target: Any,
    sample_weight: Any,
    *,
    unseen: str = "ignore",
    lenient: bool = False,
    filesystem: Any = None,
    counted: Statistics | None = None,
) -> tuple[Source, RowEncoding, list[str]]:
    """Open labelled rows, which are those that were `counted` where that is given.

    Returns them, how they are encoded, and the columns that the schema does not know.

    Values outside the schema of the models are treated as `unseen` says; where that is `lenient`, a
    column that is not there is missing in all rows.
    """
    truth = schema.target if target is None else target
    also = [str(name) for name in (truth, sample_weight) if is_name(name)]
    opened, unused = open_for(schema, source, also=also, lenient=lenient, filesystem=filesystem)
    rows, target_name, weight_name = with_labels(opened, truth, sample_weight)
    check = None if counted is None else partial(_check_counted, counted)
    encoding = RowEncoding([schema], target_name, weight_name, unseen, check=check)
    return rows, encoding, unused


def k_fold(
    model: Any,
    source: Any,
    target: Any,
    *,
    folds: Any = 10,
    seed: int = 0,
    sample_weight: Any = None,
    loss: Any = None,
    proba: bool | None = None,
    columns: Picks = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Score the rows of each fold by a model fitted to the other folds.

    Parameters
    ----------
    model
        A classifier of tables with its parameters; it need not be fitted, and is left as it is.
    source
        As in `fastbayes.count`, to be read several times; of `engines` workers count and score.
    target
        Name of the class column or (n_rows,) labels. Rows without a class take no part.
    folds
        A number of folds, into which rows fall at random; of up to 1,000 rows each class has its
        share in each fold. Or the name of a column, a fold for each of its values; or (n_rows,)
        values. Where workers read the rows, the name of a column.
    seed
        Seed of that order, where `folds` is a number.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    loss
        Loss matrix as in `decide`.
    proba
        Whether to keep the probabilities: 8 bytes for each row and class. By default they are where
        the rows are read here, not where workers read them.
    columns, exclude, dates
        As in `fastbayes.count`; by default those of the model.
    null_values, filesystem, threads, memory_limit
        As in `fastbayes.count`.
    progress
        Called with the number of rows scored since the last call.

    Returns
    -------
    Validation
        The figures of all rows and of each fold, and the probabilities in the order of the rows.

    Raises
    ------
    DataError
        When the data cannot be used, or a fold holds all rows.
    SchemaError
        When the source can be read only once, or the model is not one of tables.

    Notes
    -----
    Equal to fitting without the fold, to 1e-12 of a probability, with classes, domains and parts of
    dates as all rows have them. Structures, a chosen alpha and cut points are learned from the
    other folds alone. One scan counts the folds and one scores the rows; cut points, and structures
    that take scans of their own, take these once for each fold.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> figures = fb.k_fold(fb.TAN(), table, "y", folds=4)
    >>> figures.accuracy, len(figures.folds)
    (1.0, 4)
    """
    if not isinstance(model, Classifier):
        raise SchemaError(
            f"k_fold takes a classifier of tables, as fastbayes.NaiveBayes, not "
            f"{type(model).__name__}; use scikit-learn's cross_val_predict for others"
        )
    if folds is None:
        raise ValueError("folds=None: use a whole number >= 2, a column or an array")
    number = number_of_folds(folds)
    given = {"threads": threads, "memory_limit": memory_limit}
    options = {name: getattr(model, name) if x is None else x for name, x in given.items()}
    params = {**model.get_params(deep=False), **options}
    require_labels("k_fold", target)
    model._check_parameters()
    opened = opened_to_learn(
        source,
        target,
        folds=folds if number is None else None,
        sample_weight=sample_weight,
        domains=model.domains,
        categorical=model.categorical,
        missing=model._counts_missing,
        columns=model.columns if columns is None else columns,
        exclude=model.exclude if exclude is None else exclude,
        dates=model.dates if dates is None else dates,
        null_values=null_values,
        filesystem=filesystem,
        threads=threads,
        again="k_fold counts and then scores",
    )
    if number is not None:
        apart = folds_apart(opened.source, str(opened.target), number, seed, opened.weight)
        opened = opened._replace(folds=with_folds(opened.source, apart)[1])
    models, names, encoding = fitted_without_folds(
        partial(type(model), **params), opened, options["threads"], options["memory_limit"]
    )
    classes = models[0].classes_
    (score,), _ = scores(
        opened.source,
        encoding,
        [Contestant(classes, [Fitted(m) for m in models])],
        loss=loss,
        proba=proba,
        threads=options["threads"],
        memory_limit=options["memory_limit"],
        progress=progress,
        weighted=sample_weight is not None,
        besides=held_by(models),
    )
    figures = of_folds(score, classes, names, loss, opened.source.description)
    return replace(figures, proba=probabilities(score, len(classes)))


def of_folds(
    score: Score, classes: NDArray[Any], names: tuple[str, ...], loss: Any, description: str
) -> Validation:
    """Return the figures of all rows, and of each fold that holds rows, as it stands by name."""
    total = Evaluator(classes, loss=loss, room=score.evaluators[0].room)
    found = {}
    for name, part in zip(names, score.evaluators, strict=True):
        if part.n_rows:
            found[name] = part.result()
            total.merge(part)
    return validation(total.result(description), method="k-fold", fixed=("schema",), folds=found)


def probabilities(score: Score, n_classes: int) -> Floats | None:
    """Return the probabilities of all rows, (n_rows, n_classes), where they were kept."""
    if score.proba is None:
        return None
    return np.concatenate([np.empty((0, n_classes)), *score.proba])


def _check_counted(stats: Statistics, encoded: Encoded) -> None:
    schema, values = stats.schema, stats.values
    strange = encoded.unseen > 0
    if not strange.any() and not values.counts.all():
        # Codes of unseen values have room, too.
        here = ValueCounts(values.shape._replace(sizes=values.shape.sizes + 1))
        here.update(replace(encoded.batch, weight=None))
        slots = np.delete(np.arange(len(here.counts)), here.offsets[1:] - 1)
        never = (here.counts[slots] > 0) & ~(values.counts > 0)
        strange |= np.add.reduceat(never.any(axis=1), values.offsets[:-1]) > 0
    if strange.any():
        name = schema.categorical[int(strange.argmax())].name
        raise DataError(
            f"column {name!r} holds values that were not counted, or not with their class: "
            "leave_one_out takes the rows that the statistics were counted from"
        )


def _check_rows(counted: Floats, stats: Statistics) -> None:
    """Raise DataError where there were more rows of a class than have been counted."""
    known = stats.values.class_counts
    more = counted > known * (1 + 1e-9)
    if more.any():
        at = int(more.argmax())
        label = stats.schema.classes[at].as_py()
        raise DataError(
            f"class {label!r} has {counted[at]:,.10g} rows, but {known[at]:,.10g} were counted: "
            "leave_one_out takes the rows that the statistics were counted from"
        )
    if counted.sum() < known.sum() * (1 - 1e-9):
        logger.info("%.10g of %.10g counted rows were scored", counted.sum(), known.sum())
