"""Models on a growing sample of the rows, which tells early who cannot win."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.allocators import release
from fastbayes.core.batch import taken
from fastbayes.core.errors import FastBayesError
from fastbayes.core.picks import free_name
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.folds import Draw, Drawn, Folds, Noted, NotedFolds
from fastbayes.data.memory import TableSource
from fastbayes.data.segments import Segment
from fastbayes.evaluation.validate.scored_rows import Parts, ScoredBlock
from fastbayes.evaluation.validate.scoring import Contestant, Score, score_block
from fastbayes.evaluation.validation import Evaluator
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.scan import engine
from fastbayes.scan.opening import Opened, census_of
from fastbayes.scan.request import Counter, Progress
from fastbayes.statistics.bundle import Statistics

Floats = NDArray[np.float64]

# Fewer rows are all scored: that takes no longer than a race.
LEAST_ROWS = 1 << 17
# Rows of the first round; each round has twice those of the one before, and the last one at most
# this share of all rows, and as many rows and cells.
FIRST_ROWS = 1 << 13
SHARE, MOST_ROWS, MOST_CELLS = 1 / 8, 1 << 18, 1 << 24
# Of a memory limit, so many bytes for each cell: numbers of 8 bytes are there four times while they
# are put into their order, and the sample takes a fourth of the limit then.
BYTES_OF_CELL = 128
# The chance that the best of all models is dropped is below this.
ERROR = 1e-3
# The greatest log-loss of a row.
WORST = -math.log(CLIP)
# Shares of the wealth that are bet.
BETS = np.array([0.9, *(2.0**-k for k in range(1, 10))])


class RaceSample(NamedTuple):
    """Rows in a random order.

    table     the rows, with a column of their folds where there are any
    folds     which fold a row belongs to
    n_rows    rows that it was drawn from
    heaviest  the largest weight among them
    """

    table: pa.Table
    folds: Folds | None
    n_rows: int
    heaviest: float


def race_sample(
    opened: Opened,
    stats: Statistics,
    threads: int | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> RaceSample | None:
    """Return random rows out of those that were counted, or None.

    None where there are too few, or where workers read them: they do not come here.
    """
    source, folds = opened.source, opened.folds
    if isinstance(source, Counter):
        return None
    known = source.n_rows if stats.weighted or source.n_rows is not None else stats.n_rows
    cells = MOST_CELLS if memory_limit is None else min(MOST_CELLS, memory_limit // BYTES_OF_CELL)
    most = min(MOST_ROWS, int(cells // len(source.schema)))
    if (known is not None and known < LEAST_ROWS) or most < FIRST_ROWS:
        return None
    census = census_of(opened, threads)
    most = min(most, int(census.n_rows * SHARE))
    if census.n_rows < LEAST_ROWS or most < FIRST_ROWS:
        return None
    share = engine.share_of(source, threads, memory_limit)
    source = share.source
    if folds is not None:
        folds = NotedFolds(free_name("fold", source.schema.names), folds)
        source = Noted(source, folds)
    draw = Draw(census.n_rows, 0, 0)
    size = FIRST_ROWS << (most // FIRST_ROWS).bit_length() - 1
    drawn = Drawn(source, census, draw, 0, size, free_name("place", source.schema.names))
    rows = np.diff(census.starts).tolist()

    def read(function: Any, segments: Iterator[Segment]) -> Iterator[Any]:
        with closing(share.in_order(function, segments)) as found:
            for n, batches in zip(rows, found, strict=True):
                if progress is not None:
                    progress(n)
                yield batches

    table = drawn.table(read)
    release()  # all that was decoded besides
    return RaceSample(table, folds, census.n_rows, census.heaviest)


def evidence(gaps: Floats, bound: float, n_rows: int) -> float:
    """Return ln of the most that bets on a mean above 0 have won, from (n,) rows in random order.

    The rows are drawn without replacement out of `n_rows`, none of which is below -`bound`. Were
    their mean 0 or less, the bets would win 1/p or more with a probability of at most p, however
    often one looks. Each round bets a share of the wealth on the next row being above what the
    rest would have on average, if all had 0; the wealth is shared out among several such bettors.

    References
    ----------
    Waudby-Smith, Ramdas (2024), Estimating means of bounded random variables by betting, Journal of
    the Royal Statistical Society B 86, section 5: sampling without replacement.
    """
    rest = -(np.cumsum(gaps) - gaps) / (n_rows - np.arange(len(gaps)))
    won = (gaps - rest) / (bound + np.maximum(rest, 0.0))
    wealth = np.logaddexp.reduce(np.cumsum(np.log1p(BETS[:, None] * won), axis=1), axis=0)
    return float(wealth.max(initial=-math.inf)) - math.log(len(BETS))


class Lagging(NamedTuple):
    """A model that cannot win.

    name    the model
    n_rows  rows after which that was known
    best    the model that is better
    gap     how much less the mean log-loss of that one is on these rows
    error   its standard error
    score   what the model made of these rows
    """

    name: str
    n_rows: int
    best: str
    gap: float
    error: float
    score: Score

    def __str__(self) -> str:
        return (
            f"dropped after {self.n_rows:,} rows: its log-loss is {self.gap:.3g} ± "
            f"{self.error:.1g} above that of {self.best}"
        )


@dataclass
class Trial:
    """A model in the race: its log-losses and scores, by blocks of the sample.

    The losses of rows that wait for all others are NaN.
    """

    name: str
    contestant: Contestant
    losses: list[Floats] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    def mean(self, n_blocks: int) -> float:
        """Return the mean log-loss of the first blocks."""
        return float(np.nanmean(np.concatenate(self.losses[:n_blocks])))


class Race:
    """Models in rounds, each with twice the rows of the one before.

    `parts` encodes the rows; `n_models` may take part, the later ones included.
    """

    def __init__(
        self, sample: RaceSample, parts: Parts, n_models: int, loss: Any, threads: int | None
    ) -> None:
        self.sample, self.loss = sample, loss
        # Each model may be dropped for each other.
        self.enough = math.log(max(n_models * (n_models - 1), 1) / ERROR)
        self.threads = resolved_threads(threads)
        self.standing: dict[str, Trial] = {}
        self.errors: dict[str, FastBayesError] = {}
        segments = TableSource(sample.table).segments(FIRST_ROWS)
        self._encoded = (block for segment in segments for block in parts(segment))
        self._blocks: list[ScoredBlock] = []
        self._weights: list[Floats] = []

    @property
    def nbytes(self) -> int:
        """Bytes held, about: the rows, as they came and encoded, and what is known of each."""
        n_rows = len(self._blocks) * FIRST_ROWS
        return 2 * self.sample.table.nbytes + 8 * n_rows * (2 + len(self.standing))

    def enter(self, name: str, contestant: Contestant) -> None:
        """Add a model."""
        self.standing[name] = Trial(name, contestant)

    def run(self) -> list[Lagging]:
        """Return the models that cannot win, which take no part any more.

        Nor do those that could not score a row; `errors` says why.
        """
        found, n_blocks = list[Lagging](), 1
        while n_blocks * FIRST_ROWS <= len(self.sample.table) and len(self.standing) > 1:
            self._score(n_blocks)
            trials = sorted(self.standing.values(), key=lambda t: (t.mean(n_blocks), t.name))
            for trial in trials[1:]:
                if (lagging := self._judged(trial, trials[0], n_blocks)) is not None:
                    found.append(lagging)
                    del self.standing[trial.name]
            n_blocks *= 2
        return found

    def _judged(self, trial: Trial, best: Trial, n_blocks: int) -> Lagging | None:
        """Return a model if it is worse than the best one for certain."""
        mine, other = (np.concatenate(t.losses[:n_blocks]) for t in (trial, best))
        weight = np.concatenate(self._weights[:n_blocks])
        # What is not known is as good for the one and as bad for the other as it can be.
        gaps = np.where(np.isnan(mine), 0.0, mine) - np.where(np.isnan(other), WORST, other)
        gaps *= weight
        bound = WORST * self.sample.heaviest
        if evidence(gaps, bound, self.sample.n_rows) < self.enough:
            return None
        score = Score(self._begun(trial.contestant))
        for part in trial.scores[:n_blocks]:
            score.add(part)
        gap, scale = float(gaps.mean()), float(weight.mean())
        error = float((gaps - gap / scale * weight).std()) / math.sqrt(len(gaps))
        return Lagging(trial.name, len(gaps), best.name, gap / scale, error / scale, score)

    # -- scoring -------------------------------------------------------------------------------

    def _begun(self, contestant: Contestant) -> list[Evaluator]:
        return [
            Evaluator(contestant.classes, loss=self.loss, ranks=False) for _ in contestant.scorers
        ]

    def _score(self, n_blocks: int) -> None:
        """Have all models score the first blocks, those that have not yet."""
        while len(self._blocks) < n_blocks:
            self._keep(next(self._encoded))
        due = [(t, i) for t in self.standing.values() for i in range(len(t.losses), n_blocks)]
        with closing(in_order(self._scored, due, self.threads)) as found:
            for (trial, _), scored in zip(due, found, strict=True):
                if isinstance(scored, FastBayesError):
                    self.errors.setdefault(trial.name, scored)
                    self.standing.pop(trial.name, None)
                else:
                    trial.losses.append(scored[0])
                    trial.scores.append(scored[1])

    def _keep(self, block: ScoredBlock) -> None:
        """Keep a block, its codes, which the next block overwrites, as a copy."""
        parts = [p._replace(batch=taken(p.batch, np.arange(p.batch.n_rows))) for p in block.parts]
        self._blocks.append(ScoredBlock(block.n_rows, parts))
        self._weights.append(block.weights())

    def _scored(self, due: tuple[Trial, int]) -> tuple[Floats, Score] | FastBayesError:
        """Return the log-losses and the score of a model on a block, or why there are none."""
        contestant, block = due[0].contestant, self._blocks[due[1]]
        score = Score(self._begun(contestant))
        try:
            losses = score_block(contestant, block, score, len(contestant.classes))
        except FastBayesError as error:
            return error
        score.held, score.moments = [], None
        return losses, score
