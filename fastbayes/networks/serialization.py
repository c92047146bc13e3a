"""Networks as model files: graph, states, tables and the statistics they came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fastbayes.core import files
from fastbayes.networks.graph.sparse import SparseTable
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.statistics.bundle import Statistics


class SerializationMixin(NetworkTables):
    """A network that can be written to a model file."""

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the network to a file that `fastbayes.load` reads.

        Parameters
        ----------
        path
            The file to write, by custom `*.fb`.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists and `force` is not set, or it cannot be written.
        TypeError
            When a node or state is neither text, number, truth value nor None.

        Notes
        -----
        The file holds the graph, states, tables and the statistics they came from, not the way of
        a search.
        """
        header, arrays = self.state()
        told = {"kind": "model", "class": "BayesianNetwork", "params": {}, "state": header}
        files.write(path, told, arrays, force=force)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds.

        Returns
        -------
        tuple
            Header and arrays.
        """
        place = {node: i for i, node in enumerate(self.nodes)}
        header: dict[str, Any] = {
            "nodes": list(self.nodes),
            "parents": [[place[p] for p in self.parents[node]] for node in self.nodes],
            "states": [[_plain(s) for s in self.states[n]] for n in self.nodes if self.states],
            "declared": [
                [_plain(s) for s in self._declared[n]] if n in self._declared else None
                for n in self.nodes
            ],
        }
        arrays: dict[str, Any] = {}
        for i, table in enumerate(self.tables.values()):
            if isinstance(table, SparseTable):
                arrays |= {f"keys.{i}": table.keys, f"rows.{i}": table.rows}
            else:
                arrays[f"table.{i}"] = table
        arrays |= {f"cuts.{place[node]}": np.asarray(cuts) for node, cuts in self._cuts.items()}
        if hasattr(self, "statistics_"):
            header["statistics"], more = self.statistics_.state()
            arrays |= {f"statistics.{name}": array for name, array in more.items()}
        if hasattr(self, "em_trace_"):
            header["em_trace"] = list(self.em_trace_)
        return header, arrays

    @classmethod
    def from_state(
        cls,
        params: Mapping[str, Any],
        header: Mapping[str, Any],
        arrays: Mapping[str, Any],
        source: str,
    ) -> Self:
        """Return the network that `state` described.

        Parameters
        ----------
        params
            None: networks have no parameters.
        header, arrays
            From `state`.
        source
            Name of the file, for messages.

        Returns
        -------
        Self
            Equal to the one whose state it was.

        Raises
        ------
        FileFormatError, KeyError, TypeError, ValueError
            When header and arrays do not fit together; `fastbayes.load` names the file then.
        """
        nodes = header["nodes"]
        above = {
            node: [nodes[p] for p in parents]
            for node, parents in zip(nodes, header["parents"], strict=True)
        }
        if header["states"]:
            states = dict(zip(nodes, header["states"], strict=True))
            tables: dict[str, Any] = {}
            for i, node in enumerate(nodes):
                if f"keys.{i}" in arrays:
                    shape = [len(states[n]) for n in (*above[node], node)]
                    tables[node] = SparseTable(shape, arrays[f"keys.{i}"], arrays[f"rows.{i}"])
                else:
                    tables[node] = arrays[f"table.{i}"]
            network = cls(states, above, tables)
        else:
            network = cls._of(above)
        declared = zip(nodes, header["declared"], strict=True)
        network._declared = {node: tuple(known) for node, known in declared if known is not None}
        cuts = {n: arrays[f"cuts.{i}"] for i, n in enumerate(nodes) if f"cuts.{i}" in arrays}
        if cuts:
            network._cuts = cuts
        if "statistics" in header:
            prefix = "statistics."
            mine = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            network.statistics_ = Statistics.from_state(header["statistics"], mine, source)
        if "em_trace" in header:
            network.em_trace_ = list(header["em_trace"])
        return network


def _plain(state: Any) -> Any:
    return state.item() if isinstance(state, np.generic) else state
