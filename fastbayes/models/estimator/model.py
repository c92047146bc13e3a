"""What every classifier answers, and models: parameters read off a statistic that is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.decisions import Decisions, decide
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.iteration import check_iteration, converged, squarem
from fastbayes.core.numbers import check_whole
from fastbayes.core.picks import free_name, unknown_column
from fastbayes.data.source import frame_of_engine
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.appended import Appended
from fastbayes.models.estimator.column_table import ColumnTable
from fastbayes.models.estimator.explanation import Explanation
from fastbayes.models.estimator.importance import Importance, importance
from fastbayes.models.estimator.log_space import Floats, log_sum_exp, normalise, settle
from fastbayes.models.estimator.parameters import filed_parameters, fitted
from fastbayes.models.estimator.protocol import Estimator, fresh
from fastbayes.models.estimator.sampling import class_codes

# Writes what a scorer says of a block of rows; may return how many rows got the prior.
ScoreRows = Callable[[Any, tuple[Any, ...], NDArray[Any]], int | None]


class Prediction(Estimator):
    """A classifier that scores rows; what follows from the scores stands here, once.

    A subclass scores rows (`_scored`), gives its prior (`_log_prior`) and the names of its
    features (`_feature_names`), and where it can explains (`_explained`) and draws rows
    (`_drawn`).
    """

    classes_: NDArray[Any] = fitted("(n_classes,) labels, sorted.")
    class_log_prior_: Floats = fitted()

    # Whether the log joint is a sum of one term for each column; whether these terms stay what
    # they are when the model is fitted without one of the columns.
    _sums_columns: ClassVar[bool] = False
    _keeps_terms: ClassVar[bool] = False

    # -- what a subclass gives -----------------------------------------------------------------

    def _scored(
        self,
        X: Any,
        answer: ScoreRows,
        width: int | None = None,
        labels: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return answer(scorer, rows, out) of all rows of X in order, (n_rows,) or by width.

        Where there are labels, the answers are positions of these, which are returned. An answer
        that does more than ask the scorer says so (`dispatch.in_python`): it may be noted down.
        """
        raise NotImplementedError

    def _log_prior(self) -> Floats:
        """Return ln P(c), (n_classes,)."""
        return self.class_log_prior_

    def _class_margin(self) -> Floats:
        """Return the log of what the joint distribution gives each class, (n_classes,)."""
        return self._log_prior()

    def _explained_prior(self) -> Floats:
        """Return the part of the log joint that no feature contributes, (n_classes,)."""
        return self._log_prior()

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None, Any]:
        """Return contributions, unseen values by column, shares of super-parents or None, and rows.

        Contributions and shares are (n_rows, n_features, n_classes); rows as `Explanation` has
        them.
        """
        raise NotImplementedError

    def _feature_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _column_table(self, j: int) -> ColumnTable:
        """Return what was learned about a feature, by its place among all."""
        raise NotImplementedError

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        """Return random columns, one row for each class code."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to draw rows (`_drawn`)")

    def _target_column(self, codes: NDArray[np.intp]) -> tuple[str, Any]:
        """Return the name of the class column, and the labels of class codes."""
        return "class", self.classes_[codes]

    # -- answers -------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            Rows with the features of `fit`. A model of tables reads no other column; the class
            column may be there.

        Returns
        -------
        numpy.ndarray
            (n_rows,) labels out of `classes_`; ties go to the lowest class. Of a frame of Dask or
            Spark, the frame with `prediction` appended, which its workers compute.

        Raises
        ------
        SchemaError
            When a column is missing or has another type or name; the message names it.
        """
        self._check_fitted()
        if (engine := frame_of_engine(X)) is not None:
            found: Any = engine.append_to(X, Appended(self, X.columns, proba=False))
            return found
        return self._scored(X, lambda s, rows, out: s.predict(*rows, out), labels=self.classes_)

    def predict_proba(self, X: Any) -> Floats:
        """Return P(c | x).

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes), rows sum to 1. A row that is impossible under every class gets
            the prior. Of a frame of Dask or Spark, the frame with `proba_<class>` appended.
        """
        self._check_fitted()
        if (engine := frame_of_engine(X)) is not None:
            found: Any = engine.append_to(X, Appended(self, X.columns, proba=True))
            return found
        k = len(self.classes_)
        return self._scored(X, lambda s, rows, out: s.posterior(*rows, out), k)

    def predict_log_proba(self, X: Any) -> Floats:
        """Return ln P(c | x).

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats.
        """
        return self._log_posterior(X)

    def log_joint(self, X: Any) -> Floats:
        """Return ln P(c, x), or what stands for it up to a term that all classes share.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows, n_classes) in nats; -inf where a class is impossible.
        """
        self._check_fitted()
        k = len(self.classes_)
        return self._scored(X, lambda s, rows, out: s.log_joint(*rows, out), k)

    def _log_posterior(self, X: Any) -> Floats:
        return self._after_log_joint(X, normalise)

    def _log_odds(self, X: Any) -> Floats:
        """Return the log odds of the second of two classes, (n_rows,)."""
        return np.diff(self._after_log_joint(X, settle))[:, 0]

    def _after_log_joint(self, X: Any, change: Callable[[Floats, Floats], None]) -> Floats:
        """Return log joints after change(joint, log_prior), made while a block is in cache."""
        self._check_fitted()
        log_prior = self._log_prior()

        def answer(scorer: Any, rows: tuple[Any, ...], out: Floats) -> None:
            dispatch.in_python()
            scorer.log_joint(*rows, out)
            change(out, log_prior)

        return self._scored(X, answer, len(self.classes_))

    def log_evidence(self, X: Any) -> Floats:
        """Return ln P(x): low values mark rows unlike anything seen.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) in nats.
        """
        return log_sum_exp(self.log_joint(X))

    def decision_function(self, X: Any) -> Floats:
        """Return the log odds of the second class, or the log joint of more than two.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) for two classes, else (n_rows, n_classes), in nats. A row that is impossible
            under every class gets the prior, as in `predict`.
        """
        self._check_fitted()
        two = len(self.classes_) == 2
        return self._log_odds(X) if two else self._after_log_joint(X, settle)

    def decide(self, X: Any, *, loss: Any = None, reject: float | None = None) -> Decisions:
        """Return the decision of least expected loss for each row.

        Parameters
        ----------
        X
            As in `predict`.
        loss
            (n_decisions, n_classes), rows = decision, columns = truth; labelled tables are
            checked against `classes_`. None counts every error as 1.
        reject
            Cost of not deciding; taken where it is below the least expected loss.

        Returns
        -------
        fastbayes.core.decisions.Decisions
            Decision, its expected loss and the runner-up per row.
        """
        return decide(self.predict_proba(X), self.classes_, loss, reject)

    def explain(self, X: Any) -> Explanation:
        """Return what each feature adds to the log joint of each class.

        Parameters
        ----------
        X
            As in `predict`; a sparse matrix is made dense.

        Returns
        -------
        Explanation
            `contributions` (n_rows, n_features, n_classes) and `prior` (n_classes,) in nats; their
            sum is the log joint. `table(row)` says it of one row, the largest first;
            `super_parents` says which super-parents spoke.
        """
        self._check_fitted()
        contributions, unseen, shares, rows = self._explained(X)
        prior = self._explained_prior().copy()
        impossible = np.isneginf(contributions.sum(axis=1) + prior).all(axis=1)
        names, prior_rows = self._feature_names(), int(impossible.sum())
        known = contributions, prior, names, self.classes_, unseen, prior_rows
        return Explanation(*known, shares, rows)

    def table(self, column: str) -> ColumnTable:
        """Return what the model has learned about one column, as people read it.

        Parameters
        ----------
        column
            Its name; the columns of an array without names are x0, x1, ...

        Returns
        -------
        ColumnTable
            `table`, an Arrow table: P(value | class) with the counts, by the values of the parents
            where the column depends on others; of numbers mean, standard deviation, rows and share
            missing within each class; the coefficients of a logistic regression. `str` and
            `to_dict` show it.

        Raises
        ------
        SchemaError
            When there is no such column; the message names those that are like it.

        Examples
        --------
        >>> import fastbayes as fb
        >>> rows = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "yes"]}
        >>> print(fb.NaiveBayes().fit(rows, "play").table("sky"))
        sky: P(value | class)
        <BLANKLINE>
          value  proba_no  proba_yes  count_no  count_yes
          rain    0.66667        0.4         1          1
          sun     0.33333        0.6         0          2
        """
        self._check_fitted()
        names = list(self._feature_names())
        if column not in names:
            raise SchemaError(unknown_column(column, names, f"this {type(self).__name__}"))
        return self._column_table(names.index(column))

    def importance(self, X: Any = None, y: Any = None) -> Importance:
        """Return which columns the answers come from, the one that speaks loudest first.

        Parameters
        ----------
        X
            Rows, as in `predict`; or statistics of columns, values and classes that the model
            knows. None for the statistics that the model was fitted to.
        y
            The name of the class column of X, or (n_rows,) labels; the name at fit by default.

        Returns
        -------
        Importance
            `table`, an Arrow table, with a line for each column. `mean_log_odds`: mean over rows
            of |ln P(x_j | a) - ln P(x_j | b)| in nats, and over the pairs of classes a and b; in
            models that are no product over columns, of what `explain` says instead. `information`:
            I(X_j; C) = sum_vc p(v, c) ln(p(v, c) / (p(v) p(c))) in nats over the counted rows in
            which the column is known, without smoothing: those of the statistics that are given,
            and beside rows those that the model was fitted to. `log_loss_without`: mean of
            -ln P(y | x) over the rows, by the model that is fitted without the column, and `gain`,
            that less `log_loss`, which is the model's own. What is not known is null, and `reason`
            says why.

        Raises
        ------
        DataError
            When there are no rows, or one has a class that the model does not know.
        SchemaError
            When statistics hold what the model does not know; or as in `predict`.

        Notes
        -----
        Counts suffice for `mean_log_odds` of columns of values in a product over columns, and for
        `information`; rows are needed for the rest, and read once. Models are fitted without a
        column by arithmetic on the count, never by another scan: those that learned from rows, or
        from counts of columns together, have no such loss. Losses are those of the rows given, each
        of weight 1: those of `fit` make every column look better than new rows do.

        References
        ----------
        Možina, Demšar, Kattan, Zupan (2004), Nomograms for visualization of naive Bayesian
        classifier, PKDD. Cover, Thomas (2006), Elements of information theory, eq. 2.28.

        Examples
        --------
        >>> import fastbayes as fb
        >>> rows = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
        >>> found = fb.NaiveBayes().fit(rows, "play").importance(rows)
        >>> print(found)
        4 rows, log-loss 0.287682 nats
        <BLANKLINE>
          column  mean_log_odds  information  log_loss_without     gain
          sky            1.0986      0.69315           0.69315  0.40547
        """
        self._check_fitted()
        return importance(self, X, y)

    def sample(self, n: int, y: Any = None, seed: int | None = None) -> pa.Table:
        """Draw rows from the model.

        Parameters
        ----------
        n
            Number of rows.
        y
            One class, or (n,) classes, to draw from; None draws classes, too.
        seed
            Seed of the random numbers; the same seed gives the same rows.

        Returns
        -------
        pyarrow.Table
            The feature columns (x0, x1, ... where they have no names) and the class column.

        Raises
        ------
        ValueError
            When a class is unknown, or y is not of length n.
        """
        self._check_fitted()
        check_whole("n", n, 0)
        random = np.random.default_rng(seed)
        codes = class_codes(self.classes_, self._class_margin(), int(n), y, random)
        columns = self._drawn(codes, random)
        target, labels = self._target_column(codes)
        return pa.table({**columns, free_name(target, columns): labels})


