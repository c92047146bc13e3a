"""Networks in files: model files, BIF, XMLBIF, XDSL, UAI, and other formats by pyAgrum."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np

from fastbayes.core import files
from fastbayes.core.errors import DataError
from fastbayes.core.files import check_target
from fastbayes.core.iteration import Convergence
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.networks.graph.coded import SparseTable
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.io import bif, pyagrum_formats, uai, xdsl, xmlbif
from fastbayes.statistics.bundle import Statistics

FORMATS: dict[str, ModuleType] = {
    ".bif": bif,
    ".xml": xmlbif,
    ".xmlbif": xmlbif,
    ".bifxml": xmlbif,
    ".xdsl": xdsl,
    ".uai": uai,
    **dict.fromkeys(pyagrum_formats.SUFFIXES, pyagrum_formats),
}


def format_of(path: str | os.PathLike[str], besides: Sequence[str] = ()) -> ModuleType:
    """Return the module that reads and writes a file, by its suffix, or raise DataError.

    `besides` are suffixes that the caller takes itself.
    """
    try:
        return FORMATS[Path(path).suffix.lower()]
    except KeyError:
        raise DataError(
            f"{os.fspath(path)}: the name says no format; end it in "
            f"{', '.join([*besides, *FORMATS])}"
        ) from None


class FormatsMixin(NetworkTables):
    """A network that can be read from files and written to them, other programs' and our own."""

    @classmethod
    def read_bif(cls, path: str | os.PathLike[str]) -> Self:
        """Return the network in a BIF file.

        Parameters
        ----------
        path
            The file, UTF-8.

        Returns
        -------
        Self
            Nodes and states in the order of the file; states are text, such as "1". Beside bins,
            "None" is None: a missing value is a state there.

        Raises
        ------
        FileFormatError
            When the file is no BIF, or contradicts itself; the message names line and node.

        Notes
        -----
        Rows of a table that miss 1 by 1e-6 or less are scaled, with one warning. A `table` counts
        the states of the node slowest, then those of the first parent. Properties are not kept.
        Time and memory are those of the text: where a `default` stands for over four million
        numbers, only the rows that the file distinguishes are kept (`SparseTable`).

        References
        ----------
        Cozman (1998), The Interchange Format for Bayesian Networks, version 0.15.
        """
        return cls(*bif.read(path))

    def write_bif(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the network to a BIF file, which appears whole or not at all.

        Parameters
        ----------
        path
            The file.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists, or two nodes or states are the same as text.

        Notes
        -----
        `read_bif` gives the same network, to the last bit, where its nodes and states are text, or
        bins and None.
        Of a table that keeps some rows alone, these and the `default` of the others are written;
        where `read_bif` makes a whole table of them, it says the same, but is not equal.
        """
        self._write(bif, path, force)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the network in a file.

        Parameters
        ----------
        path
            The file: .bif, .xml, .xmlbif and .bifxml (XMLBIF 0.3), .xdsl (GeNIe), .uai; the extra
            `bn` adds .net, .dsl and .o3prm.

        Returns
        -------
        Self
            States are text, but for None beside bins, as in `read_bif`.

        Raises
        ------
        DataError
            When the format is not known, the extra is missing, the file contradicts itself, or a
            node has no table of probabilities, as decisions and noisy-max in XDSL.
        """
        return cls(*format_of(path).read(path))

    def write(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the network to a file, which appears whole or not at all.

        Parameters
        ----------
        path
            The file; its suffix says the format, as in `read`.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists, the format is not known or cannot hold the network, or the
            extra is missing.

        Notes
        -----
        Files of the extra `bn` have six digits of each probability, all others have all digits.
        `read` takes rows that miss 1 by 1e-6 in BIF and XMLBIF, and by 1e-4 elsewhere. UAI has no
        names: nodes and states are numbers when it is read, in the order that they have here.
        XDSL has letters, digits and "_" in names, a letter first; parents stand before children.
        """
        self._write(format_of(path), path, force)

    def _write(self, module: ModuleType, path: str | os.PathLike[str], force: bool) -> None:
        self._check_fitted()
        if not self.nodes:
            raise DataError("the network has no node: there is nothing to write")
        check_target(path, force=force)
        module.write(self, path, force=force)

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
        model = {"kind": "model", "class": "BayesianNetwork", "params": {}, "state": header}
        files.write(path, model, arrays, force=force)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds."""
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
        if hasattr(self, "statistics_"):
            header["statistics"], more = self.statistics_.state()
            arrays |= named_arrays({"statistics": more})
            went = Convergence(self.converged_, self.n_iter_, self.trace_)
            header["convergence"] = went.state()
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
            Empty: networks have no parameters.
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
        if "statistics" in header:
            mine = arrays_of(arrays, "statistics.")
            network.statistics_ = Statistics.from_state(header["statistics"], mine, source)
            # Of a file without it, the tables were counted.
            state = header.get("convergence", Convergence().state())
            vars(network).update(Convergence.of_state(state).attributes())
        return network


def _plain(state: Any) -> Any:
    return state.item() if isinstance(state, np.generic) else state
