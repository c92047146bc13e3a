"""Models and statistics in files: what comes back, and what is refused."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from making import random_table

import fastbayes as fb
from fastbayes.core import files
from fastbayes.core.errors import DataError, FastBayesError, FileFormatError, NotFittedError
from fastbayes.models.estimator.store import from_bytes, to_bytes
from fastbayes.models.registry import MODELS

TABLE = random_table(400)
X = TABLE.drop_columns(["y", "w"])
RNG = np.random.default_rng(0)
CELLS = RNG.integers(0, 4, (300, 5))
LABELS = {
    "str": np.array(["no", "yes", "é"])[RNG.integers(0, 3, 300)],
    "int": RNG.integers(-2, 3, 300),
    "bool": RNG.random(300) < 0.5,
    "float": RNG.integers(0, 2, 300) / 1.0,
}


def naive_bayes(**options: Any) -> fb.NaiveBayes:
    return fb.NaiveBayes(**{"categorical": ["code"], **options}).fit(TABLE.drop_columns("w"), "y")


VARIANTS: dict[str, Callable[[], Any]] = {
    "plain": naive_bayes,
    "loo": lambda: naive_bayes(alpha="loo"),
    "prior": lambda: naive_bayes(class_prior=np.array([0.2, 0.3, 0.5]), alpha=0),
    "uniform": lambda: naive_bayes(class_prior="uniform", ddof=1, variance="shared"),
    "numpy parameters": lambda: naive_bayes(alpha=np.float32(0.5), ddof=np.int8(1)),
    "category": lambda: naive_bayes(missing="category", unseen="smooth", precision="fast"),
    "domains": lambda: naive_bayes(
        domains={"text": ["", "p", "q", "r", "é", "z"], "y": list("abcd")}
    ),
    "arrow domains": lambda: naive_bayes(domains={"text": pa.array(["", "p", "q", "r", "é"])}),
    "indices": lambda: naive_bayes(categorical=(2, "number"), threads=1, memory_limit=10**9),
    "weights": lambda: fb.NaiveBayes(categorical=["code"]).fit(TABLE, "y", sample_weight="w"),
    "batches": lambda: naive_bayes().partial_fit(TABLE.drop_columns("w").slice(5, 50), "y"),
    "counted": lambda: fb.NaiveBayes().fit_statistics(
        fb.count(TABLE.drop_columns("w"), "y", categorical=["code"])
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_naive_bayes__comes_back(name: str, tmp_path: Path) -> None:
    model = VARIANTS[name]()
    path = tmp_path / "model.fb"
    model.save(path)
    again = fb.load(path)
    assert type(again) is fb.NaiveBayes
    assert again.statistics_ == model.statistics_
    assert again.schema_ == model.schema_
    assert again.statistics_.provenance == model.statistics_.provenance
    assert again.classes_.dtype == model.classes_.dtype
    assert list(again.feature_names_in_) == list(model.feature_names_in_)
    assert again.n_features_in_ == model.n_features_in_
    for method in ("predict", "predict_proba", "log_joint"):
        assert getattr(again, method)(X).tobytes() == getattr(model, method)(X).tobytes()
    again.save(tmp_path / "again.fb")
    assert fb.load(tmp_path / "again.fb").statistics_ == model.statistics_
    assert again.get_params() == fb.load(tmp_path / "again.fb").get_params()


def test_naive_bayes__goes_on_learning(tmp_path: Path) -> None:
    rows = TABLE.drop_columns("w")
    model = fb.NaiveBayes(categorical=["code"]).fit(rows.slice(0, 200), "y")
    model.save(tmp_path / "half.fb")
    again = fb.load(tmp_path / "half.fb").partial_fit(rows.slice(200), "y")
    assert again.statistics_ == model.partial_fit(rows.slice(200), "y").statistics_
    again.set_params(alpha=3.5).fit_statistics(again.statistics_)
    direct = fb.NaiveBayes(alpha=3.5).fit_statistics(model.statistics_)
    assert again.predict_proba(X).tobytes() == direct.predict_proba(X).tobytes()


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model__on_arrays(name: str, kind: str, tmp_path: Path) -> None:
    model = getattr(fb, name)().fit(CELLS, LABELS[kind])
    fb.save(model, tmp_path / "model.fb")
    again = fb.load(tmp_path / "model.fb")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()
    assert hasattr(again, "feature_names_in_") == hasattr(model, "feature_names_in_")
    assert again.predict(CELLS).tolist() == model.predict(CELLS).tolist()
    assert again.predict_proba(CELLS).tobytes() == model.predict_proba(CELLS).tobytes()
    if not hasattr(model, "partial_fit"):  # it needs all rows at once
        return
    again.partial_fit(CELLS, LABELS[kind])
    model.partial_fit(CELLS, LABELS[kind])
    assert again.predict_proba(CELLS).tobytes() == model.predict_proba(CELLS).tobytes()


def test_statistics__come_back(tmp_path: Path) -> None:
    for i, options in enumerate(
        [{}, {"sample_weight": "w"}, {"moments": False}, {"missing": "category"}]
    ):
        stats = fb.count(TABLE, "y", categorical=["code"], **options)
        stats.save(tmp_path / f"{i}.fbs")
        for again in (fb.Statistics.load(tmp_path / f"{i}.fbs"), fb.load(tmp_path / f"{i}.fbs")):
            assert again == stats
            assert (again.dropped_rows, again.provenance) == (stats.dropped_rows, stats.provenance)
            assert again.schema == stats.schema
            assert (again + stats - stats).allclose(stats, 1e-9)


def test_statistics__of_nothing_and_of_odd_values(tmp_path: Path) -> None:
    tables = [
        pa.table({"x": pa.nulls(2), "y": ["a", "b"]}),
        pa.table({"x": pa.array([2**64 - 1, 0], pa.uint64()), "y": [True, False]}),
        pa.table({"x": [float("inf"), -1e-300], "y": [0.5, 1.5]}),
        pa.table({"\N{GRINNING FACE} \n": ["", "\x00"], "y": ["", "é"]}),
        pa.table({"x": pa.array([], pa.string()), "y": pa.array([], pa.string())}),
    ]
    for i, table in enumerate(tables):
        names = table.column_names[:1] if i != 2 else ["x"]
        for target in ("y", None):
            stats = fb.count(table, target, categorical=names)
            stats.save(tmp_path / f"{i}{target}.fbs")
            assert fb.load(tmp_path / f"{i}{target}.fbs") == stats


EVERY_PART = {
    "of folds": {"folds": 3, "sample_weight": "w"},
    "binned": {"pairs": True, "triples": True, "families": [["code"]]},
    "as numbers": {"scatter": True, "cells": True, "cell_scatter": True},
    "sketched": {"numeric": "auto"},
}


@pytest.mark.parametrize("options", EVERY_PART.values(), ids=EVERY_PART)
def test_statistics__travel_as_the_bytes_of_their_file(
    options: dict[str, Any], tmp_path: Path
) -> None:
    stats = fb.count(TABLE, "y", categorical=["code"], **options)
    stats.save(tmp_path / "s.fbs")
    for data in (stats.to_bytes(), (tmp_path / "s.fbs").read_bytes()):
        for given in (data, bytearray(data), memoryview(data), pa.py_buffer(data)):
            again = fb.Statistics.from_bytes(given)
            assert again == stats
            assert again.folds == stats.folds
            assert (again.dropped_rows, again.provenance) == (stats.dropped_rows, stats.provenance)


def test_bytes_that_are_not_of_statistics_are_refused() -> None:
    data = bytearray(fb.count(TABLE, "y", categorical=["code"]).to_bytes())
    with pytest.raises(FileFormatError, match=r"^10 bytes: not a model or statistics file"):
        fb.Statistics.from_bytes(data[:10])
    data[len(data) // 2] ^= 1
    with pytest.raises(FileFormatError, match=rf"^{len(data):,} bytes: damaged"):
        fb.Statistics.from_bytes(data)
    with pytest.raises(TypeError, match="bytes-like"):
        fb.Statistics.from_bytes("s.fbs")  # type: ignore[arg-type]


def test_bytes_of_a_model_are_not_statistics(tmp_path: Path) -> None:
    naive_bayes().save(tmp_path / "model.fb")
    with pytest.raises(FileFormatError, match="holds a model, not statistics"):
        fb.Statistics.from_bytes((tmp_path / "model.fb").read_bytes())


def test_files_are_not_replaced_unless_asked(tmp_path: Path) -> None:
    model, path = naive_bayes(), tmp_path / "model.fb"
    model.save(path)
    before = path.read_bytes()
    for again in (model, model.statistics_):
        with pytest.raises(DataError, match=r"model\.fb.*force"):
            again.save(path)
    assert path.read_bytes() == before
    model.statistics_.save(path, force=True)
    assert fb.load(path) == model.statistics_
    with pytest.raises(DataError, match=r"directory"):
        model.save(tmp_path / "nowhere" / "model.fb")
    assert [p.name for p in tmp_path.iterdir()] == ["model.fb"]


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises((NotFittedError, ValueError), match="not fitted"):
        fb.NaiveBayes().save(tmp_path / "model.fb")

    class Other(fb.NaiveBayes):
        pass

    other = Other(categorical=["code"]).fit(TABLE.drop_columns("w"), "y")
    with pytest.raises(FastBayesError, match="Other has no file format"):
        other.save(tmp_path / "model.fb")
    assert not list(tmp_path.iterdir())


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    naive_bayes().save(tmp_path / "model.fb")
    with pytest.raises(FileFormatError, match=r"model\.fb: holds a model, not statistics"):
        fb.Statistics.load(tmp_path / "model.fb")
    header, arrays = files.read(tmp_path / "model.fb")
    files.write(tmp_path / "later.fb", {**header, "class": "DeepBayes"}, arrays)
    with pytest.raises(FileFormatError, match="holds 'DeepBayes', which this version"):
        fb.load(tmp_path / "later.fb")
    files.write(tmp_path / "class.fb", {**header, "class": ["NaiveBayes"]}, arrays)
    with pytest.raises(FileFormatError, match=r"class\.fb"):
        fb.load(tmp_path / "class.fb")
    for content in (b"", b"ARROW1", b"\x80\x04K\x01."):
        (tmp_path / "junk.fb").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"junk\.fb"):
            fb.load(tmp_path / "junk.fb")
    with pytest.raises(FileFormatError, match=r"none\.fb"):
        fb.load(tmp_path / "none.fb")


# Damaged bytes


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("blobs")
    small = pa.table({"x": ["p", "q", None], "n": [1.0, None, 2.0], "y": ["a", "b", "a"]})
    model = fb.NaiveBayes(class_prior=[0.5, 0.5], domains={"x": ["p", "q", "r"]}).fit(small, "y")
    model.save(folder / "model.fb")
    model.statistics_.save(folder / "stats.fbs")
    fb.GaussianNB().fit(CELLS[:, :2], LABELS["str"]).save(folder / "dropin.fb")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same_content(a: Any, b: Any) -> bool:
    if isinstance(a, fb.Statistics):
        return a == b and a.provenance == b.provenance
    state, other = a.state(), b.state()
    return (
        type(a) is type(b)
        and a.get_params() == b.get_params()
        and state[0] == other[0]
        and all(files_same(v, other[1][k]) for k, v in state[1].items())
    )


def files_same(a: Any, b: Any) -> bool:
    return a.equals(b) if isinstance(a, pa.Array) else a.tobytes() == b.tobytes()


def spoilt(blob: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield damaged copies: bits and bytes changed, stretches lost, repeated, moved, zeroed."""
    n = len(blob)
    for _ in range(80):
        at = rng.randrange(n)
        yield blob[:at] + bytes([blob[at] ^ 1 << rng.randrange(8)]) + blob[at + 1 :]
    for _ in range(80):
        changed = bytearray(blob)
        for _ in range(rng.randint(2, 20)):
            changed[rng.randrange(n)] = rng.randrange(256)
        yield bytes(changed)
    for _ in range(60):
        a, b = sorted(rng.randrange(n) for _ in range(2))
        yield rng.choice(
            [
                blob[:a] + blob[b:],
                blob[:b] + blob[a:],
                blob[:a] + bytes(b - a) + blob[b:],
                blob[b:] + blob[:b],
                blob + blob[a:b],
                rng.randbytes(b - a) + blob[a:],
            ]
        )


