from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import exact, gibbs, joint_of, likelihood_weighting, random_network, read_bif

from fastbayes.core.errors import DataError, FastBayesWarning, MemoryLimitError
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample import starts as starts_module
from fastbayes.networks.sample.blankets import compiled, tied
from fastbayes.networks.sample.estimates import batch_lengths, estimates
from fastbayes.networks.sample.starts import Forward, starts

SAMPLERS = [gibbs, likelihood_weighting]
OR = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])


def chain(n, stay=0.9):
    """Return a chain of n nodes of two states, each like the one before with probability stay."""
    table = np.array([[stay, 1 - stay], [1 - stay, stay]])
    names = tuple(f"x{v}" for v in range(n))
    parents = [(), *((v,) for v in range(n - 1))]
    return Coded(names, np.full(n, 2), parents, [np.array([0.3, 0.7])] + [table] * (n - 1))


def caused(p=0.5):
    """Return an OR with its two causes."""
    prior = np.array([1 - p, p])
    return Coded(("a", "b", "or"), np.full(3, 2), [(), (), (0, 1)], [prior, prior, OR])


def queries(path):
    """Return (network, evidence, variable) and P(state) of each line group of the file."""
    found = {}
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            key = row["network"], row["evidence"], row["variable"]
            found.setdefault(key, {})[row["state"]] = float(row["probability"])
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("network", ["asia", "cancer", "earthquake", "sachs", "survey"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_posterior_of_the_file__within_4_standard_errors(
    shared_data, network, sampler, monkeypatch
):
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    coded, states = read_bif(shared_data / "bif" / f"{network}.bif")
    number = {name: at for at, name in enumerate(coded.names)}
    for (of, text, variable), expected in queries(
        shared_data / "exact" / "bn_posteriors.csv"
    ).items():
        if of != network:
            continue
        evidence = {number[v]: states[v].index(s) for v, s in json.loads(text).items()}
        draws = 1_000_000 if sampler is gibbs else 50_000
        result = sampler(coded, evidence, [number[variable]], draws=draws, seed=7, threads=1)
        p = np.array([expected[state] for state in states[variable]])
        assert (np.abs(result.probabilities - p) <= 4 * result.mcse).all(), (text, variable)
        assert result.probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert (result.mcse < 0.02).all()
        if sampler is gibbs:
            assert (result.r_hat < 1.01).all()


def test_asia__the_or_is_one_block_and_the_answer_right(shared_data):
    coded, _ = read_bif(shared_data / "bif" / "asia.bif")
    asia, dysp, bronc = (coded.names.index(v) for v in ("asia", "dysp", "bronc"))
    result = gibbs(coded, {asia: 0, dysp: 0}, [bronc], draws=400_000, seed=1)
    assert result.blocks == ((1, 3, 5),)
    assert abs(result.probabilities[0] - 0.8114020716) < 4 * result.mcse[0] < 0.004
    # Alone, each chain stays where the OR was at its start: at 0.863 or 0.575.
    with (
        pytest.warns(FastBayesWarning, match=r"'tub', 'lung', 'either'.*blocks=True"),
        pytest.warns(FastBayesWarning, match=r"'bronc': R-hat .* is over 1.01"),
    ):
        wrong = gibbs(coded, {asia: 0, dysp: 0}, [bronc], draws=40_000, seed=1, blocks=False)
    alone = wrong.counts / wrong.counts.sum(axis=1, keepdims=True)
    assert (np.minimum(abs(alone[:, 0] - 0.863), abs(alone[:, 0] - 0.575)) < 0.1).all()
    assert wrong.r_hat[0] > 1.005
    # What whole chains differ by is seen in the error too.
    assert wrong.mcse[0] > 10 * result.mcse[0]


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=6),
    zeros=st.sampled_from([0.0, 0.3]),
    deterministic=st.sampled_from([0.0, 0.5]),
)
def test_joint_of_two_targets_equals_the_exact_one(sampler, seed, sizes, zeros, deterministic):
    rng = np.random.default_rng(seed)
    coded = random_network(rng, sizes, 2, zeros, deterministic)
    joint = joint_of(coded)
    states = np.unravel_index(rng.choice(joint.size, p=joint.ravel()), joint.shape)
    evidence = {v: int(states[v]) for v in rng.permutation(len(sizes))[:2].tolist()}
    targets = rng.permutation(len(sizes))[:2].tolist()
    result = (
        sampler(coded, evidence, targets, draws=20_000, burn_in=50, seed=3)
        if (sampler is gibbs)
        else sampler(coded, evidence, targets, draws=20_000, seed=3)
    )
    p = exact(coded, evidence, targets)
    assert result.probabilities.shape == p.shape
    assert (np.abs(result.probabilities - p) <= 6 * result.mcse + 1e-12).all()
    assert (result.probabilities[p == 0] == 0).all()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("sampler", "chains", "draws"),
    [(gibbs, 32, 4096), (gibbs, 4, 4000), (gibbs, 1, 4000), (likelihood_weighting, None, 4096)],
)
@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_standard_error_is_neither_too_small_nor_too_large(sampler, chains, draws, monkeypatch):
    monkeypatch.setenv("FASTBAYES_KERNELS", "always")
    # 200 seeds, a chain of nodes in which neighbours agree with 0.9: draws hang together.
    coded, evidence, target = chain(5), {0: 0, 4: 1}, 2
    more = {"chains": chains, "burn_in": 100} if sampler is gibbs else {}
    p = exact(coded, evidence, [target])[0]
    off, ess = [], []
    for seed in range(200):
        result = sampler(coded, evidence, [target], draws=draws, seed=seed, threads=1, **more)
        off.append((result.probabilities[0] - p) / result.mcse[0])
        ess.append(result.ess[0] / result.draws)
    assert 0.85 <= np.std(off) <= 1.15
    assert abs(np.mean(off)) < 4 / math.sqrt(200)
    assert 0.02 < np.mean(ess) < 0.9


