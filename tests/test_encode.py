"""Columns in any Arrow encoding become the same codes, counts and domains."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import cells, cells_of, known

import fastbayes as fb
from fastbayes.core.date_parts import holds
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.data import columns, lent_memory
from fastbayes.data.columns import Codebook
from fastbayes.data.encode import Encoder, Place
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared import texts

HERE = Place("here.parquet", 1000)
VALUES = ["q", None, "p", "é", "q", "", None, "p", "q", "r", "p", "q", None]
LABELS = list("abcabcabcabca")


pytestmark = pytest.mark.usefixtures("kernels")


def count(table: Any, **options: Any) -> fb.Statistics:
    return fb.count(table, "y", **options)


def domain(stats: fb.Statistics, name: str = "x") -> Any:
    return next(f for f in stats.schema.features if f.name == name).values.to_pylist()


def decoded(encoder: Encoder, rows: pa.RecordBatch) -> dict[str, list[Any]]:
    """Encode rows and say which values the codes stand for; unseen ones are Ellipsis."""
    batch = encoder.encode(rows, HERE).batch
    found: dict[str, list[Any]] = {}
    features = encoder.schema().categorical
    for members, codes, sizes in batch.codes:
        for feature, column, size in zip(members, codes, sizes, strict=True):
            assert column.flags.c_contiguous
            assert (column < size).all()
            values = features[feature].values.to_pylist()  # type: ignore[union-attr]
            values += [None, ...] if encoder.applying else [None]
            found[features[feature].name] = [values[c] for c in column]
    return found


# Text in every encoding


def dictionary(
    indices: list[int | None], entries: list[Any], index: Any = None, value: Any = None
) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, index or pa.int32()), pa.array(entries, value)
    )


def shuffled_dictionary(values: list[Any], index: Any, value: Any, *, null: bool) -> pa.Array:
    """Return values by a dictionary in odd order, with repeated, unused and null entries."""
    entries = ["unused", "q", "r", "q", "é", "p", "", "p", "another"] + [None] * null
    first = {v: entries.index(v) for v in entries}
    last = {v: len(entries) - 1 - entries[::-1].index(v) for v in entries}
    indices = []
    for r, v in enumerate(values):
        where = first if r % 2 else last
        indices.append(None if v is None and not (null and r % 2) else where[v])
    return dictionary(indices, entries, index, value)


def sliced(column: pa.Array) -> pa.Array:
    """Return the column as a slice of a larger one, so that its bits start inside a byte."""
    around = column.take(pa.array([0, 1, 2, 0, 1, 1, 2, 2, 0, 1, 1]))
    both = pa.concat_arrays([around, column, around])
    return both.slice(11, len(column))


INDICES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]
ENCODINGS = {
    "string": pa.array(VALUES),
    "large_string": pa.array(VALUES, pa.large_string()),
    "string_view": pa.array(VALUES, pa.string_view()),
    "sliced": pa.array([None, "z", *VALUES, "z"]).slice(2, len(VALUES)),
    "sliced view": pa.array([None, "z", *VALUES, "z"], pa.string_view()).slice(2, len(VALUES)),
    "uint64": shuffled_dictionary(VALUES, pa.uint64(), pa.string(), null=False),
    "large": shuffled_dictionary(VALUES, pa.int32(), pa.large_string(), null=True),
    "sliced dictionary": sliced(shuffled_dictionary(VALUES, pa.int16(), pa.string(), null=True)),
}
MORE = [*"qpér", "", *(f"unused {k}" for k in range(40))]
ENCODINGS |= {
    f"more entries than rows, {kind}": dictionary(
        [None if v is None else MORE.index(v) for v in VALUES], MORE, pa.uint8(), kind
    )
    for kind in (pa.string(), pa.large_string(), pa.string_view())
}
ENCODINGS |= {str(i): shuffled_dictionary(VALUES, i, pa.string(), null=True) for i in INDICES}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_in_any_encoding(encoding: str) -> None:
    table = pa.table({"x": ENCODINGS[encoding], "y": LABELS})
    stats = count(table)
    assert stats == count(pa.table({"x": VALUES, "y": LABELS}))
    assert cells(stats) == cells_of(table, "y")
    assert domain(stats) == ["", "p", "q", "r", "é"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_in_any_encoding__when_applied(encoding: str) -> None:
    schema = count(pa.table({"x": ["", "p", "q", "r"], "y": list("abca")})).schema
    column = ENCODINGS[encoding]
    rows = pa.record_batch({"x": column})
    encoder = Encoder.applying_to(schema, rows.schema)
    assert decoded(encoder, rows)["x"] == [... if v == "é" else v for v in VALUES]
    assert encoder.encode(rows, HERE).unseen.tolist() == [1]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_in_any_encoding__rows_left_out(encoding: str) -> None:
    labels = [None if i % 3 == 0 else c for i, c in enumerate(LABELS)]
    weight = [i % 4 / 2 for i in range(len(VALUES))]
    table = pa.table({"x": ENCODINGS[encoding], "y": labels, "w": weight})
    stats = count(table, sample_weight="w")
    assert cells(stats) == cells_of(table, "y", "w")
    assert stats.dropped_rows == sum(v is None for v in labels)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_class_in_any_encoding(encoding: str) -> None:
    table = pa.table({"x": LABELS, "y": ENCODINGS[encoding]})
    stats = count(table)
    assert cells(stats) == cells_of(table, "y")
    assert stats.schema.classes.to_pylist() == ["", "p", "q", "r", "é"]
    assert stats.dropped_rows == 3


def test_chunks__each_with_its_own_dictionary() -> None:
    chunks = [
        dictionary([0, 1, None, 0], ["b", "a"]),
        dictionary([1, 0, 2, 2], ["c", "b", None]),
        dictionary([], ["unused"]),
        dictionary([2, 2, 0, 1], ["a", "a", "d"]),
    ]
    table = pa.table({"x": pa.chunked_array(chunks), "y": list("abcdabcdabcd")})
    stats = count(table)
    assert cells(stats) == cells_of(table, "y")
    assert domain(stats) == ["a", "b", "c", "d"]
    for batches in (table.to_batches(), iter(table.to_batches(max_chunksize=3))):
        assert count(batches) == stats


def test_chunks__of_another_encoding_each() -> None:
    batches = [
        pa.record_batch({"x": ENCODINGS[name], "y": LABELS})
        for name in ("string", "int8", "string_view", "uint32", "large_string")
    ]
    whole = pa.table({"x": VALUES * 5, "y": LABELS * 5})
    assert count(iter(batches)) == count(whole)


@given(
    values=st.lists(st.one_of(st.none(), st.sampled_from("abcdefg")), min_size=1, max_size=40),
    seed=st.integers(0, 1000),
)
def test_any_dictionary(values: list[str | None], seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = [*rng.permutation([*"abcdefg", *"abc", "unused"]), None]
    where = {v: [i for i, e in enumerate(entries) if e == v] for v in {*values, None}}
    indices = [int(rng.choice(where[v])) for v in values]
    holes = [
        None if v is None and rng.random() < 0.5 else i
        for i, v in zip(indices, values, strict=True)
    ]
    column = dictionary(holes, entries, rng.choice(np.array(INDICES, dtype=object)))
    cut = int(rng.integers(0, len(values) + 1))
    table = pa.table({"x": column.slice(cut), "y": ["a"] * (len(values) - cut)})
    if table.num_rows:
        assert cells(count(table)) == cells_of(table, "y")


def test_corrupt_indices_are_refused() -> None:
    indices = pa.array([0, 7, 1], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["p", "q"]), safe=False)
    table = pa.table({"x": column, "y": list("aba")})
    with pytest.raises(DataError, match=r"'x' has dictionary indices outside .*corrupt: write"):
        count(table)


def test_garbage_under_nulls_is_not_read() -> None:
    indices = pa.Array.from_buffers(
        pa.int32(),
        4,
        [pa.py_buffer(bytes([0b0101])), pa.py_buffer(np.array([1, 10**9, 0, -5], "i4").tobytes())],
    )
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["p", "q"]), safe=False)
    stats = count(pa.table({"x": column, "y": list("abab")}))
    assert cells(stats) == {("x", "q", "a"): 1, ("x", "p", "a"): 1, ("x", None, "b"): 2}


PIECES = ["", "\0", "a", "b", "é", "☃", "abcdefgh", "x" * 40, "NA"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)


@given(
    values=st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=60),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    nulls=st.sampled_from([[], ["NA"], ["NA", "a", ""]]),
)
def test_any_text(values: list[str | None], kind: Any, cuts: list[int], nulls: list[str]) -> None:
    """Of any bytes and length, in slices and chunks, some of it read as missing."""
    around = pa.array([None, "z", *values, "a"], kind).slice(2, len(values))
    bounds = sorted({0, len(values), *(c for c in cuts if c < len(values))})
    chunks = [around.slice(a, b - a) for a, b in pairwise(bounds)]
    labels = ["p" if i % 3 else "q" for i in range(len(values))]
    table = pa.table({"x": pa.chunked_array(chunks, kind), "y": labels})
    wanted = [None if v in nulls else v for v in values]
    stats = count(table, null_values=nulls)
    assert cells(stats) == cells_of(pa.table({"x": wanted, "y": labels}), "y")
    assert domain(stats) == sorted({v for v in wanted if v is not None})
    rows = pa.record_batch({"x": around})
    assert decoded(Encoder.applying_to(stats.schema, rows.schema), rows)["x"] == wanted


def test_text__codebook_of_several_threads_and_back_ends() -> None:
    rng = np.random.default_rng(0)
    words = [f"{k}" * (1 + k % 5) + "é" * (k % 2) for k in range(3000)]
    blocks = [pa.array([words[k] for k in rng.integers(0, n, 400)]) for n in range(10, 3000, 30)]
    book = Codebook("x", pa.string())
    modules = [dispatch.load("reading.encode"), dispatch.numpy_twin("reading.encode")]

    def encode(i: int) -> np.ndarray:
        return book.encode(blocks[i], modules[i % 2])

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(encode, range(len(blocks)))]
    values = book.values().to_pylist()
    assert len(values) == len(book) == len({*values})
    for block, codes in zip(blocks, found, strict=True):
        assert [values[code] for code in codes] == block.to_pylist()


def test_codes_lie_in_memory_that_is_free_once_nobody_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a thread that goes on, too: it would keep as much as its widest block took."""
    lent: dict[int, int] = {}
    monkeypatch.setattr(lent_memory, "_LENT", lent)
    column = pa.array(["p", "q"] * 5000).dictionary_encode()
    rows = pa.record_batch({f"x{i}": column for i in range(10)})
    encoder = Encoder.learning(rows.schema, None)
    encoded = encoder.encode(rows, Place("", 0))
    (codes,) = encoded.batch.codes
    assert sum(lent.values()) >= codes.codes.nbytes == 100_000
    del encoded, codes
    assert not lent


