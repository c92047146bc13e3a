"""Several groups of nodes counted in one run: each as if it had been asked for alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import gibbs, likelihood_weighting, random_network, read_bif

from fastbayes.core.errors import MemoryLimitError
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample.estimates import gibbs_of_groups, weighting_of_groups

SAMPLERS = [
    pytest.param(gibbs, gibbs_of_groups, id="gibbs"),
    pytest.param(likelihood_weighting, weighting_of_groups, id="likelihood_weighting"),
]


@pytest.mark.parametrize(("alone", "together"), SAMPLERS)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3, 4, 13]), min_size=2, max_size=6),
    n_groups=st.integers(1, 5),
    chains=st.sampled_from([1, 5, 6, 20]),
)
@pytest.mark.filterwarnings("ignore:probabilities of 0 tie")
@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_a_group__is_counted_as_if_alone(
    alone: Any, together: Any, seed: int, sizes: list[int], n_groups: int, chains: int
) -> None:
    rng = np.random.default_rng(seed)
    coded = random_network(rng, sizes, 2)
    groups = [rng.permutation(len(sizes))[: rng.integers(1, 4)].tolist() for _ in range(n_groups)]
    options: dict[str, Any] = {"draws": 300, "seed": 1}
    if alone is gibbs:
        options |= {"chains": chains, "burn_in": 3, "thin": 2}
    results = together(coded, {0: 0}, groups, **options)
    assert len(results) == n_groups
    for targets, found in zip(groups, results, strict=True):
        expected = alone(coded, {0: 0}, targets, **options)
        if alone is gibbs:
            np.testing.assert_array_equal(found.counts, expected.counts)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
        assert found.draws == expected.draws
        assert found.log_evidence == expected.log_evidence
        for name in ("mcse", "ess", "r_hat"):
            if (figures := getattr(expected, name)) is not None:
                np.testing.assert_allclose(getattr(found, name), figures, rtol=1e-10)


@pytest.mark.compiled
@pytest.mark.parametrize("network", ["asia", "cancer", "earthquake", "sachs", "survey"])
def test_all_posteriors_of_one_evidence__within_4_standard_errors(
    shared_data: Path, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    coded, states = read_bif(shared_data / "bif" / f"{network}.bif")
    number = {name: at for at, name in enumerate(coded.names)}
    expected: dict[str, dict[str, dict[str, float]]] = {}
    with (shared_data / "exact" / "bn_posteriors.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["network"] == network:
                of = expected.setdefault(row["evidence"], {}).setdefault(row["variable"], {})
                of[row["state"]] = float(row["probability"])
    assert any(len(of) > 1 for of in expected.values())
    for text, posteriors in expected.items():
        evidence = {number[v]: states[v].index(s) for v, s in json.loads(text).items()}
        groups = [[number[v]] for v in posteriors]
        results = gibbs_of_groups(coded, evidence, groups, draws=1_000_000, seed=7, threads=1)
        for (name, of), found in zip(posteriors.items(), results, strict=True):
            p = np.array([of[state] for state in states[name]])
            assert (np.abs(found.probabilities - p) <= 4 * found.mcse).all(), (text, name)
            assert (found.mcse < 0.02).all()
            assert found.r_hat is not None
            assert (found.r_hat < 1.01).all()


@pytest.mark.parametrize(("alone", "together"), SAMPLERS)
def test_threads_change_no_bit(
    alone: Any, together: Any, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coded = random_network(np.random.default_rng(4), [2, 3, 4, 2, 3], 2)
    options: dict[str, Any] = {"draws": 20_000, "seed": 5}
    if alone is gibbs:
        options = {"draws": 2_000, "seed": 5, "chains": 40, "burn_in": 3}
    groups = [[0], [3, 1], [2], [4]]
    one, two = (together(coded, {1: 0}, groups, threads=n, **options) for n in (1, 2))
    for first, second in zip(one, two, strict=True):
        for name in ("probabilities", "mcse", "ess"):
            assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@pytest.mark.compiled
def test_more_draws_than_16_bits_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    # One batch of each chain has more draws than a counter of 16 bits holds.
    coded = Coded(("a", "b"), np.array([2, 20]), [(), ()], [np.array([0.5, 0.5]), np.eye(20)[7]])
    chains, each = 128, 300_000
    options: dict[str, Any] = {"draws": chains * each, "chains": chains, "burn_in": 0, "seed": 0}
    of_a, of_b = gibbs_of_groups(coded, {}, [[0], [1]], **options)
    assert of_a.counts is not None
    assert (of_a.counts.sum(axis=1) == each).all()
    assert of_b.counts is not None
    assert (of_b.counts[:, 7] == each).all()
    np.testing.assert_allclose(of_a.probabilities, 0.5, atol=5 * of_a.mcse[0])


@pytest.mark.parametrize(("alone", "together"), SAMPLERS)
def test_groups_are_checked(alone: Any, together: Any) -> None:
    coded = random_network(np.random.default_rng(0), [30] * 8, 0)
    many = [[0, 1, 2], [2, 3, 4, 5], [6, 7]]
    what = "'x2', 'x3', 'x4', 'x5' are 810,000, with those of other groups 8,379,000"
    with pytest.raises(MemoryLimitError, match=what):
        together(coded, {}, many * 10)
