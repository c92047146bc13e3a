"""What every statistic obeys. A new one joins by standing in the registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations, permutations
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import alignment_of, batch_of, random_batch, random_table, reweighted, rows_of, shape_of

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Alignment, Shape
from fastbayes.data.encode import Encoder
from fastbayes.data.source import open_source
from fastbayes.scan import engine
from fastbayes.statistics import REGISTRY, ClassMoments, FamilyCounts, ValueCounts
from fastbayes.statistics.base import RetractionError
from fastbayes.statistics.class_moments import LEAST_SHARE


class Families(FamilyCounts):
    """Counts of families that the shape says: one, two, three and all features, in any order."""

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False, **options: Any) -> Any:
        options = {"families": families_of(len(shape.sizes)), **options}
        return cls(shape, weighted=weighted, **options)


def families_of(m: int) -> list[tuple[int, ...]]:
    threes = [(j, i, k) for i, j, k in combinations(range(m), 3)]
    return list(dict.fromkeys([*((j,) for j in range(m)), *permutations(range(m), 2), *threes]))


EVERY = {**REGISTRY, "families": Families}
every = pytest.mark.parametrize("kind", EVERY.values(), ids=EVERY.keys())
weights = pytest.mark.parametrize("weighted", [False, True], ids=["rows", "weights"])
# One column of two-byte codes at most: three of them together would have 27 million cells.
shapes = st.builds(
    shape_of,
    st.lists(st.sampled_from([0, 1, 2, 5]), max_size=3).flatmap(
        lambda sizes: st.permutations(sizes) | st.permutations([*sizes, 300])
    ),
    st.integers(0, 3),
    st.sampled_from([1, 2, 3, 7]),
)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=["always", "never"], scope="module", autouse=True)
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTBAYES_KERNELS", request.param)
        yield


def counted(kind: Any, shape: Shape, *batches: Batch, weighted: bool = False) -> Any:
    result = kind.zeros(shape, weighted=weighted)
    for batch in batches:
        result.update(batch)
    return result


def same(a: Any, b: Any, weighted: bool = False) -> bool:
    """Equal bit for bit where sums are exact, else to 1e-12."""
    return bool(a == b if type(a).order_free(weighted) else a.allclose(b, 1e-12))


def parts(rng: np.random.Generator, shape: Shape, weighted: bool, n: int = 3) -> list[Batch]:
    return [random_batch(rng, shape, int(rng.integers(0, 40)), weighted=weighted) for _ in range(n)]


def apart(kind: Any) -> bool:
    """Return whether what was added to a statistic can be taken away."""
    return all(spec.merge is np.add for spec in kind._specs.values())


@every
@weights
@given(shape=shapes, seed=seeds)
def test_identity_commutative_associative(
    kind: Any, weighted: bool, shape: Shape, seed: int
) -> None:
    batches = parts(np.random.default_rng(seed), shape, weighted)
    a, b, c = (counted(kind, shape, x, weighted=weighted) for x in batches)
    nothing = kind.zeros(shape, weighted=weighted)
    assert a + nothing == a
    assert nothing + a == a
    assert same(a + b, b + a, weighted)
    assert same((a + b) + c, a + (b + c), weighted)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_rows_together_are_parts_added(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = random_batch(rng, shape, 60, weighted=weighted)
    cut = int(rng.integers(0, 61))
    first, last = (rows_of(whole, shape, rows) for rows in np.split(np.arange(60), [cut]))
    together = counted(kind, shape, whole, weighted=weighted)
    apart = counted(kind, shape, first, weighted=weighted)
    apart = apart + counted(kind, shape, last, weighted=weighted)
    assert same(apart, together, weighted)
    assert same(counted(kind, shape, first, last, weighted=weighted), together, weighted)


@pytest.mark.parametrize("part", ["moments", "scatter", "cell_scatter"])
@pytest.mark.parametrize("gaps", [False, True])
def test_means_agree_relative_to_the_spread(part: str, gaps: bool) -> None:
    """The mean of 2 and -2 is another rounding of 0 in shares of other sizes."""
    x = np.array([2.0, -2.0] * 20)
    z = np.where(np.arange(40) % 7 < gaps, np.nan, x)
    table = pa.table({"a": ["u"] * 40, "x": x, "z": z, "y": ["p"] * 40})

    def of(*tables: pa.Table) -> Any:
        return reduce(add, (fb.count(t, "y", statistics=[part]) for t in tables)).parts[part]

    whole = of(table)
    for cut in range(2, 40):
        first = cut // 2
        assert of(table[:first], table[first:cut], table[cut:]).allclose(whole, 1e-12)
    moved = table.set_column(1, "x", pa.array(x + 1e-9))
    assert not of(moved).allclose(whole, 1e-12)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_row_order_does_not_matter(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, shape, 50, weighted=weighted)
    shuffled = rows_of(batch, shape, rng.permutation(50))
    a, b = (counted(kind, shape, x, weighted=weighted) for x in (batch, shuffled))
    assert same(a, b, weighted)


@every
@given(shape=shapes, seed=seeds)
def test_weight_is_how_often_a_row_stands(kind: Any, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, shape, 30)
    weight = rng.integers(0, 4, 30)
    repeated = rows_of(batch, shape, np.repeat(np.arange(30), weight))
    weighed = counted(kind, shape, reweighted(batch, shape, weight), weighted=True)
    assert weighed.allclose(counted(kind, shape, repeated), 1e-12)
    assert weighed.allclose(counted(kind, shape, reweighted(repeated, shape, None)), 1e-12)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_what_was_added_can_be_taken_away(
    kind: Any, weighted: bool, shape: Shape, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # As many rows of each class on both sides: neither side's scatter drowns the other's.
    a, b = (
        counted(kind, shape, random_batch(rng, shape, 200, weighted=weighted), weighted=weighted)
        for _ in range(2)
    )
    if not apart(kind):
        with pytest.raises(RetractionError, match="cannot be taken away"):
            a - b
        return
    left = a + b - b
    if type(a).order_free(weighted):
        assert left == a
    assert left.allclose(a, 1e-9)
    assert a.allclose(a + b - b + b - b, 1e-9)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_arrays_say_it_all(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = counted(kind, shape, random_batch(rng, shape, 30, weighted=weighted), weighted=weighted)
    arrays = {name: array.copy() for name, array in a.arrays().items()}
    assert kind.from_arrays(shape, arrays) == a
    assert a.nbytes == sum(array.nbytes for array in arrays.values())
    for name, array in arrays.items():
        wrong = {**arrays, name: np.append(array, array, axis=-1)}
        if array.size:
            with pytest.raises(ValueError, match=name):
                kind.from_arrays(shape, wrong)
        with pytest.raises(ValueError, match="does not fit"):
            kind.from_arrays(shape, {**arrays, name: array.astype(np.float32)})


@every
@weights
@given(shape=shapes, seed=seeds)
def test_operations_leave_their_operands_alone(
    kind: Any, weighted: bool, shape: Shape, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    batches = [random_batch(rng, shape, 200, weighted=weighted) for _ in range(2)]
    a, b = (counted(kind, shape, x, weighted=weighted) for x in batches)
    before = [{k: v.copy() for k, v in x.arrays().items()} for x in (a, b)]
    results = [
        a + b,
        *([a + b - b] if apart(kind) else []),
        a * 2.0,
        a.take(alignment_of(shape)),
        a + kind.zeros(shape),
    ]
    for result in results:
        for array in result.arrays().values():
            array += 1
    for x, arrays in zip((a, b), before, strict=True):
        assert all(np.array_equal(x.arrays()[k], v) for k, v in arrays.items())


@every
@weights
@given(shape=shapes, seed=seeds, factor=st.sampled_from([0.0, 0.5, 2.0, 3.0]))
def test_scaling_is_weighing(
    kind: Any, weighted: bool, shape: Shape, seed: int, factor: float
) -> None:
    batch = random_batch(np.random.default_rng(seed), shape, 40, weighted=weighted)
    a = counted(kind, shape, batch, weighted=weighted)
    own = np.ones(40) if batch.weight is None else batch.weight
    scaled = counted(kind, shape, reweighted(batch, shape, own * factor), weighted=True)
    assert (a * factor).allclose(scaled, 1e-12)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_take__there_and_back(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = counted(kind, shape, random_batch(rng, shape, 40, weighted=weighted), weighted=weighted)
    assert a.take(alignment_of(shape)) == a
    there, back = shuffled(rng, shape)
    assert a.take(there).take(back) == a
    assert a.take(there).shape.n_classes == shape.n_classes


def shuffled(rng: np.random.Generator, shape: Shape) -> tuple[Alignment, Alignment]:
    """Return an alignment that permutes everything, and its inverse."""
    orders = rng.permutation(len(shape.sizes)), rng.permutation(shape.n_numeric)
    values = [rng.permutation(shape.sizes[j]) for j in orders[0]]
    classes = rng.permutation(shape.n_classes)
    moved = Shape(shape.sizes[orders[0]], shape.n_numeric, shape.n_classes)
    there = Alignment(moved, orders[0], values, orders[1], classes)
    home = np.argsort(orders[0])
    back = [np.argsort(values[j]) for j in home]
    return there, Alignment(shape, home, back, np.argsort(orders[1]), np.argsort(classes))


@every
@weights
@given(shape=shapes, seed=seeds)
def test_take__commutes_with_adding(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (counted(kind, shape, x, weighted=weighted) for x in parts(rng, shape, weighted, 2))
    there, _ = shuffled(rng, shape)
    assert same(a.take(there) + b.take(there), (a + b).take(there), weighted)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_take__new_cells_are_empty(kind: Any, weighted: bool, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = counted(kind, shape, random_batch(rng, shape, 40, weighted=weighted), weighted=weighted)
    wider = Shape(shape.sizes + 2, shape.n_numeric, shape.n_classes + 1)
    gap = np.array([-1])
    to = Alignment(
        wider,
        np.arange(len(shape.sizes)),
        [np.concatenate([gap, np.arange(s), gap]) for s in shape.sizes],
        np.arange(shape.n_numeric),
        np.concatenate([gap, np.arange(shape.n_classes)]),
    )
    back = alignment_of(
        shape,
        values=[np.arange(s) + 1 for s in shape.sizes],
        classes=np.arange(shape.n_classes) + 1,
    )
    larger = a.take(to)
    assert larger.take(back) == a
    nothing = kind.zeros(wider, weighted=weighted)
    assert larger + nothing == larger
    # Keys are no numbers that add up, but say which cells these belong to; extremes of no rows are
    # infinite.
    numbers = [[v for k, v in x.arrays().items() if k != "keys"] for x in (a, larger)]
    totals = [sum(np.abs(v[np.isfinite(v)]).sum() for v in some) for some in numbers]
    assert totals[0] == pytest.approx(totals[1], rel=1e-12)


@every
@weights
@given(shape=shapes, seed=seeds)
def test_grown__values_and_classes_may_come_later(
    kind: Any, weighted: bool, shape: Shape, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    early = Shape(np.minimum(shape.sizes, 2), shape.n_numeric, max(1, shape.n_classes - 2))
    first = random_batch(rng, early, 40, weighted=weighted)
    second = random_batch(rng, shape, 40, weighted=weighted)
    a, b = counted(kind, early, first, weighted=weighted), kind.zeros(shape, weighted=weighted)
    b.update(second)
    grown = counted(kind, early, first, weighted=weighted).grown(shape)
    grown.update(second)
    at_once = kind.zeros(shape, weighted=weighted)
    at_once.update(rows_of(first, early, np.arange(first.n_rows), shape))
    at_once.update(second)
    assert same(grown, at_once, weighted)
    assert same(a.grown(shape) + b, at_once, weighted)
    assert a.grown(early) == a
    back = alignment_of(early, values=[np.arange(s) for s in early.sizes])
    assert a.grown(shape).take(back) == a


@pytest.mark.parametrize("weight", [None, "w"])
def test_threads_and_chunks_change_no_bit(weight: str | None) -> None:
    """Every statistic of the registry, counted by the engine."""
    table = random_table(200_000)
    chunked = pa.concat_tables(
        [table.slice(0, 70_000), table.slice(70_000, 1), table.slice(70_001)]
    )
    found = []
    for data, threads in ((table, 1), (table, 2), (table, 8), (chunked, 3)):
        encoder = Encoder.learning(data.schema, "y", weight=weight, categorical=["code"])
        wanted: Any = {name: {} for name in REGISTRY} | {"families": {"families": families_of(3)}}
        found.append(engine.scan(open_source(data), encoder, wanted, threads=threads))
    for stats in found[1:]:
        assert stats.schema == found[0].schema
        for name, part in stats.parts.items():
            first = found[0].parts[name].arrays()
            assert all(v.tobytes() == first[k].tobytes() for k, v in part.arrays().items()), name


# Moments only: what retraction may lose.


def moments_of(values: Any) -> ClassMoments:
    values, shape = np.asarray(values, dtype=np.float64), shape_of([], 1, 1)
    result = ClassMoments.zeros(shape)
    result.update(batch_of(shape, [], np.zeros(len(values)), [values], None))
    return result


@given(seed=seeds, share=st.floats(2e-6, 0.9), centre=st.sampled_from([0.0, 100.0, 1.7e9]))
def test_retraction__scatter_is_right_to_its_stated_error(
    seed: int, share: float, centre: float
) -> None:
    rng = np.random.default_rng(seed)
    kept = rng.normal(size=1000) + centre
    gone = rng.normal(size=1000) * np.sqrt(1 / share) + centre
    left = moments_of(kept) + moments_of(gone) - moments_of(gone)
    exact = moments_of(kept)
    assert left.count == exact.count
    np.testing.assert_allclose(left.scatter, exact.scatter, rtol=1e-9)
    np.testing.assert_allclose(left.mean, exact.mean, rtol=1e-9)


@pytest.mark.parametrize("centre", [0.0, 1.7e9])
def test_retraction__what_leaves_too_few_digits_is_refused(centre: float) -> None:
    narrow = moments_of(centre + np.array([-1.0, 1.0]) * 2**-10)
    wide = moments_of(centre + np.array([-1.0, 1.0]) * 2.0)
    share = float(narrow.scatter[0, 0] / (narrow + wide).scatter[0, 0])
    assert share < LEAST_SHARE
    with pytest.raises(DataError, match="too few digits"):
        narrow + wide - wide


def test_retraction__down_to_one_row_and_to_none() -> None:
    one, many = moments_of([3.25]), moments_of(np.linspace(-7, 11, 50))
    left = one + many - many
    assert left.count == 1
    assert left.scatter == 0
    np.testing.assert_allclose(left.mean, 3.25, rtol=1e-12)
    assert many - many == moments_of([])


@pytest.mark.parametrize("part", ["moments", "scatter", "cell_scatter"])
@pytest.mark.parametrize("weight", [0.01, 1.0])
@pytest.mark.parametrize("gap", [np.nan, 0.5])
def test_retraction__of_rows_that_weigh_little_is_refused_as_of_others(
    part: str, weight: float, gap: float
) -> None:
    options: Any = {"moments": part == "moments", part: True}

    def of(x: Any) -> Any:
        rows = {"x": x, "z": np.append(x[:-1] ** 2, gap), "y": ["k"] * len(x)}
        return fb.count(rows, "y", sample_weight=np.full(len(x), weight), **options)

    rng = np.random.default_rng(1)
    few, far = of(rng.normal(size=50)), of(rng.normal(size=80) + 1e5)
    with pytest.raises(DataError, match=r"column 'x', class 'k'.* too few digits"):
        few + far - far
    near, one = of(rng.normal(size=80)), of(np.array([3.25]))
    for removed in (near, one):
        left = (few + removed - removed).parts[part].arrays()["scatter"]
        np.testing.assert_allclose(left, few.parts[part].arrays()["scatter"], rtol=1e-9)
    for many in (near, far):
        left = one + many - many
        assert left.n_rows == pytest.approx(weight)
        np.testing.assert_allclose(left.parts[part].arrays()["scatter"], 0)
        assert (many - many).n_rows == 0


def test_retraction__a_constant_stays_one() -> None:
    a, b = moments_of([0.1] * 7), moments_of([0.1] * 5)
    assert a + b - b == a
    assert a.scatter == 0


def test_retraction__of_rows_never_added_is_refused() -> None:
    with pytest.raises(DataError, match="never added"):
        moments_of([1, 2]) - moments_of([1, 2, 3])


def test_moments__epoch_seconds_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    offsets = rng.integers(-(2**20), 2**20, 10_000) / 2**20
    pieces = [moments_of(1.7e9 + x) for x in np.array_split(offsets, 13)]
    total = sum(pieces[1:], start=pieces[0])
    mean = offsets.mean()
    np.testing.assert_allclose(total.scatter, ((offsets - mean) ** 2).sum(), rtol=1e-9)
    np.testing.assert_allclose((total.mean - 1.7e9) + total.rest, mean, rtol=1e-9)


def test_moments__overflow_is_no_warning() -> None:
    a, b = moments_of([1e200, -1e200]), moments_of([1e308, -1e308, 0.0])
    assert not np.isfinite((a + b).scatter)
    assert not np.isfinite((a + b - a).scatter)


# Counts only: views and margins.


def test_counts__views_and_margins() -> None:
    shape = shape_of([2, 0, 3], 0, 2)
    batch = random_batch(np.random.default_rng(1), shape, 100)
    counts = counted(ValueCounts, shape, batch)
    for j in range(3):
        np.testing.assert_array_equal(counts.of(j).sum(axis=0), counts.known[j])
    np.testing.assert_array_equal(
        counts.known + counts.missing, counts.class_counts[None].repeat(3, 0)
    )
    assert counts.known[1].sum() == 0
    assert counts.counts.dtype == np.int64
    assert counted(ValueCounts, shape, batch, weighted=True).counts.dtype == np.float64
