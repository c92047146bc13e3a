"""Kernel calls that are noted down once and then made for block after block without Python.

The rows of a table pass through scratch memory a block at a time, so for every block the same
kernels are called with the same arrays, except those that lie in the rows themselves, which move
on by a block. `Program` takes note of the calls for the first block, and makes them for as many as
there are in one call that does not hold the interpreter's lock. Several threads take one block
after the other as they come: each has a copy of the program, with memory of its own for what the
kernels write besides the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import typeof
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from fastbayes.core.threads import together
from fastbayes.kernels import entry
from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd.instructions import carray, instruction, pointer_to
from fastbayes.kernels.dispatch import (
    NotRepeatableError,
    Row,
    interpreted,
    kernel,
    numpy_twin,
    readonly,
    reads,
    recording,
    writes,
)
from fastbayes.kernels.shared.columns import address_of

_INT64_2 = reads("int64", 2)
SIGNATURES = {
    "repeat": [(_INT64_2, writes("int64"), _INT64_2, _INT64_2, writes("int64"))],
    "add_sums": [(reads("int64"), _INT64_2)],
}

# What begins a cache line stays so in a copy.
LINE = 64
# Memory of copies is kept up to this size: fresh memory would cost a page fault every 4 KiB.
KEPT_BYTES = 1 << 26

_compiled: dict[tuple[Any, ...], int] = {}
_place = pointer_to(types.int64)
_kept: list[NDArray[np.uint8]] = []

Calls = list[tuple[Any, tuple[Any, ...]]]
# An array that holds something of every row, and its bytes.
Moving = tuple[NDArray[Any], int]


def over_blocks(
    work: Callable[[int, int], None],
    parts: Sequence[tuple[int, int, int]],
    moving: Sequence[Moving],
    threads: int = 1,
) -> None:
    """Do work(first row, rows) for block after block.

    The work itself is done once for a part: what it calls by `dispatch.call` is called for every
    block, all parts in one call that does not hold the interpreter's lock. Where it says that it
    works on rows in Python (`dispatch.in_python`), it is done for every block; with several threads
    NotRepeatableError is raised, before anything is done.

    parts    IN   first row, rows of a block, and how many blocks, of parts that have these
    moving   IN   arrays that hold something of every row, and its bytes: an argument that lies in
                  one of them moves on by a block from block to block
    threads  IN   how many threads take the blocks
    """
    if interpreted():
        numpy_twin("repeat").over_blocks(work, parts, moving)
        return
    noted: list[Part] = []
    try:
        for first, n, times in parts:
            calls: Calls = []
            with recording(calls):
                work(first, n)
            noted.append(Part(calls, n, times))
    except NotRepeatableError:
        if threads > 1:
            raise
        numpy_twin("repeat").over_blocks(work, parts, moving)
    else:
        run(noted, moving, threads)


class Part(NamedTuple):
    """The kernel calls of one block of n rows, and how many such blocks there are."""

    calls: Calls
    n: int
    times: int


def run(noted: Sequence[Part], moving: Sequence[Moving], threads: int = 1) -> None:
    """Make calls, one set of them after the other, each so many times."""
    program = Program(noted, moving)
    if threads == 1:
        program.run()
    else:
        program.run_on(threads)


class Program:
    """Kernel calls in memory, as `repeat` makes them.

    Parameters
    ----------
    noted
        Parts of the rows, one behind the other.
    moving
        As in `over_blocks`.
    """

    def __init__(self, noted: Sequence[Part], moving: Sequence[Moving]) -> None:
        self._calls = [made for part in noted for made in part.calls]
        self._turn = np.zeros(1, np.int64)
        self._n_blocks = sum(part.times for part in noted)
        ranges = [(start, start + a.nbytes, width) for a, width in moving
                  for start in [address_of(a)]]  # fmt: skip
        words: list[int] = []
        program: list[tuple[int, int]] = []
        moves: list[tuple[int, int, int]] = []
        parts: list[tuple[int, int, int]] = []
        pointers: list[tuple[int, int]] = []  # word that holds it, its address
        written: list[tuple[int, int, bool]] = []  # begin, end, whether of int64
        lists: list[tuple[int, NDArray[np.uint64]]] = []  # word that points to addresses, these
        for calls, n, times in noted:
            for function, arguments in calls:
                program.append((_native(function, arguments), len(words)))
                for argument in arguments:
                    if isinstance(argument, np.ndarray):
                        start, at = address_of(argument), len(words) + 4
                        step = next((w for a, b, w in ranges if a <= start < b), 0)
                        if step:
                            moves.append((at, start, step * n))
                        elif argument.flags.writeable:
                            pointers.append((at, start))
                            kind = argument.dtype == np.int64
                            written.append((start, start + argument.nbytes, kind))
                        elif argument.dtype == np.uint64 and argument.ndim == 1:
                            lists.append((at, argument))
                        else:
                            pointers.append((at, start))
                        # As numba lays out an array, one that owns no memory.
                        words += [0, 0, argument.size, argument.itemsize, start]
                        words += [*argument.shape, *argument.strides]
                    elif isinstance(argument, (float, np.floating)):
                        words.append(np.float64(argument).view(np.int64).item())
                    else:
                        if isinstance(argument, Row):
                            moves.append((len(words), int(argument), n))
                        words.append(0 if argument is None else int(argument))
            parts.append((len(program), len(moves), times))
        # Addresses that kernels read lie behind the arguments: a copy has its own.
        self._inside = np.empty((len(lists), 2), np.int64)
        for k, (at, addresses) in enumerate(lists):
            self._inside[k] = at, len(words)
            pointers += zip(range(len(words), len(words) + len(addresses)), addresses.tolist())
            words += addresses.tolist()
        self._words = np.array(words, np.int64)
        self._pointers, self._written = pointers, written
        self._program, self._moves, self._parts = (
            readonly(np.array(rows, np.int64).reshape(-1, width))
            for rows, width in ((program, 2), (moves, 3), (parts, 3))
        )

    def run(self) -> None:
        """Make the calls for all blocks that no other thread has taken."""
        self._run(self._words.copy())

    def _run(self, words: NDArray[np.int64]) -> None:
        words[self._inside[:, 0]] = address_of(words) + 8 * self._inside[:, 1]
        failed = repeat(self._program, words, self._moves, self._parts, self._turn)
        if failed >= 0:
            name = self._calls[failed][0].__name__
            raise RuntimeError(f"kernel {name} failed, which is an error of fastbayes: report it")

    def run_on(self, threads: int) -> None:
        """Make the calls for all blocks on several threads, and add up what they added to."""
        # What the kernels write but the rows: where it overlaps, it is one stretch of memory.
        stretches: list[list[int]] = []
        for begin, end, sums in sorted(self._written):
            if stretches and begin < stretches[-1][1]:
                last = stretches[-1]
                last[1:] = max(last[1], end), last[2] | sums
            elif begin < end:
                stretches.append([begin, end, sums])
        stretches.sort(key=lambda stretch: not stretch[2])
        size, cleared = 0, 0
        places, sums = [], []
        for begin, end, adds in stretches:
            place = size + (begin - size) % LINE
            size = place + end - begin
            places.append((begin, end, place - begin))
            if adds:
                sums.append((begin, place, (end - begin) // 8))
                cleared = size
        places.sort()
        begins, ends, shifts = np.array(places, np.int64).reshape(-1, 3).T
        at, held = np.array(self._pointers, np.int64).reshape(-1, 2).T
        which = np.searchsorted(begins, held, side="right") - 1
        own = (which >= 0) & (held < ends[which])
        at, moved = at[own], held[own] + shifts[which[own]]

        def run_copy() -> NDArray[np.uint8] | None:
            if self._turn[0] >= self._n_blocks:
                return None
            memory = _taken(size)
            start = address_of(memory)
            memory[:cleared] = 0
            words = self._words.copy()
            words[at] = moved + start
            self._run(words)
            return memory

        copies = [c for c in together(self.run, run_copy, threads) if c is not None]
        where = readonly(np.array([address_of(memory) for memory in copies], np.int64))
        add_sums(where, readonly(np.array(sums, np.int64).reshape(-1, 3)))
        _kept.extend(memory for memory in copies if len(memory) <= KEPT_BYTES)


def _taken(size: int) -> NDArray[np.uint8]:
    """Return memory that begins a cache line, some that is kept if there is enough of it."""
    while _kept:
        try:
            memory = _kept.pop()
        except IndexError:  # another thread took it
            break
        if len(memory) >= size:
            return memory
    memory = np.empty(size + LINE, np.uint8)
    return memory[-address_of(memory) % LINE :]


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


@instruction(lambda turn: types.int64(turn))
def next_turn(block, turn):
    """Return the number of the next block, of which no other thread gets hold."""
    return block.atomic_rmw("add", turn.data, to.I64(1), "monotonic")


@kernel
def repeat(program, words, moves, parts, turn):
    """Make the calls of a program for blocks that are left; return which failed, -1 if none did.

    program  IN   (n_calls, 2) int64   address of what makes a call; first word of its arguments
    words    OUT  (n_words,) int64   arguments, those that move in their place for the last block
    moves    IN   (n_moves, 3) int64   word that moves, what it is for the first block of its part,
                  and how far it moves on from block to block
    parts    IN   (n_parts, 3) int64   calls and moves up to the end of a part, and its blocks
    turn     OUT  (1,) int64   += blocks that were taken, and 1; of all threads
    """
    while True:
        block = next_turn(turn)
        part = call = move = 0
        while part < parts.shape[0] and block >= parts[part, 2]:
            block -= parts[part, 2]
            call, move = parts[part, 0], parts[part, 1]
            part += 1
        if part == parts.shape[0]:
            return -1
        for m in range(move, parts[part, 1]):
            words[moves[m, 0]] = moves[m, 1] + block * moves[m, 2]
        for c in range(call, parts[part, 0]):
            if call_at(program[c, 0], to.address(words) + 8 * program[c, 1]) != 0:
                return c


@kernel
def add_sums(copies, sums):
    """Add what threads added to.

    copies  IN   (n_copies,) int64   addresses of their memory
    sums    IN   (n_sums, 3) int64   address of the result, bytes up to it in a copy, its numbers
    """
    for s in range(sums.shape[0]):
        out = carray(_place(np.uint64(sums[s, 0])), sums[s, 2])
        for c in range(copies.size):
            own = carray(_place(np.uint64(copies[c] + sums[s, 1])), sums[s, 2])
            for k in range(out.size):
                out[k] += own[k]
