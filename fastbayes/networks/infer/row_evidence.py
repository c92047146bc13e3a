"""ln P of every row of a table: sums of look-ups, what is missing summed out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import MemoryLimitError
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.graph.sparse import SparseTable, logs_of
from fastbayes.networks.infer.inference import LARGEST
from fastbayes.networks.infer.scorer import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Codes worked on at a time where something is missing.
CELLS = 1 << 21


class RowEvidence:
    """ln P(what is observed in a row); immutable but for tables made on first use.

    Parameters
    ----------
    coded
        The network.
    nodes
        Nodes that are observed in some rows.
    """

    def __init__(self, coded: Coded, nodes: Sequence[int]) -> None:
        self.coded, self.nodes = coded, list(nodes)
        self.absent = sorted({*range(len(coded))} - {*nodes})
        self.logs = [logs_of(table) for table in coded.tables]
        self._network: Network | None = None

    def log_evidence(self, columns: Mapping[int, NDArray[Any]], out: Floats) -> None:
        """Write ln P(row) of every row, (n_rows,).

        Parameters
        ----------
        columns
            Codes of each of `nodes`; those beyond its states are no observations.
        out
            (n_rows,) nats; -inf where a row is impossible.
        """
        if not len(out):
            return
        sizes = self.coded.sizes
        gaps = [v for v in self.nodes if int(columns[v].max()) >= sizes[v]]
        hidden = np.full(len(out), bool(self.absent))
        for v in gaps:
            hidden |= columns[v] >= sizes[v]
        if not hidden.any():
            out[:] = self._complete(columns)
            return
        whole, rest = np.flatnonzero(~hidden), np.flatnonzero(hidden)
        if len(whole):
            out[whole] = self._complete({v: column[whole] for v, column in columns.items()})
        step = max(1, CELLS // len(sizes))
        for lo in range(0, len(rest), step):
            some = rest[lo : lo + step]
            out[some] = self._summed({v: column[some] for v, column in columns.items()}, len(some))

    def _complete(self, columns: Mapping[int, NDArray[Any]]) -> Floats:
        """Return ln P of rows in which all is observed: the sum of a look-up for each node."""
        total: Any = 0.0
        for node, above in enumerate(self.coded.parents):
            table = self.logs[node]
            if isinstance(table, SparseTable):
                total = total + table.gathered([columns[v] for v in (*above, node)])
                continue
            cell: Any = 0
            for v in (*above, node):
                cell = cell * int(self.coded.sizes[v]) + columns[v].astype(np.int64)
            total = total + table.ravel().take(cell)
        return np.asarray(total)

    def _summed(self, columns: Mapping[int, NDArray[Any]], n_rows: int) -> Floats:
        """Return ln P of rows in which something is not observed."""
        if self._network is None:
            self._network = self._with_places_for_missing()
        sizes = self.coded.sizes
        codes = np.empty((len(sizes), n_rows), np.uint32)
        for v, size in enumerate(sizes.tolist()):
            codes[v] = np.minimum(columns[v], size) if v in columns else size
        group = Codes(np.arange(len(sizes)), codes, sizes + 2)
        out = np.zeros((n_rows, 1))
        self._network.add([group], out)
        return out[:, 0]

    def _with_places_for_missing(self) -> Network:
        coded = self.coded
        families, tables = [], []
        for v in coded.order:
            family = (*coded.parents[v], v)
            shape = [int(coded.sizes[u]) + 2 for u in family]
            cells = math.prod(map(float, shape))
            logs = self.logs[v]
            if cells > LARGEST or isinstance(logs, SparseTable):
                raise MemoryLimitError(
                    f"node {coded.names[v]!r}: its table, with places for missing values, takes "
                    f"{cells:,.0f} numbers, over {LARGEST:,}: it has too many parents for rows in "
                    "which something is missing; leave these out, or learn with max_parents"
                )
            table = np.zeros((*shape, 1))
            table[tuple(slice(n - 2) for n in shape)] = logs[..., None]
            families.append(family)
            tables.append(table)
        hidden = [np.arange(int(n) + 2) >= n for n in coded.sizes]
        return Network(families, tables, hidden, coded.sizes, coded.names)
