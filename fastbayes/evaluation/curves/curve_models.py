"""Models under a learning curve: which learn from statistics, which from rows, and how."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import FastBayesError, SchemaError
from fastbayes.core.schema import Schema
from fastbayes.data.columns import floats
from fastbayes.data.encode import Encoder
from fastbayes.data.memory import TableSource
from fastbayes.data.segments import Source, combine
from fastbayes.evaluation.calibrate.calibration import Calibrated
from fastbayes.evaluation.curves.fit_source import fit_rows
from fastbayes.evaluation.validate.scoring import applying, learns_by_subtraction
from fastbayes.evaluation.validation import Evaluator
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.registry import candidates
from fastbayes.scan.counting import Opened
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.engine import encoded_blocks
from fastbayes.statistics.bundle import Statistics

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Learner:
    """A model of a learning curve.

    name   in the table
    make   returns it unfitted
    way    what it learns from: "counts", of which each size is the sum of the last and an
           increment; "rows" of tables; or "arrays", as estimators of scikit-learn do
    warm   whether it goes on from the coefficients of the size before
    """

    name: str
    make: Callable[[], Any]
    way: str
    warm: bool = False


def learners(
    models: Any, opened: Opened, told: Mapping[str, Any], limits: Mapping[str, Any]
) -> list[Learner]:
    """Return the models that are to learn.

    Parameters
    ----------
    models
        A name, a model, several of these, or {name: either}.
    opened
        The rows.
    told
        Parameters of models that are given by name, where they have them.
    limits
        Parameters of every model that has them: threads and memory, where the caller says so.

    Raises
    ------
    ValueError
        When a model is unknown or stands twice, or has no probabilities.
    """
    if isinstance(models, (str, bytes)) or hasattr(models, "fit"):
        models = [models]
    pairs = models.items() if isinstance(models, Mapping) else [(None, m) for m in models]
    found: dict[str, Learner] = {}
    for given, model in pairs:
        name = given
        if isinstance(model, str):
            if model not in (known := candidates()):
                raise ValueError(f"models: {model!r} is not available; there are {list(known)}")
            name, model = name or model, _named(model, told)
        if isinstance(model, type) or not hasattr(model, "fit"):
            raise ValueError(f"models: {model!r} is neither a name nor an unfitted model")
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"models: {type(model).__name__} has no predict_proba, which a log-loss takes: "
                "give a model of probabilities"
            )
        ours = isinstance(model, (Classifier, Calibrated))
        name = str(name or (repr(model) if ours else type(model).__name__))
        if name in found:
            raise ValueError(f"models: {name!r} stands twice; give a dict with a name for each")
        found[name] = _learner(name, model, opened, limits)
    if not found:
        raise ValueError("models: name one at least")
    return list(found.values())


def _named(name: str, told: Mapping[str, Any]) -> Any:
    """Return the unfitted model that goes by a name."""
    entry, candidate = candidates()[name]
    model = entry.make(candidate)
    has = model.get_params(deep=False)
    if candidate.bins and "discretize" not in has:
        if not (told["discretize"] == "mdl" or isinstance(told["discretize"], Mapping)):
            raise ValueError(
                f"models: {name!r} is cut by discretize='mdl' or at points of your own, "
                f"not by {told['discretize']!r}"
            )
        model.set_params(numeric=told["discretize"])
    return model.set_params(**_those(model, told))


def _those(model: Any, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some parameters that a model has."""
    has = model.get_params(deep=False)
    return {name: value for name, value in told.items() if name in has}


def _learner(name: str, model: Any, opened: Opened, limits: Mapping[str, Any]) -> Learner:
    if isinstance(model, Calibrated):
        model._check_parameters()
        inner = _learner(name, model.unfitted(), opened, limits)
        params = model.get_params(deep=False)
        return Learner(name, lambda: Calibrated(**{**params, "model": inner.make()}), "rows")
    if not isinstance(model, Classifier):
        return Learner(name, partial(_unfitted, model), "arrays", _wants_warm(model))
    more = _those(model, limits)
    if warm := "warm_start" in model.get_params(deep=False):
        more["warm_start"] = True  # the optimum is the same, and near
    make = partial(type(model), **{**model.get_params(deep=False), **more})
    make()._check_parameters()
    by_counts = hasattr(model, "fit_statistics") and learns_by_subtraction(
        make(), opened.learning()
    )
    return Learner(name, make, "counts" if by_counts else "rows", warm)


def _unfitted(model: Any) -> Any:
    """Return an estimator with the parameters of another, unfitted."""
    if not hasattr(model, "get_params"):
        return copy.deepcopy(model)
    return type(model)(**copy.deepcopy(model.get_params(deep=False)))


def _wants_warm(model: Any) -> bool:
    # A warm forest would keep its old trees: only who asks for it gets it.
    return bool(getattr(model, "warm_start", False))


