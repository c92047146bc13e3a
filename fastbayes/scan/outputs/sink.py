"""`predict_to`: predictions streamed into files of any format, one or many."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.files import (
    atomic,
    atomic_directory,
    check_apart,
    check_directory,
    check_target,
    telling_full,
)
from fastbayes.core.picks import Picks, several
from fastbayes.core.suggestions import use_one_of
from fastbayes.data.source import copied_of, open_for
from fastbayes.scan.outputs.delta_output import check_table, is_table, write_table
from fastbayes.scan.outputs.format_types import check_types
from fastbayes.scan.outputs.partitioned_files import check_partition_by
from fastbayes.scan.outputs.prediction_blocks import Predicted, Predicting
from fastbayes.scan.outputs.prediction_columns import PredictionColumns
from fastbayes.scan.outputs.prediction_metadata import metadata_of
from fastbayes.scan.outputs.prediction_parts import written_parts
from fastbayes.scan.outputs.row_files import Prepared, format_of
from fastbayes.scan.request import Counter, Progress

logger = logging.getLogger("fastbayes")


@dataclass(frozen=True)
class Written:
    """What `predict_to` did.

    Parameters
    ----------
    rows
        Rows written.
    columns
        Names of the columns written.
    unseen
        Values that were not seen at fit, by column.
    prior_rows
        Rows impossible under every class, answered from the prior.
    """

    rows: int
    columns: tuple[str, ...]
    unseen: dict[str, int]
    prior_rows: int


def predict_to(
    model: Any,
    source: Any,
    path: str | os.PathLike[str] | BinaryIO,
    *,
    proba: bool | str = False,
    explain: bool = False,
    loss: Any = None,
    reject: float | None = None,
    keys: Picks = None,
    format: str | None = None,
    parts: bool | None = None,
    partition_by: str | Sequence[str] = (),
    precision: str = "exact",
    csv_safe: bool = False,
    missing_columns: str | None = None,
    force: bool = False,
    filesystem: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Written:
    """Score a source of any size into files, in its order and with bounded memory.

    Parameters
    ----------
    model
        A fitted model of named columns.
    source
        As in `fastbayes.count`; of files that workers read, each writes the parts of its share.
    path
        The file to write, or the directory for parts; it appears when it is complete. Workers write
        next to it, and need to find that place by the same path: they take directories alone. An
        open binary file gets what is made as it is made, Arrow IPC as a stream.
    proba
        True writes `proba_<class>` for each class besides `prediction`, "predicted" only `proba`,
        the probability of the prediction.
    explain
        Whether to write `because`, the column that speaks most for the most probable class
        against the second, and `because_nats`, by how much.
    loss
        Loss matrix as in `decide`: `prediction` is then the decision, with `expected_loss`.
    reject
        Cost of not deciding; such rows have a null prediction.
    keys
        Columns of the source to copy, by names, patterns ("id_*") or indices; by default those that
        the model does not know.
    format
        "parquet", "ipc", "csv", "jsonl" or "delta"; by default what the suffix of `path` says,
        Parquet of parts. "delta" (extra `deltalake`) is a table in a directory.
    parts
        Whether to write a directory of files `part-00000.parquet`, ..., each by a thread of its
        own, whose names sort in the order of the rows; by default if `path` has no suffix.
    partition_by
        Columns that are copied, or "prediction", whose values name directories of parts, as in
        `day=2026-11-01/part-00000.parquet`; the files lack them. Rows keep their order within each.
    precision
        "exact" writes probabilities as float64, "fast" as float32.
    csv_safe
        Whether text and names of columns in CSV that a spreadsheet would run as a formula (they
        begin with =, +, -, @, a tab or a carriage return) are written after an apostrophe.
    missing_columns
        A column of the model that is not there is an error ("error"), or missing in all rows
        ("marginalize"); by default what the model's parameter of that name says.
    force
        Whether to replace a file that is there, or a directory that holds nothing but parts, but
        never files that are read; a Delta table gets a new version.
    filesystem
        A pyarrow or fsspec file system for the source.
    threads
        Worker threads, those of each worker; they never change a bit of the result.
    progress
        Called with the number of rows written since the last call.

    Returns
    -------
    Written
        Rows, columns, unseen values by column, and rows answered from the prior.

    Raises
    ------
    DataError
        When the source or the target cannot be used; nothing is left half-written.

    Notes
    -----
    Text in `prediction` is dictionary-encoded. The threads prepare the rows of one file, and the
    calling one writes; parts are written by all, about 128 at most where the source knows its
    rows. Parquet stores probabilities without dictionaries, which take ten times as long.

    Files of Parquet and Arrow IPC, and the log of a Delta table, say under the key "fastbayes" what
    made them, as JSON: class and `digest` of the model, version, target, classes and columns.

    JSON lines hold null for NaN and infinities; dates and times are text of ISO 8601, those of a
    time zone in UTC. Partitions are written by the calling thread: about a million rows wait, are
    sorted by partition, and become a row group of each; one file is open at a time. More than
    10,000 partitions are an error. Without rows there are no files. Delta stores what its types
    hold: nanoseconds become microseconds. `deltalake` holds up to 4 MiB of each of its partitions,
    which is about the size of their files. Workers write no Delta tables.
    """
    by = [partition_by] if isinstance(partition_by, str) else [*partition_by]
    kind, parts = check_output(path, format, parts, partition_by=by, force=force)
    schema = schema_of(model, "predict_to")
    picks = several(keys, "keys")
    refuse(len({*picks}) < len(picks), f"keys={picks} names a column twice", SchemaError)
    opened, rest = open_for(
        schema,
        source,
        keys=picks,
        rest=keys is None,
        lenient=takes_absent(model, missing_columns),
        filesystem=filesystem,
    )
    if isinstance(path, str | os.PathLike):
        check_apart(path, opened.local_files())
    if keys is not None:
        log_rest(rest, opened.description)
    copied = rest if keys is None else copied_of(opened, picks)
    opened.copying([name for name in copied if name not in schema.read_from(copied)])
    columns = partial(
        PredictionColumns,
        model,
        [opened.schema.field(name) for name in copied],
        proba=proba,
        explain=explain,
        loss=loss,
        reject=reject,
        precision=precision,
        csv_safe=csv_safe,
    )
    written = columns().schema
    check_types(kind, written)
    check_partition_by(by, written, copied, opened.schema.names)
    refuse(csv_safe and kind != "csv", f"csv_safe is about CSV, and {_name(path)} is {kind}")
    sorts = () if kind == "delta" else tuple(by)
    predicting = Predicting(model, columns, kind, opened.n_rows, metadata_of(model), sorts)
    if isinstance(opened, Counter):
        _check_workers(opened, _name(path), kind, parts=parts)
    if parts and isinstance(path, str | os.PathLike):
        with atomic_directory(path, force=force) as folder:
            total = written_parts(predicting, opened, folder, path, threads, progress)
            opened.check_unchanged()
    else:
        total = predicting.nothing
        rows = Predicted(predicting, opened, threads, parts=False)

        def blocks() -> Iterator[Prepared]:
            """Yield what is written, of rows that are the same to the end."""
            yield from rows.in_order(total, progress)
            opened.check_unchanged()

        if not isinstance(path, str | os.PathLike):
            incomplete = "what it holds is incomplete: free some space, and write it again"
            with (
                telling_full(_name(path), incomplete),
                rows.writing(path, streamed=True) as write,
            ):
                for block in blocks():
                    write(block)
        elif kind == "delta":
            write_table(path, rows.schema, blocks(), by)
        else:
            with atomic(path, force=force) as temporary, rows.writing(temporary) as write:
                for block in blocks():
                    write(block)
    n_rows, prior_rows, *unseen = total.tolist()
    names = [f.name for f in schema.categorical]
    found = {name: n for name, n in zip(names, unseen, strict=True) if n}
    return Written(n_rows, tuple(written.names), found, prior_rows)


def schema_of(model: Any, job: str) -> Any:
    """Return the schema of a fitted model of named columns; `job` is who asks, for messages.

    Raises SchemaError when it reads bare arrays, or is no model.
    """
    if not hasattr(model, "_check_fitted"):
        raise SchemaError(f"{job} needs a fitted model, not {type(model).__name__}")
    model._check_fitted()
    if hasattr(model, "markov_blanket"):
        raise SchemaError(
            f"{job} needs a class, and a network has none: ask its predict_proba(data, node), or "
            "fit a NetworkClassifier to this graph"
        )
    if not hasattr(model, "schema_"):
        raise SchemaError(
            f"{job} needs a model of named columns, such as NaiveBayes; {type(model).__name__} "
            "reads bare arrays: use its predict"
        )
    return model.schema_


def takes_absent(model: Any, missing_columns: str | None = None) -> bool:
    """Return whether a column that is not there at predict is missing in all rows.

    So `missing_columns` says, by default that of the model. Raises SchemaError when the column
    would be a category of its own, ValueError when `missing_columns` is no choice.
    """
    fitted = getattr(model, "model_", model)  # that of a meta-estimator
    if missing_columns is None:
        missing_columns = getattr(fitted, "missing_columns", "error")
    elif missing_columns not in (choices := ("error", "marginalize")):
        raise ValueError(
            f"missing_columns={missing_columns!r}: {use_one_of(missing_columns, choices)}"
        )
    lenient = missing_columns == "marginalize"
    refuse(
        lenient and model.schema_.missing == "category",
        "missing_columns='marginalize' goes with missing='marginalize': a missing value is a "
        "category of the model",
        SchemaError,
    )
    return lenient


def log_rest(names: list[str], description: str) -> None:
    """Log which columns of a source the model does not use."""
    if names:
        more = f" and {len(names) - 5} more columns" if len(names) > 5 else ""
        logger.info("%s: the model does not use %s%s", description, names[:5], more)


def check_output(
    path: str | os.PathLike[str] | BinaryIO,
    format: str | None = None,
    parts: bool | None = None,
    *,
    partition_by: Sequence[str] = (),
    force: bool = False,
) -> tuple[str, bool]:
    """Return the format of predictions, and whether they go into parts; check the target.

    Raises
    ------
    SchemaError
        When there is no such format, or it does not go with the other options.
    DataError
        When the target cannot be made, or is there and may not be replaced.
    """
    if not isinstance(path, str | os.PathLike):
        refuse(not hasattr(path, "write"), f"{path!r} is neither a path nor an open binary file")
        refuse(
            hasattr(path, "encoding"),  # that of text; bytes have none
            f"{path!r} takes text: open a binary file (mode 'wb'), or use io.BytesIO",
        )
        refuse(
            bool(parts or partition_by) or format in (None, "delta"),
            "an open file takes one format: say format='csv', 'jsonl', 'ipc' or 'parquet', without "
            "parts and partition_by",
            SchemaError,
        )
        return format_of("", format), False
    if format == "delta":
        refuse(
            parts is not None,
            "parts goes with files: a Delta table is a directory by itself",
            SchemaError,
        )
        check_table(path, force=force)
        return format, False
    refuse(
        bool(partition_by) and parts is False,
        "partition_by makes a directory of parts: leave out parts=False",
        SchemaError,
    )
    unnamed = not Path(path).suffix
    parts = (unnamed or bool(partition_by)) if parts is None else bool(parts)
    kind = "parquet" if parts and unnamed and format is None else format_of(path, format)
    refuse(
        is_table(path),
        f"{os.fspath(path)} is a Delta table: write a version of it with format='delta', or name "
        "another directory",
    )
    (check_directory if parts else check_target)(path, force=force)
    return kind, parts


def _check_workers(rows: Any, name: str, kind: str, *, parts: bool) -> None:
    """Raise DataError where workers cannot write what is asked for."""
    refuse(
        not rows.ordered,
        f"{rows.description}: its rows have no order in which parts could be written; "
        "`predict` returns the frame with columns appended: write that",
    )
    refuse(
        kind == "delta",
        f"{name}: workers write no Delta table; write parts of Parquet, which "
        "deltalake.convert_to_deltalake makes one, or pass the paths themselves",
    )
    refuse(
        not parts,
        f"{name}: workers write files of their own; name a directory for them "
        "(without a suffix), or pass parts=True",
    )


def _name(path: str | os.PathLike[str] | BinaryIO) -> str:
    """Return what messages call the target."""
    if isinstance(path, str | os.PathLike):
        return os.fspath(path)
    return "standard output" if path is getattr(sys.stdout, "buffer", None) else "the output"
