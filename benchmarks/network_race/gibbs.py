"""Gibbs sampling: node updates a second, and how wrong marginals are after equal wall time."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import alarm
from benchmarks.network_race import jags
from benchmarks.network_race.common import (
    STATES,
    Floats,
    Found,
    Options,
    Side,
    Turn,
    interleaved,
    network,
    rate_lines,
    short,
)
from fastbayes.core.threads import default_threads

# What is observed: three nodes in the middle, or all that have no children.
THREE = ("BP", "EXPCO2", "HRBP")
LEAVES = tuple(sorted({*alarm.SIZES} - {p for above in alarm.PARENTS.values() for p in above}))
BURN_IN = 1_000
# Sweeps, or seconds, of a turn that measures rates: about half a second.
OURS, JAGS, AGRUM = 4_000_000, 50_000, 0.5
# Ours get this part of the time, so that they end before the others.
SHARE = 0.9
BEST = "fastbayes, 32 chains, one thread"

# Takes so many sweeps, pyAgrum so many seconds, and a seed.
Sampler = Callable[[Any, int], Turn]


@functools.cache
def exact(observed: tuple[str, ...]) -> dict[str, Floats]:
    """Return the marginals of all nodes that are not observed, each eliminated by itself."""
    evidence = dict.fromkeys(observed, STATES[0])
    free = [name for name in network().nodes if name not in evidence]
    return {name: network().query(name, evidence).probabilities for name in free}


def error(found: Mapping[str, Any], observed: tuple[str, ...]) -> float:
    """Return the mean over nodes of the mean absolute error over states."""
    true = exact(observed)
    off = float(np.mean([np.abs(np.asarray(found[n]) - p).mean() for n, p in true.items()]))
    # Marginals of something else miss by more, however few the draws.
    assert off < 0.1, off
    return off


def samplers(options: Options, observed: tuple[str, ...]) -> dict[str, Sampler]:
    """Return what samples all nodes that are not observed, and counts all of them."""
    given, names = network(), list(alarm.SIZES)
    evidence = dict.fromkeys(observed, STATES[0])
    free = len(names) - len(observed)

    def ours(chains: int, threads: int | None) -> Sampler:
        def run(sweeps: int, seed: int) -> Turn:
            start = time.perf_counter()
            answers = given.marginals(
                evidence,
                method="gibbs",
                draws=sweeps,
                burn_in=BURN_IN,
                chains=chains,
                threads=threads,
                seed=seed,
            )
            spent = time.perf_counter() - start
            found = {name: answer.probabilities for name, answer in answers.items()}
            # Burning in is work, too.
            done = (sweeps + chains * BURN_IN) * free
            return {"seconds": spent, "units": done, "error": error(found, observed)}

        return run

    def by_jags(sweeps: int, seed: int) -> Turn:
        assert options.jags is not None
        number = {name: v for v, name in enumerate(names)}
        drawn = jags.run(
            options.jags,
            options.folder,
            [[number[p] for p in given.parents[name]] for name in names],
            [np.asarray(given.tables[name]) for name in names],
            {number[name]: 0 for name in observed},
            sweeps,
            burn_in=BURN_IN,
            seed=seed + 1,
        )
        found = {names[v]: share for v, share in drawn.marginals.items()}
        done = {"seconds": drawn.seconds, "units": sweeps * free}
        return {**done, "error": error(found, observed)}

    def by_agrum(seconds: float, seed: int) -> Turn:
        path = options.folder / "alarm.bif"
        given.write(path, force=True)
        told = {"network": str(path), "evidence": evidence, "seconds": seconds, "seed": seed + 1}
        reply = options.ask("agrum_gibbs", **told)
        done = {"seconds": reply["seconds"], "units": reply["sweeps"] * free}
        return {**done, "error": error(reply["marginals"], observed)}

    return {
        "fastbayes, one chain, one thread": ours(1, 1),
        BEST: ours(32, 1),
        f"fastbayes, 32 chains, {default_threads()} threads": ours(32, None),
        **({"JAGS": by_jags} if options.jags else {}),
        **({"pyAgrum": by_agrum} if options.has("pyAgrum") else {}),
    }


def part(options: Options) -> Found:
    """Measure node updates per second, and the error after so many seconds."""
    lines, kept, rates = [], {}, {}
    for observed in (LEAVES, THREE):
        free = len(alarm.SIZES) - len(observed)
        much = {"JAGS": JAGS, "pyAgrum": AGRUM}
        sides = {}
        for name, sampler in samplers(options, observed).items():
            sampler(0.1 if name == "pyAgrum" else 1_000, 99)  # warm
            run = functools.partial(sampler, much.get(name, OURS))
            sides[name] = Side(run, name.startswith("fastbayes"))
        interleaved(sides, options.turns)
        title = (
            f"Gibbs sampling, {len(observed)} of 37 nodes observed, {free} marginals counted; "
            "the figures of JAGS and pyAgrum are of one chain"
        )
        lines += rate_lines(title, sides, "node updates", 1e6)
        kept[f"rate, {len(observed)} observed"] = {n: side.turns for n, side in sides.items()}
        rates = {name: side.per_second() / free for name, side in sides.items()}
    some, kept["error"] = _errors(options, THREE, rates)
    return [*lines, *some], kept


def _errors(options: Options, observed: tuple[str, ...], rates: Mapping[str, float]) -> Found:
    """Measure errors after so many seconds, given sweeps a second."""
    free = len(alarm.SIZES) - len(observed)
    cells: dict[str, list[str]] = {name: [] for name in rates}
    kept = {}
    for budget in options.budgets:
        sides = {}
        for name, sampler in samplers(options, observed).items():
            amount: float = budget
            if name.startswith("fastbayes"):
                burnt = BURN_IN * (32 if "32" in name else 1)
                amount = max(int(SHARE * budget * rates[name]) - burnt, 1_000)
            elif name == "JAGS":
                amount = max(int(budget * rates[name]), 1_000)
            sides[name] = Side(functools.partial(sampler, amount), name.startswith("fastbayes"))
        interleaved(sides, options.turns)
        kept[f"{budget:g} s"] = {name: side.turns for name, side in sides.items()}
        for name, side in sides.items():
            told = f"{side.median('error'):.2g} in {side.median('seconds'):.2g} s"
            if not side.ours:
                told += f", {short(side.median('error') / sides[BEST].median('error'))} × ours"
            cells[name].append(told)
    title = (
        f"Mean absolute error of {free} marginals against exact ones at equal wall time, "
        f"{len(observed)} of 37 nodes observed; × ours: of 32 chains on one thread"
    )
    lines = [
        title,
        "",
        f"| | {' | '.join(f'{budget:g} s' for budget in options.budgets)} |",
        "|---|" + "--:|" * len(options.budgets),
        *(f"| {name} | {' | '.join(told)} |" for name, told in cells.items()),
        "",
    ]
    return lines, kept
