"""What chains say of how far their estimates are off, against the formulas it is taken from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import convergence as naive
from sampling_cases import gibbs, joint_of, likelihood_weighting, random_network

from fastbayes.core.errors import FastBayesWarning
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample.estimates import ESS, R_HAT, asked_of, batch_lengths, estimates
from fastbayes.networks.sample.starts import certain_cells, starts


def flipping(seed: int, flip: float, chains: int, draws: int, share: float = 0.5) -> np.ndarray:
    """Return chains of 0 and 1, (n_chains, n_draws), 1 with `share` in the long run."""
    rng = np.random.default_rng(seed)
    x, found = rng.random(chains) < share, []
    for _ in range(draws):
        anew = rng.random(chains) < flip
        x = np.where(anew, rng.random(chains) < share, x)
        found.append(x)
    return np.array(found, np.int64).T


def counted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of 1 in batches, (n_chains, n_batches, 1), and how long these are."""
    lengths = batch_lengths(x.shape[1], len(x))
    edges = np.concatenate([[0], np.cumsum(lengths)])
    parts = [x[:, a:b].sum(axis=1) for a, b in itertools.pairwise(edges)]
    return np.array(parts).T[..., None], lengths


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    flip=st.sampled_from([1.0, 0.3, 0.01]),
    chains=st.sampled_from([1, 2, 4, 32]),
    share=st.sampled_from([0.5, 0.1, 0.9]),
)
def test_r_hat__is_the_rank_normalized_split_one_of_the_draws(
    seed: int, flip: float, chains: int, share: float
) -> None:
    x = flipping(seed, flip, chains, 256, share)
    found = float(estimates(*counted(x)).r_hat[0])
    if np.ptp(x, axis=1).max() == 0:
        assert np.isnan(found)
        return
    if np.ptp(naive.split(x), axis=1).max() > 0:
        assert found == pytest.approx(naive.rank_normalized_split_r_hat(x), rel=1e-12)
        # Neither ranks nor folding change what is 0 or 1.
        assert found == pytest.approx(naive.r_hat(naive.split(x)), rel=1e-12)
    else:
        assert np.isinf(found)


@pytest.mark.parametrize(
    ("flip", "chains", "draws"),
    [
        (1.0, 32, 256),
        (1.0, 4, 1000),
        (0.3, 32, 256),
        (0.3, 4, 1000),
        (0.1, 32, 512),
        (0.1, 4, 2000),
    ],
)
def test_ess__is_that_of_the_draws_on_average(flip: float, chains: int, draws: int) -> None:
    ours, theirs = [], []
    for seed in range(30):
        x = flipping(seed, flip, chains, draws)
        ours.append(float(estimates(*counted(x)).ess[0]))
        theirs.append(float(naive.ess(x)))
    # Of batches: no more than those of the draws, and hardly fewer.
    assert 0.8 < np.median(ours) / np.median(theirs) < 1.1
    assert 0.8 < np.median(ours) / (chains * draws * flip / (2 - flip)) < 1.1


def two_modes(epsilon: float = 1e-3) -> Coded:
    """Return a node with a copy that hardly ever fails."""
    copy = np.array([[1 - epsilon, epsilon], [epsilon, 1 - epsilon]])
    return Coded(("a", "b"), np.array([2, 2]), [(), (0,)], [np.array([0.5, 0.5]), copy])


def test_a_warning_says_what_is_wrong__and_what_to_do() -> None:
    options = {"blocks": False, "seed": 0}
    with pytest.warns(FastBayesWarning) as said:
        found = gibbs(two_modes(), {}, [1], draws=32_000, **options)
    assert found.r_hat.max() > R_HAT
    text = str(said[-1].message)
    assert "'b': R-hat 1." in text
    assert f"is over {R_HAT}" in text
    assert "take more draws, or method='exact'" in text
    with pytest.warns(FastBayesWarning) as said:
        found = gibbs(two_modes(0.05), {}, [1], draws=3_000, chains=1, **options)
    assert found.ess.min() < ESS
    assert f"is under {ESS}" in str(said[-1].message)


