"""A command is killed or asked to end at any moment."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from stress.jobs import DRAWN, JOBS, Process, check_next, check_whole, finished, old

ABOUT = (
    "`kill -9`, TERM, INT or HUP at a call of the file system or at a random time: the old output "
    "or the new one is there, whole; the next run removes what is left and ends to the same bits"
)
SECONDS, BATCH = 300.0, 100
SIGNALS = ["SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"]


def case(rng: np.random.Generator, folder: Path) -> str:
    """Stop one command once."""
    name, how = str(rng.choice(DRAWN)), str(rng.choice(SIGNALS))
    number = getattr(signal, how)
    whole = finished(name)
    before = old(name, folder, rng)
    at = int(rng.integers(1, len(whole.calls) + 1)) if whole.calls and rng.integers(4) else None
    process = Process(name, folder, {"at": at, "do": how})
    if at is None:
        time.sleep(rng.random() * whole.seconds)
        os.kill(process.pid, number)
    code = process.wait()
    if how == "SIGKILL":
        assert code in (0, -number), process.said
    else:  # at any time also before the command begins, or after it ended
        assert code in (0, 128 + number, *([-number, 1] if at is None else [])), process.said
        assert at is None or "Traceback" not in process.said, process.said
    found = check_whole(name, folder, before, unfinished=how == "SIGKILL")
    if code == 0 and JOBS[name][1]:
        assert found == "new" or before == whole.files, "done, and no output"
    check_next(name, folder)
    return f"{how}: {found}"
