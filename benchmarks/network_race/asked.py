"""Other people's Bayesian networks, asked from outside: one JSON request a line, one reply a line.

`python benchmarks/network_race/asked.py`, by the interpreter that has the peers: it needs neither
fastbayes nor Arrow. Only numpy, pandas and the peers are imported, and these when they are asked
for something.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

Reply = dict[str, Any]
PEERS = {"pyAgrum": "pyagrum", "pgmpy": "pgmpy"}


def present() -> Reply:
    """Return the versions of the peers that are installed."""
    found = {}
    for peer, package in PEERS.items():
        try:
            found[peer] = version(package)
        except PackageNotFoundError:
            continue
    return found


def rows_of(path: str, rows: int) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the names of the columns and the codes of the first rows, -1 for missing."""
    with np.load(path) as kept:
        return kept["names"].tolist(), kept["codes"][:, :rows]


# -- pyAgrum -----------------------------------------------------------------------------------


def agrum_gibbs(network: str, evidence: dict[str, str], seconds: float, seed: int) -> Reply:
    """Sample so long; a sweep through all nodes in turn is its fastest and most exact way."""
    import pyagrum

    pyagrum.initRandom(seed)
    given = pyagrum.loadBN(network)
    free = [given.variable(v).name() for v in given.nodes()]
    free = [name for name in free if name not in evidence]
    sampler = pyagrum.GibbsSampling(given)
    sampler.setEvidence(evidence)
    sampler.setEpsilon(1e-12)
    sampler.setMinEpsilonRate(1e-12)
    sampler.setMaxIter(10**9)
    sampler.setPeriodSize(100)
    sampler.setBurnIn(100)
    sampler.setNbrDrawnVar(len(free))
    sampler.setDrawnAtRandom(False)
    sampler.setMaxTime(seconds)
    start = time.perf_counter()
    sampler.makeInference()
    spent = time.perf_counter() - start
    marginals = {name: sampler.posterior(name).tolist() for name in free}
    return {"seconds": spent, "sweeps": sampler.nbrIterations(), "marginals": marginals}


def agrum_learn(csv: str, search: str, threads: int) -> Reply:
    """Search for the graph of the best BIC; reading the file is not measured."""
    import pyagrum

    learner = pyagrum.BNLearner(csv)
    learner.setNumberOfThreads(threads)
    learner.useScoreBIC()
    learner.useNoPrior()
    if search == "tabu":
        learner.useLocalSearchWithTabuList()
    else:
        learner.useGreedyHillClimbing()
    # The graph alone: without a prior it refuses tables where a state of the parents is not seen.
    start = time.perf_counter()
    found = learner.learnDAG()
    spent = time.perf_counter() - start
    name = {v: learner.nameFromId(v) for v in found.nodes()}
    parents = {name[v]: [name[p] for p in found.parents(v)] for v in name}
    return {"seconds": spent, "parents": parents}


def agrum_lazy(network: str, path: str, target: str, rows: int) -> Reply:
    """Answer row by row by lazy propagation, what is missing being no evidence."""
    import pyagrum

    given = pyagrum.loadBN(network)
    names, codes = rows_of(path, rows)
    asked = [
        {name: int(c) for name, c in zip(names, row, strict=True) if c >= 0 and name != target}
        for row in codes.T
    ]
    engine = pyagrum.LazyPropagation(given)
    engine.addTarget(target)
    found = []
    start = time.perf_counter()
    for row in asked:
        engine.setEvidence(row)
        engine.makeInference()
        found.append(engine.posterior(target).tolist())
    return {"seconds": time.perf_counter() - start, "posteriors": found}


def agrum_classifier(network: str, path: str, target: str, rows: int) -> Reply:
    """Answer by pyAgrum's classifier, which looks at the Markov blanket of full rows."""
    import pandas
    import pyagrum
    import pyagrum.skbn
    from pyagrum.lib.discreteTypeProcessor import DiscreteTypeProcessor

    given = pyagrum.loadBN(network)
    names, codes = rows_of(path, rows)
    states = {name: np.array(given.variable(name).labels()) for name in names}
    frame = pandas.DataFrame(
        {n: states[n][c] for n, c in zip(names, codes, strict=True) if n != target}
    )
    states_as_they_are = DiscreteTypeProcessor(
        defaultDiscretizationMethod="NoDiscretization", defaultNumberOfBins=None
    )
    model = pyagrum.skbn.BNClassifier(type_processor=states_as_they_are, significant_digit=17)
    labels = list(given.variable(target).labels())
    # Its scores of two classes are those of the modality it is told, which comes last.
    positive = labels[1] if len(labels) == 2 else ""
    model.fromTrainedModel(given, target, targetModality=positive, variableList=[*frame.columns])
    start = time.perf_counter()
    found = model.predict_proba(frame)
    return {"seconds": time.perf_counter() - start, "posteriors": np.asarray(found).tolist()}


# -- pgmpy -------------------------------------------------------------------------------------


def _pgmpy_network(network: str) -> Any:
    from pgmpy.readwrite import BIFReader

    return BIFReader(network).get_model()


def pgmpy_learn(csv: str, search: str) -> Reply:
    """Climb by BIC."""
    import pandas
    from pgmpy.estimators import HillClimbSearch

    frame = pandas.read_csv(csv, dtype="category")
    climb = HillClimbSearch(frame)
    start = time.perf_counter()
    found = climb.estimate(
        scoring_method="bic-d", tabu_length=100 if search == "tabu" else 0, show_progress=False
    )
    spent = time.perf_counter() - start
    return {"seconds": spent, "parents": {v: sorted(found.get_parents(v)) for v in frame.columns}}


def pgmpy_predict(network: str, path: str, target: str, rows: int) -> Reply:
    """Name the most probable state of full rows."""
    import pandas

    given = _pgmpy_network(network)
    names, codes = rows_of(path, rows)
    frame = pandas.DataFrame(
        {
            n: np.array(given.states[n])[c]
            for n, c in zip(names, codes, strict=True)
            if n != target and n in given.states
        }
    )
    start = time.perf_counter()
    found = given.predict(frame, n_jobs=1)[target]
    spent = time.perf_counter() - start
    at = {state: k for k, state in enumerate(given.states[target])}
    return {"seconds": spent, "states": [at[state] for state in found]}


def pgmpy_eliminate(network: str, path: str, target: str, rows: int) -> Reply:
    """Answer row by row by variable elimination, what is missing being no evidence."""
    from pgmpy.inference import VariableElimination

    given = _pgmpy_network(network)
    names, codes = rows_of(path, rows)
    asked = [
        {n: given.states[n][c] for n, c in zip(names, row, strict=True) if c >= 0 and n != target}
        for row in codes.T
    ]
    engine = VariableElimination(given)
    found = []
    start = time.perf_counter()
    for row in asked:
        answer = engine.query([target], row, show_progress=False)
        found.append([answer.get_value(**{target: s}) for s in given.states[target]])
    return {"seconds": time.perf_counter() - start, "posteriors": np.asarray(found).tolist()}


ACTIONS: dict[str, Callable[..., Reply]] = {
    each.__name__: each
    for each in (
        present,
        agrum_gibbs,
        agrum_learn,
        agrum_lazy,
        agrum_classifier,
        pgmpy_learn,
        pgmpy_predict,
        pgmpy_eliminate,
    )
}


def main() -> None:
    # Libraries print as they please, C++ ones too: replies have a way of their own.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = ACTIONS[request.pop("do")](**request)
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply, default=float), file=replies, flush=True)


if __name__ == "__main__":
    main()
