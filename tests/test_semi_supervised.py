"""Rows without a class, samples, and leaving one out: against what they stand for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import Rows, close, frame
from oracles.naive_bayes import NaiveBayes as Oracle

import fastbayes as fb
from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.errors import DataError
from fastbayes.models.estimator.smoothing import leave_one_out_log_joint

TYPES = {"a": pa.string(), "b": pa.string(), "u": pa.float64()}


pytestmark = pytest.mark.usefixtures("kernels")


def mixture(n: int, labelled: float, seed: int, numeric: bool = True) -> tuple[Rows, list[Any]]:
    """Return rows of three classes that differ, most of them without their class."""
    rng = np.random.default_rng(seed)
    values = {"a": "pqrs", "b": "tuv"}
    rows, classes = [], []
    for _ in range(n):
        c = int(rng.integers(0, 3))
        row: dict[str, Any] = {}
        for j, domain in values.items():
            weight = np.roll(np.arange(1, len(domain) + 1) ** 2, c)
            row[j] = (
                None if rng.random() < 0.1 else str(rng.choice([*domain], p=weight / weight.sum()))
            )
        if numeric:
            row["u"] = None if rng.random() < 0.1 else float(rng.normal() + 2 * c)
        rows.append(row)
        classes.append("xyz"[c] if rng.random() < labelled else None)
    classes[:3] = "xyz"
    return rows, classes


def table(rows: Rows) -> pa.Table:
    return frame(rows, {j: TYPES[j] for j in rows[0]})


# Expectation maximisation


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("numeric", [False, True])
def test_em__no_step_lowers_what_it_maximises(alpha: float, numeric: bool) -> None:
    """Log likelihood of what was seen, plus alpha times every log parameter (its prior)."""
    rows, classes = mixture(150, 0.1, 5, numeric)
    X, y = table(rows), pa.array(classes)
    fitted = fb.NaiveBayes(alpha=alpha, unlabelled="em").fit(X, y)
    known = np.array([c is not None for c in classes])
    labels = np.array(["xyz".index(c) for c in classes if c])

    def objective(stats: fb.Statistics) -> float:
        model = fb.NaiveBayes(alpha=alpha).fit_statistics(stats)
        joint = model.log_joint(X)
        seen = joint[known][np.arange(len(labels)), labels].sum()
        hidden = model.log_evidence(X)[~known].sum()
        prior = model.class_log_prior_.sum()
        for j, feature in enumerate(stats.schema.categorical):
            n = stats.values.of(j) + alpha
            prior += np.log(n / n.sum(axis=0)).sum() if alpha else 0.0
            assert feature.size == len(n)
        return float(seen + hidden + (alpha * prior if alpha else 0.0))

    trace = fitted.trace_
    assert fitted.converged_
    assert len(trace) == fitted.n_iter_ + 1 > 5
    assert (np.diff(trace) > -1e-12 * abs(trace[-1])).all()
    assert trace[-1] > trace[0]
    assert trace[-1] == pytest.approx(objective(fitted.statistics_), rel=1e-12)


def test_em__that_is_stopped_keeps_the_best_and_says_so(tmp_path: Path) -> None:
    rows, classes = mixture(150, 0.1, 5)
    X, y = table(rows), pa.array(classes)
    with pytest.warns(
        fb.ConvergenceWarning,
        match="unlabelled='em' did not converge in 3 steps.*tol=1e-09; raise `max_iter`, or `tol`",
    ):
        model = fb.NaiveBayes(unlabelled="em", max_iter=3).fit(X, y)
    whole = fb.NaiveBayes(unlabelled="em").fit(X, y)
    np.testing.assert_array_equal(model.trace_, whole.trace_[:4])
    assert model.converged_ is False
    assert model.n_iter_ == 3
    assert whole.converged_
    loose = fb.NaiveBayes(unlabelled="em", tol=0.01).fit(X, y)
    assert loose.n_iter_ < whole.n_iter_
    # A file and a copy keep how it went; statistics of other rows have no such way.
    model.save(tmp_path / "m.fb")
    for other in (fb.load(tmp_path / "m.fb"), model.adapt_prior(X)):
        assert (other.converged_, other.n_iter_) == (False, 3)
        np.testing.assert_array_equal(other.trace_, model.trace_)
    again = model.fit_statistics(whole.statistics_)
    assert (again.converged_, again.n_iter_, len(again.trace_)) == (True, 1, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.25},
        {"missing": "category"},
        {"class_prior": "uniform"},
        {"domains": {"b": ["never", "t", "u", "v"]}},
        {"variance": "shared"},
    ],
    ids=str,
)
def test_em__equals_one_row_at_a_time(options: dict[str, Any]) -> None:
    rows, classes = mixture(24, 0.5, 1)
    rows[-1]["a"], classes[-1] = "only here", None  # a value of unlabelled rows alone
    oracle = Oracle(numeric=["u"], unlabelled="em", **options).fit(rows, classes)
    model = fb.NaiveBayes(unlabelled="em", **options).fit(table(rows), pa.array(classes))
    close(model.log_joint(table(rows)), [oracle.log_joint(row) for row in rows], 1e-6)
    assert model.statistics_.schema.features[0].size == 5
    assert model.statistics_.n_rows == pytest.approx(len(rows))


def test_em__weights() -> None:
    rows, classes = mixture(40, 0.4, 2)
    weights = (np.arange(40) % 4 / 2).tolist()
    weights[:3] = [1.0, 1.0, 1.0]
    oracle = Oracle(numeric=["u"], unlabelled="em").fit(rows, classes, weights)
    model = fb.NaiveBayes(unlabelled="em").fit(
        table(rows), pa.array(classes), sample_weight=weights
    )
    close(model.log_joint(table(rows)), [oracle.log_joint(row) for row in rows], 1e-6)


def test_em__the_end_is_a_fixed_point() -> None:
    rows, classes = mixture(200, 0.2, 3)
    X, y = table(rows), pa.array(classes)
    model = fb.NaiveBayes(unlabelled="em").fit(X, y)
    known = np.array([c is not None for c in classes])
    expected = model.predict_proba(X.filter(~known))
    counts = np.array([classes.count(c) for c in "xyz"]) + expected.sum(axis=0)
    np.testing.assert_allclose(model.statistics_.values.class_counts, counts, rtol=1e-6)


def test_em__rows_alike_are_counted_as_often_as_they_stand() -> None:
    rows, classes = mixture(30, 0.4, 4)
    many = fb.NaiveBayes(unlabelled="em").fit(table(rows * 3), pa.array(classes * 3))
    once = fb.NaiveBayes(unlabelled="em").fit(
        table(rows), pa.array(classes), sample_weight=[3.0] * 30
    )
    order = np.random.default_rng(0).permutation(90)
    shuffled = fb.NaiveBayes(unlabelled="em").fit(
        table([(rows * 3)[i] for i in order]), pa.array([(classes * 3)[i] for i in order])
    )
    for other in (once, shuffled):
        close(other.log_joint(table(rows)), many.log_joint(table(rows)), 1e-6)


def test_em__blocks_whose_dictionaries_differ() -> None:
    """Unlabelled rows of many blocks and chunks come together whatever their encoding."""
    n = BLOCK_ROWS + 1000
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, n)
    y = pa.array(np.array(["x", "y", "z"])[codes], mask=rng.random(n) < 0.5)
    chunks, at = [], 0
    for size, entries in ((40_000, ["p", "q", "r"]), (n - 40_000, ["r", "q", "p"])):
        part = codes[at : at + size] if entries[0] == "p" else 2 - codes[at : at + size]
        chunks.append(pa.DictionaryArray.from_arrays(pa.array(part.astype(np.int8)), entries))
        at += size
    X = pa.table({"a": pa.chunked_array(chunks)})
    model = fb.NaiveBayes(unlabelled="em", alpha=0).fit(X, y)
    assert model.statistics_.n_rows == pytest.approx(n)
    np.testing.assert_allclose(
        model.statistics_.values.of(0), np.diag(np.bincount(codes)), rtol=1e-9
    )


def test_em__all_or_none_have_a_class() -> None:
    rows, _ = mixture(20, 1.0, 6)
    y = list("xy" * 10)
    em, plain = (fb.NaiveBayes(unlabelled=u).fit(table(rows), y) for u in ("em", "ignore"))
    assert em.statistics_ == plain.statistics_
    with pytest.raises(DataError, match="null in all 20 rows"):
        fb.NaiveBayes(unlabelled="em").fit(table(rows), pa.nulls(20, pa.string()))
    with pytest.raises(DataError, match="nothing to learn from"):
        fb.NaiveBayes(unlabelled="em").fit(
            table(rows), pa.array(["x", *[None] * 19]), sample_weight=[0, *[1] * 19]
        )


# Samples


def sampled() -> fb.NaiveBayes:
    rows, classes = mixture(300, 1.0, 7)
    return fb.NaiveBayes(alpha=0.5).fit(table(rows), classes)


def test_sample__frequencies_are_the_parameters() -> None:
    model, n = sampled(), 200_000
    rows = model.sample(n, seed=1).to_pandas()
    prior = rows["class"].value_counts(normalize=True).reindex(model.classes_)
    within(prior, np.exp(model.class_log_prior_), n)
    values, schema = model.statistics_.values, model.schema_
    for j, feature in enumerate(schema.categorical):
        counts = values.of(j) + 0.5
        for k, c in enumerate(model.classes_):
            own = rows[rows["class"] == c]
            found = own[feature.name].value_counts(normalize=True)
            found = found.reindex(feature.values.to_pylist())  # type: ignore[union-attr]
            within(found, counts[:, k] / counts[:, k].sum(), len(own))
    for k, c in enumerate(model.classes_):
        u = rows["u"][rows["class"] == c]
        spread = math.sqrt(model.variance_[0, k])
        assert abs(u.mean() - model.mean_[0, k]) < 5 * spread / math.sqrt(len(u))
        assert u.var() == pytest.approx(model.variance_[0, k], rel=5 * math.sqrt(2 / len(u)))


def within(found: Any, wanted: Any, n: int) -> None:
    """Five standard errors: one in a million by chance, and the seed is fixed."""
    error = np.sqrt(np.asarray(wanted) * (1 - np.asarray(wanted)) / n)
    assert (np.abs(np.asarray(found) - wanted) <= 5 * error).all()


def test_sample__columns_are_independent_within_a_class() -> None:
    rows = sampled().sample(100_000, "y", seed=2).to_pandas()
    assert set(rows["class"]) == {"y"}
    together = rows.groupby(["a", "b"]).size() / len(rows)
    product = [(rows["a"] == a).mean() * (rows["b"] == b).mean() for a, b in together.index]
    within(together, product, len(rows))
    assert abs(np.corrcoef(rows["u"], rows["a"] == "p")[0, 1]) < 0.02


def test_sample__is_what_the_seed_says() -> None:
    model = sampled()
    assert model.sample(100, seed=3).equals(model.sample(100, seed=3))
    assert not model.sample(100, seed=3).equals(model.sample(100, seed=4))
    assert model.sample(0, seed=3).schema == model.sample(1, seed=3).schema
    assert model.sample(2, ["z", "x"], seed=0)["class"].to_pylist() == ["z", "x"]


def test_sample__refit_finds_the_model_again() -> None:
    model = sampled()
    rows = model.sample(200_000, seed=5)
    again = fb.NaiveBayes(alpha=0).fit(rows, "class")
    X = rows.drop_columns("class").slice(0, 1000)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=0.05)


def test_sample__what_is_impossible_never_comes() -> None:
    data = pa.table({"a": ["p", "q", "r"], "y": ["x", "x", "y"]})
    model = fb.NaiveBayes(alpha=0, domains={"a": ["o", "p", "q", "r", "s"]}).fit(data, "y")
    rows = model.sample(5000, seed=0).to_pylist()
    assert {(r["a"], r["y"]) for r in rows} == {("p", "x"), ("q", "x"), ("r", "y")}


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_sample__missing_values_that_are_a_value_of_their_own(alpha: float) -> None:
    data = pa.table(
        {"a": ["p", None, None, None, "q", "p"], "full": list("pqpqpq"), "y": list("xxxxyy")}
    )
    model = fb.NaiveBayes(missing="category", alpha=alpha).fit(data, "y")
    n = 20_000
    x, y = (np.array(model.sample(n, c, seed=1)["a"].to_pylist(), dtype=object) for c in "xy")
    for rows, wanted in ((x, (3 + alpha) / (4 + 3 * alpha)), (y, alpha / (2 + 3 * alpha))):
        within([np.mean([v is None for v in rows])], [wanted], n)
    assert None not in model.sample(1000, seed=1)["full"].to_pylist()


def test_sample__what_cannot_be_drawn_is_refused() -> None:
    model = sampled()
    with pytest.raises(ValueError, match="y holds 'w', which is not among the classes"):
        model.sample(3, "w")
    with pytest.raises(ValueError, match="give one class or 3 of them"):
        model.sample(3, ["x"])
    for n in (-1, 1.5, True):
        with pytest.raises(ValueError, match=f"n={n!r}: use a whole number"):
            model.sample(n)  # type: ignore[arg-type]


# Leaving one out


def brute_force(X: pa.Table, y: list[str], options: dict[str, Any]) -> float:
    """Refit without each row in turn, the schema fixed, and score the row."""
    domains = {n: sorted({v for v in X[n].to_pylist() if v is not None}) for n in X.column_names}
    domains["class"] = sorted({*y})
    total = 0.0
    for r in range(len(y)):
        rest = pa.concat_tables([X.slice(0, r), X.slice(r + 1)])
        model = fb.NaiveBayes(domains=domains, **options).fit(rest, y[:r] + y[r + 1 :])
        joint = model.log_joint(X.slice(r, 1))[0]
        total += float(joint[model.classes_.tolist().index(y[r])])
    return total


@pytest.mark.parametrize("missing", ["marginalize", "category"])
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 0.5, 1.0, 30.0])
def test_leave_one_out__closed_form_equals_refitting(alpha: float, missing: str) -> None:
    rows, classes = mixture(40, 1.0, 8, numeric=False)
    if alpha == 0:  # every value of every class more than once, or the sum is -inf
        rows, classes = rows * 2, classes * 2
    X = table(rows)
    stats = fb.count(X, classes, missing=missing)
    closed = leave_one_out_log_joint(stats.values, missing)(alpha)
    assert math.isfinite(closed)
    brute = brute_force(X, classes, {"alpha": alpha, "missing": missing})
    assert closed == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_leave_one_out__values_and_classes_that_stand_once(alpha: float) -> None:
    X = table([{"a": "p"}, {"a": "q"}, {"a": "q"}, {"a": None}])
    y = ["x", "y", "y", "y"]
    stats = fb.count(X, y)
    closed = leave_one_out_log_joint(stats.values, "marginalize")(alpha)
    brute = brute_force(X, y, {"alpha": alpha})
    assert closed == brute == -math.inf if alpha == 0 else closed == pytest.approx(brute)


def test_leave_one_out__one_class_and_one_value_at_alpha_zero() -> None:
    stats = fb.count(pa.table({"a": ["p"]}), ["x"])
    assert leave_one_out_log_joint(stats.values, "marginalize")(0.0) == 0.0


@pytest.mark.filterwarnings("ignore:there is only one class")
@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_leave_one_out__the_best_alpha_is_the_best(missing: str) -> None:
    rows, classes = mixture(60, 1.0, 9, numeric=False)
    stats = fb.count(table(rows), classes, missing=missing)
    best = fb.NaiveBayes(alpha="loo", missing=missing).fit_statistics(stats).alpha_
    score = leave_one_out_log_joint(stats.values, missing)
    for alpha in np.exp(np.linspace(math.log(1e-6), math.log(1e4), 301)):
        assert score(best) >= score(alpha) - 1e-9
