"""A leaderboard of models: figures, times and sizes as a table, as text and for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.text_tables import ShortRepr, aligned
from fastbayes.evaluation.validate.cross_validation import Validation

# Log-losses closer than this share of themselves are equal.
SAME = 1e-12
_HEAD = ("model", "accuracy", "log-loss", "Brier", "fit s", "predict s", "memory", "parameters")


@dataclass(frozen=True, eq=False, repr=False)
class Entry(ShortRepr):
    """One model of a leaderboard.

    Attributes
    ----------
    name
        Its name.
    reason
        Why it could not be used, and then nothing else is known; "" where it could.
    figures
        How good it is on rows that it was not fitted with.
    model
        The model, fitted to all rows.
    fit_seconds
        Seconds from the counts to the model of all rows.
    predict_seconds
        Processor seconds, over all threads, that scoring took: leave-one-out scores each row twice.
    memory
        Bytes of the counts that it is made of.
    parameters
        Free parameters.
    winner
        Whether it has the lowest log-loss, of equals the fewest parameters.
    """

    name: str
    reason: str = ""
    figures: Validation | None = None
    model: Any = field(default=None, repr=False)
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    memory: int = 0
    parameters: int = 0
    winner: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values for JSON, None for what is not known."""
        f = self.figures
        known = f is not None
        told = ("accuracy", "log_loss", "brier", "auc", "expected_loss")
        figures = {name: getattr(f, name, None) for name in told}
        return {
            "model": self.name,
            "winner": self.winner,
            **{n: None if x is None or math.isnan(x) else x for n, x in figures.items()},
            "fit_seconds": self.fit_seconds if known else None,
            "predict_seconds": self.predict_seconds if known else None,
            "memory": self.memory if known else None,
            "parameters": self.parameters if known else None,
            "fixed": list(f.fixed) if f is not None else None,
            "reason": self.reason or None,
        }

    def __str__(self) -> str:
        f = self.figures
        if f is None:
            return f"<Entry {self.name}: {self.reason}>"
        return f"<Entry {self.name}: accuracy {f.accuracy:.6f}, log-loss {f.log_loss:.6f}>"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ShortRepr):
    """A leaderboard of models on the same rows.

    Attributes
    ----------
    entries
        The models, the best first, those that could not be used last.
    validation
        "leave-one-out", or "k-fold".
    rows
        Rows that took part, or the sum of their weights.
    classes
        (n_classes,) labels.
    seconds
        Seconds of the scans that all models share, by what was done in them.
    """

    entries: tuple[Entry, ...]
    validation: str
    rows: float
    classes: NDArray[Any]
    seconds: dict[str, float]

    @property
    def best(self) -> Entry:
        """The winner."""
        return self.entries[0]

    def __getitem__(self, name: str) -> Entry:
        """Return the entry of a model, by its name."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    @property
    def table(self) -> pa.Table:
        """The leaderboard as an Arrow table, one row a model, null for what is not known."""
        rows = [entry.to_dict() for entry in self.entries]
        types = {
            "model": pa.string(),
            "winner": pa.bool_(),
            **dict.fromkeys(
                ("accuracy", "log_loss", "brier", "auc", "expected_loss"), pa.float64()
            ),
            **dict.fromkeys(("fit_seconds", "predict_seconds"), pa.float64()),
            **dict.fromkeys(("memory", "parameters"), pa.int64()),
            "fixed": pa.list_(pa.string()),
            "reason": pa.string(),
        }
        return pa.table({n: pa.array([r[n] for r in rows], t) for n, t in types.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the leaderboard as plain values for JSON."""
        return {
            "validation": self.validation,
            "rows": self.rows,
            "classes": self.classes.tolist(),
            "seconds": self.seconds,
            "models": [entry.to_dict() for entry in self.entries],
        }

    def __str__(self) -> str:
        used = [entry for entry in self.entries if entry.figures is not None]
        head = f"{self.validation} of {self.rows:,.10g} rows, {len(self.classes):,} classes"
        lines = [head, "", *aligned([_HEAD, *map(_cells, used)], len(used[:1]))]
        lines += [f"  {e.name}: {e.reason}" for e in self.entries if e.figures is None]
        shared = ", ".join(f"{what} {seconds:.3g} s" for what, seconds in self.seconds.items())
        return "\n".join([*lines, "", *_fixed(used), f"shared by all: {shared}"])


def _cells(entry: Entry) -> tuple[str, ...]:
    f = entry.figures
    assert f is not None
    return (
        entry.name,
        f"{f.accuracy:.6f}",
        f"{f.log_loss:.6f}",
        f"{f.brier:.6f}",
        f"{entry.fit_seconds:.3g}",
        f"{entry.predict_seconds:.3g}",
        _size(entry.memory),
        f"{entry.parameters:,}",
    )


def _fixed(used: Sequence[Entry]) -> list[str]:
    """Return lines that say what was learned from all rows, those held out included."""
    by_what: dict[str, list[str]] = {}
    for entry in used:
        assert entry.figures is not None
        for what in entry.figures.fixed:
            by_what.setdefault(what, []).append(entry.name)
    every = [what for what, names in by_what.items() if len(names) == len(used)]
    told = [f"{what} fixed" for what in every]
    told += [f"{what} fixed: {', '.join(n)}" for what, n in by_what.items() if what not in every]
    return ["; ".join(told)] if told else []


def _size(n_bytes: int) -> str:
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries by log-loss, equals by parameters and then by name; unused ones last."""
    used = sorted((e for e in entries if e.figures is not None), key=_loss)
    result: list[Entry] = []
    while used:
        least = _loss(used[0])
        equal = [e for e in used if _loss(e) <= least + SAME * max(abs(least), SAME)]
        result += sorted(equal, key=lambda e: (e.parameters, e.name))
        used = used[len(equal) :]
    return result + [e for e in entries if e.figures is None]


def _loss(entry: Entry) -> float:
    assert entry.figures is not None
    return float(np.nan_to_num(entry.figures.log_loss, nan=np.inf))
