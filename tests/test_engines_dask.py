"""What Dask's workers count, of files and of frames, is what is counted here."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastbayes as fb

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N = 3_000


def rows(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "text": np.array(["a", "b", "c", None], object)[rng.integers(4, size=N)],
            "whole": rng.integers(-3, 4, N),
            "number": np.where(rng.random(N) < 0.1, np.nan, rng.normal(size=N)),
            "flag": rng.random(N) < 0.3,
            "y": np.array(["no", "yes", None], object)[rng.integers(3, size=N)],
        }
    )


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    local = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(2, **local) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dask")
    for seed in range(3):
        rows(seed).to_parquet(path / f"{seed}.parquet", row_group_size=500, index=False)
    return path


@pytest.mark.parametrize("options", [{}, {"pairs": True}, {"cells": True}, {"numeric": "kde"}])
def test_paths__counts_are_those_of_all_rows(client: Any, folder: Path, options: Any) -> None:
    there = fb.engines.dask.count_paths(client, folder, "y", **options)
    assert there.allclose(fb.count(folder, "y", **options))
    assert there.dropped_rows == fb.count(folder, "y").dropped_rows


def test_paths__a_worker_that_is_killed_loses_nothing(client: Any, folder: Path) -> None:
    def kill_one() -> None:
        time.sleep(0.05)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    there = fb.engines.dask.paths(client, [*folder.glob("*")] * 1)
    there.parts = 100
    killer = threading.Thread(target=kill_one)
    killer.start()
    found = fb.count(there, "y", pairs=True)
    killer.join()
    assert found == fb.count(folder, "y", pairs=True)
    client.wait_for_workers(2)


def test_paths__errors_are_those_of_files_read_here(client: Any, folder: Path) -> None:
    there = fb.engines.dask.paths(client, folder)
    with pytest.raises(fb.DataError, match=r"row \d+ of .*\.parquet") as found:
        fb.count(there, "y", domains={"text": ["a"]})
    assert found.value.__cause__ is None
    with pytest.raises(fb.SchemaError, match="no column 'z'"):
        fb.engines.dask.count_paths(client, folder, "z")


def test_paths__predictions_are_those_written_here(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    model = fb.NaiveBayes().fit(folder, "y")
    here = fb.predict_to(model, folder, tmp_path / "here", proba=True)
    there = fb.engines.dask.paths(client, folder)
    assert fb.predict_to(model, there, tmp_path / "there", proba=True) == here
    read = [pd.read_parquet(tmp_path / name) for name in ("here", "there")]
    pd.testing.assert_frame_equal(*read, check_exact=True)
    with pytest.raises(fb.DataError, match="have no order in which parts could be written"):
        fb.predict_to(model, dd.from_pandas(rows(), npartitions=2), tmp_path / "frame")


FRAMES = {
    "as read": lambda frame: frame,
    "objects": lambda frame: frame.astype({"text": object, "y": object}),
    "small numbers": lambda frame: frame.astype({"whole": "Int8", "number": "float32"}),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("partitions", [1, 5, 40])
def test_frames__counts_are_those_of_the_whole(kind: str, partitions: int) -> None:
    """Without a cluster Dask's own threads work."""
    whole = FRAMES[kind](rows())
    frame = dd.from_pandas(whole, npartitions=partitions)
    for options in ({}, {"pairs": True}):
        assert fb.count(frame, "y", **options).allclose(fb.count(whole, "y", **options))
    columns = ["text", "number"]
    assert fb.count(frame, "y", columns=columns).allclose(fb.count(whole, "y", columns=columns))


def test_frames__on_a_cluster(client: Any, folder: Path) -> None:
    frame = dd.read_parquet(folder)
    assert fb.count(frame, "y", pairs=True) == fb.count(folder, "y", pairs=True)
    here, there = fb.TAN().fit(folder, "y"), fb.TAN().fit(frame, "y")
    assert there.statistics_ == here.statistics_
    scored, local = fb.evaluate(here, frame), fb.evaluate(here, folder)
    assert scored.confusion.tolist() == local.confusion.tolist()
    assert scored.auc == pytest.approx(local.auc, rel=1e-12)
    assert scored.log_loss == pytest.approx(local.log_loss, rel=1e-12)


