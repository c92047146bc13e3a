"""What holds for every classifier of tables: one function for each law.

A law takes a function that makes the unfitted model, and a table whose class is the column y. It is
silent about a model that lacks what the law speaks of.
"""

from __future__ import annotations

import gc
import pickle
import tempfile
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastbayes as fb

Make = Callable[[], Any]
LAWS: dict[str, Callable[[Make, pa.Table], None]] = {}


def law(function: Callable[[Make, pa.Table], None]) -> Callable[[Make, pa.Table], None]:
    LAWS[function.__name__] = function
    return function


def fit(make: Make, table: pa.Table, **options: Any) -> Any:
    return make().fit(table, "y", **options)


def features(table: pa.Table) -> pa.Table:
    return table.drop_columns("y")


def alike(a: Any, b: Any, X: Any, other: Any = None, tolerance: float = 1e-9) -> None:
    """Assert that two models score the same rows alike, the second as they are in `other`."""
    other = X if other is None else other
    assert list(a.classes_) == list(b.classes_)
    # A minimisation ends within its tolerance of the optimum, from whichever side it comes.
    near = 1e-5 if hasattr(a, "n_iter_") else tolerance
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(other), rtol=near, atol=near)


@law
def order_of_rows(make: Make, table: pa.Table) -> None:
    order = np.random.default_rng(0).permutation(len(table))
    alike(fit(make, table), fit(make, table.take(order)), features(table))


@law
def order_of_columns(make: Make, table: pa.Table) -> None:
    parameters = make().get_params()
    if "network" in parameters and parameters["network"] is None:
        return  # of two edges that are as good, a search takes the first
    backwards = table.select(table.column_names[::-1])
    alike(fit(make, table), fit(make, backwards), features(table))


@law
def names_of_categories(make: Make, table: pa.Table) -> None:
    if make().get_params().get("domains"):
        return  # they have the names
    renamed = table
    for i, name in enumerate(table.column_names):
        if name != "y" and pa.types.is_string(table[name].type):
            values = [None if v is None else f"of {v}" for v in table[name].to_pylist()]
            renamed = renamed.set_column(i, name, pa.array(values))
    alike(fit(make, table), fit(make, renamed), features(table), features(renamed))


@law
def chunks_and_dictionaries(make: Make, table: pa.Table) -> None:
    def encoded(part: pa.Table) -> pa.Table:
        for i, name in enumerate(part.column_names):
            if pa.types.is_string(part[name].type):
                part = part.set_column(i, name, part[name].dictionary_encode())
        return part

    n = len(table)
    cuts = [0, 1, n // 3, n // 3 + 1, n]
    parts = [encoded(table.slice(a, b - a)) for a, b in pairwise(cuts)]
    chunked, whole = pa.concat_tables(parts), encoded(table)
    if isinstance(make().get_params().get("unlabelled"), str):
        whole = table  # EM adds in the order of the chunks
    alike(fit(make, whole), fit(make, chunked), features(whole), features(chunked))


@law
def threads_change_no_bit(make: Make, table: pa.Table) -> None:
    many = pa.concat_tables([table] * (1 + 20_000 // len(table)))  # several blocks
    one = make().set_params(threads=1).fit(many, "y")
    three = make().set_params(threads=3).fit(many, "y")
    X = features(many)
    assert one.predict_proba(X).tobytes() == three.predict_proba(X).tobytes()
    assert one.statistics_ == three.statistics_


@law
def a_weight_is_how_often_a_row_stands(make: Make, table: pa.Table) -> None:
    weight = np.random.default_rng(3).integers(0, 4, len(table))
    weight[:3] = 1  # every class stays
    repeated = table.take(np.repeat(np.arange(len(table)), weight))
    alike(fit(make, table, sample_weight=weight), fit(make, repeated), features(table))


@law
def rows_without_a_class_are_no_rows(make: Make, table: pa.Table) -> None:
    if make().get_params().get("unlabelled") == "em":
        return
    holes = np.arange(len(table)) % 4 == 0
    y = pa.array(table["y"].to_pylist(), mask=holes)
    some = features(table).append_column("y", y)
    alike(fit(make, some), fit(make, table.filter(~holes)), features(table))


@law
def batches_are_the_whole(make: Make, table: pa.Table) -> None:
    if not hasattr(make(), "partial_fit"):
        return
    n, parts, whole = len(table) // 2, make(), fit(make, table)
    parts.partial_fit(table.slice(0, n), "y").partial_fit(table.slice(n), "y")
    if parts.schema_ == whole.schema_:  # else the first batch was cut into other bins
        assert parts.statistics_.allclose(whole.statistics_)
        alike(whole, parts, features(table))


@law
def rows_do_not_see_each_other(make: Make, table: pa.Table) -> None:
    model, X = fit(make, table), features(table)
    together = model.predict_proba(X.slice(0, 7))
    alone = [model.predict_proba(X.slice(i, 1))[0] for i in range(7)]
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)


@law
def posteriors_are_the_joint_normalised(make: Make, table: pa.Table) -> None:
    model, X = fit(make, table), features(table)
    joint, proba = model.log_joint(X), model.predict_proba(X)
    shifted = np.exp(joint - joint.max(axis=1, keepdims=True))
    np.testing.assert_allclose(proba, shifted / shifted.sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-9)
    assert np.array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])
    k = len(model.classes_)
    assert np.array_equal(model.predict(X), model.decide(X, loss=1.0 - np.eye(k)))


