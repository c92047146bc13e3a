"""What Spark's executors count, of files and of frames, is what is counted here."""

from __future__ import annotations

import os
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
from extras import needs_java

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
    needs_java()
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


def test_instants_are_the_same_in_a_frame_and_in_its_files(session: Any, tmp_path: Path) -> None:
    """Spark stores timestamps in 12 bytes (INT96), those of the year 9999 too."""
    assert session.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    moments = (f"timestamp'{year}-06-30 12:00:00'" for year in (9999, 2022))
    frame = session.sql(
        f"select if(id % 2 = 0, 'p', 'n') y, if(id % 2 = 0, {', '.join(moments)}) x from range(400)"
    )
    path = str(tmp_path / "spark")
    frame.write.parquet(path)
    for source in (session.read.parquet(path), path, fb.engines.spark.paths(session, path)):
        stats = fb.count(source, "y", dates={"x": ["year"]})
        assert stats.moments.mean.ravel().tolist() == [2022, 9999]


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


@pytest.mark.parametrize("parts", [5, 30])
def test_predictions__are_those_written_here(
    session: Any, folder: Path, tmp_path: Path, parts: int
) -> None:
    model = fb.KDB().fit(folder, "y")
    here = fb.predict_to(model, folder, tmp_path / "here", proba=True)
    there = fb.engines.spark.paths(session, str(folder), parts=parts)
    assert fb.predict_to(model, there, tmp_path / "there", proba=True) == here
    assert pq.read_table(tmp_path / "there").equals(pq.read_table(tmp_path / "here"))


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
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import SparkSession

session = SparkSession.builder.remote("local[2]").getOrCreate()
frame, here = session.read.parquet(sys.argv[1]), fb.count(sys.argv[1], "y", pairs=True)
print(type(frame).__module__)
paths = fb.engines.spark.paths(session, sys.argv[1])
print(all(fb.count(source, "y", pairs=True) == here for source in (frame, paths)))
stage = fb.engines.spark.FastBayesClassifier("tan", labelCol="y")
model = Pipeline(stages=[stage]).fit(frame)
print(model.stages[0].classifier.statistics_.pairs == here.pairs)
for _ in range(2):
    model.write().overwrite().save(sys.argv[2])