def test_no_warning__where_chains_agree() -> None:
    # Warnings are errors here.
    found = gibbs(two_modes(0.2), {}, [1], draws=64_000, seed=0)
    assert found.r_hat.max() < R_HAT
    assert found.ess.min() > ESS


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=6),
    deterministic=st.sampled_from([0.0, 0.5]),
)
def test_certain_cells__are_impossible_or_the_only_ones(
    seed: int, sizes: list[int], deterministic: float
) -> None:
    rng = np.random.default_rng(seed)
    coded = random_network(rng, sizes, 2, 0.3, deterministic)
    joint = joint_of(coded)
    states = np.unravel_index(rng.choice(joint.size, p=joint.ravel() / joint.sum()), joint.shape)
    evidence = {int(rng.integers(len(sizes))): 0}
    evidence = {v: int(states[v]) for v in evidence}
    joint = joint_of(coded, evidence)
    groups = [[v] for v in range(len(sizes))] + [[1, 0]]
    asked = asked_of(coded, groups)
    exact = (
        np.concatenate(
            [
                joint.sum(axis=tuple(set(range(joint.ndim)) - {*nodes})).T.ravel()
                if len(nodes) > 1
                else joint.sum(axis=tuple(set(range(joint.ndim)) - {*nodes})).ravel()
                for nodes in groups
            ]
        )
        / joint.sum()
    )
    certain = certain_cells(coded, evidence, asked, exact)
    assert ((exact[certain] < 1e-15) | (exact[certain] > 1 - 1e-12)).all()
    # What is observed is known, and what one table forbids.
    for v, state in evidence.items():
        cells = slice(*asked.cell_at[v : v + 2])
        assert certain[cells].all()
        assert exact[cells][state] == pytest.approx(1)
    # Cells that were hit are never called impossible.
    assert not certain_cells(coded, evidence, asked, np.ones(len(exact)))[
        np.repeat(np.diff(asked.cell_at) > 1, np.diff(asked.cell_at))
    ].any()


@pytest.mark.parametrize("sampler", [gibbs, likelihood_weighting])
def test_what_is_certain_needs_no_draws(sampler) -> None:
    either = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    prior = np.array([0.5, 0.5])
    coded = Coded(("a", "b", "or"), np.full(3, 2), [(), (), (0, 1)], [prior, prior, either])
    found = sampler(coded, {0: 1}, [2, 0], draws=40_000, seed=0)
    assert found.probabilities.tolist() == [[0, 0], [0, 1]]
    assert (found.mcse == 0).all()
    assert np.isfinite(found.ess).all()
    # Not certain: only never drawn.
    rare = Coded(("a",), np.array([2]), [()], [np.array([1 - 1e-9, 1e-9])])
    with pytest.warns(FastBayesWarning, match=r"'a': 2 of 2 probabilities never changed"):
        found = sampler(rare, {}, [0], draws=40_000, seed=0)
    assert np.isnan([found.mcse, found.ess]).all()


def test_starts__every_second_chain_is_where_the_tables_hardly_lead() -> None:
    p = np.array([1 - 1e-9, 1e-9])
    coded = Coded(("a", "b"), np.array([2, 2]), [(), (0,)], [p, np.array([p, p[::-1]])])
    x = starts(coded, {}, 40, np.random.default_rng(0))
    assert 3 < x[0].sum() < 17
    assert 3 < (x[0] != x[1]).sum() < 17
    assert not starts(coded, {}, 1, np.random.default_rng(0)).any()
    # Rows of each kind that agree with the evidence.
    x = starts(coded, {1: 1}, 40, np.random.default_rng(0))
    assert (x[1] == 1).all()
    assert 0 < x[0].sum() < 40


def test_likelihood_weighting__rows_not_drawn_may_have_all_the_weight() -> None:
    # All rows but one in a million have a weight of 1e-8: they agree, and are wrong.
    seen = np.array([[1 - 1e-8, 1e-8], [0.5, 0.5]])
    coded = Coded(("a", "b"), np.array([2, 2]), [(), (0,)], [np.array([1 - 1e-6, 1e-6]), seen])
    with pytest.warns(FastBayesWarning, match=r"effective sample size 0 is under 400"):
        found = likelihood_weighting(coded, {1: 1}, [0], draws=20_000, seed=0)
    assert found.probabilities.tolist() == [1, 0]
    assert found.least_ess < 1
    # With more prior the rows are drawn, and a rare state's error is that of one such row at least.
    coded.tables[0] = np.array([0.9, 0.1])
    found = likelihood_weighting(coded, {1: 1}, [0], draws=20_000, seed=0)
    p = joint_of(coded, {1: 1}).sum(axis=1)
    off = np.abs(found.probabilities - p / p.sum())
    assert (off <= 3 * found.mcse).all()
    assert (found.mcse >= 1 / found.least_ess).all()
    assert found.least_ess <= found.ess.min()
