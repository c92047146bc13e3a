"""How good a model is, asked of rows wherever they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core import files
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Source
from fastbayes.evaluation.validate.scoring import Contestant, Fitted, Scanned, parts_of, scores
from fastbayes.evaluation.validation import Evaluator
from fastbayes.scan.request import Counter, Partial, Progress, ScanRequest


class Scored(NamedTuple):
    """What a model made of some rows.

    evaluator  sums up its figures
    lost       rows that are impossible under every class
    scanned    the rows
    """

    evaluator: Evaluator
    lost: int
    scanned: Scanned


@dataclass(frozen=True)
class Scoring(ScanRequest[Scored]):
    """How good a model is, on labelled rows.

    Parameters
    ----------
    model
        A fitted model of named columns, which may be pickled.
    target, weight
        Columns of the classes and the weights.
    loss
        As in `evaluate`.
    """

    model: Any
    target: str | None
    weight: str | None
    loss: Any = None

    def count(
        self, rows: Source, threads: int | None, progress: Progress | None = None
    ) -> Partial[Scored]:
        """Return what rows say."""
        model = self.model
        encoder = Encoder.applying_to(
            model.schema_, rows.schema, unseen=model.unseen, target=self.target, weight=self.weight
        )
        encoder.expect(rows.n_rows)
        (score,), scanned = scores(
            *(rows, parts_of(encoder), [Contestant(model.classes_, [Fitted(model)])]),
            loss=self.loss,
            threads=threads,
            memory_limit=getattr(model, "memory_limit", None),
            progress=progress,
            weighted=self.weight is not None,
        )
        return Partial(scanned.n_rows, Scored(score.evaluators[0], score.lost, scanned))

    def asked(
        self, rows: Source, threads: int | None, progress: Progress | None
    ) -> Partial[Scored]:
        """Return what all rows say, wherever they are."""
        if isinstance(rows, Counter):
            return rows.run(self, threads, progress)
        return self.count(rows, threads, progress)

    def zero(self) -> Scored:
        """Return what no rows say."""
        return Scored(Evaluator(self.model.classes_, loss=self.loss), 0, Scanned())

    def add(self, a: Scored, b: Scored) -> Scored:
        """Return what the rows of both say."""
        total = self.zero().evaluator
        for part in (a, b):
            total.merge(part.evaluator)
        return Scored(total, a.lost + b.lost, a.scanned + b.scanned)

    def to_bytes(self, value: Scored) -> bytes:
        """Return the bytes of what rows say."""
        scanned = {name: np.asarray(n) for name, n in value.scanned._asdict().items()}
        arrays = {**value.evaluator.arrays(), **scanned, "lost": np.asarray(value.lost)}
        return files.to_bytes({"kind": "scores"}, arrays)

    def from_bytes(self, data: bytes) -> Scored:
        """Return what the bytes say."""
        arrays: Mapping[str, Any] = files.from_bytes(data, f"{len(data):,} bytes")[1]
        evaluator = self.zero().evaluator
        evaluator.take(arrays)
        n_rows, dropped, lost = (int(arrays[name]) for name in ("n_rows", "dropped", "lost"))
        scanned = Scanned(arrays["classes"], n_rows, dropped, arrays["unseen"])
        return Scored(evaluator, lost, scanned)
