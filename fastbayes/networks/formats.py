"""Networks in files: BIF, XMLBIF, and other formats by pyAgrum."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Self

from fastbayes.core.errors import DataError
from fastbayes.core.files import check_target
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.io import bif, pyagrum_formats, xmlbif

FORMATS: dict[str, ModuleType] = {
    ".bif": bif,
    ".xml": xmlbif,
    ".xmlbif": xmlbif,
    ".bifxml": xmlbif,
    **dict.fromkeys(pyagrum_formats.SUFFIXES, pyagrum_formats),
}


def format_of(path: str | os.PathLike[str]) -> ModuleType:
    """Return the module that reads and writes a file, by its suffix.

    Raises
    ------
    DataError
        When none does.
    """
    try:
        return FORMATS[Path(path).suffix.lower()]
    except KeyError:
        raise DataError(
            f"{os.fspath(path)}: the name says no format; end it in {', '.join(FORMATS)}"
        ) from None


class FormatsMixin(NetworkTables):
    """A network that can be read from files and written to them."""

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
            Nodes and states in the order of the file; states are text, such as "1".

        Raises
        ------
        FileFormatError
            When the file is no BIF, or contradicts itself; the message names line and node.

        Notes
        -----
        Rows of a table that miss 1 by 1e-6 or less are scaled, with one warning. A `table` counts
        the states of the node slowest, then those of the first parent. Properties are not kept.
        Time and memory are those of the text: where a `default` stands for over four million
        numbers, only the rows that the file tells apart are kept (`SparseTable`).

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
        `read_bif` gives the same network, to the last bit, where its nodes and states are text.
        Of a table that keeps some rows alone, these and the `default` of the others are written.
        """
        self._write(bif, path, force)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the network in a file.

        Parameters
        ----------
        path
            The file: .bif, .xml, .xmlbif and .bifxml (XMLBIF 0.3); the extra `bn` adds .net, .dsl,
            .xdsl, .uai and .o3prm.

        Returns
        -------
        Self
            States are text.

        Raises
        ------
        DataError
            When the format is not known, the extra is missing, or the file contradicts itself.
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
        Files of the extra `bn` have six digits of each probability; `read` takes rows that miss 1
        by 1e-4 there, and by 1e-6 elsewhere. BIF and XMLBIF have all digits.
        """
        self._write(format_of(path), path, force)

    def _write(self, module: ModuleType, path: str | os.PathLike[str], force: bool) -> None:
        self._check_fitted()
        if not self.nodes:
            raise DataError("the network has no node: there is nothing to write")
        check_target(path, force=force)
        module.write(self, path, force=force)
