"""Logistic regression over categorical and numeric columns together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, repeat
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import ConvergenceWarning, DataError, MemoryLimitError, warn
from fastbayes.core.iteration import Found
from fastbayes.core.layout import Layout
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.schema import Schema, labels
from fastbayes.core.suggestions import did_you_mean
from fastbayes.core.threads import resolved_threads
from fastbayes.models.estimator.base import Classifier, Scans, check_learnable
from fastbayes.models.estimator.column_table import ColumnTable
from fastbayes.models.estimator.inputs import open_training
from fastbayes.models.estimator.log_space import Floats, log_sum_exp
from fastbayes.models.estimator.model import shifted_prior
from fastbayes.models.estimator.parameters import PACKING_LIMIT, fitted, number, parameter, whole
from fastbayes.models.estimator.protocol import fresh
from fastbayes.models.estimator.unavailable import of_posteriors, unavailable
from fastbayes.models.logistic.information import ExpandedRows
from fastbayes.models.logistic.interactions import (
    check_interactions,
    found_by_data,
    moved_pairs,
    needs_counts,
    pairs_of,
)
from fastbayes.models.logistic.linear import Coefficients, offsets_of
from fastbayes.models.logistic.logistic_fit import (
    Memory,
    layout_of,
    naive_bayes_start,
    prior_start,
    rows_before,
    solve,
)
from fastbayes.models.logistic.wald import check_wald, observed, wald_table
from fastbayes.scan.budget import default_limit
from fastbayes.scan.packed_rows import Pass, Reading, rereadable
from fastbayes.scan.request import Counter
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.loss_gradient import LossGradient
from fastbayes.statistics.pair_counts import PairCounts

PREFIX = "logistic."
HEADER = ("converged", "n_iter", "norm", "objective")
STANDS = ("sizes", "center", "scale")


@dataclass(frozen=True, eq=False)
class Fit:
    """What a fit left behind, besides statistics.

    coefficients  what scores rows
    layout        where the coefficients stood when they were fitted; None of a converted model
    memory        the rows as a quadratic, for more rows to come
    converged     whether the minimiser got there; None of a converted model
    n_iter        its steps
    norm          gradient norm
    objective     value at the end
    trace         (any, 4)
    information   (M, M, P, P) second derivatives of the objective, where they were asked for
    references    (d,) value of each categorical column that others are compared with; of
                  coefficients that a penalty tells apart none
    """

    coefficients: Coefficients
    layout: Layout | None = None
    memory: Memory | None = None
    converged: bool | None = None
    n_iter: int = 0
    norm: float = 0.0
    objective: float = 0.0
    trace: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    information: Floats | None = None
    references: NDArray[np.int64] | None = None

    @classmethod
    def of_one_class(cls, stats: Statistics, pairs: Sequence[tuple[int, int]]) -> Self:
        """Return the fit to rows of a single class: there is nothing to separate."""
        offsets = offsets_of([f.size for f in stats.schema.categorical], pairs)
        tables, center = np.zeros((int(offsets[-1]), 1)), np.zeros(len(stats.schema.numeric))
        none = Coefficients.of(np.zeros(1), tables, offsets, center, center[:, None], pairs=pairs)
        return cls(none, converged=True, n_iter=1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a header and named arrays from which `from_state` rebuilds."""
        options = {name: getattr(self, name) for name in ("trace", "information", "references")}
        layout, memory = self.layout, self.memory
        parts: dict[str, Mapping[str, NDArray[Any]]] = {
            "coefficients": self.coefficients.arrays(),
            "told": {name: array for name, array in options.items() if array is not None},
            "layout": {} if layout is None else {n: getattr(layout, n) for n in STANDS},
            "memory": {} if memory is None else memory.arrays(),
        }
        return {name: getattr(self, name) for name in HEADER}, named_arrays(parts, PREFIX)

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return what `state` described.

        Raises KeyError, ValueError when header and arrays do not fit together.
        """

        def own(part: str) -> dict[str, Any]:
            stored = arrays_of(arrays, f"{PREFIX}{part}.")
            return {name: np.array(array) for name, array in stored.items()}

        coefficients = Coefficients.from_arrays(own("coefficients"))
        layout = memory = None
        if stands := own("layout"):
            layout = Layout(**stands, pairs=coefficients.pairs, n_outputs=coefficients.n_outputs)
        if sums := own("memory"):
            memory = Memory.from_arrays(sums)
            if layout is None or memory.theta.shape != (layout.n_rows, layout.n_outputs):
                raise ValueError("what is remembered of earlier rows is of another layout")
        options = own("told")
        if (bent := options.get("information")) is not None:
            m, size = coefficients.n_outputs, 0 if layout is None else layout.n_rows
            if bent.shape != (m, m, size, size):
                raise ValueError("the second derivatives are not those of the coefficients")
        if (references := options.get("references")) is not None:
            if references.shape != (len(coefficients.sizes),):
                raise ValueError("the values to compare with are not those of the columns")
            if (references >= coefficients.sizes).any():
                raise ValueError("a value to compare with is not one of its column")
        return cls(coefficients, layout, memory, **header, **options)


def balanced(counts: NDArray[Any]) -> Floats:
    """Return weights with which all classes that occur weigh the same, and all together as before.

    counts  (n_classes,) rows, or sums of their weights.
    """
    seen = counts > 0
    return np.where(seen, counts.sum() / (seen.sum() * np.where(seen, counts, 1.0)), 1.0)


def given_class_weight(weight: Mapping[Any, float], classes: NDArray[Any]) -> Floats:
    """Return the weight of each class, 1 for those that are not named.

    A class that is no text may be named by how it reads, as files and commands must.

    Raises ValueError when a name is no class, or a weight is negative or not finite.
    """
    known = classes.tolist()
    texts, found = [str(label) for label in known], np.ones(len(known))
    for label, value in weight.items():
        if label not in known and label not in texts:
            raise ValueError(
                f"class_weight: there is no class {label!r}; there are {known}"
                f"{did_you_mean(label, known)}"
            )
        if not (isinstance(value, (int, float, np.number)) and 0 <= value < math.inf):
            raise ValueError(f"class_weight[{label!r}]={value!r}: use a finite number >= 0")
        found[known.index(label) if label in known else texts.index(label)] = value
    if not found.any():
        raise ValueError("class_weight: every weight is 0; give one of them more")
    return found


def as_given(params: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return parameters that were kept as JSON: pairs as tuples, weights by the classes."""
    given = dict(params)
    if not found_by_data(given.get("interactions")) and given.get("interactions") is not None:
        given["interactions"] = [tuple(pair) for pair in given["interactions"]]
    if isinstance(given.get("class_weight"), Mapping):
        # JSON knows no keys but text.
        known = {str(label): label for label in labels(schema.classes).tolist()}
        given["class_weight"] = {known.get(k, k): w for k, w in given["class_weight"].items()}
    return given


