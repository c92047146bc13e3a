"""Bytes that are moved many at a time, from and to any place, and folded for a checksum.

Arrays are known by a span, the address and the number of their bytes: unlike an array it can be
passed on in a loop without counting references. Under NUMBA_BOUNDSCHECK=1 whatever is read or
written outside of its span raises an IndexError, as it does in arrays.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.registry import cpu_target

from fastbayes.kernels.compiled.simd import instructions as to
from fastbayes.kernels.compiled.simd import vector
from fastbayes.kernels.compiled.simd.instructions import carray, instruction, pointer_to
from fastbayes.kernels.dispatch import helper


def _multiplies() -> bool:
    """Return whether the processor multiplies polynomials over bits."""
    return "+pclmul" in cpu_target.target_context.codegen().magic_tuple()[2]


HAS_FOLD = vector.AVAILABLE and _multiplies()

_TWO = ir.VectorType(to.I64, 2)
_BYTES = vector.WIDTH
_MANY = ir.VectorType(to.I64, _BYTES // 8)
_EIGHT = ir.VectorType(to.I32, 8)
# x^n modulo the polynomial of CRC-32, bits reversed: what moves 128 bits past 512 and past 128
# others. From Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel
# 2009, page 22.
_PAST_512 = ir.Constant(_TWO, [0x1_5444_2BD4, 0x1_C6E4_1596])
_PAST_128 = ir.Constant(_TWO, [0x1_7519_97D0, 0x0_CCAA_009E])


_bytes, _pairs, _fours, _eights = map(
    pointer_to, (types.uint8, types.uint16, types.uint32, types.uint64)
)
CHECKED = bool(config.BOUNDSCHECK)  # type: ignore[attr-defined]


def _pointer(block, address, kind):
    return block.inttoptr(address, kind.as_pointer())


@instruction(lambda address: types.int64(types.int64))
def _byte(block, address):
    return block.zext(block.load(_pointer(block, address, to.BYTE)), to.I64)


@instruction(lambda address: types.uint64(types.int64))
def _word(block, address):
    return block.load(_pointer(block, address, to.I64), align=1)


@instruction(lambda number, address: types.void(types.uint64, types.int64))
def _put_word(block, number, address):
    block.store(number, _pointer(block, address, to.I64), align=1)


@instruction(lambda address, number: types.uint64(types.int64, types.uint32))
def _equal_lanes(block, address, number):
    lanes = block.load(_pointer(block, address, _EIGHT), align=4)
    equal = block.icmp_unsigned("==", lanes, to.splat(block, number, _EIGHT))
    return block.zext(block.bitcast(equal, to.BYTE), to.I64)


@instruction(lambda source, target: types.void(types.int64, types.int64))
def _copy_16(block, source, target):
    value = block.load(_pointer(block, source, _TWO), align=1)
    block.store(value, _pointer(block, target, _TWO), align=1)


@instruction(lambda source, target, n: types.void(types.int64, types.int64, types.int64))
def _copy_many(block, source, target, n):
    def moved(first):
        starts = [block.add(first, to.I64(_BYTES * k)) for k in range(4)]
        lanes = [
            block.load(_pointer(block, block.add(source, at), _MANY), align=1) for at in starts
        ]
        for at, value in zip(starts, lanes, strict=True):
            block.store(value, _pointer(block, block.add(target, at), _MANY), align=1)

    # In between, what is written begins where vectors do: a store across two lines of the cache,
    # in the middle of a word, takes up to twice as long. Loads hardly mind.
    moved(to.I64(0))
    start = block.sub(to.I64(4 * _BYTES), block.and_(target, to.I64(_BYTES - 1)))
    last = block.sub(n, to.I64(4 * _BYTES))
    with cgutils.for_range_slice(block, start, last, to.I64(4 * _BYTES)) as (first, _):
        moved(first)
    moved(last)


@instruction(lambda source, target, n: types.void(types.int64, types.int64, types.int64))
def _copy(block, source, target, n):
    places = (_pointer(block, address, to.BYTE) for address in (target, source))
    cgutils.raw_memcpy(block, *places, n, 1)


@instruction(lambda descriptor, address, n, offset: types.int64(*[types.int64] * 4))
def _pread(block, descriptor, address, n, offset):
    descriptor = block.trunc(descriptor, to.I32)
    return to.call(block, "pread", to.I64, descriptor, _pointer(block, address, to.BYTE), n, offset)


@instruction(
    lambda address, n, crc: types.UniTuple(types.uint64, 2)(types.int64, types.int64, types.uint64)
)
def _fold(block, address, n, crc):
    def moved(value, by):
        halves = (
            to.call(block, "llvm.x86.pclmulqdq", _TWO, value, by, to.BYTE(which))
            for which in (0x00, 0x11)
        )
        return block.xor(*halves)

    def taken(start, lane):
        place = block.add(start, to.I64(16 * lane))
        return block.load(_pointer(block, place, _TWO), align=1)

    lanes = to.variables(block, _TWO, 4)
    none = to.constant(_TWO, 0)
    for lane, place in enumerate(lanes):
        value = taken(address, lane)
        if lane == 0:
            value = block.xor(value, block.insert_element(none, crc, to.I32(0)))
        block.store(value, place)
    start, end = block.add(address, to.I64(64)), block.add(address, n)
    with cgutils.for_range_slice(block, start, end, to.I64(64)) as (at, _):
        for lane, place in enumerate(lanes):
            block.store(block.xor(moved(block.load(place), _PAST_512), taken(at, lane)), place)
    value = block.load(lanes[0])
    for place in lanes[1:]:
        value = block.xor(moved(value, _PAST_128), block.load(place))
    return [block.extract_element(value, to.I32(half)) for half in (0, 1)]


@helper
def span_of(array):
    """Return the address and the number of bytes of an array, which must stay alive."""
    return np.int64(array.ctypes.data), np.int64(array.nbytes)


@helper
def place_in(span, i, n):
    """Return the address of n bytes from byte i on."""
    address, size = span
    if CHECKED and (i < 0 or n > size - i):
        raise IndexError("bytes outside of their array")
    return address + i


@helper
def byte(x, i):
    """Return byte i of a span, as int64."""
    return _byte(place_in(x, i, 1))


@helper
def word(x, i):
    """Return bytes i to i + 7 of a span as one number, lowest byte first."""
    return _word(place_in(x, i, 8))


@helper
def equal_lanes(x, i, number):
    """Return which of the eight uint32 from byte i on are equal to a number, as bits."""
    return _equal_lanes(place_in(x, i, 32), number)


@helper
def put_word(number, out, j):
    """Write bytes j to j + 7 of a span as `word` reads them."""
    _put_word(number, place_in(out, j, 8))


@helper
def bytes_at(x, i, n):
    """Return n bytes of a span, from byte i on, as an array."""
    return carray(_bytes(np.uint64(place_in(x, i, n))), n)


@helper
def pairs_at(x, i, n):
    """Return n numbers of 2 bytes each as `bytes_at` does."""
    return carray(_pairs(np.uint64(place_in(x, i, 2 * n))), n)


@helper
def fours_at(x, i, n):
    """Return n numbers of 4 bytes each as `bytes_at` does."""
    return carray(_fours(np.uint64(place_in(x, i, 4 * n))), n)


@helper
def eights_at(x, i, n):
    """Return n numbers of 8 bytes each as `bytes_at` does; i is a multiple of 8."""
    return carray(_eights(np.uint64(place_in(x, i, 8 * n))), n)


@helper
def read_file(descriptor, offset, out, j, n):
    """Read n bytes of an open file to byte j on; return how many there are, or -1."""
    done = 0
    while done < n:
        found = _pread(descriptor, place_in(out, j + done, n - done), n - done, offset + done)
        if found <= 0:
            return done if found == 0 else -1
        done += found
    return done


@helper
def copy_16(x, i, out, j):
    """Copy bytes i to i + 15 to bytes j to j + 15; all are read before any is written."""
    _copy_16(place_in(x, i, 16), place_in(out, j, 16))


@helper
def copy(x, i, out, j, n):
    """Copy n bytes from byte i on to byte j on.

    The two must not overlap unless these are 256 bytes or more before those.

    Many in vectors: `memcpy` leaves them to an instruction (rep movsb) that takes up to ten times
    as long on Zen 3 and Zen 4 where neither place is a multiple of 64 bytes from the other.
    """
    source, target = place_in(x, i, n), place_in(out, j, n)
    if n >= 4 * _BYTES:
        _copy_many(source, target, n)
    else:
        _copy(source, target, n)


@helper
def fold(x, i, n, crc):
    """Return two words whose CRC-32 is that of n bytes from byte i on, begun with `crc`.

    n > 0 is a multiple of 64.
    """
    return _fold(place_in(x, i, n), n, crc)
