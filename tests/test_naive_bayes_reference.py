"""NaiveBayes against hand calculations, Weka and an oracle in exact fractions."""

from __future__ import annotations

import csv
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import Rows, close, frame, same_answers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.naive_bayes import NaiveBayes as Oracle

import fastbayes as fb
from fastbayes.core.errors import DataError, FastBayesWarning

pytestmark = pytest.mark.usefixtures("kernels")


# By hand: Quinlan's play-tennis

TENNIS = """
sunny hot high false N
sunny hot high true N
overcast hot high false P
rain mild high false P
rain cool normal false P
rain cool normal true N
overcast cool normal true P
sunny mild high false N
sunny cool normal false P
rain mild normal false P
sunny mild normal true P
overcast mild high true P
overcast hot normal false P
rain mild high true N
"""


@pytest.fixture(scope="module")
def tennis() -> pa.Table:
    names = ["outlook", "temperature", "humidity", "windy", "play"]
    return pa.table(dict(zip(names, np.array(TENNIS.split()).reshape(14, 5).T, strict=True)))


@pytest.mark.parametrize(
    ("outlook", "alpha", "not_played", "played", "posterior"),
    [
        ("sunny", 0, 18 / 875, 1 / 189, 0.795417349),
        ("sunny", 1, 15 / 784, 5 / 726, 0.735313977),
        ("overcast", 0, 0, 2 / 189, 0),
        ("overcast", 1, 15 / 3136, 25 / 2178, 0.294138831),
    ],
)
def test_play_tennis(
    tennis: pa.Table, outlook: str, alpha: float, not_played: float, played: float, posterior: float
) -> None:
    model = fb.NaiveBayes(alpha=alpha).fit(tennis, "play")
    X = frame([{"outlook": outlook, "temperature": "cool", "humidity": "high", "windy": "true"}])
    assert list(model.classes_) == ["N", "P"]
    close(np.exp(model.log_joint(X)), [[not_played, played]])
    close(model.predict_proba(X), [[posterior, 1 - posterior]], 1e-9)
    assert list(model.predict(X)) == ["N" if posterior > 0.5 else "P"]
    close(np.exp(model.log_evidence(X)), [not_played + played])


def test_play_tennis__target_by_name_or_apart(tennis: pa.Table) -> None:
    X, y = tennis.drop_columns("play"), tennis["play"]
    by_name, apart = fb.NaiveBayes().fit(tennis, "play"), fb.NaiveBayes().fit(X, y)
    same_answers(by_name, apart, X)
    same_answers(by_name, fb.NaiveBayes().fit(X, np.array(y.to_pylist())), X)


def test_leave_one_out_alpha__is_no_worse_than_a_grid(tennis: pa.Table) -> None:
    chosen = fb.NaiveBayes(alpha="loo").fit(tennis, "play").alpha_
    rows, y = tennis.drop_columns("play").to_pylist(), tennis["play"].to_pylist()

    def score(alpha: float) -> float:
        return Oracle(alpha=alpha).fit(rows, y).leave_one_out_log_joint()

    # The closed form is the sum over rows of the joint of each under the counts without it.
    domains = {j: sorted(set(tennis[j].to_pylist())) for j in rows[0]}
    without = [
        Oracle(alpha=chosen, domains=domains).fit(rows[:i] + rows[i + 1 :], y[:i] + y[i + 1 :])
        for i in range(len(rows))
    ]
    refitted = sum(
        m.log_joint(r)[m.classes.index(c)] for m, r, c in zip(without, rows, y, strict=True)
    )
    assert score(chosen) == pytest.approx(refitted, abs=1e-9)
    assert score(chosen) >= max(score(a) for a in np.geomspace(1e-3, 1e3, 61)) - 1e-6


# Weka 3.9.7


