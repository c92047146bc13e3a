"""Scores of graphs: sums over their families, each from how often values occur together.

Every score here is a difference of two sums, one over the joint values of a node and its parents,
one over those of the parents. Either depends on a set of nodes alone, whichever of them is the
child: n(a, b) serves `a` below `b` and `b` below `a`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.networks.graph.coded import Floats

SCORES = ("mdl", "aic", "bdeu", "k2", "loglik")


@dataclass(frozen=True)
class ScoreRule:
    """How a graph is scored.

    Parameters
    ----------
    name
        "mdl", "aic", "bdeu", "k2" or "loglik".
    ess
        Equivalent sample size of BDeu, in weight units.

    Notes
    -----
    With N = Σ weights, r the values of a node, q the joint values of its parents (observed or
    not), |B| = Σ q (r - 1) the free parameters and LL the log-likelihood at the
    maximum-likelihood parameters, in nats:

    ======  ==================================================================  ================
    mdl     ½ ln N · |B| - LL, the description length, which is -BIC            lower is better
    aic     |B| - LL                                                            lower is better
    loglik  LL                                                                  higher is better
    bdeu    ln P(D | B), Dirichlet priors of ess / (q r) in every cell          higher is better
    k2      ln P(D | B), Dirichlet priors of 1 in every cell                    higher is better
    ======  ==================================================================  ================

    Inside a search every score is turned so that higher is better (`sign` turns it back).

    Raises
    ------
    ValueError
        When there is no such score, or `ess` is not a positive number.

    References
    ----------
    Schwarz (1978); Rissanen (1978); Akaike (1974); Cooper, Herskovits (1992), equation 8;
    Heckerman, Geiger, Chickering (1995), equation 28; Buntine (1991).
    """

    name: str = "mdl"
    ess: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in SCORES:
            raise ValueError(f"score={self.name!r}: use one of {', '.join(map(repr, SCORES))}")
        number = isinstance(self.ess, (int, float, np.number)) and not isinstance(self.ess, bool)
        if not number or not 0 < self.ess < math.inf:
            raise ValueError(f"ess={self.ess!r}: use a positive number")

    @property
    def sign(self) -> float:
        """-1 where lower is better, else 1."""
        return -1.0 if self.name in ("mdl", "aic") else 1.0

    @property
    def penalised(self) -> bool:
        """Whether a family pays for its free parameters."""
        return self.name in ("mdl", "aic")

    def per_parameter(self, total: float) -> float:
        """Return what a free parameter costs among rows of this total weight, in nats.

        Less than one row is as one: no parameter pays for being there.
        """
        return {"mdl": 0.5 * math.log(max(total, 1.0)), "aic": 1.0}.get(self.name, 0.0)

    def offsets(self, cells: Floats, kinds: Sequence[int]) -> Floats:
        """Return what to ask of `add_set_sums` about tables of so many cells, (n_tables, n_sums).

        One sum, for "k2" one for a node with its parents and one for parents of nodes of each of
        the `kinds`, the different numbers of values that nodes have. Cells that never occur count.
        """
        if self.name == "bdeu":
            return (self.ess / cells)[:, None]
        if self.name == "k2":
            return np.tile([1.0, *map(float, kinds)], (len(cells), 1))
        return np.full((len(cells), 1), -1.0)


def family_score(
    counts: NDArray[Any],
    rule: ScoreRule,
    total: float | None = None,
    configurations: int | None = None,
) -> float:
    """Return the score of one family from its counts n(parents, node), higher is better, in nats.

    `total` is N of the penalty, the sum of the counts by default; `configurations` those of the
    parents, where `counts` leaves out some that never occur.

    Examples
    --------
    >>> counts = np.array([[2, 0], [1, 1]])  # two values of the parent, two of the node
    >>> round(family_score(counts, ScoreRule("loglik")), 6)  # 2 ln ½
    -1.386294
    >>> round(family_score(counts, ScoreRule("k2")), 6)  # ln (2! 0! / 3!) (1! 1! / 3!)
    -2.890372
    """
    counts = np.asarray(counts)
    r = counts.shape[-1]
    table = counts.reshape(-1, r)
    q = len(table) if configurations is None else configurations
    pair = [_sums(table, rule, q * r, r), _sums(table.sum(axis=1), rule, q, r)]
    kind = 1 if rule.name == "k2" else 0
    result = pair[0][0] - pair[1][kind]
    if rule.penalised:
        total = float(table.sum()) if total is None else total
        result -= rule.per_parameter(total) * q * (r - 1)
    return float(result)


def _sums(table: NDArray[Any], rule: ScoreRule, cells: int, r: int) -> Floats:
    # Imported here: the twin in numpy is light, but scores are read far more often than made.
    from fastbayes.kernels.numpy.set_sums import add_set_sums

    offsets = rule.offsets(np.array([float(cells)]), [r])
    out = np.zeros_like(offsets)
    flat = np.ascontiguousarray(table).reshape(-1)
    add_set_sums(flat, np.array([0, flat.size]), offsets, out)
    return out[0]


def masks_of(parents: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[int]:
    """Return the parents of each node as a set of bits, bit j for node j of `names`.

    Raises SchemaError when a name is not among the nodes, or a node is its own parent.
    """
    where = {name: j for j, name in enumerate(names)}
    masks = [0] * len(names)
    for node, above in parents.items():
        for name in (node, *above):
            if name not in where:
                raise SchemaError(f"{name!r} is not among the nodes {list(names)}")
        if node in above:
            raise SchemaError(f"node {node!r} is its own parent")
        for name in above:
            masks[where[node]] |= 1 << where[name]
    return masks


def members(mask: int) -> list[int]:
    """Return the bits that are set, lowest first."""
    result = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result