@law
def contributions_sum_to_the_log_joint(make: Make, table: pa.Table) -> None:
    model, X = fit(make, table), features(table).slice(0, 20)
    said = model.explain(X)
    joint, total = model.log_joint(X), said.prior + said.contributions.sum(axis=1)
    total = total if said.remainder is None else total + said.remainder
    parameters = make().get_params()
    # What is missing says nothing, unless it hides what says something of the class's own table,
    # or a member of a blend has it as a value of its own.
    members = [member.model for member in getattr(model, "members_", {}).values()]
    silent = parameters.get("missing") == "marginalize" and parameters.get("network") is None
    if silent and not any(member.missing == "category" for member in members):
        missing = np.array([X[name].is_null().to_numpy() for name in said.features]).T
        assert not said.contributions[missing].any()
    possible = np.isfinite(joint)
    np.testing.assert_allclose(total[possible], joint[possible], rtol=1e-6, atol=1e-6)
    assert np.isneginf(total[~possible]).all()


@law
def lines_of_an_explained_row_sum_to_its_log_odds(make: Make, table: pa.Table) -> None:
    model, X = fit(make, table), features(table).slice(0, 5)
    said, joint = model.explain(X), model.log_joint(X)
    for row in range(5):
        lines = said.table(row)
        parts = np.column_stack([lines[f"contribution_{c}"].to_numpy() for c in model.classes_])
        assert lines["column"][0].as_py() == "(prior)"
        rest = [] if said.remainder is None else ["(remainder)"]
        assert {*lines["column"].to_pylist()} == {"(prior)", *said.features, *rest}
        assert lines["column"].to_pylist()[len(lines) - len(rest) :] == rest
        sizes = np.abs(parts[1 : len(parts) - len(rest)]).max(axis=1)
        assert (sizes[:-1] >= sizes[1:]).all()
        possible = np.isfinite(joint[row])
        np.testing.assert_allclose(parts[:, possible].sum(axis=1), 0, atol=1e-6)
        apart = joint[row, possible] - joint[row, possible].mean()
        np.testing.assert_allclose(parts[:, possible].sum(axis=0), apart, rtol=1e-6, atol=1e-6)
        shown = dict(zip(lines["column"].to_pylist(), lines["value"].to_pylist(), strict=True))
        for name in said.features:
            assert (shown[name] is None) == (not X[name][row].is_valid)


def as_shown(model: Any, name: str, column: pa.ChunkedArray) -> list[Any]:
    """Return values as the table of a column has them: numbers that are cut as their intervals."""
    feature = model.schema_.features[model.schema_.names.index(name)]
    values = column.to_pylist()
    if feature.cuts is None:
        return values
    bins = [None if v is None else int(np.sum(feature.cuts < v)) for v in values]
    return [None if b is None else feature.intervals[b] for b in bins]


