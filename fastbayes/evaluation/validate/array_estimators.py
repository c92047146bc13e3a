"""Estimators of arrays, by scikit-learn's protocol, judged by the folds of `compare`."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.core.schema import Schema
from fastbayes.data.segments import Segment, Source
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.models.estimator.base import TableRows
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.scan import engine
from fastbayes.scan.request import Progress


def is_estimator(model: Any) -> bool:
    """Return whether an object learns from arrays and gives probabilities."""
    able = all(callable(getattr(model, name, None)) for name in ("fit", "predict_proba"))
    return able and not isinstance(model, (type, TableRows))


class FeatureMatrix:
    """Turns encoded rows into a matrix, a column for each feature in the order of the schema.

    Numbers are as they are, and categorical values their places among those of the column, from 0;
    what is missing, or was not seen, is NaN.
    """

    def __init__(self, schema: Schema) -> None:
        categorical = [i for i, f in enumerate(schema.features) if f.kind != "numeric"]
        self._categorical = np.array(categorical, np.intp)
        self._numeric = [i for i, f in enumerate(schema.features) if f.kind == "numeric"]
        self._sizes = np.array([schema.features[i].size for i in categorical])
        self.n = len(schema.features)

    def __call__(self, batch: Batch) -> Floats:
        """Return the matrix of rows, (n_rows, n_features)."""
        found = np.full((batch.n_rows, self.n), np.nan)
        for feature, codes in columns_of(batch.codes).items():
            known = codes < self._sizes[feature]
            found[known, self._categorical[feature]] = codes[known]
        for at, column in zip(self._numeric, batch.numeric, strict=True):
            found[:, at] = column
        return found


class HeldRows(NamedTuple):
    """Rows in memory, in the order of the source, those that take no part left out.

    X       (n_rows, n_features), as `FeatureMatrix` has them
    y       (n_rows,) class codes
    weight  (n_rows,); None where rows have none
    fold    (n_rows,) folds, by their place
    """

    X: Floats
    y: NDArray[np.int64]
    weight: Floats | None
    fold: NDArray[np.int64]

    def of(self, kept: NDArray[np.bool_]) -> HeldRows:
        """Return a copy of some of the rows."""
        weight = None if self.weight is None else self.weight[kept]
        return HeldRows(self.X[kept], self.y[kept], weight, self.fold[kept])


def check_room(n_rows: float, n_features: int, limit: int | None, besides: int) -> None:
    """Raise MemoryLimitError where rows, and a copy of those to learn from, exceed a limit."""
    need = 16 * int(n_rows) * (n_features + 3) + besides
    if limit is not None and need > limit:
        raise MemoryLimitError(
            f"holding {n_rows:,.10g} rows x {n_features} columns, twice while it learns, needs "
            f"{need:,} bytes, over memory_limit={limit:,}: raise memory_limit, or leave it out"
        )


def held_rows(
    source: Source,
    rows: RowEncoding,
    view: Callable[[Batch], Batch] | None,
    columns: FeatureMatrix,
    *,
    weighted: bool,
    threads: int | None,
    progress: Progress | None,
) -> HeldRows:
    """Read all rows; `view` gives those columns of a batch that `columns` turns into a matrix."""
    parts = rows.parts(source.schema, source.n_rows)
    share = engine.share_of(source, threads, None)

    def read(segment: Segment) -> tuple[int, list[HeldRows]]:
        done, found = 0, []
        for block in parts(segment):
            n = block.n_rows
            done += n
            X, y, fold = np.empty((n, columns.n)), np.zeros(n, np.int64), np.zeros(n, np.int64)
            for place, batch, positions in block.parts:
                at = slice(None) if positions is None else positions
                assert batch.classes is not None
                X[at] = columns(batch if view is None else view(batch))
                y[at], fold[at] = batch.classes, place
            weight = block.weights()
            found.append(HeldRows(X, y, weight, fold).of(weight > 0))
        return done, found

    pieces: list[HeldRows] = []
    for n, found in share.in_order(read, share.source.segments(BLOCK_ROWS)):
        pieces += found
        if progress is not None:
            progress(n)
    X, y, weight, fold = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return HeldRows(X, y, weight if weighted else None, fold)


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise what an estimator of others raises as a DataError of one line."""
    try:
        yield
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise DataError(f"{type(error).__name__}: {said}") from error


def fitted(estimator: Any, rows: HeldRows, labels: NDArray[Any]) -> Any:
    """Return a copy of an estimator that has learned from rows, which it may work on in place."""
    own, given = copy.deepcopy(estimator), {}
    if rows.weight is not None:
        if "sample_weight" not in inspect.signature(own.fit).parameters:
            raise DataError(
                f"fit of {type(own).__name__} takes no sample_weight, and the rows have weights: "
                "leave the weights out, or the model"
            )
        given["sample_weight"] = rows.weight
    with _named_errors():
        own.fit(rows.X, labels[rows.y], **given)
    return own


class ArrayScorer(LooScorer):
    """Posteriors of an estimator of arrays that was fitted without the rows it is to score."""

    def __init__(self, estimator: Any, columns: FeatureMatrix, labels: NDArray[Any]) -> None:
        self._estimator, self._columns, self._n_classes = estimator, columns, len(labels)
        place = {label: c for c, label in enumerate(labels.tolist())}
        with _named_errors():
            self._places = [place[label] for label in np.asarray(estimator.classes_).tolist()]
        self._lock = threading.Lock()  # other people's estimators may keep something meanwhile

    def posterior(self, batch: Batch, out: Floats) -> int:
        """Write P(c | x) into `out`, 0 of classes that the estimator has not seen; return 0."""
        out[...] = 0.0
        if batch.n_rows:
            X = self._columns(batch)
            with _named_errors(), self._lock:
                found, wanted = self._estimator.predict_proba(X), out[:, self._places].shape
                if np.shape(found) != wanted:
                    raise ValueError(f"predict_proba gave {np.shape(found)} instead of {wanted}")
                out[:, self._places] = found
        return 0

    def log_joint(self, batch: Batch, out: Floats) -> float:
        """Write ln P(c | x), which is as good: of x an estimator says nothing."""
        self.posterior(batch, out)
        with np.errstate(divide="ignore"):
            np.log(out, out=out)
        return 0.0
