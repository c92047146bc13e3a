"""Counts of pairs as rows of a table, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import Schema
from fastbayes.statistics.pair_counts import PairCounts, all_pairs
from fastbayes.statistics.texts import codes_in, rows_of, strings, text

Ints = NDArray[np.int64]
COLUMNS = ("class", "feature_a", "value_a", "feature_b", "value_b", "n")


def pair_rows(schema: Schema, pairs: PairCounts) -> dict[str, Any]:
    """Return the non-empty cells as columns class, feature, value, feature_b, value_b, n."""
    pairs = pairs.settled()
    layout, k = pairs.layout, pairs.layout.n_classes
    (kept,) = np.nonzero(pairs.flat)
    q = np.searchsorted(layout.starts, kept, side="right") - 1
    # Empty blocks share their start with the next: theirs is the last of equals.
    cell, label = np.divmod(kept - layout.starts[q], k) if k else (kept, kept)
    first, second = layout.first[q], layout.second[q]
    a, b = np.divmod(cell, layout.widths[second])
    texts = [
        pa.concat_arrays([text(f.values), pa.nulls(1, pa.string())]) for f in schema.categorical
    ]
    every = pa.concat_arrays(texts) if texts else pa.nulls(0, pa.string())
    names = pa.array([f.name for f in schema.categorical], pa.string())
    offsets = pairs.shape.offsets
    return {
        "class": text(schema.classes).take(pa.array(label)),
        "feature": names.take(pa.array(first)),
        "value": every.take(pa.array(offsets[first] + a)),
        "feature_b": names.take(pa.array(second)),
        "value_b": every.take(pa.array(offsets[second] + b)),
        "n": pairs.flat[kept],
    }


def pairs_of(
    schema: Schema,
    labels: Ints,
    sides: Sequence[tuple[Any, pa.Array]],
    n: NDArray[Any],
    *,
    weighted: bool,
) -> PairCounts:
    """Return the counts of rows (class code, (features, values) twice, n).

    Raises
    ------
    DataError
        When a value lies outside its domain, or a column is paired with itself; the message names
        the column.
    """
    (first, a), (second, b) = (_located(schema, names, cells) for names, cells in sides)
    if (same := np.flatnonzero(first == second)).size:
        name = schema.categorical[int(first[same[0]])].name
        raise DataError(f"column {name!r} is paired with itself; leave these rows out")
    swap = first > second
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    shape, m = schema.shape, len(schema.categorical)
    key = first * m + second
    found = np.unique(key)
    pairs = None
    if len(found) < m * (m - 1) // 2:
        pairs = np.stack(np.divmod(found, max(m, 1)), axis=1)
    result = PairCounts(shape, weighted=weighted, pairs=pairs)
    missing = np.zeros(m, np.bool_)
    missing[first[a == shape.sizes[first]]] = True
    missing[second[b == shape.sizes[second]]] = True
    layout = result.layout = result.layout.resized(shape.sizes, missing, shape.n_classes)
    result.flat = np.zeros(layout.total, result.flat.dtype)
    q = np.searchsorted(layout.first * m + layout.second, key)
    cells = layout.starts[q] + (a * layout.widths[second] + b) * shape.n_classes + labels
    np.add.at(result.flat, cells, n.astype(result.flat.dtype))
    return result


def _located(schema: Schema, names: Any, cells: pa.Array) -> tuple[Ints, Ints]:
    """Return the feature and the code of each row; null is the missing value."""
    features, codes = np.full(len(names), -1), np.zeros(len(names), np.int64)
    known = {f.name: j for j, f in enumerate(schema.categorical)}
    for name, rows in rows_of(names, np.ones(len(names), np.bool_)):
        if name not in known:
            raise SchemaError(f"there is no categorical feature {name!r} in the table's schema")
        code = codes_in(schema.categorical[known[name]], cells.take(pa.array(rows)))
        features[rows], codes[rows] = known[name], code
    return features, codes


def values_of(table: pa.Table) -> pa.Table:
    """Return the (class, feature, value, n) rows that a table of all pairs implies.

    Raises DataError when a pair of features is not there.
    """
    names = [
        strings(table, key).to_numpy(zero_copy_only=False) for key in ("feature_a", "feature_b")
    ]
    features = sorted({*names[0].tolist(), *names[1].tolist()} - {None})
    where = {name: j for j, name in enumerate(features)}
    sides = [np.array([where.get(v, -1) for v in column.tolist()], np.int64) for column in names]
    if any((side < 0).any() for side in sides):
        raise DataError("a feature is null; name both features of every row")
    m = len(features)
    low, high = np.minimum(*sides), np.maximum(*sides)
    there = np.zeros((m, m), np.bool_)
    there[low, high] = True
    for i, j in zip(*all_pairs(m), strict=True):
        if not there[i, j]:
            raise DataError(
                f"there are no rows for {features[i]!r} and {features[j]!r}; count every pair"
            )

    def rows_of_feature(name: str, value: str, rows: Ints) -> pa.Table:
        return (
            table.select(["class", value, "n"])
            .take(pa.array(rows))
            .rename_columns(["class", "value", "n"])
            .append_column("feature", pa.array([name] * len(rows), pa.string()))
        )

    pieces = [rows_of_feature("", "value_a", np.zeros(0, np.int64))]
    for j, name in enumerate(features):
        # Any one partner accounts for all rows.
        partner = 1 if j == 0 else 0
        for mine, other, value in ((0, 1, "value_a"), (1, 0, "value_b")):
            rows = np.flatnonzero((sides[mine] == j) & (sides[other] == partner))
            pieces.append(rows_of_feature(name, value, rows))
    return pa.concat_tables(pieces)
