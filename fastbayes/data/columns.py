"""One column at a time: Arrow arrays of any encoding to codes or float64."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.domains import (
    Use,
    beyond,
    cast_domain,
    common_type,
    decoded,
    numbers_of_bins,
    texts_of,
    value_type,
)
from fastbayes.core.doubles import MOST_EXACT, doubles
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.schema import ABSENT, FEW_VALUES
from fastbayes.data.decoded_rows import DecodedRows
from fastbayes.data.lent_memory import lend
from fastbayes.data.pieces import Column, Pieces, chunks_of, integers_of
from fastbayes.data.segments import Rows, combine
from fastbayes.data.unify import (
    LONG_INTEGERS,
    blanked,
    is_number,
    is_text,
    without_dictionary,
)
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.columns import IntegerColumn, Translation
from fastbayes.kernels.shared.texts import MISSING, UNSEEN, Texts, TextTable

# Integers spanning at most this range are looked up by offset instead of hashed.
SPAN = 1 << 20
# Dictionaries up to this size are looked up as a whole for a single row, too.
SHORT = 64
# Texts that tell whether most of a column are new.
FIRST_TEXTS = 1 << 10
# Bytes of texts that are a few.
FEW_BYTES = 1 << 20
# Bytes that a domain may hold besides its own.
SPARE_BYTES = 1 << 12
# Values of a domain whose index is kept with it: some MiB at most.
KEPT = 1 << 16


@dataclass(slots=True)
class Lookup:
    """Codes of the entries of one dictionary.

    `table` (n,) uint32 may hold MISSING and UNSEEN; `identity` says that it is 0, 1, 2 ...
    """

    table: NDArray[np.uint32]
    identity: bool
    has_missing: bool
    has_unseen: bool
    _last: tuple[tuple[int, int, int, bool], Translation] | None = None

    def translation(self, minimum: int, missing: int, own: int, *, unseen: bool) -> Translation:
        """Return the codes of the entries; of what is unseen it is one above that of missing.

        The arguments are as in `Prepared`; the last translation is kept, since most row groups have
        the same dictionary.
        """
        asked, last = (minimum, missing, own, unseen), self._last
        if last is not None and last[0] == asked:
            return last[1]
        # Of an index outside a dictionary, which is refused, any code will do that is one.
        table = np.empty(len(self.table) + 2, np.uint32)
        table[:-2], table[-2:] = self.table, (0, missing)
        if self.has_missing or own:
            table[table == MISSING] = missing
        if self.has_unseen or own:
            table[table == UNSEEN] = missing + 1
        watched, same = missing + 1 if unseen else -1, self.identity or missing == own > 0
        found = Translation(minimum, table, watched, own, same)
        self._last = asked, found
        return found


class Codebook:
    """The values of one categorical column, of a canonical Arrow type, and their codes.

    `values` are known from the start, coded 0, 1, 2 …; where the book is `fixed`, others are
    UNSEEN.

    Several threads may look up at once. Codes only ever get added, so a code once handed out stays
    right, whatever the threads' order; the final domain is sorted. Many texts move to a table for
    kernels, where they are found without a lock; only who adds waits. A few are looked up in
    Python, which for them is as fast and does not let go of the interpreter's lock: beside a busy
    thread that costs milliseconds each time.
    """

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        values: pa.Array | None = None,
        *,
        fixed: bool = False,
        null_values: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.fixed = fixed
        self.null_values = frozenset(null_values)
        self._declared = values
        self._texts: TextTable | None = None  # of many texts, instead of codes
        self.codes: dict[Any, int] = {}
        if values is not None and pa.types.is_string(values.type) and len(values) > FEW_VALUES:
            self._texts = _table_of(values, fixed)
        elif values is not None:
            self.codes.update(zip(values.to_pylist(), range(len(values)), strict=True))
        self.last_kind: pa.DataType | None = None
        self._lock = threading.Lock()
        self._rows: threading.local | None = None  # where a thread writes codes of many texts
        self._mostly_new = not fixed
        self._last: tuple[pa.Array, Lookup] | None = None
        self._met: tuple[pa.Array, int] | None = None
        self._integers: tuple[int, NDArray[np.uint32], int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.values() if len(self) else self._declared
        given = self.name, self.kind, known
        return partial(Codebook, *given, fixed=self.fixed, null_values=self.null_values), ()

    def __len__(self) -> int:
        table = self._texts
        return len(self.codes) if table is None else table.n_texts

    def widen(self, kind: pa.DataType) -> None:
        """Make room for values of another type: any after nulls, floats after integers.

        Raises SchemaError when they contradict those known; a closed book only checks.
        """
        if kind != self.kind:
            common = common_type(self.name, self.kind, kind)
            if not self.fixed:
                self.kind = common

    def values(self) -> pa.Array:
        """Return the values in code order."""
        table = self._texts
        if table is None:
            last = self._last
            if last is not None and self._holds_all(*last):
                return last[0]
            known = self._declared if self.fixed else None
            if known is None or known.type != self.kind or len(known) != len(self.codes):
                return cast_domain(self.name, list(self.codes), self.kind)
            # The same array in all schemas of a domain: of folds there are many.
            return known
        offsets, data, n_texts = table[:3]
        ends = offsets[: n_texts + 1]  # behind them is room for more
        return pa.StringArray.from_buffers(
            n_texts, pa.py_buffer(ends), pa.py_buffer(data[: ends[-1]])
        )

    def _holds_all(self, dictionary: pa.Array, found: Lookup) -> bool:
        """Return whether a dictionary is all values in code order, and holds no memory besides.

        To make an array of a list lets go of the interpreter's lock.
        """
        return (
            found.identity
            and dictionary.type == self.kind
            and len(dictionary) == len(self.codes)
            and all(b is None or (b.parent or b).size <= SPARE_BYTES for b in dictionary.buffers())
        )

    def is_worth_a_table(self, dictionary: pa.Array, n: int) -> bool:
        """Return whether n more rows make a dictionary's entries fewer than the rows met with it.

        Arrow's Parquet reader hands out a larger dictionary with every block of a row group:
        looking up all entries each time would take time quadratic in them.
        """
        if len(dictionary) <= max(n, SHORT) or self._found(dictionary, n) is not None:
            return True
        met = self._met
        rows = n + (met[1] if met is not None and _same_memory(met[0], dictionary) else 0)
        self._met = dictionary, rows
        return rows >= len(dictionary)

    def _found(self, dictionary: pa.Array, n: int) -> Lookup | None:
        """Return what was found last, if it was a dictionary of these entries."""
        last = self._last
        if last is None or len(last[0]) != len(dictionary):
            return None
        same = _same_memory(last[0], dictionary)
        return last[1] if same or (len(dictionary) <= n and last[0].equals(dictionary)) else None

    def met(self, dictionary: pa.Array) -> Lookup | None:
        """Return what was found last, if it was of this very array."""
        last = self._last
        return last[1] if last is not None and last[0] is dictionary else None

    def lookup(self, dictionary: pa.Array, n: int, kernels: ModuleType) -> Lookup:
        """Return the codes of the entries of n rows' dictionary, new ones added to an open book."""
        found = self._found(dictionary, n)
        if found is not None:
            return found
        found = _lookup(self.encode(dictionary, kernels))
        self._last = (dictionary, found)
        return found

    def encode(self, entries: pa.Array, kernels: ModuleType) -> NDArray[np.uint32]:
        """Return the codes of values, adding new ones to an open book."""
        text = is_text(entries.type)
        entries = _without_views(entries)
        if text:
            offsets, data = texts_of(entries)
            if self._are_many(offsets):
                table = np.empty(len(entries), dtype=np.uint32)
                self._write_codes(entries, table, kernels)
                return table
            ends = offsets.tolist()
            if ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(data):
                raise self._out_of_bytes()
        values = self._listed(entries) if text else entries.to_pylist()
        codes, null, missing = self.codes, self.null_values, int(MISSING)
        if self.fixed:
            unseen = int(UNSEEN)
            found = [
                codes.get(v, unseen) if v is not None and v == v and v not in null else missing
                for v in values
            ]
            return np.array(found, np.uint32)
        with self._lock:
            if not text or self._texts is None:
                found = [
                    codes.setdefault(v, len(codes))
                    if v is not None and v == v and v not in null
                    else missing
                    for v in values
                ]
                return np.array(found, np.uint32)
        return self.encode(entries, kernels)  # another thread has moved the texts to a table

    def encode_rows(
        self, texts: pa.Array, kernels: ModuleType
    ) -> tuple[NDArray[np.uint32], bool, bool]:
        """Return the codes of strings, whether some are MISSING, and whether some are UNSEEN.

        They are good until the same thread asks for those of other rows.
        """
        texts = _without_views(texts)
        if not self._are_many(texts_of(texts)[0]):
            codes = self.encode(texts, kernels)
            return codes, bool((codes == MISSING).any()), bool((codes == UNSEEN).any())
        with self._lock:
            own = self._rows = self._rows or threading.local()
        room: NDArray[np.uint32] | None = getattr(own, "codes", None)
        if room is None or len(room) < len(texts):
            room = own.codes = lend(4 * len(texts)).view(np.uint32)
        codes = room[: len(texts)]
        return codes, *self._write_codes(texts, codes, kernels)

    def _are_many(self, offsets: NDArray[np.signedinteger]) -> bool:
        """Return whether texts, by their ends, are so many or so long that a table is better."""
        if self._texts is not None or max(len(offsets) - 1, len(self.codes)) > FEW_VALUES:
            return True
        return bool(offsets[-1] - offsets[0] > FEW_BYTES)

    def _table(self) -> TextTable:
        """Return the table of texts, which takes over from the codes if there is none yet."""
        table = self._texts
        if table is None:
            with self._lock:
                table = self._texts
                if table is None:
                    known = self._declared if self.fixed else pa.array([*self.codes], pa.string())
                    table = self._texts = _table_of(known, self.fixed)
        return table

    def _listed(self, entries: pa.Array) -> list[str | None]:
        """Return strings, which lie inside their bytes, as Python's."""
        try:
            listed: list[str | None] = entries.to_pylist()
        except UnicodeDecodeError as error:
            raise self._no_text(error) from error
        return listed

    def _write_codes(
        self, entries: pa.Array, codes: NDArray[np.uint32], kernels: ModuleType
    ) -> tuple[bool, bool]:
        """Write the codes of strings, adding new ones to an open book; see `encode_rows`."""
        if self.null_values:
            entries = blanked(entries, pa.array(sorted(self.null_values)))
        known = _known(entries)
        find, unseen = self._find, False
        try:
            entries.validate()
            offsets, data = texts_of(entries)
            if kernels is dispatch.numpy_twin("reading.encode"):
                find = self._find_distinct
                if not _inside(offsets, data):
                    raise self._out_of_bytes()
            first, spared = 0, Texts(offsets, data).spared()
            while first < len(codes):
                # Codes stay near. Where most are new the lock is not held for long, and the first
                # few tell whether they are; the last texts of an array are copied.
                step = 4 * BLOCK_ROWS
                if self._mostly_new:
                    step = BLOCK_ROWS if len(self) else FIRST_TEXTS
                last = min(first + step, spared if first < spared else len(codes))
                some = codes[first:last]
                if known is None:
                    some.fill(UNSEEN)
                else:  # UNSEEN is one more
                    some[:] = known[first:last]
                    np.add(some, MISSING, out=some)
                texts = Texts(offsets[first : last + 1], data)
                if not find(texts, some, kernels):
                    unseen = True
                    entries.slice(first, len(some)).validate(full=True)
                first = last
        except pa.ArrowInvalid as error:
            raise self._no_text(error) from error
        except IndexError as error:
            raise self._out_of_bytes() from error
        except OverflowError as error:
            raise DataError(
                f"column {self.name!r} has distinct texts of {error}, more than Arrow's strings "
                "hold; leave it out with `columns`, or group its values"
            ) from error
        return known is not None, unseen

    def _no_text(self, error: Exception) -> DataError:
        return DataError(
            f"column {self.name!r} holds bytes that are not UTF-8 text ({error}); "
            "write the file again as UTF-8"
        )

    def _out_of_bytes(self) -> DataError:
        return DataError(
            f"column {self.name!r} has strings outside of their bytes; the data are corrupt: "
            "write them again"
        )

    def _find(self, texts: Texts, codes: NDArray[np.uint32], kernels: ModuleType) -> bool:
        """Write the codes of strings where they are UNSEEN; return whether all have one."""
        table = self._table()
        if self._mostly_new and self._lock.acquire(blocking=False):
            try:
                self._add(texts, codes, kernels)
            finally:
                self._lock.release()
            return True
        ready = kernels.indexed(table)
        if ready is not table:
            with self._lock:
                ready = self._texts = kernels.indexed(self._texts)
        if kernels.find_texts(ready, texts, codes):
            return True
        if not self.fixed:
            with self._lock:
                self._add(texts, codes, kernels)
        return not self.fixed

    def _find_distinct(self, texts: Texts, codes: NDArray[np.uint32], kernels: ModuleType) -> bool:
        """Write codes as `_find` does, of texts that lie inside their bytes.

        Arrow tells which are equal: Python would take ten times as long to look at each.
        """
        sought = np.flatnonzero(codes == UNSEEN)
        strings = _strings_of(texts)
        if len(sought) < len(codes):
            strings = strings.take(pa.array(sought))
        encoded = strings.dictionary_encode()
        distinct = np.full(len(encoded.dictionary), UNSEEN, np.uint32)
        complete = self._find(Texts(*texts_of(encoded.dictionary)), distinct, kernels)
        codes[sought] = distinct[encoded.indices.to_numpy()]
        return complete

    def _add(self, texts: Texts, codes: NDArray[np.uint32], kernels: ModuleType) -> None:
        """Add strings where they are UNSEEN and not known; the lock is held."""
        known = self._texts
        assert known is not None
        try:
            table = kernels.add_texts(kernels.indexed(known), texts, codes)
            offsets, data, n_texts = table[:3]
            new = n_texts - known.n_texts
            ends = pa.py_buffer(offsets[known.n_texts :])
            pa.StringArray.from_buffers(new, ends, pa.py_buffer(data)).validate(full=True)
        except (OverflowError, pa.ArrowInvalid):
            self._texts = known.forgotten()
            raise
        self._texts, self._mostly_new = table, 2 * new > len(codes)

    def integers(self, low: int, high: int) -> tuple[int, NDArray[np.uint32]]:
        """Return (first, table): the code of integer v is table[v - first], UNSEEN if unknown."""
        cached = self._integers
        if cached is not None and cached[2] == len(self.codes):
            first, table, _ = cached
            if first <= low and high < first + len(table):
                return first, table
        known = list(self.codes)  # meanwhile other threads may add to it
        # Infinity and fractions are no integers.
        near = (v for v in known if abs(v - low) < SPAN and abs(v - high) < SPAN)
        inside = [int(v) for v in near if v == int(v)]
        first, last = min([low, *inside]), max([high, *inside])
        if last - first >= SPAN:
            first, last = low, high
        table = np.full(last - first + 1, UNSEEN, dtype=np.uint32)
        for value in inside:
            if first <= value <= last:
                table[value - first] = self.codes[value]
        self._integers = (first, table, len(known))
        return first, table


