"""Log posteriors of rows by models that had not seen them: by leave-one-out, or by folds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes import engine
from fastbayes.batch import Batch
from fastbayes.classifiers.left_out import taken_apart
from fastbayes.classifiers.log_space import Floats, normalise, row_max
from fastbayes.counting import Opened, with_folds
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import FoldsByPlace
from fastbayes.data.segments import Segment
from fastbayes.errors import SchemaError
from fastbayes.fold_training import fitted_without_folds
from fastbayes.schema import Schema
from fastbayes.scoring import Block, Fitted, Part, Parts

logger = logging.getLogger("fastbayes")


class LogPosteriors:
    """Scores rows that were not fitted with, as `scoring` has them, in nats.

    Parameters
    ----------
    scorer
        What the models give that were not fitted with the rows.
    log_joint
        Writes ln P(c, x) of a batch.
    """

    def __init__(self, scorer: Any, log_joint: Callable[[Batch, Floats], Any]) -> None:
        self._scorer = scorer
        self._log_joint = log_joint

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write ln P(c | x) into `out`, all -inf where no class is possible; return these rows."""
        self._log_joint(batch, out)
        lost = np.isneginf(row_max(out))
        normalise(out, np.zeros(out.shape[1]))
        out[lost] = -np.inf
        return int(lost.sum())

    def doubtful(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of rows that take all others to be scored."""
        return np.asarray(self._scorer.doubtful(batch))

    def rest(self, batch: Batch) -> Any:
        """Return the moments of rows, none of them doubtful, where these are of use, else None."""
        return self._scorer.rest(batch)

    def settled(self, batch: Batch, others: Any) -> LogPosteriors:
        """Return what scores all doubtful rows together."""
        scorer = self._scorer.settled(batch, others)
        return LogPosteriors(scorer, scorer.log_joint)


class HeldOut(NamedTuple):
    """How rows are scored by models that had not seen them.

    method   "leave_one_out" or "k_fold"
    fixed    what the models have of all rows
    scorers  one for each fold
    parts    splits blocks into folds
    """

    method: str
    fixed: tuple[str, ...]
    scorers: list[LogPosteriors]
    parts: Parts


def held_out(
    model: Any, source: Any, target: str, weight: str | None, validation: str, folds: int
) -> HeldOut:
    """Return what scores rows by models like this one that had not seen them.

    Parameters
    ----------
    model
        The model, fitted to the rows.
    source
        An open source of the rows.
    target, weight
        The columns of classes and of weights.
    validation
        "leave_one_out"; "k_fold"; or "auto", the first where the model has it.
    folds
        Number of folds.

    Raises
    ------
    SchemaError
        When leave-one-out is asked of a model that has none.
    """
    if validation != "k_fold":
        try:
            scorer = taken_apart(model)
        except SchemaError as error:
            if validation == "leave_one_out":
                raise
            logger.info("held out by k-fold: %s", error)
        else:
            return one_by_one(scorer, model.schema_, source, target, weight)
    return by_folds(model, source, target, weight, folds)


def one_by_one(
    scorer: Any, schema: Schema, source: Any, target: str, weight: str | None
) -> HeldOut:
    """Return what scores each row without itself, and what splits blocks."""
    encoder = Encoder.applying_to(schema, source.schema, target=target, weight=weight)
    encoder.expect(source.n_rows)

    def parts(segment: Segment) -> Iterator[Block]:
        for block, encoded in engine.encoded_blocks(segment, encoder):
            yield Block(block.num_rows, [Part(0, encoded.batch, encoded.kept)])

    scorers = [LogPosteriors(scorer, scorer.log_joint)]
    return HeldOut("leave_one_out", scorer.fixed, scorers, parts)


def by_folds(model: Any, source: Any, target: str, weight: str | None, folds: int) -> HeldOut:
    """Return what scores each fold by a model without it, and what splits blocks."""
    schema = model.schema_
    domains = {f.name: f.values for f in schema.categorical if f.cuts is None and not f.void}
    learning = partial(
        Encoder.learning,
        source.schema,
        target,
        weight=weight,
        domains={**domains, target: schema.classes},
        categorical=[f.name for f in schema.categorical if f.cuts is None],
        missing=model._counts_missing,
    )
    source, apart = with_folds(source, FoldsByPlace(folds))
    params = model.get_params(deep=False)
    models, _, parts = fitted_without_folds(
        lambda: type(model)(**params),
        Opened(source, target, weight, apart, learning),
        model.threads,
        model.memory_limit,
    )

    def scorer(fitted: Any) -> LogPosteriors:
        scorers = fitted._scorers()

        def log_joint(batch: Batch, out: Floats) -> None:
            scorers(batch.cells).log_joint(batch.codes, batch.numeric, out)

        return LogPosteriors(Fitted(fitted), log_joint)

    return HeldOut("k_fold", ("schema",), [scorer(fitted) for fitted in models], parts)
