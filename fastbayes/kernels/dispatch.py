"""The one decorator of every compiled function, and the one way to reach them.

`import fastbayes` must stay light, so nothing here imports numba at the top and nobody
imports `fastbayes.kernels.compiled` directly: callers take a module through `load`, or through
`compiled_module` where it has no twin.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
import pickle
import pkgutil
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import FastBayesError

# Below this many cells (rows x columns) numpy is done before numba is imported.
SMALL = 200_000
# Whole numbers are the same whoever adds them. So many codes and counts take numpy as long as it
# takes to compile what is faster: who rents until then pays at most twice what was best.
FEW_ADDITIONS = 100_000_000

log = logging.getLogger(__name__)


def compiled(cells: float, small: int = SMALL) -> bool:
    """Return whether a job of this many cells is worth the compiled kernels.

    `small` is another number for kernels that cost more to compile, or have a fast twin.
    `FASTBAYES_KERNELS=always|never|auto` (default auto) overrides the rule.
    """
    choice = os.environ.get("FASTBAYES_KERNELS", "auto")
    if choice not in ("auto", "always", "never"):
        raise ValueError(f"FASTBAYES_KERNELS={choice!r}: use 'auto', 'always' or 'never'")
    return choice == "always" or (choice == "auto" and cells * _times.get() >= small)


@contextmanager
def repeated(times: float) -> Iterator[None]:
    """Choose kernels as for so many times the cells: the rows of a job come again and again."""
    before = _times.set(_times.get() * times)
    try:
        yield
    finally:
        _times.reset(before)


_times: ContextVar[float] = ContextVar("times", default=1.0)


def cells_of_whole(cells: float, additions: float) -> float:
    """Return the cells by which a job chooses kernels whose results are whole numbers.

    Where nothing is on the disk they are 0, for numpy, until such jobs of this process have come
    to `FEW_ADDITIONS`. Asked once in a job: another one, at the same time, may make the difference.
    """
    global _additions
    if compiled(cells):
        _additions += additions
        if _additions < FEW_ADDITIONS and not _on_disk():
            return 0.0
    return cells


_additions = 0.0


@functools.cache
def _on_disk() -> bool:
    """Return whether the disk holds machine code of the kernel that writes codes."""
    held = getattr(getattr(load("reading.encode").write_codes, "_cache", None), "_cache_file", None)
    try:
        return held is not None and bool(held._load_index())
    except Exception as error:  # damaged bytes can raise anything when unpickled
        _warn(error)
        return False


def load(name: str, cells: float = float("inf"), small: int = SMALL) -> ModuleType:
    """Return `fastbayes.kernels.compiled.<name>`, or its twin in `.numpy` for small jobs.

    name  folder and module, such as "counting.count"
    """
    if not compiled(cells, small):
        in_python()
        return numpy_twin(name)
    return compiled_module(name)


def compiled_module(name: str) -> ModuleType:
    """Return `fastbayes.kernels.compiled.<name>`, whatever the size of the job.

    Of what has no twin: whoever asks does so only where a job is worth the kernels.
    """
    return importlib.import_module(f"fastbayes.kernels.compiled.{name}")


@functools.cache  # which takes a third of the time of looking the module up
def numpy_twin(name: str) -> ModuleType:
    """Return `fastbayes.kernels.numpy.<name>`, whatever the size of the job."""
    return importlib.import_module(f"fastbayes.kernels.numpy.{name}")


def reads(dtype: str, ndim: int = 1) -> str:
    """Return how numba writes the type of an input array: C-contiguous and read-only."""
    return f"readonly array({dtype}, {ndim}d, C)"


def writes(dtype: str, ndim: int = 1) -> str:
    """Return how numba writes the type of an output or scratch array: C-contiguous, writable."""
    return f"array({dtype}, {ndim}d, C)"


def in_one_piece(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that is C-contiguous and aligned: itself, or a copy."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=("C", "A"))


def readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Return the one layout in which kernels take input: C-contiguous, aligned, read-only.

    A view; of a strided or misaligned array a copy.
    """
    array = in_one_piece(array)
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _numba() -> Any:
    """Return numba, which is typed in name only."""
    return importlib.import_module("numba")


def interpreted() -> bool:
    """Return whether kernels run as Python (NUMBA_DISABLE_JIT=1), where intrinsics cannot."""
    return bool(_numba().config.DISABLE_JIT)


