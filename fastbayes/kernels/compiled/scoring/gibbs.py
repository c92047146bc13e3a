"""Gibbs sampling of a compiled network: one chain, or sixteen in lock step.

A look-up waits for memory and a draw for the words of its generator; sixteen chains that resample
the same unit at the same time do both for vectors, and only the look-ups one by one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels.compiled.simd.memory import borrow
from fastbayes.kernels.dispatch import helper, kernel, readonly, reads, scalar, writes
from fastbayes.kernels.shared.gibbs import FAINT, HIGHEST, LANES, TABLE, CountedGroups, Program

_INT = reads("int64")
_PROGRAM = (
    *(*[_INT] * 5, reads("uint16"), _INT, _INT, reads("uint16"), _INT, reads("uint32")),
    *(*[_INT] * 7, reads("float64")),
)
_ASKED = ("int64", "int64", *[_INT] * 4)
_WEIGHING = (writes("float64"), writes("int64"))

SIGNATURES = {
    "sample_chain": [
        (
            *_PROGRAM,
            writes("uint16"),
            writes("uint64"),
            *_ASKED,
            writes("int64"),
            *_WEIGHING,
        )
    ],
    "sample_lanes": [
        (
            *(*_PROGRAM, writes("uint16", 2), writes("uint64", 2), *_ASKED, writes("uint16")),
            *(*_WEIGHING, writes("uint16"), writes("uint32"), writes("uint16")),
            *(writes("uint64"), writes("uint64"), writes("float64"), writes("float64", 2)),
        )
    ],
}

# Fewer chains than this go one by one, more in lock step with idle ones next to them.
FEW = 5
# Thresholds up to which all are compared, and states of a node up to which all are counted.
COMPARED = 12
# Draws that can be counted in 16 bits.
COUNTED = 2**16 - 1

U16, U32, U64 = np.uint16, np.uint32, np.uint64
_SCRATCH = (
    *(("row", U16), ("share", U32), ("state", U16), ("word", U64)),
    *(("place", U64), ("total", np.float64)),
)


def run(
    program: Program,
    x: NDArray[np.uint16],
    streams: NDArray[np.uint64],
    draws: int,
    thin: int,
    groups: CountedGroups,
    counts: NDArray[np.int64],
) -> None:
    """Sweep `draws` times `thin` times over all units, and count; see the numpy twin."""
    n_chains = x.shape[1]
    most = int(program.states.max(initial=1))
    weights = borrow("gibbs weights", (most,), np.float64)
    exponents = borrow("gibbs exponents", (most,), np.int64)
    asked = [readonly(array) for array in groups]
    for first in range(0, n_chains, LANES):
        some = slice(first, min(first + LANES, n_chains))
        n = some.stop - first
        if n <= FEW:
            given = (draws, thin, *asked)
            for chain in range(first, some.stop):
                states, words = x[:, chain].copy(), streams[:, chain].copy()
                sample_chain(*program, states, words, *given, counts[chain], weights, exponents)
                x[:, chain], streams[:, chain] = states, words
            continue
        # Idle lanes repeat the others.
        lanes = first + np.arange(LANES) % n
        states, words = np.take(x, lanes, axis=1), np.take(streams, lanes, axis=1)
        scratch = [
            *(borrow(f"gibbs {name}", (LANES,), kind) for name, kind in _SCRATCH),
            borrow("gibbs joint", (most, LANES), np.float64),
        ]
        for done in range(0, draws, COUNTED):
            given = (min(COUNTED, draws - done), thin, *asked)
            hits = np.zeros((counts.shape[1] + 3, LANES), np.uint16)
            given = (*given, hits.reshape(-1))
            sample_lanes(*program, states, words, *given, weights, exponents, *scratch)
            counts[some] += hits[:-3, :n].T
        x[:, some], streams[:, some] = states[:, :n], words[:, :n]


@helper
def place_of(f, x, table_of, factor_outer_at, factor_outer, factor_step):
    """Return where a factor's numbers for one chain's states x begin."""
    place = U64(table_of[f])
    for o in range(factor_outer_at[f], factor_outer_at[f + U64(1)]):
        place += U64(factor_step[U64(o)]) * U64(x[U64(factor_outer[U64(o)])])
    return place


@helper
def product_draw(
    unit, n_states, word, x, factor_at, table_of, offset_at, offsets, factor_outer_at,
    factor_outer, factor_step, probabilities, weights, exponents,
):  # fmt: skip
    """Return a state drawn from the product of a unit's factors, of one chain's states x."""
    first, last = factor_at[unit], factor_at[U64(unit + 1)]
    for f in range(first, last):
        place = place_of(U64(f), x, table_of, factor_outer_at, factor_outer, factor_step)
        at = U64(offset_at[U64(f)])
        if f == first:
            for v in range(U64(n_states)):
                weights[v] = probabilities[place + U64(offsets[at + v])]
        else:
            for v in range(U64(n_states)):
                weights[v] *= probabilities[place + U64(offsets[at + v])]
    total = 0.0
    for v in range(U64(n_states)):
        total += weights[v]
        weights[v] = total
    if total < FAINT:
        # Once more, with the exponents apart, so that nothing possible becomes 0.
        for v in range(n_states):
            weights[v], exponents[v] = 0.5, 1
        for f in range(first, last):
            place = place_of(U64(f), x, table_of, factor_outer_at, factor_outer, factor_step)
            for v in range(n_states):
                factor = probabilities[place + U64(offsets[offset_at[f] + v])]
                mantissa, more = math.frexp(factor)
                weights[v], again = math.frexp(weights[v] * mantissa)
                exponents[v] += np.int64(more) + np.int64(again)
        largest = np.int64(-(2**62))
        for v in range(n_states):
            if weights[v] > 0 and exponents[v] > largest:
                largest = exponents[v]
        total = 0.0
        for v in range(n_states):
            power = max(min(exponents[v] - largest, 0), -2000)
            total += math.ldexp(weights[v], np.int32(power))
            weights[v] = total
    share = np.float64(word >> U64(11)) * 2.0**-53 * total
    state = 0
    for v in range(U64(n_states - 1)):
        state += np.int64(share >= weights[v])
    return state


@helper
def rank(thresholds, at, n, share):
    """Return how many of n ascending thresholds from `at` on are at most `share`."""
    low = U64(0)
    if n <= U64(COMPARED):
        for v in range(n):
            low += U64(share >= thresholds[at + U64(v)])
        return low
    high = n
    while low < high:
        middle = (low + high) >> U64(1)
        if share >= thresholds[at + middle]:
            low = middle + U64(1)
        else:
            high = middle
    return low


@kernel
@scalar
def sample_chain(
    kinds, states, member_at, members, value_at, values, outer_at, outer, outer_step, table_at,
    thresholds, factor_at, table_of, offset_at, offsets, factor_outer_at, factor_outer,
    factor_step, probabilities, x, streams, draws, thin, target_at, targets, steps, cell_at, counts,
    weights, exponents,
):  # fmt: skip
    """Sweep one chain over all units, `draws` times `thin` times; count after every `thin`.

    counts[cell_at + sum of step * x[target]] += 1

    kinds ... probabilities  IN  the fields of Program
    x        IN, OUT  (n_nodes,) uint16
    streams  IN, OUT  (4,) uint64
    draws    IN       int64
    thin     IN       int64
    target_at ... cell_at  IN  the fields of Groups
    counts   OUT      (n_cells,) int64
    weights, exponents  scratch  (most states,) float64, int64
    """
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(draws):
        for _ in range(thin):
            for u in range(kinds.size):
                word = s0 + s3
                word = ((word << U64(23)) | (word >> U64(41))) + s0
                shifted = s1 << U64(17)
                s2 ^= s0
                s3 ^= s1
                s1 ^= s2
                s0 ^= s3
                s2 ^= shifted
                s3 = (s3 << U64(45)) | (s3 >> U64(19))
                n_states = states[u]
                if kinds[u] == TABLE:
                    row = U64(0)
                    for o in range(outer_at[u], outer_at[u + 1]):
                        row += U64(outer_step[U64(o)]) * U64(x[U64(outer[U64(o)])])
                    share = U32(min(word >> U64(32), U64(HIGHEST)))
                    n = U64(n_states - 1)
                    q = U64(table_at[u]) + row * n
                    if n <= U64(3):
                        # The table ends with two thresholds more: reading on is allowed.
                        found = np.int64(share >= thresholds[q])
                        found += np.int64((n > U64(1)) & (share >= thresholds[q + U64(1)]))
                        found += np.int64((n > U64(2)) & (share >= thresholds[q + U64(2)]))
                    else:
                        found = np.int64(rank(thresholds, q, n, share))
                else:
                    found = product_draw(
                        u, n_states, word, x, factor_at, table_of, offset_at, offsets,
                        factor_outer_at, factor_outer, factor_step, probabilities, weights,
                        exponents,
                    )  # fmt: skip
                at = value_at[u]
                if at < 0:
                    x[U64(members[U64(member_at[u])])] = U16(found)
                else:
                    for m in range(member_at[u], member_at[u + 1]):
                        x[U64(members[U64(m)])] = values[U64(at + found)]
                        at += n_states
        for g in range(target_at.size - 1):
            cell = U64(cell_at[g])
            for t in range(target_at[g], target_at[g + 1]):
                cell += U64(steps[U64(t)]) * U64(x[U64(targets[U64(t)])])
            counts[cell] += 1
    streams[0], streams[1], streams[2], streams[3] = s0, s1, s2, s3


@kernel
def sample_lanes(
    kinds, states, member_at, members, value_at, values, outer_at, outer, outer_step, table_at,
    thresholds, factor_at, table_of, offset_at, offsets, factor_outer_at, factor_outer,
    factor_step, probabilities, x, streams, draws, thin, target_at, targets, steps, cell_at, counts,
    weights, exponents, row, share, state, word, place, total, joint,
):  # fmt: skip
    """Sweep LANES chains over all units, `draws` times `thin` times; count after every `thin`.

    counts[(cell_at + sum of step * x[target, lane]) * LANES + lane] += 1

    As `sample_chain`, but x (n_nodes, LANES), streams (4, LANES), draws at most COUNTED, and
    counts   OUT      ((n_cells + 3) * LANES,) uint16   the last three cells stay empty
    row, share, state, word, place, total  scratch  (LANES,) of `_SCRATCH`
    joint    scratch  (most states, LANES) float64
    """
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(draws):
        for _ in range(thin):
            for u in range(kinds.size):
                for c in range(LANES):
                    w = s0[c] + s3[c]
                    word[c] = ((w << U64(23)) | (w >> U64(41))) + s0[c]
                    shifted = s1[c] << U64(17)
                    s2[c] ^= s0[c]
                    s3[c] ^= s1[c]
                    s1[c] ^= s2[c]
                    s0[c] ^= s3[c]
                    s2[c] ^= shifted
                    s3[c] = (s3[c] << U64(45)) | (s3[c] >> U64(19))
                n_states = states[u]
                if kinds[u] == TABLE:
                    for c in range(LANES):
                        row[c] = U16(0)
                    for o in range(outer_at[u], outer_at[u + 1]):
                        step, of = outer_step[U64(o)], x[U64(outer[U64(o)])]
                        for c in range(LANES):
                            row[c] = U16(row[c] + U16(step * of[c]))
                    for c in range(LANES):
                        share[c] = U32(min(word[c] >> U64(32), U64(HIGHEST)))
                    at, n = U64(table_at[u]), U64(n_states - 1)
                    if n == U64(1):
                        for c in range(LANES):
                            state[c] = U16(share[c] >= thresholds[at + U64(row[c])])
                    elif n == U64(2):
                        for c in range(LANES):
                            q = at + U64(row[c]) * U64(2)
                            state[c] = U16(
                                U16(share[c] >= thresholds[q])
                                + U16(share[c] >= thresholds[q + U64(1)])
                            )
                    elif n == U64(3):
                        for c in range(LANES):
                            q = at + U64(row[c]) * U64(3)
                            state[c] = U16(
                                U16(share[c] >= thresholds[q])
                                + U16(share[c] >= thresholds[q + U64(1)])
                                + U16(share[c] >= thresholds[q + U64(2)])
                            )
                    else:
                        for c in range(LANES):
                            q = at + U64(row[c]) * n
                            state[c] = U16(rank(thresholds, q, n, share[c]))
                else:
                    first, last = factor_at[u], factor_at[u + 1]
                    for f in range(first, last):
                        for c in range(LANES):
                            place[c] = U64(table_of[U64(f)])
                        for o in range(factor_outer_at[U64(f)], factor_outer_at[U64(f + 1)]):
                            far, of = U64(factor_step[U64(o)]), x[U64(factor_outer[U64(o)])]
                            for c in range(LANES):
                                place[c] += far * U64(of[c])
                        for v in range(U64(n_states)):
                            offset, weight = U64(offsets[U64(offset_at[f]) + v]), joint[v]
                            if f == first:
                                for c in range(LANES):
                                    weight[c] = probabilities[place[c] + offset]
                            else:
                                for c in range(LANES):
                                    weight[c] *= probabilities[place[c] + offset]
                    for c in range(LANES):
                        total[c] = 0.0
                    for v in range(U64(n_states)):
                        weight = joint[v]
                        for c in range(LANES):
                            total[c] += weight[c]
                            weight[c] = total[c]
                    faint = False
                    for c in range(LANES):
                        faint |= total[c] < FAINT
                        total[c] *= np.float64(word[c] >> U64(11)) * 2.0**-53
                        state[c] = U16(0)
                    for v in range(U64(n_states - 1)):
                        weight = joint[v]
                        for c in range(LANES):
                            state[c] = U16(state[c] + U16(total[c] >= weight[c]))
                    if faint:
                        for c in range(LANES):
                            state[c] = product_draw(
                                u, n_states, word[c], x[:, c], factor_at, table_of, offset_at,
                                offsets, factor_outer_at, factor_outer, factor_step, probabilities,
                                weights, exponents,
                            )  # fmt: skip
                at_value = value_at[u]
                if at_value < 0:
                    of = x[U64(members[U64(member_at[u])])]
                    for c in range(LANES):
                        of[c] = state[c]
                else:
                    for m in range(member_at[u], member_at[u + 1]):
                        of = x[U64(members[U64(m)])]
                        for c in range(LANES):
                            of[c] = values[U64(at_value) + U64(state[c])]
                        at_value += n_states
        for g in range(target_at.size - 1):
            first, last = target_at[g], target_at[g + 1]
            begin, end = cell_at[g], cell_at[g + 1]
            if last - first == 1 and end - begin <= COMPARED:
                of = x[U64(targets[first])]
                # Four at a time, by vectors: a state that the node has not is never met.
                for v in range(U64(0), U64(end - begin), U64(4)):
                    at, value = (U64(begin) + v) * U64(LANES), U16(v)
                    for c in range(U64(LANES)):
                        over = U16(of[c] - value)
                        counts[at + c] += U16(over == U16(0))
                        counts[at + U64(LANES) + c] += U16(over == U16(1))
                        counts[at + U64(2 * LANES) + c] += U16(over == U16(2))
                        counts[at + U64(3 * LANES) + c] += U16(over == U16(3))
                continue
            for c in range(LANES):
                place[c] = U64(begin)
            for t in range(first, last):
                far, of = U64(steps[U64(t)]), x[U64(targets[U64(t)])]
                for c in range(LANES):
                    place[c] += far * U64(of[c])
            for c in range(LANES):
                counts[place[c] * U64(LANES) + U64(c)] += U16(1)
