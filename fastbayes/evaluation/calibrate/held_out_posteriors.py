"""Log posteriors of rows by models that had not seen them: by leave-one-out, or by folds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import DataError, FastBayesWarning, SchemaError, warn
from fastbayes.data.encode import Encoder
from fastbayes.evaluation.calibrate.posterior_maps import Scan
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import (
    Contestant,
    Fitted,
    domains_of,
    fitted_without_folds,
    scores,
    supervised_cuts,
)
from fastbayes.models.estimator.inputs import (
    check_features,
    check_labels,
    check_weight,
    encode_labels,
    split_target,
)
from fastbayes.models.estimator.log_space import Floats, normalise, row_max
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.models.estimator.protocol import fresh
from fastbayes.models.leave_one_out.loo import loo_scorer
from fastbayes.scan.opening import Opened, folds_apart, with_folds
from fastbayes.scan.request import Counter

logger = logging.getLogger("fastbayes")


def log_posterior(scorer: LooScorer, batch: Batch, out: Floats) -> int:
    """Write ln P(c | x) into `out`; return how many rows have no possible class, and are -inf."""
    scorer.log_joint(batch, out)
    return to_log_posterior(out)


def served_log_posterior(scorer: LooScorer, batch: Batch, out: Floats) -> int:
    """Write ln P(c | x) into `out`, the prior's in rows without a possible class: so many."""
    if lost := log_posterior(scorer, batch, out):
        found = np.empty_like(out)
        scorer.posterior(batch, found)
        with np.errstate(divide="ignore"):
            np.log(found, out=out, where=np.isneginf(row_max(out))[:, None])
    return lost


def to_log_posterior(joint: Floats) -> int:
    """Turn log joints into log posteriors; rows without a possible class stay -inf, so many."""
    lost = np.isneginf(row_max(joint))
    normalise(joint, np.zeros(joint.shape[1]))
    joint[lost] = -np.inf
    return int(lost.sum())


class HeldOut(NamedTuple):
    """How rows are scored by models that had not seen them.

    method  "leave_one_out" or "k_fold"
    fixed   what the models have of all rows
    scan    gives all rows, with their log posteriors in nats, to what a function makes, which has
            `update` and `merge`, and returns it
    """

    method: str
    fixed: tuple[str, ...]
    scan: Scan


# What is learned from all rows without their classes: it knows nothing of the class to be scored.
UNSUPERVISED = ("schema", "subsumption")


def held_out(
    model: Any, source: Any, target: str, weight: str | None, validation: str, folds: int
) -> HeldOut:
    """Return what scores the rows of an open source by models like a fitted one without them.

    `validation` is "leave_one_out", "k_fold", or "auto", which `chosen` says. Raises SchemaError
    when leave-one-out is asked of a model that has none.
    """
    schema = model.schema_
    learning = partial(
        Encoder.learning,
        source.schema,
        target,
        weight=weight,
        domains=domains_of(schema, target),
        categorical=[f.name for f in schema.categorical if f.cuts is None],
        missing=model._counts_missing,
        parts=schema.parts,
    )
    scorer: LooScorer | None = None
    if validation == "leave_one_out":
        scorer = loo_scorer(model)
    elif validation == "auto":
        scorer = chosen(model, source, learning())
    if scorer is None:
        return by_folds(model, Opened(source, target, weight, None, learning), folds)
    scan = scan_of(model, source, RowEncoding([schema], target, weight), [scorer])
    return HeldOut("leave_one_out", scorer.fixed, scan)


