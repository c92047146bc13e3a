"""Footers of Parquet files: both back ends against pyarrow, and against each other when damaged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastbayes.kernels.compiled.reading import footers as compiled
from fastbayes.kernels.numpy.reading import footers as numpy_twin
from fastbayes.kernels.shared import pages as p

MODULES = pytest.mark.parametrize("module", [compiled, numpy_twin], ids=["compiled", "numpy"])


def written(path):
    """Write three row groups of three columns; return what pyarrow tells of them, and the bytes."""
    table = pa.table({"a": ["x", "y", None] * 5, "b": range(15), "c": [[1]] * 15})
    pq.write_table(
        table, path, row_group_size=6, compression={"a": "gzip", "b": "lz4", "c": "none"}
    )
    metadata = pq.read_metadata(path)
    return metadata, path.read_bytes()[-8 - metadata.serialized_size : -8] + bytes(p.SLACK)


@MODULES
def test_chunks_are_where_pyarrow_finds_them(module, tmp_path):
    """Also without the compiler, where a file is so large that kernels would read its footer."""
    metadata, footer = written(tmp_path / "t.parquet")
    found = np.zeros((3, 3, p.N_CHUNK), np.int64)
    assert module.list_chunks(np.frombuffer(footer, np.uint8), found)
    for group in range(3):
        for column in range(3):
            chunk = metadata.row_group(group).column(column)
            sizes = p.CHUNK_SIZE, p.CHUNK_UNPACKED, p.CHUNK_DATA, p.CHUNK_DICTIONARY, p.CHUNK_VALUES
            assert found[group, column, list(sizes)].tolist() == [
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
                chunk.data_page_offset,
                chunk.dictionary_page_offset or 0,
                chunk.num_values,
            ]
            assert found[group, column, p.CHUNK_NULLS] == chunk.statistics.null_count + 1


@pytest.mark.compiled
def test_damaged_footers_are_read_alike(tmp_path, request):
    _, whole = written(tmp_path / "t.parquet")
    rng = np.random.default_rng(0)
    n_sound = 0
    for damaged in range(20_000 if request.config.getoption("--slow") else 500):
        footer = np.frombuffer(whole, np.uint8).copy()
        for place in rng.integers(0, len(footer) - p.SLACK, 2 if damaged else 0):
            footer[place] = rng.choice([0, 1, 25, 28, 127, 128, 255, rng.integers(256)])
        found, expected = np.zeros((2, 3, 3, p.N_CHUNK), np.int64)
        # an unsound footer is pyarrow's to judge: which of the two notices first does not matter
        sound = compiled.list_chunks(footer, found)
        if numpy_twin.list_chunks(footer, expected) and sound:
            n_sound += 1
            np.testing.assert_array_equal(found, expected)
    assert 1 < n_sound < damaged


@MODULES
@pytest.mark.parametrize("kind", range(1, 13))
def test_list_of_more_elements_than_there_are_bytes(module, kind):
    """Such a list is not followed, though truth values in it are of no interest."""
    n = bytes([0xFF] * 8 + [0x7F])
    footer = bytes([0x19, 0xF0 | kind]) + n + bytes(8)
    chunks = np.zeros((1, 1, p.N_CHUNK), np.int64)
    assert not module.list_chunks(np.frombuffer(footer + bytes(p.SLACK), np.uint8), chunks)
