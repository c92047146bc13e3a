"""Call every driver of a gibbs module over its dtype table."""

from __future__ import annotations

import numpy as np

from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.sample.blankets import compiled
from fastbayes.networks.sample.estimates import asked_of

TWO = Coded(
    ("a", "b"),
    np.array([2, 3]),
    [(), (0,)],
    [np.array([0.5, 0.5]), np.array([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])],
)


def exercise(gibbs):
    for entries in (0, 100):
        program = compiled(TWO, {}, entries=entries).program
        for n_chains in (1, 16):
            gibbs.run(
                program,
                np.zeros((2, n_chains), np.uint16),
                np.arange(4 * n_chains, dtype=np.uint64).reshape(4, n_chains) + 1,
                3,
                2,
                asked_of(TWO, [[1], [1, 0]]),
                np.zeros((n_chains, 9), np.int64),
            )
