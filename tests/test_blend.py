"""Blends of models: how weights are found, what is held out, and a classifier like all others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fastbayes as fb
from fastbayes.evaluation.calibrate import blend as blends
from fastbayes.evaluation.calibrate.held_out_members import PosteriorSample
from fastbayes.evaluation.calibrate.pools import (
    LOG_LINEAR_FLOOR,
    PSEUDO_ROWS,
    RIDGE,
    HeldPosteriors,
    LogLinearLoss,
    Pools,
    cross_fitted,
    log_linear,
    projected_newton,
    quadratic_minimum,
    simplex_weights,
)
from fastbayes.evaluation.validate import race
from fastbayes.evaluation.validate.member_rows import MemberRows

pytestmark = pytest.mark.filterwarnings(
    "ignore:the covariance of",
    "ignore:column .* hardly varies",
    "ignore:some rows can be told",
    "ignore:there is only one class",
)
FEW = ["naive-bayes", "naive-bayes-bins", "tan", "logistic"]


def table(n: int = 240, seed: int = 0, classes: int = 3) -> pa.Table:
    """Return columns of which some say something of the class, with missing values."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    heard = np.where(rng.random(n) < 0.6, y, rng.integers(0, classes, n))
    columns = {
        "heard": pa.array(heard.astype(str), mask=rng.random(n) < 0.05),
        "noise": rng.integers(0, 4, n).astype(str),
        "height": pa.array(rng.normal(size=n) + y, mask=rng.random(n) < 0.05),
        "width": rng.integers(-20, 20, n) + 9 * (y == 1),
        "flag": rng.random(n) < 0.3 + 0.1 * y,
    }
    return pa.table({**columns, "y": np.array(list("klmn"))[y]})


