"""Tables of many blocks of rows: what goes over them without Python finds what Python finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.errors import DataError
from fastbayes.data import filesource, memory
from fastbayes.data.encode import Encoder
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.models.estimator import base
from fastbayes.scan import engine, row_blocks
from fastbayes.statistics.registry import REGISTRY
from fastbayes.statistics.value_counts import ValueCounts

ROWS = 64


def column(kind: str, n: int, rng: np.random.Generator, nulls: float) -> pa.Array:
    """Return a column of a type, with nulls."""
    mask = rng.random(n) < nulls
    size = int(rng.choice([1, 2, 5, 17, 40, 300]))
    codes = rng.integers(0, size, n)
    if kind == "bool":
        return pa.array(codes % 2 == 1, mask=mask)
    if kind == "text":
        return pa.array([f"v{code}" for code in codes], pa.string(), mask=mask)
    if kind == "int64":
        return pa.array(codes * 3 - 7, mask=mask)
    if kind == "number":
        return pa.array(codes * 0.5, mask=mask)
    if kind == "spread":
        return pa.array(codes * 10**12, mask=mask)
    indices = pa.array((codes % 127).astype(kind), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, [f"v{k}" for k in range(max(size, 127))])


KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "bool", "text", "number", "spread")


def table_of(n: int, seed: int, kinds: list[str], nulls: float, chunks: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.integers(0, n + 1, chunks - 1)).tolist()
    parts = []
    for first, last in zip([0, *bounds], [*bounds, n], strict=True):
        # Each chunk has a dictionary of its own.
        columns = {f"{k}{j}": column(k, last - first, rng, nulls) for j, k in enumerate(kinds)}
        columns["y"] = pa.array([f"c{v}" for v in rng.integers(0, 3, last - first)], pa.string())
        columns["w"] = pa.array(rng.integers(0, 3, last - first))
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def in_blocks(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    for module in (engine, row_blocks, base, filesource, memory):
        monkeypatch.setattr(module, "BLOCK_ROWS", ROWS)
    monkeypatch.setattr(base, "LEAST_ROWS", ROWS)


def codes_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numpy write codes, and compiled kernels do what comes after."""
    monkeypatch.setenv("FASTBAYES_KERNELS", "auto")
    monkeypatch.setattr(dispatch, "compiled", lambda cells, small=0: cells > 0)
    monkeypatch.setattr(dispatch, "cells_of_whole", lambda cells, additions: 0.0)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return over how many blocks each repeated call went."""
    if dispatch.interpreted():
        pytest.skip("without the compiler Python goes over the blocks")
    from fastbayes.kernels.compiled.reading import repeat

    blocks_of_calls: list[list[int]] = []
    run = repeat.run

    def counted(noted: Any, *how: Any) -> None:
        blocks_of_calls.append([part.times for part in noted])
        run(noted, *how)

    monkeypatch.setattr(repeat, "run", counted)
    in_blocks(monkeypatch, "always")
    return blocks_of_calls


@pytest.mark.compiled
@pytest.mark.parametrize("pairs", [False, True])
def test_many_blocks_are_counted_in_one_call(times: list[list[int]], pairs: bool) -> None:
    table = table_of(1000, 0, ["int8", "text", "bool"], 0.2, 1).drop_columns(["w"])
    fb.count(table, "y", threads=1, pairs=pairs)
    # The last rows fill a part of a block.
    assert times == [[15, 1]]


@pytest.mark.compiled
@pytest.mark.parametrize("target", ["x", "y"])
@pytest.mark.parametrize("row", [0, 63, 64, 500, 999])
def test_index_outside_its_dictionary__is_refused(
    monkeypatch: pytest.MonkeyPatch, row: int, target: str
) -> None:
    indices = np.zeros(1000, np.int8)
    indices[row] = 2
    x = pa.DictionaryArray.from_arrays(pa.array(indices), ["a", "b"], safe=False)
    in_blocks(monkeypatch, "always")
    with pytest.raises(DataError, match=r"column 'x' has dictionary indices outside"):
        fb.count(pa.table({"x": x, "y": ["p", "q"] * 500}), target)


@pytest.mark.parametrize("kernels", ["always", "never"])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("target", ["x", "y"])
def test_index_into_an_empty_dictionary__is_refused(
    monkeypatch: pytest.MonkeyPatch, kernels: str, pairs: bool, target: str
) -> None:
    none = pa.array([], pa.string())
    x = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), none, safe=False)
    in_blocks(monkeypatch, kernels)
    with pytest.raises(DataError, match=r"column 'x' has dictionary indices outside"):
        fb.count(pa.table({"x": x, "z": ["a"] * 1000, "y": ["p", "q"] * 500}), target, pairs=pairs)


@pytest.mark.compiled
@pytest.mark.parametrize("row", [0, 63, 64, 500, 999])
@pytest.mark.parametrize("kind", ["text", "int"])
def test_value_outside_a_declared_domain__is_named(
    monkeypatch: pytest.MonkeyPatch, row: int, kind: str
) -> None:
    usual, other = ("a", "z") if kind == "text" else (5, 9)
    values = [usual] * 1000
    values[row] = other
    in_blocks(monkeypatch, "always")
    with pytest.raises(DataError, match=rf"column 'x', row {row}: value {other!r} is outside"):
        fb.count(
            pa.table({"x": values, "y": ["p"] * 1000}), "y", domains={"x": values[row - 1 :][:1]}
        )


ANSWERS = ("predict_proba", "predict", "log_joint", "predict_log_proba", "decision_function")
MODELS = {
    "naive": fb.NaiveBayes(),
    "two classes": fb.NaiveBayes(class_prior="uniform"),
    "unsmoothed": fb.NaiveBayes(alpha=0),
    "tan": fb.TAN(),
    "spode": fb.SPODE(),
    "kdb": fb.KDB(k=2),
    "aode": fb.AODE(),
    "logistic": fb.LogisticRegression(),
}


@pytest.mark.compiled
@pytest.mark.parametrize("codes", ["compiled", "numpy"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("nulls", [0.0, 0.2])
def test_rows_of_many_blocks_are_scored_as_those_of_one(
    monkeypatch: pytest.MonkeyPatch, name: str, nulls: float, codes: str
) -> None:
    # Text and numbers that naive Bayes takes as they are; values of later rows are unseen.
    kinds = ["int8", "text", "bool", *(["number"] if name in ("naive", "logistic") else [])]
    table = table_of(1500, 3, kinds, nulls, 2).drop_columns(["w"])
    if name == "two classes":
        table = table.set_column(3, "y", pa.array(["p", "q"] * 750))
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    model = type(MODELS[name])(**MODELS[name].get_params()).fit(table.slice(0, 300), "y")
    if nulls:  # a column of nothing
        table = table.set_column(0, "int80", pa.nulls(len(table)))
    expected = {answer: getattr(model, answer)(table) for answer in ANSWERS}
    in_blocks(monkeypatch, "always")
    if codes == "numpy":
        codes_by_numpy(monkeypatch)
    for threads in (1, 2):
        model.set_params(threads=threads)
        for answer, of_one_block in expected.items():
            np.testing.assert_array_equal(getattr(model, answer)(table), of_one_block, answer)
    with np.errstate(divide="ignore"):
        logs = np.log(model.predict_proba(table))
    np.testing.assert_allclose(model.predict_log_proba(table), logs, atol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["naive", "unsmoothed", "tan", "spode", "logistic"])
def test_many_blocks_are_scored_in_one_call(times: list[list[int]], name: str) -> None:
    table = table_of(1500, 3, ["text", "bool", "int64"], 0.0, 1).drop_columns(["w"])
    model = type(MODELS[name])(**MODELS[name].get_params())
    model.set_params(categorical=["int642"], threads=1).fit(table, "y")
    times.clear()
    model.predict_proba(table)
    # The last rows fill a part of a block.
    assert times == [[23, 1]]


@pytest.mark.compiled
@pytest.mark.parametrize("pairs", [False, True])
def test_files_of_many_blocks_are_counted_as_tables(
    times: list[list[int]], tmp_path: Path, pairs: bool
) -> None:
    table = table_of(1500, 5, ["int8", "text", "bool", "int32"], 0.2, 3).drop_columns(["w"])
    for name, group in (("a", 700), ("b", 64), ("c", 1500)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=group)
    expected = fb.count(pa.concat_tables([table] * 3), "y", pairs=pairs)
    times.clear()
    assert fb.count(tmp_path, "y", pairs=pairs) == expected
    assert max(max(blocks) for blocks in times) >= 700 // ROWS
    model = fb.NaiveBayes().fit_statistics(fb.count(table, "y"))
    in_memory = model.predict_proba(pa.concat_tables([table] * 3))
    np.testing.assert_array_equal(model.predict_proba(tmp_path), in_memory)


REPEATED = [name for name, kind in REGISTRY.items() if kind.repeatable]


@pytest.mark.compiled
@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("nulls", [0.0, 0.2])
def test_what_is_repeated_has_the_bits_of_block_by_block(
    times: list[list[int]], monkeypatch: pytest.MonkeyPatch, name: str, nulls: float
) -> None:
    table = table_of(1500, 9, ["int8", "text", "bool", "int16"], nulls, 1).drop_columns(["w"])
    source = open_source(table)
    options = {"families": {"families": ((0, 1), (2,), (1, 2, 3))}}.get(name, {})

    def counted() -> dict[str, bytes]:
        encoder = Encoder.learning(source.schema, "y")
        stats = engine.scan(source, encoder, {"values": {}, name: options}, threads=1)
        return {key: array.tobytes() for key, array in stats.parts[name].arrays().items()}

    found = counted()
    assert times == [[23, 1]]
    monkeypatch.setattr(REGISTRY[name], "repeatable", False)
    assert counted() == found
    assert times == [[23, 1]]


@pytest.mark.compiled
@pytest.mark.parametrize("kernels", ["always", "never"])
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_of_a_table_are_those_of_its_stretches(
    monkeypatch: pytest.MonkeyPatch, kernels: str, threads: int
) -> None:
    in_blocks(monkeypatch, kernels)
    rng = np.random.default_rng(4)
    table = table_of(1500, 4, ["int8", "number"], 0.1, 3).drop_columns(["w"])
    labels = pa.array(rng.choice(["p", "q"], 1500), mask=rng.random(1500) < 0.2)
    table = table.set_column(2, "y", labels)
    weights = rng.random(1500) * (rng.random(1500) < 0.8)
    weights[3 * ROWS : 6 * ROWS] = 0  # a stretch without rows
    table = table.append_column("w", pa.array(weights))
    options: dict[str, Any] = {"sample_weight": "w", "scatter": True}
    found = fb.count(table, "y", threads=threads, **options)
    # A stream is cut into segments of as many rows as a stretch, and these into blocks.
    expected = fb.count(iter(table.to_batches()), "y", threads=1, **options)
    for name, part in found.parts.items():
        for key, array in part.arrays().items():
            assert array.tobytes() == expected.parts[name].arrays()[key].tobytes(), (name, key)


@pytest.mark.compiled
@pytest.mark.parametrize(
    "wanted",
    [
        {"pairs": {}, "triples": {}},
        {"moments": {}, "scatter": {}},
        {"cells": {}},
        {"families": {"families": ((0, 1), (2,))}},
        {"sketches": {}},
    ],
    ids=lambda wanted: "+".join(wanted),
)
@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("codes", ["compiled", "numpy"])
def test_every_statistic_of_many_blocks_is_that_of_one(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], numeric: bool, codes: str
) -> None:
    kinds = ["int8", "text", "bool", *(["number"] if numeric else [])]
    table = table_of(1500, 7, kinds, 0.1, 2).drop_columns(["w"])
    source = open_source(table)

    def counted() -> Any:
        encoder = Encoder.learning(source.schema, "y")
        return engine.scan(source, encoder, {"values": {}, **wanted}, threads=2)

    expected = counted()
    in_blocks(monkeypatch, "always")
    if codes == "numpy":
        codes_by_numpy(monkeypatch)
    assert counted().allclose(expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_a_small_job__every_row_counts(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """By its size numpy counts it, of whose work no note can be taken."""
    in_blocks(monkeypatch, "auto")
    n = 10 * ROWS + 7
    table = table_of(n, 0, ["int8", "bool"], 0.1, 1).drop(["w"])
    found = fb.count(table, "y", pairs=True, threads=threads)
    assert found.n_rows == n == found.values.class_counts.sum()
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    assert found == fb.count(table, "y", pairs=True, threads=threads)


def test_numpy_kernels__are_never_noted_down() -> None:
    with dispatch.recording([]), pytest.raises(dispatch.NotRepeatableError):
        dispatch.load("counting.count", 0.0)


def indexed_table(n: int, seed: int, nulls: float, classes: int, chunks: int) -> pa.Table:
    """Return a table of dictionaries alone, those of a chunk its own."""
    rng = np.random.default_rng(seed)
    kinds = [("int8", 2), ("int8", 9), ("uint8", 20), ("int16", 260), ("int32", 5), ("int64", 1)]
    parts = []
    for rows in np.diff([0, *np.sort(rng.integers(0, n, chunks - 1)), n]).tolist():
        columns = {}
        for j, (kind, size) in enumerate(kinds):
            mask = rng.random(rows) < nulls * (j % 2)
            indices = pa.array(rng.integers(0, size, rows).astype(kind), mask=mask)
            entries = [f"v{k}" for k in rng.permutation(size)]
            columns[f"x{j}"] = pa.DictionaryArray.from_arrays(indices, entries)
        none = pa.nulls(rows, pa.int8())
        columns["none"] = pa.DictionaryArray.from_arrays(none, pa.array([], pa.string()))
        labels = pa.array(rng.integers(0, classes, rows).astype(np.int16))
        columns["y"] = pa.DictionaryArray.from_arrays(labels, [f"c{k}" for k in range(classes)])
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


@pytest.fixture
def by_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let other threads take all blocks, in memory that holds anything; return how many there were.

    The first that comes takes them all.
    """
    if dispatch.interpreted():
        pytest.skip("without the compiler Python goes over the blocks")
    from fastbayes.kernels.compiled.reading import repeat

    found: list[int] = []

    def others_first(own: Any, others: Any, threads: int) -> list[Any]:
        held = np.full((1 << 23) + repeat.LINE, 0xAB, np.uint8)
        repeat._kept[:] = [held[-held.ctypes.data % repeat.LINE :]]
        made = [others() for _ in range(threads - 1)]
        own()
        found.append(sum(memory is not None for memory in made))
        return made

    monkeypatch.setattr(repeat, "together", others_first)
    in_blocks(monkeypatch, "always")
    monkeypatch.setattr(row_blocks, "HELP_CELLS", 1)
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("classes", [2, 3, 70])
@pytest.mark.parametrize(("nulls", "chunks"), [(0.0, 1), (0.2, 4)])
def test_a_copy_of_a_program_counts_as_the_program(
    by_copies: list[int], name: str, classes: int, nulls: float, chunks: int
) -> None:
    source = open_source(indexed_table(1500, 2, nulls, classes, chunks))
    options = {"families": {"families": ((0, 1), (2,), (1, 2, 3))}}.get(name, {})

    def counted(threads: int) -> dict[str, bytes]:
        encoder = Encoder.learning(source.schema, "y")
        stats = engine.scan(source, encoder, {"values": {}, name: options}, threads=threads)
        return {key: array.tobytes() for key, array in stats.parts[name].arrays().items()}

    assert counted(4) == counted(1)
    assert by_copies == [1]


