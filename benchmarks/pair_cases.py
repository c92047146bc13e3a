"""The cases of models that see pairs of columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks import data, pair_rivals, rivals
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.batch import BLOCK_ROWS, Codes
from fastbayes.core.threads import default_threads, in_order
from fastbayes.data.encode import Encoder
from fastbayes.data.source import open_source
from fastbayes.kernels import dispatch
from fastbayes.scan import row_blocks
from fastbayes.statistics.pair_counts import all_pairs

BLAS, BINCOUNT = "one-hot BLAS by hand", "numpy.bincount by hand"
Floats = NDArray[np.float64]
Build = Callable[[int, Path], Work]


def count_pairs(codes: data.Coded, threads: int | None = None) -> Callable[[], NDArray[np.int64]]:
    """Count the pairs of blocks, each with the set of counts that is idle, as a scan does."""
    count = dispatch.load("counting.pairs")
    k = codes.n_classes
    first, second = all_pairs(len(codes.sizes))
    cells = codes.sizes[first] * codes.sizes[second] * k
    starts = np.cumsum(cells) - cells

    def run() -> NDArray[np.int64]:
        idle: list[NDArray[np.int64]] = []

        def one(block: tuple[data.Bytes, data.Bytes]) -> None:
            try:
                counts = idle.pop()
            except IndexError:
                counts = np.zeros(int(cells.sum()), np.int64)
            matrix, classes = block
            count.add_pair_counts(
                matrix, codes.sizes, classes, None, k, first, second, starts, counts
            )
            idle.append(counts)

        for _ in in_order(one, codes.blocks, threads or default_threads()):
            pass
        return sum(idle, np.zeros(int(cells.sum()), np.int64))

    return run


def _alone(values: int, n_classes: int = 2) -> Build:
    """Count pairs of columns of so many values on one thread."""

    def build(rows: int, _: Path) -> Work:
        codes = data.coded(rows, [values] * 30, n_classes)
        ours = Side(count_pairs(codes, 1), float(rows * 435))

        def check(results: dict[str, Any]) -> None:
            total = pair_rivals.blas_pairs(codes)()
            np.testing.assert_array_equal(results[OURS], pair_rivals.as_blocks(total, codes.sizes))

        return Work({OURS: ours}, check)

    return build


def _beside(values: list[int], n_classes: int) -> Build:
    """Count pairs of ready codes on all threads, beside numpy by hand."""

    def build(rows: int, _: Path) -> Work:
        codes = data.coded(rows, values, n_classes)
        units = float(rows * len(values) * (len(values) - 1) // 2)
        runs = {
            OURS: count_pairs(codes),
            BLAS: pair_rivals.blas_pairs(codes),
            BINCOUNT: pair_rivals.bincount_every_pair(codes),
        }

        def check(results: dict[str, Any]) -> None:
            ours = results[OURS]
            np.testing.assert_array_equal(ours, pair_rivals.as_blocks(results[BLAS], codes.sizes))
            np.testing.assert_array_equal(ours, results[BINCOUNT])

        return Work({name: Side(run, units) for name, run in runs.items()}, check)

    return build


def _table(rows: int, d: int, values: int, n_classes: int) -> pa.Table:
    """Return columns that follow their class a little, and the column before."""
    generator = np.random.default_rng(3)
    classes = generator.integers(0, n_classes, rows)
    names = pa.array([f"value {v:02d}" for v in range(max(values, n_classes))])
    columns, before = {}, classes
    for j in range(d):
        codes = generator.integers(0, values, rows)
        same = generator.random(rows) < 0.3
        codes[same] = before[same] % values
        indices = pa.array(codes.astype(np.int32))
        columns[f"x{j:02d}"] = pa.DictionaryArray.from_arrays(indices, names)
        before = codes
    labels = pa.DictionaryArray.from_arrays(pa.array(classes.astype(np.int32)), names)
    return pa.table({**columns, "class": labels})


def _encoded(model: Any, table: pa.Table) -> list[tuple[int, list[Codes]]]:
    """Return the rows and the codes of each block; copies, for encoders write where they wrote."""
    source = open_source(table)
    encoder = Encoder.applying_to(model.schema_, source.schema)
    return [
        (rows.num_rows, [g._replace(codes=g.codes.copy()) for g in block.batch.codes])
        for segment in source.segments(BLOCK_ROWS)
        for rows, block in row_blocks.encoded_blocks(segment, encoder)
    ]


def _scoring(
    make: Callable[[], Any], d: int, n_classes: int, *, cells: bool = False, values: int = 4
) -> Build:
    """Score ready codes on one thread; numpy's twin is the check."""

    def build(rows: int, _: Path) -> Work:
        table = _table(rows, d, values, n_classes)
        model = make().fit(table, "class")
        features = table.drop_columns(["class"])
        blocks = _encoded(model, features)
        scorer = model._scorer(float("inf"))

        def ours() -> Floats:
            out, first = np.empty((rows, n_classes)), 0
            for n, codes in blocks:
                scorer.posterior(codes, (), out[first : first + n])
                first += n
            return out

        def check(results: dict[str, Any]) -> None:
            few = features.slice(0, 2_000)
            exact = make().set_params(precision="exact").fit_statistics(model.statistics_)
            fast = model.precision == "fast"
            np.testing.assert_allclose(
                results[OURS][:2_000],
                exact.predict_proba(few),
                rtol=1e-3 if fast else 1e-9,
                atol=1e-4 if fast else 1e-12,
            )

        return Work({OURS: Side(ours, float(rows * (d if cells else 1)))}, check)

    return build


