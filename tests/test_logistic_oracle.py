"""LogisticRegression against scikit-learn and scipy on explicit indicator columns (§1, §8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import close
from logistic_cases import CASES, Case, generated, scikit, weights
from oracles.logistic import Problem

import fastbayes as fb

pytestmark = pytest.mark.usefixtures("kernels")


def hold(
    model: Any, problem: Problem, best: float, coef: Any = None, intercept: Any = None
) -> None:
    """Hold a model against the best value of the objective and the coefficients there."""
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    value = problem.value(at_means, own)
    close(model.objective_, value, 1e-9)
    assert abs(value - best) <= 1e-6 * max(1.0, best / 100)
    if coef is not None:
        close(own, coef, 1e-4)
    if intercept is not None:
        # A multinomial model is the same when all its intercepts grow by the same.
        close(at_means - (at_means.mean() if len(at_means) > 1 else 0), intercept, 1e-4)
    assert model.converged_
    assert model.gradient_norm_ <= model.tol


def case_of(name: str) -> Case:
    return CASES[name]()


# -- the optimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_optimum(name: str, weighted: bool) -> None:
    case = case_of(name)
    weight = weights(len(case.labels)) if weighted else None
    problem = case.problem(weight=weight)
    best, _, coef = problem.optimum()
    intercept, theirs = scikit(problem)
    # scikit-learn's own answer is not better, and the same.
    assert problem.value(intercept, theirs) >= best - 1e-9 * best
    close(theirs, coef, 1e-4)
    if len(intercept) > 1:
        intercept = intercept - intercept.mean()
    model = fb.LogisticRegression(tol=1e-8).fit(case.table, "y", sample_weight=weight)
    assert list(model.classes_) == problem.classes
    hold(model, problem, best, theirs, intercept)


@pytest.mark.parametrize("name", ["iris", "penguins", "car", "breast-cancer", "two classes"])
def test_optimum__at_the_default_tolerance(name: str) -> None:
    case = case_of(name)
    problem = case.problem()
    best, _, coef = problem.optimum()
    hold(fb.LogisticRegression().fit(case.table, "y"), problem, best, coef)


@pytest.mark.parametrize("name", ["two classes", "three classes"])
@pytest.mark.parametrize("C", [1e-3, 0.1, 30.0])
def test_strength_of_the_penalty(name: str, C: float) -> None:
    case = case_of(name)
    problem = case.problem(C=C)
    best, _, coef = problem.optimum()
    hold(fb.LogisticRegression(C=C, tol=1e-9).fit(case.table, "y"), problem, best, coef)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_class_weight__named(k: int, weighted: bool) -> None:
    case, told = generated(k, seed=5), {"c0": 3.5, "c1": 0.25}
    weight = weights(len(case.labels)) if weighted else None
    problem = case.problem(weight=weight, class_weight=told)
    best, _, coef = problem.optimum()
    model = fb.LogisticRegression(class_weight=told, tol=1e-8)
    hold(model.fit(case.table, "y", sample_weight=weight), problem, best, coef)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_class_weight__balanced(k: int, weighted: bool) -> None:
    case = generated(k, seed=6)
    weight = weights(len(case.labels)) if weighted else None
    problem = case.problem(weight=weight, class_weight="balanced")
    best, _, coef = problem.optimum()
    model = fb.LogisticRegression(class_weight="balanced", tol=1e-8)
    hold(model.fit(case.table, "y", sample_weight=weight), problem, best, coef)
    # scikit-learn weighs them itself: the same.
    plain = case.problem(weight=weight)
    _, theirs = scikit(plain, class_weight="balanced")
    close(theirs, coef, 1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_interactions__are_product_columns(k: int) -> None:
    case = generated(k, seed=7)
    problem = case.problem(pairs=[("b", "a")])
    assert len(problem.names) == 4 + 3 + 1 + 2 + 12
    best, _, coef = problem.optimum()
    model = fb.LogisticRegression(interactions=[("b", "a")], tol=1e-8).fit(case.table, "y")
    hold(model, problem, best, coef)
    X = problem.matrix(case.columns, len(case.labels))
    close(model.predict_proba(case.table), proba(problem, model, X), 1e-12)


@pytest.mark.parametrize("init", ["naive_bayes", "zeros"])
@pytest.mark.parametrize("solver", ["newton-cg", "lbfgs", "conjugate_gradient"])
@pytest.mark.parametrize("name", ["penguins", "two classes", "three classes"])
def test_solvers(name: str, solver: str, init: str) -> None:
    case = case_of(name)
    problem = case.problem()
    best, _, coef = problem.optimum()
    # The line searches of conjugate gradients need values, which are rounding before derivatives.
    tol = 1e-6 if solver == "conjugate_gradient" else 1e-7
    model = fb.LogisticRegression(solver=solver, init=init, tol=tol, max_iter=3000)
    hold(model.fit(case.table, "y"), problem, best, coef)


@pytest.mark.parametrize("learning_rate", [None, 0.5])
@pytest.mark.parametrize("k", [2, 3])
def test_solvers__plain_gradient(k: int, learning_rate: float | None) -> None:
    case = generated(k, seed=8, scales=(1.0,))
    problem = case.problem(C=0.1)
    best, _, coef = problem.optimum()
    model = fb.LogisticRegression(
        C=0.1, solver="gradient", learning_rate=learning_rate, max_iter=20_000
    ).fit(case.table, "y")
    hold(model, problem, best, coef)
    few = fb.LogisticRegression(solver="gradient", learning_rate=learning_rate, max_iter=1)
    with pytest.warns(fb.FastBayesWarning, match="max_iter"):
        few.fit(case.table, "y")
    plain = case.problem()
    close(few.objective_, plain.value(*plain.of(few.coef_names_, few.intercept_, few.coef_)), 1e-9)
    objectives = model.trace_[:, 1]
    assert (np.diff(objectives) <= 1e-9 * objectives[0]).all()
    assert len(objectives) >= model.n_iter_ > 5


# -- other penalties -----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("C", [0.03, 0.5])
def test_l1(k: int, C: float, weighted: bool) -> None:
    case = generated(k, seed=9, scales=(1.0, 3.0))
    weight = weights(len(case.labels)) if weighted else None
    problem = case.problem(C=C, penalty="l1", weight=weight)
    model = fb.LogisticRegression("l1", C=C, tol=1e-8)
    model.fit(case.table, "y", sample_weight=weight)
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    value = problem.value(at_means, own)
    close(model.objective_, value, 1e-9)
    theirs = scikit(problem, solver="saga", l1_ratio=1, tol=1e-9, max_iter=20_000)
    best = problem.value(*theirs)
    assert value <= best + 1e-6 * best
    assert value >= best - 1e-4 * best  # saga stops earlier
    # Where a coefficient is 0 the loss pulls at it by at most 1/C, elsewhere by 1/C.
    gradient = problem.gradient(at_means, own)
    slack = 1e-6 * problem.weight.sum()
    assert (np.abs(gradient[0]) <= slack).all()
    assert (np.abs(gradient[1:]) <= 1 / C + slack).all()
    kept = own != 0
    close(gradient[1:][kept], -np.sign(own[kept]) / C, slack)
    assert 0 < kept.sum() < own.size


@pytest.mark.parametrize("C", [0.03, 0.5])
def test_l1__of_two_classes_as_liblinear_has_it(C: float) -> None:
    case = generated(2, seed=10, scales=(1.0, 3.0))
    problem = case.problem(C=C, penalty="l1")
    # liblinear penalises the intercept, by as little as its column is large.
    theirs = scikit(
        problem, solver="liblinear", l1_ratio=1, intercept_scaling=1e4, tol=1e-10, max_iter=10_000
    )
    model = fb.LogisticRegression("l1", C=C, tol=1e-9).fit(case.table, "y")
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    assert abs(problem.value(at_means, own) - problem.value(*theirs)) <= 1e-4
    assert problem.value(at_means, own) <= problem.value(*theirs) + 1e-9
    values = {"a", "b"}  # of these several may be the same optimum
    for k, (name, _) in enumerate(problem.names):
        if name not in values:
            close(own[k], theirs[1][k], 2e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["two irises", "numbers"])
def test_no_penalty__numbers(name: str, weighted: bool) -> None:
    case = case_of("two irises") if name == "two irises" else generated(3, seed=11)
    case = Case({j: case.columns[j] for j in case.numeric}, case.labels, case.numeric)
    weight = weights(len(case.labels)) if weighted else None
    problem = case.problem(penalty=None, weight=weight)
    intercept, coef = scikit(problem)
    if len(intercept) > 1:
        intercept, coef = intercept - intercept.mean(), coef - coef.mean(axis=1, keepdims=True)
    model = fb.LogisticRegression(None, tol=1e-10).fit(case.table, "y", sample_weight=weight)
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    if len(intercept) > 1:
        at_means, own = at_means - at_means.mean(), own - own.mean(axis=1, keepdims=True)
    value, best = problem.value(at_means, own), problem.value(intercept, coef)
    assert abs(value - best) <= 1e-6
    close(own, coef, 1e-3 if name == "two irises" else 1e-4)
    assert model.converged_


@pytest.mark.parametrize("k", [2, 3])
def test_no_penalty__values_have_the_same_posteriors(k: int) -> None:
    # Indicators and an intercept have no single optimum without a penalty: the posteriors do.
    case = generated(k, seed=12, n=800)
    problem = case.problem(penalty=None)
    theirs = scikit(problem, solver="lbfgs", tol=1e-10, max_iter=20_000)
    model = fb.LogisticRegression(None, tol=1e-9).fit(case.table, "y")
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    assert problem.value(at_means, own) <= problem.value(*theirs) + 1e-6
    expected = probabilities(problem, *theirs)
    close(model.predict_proba(case.table), expected, 1e-3)


# -- missing and unseen ----------------------------------------------------------------------------


def probabilities(problem: Problem, at_means: Any, coef: Any, X: Any = None) -> Any:
    Z = problem.Z if X is None else X - problem.shift
    margins = Z @ coef + at_means
    if problem.n_outputs == 1:
        margins = np.column_stack([0 * margins[:, 0], margins[:, 0]])
    p = np.exp(margins - margins.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def proba(problem: Problem, model: Any, X: Any) -> Any:
    at_means, own = problem.of(model.coef_names_, model.intercept_, model.coef_)
    return probabilities(problem, at_means, own, X)


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_missing_and_unseen_when_asked(k: int, offset: float) -> None:
    case = generated(k, seed=13, offset=offset)
    weight = weights(len(case.labels))
    problem = case.problem(weight=weight)
    model = fb.LogisticRegression().fit(case.table, "y", sample_weight=weight)
    asked = Case(
        {
            "a": ["p", None, "never", "q", None],
            "b": ["u", "v", "w", "never", None],
            "z0": [offset + 0.5, None, offset - 1, offset, None],
            "z1": [None, offset - 3.0, offset + 7, offset, None],
            "flat": ["same", "other", None, "same", None],
        },
        ["c0"] * 5,
        case.numeric,
    )
    X = problem.matrix(asked.columns, 5)
    assert not X[4, [name[1] is not None for name in problem.names]].any()
    got = model.predict_proba(asked.table.drop_columns("y"))
    # The scale of the numbers times the rounding of far numbers.
    close(got, proba(problem, model, X), 1e-12 if not offset else 1e-8)
    assert (np.abs(got.sum(axis=1) - 1) <= 1e-12).all()


def test_missing__as_a_category() -> None:
    case = generated(3, seed=14)
    named = {
        j: ["(none)" if v is None and j not in case.numeric else v for v in cells]
        for j, cells in case.columns.items()
    }
    problem = Case(named, case.labels, case.numeric).problem()
    best, _, coef = problem.optimum()
    model = fb.LogisticRegression(missing="category", tol=1e-8).fit(case.table, "y")
    names = [
        (j, "(none)" if v is None and j not in case.numeric else v) for j, v in model.coef_names_
    ]
    at_means, own = problem.of(names, model.intercept_, model.coef_)
    assert problem.value(at_means, own) <= best + 1e-6
    close(own, coef, 1e-4)
    close(model.predict_proba(case.table), probabilities(problem, at_means, own), 1e-10)


def test_unseen__error_names_column_and_value() -> None:
    case = generated(2, seed=15)
    model = fb.LogisticRegression(unseen="error").fit(case.table, "y")
    with pytest.raises(fb.DataError, match=r"b.*never|never.*b"):
        model.predict({"a": ["p"], "b": ["never"], "z0": [0.0], "z1": [0.0], "flat": ["same"]})


@pytest.mark.parametrize("name", ["penguins", "car", "two classes", "three classes", "ten classes"])
def test_posteriors(name: str) -> None:
    case = case_of(name)
    model = fb.LogisticRegression().fit(case.table, "y")
    problem = case.problem()
    got = model.predict_proba(case.table)
    close(got, proba(problem, model, problem.X), 1e-10)
    assert (np.abs(got.sum(axis=1) - 1) <= 1e-12).all()
    close(np.exp(model.predict_log_proba(case.table)), got, 1e-12)
    scores = model.log_joint(case.table)
    apart = scores - np.logaddexp.reduce(scores, axis=1)[:, None]
    close(apart, model.predict_log_proba(case.table), 1e-10)
    if problem.n_outputs == 1:
        assert not scores[:, 0].any()
        close(model.decision_function(case.table), scores[:, 1], 1e-12)
    np.testing.assert_array_equal(model.predict(case.table), model.classes_[got.argmax(axis=1)])
    parts = model.explain(case.table)
    close(parts.contributions.sum(axis=1) + parts.prior, scores, 1e-9)


def test_declared_values_that_do_not_occur() -> None:
    case = generated(2, seed=16)
    model = fb.LogisticRegression(domains={"a": ["z", "p", "q", "r", "s"]}, tol=1e-9)
    model.fit(case.table, "y")
    plain = fb.LogisticRegression(tol=1e-9).fit(case.table, "y")
    found = dict(zip(model.coef_names_, model.coef_[0], strict=True))
    assert found.pop(("a", "z")) == pytest.approx(0, abs=1e-8)
    for name, w in zip(plain.coef_names_, plain.coef_[0], strict=True):
        close(found[name], w, 1e-5)


# -- laws of the objective -----------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 4])
def test_several_classes_are_centred(k: int) -> None:
    model = fb.LogisticRegression(tol=1e-9).fit(generated(k, seed=19).table, "y")
    assert model.coef_.shape[0] == model.intercept_.shape[0] == k
    close(model.intercept_.sum(), 0, 1e-10)
    close(model.coef_.sum(axis=0), 0, 1e-8)


def test_duplicate_rows_are_the_same_taken_together() -> None:
    rng = np.random.default_rng(20)
    n = 3000
    columns = {j: ["pq"[i] for i in rng.integers(0, 2, n)] for j in ("a", "b", "c")}
    labels = [f"c{i}" for i in rng.integers(0, 3, n)]
    weight = rng.random(n)
    together: dict[Any, float] = {}
    for r in range(n):
        key = (*(cells[r] for cells in columns.values()), labels[r])
        together[key] = together.get(key, 0.0) + weight[r]
    few = Case({j: [key[i] for key in together] for i, j in enumerate(columns)}, [])
    few.labels = [key[-1] for key in together]
    a = fb.LogisticRegression(tol=1e-10).fit(Case(columns, labels).table, "y", sample_weight=weight)
    b = fb.LogisticRegression(tol=1e-10).fit(
        few.table, "y", sample_weight=np.array(list(together.values()))
    )
    close(a.coef_, b.coef_, 1e-8)
    close(a.objective_, b.objective_, 1e-10)
    best, _, coef = few.problem(weight=list(together.values())).optimum()
    hold(a, few.problem(weight=list(together.values())), best, coef)
