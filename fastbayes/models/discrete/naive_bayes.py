"""Naive Bayes over categorical and Gaussian columns together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch, Codes, code_type, taken
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.iteration import Convergence, converged, squarem
from fastbayes.core.schema import Schema, Shape
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Place, join
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.models.discrete.family_model import AsNetwork
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.column_table import ClassNumbers
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import Floats, log_sum_exp
from fastbayes.models.estimator.loo_base import LooRows, LooScorer, Without, own_likelihood, rows_of
from fastbayes.models.estimator.parameters import (
    CLASS_PRIOR,
    PRECISION,
    UNSEEN,
    fitted,
    number,
    parameter,
    pseudo_count,
    switch,
    tolerance,
)
from fastbayes.models.estimator.protocol import fresh
from fastbayes.models.estimator.sampling import drawn_values, value_codes
from fastbayes.models.estimator.smoothing import (
    CountTables,
    Gaussians,
    Smoothing,
    best_of,
    leave_one_out_log_joint,
    log_likelihood,
    log_prior,
    logs,
    missing_as_value,
    spread_of,
)
from fastbayes.models.logistic.to_logistic import LinearForm, logistic, of_naive_bayes
from fastbayes.models.numeric import student
from fastbayes.models.numeric.covariance import log_gamma
from fastbayes.models.numeric.loo_gaussian import LooGaussians, some_columns
from fastbayes.models.numeric.numeric_density import ColumnDensities, densities, log_density
from fastbayes.scan import engine
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.statistics import REGISTRY, ClassMoments, ValueCounts
from fastbayes.statistics.bundle import Statistics

if TYPE_CHECKING:
    from fastbayes.models.logistic.logistic import LogisticRegression


# Parameters that a logistic regression has, too.
SHARED = (
    *("domains", "categorical", "columns", "exclude", "dates", "missing", "threads"),
    "memory_limit",
)
# What is said of a numeric column by the kind of its density.
DENSITIES = {
    "gaussian": "normal density",
    "student": "Student's t",
    "kde": "normal kernels",
    "histogram": "histogram",
    "mdl": "bins where the classes change",
}


class NaiveBayes(AsNetwork, Iterative):
    """Naive Bayes: categorical columns times Gaussian columns, given the class.

    Notes
    -----
    P(c, x) = P(c) prod_j P(x_j | c) with P(c) = (n_c + alpha)/(N + K alpha), P(v | c) =
    (n_cv + alpha)/(n_c + S_j alpha) over the known values of column j, and normal densities for
    numeric columns, or those that `numeric` asks for. One scan learns; memory is the counts.

    Student's t is the density of a new row where mean and variance of a normal density are
    integrated out, under the prior of `GaussianBayes(prior="niw")`: the mean of all rows, worth
    0.01 rows, and the pooled variance within the classes, worth one row. With n rows it has n + 3
    degrees of freedom: it is as wide as few rows make it, and normal with very many. A class may
    have one row or none; `ddof`, `variance` and `var_floor` are of no effect on it.

    Kernels and histograms are read off a sketch: at most 4,096 values, or small ranges of them, of
    each column within each class. Kernels are looked up in a table: their sum is within 1e-6 of
    itself down to e^-40 of its peak, and from there its logarithm is off by up to 1e-4 of how far
    it is below. They overrate values that repeat, such as whole numbers, and have thin tails:
    histograms do not. "auto" takes each value of the sketch out of its class in turn: up to 10 ms
    for a column and class.

    With `feature_averaging`, q_j P(v | c) + (1 - q_j) P(v) stands for P(v | c), with q_j the
    probability that feature j depends on the class, and P(v) = (n_v + alpha)/(n + S_j alpha):
    exactly the average over all 2^d subsets.

    References
    ----------
    Domingos, Pazzani (1997), On the optimality of the simple Bayesian classifier under zero-one
    loss, Machine Learning 29. Dash, Cooper (2002), Exact model averaging with naive Bayesian
    classifiers, ICML; (2004), Model averaging for prediction with discrete Bayesian networks,
    Journal of Machine Learning Research 5. John, Langley (1995), Estimating continuous
    distributions in Bayesian classifiers, UAI. Murphy (2007), Conjugate Bayesian analysis of the
    Gaussian distribution, section 3.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
    >>> model = fb.NaiveBayes(alpha=1).fit(table, "play")
    >>> model.predict({"sky": ["rain", "sun"]})
    array(['no', 'yes'], dtype='<U3')
    >>> model.predict_proba({"sky": ["sun"]})
    array([[0.25, 0.75]])
    """

    alpha: float | str = parameter(
        """
        Pseudo-count of every value and class: 1 is Laplace, 0 maximum likelihood, "loo" the value
        from 1e-6 to 1e4 that maximises the leave-one-out log joint.
        """,
        default=1.0,
        check=pseudo_count(besides=("loo",)),
    )
    feature_averaging: bool | float = parameter(
        """
        Whether to average over all models that leave some of the categorical features out, each
        weighed by its posterior probability (Dash, Cooper 2002): it costs no more than one model.
        True gives every feature a prior probability of 1/2 to depend on the class; a number another
        one. Numeric columns are always in.
        """,
        default=False,
    )
    class_prior: str | ArrayLike | None = CLASS_PRIOR
    ddof: int = parameter(
        "Variance divisor n - ddof: 0 is maximum likelihood, 1 unbiased.",
        default=0,
        choices=(0, 1),
    )
    variance: str = parameter(
        '"per_class", "shared" by the classes, or "single" for all features and classes.',
        default="per_class",
        choices=("per_class", "shared", "single"),
    )
    var_floor: float | str = parameter(
        """
        Least variance of a numeric column in a class: "within", 0.04 times its variance within all
        classes, by which what lies one deviation within the classes away from a class of one value
        costs it 12.5 nats; or a number, a share of its variance over all rows. What is pooled, by
        `variance`, "within" leaves as it is.
        """,
        default="within",
        check=number(besides=("within",)),
    )
    numeric: Any = parameter(
        """
        Density of the other columns within each class: "gaussian"; "student", Student's t, of a
        normal density whose mean and variance are integrated out; "kde", normal kernels at the
        values, their bandwidth by Silverman's rule; "histogram", bins of equal shares, common to
        the classes; "mdl": the column is cut into bins where the classes change (Fayyad, Irani
        1993; one more scan); "auto": for each column the one of these of largest leave-one-out
        likelihood, in one scan, of the first two the one that is `parametric`. Or {column: one of
        these, or cut points}, columns that are not named being "gaussian".
        """,
        default="gaussian",
    )
    parametric: str = parameter(
        """
        Which density with a mean and a variance numeric="auto" may choose: "student", or
        "gaussian", as files written before there was a choice have it.
        """,
        default="student",
        choices=("student", "gaussian"),
        before="gaussian",
    )
    unseen: str = UNSEEN
    unlabelled: str = parameter(
        """
        "ignore" leaves rows without a class out; "em" lets them take part with their expected
        class.
        """,
        default="ignore",
        choices=("ignore", "em"),
    )
    precision: str = PRECISION
    tol: float = tolerance(
        """
        unlabelled="em" stops where a step changes no posterior by more than this, alpha="loo" where
        ln alpha lies in an interval of this width, as far as rounding tells: the last half of its
        digits are not known.
        """,
        default=1e-9,
    )
    schema_: Any = fitted("Columns, domains and classes.")
    alpha_: float = fitted("The pseudo-count in use.")
    feature_probabilities_: Floats = fitted(
        """
        (n_features,) posterior probability that each feature depends on the class; 1 for numeric
        columns, and for all without `feature_averaging`.
        """
    )
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    numeric_: dict[str, str] = fitted("{column: density} of the numeric columns.")
    mean_: Floats = fitted("(n_gaussian, n_classes) of the Gaussian columns.")
    variance_: Floats = fitted("(n_gaussian, n_classes) of the Gaussian columns.")
    variance_floored_: Any = fitted(
        "Names of the columns in which a variance, or a bandwidth, was raised to the floor."
    )
    constant_: Any = fitted(
        """
        Names of the Gaussian columns, and those of Student's t, that are constant within every
        class: they say nothing.
        """
    )
    _tables: Floats = fitted()
    _offsets: NDArray[np.int64] = fitted()
    _gaussians: Gaussians = fitted()
    _densities: ColumnDensities = fitted()

    # How the classes of unlabelled rows were found, which no statistics tell.
    _of_rows: ClassVar[tuple[str, ...]] = ("_em",)
    _em: Convergence | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if checked_chance(self.feature_averaging) is not None and self.alpha == 0:
            raise ValueError("feature_averaging needs alpha > 0: without it no model is proper")
        if self.unlabelled == "em" and not DensitySpec(self.numeric).likeliest:
            raise ValueError(
                f"unlabelled='em' does not go with numeric={self.numeric!r}: its steps climb a "
                "likelihood, which Student's t, kernels and bins do not maximise; use 'gaussian' "
                "or 'mdl'"
            )

    @property
    def _statistics(self) -> tuple[str, ...]:  # type: ignore[override]
        more = ("sketches",) if DensitySpec(self.numeric).sketched else ()
        return ("values", "moments", *more)

    @property
    def _discretizes(self) -> bool:  # type: ignore[override]
        return DensitySpec(self.numeric).cut

    def _to_cut(self, encoder: Encoder, known: Schema | None = None) -> tuple[Encoder, Any] | None:
        return DensitySpec(self.numeric).to_cut(encoder, known=known)

    def _set_rule(self, discretize: Any, cuts: Mapping[str, Any]) -> None:
        # A rule that `numeric` does not have is said by the points to which it has led.
        rules = discretize if isinstance(discretize, Mapping) else dict.fromkeys(cuts, discretize)
        mdl = [name for name in cuts if isinstance(r := rules.get(name, "mdl"), str) and r == "mdl"]
        by_column = {name: points.tolist() for name, points in cuts.items()}
        self.numeric = "mdl" if len(mdl) == len(cuts) else by_column | dict.fromkeys(mdl, "mdl")

    def _check_suits(self, stats: Any, whole: str = "") -> None:
        super()._check_suits(stats, whole)
        DensitySpec(self.numeric).check_counted(stats.schema)

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        self._em = None  # it was of rows, which these statistics may not be of
        if "sketches" in self._statistics and "sketches" not in stats.parts:
            raise SchemaError(
                "the statistics hold no sketches of the values; count again with "
                f"numeric={self.numeric!r}"
            )
        return stats

    def _read(self, stats: Statistics) -> dict[str, Any]:
        values = stats.values
        alpha, log_prior, search = alpha_and_prior(
            self, stats, tol=float(self.tol), max_iter=int(self.max_iter)
        )
        chance = checked_chance(self.feature_averaging)
        features = stats.schema.features
        probabilities = np.ones(len(features))
        options = {"missing": self.missing, "unseen": self.unseen}
        if chance is None:
            tables, offsets = log_likelihood(values, alpha, **options)
        else:
            tables, offsets, q = averaged_log_likelihood(values, alpha, chance, **options)
            probabilities[[f.kind == "categorical" for f in features]] = q
        kinds, numeric = DensitySpec(self.numeric), stats.schema.numeric
        given = {name: getattr(self, name) for name in ("ddof", "variance", "var_floor")}
        found = densities(stats, kinds, parametric=self.parametric, alpha=alpha, **given)
        normal = zip(numeric, found.gaussian, strict=True)
        names = [f.name for f, gaussian in normal if gaussian]
        moments = stats.moments
        if len(names) < len(numeric):
            moments = some_columns(moments, np.flatnonzero(found.gaussian).tolist())
        spread = spread_of(
            moments.count, moments.mean, moments.rest, moments.scatter, names=names, **given
        )
        constant = {n for n, hit in zip(names, spread.constant, strict=True) if hit}
        constant |= {numeric[place].name for place in found.students.silent}
        floored = np.asarray(spread.floored.any(axis=1))
        return {
            "alpha_": alpha,
            **self._went(self._em or search),
            "feature_probabilities_": probabilities,
            "class_log_prior_": log_prior,
            "_tables": tables,
            "_offsets": offsets,
            "numeric_": kinds.by_column(stats.schema, found.kinds),
            "_densities": found,
            "_gaussians": spread.gaussians,
            "mean_": spread.gaussians.mean,
            "variance_": spread.variance,
            "variance_floored_": found.in_order(
                stats.schema, {n for n, hit in zip(names, floored, strict=True) if hit}
            ),
            "constant_": [f.name for f in numeric if f.name in constant],
        }

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, (S_j - 1) K per categorical and 2 K per Gaussian column.

        A shared variance counts once per column, a single one once. Student's t has as many as a
        Gaussian, a histogram the shares of its bins but one, kernels have their weights but one and
        a bandwidth, for each class.
        """
        self._check_fitted()
        k, values = len(self.classes_), self.statistics_.values
        sizes = values.shape.sizes + missing_as_value(values, self.missing)
        discrete = int(np.maximum(sizes - 1, 0).sum()) * k
        p = len(self._gaussians.mean)
        spreads = {"per_class": p * k, "shared": p, "single": min(p, 1)}[self.variance]
        others = sum(density.n_parameters for density in self._densities.by_place.values())
        others += 2 * k * len(self._densities.students.places)
        return k - 1 + discrete + p * k + spreads + others

    _sums_columns: ClassVar[bool] = True

    @property
    def _keeps_terms(self) -> bool:  # type: ignore[override]
        # These are found from all columns together.
        return self.alpha != "loo" and self.variance != "single" and self._em is None

    def _dependencies(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(self.schema_.names, ())

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        names = [feature.name for feature in self.schema_.categorical]
        yield from zip(names, np.split(self._tables, self._offsets[1:-1]), strict=True)

    def _margin(self, place: int) -> Floats:
        first = int(self._offsets[place])
        return np.exp(self._tables[first : first + self._choices(place)])

    def _class_numbers(self, place: int) -> ClassNumbers:
        kind = self.numeric_[self.schema_.numeric[place].name]
        found = super()._class_numbers(place)._replace(says=f"{DENSITIES[kind]} of each class")
        if place in self._densities.by_place:
            return found
        students = self._densities.students
        if place in students.places:
            which = students.places[place]
            mean, deviation = students.mean[which], students.deviation[which]
            return found._replace(mean=mean, deviation=deviation)
        normal = np.flatnonzero(self._densities.gaussian).tolist().index(place)
        deviation = np.sqrt(self.variance_[normal])
        return found._replace(mean=self.mean_[normal], deviation=deviation)

    def to_logistic(self, **params: Any) -> LogisticRegression:
        """Return the model as a logistic regression: the same posteriors, missing values or not.

        Parameters
        ----------
        **params
            Parameters of the `LogisticRegression`, such as the penalty of a later fit that starts
            from here, with `warm_start=True`.

        Returns
        -------
        LogisticRegression
            Fitted, by no iteration: `converged_` is None. Its scores are the log joint up to what
            all classes share.

        Raises
        ------
        SchemaError
            When the log odds are not linear: a variance for each class, Student's t, kernels, a
            histogram; or a coefficient would be infinite: alpha=0, a class of prior 0.
        ValueError
            When a parameter cannot be used.
        """
        options = {name: getattr(self, name) for name in SHARED}
        options["unseen"] = "error" if self.unseen == "error" else "ignore"
        return logistic(self, options | params)

    def _linear(self) -> LinearForm:
        return of_naive_bayes(self, self._tables, self._offsets, self._gaussians)

    def _scorer(self, cells: float) -> Any:
        gaussian = tuple(self._gaussians) if len(self._gaussians.mean) else None
        return dispatch.load("scoring.log_joint", cells).NaiveScorer(
            *(self.class_log_prior_, self._tables, self._offsets, gaussian, self.precision),
            curves=self._densities.curves(),
            students=self._densities.students.parts,
        )

    def _contributions(self, batch: Batch, out: Floats) -> None:
        places = self.schema_.places
        for feature, column in columns_of(batch.codes).items():
            rows = self._offsets[feature] + column.astype(np.int64)
            out[:, places["categorical"][feature]] = self._tables[rows]
        normals = zip(*self._gaussians, strict=True)
        curves, tails = self._densities.curves(), self._densities.students.parts
        for j, (x, place) in enumerate(zip(batch.numeric, places["numeric"], strict=True)):
            if j in curves:
                out[:, place] = log_density(curves[j], x)
                continue
            if j in tails:
                out[:, place] = student.log_density(tails[j], x)
                continue
            mean, half, level, rest = next(normals)
            term = level - ((x[:, None] - mean) - rest) ** 2 * half
            out[:, place] = np.where(np.isnan(x)[:, None], 0.0, term)

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        tables = iter(np.split(self._tables, self._offsets[1:-1]))
        normals = zip(self.mean_, np.sqrt(self.variance_), strict=True)
        numeric = iter(range(len(self.schema_.numeric)))
        tails = self._densities.students
        for feature in self.schema_.features:
            if feature.values is None:
                place = next(numeric)
                if place in self._densities.by_place:
                    columns[feature.name] = self._densities.by_place[place].drawn(codes, random)
                    continue
                if place in tails.places:
                    columns[feature.name] = tails.drawn(place, codes, random)
                    continue
                mean, deviation = next(normals)
                columns[feature.name] = random.normal(mean[codes], deviation[codes])
                continue
            likelihood = np.exp(next(tables)[: feature.size + 1])
            drawn = np.zeros(len(codes), np.int64)
            if feature.size:
                # Where missing is a value of its own, it has the mass that the others leave.
                as_value = self.missing == "category" and np.allclose(likelihood.sum(axis=0), 1)
                drawn = value_codes(likelihood if as_value else likelihood[:-1], codes, random)
            columns[feature.name] = drawn_values(feature, drawn, random)
        return columns

    def _keeps_unlabelled(self) -> bool:
        return self.unlabelled == "em"

    def _with_unlabelled(
        self, stats: Statistics, rows: list[pa.RecordBatch], weight: str | None
    ) -> Statistics:
        self._em = None
        if self.unlabelled != "em" or not rows:
            return super()._with_unlabelled(stats, rows, weight)
        stats, self._em = expectation_maximisation(self, stats, rows, weight)
        return stats

    # -- copies and files: the rows are not there, how their classes were found is kept ----------

    def _state_of_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {} if self._em is None else {"em": self._em.state()}, {}

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        self._em = Convergence.of_state(header["em"]) if "em" in header else None
        return super()._loaded(header, arrays, source)


def alpha_and_prior(
    model: Any, stats: Statistics, *, tol: float, max_iter: int
) -> tuple[float, Floats, Convergence]:
    """Return the pseudo-count in use, ln P(c), and how the pseudo-count was found."""
    values, alpha, search = stats.values, model.alpha, Convergence()
    if alpha == "loo":
        log_joint = leave_one_out_log_joint(values, model.missing)
        search = found = best_of(log_joint, tol, max_iter, "alpha='loo'")
        alpha = found.point
    given = float(alpha), model.class_prior, stats.schema.class_labels
    return float(alpha), log_prior(values.class_counts, *given), search


def checked_chance(feature_averaging: Any) -> float | None:
    """Return the prior probability that a feature depends on the class, None without averaging."""
    return switch("feature_averaging", feature_averaging, on=0.5, below=1.0)


def averaged_log_likelihood(
    counts: ValueCounts, alpha: float, chance: float, *, missing: str, unseen: str
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return ln [q_j P(x_j | c) + (1 - q_j) P(x_j)] as `log_likelihood` does, its offsets, and q.

    A structure says which features depend on the class; a priori each does with probability
    `chance`. Its prior, and the likelihood of the data under independent Dirichlet priors, are
    products over the features; so are its posterior and the average of its predictions: sum
    over structures S of P(S | D) prod_j P(x_j | c, S) = prod_j [q_j P(x_j | c) + (1 - q_j) P(x_j)],
    with q_j the posterior probability that feature j depends on the class (Dash, Cooper 2002).
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
            terms = log_gamma(alpha + n) - math.lgamma(alpha)
            terms = terms.sum(axis=0) - log_gamma(below + n.sum(axis=0)) + math.lgamma(below)
            result[j] = terms.sum()
    return result


def expectation_maximisation(
    model: NaiveBayes, labelled: Statistics, rows: list[pa.RecordBatch], weight: str | None
) -> tuple[Statistics, Convergence]:
    """Return the statistics of the labelled rows and of the others at their expected classes.

    Maximises the likelihood of the generative model in which the class of those rows is hidden
    (Nigam, McCallum, Thrun, Mitchell 2000, section 3), times the prior that alpha stands for,
    starting from the labelled rows. Values that occur only in unlabelled rows join the domains;
    equal rows are scored once.
    """
    if not labelled.n_rows:
        raise DataError("no row has a class: unlabelled rows need some labelled ones to start from")
    table = pa.Table.from_batches([join(rows)])
    if labelled.schema.target in table.column_names:
        table = table.drop_columns([labelled.schema.target])
    schema = _joint_schema(labelled, table, weight)
    batch = _distinct(_encoded(schema, table, weight))
    weights = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    start = labelled.aligned(schema)
    worker = fresh(model)

    def together(expected: Floats) -> Statistics:
        return start + _expected_counts(schema, batch, expected, list(labelled.parts))

    def posterior(stats: Statistics) -> tuple[Floats, float]:
        """Return that of the unlabelled rows, and their log likelihood."""
        scorer = worker._learned(stats)._scorer(batch.cells)
        result, joint = (np.empty((batch.n_rows, len(schema.classes))) for _ in range(2))
        scorer.log_joint(batch.codes, batch.numeric, joint)
        scorer.posterior(batch.codes, batch.numeric, result)
        return result, float(weights @ log_sum_exp(joint))

    def step(at: Sequence[Floats]) -> tuple[Sequence[Floats], float]:
        after, likelihood = posterior(together(at[0]))
        return [after], likelihood + _log_density(worker, start)

    tol = float(model.tol)
    found = converged(
        squarem(step, [posterior(start)[0]], tol),
        tol=tol,
        max_iter=int(model.max_iter),
        what="unlabelled='em'",
        measure="the largest change of a posterior",
    )
    stats = together(found.point[0])
    return replace(stats, dropped_rows=0, ledger=labelled.ledger), found


def _log_density(model: NaiveBayes, labelled: Statistics) -> float:
    """Return the log likelihood of labelled rows, plus alpha times all log parameters."""
    values, numbers = labelled.values, labelled.moments

    def tables(counts: ValueCounts) -> CountTables:
        return CountTables(counts, missing=model.missing, unseen=model.unseen)

    prior, normal = model.class_log_prior_, model._gaussians
    total = _products(values.class_counts, prior) + _products(tables(values).n, model._tables)
    apart = (numbers.mean - normal.mean) - normal.rest + numbers.rest
    squares = numbers.scatter + numbers.count * apart * apart
    known = numbers.count > 0
    nats = numbers.count * normal.constant - normal.half_precision * squares
    total += float(nats[known].sum())
    if model.alpha_ > 0:
        counted = tables(model.statistics_.values).counted
        total += model.alpha_ * float(model._tables[counted].sum())
        total += model.alpha_ * float(prior.sum()) if model.class_prior is None else 0.0
    return total


def _products(n: NDArray[Any], logs: Floats) -> float:
    """Return the sum of products, where n is above 0."""
    return float((n[n > 0] * logs[n > 0]).sum())


def _joint_schema(labelled: Statistics, table: pa.Table, weight: str | None) -> Schema:
    """Return the schema of the labelled rows with the values of the others."""
    own = labelled.schema
    encoder = Encoder.learning(
        table.schema,
        None,
        weight=weight,
        domains={f.name: f.values for f in own.categorical if f.declared and f.cuts is None},
        categorical=[f.name for f in own.categorical if f.cuts is None],
        cuts={f.name: f.cuts for f in own.categorical if f.cuts is not None},
        missing=own.missing,
        null_values=own.null_values,
        parts=own.parts,
    )
    others = engine.scan(open_source(table), encoder, ("values",)).schema
    same_classes = replace(
        others,
        target=own.target,
        classes=own.classes,
        classes_declared=own.classes_declared,
    )
    return own.union(same_classes)


def _encoded(schema: Schema, table: pa.Table, weight: str | None) -> Batch:
    encoder = Encoder.applying_to(schema, table.schema, weight=weight)
    block = table.combine_chunks().to_batches()
    rows = block[0] if block else pa.RecordBatch.from_pylist([], schema=table.schema)
    batch = encoder.encode(rows, Place("rows without a class", 0)).batch
    # Counting wants S_j codes, and one more where a value is missing.
    codes = tuple(
        Codes(features, matrix, sizes - 2 + batch.missing[features])
        for features, matrix, sizes in batch.codes
    )
    return replace(batch, codes=codes)


def _distinct(batch: Batch) -> Batch:
    """Return the distinct rows of a batch, weighted by how often they occur."""
    columns = [group.codes[i] for group in batch.codes for i in range(len(group.codes))]
    columns += [x.view(np.uint64) for x in batch.numeric]
    if not columns or not batch.n_rows:
        return batch
    table = np.ascontiguousarray(np.stack([c.astype(np.uint64) for c in columns], axis=1))
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    weight = np.bincount(group, weights=batch.weight, minlength=len(first)).astype(np.float64)
    return replace(
        batch,
        n_rows=len(first),
        codes=tuple(
            Codes(f, np.ascontiguousarray(codes[:, first]), sizes)
            for f, codes, sizes in batch.codes
        ),
        numeric=tuple(np.ascontiguousarray(x[first]) for x in batch.numeric),
        weight=weight,
    )


def _expected_counts(
    schema: Schema, batch: Batch, expected: NDArray[np.float64], names: list[str]
) -> Statistics:
    """Return the statistics of rows that belong to each class with a probability."""
    weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    parts = {name: REGISTRY[name].zeros(schema.shape, weighted=True) for name in names}
    for c in range(len(schema.classes)):
        share = replace(
            batch,
            classes=np.full(batch.n_rows, c, dtype=code_type(c + 1)),
            n_classes=len(schema.classes),
            weight=np.ascontiguousarray(weight * expected[:, c]),
        )
        for part in parts.values():
            part.update(share)
    return Statistics(schema, parts)


class LooDensities:
    """Log densities of columns within each class, without each row's own kernel, count or moments.

    Priors, bandwidths, bins and the choice among them stay as all rows have them. A row changes the
    density of its own class alone. From moments it is taken exactly, else where the sketch has it:
    of more than 4,096 values within a class it stands for its range.
    """

    def __init__(self, densities: ColumnDensities) -> None:
        self.by_place, self.students = densities.by_place, densities.students
        # Log density of each value of a class without one row there, by place and class.
        self._without_one: dict[tuple[int, int], Floats] = {}
        kinds = {densities.kinds[place] for place in self.by_place}
        fixed = {
            "prior": bool(self.students.places),
            "bandwidths": "kde" in kinds,
            "bins": bool(kinds - {"kde"}),
        }
        self.fixed = tuple(what for what, there in fixed.items() if there)

    def log_density(
        self, numeric: Sequence[Floats], y: NDArray[np.intp], gone: Floats | None, cells: float
    ) -> Floats:
        """Return the sum over the known columns of ln f(x_j | c), (n_rows, n_classes).

        `numeric` is one array per column, NaN where missing; `gone` is what each row takes out of
        the weights, None for 1 each; `cells` are those of the whole job.
        """
        total: Floats | float = 0.0
        for place in (*self.by_place, *self.students.places):
            x = numeric[place]
            if place in self.by_place:
                own, found = self._own, log_density(self.by_place[place].curves, x, cells)
            else:
                parts = self.students.parts[place]
                own, found = self.students.left_out, student.log_density(parts, x, cells)
            for c in np.unique(y).tolist():
                rows = np.flatnonzero((y == c) & ~np.isnan(x))
                if len(rows):
                    found[rows, c] = own(place, c, x[rows], 1.0 if gone is None else gone[rows])
            total = total + found
        return np.asarray(total)

    def _own(self, place: int, label: int, x: Floats, less: Floats | float) -> Floats:
        """Return the log density of the class of rows, without what each, or each one, weighs."""
        density = self.by_place[place]
        at = density.values.cell(label, x)
        if (place, label) not in self._without_one:
            every = np.arange(len(density.values.points[label]))
            one = np.ones(len(every))
            self._without_one[place, label] = density.left_out(label, every, one)
        found = self._without_one[place, label][at]
        if not isinstance(less, float) and len(light := np.flatnonzero(less < 1)):
            # Rows that share a value, and as much of its weight, are one question.
            asked = np.stack([at[light], less[light]])
            different, which = np.unique(asked, axis=1, return_inverse=True)
            answers = density.left_out(label, different[0].astype(np.int64), different[1])
            found[light] = answers[which.reshape(-1)]
        return found


class LooNaive(LooScorer):
    """A `NaiveBayes` by the counts and moments without each row."""

    def __init__(self, model: Any) -> None:
        if checked_chance(model.feature_averaging) is not None:
            raise SchemaError(
                "leave_one_out does not take rows out of feature_averaging, whose probabilities of "
                "features change with every row; k_fold validates it"
            )
        values = model.statistics_.values
        super().__init__(model, values.class_counts, Smoothing(alpha=model.alpha_))
        self.cells = CountTables(values, missing=model.missing, unseen=model.unseen)
        self.precision = model.precision
        if model.alpha == "loo":
            self.fixed = ("schema", "alpha")
        normal = model._densities.gaussian
        self.normal = np.flatnonzero(normal).tolist()
        numeric = [model.schema_.numeric[place].name for place in self.normal]
        self.densities = None
        if not normal.all():
            self.densities = LooDensities(model._densities)
            chosen = ("densities",) if DensitySpec(model.numeric).chooses else ()
            self.fixed = (*self.fixed, *chosen, *self.densities.fixed)
        self.gaussians = None
        self.scatter: Floats | None = None
        if numeric:
            self.gaussians = LooGaussians(
                some_columns(model.statistics_.moments, self.normal),
                weighted=values.weighted,
                names=numeric,
                ddof=model.ddof,
                variance=model.variance,
                var_floor=model.var_floor,
            )
            self.pooled = self.gaussians.of(~self.gaussians.plain)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        scorer = dispatch.load("scoring.log_joint", cells).NaiveScorer
        nothing, offsets = np.zeros(self.cells.n_classes), self.cells.offsets
        numbers = self.gaussians
        plain = None if numbers is None or not numbers.plain.any() else numbers.gaussians
        others, own = (
            scorer(nothing, logs(self.cells.likelihood(rule)), offsets, curves, self.precision)
            for rule, curves in ((self.rule, plain), (Without(self.rule), None))
        )
        return others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        every_column = rows.batch
        rows = rows._replace(batch=self._normal(every_column))
        codes, every = rows.batch.codes, np.arange(len(out))
        column = np.empty(out.shape)
        others.log_joint(codes, self._plain(rows.batch), out)
        own.log_joint(codes, (), column)
        mine = column[every, rows.y]
        if rows.gone is not None and len(light := np.flatnonzero(rows.gone < 1)):
            at = code_rows(rows.batch, self.cells.offsets)[:, light]
            mine[light] = own_likelihood(self.cells, self.rule, at, rows.y[light], rows.gone[light])
        if self.gaussians is None:
            out[every, rows.y] = mine
        else:
            self._numbers(self.gaussians, rows, others, mine, out)
        if self.densities is not None:
            numeric, cells = every_column.numeric, every_column.cells
            out += self.densities.log_density(numeric, rows.y, rows.gone, cells)
        out += self.prior(rows.y, rows.gone)

    def _normal(self, batch: Batch) -> Batch:
        """Return a batch of the Gaussian columns alone among the numeric ones."""
        if self.densities is None:
            return batch
        return replace(batch, numeric=tuple(batch.numeric[place] for place in self.normal))

    def _plain(self, batch: Batch) -> tuple[Floats, ...]:
        """Return the columns in which a row changes the density of its own class alone."""
        if self.gaussians is None:
            return ()
        return tuple(
            x for x, plain in zip(batch.numeric, self.gaussians.plain, strict=True) if plain
        )

    def _numbers(
        self, numbers: LooGaussians, rows: LooRows, others: Any, mine: Floats, out: Floats
    ) -> None:
        """Put numbers into log joints of values, and `mine` into the column of the row's class.

        `out` holds the densities of the plain columns for the other classes.
        """
        batch, y, gone = rows
        numeric, every = batch.numeric, np.arange(len(out))
        dense, low = numbers.own_log_density(numeric, y, gone)
        out[every, y] = mine + dense
        if not numbers.plain.all():
            rest = [x for x, plain in zip(numeric, numbers.plain, strict=True) if not plain]
            out += self.pooled.log_density(rest, y, gone)
        if self.scatter is not None:
            low[:] = True
        if len(some := np.flatnonzero(low)):
            few = taken(batch, some)
            nothing = tuple(np.full(len(some), np.nan) for _ in self._plain(few))
            exact = np.empty((len(some), out.shape[1]))
            others.log_joint(few.codes, nothing, exact)
            exact[np.arange(len(some)), y[some]] = mine[some]
            given = few.numeric, y[some], None if gone is None else gone[some]
            out[some] = exact + numbers.log_density(*given, self.scatter)

    def ill_conditioned(self, batch: Batch) -> NDArray[np.int64]:
        """Return the positions of rows that hold nearly all of the scatter of their class."""
        if self.gaussians is None:
            return super().ill_conditioned(batch)
        rows = rows_of(batch)
        return self.gaussians.ill_conditioned(self._normal(batch).numeric, rows.y, rows.gone)

    def other_moments(self, batch: Batch) -> ClassMoments | None:
        """Return the moments of rows, none of them ill-conditioned."""
        if self.gaussians is None:
            return None
        moments = ClassMoments(self.gaussians.moments.shape)
        moments.update(self._normal(batch))
        return moments

    def resolved(self, batch: Batch, others: ClassMoments) -> LooScorer:
        """Return what scores all ill-conditioned rows, given the moments of the others."""
        assert self.gaussians is not None
        better = copy(self)
        y = rows_of(batch).y
        numeric = self._normal(batch).numeric
        better.scatter = self.gaussians.scatter_without(others, numeric, y, batch.weight)
        return better
