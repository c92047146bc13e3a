"""Files of data, a few of whose bytes are changed, cut or moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from mutating import mutations

import fastbayes as fb
from stress.tables import Rng, choose_kernels, one_of, read, table, written

ABOUT = (
    "Parquet (own pages and pyarrow's), Arrow file and stream, ORC, CSV (plain, gz, zst), JSON "
    "lines with changed bytes: the counts of what pyarrow reads, or a documented error"
)
KINDS = ["parquet"] * 3 + ["arrow", "arrows", "orc", "csv", "csv.gz", "csv.zst", "jsonl"]
BATCH = 200
# Text, which has types by guess, is held to Python's readers in `text_formats`; pyarrow itself may
# die on ORC.
READ_BY_PYARROW = ("parquet", "arrow", "arrows")


def case(rng: Rng, folder: Path) -> str:
    """Read one changed file."""
    choose_kernels(rng)
    kind = one_of(rng, KINDS)
    rows = table(rng)
    whole = written(rng, kind, rows)
    ((what, blob),) = mutations(whole, rng.integers(2**32), 1)
    if rng.integers(20) == 0:
        what, blob = "nothing", whole
    path = folder / f"t.{kind}"
    path.write_bytes(blob)
    try:
        ours = fb.count(path, "y", threads=int(rng.integers(1, 3)))
    except (fb.DataError, fb.MemoryLimitError) as error:
        assert "\n" not in str(error), error
        assert what != "nothing", error
        return f"{kind}: refused"
    if kind not in READ_BY_PYARROW:
        return f"{kind}: read"
    try:
        theirs = read(path, kind)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        if kind == "parquet":  # it may look at what says nothing of the values
            same(ours, rows, what)
        return f"{kind}: read by us alone"
    same(ours, theirs, what)
    return f"{kind}: the same counts"


def same(ours: fb.Statistics, theirs: pa.Table, what: str) -> None:
    """Raise unless statistics are those of a table in memory."""
    expected = fb.count(theirs, "y")
    assert ours.n_rows == expected.n_rows, what
    assert ours.dropped_rows == expected.dropped_rows, what
    with np.errstate(all="ignore"):
        assert ours == expected or ours.allclose(expected, rtol=1e-12), what
