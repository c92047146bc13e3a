"""LogisticRegression with interactions that the data choose, of numbers in bins, too."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import parquet, run
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
    codes = dict(zip(NAMES, (a, b, c, d, 0 * a), strict=True))
    columns = {name: [f"{name}{v}" for v in x] for name, x in codes.items()}
    for name in NAMES[:4] if missing else ():
        known = rng.random(n) > 0.15
        columns[name] = [v if here else None for v, here in zip(columns[name], known, strict=True)]
    return pa.table({**columns, "z": rng.normal(size=n), "y": y})


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


@pytest.mark.parametrize("some", ["all", "auto", 6, 50])
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


@pytest.mark.parametrize("some", ["all", 3, "auto"])
def test_without_a_pair__is_said_and_the_plain_model(some: Any) -> None:
    table = rows().select(["a", "e", "z", "y"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = LR(interactions=some).fit(table, "y")
    np.testing.assert_array_equal(model.coef_, LR().fit(table, "y").coef_)
    if some == "auto":
        assert not said
    else:
        assert "no two categorical columns have two values" in str(said[0].message)
        assert "discretize='mdl'" in str(said[0].message)


@pytest.mark.parametrize("k", [2, 3])
def test_auto__takes_the_best_pairs_that_take_little_time(k: int) -> None:
    """In turn those of most information, where rows + S_i S_j times outputs are not too many."""
    rng = np.random.default_rng(0)
    n, sizes = 6_000, dict(zip("abcdefg", (2, 2, 3, 4, 5, 150, 180), strict=True))
    columns = {name: rng.integers(0, size, n) for name, size in sizes.items()}
    chance = sum((columns[u] + columns[v]) % 2 for u, v in ("ab", "cd", "ce", "fg"))
    y = (chance + 2 * rng.random(n)).astype(int) % k
    table = pa.table({name: x.astype(str) for name, x in columns.items()} | {"y": y})
    model = LR(interactions="auto", tol=1.0).fit(table, "y")
    outputs = 1 if k == 2 else k
    most, spent, expected = max(2**17, n * len(sizes) * outputs), 0, set()
    together = sorted(combinations(sizes, 2), key=lambda p: -worth(table, *p, category=False))
    for u, v in together:
        if spent + (price := (n + sizes[u] * sizes[v]) * outputs) <= most:
            spent, _ = spent + price, expected.add(frozenset((u, v)))
    assert pairs(model) == expected
    assert frozenset("fg") not in expected or k == 2
    assert 4 <= len(expected) < len(together)


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
    {"interactions": "auto"},
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


# -- beside other models -----------------------------------------------------------------------


def test_compare_and_blend__judge_it_by_folds(tmp_path: Any) -> None:
    table = rows(300)
    options: dict[str, Any] = {"interactions": "auto", "discretize": "mdl", "C": 10.0, "tol": 0.3}
    board = fb.compare(table, "y", models=["logistic-pairs", "logistic", "tan"], folds=5)
    alone = fb.k_fold(LR(**options), table, "y", folds=5)
    assert board["logistic-pairs"].figures.log_loss == pytest.approx(alone.log_loss, abs=1e-3)
    assert pairs(board["logistic-pairs"].model) > {frozenset("ab")}
    # What the scan that is shared has counted chooses the pairs, as a scan of its own does.
    few = {"few": LR(interactions=2, discretize={"z": [0.0]})}
    chosen = fb.compare(table, "y", models={**few, "tan": "tan"}, discretize={"z": [0.0]})
    assert pairs(chosen["few"].model) == pairs(few["few"].fit(table, "y"))
    blend = fb.Blend(["naive-bayes", "logistic-pairs"]).fit(table, "y")
    assert blend.members_["logistic-pairs"].weight > 0.5
    assert {**blend.members_["logistic-pairs"].model.get_params()}.items() >= options.items()
    blend.save(tmp_path / "b.fb")
    X = table.drop_columns("y")
    again = fb.load(tmp_path / "b.fb").predict_proba(X)
    np.testing.assert_array_equal(again, blend.predict_proba(X))


def test_members_unasked__know_what_only_two_columns_tell() -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, (900, 5))
    y = np.where((X[:, 0] == X[:, 1]) | (X[:, 2] == X[:, 3]), "p", "q")
    table = pa.table({f"x{j}": x.astype(str) for j, x in enumerate(X.T)} | {"y": y})
    blend = fb.fit(table.slice(0, 500), "y")
    assert blend.member_log_loss_["logistic-pairs"] < 0.2 < blend.member_log_loss_["logistic"]
    new = table.slice(500)
    assert blend.score(new.drop_columns("y"), new["y"]) > 0.97


def test_command_line(tmp_path: Any) -> None:
    data, out = parquet(rows(200), tmp_path / "d.parquet"), tmp_path / "m.fb"
    for given, interactions in (("all", "all"), ("2", 2), ("auto", "auto"), ("a:b", [("a", "b")])):
        run("fit", data, "--target", "y", "--model", "logistic", "--interactions", given,
            "--discretize", "quantile", "-o", out, "--force")  # fmt: skip
        same = LR(interactions=interactions, discretize="quantile").fit(str(data), "y")
        model = fb.load(out)
        assert model.interactions == interactions
        np.testing.assert_array_equal(model.coef_, same.coef_)
