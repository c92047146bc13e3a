"""Rows encoded once, to be counted again and again: in memory, or scanned where they do not fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Schema
from fastbayes.core.warn import warn
from fastbayes.data.apply import as_told
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment, Source
from fastbayes.data.source import open_source
from fastbayes.scan import engine
from fastbayes.scan.counting import declared, open_labelled, several
from fastbayes.scan.deduplicate import distinct
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.statistics.bundle import Statistics

Floats = NDArray[np.float64]
Columns = list[NDArray[np.unsignedinteger]]
# Reads the codes of some rows, by column, their weights, and how many more were incomplete.
Read = Callable[[], tuple[Columns, Floats | None, int]]

logger = logging.getLogger("fastbayes")


@dataclass(frozen=True)
class CompleteRows:
    """Complete rows of categorical columns.

    names     of the nodes, ascending: what is found does not depend on the order of columns
    place     (n,) where each stands among the columns
    states    values of each node
    sizes     (n,) number of values of each node
    total     N, the sum of the weights
    left_out  rows with a missing value, which do not count
    cells     rows x columns, whether compiling pays
    weighted  whether rows have weights, given or the number of rows that are equal
    exact     whether counts are whole numbers
    columns   codes of each node; None where they do not fit in memory
    weight    (n_rows,) of those codes
    scan      gives functions that read the codes and weights of a part of the rows
    schema    of the source
    values    statistics of the source
    source    the rows themselves
    learning  gives an encoder of the source
    """

    names: tuple[str, ...]
    place: NDArray[np.int64]
    states: tuple[tuple[Any, ...], ...]
    sizes: NDArray[np.int64]
    total: float
    left_out: int
    cells: float
    weighted: bool
    exact: bool
    columns: Columns | None
    weight: Floats | None
    scan: Callable[[], Iterator[Read]]
    schema: Schema
    values: Statistics
    source: Any
    learning: Callable[[], Encoder]


def read_rows(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Iterable[str | int] | None = None,
    discretize: Any = None,
    missing: str = "complete",
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
) -> CompleteRows:
    """Read rows for a search.

    Every column is a category. Scores of different families can be compared only if they are of
    the same rows: with missing="complete" rows with a missing value anywhere are left out, with
    "category" a missing value is a value of its own.

    Raises
    ------
    SchemaError
        When a column holds fractions and `discretize` does not say how they become bins.
    DataError
        When no complete row is left.
    """
    if missing not in ("complete", "category"):
        raise ValueError(f"missing={missing!r}: use 'complete' or 'category'")
    picks = several(categorical)
    opened, _, weight = open_labelled(
        source,
        None,
        sample_weight=sample_weight,
        columns=columns,
        null_values=null_values,
        types=as_told(picks, domains),
        filesystem=filesystem,
    )
    if not opened.rereadable:
        # A search reads its rows more than once.
        parts = [block for part in opened.segments(BLOCK_ROWS) for block in part.batches()]
        opened = open_source(pa.Table.from_batches(parts, opened.schema))
    encoder, learning = _encoder(
        *(source, opened, weight, domains, picks, discretize, missing, null_values, threads)
    )
    seen = 0

    def count(rows: int) -> None:
        nonlocal seen
        seen += rows

    stats = engine.scan(
        opened, encoder, {"values": {}}, threads=threads, memory_limit=memory_limit, progress=count
    )
    schema = stats.schema
    if not len(schema.categorical):
        raise SchemaError(f"{opened.description}: there are no columns to learn a network of")
    scan = partial(_scan, opened, schema, weight)
    return _held(stats, scan, opened, learning, seen, threads, memory_limit)


def _encoder(
    source: Any,
    opened: Any,
    weight: str | None,
    domains: Mapping[str, Any] | None,
    picks: list[str | int],
    discretize: Any,
    missing: str,
    null_values: Sequence[str] | None,
    threads: int | None,
) -> tuple[Encoder, Callable[[], Encoder]]:
    """Return an encoder of all columns as categories, and what makes another one."""
    names = [name for name in opened.schema.names if name != weight]
    whole = [
        name
        for name in names
        if not (
            pa.types.is_floating(opened.schema.field(name).type)
            or pa.types.is_decimal(opened.schema.field(name).type)
        )
    ]
    named = {names[pick] if isinstance(pick, (int, np.integer)) else pick for pick in picks}
    learning = partial(
        Encoder.learning,
        opened.schema,
        None,
        weight=weight,
        domains={**declared(source, opened, weight), **(domains or {})},
        missing="category" if missing == "category" else "marginalize",
        null_values=null_values or (),
    )
    # Columns with cut points of their own are bins, whole numbers or not.
    cut = set(discretize) if isinstance(discretize, Mapping) else set()
    forced = [name for name in names if name in named or (name in whole and name not in cut)]
    encoder = learning(categorical=forced)
    numbers = [feature.name for feature, book in encoder.features if book is None]
    if numbers and discretize is None:
        raise SchemaError(
            f"column {numbers[0]!r} holds fractions, and a network is of categories: cut it into "
            "bins with discretize='quantile', 'width' or {column: cut points}, or name it in "
            "`categorical`"
        )
    if not numbers:
        return encoder, partial(learning, categorical=forced)
    cuts = numeric_cuts(opened, encoder, discretize, threads=threads)
    again = partial(learning, categorical=forced, cuts=cuts)
    return again(), again


def _held(
    stats: Statistics,
    scan: Callable[[], Iterator[Read]],
    opened: Any,
    learning: Callable[[], Encoder],
    n_rows: int,
    threads: int | None,
    memory_limit: int | None,
) -> CompleteRows:
    """Return the rows in memory if they fit in a half of the limit."""
    features, place = list(stats.schema.categorical), _place(stats.schema)
    # A missing value, where it is a category, has the code after the others.
    gaps = (stats.values.missing != 0).any(axis=1) & (stats.schema.missing == "category")
    sizes = np.array([feature.size for feature in features], np.int64) + gaps
    features, gaps, sizes = [features[j] for j in place], gaps[place], sizes[place]
    kinds = [np.dtype(f"u{1 if s + 2 <= 1 << 8 else 2 if s + 2 <= 1 << 16 else 4}") for s in sizes]
    limit = engine.default_limit() if memory_limit is None else int(memory_limit)
    needed = n_rows * (sum(kind.itemsize for kind in kinds) + 8 * stats.weighted)
    fits = 2 * needed <= limit
    held = [np.empty(n_rows if fits else 0, kind) for kind in kinds]
    weight = np.empty(n_rows if fits else 0) if stats.weighted else None
    kept, heavy, total, left_out = 0, 0, 0.0, 0
    for some, its, incomplete in engine.in_order(_read, scan(), engine.resolved_threads(threads)):
        n = len(some[0])
        total += n if its is None else float(its.sum())
        heavy += n if its is None else int(np.count_nonzero(its))
        if fits:
            for column, codes in zip(held, some, strict=True):
                column[kept : kept + n] = codes
            if weight is not None:
                weight[kept : kept + n] = its
        kept += n
        left_out += incomplete
    if not total and not left_out:
        why = "every weight is zero" if stats.weighted and n_rows else "there are no rows"
        raise DataError(f"{opened.description}: nothing to score, {why}")
    if not total:
        raise DataError(
            f"{opened.description}: no row is complete, so there is nothing to score; leave out "
            "columns that are mostly missing, or use missing='category'"
        )
    if left_out:
        said = f"{left_out:,} of {n_rows:,} rows have missing values: they are left out"
        if 2 * left_out <= n_rows:
            logger.info("%s", said)
        else:
            warn(f"{said} of the scores; use missing='category', or leave out columns")
    if heavy > 1 and total <= 1:
        warn(
            f"the weights of {heavy:,} rows sum to {total:.3g}, and count as so many rows: "
            "parameters cost nothing among so few; scale them to sum to the number of rows"
        )
    columns, fewer = [column[:kept] for column in held], False
    weight = None if weight is None else weight[:kept]
    if fits:
        columns, weight, fewer = distinct(columns, sizes, weight)
    return CompleteRows(
        names=tuple(feature.name for feature in features),
        place=place,
        states=tuple(_states(f, gap) for f, gap in zip(features, gaps.tolist(), strict=True)),
        sizes=sizes,
        total=total,
        left_out=left_out,
        cells=float(kept if not fits else len(columns[0])) * len(sizes),
        weighted=stats.weighted or fewer,
        exact=not stats.weighted,
        columns=columns if fits else None,
        weight=weight,
        scan=scan,
        schema=stats.schema,
        values=stats,
        source=opened,
        learning=learning,
    )


def _place(schema: Schema) -> NDArray[np.int64]:
    """Return the categorical columns in the order of their names."""
    names = [feature.name for feature in schema.categorical]
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


def _states(feature: Any, gap: bool) -> tuple[Any, ...]:
    return (*(feature.intervals or feature.values.to_pylist()), *([None] if gap else []))


def _read(part: Read) -> tuple[Columns, Floats | None, int]:
    return part()


def _scan(opened: Source, schema: Schema, weight: str | None) -> Iterator[Read]:
    """Yield functions that read the complete rows of one segment after the other."""
    encoder = Encoder.applying_to(schema, opened.schema, unseen="error", weight=weight)
    encoder.expect(opened.n_rows)
    for segment in opened.segments(BLOCK_ROWS):
        yield partial(_complete, segment, encoder, schema)


def _complete(
    segment: Segment, encoder: Encoder, schema: Schema
) -> tuple[Columns, Floats | None, int]:
    """Return the codes of the complete rows of a segment, by column, and their weights."""
    whole = schema.missing == "category"
    parts: list[Columns] = [[] for _ in encoder.books]
    weights: list[Floats] = []
    left_out = 0
    for _, encoded in engine.encoded_blocks(segment, encoder):
        batch = encoded.batch
        keep = np.ones(batch.n_rows, np.bool_)
        for features, codes, sizes in batch.codes:
            for f, column, size in zip(features.tolist(), codes, sizes.tolist(), strict=True):
                if batch.missing[f] and not whole:
                    keep &= column < size - 2
        every = bool(keep.all())
        left_out += int(np.count_nonzero(~keep))
        for features, codes, _ in batch.codes:
            for f, column in zip(features.tolist(), codes, strict=True):
                # The encoder's arrays are good until it encodes again.
                parts[f].append(column.copy() if every else column[keep])
        if batch.weight is not None:
            weights.append(batch.weight[keep])
    columns = [np.concatenate(some) if some else np.empty(0, np.uint8) for some in parts]
    columns = [columns[j] for j in _place(schema)]
    return columns, np.concatenate(weights) if weights else None, left_out
