from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import log_joint as sums
from oracles import quadratic as naive

from fastbayes.core import one_thread
from fastbayes.kernels.compiled.scoring import quadratic as compiled
from fastbayes.kernels.numpy.scoring import quadratic as numpy_twin
from fastbayes.kernels.shared.quadratic import Quadratics, patterns

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]


def densities(covariance, dof, known):
    """Return whiten and level of the known features of (any, p, p) covariances.

    A feature without variance does not take part.
    """
    whiten = np.zeros((len(covariance), known.sum(), known.sum()))
    level = np.zeros(len(covariance) if dof is None else max(len(covariance), len(dof)))
    for c in range(len(level)):
        matrix = covariance[c % len(covariance)][np.ix_(known, known)]
        kept = np.diag(matrix) > 0
        lower = np.linalg.cholesky(matrix[np.ix_(kept, kept)])
        whiten[np.ix_([c % len(covariance)], kept, kept)] = np.linalg.inv(lower)
        q = int(kept.sum())
        level[c] = -np.log(np.diag(lower)).sum()
        if dof is None:
            level[c] -= q / 2 * math.log(2 * math.pi)
        else:
            level[c] += math.lgamma((dof[c] + q) / 2) - math.lgamma(dof[c] / 2)
            level[c] -= q / 2 * math.log(dof[c] * math.pi)
    return whiten, level


def problem(seed, n_classes, p, n_rows, *, shared=False, t=False, dropped=0.0, missing=0.0):
    """Return a model, its rows, and what it was made of."""
    rng = np.random.default_rng(seed)
    n_matrices = 1 if shared else n_classes
    factor = rng.normal(size=(n_matrices, p, p + 2))
    covariance = factor @ factor.swapaxes(1, 2)
    # Some features do not take part in one class, some in none.
    gone = rng.random((n_matrices, p)) < dropped
    gone |= rng.random(p) < dropped / 2
    covariance[np.broadcast_to((gone[:, None] | gone[:, :, None]), covariance.shape)] = 0.0
    mean = rng.normal(size=(n_classes, p)) * 3
    rest = rng.normal(size=(n_classes, p)) / 100
    dof = rng.uniform(1, 30, n_classes) if t else None

    def marginal(known):
        known = np.asarray(known, np.bool_)
        whiten, level = densities(covariance, dof, known)
        level = np.broadcast_to(level, n_classes)
        return mean[:, known], rest[:, known], whiten, level, dof

    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    x = rng.normal(size=(p, n_rows)) * 5
    x[rng.random(x.shape) < missing] = np.nan
    return SimpleNamespace(
        model=(log_prior, *marginal(np.ones(p)), marginal),
        numeric=list(x),
        shape=(n_rows, n_classes),
    )


@st.composite
def problems(draw):
    p = draw(st.integers(0, 9) | st.sampled_from([12, 31, 33, 64, 65, 70]))
    return problem(
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([1, 2, 2, 3, 12])),
        p,
        draw(st.sampled_from([0, 1, 5, 31, 32, 33, 70] if p < 20 else [0, 1, 33])),
        shared=draw(st.booleans()),
        t=draw(st.booleans()),
        dropped=draw(st.sampled_from([0.0, 0.0, 0.2, 1.0])),
        missing=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
    )


def answers(module, case):
    """Return log joints, posteriors, classes and the two counts of rows that took the prior."""
    scorer = module.QuadraticScorer(*case.model)
    joint, posterior = np.full(case.shape, 7.0), np.full(case.shape, 7.0)
    classes = np.full(case.shape[0], -7, np.intp)
    scorer.log_joint((), case.numeric, joint)
    lost = scorer.posterior((), case.numeric, posterior)
    return joint, posterior, classes, lost, scorer.predict((), case.numeric, classes)


