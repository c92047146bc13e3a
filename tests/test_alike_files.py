"""Files that differ in numbers alone are read to the same arrays, or errors, as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_files import assert_same, forged

from fastbayes.core import files
from fastbayes.core.alike_files import FileLayout
from fastbayes.core.errors import FileFormatError

HEADER = {"kind": "test", "names": ["a", "ü"]}


@pytest.fixture(autouse=True)
def forgotten() -> None:
    files._layouts, files._last = (), b""


def part(seed: int, most: int = 100, **more: Any) -> bytes:
    """Return a file of a job, all of which have the same types where `most` is the same."""
    rng = np.random.default_rng(seed)
    return files.to_bytes(
        HEADER,
        {
            "counts": np.append(rng.integers(0, most, 11), most).reshape(3, 4),
            "domain": pa.array(["x", None, "longer"]),
            "mean": rng.normal(size=(2, 3)),
            "seen": np.array([True, False, True]),
            "none": np.zeros((0, 5)),
            "ledger": rng.integers(0, 255, 40).astype(np.uint8),
            **more,
        },
    )


def read(blob: bytes) -> Any:
    """Return what a file holds, or why it cannot be read."""
    try:
        return files.from_bytes(blob, "the file")
    except FileFormatError as error:
        return str(error)


def read_anew(blob: bytes) -> Any:
    """Return the same without anything that is known from other files."""
    known, last = files._layouts, files._last
    files._layouts, files._last = (), b""
    try:
        return read(blob)
    finally:
        files._layouts, files._last = known, last


def assert_alike(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, str):
        assert found == expected
    else:
        assert found[0] == expected[0]
        assert_same(found[1], expected[1])


def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the files that are read by the layout of another, as that is done."""
    sizes: list[int] = []
    own = FileLayout.read

    def noted(self: FileLayout, blob: bytes) -> Any:
        sizes.append(len(blob))
        return own(self, blob)

    monkeypatch.setattr(FileLayout, "read", noted)
    return sizes


def test_parts_of_a_job__are_read_as_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = used(monkeypatch)
    # Counts of three widths, in turn.
    parts = [part(seed, most) for seed, most in zip(range(12), [100, 300, 2**20] * 4, strict=True)]
    for blob in parts:
        header, arrays = found = read(blob)
        assert_alike(found, read_anew(blob))
        for array in arrays.values():  # nobody else has it
            if isinstance(array, np.ndarray):
                assert array.flags.writeable
                assert array.flags.c_contiguous
                array[...] = 0
        header.clear()
    # The first of each width, and one more for the header, is read whole.
    assert len(sizes) == 12 - 3 - 1


@pytest.mark.parametrize(
    "more",
    [
        {"seen": np.array([True, True, True])},
        {"domain": pa.array(["y", None, "longer"])},
        {"domain": pa.array(["x", "", "longer"])},
        {"none": np.zeros((5, 0))},
        {"mean": np.zeros((3, 2))},
        {"mean": np.zeros((2, 3), np.float32)},
    ],
    ids=["a truth", "a text", "a null", "an empty shape", "a shape", "a type"],
)
def test_what_is_no_number__is_read_anew(more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, other = used(monkeypatch), part(5, **more)
    for seed in range(3):
        read(part(seed))
    sizes.clear()
    assert_alike(read(other), read_anew(other))
    assert not sizes
    read(part(4))
    assert sizes


@given(
    values=st.lists(
        hnp.arrays(st.sampled_from([*files.DTYPES.values()]), (2, 3)), min_size=3, max_size=5
    )
)
def test_any_numbers__are_read_as_any_file(values: list[Any]) -> None:
    for one in values:
        blob = files.to_bytes(HEADER, {"some": one, "others": one[:, ::-1]})
        assert_alike(read(blob), read_anew(blob))


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "torn"])
def test_a_changed_byte__tells_the_same_as_in_any_file(
    sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        read(part(seed))
    whole, rng = part(7), np.random.default_rng(0)
    place = pa.ipc.open_file(whole).schema.metadata[b"sha256"]
    sizes, refused, known = used(monkeypatch), 0, files._layouts
    assert known
    for at in rng.permutation(len(whole))[:700].tolist():
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(8))
        blob = bytes(changed)
        if sealed:  # as an enemy would
            blob = blob.replace(place, files._digest(blob, place))
        files._layouts = known
        found = read(blob)
        assert_alike(found, read_anew(blob))
        refused += isinstance(found, str)
    assert refused > 100
    assert (len(sizes) > 5) is sealed  # numbers of which each is as good as another


def test_lists_that_do_not_begin_with_their_numbers(tmp_path: Path) -> None:
    # Arrow may write them so; `to_bytes` never does.
    for seed in range(4):
        blob = files.to_bytes(HEADER, {"some": np.arange(5, dtype=np.uint8) + seed})
        batch = pa.ipc.open_file(blob).get_batch(0)
        values = pa.array([7 + seed, *range(seed, seed + 5)], pa.uint8())
        moved = pa.LargeListArray.from_arrays(pa.array([1, 6], pa.int64()), values)
        path = forged(
            tmp_path / "part",
            blob,
            batch=pa.record_batch([moved], schema=batch.schema),
            options=pa.ipc.IpcWriteOptions(),
        )
        found = read(path.read_bytes())
        assert found[1]["some"].tolist() == [*range(seed, seed + 5)]
        assert_alike(found, read_anew(path.read_bytes()))
    assert files._layouts


@pytest.mark.parametrize("compressed", [True, False])
def test_a_layout__is_kept_where_it_is_of_use(
    compressed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "COMPRESSED_BYTES", 0 if compressed else 1 << 30)
    for seed in range(4):
        assert_alike(read(blob := part(seed)), read_anew(blob))
    assert bool(files._layouts) is not compressed
    # Much text is not held, whatever comes.
    forgotten_text = {"domain": pa.array(["x" * (1 << 17)])}
    files._layouts = ()
    for seed in range(4):
        assert_alike(read(blob := part(seed, **forgotten_text)), read_anew(blob))
    assert not files._layouts


def test_layouts__are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = used(monkeypatch)
    for n in range(3 * files.MOST_LAYOUTS):
        read(part(0, more=np.zeros(n)))
    assert len(files._layouts) == files.MOST_LAYOUTS
    assert not sizes
    read(part(1, more=np.ones(3 * files.MOST_LAYOUTS - 1)))
    assert len(sizes) == 1
