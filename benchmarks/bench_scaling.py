"""The jobs that are timed by their number of threads, once and small."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scaling


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_number_of_threads_finds_the_same(tmp_path: Path) -> None:
    found = [scaling.measured(job, [1, 2], 1, 0) for job in scaling.jobs(80_000, tmp_path)]
    assert all(min(line.seconds.values()) > 0 for line in found)
    text = scaling.rendered(80_000, found)
    assert text.count("\n| ") == len(found) + 2


def test_another_result_is_no_figure() -> None:
    job = scaling.Job("threads", 1, lambda threads: threads)
    with pytest.raises(AssertionError, match="another result with 1 threads"):
        scaling.measured(job, [1, 2], 1, 0)
