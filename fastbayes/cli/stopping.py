"""Ctrl-C and its relatives: the first one unwinds the work, so that nothing half-written stays."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Stopped(KeyboardInterrupt):
    """A signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` at the first signal; further ones wait until what was begun is cleaned up.

    Signals that the caller ignores (nohup, a shell's background job) stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]

    def stop(number: int, _: FrameType | None) -> NoReturn:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
