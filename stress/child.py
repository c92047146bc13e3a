"""Run some cases of one category, and say on stdout, in lines of JSON, how each ends.

python -m stress.child CATEGORY SEED FIRST COUNT TURN

After TURN seconds no further case begins. A case that takes too long ends this process, as one
that crashes does.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np

SECONDS = 120.0
BYTES = 2**30


def main(category: str, seed: int, first: int, count: int, turn: int) -> None:
    """Run the cases FIRST, FIRST + 1, ... in this process."""
    # What a case prints must not be taken for how it ended.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable()
    begun = time.monotonic()
    warnings.simplefilter("ignore")  # of data that are meant to be strange
    module = importlib.import_module(f"stress.cases.{category}")
    for n in range(first, first + count):
        print(json.dumps({"case": n}), file=out)
        faulthandler.dump_traceback_later(getattr(module, "SECONDS", SECONDS), exit=True)
        rng = np.random.default_rng([seed, zlib.crc32(category.encode()), n])
        try:
            with tempfile.TemporaryDirectory(prefix="stress-") as folder:
                found = {"held": module.case(rng, Path(folder))}
            peak = peak_bytes()
            most = getattr(module, "BYTES", BYTES)
            if peak > most:
                found = {"failed": f"the process held {peak:,} bytes, more than {most:,}"}
        except Exception:
            found = {"failed": traceback.format_exc()}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"case": n, **found}), file=out)
        if "failed" in found or time.monotonic() > begun + turn:
            break  # after a failure, the next case begins in a fresh process


def peak_bytes() -> int:
    """Return the most bytes that this process held; `ru_maxrss` has those of its parent, too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (peak,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(peak.split()[1])


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
