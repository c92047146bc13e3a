"""One block of encoded rows: what statistics count and models score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.named_arrays import named_arrays

# Rows of one block. Floating-point partial sums are formed per block and folded in order,
# so this constant is part of the meaning of a result's last bits: threads are not.
BLOCK_ROWS = 65_536
# Weights, sums of them and pseudo-counts: what is larger could overflow where they are multiplied.
GREATEST = 1e100
# What is smaller, and not 0, has lost digits, and what is divided by it overflows.
LEAST = float(np.finfo(np.float64).tiny)


def code_width(n: int) -> int:
    """Return the bytes of a code below n: as few as tell n codes apart."""
    return 1 if n <= 1 << 8 else 2 if n <= 1 << 16 else 4 if n <= 1 << 32 else 8


_TYPES: dict[int, type[np.unsignedinteger]]
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by width


def code_type(n: int) -> type[np.unsignedinteger]:
    """Return the narrowest type of codes below n."""
    return _TYPES[code_width(n)]


class Codes(NamedTuple):
    """Categorical columns whose codes share one width.

    features  (m,) int64: positions among the categorical features
    codes     (m, n_rows) uint8 | uint16 | uint32, C-contiguous: codes[i, r] < sizes[i]
    sizes     (m,) int64: values known to the encoder, plus one if a missing value occurs here
              (its code is then sizes[i] - 1); at predict S_j + 2: missing is S_j, unseen S_j + 1
    """

    features: NDArray[np.int64]
    codes: NDArray[np.unsignedinteger]
    sizes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded rows. Codes were validated when they were made; nobody below checks them again.

    n_rows   rows
    classes  (n_rows,) uint8 | uint16 class codes < n_classes; None when there is no target
    n_classes  classes known to the encoder
    codes    categorical columns, grouped by width
    missing  (n_categorical,) bool: the column has missing values in this batch
    numeric  one (n_rows,) float64 array per numeric feature, NaN where missing
    weight   (n_rows,) float64, finite and not negative; None when every row weighs 1
    cells    rows x columns of the whole job: whether compiling pays is decided once, not per block
    every_class  whether each class is known to occur in these rows
    """

    n_rows: int
    classes: NDArray[np.unsignedinteger] | None
    n_classes: int
    codes: tuple[Codes, ...]
    missing: NDArray[np.bool_]
    numeric: tuple[NDArray[np.float64], ...]
    weight: NDArray[np.float64] | None
    cells: float
    every_class: bool = False

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return named arrays from which `from_arrays` rebuilds the rows."""
        sizes = np.array([self.n_rows, self.n_classes, len(self.codes), len(self.numeric)])
        found = {"sizes": sizes, "missing": self.missing, "cells": np.array(self.cells)}
        for i, group in enumerate(self.codes):
            found |= named_arrays({f"codes.{i}": group._asdict()})
        found |= {f"numeric.{j}": column for j, column in enumerate(self.numeric)}
        held = {"classes": self.classes, "weight": self.weight}
        return found | {name: array for name, array in held.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the rows held by the arrays of `arrays()`."""
        n_rows, n_classes, groups, numeric = arrays["sizes"].tolist()
        return cls(
            n_rows,
            arrays.get("classes"),
            n_classes,
            tuple(
                Codes(*(arrays[f"codes.{i}.{name}"] for name in Codes._fields))
                for i in range(groups)
            ),
            arrays["missing"],
            tuple(arrays[f"numeric.{j}"] for j in range(numeric)),
            arrays.get("weight"),
            float(arrays["cells"]),
        )


def taken(batch: Batch, rows: NDArray[np.int64]) -> Batch:
    """Return the rows of a batch at these positions, copied."""
    return replace(
        batch,
        n_rows=len(rows),
        classes=None if batch.classes is None else batch.classes[rows],
        codes=tuple(group._replace(codes=group.codes[:, rows]) for group in batch.codes),
        numeric=tuple(column[rows] for column in batch.numeric),
        weight=None if batch.weight is None else batch.weight[rows],
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of batches that one schema encoded, one batch after the other."""
    first = batches[0]
    codes = zip(*(batch.codes for batch in batches), strict=True)
    numeric = zip(*(batch.numeric for batch in batches), strict=True)
    classes = [batch.classes for batch in batches if batch.classes is not None]
    weight = [batch.weight for batch in batches if batch.weight is not None]
    return replace(
        first,
        n_rows=sum(batch.n_rows for batch in batches),
        classes=np.concatenate(classes) if classes else None,
        codes=tuple(
            same[0]._replace(codes=np.concatenate([g.codes for g in same], axis=1))
            for same in codes
        ),
        numeric=tuple(np.concatenate(columns) for columns in numeric),
        weight=np.concatenate(weight) if weight else None,
    )
