"""Models as files: the class, its parameters and its statistics; never pickle."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes import files
from fastbayes.errors import FileFormatError, SchemaError
from fastbayes.networks.dag import DAG
from fastbayes.networks.network import BayesianNetwork
from fastbayes.statistics.bundle import Statistics

# Class name -> module: what a model file may name.
MODELS = {
    "NaiveBayes": "fastbayes.classifiers.naive_bayes",
    "SPODE": "fastbayes.classifiers.spode",
    "TAN": "fastbayes.classifiers.tan",
    "AODE": "fastbayes.classifiers.aode",
    "A2DE": "fastbayes.classifiers.a2de",
    "KDB": "fastbayes.classifiers.kdb",
    "GaussianBayes": "fastbayes.classifiers.gaussian",
    "NetworkClassifier": "fastbayes.classifiers.network",
    "JointBayes": "fastbayes.classifiers.joint",
    "JointGaussian": "fastbayes.classifiers.joint_gaussian",
    "LogisticRegression": "fastbayes.classifiers.logistic",
    "CategoricalNB": "fastbayes.classifiers.drop_in",
    "MultinomialNB": "fastbayes.classifiers.drop_in",
    "ComplementNB": "fastbayes.classifiers.drop_in",
    "BernoulliNB": "fastbayes.classifiers.drop_in",
    "GaussianNB": "fastbayes.classifiers.drop_in",
    "Calibrated": "fastbayes.calibration",
    "WeightedNaiveBayes": "fastbayes.classifiers.weighted_naive_bayes",
}
# What else a model file may name: no classifiers.
OTHERS = {"BayesianNetwork": "fastbayes.networks.network"}


def save(model: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a fitted model, or statistics, to a file.

    Parameters
    ----------
    model
        A fitted classifier, a `BayesianNetwork`, or `Statistics`.
    path
        The file to write.
    force
        Whether to replace a file that is there.

    Raises
    ------
    SchemaError
        When the model is of a class that has no file format.
    DataError
        When the file exists and `force` is not set, or it cannot be written.
    """
    if isinstance(model, (Statistics, BayesianNetwork)):
        model.save(path, force=force)
        return
    name = type(model).__name__
    if MODELS.get(name) is None:
        raise SchemaError(f"{name} has no file format; there is one for {sorted(MODELS)}")
    header, arrays = model.state()
    params = {key: plain(value) for key, value in model.get_params(deep=False).items()}
    files.write(
        path,
        {"kind": "model", "class": name, "params": params, "state": header},
        arrays,
        force=force,
    )


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model or statistics written by `save`.

    Parameters
    ----------
    path
        The file to read.

    Returns
    -------
    Classifier, BayesianNetwork or Statistics
        What the file holds.

    Raises
    ------
    FileFormatError
        When the file is not one of ours, or is damaged.
    """
    header, arrays = files.read(path)
    if header.get("kind") == "statistics":
        return Statistics.from_state(header, arrays, str(path))
    name = header.get("class")
    known = MODELS | OTHERS
    if header.get("kind") != "model" or not isinstance(name, str) or name not in known:
        raise FileFormatError(
            f"{path}: holds {name or header.get('kind')!r}, which this version does "
            "not know; read it with the version that wrote it"
        )
    cls = _class(name, known)
    try:
        return cls.from_state(header["params"], header["state"], arrays, str(path))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            f"{path}: the parts of the model do not fit together ({error}); write it again"
        ) from error


def made(told: Mapping[str, Any], source: str) -> Any:
    """Return the unfitted model that `plain` told of.

    Parameters
    ----------
    told
        Its class and its parameters.
    source
        Name of the file, for messages.

    Raises
    ------
    FileFormatError
        When its class is not known.
    """
    name = told["class"]
    if name not in MODELS:
        raise FileFormatError(
            f"{source}: holds a model of {name!r}, which this version does not know; read it with "
            "the version that wrote it"
        )
    return _class(name, MODELS)(**told["params"])


def _class(name: str, known: Mapping[str, str]) -> Any:
    return getattr(importlib.import_module(known[name]), name)


def plain(value: Any) -> Any:
    """Return a constructor parameter as JSON holds it: arrays become lists."""
    if isinstance(value, np.generic):  # float64 and str_ pass for Python's own
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value.to_pylist()
    if isinstance(value, DAG):  # of a network a model keeps the graph
        return plain(value.parents)
    if type(value).__name__ in MODELS:  # a model of a model
        params = value.get_params(deep=False)
        return {"class": type(value).__name__, "params": plain(params)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise SchemaError(f"a parameter of type {type(value).__name__} cannot be written to a file")