def _inside(offsets: NDArray[np.signedinteger], data: NDArray[np.uint8]) -> bool:
    """Return whether texts lie one after the other inside their bytes."""
    in_order = (offsets[1:] >= offsets[:-1]).all()
    return bool(in_order and offsets[0] >= 0 and offsets[-1] <= len(data))


def _strings_of(texts: Texts) -> pa.Array:
    """Return texts as an array of Arrow's, which may not be UTF-8."""
    kind = pa.string() if texts.offsets.dtype.itemsize == 4 else pa.large_string()
    buffers = [None, *map(pa.py_buffer, texts)]
    return pa.Array.from_buffers(kind, len(texts.offsets) - 1, buffers)


def _without_views(texts: pa.Array) -> pa.Array:
    """Return strings side by side instead of views of them."""
    return texts.cast(pa.string()) if pa.types.is_string_view(texts.type) else texts


def _known(column: pa.Array) -> NDArray[np.uint8] | None:
    """Return 1 where a value is known, 0 where it is null; None: all are known."""
    if not column.null_count:
        return None
    bitmap = np.frombuffer(column.buffers()[0], np.uint8)
    first, bit = divmod(column.offset, 8)
    count = bit + len(column)
    return np.unpackbits(bitmap[first:], count=count, bitorder="little")[bit:]