class Model(Prediction):
    """A classifier whose fitted state is a statistic.

    A subclass checks its parameters (`_check_parameters`) and the statistics it is given
    (`_suited`), reads these (`_read`), and rebuilds them from a file (`_loaded`).
    """

    _prior_parameter: ClassVar[str] = "class_prior"
    _of_rows: ClassVar[tuple[str, ...]] = ()  # what was learned from rows besides statistics

    statistics_: Any = fitted("The `Statistics` that every parameter is read from.")

    # -- what a subclass gives -----------------------------------------------------------------

    def _suited(self, stats: Any) -> Any:
        """Return the statistics as those this model learns from, or raise SchemaError."""
        raise NotImplementedError

    def _read(self, stats: Any) -> dict[str, Any]:
        """Return the fitted attributes, computed from the statistics and the parameters."""
        raise NotImplementedError

    def _state_of_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return as `state` does what was learned from rows, and cannot be read off statistics."""
        return {}, {}

    def _name_classes(self, schema: Any) -> None:
        """Set parameters as they were given that a file, whose keys are text, cannot hold so."""

    def _loaded(self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str) -> Any:
        """Return the statistics that `state` described, and keep what was learned from rows."""
        raise NotImplementedError

    def _features_of(self, stats: Any) -> tuple[Sequence[str] | None, int]:
        """Return the names and the number of the features that were counted."""
        raise NotImplementedError

    # -- learning ------------------------------------------------------------------------------

    def fit_statistics(self, stats: Any) -> Self:
        """Learn from statistics that were counted before; the rows are not needed.

        Parameters
        ----------
        stats
            The `statistics_` of a fitted model, or sums and differences of such. Models of tables,
            CategoricalNB and GaussianNB also take what `fastbayes.count` and `Statistics.load`
            return.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        SchemaError
            When a part is missing, or the options of the counting contradict the model's.
        """
        self._check_parameters()
        stats = self._suited(stats)
        self._learned(stats)
        self._set_features(*self._features_of(stats))
        self._caution()
        return self

    def _caution(self) -> None:
        """Warn of what was done to get parameters that the caller may not expect."""

    def _learned(self, stats: Any) -> Self:
        """Read the parameters off statistics, and keep these; nothing is set if that fails."""
        self._check_parameters()
        attributes = self._read(stats)
        self.statistics_ = stats
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def _copy_with(self, **params: Any) -> Self:
        """Return a model with some parameters changed, learned from the same statistics."""
        copy = fresh(self, **params)
        copy._set_features(vars(self).get("feature_names_in_"), self.n_features_in_)
        for name in self._of_rows:
            setattr(copy, name, getattr(self, name))
        return copy._learned(self.statistics_)

    def adapt_prior(self, X: Any, *, tolerance: float = 1e-9, max_iter: int = 10_000) -> Self:
        """Return a copy whose class prior fits unlabelled rows, by expectation maximisation.

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
            A fitted model with the prior as its parameter; this one is left as it was.

        Raises
        ------
        DataError
            When there are no rows.

        References
        ----------
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a
        priori probabilities, Neural Computation 14, eq. 2.
        """
        posterior = self.predict_proba(X)
        prior = shifted_prior(posterior, np.exp(self._log_prior()), tolerance, max_iter)
        return self._copy_with(**{self._prior_parameter: prior})

    # -- saving --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model with its statistics to a file that `fastbayes.load` reads.

        Parameters
        ----------
        path
            The file to write, by custom `*.fb`.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists and `force` is not set, or it cannot be written.

        Notes
        -----
        The file holds parameters and statistics: parameters set since the model was fitted take
        effect when it is loaded.
        """
        from fastbayes.models.estimator.store import save

        save(self, path, force=force)

    def digest(self) -> str:
        """Return what tells the fitted model from others: files of predictions hold it.

        Returns
        -------
        str
            The SHA-256, in hexadecimal, of the parameters and statistics that `save` writes. It is
            the same once the model was saved and loaded.

        Raises
        ------
        SchemaError
            When a parameter cannot be written to a file.
        """
        from fastbayes.models.estimator.store import digest

        return digest(self)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        self._check_fitted()
        header, arrays = self.statistics_.state()
        more, more_arrays = self._state_of_rows()
        # A model of a fold, which goes to workers, was asked for no more than to score.
        width = vars(self).get("n_features_in_")
        features = {"named": "feature_names_in_" in vars(self), "width": width}
        return {**header, **features, **more}, {**arrays, **more_arrays}

    @classmethod
    def from_state(
        cls,
        params: Mapping[str, Any],
        header: Mapping[str, Any],
        arrays: Mapping[str, Any],
        source: str,
    ) -> Self:
        """Return the model that `state` described.

        Parameters
        ----------
        params
            Constructor parameters.
        header, arrays
            From `state`.
        source
            Name of the file, for messages.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        FileFormatError, SchemaError, KeyError, TypeError, ValueError
            When header and arrays do not fit together; `fastbayes.load` names the file then.
        """
        model = cls(**filed_parameters(cls, params))
        stats = model._loaded(header, arrays, source)
        names, n_features = model._features_of(stats)
        places = names if "exclude" in cls._declared else None
        width = filed_width(header, places, n_features)
        model._set_features(names if header["named"] else None, width)
        return model._learned(stats)


