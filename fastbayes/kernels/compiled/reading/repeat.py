"""Kernel calls that are noted down once and then made for block after block without Python.

The rows of a table pass through scratch memory a block at a time, so for every block the same
kernels are called with the same arrays, except those that lie in the rows themselves, which move
on by a block. `RepeatedCalls` takes note of the calls for the first block, and makes them for as
many as there are in one call that does not hold the interpreter's lock. Several threads take one
block after the other as they come: each has a copy of the calls, with memory of its own for what
the kernels write besides the rows. So Python takes microseconds for each further thread.
"""

from __future__ import annotations

import copy
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
# So many bytes of copies are kept in all: fresh memory would cost a page fault every 4 KiB.
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
) -> RepeatedCalls | None:
    """Do work(first row, rows) for block after block; return the calls, None if none were noted.

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
        numpy_twin("reading.repeat").over_blocks(work, parts, moving)
        return None
    noted: list[BlockCalls] = []
    try:
        for first, n, times in parts:
            calls: Calls = []
            with recording(calls):
                work(first, n)
            noted.append(BlockCalls(calls, n, times, work))
    except NotRepeatableError:
        if threads > 1:
            raise
        numpy_twin("reading.repeat").over_blocks(work, parts, moving)
        return None
    return run(noted, moving, threads)


class BlockCalls(NamedTuple):
    """The kernel calls of one block of n rows, how many such blocks there are, and what made them.

    That holds the memory in which the arguments lie.
    """

    calls: Calls
    n: int
    times: int
    work: object


def run(noted: Sequence[BlockCalls], moving: Sequence[Moving], threads: int = 1) -> RepeatedCalls:
    """Make calls, one set after the other, each so many times; return them."""
    program = RepeatedCalls(noted, moving)
    if threads == 1:
        program.run()
    else:
        program.run_on(threads)
    return program


class CallArguments:
    """Arguments of kernels as words of memory, and what is to be known of them.

    Parameters
    ----------
    moving
        As in `over_blocks`.

    Attributes
    ----------
    words
        As a thunk takes them, one call after the other.
    moves
        Word, what it is for the first block, how far it moves on from block to block.
    pointers
        Word, and the address that it is, if it does not move.
    written
        Begin and end of what is written and does not move, and whether these are int64.
    addresses
        Word that points to an array of addresses, and these.
    """

    def __init__(self, moving: Sequence[Moving]) -> None:
        self.words: list[int] = []
        self.moves: list[tuple[int, int, int]] = []
        self.pointers: list[tuple[int, int]] = []
        self.written: list[tuple[int, int, bool]] = []
        self.addresses: list[tuple[int, list[int]]] = []
        starts = [address_of(array) for array, _ in moving]
        self._ranges = [
            (start, start + array.nbytes, width)
            for start, (array, width) in zip(starts, moving, strict=True)
        ]

    def add(self, argument: Any, n: int) -> None:
        """Add the argument of a call for a block of n rows."""
        if isinstance(argument, np.ndarray):
            self._add_array(argument, n)
            return
        if isinstance(argument, Row):
            self.moves.append((len(self.words), int(argument), n))
        if isinstance(argument, (float, np.floating)):
            argument = np.float64(argument).view(np.int64)
        self.words.append(0 if argument is None else int(argument))

    def _add_array(self, array: NDArray[Any], n: int) -> None:
        start, at = address_of(array), len(self.words) + 4
        step = next((width for a, b, width in self._ranges if a <= start < b), 0)
        if step:
            self.moves.append((at, start, step * n))
        elif array.dtype == np.uint64 and array.ndim == 1 and not array.flags.writeable:
            self.addresses.append((at, array.tolist()))
        else:
            self.pointers.append((at, start))
            if array.flags.writeable:
                self.written.append((start, start + array.nbytes, array.dtype == np.int64))
        # As numba lays out an array, one that owns no memory.
        self.words += [0, 0, array.size, array.itemsize, start, *array.shape, *array.strides]


class RepeatedCalls:
    """Kernel calls in memory, as `repeat` makes them.

    Parameters
    ----------
    noted
        Parts of the rows, one behind the other.
    moving
        As in `over_blocks`.

    Attributes
    ----------
    noted
        As it was given.
    turn
        (1,) int64, blocks that were taken; the calls are made again from 0 on.
    """

    def __init__(self, noted: Sequence[BlockCalls], moving: Sequence[Moving]) -> None:
        self.noted = noted
        self._own: object = None
        self.turn = np.zeros(1, np.int64)
        self._n_blocks = sum(part.times for part in noted)
        given = CallArguments(moving)
        program: list[tuple[int, int]] = []
        parts: list[tuple[int, int, int]] = []
        for part in noted:
            for function, arguments in part.calls:
                program.append((native(function, arguments), len(given.words)))
                for argument in arguments:
                    given.add(argument, part.n)
            parts.append((len(program), len(given.moves), part.times))
        # Addresses that kernels read lie behind the arguments: a copy has its own.
        inside = []
        for at, addresses in given.addresses:
            inside.append((at, 8 * len(given.words)))
            given.pointers += enumerate(addresses, len(given.words))
            given.words += addresses
        self._words = np.array(given.words, np.int64)
        self._pointers = np.array(given.pointers, np.int64).reshape(-1, 2)
        self._written = given.written
        # How the memory of a copy is laid out that has these arrays of its own.
        self._laid_out: tuple[list[tuple[int, int]], CopyLayout] | None = None
        self._inside, self._program, self._moves, self._parts = (
            readonly(np.array(rows, np.int64).reshape(-1, width))
            for rows, width in ((inside, 2), (program, 2), (given.moves, 3), (parts, 3))
        )

    def run(self) -> None:
        """Make the calls for all blocks that no other thread takes."""
        self._run(self._words)

    def arguments(self, words: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], ...]:
        """Return the arguments of `repeat` that make the calls, with words as a copy has them."""
        words = self._words if words is None else words
        at, place = self._inside.T
        words[at] = address_of(words) + place
        return self._program, words, self._moves, self._parts, self.turn

    def _run(self, words: NDArray[np.int64]) -> None:
        failed = repeat(*self.arguments(words))
        if failed >= 0:
            calls = [function for part in self.noted for function, _ in part.calls]
            name = calls[failed].__name__
            raise RuntimeError(f"kernel {name} failed, which is an error of fastbayes: report it")

    def copy(
        self,
        own: Sequence[tuple[NDArray[Any], NDArray[Any]]],
        lend: Callable[[int], NDArray[np.uint8]],
    ) -> RepeatedCalls:
        """Return the same calls for another thread, which may run at the same time.

        In the place of some arrays there are others of the same size; what else the calls write
        besides the rows goes to memory that a function gives.
        """
        ranges = [(address_of(old), old.nbytes, address_of(new)) for old, new in own]
        layout = self._layout_without([(begin, size) for begin, size, _ in ranges])
        memory = _at_line(lend(layout.size + LINE))
        memory[: layout.cleared] = 0
        words = self._words.copy()
        at, moved = layout.moved(self._pointers)
        words[at] = moved + address_of(memory)
        at, held = self._pointers.T
        for begin, size, new in ranges:
            within = (held >= begin) & (held < begin + size)
            words[at[within]] = held[within] + (new - begin)
        moves = self._moves.copy()
        for begin, size, new in ranges:
            within = (moves[:, 1] >= begin) & (moves[:, 1] < begin + size)
            moves[within, 1] += new - begin
        other = copy.copy(self)
        other._words, other.turn, other._own = words, np.zeros(1, np.int64), (memory, own)
        other._moves = readonly(moves)
        return other

    def _layout_without(self, own: list[tuple[int, int]]) -> CopyLayout:
        """Return how a copy is laid out that has its own arrays in the place of some: the last."""
        if self._laid_out is None or self._laid_out[0] != own:
            left = [
                stretch
                for stretch in self._written
                if not any(begin <= stretch[0] < begin + size for begin, size in own)
            ]
            self._laid_out = own, CopyLayout.of(left)
        return self._laid_out[1]

    def run_on(self, threads: int) -> None:
        """Make the calls for all blocks on several threads, and add up what they added to."""
        own = CopyLayout.of(self._written)
        at, moved = own.moved(self._pointers)
        words = self._words.copy()

        def run_copy() -> NDArray[np.uint8] | None:
            if self.turn[0] >= self._n_blocks:
                return None
            memory, mine = _taken(own.size), words.copy()
            memory[: own.cleared] = 0
            mine[at] = moved + address_of(memory)
            self._run(mine)
            return memory

        copies = [c for c in together(self.run, run_copy, threads) if c is not None]
        where = np.array([address_of(memory) for memory in copies], np.int64)
        add_sums(readonly(where), own.sums)
        _keep(copies)


class CopyLayout(NamedTuple):
    """How the memory of a copy is laid out: what kernels write, but what moves with the rows.

    size     bytes
    cleared  bytes of what they add to, which comes first
    places   (n, 3) int64, ascending: begin and end of a stretch in the memory of the program, and
             how much further than its begin it lies in that of a copy
    sums     as `add_sums` takes them
    """

    size: int
    cleared: int
    places: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def of(cls, written: Sequence[tuple[int, int, bool]]) -> CopyLayout:
        """Lay out what is written: what overlaps is one stretch."""
        stretches: list[tuple[int, int, bool]] = []
        for begin, end, adds in sorted(written):
            if stretches and begin < stretches[-1][1]:
                first, last, added = stretches.pop()
                stretches.append((first, max(last, end), added or adds))
            elif begin < end:
                stretches.append((begin, end, adds))
        size = cleared = 0
        places, sums = [], []
        for begin, end, adds in sorted(stretches, key=lambda stretch: not stretch[2]):
            place = size + (begin - size) % LINE
            size = place + end - begin
            places.append((begin, end, place - begin))
            if adds:
                sums.append((begin, place, (end - begin) // 8))
                cleared = size
        arrays = (np.array(rows, np.int64).reshape(-1, 3) for rows in (sorted(places), sums))
        return cls(size, cleared, *map(readonly, arrays))

    def moved(self, pointers: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return which words point into the stretches, and where in a copy's memory."""
        at, held = pointers.T
        begins, ends, shifts = self.places.T
        which = np.searchsorted(begins, held, side="right") - 1
        own = np.flatnonzero((which >= 0) & (held < ends[which])) if len(ends) else which[:0]
        return at[own], held[own] + shifts[which[own]]


