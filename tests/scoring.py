"""What tests of scorers share: batches of rows, what is said of them, and what follows from it."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from oracles import log_joint as naive

from fastbayes.core.batch import Codes
from fastbayes.evaluation.validation import Evaluator

CLASSES = st.integers(1, 20) | st.sampled_from([1, 2, 2, 3, 16, 17, 40])


def grouped(rng, columns, sizes):
    """Return the columns as matrices of codes, each column in one that holds it, in any order."""
    kinds = [np.uint8, np.uint16, np.uint32]
    least = [0 if size < 254 else 1 if size < 65_534 else 2 for size in sizes]
    chosen = [rng.integers(low, 3) if rng.random() < 0.2 else low for low in least]
    batch = []
    for kind in rng.permutation(3):
        features = rng.permutation([j for j, k in enumerate(chosen) if k == kind]).astype(np.int64)
        if len(features):
            codes = np.array([columns[j] for j in features], kinds[kind])
            batch.append(Codes(features, codes, np.array([sizes[j] + 2 for j in features])))
    return batch


def answers(scorer, case):
    """Return log joints, posteriors, classes and the two counts of rows that took the prior."""
    joint, posterior = np.full(case.shape, 7.0), np.full(case.shape, 7.0)
    classes = np.full(case.shape[0], -7, np.intp)
    scorer.log_joint(case.batch, [], joint)
    lost = scorer.posterior(case.batch, [], posterior)
    return joint, posterior, classes, lost, scorer.predict(case.batch, [], classes)


def assert_follow(case, joint, posterior, classes, lost, lost_too, error=1e-12):
    """Posteriors and classes are those of the log joints; `error` in nats."""
    log_prior = case.model[0]
    expected, gone = naive.posterior(log_prior, joint.tolist())
    np.testing.assert_allclose(posterior, np.reshape(expected, case.shape), rtol=0, atol=error)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert lost == lost_too == gone
    rows = np.array([r if max(r) > -np.inf else log_prior for r in joint.tolist()])
    rows = rows.reshape(case.shape)
    # Nobody is better than the class chosen, and nobody before it is clearly as good.
    chosen = np.take_along_axis(rows, classes[:, None], axis=1)
    assert (rows <= chosen + error).all()
    for row, c, best in zip(rows, classes, chosen, strict=True):
        assert (row[:c] < best - 1e-15).all()


def evaluate_probabilities(proba, y_codes, classes, *, loss=None, weight=None):
    """Return the figures of probabilities, (n_rows, n_classes), of rows of known class codes."""
    evaluator = Evaluator(classes, loss=loss)
    evaluator.update(proba, y_codes, weight)
    return evaluator.result()
