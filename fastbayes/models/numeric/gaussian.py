"""Gaussian Bayes: a normal density of all columns together within each class."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, SchemaError, warn
from fastbayes.core.extras import needed
from fastbayes.core.schema import Feature
from fastbayes.core.suggestions import use_one_of
from fastbayes.data.encode import Encoder
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.base import Classifier, Scans, TableRows
from fastbayes.models.estimator.column_table import ClassNumbers
from fastbayes.models.estimator.inputs import open_features
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, number, parameter
from fastbayes.models.estimator.smoothing import Spread, log_prior, spread_of
from fastbayes.models.estimator.unavailable import unavailable
from fastbayes.models.numeric.conjugate import check_prior, expected, predictive, prior_of
from fastbayes.models.numeric.covariance import (
    POOLED_ROWS,
    ClassDensities,
    CovarianceRule,
    Normals,
    centre_of,
    normals,
    spherical,
    whitening,
)
from fastbayes.scan.request import Progress
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.class_moments import GroupMoments

MOST = 5  # names that are listed
OUTPUTS = ("default", "pandas", "polars")  # of `set_output`
SHARES_PRIOR = parameter(
    """
    None or "empirical" (shares of the rows, not smoothed), "uniform", or (n_classes,)
    probabilities.
    """,
    default=None,
)


def refuse(feature: Feature, *, void: bool) -> None:
    """Raise SchemaError for a column that is no number, or holds no value at all."""
    if void:
        raise SchemaError(
            f"column {feature.name!r} holds no value at all; leave it out, or cast it to a number"
        )
    raise SchemaError(
        f"column {feature.name!r} is categorical, but GaussianBayes takes numbers alone: leave it "
        "out (columns=), cast it to a number, or use JointGaussian or NaiveBayes, which take both"
    )


def what_was_done(model: Any, floored: NDArray[np.bool_], unknown: Sequence[Any]) -> Iterator[str]:
    """Yield what was done to a fitted `GaussianBayes` so that there are densities.

    floored  (n_classes, p) where a variance was raised.
    unknown  Labels of classes none of whose rows is complete.
    """
    classes = model.classes_.tolist()
    if model.singular_:
        tied = model.covariance == "tied"
        whose = "all classes together" if tied else listed("class", model.singular_)
        at = [classes.index(label) for label in model.singular_]
        shares = sorted({f"{share:.3g}" for share in model.shrinkage_[at].tolist()}, key=float)
        how = "its correlations were dropped"
        if model.singular != "diagonal" or model.prior is not None:
            most = f" to {shares[-1]}" if len(shares) > 1 else ""
            how = f"it was shrunk towards its diagonal by {shares[0]}{most}"
        if model.singular == "pool" and not tied and model.prior is None:
            pooled = f"it was merged with {POOLED_ROWS:g} rows of that within all classes"
            how = pooled if shares == ["0"] else f"{pooled}, and {how}"
        yield (
            f"the covariance of {whose} is singular, for it has too few rows, a column of one "
            f"value or columns that depend on each other: {how}"
        )
    if model.variance_floored_:
        columns = listed("column", model.variance_floored_)
        where = listed("class", named(classes, floored.any(axis=1)))
        yield (
            f"{columns} hardly varies within {where}: the variance was raised to "
            f"var_floor={model.var_floor:g} of the overall one"
        )
    if unknown:
        yield (
            f"{listed('class', unknown)} has no row without a missing value: it has the mean and "
            "the covariance of all"
        )


def named(names: Sequence[Any], which: Any) -> list[Any]:
    """Return the names that are marked."""
    return [name for name, hit in zip(names, which, strict=True) if hit]


def listed(noun: str, names: Sequence[Any]) -> str:
    """Return a noun and the first of its names."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{noun} {', '.join(map(repr, names[:MOST]))}{more}"


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


