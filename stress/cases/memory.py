"""Calls with a `memory_limit`, in processes of their own that are measured."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from growth import growth_of
from test_memory_limit import (
    ALLOWED,
    BAYES,
    COMPARED,
    COUNT,
    CUT,
    EVALUATED,
    MB,
    PARTS,
    PROBA,
    SCATTER,
    TREE,
    numbers,
    values,
)

from stress.tables import Rng, one_of

ABOUT = (
    "calls on tables of up to 400 MB with limits of 30 to 500 MB: what they add to the process "
    "stays within the limit and 64 MiB, or MemoryLimitError"
)
SECONDS, BATCH = 600.0, 4
NUMBERS = {"count": COUNT, "fit": BAYES, "cut": CUT, "scatter": SCATTER, "proba": PROBA,
           "predict_to": PARTS}  # fmt: skip
VALUES = {"count": COUNT, "fit": BAYES, "tan": TREE, "evaluate": EVALUATED, "predict_to": PARTS,
          "compare": COMPARED.format("")}  # fmt: skip


def case(rng: Rng, folder: Path) -> str:
    """Measure one call."""
    make, calls, most = one_of(rng, [(numbers, NUMBERS, 50e6), (values, VALUES, 4e8)])
    name = one_of(rng, [*calls])
    columns = one_of(rng, [3, 10, 30, 300])
    rows = int(10 ** rng.uniform(4, 7))
    rows = max(1000, min(rows, int(most / 8 / columns)))
    paths = folder / "t.parquet", folder / "tiny-t.parquet"
    group = one_of(rng, [20_000, 200_000, rows])
    for path, n in zip(paths, (rows, 1000), strict=True):
        pq.write_table(make(n, columns, int(rng.integers(2**31))), path, row_group_size=group)
    # Below, code that is loaded for cut points may take more: see docs/reliability.md.
    limit = int(10 ** rng.uniform(1.5, 2.7)) * MB
    found = growth_of(calls[name], *paths, limit)
    what = f"{name}, {rows} x {columns} in groups of {group}, limit {limit // MB} MB"
    assert found.end, f"{what}: the process ended"
    assert found.peak <= limit + ALLOWED, f"{what}: it took {found.peak / MB:.0f} MB"
    return f"{name}: {'refused' if found.end.startswith('refused') else 'within'}"
