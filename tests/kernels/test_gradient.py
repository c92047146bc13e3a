"""Passes of logistic regression: what each adds up, by finite differences and row by row."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gradient as naive

from fastbayes.core.batch import Batch, Codes, taken
from fastbayes.core.layout import Layout
from fastbayes.kernels.compiled.fitting import gradient as compiled
from fastbayes.kernels.numpy.fitting import gradient as numpy_twin

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(numpy_twin, id="numpy"),
]


@pytest.fixture(params=[1, 16], autouse=True, scope="module")
def _rows_of_cell(request):
    """Join columns of few rows as well as hardly any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "ROWS_OF_CELL", request.param)
        yield


WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def problem(
    seed,
    n_rows,
    n_classes,
    sizes,
    *,
    p=0,
    pairs=(),
    weighted=False,
    absent=0.0,
    widths=(1,),
    scale=1.0,
):
    """Return rows, coefficients of them and a direction; `widths` are of the codes, in turn."""
    rng = np.random.default_rng(seed)
    center, spread = rng.normal(size=p) * 100, rng.uniform(0.1, 50, p)
    layout = Layout.of(sizes, n_classes, center=center, scale=spread, pairs=pairs)
    columns = {}
    missing = np.zeros(len(sizes), np.bool_)
    for j, size in enumerate(sizes):
        codes = rng.integers(0, size, n_rows) if size else np.full(n_rows, size)
        gone = rng.random(n_rows) < absent if size else np.ones(n_rows, np.bool_)
        codes[gone] = size + rng.integers(0, 2, n_rows)[gone]
        missing[j] = (codes == size).any()
        width = max(widths[j % len(widths)], 1 if size < 254 else 2 if size < 65_534 else 4)
        columns.setdefault(width, []).append((j, codes.astype(WIDTHS[width])))
    groups = []
    for width, members in columns.items():
        features = np.array([j for j, _ in members], np.int64)
        codes = np.array([c for _, c in members], WIDTHS[width])
        groups.append(Codes(features, codes, layout.sizes[features] + 2))
    numeric = [rng.normal(size=n_rows) * spread[j] + center[j] for j in range(p)]
    for x in numeric:
        x[rng.random(n_rows) < absent] = np.nan
    kind = np.uint8 if n_classes < 256 else np.uint16
    batch = Batch(
        n_rows,
        rng.integers(0, n_classes, n_rows).astype(kind),
        n_classes,
        tuple(groups),
        missing,
        tuple(numeric),
        None,
        0.0,
    )
    shape = layout.n_rows, layout.n_outputs
    weight = rng.uniform(0, 3, n_rows) * (rng.random(n_rows) < 0.8) if weighted else None
    return SimpleNamespace(
        layout=layout,
        batch=batch,
        weight=weight,
        theta=rng.normal(size=shape) * scale,
        direction=rng.normal(size=shape),
    )


@st.composite
def problems(draw):
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 7, 40]), max_size=7))
    d = len(sizes)
    places = st.integers(0, max(d - 1, 0))
    pairs = draw(st.lists(st.tuples(places, places), max_size=3)) if d else []
    return problem(
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([0, 1, 2, 3, 17, 31])),
        draw(st.sampled_from([1, 2, 2, 3, 5])),
        sizes,
        p=draw(st.integers(0, 5)),
        pairs=pairs,
        weighted=draw(st.booleans()),
        absent=draw(st.sampled_from([0.0, 0.2, 1.0])),
        widths=draw(st.sampled_from([(1,), (2,), (4,), (1, 2, 4)])),
        scale=draw(st.sampled_from([0.0, 0.3, 3.0])),
    )


def close(found, expected, rtol=1e-12):
    expected = np.reshape(expected, np.shape(found))
    atol = rtol * max(np.abs(expected).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=30)
