"""Fits that iterate: never downhill, the best kept, the end told, faster than plain steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes.core.iteration import (
    NOISE,
    Convergence,
    Found,
    Step,
    Steps,
    converged,
    slowest,
    squarem,
)
from fastbayes.networks.graph import parameters
from fastbayes.networks.network import BayesianNetwork

NAMES = "abcde"


def random_rows(seed: int, most: int = 3) -> tuple[pa.Table, BayesianNetwork]:
    """Return 80 rows of five columns that say nothing, a tenth of them missing, and a graph."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3 if most == 3 else 2, most + 1, 5)
    edges = [(a, b) for j, b in enumerate(NAMES) for a in NAMES[:j] if rng.random() < 0.5]
    columns = {
        name: pa.array(rng.integers(0, size, 80).astype(str), mask=rng.random(80) < 0.1)
        for name, size in zip(NAMES, sizes, strict=True)
    }
    return pa.table(columns), BayesianNetwork.from_edges(edges, nodes=NAMES)


def plain(step: Any, start: Sequence[Any], tol: float) -> Iterator[Step[Sequence[Any]]]:
    """Yield the points of expectation maximisation by the book."""
    at = start
    while True:
        after, value = step(at)
        error = max(float(np.abs(a - b).max()) for a, b in zip(at, after, strict=True))
        yield Step(at, -value, error, value, error <= tol)
        at = after


def never_down(trace: Any) -> bool:
    return bool((np.diff(trace) >= -2 * NOISE * np.abs(trace[1:])).all())


# -- the loop ----------------------------------------------------------------------------------


def told(losses: Sequence[float], done: int | None = None, why: str = "no way on") -> Steps[int]:
    for i, loss in enumerate(losses):
        yield Step(i, loss, 1.0 / (i + 1), loss, i == done)
    return why


def ended(steps: Steps[int], max_iter: int) -> Found[int]:
    return converged(steps, tol=0.01, max_iter=max_iter, what="it", measure="the error")


@given(
    losses=st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=8),
    max_iter=st.integers(1, 9),
    done=st.none() | st.integers(0, 8),
)
def test_loop__keeps_the_best_of_what_it_saw(
    losses: list[float], max_iter: int, done: int | None
) -> None:
    found = ended(told(losses, done), max_iter)
    last = min(len(losses) - 1, max_iter if done is None else min(done, max_iter))
    seen = losses[: last + 1]
    assert found.trace.tolist() == seen
    assert found.n_iter == last
    assert found.converged is (done is not None and done <= last)
    if found.converged:
        assert (found.point, found.reason) == (last, "")
    else:
        assert found.loss == min(seen) == losses[found.point]
        why = "raise `max_iter`, or `tol`" if max_iter < len(losses) else "no way on"
        assert found.reason == (
            f"it did not converge in {last} steps: the error is {1 / (found.point + 1):.3g}, "
            f"tol=0.01; {why}"
        )
        with pytest.warns(fb.ConvergenceWarning, match="it did not converge"):
            found.warn()


def test_loop__that_has_no_way_on_without_a_reason_has_converged() -> None:
    found = ended(told([3.0, 1.0, 2.0], why=""), 10)
    assert (found.converged, found.point, found.reason) == (True, 2, "")


def test_slowest__is_the_one_that_is_farthest_from_its_end() -> None:
    fits = [Convergence(True, 9), Convergence(False, 3), Convergence(True, 12), Convergence()]
    assert slowest(fits) is fits[1]
    assert slowest(fits[::2]) is fits[2]
    assert slowest([]).converged


@pytest.mark.parametrize(
    "state",
    [
        None, [], [True, 1], ["yes", 1, []],
        [True, 1.0, []], [True, True, []], [True, -1, [0.0] * 3],
        [True, 1, [1.0]], [True, 1, [1.0, float("nan")]], [True, 1, ["a", "b"]], [True, 1, {}],
        [True, 1, [[1.0], [2.0]]],
    ],
)  # fmt: skip
def test_state__that_is_none_is_refused(state: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Convergence.of_state(state)


# -- expectation maximisation of networks --------------------------------------------------------


def test_em__gives_every_one_of_sixty_random_tables_a_model() -> None:
    """Plain steps had not ended after 10,000 for three of them, and the tables were lost."""
    n_iter = []
    for seed in range(60):
        data, network = random_rows(seed)
        network.fit(data, missing="em", alpha=0)
        assert network.converged_
        assert len(network.trace_) == network.n_iter_ + 1
        assert never_down(network.trace_)
        assert network.trace_[-1] == pytest.approx(network.log_likelihood(data), rel=1e-10)
        for table in network.tables.values():
            np.testing.assert_allclose(table.sum(axis=-1), 1, rtol=1e-12)
        n_iter.append(network.n_iter_)
    assert np.median(n_iter) < 50


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_em__accelerated_ends_no_lower_than_plain(
    monkeypatch: pytest.MonkeyPatch, seed: int, alpha: float
) -> None:
    data, network = random_rows(seed, most=2)
    fast = network.fit(data, missing="em", alpha=alpha)
    monkeypatch.setattr(parameters, "squarem", plain)
    slow = random_rows(seed, most=2)[1].fit(data, missing="em", alpha=alpha)
    assert fast.converged_
    assert slow.converged_
    assert never_down(fast.trace_)
    assert never_down(slow.trace_)
    assert fast.trace_[0] == slow.trace_[0]
    assert fast.trace_[-1] >= slow.trace_[-1] - 1e-8
    if alpha:  # one peak
        for node, table in slow.tables.items():
            np.testing.assert_allclose(fast.tables[node], table, atol=1e-6)


def test_em__that_is_stopped_keeps_its_tables_and_says_so(tmp_path: Path) -> None:
    data, network = random_rows(5)
    with pytest.warns(
        fb.ConvergenceWarning,
        match=r"missing='em' did not converge in 7 steps: the largest change of a probability is "
        r".*, tol=1e-10; raise `max_iter`, or `tol`",
    ):
        network.fit(data, missing="em", alpha=0, max_iter=7)
    assert (network.converged_, network.n_iter_, len(network.trace_)) == (False, 7, 8)
    assert network.log_likelihood(data) == pytest.approx(network.trace_.max(), rel=1e-12)
    network.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert (again.converged_, again.n_iter_) == (False, 7)
    np.testing.assert_array_equal(again.trace_, network.trace_)
    # A larger bound ends sooner, and is no reason to warn; counting takes one step.
    loose = random_rows(5)[1].fit(data, missing="em", alpha=0, tol=0.02)
    assert loose.converged_
    network.fit(data)
    assert (network.converged_, network.n_iter_, len(network.trace_)) == (True, 1, 0)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), k=st.integers(2, 5), n=st.integers(1, 40))
