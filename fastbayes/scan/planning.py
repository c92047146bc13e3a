"""`plan`: what counting will need, before anything is counted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.date_parts import PARTS, holds
from fastbayes.core.domains import default_kind
from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.core.picks import Picks, named_in
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Place
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.scan import engine
from fastbayes.scan.budget import capacity, has_gaps, needs_of, total_of
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.opening import opened_to_learn
from fastbayes.statistics.base import Room
from fastbayes.statistics.pair_counts import all_pairs, runs_of_pairs
from fastbayes.statistics.registry import wanting, with_companions


@dataclass(frozen=True)
class PairPlan:
    """What the counts of pairs need, and how they are made.

    Parameters
    ----------
    total
        Bytes in all copies.
    scans
        Scans that count the pairs where TAN or KDB looks for its structure within the memory limit:
        1 if all fit, None where those of two columns alone do not. The structure is not known yet:
        its own pairs, of which a last scan keeps the counts, have to fit, too.
    features
        Names of the features, in column order.
    widths
        (n_features,) values of each, and one more where a value is missing.
    n_classes
        Classes known.
    n_rows
        Rows of a block.
    """

    total: int
    scans: int | None
    features: tuple[str, ...]
    widths: NDArray[np.int64]
    n_classes: int
    n_rows: int

    def __repr__(self) -> str:
        scans = "too many" if self.scans is None else f"{self.scans} scan{'s' * (self.scans > 1)}"
        return f"<PairPlan: {self.total:,} bytes, {scans}>"

    @property
    def strategies(self) -> dict[str, int]:
        """Number of pairs by how they are counted."""
        names, kinds = self._methods()
        found = np.bincount(kinds, minlength=len(names)).tolist()
        return {name: n for name, n in zip(names, found, strict=True) if n}

    def blocks(self) -> pa.Table:
        """Return one row per pair: feature_a, feature_b, bytes of one copy, strategy.

        Returns
        -------
        pyarrow.Table
            (d (d - 1) / 2) rows, in the order of the columns.
        """
        first, second = all_pairs(len(self.widths))
        names = pa.array(self.features, pa.string())
        kinds, which = self._methods()
        return pa.table(
            {
                "feature_a": names.take(pa.array(first)),
                "feature_b": names.take(pa.array(second)),
                "bytes": 8 * self.n_classes * self.widths[first] * self.widths[second],
                "strategy": pa.array(kinds, pa.string()).take(pa.array(which)),
            }
        )

    def _methods(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        first, second = all_pairs(len(self.widths))
        if not dispatch.compiled(float(self.n_rows) * len(self.widths)):
            return ("numpy",), np.zeros(len(first), np.int64)
        rule = dispatch.compiled_module("plans.pair_plan")
        return rule.NAMES, rule.methods(
            self.widths[first], self.widths[second], max(self.n_classes, 1), max(self.n_rows, 1)
        )


@dataclass(frozen=True)
class Plan:
    """Bytes that counting will take, before anything is allocated.

    Parameters
    ----------
    columns
        Bytes of the counts of each column; of a pair's, each of the two has half, of a triple's a
        third.
    total
        Bytes of all counts, one copy per thread that counts and one of the result included.
    n_rows
        Rows of the source, None where it does not tell.
    n_classes
        Classes known.
    exact
        Whether every domain was declared or read to its end; otherwise the figures are those of
        the first block, and more values need more.
    pairs
        What the counts of pairs need; None where they are not asked for.
    reading
        Bytes that reading takes besides, about: what is decoded at a time by all threads.
    unusable
        Columns that cannot be features, which the figures leave out, each with why and the remedy.
    """

    columns: dict[str, int]
    total: int
    n_rows: int | None
    n_classes: int
    exact: bool
    pairs: PairPlan | None = None
    reading: int = 0
    unusable: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows = "an unknown number of" if self.n_rows is None else f"{self.n_rows:,}"
        return (
            f"<Plan of {rows} rows, {self.n_classes:,} classes, {len(self.columns):,} columns: "
            f"{'' if self.exact else 'at least '}{self.total:,} bytes"
            f"{f'; not usable: {[*self.unusable]}' if self.unusable else ''}>"
        )


def plan(
    source: Any,
    target: Any,
    *,
    pairs: bool = False,
    triples: bool = False,
    scatter: bool = False,
    numeric: Any = "gaussian",
    discretize: Any = "mdl",
    domains: Mapping[str, Any] | None = None,
    categorical: Picks = None,
    sample_weight: Any = None,
    columns: Picks = None,
    exclude: Picks = None,
    dates: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
) -> Plan:
    """Return the bytes that `count` will need, from the schema and the first block of rows.

    Parameters
    ----------
    source
        As in `count`; a one-shot stream cannot be planned, since that would consume it.
    target
        Name of the class column, or labels.
    pairs
        Whether pairs of values are to be counted, as SPODE, TAN and AODE need.
    triples
        Whether triples of values are to be counted, and pairs with them, as A2DE needs.
    scatter
        Whether scatter matrices of numeric columns are to be taken, as Gaussians with covariances
        need.
    numeric
        As in `count`: kernels and histograms need sketches of the values.
    discretize
        As in `count`; the bins are those of the first block.
    domains
        Declared values by column name.
    categorical
        Names, patterns or indices of columns to treat as categorical.
    sample_weight
        Name of the weight column, or weights.
    columns, exclude, dates
        As in `count`; of dates and times that are not named all parts are planned.
    null_values
        Strings that mean missing.
    filesystem
        A pyarrow or fsspec file system for paths.
    threads
        Worker threads.
    memory_limit
        Bytes that the call may add to the process, as in `count`.

    Returns
    -------
    Plan
        Bytes by column and in total.

    Raises
    ------
    MemoryLimitError
        When reading and the total without pairs exceed `memory_limit`; the message names the
        largest column.
        With pairs `PairPlan.scans` tells: AODE and SPODE need 1, on fewer `threads` if need be.
    SchemaError
        When the source can be read only once.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": list("00110011"), "b": list("01010101"), "y": list("nppnnppn")}
    >>> plan = fb.plan(table, "y", pairs=True, threads=1)
    >>> plan.pairs.total  # 2 x 2 values, 2 classes, 8 bytes, for a thread and for the result
    128
    >>> plan.pairs.scans
    1
    """
    opening = partial(
        opened_to_learn,
        source,
        target,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        null_values=null_values,
        filesystem=filesystem,
        named=named_in(numeric, discretize),
    )
    opened, target_name, weight_name, *_ = opening(columns=columns, exclude=exclude, as_parts=False)
    if not opened.rereadable:
        raise SchemaError(f"{opened.description} can be read only once; plan with a table or path")
    names = [n for n in opened.schema.names if n not in (target_name, weight_name)]
    held = {n: kind for n in names if (kind := holds(opened.schema.field(n).type)) is not None}
    unusable = _unusable(opened.schema, [n for n in names if n not in held])
    every = {n: PARTS[kind] for n, kind in held.items()}
    usable = [n for n in names if n not in unusable]
    opened, *_, learning = opening(columns=usable, dates={**every, **(dates or {})})
    encoder = learning()
    kinds = DensitySpec(numeric)
    named = {"values": True, "moments": True, "pairs": pairs, "triples": triples}
    asked = with_companions({**named, "scatter": scatter, "sketches": kinds.sketched})
    # Of pairs those that fit are counted, in several scans: they are refused by no plan.
    unbound = ("pairs",)
    shares = engine.foreseen(opened, encoder, asked, threads, memory_limit, unbound)
    head, place = None, Place("", 0)
    for segment in opened.segments(BLOCK_ROWS):
        head = next((block for block in segment.batches() if block.num_rows), None)
        place = segment.place(0)
        if head is not None:
            break
    to_cut: tuple[Encoder, Any] | None = kinds.to_cut(encoder, discretize)
    if wanting(asked, "bins") and any(book is None for _, book in encoder.features):
        to_cut = encoder, discretize
    cut = to_cut is not None and head is not None
    if to_cut is not None and head is not None:
        encoder = learning(cuts=numeric_cuts(open_source(pa.table(head)), *to_cut, threads=1))
    missing, gaps = np.zeros(len(encoder.books), np.bool_), False
    if head is not None:
        known = encoder.look_up(head, place)
        missing, gaps = known.missing, has_gaps(known)
    shape = capacity(encoder)
    widths = np.array([len(book) for book in encoder.books], np.int64) + missing
    most = math.inf if opened.n_rows is None else opened.n_rows
    while True:
        share = max(shares, key=lambda each: each.held)
        copies = share.threads + 1
        needs = needs_of({name: {} for name in asked}, Room(shape, widths, copies, most, gaps))
        alone = total_of({name: need for name, need in needs.items() if name not in unbound})
        fits = memory_limit is None or alone + share.charged <= memory_limit
        if fits or share.threads == 1:
            break
        # As `scan` goes on.
        fewer = share.threads // 2
        shares = engine.foreseen(opened, encoder, asked, fewer, memory_limit, unbound)
    rows = 0 if head is None else head.num_rows
    of_pairs = None
    if "pairs" in asked:
        both = total_of({"pairs": needs["pairs"]})
        coded = tuple(f.name for f, book in encoder.features if book is not None)
        left = engine.left_for_pairs(memory_limit, threads, shape, share.charged)
        scans: int | None = 1
        if both > copies * left:
            scans = None
            with suppress(MemoryLimitError):
                scans = sum(1 for _ in runs_of_pairs(coded, widths, shape.n_classes, left))
        of_pairs = PairPlan(both, scans, coded, widths, shape.n_classes, rows)
    size = iter(np.sum([need.columns for need in needs.values()], axis=0).tolist())
    number = sum(need.numbers for need in needs.values()) // max(1, shape.n_numeric)
    sizes = {f.name: number if book is None else next(size) for f, book in encoder.features}
    total = total_of(needs)
    if not fits:
        name = max(sizes, key=lambda n: sizes[n])
        raise MemoryLimitError(
            f"counting needs {total:,} bytes, over memory_limit={memory_limit:,}: column {name!r} "
            f"needs {sizes[name]:,}; leave it out with `columns`, or raise memory_limit"
        )
    exact = rows == opened.n_rows or bool(
        not cut
        # A missing number, met later, needs more.
        and (gaps or not (scatter and shape.n_numeric))
        and np.all([book.fixed for book in [*encoder.books, encoder.target] if book is not None])
    )
    found = sizes, total, opened.n_rows, shape.n_classes, exact, of_pairs, share.held
    return Plan(*found, unusable)


def _unusable(columns: pa.Schema, names: Sequence[str]) -> dict[str, str]:
    """Return which columns cannot be features, each with the reason."""
    reasons = {}
    for name in names:
        try:
            default_kind(name, columns.field(name).type)
        except SchemaError as error:
            reasons[name] = str(error)
    return reasons
