"""The rows of a preset: each chunk drawn on its own from (seed, chunk)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.generate.tables import PRESETS, Categorical, Identifier, Number
from fastbayes.scan.engine import in_order, resolved_threads

# Rows drawn from one seed sequence. Changing it, or the order of the draws, changes every table.
CHUNK = 65_536
# Probabilities are multiples of 1/4096, so that one look-up by 12 random bits draws a value.
GRAIN_BITS = 12


class _CategoricalSampler:
    """Draws codes of a categorical column: `table[cell, 12 random bits]`."""

    def __init__(
        self, column: Categorical, n_classes: int, n_parents: int, rng: np.random.Generator
    ) -> None:
        rows = _base(column)[None, :]
        if n_classes:
            rows = rng.dirichlet(column.by_class * rows[0], n_classes)
        if column.parent is not None:
            around = np.maximum(column.by_parent * rows, 1e-3)
            rows = np.concatenate([rng.dirichlet(a, n_parents) for a in around])
        self.column, self.size = column, rows.shape[1]
        self.grains = _grains(rows)
        codes = np.tile(np.arange(self.size, dtype=np.uint8), len(rows))
        self.table = np.repeat(codes, self.grains.ravel())
        self.values = pa.array(column.values)
        if pa.types.is_integer(self.values.type):
            self.values = self.values.cast(pa.int8())
        self.text = pa.types.is_string(self.values.type)
        self.type = pa.dictionary(pa.int8(), pa.string()) if self.text else self.values.type

    def draw(self, rng: np.random.Generator, cell: Any, above: Any) -> NDArray[Any]:
        index = cell << GRAIN_BITS
        index += rng.integers(0, 1 << 16, len(index), np.uint16) >> (16 - GRAIN_BITS)
        return self.table[index]

    def array(self, codes: NDArray[Any], null: NDArray[np.bool_] | None) -> pa.Array:
        indices = pa.array(codes.view(np.int8), mask=null)
        if self.text:
            return pa.DictionaryArray.from_arrays(indices, self.values)
        return self.values.take(indices)


class _NumberSampler:
    """Draws z = shift[cell] + slope[cell] * z of a numeric parent + scale[cell] * noise."""

    def __init__(
        self, column: Number, n_classes: int, n_parents: int, rng: np.random.Generator
    ) -> None:
        self.column, self.size = column, 1
        n_cells = n_classes * n_parents
        self.shift = rng.normal(0.0, column.separation, n_cells)
        self.slope = rng.uniform(-0.8, 0.8, n_cells)
        self.scale = rng.uniform(0.7, 1.3, n_cells)
        self.type = pa.int32() if column.integer else pa.float64()

    def draw(self, rng: np.random.Generator, cell: Any, above: Any) -> NDArray[Any]:
        z = rng.standard_normal(len(cell))
        z *= self.scale[cell]
        if above is not None and above.dtype == np.float64:
            slope = self.slope[cell]
            z = z * np.sqrt(1 - slope**2) + slope * above
        return z + self.shift[cell]

    def array(self, z: NDArray[Any], null: NDArray[np.bool_] | None) -> pa.Array:
        c = self.column
        x = c.mean * np.exp(c.sd * z) if c.log else c.mean + c.sd * z
        np.clip(x, c.low, c.high, out=x)
        return pa.array(np.rint(x).astype(np.int32) if c.integer else x, mask=null)


class _IdentifierSampler:
    """Draws v = (floor(distinct * u ** 3) + offset[cell]) mod distinct."""

    type = pa.string()

    def __init__(
        self, column: Identifier, n_classes: int, n_parents: int, rng: np.random.Generator
    ) -> None:
        self.column, self.size = column, 1
        self.offset = rng.integers(0, column.distinct, n_classes * n_parents)
        width = len(str(column.distinct - 1))
        digits = pc.utf8_lpad(pa.array(np.arange(column.distinct)).cast(pa.string()), width, "0")
        self.values = pc.binary_join_element_wise(column.prefix, digits, "")

    def draw(self, rng: np.random.Generator, cell: Any, above: Any) -> NDArray[Any]:
        u = rng.random(len(cell))
        v = (self.column.distinct * (u * u * u)).astype(np.int64) + self.offset[cell]
        return np.where(v < self.column.distinct, v, v - self.column.distinct)

    def array(self, v: NDArray[Any], null: NDArray[np.bool_] | None) -> pa.Array:
        return self.values.take(pa.array(v, mask=null))


_SAMPLER: dict[type, Any] = {
    Categorical: _CategoricalSampler,
    Number: _NumberSampler,
    Identifier: _IdentifierSampler,
}


def _base(column: Categorical) -> NDArray[np.float64]:
    """Return the distribution that all cells of a categorical column are near."""
    weights = np.arange(1.0, len(column.values) + 1) ** -column.skew
    if column.modal is not None:
        weights[1:] *= (1 - column.modal) / weights[1:].sum()
        weights[0] = column.modal
    return weights / weights.sum()


def _grains(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round each row of probabilities to whole grains that sum to 2**12, by largest remainder."""
    exact = rows * (1 << GRAIN_BITS)
    grains = np.floor(exact).astype(np.int64)
    rank = np.argsort(np.argsort(grains - exact, axis=1, kind="stable"), axis=1)
    return grains + (rank < (1 << GRAIN_BITS) - grains.sum(axis=1, keepdims=True))