@pytest.mark.parametrize(
    "name", ["weather-nominal", "contact-lenses", "breast-cancer", "vote", "tic-tac-toe", "car"]
)
def test_weka(shared_data: Path, name: str) -> None:
    with open(shared_data / "tables" / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = [{k: v or None for k, v in row.items()} for row in csv.DictReader(file)]
    with open(shared_data / "exact" / f"{name}.weka_NB.csv", newline="", encoding="utf-8") as file:
        expected = list(csv.DictReader(file))
    domains = json.loads((shared_data / "domains" / f"{name}.json").read_text(encoding="utf-8"))
    del domains["class"]
    model = fb.NaiveBayes(domains=domains).fit(frame(rows), "class")
    p = model.predict_proba(frame(rows).drop_columns("class"))
    close(p, [[float(row[c]) for c in model.classes_] for row in expected])


# Random tables against the oracle

LABELS = st.sampled_from([["no", "yes"], ["x", "None", "é"], [3, 1, 2, 0], [False, True]])
POOLS = [["a", "b"], ["NA", "None", "nan", "ü", "z"], [5, -1, 7], [True, False], ["only"]]
STRANGE: dict[type, list[Any]] = {str: ["never"], int: [99], bool: []}
SCALES = [(0, 1), (5, 1e-3), (0, 1e6)]


@dataclass
class Problem:
    """A table to fit, how, and the rows to ask about."""

    rows: Rows
    classes: list[Any]
    types: dict[str, pa.DataType]
    weights: list[float] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    asked: Rows = field(default_factory=list)

    @property
    def numeric(self) -> list[str]:
        return [j for j, t in self.types.items() if pa.types.is_floating(t)]

    def kept(self) -> list[tuple[dict[str, Any], Any, float]]:
        weights = self.weights or [1] * len(self.rows)
        cells = zip(self.rows, self.classes, weights, strict=True)
        return [(row, c, w) for row, c, w in cells if w]

    def well_defined(self) -> bool:
        """Return whether two classes remain, and every class knows every number well enough."""
        classes = {c for _, c, _ in self.kept()}
        for j in self.numeric:
            known = [(c, w) for row, c, w in self.kept() if row[j] is not None]
            if {c for c, _ in known} != classes:
                return False
            if sum(w for _, w in known) <= len(classes) * self.options["ddof"]:
                return False
        return len(classes) > 1

    def fit(self) -> tuple[fb.NaiveBayes, Oracle]:
        integers = [j for j, t in self.types.items() if pa.types.is_integer(t)]
        oracle = Oracle(numeric=self.numeric, **self.options)
        model = fb.NaiveBayes(categorical=integers or None, **self.options)
        model.fit(frame(self.rows, self.types), pa.array(self.classes), sample_weight=self.weights)
        return model, oracle.fit(self.rows, self.classes, self.weights)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    pools = {f"c{j}": p for j, p in enumerate(draw(st.lists(st.sampled_from(POOLS), max_size=3)))}
    scales = draw(st.lists(st.sampled_from(SCALES), min_size=not pools, max_size=2))
    numbers = {
        f"u{j}": st.none() | st.integers(-8, 8).map(lambda i, s=s: s[0] + s[1] * i / 4)
        for j, s in enumerate(scales)
    }
    seen = {j: st.sampled_from([None, *pool, *pool]) for j, pool in pools.items()}
    rows = draw(st.lists(st.fixed_dictionaries(seen | numbers), min_size=4, max_size=20))
    label = st.sampled_from(draw(LABELS))
    weight = st.sampled_from([0, 0.25, 0.5, 1, 2, 3.5])
    n = len(rows)
    types = {j: pa.array(pool).type for j, pool in pools.items()}
    p = Problem(
        rows,
        draw(st.lists(label, min_size=n, max_size=n)),
        types | dict.fromkeys(numbers, pa.float64()),
        draw(st.none() | st.lists(weight, min_size=n, max_size=n)),
    )
    p.options = {
        "alpha": draw(st.sampled_from([0, 0.001, 0.5, 1, 3.25])),
        "class_prior": draw(st.sampled_from([None, "empirical", "uniform", "given"])),
        "ddof": draw(st.sampled_from([0, 1])),
        "variance": draw(st.sampled_from(["per_class", "shared", "single"])),
        "var_floor": draw(st.sampled_from([1e-9, 0.01, "within"])),
        "missing": draw(st.sampled_from(["marginalize", "category"])),
        "unseen": draw(st.sampled_from(["ignore", "smooth"])),
        "domains": draw(st.sampled_from([None, pools])),
    }
    assume(p.well_defined())
    if p.options["class_prior"] == "given":
        k = len({c for _, c, _ in p.kept()})
        p.options["class_prior"] = [0.5**i for i in range(1, k)] + [0.5 ** (k - 1)]
    odd = {j: st.sampled_from([None, *v, *STRANGE[type(v[0])]]) for j, v in pools.items()}
    p.asked = rows + draw(st.lists(st.fixed_dictionaries(odd | numbers), min_size=1, max_size=8))
    return p


@given(problems())
@settings(max_examples=200)
def test_random_tables__answers(p: Problem) -> None:
    model, oracle = p.fit()
    X = frame(p.asked, p.types)
    joint = np.array([oracle.log_joint(r) for r in p.asked])
    evidence = np.array([oracle.log_evidence(r) for r in p.asked])
    posterior = np.array([oracle.posterior(r) for r in p.asked])
    assert list(model.classes_) == oracle.classes
    close(model.log_joint(X), joint, 1e-9)
    close(model.log_evidence(X), evidence, 1e-9)
    got = model.predict_proba(X)
    close(got, posterior, 1e-9)
    assert np.abs(got.sum(axis=1) - 1).max() <= 1e-12
    with np.errstate(divide="ignore", invalid="ignore"):
        impossible = np.isneginf(evidence)[:, None]
        logs = np.where(impossible, np.log(posterior), joint - evidence[:, None])
    close(model.predict_log_proba(X), logs, 1e-9)
    predicted = model.predict(X)
    for i, row in enumerate(p.asked):
        ranked = sorted(posterior[i])
        if ranked[-1] - ranked[-2] > 1e-9:
            assert predicted[i] == oracle.predict(row)


@given(problems())
def test_random_tables__explanations(p: Problem) -> None:
    model, oracle = p.fit()
    explained = model.explain(frame(p.asked, p.types))
    nats = [oracle.contributions(r) for r in p.asked]
    expected = [[[cell[j][c] for c in oracle.classes] for j in oracle.columns] for cell in nats]
    close(explained.contributions, expected, 1e-9)
    close(explained.prior, [math.log(oracle.prior(c)) for c in oracle.classes])
    joint = explained.prior + explained.contributions.sum(axis=1)
    close(joint, model.log_joint(frame(p.asked, p.types)), 1e-9)


@pytest.mark.filterwarnings("ignore:there is only one class")  # so far
@given(problems(), st.data())
def test_random_tables__any_order_and_batching(p: Problem, data: st.DataObject) -> None:
    model, _ = p.fit()
    n = len(p.rows)
    order = data.draw(st.permutations(range(n)))
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=4)))
    columns = data.draw(st.permutations(list(p.types)))
    X = frame(p.rows, p.types).take(order)
    y = pa.array(p.classes).take(order)
    w = None if p.weights is None else np.array(p.weights)[order]
    parts = fb.NaiveBayes(**model.get_params() | {"class_prior": None})
    for a, b in itertools.pairwise([0, *cuts, n]):
        if w is None or w[a:b].any():
            weights = None if w is None else w[a:b]
            parts.partial_fit(X.slice(a, b - a), y.slice(a, b - a), sample_weight=weights)
    parts.set_params(class_prior=p.options["class_prior"]).fit_statistics(parts.statistics_)
    asked = frame(p.asked, p.types)
    close(parts.log_joint(asked.select(columns)), model.log_joint(asked), 1e-9)