@pytest.mark.compiled
@pytest.mark.parametrize("pairs", [False, True])
def test_threads_that_take_the_blocks_of_a_table__count_each_once(
    monkeypatch: pytest.MonkeyPatch, pairs: bool
) -> None:
    in_blocks(monkeypatch, "always")
    monkeypatch.setattr(row_blocks, "HELP_CELLS", 1)
    monkeypatch.setattr(row_blocks, "MOST_CELLS", 20 * ROWS * 8)  # several batches of blocks
    table = indexed_table(5000, 6, 0.1, 3, 2)
    for options in ({}, {"null_values": ["v1", "c0"]}):
        expected = fb.count(table, "y", pairs=pairs, threads=1, **options)
        for _ in range(20):
            assert fb.count(table, "y", pairs=pairs, threads=5, **options) == expected


@pytest.mark.compiled
def test_index_outside_its_dictionary__is_found_by_any_thread(by_copies: list[int]) -> None:
    table = indexed_table(1500, 2, 0.0, 3, 1)
    indices = np.zeros(1500, np.int8)
    indices[700] = 2
    x = pa.DictionaryArray.from_arrays(pa.array(indices), ["a", "b"], safe=False)
    with pytest.raises(DataError, match=r"column 'x0' has dictionary indices outside"):
        fb.count(table.set_column(0, "x0", x), "y", threads=3)
    assert by_copies == [1]


