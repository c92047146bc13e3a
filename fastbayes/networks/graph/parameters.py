"""Tables of a network from counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, MemoryLimitError
from fastbayes.core.iteration import Found, converged, squarem
from fastbayes.core.numbers import is_number
from fastbayes.networks.graph.coded import Coded, Floats, Ints, logs

# Completions of one row, and numbers worked on at a time, when missing values are filled in.
COMPLETIONS = 1 << 20


@dataclass(frozen=True)
class TablePrior:
    """What is added to the counts of a family, in weight units.

    "laplace" adds `alpha` to every cell; "bdeu" spreads `ess` evenly over the cells.
    """

    kind: str = "laplace"
    alpha: float = 1.0
    ess: float = 1.0

    def check(self) -> None:
        """Raise ValueError where a parameter cannot be used."""
        if self.kind not in ("laplace", "bdeu"):
            raise ValueError(f"prior={self.kind!r}: use 'laplace' or 'bdeu'")
        for name, value in (("alpha", self.alpha), ("ess", self.ess)):
            if not (is_number(value) and 0 <= value < math.inf):
                raise ValueError(f"{name}={value!r}: use a number >= 0")

    def of_cell(self, cells: int) -> float:
        """Return what is added to each cell of a table of so many."""
        return self.alpha if self.kind == "laplace" else self.ess / cells

    def log_density(self, table: Floats) -> float:
        """Return the log density of P(node | parents), up to a constant."""
        more = self.of_cell(table.size)
        return more * float(np.log(table).sum()) if more else 0.0

    def table(self, counts: NDArray[Any]) -> Floats:
        """Return P(node | parents) = (n + a) / (sum n + a r) from n(parents ..., node).

        Without count nor prior it is the limit, 1 / r.
        """
        r = counts.shape[-1]
        table = counts + self.of_cell(counts.size)
        total = table.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total > 0, table / np.where(total > 0, total, 1.0), 1.0 / r))


class Completed:
    """Rows with missing values, and what they are worth once these are filled in.

    keys    (n_rows, n_nodes) different rows as codes, -1 where a value is missing
    weight  (n_rows,) how often each occurs
    """

    def __init__(self, keys: NDArray[np.integer[Any]], weight: Floats) -> None:
        self.keys, self.weight = np.asarray(keys, np.int64), np.asarray(weight, np.float64)
        patterns, which = np.unique(self.keys < 0, axis=0, return_inverse=True)
        self.patterns = [
            (np.flatnonzero(pattern), np.flatnonzero(which.ravel() == p))
            for p, pattern in enumerate(patterns)
        ]

    def expected(self, coded: Coded) -> tuple[list[Floats], float]:
        """Return the expected counts of each family, and the log-likelihood of the rows.

        Raises MemoryLimitError when a row has too many completions, DataError where impossible.
        """
        counts = [np.zeros(table.shape) for table in coded.tables]
        terms = [logs(table) for table in coded.tables]
        likelihood = 0.0
        for hidden, rows in self.patterns:
            for codes, weight in self._filled(coded, hidden, rows):
                joint = np.zeros(codes.shape[1:])
                for node, above in enumerate(coded.parents):
                    joint += terms[node][tuple(codes[[*above, node]])]
                top = joint.max(axis=1, keepdims=True)
                if np.isneginf(top).any():
                    raise DataError(
                        "a row of the data is impossible under the tables: use alpha > 0"
                    )
                joint = np.exp(joint - top)
                total = joint.sum(axis=1, keepdims=True)
                likelihood += float(weight @ (np.log(total) + top).ravel())
                share = (joint / total * weight[:, None]).ravel()
                for node, above in enumerate(coded.parents):
                    shape = counts[node].shape
                    flat = np.ravel_multi_index(tuple(codes[[*above, node]]), shape).ravel()
                    counts[node] += np.bincount(flat, share, counts[node].size).reshape(shape)
        return counts, likelihood

    def _filled(self, coded: Coded, hidden: Ints, rows: Ints) -> Iterator[tuple[Ints, Floats]]:
        """Yield the completions of some rows, (n_nodes, n_rows, n_completions), and weights."""
        sizes = coded.sizes[hidden].tolist()
        n = math.prod(sizes)
        if n > COMPLETIONS:
            names = ", ".join(repr(coded.names[h]) for h in hidden[:6].tolist())
            raise MemoryLimitError(
                f"a row has {n:,} completions, over {COMPLETIONS:,}: the nodes {names} are missing "
                "in it; use missing='available', or leave such rows out"
            )
        filled = np.indices(sizes).reshape(len(sizes), n)
        step = max(1, COMPLETIONS // (n * len(coded)))
        for lo in range(0, len(rows), step):
            some = rows[lo : lo + step]
            codes = np.repeat(self.keys[some].T[:, :, None], n, axis=2)
            codes[hidden] = filled[:, None, :]
            yield codes, self.weight[some]


def by_expectation(
    rows: Completed,
    names: Sequence[str],
    parents: Sequence[tuple[int, ...]],
    start: Sequence[Floats],
    prior: TablePrior,
    *,
    tol: float,
    max_iter: int,
) -> Found[Sequence[Floats]]:
    """Return tables fitted to rows with missing values.

    `names` and `parents` are the graph, `start` the tables to begin with; the prior is added to the
    expected counts. What is maximised is the log likelihood, plus `TablePrior.log_density`.

    References
    ----------
    Dempster, Laird, Rubin (1977); Lauritzen (1995), The EM algorithm for graphical association
    models with missing data.
    """
    sizes = np.array([table.shape[-1] for table in start], np.int64)

    def step(tables: Sequence[Floats]) -> tuple[Sequence[Floats], float]:
        now = Coded(tuple(names), sizes, list(parents), list(tables))
        counts, likelihood = rows.expected(now)
        density = sum(prior.log_density(table) for table in tables)
        return [prior.table(n) for n in counts], likelihood + density

    return converged(
        squarem(step, start, tol),
        tol=tol,
        max_iter=max_iter,
        what="missing='em'",
        measure="the largest change of a probability",
    )