def _taken(size: int) -> NDArray[np.uint8]:
    """Return memory that begins a cache line, some that is kept if there is enough of it."""
    while _kept:
        try:
            memory = _kept.pop()
        except IndexError:  # another thread took it
            break
        if len(memory) >= size:
            return memory
    return _at_line(np.empty(size + LINE, np.uint8))


def _keep(copies: Sequence[NDArray[np.uint8]]) -> None:
    """Keep memory for later, as far as there is room for it."""
    for memory in copies:
        if sum(map(len, _kept)) + len(memory) <= KEPT_BYTES:
            _kept.append(memory)


def _at_line(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return memory from where a cache line begins."""
    return memory[-address_of(memory) % LINE :]


def native(function: Any, arguments: tuple[Any, ...]) -> int:
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


@instruction(lambda thunk, words: types.UniTuple(types.int64, 2)(types.int64, types.int64))
def call_at(block, thunk, words):
    """Make the call of a thunk with the arguments at an address; return its status and result."""
    result, error = (cgutils.alloca_once(block, kind) for kind in (to.I64, entry.ERROR))
    thunk = block.inttoptr(thunk, entry.THUNK.as_pointer())
    words = block.inttoptr(words, entry.WORDS)
    status = block.call(thunk, [words, result, error])
    return [block.zext(status, to.I64), block.load(result)]


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
        block = to.next_turn(turn)
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
            failed, _ = call_at(program[c, 0], to.address(words) + 8 * program[c, 1])
            if failed != 0:
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