def looked_up(monkeypatch: pytest.MonkeyPatch, chunks: list[pa.Array]) -> int:
    """Count chunks block by block; return how many values were looked up."""
    entries: list[int] = []

    def watched(encode: Any) -> Any:
        def watching(self: Codebook, values: pa.Array, *others: Any) -> Any:
            entries.append(len(values) if self.name == "x" else 0)
            return encode(self, values, *others)

        return watching

    monkeypatch.setattr(Codebook, "encode", watched(Codebook.encode))
    monkeypatch.setattr(Codebook, "encode_rows", watched(Codebook.encode_rows))
    column = pa.chunked_array(chunks)
    labels = pa.array(np.where(np.arange(len(column)) % 2, "p", "q"))
    batches = [
        pa.record_batch({"x": x, "y": labels.slice(i * len(x), len(x))})
        for i, x in enumerate(chunks)
    ]
    encoder = Encoder.learning(batches[0].schema, "y")
    for batch in batches:
        found = decoded(encoder, batch)["x"]
        assert found == batch["x"].to_pylist()
    return sum(entries)


def test_dictionaries__that_grow_with_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Arrow's Parquet reader makes them: the values looked up grow with the rows alone."""
    words = [f"v{k}" for k in range(20_000)]
    chunks = [dictionary([*range(k, k + 100)], words[: k + 100]) for k in range(0, 20_000, 100)]
    assert looked_up(monkeypatch, chunks) <= 2 * 20_000


