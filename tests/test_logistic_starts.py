"""Logistic regression begun at naive Bayes: the same optimum, in fewer passes over the rows."""

from __future__ import annotations

import numpy as np
import pytest

import fastbayes as fb
from benchmarks.starts import CLOSE, Way, main, rows_of, ways

SOLVERS = ("newton-cg", "lbfgs")
Ways = dict[tuple[str, str], Way]


@pytest.fixture(scope="module")
def independent() -> Ways:
    table = rows_of(2000, 0.0, columns=8)
    return {(way.solver, way.init): way for way in ways(table, SOLVERS)}


@pytest.fixture(scope="module")
def dependent() -> Ways:
    table = rows_of(2000, 0.4, columns=8)
    return {(way.solver, way.init): way for way in ways(table, SOLVERS)}


@pytest.mark.parametrize("rows", ["independent", "dependent"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_either_start_ends_at_the_same_optimum(
    solver: str, rows: str, request: pytest.FixtureRequest
) -> None:
    found: Ways = request.getfixturevalue(rows)
    zeros, bayes = found[solver, "zeros"], found[solver, "naive_bayes"]
    for way in (zeros, bayes):
        assert abs(way.gap[-1]) <= 1e-6
    np.testing.assert_allclose(zeros.proba, bayes.proba, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_naive_bayes_takes_fewer_passes_where_it_is_nearly_right(
    independent: Ways, solver: str
) -> None:
    zeros, bayes = independent[solver, "zeros"], independent[solver, "naive_bayes"]
    assert bayes.gap[0] < 0.1 * zeros.gap[0]
    for gap in CLOSE[:2]:
        assert bayes.passes_to(gap) < 0.75 * zeros.passes_to(gap)
    assert bayes.passes_to(CLOSE[2]) < zeros.passes_to(CLOSE[2])


def test_a_class_without_rows__takes_no_steps() -> None:
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=300), rng.choice(list("abc"), 300)
    y = np.array(list("pqr"))[(x + rng.normal(size=300) > 0).astype(int) + (c == "a")]
    rows = {"x": x, "c": c, "y": y}
    known = fb.LogisticRegression().fit(rows, "y")
    with pytest.warns(fb.FastBayesWarning, match="class 's' has no row"):
        more = fb.LogisticRegression().partial_fit(rows, "y", classes=[*"pqrs"])
    assert more.n_iter_ <= known.n_iter_ + 1
    found = more.predict_proba(rows)
    assert found[:, 3].max() < 1e-8
    np.testing.assert_allclose(found[:, :3], known.predict_proba(rows), atol=1e-5)


def test_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(200, ("newton-cg",))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 2
    assert {line.count("|") for line in lines} == {4 + len(CLOSE)}


@pytest.mark.parametrize("C", [1e-6, 0.01, 0.1])
def test_a_penalty_of_absolute_values__is_part_of_what_the_start_is_judged_by(C: float) -> None:
    """Naive Bayes of a column that gives the class away is sure: its intercepts are far apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 200)
    table = {"n": y + 0.1 * rng.normal(size=200) - 20, "y": y}
    for name in "ab":
        drawn = np.where(rng.random(200) < 0.3, y, rng.integers(0, 5, 200))
        table[name] = drawn.astype(str)
    bayes = fb.LogisticRegression("l1", C=C).fit(table, "y")
    zeros = fb.LogisticRegression("l1", C=C, init="zeros").fit(table, "y")
    assert bayes.converged_
    assert bayes.objective_ == pytest.approx(zeros.objective_, rel=1e-9)
    assert bayes.n_iter_ <= zeros.n_iter_ + 2
