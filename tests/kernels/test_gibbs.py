from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import gibbs as naive
from sampling_cases import joint_of, random_network, transition

from fastbayes.kernels.compiled.scoring import gibbs as kernels
from fastbayes.kernels.numpy.scoring import gibbs as numpy_twin
from fastbayes.kernels.shared.gibbs import TABLE
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample.blankets import ENTRIES, compiled, thresholds
from fastbayes.networks.sample.estimates import asked_of
from fastbayes.networks.sample.starts import starts

MODULES = [
    pytest.param(kernels, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]
# Tables for all units, for some, for none.
LIMITS = st.sampled_from([ENTRIES, 12, 0])


@st.composite
def networks(draw, most=6):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 5]), min_size=1, max_size=most))
    zeros = draw(st.sampled_from([0.0, 0.0, 0.3, 0.6]))
    coded = random_network(rng, shape, 3, zeros, draw(st.sampled_from([0.0, 0.5])))
    return coded, observed(draw, coded, rng)


def observed(draw, coded, rng):
    """Return evidence of positive probability on a few nodes."""
    joint = joint_of(coded)
    row = rng.choice(joint.size, p=joint.ravel() / joint.sum())
    states = np.unravel_index(row, joint.shape)
    nodes = draw(st.sets(st.integers(0, joint.ndim - 1), max_size=2))
    return {v: int(states[v]) for v in nodes}


def possible(coded, evidence):
    """Return the states of positive probability given the evidence, and their probabilities."""
    joint = joint_of(coded, evidence)
    kept = np.argwhere(joint > 0)
    return kept, joint[joint > 0] / joint.sum()


@given(case=networks(), entries=LIMITS, blocks=st.booleans())
def test_posterior_is_invariant_under_a_sweep(case, entries, blocks):
    coded, evidence = case
    kept, pi = possible(coded, evidence)
    if len(kept) > 700:
        kept, pi = kept[:0], pi[:0]
    program = compiled(coded, evidence, entries=entries, blocks=blocks).program
    after = pi @ transition(program, coded.sizes, kept)
    np.testing.assert_allclose(after, pi, rtol=0, atol=1e-9)


@given(case=networks(most=5))
def test_everything_possible_is_reached__with_blocks(case):
    coded, evidence = case
    kept, _ = possible(coded, evidence)
    if len(kept) > 300:
        return
    result = compiled(coded, evidence)
    assert not result.left
    matrix = transition(result.program, coded.sizes, kept)
    reached = matrix > 0
    for _ in range(10):
        reached = (reached.astype(float) @ reached) > 0
    assert reached.all()