def held(n: int, models: int, classes: int, seed: int, *, weighted: bool = False) -> HeldPosteriors:
    """Return posteriors of models of which the first is the best."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    signal = np.eye(classes)[y] * np.linspace(2, 0, models)[:, None, None]
    scores = signal + rng.normal(size=(models, n, classes))
    scores *= rng.choice([0.5, 1.0, 3.0], models)[:, None, None]
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    weight = rng.integers(1, 4, n) / 2 if weighted else np.ones(n)
    return HeldPosteriors(p / p.sum(axis=2, keepdims=True), y, weight)


# -- how weights are found ---------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 5), st.integers(1, 4),
    st.booleans(),
)  # fmt: skip
def test_weights__are_those_of_expectation_maximisation(
    seed: int, n: int, models: int, classes: int, weighted: bool
) -> None:
    rows = held(n, models, classes, seed, weighted=weighted)
    w = np.full(models, 1 / models)
    for _ in range(5_000):
        share = np.array([w * own for own in rows.own.T])
        share /= share.sum(axis=1, keepdims=True)
        w = rows.weight @ share + PSEUDO_ROWS
        w /= w.sum()
    found = simplex_weights(rows.own, rows.weight).point
    np.testing.assert_allclose(found, w, atol=1e-6)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert (found > 0).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 6), st.integers(1, 4),
    st.booleans(),
)  # fmt: skip
def test_coefficients__are_the_optimum_that_scipy_finds(
    seed: int, n: int, models: int, classes: int, weighted: bool
) -> None:
    rows = held(n, models, classes, seed, weighted=weighted)
    centre = np.random.default_rng(seed).dirichlet(np.ones(models))
    logs = np.log((1 - LOG_LINEAR_FLOOR) * rows.posterior + LOG_LINEAR_FLOOR / classes)

    def loss(b: Any) -> float:
        lost = RIDGE / 2 * float(((b - centre) ** 2).sum())
        for i, (c, weight) in enumerate(zip(rows.y, rows.weight, strict=True)):
            scores = sum(b[m] * logs[m, i] for m in range(models))
            lost += weight * (np.logaddexp.reduce(scores) - scores[c])
        return lost

    found = log_linear(rows, centre)
    best = minimize(loss, centre, method="L-BFGS-B", bounds=[(0, None)] * models)
    assert found.converged
    assert (found.point >= 0).all()
    assert loss(found.point) <= best.fun + 1e-6 * (1 + abs(best.fun))
    np.testing.assert_allclose(found.point, best.x, atol=1e-2)
    value, gradient, hessian = LogLinearLoss(rows, centre)(found.point)
    assert value == pytest.approx(loss(found.point), rel=1e-9)
    away = np.eye(models) * 1e-5
    function = LogLinearLoss(rows, centre)
    for m in range(models):
        ahead, behind = function(found.point + away[m]), function(found.point - away[m])
        assert (ahead[0] - behind[0]) / 2e-5 == pytest.approx(gradient[m], abs=1e-3 * (1 + n))
        np.testing.assert_allclose(
            (ahead[1] - behind[1]) / 2e-5, hessian[m], rtol=1e-3, atol=1e-3 * (1 + n)
        )


@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_quadratic_minimum__has_no_slope_but_at_zero(seed: int, n: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    half, pull = rng.normal(size=(n, max(n - 1, 1))), rng.normal(size=n)
    curvature = half @ half.T + ridge * np.eye(n)
    start = np.maximum(rng.normal(size=n), 0.0)  # of some the first guess of what is 0 is wrong
    x = quadratic_minimum(curvature, pull, start)
    slope = curvature @ x - pull
    near = 1e-9 / ridge
    np.testing.assert_allclose(x, quadratic_minimum(curvature, pull, np.zeros(n)), atol=10 * near)
    assert (x >= 0).all()
    assert (slope >= -near).all()
    assert np.abs(slope[x > 0]).max(initial=0.0) <= near


@pytest.mark.parametrize("seed", range(40))
def test_projected_newton__does_not_end_where_a_step_is_cut_off(seed: int) -> None:
    rng = np.random.default_rng(seed)
    half, pull = rng.normal(size=(6, 3)), rng.normal(size=6) + 1
    curvature = half @ half.T + 0.05 * np.eye(6)  # of models much alike

    class Quadratic:
        total = 1.0

        def __call__(self, x: Any) -> tuple[float, Any, Any]:
            slope = curvature @ x
            return float(x @ slope / 2 - pull @ x), slope - pull, curvature

    steps = projected_newton(cast("Any", Quadratic()), rng.dirichlet(np.full(6, 10.0)))
    last = next(step for step in itertools.islice(steps, 50) if step.done)
    slope = curvature @ last.point - pull
    assert (slope >= -1e-7).all()
    assert np.abs(slope[last.point > 0]).max(initial=0.0) <= 1e-7


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 400), st.integers(1, 6), st.integers(2, 4))
def test_linear_pool__is_no_worse_than_a_member_but_for_the_pseudo_rows(
    seed: int, n: int, models: int, classes: int
) -> None:
    rows = held(n, models, classes, seed)
    w = simplex_weights(rows.own, rows.weight).point
    mixed = -np.log(w @ rows.own).sum() - PSEUDO_ROWS * np.log(w).sum()
    # A weight of nearly 1 for one member costs what its pseudo-rows ask for.
    corner = np.full(models, 1 / (n + models))
    for m in range(models):
        at = corner.copy()
        at[m] = 1 - corner[0] * (models - 1)
        alone = -np.log(at @ rows.own).sum() - PSEUDO_ROWS * np.log(at).sum()
        assert mixed <= alone + 1e-6 * (1 + abs(alone))
        slack = PSEUDO_ROWS * models * np.log(n + models) - n * np.log(at[m])
        assert -np.log(w @ rows.own).sum() <= n * rows.log_loss()[m] + slack + 1e-6 * n


@pytest.mark.parametrize("classes", [2, 4])
def test_pools__are_their_formula(classes: int) -> None:
    rows = held(300, 3, classes, 1)
    pools = Pools.learned(rows)
    out = np.empty((300, classes))
    pools(rows.posterior, out)
    t, k = pools.temperature.temperature, classes
    for i in range(20):
        q = sum(w * rows.posterior[m, i] for m, w in enumerate(pools.weights))
        linear = ((1 - 1e-9) * q + 1e-9 / k) ** (1 / t)
        curved = np.ones(k)
        for m, b in enumerate(pools.coefficients):
            curved *= ((1 - 1e-4) * rows.posterior[m, i] + 1e-4 / k) ** b
        expected = (linear / linear.sum() + curved / curved.sum()) / 2
        np.testing.assert_allclose(out[i], expected, rtol=1e-9)
    np.testing.assert_allclose(out.sum(axis=1), 1, atol=1e-14)
    before, after = pools.losses(rows)
    own = np.arange(300), rows.y
    assert before == pytest.approx(-np.log(rows.mixed(pools.weights)[own]).mean())
    assert after == pytest.approx(-np.log(out[own]).mean())
    assert after < rows.log_loss().min()


def test_pools__do_not_know_the_order_of_models() -> None:
    rows = held(200, 4, 3, 5)
    first = np.empty((200, 3))
    Pools.learned(rows)(rows.posterior, first)
    for order in itertools.islice(itertools.permutations(range(4)), 1, 24, 5):
        other, again = rows._replace(posterior=rows.posterior[list(order)]), np.empty((200, 3))
        Pools.learned(other)(other.posterior, again)
        np.testing.assert_allclose(again, first, atol=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 4))
def test_pools__are_the_same_wherever_they_begin(seed: int, models: int, classes: int) -> None:
    rows, others = (held(n, models, classes, seed + n) for n in (150, 60))
    found, near = Pools.learned(rows), Pools.learned(others)
    again = Pools.learned(rows, near)
    np.testing.assert_allclose(again.weights, found.weights, atol=1e-6)
    np.testing.assert_allclose(again.coefficients, found.coefficients, atol=1e-6)
    assert again.losses(others) == pytest.approx(found.losses(others), rel=1e-7)


def test_pools__hardly_hear_who_knows_nothing() -> None:
    rows = held(3000, 2, 2, 7)
    rng = np.random.default_rng(0)
    sure = rng.integers(0, 2, 3000)
    useless = np.where(sure[:, None] == [0, 1], 0.98, 0.02)
    pools = Pools.learned(rows._replace(posterior=np.concatenate([rows.posterior, useless[None]])))
    assert max(pools.weights[2], pools.coefficients[2]) < 0.03
    assert pools.weights.sum() == pytest.approx(1, abs=1e-12)


def test_pools__leave_out_who_has_nothing_to_add() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 30_000)
    said = np.where(rng.random(30_000) < 0.1, 1 - y, y)
    known = np.where(said[:, None] == [0, 1], 0.9, 0.1)
    nothing = np.full((30_000, 2), 0.5)
    pools = Pools.learned(HeldPosteriors(np.stack([known, nothing]), y, np.ones(30_000)))
    assert pools.used.tolist() == [True, False]
    assert pools.weights.tolist() == [1.0, 0.0]
    out = np.empty((30_000, 2))
    pools([known, nothing], out)
    power = known ** (1 / pools.temperature.temperature)
    np.testing.assert_allclose(out, power / power.sum(axis=1)[:, None], rtol=1e-6)


def test_cross_fitted__scores_each_fold_by_pools_of_the_others() -> None:
    parts = [held(n, 3, 2, seed, weighted=True) for seed, n in ((1, 80), (2, 40), (3, 60))]
    lost = total = 0.0
    for i, part in enumerate(parts):
        pools = Pools.learned(HeldPosteriors.joined([p for j, p in enumerate(parts) if j != i]))
        out = np.empty(part.posterior.shape[1:])
        pools(part.posterior, out)
        lost -= part.weight @ np.log(out[np.arange(len(part.y)), part.y])
        total += part.weight.sum()
    assert cross_fitted(parts)[1] == pytest.approx(lost / total, rel=1e-12)


def test_sample__is_each_so_many_th_row_in_whatever_blocks() -> None:
    p = np.random.default_rng(0).dirichlet([1, 1], 50)
    y = np.arange(50) % 2
    whole, parts = PosteriorSample(2, 7), PosteriorSample(2, 7)
    whole.update(p, y)
    for at in (0, 3, 20):
        end = {0: 3, 3: 20, 20: 50}[at]
        parts.update(p[at:end], y[at:end])
    for found in (whole.rows(), parts.rows()):
        np.testing.assert_array_equal(found[0], p[::7])
        np.testing.assert_array_equal(found[1], y[::7])
    weighted = PosteriorSample(2, 1)
    weighted.update(p, y, np.arange(50) % 3 / 2)
    assert len(weighted.rows()[0]) == np.count_nonzero(np.arange(50) % 3)


# -- what is held out --------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, "w"])
def test_members__are_judged_as_by_k_fold(weight: str | None) -> None:
    rows = table().append_column("w", pa.array(np.random.default_rng(1).integers(0, 4, 240) / 2))
    rows = rows if weight else rows.drop_columns("w")
    model = fb.Blend(FEW).fit(rows, "y", sample_weight=weight)
    board = fb.compare(rows, "y", models=FEW, folds=10, sample_weight=weight, race=False)
    for name in FEW:
        assert model.member_log_loss_[name] == pytest.approx(board[name].figures.log_loss, rel=1e-9)
    if weight is None:
        alone = fb.k_fold(fb.TAN(), rows, "y", folds=10)
        assert model.member_log_loss_["tan"] == pytest.approx(alone.log_loss, rel=1e-9)


def test_a_member_of_many_rows__is_fitted_as_it_is_alone() -> None:
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, 3, 70_000), rng.integers(0, 5, (4, 70_000))
    x[0] = np.where(rng.random(70_000) < 0.3, y, x[0])
    rows = pa.table(
        {"y": y.astype(str), **{f"x{j}": column.astype(str) for j, column in enumerate(x)}}
    )
    rows = rows.append_column("n", pa.array(rng.normal(size=70_000) + y))
    rows = rows.set_column(0, "y", pa.array(y.astype(str), mask=rng.random(70_000) < 0.01))
    alone = fb.LogisticRegression(standardize=True, init="zeros", tol=0.01).fit(rows, "y")
    board = fb.compare(rows, "y", models=["logistic"], folds=2, race=False)
    blend = fb.Blend(["naive-bayes", "logistic"], folds=2).fit(rows, "y")
    assert alone.trace_[0, 0] < 1  # it began with a sample of the rows
    for model in (board.best.model.model_, blend.members_["logistic"].model):
        # Shares of the rows and passes over them; moments of folds add up to other last bits.
        np.testing.assert_array_equal(model.trace_[:, [0, 3]], alone.trace_[:, [0, 3]])
        np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-8)


def test_blend__is_its_pools_of_members_fitted_to_all_rows(kernels: str) -> None:
    rows = table()
    model = fb.Blend(FEW).fit(rows, "y")
    new = table(100, 1).drop_columns("y")
    alone = {
        "naive-bayes": fb.NaiveBayes(numeric="student"),
        "naive-bayes-bins": fb.NaiveBayes(numeric="mdl"),
        "tan": fb.TAN(),
        "logistic": fb.LogisticRegression(standardize=True, init="zeros", tol=0.01),
    }
    parts = []
    for name, member in model.members_.items():
        p = alone[name].fit(rows, "y").predict_proba(new)
        np.testing.assert_allclose(member.model.predict_proba(new), p, atol=1e-12)
        parts.append(member.model.predict_proba(new))
    out = np.empty((100, 3))
    model._pools(parts, out)
    np.testing.assert_allclose(model.predict_proba(new), out, atol=1e-14)
    assert sum(member.weight for member in model.members_.values()) == pytest.approx(1)
    assert model.predict(new).tolist() == model.classes_[out.argmax(axis=1)].tolist()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(new)), out, atol=1e-12)
    np.testing.assert_allclose(model.log_joint(new), model.predict_log_proba(new), atol=1e-12)
    found = fb.evaluate(model, table(100, 1))
    codes = np.searchsorted(model.classes_, np.array(table(100, 1)["y"]))
    assert found.log_loss == pytest.approx(-np.log(out[np.arange(100), codes]).mean())
    assert model.decide(new, reject=0.2).expected_loss.max() <= 0.2


@pytest.mark.parametrize("member", [fb.NaiveBayes(), fb.TAN(), fb.LogisticRegression()])
def test_one_member__is_that_member_calibrated(member: Any) -> None:
    rows = table(400, 3)
    model = fb.Blend(member).fit(rows, "y")
    expected = fb.Calibrated(member, validation="k_fold", folds=5).fit(rows, "y")
    np.testing.assert_allclose(
        model.predict_proba(rows), expected.predict_proba(rows), rtol=1e-5, atol=1e-7
    )
    assert model.members_[repr(member)].weight == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_random_labels__the_blend_does_not_do_better_than_the_prior(classes: int) -> None:
    gains = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows = table(300, seed, classes)
        rows = rows.set_column(5, "y", pa.array(rng.permutation(np.array(rows["y"]))))
        model = fb.Blend(FEW).fit(rows, "y")
        share = np.unique(np.array(rows["y"]), return_counts=True)[1] / 300
        gains.append(float(-(share * np.log(share)).sum()) - model.log_loss_[1])
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert np.mean(gains) <= 3 * error
    assert max(gains) < 0.03


def test_held_out_loss_is_that_of_new_rows() -> None:
    gaps = []
    for seed in range(6):
        model = fb.Blend(FEW).fit(table(500, seed), "y")
        gaps.append(fb.evaluate(model, table(4000, 100 + seed)).log_loss - model.log_loss_[1])
    assert abs(np.mean(gaps)) <= 3 * np.std(gaps, ddof=1) / np.sqrt(6) + 0.02


def test_order_of_members__changes_rounding_alone() -> None:
    rows = table()
    one, other = (fb.Blend(names).fit(rows, "y") for names in (FEW, FEW[::-1]))
    np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-7)
    assert one.log_loss_ == pytest.approx(other.log_loss_, abs=1e-7)


def test_more_rows_than_are_held__come_close(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(3000, 2)
    whole = fb.Blend(["naive-bayes", "tan"]).fit(rows, "y")
    monkeypatch.setattr(blends, "MOST_HELD", 2 * 3 * 1000)
    some = fb.Blend(["naive-bayes", "tan"]).fit(rows, "y")
    assert some.log_loss_ != whole.log_loss_
    np.testing.assert_allclose(some.predict_proba(rows), whole.predict_proba(rows), atol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_random_labels__let_no_blend_beat_the_prior(seed: int) -> None:
    """Weights, coefficients and the temperature are judged by rows that they do not know."""
    rng = np.random.default_rng(seed)
    told = table(300, seed)
    shuffled = pa.array(rng.permutation(np.array(told["y"])))
    rows = told.set_column(told.schema.get_field_index("y"), "y", shuffled)
    model = fb.Blend(FEW).fit(rows, "y")
    prior = fb.compare(rows, "y", models=["prior"]).best.figures.log_loss
    for loss in (*model.log_loss_, *model.member_log_loss_.values()):
        assert loss > prior - 0.02
    assert fb.Blend(FEW).fit(told, "y").log_loss_[1] < prior - 0.1  # where they are not random


# -- members that race -------------------------------------------------------------------------

OFF = fb.NaiveBayes(class_prior=[1 - 2e-9, 1e-9, 1e-9])
RACING = {"off": OFF, "naive": "naive-bayes", "tan": "tan", "logistic": "logistic"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows race."""
    monkeypatch.setattr(race, "LEAST_ROWS", 6000)


