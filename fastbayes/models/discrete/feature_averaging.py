"""The average over all naive Bayes models that leave some features out, which is one such model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.schema import Shape
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import log_likelihood
from fastbayes.statistics import ValueCounts


def checked_chance(feature_averaging: Any) -> float | None:
    """Return the prior probability that a feature depends on the class, None without averaging.

    Raises
    ------
    ValueError
        When it is neither a bool nor a probability between 0 and 1.
    """
    if isinstance(feature_averaging, (bool, np.bool_)):
        return 0.5 if feature_averaging else None
    number = isinstance(feature_averaging, (int, float, np.number))
    if number and 0 < feature_averaging < 1:
        return float(feature_averaging)
    raise ValueError(
        f"feature_averaging={feature_averaging!r}: use False, True, or a number between 0 and 1"
    )


def averaged_log_likelihood(
    counts: ValueCounts, alpha: float, chance: float, *, missing: str, unseen: str
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return ln [q_j P(x_j | c) + (1 - q_j) P(x_j)], its offsets, and q.

    A structure says which features depend on the class. Its prior, and the likelihood of the data
    under independent Dirichlet priors, are products over the features; hence so are its posterior
    and the average of its predictions: sum over structures S of P(S | D) prod_j P(x_j | c, S) =
    prod_j [q_j P(x_j | c) + (1 - q_j) P(x_j)], with q_j the posterior probability that feature j
    depends on the class (Dash, Cooper 2002).

    Parameters
    ----------
    counts
        Counts of values.
    alpha
        Pseudo-count of every value > 0, in the distributions given the class and without.
    chance
        Prior probability that a feature depends on the class.
    missing, unseen
        As in `log_likelihood`.

    Returns
    -------
    tuple
        (n_slots, n_classes) with S_j + 2 rows per feature, (m + 1,), (m,).
    """
    options = {"missing": missing, "unseen": unseen}
    dependent, offsets = log_likelihood(counts, alpha, **options)
    pooled = classless(counts)
    independent, _ = log_likelihood(pooled, alpha, **options)
    evidence = log_evidence(counts, alpha, missing=missing)
    odds = math.log(chance / (1 - chance)) + evidence - log_evidence(pooled, alpha, missing=missing)
    # Of a large odds, what is left of 1 would round to nothing: take both logs by themselves.
    log_in, log_out = -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)
    feature = np.repeat(np.arange(len(odds)), np.diff(offsets))
    table = np.logaddexp(log_in[feature, None] + dependent, log_out[feature, None] + independent)
    # The factor of what is not observed is 1, not 1 up to rounding.
    table[(dependent == 0) & (independent == 0)] = 0.0
    return table, offsets, np.exp(log_in)


def classless(counts: ValueCounts) -> ValueCounts:
    """Return the counts of values over all classes."""
    shape = counts.shape
    result = ValueCounts(Shape(shape.sizes, shape.n_numeric, 1), weighted=counts.weighted)
    result.counts[:, 0] = counts.counts.sum(axis=1)
    result.class_counts[0] = counts.class_counts.sum()
    return result


def log_evidence(counts: ValueCounts, alpha: float, *, missing: str) -> Floats:
    """Return the log probability of each column given the class column, (m,) nats.

    Of column j it is sum_c [ln G(S a) - ln G(S a + n_c) + sum_v (ln G(a + n_cv) - ln G(a))], G the
    gamma function: values are known, and their distribution is Dirichlet's with parameters a.
    """
    result = np.zeros(len(counts.shape.sizes))
    for j, size in enumerate(counts.shape.sizes):
        first = counts.offsets[j]
        as_value = missing == "category" and counts.missing[j].any()
        n = counts.counts[first : first + size + as_value]
        below = alpha * len(n)
        if len(n):
            terms = _log_gamma(alpha + n) - math.lgamma(alpha)
            terms = terms.sum(axis=0) - _log_gamma(below + n.sum(axis=0)) + math.lgamma(below)
            result[j] = terms.sum()
    return result


def _log_gamma(x: NDArray[Any]) -> Floats:
    """Return ln of the gamma function; counts repeat, so each is worked out once."""
    distinct, where = np.unique(x, return_inverse=True)
    values = np.array([math.lgamma(v) for v in distinct.tolist()])
    return np.asarray(values[where.reshape(x.shape)])
