"""Discriminant axes: the directions in which classes that share a covariance differ most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.batch import Batch
from fastbayes.models.estimator.base import TableRows
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.numeric.covariance import MomentSums, Normals, centre_of, whitening

# An axis with less than this share of the standard deviation of the first is rounding.
LEAST = 1e-9


class Axes(NamedTuple):
    """Axes of unit variance within the classes, ordered by the variance between them.

    mean, rest  (p,) the origin, and what rounding took from it
    axes        (p, n_axes)
    share       (n_axes,) of each in the variance between the classes
    """

    mean: Floats
    rest: Floats
    axes: Floats
    share: Floats


def discriminant_axes(prior: Floats, sums: MomentSums, found: Normals) -> Axes:
    """Return the axes of classes that share a covariance.

    Parameters
    ----------
    prior
        (n_classes,) how frequent the classes are.
    sums
        Moments of the rows.
    found
        Densities of the classes.

    References
    ----------
    Fisher (1936), The use of multiple measurements in taxonomic problems, Annals of Eugenics 7. Rao
    (1948), The utilization of multiple measurements in problems of biological classification,
    Journal of the Royal Statistical Society B 10.
    """
    centre = centre_of(sums)
    apart = np.where(sums.n[:, None] > 0, centre.apart, 0.0)
    offset = prior @ apart
    whiten = whitening(found)[0]
    between = np.sqrt(prior)[:, None] * ((apart - offset) @ whiten.T)
    _, deviations, axes = np.linalg.svd(between, full_matrices=False)
    most = min(len(prior) - 1, int(found.kept.sum()))
    least = LEAST * deviations.max(initial=0.0)
    n = int((deviations[:most] > least).sum())
    variance = deviations[:n] ** 2
    share = variance / max(variance.sum(), np.finfo(np.float64).tiny)
    return Axes(centre.mean, centre.rest + offset, whiten.T @ axes[:n].T, share)


class Discriminant(TableRows):
    """A model that may have discriminant axes: covariance="tied" has."""

    covariance: str
    fit: Callable[..., Any]
    _axes: Axes

    @property
    def explained_variance_ratio_(self) -> Floats:
        """Share of each discriminant axis in the variance between the classes, (n_axes,)."""
        self._check_tied("explained_variance_ratio_")
        self._check_fitted()
        return self._axes.share

    @property
    def transform(self) -> Callable[[Any], Floats]:
        """Rows, as in `predict`, on the discriminant axes: transform(X) is (n_rows, n_axes).

        Of covariance="tied" alone. The classes have unit variance along each axis and no
        correlation of two; the first has most of the variance between them. A row with a missing
        value is NaN.
        """
        self._check_tied("transform")
        return self._transformed

    @property
    def fit_transform(self) -> Callable[..., Floats]:
        """As `fit`, then `transform` of the same rows: fit_transform(X, y)."""
        self._check_tied("fit_transform")
        return lambda X, y=None, **options: self.fit(X, y, **options)._transformed(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.covariance == "tied":
            from sklearn.utils import TransformerTags

            tags.transformer_tags = TransformerTags()
        return tags

    def _check_tied(self, what: str) -> None:
        if self.covariance != "tied":
            raise AttributeError(
                f"{what} is of covariance='tied', not {self.covariance!r}: without a common "
                "covariance there are no discriminant axes"
            )

    def _transformed(self, X: Any) -> Floats:
        self._check_fitted()
        mean, rest, axes, _ = self._axes

        def project(batch: Batch, out: Floats) -> int:
            with np.errstate(over="ignore", invalid="ignore"):
                out[:] = ((np.stack(batch.numeric, axis=1) - mean) - rest) @ axes
            return 0

        return self._scan(X, project, axes.shape[1])[0]
