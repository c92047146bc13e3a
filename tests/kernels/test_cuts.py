from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import discretize as naive

import fastbayes.kernels.compiled.fitting.cuts as compiled
import fastbayes.kernels.numpy.fitting.cuts as numpy_twin
from fastbayes.kernels.shared.cuts import x_log_x

KNOWN = x_log_x(np.arange(1000.0), np.zeros(0))


@st.composite
def columns(draw):
    """Draw weights of the classes at each value, and a range of the values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, k, whole = draw(st.integers(2, 40)), draw(st.integers(1, 9)), draw(st.booleans())
    weights = rng.integers(0, 4, (k, n)) * (1 if whole else rng.random((k, n)))
    first = draw(st.integers(0, n - 2))
    return weights, first, draw(st.integers(first + 2, n))


def cumulated(weights):
    return np.concatenate([np.zeros((len(weights), 1), weights.dtype), weights.cumsum(1)], axis=1)


def rows_of(weights, first, last):
    return [
        (v, c, w) for v in range(first, last) for c, w in enumerate(weights[:, v].tolist()) if w > 0
    ]


@pytest.mark.parametrize("module", [compiled, numpy_twin], ids=["compiled", "numpy"])
@given(columns())
def test_scatter_of_cuts__equals_the_naive_one(module, column):
    weights, first, last = column
    known = KNOWN if weights.dtype == np.int64 else np.zeros(0)
    ranges = [(first, last), (0, weights.shape[1])]
    found = module.scatter_of_cuts(cumulated(weights), known, *np.array(ranges).T)
    cuts = [(at, *ends) for ends in ranges for at in range(ends[0] + 1, ends[1])]
    for scatter, (at, first, last) in zip(found.tolist(), cuts, strict=True):
        sides = rows_of(weights, first, at), rows_of(weights, at, last)
        assert scatter == pytest.approx(sum(map(naive.scatter, sides)), rel=1e-12, abs=1e-9)


@given(columns())
def test_scatter_of_cuts__of_counts_to_the_same_bits(column):
    weights, first, last = column
    given_ = cumulated(weights.astype(np.int64)), KNOWN, np.array([first]), np.array([last])
    np.testing.assert_array_equal(
        compiled.scatter_of_cuts(*given_), numpy_twin.scatter_of_cuts(*given_)
    )
