"""The class prior of unlabelled rows, from posteriors under another prior."""

from __future__ import annotations

import numpy as np

from fastbayes.core.errors import DataError
from fastbayes.models.estimator.log_space import Floats


def shifted_prior(posterior: Floats, prior: Floats, tolerance: float, max_iter: int) -> Floats:
    """Return the class prior under which the rows are most likely, by expectation maximisation.

    Parameters
    ----------
    posterior
        (n_rows, n_classes) P(c | x) under `prior`.
    prior
        (n_classes,) P(c); a class of probability 0 keeps it.
    tolerance
        Stop when no probability changes by more than this.
    max_iter
        Stop with an error after so many steps.

    Returns
    -------
    numpy.ndarray
        (n_classes,), sums to 1.

    Raises
    ------
    DataError
        When there are no rows, or the steps did not settle.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a priori
    probabilities, Neural Computation 14, eq. 2. Varadhan, Roland (2008), Simple and globally
    convergent methods for accelerating the convergence of any EM algorithm, Scandinavian Journal
    of Statistics 35, scheme S3: plain steps take thousands where classes look alike.
    """
    if not len(posterior):
        raise DataError("adapt_prior needs rows, and there are none")
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=prior > 0)

    def step(p: Floats) -> tuple[Floats, float]:
        """Return the next prior, and the log likelihood of this one."""
        evidence = ratio @ p
        return p * (ratio / evidence[:, None]).mean(axis=0), float(np.log(evidence).mean())

    now = prior / prior.sum()
    change = np.inf
    for _ in range(max_iter):
        first, likelihood = step(now)
        change = float(np.abs(first - now).max())
        if change <= tolerance:
            return np.asarray(first / first.sum())
        second, _ = step(first)
        now = _leap(now, first, second)
        if now is not second and step(now)[1] < likelihood:
            now = second
    raise DataError(
        f"adapt_prior did not settle in {max_iter} steps (last change {change:.2g}); raise "
        "max_iter or tolerance"
    )


def _leap(start: Floats, first: Floats, second: Floats) -> Floats:
    """Return where two steps point to, or a part of the way within the simplex."""
    move, bend = first - start, second - 2 * first + start
    curvature = float(np.sqrt(bend @ bend))
    if curvature == 0:
        return second
    length = float(np.sqrt(move @ move)) / curvature
    if length <= 1:
        return second
    # Towards a class that is absent the whole way leads out of the simplex: then a part of it.
    while length > 1:
        far = start + 2 * length * move + length * length * bend
        if (far[start > 0] > 0).all():
            return np.asarray(far)
        length = (length + 1) / 2 if length > 1.1 else 1.0
    return second
