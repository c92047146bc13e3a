"""Blends from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run

import fastbayes as fb
from fastbayes.evaluation.calibrate.held_out_members import MEMBERS as MEMBERS_BY_DEFAULT

MEMBERS = "naive-bayes,tan,logistic"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    late = random.random(400) < 0.4
    heard = np.where(random.random(400) < 0.2, ~late, late)
    names = np.array(["dry", "wet"])[heard.astype(int)]
    columns = {"sky": names, "miles": random.normal(size=400) + late}
    return parquet(pa.table({**columns, "late": np.where(late, "y", "n")}), tmp_path / "d.parquet")


def test_fit__is_what_the_library_does(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.fb"
    told = ("fit", data, "--target", "late", "-o", path, "--model", "blend")
    more = ("--members", MEMBERS, "--folds", 4, "--memory-limit", "500M", "--force")
    done = answer(*told, *more)
    expected = fb.fit(data, "late", members=MEMBERS.split(","), folds=4)
    found = fb.load(path)
    rows = pa.parquet.read_table(data)
    assert found.predict_proba(rows).tobytes() == expected.predict_proba(rows).tobytes()
    assert found.memory_limit is None
    assert all(member.model.memory_limit is None for member in found.members_.values())
    assert done["members"] == {n: pytest.approx(m.weight) for n, m in expected.members_.items()}
    assert done["log_loss"]["blend"] == pytest.approx(expected.log_loss_[1])
    assert "members" in run(*told, *more).stdout
    assert answer("evaluate", path, data)["n"] == 400
    assert answer("inspect", path)["members"] == done["members"]


def test_log_loss__of_the_blend_is_shown_however_many_members_there_are(
    data: Path, tmp_path: Path
) -> None:
    path, many = tmp_path / "m.fb", {*MEMBERS_BY_DEFAULT, "spode", "a2de"}
    told = ("fit", data, "--target", "late", "-o", path, "--model", "blend")
    shown = run(*told, "--members", ",".join(sorted(many))).stdout
    blend = fb.load(path).log_loss_[1]
    for said in (shown, run("inspect", path).stdout):
        (line,) = (line for line in said.splitlines() if line.startswith("log loss"))
        assert line.split()[2:4] == ["blend", f"{blend:.10g},"]
        assert " more" in line


def test_help__of_a_flag_says_what_the_flag_does() -> None:
    said = run("fit", "--model", "blend", "--help").stdout
    assert "--no-race Fit every member to all folds" in " ".join(said.split())


def test_fit__refuses_what_does_not_go_together(data: Path, tmp_path: Path) -> None:
    told = ("fit", data, "--target", "late", "-o", tmp_path / "m.fb", "--model", "blend")
    for more, message, code in (
        (("--calibrate", "isotonic"), "which is calibrated", 2),
        (("--alpha", 2), "--alpha does not go with --model blend", 2),
        (("--members", "tan,tam"), "'--members': 'tam': use one of", 2),
        (("--members", "tan,tan"), "'--members': 'tan' stands twice", 2),
        (("--members", "prior"), "'--members': 'prior': use one of", 2),
    ):
        assert message in fails(*told, *more, folder=tmp_path, code=code)
