"""`count`: one scan of a source into statistics."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.files import written_by
from fastbayes.core.ledger import Ledger, batch_of
from fastbayes.core.numbers import is_whole
from fastbayes.core.picks import Chooser, Picks, Selection, free_name, several, unknown_column
from fastbayes.core.schema import Schema
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.files import Files
from fastbayes.data.filesource import FileSource
from fastbayes.data.folds import (
    FOLDS,
    MANY_ROWS,
    Census,
    Folds,
    FoldsByClass,
    FoldsByColumn,
    FoldsByPlace,
    folds_for,
)
from fastbayes.data.memory import Joined, declared_domains, declared_values, is_name, to_array
from fastbayes.data.segments import OnError, Segment
from fastbayes.data.source import Source, as_given, open_source
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.checkpoint import Checkpoint
from fastbayes.scan.date_spans import date_parts
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.scan.discretization import learned_columns, numeric_cuts
from fastbayes.scan.known_schema import options_of, parts_of
from fastbayes.scan.request import Counter, Progress
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered
from fastbayes.statistics.registry import option_of, wanting, with_companions

logger = logging.getLogger("fastbayes")


def open_labelled(
    source: Any,
    target: Any,
    *,
    sample_weight: Any = None,
    folds: Any = None,
    columns: Picks | Chooser = None,
    exclude: Picks = None,
    null_values: Sequence[str] | None = None,
    types: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    on_error: OnError | None = None,
) -> tuple[Source | Joined, str | None, str | None]:
    """Return (source, name of the class column, name of the weight column).

    Labels and weights may be names of columns or arrays alongside the data. A chooser of `columns`
    chooses these columns, too.
    """
    names = [str(n) for n in (target, sample_weight) if is_name(n)]
    kept = [*names, *([str(folds)] if is_name(folds) else [])]
    opened = open_source(
        source,
        columns=columns if isinstance(columns, Chooser) else Selection.made(columns, exclude, kept),
        null_values=null_values,
        types=types,
        filesystem=filesystem,
        on_error=on_error,
    )
    for name in names:
        if name not in opened.available:
            raise SchemaError(unknown_column(name, opened.available, opened.description))
    return with_labels(opened, target, sample_weight)


def with_labels(
    opened: Source, target: Any, sample_weight: Any
) -> tuple[Source | Joined, str | None, str | None]:
    """Return an open source with the labels and weights joined to it, and the names of both."""
    beside: dict[str, Any] = {}

    def name_of(values: Any, default: str) -> str | None:
        if values is None or is_name(values):
            return None if values is None else str(values)
        own = getattr(values, "name", None)
        wanted = own if isinstance(own, str) and own else default
        name = free_name(wanted, opened.schema.names, beside)
        beside[name] = to_array(name, values)
        return name

    target_name = name_of(target, "class")
    weight_name = name_of(sample_weight, "weight")
    if not beside:
        return opened, target_name, weight_name
    return Joined(opened, beside), target_name, weight_name


def with_folds(
    opened: Source | Joined, folds: Any, taken: Sequence[str | None] = ()
) -> tuple[Source | Joined, Folds | None]:
    """Return an open source with the folds joined to it, and which fold a row belongs to.

    `taken` are the columns of classes and weights.

    Raises
    ------
    ValueError
        When the number of folds is less than 2.
    SchemaError
        When there is no such column, or not one value for each row.
    """
    if isinstance(folds, (int, np.integer)):
        if isinstance(folds, bool) or folds < 2:
            raise ValueError(f"folds={folds!r}: use a whole number >= 2, a column or an array")
        folds = FoldsByPlace(int(folds))
    if folds is None or isinstance(folds, Folds):
        if folds is not None and isinstance(opened, Counter):
            engine.folds_elsewhere(opened, folds)
        return opened, folds
    if is_name(folds):
        if folds in taken:
            raise SchemaError(f"folds: column {folds!r} holds the classes or the weights")
        return opened, FoldsByColumn(opened.schema, str(folds))
    name = free_name("fold", opened.schema.names)
    joined = Joined(opened, {name: to_array(name, folds)})
    return joined, FoldsByColumn(joined.schema, name)


def number_of_folds(folds: Any) -> int | None:
    """Return a number of folds; None of a column, an array, or what `with_folds` refuses."""
    return int(folds) if is_whole(folds) and folds >= 2 else None


def folds_apart(
    source: Source | Joined,
    target: str,
    k: int | None = None,
    seed: int = 0,
    weight: str | None = None,
) -> Folds:
    """Return k folds that models are judged by; by default as many as the number of rows asks for.

    Of few rows each class has its share in every fold; many have it by chance, and are in folds by
    place. Where the source does not know how many they are, rows are read until there are many.
    """
    if isinstance(source, Counter):
        return FoldsByPlace(FOLDS if k is None else k, seed)
    n_rows = source.n_rows
    if n_rows is None:
        blocks = (rows for segment in source.segments(BLOCK_ROWS) for rows in segment.batches())
        n_rows = 0
        while n_rows < MANY_ROWS and (rows := next(blocks, None)) is not None:
            n_rows += rows.num_rows
    if n_rows >= MANY_ROWS:
        return FoldsByPlace(folds_for(n_rows) if k is None else k, seed)
    return FoldsByClass.dealt(source, target, k, seed, weight)


def without_folds(columns: pa.Schema, folds: Folds | None) -> pa.Schema:
    """Return the columns of a source but the one that tells the folds."""
    if folds is None or folds.column is None:
        return columns
    return columns.remove(columns.get_field_index(folds.column))


def declared(source: Any, opened: Source | Joined, *others: str | None) -> dict[str, list[Any]]:
    """Return the domains that a data frame's own types declare, by column but for `others`."""
    return declared_domains(source, set(opened.schema.names) - {*others})