def test_dictionaries__one_that_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up row by row until the rows are as many as its entries, then as a whole."""
    rng = np.random.default_rng(0)
    column = dictionary(rng.integers(0, 3000, 40_000).tolist(), [f"v{k}" for k in range(3000)])
    chunks = [column.slice(k, 400) for k in range(0, 40_000, 400)]
    assert looked_up(monkeypatch, chunks) <= 2 * 3000 + 400


def test_corrupt_indices_are_refused__in_a_large_dictionary() -> None:
    indices = pa.array([0, 3000, 1])
    words = pa.array([f"v{k}" for k in range(3000)])
    column = pa.DictionaryArray.from_arrays(indices, words, safe=False)
    with pytest.raises(DataError, match=r"'x' has dictionary indices outside .*corrupt: write"):
        count(pa.table({"x": column, "y": list("aba")}))


def test_text_that_is_no_utf8() -> None:
    ends, data = pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffbc")
    column = pa.StringArray.from_buffers(3, ends, data)
    message = "'x' holds bytes that are not UTF-8 text .*; write the file again as UTF-8"
    with pytest.raises(DataError, match=message):
        count(pa.table({"x": column, "y": list("aba")}))
    schema = count(pa.table({"x": ["a", "c", "d"], "y": list("aba")})).schema
    rows = pa.record_batch({"x": column})
    with pytest.raises(DataError, match=message):
        Encoder.applying_to(schema, rows.schema).encode(rows, HERE)


def test_text_that_is_no_utf8__is_never_known() -> None:
    """What was refused once is refused wherever it is met again, as with on_error="skip"."""
    book, kernels = Codebook("x", pa.string()), dispatch.load("reading.encode")
    ends, data = pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffbc")
    for _ in range(2):
        with pytest.raises(DataError, match="'x' holds bytes that are not UTF-8 text"):
            book.encode(pa.StringArray.from_buffers(3, ends, data), kernels)
    assert book.values().to_pylist() == []
    assert book.encode(pa.array(["c", "d", "c"]), kernels).tolist() == [0, 1, 0]
    assert book.values().to_pylist() == ["c", "d"]


def test_text_outside_of_its_bytes() -> None:
    buffers = pa.array([0, 3, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")
    book, kernels = Codebook("x", pa.string()), dispatch.load("reading.encode")
    with pytest.raises(DataError, match=r"'x' has strings outside of their bytes; .* write them"):
        book.encode(pa.StringArray.from_buffers(3, *buffers), kernels)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text__many_values_on_every_path(kind: Any) -> None:
    """New ones in every block, nulls among them, the last rows without bytes behind them."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 60_000, 150_000).tolist()
    values = [None if n % 9 == 0 else f"v{n:x}" * (1 + n % 4) for n in numbers]
    y = pa.array(rng.integers(0, 2, len(values))).cast(pa.string())
    text = pa.array(values, pa.string())
    plain = count(pa.table({"x": text.dictionary_encode(), "y": y}), threads=1)
    table = pa.table({"x": text.cast(kind), "y": y})
    assert domain(plain) == sorted({v for v in values if v is not None})
    for threads in (1, 3):
        assert count(table, threads=threads) == plain


def test_more_text_than_arrow_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MOST_BYTES", 20)
    message = r"'x' has distinct texts of 21 bytes, more than .*`columns`"
    monkeypatch.setattr(columns, "FEW_BYTES", 20)
    with pytest.raises(DataError, match=message):
        count(pa.table({"x": ["a" * 10, "b" * 10, "c"], "y": list("aba")}))


