"""How Python enters a kernel: by one function for all, which takes the arguments out of Python.

Numba writes such a function for every signature of every kernel, a third of what it compiles. Here
a signature has two functions of a few instructions: `thunk` calls the kernel with arguments from
memory, which is how `compiled.repeat` calls it too, and what Python calls has `enter` put them
there.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

_binding: Any = importlib.import_module("llvmlite.binding")
_callconv: Any = importlib.import_module("numba.core.callconv")
_cgutils: Any = importlib.import_module("numba.core.cgutils")
_compiler_lock: Any = importlib.import_module("numba.core.compiler_lock")
_ir: Any = importlib.import_module("llvmlite.ir")
_registry: Any = importlib.import_module("numba.core.registry")
_types: Any = importlib.import_module("numba.core.types")

BYTE, I32, I64, DOUBLE = _ir.IntType(8), _ir.IntType(32), _ir.IntType(64), _ir.DoubleType()
OBJECT, WORDS, ERROR = BYTE.as_pointer(), I64.as_pointer(), _callconv.excinfo_ptr_t
# status = thunk(arguments, place of the result, place of a pointer to what an error says)
THUNK = _ir.FunctionType(I32, [WORDS, WORDS, ERROR.as_pointer()])
# result = enter(tuple of arguments, kinds of result and arguments, words of arguments, thunk)
ENTER = _ir.FunctionType(OBJECT, [OBJECT, OBJECT, I64, THUNK.as_pointer()])
# Its name where the kernel runs without the interpreter's lock, and where it keeps it.
NAMES = {True: "fastbayes_enter", False: "fastbayes_enter_locked"}

# The kinds of results and arguments; an array is its rank.
NONE, INTEGER, BOOLEAN, FLOAT = b"nibf"
# What a kernel may return: a word, or the low half of one that is 0.
RESULTS = {"none": NONE, "int64": INTEGER, "uint32": INTEGER, "float64": FLOAT, "bool": BOOLEAN}
HEAD = 5  # words of an array before its shape and strides


def thunk_name(described: Any) -> str:
    """Return the name of the thunk in the library of what numba describes so."""
    return f"{described.llvm_func_name}.thunk"


def add_entry(context: Any, library: Any, described: Any, *, nogil: bool) -> None:
    """Add to the library of a compiled kernel what calls it from memory, and from Python.

    Written as text: to build so many instructions by llvmlite takes five times as long.
    """
    kernel, thunk = f'@"{described.llvm_func_name}"', f'@"{thunk_name(described)}"'
    called = context.call_conv.get_function_type(described.restype, described.argtypes)
    types = [str(each) for each in called.args[2:]]
    words = range(len(types))
    kinds = bytes([RESULTS[str(described.restype)], *map(kind_of, described.argtypes), 0])
    # The kernel is kept apart, so that it is optimised alike whoever calls it.
    lines = (
        f"declare i32 {kernel}({', '.join(['ptr', 'ptr', *types])})",
        f"declare ptr @{NAMES[nogil]}(ptr, ptr, i64, ptr)",
        f"@kinds = internal constant [{len(kinds)} x i8] [{', '.join(f'i8 {k}' for k in kinds)}]",
        f"define i32 {thunk}(ptr %words, ptr %result, ptr %error) {{",
        *(f"%at{n} = getelementptr i64, ptr %words, i64 {n}" for n in words),
        *(f"%a{n} = load {types[n]}, ptr %at{n}" for n in words),
        f"%status = call i32 {kernel}(ptr %result, ptr %error"
        f"{''.join(f', {types[n]} %a{n}' for n in words)}) noinline",
        "ret i32 %status",
        "}",
        f'define ptr @"{described.llvm_cpython_wrapper_name}"(ptr, ptr %given, ptr) {{',
        f"%made = call ptr @{NAMES[nogil]}(ptr %given, ptr @kinds, i64 {len(types)}, ptr {thunk})",
        "ret ptr %made",
        "}",
    )
    library.add_llvm_module(_binding.parse_assembly("\n".join(lines)))


def kind_of(argument: Any) -> int:
    """Return how `enter` takes an argument of this type of numba's."""
    if isinstance(argument, _types.Array):
        return ord(str(argument.ndim))
    return FLOAT if argument == _types.float64 else NONE if argument == _types.none else INTEGER


