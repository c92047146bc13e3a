from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import factors as naive
from scoring import CLASSES, answers, assert_follow, grouped

from fastbayes.batch import Codes
from fastbayes.kernels import factors as compiled
from fastbayes.plain import factors as plain

KERNELS = pytest.param(compiled, id="kernels", marks=pytest.mark.compiled)
MODULES = [KERNELS, pytest.param(plain, id="plain")]


# All of a large feature's values are summed over: one is enough.
@st.composite
def sizes_and(draw, large):
    sizes = draw(st.lists(st.integers(0, 5) | st.sampled_from([1, 2]), max_size=9))
    some = draw(st.lists(large, max_size=1))
    return [*sizes[:4], *some, *sizes[4:]]


SHAPES = ["any", "star", "chain", "forest", "roots"]


def parents_of(rng, d, shape):
    """Return the parents of a forest over d features in any order."""
    order = rng.permutation(d)
    parents = np.full(d, -1)
    for at in range(1, d):
        above = {"star": 0, "chain": at - 1}.get(shape, rng.integers(at))
        if shape != "roots" and not (shape == "forest" and rng.random() < 0.3):
            parents[order[at]] = order[above]
    return parents


def tree_problem(
    seed, n_classes, sizes, shape, n_rows, impossible=0.0, gone=0.2, missing_is_value=0.0
):
    """Return a tree model and rows for it, of whose cells a share `gone` is not observed."""
    rng = np.random.default_rng(seed)
    d = len(sizes)
    parents = parents_of(rng, d, shape)
    tables, hidden = [], []
    for j, size in enumerate(sizes):
        above = 1 if parents[j] < 0 else sizes[parents[j]] + 2
        chance = rng.uniform(1e-6, 1, (above, size + 2, n_classes))
        chance[rng.random(chance.shape) < impossible] = 0.0
        chance[:, : max(size, 1)] += chance[:, : max(size, 1)].sum(axis=1, keepdims=True) == 0
        with np.errstate(divide="ignore"):
            tables.append(np.log(chance / chance[:, : max(size, 1)].sum(axis=1, keepdims=True)))
        codes = np.zeros(size + 2, np.bool_)
        codes[size:] = rng.random(2) >= missing_is_value if size else True
        hidden.append(codes)
    columns = [
        np.where(rng.random(n_rows) < gone, size + rng.integers(0, 2, n_rows), 0) for size in sizes
    ]
    for column, size in zip(columns, sizes, strict=True):
        known = column < max(size, 1)
        column[known] = rng.integers(0, max(size, 1), known.sum())
    return SimpleNamespace(
        model=(np.log(rng.dirichlet(np.ones(n_classes))), parents, tables, hidden),
        batch=grouped(rng, columns, sizes),
        columns=columns,
        shape=(n_rows, n_classes),
    )


@st.composite
def tree_problems(draw):
    return tree_problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        draw(sizes_and(st.sampled_from([13, 300]))),
        draw(st.sampled_from(SHAPES)),
        draw(st.sampled_from([0, 1, 3, 4, 5, 33])),
        draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])),
        draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])),
        draw(st.sampled_from([0.0, 0.0, 0.5])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(case=tree_problems())
def test_tree_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.TreeScorer(*case.model), case)
    expected = naive.tree(*case.model, case.columns, case.shape[0])
    np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-12)
    assert_follow(case, joint, *rest)


@pytest.mark.parametrize("module", MODULES)
@given(case=tree_problems())
def test_log_joint_of_hidden_cells_is_the_sum_over_completions(module, case):
    _, _, _, hidden = case.model
    scorer = module.TreeScorer(*case.model)
    joint = np.empty(case.shape)
    scorer.log_joint(case.batch, [], joint)
    for r in range(case.shape[0]):
        choices = [
            range(max(len(codes) - 2, 1)) if codes[column[r]] else [column[r]]
            for codes, column in zip(hidden, case.columns, strict=True)
        ]
        if np.prod([len(choice) for choice in choices]) > 2000:
            continue
        completions = np.array(list(itertools.product(*choices)), np.uint32).T
        every = Codes(
            np.arange(len(choices)), completions, np.array([len(codes) for codes in hidden])
        )
        joints = np.empty((max(completions.shape[-1], 1), case.shape[1]))
        scorer.log_joint([every] if choices else [], [], joints)
        total = np.logaddexp.reduce(joints, axis=0)
        np.testing.assert_allclose(joint[r], total, rtol=1e-11, atol=1e-11)


def factor_problem(seed, n_classes, sizes, n_factors, n_rows, impossible=0.0):
    """Return a model that is a sum of tables over up to three features, and rows for it."""
    rng = np.random.default_rng(seed)
    factors = []
    for _ in range(n_factors):
        features = rng.permutation(len(sizes))[: rng.integers(0, 4)]
        cells = int(np.prod([sizes[j] + 2 for j in features]))
        if cells < 50_000:
            table = np.log(rng.uniform(1e-6, 1, (cells, n_classes)))
            table[rng.random(table.shape) < impossible] = -np.inf
            factors.append((tuple(features.tolist()), table))
    columns = [rng.integers(0, size + 2, n_rows) for size in sizes]
    return SimpleNamespace(
        model=(np.log(rng.dirichlet(np.ones(n_classes))), factors, np.array(sizes, np.int64)),
        batch=grouped(rng, columns, sizes),
        columns=columns,
        shape=(n_rows, n_classes),
    )


@st.composite
def factor_problems(draw):
    return factor_problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        draw(sizes_and(st.sampled_from([13, 300, 66_000]))),
        draw(st.integers(0, 9)),
        draw(st.sampled_from([0, 1, 3, 4, 5, 33])),
        draw(st.sampled_from([0.0, 0.0, 0.2, 0.9])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(case=factor_problems())
def test_factor_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.FactorScorer(*case.model), case)
    expected = naive.factors(*case.model, case.columns, case.shape[0])
    np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-12)
    assert_follow(case, joint, *rest)