def discriminant_axes(prior: Floats, sums: GroupMoments, found: Normals) -> Axes:
    """Return the axes of classes that share a covariance.

    prior  (n_classes,) how frequent the classes are.

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
    def transform(self) -> Callable[[Any], Any]:
        """Rows, as in `predict`, on the discriminant axes: transform(X) is (n_rows, n_axes).

        Of covariance="tied" alone. The classes have unit variance along each axis and no
        correlation of two; the first has most of the variance between them. A row with a missing
        value is NaN.
        """
        self._check_tied("transform")
        return self._transformed

    @property
    def fit_transform(self) -> Callable[..., Any]:
        """As `fit`, then `transform` of the same rows: fit_transform(X, y)."""
        self._check_tied("fit_transform")
        return lambda X, y=None, **options: self.fit(X, y, **options)._transformed(X)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` and `fit_transform` return, as scikit-learn's transformers do.

        Parameters
        ----------
        transform
            "pandas" or "polars" for a frame, whose columns are those of `get_feature_names_out`,
            "default" for an array; None changes nothing. Before it is called, what
            `sklearn.set_config(transform_output=)` says.

        Returns
        -------
        Self
            The model.
        """
        if transform is not None:
            if transform not in OUTPUTS:
                raise ValueError(f"transform={transform!r}: {use_one_of(transform, OUTPUTS)}")
            self._sklearn_output_config = {"transform": transform}  # which `clone` copies
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return a name for each discriminant axis, such as "gaussianbayes0".

        Parameters
        ----------
        input_features
            Not used: each axis is made of all columns.

        Returns
        -------
        numpy.ndarray
            (n_axes,) of text.
        """
        self._check_tied("get_feature_names_out")
        self._check_fitted()
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(self._axes.axes.shape[1])], object)

    def _contained(self, found: Floats, X: Any) -> Any:
        """Return an array as `set_output` or scikit-learn's configuration says."""
        sklearn = sys.modules.get("sklearn")
        general = "default" if sklearn is None else sklearn.get_config()["transform_output"]
        kind = getattr(self, "_sklearn_output_config", {"transform": general})["transform"]
        if kind == "default":
            return found
        frames = needed(kind, f"set_output(transform={kind!r}) needs {kind}; pip install {kind}")
        names = list(self.get_feature_names_out())
        if kind == "polars":
            return frames.DataFrame(found, schema=names, orient="row")
        index = X.index if isinstance(X, frames.DataFrame) else None
        return frames.DataFrame(found, index=index, columns=names)

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

    def _transformed(self, X: Any) -> Any:
        self._check_fitted()
        mean, rest, axes, _ = self._axes

        def project(batch: Batch, out: Floats) -> int:
            with np.errstate(over="ignore", invalid="ignore"):
                out[:] = ((np.stack(batch.numeric, axis=1) - mean) - rest) @ axes
            return 0

        return self._contained(self._scan(open_features(self, X), project, axes.shape[1])[0], X)


logger = logging.getLogger("fastbayes")