@given(case=problems())
def test_passes_equal_the_naive_ones(module, case):
    layout, batch, weight, theta = case.layout, case.batch, case.weight, case.theta
    gradient = module.Gradient(layout)
    packed = gradient.packed(batch, weight)
    assert packed.n_rows == batch.n_rows
    margins = gradient.margins(theta)(packed)
    assert margins.shape == (batch.n_rows, layout.n_outputs)
    close(margins, naive.margins(layout, theta, batch))
    loss, found = gradient.loss_gradient(theta)(packed)
    expected_loss, expected = naive.loss_gradient(layout, theta, batch, weight)
    assert found.shape == theta.shape
    assert found.dtype == np.float64
    assert loss == pytest.approx(expected_loss, rel=1e-12, abs=1e-13)
    close(found, expected, 1e-11)
    product = gradient.hessian_product(theta, case.direction)(packed)
    close(product, naive.hessian_product(layout, theta, case.direction, batch, weight), 1e-5)
    diagonal = gradient.curvature(theta)(packed)
    close(diagonal, naive.curvature(layout, theta, batch, weight), 1e-5)


@given(case=problems())
def test_the_whole_matrix_gives_the_products(case):
    gradient = numpy_twin.Gradient(case.layout)
    packed = gradient.packed(case.batch, case.weight)
    matrix = gradient.hessian(case.theta, keep=True).matrix(products=1e9)(packed)
    assert matrix.shape == (case.theta.size, case.theta.size)
    product = gradient.hessian_product(case.theta, case.direction)(packed)
    close(matrix @ case.direction.ravel(), product, 1e-10)


def test_the_whole_matrix__where_it_takes_less_than_products():
    few = numpy_twin.Gradient(Layout.of([3, 4], 2))
    many = numpy_twin.Gradient(Layout.of([300, 400], 2))
    for gradient, made in ((few, True), (many, False)):
        # Whether rows are kept is a matter of room, which changes no bit.
        for keep in (True, False):
            hessian = gradient.hessian(np.zeros((gradient.layout.n_rows, 1)), keep=keep)
            assert (hessian.matrix() is not None) is made
    assert hessian.matrix(products=1e4) is not None


def passes_of(module, case, theta=None):
    """Return margins, loss, gradient, Hessian product and curvature of a case."""
    theta = case.theta if theta is None else theta
    gradient = module.Gradient(case.layout)
    packed = gradient.packed(case.batch, case.weight)
    return (
        gradient.margins(theta)(packed),
        *gradient.loss_gradient(theta)(packed),
        gradient.hessian_product(theta, case.direction)(packed),
        gradient.curvature(theta)(packed),
    )


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_derivatives_are_differences(module, n_classes):
    case = problem(
        3, 200, n_classes, [3, 4, 2, 5], p=3, pairs=[(0, 1), (2, 0)], weighted=True, absent=0.1
    )
    gradient = module.Gradient(case.layout)
    packed = gradient.packed(case.batch, case.weight)

    def at(step):
        return gradient.loss_gradient(case.theta + step * case.direction)(packed)

    h = 1e-4
    (above, up), (below, down) = at(h), at(-h)
    slope = (gradient.loss_gradient(case.theta)(packed)[1] * case.direction).sum()
    assert (above - below) / (2 * h) == pytest.approx(slope, rel=1e-7)
    product = gradient.hessian_product(case.theta, case.direction)(packed)
    close((up - down) / (2 * h), product, 1e-6)
    unit = np.zeros_like(case.theta)
    unit[7, -1] = 1.0
    own = gradient.hessian_product(case.theta, unit)(packed)[7, -1]
    assert gradient.curvature(case.theta)(packed)[7, -1] == pytest.approx(own, rel=1e-6)
    # What is kept of the rows serves every direction.
    hessian = gradient.hessian(case.theta, keep=True)
    for _ in range(2):
        assert (hessian.product(case.direction)(packed) == product).all()
        assert (hessian.product(unit)(packed)[7, -1] == own).all()


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n_rows", "n_classes", "sizes", "pairs"),
    [
        (70_001, 2, [4] * 11 + [2, 300], [(0, 1), (0, 12), (3, 3)]),
        (4_099, 2, [100_000, 3, 65_600, 3], [(1, 3), (0, 1), (1, 2)]),
        (9_001, 3, [4] * 20, [(0, 19), (0, 1), (5, 5)]),
        (1_025, 4, [70_000, 3, 2, 9, 9, 9, 9], [(0, 1)]),
        (3_001, 7, [4] * 70, []),
        (2_003, 16, [9] * 5, [(0, 4)]),
        (1_001, 37, [9, 70_000, 5], [(0, 2)]),
        (300, 300, [3, 4], []),
    ],
)
def test_many_rows__kernels_equal_the_twin(n_rows, n_classes, sizes, pairs, weighted):
    # Blocks end somewhere in the middle; columns make several groups, some of very many values.
    case = problem(
        5, n_rows, n_classes, sizes, p=5, pairs=pairs, weighted=weighted, absent=0.01, scale=0.5
    )
    found, expected = passes_of(compiled, case), passes_of(numpy_twin, case)
    assert found[1] == pytest.approx(expected[1], rel=1e-13)
    for i, within in ((0, 1e-11), (2, 1e-10), (3, 1e-6), (4, 1e-10)):
        close(found[i], expected[i], within)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 20])
