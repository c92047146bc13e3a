"""Rows of tables, files and streams: encoded by the schema of a model and scored in order."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.inputs import open_features
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.model import Model
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.prediction import ScoreRows
from fastbayes.scan import engine

logger = logging.getLogger("fastbayes")

# Rows of a block for which the work of beginning one is nothing.
LEAST_ROWS = 4_096


@dataclass
class Tally:
    """What a scan of new rows came across."""

    unseen: NDArray[np.int64]
    prior_rows: int = 0  # impossible under every class: answered from the prior


class TableRows(Model):
    """A model of named columns; it scores batches of codes and numbers.

    A subclass gives a scorer (`_scorer`), contributions (`_contributions`), and if it averages
    over super-parents (`_averages`) their shares in what it says (`_shares`).
    """

    _averages: ClassVar[bool] = False

    schema_: Schema = fitted("Columns, domains, cut points and classes.")
    # Parameters, or those of the model that a meta-estimator holds.
    unseen: str = fitted()
    threads: int | None = fitted()

    def _scorer(self, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        raise NotImplementedError

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | c) of every row into `out`, (n_rows, n_features, n_classes)."""
        raise NotImplementedError

    def _shares(self, batch: Batch, out: Floats) -> Floats:
        """Write contributions, and return the share of each super-parent, shaped like them."""
        raise NotImplementedError

    def _scorers(self) -> Callable[[float], Any]:
        """Return a function from the cells of a job to its scorer, made once per kind."""
        made: dict[bool, Any] = {}

        def scorer(cells: float) -> Any:
            kind = dispatch.compiled(cells)
            if kind not in made:
                made[kind] = self._scorer(cells)
            return made[kind]

        return scorer

    def _scored(
        self, X: Any, answer: ScoreRows, width: int | None = None, kind: type = np.float64
    ) -> NDArray[Any]:
        scorers = self._scorers()

        def score(batch: Batch, out: NDArray[Any]) -> int:
            return answer(scorers(batch.cells), (batch.codes, batch.numeric), out) or 0

        return self._scan(X, score, width, kind)[0]

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None]:
        # Both in one scan: a stream can be read only once.
        shape = 1 + self._averages, len(self.schema_.features), len(self.classes_)

        def score(batch: Batch, out: NDArray[Any]) -> int:
            parts = out.reshape(-1, *shape)
            if self._averages:
                parts[:, 1] = self._shares(batch, parts[:, 0])
            else:
                self._contributions(batch, parts[:, 0])
            return 0

        flat, tally = self._scan(X, score, math.prod(shape))
        parts = flat.reshape(-1, *shape)
        return parts[:, 0], self._unseen(tally), parts[:, 1] if self._averages else None

    def _scan(
        self,
        X: Any,
        score: Callable[[Batch, NDArray[Any]], int],
        width: int | None,
        kind: type = np.float64,
    ) -> tuple[NDArray[Any], Tally]:
        """Return score(batch, out) of all rows of X, in order."""
        source = open_features(self, X)
        encoder = Encoder.applying_to(self.schema_, source.schema, unseen=self.unseen)
        encoder.expect(source.n_rows)
        tail = () if width is None else (width,)
        known = source.in_memory and source.n_rows is not None
        out = np.empty((source.n_rows if known else 0, *tail), dtype=kind)
        tally = Tally(np.zeros(len(self.schema_.categorical), dtype=np.int64))

        def one(item: tuple[Segment, int]) -> tuple[list[NDArray[Any]], NDArray[np.int64], int]:
            segment, start = item
            done, unseen, prior_rows = 0, np.zeros_like(tally.unseen), 0
            pieces = []
            for rows, encoded in engine.encoded_blocks(segment, encoder):
                if known:
                    piece = out[start + done : start + done + rows.num_rows]
                else:
                    piece = np.empty((rows.num_rows, *tail), dtype=kind)
                    pieces.append(piece)
                prior_rows += score(encoded.batch, piece)
                unseen += encoded.unseen
                done += rows.num_rows
            return pieces, unseen, prior_rows

        threads = engine.resolved_threads(self.threads)
        rows = BLOCK_ROWS
        if known:
            # Few rows that take long each are for all threads; rows are scored one by one anyhow.
            rows = min(max(len(out) // (8 * threads), LEAST_ROWS), BLOCK_ROWS)

        def items() -> Iterator[tuple[Segment, int]]:
            start = 0
            for segment in source.segments(rows):
                yield segment, start
                start += segment.n_rows if known else 0

        pieces: list[NDArray[Any]] = []
        for some, unseen, prior_rows in engine.in_order(one, items(), threads):
            pieces += some
            tally.unseen += unseen
            tally.prior_rows += prior_rows
        self._report(tally)
        return (out if known else np.concatenate([out, *pieces])), tally

    def _report(self, tally: Tally) -> None:
        for name, n in self._unseen(tally).items():
            logger.info("column %r: %d values were not seen at fit", name, n)
        if tally.prior_rows:
            logger.info("%d rows are impossible under every class", tally.prior_rows)

    def _unseen(self, tally: Tally) -> dict[str, int]:
        names = [f.name for f in self.schema_.categorical]
        return {name: int(n) for name, n in zip(names, tally.unseen, strict=True) if n}

    def _feature_names(self) -> tuple[str, ...]:
        return self.schema_.names

    def _target_column(self, codes: NDArray[np.intp]) -> tuple[str, Any]:
        return self.schema_.target or "class", self.schema_.classes.take(codes)
