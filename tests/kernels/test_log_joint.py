from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import log_joint as naive

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans import joint_tables
from fastbayes.kernels.compiled.scoring import log_joint as compiled
from fastbayes.kernels.numpy.scoring import log_joint as numpy_twin

KERNELS = pytest.param(compiled, id="kernels", marks=pytest.mark.compiled)
MODULES = [KERNELS, pytest.param(numpy_twin, id="numpy")]
CLASSES = st.integers(1, 20) | st.sampled_from([2, 2, 3, 16, 17, 40])
WIDTHS = {np.uint8: 254, np.uint16: 65_534, np.uint32: 100_000}


def problem(seed, n_classes, groups, n_numeric, n_rows, impossible=0.0):
    """Return a model and rows for it; `groups` is a list of (dtype of codes, domain sizes)."""
    rng = np.random.default_rng(seed)
    domains = [size for _, sizes in groups for size in sizes]
    dtypes = [dtype for dtype, sizes in groups for _ in sizes]
    offsets = np.cumsum([0, *(size + 2 for size in domains)])
    tables = np.log(rng.uniform(1e-6, 1, (offsets[-1], n_classes)))
    tables[rng.random(tables.shape) < impossible] = -np.inf
    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    gaussian = None
    if n_numeric:
        half = rng.uniform(0.01, 2, (n_numeric, n_classes))
        mean, rest = rng.normal(size=half.shape) * 3, rng.normal(size=half.shape) / 100
        gaussian = mean, half, 0.5 * np.log(half / np.pi), rest
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
    return SimpleNamespace(
        model=(log_prior, tables, offsets, gaussian),
        batch=batch,
        columns=columns,
        numeric=numeric,
        shape=(n_rows, n_classes),
    )


@st.composite
def problems(draw, impossible=(0.0, 0.0, 0.1, 0.5, 0.9)):
    groups = [
        (dtype, draw(st.lists(st.integers(0, 6) | st.sampled_from([13, 60, most]), max_size=many)))
        for (dtype, most), many in zip(WIDTHS.items(), (9, 3, 2), strict=True)
    ]
    return problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        [(dtype, sizes) for dtype, sizes in groups if sizes],
        draw(st.integers(0, 4)),
        draw(st.sampled_from([0, 1, 3, 4, 5, 33])),
        draw(st.sampled_from(impossible)),
    )


def answers(module, case, precision="exact"):
    """Return log joints, posteriors, classes and the two counts of rows that took the prior."""
    scorer = module.NaiveScorer(*case.model, precision)
    joint, posterior = np.full(case.shape, 7.0), np.full(case.shape, 7.0)
    classes = np.full(case.shape[0], -7, np.intp)
    scorer.log_joint(case.batch, case.numeric, joint)
    lost = scorer.posterior(case.batch, case.numeric, posterior)
    return joint, posterior, classes, lost, scorer.predict(case.batch, case.numeric, classes)


def assert_follow(case, joint, posterior, classes, lost, lost_too, error=1e-12):
    """Posteriors and classes are those of the log joints; `error` in nats."""
    expected, gone = naive.posterior(case.model[0], joint.tolist())
    np.testing.assert_allclose(posterior, np.reshape(expected, case.shape), rtol=0, atol=error)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert lost == lost_too == gone
    rows = np.array([r if max(r) > -np.inf else case.model[0] for r in joint.tolist()])
    rows = rows.reshape(case.shape)
    # Nobody is better than the class chosen, and nobody before it is clearly as good.
    chosen = np.take_along_axis(rows, classes[:, None], axis=1)
    assert (rows <= chosen + error).all()
    for row, c, best in zip(rows, classes, chosen, strict=True):
        assert (row[:c] < best - 1e-15).all()


@pytest.mark.parametrize("module", MODULES)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module, case)
    log_prior, tables, offsets, gaussian = case.model
    expected = naive.log_joint(log_prior, tables, offsets, gaussian, case.columns, case.numeric)
    if case.columns or case.numeric:
        np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-11)
    assert_follow(case, joint, *rest)


