"""Arrays of several parts in one file: each is named by its part and its own name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def named_arrays(parts: Mapping[Any, Mapping[str, Any]], prefix: str = "") -> dict[str, Any]:
    """Return the arrays of all parts, by their names in a file."""
    return {
        f"{prefix}{part}.{name}": array
        for part, arrays in parts.items()
        for name, array in arrays.items()
    }


def arrays_of(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names in a file begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
