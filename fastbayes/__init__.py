"""Bayesian classifiers at the speed of reading; the sufficient statistic is a value.

>>> import fastbayes as fb
>>> table = {"sky": ["sun", "sun", "rain"], "play": ["yes", "yes", "no"]}
>>> fb.NaiveBayes().fit(table, "play").predict({"sky": ["rain"]})
array(['no'], dtype='<U3')
"""

from __future__ import annotations

import importlib
from typing import Any

from fastbayes.models.registry import MODELS

# Module -> the public names that it has; the models stand in the registry. Names are imported when
# they are first used (PEP 562), and `__init__.pyi` says the same to type checkers.
PUBLIC = {
    "core.decisions": ("bayes_risk", "conditional_risk", "minimum_risk"),
    "core.errors": (
        "ConvergenceWarning",
        "DataError",
        "FastBayesError",
        "FastBayesWarning",
        "FileFormatError",
        "MemoryLimitError",
        "NotFittedError",
        "RejectLimitError",
        "SchemaError",
        "SystemLimitError",
    ),
    "data.files": ("Files",),
    "evaluation.curves.curve_table": ("Crossover", "LearningCurve", "crossover"),
    "evaluation.curves.fit_source": ("fit",),
    "evaluation.curves.learning_curves": ("learning_curve",),
    "evaluation.curves.sweeps": ("Sweep", "ThresholdSweep", "alpha_sweep", "threshold_sweep"),
    "evaluation.environment": ("show_versions", "warmup"),
    "evaluation.validate.comparison": ("compare",),
    "evaluation.validate.cross_validation": ("evaluate", "k_fold", "leave_one_out"),
    "models.estimator.store": ("load", "save"),
    "networks.network": ("BayesianNetwork",),
    "scan.counting": ("count",),
    "scan.planning": ("Plan", "plan"),
    "scan.outputs.sink": ("predict_to",),
    "statistics.bundle": ("Statistics",),
    "statistics.loss_gradient": ("LossGradient",),
    "statistics.merging": ("merge",),
    "statistics.sql": ("sql_counts",),
}
PACKAGES = ("engines",)
_WHERE = {name: module for module, names in PUBLIC.items() for name in names}

__all__ = [*sorted({*MODELS, *_WHERE, *PACKAGES})]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _WHERE:
        value = getattr(importlib.import_module(f"fastbayes.{_WHERE[name]}"), name)
    elif name in PACKAGES:
        value = importlib.import_module(f"fastbayes.{name}")
    elif name in MODELS:
        value = MODELS[name].load()
    else:
        raise AttributeError(f"module 'fastbayes' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*MODELS, *_WHERE, *PACKAGES})


def _version() -> str:
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("fastbayes"))
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
