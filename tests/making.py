"""Batches and tables made from a seed, to hold statistics against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from fastbayes.core.batch import Batch, Codes
from fastbayes.core.schema import Alignment, Shape


def shape_of(sizes: Sequence[int], n_numeric: int, n_classes: int) -> Shape:
    return Shape(np.array(sizes, dtype=np.int64), n_numeric, n_classes)


def random_batch(
    rng: np.random.Generator, shape: Shape, n: int, *, weighted: bool = False, missing: float = 0.2
) -> Batch:
    """Return rows that hold every kind of cell a statistic may meet."""
    columns = [
        np.where(rng.random(n) < missing, s, rng.integers(0, max(s, 1), n)) for s in shape.sizes
    ]
    columns = [np.full(n, s) if s == 0 else c for c, s in zip(columns, shape.sizes, strict=True)]
    numeric = rng.normal(size=(shape.n_numeric, n)) * 3 + 100
    numeric[rng.random(numeric.shape) < missing] = np.nan
    y = rng.integers(0, shape.n_classes, n)
    weight = rng.integers(0, 5, n) / 2 if weighted else None
    return batch_of(shape, columns, y, numeric, weight)


def batch_of(
    shape: Shape,
    columns: Sequence[NDArray[Any]],
    y: NDArray[Any],
    numeric: Sequence[NDArray[np.float64]],
    weight: NDArray[np.float64] | None,
) -> Batch:
    """Return a batch; the code S_j of a column means missing."""
    n = len(y)
    absent = np.array([(c == s).any() for c, s in zip(columns, shape.sizes, strict=True)], np.bool_)
    widths = np.array([1 if s + 2 <= 256 else 2 if s + 2 <= 65536 else 4 for s in shape.sizes])
    groups = []
    for width in np.unique(widths):
        members = np.flatnonzero(widths == width)
        codes = np.array([columns[j] for j in members], dtype=f"u{width}").reshape(len(members), n)
        groups.append(Codes(members.astype(np.int64), codes, (shape.sizes + absent)[members]))
    kind = np.uint8 if shape.n_classes <= 256 else np.uint16
    return Batch(
        n,
        np.ascontiguousarray(y, dtype=kind),
        shape.n_classes,
        tuple(groups),
        absent,
        tuple(np.ascontiguousarray(x) for x in numeric),
        None if weight is None else np.ascontiguousarray(weight, dtype=np.float64),
        float(n * max(1, len(columns) + len(numeric))),
    )


def rows_of(batch: Batch, shape: Shape, rows: NDArray[Any], larger: Shape | None = None) -> Batch:
    """Return the rows of a batch at these positions, in this order, coded for a larger shape."""
    to = shape if larger is None else larger
    columns: list[Any] = [None] * len(shape.sizes)
    for features, codes, _ in batch.codes:
        for feature, column in zip(features, codes, strict=True):
            column = column[rows].astype(np.int64)
            columns[feature] = np.where(column == shape.sizes[feature], to.sizes[feature], column)
    assert batch.classes is not None
    weight = None if batch.weight is None else batch.weight[rows]
    return batch_of(to, columns, batch.classes[rows], [x[rows] for x in batch.numeric], weight)


def reweighted(batch: Batch, shape: Shape, weight: NDArray[Any] | None) -> Batch:
    """Return the batch with other weights."""
    whole = rows_of(batch, shape, np.arange(batch.n_rows))
    given = None if weight is None else np.asarray(weight, dtype=np.float64)
    return Batch(
        whole.n_rows,
        whole.classes,
        whole.n_classes,
        whole.codes,
        whole.missing,
        whole.numeric,
        given,
        whole.cells,
    )


def alignment_of(shape: Shape, **where: Any) -> Alignment:
    """Return the alignment of a shape with itself, some of it put elsewhere."""
    same = Alignment(
        shape,
        np.arange(len(shape.sizes)),
        [np.arange(s) for s in shape.sizes],
        np.arange(shape.n_numeric),
        np.arange(shape.n_classes),
    )
    return same._replace(**where)


def random_table(n: int, seed: int = 0) -> pa.Table:
    """Return a table of every kind of column, with classes y and weights w."""
    rng = np.random.default_rng(seed)

    def holes(values: Any) -> pa.Array:
        return pa.array(values, mask=rng.random(n) < 0.1)

    return pa.table(
        {
            "text": holes(rng.choice(["p", "q", "r", "é", ""], n)),
            "flag": holes(rng.random(n) < 0.3),
            "code": holes(rng.integers(-3, 4, n)).cast(pa.int16()),
            "number": holes(rng.normal(size=n) * 3 + 100),
            "epoch": holes(rng.normal(size=n) + 1.7e9),
            "y": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
            "w": rng.random(n),
        }
    )


def cells(stats: fb.Statistics) -> dict[Any, Any]:
    """Return the counts by column, value and class, those of 0 left out."""
    found = {}
    classes = stats.schema.classes.to_pylist()
    values = stats.values
    for j, feature in enumerate(stats.schema.categorical):
        names = [*feature.values.to_pylist(), None]  # type: ignore[union-attr]
        block = values.counts[values.offsets[j] : values.offsets[j + 1]]
        for (v, c), n in np.ndenumerate(block):
            if n:
                found[feature.name, names[v], classes[c]] = n.item()
    return found


def cells_of(table: pa.Table, target: str, weight: str | None = None) -> dict[Any, Any]:
    """Return what `cells` should, one cell of the table at a time; NaN is missing."""
    found: dict[Any, Any] = {}
    for row in table.to_pylist():
        w = 1 if weight is None else row[weight]
        label = known(row[target])
        for name, value in row.items():
            if name not in (target, weight) and label is not None and w:
                key = name, known(value), label
                found[key] = found.get(key, 0) + w
    return found


def known(value: Any) -> Any:
    return None if value is None or value != value else value


INDICES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64()]


def random_stream(seed: int) -> tuple[list[pa.RecordBatch], pa.Table]:
    """Return batches in which every column has another encoding each time, and the plain rows."""
    rng = np.random.default_rng(seed)
    types = {"text": pa.string(), "whole": pa.int64(), "real": pa.float64(), "flag": pa.bool_()}
    pools: dict[str, list[Any]] = {
        "text": [f"v{i}" for i in range(rng.integers(1, 40))],
        "whole": [int(v) for v in rng.integers(-30_000, 30_000, rng.integers(1, 30))],
        "real": [float(v) / 4 for v in rng.integers(-50, 50, 10)],
        "flag": [True, False][: rng.integers(1, 3)],
        "y": ["a", "b", "c", "d"][: rng.integers(1, 5)],
    }
    batches = []
    for _ in range(rng.integers(1, 8)):
        n, offset = int(rng.integers(0, 60)), int(rng.integers(0, 9))
        columns = {}
        for name, pool in pools.items():
            some = pool[: max(1, int(len(pool) * rng.random()))]  # more values come later
            picks = rng.integers(0, len(some), n + offset)
            values = [None if rng.random() < 0.2 else some[p] for p in picks]
            columns[name] = encoded(rng, values, types.get(name, pa.string())).slice(offset)
        columns["w"] = pa.array(rng.integers(0, 4, n) / 2)
        batches.append(pa.record_batch(columns))
    rows = [row for batch in batches for row in batch.to_pylist()]
    plain = {
        name: pa.array([row[name] for row in rows], types.get(name, pa.string())) for name in pools
    }
    plain["w"] = pa.array([row["w"] for row in rows], pa.float64())
    return batches, pa.table(plain)


def encoded(rng: np.random.Generator, values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values in one of the encodings of their type."""
    if kind != pa.string():
        others = {pa.int64(): pa.int32(), pa.float64(): pa.float32()}
        return pa.array(values, kind if rng.random() < 0.5 else others.get(kind, kind))
    plain = [pa.string(), pa.large_string(), pa.string_view()]
    choice = int(rng.integers(0, 4))
    if choice < 3:
        return pa.array(values, plain[choice])
    entries = [*dict.fromkeys(v for v in values if v is not None), "unused", None]
    entries = [*entries[:2], *entries]  # some stand twice
    where = {v: [i for i, e in enumerate(entries) if e == v] for v in entries}
    indices = [int(rng.choice(where[v])) for v in values]
    holes = [
        None if v is None and rng.random() < 0.5 else i
        for v, i in zip(values, indices, strict=True)
    ]
    return pa.DictionaryArray.from_arrays(
        pa.array(holes, INDICES[rng.integers(0, len(INDICES))]), pa.array(entries, pa.string())
    )
