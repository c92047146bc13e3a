"""Data in which every column is a node: opened, cut where asked, counted, or held as codes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS, code_type
from fastbayes.core.date_parts import PARTS, DatePart, holds
from fastbayes.core.domains import intervals
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError, warn
from fastbayes.core.picks import Chooser, Picks, named_in, several, unknown_column
from fastbayes.core.schema import Feature, Schema
from fastbayes.core.suggestions import meant_column
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.memory import Joined, is_name
from fastbayes.data.segments import Segment, Source
from fastbayes.data.source import open_source
from fastbayes.data.unify import is_text
from fastbayes.networks.graph.coded import Floats, Ints, fits
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.budget import default_limit
from fastbayes.scan.date_spans import date_parts
from fastbayes.scan.deduplicate import Columns, distinct
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.opening import Opened, declared, opened_to_learn
from fastbayes.scan.packed_rows import in_memory, rereadable
from fastbayes.scan.request import Counter, Progress
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered

# Reads the codes of some rows, by column, their weights, and how many more were incomplete.
Read = Callable[[], tuple[Columns, Floats | None, int]]

logger = logging.getLogger("fastbayes")

# Cells of a table that is never too wide.
NARROW = 1 << 12


class Wide(NamedTuple):
    """Cells of a family that occur.

    codes   (n_cells, n_parents + 1) of the parents and the node; -1 where a value is missing
    counts  (n_cells,)
    """

    codes: Ints
    counts: Any


@dataclass(frozen=True)
class NodeColumns(Chooser):
    """The columns of some nodes: a node "when.hour" may be the hour of a column "when".

    Further columns that are read are `also`.
    """

    nodes: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def asked(self) -> Sequence[str]:
        """The columns that are named; a node that may be a part of a date names none."""
        parts = self.dated(str(node).rpartition(".")[0] for node in self.nodes)
        dated = {node for nodes in parts.values() for node in nodes}
        return [*(str(node) for node in self.nodes if node not in dated), *self.also]

    def of(self, names: Sequence[str], where: str, index: Sequence[str] = ()) -> list[str]:
        """Return the columns to read of those there are; SchemaError names a node without one."""
        dated = {n: column for column, nodes in self.dated(names).items() for n in nodes}
        if unknown := [n for n in self.nodes if n not in names and n not in dated]:
            raise SchemaError(unknown_column(unknown[0], names, where, index))
        return [*dict.fromkeys([*(dated.get(n, n) for n in self.nodes), *self.also])]

    def dated(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the parts of columns that are nodes, {column: {node: part}}."""
        there, found = {*names}, dict[str, dict[str, str]]()
        for node in self.nodes:
            column, _, part = str(node).rpartition(".")
            if node not in there and column in there and any(part in p for p in PARTS.values()):
                found.setdefault(column, {})[node] = part
        return found

    def __contains__(self, name: str) -> bool:
        """Return whether a column may be read."""
        return name in (*self.nodes, *self.also) or bool(self.dated([name]))


