"""Rows drawn from the root down with what is observed held fixed, and their likelihood weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastbayes.networks.graph.coded import Coded

Floats = NDArray[np.float64]
States = NDArray[np.uint16]


class Forward:
    """Draws rows of a network, each node given its parents; immutable, thread-safe.

    Parameters
    ----------
    coded
        The network.
    evidence
        {node: state} of nodes that are not drawn.
    """

    def __init__(self, coded: Coded, evidence: Mapping[int, int]) -> None:
        self._coded, self._evidence, self._order = coded, dict(evidence), coded.order
        self._cumulated: dict[int, Floats] = {}
        with np.errstate(divide="ignore"):
            self._logs = {v: np.log(coded.tables[v]) for v in evidence}
        for v in self._order:
            if v not in evidence and coded.sizes[v] > 1:
                self._cumulated[v] = np.cumsum(coded.tables[v], axis=-1)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[States, Floats]:
        """Return rows and ln P(evidence | their other nodes' states above it).

        Returns
        -------
        x
            (n_nodes, n) states.
        log_weight
            (n,) nats; -inf where the evidence is impossible.
        """
        x = np.zeros((len(self._coded), n), np.uint16)
        log_weight = np.zeros(n)
        for v in self._order:
            above = tuple(x[p] for p in self._coded.parents[v])
            if v in self._evidence:
                x[v] = self._evidence[v]
                log_weight += self._logs[v][(*above, x[v])]
            elif v in self._cumulated:
                cumulated = np.broadcast_to(self._cumulated[v][above], (n, self._coded.sizes[v]))
                share = rng.random(n) * cumulated[:, -1]
                x[v] = (share[:, None] >= cumulated[:, :-1]).sum(axis=1)
        return x, log_weight
