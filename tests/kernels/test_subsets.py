from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastbayes.kernels.compiled.fitting import subsets as compiled
from fastbayes.kernels.numpy.fitting import subsets as numpy_twin

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]


def naive(codes, sizes, weight, mask, a, ess):
    chosen = [j for j in range(len(codes)) if mask >> j & 1]
    counts = {}
    for r, w in enumerate(weight):
        cell = tuple(codes[j, r] for j in chosen)
        counts[cell] = counts.get(cell, 0) + w
    if a < 0:
        return sum(n * math.log(n) for n in counts.values())
    a = a or ess / math.prod(sizes[j] for j in chosen)
    return sum(math.lgamma(n + a) - math.lgamma(a) for n in counts.values())


@pytest.mark.parametrize("module", MODULES)
@given(seed=st.integers(0, 2**32))
def test_sums_are_the_naive_ones_and_no_other_is_touched(module, seed):
    rng = np.random.default_rng(seed)
    m, n, begin = int(rng.integers(1, 5)), int(rng.integers(1, 40)), int(rng.integers(0, 3))
    begin = min(begin, m)
    sizes = rng.integers(1, 5, m)
    codes = (rng.random((m, n)) * sizes[:, None]).astype(rng.choice(["u1", "u2", "u4"]))
    weight = rng.integers(1, 9, n) / 4
    prefix, most = int(rng.integers(0, 1 << begin)), int(rng.integers(0, m + 1))
    offsets, cells = np.array([-1.0, 0.0, 2.0]), float(rng.choice([4.0, 30.0, np.inf]))
    out = np.full((3, 1 << m), np.nan)
    module.write_subset_sums(codes, sizes, weight, prefix, begin, most, cells, offsets, 1.5, out)
    for mask in range(1 << m):
        table = math.prod(sizes[j] for j in range(m) if mask >> j & 1)
        if mask & (1 << begin) - 1 != prefix or mask.bit_count() > most or table > cells:
            assert np.isnan(out[:, mask]).all()
            continue
        expected = [naive(codes, sizes, weight, mask, a, 1.5) for a in offsets]
        np.testing.assert_allclose(out[:, mask], expected, rtol=1e-12, atol=1e-12)