# A seed of the system's makes other chains in every run: some of them doubt themselves.
@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_seeds_and_threads(sampler, kernels, monkeypatch):
    coded = random_network(np.random.default_rng(4), [2, 3, 4, 2, 3], 2)
    more = {"chains": 40, "burn_in": 3} if sampler is gibbs else {}
    draws = 2_000 if sampler is gibbs else 20_000
    first, second, other = (
        sampler(coded, {1: 0}, [0, 3], draws=draws, seed=seed, threads=threads, **more)
        for seed, threads in ((5, 1), (5, 2), (6, 1))
    )
    for field in ("probabilities", "mcse", "ess"):
        assert getattr(first, field).tobytes() == getattr(second, field).tobytes()
    assert first.probabilities.tobytes() != other.probabilities.tobytes()
    again = sampler(coded, {1: 0}, [0, 3], draws=draws, threads=1, **more)
    assert again.probabilities.tobytes() != first.probabilities.tobytes()


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:probabilities of 0 tie")
@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_kernels_and_numpy_draw_the_same(monkeypatch):
    coded = random_network(np.random.default_rng(5), [2, 3, 4, 2, 300, 3], 2, 0.1)
    results = []
    for kernels in ("always", "never"):
        monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
        results.append(gibbs(coded, {}, [4, 2], draws=600, chains=20, seed=1, thin=2, burn_in=9))
    np.testing.assert_array_equal(results[0].counts, results[1].counts)