@pytest.mark.parametrize("many", [False, True])
def test_texts_outside_of_their_bytes(monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    """As a corrupt file may have them: refused, whether Python or a kernel looks at them."""
    monkeypatch.setattr(columns, "FEW_VALUES", 0 if many else 256)
    for ends in ([0, 2, 1], [0, 1, 9], [-1, 1, 2]):
        held = np.array([0, 1, 2], np.int32)
        words = pa.StringArray.from_buffers(2, pa.py_buffer(held), pa.py_buffer(b"ab"))
        held[:] = ends  # pyarrow refuses them where it looks
        with pytest.raises(DataError, match="'x'"):
            Codebook("x", pa.string()).encode(words, dispatch.load("reading.encode"))
    held = np.array([0, 1, 2], np.int32)
    broken = pa.StringArray.from_buffers(2, pa.py_buffer(held), pa.py_buffer(b"a\xff"))
    with pytest.raises(DataError, match="'x' holds bytes that are not UTF-8"):
        count(pa.table({"x": broken, "y": ["p", "q"]}))


def test_few_texts_become_many() -> None:
    """Codes stay when Python's look-up gives way to a table, in an open and in a closed book."""
    kernels = dispatch.load("reading.encode")
    few = pa.array(["b", None, "a", "?", "b"])
    many = pa.array([f"v{k}" for k in range(columns.FEW_VALUES)] + ["a", "c"])
    book = Codebook("x", pa.string(), null_values=["?"])
    assert book.encode(few, kernels).tolist() == [0, texts.MISSING, 1, texts.MISSING, 0]
    codes = book.encode(many, kernels).tolist()
    assert codes == [*range(2, columns.FEW_VALUES + 2), 1, columns.FEW_VALUES + 2]
    assert book.encode(few, kernels).tolist() == [0, texts.MISSING, 1, texts.MISSING, 0]
    assert book.values().to_pylist()[:3] == ["b", "a", "v0"]
    closed = Codebook("x", pa.string(), pa.array(["a", "b"]), fixed=True)
    assert closed.encode(few, kernels).tolist() == [1, texts.MISSING, 0, texts.UNSEEN, 1]
    assert closed.encode(many, kernels).tolist()[-2:] == [0, texts.UNSEEN]
    assert closed.encode(few, kernels).tolist() == [1, texts.MISSING, 0, texts.UNSEEN, 1]


def test_values_of_a_closed_book__are_the_array_that_was_given() -> None:
    given = pa.array(["a", "b"])
    assert Codebook("x", pa.string(), given, fixed=True).values() is given
    wider = Codebook("x", pa.float64(), pa.array([1, 2]), fixed=True).values()
    assert wider.equals(pa.array([1.0, 2.0]))


# Numbers and truth values as categories

PACKED = {
    "int8": pa.array([3, -128, None, 3, 127, 0, None] * 3, pa.int8()),
    "int16 sliced": pa.array([9, 9, 9, *([3, -5, None, 3] * 5)], pa.int16()).slice(3),
    "uint32": pa.array([0, 2**32 - 1, None, 7], pa.uint32()),
    "int64": pa.array([2**63 - 1, -(2**63), None, 0, -1, 2**53 + 1, 2**53]),
    "int64 wide": pa.array([0, 2**20, None, 1, 2**20 - 1]),
    "int64 narrow": pa.array([2**62, 2**62 + 5, None, 2**62 + 2]),
    "uint64": pa.array([2**64 - 1, 0, None, 2**64 - 2, 2**63], pa.uint64()),
    "dictionary of int": dictionary([0, 1, None, 2, 0], [5, -7, None], value=pa.int64()),
    "dictionary of uint64": dictionary([0, 1, None, 0], [2**64 - 1, 3], value=pa.uint64()),
    "float64": pa.array([0.5, -0.0, None, 0.0, float("nan"), float("inf"), -1e300, 5e-324]),
    "float32": pa.array([0.1, None, 0.1, 3e38, float("nan")], pa.float32()),
    "float16": pa.array(np.array([0.5, 2.0, np.nan], np.float16)),
    "dictionary of float": dictionary([0, 1, None, 2, 3], [0.5, -0.0, float("nan"), 0.0]),
    "dictionary of float32": dictionary([0, 1, None], [0.1, 2.5], value=pa.float32()),
    "bool": pa.array([True, None, False, True, True]),
    "bool sliced": pa.array([None, *([True, None, False, False] * 9)]).slice(5),
    "bool no nulls": pa.array([True, False, True] * 5).slice(4),
    "bool one value": pa.array([False, None]),
    "dictionary of bool": dictionary([0, 1, None, 1], [True, False]),
}


@pytest.mark.parametrize("name", PACKED)
def test_numbers_as_categories(name: str) -> None:
    column = PACKED[name]
    table = pa.table({"x": column, "y": ["a" if i % 3 else "b" for i in range(len(column))]})
    stats = count(table, categorical=["x"])
    assert cells(stats) == cells_of(table, "y")
    wanted = {known(v) for v in column.to_pylist()} - {None}
    assert domain(stats) == sorted(wanted)
    assert "-0.0" not in str(domain(stats))
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)])
    assert count(iter(chunked.to_batches()), categorical=["x"]) == stats
    holes = pa.array([*table["y"].to_pylist()[:-1], None])
    fewer = table.set_column(1, "y", holes)
    if len(column) > 1:
        assert cells(count(fewer, categorical=["x"])) == cells_of(
            table.slice(0, len(column) - 1), "y"
        )


