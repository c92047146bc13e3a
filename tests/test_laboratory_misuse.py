"""What calibration, curves and sweeps make of things they were not meant for, and say of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import answer, fails, parquet, run, tennis

import fastbayes as fb

T = {"a": list("uuuuvvvv") * 25, "b": list("uvuvuvuv") * 25, "y": list("nnnpppnp") * 25}


@pytest.fixture(scope="module")
def curve() -> fb.LearningCurve:
    return fb.learning_curve(["naive-bayes", "tan"], T, "y", sizes=[20, 100], repeats=2)


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (fb.LogisticRegression(), "call 'fit' first"),
        (fb.WeightedNaiveBayes(), "call 'fit' first"),
        (fb.Calibrated(), "call 'fit' first"),
        (fb.NaiveBayes(), "call 'fit' or 'fit_statistics' first"),
        (fb.BernoulliNB(), "call 'fit'"),
    ],
)
def test_an_unfitted_model__is_to_be_fitted_by_what_it_has(model: Any, how: str) -> None:
    with pytest.raises((ValueError, AttributeError), match=how) as caught:
        model.predict([[1]] if isinstance(model, fb.BernoulliNB) else T)
    for name in ("fit", "fit_statistics"):
        assert (f"'{name}'" in str(caught.value)) == hasattr(model, name)


@pytest.mark.parametrize("kind", [fb.Calibrated, fb.GaussianNB])
def test_leave_one_out__names_what_validates_the_model_instead(kind: Callable[[], Any]) -> None:
    with pytest.raises(fb.SchemaError, match="cross_val_predict") as caught:
        fb.leave_one_out(kind(), fb.count(T, "y"), T)
    assert "k_fold" not in str(caught.value)
    with pytest.raises(fb.SchemaError, match=r"k_fold validates any.*LogisticRegression too"):
        fb.leave_one_out(fb.LogisticRegression(), fb.count(T, "y"), T)
    assert fb.k_fold(fb.LogisticRegression(), T, "y", folds=2).n == 200


@pytest.mark.parametrize("model", [fb.NaiveBayes(), fb.CategoricalNB()])
@pytest.mark.parametrize("wrong", [{"C": -1}, {"penalty": "elasticnet"}, {"max_iter": 0}])
def test_a_conversion__takes_parameters_that_a_fit_takes(model: Any, wrong: dict[str, Any]) -> None:
    fitted = (
        model.fit(T, "y") if isinstance(model, fb.NaiveBayes) else model.fit([[0], [1]], [0, 1])
    )
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}={wrong[name]!r}"):
        fitted.to_logistic(**wrong)
    assert fitted.to_logistic(C=2).C == 2


def test_calibrated__says_what_it_takes_and_what_it_has_not() -> None:
    with pytest.raises(fb.SchemaError, match=r"a model, not a class: NaiveBayes\(\)"):
        fb.Calibrated(fb.NaiveBayes).fit(T, "y")
    with pytest.raises(ValueError, match="Invalid parameter 'model__alpha' for estimator"):
        fb.Calibrated().set_params(model__alpha=3)
    batches: Any = fb.Calibrated()
    with pytest.raises(AttributeError, match="map from all rows at once: use fit"):
        batches.partial_fit(T, "y")
    assert not hasattr(batches, "partial_fit")


@pytest.mark.parametrize("model", [fb.WeightedNaiveBayes(), fb.TAN()])
def test_a_stream_whose_numbers_are_to_be_cut__offers_what_models_may_have(model: Any) -> None:
    assert hasattr(model, "partial_fit") == isinstance(model, fb.TAN)
    stream = pa.table({"f": [1.0, 2.0, 3.0, 4.0], "y": list("nnpp")}).to_reader()
    with pytest.raises(fb.SchemaError, match="where the model has partial_fit, use that"):
        model.fit(stream, "y")


@pytest.mark.parametrize("validation", ["auto", "k_fold"])
def test_a_single_row__asks_for_more_of_them(validation: str) -> None:
    model = fb.Calibrated(fb.LogisticRegression(), validation=validation)
    with (
        pytest.warns(fb.FastBayesWarning, match="only one class"),
        pytest.raises(fb.DataError, match="use more rows"),
    ):
        model.fit({"a": ["x"], "y": ["p"]}, "y")


def test_a_crossover__is_of_two_models_of_a_curve(curve: fb.LearningCurve) -> None:
    with pytest.raises(ValueError, match="'tan' stands for both models"):
        fb.crossover(curve, "tan", "tan")
    table: Any = curve.table
    with pytest.raises(ValueError, match="learning_curve returns it, not Table"):
        fb.crossover(table, "naive-bayes", "tan")


@pytest.mark.parametrize("metric", ["log_loss", "brier", "accuracy"])
def test_models_that_differ_by_rounding__do_not_overtake(metric: str) -> None:
    rng = np.random.default_rng(0)
    figures = rng.random((1, 3, 4))
    both = np.concatenate([figures, figures * (1 + rng.choice([-2e-16, 0, 2e-16], (1, 3, 4)))])
    assert (both[0] != both[1]).any()
    told = ("one", "other"), np.array([10, 20, 40]), 100, 20, np.array([0, 1]), 0, 0.95
    curve = fb.LearningCurve(*told, both, both, both, both)
    for pair in (("one", "other"), ("other", "one")):
        found = fb.crossover(curve, *pair, metric)
        assert (found.size, found.share) == (None, 0)
        assert found.reason == "it is not ahead at the largest size"


@pytest.mark.parametrize("evaluate", [None, "training"])
def test_a_sweep_of_a_model_that_learns_from_rows__is_refused_before_it_learns(
    evaluate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learned(*_: Any) -> None:
        raise AssertionError("a scan in vain")

    monkeypatch.setattr(fb.WeightedNaiveBayes, "_scanned", learned)
    with pytest.raises(ValueError, match="WeightedNaiveBayes learns from rows, too: use k_fold"):
        fb.alpha_sweep(fb.WeightedNaiveBayes(), T, "y", [1.0], evaluate=evaluate)


def test_values_of_a_sweep__are_numbers() -> None:
    alphas: Any = [1.0, "loo"]
    with pytest.raises(ValueError, match=r"alphas: \[1.0, 'loo'\] are not all numbers"):
        fb.alpha_sweep(fb.NaiveBayes(), T, "y", alphas)
    with pytest.raises(ValueError, match=r"thresholds: .*not all numbers"):
        fb.threshold_sweep([[1.0], [2.0]], list("ab"), {"x0": 1.5})  # type: ignore[arg-type]


def test_a_threshold_sweep_of_a_path__says_to_read_it(tmp_path: Path) -> None:
    for path in (tmp_path / "d.csv", str(tmp_path / "d.csv")):
        with pytest.raises(ValueError, match=r"in memory, not .*d\.csv.*read the file first"):
            fb.threshold_sweep(path, "y")


def test_a_picture_of_no_known_kind__is_refused_before_anything_is_read(
    curve: fb.LearningCurve, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    for name in ("curve.bmp", "curve"):
        with pytest.raises(ValueError, match=f"{name}: the suffix says the format"):
            curve.plot(tmp_path / name)
        asked = ("--target", "y", "--plot", tmp_path / name)
        said = fails("learning-curve", tmp_path / "none.parquet", *asked, folder=tmp_path)
        assert "the suffix says the format" in said
    assert not list(tmp_path.iterdir())


def test_models_that_do_not_cross__are_said_not_to(tmp_path: Path) -> None:
    data = parquet(tennis(300), tmp_path / "tennis.parquet")
    asked = ("learning-curve", data, "--target", "play", "--sizes", "40", "--repeats", "2")
    found = run(*asked, "--models", "spode,logistic,tan").stdout.splitlines()
    assert len([line for line in found if "in log_loss at no size: it is" in line]) == 3
    assert answer(*asked)["crossovers"] == []
    alone = run(*asked, "--models", "spode").stdout.splitlines()
    assert alone[-1].split()[:2] == ["spode", "40"]


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_inspect__says_how_a_model_was_calibrated(method: str, tmp_path: Path) -> None:
    data, model = parquet(tennis(100), tmp_path / "tennis.parquet"), tmp_path / "m.fb"
    told = ("fit", data, "--target", "play", "--model", "weighted-naive-bayes")
    fitted = answer(*told, "--calibrate", method, "-o", model)
    seen = answer("inspect", model)
    names = ["calibrated_by", "temperature", "held_out_by", "log_loss", "weights", "converged"]
    assert {n: seen[n] for n in names} == {n: fitted[n] for n in names}
    assert "log loss" in run("inspect", model).stdout
