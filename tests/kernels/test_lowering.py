"""What kernels do most is written by our own code: it means what it means in Python."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest

from fastbayes.kernels.dispatch import helper, interpreted, kernel, scalar, unrolled


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
def walk(x, begin, step, out):
    for k in range(begin, 3):
        out[k - begin] = x[k]
    for k in range(3):
        out[k + 6] = x[k - 3]
    for k in range(0, 3, step):
        out[k + 10] = x[k] + x[k * k % 3] + x[-k]
    for k in range(2, -3, -1):
        out[k + 15] = x[k]


@pytest.mark.parametrize("begin", [-3, -1, 0, 2])
def test_indices_of_loops__below_0_count_from_the_end(begin):
    x, out = np.arange(1.0, 6.0), np.zeros(20)
    walk(x, begin, 1, out)
    expected = np.zeros(20)
    for k in range(begin, 3):
        expected[k - begin] = [*x][k]
    expected[6:9] = x[-3:]
    expected[10:13] = [1 + 1 + 1, 2 + 2 + 5, 3 + 2 + 4]
    expected[13:18] = [x[-2], x[-1], x[0], x[1], x[2]]
    np.testing.assert_array_equal(out, expected)


@helper
def describe(view, out):
    out[0] = view.size
    for k in range(view.size):
        out[1] += (k + 1) * view[k]


@kernel
def cut(row, matrix, i, a, b, out):
    describe(row[a:b], out[0])
    describe(row[a:], out[1])
    describe(row[:b], out[2])
    describe(row[:], out[3])
    describe(row[2:], out[4])
    describe(row[:-1], out[5])
    describe(matrix[i, a:b], out[6])
    describe(matrix[i, :b][a:], out[7])
    part = matrix[a:b]
    out[8, 0] = part.shape[0] * 100 + part.shape[1]
    for k in range(part.shape[0]):
        out[8, 1] += (k + 1) * part[k, -1]
    block = matrix[a:, 1:b]
    out[9, 0] = block.shape[0] * 100 + block.shape[1]
    for k in range(block.shape[0]):
        for n in range(block.shape[1]):
            out[9, 1] += (k + 2 * n + 1) * block[k, n]


def expected_cut(row, matrix, i, a, b):
    rows = [row[a:b], row[a:], row[:b], row, row[2:], row[:-1], matrix[i, a:b], matrix[i, :b][a:]]
    found = [(len(view), sum((k + 1) * v for k, v in enumerate(view.tolist()))) for view in rows]
    part, block = matrix[a:b], matrix[a:, 1:b]
    found.append((part.shape[0] * 100 + 5, sum((k + 1) * r[-1] for k, r in enumerate(part))))
    weights = np.add.outer(np.arange(len(block)), 2 * np.arange(block.shape[1])) + 1
    return [*found, (block.shape[0] * 100 + block.shape[1], (weights * block).sum())]


@pytest.mark.parametrize("i", [1, -1])
def test_slices__begin_and_end_where_those_of_python_do(i):
    row, matrix = np.arange(1, 7), np.arange(1, 21).reshape(4, 5)
    for a in range(-8, 9):
        for b in range(-8, 9):
            out = np.zeros((10, 2), np.int64)
            cut(row, matrix, i, a, b, out)
            np.testing.assert_array_equal(out, expected_cut(row, matrix, i, a, b), f"{a}:{b}")


@kernel
def assign(out, i, a, b):
    out[i, :] = 2.0
    out[-1, a:b] = 3.0
    out[i, a] = 4.0


def test_slices__take_a_number():
    out, expected = np.zeros((3, 5)), np.zeros((3, 5))
    assign(out, 1, 1, 4)
    expected[1], expected[-1, 1:4], expected[1, 1] = 2, 3, 4
    np.testing.assert_array_equal(out, expected)


def turns(first, last, step, out):
    for k in range(last):
        out[0] = out[0] * 10 + k
    for k in range(first, last):
        out[1] = out[1] * 10 + k
    for k in range(first, last, 3):
        out[2] = out[2] * 10 + k
    for k in range(last, first, -1):
        out[3] = out[3] * 10 + k
    for k in range(last, first, -2):
        out[4] = out[4] * 10 + k
    for k in range(first, last, step):
        if k == 4:
            break
        out[5] = out[5] * 10 + k


turn = kernel(turns)


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_loops__take_the_turns_of_python(step):
    for first in range(-6, 7):
        for last in range(-6, 7):
            out, expected = np.zeros(6, np.int64), np.zeros(6, np.int64)
            turn(first, last, step, out)
            turns(first, last, step, expected)
            np.testing.assert_array_equal(out, expected, f"{first} to {last}")


@kernel
def turn_unsigned(last, out):
    for k in range(last):
        out[0] = out[0] * np.uint64(10) + k
    for k in range(np.uint64(2), last, np.uint64(3)):
        out[1] = out[1] * np.uint64(10) + k
    for k in range(np.uint8(0), np.uint8(last), np.uint8(2)):
        out[2] = out[2] * np.uint64(10) + np.uint64(k)


def test_loops__over_words():
    for last in range(10):
        out = np.zeros(3, np.uint64)
        turn_unsigned(np.uint64(last), out)
        texts = [
            "".join(map(str, range(*limits))) for limits in ((last,), (2, last, 3), (0, last, 2))
        ]
        assert out.tolist() == [int(text or 0) for text in texts]


@kernel
def extremes(x, y, few, out):
    out[0], out[1] = min(x, y), max(x, y)
    out[2], out[3] = min(x, y, 2), max(x, few, y)
    out[4], out[5] = min(few, 200), max(few, np.uint8(9))


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_extremes__are_those_of_python(kind):
    numbers = [kind(v) for v in (-3, 0, 2, 7)] + ([np.nan] if kind is np.float64 else [])
    for x in numbers:
        for y in numbers:
            out = np.zeros(6)
            extremes(x, y, np.uint8(5), out)
            expected = [min(x, y), max(x, y), min(x, y, 2), max(x, 5, y), 5, 9]
            np.testing.assert_array_equal(out, expected, f"{x}, {y}")


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


@scalar
def count_up_scalar(numbers, out):
    for i in range(numbers.size):
        for k in range(numbers[i]):
            out[i, k] += k


@pytest.mark.skipif(interpreted(), reason="without the compiler there is no machine code")
@pytest.mark.parametrize(
    ("function", "n_rolled"), [(count_up, 2), (count_up_unrolled, 0), (count_up_scalar, 2)]
)
def test_loops__are_as_a_function_says(function, n_rolled, monkeypatch):
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
        about = re.search(rf"^!{loop} = distinct !{{!{loop}((, !\d+)+)}}$", module, re.MULTILINE)
        said = [
            re.search(rf"^{each} = (.*)$", module, re.MULTILINE)
            for each in about[1][2:].split(", ")
        ]
        assert [each[1] for each in said] == [
            '!{!"llvm.loop.unroll.runtime.disable"}',
            '!{!"llvm.loop.vectorize.enable", i1 false}'
            if function is count_up_scalar
            else '!{!"llvm.loop.interleave.count", i32 1}',
        ]
