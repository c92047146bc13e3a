"""What kernels do most is written by our own code: it means what it means in Python."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest

from fastbayes.kernels.dispatch import helper, interpreted, kernel, unrolled


@helper
def last(row):
    return row[-1]


@kernel
def pick(cube, i, j, k, out):
    row = cube[i, j]
    at = i, j, k
    out[0] = cube[i, j, k]
    out[1] = cube[at]
    out[2] = row[k]
    out[3] = cube[i][j][k]
    out[4] = last(row)
    out[5] = cube[-1, -1, -1]
    out[6] = row.size * 100 + cube[i].shape[1] * 10 + cube.shape[0]
    out[-1] = cube[i].size


@pytest.mark.parametrize("index", [np.int8, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("ends", [False, True])
def test_elements_and_rows__by_any_whole_number(index, ends):
    cube, out = np.arange(24.0).reshape(2, 3, 4), np.zeros(8)
    signed = np.issubdtype(index, np.signedinteger)
    i, j, k = map(index, (-1, -2, -3) if ends and signed else (1, 2, 3))
    pick(cube, i, j, k, out)
    there = cube[i, j, k]
    expected = [there, there, there, there, cube[i, j, -1], cube[-1, -1, -1], 442.0, 12.0]
    np.testing.assert_array_equal(out, expected)


@kernel
def convert(numbers, flags, out, words):
    for i in range(numbers.size):
        flags[i] = numbers[i] > 0
        words[i] = numbers[i]
        out[i, 0] = flags[i]
        out[i, 1] = numbers[i] ** 2 + numbers[i] // 2 + numbers[i] % 2


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.uint8])
def test_elements__take_the_type_of_their_array(kind):
    numbers = np.array([0, 1, 3, 7], kind)
    flags, out, words = np.zeros(4, np.bool_), np.zeros((4, 2)), np.zeros(4, np.uint16)
    convert(numbers, flags, out, words)
    np.testing.assert_array_equal(flags, numbers > 0)
    np.testing.assert_array_equal(words, numbers)
    np.testing.assert_array_equal(out, np.column_stack([flags, [0, 2, 11, 53]]))


@kernel
def collatz(first, few, out):
    n, steps, odd = first, 0, 0
    while n != 1:
        if n & 1:
            n, odd = 3 * n + 1, odd + 1
            seen = steps
        else:
            n >>= 1
        steps += 1
        pair = steps, odd
        if steps >= few:
            break
    out[0], out[1] = pair
    out[2] = seen


def test_variables__hold_what_the_last_round_left():
    out = np.zeros(3, np.int64)
    collatz(27, 1000, out)
    assert out.tolist() == [111, 41, 106]
    collatz(27, 2, out)
    assert out.tolist() == [2, 1, 0]


def count_up(numbers, out):
    for i in range(numbers.size):
        for k in range(numbers[i]):
            out[i, k] += k


@unrolled
def count_up_unrolled(numbers, out):
    for i in range(numbers.size):
        for k in range(numbers[i]):
            out[i, k] += k


@pytest.mark.skipif(interpreted(), reason="without the compiler there is no machine code")
@pytest.mark.parametrize(("function", "n_rolled"), [(count_up, 2), (count_up_unrolled, 0)])
def test_loops__are_unrolled_where_a_function_says_so(function, n_rolled, monkeypatch):
    passes = importlib.import_module("fastbayes.kernels.passes")
    optimise, written = passes.KernelLibrary._optimize_final_module, []

    def watched(library):
        written.append(str(library._final_module))
        optimise(library)

    monkeypatch.setattr(passes.KernelLibrary, "_optimize_final_module", watched)
    monkeypatch.setenv("FASTBAYES_CACHE", "0")
    out = np.zeros((2, 6), np.int64)
    kernel(function)(np.array([6, 3]), out)
    assert out.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 0, 0]]
    (module,) = written
    # Each loop has a name of its own, which is the first thing said of it.
    loops = re.findall(r"br label .*!llvm.loop !(\d+)", module)
    assert len(loops) == len(set(loops)) == n_rolled
    for loop in loops:
        rolled = re.search(rf"^!{loop} = distinct !{{!{loop}, !(\d+)}}$", module, re.MULTILINE)
        assert f'!{rolled[1]} = !{{!"llvm.loop.unroll.runtime.disable"}}' in module
