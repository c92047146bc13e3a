"""Rows of tables and files as codes of a network's states, scored in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.data.apply import as_at_fit
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment, Source
from fastbayes.data.source import open_source
from fastbayes.networks.network_data import schema_for
from fastbayes.scan import engine

Floats = NDArray[np.float64]

logger = logging.getLogger("fastbayes")


@dataclass
class NetworkRows:
    """Rows to be scored.

    source  where they come from
    schema  the nodes that are among the columns
    nodes   their places in the network, in the order of the schema
    """

    source: Source
    schema: Schema
    nodes: list[int]


def opened(
    data: Any,
    states: Mapping[str, Sequence[Any]],
    cuts: Mapping[str, Floats],
    *,
    without: str | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
) -> NetworkRows:
    """Open data of which some columns are nodes.

    Raises
    ------
    SchemaError
        When no column is a node, or the states of a node are no column's.
    """
    whole = schema_for(states, cuts)
    options = {**as_at_fit(whole), "null_values": null_values}
    source = open_source(data, filesystem=filesystem, **options)
    names = [n for n in states if n in source.schema.names and n != without]
    if not names and without not in source.schema.names:
        raise SchemaError(
            f"{source.description}: no column is a node; the columns are "
            f"{source.schema.names[:9]}, the nodes {list(states)[:9]}"
        )
    features = tuple(f for f in whole.features if f.name in names)
    schema = replace(whole, features=features, null_values=tuple(null_values or ()))
    places = [i for i, n in enumerate(states) if n in names]
    return NetworkRows(source.only(names) if names else source, schema, places)


def scored(
    rows: NetworkRows,
    score: Callable[[Batch, Floats], int],
    width: int,
    *,
    unseen: str = "ignore",
    threads: int | None = None,
) -> tuple[Floats, int]:
    """Return score(batch, out) of all rows in order, (n_rows, width), and the sum of its results.

    Raises
    ------
    DataError
        When a value is no state and `unseen` is "error"; the message names column, value and row.
    """
    if unseen not in ("ignore", "error"):
        raise ValueError(f"unseen={unseen!r}: use 'ignore' or 'error'")
    source = rows.source
    encoder = Encoder.applying_to(rows.schema, source.schema, unseen=unseen)
    encoder.expect(source.n_rows)
    known = source.in_memory and source.n_rows is not None
    out = np.empty(((source.n_rows or 0) if known else 0, width))

    def one(item: tuple[Segment, int]) -> tuple[list[Floats], int, NDArray[np.int64]]:
        segment, start = item
        pieces, done, lost = list[Floats](), 0, 0
        unknown = np.zeros(len(rows.nodes), np.int64)
        for block, encoded in engine.encoded_blocks(segment, encoder):
            n = block.num_rows
            piece = out[start + done : start + done + n] if known else np.empty((n, width))
            lost += score(encoded.batch, piece)
            unknown += encoded.unseen
            done += n
            if not known:
                pieces.append(piece)
        return pieces, lost, unknown

    def items() -> Iterator[tuple[Segment, int]]:
        start = 0
        for segment in source.segments(BLOCK_ROWS):
            yield segment, start
            start += (segment.n_rows or 0) if known else 0

    pieces, total, lost = [out], np.zeros(len(rows.nodes), np.int64), 0
    for some, n, unknown in engine.in_order(one, items(), engine.resolved_threads(threads)):
        pieces += some
        lost += n
        total += unknown
    for name, n in zip(rows.schema.names, total.tolist(), strict=True):
        if n:
            logger.info("column %r: %d values are no states of the node", name, n)
    return (out if known else np.concatenate(pieces)), lost