def types(rows: Rows) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in frame(rows).schema}


def test_class_that_knows_no_number__takes_the_pooled_moments() -> None:
    rows = [{"u": x} for x in (1.0, 2.0, 4.0, 8.0, None, None)]
    model, oracle = Problem(rows, list("aabbcc"), {"u": pa.float64()}).fit()
    close(model.log_joint(frame(rows)), [oracle.log_joint(r) for r in rows], 1e-9)


@pytest.mark.parametrize("values", [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 5.0, 5.0], [0.1] * 4])
def test_number_constant_within_every_class__has_factor_one(values: list[float]) -> None:
    X = pa.table({"u": values})
    model = fb.NaiveBayes().fit(X, ["a", "a", "b", "b"])
    close(model.log_joint(X), np.full((4, 2), math.log(0.5)))


def test_class_with_one_value__takes_the_shared_variance_when_unbiased() -> None:
    rows = [{"u": x} for x in (1.0, 2.0, 4.0, 8.0, 9.0)]
    p = Problem(rows, list("aabbc"), {"u": pa.float64()}, options={"ddof": 1})
    model, oracle = p.fit()
    assert oracle.raw_variance("u", "c") == (0.5 + 8) / 2
    close(model.log_joint(frame(rows)), [oracle.log_joint(r) for r in rows], 1e-9)


