"""Kernel calls that are noted down once and then made for block after block without Python.

The rows of a table pass through scratch memory a block at a time, so for every block the same
kernels are called with the same arrays, except those that lie in the rows themselves, which move
on by a block. `Program` takes note of the calls for the first block, and makes them for as many as
there are in one call that does not hold the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import typeof
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from fastbayes.kernels import entry
from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import carray, instruction, pointer_to
from fastbayes.kernels.dispatch import (
    NotRepeatableError,
    interpreted,
    kernel,
    numpy_twin,
    readonly,
    reads,
    recording,
)
from fastbayes.kernels.shared.columns import address_of

SIGNATURES = {"repeat": [(reads("int64", 2), reads("int64", 2), reads("int64", 2))]}

_compiled: dict[tuple[Any, ...], int] = {}
_place = pointer_to(types.int64)


def over_blocks(
    work: Callable[[int, int], None],
    parts: Sequence[tuple[int, int, int]],
    moving: Sequence[tuple[NDArray[Any], int]],
) -> None:
    """Do work(first row, rows) for block after block.

    The work itself is done once for a part: what it calls by `dispatch.call` is called for every
    block, all parts in one call that does not hold the interpreter's lock. Where it says that it
    works on rows in Python (`dispatch.in_python`), it is done for every block.

    parts   IN   first row, rows of a block, and how many blocks, of parts that have these
    moving  IN   arrays that hold something of every row, and its bytes: an argument that lies in
                 one of them moves on by a block from block to block
    """
    if interpreted():
        numpy_twin("repeat").over_blocks(work, parts, moving)
        return
    noted: list[tuple[RepeatedCalls, int]] = []
    try:
        for first, n, times in parts:
            repeated = RepeatedCalls([(array, width * n) for array, width in moving])
            with recording(repeated.calls):
                work(first, n)
            noted.append((repeated, times))
    except NotRepeatableError:
        numpy_twin("repeat").over_blocks(work, parts, moving)
    else:
        run(noted)


def run(noted: Sequence[tuple[RepeatedCalls, int]]) -> None:
    """Make calls, one set of them after the other, each so many times."""
    program: list[tuple[int, int]] = []
    moves: list[tuple[int, int]] = []
    parts = []
    for repeated, times in noted:
        program += repeated.packed(moves)
        parts.append((len(program), len(moves), times))
    failed = repeat(
        *(readonly(np.array(rows, np.int64).reshape(-1, 2)) for rows in (program, moves)),
        readonly(np.array(parts, np.int64).reshape(-1, 3)),
    )
    if failed >= 0:
        calls = [function for repeated, _ in noted for function, _ in repeated.calls]
        name = calls[failed].__name__
        raise RuntimeError(f"kernel {name} failed, which is an error of fastbayes: report it")


class RepeatedCalls:
    """The kernel calls of one block of rows.

    Parameters
    ----------
    moving
        Arrays, and by how many bytes an argument that lies in one moves on from block to block.
    """

    def __init__(self, moving: list[tuple[NDArray[Any], int]]) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self._ranges = [
            (start, start + array.nbytes, step)
            for array, step in moving
            for start in [address_of(array)]
        ]
        self._kept: list[NDArray[np.int64]] = []

    def packed(self, moves: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the calls as `repeat` takes them; add what moves to `moves`."""
        return [self._packed(*made, moves) for made in self.calls]

    def _packed(
        self, function: Any, arguments: tuple[Any, ...], moves: list[tuple[int, int]]
    ) -> tuple[int, int]:
        """Return the addresses of what makes a call and of its arguments; note what moves."""
        words: list[int] = []
        moved: list[tuple[int, int]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                start = address_of(argument)
                if step := self._step(start):
                    moved.append((len(words) + 4, step))
                # As numba lays out an array, one that owns no memory.
                words += [0, 0, argument.size, argument.itemsize, start]
                words += [*argument.shape, *argument.strides]
            elif isinstance(argument, (float, np.floating)):
                words.append(np.float64(argument).view(np.int64).item())
            else:
                words.append(0 if argument is None else int(argument))
        packed = np.array(words, np.int64)
        self._kept.append(packed)
        first = address_of(packed)
        moves += [(first + 8 * word, step) for word, step in moved]
        return _native(function, arguments), first

    def _step(self, address: int) -> int:
        """Return by how much an array at an address moves."""
        for first, last, step in self._ranges:
            if first <= address < last:
                return step
        return 0


def _native(function: Any, arguments: tuple[Any, ...]) -> int:
    """Return the address of what calls a function for these arguments."""
    key = (function, *map(_kind, arguments))
    if key not in _compiled:
        with global_compiler_lock:
            kinds = tuple(map(typeof, arguments))
            function.compile(kinds)
            code = function.overloads[kinds]
            name = entry.thunk_name(code.fndesc)
            _compiled[key] = code.library.get_pointer_to_function(name)
    return _compiled[key]


def _kind(argument: Any) -> Any:
    """Return what tells the type of an argument, as far as kernels differ by it."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.writeable
    return type(argument)


@instruction(lambda thunk, words: types.int32(types.int64, types.int64))
def call_at(block, thunk, words):
    """Make the call of a thunk with the arguments at an address; return what it returns."""
    result, error = (cgutils.alloca_once(block, kind) for kind in (to.I64, entry.ERROR))
    thunk = block.inttoptr(thunk, entry.THUNK.as_pointer())
    words = block.inttoptr(words, entry.WORDS)
    return block.call(thunk, [words, result, error])


@kernel
def repeat(program, moves, parts):
    """Make the calls of a program; return which one failed, -1 if none did.

    program  IN   (n_calls, 2) int64   addresses: of what makes the call, of its arguments
    moves    IN   (n_moves, 2) int64   address of a number, and what is added to it after each time
    parts    IN   (n_parts, 3) int64   calls and moves up to the end of a part, and how often
    """
    call = move = 0
    for p in range(parts.shape[0]):
        for _ in range(parts[p, 2]):
            for c in range(call, parts[p, 0]):
                if call_at(program[c, 0], program[c, 1]) != 0:
                    return c
            for m in range(move, parts[p, 1]):
                carray(_place(np.uint64(moves[m, 0])), 1)[0] += moves[m, 1]
        call, move = parts[p, 0], parts[p, 1]
    return -1