@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_the_algorithm_of_the_textbook__one_chain_every_sweep():
    coded = chain(3)
    result = gibbs(
        coded, {2: 1}, [0, 1], draws=500, burn_in=0, thin=1, chains=1, blocks=False, seed=0
    )
    assert result.draws == result.counts.sum() == 500
    np.testing.assert_array_equal(result.probabilities, result.counts[0] / 500)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_targets_in_their_order__observed_ones_too(sampler):
    coded = random_network(np.random.default_rng(6), [2, 3, 4], 2)
    one = sampler(coded, {1: 2}, [2, 1], draws=3_000, seed=1).probabilities
    other = sampler(coded, {1: 2}, [1, 2], draws=3_000, seed=1).probabilities
    np.testing.assert_array_equal(one, other.T)
    assert one.shape == (4, 3)
    assert (one[:, :2] == 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_evidence_on_every_node(sampler):
    result = sampler(chain(3), {0: 0, 1: 0, 2: 1}, [2], draws=100, seed=0)
    np.testing.assert_array_equal(result.probabilities, [0, 1])
    assert np.isfinite(result.mcse).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_impossible_evidence_is_refused(sampler):
    for evidence in ({0: 0, 1: 0, 2: 1}, {0: 1, 2: 0}):
        with pytest.raises(DataError, match="impossible"):
            sampler(caused(), evidence, [1], draws=1000, seed=0)
    with pytest.raises(DataError, match=r"'or'.*probability 0"):
        gibbs(caused(), {0: 1, 1: 1, 2: 0}, [1], seed=0)
    with pytest.raises(DataError, match="complete search"):
        gibbs(caused(), {0: 1, 2: 0}, [1], seed=0)
    certain = Coded(("a",), np.array([2]), [()], [np.array([1.0, 0.0])])
    with pytest.raises(DataError, match="'a'"):
        sampler(certain, {0: 1}, [0], seed=0)


def parity(n):
    """Return n causes and their parity, made up node by node; and its number."""
    names = tuple(f"x{v}" for v in range(2 * n - 1))
    xor = np.zeros((2, 2, 2))
    for a, b in np.ndindex(2, 2):
        xor[a, b, a ^ b] = 1
    parents = [()] * n + [(0, 1), *((n + k, k + 2) for k in range(n - 2))]
    tables = [np.array([0.999, 0.001])] * n + [xor] * (n - 1)
    return Coded(names, np.full(2 * n - 1, 2), parents, tables), 2 * n - 2


def test_evidence_that_forward_sampling_never_meets__the_search_finds_it():
    coded, last = parity(12)
    improbable = Coded(
        coded.names,
        coded.sizes,
        coded.parents,
        [np.array([1 - 1e-9, 1e-9])] * 12 + coded.tables[12:],
    )
    x = starts(improbable, {last: 1}, 20, np.random.default_rng(0))
    for at in range(20):
        row = x[:, at]
        assert all(
            table[tuple(row[[*above, v]])] > 0
            for v, (above, table) in enumerate(
                zip(improbable.parents, improbable.tables, strict=True)
            )
        )
    assert (x[last] == 1).all()
    assert len(np.unique(x, axis=1).T) > 10


def test_ties__only_zeros_that_are_no_product():
    assert tied(((0, 1, 2), OR)) == (0, 1, 2)
    assert tied(((0, 1), np.array([[0.5, 0.5], [0.2, 0.8]]))) == ()
    # A state that nothing allows is no tie.
    assert tied(((0, 1), np.array([[0.0, 1.0], [0.0, 1.0]]))) == ()
    copy = np.eye(2)[:, None, :] * np.ones((2, 3, 2))
    assert tied(((4, 5, 6), copy)) == (4, 6)
    # Observed, the OR ties its causes; seen to be false, nothing.
    assert compiled(caused(), {2: 1}).blocks == [(0, 1)]
    assert compiled(caused(), {2: 0}).blocks == []


def test_a_block_too_large_is_named__and_what_fits_is_a_block():
    coded, last = parity(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gibbs(coded, {}, [last], draws=2_000, seed=0)
    assert result.blocks == (tuple(range(19)),)
    with pytest.warns(FastBayesWarning) as said:
        result = gibbs(coded, {}, [last], draws=2_000, seed=0, max_block=8)
    ties, doubts = (str(one.message) for one in said)
    assert re.search(r"'x\d+', 'x\d+', 'x\d+'.*max_block=8", ties)
    assert "2 of 2 probabilities never changed" in doubts
    assert len(result.blocks) > 1


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_many_nodes_and_no_edges(sampler):
    rng = np.random.default_rng(0)
    tables = [rng.dirichlet([1, 1, 1]) for _ in range(1000)]
    names = tuple(f"x{v}" for v in range(1000))
    coded = Coded(names, np.full(1000, 3), [()] * 1000, tables)
    more = {"burn_in": 2} if sampler is gibbs else {}
    result = sampler(coded, {3: 0}, [999], draws=2_000, seed=0, **more)
    assert (np.abs(result.probabilities - tables[999]) < 5 * result.mcse).all()


def test_log_evidence_of_likelihood_weighting():
    coded, evidence = chain(6), {2: 0, 5: 1}
    result = likelihood_weighting(coded, evidence, [0], draws=50_000, seed=0)
    expected = math.log(joint_of(coded, evidence).sum())
    assert abs(result.log_evidence - expected) < 4 * result.log_evidence_error < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 0}, "draws=0"),
        ({"burn_in": -1}, "burn_in=-1"),
        ({"thin": 0}, "thin=0"),
        ({"chains": 0}, "chains=0"),
        ({"max_block": 0}, "max_block=0"),
        ({"draws": 1e4}, "draws=10000.0: use a whole number >= 1"),
        ({"draws": None}, "draws=None: use a whole number >= 1"),
        ({"draws": True}, "draws=True: use a whole number >= 1"),
        ({"burn_in": 0.5}, "burn_in=0.5: use a whole number >= 0"),
        ({"thin": 1.5}, "thin=1.5: use a whole number >= 1"),
        ({"chains": 2.0}, "chains=2.0: use a whole number >= 1"),
        ({"seed": -1}, "seed=-1: use a whole number >= 0, or None"),
        ({"seed": "x"}, "seed='x': use a whole number >= 0, or None"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, message):
    samplers = SAMPLERS if {*arguments} <= {"draws", "seed"} else [gibbs]
    for sampler in samplers:
        with pytest.raises(ValueError, match=message):
            sampler(chain(3), **{"evidence": {}, "targets": [0], "seed": 0, **arguments})


