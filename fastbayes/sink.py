"""`predict_to`: predictions streamed into a Parquet, Arrow IPC or CSV file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes import engine
from fastbayes.batch import BLOCK_ROWS
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment
from fastbayes.data.source import open_source
from fastbayes.decisions import decide
from fastbayes.engine import Progress
from fastbayes.errors import SchemaError
from fastbayes.files import atomic

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".ipc": "ipc"}
FORMATS |= {".feather": "ipc", ".csv": "csv"}


@dataclass(frozen=True)
class Written:
    """What `predict_to` did.

    Parameters
    ----------
    rows
        Rows written.
    unseen
        Values that were not seen at fit, by column.
    prior_rows
        Rows impossible under every class, answered from the prior.
    """

    rows: int
    unseen: dict[str, int]
    prior_rows: int


def predict_to(
    model: Any,
    source: Any,
    path: str | os.PathLike[str],
    *,
    proba: bool = False,
    explain: bool = False,
    loss: Any = None,
    reject: float | None = None,
    keys: Iterable[str] | None = None,
    format: str | None = None,
    force: bool = False,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Written:
    """Score a source of any size into a file, in its order and with bounded memory.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`.
    path
        The file to write; it appears when it is complete.
    proba
        Whether to write `proba_<class>` beside `prediction`.
    explain
        Whether to write `because`, the column that speaks most for the prediction against the
        runner-up, and `because_nats`, by how much.
    loss
        Loss matrix as in `decide`: `prediction` is then the decision, with `expected_loss`.
    reject
        Cost of not deciding; such rows have a null prediction.
    keys
        Columns of the source to copy; by default those that the model does not know.
    format
        "parquet", "ipc" or "csv"; told from the suffix of `path` by default.
    force
        Whether to replace a file that is there.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads; they never change a bit of the result.
    progress
        Called with the number of rows done since the last call.

    Returns
    -------
    Written
        Rows, unseen values by column, and rows answered from the prior.

    Raises
    ------
    DataError
        When the source or the target cannot be used; nothing is left half-written.
    """
    model._check_fitted()
    if not hasattr(model, "schema_"):
        raise SchemaError(
            f"predict_to needs a model of named columns; {type(model).__name__} reads bare arrays"
        )
    kind = _format(path, format)
    schema = model.schema_
    opened = open_source(source, filesystem=filesystem)
    copied = _keys(opened.schema.names, schema, keys)
    needed = [n for n in schema.names if n in opened.schema.names]
    wanted = [*dict.fromkeys([*needed, *copied])]
    if wanted != opened.schema.names and opened.rereadable:
        opened = open_source(source, columns=wanted, filesystem=filesystem)
    encoder = Encoder.applying_to(schema, opened.schema, unseen=model.unseen)
    encoder.expect(opened.n_rows)
    scorers = model._scorers()
    names = [f.name for f in schema.categorical]
    k = len(schema.classes)

    def score(segment: Segment) -> tuple[list[pa.RecordBatch], Any, int]:
        prior_rows, unseen, out = 0, np.zeros(len(names), dtype=np.int64), []
        for rows, encoded in engine.encoded_blocks(segment, encoder):
            batch = encoded.batch
            scorer = scorers(batch.cells)
            posterior = np.empty((rows.num_rows, k))
            prior_rows += scorer.posterior(batch.codes, batch.numeric, posterior)
            best = np.empty(rows.num_rows, dtype=np.intp)
            scorer.predict(batch.codes, batch.numeric, best)
            columns = {name: rows.column(name) for name in copied}
            if loss is None and reject is None:
                columns["prediction"] = schema.classes.take(pa.array(best))
            else:
                decided = decide(posterior, model.classes_, loss, reject)
                labels = decided.decision.tolist()
                columns["prediction"] = pa.array(labels, _label_type(schema.classes, labels))
                columns["expected_loss"] = pa.array(decided.expected_loss)
            if proba:
                for c, label in enumerate(schema.classes.to_pylist()):
                    columns[f"proba_{label}"] = pa.array(posterior[:, c])
            if explain:
                columns |= _because(model, rows.select(list(schema.names)), posterior, best)
            out.append(pa.RecordBatch.from_pydict(columns))
            unseen += encoded.unseen
        return out, unseen, prior_rows

    total, prior_rows, unseen = 0, 0, np.zeros(len(names), dtype=np.int64)
    with atomic(path, force=force) as temporary, _writer(kind, temporary) as write:
        workers = engine.resolved_threads(threads)
        for batches, new, impossible in engine.in_order(
            score, opened.segments(BLOCK_ROWS), workers
        ):
            for batch in batches:
                write(batch)
                total += batch.num_rows
                if progress is not None:
                    progress(batch.num_rows)
            unseen += new
            prior_rows += impossible
        if not total:
            empty = pa.RecordBatch.from_pylist([], schema=opened.schema)
            write(_empty(model, empty, copied, proba))
    found = {name: int(n) for name, n in zip(names, unseen, strict=True) if n}
    return Written(total, found, prior_rows)


def _empty(model: Any, rows: pa.RecordBatch, copied: list[str], proba: bool) -> pa.RecordBatch:
    """Return the columns of an empty result."""
    classes = model.schema_.classes
    columns = {name: rows.column(name) for name in copied}
    columns["prediction"] = pa.array([], classes.type)
    if proba:
        columns |= {f"proba_{c}": pa.array([], pa.float64()) for c in classes.to_pylist()}
    return pa.RecordBatch.from_pydict(columns)


def _label_type(classes: pa.Array, labels: list[Any]) -> pa.DataType:
    known = set(classes.to_pylist())
    return classes.type if all(v is None or v in known for v in labels) else pa.string()


def _because(
    model: Any, rows: pa.RecordBatch, posterior: np.ndarray[Any, Any], best: np.ndarray[Any, Any]
) -> dict[str, pa.Array]:
    """Return per row the feature that speaks most for the best class against the second."""
    explained = model.explain(rows).contributions
    index = np.arange(len(best))
    if posterior.shape[1] == 1:
        margin = explained[index, :, best]
    else:
        others = posterior.copy()
        others[index, best] = -1.0
        margin = explained[index, :, best] - explained[index, :, others.argmax(axis=1)]
    margin = np.nan_to_num(margin, nan=0.0)
    top = margin.argmax(axis=1)
    names = pa.array(model.schema_.names, pa.string())
    return {"because": names.take(pa.array(top)), "because_nats": pa.array(margin[index, top])}


def _format(path: str | os.PathLike[str], format: str | None) -> str:
    if format is None:
        format = FORMATS.get(Path(path).suffix.lower())
    if format not in ("parquet", "ipc", "csv"):
        raise SchemaError(
            f"{path}: the suffix names no format to write; use .parquet, .arrow or .csv"
        )
    return format


def _keys(names: list[str], schema: Any, keys: Iterable[str] | None) -> list[str]:
    if keys is None:
        known = {*schema.names, schema.target}
        return [n for n in names if n not in known]
    chosen = list(keys)
    if lacking := [n for n in chosen if n not in names]:
        raise SchemaError(f"there is no column {lacking[0]!r} to copy; the columns are {names}")
    return chosen


@contextmanager
def _writer(kind: str, path: Path) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Give a function that writes record batches; the first one sets the columns' types."""
    writer: Any = None
    schema: pa.Schema | None = None

    def write(batch: pa.RecordBatch) -> None:
        nonlocal writer, schema
        if writer is None or schema is None:
            schema = _plain(batch.schema) if kind == "csv" else batch.schema
            writer = _opened(kind, path, schema)
        writer.write_batch(batch if batch.schema == schema else batch.cast(schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema without dictionaries, which text formats do not have."""
    return pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    )


def _opened(kind: str, path: Path, schema: pa.Schema) -> Any:
    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(path, schema)
    if kind == "ipc":
        return pa.ipc.new_file(path, schema)
    import pyarrow.csv as csv

    return csv.CSVWriter(path, schema)
