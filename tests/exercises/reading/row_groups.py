"""Call the driver of a row groups module."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import fastbayes as fb


def exercise(row_groups):
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
