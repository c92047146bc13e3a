"""A schema in a file: few arrays, however many columns; a schema met again is the same object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastbayes.core.errors import refuse
from fastbayes.core.schema import Schema, from_header, to_header

# The last schemas that were read are remembered, those up to so many bytes.
REMEMBERED, REMEMBERED_BYTES = 4, 1 << 20


def packed(schema: Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema as a JSON-able header and a few named arrays.

    Features are meant by their places among all: each is numeric or has its domain in one array, so
    that no place can be another one without being found out.

    classes         as they are
    lengths         (n_categorical,) values of each categorical feature
    domains.<type>  the values of all features of this type, which header["domains"] has
    cuts            the cut points of all features that are cut, which header["cut"] has
    """
    header, named = to_header(schema)
    header["features"] = list(schema.names)
    places: dict[str, list[int]] = {}
    for i, feature in enumerate(schema.features):
        if feature.values is not None:
            places.setdefault(str(feature.values.type), []).append(i)
    cut = [i for i, feature in enumerate(schema.features) if feature.cuts is not None]
    number = _among_categorical(i for some in places.values() for i in some)
    arrays = {"classes": named["classes"], "lengths": schema.shape.sizes}
    for kind, some in places.items():
        arrays[f"domains.{kind}"] = pa.concat_arrays([named[f"values.{number[i]}"] for i in some])
    if cut:
        arrays["cuts"] = pa.concat_arrays([named[f"cuts.{number[i]}"] for i in cut])
    more = {
        "numeric": schema.places["numeric"],
        "declared": [i for i, feature in enumerate(schema.features) if feature.declared],
        "domains": places,
        "cut": cut,
    }
    return header | more, arrays


class _Read(NamedTuple):
    """What a file held, and the schema that it was."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Any]
    schema: Schema

    def of(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bool:
        """Return whether these are what the file held."""
        return (
            header == self.header
            and arrays.keys() == self.arrays.keys()
            and all(_same(held, self.arrays[key]) for key, held in arrays.items())
        )


_recent: tuple[_Read, ...] = ()


def unpacked(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Schema:
    """Return the schema written by `packed`, or as a file of format 1 has it.

    A job has thousands of parts of one schema. To check it takes longer than to read the counts,
    and parts of the very same object add without comparing theirs: so the last ones are remembered.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError
        When it is not one that `packed` can have written.
    """
    global _recent
    recent = _recent
    for one in recent:
        if one.of(header, arrays):
            return one.schema
    schema = from_header(*(_apart(header, arrays) if "domains" in header else (header, arrays)))
    if sum(array.nbytes for array in arrays.values()) <= REMEMBERED_BYTES:
        _recent = (_Read(header, arrays, schema), *recent[: REMEMBERED - 1])
    return schema


def _apart(
    header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `to_header` made of the schema."""
    names, lengths, cut = header["features"], np.asarray(arrays["lengths"]), header["cut"]
    numeric, declared = header["numeric"], {*header["declared"]}
    places = [i for some in header["domains"].values() for i in some]
    refuse(
        sorted([*places, *numeric]) != [*range(len(names))]
        or not {*cut} <= {*places}
        or len(lengths) != len(places)
        or not declared <= {*range(len(names))},
        "the places of the features do not fit together",
        ValueError,
    )
    features = [
        [name, "numeric" if i in numeric else "categorical", i in declared]
        for i, name in enumerate(names)
    ]
    named = {"classes": arrays["classes"]}
    number = _among_categorical(places)
    for kind, some in header["domains"].items():
        held = [number[i] for i in some]
        named |= _pieces("values", held, arrays[f"domains.{kind}"], lengths[held])
    if cut:
        held = [number[i] for i in cut]
        named |= _pieces("cuts", held, arrays["cuts"], lengths[held] - 1)
    return {**header, "features": features}, named


def _among_categorical(places: Iterable[int]) -> dict[int, int]:
    """Return which categorical feature each of these is, by its place among all."""
    return {i: j for j, i in enumerate(sorted(places))}


def _pieces(name: str, places: list[int], whole: pa.Array, lengths: Any) -> dict[str, pa.Array]:
    ends = np.cumsum(lengths).tolist()
    refuse(
        min(lengths.tolist()) < 0 or ends[-1] != len(whole),
        f"{len(whole)} {name} instead of {ends[-1]}",
        ValueError,
    )
    pieces = zip(places, [0, *ends[:-1]], ends, strict=True)
    return {f"{name}.{j}": whole[begin:end] for j, begin, end in pieces}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return not isinstance(b, np.ndarray) and a.type == b.type and bool(a.equals(b))
