"""The unrestricted classifier against exact fractions, and what must hold of it."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.joint import Joint

import fastbayes as fb
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.models.joint.joint import CellIndex, JointTable

NAMES = ("a", "b", "c")
DOMAINS = ("pq", "uvw", "xy")


pytestmark = pytest.mark.usefixtures("kernels")


def drawn(seed: int, n: int = 25, gaps: float = 0.2) -> tuple[list[Any], list[str], list[int]]:
    """Return rows with gaps, classes and whole weights."""
    rng = np.random.default_rng(seed)
    rows = [
        tuple(None if rng.random() < gaps else str(rng.choice(list(d))) for d in DOMAINS)
        for _ in range(n)
    ]
    classes = [str(c) for c in rng.choice(["no", "yes", "maybe"], n, p=[0.6, 0.3, 0.1])]
    return rows, classes, rng.integers(0, 4, n).tolist()


def table_of(rows: Any, **more: Any) -> pa.Table:
    columns = zip(*rows, strict=True)
    told = {name: pa.array(list(v), pa.string()) for name, v in zip(NAMES, columns, strict=True)}
    return pa.table(told | more)


def every_row(gaps: bool = True) -> list[Any]:
    return list(product(*([None, *d] if gaps else d for d in DOMAINS)))


def fitted(rows: Any, classes: Any, weights: Any = None, **options: Any) -> fb.JointBayes:
    domains = dict(zip(NAMES, map(list, DOMAINS), strict=True))
    table = table_of(rows, y=pa.array(classes))
    return fb.JointBayes(domains=domains, **options).fit(table, "y", sample_weight=weights)


@given(
    seed=st.integers(0, 2**32 - 1),
    tau=st.sampled_from([0, 1, 0.5]),
    alpha=st.sampled_from([0, 1, 0.25]),
    weighted=st.booleans(),
)
def test_log_joint__is_the_logarithm_of_exact_fractions(
    seed: int, tau: float, alpha: float, weighted: bool
) -> None:
    rows, classes, weights = drawn(seed)
    told = weights if weighted else None
    if told is not None and len({c for c, w in zip(classes, told, strict=True) if w}) < 2:
        return
    model = fitted(rows, classes, told, tau=tau, alpha=alpha)
    kept = [i for i in range(len(rows)) if told is None or told[i]]
    twin = Joint(
        *([x[i] for i in kept] for x in (rows, classes)),
        *(DOMAINS,),
        tau=tau,
        alpha=alpha,
        weights=None if told is None else [told[i] for i in kept],
    )
    asked = every_row()
    got = model.log_joint(table_of(asked))
    for row, joint in zip(asked, got, strict=True):
        for c, value in zip(model.classes_.tolist(), joint, strict=True):
            expected = twin.joint(row, c)
            if not expected:
                # A product of tables that holds a zero.
                assert value < -600 or math.isinf(value)
            else:
                assert value == pytest.approx(math.log(expected), abs=1e-11)


@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_law__probabilities_of_everything_sum_to_one(missing: str) -> None:
    rows, classes, _ = drawn(1, 40)
    model = fitted(rows, classes, missing=missing)
    whole = every_row(gaps=missing == "category")
    assert np.exp(model.log_joint(table_of(whole))).sum() == pytest.approx(1, abs=1e-12)


def test_law__without_smoothing_it_is_the_complete_network() -> None:
    rows, classes, _ = drawn(12, 40, gaps=0)
    table = table_of(rows, y=pa.array(classes))
    domains = dict(zip(NAMES, map(list, DOMAINS), strict=True))
    complete = fb.KDB(k=2, alpha=0, domains=domains).fit(table, "y")
    joint = fitted(rows, classes, tau=0, alpha=0)
    X = table_of(every_row())
    np.testing.assert_allclose(joint.log_joint(X), complete.log_joint(X), atol=1e-12)


@pytest.mark.parametrize("domain", [None, ["k"], ["k", "l"]])
@pytest.mark.parametrize("tau", [0, 1, "loo"])
@pytest.mark.parametrize("unseen", ["ignore", "smooth"])
def test_law__a_column_without_values_is_as_if_it_were_not_there(
    domain: list[str] | None, tau: Any, unseen: str
) -> None:
    rows, classes, _ = drawn(4, 60)
    table = table_of(rows, y=pa.array(classes))
    void = table.add_column(1, "void", pa.nulls(60, pa.string()))
    domains: dict[str, Any] = dict(zip(NAMES, map(list, DOMAINS), strict=True))
    models = [fb.JointBayes(tau=tau, domains=domains, unseen=unseen).fit(table, "y")]
    domains = domains | ({"void": domain} if domain else {})
    models.append(fb.JointBayes(tau=tau, domains=domains, unseen=unseen).fit(void, "y"))
    assert len({model.tau_ for model in models}) == 1
    assert len({model.n_cells_ for model in models}) == 1
    X = table_of(every_row())
    plain = models[0].log_joint(X)
    empty = X.append_column("void", pa.nulls(len(X), pa.string()))
    np.testing.assert_array_equal(models[1].log_joint(empty), plain)
    if domain:
        given = [X.append_column("void", pa.array([v] * len(X))) for v in domain]
        share = [models[1].log_joint(each) for each in given]
        np.testing.assert_allclose(share, [plain - math.log(len(domain))] * len(domain), atol=1e-12)
    odd = X.append_column("void", pa.array(["odd"] * len(X)))
    np.testing.assert_array_equal(models[1].predict(odd), models[0].predict(X))
    held_out = [
        fb.leave_one_out(model, model.statistics_, rows, "y").log_loss
        for model, rows in zip(models, (table, void), strict=True)
    ]
    assert held_out[0] == held_out[1]
    drawn_again = models[1].sample(200, seed=0)["void"].drop_null().unique().to_pylist()
    assert sorted(drawn_again) == (domain or [])
    assert models[1].explain(void.slice(0, 5)) is not None


def test_law__any_batching_is_one_fit() -> None:
    rows, classes, _ = drawn(2, 60)
    whole, parts = fitted(rows, classes), fb.JointBayes(**fitted(rows, classes).get_params())
    for some in np.array_split(np.arange(60), 4):
        table = table_of([rows[i] for i in some], y=pa.array([classes[i] for i in some]))
        parts.partial_fit(table, "y")
    assert parts.statistics_ == whole.statistics_
    X = table_of(every_row())
    np.testing.assert_array_equal(parts.log_joint(X), whole.log_joint(X))


def test_law__order_of_columns_changes_nothing() -> None:
    rows, classes, _ = drawn(3, 60)
    table = table_of(rows, y=pa.array(classes))
    one = fb.JointBayes().fit(table, "y")
    other = fb.JointBayes().fit(table.select(["c", "y", "a", "b"]), "y")
    X = table_of(every_row())
    np.testing.assert_allclose(one.log_joint(X), other.log_joint(X), atol=1e-12)


def test_explain__is_the_chain_rule_in_column_order() -> None:
    rows, classes, _ = drawn(4, 60)
    model = fitted(rows, classes)
    X = table_of([("p", "u", "x"), ("q", None, "y")])
    told = model.explain(X)
    np.testing.assert_allclose(
        told.prior + told.contributions.sum(axis=1), model.log_joint(X), atol=1e-12
    )
    first = model.log_joint(table_of([("p", None, None)]))[0] - told.prior
    np.testing.assert_allclose(told.contributions[0, 0], first, atol=1e-12)
    assert (told.contributions[1, 1] == 0).all()


def test_unseen__is_missing_or_has_the_mass_of_alpha() -> None:
    rows, classes, _ = drawn(5, 60, gaps=0)
    table = table_of(rows, y=pa.array(classes))
    new, gone = table_of([("?", "u", "x")]), table_of([(None, "u", "x")])
    ignoring, smooth = (fb.JointBayes(unseen=u).fit(table, "y") for u in ("ignore", "smooth"))
    np.testing.assert_array_equal(ignoring.log_joint(new), ignoring.log_joint(gone))
    with pytest.raises(DataError, match=r"'a'.*'\?'"):
        fb.JointBayes(unseen="error").fit(table, "y").predict(new)
    n = np.array([classes.count(c) for c in smooth.classes_])
    margins = fb.NaiveBayes(unseen="smooth").fit(table, "y").log_joint(new)
    np.testing.assert_allclose(smooth.log_joint(new), margins - np.log(n + 1), atol=1e-12)


def test_many_columns__more_codes_than_64_bits() -> None:
    rng = np.random.default_rng(6)
    columns = {f"x{j}": rng.integers(0, 50, 400).astype(str) for j in range(20)}
    y = rng.integers(0, 2, 400).astype(str)
    table = pa.table(columns | {"y": y})
    model = fb.JointBayes().fit(table, "y")
    assert model.n_cells_ == 400
    assert model.n_parameters_ > 10**30
    # A row that was seen is like nothing of the other class, one that was not tells nothing new.
    assert model.score(table, "y") == 1.0
    new = pa.table({name: np.roll(v, 1) for name, v in columns.items()})
    naive = fb.NaiveBayes().fit(table, "y")
    tau = model.log_joint(new) - naive.log_joint(new)
    rest = rng.permutation(400)
    mixed = pa.table({n: v[rest] if n == "x0" else v for n, v in columns.items()})
    fresh = model.log_joint(mixed) - naive.log_joint(mixed)
    there = columns["x0"] == columns["x0"][rest]
    np.testing.assert_allclose(fresh[~there], np.broadcast_to(tau.min(axis=0), fresh[~there].shape))


def test_many_columns__whose_codes_fill_63_bits() -> None:
    rng = np.random.default_rng(7)
    # Six values, a missing and an unknown one: 21 columns are 8 ** 21 = 2 ** 63 codes.
    columns = {f"x{j}": rng.permutation([*range(6)] * 10).astype(str) for j in range(30)}
    table = pa.table(columns | {"y": rng.integers(0, 2, 60).astype(str)})
    assert fb.JointBayes().fit(table, "y").score(table, "y") == 1.0


@pytest.mark.parametrize("alpha", [0, 1])
def test_tau_loo__is_where_rows_left_out_are_likeliest(alpha: float) -> None:
    rng = np.random.default_rng(11)
    a = rng.integers(0, 2, 40)
    codes = a, (a + (rng.random(40) < 0.3)) % 3, rng.integers(0, 2, 40)
    rows = [
        tuple(d[c] for d, c in zip(DOMAINS, row, strict=True)) for row in zip(*codes, strict=True)
    ]
    rows[5] = ("p", None, "x")
    classes = ["no", "yes"] * 20
    model = fitted(rows, classes, tau="loo", alpha=alpha)

    def left_out(tau: float) -> float:
        total = 0.0
        for i, (row, c) in enumerate(zip(rows, classes, strict=True)):
            rest = [[*x[:i], *x[i + 1 :]] for x in (rows, classes)]
            twin = Joint(*rest, DOMAINS, tau=tau, alpha=alpha)
            total += math.log(twin.complete(row, c)) if None not in row else 0.0
        return total

    best = left_out(model.tau_)
    assert all(left_out(model.tau_ * factor) < best for factor in (0.8, 1.25))
    given = fitted(rows, classes, tau=model.tau_, alpha=alpha)
    X = table_of(every_row())
    np.testing.assert_array_equal(given.log_joint(X), model.log_joint(X))


def test_sample__is_drawn_from_the_model() -> None:
    rows, classes, _ = drawn(7, 200)
    model = fitted(rows, classes, tau=20)
    some = model.sample(40_000, seed=0)
    whole = every_row(gaps=False)
    X = table_of(whole)
    expected = np.exp(model.log_joint(X))
    keys = [f"{''.join(v)}{c}" for v in whole for c in model.classes_]
    told = some.select([*NAMES, "y"]).to_pylist()
    found = ["".join(row.values()) for row in told]
    shares = np.array([found.count(k) for k in keys]) / len(found)
    np.testing.assert_allclose(shares, expected.ravel(), atol=0.01)


def test_memory_limit__is_refused_with_the_figure_and_the_remedy() -> None:
    rng = np.random.default_rng(8)
    table = pa.table({f"x{j}": rng.integers(0, 99, 20_000).astype(str) for j in range(4)})
    table = table.append_column("y", pa.array(rng.integers(0, 2, 20_000).astype(str)))
    with pytest.raises(
        MemoryLimitError, match=r"3,839,616 bytes.* 19,998 joint values of 4 .*raise"
    ):
        fb.JointBayes(memory_limit=1_000_000).fit(table, "y")
    assert fb.JointBayes(memory_limit=30_000_000).fit(table, "y").n_cells_ == 19_998


def test_statistics__of_some_columns_or_with_numbers_are_refused() -> None:
    rows, classes, _ = drawn(9)
    table = table_of(rows, y=pa.array(classes), z=pa.array(np.arange(25.0)))
    some = fb.count(table.drop_columns("z"), "y", cells=["a", "b"])
    assert some.cells.columns.tolist() == [0, 1]
    with pytest.raises(SchemaError, match="those of 2 columns out of 3"):
        fb.JointBayes().fit_statistics(some)
    with pytest.raises(SchemaError, match="no cells; count again with cells=True"):
        fb.JointBayes().fit_statistics(fb.count(table.drop_columns("z"), "y"))
    with pytest.raises(SchemaError, match=r"'z' as numeric.*numeric='mdl'"):
        fb.JointBayes().fit_statistics(fb.count(table, "y", cells=True))
    with pytest.raises(SchemaError, match="no categorical column 'q'"):
        fb.count(table, "y", cells=["q"])
    bins = fb.count(table, "y", cells=True, numeric="mdl")
    model = fb.JointBayes().fit_statistics(bins)
    again = fb.JointBayes().fit(table, "y")
    np.testing.assert_array_equal(model.predict_proba(table), again.predict_proba(table))


@pytest.mark.parametrize("option", [{"tau": -1}, {"tau": math.inf}, {"tau": "1"}, {"alpha": -1}])
def test_parameters__are_checked_at_fit(option: Any) -> None:
    rows, classes, _ = drawn(10)
    with pytest.raises(ValueError, match=next(iter(option))):
        fitted(rows, classes, **option)


@pytest.mark.parametrize("width", [3, 1 << 20])  # in one number of 63 bits, and in several
def test_cells__are_found_by_the_columns_that_are_known(width: int) -> None:
    rng = np.random.default_rng(0)
    m = 7
    keys = np.unique(rng.integers(0, 3, (60, m)), axis=0)
    keys = keys[rng.permutation(len(keys))]
    terms = rng.random((len(keys), 2))
    index = CellIndex(keys, [width] * m)
    asked = rng.integers(0, 3, (m, 200))
    for bits in range(1 << m):
        known = np.array([bits >> j & 1 for j in range(m)], np.bool_)
        cells = index.by(known)
        at = cells.find(asked)
        agree = (keys[:, None, known] == asked.T[None, :, known]).all(axis=2)
        assert np.array_equal(at >= 0, agree.any(axis=0))
        found = cells.sums(terms, at[at >= 0])
        np.testing.assert_allclose(found, (agree.T @ terms)[at >= 0], rtol=1e-12)
    none = CellIndex(keys[:0], [width] * m).by(known)
    assert (none.find(asked) == -1).all()


def test_an_index_of_cells__holds_no_copy_of_them() -> None:
    table = {"a": list("001122"), "b": list("010101"), "y": list("nppnnp")}
    stats = fb.count(table, "y", cells=True)
    found = JointTable(stats, tau=1.0, alpha=0.5, missing="marginalize", unseen="ignore")
    assert np.shares_memory(found._index._columns, found.keys)
