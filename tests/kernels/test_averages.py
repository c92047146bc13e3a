from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import averages as naive
from scoring import CLASSES, answers, assert_follow, grouped

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans import average_plan, lift_tables
from fastbayes.kernels.compiled.scoring import averages as compiled
from fastbayes.kernels.compiled.scoring import factors as compiled_factors
from fastbayes.kernels.numpy.scoring import averages as numpy_twin
from fastbayes.kernels.numpy.scoring import factors as numpy_factors
from fastbayes.kernels.numpy.scoring import log_joint as numpy_bayes

KERNELS = pytest.param(compiled, id="kernels", marks=pytest.mark.compiled)
MODULES = [KERNELS, pytest.param(numpy_twin, id="numpy")]


def problem(
    seed, n_classes, sizes, n_rows, impossible=0.0, barred=0.1, gone=0.1, smooth=False, alike=1.0
):
    """Return an AODE model and rows for it.

    barred    share of values that may not be super-parents
    gone      share of cells that are missing or unseen
    smooth    whether unseen values have a mass of their own
    alike     1 for any probabilities; towards 0, the nearer to independent features
    """
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *(size + 2 for size in sizes)])
    n_slots = int(offsets[-1])
    known = np.zeros(n_slots, np.bool_)
    for begin, size in zip(offsets[:-1], sizes, strict=True):
        known[begin : begin + size] = True
    said = known.copy()
    if smooth:
        said[offsets[1:] - 1] = True

    def chances(*above):
        chance = rng.uniform(1e-6, 1, (*above, n_slots, n_classes)) ** alike
        chance[rng.random(chance.shape) < impossible] = 0.0
        for begin, size in zip(offsets[:-1], sizes, strict=True):
            chance[..., begin : begin + size + 2, :] /= max(size, 1) / 2
        return np.where(said[:, None], chance, 1.0)

    with np.errstate(divide="ignore"):
        tables = np.log(chances())
    own = np.where(known[:, None], rng.uniform(0, 1, (n_slots, n_classes)), 0.0)
    own[rng.random(own.shape) < impossible] = 0.0
    weight = np.where(known & (rng.random(n_slots) >= barred), 1.0, 0.0)
    if rng.random() < 0.3:
        weight *= rng.uniform(0.1, 3, n_slots)
    children = [chances(size + 2) for size in sizes]
    for p, (begin, end) in enumerate(itertools.pairwise(offsets)):
        children[p][:, begin:end] = np.nan  # not to be read
    columns = [
        np.where(
            (rng.random(n_rows) < gone) | (size == 0),
            size + rng.integers(0, 2, n_rows),
            rng.integers(0, max(size, 1), n_rows),
        )
        for size in sizes
    ]
    log_prior = np.log(rng.dirichlet(np.ones(n_classes)))
    return SimpleNamespace(
        model=(log_prior, tables, offsets, own, weight, children.__getitem__),
        children=children,
        batch=grouped(rng, columns, sizes),
        columns=columns,
        shape=(n_rows, n_classes),
    )


@st.composite
def problems(draw):
    return problem(
        draw(st.integers(0, 2**32)),
        draw(CLASSES),
        draw(st.lists(st.integers(0, 5) | st.sampled_from([1, 2, 2, 13, 300]), max_size=9)),
        draw(st.sampled_from([0, 1, 3, 4, 5, 33])),
        draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])),
        draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0])),
        draw(st.booleans()),
        draw(st.sampled_from([0.1, 1.0, 8.0])),
    )


@pytest.mark.parametrize("module", MODULES)
@given(case=problems())
def test_scores_equal_the_naive_ones(module, case):
    joint, *rest = answers(module.AverageScorer(*case.model), case)
    *first, _ = case.model
    expected = naive.averages(*first, case.children, case.columns, case.shape[0])
    np.testing.assert_allclose(joint, np.reshape(expected, case.shape), rtol=1e-12, atol=1e-11)
    assert_follow(case, joint, *rest)


