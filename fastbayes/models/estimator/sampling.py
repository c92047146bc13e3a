"""Random codes of classes and of categorical values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.schema import Feature
from fastbayes.models.estimator.log_space import Floats


def class_codes(
    classes: NDArray[Any], log_prior: Floats, n: int, y: Any, random: np.random.Generator
) -> NDArray[np.intp]:
    """Return the class code of each of n rows to be drawn: of the prior, in nats, or those of y.

    y is one label for all rows, or (n,) labels; another label is an error.
    """
    if y is None:
        prior = np.exp(log_prior)
        return random.choice(len(prior), size=n, p=prior / prior.sum()).astype(np.intp)
    wanted = np.asarray(y)
    if wanted.ndim == 0:
        wanted = np.full(n, wanted)
    if wanted.shape != (n,):
        raise DataError(f"y has shape {wanted.shape}; give one class or {n} of them")
    found = {label: i for i, label in enumerate(classes.tolist())}
    for label in wanted.tolist():
        if label not in found:
            raise DataError(f"y holds {label!r}, which is not among the classes {list(found)}")
    return np.array([found[label] for label in wanted.tolist()], dtype=np.intp)


def value_codes(
    likelihood: Floats, classes: NDArray[np.intp], random: np.random.Generator
) -> NDArray[np.int64]:
    """Return one code per row, from the distribution of its class.

    The (S_j, n_classes) likelihoods are P(v | c), up to a factor per class.
    """
    uniform = random.random(len(classes))
    codes = np.zeros(len(classes), dtype=np.int64)
    order = np.argsort(classes, kind="stable")
    ends = np.flatnonzero(np.diff(classes[order])) + 1
    for here in np.split(order, ends) if len(order) else ():
        steps = np.cumsum(likelihood[:, classes[here[0]]])
        # A value of probability 0 has an empty step, which the right side skips.
        found = np.searchsorted(steps / steps[-1], uniform[here], side="right")
        codes[here] = np.minimum(found, len(steps) - 1)
    return codes


def drawn_codes(probabilities: Floats, random: np.random.Generator) -> NDArray[np.int64]:
    """Return one code per row from its own (n_rows, S_j) probabilities, up to a factor."""
    steps = np.cumsum(probabilities, axis=1)
    # A value of probability 0 has an empty step, which is never below the number.
    below = steps <= random.random(len(steps))[:, None] * steps[:, -1:]
    return np.minimum(below.sum(axis=1), steps.shape[1] - 1)


def drawn_values(
    feature: Feature, codes: NDArray[np.int64], random: np.random.Generator
) -> pa.Array:
    """Return the values of codes, null for the code S_j of a missing one.

    Of a column that is cut, numbers inside the bins: see `numbers_in`.
    """
    assert feature.values is not None
    absent = codes >= feature.size
    if feature.cuts is not None:
        return pa.array(numbers_in(feature.cuts, np.where(absent, 0, codes), random), mask=absent)
    if not feature.size:
        return pa.nulls(len(codes), feature.values.type)
    return feature.values.take(pa.array(codes, mask=absent))


def numbers_in(
    cuts: Floats, codes: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.float64]:
    """Return one number per row, uniform in the bin of its code; cut points ascend.

    The first and the last bin, which have no end, are taken as wide as their neighbours, and 1
    wide where there is but one cut. Without a cut there is nothing to go by: 0.
    """
    uniform = random.random(len(codes))
    if not len(cuts):
        return np.zeros(len(codes))
    most = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        first, last = (cuts[1] - cuts[0], cuts[-1] - cuts[-2]) if len(cuts) > 1 else (1.0, 1.0)
        low, high = max(cuts[0] - first, -most), min(cuts[-1] + last, most)
        above = np.concatenate(([-most], np.nextafter(cuts, np.inf)))
    ends = np.concatenate(([low], cuts, [high]))
    lower, upper = ends[codes], ends[codes + 1]
    drawn = lower * uniform + upper * (1 - uniform)
    # A bin is open below and closed above; rounding knows neither, and a wide one has no width
    # where numbers are huge.
    return np.clip(drawn, above[codes], np.append(cuts, most)[codes])
