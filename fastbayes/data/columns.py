"""One column at a time: Arrow arrays of any encoding to codes or float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.domains import value_type
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data.infer import MISSING, SPAN, UNSEEN, BinBook, Codebook, Lookup
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import FEW_ENTRIES


class Prepared(NamedTuple):
    """A column whose codes are known but not yet written."""

    size: int  # values known to the codebook when the column was prepared
    missing: bool
    unseen: bool
    write: Callable[[int, NDArray[np.unsignedinteger]], None]
    # Where it is nothing but 32-bit indices: these, and what they stand for.
    plain: tuple[NDArray[np.uint32], Lookup] | None = None


def floats(column: pa.Array) -> NDArray[np.float64]:
    """Return a column as float64 with NaN where it is null; zero-copy where it can be."""
    if column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False))


def _view(column: pa.Array, index: int = 1) -> NDArray[Any]:
    """Return the values of a fixed-width array without copying, nulls holding garbage."""
    buffer = column.buffers()[index]
    kind = column.type.to_pandas_dtype()
    if buffer is None:
        return np.zeros(len(column), dtype=kind)
    return np.frombuffer(buffer, dtype=kind)[column.offset : column.offset + len(column)]


def _bits(column: pa.Array, index: int = 0) -> NDArray[np.uint8] | None:
    buffer = column.buffers()[index]
    if buffer is None or (index == 0 and column.null_count == 0):
        return None
    return np.frombuffer(buffer, dtype=np.uint8)


def prepare(book: Codebook, column: pa.Array, n: int, kernels: ModuleType) -> Prepared:
    """Look up a column's values; the codes are written once all sizes are known."""
    t, kind = pa.types, column.type
    book.widen(value_type(book.name, kind))
    if t.is_null(kind):
        return Prepared(len(book), n > 0, False, lambda missing, out: out.fill(missing))
    if t.is_boolean(kind):
        return _prepare_booleans(book, column, n, kernels)
    if t.is_integer(kind) and not t.is_uint64(kind):
        quick = _prepare_integers(book, column.cast(pa.int64()), n, kernels)
        if quick is not None:
            return quick
    if t.is_floating(kind) or t.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
    elif t.is_string_view(kind):
        column = column.cast(pa.string())
    if not t.is_dictionary(kind):
        column = column.dictionary_encode()
    indices, entries = column.indices, column.dictionary
    if t.is_floating(entries.type) or t.is_decimal(entries.type):
        # Decimals equal no float, and of 0.0 and -0.0, which are equal, the first would stay.
        entries = pc.add(entries.cast(pa.float64(), safe=False), 0.0)
    found = book.lookup(entries)
    size = len(book)
    validity = _bits(indices)

    def write(missing: int, out: NDArray[np.unsignedinteger]) -> None:
        table = None
        if not (found.identity and len(found.table) == missing):
            table = _with_codes(found, missing)
        if not kernels.take(_view(indices), validity, indices.offset, table, missing, out):
            raise _corrupt(book.name)

    plain = None
    if validity is None and indices.type.bit_width == 32 and _is_plain(found, size):
        plain = _view(indices).view(np.uint32), found
    missing = found.has_missing or validity is not None
    return Prepared(size, missing, found.has_unseen, write, plain)


def prepare_bins(
    book: BinBook, values: NDArray[np.float64], missing: bool, cells: float
) -> Prepared:
    """Look up the bins of numbers, of which NaN is missing."""

    def write(code: int, out: NDArray[np.unsignedinteger]) -> None:
        dispatch.load("bins", cells).assign(values, book.cuts, code, out)

    return Prepared(len(book), missing, False, write)


def _is_plain(found: Lookup, size: int) -> bool:
    """Return whether `take_columns` can write the codes of a lookup."""
    few = found.identity or 0 < len(found.table) <= FEW_ENTRIES
    return few and size < 255 and not (found.has_missing or found.has_unseen)


