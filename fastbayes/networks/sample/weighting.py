"""Likelihood weighting: rows drawn from the root down, each as likely as it makes the evidence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fastbayes.core.errors import DataError
from fastbayes.networks.graph.coded import Coded, Floats
from fastbayes.networks.sample.gibbs import Sampled, asked_of, check_cells
from fastbayes.networks.sample.starts import Forward
from fastbayes.scan import engine

# Rows drawn from one stream: their states stay in cache. Changing it changes every estimate.
ROWS = 4096


def weighting_of_groups(
    coded: Coded,
    evidence: Mapping[int, int],
    groups: Sequence[Sequence[int]],
    *,
    draws: int = 1_000_000,
    seed: int | None = None,
    threads: int | None = None,
) -> list[Sampled]:
    """Estimate the joint distribution of each of several groups of nodes, from the same rows.

    Nodes that are not observed are drawn given their parents, w is the product of the observed
    ones' probabilities given theirs, and P(q | evidence) ≈ sum w 1[q] / sum w. Rows do not
    depend on each other, so zeros do no harm; but where the evidence is improbable from above few
    of them count. The same seed gives the same bits on any number of threads.

    `ess` is that of the weights, (sum w)² / sum w², for every probability; `mcse` has one over that
    where no row or every row that counts has the state.

    Raises
    ------
    DataError
        When no row agrees with the evidence.
    MemoryLimitError
        When the groups have too many joint states.

    References
    ----------
    Fung and Chang 1990; Shachter and Peot 1990. The standard error is that of a ratio: Owen,
    Monte Carlo theory, methods and examples, 2013, equation 9.8.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}: it must be 1 or more")
    check_cells(coded, groups, 4)
    asked = asked_of(coded, groups)
    edges, cells = asked.target_at.tolist(), int(asked.cell_at[-1])
    forward = Forward(coded, evidence)
    chunks = -(-draws // ROWS)

    def drawn(chunk: int) -> tuple[float, Floats]:
        """Return the largest ln w, and sums of w, of w² by cell, over its power."""
        sequence = np.random.SeedSequence(entropy, spawn_key=(chunk,))
        n = min(ROWS, draws - chunk * ROWS)
        x, log_weight = forward.draw(n, np.random.default_rng(sequence))
        largest = float(log_weight.max())
        w = np.exp(log_weight - largest) if largest > -np.inf else np.zeros(n)
        found, squared = np.empty((2, cells)), w * w
        for g, (first, last) in enumerate(itertools.pairwise(edges)):
            nodes, some = asked.targets[first:last], slice(*asked.cell_at[g : g + 2])
            cell = asked.steps[first:last] @ x[nodes].astype(np.int64)
            for sums, weights in zip(found[:, some], (w, squared), strict=True):
                sums[:] = np.bincount(cell, weights, len(sums))
        return largest, found

    entropy = np.random.SeedSequence(seed).entropy
    highest, sums = -np.inf, np.zeros((2, cells))
    for largest, some in engine.in_order(drawn, range(chunks), engine.resolved_threads(threads)):
        if largest == -np.inf:
            continue
        top = max(highest, largest)
        power = np.array([[1.0], [2.0]])
        sums = sums * np.exp(power * (highest - top)) + some * np.exp(power * (largest - top))
        highest = top
    if highest == -np.inf:
        names = ", ".join(f"{coded.names[v]!r}" for v in evidence)
        raise DataError(
            f"none of {draws:,} rows agrees with the evidence on {names}: it is impossible, or too "
            "improbable for likelihood weighting; use exact inference or Gibbs sampling"
        )
    return [
        _sampled(some.reshape(2, *coded.sizes[list(targets)]), highest, draws)
        for targets, some in zip(groups, np.split(sums, asked.cell_at[1:-1], axis=1), strict=True)
    ]


def _sampled(sums: Floats, log_scale: float, draws: int) -> Sampled:
    """Return what sums of w and of w² tell, (2, sizes of targets ...), the scale of w left out."""
    weights, squares = sums
    all_weights, all_squares = (float(some.ravel().sum()) for some in sums)
    p = weights / all_weights
    ess = all_weights**2 / all_squares
    variance = np.square(1 - p) * squares + np.square(p) * (all_squares - squares)
    same = (weights == 0) | (squares == all_squares)
    mcse = np.where(same, 1 / ess, np.sqrt(np.maximum(variance, 0)) / all_weights)
    spread = max(all_squares / all_weights**2 - 1 / draws, 0.0)
    return Sampled(
        p,
        mcse,
        np.full(p.shape, ess),
        None,
        draws,
        log_evidence=log_scale + math.log(all_weights / draws),
        log_evidence_error=math.sqrt(spread),
    )
