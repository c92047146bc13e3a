"""`learn`: a model from data that are read as `count` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastbayes.classifiers.base import check_learnable
from fastbayes.classifiers.spode import CRITERIA
from fastbayes.counting import declared, open_labelled, several
from fastbayes.data.apply import as_told
from fastbayes.data.encode import Encoder
from fastbayes.data.unify import unknown_column
from fastbayes.engine import Progress
from fastbayes.errors import SchemaError


def learn(
    model: Any,
    source: Any,
    target: Any,
    *,
    sample_weight: Any = None,
    columns: Sequence[str] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    progress: Progress | None = None,
) -> None:
    """Fit a model as its `fit` does, in as many scans as that takes.

    Parameters
    ----------
    model
        A classifier of tables; it is fitted.
    source, target, sample_weight, columns, null_values, filesystem, progress
        As in `count`.

    Raises
    ------
    ValueError
        When a parameter of the model cannot be used.
    DataError, MemoryLimitError
        As `count` and the model's `fit` do.
    """
    model._check_parameters()
    opened, target_name, weight_name = open_labelled(
        source,
        target,
        sample_weight=sample_weight,
        columns=columns,
        null_values=null_values,
        types=as_told(model.categorical, model.domains),
        filesystem=filesystem,
    )
    features = [n for n in opened.schema.names if n not in (target_name, weight_name)]
    for name in _named(model):
        if name not in features:
            raise SchemaError(unknown_column(name, features, opened.description))
    learning = partial(
        Encoder.learning,
        opened.schema,
        target_name,
        weight=weight_name,
        domains={**declared(source, opened, weight_name), **(model.domains or {})},
        categorical=several(model.categorical),
        missing=model.missing,
        null_values=null_values or (),
    )
    stats = model._scanned(model._scans(opened, learning, progress=progress))
    check_learnable(stats, opened.description)
    model._learned(stats)
    model._set_features(*model._features_of(stats))


def _named(model: Any) -> list[str]:
    """Return the features that a model's parameters name: a slip is told before the scan."""
    parent, weights = getattr(model, "super_parent", None), getattr(model, "weights", None)
    named = [getattr(model, "root", None), None if parent in CRITERIA else parent]
    return [
        n for n in [*named, *(weights if isinstance(weights, Mapping) else ())] if n is not None
    ]
