"""What this installation is, whether it works, and compiling ahead of the first use."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes import _jit, engine
from fastbayes.classifiers.naive_bayes import NaiveBayes
from fastbayes.errors import FastBayesError

PACKAGES = ("fastbayes", "numba", "llvmlite", "numpy", "pyarrow", "click", "tqdm")
OPTIONAL = ("scikit-learn", "scipy", "pandas", "polars", "duckdb", "dask", "pyspark")


def show_versions() -> dict[str, Any]:
    """Return what a bug report should say: versions, processor, threads, kernels, cache.

    Returns
    -------
    dict
        Value by name; packages that are not installed are None.
    """
    packages = {name: _version(name) for name in (*PACKAGES, *OPTIONAL)}
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": engine.default_threads(),
        "FASTBAYES_KERNELS": os.environ.get("FASTBAYES_KERNELS", "auto"),
        "FASTBAYES_CACHE": os.environ.get("FASTBAYES_CACHE", "1"),
        **packages,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform module knows
    return platform.processor() or platform.machine()


def warmup() -> dict[str, float]:
    """Compile every kernel, or load it from the cache, so that the first job does not wait.

    Returns
    -------
    dict
        Seconds by step.
    """
    seconds = {}
    kept = os.environ.get("FASTBAYES_KERNELS")
    os.environ["FASTBAYES_KERNELS"] = "always"
    try:
        for name, job in _jobs():
            start = time.perf_counter()
            job()
            seconds[name] = time.perf_counter() - start
    finally:
        if kept is None:
            del os.environ["FASTBAYES_KERNELS"]
        else:
            os.environ["FASTBAYES_KERNELS"] = kept
    return seconds


def _jobs() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield small jobs that between them call every kernel in every type that is declared."""
    random = np.random.default_rng(0)
    rows = 400
    levels = {"few": 3, "some": 20, "many": 300, "most": 70_000}
    columns: dict[str, Any] = {
        name: pa.array(np.concatenate([np.arange(n), random.integers(0, n, rows)]).astype(str))
        .dictionary_encode()
        .slice(n)
        for name, n in levels.items()
    }
    columns["flag"] = pa.array(random.random(rows) < 0.5)
    columns["count"] = pa.array(random.integers(0, 9, rows))
    columns["empty"] = pa.array([None, "x"] * (rows // 2)).dictionary_encode()
    columns["number"] = pa.array(random.normal(size=rows))
    weight = random.random(rows) + 0.5
    for k in (2, 3, 5, 12, 300):
        labels = np.arange(rows) % k

        def job(labels: Any = labels) -> None:
            table = pa.table({**columns, "class": pa.array(labels)})
            for precision in ("exact", "fast"):
                model = NaiveBayes(categorical=["count"], precision=precision)
                model.fit(table, "class", sample_weight=weight if precision == "fast" else None)
                model.predict(table)
                model.predict_proba(table)
                model.log_joint(table)

        yield f"{k} classes", job


def doctor() -> list[tuple[str, bool, str]]:
    """Check this installation.

    Returns
    -------
    list of tuple
        Per check its name, whether it passed, and what was found or what to do.
    """
    checks = []
    for name in PACKAGES:
        found = _version(name)
        checks.append((name, found is not None, found or f"not installed: pip install {name}"))
    checks.append(_checked("thread pool", _pool_works))
    checks.append(_checked("compiler", _kernels_work))
    checks.append(_checked("kernel cache", _cache_works))
    return checks


def _checked(name: str, check: Any) -> tuple[str, bool, str]:
    try:
        return (name, True, check())
    except (FastBayesError, ImportError, OSError, RuntimeError, ValueError) as error:
        return (name, False, f"{type(error).__name__}: {error}")


def _pool_works() -> str:
    threads = engine.default_threads()
    total = sum(engine.in_order(lambda i: i, range(100), threads))
    if total != 4950:
        raise RuntimeError(f"{threads} threads summed 0..99 to {total}")
    return f"{threads} threads"


def _kernels_work() -> str:
    count = importlib.import_module("fastbayes.kernels.count")
    codes = np.array([[0, 1, 1, 0]], dtype=np.uint8)
    out = np.zeros((2, 2), dtype=np.int64)
    one, zero = np.array([2], dtype=np.int64), np.array([0], dtype=np.int64)
    count.add_counts(codes, one, zero, np.array([0, 0, 1, 1], dtype=np.uint8), None, out)
    if out.tolist() != [[1, 1], [1, 1]]:
        raise RuntimeError(f"a count came out as {out.tolist()}: report it with show_versions()")
    return "compiles and counts right"


def _cache_works() -> str:
    if os.environ.get("FASTBAYES_CACHE") == "0":
        return "switched off by FASTBAYES_CACHE=0"
    if _jit.uncached():
        raise RuntimeError("cannot be written: point NUMBA_CACHE_DIR at a writable directory")
    return "kept on disk"
