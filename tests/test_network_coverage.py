"""How often three standard errors hold what is true, on networks where chains go wrong and others.

`python -m pytest -s --slow tests/test_network_coverage.py` prints the tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from networks_made import joint_by_rows, posterior_by_joint
from networks_tied import KINDS, Case, Score, hard, plain, scores, tabulated, wide

HARD, PLAIN = 50, 40


def scored(cases: Iterator[Case], **options: Any) -> list[Score]:
    found = [score for case in cases for score in scores(case, **options)]
    print(f"\n{options}\n{tabulated(found)}")
    return found


def honest(found: list[Score]) -> float:
    """Return the share of queries in which nothing false was certified."""
    return float(np.mean([score.honest for score in found]))


def test_exact_answers_of_the_small_ones__by_summing_the_joint_distribution() -> None:
    seen = set()
    for case in itertools.chain(hard(HARD), plain(PLAIN)):
        sizes = [len(states) for states in case.network.states.values()]
        if np.prod(sizes, dtype=float) > 3000:
            continue
        seen.add(case.kind)
        joint = joint_by_rows(case.network)
        for node in set(case.network.nodes) - {*case.evidence}:
            p, _ = posterior_by_joint(case.network, joint, [node], case.evidence)
            found = case.network.query(node, case.evidence).probabilities
            np.testing.assert_allclose(found, p, rtol=1e-9, atol=1e-300)
    assert len(seen) >= 5


def test_networks_are_what_they_should_be() -> None:
    cases = list(hard(HARD))
    assert {case.kind for case in cases} == {c.kind for c in hard(len(KINDS))}
    smallest = [min(float(t[t > 0].min()) for t in c.network.tables.values()) for c in cases]
    assert min(smallest) < 1e-10
    assert sum(some < 1e-2 for some in smallest) > 40
    assert sum(bool(case.evidence) for case in cases) > 25
    sizes = [len(case.network.nodes) for case in plain(PLAIN)]
    assert max(sizes) > 35
    assert max(sizes) <= 40
    assert [c.evidence for c in hard(3)] == [c.evidence for c in cases[:3]]


@pytest.mark.parametrize("method", ["gibbs", "likelihood_weighting"])
def test_a_network_of_each_kind(method: str) -> None:
    found = scored(hard(len(KINDS)), method=method, draws=20_000)
    assert honest(found) >= 0.97
    assert np.mean([score.covered for score in found]) > 0.6


DEFAULTS: dict[str, Any] = {"method": "gibbs"}
WEIGHTING: dict[str, Any] = {"method": "likelihood_weighting", "draws": 100_000}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *(DEFAULTS, WEIGHTING),
        *({**DEFAULTS, "chains": n, "draws": 200_000} for n in (1, 2)),
    ],
    ids=str,
)
def test_fifty_hard_networks__nothing_false_is_certified(options: dict[str, Any]) -> None:
    found = scored(hard(HARD), **options)
    assert honest(found) >= 0.99
    assert np.mean([score.covered for score in found]) > 0.75


@pytest.mark.slow
def test_forty_ordinary_networks__hardly_a_warning() -> None:
    found = scored(plain(PLAIN), **DEFAULTS)
    assert np.mean([score.warned for score in found]) <= 0.05
    assert np.mean([score.covered for score in found]) >= 0.98


def wide_ones(n: int) -> Iterator[Case]:
    for k in range(n):
        random = np.random.default_rng([19, k])
        yield wide(random, 10.0 ** -random.uniform(2, 12))


@pytest.mark.slow
def test_networks_too_wide_to_be_drawn_at_once() -> None:
    found = scored(wide_ones(3), **DEFAULTS, draws=100_000)
    assert honest(found) >= 0.99
    assert np.mean([score.warned for score in found]) <= 0.1
