from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import bins as naive

from fastbayes.kernels.compiled.reading import bins as compiled
from fastbayes.kernels.numpy.reading import bins as numpy_twin

MODULES = [pytest.param(compiled, id="kernels"), pytest.param(numpy_twin, id="numpy")]
CODES = st.sampled_from([np.uint8, np.uint16, np.uint32])
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def points(draw):
    """Return ascending cuts: even, clustered, over many magnitudes, neighbouring numbers."""
    n = draw(st.integers(0, 14) | st.integers(0, 250))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    given = draw(st.lists(FINITE, max_size=12))
    shapes = [
        rng.normal(size=n),
        rng.integers(-200, 200, n) / 2,
        np.exp(rng.normal(size=n) * 40) * rng.choice([-1, 1], n),
        1.7e9 + rng.integers(0, 400, n) * 2.0**-22,
        np.concatenate([rng.normal(size=n), [-1.7e308, 1.7e308][: n % 3]]),
        np.array(given, np.float64),
        np.ldexp(1.0, -rng.integers(0, 1000, n)),
    ]
    return np.unique(shapes[draw(st.integers(0, len(shapes) - 1))] + 0.0)


def around(cuts, rng):
    """Return numbers at, just above and just below the cuts, between them and far away."""
    with np.errstate(over="ignore"):
        ends = [cuts, np.nextafter(cuts, np.inf), np.nextafter(cuts, -np.inf)]
    far = np.array([0.0, -0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, np.nan])
    some = cuts if len(cuts) else far[:4]
    between = rng.choice(some, 300) * rng.random(300)
    values = np.concatenate([*ends, far, between, rng.normal(size=100)])
    return values[np.isfinite(values) | np.isnan(values)]


@pytest.mark.parametrize("module", MODULES)
@given(points(), CODES, st.integers(0, 2**32))
@settings(max_examples=40)
def test_assign(module, cuts, code, seed):
    values = around(cuts, np.random.default_rng(seed))
    expected, out = np.zeros(len(values), code), np.zeros(len(values), code)
    naive.assign(values, cuts, 254, expected)
    module.assign(values, cuts, 254, out)
    np.testing.assert_array_equal(out, expected)
    known = ~np.isnan(values)
    bins = np.searchsorted(cuts, values[known], side="left")
    np.testing.assert_array_equal(out[known], bins)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_cuts", [0, 1, 8, 9, 40, 4_000, 70_000])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_assign__several_blocks(module, n_cuts, spread):
    rng = np.random.default_rng(n_cuts)
    cuts = np.unique(np.exp(rng.normal(size=n_cuts) * spread))
    values = np.exp(rng.normal(size=3 * compiled.ROWS + 5) * spread)
    values[::97] = np.nan
    out = np.empty(len(values), np.uint32)
    module.assign(values, cuts, 99_999, out)
    bins = np.searchsorted(cuts, values, side="left")
    np.testing.assert_array_equal(out, np.where(np.isnan(values), 99_999, bins))


@pytest.mark.parametrize("module", MODULES)
def test_assign__read_only_and_strided_input(module):
    values = np.arange(40.0)[::2]
    cuts = np.array([2.0, 7.0])
    cuts.setflags(write=False)
    out = np.empty(20, np.uint8)
    module.assign(values, cuts, 3, out)
    assert out.tolist() == [0, 0, 1, 1] + [2] * 16


def test_every_way_of_finding_a_bin_is_taken():
    even = np.arange(100.0)
    near = np.sort(np.append(even, 50.001))
    assert compiled._parts(even.tobytes()).steps == 1
    assert compiled._parts(near.tobytes()).steps == 2
    assert compiled._parts(np.ldexp(1.0, np.arange(100)).tobytes()) is None
    assert compiled._parts(np.array([-1.7e308, *even, 1.7e308]).tobytes()) is None