def test_too_many_joint_states_are_refused_before_anything_is_allocated():
    coded = chain(40)
    for sampler in SAMPLERS:
        with pytest.raises(MemoryLimitError, match=r"'x0', 'x1'.*fewer targets"):
            sampler(coded, {}, list(range(40)), seed=0)


def test_batches__as_many_draws_as_there_are():
    for draws in (1, 2, 3, 4, 5, 17, 100, 12_345):
        for chains in (1, 2, 16, 1000):
            lengths = batch_lengths(draws, chains)
            assert lengths.sum() == draws
            assert (lengths > 0).all()
            assert len(lengths) == 1 or len(lengths) % 2 == 0


def test_estimates__a_few_draws_and_stuck_chains():
    one = estimates(np.array([[[1, 0]]]), np.array([1]))
    assert one.probabilities.tolist() == [1, 0]
    assert np.isnan([one.mcse, one.ess, one.r_hat]).all()
    stuck = np.zeros((4, 2, 2), np.int64)
    stuck[:2, :, 0] = stuck[2:, :, 1] = 50
    found = estimates(stuck, np.array([50, 50]))
    assert found.probabilities.tolist() == [0.5, 0.5]
    assert np.isnan([found.mcse, found.ess, found.r_hat]).all()
    apart = estimates(np.array([[[1, 1]], [[2, 0]], [[0, 2]]]), np.array([2]))
    assert np.isnan(apart.mcse).all()


def test_split_r_hat__by_hand():
    counts = np.array([[[10, 30], [20, 20]], [[30, 10], [20, 20]]])
    halves = np.array([0.25, 0.5, 0.75, 0.5])
    within = (halves * (1 - halves)).mean() * 40 / 39
    expected = math.sqrt(39 / 40 + halves.var(ddof=1) / within)
    found = estimates(counts, np.array([40, 40]))
    np.testing.assert_allclose(found.r_hat, expected, rtol=1e-14)


def two_state_counts(flip, chains, draws, cells):
    """Return counts in batches of chains that flip between two states, one chain per cell."""
    rng = np.random.default_rng(8)
    lengths = batch_lengths(draws, chains)
    x = rng.random((chains, cells)) < 0.5
    counts = np.zeros((chains, len(lengths), cells), np.int64)
    for batch in np.repeat(np.arange(len(lengths)), lengths):
        x ^= rng.random(x.shape) < flip
        counts[:, batch] += x
    return counts, lengths


@pytest.mark.parametrize(
    ("flip", "chains", "draws"),
    [(0.5, 32, 128), (0.5, 4, 1000), (0.05, 32, 128), (0.05, 4, 1000), (0.025, 16, 256)],
)
def test_standard_errors_of_chains_that_flip(flip, chains, draws):
    found = estimates(*two_state_counts(flip, chains, draws, 2000))
    assert 0.93 < np.std((found.probabilities - 0.5) / found.mcse) < 1.07


def test_standard_errors_of_few_batches_are_corrected():
    found = estimates(*two_state_counts(0.5, 2, 16, 20_000))
    assert 0.95 < np.mean(found.mcse**2) / (0.25 / 32) < 1.45


