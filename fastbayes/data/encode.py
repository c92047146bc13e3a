"""Record batches in, integer codes out: the door where every value is checked once."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, GREATEST, LEAST, Batch, Codes, code_type, code_width
from fastbayes.core.date_parts import DatePart
from fastbayes.core.domains import declared, default_kind, value_type
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.picks import Picks, by_name, chosen
from fastbayes.core.schema import Feature, Schema
from fastbayes.core.suggestions import did_you_mean, meant_column
from fastbayes.data.columns import (
    BinBook,
    Codebook,
    Prepared,
    check_number,
    closed_book,
    corrupt,
    floats,
    needed_type,
    open_book,
    prepare,
)
from fastbayes.data.dates import DateParts
from fastbayes.data.decoded_rows import DecodedRows, is_indices
from fastbayes.data.lent_memory import lend
from fastbayes.data.pieces import Column, Pieces
from fastbayes.data.segments import LateNumbers, Place, Rows, Source, one_batch
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.columns import IntegerColumn, Translation
from fastbayes.kernels.shared.texts import UNSEEN

MAX_CLASSES = 65_535

Book = Codebook | BinBook


class Encoded(NamedTuple):
    """A batch and what could not be encoded.

    The codes are good until the next block is encoded; who keeps them longer copies them.
    """

    batch: Batch
    unseen: NDArray[np.int64]  # (n_categorical,) values outside the schema
    dropped: int  # rows without a class
    kept: NDArray[np.int64] | None = None  # positions of the rows encoded; None: all of them


def checked_weights(
    name: str, column: Column, place: Place, kernels: ModuleType
) -> NDArray[np.float64]:
    """Return weights as float64.

    Raises SchemaError where they are no numbers, and DataError for one that is negative, not
    finite, or missing; the message names its row.
    """
    check_number(name, column.type, "the weights")
    weight, _ = floats(column, kernels)
    bad = ~((weight >= LEAST) & (weight <= GREATEST) | (weight == 0))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        few = f", {LEAST:.3g} at least" if 0 < weight[at] < LEAST else ""
        raise DataError(
            f"weight {name!r}, {place.row(at)}: {weight[at]} is not a finite number "
            f">= 0{few}, {GREATEST:g} at most; correct it, or give weight 0 to leave the row "
            "out"
        )
    return weight


class NumbersApart(NamedTuple):
    """Columns of numbers of a batch that are decoded block by block.

    numbers  of the batch's segment
    first    rows of the segment that come before the batch
    place    where the batch stands, for messages
    """

    numbers: LateNumbers
    first: int
    place: Place

    def rows(
        self, first: int, n: int, kept: NDArray[np.int64] | None
    ) -> dict[str, NDArray[np.float64]]:
        """Return columns by their names: n rows from one on, of those kept if not all are.

        They are good until the next rows are asked for. Raises DataError for an infinite number.
        """
        begin, end, place = first, first + n, self.place
        if kept is not None and n:
            begin, end, kept = int(kept[first]), int(kept[end - 1]) + 1, kept[first:end]
        columns, odd = self.numbers.read(self.first + begin, end - begin)
        if kept is not None:
            columns = [column[kept - begin if n else slice(0)] for column in columns]
        elif place.first_row >= 0:
            place = Place(place.origin, place.first_row + begin)
        for i in np.flatnonzero(odd).tolist():
            has_gaps(self.numbers.names[i], columns[i], kept, place)
        return dict(zip(self.numbers.names, columns, strict=True))


class Unwritten(NamedTuple):
    """Classes of rows that all have one, whose codes are yet to be written.

    integers, translations  as `CodeWriter` takes them
    kind                    type of the codes
    """

    integers: IntegerColumn
    translations: list[Translation]
    kind: type[np.unsignedinteger]


class Encoder:
    """Turns record batches into `Batch`es by open codebooks (learning) or a schema (applying).

    Parameters
    ----------
    features
        The features to encode, with the book of each categorical one.
    target
        Codebook of the class column; None when there is none to encode.
    weight
        Name of the weight column.
    applying
        Whether sizes are S_j + 2 with a code for unseen values, rather than S_j (+ 1).
    unseen
        "ignore", "smooth" or "error": what an unseen value does while applying.
    template
        Schema whose options the learned schema takes over.
    """

    def __init__(
        self,
        features: Sequence[tuple[Feature, Book | None]],
        target: Codebook | None,
        *,
        template: Schema,
        weight: str | None = None,
        applying: bool = False,
        unseen: str = "ignore",
        keep_unlabelled: bool = False,
    ) -> None:
        self.features = list(features)
        self.books = [book for _, book in features if book is not None]
        self.dates = _date_parts(features)
        self.target = target
        self.weight = weight
        self.applying = applying
        self.unseen = unseen
        self.template = template
        self.keep_unlabelled = keep_unlabelled
        # Of the whole job, where the source knows its rows; those by which the kernels of codes are
        # chosen; and whether these count as well.
        self.cells: float | None = None
        self.coding: float | None = None
        self._whole = False

    @classmethod
    def learning(
        cls,
        columns: pa.Schema,
        target: str | None,
        *,
        weight: str | None = None,
        domains: Mapping[str, Any] | None = None,
        categorical: Picks = None,
        missing: str = "marginalize",
        null_values: Sequence[str] = (),
        keep_unlabelled: bool = False,
        cuts: Mapping[str, Any] | None = None,
        parts: Mapping[str, Sequence[DatePart]] | None = None,
    ) -> Encoder:
        """Return an encoder that learns the domains of these columns.

        Numeric columns in `cuts` are cut into bins there. A column that is categorical by
        `categorical` or `domains` is not. Of columns in `parts` their parts are features; these may
        be columns already. Raises SchemaError when the target is not among the
        columns, a name stands twice, a type cannot be used, or `domains` or `cuts` names a column
        that is not there.
        """
        if missing not in ("marginalize", "category"):
            raise ValueError(f"missing={missing!r}: use 'marginalize' or 'category'")
        names = columns.names
        for name in (n for n in (target, weight) if n is not None):
            if name not in names:
                raise SchemaError(
                    f"there is no column {name!r}; the columns are {names}"
                    + meant_column(name, names)
                )
        if len({*names}) < len(names):
            repeated = min(n for n in names if names.count(n) > 1)
            raise SchemaError(f"column {repeated!r} stands more than once; rename one of them")
        own = [n for n in names if n not in (target, weight)]
        derived = {p.name: p for some in (parts or {}).values() for p in some}
        wanted = _with_parts(own, parts or {})
        picks = by_name(categorical, own)
        listed = {**declared(domains)}
        cuts = cuts or {}
        dated = {name: of for name, of in (parts or {}).items() if name not in wanted}
        for option, named in (("categorical", picks), ("domains", listed), ("cuts", cuts)):
            for name in (name for name in named if name in dated):
                raise SchemaError(
                    f"{option}: column {name!r} holds dates or times, of which parts are features: "
                    f"{', '.join(repr(part.name) for part in dated[name])} (`dates` says which); "
                    "name these, or cast the column to string"
                )
        forced = {*chosen(wanted, picks)}
        for option, given, known in (
            ("domains", {*listed} - {*wanted, target}, names),
            ("cuts", {*cuts} - {*wanted}, wanted),
        ):
            for unknown in sorted(given):
                raise SchemaError(
                    f"{option}: there is no column {unknown!r}; there are {known}"
                    + meant_column(unknown, known)
                )
        features: list[tuple[Feature, Book | None]] = []
        blanks = frozenset(null_values)  # one for all books
        for name in wanted:
            part = derived.get(name)
            kind = columns.field(name).type if part is None else part.type
            if part is not None and part.column in names:
                part.check(columns.field(part.column).type)
            if part is not None and part.values is not None:
                listed.setdefault(name, part.values)
            chosen_by_user = name in forced or name in listed
            if name in cuts and not chosen_by_user:
                check_number(name, kind)
                features.append(binned(Feature.binned(name, cuts[name], part)))
            elif chosen_by_user or default_kind(name, kind) == "categorical":
                book = open_book(name, kind, listed.get(name), blanks)
                # A column without values that is said to be one of categories is not void.
                said = name in forced and name not in listed and pa.types.is_null(kind)
                none = pa.array([], pa.string()) if said else None
                feature = Feature(name, "categorical", none, name in listed, None, part)
                features.append((feature, book))
            else:
                features.append((Feature(name, "numeric", part=part), None))
        template = Schema(
            target,
            pa.array([], pa.null()),
            (),
            target in listed,
            missing,
            tuple(null_values),
        )
        classes = None
        if target is not None:
            kind = columns.field(target).type
            value_type(target, kind, "the class")
            classes = open_book(target, kind, listed.get(target), null_values)
        return cls(
            features, classes, template=template, weight=weight, keep_unlabelled=keep_unlabelled
        )

    @classmethod
    def applying_to(
        cls,
        schema: Schema,
        columns: pa.Schema,
        *,
        unseen: str = "ignore",
        target: str | None = None,
        weight: str | None = None,
    ) -> Encoder:
        """Return an encoder that applies a schema to batches of these columns.

        `target` names the column of the true classes, where they are wanted too. Raises SchemaError
        when a column is not there or its type does not fit; the message names it.
        """
        if unseen not in ("ignore", "smooth", "error"):
            raise ValueError(f"unseen={unseen!r}: use 'ignore', 'smooth' or 'error'")
        features: list[tuple[Feature, Book | None]] = []
        there, blanks = {*columns.names}, frozenset(schema.null_values)
        for feature in schema.features:
            part, held = feature.part, feature.column not in there and feature.name in there
            if part is None or held:
                kind = needed_type(columns, feature.name)
            else:
                part.check(needed_type(columns, part.column), applying=True)
                kind = part.type
            if feature.cuts is not None or feature.values is None:
                check_number(feature.name, kind)
                features.append(binned(feature))
            else:
                features.append((feature, closed_book(feature.name, kind, feature.values, blanks)))
        classes = None
        if target is not None:
            kind = needed_type(columns, target)
            value_type(target, kind, "the class")
            classes = closed_book(target, kind, schema.classes, schema.null_values)
        return cls(features, classes, template=schema, weight=weight, applying=True, unseen=unseen)

    def part(self, first: int, last: int) -> Encoder:
        """Return an encoder of the features from one to another, by the same books."""
        other = copy.copy(self)
        other.features = self.features[first:last]
        other.books = [book for _, book in other.features if book is not None]
        other.dates = _date_parts(other.features)
        return other

    def plain_numbers(self) -> list[str]:
        """Return the numeric columns that are only counted as numbers, not by bins too."""
        cut = {book.name for book in self.books}
        plain = [f for f, book in self.features if book is None and f.part is None]
        return [f.name for f in plain if f.name not in cut]

    @property
    def columns(self) -> set[str]:
        """Names of the columns that the features are made of, and of the parts of dates."""
        return {name for f, _ in self.features for name in (f.name, f.column)}

    def know(self, schema: Schema) -> None:
        """Take the values of an earlier scan into the open codebooks."""
        domains = [*(feature.values for feature in schema.categorical), schema.classes]
        size = sum(len(values) for values in domains if values is not None)
        kernels = dispatch.load("reading.encode", size if self.coding is None else self.coding)
        for book, values in zip([*self.books, self.target], domains, strict=True):
            if isinstance(book, Codebook) and values is not None:
                book.widen(values.type)
                book.encode(values, kernels)

    def schema(self) -> Schema:
        """Return the schema as known by now; domains are in order of appearance, not sorted."""
        features = tuple(f if book is None else _with_met(f, book) for f, book in self.features)
        none = pa.array([None], pa.null())
        classes = none if self.target is None else self.target.values()
        return replace(self.template, features=features, classes=classes)

    def encode(self, rows: pa.RecordBatch, place: Place) -> Encoded:
        """Return the encoded rows, without those that have no class or weigh 0.

        Raises DataError for an infinite number, a value outside a declared domain (or unseen, if
        that is an error), a negative or non-finite weight; the message names column, value and row.
        """
        return next(self.look_up(rows, place).encoded(max(rows.num_rows, 1)))

    def look_up(self, rows: Rows, place: Place, apart: NumbersApart | None = None) -> LookedUp:
        """Return rows whose values have codes that are not yet written; see `encode`.

        Numeric columns that the rows lack are `apart`.
        """
        rows = self.dates.of(rows)
        where, unlabelled, n_read = None, None, rows.num_rows
        weight = self._weights(rows, place)
        pieces = self._pieces(rows, place)
        classes, n_classes, labelled = self._classes(rows, pieces, weight, place)
        keep = labelled
        if weight is not None and not weight.all():
            keep = weight > 0 if labelled is None else labelled & (weight > 0)
        if labelled is not None and self.keep_unlabelled and not labelled.all():
            left = filtered(rows, ~labelled)
            unlabelled = one_batch(left) if isinstance(left, pa.Table) else left
        if keep is not None:
            rows, where = filtered(rows, keep), np.flatnonzero(keep)
            pieces = self._pieces(rows, place, len(keep))
            if classes is not None:
                assert not isinstance(classes, Unwritten)
                classes = np.ascontiguousarray(classes[keep])
            weight = None if weight is None else np.ascontiguousarray(weight[keep])
        n = rows.num_rows
        coding, cells = self._cells(rows.num_rows if keep is None else len(keep), place)
        kernels = dispatch.load("reading.encode", coding)
        elsewhere = set() if apart is None else {*apart.numbers.names}
        numbers = [f.name for f, book in self.features if not isinstance(book, Codebook)]
        numbers = [name for name in numbers if name not in elsewhere]
        converted = {name: self._numbers(name, rows.column(name), kernels) for name in numbers}
        loose = kernels.unbounded([values for values, _ in converted.values()])
        odd = {name for name, found in zip(converted, loose.tolist(), strict=True) if found}
        numeric: dict[str, NDArray[np.float64] | None] = {}
        at = place.row if where is None else partial(_row_of_kept, place, where)
        prepared: list[Prepared] = []
        for feature, book in self.features:
            if feature.name in elsewhere:
                numeric[feature.name] = None
                continue
            if isinstance(book, Codebook):
                prepared.append(found := prepare(book, rows, pieces, n, kernels, at))
                if n and not (found.size or found.missing or found.unseen):  # no code is valid
                    raise corrupt(book.name)
                continue
            values, missing_too = converted[feature.name]
            if feature.name in odd:
                missing_too |= has_gaps(feature.name, values, where, place)
            if book is None:
                numeric[feature.name] = values
            else:
                prepared.append(Prepared(len(book), missing_too, numbers=(values, book)))
        if not self.applying or self.unseen == "error":
            for book, column in zip(self.books, prepared, strict=True):
                if column.unseen:
                    self._refuse_unseen(book, column, rows, where, place, kernels)
        return LookedUp(
            *(n, classes, n_classes, prepared, numeric, apart, weight, coding, cells),
            *(n_read, labelled, unlabelled, where, 2 if self.applying else None),
            [book.name for book in [*self.books, self.target] if book is not None],
        )

    def expect(self, n_rows: int | None, tables: int | None = None) -> None:
        """Take note of the rows to come, so that whether compiling pays is decided once.

        `tables` is to how many each row adds one, where nothing else is made of the codes.
        """
        width = max(1, len(self.features))
        self.cells, self.coding, self._whole = None, None, tables is not None
        if n_rows is not None:
            self.cells = float(n_rows * width)
            additions = self.cells + float(n_rows * (tables or 0))
            self.coding = dispatch.cells_of_whole(self.cells, additions)

    def is_indexing(self, source: Source) -> bool:
        """Return whether looking up rows of a source takes no pass over them: see `Source`."""
        target = None if self.target is None else self.target.name
        compiled = self.coding is not None and dispatch.compiled(self.coding)
        derived = any(f.part is not None for f, _ in self.features)
        return compiled and not derived and source.is_indexed(target)

    def _pieces(self, rows: Rows, place: Place, n: int | None = None) -> Pieces | DecodedRows:
        """Return where the integers of columns with a book are; n rows decide on the kernels."""
        if isinstance(rows, DecodedRows):
            return rows
        names = [f.name for f, book in self.features if isinstance(book, Codebook)]
        if self.target is not None:
            names.append(self.target.name)
        coding, _ = self._cells(rows.num_rows if n is None else n, place)
        return Pieces(rows, names, dispatch.load("reading.arrow", coding))

    def _cells(self, n: int, place: Place) -> tuple[float, float]:
        """Return by which cells the kernels of codes are chosen, and those of what follows."""
        if self.coding is not None and self.cells is not None:
            return self.coding, self.coding if self._whole else self.cells
        # Of a stream, the first block is the whole job, or it is full and more may come.
        only = place.first_row == 0 and n < BLOCK_ROWS
        cells = float(n * max(1, len(self.features))) if only else math.inf
        return cells, cells

    def _refuse_unseen(
        self,
        book: Book,
        column: Prepared,
        rows: Rows,
        where: NDArray[np.int64] | None,
        place: Place,
        kernels: ModuleType,
    ) -> None:
        """Raise DataError if a value occurs that a closed book does not hold."""
        assert column.integers is not None
        n = rows.num_rows
        codes = np.empty(n, np.uint32)
        translated = column.integers, column.translations(column.size)
        kernels.CodeWriter([translated], [codes], codes.view(np.uint8)).write(0, n)
        outside = np.flatnonzero(codes == column.size + 1)
        if not len(outside):
            return
        at = int(outside[0])
        row = at if where is None else int(where[at])
        value = rows.column(book.name)[at].as_py()
        what = "was not seen at fit" if self.applying else "is outside the declared domain"
        remedy = (
            "use unseen='ignore', or fit again with it"
            if self.applying
            else f"add it to domains[{book.name!r}] or correct the row"
        )
        raise DataError(f"column {book.name!r}, {place.row(row)}: value {value!r} {what}; {remedy}")

    def _classes(
        self,
        rows: Rows,
        pieces: Pieces | DecodedRows,
        weight: NDArray[np.float64] | None,
        place: Place,
    ) -> tuple[NDArray[np.unsignedinteger] | Unwritten | None, int, NDArray[np.bool_] | None]:
        """Return class codes, the number of classes, and where there is one (None: everywhere)."""
        n = rows.num_rows
        if self.target is None:
            return (None if self.applying else np.zeros(n, np.uint8)), 1, None
        kernels = dispatch.load("reading.encode", self._cells(n, place)[0])
        prepared = prepare(self.target, rows, pieces, n, kernels, place.row)
        if prepared.size > MAX_CLASSES:
            raise DataError(
                f"column {self.target.name!r} has more than {MAX_CLASSES} distinct values; it "
                "cannot be the target: choose a column with fewer classes"
            )
        narrow = code_type(prepared.size)
        doubtful = prepared.missing or prepared.unseen or not prepared.size
        assert prepared.integers is not None
        if weight is None and not doubtful:
            translations = prepared.translations(prepared.size)
            return Unwritten(prepared.integers, translations, narrow), prepared.size, None
        codes = np.empty(n, code_type(prepared.size + 2))
        column = prepared.integers, prepared.translations(prepared.size)
        writer = kernels.CodeWriter([column], [codes], codes.view(np.uint8))
        writer.write(0, n)
        if writer.outside[0]:
            raise corrupt(self.target.name)
        unknown = codes == prepared.size + 1 if prepared.unseen else np.zeros(0, np.bool_)
        if weight is not None and len(unknown):
            unknown &= weight > 0  # weight 0 is no row
        if unknown.any():
            at = int(np.argmax(unknown))
            value = rows.column(self.target.name)[at].as_py()
            raise DataError(
                f"column {self.target.name!r}, {place.row(at)}: class {value!r} is not among the "
                f"{prepared.size} known classes; correct the row or fit again with it"
                + did_you_mean(value, self.target.values().to_pylist())
            )
        labelled = codes != prepared.size if prepared.missing else None
        return codes.astype(narrow, copy=False), prepared.size, labelled

    def _weights(self, rows: Rows, place: Place) -> NDArray[np.float64] | None:
        if self.weight is None:
            return None
        kernels = dispatch.load("reading.encode", self._cells(rows.num_rows, place)[0])
        return checked_weights(self.weight, rows.column(self.weight), place, kernels)

    @staticmethod
    def _numbers(
        name: str, column: Column, kernels: ModuleType
    ) -> tuple[NDArray[np.float64], bool]:
        """Return a column as numbers, and whether some are null, which are NaN then."""
        check_number(name, column.type)
        return floats(column, kernels)


def _row_of_kept(place: Place, kept: NDArray[np.int64], index: int) -> str:
    return place.row(int(kept[index]))


def has_gaps(
    name: str, values: NDArray[np.float64], where: NDArray[np.int64] | None, place: Place
) -> bool:
    """Return whether numbers are missing (NaN), of which some are not finite.

    `where` are their positions among the rows of a place, if these are not all. Raises DataError
    where one is infinite.
    """
    if np.isinf(values).any():
        at = int(np.flatnonzero(np.isinf(values))[0])
        row = at if where is None else int(where[at])
        raise DataError(
            f"column {name!r}, {place.row(row)}: value {values[at]} is infinite; "
            "replace it by a number, or by null to treat it as missing"
        )
    return bool(np.isnan(values).any())


class LookedUp:
    """Rows whose values have codes, which are written block by block into memory that is lent.

    Attributes
    ----------
    n_rows, classes, n_classes, weight
        Of all rows, as in `Batch`.
    sizes
        (n_categorical,) values known of each column.
    missing
        (n_categorical,) whether a value may be missing.
    n_read
        Rows that were looked at.
    kept
        Positions of these rows among them; None: they are all of them.
    labelled
        Which of them have a class; None: all.
    unlabelled
        Those without a class, where asked for.
    coding, cells
        By which the kernels that write codes are chosen, and those of what follows.
    """

    def __init__(
        self,
        n_rows: int,
        classes: NDArray[np.unsignedinteger] | Unwritten | None,
        n_classes: int,
        columns: Sequence[Prepared],
        numeric: Mapping[str, NDArray[np.float64] | None],
        apart: NumbersApart | None,
        weight: NDArray[np.float64] | None,
        coding: float,
        cells: float,
        n_read: int,
        labelled: NDArray[np.bool_] | None,
        unlabelled: pa.RecordBatch | None,
        kept: NDArray[np.int64] | None,
        extra: int | None,
        names: Sequence[str],
    ) -> None:
        self.n_rows, self._classes, self.n_classes = n_rows, classes, n_classes
        self.weight, self.coding, self.cells = weight, coding, cells
        self._numeric, self._apart = numeric, apart
        self.n_read, self.kept = n_read, kept
        self.labelled, self.unlabelled = labelled, unlabelled
        self._columns, self._extra, self._names = columns, extra, names
        self._written: _Room | None = None
        self._given = np.empty(0, np.int64)
        self._translations: list[list[Translation]] = []
        self._writers: list[_Room] = []
        self.sizes = np.array([p.size for p in columns], np.int64)
        self.missing = np.array([p.missing for p in columns], np.bool_)

    @property
    def classes(self) -> NDArray[np.unsignedinteger] | None:
        """Codes of the classes of all rows, which are written now if they are not yet."""
        if isinstance(self._classes, Unwritten):
            integers, translations, kind = self._classes
            codes = np.empty(self.n_rows, kind)
            kernels = dispatch.load("reading.encode", self.coding)
            column = integers, translations
            writer = kernels.CodeWriter([column], [codes], codes.view(np.uint8))
            writer.write(0, self.n_rows)
            if writer.outside[0]:
                raise corrupt(self._names[-1])
            self._classes = codes
        return self._classes

    def is_lasting(self, rows: Rows | DecodedRows) -> bool:
        """Return whether others that take the place of these rows have codes by the same tables.

        That is so where all values are entries of dictionaries that have codes, and nothing else of
        the rows was looked at.
        """
        if not isinstance(rows, DecodedRows):
            return False
        if self.kept is not None or self.weight is not None or self._numeric:
            return False
        if not isinstance(self._classes, Unwritten) or not is_indices(rows.schema):
            return False
        held = [self._classes.integers, *(p.integers for p in self._columns)]
        within = all(column is not None and rows.owns(column) for column in held)
        return within and not any(p.unseen or p.own for p in self._columns)

    def without_numbers(self) -> LookedUp:
        """Return the same rows as if they had no numeric columns."""
        other = copy.copy(self)
        other._numeric, other._apart = {}, None
        other._written, other._writers = None, []
        return other

    def without_codes(self) -> LookedUp:
        """Return the same rows as if they had no categorical columns."""
        other = copy.copy(self)
        other._columns, other._written, other._writers = [], None, []
        other.sizes, other.missing = self.sizes[:0], self.missing[:0]
        other._given = other.sizes
        return other

    def numbers_apart(self) -> NumbersApart | None:
        """Return the numeric columns where all of them are read apart, in their order."""
        apart, names = self._apart, [*self._numeric]
        return apart if apart is not None and [*apart.numbers.names] == names else None

    def reads_numbers(self) -> bool:
        """Return whether a block of rows is decoded when it is asked for."""
        return self._apart is not None

    def write_classes(self, out: NDArray[np.unsignedinteger]) -> None:
        """Write the classes of all rows to memory that lasts, too."""
        assert isinstance(self._classes, Unwritten)
        column = self._classes.integers, self._classes.translations
        writer = dispatch.load("reading.encode", self.coding).CodeWriter(
            [column], [out], out.view(np.uint8)
        )
        self._writers.append(_Room(len(out), (), [], [len(self._columns)], writer, out))
        writer.write(0, len(out))

    def code_writers(self) -> list[tuple[Any, list[tuple[str, NDArray[np.uint32]]]]]:
        """Return what writes codes, each with its columns and the first table that these have."""
        assert isinstance(self._classes, Unwritten)
        translations = [*self._translations, self._classes.translations]
        return [
            (room.writer, [(self._names[j], translations[j][0].table) for j in room.columns])
            for room in self._writers
        ]

    def complete(self) -> bool:
        """Return whether no value is missing or unseen."""
        if self.missing.any():
            return False
        occurring = dispatch.load("reading.encode", self.coding).occurring
        for p in self._columns:
            for table, found in enumerate(p.found):
                if p.unseen and p.integers is not None:
                    entries = found.table
                    column = p.integers.only(table)
                    seen = occurring(column, p.minimum + p.own, len(entries))
                    if (entries[seen[:-1]] == UNSEEN).any():
                        return False
        return True

    def parts(self, n: int) -> Iterator[tuple[int, int, int]]:
        """Yield where blocks of n of the rows read begin, and from where to where they are here."""
        starts = np.arange(0, self.n_read, n)
        here = starts if self.kept is None else np.searchsorted(self.kept, starts)
        ends = [*here[1:].tolist(), self.n_rows][: len(starts)]  # of no rows there is no end
        yield from zip(starts.tolist(), here.tolist(), ends, strict=True)

    def encoded(self, n: int) -> Iterator[Encoded]:
        """Yield blocks of n of the rows read, at least one; each is good until the next one."""
        before = np.zeros(len(self._columns), np.int64)
        for start, first, last in [*self.parts(n)] or [(0, 0, 0)]:
            batch, unseen = self.block(first, last - first), self.unseen()
            kept = None if self.kept is None else self.kept[first:last] - start
            yield Encoded(batch, unseen - before, self.dropped(start, n), kept)
            before = unseen

    def dropped(self, start: int = 0, n: int | None = None) -> int:
        """Return how many of n of the rows read, or of all, have no class."""
        some = None if self.labelled is None else self.labelled[start:][:n]
        return 0 if some is None else len(some) - int(np.count_nonzero(some))

    def block(
        self,
        first: int,
        n: int,
        sizes: NDArray[np.int64] | None = None,
        *,
        blank: bool = False,
        noted: bool = False,
    ) -> Batch:
        """Write the codes of n rows from one on; they are good until the next are written.

        sizes  values of each column, at least those known: the code of a missing one
        blank  whether codes are 0 until they are written, where that is noted down for later and
               nothing is missing
        noted  whether that is done: then classes are written like codes, where they are not yet
        """
        sizes = self.sizes if sizes is None else sizes
        same = self._written is not None and np.array_equal(sizes, self._given)
        if not same:
            self._given = sizes
            self._translations = [
                [] if p.integers is None else p.translations(size)
                for p, size in zip(self._columns, sizes.tolist(), strict=True)
            ]
        late = self._classes if noted and isinstance(self._classes, Unwritten) else None
        known = (n, late is not None) if same and self._written is not None else None
        if self._written is None or known != (self._written.n, self._written.classes is not None):
            self._written = self._room(n, sizes, late)
            self._writers.append(self._written)
        codes, last = self._written, first + n
        if blank and not self.missing.any():
            for group in codes.groups:
                group.codes.fill(0)
        codes.writer.write(first, n)
        for values, cuts, missing, row in codes.bins:
            dispatch.load("reading.bins", self.coding).assign(
                values[first:last], cuts, missing, row
            )
        classes = codes.classes
        if classes is None and self.classes is not None:
            classes = self.classes[first:last]
        return Batch(
            n,
            classes,
            self.n_classes,
            codes.groups,
            self.missing,
            self._numbers(first, n),
            None if self.weight is None else self.weight[first:last],
            self.cells,
        )

    def _numbers(self, first: int, n: int) -> tuple[NDArray[np.float64], ...]:
        """Return n rows of the numeric columns from one on, good until the next are asked for."""
        apart = {} if self._apart is None else self._apart.rows(first, n, self.kept)
        return tuple(
            apart[name] if column is None else column[first : first + n]
            for name, column in self._numeric.items()
        )

    def every_number(self) -> Iterator[NDArray[np.float64]]:
        """Yield the numeric columns of all rows, as a whole or in parts."""
        step = max(self.n_rows, 1) if self._apart is None else BLOCK_ROWS
        for first in range(0, self.n_rows, step):
            yield from self._numbers(first, min(step, self.n_rows - first))

    def _room(self, n: int, sizes: NDArray[np.int64], late: Unwritten | None) -> _Room:
        """Return room for the codes of n rows, their classes if late, and what writes them."""
        extra = self.missing.astype(np.int64) if self._extra is None else self._extra
        widths = np.array([code_width(size + 2) for size in sizes.tolist()], np.int64)
        wide = 0 if late is None else np.dtype(late.kind).itemsize
        memory = lend(n * (int(widths.sum()) + wide))
        groups, bins, rows = [], [], []
        integers: list[tuple[IntegerColumn, list[Translation]]] = []
        names = []
        used = 0
        # The widest first: so the codes of all are aligned.
        for width in sorted(set(widths.tolist()), reverse=True):
            members = np.flatnonzero(widths == width)
            size = len(members) * n * width
            matrix = memory[used : used + size].view(f"u{width}").reshape(len(members), n)
            used += size
            groups.append(Codes(members, matrix, (sizes + extra)[members]))
            for j, row in zip(members.tolist(), matrix, strict=True):
                column, missing = self._columns[j], int(sizes[j])
                if column.numbers is not None:
                    values, book = column.numbers
                    bins.append((values, book.cuts, missing, row))
                else:
                    assert column.integers is not None
                    integers.append((column.integers, self._translations[j]))
                    rows.append(row)
                    names.append(j)
        classes = None
        if late is not None:
            classes = memory[used:].view(late.kind)
            integers.append((late.integers, late.translations))
            rows.append(classes)
            names.append(len(self._columns))
        writer = dispatch.load("reading.encode", self.coding).CodeWriter(integers, rows, memory)
        return _Room(n, tuple(reversed(groups)), bins, names, writer, classes)

    def moving(self) -> list[tuple[NDArray[Any], int]]:
        """Return the arrays of all rows that batches are views of, with the bytes of a row."""
        numbers = [p.numbers[0] for p in self._columns if p.numbers is not None]
        classes = None if isinstance(self._classes, Unwritten) else self._classes
        arrays = [classes, self.weight, *self._numeric.values(), *numbers]
        return [(array, array.itemsize) for array in arrays if array is not None]

    def check(self, outside: Sequence[NDArray[np.int64]] | None = None) -> None:
        """Raise DataError if an index lay outside its dictionary in the blocks written.

        `outside` are the counts of such by what took the place of `code_writers`.
        """
        for k, room in enumerate(self._writers):
            found = room.writer.outside if outside is None else outside[k]
            if found.any():
                raise corrupt(self._names[room.columns[int(found.argmax())]])

    def unseen(self) -> NDArray[np.int64]:
        """Return how many values of each column were unseen in the blocks written, once checked."""
        self.check()
        unseen = np.zeros(len(self._columns) + 1, np.int64)  # of classes, too
        for room in self._writers:
            unseen[room.columns] += room.writer.watched
        return unseen[:-1]


class _Room(NamedTuple):
    """Codes of a block of n rows, and what writes them."""

    n: int
    groups: tuple[Codes, ...]
    bins: list[tuple[NDArray[np.float64], NDArray[np.float64], int, NDArray[Any]]]
    columns: list[int]  # of the writer; the number of columns stands for classes
    writer: Any
    classes: NDArray[np.unsignedinteger] | None = None  # where they are written, too


def _date_parts(features: Iterable[tuple[Feature, Book | None]]) -> DateParts:
    """Return what derives the features that are parts of dates; one may be there twice, as bins."""
    return DateParts({f.name: f.part for f, _ in features if f.part is not None}.values())


def _with_parts(names: Sequence[str], parts: Mapping[str, Sequence[DatePart]]) -> list[str]:
    """Return names of columns, and of the parts of a column instead of it."""
    found = [each for name in names for each in ([p.name for p in parts[name]] if name in parts
                                                 else [name])]  # fmt: skip
    if len({*found}) < len(found):
        name = next(n for n in names if n not in parts and found.count(n) > 1)
        raise SchemaError(
            f"column {name!r} is there besides the date or time of which it would be a part; leave "
            "one of both out with `exclude`, or name other parts in `dates`"
        )
    return found


def _with_met(feature: Feature, book: Book) -> Feature:
    """Return a categorical feature with the values that its book has met."""
    met = feature.with_values(book.values())
    return feature if met.void and feature.values is not None else met


def binned(feature: Feature) -> tuple[Feature, BinBook | None]:
    """Return a feature of numbers with its bins, if it is cut."""
    return feature, None if feature.cuts is None else BinBook(feature.name, feature.cuts)


def filtered(rows: Rows, keep: NDArray[np.bool_]) -> Rows:
    """Return the rows that are to be kept."""
    # pyarrow filters neither string_view nor binary_view.
    for i, field in enumerate(rows.schema):
        if pa.types.is_string_view(field.type):
            text = field.with_type(pa.string())
            rows = rows.set_column(i, text, rows.column(i).cast(pa.string()))
    return rows.filter(pa.array(keep))