@pytest.mark.parametrize("name", PACKED)
def test_numbers_as_classes(name: str) -> None:
    column = PACKED[name]
    table = pa.table({"x": ["p"] * len(column), "y": column})
    stats = count(table)
    assert cells(stats) == cells_of(table, "y")
    assert stats.dropped_rows == sum(known(v) is None for v in column.to_pylist())


@pytest.mark.parametrize("name", PACKED)
def test_numbers_as_categories__when_applied(name: str) -> None:
    column = PACKED[name]
    values = [known(v) for v in column.to_pylist()]
    table = pa.table({"x": column, "y": ["a"] * len(column)})
    schema = count(table.slice(0, 2), categorical=["x"]).schema
    seen = set(values[:2]) - {None}
    rows = pa.record_batch({"x": column})
    got = decoded(Encoder.applying_to(schema, rows.schema), rows)["x"]
    assert got == [v if v is None or v in seen else ... for v in values]


def test_decimals() -> None:
    numbers = [decimal.Decimal("0.10"), None, decimal.Decimal("-7.25"), decimal.Decimal("0.10")]
    for kind in (pa.decimal128(9, 2), pa.decimal256(50, 2)):
        column = pa.array(numbers, kind)
        for x in (column, column.dictionary_encode()):
            stats = count(pa.table({"x": x, "y": list("abab")}), categorical=["x"])
            assert domain(stats) == [-7.25, 0.1]
            assert cells(stats)["x", 0.1, "b"] == 1
        stats = count(pa.table({"x": column, "y": list("abab")}))
        assert stats.moments.count.tolist() == [[2, 1]]
        assert stats.moments.mean.tolist() == [[pytest.approx((0.1 - 7.25) / 2), 0.1]]


def test_whole_numbers_then_fractions_then_whole_numbers() -> None:
    pieces = [[1, 2, None], [0.5, 2.0, float("inf")], [2, 3, 1]]
    batches = [pa.record_batch({"x": x, "y": list("aba")}) for x in pieces]
    stats = count(iter(batches), categorical=["x"])
    assert domain(stats) == [0.5, 1.0, 2.0, 3.0, float("inf")]
    schema = stats.schema
    rows = pa.record_batch({"x": pa.array([3, 4, None], pa.int8())})
    assert decoded(Encoder.applying_to(schema, rows.schema), rows)["x"] == [3.0, ..., None]


def test_codebooks_grow_while_many_threads_count() -> None:
    """Later values take the place of early missing codes; the sorted end hides it."""
    n = 400_000
    rng = np.random.default_rng(0)
    top = np.arange(n) // 700 + 2
    columns = {
        "text": np.char.add("v", (rng.random(n) * top).astype(int).astype(str)),
        "whole": (rng.random(n) * top).astype(int) - 200,
    }
    holes = rng.random(n) < 0.2
    table = pa.table(
        {k: pa.array(v, mask=holes) for k, v in columns.items()}
        | {
            "y": pa.array(
                np.array(["a", "b", "c"])[(rng.random(n) * np.minimum(top, 3)).astype(int)]
            )
        }
    )
    one = count(table, categorical=["whole"], threads=1)
    assert count(table, categorical=["whole"], threads=8) == one
    assert count(table.to_reader(7_001), categorical=["whole"], threads=4) == one
    for j, name in enumerate(sorted(columns)):
        assert domain(one, name) == sorted({*columns[name][~holes].tolist()})
        frame = pd.DataFrame({"x": columns[name], "y": table["y"].to_pandas()})
        wanted = pd.crosstab(frame["x"][~holes], frame["y"][~holes])
        np.testing.assert_array_equal(one.values.of(j), wanted.loc[domain(one, name)].to_numpy())


def test_codebooks__a_value_that_comes_while_a_table_is_made() -> None:
    book = Codebook("x", pa.int64())
    book.encode(pa.array([3, 4]), dispatch.load("reading.encode"))

    class Busy(dict[Any, int]):
        def __iter__(self) -> Iterator[Any]:
            yield from list(super().__iter__())
            self.setdefault(5, len(self))  # as another thread would, right after the look

    book.codes = Busy(book.codes)
    book.integers(3, 6)
    first, table = book.integers(3, 6)
    assert table[5 - first] == book.codes[5]


