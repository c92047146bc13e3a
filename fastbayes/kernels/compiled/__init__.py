"""Compiled kernels: numpy arrays in, numpy arrays out; no Arrow, no classes, no strings.

`reading`, `counting`, `fitting` and `scoring` say what the kernels in them are for. A module there
holds leaf kernels (`@kernel`, flat, nothing allocated per row, nothing returned) and below them the
drivers: Python functions that choose, group and call them. Drivers are what the floors above use,
through `fastbayes.kernels.dispatch.load(name)`; each has a twin of the same name and signature in
`fastbayes.kernels.numpy` and a naive one in `tests/oracles`. What both use stands in
`fastbayes.kernels.shared`; a driver that must fall back asks `dispatch.numpy_twin`.

A module whose work another library does where a job is not worth kernels, or that only other
kernels call, has no twin: it is reached through `dispatch.compiled_module(name)`.

What kernels are built of declares none itself: `simd` is what runs in registers inside them, made
by `simd.instructions.instruction` from LLVM's own; `plans` is what they are called with.

A leaf kernel has one layout per argument: inputs pass through `dispatch.readonly`, outputs and
scratch are writable, all are C-contiguous, integers are int64 (Python ints) unless typed.

Every module declares what it compiles::

    SIGNATURES = {
        "kernel_name": [
            (reads(codes, 2), reads("float64"), "int64", writes("float64"))   # argument types
            for codes in ("uint8", "uint16")
        ],
    }

with `reads` and `writes` from `dispatch`: the strings are numba's own, `str(numba.typeof(x))`
("none" for None). `tests/kernels/test_signatures.py` finds every module that has the table, runs
`exercise(module)` of `tests/exercises/<folder>/<module>.py`, which calls each driver once for every
declared row, and asserts that what was compiled is what was declared, no more and no less.
Helpers that are only called from other kernels are compiled into them: declare them as well.

What kernels share and nobody calls with rows is a `@helper`: it is optimised within them alone.
`passes` says what numba does to a kernel, `inference` how its types are found, `lowering` how it
is written in LLVM's representation, `entry` how Python calls one. A kernel makes no arrays:
scratch is an argument, and what would make one is refused. Arrays are assigned element by element,
or by `simd.memory.fill`: `a[i:j] = b` of an array b may copy b, which makes one, and of a number
takes numba twenty times as long as a loop.
"""
