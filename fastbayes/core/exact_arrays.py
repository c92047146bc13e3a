"""Arrow arrays whose buffers hold their values and nothing else, so that files of them do.

A buffer may go on behind the values of its array, with rows that a slice left out or with what was
in the memory before, and it holds anything where a value is null. Arrow IPC writes the bytes up to
the next multiple of 64, and pickle all of them.

Views keep all that they are of: no file of ours has any.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as t

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def exact(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return an array of these values: arrays that are equal have buffers of equal bytes."""
    kind = array.type
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array(map(exact, array.chunks), kind)
    if t.is_dictionary(kind):
        parts = exact(array.indices), exact(array.dictionary)
        return pa.DictionaryArray.from_arrays(*parts, ordered=kind.ordered, safe=False)
    number = t.is_primitive(kind) and not t.is_boolean(kind)
    if number and not array.null_count and array.nbytes == array.get_total_buffer_size():
        return array
    # A value that is taken by null is null, with nothing beneath.
    places = pa.array(np.arange(len(array)), mask=array.is_null().to_numpy(zero_copy_only=False))
    try:
        return array.take(places)
    except pa.ArrowNotImplementedError:  # of views and run-end encoding
        return pa.concat_arrays([array])


def exact_rows(rows: Rows) -> Rows:
    """Return these rows in exact arrays."""
    return type(rows).from_arrays([*map(exact, rows.columns)], schema=rows.schema)