@contextmanager
def recording(calls: list[tuple[Any, tuple[Any, ...]]]) -> Iterator[None]:
    """Take note of what this thread calls through `call` instead of calling it."""
    _local.calls = calls
    try:
        yield
    finally:
        _local.calls = None


class Row(int):
    """The number of a row as an argument of `call`: it moves on from block to block."""


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel, now or when the program is run that takes note of it; return what it returns.

    None where it was noted down.

    Whoever calls so does nothing else with rows, nor with what the kernel writes. Of that, what
    does not move on with the rows is scratch, whatever it held before, or int64 that the kernel
    adds to: each thread may have its own. Arrays of uint64 (n,) that it reads are addresses.
    """
    calls = getattr(_local, "calls", None)
    if calls is None:
        return kernel(*arguments)
    calls.append((kernel, arguments))
    return None


class NotRepeatableError(Exception):
    """What was to be noted down works on rows in Python, and has not begun."""


def in_python() -> None:
    """Say that what follows works on rows in Python: it cannot be noted down and repeated."""
    if getattr(_local, "calls", None) is not None:
        raise NotRepeatableError


_local = threading.local()


def kernel(function: Callable[..., Any], *, nogil: bool = True) -> Any:
    """Compile a flat function on first use: no GIL, numpy's division, no fast maths.

    What takes microseconds keeps the GIL (`short_kernel`): beside a thread that runs Python it
    takes 5 ms to get it back.

    The machine code is kept on disk unless `FASTBAYES_CACHE=0`. Where that cannot be done
    (read-only installation without a home, disk full, damaged files), one warning is logged
    and the function is compiled anew.
    """
    # Only Python and other kernels call it: it needs no wrapper for C.
    dispatcher = _numba().njit(
        nogil=nogil,
        error_model="numpy",
        fastmath=False,
        no_cfunc_wrapper=True,
        pipeline_class=importlib.import_module("fastbayes.kernels.passes").FlatCompiler,
    )(function)
    if interpreted():
        return dispatcher
    importlib.import_module("fastbayes.kernels.entry").make_enter()
    if os.environ.get("FASTBAYES_CACHE") == "0":
        return dispatcher
    try:
        dispatcher._cache = _disk_cache()(function)
    except (OSError, RuntimeError) as error:  # numba found no directory to write to
        _warn(error)
    return dispatcher


def short_kernel(function: Callable[..., Any]) -> Any:
    """Compile a flat function that takes microseconds, as `kernel` does."""
    return kernel(function, nogil=False)


def unrolled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let LLVM write several turns of the loops of a flat function one after the other.

    For loops of very few instructions that run as long as the work does: it takes more of its time
    than all else that it does for such a function. Stands below `kernel` or `helper`.
    """
    function.unrolled = True  # type: ignore[attr-defined]
    return function


def scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have LLVM do one turn at a time of the loops of a flat function.

    For loops of few turns, over classes or the values of a column: what does several turns at once,
    and what is left of them, is several times as much code and is hardly ever run. Stands below
    `kernel` or `helper`.
    """
    function.scalar = True  # type: ignore[attr-defined]
    return function


def unswitched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let LLVM write the loops of a kernel anew for each way of conditions that stay the same.

    Also those of the helpers that it calls. For loops of few instructions that ask in each turn
    what the arguments are. Stands below `kernel`.
    """
    function.unswitched = True  # type: ignore[attr-defined]
    return function


def helper(function: Callable[..., Any]) -> Any:
    """Let kernels call a flat function: it is compiled into each that does."""
    compiler = importlib.import_module("fastbayes.kernels.passes").FlatCompiler
    extending = importlib.import_module("numba.extending")
    return extending.register_jitable(pipeline_class=compiler)(function)