@pytest.mark.parametrize("step", [53, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["model.fb", "stats.fbs", "dropin.fb"])
def test_damaged_bytes__are_refused_or_change_nothing(
    name: str, step: int, blobs: dict[str, bytes], tmp_path: Path
) -> None:
    blob, path = blobs[name], tmp_path / name
    path.write_bytes(blob)
    whole = fb.load(path)
    cuts = [blob[:i] for i in (*range(0, len(blob), step), *range(len(blob) - 16, len(blob)))]
    refused = 0
    for damaged in (*cuts, *spoilt(blob, random.Random(0))):
        path.write_bytes(damaged)
        try:
            again = fb.load(path)
        except FileFormatError as error:
            assert name in str(error)
            assert "\n" not in str(error)
            refused += 1
        else:
            assert same_content(again, whole)
    assert refused >= len(cuts)


# Whole files whose content was never written: right checksum, wrong inside


JUNK: list[Any] = [
    None,
    -1,
    0,
    2**70,
    1e100,
    "x",
    "",
    [],
    {},
    [[]],
    ["x"],
    {"x": 1},
    True,
    [None] * 3,
]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, list):
        items = enumerate(node)
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def altered_header(header: Any, where: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(header)
    node = result
    for key in where[:-1]:
        node = node[key]
    if value is ...:
        del node[where[-1]]
    else:
        node[where[-1]] = value
    return result


def altered_arrays(arrays: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    result = dict(arrays)
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    match rng.randrange(6):
        case 0:
            del result[name]
        case 1:
            result[name] = result[rng.choice(sorted(arrays))]
        case 2:
            result[name] = (
                pa.concat_arrays([array] * 2) if isinstance(array, pa.Array) else array[:-1]
            )
        case 3:
            result[name] = array.slice(1) if isinstance(array, pa.Array) else array[..., None]
        case 4:
            result[name] = (
                array.take(pa.array(range(len(array))[::-1]))
                if isinstance(array, pa.Array)
                else array - np.asarray(1, array.dtype)
            )
        case 5:
            result[name] = pa.array([True]) if isinstance(array, pa.Array) else array.astype("f4")
    return result


def usable(path: Path) -> bool:
    """Load and apply; a clear refusal is right, any other exception is not."""
    try:
        loaded = fb.load(path)
        if isinstance(loaded, fb.Statistics):
            assert (loaded + loaded).n_rows == 2 * loaded.n_rows
            loaded.to_table()
        else:
            rows = loaded.schema_.names if hasattr(loaded, "schema_") else None
            data = CELLS[:, :2] if rows is None else loaded.sample(3, seed=0)
            data = data if rows is None else data.select(list(rows))
            proba = loaded.predict_proba(data)
            np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-9)
    except FileFormatError as error:
        assert path.name in str(error)
        return False
    except ValueError as error:  # parameters are checked where they are used
        assert re.match(r"\w+=.*: use", str(error))
        return False
    return True


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", ["model.fb", "stats.fbs", "dropin.fb"])
def test_forged_header__is_refused_or_usable(
    name: str, blobs: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(blobs[name])
    header, arrays = files.read(path)
    outcomes = []
    for where in places(header):
        for value in (..., *JUNK):
            try:
                files.write(path, altered_header(header, where, value), arrays, force=True)
            except TypeError:  # nothing that a file can hold
                continue
            try:
                outcomes.append(usable(path))
            except Exception as error:
                raise AssertionError(f"{where} = {value!r}: {error!r}") from error
    assert not all(outcomes)


@pytest.mark.parametrize("name", ["model.fb", "stats.fbs", "dropin.fb"])
def test_forged_arrays__are_refused_or_usable(
    name: str, blobs: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(blobs[name])
    header, arrays = files.read(path)
    rng = random.Random(1)
    outcomes = []
    for _ in range(120):
        changed = altered_arrays(arrays, rng)
        files.write(path, header, changed, force=True)
        try:
            outcomes.append(usable(path))
        except Exception as error:
            found = {k: v for k, v in changed.items() if v is not arrays.get(k)}
            raise AssertionError(f"{set(arrays) - set(changed)} {found}: {error!r}") from error
    assert not all(outcomes)


def test_save__takes_statistics_too(tmp_path: Path) -> None:
    stats = fb.count({"x": ["a", "b"], "y": ["p", "q"]}, "y")
    fb.save(stats, tmp_path / "s.fbs")
    assert fb.load(tmp_path / "s.fbs") == stats == fb.Statistics.load(tmp_path / "s.fbs")


def test_models_travel_as_bytes(tmp_path: Path) -> None:
    model = naive_bayes()
    model.save(tmp_path / "m.fb")
    for data in (to_bytes(model), (tmp_path / "m.fb").read_bytes()):
        again = from_bytes(data)
        assert again.statistics_ == model.statistics_
        assert (again.predict_proba(X) == model.predict_proba(X)).all()
    with pytest.raises(FileFormatError, match=r"^[\d,]+ bytes: not a model"):
        from_bytes(data[:-200])
