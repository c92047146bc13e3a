"""Pages of Parquet files: the compiled kernels against plain Python, byte for byte."""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exercises.reading import pages as exercises
from oracles import pages as plain

from fastbayes.data.column_chunks import Footer
from fastbayes.data.paths import find_files
from fastbayes.kernels import dispatch
from fastbayes.kernels.compiled.reading import pages as compiled
from fastbayes.kernels.compiled.simd import bits
from fastbayes.kernels.shared import pages as p

ROOM = 1 << 14


def chunks(path, **options):
    """Yield the columns and the bytes of chunks of all kinds, as a reader would describe them."""
    rng = np.random.default_rng(1)
    n = 200
    hidden = rng.random(n) < 0.2
    columns = {
        f"{size} strings": pa.array([f"v{k}" for k in rng.integers(0, size, n)], mask=hidden)
        for size in (1, 2, 7, 100)
    }
    columns["numbers"] = pa.array(rng.integers(0, 99, n), mask=hidden)
    columns["small"] = pa.array(rng.integers(0, 99, n).astype(np.int8))
    columns["spread"] = pa.array(rng.random(n), mask=hidden)
    columns["price"] = pa.array(rng.integers(-99, 99, n), mask=hidden).cast(pa.decimal128(21, 1))
    columns["many prices"] = pa.array(rng.integers(-(10**9), 10**9, n)).cast(pa.decimal128(20, 0))
    columns["truths"] = pa.array(rng.random(n) < 0.4)
    table = pa.table(columns)
    pq.write_table(table, path, data_page_size=100, write_batch_size=20, **options)
    text = pa.dictionary(pa.int32(), pa.string())
    types = pa.schema([f.with_type(text) if f.type == pa.string() else f for f in table.schema])
    (file,) = find_files(path).files
    found, reasons = Footer(file).divide(types, 0, dispatch.numpy_twin("reading.footers"))
    assert not reasons
    for chunk in found:
        column = np.zeros(p.N_COLUMN, np.int64)
        column[[p.END, p.ROWS, p.WANTED, p.ENTRIES]] = chunk.size, n, n, -1
        column[[p.KIND, p.WIDTH, p.OPTIONAL]] = chunk.kind, chunk.width, chunk.optional
        column[p.UNIT] = 1 if chunk.kind == p.STRINGS else chunk.unit
        column[p.CODEC] = {"UNCOMPRESSED": p.STORED, "SNAPPY": p.SNAPPY, "LZ4_RAW": p.LZ4}[
            chunk.compression
        ]
        column[[p.TEXT, p.KNOWN]] = ROOM // 2
        data = path.read_bytes()[chunk.start : chunk.start + chunk.size]
        yield column, np.frombuffer(data + bytes(p.SLACK), np.uint8)


