from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import joint_codes as naive

from fastbayes.kernels.compiled.counting import joint_codes as compiled
from fastbayes.kernels.numpy.counting import joint_codes as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels"),
    pytest.param(numpy_twin, id="numpy"),
]


@st.composite
def columns(draw):
    """Return columns of any width, some of them together wider than 64 bits, and their sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.integers(0, 3000)), draw(st.integers(1, 9))
    sizes = draw(st.lists(st.sampled_from([1, 2, 7, 256, 60_000, 2**32]), min_size=m, max_size=m))
    few = draw(st.sampled_from([1, 3, 40, 2**32]))
    result = []
    for size in sizes:
        values = rng.integers(0, size, max(1, min(few, 4000)))
        kind = "u1" if size <= 256 else "u2" if size <= 65536 else "u4"
        result.append(rng.choice(values, n).astype(kind))
    return result, sizes


@pytest.mark.parametrize("module", MODULES)
@given(drawn=columns())
def test_factorise__numbers_rows_as_they_come(module, drawn):
    told, sizes = drawn
    group, first = module.factorise(told, sizes)
    expected = naive.factorise(list(zip(*(c.tolist() for c in told), strict=True)))
    assert (group.tolist(), first.tolist()) == expected
    assert group.dtype == np.uint32
    assert first.dtype == np.int64


@pytest.mark.parametrize("module", MODULES)
def test_factorise__more_cells_than_the_table_began_with(module):
    rng = np.random.default_rng(0)
    told = [rng.integers(0, 2**16, 50_000).astype(np.uint16) for _ in range(6)]
    group, first = module.factorise(told, [2**16] * 6)
    assert len(first) == 50_000
    np.testing.assert_array_equal(group, np.arange(50_000))
    # Codes that differ in their highest bits alone.
    high = [np.repeat(np.arange(40_000, dtype=np.uint32), 2), np.zeros(80_000, np.uint32)]
    group, first = module.factorise(high, [2**31, 2**32])
    np.testing.assert_array_equal(group, np.repeat(np.arange(40_000), 2))


@pytest.mark.parametrize("module", MODULES)
@given(seed=st.integers(0, 2**32 - 1), p=st.integers(0, 5))
def test_squared_distances__equal_the_exact_ones(module, seed, p):
    rng = np.random.default_rng(seed)
    x, mean = rng.normal(size=(6, p)) + 1e3, rng.normal(size=(4, p)) + 1e3
    rest, whiten = rng.normal(size=(4, p)) * 1e-14, np.tril(rng.normal(size=(4, p, p)))
    rows, at = rng.integers(0, 6, 30), rng.integers(0, 4, 30)
    got = module.squared_distances(x, rows, at, (mean, rest, whiten))
    for i, (r, g) in enumerate(zip(rows.tolist(), at.tolist(), strict=True)):
        expected = float(naive.squared_distance(x[r], mean[g], whiten[g]))
        assert got[i] == pytest.approx(expected, rel=1e-10, abs=1e-20)