# Numbers as numbers


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None, 4], pa.int8()),
        pa.array([1, 2, None, 4], pa.uint64()),
        pa.array([9, 1, 2, None, 4, 9]).slice(1, 4),
        pa.array([1, 2, None, 4], pa.float32()),
        pa.array(np.array([1, 2, np.nan, 4], np.float16)),
        pa.array([1.0, 2.0, float("nan"), 4.0]),
        pa.array([9.0, 1.0, 2.0, None, 4.0]).slice(1),
    ],
    ids=lambda c: str(c.type),
)
def test_numbers(column: pa.Array) -> None:
    stats = count(pa.table({"x": column, "y": list("aabb")}))
    assert stats.schema.features[0].kind == "numeric"
    assert stats.moments.count.tolist() == [[2, 1]]
    assert stats.moments.mean.tolist() == [[1.5, 4.0]]
    assert stats.moments.scatter.tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_names_column_row_and_remedy(kind: Any, value: float) -> None:
    x = pa.array([1.0, 2.0, None, value], kind)
    labels = ["a", None, "b", "a"]  # the row is counted among all rows, not among those kept
    with pytest.raises(DataError, match=rf"column 'x', row 3: value {value} is infinite; replace"):
        count(pa.table({"x": x, "y": labels}))
    rows = pa.record_batch({"x": x})
    schema = count(pa.table({"x": [1.0], "y": ["a"]})).schema
    with pytest.raises(DataError, match=r"column 'x', row 1003 of here.parquet: value -?inf"):
        Encoder.applying_to(schema, rows.schema).encode(rows, HERE)
    assert count(pa.table({"x": x, "y": ["a", "b", "a", None]})).n_rows == 3


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ([1.0, -1.0], "row 1: -1.0 is not a finite number >= 0"),
        ([5e-324, 1.0], "row 0: 5e-324 is not a finite number >= 0, 2.23e-308 at least, 1e.100 at"),
        ([1.0, np.nan], "row 1: nan is not"),
        ([np.inf, 1.0], "row 0: inf is not"),
        (pa.array([1, None]), "row 1: nan is not"),
        (["1", "2"], "is string, but numbers are needed"),
        (pa.array([1, 2], pa.timestamp("s")), "timestamp"),
        ([[1], [2]], "list"),
    ],
    ids=str,
)
def test_weights_that_are_none(weight: Any, says: str) -> None:
    table = pa.table({"x": ["p", "q"], "y": ["a", "b"], "w": weight})
    with pytest.raises(DataError, match=says) as caught:
        count(table, sample_weight="w")
    assert "'w'" in str(caught.value)


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.int8(), pa.float32(), pa.decimal128(6, 2)], ids=str
)
def test_weights_of_any_number_type(kind: Any) -> None:
    weight = pa.array([1, 0, 1], pa.int8()).cast(kind)
    stats = count(pa.table({"x": list("pqr"), "y": list("abc"), "w": weight}), sample_weight="w")
    assert cells(stats) == {("x", "p", "a"): 1.0, ("x", "r", "c"): 1.0}
    assert domain(stats) == ["p", "r"]
    assert stats.schema.classes.to_pylist() == ["a", "c"]


# Domains that an object declares


def test_declared__pandas_categories() -> None:
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(list("pqp"), categories=["z", "q", "p"]),
            "i": pd.Categorical([3, 1, None], categories=[3, 2, 1]),
            "o": pd.Categorical(["m", "l", "m"], categories=["l", "m", "h"], ordered=True),
            "s": list("uvu"),
            "y": pd.Categorical(list("aab"), categories=["c", "b", "a"]),
        }
    )
    stats = count(frame)
    assert [domain(stats, n) for n in "cios"] == [
        ["p", "q", "z"],
        [1, 2, 3],
        ["h", "l", "m"],
        ["u", "v"],
    ]
    assert [f.declared for f in stats.schema.features] == [True, True, True, False]
    assert stats.schema.classes.to_pylist() == ["a", "b", "c"]
    assert domain(count(frame, domains={"c": ["p", "q"]}), "c") == ["p", "q"]
    assert domain(count(frame, columns=["s"]), "s") == ["u", "v"]
    assert domain(count(pa.table(frame)), "c") == ["p", "q"]  # there it is only an encoding


def test_declared__pandas_category_as_weight() -> None:
    frame = pd.DataFrame({"x": list("pq"), "w": pd.Categorical([1.0, 2.0]), "y": list("ab")})
    with pytest.raises(SchemaError, match=r"'w' is dictionary.*numbers are needed"):
        count(frame, sample_weight="w")


@pytest.mark.parametrize("lazy", [False, True])
def test_declared__polars_enum(lazy: bool) -> None:
    frame = pl.DataFrame(
        {
            "e": pl.Series(list("pqp"), dtype=pl.Enum(["z", "q", "p"])),
            "c": pl.Series(list("pqp"), dtype=pl.Categorical),
            "n": pl.Series([None] * 3, dtype=pl.Enum([])),
            "y": list("aab"),
        }
    )
    stats = count(frame.lazy() if lazy else frame)
    assert domain(stats, "e") == ["p", "q", "z"]
    assert domain(stats, "c") == ["p", "q"]
    assert domain(stats, "n") == []
    assert [f.declared for f in stats.schema.features] == [True, False, False]


def test_declared__values_outside_name_column_row_and_value() -> None:
    table = pa.table({"x": ["p", None, "q", "r"], "i": [1, 2, 3, 4], "y": [None, "a", "a", "b"]})
    with pytest.raises(
        DataError, match=r"column 'x', row 3: value 'r' is outside .*domains\['x'\]"
    ):
        count(table, domains={"x": ["p", "q"]})
    with pytest.raises(DataError, match="column 'i', row 2: value 3 is outside the declared"):
        count(table, domains={"i": [1, 2]})
    with pytest.raises(DataError, match="column 'y', row 3: class 'b' is not among the 1 known"):
        count(table, domains={"y": ["a"]})
    with pytest.raises(SchemaError, match="domains: there is no column 'z'"):
        count(table, domains={"z": ["a"]})
    with pytest.raises(SchemaError, match="'x' holds int64 in one place and string"):
        count(table, domains={"x": [1, 2]})


def test_declared__false_alone() -> None:
    stats = count(pa.table({"x": [False, None], "y": ["a", "b"]}), domains={"x": [False]})
    assert domain(stats) == [False]
    with pytest.raises(DataError, match="column 'x', row 1: value True is outside"):
        count(pa.table({"x": [False, True], "y": ["a", "b"]}), domains={"x": [False]})


# Edges