def names_of(coefficients: Coefficients, schema: Schema) -> list[tuple[Any, Any]]:
    """Return (column, value) of each coefficient, in their order."""
    values = []
    for feature, size in zip(schema.categorical, coefficients.sizes.tolist(), strict=True):
        assert feature.values is not None
        known = feature.intervals or feature.values.to_pylist()
        values.append([*known, *[None] * (size - len(known))])
    names = [f.name for f in schema.categorical]
    found: list[tuple[Any, Any]] = []
    for name, some in zip(names, values, strict=True):
        found += zip(repeat(name), some)
    found += [(f.name, None) for f in schema.numeric]
    for a, b in coefficients.pairs:
        found += zip(repeat((names[a], names[b])), product(values[a], values[b]))
    return found


def theta_by_name(
    layout: Layout,
    schema: Schema,
    names: Sequence[tuple[Any, Any]],
    coef: Floats,
    intercept: Floats,
) -> Floats:
    """Return coefficients that go by names as a layout has them; 0 for new names."""
    empty = np.zeros((layout.n_rows, layout.n_outputs))
    here = names_of(Coefficients.from_theta(empty, layout), schema)
    known, theta = dict(zip(names, coef.T, strict=True)), empty.copy()
    for at, name in enumerate(here, 1):
        theta[at] = known.get(name, 0.0)
    theta[0] = intercept + layout.center @ theta[layout.numeric]
    theta[layout.numeric] *= layout.scale[:, None]
    return theta


