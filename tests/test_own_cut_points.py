"""`compare` and `Blend` with models that cut numeric columns otherwise than the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb

OWN: dict[str, Any] = {
    "tan": fb.TAN(discretize=("quantile", 5)),
    "aode": fb.AODE(discretize=("width", 4)),
    "kdb": fb.KDB(discretize={"z0": [0.0], "z1": "quantile"}),
    "logistic": fb.LogisticRegression(discretize=("quantile", 3), interactions="all"),
}


def rows(n: int = 300, seed: int = 0) -> pa.Table:
    """Return a table whose class two numbers tell together alone; some of them are missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(3, n))
    y = np.where((z[0] > 0) ^ (z[1] > 0) ^ (rng.random(n) < 0.05), "p", "q")
    a = np.where(rng.random(n) < 0.6, y, rng.choice([*"pqr"], n))
    columns = {f"z{j}": pa.array(x, mask=rng.random(n) < 0.05) for j, x in enumerate(z)}
    # A categorical column between the numbers: places of columns differ from model to model.
    return pa.table({"z0": columns["z0"], "a": a, "z1": columns["z1"], "z2": columns["z2"], "y": y})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("discretize", ["mdl", {"z0": [0.2], "z1": [-0.1], "z2": []}])
def test_compare__figures_are_those_of_each_model_alone(discretize: Any, weighted: bool) -> None:
    table = rows()
    weight = np.random.default_rng(1).integers(0, 3, len(table)) if weighted else None
    options: dict[str, Any] = {"sample_weight": weight}
    models = {**OWN, "shared": "tan", "naive": "naive-bayes"}
    board = fb.compare(table, "y", models=models, discretize=discretize, folds=4, **options)
    for name, model in OWN.items():
        alone = fb.k_fold(model, table, "y", folds=4, **options)
        assert board[name].figures.log_loss == pytest.approx(alone.log_loss, rel=1e-9)
        assert board[name].figures.accuracy == alone.accuracy
        whole = type(model)(**model.get_params(deep=False)).fit(table, "y", **options)
        X = table.drop_columns("y")
        found = board[name].model
        found = found.model_ if board[name].winner else found  # without its temperature
        np.testing.assert_allclose(found.predict_proba(X), whole.predict_proba(X))
    shared = fb.TAN(discretize=discretize)
    alone = fb.k_fold(shared, table, "y", folds=4, **options)
    assert board["shared"].figures.log_loss == pytest.approx(alone.log_loss, rel=1e-9)


@pytest.mark.parametrize("missing", ["marginalize", "category"])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out__is_that_of_each_model_alone(missing: str, weighted: bool) -> None:
    table = rows()
    if weighted:
        weight = np.random.default_rng(1).choice([0, 0.3, 1, 2.5], len(table))
        table = table.append_column("w", pa.array(weight))
    how: dict[str, Any] = {"sample_weight": "w" if weighted else None, "missing": missing}
    models = {name: OWN[name] for name in ("tan", "aode", "kdb")}
    models = {
        n: type(m)(**m.get_params(deep=False) | {"missing": missing}) for n, m in models.items()
    }
    models["joint"] = fb.JointBayes(discretize=("quantile", 5), missing=missing)
    board = fb.compare(
        table, "y", models={**models, "naive": "naive-bayes"}, validation="leave_one_out", **how
    )
    for name, model in models.items():
        whole = type(model)(**model.get_params(deep=False))
        whole.fit(table, "y", sample_weight=how["sample_weight"])
        alone = fb.leave_one_out(
            model, whole.statistics_, table, sample_weight=how["sample_weight"]
        )
        figures = board[name].figures
        assert figures.log_loss == pytest.approx(alone.log_loss, rel=1e-9)
        np.testing.assert_array_equal(figures.confusion, alone.confusion)
        assert "cut points" in board[name].scored


