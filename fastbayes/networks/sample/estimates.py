"""Posteriors estimated from random draws, and how far they can be trusted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastbayes.core.errors import DataError, MemoryLimitError, warn
from fastbayes.core.numbers import check_seed, check_whole
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.gibbs import LANES, CountedGroups
from fastbayes.networks.graph.coded import Coded, Floats, Ints
from fastbayes.networks.infer import inference
from fastbayes.networks.sample.blankets import Compiled, compiled, steps_of
from fastbayes.networks.sample.starts import Bools, Forward, certain_cells, starts

# Batches of all chains together, about; of a chain no more than the root of its draws.
BATCHES = 256
# Chains are trusted up to this R-hat and from this effective sample size on (Vehtari et al. 2021).
R_HAT, ESS = 1.01, 400
# Beyond so many standard deviations chains differ by more than their batches can explain.
APART = 3.1
# Neighbours of a batch that are looked at.
LAGS = 12


class Estimates(NamedTuple):
    """Estimates of probabilities, all (n_cells,).

    Where every chain stayed in a cell, or out of it, from its first draw to its last, nothing is
    known of how far they are off: all but the probabilities is NaN.

    probabilities  n_q / T
    mcse           Monte-Carlo standard error, 1 / T or more; NaN where there are fewer than four
                   batches
    ess            effective sample size P (1 - P) / mcse²
    r_hat          split-R̂; NaN with fewer than four draws of a chain. The rank-normalised one and
                   the folded one are the same: ranks of what is 0 or 1 are again two numbers
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
    move, and the variance between chains is taken.

    counts   (n_chains, n_batches, n_cells) draws in each cell
    lengths  (n_batches,) draws in each batch

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
    hits = counts.sum(axis=1)
    still = ((hits == 0) | (hits == lengths.sum())).all(axis=0)
    # One draw more or less is the least that an estimate may be off.
    mcse = np.where(still, np.nan, np.maximum(np.sqrt(variance), 1.0) / total)
    ess = p * (1 - p) / np.square(mcse)
    return Estimates(p, mcse, ess, np.where(still, np.nan, _split_r_hat(counts, lengths)))


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
    least_ess           as many draws it is worth at least, whatever was not drawn; None of Gibbs
                        sampling
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
    least_ess: float | None = None


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
    could not move (an OR with its causes). Where neighbours may hold a node in place (`held`), all
    nodes that are connected with it are drawn jointly from tables that elimination gives, so that
    sweeps are independent; if these do not fit, those that probabilities near 0 tie to each other.

    Options are those of `BayesianNetwork.query`. Every chain retains as many sweeps, so that there
    are a few more than `draws` if `chains` does not divide them; chains go in lock step, 16 at a
    time, and each has its own stream: the same seed gives the same bits on any number of threads.
    The counts of a group are those of a run that is asked for that group alone.

    Raises DataError when the evidence is impossible, or nothing possible was found with it,
    MemoryLimitError when the groups have too many joint states, or a node too many states.

    Time is draws (+ burn-in, times thin) times nodes, about 3 ns each on one thread where tables
    of the blankets fit the cache. To count a node alone takes a tenth of what it takes to draw it,
    a third where chains go one by one. Tables are right to 2**-32: a state less probable than that
    given its blanket may never be drawn.

    Warns of nodes that are tied, or held in place, without being drawn together: chains then stay
    in a part of what is possible, and nothing in the draws of one chain shows it; R-hat over
    several chains may.
    Warns of probabilities that never changed in any chain, unless they are certain, of R-hat over
    1.01, of an effective sample size under 400.

    References
    ----------
    Geman and Geman 1984; Pearl 1987, Evidential reasoning using stochastic simulation of causal
    models; Jensen, Kong and Kjærulff 1995, Blocking Gibbs sampling in very large probabilistic
    expert systems; Vehtari et al. 2021, Rank-normalization, folding, and localization: an improved
    R-hat, section 4.
    """
    for name, value, least in (
        ("draws", draws, 1),
        ("burn_in", burn_in, 0),
        ("thin", thin, 1),
        ("chains", chains, 1),
        ("max_block", max_block, 1),
    ):
        check_whole(name, value, least)
    check_seed(seed)
    each = -(-draws // chains)
    check_cells(coded, groups, chains * 4)
    asked = asked_of(coded, groups)
    cells = int(asked.cell_at[-1])
    lengths = batch_lengths(each, chains, COUNTS // (max(cells, 1) * chains))
    program = compiled(coded, evidence, blocks=blocks, max_block=max_block)
    if program.left:
        _warn_of_ties(coded, program, blocks, max_block)
    elif program.held:
        _warn_of_held(coded, program.held, blocks)
    sequences = np.random.SeedSequence(seed).spawn(chains + 1)
    x = starts(coded, evidence, chains, np.random.default_rng(sequences[0]))
    streams = np.array([s.generate_state(4, np.uint64) for s in sequences[1:]]).T
    nothing = asked_of(coded, [])
    units = len(program.program.kinds)
    # numpy takes as long for one chain as for a few dozen.
    kernel = dispatch.load(
        "scoring.gibbs", float(each * thin + burn_in) * units * max(chains, LANES)
    )

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
        list(in_order(sampled, range(0, chains, LANES), resolved_threads(threads)))
    )
    hits = counts.sum(axis=1)
    certain = certain_cells(coded, evidence, asked, hits.sum(axis=0))
    figures = estimates(counts, lengths)
    figures = Estimates(
        figures.probabilities,
        *(
            np.where(certain, known, some)
            for known, some in zip((0.0, float(each * chains), 1.0), figures[1:], strict=True)
        ),
    )
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
    _warn_of_doubts(coded, groups, results)
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


def _warn_of_ties(coded: Coded, program: Compiled, blocks: bool, max_block: int) -> None:
    groups = [", ".join(repr(coded.names[v]) for v in nodes) for nodes in program.left]
    shown = "; ".join(groups[:5]) + (f"; and {len(groups) - 5} more" if len(groups) > 5 else "")
    remedy = (
        f"their joint states are over max_block={max_block:,}: raise it, or use exact inference"
        if blocks
        else "blocks=True resamples them together"
    )
    warn(
        f"probabilities {'of' if program.zeros else 'near'} 0 tie nodes together, so that chains "
        f"cannot move freely and estimates may be wrong however many draws are taken ({shown}); "
        f"{remedy}"
    )


def _warn_of_held(coded: Coded, held: Sequence[int], blocks: bool) -> None:
    names = ", ".join(repr(coded.names[v]) for v in held[:5])
    names += f" and {len(held) - 5:,} more" if len(held) > 5 else ""
    remedy = (
        "the tables that would draw them jointly are too large: use exact inference, more "
        "evidence, or more chains and draws"
        if blocks
        else "blocks=True draws them jointly"
    )
    warn(
        f"neighbours may hold nodes in place ({names}), so that chains hardly move and estimates "
        f"may be wrong by more than their standard errors say; {remedy}"
    )


def _warn_of_doubts(
    coded: Coded, groups: Sequence[Sequence[int]], results: Sequence[Sampled]
) -> None:
    """Warn of estimates whose figures do not say how far they are off, or say that it is far."""
    doubts = []
    for targets, found in zip(groups, results, strict=True):
        unknown, certain = np.isnan(found.mcse), found.mcse == 0
        if certain.all():
            continue
        r_hat = 0.0 if found.r_hat is None else np.fmax.reduce(found.r_hat, axis=None, initial=0)
        whole = np.inf if found.least_ess is None else found.least_ess
        ess = np.fmin.reduce(found.ess[~certain], axis=None, initial=whole)
        said = []
        if still := int(unknown.sum()):
            said.append(f"{still:,} of {unknown.size:,} probabilities never changed")
        if r_hat > R_HAT:
            said.append(f"R-hat {r_hat:.3g} is over {R_HAT}")
        if ess < ESS:
            said.append(f"the effective sample size {ess:,.0f} is under {ESS}")
        if said:
            doubts.append(", ".join(repr(coded.names[v]) for v in targets) + ": " + ", ".join(said))
    if doubts:
        more = f"; and {len(doubts) - 3:,} more" if len(doubts) > 3 else ""
        warn(
            f"these estimates may be wrong by more than their standard errors say: "
            f"{'; '.join(doubts[:3])}{more}; take more draws, or method='exact'"
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

    `ess` is that of the weights, (sum w)² / sum w², for every probability; all but the probability
    is NaN where no row or every row that counts has the state. Rows that were not drawn may have a
    weight of u, the largest there is: 3 / T of all rows could, and double what T rows show unless
    sum w / u is large. That is at most `ess`; below 400 it warns, and one over it is the smallest
    standard error.

    Raises DataError when no row agrees with the evidence, MemoryLimitError when the groups have too
    many joint states.

    References
    ----------
    Fung and Chang 1990; Shachter and Peot 1990. The standard error is that of a ratio: Owen,
    Monte Carlo theory, methods and examples, 2013, equation 9.8.
    """
    check_whole("draws", draws, 1)
    check_seed(seed)
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
    for largest, some in in_order(drawn, range(chunks), resolved_threads(threads)):
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
    certain = certain_cells(coded, evidence, asked, sums[0])
    least = _log_largest_weight(coded, evidence)
    results = []
    for targets, first, last in zip(groups, asked.cell_at, asked.cell_at[1:], strict=False):
        shape = tuple(int(coded.sizes[v]) for v in targets)
        known = certain[first:last].reshape(shape)
        some = sums[:, first:last].reshape(2, *shape)
        results.append(_sampled(some, known, highest, draws, least))
    _warn_of_doubts(coded, groups, results)
    return results