class Sampler:
    """A preset with the probabilities that its seed gives it."""

    def __init__(self, name: str, seed: int, missing: float | None) -> None:
        if name not in PRESETS:
            raise ValueError(f"preset {name!r} is not one of {', '.join(PRESETS)}")
        if missing is not None and not 0 <= missing <= 1:
            raise ValueError(f"missing={missing}: give the share of nulls, between 0 and 1")
        preset, self.seed = PRESETS[name], seed
        # The bare seed gives the probabilities; its children (chunk, stream) give the rows.
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        self.target = _CategoricalSampler(preset.target, 0, 1, rng)
        self.columns: dict[str | None, Any] = {}
        for column in preset.columns:
            above = self.columns[column.parent].size if column.parent else 1
            make = _SAMPLER[type(column)]
            self.columns[column.name] = make(column, self.target.size, above, rng)
        self.null = [
            round((column.missing if missing is None else missing) * (1 << 16))
            for column in preset.columns
        ]
        fields = [pa.field(c.column.name, c.type) for c in (*self.columns.values(), self.target)]
        self.schema = pa.schema(fields)

    def chunk(self, chunk: int, n: int) -> pa.RecordBatch:
        """Return the first n rows of a chunk; they do not depend on n."""
        # Two streams a column, so that nulls never change the other values.
        seeds = np.random.SeedSequence(self.seed, spawn_key=(chunk,))
        streams = [_stream(s) for s in seeds.spawn(1 + 2 * len(self.columns))]
        classes = self.target.draw(streams[0], np.zeros(n, np.intp), None)
        cell = classes.astype(np.intp)
        drawn: dict[str | None, NDArray[Any]] = {}
        arrays = []
        for j, (name, sampler) in enumerate(self.columns.items()):
            parent = sampler.column.parent
            above, size = drawn.get(parent), self.columns[parent].size if parent else 1
            where = cell * size + above if size > 1 else cell
            drawn[name] = sampler.draw(streams[1 + 2 * j], where, above)
            mask = None
            if self.null[j]:
                mask = streams[2 + 2 * j].integers(0, 1 << 16, n, np.uint16) < self.null[j]
            arrays.append(sampler.array(drawn[name], mask))
        arrays.append(self.target.array(classes, None))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def batches(self, rows: int, threads: int | None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the chunks of a table in order, drawn a little ahead on several threads."""
        sizes = ((start // CHUNK, min(CHUNK, rows - start)) for start in range(0, rows, CHUNK))
        yield from in_order(lambda item: self.chunk(*item), sizes, resolved_threads(threads))


def _stream(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))