def cautions(found: Found[Floats], separable: bool, stats: Statistics) -> None:
    """Warn of a fit that did not end at a minimum."""
    if separable:
        warn(
            "some rows can be told apart without error, so that without a penalty there is no "
            "optimum: their coefficients grow beyond all bounds, and are as the last step left "
            "them; use penalty='l2' with a large C",
            ConvergenceWarning,
        )
    else:
        found.warn()
    counts = stats.values.class_counts
    if len(counts) > 1 and (counts == 0).any():
        label = stats.schema.classes[int((counts == 0).argmax())].as_py()
        warn(
            f"class {label!r} has no row, and a share that is next to nothing: learn from rows of "
            "it, too"
        )


def caution_of_batch(batch: Statistics, whole: Statistics) -> None:
    """Warn of a batch without rows of a class that earlier ones had."""
    labels_and_counts = zip(
        batch.schema.classes.to_pylist(), batch.values.class_counts.tolist(), strict=True
    )
    here = {label for label, count in labels_and_counts if count}
    counts = whole.values.class_counts.tolist()
    for label, count in zip(whole.schema.classes.to_pylist(), counts, strict=True):
        if count and label not in here:
            warn(
                f"this batch has no row of class {label!r}, of which earlier ones had: what these "
                "said of it may fade, for little is remembered of rows that are sure of their "
                "class; mix the classes in each batch, or fit all rows at once"
            )
            return


# A class that new rows do not hold keeps this share.
LEAST_SHARE = 1e-12


def _check_unseen(name: str, unseen: Any) -> None:
    if unseen not in ("ignore", "error"):
        raise ValueError(
            f"{name}={unseen!r}: use 'ignore' or 'error'; a value that was never seen has no "
            "coefficient"
        )


def _check_class_weight(name: str, weight: Any) -> None:
    balanced = isinstance(weight, str) and weight == "balanced"
    if weight is not None and not balanced and not isinstance(weight, Mapping):
        raise ValueError(f"{name}={weight!r}: use None, 'balanced' or {{class: weight}}")


