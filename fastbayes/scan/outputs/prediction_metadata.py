"""What files of predictions say of the model that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from fastbayes.core.errors import SchemaError
from fastbayes.core.files import DIGEST_KEY, HEADER_KEY, written_by

KEY = HEADER_KEY  # "fastbayes", which a model file has with a digest besides


def metadata_of(model: Any) -> dict[bytes, bytes]:
    """Return what the schema of a Parquet or Arrow file holds of a model: JSON under one key.

    The class and digest of the model, what it was written by, its target and classes, and the
    columns that it reads, by kind. The digest is null of a model that has no file format.
    """
    schema = model.schema_
    labels = schema.classes.to_pylist()
    found = {
        "model": type(model).__name__,
        "digest": _digest(model),
        "written_by": written_by(),
        "target": schema.target,
        "classes": [one if isinstance(one, bool | int | float) else str(one) for one in labels],
        "columns": {feature.name: feature.kind for feature in schema.features},
    }
    return {KEY: json.dumps(found, ensure_ascii=False).encode()}


def _digest(model: Any) -> str | None:
    try:
        return str(model.digest())
    except SchemaError:
        return None


def said_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return what `metadata_of` wrote, or None: files of others may say what they like."""
    held = metadata or {}
    return None if KEY not in held or DIGEST_KEY in held else _mapping(held[KEY])


def _mapping(text: str | bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def said_by_table(table: Any) -> dict[str, Any] | None:
    """Return what the log of a `deltalake.DeltaTable` says of the model that made its version."""
    for commit in table.history(1):
        return _mapping(commit.get(KEY.decode(), ""))
    return None


def said_by_file(path: str) -> dict[str, Any] | None:
    """Return what a file of Parquet or Arrow IPC says of the model that made it, or None."""
    import pyarrow.parquet as pq

    for schema_of in (pq.read_schema, _ipc_schema):
        with suppress(OSError, pa.ArrowException):  # of another format, or not on this machine
            return said_in(schema_of(path).metadata)
    return None


def _ipc_schema(path: str) -> pa.Schema:
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
        return reader.schema
