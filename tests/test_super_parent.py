"""What SPODE and TAN choose by leaving rows out: the super-parent, and alpha (SEMANTICS §5, §9)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparing import close
from refitting import TARGET, WEIGHT, counted, random_rows

import fastbayes as fb
from fastbayes.data.encode import Encoder, Place
from fastbayes.data.folds import FoldsByPlace
from fastbayes.data.source import open_for
from fastbayes.models.leave_one_out.loo import unfitted_loo_scorer

pytestmark = pytest.mark.usefixtures("kernels")


WEIGHTS = [None, (0.3, 1.0, 2.5)]
NAMES = ["x0", "x1", "x2", "rare"]


def weight_of(table: pa.Table) -> str | None:
    return WEIGHT if WEIGHT in table.column_names else None


def fit(table: pa.Table, **params: Any) -> Any:
    return fb.SPODE(**params).fit(table, TARGET, sample_weight=weight_of(table))


def dependent_rows(seed: int, n: int = 60, weights: Any = None) -> pa.Table:
    """Return rows in which one column, another one for each seed, moves the others."""
    rng = np.random.default_rng(seed)
    table, parent = random_rows(seed, n, weights=weights), NAMES[seed % 3]
    for name in NAMES[:3]:
        if name != parent:
            mixed = [
                v if rng.random() < 0.3 else {"a": "u", None: None}.get(p, f"{p}-{c}")
                for v, p, c in zip(
                    table[name].to_pylist(),
                    table[parent].to_pylist(),
                    table[TARGET].to_pylist(),
                    strict=True,
                )
            ]
            table = table.set_column(table.column_names.index(name), name, pa.array(mixed))
    return table


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("alpha", [1, 0.1])
def test_loo__is_the_least_leave_one_out_log_loss(alpha: float, weights: Any) -> None:
    chosen = set()
    for seed in range(4):
        table = dependent_rows(seed, 30, weights)
        stats = counted(table, pairs=True)
        losses = {}
        for name in NAMES:  # held against refitting in test_leave_one_out
            named = fb.SPODE(alpha=alpha, super_parent=name)
            result = fb.leave_one_out(named, stats, table, sample_weight=weight_of(table))
            losses[name] = result.log_loss
        best = min(losses, key=lambda name: losses[name])
        model = fit(table, alpha=alpha, super_parent="loo")
        assert model.super_parent_ == best
        chosen.add(best)
    assert len(chosen) > 1


@pytest.mark.parametrize("weights", WEIGHTS)
def test_cv__is_the_least_log_loss_of_ten_folds(weights: Any) -> None:
    chosen = set()
    for seed in range(4):
        table = dependent_rows(seed, weights=weights)
        losses = {
            name: fb.k_fold(
                *(fb.SPODE(super_parent=name), table, TARGET),
                folds=FoldsByPlace(10),
                sample_weight=weight_of(table),
            ).log_loss
            for name in NAMES
        }
        model = fit(table, super_parent="cv")
        assert model.super_parent_ == min(losses, key=lambda name: losses[name])
        chosen.add(model.super_parent_)
    assert len(chosen) > 1


@pytest.mark.parametrize("criterion", ["loo", "cv"])
def test_ties__go_by_name_and_order_never_matters(criterion: str) -> None:
    table = random_rows(3, 40).select(["x0", TARGET])
    twins = table.append_column("a", table["x0"]).append_column("b", table["x0"])
    assert fit(twins, super_parent=criterion).super_parent_ == "a"
    table = dependent_rows(4)
    backwards = table.select(table.column_names[::-1]).take(np.arange(60)[::-1])
    model = fit(table, super_parent="loo")
    assert fit(backwards, super_parent="loo").super_parent_ == model.super_parent_


@pytest.mark.parametrize("criterion", ["loo", "cv", "loo_joint", "cmi"])
def test_a_column_of_nulls__is_not_chosen(criterion: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(["p", "q"], 40)
    X = {"void": pa.nulls(40, pa.string()), "a": rng.choice(["s", "t"], 40), "b": y}
    assert fb.SPODE(super_parent=criterion).fit(X, y).super_parent_ in ("a", "b")
    alone = fb.SPODE(super_parent=criterion).fit({"void": X["void"]}, y)
    assert alone.super_parent_ == "void"


@pytest.mark.parametrize("criterion", ["loo", "cv"])
def test_numeric_columns_files_and_threads(criterion: str, tmp_path: Path) -> None:
    table = dependent_rows(5, 70_000)
    table = table.append_column("z", pa.array(np.random.default_rng(0).normal(size=len(table))))
    pq.write_table(table, tmp_path / "t.parquet")
    one, two = (fit(table, super_parent=criterion, threads=t) for t in (1, 2))
    assert one.super_parent_ == two.super_parent_
    files = fb.SPODE(super_parent=criterion).fit(str(tmp_path / "t.parquet"), TARGET)
    assert files.super_parent_ == one.super_parent_
    assert files.statistics_.folds == ()


@pytest.mark.parametrize("criterion", ["loo", "cv"])
def test_choice__goes_with_the_model(criterion: str, tmp_path: Path) -> None:
    table = dependent_rows(1)
    X = table.drop_columns([TARGET])
    model = fit(table, super_parent=criterion)
    assert model.super_parent_ != fit(table, super_parent="cmi").super_parent_
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    assert (loaded.super_parent_, loaded.super_parent) == (model.super_parent_, criterion)
    for other in (loaded, copy.deepcopy(model)):
        assert np.array_equal(other.log_joint(X), model.log_joint(X))
    adapted = model.adapt_prior(X)
    assert adapted.super_parent_ == model.super_parent_
    # Leave-one-out keeps the super-parent of a fitted model.
    stats = counted(table, pairs=True)
    named = fb.SPODE(super_parent=model.super_parent_)
    result = fb.leave_one_out(model, stats, table)
    assert np.array_equal(result.proba, fb.leave_one_out(named, stats, table).proba)
    assert result.fixed == ("schema", "structure")
    with pytest.raises(fb.SchemaError, match="fit the model first"):
        fb.leave_one_out(fb.SPODE(super_parent=criterion), stats, table)


@pytest.mark.parametrize("criterion", ["loo", "cv"])
def test_k_fold__chooses_anew_without_the_fold(criterion: str) -> None:
    table = dependent_rows(2)
    fold = np.arange(60) % 3
    schema = counted(table).schema
    domains = {f.name: f.values for f in schema.features} | {TARGET: schema.classes}
    result = fb.k_fold(fb.SPODE(super_parent=criterion), table, TARGET, folds=fold)
    for f in range(3):
        rest, here = table.filter(pa.array(fold != f)), np.flatnonzero(fold == f)
        if criterion == "cv":  # its own folds go by the place of a row among the others
            continue
        model = fb.SPODE(super_parent=criterion, domains=domains).fit(rest, TARGET)
        close(result.proba[here], model.predict_proba(table.drop_columns([TARGET]).take(here)))
    assert result.n == 60


@pytest.mark.parametrize("criterion", ["loo", "cv"])
def test_errors__say_what_reads_rows(criterion: str) -> None:
    table, model = random_rows(6), fb.SPODE(super_parent=criterion)
    stats = counted(table, pairs=True)
    with pytest.raises(fb.SchemaError, match="scores the rows themselves: use fit"):
        model.fit_statistics(stats)
    with pytest.raises(fb.SchemaError, match="can be read only once"):
        model.fit(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), TARGET)
    model.fit(table, TARGET)
    with pytest.raises(fb.SchemaError, match="scores the rows themselves: use fit"):
        model.fit_statistics(stats)
    with pytest.raises(fb.SchemaError, match="takes all rows at once"):
        model.partial_fit(table, TARGET)


# alpha="loo"


def left_out_log_joint(model: Any, table: pa.Table) -> float:
    """Return the sum over rows of ln P(c, x), each by the counts without it."""
    scorer, schema = unfitted_loo_scorer(model, model.statistics_), model.schema_
    weight = weight_of(table)
    also = [n for n in (TARGET, weight) if n]
    source, _ = open_for(schema, table, also=also)
    encoder = Encoder.applying_to(schema, source.schema, target=TARGET, weight=weight)
    batch = encoder.encode(table.select(source.schema.names).to_batches()[0], Place("", 0)).batch
    joint = np.empty((batch.n_rows, len(schema.classes)))
    scorer.log_joint(batch, joint)
    assert batch.classes is not None
    w = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    return float((w * joint[np.arange(batch.n_rows), batch.classes]).sum())


MODELS = [
    fb.TAN(alpha="loo"),
    fb.TAN(alpha="loo", class_prior="uniform"),
    fb.SPODE(alpha="loo", super_parent="x1"),
    fb.SPODE(alpha="loo"),
    fb.SPODE(alpha="loo", super_parent="cmi"),
]


@pytest.mark.parametrize("weights", [None, (1.0, 2.5)])  # below 1 the closed form is another sum
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_alpha__maximises_the_leave_one_out_log_joint(model: Any, weights: Any) -> None:
    table = random_rows(7, 50, weights=weights)
    for i, name in enumerate(NAMES):  # no holes: then the closed form is exact
        table = table.set_column(i, name, pa.array([v or "-" for v in table[name].to_pylist()]))
    stats = counted(table, pairs=True)
    fitted = type(model)(**model.get_params()).fit_statistics(stats)
    assert 1e-6 < fitted.alpha_ < 1e4
    best = left_out_log_joint(fitted, table)
    for factor in (0.25, 0.9, 0.99, 1.01, 1.1, 4):
        params = {**model.get_params(), "alpha": fitted.alpha_ * factor}
        if isinstance(model, fb.SPODE):
            params["super_parent"] = fitted.super_parent_
        other = type(model)(**params).fit_statistics(stats)
        assert left_out_log_joint(other, table) < best
    params = {**model.get_params(), "alpha": fitted.alpha_}
    if isinstance(model, fb.SPODE):
        params["super_parent"] = fitted.super_parent_
    same = type(model)(**params).fit_statistics(stats)
    X = table.select(NAMES)
    assert np.array_equal(same.log_joint(X), fitted.log_joint(X))


def test_alpha__and_super_parent_are_the_best_together() -> None:
    for seed in range(3):
        table = dependent_rows(seed, 40).select([*NAMES[:3], TARGET])
        for i, name in enumerate(NAMES[:3]):
            table = table.set_column(i, name, pa.array([v or "-" for v in table[name].to_pylist()]))
        stats = counted(table, pairs=True)
        alone = [
            fb.SPODE(alpha="loo", super_parent=name).fit_statistics(stats) for name in NAMES[:3]
        ]
        worth = [left_out_log_joint(model, table) for model in alone]
        both = fb.SPODE(alpha="loo").fit_statistics(stats)
        best = alone[int(np.argmax(worth))]
        assert both.super_parent_ == best.super_parent_
        close(both.alpha_, best.alpha_, 1e-6)


def test_alpha__of_holes_weights_and_files(tmp_path: Path) -> None:
    table = random_rows(8, 60, weights=(0.3, 1.0, 2.5))
    model = fb.TAN(alpha="loo").fit(table, TARGET, sample_weight=WEIGHT)
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    assert loaded.alpha_ == model.alpha_
    result = fb.leave_one_out(model, model.statistics_, table, sample_weight=WEIGHT)
    assert result.fixed == ("schema", "alpha", "structure")
    assert str(result).startswith("leave-one-out, schema, alpha and structure fixed\n")
    with pytest.raises(ValueError, match="alpha='lou'"):
        fb.TAN(alpha="lou").fit(table, TARGET)
    with pytest.raises(ValueError, match="alpha='loo'"):
        fb.AODE(alpha="loo").fit(table, TARGET)


@pytest.mark.parametrize("chosen", ["loo", "cv"])
def test_the_scan_that_chooses__reports_its_rows(chosen: str) -> None:
    table = {"a": list("0011") * 20, "b": list("0101") * 20, "y": list("nppn") * 20}
    seen: list[int] = []
    fb.compare(table, "y", models=fb.SPODE(super_parent=chosen), progress=seen.append,
               validation="leave_one_out")  # fmt: skip
    assert sum(seen) == 80 * (3 + (chosen == "loo") + 2 * (chosen == "cv"))
