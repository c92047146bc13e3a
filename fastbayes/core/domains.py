"""Domains: the values of a categorical column as a sorted Arrow array of a canonical type.

Where a numeric column is cut into bins, cut points stand for the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t
from numpy.typing import NDArray

from fastbayes.core.doubles import doubles
from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.text_order import ascending_texts

Kind = Literal["categorical", "numeric"]
# What a column's values are to be.
Use = Literal["a feature", "the class", "the folds", "the weights"]

# The type of categorical values, by what their column is stored as; the first that fits.
CANONICAL = {
    pa.string(): (t.is_string, t.is_large_string, t.is_string_view),
    pa.bool_(): (t.is_boolean,),
    pa.null(): (t.is_null,),
    pa.uint64(): (t.is_uint64,),
    pa.int64(): (t.is_integer,),
    pa.float64(): (t.is_floating, t.is_decimal),
}
REMEDIES = {
    t.is_temporal: "cast it to a number, or extract hour, weekday or month as a column of its own, "
    "or leave it out with `exclude`",
    t.is_run_end_encoded: "decode it with pyarrow.compute.run_end_decode",
    t.is_nested: "leave it out with `exclude`, or explode it into rows or columns before",
    t.is_fixed_size_binary: "cast it to string if its bytes are text, write others as text (as "
    "bytes.hex does), or leave it out with `exclude`",
}
# Of a column that cannot be left out.
LABEL_REMEDIES = {
    t.is_temporal: "cast it to string, or to a number such as the year",
    t.is_run_end_encoded: REMEDIES[t.is_run_end_encoded],
    t.is_nested: "make a column of one string or number a row of it",
    t.is_fixed_size_binary: "cast it to string if its bytes are text, or write others as text (as "
    "bytes.hex does)",
}
WEIGHT_REMEDIES = {
    t.is_run_end_encoded: REMEDIES[t.is_run_end_encoded],
    t.is_nested: "make a column of one number a row of it",
}


def same_values(a: pa.Array | None, b: pa.Array | None) -> bool:
    """Return whether two domains hold the same values in the same order."""
    if a is b or a is None or b is None:
        return a is b
    if len(a) == len(b) == 0:
        return True
    return bool(a.type == b.type and a.equals(b))


def same_cuts(a: NDArray[np.float64] | None, b: NDArray[np.float64] | None) -> bool:
    """Return whether two columns are cut at the same points, or neither is cut."""
    return a is b if a is b or a is None or b is None else np.array_equal(a, b)


def common_type(name: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of both: null with anything, int with float.

    It is the canonical type of columns of both types that are read as one (`unify_types`): days
    that are merged have the values that they have in one pass. But uint64 and a shorter unsigned
    type, whose values are int64, meet at that.
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    numbers = pa.uint64(), pa.int64(), pa.float64()  # each gives way to those after it
    if a in numbers and b in numbers:
        return max(a, b, key=numbers.index)
    raise SchemaError(
        f"column {name!r} holds {a} in one place and {b} in another; cast it to one type"
    )


def cast_domain(name: str, values: Any, kind: pa.DataType) -> pa.Array:
    """Return values of a domain (Arrow, or a list) as the wider type of another, exactly.

    Raises SchemaError for a whole number that is beyond that type.
    """
    if isinstance(values, pa.Array) and values.type == kind:
        return values
    try:
        return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError) as error:
        listed = values.to_pylist() if isinstance(values, pa.Array) else values
        largest = max(filter(None, listed), key=abs)
        raise SchemaError(f"column {name!r}: {beyond(largest, kind)}") from error


def beyond(value: int, kind: pa.DataType) -> str:
    """Return what is wrong with a whole number in a column that is of a type elsewhere."""
    most, flaw, types = "2**63 - 1", "ends there", "double or string"
    if kind == pa.float64():
        most, flaw, types = "2**53", "cannot tell such numbers apart", "string"
    return (
        f"{value} is a whole number beyond {most}, and the column is {kind} elsewhere, which "
        f"{flaw}; cast it to one type, such as {types}"
    )


def sorted_domain(values: pa.Array) -> pa.Array:
    """Return the distinct non-null values in ascending order (strings by code point)."""
    values = values.drop_null()
    if not len(values):  # Arrow compares no nulls
        return values
    values = values.take(pa.array(ascending(values)))
    changes = pc.not_equal(values[1:], values[:-1])
    return pa.concat_arrays([values[:1], values[1:].filter(changes)])


def is_sorted(values: pa.Array) -> bool:
    """Return whether values are a domain: in ascending order, each once, none missing."""
    if values.null_count or not len(values):
        return not len(values)
    return bool(pc.all(pc.less(values[:-1], values[1:]), min_count=0).as_py())


def ascending(values: pa.Array) -> NDArray[np.int64]:
    """Return the indices that sort values without nulls."""
    if pa.types.is_null(values.type):
        return np.arange(len(values))
    if pa.types.is_string(values.type):
        return ascending_texts(*texts_of(values)).astype(np.int64)
    return np.asarray(pc.array_sort_indices(values).to_numpy().astype(np.int64))


def texts_of(column: pa.Array) -> tuple[NDArray[np.signedinteger], NDArray[np.uint8]]:
    """Return where each string begins, and last where the last one ends, and the bytes of all."""
    # Nulls of no type have neither, and Arrow may have none where there are no bytes.
    ends, data = (None, None) if t.is_null(column.type) else column.buffers()[1:]
    if ends is None or data is None:
        return np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8)
    kind: type[np.signedinteger] = np.int64 if t.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(ends, kind)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(data, np.uint8)


def positions(wanted: pa.Array, existing: pa.Array | None, name: str = "") -> NDArray[np.int64]:
    """Return the index in `existing` of each wanted value, -1 where it is not there."""
    if existing is None or len(existing) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if same_values(wanted, existing) and not wanted.null_count:
        return np.arange(len(wanted))
    if wanted.type != existing.type:
        kind = common_type(name, wanted.type, existing.type)
        wanted, existing = cast_domain(name, wanted, kind), cast_domain(name, existing, kind)
    found = pc.index_in(wanted, value_set=existing)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


class DeclaredDomains(dict[str, pa.Array]):
    """Domain arrays by column that were checked: scan after scan may declare them."""


def declared(domains: Mapping[str, Any] | None) -> DeclaredDomains:
    """Return declared values by column as sorted domain arrays, checked once; see `domain`."""
    if isinstance(domains, DeclaredDomains):
        return domains
    refuse(
        domains is not None and not isinstance(domains, Mapping),
        f"domains={domains!r}: give the values of each column, {{name: values}}",
        SchemaError,
    )
    return DeclaredDomains({name: domain(name, values) for name, values in (domains or {}).items()})


def domain(name: str, values: Any) -> pa.Array:
    """Return declared values as a sorted domain array.

    Raises SchemaError when values repeat, are missing, or are of a type that is no category.
    """
    if isinstance(values, (str, bytes)):
        raise SchemaError(f"domains[{name!r}]={values!r}: give a list of values, [{values!r}]")
    try:
        given = values if isinstance(values, pa.Array) else array_of(list(values))
        refuse(
            t.is_temporal(given.type),
            f"domains[{name!r}] holds dates or times: cast column and values to string, or, where "
            f"it is a feature, declare the values of one of its parts ('{name}.weekday')",
            SchemaError,
        )
        given = canonical_values(name, given)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SchemaError(f"domains[{name!r}]: {error}; list values of one type") from error
    given = known_values(given)
    # Most are domains that were learned before, and to sort them takes longer than to look.
    result = given if is_sorted(given) else sorted_domain(given)
    if len(result) != len(given):
        raise SchemaError(f"domains[{name!r}] has repeated or missing values; list each value once")
    if not len(result):
        raise SchemaError(f"domains[{name!r}] is empty; list its values, or leave it out")
    return result


def known_values(values: pa.Array) -> pa.Array:
    """Return categorical values, of doubles with null for NaN and 0.0 for -0.0."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), pc.add(values, 0.0))


