"""`compare`: every model on the same rows, each judged on rows that it was not fitted with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastbayes.core.errors import SchemaError
from fastbayes.data.folds import FoldsByPlace
from fastbayes.evaluation.validate.comparison_runner import ComparisonRunner
from fastbayes.evaluation.validate.leaderboard import Comparison
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.inputs import is_array
from fastbayes.models.registry import candidates
from fastbayes.scan.counting import opened_to_learn
from fastbayes.scan.engine import Progress


def compare(
    source: Any,
    target: Any,
    *,
    validation: str | None = None,
    models: Any = None,
    folds: Any = None,
    seed: int = 0,
    sample_weight: Any = None,
    loss: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Iterable[str | int] | None = None,
    discretize: Any = "mdl",
    missing: str = "marginalize",
    columns: Sequence[str] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Judge every model on the same rows: one scan counts for all of them, one scores them all.

    Parameters
    ----------
    source
        As in `fastbayes.count`, to be read twice or more.
    target
        Name of the class column or (n_rows,) labels. Rows without a class take no part.
    validation
        "leave_one_out": each row is scored by the counts without it, in the cut points and
        structures of all rows; "k_fold": by models of the other folds, which learn these anew.
        By default "k_fold" where `folds` is given.
    models
        Names out of "naive-bayes", "naive-bayes-bins", "naive-bayes-auto", "spode", "tan", "kdb",
        "aode", "a2de", "joint-bayes", "joint-gaussian", "gaussian-bayes", "gaussian-bayes-tied",
        "weighted-naive-bayes", "logistic", "network"; unfitted models with parameters of their own;
        or {name: model}. By default all that the columns allow but the last three: two have no
        leave-one-out, one searches for a graph.
    folds, seed
        As in `k_fold`; ten folds by default.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    loss
        Loss matrix as in `decide`.
    domains, categorical, discretize, missing, columns, null_values, filesystem, threads
        As in `fastbayes.count`.
    memory_limit
        Bytes that the counts may take. Models whose counts exceed it are listed with the reason.
    progress
        Called with the number of rows done since the last call, in every scan.

    Returns
    -------
    Comparison
        The leaderboard; print it, or see its `table`. `best.model` is the winner, fitted to all
        rows.

    Raises
    ------
    DataError
        When the data cannot be used, or none of the models can be.
    SchemaError
        When the source can be read only once.
    ValueError
        When an option or the name of a model is unknown.

    Notes
    -----
    Numeric columns take one scan more, for cut points; with k-fold two for each fold, since bins
    are learned without the fold. So do KDB, for the counts of its families, A2DE, for those of
    triples, and the joint models, for those of cells. Leave-one-out does not know A2DE.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> board = fb.compare(table, "y")
    >>> [entry.name for entry in board.entries]
    ['joint-bayes', 'aode', 'kdb', 'spode', 'tan', 'naive-bayes', 'a2de']
    >>> board.best.figures.accuracy
    1.0
    """
    if validation is None:
        validation = "leave_one_out" if folds is None else "k_fold"
    if validation not in ("leave_one_out", "k_fold"):
        raise ValueError(f"validation={validation!r}: use 'leave_one_out' or 'k_fold'")
    by_folds = validation == "k_fold"
    if folds is not None and not by_folds:
        raise ValueError("validation='leave_one_out' has no folds: leave one of the two out")
    folds = 10 if folds is None else folds
    if by_folds and isinstance(folds, (int, np.integer)) and not isinstance(folds, bool):
        folds = FoldsByPlace(int(folds), seed) if folds >= 2 else folds
    opened = opened_to_learn(
        source,
        target,
        folds=folds if by_folds else None,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        missing=missing,
        columns=columns,
        null_values=null_values,
        filesystem=filesystem,
    )
    if not opened.source.rereadable:
        raise SchemaError(
            f"{opened.source.description} can be read only once, but compare counts and then "
            "scores: pass a table or a path"
        )
    named = not is_array(source)
    contest = ComparisonRunner(opened, discretize, threads, memory_limit, progress, named=named)
    contest.enter(_wanted(models, contest, missing))
    if by_folds:
        return contest.result("k-fold", contest.by_folds(loss))
    return contest.result("leave-one-out", contest.by_leaving_out(loss))


def _wanted(
    models: Any, contest: ComparisonRunner, missing: str
) -> list[tuple[str, Callable[[], Any], bool]]:
    """Return name, maker and whether it sees bins of each model that is to take part."""
    known = candidates()
    if models is None:
        takes_part = {
            "always": True,
            "numeric": bool(contest.numeric),
            "all_numeric": bool(contest.numeric) and not contest.categorical,
            "named": False,
        }
        models = [name for name, (_, candidate) in known.items() if takes_part[candidate.when]]
    if isinstance(models, (str, Classifier)):
        models = [models]
    told = models.items() if isinstance(models, Mapping) else [(None, m) for m in models]
    found: dict[str, tuple[str, Callable[[], Any], bool]] = {}
    for name, model in told:
        if isinstance(model, str):
            if model not in known:
                raise ValueError(f"models: {model!r} is none of {list(known)}")
            entry, candidate = known[model]
            make = partial(entry.load(), **candidate.parameters, missing=missing)
            bins = make()._discretizes if candidate.bins is None else candidate.bins
            name = name or model
        elif isinstance(model, Classifier):
            bins, name = model._discretizes, name or repr(model)
            make = partial(type(model), **model.get_params(deep=False))
        else:
            raise ValueError(f"models: {model!r} is neither a name nor a classifier of tables")
        if name in found:
            raise ValueError(f"models: {name!r} stands twice; give a dict with a name for each")
        found[name] = (str(name), make, bins)
    if not found:
        raise ValueError("models: name one at least")
    return list(found.values())
