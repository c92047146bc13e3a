"""The statistics of one scan while it goes on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fastbayes.core.batch import Batch
from fastbayes.core.schema import Shape
from fastbayes.statistics.base import Statistic, union
from fastbayes.statistics.registry import REGISTRY

# Names of statistics, with what each needs to know to begin.
Wanted = Mapping[str, Mapping[str, Any]]


class GrowingStatistics:
    """The statistics of one scan while its codebooks may still grow."""

    def __init__(self, wanted: Wanted, *, weighted: bool) -> None:
        self.wanted = wanted
        self.weighted = weighted
        self.held: dict[str, Statistic] = {}

    def empty(self, name: str, shape: Shape) -> Statistic:
        """Return the statistic of this name before its first row."""
        return REGISTRY[name].zeros(shape, weighted=self.weighted, **self.wanted[name])

    def of(self, name: str, shape: Shape) -> Statistic:
        """Return the statistic of this name, with room for at least a shape."""
        held = self.held.get(name)
        return self.empty(name, shape) if held is None else held.grown(shape)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self.held.values())

    def room(self, shape: Shape) -> Shape:
        """Return the shape that has room for what is held, too."""
        return functools.reduce(union, (part.shape for part in self.held.values()), shape)

    def update(self, batch: Batch, shape: Shape) -> None:
        """Count a batch, growing to at least `shape` first."""
        for name in self.wanted:
            part = (self.held.get(name) or self.empty(name, shape)).grown(shape)
            part.update(batch)
            self.held[name] = part

    def add(self, other: GrowingStatistics) -> None:
        """Add the statistics of other rows, counted by the same codebooks."""
        for name, theirs in other.held.items():
            mine = self.held.get(name)
            if mine is not None:
                mine = mine.grown(theirs.shape)
                theirs = mine + theirs.grown(mine.shape)
            self.held[name] = theirs