class LogisticRegression(Classifier):
    """Logistic regression: the log odds of the classes are linear in values and numbers.

    Notes
    -----
    P(c | x) is the softmax of b_c + Σ_j w_c,x_j + Σ w_c x. Every value of a categorical column has
    a coefficient of its own, and the penalty makes them unique. Columns are never expanded: a row
    takes a byte or so for each column, or what two thirds of it. Equal rows of categories are taken
    together where there are many.

    With a number of `interactions` or "auto" pairs are taken by falling interaction information N
    [I(X_i; X_j | C) - I(X_i; X_j)], less what chance comes to, (K - 1)(S_i - 1)(S_j - 1) / 2.
    "auto" takes a pair as long as the sum of rows + S_i S_j, times the outputs, stays within 2^17
    or rows x columns x outputs, whichever is more. Columns of one value are in no pair that is not
    named. `partial_fit` keeps the pairs of the first batch. All pairs of bins, as in Zaidi et al.,
    take `interactions="all", discretize="mdl"`.

    `explain` gives each column of a pair half of what the pair adds.

    Workers of `engines` read the rows once for each step: of up to 2,000 coefficients a pass brings
    all second derivatives, of more each product of them is a pass.

    Separable rows have no optimum without a penalty; the steps then end at finite coefficients,
    with a warning and `converged_` False.

    `partial_fit` remembers earlier batches as a quadratic around their optimum (Laplace's
    approximation): with all second derivatives where coefficients are few, else with those of each
    by itself. One batch gives what `fit` gives; several come near what one `fit` of all gives, the
    nearer the larger they are, if each has rows of all classes: of rows whose class is sure, as
    where a batch has but one, nearly nothing is remembered, and a warning says so.

    References
    ----------
    Ng, Jordan (2002), On discriminative vs. generative classifiers: a comparison of logistic
    regression and naive Bayes, NIPS. Lin, Weng, Keerthi (2008), Trust region Newton method for
    logistic regression, Journal of Machine Learning Research 9. Byrd, Chin, Neveitt, Nocedal
    (2011), On the use of stochastic Hessian information in optimization methods for machine
    learning, SIAM Journal on Optimization 21. Zaidi, Webb, Carman, Petitjean, Cerquides (2016),
    ALRn: accelerated higher-order logistic regression, Machine Learning 104. Jakulin, Bratko
    (2004), Testing the significance of attribute interactions, ICML, eq. 4.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
    >>> model = fb.LogisticRegression(C=1.0).fit(table, "play")
    >>> model.coef_names_
    [('sky', 'rain'), ('sky', 'sun')]
    >>> model.coef_.round(3)
    array([[-0.675,  0.675]])
    >>> model.predict({"sky": ["rain", "sun"]})
    array(['no', 'yes'], dtype='<U3')
    """

    penalty: str | None = parameter(
        """
        "l2", "l1" or None. The penalty is of the coefficients in the units of the columns, or see
        `standardize`; intercepts are free.
        """,
        default="l2",
        kw_only=False,
        choices=("l2", "l1", None),
    )
    C: float = parameter(
        """
        Inverse strength of the penalty, as in scikit-learn: the objective is the weighted sum of
        the rows' losses plus |w|²/(2C) ("l2") or Σ|w|/C ("l1").
        """,
        default=1.0,
        check=number(above=0.0, besides=(math.inf,)),
    )
    standardize: bool = parameter(
        """
        Whether the penalty is of the coefficients of numbers in units of their columns' standard
        deviations, so that it does not depend on the units of the columns. `partial_fit` keeps the
        deviations of the first batch.
        """,
        default=False,
    )
    solver: str = parameter(
        """
        "newton-cg": Newton's method, whose steps are found by conjugate gradients; of many rows it
        begins with samples. "lbfgs", "conjugate_gradient": scipy's. "gradient": plain gradient
        ascent of the likelihood, for teaching.
        """,
        default="newton-cg",
        choices=("newton-cg", "lbfgs", "conjugate_gradient", "gradient"),
    )
    learning_rate: float | None = parameter(
        """
        Of "gradient": length of a step in units of the mean gradient over rows, of standardised
        columns. None finds one at each step.
        """,
        default=None,
        check=number(above=0.0, besides=(None,)),
    )
    init: str = parameter(
        """
        Where to begin: "naive_bayes", whose coefficients are a closed form of the counts, drawn
        back to the classes' shares as far as that is better; or "zeros".
        """,
        default="naive_bayes",
        choices=("naive_bayes", "zeros"),
    )
    class_weight: str | Mapping[Any, float] | None = parameter(
        """
        None; "balanced", weights inversely proportional to the classes' frequencies; or {class:
        weight}, 1 for those that are not named. They multiply the rows' weights.
        """,
        default=None,
        check=_check_class_weight,
    )
    interactions: str | int | Iterable[tuple[str, str]] | None = parameter(
        """
        Pairs of categorical columns, whose pairs of values have coefficients of their own: two
        names each; "all"; a number, so many at most; or "auto", as many as take little time, if
        any. Those that tell most of the class only together come first (see Notes).
        """,
        default=None,
        check=check_interactions,
    )
    discretize: Any = parameter(
        """
        None: each numeric column has a slope. Else it is cut into bins, a value each, that may be
        in pairs: "mdl", "quantile", "width", ("quantile", n), ("width", n), or {column: any of
        these or cut points}.
        """,
        default=None,
        filed=False,
    )
    tol: float = parameter(
        """
        Stop where no derivative of the objective, by the weight of the rows and of standardised
        columns, is larger than this.
        """,
        default=1e-6,
        check=number(above=0.0),
    )
    max_iter: int = parameter(
        "Steps at most.",
        default=200,
        check=whole(1),
    )
    warm_start: bool = parameter(
        "Whether `fit` begins at the coefficients that the model has.",
        default=False,
    )
    standard_errors: bool = parameter(
        """
        Whether `fit` goes over the rows once more, for the second derivatives of which
        `coefficients` makes standard errors: of up to 2,000 coefficients, not with "l1". A row of
        weight 2 counts as two rows.
        """,
        default=False,
    )
    domains: Mapping[str, Any] | None = parameter(
        "Declared values by column name: other values are an error.",
        default=None,
    )
    missing: str = parameter(
        """
        "marginalize": a missing value of a categorical column adds nothing, a missing number counts
        as the column's mean. "category": a missing categorical value is a value of its own.
        """,
        default="marginalize",
        choices=("marginalize", "category"),
    )
    unseen: str = parameter(
        'A value not seen at fit adds nothing ("ignore"), or is an error ("error").',
        default="ignore",
        check=_check_unseen,
    )
    memory_limit: int | None = PACKING_LIMIT
    coef_: Floats = fitted(
        """
        (n_outputs, n_coefficients) in the units of the columns: of each value of each categorical
        column, of each numeric column, of each pair of values. One output for two classes, the log
        odds of the second; else one for each class, which sum to 0 over classes with "l2".
        """
    )
    intercept_: Floats = fitted("(n_outputs,); of more than two classes they sum to 0.")
    coefficients_: Coefficients = fitted("The same as a value, with what the scorer needs.")
    converged_: bool | None = fitted(
        "Whether the minimiser got where `tol` says; None of a model that was converted."
    )
    n_iter_: int = fitted("Steps over all rows.")
    gradient_norm_: float = fitted("The largest derivative at the end, as `tol` has it.")
    objective_: float = fitted("The value at the end: losses and penalty, summed over rows.")
    trace_: Floats = fitted(
        """
        Of each step the share of rows it was made with, the objective, the gradient norm, and how
        many times all rows had been read by then.
        """
    )
    statistics_: Any = fitted("Counts of values and moments of the rows.")
    schema_: Any = fitted("Columns, domains and classes.")
    _fit: Fit = fitted()
    _found: Fit = fitted()  # what the last scans led to

    _reads_rows: ClassVar[bool] = True  # counts are not all that it learns from
    _has_densities: ClassVar[bool] = False

    fit_statistics = unavailable(
        "LogisticRegression learns from rows, which no counts replace: use fit, or "
        "NaiveBayes.to_logistic for what counts can say"
    )
    log_evidence, sample = of_posteriors("LogisticRegression")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.learning_rate is not None and self.solver != "gradient":
            raise ValueError(
                f"learning_rate is of solver='gradient': leave it out with {self.solver!r}"
            )
        if self.penalty == "l1" and self.solver != "newton-cg":
            raise ValueError(
                f"penalty='l1' has corners, where solver={self.solver!r} finds no gradient: use "
                "solver='newton-cg', which takes proximal steps there"
            )
        if self.standard_errors and self.penalty == "l1":
            raise ValueError(
                "penalty='l1' has corners, where its coefficients are and no second derivative is: "
                "there are no standard errors; use penalty='l2' or None"
            )

    # -- learning ------------------------------------------------------------------------------

    def partial_fit(
        self, X: Any, y: Any = None, *, classes: ArrayLike | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn from more data; earlier batches are remembered as a quadratic.

        Parameters
        ----------
        X
            As in `fit`. New values may appear.
        y
            As in `fit`; classes need not all occur.
        classes
            All classes, at the first batch; those of that batch by default.
        sample_weight
            As in `fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used, there is a new class, or the model was converted: it knows
            no loss of earlier rows.

        Notes
        -----
        One batch gives what `fit` gives. Of several, the loss of earlier ones is approximated
        around the coefficients that they had led to, so that their order matters a little. Mix the
        classes: of batches sorted by class the last is nearly all that is learned. A batch without
        rows of a class that earlier ones had is warned of.
        """
        if self.__sklearn_is_fitted__() and self.converged_ is None:
            raise DataError(
                "the model was converted from another one and knows no loss of its rows, to which "
                "that of more rows could be added: use fit with warm_start=True, which begins at "
                "its coefficients, or let the other model learn the rows and convert it again"
            )
        return super().partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    def _scanned(self, scans: Scans) -> Statistics:
        # Rows are read again: those of a stream are kept.
        scans = replace(scans, source=rereadable(scans.source))
        counted: list[int] = []

        def progress(rows: int) -> None:
            counted.append(rows)
            if scans.progress is not None:
                scans.progress(rows)

        wanted: dict[str, Any] = {"values": {}, "moments": {}}
        if scans.first and needs_counts(self.interactions):
            wanted["pairs"] = {}
        counted_rows = replace(scans, progress=progress).count(self, wanted)
        together = counted_rows.pairs if "pairs" in wanted else None
        # They choose the pairs, and are of no use afterwards.
        parts = {n: part for n, part in counted_rows.parts.items() if n != "pairs"}
        stats = replace(counted_rows, parts=parts)
        if scans.first:
            check_learnable(stats, scans.source.description)
        n_rows = sum(counted) if scans.n_rows is None else scans.n_rows
        self._found = self._solved(scans, stats, n_rows, together)
        return stats

    def _solved(
        self, scans: Scans, stats: Statistics, n_rows: int, together: PairCounts | None
    ) -> Fit:
        """Return the fit to the rows of a source that has been counted, perhaps in pairs, too."""
        whole, before, memory = stats, None, None
        if not scans.first:
            whole = self.statistics_ + stats
            if len(whole.schema.classes) > len(self.classes_):
                self._refuse_classes(whole.schema)
            before = self._fit
        schema = whole.schema
        pairs = self._pairs(whole, before, together, n_rows)
        if len(schema.classes) < 2:
            return Fit.of_one_class(whole, pairs)
        if before is not None and before.memory is not None and before.layout is not None:
            to = schema.alignment(self.schema_)
            known = self.statistics_.moments.count.sum(axis=1) > 0
            # The last stands for the numeric columns that are new, whose place is -1.
            place = np.where(np.append(known, False)[to.numeric], to.numeric, -1)
            layout = layout_of(whole, pairs, (before.layout, place))
            memory = before.memory.moved(rows_before(before.layout, layout, to))
        else:
            layout = layout_of(whole, pairs)
        weight = self._class_weights(whole)
        limit = default_limit() if self.memory_limit is None else int(self.memory_limit)
        cells = layout.n_rows * layout.n_outputs
        # By other passes than these the last digits would be others: no room decides it.
        more = ExpandedRows.need(cells) if isinstance(scans.source, Counter) else 0
        self._check_room(cells, more, schema, limit)
        if self.standard_errors:
            check_wald(layout, first=scans.first)
        reading = scans.reading(self, schema, layout, weight)
        base = None
        if memory is not None:
            theta = memory.theta
        elif self.warm_start and scans.first and self._same_classes(schema):
            theta = theta_by_name(layout, schema, self.coef_names_, self.coef_, self.intercept_)
        elif self.init == "naive_bayes":
            theta = naive_bayes_start(whole, layout, weight)
            base = prior_start(whole, layout, weight)
        else:
            theta = np.zeros((layout.n_rows, layout.n_outputs))
        given = reading, n_rows, whole, theta, memory, base
        found, after, separable = solve(self, *given, remember=not scans.last)
        cautions(found, separable, whole)
        if not scans.first:
            caution_of_batch(stats, whole)
        coefficients = Coefficients.from_theta(found.point, layout)
        information, references = (
            observed(self, reading, coefficients, whole) if self.standard_errors else (None, None)
        )
        return Fit(
            coefficients=coefficients,
            layout=layout,
            memory=after,
            converged=found.converged,
            n_iter=found.n_iter,
            norm=found.error,
            objective=found.loss,
            trace=found.trace,
            information=information,
            references=references,
        )

    def _pairs(
        self, stats: Statistics, before: Fit | None, together: PairCounts | None, n_rows: int
    ) -> list[tuple[int, int]]:
        """Return the places of the columns that interact; those found before stay."""
        if before is not None and found_by_data(self.interactions):
            return moved_pairs(before.coefficients.pairs, self.schema_, stats.schema)
        return pairs_of(self.interactions, stats.schema, layout_of(stats), together, n_rows)

    @property
    def _discretizes(self) -> bool:  # type: ignore[override]
        return self.discretize is not None

    @property
    def _penalty(self) -> str | None:
        return None if math.isinf(self.C) else self.penalty

    def _class_weights(self, stats: Statistics) -> Floats | None:
        if isinstance(self.class_weight, str):
            return balanced(stats.values.class_counts)
        given, classes = self.class_weight, labels(stats.schema.classes)
        return None if given is None else given_class_weight(given, classes)

    def _same_classes(self, schema: Schema) -> bool:
        known = vars(self).get("classes_")
        return known is not None and np.array_equal(known, labels(schema.classes))

    def _refuse_classes(self, schema: Schema) -> None:
        new = next(c for c in labels(schema.classes).tolist() if c not in self.classes_.tolist())
        raise DataError(
            f"class {new!r} is new: earlier batches were learned without it; name all classes "
            "in `classes` at the first partial_fit, or fit again with all rows"
        )

    def _check_room(self, cells: int, more: int, schema: Schema, limit: int) -> None:
        """Refuse coefficients that would not fit: a dozen copies are in use at a time, and more."""
        if (needed := 12 * 8 * cells + more) > limit:
            widest = max(schema.categorical, key=lambda f: f.size, default=None)
            most = "the numeric columns need the most; leave some out"
            if widest is not None:
                most = (
                    f"column {widest.name!r} with {widest.size:,} values needs the most; leave it "
                    "or its interactions out, group its values"
                )
            raise MemoryLimitError(
                f"{cells:,} coefficients need {needed:,} bytes, over memory_limit={limit:,}: "
                f"{most}, or raise memory_limit"
            )

    # -- reading -------------------------------------------------------------------------------

    def _read(self, stats: Statistics) -> dict[str, Any]:
        fit = self._found
        return {
            "_fit": fit,
            "coefficients_": fit.coefficients,
            "coef_": fit.coefficients.coef,
            "intercept_": fit.coefficients.intercept,
            "converged_": fit.converged,
            "n_iter_": fit.n_iter,
            "gradient_norm_": fit.norm,
            "objective_": fit.objective,
            "trace_": fit.trace,
        }

    def _taking(self, fit: Fit, stats: Statistics) -> Self:
        """Take a fit, and what is known of the rows that it is of."""
        self._found = fit
        return self._learned(stats)

    def _copy_with(self, **params: Any) -> Self:
        copy = fresh(self, **params)
        copy._set_features(vars(self).get("feature_names_in_"), self.n_features_in_)
        return copy._taking(self._fit, self.statistics_)

    @property
    def coef_names_(self) -> list[tuple[Any, Any]]:
        """(column, value) of each coefficient, made anew each time.

        The value is None for a number, and for a missing value that is a category. Of pairs it is
        ((column, column), (value, value)).
        """
        self._check_fitted()
        return names_of(self.coefficients_, self.schema_)

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1 times 1, S_j - 1 per column, 1 per number, products of pairs."""
        self._check_fitted()
        sizes = np.maximum(self.coefficients_.sizes - 1, 0)
        pairs = sum(int(sizes[a] * sizes[b]) for a, b in self.coefficients_.pairs)
        each = 1 + int(sizes.sum()) + len(self.coefficients_.center) + pairs
        return (len(self.classes_) - 1) * each

    # -- answers -------------------------------------------------------------------------------

    def _log_prior(self) -> Floats:
        prior = self.coefficients_.prior
        return np.asarray(prior - log_sum_exp(prior[None])[0])

    def _explained_prior(self) -> Floats:
        return self.coefficients_.prior

    def _scorer(self, cells: float) -> Any:
        return self.coefficients_.scorer(cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        self.coefficients_.contributions(batch, self.schema_.places, out)

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:
        """Return a copy whose intercepts fit unlabelled rows, by expectation maximisation.

        Parameters
        ----------
        X
            Rows whose classes are unknown, as in `predict`.
        tolerance
            Stop when no prior changes by more than this.
        max_iter
            Stop with a warning after so many steps, at the best prior seen.

        Returns
        -------
        Self
            A fitted model whose intercepts are moved by the logarithm of how much more, or less,
            frequent each class is than among the rows it learned from; this one is left as it was.

        Raises
        ------
        DataError
            When there are no rows.

        References
        ----------
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a
        priori probabilities, Neural Computation 14, eq. 2.
        """
        self._check_fitted()
        weight = self._class_weights(self.statistics_)
        counts = self.statistics_.values.class_counts * (1.0 if weight is None else weight)
        prior = np.maximum(counts / counts.sum(), LEAST_SHARE)
        found = shifted_prior(self.predict_proba(X), prior, tolerance, max_iter)
        moved = np.log(np.maximum(found, LEAST_SHARE)) - np.log(prior)
        moved -= moved[0] if len(moved) == 2 else moved.mean()
        c = self.coefficients_
        shifted = replace(self._fit, coefficients=replace(c, prior=c.prior + moved))
        return self._copy_with()._taking(shifted, self.statistics_)

    def loss_gradient(self, X: Any, y: Any, *, sample_weight: Any = None) -> LossGradient:
        """Return the loss of rows and its gradient at the model's coefficients.

        Parameters
        ----------
        X
            Rows, as in `fit`; values unseen at fit add nothing.
        y
            As in `fit`.
        sample_weight
            As in `fit`.

        Returns
        -------
        LossGradient
            Sums over the rows, without the penalty: those of parts of the rows add up to those of
            all, so that any engine that maps and merges can take gradient steps.
        """
        self._check_fitted()
        opened = open_training(self, X, y, sample_weight, reset=False)
        c = self.coefficients_
        layout = c.layout()
        reading = Reading(
            source=opened.source,
            schema=self.schema_,
            layout=layout,
            target=opened.target,
            weight=opened.weight,
            class_weight=self._class_weights(self.statistics_),
            threads=resolved_threads(self.threads),
            limit=0.0,
        )
        theta = c.theta(layout)
        found, rows, total = reading.passed(Pass("loss_gradient", (theta,)))
        loss, gradient = (0.0, np.zeros_like(theta)) if found is None else found
        # From derivatives by slopes around the center to those by slopes around 0.
        gradient[layout.numeric] += c.center[:, None] * gradient[0]
        return LossGradient(rows, total, loss, gradient, at=LossGradient.mark(theta))

    def coefficients(self, *, level: float = 0.95) -> pa.Table:
        """Return the coefficients as a table, with Wald intervals where they were asked for.

        Parameters
        ----------
        level
            Probability of an interval.

        Returns
        -------
        pyarrow.Table
            A line for each coefficient and class: `feature` ("(intercept)", the column, or two as
            a:b), `value` (of a categorical column), `class`, `reference` and `reference_class`
            (what is compared with), `coefficient`, `odds_ratio`; of a model that was fitted with
            `standard_errors=True` also `standard_error`, `z`, `p_value` (two-sided, of a
            coefficient of 0), `lower`, `upper`, `odds_ratio_lower`, `odds_ratio_upper`.

        Raises
        ------
        ValueError
            When the level is not between 0 and 1.

        Notes
        -----
        Without a penalty only differences of the values of a column mean something. With
        standard errors each value is then compared with the most frequent one, and each of
        more than two classes with the first one: the numbers of treatment coding, where the
        intercept is a row of references and zeros. With "l2" the coefficients are as they are, and
        their intervals those of a posterior: of a normal prior of variance C about 0, as a normal
        density about its peak (Laplace's approximation); as confidence intervals they cover too
        little where the penalty has pulled coefficients away.

        References
        ----------
        Wald (1943), Tests of statistical hypotheses concerning several parameters when the number
        of observations is large, Transactions of the American Mathematical Society 54.
        """
        self._check_fitted()
        c, layout, fit = self.coefficients_, self._fit.layout, self._fit
        return wald_table(c, layout, fit.information, fit.references, self.schema_, level)

    @property
    def _sums_columns(self) -> bool:  # type: ignore[override]
        return not self.coefficients_.pairs

    def _column_table(self, j: int) -> ColumnTable:
        schema, table = self.schema_, self.coefficients()
        feature, values = schema.features[j], self.statistics_.values
        names = [f.name for f in schema.categorical]
        pairs = [(names[a], names[b]) for a, b in self.coefficients_.pairs]
        terms = [feature.name, *(f"{a}:{b}" for a, b in pairs if feature.name in (a, b))]
        shown = table.filter(pc.is_in(table["feature"], pa.array(terms)))
        place = schema.places[feature.kind].index(j)
        lost = values.missing[place].sum() if feature.values is not None else np.nan
        if (moments := self.statistics_.parts.get("moments")) is not None and np.isnan(lost):
            lost = values.class_counts.sum() - moments.count[place].sum()
        missing = None if np.isnan(lost) else float(lost) / float(values.class_counts.sum())
        return ColumnTable(feature.name, "coefficients and odds ratios", shown, missing)

    # -- saving --------------------------------------------------------------------------------

    def _state_of_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fit, arrays = self._fit.state()
        return {"fit": fit}, arrays

    def _name_classes(self, schema: Any) -> None:
        self.set_params(**as_given(self.get_params(deep=False), schema))

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        stats = super()._loaded(header, arrays, source)
        schema, fit = stats.schema, Fit.from_state(header["fit"], arrays)
        self._name_classes(schema)
        shape = len(schema.categorical), len(schema.numeric), len(schema.classes)
        c = fit.coefficients
        if (len(c.sizes), len(c.center), len(c.prior)) != shape:
            raise ValueError("the coefficients are not of the columns and classes")
        self._found = fit
        return stats
