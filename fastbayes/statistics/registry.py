"""The statistics that there are, by the names by which scans and files call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastbayes.statistics.base import Statistic
from fastbayes.statistics.cell_counts import CellCounts
from fastbayes.statistics.cell_scatter import CellScatter
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.class_scatter import ClassScatter
from fastbayes.statistics.class_sketches import ClassSketches
from fastbayes.statistics.family_counts import FamilyCounts
from fastbayes.statistics.pair_counts import PairCounts
from fastbayes.statistics.triple_counts import TripleCounts
from fastbayes.statistics.value_counts import ValueCounts

# In the order in which a scan holds and a file lists them.
REGISTRY: dict[str, type[Statistic]] = {
    kind.name: kind
    for kind in (
        ValueCounts,
        ClassMoments,
        PairCounts,
        TripleCounts,
        ClassScatter,
        CellScatter,
        ClassSketches,
        FamilyCounts,
        CellCounts,
    )
}


def register(kind: type[Statistic]) -> type[Statistic]:
    """Add a statistic to those that can be counted, loaded and merged; usable as a decorator.

    Raises
    ------
    ValueError
        When its name stands for another one.
    """
    if REGISTRY.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"the name {kind.name!r} stands for {REGISTRY[kind.name].__name__}")
    return kind


def kind_of(name: str) -> type[Statistic]:
    """Return the statistic of this name; ValueError when there is none."""
    if name not in REGISTRY:
        raise ValueError(f"no statistic is called {name!r}; there are {[*REGISTRY]}")
    return REGISTRY[name]


def option_of(name: str) -> str:
    """Return how `count` is asked for a statistic."""
    return kind_of(name).option or f"statistics=[{name!r}]"


def with_companions(asked: Mapping[str, object]) -> list[str]:
    """Return the statistics that are asked for and those counted with them, in registry order."""
    names = {name for name, yes in asked.items() if yes}
    names |= {companion for name in names for companion in kind_of(name).companions}
    return [name for name in REGISTRY if name in names]


def order_free(names: Iterable[str], n_numeric: int, *, weighted: bool) -> list[str]:
    """Return those statistics of which the order of rows changes no bit."""
    kinds = {name: kind_of(name) for name in names}
    return [n for n, k in kinds.items() if k.vacuous(n_numeric) or k.order_free(weighted)]


def wanting(names: Iterable[str], numeric_as: str) -> list[str]:
    """Return those statistics of which numeric columns are to be "bins", or "numbers"."""
    return [name for name in names if kind_of(name).numeric_as == numeric_as]