@pytest.mark.parametrize(
    ("numeric", "weight", "most"),
    [(False, None, 2**21), (True, "w", 2**21), (False, "w", 30_000), (True, None, 30_000)],
)
def test_race__changes_nothing_but_who_is_fitted_to_all_rows(
    soon: None, numeric: bool, weight: str | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blends, "MOST_HELD", most)
    rows = table(12_000, 3)
    rows = rows if numeric else rows.drop_columns(["height", "width"])
    rows = rows.append_column("w", pa.array(np.random.default_rng(1).integers(0, 4, 12_000) / 2))
    rows = rows if weight else rows.drop_columns("w")
    raced, whole = (
        fb.Blend(RACING, race=on).fit(rows, "y", sample_weight=weight) for on in (True, False)
    )
    assert "rows of the first fold" in raced.dropped_["off"]
    assert "of the first fold" not in str(whole.dropped_)
    lost = [name for name, why in raced.dropped_.items() if "of the first fold" in why]
    assert {*raced.member_log_loss_} == {*RACING} - {*lost}
    for name, loss in raced.member_log_loss_.items():
        tolerance = 1e-9 if most > 2**20 else 0.05  # samples differ where not all rows are held
        assert loss == pytest.approx(whole.member_log_loss_[name], rel=tolerance)
    assert raced.log_loss_[1] == pytest.approx(whole.log_loss_[1], rel=0.01)
    new = table(300, 9).select(raced.feature_names_in_.tolist())
    np.testing.assert_allclose(raced.predict_proba(new), whole.predict_proba(new), atol=0.05)


