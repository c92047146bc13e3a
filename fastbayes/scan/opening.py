"""Rows opened to be learned from: which columns are classes, weights, folds and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import SchemaError
from fastbayes.core.numbers import is_whole
from fastbayes.core.picks import (
    AllButIndex,
    Chooser,
    Picks,
    Selection,
    free_name,
    named_in,
    several,
    unknown_column,
)
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.folds import (
    FEW_ROWS,
    FOLDS,
    MANY_ROWS,
    ByRows,
    Census,
    Folds,
    FoldsByClass,
    FoldsByColumn,
    FoldsByPlace,
)
from fastbayes.data.memory import Joined, declared_domains, declared_values, is_name, to_array
from fastbayes.data.segments import OnError, Segment, check_rereadable
from fastbayes.data.source import Source, as_given, check_index, open_source
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.date_spans import date_parts
from fastbayes.scan.request import Counter


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
    named: Sequence[str] = (),
) -> tuple[Source | Joined, str | None, str | None]:
    """Return (source, name of the class column, name of the weight column).

    Labels and weights may be names of columns or arrays alongside the data. A chooser of `columns`
    chooses these columns, too. The index of a pandas frame is read where it is one of these, is
    `named`, or is in `columns`.
    """
    names = [str(n) for n in (target, sample_weight) if is_name(n)]
    kept = [*names, *([str(folds)] if is_name(folds) else [])]
    if not isinstance(columns, Chooser):
        made = Selection.made(columns, exclude, kept, named)
        columns = AllButIndex((*kept, *named)) if made is None else made
    opened = open_source(
        source,
        columns=columns,
        null_values=null_values,
        types=types,
        filesystem=filesystem,
        on_error=on_error,
    )
    for name in names:
        if name not in opened.available:
            there = opened.available, opened.description, opened.index_columns
            raise SchemaError(unknown_column(name, *there))
    check_index(opened, named)
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
    few: ByRows = FEW_ROWS,
) -> Folds:
    """Return k folds that models are judged by; by default as many as the number of rows asks for.

    `few` are the numbers of folds of few rows.

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
        return FoldsByPlace(FOLDS if k is None else k, seed)
    return FoldsByClass.dealt(source, target, k, seed, weight, few)


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
    types: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    on_error: OnError | None = None,
    as_parts: bool = True,
    named: Sequence[str] = (),
    again: str | None = None,
) -> Opened:
    """Open rows to be learned from; parameters as in `count`, `types`, `on_error` of `open_source`.

    `types` are by default those that `categorical` and `domains` say; `named` are columns of which
    more is said than in these parameters. Where dates and times are taken `as_parts`, rows may be
    scanned for their span. `again` says what is to read the rows after it, if anything: those that
    can be read only once are an error then.
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
        types=as_given(categorical, domains) if types is None else types,
        filesystem=filesystem,
        on_error=on_error,
        named=[*named_in(categorical, domains, dates), *named],
    )
    if again is not None:  # before what could be mended, and would be for nothing
        check_rereadable(opened, again)
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