def epoch_seconds() -> tuple[Rows, list[int]]:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 500)
    return [
        {"u": 1.7e9 + x} for x in ((rng.integers(-64, 65, 500) + 20 * y) / 64).tolist()
    ], y.tolist()


def test_epoch_seconds__moments_keep_full_precision() -> None:
    rows, y = epoch_seconds()
    oracle = Oracle(numeric=["u"]).fit(rows, y)
    stats = fb.NaiveBayes().fit(frame(rows), y).statistics_
    arrays = stats.parts["moments"].arrays()
    expected = [oracle.moments["u", c] for c in (0, 1)]
    close(np.ravel(arrays["mean"]), [float(m[1]) for m in expected], 1e-15)
    close(np.ravel(arrays["scatter"]), [float(m[2]) for m in expected], 1e-9)


@pytest.mark.parametrize("type", [pa.float64(), pa.decimal128(18, 6)])
def test_epoch_seconds__log_joint_keeps_full_precision(type: pa.DataType) -> None:
    rows, y = epoch_seconds()
    oracle = Oracle(numeric=["u"]).fit(rows, y)
    values = frame(rows).cast(pa.schema([("u", type)]))
    model = fb.NaiveBayes().fit(values, y)
    close(model.log_joint(values), [oracle.log_joint(r) for r in rows], 1e-9)


def test_nan__is_missing() -> None:
    x = np.array([1.0, 2.0, np.nan, 4.0, 8.0, np.nan])
    nulls = pa.table({"u": pa.array(x, from_pandas=True)})
    model = fb.NaiveBayes().fit(nulls, list("aabbab"))
    same_answers(model, fb.NaiveBayes().fit(pa.table({"u": x}), list("aabbab")), nulls)
    close(model.log_joint(pa.table({"u": x})), model.log_joint(nulls))
    close(model.log_joint(nulls)[2], np.log([0.5, 0.5]))


# Shapes that take other kernels