def test_edge__zero_rows() -> None:
    kinds = {"t": pa.string(), "b": pa.bool_(), "i": pa.int64(), "f": pa.float64(), "z": pa.null()}
    table = pa.table({k: pa.array([], v) for k, v in kinds.items()} | {"y": pa.array([], TEXT)})
    stats = count(table, categorical=["i"])
    assert [f.size for f in stats.schema.features] == [0] * 5
    assert stats.n_rows == 0
    filled = pa.table({"t": ["p"], "b": [True], "i": [1], "f": [0.5], "z": [None], "y": ["a"]})
    assert stats + count(filled, categorical=["i"]) == count(filled, categorical=["i"])


TEXT = pa.string()


def test_edge__one_class_one_value_all_missing() -> None:
    table = pa.table(
        {"one": ["p"] * 3, "gone": pa.nulls(3, pa.string()), "null": pa.nulls(3), "y": ["a"] * 3}
    )
    stats = count(table)
    assert cells(stats) == {("one", "p", "a"): 3, ("gone", None, "a"): 3, ("null", None, "a"): 3}
    numbers = count(pa.table({"x": pa.nulls(3, pa.float64()), "y": ["a"] * 3}))
    assert numbers.moments.count.tolist() == [[0]]


def test_edge__rows_without_a_class_are_dropped_and_counted() -> None:
    table = pa.table({"x": ["p", "q", "r"], "y": ["a", None, "b"]})
    stats = count(table)
    assert stats.dropped_rows == 1
    assert domain(stats) == ["p", "r"]
    nan = pa.table({"x": ["p", "q", "r"], "y": [1.0, float("nan"), 2.0]})
    assert count(nan).dropped_rows == 1


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.null(), pa.float64(), pa.bool_(), pa.int32()], ids=str
)
def test_edge__no_class_at_all(kind: Any) -> None:
    table = pa.table({"x": ["p", "q"], "y": pa.nulls(2, kind)})
    with pytest.raises(DataError, match=r"column 'y' is null in all 2 rows.*choose another target"):
        count(table)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([datetime.date(2020, 1, 1)] * 2),
        pa.array([[1], [2]]),
        pa.array([b"a", b"b"]),
        pa.array([1, 2], pa.timestamp("s")).dictionary_encode(),
    ],
    ids=lambda c: str(c.type),
)
@pytest.mark.parametrize("place", ["x", "y"])
def test_edge__types_that_cannot_be_used(column: pa.Array, place: str) -> None:
    columns = {"x": ["p", "q"], "y": ["a", "b"]} | {place: column}
    if place == "x" and holds(column.type):
        assert count(pa.table(columns)).schema.columns == ("x",)
        return
    with pytest.raises(
        SchemaError, match=f"column '{place}' has type .*: (cast|leave it out|make)"
    ):
        count(pa.table(columns))
    good = count(pa.table({"x": ["p", "q"], "y": ["a", "b"]})).schema
    rows = pa.table(columns).select(["x"])
    if place == "x":
        with pytest.raises(SchemaError, match="column 'x' has type"):
            Encoder.applying_to(good, rows.schema)


def test_edge__ten_thousand_features() -> None:
    rng = np.random.default_rng(0)
    cells_ = rng.integers(0, 3, (20, 10_000)).astype(np.int8)
    names = [f"x{j}" for j in range(10_000)]
    table = pa.table([pa.array(c) for c in cells_.T], names=names)
    table = table.append_column("y", pa.array(rng.choice(["a", "b"], 20)))
    stats = count(table, categorical=names)
    assert len(stats.schema.features) == 10_000
    assert stats.values.counts.sum() == 20 * 10_000
    np.testing.assert_array_equal(
        stats.values.of(9_999).sum(axis=1), np.unique(cells_[:, -1], return_counts=True)[1]
    )


@pytest.mark.parametrize("size", [254, 255, 256, 257, 65_534, 65_535, 65_536, 65_537, 100_000])
def test_edge__largest_code_of_a_width(size: int) -> None:
    values = np.random.default_rng(size).permutation(size)
    whole = pa.array(np.append(values, values[:5]))
    labels = np.arange(size + 5) % 2
    for x in (whole, whole.cast(pa.string())):
        column = pa.concat_arrays([x, pa.nulls(1, x.type)])
        table = pa.table({"x": column, "y": np.append(labels, 0)})
        stats = count(table, categorical=["x"])
        assert stats.schema.features[0].size == size
        assert stats.values.missing.tolist() == [[1, 0]]
        np.testing.assert_array_equal(
            np.sort(stats.values.of(0).sum(axis=1)),
            np.sort(np.unique(whole, return_counts=True)[1]),
        )


@pytest.mark.parametrize("size", [255, 256, 257, 1000])
def test_edge__many_classes(size: int) -> None:
    labels = np.arange(size).astype(str)
    column = pa.array([*labels, None])
    stats = count(pa.table({"x": ["p"] * (size + 1), "y": column}))
    assert stats.values.class_counts.tolist() == [1] * size
    assert stats.schema.classes.to_pylist() == sorted(labels)
    assert stats.dropped_rows == 1


def test_edge__too_many_classes() -> None:
    with pytest.raises(DataError, match="column 'y' has more than 65535 distinct values"):
        count(pa.table({"x": ["p"] * 70_000, "y": np.arange(70_000)}))


