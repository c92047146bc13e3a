"""Gibbs sampling with evidence: many chains, nodes that zeros tie resampled together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastbayes.core.errors import MemoryLimitError
from fastbayes.core.warn import warn
from fastbayes.kernels import dispatch
from fastbayes.kernels.numpy.gibbs import LANES, CountedGroups
from fastbayes.networks.graph.coded import Coded, Floats, Ints
from fastbayes.networks.sample.blankets import compiled, steps_of
from fastbayes.networks.sample.estimates import Estimates, batch_lengths, estimates
from fastbayes.networks.sample.starts import starts
from fastbayes.scan import engine

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

    lanes = range(0, chains, LANES)
    counts = np.concatenate(list(engine.in_order(sampled, lanes, engine.resolved_threads(threads))))
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