@pytest.mark.parametrize("discretize", ["mdl", {"z0": [0.2], "z1": [-0.1], "z2": []}])
@pytest.mark.parametrize("validation", ["k_fold", "leave_one_out"])
def test_scans__are_those_of_a_rule_not_of_a_model(validation: str, discretize: Any) -> None:
    table = rows(5_000)

    def scans(models: Any) -> float:
        read: list[int] = []
        options: dict[str, Any] = {"discretize": discretize, "progress": read.append}
        fb.compare(table, "y", models=models, validation=validation, **options)
        return sum(read) / len(table)

    tree, average = (make(discretize=("quantile", 5)) for make in (fb.TAN, fb.AODE))
    plain = scans(["tan"])
    one, both = scans(["tan", tree]), scans(["tan", tree, average])
    assert both == pytest.approx(one)
    # Besides cut points that the others do not need: the counts of all rows, and without each fold.
    counts, cuts = (1 + 4, 2) if validation == "k_fold" else (1, 1)
    assert one == pytest.approx(plain + counts + cuts * (discretize != "mdl"))
    # Cut points that are given need no rows, and counts without a fold are subtracted.
    given = fb.TAN(discretize={"z0": [0.5], "z1": [0.0], "z2": [0.0]})
    assert scans(["tan", given]) == pytest.approx(plain + 1)


def test_a_rule_that_cannot_be_used__does_not_end_the_others() -> None:
    table = rows()
    models = {"tan": "tan", "own": OWN["tan"], "of z9": fb.TAN(discretize={"z9": [0.0]})}
    models["no rule"] = fb.TAN(discretize=object())
    models["categorical"] = fb.TAN(discretize=("quantile", 5), categorical=["z0"])
    board = fb.compare(table, "y", models=models)
    assert {entry.name for entry in board.entries if entry.figures is not None} == {"tan", "own"}
    assert "use 'mdl', 'quantile'" in board["no rule"].reason
    assert "there is no column 'z9'" in board["of z9"].reason
    assert "counted with column 'z0' as numeric" in board["categorical"].reason


def test_memory__pairs_that_do_not_fit_are_counted_by_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    y = rng.choice(["p", "q"], 500)
    numbers = {f"z{j}": rng.normal(size=500) for j in range(12)}
    table = pa.table({**numbers, "y": y})
    models = {"tree": fb.TAN(discretize=("quantile", 40)), "naive": "naive-bayes"}
    narrow, wide = (
        fb.compare(table, "y", models=models, memory_limit=m) for m in (2_000_000, None)
    )
    assert narrow["tree"].memory < wide["tree"].memory
    for name in models:
        loss = wide[name].figures.log_loss
        assert narrow[name].figures.log_loss == pytest.approx(loss, rel=1e-9)


