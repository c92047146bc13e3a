"""Joint tables of weights, which are multiplied where logs are added.

The weight of a class is its joint probability, up to a factor that all classes of a row share. With
the factor that makes the largest weight of each cell 1, products do not overflow, and posteriors
take no exponential: they are what each weight is of their sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastbayes.kernels.compiled.plans.joint_tables import JointTablePlan, aligned
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Floats

# Nats: a product that is not 0 has all its digits down to here, and what is less is 0 behind 1.
MOST_REACH = 700.0


class ScaledWeights(NamedTuple):
    """Weights, and how far below 1 the smallest of them is that is not 0, in nats."""

    values: Floats
    reach: float


class WeightPlan(NamedTuple):
    """Joint tables of weights, and how far below 1 their products can be without being 0."""

    plan: JointTablePlan
    reach: float


def weights_of(logs: Floats) -> ScaledWeights:
    """Return weights whose logs these (..., n_classes) are up to a term that all classes share."""
    best = logs.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        behind = np.where(best > -np.inf, logs - best, -np.inf)
    far = np.where(behind > -np.inf, behind, 0.0)
    return ScaledWeights(np.exp(behind), -float(far.min(initial=0.0)))


def weight_plan(plan: JointTablePlan, n_classes: int, width: int) -> WeightPlan:
    """Return a plan of logs as one of weights; where cells are padded to `width` they are 0."""
    table = aligned(plan.table.size, np.float64)
    table[:] = 0.0
    reach = 0.0
    for begin, end in zip(plan.start[:-1], plan.start[1:], strict=True):
        logs, into = (t[begin:end].reshape(-1, width)[:, :n_classes] for t in (plan.table, table))
        into[:], far = weights_of(np.asarray(logs, np.float64))
        reach += far
    return WeightPlan(plan._replace(table=readonly(table)), reach)
