"""Tables, weights and parameters as hypothesis draws them, sensible and not."""

from __future__ import annotations

import math
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from oracles.naive_bayes import NaiveBayes as Exact

import fastbayes as fb
from fastbayes.core.errors import FastBayesError
from fastbayes.models.registry import MODELS
from stress.tables import Rng, choose_blocks, choose_kernels

ABOUT = (
    "random frames, weights and parameters: only documented errors leave; probabilities sum to 1, "
    "counts add, threads, kernels, batches and files change nothing, small naive Bayes is exact"
)
BATCH = 10
SECONDS = 300.0
EXAMPLES = 20
# fastbayes' own, and those of a parameter, which are Python's.
DOCUMENTED = (FastBayesError, ValueError, TypeError)
MODEL_NAMES = sorted(MODELS)
SOME_MODELS = [
    *("NaiveBayes", "TAN", "AODE", "KDB", "JointBayes", "GaussianBayes", "LogisticRegression"),
]

CELLS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["a", "b", "c", "", "é", None]),
    "number": st.none() | st.integers(-40, 40).map(lambda k: k / 8),
    "wide": st.none() | st.floats(allow_infinity=False),
    "any number": st.floats() | st.none(),
    "whole": st.integers(-3, 3) | st.none(),
    "flag": st.booleans() | st.none(),
    "any text": st.text(max_size=3) | st.none(),
    "anything": st.one_of(
        st.none(), st.integers(), st.floats(), st.text(max_size=2), st.binary(max_size=2),
        st.dates(), st.booleans(), st.lists(st.integers(), max_size=2), st.complex_numbers(),
    ),
}  # fmt: skip
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "alpha": st.sampled_from(
        [0, 0.5, 1, 1e-300, 1e300, "loo", -1, math.nan, math.inf, None, "x", 10**400]
    ),
    "class_prior": st.sampled_from([None, "uniform", "empirical", [0.5, 0.5], [1], "x", {"p": 1}]),
    "missing": st.sampled_from(["marginalize", "category", "x", None]),
    "unseen": st.sampled_from(["ignore", "smooth", "error", 3]),
    "numeric": st.sampled_from(
        ["gaussian", "student", "kde", "mdl", "histogram", "auto", "x", None, {}]
    ),
    "threads": st.sampled_from([1, 2, None, 0, -1, "x", 2.5, True]),
    "memory_limit": st.sampled_from([None, 10**9, 1, 0, -1, "x", math.inf]),
    "domains": st.sampled_from([None, {}, {"c0": ["a", "b", "c"]}, {"no": []}, 3, {"c0": 1}]),
    "categorical": st.sampled_from([None, [], ["c0"], ["no"], [0], 3, "c0"]),
}


def case(rng: Rng, folder: Path) -> str:
    """Run some examples of one law."""
    choose_kernels(rng)
    choose_blocks(rng)
    law = LAWS[int(rng.integers(len(LAWS)))]
    written = law in (files_change_nothing, shares_change_nothing)
    check = partial(law, folder=folder) if written else law
    profile = settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        phases=[Phase.generate],  # to make an example small may take minutes
    )
    seed(int(rng.integers(2**32)))(profile(given(data=st.data())(wrapped(check))))()
    return law.__name__.replace("_", " ")


def wrapped(law: Any) -> Any:
    def check(data: st.DataObject) -> None:
        with np.errstate(all="ignore"):
            law(data)

    return check


def draw_table(data: st.DataObject, kinds: list[str], least: int = 1) -> pa.Table:
    """Draw a table of a class `y` and columns whose cells are of these kinds."""
    n = data.draw(st.integers(least, 12))
    columns: dict[str, Any] = {}
    for i in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(kinds))
        cells = data.draw(st.lists(CELLS[kind], min_size=n, max_size=n))
        own = {"text": pa.string(), "number": pa.float64(), "whole": pa.int64(), "flag": pa.bool_()}
        columns[f"c{i}"] = pa.array(cells, own.get(kind))
    labels = data.draw(st.lists(st.sampled_from(["p", "q", "r"]), min_size=n, max_size=n))
    # The same rows again and again fill blocks.
    times = data.draw(st.sampled_from([1, 1, 1, 20]))
    return pa.concat_tables([pa.table({**columns, "y": labels})] * times).combine_chunks()


NUMERIC = (pa.float64(), pa.int64())
PLAIN = ["text", "number", "whole", "flag"]


