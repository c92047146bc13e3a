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
from fastbayes.kernels import dispatch
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
    encoder = fb.scan.counting.opened_to_learn(folder, "y").learning()  # type: ignore[attr-defined]
    request = pickle.loads(pickle.dumps(Counting(encoder, {"values": {}, "moments": {}})))
    n_rows, stats = source.run(request)
    assert n_rows == 1350
    none = request.zero()
    assert none.n_rows == 0
    assert request.add(none, stats) == request.add(stats, none) == stats
    assert request.from_bytes(request.to_bytes(stats)) == stats


MODELS = ["NaiveBayes", "SPODE", "TAN", "KDB", "AODE", "A2DE", "JointBayes", "JointGaussian"]


@pytest.mark.parametrize("name", MODELS)
def test_models__learn_what_they_learn_here(folder: Path, name: str) -> None:
    kind = getattr(fb, name)
    here, there = kind().fit(folder, "y"), kind().fit(Paths(folder, shipped, 3), "y")
    assert there.statistics_.allclose(here.statistics_)
    some = rows(20, 1).drop_columns(["y"])
    np.testing.assert_allclose(there.predict_proba(some), here.predict_proba(some), rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, {"C": 0.1, "solver": "lbfgs"}, {"penalty": "l1"}, {"class_weight": "balanced"}],
    ids=str,
)
def test_logistic_regression__is_that_of_rows_read_here(folder: Path, options: Any) -> None:
    given = {"tol": 1e-8, **options}
    here = fb.LogisticRegression(**given).fit(folder, "y", sample_weight="heavy")
    there = fb.LogisticRegression(**given).fit(
        Paths(folder, shipped, 3), "y", sample_weight="heavy"
    )
    assert there.converged_
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-5, atol=1e-6)


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


def test_processes__that_die_while_work_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was handed over then nobody does, nor says so."""
    executors: list[Any] = []

    class Executor:
        def __init__(self, *_: Any, **__: Any) -> None:
            executors.append(self)
            self.handed = 0

        def submit(self, f: Callable[[Any], Any], item: Any) -> Future[Any]:
            self.handed += 1
            future: Future[Any] = Future()
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


def pid_of(_: int) -> int:
    return os.getpid()


ORPHANS = """
import sys, time
from fastbayes.engines import pool

def begin(i):
    print("begun", flush=True)
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
