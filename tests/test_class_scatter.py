"""Scatter matrices of classes: what they say beside the laws of every statistic."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import alignment_of, batch_of, shape_of

import fastbayes as fb
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.statistics import ClassMoments, ClassScatter

EPOCH = 1.7e9
seeds = st.integers(0, 2**32 - 1)


pytestmark = pytest.mark.usefixtures("kernels")


def scatter_of(
    columns: Any, y: Any = None, weight: Any = None, kind: Any = ClassScatter, n_classes: int = 0
) -> Any:
    columns = [np.asarray(x, dtype=np.float64) for x in columns]
    y = np.zeros(len(columns[0]), np.int64) if y is None else np.asarray(y)
    shape = shape_of([], len(columns), n_classes or int(y.max(initial=0)) + 1)
    result = kind.zeros(shape)
    weight = None if weight is None else np.asarray(weight, dtype=np.float64)
    result.update(batch_of(shape, [], y, columns, weight))
    return result


def two_passes(columns: Any, y: Any, weight: Any, n_classes: int) -> Any:
    """Return count, mean and scatter with missing values imputed, class by class.

    The mean is given as a value of each column and what is to be added to it; differences from
    that value are exact in extended precision, even of epoch seconds a millisecond apart.
    """
    found = []
    base = np.array([next((v for v in x if v == v), 0.0) for x in columns])
    for c in range(n_classes):
        mine = np.flatnonzero((y == c) & (weight > 0))
        w = weight[mine].astype(np.longdouble)
        X = np.array([x[mine] for x in columns], dtype=np.longdouble).reshape(len(columns), -1)
        X = X - base[:, None]
        known = ~np.isnan(X)
        n = (known * w).sum(axis=1)
        mean = np.where(known, X * w, 0).sum(axis=1) / np.where(n > 0, n, 1)
        d = np.where(known, X - mean[:, None], 0)
        found.append((w.sum(), mean, n, (d * w) @ d.T))
    return [base, *(np.array(part) for part in zip(*found, strict=True))]


def assert_same(found: Any, expected: Any, rtol: float = 1e-10) -> None:
    """Compare relative to the root of the product of both diagonals."""
    count, mean, rest, scatter = found
    base, n, m, known, s = expected
    np.testing.assert_allclose(count, n.astype(float), rtol=1e-12)
    root = np.sqrt(np.einsum("cii->ci", s).astype(float))
    apart = (mean.astype(np.longdouble) - base) - m
    off = np.where(known > 0, apart + rest, mean).astype(float)
    assert (np.abs(off) <= rtol * root + 1e-16 * np.abs(m.astype(float))).all()
    error = np.abs((scatter - s).astype(float))
    assert (error <= rtol * root[:, :, None] * root[:, None, :] + 1e-300).all()
    np.testing.assert_array_equal(scatter, scatter.swapaxes(1, 2))


def table(
    rng: np.random.Generator, n: int, p: int, k: int, *, missing: float, scales: bool = False
) -> tuple[list[Any], Any]:
    """Return columns that hang together, some with values missing, and classes."""
    y = rng.integers(0, k, n)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + y[:, None]
    if scales:
        X *= 10.0 ** rng.choice([-9, 0, 9], p)
    X += rng.choice([0.0, 100.0, EPOCH], p) if not scales else 0.0
    X[rng.random(X.shape) < missing * (rng.random(p) < 0.7)] = np.nan
    return list(np.ascontiguousarray(X.T)), y


# -- imputation ------------------------------------------------------------------------------------


@given(seed=seeds, p=st.integers(1, 5), k=st.sampled_from([1, 2, 5]), weighted=st.booleans())
@settings(max_examples=30)
def test_imputed__is_what_two_passes_find__however_it_is_split(
    seed: int, p: int, k: int, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 120))
    missing = rng.choice([0.0, 0.1, 0.5, 1.0])
    columns, y = table(rng, n, p, k, missing=missing, scales=bool(rng.integers(2)))
    weight = rng.integers(0, 4, n) / 2 if weighted else np.ones(n)
    expected = two_passes(columns, y, weight, k)
    order = rng.permutation(n)
    pieces = np.split(order, np.sort(rng.integers(0, n + 1, int(rng.integers(0, 5)))))
    parts = [
        scatter_of([x[r] for x in columns], y[r], weight[r] if weighted else None, n_classes=k)
        for r in pieces
    ]
    rng.shuffle(parts)
    total = sum(parts[1:], start=parts[0])
    assert_same(total.imputed(), expected)
    assert_same(scatter_of(columns, y, weight, n_classes=k).imputed(), expected)
    np.testing.assert_allclose(
        total.incomplete,
        np.bincount(y, weight * np.isnan(columns).any(axis=0), k),
    )
    known = [np.bincount(y, weight * ~np.isnan(x), k) for x in columns]
    np.testing.assert_allclose(total.known(), np.transpose(known))


def test_imputed__by_hand() -> None:
    stat = scatter_of([[1.0, 3.0, np.nan, 5.0], [2.0, 4.0, 9.0, np.nan]])
    count, mean, rest, scatter = stat.imputed()
    assert (stat.count, stat.incomplete) == (2, 2)
    np.testing.assert_array_equal(stat.scatter, [[[2.0, 2.0], [2.0, 2.0]]])
    np.testing.assert_array_equal(count, [4.0])
    np.testing.assert_array_equal(mean + rest, [[3.0, 5.0]])
    # Deviations -2, 0, (0), 2 and -3, -1, 4, (0).
    np.testing.assert_array_equal(scatter, [[[8.0, 6.0], [6.0, 26.0]]])


def test_imputed__a_feature_never_known() -> None:
    stat = scatter_of([[1.0, 3.0], [np.nan, np.nan]])
    count, mean, _, scatter = stat.imputed()
    assert (stat.count, stat.incomplete) == (0, 2)
    np.testing.assert_array_equal(mean, [[2.0, 0.0]])
    np.testing.assert_array_equal(scatter, [[[2.0, 0.0], [0.0, 0.0]]])
    assert count == 2


def test_incomplete__of_no_weight_leaves_nothing() -> None:
    stat = scatter_of([[1.0, np.nan], [1.0, 2.0]], weight=[1.0, 0.0])
    assert stat == scatter_of([[1.0], [1.0]])
    assert stat.joint is None


def test_incomplete__comes_and_goes() -> None:
    whole, gaps = scatter_of([[1.0, 2.0, 4.0]] * 2), scatter_of([[1.0, np.nan], [np.nan, 7.0]])
    assert whole.nbytes < gaps.nbytes
    assert (whole + gaps - gaps).allclose(whole, 1e-12)
    assert (whole + gaps - gaps).joint is None
    assert gaps - gaps == scatter_of([[]] * 2)
    assert gaps * 0.0 == scatter_of([[]] * 2)


# -- precision -------------------------------------------------------------------------------------


def test_diagonal__is_that_of_the_moments() -> None:
    rng = np.random.default_rng(1)
    columns, y = table(rng, 500, 4, 3, missing=0.2)
    moments = scatter_of(columns, y, kind=ClassMoments)
    _, mean, rest, scatter = scatter_of(columns, y).imputed()
    np.testing.assert_allclose(np.einsum("cii->ic", scatter), moments.scatter, rtol=1e-11)
    np.testing.assert_allclose((mean.T - moments.mean) + rest.T, moments.rest, atol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_epoch_seconds__a_millisecond_apart(missing: float, weighted: bool) -> None:
    rng = np.random.default_rng(2)
    n = 4000
    base = rng.normal(size=n) * 1e-3
    columns = [EPOCH + base, EPOCH + base * rng.normal(size=n), rng.normal(size=n)]
    for x in columns:
        x[rng.random(n) < missing] = np.nan
    y, weight = rng.integers(0, 2, n), rng.random(n) if weighted else np.ones(n)
    rows = np.array_split(np.arange(n), 7)
    parts = [scatter_of([x[r] for x in columns], y[r], weight[r]) for r in rows]
    total = sum(parts[1:], start=parts[0])
    assert_same(total.imputed(), two_passes(columns, y, weight, 2))
    left = total - parts[3]
    kept = np.concatenate(rows[:3] + rows[4:])
    expected = two_passes([x[kept] for x in columns], y[kept], weight[kept], 2)
    assert_same(left.imputed(), expected)


def test_scales__1e_minus_9_beside_1e9() -> None:
    rng = np.random.default_rng(3)
    shared = rng.normal(size=1000)
    columns = [1e-9 * (shared + rng.normal(size=1000)), 1e9 * (shared + rng.normal(size=1000))]
    y = rng.integers(0, 2, 1000)
    assert_same(
        scatter_of(columns, y).imputed(), two_passes(columns, y, np.ones(1000), 2), rtol=1e-13
    )


@pytest.mark.parametrize("value", [0.1, EPOCH, -1e-300, 1e300])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_constant_column__scatter_is_exactly_zero(value: float, missing: float) -> None:
    rng = np.random.default_rng(4)
    n = 3000
    columns = [rng.normal(size=n), np.full(n, value), 1e9 + rng.normal(size=n)]
    columns[0][:2] = 1e12  # far from the mean: sums are taken once more
    columns[1][rng.random(n) < missing] = np.nan
    y, weight = rng.integers(0, 3, n), rng.random(n)
    parts = [
        scatter_of([x[r] for x in columns], y[r], weight[r]) for r in np.array_split(range(n), 5)
    ]
    total = sum(parts[1:], start=parts[0])
    for stat in (total, total - parts[2], total * 0.3, total.take(alignment_of(total.shape))):
        _, mean, _, scatter = stat.imputed()
        assert (mean[:, 1] == value).all()
        assert (scatter[:, 1] == 0).all()
        assert (scatter[:, :, 1] == 0).all()


# -- retraction ------------------------------------------------------------------------------------


def test_retraction__what_leaves_too_few_digits_names_column_and_class() -> None:
    rng = np.random.default_rng(5)
    X = pa.table({"a": rng.normal(size=40), "b": rng.normal(size=40), "y": ["u", "v"] * 20})
    wide = X.set_column(1, "b", pa.array(np.where(np.arange(40) % 2, 1e4, 1.0) * X["b"].to_numpy()))
    stats, other = (fb.count(t, "y", scatter=True, moments=False) for t in (X, wide))
    with pytest.raises(DataError, match="column 'b', class 'v': what is left has less than 1e-06"):
        stats + other - other
    one = fb.count(X.slice(0, 1), "y", scatter=True, moments=False)
    left = one + other - other
    assert left.scatter.count.tolist() == [1]
    assert not left.scatter.scatter.any()


def test_retraction__noise_is_seen_through_missing_values() -> None:
    few = scatter_of([[1.0, 1.001, 1.002], [np.nan] * 3])
    many = scatter_of([np.linspace(-900, 900, 50), [np.nan] * 50])
    with pytest.raises(DataError, match="too few digits"):
        few + many - many


def test_retraction__of_rows_never_added_is_refused() -> None:
    rows = pa.table({"a": [1.0, 2.0, None], "y": ["u", "u", "u"]})
    two, three = (fb.count(rows.slice(0, n), "y", scatter=True) for n in (2, 3))
    with pytest.raises(DataError, match=r"'u'.*never added"):
        two - three
    with pytest.raises(DataError, match="never added"):
        scatter_of([], n_classes=1, y=[0]) - scatter_of([], n_classes=1, y=[0, 0])


# -- layout ----------------------------------------------------------------------------------------


def test_take__a_feature_that_is_new_was_never_known() -> None:
    columns = [[1.0, 2.0, 4.0, np.nan], [1.0, 0.0, np.nan, 5.0]]
    stat = scatter_of(columns, [0, 1, 1, 0])
    wider = shape_of([], 3, 2)
    to = alignment_of(wider, numeric=np.array([1, -1, 0]))
    late = scatter_of([columns[1], [np.nan] * 4, columns[0]], [0, 1, 1, 0])
    assert stat.take(to).allclose(late, 1e-14)
    assert (stat.take(to) + late).allclose(late * 2.0, 1e-14)
    assert scatter_of([[]] * 2).take(alignment_of(shape_of([], 3, 1), numeric=np.array([0, -1, 1])))


def test_take__a_feature_left_out() -> None:
    rng = np.random.default_rng(6)
    columns, y = table(rng, 60, 3, 2, missing=0.3)
    stat = scatter_of(columns, y)
    some = stat.take(alignment_of(shape_of([], 2, 2), numeric=np.array([2, 0])))
    expected = scatter_of([columns[2], columns[0]], y)
    for mine, theirs in zip(some.imputed(), expected.imputed(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-7)


def test_union__a_column_that_was_all_null_at_first() -> None:
    first = pa.table({"a": [1.0, 2.0], "b": pa.nulls(2), "y": ["u", "u"]})
    then = pa.table({"a": [4.0, 5.0], "b": [1.0, 3.0], "y": ["u", "v"]})
    stats = [fb.count(t, "y", scatter=True) for t in (first, then)]
    both = fb.count(
        pa.concat_tables([first.set_column(1, "b", pa.nulls(2, pa.float64())), then]),
        "y",
        scatter=True,
    )
    assert (stats[0] + stats[1]).scatter.allclose(both.scatter, 1e-14)


def test_from_arrays__of_matrices_that_are_none() -> None:
    stat = scatter_of([[1.0, 2.0, np.nan], [1.0, 0.0, 3.0]])
    good = {key: array.copy() for key, array in stat.arrays().items()}
    for key, at, value, message in (
        ("scatter", (0, 0, 1), 7.0, "scatter: .*not symmetric"),
        ("scatter", (0, 1, 1), -1.0, "scatter: .*below 0"),
        ("joint_count", (0, 0, 1), 7.0, "joint_count: .*not symmetric"),
        ("joint_scatter", (0, 0, 0), -1.0, "joint_scatter: .*below 0"),
        ("incomplete", (0,), -1.0, "incomplete"),
        ("incomplete", (0,), np.nan, "incomplete"),
        ("incomplete", (0,), 0.0, "do not go together"),
    ):
        arrays = {name: array.copy() for name, array in good.items()}
        arrays[key][at] = value
        with pytest.raises(ValueError, match=message):
            ClassScatter.from_arrays(stat.shape, arrays)
    without = {key: array for key, array in good.items() if not key.startswith("joint")}
    with pytest.raises(ValueError, match="do not go together"):
        ClassScatter.from_arrays(stat.shape, without)


# -- through the door ------------------------------------------------------------------------------

ROWS = pa.table(
    {
        "a": [1.0, 2.0, 4.0, None, 3.0],
        "b": [1.0, 0.0, 1.0, 5.0, None],
        "c": ["p", "q", None, "p", "p"],
        "y": ["no", "yes", "yes", "no", "no"],
    }
)


def test_count__with_scatter(tmp_path: Path) -> None:
    stats = fb.count(ROWS, "y", scatter=True)
    assert stats.scatter.count.tolist() == [1, 2]
    assert stats.scatter.incomplete.tolist() == [2, 0]
    assert stats.scatter.scatter[1].tolist() == [[2.0, 1.0], [1.0, 0.5]]
    stats.save(tmp_path / "s.fbs")
    assert fb.Statistics.load(tmp_path / "s.fbs") == stats
    assert (stats + stats - stats).allclose(stats)
    assert (2 * stats).scatter.count.tolist() == [2, 4]
    with pytest.raises(SchemaError, match="no scatter; count again with scatter=True"):
        fb.count(ROWS, "y").scatter  # noqa: B018
    with pytest.raises(SchemaError, match="scatter matrices have no table; save them to a file"):
        stats.to_table()
    with pytest.raises(ValueError, match="count once for either"):
        fb.count(ROWS, "y", scatter=True, pairs=True)
    fb.count(ROWS.drop_columns(["a", "b"]), "y", scatter=True, pairs=True)


def test_checkpoint__goes_on_to_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    columns, y = table(rng, 3000, 3, 2, missing=0.1)
    rows = pa.table({**{f"x{i}": x for i, x in enumerate(columns)}, "y": y})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=500)
    path, seen = str(tmp_path / "rows.parquet"), [0]

    def stop(done: int) -> None:
        seen[0] += done
        if seen[0] > 1000:
            raise KeyboardInterrupt

    told: dict[str, Any] = {"scatter": True, "checkpoint": tmp_path / "kept"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastbayes.scan.checkpoint.SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            fb.count(path, "y", progress=stop, threads=1, **told)
    assert (tmp_path / "kept" / "checkpoint.fbs").exists()
    assert fb.count(path, "y", **told) == fb.count(path, "y", scatter=True)


@pytest.mark.parametrize("gaps", [False, True])
def test_memory__is_planned_and_refused_with_the_figure(gaps: bool) -> None:
    X = np.random.default_rng(8).normal(size=(600, 50))
    X[5, 5] = np.nan if gaps else 0.0
    y = np.arange(600) % 3
    need = 8 * 3 * 50 * 50 * 2 * (20 if gaps else 4)  # bytes, classes, features, copies
    plan = fb.plan(X, y, scatter=True, threads=1)
    assert need <= plan.total <= 1.1 * need
    assert plan.total == pytest.approx(sum(plan.columns.values()), rel=1e-2)
    told: dict[str, Any] = {"scatter": True, "threads": 1}
    fb.count(X, y, memory_limit=plan.total, **told)
    with pytest.raises(
        MemoryLimitError,
        match=f"counting scatter matrices needs .*50 numeric columns two by two need {need:,} byt",
    ):
        fb.count(X, y, memory_limit=need // 2, **told)
    with pytest.raises(MemoryLimitError, match=f"counting needs {plan.total:,} bytes"):
        fb.plan(X, y, memory_limit=need // 2, **told)


def naive(X: Any, y: Any) -> Any:
    columns = list(np.asarray(X, dtype=np.float64).T)
    return two_passes(columns, np.asarray(y), np.ones(len(columns[0])), int(np.max(y)) + 1)


@pytest.mark.parametrize("kind", ["float16", "float32", "int8", "int64", "uint32", "decimal"])
def test_types__of_numbers(kind: str) -> None:
    rng = np.random.default_rng(9)
    values = np.round(rng.normal(size=(200, 3)) * 8) + (9 if kind == "int8" else 900)
    y = np.arange(200) % 2
    columns: Any = {f"x{i}": x for i, x in enumerate(values.T)}
    if kind == "decimal":
        columns = {n: pa.array([Decimal(str(v)) for v in x]) for n, x in columns.items()}
    else:
        columns = {n: x.astype(kind) for n, x in columns.items()}
    stats = fb.count(pa.table(columns), y, scatter=True)
    assert len(stats.schema.numeric) == 3
    assert_same(stats.scatter.imputed(), naive(values, y))


def test_classes_with_fewer_rows_than_features() -> None:
    X = np.random.default_rng(10).normal(size=(7, 12))
    y = np.array([0, 0, 0, 1, 1, 1, 2])
    stats = fb.count(X, y, scatter=True)
    assert_same(stats.scatter.imputed(), naive(X, y))
    assert not stats.scatter.scatter[2].any()


def test_rows_of_nothing_but_nan_and_rows_without_weight() -> None:
    X = np.random.default_rng(11).normal(size=(30, 2))
    X[:5] = np.nan
    weight = np.ones(30)
    weight[10:20] = 0
    y = np.arange(30) % 2
    found = fb.count(X, y, scatter=True, sample_weight=weight).scatter
    assert found.incomplete.sum() == 5
    assert found.count.sum() == 15
    kept = np.r_[0:10, 20:30]
    again = fb.count(X[kept], y[kept], scatter=True).scatter
    assert found.allclose(again, 1e-12)


def test_infinities_are_refused_by_name() -> None:
    X = np.ones((4, 2))
    X[2, 1] = np.inf
    with pytest.raises(DataError, match="inf"):
        fb.count(X, [0, 1, 0, 1], scatter=True)


def test_overflow__is_no_warning_and_spoils_no_other_column() -> None:
    columns = [[1e200, -1e200, 1.0], [1.0, 2.0, 4.0]]
    for stat in (scatter_of(columns), scatter_of(columns) + scatter_of(columns)):
        assert not np.isfinite(stat.scatter[0, 0, 0])
        assert np.isfinite(stat.scatter[0, 1, 1])


def test_memory__a_missing_value_met_early_is_not_forgotten(tmp_path: Path) -> None:
    # With two classes there is room for it; with the third, long after, there is not.
    X = np.random.default_rng(12).normal(size=(4000, 40))
    X[5, 5] = np.nan
    rows = pa.table({**{f"x{i}": x for i, x in enumerate(X.T)}, "y": np.arange(4000) // 1900})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=500)
    two = 8 * 2 * 40 * 40 * 2 * 20
    with pytest.raises(MemoryLimitError, match=f"two by two need {two * 3 // 2:,} bytes"):
        fb.count(
            str(tmp_path / "rows.parquet"), "y", scatter=True, threads=1, memory_limit=two * 5 // 4
        )
