from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import nested as naive

from fastbayes.kernels.compiled.fitting import nested as compiled
from fastbayes.kernels.numpy.fitting import nested as numpy_twin
from fastbayes.kernels.shared.nested import Averages, NestedRows, Networks

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]


def drawn_rows(seed, m, n_classes, weighted, holes):
    rng = np.random.default_rng(seed)
    n, sizes = int(rng.integers(1, 25)), rng.integers(1, 4, m)
    y = rng.integers(0, n_classes, n)
    states = (y + rng.integers(0, 2, (m, n))) % sizes[:, None]
    states = np.where(rng.random((m, n)) < holes, -1, states).astype(np.int32)
    weight = rng.integers(1, 6, n) / 2 if weighted else np.ones(n)
    prior = rng.dirichlet(np.ones(n_classes), n)
    return NestedRows(states, y, prior, weight, np.minimum(weight, 1)), sizes


def listed(rows):
    cells = [[None if v < 0 else v for v in row] for row in rows.states.T.tolist()]
    return cells, rows.y.tolist(), rows.weight.tolist(), rows.prior.tolist()


def table(rows, sizes, features):
    """Return n(features, c) in C order, rows in which one is not observed left out."""
    counts = np.zeros((*sizes[list(features)], rows.prior.shape[1]))
    seen = (rows.states[list(features)] >= 0).all(axis=0)
    cells = tuple(rows.states[j][seen] for j in features)
    np.add.at(counts, (*cells, rows.y[seen]), rows.weight[seen])
    return counts


def networks(rows, sizes, parents, mass):
    m, most = parents.shape
    pieces, cells, margins = [], np.full((m, most + 1), -1), np.full((m, most + 1), -1)
    for j, level in itertools.product(range(m), range(most + 1)):
        above = parents[j, :level]
        if (above >= 0).all():
            counts = table(rows, sizes, (*above, j))
            for where, piece in ((cells, counts), (margins, counts.sum(axis=-2))):
                where[j, level] = sum(p.size for p in pieces)
                pieces.append(piece.ravel())
    return Networks(parents, sizes, cells, margins, np.concatenate(pieces), mass)


def averages(rows, sizes, weight, least, masses, given_prior):
    m, k = len(sizes), rows.prior.shape[1]
    offsets = np.cumsum(sizes) - sizes
    together = np.zeros((int(sizes.sum()), m, k))
    cells, steps, pieces, at = np.full((m, m), -1), np.zeros((m, m), np.int64), [], 0
    for i, j in itertools.combinations(range(m), 2):
        counts = table(rows, sizes, (i, j))
        cells[i, j] = cells[j, i] = at
        steps[i, j], steps[j, i] = sizes[j] * k, k
        pieces.append(counts.ravel())
        at += counts.size
        together[offsets[i] : offsets[i] + sizes[i], j] = counts.sum(axis=1)
        together[offsets[j] : offsets[j] + sizes[j], i] = counts.sum(axis=0)
    alone = [table(rows, sizes, (j,)) for j in range(m)]
    return Averages(
        sizes,
        offsets,
        cells,
        steps,
        np.concatenate([np.zeros(0), *pieces]),
        together,
        np.concatenate(alone),
        np.array([n.sum(axis=0) for n in alone]),
        weight,
        least,
        masses,
        masses / 2,
        given_prior,
    )


def check(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


ALPHA = st.sampled_from([0.0, 0.5, 1.0])
COMMON = {
    "seed": st.integers(0, 2**32),
    "m": st.integers(1, 4),
    "n_classes": st.sampled_from([1, 2, 3]),
    "weighted": st.booleans(),
    "holes": st.sampled_from([0.0, 0.2]),
}


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=30)
@given(**COMMON, most=st.integers(0, 3), mass=ALPHA)
def test_network_losses__are_those_of_every_model_refitted(
    module, seed, m, n_classes, weighted, holes, most, mass
):
    rows, sizes = drawn_rows(seed, m, n_classes, weighted, holes)
    rng = np.random.default_rng(seed)
    above = [rng.permutation(j)[:most] for j in range(m)]
    parents = np.array([[*p, *[-1] * (most - len(p))] for p in above], np.int64).reshape(m, most)
    found = np.zeros((2, most + 1, m + 1))
    module.add_network_losses(networks(rows, sizes, parents, mass), rows, *found)
    listed_rows = listed(rows)
    expected = naive.network_losses(
        *listed_rows, [p.tolist() for p in above], sizes.tolist(), mass, most + 1
    )
    check(found, expected)


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=30)
@given(
    **COMMON,
    alpha=ALPHA,
    least=st.sampled_from([0, 1, 2, 100]),
    given_prior=st.booleans(),
    some=st.booleans(),
)
def test_average_losses__are_those_of_every_model_refitted(
    module, seed, m, n_classes, weighted, holes, alpha, least, given_prior, some
):
    rows, sizes = drawn_rows(seed, m, n_classes, weighted, holes)
    weight = np.random.default_rng(seed).integers(0, 3, m) / 2 if some else np.ones(m)
    masses = np.full(m, alpha)
    found = np.zeros((2, m + 1))
    model = averages(rows, sizes, weight, float(least), masses, given_prior)
    module.add_average_losses(model, rows, *found)
    each = list(zip(weight, masses, masses / 2, strict=True))
    expected = naive.average_losses(*listed(rows), sizes.tolist(), (each, least, given_prior))
    check(found, expected)


@pytest.mark.parametrize("module", MODULES)
def test_many_features__neither_overflow_nor_vanish(module):
    # A thousand features of which each makes the other class a thousand times less likely.
    m, n = 1000, 50
    rows = NestedRows(
        np.zeros((m, n), np.int32),
        np.zeros(n, np.int64),
        np.full((n, 2), 0.5),
        np.ones(n),
        np.ones(n),
    )
    counts = np.tile([[1000.0, 1.0], [0.0, 999.0]], (m, 1, 1))
    pieces = np.concatenate([counts.ravel(), counts.sum(axis=1).ravel()])
    at = np.arange(m)[:, None]
    model = Networks(
        np.empty((m, 0), np.int64), np.full(m, 2), at * 4, m * 4 + at * 2, pieces, 1e-3
    )
    loss, errors = np.zeros((1, m + 1)), np.zeros((1, m + 1))
    module.add_network_losses(model, rows, loss, errors)
    assert (errors[0, 1:] == 0).all()
    np.testing.assert_allclose(loss[0, 3:], 0, atol=1e-6)
    wrong = rows._replace(y=np.ones(n, np.int64))
    module.add_network_losses(model, wrong, loss, errors)
    np.testing.assert_allclose(loss[0, 200:], n * -np.log(1e-15))