@functools.cache
def make_enter() -> None:
    """Compile `enter`, and tell LLVM where it is: kernels from the disk ask for it by name."""
    for nogil, name in NAMES.items():
        with _compiler_lock.global_compiler_lock:
            library = _enter(name, nogil=nogil)
        _kept.append(library)
        _binding.add_symbol(name, library.get_pointer_to_function(name))


def _enter(name: str, *, nogil: bool) -> Any:
    """Return the library of `enter`."""
    context = _registry.cpu_target.target_context
    library = context.codegen().create_library(name)
    module = context.create_module(name)
    function = _ir.Function(module, ENTER, name)
    block = _ir.IRBuilder(function.append_basic_block())
    python = context.get_python_api(block)
    arguments, kinds, n_words, thunk = function.args

    def call(name: str, result: Any, *values: Any) -> Any:
        """Call a function of Python or of numba's runtime."""
        kind = _ir.FunctionType(result, [value.type for value in values])
        return block.call(_cgutils.get_or_insert_function(module, kind, name), values)

    words = block.alloca(I64, size=n_words)
    result = _cgutils.alloca_once_value(block, I64(0))
    error = _cgutils.alloca_once(block, ERROR)
    place = _cgutils.alloca_once_value(block, words)
    with _cgutils.for_range(block, call("PyTuple_Size", I64, arguments)) as loop:
        argument = call("PyTuple_GetItem", OBJECT, arguments, loop.index)
        kind = block.load(block.gep(kinds, [block.add(loop.index, I64(1))]))
        at = block.load(place)
        with block.if_else(block.icmp_unsigned("<=", kind, BYTE(ord("9")))) as (array, number):
            with array:
                call("numba_adapt_ndarray", I32, argument, block.bitcast(at, OBJECT))
                rank = block.zext(block.sub(kind, BYTE(ord("0"))), I64)
                used = block.add(I64(HEAD), block.shl(rank, I64(1)))
                block.store(block.gep(at, [used]), place)
            with number:
                block.store(I64(0), at)
                with block.if_then(block.icmp_unsigned("==", kind, BYTE(FLOAT))):
                    value = call("PyFloat_AsDouble", DOUBLE, argument)
                    block.store(block.bitcast(value, I64), at)
                with block.if_then(block.icmp_unsigned("==", kind, BYTE(INTEGER))):
                    block.store(call("PyLong_AsUnsignedLongLongMask", I64, argument), at)
                block.store(block.gep(at, [I64(1)]), place)
    with block.if_then(_cgutils.is_not_null(block, call("PyErr_Occurred", OBJECT))):
        block.ret(python.get_null_object())
    thread = python.save_thread() if nogil else None
    code = block.call(thunk, [words, result, error])
    if nogil:
        python.restore_thread(thread)
    status = context.call_conv._get_return_status(block, code, block.load(error))
    with block.if_then(status.is_ok, likely=True):
        kind, word = block.load(kinds), block.load(result)
        with block.if_then(block.icmp_unsigned("==", kind, BYTE(INTEGER))):
            block.ret(python.long_from_longlong(word))
        with block.if_then(block.icmp_unsigned("==", kind, BYTE(FLOAT))):
            block.ret(python.float_from_double(block.bitcast(word, DOUBLE)))
        with block.if_then(block.icmp_unsigned("==", kind, BYTE(BOOLEAN))):
            block.ret(python.bool_from_long(block.and_(word, I64(1))))
        block.ret(python.make_none())
    context.call_conv.raise_error(block, python, status)
    block.ret(python.get_null_object())
    library.add_ir_module(module)
    library.finalize()
    return library


_kept: list[Any] = []  # machine code lives as long as its library