def _same_memory(a: pa.Array, b: pa.Array) -> bool:
    """Return whether two arrays of one length are the same bytes of memory."""
    if a is b:
        return True
    pairs = zip(a.buffers(), b.buffers(), strict=False)
    return (
        a.type == b.type
        and a.offset == b.offset
        and all((x and x.address) == (y and y.address) for x, y in pairs)
    )


def _table_of(values: pa.Array, fixed: bool) -> TextTable:
    """Return strings as a table to find texts in.

    That of a domain which is not long is kept with it: to index it anew for every few rows would
    take longer than to find and to score them.
    """
    key = id(values)
    table = _TABLES.get(key) if fixed else None
    if table is None:
        table = TextTable.of(Texts(*texts_of(values)))
        if fixed and len(values) <= KEPT:
            _TABLES[key] = table
            weakref.finalize(values, _TABLES.pop, key, None).atexit = False
    return table


_TABLES: dict[int, TextTable] = {}


class BinBook:
    """The bins of a numeric column, a book that is closed from the start.

    Code k is the bin (cuts[k - 1], cuts[k]]; cut points are ascending.
    """

    fixed = True

    def __init__(self, name: str, cuts: NDArray[np.float64]) -> None:
        self.name = name
        self.cuts = cuts

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def values(self) -> pa.Array:
        """Return the numbers of the bins."""
        return numbers_of_bins(len(self))


