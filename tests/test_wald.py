"""Standard errors of logistic regressions: information, contrasts, intervals, the table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats as scipy_stats

import fastbayes as fb
from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import DataError, FastBayesWarning
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Feature, Schema
from fastbayes.models.logistic import wald
from fastbayes.models.logistic.information import information
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.wald import check_wald


def problem(seed, k, sizes=(3, 2, 4), p=2, pairs=((0, 2),), n=400, weighted=True, missing=0.1):
    """Return rows, a layout and parameters, and the design of these rows as a dense matrix."""
    rng = np.random.default_rng(seed)
    layout = Layout.of(
        sizes, k, center=rng.normal(size=p) * 3, scale=rng.uniform(0.5, 20, p), pairs=pairs
    )
    theta = rng.normal(size=(layout.n_rows, layout.n_outputs))
    codes = np.array([rng.integers(0, max(s, 1), n) for s in sizes], np.uint16)
    codes = codes.reshape(len(sizes), n)
    for column, s in zip(codes, sizes, strict=True):
        gone = rng.random(n) < missing
        column[gone] = s + rng.integers(0, 2, gone.sum())
    numbers = layout.center[:, None] + layout.scale[:, None] * rng.normal(size=(p, n))
    numbers[rng.random(numbers.shape) < missing] = np.nan
    weight = rng.uniform(0, 3, n) if weighted else None
    group = Codes(np.arange(len(sizes)), codes, np.array(sizes) + 2)
    none = np.zeros(len(sizes), np.bool_)
    batch = Batch(n, None, k, (group,), none, tuple(numbers), weight, float(n))
    y = rng.integers(0, k, n)
    z = (numbers - layout.center[:, None]) / layout.scale[:, None]
    columns = [np.ones(n)]
    columns += [codes[j] == v for j, s in enumerate(sizes) for v in range(s)]
    columns += list(np.where(np.isnan(z), 0, z))
    columns += [
        (codes[a] == v) & (codes[b] == w)
        for a, b in pairs
        for v in range(sizes[a])
        for w in range(sizes[b])
    ]
    if max(sizes, default=0) < 250:
        batch = replace(batch, codes=(group._replace(codes=codes.astype(np.uint8)),))
    design = np.stack(columns, axis=1).astype(float)
    names = [f"c{j}" for j in range(len(sizes))]
    features = [
        Feature(name, "categorical", pa.array([f"{name}{v}" for v in range(s)]))
        for name, s in zip(names, sizes, strict=True)
    ] + [Feature(f"x{j}", "numeric") for j in range(p)]
    schema = Schema("y", pa.array([f"k{c}" for c in range(k)]), tuple(features))
    return SimpleNamespace(
        layout=layout, theta=theta, batch=batch, weight=weight, design=design, y=y, schema=schema
    )


def loss(theta, case):
    margin = case.design @ theta
    if theta.shape[1] == 1:
        margin = np.column_stack([np.zeros(len(margin)), margin])
    top = margin.max(axis=1)
    log_sum = top + np.log(np.exp(margin - top[:, None]).sum(axis=1))
    rows = log_sum - margin[np.arange(len(margin)), case.y]
    return float(rows @ (np.ones(len(rows)) if case.weight is None else case.weight))


def explicit(theta, case):
    """The Hessian of the loss with Kronecker's products, row by row, (m, m, P, P)."""
    m = theta.shape[1]
    margin = case.design @ theta
    if m == 1:
        margin = np.column_stack([np.zeros(len(margin)), margin])
    share = np.exp(margin - margin.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    share = share[:, 1:] if m == 1 else share
    weight = np.ones(len(share)) if case.weight is None else case.weight
    found = np.zeros((m, m, *[case.design.shape[1]] * 2))
    for row, p, w in zip(case.design, share, weight, strict=True):
        found += np.multiply.outer(w * (np.diag(p) - np.outer(p, p)), np.outer(row, row))
    return found


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernels", [pytest.param("always", marks=pytest.mark.compiled), "never"])
def test_information__of_an_explicit_design(k, weighted, kernels, monkeypatch):
    case = problem(1, k, weighted=weighted)
    told = Coefficients.from_theta(case.theta, case.layout)
    found = information(told, case.layout, case.batch, case.weight)
    np.testing.assert_allclose(found, explicit(case.theta, case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernels", [pytest.param("always", marks=pytest.mark.compiled), "never"])
@pytest.mark.parametrize(("sizes", "p"), [((3,), 0), ((3,), 1), ((), 2), ((2, 300), 1)])
def test_information__of_few_columns(sizes, p, kernels, monkeypatch):
    case = problem(1, 2, sizes=sizes, p=p, pairs=(), n=100)
    told = Coefficients.from_theta(case.theta, case.layout)
    found = information(told, case.layout, case.batch, case.weight)
    np.testing.assert_allclose(found, explicit(case.theta, case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [2, 3])
def test_information__second_differences_of_the_loss(k):
    case = problem(2, k, sizes=(2, 3), p=1, pairs=((1, 0),), n=60)
    told = Coefficients.from_theta(case.theta, case.layout)
    found = information(told, case.layout, case.batch, case.weight)
    h, m = 1e-4, case.layout.n_outputs
    for a, b, i, j in np.ndindex(found.shape):
        if (i, a) > (j, b) or (i * m + a + j * m + b) % 3:
            continue
        total = 0.0
        for one, other in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            moved = case.theta.copy()
            moved[i, a] += one * h
            moved[j, b] += other * h
            total += one * other * loss(moved, case)
        np.testing.assert_allclose(found[a, b, i, j], total / (4 * h * h), rtol=1e-4, atol=1e-4)


def test_information__sum_over_batches():
    case = problem(3, 3)
    told = Coefficients.from_theta(case.theta, case.layout)
    (group,) = case.batch.codes
    total = 0.0
    for some in (slice(0, 150), slice(150, 400)):
        codes = group._replace(codes=np.ascontiguousarray(group.codes[:, some]))
        numbers = tuple(x[some] for x in case.batch.numeric)
        rows = len(case.y[some])
        part = Batch(rows, None, 3, (codes,), case.batch.missing, numbers, None, 1.0)
        total = total + information(told, case.layout, part, case.weight[some])
    whole = information(told, case.layout, case.batch, case.weight)
    np.testing.assert_allclose(total, whole, rtol=1e-12, atol=1e-12)


def curvature(layout, strength):
    """Second derivatives of strength/2 |w|², w in the units of the columns."""
    found = np.full(layout.n_rows, strength)
    found[0] = 0.0
    found[layout.rows.numeric : layout.rows.numeric + layout.n_numeric] /= layout.scale**2
    return found


def table_of(case, hessian, references, level=0.95):
    told = Coefficients.from_theta(case.theta, case.layout)
    known = None if references is None else np.array(references)
    return wald.wald_table(told, case.layout, hessian, known, case.schema, level)


def treated(case, references):
    """A design of treatment coding, in the order of the table, in the units of the columns."""
    layout, columns, names = case.layout, [np.ones(len(case.design))], [("(intercept)", None)]
    at = {j: int(start) for j, start in enumerate(layout.rows.values)}
    for j, (feature, size) in enumerate(zip(case.schema.categorical, layout.sizes, strict=True)):
        for v in range(size):
            if v != references[j]:
                columns.append(case.design[:, at[j] + v])
                names.append((feature.name, feature.values[v].as_py()))
    for j in range(layout.n_numeric):
        z = case.design[:, layout.rows.numeric + j]
        columns.append(z * layout.scale[j] + layout.center[j])
        names.append((f"x{j}", None))
    for (a, b), start in zip(layout.pairs, layout.rows.pairs, strict=True):
        for v, w in np.ndindex(layout.sizes[a], layout.sizes[b]):
            if v != references[a] and w != references[b]:
                columns.append(case.design[:, start + v * layout.sizes[b] + w])
                names.append((f"c{a}:c{b}", f"c{a}{v}:c{b}{w}"))
    return np.stack(columns, axis=1), names


@pytest.mark.parametrize("k", [2, 3])
def test_without_penalty__contrasts_are_those_of_treatment_coding(k):
    # With every value known, the indicators of a column sum to the intercept: only the
    # differences of values mean something, as the coefficients of a design without references.
    case = problem(4, k, missing=0.0)
    references = [1, 0, 3]
    table = table_of(case, explicit(case.theta, case), references, level=0.9)
    design, names = treated(case, references)
    margin = case.design @ case.theta
    margin = np.column_stack([np.zeros(len(margin)), margin]) if k == 2 else margin
    share = np.exp(margin - margin.max(axis=1, keepdims=True))
    share = (share / share.sum(axis=1, keepdims=True))[:, 1:]
    q = design.shape[1]
    hessian = np.zeros(((k - 1) * q, (k - 1) * q))
    for row, p, w in zip(design, share, case.weight, strict=True):
        hessian += np.kron(w * (np.diag(p) - np.outer(p, p)), np.outer(row, row))
    error = np.sqrt(np.diag(np.linalg.inv(hessian)))
    # The same margins: what is compared with the first class solves the reduced design.
    beta = np.linalg.lstsq(design, margin[:, 1:] - margin[:, :1], rcond=None)[0].T.ravel()
    value = table["coefficient"].to_numpy()
    np.testing.assert_allclose(value, beta, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(table["standard_error"].to_numpy(), error, rtol=1e-7)
    z = beta / error
    np.testing.assert_allclose(table["z"].to_numpy(), z, rtol=1e-6, atol=1e-7)
    expected = 2 * scipy_stats.norm.sf(np.abs(z))
    np.testing.assert_allclose(table["p_value"].to_numpy(), expected, rtol=1e-4, atol=1e-12)
    reach = scipy_stats.norm.ppf(0.95) * error
    np.testing.assert_allclose(table["lower"].to_numpy(), beta - reach, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(table["upper"].to_numpy(), beta + reach, rtol=1e-6, atol=1e-6)
    ratio = table["odds_ratio_upper"].to_numpy()
    np.testing.assert_allclose(ratio, np.exp(beta + reach), rtol=1e-5)
    assert list(zip(*(table[n].to_pylist() for n in ("feature", "value")), strict=True)) == (
        names * (k - 1)
    )
    assert set(table["reference_class"].to_pylist()) == {"k0"}
    assert table["class"].to_pylist() == [f"k{c}" for c in range(1, k) for _ in names]
    by_name = dict(zip(table["feature"].to_pylist(), table["reference"].to_pylist(), strict=True))
    told = {"(intercept)": None, "c0": "c01", "c1": "c10", "c2": "c23", "x0": None, "x1": None}
    assert by_name == told | {"c0:c2": "c01:c23"}


def test_with_l2__inverse_of_the_penalised_hessian_in_the_units_of_the_columns():
    case = problem(5, 2, n=200)
    strength = 0.7
    hessian = explicit(case.theta, case)
    hessian[0, 0] += np.diag(curvature(case.layout, strength))
    table = table_of(case, hessian, None)
    # The same in the units of the columns: x = center + scale z.
    layout = case.layout
    units = np.ones(layout.n_rows)
    numeric = slice(layout.rows.numeric, layout.rows.numeric + layout.n_numeric)
    design = case.design.copy()
    design[:, numeric] = design[:, numeric] * layout.scale + layout.center
    p = 1 / (1 + np.exp(-(case.design @ case.theta)[:, 0]))
    own = (design * (case.weight * p * (1 - p))[:, None]).T @ design
    own += strength * np.diag(np.r_[0.0, units[1:]])
    error = np.sqrt(np.diag(np.linalg.inv(own)))
    np.testing.assert_allclose(table["standard_error"].to_numpy(), error, rtol=1e-8)
    told = Coefficients.from_theta(case.theta, case.layout)
    expected = np.r_[told.intercept, told.coef[0]]
    np.testing.assert_allclose(table["coefficient"].to_numpy(), expected, rtol=1e-12, atol=1e-12)
    assert table["reference"].null_count == table.num_rows


def test_three_classes_with_l2__about_their_mean():
    case = problem(6, 3, sizes=(2, 3), pairs=(), n=200)
    case.theta -= case.theta.mean(axis=1, keepdims=True)
    hessian = explicit(case.theta, case)
    for c in range(3):
        hessian[c, c] += np.diag(curvature(case.layout, 1.0))
    table = table_of(case, hessian, None)
    size = case.layout.n_rows
    whole = hessian.transpose(0, 2, 1, 3).reshape(3 * size, 3 * size)
    # The classes' intercepts may move together: the inverse is of what they do apart.
    about = np.kron(np.eye(3) - 1 / 3, np.eye(size))
    covariance = about @ np.linalg.pinv(whole, rcond=1e-12, hermitian=True) @ about
    error = np.sqrt(np.diag(covariance)).reshape(3, size)
    mine = table["standard_error"].to_numpy().reshape(3, size)
    numeric = case.layout.rows.numeric
    np.testing.assert_allclose(mine[:, 1:numeric], error[:, 1:numeric], rtol=1e-8)
    scaled = error[:, numeric:] / case.layout.scale
    np.testing.assert_allclose(mine[:, numeric:], scaled, rtol=1e-8)
    told = Coefficients.from_theta(case.theta, case.layout)
    expected = np.concatenate([told.intercept[:, None], told.coef], axis=1).ravel()
    np.testing.assert_allclose(table["coefficient"].to_numpy(), expected, rtol=1e-10, atol=1e-10)
    assert table["reference_class"].null_count == table.num_rows


def test_columns_that_follow_from_others__no_error_and_a_warning():
    case = problem(7, 2, sizes=(2,), pairs=(), p=2, missing=0.0)
    case.design[:, -1] = case.design[:, -2]
    with pytest.warns(FastBayesWarning, match="'x1'"):
        table = table_of(case, explicit(case.theta, case), [0])
    rows = dict(zip(table["feature"].to_pylist(), table["standard_error"].to_pylist(), strict=True))
    assert rows["x0"] is None
    assert rows["x1"] is None
    assert rows["c0"] > 0
    assert table["lower"].null_count == table["p_value"].null_count == 3  # the intercept, too


def test_coefficients_alone__without_a_hessian():
    case = problem(8, 3, missing=0.0)
    table = table_of(case, None, None)
    assert "standard_error" not in table.column_names
    told = Coefficients.from_theta(case.theta, case.layout)
    expected = np.concatenate([told.intercept[:, None], told.coef], axis=1).ravel()
    np.testing.assert_allclose(table["coefficient"].to_numpy(), expected)
    np.testing.assert_allclose(table["odds_ratio"].to_numpy(), np.exp(expected))


def test_a_feature_without_values__and_one_of_a_single_value():
    case = problem(9, 2, sizes=(2, 0, 1), pairs=((0, 1), (0, 2)), missing=0.0)
    table = table_of(case, explicit(case.theta, case), [0, -1, 0])
    assert table["feature"].to_pylist() == ["(intercept)", "c0", "x0", "x1"]
    # The pair of c0 and the only value of c2 is c0 again: both together are one difference.
    value = table["coefficient"].to_numpy()[1]
    theta, rows = case.theta[:, 0], case.layout.rows
    expected = theta[2] - theta[1] + theta[rows.pairs[1] + 1] - theta[rows.pairs[1]]
    np.testing.assert_allclose(value, expected)
    assert table["standard_error"].null_count == 0


def test_a_missing_value_that_is_a_value():
    case = problem(10, 2, sizes=(3,), pairs=(), p=1, missing=0.0)
    (feature,) = case.schema.categorical
    features = (replace(feature, values=feature.values[:2]), *case.schema.features[1:])
    case.schema = replace(case.schema, features=features)
    table = table_of(case, explicit(case.theta, case), [0])
    assert table["value"].to_pylist() == [None, "c01", "(missing)", None]


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, "high", True])
def test_level_is_checked(level):
    case = problem(8, 2)
    with pytest.raises(ValueError, match="level="):
        table_of(case, None, None, level)


def test_too_many_coefficients():
    with pytest.raises(DataError, match="2,001"):
        check_wald(Layout.of([2_000], 2), first=True)
    check_wald(Layout.of([1_999], 2), first=True)


# -- models ------------------------------------------------------------------------------------


def rows(seed, k, n=600, missing=0.0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, n), rng.integers(0, 2, n)
    x = 5 + 20 * rng.normal(size=n)
    margin = np.stack([c * (0.4 * (a == 1) - 0.5 * b + 0.02 * x) for c in range(k)], axis=1)
    share = np.exp(margin - margin.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    y = (rng.random(n)[:, None] > share.cumsum(axis=1)).sum(axis=1)
    gone = pa.array(rng.random(n) < missing)
    table = {
        "a": pa.compute.if_else(gone, None, pa.array([f"a{v}" for v in a])),
        "x": pa.array(x),
        "b": pa.array([f"b{v}" for v in b]),
    }
    weight = rng.uniform(0.2, 2, n)
    return pa.table({**table, "y": pa.array([f"k{c}" for c in y])}), weight, (a, b, x, y)


def newton(design, y, k, weight, strength=None):
    """The optimum and the inverse Hessian of a dense problem against class 0, (k - 1) q each."""
    q = design.shape[1]
    beta = np.zeros((k - 1) * q)
    hessian = np.eye(len(beta))
    for _ in range(60):
        margin = np.column_stack([np.zeros(len(design)), design @ beta.reshape(k - 1, q).T])
        share = np.exp(margin - margin.max(axis=1, keepdims=True))
        share = (share / share.sum(axis=1, keepdims=True))[:, 1:]
        apart = (share - (y[:, None] == np.arange(1, k))) * weight[:, None]
        gradient = (apart.T @ design).ravel()
        hessian = np.zeros((len(beta), len(beta)))
        for c, other in np.ndindex(k - 1, k - 1):
            bent = weight * share[:, c] * ((c == other) - share[:, other])
            block = (design * bent[:, None]).T @ design
            hessian[c * q : (c + 1) * q, other * q : (other + 1) * q] = block
        if strength is not None:
            gradient += strength * beta
            hessian += np.diag(strength)
        beta = beta - np.linalg.solve(hessian, gradient)
    return beta, np.sqrt(np.diag(np.linalg.inv(hessian)))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_penalty__what_treatment_coding_gives(k, weighted):
    table, weight, (a, b, x, y) = rows(1, k)
    weight = weight if weighted else np.ones(len(y))
    model = fb.LogisticRegression(None, standard_errors=True, tol=1e-10)
    model.fit(table, "y", sample_weight=weight)
    most = int(np.argmax(np.bincount(a, weight))), int(np.argmax(np.bincount(b, weight)))
    columns = [np.ones(len(y))]
    columns += [a == v for v in range(3) if v != most[0]]
    columns += [x, b == 1 - most[1]]
    beta, error = newton(np.stack(columns, axis=1).astype(float), y, k, weight)
    found = model.coefficients()
    features = ["(intercept)", "a", "a", "x", "b"] * (k - 1)
    assert found["feature"].to_pylist() == features
    assert found["reference"].to_pylist()[1] == f"a{most[0]}"
    np.testing.assert_allclose(found["coefficient"].to_numpy(), beta, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found["standard_error"].to_numpy(), error, rtol=1e-5)
    narrow = model.coefficients(level=0.5)
    width = narrow["upper"].to_numpy() - narrow["lower"].to_numpy()
    np.testing.assert_allclose(width, 2 * scipy_stats.norm.ppf(0.75) * error, rtol=1e-5)


def test_with_l2__the_optimum_of_a_dense_design():
    table, weight, (a, b, x, y) = rows(2, 2)
    model = fb.LogisticRegression(C=0.3, standard_errors=True, tol=1e-10)
    model.fit(table, "y", sample_weight=weight)
    columns = [np.ones(len(y)), *(a == v for v in range(3)), x, *(b == v for v in range(2))]
    strength = np.r_[0.0, np.full(6, 1 / 0.3)]
    beta, error = newton(np.stack(columns, axis=1).astype(float), y, 2, weight, strength)
    found = model.coefficients()
    assert found["value"].to_pylist() == [None, "a0", "a1", "a2", None, "b0", "b1"]
    np.testing.assert_allclose(found["coefficient"].to_numpy(), beta, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found["standard_error"].to_numpy(), error, rtol=1e-6)


@pytest.mark.parametrize("penalty", [None, "l2"])
def test_class_weights_count_as_weights(penalty):
    table, _, (*_, y) = rows(3, 2)
    options = {"penalty": penalty, "standard_errors": True, "tol": 1e-10}
    one = fb.LogisticRegression(class_weight={"k1": 3.0}, **options).fit(table, "y")
    other = fb.LogisticRegression(**options)
    other.fit(table, "y", sample_weight=np.where(y == 1, 3.0, 1.0))
    # Not the values of a and b, which are compared with those of most rows.
    only = pa.compute.field("feature") == "x"
    found = [m.coefficients().filter(only)["standard_error"][0].as_py() for m in (one, other)]
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.compiled
def test_blocks_and_threads_change_nothing():
    table, weight, _ = rows(4, 3, n=150_000, missing=0.1)
    found = [
        fb.LogisticRegression(None, standard_errors=True, threads=threads, max_iter=30)
        .fit(table, "y", sample_weight=weight)
        .coefficients()
        for threads in (1, 4)
    ]
    assert found[0].equals(found[1])


@pytest.mark.parametrize("penalty", [None, "l2"])
@pytest.mark.parametrize("missing", ["marginalize", "category"])
def test_saved_and_loaded(tmp_path, penalty, missing):
    table, *_ = rows(5, 3, missing=0.2)
    model = fb.LogisticRegression(
        penalty, standard_errors=True, missing=missing, interactions=[("a", "b")]
    ).fit(table, "y")
    before = model.coefficients(level=0.8)
    model.save(tmp_path / "m.fb")
    again = fb.load(tmp_path / "m.fb")
    assert again.coefficients(level=0.8).equals(before)
    assert ("(missing)" in before["value"].to_pylist()) == (missing == "category")
    # Parameters that are set later are those of a later fit.
    again.penalty = "l1"
    assert again.coefficients(level=0.8).equals(before)


def test_not_asked_for__coefficients_alone():
    table, *_ = rows(6, 2)
    model = fb.LogisticRegression().fit(table, "y")
    found = model.coefficients()
    assert "standard_error" not in found.column_names
    np.testing.assert_allclose(found["coefficient"].to_numpy()[1:4], model.coef_[0, :3])
    naive = fb.NaiveBayes(variance="shared").fit(table, "y").to_logistic()
    told = naive.coefficients()
    np.testing.assert_allclose(told["coefficient"].to_numpy()[0], naive.intercept_[0])
    assert set(told["class"].to_pylist()) == {"k1"}
    assert set(told["reference_class"].to_pylist()) == {"k0"}
    for three in (
        fb.LogisticRegression().fit(rows(6, 3)[0], "y"),
        fb.NaiveBayes(variance="shared").fit(rows(6, 3)[0], "y").to_logistic(),
    ):
        told = three.coefficients()
        by_name = dict(zip(three.coef_names_, three.coef_.T, strict=True))
        assert told["class"].to_pylist() == [c for c in ("k0", "k1", "k2") for _ in range(7)]
        for line in told.to_pylist():
            c = int(line["class"][1])
            expected = three.intercept_[c]
            if line["feature"] != "(intercept)":
                expected = by_name[line["feature"], line["value"]][c]
            np.testing.assert_allclose(line["coefficient"], expected, rtol=1e-12)


def test_very_many_values():
    table = {"id": [f"v{i % 60_000}" for i in range(90_000)], "y": [i % 2 for i in range(90_000)]}
    model = fb.NaiveBayes().fit(table, "y").to_logistic()
    found = model.coefficients()
    assert len(found) == 60_001
    np.testing.assert_allclose(found["coefficient"].to_numpy()[1:], model.coef_[0], rtol=1e-12)


def test_refused():
    table, *_ = rows(7, 2, n=80)
    with pytest.raises(ValueError, match="penalty='l1' has corners"):
        fb.LogisticRegression("l1", standard_errors=True).fit(table, "y")
    model = fb.LogisticRegression(standard_errors=True).partial_fit(table, "y")
    assert model.coefficients()["standard_error"].null_count == 0
    with pytest.raises(DataError, match="all rows at once"):
        model.partial_fit(table, "y")
    with pytest.raises(ValueError, match="not fitted"):
        fb.LogisticRegression().coefficients()


def test_one_class_and_columns_that_follow_from_others():
    table, *_ = rows(8, 2)
    alone = table.set_column(3, "y", pa.array(["k"] * len(table)))
    with pytest.warns(FastBayesWarning, match="only one class"):
        model = fb.LogisticRegression(standard_errors=True).fit(alone, "y")
    assert set(model.coefficients()["class"].to_pylist()) == {"k"}
    twice = table.append_column("again", table["x"])
    model = fb.LogisticRegression(None, standard_errors=True).fit(twice, "y")
    with pytest.warns(FastBayesWarning, match="'again'"):
        found = model.coefficients()
    known = dict(zip(found["feature"].to_pylist(), found["z"].to_pylist(), strict=True))
    assert known["x"] is None
    assert known["b"] is not None
