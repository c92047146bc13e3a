"""Counts of shares that workers read add up to those of all rows, whatever the engine."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.core.threads import default_threads
from fastbayes.data.source import open_source
from fastbayes.engines import Paths, map_reduce, pool
from fastbayes.engines.shares import Given, Work
from fastbayes.evaluation.calibrate import posterior_maps
from fastbayes.evaluation.validate.scored_rows import RowEncoding
from fastbayes.evaluation.validate.scoring import Contestant, Fitted, scores
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.loo_base import LooScorer
from fastbayes.models.logistic import information
from fastbayes.models.registry import candidates
from fastbayes.scan.engine import Counting
from fastbayes.scan.request import Counter
from fastbayes.statistics.base import RetractionError


def shipped(f: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Map as an engine does: function and items arrive as bytes."""
    for item in items:
        yield pickle.loads(pickle.dumps(f))(pickle.loads(pickle.dumps(item)))


def rows(n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    labels = ["no", "yes", None] if seed else ["no", None]  # the first file lacks a class
    return pa.table(
        {
            "text": pa.array(
                [["a", "b", "c", None, f"only {seed}"][k] for k in rng.integers(5, size=n)]
            ),
            "whole": rng.integers(-3, 4, n),
            "number": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "heavy": rng.random(n) * 3,
            "y": pa.array([labels[k] for k in rng.integers(len(labels), size=n)]),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of Parquet files: of several row groups, of one, and of none."""
    path = tmp_path_factory.mktemp("shares")
    for seed, n in enumerate((300, 1000, 0, 50)):
        table = rows(n, seed)
        if seed == 3:  # another type of the same numbers
            table = table.set_column(1, "whole", table.column("whole").cast(pa.int8()))
        pq.write_table(table, path / f"{seed}.parquet", row_group_size=200)
    return path


COUNTS: dict[str, dict[str, Any]] = {
    "values and moments": {},
    "weights": {"sample_weight": "heavy"},
    "pairs, and cuts that are learned": {"pairs": True},
    "triples": {"triples": True, "discretize": "quantile"},
    "scatter": {"scatter": True, "categorical": ["whole"]},
    "cells": {"cells": True, "cell_scatter": True, "categorical": ["whole"]},
    "sketches": {"numeric": "kde"},
    "cuts with weights": {"numeric": "mdl", "sample_weight": "heavy"},
    "families": {"families": [("text", "whole")], "discretize": ("width", 3)},
    "declared": {"domains": {"y": ["yes", "no", "maybe"]}, "missing": "category"},
}
EXACT = {"pairs, and cuts that are learned", "triples", "sketches", "families"}


@pytest.mark.parametrize("parts", [1, 3, 100])
@pytest.mark.parametrize("name", COUNTS)
def test_counts__are_those_of_all_rows(folder: Path, name: str, parts: int) -> None:
    options = COUNTS[name]
    here = fb.count(folder, "y", **options)
    there = fb.count(Paths(folder, shipped, parts), "y", **options)
    assert there.allclose(here, rtol=1e-12)
    if name in EXACT:  # nothing is a sum of fractions
        for part in here.parts.keys() - {"moments"}:
            assert there.parts[part] == here.parts[part]
    assert there.dropped_rows == here.dropped_rows
    assert there.provenance == here.provenance


WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "csv": pyarrow.csv.write_csv,
    "arrow": pyarrow.feather.write_feather,
    "orc": pyarrow.orc.write_table,
    "jsonl": lambda table, path: path.write_text(
        table.to_pandas().to_json(None, orient="records", lines=True)
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_counts__of_every_format(tmp_path: Path, kind: str) -> None:
    for seed in range(1, 4):
        WRITERS[kind](rows(100 * seed, seed), tmp_path / f"{seed}.{kind}")
    for options in ({}, {"pairs": True}):
        here = fb.count(tmp_path, "y", **options)
        assert fb.count(Paths(tmp_path, shipped, 2), "y", **options).allclose(here)


def test_shares__have_each_row_once_and_are_small(folder: Path) -> None:
    files = open_source(folder)
    for n in (1, 2, 3, 5, 100):
        shares = files.shares(n)  # type: ignore[attr-defined]
        assert 1 <= len(shares) <= n
        assert sum(share.n_rows for share in shares) == files.n_rows == 1350
        places = [
            (segment.origin, segment.first_row, segment.n_rows)
            for share in shares
            for segment in share.segments(200)
        ]
        assert places == [(s.origin, s.first_row, s.n_rows) for s in files.segments(200)]
    assert max(len(pickle.dumps(share)) for share in files.shares(100)) < 10_000  # type: ignore[attr-defined]


def test_request__of_no_rows_adds_nothing(folder: Path) -> None:
    source = open_source(Paths(folder, shipped, 2))
    assert isinstance(source, Counter)
    encoder = fb.scan.opening.opened_to_learn(folder, "y").learning()  # type: ignore[attr-defined]
    request = pickle.loads(pickle.dumps(Counting(encoder, {"values": {}, "moments": {}})))
    n_rows, counted = source.run(request)
    assert n_rows == 1350
    none = request.zero()
    assert none.statistics.n_rows == 0
    assert request.add(none, counted) == request.add(counted, none) == counted
    assert request.from_bytes(request.to_bytes(counted)) == counted


MODELS = ["NaiveBayes", "SPODE", "TAN", "KDB", "AODE", "A2DE", "JointBayes", "JointGaussian"]


@pytest.mark.parametrize("name", MODELS)
def test_models__learn_what_they_learn_here(folder: Path, name: str) -> None:
    kind = getattr(fb, name)
    here, there = kind().fit(folder, "y"), kind().fit(Paths(folder, shipped, 3), "y")
    assert there.statistics_.allclose(here.statistics_)
    some = rows(20, 1).drop_columns(["y"])
    np.testing.assert_allclose(there.predict_proba(some), here.predict_proba(some), rtol=1e-9)


LOGISTIC: list[dict[str, Any]] = [
    {},
    {"penalty": "l1"},
    {"penalty": None, "init": "zeros"},
    {"class_weight": "balanced", "standard_errors": True},
    {"interactions": [("text", "flag")]},
    {"interactions": "auto", "discretize": "quantile"},
]


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize("options", LOGISTIC, ids=str)
def test_logistic_regression__is_that_of_rows_read_here(tmp_path: Path, options: Any) -> None:
    """A pass brings all second derivatives: one to count, and one for each step or so."""
    for seed in (1, 2, 3):
        table = rows(300, seed)
        flag = pa.array(np.random.default_rng(seed).random(300) < 0.3)
        table = table.append_column("flag", flag)
        pq.write_table(table, tmp_path / f"{seed}.parquet", row_group_size=100)
    asked: list[Any] = []

    def noted(f: Any, items: Iterable[Any]) -> Iterator[Any]:
        asked.append(f.request)
        return shipped(f, items)

    make = partial(fb.LogisticRegression, tol=1e-10, **options)
    here = make().fit(tmp_path, "y", sample_weight="heavy")
    there = make().fit(Paths(tmp_path, noted, 3), "y", sample_weight="heavy")
    assert there.converged_ == here.converged_
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-12)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8, atol=1e-8)
    assert len(asked) <= 14  # a step more or less, as the processor rounds
    if "standard_errors" in options:
        errors = [m.coefficients()["standard_error"].to_numpy() for m in (here, there)]
        np.testing.assert_allclose(*errors, rtol=1e-8)


@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs"])
@pytest.mark.parametrize("most", [0, 2000])
def test_logistic_regression__of_many_coefficients(
    folder: Path, solver: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than some hundreds workers give products of the second derivatives alone."""
    monkeypatch.setattr(information, "MOST", most)
    make = partial(fb.LogisticRegression, solver=solver, tol=1e-8)
    here = make().fit(folder, "y", sample_weight="heavy")
    there = make().fit(Paths(folder, shipped, 3), "y", sample_weight="heavy")
    assert there.converged_
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-5, atol=1e-6)


def test_logistic_regression__has_the_same_bits_whatever_the_limit(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for i in range(3):
        text, y = random.integers(0, 60, 2_000), random.integers(0, 2, 2_000)
        table = pa.table({"text": text.astype(str), "x": random.normal(size=2_000) + y, "y": y})
        pq.write_table(table, tmp_path / f"{i}.parquet")

    def fitted(limit: int | None) -> Any:
        return fb.LogisticRegression(memory_limit=limit).fit(Paths(tmp_path, shipped, 3), "y")

    free = fitted(None)
    # The coefficients are a dozen times there, their second derivatives four times.
    size = free.coef_.size + free.intercept_.size
    need = 12 * 8 * size + 4 * 8 * size**2
    tight = fitted(need)
    np.testing.assert_array_equal(tight.coef_, free.coef_)
    np.testing.assert_array_equal(tight.trace_, free.trace_)
    with pytest.raises(fb.MemoryLimitError, match=r"coefficients need .* or raise memory_limit"):
        fitted(need - 1)


def test_loss_gradient__adds_up(folder: Path) -> None:
    model = fb.LogisticRegression().fit(folder, "y")
    here = model.loss_gradient(folder, "y")
    assert model.loss_gradient(Paths(folder, shipped, 3), "y").allclose(here, rtol=1e-9)


def test_weighted_naive_bayes__is_that_of_rows_read_here(folder: Path) -> None:
    here = fb.WeightedNaiveBayes().fit(folder, "y")
    there = fb.WeightedNaiveBayes().fit(Paths(folder, shipped, 3), "y")
    assert [*there.weights_] == [*here.weights_]
    weights = [*there.weights_.values()]
    np.testing.assert_allclose(weights, [*here.weights_.values()], rtol=1e-4, atol=1e-5)


def test_errors__are_those_of_rows_read_here(folder: Path, tmp_path: Path) -> None:
    there = Paths(folder, shipped, 3)
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.count(there, "z")
    with pytest.raises(
        fb.DataError, match=r"row 0 of .*0\.parquet.*'text'|'text'.*0\.parquet"
    ) as found:
        fb.count(there, "y", domains={"text": ["a"]})
    assert found.value.__cause__ is None
    assert "\n" not in str(found.value)
    with pytest.raises(fb.DataError, match="workers read its rows"):
        fb.count(there, "y", folds=2)
    with pytest.raises(fb.DataError, match="workers read its rows"):
        fb.NaiveBayes().fit(folder, "y").predict(there)
    with pytest.raises(fb.MemoryLimitError, match="memory_limit"):
        fb.count(there, "y", pairs=True, memory_limit=1)
    pq.write_table(
        pa.table({"x": ["a"], "y": pa.array([None], pa.string())}), tmp_path / "a.parquet"
    )
    with pytest.raises(fb.DataError, match="column 'y' is null in all 1 rows"):
        fb.count(Paths(tmp_path, shipped, 3), "y")
    damaged = bytearray((folder / "1.parquet").read_bytes())
    damaged[200:400] = bytes(200)
    (tmp_path / "a.parquet").write_bytes(damaged)
    with pytest.raises(fb.FileFormatError, match=r"a\.parquet, row group 0"):
        fb.count(Paths(tmp_path, shipped, 3), "y")
    with pytest.raises(fb.DataError, match="no such file"):
        fb.count(Paths(tmp_path / "none.parquet", shipped, 3), "y")
    with pytest.raises(fb.DataError, match="workers read files"):
        fb.count(Paths({"x": ["a"]}, shipped, 3), "x")  # type: ignore[arg-type]


def test_files__that_change_under_the_job_are_named(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes((folder / "1.parquet").read_bytes())

    def meanwhile(f: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        path.write_bytes((folder / "3.parquet").read_bytes())
        return shipped(f, items)

    with pytest.raises(fb.DataError, match=r"a\.parquet changed while it was read; begin again"):
        fb.count(Paths(path, meanwhile, 2), "y")

    def removed(f: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        path.unlink()
        return shipped(f, items)

    with pytest.raises(fb.DataError, match=r"a\.parquet: no such file or directory any more"):
        fb.count(Paths(path, removed, 2), "y")


def test_gaussian_bayes__of_numbers_alone(folder: Path, tmp_path: Path) -> None:
    table = pa.concat_tables([rows(200, seed) for seed in (1, 2)]).select(["number", "heavy", "y"])
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    here = fb.GaussianBayes().fit(tmp_path, "y")
    there = fb.GaussianBayes().fit(Paths(tmp_path, shipped, 3), "y")
    assert there.statistics_.allclose(here.statistics_)


def test_skip__leaves_out_what_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    for name in ("1.parquet", "3.parquet"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    damaged = bytearray((folder / "1.parquet").read_bytes())
    damaged[200:400] = bytes(200)
    (tmp_path / "2.parquet").write_bytes(damaged)
    here = fb.count(tmp_path, "y", on_error="skip")
    there = fb.count(Paths(tmp_path, shipped, 9), "y", on_error="skip")
    assert there.allclose(here)
    assert there.provenance == here.provenance
    assert any("2.parquet, row group 0" in text for text in there.provenance)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_map__that_loses_or_repeats_a_result_is_found_out(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "csv":  # which does not tell its rows
        for seed in range(1, 4):
            pyarrow.csv.write_csv(rows(100 * seed, seed), tmp_path / f"{seed}.csv")
        folder = tmp_path

    def loses(found: list[Any]) -> list[Any]:
        return found[1:]

    def repeats(found: list[Any]) -> list[Any]:
        return [*found, found[0]]

    def both(found: list[Any]) -> list[Any]:
        return [found[-1], *found[1:]]

    for wrong, said in ((loses, "1 of 3 .* 0"), (repeats, "1 of 3 .* 2"), (both, "1 of 3 .* 0")):

        def mapped(f: Callable[[Any], Any], items: Iterable[Any], wrong: Any = wrong) -> list[Any]:
            return wrong([*shipped(f, items)])  # type: ignore[no-any-return]

        for options in ({}, {"numeric": "mdl"}, {"on_error": "skip"}):
            with pytest.raises(fb.DataError, match=f"share {said} times; `map` must give one"):
                fb.count(Paths(folder, mapped, 3), "y", **options)


def test_errors__of_kinds_that_are_not_public_are_the_nearest_ones() -> None:
    def taken_away(_: Any) -> fb.Statistics:
        raise RetractionError("too much", 0, 1)

    work = Work(Given(taken_away), 1)
    with pytest.raises(fb.DataError, match=r"^too much$"):
        work.read(work.sum([work(0), work(1)]))  # type: ignore[arg-type]


def test_progress__tells_of_all_rows(folder: Path) -> None:
    seen: list[int] = []
    fb.count(Paths(folder, shipped, 4), "y", progress=seen.append)
    assert sum(seen) == 1350
    assert len(seen) > 1


def test_map_reduce__adds_in_order() -> None:
    assert map_reduce("abc", str.upper, lambda a, b: a + b) == "ABC"
    with pytest.raises(ValueError, match="there are no parts"):
        map_reduce([], str, lambda a, b: a + b)
    with pytest.raises(TypeError, match="unsupported operand"):
        map_reduce([1, "a"], lambda part: part, lambda a, b: a + b)


@pytest.mark.parametrize(
    "start",
    [
        "spawn",
        pytest.param("fork", marks=pytest.mark.slow),
        pytest.param("forkserver", marks=pytest.mark.slow),
    ],
)
def test_processes(folder: Path, start: str) -> None:
    there = pool.paths(folder, processes=2, start=start)
    for options in ({}, {"pairs": True}):
        here = fb.count(folder, "y", **options)
        assert fb.count(there, "y", **options).allclose(here)
    with pytest.raises(fb.DataError, match=r"'text'.*0\.parquet|0\.parquet.*'text'") as found:
        fb.count(there, "y", domains={"text": ["a"]})
    assert found.value.__cause__ is None
    assert fb.count(there, "y").allclose(fb.count(folder, "y"))


def killed_once(path: str) -> int:
    """End the process that calls this, if it is the first one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return 1
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def killed(path: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_processes__that_are_killed_once_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = pool.paths("a.parquet", processes=2).map
    assert [*processes(killed_once, [str(tmp_path / "x")] * 5)] == [1] * 5
    monkeypatch.setattr(pool, "ATTEMPTS", 2)
    with pytest.raises(
        fb.FastBayesError, match="processes ended 2 times before they had done anything"
    ):
        [*processes(killed, ["", ""])]
    assert [*processes(len, ["ab"])] == [2]


class KilledOnce:
    """Work at whose every share the process is killed once, before it counts or after."""

    def __init__(self, work: Any, folder: Path) -> None:
        self.work, self.folder = work, folder

    def __call__(self, share: Any) -> bytes:
        try:
            os.close(os.open(self.folder / f"{share.position}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self.work(share)  # type: ignore[no-any-return]
        if share.position % 2:
            self.work(share)
        os.kill(os.getpid(), signal.SIGKILL)
        return b""


@pytest.mark.slow
def test_processes__that_are_killed_at_ten_moments_lose_nothing(
    folder: Path, tmp_path: Path
) -> None:
    processes = pool.paths(folder, processes=2)
    killed = Paths(folder, lambda f, items: processes.map(KilledOnce(f, tmp_path), items), 12)
    found = fb.count(killed, "y", moments=False, columns=["text", "whole"])
    assert len([*tmp_path.iterdir()]) >= 8
    assert found == fb.count(folder, "y", moments=False, columns=["text", "whole"])


def test_processes__that_are_killed_while_they_wait(tmp_path: Path) -> None:
    processes = pool.paths("a.parquet", processes=2)
    pids = {*processes.map(pid_of, range(8))}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert not pids & {*processes.map(pid_of, range(8))}


@pytest.mark.parametrize("pipe", ["open", "closed"])
def test_processes__that_die_while_work_is_handed_over(
    pipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed over then nobody does, nor says so; a new process may find no pipe."""
    executors: list[Any] = []

    class Executor:
        def __init__(self, *_: Any, **__: Any) -> None:
            executors.append(self)
            self.handed = 0

        def submit(self, f: Callable[[Any], Any], item: Any) -> Future[Any]:
            self.handed += 1
            future: Future[Any] = Future()
            if self is executors[0] and self.handed == 3 and pipe == "closed":
                raise OSError("handle is closed")
            if self is executors[0] and self.handed > 3:
                raise BrokenProcessPool
            if self is not executors[0] or self.handed == 2:
                future.set_result(f(item))
            return future

        def shutdown(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(pool, "ProcessPoolExecutor", Executor)
    monkeypatch.setattr(pool, "PATIENCE", 0.01)
    assert [*pool.paths("a.parquet", processes=2).map(str, range(3))] == ["0", "1", "2"]
    assert [executor.handed for executor in executors] == [4, 2]


def test_processes__that_cannot_begin_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Executor:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def submit(self, f: Callable[[Any], Any], item: Any) -> Future[Any]:
            raise OSError(24, "Too many open files")

        def shutdown(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(pool, "ProcessPoolExecutor", Executor)
    with pytest.raises(OSError, match="Too many open files"):
        [*pool.paths("a.parquet", processes=2).map(str, range(3))]


def pid_of(_: int) -> int:
    return os.getpid()


ORPHANS = """
import os, sys, time
from fastbayes.engines import pool

def begin(i):
    os.write(1, b"begun\\n")  # at once, whatever else is written
    time.sleep(1000 * i)  # one waits for work, one works

if __name__ == "__main__":
    for _ in pool.paths("a.parquet", processes=2, start=sys.argv[1]).map(begin, [0, 1]):
        pass
"""


@pytest.mark.parametrize(
    "start",
    [
        "spawn",
        pytest.param("fork", marks=pytest.mark.slow),
        pytest.param("forkserver", marks=pytest.mark.slow),
    ],
)
def test_processes__end_with_the_one_that_began_them(tmp_path: Path, start: str) -> None:
    (tmp_path / "script.py").write_text(ORPHANS)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py"), start]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == b"begun\n"
        process.kill()
        assert process.communicate(timeout=60)[0] == b""  # its end: nobody holds the pipe


HOMELESS = """
import sys
import fastbayes as fb

if __name__ == "__main__":
    there = fb.engines.pool.paths(sys.argv[1], processes=2)
    for _ in range(2):
        print(fb.count(there, "y", columns=["text"]).values.counts.tolist())
"""


@pytest.mark.slow
@pytest.mark.compiled
def test_processes__without_a_writable_home_say_it_once(folder: Path, tmp_path: Path) -> None:
    """As on a cluster: the package belongs to root, a home directory is missing."""
    (tmp_path / "script.py").write_text(HOMELESS)
    home = tmp_path / "home"
    home.touch()  # a file, which stops the superuser, too
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserWideCacheLocator",
        "FASTBAYES_KERNELS": "always",
    }
    command = [sys.executable, str(tmp_path / "script.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    counts = fb.count(folder, "y", columns=["text"]).values.counts.tolist()
    assert done.stdout.splitlines() == [str(counts)] * 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("compiled kernels cannot be cached where workers run")
    assert "NUMBA_CACHE_DIR" in line


def test_uncached__is_said_once_for_all_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def elsewhere(f: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            with monkeypatch.context() as patch:
                patch.setattr(dispatch, "_warned", item.position == 1)
                found = f(item)
            yield found

    dispatch.warn_of_workers.cache_clear()
    monkeypatch.setattr(dispatch, "_warned", False)
    for _ in range(2):
        fb.count(Paths(folder, elsewhere, 3), "y")
    (record,) = caplog.records
    assert "cannot be cached where workers run" in record.message


def test_processes__count_on_one_thread_each(tmp_path: Path) -> None:
    assert [*pool.paths("a.parquet", processes=1).map(threads_of, [0])] == [1]


def threads_of(_: int) -> int:
    return default_threads()


def test_processes__misuse() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'thread'"):
        pool.paths("a.parquet", start="thread")
    with pytest.raises(ValueError, match="processes=0: use a whole number"):
        pool.paths("a.parquet", processes=0)


# -- scores


def same_figures(found: Any, wanted: Any) -> None:
    """Hold every figure to another's: counts bit for bit, sums to rounding."""
    mine, theirs = found.to_dict(), wanted.to_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if name in ("classes", "auc_method") or type(value) is int:
            assert value == theirs[name], name
        elif name == "calibration":
            for key, bins in value.items():
                np.testing.assert_allclose(
                    np.array(bins, float), np.array(theirs[name][key], float), rtol=1e-12
                )
        else:
            np.testing.assert_allclose(value, theirs[name], rtol=1e-12, err_msg=name)


MODELS: dict[str, Callable[[], Any]] = {
    "naive": lambda: fb.NaiveBayes(),
    "tan": lambda: fb.TAN(),
    "aode": lambda: fb.AODE(),
    "gaussian": lambda: fb.GaussianBayes(),
    "logistic": lambda: fb.LogisticRegression(),
    "network": lambda: fb.NetworkClassifier(),
    "calibrated": lambda: fb.Calibrated(fb.NaiveBayes()),
    "blend": lambda: fb.Blend(["naive-bayes", "tan"]),
    "weighted": lambda: fb.WeightedNaiveBayes(),
}


@pytest.mark.parametrize("parts", [1, 3, 20])
@pytest.mark.parametrize("name", MODELS)
def test_evaluate__by_workers(folder: Path, name: str, parts: int) -> None:
    columns = {"gaussian": ["number"], "network": ["text", "whole"]}.get(name)
    table = pa.concat_tables(rows(n, seed) for seed, n in enumerate((300, 1000)))
    model = MODELS[name]().fit(table if columns is None else table.select([*columns, "y"]), "y")
    there = Paths(folder, shipped, parts)
    same_figures(fb.evaluate(model, there), fb.evaluate(model, folder))
    if name == "naive":
        told: dict[str, Any] = {"sample_weight": "heavy", "loss": [[0, 2], [1, 0]]}
        steps: list[int] = []
        found = fb.evaluate(model, there, progress=steps.append, **told)
        same_figures(found, fb.evaluate(model, folder, **told))
        assert sum(steps) == 1350


def test_evaluate__ranks_by_histograms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastbayes.evaluation import roc_auc

    model = fb.NaiveBayes().fit(folder, "y")
    for most in (100, 600):  # all shares have histograms, or some
        monkeypatch.setattr(roc_auc, "EXACT_SCORES", most)
        found = fb.evaluate(model, Paths(folder, shipped, 20))
        assert found.auc_method == "histogram"
        same_figures(found, fb.evaluate(model, folder))


def test_evaluate__errors_are_those_of_rows_read_here(folder: Path, tmp_path: Path) -> None:
    model = fb.NaiveBayes().fit(folder, "y")
    there = Paths(folder, shipped, 3)
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.evaluate(model, there, "z")
    strange = rows(20, 1).set_column(4, "y", pa.array(["other"] * 20))
    pq.write_table(strange, tmp_path / "a.parquet")
    with pytest.raises(fb.DataError, match="'other'") as found:
        fb.evaluate(model, Paths(tmp_path, shipped, 3))
    assert "a.parquet" in str(found.value)
    nothing = rows(20, 1).set_column(4, "y", pa.nulls(20, pa.string()))
    pq.write_table(nothing, tmp_path / "a.parquet")
    with pytest.raises(fb.DataError, match="column 'y' is null in all 20 rows"):
        fb.evaluate(model, Paths(tmp_path, shipped, 3))


# -- models judged by workers


def same_values(found: Any, wanted: Any, rtol: float = 1e-12, name: str = "") -> None:
    """Hold nested values to others': what is counted or named exactly, sums to rounding."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), name
        for key, value in wanted.items():
            same_values(found[key], value, rtol, f"{name}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), name
        for mine, theirs in zip(found, wanted, strict=True):
            same_values(mine, theirs, rtol, name)
    elif isinstance(wanted, float):
        # A calibration error is what differences of sums of posteriors leave.
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-13, err_msg=name)
    else:
        assert found == wanted, name


NAMES = [*candidates()]
# A pass adds up sums of numbers, and what is minimised is then off by more than rounding.
MINIMISED = {"logistic": 1e-6, "logistic-pairs": 1e-2, "weighted-naive-bayes": 1e-4}
LEFT_OUT: dict[str, Any] = {"validation": "leave_one_out"}
JUDGED: dict[str, dict[str, Any]] = {
    "leave-one-out": LEFT_OUT,
    "with weights": LEFT_OUT | {"sample_weight": "heavy", "loss": [[0, 2], [1, 0]]},
    "folds": {"folds": "whole", "discretize": ("width", 3)},
    "folds with cuts of their own": {"folds": "whole"},
    "all numeric": LEFT_OUT | {"columns": ["number", "whole"]},
}


@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
@pytest.mark.parametrize("how", JUDGED)
def test_compare__is_that_of_rows_read_here(folder: Path, how: str) -> None:
    """Every model that takes part."""
    options = {"models": NAMES, **JUDGED[how]}
    if "folds" in options:  # and few scans
        options["models"] = [n for n in NAMES if n not in ("network", "weighted-naive-bayes")]
    here = fb.compare(folder, "y", **options)
    steps: list[int] = []
    there = fb.compare(Paths(folder, shipped, 3), "y", progress=steps.append, **options)
    assert there.classes.tolist() == here.classes.tolist()
    assert there.rows == pytest.approx(here.rows, rel=1e-12)
    assert sum(steps) >= 2 * 1350
    assert len(there.entries) == len(here.entries)
    judged = 0
    for entry in here.entries:
        found, rtol = there[entry.name], MINIMISED.get(entry.name, 1e-12)
        assert found.reason == entry.reason
        if entry.figures is not None:
            same_values(found.figures.to_dict(), entry.figures.to_dict(), rtol)
            assert found.gap_error == pytest.approx(entry.gap_error, rel=1e3 * rtol, abs=1e-9)
            assert (found.parameters, found.memory) == (entry.parameters, entry.memory)
            judged += 1
    assert judged >= 5
    assert there.best.name == here.best.name


@pytest.mark.filterwarnings("ignore:.* rows have missing values:fastbayes.FastBayesWarning")
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"missing": "category"},
        {"search": "chow_liu"},
        {"search": "tabu", "restarts": 2},
        {"sample_weight": "heavy"},
    ],
    ids=str,
)
def test_networks__are_learned_of_the_rows_that_differ(folder: Path, how: dict[str, Any]) -> None:
    """Each comes once, with its number; those of fractions are cut where they are."""
    told = {"columns": ["text", "whole", "number", "y"], "discretize": ("quantile", 3)}
    here = fb.BayesianNetwork.learn(folder, **told, **how)
    there = fb.BayesianNetwork.learn(Paths(folder, shipped, 5), **told, **how)
    assert there.parents == here.parents
    assert there.states == here.states
    if "sample_weight" in how:
        return
    mine = fb.NetworkClassifier(columns=["text", "whole"], **how)
    other = fb.NetworkClassifier(columns=["text", "whole"], **how)
    rest = fb.evaluate(mine.fit(folder, "y"), folder)
    same_figures(fb.evaluate(other.fit(Paths(folder, shipped, 5), "y"), folder), rest)
    assert mine.parents_ == other.parents_


def test_networks__whose_rows_are_too_many_are_refused(folder: Path) -> None:
    there, cuts = Paths(folder, shipped, 3), {"number": np.linspace(-3, 3, 200)}
    with pytest.raises(fb.MemoryLimitError, match="learn from some of the rows"):
        fb.BayesianNetwork.learn(
            there, exclude="heavy", categorical="whole", discretize=cuts, memory_limit=20_000
        )


def test_compare__counts_once_and_scores_once(folder: Path) -> None:
    """A model travels as its file: what is sent is smaller than the tables that it makes."""
    asked: list[str] = []

    def noted(f: Any, items: Iterable[Any]) -> Iterator[Any]:
        asked.append(type(f.request).__name__)
        assert len(pickle.dumps(f)) < 60_000
        return shipped(f, items)

    there = Paths(folder, noted, 3)
    fb.compare(there, "y", models=["naive-bayes", "spode", "tan", "aode"])
    # The last scan is for the temperature of the winner.
    assert asked == ["Cutting", "Counting", "Scoring", "Scoring"]
    asked.clear()
    fb.compare(there, "y", models=["naive-bayes"], folds="whole")
    assert asked == ["Counting", "Scoring", "Scoring"]
    there = Paths(folder, shipped, 3)
    # Folds by place are not known to workers: without a column of folds rows are left out one by
    # one, and models without that, and estimators of arrays, say why they do not compete.
    board = fb.compare(there, "y", models=["tan", "logistic", "prior"])
    assert board.validation == "leave-one-out"
    assert "leave_one_out takes counts apart" in board["logistic"].reason
    with pytest.raises(fb.DataError, match="workers read the rows, and a blend learns from"):
        pickle.loads(pickle.dumps(board)).blend()
    board = fb.compare(there, "y", models={"tan": "tan", "it": fb.GaussianNB()}, folds="whole")
    assert "workers read the rows" in board["it"].reason


class Failing(LooScorer):
    """Cannot score rows of the class "yes", which the first file lacks."""

    def __init__(self) -> None:
        pass

    def posterior(self, batch: Any, out: Any) -> int:
        if (batch.classes == 1).any():
            raise fb.SchemaError("no answer to a yes")
        out[:] = 0.5
        return 0


def test_scores__a_model_that_cannot_score_some_row_ends_itself_alone(folder: Path) -> None:
    model = fb.NaiveBayes().fit(folder, "y")
    encoding = RowEncoding([model.schema_], "y", None)
    found = {}
    for name, source in (("here", folder), ("there", Paths(folder, shipped, 4))):
        scorers = [Failing()], [Fitted(model)]
        both = [Contestant(model.classes_, some) for some in scorers]
        _, judged = scores(open_source(source), encoding, both, strict=False)[0]
        assert (type(both[0].error), str(both[0].error)) == (fb.SchemaError, "no answer to a yes")
        assert both[1].error is None
        found[name] = judged.figures().to_dict()
        with pytest.raises(fb.SchemaError, match="no answer to a yes"):
            scores(open_source(source), encoding, [Contestant(model.classes_, [Failing()])])
    same_values(found["there"], found["here"])


LEFT_OUT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "naive": (lambda: fb.NaiveBayes(alpha="loo"), {}),
    "kde": (lambda: fb.NaiveBayes(numeric="kde"), {"numeric": "kde"}),
    "tan": (lambda: fb.TAN(), {"pairs": True}),
    "aode": (lambda: fb.AODE(), {"pairs": True}),
    "joint": (lambda: fb.JointBayes(), {"pairs": True, "cells": True}),
    "gaussian": (lambda: fb.GaussianBayes(), {"scatter": True, "columns": ["number", "far"]}),
    "tied": (
        lambda: fb.GaussianBayes(covariance="tied"),
        {"scatter": True, "columns": ["number", "far"]},
    ),
}


@pytest.mark.filterwarnings("ignore:the covariance of class 'no' is singular")
@pytest.mark.parametrize("weight", [None, "heavy"])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_leave_one_out__is_that_of_rows_read_here(
    tmp_path: Path, name: str, weight: str | None
) -> None:
    """One row is so far away that it takes the moments of all others, which come from workers."""
    for seed in (1, 2):
        table, far = rows(200, seed), np.random.default_rng(seed).normal(size=200)
        far[seed] = 1e7 if seed == 1 else far[seed]
        table = table.append_column("far", pa.array(far))
        pq.write_table(table, tmp_path / f"{seed}.parquet", row_group_size=60)
    make, options = LEFT_OUT[name]
    stats = fb.count(tmp_path, "y", sample_weight=weight, **options)
    given: dict[str, Any] = {"sample_weight": weight}
    here = fb.leave_one_out(make(), stats, tmp_path, **given)
    there = fb.leave_one_out(make(), stats, Paths(tmp_path, shipped, 3), **given)
    same_values(there.to_dict(), here.to_dict())
    assert here.proba is not None
    assert there.proba is None
    with pytest.raises(fb.DataError, match="leave them out with proba=False"):
        fb.leave_one_out(make(), stats, Paths(tmp_path, shipped, 3), proba=True, **given)


def test_leave_one_out__of_other_rows_is_refused(folder: Path, tmp_path: Path) -> None:
    stats = fb.count(folder / "1.parquet", "y")
    pq.write_table(rows(50, 2), tmp_path / "a.parquet")
    with pytest.raises(fb.DataError, match="values that were not counted"):
        fb.leave_one_out(fb.NaiveBayes(), stats, Paths(tmp_path, shipped, 2))


SELECTED: dict[str, Callable[[], Any]] = {
    "kdb": lambda: fb.KDB(k=2, select="leave_one_out"),
    "kdb, errors": lambda: fb.KDB(k=1, select="leave_one_out", criterion="error"),
    "aode": lambda: fb.AODE(select="leave_one_out"),
    "spode": lambda: fb.SPODE(super_parent="loo"),
}


@pytest.mark.parametrize("name", SELECTED)
def test_selection__is_that_of_rows_read_here(folder: Path, name: str) -> None:
    here = SELECTED[name]().fit(folder, "y", sample_weight="heavy")
    there = SELECTED[name]().fit(Paths(folder, shipped, 3), "y", sample_weight="heavy")
    assert there.statistics_.allclose(here.statistics_)
    if name == "spode":
        assert there.super_parent_ == here.super_parent_
    with pytest.raises(fb.DataError, match="folds by place cannot be told"):
        fb.SPODE(super_parent="cv").fit(Paths(folder, shipped, 3), "y")


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("kept", [True, False])
def test_calibrated__is_that_of_rows_read_here(
    folder: Path, method: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:  # there are sums, in scans of their own
        monkeypatch.setattr(posterior_maps, "MOST_KEPT", 200)
    given: dict[str, Any] = {"method": method, "validation": "leave_one_out"}
    here = fb.Calibrated(fb.TAN(), **given).fit(folder, "y", sample_weight="heavy")
    shares = Paths(folder, shipped, 3)
    there = fb.Calibrated(fb.TAN(), **given).fit(shares, "y", sample_weight="heavy")
    # Unasked it is the same, which may be too sure, and says so.
    with pytest.warns(fb.FastBayesWarning, match="structure and cut points of all rows"):
        unasked = fb.Calibrated(fb.TAN(), method=method).fit(shares, "y", sample_weight="heavy")
    assert (unasked.log_loss_, unasked.fixed_) == (there.log_loss_, there.fixed_)
    np.testing.assert_allclose(there.log_loss_, here.log_loss_, rtol=1e-9)
    for name, array in here.calibration_.arrays().items():
        np.testing.assert_allclose(there.calibration_.arrays()[name], array, rtol=1e-6)
    with pytest.raises(fb.DataError, match="folds by place cannot be told"):
        fb.Calibrated(fb.A2DE()).fit(shares, "y")
    with pytest.raises(fb.DataError, match="folds by place cannot be told"):
        fb.fit(shares, "y")


@pytest.mark.parametrize("options", [{}, {"pairs": True, "discretize": ("width", 3)}], ids=str)
@pytest.mark.parametrize("parts", [1, 3, 100])
def test_folds__by_a_column_are_those_of_all_rows(folder: Path, options: Any, parts: int) -> None:
    here = fb.count(folder, "y", folds="whole", **options)
    there = fb.count(Paths(folder, shipped, parts), "y", folds="whole", **options)
    assert there.fold_names == here.fold_names == tuple(map(str, range(-3, 4)))
    assert there.allclose(here)
    assert all(
        mine.values == theirs.values for mine, theirs in zip(there.folds, here.folds, strict=True)
    )


K_FOLD: dict[str, Callable[[], Any]] = {
    "naive": lambda: fb.NaiveBayes(),
    "kdb": lambda: fb.KDB(k=2),
    "selected": lambda: fb.KDB(k=2, select="leave_one_out"),
    "spode": lambda: fb.SPODE(super_parent="loo"),
    "cut": lambda: fb.AODE(),
    "logistic": lambda: fb.LogisticRegression(tol=1e-9),
}


@pytest.mark.parametrize("name", K_FOLD)
def test_k_fold__by_a_column_is_that_of_rows_read_here(folder: Path, name: str) -> None:
    here = fb.k_fold(K_FOLD[name](), folder, "y", folds="whole")
    there = fb.k_fold(K_FOLD[name](), Paths(folder, shipped, 3), "y", folds="whole")
    same_values(there.to_dict(), here.to_dict(), 1e-7 if name == "logistic" else 1e-12)
    assert there.proba is None


def test_folds__misuse(folder: Path) -> None:
    there = Paths(folder, shipped, 3)
    by_place = r"folds by place cannot be told: name a column of folds"
    with pytest.raises(fb.DataError, match=by_place):
        fb.k_fold(fb.TAN(), there, "y", folds=3)
    with pytest.raises(fb.DataError, match=by_place):
        fb.compare(there, "y", validation="k_fold")
    with pytest.raises(fb.DataError, match=by_place):
        fb.count(there, "y", folds=2)
    with pytest.raises(fb.DataError, match=r"column 'text', row \d+ of .*: there is no fold"):
        fb.count(there, "y", folds="text")
    with pytest.raises(fb.DataError, match="unlabelled='em' needs them here"):
        fb.NaiveBayes(unlabelled="em").fit(there, "y")


def test_processes__judge_models(folder: Path) -> None:
    models = ["naive-bayes", "kdb", "aode", "joint-bayes"]
    here = fb.compare(folder, "y", models=models, folds="whole")
    there = fb.compare(pool.paths(folder, processes=2), "y", models=models, folds="whole")
    for entry in here.entries:
        same_values(there[entry.name].figures.to_dict(), entry.figures.to_dict())