def open_book(
    name: str, kind: pa.DataType, declared: pa.Array | None, null_values: Iterable[str]
) -> Codebook:
    """Return the codebook to learn a column of this type with, closed where values are declared."""
    canonical = value_type(name, kind)
    if declared is None:
        return Codebook(name, canonical, null_values=null_values)
    common = common_type(name, declared.type, canonical)
    listed = cast_domain(name, declared, common)
    return Codebook(name, common, listed, fixed=True, null_values=null_values)


def closed_book(
    name: str, kind: pa.DataType, values: pa.Array, null_values: Iterable[str]
) -> Codebook:
    """Return the codebook of a learned domain for a column of this type.

    Raises SchemaError when the column was of another type when it was learned.
    """
    if not len(values):
        values = pa.nulls(0)  # which go with any type
    if pa.types.is_temporal(decoded(kind)):  # as which none is learned
        void = pa.types.is_null(values.type)
        was = "had no values" if void else f"was {values.type}"
        now = pa.string() if void else values.type
        raise SchemaError(f"column {name!r} {was} at fit and is {kind} now; cast it to {now}")
    own = value_type(name, kind)
    try:
        common_type(name, values.type, own)
    except SchemaError as error:
        raise SchemaError(
            f"column {name!r} was {values.type} at fit and is {kind} now; cast it to {values.type}"
        ) from error
    return Codebook(name, values.type, values, fixed=True, null_values=null_values)