@pytest.mark.compiled
@given(case=problems())
def test_fast__error_of_log_joint_is_bounded(case):
    exact, *_ = answers(numpy_twin, case)
    joint, *rest = answers(compiled, case, "fast")
    assert (np.isneginf(joint) == np.isneginf(exact)).all()
    _, tables, offsets, _ = case.model
    sizes = np.abs(np.where(np.isfinite(tables), tables, 0)).max(axis=1, initial=0)
    largest = sum(sizes[a:b].max() for a, b in pairwise(offsets))
    bound = len(case.columns) * 2.0**-23 * largest + 1e-11
    finite = np.isfinite(exact)
    assert (np.abs(joint[finite] - exact[finite]) <= bound).all()
    # Ties are as wide as the rounding of the tables, posteriors as far off as log joints.
    assert_follow(case, joint, *rest, error=bound)


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [1, 2, 3, 7, 12, 33])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_many_rows_and_columns__kernels_equal_the_twin(n_classes, precision):
    # Blocks of rows, tiles of classes and groups of columns all end somewhere in the middle.
    groups = [(np.uint8, [2, 4, 12, 4] * 11), (np.uint16, [300, 3]), (np.uint32, [70_000])]
    rows = {1: 70_001, 2: 65_536 + 3, 3: 33_333, 7: 8_321, 12: 4_163, 33: 4_161}[n_classes]
    case = problem(1, n_classes, groups, 3, rows)
    exact = answers(numpy_twin, case)
    result = answers(compiled, case, precision)
    tolerance = 1e-12 if precision == "exact" or n_classes < 3 else 1e-6
    np.testing.assert_allclose(result[0], exact[0], rtol=tolerance)
    np.testing.assert_allclose(result[1], exact[1], rtol=0, atol=600 * tolerance)
    np.testing.assert_allclose(result[1].sum(axis=1), 1, rtol=0, atol=1e-12)
    if tolerance == 1e-12:
        assert (result[2] == exact[2]).all()


@pytest.mark.compiled
@pytest.mark.parametrize("reach", [0.0, 700.0])
@pytest.mark.parametrize(
    ("n_classes", "n_rows"), [(3, 8_195), (4, 16_387), (8, 4_099), (10, 2_081)]
)
def test_tables_alone__products_and_sums_equal_the_twin(n_classes, n_rows, reach, monkeypatch):
    # More groups than are joined at a time, and two matrices of codes.
    groups = [(np.uint8, [2, 4, 12, 4] * 11), (np.uint16, [300, 3])]
    case = problem(7, n_classes, groups, 0, n_rows, impossible=0.02)
    case.model[1][:] *= 0.3
    monkeypatch.setattr(compiled, "MOST_REACH", reach)
    scorer = compiled.NaiveScorer(*case.model)
    product = scorer._joint.product(case.batch, case.numeric, n_rows)
    assert (product is None) == (reach == 0.0)
    exact, result = answers(numpy_twin, case), answers(compiled, case)
    np.testing.assert_allclose(result[1], exact[1], rtol=1e-11, atol=1e-290)
    np.testing.assert_allclose(result[1].sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (result[2] == exact[2]).all()
    assert result[3:] == exact[3:]
    assert 0 < exact[3] < n_rows


@pytest.mark.parametrize("module", MODULES)
def test_logs_beyond_what_weights_reach(module):
    tables = np.array([[0.0, -800.0, -1e4], [-801.0, 0.0, -1e4]])
    scorer = module.NaiveScorer(np.zeros(3), tables, np.array([0, 1, 2]))
    group = Codes(np.arange(2), np.zeros((2, 5), np.uint8), np.ones(2, np.int64))
    out, classes = np.empty((5, 3)), np.empty(5, np.intp)
    assert scorer.posterior([group], [], out) == scorer.predict([group], [], classes) == 0
    assert (classes == 1).all()
    expected = naive.normalise([-801.0, -800.0, -2e4])
    np.testing.assert_allclose(out, [expected] * 5, rtol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [2079, 2080, 2081, 4160, 8191, 8192, 8193])
def test_ends_of_blocks_of_codes(n_classes, n_rows):
    case = problem(2, n_classes, [(np.uint8, [2, 3, 4])], 1, n_rows)
    for one, other in zip(answers(compiled, case), answers(numpy_twin, case), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 4])
def test_very_many_features__smaller_tables(n_classes, monkeypatch):
    case = problem(3, n_classes, [(np.uint8, [2, 4] * 150)], 0, 50)
    monkeypatch.setattr(joint_tables, "ALL", 1)
    result = answers(compiled, case)
    np.testing.assert_allclose(result[0], answers(numpy_twin, case)[0], rtol=1e-12)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 5, 20])
