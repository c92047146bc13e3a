"""Graphs as Graphviz text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def graph(parents: Mapping[str, Sequence[str]], boxes: Sequence[str] = ()) -> str:
    """Return a directed graph in Graphviz' language.

    Parameters
    ----------
    parents
        The parents of each node.
    boxes
        Nodes to draw as boxes; their edges come first.

    Examples
    --------
    >>> print(graph({"play": [], "wind": ["play"]}, boxes=["play"]))
    digraph {
        "play" [shape=box];
        "wind";
        "play" -> "wind";
    }
    """
    lines = [quoted(node) + " [shape=box]" * (node in boxes) for node in parents]
    edges = [(p, node) for node, above in parents.items() for p in above]
    edges.sort(key=lambda edge: edge[0] not in boxes)
    lines += [f"{quoted(p)} -> {quoted(node)}" for p, node in edges]
    return "\n".join(["digraph {", *(f"    {line};" for line in lines), "}"])


def quoted(name: Any) -> str:
    """Return a name as an identifier of Graphviz that is drawn as the name."""
    text = str(name).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # What reads as an entity of HTML would be drawn as its character.
    return '"' + re.sub(r"&(?=#?\w+;)", "&amp;", text) + '"'