# Units of numpy's dates and durations that are coarser than those of Arrow, and what holds them.
_COARSE = {
    "M": {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"},
    "m": {"W": "s", "D": "s", "h": "s", "m": "s"},
}


def array_of(values: Any) -> pa.Array:
    """Return values as an Arrow array; whole numbers from 2**63 on as uint64, NaN in objects null.

    Raises what pyarrow does for values that are not of one type or are beyond 64 bits, as dates and
    durations of a coarse unit may be in that which holds them.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        unit = np.datetime_data(values.dtype)[0]
        if values.dtype.kind == "m" and unit in ("Y", "M"):
            raise TypeError("durations of months or years differ in days; give days or numbers")
        unit = _COARSE[values.dtype.kind].get(unit, unit)  # nor does Arrow know steps of 10 s
        finer = values.astype(f"{values.dtype.kind}8[{unit}]", copy=False)
        if unit == "D" or finer.dtype != values.dtype:
            beyond = finer.astype(values.dtype) != values  # numpy wraps around
            if unit == "D":  # so does Arrow, whose days have 32 bits
                beyond |= np.abs(finer.astype(np.int64)) >= 1 << 31
            beyond &= ~np.isnat(values)
            if beyond.any():
                row = int(beyond.argmax())
                raise OverflowError(
                    f"row {row}: {values[row]!r} is beyond what Arrow holds in units of {unit!r}; "
                    "give numbers or text"
                )
        values = finer
    try:
        return pa.array(values, from_pandas=True)
    except OverflowError:  # beyond int64, which is what pyarrow tries
        return pa.array(values, pa.uint64(), from_pandas=True)


def decoded(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, whether or not a dictionary encodes them."""
    return kind.value_type if t.is_dictionary(kind) else kind


def value_type(name: str, kind: pa.DataType, use: Use = "a feature") -> pa.DataType:
    """Return the canonical type of categorical values stored as `kind`.

    Raises SchemaError for temporal, nested and binary types, with the column and the remedy.
    """
    kind = decoded(kind)
    if (canonical := _canonical(kind)) is not None:
        return canonical
    text = "" if use == "the weights" else "string or to "
    otherwise = f"cast it to {text}a number"
    remedies = {"a feature": REMEDIES, "the weights": WEIGHT_REMEDIES}.get(use, LABEL_REMEDIES)
    remedy = next((remedy for test, remedy in remedies.items() if test(kind)), otherwise)
    raise SchemaError(f"column {name!r} has type {kind}, which cannot be {use}: {remedy}")


def is_category(kind: pa.DataType) -> bool:
    """Return whether values stored as `kind` can be categories: those of `value_type`."""
    return _canonical(decoded(kind)) is not None


def canonical_values(
    name: str, values: pa.Array | pa.ChunkedArray, use: Use = "a feature"
) -> pa.Array | pa.ChunkedArray:
    """Return categorical values in their canonical type; SchemaError as `value_type` raises it."""
    kind = value_type(name, values.type, use)
    return doubles(values) if kind == pa.float64() else values.cast(kind)


@lru_cache
def _canonical(kind: pa.DataType) -> pa.DataType | None:
    """Return the canonical type of a type of values; None where they cannot be a category."""
    found = (
        canonical for canonical, tests in CANONICAL.items() if any(test(kind) for test in tests)
    )
    return next(found, None)


@lru_cache(maxsize=32)
def numbers_of_bins(n: int) -> pa.Array:
    """Return the domain of a column in n bins: most columns have as many as some other."""
    return pa.array(range(n), pa.int64())


def default_kind(name: str, kind: pa.DataType) -> Kind:
    """Return how a column of this Arrow type enters a model unless the user says otherwise."""
    categories = pa.string(), pa.bool_(), pa.null()
    few = value_type(name, kind) in categories or t.is_dictionary(kind)
    return "categorical" if few else "numeric"


def checked_cuts(name: str, cuts: Any) -> NDArray[np.float64]:
    """Return cut points as a read-only float64 array.

    Raises SchemaError when they are not finite numbers in ascending order.
    """
    try:
        points = np.array(cuts, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one number
    except (TypeError, ValueError) as error:
        raise SchemaError(f"column {name!r}: cut points must be numbers ({error})") from error
    few = points.ndim == 1 and not len(points)  # most of many columns have no cut point
    if not few and not (
        points.ndim == 1
        and math.isfinite(points[0])
        and math.isfinite(points[-1])
        and (points[1:] > points[:-1]).all()
    ):
        raise SchemaError(
            f"column {name!r}: cut points must be finite numbers in ascending order, each once, "
            f"not {cuts!r}"
        )
    points.setflags(write=False)
    return points


def intervals(cuts: NDArray[np.float64]) -> list[str]:
    """Return the bins between cut points as text."""
    ends = [_shown(cut) for cut in cuts.tolist()]
    lower, upper = ["(-inf", *(f"({end}" for end in ends)], [*(f"{end}]" for end in ends), "inf)"]
    return [f"{low}, {high}" for low, high in zip(lower, upper, strict=True)]


def cut_points(bins: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return the points between bins that `intervals` wrote; None where these are no such bins."""
    if not (bins and all(isinstance(text, str) and text.startswith("(") for text in bins)):
        return None
    try:
        ends = [float(text[:-1].partition(", ")[2]) for text in bins[:-1]]
        points = checked_cuts("", ends)
    except (ValueError, SchemaError):
        return None
    return points if intervals(points) == [*bins] else None


def described(cuts: NDArray[np.float64] | None) -> str:
    """Return how a column is cut, in words."""
    if cuts is None:
        return "not cut into bins"
    if not len(cuts):
        return "one bin"
    points = [_shown(cut) for cut in cuts[:6].tolist()]
    more = ", …" if len(cuts) > 6 else ""
    return f"{len(cuts) + 1:,} bins cut at {', '.join(points)}{more}"


def _shown(number: float) -> str:
    return repr(number).removesuffix(".0")
