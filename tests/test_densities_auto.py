"""NaiveBayes(numeric="auto"): the density that makes rows left out likeliest, and its uses."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from oracles import density as naive
from oracles import student
from sklearn.metrics import log_loss
from test_densities import fitted, hard, of_class, rows_of, terms

import fastbayes as fb
from fastbayes.statistics.class_sketches import LIMIT


def repeated(seed: int) -> pa.Table:
    """Return rows of two shapes of which those of one stand thirty times."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=12), rng.standard_cauchy(12) * 3])
    often = np.repeat([30, 1] if seed % 2 else [1, 30], 12)
    y = np.array(["a", "b"])[rng.integers(0, 2, 24)]
    return pa.table({"x": x, "y": y}).take(np.repeat(np.arange(24), often))


@pytest.mark.parametrize("parametric", ["student", "gaussian"])
@pytest.mark.parametrize(
    "alone",
    [rows_of(15, 150).select(["x", "y"]), rows_of(15, 150).select(["z", "y"])]
    + [repeated(seed) for seed in (2, 8, 9, 22)],
)
def test_auto__takes_the_density_of_the_largest_left_out_likelihood(
    alone: pa.Table, parametric: str
) -> None:
    name, scores = alone.column_names[0], {}
    everyone = [(row[name], row["y"]) for row in alone.to_pylist() if row[name] is not None]
    cuts = fitted(alone, numeric="mdl").schema_.features[0].cuts.tolist()
    edges = fitted(alone, numeric="histogram")._densities.by_place[0].edges.tolist()
    classes = [of_class(alone, name, label) for label in ("a", "b", "c")]
    prior = student.prior([own for own in classes if own[0]])
    for numeric in (parametric, "kde", "histogram", *["mdl"] * (len(cuts) > 0)):
        other = fitted(alone, numeric=numeric)
        density = other._densities.by_place.get(0)
        if numeric == "kde" and density.spiked:
            continue
        total = []
        for c, label in enumerate(other.classes_):
            points, _ = of_class(alone, name, label)
            for i, x in enumerate(points):
                rest = [p for j, p in enumerate(points) if j != i]
                ones = [1] * len(rest)
                if numeric == "student":
                    total.append(student.log_density(x, rest, ones, prior))
                elif numeric == "gaussian":
                    total.append(scipy.stats.norm.logpdf(x, np.mean(rest), np.std(rest)))
                elif numeric == "kde":
                    total.append(naive.kernel_log_density(x, rest, ones, density.bandwidth[c]))
                elif numeric == "histogram":
                    total.append(naive.histogram_log_density(x, edges, rest, ones, 1.0))
                else:
                    others = rest + [p for p, y in everyone if y != label]
                    told = (rest, ones), (others, [1] * len(others))
                    total.append(naive.binned_log_density(x, edges, cuts, *told, 1.0))
        scores[numeric] = math.fsum(total)
    best = max(scores, key=lambda kind: scores[kind])
    assert fitted(alone, numeric="auto", parametric=parametric).numeric_ == {name: best}


@pytest.mark.parametrize("kind", ["bimodal", "heavy", "discrete"])
def test_auto__wins_where_a_gaussian_is_a_trap(kind: str) -> None:
    train, test = hard(kind, 2_000, 0), hard(kind, 4_000, 1)
    loss = {
        numeric: log_loss(test["y"].to_pylist(), fitted(train, numeric=numeric).predict_proba(test))
        for numeric in ("gaussian", "auto")
    }
    assert loss["auto"] < loss["gaussian"] - 0.05
    best = {"bimodal": "kde", "heavy": "mdl", "discrete": "mdl"}
    assert fitted(train, numeric="auto").numeric_ == {"x": best[kind]}


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_auto__of_bins_has_the_posteriors_of_bins(alpha: float) -> None:
    table, new = hard("discrete", 500, 3), pa.table({"x": np.linspace(-20.25, 20, 200)})
    model, bins = (fitted(table, numeric=n, alpha=alpha) for n in ("auto", "mdl"))
    assert model.numeric_ == bins.numeric_ == {"x": "mdl"}
    for rows in (table, new):
        np.testing.assert_allclose(model.predict_proba(rows), bins.predict_proba(rows), rtol=1e-9)
    density = model._densities.by_place[0]
    np.testing.assert_allclose(np.exp(density.log_mass).sum(axis=0), 1, rtol=1e-12)
    points, weight = of_class(table, "x", "a")
    every = table["x"].to_pylist(), [1.0] * 500
    told = density.edges.tolist(), bins.schema_.features[0].cuts.tolist(), (points, weight), every
    at = [-3.0, 0.0, 1.5, 2.0, 3.25, 6.0, 9.0]
    expected = [naive.binned_log_density(x, *told, alpha) for x in at]
    np.testing.assert_allclose(terms(model, "x", at)[:, 0], expected, rtol=1e-12)


def test_auto__stays_parametric_where_the_columns_are_normal() -> None:
    rng = np.random.default_rng(16)
    y = rng.integers(0, 2, 2_000)
    model = fb.NaiveBayes(numeric="auto").fit(
        pa.table({"x": rng.normal(size=2_000) + y, "y": y}), "y"
    )
    assert model.numeric_ == {"x": "student"}


def test_auto__of_more_values_than_are_held() -> None:
    """Ranges of one class must not be told from those of another."""
    rng = np.random.default_rng(5)
    n = 9 * LIMIT
    y = rng.integers(0, 3, n)
    table = pa.table(
        {
            "bell": rng.normal(size=n) + y,
            "tail": np.exp(rng.normal(size=n) + y / 2),
            "step": rng.random(n) * np.where(rng.random(n) < 0.8, y + 1, 3),
            "y": y,
        }
    )
    model = fb.NaiveBayes(numeric="auto").fit(table, "y")
    assert not model.statistics_.sketches.of(0, 0).exact
    assert model.numeric_["bell"] == "student"
    assert model.numeric_["tail"] != "student"
    assert model.numeric_["step"] == "mdl"
    edges = model._densities.by_place[2].edges
    assert min(np.abs(edges - 1).min(), np.abs(edges - 2).min()) < 0.01
    seen = log_loss(y, model.predict_proba(table))
    left = fb.leave_one_out(model, model.statistics_, table).log_loss
    gaussian = log_loss(y, fitted(table).predict_proba(table))
    assert seen < left < seen + 0.002
    assert left < gaussian - 0.05
