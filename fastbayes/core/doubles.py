"""Numbers of any Arrow type as float64."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t
from numpy.typing import NDArray

# Whole numbers up to this one float64 tells apart, and holds powers of ten up to that of _POWERS:
# a quotient of two such rounds once.
MOST_EXACT, _POWERS = 1 << 53, 22
# Decimals whose digits are read as text, by the 64-bit words of one.
_WIDE = {2: pa.decimal128(38, 0), 4: pa.decimal256(76, 0)}


def doubles(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return numbers, in a dictionary or not, as the nearest float64.

    Decimals too, as Python's `float` has them: of Arrow's own cast the last bit may be wrong, 3.03
    then being no 3.03.

    Examples
    --------
    >>> prices = pa.array(["3.03", None]).cast(pa.decimal128(8, 2))
    >>> doubles(prices).to_pylist(), prices.cast(pa.float64()).to_pylist()
    ([3.03, None], [3.0300000000000002, None])
    """
    kind = column.type.value_type if t.is_dictionary(column.type) else column.type
    if not t.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([doubles(chunk) for chunk in column.chunks], pa.float64())
    return _of_decimals(column if column.type == kind else column.cast(kind))


def _of_decimals(column: pa.Array) -> pa.Array:
    data, n, scale = column.buffers()[1], len(column), column.type.scale
    if data is None or not n:  # as Arrow may have it where all is null
        return pa.nulls(n, pa.float64())
    width = column.type.bit_width // 8
    kind = np.dtype(np.int32 if width == 4 else np.int64)
    held = np.frombuffer(data, kind, n * width // kind.itemsize, column.offset * width)
    words = held.reshape(n, -1)
    low = np.ascontiguousarray(words[:, 0])
    rounded = (low < -MOST_EXACT) | (low > MOST_EXACT) | (abs(scale) > _POWERS)
    for word in words[:, 1:].T:
        rounded |= word != low >> 63
    power = 10.0 ** min(abs(scale), _POWERS)
    numbers = low / power if scale >= 0 else low * power
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    odd = np.flatnonzero(rounded if null is None else rounded & ~null)
    if len(odd):
        numbers[odd] = _by_text(words[odd], scale)
    return pa.array(numbers, mask=null)


def _by_text(words: NDArray[np.signedinteger], scale: int) -> NDArray[np.float64]:
    """Return decimals by their words: text is read as the nearest number, however long it is."""
    n, n_words = words.shape
    if n_words == 1:
        whole = pa.array(words[:, 0])
    else:
        held = pa.py_buffer(np.ascontiguousarray(words))
        whole = pa.Array.from_buffers(_WIDE[n_words], n, [None, held])
    text = pc.binary_join_element_wise(whole.cast(pa.string()), f"e{-scale}", "")
    return np.asarray(text.cast(pa.float64()))
