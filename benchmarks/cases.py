"""The cases measured in one process: those of ready codes and numbers, and a list of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks import (
    data,
    gaussian_cases,
    gibbs_cases,
    joint_cases,
    linear_cases,
    logistic_cases,
    logistic_fit_cases,
    merge_cases,
    network_cases,
    pair_cases,
    quadratic_cases,
    rivals,
    search_cases,
    source_cases,
)
from benchmarks.case import FLOOR, OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes import generate
from fastbayes.core.batch import BLOCK_ROWS, Codes
from fastbayes.core.threads import default_threads, in_order
from fastbayes.data.encode import Encoder
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.scan import row_blocks

Floats = NDArray[np.float64]


# -- counting ready codes ----------------------------------------------------------------------


def count_codes(codes: data.Coded) -> Callable[[], NDArray[np.int64]]:
    """Count blocks on all threads, each with the set of counts that is idle, as a scan does.

    A task is a few blocks: one takes 40 µs, and handing a task over about as long.
    """
    count = dispatch.load("counting.count")
    sizes, k = codes.sizes, codes.n_classes
    slots = np.concatenate([[0], np.cumsum(sizes)])
    threads = default_threads()

    def run() -> NDArray[np.int64]:
        idle: list[NDArray[np.int64]] = []

        def some(blocks: list[tuple[data.Bytes, data.Bytes]]) -> None:
            try:
                counts = idle.pop()
            except IndexError:
                counts = np.zeros((slots[-1], k), np.int64)
            for matrix, classes in blocks:
                count.add_counts(matrix, sizes, slots[:-1], classes, None, counts)
            idle.append(counts)

        tasks = [codes.blocks[i : i + 8] for i in range(0, len(codes.blocks), 8)]
        for _ in in_order(some, tasks, threads):
            pass
        return sum(idle, np.zeros((slots[-1], k), np.int64))

    return run


def _counting(sizes: list[int], n_classes: int) -> Callable[[int, Path], Work]:
    def build(rows: int, _: Path) -> Work:
        codes = data.coded(rows, sizes, n_classes)
        few = min(rows, 300_000)
        sides = {
            OURS: Side(count_codes(codes), codes.cells),
            FLOOR: Side(rivals.memory_read(codes.memory), codes.cells),
            "numpy.bincount": Side(rivals.bincount(codes), codes.cells),
            "numpy.bincount of pairs": Side(rivals.bincount_pairs(codes), codes.cells),
            "scikit-learn": Side(rivals.sklearn_fit(codes, few), float(few * len(sizes))),
        }

        def check(results: dict[str, Any]) -> None:
            ours = results[OURS]
            for name in ("numpy.bincount", "numpy.bincount of pairs"):
                np.testing.assert_array_equal(ours, np.concatenate(results[name]))
            if few == rows:
                np.testing.assert_array_equal(ours, np.concatenate(results["scikit-learn"]))

        return Work(sides, check)

    return build


def _counting_claims(floor: float) -> tuple[Claim, ...]:
    return (
        Claim(FLOOR, most=floor),
        Claim("numpy.bincount", least=6),
        Claim("numpy.bincount of pairs"),
        Claim("scikit-learn", least=100),
    )


# -- scoring -----------------------------------------------------------------------------------


def encoded(model: fb.NaiveBayes, table: pa.Table) -> list[list[Codes]]:
    """Return the codes of a table's blocks; copies, for an encoder writes where it wrote before."""
    source = open_source(table)
    encoder = Encoder.applying_to(model.schema_, source.schema)
    return [
        [group._replace(codes=group.codes.copy()) for group in block.batch.codes]
        for segment in source.segments(BLOCK_ROWS)
        for _, block in row_blocks.encoded_blocks(segment, encoder)
    ]