class SampledRows(NamedTuple):
    """Rows of which models learn, and how they are read.

    opened    all rows
    schema    of all rows: classes and domains
    learning  gives an encoder that learns, with the classes and domains of all rows declared
    """

    opened: Opened
    schema: Schema
    learning: Callable[..., Encoder]

    @classmethod
    def declared(cls, opened: Opened, schema: Schema) -> SampledRows:
        """Return rows whose classes and domains are those of a schema, however few are read."""
        domains = {f.name: f.values for f in schema.categorical if f.cuts is None and not f.void}
        domains[str(opened.target)] = schema.classes
        return cls(opened, schema, partial(opened.learning, domains=domains))

    def cut(self, model: Any) -> Callable[..., Encoder]:
        """Return what gives encoders for a model whose cut points are given, if it has any."""
        if (to_cut := model._to_cut(self.learning())) is None:
            return self.learning
        return partial(self.learning, cuts=numeric_cuts(self.opened.source, *to_cut))


def from_counts(model: Any, stats: Statistics) -> Any:
    """Return a model fitted to statistics that hold what it needs, and may hold more."""
    own = replace(stats, parts={name: stats.parts[name] for name in model._statistics})
    return model.fit_statistics(own)


def from_rows(model: Any, rows: SampledRows, source: Source) -> Any:
    """Return a model fitted to rows, with the classes and domains of all rows."""
    if isinstance(model, Calibrated):
        model._check_parameters()
        inner = from_rows(model.unfitted(), rows, source)
        return model.calibrate(inner, source, str(rows.opened.target), rows.opened.weight)
    return fit_rows(model, source, rows.learning)


class Arrays(NamedTuple):
    """Rows as estimators of scikit-learn take them.

    X       (n_rows, n_features) float64 where all columns are numeric, else a pandas frame
    y       (n_rows,) labels
    codes   (n_rows,) their positions among the classes
    weight  (n_rows,); None where every row weighs 1
    """

    X: Any
    y: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats | None

    @classmethod
    def of(cls, table: pa.Table, rows: SampledRows) -> Arrays:
        """Return the rows of a table, all of which have a class.

        Raises
        ------
        FastBayesError
            When a column is not numeric and pandas is not installed.
        """
        encoder = applying(rows.opened, replace(rows.schema, features=()))
        batches = [
            encoded.batch
            for segment in TableSource(table).segments(BLOCK_ROWS)
            for _, encoded in encoded_blocks(segment, encoder)
        ]
        codes = np.concatenate([np.asarray(b.classes, np.int64) for b in batches])
        weights = [b.weight for b in batches if b.weight is not None]
        X = table.select(rows.schema.names)
        if rows.schema.categorical:
            try:
                X = X.to_pandas()
            except ImportError as error:
                raise FastBayesError(
                    "an estimator of scikit-learn gets categorical columns in a pandas frame: "
                    "install pandas, or give a model of fastbayes"
                ) from error
        else:
            X = np.column_stack([floats(combine(column.chunks)) for column in X.columns])
        labels = rows.schema.class_labels
        return cls(X, labels[codes], codes, np.concatenate(weights) if weights else None)

    def first(self, n: int) -> Arrays:
        """Return the first rows."""
        return Arrays(
            self.X[:n], self.y[:n], self.codes[:n], None if self.weight is None else self.weight[:n]
        )

    def fitted(self, model: Any) -> Any:
        """Return an estimator fitted to the rows."""
        more = {} if self.weight is None else {"sample_weight": self.weight}
        model.fit(self.X, self.y, **more)
        return model

    def scored(self, model: Any, classes: NDArray[Any]) -> Evaluator:
        """Return what an estimator makes of the rows; classes it has not seen have no chance."""
        place = {label: i for i, label in enumerate(classes.tolist())}
        proba = np.zeros((len(self.codes), len(classes)))
        proba[:, [place[label] for label in np.asarray(model.classes_).tolist()]] = (
            model.predict_proba(self.X)
        )
        found = Evaluator(classes, ranks=False)
        found.update(proba, self.codes, self.weight)
        return found


def by_schema(
    learners: Sequence[Learner], rows: SampledRows
) -> Iterator[tuple[Callable[..., Encoder], list[Learner]]]:
    """Yield the models that learn from the same counts, with what gives their encoders."""
    groups: list[tuple[Schema, Callable[..., Encoder], list[Learner]]] = []
    for learner in learners:
        learning = rows.cut(learner.make())
        schema = learning().schema()
        for known, _, members in groups:
            if known == schema:
                members.append(learner)
                break
        else:
            groups.append((schema, learning, [learner]))
    for _, learning, members in groups:
        yield learning, members


def check_suits(learner: Learner, stats: Statistics) -> None:
    """Raise SchemaError where a model wants rows to be read otherwise than all others."""
    if learner.way == "arrays":
        return
    model = learner.make()
    try:
        Classifier._check_suits(model.unfitted() if isinstance(model, Calibrated) else model, stats)
    except SchemaError as error:
        raise SchemaError(
            f"{learner.name}: {error}; all models read the rows alike, as learning_curve is told"
        ) from error