def assert_same(case, one, other, error=1e-12):
    """Two sets of answers agree, log joints to a relative and posteriors to an absolute error."""
    np.testing.assert_allclose(one[0], other[0], rtol=error, atol=error)
    np.testing.assert_allclose(one[1], other[1], rtol=0, atol=100 * error)
    np.testing.assert_allclose(one[1].sum(axis=1), 1, rtol=0, atol=1e-12)
    assert one[3:] == other[3:]
    assert_follow(case, *one, error=max(error, 1e-12))


def both(case, precision="exact"):
    """Return the answers of the kernels and those of numpy."""
    model = case.model
    fast = answers(compiled.AverageScorer(*model, precision), case)
    return fast, answers(numpy_twin.AverageScorer(*model), case)


SIZES = [2, 4, 12, 4] * 4 + [300, 3]


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [1, 2, 3, 7, 12, 33])
@pytest.mark.parametrize("gone", [0.0, 0.05])
def test_many_rows__kernels_equal_the_twin(n_classes, gone):
    # Blocks of rows, tiles of classes and groups of columns all end somewhere in the middle.
    rows = {1: 16_387, 2: 65_536 + 3, 3: 16_385, 7: 8_193, 12: 4_163, 33: 4_161}[n_classes]
    sizes = SIZES if n_classes < 30 else SIZES[:12]
    case = problem(1, n_classes, sizes, rows, gone=gone, alike=0.3)
    assert_same(case, *both(case))


@pytest.mark.compiled
@given(case=problems())
def test_fast__error_is_bounded(case):
    exact, coarse = (
        answers(compiled.AverageScorer(*case.model, precision), case)
        for precision in ("exact", "fast")
    )
    assert (np.isneginf(coarse[0]) == np.isneginf(exact[0])).all()
    finite = np.isfinite(exact[0])
    # Every table is rounded once, every product of tables too.
    bound = 2.0**-23 * len(case.columns) + 1e-12
    assert (np.abs(coarse[0][finite] - exact[0][finite]) <= bound).all()
    assert_follow(case, *coarse, error=bound + 1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("impossible", [0.0, 0.001])
def test_very_many_features__products_beyond_the_range_of_floats(precision, n_classes, impossible):
    case = problem(2, n_classes, [3] * 300, 37, impossible, barred=0.3, gone=0.01, alike=4.0)
    scorer = compiled.AverageScorer(*case.model, precision)
    result = answers(scorer, case)
    assert all(tile.scaled for tile in lifts(scorer)[0]._tiles)
    exact = answers(numpy_twin.AverageScorer(*case.model), case)
    assert (exact[0][np.isfinite(exact[0])] < -800).all()
    assert (np.isneginf(result[0]) == np.isneginf(exact[0])).all()
    error = 1e-12 if precision == "exact" else 2.0**-23
    np.testing.assert_allclose(result[0], exact[0], rtol=error)
    np.testing.assert_allclose(result[1], exact[1], rtol=0, atol=300 * error)
    assert result[3:] == exact[3:]


def lifts(scorer):
    """Return the tables that a compiled scorer has made."""
    return list(scorer._joint._model._made.values())


@pytest.mark.compiled
@pytest.mark.parametrize(("power", "slow"), [(-120, False), (-250, False), (-300, True)])
def test_chances_next_to_nothing__never_nan(power, slow):
    # Two of these lifts fit a float, or one, or none.
    case = problem(3, 2, [2, 3, 2, 4, 2], 50)
    own = case.model[3]
    rng = np.random.default_rng(0)
    for child in case.children:
        child[rng.random(child.shape) < 0.3] = 10.0**power
    own[rng.random(own.shape) < 0.3] *= 1e-20
    assert_same(case, *both(case))
    scorer = compiled.AverageScorer(*case.model)
    scorer.predict(case.batch, [], np.empty(50, np.intp))
    assert [made is None for made in lifts(scorer)] == [slow]


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 12])
def test_tables_beyond_what_is_kept__made_anew_for_every_block(n_classes, monkeypatch):
    case = problem(4, n_classes, [2, 3, 4] * 3, 20_000)
    kept = answers(compiled.AverageScorer(*case.model), case)
    monkeypatch.setattr(lift_tables, "KEPT", 0)
    scorer = compiled.AverageScorer(*case.model)
    result = answers(scorer, case)
    assert not any(made.tables for made in lifts(scorer))
    # The bits too: a parent's tables are the same, and parents are added in the same order.
    for one, other in zip(result[:3], kept[:3], strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.compiled
def test_tables_of_all_levels_share_what_is_kept(monkeypatch):
    sizes = [2, 3, 4] * 3
    clean, gappy = (problem(4, 2, sizes, 500, gone=gone) for gone in (0.0, 0.3))
    scorer = compiled.AverageScorer(*clean.model)
    expected = [answers(scorer, case)[1].tobytes() for case in (clean, gappy)]
    first, second = ([table.nbytes for table in made.tables] for made in lifts(scorer))
    monkeypatch.setattr(lift_tables, "KEPT", sum(first) + sum(second) - 1)
    scorer = compiled.AverageScorer(*clean.model)
    assert [answers(scorer, case)[1].tobytes() for case in (clean, gappy)] == expected
    assert [len(made.tables) for made in lifts(scorer)] == [1, 0]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 9])
