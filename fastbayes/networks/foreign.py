"""Networks in the formats of other programs, read and written by pyAgrum."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fastbayes.errors import DataError, FileFormatError
from fastbayes.files import atomic
from fastbayes.networks.declared import (
    Declared,
    Family,
    Parts,
    Row,
    check_whole,
    contents,
    names_of,
)

# Hugin, GeNIe, UAI, O3PRM. Formats that run what they hold, such as pickle, are not among them.
SUFFIXES = (".net", ".dsl", ".xdsl", ".uai", ".o3prm")
# Rows may miss 1 by this: pyAgrum writes six digits of each number.
MOST_OFF = 1e-4


def _pyagrum(path: str | os.PathLike[str]) -> Any:
    try:
        import pyagrum
    except ImportError as error:
        raise DataError(
            f"{os.fspath(path)}: {Path(path).suffix} is read and written by pyagrum, which is not "
            "installed: pip install fastbayes[bn]"
        ) from error
    return pyagrum


def read(path: str | os.PathLike[str]) -> Parts:
    """Read a network from a file of another program.

    Parameters
    ----------
    path
        The file; its suffix says the format.

    Returns
    -------
    Parts
        States, parents and tables of the nodes; states are text.

    Raises
    ------
    DataError
        When pyagrum is not installed, or does not take the file.
    """
    contents(path)  # says in our words when there is nothing to read
    gum = _pyagrum(path)
    try:
        network = gum.loadBN(os.fspath(path))
    except (gum.GumException, OSError, ValueError, RuntimeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileFormatError(f"{os.fspath(path)}: pyagrum does not read it ({said})") from error
    declared = Declared(path, most_off=MOST_OFF)
    for name in network.names():
        declared.node(name, list(network.variable(name).labels()), 0)
    for name in network.names():
        table = network.cpt(name)
        # The axes of its arrays are its names from the last to the first, the node.
        node, *above = table.names
        numbers = np.asarray(table.toarray(), np.float64).ravel().tolist()
        family = Family(node, tuple(reversed(above)), 0, table=Row((), numbers, 0))
        declared.family(family)
    return declared.parts()


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to a file of another program, with six digits of each probability.

    Parameters
    ----------
    network
        A network with tables.
    path
        The file; its suffix says the format.
    force
        Whether to replace a file that is there.

    Raises
    ------
    DataError
        When pyagrum is not installed, the format cannot hold the network, or the file exists.
    """
    check_whole(network, path)
    gum = _pyagrum(path)
    names, states = names_of(network.nodes, network.states)
    made = gum.BayesNet()
    try:
        # Some formats name parents before they are declared unless those come first.
        for node in network.order:
            made.add(gum.LabelizedVariable(names[node], names[node], states[node]))
        for node, name in names.items():
            # The last axis of an array is its second name: parents come from the last to the first.
            for parent in reversed(network.parents[node]):
                made.addArc(names[parent], name)
        for node, name in names.items():
            made.cpt(name).fillWith(network.tables[node].ravel().tolist())
        with atomic(path, force=force) as temporary:
            gum.saveBN(made, os.fspath(temporary))
    except gum.GumException as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{os.fspath(path)}: pyagrum does not write it ({said})") from error
