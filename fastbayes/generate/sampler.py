"""The rows of a preset: each chunk drawn on its own from (seed, chunk)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.suggestions import use_one_of
from fastbayes.core.threads import in_order, resolved_threads


@dataclass(frozen=True, slots=True)
class Categorical:
    """Values drawn from one distribution for each (class, parent value).

    values     at most 128 strings (a dictionary column), integers or booleans
    parent     an earlier categorical column; None: the class alone
    skew       base probability of the i-th value is proportional to (i + 1) ** -skew
    modal      base probability of the first value, the others sharing the rest by `skew`
    by_class   concentration of the Dirichlet of each class around the base
    by_parent  concentration of the Dirichlet of each parent value around its class;
               small concentrations mean strong dependence
    missing    share of nulls
    """

    name: str
    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    parent: str | None = None
    skew: float = 0.5
    modal: float | None = None
    by_class: float = 60.0
    by_parent: float = 60.0
    missing: float = 0.0


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric column: mean + sd * z, or mean * exp(sd * z), with z about standard normal.

    parent      an earlier column: a categorical one shifts z, a numeric one correlates with it
    separation  standard deviation of the shifts of z between classes and parent values
    log         whether the column is log-normal
    integer     whether it is rounded to int32
    low, high   clip the column here
    """

    name: str
    mean: float = 0.0
    sd: float = 1.0
    parent: str | None = None
    separation: float = 0.5
    log: bool = False
    integer: bool = False
    low: float = -np.inf
    high: float = np.inf
    missing: float = 0.0


@dataclass(frozen=True, slots=True)
class Identifier:
    """Strings of many distinct values: the frequent ones differ with the class and the parent.

    Value v has density proportional to v ** (-2/3), rotated by an offset of its own for each
    (class, parent value).
    """

    name: str
    prefix: str
    distinct: int
    parent: str | None = None
    missing: float = 0.0


