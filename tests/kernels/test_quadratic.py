from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import log_joint as sums
from oracles import quadratic as naive

from fastbayes.kernels import quadratic as compiled
from fastbayes.plain import quadratic as plain

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(plain, id="plain"),
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