@dataclass(frozen=True, eq=False)
class ReadOptions:
    """How data are read: options of `BayesianNetwork.learn`, and what a network knows besides.

    categories  columns whose numbers are categories as well, being known as such; the other options
                come first
    bins        {column: cut points} of columns that are known to be cut there; the other options
                come first. A column of text holds the bins themselves
    dates       where the columns are those of given nodes, {node: what it is of a date}, as far as
                that is known
    """

    columns: Picks | NodeColumns = None
    exclude: Picks = None
    dates: Mapping[str, Any] | None = None
    sample_weight: Any = None
    domains: Mapping[str, Any] | None = None
    categorical: Picks = None
    discretize: Any = None
    categories: Sequence[str] = ()
    bins: Mapping[str, Floats] = field(default_factory=dict)
    missing: str = "complete"
    null_values: Sequence[str] | None = None
    filesystem: Any = None
    threads: int | None = None
    memory_limit: int | None = None
    progress: Progress | None = None

    @property
    def limit(self) -> int:
        """Bytes for rows and counts."""
        return default_limit() if self.memory_limit is None else int(self.memory_limit)

    def scan(
        self,
        rows: Opened,
        wanted: Mapping[str, Mapping[str, Any]],
        encoder: Encoder | None = None,
    ) -> Statistics:
        """Return statistics of opened rows."""
        return engine.scan(
            rows.source,
            encoder or rows.learning(),
            wanted,
            threads=self.threads,
            memory_limit=self.memory_limit,
            progress=self.progress,
        )

    def opened(self, data: Any, *, again: bool = False) -> Opened:
        """Open data; `learning` gives encoders of the nodes, all of them categories or bins.

        Rows that are read `again` are held where they are those of a stream. Raises SchemaError
        when a column is not there, or holds numbers that are neither cut nor categories; the
        message names it.
        """
        picks = several(self.categorical)
        opened = opened_to_learn(
            data,
            None,
            sample_weight=self.sample_weight,
            domains=self.domains,
            categorical=picks,
            missing="category" if self.missing == "category" else "marginalize",
            columns=self.columns,
            exclude=self.exclude,
            null_values=self.null_values,
            filesystem=self.filesystem,
            as_parts=False,
            named=named_in(self.discretize),
        )
        if again:
            opened = opened._replace(source=rereadable(opened.source))
        kinds = {column.name: column.type for column in opened.source.schema}
        kinds.pop(opened.weight or "", None)
        parts = self._date_parts(opened.source, kinds)
        learning = partial(opened.learning, parts=parts)
        names = [feature.name for feature, _ in learning().features]
        given = self.discretize if isinstance(self.discretize, Mapping) else {}
        if unknown := [n for n in given if n not in names]:
            raise SchemaError(
                f"discretize: there is no column {unknown[0]!r}; there are {names}"
                f"{meant_column(unknown[0], names)}"
            )
        as_before = [n for n in self.categories if n in names and n not in given]
        learning = partial(learning, categorical=[*as_before, *picks])
        texts = [n for n in self.bins if n in kinds and is_text(kinds[n])]
        if texts:
            labels = {n: intervals(self.bins[n]) for n in texts}
            domains = declared(data, opened.source, opened.weight) | labels
            learning = partial(learning, domains=domains | dict(self.domains or {}))
        encoder = learning()
        numbers = [feature.name for feature, book in encoder.features if book is None]
        how: Any = self.discretize
        if how is None or given:
            how = {**{n: cuts for n, cuts in self.bins.items() if n in numbers}, **given}
        if uncut := [n for n in numbers if isinstance(how, Mapping) and n not in how]:
            more = f" (and {len(uncut) - 1:,} more columns do)" if len(uncut) > 1 else ""
            raise SchemaError(
                f"column {uncut[0]!r} holds numbers{more}; the nodes of a network are discrete: "
                "cut it by `discretize` (quantile, width or its cut points), or name it in "
                "`categorical` if its numbers are categories"
            )
        if numbers or given:
            points = numeric_cuts(
                *(opened.source, encoder, how),
                threads=self.threads,
                memory_limit=self.memory_limit,
                progress=self.progress,
            )
            learning = partial(learning, cuts=points)
        return opened._replace(learning=learning)

    def _date_parts(
        self, source: Source | Joined, kinds: Mapping[str, pa.DataType]
    ) -> dict[str, tuple[DatePart, ...]]:
        """Return the parts of dates and times that are nodes."""
        if not isinstance(self.columns, NodeColumns):
            return date_parts(source, [*kinds], self.dates, threads=self.threads)
        known, asked = self.dates or {}, {}
        for column, nodes in self.columns.dated(kinds).items():
            if holds(kinds[column]) is None and not pa.types.is_null(kinds[column]):
                raise SchemaError(
                    f"there is no column {next(iter(nodes))!r}, and column {column!r} is "
                    f"{kinds[column]}, no date or time: cast it to one, or rename the node"
                )
            asked[column] = [known.get(node, part) for node, part in nodes.items()]
        return date_parts(source, [*asked], asked, threads=self.threads)

    def of_nodes(self, nodes: Iterable[str]) -> Self:
        """Return these options for the columns of some nodes."""
        weight = (str(self.sample_weight),) if is_name(self.sample_weight) else ()
        return replace(self, columns=NodeColumns(tuple(nodes), weight), exclude=None)

    def counted(
        self,
        data: Any,
        nodes: Sequence[str],
        families: Iterable[Sequence[str]],
        *,
        cells: Sequence[str] = (),
    ) -> Statistics:
        """Count families of columns in one scan, and the joint values of the columns in `cells`.

        Raises DataError when there are no rows, or all weigh nothing, MemoryLimitError when the
        counts do not fit; the message names the family by its last column.
        """
        rows = self.of_nodes(nodes).opened(data)
        encoder = rows.learning()
        names = [feature.name for feature, _ in encoder.features]
        wanted: dict[str, dict[str, Any]] = {"values": {}}
        if together := numbered(families, names):
            wanted["families"] = {"families": together}
        if cells:
            wanted["cells"] = {"columns": sorted(names.index(n) for n in cells)}
        stats = self.scan(rows, wanted, encoder)
        if not stats.n_rows:
            why = "every weight is zero" if stats.weighted else "there are no rows"
            raise DataError(f"{rows.source.description}: nothing to count, {why}")
        return stats

    def counted_apart(
        self, data: Any, families: Mapping[str, tuple[str, ...]]
    ) -> tuple[Statistics, dict[str, Wide]]:
        """Return the counts of families, and apart the cells of those too wide for a whole table.

        Families are {node: its parents and itself}; data are read once for each wide one, and twice
        more where there is one. Raises MemoryLimitError when counts do not fit though no family is
        wide, or the cells that occur do not.
        """
        nodes = list(families)
        try:
            return self.counted(data, nodes, families.values()), {}
        except MemoryLimitError as error:
            # Only reading the data says how many values there are.
            logger.info("%s; wide families are counted apart", error)
            sizes = {
                n: len(values) for n, values in states_of(self.counted(data, nodes, [])).items()
            }
            copies = 8.0 * (resolved_threads(self.threads) + 1)
            need = {v: copies * math.prod(sizes[n] for n in some) for v, some in families.items()}
            wide: list[str] = []
            for node in sorted(need, key=lambda n: -need[n]):
                if sum(need[n] for n in families if n not in wide) <= self.limit / 2:
                    break
                if need[node] > copies * NARROW:
                    wide.append(node)
            if not wide or not all(fits([sizes[n] for n in families[node]]) for node in wide):
                raise
            apart = {node: self._wide(data, nodes, families[node]) for node in wide}
            narrow = [family for node, family in families.items() if node not in apart]
            return self.counted(data, nodes, narrow), apart

    def _wide(self, data: Any, nodes: Sequence[str], family: tuple[str, ...]) -> Wide:
        stats = self.counted(data, nodes, [], cells=family)
        names = [stats.schema.names[j] for j in stats.cells.columns]
        keys = stats.cells.keys[:, [names.index(n) for n in family]].astype(np.int64)
        if stats.schema.missing == "category":
            own = {f.name: f.size for f in stats.schema.features}
            keys = np.where(keys < 0, np.array([own[n] for n in family]), keys)
        return Wide(keys, stats.cells.counts[:, 0])


