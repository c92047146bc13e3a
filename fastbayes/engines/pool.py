"""Processes of this machine as an engine: `paths` gives a source that they read."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fastbayes.core.errors import FastBayesError
from fastbayes.core.numbers import check_whole
from fastbayes.core.threads import default_threads
from fastbayes.engines.shares import Paths
from fastbayes.kernels import dispatch

__all__ = ["paths"]

# Parts for each process: the last to end does so soon after the others.
PARTS = 4
# So often processes may end, with nothing done between: as often as Spark tries a task.
ATTEMPTS = 4
# Seconds after which it is asked whether the processes still live: while one dies, work that is
# handed over may be lost (CPython before 3.12).
PATIENCE = 5.0


def paths(
    source: Any, *, processes: int | None = None, start: str = "spawn", filesystem: Any = None
) -> Paths:
    """Return files as a source that processes read, each some of them.

    Parameters
    ----------
    source
        A path, glob, directory or URI, or a list of paths, as `count` takes them.
    processes
        How many, one for each processor by default. Each works on one thread unless a call says
        otherwise by `threads`. They begin with the first call and end with the source.
    start
        How a process begins, as `multiprocessing.get_context` has it: "spawn", "forkserver" or
        "fork". By all but "fork", a script that calls this needs `if __name__ == "__main__":`.
    filesystem
        A pyarrow or fsspec file system for paths, which may be pickled.

    Returns
    -------
    Paths
        A source, to be used more than once.

    Raises
    ------
    ValueError
        When there is no such way to start, or `processes` is not a whole number >= 1.

    Examples
    --------
    >>> import fastbayes as fb
    >>> fb.engines.pool.paths("flights/*.parquet", processes=2)
    <Paths 'flights/*.parquet' in 8 parts>
    """
    if processes is not None:
        check_whole("processes", processes, 1, ", or None for all")
    n = default_threads() if processes is None else processes
    return Paths(source, _Processes(n, start).map, PARTS * n, filesystem)


class _Processes:
    """Processes that begin with the first work and end with this object."""

    def __init__(self, n: int, start: str) -> None:
        self._n, self._context = n, multiprocessing.get_context(start)
        self._executor: ProcessPoolExecutor | None = None

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield function(item) in the order of the items.

        What a process was working on that ended is done once more, by new ones: nothing is lost,
        nor done twice. Raises FastBayesError if they end again and again, and nothing is done.
        """
        given = [*items]
        begun: dict[int, Future[Any]] = {}
        done, left, ended = 0, len(given), 0
        try:
            while done < len(given):
                try:
                    for i in range(done, len(given)):
                        if i not in begun:
                            begun[i] = self._submitted(function, given[i])
                    while done < len(given):
                        while not wait([begun[done]], PATIENCE).done:
                            self._submitted(int, 0)  # raises where they do not
                        yield begun[done].result()
                        del begun[done]
                        done += 1
                except BrokenProcessPool as error:
                    self._executor = None
                    begun = {i: future for i, future in begun.items() if _ended(future)}
                    before, left = left, len(given) - done - len(begun)
                    ended = ended + 1 if left == before else 1
                    if ended == ATTEMPTS:
                        raise FastBayesError(
                            f"processes ended {ended} times before they had done anything "
                            f"({error}): there may be too little memory for so many, or a script "
                            'starts them without if __name__ == "__main__":'
                        ) from None
        finally:
            for future in begun.values():
                future.cancel()

    def _submitted(self, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self._n, mp_context=self._context, initializer=_begin
            )
            weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        try:
            return self._executor.submit(function, item)
        except OSError:  # of what a new process was to be given, when another one ended
            self._executor.submit(int, 0)  # says so
            raise


def _ended(future: Future[Any]) -> bool:
    """Return whether work was done, or failed, before a process that did others ended."""
    return future.done() and not isinstance(future.exception(), BrokenProcessPool)


def _begin() -> None:
    """Have this process end with the one that began it, even if that is killed.

    It would wait for work for ever: its siblings keep the pipe open that gives it. That its kernels
    are not cached the other one says, once for all.
    """
    dispatch.log.setLevel(logging.ERROR)
    parent = multiprocessing.parent_process()

    def end() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
