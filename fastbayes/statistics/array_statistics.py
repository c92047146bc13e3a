"""Statistics of arrays: class labels with counts, sums or moments that need no schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.named_arrays import arrays_of
from fastbayes.core.schema import Alignment, Shape
from fastbayes.statistics import ClassMoments, ValueCounts
from fastbayes.statistics.feature_sums import FeatureSums
from fastbayes.statistics.folded import arrays_in_file, check_numbers, without
from fastbayes.statistics.retraction import left

KINDS: dict[str, type[Any]] = {s.name: s for s in (ValueCounts, ClassMoments, FeatureSums)}
# The part that is counted over all classes together: moments without weights or classes.
OVERALL = "overall"


@dataclass(frozen=True, eq=False)
class ArrayStatistics:
    """What rows of an array left behind, as a value: it adds (`+`), subtracts (`-`) and compares.

    Adding aligns the classes by label, and the codes of categorical features by value, so that
    parts counted apart merge as if counted together. Subtracting lets codes go that no longer
    occur above all others; the classes stay.

    Parameters
    ----------
    classes
        (n_classes,) sorted labels.
    parts
        The statistics by name: "values" (codes 0, 1, ... of each feature), "sums", "moments" and
        "overall" (moments of all rows together, each of weight 1).
    names
        Feature names, None for arrays without.
    options
        What was done to the numbers before counting; only equal options add.

    Examples
    --------
    >>> from fastbayes.models.sklearn.naive_bayes import MultinomialNB
    >>> monday = MultinomialNB().fit([[2, 0], [1, 3]], ["a", "b"]).statistics_
    >>> friday = MultinomialNB().fit([[4, 1]], ["a"]).statistics_
    >>> (monday + friday).parts["sums"].sums
    array([[6., 1.],
           [1., 3.]])
    >>> (monday + friday - friday) == monday
    True
    """

    classes: NDArray[Any]
    parts: Mapping[str, Any]
    names: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def class_counts(self) -> NDArray[np.float64]:
        """Rows of each class, or their weight, (n_classes,) float64."""
        if "moments" in self.parts:
            return np.array(self.parts["moments"].count[0])
        (part,) = self.parts.values()
        return np.array(part.class_counts, dtype=np.float64)

    @property
    def n_features(self) -> int:
        """Number of features."""
        part = next(iter(self.parts.values()))
        return len(part.shape.sizes) + int(part.shape.n_numeric)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(part.nbytes for part in self.parts.values())

    def _sizes(self) -> NDArray[np.int64]:
        part = self.parts.get("values")
        return np.empty(0, np.int64) if part is None else part.shape.sizes

    def _aligned(self, classes: NDArray[Any], sizes: NDArray[np.int64]) -> ArrayStatistics:
        mine = self._sizes()
        if np.array_equal(classes, self.classes) and np.array_equal(sizes, mine):
            return self
        where = np.full(len(classes), -1)
        where[np.searchsorted(classes, self.classes)] = np.arange(len(self.classes))
        codes = _codes(mine, sizes)
        parts = {}
        for name, part in self.parts.items():
            rows = np.zeros(1, np.int64) if name == OVERALL else where
            shape = Shape(sizes, part.shape.n_numeric, len(rows))
            same = np.arange(len(sizes)), codes, np.arange(shape.n_numeric)
            parts[name] = part.take(Alignment(shape, *same, rows))
        return ArrayStatistics(classes, parts, self.names, self.options)

    def _matched(self, other: ArrayStatistics) -> tuple[ArrayStatistics, ArrayStatistics]:
        for what, a, b in (
            ("parts", sorted(self.parts), sorted(other.parts)),
            ("options", dict(self.options), dict(other.options)),
            ("numbers of features", self.n_features, other.n_features),
        ):
            if a != b:
                raise SchemaError(f"statistics of different {what}: {a} and {b}; count both alike")
        if self.names != other.names:
            raise SchemaError(
                "statistics of different feature names; count both from the same columns"
            )
        if (self.classes.dtype.kind == "U") != (other.classes.dtype.kind == "U"):
            raise SchemaError(
                f"classes are {self.classes.dtype} in one and {other.classes.dtype} in the other"
            )
        classes = np.union1d(self.classes, other.classes)
        sizes = np.maximum(self._sizes(), other._sizes())
        return self._aligned(classes, sizes), other._aligned(classes, sizes)

    def __add__(self, other: ArrayStatistics) -> ArrayStatistics:
        if not isinstance(other, ArrayStatistics):
            return NotImplemented
        mine, theirs = self._matched(other)
        parts = {name: mine.parts[name] + theirs.parts[name] for name in mine.parts}
        return ArrayStatistics(mine.classes, parts, self.names, self.options)

    def __sub__(self, other: ArrayStatistics) -> ArrayStatistics:
        if not isinstance(other, ArrayStatistics):
            return NotImplemented
        mine, theirs = self._matched(other)
        few = left(mine.class_counts, theirs.class_counts) < 0
        if "values" in mine.parts:
            a, b = (side.parts["values"].counts for side in (mine, theirs))
            few |= (left(a, b) < 0).any(axis=0)
        if few.any():
            label = mine.classes[few.argmax()]
            raise DataError(
                f"class {label!s} would be counted fewer than 0 times; these rows were never added"
            )

        def where(name: str, feature: int, label: int) -> str:
            column = feature if self.names is None else repr(self.names[feature])
            its = "all classes" if name == OVERALL else f"class {mine.classes[label]}"
            return f"column {column}, {its}"

        return ArrayStatistics(
            mine.classes, without(mine.parts, theirs.parts, where), self.names, self.options
        )._pruned()

    def _pruned(self) -> ArrayStatistics:
        """Return the statistics without the codes above the largest that occurs."""
        if "values" not in self.parts:
            return self
        values = self.parts["values"]
        seen = (np.flatnonzero(values.of(j).any(axis=1)) for j in range(self.n_features))
        sizes = np.array([s[-1] + 1 if len(s) else 0 for s in seen], dtype=np.int64)
        return self._aligned(self.classes, sizes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayStatistics):
            return NotImplemented
        return (
            np.array_equal(self.classes, other.classes)
            and self.names == other.names
            and dict(self.options) == dict(other.options)
            and sorted(self.parts) == sorted(other.parts)
            and np.array_equal(self._sizes(), other._sizes())
            and all(self.parts[name] == other.parts[name] for name in self.parts)
        )

    __hash__ = None  # type: ignore[assignment]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds."""
        header = {
            "classes": self.classes.tolist(),
            "classes_dtype": self.classes.dtype.str,
            "parts": list(self.parts),
            "n_numeric": self.n_features - len(self._sizes()),
            "names": None if self.names is None else list(self.names),
            "options": dict(self.options),
        }
        return header, {"sizes": self._sizes(), **arrays_in_file(self.parts)}

    @classmethod
    def from_state(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> ArrayStatistics:
        """Return the statistics that `state` described.

        Raises ValueError or KeyError when header and arrays do not fit together.
        """
        classes = np.array(header["classes"], dtype=header["classes_dtype"])
        if classes.ndim != 1 or len(np.unique(classes)) != len(classes):
            raise ValueError("the classes repeat")
        sizes = arrays["sizes"]
        codes = sizes.tolist()
        if sizes.dtype != np.int64 or sizes.ndim != 1 or min(codes, default=0) < 0:
            raise ValueError("the numbers of codes are none")
        if sum(codes) > max((array.size for array in arrays.values()), default=0):
            raise ValueError("there are fewer counts than codes")
        n_numeric = header["n_numeric"]
        if type(n_numeric) is not int or n_numeric < 0:
            raise ValueError(f"{n_numeric!r} is no number of columns")
        parts = {}
        for name in header["parts"]:
            shape = Shape(
                sizes,
                n_numeric,
                1 if name == OVERALL else len(classes),
            )
            kind = KINDS["moments" if name == OVERALL else name]
            parts[name] = kind.from_arrays(shape, arrays_of(arrays, f"{name}."))
        check_numbers(parts)
        names = header["names"]
        shapes = [array.shape for part in parts.values() for array in part.arrays().values()]
        if n_numeric and not any(n_numeric in shape for shape in shapes):
            raise ValueError(f"nothing is held of {n_numeric} columns")
        return cls(classes, parts, None if names is None else tuple(names), header["options"])


def _codes(known: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return for each feature where codes 0, 1, ... of a wanted size are among the known."""
    return [
        np.where(np.arange(size) < least, np.arange(size), -1)
        for size, least in zip(sizes, known, strict=True)
    ]


def resized(counts: ValueCounts, sizes: NDArray[np.int64]) -> ValueCounts:
    """Return counts of codes 0, 1, ... with room for other numbers of codes, (n_features,)."""
    known, k = counts.shape.sizes, counts.shape.n_classes
    if np.array_equal(known, sizes):
        return counts
    codes = _codes(known, sizes)
    features, none = np.arange(len(sizes)), np.empty(0, np.int64)
    return counts.take(Alignment(Shape(sizes, 0, k), features, codes, none, np.arange(k)))
