"""Models as files: the class, its parameters and its statistics; never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core import files
from fastbayes.core.errors import FileFormatError, SchemaError
from fastbayes.models.estimator.parameters import filed_parameters
from fastbayes.models.registry import MODELS
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.network import BayesianNetwork
from fastbayes.statistics.bundle import Statistics


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
    files.write(path, *_of_kind(model), force=force)


def to_bytes(model: Any) -> bytes:
    """Return a fitted classifier as bytes that travel: those of the file that `save` writes."""
    return files.to_bytes(*_of_kind(model))


def _of_kind(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    name = type(model).__name__
    if name not in MODELS:
        raise SchemaError(f"{name} has no file format; there is one for {sorted(MODELS)}")
    header, arrays = _described(model)
    return {"kind": "model", "class": name, **header}, arrays


def _described(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    header, arrays = model.state()
    return {"params": jsonable(_filed(model)), "state": header}, arrays


def digest(model: Any) -> str:
    """Return the SHA-256 of what the file of a fitted model holds, whatever version writes it."""
    header, arrays = _described(model)
    return files.digest({"class": type(model).__name__, **header}, arrays)


def packed(model: Any) -> tuple[type, bytes]:
    """Return the class of a fitted model and what its file would hold, for `unpacked`.

    That is a small part of what a pickle holds, which has the tables that are made of counts.
    """
    return type(model), files.to_bytes(*_described(model))


def unpacked(cls: Any, data: bytes) -> Any:
    """Return the fitted model that `packed` described."""
    origin = f"{len(data):,} bytes"
    header, arrays = files.from_bytes(data, origin)
    return cls.from_state(header["params"], header["state"], arrays, origin)


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
    return _made_of(*files.read(path), str(path))


def from_bytes(data: bytes) -> Any:
    """Return what `to_bytes`, or the file, was made of; errors as of `load`."""
    origin = f"{len(data):,} bytes"
    return _made_of(*files.from_bytes(data, origin), origin)


def _made_of(header: Mapping[str, Any], arrays: dict[str, Any], origin: str) -> Any:
    if header.get("kind") == "statistics":
        return Statistics.from_state(header, arrays, origin)
    name = header.get("class")
    if header.get("kind") != "model" or name not in (*MODELS, "BayesianNetwork"):
        raise FileFormatError(
            f"{origin}: holds {name or header.get('kind')!r}, which this version does "
            "not know; read it with the version that wrote it"
        )
    cls = BayesianNetwork if name == "BayesianNetwork" else MODELS[name].load()
    try:
        return cls.from_state(header["params"], header["state"], arrays, origin)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            f"{origin}: the parts of the model do not fit together ({error}); write it again"
        ) from error


def made(options: Mapping[str, Any], source: str) -> Any:
    """Return the unfitted model that `jsonable` described; the file is named in messages."""
    if (name := options["class"]) not in MODELS:
        raise FileFormatError(
            f"{source}: holds a model of {name!r}, which this version does not know; read it with "
            "the version that wrote it"
        )
    cls = MODELS[name].load()
    return cls(**filed_parameters(cls, options["params"]))


def _filed(model: Any) -> dict[str, Any]:
    """Return the parameters that a file of the model has."""
    declared = getattr(model, "_declared", {})
    return {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in declared or declared[name].filed or not _same(value, declared[name].default)
    }


def _same(value: Any, default: Any) -> bool:
    """Return whether a file would hold the same of both: NaN equals NaN, 1 is not True."""
    return json.dumps(jsonable(value)) == json.dumps(jsonable(default))


def jsonable(value: Any) -> Any:
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
        return jsonable(value.parents)
    if type(value).__name__ in MODELS:  # a model of a model
        return {"class": type(value).__name__, "params": jsonable(_filed(value))}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    raise SchemaError(f"a parameter of type {type(value).__name__} cannot be written to a file")