def chosen(model: Any, source: Any, encoder: Encoder) -> LooScorer | None:
    """Return what scores the rows of a fitted model without each; None where folds are to.

    Folds are taken where the model has no leave-one-out, or one that keeps what was learned from
    the classes of all rows, that of the row scored among them. Workers know no folds by place: rows
    that they read are scored by leave-one-out, with a warning.

    The encoder learns, and is made without cut points.
    """
    try:
        scorer = loo_scorer(model)
    except SchemaError as error:
        logger.info("held out by k-fold: %s", error)
        return None
    to_cut = model._to_cut(encoder)
    supervised = to_cut is not None and supervised_cuts(*to_cut)
    allowed = UNSUPERVISED if supervised else (*UNSUPERVISED, "cut points")
    learned = " and ".join(what for what in scorer.fixed if what not in allowed)
    if not learned:
        return scorer
    if not isinstance(source, Counter):
        logger.info("held out by k-fold: %s learned from the classes of all rows", learned)
        return None
    warn(
        f"{source.description}: workers read the rows, which therefore have no folds by place, and "
        f"each is left out of the counts alone: by {learned} of all rows probabilities may be too "
        "sure; pass the paths themselves, or say validation='leave_one_out' if that will do"
    )
    return scorer


def by_folds(model: Any, opened: Opened, folds: int) -> HeldOut:
    """Return what scores each fold by a model without it."""
    apart = folds_apart(opened.source, str(opened.target), folds, weight=opened.weight)
    source, of_rows = with_folds(opened.source, apart)
    models, _, encoding = fitted_without_folds(
        partial(fresh, model),
        opened._replace(source=source, folds=of_rows),
        model.threads,
        model.memory_limit,
    )
    scan = scan_of(model, source, encoding, [Fitted(fitted) for fitted in models])
    return HeldOut("k_fold", ("schema",), scan)


def scan_of(model: Any, source: Any, encoding: RowEncoding, scorers: Sequence[LooScorer]) -> Scan:
    """Return what scans the rows of a source, each scored by the scorer of its fold."""
    limits: dict[str, Any] = {"threads": model.threads, "memory_limit": model.memory_limit}

    def scan(summary: Callable[[], Any]) -> Any:
        contestant = Contestant(model.classes_, scorers, summary=summary, answer=log_posterior)
        (score,), _ = scores(source, encoding, [contestant], **limits)
        total = summary()
        for part in score.evaluators:
            total.merge(part)
        return total

    return scan


def held_out_of_arrays(model: Any, X: Any, y: Any, sample_weight: Any, folds: int) -> HeldOut:
    """Return what scores each fold of rows, as a drop-in's `fit` takes them, by a model without it.

    Each k rows in succession fall into k folds, in random order.
    """
    X, y = split_target(X, y)
    y, X = check_labels(model, y), check_features(model, X, reset=False)
    weight = check_weight(sample_weight, len(y), allow_zero=True)
    codes = encode_labels(y, model.classes_)[1]
    random = np.random.default_rng(0)
    order = np.tile(np.arange(folds), (-(-len(y) // folds), 1))
    fold = random.permuted(order, axis=1).ravel()[: len(y)]
    heavy = np.ones(len(y), np.bool_) if weight is None else weight > 0
    found = (np.flatnonzero((fold == f) & heavy) for f in range(folds))
    places = [rows for rows in found if len(rows)]
    if len(places) < 2:
        raise DataError("one sample is too few to hold any out: pass more rows")
    with warnings.catch_warnings():
        # What there is to be said of the parameters the model has said.
        warnings.simplefilter("ignore", FastBayesWarning)
        counted = [
            fresh(model)
            .partial_fit(X[at], y[at], model.classes_, None if weight is None else weight[at])
            .statistics_
            for at in places
        ]
        models = [
            fresh(model).fit_statistics(sum(others[1:], start=others[0]))
            for others in ([c for c in counted if c is not mine] for mine in counted)
        ]

    def scan(summary: Callable[[], Any]) -> Any:
        total = summary()
        for fitted, rows in zip(models, places, strict=True):
            for start in range(0, len(rows), BLOCK_ROWS):
                at = rows[start : start + BLOCK_ROWS]
                to_log_posterior(joint := fitted.log_joint(X[at]))
                total.update(joint, codes[at], None if weight is None else weight[at])
        return total

    return HeldOut("k_fold", ("classes",), scan)
