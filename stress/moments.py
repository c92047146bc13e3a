"""The command line, in whose process something happens at the n-th call of the file system.

A plan says: `folders`, under which calls are counted, `at`, the number of a call (or None), and
`do`, what happens there: the name of a signal, or of an error that the call then meets. `size`
limits the size of files, as a full disk does; `log` is a file that gets the calls.

However it ends, a file that is renamed must have been made to survive a power cut before: the
process exits with 99 if not.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
from typing import Any

NOT_SYNCED = 99
# What Python says of its own calls (sys.audit), with the place of the path among the arguments.
CALLS = {"open": 0, "os.rename": 0, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.scandir": 0}


def main(plan: dict[str, Any], arguments: list[str]) -> None:
    """Run the command line."""
    from fastbayes.cli import main as command
    from fastbayes.scan import checkpoint

    checkpoint.SECONDS = 0.0  # after every segment
    if plan.get("size") is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan["size"],) * 2)
    done: list[str] = []
    synced: set[tuple[int, int, int]] = set()
    fsync = os.fsync

    def happens(name: str, path: str) -> None:
        done.append(f"{name} {os.path.relpath(path, plan['folders'][0])}")
        if len(done) != plan.get("at"):
            return
        if plan["do"].startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, plan["do"]))
        elif name != "os.remove" and name != "os.rmdir":  # or what is unfinished cannot but stay
            number = getattr(errno, plan["do"])
            raise OSError(number, os.strerror(number), path)

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name not in CALLS:
            return
        path = arguments[CALLS[name]]
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(path))
        if not path.startswith(tuple(plan["folders"])) or path == plan.get("log"):
            return
        if name == "os.rename" and not kept(path):
            os._exit(NOT_SYNCED)
        happens(name, path)

    def kept(path: str) -> bool:
        """Return whether all bytes of a file, or of a directory of files, were synced."""
        inside = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else []
        return all(state(os.stat(each)) in synced for each in [path, *inside])

    def counted(descriptor: int) -> None:
        happens("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)
        synced.add(state(os.fstat(descriptor)))

    os.fsync = counted
    sys.addaudithook(hook)
    try:
        command(arguments)
    finally:
        if "log" in plan:
            with open(plan["log"], "w") as file:
                json.dump(done, file)


def state(found: os.stat_result) -> tuple[int, int, int]:
    """Return what tells a file, and that it was written since."""
    return found.st_dev, found.st_ino, found.st_mtime_ns
