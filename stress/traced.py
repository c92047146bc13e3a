"""Commands in whose processes the system itself fails reads of the input: strace does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from stress.jobs import WAIT, arguments, given

STRACE = shutil.which("strace")
READS = "read,pread64,preadv,preadv2"
# A whole process, traced, that may compile kernels first.
LONGEST = 4 * WAIT


def traced(name: str, out: Path, kernels: str, *inject: str) -> tuple[int, str, int]:
    """Run a job under strace.

    Parameters
    ----------
    name, out
        The job, and the directory of its output.
    kernels
        "always" compiled or "never".
    inject
        What happens to reads of what is given to the jobs, as strace's option has it: none, or
        "error=EIO" and "when=3+", say. Each thread counts for itself.

    Returns
    -------
    The exit code, what was said on stderr, and the number of reads.
    """
    assert STRACE is not None
    folder = Path(given()["data"]).parent
    inputs = [path for path in folder.rglob("*") if path.is_file()]
    with tempfile.NamedTemporaryFile("r") as log:
        command = [STRACE, "-f", "-qq", "--seccomp-bpf", "-o", log.name, "-e", f"trace={READS}"]
        command += [word for path in inputs for word in ("-P", str(path))]
        if inject:
            command += ["-e", f"inject={':'.join((READS, *inject))}"]
        done = subprocess.run(
            [*command, sys.executable, "-m", "fastbayes", *arguments(name, out)],
            env={**os.environ, "FASTBAYES_KERNELS": kernels},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=LONGEST,
            check=False,
        )
        return done.returncode, done.stderr, len(log.readlines())


@cache
def reads(name: str, kernels: str) -> int:
    """Return how often a job that nothing disturbs reads what it is given."""
    with tempfile.TemporaryDirectory(prefix="stress-reads-") as folder:
        code, said, n = traced(name, Path(folder), kernels)
        assert code == 0, said
        return n