@functools.cache
def _disk_cache() -> Any:
    """Return numba's disk cache, made so that no state of the disk can raise or mislead."""
    caching: Any = importlib.import_module("numba.core.caching")
    runtime: Any = importlib.import_module("numba.core.runtime")
    # numba's stamp sees a kernel's own file only; it is built on files that declare no kernels.
    shared = hashlib.sha256()
    here = Path(__file__).parent
    files = [file for of in ("*", "compiled/**/*", "shared/*") for file in here.glob(f"{of}.py")]
    for path in sorted(files):
        source = path.read_bytes()
        shared.update(b"" if re.search(rb"^SIGNATURES\b", source, re.M) else source)

    class SealedFile(caching.IndexDataCacheFile):  # type: ignore[misc]
        """Each entry carries a digest of key, source and code.

        Damaged code would load, then crash or miscount; and two processes that save at once
        can leave an index that names the other one's entry.
        """

        def save(self, key: Any, data: Any) -> None:
            code = self._dump(data)
            super().save(key, (self._digest(key, code), code))

        def load(self, key: Any) -> Any:
            digest, code = super().load(key) or (None, b"")
            return pickle.loads(code) if digest == self._digest(key, code) else None

        def _digest(self, key: Any, code: bytes) -> bytes:
            return hashlib.sha256(repr((key, self._source_stamp)).encode() + code).digest()

    class DiskCache(caching.FunctionCache):  # type: ignore[misc]
        """A failure to load or to save means: compile."""

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            self._cache_file = SealedFile(
                cache_path=self._cache_path,
                filename_base=self._impl.filename_base,
                source_stamp=(
                    self._impl.locator.get_source_stamp(),
                    shared.digest(),
                    _imported(function.__code__.co_filename),
                ),
            )

        def load_overload(self, signature: Any, context: Any) -> Any:
            try:
                # Numba's own makes ready to compile, which takes longer than to load all kernels;
                # what is found needs its runtime alone, and else the compiler makes itself ready.
                runtime.rtsys.initialize(context)
                with self._guard_against_spurious_io_errors():
                    return self._load_overload(signature, context)
            except Exception as error:  # damaged bytes can raise anything when unpickled
                _warn(error)
                try:
                    self.flush()
                except OSError:
                    self.disable()
                return None

        def save_overload(self, signature: Any, data: Any) -> None:
            try:
                super().save_overload(signature, data)
            except Exception as error:
                _warn(error)
                self.disable()

    return DiskCache


@functools.cache
def _imported(filename: str) -> bytes:
    """Return a digest of the kernel modules that one of them imports, which may be built in."""
    path, found = Path(filename), hashlib.sha256()
    taken = r"from fastbayes\.kernels\.compiled\.(\w+)(?:\.| import )(\w+)"
    for folder, name in sorted(re.findall(taken, path.read_text("utf-8"))):
        found.update((path.parents[1] / folder / f"{name}.py").read_bytes())
    return found.digest()


def _warn(error: Exception) -> None:
    """Log once in a process why compiled code is not kept on, or not taken from, the disk."""
    global _warned
    if not _warned:
        _warned = True
        log.warning(
            "compiled kernels cannot be cached, this process compiles them anew (%s: %s); "
            "point NUMBA_CACHE_DIR at a writable directory, or set FASTBAYES_CACHE=0",
            type(error).__name__,
            error,
        )


def compile_declared() -> Iterator[tuple[str, float]]:
    """Compile every signature that a kernel module declares, or load it from the disk.

    Yields the name of each module, as `load` takes it, and the seconds that it took.
    """
    if interpreted():
        raise FastBayesError("NUMBA_DISABLE_JIT is set: unset it to compile")
    _on_disk.cache_clear()
    kernels = importlib.import_module("fastbayes.kernels.compiled")
    prefix = f"{kernels.__name__}."
    for found in pkgutil.walk_packages(kernels.__path__, prefix):
        start = time.perf_counter()
        module = importlib.import_module(found.name)
        declared = getattr(module, "SIGNATURES", {})
        for name, signatures in declared.items():
            for signature in signatures:
                getattr(module, name).compile(tuple(map(_numba().typeof, map(_example, signature))))
        if declared:
            yield found.name.removeprefix(prefix), time.perf_counter() - start


def _example(declared: str) -> Any:
    """Return a value of the type that `reads`, `writes` or a scalar's name declares."""
    if declared == "none":
        return None
    array = re.fullmatch(r"(readonly )?array\((\w+), (\d)d, C\)", declared)
    if array is None:
        return np.dtype(declared).type(0)
    example = np.zeros((1,) * int(array[3]), array[2])
    example.setflags(write=array[1] is None)
    return example


def uncached() -> bool:
    """Return whether compiled code could not be kept on disk in this process."""
    return _warned


@functools.cache
def warn_of_workers() -> None:
    """Log once in a process that compiled code could not be kept on disk in its workers."""
    log.warning(
        "compiled kernels cannot be cached where workers run, each compiles them anew; point "
        "NUMBA_CACHE_DIR at a directory that they can write to, or set FASTBAYES_CACHE=0"
    )


_warned = False
