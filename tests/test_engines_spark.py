"""What Spark's executors count, of files and of frames, is what is counted here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb

sql = pytest.importorskip("pyspark.sql")
pytestmark = [
    pytest.mark.slow,
    # pyspark says so of pandas 3, which nothing here uses.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
N = 2_000


def rows(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    texts, labels = np.array(["a", "b", "c d", None], object), np.array(["no", "yes", None], object)
    return pa.table(
        {
            "te.xt": pa.array(texts[rng.integers(4, size=N)]),
            "whole": rng.integers(-3, 4, N),
            "number": rng.normal(size=N),
            "flag": rng.random(N) < 0.3,
            "y": pa.array(labels[rng.integers(3, size=N)]),
        }
    )


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if not java:
        assert os.environ.get("CI") != "true", "Spark needs Java: install it, or set JAVA_HOME"
        pytest.skip("Spark needs Java")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    builder = sql.SparkSession.builder.master("local[2,4]")  # local[2] never retries
    for key, value in {"ui.enabled": "false", "ui.showConsoleProgress": "false"}.items():
        builder = builder.config(f"spark.{key}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark")
    for seed in range(3):
        pq.write_table(rows(seed), path / f"{seed}.parquet", row_group_size=200)
    return path


@pytest.mark.parametrize("options", [{}, {"pairs": True}, {"numeric": "kde"}])
@pytest.mark.parametrize("parts", [None, 30])
def test_paths(session: Any, folder: Path, options: Any, parts: int | None) -> None:
    there = fb.engines.spark.paths(session, str(folder), parts=parts)
    assert there.parts == (parts or 8)
    assert fb.count(there, "y", **options).allclose(fb.count(folder, "y", **options))


@pytest.mark.parametrize("options", [{}, {"pairs": True}, {"columns": ["te.xt", "flag"]}])
def test_frames(session: Any, folder: Path, options: Any) -> None:
    frame = session.read.parquet(str(folder))
    assert fb.count(frame, "y", **options).allclose(fb.count(folder, "y", **options))
    # Empty partitions are fine, and those whose rows have no class.
    some = frame.where("y is null or whole = 0").repartition(7, "y")
    table = pa.concat_tables([rows(seed) for seed in range(3)])
    y, whole = table["y"].is_null().to_numpy(), table["whole"].to_numpy()
    expected = fb.count(table.filter(pa.array(y | (whole == 0))), "y", **options)
    assert fb.count(some, "y", **options).allclose(expected)


def test_dates_and_structs(session: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    moments = rng.integers(1_600_000_000, 1_680_000_000, 500) * 10**6
    rows = pa.table(
        {
            "when": pa.array(moments, pa.timestamp("us", "UTC")),
            "device": [{"os": "abc"[i % 3], "size": float(i % 7)} for i in range(500)],
            "y": rng.choice([*"np"], 500),
        }
    )
    pq.write_table(rows, tmp_path / "t.parquet")
    frame = session.read.parquet(str(tmp_path / "t.parquet"))
    zone = session.conf.get("spark.sql.session.timeZone")
    local = rows.set_column(0, "when", rows["when"].cast(pa.timestamp("us", zone)))
    stats, wanted = fb.count(frame, "y"), fb.count(local, "y")
    assert stats.schema == wanted.schema
    assert stats.values == wanted.values
    model = fb.NaiveBayes().fit_statistics(stats)
    found = model.predict(frame.drop("y")).toArrow()["prediction"].to_pylist()
    assert found == model.predict(rows.drop_columns("y")).tolist()


def test_models(session: Any, folder: Path) -> None:
    frame = session.read.parquet(str(folder))
    here, there = fb.KDB().fit(folder, "y"), fb.KDB().fit(frame, "y")
    assert there.statistics_ == here.statistics_
    local = fb.evaluate(here, folder)
    for source in (frame, fb.engines.spark.paths(session, str(folder), parts=20)):
        scored = fb.evaluate(here, source)
        assert scored.confusion.tolist() == local.confusion.tolist()
        assert scored.auc == pytest.approx(local.auc, rel=1e-12)
        assert scored.log_loss == pytest.approx(local.log_loss, rel=1e-12)
    table = pa.concat_tables([rows(seed) for seed in range(3)])
    found = there.predict_proba(there.predict(frame)).toArrow()
    assert found.column_names == [*table.column_names, "prediction", "proba_no", "proba_yes"]
    expected = here.predict_proba(found.select(table.column_names))
    np.testing.assert_array_equal(found["proba_yes"].to_numpy(), expected[:, 1])
    labels = here.predict(found.select(table.column_names))
    assert found["prediction"].to_pylist() == labels.tolist()


def test_errors__are_those_of_rows_read_here(session: Any, folder: Path) -> None:
    for source in (session.read.parquet(str(folder)), fb.engines.spark.paths(session, str(folder))):
        with pytest.raises(fb.DataError, match=r"'te\.xt'.*outside the declared domain") as found:
            fb.count(source, "y", domains={"te.xt": ["a"]})
        assert found.value.__cause__ is None
        assert "\n" not in str(found.value)
        with pytest.raises(fb.SchemaError, match="no column 'z'"):
            fb.count(source, "z")


def counted(folder: str, seed: int) -> fb.Statistics:
    """Count a part; the process that counts part 3 first is killed."""
    if seed == 3:
        try:
            os.close(os.open(f"{folder}/killed", os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return fb.count(rows(seed), "y")


@pytest.mark.parametrize("n", [5, 20])
def test_map_reduce__a_killed_worker_loses_nothing(session: Any, tmp_path: Path, n: int) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    found = fb.engines.spark.map_reduce(session, range(n), partial(counted, str(tmp_path)))
    assert (tmp_path / "killed").exists()
    assert found.allclose(sum(fb.count(rows(seed), "y") for seed in range(n)))
    with pytest.raises(ValueError, match="there are no parts"):
        fb.engines.spark.map_reduce(session, [], partial(counted, str(tmp_path)))


CONNECTED = """
import sys
import fastbayes as fb
from pyspark.sql import SparkSession

session = SparkSession.builder.remote("local[2]").getOrCreate()
frame, here = session.read.parquet(sys.argv[1]), fb.count(sys.argv[1], "y", pairs=True)
print(type(frame).__module__)
paths = fb.engines.spark.paths(session, sys.argv[1])
print(all(fb.count(source, "y", pairs=True) == here for source in (frame, paths)))
session.stop()
"""


def test_connect(session: Any, folder: Path) -> None:
    """A session of Spark Connect has no context and no RDD; it wants a process of its own."""
    pytest.importorskip("grpc")
    given = [sys.executable, "-W", "ignore", "-c", CONNECTED, str(folder)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["pyspark.sql.connect.dataframe", "True"], done.stderr


@pytest.mark.parametrize("pairs", [False, True])
def test_counted_by_a_query(session: Any, pairs: bool) -> None:
    pytest.importorskip("sqlglot")
    types = {"te.xt": "string", "whole": "int64", "number": "double", "flag": "bool"}
    session.createDataFrame(rows(0)).createOrReplaceTempView("some_rows")
    query = fb.sql_counts("spark", source="some_rows", target="y", columns=types, pairs=pairs)
    found = fb.Statistics.from_table(session.sql(query).toArrow(), target="y", types=types)
    wanted = fb.count(rows(0), "y", categorical=[*types], pairs=pairs)
    assert wanted.aligned(found.schema) == found
