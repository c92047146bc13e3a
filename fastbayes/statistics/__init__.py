"""Sufficient statistics: values that add, subtract, align, save and ship."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from fastbayes.batch import Batch
from fastbayes.schema import Alignment, Shape
from fastbayes.statistics.class_moments import ClassMoments
from fastbayes.statistics.value_counts import ValueCounts


class Statistic(Protocol):
    """The contract of every statistic. A new one is one file and one line in `REGISTRY`."""

    name: str
    shape: Shape

    @classmethod
    def zeros(cls, shape: Shape, *, weighted: bool = False) -> Self: ...
    @classmethod
    def order_free(cls, weighted: bool) -> bool: ...
    @classmethod
    def from_arrays(cls, shape: Shape, arrays: Mapping[str, NDArray[Any]]) -> Self: ...
    def arrays(self) -> dict[str, NDArray[Any]]: ...
    def update(self, batch: Batch) -> None: ...
    def take(self, to: Alignment) -> Self: ...
    def grown(self, shape: Shape) -> Self: ...
    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, factor: float) -> Self: ...
    @property
    def nbytes(self) -> int: ...


REGISTRY: dict[str, type[Any]] = {s.name: s for s in (ValueCounts, ClassMoments)}

__all__ = ["REGISTRY", "ClassMoments", "Statistic", "ValueCounts"]
