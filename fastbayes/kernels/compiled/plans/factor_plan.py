"""Sums of tables as few look-ups: tables that share columns become one table over all of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.compiled.plans import joint_tables
from fastbayes.kernels.compiled.plans.joint_tables import JointTablePlan, aligned
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.codes import columns_of

# Joint codes are 16 bits wide where their kernels read them.
MOST_CELLS = 65_536
# Features of a table that is still added to, half of the axes that numpy knows: those of a single
# code make no table larger, however many they are.
MOST_FEATURES = 32


class JoinedTable(NamedTuple):
    """A table over the joint codes of a few columns."""

    features: tuple[int, ...]
    table: Floats  # (codes of each feature ..., n_outputs)


def merge(
    factors: Sequence[JoinedTable], extents: NDArray[np.int64], width: int
) -> list[JoinedTable]:
    """Return fewer factors with the same sum.

    Parameters
    ----------
    factors
        Their tables may hold more codes than occur.
    extents
        (n_features,) codes that occur of each feature.
    width
        Bytes of one cell of a table.

    Returns
    -------
    list of Factor
        Tables of as many codes as occur, within the caches' limits where more than one factor
        went into them.
    """
    if not factors:
        return []
    for limit in (joint_tables.LARGEST, joint_tables.LARGE):
        groups = _groups(factors, extents, limit / width)
        cells = [int(np.prod(extents[list(features)])) for features, _ in groups]
        if sum(cells) * width <= joint_tables.ALL:
            break
    return [_sum(features, [factors[at] for at in parts], extents) for features, parts in groups]


def _groups(
    factors: Sequence[JoinedTable], extents: NDArray[np.int64], most: float
) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return groups of factors, with the features of each, of at most so many joint cells.

    A group takes the factor that adds fewest cells, which is one that shares features with it.
    """
    bits = np.log2(np.maximum(extents, 1))
    using: dict[int, list[int]] = {}
    for at, factor in enumerate(factors):
        for feature in factor.features:
            using.setdefault(feature, []).append(at)
    alone = np.array([bits[list(factor.features)].sum() for factor in factors])
    cost = alone.copy()
    groups = []
    for _ in factors:
        seed = int(np.argmin(alone))
        if alone[seed] == np.inf:
            break
        features: list[int] = []
        parts: list[int] = []
        total, at = 0.0, seed
        while not parts or (
            len(features) < MOST_FEATURES and total + cost[at] <= np.log2(most) + 1e-9
        ):
            total += cost[at]
            parts.append(at)
            cost[at] = alone[at] = np.inf
            for feature in factors[at].features:
                if feature not in features:
                    features.append(feature)
                    cost[using[feature]] -= bits[feature]
            at = int(np.argmin(cost))
        cost[:] = alone
        groups.append((tuple(features), parts))
    return groups


def _sum(
    features: tuple[int, ...], parts: list[JoinedTable], extents: NDArray[np.int64]
) -> JoinedTable:
    """Return the sum of factors as one over `features`."""
    axis = {feature: at for at, feature in enumerate(features)}
    n_outputs = parts[0].table.shape[-1]
    total = np.zeros((*extents[list(features)], n_outputs))
    for part in parts:
        table = part.table[tuple(slice(extents[feature]) for feature in part.features)]
        places = [axis[feature] for feature in part.features]
        table = table.transpose([*np.argsort(places), len(places)])
        shape = [extents[f] if f in part.features else 1 for f in features]
        with np.errstate(invalid="ignore"):
            total += table.reshape(*shape, n_outputs)
    return JoinedTable(features, total)


def plan_of(
    factors: Sequence[JoinedTable],
    place: dict[int, int],
    outputs: slice,
    width: int,
    dtype: type[np.floating],
) -> JointTablePlan:
    """Return the arguments of the look-up kernels.

    Parameters
    ----------
    factors
        Each over at least one feature and at most 65,536 cells.
    place
        Row of each feature in the matrix of codes.
    outputs
        Which of the tables' outputs.
    width
        Outputs of a cell in the plan, padded with 0.
    dtype
        float64 or float32.
    """
    order, radix, bounds, sizes = [], [], [0], [0]
    for features, table in factors:
        # The first column has radix 1: of C order that is the last one.
        step = 1
        for feature, size in zip(features[::-1], table.shape[-2::-1], strict=True):
            order.append(place[feature])
            radix.append(step)
            step *= size
        bounds.append(len(order))
        sizes.append(step * width)
    start = np.cumsum(sizes)
    flat = aligned(int(start[-1]), dtype)
    flat[:] = 0
    for (_, table), begin, size in zip(factors, start, sizes[1:], strict=False):
        cells = table[..., outputs]
        flat[begin : begin + size].reshape(-1, width)[:, : cells.shape[-1]] = cells.reshape(
            -1, cells.shape[-1]
        )
    return JointTablePlan(
        readonly(np.array(order, np.int64)),
        readonly(np.array(radix, np.int64).astype(np.uint16)),
        readonly(np.array(bounds, np.int64)),
        readonly(start.astype(np.int64)),
        readonly(flat),
    )


def level_of(groups: Sequence[Codes], sizes: NDArray[np.int64]) -> int:
    """Return how many codes beyond their values columns need: 0, 1 (missing) or 2 (unseen)."""
    beyond = [group.codes.max(axis=1).astype(np.int64) - sizes[group.features] for group in groups]
    return max((max(int(some.max()) + 1, 0) for some in beyond), default=0)


def gathered(
    features: Sequence[int], groups: Sequence[Codes], dtype: type[np.unsignedinteger] = np.uint16
) -> NDArray[np.unsignedinteger]:
    """Return the codes of these features, all of which fit the type, in one matrix."""
    columns = columns_of(groups)
    codes = np.empty((len(features), groups[0].codes.shape[1]), dtype)
    for row, feature in zip(codes, features, strict=True):
        row[:] = columns[feature]
    return readonly(codes)


def matrix(
    groups: Sequence[Codes], n_features: int
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
    """Return one matrix of codes of 16 bits or fewer, and the row of each feature in it.

    Parameters
    ----------
    groups
        Codes by width; those of a single one are not copied.
    n_features
        Features, each of which is in a group.
    """
    place = np.arange(n_features)
    if len(groups) == 1 and groups[0].codes.dtype.itemsize < 3:
        place[groups[0].features] = np.arange(n_features)
        return readonly(groups[0].codes), readonly(place)
    codes = gathered(range(n_features), groups, np.uint16)
    return codes, readonly(place)