def test_frames__models_are_judged_where_the_rows_are() -> None:
    whole = rows()
    frame = dd.from_pandas(whole, npartitions=5)
    models = ["naive-bayes", "tan", "kdb"]
    for options in ({"validation": "leave_one_out"}, {"folds": "flag"}):
        here = fb.compare(whole, "y", models=models, **options)
        there = fb.compare(frame, "y", models=models, **options)
        for entry in here.entries:
            found, figures = there[entry.name].figures, entry.figures
            assert found.confusion.tolist() == figures.confusion.tolist()
            assert found.log_loss == pytest.approx(figures.log_loss, rel=1e-12)
            assert found.folds.keys() == figures.folds.keys()


def test_frames__categories_may_differ_per_partition() -> None:
    parts = [
        pd.DataFrame({"x": pd.Categorical(list(x)), "y": list("nnyy")}) for x in ("abab", "caca")
    ]
    frame = dd.from_map(lambda i: parts[i], [0, 1], meta=parts[0].astype({"x": "category"})[:0])
    stats = fb.count(frame, "y")
    whole = pd.concat([part.astype({"x": str}) for part in parts])
    assert stats.allclose(fb.count(whole, "y"))


def test_frames__what_does_not_fit_is_named() -> None:
    mixed = pd.DataFrame({"x": pd.Series(["a", 1, "b"], dtype=object), "y": list("nyn")})
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(mixed, npartitions=1)
        with pytest.raises(fb.DataError, match=r"column 'x' is string by its dtype.*astype$"):
            fb.count(frame, "y")
    whole = rows()
    frame = dd.from_pandas(whole, npartitions=2)
    model = fb.NaiveBayes().fit(frame, "y")
    with pytest.raises(fb.DataError, match="workers read its rows"):
        model.decision_function(frame)
    with pytest.raises(fb.DataError, match="name a column"):
        fb.count(frame, whole["y"])
    with pytest.raises(fb.DataError, match="the name of column 0 is no text"):
        fb.count(dd.from_pandas(pd.DataFrame({0: [1], "y": ["a"]}), npartitions=1), "y")


def test_paths__of_a_cluster_without_workers() -> None:
    class Empty:
        def nthreads(self) -> dict[str, int]:
            return {}

    with pytest.raises(ValueError, match="the cluster has no worker"):
        fb.engines.dask.paths(Empty(), "a.parquet")


@pytest.mark.parametrize("name", ["NaiveBayes", "AODE", "LogisticRegression"])
def test_frames__predictions_are_appended(name: str) -> None:
    whole = rows()
    model = getattr(fb, name)().fit(whole, "y")
    frame = dd.from_pandas(whole.drop(columns="y").assign(key=range(N)), npartitions=4)
    labelled, posterior = model.predict(frame), model.predict_proba(frame)
    assert [*labelled.columns] == [*frame.columns, "prediction"]
    assert [*posterior.columns] == [*frame.columns, "proba_no", "proba_yes"]
    found = labelled.compute()
    assert found.dtypes.equals(labelled._meta.dtypes)
    assert found["key"].tolist() == [*range(N)]
    assert found["prediction"].tolist() == model.predict(whole).tolist()
    columns = posterior.compute()[["proba_no", "proba_yes"]].to_numpy()
    np.testing.assert_array_equal(columns, model.predict_proba(whole))
    with pytest.raises(fb.SchemaError, match="has a column 'prediction' already"):
        model.predict(labelled)
    with pytest.raises(fb.SchemaError, match="no column 'text' in the frame"):
        model.predict(frame.drop(columns="text"))


def test_frames__drop_ins_append_but_learn_from_arrays_alone() -> None:
    numbers, labels = rows()[["whole", "flag"]].astype(float), np.arange(N) % 3
    frame = dd.from_pandas(numbers, npartitions=4)
    model = fb.GaussianNB().fit(numbers, labels)
    found = model.predict(frame).compute()["prediction"]
    assert found.tolist() == model.predict(numbers).tolist()
    assert [*model.predict_proba(frame).columns[2:]] == ["proba_0", "proba_1", "proba_2"]
    with pytest.raises(fb.DataError, match="GaussianNB takes arrays as a whole"):
        fb.GaussianNB().fit(frame, labels)
    bare = fb.GaussianNB().fit(numbers.to_numpy(), labels)
    with pytest.raises(fb.SchemaError, match="was fitted without feature names"):
        bare.predict(frame)
