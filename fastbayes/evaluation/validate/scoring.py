"""One scan of labelled rows that scores several models, each on rows it was not fitted with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch, joined, taken
from fastbayes.core.errors import FastBayesError
from fastbayes.data.segments import Segment, Source
from fastbayes.evaluation.validation import Evaluator
from fastbayes.scan import engine
from fastbayes.scan.engine import Progress

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


class Part(NamedTuple):
    """Rows of a block that belong to one fold.

    fold   index of the fold
    batch  the rows with their classes, encoded for the models of this fold
    rows   their positions in the block; None: all of it
    """

    fold: int
    batch: Batch
    rows: Positions | None


class ScoredBlock(NamedTuple):
    """Rows as they came, and those of them that take part."""

    n_rows: int
    parts: Sequence[Part]


class HeldOutScorer(Protocol):
    """What tells the posteriors of rows that were not fitted with."""

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`; return how many rows took the prior."""
        ...

    def doubtful(self, batch: Batch) -> Positions:
        """Return the positions of rows that take all others to be scored."""
        ...

    def rest(self, batch: Batch) -> Any:
        """Return the moments of rows, none of them doubtful, where these are of use, else None."""
        ...

    def settled(self, batch: Batch, others: Any) -> HeldOutScorer:
        """Return what scores all doubtful rows together."""
        ...


