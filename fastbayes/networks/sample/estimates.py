"""What counts of draws in batches tell: probabilities, and how far they can be trusted."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastbayes.networks.graph.coded import Floats, Ints

# Batches of all chains together, about; of a chain no more than the root of its draws.
BATCHES = 256
# Beyond so many standard deviations chains differ by more than their batches can explain.
APART = 3.1
# Neighbours of a batch that are looked at.
LAGS = 12


class Estimates(NamedTuple):
    """Estimates of probabilities, all (n_cells,).

    probabilities  n_q / T
    mcse           Monte-Carlo standard error; NaN where there are fewer than four batches
    ess            effective sample size P (1 - P) / mcse²
    r_hat          split-R̂; 1 where no draw differs, NaN with fewer than four draws of a chain
    """

    probabilities: Floats
    mcse: Floats
    ess: Floats
    r_hat: Floats


def batch_lengths(draws: int, chains: int, most: int = BATCHES) -> Ints:
    """Return how many draws of a chain each of its batches has: an even number of batches, or 1.

    most  batches of a chain for which there is room, four or more are taken all the same
    """
    n = min(max(4, min(-(-BATCHES // chains), most)), max(4, math.isqrt(draws)), draws)
    edges = np.linspace(0, draws, max(n - n % 2, 1) + 1).astype(np.int64)
    return np.diff(edges)


def estimates(counts: Ints, lengths: Ints) -> Estimates:
    """Return probabilities of cells with their standard errors.

    The variance of a count is summed over batches and their neighbours within chains,

        V = S_0 + 2 S_1 + 2 (S_2 + S_3) + ...,   S_k = sum over c, j of d[c, j] d[c, j + k],

    d = n[c, j] - P length[j]; the brackets end with the first that is negative in all chains
    together (Geyer's initial positive sequence, of batches), and P being estimated is corrected
    for: standard errors are right on average, neither too small nor too large. Where whole chains
    differ by more than that explains (an F test), batches were too short to see how slowly chains
    move, and the variance between chains is taken. A cell that all draws or none hit has a
    standard error of 1 / T, the most that this tells.

    Parameters
    ----------
    counts
        (n_chains, n_batches, n_cells) draws in each cell.
    lengths
        (n_batches,) draws in each batch.

    References
    ----------
    Geyer 1992, section 3.3; Flegal and Jones 2010, batch means; Vehtari, Gelman, Simpson,
    Carpenter and Bürkner 2021, equations 1 to 4, split-R̂.
    """
    n_chains, n_batches, _ = counts.shape
    total = float(n_chains * lengths.sum())
    p = counts.sum(axis=(0, 1)) / total
    off = counts - p * lengths[:, None].astype(np.float64)
    everywhere = n_chains * n_batches
    variance = np.full(p.shape, np.nan)
    if everywhere >= 4:
        own = _products(off, 0)
        variance = own + 2 * _products(off, 1)
        lags, positive = np.full(p.shape, min(1, n_batches - 1)), np.ones(p.shape, np.bool_)
        for lag in range(2, min(LAGS, n_batches - 1), 2):
            bracket = _products(off, lag) + _products(off, lag + 1)
            positive &= bracket > 0
            variance += np.where(positive, 2 * bracket, 0.0)
            lags += 2 * positive
        # Deviations from the mean of so many batches are too small, and so are their products.
        lost = np.minimum((1 + 2 * lags) / everywhere, 0.5)
        variance = np.maximum(variance, 0.1 * own) / (1.0 - lost)
    if n_chains > 1:
        between = np.square(off.sum(axis=1)).sum(axis=0) * n_chains / (n_chains - 1)
        apart = _deviations(between, variance, n_chains - 1, max(everywhere / 3.0, 1.0))
        variance = np.where((n_batches > 1) & (apart > APART), between, variance)
    same = (p == 0) | (p == 1)
    mcse = np.where(same, 1.0 / total, np.sqrt(variance) / total)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = np.where(same, total, p * (1 - p) / np.square(mcse))
    return Estimates(p, mcse, ess, _split_r_hat(counts, lengths))


def _products(off: Floats, lag: int) -> Floats:
    """Return the sum of products of batches so many apart, (n_cells,)."""
    return np.asarray(np.einsum("cjq,cjq->q", off[:, lag:], off[:, : off.shape[1] - lag]))


def _deviations(one: Floats, other: Floats, n: float, m: float) -> Floats:
    """Return by how many standard deviations one variance exceeds the other (Paulson 1942)."""
    a, b = 2.0 / (9.0 * n), 2.0 / (9.0 * m)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.cbrt(one / other)
        result = ((1 - b) * root - (1 - a)) / np.sqrt(b * np.square(root) + a)
    return np.nan_to_num(np.asarray(result), nan=0.0)


def _split_r_hat(counts: Ints, lengths: Ints) -> Floats:
    n_batches, n_cells = counts.shape[1:]
    if lengths.sum() < 4:
        return np.full(n_cells, np.nan)
    middle = n_batches // 2
    halves = [
        (counts[:, some].sum(axis=1), lengths[some].sum())
        for some in (slice(None, middle), slice(middle, None))
    ]
    p = np.concatenate([hits / n for hits, n in halves])
    n = float(lengths.sum()) / 2
    within = (p * (1 - p)).mean(axis=0) * n / (n - 1)
    between = p.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt((n - 1) / n + between / within)
    return np.where(between == 0, 1.0, r_hat)
