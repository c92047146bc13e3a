"""Call the driver of a row groups module."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastbayes as fb
from fastbayes.kernels.shared.row_groups import Chunks


def exercise(row_groups):
    if "numpy" in row_groups.__name__:
        nothing = np.zeros(0, np.uint8)
        chunks = Chunks(
            np.zeros((3, 0, 0), np.int64), np.zeros((0, 0), np.int64), [], *6 * [nothing]
        )
        assert row_groups.AlikeGroups(chunks, [], [], None).count(0, nothing, nothing) == 0
        return
    before = os.environ.get("FASTBAYES_KERNELS")
    os.environ["FASTBAYES_KERNELS"] = "always"
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = pa.table({"x": ["a", "b"] * 6, "y": ["c", "d", "d"] * 4})
            for name in ("a", "b"):
                pq.write_table(rows, Path(folder) / f"{name}.parquet")
            assert fb.count(folder, "y", threads=1).n_rows == 24
    finally:
        os.environ.pop("FASTBAYES_KERNELS")
        if before is not None:
            os.environ["FASTBAYES_KERNELS"] = before
