"""Work shared out to threads, and how many of them there are."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from itertools import chain, islice
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fastbayes.core.machine import usable_processors
from fastbayes.core.numbers import check_whole

T = TypeVar("T")
U = TypeVar("U")

_local = threading.local()
# Pools that work, by their threads, and the one asked for last: threads that wait for work keep
# memory, so those of other pools end once nobody uses them.
_pools: WeakValueDictionary[int, ThreadPoolExecutor] = WeakValueDictionary()
_last: ThreadPoolExecutor | None = None
_pools_lock = threading.Lock()


def default_threads() -> int:
    """Return the threads to use: the processors this process may use, 1 inside a worker."""
    if getattr(_local, "worker", False) or _inside_worker():
        return 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_processors(), int(limit) if limit.isdecimal() and int(limit) else 1 << 30)


def _inside_worker() -> bool:
    """Return whether a scheduler that has its own processes or threads is calling."""
    if "LOKY_WORKER" in os.environ or "JOBLIB_SPAWNED_PROCESS" in os.environ:
        return True
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return True
    distributed = sys.modules.get("distributed.worker")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:  # distributed's way to say: not in a worker
        return False
    return True


def check_threads(threads: Any) -> None:
    """Raise ValueError where this is neither a positive whole number nor None."""
    if threads is not None:
        check_whole("threads", threads, 1, ", or None for all")


def resolved_threads(threads: int | None) -> int:
    """Return the number of threads asked for, or the default; ValueError below 1."""
    check_threads(threads)
    if threads is None:
        return default_threads()
    return 1 if getattr(_local, "worker", False) else int(threads)


def _pool(threads: int) -> ThreadPoolExecutor:
    global _last
    with _pools_lock:
        pool = _pools.get(threads)
        if pool is None:
            pool = ThreadPoolExecutor(
                threads, "fastbayes", initializer=lambda: setattr(_local, "worker", True)
            )
            # A worker that runs but is not yet known to its pool when Ctrl-C strikes would never
            # be asked to end, nor the process. Ctrl-C strikes the main thread alone, and one known
            # worker is enough to tell the others.
            first = threading.Thread(target=lambda: submitted(pool, int).result())
            with suppress(RuntimeError):  # no thread can begin any more
                first.start()
                first.join()
            _pools[threads] = pool
        _last = pool
        return pool


def submitted(pool: Executor, function: Callable[..., U], *arguments: Any) -> Future[U]:
    """Have a pool of threads call a function in the caller's context.

    Once the interpreter is about to end the calling thread does: then, in a thread that outlives
    the main one or in `atexit`, no pool takes work any more.
    """
    try:
        return pool.submit(copy_context().run, function, *arguments)
    except RuntimeError:
        done: Future[U] = Future()
        try:
            done.set_result(function(*arguments))
        except BaseException as error:
            done.set_exception(error)
        return done


def mapped(pool: Executor, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """Yield function(item) in the order of the items, on all of which a pool works at once."""
    futures = [submitted(pool, function, item) for item in items]
    return (future.result() for future in futures)


def together(own: Callable[[], object], others: Callable[[], U], threads: int) -> list[U]:
    """Call a function here and another on so many threads less one; return what these return.

    They do what there is to do together: what has not begun when this thread is done never does.
    """
    pool = _pool(threads)
    futures = [submitted(pool, others) for _ in range(threads - 1)]
    try:
        own()
    finally:
        begun = [future for future in futures if not future.cancel()]
        wait(begun)
    return [future.result() for future in begun]


def _after_fork() -> None:
    # A pool inherited through fork has no threads in the child, and a child forked while another
    # thread held the lock would wait for ever.
    global _pools, _last, _pools_lock
    _pools, _last, _pools_lock = WeakValueDictionary(), None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_order(
    function: Callable[[T], U],
    items: Iterable[T],
    threads: int,
    stopped: threading.Event | None = None,
    more: int = 1,
) -> Generator[U, None, None]:
    """Yield function(item) in the order of the items, working up to `threads` + `more` ahead.

    The read-ahead is what bounds memory; where what waits is small, more of it keeps fast threads
    from waiting for slow ones. An error or an interrupt cancels what has not begun,
    tells by `stopped` what has, and waits for it. A single item is no work for another thread.

    Who holds it by a name and may leave it before its end closes it: errors hold what names hold,
    and what has begun goes on until the garbage collector comes. That may be in another thread,
    where nothing is waited for.
    """
    items = iter(items)
    if getattr(_local, "worker", False):
        threads = 1  # workers that all waited for work of their own pool would wait for ever
    begun = [] if threads == 1 else list(islice(items, 2))
    if threads == 1 or len(begun) == 1:
        yield from map(function, chain(begun, items))
        return
    pool, ahead, here = _pool(threads), threads + more, threading.get_ident()
    waiting: deque[Future[U]] = deque()
    try:
        for item in chain(begun, items):
            waiting.append(submitted(pool, function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        if stopped is not None:
            stopped.set()
        for future in waiting:
            future.cancel()
        # The collector's thread may be one that is at work here, or one that these wait for.
        if threading.get_ident() == here:
            for future in waiting:
                if not future.cancelled():
                    future.exception()
