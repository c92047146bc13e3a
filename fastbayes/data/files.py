"""`Files`: paths with what is to be done about files that differ."""

from __future__ import annotations

from inspect import signature
from typing import Any

from fastbayes.core.errors import DataError
from fastbayes.data.filesource import SCHEMA_MODES, FileSource
from fastbayes.data.source import open_source


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
        text. Anything else in a column, such as text beside numbers, is an error that names both
        files; where files that cannot be read are left out, files of the rarer type are, too. Of
        columns that are named (`columns`) only these count.
    partitions
        Whether directories `key=value` (Hive's) are columns of text: those below the directory that
        is named, and those that lead to it or to a file, one after another. Where a file has a
        column of that name, too, both must say the same; False takes what the file says.

    Raises
    ------
    ValueError
        For a mode that there is not.

    Examples
    --------
    >>> import fastbayes as fb
    >>> fb.Files("flights/*.parquet", schema_mode="strict")
    Files('flights/*.parquet', schema_mode='strict')
    """

    def __init__(self, source: Any, *, schema_mode: str = "union", partitions: bool = True) -> None:
        if schema_mode not in SCHEMA_MODES:
            raise ValueError(f"schema_mode={schema_mode!r}: use one of {', '.join(SCHEMA_MODES)}")
        self.source, self.schema_mode, self.partitions = source, schema_mode, partitions

    def __repr__(self) -> str:
        parameters = signature(Files).parameters
        changed = [
            f", {name}={value!r}"
            for name, value in vars(self).items()
            if value != parameters[name].default and name != "source"
        ]
        return f"Files({self.source!r}{''.join(changed)})"

    def __fastbayes_source__(self, **options: Any) -> FileSource:
        """Open the files with the options of `open_source`."""
        files = open_source(
            self.source, **options, schema_mode=self.schema_mode, partitions=self.partitions
        )
        if not isinstance(files, FileSource):
            raise DataError(f"{files.description}: Files are paths; pass the rows as they are")
        return files
