"""The distributions of many nodes each by itself, from one elimination of all that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.infer.inference import (
    LARGEST,
    ancestral,
    certain,
    conditionals,
    factors_of,
    joint_posterior,
    order_of,
)

Floats = NDArray[np.float64]


def marginals(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    largest: float = LARGEST,
) -> tuple[list[Floats], float]:
    """Return P(target | evidence) of each target, and ln P(evidence).

    The nodes are summed out once. Each then has a distribution given nodes that were summed out
    later, all of which stood in one table; from the last to the first,

        P(v, given) = P(v | given) P(given | evidence),   P(given) a sum of the joint table before.

    Parameters
    ----------
    coded
        The network.
    evidence
        {node: state}; a target may be among them.
    targets
        Nodes, one or more.
    largest
        Numbers that a table may have.

    Returns
    -------
    tuple
        (size of the target,) of each target, and nats.

    Raises
    ------
    DataError
        When the evidence is impossible.
    MemoryLimitError
        When a table would be larger; the message names its nodes.

    Notes
    -----
    Where the tables of all nodes together would have more than `largest` numbers, each target is
    asked for alone: only what is above it and the evidence is summed out then.

    References
    ----------
    Koller, Friedman (2009), Probabilistic graphical models, sections 10.2 and 10.3.
    """
    factors = factors_of(coded, evidence, ancestral(coded, [*targets, *evidence]))
    order = order_of(coded, factors, ())
    if len(targets) == 1 or order.total > largest:
        answers = [joint_posterior(coded, evidence, [v], largest) for v in targets]
        return [found for found, _ in answers], answers[0][1]
    steps, log_total = conditionals(coded, evidence, factors, order)
    place = {step.node: at for at, step in enumerate(steps)}
    joints: list[Floats] = []
    for step in steps:
        if not step.given:
            joints.append(step.table)
            continue
        # What a node is given was in one table with the last drawn of these.
        last = max(place[v] for v in step.given)
        scope = (*steps[last].given, steps[last].node)
        others = tuple(axis for axis, v in enumerate(scope) if v not in step.given)
        given = joints[last].sum(axis=others)
        left = [v for v in scope if v in step.given]
        given = given.transpose([left.index(v) for v in step.given])
        joints.append(given[..., None] * step.table)
    found = []
    for v in targets:
        if v not in place:
            found.append(certain(coded, evidence, v))
            continue
        share = joints[place[v]].reshape(-1, int(coded.sizes[v])).sum(axis=0)
        found.append(share / share.sum())
    return found, log_total if evidence else 0.0
