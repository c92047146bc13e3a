"""Whatever reads the rows and whoever learns from them: the same counts, or a refusal that is true.

One table for each kind of learner goes through every reader. Learners are those of the registries:
every model in its default and with each choice of each parameter, every statistic, every kind of
density and of cut points. What refuses rows that come once must need them more than once.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import fastbayes as fb
from fastbayes.data import text
from fastbayes.data.discretize import METHODS
from fastbayes.models.registry import MODELS
from fastbayes.scan.density_spec import KINDS
from fastbayes.statistics.registry import REGISTRY

ROWS = 360
PART = 90  # rows of a row group, a batch, a stripe


def mixed() -> pa.Table:
    """Return columns of every kind that all formats can hold, some values missing."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, ROWS)

    def words(values: list[str], follow: float) -> pa.Array:
        at = np.where(
            rng.random(ROWS) < follow, y % len(values), rng.integers(len(values), size=ROWS)
        )
        return pa.array(np.array(values)[at], mask=rng.random(ROWS) < 0.1)

    number = np.round(rng.normal(size=ROWS) + y, 3)
    # Whole numbers first: text does not say that fractions come.
    late = np.where(np.arange(ROWS) < ROWS // 2, np.round(number * 2), number * 2)
    return pa.table(
        {
            "word": words(["x", "y", "z"], 0.6),
            "quoted": words(['a "b", c', "naïve\nBayes", " ", "ß;\t|"], 0.4),
            "flag": pa.array(rng.random(ROWS) < 0.2 + 0.3 * y),
            "whole": pa.array(rng.integers(0, 6, ROWS) + y),
            "number": pa.array(number, mask=rng.random(ROWS) < 0.1),
            "late": pa.array(late),
            "kind": pa.array(np.array(["k", "l", "m"])[y], mask=rng.random(ROWS) < 0.02),
        }
    )


MIXED = mixed()
TABLES = {
    "mixed": MIXED,
    "words": MIXED.select(["word", "quoted", "flag", "kind"]),
    "numbers": MIXED.select(["whole", "number", "late", "kind"]),
    # Of models of arrays: codes, none missing.
    "codes": pa.table(
        {
            "whole": MIXED["whole"],
            "flag": MIXED["flag"].cast(pa.int64()),
            "kind": MIXED["kind"].fill_null("k"),
        }
    ),
}


# Readers: from a table and a place for files to what is read, in the same order of rows.


def json_lines(table: pa.Table) -> bytes:
    """Return records, whole floats without a point, as JavaScript writes them."""
    records = table.to_pylist()
    for record in records:
        for name, value in record.items():
            if isinstance(value, float) and value.is_integer():
                record[name] = int(value)
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def csv_text(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "t.parquet", row_group_size=PART)
    return folder / "t.parquet"


def parquet_files(table: pa.Table, folder: Path) -> Path:
    for k in range(2):
        half = table.slice(k * ROWS // 2, ROWS // 2)
        pq.write_table(half, folder / f"{k}.parquet", row_group_size=PART)
    return folder


def feather(table: pa.Table, folder: Path) -> Path:
    pa.feather.write_feather(table, folder / "t.feather", chunksize=PART)
    return folder / "t.feather"


def ipc_file(table: pa.Table, folder: Path) -> Path:
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as sink:
        sink.write_table(table, max_chunksize=PART)
    return folder / "t.arrow"


def ipc_stream(table: pa.Table, folder: Path) -> Path:
    with pa.ipc.new_stream(folder / "t.arrows", table.schema) as sink:
        sink.write_table(table, max_chunksize=PART)
    return folder / "t.arrows"


def orc(table: pa.Table, folder: Path) -> Path:
    path = folder / "t.orc"
    with pa.orc.ORCWriter(str(path), stripe_size=1024, batch_size=PART) as writer:
        for first in range(0, ROWS, PART):
            writer.write(table.slice(first, PART))
    assert pa.orc.ORCFile(path).nstripes > 1
    return path


class Batches:
    """Record batches, as often as they are asked for; counts how often they were read."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.readings = table, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=PART)
        self.readings += 1


class Reader(NamedTuple):
    """A way by which rows come.

    once   whether they come only once
    small  bytes of a block of text
    """

    made: Callable[[pa.Table, Path], Any]
    once: bool = False
    small: int | None = None


READERS = {
    "parquet": Reader(parquet),
    "parquet files": Reader(parquet_files),
    "feather": Reader(feather),
    "ipc file": Reader(ipc_file),
    "ipc stream": Reader(ipc_stream),
    "orc": Reader(orc),
    "csv": Reader(lambda t, f: written(f / "t.csv", csv_text(t))),
    "csv in blocks": Reader(lambda t, f: written(f / "t.csv", csv_text(t)), small=2048),
    "csv.gz": Reader(lambda t, f: written(f / "t.csv.gz", gzip.compress(csv_text(t)))),
    "csv.zst": Reader(lambda t, f: written(f / "t.csv.zst", zstd(csv_text(t)))),
    "json": Reader(lambda t, f: written(f / "t.jsonl", json_lines(t))),
    "json in blocks": Reader(lambda t, f: written(f / "t.jsonl", json_lines(t)), small=2048),
    "json.gz": Reader(lambda t, f: written(f / "t.jsonl.gz", gzip.compress(json_lines(t)))),
    "pandas": Reader(lambda t, _: t.to_pandas()),
    "pandas of arrow": Reader(lambda t, _: t.to_pandas(types_mapper=pd.ArrowDtype)),
    "polars": Reader(lambda t, _: pl.DataFrame(t)),
    "polars lazy": Reader(lambda t, _: pl.DataFrame(t).lazy()),
    "duckdb": Reader(lambda t, _: duckdb.from_arrow(t)),
    "dict of lists": Reader(lambda t, _: t.to_pydict()),
    "record batches": Reader(lambda t, _: t.to_batches(max_chunksize=PART)),
    "iterable": Reader(lambda t, _: Batches(t)),
    "dataset": Reader(lambda t, _: ds.dataset(t)),
    "record-batch reader": Reader(lambda t, _: t.to_reader(PART), once=True),
    "generator": Reader(lambda t, _: iter(t.to_batches(max_chunksize=PART)), once=True),
    "scanner": Reader(lambda t, _: ds.dataset(t).scanner(), once=True),
}
# Learners: every model with each of its choices, every statistic.


class Learned(NamedTuple):
    """Statistics or a network, posteriors of the rows, and how close these must be."""

    statistics: Any
    posteriors: Any = None
    close: float = 0.0


class Learner(NamedTuple):
    """What learns from rows.

    learn  from rows and the name of their class column, or their labels
    table  the name of the table that it takes
    choice whether one of its parameters is not the default
    """

    learn: Callable[[Any, Any], Learned]
    table: str = "mixed"
    choice: bool = False


# Parameters that say nothing about what is read; choices that need others besides.
BESIDES = {"unseen", "precision", "ddof", "singular", "criterion", "solver", "init", "penalty"}
TOGETHER: dict[tuple[str, str, Any], dict[str, Any]] = {
    ("NetworkClassifier", "search", "k2"): {"order": ["kind", "word", "quoted", "flag"]},
}
# What depends on folds by the places of rows, which are those of a segment: readers cut rows into
# segments each in its own way.
BY_PLACE = [("SPODE", {"super_parent": "cv"}), ("Calibrated", {"validation": "k_fold"})]
BY_PLACE += [("Blend", {}), ("Blend", {"missing": "category"})]
BY_PLACE += [("Blend", {"missing_columns": "marginalize"})]
# Choices that no parameter declares.
MORE: dict[str, list[dict[str, Any]]] = {
    "NaiveBayes": [{"numeric": kind} for kind in KINDS] + [{"alpha": "loo"}],
    "SPODE": [{"super_parent": how} for how in ("loo", "cv", "cmi", "word")],
    "TAN": [{"discretize": how} for how in METHODS],
    "KDB": [{"k": 0}, {"k": 1}],
    "NetworkClassifier": [{"network": [("kind", "word"), ("kind", "flag"), ("word", "flag")]}],
}
# Of models that do not take columns of every kind.
TAKES = {
    "GaussianBayes": "numbers",
    "CategoricalNB": "codes",
    "MultinomialNB": "codes",
    "ComplementNB": "codes",
    "BernoulliNB": "codes",
    "GaussianNB": "codes",
    # Of a search whole numbers are nodes of their own; what is no node needs cut points.
    "NetworkClassifier": "words",
}


def fit(cls: str, parameters: Mapping[str, Any], rows: Any, y: Any, asked: Any) -> Learned:
    inner = (fb.NaiveBayes(),) if cls == "Calibrated" else ()
    model = MODELS[cls].load()(*inner, **parameters).fit(rows, y)
    learned = model.model_ if cls == "Calibrated" else model
    if (cls, parameters) in BY_PLACE:
        return Learned(learned.statistics_)
    # What is searched for is found as closely as the search is asked to end.
    close = max(1e-4, float(model.tol or 0.0)) if hasattr(model, "tol") else 1e-9
    return Learned(learned.statistics_, model.predict_proba(asked), close)


def network(learn: Callable[[Any], Any], rows: Any, y: Any, asked: Any) -> Learned:
    return Learned(learn(rows))


def count(options: Mapping[str, Any], rows: Any, y: Any, asked: Any) -> Learned:
    return Learned(fb.count(rows, y, **options))


def models() -> Iterator[tuple[str, Learner]]:
    edges = fb.BayesianNetwork.from_edges([("kind", "word"), ("word", "flag"), ("kind", "quoted")])
    learn, filled = fb.BayesianNetwork.learn, partial(edges.fit, missing="em")
    yield "BayesianNetwork.learn()", Learner(partial(network, learn), "words")
    yield "BayesianNetwork.fit('em')", Learner(partial(network, filled), "words", choice=True)
    for cls, entry in MODELS.items():
        declared = entry.load()._declared
        variants: list[dict[str, Any]] = [{}, *(dict(c.parameters) for c in entry.candidates)]
        variants += [
            {name: choice} | TOGETHER.get((cls, name, choice), {})
            for name, parameter in declared.items()
            for choice in parameter.choices
            if name not in BESIDES and choice != parameter.default
        ]
        for parameters in [*variants, *MORE.get(cls, [])]:
            shown = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
            learn = partial(fit, cls, parameters)
            yield f"{cls}({shown})", Learner(learn, TAKES.get(cls, "mixed"), bool(parameters))


# How each statistic is asked for.
ASKED: dict[str, dict[str, Any]] = {
    "values": {},
    "moments": {},
    "pairs": {"pairs": True},
    "triples": {"triples": True},
    "scatter": {"scatter": True},
    "cell_scatter": {"cell_scatter": True},
    "sketches": {"numeric": "kde"},
    "families": {"families": [("word", "flag", "number"), ("late",)]},
    "cells": {"cells": ["word", "flag"]},
}


def counts() -> Iterator[tuple[str, Learner]]:
    plain = [ASKED.get(name, {"statistics": [name]}) for name in REGISTRY]
    more: list[dict[str, Any]] = [{"numeric": kind} for kind in KINDS]
    more += [{"pairs": True, "discretize": how} for how in METHODS]
    more += [{"pairs": True, "discretize": {"late": [0.0], "number": [1.0], "whole": [2.0]}}]
    more += [{"missing": "category"}, {"categorical": ["word"]}, {"folds": "flag"}]
    more += [{"domains": {"whole": list(range(12)), "word": ["x", "y", "z", ""]}}]
    more += [{"sample_weight": "whole"}, {"pairs": True, "memory_limit": 1 << 27}]
    for options in [*plain, *more]:
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
        learner = Learner(partial(count, options), choice=options not in plain)
        yield f"count({shown})", learner


LEARNERS = dict([*models(), *counts()])


# What was learned is compared as it is saved.


def contents(header: Any) -> Any:
    """Return a header without names of files, and of columns, which arrays do not have."""
    if not isinstance(header, dict):
        return header
    away = ("provenance", "names")
    return {key: contents(value) for key, value in header.items() if key not in away}


def without_ledger(arrays: Any) -> Any:
    return {name: array for name, array in arrays.items() if name.split(".")[-1] != "ledger"}


def same_statistics(found: Any, wanted: Any) -> None:
    (header, arrays), (wanted_header, wanted_arrays) = found.state(), wanted.state()
    assert contents(header) == contents(wanted_header)
    arrays, wanted_arrays = (without_ledger(a) for a in (arrays, wanted_arrays))
    assert arrays.keys() == wanted_arrays.keys()
    for name, array in arrays.items():
        other = wanted_arrays[name]
        if isinstance(array, np.ndarray):
            assert array.dtype == other.dtype, name
            assert array.shape == other.shape, name
            scale = (
                np.abs(other[np.isfinite(other)]).max(initial=1) if array.dtype.kind == "f" else 0
            )
            np.testing.assert_allclose(array, other, rtol=0, atol=1e-12 * scale, err_msg=name)
        else:
            assert array.equals(other), name


def same(found: Learned, wanted: Learned) -> None:
    same_statistics(found.statistics, wanted.statistics)
    if wanted.posteriors is not None:
        np.testing.assert_allclose(found.posteriors, wanted.posteriors, rtol=wanted.close)


def features(table: pa.Table) -> Any:
    """Return what is asked about, as models of arrays take it, too."""
    return table.drop_columns("kind").to_pandas()


@cache
def of_table(learner: str) -> Learned:
    """Return what is learned from the table in memory."""
    learn, table, _ = LEARNERS[learner]
    return learn(TABLES[table], "kind", features(TABLES[table]))


# Models of arrays take arrays and frames.
ARRAYS = r"takes arrays and data frames, not a|names a column, but X is a \w+, not a data frame"
FRAMES = {"pandas", "pandas of arrow", "polars", "duckdb", "record-batch reader"}


def readings(learner: str) -> int:
    """Return how often a learner reads rows that it may read as often as it likes."""
    learn, table, _ = LEARNERS[learner]
    rows = Batches(TABLES[table])
    learn(rows, "kind", features(TABLES[table]))
    return rows.readings


@pytest.fixture(autouse=True)
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be compiled: what is held against each other took other ways to the kernels."""
    monkeypatch.setenv("FASTBAYES_KERNELS", "never")


# Of a learner that differs from the default by a choice, few readers are enough every day.
FEW = {"parquet", "json in blocks", "generator"}
PAIRS = [
    pytest.param(
        *(learner, reader),
        marks=[pytest.mark.slow] if LEARNERS[learner].choice and reader not in FEW else [],
    )
    for learner in LEARNERS
    for reader in READERS
]


@pytest.mark.parametrize(("learner", "reader"), PAIRS)
def test_same_counts_or_a_true_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, learner: str, reader: str
) -> None:
    made, once, small = READERS[reader]
    learn, table, _ = LEARNERS[learner]
    if small is not None:
        monkeypatch.setattr(text, "BLOCK_BYTES", small)
        monkeypatch.setattr(text, "LEAST_INFER_BYTES", small)
    rows = made(TABLES[table], tmp_path)
    try:
        found = learn(rows, "kind", features(TABLES[table]))
    except (fb.SchemaError, fb.DataError) as error:
        if once and "can be read only once" in str(error):
            assert readings(learner) > 1, "it reads rows only once, but says otherwise"
            return
        if table == "codes" and reader not in FRAMES and re.search(ARRAYS, str(error)):
            return
        raise
    same(found, of_table(learner))


ARRAYS_MADE: dict[str, Callable[[pd.DataFrame], Any]] = {
    "array": lambda frame: frame.to_numpy(),
    "array of columns": lambda frame: np.asfortranarray(frame.to_numpy()),
    "list of rows": lambda frame: frame.to_numpy().tolist(),
}
# An array has numbers or texts.
HOLDS = {
    "mixed": TABLES["numbers"],
    "numbers": TABLES["numbers"],
    "words": TABLES["words"].drop_columns("flag"),
    "codes": TABLES["codes"],
}
UNNAMED = {
    name: learner
    for name, learner in LEARNERS.items()
    if not learner.choice and not re.search("|".join(MIXED.column_names), name)
}


@pytest.mark.parametrize("made", ARRAYS_MADE)
@pytest.mark.parametrize("learner", UNNAMED)
def test_arrays_count_as_tables_do(learner: str, made: str) -> None:
    learn, table, _ = UNNAMED[learner]
    named, y = features(HOLDS[table]), HOLDS[table]["kind"]
    array = ARRAYS_MADE[made](named)
    named.columns = [f"x{j}" for j in range(named.shape[1])]
    same(learn(array, y, array), learn(named, y, named))


NAMED = [name for name, known in LEARNERS.items() if not known.choice and known.table != "codes"]


@pytest.mark.parametrize("learner", NAMED)
def test_structured_arrays_count_as_tables_do(learner: str) -> None:
    learn, table, _ = LEARNERS[learner]
    rows = TABLES[table].to_pandas()
    texts = [name for name in rows if pa.types.is_string(TABLES[table].schema.field(name).type)]
    rows[texts] = rows[texts].fillna("")  # numpy knows no missing text
    array = rows.to_records(index=False, column_dtypes=dict.fromkeys(texts, "U20"))
    asked = rows.drop(columns="kind")
    same(learn(array, "kind", asked), learn(pa.table(rows), "kind", asked))