@law
def tables_of_columns_are_counts_and_what_is_said_of_rows(make: Make, table: pa.Table) -> None:
    model, classes = fit(make, table), table["y"].to_pylist()
    if not hasattr(model, "table"):  # what a blend says of a column its members say
        return
    shown = {name: as_shown(model, name, table[name]) for name in model.schema_.names}
    said = model.explain(features(table))
    for j, name in enumerate(model.schema_.names):
        found = model.table(name)
        missing = shown[name].count(None) / len(table)
        parts = {"moments", "scatter"} & {*model.statistics_.parts}
        if parts or "value" in found.table.column_names:  # else it was not counted
            assert found.missing == pytest.approx(missing)
        if "mean" in found.table.column_names:
            numbers = np.array(shown[name], np.float64)
            used = ~np.isnan(numbers)
            joint = "scatter" in model.statistics_.parts or hasattr(model, "backed_off_")
            given = make().get_params()
            if joint and given["missing"] != "impute_mean" and given.get("density") != "student":
                # A density of all columns is one of complete rows; Student's t takes all others.
                names = [f.name for f in model.schema_.numeric]
                used = ~np.isnan(np.array([shown[n] for n in names], np.float64)).any(axis=0)
            of = [numbers[used & (np.array(classes) == c)] for c in model.classes_]
            counted = [len(values) for values in of]
            assert found.table["rows"].to_pylist() == (counted if parts or joint else [None] * 3)
            students = getattr(model, "numeric_", {}).get(name) == "student"
            if (parts and not students) or hasattr(model, "backed_off_"):
                np.testing.assert_allclose(found.table["mean"], [*map(np.mean, of)], rtol=1e-9)
            continue
        if "coefficient" in found.table.column_names:
            continue
        parents = [n.removeprefix("given_") for n in found.table.column_names if "given_" in n]
        at = list(zip(*(shown[n] for n in [*parents, name]), strict=True))
        lines = {(*(line[f"given_{p}"] for p in parents), line["value"]): line
                 for line in found.table.to_pylist()}  # fmt: skip
        assert len(lines) == len(found.table)
        for c in model.classes_:
            counts = dict.fromkeys(lines, 0.0)
            for key, y in zip(at, classes, strict=True):
                if key in counts and y == c:
                    counts[key] += 1
            if make().get_params().get("unlabelled") != "em" and "leaves out" not in found.says:
                assert [line[f"count_{c}"] for line in lines.values()] == [*counts.values()]
            groups: dict[Any, float] = {}
            for key, line in lines.items():
                groups[key[:-1]] = groups.get(key[:-1], 0.0) + line[f"proba_{c}"]
            np.testing.assert_allclose([*groups.values()], 1, rtol=1e-6)
        if not hasattr(model, "to_network") or model.get_params().get("network") is not None:
            continue
        for row, key in enumerate(at[:20]):
            if key in lines:
                terms = [lines[key][f"proba_{c}"] for c in model.classes_]
                with np.errstate(divide="ignore"):
                    logs = np.log(terms)
                np.testing.assert_allclose(said.contributions[row, j], logs, rtol=1e-5, atol=1e-6)


@law
def a_count_is_all_that_is_learned(make: Make, table: pa.Table) -> None:
    model = fit(make, table)
    again = make().fit_statistics(model.statistics_)
    alike(model, again, features(table))


@law
def files_are_tables_and_give_the_model_back(make: Make, table: pa.Table) -> None:
    model, X = fit(make, table), features(table)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/rows.parquet", row_group_size=50)
        alike(model, make().fit(f"{folder}/rows.parquet", "y"), X)
        model.save(f"{folder}/model.fb")
        again = fb.load(f"{folder}/model.fb")
    assert type(again) is type(model)
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()


@law
def what_scores_is_made_anew_for_what_is_learned_anew(make: Make, table: pa.Table) -> None:
    model = fit(make, table.slice(0, len(table) // 2))
    model.predict_proba(features(table))
    alike(model.fit(table, "y"), fit(make, table), features(table))


@law
def arrays_of_a_model_that_scored_cannot_be_changed_unseen(make: Make, table: pa.Table) -> None:
    model = fit(make, table)
    model.predict_proba(features(table))
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, np.ndarray) and value.size:
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0


@law
def a_model_that_scored_can_be_pickled_and_goes_when_it_is_let_go(
    make: Make, table: pa.Table
) -> None:
    model = fit(make, table)
    before = dict(vars(model))
    model.predict_proba(features(table))
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    alike(model, pickle.loads(pickle.dumps(model)), features(table))
    known = weakref.ref(model)
    del model, before
    gc.collect()
    assert known() is None
