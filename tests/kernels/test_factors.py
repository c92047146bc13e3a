from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import factors as naive
from scoring import CLASSES, answers, assert_follow, grouped

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans import joint_tables
from fastbayes.kernels.compiled.scoring import factors as compiled
from fastbayes.kernels.numpy.scoring import factors as numpy_twin

KERNELS = pytest.param(compiled, id="kernels", marks=pytest.mark.compiled)
MODULES = [KERNELS, pytest.param(numpy_twin, id="numpy")]


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


def states_of(codes):
    """Return how many codes, the first ones, are values; missing is one if it is an observation."""
    return max(len(codes) - 2 + (not codes[-2]), 1)


def tree_problem(
    seed, n_classes, sizes, shape, n_rows, impossible=0.0, gone=0.2, missing_is_value=0.0
):
    """Return a tree model and rows for it, of whose cells a share `gone` is not observed."""
    rng = np.random.default_rng(seed)
    d = len(sizes)
    parents = parents_of(rng, d, shape)
    tables, hidden = [], []
    for j, size in enumerate(sizes):
        codes = np.zeros(size + 2, np.bool_)
        codes[size:] = rng.random(2) >= missing_is_value
        hidden.append(codes)
        above, states = 1 if parents[j] < 0 else sizes[parents[j]] + 2, states_of(codes)
        chance = rng.uniform(1e-6, 1, (above, size + 2, n_classes))
        chance[rng.random(chance.shape) < impossible] = 0.0
        chance[:, :states] += chance[:, :states].sum(axis=1, keepdims=True) == 0
        with np.errstate(divide="ignore"):
            tables.append(np.log(chance / chance[:, :states].sum(axis=1, keepdims=True)))
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
        draw(st.sampled_from([0.5, 0.0])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(case=tree_problems())
def test_tree_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.TreeScorer(*case.model), case)
    expected = naive.tree(*case.model, case.columns, case.shape[0])
    np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-12)
    assert_follow(case, joint, *rest)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_missing_is_a_value__what_is_unseen_may_be_missing(module, n_classes, shape):
    case = tree_problem(2, n_classes, [2, 3, 1, 4, 0, 2], shape, 60, gone=0.5)
    for codes in case.model[3]:
        codes[-2] = False
    joint, *rest = answers(module.TreeScorer(*case.model), case)
    np.testing.assert_allclose(joint, naive.tree(*case.model, case.columns, 60), rtol=1e-12)
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
            range(states_of(codes)) if codes[column[r]] else [column[r]]
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


def assert_same(case, one, other, error=1e-12):
    """Two sets of answers agree, log joints to a relative and posteriors to an absolute error."""
    np.testing.assert_allclose(one[0], other[0], rtol=error, atol=error)
    np.testing.assert_allclose(one[1], other[1], rtol=0, atol=100 * error)
    np.testing.assert_allclose(one[1].sum(axis=1), 1, rtol=0, atol=1e-12)
    assert one[3:] == other[3:]
    assert_follow(case, *one, error=max(error, 1e-12))