class Prepared(NamedTuple):
    """A column whose values its book knows, before their codes are written.

    size      values known to the book when the column was prepared
    missing   whether a value may be missing
    unseen    whether one may be outside a closed book
    integers  what stands for the values; None where these are numbers
    minimum   integer of the first entry of a lookup
    found     codes of the entries, of each dictionary that pieces of the column have
    own       so many integers before those of the entries are codes themselves
    numbers   numbers to be cut into bins, and the book of these
    """

    size: int
    missing: bool
    unseen: bool = False
    integers: IntegerColumn | None = None
    minimum: int = 0
    found: Sequence[Lookup] = ()
    numbers: tuple[NDArray[np.float64], BinBook] | None = None
    own: int = 0

    def translations(self, missing: int) -> list[Translation]:
        """Return the codes of the entries; of what is unseen it is one above that of missing."""
        return [
            found.translation(self.minimum, missing, self.own, unseen=self.unseen)
            for found in self.found
        ]


def floats(column: Column, kernels: ModuleType) -> tuple[NDArray[np.float64], bool]:
    """Return a column as float64, NaN where it is null, and whether it is anywhere.

    Without a copy where it can be.
    """
    if column.type != pa.float64():
        column = doubles(column)
    array = combine(chunks_of(column))
    validity, values = array.buffers()
    if values is None:  # as Arrow may have it where all is null
        return np.full(len(array), np.nan), len(array) > 0
    held = np.frombuffer(values, np.float64)[array.offset :][: len(array)]
    if not array.null_count:
        return held, False
    # Of Arrow's pool, which hands out again what was given back; fresh memory is cleared first.
    numbers = np.frombuffer(pa.allocate_buffer(held.nbytes), np.float64)
    kernels.known_numbers(held, np.frombuffer(validity, np.uint8), array.offset, numbers)
    return numbers, True


