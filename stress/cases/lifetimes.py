"""Work in threads, forks and processes, and while the interpreter ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from stress.tables import Rng, choose_kernels, one_of

ABOUT = (
    "fit, predict, count, logistic and Gibbs in the main thread, in many, in one that outlives it, "
    "atexit, `__del__`, a fork after use, fork and spawn pools: the same bits, and an end"
)
SECONDS = 300.0
WAIT = 120
SETTING = """
import atexit, multiprocessing, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pyarrow as pa
import fastbayes as fb

rng = np.random.default_rng(0)
table = pa.table({"a": rng.choice(list("xyz"), 200_000), "b": rng.normal(size=200_000),
                  "y": rng.choice(["p", "q"], 200_000)})
few = table.slice(0, 2000)

def work():
    RESULT

def tell(_=None):
    value = work()
    line = np.asarray(value, np.float64).tobytes().hex()[:400] + "\\n"
    os.write(1, line.encode())  # whole, whoever else writes
    return 0

class Last:
    def __del__(self):
        tell()

def together():
    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def outlives():
    threading.main_thread().join()
    time.sleep(0.05)
    tell()

def forked():
    work()
    sys.stdout.flush()
    pid = os.fork()
    tell()
    if not pid:
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def pooled(method):
    work()
    with multiprocessing.get_context(method).Pool(2) as pool:
        pool.map(tell, range(2))

if __name__ == "__main__":
    PLACE
"""
WORKS = {
    "count": 'return fb.count(table, "y", threads=2).moments.mean',
    "fit": 'return fb.NaiveBayes(threads=2).fit(table, "y").predict_proba(few)[-20:]',
    "predict": 'return fb.NaiveBayes(threads=2).fit(few, "y").predict_proba(table)[-20:]',
    "logistic": 'return fb.LogisticRegression(threads=2).fit(few, "y").predict_proba(few)[-20:]',
    "gibbs": """
    net = fb.BayesianNetwork.from_edges([("y", "a")]).fit(few.select(["a", "y"]))
    return net.query("y", {"a": "x"}, "gibbs", draws=2000, seed=1).probabilities""",
}
PLACES = {
    "main": ("tell()", 1),
    "threads": ("together()", 4),
    "outlives": ("threading.Thread(target=outlives).start()", 1),
    "used, outlives": ("work(); threading.Thread(target=outlives).start()", 1),
    "atexit": ("atexit.register(tell)", 1),
    "used, atexit": ("work(); atexit.register(tell)", 1),
    # A `__del__` that Python calls later still cannot import anything.
    "used, __del__": (
        "work(); globals()['last'] = Last(); atexit.register(lambda: globals().pop('last'))",
        1,
    ),
    "fork": ("forked()", 2),
    "fork pool": ("pooled('fork')", 2),
    "spawn pool": ("pooled('spawn')", 2),
    "daemon": (
        "thread = threading.Thread(target=tell, daemon=True); thread.start(); thread.join()",
        1,
    ),
}


@cache
def expected(work: str, kernels: str) -> str:
    """Return what the work says in the main thread, once for a process."""
    return said(work, "main", kernels)[0]


def said(work: str, place: str, kernels: str) -> list[str]:
    """Do work somewhere, in a new interpreter; return the lines it says."""
    code = SETTING.replace("RESULT", WORKS[work]).replace("PLACE", PLACES[place][0])
    with tempfile.TemporaryDirectory(prefix="stress-") as folder:
        script = Path(folder, "work.py")
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", script],
            capture_output=True,
            text=True,
            timeout=WAIT,
            env={**os.environ, "FASTBAYES_KERNELS": kernels},
        )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr
    return done.stdout.split()


def case(rng: Rng, folder: Path) -> str:
    """Do one kind of work in one place."""
    work, place = one_of(rng, [*WORKS]), one_of(rng, [*PLACES])
    choose_kernels(rng)
    kernels = os.environ["FASTBAYES_KERNELS"]
    found = said(work, place, kernels)
    assert found == [expected(work, kernels)] * PLACES[place][1], (work, place, found)
    return place
