"""Tables from rows, and models held against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Rows = list[dict[str, Any]]


def frame(rows: Rows, types: dict[str, pa.DataType] | None = None) -> pa.Table:
    """Return rows as a table; `types` for columns whose values do not show them."""
    types = types or {}
    return pa.table({j: pa.array([r[j] for r in rows], types.get(j)) for j in rows[0]})


def close(got: Any, expected: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def same_answers(a: Any, b: Any, X: pa.Table) -> None:
    assert list(a.classes_) == list(b.classes_)
    close(a.log_joint(X), b.log_joint(X))
    close(a.predict_proba(X), b.predict_proba(X))
