"""`fit`: a model without a choice; `fit_source`: a given one, of data as `count` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastbayes.core.errors import SchemaError
from fastbayes.core.picks import unknown_column
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Source
from fastbayes.evaluation.calibrate import blend, calibration
from fastbayes.evaluation.calibrate.blend import Blend
from fastbayes.evaluation.calibrate.calibration import Calibrated
from fastbayes.models.discrete.spode import CRITERIA
from fastbayes.models.estimator.base import check_learnable
from fastbayes.models.estimator.inputs import array_width, require_labels
from fastbayes.scan.opening import opened_to_learn
from fastbayes.scan.request import Progress


def fit(
    source: Any,
    target: Any,
    *,
    sample_weight: Any = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> Blend:
    """Learn a classifier without choosing one: a `Blend` of several, weighted by held-out rows.

    Parameters
    ----------
    source
        As in `fastbayes.count`, to be read several times.
    target
        Name of the class column or (n_rows,) labels. Rows without a class are left out.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    null_values, filesystem
        As in `fastbayes.count`.
    progress
        Called with the number of rows done since the last call, in every scan.
    **options
        Parameters of `Blend`, such as `members`, `exclude` and `memory_limit`.

    Returns
    -------
    Blend
        The fitted model; `members_` says what it is made of, `log_loss_` how good it is.

    Raises
    ------
    DataError
        When the data cannot be used, or no member can be fitted to them.
    SchemaError
        When the source can be read only once.
    TypeError
        When an option is no parameter of `Blend`.

    Examples
    --------
    >>> import fastbayes as fb
    >>> sky, play = list("ssrrsrsr") * 9, list("yynnynny") * 9
    >>> model = fb.fit({"sky": sky, "play": play}, "play")
    >>> model.predict({"sky": ["s", "r"]})
    array(['y', 'n'], dtype='<U1')
    """
    model = Blend(**options)
    fit_source(
        *(model, source, target),
        sample_weight=sample_weight,
        null_values=null_values,
        filesystem=filesystem,
        progress=progress,
    )
    return model


def fit_source(
    model: Any,
    source: Any,
    target: Any,
    *,
    sample_weight: Any = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    progress: Progress | None = None,
    again: str | None = None,
) -> None:
    """Fit a model as its `fit` does, to data that are read as `count` reads them.

    The model is a classifier of tables, one that is `Calibrated`, or a `Blend`; `again` says what
    is to read the rows after it, if anything. Raises what `count` and the model's `fit` do.
    """
    model._check_parameters()
    calibrated, model = model, model.unfitted() if isinstance(model, Calibrated) else model
    if calibrated is not model:
        model._check_parameters()
    require_labels(f"This {type(model).__name__} estimator", target)
    if isinstance(model, Blend):
        again = blend.SCANS
    elif calibrated is not model:
        again = calibration.SCANS
    opened = opened_to_learn(
        source,
        target,
        sample_weight=sample_weight,
        domains=model.domains,
        categorical=model.categorical,
        missing=model._counts_missing,
        columns=model.columns,
        exclude=model.exclude,
        dates=model.dates,
        threads=model.threads,
        null_values=null_values,
        filesystem=filesystem,
        again=again,
    )
    if isinstance(model, Blend):
        given = opened.source, str(opened.target), opened.weight
        opened = opened._replace(folds=model.apart(*given))
        model.learn(opened, width=array_width(source), progress=progress)
        return
    rows, where = opened.source, opened.source.description
    features = [feature.name for feature, _ in opened.learning().features]
    for name in _named(model):
        if name not in features:
            raise SchemaError(unknown_column(name, features, where))
    fit_rows(model, rows, opened.learning, progress)
    if calibrated is not model:
        assert opened.target is not None
        calibrated.calibrate(model, rows, opened.target, opened.weight)


def fit_rows(
    model: Any, rows: Source, learning: Callable[..., Encoder], progress: Progress | None = None
) -> Any:
    """Return a classifier of tables, once it is fitted to rows that are open.

    `learning` gives an encoder of them, as `Encoder.learning` does; it takes `cuts`. The model's
    parameters were checked before.
    """
    stats = model._scanned(model._scans(rows, learning, progress=progress))
    check_learnable(stats, rows.description)
    model._learned(stats)
    model._set_features(*model._features_of(stats))
    model._caution()
    return model


def _named(model: Any) -> list[str]:
    """Return the features that a model's parameters name; a misspelled one is an error."""
    parent, weights = getattr(model, "super_parent", None), getattr(model, "weights", None)
    named = [getattr(model, "root", None), None if parent in CRITERIA else parent]
    named += weights if isinstance(weights, Mapping) else ()
    return [name for name in named if name is not None]
