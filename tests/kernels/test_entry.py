"""How Python enters compiled functions: arguments as they are typed, results, errors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.errors import LoweringError

from fastbayes.kernels.dispatch import helper, interpreted, kernel, short_kernel

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(interpreted(), reason="Python calls the functions themselves"),
]


@helper
def twice(x):
    return 2 * x


@kernel
def weighed(a, by, flag, none, out):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i] += by * a[i, j] if flag else twice(a[i, j])
    return a.size if none is None else -1


@kernel
def first(numbers):
    return numbers[0]


@kernel
def known(number):
    return number == number


def test_arguments_of_every_kind_arrive():
    a, out = np.arange(6, dtype=np.uint8).reshape(2, 3), np.zeros(2)
    assert weighed(a, 2.5, True, None, out) == 6
    np.testing.assert_array_equal(out, [7.5, 30.0])
    assert weighed(a, np.float64(2.5), False, np.int64(3), out) == -1
    np.testing.assert_array_equal(out, [13.5, 54.0])


def test_what_makes_an_array_is_no_kernel():
    @kernel
    def doubled(numbers):
        out = np.empty(numbers.size)
        for i in range(numbers.size):
            out[i] = 2 * numbers[i]
        return out[0]

    with pytest.raises(LoweringError, match="doubled makes an array, which nothing would free"):
        doubled(np.ones(3))


def test_only_short_kernels_keep_the_lock():
    """One entry lets go of the interpreter's lock, the other does not."""

    def head(numbers):
        return numbers[0]

    for make, name in ((kernel, "@fastbayes_enter("), (short_kernel, "@fastbayes_enter_locked(")):
        function = make(head)
        function._cache = NullCache()  # numba shows no code that comes from the disk
        assert function(np.array([7, 7])) == 7
        assert all(name in text for text in function.inspect_llvm().values())


def test_views_arrive_with_their_strides():
    a, out = np.arange(24.0).reshape(4, 6)[::2, 1::2], np.zeros(2)
    assert weighed(a, 1.0, True, None, out) == 6
    np.testing.assert_array_equal(out, a.sum(axis=1))


def test_results_are_pythons():
    assert first(np.array([-3])) == -3
    assert type(first(np.array([-3]))) is int
    assert first(np.array([-0.5])) == -0.5
    assert first(np.array([0xFFFFFFFF], np.uint32)) == 0xFFFFFFFF
    assert known(1.0) is True
    assert known(float("nan")) is False


def test_results_that_python_cannot_take_are_refused():
    with pytest.raises(KeyError, match="float32"):
        first(np.ones(1, np.float32))


def test_arguments_are_let_go():
    a = np.ones(3)
    before = sys.getrefcount(a)
    first(a)
    assert sys.getrefcount(a) == before


def test_errors_are_raised():
    code = """
import numpy as np
from fastbayes.kernels.dispatch import kernel
@kernel
def at(numbers, i):
    return numbers[i]
assert at(np.ones(3), 2) == 1.0
try:
    at(np.ones(3), 3)
except IndexError:
    print("refused")
"""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "FASTBAYES_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "refused\n", done.stderr
