"""Posteriors estimated from random draws, and how far they can be trusted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastbayes.core.errors import DataError, MemoryLimitError, warn
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.gibbs import LANES, CountedGroups
from fastbayes.networks.graph.coded import Coded, Floats, Ints
from fastbayes.networks.sample.blankets import compiled, steps_of
from fastbayes.networks.sample.starts import Forward, starts
from fastbayes.scan import engine

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


# Counts of all chains and batches: 64 MiB.
COUNTS = 1 << 23


@dataclass(frozen=True, eq=False)
class Sampled:
    """Estimates of P(targets | evidence) from random draws; arrays (sizes of targets ...).

    r_hat               None of likelihood weighting, which has no chains
    draws               retained sweeps of all chains; rows of likelihood weighting
    counts              (n_chains, sizes of targets ...) retained sweeps, of Gibbs sampling
    blocks              nodes of each block that was resampled as one
    log_evidence        estimated ln P(evidence), nats; None of Gibbs sampling
    log_evidence_error  standard error of that
    """

    probabilities: Floats
    mcse: Floats
    ess: Floats
    r_hat: Floats | None
    draws: int
    counts: Ints | None = None
    blocks: tuple[tuple[int, ...], ...] = ()
    log_evidence: float | None = None
    log_evidence_error: float | None = None


def gibbs_of_groups(
    coded: Coded,
    evidence: Mapping[int, int],
    groups: Sequence[Sequence[int]],
    *,
    draws: int = 1_000_000,
    burn_in: int = 1_000,
    thin: int = 1,
    chains: int = 32,
    seed: int | None = None,
    threads: int | None = None,
    blocks: bool = True,
    max_block: int = 1024,
) -> list[Sampled]:
    """Estimate the joint distribution of each of several groups of nodes, from the same sweeps.

    A sweep resamples every node that is not observed from its distribution given its Markov
    blanket. P(targets = q | evidence) is estimated by n_q / T, T the sweeps that are retained.
    Nodes that zeros of their tables tie together are resampled as one, for one at a time they
    could not move (an OR with its causes).

    Options are those of `BayesianNetwork.query`. Every chain retains as many sweeps, so that there
    are a few more than `draws` if `chains` does not divide them; chains go in lock step, 16 at a
    time, and each has its own stream: the same seed gives the same bits on any number of threads.
    The counts of a group are those of a run that is asked for that group alone.

    Raises
    ------
    DataError
        When the evidence is impossible, or nothing possible was found with it.
    MemoryLimitError
        When the groups have too many joint states, or a node too many states.
    ValueError
        When a number is out of range.

    Notes
    -----
    Time is draws (+ burn-in, times thin) times nodes, about 3 ns each on one thread where tables
    of the blankets fit the cache. To count a node alone takes a tenth of what it takes to draw it,
    a third where chains go one by one. Tables are right to 2**-32: a state less probable than that
    given its blanket may never be drawn. Warns of nodes that are tied without being in a block:
    chains then stay in a part of what is possible, and nothing in the draws of one chain shows it;
    R-hat over several chains may.

    References
    ----------
    Geman and Geman 1984; Pearl 1987, Evidential reasoning using stochastic simulation of causal
    models; Jensen, Kong and Kjærulff 1995, Blocking Gibbs sampling in very large probabilistic
    expert systems.
    """
    for name, value, least in (
        ("draws", draws, 1),
        ("burn_in", burn_in, 0),
        ("thin", thin, 1),
        ("chains", chains, 1),
        ("max_block", max_block, 1),
    ):
        if value < least:
            raise ValueError(f"{name}={value}: it must be {least} or more")
    each = -(-draws // chains)
    check_cells(coded, groups, chains * 4)
    asked = asked_of(coded, groups)
    cells = int(asked.cell_at[-1])
    lengths = batch_lengths(each, chains, COUNTS // (max(cells, 1) * chains))
    program = compiled(coded, evidence, blocks=blocks, max_block=max_block)
    if program.left:
        _warn(coded, program.left, blocks, max_block)
    sequences = np.random.SeedSequence(seed).spawn(chains + 1)
    x = starts(coded, evidence, chains, np.random.default_rng(sequences[0]))
    streams = np.array([s.generate_state(4, np.uint64) for s in sequences[1:]]).T
    nothing = asked_of(coded, [])
    units = len(program.program.kinds)
    # numpy takes as long for one chain as for a few dozen.
    kernel = dispatch.load("gibbs", float(each * thin + burn_in) * units * max(chains, LANES))

    def sampled(first: int) -> Ints:
        some = slice(first, first + LANES)
        states, words = x[:, some].copy(), streams[:, some].copy()
        counts = np.zeros((len(lengths), states.shape[1], cells), np.int64)
        nowhere = counts[0, :, :0]
        # In pieces: a key that interrupts is heard between two calls.
        for sweeps in _pieces(burn_in, units):
            kernel.run(program.program, states, words, 1, sweeps, nothing, nowhere)
        for batch, length in zip(counts, lengths.tolist(), strict=True):
            for piece in _pieces(length, thin * units):
                kernel.run(program.program, states, words, piece, thin, asked, batch)
        return counts.transpose(1, 0, 2)

    counts = np.concatenate(
        list(engine.in_order(sampled, range(0, chains, LANES), engine.resolved_threads(threads)))
    )
    figures, hits = estimates(counts, lengths), counts.sum(axis=1)
    results = []
    for targets, first, last in zip(groups, asked.cell_at, asked.cell_at[1:], strict=False):
        sizes = [int(coded.sizes[v]) for v in targets]
        found = Estimates(*(some[first:last].reshape(sizes) for some in figures))
        results.append(
            Sampled(
                *found,
                draws=each * chains,
                counts=hits[:, first:last].reshape(chains, *sizes),
                blocks=tuple(program.blocks),
            )
        )
    return results


def asked_of(coded: Coded, groups: Sequence[Sequence[int]]) -> CountedGroups:
    """Return groups of nodes as kernels count them."""
    sizes = [[int(coded.sizes[v]) for v in targets] for targets in groups]
    cells = [math.prod(some) for some in sizes]
    return CountedGroups(
        np.cumsum([0, *map(len, groups)], dtype=np.int64),
        np.array([v for targets in groups for v in targets], np.int64),
        np.array([step for some in sizes for step in steps_of(some)], np.int64),
        np.cumsum([0, *cells], dtype=np.int64),
    )


def check_cells(coded: Coded, groups: Sequence[Sequence[int]], copies: int) -> None:
    """Raise MemoryLimitError where counts of joint states would take too much memory."""
    cells = [math.prod(float(coded.sizes[v]) for v in targets) for targets in groups]
    if sum(cells) * copies > COUNTS:
        most, targets = max(zip(cells, groups, strict=True), key=lambda pair: pair[0])
        names = ", ".join(repr(coded.names[v]) for v in targets)
        others = f", with those of other groups {sum(cells):,.0f}" if len(groups) > 1 else ""
        raise MemoryLimitError(
            f"the joint states of {names} are {most:,.0f}{others}, counted {copies:,} times, which "
            f"takes more than {COUNTS:,} counts; ask for fewer targets at a time, or take fewer "
            "chains"
        )


def _pieces(sweeps: int, units: int) -> list[int]:
    """Return sweeps in parts that take well below a second each."""
    most = max(1, (1 << 22) // max(units, 1))
    return [min(most, sweeps - at) for at in range(0, sweeps, most)]


def _warn(coded: Coded, left: Sequence[Sequence[int]], blocks: bool, max_block: int) -> None:
    groups = [", ".join(repr(coded.names[v]) for v in nodes) for nodes in left]
    shown = "; ".join(groups[:5]) + (f"; and {len(groups) - 5} more" if len(groups) > 5 else "")
    remedy = (
        f"their joint states are over max_block={max_block:,}: raise it, or use exact inference"
        if blocks
        else "blocks=True resamples them together"
    )
    warn(
        f"probabilities of 0 tie nodes together, so that chains cannot move freely and estimates "
        f"may be wrong however many draws are taken ({shown}); {remedy}"
    )


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
