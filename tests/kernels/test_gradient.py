"""Passes of logistic regression: what each adds up, by finite differences and row by row."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gradient as naive

from fastbayes.batch import Batch, Codes
from fastbayes.kernels import gradient as compiled
from fastbayes.layout import Layout
from fastbayes.plain import gradient as plain

MODULES = [
    pytest.param(compiled, id="kernels", marks=pytest.mark.compiled),
    pytest.param(plain, id="plain"),
]
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
    coarse, found = gradient.loss_gradient(theta, exact=False)(packed)
    assert coarse == pytest.approx(expected_loss, rel=1e-6, abs=1e-6)
    close(found, expected, 1e-5)
    product = gradient.hessian_product(theta, case.direction)(packed)
    close(product, naive.hessian_product(layout, theta, case.direction, batch, weight), 1e-5)
    diagonal = gradient.curvature(theta)(packed)
    close(diagonal, naive.curvature(layout, theta, batch, weight), 1e-5)