@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 8, 9, 17, 300])
def test_many_classes(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    n = max(150, n_classes)
    y = np.arange(n) % n_classes
    rows = [
        {
            **{f"c{j}": str(rng.choice(["p", "q", "r", "s"])) for j in range(5)},
            "u": None if rng.random() < 0.1 else float(rng.normal(k % 3)),
        }
        for k in y
    ]
    model, oracle = Problem(rows, y.tolist(), types(rows)).fit()
    asked = rows[:: n // 9]
    X = frame(asked)
    joint = np.array([oracle.log_joint(r) for r in asked])
    close(model.log_joint(X), joint, 1e-9)
    close(model.predict_proba(X), [oracle.posterior(r) for r in asked], 1e-9)
    assert (model.predict(X) == joint.argmax(axis=1)).all()


@pytest.mark.parametrize("n_values", [2, 255, 256, 300, 66_000])
def test_many_values(n_values: int) -> None:
    n = max(1000, n_values)
    rows = [{"id": f"v{i % n_values}", "c": "pqr"[i % 3]} for i in range(n)]
    y = [int(i % 7 < 3) for i in range(n)]
    model, oracle = Problem(rows, y, types(rows)).fit()
    asked = [rows[0], rows[-1], rows[n // 2], {"id": None, "c": "p"}, {"id": "never", "c": None}]
    close(model.log_joint(frame(asked)), [oracle.log_joint(r) for r in asked], 1e-9)


# Impossible rows and ties


def test_row_impossible_in_every_class__gets_the_prior() -> None:
    X = pa.table({"a": ["p", "p", "q"], "b": ["s", "s", "t"]})
    model = fb.NaiveBayes(alpha=0).fit(X, [1, 1, 0])
    odd = pa.table({"a": ["p", "p"], "b": ["t", "s"]})
    assert (model.log_joint(odd)[0] == -math.inf).all()
    close(model.predict_proba(odd), [[1 / 3, 2 / 3], [0, 1]])
    assert model.log_evidence(odd)[0] == -math.inf
    assert list(model.predict(odd)) == [1, 1]


def test_alpha_zero__a_class_that_never_knew_the_column_is_uniform() -> None:
    X = pa.table({"a": ["p", "q", "r", None]})
    model = fb.NaiveBayes(alpha=0, class_prior="uniform").fit(X, [0, 0, 0, 1])
    close(np.exp(model.log_joint(X)), [[1 / 6, 1 / 6]] * 3 + [[1 / 2, 1 / 2]])


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_tie__goes_to_the_lowest_class(order: tuple[str, ...]) -> None:
    X = pa.table({"x": ["p", "q"] * 3, "u": [0.0, 1.0] * 3})
    model = fb.NaiveBayes().fit(X, [c for c in order for _ in "pq"])
    assert list(model.predict(X)) == ["a"] * 6


def test_unseen_error__names_column_value_and_row() -> None:
    model = fb.NaiveBayes(unseen="error").fit(pa.table({"sky": ["red", "blue"]}), [0, 1])
    with pytest.raises(DataError, match=r"(?=.*sky)(?=.*green)(?=.*\b1\b)"):
        model.predict(pa.table({"sky": ["red", "green"]}))


def test_value_outside_a_declared_domain__is_an_error_at_fit() -> None:
    with pytest.raises(DataError, match=r"(?=.*sky)(?=.*green)"):
        fb.NaiveBayes(domains={"sky": ["red", "blue"]}).fit(
            pa.table({"sky": ["red", "green"]}), [0, 1]
        )


@pytest.mark.parametrize("weights", [[1, -1, 1], [1, math.nan, 1], [1, math.inf, 1], [0, 0, 0]])
def test_weights_that_cannot_be__are_errors(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        fb.NaiveBayes().fit(pa.table({"x": ["p", "q", "p"]}), [0, 1, 1], sample_weight=weights)


def test_one_class__warns_and_fits() -> None:
    X = pa.table({"x": ["p", "q"]})
    with pytest.warns(FastBayesWarning, match="class"):
        model = fb.NaiveBayes().fit(X, ["only", "only"])
    close(model.predict_proba(X), [[1], [1]])


# Rows without a class, by EM


def test_em__agrees_with_the_oracle() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 60)
    rows = [
        {
            "a": rng.choice(["p", "q", "r"], p=[0.8, 0.1, 0.1] if c else [0.1, 0.2, 0.7]),
            "b": rng.choice([None, "s", "t"], p=[0.1, 0.7, 0.2] if c else [0.1, 0.1, 0.8]),
            "u": float(np.round(rng.normal(2 * c), 3)),
        }
        for c in y
    ]
    classes = [int(c) if i < 12 else None for i, c in enumerate(y)]
    oracle = Oracle(numeric=["u"], unlabelled="em").fit(rows, classes)
    model = fb.NaiveBayes(unlabelled="em").fit(frame(rows), pa.array(classes))
    close(model.predict_proba(frame(rows)), [oracle.posterior(r) for r in rows], 1e-5)
