"""`Statistics`: several statistics of one scan under one schema."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from fastbayes.core import files
from fastbayes.core.errors import DataError, FileFormatError, SchemaError
from fastbayes.core.ledger import Ledger
from fastbayes.core.named_arrays import arrays_of, named_arrays
from fastbayes.core.numbers import as_float
from fastbayes.core.schema import Schema
from fastbayes.core.schema_file import packed, unpacked
from fastbayes.data.order import sorted_values
from fastbayes.statistics import (
    CellCounts,
    CellScatter,
    ClassMoments,
    ClassScatter,
    ClassSketches,
    FamilyCounts,
    PairCounts,
    Statistic,
    TripleCounts,
    ValueCounts,
)
from fastbayes.statistics.folded import arrays_in_file, folds_together, parts_from, without
from fastbayes.statistics.registry import option_of
from fastbayes.statistics.retraction import left
from fastbayes.statistics.table import dropped_of, from_table, to_table

T = TypeVar("T", bound=Statistic)


class StatisticsPart(property, Generic[T]):
    """The property of `Statistics` that returns one of its parts, or says how to count it."""

    def __init__(self, kind: type[T], doc: str) -> None:
        super().__init__(lambda statistics: statistics._part(kind.name), doc=doc)

    def __get__(self, statistics: Any, owner: type | None = None) -> T:  # type: ignore[override]
        return super().__get__(statistics, owner)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What one scan of the data left behind: everything the models need, as a value.

    Statistics add (`+`), subtract (`-`), scale (`*`), compare, save and load. Adding aligns the
    domains by value, so that parts counted by different machines merge exactly.

    What was added can be taken away: rows, and weights that are whole numbers, exactly; of other
    weights nothing is left but what is more than 1.5e-11 of its class or 1.4e-14 of the largest
    class, since sums of them are rounded. Take the heaviest away last.

    Parameters
    ----------
    schema
        Columns, domains and classes.
    parts
        The statistics by name: "values" (`ValueCounts`), "moments" (`ClassMoments`), "pairs"
        (`PairCounts`), "triples" (`TripleCounts`), "families" (`FamilyCounts`), "scatter"
        (`ClassScatter`), "cells" (`CellCounts`), "cell_scatter" (`CellScatter`),
        "sketches" (`ClassSketches`).
    dropped_rows
        Rows left out because their class is missing; where `from_table` is given sums of weights,
        of which nobody knows of how many rows they are, their weight.
    provenance
        Where the counts came from that are not of files, and what was left out; ignored by `==`.
    folds
        The statistics of each fold of the rows, if counted with `folds`: one schema, and they add
        up to the whole. A sum or a difference has folds if both sides have the same.
    fold_names
        A name for each fold.
    ledger
        The files that were counted, their row groups and how often, and the names of batches
        (`count(batch=)`); ignored by `==`. It adds, subtracts and scales with the counts; `merge`
        holds it against others.

    Examples
    --------
    >>> import fastbayes as fb
    >>> stats = fb.count({"x": ["a", "b", "a"], "y": ["no", "yes", "yes"]}, "y")
    >>> stats.values.of(0)
    array([[1, 1],
           [0, 1]])
    >>> (stats + stats - stats) == stats
    True
    """

    schema: Schema
    parts: Mapping[str, Statistic]
    dropped_rows: float = 0
    provenance: tuple[str, ...] = field(default=())
    folds: tuple[Statistics, ...] = field(default=())
    fold_names: tuple[str, ...] = field(default=())
    ledger: Ledger = field(default_factory=Ledger)

    def __repr__(self) -> str:
        schema = self.schema
        weight = "total weight" if self.weighted else "rows"
        return (
            f"<Statistics of {schema.target!r}: {self.n_rows:,} {weight}, {len(schema.classes)} "
            f"classes, {len(schema.categorical)} categorical and {len(schema.numeric)} numeric "
            f"features, {self.nbytes:,} bytes>"
        )

    values = StatisticsPart(ValueCounts, "The counts of categorical values and of classes.")
    moments = StatisticsPart(ClassMoments, "The moments of the numeric features.")
    scatter = StatisticsPart(ClassScatter, "The scatter matrices of the numeric features.")
    pairs = StatisticsPart(PairCounts, "The counts of pairs of values, with each class.")
    triples = StatisticsPart(TripleCounts, "The counts of triples of values, with each class.")
    families = StatisticsPart(
        FamilyCounts,
        "The counts of the values of features together with their parents', with each class.",
    )
    cells = StatisticsPart(CellCounts, "The counts of the joint values of categorical features.")
    cell_scatter = StatisticsPart(
        CellScatter,
        "The moments of the numeric features in each joint value of the categorical ones.",
    )
    sketches = StatisticsPart(
        ClassSketches, "The values of the numeric features within each class, in bounded memory."
    )

    def _part(self, name: str) -> Statistic:
        if name not in self.parts:
            raise SchemaError(
                f"these statistics hold no {name}; count again with {option_of(name)}"
            )
        return self.parts[name]

    @property
    def weighted(self) -> bool:
        """Whether rows carried weights."""
        return self.values.weighted

    @property
    def n_rows(self) -> float:
        """Rows counted, or the sum of their weights."""
        return self.values.class_counts.sum().item()

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(fold.nbytes for fold in self.folds) + sum(
            part.nbytes for part in self.parts.values()
        )

    def aligned(self, schema: Schema) -> Statistics:
        """Return the statistics with cells laid out as `schema` has them; new cells are empty.

        Parameters
        ----------
        schema
            A schema of the same columns.

        Returns
        -------
        Statistics
            Itself where the schemas are equal.
        """
        if self.schema == schema:
            return self
        to = schema.alignment(self.schema)
        parts = {name: part.take(to) for name, part in self.parts.items()}
        folds = tuple(fold.aligned(schema) for fold in self.folds)
        return replace(self, schema=schema, parts=parts, folds=folds)

    def treating_missing(self, missing: str) -> Statistics:
        """Return the statistics for models to which a missing value is something else.

        Missing values are counted apart in any case.

        Parameters
        ----------
        missing
            "marginalize" or "category", as in `fastbayes.count`.

        Returns
        -------
        Statistics
            Itself where that is so already.

        Raises
        ------
        ValueError
            When it is neither.
        """
        if missing not in ("marginalize", "category"):
            raise ValueError(f"missing={missing!r}: use 'marginalize' or 'category'")
        if self.schema.missing == missing:
            return self
        folds = tuple(fold.treating_missing(missing) for fold in self.folds)
        return replace(self, schema=replace(self.schema, missing=missing), folds=folds)

    def pruned(self) -> Statistics:
        """Return the statistics without undeclared values and classes that never occur."""
        values = self.values
        seen = values.seen
        marks = [seen[a : b - 1] for a, b in zip(values.offsets, values.offsets[1:], strict=False)]
        schema, _ = self.schema.in_order(marks, values.class_counts != 0, sorted_values)
        return self.aligned(schema)

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        mine, theirs = self._matched(other)
        return Statistics(
            mine.schema,
            {name: mine.parts[name] + theirs.parts[name] for name in mine.parts},
            self.dropped_rows + other.dropped_rows,
            tuple(dict.fromkeys(self.provenance + other.provenance)),
            ledger=self.ledger + other.ledger,
            **folds_together(mine, theirs, operator.add),
        )

    def __radd__(self, other: object) -> Statistics:
        # `sum` starts from 0.
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        mine, theirs = self._matched(other)
        dropped = left(*(np.array([side.dropped_rows]) for side in (self, other))).item()
        if dropped < 0:
            raise DataError(
                f"there would be {dropped:.6g} rows without a class (or the weight of so many); "
                "these rows were never added"
            )

        def where(name: str, feature: int, label: int) -> str:
            column = f"column {mine.schema.numeric[feature].name!r}" if feature >= 0 else ""
            its = f"class {mine.schema.classes[label].as_py()!r}" if label >= 0 else ""
            return ", ".join(filter(None, (column, its))) or name

        parts = without(mine.parts, theirs.parts, where)
        folds = folds_together(mine, theirs, lambda a, b: (a - b).aligned(mine.schema))
        ledger = self.ledger - other.ledger
        result = Statistics(mine.schema, parts, dropped, self.provenance, ledger=ledger, **folds)
        for part in reversed(parts.values()):
            part.check_left(mine.schema)
        return result.pruned()

    def __mul__(self, factor: float) -> Statistics:
        if not (isinstance(factor, (int, float, np.number)) and 0 <= as_float(factor) < math.inf):
            raise ValueError(f"statistics can be scaled by a finite number >= 0, not {factor!r}")
        parts = {name: part * float(factor) for name, part in self.parts.items()}
        folds = tuple(fold * factor for fold in self.folds)
        return replace(self, parts=parts, folds=folds, ledger=self.ledger * float(factor))

    __rmul__ = __mul__

    def _matched(self, other: Statistics) -> tuple[Statistics, Statistics]:
        if set(self.parts) != set(other.parts):
            raise SchemaError(
                f"statistics differ: {sorted(self.parts)} and {sorted(other.parts)}; count both "
                "with the same options"
            )
        schema = self.schema.union(other.schema)
        return self.aligned(schema), other.aligned(schema)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return (
            self.schema == other.schema
            and set(self.parts) == set(other.parts)
            and all(self.parts[name] == other.parts[name] for name in self.parts)
            and (self.fold_names, self.folds) == (other.fold_names, other.folds)
        )

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: Statistics, rtol: float = 1e-12) -> bool:
        """Return whether schemas are equal and all numbers agree.

        Parameters
        ----------
        other
            The statistics to compare with.
        rtol
            Relative tolerance, scaled by the largest number of each array.

        Returns
        -------
        bool
            True when they agree.
        """
        if self.schema != other.schema or set(self.parts) != set(other.parts):
            return False
        if self.fold_names != other.fold_names:
            return False
        pairs: list[tuple[Any, Any]] = [(p, other.parts[name]) for name, p in self.parts.items()]
        pairs += zip(self.folds, other.folds, strict=True)
        return all(mine.allclose(theirs, rtol) for mine, theirs in pairs)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the statistics to a file; `load` reads them back, equal bit for bit.

        Parameters
        ----------
        path
            The file to write, by custom `*.fbs`.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists and `force` is not set, or it cannot be written.
        """
        files.write(path, *self._of_kind(), force=force)

    def to_bytes(self) -> bytes:
        """Return the statistics as bytes that travel: those of the file that `save` writes.

        Returns
        -------
        bytes
            From which `from_bytes` makes an equal value, bit for bit, on any machine.

        Examples
        --------
        >>> import fastbayes as fb
        >>> stats = fb.count({"x": ["a", "b", "a"], "y": ["no", "yes", "yes"]}, "y")
        >>> fb.Statistics.from_bytes(stats.to_bytes()) == stats
        True
        """
        return files.to_bytes(*self._of_kind())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Statistics:
        """Return the statistics whose bytes these are, checked as those of a file are.

        Parameters
        ----------
        data
            From `to_bytes`, or the contents of a file that `save` wrote.

        Returns
        -------
        Statistics
            Equal to what was made bytes of.

        Raises
        ------
        FileFormatError
            When these are not the bytes of statistics, or are damaged.
        """
        blob = data if isinstance(data, bytes) else bytes(memoryview(data))
        return cls._from_kind(*files.from_bytes(blob, f"{len(blob):,} bytes"), "the bytes")

    def _of_kind(self) -> tuple[dict[str, Any], dict[str, Any]]:
        header, arrays = self.state()
        return {"kind": "statistics", **header}, arrays

    @classmethod
    def _from_kind(
        cls, header: Mapping[str, Any], arrays: Mapping[str, Any], origin: str
    ) -> Statistics:
        if header.get("kind") != "statistics":
            raise FileFormatError(
                f"{origin}: holds a {header.get('kind')}, not statistics; fastbayes.load reads "
                "its file"
            )
        return cls.from_state(header, arrays, origin)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read statistics written by `save`.

        Parameters
        ----------
        path
            The file to read.

        Returns
        -------
        Statistics
            Equal to what was saved.

        Raises
        ------
        FileFormatError
            When the file is not one of statistics, or is damaged.
        """
        return cls._from_kind(*files.read(path), str(path))

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON-able header and named arrays from which `from_state` rebuilds."""
        schema, arrays = packed(self.schema)
        named = {**named_arrays({"schema": arrays}), **arrays_in_file(self.parts)}
        for i, fold in enumerate(self.folds):
            named |= arrays_in_file(fold.parts, f"fold.{i}.")
        if self.ledger:
            named["ledger"] = self.ledger.to_array()
        header = {
            "schema": schema,
            "parts": list(self.parts),
            "dropped_rows": self.dropped_rows,
            "provenance": list(self.provenance),
        }
        return header | ({"folds": list(self.fold_names)} if self.folds else {}), named

    @classmethod
    def from_state(
        cls, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        """Return the statistics of a header and arrays.

        Parameters
        ----------
        header, arrays
            From `state`.
        source
            Name of the file, for messages.

        Returns
        -------
        Statistics
            Equal to the one whose state it was.

        Raises
        ------
        FileFormatError
            When header and arrays do not fit together.
        """
        try:
            schema = unpacked(header["schema"], arrays_of(arrays, "schema."))
            parts = parts_from(header["parts"], arrays, schema)
            names = tuple(map(str, header.get("folds", ())))
            folds = tuple(
                cls(schema, parts_from(header["parts"], arrays, schema, f"fold.{i}."))
                for i in range(len(names))
            )
            dropped, provenance = dropped_of(header), tuple(header["provenance"])
            if not all(isinstance(p, str) for p in provenance):
                raise ValueError("the remarks on the data are none")
            ledger = Ledger.from_array(arrays["ledger"]) if "ledger" in arrays else Ledger()
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise FileFormatError(
                f"{source}: the header and the arrays do not fit together ({error}); write the "
                "file again"
            ) from error
        return cls(schema, parts, dropped, provenance, folds, names, ledger)

    def to_table(self) -> pa.Table:
        """Return the statistics as one Arrow table, one row a cell that is not empty.

        Returns
        -------
        pyarrow.Table
            Columns part, class, feature, value, n, mean, rest, scatter; value is text, and the mean
            is mean + rest. Counts of pairs name a second feature_b and value_b. The schema's
            metadata hold domains and types, so that `from_table` gives back an equal statistic,
            without folds.
        """
        return to_table(self.schema, self.parts, self.dropped_rows)

    @classmethod
    def from_table(cls, table: Any, **options: Any) -> Statistics:
        """Return the statistics of a table made by `to_table`, or by a GROUP BY (`sql_counts`).

        Parameters
        ----------
        table
            Anything Arrow with columns class, feature, value, n; or, of every pair of features,
            class, feature_a, value_a, feature_b, value_b, n. A null value counts missing cells,
            and a null class rows to be left out. Rows of a feature must add up to the rows of
            each class.
        **options
            `target` (name of the class column, default "class"), `domains`, and `types`
            ({feature: "int64" | "double" | "bool"}, text by default) for tables without metadata.

        Returns
        -------
        Statistics
            The statistics.

        Raises
        ------
        DataError
            When columns are missing, counts are negative, or features disagree on the class
            counts; the message names the feature.
        """
        schema, parts, dropped = from_table(table, **options)
        return cls(schema, parts, dropped)
