from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import subsumption as naive

import fastbayes.kernels.compiled.scoring.subsumption as compiled
import fastbayes.kernels.numpy.scoring.subsumption as numpy_twin

CODES = [np.uint8, np.uint16, np.uint32]


@pytest.mark.parametrize("module", [compiled, numpy_twin], ids=["compiled", "numpy"])
@given(st.integers(0, 2**32), st.sampled_from(CODES), st.sampled_from(CODES), st.integers(0, 40))
def test_leave_out__equals_the_naive_one(module, seed, kind_x, kind_y, n):
    rng = np.random.default_rng(seed)
    sizes = [min(int(rng.choice([2, 5, 256, 65_536, 70_000])), np.iinfo(k).max + 1)
             for k in (kind_x, kind_y)]  # fmt: skip
    x, y = (rng.integers(0, s, n).astype(k) for s, k in zip(sizes, (kind_x, kind_y), strict=True))
    implied = np.where(rng.random(sizes[0]) < 0.5, -1, rng.integers(0, sizes[1], sizes[0]))
    some = rng.random(n) < 0.5
    implied[x[some]] = y[some]
    got, expected = y.copy(), y.copy()
    module.leave_out(x, y, implied, sizes[1] - 1, got)
    naive.leave_out(x, y, implied, sizes[1] - 1, expected)
    np.testing.assert_array_equal(got, expected)