def filed_width(header: Mapping[str, Any], names: Sequence[str] | None, n_features: int) -> int:
    """Return `n_features_in_` of a model in a file, more than its features where some are left out.

    Those of an array, where features are named by their places, if some can be left out; a file
    that does not say so is of a version that forgot the others. Raises ValueError where a feature
    has no place.
    """
    said = header.get("width")
    width = n_features if said is None else int(said)
    if width == n_features:
        return width
    if header["named"] or not names or any(int(n.removeprefix("x")) >= width for n in names):
        raise ValueError(f"{n_features} features are not of {width} columns")
    return width


def shifted_prior(posterior: Floats, prior: Floats, tolerance: float, max_iter: int) -> Floats:
    """Return the class prior under which the rows are most likely, by expectation maximisation.

    The posteriors, (n_rows, n_classes), are those under `prior`; a class of probability 0 keeps it.
    Steps stop when no probability changes by more than `tolerance`, and with a warning after
    `max_iter`.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a priori
    probabilities, Neural Computation 14, eq. 2.
    """
    check_iteration(tolerance, max_iter, "tolerance")
    if not len(posterior):
        raise DataError("adapt_prior needs rows, and there are none")
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=prior > 0)

    def step(at: Sequence[Floats]) -> tuple[Sequence[Floats], float]:
        evidence = ratio @ at[0]
        after = at[0] * (ratio / evidence[:, None]).mean(axis=0)
        return [after / after.sum()], float(np.log(evidence).sum())

    found = converged(
        squarem(step, [prior / prior.sum()], tolerance),
        tol=tolerance,
        max_iter=max_iter,
        what="adapt_prior",
        measure="the largest change of a probability",
    )
    found.warn()
    return found.point[0]
