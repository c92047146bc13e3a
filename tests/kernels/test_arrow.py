from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.data.pieces import Pieces, integers_of
from fastbayes.kernels.compiled.reading import arrow as compiled
from fastbayes.kernels.numpy.reading import arrow as numpy_twin
from fastbayes.kernels.numpy.reading.encode import CodeWriter
from fastbayes.kernels.shared.columns import TABLE, Translation

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]
TYPES = {"i1": pa.int8(), "u2": pa.uint16(), "i4": pa.int32(), "i8": pa.int64(), "b1": pa.bool_()}


@st.composite
def columns(draw, n):
    """Return a column of n rows, in chunks that are slices, and what its rows hold."""
    kind = draw(st.sampled_from([*TYPES, "dictionary"]))
    names = draw(st.lists(st.lists(st.text(max_size=3), min_size=7, max_size=7), min_size=1))
    chunks = []
    while n:
        rows, skipped = draw(st.integers(1, n)), draw(st.integers(0, 9))
        held = st.none() | st.integers(0, 6) if draw(st.booleans()) else st.integers(0, 6)
        values = draw(st.lists(held, min_size=rows + skipped, max_size=rows + skipped))
        if kind == "b1":
            chunk = pa.array([None if v is None else v % 2 == 1 for v in values], pa.bool_())
        elif kind == "dictionary":
            entries = pa.array(draw(st.sampled_from(names)))
            chunk = pa.DictionaryArray.from_arrays(pa.array(values, pa.int16()), entries)
        else:
            chunk = pa.array(values, TYPES[kind])
        chunks.append(chunk.slice(skipped))
        n -= rows
    return pa.chunked_array(chunks)


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data(), n=st.integers(1, 40))
def test_integers_are_where_arrow_has_them(module, data, n):
    drawn = data.draw(st.lists(columns(n), min_size=1, max_size=3))
    table = pa.table({f"x{j}": column for j, column in enumerate(drawn)})
    pieces = Pieces(table, table.column_names, module)
    for name, column in zip(table.column_names, drawn, strict=True):
        if not pa.types.is_dictionary(column.type):
            integers, entries = pieces.integers(name), [[*range(7)]]
        else:
            dictionaries, integers = pieces.dictionaries(name), pieces.integers(name)
            assert sum(rows for _, rows in dictionaries) == n
            assert integers.pieces[:, TABLE].max() == len(dictionaries) - 1
            entries = [dictionary.to_pylist() for dictionary, _ in dictionaries]
        codes = np.empty(n, np.uint8)
        same = Translation(0, np.array([*range(7), 8, 9], np.uint32), -1, 0, False)
        CodeWriter([(integers, [same] * len(entries))], [codes], codes.view(np.uint8)).write(0, n)
        number = np.repeat(integers.pieces[:, TABLE], np.diff(integers.pieces[:, 0], prepend=0))
        found = [
            None if code == 9 else entries[table_of][code]
            for code, table_of in zip(codes.tolist(), number.tolist(), strict=True)
        ]
        assert found == column.to_pylist()


@pytest.mark.parametrize("module", MODULES)
def test_chunks_that_share_a_dictionary_have_one_translation(module):
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0]), ["a", "b"])
    other = pa.DictionaryArray.from_arrays(pa.array([1]), ["b", "a"])
    table = pa.table({"x": pa.chunked_array([one.slice(0, 1), one.slice(1), other, one])})
    pieces = Pieces(table, ["x"], module)
    dictionaries, integers = pieces.dictionaries("x"), pieces.integers("x")
    assert [(entries.to_pylist(), rows) for entries, rows in dictionaries] == [
        (["a", "b"], 8),
        (["b", "a"], 1),
    ]
    assert integers.pieces[:, TABLE].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("module", MODULES)
def test_no_rows_have_no_pieces(module):
    table = pa.table({"x": pa.array([], pa.int64()), "t": pa.array([], pa.string())})
    assert not len(Pieces(table, ["x", "t"], module).integers("x").pieces)


def test_an_array_is_described_as_its_table_is():
    array = pa.array([3, None, 1, 2], pa.int32()).slice(1)
    integers = integers_of(array)
    laid_out = Pieces(pa.table({"x": array}), ["x"], numpy_twin).integers("x")
    np.testing.assert_array_equal(integers.pieces, laid_out.pieces)
