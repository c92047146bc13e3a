"""Sums of products of tables over some of their variables, by eliminating one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import MemoryLimitError

Floats = NDArray[np.float64]
# A table of logarithms over variables in ascending order, for many rows side by side:
# (variables, array of (n_rows, states of each variable, n_outputs)).
Factor = tuple[tuple[int, ...], Floats]

# Numbers of the largest table that a row may need: 128 MiB.
LARGEST = 1 << 24


def elimination_order(
    scopes: Sequence[tuple[int, ...]], states: Mapping[int, int]
) -> tuple[list[int], float]:
    """Return an order in which to sum out all variables, and the cells of its largest table.

    Greedy: next comes the variable whose elimination makes the smallest table, of equals the first.

    Parameters
    ----------
    scopes
        Variables of each factor.
    states
        States of each variable.
    """
    left = [frozenset(scope) for scope in scopes]
    order: list[int] = []
    largest = 1.0
    waiting = set(states)
    while waiting:
        joint = {
            v: frozenset[int]().union(*(scope for scope in left if v in scope)) | {v}
            for v in waiting
        }
        cells = {v: math.prod(float(states[u]) for u in joint[v]) for v in waiting}
        v = min(waiting, key=lambda u: (cells[u], u))
        order.append(v)
        largest = max(largest, cells[v])
        left = [scope for scope in left if v not in scope] + [joint[v] - {v}]
        waiting.remove(v)
    return order, largest


def summed_out(factors: Sequence[Factor], order: Sequence[int]) -> Floats:
    """Return ln sum exp(sum of factors) over all variables, (n_rows, n_outputs).

    Parameters
    ----------
    factors
        The logarithms of what is multiplied; -inf is a legal entry.
    order
        The variables, in the order in which to sum them out.
    """
    left = list(factors)
    for v in order:
        with_v = [factor for factor in left if v in factor[0]]
        left = [factor for factor in left if v not in factor[0]]
        scope, joint = _product(with_v)
        axis = 1 + scope.index(v)
        left.append((tuple(u for u in scope if u != v), _log_sum(joint, axis)))
    return _product(left)[1]


def check_size(cells: float, what: str) -> None:
    """Raise where a table has more cells than a row may need.

    Raises
    ------
    MemoryLimitError
        The message says how many, and of what.
    """
    if cells > LARGEST:
        raise MemoryLimitError(
            f"summing out {what} takes a table of {cells:,.0f} numbers for a row, over "
            f"{LARGEST:,}; fill in these values, use missing='category', or fewer parents"
        )


def _product(factors: Sequence[Factor]) -> Factor:
    scope = tuple(sorted({v for some, _ in factors for v in some}))
    total: Floats | None = None
    for some, table in factors:
        shape = iter(table.shape[1:-1])
        shape_of = [next(shape) if v in some else 1 for v in scope]
        wide = table.reshape(table.shape[0], *shape_of, table.shape[-1])
        total = wide if total is None else total + wide
    assert total is not None
    return scope, total


def _log_sum(table: Floats, axis: int) -> Floats:
    top = table.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(table - top).sum(axis=axis)) + top.squeeze(axis)
