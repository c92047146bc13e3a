"""Files hold values alone: of equal ones equal bytes, and nothing else that was in the memory."""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_architecture import MODULES

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.exact_arrays import exact, exact_rows

MARK = b"SECRETS!"

FLAT = {
    "numbers": pa.array([1, None, 3]),
    "decimals": pa.array([1, None, 3]).cast(pa.decimal128(30, 2)),
    "truths": pa.array([True, None, False, True, False]),
    "bytes of one width": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "texts": pa.array(["a", None, "bc"]),
    "long texts": pa.array(["a", None, "bc"], pa.large_string()),
    "no nulls": pa.array(["a", "", "bc"]),
    "moments": pa.array([1, None, 3], pa.timestamp("us")),
    "none": pa.array([], pa.string()),
}
STORED = {name: array for name, array in FLAT.items() if array.type in files.ARROW_TYPES}
NESTED = {
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "list": pa.array([[1, 2], None, [3], []]),
    "struct": pa.array([{"n": 1, "s": "a"}, None, {"n": None, "s": "b"}]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "views": pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
    "runs": pc.run_end_encode(pa.array([1, 1, 2])),
    "extension": pa.array([b"0123456789abcdef", None], pa.uuid()),
}


def in_used_memory(array: pa.Array) -> pa.Array:
    """Return an equal flat array with marks behind the values, in spare bits and beneath nulls."""
    validity, *data = array.buffers()
    n, known = len(array), np.array(array.is_valid())
    found = [np.concatenate([np.frombuffer(b, np.uint8), marks()]) for b in data if b is not None]
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(found[0][: -(-n // 8)], bitorder="little")
        bits[:n][~known] = 1
        bits[n:] = 1
        found[0][: -(-n // 8)] = np.packbits(bits, bitorder="little")
    elif len(data) == 1:
        width = array.type.bit_width // 8
        values = found[0][: n * width].reshape(n, width)
        values[~known] = np.resize(np.frombuffer(MARK, np.uint8), width)
    mask = np.ones(8 * (-(-n // 8)), np.bool_)
    mask[:n] = known
    spare = np.concatenate([np.packbits(mask, bitorder="little"), marks()])
    first = None if validity is None else pa.py_buffer(spare)
    return pa.Array.from_buffers(array.type, n, [first, *map(pa.py_buffer, found)])


def marks() -> np.ndarray[Any, Any]:
    return np.frombuffer(MARK * 40, np.uint8)


def as_ipc(array: pa.Array) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([("column", array.type)])
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    return sink.getvalue()


@pytest.mark.parametrize("array", FLAT.values(), ids=FLAT)
def test_equal_arrays_become_equal_bytes(array: pa.Array) -> None:
    used = in_used_memory(array)
    assert used.equals(array)
    found = exact(used)
    found.validate(full=True)
    assert found.equals(array)
    assert found.type == array.type
    assert as_ipc(found) == as_ipc(exact(array))
    assert not any(MARK in bytes(b) for b in found.buffers() if b is not None)
    around = pa.concat_arrays([used, array, used])
    assert as_ipc(exact(around[len(array) : 2 * len(array)])) == as_ipc(exact(array))


@pytest.mark.parametrize("array", NESTED.values(), ids=NESTED)
def test_slices_of_any_type_become_what_they_are_alone(array: pa.Array) -> None:
    for n in (0, 1, len(array)):
        found = exact(array[:n])
        found.validate(full=True)
        assert found.equals(array[:n])
        assert found.type == array.type
        assert as_ipc(exact(found)) == as_ipc(found)


def test_nothing_is_hidden_in_the_inside() -> None:
    numbers = pa.array([int.from_bytes(MARK, "little")] * 3)
    mask = pa.array([False, True, True])
    hidden = {
        "struct": pa.StructArray.from_arrays([numbers], ["n"], mask=mask).slice(1),
        "list": pa.ListArray.from_arrays([0, 0, 3], numbers, mask=pa.array([False, True])),
        "dictionary": pa.DictionaryArray.from_arrays(
            pa.array([0, 0]), in_used_memory(pa.array(["a"]))
        ),
    }
    for name, array in hidden.items():
        assert MARK not in as_ipc(exact(array)), name


def test_numbers_that_are_exact_are_not_copied() -> None:
    for array in (pa.array([1, 2, 3]), pa.array([0.5]).slice(0), pa.array([], pa.int64())):
        assert exact(array) is array


@pytest.mark.parametrize("array", STORED.values(), ids=STORED)
@pytest.mark.parametrize("least", [0, 1 << 30], ids=["compressed", "plain"])
def test_files_of_equal_arrays_are_equal(
    array: pa.Array, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "COMPRESSED_BYTES", least)
    blobs = {
        files.to_bytes({}, {"a": one})
        for one in (array, in_used_memory(array), pa.concat_arrays([array] * 2)[len(array) :])
    }
    assert len(blobs) == 1
    assert MARK not in blobs.pop()


def secrets_and(shown: list[str]) -> pa.Table:
    """Return rows that are a part of a table of others, with what these hold behind and beneath."""
    secret = MARK.decode()
    rows = len(shown)
    number = int.from_bytes(MARK, "little")
    hidden = np.array([False] * rows + [True] * rows)
    every = pa.table(
        {
            "text": pa.array([*shown, *[secret] * rows]),
            "y": pa.array([*["no", "yes"] * (rows // 2), *[secret] * rows]),
            "key": pa.array([7, *[number] * (2 * rows - 1)], mask=~np.eye(1, 2 * rows, 0, bool)[0]),
            "name": pa.array([*"ab" * (rows // 2), *[secret] * rows]).dictionary_encode(),
            "inner": pa.array([{"n": number if h else 1} for h in hidden]),
        }
    )
    return every.slice(0, rows)


@pytest.mark.parametrize("suffix", ["arrow", "parquet", "jsonl", "csv"])
def test_predictions_hold_no_rows_but_their_own(tmp_path: Path, suffix: str) -> None:
    rows = secrets_and(["k0", "k1"] * 5)
    # The dictionary of a column is a value of its type: what it lists was asked to be copied.
    rows = rows.set_column(3, "name", rows["name"].cast(pa.string()))
    model = fb.NaiveBayes().fit(rows.select(["text", "y"]), "y")
    path, copied = tmp_path / f"predictions.{suffix}", ["text", "key", "name", "inner.n"]
    fb.predict_to(model, rows, path, keys=copied, proba=True)
    assert MARK not in path.read_bytes()
    with io.BytesIO() as stream:
        format = {"arrow": "ipc"}.get(suffix, suffix)
        fb.predict_to(model, rows, stream, keys=copied, format=format)
        assert MARK not in stream.getvalue()


def test_models_of_equal_rows_are_equal_bytes_in_files_and_pickles(tmp_path: Path) -> None:
    values = [f"k{i % 7}" for i in range(40)]
    rows = secrets_and(values)
    alone = pa.table({name: rows[name].to_pylist() for name in ("text", "y")})
    models = [fb.NaiveBayes().fit(some.select(["text", "y"]), "y") for some in (rows, alone)]
    for i, model in enumerate(models):
        model.save(tmp_path / f"{i}.fb")
    saved, other = ((tmp_path / f"{i}.fb").read_bytes() for i in range(2))
    assert saved == other
    assert MARK not in saved
    used = in_used_memory(models[0].schema_.classes)
    object.__setattr__(models[0].schema_, "classes", used)
    feature = models[0].schema_.features[0]
    object.__setattr__(feature, "values", in_used_memory(feature.values))
    assert MARK not in pickle.dumps(models[0])
    assert models[0].statistics_.to_bytes() == models[1].statistics_.to_bytes()


def test_rows_of_tables_and_batches_stay_what_they_are() -> None:
    table = secrets_and(["a", "b"])
    for rows in (table, table.combine_chunks().to_batches()[0]):
        assert type(exact_rows(rows)) is type(rows)
        assert exact_rows(rows).equals(rows)


def test_whoever_writes_arrow_ipc_writes_exact_arrays() -> None:
    writers = {
        name: source
        for name, path in MODULES.items()
        if re.search(r"ipc\.(new_(file|stream)|RecordBatch\w+Writer)", source := path.read_text())
    }
    assert len(writers) == 3
    assert [name for name, source in writers.items() if "core.exact_arrays" not in source] == []
