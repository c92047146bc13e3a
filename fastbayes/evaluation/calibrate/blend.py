"""`Blend`: a classifier that combines several models by their posteriors of held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.domains import declared
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.picks import Picks
from fastbayes.core.schema import Schema
from fastbayes.core.text_tables import ShortRepr
from fastbayes.data.dates import with_parts
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import FEW_OF_BLEND, Folds
from fastbayes.data.segments import check_rereadable, read_only_once
from fastbayes.evaluation.calibrate.held_out_members import held_out_members
from fastbayes.evaluation.calibrate.pools import MOST_HELD, HeldPosteriors, Pools, cross_fitted
from fastbayes.evaluation.validate.comparison import ComparisonRunner, reading_by
from fastbayes.evaluation.validate.member_rows import MemberRows
from fastbayes.models.estimator.base import Classifier, TableRows
from fastbayes.models.estimator.explanation import LEAST_NATS, Explanation
from fastbayes.models.estimator.inputs import open_features, open_training
from fastbayes.models.estimator.log_space import Floats, row_argmax
from fastbayes.models.estimator.model import filed_width
from fastbayes.models.estimator.parameters import (
    DISCRETIZE,
    discretize_from_json,
    fitted,
    parameter,
    whole,
)
from fastbayes.models.estimator.store import jsonable, made
from fastbayes.models.estimator.unavailable import unavailable
from fastbayes.scan.date_spans import date_parts
from fastbayes.scan.opening import Opened, folds_apart, with_folds
from fastbayes.scan.packed_rows import in_memory, rereadable
from fastbayes.scan.request import Progress
from fastbayes.statistics.bundle import Statistics

# Why rows are read more than once.
SCANS = "Blend fits its members and then scores the rows"
# Parameters of all members that say how the rows are read.
READING = ("domains", "categorical", "columns", "exclude", "dates")
# Parameters that are those of all classifiers of tables.
_OF_TABLES: Any = Classifier._declared


@dataclass(frozen=True, eq=False, repr=False)
class Member(ShortRepr):
    """A model that a blend combines.

    Attributes
    ----------
    model
        The fitted classifier.
    weight
        Its weight in the linear pool; those of all members sum to 1.
    coefficient
        What its log posteriors are multiplied by in the log-linear pool.
    log_loss
        Its mean log-loss on held-out rows, in nats.
    """

    model: Any
    weight: float
    coefficient: float
    log_loss: float

    def __str__(self) -> str:
        return (
            f"{self.model!r}: weight {self.weight:.3f}, coefficient {self.coefficient:.3f}, "
            f"log-loss {self.log_loss:.4f} held out"
        )


class BlendScorer:
    """Posteriors and predictions of a blend; immutable, thread-safe."""

    def __init__(
        self, members: Sequence[tuple[MemberRows, Any]], pools: Pools, n_classes: int
    ) -> None:
        self._members, self._pools, self._n_classes = members, pools, n_classes

    def posterior(self, codes: Any, numeric: Any, out: Floats) -> int:
        """Write P(c | x), (n_rows, n_classes); return 0: no row takes the prior of the blend."""
        self._pools(self._posteriors(codes, numeric, out.shape), out)
        return 0

    def _posteriors(self, codes: Any, numeric: Any, shape: tuple[int, ...]) -> Iterator[Floats]:
        """Yield the posteriors of each member, in an array that the next one overwrites."""
        seen: dict[Any, Any] = {}
        posterior = np.empty(shape)
        for rows, scorer in self._members:
            if rows.key not in seen:
                seen[rows.key] = rows(codes, numeric)
            scorer.posterior(*seen[rows.key], posterior)
            yield posterior

    def predict(self, codes: Any, numeric: Any, out: NDArray[Any]) -> int:
        """Write the most probable class of every row; return 0."""
        posterior = np.empty((len(out), self._n_classes))
        self.posterior(codes, numeric, posterior)
        out[:] = row_argmax(posterior)
        return 0

    def log_joint(self, codes: Any, numeric: Any, out: Floats) -> None:
        """Write ln P(c | x), (n_rows, n_classes): there is no log evidence to add."""
        self.posterior(codes, numeric, out)
        with np.errstate(divide="ignore"):
            np.log(out, out=out)


class Blend(TableRows):
    """A classifier that combines the posteriors of several models, weighted by held-out rows.

    All members are judged on the same rows by the same folds, without anything that was learned
    from the rows that are scored: counts, cut points, trees and coefficients are those of the other
    folds. How the posteriors are combined is learned from these, and the members are fitted to all
    rows.

    Notes
    -----
    With held-out posteriors p_m(c | x) of members m, a linear pool q = sum_m w_m p_m and a
    log-linear one are averaged::

        P(c | x) = (softmax_c(ln q(c | x) / T) + softmax_c(sum_m b_m ln p_m(c | x))) / 2

    The weights w >= 0, which sum to 1, minimise the log-loss of q with a pseudo-row for each
    member, as if that member alone had explained it; the temperature T then that of q, with a
    pseudo-row at T = 1. The coefficients b >= 0 minimise the log-loss of the second pool plus
    15 |b - w|^2. A share of 1e-4 of each p_m is uniform in the second pool. Members below 1 % in
    both pools are left out and the rest weighted anew; of a single one T alone is left.

    Rows are counted once for all members and scored once, and what members learn from rows anew for
    each fold, cut points above all, takes scans of each. Posteriors that weights are learned from
    take 16 MiB at most: of more rows each k-th of a fold and a segment of the source is taken.

    From 131,072 rows on members race: pools are learned from the rows of the first fold by members
    fitted without it, and who is below 1 % in both there is fitted no further, as `dropped_` says.

    `log_loss_` is that of the rows of each fold by weights that were learned from the other folds.
    The log joint is the log posterior: members do not share a measure of rows, so that there is no
    evidence, and no rows are drawn. `explain` adds up what the members' features say, times what
    each member counts, and has in `remainder` what the pools make of it.

    References
    ----------
    van der Laan, Polley, Hubbard (2007), Super learner, Statistical Applications in Genetics and
    Molecular Biology 6. Yao, Vehtari, Simpson, Gelman (2018), Using stacking to average Bayesian
    predictive distributions, Bayesian Analysis 13.

    Examples
    --------
    >>> import fastbayes as fb
    >>> a, b = list("00110011") * 60, list("01010101") * 60
    >>> table = {"a": a, "b": b, "y": ["n" if x == z else "p" for x, z in zip(a, b)]}
    >>> blend = fb.Blend(["naive-bayes", "tan"]).fit(table, "y")
    >>> [*blend.members_]
    ['tan']
    >>> blend.predict({"a": ["0", "0"], "b": ["0", "1"]})
    array(['n', 'p'], dtype='<U1')
    """

    _allow_nan: ClassVar[bool] = True

    members: Any = parameter(
        """
        Names of models as in `compare`, but for "prior", unfitted classifiers of tables, or {name:
        one of these}; by default naive Bayes, TAN, KDB, AODE, TAN and AODE of quantiles, AODE to
        which a missing value is one of its own, models with covariances, logistic regression and
        that of pairs of columns (of bins, with C=10 and tol=0.3: the order of columns, the names of
        classes and how rows are cut into files tell in it, see `compare`), those that the rows
        allow and that take no longer than `compare` lets models take unasked; with more than 256
        columns naive Bayes, of normal densities and of bins, and logistic regression. All read the
        rows alike: `columns`, `exclude`, `categorical`, `domains` and `dates` are for the blend,
        not for a member, whose fitted `model` has them, too.
        """,
        default=None,
        kw_only=False,
    )
    folds: int | None = parameter(
        """
        Number of folds, as in `k_fold`; None: 20 of up to 100 rows, 10 of up to 300 and 5 of more,
        but of up to 20 rows at most 10. `compare` takes 10 of up to 1,000: figures of models need
        more than their weights, and the blend of a board has the folds of that.
        """,
        default=None,
        check=whole(2, besides=(None,)),
    )
    race: bool = parameter(
        """
        Whether a member is dropped once the rows of the first fold show it to have no weight. Where
        weights are learned from a sample of the rows, a race takes another one, whether or not it
        drops a member, so that they differ a little.
        """,
        default=True,
    )
    domains: Mapping[str, Any] | None = _OF_TABLES["domains"]
    categorical: Picks = _OF_TABLES["categorical"]
    columns: Picks = _OF_TABLES["columns"]
    exclude: Picks = _OF_TABLES["exclude"]
    dates: Mapping[str, Any] | None = _OF_TABLES["dates"]
    missing: str = _OF_TABLES["missing"]
    missing_columns: str = _OF_TABLES["missing_columns"]
    discretize: Any = DISCRETIZE
    threads: int | None = _OF_TABLES["threads"]
    memory_limit: int | None = _OF_TABLES["memory_limit"]

    members_: dict[str, Member] = fitted(
        "The members by name, each with `model`, `weight`, `coefficient` and `log_loss`."
    )
    dropped_: dict[str, str] = fitted("Why others are no members, by name.")
    member_log_loss_: dict[str, float] = fitted(
        "Mean log-loss of held-out rows by name, of those too that weigh too little to stay."
    )
    log_loss_: tuple[float, float] = fitted(
        "Mean log-loss of held-out rows by the linear pool as it is, and by the blend."
    )
    n_folds_: int = fitted("Number of folds that the weights were learned from.")
    statistics_: Statistics = fitted("Counts of the values of all rows, and moments of numbers.")
    _pools: Pools = fitted()
    _rows: list[MemberRows] = fitted()

    _has_class = Classifier._has_class
    _counts_missing: Any = property(attrgetter("missing"))

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Fit the members to the data, and learn from held-out rows how to combine them.

        Parameters
        ----------
        X
            As for the members; to be read several times.
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
            When the data cannot be used, or no member can be fitted to them; the message says why
            of each.
        SchemaError
            When the data can be read only once.
        ValueError
            When a member is neither a name nor a classifier of tables.
        """
        self._check_parameters()
        if hasattr(X, "__next__"):
            raise read_only_once(type(X).__name__, SCANS)
        source, target, weight, domains = open_training(self, X, y, sample_weight, reset=True)
        folds = self.apart(source, target, weight)
        features = [name for name in source.schema.names if name not in (target, weight)]
        parts = date_parts(source, features, self.dates, threads=self.threads)
        domains = {**domains, **declared(self.domains)}
        learning = partial(
            Encoder.learning,
            source.schema,
            target,
            parts=parts,
            weight=weight,
            domains={name: values for name, values in domains.items() if name not in parts},
            categorical=self.categorical,
            missing=self._counts_missing,
        )
        width = None if "feature_names_in_" in vars(self) else self.n_features_in_
        return self.learn(Opened(source, target, weight, folds, learning), width=width)

    def apart(self, source: Any, target: str, weight: str | None = None) -> Folds:
        """Return which fold each row of an open source belongs to.

        Parameters
        ----------
        source
            The rows; where it does not know how many they are, some are read.
        target
            Name of the class column.
        weight
            Name of the weight column, if there is one.

        Returns
        -------
        Folds
            Folds by the place of a row; of few rows folds in which each class has its share.

        Raises
        ------
        DataError
            When workers read the rows, which have no places.
        SchemaError
            When the rows can be read only once.
        """
        check_rereadable(source, SCANS)
        folds = folds_apart(source, target, self.folds, weight=weight, few=FEW_OF_BLEND)
        with_folds(source, folds)
        return folds

    def learn(
        self, opened: Opened, *, width: int | None = None, progress: Progress | None = None
    ) -> Self:
        """Learn from rows that are open, with folds `apart`.

        Parameters
        ----------
        opened
            The rows.
        width
            How many columns there are where these have no names, those of an array; some may be
            left out.
        progress
            Called with the number of rows done since the last call, in every scan.

        Returns
        -------
        Self
            The fitted model.
        """
        limits = self.threads, self.memory_limit
        contest = ComparisonRunner(
            *(opened, self.discretize, *limits, progress),
            race=False,
            width=width,
            whole="a blend",
            reading=reading_by(**{option: getattr(self, option) for option in READING}),
        )
        with contest.repeated():
            found = held_out_members(
                contest, self.members, self.missing, MOST_HELD, racing=bool(self.race)
            )
        held = HeldPosteriors.joined(found.folds)
        pools = Pools.learned(held)
        used, losses = pools.used, dict(zip(found.names, held.log_loss().tolist(), strict=True))
        dropped = found.failed | {
            name: f"below 1 % in both pools: its log-loss is {losses[name]:.4g} held out"
            for name, stays in zip(found.names, used.tolist(), strict=True)
            if not stays
        }
        models = dict(zip(found.names, found.models, strict=True))
        models = {name: model for name, model in models.items() if name not in dropped}
        for model in models.values():  # what held for this job is no property of the model
            model.set_params(**dict.fromkeys(contest.limits))
        self.dropped_, self.member_log_loss_ = dropped, losses
        self.n_folds_ = len(found.folds)
        self.log_loss_ = cross_fitted(found.folds, pools)
        return self._made_of(found.stats, models, pools.of_models(used), width)

    def _made_of(
        self, stats: Statistics, models: Mapping[str, Any], pools: Pools, width: int | None
    ) -> Self:
        rows = [MemberRows(stats.schema, model.schema_) for model in models.values()]
        given = zip(
            models.items(), pools.weights.tolist(), pools.coefficients.tolist(), strict=True
        )
        members = {
            name: Member(model, weight, coefficient, self.member_log_loss_[name])
            for (name, model), weight, coefficient in given
        }
        self.statistics_, self.schema_ = stats, stats.schema
        self.members_, self._pools, self._rows = members, pools, rows
        names = stats.schema.columns
        self._set_features(*((names, len(names)) if width is None else (None, width)))
        self.classes_ = stats.schema.class_labels
        return self

    fit_statistics = unavailable(
        "Blend needs rows to hold out, which statistics are not: use fit, or fit_statistics of a "
        "member"
    )
    partial_fit = unavailable(
        "Blend learns its weights from all rows at once: use fit, with a path for rows that do not "
        "fit in memory"
    )
    adapt_prior = unavailable(
        "Blend has the priors of its members: use adapt_prior of a member, as "
        "blend.members_['tan'].model"
    )
    log_evidence = unavailable(
        "Blend combines P(c | x) of members that measure P(x) in different units: there is no "
        "evidence; use log_evidence of a member, as blend.members_['tan'].model"
    )
    table = unavailable(
        "Blend combines models that say different things of a column: use table of a member, as "
        "blend.members_['tan'].model"
    )
    sample = unavailable(
        "Blend combines P(c | x), not P(x): there is nothing to draw rows from; use sample of a "
        "member, as blend.members_['tan'].model"
    )

    # -- what the model says -------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name == "unseen" and "members_" in vars(self):
            # What is an error to a member is one to the blend.
            strict = any(member.model.unseen == "error" for member in self.members_.values())
            return "error" if strict else "ignore"
        return object.__getattribute__(self, name)  # the error of what is not there

    @property
    def n_parameters_(self) -> int:
        """Free parameters of the members and of the pools."""
        self._check_fitted()
        own = sum(array.size for array in self._pools.arrays().values()) - 1
        return own + sum(int(member.model.n_parameters_) for member in self.members_.values())

    def _log_prior(self) -> Floats:
        counts = self.statistics_.values.class_counts
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(counts / counts.sum()))

    def _scorer(self, cells: float) -> BlendScorer:
        scorers = (member.model._scorer(cells) for member in self.members_.values())
        members = [*zip(self._rows, scorers, strict=True)]
        return BlendScorer(members, self._pools, len(self.classes_))

    def _explaining(self) -> list[tuple[float, MemberRows, Any]]:
        """Return how much members count, and those whose features say something by themselves."""
        given = zip(self._pools.shares.tolist(), self._rows, self.members_.values(), strict=True)
        return [
            (share, rows, member.model)
            for share, rows, member in given
            if type(member.model)._contributions is not TableRows._contributions
        ]

    def _explained_prior(self) -> Floats:
        prior = np.zeros(len(self.classes_))
        for share, _, model in self._explaining():
            prior += share * np.maximum(model._explained_prior(), LEAST_NATS)
        return prior

    def _contributions(self, batch: Batch, out: Floats) -> None:
        out[...] = 0.0
        own = np.empty(out.shape)
        for share, rows, model in self._explaining():
            model._contributions(rows.batch(batch), own)
            out += share * np.clip(own, LEAST_NATS, -LEAST_NATS)

    def explain(self, X: Any) -> Explanation:
        """Return what each feature adds to the log posterior of each class.

        Parameters
        ----------
        X
            As in `predict`.

        Returns
        -------
        Explanation
            `contributions` (n_rows, n_features, n_classes) of all members, each times what the
            member counts, `prior` (n_classes,), and `remainder` (n_rows, n_classes), in nats; their
            sum is the log posterior. What a member rules out counts as -708 nats.
        """
        self._check_fitted()
        n_features, k = len(self.schema_.features), len(self.classes_)
        prior, scorers = self._explained_prior(), self._scorers()

        def score(batch: Batch, out: Floats) -> int:
            parts = out.reshape(-1, n_features + 1, k)
            self._contributions(batch, parts[:, :-1])
            log_posterior = np.empty((batch.n_rows, k))
            scorers(batch.cells).log_joint(batch.codes, batch.numeric, log_posterior)
            parts[:, -1] = log_posterior - prior - parts[:, :-1].sum(axis=1)
            return 0

        source = rereadable(open_features(self, X))  # for the values, which are shown, too
        flat, tally = self._scan(source, score, (n_features + 1) * k)
        parts = flat.reshape(-1, n_features + 1, k)
        return Explanation(
            parts[:, :-1],
            prior,
            self._feature_names(),
            self.classes_,
            self._unseen(tally),
            0,
            remainder=parts[:, -1],
            rows=with_parts(in_memory(source), self.schema_),
        )

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        self._check_fitted()
        counted, counts = self.statistics_.state()
        parts = {"counts": counts, "pools": self._pools.arrays()}
        described = []
        for i, (name, member) in enumerate(self.members_.items()):
            header, parts[f"member.{i}"] = member.model.state()
            described.append({"name": name, "model": jsonable(member.model), "state": header})
        header = {
            "counts": counted,
            "named": "feature_names_in_" in vars(self),
            "width": self.n_features_in_,
            "members": described,
            "dropped": self.dropped_,
            "member_log_loss": self.member_log_loss_,
            "log_loss": list(self.log_loss_),
            "n_folds": self.n_folds_,
        }
        return header, named_arrays(parts)

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
            Constructor parameters; members are described by their classes and parameters.
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
        stats = Statistics.from_state(header["counts"], arrays_of(arrays, "counts."), source)
        members = _members(params["members"], source, stats.schema)
        self = cls(**{**params, "members": members})
        self.discretize = discretize_from_json(self.discretize)
        self._check_parameters()
        models = {}
        for i, given in enumerate(header["members"]):
            like = made(given["model"], source)
            if not isinstance(like, Classifier):
                raise ValueError(f"{type(like).__name__} is no member of a blend")
            own = arrays_of(arrays, f"member.{i}.")
            models[str(given["name"])] = like.from_state(
                like.get_params(deep=False), given["state"], own, source
            )
        pools = Pools.of(arrays_of(arrays, "pools."), len(header["members"]))
        self.dropped_ = {str(name): str(why) for name, why in header["dropped"].items()}
        losses = header["member_log_loss"].items()
        self.member_log_loss_ = {str(name): float(loss) for name, loss in losses}
        before, after = header["log_loss"]
        self.log_loss_ = float(before), float(after)
        # A file without it is of a version that had a number of folds as its parameter.
        self.n_folds_ = int(header.get("n_folds", params["folds"]))
        if not len(stats.schema.classes) or not stats.values.class_counts.sum() > 0:
            raise ValueError("there is no class")
        names = stats.schema.columns
        width = filed_width(header, names, len(names))
        return self._made_of(stats, models, pools, None if header["named"] else width)


def _members(given: Any, source: str, schema: Schema) -> Any:
    """Return the parameter `members` as it was before a file described it."""
    if isinstance(given, Mapping):
        if given.keys() == {"class", "params"} and isinstance(given["params"], Mapping):
            model = made(given, source)
            model._name_classes(schema)
            return model
        return {name: _members(one, source, schema) for name, one in given.items()}
    if isinstance(given, list):
        return [_members(one, source, schema) for one in given]
    return given