def only_documented_errors_leave(data: st.DataObject) -> None:
    """Fit any model to anything with any parameters, and ask it."""
    n = data.draw(st.integers(0, 8))
    kinds = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=0, max_size=4))
    frame = pd.DataFrame(
        {f"c{i}": pd.Series(data.draw(st.lists(CELLS[k], min_size=n, max_size=n)), dtype=object)
         for i, k in enumerate(kinds)}
    )  # fmt: skip
    label = st.sampled_from(["p", "q", None]) | CELLS["whole"] | CELLS["anything"]
    labels = data.draw(st.lists(label, min_size=n, max_size=n))
    weight = st.floats() | st.integers(0, 3)
    weights = data.draw(st.none() | st.lists(weight, min_size=n, max_size=n))
    cls = getattr(fb, data.draw(st.sampled_from(MODEL_NAMES)))
    taken = [p for p in PARAMETERS if p in getattr(cls, "_declared", {})]
    chosen = data.draw(st.lists(st.sampled_from(taken), unique=True, max_size=2)) if taken else []
    given_ = {p: data.draw(PARAMETERS[p]) for p in chosen}
    try:
        model = cls(**given_).fit(frame, labels, sample_weight=weights)
    except DOCUMENTED:
        return
    for ask in ("predict_proba", "predict", "log_joint", "predict_log_proba", "decision_function"):
        try:
            answer = getattr(model, ask)(frame)
        except DOCUMENTED:
            continue
        if ask == "predict_proba":
            check_posterior(answer)


def check_posterior(posterior: Any) -> None:
    """Raise unless each row is a distribution."""
    assert np.isfinite(posterior).all(), posterior
    assert (posterior >= 0).all(), posterior
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-9)


def posteriors_are_distributions(data: st.DataObject) -> None:
    """A sensible table and the defaults: the model is made, or the data are named."""
    table = draw_table(data, PLAIN, 2)
    cls = getattr(fb, data.draw(st.sampled_from(SOME_MODELS)))
    try:
        model = cls().fit(table, "y")
    except FastBayesError:
        return
    posterior = model.predict_proba(table)
    check_posterior(posterior)
    # None is likelier than the one predicted; where several are equal, scores may tell them apart.
    at = np.searchsorted(model.classes_, model.predict(table))
    chosen = posterior[np.arange(len(posterior)), at]
    np.testing.assert_allclose(chosen, posterior.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(table)), posterior, atol=1e-12)


def counts_add(data: st.DataObject) -> None:
    """The statistics of all rows are those of the parts, added; a part can be taken away again."""
    table = draw_table(data, PLAIN, 4)
    pairs = data.draw(st.booleans())
    cut = data.draw(st.integers(1, len(table) - 1))
    one, other = table.slice(0, cut), table.slice(cut)
    options: dict[str, Any] = {"pairs": True, "discretize": {
        n: [-1.0, 0.0, 1.5] for n in table.column_names if table[n].type in NUMERIC
    }} if pairs else {}  # fmt: skip
    if any(table[name].null_count == len(table) for name in table.column_names):
        return
    try:
        a, b = (fb.count(part, "y", **options) for part in (one, other))
        whole = fb.count(table, "y", **options)
        together = a + b
    except FastBayesError:
        return
    assert together.allclose(whole, rtol=1e-9), (together, whole)
    assert (b + a).allclose(whole, rtol=1e-9)
    try:
        left = together - b
    except fb.DataError:  # of numbers too few digits are left
        return
    assert left.n_rows == a.n_rows
    assert (left.values.class_counts[: len(a.values.class_counts)] >= 0).all()
    assert left + b == together or (left + b).allclose(together, rtol=1e-5)
    assert together.n_rows == len(table)


def counts_are_those_of_a_loop(data: st.DataObject) -> None:
    """Cells counted one at a time, and moments by numpy."""
    from making import cells, cells_of

    table = draw_table(data, PLAIN)
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(table), max_size=len(table)))
    if not any(weights):
        return
    weighted = table.append_column("w", pa.array(weights, pa.float64()))
    names = [n for n in table.column_names if table[n].type != pa.float64()]
    stats = fb.count(weighted.select([*names, "w"]), "y", sample_weight="w", categorical=[
        n for n in names if n != "y"
    ])  # fmt: skip
    found = cells(stats)
    assert found == cells_of(weighted.select([*names, "w"]), "y", "w")