def test_race__is_the_same_with_any_threads(soon: None) -> None:
    rows = table(12_000, 3)
    one, other = (fb.Blend(RACING, threads=threads).fit(rows, "y") for threads in (1, 3))
    assert one.dropped_ == other.dropped_
    np.testing.assert_array_equal(one.predict_proba(rows), other.predict_proba(rows))


def test_race__is_of_many_rows_and_of_folds_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(12_000, 3)
    by_column = rows.append_column("f", pa.array(np.arange(12_000) % 3))
    few = fb.Blend(RACING).fit(rows, "y")
    monkeypatch.setattr(race, "LEAST_ROWS", 6000)
    board = fb.compare(by_column, "y", folds="f", models=RACING)
    for blend in (few, board.blend()):
        assert "held out" in blend.dropped_["off"]
    assert "first fold" in fb.compare(rows, "y", models=RACING).blend().dropped_["off"]
    assert "held out" in fb.compare(rows, "y", models=RACING, race=False).blend().dropped_["off"]


# -- members that fail -------------------------------------------------------------------------


def test_a_member_that_fails_leaves_the_others() -> None:
    failing = {"whole": "gaussian-bayes", "other": fb.TAN(discretize={"no": [1.0]})}
    model = fb.Blend({"naive": fb.NaiveBayes(), **failing}).fit(table(), "y")
    assert [*model.members_] == ["naive"]
    assert {*model.dropped_} == {"whole", "other"}
    assert "'no'" in model.dropped_["other"]
    assert {*model.member_log_loss_} == {"naive"}