SIZES = [2, 4, 12, 4] * 8 + [300, 3, 300]


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [1, 2, 3, 7, 12, 33])
@pytest.mark.parametrize("gone", [0.0, 0.02])
def test_many_rows__kernels_equal_the_twin(n_classes, gone):
    # Blocks of rows, tiles of classes and look-ups all end somewhere in the middle.
    rows = {1: 16_387, 2: 65_536 + 3, 3: 16_387, 7: 8_321, 12: 4_163, 33: 4_161}[n_classes]
    rows = rows if not gone else 4_161
    case = tree_problem(1, n_classes, SIZES, "any", rows, gone=gone)
    exact = answers(numpy_twin.TreeScorer(*case.model), case)
    assert_same(case, answers(compiled.TreeScorer(*case.model), case), exact)
    coarse = answers(compiled.TreeScorer(*case.model, "fast"), case)
    assert_same(case, coarse, exact, 1e-6 if n_classes > 2 else 1e-12)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_observed__the_prior(module, n_classes, shape):
    case = tree_problem(3, n_classes, [2, 3, 0, 1, 5], shape, 20, gone=1.0)
    joint, posterior, *_ = answers(module.TreeScorer(*case.model), case)
    prior = case.model[0]
    np.testing.assert_array_equal(joint, np.tile(prior, (20, 1)))
    np.testing.assert_allclose(posterior, np.tile(np.exp(prior), (20, 1)), rtol=1e-14)


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
def test_clean_batches_have_tables_of_their_own(n_classes):
    sizes = [2, 3, 4, 1, 4, 3]
    case = tree_problem(4, n_classes, sizes, "any", 300, gone=0.0)
    scorer, slow = compiled.TreeScorer(*case.model), numpy_twin.TreeScorer(*case.model)
    for level in range(3):
        # All values, then something missing, then something unseen.
        if level:
            for column, size in zip(case.columns, sizes, strict=True):
                column[::7] = size + level - 1
            case.batch = grouped(np.random.default_rng(0), case.columns, sizes)
        assert_same(case, answers(scorer, case), answers(slow, case))
        assert sorted(scorer._joint._parts) == list(range(level + 1))
        for features, table in scorer._joint._parts[level][0]:
            assert table.shape[:-1] == tuple(sizes[j] + level for j in features)


@pytest.mark.compiled
def test_tables_that_share_columns_are_looked_up_together():
    case = tree_problem(5, 2, [4] * 30, "any", 1000, gone=0.0)
    scorer = compiled.TreeScorer(*case.model)
    assert_same(case, answers(scorer, case), answers(numpy_twin.TreeScorer(*case.model), case))
    assert len(scorer._odds._parts[0][0]) <= 8


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_more_columns_of_one_value_than_a_table_has_axes(n_classes, shape):
    case = tree_problem(6, n_classes, [1] * 100 + [3] * 3, shape, 50, gone=0.0)
    slow = numpy_twin.TreeScorer(*case.model)
    assert_same(case, answers(compiled.TreeScorer(*case.model), case), answers(slow, case))


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 3])
def test_tables_too_large_for_short_codes(n_classes):
    # 300 · 300 cells, in columns of two widths; nothing at all; the same columns twice.
    case = factor_problem(6, n_classes, [300, 200, 2, 300, 3], 0, 800)
    rng = np.random.default_rng(6)
    features = [(0, 3), (1, 2), (3,), (), (4, 1), (1, 4), (2, 3, 4)]
    sizes = case.model[2]
    factors = [
        (some, rng.normal(size=(int(np.prod(sizes[list(some)] + 2)), n_classes)))
        for some in features
    ]
    case.model = (case.model[0], factors, sizes)
    scorer = compiled.FactorScorer(*case.model)
    assert_same(case, answers(scorer, case), answers(numpy_twin.FactorScorer(*case.model), case))
    assert any(parts[1] for parts in scorer._joint._parts.values())


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 4])
def test_very_many_features__smaller_tables(n_classes, monkeypatch):
    case = tree_problem(7, n_classes, [2, 4] * 100, "any", 50, gone=0.0)
    monkeypatch.setattr(joint_tables, "ALL", 1)
    result = answers(compiled.TreeScorer(*case.model), case)
    np.testing.assert_allclose(
        result[0], answers(numpy_twin.TreeScorer(*case.model), case)[0], rtol=1e-12
    )


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("gone", [0.0, 0.3])
def test_no_class_is_possible__the_prior_answers(module, n_classes, gone):
    case = tree_problem(8, n_classes, [4, 5, 3], "chain", 400, impossible=0.5, gone=gone)
    result = answers(module.TreeScorer(*case.model), case)
    lost = np.isneginf(result[0]).all(axis=1)
    assert 0 < lost.sum() == result[3] == result[4] < 400
    prior = np.exp(case.model[0])
    np.testing.assert_allclose(result[1][lost], np.tile(prior, (lost.sum(), 1)), rtol=1e-13)
    assert (result[2][lost] == np.argmax(prior)).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_ties_on_paper__lowest_class_whatever_the_order_of_columns(module, precision, n_classes):
    rng = np.random.default_rng(9)
    d, size = 3 * n_classes, 5
    one = np.log(rng.dirichlet(np.ones(size), (d, size + 2)))
    one = np.pad(one, ((0, 0), (0, 0), (0, 2)))
    # Class c has the tables of the others, moved by c columns; every column has the same code.
    tables = np.stack([np.roll(one, c, axis=0) for c in range(n_classes)], axis=-1)
    root = np.zeros((1, size + 2, n_classes))
    hidden = [np.array([False] * size + [True] * 2)] * (d + 1)
    scorer = module.TreeScorer(
        np.zeros(n_classes), np.array([-1] + [0] * d), [root, *tables], hidden, precision
    )
    # In the last rows the parent is not observed.
    codes = np.repeat(rng.integers(0, size, (1, 500)), d + 1, axis=0).astype(np.uint8)
    codes[0, 400:] = size
    group = Codes(np.arange(d + 1), codes, np.full(d + 1, size + 2))
    out, classes = np.empty((500, n_classes)), np.empty(500, np.intp)
    scorer.predict([group], [], classes)
    assert (classes == 0).all()
    scorer.posterior([group], [], out)
    assert (out == out[0, 0]).all()
    assert abs(out[0, 0] * n_classes - 1) < 1e-15


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 20])
def test_nothing_to_score(module, n_classes):
    prior = np.random.default_rng(0).dirichlet(np.ones(n_classes))
    none = np.empty(0, np.int64)
    for scorer in (
        module.TreeScorer(np.log(prior), none, [], []),
        module.FactorScorer(np.log(prior), [], none),
    ):
        for n_rows in (0, 1, 6):
            empty = Codes(none, np.empty((0, n_rows), np.uint8), none)
            for batch in ([], [empty]):
                out = np.empty((n_rows, n_classes))
                assert scorer.posterior(batch, [], out) == 0
                np.testing.assert_allclose(out, np.tile(prior, (n_rows, 1)), rtol=1e-14)
                scorer.log_joint(batch, [], out)
                np.testing.assert_allclose(out, np.tile(np.log(prior), (n_rows, 1)))


