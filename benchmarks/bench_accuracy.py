"""One fold of a table, ours and the rivals installed: the benchmark must keep running."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import rivals
from benchmarks.accuracy.measured import BLEND, COMPARE
from benchmarks.accuracy.report import render
from benchmarks.accuracy.run import measured


@pytest.mark.filterwarnings("ignore")  # what libraries say of one another
def test_one_fold(tmp_path: Path) -> None:
    output = tmp_path / "results.json"

    def run(tables: list[str], *, resume: bool) -> dict[str, object]:
        folder = tmp_path / "none"
        return measured(folder, tables, 1, output, with_rivals=True, resume=resume)

    first = run(["sklearn-iris"], resume=False)
    models = first["tables"][0]["models"]
    installed = {*rivals.RIVALS, rivals.VOTE} - rivals.absent().keys()
    assert {BLEND, COMPARE, "naive-bayes-bins", "logistic", *installed} <= models.keys()
    for name, figures in models.items():
        assert 0 <= figures["log_loss"][0] < 1, name
        assert figures["accuracy"][0] > 0.8, name
        assert figures["seconds"][0] > 0, name
    # What is in the file stays, to the letter, and the rest comes beside it.
    both = run(["sklearn-iris", "sklearn-wine"], resume=True)
    assert both["tables"][0] == first["tables"][0]
    assert "| sklearn-wine | 178 | 13 | 3 |" in render(both)
    with pytest.raises(SystemExit, match="other folds or rivals"):
        measured(tmp_path, ["sklearn-iris"], 2, output, with_rivals=True, resume=True)
