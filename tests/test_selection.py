"""Models chosen among nested ones by leave-one-out: the losses, the choice, what is kept of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.core.errors import SchemaError
from fastbayes.models.discrete import selective
from fastbayes.models.discrete.selective import NestedLosses, network_losses
from fastbayes.models.estimator.base import Scans
from fastbayes.statistics import PairCounts

NAMES = [f"x{j}" for j in range(5)]


def table_of(n: int, seed: int = 0, *, holes: float = 0.0, noise: int = 2) -> pa.Table:
    """Return columns of which x0 and x1 tell the class together, x2 alone, the rest nothing."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 3, (3, n))
    y = ((a + b) % 2 ^ (rng.random(n) < 0.05)) + 2 * (c == 0) * (rng.random(n) < 0.7)
    a = np.where(rng.random(n) < 0.1, y % 3, a)
    columns = [a, b, c, *rng.integers(0, 3, (noise, n))]
    gone = rng.random((len(columns), n)) < holes
    data = {
        f"x{j}": pa.array(np.char.add("v", v.astype(str)), mask=g)
        for j, (v, g) in enumerate(zip(columns, gone, strict=True))
    }
    return pa.table({**data, "y": np.array(list("pqrs"))[y]})


class Watched(fb.KDB):
    """Keeps the losses that it chose by."""

    seen: NestedLosses

    def _selected(self, scans: Scans, stats: fb.Statistics) -> fb.Statistics:
        cells, prior = self._cells_of(stats), self._prior_of(stats)
        self.seen = network_losses(self, scans, stats, cells, prior)
        return super()._selected(scans, stats)


def refitted(data: pa.Table, weights: Any, families: Any, k: int, **options: Any) -> Any:
    """Return the mean loss and error of each row by the counts of the others, one fit a row."""
    weights = np.ones(len(data)) if weights is None else weights
    told = {"families": families, "moments": False}
    whole = fb.count(data, "y", sample_weight=weights, **told)
    total = np.zeros(2)
    for r, w in enumerate(weights):
        if not w:
            continue
        row = data.slice(r, 1)
        one = fb.count(row, "y", sample_weight=np.array([min(w, 1.0)]), **told)
        # The schema stays: domains and classes are those of all rows.
        rest = {
            name: part - one.aligned(whole.schema).parts[name] for name, part in whole.parts.items()
        }
        left = fb.Statistics(whole.schema, rest)
        model = fb.KDB(k=k, **options).fit_statistics(left)
        p = model.predict_proba(row)[0]
        at = model.classes_.tolist().index(row["y"][0].as_py())
        total += w * np.array(
            [-np.log(max(p[at], 1e-15)), model.predict(row)[0] != model.classes_[at]]
        )
    return total / weights.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_losses__are_those_of_every_model_refitted(
    monkeypatch: pytest.MonkeyPatch, kernels: str, weighted: bool
) -> None:
    data = table_of(24, 1, noise=1)
    weights = np.random.default_rng(0).integers(0, 5, 24) / 2 if weighted else None
    options: dict[str, Any] = {"alpha": 0.5, "class_prior": "empirical" if weighted else None}
    model = Watched(2, select="leave_one_out", **options).fit(data, "y", sample_weight=weights)
    full = fb.KDB(2, **options).fit(data, "y", sample_weight=weights)
    families = [(*up, j) for j, up in full.parents_.items()]
    assert model.seen.log_loss.shape == (3, 5)
    for k in range(3):
        for m in range(1, 5):
            expected = refitted(data, weights, families[:m], k, **options)
            found = model.seen.log_loss[k, m], model.seen.error[k, m]
            np.testing.assert_allclose(found, expected, rtol=1e-11)
    k, m = np.unravel_index(model.seen.log_loss[:, 1:].argmin(), (3, 4))
    assert (model.k_, model.n_selected_) == (k, m + 1)


