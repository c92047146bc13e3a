"""Graphs drawn."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from fastbayes.core.errors import FastBayesError
from fastbayes.networks.network import BayesianNetwork
from fastbayes.networks.picture import places
from tests.networks_made import asia, random_network


@pytest.mark.parametrize("seed", range(5))
def test_places__are_below_parents_and_apart(seed: int) -> None:
    network = random_network(seed, 12, 0.3)
    at = places(network)
    assert [*at] == [*network.nodes]
    assert all(at[child][1] <= at[parent][1] - 1 for parent, child in network.edges)
    found = np.array([*at.values()])
    apart = np.abs(found[:, None] - found[None]).sum(axis=2) + 9 * np.eye(len(found))
    assert apart.min() >= 1
    assert places(BayesianNetwork.from_edges([])) == {}


class Axes:
    """Notes what is drawn."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.arrows = 0
        self.filled: list[str] = []

    def annotate(self, text: str, xy: Any, xytext: Any, arrowprops: Any) -> None:
        self.arrows += 1
        assert xytext[1] > xy[1]

    def text(self, x: float, y: float, name: str, **more: Any) -> None:
        self.texts.append(name)
        if more["bbox"]["facecolor"] != "white":
            self.filled.append(name)

    def set_xlim(self, *limits: float) -> None:
        assert limits[0] < limits[1]

    set_ylim = set_xlim

    def set_axis_off(self) -> None: ...


def test_picture__shows_nodes_and_edges() -> None:
    axes = asia().plot(Axes(), marked=["asia"])
    assert axes.texts == [*asia().nodes]
    assert axes.arrows == 8
    assert axes.filled == ["asia"]
    with pytest.raises(ValueError, match="'x' is not among the nodes"):
        asia().plot(Axes(), marked=["x"])
    BayesianNetwork.from_edges([]).plot(Axes())


def test_picture__without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(FastBayesError, match=r"install fastbayes\[plot\]"):
        asia().plot()


def test_picture__by_matplotlib() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = asia().plot()
    assert len(axes.texts) == 8 + 8  # names and arrows
    axes.figure.canvas.draw()
