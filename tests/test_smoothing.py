from __future__ import annotations

import numpy as np
import pytest

import fastbayes as fb
from fastbayes.models.estimator.smoothing import Smoothing, totals_within


@pytest.mark.parametrize("kind", ["laplace", "m_estimate"])
@pytest.mark.parametrize("mass", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_classes", [1, 2, 3, 9])
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("kernels", ["never", "always"])
def test_ratio_within__is_the_ratio_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, kind: str, mass: float, n_classes: int, n: int, kernels: str
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    widths, cells = [2, 1, 3, 2], np.array([2.0, 0.0, 3.0, 1.0])
    of, bounds = np.repeat(np.arange(4), widths), np.cumsum([0, *widths])
    counts = np.random.default_rng(n).integers(0, 3, (n, len(of), n_classes)).astype(float)
    total, smoothing = totals_within(counts, bounds), Smoothing(kind, mass, mass)
    np.testing.assert_array_equal(total, np.add.reduceat(counts, bounds[:-1], axis=1))
    found = smoothing.ratio_within(counts, total, cells, bounds)
    np.testing.assert_array_equal(found, smoothing.ratio(counts, total[:, of], cells[of][:, None]))


@pytest.mark.parametrize("missing", ["marginalize", "category"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("kernels", ["never", "always"])
def test_conditionals__are_those_of_each_feature_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, missing: str, alpha: float, most: int, kernels: str
) -> None:
    monkeypatch.setenv("FASTBAYES_KERNELS", kernels)
    monkeypatch.setattr("fastbayes.models.estimator.smoothing.TOGETHER", most)
    rng = np.random.default_rng(0)
    table = {name: rng.choice(["a", "b", "c", None], 60).tolist() for name in "vwxz"}
    table["v"] = ["a"] * 60
    model = fb.AODE(alpha=alpha, missing=missing).fit(table, rng.choice(["p", "q", "r"], 60))
    cells, features = model._cells, [3, 0, 2]
    found = cells.conditionals(features, model._rule)
    for p, together in zip(features, found, strict=True):
        alone, others = np.asarray(cells.conditional(p, model._rule)), cells.feature != p
        np.testing.assert_array_equal(together[:, others], alone[:, others])
