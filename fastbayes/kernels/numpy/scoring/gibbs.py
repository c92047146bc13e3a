"""Gibbs sampling of a compiled network, in numpy: the twin of `compiled.gibbs`, bit for bit."""

from __future__ import annotations

import numpy as np

from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.gibbs import (
    FAINT,
    HIGHEST,
    TABLE,
    CountedGroups,
    Program,
    States,
    Words,
)


def run(
    program: Program,
    x: States,
    streams: Words,
    draws: int,
    thin: int,
    groups: CountedGroups,
    counts: Ints,
) -> None:
    """Sweep `draws` times `thin` times over all units; count all groups after every `thin`.

    counts[chain, cell_at + sum of step * x[target, chain]] += 1

    program  IN
    x        IN, OUT  (n_nodes, n_chains) uint16   a state of positive probability
    streams  IN, OUT  (4, n_chains) uint64   state of each chain's generator
    groups   IN
    counts   OUT      (n_chains, n_cells) int64
    """
    chains, now = np.arange(x.shape[1]), x.astype(np.int64)
    edges = groups.target_at.tolist()
    asked = [
        (at, groups.targets[first:last], groups.steps[first:last])
        for at, first, last in zip(groups.cell_at.tolist(), edges, edges[1:], strict=False)
    ]
    for _ in range(draws):
        for _ in range(thin):
            for unit in range(len(program.kinds)):
                _resample(program, unit, now, next_words(streams))
        for at, targets, steps in asked:
            counts[chains, at + steps @ now[targets]] += 1
    x[:] = now


def next_words(streams: Words) -> Words:
    """Return the next 64 bits of each generator: xoshiro256++ (Blackman and Vigna 2021).

    streams  IN, OUT  (4, n_chains) uint64
    """
    s0, s1, s2, s3 = streams
    with np.errstate(over="ignore"):
        result = s0 + s3
        result = ((result << np.uint64(23)) | (result >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3[:] = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return np.asarray(result)


def _resample(program: Program, unit: int, x: Ints, words: Words) -> None:
    """Draw a unit of every chain from its distribution given the others."""
    n_states = int(program.states[unit])
    if program.kinds[unit] == TABLE:
        state = _looked_up(program, unit, n_states, x, words)
    else:
        cumulated = np.cumsum(products(program, unit, x), axis=1)
        share = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 * cumulated[:, -1]
        state = (share[:, None] >= cumulated[:, :-1]).sum(axis=1)
    members = program.members[program.member_at[unit] : program.member_at[unit + 1]]
    at = int(program.value_at[unit])
    if at < 0:
        x[members[0]] = state
        return
    for place, member in enumerate(members.tolist()):
        x[member] = program.values[at + place * n_states + state]


def _looked_up(program: Program, unit: int, n_states: int, x: Ints, words: Words) -> Ints:
    some = slice(program.outer_at[unit], program.outer_at[unit + 1])
    row = program.outer_step[some].astype(np.int64) @ x[program.outer[some]]
    share = np.minimum(words >> np.uint64(32), np.uint64(HIGHEST)).astype(np.uint32)
    places = program.table_at[unit] + row * (n_states - 1)
    thresholds = program.thresholds[places[:, None] + np.arange(n_states - 1)]
    return np.asarray((share[:, None] >= thresholds).sum(axis=1))


def products(program: Program, unit: int, x: Ints) -> Floats:
    """Return the weight of every state of a unit in each chain, (n_chains, states)."""
    n_states = int(program.states[unit])
    factors = []
    for f in range(program.factor_at[unit], program.factor_at[unit + 1]):
        base = np.full(x.shape[1], program.table_of[f])
        for o in range(program.factor_outer_at[f], program.factor_outer_at[f + 1]):
            base += program.factor_step[o] * x[program.factor_outer[o]]
        offsets = program.offsets[program.offset_at[f] :][:n_states]
        factors.append(program.probabilities[base[:, None] + offsets])
    weights = factors[0].copy()
    for factor in factors[1:]:
        weights *= factor
    # In the order of the states, as the kernel adds.
    faint = np.cumsum(weights, axis=1)[:, -1] < FAINT
    if faint.any():
        weights[faint] = _scaled([factor[faint] for factor in factors])
    return weights


def _scaled(factors: list[Floats]) -> Floats:
    """Return products of factors, those of each chain times a power of two that makes them near 1.

    The exponents are added apart, so that nothing possible becomes 0.
    """
    weights, exponents = np.frexp(factors[0])
    exponents = exponents.astype(np.int64)
    for factor in factors[1:]:
        mantissa, more = np.frexp(factor)
        weights, again = np.frexp(weights * mantissa)
        exponents += more
        exponents += again
    lowest = np.iinfo(np.int64).min // 2
    largest = np.where(weights > 0, exponents, lowest).max(axis=1, keepdims=True)
    return np.asarray(np.ldexp(weights, np.clip(exponents - largest, -2000, 0).astype(np.int32)))
