"""How much each super-parent of AODE says: its weight in the average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastbayes.core.errors import SchemaError
from fastbayes.kernels.numpy.information import class_information
from fastbayes.models.estimator.count_tables import CountTables
from fastbayes.models.estimator.log_space import Floats

RULES = ("uniform", "mutual_information")


def check_weights(_: str, weights: Any) -> None:
    """Raise ValueError where weights are no rule, nor finite numbers >= 0 with one > 0."""
    if isinstance(weights, str):
        if weights not in RULES:
            raise ValueError(f"weights={weights!r}: use one of {RULES}, or a number per column")
        return
    given = list(weights.values()) if isinstance(weights, Mapping) else weights
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.ndim != 1 or not (np.isfinite(numbers).all() and (numbers >= 0).all()):
        raise ValueError(f"weights={weights!r}: use finite numbers >= 0, one per column")
    if not (numbers > 0).any():
        raise ValueError(f"weights={weights!r}: some column must weigh more than 0")


def super_parent_weights(weights: Any, cells: CountTables, names: Sequence[str]) -> Floats:
    """Return the weight u_p of each feature as a super-parent, (m,).

    "uniform"; "mutual_information", I(X_p; C) in nats from unsmoothed counts, and 1 for all where
    none tells anything of the class; a mapping from name to weight, 0 for the rest; or (m,)
    weights.
    """
    m = len(names)
    if isinstance(weights, str):
        if weights == "uniform":
            return np.ones(m)
        values = cells.values
        choices = cells.choices.astype(np.int64)
        information = class_information(values.counts, values.offsets, choices)
        return information if (information > 0).any() else np.ones(m)
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in names:
                raise SchemaError(f"weights: no column {name!r}; there are {list(names)}")
        return np.array([float(weights.get(name, 0.0)) for name in names])
    given = np.asarray(weights, np.float64)
    if len(given) != m:
        raise SchemaError(f"weights has {len(given)} numbers, but there are {m} columns")
    return given.copy()