def decoded(kernels, column, source):
    """Return all that the kernels write."""
    columns = column[None].copy()
    pages = np.zeros((99, p.N_PAGE), np.int64)
    n_pages = kernels.list_pages(source, columns, pages)
    pages = pages[:n_pages]
    tables, out = np.zeros(ROOM, np.uint8), np.zeros(ROOM, np.uint8)
    if columns[0, p.STATUS] == columns[0, p.NEEDED] == 0 and columns[0, p.SPACE] < ROOM // 2:
        room = int(pages[:, p.RAW].max(initial=0)) + p.SLACK
        scratch = np.zeros(room, np.uint8), np.zeros(ROOM, np.uint8)
        kernels.decode(source, scratch[0], columns, pages, tables, scratch[1], out)
    if columns[0, p.STATUS] != p.SOUND:  # what stands elsewhere is not defined
        return columns[0, p.STATUS], None, None, None, None
    held, unit = columns[0, [p.HELD, p.UNIT]]
    known = out[ROOM // 2 :][:held] if columns[0, p.NULLS] else None
    if columns[0, p.KIND] != p.STRINGS:
        tables = tables[: columns[0, p.ENTRIES] * unit]
    return 0, columns, tables, known, out[: held * unit]


@pytest.mark.compiled
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "lz4"])
def test_compiled_is_plain_python(codec, version, tmp_path, request):
    rng = np.random.default_rng(0)
    n_sound, n_wrong = 0, 0
    for column, whole in chunks(
        tmp_path / "t.parquet",
        compression=codec,
        data_page_version=version,
        write_page_checksum=version == "2.0",
    ):
        for damaged in range(500 if request.config.getoption("--slow") else 30):
            source = whole.copy()
            for place in rng.integers(0, len(source) - p.SLACK, 2 if damaged else 0):
                source[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
            found, expected = (decoded(k, column, source) for k in (compiled, plain))
            assert found[0] == expected[0]
            n_sound += found[0] == 0
            n_wrong += found[0] != 0
            for ours, theirs in zip(found[1:], expected[1:], strict=True):
                np.testing.assert_array_equal(ours, theirs)
            assert damaged or found[0] == p.SOUND
    assert n_sound > 8
    assert n_wrong > 8


def test_plain_python_has_all_drivers():
    exercises.exercise(plain)


def calling(spread):
    return numba.njit(lambda word, mask, width, lanes: spread(word, mask, width, lanes))


@pytest.mark.compiled
@pytest.mark.parametrize("lanes", [4, 8])
def test_values_are_spread_over_lanes(lanes):
    rng = np.random.default_rng(lanes)
    for spread in (bits.spread, bits._spread_slowly):
        run = calling(spread)
        for width in range(1, 64 // lanes + 1):
            word = int(rng.integers(0, 2**64, dtype=np.uint64))
            values = [word >> k * width & (1 << width) - 1 for k in range(lanes)]
            mask = sum((1 << width) - 1 << 64 // lanes * k for k in range(lanes))
            expected = sum(value << 64 // lanes * k for k, value in enumerate(values))
            assert run(np.uint64(word), np.uint64(mask), np.uint64(width), lanes) == expected


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
        pytest.param(plain, id="plain"),
    ],
)
def test_page_of_more_bytes_than_it_unpacks_to__its_first_ones_unpack_to_many(module, tmp_path):
    n, rng = 1000, np.random.default_rng(5)
    raw = bytes(8 + 62 * 64) + rng.bytes(8 * n - 8 - 62 * 64)
    # Eight zeros, copied 62 times eightfold; each of the other bytes apart.
    packed = varint(len(raw)) + bytes([7 << 2]) + bytes(8) + bytes([63 << 2 | 2, 8, 0]) * 62
    packed += b"".join(bytes([0, value]) for value in raw[8 + 62 * 64 :])
    assert len(packed) > len(raw)
    sizes = b"\x15" + varint(2 * len(raw)) + b"\x15" + varint(2 * len(packed))
    header = b"\x15\0" + sizes + b"\x2c\x15" + varint(2 * n) + b"\x15\0\x15\6\x15\6\0\0"
    path = tmp_path / "page"
    path.write_bytes(header + packed)
    columns = np.zeros((1, p.N_COLUMN), np.int64)
    columns[0, [p.MORE, p.ROWS, p.WANTED, p.KIND]] = len(header + packed), n, n, p.NUMBERS
    columns[0, [p.WIDTH, p.UNIT, p.FOUND, p.CODEC]] = 8, 8, -1, p.SNAPPY
    out, rooms = np.zeros((1, 1 << 15), np.uint8), [np.zeros(1 << 15, np.uint8) for _ in range(3)]
    tables = np.zeros((1, 64), np.uint8)
    with path.open("rb") as file:
        columns[0, p.FILE] = file.fileno()
        module.read_numbers(columns, np.zeros(1, np.int64), *rooms, tables, out, out)
    assert columns[0, [p.STATUS, p.HELD]].tolist() == [p.SOUND, n]
    assert out[0, p.LEAD :][: 8 * n].tobytes() == raw
