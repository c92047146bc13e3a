"""Smoothing by hierarchical Dirichlet distributions: what is computed, its limits, its gain."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import hierarchical as naive

import fastbayes as fb
from fastbayes import generate
from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete.hierarchical import HALF, SWEEPS, TOL, _whole, digamma
from fastbayes.models.discrete.hierarchical import concentrations as fitted


def rows_of(seed: int, sizes: Any, n_values: int, n: int, holes: float = 0.0) -> Any:
    """Return rows (context, x, weight) in which x depends on the class and a little on the rest."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        context = [int(rng.integers(0, s)) for s in sizes]
        pull = (context[0] + sum(context[1:]) * (rng.random() < 0.3)) % n_values
        x = int(pull if rng.random() < 0.6 else rng.integers(0, n_values))
        known = len(sizes) if rng.random() >= holes else int(rng.integers(1, len(sizes) + 1))
        rows.append((tuple(context[:known]), x, float(rng.integers(1, 7)) / 2))
    return rows


def totals_of(rows: Any, sizes: Any, n_values: int) -> Any:
    """Return the counts of the rows in which the first d parents are known, for every d."""
    found = []
    for d in range(1, len(sizes) + 1):
        total = np.zeros((*sizes[1:d], n_values, sizes[0]))
        for (c, *parents), x, weight in rows:
            if len(parents) >= d - 1:
                total[(*parents[: d - 1], x, c)] += weight
        found.append(total)
    return found


def hierarchical(totals: Any, choices: float, alpha: float, half: float = HALF) -> Any:
    """Return P(x | parents, c), smoothed towards fewer parents, as the last of `totals`."""
    found = fitted(totals, choices, alpha, tol=TOL, max_iter=SWEEPS, half=half)
    return _whole(*found.point, totals[-1].shape)


@given(x=st.floats(1e-6, 1e9))
def test_digamma(x: float) -> None:
    expected = scipy.special.digamma(x)
    np.testing.assert_allclose(digamma(np.array([x]))[0], expected, rtol=1e-11, atol=1e-11)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.sampled_from([(2,), (3, 2), (2, 3, 2)]),
    n_values=st.sampled_from([2, 3]),
    alpha=st.sampled_from([0.5, 1.0]),
    holes=st.sampled_from([0.0, 0.3]),
    half=st.sampled_from([0.0, HALF]),
)
def test_tables__are_the_fixed_point_node_by_node(
    seed: int, sizes: Any, n_values: int, alpha: float, holes: float, half: float
) -> None:
    rows = rows_of(seed, sizes, n_values, 60, holes)
    totals = totals_of(rows, sizes, n_values)
    levels, _ = fitted(totals, n_values, alpha, tol=1e-3, max_iter=200, half=half).point
    concentrations = [float(np.exp(level.log_a)) for level in levels]
    expected, better = naive.hierarchical(rows, sizes, n_values, alpha, concentrations, half)
    found = hierarchical(totals, n_values, alpha, half)
    for (c, *parents), theta in expected.items():
        np.testing.assert_allclose(found[(*parents, slice(None), c)], theta, atol=2e-3)
    for a, again in zip(concentrations, better, strict=True):
        assert again == pytest.approx(a, rel=5e-3) or (
            (again - a) * (a - 1) > 0 and (a == pytest.approx(1e6) or a == pytest.approx(1e-3))
        )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sizes", [(2,), (3, 2), (2, 3, 2), (2, 2, 2, 2)])
def test_concentrations__come_to_rest(seed: int, sizes: Any) -> None:
    totals = totals_of(rows_of(seed, sizes, 3, 60, 0.3 * (seed % 2)), sizes, 3)
    near, rest = (fitted(totals, 3, 1.0, tol=tol, max_iter=400) for tol in (1e-3, 1e-9))
    assert near.converged
    assert rest.converged
    assert rest.trace[-1] == rest.error < 1e-9
    np.testing.assert_array_equal(rest.trace[: near.n_iter + 1], near.trace)
    for a, b in zip(near.point[0], rest.point[0], strict=True):
        np.testing.assert_allclose(a.theta, b.theta, atol=5e-3)


@given(
    seed=st.integers(0, 2**32),
    sizes=st.sampled_from([(1,), (2, 4), (3, 2, 3), (2, 2, 2, 2)]),
    alpha=st.sampled_from([0.0, 0.1, 1.0, 1e6]),
)
def test_distributions__sum_to_one(seed: int, sizes: Any, alpha: float) -> None:
    totals = totals_of(rows_of(seed, sizes, 4, 30, 0.2), sizes, 4)
    table = hierarchical(totals, 4, alpha)
    assert table.shape == totals[-1].shape
    assert (table >= 0).all()
    np.testing.assert_allclose(table.sum(axis=-2), 1, atol=1e-12)
    # A value that is not one of the choices takes nothing from them.
    wider = [np.pad(t, [(0, 0)] * (t.ndim - 2) + [(0, 1), (0, 0)]) for t in totals]
    np.testing.assert_allclose(
        hierarchical(wider, 4, alpha)[..., :4, :], table, rtol=1e-6, atol=1e-9
    )


