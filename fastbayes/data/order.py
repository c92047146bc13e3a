"""Domains in order, many texts by kernels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.domains import ascending, texts_of
from fastbayes.core.schema import FEW_VALUES, values_at
from fastbayes.kernels import dispatch


def sorted_values(values: pa.Array) -> tuple[pa.Array, NDArray[np.integer]]:
    """Return values without nulls in ascending order, and where each one stood."""
    if len(values) <= FEW_VALUES and not pa.types.is_null(values.type):
        listed = values.to_pylist()
        ascends = listed == sorted(listed)
        at = range(len(listed)) if ascends else sorted(range(len(listed)), key=listed.__getitem__)
        order = np.array(at, np.int64)  # `arange` would let go of the interpreter's lock
        return values_at(values, order), order
    if not pa.types.is_string(values.type):
        order = ascending(values)
        return values_at(values, order), order
    kernels = dispatch.load("reading.order", len(values))
    offsets, data = texts_of(values)
    places = kernels.ascending_texts(offsets, data)
    ends, held = kernels.take_texts(offsets, data, places)
    buffers = pa.py_buffer(ends), pa.py_buffer(held)
    return pa.StringArray.from_buffers(len(values), *buffers), places
