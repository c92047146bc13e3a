"""Threads, chunks and streams change no bit; errors, interrupts and forks leave a working pool."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from making import cells, cells_of, random_stream, random_table

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.core.machine import usable_processors
from fastbayes.core.threads import (
    default_threads,
    in_order,
    mapped,
    resolved_threads,
    submitted,
    together,
)
from fastbayes.scan import engine, row_blocks

ROWS = 5 * BLOCK_ROWS + 123
PATIENCE = 60.0  # seconds after which something hangs for ever


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return random_table(ROWS)


def count(source: Any, **options: Any) -> fb.Statistics:
    return fb.count(source, "y", categorical=["code"], **options)


def same_bits(a: fb.Statistics, b: fb.Statistics) -> bool:
    return a.schema == b.schema and all(
        array.tobytes() == b.parts[name].arrays()[key].tobytes()
        for name, part in a.parts.items()
        for key, array in part.arrays().items()
    )


def recut(table: pa.Table, seed: int) -> list[pa.RecordBatch]:
    """Return the rows in batches of any size, empty ones among them."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, table.num_rows + 1, 20))
    pieces = [
        table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)
    ]
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)
    return [empty] + [batch for piece in pieces for batch in piece.to_batches()]


# The same bits


@pytest.mark.parametrize("choice", ["auto", "always", "never"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_bits__threads_chunks_and_streams(
    table: pa.Table, weight: str | None, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    whole = count(table, sample_weight=weight, threads=1)
    for threads in (2, 8):
        assert same_bits(count(table, sample_weight=weight, threads=threads), whole)
    for seed in range(3):
        batches = recut(table, seed)
        chunked = pa.Table.from_batches(batches)
        assert same_bits(count(chunked, sample_weight=weight, threads=3), whole)
        stream = (batch for batch in batches)
        assert same_bits(count(stream, sample_weight=weight, threads=2), whole)
    assert same_bits(count(table.to_reader(1000), sample_weight=weight), whole)
    assert same_bits(count(table.to_batches(), sample_weight=weight, threads=8), whole)


def test_bits__moments_are_those_of_the_rows(table: pa.Table) -> None:
    moments = count(table).moments
    frame = table.select(["number", "epoch", "y"]).to_pandas()
    for i, (name, centre) in enumerate((("number", 0.0), ("epoch", 1.7e9))):
        values = (frame[name] - centre).groupby(frame["y"])
        np.testing.assert_array_equal(moments.count[i], values.count())
        np.testing.assert_allclose(
            (moments.mean[i] - centre) + moments.rest[i], values.mean(), rtol=1e-9
        )
        np.testing.assert_allclose(
            moments.scatter[i] / (moments.count[i] - 1), values.var(), rtol=1e-9
        )


def test_bits__files_are_folded_row_group_by_row_group(table: pa.Table, tmp_path: Path) -> None:
    for i in range(3):
        part = table.slice(i * 100_000, 100_000)
        pq.write_table(part, tmp_path / f"part-{i}.parquet", row_group_size=30_000)
    one = count(str(tmp_path), sample_weight="w", threads=1)
    for threads in (2, 8):
        assert same_bits(count(str(tmp_path), sample_weight="w", threads=threads), one)
    assert one.allclose(count(table.slice(0, 300_000), sample_weight="w"))


@pytest.mark.parametrize("choice", ["auto", "always", "never"])
def test_bits__answers(table: pa.Table, choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    X = table.drop_columns(["y", "w"])
    models = [fb.NaiveBayes(threads=t).fit(X, table["y"]) for t in (1, 2, 8)]
    for method in ("log_joint", "predict_proba", "predict", "log_evidence"):
        answers = [getattr(model, method)(X) for model in models]
        assert all(np.array_equal(answers[0], a) for a in answers[1:])
        streamed = getattr(models[1], method)(iter(recut(X, 7)))
        assert np.array_equal(answers[0], streamed)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("seeds", [range(i, i + 20) for i in range(0, 60, 20)], ids=str)
def test_small_blocks__every_encoding_and_growth(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a few rows: codebooks grow, encodings change and cross blocks all the time."""
    for module in (engine, row_blocks):
        monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    options: dict[str, Any] = {"categorical": ["whole", "real"], "sample_weight": "w"}
    for seed in seeds:
        batches, plain = random_stream(seed)
        known = plain.filter(pa.compute.is_valid(plain["y"]))
        if not known.num_rows or not sum(known["w"].to_pylist()):
            continue
        whole = fb.count(plain, "y", **options)
        assert cells(whole) == cells_of(plain, "y", "w")
        for threads in (1, 3):
            assert fb.count(iter(batches), "y", threads=threads, **options) == whole


# In order


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_in_order__results_come_in_the_order_of_the_items(threads: int) -> None:
    def slow_at_first(i: int) -> int:
        time.sleep(random.Random(i).random() / 500)
        return i * i

    assert list(in_order(slow_at_first, range(40), threads)) == [i * i for i in range(40)]
    assert list(in_order(slow_at_first, [], threads)) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_in_order__read_ahead_is_bounded(threads: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    results = in_order(lambda i: i, items(), threads)
    for i, _ in enumerate(results):
        assert len(taken) <= i + threads + 3


@pytest.mark.parametrize("error", [DataError, KeyboardInterrupt, MemoryError, SystemExit])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_in_order__an_error_ends_it(threads: int, error: type[BaseException]) -> None:
    begun, finished = [], []

    def fails(i: int) -> int:
        begun.append(i)
        if i == 7:
            raise error("row 7")
        time.sleep(0.002)
        finished.append(i)
        return i

    got = []
    with pytest.raises(error, match="row 7"):
        for i in in_order(fails, range(1000), threads):
            got.append(i)
    assert got == list(range(7))
    settled = len(begun)
    assert settled <= 7 + threads + 3
    assert sorted([*finished, 7]) == sorted(begun)  # what had begun was waited for
    time.sleep(0.02)
    assert len(begun) == settled
    assert list(in_order(str, range(3), threads)) == ["0", "1", "2"]


def test_in_order__what_runs_is_told_that_it_is_over() -> None:
    stopped = threading.Event()
    told: list[bool] = []

    def waits(i: int) -> int:
        if i:
            told.append(stopped.wait(60))
        return i

    with pytest.raises(ValueError, match="enough"):
        for _ in in_order(waits, range(100), 4, stopped):
            raise ValueError("enough")
    assert told
    assert all(told)


def test_in_order__an_error_cancels_what_has_not_begun() -> None:
    begun, free = [], threading.Event()

    def fails(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise DataError("row 0")
        assert free.wait(PATIENCE)

    # Item 1 holds up one worker, item 2 perhaps the other: 3 waits until it is cancelled.
    threading.Timer(0.5, free.set).start()
    with pytest.raises(DataError, match="row 0"):
        list(in_order(fails, range(100), 2))
    assert begun[0] == 0
    assert set(begun) <= {0, 1, 2}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_in_order__an_error_of_the_items_ends_it(threads: int) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise DataError("no more")

    with pytest.raises(DataError, match="no more"):
        list(in_order(lambda i: i, items(), threads))


@pytest.mark.parametrize("threads", [2, 5])
def test_in_order__a_consumer_that_stops_cancels_the_rest(threads: int) -> None:
    begun, free = [], threading.Event()

    def waits(i: int) -> int:
        begun.append(i)
        assert free.wait(PATIENCE) or i == 0
        return i

    free.set()
    results = in_order(waits, range(1000), threads)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= threads + 3


def test_in_order__left_behind_does_not_wait_in_a_thread_that_it_waits_for() -> None:
    """The garbage collector closes it where it happens to run: here, in one of its own threads."""
    script = """
    import gc, threading
    from fastbayes.core.threads import in_order

    left, collected = threading.Event(), threading.Event()

    def collects(i):
        if i == 1:
            left.wait()
            gc.collect()
            collected.set()
        return i

    gc.disable()  # but there
    results = in_order(collects, range(100), 2)
    assert next(results) == 0
    cycle = [results]
    cycle.append(cycle)
    del results, cycle
    left.set()
    collected.wait()
    assert list(in_order(str, range(9), 2)) == list("012345678")
    print("ended")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.check_output(command, timeout=PATIENCE) == b"ended\n"


@pytest.mark.parametrize("threads", [2, 5])
def test_together__all_that_have_begun_are_waited_for(threads: int) -> None:
    begun, ended = [], []
    all_begun = threading.Event()

    def other() -> int:
        begun.append(threading.get_ident())
        if len(begun) == threads - 1:
            all_begun.set()
        time.sleep(0.05)
        ended.append(threading.get_ident())
        return len(ended)

    found = together(lambda: all_begun.wait(PATIENCE), other, threads)
    assert sorted(found) == [*range(1, threads)]
    assert threading.get_ident() not in begun
    begun.clear()
    ended.clear()
    all_begun.clear()

    def fails() -> None:
        assert all_begun.wait(PATIENCE)
        raise DataError("mine")

    with pytest.raises(DataError, match="mine"):
        together(fails, other, threads)
    assert len(ended) == threads - 1


def test_together__what_comes_late_never_begins() -> None:
    free = threading.Event()
    pool = ThreadPoolExecutor(4)
    # Two workers are held up, so that the third call finds none.
    held = pool.submit(lambda: together(lambda: time.sleep(0.5), lambda: free.wait(PATIENCE), 3))
    time.sleep(0.2)
    late: list[int] = []
    assert together(lambda: None, lambda: late.append(1), 3) in ([], [None])
    free.set()
    assert held.result() == [True, True]
    time.sleep(0.1)
    assert len(late) <= 1
    pool.shutdown()


def test_together__an_error_of_another_is_raised() -> None:
    begun = threading.Event()

    def other() -> None:
        begun.set()
        raise DataError("theirs")

    with pytest.raises(DataError, match="theirs"):
        together(lambda: begun.wait(PATIENCE), other, 2)


# Interrupts, pools in pools, forks


def test_interrupt__while_scanning(table: pa.Table) -> None:
    def stop(rows: int) -> None:
        signal.raise_signal(signal.SIGINT)

    for threads in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            count(table, threads=threads, progress=stop)
        assert same_bits(count(table, threads=threads), count(table))


def test_interrupt__while_the_stream_is_read(table: pa.Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.slice(0, 2 * BLOCK_ROWS).to_batches()
        raise KeyboardInterrupt

    for threads in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            count(batches(), threads=threads)


def run(script: str, *, interrupt: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process; interrupt it once it says that it has begun."""
    arguments = [sys.executable, "-c", textwrap.dedent(script)]
    root = str(Path(__file__).resolve().parent.parent)
    with subprocess.Popen(
        arguments, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if interrupt:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


MAKE = """
import sys
import numpy as np, pyarrow as pa
import fastbayes as fb
rng = np.random.default_rng(0)
table = pa.table({"x": rng.choice(list("pqr"), 400_000), "n": rng.normal(size=400_000),
                  "y": rng.choice(["a", "b"], 400_000)})
"""


def test_interrupt__by_a_signal_from_outside() -> None:
    result = run(
        MAKE
        + """
def forever():
    told = False
    while True:
        yield from table.to_batches()
        if not told:
            print("begun", flush=True)
            told = True
fb.count(forever(), "y", threads=2)
""",
        interrupt=True,
    )
    assert result.returncode in (-signal.SIGINT, 1, 130)
    assert result.stderr.strip().endswith("KeyboardInterrupt")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork__the_pool_works_in_the_child_and_in_its_parent() -> None:
    result = run(
        MAKE
        + """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork beside threads
from fastbayes.core import threads as core
from fastbayes.scan import engine
before = fb.count(table, "y", threads=2)
busy = threading.Thread(target=lambda: [fb.count(table, "y", threads=2) for _ in range(5)])
busy.start()
children = []
for i in range(4):
    with core._pools_lock if i else threading.Lock():  # as another thread might at that moment
        child = os.fork()
    if not child:
        right = all(fb.count(table, "y", threads=t) == before for t in (2, 3))
        os._exit(0 if right else 3)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
busy.join()
print(codes, fb.count(table, "y", threads=2) == before)
"""
    )
    assert result.stdout.strip() == "[0, 0, 0, 0] True", result.stderr


def test_fork__while_another_thread_makes_a_counter() -> None:
    result = run(
        """
import os
from fastbayes.scan import repeated_counts
with repeated_counts._making:  # as another thread might at that moment
    child = os.fork()
    if not child:
        os._exit(0 if repeated_counts._making.acquire(blocking=False) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert result.stdout.strip() == "0", result.stderr


def test_fork__by_multiprocessing() -> None:
    result = run(
        MAKE
        + """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
before = fb.count(table, "y")
def work(threads):
    return fb.count(table, "y", threads=threads).values.class_counts.tolist()
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = pool.map(work, [1, 2, 2, None])
print(found == [before.values.class_counts.tolist()] * 4)
"""
    )
    assert result.stdout.strip() == "True", result.stderr


def hurried(work: Callable[[], Any]) -> Any:
    """Return what work() does, or fail where it hangs."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "it hangs"
    return found[0]


def test_pools__many_scans_at_once(table: pa.Table) -> None:
    whole = count(table)

    def all_at_once() -> list[bool]:
        with ThreadPoolExecutor(6) as pool:
            return list(
                pool.map(lambda t: same_bits(count(table, threads=t), whole), [2, 2, 2, 3, 3, 1])
            )

    assert all(hurried(all_at_once))


def test_pools__a_scan_inside_a_worker_of_the_same_pool(table: pa.Table) -> None:
    """As when a loss or a stream of the user's own counts something itself."""
    whole = count(table)

    def inside(threads: int) -> bool:
        assert resolved_threads(threads) == 1
        assert default_threads() == 1
        return same_bits(count(table, threads=threads), whole)

    assert all(hurried(lambda: list(in_order(inside, [2] * 6, 2))))


def test_pools__all_workers_share_work_out_again() -> None:
    """None of them is left to do the work that they all wait for."""
    both = threading.Barrier(2)

    def inside(i: int) -> list[str]:
        both.wait(PATIENCE)
        return list(in_order(str, range(3), 2))

    assert hurried(lambda: list(in_order(inside, range(4), 2))) == [["0", "1", "2"]] * 4


def workers() -> set[threading.Thread]:
    """Return the threads of all pools."""
    return {each for each in threading.enumerate() if each.name.startswith("fastbayes")}


def wait_for_workers(most: int, before: set[threading.Thread]) -> None:
    """Wait until so many are new at most: those that nobody uses take a moment to end."""
    end = time.monotonic() + PATIENCE
    while len(workers() - before) > most and time.monotonic() < end:
        gc.collect()  # tracebacks of tests that failed on purpose hold what was at work
        time.sleep(0.01)
    assert len(workers() - before) <= most


def test_pools__those_that_nobody_uses_end() -> None:
    before = workers()
    for threads in (7, 2, 5, 3):
        assert list(in_order(str, range(40), threads)) == [str(i) for i in range(40)]
    wait_for_workers(3, before)


def test_pools__one_that_works_goes_on_while_another_is_asked_for() -> None:
    before = workers()
    results = in_order(str, range(40), 4)
    found = [next(results)]
    for threads in (2, 3):
        assert list(in_order(str, range(9), threads)) == list("012345678")
    found += results
    assert found == [str(i) for i in range(40)]
    wait_for_workers(3, before)


def test_pools__a_stream_that_counts_while_it_is_read(table: pa.Table) -> None:
    small = table.slice(0, 1000)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
            assert count(small, threads=2).n_rows == 1000
            yield batch

    assert same_bits(hurried(lambda: count(batches(), threads=2)), count(table))


# How many threads


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2"])
def test_threads__are_whole_numbers(threads: Any, table: pa.Table) -> None:
    with pytest.raises(ValueError, match=f"threads={threads!r}: use a whole number"):
        count(table, threads=threads)


def test_threads__default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "LOKY_WORKER", "JOBLIB_SPAWNED_PROCESS"):
        monkeypatch.delenv(name, raising=False)
    allowed = usable_processors()
    assert default_threads() == allowed
    assert resolved_threads(np.int64(3)) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert default_threads() == 1
    for value in ("", "many", "0", "\N{SUPERSCRIPT TWO}"):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert default_threads() == allowed
    monkeypatch.setenv("LOKY_WORKER", "1")
    assert default_threads() == 1
    assert resolved_threads(4) == 4  # asked for is asked for


# Memory


def wide(n: int, name: str = "id") -> pa.Table:
    values = np.random.default_rng(0).permutation(n)
    return pa.table(
        {"few": values % 3, name: values.astype(str), "y": np.array(["a", "b"])[values % 2]}
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_limit__names_the_column_and_the_remedy(threads: int) -> None:
    says = (
        "over memory_limit=2,000,000: column 'id' with [0-9]+ values needs the most; leave it out"
    )
    with pytest.raises(MemoryLimitError, match=says):
        fb.count(wide(300_000), "y", categorical=["few"], memory_limit=2_000_000, threads=threads)
    small = fb.count(wide(1000), "y", categorical=["few"], memory_limit=2_000_000, threads=threads)
    assert small.n_rows == 1000


def test_memory_limit__stops_before_the_whole_column_is_read() -> None:
    table, read = wide(40 * BLOCK_ROWS), []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
            read.append(batch.num_rows)
            yield batch

    with pytest.raises(MemoryLimitError, match="column 'id'"):
        fb.count(batches(), "y", memory_limit=20_000_000, threads=2)
    assert len(read) < 20


def test_memory_limit__numbers() -> None:
    table = pa.table({"n": np.arange(10.0), "y": ["a", "b"] * 5})
    with pytest.raises(MemoryLimitError, match="the numeric columns need"):
        fb.count(table, "y", memory_limit=10)


# Progress


def test_progress__adds_up(table: pa.Table) -> None:
    for threads in (1, 3):
        done: list[int] = []
        count(table, threads=threads, progress=done.append)
        assert sum(done) == table.num_rows
        assert len(done) >= threads


LATE = """
import atexit, sys, threading, time
import numpy as np
import pyarrow as pa
import fastbayes as fb

table = pa.table({{"a": np.arange(400_000) % 7, "y": ["p", "q"] * 200_000}})

def work():
    model = fb.NaiveBayes(categorical=["a"], threads=2).fit(table, "y")
    print(len(model.predict(table)), flush=True)

class Last:
    def __del__(self):
        work()

{how}
"""


@pytest.mark.parametrize(
    "how",
    [
        "atexit.register(work)",
        "work(); atexit.register(work)",
        "threading.Thread(target=lambda: (time.sleep(1), work())).start()",
        "work(); last = Last(); atexit.register(lambda: globals().pop('last'))",
    ],
    ids=["atexit", "atexit, after other work", "thread that outlives the main one", "__del__"],
)
def test_end_of_the_process__the_calling_thread_does_the_work(how: str) -> None:
    """No pool takes work any more once the main thread has ended."""
    command = [sys.executable, "-c", LATE.format(how=how)]
    environment = {**os.environ, "FASTBAYES_KERNELS": "never"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert {*done.stdout.split()} == {"400000"}


def test_pool_that_takes_no_work__the_calling_thread_does_it() -> None:
    pool = ThreadPoolExecutor(2)
    assert [*mapped(pool, lambda n: n + 1, range(5))] == [1, 2, 3, 4, 5]
    pool.shutdown()
    here = threading.get_ident()
    assert {*mapped(pool, lambda _: threading.get_ident(), range(3))} == {here}
    failed = submitted(pool, divmod, 1, 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
