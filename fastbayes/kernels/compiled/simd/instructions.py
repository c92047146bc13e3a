"""Functions of kernels written in LLVM's own instructions, so that any processor can run them.

Vectors are LLVM's types. Loads and stores are unchecked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

BYTE, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
DOUBLE = ir.DoubleType()
# What writes instructions; llvmlite carries no types.
Block = Any


def instruction(result: Callable[..., Any], literal: bool = False) -> Callable[..., Any]:
    """Make an intrinsic of a function that writes instructions: `function(block, *arguments)`.

    Parameters
    ----------
    result
        Gives numba's signature for the types of the arguments.
    literal
        Whether integers that are constants in the kernel are part of the type.

    Notes
    -----
    The function gets arrays as numba's structures, which have `data` and `shape`; tuples as
    lists; constants as integers; the rest as values. It returns a value, a list of them for a
    tuple, or None for nothing.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        def typed(typing: Any, *kinds: Any) -> Any:
            def code(context: Any, block: Any, signature: Any, args: Any) -> Any:
                given = [
                    context.make_array(kind)(context, block, value)
                    if isinstance(kind, types.Array)
                    else cgutils.unpack_tuple(block, value)
                    if isinstance(kind, types.UniTuple)
                    else kind.literal_value
                    if isinstance(kind, types.IntegerLiteral)
                    else value
                    for kind, value in zip(signature.args, args, strict=True)
                ]
                made = function(block, *given)
                if isinstance(made, list):
                    return context.make_tuple(block, signature.return_type, made)
                return context.get_dummy_value() if made is None else made

            return result(*kinds), code

        typed.__name__, typed.__doc__ = function.__name__, function.__doc__
        # numba asks for the names of the arguments, and takes no `*kinds`.
        own = list(inspect.signature(function).parameters.values())[1:]
        first = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        typed.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
        return intrinsic(prefer_literal=literal)(typed)

    return decorated


def at(block: Block, data: Any, index: Any, kind: Any) -> Any:
    """Return the place of an element as a pointer to a type."""
    return block.bitcast(block.gep(data, [index]), kind.as_pointer())


def load_at(block: Block, data: Any, index: Any, kind: Any, align: int = 8) -> Any:
    """Return what stands from an element on."""
    return block.load(at(block, data, index, kind), align=align)


def store_at(block: Block, value: Any, data: Any, index: Any, align: int = 8) -> None:
    """Write a value from an element on."""
    block.store(value, at(block, data, index, value.type), align=align)


def pick(block: Block, a: Any, b: Any, lanes: Iterable[int]) -> Any:
    """Return some lanes of two vectors side by side."""
    lanes = list(lanes)
    return block.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def splat(block: Block, value: Any, vector: Any) -> Any:
    """Return a value in every lane of a type of vectors."""
    none = ir.Constant(vector, ir.Undefined)
    return pick(block, block.insert_element(none, value, I32(0)), none, [0] * vector.count)


def constant(vector: Any, number: Any) -> Any:
    """Return a number in every lane of a type of vectors."""
    return ir.Constant(vector, [number] * vector.count)


def call(block: Block, name: str, result: Any, *args: Any) -> Any:
    """Call one of LLVM's functions."""
    kind = ir.FunctionType(result, [value.type for value in args])
    return block.call(cgutils.get_or_insert_function(block.module, kind, name), args)


def fma(block: Block, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once where the machine does that at full speed."""
    lanes = f"v{a.type.count}" if isinstance(a.type, ir.VectorType) else ""
    return call(block, f"llvm.fmuladd.{lanes}f64", a.type, a, b, c)


def variables(block: Block, vector: Any, n: int) -> list[Any]:
    """Return places for n vectors, which are 0 at first; LLVM keeps them in registers."""
    return [cgutils.alloca_once_value(block, constant(vector, 0)) for _ in range(n)]


def sum_by_halves(block: Block, a: Any) -> Any:
    """Return the sum of the lanes, one half added to the other until one is left."""
    while a.type.count > 1:
        half = a.type.count // 2
        a = block.fadd(pick(block, a, a, range(half)), pick(block, a, a, range(half, 2 * half)))
    return block.extract_element(a, I32(0))


def pointer_to(target: Any) -> Any:
    """Return the function of an address that gives the pointer there, for `carray`."""

    @instruction(lambda address: types.CPointer(target)(types.uint64))
    def pointer(block, address):
        """Return the pointer at an address."""
        kind = ir.DoubleType() if target == types.float64 else ir.IntType(target.bitwidth)
        return block.inttoptr(address, kind.as_pointer())

    return pointer


@instruction(lambda pointer, n: types.Array(pointer.dtype, 1, "C")(pointer, types.int64))
def carray(block, pointer, n):
    """Return the array of n elements at a pointer.

    Numba's `carray` is a function of its own for each kind of element, and optimised apart.
    """
    row = ir.ArrayType(I64, 1)
    parts = [BYTE.as_pointer(), BYTE.as_pointer(), I64, I64, pointer.type, row, row]
    array = ir.Constant(ir.LiteralStructType(parts), None)
    kind = pointer.type.pointee
    size = I64(8 if kind == DOUBLE else kind.width // 8)
    fields = {2: n, 3: size, 4: pointer, (5, 0): n, (6, 0): size}
    for place, value in fields.items():
        array = block.insert_value(array, value, place)
    return array


@instruction(lambda array: types.int64(array))
def address(block, array):
    """Return where an array lies."""
    return block.ptrtoint(array.data, I64)


@instruction(lambda turn: types.int64(turn))
def next_turn(block, turn):
    """Return turn[0] and add 1 to it: a number of which no other thread gets hold."""
    return block.atomic_rmw("add", turn.data, I64(1), "monotonic")


@instruction(lambda address, index: types.float64(types.uint64, types.uint64))
def number_at(block, address, index):
    """Return the float64 of this index in the column at an address."""
    return block.load(block.gep(block.inttoptr(address, DOUBLE.as_pointer()), [index]), align=8)
