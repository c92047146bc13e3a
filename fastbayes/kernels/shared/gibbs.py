"""A compiled network and the counts wanted of it, as Gibbs samplers read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.shared.arrays import Floats, Ints

States = NDArray[np.uint16]
Words = NDArray[np.uint64]
# Chains that go in lock step.
LANES = 16
# The largest word of 32 bits is read as the one before it: it is the threshold that none reaches,
# so that the states after the last possible one have no share.
HIGHEST = 2**32 - 2
# A product of probabilities below this is formed again with the exponents apart.
FAINT = 2.0**-900
TABLE, PRODUCT = 0, 1


class Program(NamedTuple):
    """A network as the sampler reads it: units, each resampled given all others, one by one.

    A unit is a node, or a block of nodes with the joint states that are possible. It has a table
    of thresholds for every state of its blanket, or its probabilities are multiplied on-line.

    kinds           (n_units,) int64   TABLE or PRODUCT
    states          (n_units,) int64   states of each unit, two or more
    member_at       (n_units + 1,) int64   where the members of each unit begin
    members         (...) int64   nodes
    value_at        (n_units,) int64   where the values of each unit begin, -1 if state is value
    values          (...) uint16   [value_at + member * states + state]
    outer_at        (n_units + 1,) int64   where the blanket of each unit with a table begins
    outer           (...) int64   nodes
    outer_step      (...) uint16   row = sum of step * value
    table_at        (n_units,) int64   where the table of each unit begins
    thresholds      (...) uint32   [table_at + row * (states - 1) + state]: 2**32 P(unit <= state)
    factor_at       (n_units + 1,) int64   where the factors of each unit without a table begin
    table_of        (n_factors,) int64   where in `probabilities` the factor's table begins
    offset_at       (n_factors,) int64   where the unit's states begin in `offsets`
    offsets         (...) int64   what a state adds to the place in the table
    factor_outer_at (n_factors + 1,) int64   where the other nodes of each factor begin
    factor_outer    (...) int64   nodes
    factor_step     (...) int64   place = sum of step * value
    probabilities   (...) float64
    """

    kinds: Ints
    states: Ints
    member_at: Ints
    members: Ints
    value_at: Ints
    values: States
    outer_at: Ints
    outer: Ints
    outer_step: NDArray[np.uint16]
    table_at: Ints
    thresholds: NDArray[np.uint32]
    factor_at: Ints
    table_of: Ints
    offset_at: Ints
    offsets: Ints
    factor_outer_at: Ints
    factor_outer: Ints
    factor_step: Ints
    probabilities: Floats


class CountedGroups(NamedTuple):
    """Groups of nodes whose joint states are counted, each group apart from the others.

    target_at  (n_groups + 1,) int64   where the nodes of each group begin
    targets    (...) int64   nodes
    steps      (...) int64   cell = cell_at + sum of step * value
    cell_at    (n_groups + 1,) int64   where the cells of each group begin
    """

    target_at: Ints
    targets: Ints
    steps: Ints
    cell_at: Ints