def test_no_member_that_can_be_used_is_an_error_that_says_why() -> None:
    members = {"one": fb.TAN(discretize={"no": [1.0]}), "two": fb.GaussianBayes()}
    with pytest.raises(fb.DataError, match=r"no model can be used: one: .*; two: "):
        fb.Blend(members).fit(table(), "y")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fb.Blend(["tam"]), ValueError, "members: 'tam': use one of"),
        (lambda: fb.Blend(["prior"]), ValueError, "members: 'prior': use one of"),
        (
            lambda: fb.Blend([fb.Calibrated()]),
            ValueError,
            "members: Calibrated is .* weighs",
        ),
        (lambda: fb.Blend([fb.GaussianNB()]), ValueError, "members: .* neither a name nor a class"),
        (lambda: fb.Blend([]), ValueError, "members: name one at least"),
        (lambda: fb.Blend(["tan", "tan"]), ValueError, "members: 'tan' stands twice"),
        (lambda: fb.Blend(folds=1), ValueError, "folds=1: use a whole number >= 2"),
        (lambda: fb.Blend(missing="drop"), ValueError, "missing='drop': use one of"),
    ],
)
def test_misuse_is_an_error(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make().fit(table(40), "y")


def test_members__all_are_those_that_the_columns_allow() -> None:
    rows = table(60)
    blend = fb.Blend("all").fit(rows, "y")
    assert {*blend.member_log_loss_} > {"naive-bayes", "spode", "a2de"}
    assert "prior" not in {*blend.member_log_loss_, *blend.dropped_}


def test_what_a_blend_cannot_do_says_so() -> None:
    rows = table(60)
    with pytest.raises(fb.SchemaError, match="can be read only once, but Blend"):
        fb.Blend(FEW).fit(rows.to_reader(), "y")
    reader = rows.to_reader()
    with pytest.raises(fb.SchemaError, match="can be read only once, but Blend"):
        fb.fit(reader, "y", members=FEW)
    assert reader.read_all().num_rows == len(rows)
    with pytest.raises(fb.DataError, match="one sample is too few"):
        fb.Blend(FEW).fit(rows.slice(0, 1), "y")
    model = fb.Blend(FEW).fit(rows, "y")
    for name in ("partial_fit", "fit_statistics", "sample", "log_evidence", "adapt_prior"):
        with pytest.raises(AttributeError, match="Blend"):
            getattr(model, name)
    with pytest.raises((fb.NotFittedError, NotFittedError)):
        fb.Blend().predict(rows)


@pytest.mark.parametrize("n", [2, 3, 7, 10])
def test_few_rows__are_enough(n: int) -> None:
    model = fb.Blend().fit(table(n, 1), "y")
    p = model.predict_proba(table(20, 2))
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)