def test_many_rows__say_what_their_shares_are() -> None:
    sizes = (2, 3, 2)
    totals = [total * 1e7 for total in totals_of(rows_of(1, sizes, 3, 400), sizes, 3)]
    shares = totals[-1] / totals[-1].sum(axis=-2, keepdims=True)
    np.testing.assert_allclose(hierarchical(totals, 3, 1.0), shares, atol=1e-5)


def test_nodes_without_rows__are_as_those_above() -> None:
    sizes = (2, 3, 2)
    rows = [row for row in rows_of(2, sizes, 3, 300) if row[0][1] != 2 and row[0] != (0, 0, 1)]
    totals = totals_of(rows, sizes, 3)
    table = hierarchical(totals, 3, 1.0)
    # No row has the parent at 2: what is below it says the same as P(x | c).
    np.testing.assert_allclose(table[2, 0], table[2, 1], rtol=1e-12)
    # That of which a sibling has rows says what they say in part.
    told = totals[2][0, 0, :, 0] / totals[2][0, 0, :, 0].sum()
    above, here = table[2, 0, :, 0], table[0, 1, :, 0]
    assert (np.sign(here - above) == np.sign(told - above)).all()


def test_parents_that_say_nothing__are_smoothed_away() -> None:
    share = np.array([[0.7, 0.2], [0.2, 0.3], [0.1, 0.5]])
    left = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        leaf = np.stack([rng.multinomial(12, p, size=(6, 5)) for p in share.T], axis=-1)
        totals = [leaf.sum(axis=(0, 1)), leaf.sum(axis=1), leaf]
        table = hierarchical(totals, 3, 1.0)
        pooled = totals[0] / totals[0].sum(axis=0)
        laplace = (leaf + 1) / (leaf.sum(axis=-2, keepdims=True) + 3)
        left.append(np.abs(table - pooled).mean() / np.abs(laplace - pooled).mean())
    assert np.mean(left) < 0.25


def test_parents_that_say_all__are_believed_at_once() -> None:
    leaf = np.zeros((8, 4, 2))
    leaf[np.arange(8), np.arange(8) % 4] = 3  # three rows tell the value of each of eight parents
    table = hierarchical([leaf.sum(axis=0), leaf], 4, 1.0)
    assert table[np.arange(8), np.arange(8) % 4].min() > 0.95


@pytest.mark.parametrize("n", [2, 8, 100])
def test_nodes_of_one_row__leave_the_prior_as_it_is(n: int) -> None:
    leaf = np.zeros((n, 4, 1))
    leaf[np.arange(n), np.arange(n) % 4] = 1
    levels, _ = fitted([leaf.sum(axis=0), leaf], 4, 1.0, tol=1e-9, max_iter=400).point
    assert np.exp(levels[1].log_a) == pytest.approx(HALF, rel=1e-6)


def test_alpha__is_what_the_root_begins_with() -> None:
    sizes = (2, 3)
    totals = totals_of(rows_of(3, sizes, 3, 50), sizes, 3)
    wider = [np.pad(t, [(0, 0)] * (t.ndim - 2) + [(0, 1), (0, 0)]) for t in totals]
    # The fourth value never occurred.
    unseen = [hierarchical(wider, 4, alpha)[:, 3] for alpha in (0.0, 1e-3, 1.0, 1e9)]
    assert (unseen[0] == 0).all()
    for less, more in itertools.pairwise(unseen):
        assert (less < more).all()
    assert (unseen[-1] < 0.25).all()
    nothing = [np.zeros_like(total) for total in totals]
    for alpha in (0.0, 1.0):
        np.testing.assert_allclose(hierarchical(nothing, 3, alpha), 1 / 3)


# -- models ------------------------------------------------------------------------------------

