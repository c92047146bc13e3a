"""The one decorator: which path is taken, what kernels are given, and a disk that misbehaves."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import logging
import os
import pickle
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from fastbayes.core.threads import in_order
from fastbayes.kernels import dispatch

SOURCE = """
from fastbayes.kernels.dispatch import kernel

@kernel
def double(x, out):
    for r in range(x.size):
        out[r] = 2 * x[r]
"""


@pytest.mark.parametrize(
    ("choice", "cells", "expected"),
    [
        (None, dispatch.SMALL - 1, False),
        ("auto", dispatch.SMALL, True),
        ("always", 1, True),
        ("never", 1e12, False),
    ],
)
def test_small_jobs_need_no_compiler(choice, cells, expected, monkeypatch):
    if choice is None:
        monkeypatch.delenv("FASTBAYES_KERNELS", raising=False)
    else:
        monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    assert dispatch.compiled(cells) is expected
    package = "compiled" if expected else "numpy"
    assert (
        dispatch.load("counting.count", cells).__name__
        == f"fastbayes.kernels.{package}.counting.count"
    )


FIRST_FITS = """
import numpy as np
import pyarrow as pa

import fastbayes as fb
from fastbayes.core.threads import in_order
from fastbayes.kernels import dispatch

random = np.random.default_rng(0)
table = pa.table({name: pa.array(random.choice(list("abc"), 300_000)) for name in "uvwxy"})
dispatch.FEW_ADDITIONS = 20_000_000
kinds, load = [], dispatch.load

def loaded(name, *given):
    module = load(name, *given)
    if given and name in ("reading.encode", "counting.pairs"):
        kinds.append(module.__name__.split(".")[2])
    return module

dispatch.load = loaded
for _ in range(6):  # 300,000 codes of each of 4 columns, and counts in 10 tables
    kinds.clear()
    model = fb.TAN().fit(table, "y")
    assert model.statistics_ == fb.TAN().fit(table, "y").statistics_
    print(*{*kinds})