def test_choice__is_the_structure_that_made_the_data(caplog: pytest.LogCaptureFixture) -> None:
    data = table_of(4000)
    caplog.set_level(logging.INFO, "fastbayes")
    model = fb.KDB(3, select="leave_one_out").fit(data, "y")
    assert set(model.parents_) == {"x0", "x1", "x2"}
    assert (model.k_, model.n_selected_) == (1, 3)
    assert "selected k=1 and 3 of 5 features: log_loss" in caplog.text
    full = fb.KDB(3).fit(data, "y")
    fresh = table_of(4000, 1)
    assert fb.evaluate(model, fresh).log_loss < fb.evaluate(full, fresh).log_loss
    # What was selected is what was counted: nothing else is known of the model.
    plain = fb.KDB(1).fit_statistics(model.statistics_)
    np.testing.assert_array_equal(plain.log_joint(fresh), model.log_joint(fresh))
    assert model.statistics_.families.nbytes < full.statistics_.families.nbytes / 8


def test_criterion__is_what_is_least() -> None:
    data = table_of(300, 4)
    for criterion in ("log_loss", "error"):
        model = Watched(3, select="leave_one_out", criterion=criterion).fit(data, "y")
        loss = getattr(model.seen, criterion)
        assert loss[model.k_, model.n_selected_] == loss[:, 1:].min()


def test_equal_losses__go_to_the_smaller_model() -> None:
    same = np.array([[9.0, 2.0, 1.0, 1.0], [9.0, 1.0, 1.0 - 1e-15, 3.0]])
    assert NestedLosses(same, 9 - same).best("log_loss", 1) == (0, 2)
    assert NestedLosses(same, 9 - same).best("error", 0) == (0, 0)
    # No model of this data has more than one feature that says something.
    data = pa.table({"a": ["u", "v"] * 20, "b": ["w"] * 40, "c": ["w"] * 40, "y": ["p", "q"] * 20})
    model = fb.KDB(2, select="leave_one_out").fit(data, "y")
    assert (model.parents_, model.k_) == ({"a": ()}, 0)


def test_holes_threads_and_files__change_nothing(tmp_path: Path) -> None:
    data = table_of(3000, 7, holes=0.1)
    weights = np.random.default_rng(1).random(3000)
    one = Watched(2, select="leave_one_out", threads=1).fit(data, "y", sample_weight=weights)
    many = Watched(2, select="leave_one_out", threads=3).fit(
        pa.concat_tables([data.slice(0, 10), data.slice(10)]), "y", sample_weight=weights
    )
    for found in zip(one.seen, many.seen, strict=True):
        np.testing.assert_array_equal(*found)
    assert one.statistics_ == many.statistics_
    model = fb.KDB(2, select="leave_one_out").fit(data, "y", sample_weight=weights)
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    assert loaded.parents_ == model.parents_
    np.testing.assert_array_equal(loaded.log_joint(data), model.log_joint(data))
    # Rows that come later are counted for what was selected.
    loaded.partial_fit(data, "y", sample_weight=weights)
    assert loaded.parents_ == model.parents_
    assert loaded.statistics_.allclose(model.statistics_ + model.statistics_)
    drawn = loaded.sample(10, seed=0)
    left_out = [name for name in NAMES if name not in model.parents_]
    assert all(drawn[name].null_count == 10 for name in left_out)
    told = loaded.explain(data.slice(0, 20))
    assert (told.contributions[:, [NAMES.index(n) for n in left_out]] == 0).all()


def test_compiled_and_plain_losses__agree(monkeypatch: pytest.MonkeyPatch) -> None:
    data = table_of(2000, 3, holes=0.2)
    found = []
    for kernels in ("always", "never"):
        monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
        found.append(Watched(3, select="leave_one_out").fit(data, "y").seen)
    np.testing.assert_allclose(found[0].log_loss, found[1].log_loss, rtol=1e-11)
    np.testing.assert_array_equal(found[0].error, found[1].error)


def test_what_cannot_be__is_said() -> None:
    data = table_of(50)
    with pytest.raises(ValueError, match="select='best': use one of"):
        fb.KDB(select="best").fit(data, "y")
    with pytest.raises(ValueError, match="criterion='auc': use one of"):
        fb.KDB(criterion="auc").fit(data, "y")
    with pytest.raises(SchemaError, match=r"read only once, but KDB\(select='leave_one_out'\)"):
        fb.KDB(1, select="leave_one_out").fit(data.to_reader(), "y")


# -- AODE --------------------------------------------------------------------------------------


