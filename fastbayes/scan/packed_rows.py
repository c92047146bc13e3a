"""Labelled rows that are read repeatedly: packed once, or read anew where they do not fit."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.batch import BLOCK_ROWS, Batch, Codes, code_type, joined, taken
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Schema
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder
from fastbayes.data.segments import Segment, Source
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.scan import row_blocks
from fastbayes.scan.deduplicate import SAMPLE, DistinctRows, countable, joint, repeats, summed
from fastbayes.scan.request import Counter, Partial, ScanRequest

Floats = NDArray[np.float64]
T = TypeVar("T")
# What a pass gives of a batch and the weights of its rows.
OfBatch = Callable[[Batch, "Floats | None"], Any]
# Encodes the blocks of a segment, with the weights of their rows.
Encoded = Callable[[], Iterable[tuple[Batch, "Floats | None"]]]

logger = logging.getLogger("fastbayes")

# Rows of a block of those that are packed together, wherever they were.
SAMPLE_BLOCK = BLOCK_ROWS // 4


def rereadable(source: Source) -> Source:
    """Return a source that can be read again: of a stream, its rows in memory."""
    return source if source.rereadable else open_source(in_memory(source))


def in_memory(source: Source) -> pa.Table:
    """Return all rows of a source as a table."""
    parts = [
        pa.Table.from_batches([block]) if isinstance(block, pa.RecordBatch) else block
        for segment in source.segments(BLOCK_ROWS)
        for block in segment.batches()
    ]
    if not parts:
        return source.schema.empty_table()
    return pa.concat_tables(parts, promote_options="permissive")


@dataclass(frozen=True)
class Reading:
    """Which rows to read, and how.

    source        the rows
    schema        columns, domains and classes
    layout        where the coefficients stand
    target        name of the class column
    weight        name of the weight column
    class_weight  (n_classes,) what weights are multiplied by
    threads       that read and go over the rows
    limit         bytes that packed rows may take
    held          the blocks of each segment, and the weights of their rows, where they are few and
                  encoded once, however often they are gone over
    """

    source: Source
    schema: Schema
    layout: Layout
    target: str
    weight: str | None
    class_weight: Floats | None
    threads: int
    limit: float
    held: list[list[tuple[Batch, Floats | None]]] | None = None

    def batches(self, encoder: Encoder, segment: Segment) -> Iterator[tuple[Batch, Floats | None]]:
        """Yield the blocks of a segment with the weights of their rows."""
        late = encoder.plain_numbers()
        for _, encoded in row_blocks.encoded_blocks(segment, encoder, late):
            batch = encoded.batch
            assert batch.classes is not None
            weight = batch.weight
            if self.class_weight is not None:
                share = self.class_weight[batch.classes]
                weight = share if weight is None else weight * share
            yield batch, weight

    def encoder(self) -> Encoder:
        """Return an encoder of the rows."""
        encoder = Encoder.applying_to(
            self.schema, self.source.schema, target=self.target, weight=self.weight
        )
        encoder.expect(self.source.n_rows)
        return encoder

    def parts(self) -> Iterable[Encoded]:
        """Yield the blocks of each segment, to be encoded where they are wanted."""
        if self.held is not None:
            return (partial(iter, segment) for segment in self.held)
        encoder = self.encoder()
        return (partial(self.batches, encoder, s) for s in self.source.segments(BLOCK_ROWS))

    def each(self, run: OfBatch) -> Iterator[list[tuple[Any, int, float]]]:
        """Yield what a pass returns of the blocks of each segment, their rows and weight."""

        def one(part: Encoded) -> list[tuple[Any, int, float]]:
            return [
                (run(batch, weight), batch.n_rows, _total(batch, weight))
                for batch, weight in part()
                if batch.n_rows
            ]

        yield from in_order(one, self.parts(), self.threads)

    def cells(self, n_rows: float) -> float:
        """Return the cells of rows, by which kernels are chosen: the more, the more outputs."""
        terms = len(self.schema.features) + len(self.layout.pairs)
        return n_rows * max(1, terms) * (1 + self.layout.n_outputs) / 2

    def passed(self, run: Travelling) -> PassSums:
        """Return the sums of all rows in one reading, wherever they are."""
        if isinstance(self.source, Counter):
            how = self.schema, self.layout, self.target, self.weight, self.class_weight
            return self.source.run(Passing(how, run)).value
        cells = self.cells(self.source.n_rows or BLOCK_ROWS)
        gradient = dispatch.load("fitting.gradient", cells).Gradient(self.layout)
        found, n, total = None, 0, 0.0
        for part, rows_of_part, weight in itertools.chain.from_iterable(
            self.each(run.of(gradient))
        ):
            part = part if isinstance(part, tuple) else (part,)
            found = part if found is None else _added(found, part)
            n, total = n + rows_of_part, total + weight
        return PassSums(found, n, total)


@dataclass
class PackedRows:
    """Rows, packed for the passes of logistic regression.

    Parameters
    ----------
    gradient
        Makes the passes.
    held
        The rows; None where they are read anew in every pass.
    total
        Sum of their weights.
    n_rows
        Rows, equal ones taken together where that was done.
    threads
        That go over the rows; they never change a bit of a result.
    scan
        Reads the rows and yields what a function returns of each part of them, in order.
    passes
        Times that the rows have been read.
    """

    gradient: Any
    held: list[Any] | None
    total: float
    n_rows: int
    threads: int
    scan: Callable[[Callable[[Any], Any]], Iterator[Any]] | None = None
    passes: float = field(default=0.0)

    def each(self, run: Callable[[Any], T]) -> Iterator[T]:
        """Return what a pass returns of each part of the rows, in order."""
        self.passes += 1.0
        if self.held is None:
            assert self.scan is not None
            return self.scan(run)
        if len(self.held) == 1:  # of few rows: what hands parts out would take as long as the pass
            return map(run, self.held)
        return in_order(run, self.held, self.threads)

    def sums(self, run: Callable[[Any], Any]) -> Any:
        """Return the sum of what a pass returns, an array or a loss and an array, in order."""
        parts = self.each(run)
        return reduce(_added, parts, next(parts, None))

    def hessian(self, theta: Floats) -> Any:
        """Return the Hessian; of rows that are held it keeps what its products need of each."""
        return self.gradient.hessian(theta, keep=self.held is not None)


class Travelling(Protocol):
    """A pass over rows, that may be pickled, to be made where they are."""

    def of(self, gradient: Any) -> OfBatch:
        """Return what it gives of a batch and its weights, by the passes of a `Gradient`."""
        ...


def over_packed(gradient: Any, run: Callable[[Any], Any]) -> OfBatch:
    """Return a pass over batches that packs each for a pass over packed rows."""
    return lambda batch, weight: run(gradient.packed(batch, weight))


class Pass(NamedTuple):
    """A pass over rows that travels: which method of a `Gradient` makes it, and of what."""

    name: str
    arguments: tuple[Floats, ...]

    def of(self, gradient: Any) -> OfBatch:
        """Return the pass where the rows are."""
        return over_packed(gradient, getattr(gradient, self.name)(*self.arguments))


class TravellingGradient:
    """What makes passes over rows that are elsewhere; see the `Gradient` of the kernels."""

    def loss_gradient(self, theta: Floats) -> Pass:
        """Return the pass of the loss and its gradient."""
        return Pass("loss_gradient", (theta,))

    def curvature(self, theta: Floats) -> Pass:
        """Return the pass that gives the diagonal of the Hessian."""
        return Pass("curvature", (theta,))

    def hessian(self, theta: Floats, keep: bool = False) -> TravellingHessian:
        """Return the Hessian, of which nothing is kept."""
        return TravellingHessian(theta)


class TravellingHessian(NamedTuple):
    """Second derivatives of the loss of rows that are elsewhere."""

    theta: Floats

    def matrix(self, products: float = 0.0) -> None:
        """Return no pass for all of them at once: see `ExpandedRows`."""

    def product(self, direction: Floats) -> Pass:
        """Return the pass that gives the product with a direction."""
        return Pass("hessian_product", (self.theta, direction))


class PassSums(NamedTuple):
    """What a pass over rows gives: its sums, None of no rows, and how many rows weigh how much."""

    found: tuple[Any, ...] | None
    n_rows: int
    total: float


@dataclass(frozen=True)
class Passing(ScanRequest[PassSums]):
    """A pass over rows; `how` is what `Reading` says of them."""

    how: tuple[Schema, Layout, str, str | None, Floats | None]
    run: Travelling

    def count(self, rows: Source, threads: int | None) -> Partial[PassSums]:
        """Return the sums of rows."""
        found = Reading(rows, *self.how, resolved_threads(threads), 0.0).passed(self.run)
        return Partial(found.n_rows if rows.n_rows is None else rows.n_rows, found)

    def zero(self) -> PassSums:
        """Return the sums of no rows."""
        return PassSums(None, 0, 0.0)

    def add(self, a: PassSums, b: PassSums) -> PassSums:
        """Return the sums of the rows of both."""
        n, total = a.n_rows + b.n_rows, a.total + b.total
        if a.found is None or b.found is None:
            return PassSums(b.found if a.found is None else a.found, n, total)
        return PassSums(_added(a.found, b.found), n, total)

    def to_bytes(self, value: PassSums) -> bytes:
        """Return the bytes of sums."""
        found = () if value.found is None else value.found
        arrays = {str(i): np.asarray(part, np.float64) for i, part in enumerate(found)}
        numbers = {"n_rows": value.n_rows, "total": value.total.hex()}
        return files.to_bytes({"kind": "pass", **numbers}, arrays)

    def from_bytes(self, data: bytes) -> PassSums:
        """Return the sums whose bytes these are."""
        header, arrays = files.from_bytes(data, f"{len(data):,} bytes")
        parts = (arrays[str(i)] for i in range(len(arrays)))
        found = tuple(part.item() if part.ndim == 0 else part for part in parts)
        numbers = header["n_rows"], float.fromhex(header["total"])
        return PassSums(found or None, *numbers)


@dataclass
class RowsElsewhere(PackedRows):
    """Rows that workers read in every pass, where they lie."""

    reading: Reading | None = None

    @classmethod
    def of(cls, reading: Reading) -> RowsElsewhere:
        """Return the rows, once it is known what they weigh."""
        layout, gradient = reading.layout, TravellingGradient()
        start = gradient.curvature(np.zeros((layout.n_rows, layout.n_outputs)))
        _, n_rows, total = reading.passed(start)
        return cls(gradient, None, total, n_rows, reading.threads, reading=reading)

    def sums(self, run: Any) -> Any:
        """Return what a pass gives of all rows."""
        return self.passed(run)

    def passed(self, run: Travelling) -> Any:
        """Return what a pass gives of all rows, in a reading of its own."""
        assert self.reading is not None
        self.passes += 1.0
        found = self.reading.passed(run).found
        return found if found is None or len(found) > 1 else found[0]


class _PackedPart(NamedTuple):
    """What one segment left behind."""

    packed: list[Any]
    sample: list[tuple[Batch, Floats | None]]
    n_rows: int
    total: float


class _Thinned:
    """Takes rows as they come, and gives one of every so many, in blocks of one size.

    every   of how many rows one is given
    """

    def __init__(self, every: int) -> None:
        self.every, self.seen, self.n_waiting = every, 0, 0
        self.waiting: list[tuple[Batch, Floats]] = []

    def of(
        self, parts: Iterable[tuple[Batch, Floats | None]], *, last: bool = False
    ) -> list[tuple[Batch, Floats]]:
        """Return the blocks that further rows fill, and if they are the last what is left."""
        for batch, weight in parts:
            rows = spread(batch.n_rows, self.every, self.seen)
            self.seen += batch.n_rows
            if len(rows):
                own = np.ones(len(rows)) if weight is None else weight[rows]
                self.waiting.append((taken(batch, rows), own))
                self.n_waiting += len(rows)
        if not self.waiting or (self.n_waiting < SAMPLE_BLOCK and not last):
            return []
        batch = joined([some for some, _ in self.waiting])
        weights = np.concatenate([own for _, own in self.waiting])
        ends = blocks(self.n_waiting)
        found = [(taken(batch, np.arange(a, b)), weights[a:b].copy()) for a, b in ends]
        short = not last and found[-1][0].n_rows < SAMPLE_BLOCK
        self.waiting = [found.pop()] if short else []
        self.n_waiting = sum(some.n_rows for some, _ in self.waiting)
        return found


class _Sample(_Thinned):
    """One of every so many of the rows that are picked, kept where they fit.

    kept    the blocks, None where they are picked anew in every pass
    weight  sum of the weights of `n_rows` rows
    """

    def __init__(self, every: int, *, fits: bool) -> None:
        super().__init__(every)
        self.kept: list[tuple[Batch, Floats]] | None = [] if fits else None
        self.n_rows, self.weight = 0, 0.0

    def take(self, parts: Iterable[tuple[Batch, Floats | None]], *, last: bool = False) -> None:
        """Take further rows."""
        for block in self.of(parts, last=last):
            self.n_rows += block[0].n_rows
            self.weight += float(block[1].sum())
            if self.kept is not None:
                self.kept.append(block)

    def packed(
        self, gradient: Any, total: float, threads: int, picks: Callable[[], Iterator[Any]]
    ) -> PackedRows:
        """Return the rows, their weights scaled to a total; `picks` reads them anew."""
        scale, every = total / max(self.weight, 1e-300), self.every

        def scan(run: Callable[[Any], Any]) -> Iterator[Any]:
            thinned = _Thinned(every)
            for parts in itertools.chain(picks(), [None]):
                for batch, weight in thinned.of(parts or (), last=parts is None):
                    yield run(gradient.packed(batch, weight * scale))

        held = self.kept and [gradient.packed(batch, w * scale) for batch, w in self.kept]
        return PackedRows(gradient, held, total, self.n_rows, threads, scan)


def read_rows(reading: Reading, n_rows: int, steps: Sequence[int] = ()) -> list[PackedRows]:
    """Read rows once; return them, and nested samples of them.

    Parameters
    ----------
    reading
        Which rows.
    n_rows
        How many there are, more or less.
    steps
        Of which number of rows each sample has one, descending: the sparsest comes first. None is
        taken where equal rows are taken together, nor of few.

    What does not fit is read anew in every pass, to the same bits.

    Returns
    -------
    list
        The samples, their weights scaled so that they sum to those of all, and then the rows.
    """
    if isinstance(reading.source, Counter):
        return [RowsElsewhere.of(reading)]
    sizes = _joint_sizes(reading.schema)
    if sizes is not None:
        if (reading.source.n_rows or SAMPLE) < SAMPLE:
            # No sample of them tells whether they repeat: they are encoded before it is known.
            # What encodes a block writes the next one to the same memory.
            encoded = [[_copied(*block) for block in part()] for part in reading.parts()]
            reading = replace(reading, held=encoded)
        together = _equal_rows(reading, sizes)
        if together is not None:
            return [together]
    gradient = dispatch.load("fitting.gradient", reading.cells(n_rows)).Gradient(reading.layout)

    def read(part: Encoded, keep: bool) -> _PackedPart:
        packed, sample, n, total = [], [], 0, 0.0
        for batch, weight in part():
            if not batch.n_rows:
                continue
            n += batch.n_rows
            total += _total(batch, weight)
            if keep:
                packed.append(gradient.packed(batch, weight))
            if steps:
                sample.append(_one_of(steps[-1], batch, weight))
        return _PackedPart(packed, sample, n, total)

    held: list[Any] | None = []
    # They are held twice while they are packed: codes, numbers and the weight of each row.
    each = 4 * (2 * len(reading.layout.sizes) + 8 * reading.layout.n_numeric + 8)
    samples = [
        _Sample(step // steps[-1], fits=n_rows // step * each <= reading.limit) for step in steps
    ]
    n, total, size = 0, 0.0, 0
    # Workers look whether the rows still fit: those that do not are not packed in vain.
    fits = [True]
    for part in in_order(lambda p: read(p, fits[0]), reading.parts(), reading.threads):
        n, total = n + part.n_rows, total + part.total
        for sample in samples:
            sample.take(part.sample)
        size += sum(packed.nbytes for packed in part.packed)
        if held is not None:
            held += part.packed
            if size * max(1.0, n_rows / max(n, 1)) > reading.limit:
                held, fits[0] = None, False
    if held is None:
        logger.info("packed rows would take over %d bytes: they are read in every pass",
                    int(reading.limit))  # fmt: skip

    def scan(run: Callable[[Any], Any]) -> Iterator[Any]:
        parts = itertools.chain.from_iterable(reading.each(over_packed(gradient, run)))
        return (found for found, _, _ in parts)

    def picks() -> Iterator[list[tuple[Batch, Floats | None]]]:
        def one(part: Encoded) -> list[tuple[Batch, Floats | None]]:
            return [_one_of(steps[-1], *block) for block in part()]

        return in_order(one, reading.parts(), reading.threads)

    for sample in samples:
        sample.take((), last=True)
    found = [s.packed(gradient, total, reading.threads, picks) for s in samples if s.n_rows]
    return [*found, PackedRows(gradient, held, total, n, reading.threads, scan)]


def _one_of(step: int, batch: Batch, weight: Floats | None) -> tuple[Batch, Floats | None]:
    rows = spread(batch.n_rows, step)
    return taken(batch, rows), None if weight is None else weight[rows]


def _copied(batch: Batch, weight: Floats | None) -> tuple[Batch, Floats | None]:
    return taken(batch, np.arange(batch.n_rows)), None if weight is None else weight.copy()


def _added(total: Any, part: Any) -> Any:
    return tuple(map(add, total, part)) if isinstance(part, tuple) else total + part


def _total(batch: Batch, weight: Floats | None) -> float:
    return float(batch.n_rows if weight is None else weight.sum())


_JITTER = np.random.default_rng(0).random(BLOCK_ROWS)


def spread(n: int, step: int, before: int = 0) -> NDArray[np.int64]:
    """Return one of every `step` of n rows, at places that follow no period.

    before  Rows that these come after, so that parts give what all rows do.
    """
    each = np.arange(before // step, -(-(before + n) // step), dtype=np.int64)
    rows = each * step + (_JITTER[each % BLOCK_ROWS] * step).astype(np.int64) - before
    return rows[(rows >= 0) & (rows < n)]


def blocks(n: int) -> Iterable[tuple[int, int]]:
    """Return the ends of blocks of n rows."""
    return itertools.pairwise([*range(0, n, SAMPLE_BLOCK), n])


def _joint_sizes(schema: Schema) -> NDArray[np.int64] | None:
    """Return the codes of each column and of the class, None where rows cannot be numbered."""
    sizes = np.array([*(f.size + 2 for f in schema.categorical), len(schema.classes)], np.int64)
    return None if schema.numeric or not countable(sizes) else sizes


def _equal_rows(reading: Reading, sizes: NDArray[np.int64]) -> PackedRows | None:
    """Return the different rows with the weights of all, None where there are too many."""
    schema, layout, room = reading.schema, reading.layout, math.prod(sizes.tolist())
    hopeless = [False]

    def read(part: Encoded) -> list[tuple[NDArray[np.int64], Floats, int, Batch]]:
        found = []
        for batch, weight in part():
            if hopeless[0] or not batch.n_rows:
                break
            columns = columns_of(batch.codes)
            assert batch.classes is not None
            each = (columns[feature] for feature in range(len(schema.categorical)))
            codes = joint([*each, batch.classes], sizes)
            if batch.n_rows >= SAMPLE and not repeats(codes):
                hopeless[0] = True
                break
            few = replace(taken(batch, np.arange(0)), weight=None)
            found.append((*summed(codes, weight, room), batch.n_rows, few))
        return found

    equal, template = DistinctRows(sizes), None
    for part in in_order(read, reading.parts(), reading.threads):
        for codes, weight, n, few in part:
            template = few
            if not equal.add(codes, weight, n):
                hopeless[0] = True
        if hopeless[0]:
            return None
    if template is None:
        return None
    columns, weight = equal.result()
    n = len(weight)
    if n > 0.5 * equal.n_rows:
        return None
    cells = reading.cells(n)
    gradient = dispatch.load("fitting.gradient", cells).Gradient(layout)
    kind = code_type(int(sizes.max()))
    matrix: NDArray[Any] = np.array(columns[:-1]).astype(kind).reshape(len(columns) - 1, n)
    assert template.classes is not None
    group = Codes(np.arange(len(matrix), dtype=np.int64), matrix, sizes[:-1])
    classes = columns[-1].astype(template.classes.dtype)
    batch = replace(template, n_rows=n, classes=classes, codes=(group,), cells=cells)
    held = [
        gradient.packed(taken(batch, np.arange(a, b)), np.ascontiguousarray(weight[a:b]))
        for a, b in blocks(n)
    ]
    logger.info("%d rows are %d different ones to the model", equal.n_rows, n)
    return PackedRows(gradient, held, float(weight.sum()), n, reading.threads)
