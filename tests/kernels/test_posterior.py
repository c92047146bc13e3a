from __future__ import annotations

import decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import log_joint as naive

from fastbayes.kernels import dispatch
from fastbayes.kernels.compiled.scoring import posterior as compiled
from fastbayes.kernels.numpy.scoring import posterior as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]


@st.composite
def joints(draw):
    """Return rows of log joints, some impossible, and a log prior."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows = draw(st.sampled_from([0, 1, 3, 4, 5, 511, 512, 513, 1030]))
    n_classes = draw(st.integers(1, 12) | st.sampled_from([2, 16, 41]))
    rows = draw(st.sampled_from([1e-9, 1.0, 30.0, 1e4])) * rng.normal(size=(n_rows, n_classes))
    rows[rng.random(rows.shape) < draw(st.sampled_from([0, 0.3, 0.9]))] = -np.inf
    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    if draw(st.booleans()):
        log_prior[: n_classes // 2] = -np.inf
    return rows, log_prior


def padded(acc):
    """Return acc with a margin that must not matter."""
    wide = np.full((acc.shape[0], -(-acc.shape[1] // 4) * 4 + 8), np.nan)
    wide[:, : acc.shape[1]] = acc
    return wide


def assert_follow(module, acc, start, rows, log_prior):
    shares, classes = np.full(rows.shape, 7.0), np.full(len(rows), -7, np.intp)
    expected, lost = naive.posterior(log_prior, rows.tolist())
    chosen, _ = naive.predict(log_prior, rows.tolist())
    assert module.to_class(padded(acc), start, 0.0, rows.shape[1], classes) == lost
    assert module.to_posterior(padded(acc), start, 0.0, shares) == lost
    assert classes.tolist() == chosen
    np.testing.assert_allclose(shares, np.reshape(expected, rows.shape), rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("module", MODULES)
@given(drawn=joints())
def test_posteriors_and_classes_of_log_joints(module, drawn):
    rows, log_prior = drawn
    assert_follow(module, rows.T, log_prior, rows, log_prior)
    out = np.empty(rows.shape)
    module.to_rows(padded(rows.T), out)
    assert out.tobytes() == rows.tobytes()


@pytest.mark.parametrize("module", MODULES)
@given(drawn=joints())
def test_posteriors_and_classes_of_weights(module, drawn):
    rows, log_prior = (part[..., -16:] for part in drawn)
    rows = np.where(rows > -np.inf, np.clip(rows, -300, 300), -np.inf)
    log_prior = log_prior - log_prior.max()
    n, k = rows.shape
    # What is beyond the rows must not matter.
    weights = np.full((-(-n // 4) * 4, 4 if k <= 4 else 8 if k <= 8 else 16), np.nan)
    weights[:n] = 0.0
    weights[:n, :k] = np.exp(rows)
    expected, lost = naive.posterior(log_prior, rows.tolist())
    shares, classes = np.full((n, k), 7.0), np.full(n, -7, np.intp)
    assert module.heaviest(weights, np.exp(log_prior), 0.0, classes) == lost
    assert module.normalise(weights, np.exp(log_prior), 0.0, shares) == lost
    np.testing.assert_allclose(shares, np.reshape(expected, (n, k)), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-14)
    assert classes.tolist() == shares.argmax(axis=1).tolist()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [3, 4, 5, 8, 9, 16])
def test_weights_within_a_tie__equal_shares_and_the_lowest_class(module, n_classes):
    width = 4 if n_classes <= 4 else 8 if n_classes <= 8 else 16
    weights = np.zeros((12, width))
    weights[:9, :n_classes] = 1.0 - 1e-9 * np.arange(n_classes)[::-1]
    weights[3:6, n_classes - 1] = 2.0
    weights[:3] *= np.array([[1e-250], [0.3], [1.0]])
    weights[6:9] = 0.0
    prior = weights[1, :n_classes] / weights[1].max()
    shares, classes = np.empty((9, n_classes)), np.empty(9, np.intp)
    assert module.heaviest(weights, prior, 1e-7, classes) == 3
    assert module.normalise(weights, prior, 1e-7, shares) == 3
    assert classes.tolist() == [0] * 3 + [n_classes - 1] * 3 + [0] * 3
    for rows in (shares[:3], shares[6:]):
        assert (rows == shares[0, 0]).all()
    assert (shares[3:6, -1] > shares[3:6, 0]).all()


@pytest.mark.parametrize("module", MODULES)
@given(drawn=joints(), odds=st.lists(st.floats(-750, 750), max_size=9))
def test_posteriors_and_classes_of_log_odds(module, drawn, odds):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-300, -1e-300, 709.0, -745.0]
    odds = np.array([*odds, *special, *drawn[0].ravel()])
    rows = np.stack([np.where(odds > 0, -odds, 0.0), np.where(odds < 0, odds, 0.0)], axis=1)
    rows[np.isnan(odds)] = -np.inf
    start = np.array([1.5])
    assert_follow(module, odds[None], start, rows, np.array([0.0, 1.5]))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 9])
def test_within_a_tie__equal_shares_and_the_lowest_class(module, n_classes):
    rows = np.tile(-1e-9 * np.arange(n_classes)[::-1], (6, 1))
    rows[3:, -1] = 1.0
    odds = rows[:, 1] - rows[:, 0]
    sums = [(rows.T, np.zeros(n_classes))] + [(odds[None], np.zeros(1))] * (n_classes == 2)
    for acc, start in sums:
        shares, classes = np.empty(rows.shape), np.empty(6, np.intp)
        module.to_class(padded(acc), start, 1e-7, n_classes, classes)
        module.to_posterior(padded(acc), start, 1e-7, shares)
        assert classes.tolist() == [0] * 3 + [n_classes - 1] * 3
        assert (shares[:3] == shares[0, 0]).all()
        assert (shares[3:, -1] > shares[3:, 0]).all()


@pytest.mark.compiled
def test_exp_within_1e_15_and_exact_at_the_ends():
    rng = np.random.default_rng(7)
    exponents = -np.concatenate(
        [rng.uniform(0, 708, 2000), 2.0 ** rng.uniform(-60, 9, 500), np.arange(1, 1022) * np.log(2)]
    )
    odds = np.concatenate([exponents, [0.0, -0.0, -709.0, -800.0, -np.inf]])
    out = np.empty((len(odds), 2))
    assert compiled.to_posterior(odds[None].copy(), np.zeros(1), 0.0, out) == 0
    small, large = out[:, 1], out[:, 0]
    with decimal.localcontext() as context:
        context.prec = 40
        for x, p, q in zip(exponents.tolist(), small.tolist(), large.tolist(), strict=False):
            e = decimal.Decimal(x).exp()
            assert abs(decimal.Decimal(p) / (e / (1 + e)) - 1) < 1e-15
            assert abs(decimal.Decimal(q) * (1 + e) - 1) < 1e-15
    assert out[-5:].tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "labels",
    [
        *(np.array(["a", "b", "c"]), np.array(["ab", "", "cde"]), np.array(["abcd", "x", "é"])),
        *(np.array([5, -7, 1 << 40]), np.array([0.5, -1, np.inf]), np.array([3, 1, 2], np.int8)),
        *(np.array([False, True, True]), np.array([1, 3, 2], "datetime64[s]"), np.arange(6)[::2]),
        np.array([None, "text", 3], object),
    ],
    ids=lambda labels: labels.dtype.str,
)
def test_labels_of_classes(module, labels):
    which = np.random.default_rng(0).integers(0, len(labels), 1000)
    room = np.empty(1001, labels.dtype)
    room[-1] = labels[1]
    module.to_labels(which, labels, room[:-1])
    assert room[:-1].tolist() == [labels.tolist()[k] for k in which]
    assert room.tolist()[-1] == labels.tolist()[1]


@pytest.mark.compiled
def test_labels__objects_are_not_noted_down():
    labels = np.array(["a", None], object)
    with pytest.raises(dispatch.NotRepeatableError), dispatch.recording([]):
        compiled.to_labels(np.zeros(3, np.intp), labels, np.empty(3, object))