@pytest.mark.parametrize("module", MODULES)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, posterior, classes, *lost = answers(module, case)
    expected = np.reshape(naive.log_joint(*case.model, case.numeric, len(joint)), case.shape)
    np.testing.assert_allclose(joint, expected, rtol=1e-9, atol=1e-9)
    shares, _ = sums.posterior(case.model[0], joint.tolist())
    np.testing.assert_allclose(posterior, np.reshape(shares, case.shape), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (classes == posterior.argmax(axis=1)).all()
    assert lost == [0, 0]


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("n_classes", "p", "n_rows"), [(1, 3, 65_537), (2, 6, 32_801), (3, 5, 21_877), (12, 34, 5_463)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_many_rows__kernels_equal_the_twin(n_classes, p, n_rows, shared):
    # Blocks and tiles end somewhere in the middle, and rows with missing values are in all.
    case = problem(1, n_classes, p, n_rows, shared=shared, missing=0.02)
    expected = answers(numpy_twin, case)
    result = answers(compiled, case)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-8, atol=1e-11)
    assert (result[2] == expected[2]).all()


@pytest.mark.compiled
@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 31, 32, 33, 63, 64, 65])
def test_ends_of_tiles(n_rows):
    case = problem(2, 3, 4, n_rows)
    for one, other in zip(answers(compiled, case), answers(numpy_twin, case), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.compiled
@pytest.mark.parametrize("worth", [-1, np.inf])
@given(case=problems())
def test_patterns_by_their_own_densities_or_row_by_row__equal_the_twin(worth, case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "WORTH", worth)
        result = answers(compiled, case)
    expected = answers(numpy_twin, case)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("module", MODULES)
def test_patterns_of_many_rows_are_asked_for_once(module):
    case = problem(3, 2, 6, 40_000)
    case.numeric[2][1::2] = np.nan
    case.numeric[4][3::4] = np.nan
    marginal, asked = case.model[-1], []

    def counted(known):
        asked.append(tuple(known))
        return marginal(known)

    scorer = module.QuadraticScorer(*case.model[:-1], counted)
    out = np.empty(case.shape)
    for _ in range(3):
        scorer.posterior((), case.numeric, out)
    assert sorted(asked) == [(1, 1, 0, 1, 0, 1), (1, 1, 0, 1, 1, 1)]


@pytest.mark.parametrize("module", MODULES)
def test_more_patterns_than_are_kept(module, monkeypatch):
    monkeypatch.setattr(module, "kept", lambda *_: 2)
    monkeypatch.setattr(compiled, "WORTH", -1)
    case = problem(4, 3, 6, 200, missing=0.4)
    expected = naive.log_joint(*case.model, case.numeric, 200)
    np.testing.assert_allclose(answers(module, case)[0], expected, rtol=1e-10)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.integers(0, 40))
def test_patterns__equal_rows_together(seed, n_words, n):
    words = np.random.default_rng(seed).integers(0, 2, (n_words, n)).astype(np.uint64) << np.uint64(
        60
    )
    order, starts = patterns(words)
    assert sorted(order) == list(range(n))
    rows = [tuple(words[:, r]) for r in order]
    groups = [set(rows[a:b]) for a, b in pairwise(starts)]
    assert all(len(group) == 1 for group in groups)
    assert len(groups) == len(set(rows))


