"""Scoring of rows by a network in which the class may have parents among the features."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fastbayes.core.batch import Codes
from fastbayes.kernels import dispatch
from fastbayes.networks.infer.scorer import (
    Bools,
    Family,
    Floats,
    Ints,
    Network,
    NetworkScorer,
    _Summing,
)


class ClassNetwork(Network):
    """Tables of a network of features that knows the parents of the class as well.

    The class is told in every row: it is as a feature below its parents, of one code that is
    always observed, whose table says how the parents speak for each class.

    Parameters
    ----------
    above
        Parents of the class.
    says
        (S_1 + 2, ..., n_classes) ln [P(c | parents) / P(c)].
    families, tables, hidden, states, names, summed
        As in `Network`.
    says_summed
        Stands for `says` where a parent of the class is hidden; None for this.
    """

    def __init__(
        self,
        above: Family,
        says: Floats,
        families: Sequence[Family],
        tables: Sequence[Floats],
        hidden: Sequence[Bools],
        states: Ints,
        names: Sequence[str],
        summed: Sequence[Floats] | None = None,
        says_summed: Floats | None = None,
    ) -> None:
        self.told = len(hidden)
        table = _as_child(says)
        last = table if says_summed is None else _as_child(says_summed)
        super().__init__(
            [*families, (*above, self.told)],
            [*tables, table],
            [*hidden, np.array([False, True, True])],
            np.append(states, 1),
            [*names, "the class"],
            None if summed is None else [*summed, last],
        )

    def rows(self, batch_codes: Sequence[Codes], n_rows: int) -> Bools:
        """Return the rows in which something must be summed out, (n_rows,)."""
        return super().rows(self._with_class(batch_codes, n_rows), n_rows)

    def add(self, batch_codes: Sequence[Codes], out: Floats) -> None:
        """Add ln P(x, c) - ln P(c) of every row and class to `out` (n_rows, n_classes)."""
        super().add(self._with_class(batch_codes, len(out)), out)

    def add_hidden(self, batch_codes: Sequence[Codes], out: Floats) -> None:
        """Add what the families of which a parent is hidden say, as `add` does."""
        super().add_hidden(self._with_class(batch_codes, len(out)), out)

    def _with_class(self, batch_codes: Sequence[Codes], n_rows: int) -> list[Codes]:
        if any(self.told in group.features for group in batch_codes):
            return list(batch_codes)
        codes = np.zeros((1, n_rows), np.uint8)
        return [*batch_codes, Codes(np.array([self.told]), codes, np.array([3]))]


def _as_child(says: Floats) -> Floats:
    """Return the table of a feature of one code, and of places for no observation."""
    table = np.zeros((*says.shape[:-1], 3, says.shape[-1]))
    table[..., 0, :] = says
    return table


class ClassScorer(NetworkScorer):
    """Log joints, posteriors and predictions of a network; immutable, thread-safe.

    Parameters
    ----------
    log_prior
        (n_classes,) nats.
    network
        The tables.
    shared
        Positions of families that say the same of all classes: where nothing is hidden, only log
        joints look at them.
    precision, cells
        As in `NetworkScorer`.
    """

    def __init__(
        self,
        log_prior: Floats,
        network: Network,
        shared: Collection[int],
        precision: str,
        cells: float,
    ) -> None:
        k, m = len(log_prior), len(network.hidden)
        factors = []
        for family, table in zip(network.families, network.observed(), strict=True):
            if isinstance(network, ClassNetwork) and family[-1] == network.told:
                family, table = family[:-1], table[..., 0, :]
            factors.append((family, np.ascontiguousarray(table).reshape(-1, k)))
        m -= isinstance(network, ClassNetwork)
        sizes = np.array([len(flags) - 2 for flags in network.hidden[:m]], np.int64)
        # A row that no class can have made takes the prior, whatever family says so.
        telling = [
            factor
            for q, factor in enumerate(factors)
            if q not in shared or np.isneginf(factor[1]).any()
        ]
        make = dispatch.load("factors", cells).FactorScorer
        self._network = network
        self._complete = make(log_prior, factors, sizes, precision)
        self._telling = make(log_prior, telling, sizes, precision)
        self._summing = _Summing(log_prior, network)

    def _whole(self, method: str) -> Any:
        return self._complete if method == "log_joint" else self._telling
