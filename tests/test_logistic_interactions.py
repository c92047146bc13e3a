"""LogisticRegression with interactions that the data choose, of numbers in bins, too."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracles.information import information
from sklearn.base import clone

import fastbayes as fb
from fastbayes.models.estimator.information import interaction_information

LR = fb.LogisticRegression
NAMES = ("a", "b", "c", "d", "e")


def rows(n: int = 400, seed: int = 0, *, missing: bool = False) -> pa.Table:
    """Return a table in which a and b decide together, d repeats c, and e has one value."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(0, size, n) for size in (2, 3, 4))
    d = np.where(rng.random(n) < 0.9, c, rng.integers(0, 4, n))
    chance = 0.15 + 0.7 * ((a + b) % 2)
    y = np.where(rng.random(n) < chance, "p", np.where(c > 1, "q", "r"))
    columns = [[f"{name}{v}" for v in x] for name, x in zip(NAMES, (a, b, c, d, 0 * a), strict=True)]
    if missing:
        columns[:4] = [[None if u < 0.15 else v for u, v in zip(rng.random(n), x, strict=True)]
                       for x in columns[:4]]  # fmt: skip
    return pa.table({**dict(zip(NAMES, columns, strict=True)), "z": rng.normal(size=n), "y": y})


def pairs(model: Any) -> set[frozenset[str]]:
    return {frozenset(name) for name, _ in model.coef_names_ if isinstance(name, tuple)}


def worth(table: pa.Table, one: str, other: str, *, category: bool) -> float:
    """Return the interaction information of two columns, less what chance comes to."""
    cells: dict[Any, float] = {}
    for u, v, c in zip(*(table[name].to_pylist() for name in (one, other, "y")), strict=True):
        if category or (u is not None and v is not None):
            cells[u, v, c] = cells.get((u, v, c), 0) + 1
    flat: dict[Any, float] = {}
    for (u, v, _), n in cells.items():
        flat[u, v, 0] = flat.get((u, v, 0), 0) + n
    sizes = [len({*table[name].to_pylist()} - ({None} if not category else set()))
             for name in (one, other)]  # fmt: skip
    chance = (len(set(table["y"].to_pylist())) - 1) * (sizes[0] - 1) * (sizes[1] - 1) / 2
    return sum(cells.values()) * (information(cells) - information(flat)) - chance


@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_interaction_information__by_its_definition(missing: str) -> None:
    table = rows(missing=True)
    stats = fb.count(table.drop_columns("z"), "y", pairs=True, missing=missing)
    found = interaction_information(stats.pairs, as_value=missing == "category")
    expected = [worth(table, *both, category=missing == "category")
                for both in combinations(stats.schema.names, 2)]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    best = [*combinations(stats.schema.names, 2)][int(found.argmax())]
    assert best == ("a", "b")
    assert found[[*combinations(stats.schema.names, 2)].index(("c", "d"))] < 0


@pytest.mark.parametrize("missing", ["marginalize", "category"])
@pytest.mark.parametrize("k", [1, 3])
def test_number_of_pairs__are_those_of_most_information(missing: str, k: int) -> None:
    table = rows(missing=True)
    model = LR(interactions=k, missing=missing).fit(table, "y")
    order = sorted(
        combinations(NAMES[:4], 2),
        key=lambda both: -worth(table, *both, category=missing == "category"),
    )
    assert pairs(model) == {frozenset(both) for both in order[:k]}
    named = LR(interactions=sorted(order[:k]), missing=missing).fit(table, "y")
    np.testing.assert_array_equal(model.coef_, named.coef_)
    assert model.coef_names_ == named.coef_names_
    assert set(model.statistics_.parts) == {"values", "moments"}


@pytest.mark.parametrize("some", ["all", 6, 50])
def test_all_pairs__are_those_of_columns_with_two_values(some: Any) -> None:
    table = rows(missing=True)
    model = LR(interactions=some).fit(table, "y")
    named = LR(interactions=[*combinations(NAMES[:4], 2)]).fit(table, "y")
    assert model.coef_names_ == named.coef_names_
    np.testing.assert_array_equal(model.coef_, named.coef_)
    # Where it is a value, missing is a second one.
    holes = table.set_column(4, "e", pa.array([None, *table["e"].to_pylist()[1:]]))
    as_value = LR(interactions="all", missing="category").fit(holes, "y")
    assert pairs(as_value) == {frozenset(both) for both in combinations(NAMES, 2)}


def test_without_a_pair__is_said_and_the_plain_model() -> None:
    table = rows().select(["a", "e", "z", "y"])
    with pytest.warns(fb.FastBayesWarning, match="no two categorical.*discretize='mdl'"):
        model = LR(interactions="all").fit(table, "y")
    np.testing.assert_array_equal(model.coef_, LR().fit(table, "y").coef_)


def test_what_only_two_columns_tell_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (600, 6))
    table = pa.table({f"x{j}": x for j, x in enumerate(X.T)} | {"y": X[:, 1] ^ X[:, 4]})
    options: dict[str, Any] = {"categorical": [f"x{j}" for j in range(6)]}
    assert LR(**options).fit(table, "y").score(table, table["y"]) < 0.7
    model = LR(interactions=1, **options).fit(table, "y")
    assert pairs(model) == {frozenset(("x1", "x4"))}
    assert model.score(table, table["y"]) == 1