class GaussianBayes(Discriminant, Classifier):
    """A normal density of all columns together within each class: QDA, LDA and simpler ones.

    Notes
    -----
    P(c, x) = P(c) N(x; mean_c, covariance_c). One scan learns; memory is K p² numbers. A class of
    no more than ddof rows has the pooled covariance, one without rows also the overall mean. A
    covariance is singular where the smallest eigenvalue of its correlation matrix is less than 1e-9
    of the largest: units of the columns make no difference.

    `explain` takes the columns in order: column j adds ln f(x_j | the known columns before it, c),
    which sums to the density; where columns are independent, it is the column's own.

    The default prior has the mean of all rows, kappa = 0.01 (Fraley, Raftery 2007), nu = p + 2, and
    as its scale the pooled variances within classes, which then are the expectation of the
    covariance. With "tied" the classes share one covariance, and all rows are informative of it.

    scikit-learn 1.9 has ddof=0 in its QDA and in every solver of its LDA (before 1.9, ddof=1 in QDA
    and in LDA's "svd"). Priors given to its LDA also weigh the covariances of the classes, here
    they never do; its shrinkage is towards equal variances of the columns as they are, and its
    tests of rank are absolute.

    References
    ----------
    Geisser (1964), Posterior odds for multivariate normal classifications, Journal of the Royal
    Statistical Society B 26. Chen, Wiesel, Eldar, Hero (2010), Shrinkage algorithms for MMSE
    covariance estimation, IEEE Transactions on Signal Processing 58, eq. 23. Fraley, Raftery
    (2007), Bayesian regularization for normal mixture estimation and model-based clustering,
    Journal of Classification 24.

    Examples
    --------
    >>> import fastbayes as fb
    >>> X = [[0, 0], [2, 2], [0, 1], [2, 3], [5, 1], [7, 3], [5, 3], [7, 1]]
    >>> model = fb.GaussianBayes().fit(X, list("aaaabbbb"))
    >>> model.covariance_[0]
    array([[1.  , 1.  ],
           [1.  , 1.25]])
    >>> model.predict([[1, 1], [6, 0]])
    array(['a', 'b'], dtype='<U1')
    """

    covariance: str = parameter(
        """
        "full": a matrix per class (quadratic discriminant analysis); "tied": one for all (linear
        discriminant analysis); "diagonal": a variance per class and column; "spherical": a
        variance per class, of the numbers of all columns that are known.
        """,
        default="full",
        choices=("full", "tied", "diagonal", "spherical"),
    )
    ddof: int = parameter(
        "Divisor of a scatter, n - ddof (tied: N - ddof K): 0 is maximum likelihood, 1 unbiased.",
        default=0,
        choices=(0, 1),
    )
    shrinkage: float | str | None = parameter(
        """
        Share of the diagonal in a covariance, between 0 and 1: correlations are multiplied by what
        is left. "auto" is the oracle approximating shrinkage of the correlations. None: 0.
        """,
        default=None,
        check=number(most=1.0, besides=(None, "auto")),
    )
    singular: str = parameter(
        """
        What is done where a covariance has no inverse: "pool" merges that of a class, or of a class
        in which a column has one value, with 10 rows of the one within all classes, and does as
        "shrink" where that does not help; "shrink" shrinks it as "auto" would, "diagonal" drops its
        correlations, "error" raises DataError.
        """,
        default="pool",
        choices=("pool", "shrink", "diagonal", "error"),
    )
    prior: str | Mapping[str, Any] | None = parameter(
        """
        None, or a normal-inverse-Wishart distribution of the means and covariances, which are then
        integrated out: densities are Student's t, and none is singular. "niw", or a mapping with
        some of mean (p,), kappa, nu and scale, (p, p) or its diagonal, 0 to leave a column out.
        """,
        default=None,
        check=check_prior,
    )
    class_prior: str | ArrayLike | None = SHARES_PRIOR
    var_floor: float = parameter(
        "Least variance of a column within a class, as a share of its overall variance.",
        default=1e-9,
        check=number(),
    )
    missing: str = parameter(
        """
        At fit, rows with a missing value are left out of the densities ("marginalize"; where each
        column stands for itself, of that column alone), or it is the mean of its class
        ("impute_mean"). At predict missing values are integrated out.
        """,
        default="marginalize",
        choices=("marginalize", "impute_mean"),
    )
    domains: Mapping[str, Any] | None = parameter(
        "Declared classes, by the name of the class column: others are an error.",
        default=None,
    )
    categorical: Iterable[str | int] | None = parameter(
        "Names or indices of columns that are categorical; this model refuses them.",
        default=None,
    )
    schema_: Any = fitted("Columns and classes.")
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    mean_: Floats = fitted("(n_classes, p).")
    covariance_: Floats = fitted(
        """
        full: (n_classes, p, p); tied: (p, p); diagonal: (n_classes, p); spherical: (n_classes,). 0
        for constant columns. With a prior the scale matrices of Student's t, (n_classes, p, p).
        """
    )
    dof_: Floats = fitted(
        "(n_classes,) degrees of freedom of Student's t; infinity for normal densities."
    )
    shrinkage_: Floats = fitted("(n_classes,) share of the diagonal in each covariance.")
    singular_: list[Any] = fitted("Labels of classes whose covariance was singular.")
    variance_floored_: list[str] = fitted(
        "Names of columns in which a variance was raised to the floor."
    )
    constant_: list[str] = fitted(
        "Names of columns that are constant within every class: they say nothing."
    )
    incomplete_: Floats = fitted(
        """
        (n_classes,) rows that were left out of the densities because a value is missing; where
        each column stands for itself, none is.
        """
    )
    explained_variance_ratio_: Any = fitted(
        "tied: share of each discriminant axis in the variance between the classes."
    )
    _floored: NDArray[np.bool_] = fitted()
    _unknown: list[Any] = fitted()
    _densities: ClassDensities = fitted()
    _spread: Spread = fitted()

    _flags_are_numbers: ClassVar[bool] = True

    unseen = "ignore"  # there is no column of values

    to_logistic = unavailable(
        "GaussianBayes integrates a missing number out given the others, of which no linear model "
        "is capable, and but for covariance='tied' its log odds are quadratic; "
        "NaiveBayes(variance='shared') has to_logistic"
    )

    # -- parameters ----------------------------------------------------------------------------

    @property
    def _by_column(self) -> bool:
        """Whether the columns are independent within a class."""
        return self.covariance in ("diagonal", "spherical")

    @property
    def _statistics(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("values", "moments" if self._by_column else "scatter")

    @property
    def _counts_missing(self) -> str:
        return "marginalize"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("shrinkage", "prior"):
            if self._by_column and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is of covariance matrices: use covariance='full' or 'tied', not "
                    f"{self.covariance!r}"
                )
        if self.prior is not None and (self.shrinkage is not None or self.ddof):
            raise ValueError("with a prior there is nothing to shrink or to divide: leave ddof and "
                             "shrinkage out")  # fmt: skip

    def _scans(
        self,
        source: Any,
        learning: Callable[..., Encoder],
        *,
        first: bool = True,
        progress: Progress | None = None,
    ) -> Scans:
        for feature, book in learning().features:
            if book is not None:
                refuse(feature, void=getattr(book, "kind", None) == pa.null())
        return super()._scans(source, learning, first=first, progress=progress)

    def _check_suits(self, stats: Any, whole: str = "") -> None:
        super()._check_suits(stats, whole)
        self._check_numeric(stats)

    def _learned(self, stats: Statistics) -> Self:
        self._check_numeric(stats)
        return super()._learned(stats)

    def _check_numeric(self, stats: Statistics) -> None:
        for feature in stats.schema.categorical:
            refuse(feature, void=feature.void)

    # -- reading -------------------------------------------------------------------------------

    def _read(self, stats: Statistics) -> dict[str, Any]:
        counts, classes = stats.values.class_counts, stats.schema.class_labels
        read = self._by_columns(stats) if self._by_column else self._by_matrices(stats)
        return read | {"class_log_prior_": log_prior(counts, 0.0, self.class_prior, classes)}

    def _rule(self, stats: Statistics) -> CovarianceRule:
        return CovarianceRule(
            self.covariance == "tied",
            self.ddof,
            self.shrinkage,
            self.singular,
            self.var_floor,
            stats.schema.names,
            stats.schema.classes.to_pylist(),
        )

    def _sums(self, stats: Statistics) -> GroupMoments:
        """Return the moments that densities are read from."""
        scatter = stats.scatter
        if self.missing != "impute_mean":
            return GroupMoments(scatter.count, scatter.mean, scatter.rest, scatter.scatter)
        count, mean, rest, squares = scatter.imputed()
        known = scatter.known()
        # A class that knows no value of a column takes the mean of the others.
        total = np.maximum(known.sum(axis=0), np.finfo(np.float64).tiny)
        others = (known * mean).sum(axis=0) / total
        none = known == 0
        return GroupMoments(count, np.where(none, others, mean), np.where(none, 0.0, rest), squares)

    def _by_matrices(self, stats: Statistics) -> dict[str, Any]:
        rule, sums = self._rule(stats), self._sums(stats)
        if not sums.n.any():
            raise DataError(
                "there is no row without a missing value; use missing='impute_mean', or leave "
                "columns out that are mostly missing"
            )
        if self.prior is None:
            found = within = normals(sums, rule)
        else:
            given = prior_of(self.prior, sums, rule)
            found = predictive(sums, given, rule)
            within = expected(found, sums, given)
        densities, k = ClassDensities(found), len(rule.labels)
        covariance = densities.covariance()
        left_out = np.zeros(k) if self.missing == "impute_mean" else stats.scatter.incomplete
        read = {
            "mean_": found.mean,
            "covariance_": covariance[0] if rule.tied and self.prior is None else covariance,
            "dof_": np.full(k, np.inf) if found.dof is None else found.dof,
            "shrinkage_": np.broadcast_to(found.shrinkage, (k,)).copy(),
            "singular_": named(rule.labels, np.broadcast_to(found.singular, (k,))),
            "variance_floored_": named(rule.names, found.floored.any(axis=0)),
            "constant_": named(rule.names, ~found.kept),
            "incomplete_": left_out,
            "_floored": np.broadcast_to(found.floored, found.mean.shape),
            "_unknown": named(rule.labels, (sums.n == 0) & (stats.values.class_counts > 0)),
            "_densities": densities,
        }
        if rule.tied:
            prior = np.exp(log_prior(stats.values.class_counts, 0.0, self.class_prior))
            read["_axes"] = discriminant_axes(prior, sums, within)
        return read

    def _by_columns(self, stats: Statistics) -> dict[str, Any]:
        moments, names, k = stats.moments, stats.schema.names, len(stats.schema.classes)
        n = moments.count
        if self.missing == "impute_mean":
            n = np.where(n > 0, stats.values.class_counts, 0.0)
        options: dict[str, Any] = {"names": names, "ddof": self.ddof, "var_floor": self.var_floor}
        if self.covariance == "diagonal":
            options["variance"] = "per_class"
        estimate = spread_of if self.covariance == "diagonal" else spherical
        spread = estimate(n, moments.mean, moments.rest, moments.scatter, **options)
        variance = np.where(spread.constant[:, None], 0.0, spread.variance).T
        if self.covariance == "spherical":
            variance = variance.max(axis=1)
        return {
            "mean_": np.ascontiguousarray(spread.gaussians.mean.T),
            "covariance_": np.ascontiguousarray(variance),
            "dof_": np.full(k, np.inf),
            "shrinkage_": np.ones(k),
            "singular_": [],
            "variance_floored_": named(names, spread.floored.any(axis=1)),
            "constant_": named(names, spread.constant),
            "incomplete_": np.zeros(k),
            "_floored": spread.floored.T,
            "_unknown": [],
            "_spread": spread,
        }

    def _caution(self) -> None:
        """Warn once of everything that was done so that there is an inverse."""
        if said := list(what_was_done(self, self._floored, self._unknown)):
            warn("; ".join(said))
        if self.incomplete_.any():
            logger.info(
                "%.10g rows with a missing value were left out of the densities; "
                "missing='impute_mean' uses them",
                self.incomplete_.sum(),
            )

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, K p means, and those of the covariances.

        K p (p + 1)/2 of full ones, p (p + 1)/2 of a tied one, K p variances or K of them.
        """
        self._check_fitted()
        k, p = self.mean_.shape
        free = {"full": k * p * (p + 1) // 2, "tied": p * (p + 1) // 2, "diagonal": k * p}
        return k - 1 + k * p + free.get(self.covariance, k)

    # -- answers -------------------------------------------------------------------------------

    @property
    def _sums_columns(self) -> bool:  # type: ignore[override]
        return self._by_column

    @property
    def _keeps_terms(self) -> bool:  # type: ignore[override]
        return self.covariance == "diagonal"

    def _class_numbers(self, place: int) -> ClassNumbers:
        k, p = self.mean_.shape
        covariance, stats = np.asarray(self.covariance_), self.statistics_
        if self._by_column:
            variance = covariance if covariance.ndim == 1 else covariance[:, place]
            rows = known = stats.moments.count[place]
        else:
            variance = np.broadcast_to(covariance, (k, p, p))[:, place, place]
            known = stats.scatter.known()[:, place]
            rows = known if self.missing == "impute_mean" else stats.scatter.count
        missing = stats.values.class_counts - known
        says = "normal density of each class"
        return ClassNumbers(says, self.mean_[:, place], np.sqrt(variance), rows, missing)

    def _scorer(self, cells: float) -> Any:
        if not self._by_column:
            return self._densities.scorer(
                dispatch.load("scoring.quadratic", cells), self.class_log_prior_
            )
        nothing, offsets = np.zeros((0, len(self.classes_))), np.zeros(1, np.int64)
        return dispatch.load("scoring.log_joint", cells).NaiveScorer(
            self.class_log_prior_, nothing, offsets, tuple(self._spread.gaussians), "exact"
        )

    def _contributions(self, batch: Batch, out: Floats) -> None:
        if not self._by_column:
            self._densities.terms(np.stack(batch.numeric, axis=1), out)
            return
        for j, (x, mean, half, level, rest) in enumerate(
            zip(batch.numeric, *self._spread.gaussians, strict=True)
        ):
            with np.errstate(over="ignore"):
                term = level - ((x[:, None] - mean) - rest) ** 2 * half
            out[:, j] = np.where(np.isnan(x)[:, None], 0.0, term)

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        if self._by_column:
            deviation = np.sqrt(np.where(self._spread.constant[:, None], 0, self._spread.variance))
            drawn = random.normal(self.mean_[codes], deviation.T[codes])
        else:
            drawn = self._densities.drawn(codes, random)
        return dict(zip(self.schema_.names, drawn.T, strict=True))
