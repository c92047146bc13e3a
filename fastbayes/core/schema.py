"""What the columns are: names, kinds, domains, classes. A schema is a value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.date_parts import DatePart, by_column
from fastbayes.core.domains import (
    Kind,
    cast_domain,
    checked_cuts,
    common_type,
    described,
    intervals,
    is_sorted,
    numbers_of_bins,
    positions,
    same_cuts,
    same_values,
    sorted_domain,
    value_type,
)
from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.exact_arrays import exact
from fastbayes.core.picks import Chooser, Selection, chosen, unknown_column

# Domains up to this size are laid out value by value.
FEW_VALUES = 256
# What may be done at predict where a column is not there.
ABSENT = "missing_columns='marginalize' takes it as missing in all rows"


class Shape(NamedTuple):
    """The sizes that statistics are allocated for."""

    sizes: NDArray[np.int64]  # (n_categorical,) values per categorical feature, missing not counted
    n_numeric: int
    n_classes: int

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First slot of each categorical feature: S_j values and one missing slot each."""
        found = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes + 1, out=found[1:])
        return found

    def equals(self, other: Shape) -> bool:
        """Return whether the sizes are the same."""
        return self[1:] == other[1:] and np.array_equal(self.sizes, other.sizes)


class Alignment(NamedTuple):
    """Where each cell of a wanted shape stands in a statistic that exists; -1 is nowhere."""

    shape: Shape
    categorical: NDArray[np.int64]  # (n_categorical,) feature of the existing statistic
    values: list[NDArray[np.int64]]  # per wanted feature: (S_j,) code of the existing statistic
    numeric: NDArray[np.int64]  # (n_numeric,)
    classes: NDArray[np.int64]  # (n_classes,)


def _shown(values: pa.Array) -> str:
    more = ", …" if len(values) > 6 else ""
    return ", ".join(repr(value) for value in values[:6].to_pylist()) + more


