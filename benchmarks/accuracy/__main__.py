"""`python -m benchmarks.accuracy`, on one thread."""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Where a library has no option for it: before any of them is loaded.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"

    from benchmarks.accuracy.run import main

    main()
