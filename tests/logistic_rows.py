"""Rows whose log odds are linear."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def rows(n, k=2, seed=0, *, numbers=True, missing=False):
    """Return a table of two columns of categories and perhaps one of numbers, and k classes."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 4, n), random.integers(0, 6, n)
    x = random.normal(3, 20, n)
    W = random.normal(size=(k, 10))
    m = W[:, :4].T[a] + W[:, 4:].T[b] + (x[:, None] / 20 * W[:, 0] if numbers else 0)
    y = (m + random.gumbel(size=(n, k))).argmax(axis=1)
    table = {"a": [f"v{i}" for i in a], "b": [f"w{i}" for i in b]}
    if numbers:
        table["x"] = x.tolist()
    if missing:
        for name in table:
            table[name] = [None if u < 0.1 else v
                           for u, v in zip(random.random(n), table[name], strict=True)]  # fmt: skip
    return pa.table({**table, "y": [f"c{i}" for i in y]})
