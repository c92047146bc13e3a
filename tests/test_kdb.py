"""k-dependence Bayes: its structure, its numbers, what is summed out, and its laws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import kdb as naive

import fastbayes as fb
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.models.estimator.base import Scans
from fastbayes.networks.infer import inference, scorer

NAMES = ["a", "b", "c", "d", "e"]


def table_of(rows: list[dict[str, Any]], classes: list[str] | None = None) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]}
    return pa.table(columns if classes is None else {**columns, "y": classes})


def draw(seed: int, n: int = 60, holes: float = 0.0) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows in which every column depends on those before it, and their classes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, len(NAMES))
    rows, classes = [], []
    for _ in range(n):
        c, values = int(rng.integers(0, 3)), []
        for size in sizes:
            pull = (c + sum(values[-2:])) % size
            values.append(int(pull if rng.random() < 0.6 else rng.integers(0, size)))
        gone = rng.random(len(NAMES)) < holes
        rows.append(
            {j: None if g else f"v{v}" for j, v, g in zip(NAMES, values, gone, strict=True)}
        )
        classes.append("pqr"[c])
    return rows, classes


def fitted(rows: Any, classes: Any, weights: Any = None, **options: Any) -> fb.KDB:
    return fb.KDB(**options).fit(table_of(rows, classes), "y", sample_weight=weights)


def oracle(model: fb.KDB, rows: Any, classes: Any, weights: Any = None) -> naive.KDB:
    twin = naive.KDB(model.parents_, alpha=model.alpha, as_value=model.missing == "category")
    return twin.fit(rows, classes, weights)


def joints(twin: naive.KDB, rows: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(np.array([[float(p) for p in twin.joint(row)] for row in rows]))


# -- structure and numbers ---------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), k=st.integers(0, 4), holes=st.sampled_from([0.0, 0.2]))
def test_structure__is_sahamis(seed: int, k: int, holes: float) -> None:
    rows, classes = draw(seed, holes=holes)
    model = fitted(rows, classes, k=k)
    expected = naive.structure(rows, classes, NAMES, k)
    assert model.parents_ == expected
    assert list(model.parents_) == list(expected)
    assert model.statistics_.families.families == [
        tuple(NAMES.index(i) for i in (*up, j)) for j, up in expected.items()
    ]


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(0, 4),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    holes=st.sampled_from([0.0, 0.15, 0.5]),
    missing=st.sampled_from(["marginalize", "category"]),
)
def test_log_joint__is_the_sum_over_all_completions(
    kernels: str, seed: int, k: int, alpha: float, holes: float, missing: str
) -> None:
    rows, classes = draw(seed, 40, holes)
    weights = np.random.default_rng(seed).integers(0, 4, 40) / 2
    weights[0] += not weights.any()
    model = fitted(rows, classes, weights, k=k, alpha=alpha, missing=missing)
    asked, _ = draw(seed + 1, 30, holes)
    asked[0]["a"] = "never seen"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTBAYES_KERNELS", kernels)
        found = model.log_joint(table_of(asked))
        posterior, best = model.predict_proba(table_of(asked)), model.predict(table_of(asked))
    expected = joints(oracle(model, rows, classes, weights), asked)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    prior = np.exp(model.class_log_prior_)
    joint = np.exp(expected)
    joint = np.where(joint.sum(axis=1, keepdims=True) > 0, joint, prior)
    np.testing.assert_allclose(
        posterior, joint / joint.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-12
    )
    picked = joint[np.arange(30), np.searchsorted(model.classes_, best)]
    np.testing.assert_allclose(picked, joint.max(axis=1), rtol=1e-12)


@pytest.mark.parametrize("unseen", ["smooth", "error"])
def test_unseen__is_smoothed_or_refused(unseen: str) -> None:
    rows, classes = draw(3)
    model = fitted(rows, classes, k=2, unseen=unseen, alpha=0.5)
    asked = [{**rows[0], "c": "new"}]
    if unseen == "error":
        with pytest.raises(DataError, match="'new'"):
            model.log_joint(table_of(asked))
        return
    twin = oracle(model, rows, classes)
    cells = asked[0]
    expected = [
        np.log(float(twin.prior(c)))
        + sum(np.log(float(twin.given(j, cells, c))) for j in model.parents_)
        for c in twin.classes
    ]
    np.testing.assert_allclose(model.log_joint(table_of(asked))[0], expected, rtol=1e-12)


@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_joint__sums_to_one_over_all_rows(k: int) -> None:
    rows, classes = draw(5)
    model = fitted(rows, classes, k=k)
    domains = [sorted({row[j] for row in rows}) for j in NAMES]
    grid = np.stack([g.ravel() for g in np.meshgrid(*domains, indexing="ij")], axis=1)
    whole = [dict(zip(NAMES, row, strict=True)) for row in grid.tolist()]
    assert np.exp(model.log_joint(table_of(whole))).sum() == pytest.approx(1, abs=1e-12)
    assert model.log_evidence(table_of([dict.fromkeys(NAMES)])) == pytest.approx(0, abs=1e-12)


def test_k_of_zero_and_one__are_naive_bayes_and_the_tree_that_is_told() -> None:
    rows, classes = draw(8)
    X = table_of(rows)
    plain = fb.NaiveBayes().fit(table_of(rows, classes), "y")
    np.testing.assert_allclose(
        fitted(rows, classes, k=0).log_joint(X), plain.log_joint(X), rtol=1e-12
    )
    first = fitted(rows, classes, k=1)
    assert all(len(up) <= 1 for up in first.parents_.values())


def test_k_beyond_the_columns__is_the_joint_of_all() -> None:
    rows, classes = draw(9)
    most, enough = (fitted(rows, classes, k=k) for k in (99, 4))
    np.testing.assert_array_equal(most.log_joint(table_of(rows)), enough.log_joint(table_of(rows)))
    # At alpha 0 the chain of everything is the table of relative frequencies.
    sharp = fitted(rows, classes, k=4, alpha=0)
    same = [
        sum(r == row and c == label for r, c in zip(rows, classes, strict=True)) / len(rows)
        for row, label in zip(rows, classes, strict=True)
    ]
    found = np.exp(sharp.log_joint(table_of(rows)))
    at = np.searchsorted(sharp.classes_, classes)
    np.testing.assert_allclose(found[np.arange(len(rows)), at], same, rtol=1e-12)


def test_empty_columns__take_no_part() -> None:
    rows, classes = draw(4)
    with_void = [{"A": None, **row} for row in rows]
    model, plain = fitted(with_void, classes, k=4), fitted(rows, classes, k=4)
    assert model.parents_ == {**plain.parents_, "A": ()}
    asked = [{**row, "A": v} for row, v in zip(rows, [None, "x"] * 30, strict=True)]
    np.testing.assert_allclose(
        model.log_joint(table_of(asked)), plain.log_joint(table_of(rows)), rtol=1e-12
    )


# -- what is summed out ------------------------------------------------------------------------


def test_hidden_parents__may_be_summed_out_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, classes = draw(0, 200)
    model = fitted(rows, classes, k=4)
    asked = [{**dict.fromkeys(NAMES), list(model.parents_)[-1]: "v0"}]
    expected = model.log_joint(table_of(asked))
    monkeypatch.setattr(scorer, "CELLS", 1)
    np.testing.assert_array_equal(model.log_joint(table_of(asked)), expected)


def test_rows_may_be_told_apart_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, classes = draw(3, 300, 0.4)
    model = fitted(rows, classes, k=3)
    expected = model.log_joint(table_of(rows))
    monkeypatch.setattr(scorer, "SMALL", 0)
    np.testing.assert_allclose(model.log_joint(table_of(rows)), expected, rtol=1e-12)


def test_elimination__takes_the_smallest_table_first() -> None:
    # A chain 0 - 1 - 2 - 3: from its ends no table is larger than two neighbours.
    chain = [(0, 1), (1, 2), (2, 3)]
    order = inference.best_order(chain, dict.fromkeys(range(4), 10), range(4))
    assert order.cells == pytest.approx(100)
    assert sorted(order.nodes) == [0, 1, 2, 3]
    # A star whose middle is eliminated first would join all its leaves.
    star = [(0, 4), (1, 4), (2, 4), (3, 4)]
    order = inference.best_order(star, dict.fromkeys(range(5), 10), range(5))
    assert order.cells == pytest.approx(100)
    assert order.nodes.index(4) >= 3


# -- learning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NaiveBayes", "TAN", "KDB", "LogisticRegression"])
def test_partial_fit__names_the_column_that_a_batch_has_more_or_less(name: str) -> None:
    y = [*"ab"] * 10
    first = {"u": np.arange(20.0), "v": np.arange(20.0) % 7}
    model = getattr(fb, name)().partial_fit(first, y)
    with pytest.raises(fb.SchemaError, match=r"batch differ .*: column 'u' is missing; .*'v'\]"):
        model.partial_fit({"q": first["u"], "v": first["v"]}, y)
    with pytest.raises(fb.SchemaError, match=r"batch differ .*: column 'q' is new"):
        model.partial_fit({**first, "q": first["u"]}, y)


def test_partial_fit__keeps_the_structure_of_the_first_batch() -> None:
    rows, classes = draw(1, 90, 0.1)
    parts = [slice(0, 50), slice(50, 51), slice(51, 90)]
    model = fb.KDB(k=2)
    for part in parts:
        turned = table_of(rows[part], classes[part])
        if part.start:
            turned = turned.select(turned.column_names[::-1])
        model.partial_fit(turned, "y")
    first = fitted(rows[:50], classes[:50], k=2)
    assert model.parents_ == first.parents_
    names = [(*up, j) for j, up in first.parents_.items()]
    counted = fb.count(table_of(rows, classes), "y", families=names, moments=False)
    assert model.statistics_ == counted
    again = fb.KDB(k=2).fit_statistics(counted)
    np.testing.assert_array_equal(again.log_joint(table_of(rows)), model.log_joint(table_of(rows)))
    # ... and fit begins anew.
    model.fit(table_of(rows[::-1], classes[::-1]), "y")
    assert model.parents_ == fitted(rows, classes, k=2).parents_


def test_fit_statistics__says_which_families_to_count() -> None:
    rows, classes = draw(2)
    data, model = table_of(rows, classes), fb.KDB(k=3)
    pairs = fb.count(data, "y", pairs=True)
    with pytest.raises(SchemaError, match=r"KDB\(k=3\).*again with families=model.families"):
        model.fit_statistics(pairs)
    with pytest.raises(SchemaError, match="count pairs=True for the structure, then again"):
        model.fit_statistics(fb.count(data, "y"))
    counted = fb.count(data, "y", families=model.families(pairs))
    model.fit_statistics(counted)
    X = table_of(rows)
    np.testing.assert_array_equal(model.log_joint(X), fitted(rows, classes, k=3).log_joint(X))
    for k in (0, 1, 2):
        # Fewer parents are the first ones: the others are summed over.
        fewer, direct = fb.KDB(k=k).fit_statistics(counted), fitted(rows, classes, k=k)
        assert fewer.parents_ == direct.parents_
        np.testing.assert_array_equal(fewer.log_joint(X), direct.log_joint(X))
        if k < 2:
            np.testing.assert_array_equal(
                fb.KDB(k=k).fit_statistics(pairs).log_joint(X), direct.log_joint(X)
            )


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ([("a",), ("b", "a"), ("b",)], "'a' has two families"),
        ([("a", "b"), ("a",)], "'a' is a parent of 'b', but has no family before it"),
    ],
)
def test_families_of_no_network__are_refused(families: Any, message: str) -> None:
    rows, classes = draw(2)
    with pytest.raises(SchemaError, match=message):
        fb.KDB().fit_statistics(fb.count(table_of(rows, classes), "y", families=families))


def test_one_shot_streams__are_for_one_parent() -> None:
    rows, classes = draw(2)
    data = table_of(rows, classes)
    fb.KDB(k=1).fit(data.to_reader(), "y")
    with pytest.raises(SchemaError, match="can be read only once, but KDB"):
        fb.KDB(k=2).fit(data.to_reader(), "y")


def test_data_that_change_between_the_scans__are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, classes = draw(2)
    count = Scans.count

    def changing(scans: Any, model: Any, wanted: Any, known: Any = None, **how: Any) -> Any:
        stats = count(scans, model, wanted, known, **how)
        if known is None:
            return stats
        return replace(stats, parts={**stats.parts, "values": stats.values * 2.0})

    monkeypatch.setattr(Scans, "count", changing)
    with pytest.raises(DataError, match="changed while it was read"):
        fb.KDB().fit(table_of(rows, classes), "y")


def test_many_rows__are_scored_as_few() -> None:
    rows, classes = draw(7, 400, 0.05)
    model = fitted(rows, classes, k=3)
    X = table_of(rows)
    # The compiled path, which a large job takes.
    large = pa.concat_tables([X] * 110)
    found = model.predict_proba(large).reshape(110, 400, 3)
    np.testing.assert_allclose(found, model.predict_proba(X)[None].repeat(110, 0), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(large)[:400], model.predict(X))
    fast = fitted(rows, classes, k=3, precision="fast")
    np.testing.assert_allclose(fast.predict_proba(large)[:400], found[0], atol=1e-5)


# -- answers -----------------------------------------------------------------------------------


def test_sample__comes_back_as_the_model() -> None:
    rows, classes = draw(13, 300)
    model = fitted(rows, classes, k=3)
    drawn = model.sample(40_000, seed=1)
    assert drawn.column_names == [*NAMES, "y"]
    assert drawn.equals(model.sample(40_000, seed=1))
    names = [(*up, j) for j, up in model.parents_.items()]
    counted = fb.count(drawn, "y", families=names)
    again = fb.KDB(k=3, alpha=0).fit_statistics(counted)
    X = table_of(rows)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=0.1)
    share = np.exp(again.log_evidence(X)), np.exp(model.log_evidence(X))
    np.testing.assert_allclose(*share, atol=0.01)


def test_describes_itself(tmp_path: Path) -> None:
    rows, classes = draw(14)
    model = fitted(rows, classes, k=2)
    sizes = {j: len({row[j] for row in rows}) for j in NAMES}
    free = sum(
        3 * (sizes[j] - 1) * int(np.prod([sizes[p] for p in up]))
        for j, up in model.parents_.items()
    )
    assert model.n_parameters_ == 2 + free
    dot = model.to_dot()
    assert all(f'"{p}" -> "{j}";' in dot for j, up in model.parents_.items() for p in up)
    assert dot.count("->") == len(NAMES) + sum(map(len, model.parents_.values()))
    model.set_params(k=1).save(tmp_path / "m.fb")
    # Parameters set later take effect when it is loaded: what was counted has more parents.
    loaded = fb.load(tmp_path / "m.fb")
    assert loaded.parents_ == fitted(rows, classes, k=1).parents_


@pytest.mark.parametrize("k", [-1, 1.5, True, "2", None])
def test_k__is_a_whole_number(k: Any) -> None:
    rows, classes = draw(14)
    with pytest.raises(ValueError, match="use a whole number >= 0"):
        fitted(rows, classes, k=k)


@pytest.mark.parametrize("k", [1, 2])
def test_pairs_that_do_not_fit__are_counted_in_several_scans(
    k: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{j:02}": pa.array(rng.integers(0, 4, 300).astype(str)) for j in range(16)}
    data = pa.table({**columns, "y": rng.choice(["p", "q", "r"], 300)})
    caplog.set_level("INFO", "fastbayes")
    model = fb.KDB(k, memory_limit=75_000, threads=1).fit(data, "y")
    assert "the structure is found in several scans" in caplog.text
    whole = fb.KDB(k).fit(data, "y")
    assert model.parents_ == whole.parents_
    assert model.statistics_ == whole.statistics_


def test_no_parents__takes_no_pairs() -> None:
    rows, classes = draw(15)
    data = table_of(rows, classes)
    plain = fb.KDB(0).fit_statistics(fb.count(data, "y", moments=False))
    np.testing.assert_array_equal(
        plain.log_joint(table_of(rows)), fitted(rows, classes, k=0).log_joint(table_of(rows))
    )


def test_memory_limit__names_the_family() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({n: rng.integers(0, 30, 2000).astype(str) for n in NAMES})
    y = rng.choice(["p", "q"], 2000)
    fb.KDB(k=1, memory_limit=2_000_000).fit(table, y)
    with pytest.raises(MemoryLimitError, match=r"counting families needs [\d,]+ bytes.*column '"):
        fb.KDB(k=3, memory_limit=2_000_000).fit(table, y)


# -- leave-one-out -----------------------------------------------------------------------------


@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out__is_refitting_without_the_row(
    monkeypatch: pytest.MonkeyPatch, kernels: str, holes: float, weighted: bool
) -> None:
    rows, classes = draw(21, 50, holes)
    weights = np.random.default_rng(0).integers(1, 6, 50) / 4 if weighted else None
    data, X = table_of(rows, classes), table_of(rows)
    model = fitted(rows, classes, weights, k=3)
    told = {"families": [(*up, j) for j, up in model.parents_.items()], "moments": False}
    stats = fb.count(data, "y", sample_weight=weights, **told)
    found = fb.leave_one_out(fb.KDB(3), stats, data, sample_weight=weights)
    assert found.fixed == ("schema", "structure")
    for r in range(50):
        gone = np.array([1.0 if weights is None else min(weights[r], 1.0)])
        one = fb.count(
            data.slice(r, 1), "y", sample_weight=None if weights is None else gone, **told
        ).aligned(stats.schema)
        rest = {name: part - one.parts[name] for name, part in stats.parts.items()}
        left = fb.KDB(3).fit_statistics(replace(stats, parts=rest))
        np.testing.assert_allclose(found.proba[r], left.predict_proba(X.slice(r, 1))[0], atol=1e-12)
