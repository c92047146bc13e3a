"""`predict_to` never replaces what it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import fails, snapshot
from test_predict_workers import shipped

import fastbayes as fb
from fastbayes.engines import Paths

ROWS = pa.table({"x": ["a", "b", "a"], "y": ["u", "v", "u"]})
MODEL = fb.NaiveBayes().fit(ROWS, "y")
LENIENT = fb.NaiveBayes(missing_columns="marginalize").fit(
    ROWS.append_column("removed", pa.array(["p", "q", "q"])), "y"
)
READ = {
    "path": lambda path: path,
    "other_name": lambda path: f"{path.parent}/./{path.name}",
    "files": lambda path: fb.Files([path]),
    "workers": lambda path: Paths([str(path)], shipped, 1),
}


@pytest.mark.parametrize("model", [MODEL, LENIENT])
@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("parts", [False, True])
def test_target__is_what_is_read(
    tmp_path: Path, how: str, model: fb.NaiveBayes, *, parts: bool
) -> None:
    out = tmp_path / ("out" if parts else "out.parquet")
    data = out / "part-00000.parquet" if parts else out
    data.parent.mkdir(exist_ok=True)
    pq.write_table(ROWS, data)
    before = snapshot(tmp_path)
    options: dict[str, Any] = {"force": True, "parts": parts}
    said = "holds .*part-00000.parquet, which is read" if parts else "out.parquet is what is read"
    with pytest.raises(fb.DataError, match=f"{said}.*would replace; name another place"):
        fb.predict_to(model, READ[how](data), out, **options)
    assert snapshot(tmp_path) == before
    if how == "path":
        (tmp_path / "link").symlink_to(out.name)
        with pytest.raises(fb.DataError, match=r"which is read|what is read"):
            fb.predict_to(model, data, tmp_path / "link", format="parquet", **options)
        assert snapshot(tmp_path) == before


def test_target__is_beside_what_is_read(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "d.parquet")
    for _ in range(2):
        done = fb.predict_to(MODEL, tmp_path / "d.parquet", tmp_path / "o.parquet", force=True)
        assert done.rows == 3
    assert pq.read_table(tmp_path / "d.parquet").equals(ROWS)


def test_command__names_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MODEL.save("m.fb")
    Path("d.csv").write_text("x\na\nb\n")
    os.mkdir("parts")
    pq.write_table(ROWS, "parts/part-00000.parquet")
    for name in ("d.csv", "parts"):
        said = fails("predict", "m.fb", name, "-o", name, "--force", folder=tmp_path)
        assert said.startswith(f"Error: {name} ")
        assert said.endswith("which the output would replace; name another place")