"""


def test_counts__compiled_when_there_is_much_to_count_or_once_it_is_on_the_disk(tmp_path):
    left_out = ("FASTBAYES_KERNELS", "NUMBA_DISABLE_JIT", "FASTBAYES_CACHE")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path)

    def first_fits():
        command = [sys.executable, "-c", FIRST_FITS]
        run = subprocess.run(command, check=True, env=environment, timeout=300, capture_output=True)
        return run.stdout.decode().split("\n")[:-1]

    assert first_fits() == 2 * ["numpy"] + 4 * ["compiled"]
    assert first_fits() == 6 * ["compiled"]


@pytest.mark.parametrize("damage", [b"", b"\x80", b"damaged"])
def test_counts__an_index_on_the_disk_that_is_damaged_is_none(damage, tmp_path, monkeypatch):
    if dispatch.interpreted() or not dispatch.compiled(dispatch.SMALL):
        pytest.skip("nothing is compiled")
    index = dispatch.load("reading.encode").write_codes._cache._cache_file
    path = tmp_path / "damaged.nbi"
    path.write_bytes(pickle.dumps(index._version) + damage)
    monkeypatch.setattr(index, "_index_path", str(path))
    monkeypatch.setattr(dispatch, "_warned", False)
    assert not dispatch._on_disk.__wrapped__()
    assert dispatch.uncached()


@pytest.mark.parametrize(("choice", "kernels"), [("auto", "numpy"), ("always", "compiled")])
def test_counts__the_choice_of_kernels_is_followed(choice, kernels, monkeypatch):
    monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    monkeypatch.setattr(dispatch, "_additions", 0.0)
    monkeypatch.setattr(dispatch, "_on_disk", lambda: False)
    cells = dispatch.cells_of_whole(dispatch.SMALL, 1.0)
    assert (
        dispatch.load("counting.count", cells).__name__
        == f"fastbayes.kernels.{kernels}.counting.count"
    )


def test_counts__many_small_jobs_do_not_add_up_to_one_that_compiles(monkeypatch):
    monkeypatch.setattr(dispatch, "_additions", dispatch.FEW_ADDITIONS)
    assert not dispatch.compiled(dispatch.cells_of_whole(dispatch.SMALL - 1, 1.0))


def test_rows_that_come_again_and_again_are_as_many_more(monkeypatch):
    monkeypatch.setenv("FASTBAYES_KERNELS", "auto")
    cells = dispatch.SMALL // 6 + 1

    def chosen(_):
        return dispatch.compiled(cells)

    for threads in (1, 3):
        assert [*in_order(chosen, range(5), threads)] == [False] * 5
        with dispatch.repeated(2), dispatch.repeated(3):
            assert [*in_order(chosen, range(5), threads)] == [True] * 5
        with suppress(KeyError), dispatch.repeated(6):
            raise KeyError
        assert not dispatch.compiled(cells)
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")
    with dispatch.repeated(6):
        assert not dispatch.compiled(cells)


def test_unknown_choice_is_refused(monkeypatch):
    monkeypatch.setenv("FASTBAYES_KERNELS", "sometimes")
    with pytest.raises(ValueError, match="'sometimes': use 'auto', 'always' or 'never'"):
        dispatch.compiled(1)


def test_readonly__a_view_where_the_layout_allows():
    array = np.arange(12).reshape(3, 4)
    view = dispatch.readonly(array)
    assert np.shares_memory(view, array)
    assert array.flags.writeable
    assert not view.flags.writeable
    assert dispatch.readonly(view) is view


def test_readonly__a_copy_where_it_does_not():
    misaligned = np.zeros(17, np.uint8)[1:].view(np.int64)
    for array in (np.arange(12).reshape(3, 4)[:, ::2], np.asfortranarray(np.eye(3)), misaligned):
        view = dispatch.readonly(array)
        np.testing.assert_array_equal(view, array)
        assert view.flags.c_contiguous
        assert view.flags.aligned
        assert not view.flags.writeable


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Return a function that decorates a kernel anew, as another process would, and calls it."""
    numba = pytest.importorskip("numba")
    monkeypatch.delenv("FASTBAYES_CACHE", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(dispatch, "_warned", False)
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    names = (f"cached_{i}" for i in itertools.count())

    def call(*dtypes):
        spec = importlib.util.spec_from_file_location(next(names), path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for dtype in dtypes or (np.int64,):
            x = np.arange(5, dtype=dtype)
            out = np.empty_like(x)
            module.double(x, out)
            np.testing.assert_array_equal(out, 2 * x)
        return sum(module.double.stats.cache_hits.values())

    call.files = lambda pattern: sorted((tmp_path / "cache").rglob(pattern))
    return call


@pytest.mark.compiled
def test_machine_code_is_found_again(cached, caplog):
    assert cached(np.int64, np.float64) == 0
    assert cached(np.int64, np.float64) == 2
    assert len(cached.files("*.nbi")) == 1
    assert not caplog.records


@pytest.mark.compiled
def test_cache_can_be_switched_off(cached, monkeypatch):
    monkeypatch.setenv("FASTBAYES_CACHE", "0")
    assert cached() == 0
    assert not cached.files("*")


@pytest.mark.compiled
def test_no_directory_to_write_to(cached, tmp_path, monkeypatch, caplog):
    # A file where each directory should be: permissions would not stop the superuser.
    for name in ("cache", "__pycache__", "home"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    assert cached() == cached() == 0
    (record,) = caplog.records  # once, not once for every kernel
    assert record.levelno == logging.WARNING
    assert "no locator available" in record.message
    assert "NUMBA_CACHE_DIR" in record.message


@pytest.mark.compiled
def test_disk_full(cached, monkeypatch, caplog):
    from numba.core.caching import IndexDataCacheFile

    def full(self, name, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(IndexDataCacheFile, "_save_data", full)
        assert cached(np.int64, np.float64) == 0
    (record,) = caplog.records
    assert "No space left on device" in record.message
    assert cached() == 0  # the index names data that never came
    assert cached() == 1


@pytest.mark.compiled
@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "one bit"])
def test_damaged_file_is_compiled_anew_and_replaced(cached, pattern, damage):
    cached()
    (path,) = cached.files(pattern)
    data = bytearray(path.read_bytes())
    if damage == "empty":
        data = b""
    elif damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "noise":
        data = np.random.default_rng(0).bytes(len(data))
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert cached() == 0
    assert cached() == 1


AT_ONCE = """
import importlib.util, os, sys, time
import numpy as np
from fastbayes.core.threads import in_order
from fastbayes.kernels import dispatch

spec = importlib.util.spec_from_file_location("at_once", sys.argv[1])
module = sys.modules["at_once"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print("ready", flush=True)
sys.stdin.readline()
for dtype in ("int64", "float64", "int32", "float32"):
    x = np.arange(5, dtype=dtype)
    out = np.empty_like(x)
    module.double(x, out)
    assert (out == 2 * x).all()
hits, compiling = sum(module.double.stats.cache_hits.values()), "numba.np.linalg" in sys.modules
print(hits, dispatch.uncached(), compiling)
"""


@pytest.mark.compiled
def test_processes_that_compile_into_one_cache_at_once(tmp_path):
    (tmp_path / "kernels.py").write_text(SOURCE)
    left_out = ("FASTBAYES_CACHE", "NUMBA_DISABLE_JIT")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")

    def at_once(n):
        command = [sys.executable, "-c", AT_ONCE, str(tmp_path / "kernels.py")]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        running = [subprocess.Popen(command, env=environment, **pipes) for _ in range(n)]
        assert [process.stdout.readline() for process in running] == [b"ready\n"] * n
        return [process.communicate(b"go\n")[0].split() for process in running]

    for found in at_once(3):  # whatever they find of one another
        assert found[1] == b"False"
    # An index may lack what another process saved: it is compiled once more, and then is there.
    # Who finds all of it imports nothing that compiling needs.
    alone = [at_once(1)[0] for _ in range(2)]
    assert alone[1] == [b"4", b"False", b"False"]


@pytest.mark.compiled
def test_code_of_another_signature_is_not_taken(cached):
    """Two processes that save at once can leave an index that names the other's data."""
    cached(np.int64, np.float64)
    a, b = cached.files("*.nbc")
    code = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(code)
    assert cached(np.int64, np.float64) == 0
    assert cached(np.int64, np.float64) == 2


@pytest.mark.compiled
def test_code_is_stale_when_what_kernels_are_built_on_changes(cached, tmp_path, monkeypatch):
    kernels = tmp_path / "kernels" / "compiled"
    kernels.mkdir(parents=True)
    (kernels / "vector.py").write_text("before")
    monkeypatch.setattr(dispatch, "__file__", str(kernels.parent / "dispatch.py"))
    dispatch._disk_cache.cache_clear()
    assert (cached(), cached()) == (0, 1)
    for name, text, hits in (
        ("vector.py", "after", (0, 1)),
        ("another.py", "new", (0, 1)),
        ("another.py", "_SIGNATURES = {}", (0, 1)),
        ("count.py", "SIGNATURES = {}", (1, 1)),  # has kernels of its own, with their own stamps
    ):
        (kernels / name).write_text(text)
        dispatch._disk_cache.cache_clear()
        assert (cached(), cached()) == hits, name
    dispatch._disk_cache.cache_clear()
