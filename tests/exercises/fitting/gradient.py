"""Call every driver of a gradient module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.layout import Layout

ROWS = 100


def exercise(gradient):
    codes = (
        Codes(np.array([0, 1]), np.zeros((2, ROWS), np.uint8), np.array([4, 4])),
        Codes(np.array([2]), np.full((1, ROWS), 70_000, np.uint32), np.array([70_002])),
    )
    numeric = (np.where(np.arange(ROWS) % 7, 1.0, np.nan),)
    for n_classes in (2, 3, 6, 17):
        layout = Layout.of(
            [2, 2, 70_000], n_classes, center=[0.0], scale=[1.0], pairs=[(0, 1), (0, 2)]
        )
        classes = np.zeros(ROWS, np.uint8)
        absent = np.array([False, False, True])
        batch = Batch(ROWS, classes, n_classes, codes, absent, numeric, None, 0.0)
        passes = gradient.Gradient(layout)
        theta = np.zeros((layout.n_rows, layout.n_outputs))
        for weight in (None, np.ones(ROWS)):
            packed = passes.packed(batch, weight)
            passes.loss_gradient(theta)(packed)
            passes.hessian_product(theta, theta)(packed)
            passes.hessian(theta, keep=True).product(theta)(packed)
            passes.curvature(theta)(packed)
            passes.margins(theta)(packed)
