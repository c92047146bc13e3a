"""Sufficient statistics: values that add, subtract, align, save and ship."""

from fastbayes.statistics.base import Statistic
from fastbayes.statistics.cell_counts import CellCounts
from fastbayes.statistics.cell_scatter import CellScatter
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.class_scatter import ClassScatter
from fastbayes.statistics.class_sketches import ClassSketches
from fastbayes.statistics.family_counts import FamilyCounts
from fastbayes.statistics.pair_counts import PairCounts
from fastbayes.statistics.registry import REGISTRY
from fastbayes.statistics.triple_counts import TripleCounts
from fastbayes.statistics.value_counts import ValueCounts

__all__ = [
    "REGISTRY",
    "CellCounts",
    "CellScatter",
    "ClassMoments",
    "ClassScatter",
    "ClassSketches",
    "FamilyCounts",
    "PairCounts",
    "Statistic",
    "TripleCounts",
    "ValueCounts",
]
