"""R-hat and effective sample size of draws, formula by formula.

Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021, Rank-normalization, folding, and localization:
an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16. Draws are (n_chains,
n_draws).
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np


def split(draws):
    """Return both halves of every chain as chains."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def rank_normalized(draws):
    """Return z = Phi^-1((r - 3/8) / (S + 1/4)), r the average rank; equation 14."""
    flat = draws.ravel()
    ranks = np.array([(flat < x).sum() + ((flat == x).sum() + 1) / 2 for x in np.unique(flat)])
    values = [NormalDist().inv_cdf((r - 3 / 8) / (flat.size + 1 / 4)) for r in ranks]
    return np.array(values)[np.searchsorted(np.unique(flat), draws)]


def folded(draws):
    """Return how far draws are from their median; equation 15."""
    return np.abs(draws - np.median(draws))


def variances(draws):
    """Return W and var+; equations 1 to 3."""
    n = draws.shape[1]
    means = draws.mean(axis=1)
    between = n * means.var(ddof=1)
    within = draws.var(axis=1, ddof=1).mean()
    return within, (n - 1) / n * within + between / n


def r_hat(draws):
    """Return sqrt(var+ / W); equation 4."""
    within, total = variances(draws)
    return np.sqrt(total / within)


def rank_normalized_split_r_hat(draws):
    """Return the larger of that of the ranks and that of the folded draws' ranks."""
    found = [r_hat(rank_normalized(split(draws)))]
    away = folded(split(draws))
    if np.ptp(away) > 0:
        found.append(r_hat(rank_normalized(away)))
    return max(found)


def ess(draws):
    """Return the effective sample size of split chains; equations 10 to 13 and Geyer's sums."""
    draws = split(draws)
    m, n = draws.shape
    within, total = variances(draws)
    off = draws - draws.mean(axis=1, keepdims=True)
    covariance = np.array([(off[:, : n - t] * off[:, t:]).sum(axis=1) / n for t in range(n)])
    # s² rho of each chain.
    of_chains = (covariance * n / (n - 1)).mean(axis=1)
    rho = 1 - (within - of_chains) / total
    rho[0] = 1
    tau, before = -1.0, np.inf
    for t in range(0, n - 1, 2):
        pair = rho[t] + rho[t + 1]
        if pair < 0:
            break
        before = min(before, pair)
        tau += 2 * before
    return m * n / tau