def held(data: Any) -> Any:
    """Return data that can be read more than once: streams as a table, others as they are."""
    if not isinstance(data, pa.RecordBatchReader) and not hasattr(data, "__next__"):
        return data
    return in_memory(open_source(data))


def states_of(stats: Statistics) -> dict[str, list[Any]]:
    """Return the states of each column: values, bins as text, None where missing is a value."""
    result = {}
    for feature, gap in zip(stats.schema.features, _gaps(stats).tolist(), strict=True):
        result[feature.name] = _states(feature, gap)
        if not result[feature.name]:
            raise SchemaError(
                f"column {feature.name!r} has no value at all: leave it out, or declare its "
                "values in `domains`"
            )
    return result


def _gaps(stats: Statistics) -> Any:
    """Return the columns in which a missing value, which is the last code then, is a state."""
    return (stats.values.missing != 0).any(axis=1) & (stats.schema.missing == "category")


def _states(feature: Feature, gap: bool) -> list[Any]:
    assert feature.values is not None
    return [*(feature.intervals or feature.values.to_pylist()), *([None] if gap else [])]


@dataclass(frozen=True, eq=False)
class CompleteRows:
    """Complete rows of categorical columns.

    reading   how they were read
    opened    the rows themselves
    names     of the nodes, ascending: what is found does not depend on the order of columns
    states    values of each node
    sizes     (n,) number of values of each node
    total     N, the sum of the weights
    left_out  rows with a missing value, which do not count
    weighted  whether rows have weights, given or the number of rows that are equal
    columns   codes of each node; None where they do not fit in memory
    weight    (n_rows,) of those codes
    cells     rows x columns, whether compiling pays
    schema    of the source
    """

    reading: ReadOptions
    opened: Opened
    names: tuple[str, ...]
    states: tuple[tuple[Any, ...], ...]
    sizes: Ints
    total: float
    left_out: int
    weighted: bool
    columns: Columns | None
    weight: Floats | None
    cells: float
    schema: Schema

    def scan(self) -> Iterator[Read]:
        """Yield functions that read the codes and weights of a part of the rows."""
        return _scan(self.opened, self.schema)


