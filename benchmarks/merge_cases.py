"""The cases of many partial counts that become one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fastbayes as fb
from benchmarks import data
from benchmarks.case import OURS, Case, Claim, Work, rows_of
from benchmarks.measure import Side
from fastbayes.core.ledger import CountedFile, Ledger

READ = "reading the files, and their SHA-256"
COLUMNS, VALUES, K, PAIRS, ROWS, KINDS = 100, 12, 4, 10, 20_000, 4


def _kinds(n: int) -> list[fb.Statistics]:
    """Return the counts of so many different tables."""
    table = data.arrow_table(n * ROWS, [VALUES] * COLUMNS, K, shuffled=False)
    pairs = [*zip(table.column_names[:PAIRS], table.column_names[1:], strict=False)]
    return [fb.count(table.slice(i * ROWS, ROWS), "class", families=pairs) for i in range(n)]


def _part_of(i: int) -> Ledger:
    digest = hashlib.blake2b(str(i).encode(), digest_size=16).hexdigest()
    return Ledger([CountedFile(digest, f"lake/part-{i}.parquet", 1_000_000, None, ((8, 1.0),))])


def _merge(parts: int, folder: Path) -> Work:
    kinds = _kinds(min(KINDS, parts))
    paths = []
    for i in range(parts):
        paths.append(folder / f"part-{i}.fbs")
        replace(kinds[i % len(kinds)], ledger=_part_of(i)).save(paths[-1])

    def read() -> list[bytes]:
        return [hashlib.sha256(path.read_bytes()).digest() for path in paths]

    sides = {OURS: Side(lambda: fb.merge(paths), float(parts)), READ: Side(read, float(parts))}

    def check(results: dict[str, Any]) -> None:
        merged, times = results[OURS], np.bincount(np.arange(parts) % len(kinds))
        for name, part in merged.parts.items():
            for key, held in part.arrays().items():
                if held.dtype == np.int64 and "counts" in key:
                    sums = [
                        n * kind.parts[name].arrays()[key]
                        for n, kind in zip(times, kinds, strict=True)
                    ]
                    np.testing.assert_array_equal(held, sum(sums))
        assert len(merged.ledger) == len(results[READ]) == parts

    return Work(sides, check)


CASES = (
    Case(
        "merge",
        f"`merge` of {{rows}} files of counts, {COLUMNS} columns of {VALUES} values and {PAIRS} "
        f"pairs of them, {K} classes",
        rows_of(10_000, 1_000, 30),
        _merge,
        # 10,000 in 5 seconds.
        (Claim(None, most=500_000), Claim(READ)),
        unit="file",
        threads="one",
        turns={"full": 5, "quick": 3, "test": 1},
    ),
)
