"""Rows drawn from a naive Bayes model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.schema import Schema, labels

Floats = NDArray[np.float64]


def sample(
    schema: Schema,
    log_prior: Floats,
    tables: Floats,
    offsets: NDArray[np.int64],
    mean: Floats,
    variance: Floats,
    n: int,
    y: Any,
    seed: int | None,
) -> pa.Table:
    """Return n rows drawn from P(c) prod_j P(x_j | c): the features, then the class."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ValueError(f"n={n!r}: use a whole number >= 0")
    random = np.random.default_rng(seed)
    classes = _classes(schema, log_prior, int(n), y, random)
    columns: dict[str, pa.Array] = {}
    categorical = numeric = 0
    for feature in schema.features:
        if feature.values is None:
            spread = np.sqrt(variance[numeric, classes])
            columns[feature.name] = pa.array(random.normal(mean[numeric, classes], spread))
            numeric += 1
            continue
        first, size = offsets[categorical], feature.size
        categorical += 1
        if not size:
            columns[feature.name] = pa.nulls(int(n), feature.values.type)
            continue
        likelihood = np.exp(tables[first : first + size + 1])
        # Where missing is a value of its own, it has the mass that the others leave.
        as_value = schema.missing == "category" and np.allclose(likelihood.sum(axis=0), 1)
        codes = _draw(likelihood if as_value else likelihood[:size], classes, random)
        columns[feature.name] = feature.values.take(pa.array(codes, mask=codes == size))
    columns[schema.target or "class"] = schema.classes.take(pa.array(classes))
    return pa.table(columns)


def _draw(
    likelihood: Floats, classes: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Return one code per row from the (S_j, n_classes) distributions of its class."""
    uniform = random.random(len(classes))
    codes = np.zeros(len(classes), dtype=np.int64)
    for c in range(likelihood.shape[1]):
        here = classes == c
        steps = np.cumsum(likelihood[:, c])
        # A value of probability 0 has an empty step, which the right side skips.
        found = np.searchsorted(steps / steps[-1], uniform[here], side="right")
        codes[here] = np.minimum(found, len(steps) - 1)
    return codes


def _classes(
    schema: Schema, log_prior: Floats, n: int, y: Any, random: np.random.Generator
) -> NDArray[np.int64]:
    known = labels(schema.classes)
    if y is None:
        prior = np.exp(log_prior)
        return random.choice(len(prior), size=n, p=prior / prior.sum()).astype(np.int64)
    wanted = np.asarray(y)
    if wanted.ndim == 0:
        wanted = np.full(n, wanted)
    if wanted.shape != (n,):
        raise ValueError(f"y has shape {wanted.shape}; give one class or {n} of them")
    found = {label: i for i, label in enumerate(known.tolist())}
    for label in wanted.tolist():
        if label not in found:
            raise ValueError(f"y holds {label!r}, which is not among the classes {known.tolist()}")
    return np.array([found[label] for label in wanted.tolist()], dtype=np.int64)
