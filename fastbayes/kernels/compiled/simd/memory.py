"""Where arrays of kernels are: scratch that each thread keeps, columns known by address."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastbayes.kernels.dispatch import helper, readonly
from fastbayes.kernels.shared.arrays import U
from fastbayes.kernels.shared.columns import address_of

_HELD = threading.local()


def borrow(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array, its content undefined, that the thread may use until it asks again.

    It starts a cache line; a name goes with one dtype. Fresh memory would cost a page fault
    every 4 KiB.
    """
    held: dict[str, NDArray[Any]] = _HELD.__dict__
    array = held.get(name)
    if array is not None and array.shape == shape:
        return array
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = held.get(name + " bytes")
    if raw is None or raw.size < size:
        raw = np.empty(size + 64, np.uint8)
        raw = held[name + " bytes"] = raw[-raw.ctypes.data % 64 :]
    array = held[name] = raw[:size].view(dtype).reshape(shape)
    return array


def addresses(
    columns: Sequence[NDArray[Any]] | NDArray[Any], which: list[int]
) -> NDArray[np.uint64]:
    """Return where some contiguous columns begin, the others as 0: kernels take no lists.

    Whoever calls keeps the columns until the kernels are done.
    """
    result = np.zeros(len(columns), np.uint64)
    if isinstance(columns, np.ndarray):
        result[:] = address_of(columns) + columns.strides[0] * np.arange(len(columns))
        return readonly(result)
    result[which] = [address_of(columns[i]) for i in which]
    return readonly(result)


@helper
def fill(out, begin, end, value):
    """Write a value to out[begin:end], which must be within.

    A loop of its own: numba takes twenty times as long over an assignment to a slice.
    """
    for k in range(U(begin), U(end)):
        out[k] = value