def test_null_values() -> None:
    table = pa.table({"x": ["NA", "p", "-", None], "y": ["a", "NA", "b", "a"]})
    stats = count(table, null_values=["NA", "-"])
    assert cells(stats) == {("x", None, "a"): 2, ("x", None, "b"): 1}
    assert stats.dropped_rows == 1
    assert domain(count(table)) == ["-", "NA", "p"]
    encoded = table.set_column(0, "x", table["x"].dictionary_encode())
    assert cells(count(encoded, null_values=["NA", "-"])) == cells(stats)


# Streams whose later batches are of another type


def stream(*tables: dict[str, Any]) -> Any:
    return iter([pa.record_batch(t) for t in tables])


def test_later_batches__of_a_type_that_does_not_fit() -> None:
    model = fb.NaiveBayes().fit(pa.table({"x": [1.0, 2.0], "s": ["p", "q"], "y": ["a", "b"]}), "y")
    nothing = {"x": pa.nulls(1), "s": pa.nulls(1)}
    with pytest.raises(SchemaError, match=r"column 's' .*string.*int64"):
        model.predict(stream(nothing, {"x": [1.0], "s": [5]}))
    with pytest.raises(SchemaError, match=r"column 'x' is .*string, but numbers are needed"):
        model.predict(stream(nothing, {"x": ["1.0"], "s": ["p"]}))
    labels = {"y": ["a"]}
    with pytest.raises(DataError, match="int64"):
        count(stream({"x": pa.nulls(1), **labels}, {"x": ["p"], **labels}, {"x": [1], **labels}))


@pytest.mark.parametrize("values", [["p"], [1], [0.5], [True]], ids=str)
def test_later_batches__of_a_category_that_had_no_values(values: list[Any]) -> None:
    parts = [{"x": column, "y": ["a"]} for column in (pa.nulls(1), values)]
    found = count(stream(*parts), categorical=["x"])
    assert found == count(stream(*parts[::-1]), categorical=["x"])
    assert domain(found) == values


def test_applying__types_are_compared_with_those_of_the_fit() -> None:
    table = pa.table({"s": ["p"], "b": [True], "i": [1], "y": ["a"]})
    schema = count(table, categorical=["i"]).schema
    for name, column in (("s", [1]), ("b", [1]), ("b", ["true"]), ("i", ["1"]), ("i", [True])):
        columns = table.drop_columns("y").set_column("sbi".index(name), name, pa.array(column))
        with pytest.raises(SchemaError, match=f"'{name}' was .* at fit and is .* now; cast it"):
            Encoder.applying_to(schema, columns.schema)
    with pytest.raises(SchemaError, match=r"column 'i' is missing; .*the data have"):
        Encoder.applying_to(schema, table.select(["s", "b"]).schema)


@pytest.mark.parametrize("n", [256, 257])
@pytest.mark.parametrize("encoded", [False, True])
def test_applying__text_where_a_column_had_no_values(n: int, encoded: bool) -> None:
    """All of it is unseen, however much of it there is."""
    y = ["a", "b"] * 10
    model = fb.NaiveBayes().fit(pa.table({"f": pa.nulls(20), "g": ["p", "q"] * 10, "y": y}), "y")
    texts = pa.array([f"t{i}" for i in range(n)])
    rows = {"f": texts.dictionary_encode() if encoded else texts, "g": ["p"] * n}
    missing = {"f": pa.nulls(n), "g": ["p"] * n}
    found = model.predict_proba(pa.table(rows))
    assert np.array_equal(found, model.predict_proba(pa.table(missing)))


@pytest.mark.parametrize("kind", [pa.null(), pa.string(), pa.int64()], ids=str)
def test_applying__a_category_that_had_no_values_may_be_anything(kind: pa.DataType) -> None:
    rows = {"f": pa.nulls(2, kind), "g": ["p", "q"], "y": ["a", "b"]}
    model = fb.NaiveBayes(categorical=["f"]).fit(pa.table(rows), "y")
    for values in ([1, 2], [0.5, 1.5], ["u", "v"], [True, False]):
        assert model.predict({"f": values, "g": ["p", "q"]}).tolist() == ["a", "b"]


def test_applying__dates_where_a_column_had_no_values() -> None:
    dates = pa.array([0, 1], pa.date32())
    model = fb.NaiveBayes().fit(pa.table({"f": pa.nulls(2), "g": ["p", "q"], "y": ["a", "b"]}), "y")
    for column in (dates, dates.dictionary_encode()):
        with pytest.raises(SchemaError, match=r"'f' had no values at fit and is .* to string"):
            model.predict(pa.table({"f": column, "g": ["p", "q"]}))
    rows = pa.table({"f": dates.cast(pa.string()), "g": ["p", "q"]})
    assert model.predict(rows).tolist() == ["a", "b"]


def test_applying__unseen_values() -> None:
    schema = count(pa.table({"x": ["p", "q"], "y": ["a", "b"]})).schema
    rows = pa.record_batch({"x": ["q", "r", None, "s"]})
    for unseen in ("ignore", "smooth"):
        encoder = Encoder.applying_to(schema, rows.schema, unseen=unseen)
        assert encoder.encode(rows, HERE).unseen.tolist() == [2]
    encoder = Encoder.applying_to(schema, rows.schema, unseen="error")
    with pytest.raises(DataError, match=r"'x', row 1001 of here.parquet: value 'r' was not seen"):
        encoder.encode(rows, HERE)
    with pytest.raises(ValueError, match="unseen='never'"):
        Encoder.applying_to(schema, rows.schema, unseen="never")