@pytest.mark.parametrize("module", MODULES)
def test_parents_in_a_circle_are_refused(module):
    hidden = [np.array([False, True, True])] * 2
    tables = [np.zeros((3, 3, 2))] * 2
    with pytest.raises(ValueError, match="circle"):
        module.TreeScorer(np.zeros(2), np.array([1, 0]), tables, hidden)


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_left_alone_and_may_change_afterwards(module):
    trees = tree_problem(10, 3, [2, 3, 4], "any", 20, gone=0.3)
    sums = factor_problem(10, 3, [2, 3, 4], 4, 20)
    for case, kind in ((trees, "TreeScorer"), (sums, "FactorScorer")):
        scorer = getattr(module, kind)(*case.model)
        for array in (column for group in case.batch for column in group):
            array.flags.writeable = False
        first = np.empty(case.shape)
        scorer.log_joint(case.batch, [], first)
        log_prior, second, third, *rest = case.model
        arrays = [log_prior, second, *third, *rest[0]] if rest else [log_prior, third]
        for array in arrays if rest else [*arrays, *(table for _, table in second)]:
            array[:] = 0
        again = np.empty(case.shape)
        scorer.log_joint(case.batch, [], again)
        assert first.tobytes() == again.tobytes()
        assert np.isfinite(first).all()


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
def test_threads_may_share_a_scorer(n_classes):
    case = tree_problem(11, n_classes, [2, 4, 3] * 5 + [9], "any", 3000, gone=0.05)
    expected = answers(compiled.TreeScorer(*case.model), case)[1]
    scorer = compiled.TreeScorer(*case.model)

    def score(_):
        out = np.empty(case.shape)
        scorer.posterior(case.batch, [], out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(score, range(16))) == {expected.tobytes()}