def write_plain(
    prepared: Sequence[tuple[int, Prepared]],
    matrix: NDArray[np.uint8],
    names: Sequence[str],
    kernels: ModuleType,
) -> None:
    """Write the codes of plain columns, each into its row of the matrix, in one call."""
    columns, tables, rows, sizes = [], [], [], []
    for row, column in prepared:
        assert column.plain is not None
        indices, found = column.plain
        columns.append(indices)
        tables.append(None if found.identity else found.table)
        rows.append(row)
        sizes.append(len(found.table))
    largest = kernels.take_columns(columns, tables, rows, matrix)
    for name, top, size in zip(names, largest.tolist(), sizes, strict=True):
        if top >= size and matrix.shape[1]:
            raise _corrupt(name)


def _corrupt(name: str) -> DataError:
    return DataError(
        f"column {name!r} has dictionary indices outside its dictionary; the data are corrupt: "
        "write them again"
    )


def _with_codes(found: Lookup, missing: int) -> NDArray[np.uint32]:
    if not (found.has_missing or found.has_unseen):
        return found.table
    table = found.table.copy()
    table[found.table == MISSING] = missing
    table[found.table == UNSEEN] = missing + 1
    return table


def _prepare_booleans(book: Codebook, column: pa.Array, n: int, kernels: ModuleType) -> Prepared:
    both = book.encode([False, True])
    size = len(book)
    validity = _bits(column)
    bitmap = np.frombuffer(column.buffers()[1], dtype=np.uint8) if n else np.zeros(1, np.uint8)

    def write(missing: int, out: NDArray[np.unsignedinteger]) -> None:
        codes = np.array([*both, missing], dtype=np.uint32)
        codes[codes == UNSEEN] = missing + 1
        kernels.unpack(bitmap, column.offset, n, validity, column.offset, codes, out)

    return Prepared(size, validity is not None, bool((both == UNSEEN).any()), write)


def _prepare_integers(
    book: Codebook, column: pa.Array, n: int, kernels: ModuleType
) -> Prepared | None:
    """Look integers up by their distance from the smallest; None when they are spread too far."""
    values, validity = _view(column), _bits(column)
    low, high = kernels.min_max(values, validity, column.offset)
    if high < low:
        return Prepared(len(book), n > 0, False, lambda missing, out: out.fill(missing))
    if high - low >= SPAN:
        return None
    found = np.empty(n, dtype=np.uint32)

    def spread() -> bool:
        first, table = book.integers(low, high)
        # MISSING - 1 is UNSEEN, so both stand outside every code.
        kernels.spread(values, first, table, int(UNSEEN) - 1, validity, column.offset, found)
        return bool((found == UNSEEN).any())

    unseen = spread()
    if unseen and not book.fixed:
        book.encode(pc.unique(column).to_pylist())
        unseen = spread()
    hidden = UNSEEN - np.uint32(1)

    def write(missing: int, out: NDArray[np.unsignedinteger]) -> None:
        codes = found
        if validity is not None or unseen:
            codes = np.where(
                found == hidden, missing, np.where(found == UNSEEN, missing + 1, found)
            )
        out[...] = codes

    return Prepared(len(book), validity is not None, unseen, write)


class ColumnTypes:
    """The types of the data's columns, for a model that needs some of them."""

    def __init__(self, columns: pa.Schema) -> None:
        self.names = columns.names
        self.times = Counter(self.names)
        self.types = dict(zip(self.names, columns.types, strict=True))

    def of(self, name: str) -> pa.DataType:
        """Return the type of a column; SchemaError where it is not there, or more than once."""
        if self.times[name] != 1:
            how = "stands more than once" if self.times[name] else "is missing"
            raise SchemaError(
                f"column {name!r} {how}; the model needs it and the data have {self.names}"
            )
        return self.types[name]


def check_number(name: str, kind: pa.DataType) -> None:
    """Raise SchemaError where a column does not hold numbers."""
    t = pa.types
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)
    if not (number or t.is_boolean(kind) or t.is_null(kind)):
        value_type(name, kind)
        raise SchemaError(
            f"column {name!r} is {kind}, but numbers are needed there; cast it to a number"
        )
