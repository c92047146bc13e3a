"""What comes and goes by `+` and `-`: whole numbers exactly, weights without a trace (§2, §3).

Every law holds for all that is counted beside the classes, so that no two parts disagree on what is
left. Numbers are constant within the class where rows weigh very differently: of a scatter less
than a share is refused, which is another law.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastbayes as fb
from fastbayes.statistics.retraction import left

PARTS = ["values", "moments", "pairs", "triples", "cells", "scatter", "cell_scatter", "sketches"]
every = pytest.mark.parametrize("part", [*PARTS, "families"])


def counted(part: str, rows: dict[str, Any]) -> fb.Statistics:
    """Count a part of rows (c, d, e, x, y), of weight w where there is one."""
    types = {**dict.fromkeys("cdey", pa.string()), "x": pa.float64(), "w": pa.float64()}
    table = pa.table({name: pa.array(held, types[name]) for name, held in rows.items()})
    options: dict[str, Any] = {"statistics": [part]}
    if part == "families":
        options = {"families": [("c", "d"), ("d", "e", "c")]}
    if part in ("pairs", "triples", "families"):
        options["exclude"] = ["x"]  # bins of numbers would differ from day to day
    return fb.count(table, "y", sample_weight="w" if "w" in rows else None, **options)


def day(rare: float, heavy: float) -> dict[str, Any]:
    """Heavy rows of two classes, and where it weighs something a light one of a third."""
    rows = [
        ("a", "u", "s", 1.5, "n", heavy),
        ("b", "u", "s", None, "n", heavy),
        ("b", None, "t", 1.5, "p", heavy),
        *[("a", "u", "s", 1.5, "n", rare), ("rare", "u", "s", 1.5, "fraud", rare)] * (rare > 0),
    ]
    return dict(zip("cdexyw", map(list, zip(*rows, strict=True)), strict=True))


def days(part: str, n: int, sigma: float, scale: float) -> list[fb.Statistics]:
    """Statistics of days whose rows weigh exp(sigma z) times the scale."""
    found = []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        y = rng.choice(4, 500, p=[0.9, 0.09, 0.009, 0.001])
        rows = {name: rng.choice(list("abcd"), 500, p=[0.7, 0.2, 0.09, 0.01]) for name in "cde"}
        rows |= {"x": 1.5 + y, "y": np.array(list("npqr"))[y]}
        rows["w"] = scale * np.exp(sigma * rng.standard_normal(500))
        found.append(counted(part, rows))
    return found


def is_empty(stats: fb.Statistics) -> bool:
    domains = [stats.schema.classes, *(feature.values for feature in stats.schema.categorical)]
    cells = [part.keys for name, part in stats.parts.items() if name.startswith("cell")]
    return stats.n_rows == 0 and not any(map(len, [*domains, *cells]))


@every
@pytest.mark.parametrize("doubled", [0, 20])
def test_whole_weights_come_and_go_exactly(part: str, doubled: int) -> None:
    """However heavy the rows beside them, as long as sums are exact."""
    a, b = counted(part, day(1, 6e8)), counted(part, day(0, 6e8))
    for _ in range(doubled):
        b = b + b
    assert "fraud" in a.schema.classes.to_pylist()
    assert (a + b) - b == a
    assert (a + b) - a == b
    assert a * 2 - a == a
    assert is_empty(a + b - a - b)


@every
def test_rows_come_and_go_exactly(part: str) -> None:
    light, heavy = (
        {k: v for k, v in day(1, 1).items() if k != "w"},
        {k: v[:1] for k, v in day(0, 1).items() if k != "w"},
    )
    a, b = counted(part, light), counted(part, heavy)
    for _ in range(31):
        b = b + b
    assert (a + b) - b == a
    assert (a + b).n_rows == 5 + 2**31


@every
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_what_was_never_added_is_refused_beside_any_weight(part: str, weight: float) -> None:
    whole, row = counted(part, day(0, 6e8)), day(weight, 6e8)
    for at in (3, 4):
        one = counted(part, {name: held[at : at + 1] for name, held in row.items()})
        if at == 4:
            with pytest.raises(fb.DataError, match="never added"):
                whole - one
        with pytest.raises(fb.DataError, match="never added"):
            whole - counted(part, day(0, 6e8)) - one


@every
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e6])
def test_weights_that_are_all_taken_away_leave_nothing(part: str, scale: float) -> None:
    """In whatever order: the sums of the last are off by the rounding of what went before."""
    few = days(part, 3, 0.5, scale)
    total = few[0] + few[1] + few[2]
    for order in permutations(range(3)):
        rest = total
        for i in order:
            rest = rest - few[i]
        assert is_empty(rest)


@every
def test_a_window_slides_over_days_of_any_weights(part: str) -> None:
    """Values and classes that leave leave entirely, and light ones stay."""
    every_day = days(part, 12, 3.0, 1.0)
    window = every_day[0] + every_day[1] + every_day[2]
    for i in range(3, 12):
        window = window + every_day[i] - every_day[i - 3]
        again = every_day[i - 2] + every_day[i - 1] + every_day[i]
        assert window.schema == again.schema
        for name, known in again.parts.items():
            found = window.parts[name].arrays()
            for key, wanted in known.arrays().items():
                if key in ("counts", "class_counts", "count", "incomplete", "length"):
                    assert ((found[key] > 0) == (wanted > 0)).all()
                    np.testing.assert_allclose(
                        found[key], wanted, 1e-9, 1e-12 * wanted.max(initial=0)
                    )


@every
def test_rows_counted_together_can_be_taken_away_in_parts(part: str) -> None:
    """Blocks add up rows one by one: a tenth 60,000 times is 6,000 only to some digits."""
    n = 60_000
    rows = {k: np.resize(v, n) for k, v in day(0, 1).items() if k != "w"}
    rows["w"] = np.full(n, 0.1)
    whole = counted(part, rows)
    first, last = (
        counted(part, {k: v[some] for k, v in rows.items()})
        for some in (slice(0, n // 3), slice(n // 3, n))
    )
    assert is_empty(whole - first - last)
    assert is_empty(whole - last - first)


@every
def test_scaling_all_is_scaling_each(part: str) -> None:
    few = days(part, 3, 0.5, 1.0)
    rest = (few[0] + few[1] + few[2]) * 0.3
    for one in few[:2]:
        rest = rest - one * 0.3
    assert rest.schema == few[2].schema
    assert is_empty(rest - few[2] * 0.3)


@pytest.mark.parametrize("cls", [fb.MultinomialNB, fb.BernoulliNB, fb.CategoricalNB, fb.GaussianNB])
def test_statistics_of_arrays_come_and_go_alike(cls: Any) -> None:
    def of(X: Any, weight: Any) -> Any:
        return cls().fit(X, np.arange(len(X)) % 2, weight).statistics_

    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, (6, 40, 4))
    few = [of(x, rng.random(40) * 1e4) for x in X]
    for a, b, c in permutations(few, 3):
        rest = a + b + c - a - c - b
        held = {k: v for part in rest.parts.values() for k, v in part.arrays().items()}
        assert not any(v.any() for k, v in held.items() if "count" in k or k == "sums")
    light, heavy = np.array([[1, 0], [0, 1]]), np.array([[0, 1], [1, 0]])
    a, b = of(light, [1.0, 1.0]), of(heavy, [6e8, 2.0**40])
    for name, part in (a + b - b).parts.items():
        for key, held in part.arrays().items():
            if "count" in key or key == "sums":
                assert np.array_equal(held, a.parts[name].arrays()[key])
    with pytest.raises(fb.DataError, match="never added"):
        b - a - b


def test_sums_that_were_never_added_are_refused() -> None:
    a, b = (fb.MultinomialNB().fit([x, [1, 1]], ["p", "q"]).statistics_ for x in ([2, 3], [3, 2]))
    with pytest.raises(fb.DataError, match=r"column 0, class p: .*never added"):
        a - b


def test_left__what_nothing_is_taken_from_stays() -> None:
    mine = np.array([[0.1, 1e12], [1e12 + 0.5, 0.3]])
    found = left(mine, np.array([[0.0, 1e12], [1e12, 0.3]]))
    assert found.tolist() == [[0.1, 0.0], [0.0, 0.0]]


def test_left__is_exact_where_sums_are() -> None:
    most = 2.0**53 - 1
    assert left(np.array([most]), np.array([most - 1])).tolist() == [1.0]
    assert left(np.array([2.0**60 + 256]), np.array([2.0**60])).tolist() == [0.0]
    assert left(np.array([2**62]), np.array([2**62 - 1])).tolist() == [1]


def test_weights_without_a_class_leave_nothing() -> None:
    tables = [
        pa.table(
            {
                "class": pa.array(["a", None], pa.string()),
                "feature": ["x", "x"],
                "value": ["u", "u"],
                "n": [2.5, w],
            }
        )
        for w in (0.1, 0.2, 0.3)
    ]
    a, b, c = (fb.Statistics.from_table(t) for t in tables)
    assert (a + b + c - c - b - a).dropped_rows == 0
    with pytest.raises(fb.DataError, match="rows without a class"):
        a - b
