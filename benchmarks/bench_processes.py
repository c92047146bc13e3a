"""The cases in fresh processes, once and small: they must keep running, their figures vary."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.processes import (
    GIB,
    SMALL_FIT,
    compiling,
    fresh,
    growth,
    laboratory,
    logistic_memory,
    logistic_out_of_core,
    out_of_core,
    start_up,
    under_lock,
)
from benchmarks.workers import workers


def test_small_fit_loads_no_compiler() -> None:
    assert fresh(SMALL_FIT, {"FASTBAYES_KERNELS": "auto"}).cpu > 0


def test_failure_in_a_process_is_told() -> None:
    with pytest.raises(RuntimeError, match="exit status 1 of the process that ran:\nraise"):
        fresh("raise SystemExit(1)")


def test_out_of_core(tmp_path: Path) -> None:
    fit, *predict = out_of_core("test", tmp_path)
    assert 0 < fit.value < fit.most
    assert all(figure.value > 0 for figure in predict)
    assert fit.unit == "GiB"
    assert fit.value * GIB > 10e6, "a process with numpy and pyarrow holds more than 10 MB"


def test_logistic_regression(tmp_path: Path) -> None:
    ours, theirs, share = logistic_memory("test", tmp_path)
    assert share.value == ours.value / theirs.value
    assert min(ours.value, theirs.value) * GIB > 10e6
    # That the rows were read anew in every pass is asserted there.
    (anew,) = logistic_out_of_core("test", tmp_path)
    assert 0 < anew.value < anew.most


def test_laboratory(tmp_path: Path) -> None:
    assert all(figure.value > 0 for figure in laboratory("test", tmp_path))


def test_growth(tmp_path: Path) -> None:
    figures = growth("test", tmp_path)
    assert len(figures) == 13
    assert all(figure.value > 0 for figure in figures if figure.unit != "×")


def test_time_under_the_lock(tmp_path: Path) -> None:
    # Of jobs this short the share is mostly noise.
    assert [figure.unit for figure in under_lock("test", tmp_path)] == ["%"] * 3


@pytest.mark.slow
def test_compiling(tmp_path: Path) -> None:
    assert all(figure.value > 0 for figure in compiling("test", tmp_path))


@pytest.mark.slow
def test_start_up(tmp_path: Path) -> None:
    figures = start_up("test", tmp_path)
    assert all(figure.value > 0 and figure.more["wall"] > 0 for figure in figures)
    # The first fit kept its machine code where the second one looked for it.
    assert list((tmp_path / "numba-0").rglob("*.nbc"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
def test_workers(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    figures = workers("test", tmp_path)
    assert sum("processes" in figure.title for figure in figures) >= 2
    assert all(figure.value > 0 for figure in figures)