@pytest.mark.parametrize("kept", [2**28, 0])
def test_features_of_very_many_values__no_table_of_their_own_square(
    module, n_classes, kept, monkeypatch
):
    monkeypatch.setattr(lift_tables, "KEPT", kept)
    case = problem(12, n_classes, [300, 3, 2, 700, 4], 900)
    scorer = module.AverageScorer(*case.model)
    result = answers(scorer, case)
    assert_same(case, result, answers(numpy_twin.AverageScorer(*case.model), case))
    if module is compiled:
        (made,) = lifts(scorer)
        few = 5 * 4 * 6  # joint codes of the others, at most
        cells = 302 * (702 + few) + 702 * (302 + few) + (5 + 4 + 6) * (302 + 702 + few)
        for tile in made._tiles:
            assert tile.ends[-1] < cells * tile.width
    if not kept or module is numpy_twin:
        return
    # Weights that a float can hold, and hardly.
    for least in (1e-30, 1e-200, 1e-300):
        case.model[4][::2] *= least
        assert_same(case, *both(case))
        case.model[4][::2] /= least


@pytest.mark.compiled
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("alike", [1.0, 5.0])
def test_rows_of_tables_longer_than_codes_reach(precision, alike, monkeypatch):
    # Several runs, of products within range and not; and columns that no 16-bit code can index.
    case = problem(5, 3, [2, 3, 4, 40] * 3, 700, alike=alike)
    exact = answers(numpy_twin.AverageScorer(*case.model), case)
    error = 1e-12 if precision == "exact" else 1e-5
    monkeypatch.setattr(average_plan, "MOST_CELLS", (1, 8))
    for span in (200, 100, 50):
        monkeypatch.setattr(average_plan, "SPAN", span)
        scorer = compiled.AverageScorer(*case.model, precision)
        result = answers(scorer, case)
        np.testing.assert_allclose(result[0], exact[0], rtol=error)
        np.testing.assert_allclose(result[1], exact[1], rtol=0, atol=100 * error)
        (made,) = lifts(scorer)
        widths = [tile.width for tile in made._tiles] if made else []
        assert widths == {200: [4], 100: [2, 2], 50: []}[span]
        assert all(len(tile._row.at) > 1 for tile in (made._tiles if made else []))


