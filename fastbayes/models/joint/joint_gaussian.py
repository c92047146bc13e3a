"""A joint table of the categorical columns, with a density of the numeric ones in each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, warn
from fastbayes.models.discrete.one_dependence import by_chain_rule, code_rows
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.column_table import ClassNumbers
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import UNSEEN, fitted, number, parameter, pseudo_count
from fastbayes.models.estimator.sampling import drawn_values
from fastbayes.models.estimator.smoothing import log_prior
from fastbayes.models.joint.cell_gaussians import (
    CellGaussians,
    CellMixture,
    MixtureScorer,
    known_moments,
)
from fastbayes.models.joint.joint import TAU, JointTable, JointTableScorer, drawn_cells
from fastbayes.models.numeric.gaussian import SHARES_PRIOR, listed, named
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.cell_scatter import pooled
from fastbayes.statistics.joint_moments import JointMoments


def _two_by_two(stats: Statistics, *, all_rows: bool = True) -> JointMoments:
    """Return moments of the classes two by two: of complete rows, where no others were counted."""
    if all_rows and "scatter" in stats.parts:
        return stats.scatter.two_by_two()
    found = stats.cell_scatter
    n, mean, rest, scatter = pooled(found.groups, found.keys[:, -1], len(stats.schema.classes))
    return JointMoments(n[:, None, None], mean[:, :, None], rest[:, :, None], scatter)


def _refuse_void(known: Floats, names: Sequence[str]) -> None:
    """Raise DataError for a numeric column that no row knows: then no cell has any row.

    known  (n_classes, p) rows that know each.
    """
    if known.any() and (void := ~known.any(axis=0)).any():
        raise DataError(
            f"column {names[int(void.argmax())]!r} has no value in any row, and cells take rows in "
            "which every number is known; leave it out (exclude=)"
        )


class JointGaussian(Classifier, Iterative):
    """Categorical columns as one joint value, and a density of the numbers together in each cell.

    Notes
    -----
    P(c, v, x) = P(c) P(v | c) f(x; m_vc, C_vc). With n rows of cell v and class c, mean x and
    scatter S, and the mean and covariance (m0, C0) of the class: m = (n x + k m0)/(n + k),
    C = (S + k C0 + n k/(n + k) (x - m0)(x - m0)^T)/(n + k) with k = `backoff`, which is Chan's
    merge with k rows of the class. A cell that does not occur with a class has the density of the
    class, and with backoff=0 none: it is impossible.

    With density="student" a class has the mean and covariance that its rows let expect under the
    prior of `GaussianBayes(prior="niw")`: of the mean of all rows, worth 0.01 rows, and of the
    pooled variances within classes, worth one row. f is Student's t of N + 3 degrees of freedom
    where N rows make it: those of the class, of a cell n + k of them at most. So without
    categorical columns the model is `GaussianBayes(prior="niw")` where no number is missing, and
    with very many rows f is normal. A class takes each mean and variance from the rows that know
    the number, and a covariance from those that know both: with n_i rows that know number i, S_ij
    the sum of products of deviations and s_ij that of the prior, it is (s_ij + S_ij) / ((n_i + 1)
    (n_j + 1))^(1/2), and N is n_i in the scale of number i and the mean over numbers in the degrees
    of freedom. Cells take complete rows alone, and so do classes where statistics were counted
    without `scatter`.

    With density="normal" f is normal and a class has the density of maximum likelihood, of the rows
    in which every number is known; one of no
    more rows than columns, or with a singular covariance, is drawn as cells are to the density of
    all rows. If that is singular, too, its correlations are shrunk, with a warning.

    At predict a missing category is summed over all cells that agree, each with its
    density, and a missing number is integrated out, both exactly. One scan learns; memory is
    8 (1 + 2 p + p^2) bytes for each cell and class that occur, refused over `memory_limit`.

    `explain` splits the log joint by the chain rule: the categorical columns in their order, then
    the numeric ones in theirs, each by what it adds to those before it.

    References
    ----------
    Chan, Golub, LeVeque (1979), Updating formulae and a pairwise algorithm for computing sample
    variances, eq. 2.1. Geisser (1964), Posterior odds for multivariate normal classifications,
    Journal of the Royal Statistical Society B 26. Fraley, Raftery (2007), Bayesian regularization
    for normal mixture estimation and model-based clustering, Journal of Classification 24.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"sex": list("ffffmmmm"), "size": [1, 2, 3, 2, 5, 6, 7, 6], "y": list("aabbaabb")}
    >>> model = fb.JointGaussian(backoff=2).fit(table, "y")
    >>> model.predict({"sex": ["f", "m"], "size": [1.0, 7.0]})
    array(['a', 'b'], dtype='<U1')
    """

    cells: str = parameter(
        """
        "joint": P(v | c) is that of `JointBayes`; "naive": the product of the margins P(v_j | c).
        The numbers depend on the joint cell either way.
        """,
        default="joint",
        choices=("joint", "naive"),
    )
    backoff: float = parameter(
        """
        Rows of its class that each cell is drawn to: with n rows of its own it has n/(n + backoff)
        of the say. 0 is maximum likelihood within the cell, and an error where that is undefined;
        infinity gives every cell the density of its class.
        """,
        default=10.0,
        check=number(besides=(math.inf,)),
    )
    tau: float | str = parameter(
        """
        Pseudo-rows of each class that are spread over cells as if columns were independent given
        the class; "loo" for the number that maximises the leave-one-out likelihood of the cells
        (from 1e-6 to 1e4 times the rows of a class in the mean), so that where hardly a cell is
        seen twice they are nearly independent.
        """,
        default="loo",
        check=number(besides=("loo",)),
    )
    alpha: float = parameter(
        "Pseudo-count of every value of a single column: 1 is Laplace.",
        default=1.0,
        check=pseudo_count(),
    )
    density: str = parameter(
        """
        "student": means and covariances are integrated out, by which densities are Student's t, as
        wide as few rows make them, and a class may have one row; "normal": they are normal
        densities, of the means and covariances that are most likely, as files written before there
        was a choice have them. With backoff=0 densities are normal.
        """,
        default="student",
        choices=("student", "normal"),
        before="normal",
    )
    class_prior: str | ArrayLike | None = SHARES_PRIOR
    missing: str = parameter(
        '"marginalize": a missing category is summed out; "category": it is a value of its own.',
        default="marginalize",
        choices=("marginalize", "category"),
    )
    unseen: str = UNSEEN
    tol: float = TAU
    schema_: Any = fitted("Columns, domains and classes.")
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    tau_: float = fitted('The pseudo-rows in use; with cells="naive" it is of no effect.')
    n_cells_: int = fitted("Pairs of cell and class that have a density of their own.")
    backed_off_: list[Any] = fitted("Labels of classes without a density of their own.")
    constant_: list[str] = fitted(
        """
        Names of numeric columns that are constant in all rows, or with density="student" within
        every class: they say nothing.
        """
    )
    _mixture: CellMixture = fitted()

    _dispensable: ClassVar[tuple[str, ...]] = ("scatter",)

    @property
    def _statistics(self) -> tuple[str, ...]:  # type: ignore[override]
        more = ("scatter",) if self._student else ()
        return ("values", "cells", "cell_scatter", *more)

    @property
    def _student(self) -> bool:
        return self.density == "student" and bool(self.backoff != 0)

    # -- learning ------------------------------------------------------------------------------

    def _read(self, stats: Statistics) -> dict[str, Any]:
        table = JointTable(
            stats,
            tau=self.tau,
            alpha=float(self.alpha),
            missing=self.missing,
            unseen=self.unseen,
            joint=self.cells == "joint",
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        found, classes = stats.cell_scatter, stats.schema.classes.to_pylist()
        keys = found.keys.astype(np.int64)
        codes, where = keys[:, :-1], keys[:, -1]
        codes = np.where(codes < 0, table.cells.sizes, codes)
        names = [feature.name for feature in stats.schema.numeric]
        inside = np.asarray(~table.hidden(codes.T).any(axis=0))
        kappa = float(self.backoff)
        pairs = _two_by_two(stats) if self._student else None
        if pairs is not None and "scatter" in stats.parts and codes.shape[1] and kappa < math.inf:
            _refuse_void(pairs.known(), names)
        # Without a categorical column the only cell is the class.
        inside &= bool(len(stats.schema.categorical)) or pairs is None
        gaussians = CellGaussians(found.groups, where, inside, pairs, kappa, names, classes)
        mixture = CellMixture(table, gaussians, codes[inside])
        if kappa == 0 and names:
            self._check_defined(stats, mixture)
        counts, known = stats.values.class_counts, stats.schema.class_labels
        off = gaussians.backed if kappa > 0 else np.zeros(len(classes), np.bool_)
        return {
            "class_log_prior_": log_prior(counts, 0.0, self.class_prior, known),
            "tau_": table.tau,
            **self._went(table.search),
            "n_cells_": len(gaussians.which),
            "backed_off_": named(classes, off),
            "constant_": named(names, ~gaussians.kept),
            "_mixture": mixture,
        }

    def _check_defined(self, stats: Statistics, mixture: CellMixture) -> None:
        """Raise DataError where a cell that occurs has no density of maximum likelihood."""
        whole = JointTable(stats, tau=0.0, alpha=0.0, missing=self.missing, unseen="ignore")
        at, c = np.nonzero(whole.counts)
        found = mixture.found(whole.keys[at].T, c)
        bad = found < 0
        bad[~bad] = mixture.gaussians.undefined(found[~bad])
        if not bad.any():
            return
        worst = int(bad.argmax())
        key, label = whole.keys[at[worst]].tolist(), int(c[worst])
        n = 0.0 if found[worst] < 0 else float(mixture.gaussians.n[found[worst]])
        given = {}
        for feature, code in zip(stats.schema.categorical, key, strict=True):
            assert feature.values is not None
            value = feature.values[code].as_py() if code < feature.size else None
            given[feature.name] = value
        raise DataError(
            f"cell {given or 'without categorical columns'} of class "
            f"{stats.schema.classes[label].as_py()!r}: its {n:,.10g} rows with every number known "
            "do not determine a covariance of "
            f"{len(stats.schema.numeric)} numeric columns (too few, constant, or dependent on each "
            "other), which backoff=0 asks for; use backoff > 0, or leave columns out"
        )

    def _caution(self) -> None:
        """Warn once of what was done so that every class has a density."""
        super()._caution()
        said = []
        if self.backed_off_:
            said.append(
                f"the covariance of {listed('class', self.backed_off_)} is singular, for it "
                "has too few rows or columns that depend on each other: it was drawn to that of "
                "all rows"
            )
        if self._mixture.gaussians.shrunk:
            said.append(
                "the covariance of all rows is singular, for there are too few or columns depend "
                "on each other: it was shrunk towards its diagonal"
            )
        if said:
            warn("; ".join(said))

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, those of P(v | c), and p + p (p + 1)/2 for each density.

        P(v | c) has K (prod_j S_j - 1), with cells="naive" K sum_j (S_j - 1).
        """
        self._check_fitted()
        k, p = len(self.classes_), len(self.schema_.numeric)
        sizes = [max(int(s), 1) for s in self._mixture.table.cells.choices]
        free = math.prod(sizes) - 1 if self.cells == "joint" else sum(s - 1 for s in sizes)
        return k - 1 + k * free + (self.n_cells_ if sizes else k) * (p + p * (p + 1) // 2)

    def _margin(self, place: int) -> Floats:
        return self._mixture.table.margin(place)

    def _class_numbers(self, place: int) -> ClassNumbers:
        says = "mean and standard deviation of each class"
        if self._student and "scatter" in self.statistics_.parts:
            known = self.statistics_.scatter.known()[:, place]
            missing = self.statistics_.values.class_counts - known
        else:
            says += ", of rows in which every number is known"
            missing = np.full(len(self.classes_), np.nan)
        moments = known_moments(_two_by_two(self.statistics_, all_rows=self._student))
        rows = moments.n[:, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(rows > 0, moments.mean[:, place] + moments.rest[:, place], np.nan)
            deviation = np.sqrt(moments.scatter[:, place, place] / rows)
        return ClassNumbers(says, mean, deviation, rows, missing)

    def _scorer(self, cells: float) -> Any:
        return MixtureScorer(self.class_log_prior_, self._mixture, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write what each feature adds to ln P(the features before it | c)."""
        table, places = self._mixture.table, self.schema_.places
        nothing = np.zeros(table.cells.n_classes)
        codes = code_rows(batch, table.cells.offsets) - table.cells.offsets[:-1, None]
        of_values = JointTableScorer(nothing, table, batch.cells)
        before = np.zeros((batch.n_rows, len(nothing)))
        if len(codes):
            given = by_chain_rule(of_values, range(len(codes)), codes, table.cells)
            out[:, places["categorical"]] = given
            before = given.sum(axis=1)
        scorer = MixtureScorer(nothing, self._mixture, batch.cells)
        numeric = [np.full(batch.n_rows, np.nan) for _ in batch.numeric]
        for place, (j, x) in zip(places["numeric"], enumerate(batch.numeric), strict=True):
            numeric[j], after = x, np.empty_like(before)
            scorer.log_joint(batch.codes, numeric, after)
            with np.errstate(invalid="ignore"):
                out[:, place] = np.where(np.isneginf(before), 0.0, after - before)
            before = after

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        mixture = self._mixture
        drawn = drawn_cells(mixture.table, codes, random, counted=not mixture.backs)
        at = mixture.found(mixture.table.in_cells(drawn), codes)
        at = np.where(at < 0, len(mixture.keys) + codes, at)
        numbers = iter(mixture.gaussians.drawn(at, random).T)
        values = iter(drawn)
        return {
            feature.name: next(numbers)
            if feature.values is None
            else drawn_values(feature, next(values), random)
            for feature in self.schema_.features
        }
