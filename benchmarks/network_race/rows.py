"""The posterior of a node for every row of a table."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pac
from numpy.typing import NDArray

import fastbayes as fb
from benchmarks import network_cases
from benchmarks.network_race.common import (
    Found,
    Options,
    Side,
    Turn,
    as_table,
    interleaved,
    network,
    rate_lines,
    without,
)
from fastbayes.core.threads import default_threads

Codes = dict[str, NDArray[np.int8]]

# Peers answer so many rows; those with 0 take no missing values.
PEERS = (
    ("pyAgrum", "BNClassifier", "agrum_classifier", 10_000, 0),
    ("pyAgrum", "LazyPropagation", "agrum_lazy", 2_000, 2_000),
    ("pgmpy", "VariableElimination", "pgmpy_eliminate", 200, 200),
    ("pgmpy", "predict", "pgmpy_predict", 100, 0),
)
FEW = 10_000
# Rows with missing values are so many times fewer.
HOLED = 5
# Rows asked for one by one.
ASKED = 20


def part(options: Options) -> Found:
    """Measure the posterior of a node for every row, all others observed or some missing."""
    lines, kept = [], {}
    for given, title, target in (
        (network_cases.asia(), "asia", "bronc"),
        (network(), "a network like ALARM", "INTUBATION"),
    ):
        full = _drawn(given, options.class_rows)
        random = np.random.default_rng(6)
        fewer = options.class_rows // HOLED
        holed = {
            name: np.where(random.random(fewer) < 0.1, -1, column[:fewer]).astype(np.int8)
            for name, column in full.items()
        }
        for about, codes in (("all others observed", full), ("a tenth missing", holed)):
            sides = _sides(options, given, target, codes, whole=codes is full)
            interleaved(sides, options.turns)
            _check(given, target, codes, sides)
            what = f"P({target} | row) of {title}, {about}, {len(codes[target]):,} rows"
            lines += rate_lines(f"{what}; of them peers answer the first", sides, "rows")
            kept[what] = {n: [without(t, "found") for t in side.turns] for n, side in sides.items()}
    return lines, kept


def _drawn(given: fb.BayesianNetwork, rows: int) -> Codes:
    drawn = given.sample(rows, seed=5)
    return {
        name: pac.index_in(drawn[name], pa.array(given.states[name])).to_numpy().astype(np.int8)
        for name in given.nodes
    }


def _sides(
    options: Options, given: fb.BayesianNetwork, target: str, codes: Codes, *, whole: bool
) -> dict[str, Side]:
    table = as_table(codes, given.states).drop_columns([target])
    bif, path = options.folder / "given.bif", options.folder / "rows.npz"
    given.write(bif, force=True)
    few = np.stack([column[:FEW] for column in codes.values()])
    np.savez(path, names=np.array([*codes]), codes=few)

    def ours(threads: int | None, _: int) -> Turn:
        """Answer for an Arrow table, which is read and encoded."""
        start = time.perf_counter()
        found = given.predict_proba(table, target, threads=threads)
        spent = time.perf_counter() - start
        return {"seconds": spent, "units": len(found), "found": found[:FEW].copy()}

    def theirs(action: str, rows: int, _: int) -> Turn:
        told = {"network": str(bif), "path": str(path), "target": target, "rows": rows}
        reply = options.ask(action, **told)
        found = np.array(reply["states" if action == "pgmpy_predict" else "posteriors"])
        return {"seconds": reply["seconds"], "units": rows, "found": found}

    ours(None, 0)  # compiled
    sides = {
        "fastbayes, one thread": Side(functools.partial(ours, 1), True),
        f"fastbayes, {default_threads()} threads": Side(functools.partial(ours, None), True),
    }
    for peer, name, action, most, holed in PEERS:
        rows = min(most if whole else holed, few.shape[1])
        if rows and options.has(peer):
            sides[f"{peer}, {name}"] = Side(functools.partial(theirs, action, rows))
    return sides


def _check(given: fb.BayesianNetwork, target: str, codes: Codes, sides: Mapping[str, Side]) -> None:
    """Raise where posteriors differ: from each other, and from a query of the row alone.

    Peers read files into float32.
    """
    ours = next(iter(sides.values())).turns[0]["found"]
    for row, answer in enumerate(ours[:ASKED]):
        evidence = {
            name: given.states[name][column[row]]
            for name, column in codes.items()
            if column[row] >= 0 and name != target
        }
        np.testing.assert_allclose(answer, given.query(target, evidence).probabilities, atol=1e-12)
    for name, side in sides.items():
        found: Any = side.turns[0]["found"]
        if found.ndim == 1:
            assert (ours[: len(found)].argmax(axis=1) == found).all(), name
        else:
            off = np.abs(ours[: len(found)] - found).max()
            assert off <= (0 if side.ours else 1e-6), (name, off)