def _scoring(preset: str) -> Callable[[int, Path], Work]:
    def build(rows: int, _: Path) -> Work:
        table = generate.table(preset, rows)
        model = fb.NaiveBayes(class_prior="empirical").fit(table, "class")
        features = table.drop_columns(["class"])
        batches = encoded(model, features)
        blocks = [groups[0].codes for groups in batches]
        matrix = np.concatenate(blocks, axis=1).astype(np.int64).T
        classes = np.searchsorted(model.classes_, table["class"].to_numpy())
        k, d = len(model.classes_), matrix.shape[1]
        counts = [model.statistics_.values.of(j) + 1.0 for j in range(d)]
        tables = [np.log(count / count.sum(axis=0)) for count in counts]
        offsets = model._offsets
        scorer = dispatch.load("scoring.log_joint").NaiveScorer(
            model.class_log_prior_, model._tables, offsets
        )
        threads = default_threads()

        def codes() -> Floats:
            out = np.empty((rows, k))

            def one(block: int) -> None:
                piece = out[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
                scorer.posterior(batches[block], (), piece)

            for _ in in_order(one, range(len(batches)), threads):
                pass
            return out

        cells = float(rows * d)
        runs = {
            OURS: codes,
            "numpy": rivals.numpy_posterior(model.class_log_prior_, tables, blocks),
            "numpy, tuned": rivals.tuned_numpy_posterior(model.class_log_prior_, tables, blocks),
            "scikit-learn": rivals.sklearn_posterior(matrix, classes, matrix),
        }

        def check(results: dict[str, Any]) -> None:
            for name in runs:
                np.testing.assert_allclose(results[OURS], results[name], rtol=1e-9, atol=1e-12)

        return Work({name: Side(run, cells) for name, run in runs.items()}, check)

    return build


# -- moments -----------------------------------------------------------------------------------


def _moments(n_classes: int) -> Callable[[int, Path], Work]:
    def build(rows: int, _: Path) -> Work:
        columns = 8
        blocks = data.numbers(rows, columns, n_classes)
        moments = dispatch.load("counting.moments")
        values = float(rows * columns)

        def ours() -> list[list[Any]]:
            return [
                [moments.columns_moments([x], classes, n_classes)[:, 0] for x in block]
                for block, classes in blocks
            ]

        sides = {
            OURS: Side(ours, values),
            "numpy": Side(rivals.numpy_moments(blocks, n_classes), values),
            "scikit-learn": Side(rivals.sklearn_gaussian(blocks), values),
        }

        def check(results: dict[str, Any]) -> None:
            for ours, numpys in zip(results[OURS], results["numpy"], strict=True):
                for one, other in zip(ours, numpys, strict=True):
                    mean, scatter = np.array(other).T
                    np.testing.assert_allclose(one[1], mean, rtol=1e-12)
                    np.testing.assert_allclose(one[-1], scatter, rtol=1e-9)

        return Work(sides, check)

    return build


CASES = {
    case.name: case
    for case in (
        Case(
            "count-few",
            "count ready codes, {rows} × 30 of 2–4 values, 2 classes",
            rows_of(10_000_000, 1_000_000),
            _counting(data.few_values(), 2),
            _counting_claims(1.5),
        ),
        Case(
            "count-mixed",
            "count ready codes, {rows} × 30 of 2–12 values, 4 classes",
            rows_of(10_000_000, 1_000_000),
            _counting(data.mixed_values(), 4),
            _counting_claims(4),
        ),
        Case(
            "moments-2",
            "Gaussian moments of {rows} × 8 doubles, 2 classes, one thread",
            rows_of(2_000_000, 500_000),
            _moments(2),
            (Claim(None, most=1.5), Claim("numpy"), Claim("scikit-learn")),
            unit="value",
            threads="one",
        ),
        Case(
            "moments-10",
            "Gaussian moments of {rows} × 8 doubles, 10 classes, one thread",
            rows_of(2_000_000, 500_000),
            _moments(10),
            (Claim(None, most=1.5), Claim("numpy"), Claim("scikit-learn")),
            unit="value",
            threads="one",
        ),
        Case(
            "predict-codes",
            "posteriors of ready codes, {rows} × 30, 4 classes",
            rows_of(1_000_000, 300_000),
            _scoring("cat"),
            (
                Claim("scikit-learn", least=30),
                Claim("numpy", least=15),
                Claim("numpy, tuned"),
            ),
        ),
        *source_cases.CASES,
        *merge_cases.CASES,
        *pair_cases.CASES,
        *quadratic_cases.CASES,
        *gaussian_cases.CASES,
        *joint_cases.CASES,
        *logistic_cases.CASES,
        *logistic_fit_cases.CASES,
        *linear_cases.CASES,
        *search_cases.CASES,
        *gibbs_cases.CASES,
        *network_cases.CASES,
    )
}