@pytest.mark.compiled
@pytest.mark.parametrize("n_classes", [2, 5])
def test_clean_batches_have_tables_of_their_own(n_classes):
    case = problem(6, n_classes, [2, 3, 4, 1], 300, gone=0.0)
    scorer = compiled.AverageScorer(*case.model)
    slow = numpy_twin.AverageScorer(*case.model)
    sizes = [2, 3, 4, 1]
    for level in range(3):
        # All values, then something missing, then something unseen.
        if level:
            for column, size in zip(case.columns, sizes, strict=True):
                column[::7] = size + level - 1
            case.batch = grouped(np.random.default_rng(0), case.columns, sizes)
        assert_same(case, answers(scorer, case), answers(slow, case))
        extents = [tables.extents.tolist() for tables in lifts(scorer)]
        assert extents == [[size + k for size in sizes] for k in range(level + 1)]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 9])
def test_no_parent_qualifies__naive_bayes(module, n_classes):
    case = problem(7, n_classes, [2, 3, 4], 200, barred=0.7, gone=0.3)
    log_prior, tables, offsets, own, weight, children = case.model
    bayes = np.empty(case.shape)
    numpy_bayes.NaiveScorer(log_prior, tables, offsets).log_joint(case.batch, [], bayes)
    slots = np.array(case.columns) + offsets[:-1, None]
    without = weight[slots].sum(axis=0) == 0
    assert 0 < without.sum() < 200
    joint, *_ = answers(module.AverageScorer(*case.model), case)
    np.testing.assert_allclose(joint[without], bayes[without], rtol=1e-13)
    assert (np.abs(joint - bayes)[~without] > 1e-9).any()
    weight = np.zeros_like(weight)
    scorer = module.AverageScorer(log_prior, tables, offsets, own, weight, children)
    result = answers(scorer, case)
    np.testing.assert_allclose(result[0], bayes, rtol=1e-13)
    assert_follow(case, *result)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_no_class_is_possible__the_prior_answers(module, n_classes):
    case = problem(8, n_classes, [2, 2, 2], 400, impossible=0.4, barred=0.0, gone=0.0)
    result = answers(module.AverageScorer(*case.model), case)
    gone = np.isneginf(result[0]).all(axis=1)
    assert 0 < gone.sum() == result[3] == result[4] < 400
    prior = np.exp(case.model[0])
    np.testing.assert_allclose(result[1][gone], np.tile(prior, (gone.sum(), 1)), rtol=1e-13)
    assert (result[2][gone] == np.argmax(prior)).all()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_ties_on_paper__lowest_class_whatever_the_order_of_columns(module, precision, n_classes):
    rng = np.random.default_rng(9)
    d, size = 3 * n_classes, 5
    one = rng.dirichlet(np.ones(size), (d, size, d)) * 0.9
    own = rng.dirichlet(np.ones(size), d)

    # Class c has the tables of the others, moved by c columns; every column has the same code.
    def moved(table, *axes):
        return np.stack([np.roll(table, [c] * len(axes), axes) for c in range(n_classes)], axis=-1)

    def padded(table, axis):
        shape = [(0, 0)] * table.ndim
        shape[axis] = (0, 2)
        return np.pad(table, shape, constant_values=1.0)

    likelihood = padded(padded(moved(one, 0, 2), 1), 3)
    offsets = np.arange(d + 1) * (size + 2)
    start = padded(moved(own, 0), 1)
    weight = np.tile([1.0] * size + [0.0] * 2, d)
    scorer = module.AverageScorer(
        *(np.zeros(n_classes), np.log(start.reshape(-1, n_classes)), offsets),
        *(start.reshape(-1, n_classes), weight),
        *(lambda p: likelihood[p].reshape(size + 2, -1, n_classes), precision),
    )
    codes = np.repeat(rng.integers(0, size, (1, 500)), d, axis=0).astype(np.uint8)
    group = Codes(np.arange(d), codes, np.full(d, size + 2))
    out, classes = np.empty((500, n_classes)), np.empty(500, np.intp)
    scorer.predict([group], [], classes)
    assert (classes == 0).all()
    scorer.posterior([group], [], out)
    assert (out == out[0, 0]).all()
    assert abs(out[0, 0] * n_classes - 1) < 1e-15


