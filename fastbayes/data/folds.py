"""Which fold each row of a source belongs to: by its place, or by a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.domains import value_type
from fastbayes.core.doubles import doubles
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.numbers import is_whole
from fastbayes.core.suggestions import meant_column
from fastbayes.data.columns import check_number
from fastbayes.data.encode import Encoder, filtered
from fastbayes.data.segments import Segment, Source, SourceView, combine, join, numbers, reblock
from fastbayes.data.unify import without_dictionary
from fastbayes.kernels import dispatch

Codes = NDArray[np.int64]
# How many folds of at most so many rows, the fewest first.
ByRows = Sequence[tuple[int, int]]
Work = Callable[[Callable[[Segment], list[pa.RecordBatch]], Iterator[Segment]], Iterable[Any]]

# Folds where nothing else is said: by what models are judged, and by what a blend weighs them; and
# of all other rows.
FEW_ROWS: ByRows = ((100, 20), (1_000, 10))
FEW_OF_BLEND: ByRows = ((100, 20), (300, 10))
FOLDS = 5
# Of more rows the number of folds is the same, whatever it is.
MANY_ROWS = FEW_ROWS[-1][0] + 1


class Folds(ABC):
    """Numbers the fold of every row, whatever the threads.

    Attributes
    ----------
    column
        Name of the column that tells the fold; None where it is the place.
    """

    column: str | None = None

    @abstractmethod
    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""

    @abstractmethod
    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their final order, and their names; to be asked after a scan."""


def checked_seed(seed: Any) -> int:
    """Return the seed of a random order."""
    if not is_whole(seed):
        raise ValueError(f"seed={seed!r}: use a whole number")
    return int(seed)