found, again = (m.transform(frame).toArrow() for m in (model, PipelineModel.load(sys.argv[2])))
print(found == again, found.column_names[-1])
session.stop()
"""


def test_connect(session: Any, folder: Path, tmp_path: Path) -> None:
    """A session of Spark Connect has no context and no RDD; it wants a process of its own."""
    pytest.importorskip("grpc")
    paths = str(folder), str(tmp_path / "model")
    given = [sys.executable, "-W", "ignore", "-c", CONNECTED, *paths]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    said = ["pyspark.sql.connect.dataframe", "True", "True", "True", "probability"]
    assert done.stdout.split() == said, done.stderr


@pytest.mark.parametrize("pairs", [False, True])
def test_counted_by_a_query(session: Any, pairs: bool) -> None:
    pytest.importorskip("sqlglot")
    types = {"te.xt": "string", "whole": "int64", "number": "double", "flag": "bool"}
    session.createDataFrame(rows(0)).createOrReplaceTempView("some_rows")
    query = fb.sql_counts("spark", source="some_rows", target="y", columns=types, pairs=pairs)
    found = fb.Statistics.from_table(session.sql(query).toArrow(), target="y", types=types)
    wanted = fb.count(rows(0), "y", categorical=[*types], pairs=pairs)
    assert wanted.aligned(found.schema) == found


# -- pipelines


def stage(*args: Any, **options: Any) -> Any:
    return fb.engines.spark.FastBayesClassifier(*args, labelCol="y", **options)


@pytest.mark.parametrize("name", ["naive-bayes", "tan"])
def test_pipeline__counts_and_scores_on_executors(session: Any, folder: Path, name: str) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.functions import vector_to_array

    frame = session.read.parquet(str(folder))
    model = Pipeline(stages=[stage(name, alpha=0.5)]).fit(frame)
    classifier = model.stages[-1].classifier
    here = type(classifier)(alpha=0.5).fit(folder, "y")
    assert classifier.statistics_.allclose(here.statistics_)
    scored = model.transform(frame)
    assert scored.columns == [*frame.columns, "prediction", "probability"]
    table = scored.withColumn("probability", vector_to_array("probability")).toArrow()
    rows = table.select(frame.columns)
    assert table["prediction"].to_pylist() == classifier.predict(rows).tolist()
    found = np.array(table["probability"].to_pylist())
    np.testing.assert_allclose(found, classifier.predict_proba(rows), atol=1e-12)


def test_pipeline__after_stages_and_into_evaluators_of_spark(session: Any, folder: Path) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.feature import StringIndexer, VectorAssembler
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    frame = session.read.parquet(str(folder)).where("y is not null")
    indexer = StringIndexer(inputCol="y", outputCol="label")
    vectors = VectorAssembler(inputCols=["whole", "number"], outputCol="vector")
    bayes = fb.engines.spark.FastBayesClassifier(featuresCols=["te.xt", "whole", "flag"])
    model = Pipeline(stages=[indexer, vectors, bayes]).fit(frame)
    scored = model.transform(frame)
    assert model.stages[-1].classifier.classes_.tolist() == [0.0, 1.0]
    assert scored.columns[-4:] == ["label", "vector", "prediction", "probability"]
    assert scored.schema["vector"] == vectors.transform(frame).schema["vector"]
    assert scored.first()["vector"][0] == scored.first()["whole"]
    loss = MulticlassClassificationEvaluator(metricName="logLoss")
    labelled = indexer.fit(frame).transform(frame)
    here = fb.evaluate(model.stages[-1].classifier, labelled)
    assert loss.evaluate(scored) == pytest.approx(here.log_loss)
    grid = ParamGridBuilder().addGrid(bayes.parameters, [{"alpha": 0.1}, {"alpha": 1e6}]).build()
    found = CrossValidator(
        estimator=bayes, estimatorParamMaps=grid, evaluator=loss, numFolds=2
    ).fit(labelled)
    best = grid[int(np.argmin(found.avgMetrics))]
    assert {"alpha": found.bestModel.classifier.alpha} == best[bayes.parameters]


def test_pipeline__is_written_and_read(session: Any, folder: Path, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel

    frame = session.read.parquet(str(folder))
    given = {"predictionCol": "label of it", "probabilityCol": "p.q"}
    pipeline = Pipeline(stages=[stage("aode", featuresCols=["flag", "whole"], **given, alpha=2.0)])
    model = pipeline.fit(frame)
    for value, path in ((pipeline, "pipeline"), (model, "model")):
        value.write().save(str(tmp_path / path))
        value.write().overwrite().save(str(tmp_path / path))
    again = Pipeline.load(str(tmp_path / "pipeline"))
    (old,), (new,) = pipeline.getStages(), again.getStages()
    assert type(new) is fb.engines.spark.FastBayesClassifier
    assert {p.name: v for p, v in new.extractParamMap().items()} == {
        p.name: v for p, v in old.extractParamMap().items()
    }
    refitted = again.fit(frame).stages[0].classifier
    assert refitted.statistics_ == model.stages[0].classifier.statistics_
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert loaded.stages[0].uid == model.stages[0].uid
    assert loaded.transform(frame).columns[-2:] == ["label of it", "p.q"]
    assert loaded.transform(frame).toArrow() == model.transform(frame).toArrow()
    loaded.stages[0].classifier.save(tmp_path / "m.fb")
    found = fb.load(tmp_path / "m.fb").predict(frame)
    labels = model.transform(frame).select("label of it")
    assert found.select("prediction").collect() == labels.collect()


def test_pipeline__params_and_refusals(session: Any, folder: Path) -> None:
    frame = session.read.parquet(str(folder))
    bayes = stage()
    copied = bayes.copy({bayes.model: "spode", bayes.parameters: {"alpha": 3}})
    assert (bayes.getOrDefault("model"), copied.getOrDefault("model")) == ("naive-bayes", "spode")
    first, second = bayes.fit(frame, [{}, {bayes.model: "tan"}])
    assert [type(m.classifier) for m in (first, second)] == [fb.NaiveBayes, fb.TAN]
    assert "featuresCols" in bayes.explainParams()
    only = first.copy({first.predictionCol: "", first.probabilityCol: "p"}).transform(frame)
    assert only.columns == [*frame.columns, "p"]
    with pytest.raises(ValueError, match=r"model='bayes': use one of \['naive-bayes'"):
        stage("bayes").fit(frame)
    with pytest.raises(TypeError, match="alfa"):
        stage(alfa=1).fit(frame)
    with pytest.raises(fb.SchemaError, match=r"no column 'wholes'.*'whole'"):
        stage(featuresCols=["wholes"]).fit(frame)
    with pytest.raises(fb.SchemaError, match="has a column 'y' already"):
        first.copy({first.predictionCol: "y"}).transform(frame)
    with pytest.raises(AttributeError, match="no attribute 'FastBayes'"):
        fb.engines.spark.FastBayes  # noqa: B018


def test_pipeline__without_pyspark_says_what_to_install() -> None:
    code = """
import sys
sys.modules["pyspark"] = None
import fastbayes as fb
try:
    fb.engines.spark.FastBayesClassifier
except fb.FastBayesError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "FastBayesClassifier needs pyspark: install fastbayes[spark]\n"
