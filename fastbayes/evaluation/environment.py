"""What this installation is, whether it works, and compiling ahead of the first use."""

from __future__ import annotations

import importlib
import math
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.errors import FastBayesError, FastBayesWarning
from fastbayes.core.machine import usable_memory
from fastbayes.core.threads import default_threads, in_order
from fastbayes.kernels import dispatch
from fastbayes.models.discrete.naive_bayes import NaiveBayes

REQUIRED = ("numba", "llvmlite", "numpy", "pyarrow", "click", "tqdm")
OPTIONAL = ("scikit-learn", "scipy", "pandas", "polars", "duckdb", "dask", "pyspark")
SETTINGS = ("FASTBAYES_KERNELS", "FASTBAYES_CACHE", "NUMBA_CACHE_DIR", "OMP_NUM_THREADS")


def show_versions() -> dict[str, Any]:
    """Return what a bug report should say: versions, machine, threads, settings.

    Returns
    -------
    dict
        Value by name; packages that are not installed and settings that are not set are None.
    """
    return {
        "fastbayes": _version("fastbayes"),
        "location": str(Path(__file__).parents[1]),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": default_threads(),
        "memory": _memory(),
        **{name: _version(name) for name in (*REQUIRED, *OPTIONAL)},
        **{name: os.environ.get(name) for name in SETTINGS},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
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


def _memory() -> str | None:
    memory = usable_memory()
    return None if math.isinf(memory) else f"{memory / 2**30:.1f} GiB"


def warmup() -> dict[str, float]:
    """Compile every kernel, or load it from the cache, so that the first job does not wait.

    Returns
    -------
    dict
        Seconds by module of kernels.

    Raises
    ------
    FastBayesError
        When compiling is switched off by NUMBA_DISABLE_JIT.
    """
    if os.environ.get("FASTBAYES_CACHE") == "0":
        warnings.warn(
            "FASTBAYES_CACHE=0: what is compiled now is lost when this process ends",
            FastBayesWarning,
            stacklevel=2,
        )
    return dict(dispatch.compile_declared())


class Check(NamedTuple):
    """One thing that has to be right, whether it is, and what was found or what to do."""

    name: str
    ok: bool
    found: str


def doctor() -> list[Check]:
    """Check this installation.

    Returns
    -------
    list of Check
        In the order in which to mend them.
    """
    checks = [
        _checked(name, partial(_installed, name, least)) for name, least in _required().items()
    ]
    if not all(check.ok for check in checks):
        return checks
    return [
        *checks,
        _checked("threads", _threads_work),
        _checked("kernels", _kernels_work),
        _checked("kernel cache", _cache_works),
    ]


def _checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except (FastBayesError, ImportError, OSError, RuntimeError, ValueError) as error:
        return Check(name, False, str(error) or type(error).__name__)


def _required() -> dict[str, str]:
    """Return the least version of each package without which nothing works."""
    try:
        declared = metadata.requires("fastbayes") or []
    except metadata.PackageNotFoundError:
        declared = []  # a source tree that is not installed
    found = [
        re.match(r"([\w-]+)\s*>=\s*([\d.]+)", line) for line in declared if "extra" not in line
    ]
    return dict.fromkeys(REQUIRED, "0") | {m[1]: m[2] for m in found if m is not None}


def _installed(name: str, least: str) -> str:
    version = _version(name)
    if version is None:
        raise RuntimeError(f"not installed: pip install '{name}>={least}'")
    if _numbers(version) < _numbers(least):
        raise RuntimeError(f"{version} is too old: pip install --upgrade '{name}>={least}'")
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken package may raise anything when it is imported
        raise RuntimeError(f"{version} cannot be imported ({error}): install it anew") from error
    return version


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _threads_work() -> str:
    threads = default_threads()
    total = sum(in_order(lambda i: i, range(100), threads))
    if total != 4950:
        raise RuntimeError(f"{threads} threads summed 0..99 to {total}: report it")
    limit = os.environ.get("OMP_NUM_THREADS")
    return f"{threads} of {os.cpu_count()} processors" + (
        f", as OMP_NUM_THREADS={limit} says" if limit else ""
    )


def _kernels_work() -> str:
    """Hold what the kernels count, encode and score against numpy."""
    rows, random = dispatch.SMALL, np.random.default_rng(0)
    text, y = random.integers(0, 3, rows), random.integers(0, 2, rows)
    number = random.normal(1.7e9, 1.0, rows)
    table = {"text": np.array(["a", "b", "c"])[text], "number": number}
    model = NaiveBayes().fit(table, y)
    counts = np.zeros((3, 2), dtype=np.int64)
    np.add.at(counts, (text, y), 1)
    members = counts.sum(axis=0)
    mean = np.array([number[y == c].mean() for c in (0, 1)])
    variance = np.array([number[y == c].var() for c in (0, 1)])
    joint = np.log((members + 1) / (rows + 2)) + np.log((counts[text] + 1) / (members + 3))
    joint -= 0.5 * ((number[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    odds = 1 / (1 + np.exp(joint[:, 0] - joint[:, 1]))
    right = model.statistics_.values.of(0).tolist() == counts.tolist()
    if not right or np.abs(model.predict_proba(table)[:, 1] - odds).max() > 1e-6:
        raise RuntimeError("the kernels do not agree with numpy: report it with show_versions()")
    if not dispatch.compiled(2 * rows):
        return "numpy's, for FASTBAYES_KERNELS=never"
    return "compiled, and they agree with numpy"


def _cache_works() -> str:
    if os.environ.get("FASTBAYES_CACHE") == "0":
        return "switched off by FASTBAYES_CACHE=0"
    if dispatch.uncached():
        raise RuntimeError(
            "cannot be written, so every process compiles anew: point NUMBA_CACHE_DIR at a "
            "directory of yours"
        )
    kernels = vars(dispatch.load("counting.count")).values()
    places = {getattr(getattr(k, "_cache", None), "cache_path", None) for k in kernels} - {None}
    return f"kept in {places.pop()}" if places else "nothing is compiled, nothing kept"
