"""Every model on every fold: accuracy, log-loss, what it said of itself held out, and seconds."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks.accuracy import rivals
from benchmarks.accuracy.tables import Table
from fastbayes.models.registry import Candidate, candidates

Floats = NDArray[np.float64]

BLEND, COMPARE = "blend", "compare's winner"
# Log-loss is that of probabilities of at least this.
LEAST = 1e-15
DIGITS = 6


def ours(X: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """Return what makes each model that the columns allow, by its name in `compare`."""
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes]
    suits = {"always": True, "numeric": any(numeric), "all_numeric": all(numeric)}
    suits["gaps"] = bool(X.isna().any(axis=None))

    def made(entry: Any, candidate: Candidate) -> Callable[[], Any]:
        return lambda: entry.load()(**candidate.parameters, threads=1)

    found = candidates().items()
    return {name: made(*both) for name, both in found if suits[both[1].when]}


def table_figures(table: Table, folds: list[int], *, with_rivals: bool) -> dict[str, Any]:
    """Return what was measured of one table: figures of every model in the order of the folds."""
    results: dict[str, dict[str, list[Any]]] = {}
    failed: dict[str, dict[str, str]] = {}
    sizes = []
    for fold in folds:
        test = np.flatnonzero(table.fold == fold)
        train = np.flatnonzero(table.fold != fold)
        sizes.append(len(test))
        X, y = table.X.iloc[train], table.y[train]
        answers = _posteriors(X, y, table.X.iloc[test], with_rivals=with_rivals)
        for name, (proba, classes, figures) in answers:
            if isinstance(proba, str):
                failed.setdefault(name, {})[str(fold)] = proba
                continue
            found = _scored(proba, classes, table.y[test]) | figures
            for what, value in found.items():
                # Kept by fold: a model that fails on one has a gap there.
                row = results.setdefault(name, {}).setdefault(what, [None] * len(folds))
                row[folds.index(fold)] = float(f"{value:.{DIGITS}g}")
    numeric = table.X.select_dtypes("number").shape[1]
    return {
        "rows": len(table.y),
        "numeric": numeric,
        "categorical": table.X.shape[1] - numeric,
        "classes": len(np.unique(table.y)),
        "given_folds": table.given,
        "folds": folds,
        "fold_rows": sizes,
        "weka": {name: {"accuracy": a, "log_loss": loss} for name, (a, loss) in table.weka.items()},
        "failed": failed,
        "models": results,
    }


Answer = tuple[Any, Any, dict[str, float]]


def _posteriors(
    X: pd.DataFrame, y: NDArray[Any], new: pd.DataFrame, *, with_rivals: bool
) -> Iterator[tuple[str, Answer]]:
    """Yield each model's posteriors of new rows, its classes and figures; or why it has none."""
    said: dict[str, dict[str, float]] = {}
    board, seconds = _timed(lambda: fb.compare(X, y, threads=1))
    for entry in board.entries:
        if entry.figures is not None and not entry.dropped:
            said.setdefault(entry.name, {})["compared"] = entry.figures.log_loss
    blend, blend_seconds = _timed(lambda: fb.Blend(threads=1).fit(X, y))
    for name, loss in blend.member_log_loss_.items():
        said.setdefault(name, {})["held_out"] = loss
    best = board.best
    # What the board says of the winner's figures is of the rows that it was chosen by.
    to_expect = best.figures.log_loss if math.isnan(best.calibrated) else best.calibrated
    held = {"compared": to_expect, "seconds": seconds}
    yield COMPARE, (best.model.predict_proba(new), best.model.classes_, held)
    held = {"held_out": blend.log_loss_[1], "seconds": blend_seconds}
    yield BLEND, (blend.predict_proba(new), blend.classes_, held)
    for name, make in ours(X).items():
        try:
            model, seconds = _timed(lambda make=make: make().fit(X, y))  # type: ignore[misc]
            proba = model.predict_proba(new)
        except fb.DataError as error:
            yield name, (str(error), None, {})
        else:
            yield name, (proba, model.classes_, said.get(name, {}) | {"seconds": seconds})
    if with_rivals:
        yield from _rivals(X, y, new)


def _rivals(X: pd.DataFrame, y: NDArray[Any], new: pd.DataFrame) -> Iterator[tuple[str, Answer]]:
    """Yield the same of the rivals that are installed, and of their vote."""
    lacking, proba, spent = rivals.absent(), {}, {}
    classes = np.unique(y)
    for name, (_, make) in rivals.RIVALS.items():
        if name in lacking:
            continue
        model, spent[name] = _timed(lambda make=make: make(X).fit(X, y))  # type: ignore[misc]
        proba[name] = model.predict_proba(new)
        assert np.array_equal(model.classes_, classes)
        yield name, (proba[name], classes, {"seconds": spent[name]})
    if rivals.VOTE not in lacking:
        seconds = sum(spent[name] for name in rivals.VOTERS)
        yield rivals.VOTE, (rivals.vote(proba), classes, {"seconds": seconds})


def _timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a fit gives and its processor seconds."""
    with warnings.catch_warnings():
        # What there is to be said of a fold's rows does not concern who reads a table of figures.
        warnings.simplefilter("ignore")
        start = time.process_time()
        found = fit()
        return found, time.process_time() - start


def _scored(proba: Floats, classes: NDArray[Any], y: NDArray[Any]) -> dict[str, float]:
    """Return accuracy and mean log-loss in nats; a class that training lacked has probability 0."""
    at = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    known = classes[at] == y
    right = np.where(known, proba[np.arange(len(y)), at], 0.0)
    chosen = classes[proba.argmax(axis=1)]
    loss = -np.log(right.clip(LEAST, 1.0)).mean()
    assert not math.isnan(loss)
    return {"accuracy": float((chosen == y).mean()), "log_loss": float(loss)}