class NumberedFolds(Folds):
    """k folds that have no names but their numbers."""

    k: int

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their order, and their numbers."""
        return list(range(self.k)), tuple(map(str, range(self.k)))


class FoldsByPlace(NumberedFolds):
    """Folds of equal size: every k rows in succession fall into k folds, in a random order.

    The place is that among all rows of the source, those that take no part, too, however they are
    cut into files and row groups; where it is not known, as of text that threads read, that within
    the segment.
    """

    def __init__(self, k: int, seed: int = 0) -> None:
        self.k, self.seed = k, checked_seed(seed)

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        n, k, known = rows.num_rows, self.k, segment.before >= 0
        done += segment.before if known else 0
        first, last = done // k, -(-(done + n) // k)
        at = np.arange(first * k, last * k, dtype=np.uint64)
        start = np.array([self.seed % (1 << 64), 0 if known else segment.index], np.uint64)
        start = scrambled(start)[:1] ^ scrambled(scrambled(start)[1:])
        order = np.argsort(scrambled(at ^ start).reshape(-1, k), axis=1, kind="stable")
        folds = np.empty(order.shape, np.int64)
        np.put_along_axis(folds, order, np.arange(k)[None], axis=1)
        return folds.reshape(-1)[done - first * k :][:n]


class FoldsByClass(NumberedFolds):
    """Folds of equal size in which each class has its share: its rows are dealt to them in turn.

    A class of few rows loses as few of them as can be to the models that are judged by it. Rows
    without a class or of weight 0, which take no part, change the folds of no other.

    codes  The fold of each row of each segment, by the segment's index.
    """

    def __init__(self, k: int, codes: Mapping[int, Codes]) -> None:
        self.k, self._codes = k, codes

    @classmethod
    def dealt(
        cls,
        source: Source,
        target: str,
        k: int | None = None,
        seed: int = 0,
        weight: str | None = None,
        few: ByRows = FEW_ROWS,
    ) -> Self:
        """Return k folds of the rows of a source, which are read; they come in a random order.

        By default as many as `folds_for` says, of these `few`.
        """
        value_type(target, source.schema.field(target).type, "the class")
        start = scrambled(np.array([checked_seed(seed) % (1 << 64)], np.uint64))
        labels, sizes = list[pa.Array](), dict[int, int]()
        heavy = list[NDArray[np.bool_]]()
        for segment in source.segments(BLOCK_ROWS):
            sizes[segment.index] = 0
            for rows in segment.batches():
                labels.append(without_dictionary(rows.column(target)))
                sizes[segment.index] += rows.num_rows
                if weight is not None:
                    heavy.append(_above_0(weight, rows.column(weight)))
        n = sum(sizes.values())
        codes = np.zeros(n, np.int64)
        if labels:
            codes = combine(labels).dictionary_encode().indices
            codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        part = (codes >= 0) & (np.concatenate(heavy) if heavy else True)
        # In the order in which they appear among these rows.
        _, first, classes = np.unique(codes[part], return_index=True, return_inverse=True)
        classes = first.argsort().argsort()[classes]
        n_part = len(classes)
        k = folds_for(n_part, np.bincount(classes).tolist(), few) if k is None else k
        at = scrambled(np.arange(n_part, dtype=np.uint64) ^ start)
        turn = np.empty(n_part, np.int64)
        turn[np.lexsort((at, classes))] = np.arange(n_part)
        folds = np.empty(n, np.int64)
        folds[part], folds[~part] = turn % k, np.arange(n_part, n) % k
        ends = np.cumsum([0, *sizes.values()])
        parts = (folds[first:last] for first, last in pairwise(ends))
        return cls(k, dict(zip(sizes, parts, strict=True)))

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        return self._codes[segment.index][done : done + rows.num_rows]


def _above_0(name: str, weights: pa.Array) -> NDArray[np.bool_]:
    """Return where weights are above 0; SchemaError where they are no numbers."""
    check_number(name, weights.type, "the weights")
    numbers = doubles(weights).fill_null(0.0)
    return np.asarray(numbers.to_numpy(zero_copy_only=False) > 0)


# Up to so many rows a class that lacks one row seems rarer by much; most and fewest folds then.
FEWEST_ROWS, MOST_OF_FEWEST, LEAST_OF_FEWEST = 20, 10, 3


def folds_for(n_rows: int, classes: Sequence[int] = (), few: ByRows = FEW_ROWS) -> int:
    """Return how many folds judge models of so many rows, where nothing else is said.

    Models of k - 1 of k folds have fewer rows than the one that is judged, and seem worse than it
    by about c/(n (k - 1)) nats, where c/n is what a model of n rows loses to one of many. So the
    fewer the rows, the more folds, which then cost little: 20 up to 100 rows, 10 up to 1,000 and 5
    beyond. Weights of models need less than figures of each: a blend of 5 folds is as good from 300
    rows on.

    Of up to 20 rows they are as many as the smallest class that has two has rows, from 3 to 10:
    each fold then takes about the same share of every class. Were each row a fold, its own class
    would have one row less than the others where it is scored, and a model of many columns that
    favours the smaller class would be right, of labels drawn at random too.

    classes  how many rows each class has
    few      folds of at most so many rows

    References
    ----------
    Burman (1989), A comparative study of ordinary cross-validation, v-fold cross-validation and
    the repeated learning-testing methods, Biometrika 76.
    """
    folds = next((k for most, k in few if n_rows <= most), FOLDS)
    if n_rows <= FEWEST_ROWS:
        least = min((n for n in classes if n > 1), default=MOST_OF_FEWEST)
        folds = min(max(least, LEAST_OF_FEWEST), MOST_OF_FEWEST)
    return max(2, min(folds, n_rows))


class FoldsByColumn(Folds):
    """A fold for each value that rows have in a column; its dictionary may hold others."""

    def __init__(self, columns: pa.Schema, column: str) -> None:
        if column not in columns.names:
            raise SchemaError(
                f"folds: there is no column {column!r}; there are {columns.names}"
                + meant_column(column, columns.names)
            )
        value_type(column, columns.field(column).type, "the folds")
        self.column = column
        self._encoder = Encoder.learning(columns.empty_table().select([column]).schema, column)
        self._met: set[int] = set()  # codes of the values that rows have

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        place = segment.place(done)
        encoded = self._encoder.encode(rows, place)
        if encoded.dropped:
            null = rows.column(self.column).is_null(nan_is_null=True)
            at = pc.index(null, True).as_py()
            raise DataError(
                f"column {self.column!r}, {place.row(at)}: there is no fold; name one for each row"
            )
        assert encoded.batch.classes is not None
        codes = encoded.batch.classes.astype(np.int64)
        self._met.update(np.flatnonzero(np.bincount(codes)).tolist())
        return codes

    def know(self, values: pa.Array) -> None:
        """Take values that were met elsewhere."""
        self._book.widen(values.type)
        codes = self._book.encode(values, dispatch.numpy_twin("reading.encode"))
        self._met.update(codes.tolist())

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in the order of the column's values, and these as text."""
        order = self._order()
        return order.to_pylist(), tuple(map(str, self.ordered().to_pylist()))

    def ordered(self) -> pa.Array:
        """Return the values of the column that were met, in the order of the folds."""
        return self._book.values().take(self._order())

    def _order(self) -> pa.Array:
        order = pc.array_sort_indices(self._book.values())
        return order.filter(pc.is_in(order, pa.array(sorted(self._met), order.type)))

    @property
    def _book(self) -> Any:
        return self._encoder.target


def scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well mixed bits of each number (splitmix64: Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


class WithoutFold(SourceView):
    """A source without the rows of one fold, or with these alone.

    Those of a table in memory of a block or less are picked once: several models read them.
    """

    whole = False

    def __init__(self, source: Source, folds: Folds, fold: int, *, alone: bool = False) -> None:
        super().__init__(source)  # `n_rows` stays the source's: an upper bound
        self.folds, self.fold, self.alone = folds, fold, alone
        few = source.in_memory and source.n_rows is not None and source.n_rows <= BLOCK_ROWS
        self._picked: dict[Any, list[pa.RecordBatch]] | None = {} if few else None

    def only(self, columns: Sequence[str]) -> Source:
        """Return the source with these of its columns."""
        if self.folds.column is not None:
            columns = [*columns, self.folds.column]
        return WithoutFold(self.source.only(columns), self.folds, self.fold, alone=self.alone)

    def view(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment that are there."""
        if self._picked is None:
            return self._pick(segment)
        key = segment.index, segment.first_row, segment.n_rows, segment.sum_rows
        if key not in self._picked:
            self._picked[key] = [*self._pick(segment)]
        return iter(self._picked[key])

    def _pick(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        done = 0
        for rows in segment.batches():
            kept = (self.folds.of(segment, done, rows) == self.fold) == self.alone
            done += rows.num_rows
            if kept.any():
                yield filtered(rows, kept)


# Rounds of a Feistel network: four make it look random (Luby, Rackoff 1988), of few bits too.
ROUNDS = 8


class Draw:
    """A random order of rows, in which the place of a row is computed from its number.

    A permutation of the numbers of as many bits, by a Feistel network whose halves may differ by a
    bit; a number that leads out of the range is led on until it comes back (cycle walking: Black,
    Rogaway 2002). Nothing is held, whatever the number of rows.

    Examples
    --------
    >>> Draw(6, seed=0, repeat=1).places(np.arange(6))
    array([4, 3, 2, 1, 5, 0])
    """

    def __init__(self, n_rows: int, seed: int, repeat: int) -> None:
        self.n_rows = n_rows
        bits = max(2, (max(n_rows, 1) - 1).bit_length())
        self._low, self._high = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        start = np.array([seed % (1 << 64), repeat % (1 << 64)], np.uint64)
        key = scrambled(start)[0] ^ scrambled(scrambled(start))[1]
        self._keys = scrambled(np.arange(ROUNDS, dtype=np.uint64) ^ key)

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows in the order, from 0 to n_rows - 1, by their numbers."""
        found = self._led(rows.astype(np.uint64))
        while len(out := np.flatnonzero(found >= self.n_rows)):
            found[out] = self._led(found[out])
        return found.astype(np.int64)

    def _led(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        all_bits = np.uint64(64)
        high, low = x >> self._low, x & ((np.uint64(1) << self._low) - np.uint64(1))
        for i, key in enumerate(self._keys):
            if i % 2:
                low = low ^ (scrambled(high ^ key) >> (all_bits - self._low))
            else:
                high = high ^ (scrambled(low ^ key) >> (all_bits - self._high))
        return (high << self._low) | low


@dataclass
class Census:
    """Where the rows stand that take part: those that have a class and a weight above 0.

    encoder   of the class and the weight alone
    starts    (n_segments + 1,) such rows before each segment of blocks of BLOCK_ROWS
    whole     whether all rows are such
    heaviest  the largest weight, 1 where rows have none
    """

    encoder: Encoder
    starts: NDArray[np.int64]
    whole: bool
    heaviest: float

    @property
    def n_rows(self) -> int:
        """Rows that take part."""
        return int(self.starts[-1])

    def kept(self, segment: Segment, done: int, rows: pa.RecordBatch) -> NDArray[np.int64] | None:
        """Return the positions of the rows of a block that take part; None for all."""
        return None if self.whole else self.encoder.encode(rows, segment.place(done)).kept


class Drawn(SourceView):
    """The rows of a source whose places in a random order lie in a range: least <= place < most.

    The source can be read several times; `column` names a further column, the place of each row.
    """

    whole = False

    def __init__(
        self,
        source: Source,
        census: Census,
        draw: Draw,
        least: int,
        most: int,
        column: str | None = None,
    ) -> None:
        added = [] if column is None else [pa.field(column, pa.int64())]
        super().__init__(source, pa.schema([*source.schema, *added], source.schema.metadata))
        self.census, self.draw = census, draw
        self.least, self.most, self.column = least, most, column
        self.n_rows = max(most - least, 0)

    def only(self, columns: Sequence[str]) -> Source:
        """Return the source with these of its columns, and those of class and weight."""
        encoder = self.census.encoder
        given = [encoder.target.name if encoder.target else None, encoder.weight]
        names = [*columns, *(name for name in given if name is not None and name not in columns)]
        fewer = self.source.only([name for name in names if name != self.column])
        return Drawn(fewer, self.census, self.draw, self.least, self.most, self.column)

    def segments(self, block_rows: int) -> Iterator[Segment]:
        """Return the segments of the source without the other rows."""
        # Rows are numbered as they were counted, by segments of blocks of this size.
        for segment in super().segments(BLOCK_ROWS):
            yield segment.of(partial(self._cut, segment, block_rows), whole=True)

    def _cut(self, segment: Segment, block_rows: int) -> Iterator[pa.RecordBatch]:
        return reblock(segment.batches(), block_rows)

    def view(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment whose places lie in the range."""
        done, number = 0, int(self.census.starts[segment.index])
        for rows in segment.batches():
            at = self.census.kept(segment, done, rows)
            done += rows.num_rows
            n = rows.num_rows if at is None else len(at)
            places = self.draw.places(np.arange(number, number + n))
            number += n
            mine = (places >= self.least) & (places < self.most)
            if not mine.any():
                continue
            chosen = mine
            if at is not None:
                chosen = np.zeros(rows.num_rows, np.bool_)
                chosen[at[mine]] = True
            found = filtered(rows, chosen)
            if self.column is not None:
                found = found.append_column(self.column, pa.array(places[mine]))
            yield found

    def table(self, work: Work = map) -> pa.Table:
        """Return all rows in the order of their places; the source has a column of them.

        `work` applies a function to each of some items, as `map` does, on threads perhaps.
        """
        assert self.column is not None
        read = work(lambda segment: [*segment.batches()], self.segments(BLOCK_ROWS))
        whole = join([rows for batches in read for rows in batches])
        order = np.argsort(whole.column(self.column).to_numpy())
        return pa.Table.from_batches([whole]).take(pa.array(order)).drop_columns([self.column])


class Increments(Folds):
    """Folds by ranges of a column of places: what each sample has beyond the one before.

    Fold i holds the places from sizes[i - 1] to sizes[i].
    """

    def __init__(self, column: str, sizes: NDArray[np.int64]) -> None:
        self.column, self.sizes = column, sizes

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, `done` rows into its segment, (n_rows,)."""
        places = rows.column(str(self.column)).to_numpy()
        return np.searchsorted(self.sizes, places, side="right").astype(np.int64)

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their order, and the sizes as text."""
        return list(range(len(self.sizes))), tuple(map(str, self.sizes.tolist()))


class Noted(SourceView):
    """The rows of a source with a further column, the fold of each."""

    def __init__(self, source: Source, folds: NotedFolds) -> None:
        field = pa.field(folds.column, pa.int64())
        super().__init__(source, source.schema.append(field))
        self.noted = folds

    def view(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment and their folds."""
        done = 0
        for rows in segment.batches():
            codes = self.noted.folds.of(segment, done, rows)
            done += rows.num_rows
            yield rows.append_column(self.noted.column, numbers(codes))


class NotedFolds(Folds):
    """Folds that stand in a column, so that rows may leave their place."""

    def __init__(self, column: str, folds: Folds) -> None:
        self.column: str = column
        self.folds = folds

    def of(self, segment: Segment, done: int, rows: pa.RecordBatch) -> Codes:
        """Return the fold of each row of a block, (n_rows,)."""
        return np.asarray(rows.column(self.column).to_numpy())

    def names(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the folds in their order, and their names."""
        return self.folds.names()
