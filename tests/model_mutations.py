"""Model files whose digest is right and whose contents are not, as a hostile writer makes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

# What a value in the header is replaced by.
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.5, 1e-300, 1e308, 10**12, 30_000_000, -(10**18)),
    *(2**70, math.nan, math.inf, "", "x", "é\x00", "mean", "n" * 1000, [], [0], [1, 2, 3], {}),
    *({"a": 1}, [[1]], [None], ["a", "a"]),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value of a header, groups of values too."""
    if path:
        yield path
    if isinstance(tree, (dict, list)):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(item, (*path, key))


def header_mutations(
    header: dict[str, Any], rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for ever what was changed, and the changed header."""
    found = list(places(header))
    while True:
        path = found[rng.integers(len(found))]
        changed = copy.deepcopy(header)
        at: Any = changed
        for key in path[:-1]:
            at = at[key]
        kind = rng.choice(["replace", "replace", "replace", "drop", "twice", "scale"])
        old = at[path[-1]]
        if kind == "drop":
            del at[path[-1]]
            what = "dropped"
        elif kind == "twice" and isinstance(at, list):
            at.insert(path[-1], copy.deepcopy(old))
            what = "twice"
        elif kind == "scale" and isinstance(old, (int, float)) and not isinstance(old, bool):
            at[path[-1]] = old * int(rng.choice([-1, 2, 1000])) + int(rng.integers(-1, 2))
            what = f"-> {at[path[-1]]!r}"
        else:
            at[path[-1]] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
            what = f"-> {at[path[-1]]!r}"[:80]
        yield f"{'.'.join(map(str, path))} {what}", changed


def array_mutations(
    arrays: dict[str, Any], rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for ever what was changed, and the arrays."""
    names = sorted(arrays)
    while names:
        name = names[rng.integers(len(names))]
        changed = dict(arrays)
        array = changed[name]
        kind = str(rng.choice(["drop", "shorter", "longer", "kind", "value", "value", "shape"]))
        if kind == "drop":
            del changed[name]
        elif kind == "shorter":
            changed[name] = array[:-1]
        elif kind == "longer":
            changed[name] = (
                np.concatenate([array, array[:1]])
                if isinstance(array, np.ndarray)
                else pa.concat_arrays([array, array[:1]])
            )
        elif not isinstance(array, np.ndarray):
            changed[name] = pa.array(["x", None]) if rng.integers(2) else pa.nulls(len(array))
            kind = "strings"
        elif kind == "kind":
            other = np.dtype(rng.choice(["f8", "i8", "u1", "bool", "f4"]))
            with np.errstate(invalid="ignore"):
                changed[name] = array.astype(other)
            kind = str(other)
        elif kind == "shape":
            changed[name] = array.reshape(-1) if array.ndim > 1 else array[None]
        elif array.size:
            values = array.copy()
            flat = values.reshape(-1)
            place = int(rng.integers(flat.size))
            strange: list[Any] = [0, 1, -1, 10**9]
            if values.dtype.kind == "f":
                strange += [math.nan, math.inf, -math.inf, 1e300, -1e300, 1e-320]
            elif values.dtype.kind in "iu":
                strange += [np.iinfo(values.dtype).max, np.iinfo(values.dtype).min]
            with np.errstate(all="ignore"):
                flat[place] = np.array(strange[rng.integers(len(strange))]).astype(values.dtype)
            kind = f"[{place}] = {flat[place]}"
            changed[name] = values
        yield f"array {name}: {kind}", changed