def averaged(data: pa.Table, sample_weight: Any = None, **options: Any) -> Any:
    """Return AODE's losses by the number of features, and the order in which they are taken."""
    seen: dict[str, Any] = {}

    class Told(fb.AODE):
        def _scanned(self, scans: Scans) -> fb.Statistics:
            stats = scans.count(self, {"values": {}, "pairs": {}})
            cells = self._cells_of(stats)
            features = selective.ranked(cells, stats.schema.names)
            seen["losses"] = selective.average_losses(self, scans, stats, cells, features)
            seen["order"] = [stats.schema.names[j] for j in features.tolist()]
            return stats

    Told(**options).fit(data, "y", sample_weight=sample_weight)
    return seen["losses"], seen["order"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"smoothing": "m_estimate", "m": 0.5, "min_count": 3},
        {"class_prior": [0.1, 0.2, 0.3, 0.4], "weights": "mutual_information"},
    ],
)
def test_aode_losses__are_those_of_every_model_left_out(
    monkeypatch: pytest.MonkeyPatch, kernels: str, options: dict[str, Any]
) -> None:
    data = table_of(150, 2, holes=0.1)
    weights = np.random.default_rng(2).integers(0, 5, 150) / 2
    losses, order = averaged(data, weights, **options)
    for m in range(2, 6):
        some = data.select([*order[:m], "y"])
        stats = fb.count(some, "y", pairs=True, sample_weight=weights)
        told = fb.leave_one_out(fb.AODE(**options), stats, some, sample_weight=weights)
        np.testing.assert_allclose(losses.log_loss[m], told.log_loss, rtol=1e-10)
        assert losses.error[m] == pytest.approx(1 - told.accuracy, abs=1e-12)


def test_aode__takes_the_features_that_say_something(tmp_path: Path) -> None:
    data, fresh = table_of(3000, 5, noise=4), table_of(3000, 6, noise=4)
    model = fb.AODE(select="leave_one_out").fit(data, "y")
    losses, order = averaged(data)
    assert model.n_selected_ == losses.log_loss[2:].argmin() + 2 == 3
    assert set(order[:3]) == {"x0", "x1", "x2"}
    # It is AODE of these columns.
    small = fb.AODE().fit(data.select(["x0", "x1", "x2", "y"]), "y")
    np.testing.assert_allclose(
        model.log_joint(fresh), small.log_joint(fresh.select(["x0", "x1", "x2"])), rtol=1e-12
    )
    assert model.n_parameters_ == small.n_parameters_
    told = model.explain(fresh.slice(0, 50))
    assert (told.contributions[:, 3:] == 0).all()
    np.testing.assert_allclose(
        told.contributions.sum(axis=1) + told.prior, model.log_joint(fresh.slice(0, 50))
    )
    assert model.sample(5, seed=0)["x4"].null_count == 5
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    np.testing.assert_array_equal(loaded.log_joint(fresh), model.log_joint(fresh))
    loaded.partial_fit(fresh.select(fresh.column_names[::-1]), "y")
    assert loaded.n_selected_ == 3
    whole = fb.AODE().fit(pa.concat_tables([data, fresh]).select(["x0", "x1", "x2", "y"]), "y")
    np.testing.assert_allclose(
        loaded.log_joint(fresh), whole.log_joint(fresh.select(["x0", "x1", "x2"])), rtol=1e-12
    )
    # fit begins anew.
    assert loaded.fit(data, "y").statistics_ == model.statistics_


def test_aode__needs_all_pairs_of_what_takes_part() -> None:
    data = table_of(100)
    stats = fb.count(data, "y", pairs=True)
    some = PairCounts(stats.schema.shape, pairs=np.array([[0, 1], [1, 2]]))
    with pytest.raises(SchemaError, match="some pairs of columns, not all pairs"):
        fb.AODE().fit_statistics(replace(stats, parts={**stats.parts, "pairs": some}))
    with pytest.raises(ValueError, match="select='best'"):
        fb.AODE(select="best").fit(data, "y")
    with pytest.raises(SchemaError, match=r"read only once, but AODE\(select='leave_one_out'\)"):
        fb.AODE(select="leave_one_out").fit(data.to_reader(), "y")