@pytest.mark.parametrize("module", MODULES)
@given(case=problems(), seed=st.integers(0, 100))
def test_average_of_trees__log_of_the_weighted_mean_of_their_joints(module, case, seed):
    log_prior, tables, offsets, _, weight, children = case.model
    # A super-parent's star, in probabilities: P(c, x_p) = P(c) P(x_p | c), of one naive Bayes.
    own = np.exp(log_prior + tables)
    joint = np.empty(case.shape)
    scorer = module.AverageScorer(log_prior, tables, offsets, own, weight, children)
    scorer.log_joint(case.batch, [], joint)
    sizes = np.diff(offsets) - 2
    rows = [slice(begin, end) for begin, end in itertools.pairwise(offsets)]
    hidden = [np.zeros(size + 2, np.bool_) for size in sizes]
    total, below = np.zeros(case.shape), np.zeros(case.shape[0])
    for p in range(len(sizes)):
        likelihood = np.array(children(p))
        likelihood[:, rows[p]] = 1.0
        with np.errstate(divide="ignore"):
            star = [np.log(likelihood[:, row]) for row in rows]
        star[p] = tables[rows[p]][None]
        parents = np.where(np.arange(len(sizes)) == p, -1, p)
        tree = factors_of(module).TreeScorer(log_prior, parents, star, hidden)
        one = np.empty(case.shape)
        tree.log_joint(case.batch, [], one)
        u = weight[offsets[p] + case.columns[p]]
        total += u[:, None] * np.exp(one)
        below += u
    some = (below > 0)[:, None] & (total > 1e-290)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(total / below[:, None])
    np.testing.assert_allclose(joint[some], expected[some], rtol=1e-11, atol=1e-11)


def factors_of(module):
    return numpy_factors if module is numpy_twin else compiled_factors


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 20])
def test_nothing_to_score(module, n_classes):
    prior = np.random.default_rng(0).dirichlet(np.ones(n_classes))
    nothing = np.empty((0, n_classes))
    scorer = module.AverageScorer(
        np.log(prior), nothing, np.array([0]), nothing, np.empty(0), lambda p: nothing[None]
    )
    for n_rows in (0, 1, 6):
        empty = Codes(np.empty(0, np.int64), np.empty((0, n_rows), np.uint8), np.empty(0, np.int64))
        for batch in ([], [empty]):
            out = np.empty((n_rows, n_classes))
            assert scorer.posterior(batch, [], out) == 0
            np.testing.assert_allclose(out, np.tile(prior, (n_rows, 1)), rtol=1e-14)
            scorer.log_joint(batch, [], out)
            np.testing.assert_allclose(out, np.tile(np.log(prior), (n_rows, 1)))


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_left_alone_and_may_change_afterwards(module):
    case = problem(10, 3, [2, 3, 4], 20)
    *arrays, _ = case.model
    scorer = module.AverageScorer(*case.model)
    batch = [column for group in case.batch for column in group]
    for array in (*batch, *case.children):
        array.flags.writeable = False
    first = np.empty(case.shape)
    scorer.log_joint(case.batch, [], first)
    for array in arrays:
        array[:] = 0
    again = np.empty(case.shape)
    scorer.log_joint(case.batch, [], again)
    assert first.tobytes() == again.tobytes()
    assert np.isfinite(first).all()


@pytest.mark.compiled
@pytest.mark.parametrize("kept", [2**28, 0])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_threads_may_share_a_scorer(n_classes, kept, monkeypatch):
    monkeypatch.setattr(lift_tables, "KEPT", kept)
    case = problem(11, n_classes, [2, 4, 3] * 3 + [9], 3000)
    expected = answers(compiled.AverageScorer(*case.model), case)[1]
    scorer = compiled.AverageScorer(*case.model)

    def score(_):
        out = np.empty(case.shape)
        scorer.posterior(case.batch, [], out)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(score, range(16))) == {expected.tobytes()}