def test_squarem__climbs_mixtures_to_the_peak(seed: int, k: int, n: int) -> None:
    """Shares of known parts of a mixture: a concave likelihood, whose slope tells its peak."""
    rng = np.random.default_rng(seed)
    density = rng.gamma(0.3, size=(n, k)) + 1e-6

    def step(at: Sequence[Any]) -> tuple[Sequence[Any], float]:
        whole = density @ at[0]
        return [at[0] * (density / whole[:, None]).mean(axis=0)], float(np.log(whole).sum())

    start = [np.full(k, 1 / k)]
    found = converged(
        squarem(step, start, 1e-12), tol=1e-12, max_iter=3000, what="shares", measure="a change"
    )
    assert never_down(found.trace)
    share = found.point[0]
    assert share.sum() == pytest.approx(1, rel=1e-12)
    assert (share >= 0).all()
    slope = (density / (density @ share)[:, None]).mean(axis=0)
    assert slope.max() < 1 + 1e-4
    slow = converged(plain(step, start, 1e-12), tol=1e-12, max_iter=3000, what="", measure="")
    assert found.loss <= slow.loss + 1e-9


# -- every model that iterates -------------------------------------------------------------------


def words(n: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 3, (3, n))
    y = (a + b * c + (rng.random(n) < 0.3)) % 2
    return pa.table({**{k: v.astype(str) for k, v in zip("abc", (a, b, c), strict=True)}, "y": y})


def half(table: pa.Table) -> pa.Table:
    hidden = np.arange(len(table)) % 2 == 1
    return table.set_column(3, "y", pa.array(table["y"].to_numpy().astype(str), mask=hidden))


ITERATIVE: dict[str, Any] = {
    "NaiveBayes, em": lambda **told: fb.NaiveBayes(unlabelled="em", **told).fit(half(words()), "y"),
    "NaiveBayes, loo": lambda **told: fb.NaiveBayes(alpha="loo", **told).fit(words(), "y"),
    "SPODE": lambda **told: fb.SPODE(alpha="loo", **told).fit(words(), "y"),
    "TAN, loo": lambda **told: fb.TAN(alpha="loo", **told).fit(words(), "y"),
    "TAN, hdp": lambda **told: fb.TAN(smoothing="hdp", **told).fit(words(), "y"),
    "KDB": lambda **told: fb.KDB(smoothing="hdp", **told).fit(words(), "y"),
    "JointBayes": lambda **told: fb.JointBayes(tau="loo", **told).fit(words(), "y"),
    "JointGaussian": lambda **told: fb.JointGaussian(**told).fit(words(), "y"),
    "WeightedNaiveBayes": lambda **told: fb.WeightedNaiveBayes(**told).fit(words(), "y"),
    "LogisticRegression": lambda **told: fb.LogisticRegression(**told).fit(words(), "y"),
    "Calibrated": lambda **told: fb.Calibrated(**told).fit(words(), "y"),
}


@pytest.mark.parametrize("name", ITERATIVE)
def test_model__has_one_contract(name: str, tmp_path: Path) -> None:
    make = ITERATIVE[name]
    whole = make()  # without a warning
    assert whole.converged_ is True
    assert whole.n_iter_ >= 1
    assert len(whole.trace_) == whole.n_iter_ + 1
    tol = 1e-12 if name != "LogisticRegression" else 1e-9
    with pytest.warns(
        fb.ConvergenceWarning, match=r"did not converge in 1 steps: .*; raise `max_iter`, or `tol`"
    ):
        short = make(max_iter=1, tol=tol)
    assert (short.converged_, short.n_iter_) == (False, 1)
    np.testing.assert_array_equal(np.isfinite(short.predict_proba(words())), True)
    for model in (whole, short):
        model.save(tmp_path / "m.fb", force=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = fb.load(tmp_path / "m.fb")
        assert (again.converged_, again.n_iter_) == (model.converged_, model.n_iter_)
        np.testing.assert_array_equal(again.trace_, model.trace_)
    for told in ({"max_iter": 0}, {"tol": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(told))}=0"):
            make(**told)


@pytest.mark.parametrize(
    "make",
    [
        fb.NaiveBayes,
        fb.SPODE,
        fb.TAN,
        fb.KDB,
        fb.JointBayes,
        lambda: fb.Calibrated(method="isotonic"),
    ],
)
def test_model__without_iteration_took_one_step(make: Any) -> None:
    model = make().fit(words(), "y")
    assert (model.converged_, model.n_iter_, len(model.trace_)) == (True, 1, 0)
