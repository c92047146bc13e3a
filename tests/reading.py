"""The tables beside the repository: rows as dicts, None where missing; see their README."""

from __future__ import annotations

import csv
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from comparing import Rows, frame
from numpy.typing import NDArray

TARGET = "class"


@dataclass
class Table:
    """A table with its declared domains; numbers are floats."""

    folder: Path
    name: str
    rows: Rows = field(init=False)
    domains: dict[str, list[str]] = field(init=False)
    numeric: list[str] = field(init=False)

    def __post_init__(self) -> None:
        told = json.loads((self.folder / "domains" / f"{self.name}.json").read_text("utf-8"))
        self.domains = {j: values for j, values in told.items() if values != "numeric"}
        self.numeric = [j for j in told if j not in self.domains]
        self.rows = [
            {j: self.cell(j, text) for j, text in row.items()}
            for row in self.read(f"tables/{self.name}.csv")
        ]

    def read(self, path: str) -> list[dict[str, str]]:
        with open(self.folder / path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def cell(self, column: str, text: str) -> Any:
        if text == "":
            return None
        return float(text) if column in self.numeric else text

    @property
    def classes(self) -> list[str]:
        """The classes in their declared order."""
        return self.domains[TARGET]

    @property
    def labels(self) -> list[str]:
        return [row[TARGET] for row in self.rows]

    @property
    def features(self) -> Rows:
        return [{j: v for j, v in row.items() if j != TARGET} for row in self.rows]

    def frame(self, rows: Rows | None = None) -> pa.Table:
        """Rows as an Arrow table, whatever of them is missing."""
        rows = self.rows if rows is None else rows
        types = {j: pa.float64() if j in self.numeric else pa.string() for j in rows[0]}
        return frame(rows, types)

    def binned(
        self, rows: Rows, cuts: Mapping[str, Sequence[float]]
    ) -> tuple[Rows, dict[str, list[str]]]:
        """Rows whose numbers are bins (a, b] by name, and the domains of all features."""
        domains = {j: values for j, values in self.domains.items() if j != TARGET}
        domains |= {j: [f"bin {k}" for k in range(len(cuts[j]) + 1)] for j in self.numeric}
        domains = {j: domains[j] for j in self.rows[0] if j != TARGET}
        bins = [
            row
            | {
                j: domains[j][bisect_left(cuts[j], row[j])]
                for j in self.numeric
                if row[j] is not None
            }
            for row in rows
        ]
        return bins, domains

    def cuts(self) -> dict[str, list[float]]:
        """Cut points of Fayyad and Irani on the whole table, by Weka."""
        if not self.numeric:
            return {}
        return {
            row["attribute"]: [float(x) for x in row["cuts"].split(";") if x]
            for row in self.read(f"exact/{self.name}.mdl_cutpoints.csv")
        }

    def proba(self, file: str, classes: Any) -> NDArray[np.float64]:
        """The recorded class distributions of all rows, the classes in the order given."""
        return np.array([[float(r[c]) for c in classes] for r in self.read(f"exact/{file}.csv")])

    def folds(self) -> list[tuple[list[int], list[int]]]:
        """Rows to learn from, and held out, of each fold."""
        fold = [int(row["fold"]) for row in self.read(f"folds/{self.name}.csv")]
        every = range(len(fold))
        return [
            ([r for r in every if fold[r] != k], [r for r in every if fold[r] == k])
            for k in sorted(set(fold))
        ]

    def figures(self, method: str) -> dict[str, float]:
        """Ten-fold figures of another system."""
        (row,) = (
            row
            for row in self.read("REFERENCE.csv")
            if (row["dataset"], row["method"]) == (self.name, method)
        )
        return {k: float(v) for k, v in row.items() if k not in ("dataset", "method")}