MODELS: dict[str, Any] = {
    "TAN": fb.TAN,
    "KDB": lambda **told: fb.KDB(3, **told),
    "KDB, selected": lambda **told: fb.KDB(2, select="leave_one_out", **told),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@pytest.mark.parametrize(
    ("make", "gain"), [(fb.TAN, 0.1), (fb.KDB, 0.5), (lambda **told: fb.KDB(3, **told), 0.7)]
)
def test_sparse_cells__are_predicted_better(make: Any, gain: float) -> None:
    rows = generate.table("cat", 9000, 3)
    data, fresh, y = rows.slice(0, 2500), rows.slice(2500), rows.column_names[-1]
    found = {}
    for smoothing in ("laplace", "hdp"):
        model = make(smoothing=smoothing).fit(data, y)
        found[smoothing] = fb.evaluate(model, fresh)
    assert found["hdp"].log_loss < found["laplace"].log_loss - gain
    assert found["hdp"].accuracy > found["laplace"].accuracy


def sparse(n: int, seed: int = 0, holes: float = 0.1) -> pa.Table:
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 4, (3, n))
    y = (a + (b * c) % 3 + (rng.random(n) < 0.2)) % 3
    d = (a + y + (rng.random(n) < 0.3)) % 4
    columns = {
        name: pa.array(np.char.add("v", column.astype(str)), mask=rng.random(n) < holes)
        for name, column in zip("abcd", (a, b, c, d), strict=True)
    }
    return pa.table({**columns, "y": np.array(list("pqr"))[y]})


@models
def test_model__is_a_proper_one(make: Any, tmp_path: Path) -> None:
    data = sparse(400)
    model = make(smoothing="hdp").fit(data, "y")
    network = model.to_network()
    for table in network.tables.values():
        np.testing.assert_allclose(table.sum(axis=-1), 1, atol=1e-12)
    assert model.log_evidence(pa.table({n: pa.nulls(1, pa.string()) for n in "abcd"})) == (
        pytest.approx(0, abs=1e-12)
    )
    model.save(tmp_path / "m.fb")
    np.testing.assert_array_equal(
        fb.load(tmp_path / "m.fb").predict_proba(data), model.predict_proba(data)
    )
    np.testing.assert_array_equal(
        make(smoothing="hdp", threads=3).fit(data, "y").log_joint(data), model.log_joint(data)
    )
    turned = make(smoothing="hdp").fit(data.select(data.column_names[::-1]), "y")
    np.testing.assert_allclose(turned.log_joint(data), model.log_joint(data), rtol=1e-9)
    twice = make(smoothing="hdp").fit(data, "y", sample_weight=np.full(400, 2.0))
    doubled = make(smoothing="hdp").fit(pa.concat_tables([data, data]), "y")
    np.testing.assert_allclose(twice.log_joint(data), doubled.log_joint(data), rtol=1e-9)


def test_missing_parents__count_where_the_others_are_known() -> None:
    data = sparse(300, 1, 0.0)
    model = fb.KDB(2, smoothing="hdp").fit(data, "y")
    last = list(model.parents_)[-1]
    second = model.parents_[last][1]
    names = [(*up, j) for j, up in model.parents_.items()]
    # Rows in which the second parent is lost still tell of the feature and the first.
    lost = data.slice(0, 100).set_column(
        data.column_names.index(second), second, pa.nulls(100, pa.string())
    )
    mixed = fb.KDB(2, smoothing="hdp").fit_statistics(
        fb.count(pa.concat_tables([lost, data.slice(100)]), "y", families=names)
    )
    few = fb.KDB(2, smoothing="hdp").fit_statistics(fb.count(data.slice(100), "y", families=names))
    q = [family[-1] for family in names].index(last)
    tables = [m._network.tables[q] for m in (model, mixed, few)]
    assert tables[0].shape == tables[1].shape == tables[2].shape
    assert not np.allclose(tables[1], tables[2], atol=1e-3)


def test_partial_fit__learns_the_smoothing_of_all_rows() -> None:
    data = sparse(500, 2)
    model = fb.KDB(2, smoothing="hdp")
    for part in (data.slice(0, 200), data.slice(200)):
        model.partial_fit(part, "y")
    whole = fb.KDB(2, smoothing="hdp").fit_statistics(model.statistics_)
    np.testing.assert_array_equal(whole.log_joint(data), model.log_joint(data))


def test_what_cannot_be__is_said() -> None:
    data = sparse(60)
    for make in (fb.TAN, fb.KDB):
        with pytest.raises(ValueError, match="smoothing='jelinek': use one of"):
            make(smoothing="jelinek").fit(data, "y")
    with pytest.raises(ValueError, match="alpha='loo' is chosen for smoothing='laplace'"):
        fb.TAN(smoothing="hdp", alpha="loo").fit(data, "y")
    stats = fb.count(data, "y", pairs=True)
    with pytest.raises(SchemaError, match="use k_fold, or smoothing='laplace'"):
        fb.leave_one_out(fb.TAN(smoothing="hdp"), stats, data)