def test_order_of_columns_changes_no_choice() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (200, 4)).astype(str)
    # Three copies: what they tell with another column is the same.
    columns = {"u": x[:, 0], "v": x[:, 0], "w": x[:, 0], "s": x[:, 1]}
    table = pa.table({**columns, "y": np.where(x[:, 0] == x[:, 1], "p", "q")})
    chosen = [
        pairs(LR(interactions=2).fit(table.select([*order, "y"]), "y"))
        for order in (["u", "v", "w", "s"], ["s", "w", "v", "u"], ["w", "s", "u", "v"])
    ]
    assert chosen == [{frozenset("su"), frozenset("sv")}] * 3


# -- numbers in bins ---------------------------------------------------------------------------


@pytest.mark.parametrize("interactions", [None, "all", 2])
def test_discretize__is_the_model_of_the_bins(interactions: Any) -> None:
    table = rows()
    z, cuts = table["z"].to_numpy(), [-0.5, 0.4]
    model = LR(discretize={"z": cuts}, interactions=interactions, tol=1e-10).fit(table, "y")
    names = np.array(["z0", "z1", "z2"])[np.searchsorted(cuts, z, side="left")]
    binned = table.set_column(table.column_names.index("z"), "z", pa.array(names))
    other = LR(interactions=interactions, tol=1e-10).fit(binned, "y")
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-7)
    X, bins = table.drop_columns("y"), binned.drop_columns("y")
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(bins), atol=1e-8)
    assert not model.schema_.numeric
    assert (interactions is None) == (not pairs(model))


def test_discretize__a_missing_number_adds_nothing() -> None:
    table = rows()
    model = LR(discretize="quantile", interactions=[("a", "z")]).fit(table, "y")
    gone = pa.table({"a": ["a1"], "b": ["b1"], "c": ["c1"], "d": ["d1"], "e": ["e0"],
                     "z": pa.array([None], pa.float64())})  # fmt: skip
    of_z = [i for i, (name, _) in enumerate(model.coef_names_) if name == "z" or "z" in name[1:]]
    here = [model.coef_names_.index((name, f"{name}{v}"))
            for name, v in zip(NAMES, "11110", strict=True)]  # fmt: skip
    assert not {*here} & {*of_z}
    score = model.intercept_ + model.coef_[:, here].sum(axis=1)
    joint = model.log_joint(gone)[0]
    np.testing.assert_allclose(joint - joint.mean(), score, atol=1e-9)


# -- what every model does ---------------------------------------------------------------------


OPTIONS: list[dict[str, Any]] = [
    {"interactions": "all"},
    {"interactions": 2, "discretize": "mdl"},
    {"interactions": "all", "discretize": ("quantile", 4), "missing": "category"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_kept_and_cloned(options: Any, tmp_path: Any) -> None:
    table = rows(missing=True)
    model = LR(**options).fit(table, "y")
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.get_params() == model.get_params() == clone(model).get_params()
    assert again.coef_names_ == model.coef_names_
    X = table.drop_columns("y")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    # What a pair adds is half of either column.
    said = model.explain(X.slice(0, 20))
    joint = said.contributions.sum(axis=1) + said.prior
    np.testing.assert_allclose(joint, model.log_joint(X.slice(0, 20)), atol=1e-9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_keep_the_pairs_of_the_first_one(options: Any) -> None:
    table = rows(3_000, missing=True)
    whole = LR(**options).fit(table, "y")
    one = LR(**options).partial_fit(table, "y")
    np.testing.assert_array_equal(one.coef_, whole.coef_)
    model = LR(**options).partial_fit(table.slice(0, 1_500), "y")
    before = pairs(model)
    # A value more, a second value of a column that had one, and columns in another order.
    rest = table.slice(1_500)
    rest = rest.set_column(4, "e", pa.array(["e1", *rest["e"].to_pylist()[1:]]))
    rest = rest.set_column(0, "a", pa.array(["a9", *rest["a"].to_pylist()[1:]]))
    model.partial_fit(rest.select(rest.column_names[::-1]), "y")
    assert pairs(model) == before
    X = table.drop_columns("y")
    far = np.abs(model.predict_proba(X) - whole.predict_proba(X)).mean()
    assert far < 0.05


@pytest.mark.parametrize("interactions", ["all", 2])
def test_weight_2_is_twice(interactions: Any) -> None:
    table = rows(200, missing=True)
    weight = np.random.default_rng(0).integers(0, 3, 200)
    twice = table.take(np.repeat(np.arange(200), weight))
    options: dict[str, Any] = {"interactions": interactions, "discretize": {"z": [0.0]}}
    one = LR(**options, tol=1e-10).fit(table, "y", sample_weight=weight)
    two = LR(**options, tol=1e-10).fit(twice, "y")
    assert one.coef_names_ == two.coef_names_
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-6)


def test_room__is_refused_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.integers(0, 60, 500).astype(str) for name in "abcd"}
                     | {"y": rng.integers(0, 2, 500)})  # fmt: skip
    with pytest.raises(fb.MemoryLimitError, match=r"coefficients need.*interactions.*memory_limit"):
        LR(interactions="all", memory_limit=1_000_000).fit(table, "y")
    with pytest.raises(fb.MemoryLimitError, match="counting pairs needs"):
        LR(interactions=2, memory_limit=300_000).fit(table, "y")