def test_chains_that_differ_as_a_whole__the_error_is_between_them():
    apart = np.ones((32, 64, 1), np.int64)
    apart[::2] = 49
    found = estimates(apart, np.full(64, 50))
    np.testing.assert_allclose(found.mcse, 0.48 * math.sqrt(1 / 31), rtol=1e-12)
    assert (found.r_hat > 3).all()


@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_thinned_draws_hang_together_less():
    every, some = (
        gibbs(chain(5), {0: 0, 4: 1}, [2], draws=4096, burn_in=20, seed=0, thin=thin).ess
        for thin in (1, 12)
    )
    assert (every < 0.5 * 4096).all()
    assert (some > 0.7 * 4096).all()


def test_weights_of_which_few_rows_have_the_large_ones():
    # Once in 5,000 rows the evidence is a thousand times as probable.
    rare = np.array([0.9998, 0.0002])
    seen = np.array([[0.999, 0.001], [0.0, 1.0]])
    coded = Coded(("a", "b"), np.array([2, 2]), [(), (0,)], [rare, seen])
    with pytest.warns(FastBayesWarning, match=r"effective sample size \d+ is under 400"):
        result = likelihood_weighting(coded, {1: 1}, [0], draws=60_000, seed=1, threads=1)
    p = exact(coded, {1: 1}, [0])
    assert (np.abs(result.probabilities - p) < 4 * result.mcse).all()
    expected = math.log(joint_of(coded, {1: 1}).sum())
    assert abs(result.log_evidence - expected) < 4 * result.log_evidence_error < 0.4
    assert result.ess[0] < 1000


def test_no_random_number_draws_a_state_of_probability_0():
    class Lowest:
        def random(self, n):
            return np.zeros(n)

    class Highest:
        def random(self, n):
            return np.full(n, 1 - 2.0**-53)

    table = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    coded = Coded(("a",), np.array([5]), [()], [table])
    assert (Forward(coded, {}).draw(3, Lowest())[0] == 1).all()
    assert (Forward(coded, {}).draw(3, Highest())[0] == 3).all()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=7),
    deterministic=st.sampled_from([0.0, 0.8]),
    rounds=st.sampled_from([0, 1]),
)
def test_starts_are_possible__or_the_evidence_is_not(seed, sizes, deterministic, rounds):
    rng = np.random.default_rng(seed)
    coded = random_network(rng, sizes, 3, 0.4, deterministic)
    evidence = {v: int(rng.integers(sizes[v])) for v in rng.permutation(len(sizes))[:3].tolist()}
    joint = joint_of(coded, evidence)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts_module, "ROUNDS", rounds)
        if joint.any():
            x = starts(coded, evidence, 5, rng)
            assert (joint[tuple(x.astype(np.int64))] > 0).all()
        else:
            with pytest.raises(DataError, match="is impossible"):
                starts(coded, evidence, 5, rng)


def contradiction(n):
    """Return n causes whose parity is asked for twice, in two orders, and evidence of both."""
    one, last = parity(n)
    xor = one.tables[-1]
    order = [*range(0, n, 2), *range(1, n, 2)]
    names, parents, tables = list(one.names), list(one.parents), list(one.tables)
    before = order[0]
    for v in order[1:]:
        parents.append((before, v))
        before = len(names)
        names.append(f"y{v}")
        tables.append(xor)
    coded = Coded(tuple(names), np.full(len(names), 2), parents, tables)
    return coded, {last: 0, len(names) - 1: 1}


def test_a_search_ends__it_was_complete_or_says_that_it_gave_up(monkeypatch):
    coded, evidence = contradiction(6)
    with pytest.raises(DataError, match="complete search"):
        starts(coded, evidence, 4, np.random.default_rng(0))
    monkeypatch.setattr(starts_module, "STEPS", 50)
    coded, evidence = contradiction(12)
    with pytest.raises(DataError, match=r"no states of the other nodes were found.*50 steps"):
        starts(coded, evidence, 4, np.random.default_rng(0))


def test_small_jobs_do_not_import_numba():
    code = (
        "import sys, numpy as np\n"
        "from fastbayes.networks.graph.coded import Coded\n"
        "from fastbayes.networks.sample.estimates import gibbs_of_groups\n"
        "coded = Coded(('a',), np.array([2]), [()], [np.array([.5, .5])])\n"
        "gibbs_of_groups(coded, {}, [[0]], draws=99)\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