def test_huge_margins__nothing_overflows(module, n_classes):
    case = problem(7, 500, n_classes, [3, 4, 5], p=2, absent=0.1)
    margins, loss, slope, product, diagonal = passes_of(module, case, case.theta * 1e4)
    assert np.abs(margins).max() > 1e4
    expected, gradient = naive.loss_gradient(case.layout, case.theta * 1e4, case.batch, None)
    assert loss == pytest.approx(expected, rel=1e-12)
    close(slope, gradient, 1e-9)
    assert np.isfinite(product).all()
    assert (diagonal >= 0).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 20])
def test_small_losses_are_not_rounded_away(module, n_classes):
    # Every row is of class 1 and far on its side; ln(1 + e) of e below 2⁻⁵³ is e.
    n = 40
    layout = Layout.of([1], n_classes)
    codes = (Codes(np.array([0]), np.zeros((1, n), np.uint8), np.array([1])),)
    y = np.ones(n, np.uint8)
    batch = Batch(n, y, n_classes, codes, np.zeros(1, np.bool_), (), None, 0.0)
    theta = np.zeros((layout.n_rows, layout.n_outputs))
    theta[0, -1 if n_classes == 2 else 1] = 25.0
    theta[1, -1 if n_classes == 2 else 1] = 25.0
    gradient = module.Gradient(layout)
    loss, slope = gradient.loss_gradient(theta)(gradient.packed(batch, None))
    expected = n * np.exp(-50.0) * (n_classes - 1)
    assert loss == pytest.approx(expected, rel=1e-12, abs=0)
    own = slope[0, 0 if n_classes == 2 else 1]
    assert own == pytest.approx(-expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_rows__all_zero(module, n_classes):
    case = problem(1, 0, n_classes, [3, 70_000], p=2)
    margins, loss, *sums = passes_of(module, case)
    assert margins.shape == (0, case.layout.n_outputs)
    assert loss == 0
    for found in sums:
        assert found.shape == case.theta.shape
        assert not found.any()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weight_two_is_twice_the_row(module, n_classes):
    case = problem(2, 50, n_classes, [3, 4], p=2, absent=0.1)
    case.weight = np.arange(50.0) % 3
    weighted = passes_of(module, case)
    case.batch = taken(case.batch, np.repeat(np.arange(50), case.weight.astype(int)))
    case.weight = None
    for found, expected in zip(weighted[1:], passes_of(module, case)[1:], strict=True):
        close(found, expected, 1e-11)


@pytest.mark.parametrize("module", MODULES)
def test_rows_without_classes_have_margins(module):
    case = problem(2, 9, 3, [3], p=1)
    batch = replace(case.batch, classes=None)
    gradient = module.Gradient(case.layout)
    found = gradient.margins(case.theta)(gradient.packed(batch, None))
    close(found, naive.margins(case.layout, case.theta, batch))


@pytest.mark.parametrize("module", MODULES)
def test_packed_rows_outlive_the_batch(module):
    case = problem(4, 30, 2, [3], p=1, weighted=True)
    gradient = module.Gradient(case.layout)
    packed = gradient.packed(case.batch, case.weight)
    before = gradient.loss_gradient(case.theta)(packed)
    for array in (case.batch.codes[0].codes, case.batch.classes, case.batch.numeric[0]):
        array[:] = 0
    case.weight[:] = 0
    after = gradient.loss_gradient(case.theta)(packed)
    assert before[0] == after[0]
    assert (before[1] == after[1]).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_one_pass_on_many_threads__same_bits(module, n_classes):
    # Which values are absent differs, so each block has groups of its own.
    cases = [problem(s, 700, n_classes, [4] * 9, p=2, absent=0.001 * (s % 4)) for s in range(12)]
    gradient = module.Gradient(cases[0].layout)
    for case in cases:
        case.batch = replace(case.batch, numeric=cases[0].batch.numeric)
    packed = [gradient.packed(case.batch, None) for case in cases]
    theta, direction = cases[0].theta, cases[0].direction
    alone = [gradient.hessian_product(theta, direction)(rows) for rows in packed]
    run = gradient.hessian(theta, keep=True).product(direction)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, packed * 3))
    for one, other in zip(alone * 3, together, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("module", MODULES)
def test_same_direction_of_all_classes__product_is_nothing(module):
    # Only differences between classes matter: what is rounded must not bend the way back.
    case = problem(8, 400, 4, [3, 4, 5], p=1)
    gradient = module.Gradient(case.layout)
    even = np.repeat(case.direction[:, :1], 4, axis=1)
    packed = gradient.packed(case.batch, None)
    product = gradient.hessian_product(case.theta, even)(packed)
    assert np.abs(product).max() < 1e-11


@pytest.mark.compiled
def test_each_column_of_numbers_starts_a_cache_line():
    case = problem(1, 12, 3, [], p=3)
    numbers = compiled.Gradient(case.layout).packed(case.batch, None).numbers
    assert not any(column.ctypes.data % 64 for column in numbers)


@pytest.mark.compiled
def test_joined_codes_take_a_third_of_a_one_hot_matrix():
    case = problem(1, 1_000, 2, [4] * 24)
    packed = compiled.Gradient(case.layout).packed(case.batch, None)
    one_hot = case.batch.n_rows * 24 * (8 + 4)
    assert packed.nbytes <= one_hot / 3


@pytest.mark.compiled
@pytest.mark.parametrize("n_rows", [3, 200, 3_000, 70_000])
def test_groups_have_many_rows_for_each_cell(n_rows):
    case = problem(2, n_rows, 3, [2, 3, 4, 5, 6, 40], pairs=[(0, 1), (1, 2), (3, 5)])
    plan = compiled.Gradient(case.layout).packed(case.batch, None).plan
    cells, members = np.diff(plan.start), np.diff(plan.bounds)
    several = cells[(members > 1) & (plan.row[plan.bounds[:-1]] >= 0)]  # a pair alone has none
    assert (several <= n_rows // compiled.ROWS_OF_CELL).all()
    assert (several <= compiled.LARGEST // 64).all()
    assert len(several) or n_rows < 200


@pytest.mark.compiled
def test_many_patterns_of_absent_values__few_plans_and_tables_are_kept(monkeypatch):
    monkeypatch.setattr(compiled, "PLANS", 2)
    case = problem(6, 40, 2, [4] * 6)
    gradient = compiled.Gradient(case.layout)
    packed, expected = [], []
    for pattern in range(20):
        columns = case.batch.codes[0].codes.copy()
        columns[np.array([pattern >> j & 1 for j in range(6)], np.bool_), 0] = 4
        batch = replace(case.batch, codes=(case.batch.codes[0]._replace(codes=columns),))
        packed.append(gradient.packed(batch, None))
        expected.append(naive.margins(case.layout, case.theta, batch))
    run = gradient.margins(case.theta)
    for rows, margins in zip(packed * 2, expected * 2, strict=True):
        close(run(rows), margins)


@pytest.mark.compiled
def test_a_pass_is_freed_with_its_last_name():
    # Tables of columns of very many values are large: they are not to wait for a collection.
    case = problem(6, 40, 2, [4] * 6)
    gradient = compiled.Gradient(case.layout)
    packed = gradient.packed(case.batch, None)
    sweep = compiled._Sweep(gradient, compiled.MARGINS, case.theta)
    sweep(packed)
    freed = weakref.ref(sweep)
    del sweep
    assert freed() is None