def exact_squares(case, row):
    """Return the squared distances of a row from the classes, as fractions."""
    _, mean, rest, whiten, *_ = case.model
    result = []
    for c in range(len(mean)):
        deviations = [
            Fraction(float(x)) - Fraction(float(m)) - Fraction(float(e))
            for x, m, e in zip(row, mean[c], rest[c], strict=True)
        ]
        lines = whiten[c % len(whiten)]
        z = [
            sum(Fraction(float(w)) * d for w, d in zip(line, deviations, strict=True))
            for line in lines
        ]
        result.append(sum(value * value for value in z))
    return result


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("shared", [False, True])
@given(seed=st.integers(0, 2**32), n_classes=st.integers(1, 4), p=st.integers(1, 5))
def test_numbers_of_any_size__the_nearest_class_answers(module, shared, seed, n_classes, p):
    case = problem(seed, n_classes, p, 12, shared=shared, dropped=0.2)
    rng = np.random.default_rng(seed)
    for column in case.numeric:
        column *= 10.0 ** rng.choice([0, 9, 20, 160, 300, 306], 12)
    joint, posterior, classes, *lost = answers(module, case)
    assert lost == [0, 0]
    assert np.isfinite(joint).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-14)
    start = case.model[0] + case.model[4]
    for r, row in enumerate(np.array(case.numeric).T):
        squares = exact_squares(case, row)
        least = min(squares)
        behind = [float(min((q - least) / 2, Fraction(10) ** 300)) for q in squares]
        expected = sums.normalise((start - behind).tolist())
        certain = [q == least or q - least > least / 10**9 for q in squares]
        if shared or all(certain):
            np.testing.assert_allclose(posterior[r], expected, rtol=0, atol=1e-6)
            assert posterior[r, classes[r]] == posterior[r].max()
        clear = [q < Fraction(10) ** 307 for q in squares]
        exact = [
            float(s) - float(q) / 2 for s, q, few in zip(start, squares, clear, strict=True) if few
        ]
        np.testing.assert_allclose(joint[r, clear], exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("far", [1e6, 1e12, 1e160, 1e300, -1.7e308])
def test_one_covariance__what_is_far_in_common_does_not_matter(module, far):
    mean = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    zeros = np.zeros((3, 2))
    prior = np.log([0.2, 0.3, 0.5])

    def marginal(known):
        return mean[:, known], zeros[:, known], np.eye(known.sum())[None], zeros[:, 0], None

    scorer = module.QuadraticScorer(
        prior, mean, zeros, np.eye(2)[None], zeros[:, 0], None, marginal
    )
    numeric = [np.full(40, far), np.linspace(-1, 3, 40)]
    out, alone = np.empty((40, 3)), np.empty((40, 3))
    assert scorer.posterior((), numeric, out) == 0
    scorer.posterior((), [np.zeros(40), numeric[1]], alone)
    np.testing.assert_allclose(out, alone, rtol=1e-6)
    # So it is beside a missing value.
    wide = np.eye(3)[None]

    def wider(known):
        more = np.zeros((3, 1))
        means = np.hstack([mean, more])[:, known]
        return means, means * 0, wide[:, known][:, :, known], zeros[:, 0], None

    model = np.hstack([mean, zeros[:, :1]]), np.zeros((3, 3)), wide, zeros[:, 0], None, wider
    scorer = module.QuadraticScorer(prior, *model)
    scorer.posterior((), [*numeric, np.full(40, np.nan)], out)
    np.testing.assert_allclose(out, alone, rtol=1e-6)


@pytest.mark.parametrize("module", MODULES)
def test_student_t__far_away_the_heaviest_tail(module):
    dof = np.array([3.0, 1.0, 8.0])
    whiten, level = densities(np.array([np.eye(2)] * 3), dof, np.ones(2, np.bool_))
    zeros = np.zeros((3, 2))
    scorer = module.QuadraticScorer(
        np.log(np.full(3, 1 / 3)), zeros, zeros, whiten, level, dof, None
    )
    numeric = [np.array([1e150, 1e200, -1.7e308]), np.array([1.0, 1e200, 1.7e308])]
    joint, out = np.empty((3, 3)), np.empty((3, 3))
    scorer.log_joint((), numeric, joint)
    scorer.posterior((), numeric, out)
    np.testing.assert_allclose(out, np.tile([0, 1, 0], (3, 1)), atol=1e-290)
    log = np.log(np.abs(numeric[0])) * 2 + np.log([1, 2, 2])
    expected = np.log(1 / 3) + level - (dof + 2) / 2 * (log[:, None] - np.log(dof))
    np.testing.assert_allclose(joint, expected, rtol=1e-12)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("shared", [False, True])
def test_means_far_apart__a_row_is_as_near_to_its_own_as_alone(module, shared):
    case = problem(7, 3, 4, 50, shared=shared)
    log_prior, mean, rest, whiten, level, dof, marginal = case.model
    shift = np.array([1e9, -1e9, 0.0])
    own = mean + shift[:, None]
    numeric = [column + shift[np.arange(50) % 3] for column in case.numeric]
    joint = np.empty((50, 3))
    module.QuadraticScorer(log_prior, own, rest, whiten, level, dof, marginal).log_joint(
        (), numeric, joint
    )
    expected = naive.log_joint(log_prior, own, rest, whiten, level, dof, None, numeric, 50)
    np.testing.assert_allclose(joint, expected, rtol=1e-11)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("apart", [1e2, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("shared", [False, True])
def test_two_classes_close_together_and_one_far_away(module, apart, shared):
    case = problem(12, 3, 4, 200, shared=shared)
    case.model[1][1:] = case.model[1][1] + apart + [[0.0], [0.5]]
    case.numeric = [column / 3 + apart for column in case.numeric]
    joint, posterior, *_ = answers(module, case)
    expected = naive.log_joint(*case.model, case.numeric, 200)
    np.testing.assert_allclose(joint[:, 1:], np.array(expected)[:, 1:], rtol=1e-11)
    shares, _ = sums.posterior(case.model[0], expected)
    np.testing.assert_allclose(posterior, shares, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_prior_of_zero__that_class_is_never_chosen(module, n_classes, shared):
    case = problem(8, n_classes, 3, 60, shared=shared, missing=0.1)
    case.numeric[0][::2] *= 1e300
    prior = np.full(n_classes, -np.log(n_classes - 1.0))
    prior[0] = -np.inf
    case.model = prior, *case.model[1:]
    joint, posterior, classes, *lost = answers(module, case)
    assert lost == [0, 0]
    assert (posterior[:, 0] == 0).all()
    assert (classes > 0).all()
    assert (joint[:, 0] == -np.inf).all()
    assert np.isfinite(joint[:, 1:]).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_equal_classes__lowest_class_and_equal_shares(module, t, shared):
    case = problem(9, 1, 5, 300, t=t, missing=0.2)
    case.numeric[1][::5] *= 1e305
    _, *arrays, marginal = case.model

    def tripled(parts):
        mean, rest, whiten, level, dof = (
            None if part is None else np.concatenate([part] * 3) for part in parts
        )
        return mean, rest, whiten[:1] if shared else whiten, level, dof

    case.model = np.zeros(3), *tripled(arrays), lambda known: tripled(marginal(known))
    case.shape = 300, 3
    _, posterior, classes, *_ = answers(module, case)
    assert (classes == 0).all()
    np.testing.assert_allclose(posterior, 1 / 3, rtol=1e-15)


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_known__the_prior_answers(module):
    case = problem(10, 3, 4, 20)
    for column in case.numeric:
        column[5:] = np.nan
    case.model = *case.model[:-1], None  # there is nothing to ask for
    joint, posterior, *_, lost, _ = answers(module, case)
    assert lost == 0
    assert (joint[5:] == case.model[0]).all()
    np.testing.assert_allclose(posterior[5:], np.tile(np.exp(case.model[0]), (15, 1)), rtol=1e-14)


@pytest.mark.parametrize("module", MODULES)
def test_a_feature_that_takes_no_part_may_be_anything(module):
    case = problem(11, 3, 4, 30)
    log_prior, mean, rest, whiten, level, dof, marginal = case.model
    expected = answers(module, case)

    def wider(known):
        return marginal(np.delete(known, 2))

    mean, rest = (np.insert(array, 2, 5.0, axis=1) for array in (mean, rest))
    whiten = np.insert(np.insert(whiten, 2, 0.0, axis=1), 2, 0.0, axis=2)
    odd = np.where(np.arange(30) % 3, 1e308, np.nan)
    case.model = log_prior, mean, rest, whiten, level, dof, wider
    case.numeric.insert(2, odd)
    for one, other in zip(answers(module, case), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_left_alone_and_may_change_afterwards(module):
    case = problem(5, 3, 5, 70, missing=0.1)
    before = answers(module, case)
    wide = np.repeat(np.array(case.numeric), 2, axis=1)
    wide[:, 1::2] = 7.0
    wide.flags.writeable = False
    arrays = [array.copy() for array in case.model[:-2]]
    for array in arrays:
        array.flags.writeable = False
    scorer = module.QuadraticScorer(*arrays, *case.model[-2:])
    for array in arrays:
        array.flags.writeable = True
        array[:] = 0.0
    joint = np.empty(case.shape)
    scorer.log_joint((), list(wide[:, ::2]), joint)
    assert joint.tobytes() == before[0].tobytes()


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
def test_threads_may_share_a_scorer(n_classes, monkeypatch):
    monkeypatch.setattr(compiled, "kept", lambda *_: 3)
    monkeypatch.setattr(compiled, "WORTH", 1e4)
    case = problem(6, n_classes, 6, 3000, missing=0.1)
    expected = answers(compiled, case)[1]
    scorer = compiled.QuadraticScorer(*case.model)

    def score(_):
        out = np.empty(case.shape)
        scorer.posterior((), case.numeric, out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(score, range(8))) == {expected.tobytes()}


@pytest.mark.parametrize("p", [3, 90, 300])
def test_products_of_matrices__are_small_enough_for_one_thread(p):
    """Of more than eight rows of all columns BLAS wakes threads, for each piece anew."""
    rng = np.random.default_rng(p)
    multiplied = []

    class Counted(np.ndarray):
        def __matmul__(self, other):
            multiplied.append(self.shape[0] * self.shape[1] * np.shape(other)[1])
            return np.asarray(self) @ np.asarray(other)

    x, mean, whiten = rng.normal(size=(50, p)), np.zeros((2, p)), rng.normal(size=(2, p, p))
    found = Quadratics(np.zeros(2), mean, mean, whiten, np.zeros(2), None).joint(
        x.view(Counted), relative=False
    )
    expected = -(np.einsum("kij,nj->nki", whiten, x) ** 2).sum(axis=2) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert 0 < max(multiplied) <= one_thread.ONE_THREAD
    assert sum(multiplied) == 2 * x.size * p
