"""`Files`: paths with what is to be done about files that differ."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from inspect import signature
from typing import Any

from fastbayes.core.errors import DataError
from fastbayes.data.filesource import SCHEMA_MODES, FileSource
from fastbayes.data.rejects import Rejects
from fastbayes.data.source import open_source

ON_ERROR = ("stop", "skip", "skip-rows")

logger = logging.getLogger("fastbayes")


class Files:
    """Files that are read in another way than by default, as a source.

    Whatever takes paths takes this, too: `fit`, `count`, `compare`, `predict`, `evaluate`, networks
    and `engines`.

    Parameters
    ----------
    source
        A path, glob, directory or URI, or a list of paths, as `count` takes them.
    schema_mode
        How files of different columns are read together:

        - "union", the default, also of plain paths: all columns of all files; one that a file
          lacks is null there, which `provenance` and a warning tell.
        - "first": the columns of the first file. Others may have more, which are ignored; it is an
          error if they have less.
        - "strict": the columns of the first file, neither more nor fewer in the others, and of the
          same types. Text in another encoding, and columns without values, are alike.

        In "union" and "first" types are promoted: null to anything, integers to the wider of them
        (signed and unsigned ones to int64), integers and floats to float64, text in any encoding to
        text, dates (their midnight) and timestamps to those of the finer unit. Anything else in a
        column, such as text beside numbers, is an error that names both files; where files that
        cannot be read are left out, files of the rarer type are, too. Of columns that are named
        (`columns`) only these count.
    partitions
        Whether directories `key=value` (Hive's) are columns of text: those below the directory that
        is named, and those that lead to it or to a file, one after another. Where a file has a
        column of that name, too, both must say the same; False takes what the file says.
    on_error
        "stop" at what cannot be used; or "skip" files that cannot be opened or whose columns
        conflict with those of the others (`count` skips row groups that cannot be read, too); or
        "skip-rows": these, and single rows of CSV and JSON lines: of a wrong number of cells, not
        UTF-8, no JSON, text or an infinite number in a column of numbers. Then a column of text
        files is of numbers where all but a share `max_rejected` of its first cells are;
        `categorical` says that it is not.
        What is left out stands in the log and in `provenance`. Not with workers of engines. What
        a store of S3 answers that is not about the file (that it is busy, that keys have expired)
        leaves none out.
    rejects
        File to write rejected rows to, .csv or .jsonl: file, line, reason, text. It is written
        anew; a file that holds anything else is not replaced.
    max_rejected
        Share of rows that "skip-rows" may leave out, of each file or of each 16 MiB of a longer
        one, rounded up to rows; more of them are an error.
    storage_options
        Options of the file system that a URI names: for s3://, gs:// and abfs:// those of pyarrow's
        `S3FileSystem`, `GcsFileSystem` and `AzureFileSystem` (`region`, `endpoint_override`,
        `anonymous`, ...), for memory://, https:// and all others those of fsspec's class (extra
        `fsspec`). Workers of engines get them, too. A store whose first answer does not come within
        8 seconds is an error, unless the options say how long it may take (`request_timeout`,
        `connect_timeout`, `retry_strategy`).

    Attributes
    ----------
    rejected_rows
        How many rows were left out so far.

    Raises
    ------
    ValueError
        For a mode that there is not, or a share that is none.
    DataError
        For a file of rejected rows of another kind.
    RejectLimitError
        When more rows are bad than that, while they are read.
    SystemLimitError
        When the system has no open files or memory left, or rejected rows cannot be written, which
        leaves no file out: `rejects` is removed, since it would not hold all of them.

    Examples
    --------
    >>> import fastbayes as fb
    >>> fb.Files("flights/*.parquet", schema_mode="strict")
    Files('flights/*.parquet', schema_mode='strict')
    """

    def __init__(
        self,
        source: Any,
        *,
        schema_mode: str = "union",
        partitions: bool = True,
        on_error: str = "stop",
        rejects: str | os.PathLike[str] | None = None,
        max_rejected: float = 0.05,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if schema_mode not in SCHEMA_MODES:
            raise ValueError(f"schema_mode={schema_mode!r}: use one of {', '.join(SCHEMA_MODES)}")
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error={on_error!r}: use one of {', '.join(ON_ERROR)}")
        if rejects is not None and on_error != "skip-rows":
            raise ValueError("rejects goes with on_error='skip-rows'")
        if not (isinstance(max_rejected, (int, float)) and 0 <= max_rejected <= 1):
            raise ValueError(f"max_rejected={max_rejected!r}: use a share from 0 to 1")
        self.source, self.schema_mode, self.partitions = source, schema_mode, partitions
        self.on_error, self.rejects, self.max_rejected = on_error, rejects, max_rejected
        self.storage_options = storage_options
        self._rejects = Rejects(rejects, max_rejected) if on_error == "skip-rows" else None
        self._left_out: set[str] = set()

    @property
    def rejected_rows(self) -> int:
        """Number of rows that were left out so far."""
        return 0 if self._rejects is None else self._rejects.total

    def _leave_out(self, error: DataError) -> None:
        if str(error) not in self._left_out:  # in each scan anew
            self._left_out.add(str(error))
            logger.warning("left out: %s", error)

    def __repr__(self) -> str:
        parameters = signature(Files).parameters
        changed = [
            f", {name}={getattr(self, name)!r}"
            for name, parameter in parameters.items()
            if name not in ("source", "storage_options")  # which may hold secrets
            and getattr(self, name) != parameter.default
        ]
        return f"Files({self.source!r}{''.join(changed)})"

    def __fastbayes_source__(self, **options: Any) -> FileSource:
        """Open the files with the options of `open_source`."""
        if self.on_error != "stop" and options.get("on_error") is None:
            options["on_error"] = self._leave_out
        files = open_source(
            self.source,
            **options,
            schema_mode=self.schema_mode,
            partitions=self.partitions,
            rejects=self._rejects,
            storage_options=self.storage_options,
        )
        if not isinstance(files, FileSource):
            raise DataError(f"{files.description}: Files are paths; pass the rows as they are")
        return files