def prepare(
    book: Codebook,
    rows: Rows,
    pieces: Pieces | DecodedRows,
    n: int,
    kernels: ModuleType,
    at: Callable[[int], str],
) -> Prepared:
    """Look up a column's values; the codes are written once all sizes are known.

    pieces  where the integers of this column are, among others
    at      the words for a row, by its position
    """
    t, kind = pa.types, rows.schema.field(book.name).type
    if kind != book.last_kind:
        book.widen(value_type(book.name, kind))
        book.last_kind = kind
    if t.is_null(kind) or not n:
        return _all_null(book, n)
    if book.kind == pa.float64() and not book.fixed and decoded(kind) in LONG_INTEGERS:
        _refuse_beyond_floats(book.name, rows.column(book.name), at)
    if t.is_boolean(kind):
        truth = _lookup(book.encode(pa.array([False, True]), kernels))
        return _prepared(book, pieces.integers(book.name), 0, [truth])
    if t.is_integer(kind) and not t.is_uint64(kind):
        quick = _prepare_integers(book, pieces.integers(book.name), n, kernels)
        if quick is not None:
            return quick
    if t.is_dictionary(kind):
        dictionaries = pieces.dictionaries(book.name)
        if len(dictionaries) == 1 and (met := book.met(dictionaries[0][0])) is not None:
            return _prepared(book, pieces.integers(book.name), 0, [met])
        # Arrow takes nothing from string views.
        text = is_text(kind) and not t.is_string_view(kind.value_type)
        if not text or all(book.is_worth_a_table(*each) for each in dictionaries):
            found = [book.lookup(_exact(entries), rows, kernels) for entries, rows in dictionaries]
            return _prepared(book, pieces.integers(book.name), 0, found)
        try:
            chunks = chunks_of(rows.column(book.name))
            array = combine([c.dictionary.take(c.indices) for c in chunks])
        except pa.ArrowIndexError as error:
            raise corrupt(book.name) from error
    else:
        array = combine(chunks_of(rows.column(book.name)))
    if is_text(array.type):
        return _coded(book, *book.encode_rows(array, kernels))
    if t.is_floating(kind) or t.is_decimal(kind):
        array = doubles(array)
    array = array.dictionary_encode()
    found = [book.lookup(_exact(array.dictionary), n, kernels)]
    return _prepared(book, integers_of(array.indices), 0, found)


def _refuse_beyond_floats(name: str, column: Column, at: Callable[[int], str]) -> None:
    """Raise DataError for a whole number that float64, in which others are, may not tell apart."""
    values = combine([without_dictionary(chunk) for chunk in chunks_of(column)])
    whole = values.fill_null(0).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((whole > MOST_EXACT) | (whole < -MOST_EXACT))
    if len(rows):
        row = int(rows[0])
        raise DataError(f"column {name!r}, {at(row)}: {beyond(whole[row], pa.float64())}")


