"""`count`: one scan of a source into statistics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.files import written_by
from fastbayes.core.picks import Picks, named_in, several
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoder
from fastbayes.data.files import Files
from fastbayes.data.memory import is_name
from fastbayes.data.paths import FILES
from fastbayes.scan import engine
from fastbayes.scan.checkpoint import Checkpoint
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.scan.discretization import learned_columns, numeric_cuts
from fastbayes.scan.known_schema import options_of, parts_of
from fastbayes.scan.opening import opened_to_learn
from fastbayes.scan.request import Progress
from fastbayes.scan.updating import Updating
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered
from fastbayes.statistics.registry import option_of, wanting, with_companions

logger = logging.getLogger("fastbayes")


def count(
    source: Any,
    target: Any,
    *,
    pairs: bool = False,
    triples: bool = False,
    moments: bool = True,
    scatter: bool = False,
    families: Iterable[Sequence[str]] | None = None,
    cells: bool | Iterable[str] | None = None,
    cell_scatter: bool = False,
    folds: Any = None,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Picks = None,
    numeric: Any = "gaussian",
    discretize: Any = "mdl",
    missing: str = "marginalize",
    columns: Picks = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    on_error: str = "stop",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float | None = None,
    progress: Progress | None = None,
    statistics: Iterable[str] = (),
    schema: Statistics | None = None,
    update: Statistics | bool | None = None,
    batch: str | None = None,
) -> Statistics:
    """Read the data once into statistics from which every model can be had.

    Parameters
    ----------
    source
        A path, glob, list of paths, directory or URI of Parquet, Arrow IPC, CSV, JSON lines or
        ORC; a table, data frame, array, dataset, reader or iterator of record batches.
    target
        Name of the class column, or (n_rows,) labels alongside data in memory. None counts without
        classes.
    pairs
        Whether to count pairs of values, which SPODE, TAN and AODE need; numeric columns are then
        made discrete.
    triples
        Whether to count triples of values, and pairs with them, which A2DE needs.
    moments
        Whether to take the moments of numeric columns.
    scatter
        Whether to take the scatter matrices of numeric columns, which Gaussians with covariances
        need. Not with pairs or families, for which these columns become bins.
    families
        Tuples of column names, parents first, whose values to count together, as `KDB.families`
        returns them; numeric columns are then made discrete.
    cells
        Whether to count the joint values of all categorical columns, those that occur, as
        JointBayes and JointGaussian need; or the names of some columns.
    cell_scatter
        Whether to take the scatter matrices of numeric columns in each cell of the categorical
        ones, which JointGaussian needs; rows that lack a number it takes from `scatter`. Not where
        numeric columns become bins.
    folds
        Count folds of the rows apart, too (`Statistics.folds`): a number, for folds by the place
        of a row in the source, each k rows in succession falling into k folds in random order,
        those of weight 0 or without a class, too; the name of a column, a fold for each of its
        values, which workers of `engines` count, too; or (n_rows,) values for data in memory.
    sample_weight
        Name of the weight column, or (n_rows,) weights. Weight w counts as w rows, 0 as none.
    domains
        Declared values by column name; smoothing counts them even if they never occur.
    categorical
        Names, patterns or indices of columns to treat as categorical whatever their type.
    numeric
        How the other columns are to be described where no pairs are counted, as in `NaiveBayes`:
        "gaussian" or "student"; "kde", "histogram" or "auto", which need a sketch of the values; or
        "mdl", which cuts them into bins; or {column: one of these, or its cut points}.
    discretize
        How numeric columns become bins, where they do: "mdl" (Fayyad, Irani
        1993), "quantile", "width", ("quantile", n), ("width", n), or {column: any of these or cut
        points}.
        Learned cuts take a scan of their own. Of more than 65,536 rows they fall between ranges of
        values, as many as there may be 16,384 pairs of a range and a class.
    missing
        "marginalize" leaves missing values out; "category" makes them a value of their own.
    columns
        Columns to read besides target and weight, by names, patterns ("id_*") or indices; all by
        default. What was the index of a pandas frame (by the metadata of a table or file, or as
        "__index_level_0__") is read where a name or an index stands for it, here or in another
        option; no pattern but of `exclude` does.
    exclude
        Columns to leave out, given in the same way; no pattern stands for target or weight.
    dates
        {column of dates or times: its parts}: features "when.year", "when.month", "when.weekday" (1
        is Monday), "when.hour" and "when.elapsed" (a number: days or seconds since 1970, seconds of
        a time of day or a duration); or "number" for elapsed time alone. By default those that the
        span of the column says, from one more scan: within a day hour and elapsed; weekday from a
        day on, month from 60 days on, year from two years on, and hour unless all are at midnight.
        Parts are of local time in the time zone of the column.
    null_values
        Strings that mean missing.
    filesystem
        A pyarrow or fsspec file system for paths.
    threads
        Worker threads; by default one for each processor that the process may use, by the quota of
        its container, too. They never change a bit of the result.
    memory_limit
        Bytes that the call may add to the process: counts, what is read and decoded at a time,
        what waits for other threads. With less, fewer threads read less at a time, or some columns
        after others, and rows are read again where counts of each thread turn out not to fit; no
        result changes. By default counts of pairs and the like may take half of the machine's
        memory, or of its container's, and reading 1 GiB, which very wide blocks exceed.
    on_error
        "stop", or "skip" to leave out parts of files that cannot be read, and files whose columns
        conflict with those of the others; `provenance` and the log name them. `Files` has
        "skip-rows", too.
    checkpoint
        Directory that keeps the work done: a stopped count goes on from there, to the same bits,
        and a complete one is not done again. One process at a time may use it.
    checkpoint_seconds
        Least time between two writes of the checkpoint, 20 by default; 0: after every segment.
    progress
        Called with the number of rows done since the last call; rows read twice are done twice.
    statistics
        Names of further statistics to count, of those that are registered.
    schema
        Statistics whose columns, types in text files, declared values, cut points and treatment of
        missing values to take, so that what is counted adds to them and to all that were counted
        so. Options that say the same may be given again. Of a column without values they know at
        most that it is categorical: `numeric` says once more how its numbers are described.
    update
        Statistics of some of the files: those files that are new are counted in the same way and
        added. They are recognised by `Statistics.ledger`: files with the same bytes are copies,
        which count once, in whatever partition they are; a warning names them. True where nothing
        was counted yet, so that copies count once from the beginning. With `batch` it is other rows
        that are added, unless they are in. Where rows have weights, `sample_weight` says what the
        new ones are.
    batch
        A name for rows that are no file, such as "clicks/17" for a batch of a stream. It enters the
        ledger, by which `update` and `merge` know the rows again.

    Returns
    -------
    Statistics
        Counts with sorted domains; of `update`, the statistics with the new files.

    Raises
    ------
    DataError
        When the data cannot be read or hold values that cannot be used; the message names file,
        column, row and remedy. When a file that `update` counted has changed or is gone.
    SchemaError
        When cut points would have to be learned from `engines.part`: other parts have others.
    MemoryLimitError
        When it does not fit, with the remedy: before a row is read, if schema and footers tell;
        as soon as the values met tell, otherwise.

    Notes
    -----
    One scan, unless the memory limit asks for more; memory is bounded by a few blocks of rows and
    the counts themselves. What `memory_limit` bounds is memory of the process itself, files that
    are mapped and data that are in memory already excluded, give or take 64 MiB: for reading small
    jobs, allocators, threads and code that is loaded. Pages are taken to be of usual size, 1 MiB or
    20,000 rows; a writer that makes larger ones takes more. ORC files are read in processes of
    their own, whose stripes count as if they were here.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> stats = fb.count(table, "y", pairs=True)
    >>> stats.pairs.of(0, 1)[:, :, 1]  # rows of class "p" by the values of a and b
    array([[0, 2],
           [2, 0]])
    >>> fb.TAN().fit_statistics(stats).predict({"a": ["0"], "b": ["1"]})
    array(['p'], dtype='<U1')
    """
    kinds, updating = DensitySpec(numeric), Updating(update, batch)
    seconds = checkpoint_seconds
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
        raise ValueError(f"checkpoint_seconds={seconds!r}: use a number >= 0")
    for name, flag in (("pairs", pairs), ("triples", triples), ("moments", moments)):
        if not isinstance(flag, (bool, np.bool_)):
            raise ValueError(f"{name}={flag!r}: use True or False")
    if on_error not in ("stop", "skip"):
        raise ValueError(
            f"on_error={on_error!r}: use 'stop' or 'skip'; Files(..., on_error='skip-rows') leaves "
            "out single rows of text"
        )
    updating.check_options(sample_weight, schema, folds, checkpoint)
    if checkpoint is not None and folds is not None:
        raise ValueError("a checkpoint keeps no folds: count with one of the two")
    if isinstance(source, Files) and source.on_error != "stop":
        on_error = "skip"
        if source.rejects is not None and checkpoint is not None:
            raise ValueError("a checkpoint keeps no rejected rows: count with one of the two")
    as_before = {
        "domains": domains,
        "categorical": categorical,
        "discretize": discretize,
        "missing": missing,
        "columns": columns,
        "exclude": exclude,
        "dates": dates,
        "null_values": null_values,
    }
    known = schema if updating.known is None else updating.known
    if known is not None:
        options = {"sample_weight": sample_weight, "folds": folds}
        columns_apart = {option: str(name) for option, name in options.items() if is_name(name)}
        as_before = options_of(known.schema, target, as_before, columns_apart)
        if as_before["discretize"] and numeric == "gaussian":
            kinds = DensitySpec(as_before["discretize"])
    discretize = as_before.pop("discretize")
    left_out: list[str] = []

    def leave_out(error: DataError) -> None:
        # A scan for cut points comes upon it first, and the scan that counts once more.
        if (text := f"left out: {error}") not in left_out:
            left_out.append(text)
            logger.warning(text)

    opened, _, weight_name, apart, learning = opened_to_learn(
        source,
        target,
        folds=folds,
        sample_weight=sample_weight,
        filesystem=filesystem,
        threads=threads,
        on_error=leave_out if on_error == "skip" else None,
        named=named_in(numeric, discretize),
        **as_before,
    )
    encoder = learning()
    named = {"values": True, "pairs": pairs, "triples": triples, "moments": moments}
    named |= {"scatter": scatter, "cell_scatter": cell_scatter, "sketches": kinds.sketched}
    named |= dict.fromkeys(map(str, several(statistics, "statistics")), True)
    asked = Asked.of(named, families, cells)
    asked = asked._replace(names=updating.names(asked.names))
    if (new := updating.rows(opened)) is None:
        return updating.without_rows(left_out)
    opened = new
    to_cut: tuple[Encoder, Any] | None = kinds.to_cut(encoder, discretize)
    if wanting(asked.names, "bins"):
        _check_bins(encoder, asked.names, f"numeric={numeric!r}" if kinds.sketched else None)
        to_cut = encoder, discretize
    if to_cut is not None:
        if not opened.of_whole and (to_learn := learned_columns(opened, *to_cut)):
            raise SchemaError(
                f"{opened.description}: the cut points of column {to_learn[0]!r} would be learned "
                "from this part, and other parts would have others; take them from statistics "
                "that have them (schema)"
            )
        # A scan for cut points would be in vain if there were no room for the counts.
        unbound = ("families", "cells", "cell_scatter")
        engine.foreseen(opened, encoder, asked.names, threads, memory_limit, unbound)
    how: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    how |= {"on_error": on_error, "progress": progress}
    keeper = None
    if checkpoint is not None:
        if not opened.versions:
            raise SchemaError(
                f"{opened.description}: a checkpoint needs files, whose changes show; {FILES}"
            )
        keeper = Checkpoint(checkpoint, opened.versions, checkpoint_seconds)
    with nullcontext() if keeper is None else keeper.alone():
        job: tuple[Any, ...] = ()
        if keeper is not None:  # only it needs to know, and reads files to tell
            cutting = written_by(), BLOCK_ROWS  # which decide how sources are cut into segments
            job = cutting, opened.schema.to_string(), weight_name, on_error
        if to_cut is not None:
            kept_cuts = None
            if keeper is not None:
                kept_cuts = keeper.cuts((job, _identity(encoder.schema()), repr(to_cut[1])))
            cuts = numeric_cuts(opened, *to_cut, **how, checkpoint=kept_cuts)
            encoder = learning(cuts=cuts)
        kept = None
        if keeper is not None:
            kept = keeper.counts((*job, asked.identity, _identity(encoder.schema())))
        books = [feature.name for feature, book in encoder.features if book is not None]
        stats = engine.scan(
            opened,
            encoder,
            asked.options(books) if updating.known is None else parts_of(updating.known, books),
            **how,
            checkpoint=kept,
            folds=apart,
            classless=updating.may_lack_classes or schema is not None,
        )
    return updating.added(replace(stats, provenance=(*stats.provenance, *left_out)))


class Asked(NamedTuple):
    """What is to be counted.

    names   statistics, in the order of the registry
    groups  families of columns by their names; None without
    cells   columns whose joint values are; True of all that are categorical, False of none
    """

    names: list[str]
    groups: list[Sequence[str]] | None
    cells: bool | list[str | int]

    @classmethod
    def of(
        cls,
        named: Mapping[str, bool],
        families: Iterable[Sequence[str]] | None,
        cells: bool | Iterable[str] | None,
    ) -> Self:
        """Return what options of `count` ask for; `named` says which other statistics."""
        groups = None if families is None else list(families)
        joint = bool(cells) if cells is None or isinstance(cells, bool) else several(cells, "cells")
        of_columns = {"families": groups is not None, "cells": joint is not False}
        return cls(with_companions({**of_columns, **named}), groups, joint)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What tells it from other wishes."""
        return *self.names, self.groups, self.cells

    def options(self, books: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the options of each statistic; `books` are the categorical columns."""
        options: dict[str, dict[str, Any]] = {}
        if self.groups is not None:
            options["families"] = {"families": numbered(self.groups, books)}
        if isinstance(self.cells, list):
            options["cells"] = options["cell_scatter"] = {"columns": _numbers(self.cells, books)}
        return {name: options.get(name, {}) for name in self.names}


def _numbers(names: Iterable[str | int], books: Sequence[str]) -> list[int]:
    if unknown := [name for name in names if name not in books]:
        raise SchemaError(
            f"cells: there is no categorical column {unknown[0]!r}; there are {books}"
        )
    return sorted({books.index(str(name)) for name in names})


def _check_bins(encoder: Encoder, names: Sequence[str], as_they_are: str | None) -> None:
    """Raise ValueError where numeric columns are to be bins, and numbers as well.

    `as_they_are` is an option that wants numbers; of others the `names` of statistics tell.
    """
    if as_they_are is None and any(book is None for _, book in encoder.features):
        as_they_are = next(map(option_of, reversed(wanting(names, "numbers"))), None)
    if as_they_are is not None:
        raise ValueError(
            f"{as_they_are} wants numeric columns as they are, of which pairs, triples and "
            "families make bins: count once for either"
        )


def _identity(schema: Schema) -> tuple[Any, ...]:
    """Return all that a schema says before anything is learned."""
    features = [
        (
            f.name,
            f.kind,
            f.values.to_pylist() if f.declared and f.values is not None else None,
            None if f.cuts is None else f.cuts.tolist(),
            *(() if f.part is None else [f.part.to_json()]),
        )
        for f in schema.features
    ]
    classes = schema.classes.to_pylist() if schema.classes_declared else None
    return schema.target, classes, features, schema.missing, schema.null_values
