"""What holds for every model: it is a value that is copied, saved, sent and asked from anywhere."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fastbayes as fb

N_ROWS = 300
ROWS = np.random.default_rng(3)
NUMBERS = ROWS.poisson(1.5, (N_ROWS, 3))
LABELS = np.array(["ant", "bee", "cat"])[ROWS.integers(0, 3, N_ROWS)]
WEIGHT = ROWS.uniform(0.1, 2, N_ROWS)
FRAME = pd.DataFrame(NUMBERS, columns=["p", "q", "r"])
MIXED = FRAME.assign(
    sky=np.array(["sun", "rain", None], dtype=object)[ROWS.integers(0, 3, N_ROWS)],
    heat=np.where(ROWS.random(N_ROWS) < 0.1, np.nan, ROWS.normal(size=N_ROWS) + NUMBERS[:, 0]),
)

HOLES = MIXED.drop(columns="sky")

# A name for the case, the model unfitted, its rows.
CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "NaiveBayes": (fb.NaiveBayes, MIXED),
    "NaiveBayes, other parameters": (
        lambda: fb.NaiveBayes(
            alpha=np.float64(0.25),
            class_prior=np.array([0.5, 0.25, 0.25]),
            variance="shared",
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "NaiveBayes, average": (lambda: fb.NaiveBayes(feature_averaging=np.float32(0.25)), MIXED),
    "NaiveBayes, array": (lambda: fb.NaiveBayes(alpha="loo"), NUMBERS),
    "NaiveBayes, Student's t": (lambda: fb.NaiveBayes(numeric="student"), MIXED),
    "NaiveBayes, kernels": (lambda: fb.NaiveBayes(numeric="kde"), MIXED),
    "NaiveBayes, histograms": (lambda: fb.NaiveBayes(numeric="histogram", alpha=0), NUMBERS),
    "NaiveBayes, densities": (lambda: fb.NaiveBayes(numeric="auto"), MIXED),
    "NaiveBayes, each column another": (
        lambda: fb.NaiveBayes(
            numeric={"p": "mdl", "q": "histogram", "r": [np.float64(0.5), 2], "heat": "kde"}
        ),
        MIXED,
    ),
    "SPODE": (lambda: fb.SPODE(super_parent="cmi"), MIXED),
    "TAN": (fb.TAN, MIXED),
    "TAN, other parameters": (
        lambda: fb.TAN(
            alpha=0.5,
            root="sky",
            prune="aic",
            class_prior="uniform",
            discretize={"heat": [0.0, np.float64(1.5)]},
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "AODE": (fb.AODE, MIXED),
    "AODE, array": (
        lambda: fb.AODE(smoothing="m_estimate", min_count=5, discretize=("quantile", 4)),
        NUMBERS,
    ),
    "AODE, weights": (lambda: fb.AODE(weights="mutual_information"), MIXED),
    "AODE, subsumption": (lambda: fb.AODE(subsumption=np.int64(5)), MIXED),
    "AODE, given weights": (lambda: fb.AODE(weights={"sky": 1, "p": np.float64(0.5)}), MIXED),
    "KDB": (fb.KDB, MIXED),
    "KDB, other parameters": (
        lambda: fb.KDB(
            3,
            alpha=0.5,
            class_prior="uniform",
            discretize={"heat": [0.0, np.float64(1.5)]},
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "TAN, backed off": (lambda: fb.TAN(smoothing="hdp"), MIXED),
    "KDB, backed off": (lambda: fb.KDB(smoothing="hdp", missing="category"), MIXED),
    "KDB, array": (lambda: fb.KDB(k=1), NUMBERS),
    "KDB, selected": (lambda: fb.KDB(select="leave_one_out", criterion="error"), MIXED),
    "AODE, selected": (lambda: fb.AODE(select="leave_one_out"), MIXED),
    "NetworkClassifier": (fb.NetworkClassifier, MIXED),
    "NetworkClassifier, other parameters": (
        lambda: fb.NetworkClassifier(
            {"class": ("p", "sky"), "heat": ("class", "p"), "q": ("heat",)},
            smoothing="bdeu",
            ess=np.float64(2),
            discretize={"heat": [0.0, np.float64(1.5)]},
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "NetworkClassifier, array": (
        lambda: fb.NetworkClassifier([("class", "x0"), ("x0", "x1")], alpha=np.float32(0.5)),
        NUMBERS,
    ),
    "A2DE": (fb.A2DE, MIXED),
    "A2DE, other parameters": (
        lambda: fb.A2DE(
            smoothing="m_estimate",
            m=np.float64(0.5),
            subsumption=7,
            min_count=3,
            class_prior="uniform",
            discretize={"heat": [0.0, np.float64(1.5)]},
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
        ),
        MIXED,
    ),
    "GaussianBayes": (fb.GaussianBayes, HOLES),
    "GaussianBayes, other parameters": (
        lambda: fb.GaussianBayes(
            covariance="tied",
            ddof=1,
            shrinkage=np.float32(0.125),
            singular="diagonal",
            class_prior=np.array([0.5, 0.25, 0.25]),
            var_floor=np.float64(1e-6),
            missing="impute_mean",
        ),
        HOLES,
    ),
    "GaussianBayes, prior": (
        lambda: fb.GaussianBayes(prior={"kappa": np.float64(2), "scale": np.ones(4)}),
        HOLES,
    ),
    "GaussianBayes, tied prior": (
        lambda: fb.GaussianBayes(covariance="tied", prior="niw"),
        NUMBERS,
    ),
    "GaussianBayes, auto": (lambda: fb.GaussianBayes(shrinkage="auto"), NUMBERS),
    "GaussianBayes, diagonal": (lambda: fb.GaussianBayes(covariance="diagonal"), HOLES),
    "GaussianBayes, spherical": (lambda: fb.GaussianBayes(covariance="spherical"), NUMBERS),
    "JointBayes": (fb.JointBayes, MIXED),
    "JointBayes, other parameters": (
        lambda: fb.JointBayes(
            tau=np.float64(0.25),
            alpha=0.5,
            class_prior="uniform",
            discretize={"heat": [0.0, np.float64(1.5)]},
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "JointGaussian": (fb.JointGaussian, MIXED),
    "JointGaussian, other parameters": (
        lambda: fb.JointGaussian(
            cells="naive",
            backoff=np.float32(2.5),
            tau=2,
            alpha=0.5,
            class_prior="uniform",
            domains={"sky": ["sun", "rain", "snow"]},
            categorical=["p"],
            missing="category",
            unseen="smooth",
        ),
        MIXED,
    ),
    "JointGaussian, array": (lambda: fb.JointGaussian(backoff=np.inf), NUMBERS),
    "CategoricalNB": (lambda: fb.CategoricalNB(min_categories=9), FRAME),
    "MultinomialNB": (lambda: fb.MultinomialNB(alpha=[0.5, 1, 2]), FRAME),
    "ComplementNB": (lambda: fb.ComplementNB(norm=True), NUMBERS),
    "BernoulliNB": (lambda: fb.BernoulliNB(binarize=1.0), FRAME),
    "GaussianNB": (lambda: fb.GaussianNB(priors=(0.5, 0.25, 0.25)), NUMBERS),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    make, X = CASES[request.param]
    return make().fit(X, LABELS, sample_weight=WEIGHT), X


def assert_same(a: Any, b: Any, X: Any) -> None:
    assert type(a) is type(b)
    assert a.statistics_ == b.statistics_
    assert a.n_features_in_ == b.n_features_in_
    assert hasattr(a, "feature_names_in_") == hasattr(b, "feature_names_in_")
    for method in ("predict", "predict_proba", "predict_log_proba", "log_joint"):
        np.testing.assert_array_equal(getattr(a, method)(X), getattr(b, method)(X), err_msg=method)
    np.testing.assert_array_equal(a.explain(X).contributions, b.explain(X).contributions)


def test_file__gives_the_model_back_bit_for_bit(case: tuple[Any, Any], tmp_path: Path) -> None:
    model, X = case
    model.save(tmp_path / "m.fb")
    loaded = fb.load(tmp_path / "m.fb")
    assert_same(loaded, model, X)
    # ... and it goes on learning.
    for each in (loaded, model):
        each.partial_fit(X, LABELS, sample_weight=WEIGHT)
    assert_same(loaded, model, X)


def test_state__gives_the_model_back(case: tuple[Any, Any]) -> None:
    model, X = case
    again = type(model).from_state(model.get_params(), *model.state(), "memory")
    assert_same(again, model, X)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copy__answers_alike(case: tuple[Any, Any], duplicate: Any) -> None:
    model, X = case
    before = model.predict_proba(X)
    other = duplicate(model)
    assert_same(other, model, X)
    other.partial_fit(X, LABELS)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_clone__is_unfitted_and_learns_the_same(case: tuple[Any, Any]) -> None:
    model, X = case
    unfitted = clone(model)
    assert not hasattr(unfitted, "classes_")
    assert_same(unfitted.fit(X, LABELS, sample_weight=WEIGHT), model, X)


def test_parameters_set_later__take_effect_at_the_next_fit(case: tuple[Any, Any]) -> None:
    model, X = case
    name = model._prior_parameter
    before = model.predict_proba(X)
    model.set_params(**{name: [0.125, 0.125, 0.75]})
    np.testing.assert_array_equal(model.predict_proba(X), before)
    model.fit(X, LABELS, sample_weight=WEIGHT)
    np.testing.assert_allclose(np.exp(model._log_prior()), [0.125, 0.125, 0.75])


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_statistics__are_all_that_was_learned(case: tuple[Any, Any]) -> None:
    model, X = case
    again = type(model)(**model.get_params()).fit_statistics(model.statistics_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_failed_refit__leaves_what_was_learned(case: tuple[Any, Any]) -> None:
    model, X = case
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="zero"):
        model.fit(X, LABELS, sample_weight=np.zeros(N_ROWS))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.partial_fit(X, LABELS).score(X, LABELS) > 0


def test_threads__ask_one_model_at_once(case: tuple[Any, Any]) -> None:
    model, X = case
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(model.predict_proba, [X] * 8))
    for answer in answers:
        np.testing.assert_array_equal(answer, model.predict_proba(X))


def test_worker_processes__fit_and_answer() -> None:
    models = [make() for make, _ in CASES.values()]
    rows = [X for _, X in CASES.values()]
    with joblib.parallel_config("loky", n_jobs=2):
        fitted = joblib.Parallel()(
            joblib.delayed(m.fit)(X, LABELS) for m, X in zip(models, rows, strict=True)
        )
        answers = joblib.Parallel()(
            joblib.delayed(m.predict_proba)(X) for m, X in zip(fitted, rows, strict=True)
        )
    for model, X, answer in zip(models, rows, answers, strict=True):
        np.testing.assert_array_equal(model.fit(X, LABELS).predict_proba(X), answer)


def test_decision_function__decides_as_predict_does(case: tuple[Any, Any]) -> None:
    model, X = case
    best = model.classes_[model.decision_function(X).argmax(axis=1)]
    np.testing.assert_array_equal(best, model.predict(X))


def test_impossible_row__gets_the_prior_everywhere() -> None:
    X = pd.DataFrame({"a": ["x", "y", "z", "z"], "b": ["u", "v", "w", "w"]})
    model = fb.NaiveBayes(alpha=0).fit(X, ["p", "q", "r", "r"])
    row = pd.DataFrame({"a": ["x"], "b": ["v"]})
    assert np.isneginf(model.log_joint(row)).all()
    assert np.isneginf(model.log_evidence(row)).all()
    prior = [[0.25, 0.25, 0.5]]
    np.testing.assert_allclose(model.predict_proba(row), prior)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(row)), prior)
    np.testing.assert_allclose(np.exp(model.decision_function(row)), prior)
    assert model.predict(row).tolist() == ["r"]


def test_adapted_prior__is_a_copy_of_the_model_with_another_prior(case: tuple[Any, Any]) -> None:
    model, X = case
    if not hasattr(model, "adapt_prior"):
        assert type(model) is fb.ComplementNB
        return
    adapted = model.adapt_prior(X)
    assert adapted.statistics_ == model.statistics_
    assert hasattr(adapted, "feature_names_in_") == hasattr(model, "feature_names_in_")
    if isinstance(model, (fb.AODE, fb.A2DE)) and model.class_prior is None:
        # As counted, the prior differs from one super-parent to the next: it has no one prior.
        model = model._copy_with(class_prior=np.exp(model.class_log_prior_))
    likelihood = [m.log_joint(X) - m._log_prior() for m in (adapted, model)]
    with np.errstate(invalid="ignore"):
        known = np.isfinite(adapted._log_prior())
    np.testing.assert_allclose(likelihood[0][:, known], likelihood[1][:, known], atol=1e-9)


@pytest.mark.parametrize("cls", [fb.NaiveBayes, fb.CategoricalNB, fb.GaussianNB])
def test_unfitted__says_so(cls: type[Any]) -> None:
    for method in ("predict", "log_joint", "explain", "decision_function", "adapt_prior", "decide"):
        with pytest.raises(Exception, match="not fitted yet") as raised:
            getattr(cls(), method)(NUMBERS)
        assert isinstance(raised.value, AttributeError)


def test_warnings__point_at_the_line_of_the_caller() -> None:
    model, bare = fb.NaiveBayes().fit(NUMBERS, LABELS), fb.GaussianNB().fit(NUMBERS, LABELS)
    tiny = fb.MultinomialNB(alpha=0, force_alpha=False)
    for call in (
        lambda: model.predict(FRAME),
        lambda: model.decide(FRAME),
        lambda: bare.predict_log_proba(FRAME),
        lambda: bare.score(NUMBERS, LABELS[:, None]),
        lambda: tiny.fit(NUMBERS, LABELS),
        lambda: tiny.fit_statistics(tiny.statistics_),
        lambda: fb.NaiveBayes().fit(NUMBERS, ["one"] * N_ROWS),
    ):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert [w.filename for w in seen] == [__file__]


def test_score__reads_the_classes_of_whatever_fit_reads(tmp_path: Path) -> None:
    columns = {"a": list("uuvv") * 3, "y": list("nnpp") * 3}
    pd.DataFrame(columns).to_parquet(tmp_path / "t.parquet")
    for source in (columns, pd.DataFrame(columns), tmp_path / "t.parquet"):
        model = fb.NaiveBayes().fit(source, "y")
        assert model.score(source, "y") == 1.0
        with pytest.raises(fb.SchemaError, match="no column 'z'"):
            model.score(source, "z")