def threads_kernels_and_batches_change_nothing(data: st.DataObject) -> None:
    """The same rows, counted and scored in other ways."""
    table = draw_table(data, PLAIN)
    size = data.draw(st.integers(1, 5))
    try:
        first = fb.count(table, "y", threads=1)
    except FastBayesError:
        return
    assert fb.count(table, "y", threads=2) == first
    stream = pa.Table.from_batches(table.to_batches(max_chunksize=size))
    assert fb.count(stream, "y", threads=2).allclose(first, rtol=1e-12)
    kept = os.environ["FASTBAYES_KERNELS"]
    model = fb.NaiveBayes().fit_statistics(first)
    proba = model.predict_proba(table)
    os.environ["FASTBAYES_KERNELS"] = "never" if kept == "always" else "always"
    try:
        other = fb.count(table, "y")
        assert other.allclose(first, rtol=1e-12)
        np.testing.assert_allclose(model.predict_proba(table), proba, atol=1e-12)
    finally:
        os.environ["FASTBAYES_KERNELS"] = kept


def naive_bayes_is_exact(data: st.DataObject) -> None:
    """Posteriors in exact fractions."""
    table = draw_table(data, ["text", "number"], 4)
    numeric = [n for n in table.column_names if table[n].type == pa.float64()]
    rows = table.drop_columns("y").to_pylist()
    alpha = data.draw(st.sampled_from([0.5, 1.0, 2.0]))
    exact = Exact(alpha=alpha, numeric=numeric, var_floor="within")
    exact.fit(rows, table["y"].to_pylist())
    for name in numeric:  # a class without a spread is another matter
        for c in exact.classes:
            seen = {r[name] for r, y in zip(rows, table["y"].to_pylist(), strict=True) if y == c}
            if len(seen - {None}) < 2:
                return
    model = fb.NaiveBayes(alpha=alpha).fit(table, "y")
    expected = [exact.posterior(row) for row in rows]
    np.testing.assert_allclose(model.predict_proba(table), expected, rtol=1e-7, atol=1e-9)


def files_change_nothing(data: st.DataObject, folder: Path) -> None:
    """A model that was saved and loaded answers the same bits."""
    table = draw_table(data, PLAIN, 2)
    try:
        model = fb.NaiveBayes().fit(table, "y")
    except FastBayesError:
        return
    model.save(folder / "m.fb", force=True)
    again = fb.load(folder / "m.fb")
    assert again.predict_proba(table).tobytes() == model.predict_proba(table).tobytes()
    assert again.statistics_ == model.statistics_


def shipped(f: Any, items: Any) -> Any:
    """Map as an engine does, whose workers get bytes."""
    for item in items:
        yield pickle.loads(pickle.dumps(f))(pickle.loads(pickle.dumps(item)))


def shares_change_nothing(data: st.DataObject, folder: Path) -> None:
    """What workers count of files, each of a share, is what is counted of all."""
    table = draw_table(data, PLAIN, 2)
    options: dict[str, Any] = data.draw(
        st.sampled_from(
            [{}, {"pairs": True}, {"numeric": "mdl"}, {"cells": True}, {"scatter": True}]
        )
    )
    if data.draw(st.booleans()):
        options = {**options, "sample_weight": "w"}
        weights = data.draw(st.lists(st.floats(0, 9), min_size=len(table), max_size=len(table)))
        table = table.append_column("w", pa.array(weights))
    cut, n = data.draw(st.integers(0, len(table))), data.draw(st.integers(1, 5))
    for i, part in enumerate((table[:cut], table[cut:])):
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=n)
    shares = fb.engines.Paths(folder, shipped, data.draw(st.integers(1, 6)))
    try:
        here = fb.count(folder, "y", **options)
    except FastBayesError as error:
        with pytest.raises(type(error)):
            fb.count(shares, "y", **options)
        return
    there = fb.count(shares, "y", **options)
    assert there.allclose(here)
    assert there.dropped_rows == here.dropped_rows


LAWS = [
    only_documented_errors_leave,
    only_documented_errors_leave,
    only_documented_errors_leave,
    posteriors_are_distributions,
    counts_add,
    counts_are_those_of_a_loop,
    threads_kernels_and_batches_change_nothing,
    naive_bayes_is_exact,
    files_change_nothing,
    shares_change_nothing,
]
