"""Ctrl-C and its relatives: the first one unwinds the work, so that nothing half-written stays.

What a handler raises is lost where Python code is called by code that cannot fail, and may leave a
lock of Python's import held, for which other threads then wait. Both are so in an import that
pyarrow does. So a signal that comes during an import is taken up after it, and one that comes long
after the first raises again, wherever the first was lost or what it waits for hangs.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Stopped(KeyboardInterrupt):
    """A signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


# An import may delay the first signal by so many seconds; signals within so many after one that was
# raised are ignored.
PATIENCE = 5.0
# An import is looked at again after so many seconds.
AGAIN = 0.05


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` at the first signal, and at those that come `PATIENCE` seconds after one.

    Sooner ones wait until what was begun is cleaned up. Signals that the caller ignores (nohup, a
    shell's background job) stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    send, outside = _sender(), _imports(sys._getframe())
    later: threading.Timer | None = None
    first = deaf_until = 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal later, first, deaf_until
        now = time.monotonic()
        if now < deaf_until:
            return
        first = first or now
        if now < first + PATIENCE and _imports(frame) > outside:
            if later is not None:
                later.cancel()
            later = threading.Timer(AGAIN, send, [number])
            later.daemon = True
            later.start()
            return
        deaf_until = now + PATIENCE
        raise Stopped(number)

    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        if later is not None and later.is_alive():  # the work ended first
            later.cancel()
            later.function(*later.args)


def _imports(frame: FrameType | None) -> int:
    """Return in how many frames of imports a frame is."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return found


def _sender() -> Callable[[int], object]:
    """Return what sends a signal to this thread, and ends what it waits for."""
    if hasattr(signal, "pthread_kill"):
        return partial(signal.pthread_kill, threading.get_ident())
    return signal.raise_signal  # Windows
