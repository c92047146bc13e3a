"""Calibrated models from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run

import fastbayes as fb


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    late = random.random(500) < 0.4
    heard = np.where(random.random(500) < 0.2, ~late, late)
    names = np.array(["dry", "wet"])[heard.astype(int)]
    columns = {"sky": names, "again": names, "miles": random.normal(size=500) + late}
    weight = pa.array(random.integers(0, 3, 500) / 2)
    table = pa.table({**columns, "w": weight, "late": np.where(late, "yes", "no")})
    return parquet(table, tmp_path / "d.parquet")


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_fit__calibrates_as_the_library_does(
    method: str, weight: str | None, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.fb"
    columns = ["sky", "again", "miles"]
    told = ["--calibrate", method, "--alpha", "0.5", "--columns", ",".join(columns), "--threads", 1]
    if weight is not None:
        told += ["--weight", weight]
    done = answer("fit", data, "--target", "late", "-o", path, *told)
    table = pa.parquet.read_table(data)
    rows = table.select([*columns, "late", *([weight] if weight else [])])
    expected = fb.Calibrated(fb.NaiveBayes(alpha=0.5), method=method)
    expected.fit(rows, "late", sample_weight=weight)
    found = fb.load(path)
    new = table.select(columns)
    assert found.predict_proba(new).tobytes() == expected.predict_proba(new).tobytes()
    assert found.model.threads is found.model_.threads is None
    assert done["calibrated_by"] == method
    assert done["held_out_by"] == "leave_one_out"
    assert done["alpha"] == 0.5
    assert list(done["log_loss"].values()) == pytest.approx(expected.log_loss_)
    if method == "temperature":
        assert done["temperature"] == pytest.approx(expected.calibration_.temperature)
    said = run("fit", data, "--target", "late", "-o", path, "--force", *told).stdout.splitlines()
    assert ["calibrated", "by", method] in [line.split() for line in said]
    assert answer("evaluate", path, data)["n"] == 500


def test_fit__calibrates_rows_alone(data: Path, tmp_path: Path) -> None:
    run("count", data, "--target", "late", "-o", tmp_path / "s.fb")
    said = fails(
        "fit", "--statistics", tmp_path / "s.fb", "-o", tmp_path / "m.fb", "--calibrate",
        "isotonic", folder=tmp_path, code=2,
    )  # fmt: skip
    assert "--calibrate goes with DATA" in said
