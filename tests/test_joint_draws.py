"""Nodes that hold each other in place: how they are found, and drawn at once."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks_tied import Case, Random, built, copy, grid, near, noisy_or, wide
from sampling_cases import exact, gibbs, joint_of, random_network, transition

from fastbayes.core.errors import FastBayesWarning
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.infer import inference
from fastbayes.networks.sample.blankets import compiled
from fastbayes.networks.sample.joint_draws import Holds, components, held, log_odds


def coded_of(case: Case) -> tuple[Coded, dict[int, int]]:
    return case.network.coded(), {int(name[1:]): s for name, s in case.evidence.items()}


def copies(n: int, epsilon: float, first: float = 0.5) -> Coded:
    """Return a chain of copies of a node that is 1 with probability `first`."""
    tables = [np.array([1 - first, first]), *(copy(2, epsilon) for _ in range(n - 1))]
    return built([[], *([v] for v in range(n - 1))], tables).coded()


def naive_log_odds(factors: list[inference.Factor]) -> dict[tuple[int, int], float]:
    """Return the largest ln odds ratio of each pair, one cell after the other."""
    found: dict[tuple[int, int], float] = {}
    for scope, table, _ in factors:
        for u, v in itertools.combinations(range(len(scope)), 2):
            others = [range(n) for axis, n in enumerate(table.shape) if axis not in (u, v)]
            most = 0.0
            for context in itertools.product(*others):
                for a, b in itertools.product(range(table.shape[u]), repeat=2):
                    for c, d in itertools.product(range(table.shape[v]), repeat=2):
                        cells = []
                        for x, y in ((a, c), (b, d), (a, d), (b, c)):
                            at = list(context)
                            at.insert(u, x)
                            at.insert(v, y)
                            cells.append(float(table[tuple(at)]))
                        if min(cells) > 0:
                            ratio = cells[0] * cells[1] / (cells[2] * cells[3])
                            most = max(most, math.log(ratio))
            pair = scope[u], scope[v]
            found[pair] = found.get(pair, 0.0) + most
    return found


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=6),
    zeros=st.sampled_from([0.0, 0.3]),
)
def test_log_odds__equal_the_naive_ones(seed: int, sizes: list[int], zeros: float) -> None:
    coded = random_network(np.random.default_rng(seed), sizes, 3, zeros)
    factors = inference.factors_of(coded, {}, range(len(coded)))
    found, expected = log_odds(factors), naive_log_odds(factors)
    assert found.keys() == expected.keys()
    for pair, width in expected.items():
        assert found[pair] == pytest.approx(width, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.01])
def test_held__the_bound_is_how_often_a_copy_moves(epsilon: float) -> None:
    # Of two copies with an even prior, the one moves in a sweep with 1 - correlation².
    coded = copies(2, epsilon)
    odds = log_odds(inference.factors_of(coded, {}, range(2)))
    width = odds[0, 1]
    assert width == pytest.approx(2 * math.log((1 - epsilon) / epsilon))
    moves = 1 - (1 - 2 * epsilon) ** 2
    assert 1 / math.cosh(width / 4) ** 2 == pytest.approx(moves)
    # A node with so many copies that all hold it.
    n = math.ceil(math.log(0.01) / math.log(moves))
    assert held({(0, v): width for v in range(1, n)}) == set()
    assert held({(0, v): width for v in range(1, n + 1)}) == {0}


def test_components() -> None:
    assert components([]) == []
    assert components([(4, 5), (1,), (5, 2), (7, 0)]) == [(0, 7), (1,), (2, 4, 5)]


NEAR = st.sampled_from([1e-2, 1e-5, 1e-8])


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), epsilon=NEAR, limit=st.sampled_from([1 << 16, 64, 16]))
def test_posterior_is_invariant__and_what_is_drawn_jointly_forgets(
    seed: int, epsilon: float, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    coded = random_network(rng, rng.integers(2, 4, 6).tolist(), 2, 0.1)
    for v, above in enumerate(coded.parents):
        if above and rng.random() < 0.7:
            *shape, size = coded.tables[v].shape
            coded.tables[v] = near(rng.integers(0, size, shape), size, epsilon)
    joint = joint_of(coded)
    states = np.unravel_index(rng.choice(joint.size, p=joint.ravel() / joint.sum()), joint.shape)
    evidence = {int(v): int(states[v]) for v in rng.permutation(6)[:2]}
    joint = joint_of(coded, evidence)
    kept, pi = np.argwhere(joint > 0), joint[joint > 0] / joint.sum()
    result = compiled(coded, evidence, entries=limit)
    matrix = transition(result.program, coded.sizes, kept)
    np.testing.assert_allclose(pi @ matrix, pi, rtol=0, atol=1e-8)
    draws = Holds.of(coded, evidence).joint_draws([], limit, 1 << 18)
    free = {v for v in range(6) if v not in evidence and coded.sizes[v] > 1}
    if any({*draw.nodes} == free for draw in draws):
        np.testing.assert_allclose(matrix, np.tile(pi, (len(pi), 1)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-8, 1e-12])
@pytest.mark.parametrize("chains", [1, 2, 32])
def test_a_chain_of_copies__right_whatever_the_seed(epsilon: float, chains: int) -> None:
    # The second node and its copies are 1 with 0.005: what single-site sampling never found.
    coded = copies(14, epsilon, 0.005)
    p = exact(coded, {}, [13])[1]
    off = []
    for seed in range(12):
        found = gibbs(coded, {}, [13], draws=20_000, burn_in=5, chains=chains, seed=seed)
        assert found.blocks == (tuple(range(14)),)
        off.append((found.probabilities[1] - p) / found.mcse[1])
        assert (found.ess > 10_000).all()
    assert np.abs(off).max() < 4


def test_seeds_and_threads() -> None:
    coded = copies(6, 0.02, 0.3)
    first, second, other = (
        gibbs(coded, {}, [5, 2], draws=40_000, chains=40, seed=seed, threads=threads)
        for seed, threads in ((5, 1), (5, 2), (6, 1))
    )
    assert first.counts.tobytes() == second.counts.tobytes()
    assert first.counts.tobytes() != other.counts.tobytes()


def test_alone__the_same_chain_is_warned_of() -> None:
    coded = copies(14, 1e-8, 0.005)
    with pytest.warns(FastBayesWarning) as said:
        found = gibbs(coded, {}, [13], draws=2_000, chains=1, seed=0, blocks=False)
    ties, doubts = (str(one.message) for one in said)
    assert "probabilities near 0 tie nodes together" in ties
    assert "'x0', 'x1'; 'x1', 'x2'" in ties
    assert ties.endswith("blocks=True resamples them together")
    assert "'x13': 2 of 2 probabilities never changed" in doubts
    assert "method='exact'" in doubts
    assert np.isnan([found.mcse, found.ess, found.r_hat]).all()


def test_too_wide_for_small_tables__what_is_tied_is_drawn_jointly() -> None:
    random: Random = np.random.default_rng(0)
    case = wide(random, 1e-8)
    coded, evidence = coded_of(case)
    result = compiled(coded, evidence)
    assert not result.left
    assert 3 <= len(result.blocks) < 6
    assert all(len(block) < 40 for block in result.blocks)
    last = len(coded) - 1
    found = gibbs(coded, evidence, [last], draws=6_400, burn_in=50, seed=0)
    p = case.network.query(f"x{last}").probabilities
    assert (np.abs(found.probabilities - p) < 4 * found.mcse).all()


def test_a_grid__is_drawn_jointly() -> None:
    random: Random = np.random.default_rng(0)
    case = grid(random, 0.01, side=12)
    coded, evidence = coded_of(case)
    last = 143
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gibbs(coded, evidence, [last], draws=6_400, burn_in=10, chains=4, seed=0)
    assert [len(block) for block in found.blocks] == [144]
    p = case.network.query(f"x{last}", case.evidence, max_cells=1 << 14).probabilities
    assert (np.abs(found.probabilities - p) < 4 * found.mcse).all()


@pytest.mark.filterwarnings("ignore:these estimates")
def test_held_and_not_drawn_jointly__is_warned_of() -> None:
    random: Random = np.random.default_rng(0)
    coded, evidence = coded_of(grid(random, 0.01, side=18))
    with pytest.warns(FastBayesWarning, match=r"'x0', 'x1'.* more\).* tables .* too large"):
        gibbs(coded, evidence, [323], draws=320, burn_in=10, seed=0)
    with pytest.warns(FastBayesWarning, match=r"blocks=True draws them jointly"):
        gibbs(copies(14, 0.01, 0.005), {}, [13], draws=320, seed=0, blocks=False)


def test_neither_tables_nor_blocks_fit__the_ties_are_named() -> None:
    coded, evidence = coded_of(noisy_or(np.random.default_rng(3), 1e-9))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        program = compiled(coded, evidence, max_block=2, entries=4)
    assert not said
    assert program.left
    assert not program.zeros


def test_tables_of_joint_draws_stay_within_their_limits() -> None:
    coded = copies(12, 1e-6)
    for entries, all_entries in ((8, 1 << 18), (4, 1 << 18), (2, 1 << 18), (8, 40), (8, 48)):
        holds = Holds.of(coded, {})
        draws = holds.joint_draws([], entries, all_entries)
        assert [draw.nodes for draw in draws] == (
            [tuple(range(12))] if entries >= 4 and all_entries >= 46 else []
        )
