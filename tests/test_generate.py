from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from fastbayes.core import files
from fastbayes.core.errors import DataError
from fastbayes.generate import generate, presets, table
from fastbayes.generate.sampler import CHUNK, PRESETS, Categorical, Identifier, Number, Sampler


def read(folder: Path) -> pa.Table:
    """Return the rows of a directory of Parquet files, in the order of the files' names."""
    return pa.concat_tables([pq.read_table(f) for f in sorted(folder.iterdir())])


def plain(t: pa.Table) -> pa.Table:
    """Return the table as one chunk of plain types: how the rows were cut no longer shows."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in t.schema]
    fields = [pa.field(n, kind) for n, kind in zip(t.column_names, types, strict=True)]
    return t.cast(pa.schema(fields)).combine_chunks()


# Rows


@pytest.mark.parametrize("preset", presets())
def test_table__schema_is_the_preset(preset: str) -> None:
    t, declared = table(preset, 1000), PRESETS[preset]
    assert t.column_names == [*(c.name for c in declared.columns), declared.target.name]
    for column, field in zip((*declared.columns, declared.target), t.schema, strict=True):
        seen = set(pc.unique(t[column.name]).drop_null().to_pylist())
        if isinstance(column, Categorical):
            assert seen <= set(column.values)
            assert {type(v) for v in seen} == {type(column.values[0])}
            assert pa.types.is_dictionary(field.type) == (type(column.values[0]) is str)
        elif isinstance(column, Number):
            assert field.type == (pa.int32() if column.integer else pa.float64())
            assert all(column.low <= v <= column.high for v in seen)
        else:
            assert field.type == pa.string()
            assert len({len(v) for v in seen}) == 1


@pytest.mark.parametrize("preset", presets())
def test_presets__every_parent_comes_earlier(preset: str) -> None:
    earlier: dict[str, Any] = {}
    for column in PRESETS[preset].columns:
        if column.parent is not None:
            kinds = (Categorical, Number) if isinstance(column, Number) else (Categorical,)
            assert isinstance(earlier[column.parent], kinds)
        if isinstance(column, Categorical):
            assert 2 <= len(column.values) <= 128
        assert column.name not in earlier
        earlier[column.name] = column
    assert PRESETS[preset].target.parent is None
    assert presets()[preset] == PRESETS[preset].about


@pytest.mark.parametrize(
    ("preset", "kind", "sizes", "n_classes"),
    [
        ("cat", Categorical, (30, 2, 12), 4),
        ("binary", Categorical, (50, 2, 4), 2),
        ("long", Categorical, (20, 2, 8), 2),
        ("wide", Categorical, (300, 2, 5), 2),
        ("gauss", Number, (30, 0, 0), 3),
        ("high", Identifier, (4, 1e3, 1e6), 2),
    ],
)
def test_presets__say_what_they_are(preset: str, kind: type, sizes: Any, n_classes: int) -> None:
    columns = [c for c in PRESETS[preset].columns if isinstance(c, kind)]
    values = [len(getattr(c, "values", ())) or getattr(c, "distinct", 0) for c in columns]
    assert (len(columns), min(values), max(values)) == sizes
    assert len(PRESETS[preset].target.values) == n_classes


@pytest.mark.parametrize("preset", ["flights", "survey", "high"])
def test_table__same_seed_same_rows_and_other_seed_others(preset: str) -> None:
    assert table(preset, 500, 7) == table(preset, 500, 7)
    assert table(preset, 500, 7) != table(preset, 500, 8)


@pytest.mark.parametrize("preset", presets())
def test_table__longer_begins_with_shorter(preset: str) -> None:
    assert plain(table(preset, 300)) == plain(table(preset, 1000).slice(0, 300))


def test_table__chunks_differ() -> None:
    t = table("long", 2 * CHUNK)
    assert t.slice(0, CHUNK) != t.slice(CHUNK)


def test_table__empty() -> None:
    t = table("flights", 0)
    assert t.num_rows == 0
    assert t.schema == table("flights", 1).schema


# Probabilities


@pytest.mark.parametrize("preset", ["flights", "cat", "skewed", "text-counts"])
def test_table__frequencies_are_the_probabilities(preset: str) -> None:
    n, declared = 3 * CHUNK, PRESETS[preset]
    t, sampler = table(preset, n, 5, missing=0), Sampler(preset, 5, 0)
    drawn = {
        c.name: pc.index_in(t[c.name].cast(pa.array(c.values).type), pa.array(c.values)).to_numpy()
        for c in (*declared.columns, declared.target)
        if isinstance(c, Categorical)
    }
    y = drawn[declared.target.name]
    checked = 0
    for column in (*declared.columns, declared.target):
        if not isinstance(column, Categorical):
            continue
        s = sampler.target if column is declared.target else sampler.columns[column.name]
        cell = np.zeros(n, int) if column is declared.target else y
        if column.parent is not None:
            cell = cell * sampler.columns[column.parent].size + drawn[column.parent]
        expected = s.grains / s.grains.sum(axis=1, keepdims=True)
        counts = np.zeros(expected.shape)
        np.add.at(counts, (cell, drawn[column.name]), 1)
        rows = counts.sum(axis=1, keepdims=True)
        # Binomial deviations: 6 standard deviations and one count for the rare cells.
        bound = 6 * np.sqrt(rows * expected * (1 - expected)) + 1
        assert (np.abs(counts - rows * expected) <= bound + (expected > 0)).all(), column.name
        assert (counts[expected == 0] == 0).all()
        checked += 1
    assert checked > 5


def test_table__modal_values_of_skewed() -> None:
    t = table("skewed", CHUNK)
    shares = [pc.sum(pc.equal(t[c.name], c.values[0])).as_py() / CHUNK
              for c in PRESETS["skewed"].columns]  # fmt: skip
    assert np.mean(shares) == pytest.approx(0.97, abs=0.01)
    assert min(shares) > 0.9


def test_table__identifiers_are_many_and_skewed() -> None:
    t = table("high", 4 * CHUNK)
    distinct = [pc.count_distinct(t[f"id{e}"]).as_py() for e in (3, 4, 5, 6)]
    assert distinct[:2] == [10**3, 10**4]
    assert 60_000 < distinct[2] <= 10**5
    assert 100_000 < distinct[3] <= 4 * CHUNK
    counts = pc.value_counts(t["id4"]).field("counts").to_numpy()
    assert counts.max() > 20 * np.median(counts)


def test_table__numbers_correlate_with_their_parent_and_class() -> None:
    t, s = table("gauss", CHUNK, 1), Sampler("gauss", 1, None)
    y = t["class"].combine_chunks().indices.to_numpy()
    x = np.stack([t[f"u{i:02d}"].to_numpy() for i in range(30)])
    for i in range(1, 30):
        child, parent = s.columns[f"u{i:02d}"], s.columns[f"u{i - 1:02d}"]
        for c in range(3):
            z = (x[i, y == c] - child.column.mean) / child.column.sd
            above = (x[i - 1, y == c] - parent.column.mean) / parent.column.sd
            slope = np.cov(z, above)[0, 1] / above.var()
            assert slope == pytest.approx(child.slope[c], abs=0.05)
    first = s.columns["u00"]
    means = [(x[0, y == c].mean() - first.column.mean) / first.column.sd for c in range(3)]
    np.testing.assert_allclose(means, first.shift, atol=0.05)


# Missing values


def test_table__missing_rates_are_the_presets() -> None:
    t = table("survey", 2 * CHUNK)
    for column in PRESETS["survey"].columns:
        assert t[column.name].null_count / t.num_rows == pytest.approx(column.missing, abs=0.005)
    assert t["satisfaction"].null_count == 0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("preset", ["flights", "high"])
def test_table__missing_overrides_and_changes_no_other_cell(preset: str, share: float) -> None:
    t, whole = table(preset, 20_000, 3, missing=share), table(preset, 20_000, 3, missing=0)
    target = PRESETS[preset].target.name
    assert t[target] == whole[target]
    for name in t.column_names[:-1]:
        assert whole[name].null_count == 0
        assert t[name].null_count / t.num_rows == pytest.approx(share, abs=0.02)
        known = pc.is_valid(t[name])
        assert t[name].filter(known).to_pylist() == whole[name].filter(known).to_pylist()


# Files


@pytest.mark.parametrize(
    ("files", "row_group_rows", "threads"),
    [(1, 4 * CHUNK, 1), (3, 10_000, 2), (7, CHUNK, 3), (2, 1_000_000, None)],
)
def test_generate__rows_do_not_depend_on_how_they_are_cut(
    tmp_path: Path, files: int, row_group_rows: int, threads: int | None
) -> None:
    rows = 2 * CHUNK + 4321
    summary = generate("flights", rows, tmp_path / "d", seed=2, files=files, threads=threads,
                       row_group_rows=row_group_rows)  # fmt: skip
    assert plain(read(tmp_path / "d")) == plain(table("flights", rows, 2))
    parts = [pq.ParquetFile(f) for f in sorted((tmp_path / "d").iterdir())]
    lengths = [p.metadata.num_rows for p in parts]
    assert len(parts) == summary.files == files
    assert max(lengths) - min(lengths) <= 1
    for p in parts:
        groups = [p.metadata.row_group(i).num_rows for i in range(p.num_row_groups)]
        assert groups[:-1] == [row_group_rows] * (len(groups) - 1)
    assert (summary.rows, summary.columns, summary.target) == (rows, 15, "delayed")
    assert summary.bytes == sum(f.stat().st_size for f in (tmp_path / "d").iterdir())


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_generate__few_rows(tmp_path: Path, rows: int) -> None:
    generate("survey", rows, tmp_path / "d", files=3)
    got = read(tmp_path / "d")
    assert plain(got) == plain(table("survey", rows))
    assert len(list((tmp_path / "d").iterdir())) == 3


@pytest.mark.parametrize("preset", ["survey", "flights", "high"])
def test_generate__formats_hold_the_same_rows(tmp_path: Path, preset: str) -> None:
    expected = plain(table(preset, 3000))
    for format in ("ipc", "csv"):
        generate(preset, 3000, tmp_path / format, format=format, files=2, row_group_rows=1000)
    arrow = [pa.ipc.open_file(f).read_all() for f in sorted((tmp_path / "ipc").iterdir())]
    assert plain(pa.concat_tables(arrow)) == expected
    options = pyarrow.csv.ConvertOptions(
        column_types=expected.schema, null_values=[""], strings_can_be_null=True
    )
    text = [
        pyarrow.csv.read_csv(f, convert_options=options)
        for f in sorted((tmp_path / "csv").iterdir())
    ]
    assert plain(pa.concat_tables(text)) == expected


def test_generate__parquet_text_is_dictionary_encoded(tmp_path: Path) -> None:
    generate("cat", 1000, tmp_path / "d")
    file = pq.ParquetFile(tmp_path / "d" / "part-00000.parquet")
    for i in range(31):
        encodings = file.metadata.row_group(0).column(i).encodings
        assert "RLE_DICTIONARY" in encodings
        assert file.schema_arrow.field(i).type == pa.string()


def test_generate__progress_counts_rows(tmp_path: Path) -> None:
    seen: list[int] = []
    generate("flights", 25_000, tmp_path / "d", row_group_rows=10_000, progress=seen.append)
    assert seen == [10_000, 10_000, 5_000]


def test_generate__memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    def peak(chunks: int) -> float:
        arrow: list[int] = []
        tracemalloc.start()
        generate("gauss", chunks * CHUNK, tmp_path / str(chunks), threads=1, row_group_rows=CHUNK,
                 files=1, progress=lambda _: arrow.append(pa.total_allocated_bytes()))  # fmt: skip
        numpy = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return max(arrow) + numpy

    cells = CHUNK * 31 * 8
    few, many = peak(2), peak(8)
    assert many < few + 0.5 * cells
    assert many > cells  # the figure sees the chunk itself


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "nope"}, "preset='nope': use one of 'flights', 'survey'"),
        ({"rows": -1}, "rows=-1"),
        ({"files": 0}, "files=0"),
        ({"row_group_rows": 0}, "row_group_rows=0"),
        ({"missing": 1.5}, "missing=1.5"),
        ({"missing": float("nan")}, "missing=nan"),
        ({"format": "xls"}, "format='xls': use one of 'parquet', 'ipc', 'csv'"),
        ({"threads": 0}, "threads=0"),
        ({"seed": -1}, "non-negative"),
    ],
)
def test_generate__refuses_a_bad_argument(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    call: dict[str, Any] = {"preset": "cat", "rows": 10, **arguments}
    with pytest.raises(ValueError, match=message):
        generate(path=tmp_path / "d", **call)
    assert list(tmp_path.iterdir()) == []


def test_generate__refuses_an_existing_target_without_force(tmp_path: Path) -> None:
    generate("long", 100, tmp_path / "d")
    before = read(tmp_path / "d")
    with pytest.raises(DataError, match=r"already exists.*force"):
        generate("long", 200, tmp_path / "d")
    assert read(tmp_path / "d") == before
    generate("long", 200, tmp_path / "d", force=True, files=2)
    assert read(tmp_path / "d").num_rows == 200
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def a_stranger(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def a_link(path: Path) -> None:
    path.with_name("real").mkdir()
    path.symlink_to(path.with_name("real"))


@pytest.mark.parametrize("make", [a_stranger, a_link, lambda path: path.write_text("text")])
def test_generate__force_replaces_nothing_but_generated_files(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "d")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="choose another path"):
        generate("long", 10, tmp_path / "d", force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_generate__names_the_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: no such directory"):
        generate("long", 10, tmp_path / "absent" / "d")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left on device")])
@pytest.mark.parametrize("existing", [False, True])
def test_generate__leaves_nothing_half_written(
    tmp_path: Path, error: BaseException | type[BaseException], existing: bool
) -> None:
    if existing:
        generate("long", 100, tmp_path / "d")

    calls: list[int] = []

    def stop(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 2:
            raise error

    with pytest.raises((KeyboardInterrupt, OSError)):
        generate("long", 90_000, tmp_path / "d", row_group_rows=10_000, force=True, progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == (["d"] if existing else [])
    if existing:
        assert read(tmp_path / "d").num_rows == 100


def test_generate__puts_the_old_table_back_if_the_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate("long", 100, tmp_path / "d")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".fastbayes-"):
            raise OSError("no rename today")
        return rename(self, target)

    monkeypatch.setattr(files.ctypes, "CDLL", lambda _: object())  # has no renameat2
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="today"):
        generate("long", 200, tmp_path / "d", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["d"]
    assert read(tmp_path / "d").num_rows == 100