@dataclass(frozen=True, eq=False, repr=False)
class Feature:
    """One column: a categorical one with its sorted domain, or a numeric one.

    A numeric column that is cut into bins is categorical: its values are the numbers of the bins.

    Parameters
    ----------
    name
        Name of the column.
    kind
        "categorical" or "numeric".
    values
        The domain S_j of a categorical feature, sorted, without nulls; None for a numeric one.
    declared
        Whether the domain was given rather than observed: then it never grows nor shrinks.
    cuts
        Where a numeric column is cut, ascending: bin k is (cuts[k - 1], cuts[k]], the first
        without a lower and the last without an upper end. None for a column that is not cut.
    part
        What it is of a column of dates or times, "when.weekday" of "when"; None for a column that
        is a feature itself.
    """

    name: str
    kind: Kind
    values: pa.Array | None = None
    declared: bool = False
    cuts: NDArray[np.float64] | None = None
    part: DatePart | None = None

    @classmethod
    def binned(cls, name: str, cuts: Any, part: DatePart | None = None) -> Feature:
        """Return the feature of a numeric column cut at these points; see `checked_cuts`."""
        points = checked_cuts(name, cuts)
        return cls(name, "categorical", numbers_of_bins(len(points) + 1), True, points, part)

    def __getstate__(self) -> dict[str, Any]:
        values = self.values
        return {**self.__dict__, "values": values if values is None else exact(values)}

    def with_values(self, values: pa.Array) -> Feature:
        """Return the feature with another domain."""
        # `replace` takes three times as long, and every scan does this for every column.
        return Feature(self.name, self.kind, values, self.declared, self.cuts, self.part)

    @property
    def column(self) -> str:
        """The column that it is made of."""
        return self.name if self.part is None else self.part.column

    @property
    def size(self) -> int:
        """S_j, the number of values; 0 for a numeric feature."""
        return 0 if self.values is None else len(self.values)

    @property
    def void(self) -> bool:
        """Whether only nulls of no type were seen: such a column unifies with any other."""
        return self.values is not None and bool(pa.types.is_null(self.values.type))

    @property
    def intervals(self) -> list[str]:
        """The bins of a column that is cut, as text: "(-inf, 2.5]", "(2.5, inf)"; else none."""
        return [] if self.cuts is None else intervals(self.cuts)

    def __repr__(self) -> str:
        if self.values is None:
            return f"Feature({self.name!r}, numeric)"
        if self.cuts is not None:
            return f"Feature({self.name!r}, {described(self.cuts)})"
        declared = ", declared" if self.declared else ""
        return f"Feature({self.name!r}, {self.size:,} values: {_shown(self.values)}{declared})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Feature):
            return NotImplemented
        return (
            (self.name, self.kind, self.declared) == (other.name, other.kind, other.declared)
            and same_cuts(self.cuts, other.cuts)
            and _same_part(self, other)
            and same_values(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class Schema:
    """Features and classes of a statistic or a model, with the options that shape counting.

    Parameters
    ----------
    target
        Name of the class column; None where there is none.
    classes
        Sorted class labels.
    features
        The features in column order.
    classes_declared
        Whether the classes were given rather than observed.
    missing
        "marginalize" or "category".
    null_values
        Strings read as missing.
    """

    target: str | None
    classes: pa.Array
    features: tuple[Feature, ...]
    classes_declared: bool = False
    missing: str = "marginalize"
    null_values: tuple[str, ...] = field(default=())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "classes": exact(self.classes)}

    def __repr__(self) -> str:
        lines = [f"Schema(target={self.target!r}, classes: {_shown(self.classes)}"]
        lines += [f"  {feature!r}" for feature in self.features[:20]]
        if len(self.features) > 20:
            lines.append(f"  … and {len(self.features) - 20:,} more features")
        return "\n".join(lines) + ")"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self is other or (
            self.target == other.target
            and self.missing == other.missing
            and self.null_values == other.null_values
            and self.classes_declared == other.classes_declared
            and self.features == other.features
            and same_values(self.classes, other.classes)
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        return tuple(f.name for f in self.features)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the features are made of, each once."""
        return tuple(dict.fromkeys(f.column for f in self.features))

    @cached_property
    def parts(self) -> dict[str, tuple[DatePart, ...]]:
        """Parts of dates and times among the features, by column."""
        return by_column(f.part for f in self.features if f.part is not None)

    def read_from(self, names: Iterable[str]) -> list[str]:
        """Return which columns to read where these are there.

        The parts of dates and times may be there instead of the column that they are of.
        """
        there = {*names}
        own = [f.name if f.column not in there and f.name in there else f.column
               for f in self.features]  # fmt: skip
        return [*dict.fromkeys(own)]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Where the categorical and the numeric features stand among all."""
        kinds = ("categorical", "numeric")
        return {kind: [i for i, f in enumerate(self.features) if f.kind == kind] for kind in kinds}

    @cached_property
    def categorical(self) -> tuple[Feature, ...]:
        """The categorical features in column order."""
        return tuple(f for f in self.features if f.kind == "categorical")

    @cached_property
    def numeric(self) -> tuple[Feature, ...]:
        """The numeric features in column order."""
        return tuple(f for f in self.features if f.kind == "numeric")

    @cached_property
    def shape(self) -> Shape:
        """The sizes that statistics of this schema are allocated for."""
        sizes = np.array([f.size for f in self.categorical], dtype=np.int64)
        return Shape(sizes, len(self.numeric), len(self.classes))

    @cached_property
    def class_labels(self) -> NDArray[Any]:
        """The classes as a numpy array, (n_classes,)."""
        return labels(self.classes)

    def union(self, other: Schema) -> Schema:
        """Return the smallest schema that holds the values and classes of both.

        Raises
        ------
        SchemaError
            When targets, columns, kinds, cut points, options or types differ, or a value of one
            lies outside the declared domain of the other; the message names the column.
        """
        if self is other:
            return self
        refuse(
            self.target != other.target,
            f"targets differ: {self.target!r} and {other.target!r}; count both with one target",
            SchemaError,
        )
        refuse(
            self.missing != other.missing or self.null_values != other.null_values,
            f"options differ: missing={self.missing!r}, null_values={self.null_values!r} and "
            f"missing={other.missing!r}, null_values={other.null_values!r}",
            SchemaError,
        )
        theirs = {f.name: f for f in other.features}
        for name in sorted(set(self.names) ^ set(theirs)):
            column = next(f for f in (*self.features, *other.features) if f.name == name).column
            remedy = "count both with the same `columns`"
            if named := self.parts.get(column) or other.parts.get(column):
                # Which parts there are by themselves is up to the span of the dates.
                parts = [part.part for part in named]
                remedy = (
                    f"the parts of {column!r} depend on the dates that are there: count both with "
                    f"dates={{{column!r}: {parts}}}, or one with the `schema` of the other"
                )
            raise SchemaError(f"column {name!r} is in only one of the two; {remedy}")
        features = []
        for mine in self.features:
            their = theirs[mine.name]
            if mine.void:
                features.append(their)
                continue
            if their.void:
                features.append(mine)
                continue
            _check_cuts(mine, their)
            refuse(
                not _same_part(mine, their),
                f"column {mine.column!r}: {mine.name!r} is not the same of it in both, as where "
                "time zones differ; count both with one schema",
                SchemaError,
            )
            refuse(
                mine.kind != their.kind,
                f"column {mine.name!r} is {mine.kind} in one and {their.kind} in the other; "
                "name it in `categorical` for both",
                SchemaError,
            )
            if mine.values is not None and their.values is not None:
                values, declared = _union(
                    mine.name, (mine.values, mine.declared), (their.values, their.declared)
                )
                if values is not mine.values or declared != mine.declared:
                    mine = replace(mine, values=values, declared=declared)
            features.append(mine)
        classes, declared = _union(
            self.target or "class",
            (self.classes, self.classes_declared),
            (other.classes, other.classes_declared),
        )
        same = classes is self.classes and declared == self.classes_declared
        if same and all(map(operator.is_, features, self.features)):
            return self  # no part of a sum that has all values so far makes it move its cells
        return replace(self, classes=classes, classes_declared=declared, features=tuple(features))

    def alignment(self, existing: Schema) -> Alignment:
        """Return where each cell of this schema stands in a statistic of `existing`.

        Raises SchemaError when a column is cut at other points.
        """
        cat = {f.name: i for i, f in enumerate(existing.categorical)}
        num = {f.name: i for i, f in enumerate(existing.numeric)}
        where = np.array([cat[f.name] for f in self.categorical], dtype=np.int64)
        for wanted, i in zip(self.categorical, where, strict=True):
            if not existing.categorical[i].void:
                _check_cuts(wanted, existing.categorical[i])
        values = [
            positions(f.values, existing.categorical[i].values, f.name)
            for f, i in zip(self.categorical, where, strict=True)
        ]
        # A column that was all null so far has no moments yet: -1.
        numeric = np.array([num.get(f.name, -1) for f in self.numeric], dtype=np.int64)
        classes = positions(self.classes, existing.classes)
        return Alignment(self.shape, where, values, numeric, classes)

    def in_order(
        self,
        values: Iterable[NDArray[np.bool_]],
        classes: NDArray[np.bool_],
        ascending: Callable[[pa.Array], tuple[pa.Array, NDArray[np.integer]]],
    ) -> tuple[Schema, Alignment]:
        """Return the schema without undeclared values and classes that are not marked.

        Its domains ascend; besides it says where its cells stand in this schema. `ascending` sorts
        values: it returns them in order, and where each one stood.
        """
        keep = iter(values)
        features, places = [], []
        for feature in self.features:
            if feature.values is not None:
                found, place = _in_order(feature.values, feature.declared, next(keep), ascending)
                feature = feature.with_values(found)
                places.append(place)
            features.append(feature)
        found, place = _in_order(self.classes, self.classes_declared, classes, ascending)
        schema = replace(self, features=tuple(features), classes=found)
        same = np.arange(len(places)), places, np.arange(len(self.numeric))
        return schema, Alignment(schema.shape, *same, place)


def _in_order(
    values: pa.Array,
    declared: bool,
    marked: NDArray[np.bool_],
    ascending: Callable[[pa.Array], tuple[pa.Array, NDArray[np.integer]]],
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values that are kept in ascending order, and where they stood."""
    if declared or np.count_nonzero(marked) == len(marked):  # quicker than all() of a few
        found, order = ascending(values)
        return found, order.astype(np.int64)
    place = np.flatnonzero(marked)
    found, order = ascending(values_at(values, place))
    return found, place[order]


def values_at(values: pa.Array, places: NDArray[np.integer]) -> pa.Array:
    """Return the values at places."""
    if len(values) > FEW_VALUES:
        same = len(places) == len(values) and np.array_equal(places, np.arange(len(values)))
        return values if same else values.take(pa.array(places))
    # `take` lets go of the interpreter's lock, and a busy thread is slow to give it back.
    wanted = places.tolist()
    if wanted == list(range(len(values))):
        return values
    listed = values.to_pylist()
    return pa.array([listed[place] for place in wanted], values.type)


@dataclass(frozen=True)
class Needed(Chooser):
    """The columns that the features of a schema are made of, and others besides.

    Parameters
    ----------
    schema
        The schema; where a source has the parts of a date instead of it, these are read.
    also
        Further columns.
    lenient
        Whether features may be without their column.
    remedy
        What the message says besides of one that is not there.
    keys
        Further columns that are copied, by names, patterns or indices.
    """

    schema: Schema
    also: tuple[str, ...] = ()
    lenient: bool = False
    remedy: str = ""
    keys: tuple[str | int, ...] = ()

    @property
    def asked(self) -> Sequence[str]:
        """The columns of features, and others that are named."""
        return [*self.schema.columns, *self.also, *Selection(self.keys).asked]

    def of(self, names: Sequence[str], where: str = "", index: Iterable[str] = ()) -> list[str]:
        """Return the columns to read: of features those that are there, if it is lenient."""
        own, there = self.schema.read_from(names), {*names}
        lacking = [name for name in own if name not in there]
        if self.lenient:
            own = [name for name in own if name in there]
        elif lacking and self.remedy:
            raise SchemaError(
                f"{unknown_column(lacking[0], names, where, {*index})}; {self.remedy}"
            )
        copied = chosen(names, self.keys, "keys", index=index, where=where)
        return [*dict.fromkeys([*own, *self.also, *copied])] or [*names[:1]]  # there must be rows

    def __contains__(self, name: str) -> bool:
        """Return whether a column may be read."""
        known = (*self.schema.columns, *self.schema.names, *self.also)
        return name in known or name in Selection(self.keys)


def _same_part(mine: Feature, their: Feature) -> bool:
    return mine.part is their.part or (mine.part is not None and mine.part.is_same(their.part))


def _check_cuts(mine: Feature, their: Feature) -> None:
    if not same_cuts(mine.cuts, their.cuts):
        raise SchemaError(
            f"column {mine.name!r} is {described(mine.cuts)} in one and {described(their.cuts)} in "
            "the other; count both with one schema, or with the same cut points in `discretize`"
        )


# Bytes of classes in numpy, where each takes as many as the longest.
LABELS_BYTES = 1 << 28


def labels(values: pa.Array) -> NDArray[Any]:
    """Return a domain as a numpy array: str, int64, uint64, bool or float64.

    Raises
    ------
    DataError
        When the longest text is so long that an array with room for it in each place would take
        more than `LABELS_BYTES`, or when a text ends in NUL, which numpy takes for the end of it.
    """
    if pa.types.is_string(values.type):
        if (cut := pc.index(pc.ends_with(values, "\0"), True).as_py()) >= 0:
            raise DataError(
                f"label {values[cut].as_py()!r:.80} ends in NUL, which numpy takes for the end of "
                "a text: take it off (str.rstrip('\\0')), or give the class another name"
            )
        # No text is longer than all of them together.
        longest = values.nbytes
        if 4 * longest * len(values) > LABELS_BYTES:
            longest = pc.max(pc.utf8_length(values)).as_py() or 0
        refuse(
            4 * longest * len(values) > LABELS_BYTES,
            f"{len(values)} labels, the longest of {longest:,} characters, take "
            f"{4 * longest * len(values):,} bytes as an array: shorten that one",
        )
        return np.array(values.to_pylist(), dtype=np.str_)
    if pa.types.is_null(values.type):
        return np.empty(0)
    return np.array(values.to_numpy(zero_copy_only=False))


def _union(name: str, a: tuple[pa.Array, bool], b: tuple[pa.Array, bool]) -> tuple[pa.Array, bool]:
    (x, x_declared), (y, y_declared) = a, b
    if same_values(x, y):
        return (y if len(x) == 0 else x), x_declared or y_declared
    # What was null everywhere goes with any type.
    if len(x) == 0 and not x_declared:
        return y, y_declared
    if len(y) == 0 and not y_declared:
        return x, x_declared
    kind = common_type(name, x.type, y.type)
    x, y = cast_domain(name, x, kind), cast_domain(name, y, kind)
    for domain, declared, extra in ((x, x_declared, y), (y, y_declared, x)):
        if declared:
            outside = extra.filter(pc.invert(pc.is_in(extra, value_set=domain)))
            if len(outside):
                raise SchemaError(
                    f"column {name!r}: value {outside[0].as_py()!r} is outside the declared "
                    "domain of the other; declare one domain for both"
                )
            return domain, True
    both = sorted_domain(pa.concat_arrays([x, y]))
    return (x if same_values(both, x) else both), False


def to_header(schema: Schema) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """Return a schema as a JSON-able header and the domains as named arrays."""
    arrays: dict[str, pa.Array] = {"classes": schema.classes}
    for i, f in enumerate(schema.categorical):
        arrays[f"values.{i}"] = f.values
        if f.cuts is not None:
            arrays[f"cuts.{i}"] = pa.array(f.cuts)
    header = {
        "target": schema.target,
        "missing": schema.missing,
        "null_values": list(schema.null_values),
        "classes_declared": schema.classes_declared,
        "features": [[f.name, f.kind, f.declared] for f in schema.features],
    }
    if schema.parts:
        parts = [(i, f.part) for i, f in enumerate(schema.features) if f.part is not None]
        header["dates"] = [[i, *part.to_json()] for i, part in parts]
    return header, arrays


def from_header(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Schema:
    """Return the schema written by `to_header`.

    Raises ValueError, KeyError, TypeError or AttributeError where it cannot have written that.
    """
    features: list[Feature] = []
    n_categorical = 0
    parts = {i: DatePart.from_json(part) for i, *part in header.get("dates", ())}
    for i, (name, kind, declared) in enumerate(header["features"]):
        feature = Feature(name, kind, None, declared is True, None, parts.pop(i, None))
        refuse(
            feature.part is not None and feature.part.name != name,
            f"column {name!r} is said to be another part of a date",
            ValueError,
        )
        if kind == "categorical":
            values = _checked(name, arrays[f"values.{n_categorical}"])
            cuts = arrays.get(f"cuts.{n_categorical}")
            n_categorical += 1
            feature = feature.with_values(values)
            if cuts is not None:
                feature = _binned(feature, cuts)
        elif kind != "numeric":
            raise ValueError(f"column {name!r} is {kind!r}, neither categorical nor numeric")
        features.append(feature)
    refuse(bool(parts), "there are parts of dates without a feature", ValueError)
    target, missing = header["target"], header["missing"]
    nulls = tuple(header["null_values"])
    names = [f.name for f in features] + ([] if target is None else [target])
    refuse(
        not all(isinstance(n, str) for n in (*names, *nulls)) or len({*names}) < len(names),
        f"the columns {names} are no distinct names",
        ValueError,
    )
    refuse(missing not in ("marginalize", "category"), f"missing is {missing!r}", ValueError)
    if target is not None:
        _checked("class", arrays["classes"])
    elif not pa.types.is_null(arrays["classes"].type) or len(arrays["classes"]) > 1:
        raise ValueError("there are classes without a target")
    declared = header["classes_declared"] is True
    return Schema(target, arrays["classes"], tuple(features), declared, missing, nulls)


def _binned(feature: Feature, cuts: pa.Array) -> Feature:
    """Return a feature of a file with its cut points, if its values are the bins."""
    binned = Feature.binned(feature.name, cuts.to_numpy(zero_copy_only=False), feature.part)
    refuse(
        cuts.type != pa.float64() or replace(binned, cuts=None) != feature,
        f"column {feature.name!r}: its values are not the bins of its cut points",
        ValueError,
    )
    return binned


def _checked(name: str, values: pa.Array) -> pa.Array:
    refuse(
        not is_sorted(values) or value_type(name, values.type) != values.type,
        f"column {name!r}: its domain is not sorted or holds a value twice",
        ValueError,
    )
    return values
