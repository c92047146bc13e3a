from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import pair_averages as naive
from scoring import CLASSES, answers, assert_follow, grouped

from fastbayes.kernels.compiled.scoring import pair_averages as compiled
from fastbayes.kernels.numpy.scoring import pair_averages as numpy_twin
from fastbayes.kernels.numpy.scoring.log_joint import NaiveScorer
from fastbayes.kernels.shared.pair_averages import Pair
from fastbayes.kernels.shared.scoring import tie_of

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]


def problem(seed, n_classes, sizes, n_rows, impossible=0.0, barred=0.1, gone=0.1, small=1.0):
    """Return an A2DE model and rows for it.

    barred  share of pairs of values that may not be parents
    gone    share of cells that are missing or unseen
    small   the larger, the nearer to 0 some probabilities are
    """
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *(size + 2 for size in sizes)])
    n_slots = int(offsets[-1])
    known = np.zeros(n_slots, np.bool_)
    for begin, size in zip(offsets[:-1], sizes, strict=True):
        known[begin : begin + size] = True

    def chances(*above):
        chance = rng.uniform(1e-6, 1, (*above, n_slots, n_classes)) ** small
        chance[rng.random(chance.shape) < impossible] = 0.0
        return np.where(known[:, None], chance, 1.0)

    pairs, told = [], []
    for i, j in itertools.combinations(range(len(sizes)), 2):
        allowed = np.zeros((sizes[i] + 2, sizes[j] + 2), np.bool_)
        allowed[: sizes[i], : sizes[j]] = rng.random((sizes[i], sizes[j])) >= barred
        if not allowed.any():
            continue
        state = np.full(allowed.shape, -1)
        n = int(allowed.sum())
        state[allowed] = rng.permutation(n)
        own, children = rng.uniform(0, 1, (n, n_classes)), chances(n)
        own[rng.random(own.shape) < impossible] = 0.0
        for p in (i, j):
            children[:, offsets[p] : offsets[p + 1]] = np.nan  # not to be read
        pairs.append(Pair(i, j, state))
        told.append((own, children))
    columns = [
        np.where(
            (rng.random(n_rows) < gone) | (size == 0),
            size + rng.integers(0, 2, n_rows),
            rng.integers(0, max(size, 1), n_rows),
        )
        for size in sizes
    ]
    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    with np.errstate(divide="ignore"):
        tables = np.log(chances())
    tie = tie_of(log_prior, tables, offsets)
    reference = rng.uniform(0.1, 1, n_slots)
    return SimpleNamespace(
        model=(log_prior, offsets, reference, pairs, told.__getitem__, tie),
        fallback=NaiveScorer(log_prior, tables, offsets),
        batch=grouped(rng, columns, sizes),
        columns=columns,
        shape=(n_rows, n_classes),
    )


@st.composite
def problems(draw, small=(1.0, 1.0, 8.0, 80.0)):
    return problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        draw(st.lists(st.integers(0, 4) | st.sampled_from([1, 2, 2]), max_size=6)),
        draw(st.sampled_from([0, 1, 3, 33])),
        draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])),
        draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0])),
        draw(st.sampled_from(small)),
    )


def expected_of(case):
    alone = np.full(case.shape, 7.0)
    case.fallback.log_joint(case.batch, [], alone)
    _, offsets, _, pairs, tables, _ = case.model
    told = alone, offsets, pairs, tables, case.columns, *case.shape
    return np.reshape(naive.pair_averages(*told), case.shape)


@pytest.mark.parametrize("module", MODULES)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.PairAverageScorer(case.fallback, *case.model), case)
    np.testing.assert_allclose(joint, expected_of(case), rtol=1e-12, atol=1e-11)
    assert_follow(case, joint, *rest)


@pytest.mark.compiled
@given(case=problems(small=(1.0, 8.0)))
def test_fast_is_near(case):
    scorer = compiled.PairAverageScorer(case.fallback, *case.model, "fast")
    joint, *rest = answers(scorer, case)
    np.testing.assert_allclose(joint, expected_of(case), rtol=0, atol=1e-5)
    assert_follow(case, joint, *rest, error=1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize(("small", "kind"), [(1.0, "float32"), (8.0, "float64"), (80.0, None)])
def test_the_type_is_one_that_products_fit(small, kind):
    case = problem(0, 3, [4] * 6, 50, small=small, gone=0.0, barred=0.0)
    scorer = compiled.PairAverageScorer(case.fallback, *case.model, "fast")
    assert (scorer._twin is None) == (kind is not None)
    assert kind is None or scorer._products._own.dtype == kind


@pytest.mark.compiled
def test_many_rows_are_scored_block_by_block():
    case = problem(1, 3, [3] * 5, 2 * compiled.ROWS + 17, gone=0.4, barred=0.6)
    joints = []
    for module in (compiled, numpy_twin):
        joint, *rest = answers(module.PairAverageScorer(case.fallback, *case.model), case)
        assert_follow(case, joint, *rest)
        joints.append(joint)
    np.testing.assert_allclose(*joints, rtol=1e-12, atol=1e-11)