def read_rows(data: Any, reading: ReadOptions | None = None) -> CompleteRows:
    """Read rows for a search, into memory if they fit in a half of the limit.

    Every column is a category. Scores of different families can be compared only if they are of
    the same rows: with missing="complete" rows with a missing value anywhere are left out, with
    "category" a missing value is a value of its own.

    Raises SchemaError when a column holds numbers and `discretize` does not say how they become
    bins, DataError when no complete row is left.
    """
    reading = reading or ReadOptions()
    if reading.missing not in ("complete", "category"):
        raise ValueError(f"missing={reading.missing!r}: use 'complete' or 'category'")
    opened = reading.opened(data, again=True)
    n_rows = 0

    def count(rows: int) -> None:
        nonlocal n_rows
        n_rows += rows

    # Of rows that workers read those that differ come here, with their numbers.
    elsewhere = isinstance(opened.source, Counter)
    wanted = ("values", "cells") if elsewhere else ("values",)
    try:
        stats = replace(reading, progress=count).scan(opened, {name: {} for name in wanted})
    except MemoryLimitError as error:
        if not elsewhere:
            raise
        raise MemoryLimitError(
            f"{error}; of rows that workers read a search looks at those that differ: learn from "
            "some of the rows, or of fewer columns"
        ) from error
    schema, source = stats.schema, opened.source
    if not len(schema.categorical):
        raise SchemaError(f"{source.description}: there are no columns to learn a network of")
    gaps, place = _gaps(stats), _place(schema)
    features = [schema.categorical[j] for j in place]
    sizes = np.array([feature.size for feature in features], np.int64) + gaps[place]
    kinds = [np.dtype(code_type(size + 2)) for size in sizes]
    if elsewhere:
        read = _of_cells(stats, place, sizes, kinds)
    else:
        needed = n_rows * (sum(kind.itemsize for kind in kinds) + 8 * stats.weighted)
        fit = 2 * needed <= reading.limit
        read = _read_here(reading, opened, stats, kinds, n_rows if fit else None)
    columns, weight, heavy, total, left_out = read
    if not total and not left_out:
        why = "every weight is zero" if stats.weighted and n_rows else "there are no rows"
        raise DataError(f"{source.description}: nothing to score, {why}")
    if not total:
        raise DataError(
            f"{source.description}: no row is complete, so there is nothing to score; leave out "
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
    fewer, rows = elsewhere, n_rows - left_out
    if columns is not None and not elsewhere:
        columns, weight, fewer = distinct(columns, sizes, weight)
    if columns is not None:
        rows = len(columns[0])
    return CompleteRows(
        reading=reading,
        opened=opened,
        names=tuple(feature.name for feature in features),
        states=tuple(tuple(_states(f, gap)) for f, gap in zip(features, gaps[place], strict=True)),
        sizes=sizes,
        total=total,
        left_out=left_out,
        weighted=stats.weighted or fewer,
        columns=columns,
        weight=weight,
        cells=float(rows) * len(sizes),
        schema=schema,
    )


class _RowsRead(NamedTuple):
    """Complete rows, and what there is to say of all.

    columns   codes of each node; None where they do not fit in memory
    weight    of the rows, None where each counts once
    heavy     rows that weigh something
    total     sum of their weights
    left_out  rows that are not complete
    """

    columns: Columns | None
    weight: Floats | None
    heavy: float
    total: float
    left_out: int


def _read_here(
    reading: ReadOptions,
    opened: Opened,
    stats: Statistics,
    kinds: Sequence[np.dtype[Any]],
    n_rows: int | None,
) -> _RowsRead:
    """Read so many rows; hold none where their number is None."""
    columns = [np.empty(n_rows or 0, kind) for kind in kinds]
    weight = np.empty(n_rows or 0) if stats.weighted else None
    kept, heavy, total, left_out = 0, 0, 0.0, 0
    for some, its, incomplete in in_order(
        lambda read: read(),
        _scan(opened, stats.schema),
        resolved_threads(reading.threads),
    ):
        n = len(some[0])
        total += n if its is None else float(its.sum())
        heavy += n if its is None else int(np.count_nonzero(its))
        if n_rows is not None:
            for column, codes in zip(columns, some, strict=True):
                column[kept : kept + n] = codes
            if weight is not None:
                weight[kept : kept + n] = its
        kept += n
        left_out += incomplete
    held = None if n_rows is None else [column[:kept] for column in columns]
    return _RowsRead(held, None if weight is None else weight[:kept], heavy, total, left_out)


def _of_cells(
    stats: Statistics, place: Sequence[int], sizes: Ints, kinds: Sequence[np.dtype[Any]]
) -> _RowsRead:
    """Return the different rows of counted cells; incomplete ones are left out by their weight."""
    cells = stats.cells
    own = [*cells.columns]
    keys = cells.keys[:, [own.index(j) for j in place]].astype(np.int64)
    weight = cells.counts[:, 0].astype(np.float64)
    if stats.schema.missing == "category":
        keys = np.where(keys < 0, sizes - 1, keys)
    whole = (keys >= 0).all(axis=1)
    columns = [keys[whole, j].astype(kind) for j, kind in enumerate(kinds)]
    total = float(weight[whole].sum())
    heavy = float(np.count_nonzero(weight[whole])) if stats.weighted else total
    return _RowsRead(columns, weight[whole], heavy, total, round(float(weight[~whole].sum())))


def _place(schema: Schema) -> list[int]:
    """Return the categorical columns in the order of their names."""
    names = [feature.name for feature in schema.categorical]
    return sorted(range(len(names)), key=names.__getitem__)


def _scan(opened: Opened, schema: Schema) -> Iterator[Read]:
    """Yield functions that read the complete rows of one segment after the other."""
    source = opened.source
    encoder = Encoder.applying_to(schema, source.schema, unseen="error", weight=opened.weight)
    encoder.expect(source.n_rows)
    for segment in source.segments(BLOCK_ROWS):
        yield partial(_complete, segment, encoder, schema)


def _complete(
    segment: Segment, encoder: Encoder, schema: Schema
) -> tuple[Columns, Floats | None, int]:
    """Return the codes of the complete rows of a segment, by column, and their weights."""
    whole = schema.missing == "category"
    parts: list[Columns] = [[] for _ in encoder.books]
    weights: list[Floats] = []
    left_out = 0
    for _, encoded in row_blocks.encoded_blocks(segment, encoder):
        batch = encoded.batch
        listed = [
            (f, column, size)
            for features, codes, sizes in batch.codes
            for f, column, size in zip(features.tolist(), codes, sizes.tolist(), strict=True)
        ]
        keep = np.ones(batch.n_rows, np.bool_)
        for f, column, size in listed:
            if batch.missing[f] and not whole:
                keep &= column < size - 2
        every = bool(keep.all())
        left_out += int(np.count_nonzero(~keep))
        for f, column, _ in listed:
            # The encoder's arrays are good until it encodes again.
            parts[f].append(column.copy() if every else column[keep])
        if batch.weight is not None:
            weights.append(batch.weight[keep])
    columns = [np.concatenate(some) if some else np.empty(0, np.uint8) for some in parts]
    columns = [columns[j] for j in _place(schema)]
    return columns, np.concatenate(weights) if weights else None, left_out
