"""Graphs drawn with matplotlib: parents above their children."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastbayes.core.extras import needed
from fastbayes.networks.graph.dag import DAG

# Rounds of moving nodes below their parents and above their children.
ROUNDS = 8


def places(graph: DAG) -> dict[str, tuple[float, float]]:
    """Return where to draw each node, {node: (x, y)}: one row lower than its lowest parent.

    Rows are at 0, -1, -2 ..., and a row's nodes at least 1 apart.

    References
    ----------
    Sugiyama, Tagawa, Toda (1981), Methods for visual understanding of hierarchical systems.
    """
    depth: dict[str, int] = {}
    for node in graph.order:
        depth[node] = 1 + max((depth[p] for p in graph.parents[node]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        rows[depth[node]].append(node)
    x = {node: i - (len(row) - 1) / 2 for row in rows for i, node in enumerate(row)}
    for turn in range(ROUNDS):
        down = turn % 2 == 0
        near = graph.parents if down else graph.children
        for row in rows if down else reversed(rows):
            middle = {
                n: sum(x[m] for m in near[n]) / len(near[n]) if near[n] else x[n] for n in row
            }
            row.sort(key=lambda n: middle[n])
            x |= {node: i - (len(row) - 1) / 2 for i, node in enumerate(row)}
    return {node: (x[node], float(-depth[node])) for node in graph.nodes}


class PlotMixin(DAG):
    """A graph that can be drawn."""

    def plot(self, ax: Any = None, *, marked: Iterable[str] = ()) -> Any:
        """Draw the graph with matplotlib, parents above their children.

        Parameters
        ----------
        ax
            Axes to draw on; new ones by default.
        marked
            Nodes to fill with colour, such as those of the evidence.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        FastBayesError
            When matplotlib is not installed; the message names the extra.
        """
        marked = {*self._named(list(marked))}
        if ax is None:
            said = "drawing needs matplotlib: install fastbayes[plot], or use to_dot()"
            ax = needed("matplotlib.pyplot", said).subplots()[1]
        at = places(self)
        arrow = {"arrowstyle": "-|>", "shrinkA": 12, "shrinkB": 12, "color": "0.4"}
        for parent, node in self.edges:
            ax.annotate("", xy=at[node], xytext=at[parent], arrowprops=arrow)
        for node, (x, y) in at.items():
            fill = "#ffd9a0" if node in marked else "white"
            box = {"boxstyle": "round", "facecolor": fill, "edgecolor": "0.4"}
            ax.text(x, y, str(node), ha="center", va="center", bbox=box)
        across, down = ([p[i] for p in at.values()] or [0.0] for i in (0, 1))
        ax.set_xlim(min(across) - 1, max(across) + 1)
        ax.set_ylim(min(down) - 0.5, max(down) + 0.5)
        ax.set_axis_off()
        return ax