def test_no_class_is_possible__the_prior_answers(module, n_classes):
    prior = np.arange(1.0, n_classes + 1) / (n_classes * (n_classes + 1) / 2)
    tables = np.full((6, n_classes), -np.inf)
    tables[0] = 0.0
    # Value 0 of the first feature only: classes 0 and 1 die in turn, the others at once.
    tables[1, 0] = tables[2, 1] = tables[4] = 0.0
    tables[5, 0] = 0.0
    offsets = np.array([0, 3, 6])
    codes = np.array([[0, 1, 2, 1, 0], [1, 1, 1, 0, 2]], np.uint8)
    scorer = module.NaiveScorer(np.log(prior), tables, offsets)
    group = Codes(np.array([0, 1]), codes, np.array([3, 3]))
    joint, posterior = np.empty((5, n_classes)), np.empty((5, n_classes))
    classes = np.empty(5, np.intp)
    scorer.log_joint([group], [], joint)
    assert list(np.isneginf(joint).all(axis=1)) == [False, False, False, True, False]
    assert scorer.posterior([group], [], posterior) == 1
    assert scorer.predict([group], [], classes) == 1
    certain = np.eye(n_classes)
    expected = [prior, certain[0], certain[1], prior, certain[0]]
    np.testing.assert_allclose(posterior, expected, rtol=1e-14, atol=0)
    assert list(classes) == [n_classes - 1, 0, 1, n_classes - 1, 0]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_prior_of_zero__that_class_is_never_chosen(module, n_classes):
    log_prior = np.full(n_classes, -np.inf)
    log_prior[-1] = 0.0
    scorer = module.NaiveScorer(log_prior, np.zeros((2, n_classes)), np.array([0, 2]))
    group = Codes(np.array([0]), np.zeros((1, 3), np.uint8), np.array([2]))
    out, classes = np.empty((3, n_classes)), np.empty(3, np.intp)
    assert scorer.posterior([group], [], out) == scorer.predict([group], [], classes) == 0
    assert (out == np.eye(n_classes)[-1]).all()
    assert (classes == n_classes - 1).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 9])
def test_numbers_beyond_every_class__the_prior_answers_and_never_nan(module, n_classes):
    half = np.ones((2, n_classes))
    half[1] = 0.0
    zeros = np.zeros((2, n_classes))
    gaussian = zeros, half, zeros, zeros
    log_prior = np.log(np.full(n_classes, 1 / n_classes))
    scorer = module.NaiveScorer(log_prior, np.empty((0, n_classes)), np.array([0]), gaussian)
    numeric = [
        np.array([np.inf, -1e200, 0.0, np.nan, 0.0]),
        np.array([0, 0, np.inf, np.nan, 1e300]),
    ]
    out, joint = np.empty((5, n_classes)), np.empty((5, n_classes))
    classes = np.empty(5, np.intp)
    assert scorer.posterior([], numeric, out) == scorer.predict([], numeric, classes) == 2
    np.testing.assert_allclose(out, 1 / n_classes, rtol=1e-14)
    scorer.log_joint([], numeric, joint)
    assert (joint[:2] == -np.inf).all()
    np.testing.assert_allclose(joint[2:], log_prior[0], rtol=1e-14)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_ties_on_paper__lowest_class_whatever_the_order_of_columns(module, precision, n_classes):
    rng = np.random.default_rng(4)
    d, size = 3 * n_classes, 5
    one = np.log(rng.dirichlet(np.ones(size + 2), d))
    # Class c has the tables of the others, moved by c columns; every column has the same code.
    tables = np.stack([np.roll(one, c, axis=0).ravel() for c in range(n_classes)], axis=1)
    codes = np.repeat(rng.integers(0, size + 2, (1, 500)), d, axis=0).astype(np.uint8)
    offsets = np.arange(d + 1) * (size + 2)
    scorer = module.NaiveScorer(np.zeros(n_classes), tables, offsets, None, precision)
    group = Codes(np.arange(d), codes, np.full(d, size + 2))
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
    scorer = module.NaiveScorer(np.log(prior), np.empty((0, n_classes)), np.array([0]))
    for n_rows in (0, 1, 6):
        empty = Codes(np.empty(0, np.int64), np.empty((0, n_rows), np.uint8), np.empty(0, np.int64))
        for batch in ([], [empty]):
            out = np.empty((n_rows, n_classes))
            assert scorer.posterior(batch, [], out) == 0
            np.testing.assert_allclose(out, np.tile(prior, (n_rows, 1)), rtol=1e-14)
            scorer.log_joint(batch, [], out)
            np.testing.assert_allclose(out, np.tile(np.log(prior), (n_rows, 1)))


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_left_alone_and_may_change_afterwards(module):
    case = problem(5, 3, [(np.uint8, [2, 3])], 2, 20)
    before = answers(module, case)
    scorer = module.NaiveScorer(*case.model)
    log_prior, tables, offsets, gaussian = case.model
    for array in (*(column for group in case.batch for column in group), *case.numeric):
        array.flags.writeable = False
    first = np.empty(case.shape)
    scorer.log_joint(case.batch, case.numeric, first)
    for array in (log_prior, tables, offsets, *gaussian):
        array[:] = 0
    again = np.empty(case.shape)
    scorer.log_joint(case.batch, case.numeric, again)
    assert first.tobytes() == again.tobytes() == before[0].tobytes()


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
def test_threads_may_share_a_scorer(n_classes):
    case = problem(6, n_classes, [(np.uint8, [2, 4, 3] * 5), (np.uint16, [9])], 2, 3000)
    expected = answers(compiled, case)[1]
    scorer = compiled.NaiveScorer(*case.model)

    def score(_):
        out = np.empty(case.shape)
        scorer.posterior(case.batch, case.numeric, out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(score, range(16))) == {expected.tobytes()}
