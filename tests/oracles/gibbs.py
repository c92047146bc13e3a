"""Gibbs sampling of a compiled network, one chain and one number at a time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

MASK = 2**64 - 1


def rotated(word, n):
    return ((word << n) | (word >> (64 - n))) & MASK


def next_word(s):
    """Return the next word of xoshiro256++; s is a list of four ints, changed in place."""
    word = (rotated((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
    shifted = (s[1] << 17) & MASK
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= shifted
    s[3] = rotated(s[3], 45)
    return word


def edges(program, unit, row):
    """Return the thresholds of a unit's states, of one chain's states."""
    n = int(program.states[unit])
    place = 0
    for o in range(program.outer_at[unit], program.outer_at[unit + 1]):
        place += int(program.outer_step[o]) * int(row[program.outer[o]])
    at = int(program.table_at[unit]) + place * (n - 1)
    return [int(t) for t in program.thresholds[at : at + n - 1]]


def weights(program, unit, row):
    """Return the products of a unit's factors as fractions, state by state."""
    result = []
    for state in range(int(program.states[unit])):
        product = Fraction(1)
        for f in range(program.factor_at[unit], program.factor_at[unit + 1]):
            place = int(program.table_of[f] + program.offsets[program.offset_at[f] + state])
            for o in range(program.factor_outer_at[f], program.factor_outer_at[f + 1]):
                place += int(program.factor_step[o]) * int(row[program.factor_outer[o]])
            product *= Fraction(float(program.probabilities[place]))
        result.append(product)
    return result


def conditional(program, unit, x):
    """Return the probability with which each state of a unit is drawn, (n_chains, states)."""
    result = []
    for row in x.T:
        if program.kinds[unit] == 0:
            cuts = [0, *edges(program, unit, row), 2**32 - 1]
            shares = np.diff([0.0] + [float(cut) for cut in cuts[1:]]) / 2**32
            # What lies beyond the highest threshold is read as the share before.
            last = max((v for v in range(len(shares)) if shares[v] > 0), default=0)
            shares[last] += 2.0**-32
            result.append(shares)
        else:
            all_of = weights(program, unit, row)
            result.append(np.array([float(w / sum(all_of)) for w in all_of]))
    return result


def moved(program, unit, state, row):
    """Return the states of a chain with a unit in another state."""
    row = list(row)
    for place, m in enumerate(range(program.member_at[unit], program.member_at[unit + 1])):
        at = int(program.value_at[unit])
        n = int(program.states[unit])
        row[program.members[m]] = state if at < 0 else int(program.values[at + place * n + state])
    return row


def run(program, x, streams, draws, thin, groups, n_cells):
    """Return states, generators and counts of the chains after `draws` times `thin` sweeps."""
    rows, words = x.T.tolist(), [[int(w) for w in s] for s in streams.T]
    counts = np.zeros((len(rows), n_cells), np.int64)
    for chain, (row, s) in enumerate(zip(rows, words, strict=True)):
        for _ in range(draws):
            for _ in range(thin):
                for unit in range(len(program.kinds)):
                    row[:] = moved(program, unit, drawn(program, unit, next_word(s), row), row)
            for g, cell in enumerate(groups.cell_at[:-1].tolist()):
                for t in range(groups.target_at[g], groups.target_at[g + 1]):
                    cell += int(groups.steps[t]) * row[groups.targets[t]]
                counts[chain, cell] += 1
    return np.array(rows, np.uint16).T, np.array(words, np.uint64).T, counts


def drawn(program, unit, word, row):
    """Return the state that a word draws."""
    if program.kinds[unit] == 0:
        share = min(word >> 32, 2**32 - 2)
        return sum(share >= edge for edge in edges(program, unit, row))
    products = []
    for state in range(int(program.states[unit])):
        product = None
        for f in range(program.factor_at[unit], program.factor_at[unit + 1]):
            place = int(program.table_of[f] + program.offsets[program.offset_at[f] + state])
            for o in range(program.factor_outer_at[f], program.factor_outer_at[f + 1]):
                place += int(program.factor_step[o]) * int(row[program.factor_outer[o]])
            factor = float(program.probabilities[place])
            product = factor if product is None else product * factor
        products.append(product)
    total, cumulated = 0.0, []
    for product in products:
        total += product
        cumulated.append(total)
    share = (word >> 11) * 2.0**-53 * total
    return sum(share >= edge for edge in cumulated[:-1])
