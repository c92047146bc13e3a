"""Moves of a climb against all moves tried one by one, and what is counted for them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_cases import random_codes, table_of
from oracles import network_scores as naive

from fastbayes.networks.search.node_rows import ReadOptions, read_rows
from fastbayes.networks.search.score import FamilyScores, ScoreRule, members
from fastbayes.networks.search.searches import Climber, Limits, Move
from fastbayes.networks.search.structure_search import learned

SCORES = ("mdl", "bdeu", "k2")
N = 5


def climber(seed, name):
    """Return a climber over a few nodes, and what its graph may be."""
    rng = np.random.default_rng(seed)
    columns, sizes = random_codes(rng, 60, N)
    table, domains = table_of(columns, sizes)
    names = sorted(domains)
    rows = read_rows(table, ReadOptions(domains=domains))
    assert list(rows.names) == names
    forbidden, required = [0] * N, [0] * N
    for v in range(N):
        for u in range(N):
            if u != v and rng.random() < 0.1:
                forbidden[v] |= 1 << u
            elif u < v and rng.random() < 0.1:
                required[v] |= 1 << u
    most = max(int(rng.integers(1, 5)), *(mask.bit_count() for mask in required))
    limits = Limits(required, forbidden, most)
    return rng, Climber(FamilyScores(rows, ScoreRule(name)), limits, list(required)), limits


def allowed(parents, limits):
    """Return whether a graph may be."""
    return naive.acyclic([members(mask) for mask in parents]) and all(
        mask & must == must and not mask & never and mask.bit_count() <= limits.max_parents
        for mask, must, never in zip(parents, limits.required, limits.forbidden, strict=True)
    )


def moves(parents, limits, score):
    """Return the gain of each move that may be, {(kind, u, v): gain}."""
    result, before = {}, score(parents)
    for u, v in itertools.permutations(range(N), 2):
        there = bool(parents[v] >> u & 1)
        after = list(parents)
        after[v] ^= 1 << u
        changed = {"drop" if there else "add": list(after)}
        if there:
            after[u] |= 1 << v
            changed["reverse"] = after
        for kind, graph in changed.items():
            # Of a node that has as many parents as can be no edge is reversed towards it.
            if allowed(graph, limits):
                result[kind, u, v] = score(graph) - before
    return result


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_best__is_the_best_of_all_moves(name, seed):
    rng, climbing, limits = climber(seed, name)
    total = FamilyScores(climbing.scores.rows, ScoreRule(name)).total
    for _ in range(12):
        frozen = rng.random((N, N)) < rng.choice([0.0, 0.2, 1.0])
        over = float(rng.choice([-np.inf, 0.5, np.inf]))
        all_moves = moves(climbing.parents, limits, total)
        some = {m: g for m, g in all_moves.items() if not frozen[m[1:]] or g > over}
        for move, gains in ((climbing.best(), all_moves), (climbing.best(frozen, over), some)):
            top = max(gains.values(), default=-np.inf)
            if move is None:
                # Additions that can never pay are not counted.
                assert all(kind == "add" and gain <= 1e-9 for (kind, *_), gain in gains.items())
                continue
            assert move.gain == pytest.approx(gains[move[:3]], abs=1e-8)
            assert move.gain == pytest.approx(top, abs=1e-8) or top <= 1e-9
        if not all_moves:
            break
        # On by any move, or to another graph.
        if rng.random() < 0.2:
            climbing.set(climbing.shaken(rng))
        else:
            move = [*all_moves][int(rng.integers(len(all_moves)))]
            climbing.make(Move(*move, all_moves[move]))
        assert climbing.score == pytest.approx(total(climbing.parents), rel=1e-12)
        assert allowed(climbing.parents, limits)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_restarts_reach_every_edge_that_may_be(seed):
    """From the required edges alone, which hide no other."""
    rng, climbing, limits = climber(seed, "bdeu")
    reached = set()
    for _ in range(300):
        parents = climbing.joined(rng)
        assert allowed(parents, limits)
        reached |= {(u, v) for v in range(N) for u in members(parents[v])}
    for u, v in itertools.permutations(range(N), 2):
        more = list(limits.required)
        more[v] |= 1 << u
        assert ((u, v) in reached) == allowed(more, limits)


def turned_by_hand(climbing, random, times):
    parents = list(climbing.parents)
    for _ in range(times):
        covered = [
            (u, v)
            for v, mask in enumerate(parents)
            for u in members(mask)
            if mask == parents[u] | 1 << u and climbing.free[u, v] and climbing.allowed[v, u]
        ]
        if not covered:
            break
        u, v = covered[int(random.integers(len(covered)))]
        parents[v] ^= 1 << u
        parents[u] |= 1 << v
    return parents


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_turned__goes_over_covered_edges_alone(seed):
    _, climbing, _ = climber(seed, "bdeu")
    climbing.climb(lambda *_: True)
    for times in (1, 4, 20):
        one, two = np.random.default_rng(seed), np.random.default_rng(seed)
        found = climbing.turned(one, times)
        assert found == turned_by_hand(climbing, two, times)
        total = climbing.scores.total
        assert total(found) == pytest.approx(total(climbing.parents), rel=1e-12)


@pytest.mark.parametrize("search", ["hill_climb", "tabu", "exact", "chow_liu"])
@pytest.mark.parametrize("name", ["mdl", "k2", "bdeu"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_set__is_counted_once(search, name, sparse, monkeypatch):
    counted = []
    keep = FamilyScores._keep

    def kept(self, base, us, sums):
        counted.extend(sum(1 << v for v in base) | 1 << u for u in us)
        keep(self, base, us, sums)

    monkeypatch.setattr(FamilyScores, "_keep", kept)
    if sparse:
        monkeypatch.setattr("fastbayes.networks.search.score.SPARSE", 0)
        monkeypatch.setattr("fastbayes.networks.search.score.DENSE", 4)
    rng = np.random.default_rng(0)
    columns, sizes = random_codes(rng, 300, 7)
    table, domains = table_of(columns, sizes)
    learned(table, score=name, search=search, domains=domains)
    assert (counted and len(counted) == len(set(counted))) or search == "chow_liu"
