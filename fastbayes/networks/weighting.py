"""Likelihood weighting: rows drawn from the root down, each as likely as it makes the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastbayes import engine
from fastbayes.errors import DataError
from fastbayes.networks.blankets import check_evidence, steps_of
from fastbayes.networks.coded import Coded
from fastbayes.networks.forward import Forward
from fastbayes.networks.gibbs import Sampled, check_cells, check_targets

Floats = NDArray[np.float64]

# Rows drawn from one stream: their states stay in cache. Changing it changes every estimate.
ROWS = 4096


def likelihood_weighting(
    coded: Coded,
    evidence: Mapping[int, int],
    targets: Sequence[int],
    *,
    draws: int = 1_000_000,
    seed: int | None = None,
    threads: int | None = None,
) -> Sampled:
    """Estimate the joint distribution of some nodes given the states of others.

    Nodes that are not observed are drawn given their parents, w is the product of the observed
    ones' probabilities given theirs, and P(q | evidence) ≈ sum w 1[q] / sum w. Rows do not
    depend on each other, so zeros do no harm; but where the evidence is improbable from above few
    of them count.

    Parameters
    ----------
    coded, evidence, targets
        As in `gibbs`.
    draws
        Rows.
    seed
        The same seed gives the same bits on any number of threads. None: another each time.
    threads
        None: all processors.

    Returns
    -------
    Sampled
        `ess` is that of the weights, (sum w)² / sum w², for every probability; `mcse` has one
        over that where no row or every row that counts has the state. `r_hat` is None.

    Raises
    ------
    DataError
        When no row agrees with the evidence.
    MemoryLimitError
        When the targets have too many joint states.
    ValueError
        When a number is out of range.

    References
    ----------
    Fung and Chang 1990; Shachter and Peot 1990. The standard error is that of a ratio: Owen,
    Monte Carlo theory, methods and examples, 2013, equation 9.8.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}: it must be 1 or more")
    check_targets(coded, targets)
    check_evidence(coded, evidence)
    check_cells(coded, targets, 4)
    sizes = [int(coded.sizes[v]) for v in targets]
    cells, steps = math.prod(sizes), np.array(steps_of(sizes), np.int64)
    forward = Forward(coded, evidence)
    chunks = -(-draws // ROWS)

    def drawn(chunk: int) -> tuple[float, Floats]:
        """Return the largest ln w, and sums of w, of w² by cell, over its power."""
        sequence = np.random.SeedSequence(entropy, spawn_key=(chunk,))
        n = min(ROWS, draws - chunk * ROWS)
        x, log_weight = forward.draw(n, np.random.default_rng(sequence))
        largest = float(log_weight.max())
        w = np.exp(log_weight - largest) if largest > -np.inf else np.zeros(n)
        cell = steps @ x[list(targets)].astype(np.int64)
        return largest, np.array([np.bincount(cell, some, cells) for some in (w, w * w)])

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
    (weights, squares), (all_weights, all_squares) = sums, sums.sum(axis=1)
    p = weights / all_weights
    ess = all_weights**2 / all_squares
    variance = np.square(1 - p) * squares + np.square(p) * (all_squares - squares)
    same = (weights == 0) | (squares == all_squares)
    mcse = np.where(same, 1 / ess, np.sqrt(np.maximum(variance, 0)) / all_weights)
    spread = max(all_squares / all_weights**2 - 1 / draws, 0.0)
    return Sampled(
        p.reshape(sizes),
        mcse.reshape(sizes),
        np.full(sizes, ess),
        None,
        draws,
        log_evidence=highest + math.log(all_weights / draws),
        log_evidence_error=math.sqrt(spread),
    )
