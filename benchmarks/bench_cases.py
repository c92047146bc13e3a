"""Every side of every case: once and checked among the tests, timed with --benchmark-enable."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cases import CASES, OURS, Work

SIDES = [
    (name, side)
    for name, case in CASES.items()
    for side in (OURS, *(claim.against for claim in case.claims if claim.against))
]


@pytest.fixture(scope="module")
def work(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Work:
    case = CASES[request.param]
    timed = request.config.getoption("benchmark_enable")
    return case.build(case.rows["quick" if timed else "test"], tmp_path_factory.mktemp("data"))


@pytest.fixture
def grouped(request: pytest.FixtureRequest, benchmark: Any) -> Any:
    benchmark.group = request.node.callspec.params["work"]
    return benchmark


@pytest.mark.parametrize("work", CASES, indirect=True)
def test_sides_agree(work: Work) -> None:
    work.check({name: side.run() for name, side in work.sides.items()})


@pytest.mark.parametrize(("work", "side"), SIDES, indirect=["work"])
def test_side(work: Work, side: str, grouped: Any) -> None:
    if side not in work.sides:
        pytest.skip(f"{side} is not installed")
    grouped(work.sides[side].run)
