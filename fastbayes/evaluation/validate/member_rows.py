"""Rows that were encoded once, as several models take them: some see bins of numeric columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes, code_type
from fastbayes.core.schema import Schema

Rows = tuple[tuple[Codes, ...], tuple[NDArray[np.float64], ...]]


class MemberRows:
    """Gives rows as a model takes them out of rows with numeric columns as numbers.

    The schema of the model, `own`, has the columns of that which the rows were encoded by, of which
    numeric ones may be cut into bins: ValueError when the two differ in anything else.
    """

    def __init__(self, whole: Schema, own: Schema) -> None:
        whole, own = _as_observed(whole), _as_observed(own)
        if whole.names != own.names:
            raise ValueError(f"a model was made for the columns {own.names}, not {whole.names}")
        # A missing value has the same code, whatever it is to a model.
        if not replace(own, features=whole.features, missing=whole.missing) == whole:
            raise ValueError("a model was made for other classes")
        place = {feature.name: at for at, feature in enumerate(own.categorical)}
        self._numbers, self._bins = list[int](), list[tuple[int, int, NDArray[np.float64]]]()
        for at, feature in enumerate(whole.numeric):
            if feature.name not in place:
                self._numbers.append(at)
                continue
            cuts = own.categorical[place[feature.name]].cuts
            if cuts is None:
                raise ValueError(f"column {feature.name!r} is numeric and in no bins to a model")
            self._bins.append((at, place[feature.name], cuts))
        mine = {feature.name: feature for feature in own.features}
        if any(mine[feature.name] != feature for feature in whole.categorical):
            raise ValueError("a model was made for other values of a column")
        self._place = np.array([place[f.name] for f in whole.categorical], np.int64)
        self._n_categorical = len(own.categorical)

    @property
    def key(self) -> Any:
        """Equal for models that take the same rows."""
        return tuple((at, cuts.tobytes()) for at, _, cuts in self._bins)

    def __call__(
        self, codes: Sequence[Codes], numeric: Sequence[NDArray[np.float64]]
    ) -> tuple[tuple[Codes, ...], tuple[NDArray[np.float64], ...]]:
        """Return the codes and the numbers that the model takes."""
        if not self._bins:
            return tuple(codes), tuple(numeric)
        groups = {group.codes.dtype: self._placed(group) for group in codes}
        for kind, group in self._cut(numeric).items():
            groups[kind] = _both(groups[kind], group) if kind in groups else group
        return tuple(groups.values()), tuple(numeric[at] for at in self._numbers)

    def batch(self, batch: Batch) -> Batch:
        """Return the batch of rows that the model takes."""
        if not self._bins:
            return batch
        codes, numeric = self(batch.codes, batch.numeric)
        missing = np.zeros(self._n_categorical, np.bool_)
        missing[self._place] = batch.missing
        for at, place, _ in self._bins:
            missing[place] = np.isnan(batch.numeric[at]).any()
        return replace(batch, codes=codes, numeric=numeric, missing=missing)

    def _placed(self, group: Codes) -> Codes:
        return group._replace(features=self._place[group.features])

    def _cut(self, numeric: Sequence[NDArray[np.float64]]) -> dict[np.dtype[Any], Codes]:
        """Return the bins of numbers by the width of their codes, encoded as others at predict."""
        found: dict[np.dtype[Any], list[tuple[int, NDArray[Any], int]]] = {}
        for at, place, cuts in self._bins:
            size = len(cuts) + 1
            # Bin k is (cuts[k - 1], cuts[k]]; size itself is a missing value, size + 1 an unseen.
            code = np.searchsorted(cuts, numeric[at], side="left")
            code[np.isnan(numeric[at])] = size
            found.setdefault(np.dtype(code_type(size + 2)), []).append((place, code, size + 2))
        groups = {}
        for kind, columns in found.items():
            places, codes, sizes = zip(*columns, strict=True)
            groups[kind] = Codes(
                np.array(places, np.int64), np.array(codes).astype(kind), np.array(sizes, np.int64)
            )
        return groups


def _as_observed(schema: Schema) -> Schema:
    """Return a schema without what was declared of it: codes are the same."""
    features = tuple(
        replace(feature, declared=False) if feature.declared else feature
        for feature in schema.features
    )
    return replace(schema, features=features, classes_declared=False)


def _both(one: Codes, other: Codes) -> Codes:
    """Return the columns of two groups of one width."""
    return Codes(*(np.concatenate(parts) for parts in zip(one, other, strict=True)))