class Opened(NamedTuple):
    """Rows to be learned from.

    source    the rows, with labels, weights and folds joined to them
    target    name of the class column
    weight    name of the weight column
    folds     which fold a row belongs to, where that was asked for
    learning  gives an encoder of the features, as `Encoder.learning` does; takes `cuts`
    """

    source: Source | Joined
    target: str | None
    weight: str | None
    folds: Folds | None
    learning: Callable[..., Encoder]


def opened_to_learn(
    source: Any,
    target: Any,
    *,
    folds: Any = None,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Picks = None,
    missing: str = "marginalize",
    columns: Picks | Chooser = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    on_error: OnError | None = None,
    as_parts: bool = True,
) -> Opened:
    """Open rows to be learned from; parameters as in `count`, and `on_error` of `open_source`.

    Where dates and times are taken `as_parts`, rows may be scanned for their span.
    """
    categorical = several(categorical)
    opened, target_name, weight_name = open_labelled(
        source,
        target,
        sample_weight=sample_weight,
        folds=folds,
        columns=columns,
        exclude=exclude,
        null_values=null_values,
        types=as_given(categorical, domains),
        filesystem=filesystem,
        on_error=on_error,
    )
    opened, apart = with_folds(opened, folds, (target_name, weight_name))
    classes = declared_values(target)
    fields = without_folds(opened.schema, apart)
    features = [name for name in fields.names if name not in (target_name, weight_name)]
    how: dict[str, Any] = {"threads": threads, "on_error": "stop" if on_error is None else "skip"}
    parts = date_parts(opened, features, dates, **how) if as_parts else {}
    learning = partial(
        Encoder.learning,
        fields,
        target_name,
        weight=weight_name,
        domains={
            **declared(source, opened, weight_name, apart.column if apart else None, *parts),
            **({} if classes is None or target_name is None else {target_name: classes}),
            **(domains or {}),
        },
        categorical=categorical,
        missing=missing,
        null_values=null_values or (),
        parts=parts,
    )
    return Opened(opened, target_name, weight_name, apart, learning)


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
        default.
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
        Worker threads, all processors by default; they never change a bit of the result.
    memory_limit
        Bytes that the call may add to the process: counts, what is read and decoded at a time,
        what waits for other threads. With less, fewer threads read less at a time, or some columns
        after others; no result changes. By default counts of pairs and the like may take half of
        the machine's memory, and reading 1 GiB, which very wide blocks exceed.
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
        Statistics whose columns, declared values, cut points and treatment of missing values to
        take, so that what is counted adds to them and to all that were counted so. Options that
        say the same may be given again.
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
    kinds = DensitySpec(numeric)
    seconds = checkpoint_seconds
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
        raise ValueError(f"checkpoint_seconds={seconds!r}: use a number >= 0")
    for name, asked in (("pairs", pairs), ("triples", triples), ("moments", moments)):
        if not isinstance(asked, (bool, np.bool_)):
            raise ValueError(f"{name}={asked!r}: use True or False")
    if on_error not in ("stop", "skip"):
        raise ValueError(
            f"on_error={on_error!r}: use 'stop' or 'skip'; Files(..., on_error='skip-rows') leaves "
            "out single rows of text"
        )
    if batch is not None and not (isinstance(batch, str) and batch):
        raise ValueError(f"batch={batch!r}: give the rows a name, or None")
    if update is not None and not isinstance(update, (bool, Statistics)):
        raise ValueError(f"update={update!r}: use statistics, or True where there are none yet")
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
    if update and (schema is not None or folds is not None or checkpoint is not None):
        raise ValueError("`update` goes without `schema`, `folds` and `checkpoint`")
    if isinstance(update, Statistics):
        refuse(
            bool(update.folds),
            "the statistics to update hold folds, of which new rows would have none: count all "
            "files again with folds",
            SchemaError,
        )
        refuse(
            update.weighted and sample_weight is None,
            "the statistics to update hold weights of rows, and new rows would weigh 1: name the "
            "column of their weights (sample_weight)",
            SchemaError,
        )
        schema = update
    if schema is not None:
        set_apart = [str(name) for name in (target, sample_weight, folds) if is_name(name)]
        as_before = options_of(schema.schema, target, as_before, set_apart)
        if as_before["discretize"] and numeric == "gaussian":
            kinds = DensitySpec(as_before["discretize"])
    discretize = as_before.pop("discretize")
    if isinstance(source, Files) and source.on_error != "stop":
        on_error = "skip"
        if source.rejects is not None and checkpoint is not None:
            raise ValueError("a checkpoint keeps no rejected rows: count with one of the two")
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
        **as_before,
    )
    if batch is not None and opened.versions:
        raise DataError(
            f"{opened.description}: files are recognised without a name; leave batch out"
        )
    encoder = learning()
    groups = None if families is None else list(families)
    joint = bool(cells) if cells is None or isinstance(cells, bool) else several(cells, "cells")
    named = {"values": True, "pairs": pairs, "triples": triples, "moments": moments}
    named |= {"scatter": scatter, "cell_scatter": cell_scatter, "sketches": kinds.sketched}
    named |= {"families": groups is not None, "cells": joint is not False}
    names = with_companions(
        named | dict.fromkeys(map(str, several(statistics, "statistics")), True)
    )
    counted = Ledger()
    if isinstance(update, Statistics):
        names, counted = _of_update(update, names), update.ledger
        if batch is not None and counted.of(batch_of(batch).digest) is not None:
            return update
    if update and batch is None and (isinstance(opened, FileSource) or opened.n_rows != 0):
        if not isinstance(opened, FileSource):
            raise DataError(
                f"{opened.description}: an update tells new rows by files, or by a name; pass "
                "paths, or name the rows (batch)"
            )
        new = opened.without(counted)
        if new is None and isinstance(update, Statistics):
            return update
        opened = new or opened
    to_cut: tuple[Encoder, Any] | None = kinds.to_cut(encoder, discretize)
    if wanting(names, "bins"):
        to_cut = encoder, discretize
        numbers = any(book is None for _, book in encoder.features)
        as_they_are = wanting(names, "numbers")
        if kinds.sketched or (numbers and as_they_are):
            option = f"numeric={numeric!r}" if kinds.sketched else option_of(as_they_are[-1])
            raise ValueError(
                f"{option} wants numeric columns as they are, of which pairs, triples and "
                "families make bins: count once for either"
            )
    if to_cut is not None:
        if not opened.of_whole and (to_learn := learned_columns(opened, *to_cut)):
            raise SchemaError(
                f"{opened.description}: the cut points of column {to_learn[0]!r} would be learned "
                "from this part, and other parts would have others; take them from statistics "
                "that have them (schema)"
            )
        # A scan for cut points would be in vain if there were no room for the counts.
        known = [n for n in names if n not in ("families", "cells", "cell_scatter")]
        engine.foreseen(opened, encoder, known, threads, memory_limit)
    how: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    how |= {"on_error": on_error, "progress": progress}
    keeper = None
    if checkpoint is not None and apart is not None:
        raise ValueError("a checkpoint keeps no folds: count with one of the two")
    if checkpoint is not None:
        if not opened.versions:
            raise SchemaError(
                f"{opened.description}: a checkpoint needs files, whose changes show; pass paths"
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
        books = [feature.name for feature, book in encoder.features if book is not None]
        options: dict[str, dict[str, Any]] = {}
        if groups is not None:
            options["families"] = {"families": numbered(groups, books)}
        if isinstance(joint, list):
            options["cells"] = options["cell_scatter"] = {"columns": _numbers(joint, books)}
        wanted = {name: options.get(name, {}) for name in names}
        if isinstance(update, Statistics):
            wanted = parts_of(update)
        kept = None
        if keeper is not None:
            kept = keeper.counts((*job, (*names, groups, joint), _identity(encoder.schema())))
        stats = engine.scan(
            opened,
            encoder,
            wanted,
            **how,
            checkpoint=kept,
            folds=apart,
            classless=batch is not None,
        )
    stats = replace(stats, provenance=(*stats.provenance, *left_out))
    if batch is not None:
        stats = replace(stats, ledger=Ledger([batch_of(batch)]))
    return update + stats if isinstance(update, Statistics) else stats


def _of_update(update: Statistics, names: Sequence[str]) -> list[str]:
    """Return the statistics to count, which are those that are held."""
    if not update.ledger:
        raise DataError(
            "the statistics to update do not say which files or batches they were counted from: "
            "their rows were in memory and have no name, or an earlier version wrote them; count "
            "anew"
        )
    usual = {"values", "moments"}
    if lacking := [name for name in names if name not in usual | {*update.parts}]:
        raise SchemaError(
            f"the statistics to update hold no {lacking[0]}; count all files again with "
            f"{option_of(lacking[0])}"
        )
    return list(update.parts)


def _numbers(names: Iterable[str | int], books: Sequence[str]) -> list[int]:
    if unknown := [name for name in names if name not in books]:
        raise SchemaError(
            f"cells: there is no categorical column {unknown[0]!r}; there are {books}"
        )
    return sorted({books.index(str(name)) for name in names})


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


def census_of(opened: Opened, threads: int | None) -> Census:
    """Return which rows have a class and a weight above 0, from one scan of these columns."""
    full = opened.learning()
    encoder = Encoder([], full.target, template=full.template, weight=full.weight)
    encoder.expect(opened.source.n_rows)

    def count(segment: Segment) -> tuple[int, int, float]:
        done, kept, heaviest = 0, 0, 0.0
        for rows, encoded in row_blocks.encoded_blocks(segment, encoder):
            done += rows.num_rows
            kept += encoded.batch.n_rows
            weight = encoded.batch.weight
            heaviest = max(heaviest, 1.0 if weight is None else float(weight.max(initial=0.0)))
        return done, kept, heaviest

    rows = opened.source.only([name for name in (opened.target, opened.weight) if name is not None])
    found = [*in_order(count, rows.segments(BLOCK_ROWS), resolved_threads(threads))]
    n_rows, kept = np.array([(0, 0), *(one[:2] for one in found)], np.int64).T
    heaviest = max((one[2] for one in found), default=0.0)
    return Census(encoder, np.cumsum(kept), bool((n_rows == kept).all()), heaviest)