@pytest.mark.compiled
def test_what_python_does_with_rows_of_dictionaries__is_done_by_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_blocks(monkeypatch, "always")
    monkeypatch.setattr(row_blocks, "HELP_CELLS", 1)
    monkeypatch.setattr(row_blocks, "MOST_CELLS", 20 * ROWS * 8)
    table = indexed_table(5000, 6, 0.1, 3, 2)
    expected = fb.count(table, "y", threads=1)
    add, asked = ValueCounts._add, []

    def in_python(self: ValueCounts, batch: Any, classes: Any, weight: Any) -> None:
        asked.append(batch.n_rows)
        if len(asked) > 3:  # some blocks have been counted by kernels alone
            dispatch.in_python()
        add(self, batch, classes, weight)

    monkeypatch.setattr(ValueCounts, "_add", in_python)
    assert fb.count(table, "y", threads=3) == expected


@pytest.mark.compiled
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize("nulls", [0.0, 0.2])
def test_a_copy_of_a_program_scores_as_the_program(
    by_copies: list[int],
    caplog: pytest.LogCaptureFixture,
    name: str,
    classes: int,
    nulls: float,
) -> None:
    table = indexed_table(1500, 8, nulls, classes, 2)
    # Values of later rows are unseen.
    model = type(MODELS[name])(**MODELS[name].get_params()).fit(table.slice(0, 200), "y")

    def answers(threads: int) -> list[Any]:
        model.set_params(threads=threads)
        caplog.clear()
        with caplog.at_level("INFO"):
            found = [getattr(model, answer)(table).tobytes() for answer in ANSWERS]
        return [*found, caplog.messages]

    expected = answers(1)
    by_copies.clear()
    assert answers(4) == expected
    assert set(by_copies) <= {1}
    if name in ("naive", "two classes", "unsmoothed", "logistic"):
        assert by_copies


@pytest.mark.compiled
def test_memory_of_threads_is_kept_within_bounds_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads there were."""
    from fastbayes.kernels.compiled.reading import repeat

    kept: list[np.ndarray] = []
    monkeypatch.setattr(repeat, "_kept", kept)
    monkeypatch.setattr(repeat, "KEPT_BYTES", 1000)
    repeat._keep([np.empty(size, np.uint8) for size in (400, 700, 500, 400)])
    assert [len(memory) for memory in kept] == [400, 500]
    repeat._keep([np.empty(400, np.uint8)])
    assert sum(map(len, kept)) <= 1000
