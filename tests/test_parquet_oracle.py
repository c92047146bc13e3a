"""The oracle of Parquet pages reads what pyarrow writes, and refuses what is malformed."""

from __future__ import annotations

import datetime
import decimal
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutating import mutations
from oracles.parquet_pages import chunk_values

ROWS = 500


def table():
    rng = np.random.default_rng(3)
    null = rng.random(ROWS) < 0.2
    words = np.array([f"word {k}" * (k % 4) for k in range(40)])
    day = datetime.datetime(2020, 1, 1)
    eighths = [decimal.Decimal(k - 50) / 8 for k in range(ROWS)]
    kinds = {
        "bool": pa.array(rng.random(ROWS) < 0.3, mask=null),
        "int32": pa.array(rng.integers(-5, 5, ROWS), pa.int32(), mask=null),
        "int64": pa.array(rng.integers(-(2**62), 2**62, ROWS), mask=null),
        "float": pa.array(rng.normal(size=ROWS).astype(np.float32), mask=null),
        "double": pa.array(rng.integers(0, 9, ROWS) / 7, mask=null),
        "string": pa.array(words[rng.integers(0, 40, ROWS)], mask=null),
        "binary": pa.array([rng.bytes(k % 9) for k in range(ROWS)], mask=null),
        "fixed": pa.array([rng.bytes(5) for _ in range(ROWS)], pa.binary(5), mask=null),
        "decimal": pa.array(eighths, pa.decimal128(20, 3)),
        "time": pa.array([day + datetime.timedelta(seconds=k) for k in range(ROWS)]),
        "nulls": pa.nulls(ROWS, pa.int32()),
        "constant": pa.array(np.full(ROWS, 7)),
        "runs": pa.array(np.arange(ROWS) // 50, mask=np.arange(ROWS) // 30 % 2 == 0),
    }
    required = {"int64": False, "constant": False}
    kinds["int64"] = kinds["int64"].fill_null(0)
    fields = [pa.field(n, x.type, required.get(n, True)) for n, x in kinds.items()]
    return pa.Table.from_arrays(list(kinds.values()), schema=pa.schema(fields))


TABLE = table()
DAY, SECOND = 2_440_588, 10**9  # Julian day of 1970-01-01; nanoseconds


def as_stored(name, value):
    """Return a value of Arrow as Parquet stores it."""
    if value is None:
        return None
    if name == "string":
        return value.encode()
    if name == "decimal":
        return int(value.scaleb(3)).to_bytes(9, "big", signed=True)
    if name == "time":
        days, seconds = divmod(int(value.replace(tzinfo=datetime.UTC).timestamp()), 86_400)
        return (seconds * SECOND).to_bytes(8, "little") + (days + DAY).to_bytes(4, "little")
    return value


def written(data, **options):
    file = io.BytesIO()
    options = {"data_page_size": 256, "write_batch_size": 64, "row_group_size": 350} | options
    pq.write_table(data, file, use_deprecated_int96_timestamps=True, **options)
    return file.getvalue()


def check(file, data):
    metadata = pq.ParquetFile(io.BytesIO(file)).metadata
    for c, name in enumerate(data.column_names):
        groups = range(metadata.num_row_groups)
        values = [v for g in groups for v in chunk_values(file, metadata, g, c)]
        assert values == [as_stored(name, v) for v in data.column(c).to_pylist()], name


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "gzip", "zstd", "brotli"])
def test_what_pyarrow_writes(codec, version):
    options = {"compression": codec, "data_page_version": version}
    check(written(TABLE, **options, write_page_checksum=True), TABLE)
    check(written(TABLE, **options, use_dictionary=False), TABLE)
    check(written(TABLE, **options, dictionary_pagesize_limit=100), TABLE)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("rows", [0, 1, 8])
def test_few_rows(rows, version):
    check(written(TABLE[:rows], data_page_version=version), TABLE[:rows])


def test_other_encodings_and_nested_values_are_not_read():
    column = TABLE.select(["int64"])
    file = written(column, use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")
    metadata = pq.ParquetFile(io.BytesIO(file)).metadata
    with pytest.raises(NotImplementedError, match="encoding 9"):
        chunk_values(file, metadata, 0, 0)
    nested = pa.table({"x": [[1, 2], []]})
    file = written(nested)
    with pytest.raises(NotImplementedError, match="nested"):
        chunk_values(file, pq.ParquetFile(io.BytesIO(file)).metadata, 0, 0)


def attempt(read, *arguments):
    """Return values, or None if they are refused."""
    try:
        return read(*arguments)
    except (ValueError, NotImplementedError, OSError):
        return None


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", ["bool", "int32", "binary", "double", "fixed"])
def test_mutated_chunks(name, version, checksum):
    """A mutation gives the values that pyarrow reads, or is refused."""
    column = TABLE.select([name])
    for codec in ("none", "snappy"):
        options = {"compression": codec, "data_page_version": version, "row_group_size": ROWS}
        file = written(column, **options, write_page_checksum=checksum)
        metadata = pq.ParquetFile(io.BytesIO(file)).metadata
        begin = metadata.row_group(0).column(0).dictionary_page_offset or 4
        end = begin + metadata.row_group(0).column(0).total_compressed_size
        refused = unlike = 0
        for what, changed in mutations(file, 5, 150, begin, end):
            ours = attempt(chunk_values, changed, metadata, 0, 0)
            refused += ours is None
            if ours is None or len(changed) < len(file):
                continue
            theirs = attempt(read_by_pyarrow, changed, name)
            if theirs is None:
                unlike += 1
            else:
                assert repr(ours) == repr(theirs), what  # NaN is itself
        assert 20 < refused < 150
        assert unlike <= 3


def read_by_pyarrow(file, name):
    reader = pq.ParquetFile(io.BytesIO(file), page_checksum_verification=True)
    values = reader.read().column(0)
    return [as_stored(name, v) for v in values.to_pylist()]


def test_mutations():
    data = bytes(range(100)) * 3
    made = list(mutations(data, 1, 200, 50, 250))
    assert made == list(mutations(data, 1, 200, 50, 250))
    assert len({what.split()[0] for what, _ in made}) == 6
    assert sum(changed != data for _, changed in made) > 150
    for what, changed in made:
        assert changed[:50] == data[:50]
        assert len(changed) < 250 if what.startswith("cut") else changed[250:] == data[250:], what