@given(case=networks(), entries=LIMITS, chains=st.sampled_from([1, 3, 6, 16, 23]))
def test_states_and_counts_equal_the_naive_ones(case, entries, chains):
    coded, evidence = case
    program = compiled(coded, evidence, entries=entries).program
    begun = starts(coded, evidence, chains, np.random.default_rng(0))
    words = np.random.default_rng(1).integers(1, 2**63, (4, chains)).astype(np.uint64)
    nodes = list(range(len(coded)))
    groups = asked_of(coded, [nodes[::-1][:2], *([v] for v in nodes), nodes[:3], nodes[-1:]])
    cells = int(groups.cell_at[-1])
    expected = naive.run(program, begun, words, 3, 2, groups, cells)
    for module in (kernels, numpy_twin):
        x, streams = begun.copy(), words.copy()
        counts = np.zeros((chains, cells), np.int64)
        module.run(program, x, streams, 3, 2, groups, counts)
        for ours, theirs in zip((x, streams, counts), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("chains", [1, 16])
def test_a_block_of_one_possible_state__nothing_to_draw(module, chains):
    # Both are seen to be true, by an AND.
    both = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    prior = np.array([0.0, 1.0])
    coded = Coded(("a", "b", "and"), np.full(3, 2), [(), (), (0, 1)], [prior, prior, both])
    program = compiled(coded, {}).program
    assert not len(program.states)
    x = starts(coded, {}, chains, np.random.default_rng(0))
    streams = np.random.default_rng(1).integers(1, 2**63, (4, chains)).astype(np.uint64)
    counts = np.zeros((chains, 2), np.int64)
    module.run(program, x, streams, 20, 1, asked_of(coded, [[2]]), counts)
    assert (counts == [0, 20]).all()


def test_tables_stay_within_their_limits():
    coded = random_network(np.random.default_rng(0), [2, 3, 4, 5, 4, 3, 2, 4], 3)
    for entries, all_entries in ((64, 1 << 18), (1 << 16, 200), (1 << 16, 1 << 18)):
        limits = {"all_entries": all_entries, "joint_entries": all_entries}
        program = compiled(coded, {}, entries=entries, **limits).program
        tabled = program.kinds == TABLE
        assert tabled.any()
        assert tabled.all() == (entries == 1 << 16 and all_entries == 1 << 18)
        edges = np.append(program.table_at[tabled], len(program.thresholds) - 2)
        assert edges[-1] <= all_entries
        assert (np.diff(edges) <= entries).all()


def test_generator__the_authors_first_numbers():
    # From the authors' C code, state 1, 2, 3, 4.
    streams = np.array([[1], [2], [3], [4]], np.uint64)
    first = [int(numpy_twin.next_words(streams)[0]) for _ in range(4)]
    assert first == [41943041, 58720359, 3588806011781223, 3591011842654386]


def test_thresholds__impossible_states_have_no_share():
    rows = np.array([[0, 1, 0, 3, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 2], [1e-300, 0, 1, 0, 1e-320]])
    with np.errstate(divide="ignore"):
        edges = thresholds(np.log(rows)).astype(float)
    edges = np.pad(edges, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 2.0**32 - 1)))
    shares = np.diff(edges, axis=1)
    assert (shares[rows == 0] == 0).all()
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares[0] / 2**32, [0, 0.25, 0, 0.75, 0], atol=2**-31)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("entries", [ENTRIES, 0])
@pytest.mark.parametrize("highest", [0, 2**64 - 1])
def test_first_and_last_words__no_state_of_probability_0(module, entries, highest):
    # Words of all zeros, or all ones, must draw the first, or the last, possible state.
    possible = ["01", "10", "101", "010", "0110", "1001", "01010", "0101", "0" * 9 + "11" + "0" * 9]
    for digits in possible:
        weights = np.array([float(digit) for digit in digits])
        coded = Coded(("a",), np.array([len(weights)]), [()], [weights / weights.sum()])
        program = compiled(coded, {}, entries=entries).program
        x = np.full((1, 16), np.flatnonzero(weights)[0], np.uint16)
        # s0 + s3 = -s0 rotated: a state of zeros draws zeros; s3 = 0, s0 = -1 draws ones less one.
        streams = np.zeros((4, 16), np.uint64)
        streams[0] = highest
        counts = np.zeros((16, len(weights)), np.int64)
        drawn = int(numpy_twin.next_words(streams.copy())[0])
        assert drawn >> 33 == highest >> 33
        module.run(program, x, streams, 1, 1, asked_of(coded, [[0]]), counts)
        expected = np.flatnonzero(weights)[0 if highest == 0 else -1]
        assert (x == expected).all()


@pytest.mark.parametrize("module", MODULES)
def test_products_too_small_for_a_float__the_same_states(module):
    # Forty children, each with a probability of 1e-12 or 2e-12: products of 1e-480.
    rng = np.random.default_rng(0)
    child = np.array([[2e-12, 1 - 2e-12], [1e-12, 1 - 1e-12]])
    coded = Coded(
        tuple(f"x{v}" for v in range(41)),
        np.full(41, 2),
        [()] + [(0,)] * 40,
        [np.array([0.001, 0.999])] + [child] * 40,
    )
    program = compiled(coded, dict.fromkeys(range(1, 41), 0), entries=0).program
    weights = numpy_twin.products(program, 0, np.zeros((41, 1), np.int64))[0]
    np.testing.assert_allclose(weights[0] / weights[1], 2.0**40 * 0.001 / 0.999, rtol=1e-9)
    streams = rng.integers(1, 2**63, (4, 16)).astype(np.uint64)
    x = np.zeros((41, 16), np.uint16)
    for chains in (1, 16):
        counts = np.zeros((chains, 2), np.int64)
        some = x[:, :chains].copy(), streams[:, :chains].copy()
        module.run(program, *some, 50, 1, asked_of(coded, [[0]]), counts)
        assert (counts == [50, 0]).all()


@pytest.mark.parametrize("module", MODULES)
def test_a_thousand_states(module):
    rng = np.random.default_rng(0)
    prior = rng.dirichlet(np.ones(1000))
    coded = Coded(("a", "b"), np.array([1000, 2]), [(), (0,)], [prior, rng.dirichlet([1, 1], 1000)])
    for entries in (ENTRIES, 0):
        program = compiled(coded, {1: 0}, entries=entries).program
        streams = rng.integers(1, 2**63, (4, 32)).astype(np.uint64)
        counts = np.zeros((32, 1000), np.int64)
        x = np.zeros((2, 32), np.uint16)
        module.run(program, x, streams, 400, 1, asked_of(coded, [[0]]), counts)
        expected = prior * coded.tables[1][:, 0]
        expected /= expected.sum()
        big = expected.argsort()[-20:]
        sd = np.sqrt(expected[big] / (32 * 400))
        assert (np.abs(counts.sum(axis=0)[big] / (32 * 400) - expected[big]) < 5 * sd).all()
