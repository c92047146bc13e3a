from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.kernels.compiled.fitting import subsets as compiled
from fastbayes.kernels.numpy.fitting import subsets as numpy_twin

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]


def naive(counts, bounds, offsets, out):
    for s in range(len(bounds) - 1):
        for t, a in enumerate(offsets[s]):
            for n in counts[bounds[s] : bounds[s + 1]].tolist():
                if n > 0:
                    out[s, t] += n * math.log(n) if a < 0 else math.lgamma(n + a) - math.lgamma(a)


@pytest.mark.parametrize("module", MODULES)
@given(seed=st.integers(0, 2**32), tables=st.integers(0, 5), weighted=st.booleans())
def test_sums_are_the_naive_ones(module, seed, tables, weighted):
    rng = np.random.default_rng(seed)
    bounds = np.cumsum([0, *rng.integers(0, 20, tables)])
    counts = rng.integers(0, 5, bounds[-1]) * rng.integers(0, 10**6, bounds[-1])
    counts = counts * 0.25 if weighted else counts
    offsets = rng.choice([-1.0, 1.0, 3.0, 1e-3], (tables, 3))
    expected, out = np.full((tables, 3), 0.5), np.full((tables, 3), 0.5)
    naive(counts, bounds, offsets, expected)
    module.add_set_sums(counts, bounds, offsets, out)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