Column = Categorical | Number | Identifier


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of table: its columns, each naming its parent, and the target, written last."""

    about: str
    target: Categorical
    columns: tuple[Column, ...]


def _names(prefix: str, n: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i:0{len(str(n - 1))}d}" for i in range(n))


def _classes(n: int, skew: float = 0.3) -> Categorical:
    return Categorical("class", _names("class", n), skew=skew)


def _tree(n: int, low: int, high: int, **options: Any) -> tuple[Categorical, ...]:
    """Return n categorical columns of low to high values; column i hangs from (i - 1) // 2."""
    names = _names("x", n)
    return tuple(
        Categorical(
            name,
            _names("v", low + i * 13 % (high - low + 1)),
            parent=names[(i - 1) // 2] if i else None,
            skew=(0.2, 0.6, 1.0)[i % 3],
            **options,
        )
        for i, name in enumerate(names)
    )


def _numbers(n: int, separation: float, parents: tuple[str, ...] = ()) -> tuple[Number, ...]:
    """Return n numeric columns on several scales, each below the one before or below `parents`."""
    names = _names("u", n)
    above: tuple[str | None, ...] = parents or (None, *names[:-1])
    return tuple(
        Number(name, mean=10.0 * i, sd=(0.01, 1.0, 50.0)[i % 3], parent=above[i % len(above)],
               separation=separation)
        for i, name in enumerate(names)
    )  # fmt: skip


_FLIGHTS = Preset(
    "flights that leave late or not: text, integers, numbers, a flag, a few missing",
    Categorical("delayed", ("no", "yes"), modal=0.79),
    (
        Categorical("carrier", ("WN", "DL", "AA", "OO", "UA", "B6", "AS", "YX", "NK", "MQ", "F9"),
                    skew=0.8),
        Categorical("origin", _names("A", 60), parent="carrier", skew=0.9, by_class=900,
                    by_parent=600),
        Categorical("dest", _names("B", 60), parent="origin", skew=0.9, by_class=900,
                    by_parent=600),
        Categorical("month", tuple(range(1, 13)), skew=0, by_class=200),
        Categorical("weekday", ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
                    skew=0, by_class=300),
        Categorical("dep_hour", tuple(range(5, 24)), parent="carrier", skew=0, by_class=120,
                    by_parent=120),
        Categorical("holiday", (False, True), parent="month", modal=0.95),
        Categorical("aircraft", ("B738", "A320", "A321", "E75L", "CRJ9", "B739", "A319", "B752"),
                    parent="carrier", skew=0.4, by_class=300, by_parent=5),
        Identifier("tail_number", "N", 5000, parent="aircraft"),
        Number("distance", mean=800, sd=0.6, parent="dest", separation=0.3, log=True,
               integer=True, low=60, high=5000),
        Number("air_time", mean=115, sd=65, parent="distance", separation=0.1, low=18,
               missing=0.01),
        Number("taxi_out", mean=15, sd=0.35, parent="origin", separation=0.3, log=True),
        Number("wind_knots", mean=9, sd=0.5, parent="month", separation=0.3, log=True,
               missing=0.03),
        Categorical("sky", ("clear", "few", "scattered", "broken", "overcast", "storm"),
                    parent="month", skew=0.7, by_class=30, missing=0.02),
    ),
)  # fmt: skip

_SURVEY = Preset(
    "a questionnaire: integers, booleans, text, 2-18 % missing in every column, 3 classes",
    Categorical("satisfaction", ("low", "middle", "high"), skew=-0.4),
    (
        Number("age", mean=46, sd=17, integer=True, low=18, high=99, missing=0.02),
        Categorical("region", ("north", "east", "south", "west", "centre", "islands"),
                    skew=0.6, by_class=200, missing=0.02),
        Categorical("education", ("primary", "secondary", "vocational", "bachelor", "master"),
                    parent="region", skew=0.2, missing=0.04),
        Categorical("employed", (True, False), parent="education", by_parent=20, missing=0.03),
        Number("income", mean=32_000, sd=0.55, parent="education", separation=0.3, log=True,
               missing=0.18),
        Categorical("household", tuple(range(1, 9)), skew=0.9, by_class=200, missing=0.02),
        Categorical("children", (False, True), parent="household", by_parent=4, missing=0.02),
        Categorical("owner", (False, True), parent="household", by_parent=20, missing=0.05),
        Categorical("channel", ("web", "phone", "post", "interview", "proxy"),
                    skew=2.5, missing=0.02),
        *(Categorical(f"q{i:02d}", (3, 4, 2, 5, 1), parent=f"q{i - 1:02d}" if i else None,
                      skew=0.4, by_class=30, by_parent=60, missing=0.05 + i * 0.005)
          for i in range(12)),
    ),
)  # fmt: skip

_WORDS = tuple(
    Categorical(f"word{i:03d}", tuple(range(8)), modal=0.97 - 0.5 / (1 + i), skew=2, by_class=150)
    for i in range(200)
)

_FEW = _tree(4, 2, 12)
_TREE = _tree(15, 2, 10, by_class=80, by_parent=100)

PRESETS: dict[str, Preset] = {
    "flights": _FLIGHTS,
    "survey": _SURVEY,
    "cat": Preset("30 categorical columns of 2-12 values, 4 classes",
                  _classes(4), _tree(30, 2, 12, by_class=90, by_parent=60)),
    "binary": Preset("50 categorical columns of 2-4 values, 2 classes",
                     _classes(2), _tree(50, 2, 4, by_class=90, by_parent=120)),
    "long": Preset("20 categorical columns of 2-8 values, 2 classes: for many rows",
                   _classes(2), _tree(20, 2, 8, by_class=50, by_parent=60)),
    "wide": Preset("300 categorical columns of 2-5 values, 2 classes",
                   _classes(2), _tree(300, 2, 5, by_class=500, by_parent=500)),
    "gauss": Preset("30 double columns, each correlated with the one before, 3 classes",
                    _classes(3), _numbers(30, 0.3)),
    "mixed": Preset("10 double and 15 categorical columns, 3 classes", _classes(3),
                    (*_TREE, *_numbers(10, 0.3, parents=tuple(c.name for c in _TREE)))),
    "skewed": Preset("30 columns whose commonest value fills about 97 % of the rows, 2 classes",
                     Categorical("class", ("common", "rare"), modal=0.9),
                     _tree(30, 2, 12, modal=0.97, by_class=80, by_parent=150)),
    "high": Preset("4 text columns of 1e3, 1e4, 1e5 and 1e6 values, 4 of 2-12, 2 classes",
                   _classes(2),
                   (*_FEW, *(Identifier(f"id{e}", f"k{e}_", 10**e, parent=_FEW[e - 3].name)
                             for e in range(3, 7)))),
    "text-counts": Preset("200 columns of small counts, most of them 0, 4 classes",
                          _classes(4), _WORDS),
}  # fmt: skip


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
            raise ValueError(f"preset={name!r}: {use_one_of(name, PRESETS)}")
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
        own = seeds.spawn(1 + 2 * len(self.columns))
        streams = [np.random.Generator(np.random.SFC64(seed)) for seed in own]
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
