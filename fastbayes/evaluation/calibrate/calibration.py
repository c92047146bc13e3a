"""`Calibrated`: a classifier whose posteriors agree with frequencies, learned without a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.iteration import Convergence
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.data.segments import check_rereadable, read_only_once
from fastbayes.evaluation.calibrate.held_out_members import posterior_samples, step_of
from fastbayes.evaluation.calibrate.held_out_posteriors import HeldOut, held_out, held_out_of_arrays
from fastbayes.evaluation.calibrate.pools import MOST_HELD
from fastbayes.evaluation.calibrate.posterior_maps import (
    MAPS,
    CalibrationLosses,
    Isotonic,
    PosteriorRows,
    RowBuffer,
    Scan,
    Temperature,
)
from fastbayes.evaluation.validate.comparison import ComparisonRunner, Runner
from fastbayes.kernels import dispatch
from fastbayes.models.discrete.naive_bayes import NaiveBayes
from fastbayes.models.estimator.base import Classifier, TableRows
from fastbayes.models.estimator.explanation import Explanation
from fastbayes.models.estimator.inputs import open_features, open_training
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import (
    Floats,
    log_sum_exp,
    normalise,
    row_argmax,
    row_max,
    settle,
)
from fastbayes.models.estimator.model import ScoreRows
from fastbayes.models.estimator.parameters import MAX_ITER, fitted, parameter, tolerance, whole
from fastbayes.models.estimator.protocol import fresh
from fastbayes.models.estimator.store import made
from fastbayes.models.estimator.unavailable import unavailable, when_fitted, where_inner
from fastbayes.models.leave_one_out.loo import kind_of
from fastbayes.models.sklearn.array_rows import DropIn
from fastbayes.scan.packed_rows import in_memory
from fastbayes.scan.request import stage

# What a calibrated classifier has from its model.
FROM_MODEL = ("schema_", "statistics_", "unseen", "threads", "columns", "exclude")
# Why rows are read more than once.
SCANS = "Calibrated fits the model and then scores the rows"
# Parts of the rows, each scored by the map of the others.
PARTS = 10
# Of more rows the map of all is taken to score them: one row is next to nothing of it.
MOST_DEALT = 1 << 16
# What the temperature of a winner has to gain on all rows together, in nats: else it is one
# parameter more than pays off on new rows (Akaike 1974).
WORTH = 1.0
# How a temperature is found.
STEPS: dict[str, Any] = {"tol": 1e-8, "max_iter": 200}
# Log joints this close to the best, in units of it, tie: they differ by rounding alone.
EXACT = 8 * 2.0**-53


class CalibratedScorer:
    """Log joints, posteriors and predictions of a calibrated model; immutable, thread-safe.

    `calibration` changes log posteriors in place; `log_prior`, (n_classes,) nats, is not changed: a
    row that no class can have made gets it.
    """

    def __init__(
        self, scorer: Any, calibration: Callable[[Floats], None], log_prior: Floats
    ) -> None:
        self._scorer, self._map, self._log_prior = scorer, calibration, log_prior

    def log_joint(self, *rows_and_out: Any) -> None:
        """Write calibrated log posterior + log evidence of the model, (n_rows, n_classes).

        Given are rows, as the model's scorer takes them, and last where to write.
        """
        out = rows_and_out[-1]
        self._scorer.log_joint(*rows_and_out)
        evidence = log_sum_exp(out)
        possible = np.isfinite(evidence)
        if possible.all():
            self._calibrate(out)
            out += evidence[:, None]
        elif possible.any():
            some = out[possible]
            self._calibrate(some)
            out[possible] = some + evidence[possible, None]

    def posterior(self, *rows_and_out: Any) -> int:
        """Write P(c | x), (n_rows, n_classes); return how many rows took the prior."""
        lost = self.log_posterior(*rows_and_out)
        np.exp(rows_and_out[-1], out=rows_and_out[-1])
        return lost

    def predict(self, *rows_and_out: Any) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        *rows, out = rows_and_out
        posterior = np.empty((len(out), len(self._log_prior)))
        lost = self.log_posterior(*rows, posterior)
        out[:] = row_argmax(posterior)
        return lost

    def log_posterior(self, *rows_and_out: Any) -> int:
        """Write ln P(c | x), (n_rows, n_classes); return how many rows took the prior."""
        out = rows_and_out[-1]
        self._scorer.log_joint(*rows_and_out)
        lost = np.isneginf(row_max(out))
        self._calibrate(out)
        out[lost] = self._log_prior
        return int(lost.sum())

    def _calibrate(self, joint: Floats) -> None:
        """Turn log joints into calibrated log posteriors, in place."""
        nothing = np.zeros(joint.shape[1])
        settle(joint, nothing)
        top = row_max(joint)[:, None]
        np.copyto(joint, top, where=joint >= top - EXACT * np.abs(top))
        normalise(joint, nothing)
        self._map(joint)


def _summed(parts: Sequence[PosteriorRows], summary: Callable[[], Any]) -> Any:
    """Return what `summary` makes, with the rows of all parts."""
    total = summary()
    for part in parts:
        total.update(*part)
    return total


def worthwhile(found: Any, parts: Sequence[PosteriorRows]) -> Any:
    """Return the temperature of some rows, 1 where it gains too little on them."""
    losses = _summed(parts, partial(CalibrationLosses, found))
    return found if losses.before - losses.after > WORTH else Temperature(1.0)


def dealt(rows: PosteriorRows) -> list[PosteriorRows]:
    """Return the rows in parts as large as each other, at random: labels may come in a pattern."""
    part = np.random.default_rng(0).permutation(len(rows.y)) % PARTS
    return [rows.some(part == i) for i in range(min(PARTS, len(rows.y)))]


def cross_fitted(
    parts: Sequence[PosteriorRows], learned: Callable[[Sequence[PosteriorRows]], Any]
) -> tuple[float, float]:
    """Return mean log-losses of the rows before, and after the map that other parts give.

    `learned` returns the map of some parts.
    """
    total = CalibrationLosses(None)
    for part in parts:
        losses = CalibrationLosses(learned([other for other in parts if other is not part]))
        for block in part.blocks():
            losses.update(*block)
        total.merge(losses)
    return total.means()


class Calibrated(TableRows, Iterative):
    """A classifier whose posteriors are mapped so that they agree with frequencies.

    The map is learned from the posteriors of rows by the model without them, so that no rows are
    set aside: the model is fitted to all of them, once.

    Notes
    -----
    A temperature T > 0 minimises the log-loss of these rows plus a term that weighs as one row and
    is least at T = 1, so that T is a number even where all rows are told apart. Rows whose own
    class has a probability below 1e-15 are left out where the others gain more than these lose.
    T is 1 where the loss of probabilities clipped at 1e-15 would be above that of no map. Curves
    take one row more at either end, so that no posterior is 0 or 1. Rows that are impossible under
    every class get the prior, which is not mapped.

    The log joint is the mapped log posterior plus the model's log evidence, which stays, and
    `sample` draws from the model. `explain` tells what its features say divided by the temperature,
    or what they say before the curves, and has in `remainder` what the map makes of it.

    Beside the model's fit it takes a scan that scores each row, and 8 bytes for each row and
    class; of more than 64 MiB, isotonic curves are made of 2^-8 wide bins of log odds in another
    scan, and a temperature takes a scan for each of a few steps of Newton's method. By folds the
    models without them are fitted, too, in the scans that `k_fold` takes.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML. Zadrozny,
    Elkan (2002), Transforming classifier scores into accurate multiclass probability estimates,
    KDD.

    Examples
    --------
    >>> import fastbayes as fb
    >>> sky, play = list("ssrrsrsr") * 9, list("yynnynny") * 9
    >>> table = {"sky": sky, "again": sky, "and again": sky, "play": play}
    >>> new = {"sky": ["s"], "again": ["s"], "and again": ["s"]}
    >>> fb.NaiveBayes().fit(table, "play").predict_proba(new).round(2)
    array([[0.04, 0.96]])
    >>> fb.Calibrated(fb.NaiveBayes()).fit(table, "play").predict_proba(new).round(2)
    array([[0.26, 0.74]])
    """

    model: Any = parameter(
        "The classifier, by default `NaiveBayes()`; it is left as it is, and a copy is fitted.",
        default=None,
        kw_only=False,
    )
    method: str = parameter(
        """
        "temperature": the log posteriors are divided by one number, which changes no order and no
        prediction; "isotonic": the posterior of each class goes through a rising curve, and they
        are made to sum to 1: closer to frequencies where rows are many, and it may change the order
        of more than two classes.
        """,
        default="temperature",
        choices=tuple(MAPS),
    )
    validation: str = parameter(
        """
        Where posteriors of rows not fitted with come from: "k_fold", the model without each fold;
        "leave_one_out", each row taken out of the counts, while what else was learned, as a tree or
        cut points, stays that of all rows (`fixed_`): where it was learned from their classes, the
        probabilities are too sure, and `log_loss_` too good; "auto": leave-one-out where the model
        has it and keeps nothing learned from the classes of all rows (cut points that are given or
        of quantiles are not), else folds; where workers read the rows, leave-one-out with a
        warning.
        Models of arrays, such as MultinomialNB, have folds alone.
        """,
        default="auto",
        choices=("auto", "leave_one_out", "k_fold"),
    )
    folds: int = parameter("Number of folds.", default=10, check=whole(2))
    tol: float = tolerance(
        "The temperature is found where a step of Newton's method changes no more of it than this.",
        STEPS["tol"],
    )
    max_iter: int = replace(MAX_ITER, default=STEPS["max_iter"])

    calibration_: Temperature | Isotonic = fitted("The map: its `temperature`, or its `curves`.")
    validation_: str = fitted('"leave_one_out" or "k_fold", whichever was taken.')
    fixed_: tuple[str, ...] = fitted("What the model has of all rows, those held out included.")
    log_loss_: tuple[float, float] = fitted(
        """
        Mean log-loss of the rows, each scored by the model without it, before and after a map of
        the others: the rows are dealt into ten parts, and those of each go through the map that
        the other nine give. Of more than 65,536 rows, of which each says little, the map of all.
        """
    )
    trace_: Floats = fitted(
        "(n_iter_ + 1,) log-loss of the rows, with the term that weighs as one; of curves empty."
    )
    model_: Any = fitted("The fitted model.")

    # -- parameters ----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters and their values.

        Parameters
        ----------
        deep
            Whether to return those of the model too, as `model__alpha`.

        Returns
        -------
        dict
            Value by parameter name.
        """
        params = super().get_params(deep)
        if deep and hasattr(self.model, "get_params"):
            params |= {f"model__{n}": value for n, value in self.model.get_params(deep).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the model as `model__alpha`.

        Parameters
        ----------
        **params
            New values.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            When a name is not a parameter.
        """
        start = "model__"
        super().set_params(**{n: v for n, v in params.items() if not n.startswith(start)})
        inner = {n.removeprefix(start): v for n, v in params.items() if n.startswith(start)}
        if inner:
            if not hasattr(self.model, "set_params"):
                raise ValueError(
                    f"Invalid parameter {start + next(iter(inner))!r} for estimator Calibrated: "
                    f"model={self.model!r} has no parameters."
                )
            self.model.set_params(**inner)
        return self

    def unfitted(self) -> Any:
        """Return a copy of the model that is to be fitted.

        Returns
        -------
        Classifier
            One with the same parameters.
        """
        like = NaiveBayes() if self.model is None else self.model
        return fresh(like)

    @property
    def _allow_nan(self) -> bool:  # type: ignore[override]
        return bool(self.unfitted()._allow_nan)

    @property
    def _flags_are_numbers(self) -> bool:  # type: ignore[override]
        return bool(self.unfitted()._flags_are_numbers)

    def __sklearn_tags__(self) -> Any:
        return self.unfitted().__sklearn_tags__()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.model is not None and not isinstance(self.model, (Classifier, DropIn)):
            if isinstance(self.model, type):
                raise SchemaError(f"Calibrated takes a model, not a class: {self.model.__name__}()")
            if isinstance(self.model, TableRows):
                raise SchemaError(
                    f"Calibrated takes a model that learns from rows itself, and "
                    f"{type(self.model).__name__} is made of other models, whose posteriors it "
                    "calibrates already: use it as it is"
                )
            raise SchemaError(
                f"Calibrated takes a classifier of this library, as fastbayes.NaiveBayes(), not "
                f"{type(self.model).__name__}; use scikit-learn's CalibratedClassifierCV for others"
            )

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Fit the model to the data, and the map to its posteriors of held-out rows.

        Parameters
        ----------
        X
            As for the model; to be read several times.
        y
            The name of the class column of X, or (n_rows,) labels; rows without one are left out.
        sample_weight
            The name of a weight column of X, or (n_rows,) weights, finite and not negative.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used; the message names file, column, value, row and remedy.
        SchemaError
            When the data can be read only once, or the model is none that can be validated so.
        """
        self._check_parameters()
        model = self.unfitted()
        if self.validation == "leave_one_out":
            kind_of(model)  # else there is no use in fitting it
        if hasattr(X, "__next__"):
            raise read_only_once(type(X).__name__, SCANS)
        model.fit(X, y, sample_weight=sample_weight)
        if isinstance(model, DropIn):
            held = held_out_of_arrays(model, X, y, sample_weight, int(self.folds))
            return self._mapped(model, held)
        opened = open_training(model, X, y, sample_weight, reset=False)
        return self.calibrate(model, opened.source, opened.target, opened.weight)

    def calibrate(self, model: Any, source: Any, target: str, weight: str | None = None) -> Self:
        """Learn the map of a model that has been fitted to these rows.

        Parameters
        ----------
        model
            A fitted classifier of tables, which becomes `model_`.
        source
            An open source of its rows.
        target
            The column of the classes.
        weight
            The column of the weights.

        Returns
        -------
        Self
            The fitted model.
        """
        check_rereadable(source, SCANS)
        how = self.validation, int(self.folds)
        return self._mapped(model, held_out(model, source, target, weight, *how))

    @classmethod
    def _of_winner(
        cls,
        contest: ComparisonRunner,
        runner: Runner,
        by_fold: Sequence[Runner],
        fixed: tuple[str, ...],
    ) -> tuple[Self, float]:
        """Return the winner of a comparison with a temperature, and its log-loss held out.

        The posteriors of a fold, of which the temperature is learned, are those of the model that
        wins by all other folds, `by_fold`: the winner's own look better than those of new rows,
        for it is the winner by them. Where rows were left out one by one there are only these. The
        log-loss is of each fold, or else of each tenth of the rows, by the temperature of the
        others. One that gains no more than a nat on all rows together is left at 1.

        References
        ----------
        Akaike (1974), A new look at the statistical model identification, IEEE Transactions on
        Automatic Control 19.
        """
        like = fresh(runner.model)
        like.set_params(**dict.fromkeys(contest.limits))
        judged = {each.name: each for each in (*by_fold, runner)}
        stage(contest.progress, f"temperature of {runner.name}")
        step = step_of(contest, len(judged), MOST_HELD)
        samples = posterior_samples(contest, [*judged.values()], step, logs=True)
        if by_fold:
            chosen = [samples[each.name][fold] for fold, each in enumerate(by_fold)]
            parts = [sample.rows() for sample in chosen]
        else:
            parts = dealt(samples[runner.name][0].rows())
        parts = [part for part in parts if len(part.y)]
        method = "k_fold" if by_fold else "leave_one_out"
        self = cls(like, validation=method, folds=max(len(by_fold), 2))
        n_classes = len(contest.classes)
        self._learn(n_classes, HeldOut(method, fixed, partial(_summed, parts)))
        self.calibration_ = worthwhile(self.calibration_, parts)
        self.log_loss_ = cross_fitted(
            parts, lambda others: worthwhile(self._map_of(n_classes, others), others)
        )
        return self._wrapped(runner.model), self.log_loss_[1]

    def _mapped(self, model: Any, held: HeldOut) -> Self:
        """Learn the map from rows that are scored by models that had not seen them."""
        n_classes = len(model.classes_)
        kept = self._learn(n_classes, held)
        if not kept.complete:
            self.log_loss_ = held.scan(partial(CalibrationLosses, self.calibration_)).means()
        elif len((rows := kept.rows()).y) > MOST_DEALT:
            self.log_loss_ = cross_fitted([rows], lambda _: self.calibration_)
        else:
            of_others = partial(self._map_of, n_classes)
            self.log_loss_ = cross_fitted(dealt(rows), of_others)
        return self._wrapped(model)

    def _learn(self, n_classes: int, held: HeldOut) -> RowBuffer:
        """Learn the map from all rows; return those that are kept."""
        kept, found, convergence = self._found(n_classes, held.scan)
        vars(self).update(self._went(convergence))
        convergence.warn()
        self.calibration_, self.validation_, self.fixed_ = found, held.method, held.fixed
        return kept

    def _map_of(self, n_classes: int, parts: Sequence[PosteriorRows]) -> Temperature | Isotonic:
        return self._found(n_classes, partial(_summed, parts))[1]

    def _found(
        self, n_classes: int, scan: Scan
    ) -> tuple[RowBuffer, Temperature | Isotonic, Convergence]:
        """Return the rows that are kept, the map that all rows give, and how it was found."""
        kept: RowBuffer = scan(partial(RowBuffer, n_classes))
        how = n_classes, float(self.tol), int(self.max_iter)
        return kept, *MAPS[self.method].learned(kept, scan, *how)

    def _wrapped(self, model: Any) -> Self:
        self.model_ = model
        self._set_features(vars(model).get("feature_names_in_"), model.n_features_in_)
        self.classes_ = model.classes_
        return self

    fit_statistics = unavailable(
        "Calibrated needs rows, which statistics are not: use fit, or fit_statistics of the model"
    )
    partial_fit = unavailable(
        "Calibrated learns its map from all rows at once: use fit, with a path for rows that do "
        "not fit in memory"
    )
    adapt_prior = unavailable(
        "Calibrated has the prior of its model: use Calibrated(...).fit(...).model_.adapt_prior"
    )

    # A model of P(c | x) has neither, and says what has.
    log_evidence = where_inner(TableRows.log_evidence)
    sample = where_inner(TableRows.sample)
    predictor = where_inner(TableRows.predictor)  # models of arrays have none
    # Models that take no negative numbers have none before they are fitted.
    decision_function = when_fitted(TableRows.decision_function)

    # -- what the model says -------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in FROM_MODEL and "model_" in vars(self):
            return getattr(self.model_, name)
        return object.__getattribute__(self, name)  # the error of what is not there

    # What the fitted model does, in its place.
    _has_class: Any = property(attrgetter("model_._has_class"))
    _log_prior: Any = property(attrgetter("model_._log_prior"))
    _class_margin: Any = property(attrgetter("model_._class_margin"))
    _feature_names: Any = property(attrgetter("model_._feature_names"))
    _column_table: Any = property(attrgetter("model_._column_table"))
    _drawn: Any = property(attrgetter("model_._drawn"))
    _target_column: Any = property(attrgetter("model_._target_column"))

    def _explained_prior(self) -> Floats:
        return self.calibration_.explained(self.model_._explained_prior())

    def _contributions(self, *rows_and_out: Any) -> None:
        out = rows_and_out[-1]
        self.model_._contributions(*rows_and_out)
        out[...] = self.calibration_.explained(out)

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None, Any]:
        contributions, *others = self.model_._explained(X)
        return self.calibration_.explained(contributions), *others

    # Not from log joints: the odds drown in the log evidence of a row far from all others.
    def _log_posterior(self, X: Any) -> Floats:
        self._check_fitted()

        def answer(scorer: Any, rows: tuple[Any, ...], out: Floats) -> None:
            dispatch.in_python()
            scorer.log_posterior(*rows, out)

        return self._scored(X, answer, len(self.classes_))

    def _log_odds(self, X: Any) -> Floats:
        return np.diff(self._log_posterior(X))[:, 0]

    def explain(self, X: Any) -> Explanation:
        """Return what each feature adds to the calibrated log joint of each class.

        Parameters
        ----------
        X
            As in `predict`; a sparse matrix is made dense.

        Returns
        -------
        Explanation
            `contributions` (n_rows, n_features, n_classes) and `prior` (n_classes,) of the model,
            divided by the temperature if that is the map, and `remainder` (n_rows, n_classes), in
            nats; their sum is the log joint. After a temperature the remainder is the same for all
            classes of a row; before curves what the model rules out counts as -708 nats.
        """
        self._check_fitted()
        if isinstance(self.model_, TableRows):
            X = in_memory(open_features(self, X))  # read twice, which a stream cannot be
        said, joint = super().explain(X), self.log_joint(X)
        of_map = self.calibration_
        contributions, prior = map(of_map.summands, (said.contributions, said.prior))
        with np.errstate(invalid="ignore"):  # what is impossible before the map and after it
            rest = joint - prior - contributions.sum(axis=1)
        rest = of_map.remainder(rest)
        return replace(said, contributions=contributions, prior=prior, remainder=rest)

    @property
    def n_parameters_(self) -> int:
        """Free parameters of the model and of the map."""
        self._check_fitted()
        arrays = self.calibration_.arrays().values()
        return int(self.model_.n_parameters_) + sum(array.size for array in arrays)

    def _scored(
        self,
        X: Any,
        answer: ScoreRows,
        width: int | None = None,
        labels: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        if isinstance(self.model_, TableRows):
            return super()._scored(X, answer, width, labels)
        prior, change = self._log_prior(), self.calibration_

        def mapped(scorer: Any, rows: tuple[Any, ...], out: NDArray[Any]) -> int | None:
            return answer(CalibratedScorer(scorer, change, prior), rows, out)

        return np.asarray(self.model_._scored(X, mapped, width, labels))

    def _scorer(self, cells: float) -> CalibratedScorer:
        return CalibratedScorer(self.model_._scorer(cells), self.calibration_, self._log_prior())

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        self._check_fitted()
        header, arrays = self.model_.state()
        found = self.calibration_
        options = {
            "model": header,
            "map": found.method,
            "validation": self.validation_,
            "fixed": list(self.fixed_),
            "log_loss": list(self.log_loss_),
            "convergence": self._convergence.state(),
        }
        parts = {"model": arrays, "map": found.arrays()}
        return options, named_arrays(parts)

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
            Constructor parameters; the model is described by its class and parameters.
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
        given = params["model"]
        self = cls(**{**params, "model": None if given is None else made(given, source)})
        self._check_parameters()
        like = self.unfitted()
        own = arrays_of(arrays, "model.")
        model = like.from_state(like.get_params(deep=False), header["model"], own, source)
        if given is not None and isinstance(model, TableRows):
            self.model._name_classes(model.schema_)
        self.calibration_ = MAPS[self.method].of(arrays_of(arrays, "map."))
        k = len(model.classes_)
        self.calibration_(np.full((1, k), -np.log(k)))  # fails if made for other classes
        self.validation_, self.fixed_ = header["validation"], tuple(header["fixed"])
        before, after = header["log_loss"]
        self.log_loss_ = float(before), float(after)
        # A file without it is of a map that was found.
        state = header.get("convergence", Convergence().state())
        vars(self).update(self._went(Convergence.of_state(state)))
        return self._wrapped(model)