def _from_parquet(make: Callable[[], Any], *, by_hand: bool) -> Build:
    def build(rows: int, folder: Path) -> Work:
        path = data.parquet("cat", rows, folder)
        names = [name for name in open_source(path).schema.names if name != "class"]
        units = float(rows * len(names))
        runs = {
            OURS: lambda: make().fit(path, "class"),
            "pyarrow, whole files": rivals.arrow_decode(path),
        }
        if by_hand:
            values = fb.count(path, "class").values
            counts, k = values.shape.sizes.tolist(), values.shape.n_classes
            codes = data.coded(rows, counts, k)
            blas, bincount = pair_rivals.blas_pairs(codes), pair_rivals.bincount_every_pair(codes)
            decode = runs["pyarrow, whole files"]
            # By hand, too, the file has to be read; that it then has to be coded is not counted.
            runs |= {
                BLAS: lambda: (decode(), blas()),
                BINCOUNT: lambda: (decode(), bincount()),
            }

        def check(results: dict[str, Any]) -> None:
            assert results[OURS].statistics_.n_rows == rows

        return Work({name: Side(run, units) for name, run in runs.items()}, check)

    return build


WIDE = [2 + i % 4 for i in range(300)]
ALONE = tuple(
    Case(
        f"pairs-{values}",
        f"count pairs of ready codes, {{rows}} × 30 of {values} values, {k} classes, one thread",
        rows_of(1_000_000, 300_000),
        _alone(values, k),
        (Claim(None, most=most),),
        unit="pair-cell",
        threads="one",
    )
    for values, k, most in ((2, 2, 0.012), (4, 2, 0.06), (8, 2, 0.30), (32, 2, 0.8))
)
CASES = (
    *ALONE,
    Case(
        "pairs-cat",
        "count pairs of ready codes, {rows} × 30 of 2–12 values, 4 classes",
        rows_of(1_000_000, 300_000),
        _beside(data.mixed_values(), 4),
        (Claim(BLAS, least=6), Claim(BINCOUNT, least=6)),
        unit="pair-cell",
    ),
    Case(
        "pairs-wide",
        "count pairs of ready codes, {rows} × 300 of 2–5 values, 2 classes",
        rows_of(100_000, 20_000, 200),
        _beside(WIDE, 2),
        (Claim(BLAS, least=4), Claim(BINCOUNT)),
        unit="pair-cell",
    ),
    *(
        Case(
            f"aode-{d}{'' if k == 2 else f'-{k}'}{'-fast' if fast else ''}",
            f"posteriors of AODE{' in float32' if fast else ''}, ready codes, {{rows}} × {d} of 4 "
            f"values, {k} classes, one thread",
            rows_of(200_000, 50_000, 300),
            _scoring(
                lambda precision="fast" if fast else "exact": fb.AODE(precision=precision), d, k
            ),
            (Claim(None, most=most),),
            unit="row",
            threads="one",
        )
        for d, k, fast, most in (
            (20, 2, False, 120),
            (30, 2, False, 250),
            (50, 2, False, 800),
            (30, 8, False, 450),
            (30, 8, True, 280),
        )
    ),
    *(
        Case(
            f"tan-{k}",
            f"posteriors of TAN, ready codes, {{rows}} × 30 of 4 values, {k} classes, one thread",
            rows_of(1_000_000, 200_000),
            _scoring(fb.TAN, 30, k, cells=True),
            (Claim(None, most=0.7),),
            threads="one",
        )
        for k in (2, 4, 8)
    ),
    Case(
        "parquet-aode",
        "Parquet to fitted AODE, {rows} × 30 text columns, 4 classes",
        rows_of(1_000_000, 300_000),
        _from_parquet(fb.AODE, by_hand=True),
        (Claim(BLAS, least=6), Claim(BINCOUNT, least=6), Claim("pyarrow, whole files")),
    ),
    Case(
        "parquet-tan",
        "Parquet to fitted TAN, {rows} × 30 text columns, 4 classes",
        rows_of(1_000_000, 300_000),
        _from_parquet(fb.TAN, by_hand=False),
        (Claim("pyarrow, whole files"),),
    ),
)