def _log_largest_weight(coded: Coded, evidence: Mapping[int, int]) -> float:
    """Return ln of the largest P(evidence | parents of the observed nodes) there is, or more."""
    factors = inference.factors_of(coded, evidence, evidence)
    order = inference.order_of(coded, factors, ())
    logs = list(inference.logarithms(factors))
    if order.cells > inference.LARGEST:
        return sum(float(factor.table.max()) for factor in logs)
    return float(inference.log_eliminated(logs, order.nodes, largest=True))


def _sampled(
    sums: Floats, certain: Bools, log_scale: float, draws: int, log_largest: float
) -> Sampled:
    """Return what sums of w and of w² tell, (2, sizes of targets ...), the scale of w left out."""
    weights, squares = sums
    all_weights, all_squares = (float(some.ravel().sum()) for some in sums)
    p = weights / all_weights
    ess = all_weights**2 / all_squares
    variance = np.square(1 - p) * squares + np.square(p) * (all_squares - squares)
    # A row that was not drawn, of the largest weight, moves an estimate by so much.
    least = math.exp(log_scale + math.log(all_weights) - log_largest)
    mcse = np.maximum(np.sqrt(np.maximum(variance, 0)) / all_weights, 1 / least)
    still = (weights == 0) | (squares == all_squares)
    spread = max(all_squares / all_weights**2 - 1 / draws, 0.0)
    return Sampled(
        p,
        np.where(certain, 0.0, np.where(still, np.nan, mcse)),
        np.where(still & ~certain, np.nan, ess),
        None,
        draws,
        log_evidence=log_scale + math.log(all_weights / draws),
        log_evidence_error=math.sqrt(spread),
        least_ess=least,
    )