def _exact(entries: pa.Array) -> pa.Array:
    """Return values, numbers that are no integers as float64."""
    if pa.types.is_floating(entries.type) or pa.types.is_decimal(entries.type):
        # Decimals equal no float, and of 0.0 and -0.0, which are equal, the first would stay.
        return pc.add(doubles(entries), 0.0)
    return entries


def corrupt(name: str) -> DataError:
    """Return the error of a dictionary index outside its dictionary."""
    return DataError(
        f"column {name!r} has dictionary indices outside its dictionary; the data are corrupt: "
        "write them again"
    )


def _coded(book: Codebook, codes: NDArray[np.uint32], missing: bool, unseen: bool) -> Prepared:
    """Return the column of these codes, with MISSING and UNSEEN among them if it is said so."""
    size, entries = len(book), np.empty(0, np.uint32)
    if missing and unseen:
        np.subtract(codes, MISSING - np.uint32(size), out=codes, where=codes >= MISSING)
    elif missing or unseen:  # all of these are the same, and greater
        np.minimum(codes, np.uint32(size + unseen), out=codes)
    if missing or unseen:
        entries = np.array([MISSING, UNSEEN])
    found = Lookup(entries, not len(entries), missing, unseen)
    integers = IntegerColumn.of(codes)
    return _prepared(book, integers, 0, [found])._replace(size=size, own=size)


def _lookup(table: NDArray[np.uint32]) -> Lookup:
    """Return the codes of entries, with what there is to know of them."""
    if len(table) <= FEW_VALUES:  # see `Codebook`
        codes = table.tolist()
        return Lookup(table, codes == list(range(len(codes))), MISSING in codes, UNSEEN in codes)
    special = int(table.max()) >= MISSING
    return Lookup(
        table,
        not special and np.array_equal(table, np.arange(len(table))),
        bool(special and (table == MISSING).any()),
        bool(special and (table == UNSEEN).any()),
    )


def _prepared(
    book: Codebook, integers: IntegerColumn, minimum: int, found: Sequence[Lookup]
) -> Prepared:
    missing, unseen = integers.has_nulls, False
    for one in found:  # as a rule one: any() takes three times as long
        missing, unseen = missing or one.has_missing, unseen or one.has_unseen
    return Prepared(len(book), missing, unseen, integers, minimum, found)


def _all_null(book: Codebook, n: int) -> Prepared:
    """Return n rows of which each is null: bits that are 0, and so is what is known of them."""
    none = np.zeros(-(-n // 8), np.uint8)
    found = _lookup(np.empty(0, np.uint32))
    return Prepared(len(book), n > 0, integers=IntegerColumn.of(none, 0, none), found=[found])


def _prepare_integers(
    book: Codebook, integers: IntegerColumn, n: int, kernels: ModuleType
) -> Prepared | None:
    """Look integers up by their distance from the smallest; None when they are spread too far."""
    low, high = kernels.min_max(integers)
    if high < low:
        return _all_null(book, n)
    if high - low >= SPAN:
        return None
    first, table = book.integers(low, high)
    if not book.fixed and (table == UNSEEN).any():
        new = kernels.occurring(integers, first, len(table))[:-1] & (table == UNSEEN)
        if new.any():
            book.encode(pa.array(first + np.flatnonzero(new)), kernels)
            first, table = book.integers(low, high)
        # What else has no code does not occur.
        table = np.where(table == UNSEEN, np.uint32(0), table)
    return _prepared(book, integers, first, [_lookup(table)])


def needed_type(columns: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column; SchemaError where it is not there, or more than once."""
    found = columns.get_all_field_indices(name)
    if len(found) != 1:
        how = "stands more than once" if found else "is missing"
        instead = "" if found else f"; {ABSENT}"
        raise SchemaError(
            f"column {name!r} {how}; the model needs it and the data have {columns.names}{instead}"
        )
    return columns.field(found[0]).type


def check_number(name: str, kind: pa.DataType, use: Use = "a feature") -> None:
    """Raise SchemaError where a column does not hold numbers."""
    if not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        value_type(name, kind, use)
        shown = decoded(kind) if is_text(kind) else kind
        raise SchemaError(
            f"column {name!r} is {shown}, but numbers are needed there; cast it to a number"
        )
