from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import linear as naive
from oracles.log_joint import normalise

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.scoring import linear as compiled
from fastbayes.kernels.numpy.scoring import linear as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]


def problem(seed, n_classes, groups, n_numeric, n_rows, n_pairs=0):
    """Return a model and rows for it; `groups` is a list of (dtype of codes, domain sizes)."""
    rng = np.random.default_rng(seed)
    domains = np.array([size for _, sizes in groups for size in sizes], np.int64)
    dtypes = [dtype for dtype, sizes in groups for _ in sizes]
    small = np.flatnonzero(domains < 400)
    pairs = [tuple(map(int, rng.permutation(small)[:2])) for _ in range(n_pairs)]
    pairs = [pair for pair in pairs if len(pair) == 2]
    rows = [*(domains + 2), *((domains[a] + 2) * (domains[b] + 2) for a, b in pairs)]
    offsets = np.cumsum([0, *rows])
    lines = rng.normal(size=(3, n_numeric, n_classes))
    model = (
        *(rng.normal(size=n_classes), rng.normal(size=(offsets[-1], n_classes)), offsets),
        *(rng.normal(size=n_numeric) * 10, *lines, pairs),
    )
    columns = [rng.integers(0, size + 2, n_rows) for size in domains]
    numeric = [rng.normal(size=n_rows) * 5 for _ in range(n_numeric)]
    for column in numeric:
        column[rng.random(n_rows) < 0.2] = np.nan
    # The features of a group are in any order, and so are the groups.
    batch = []
    for dtype in rng.permutation(list(dict.fromkeys(dtypes))):
        features = rng.permutation([j for j, kind in enumerate(dtypes) if kind is dtype])
        codes = np.array([columns[j] for j in features], dtype).reshape(len(features), n_rows)
        batch.append(Codes(features, codes, np.array([domains[j] + 2 for j in features])))
    shape = n_rows, n_classes
    return SimpleNamespace(model=model, batch=batch, columns=columns, numeric=numeric, shape=shape)


@st.composite
def problems(draw):
    widths = {np.uint8: 254, np.uint16: 65_534, np.uint32: 100_000}
    groups = [
        (dtype, draw(st.lists(st.integers(0, 6) | st.sampled_from([13, most]), max_size=many)))
        for (dtype, most), many in zip(widths.items(), (6, 2, 1), strict=True)
    ]
    return problem(
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([1, 2, 2, 3, 5, 17])),
        [(dtype, sizes) for dtype, sizes in groups if sizes],
        draw(st.integers(0, 5)),
        draw(st.sampled_from([0, 1, 3, 4, 33])),
        draw(st.integers(0, 3)),
    )


def answers(module, case):
    """Return scores, posteriors, classes and the two counts of rows that took the prior."""
    scorer = module.LinearModelScorer(*case.model)
    joint, posterior = np.full(case.shape, 7.0), np.full(case.shape, 7.0)
    classes = np.full(case.shape[0], -7, np.intp)
    scorer.log_joint(case.batch, case.numeric, joint)
    lost = scorer.posterior(case.batch, case.numeric, posterior)
    return joint, posterior, classes, lost, scorer.predict(case.batch, case.numeric, classes)


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=30)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, posterior, classes, lost, lost_too = answers(module, case)
    expected = naive.scores(*case.model, case.columns, case.numeric)
    if not (case.columns or case.numeric):
        expected = [list(case.model[0])] * case.shape[0]
    expected = np.reshape(expected, case.shape)
    np.testing.assert_allclose(joint, expected, rtol=1e-12, atol=1e-11)
    shares = np.reshape([normalise(row) for row in expected.tolist()], case.shape)
    np.testing.assert_allclose(posterior, shares, rtol=0, atol=1e-12)
    assert lost == lost_too == 0
    chosen = np.take_along_axis(expected, classes[:, None], axis=1)
    assert (expected <= chosen + 1e-11).all()


@pytest.mark.compiled
@pytest.mark.parametrize(("n_classes", "n_rows"), [(2, 65_539), (3, 33_333), (12, 4_163)])
def test_many_rows_and_columns__kernels_equal_the_twin(n_classes, n_rows):
    groups = [(np.uint8, [2, 4, 12, 4] * 3), (np.uint16, [300, 3]), (np.uint32, [70_000])]
    case = problem(1, n_classes, groups, 3, n_rows, n_pairs=4)
    result, exact = answers(compiled, case), answers(numpy_twin, case)
    np.testing.assert_allclose(result[0], exact[0], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(result[1], exact[1], rtol=0, atol=1e-12)
    assert (result[2] == exact[2]).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_largest_numbers__never_nan(module, n_classes):
    most = np.finfo(np.float64).max
    x = np.array([most, -most, np.nan, 0.0])
    slope = np.array([np.arange(n_classes), np.zeros(n_classes), 1.0 - np.arange(n_classes)])
    absent = np.zeros((3, n_classes))
    absent[0, -1] = 5.0
    scorer = module.LinearModelScorer(
        *(np.zeros(n_classes), np.empty((0, n_classes)), np.array([0])),
        *(np.array([-most, most, 0.0]), slope * 1e100, np.zeros_like(slope), absent),
    )
    out, classes = np.empty((4, n_classes)), np.empty(4, np.intp)
    assert scorer.posterior((), [x, x, x], out) == 0
    scorer.predict((), [x, x, x], classes)
    # The largest number is as far from both centers as numbers are taken to be, and its two slopes
    # cancel; -max is at its center; a missing number has what is said of it.
    np.testing.assert_allclose(out[0], 1 / n_classes, rtol=1e-14)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-14)
    assert list(classes) == [0, n_classes - 1, n_classes - 1, n_classes - 1]


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_left_alone_and_may_change_afterwards(module):
    case = problem(5, 3, [(np.uint8, [2, 3])], 2, 20, n_pairs=1)
    before = answers(module, case)
    scorer = module.LinearModelScorer(*case.model)
    for array in (*(column for group in case.batch for column in group), *case.numeric):
        array.flags.writeable = False
    for array in case.model[:-1]:
        array[:] = 0
    again = np.empty(case.shape)
    scorer.log_joint(case.batch, case.numeric, again)
    assert again.tobytes() == before[0].tobytes()


@pytest.mark.compiled
def test_threads_may_share_a_scorer():
    case = problem(6, 5, [(np.uint8, [2, 4, 3] * 5), (np.uint16, [9])], 3, 3000, n_pairs=2)
    expected = answers(compiled, case)[1]
    scorer = compiled.LinearModelScorer(*case.model)

    def score(_):
        out = np.empty(case.shape)
        scorer.posterior(case.batch, case.numeric, out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(score, range(16))) == {expected.tobytes()}
