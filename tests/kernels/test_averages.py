from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import averages as naive
from scoring import CLASSES, answers, assert_follow, grouped

from fastbayes.kernels import averages as compiled
from fastbayes.plain import averages as plain

KERNELS = pytest.param(compiled, id="kernels", marks=pytest.mark.compiled)
MODULES = [KERNELS, pytest.param(plain, id="plain")]


def problem(
    seed, n_classes, sizes, n_rows, impossible=0.0, barred=0.1, gone=0.1, smooth=False, alike=1.0
):
    """Return an AODE model and rows for it.

    barred    share of values that may not be super-parents
    gone      share of cells that are missing or unseen
    smooth    whether unseen values have a mass of their own
    alike     1 for any probabilities; towards 0, the nearer to independent features
    """
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *(size + 2 for size in sizes)])
    n_slots = int(offsets[-1])
    known = np.zeros(n_slots, np.bool_)
    for begin, size in zip(offsets[:-1], sizes, strict=True):
        known[begin : begin + size] = True
    said = known.copy()
    if smooth:
        said[offsets[1:] - 1] = True

    def chances(*above):
        chance = rng.uniform(1e-6, 1, (*above, n_slots, n_classes)) ** alike
        chance[rng.random(chance.shape) < impossible] = 0.0
        for begin, size in zip(offsets[:-1], sizes, strict=True):
            chance[..., begin : begin + size + 2, :] /= max(size, 1) / 2
        return np.where(said[:, None], chance, 1.0)

    with np.errstate(divide="ignore"):
        tables = np.log(chances())
    own = np.where(known[:, None], rng.uniform(0, 1, (n_slots, n_classes)), 0.0)
    own[rng.random(own.shape) < impossible] = 0.0
    weight = np.where(known & (rng.random(n_slots) >= barred), 1.0, 0.0)
    if rng.random() < 0.3:
        weight *= rng.uniform(0.1, 3, n_slots)
    children = [chances(size + 2) for size in sizes]
    for p, (begin, end) in enumerate(itertools.pairwise(offsets)):
        children[p][:, begin:end] = np.nan  # not to be read
    columns = [
        np.where(
            (rng.random(n_rows) < gone) | (size == 0),
            size + rng.integers(0, 2, n_rows),
            rng.integers(0, max(size, 1), n_rows),
        )
        for size in sizes
    ]
    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    return SimpleNamespace(
        model=(log_prior, tables, offsets, own, weight, children.__getitem__),
        children=children,
        batch=grouped(rng, columns, sizes),
        columns=columns,
        shape=(n_rows, n_classes),
    )


@st.composite
def problems(draw):
    return problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        draw(st.lists(st.integers(0, 5) | st.sampled_from([1, 2, 2, 13, 300]), max_size=9)),
        draw(st.sampled_from([0, 1, 3, 4, 5, 33])),
        draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])),
        draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0])),
        draw(st.booleans()),
        draw(st.sampled_from([0.1, 1.0, 8.0])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.AverageScorer(*case.model), case)
    *first, _ = case.model
    expected = naive.averages(*first, case.children, case.columns, case.shape[0])
    np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-11)
    assert_follow(case, joint, *rest)
