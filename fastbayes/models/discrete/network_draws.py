"""Random rows of a network with a class node, given the class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.models.discrete.network_tables import ClassNetworkTables
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.sampling import drawn_codes
from fastbayes.networks.infer.scorer import ClassScorer, Network

Ints = NDArray[np.int64]


def drawn_features(
    cells: ClassNetworkTables,
    network: Network,
    scorer: ClassScorer,
    codes: NDArray[np.intp],
    random: np.random.Generator,
) -> list[Ints]:
    """Return one code per row for each feature; S_j is a missing value.

    Features are drawn in the order of the graph, those above the class given what is below.

    Parameters
    ----------
    cells, network
        The counts, and the tables.
    scorer
        Writes ln P(x | c), what is missing summed out.
    codes
        (n_rows,) class codes.
    random
        Where chance comes from.
    """
    above = cells.over()
    drawn = np.broadcast_to(cells.sizes[:, None], (len(cells.sizes), len(codes))).copy()
    told = np.zeros(len(drawn), np.bool_)
    every = np.arange(len(codes))
    for (*parents, j), table in zip(cells.families, network.tables, strict=False):
        told[j] = True
        if not (states := int(cells.choices[j])):
            continue
        if j in above:
            drawn[j] = drawn_codes(_given_class(cells, scorer, j, drawn, told, codes), random)
            continue
        given = table[tuple(drawn[p] for p in parents)] if parents else table[None]
        rows = every if parents else 0
        drawn[j] = drawn_codes(np.exp(given[rows, :states, codes]), random)
    return list(drawn)


def _given_class(
    cells: ClassNetworkTables,
    scorer: ClassScorer,
    j: int,
    drawn: Ints,
    told: NDArray[np.bool_],
    codes: NDArray[np.intp],
) -> Floats:
    """Return P(x_j | features told before, c) up to a factor, (n_rows, S_j)."""
    # A code that is no observation stands for what is not drawn yet.
    gap = cells.sizes + ~cells.hidden[cells.offsets[1:] - 2]
    partial = np.where(told[:, None], drawn, gap[:, None]).astype(np.uint32)
    joint = np.empty((len(codes), int(cells.choices[j])))
    out = np.empty((len(codes), cells.n_classes))
    group = Codes(np.arange(len(partial)), partial, cells.sizes + 2)
    for v in range(joint.shape[1]):
        partial[j] = v
        scorer.log_joint([group], (), out)
        joint[:, v] = out[np.arange(len(codes)), codes]
    top = joint.max(axis=1, keepdims=True)
    return np.asarray(np.exp(joint - np.where(np.isneginf(top), 0.0, top)))