def test_one_class_and_nothing_but_missing_values_are_no_errors() -> None:
    rows = table(40, 1)
    alone = rows.set_column(5, "y", pa.array(["k"] * 40))
    assert fb.Blend().fit(alone, "y").predict_proba(rows).tolist() == [[1.0]] * 40
    nothing = pa.table({"a": pa.nulls(40, pa.string()), "b": pa.nulls(40, pa.float64())})
    empty = nothing.append_column("y", rows["y"])
    p = fb.Blend().fit(empty, "y").predict_proba(nothing)
    assert (p == p[0]).all()
    assert np.isfinite(p).all()


def labelled(rows: pa.Table, y: Any) -> pa.Table:
    return rows.set_column(5, "y", pa.array(np.asarray(y).astype(str)))


@pytest.mark.parametrize(
    ("n", "y"),
    [
        (10, np.arange(10)),  # classes of one row
        (41, np.r_[np.zeros(40), 1]),
        (40, np.arange(40) // 2),
        (300, np.arange(300) % 100),  # many classes
    ],
    ids=["each", "one", "pairs", "hundred"],
)
def test_classes_of_few_rows_are_no_errors(n: int, y: Any) -> None:
    rows = labelled(table(n, 1), y)
    model = fb.Blend().fit(rows, "y")
    assert len(model.classes_) == len(np.unique(y))
    p = model.predict_proba(table(20, 2))
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    assert np.isfinite(model.log_loss_).all()


@pytest.mark.parametrize("classes", [["k"], ["k", "l", "l", "l"]])
def test_equal_rows__are_as_likely_as_their_classes(classes: list[str]) -> None:
    one = table(1, 1).take([0] * 60)
    model = fb.Blend().fit(labelled(one, classes * (60 // len(classes))), "y")
    p = model.predict_proba(one)
    assert (p == p[0]).all()
    share = np.unique(classes, return_counts=True)[1] / len(classes)
    np.testing.assert_allclose(p[0], share, atol=0.03)


def test_many_columns__members_that_look_at_pairs_take_part_if_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fastbayes.evaluation.calibrate import held_out_members

    rows = table()
    whole = fb.Blend().fit(rows, "y")
    monkeypatch.setattr(held_out_members, "MOST_COLUMNS", 5)
    assert {**fb.Blend().fit(rows, "y").dropped_} == {**whole.dropped_}
    monkeypatch.setattr(held_out_members, "MOST_COLUMNS", 4)
    some = fb.Blend().fit(rows, "y")
    assert {*some.member_log_loss_} == {"naive-bayes", "naive-bayes-bins", "logistic"}
    for name in ("tan", "logistic-pairs"):
        assert "there are 5 columns, and with more than 4 it takes long" in some.dropped_[name]
    assert "tan" in fb.Blend(FEW).fit(rows, "y").member_log_loss_


@pytest.mark.parametrize("numeric", [False, True])
def test_more_columns_than_rows(numeric: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = rng.normal(size=(300, 60)) if numeric else rng.integers(0, 3, (300, 60)).astype(str)
    rows = pa.table({"y": y, **{f"x{j}": column for j, column in enumerate(x)}})
    model = fb.Blend().fit(rows, "y")
    assert {"naive-bayes", "logistic"} <= {*model.member_log_loss_}
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1, atol=1e-12)


def test_a_member_without_memory_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.integers(0, 9, 300).astype(str) for j in range(80)}
    rows = pa.table({**columns, "y": rng.integers(0, 2, 300)})
    # TAN counts some pairs in each of several scans; AODE needs all at once.
    model = fb.Blend(["naive-bayes", "tan", "aode"], memory_limit=1 << 22).fit(rows, "y")
    assert [*model.members_] == ["naive-bayes", "tan"]
    assert "over memory_limit=4,194,304" in model.dropped_["aode"]

    def refuse(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(fb.TAN, "_learned", refuse)
    model = fb.Blend(["naive-bayes", "tan"]).fit(rows, "y")
    assert [*model.members_] == ["naive-bayes"]
    assert model.dropped_ == {"tan": "MemoryError"}


def test_a_member_that_memorises_rows_gains_nothing() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    heard = np.where(rng.random(400) < 0.8, y, 1 - y).astype(str)
    rows = pa.table({"heard": heard, "cell": rng.integers(0, 150, 400).astype(str), "y": y})
    by_heart = fb.JointBayes(alpha=0.01)
    model = fb.Blend({"fair": "naive-bayes", "by heart": by_heart}).fit(rows, "y")
    seen = fb.evaluate(by_heart.fit(rows, "y"), rows).log_loss
    assert seen < model.member_log_loss_["fair"] / 2 < model.member_log_loss_["by heart"] / 4
    assert "by heart" not in model.members_ or model.members_["by heart"].weight < 0.05


def test_threads__change_no_bit() -> None:
    rows = table(2000, 4)
    one, two = (fb.Blend(threads=threads).fit(rows, "y") for threads in (1, 2))
    assert one.predict_proba(rows).tobytes() == two.predict_proba(rows).tobytes()
    assert (one.log_loss_, one.member_log_loss_) == (two.log_loss_, two.member_log_loss_)


# -- a classifier like all others --------------------------------------------------------------


@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_rows_of_members__are_encoded_as_the_member_encodes_them(
    missing: str, kernels: str
) -> None:
    rng = np.random.default_rng(0)
    rows = table(500, 6)
    fine = np.arange(1000) / 7
    new = pa.table(
        {
            "heard": pa.array(["0", "1", None, "never"] * 250),
            "noise": rng.integers(0, 5, 1000).astype(str),
            "height": pa.array(np.r_[fine[:500], -fine[:500]], mask=rng.random(1000) < 0.1),
            "width": rng.integers(-30, 40, 1000),
            "flag": rng.random(1000) < 0.5,
        }
    )
    for how in ("mdl", ("quantile", 9), ("width", 300), {"width": [-3, 0, 4.5]}):
        model = fb.Blend(["naive-bayes", "tan"], missing=missing, discretize=how).fit(rows, "y")
        for name in ("naive-bayes", "tan"):
            if name in model.members_:
                member = model.members_[name].model
                seen = MemberRows(model.schema_, member.schema_)
                found = model._scored(
                    new,
                    lambda s, given, out, m=member, see=seen: m._scorer(1e9).posterior(
                        *see(*given), out
                    ),
                    3,
                )
                np.testing.assert_array_equal(found, member.predict_proba(new))


def test_explanation__adds_up_to_the_log_posterior() -> None:
    rows = table(300, 2)
    rows = rows.append_column("sure", pa.array(np.where(np.array(rows["y"]) == "k", "a", "b")))
    members = ["naive-bayes", "tan", "logistic", "joint-gaussian", "aode"]
    for some in (members, [fb.NaiveBayes(alpha=0), fb.TAN(alpha=0)]):
        model = fb.Blend(some).fit(rows, "y")
        said = model.explain(rows)
        assert said.contributions.shape == (300, 6, 3)
        assert said.remainder is not None
        total = said.contributions.sum(axis=1) + said.prior + said.remainder
        np.testing.assert_allclose(total, model.predict_log_proba(rows), atol=1e-9)
        share, batch = model._pools.shares, np.zeros((300, 6, 3))
        for s, member in zip(share, model.members_.values(), strict=True):
            batch += s * np.maximum(member.model.explain(rows).contributions, blends.LEAST_NATS)
        np.testing.assert_allclose(said.contributions, batch, rtol=1e-9, atol=1e-9)
    assert fb.NaiveBayes().fit(rows, "y").explain(rows).remainder is None


@pytest.mark.parametrize(
    "members",
    [None, FEW, fb.TAN(root="heard"), {"a": fb.NaiveBayes(alpha=0.5), "b": "tan"}],
    ids=["default", "names", "model", "dict"],
)
def test_comes_back_from_a_file(members: Any, tmp_path: Path) -> None:
    rows = table()
    model = fb.Blend(members, folds=3).fit(rows, "y")
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.predict_proba(rows).tobytes() == model.predict_proba(rows).tobytes()
    assert repr(again) == repr(model)
    for name in ("dropped_", "member_log_loss_", "log_loss_", "schema_", "statistics_"):
        assert getattr(again, name) == getattr(model, name)
    assert [*map(str, again.members_.values())] == [*map(str, model.members_.values())]
    assert again.n_parameters_ == model.n_parameters_


def test_predict_to__writes_what_predict_proba_says(tmp_path: Path) -> None:
    rows = table()
    model = fb.Blend(FEW).fit(rows, "y")
    fb.predict_to(model, rows, tmp_path / "p.parquet", proba=True, explain=True)
    written = pq.read_table(tmp_path / "p.parquet")
    np.testing.assert_array_equal(written["proba_m"], model.predict_proba(rows)[:, 2])
    assert written["prediction"].to_pylist() == model.predict(rows).tolist()
    assert {*written["because"].to_pylist()} <= {*rows.column_names[:-1]}


def test_frames_arrays_and_streams_of_rows() -> None:
    pandas = pytest.importorskip("pandas")
    rows = table().drop_columns(["heard", "noise", "flag"])
    X = np.column_stack([rows["height"].to_numpy(zero_copy_only=False), rows["width"]])
    y: NDArray[Any] = np.array(rows["y"])
    whole = fb.Blend(FEW).fit(rows, "y")
    frame = pandas.DataFrame({"height": X[:, 0], "width": X[:, 1]})
    for model in (fb.Blend(FEW).fit(frame, y), fb.Blend(FEW).fit(X, y)):
        asked = frame if hasattr(model, "feature_names_in_") else X
        np.testing.assert_allclose(
            model.predict_proba(asked), whole.predict_proba(rows), atol=1e-12
        )
    np.testing.assert_array_equal(
        whole.predict_proba(rows.to_reader(max_chunksize=50)), whole.predict_proba(rows)
    )
    copy = clone(whole)
    assert copy.members == FEW
    assert not hasattr(copy, "classes_")


# -- one call ----------------------------------------------------------------------------------


def test_fit__is_a_blend_of_what_is_read(tmp_path: Path) -> None:
    rows = table()
    pq.write_table(rows, tmp_path / "t.parquet")
    expected = fb.Blend(FEW, folds=4).fit(rows.drop_columns("noise"), "y")
    columns = ["heard", "height", "width", "flag"]
    done: list[int] = []
    new = rows.select(columns)
    for source in (rows, tmp_path / "t.parquet"):
        model = fb.fit(source, "y", members=FEW, folds=4, columns=columns, progress=done.append)
        assert isinstance(model, fb.Blend)
        assert model.predict_proba(new).tobytes() == expected.predict_proba(new).tobytes()
    assert sum(done) > 2 * 2 * 240
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X[:, 0] > 0
    found = fb.fit(X, y, members=FEW)
    np.testing.assert_array_equal(found.predict_proba(X), fb.Blend(FEW).fit(X, y).predict_proba(X))
    assert not hasattr(found, "feature_names_in_")
    with pytest.raises(TypeError, match="alpha"):
        fb.fit(rows, "y", alpha=2)


def test_folds__are_as_many_as_have_rows() -> None:
    assert fb.Blend(["naive-bayes"], folds=50).fit(table(30), "y").n_folds_ == 30
    with pytest.raises(ValueError, match=r"folds=\[0, 0, 0, 0, 0, 0, \.\.\.\]: use a whole number"):
        fb.Blend(["naive-bayes"], folds=[0] * 1_000).fit(table(30), "y")