class Fitted:
    """A model that was fitted without the rows that it is to score.

    Parameters
    ----------
    model
        A fitted model of named columns.
    """

    def __init__(self, model: Any) -> None:
        self._scorers = model._scorers()

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`; return how many rows took the prior."""
        lost: int = self._scorers(batch.cells).posterior(batch.codes, batch.numeric, out)
        return lost

    def doubtful(self, batch: Batch) -> Positions:
        """Return no rows."""
        return np.empty(0, np.int64)

    def rest(self, batch: Batch) -> Any:
        """Return nothing."""
        return None

    def settled(self, batch: Batch, others: Any) -> HeldOutScorer:
        """Return itself."""
        return self


@dataclass
class Contestant:
    """A model under validation.

    Parameters
    ----------
    classes
        (n_classes,) labels.
    scorers
        One for each fold.
    view
        Which columns of a batch the model takes; None: all.
    error
        Why it could not score some row; then its score is worth nothing.
    summary
        Gives what sums the scores of a fold up, with `update` and `merge`; None: an `Evaluator`.
    """

    classes: NDArray[Any]
    scorers: Sequence[HeldOutScorer]
    view: Callable[[Batch], Batch] | None = None
    error: FastBayesError | None = None
    summary: Callable[[], Any] | None = None

    @contextmanager
    def trying(self, strict: bool) -> Iterator[None]:
        """Take note of an error, unless the first is to be raised."""
        try:
            yield
        except FastBayesError as error:
            if strict:
                raise
            self.error = error


@dataclass
class Score:
    """What a model made of some rows.

    evaluators  one for each fold, or what sums up in their place
    proba       probabilities of block after block, NaN in rows that take no part
    held        doubtful rows: where their probabilities go, their positions there, and they
    rest        moments of the other rows
    seconds     processor time
    """

    evaluators: list[Any]
    proba: list[Floats] = field(default_factory=list)
    held: list[tuple[Floats | None, Positions, Batch]] = field(default_factory=list)
    rest: Any = None
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        """Add the rows of another, which come after these."""
        for mine, theirs in zip(self.evaluators, other.evaluators, strict=True):
            mine.merge(theirs)
        self.proba += other.proba
        self.held += other.held
        self.rest = other.rest if self.rest is None else _sum(self.rest, other.rest)
        self.seconds += other.seconds


def _sum(a: Any, b: Any) -> Any:
    return a if b is None else a + b


Parts = Callable[[Segment], Iterator[ScoredBlock]]


def scores(
    source: Source,
    parts: Parts,
    contestants: Sequence[Contestant],
    *,
    loss: Any = None,
    proba: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    strict: bool = True,
    ranks: bool = True,
) -> tuple[list[Score], Floats]:
    """Score all rows by all models in one scan; return their scores and the weight of each class.

    Parameters
    ----------
    source
        Where the rows come from.
    parts
        Encodes the blocks of a segment.
    contestants
        The models; all know the same classes.
    loss
        Loss matrix as in `decide`.
    proba
        Whether to keep the probabilities.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.
    strict
        Whether a model that cannot score a row ends it all, rather than itself.
    ranks
        Whether to keep what the AUC needs.
    """
    n_classes = len(contestants[0].classes)

    def begun() -> list[Score]:
        def summary(c: Contestant) -> Any:
            made = Evaluator(c.classes, loss=loss, ranks=ranks)
            return made if c.summary is None else c.summary()

        return [Score([summary(c) for _ in c.scorers]) for c in contestants]

    def score(segment: Segment) -> tuple[list[Score], Floats, int]:
        found, counted, n_rows = begun(), np.zeros(n_classes), 0
        for block in parts(segment):
            n_rows += block.n_rows
            for part in block.parts:
                assert part.batch.classes is not None
                counted += np.bincount(part.batch.classes, part.batch.weight, n_classes)
            for contestant, mine in zip(contestants, found, strict=True):
                if contestant.error is None:
                    with contestant.trying(strict):
                        _score(contestant, block, mine, n_classes, proba)
        return found, counted, n_rows

    total, counted = begun(), np.zeros(n_classes)
    for found, some, n_rows in engine.in_order(
        score, source.segments(BLOCK_ROWS), engine.resolved_threads(threads)
    ):
        for mine, theirs in zip(total, found, strict=True):
            mine.add(theirs)
        counted += some
        if progress is not None:
            progress(n_rows)
    for contestant, mine in zip(contestants, total, strict=True):
        if contestant.error is None:
            with contestant.trying(strict):
                _settle(contestant, mine)
    return total, counted


def _score(
    contestant: Contestant, block: ScoredBlock, mine: Score, n_classes: int, proba: bool
) -> None:
    kept = np.full((block.n_rows, n_classes), np.nan) if proba else None
    if kept is not None:
        mine.proba.append(kept)
    for fold, batch, rows in block.parts:
        scorer = contestant.scorers[fold]
        start = time.thread_time()
        seen = batch if contestant.view is None else contestant.view(batch)
        posterior = np.empty((batch.n_rows, n_classes))
        scorer.posterior(seen, posterior)
        if len(aside := scorer.doubtful(seen)):
            mine.held.append((kept, aside if rows is None else rows[aside], taken(seen, aside)))
            certain = np.delete(np.arange(batch.n_rows), aside)
            seen, posterior = taken(seen, certain), posterior[certain]
            rows = certain if rows is None else rows[certain]
        rest = scorer.rest(seen)
        if rest is not None:
            mine.rest = rest if mine.rest is None else mine.rest + rest
        mine.seconds += time.thread_time() - start
        assert seen.classes is not None
        mine.evaluators[fold].update(posterior, seen.classes, seen.weight)
        if kept is not None:
            kept[slice(None) if rows is None else rows] = posterior


def _settle(contestant: Contestant, mine: Score) -> None:
    """Score the rows that had to wait for all others."""
    if not mine.held:
        return
    assert mine.rest is not None
    batch = joined([held for _, _, held in mine.held])
    posterior = np.empty((batch.n_rows, len(contestant.classes)))
    contestant.scorers[0].settled(batch, mine.rest).posterior(batch, posterior)
    assert batch.classes is not None
    mine.evaluators[0].update(posterior, batch.classes, batch.weight)
    done = 0
    for kept, rows, held in mine.held:
        if kept is not None:
            kept[rows] = posterior[done : done + held.n_rows]
        done += held.n_rows
