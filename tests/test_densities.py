"""Densities within classes that are not normal: NaiveBayes(numeric="kde" | "histogram" | ...)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.special
import scipy.stats
from oracles import density as naive
from sklearn.neighbors import KernelDensity as SklearnDensity

import fastbayes as fb
from fastbayes.models.numeric.numeric_density import bins_of
from fastbayes.statistics.class_sketches import LIMIT

SKETCHED = ["kde", "histogram", "auto"]
KINDS = ["student", *SKETCHED]


def rows_of(seed: int, n: int = 60, weights: bool = False) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.choice(["a", "b", "c"], n, p=[0.5, 0.4, 0.1])
    x = rng.normal(size=n) + (y == "a") * rng.choice([-2, 2], n)
    columns = {
        "x": pa.array(x, mask=rng.random(n) < 0.1),
        "k": rng.choice(["p", "q"], n),
        "z": np.round(rng.standard_cauchy(n) * 2 + (y == "b")),
        "y": y,
    }
    return pa.table(columns | ({"w": rng.integers(0, 9, n) / 4} if weights else {}))


def of_class(table: pa.Table, name: str, label: str) -> tuple[list[float], list[float]]:
    """Return the known values of a column within a class, and their weights."""
    rows = table.to_pylist()
    kept = [r for r in rows if r["y"] == label and r[name] is not None and r.get("w", 1)]
    return [r[name] for r in kept], [float(r.get("w", 1)) for r in kept]


def fitted(table: pa.Table, **options: Any) -> fb.NaiveBayes:
    weight = "w" if "w" in table.column_names else None
    return fb.NaiveBayes(**options).fit(table, "y", sample_weight=weight)


def terms(model: fb.NaiveBayes, name: str, x: Any) -> Any:
    """Return ln f(x | c) of one column, (n, n_classes)."""
    empty = {f: pa.nulls(len(x)) for f in model.feature_names_in_}
    place = model.feature_names_in_.tolist().index(name)
    return model.explain(pa.table(empty | {name: x})).contributions[:, place]


def hard(kind: str, n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.choice(["a", "b"], n)
    a = y == "a"
    x = {
        "bimodal": np.where(a, rng.choice([-3.0, 3.0], n), 0.0) + rng.normal(size=n),
        "heavy": rng.standard_cauchy(n) * np.where(a, 1, 4),
        "discrete": np.where(a, rng.choice([0.0, 2, 4, 6], n), rng.choice([1.0, 2, 3, 6], n)),
    }[kind]
    return pa.table({"x": x, "y": y})


# -- what a density is -------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", ["x", "z"])
def test_kde__is_the_sum_of_kernels_of_the_oracle(kernels: str, name: str, weights: bool) -> None:
    table = rows_of(1, weights=weights)
    model = fitted(table, numeric="kde", var_floor=1e-9)
    at = np.linspace(-6, 6, 40)
    found = terms(model, name, at)
    for c, label in enumerate(model.classes_):
        points, weight = of_class(table, name, label)
        h = naive.silverman(points, weight)
        expected = [naive.kernel_log_density(x, points, weight, h) for x in at]
        np.testing.assert_allclose(found[:, c], expected, rtol=1e-6, atol=1e-6)


def test_kde__agrees_with_scipy_and_scikit_learn_at_the_same_bandwidth() -> None:
    table = rows_of(2, n=400)
    model = fitted(table, numeric="kde")
    at = np.linspace(-5, 5, 200)
    found = terms(model, "x", at)
    density = model._densities.by_place[0]
    for c, label in enumerate(model.classes_):
        points, _ = of_class(table, "x", label)
        h = density.bandwidth[c]
        scipys = scipy.stats.gaussian_kde(points, bw_method=h / np.std(points, ddof=1))
        np.testing.assert_allclose(found[:, c], scipys.logpdf(at), rtol=0, atol=2e-6)
        sklearns = SklearnDensity(bandwidth=h).fit(np.array(points)[:, None])
        np.testing.assert_allclose(found[:, c], sklearns.score_samples(at[:, None]), atol=2e-6)


@pytest.mark.parametrize("alpha", [0.5, 2.0, 0.0])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", ["x", "z"])
def test_histogram__is_that_of_the_oracle(
    kernels: str, name: str, weights: bool, alpha: float
) -> None:
    table = rows_of(3, weights=weights)
    model = fitted(table, numeric="histogram", alpha=alpha)
    parts = [of_class(table, name, label) for label in model.classes_]
    edges = naive.edges(*([v for part in parts for v in part[i]] for i in (0, 1)))
    at = np.concatenate([np.linspace(-7, 7, 30), np.unique([p for part in parts for p in part[0]])])
    found = terms(model, name, at)
    for c, (points, weight) in enumerate(parts):
        expected = [naive.histogram_log_density(x, edges, points, weight, alpha) for x in at]
        np.testing.assert_allclose(found[:, c], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("values", "numeric"),
    [
        ("tiny", "histogram"),
        ("tiny", "auto"),
        ("last bits", "histogram"),
        ("far apart", "histogram"),
        ("far apart", "auto"),
    ],
)
def test_bins__at_predict_are_those_of_the_fit(
    kernels: str, values: str, classes: int, numeric: str
) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 600)
    some, u = rng.random(600), rng.random(600)
    x = {
        # Beside the centre many of them round to one number.
        "tiny": np.where(some < 0.4, 10.0 ** (-18 - 4 * y - u), u / 2 + 0.5),
        "last bits": np.round(rng.normal(size=600), 1) + y,
        "far apart": np.where(some < 0.95, 1e-200 * (1 + u + y), 1 + u + 2 * y),
    }[values]
    model = fb.NaiveBayes(numeric=numeric).fit(pa.table({"x": x, "y": y}), "y")
    density = model._densities.by_place[0]
    bins = bins_of(density.edges, x)
    expected = density.log_mass[bins] - np.log(density.widths[bins])[:, None]
    np.testing.assert_allclose(terms(model, "x", x), expected, rtol=1e-12)
    joint = expected + model.class_log_prior_
    np.testing.assert_allclose(model.log_joint({"x": x}), joint, rtol=1e-12)
    shares = scipy.special.softmax(joint, axis=1)
    np.testing.assert_allclose(model.predict_proba({"x": x}), shares, rtol=1e-9)
    one = model.predictor()
    singly = [one.predict_proba({"x": value}) for value in x[:60].tolist()]
    np.testing.assert_allclose(singly, shares[:60], rtol=1e-9)


def test_tails__of_values_that_are_very_far_apart(kernels: str) -> None:
    rng = np.random.default_rng(1)
    x = np.where(rng.random(400) < 0.95, 1e-200 * rng.random(400), 1.0 + rng.random(400))
    table = pa.table({"x": x, "y": rng.choice(["a", "b"], 400)})
    for numeric in ("kde", "histogram"):
        model = fitted(table, numeric=numeric)
        found = terms(model, "x", [x.max(), x.max() + 1, x.max() + 2, x.max() + 3])
        assert (np.diff(found, axis=0) < -1e-3).all()
    # Those of a histogram fall off with the distance in units of the range.
    np.testing.assert_allclose(np.diff(found[1:], axis=0), -1 / np.ptp(x), rtol=1e-12)


@pytest.mark.parametrize("numeric", ["kde", "histogram"])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_density__integrates_to_one(numeric: str, scale: float) -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(size=80), 5 + rng.normal(size=40) / 4]) * scale
    y = np.array(["a", "b"])[rng.integers(0, 2, 120)]
    model = fitted(pa.table({"x": x, "y": y}), numeric=numeric)
    far = (x.max() - x.min()) * 40
    edges = np.unique([*x, *np.geomspace(1e-3 * scale, far, 4_000) + x.max()])
    edges = np.unique(np.concatenate([edges, x.min() - np.geomspace(1e-3 * scale, far, 4_000)]))
    grid = np.unique(np.concatenate([edges, *(edges[:-1] + np.diff(edges) * s for s in
                                              np.linspace(0.02, 0.98, 25))]))  # fmt: skip
    total = np.trapezoid(np.exp(terms(model, "x", grid)), grid, axis=0)
    np.testing.assert_allclose(total, 1, atol=3e-3)


def test_ranges__of_many_values_change_a_density_little() -> None:
    rng = np.random.default_rng(5)
    n = 12 * LIMIT
    y = rng.integers(0, 2, n)
    x = rng.choice([-3.0, 2.0], n) * y + rng.normal(size=n)
    model = fb.NaiveBayes(numeric="kde").fit(pa.table({"x": x, "y": y}), "y")
    held = model.statistics_.sketches.of(0, 1)
    assert not held.exact
    mine = x[y == 1]
    density = model._densities.by_place[0]
    truth = scipy.stats.gaussian_kde(mine, bw_method=density.bandwidth[1] / np.std(mine, ddof=1))
    at = np.linspace(-5, 4, 60)
    np.testing.assert_allclose(terms(model, "x", at)[:, 1], truth.logpdf(at), rtol=0, atol=2e-3)


# -- what every model obeys ---------------------------------------------------------------------


@pytest.mark.parametrize("numeric", KINDS)
def test_joint__is_the_prior_and_the_terms(kernels: str, numeric: str) -> None:
    table = rows_of(6)
    model = fitted(table, numeric=numeric)
    parts = model.explain(table).contributions
    joint = model.class_log_prior_ + parts.sum(axis=1)
    np.testing.assert_allclose(model.log_joint(table), joint, rtol=1e-12, atol=1e-12)
    proba = model.predict_proba(table)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    # Log odds of two classes are another way to the same.
    two = table.filter(pa.array(np.asarray(table["y"]) != "c"))
    pair = fitted(two, numeric=numeric)
    joint = pair.log_joint(two)
    expected = scipy.special.expit(joint[:, 1:] - joint[:, :1])
    np.testing.assert_allclose(pair.predict_proba(two)[:, 1:], expected, rtol=1e-9, atol=1e-12)


def test_classes__of_which_there_are_many(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(22)
    y = rng.integers(0, 21, 400)
    table = pa.table({"x": rng.normal(size=400) + y / 4, "g": rng.normal(size=400) - y, "y": y})
    few, many = (fitted(table, numeric={"x": "kde"}) for _ in range(2))
    joint = few.log_joint(table)
    assert [first for first, _ in few._densities.curves()[0]] == [0, 8, 16]
    monkeypatch.setattr("fastbayes.models.numeric.numeric_density.TOGETHER", 100)
    assert len(many._densities.curves()[0]) == 1
    np.testing.assert_allclose(many.log_joint(table), joint, rtol=0, atol=1e-5)
    np.testing.assert_allclose(many.predict_proba(table), few.predict_proba(table), atol=1e-6)
    parts = few.explain(table).contributions.sum(axis=1) + few.class_log_prior_
    np.testing.assert_allclose(parts, joint, rtol=1e-12)
    stats = few.statistics_
    left = [fb.leave_one_out(m, stats, table).proba for m in (few, many)]
    np.testing.assert_allclose(*left, atol=1e-6)


@pytest.mark.parametrize("numeric", KINDS)
def test_missing__says_nothing(kernels: str, numeric: str) -> None:
    table = rows_of(7)
    model = fitted(table, numeric=numeric)
    gone = table.set_column(2, "z", pa.nulls(len(table), pa.float64()))
    without = fitted(table.drop_columns("z"), numeric=numeric)
    np.testing.assert_allclose(
        model.predict_proba(gone), without.predict_proba(gone.drop_columns("z")), atol=1e-12
    )


@pytest.mark.parametrize("numeric", KINDS)
def test_batches__give_what_one_fit_gives(numeric: str) -> None:
    table = rows_of(9)
    whole, parts = fitted(table, numeric=numeric), fb.NaiveBayes(numeric=numeric)
    for first in (40, 0, 20):
        parts.partial_fit(table.slice(first, 20), "y")
    if numeric in SKETCHED:
        assert parts.statistics_.sketches == whole.statistics_.sketches
    np.testing.assert_allclose(parts.log_joint(table), whole.log_joint(table), rtol=1e-9)


@pytest.mark.parametrize("numeric", ["kde", "histogram"])
@pytest.mark.parametrize("factor", [2.0**-30, -1.0, 2.0**30])
def test_unit__does_not_matter(numeric: str, factor: float) -> None:
    table = rows_of(11)
    other = table.set_column(2, "z", pa.array(table["z"].to_numpy() * factor))
    a, b = fitted(table, numeric=numeric), fitted(other, numeric=numeric)
    if factor < 0 and numeric == "kde":
        # From the other side other values are the first ones up to a quarter.
        density = [m._densities.by_place[1].bandwidth for m in (a, b)]
        np.testing.assert_allclose(*density, rtol=0.3)
        return
    if factor > 0:
        np.testing.assert_allclose(a.predict_proba(table), b.predict_proba(other), atol=1e-9)


def test_tie__of_bins_goes_to_the_first_class(kernels: str) -> None:
    for seed in range(4):
        a, b = np.random.default_rng(seed).integers(0, 3, (2, 14)) * 1.0
        # What a column says of one class another says of the other one, in another order.
        pairs = {"u": (a, b), "v": (b, a), "p": (2 * a, 2 * b), "q": (2 * b, 2 * a)}
        columns = {name: np.concatenate(pair) for name, pair in pairs.items()}
        model = fitted(pa.table({**columns, "y": ["a"] * 14 + ["b"] * 14}), numeric="histogram")
        for k in range(3):
            row = pa.table({"u": [k], "v": [k], "p": [2 * k], "q": [2 * k]})
            assert model.predict_proba(row).tolist() == [[0.5, 0.5]]
            assert model.predict(row).tolist() == ["a"]


# -- leave-one-out and k-fold -------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("numeric", ["kde", "histogram"])
def test_leave_one_out__takes_each_row_out_of_its_class(
    kernels: str, numeric: str, weights: bool
) -> None:
    table = rows_of(12, weights=weights).drop_columns(["k", "z"])
    model = fitted(table, numeric=numeric, class_prior="uniform")
    weight = "w" if weights else None
    stats = fb.count(table, "y", numeric=numeric, sample_weight=weight)
    found = fb.leave_one_out(model, stats, table, sample_weight=weight)
    assert found.fixed == ("schema", {"kde": "bandwidths", "histogram": "bins"}[numeric])
    parts = {label: of_class(table, "x", label) for label in model.classes_}
    edges = naive.edges(*([v for p in parts.values() for v in p[i]] for i in (0, 1)))
    for r, row in enumerate(table.to_pylist()):
        if row["x"] is None or not row.get("w", 1):
            continue
        joint = []
        for label in model.classes_:
            points, weights_ = (list(part) for part in parts[label])
            h = naive.silverman(points, weights_)
            if label == row["y"]:
                at = points.index(row["x"])
                weights_[at] -= min(weights_[at], 1.0)
            if numeric == "kde":
                joint.append(naive.kernel_log_density(row["x"], points, weights_, h))
            else:
                joint.append(
                    naive.histogram_log_density(row["x"], edges, points, weights_, model.alpha)
                )
        proba = np.exp(np.array(joint) - naive.log_sum(joint))
        np.testing.assert_allclose(found.proba[r], proba, rtol=0, atol=1e-6)


def test_leave_one_out__of_columns_of_several_densities() -> None:
    table = rows_of(21)
    x = table["z"].to_numpy() * 0 + np.random.default_rng(0).normal(size=60) * 1e-3
    x[7] = 1e6  # nearly all of the scatter of its class
    columns = {"h": table["x"], "g": pa.array(x), "k": table["z"], "y": table["y"]}
    columns["g2"] = pa.array(np.random.default_rng(1).normal(size=60))
    table = pa.table({name: columns[name] for name in ("h", "g", "k", "g2", "y")})
    kinds = {"h": "histogram", "k": "kde"}
    proba = np.ones((60, 3))
    for names in (["h"], ["k"], ["g", "g2"], ["h", "g", "k", "g2"]):
        some = {name: kind for name, kind in kinds.items() if name in names}
        model = fb.NaiveBayes(numeric=some, class_prior="uniform")
        rows = table.select([*names, "y"])
        stats = fb.count(rows, "y", numeric=some)
        found = fb.leave_one_out(model, stats, rows).proba
        if len(names) < 4:
            proba *= found
    proba /= proba.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, proba, rtol=0, atol=1e-9)


def test_leave_one_out__a_class_left_empty_is_described_by_the_others() -> None:
    rng = np.random.default_rng(13)
    x = np.append(rng.normal(size=30), 0.5)
    table = pa.table({"x": x, "y": ["a", "b"] * 15 + ["alone"]})
    for numeric in KINDS:
        stats = fb.count(table, "y", numeric=numeric)
        proba = fb.leave_one_out(fb.NaiveBayes(numeric=numeric), stats, table).proba
        assert np.isfinite(proba).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert proba[-1].max() < 0.9


@pytest.mark.parametrize("numeric", KINDS)
def test_k_fold__is_fitting_without_the_fold(numeric: str) -> None:
    table = rows_of(14, n=90)
    fold = np.arange(90) % 3
    found = fb.k_fold(fb.NaiveBayes(numeric=numeric), table, "y", folds=fold)
    for f in range(3):
        rest, held = table.filter(pa.array(fold != f)), table.filter(pa.array(fold == f))
        expected = fitted(rest, numeric=numeric).predict_proba(held)
        np.testing.assert_allclose(found.proba[fold == f], expected, rtol=0, atol=1e-9)


def test_compare__counts_what_a_density_needs() -> None:
    table = rows_of(20, n=90)
    models = {numeric: fb.NaiveBayes(numeric=numeric) for numeric in [*KINDS, "mdl"]}
    for folds in ({"validation": "leave_one_out"}, {"folds": 3}):
        found = fb.compare(table, "y", models=models, **folds)
        for entry in found.entries:
            model = models[entry.name]
            if "folds" in folds:
                alone = fb.k_fold(model, table, "y", folds=3)
            else:
                stats = fb.count(table, "y", numeric=model.numeric)
                alone = fb.leave_one_out(model, stats, table)
            assert entry.figures.log_loss == pytest.approx(alone.log_loss, rel=1e-9)
    # One scan counts for all of them.
    seen: list[int] = []
    fb.compare(table, "y", models=["naive-bayes", "naive-bayes-auto"], progress=seen.append)
    assert sum(seen) == 3 * len(table)  # and others score, and find the winner's temperature


# -- samples -----------------------------------------------------------------------------------


def test_sample__of_a_histogram_has_its_tails() -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0, 5.0], "y": ["a"] * 4})
    with pytest.warns(fb.FastBayesWarning, match="only one class"):
        model = fb.NaiveBayes(numeric="histogram", alpha=2).fit(table, "y")
    drawn = model.sample(20_000, seed=0)["x"].to_numpy()
    # Four bins inside, of one row each, and two outside, of none: 2 / (4 + 2 * 6) in each.
    for far in (1.0 - drawn, drawn - 5.0):
        assert (far > 0).mean() == pytest.approx(1 / 8, rel=0.05)
        assert far[far > 0].mean() == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("numeric", ["kde", "histogram"])
def test_sample__follows_the_density(numeric: str) -> None:
    table = hard("bimodal", 3_000, 2)
    model = fitted(table, numeric=numeric)
    drawn = model.sample(4_000, "a", seed=0)
    rows = table.filter(pa.array(np.equal(table["y"], "a")))
    assert scipy.stats.ks_2samp(drawn["x"], rows["x"]).pvalue > 1e-3
    assert model.sample(5, seed=1) == model.sample(5, seed=1)


# -- what is refused ----------------------------------------------------------------------------


def test_statistics__without_sketches_are_refused() -> None:
    table = rows_of(18)
    for numeric in SKETCHED:
        with pytest.raises(
            fb.SchemaError, match="hold no sketches of the values; count again with"
        ):
            fb.NaiveBayes(numeric=numeric).fit_statistics(fb.count(table, "y"))
    with pytest.raises(ValueError, match="wants numeric columns as they are"):
        fb.count(table, "y", pairs=True, numeric="kde")
    bins = fb.count(table, "y", numeric="mdl")
    with pytest.raises(fb.SchemaError, match="in bins, the model describes it by numeric='kde'"):
        fb.NaiveBayes(numeric="kde").fit_statistics(bins)


def test_hidden_classes__are_refused() -> None:
    with pytest.raises(ValueError, match="unlabelled='em' does not go with numeric='kde'"):
        fb.NaiveBayes(numeric="kde", unlabelled="em").fit(rows_of(19), "y")