def test_race__takes_place_in_own_cut_points(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastbayes.evaluation.validate import race

    table = rows(6_000)
    monkeypatch.setattr(race, "LEAST_ROWS", 1_000)
    models = {"own": OWN["tan"], "tan": "tan", "prior": "prior"}
    raced, whole = (fb.compare(table, "y", models=models, race=race) for race in (True, False))
    assert raced.best.name == whole.best.name == "own"
    assert raced.best.figures.log_loss == pytest.approx(whole.best.figures.log_loss, rel=1e-12)


def test_blend__scores_and_keeps_members_of_several_cut_points(tmp_path: Any) -> None:
    table, new = rows(), rows(200, 1)
    blend = fb.Blend({"own": OWN["tan"], "tan": "tan", "logistic": "logistic"}).fit(table, "y")
    alone = fb.TAN(discretize=("quantile", 5)).fit(table, "y")
    X = new.drop_columns("y")
    member = blend.members_["own"].model
    np.testing.assert_array_equal(member.predict_proba(X), alone.predict_proba(X))
    assert blend.members_["own"].weight > 0.5
    assert blend.score(X, new["y"]) > 0.8
    blend.save(tmp_path / "b.fb")
    again = fb.load(tmp_path / "b.fb")
    np.testing.assert_array_equal(again.predict_proba(X), blend.predict_proba(X))
    said = blend.explain(X)
    joint = said.contributions.sum(axis=1) + said.prior + said.remainder
    np.testing.assert_allclose(joint, np.log(blend.predict_proba(X)), atol=1e-9)


def test_members_unasked__know_what_two_numbers_tell_together() -> None:
    table, new = rows(), rows(400, 1)
    blend = fb.fit(table, "y")
    losses = blend.member_log_loss_
    assert losses["tan-quantile"] < 0.8 * losses["tan"]
    assert blend.score(new.drop_columns("y"), new["y"]) > 0.8


def test_shuffled_classes__nothing_is_learned_from_the_rows_that_are_scored() -> None:
    table = rows(400)
    shuffled = np.random.default_rng(2).permutation(table["y"].to_numpy(zero_copy_only=False))
    table = table.set_column(4, "y", pa.array(shuffled))
    board = fb.compare(table, "y", models={**OWN, "prior": "prior"}, folds=4)
    for name in OWN:
        assert board[name].figures.log_loss > board["prior"].figures.log_loss - 0.01


@pytest.mark.parametrize(
    "rule", [("quantile", 4), {"z0": ("width", 3), "z1": [0.0, 1.0], "z2": "mdl"}, "width"]
)
def test_file__has_the_rule_as_it_was(rule: Any, tmp_path: Any) -> None:
    table = rows(60)
    for model in (fb.AODE(discretize=rule), fb.Blend(["tan", "naive-bayes"], discretize=rule)):
        model.fit(table, "y").save(tmp_path / "m.fb", force=True)
        assert fb.load(tmp_path / "m.fb").discretize == rule


SOME = {
    "learned": {"z0": "mdl"},
    "given": {"z0": [0.0, 1.0]},
    "given and learned": {"z0": [0.0], "z1": "mdl", "z2": "mdl"},
    "beside kernels": {"z0": [0.0], "z1": "kde", "z2": "mdl"},
}


@pytest.mark.parametrize("discretize", ["mdl", ("quantile", 3)], ids=str)
def test_naive_bayes__of_bins_of_some_columns_is_what_it_is_alone(discretize: Any) -> None:
    table = rows()
    models = {name: fb.NaiveBayes(numeric=numeric) for name, numeric in SOME.items()}
    board = fb.compare(
        table, "y", models=models | {"tan": "tan"}, folds=4, discretize=discretize, race=False
    )
    for name, model in models.items():
        alone = fb.k_fold(model, table, "y", folds=4)
        assert board[name].figures.log_loss == pytest.approx(alone.log_loss, rel=1e-9), name
        found = getattr(board[name].model, "model_", board[name].model)
        assert found.numeric == model.numeric
        assert found.numeric_ == model.fit(table, "y").numeric_
        (left,) = fb.compare(
            table, "y", models=[model], validation="leave_one_out", discretize=discretize
        ).entries
        fitted = fb.NaiveBayes(**model.get_params()).fit(table, "y")
        apart = fb.leave_one_out(fitted, fitted.statistics_, table)
        assert left.figures.log_loss == pytest.approx(apart.log_loss, rel=1e-9), name
    blend = fb.Blend(models, discretize=discretize).fit(table, "y")
    assert all("below 1 % in both pools" in why for why in blend.dropped_.values())


@pytest.mark.parametrize("columns", [["z0", "a"], ["a"]])
def test_naive_bayes__of_bins_of_what_is_no_number_says_so(columns: list[str]) -> None:
    models = {"tan": "tan", "z9": fb.NaiveBayes(numeric={"z9": "mdl"})}
    models["a"] = fb.NaiveBayes(numeric={"a": [0.0]})
    board = fb.compare(rows(), "y", models=models, columns=columns)
    assert "numeric: there is no column 'z9'" in board["z9"].reason
    assert "numeric: column 'a' is categorical" in board["a"].reason
    assert not board["tan"].reason
