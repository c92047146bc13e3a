"""The leaderboard of `compare`: what is known of each model, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.suggestions import did_you_mean
from fastbayes.core.text_tables import ShortRepr, aligned, size
from fastbayes.evaluation.validate.cross_validation import Validation
from fastbayes.kernels.shared.nested import CLIP

# Log-losses closer than this share of themselves are equal.
SAME = 1e-12
# What the table tells of a model, and of what it took.
FIGURES = ("accuracy", "log_loss", "brier", "auc", "expected_loss", "clipped")
GAP = ("gap", "gap_error", "temperature", "calibrated")
COSTS = ("fit_seconds", "predict_seconds", "memory", "parameters")
_HEAD = (
    *("model", "accuracy", "log-loss", "gap ± s.e.", "AUC", "Brier", "fit s", "predict s"),
    *("memory", "parameters"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Entry(ShortRepr):
    """One model of a leaderboard.

    Attributes
    ----------
    name
        Its name.
    reason
        Why it could not be used, and then nothing else is known; "" where it could.
    dropped
        Why it was left out once a sample of the rows had shown that it cannot win; "" where it was
        not. Then `figures` are those of the sample, without the AUC, and `model` is None.
    figures
        How good it is on rows that it was not fitted with; their `n` says on how many.
    model
        The model, fitted to all rows. The winner's is `Calibrated` by a temperature, unless it is
        the prior or an estimator of arrays; its own `model_` is the model without that.
    fit_seconds
        Seconds from the counts to the model of all rows.
    predict_seconds
        Processor seconds, over all threads, that scoring the rows of `figures` took: leave-one-out
        scores each row twice.
    memory
        Bytes of the counts that it is made of; None of an estimator of arrays.
    parameters
        Free parameters; None of an estimator of arrays, and where there are 2^63 or more.
    winner
        Whether it has the lowest log-loss, of equals the fewest parameters.
    gap
        Its log-loss less the winner's, in nats; NaN where it was dropped or not used.
    gap_error
        Standard error of `gap`, from the differences row by row: beyond two or three of them the
        winner is better. NaN as for `gap`.
    temperature
        What the log posteriors of the winner's `model` are divided by, 1 where no other number
        is worth its while; NaN where there is none.
    calibrated
        Log-loss with a temperature of the winner by the other folds, on the rows of each fold: what
        new rows are to be expected to have, the choice of the winner included, while `figures` are
        those of the model without temperature on the rows that it was chosen by. By leave-one-out
        the posteriors are those of `figures`, which have seen the choice and what `scored` names:
        it may promise too much. NaN where there is no temperature.
    """

    name: str
    reason: str = ""
    dropped: str = ""
    figures: Validation | None = None
    model: Any = field(default=None, repr=False)
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    memory: int | None = 0
    parameters: int | None = 0
    winner: bool = False
    gap: float = math.nan
    gap_error: float = math.nan
    temperature: float = math.nan
    calibrated: float = math.nan

    @property
    def scored(self) -> str:
        """How the rows were scored, and what was learned from all of them nevertheless.

        Classes and values of categorical columns always are; "" of a model that was not used.
        """
        f = self.figures
        if f is None:
            return ""
        fixed = _fixed(f)
        return f"{_how(f)}, {' and '.join(fixed)} of all rows" if fixed else _how(f)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values for JSON, None for what is not known."""
        f = self.figures
        figures = {name: getattr(f, name, None) for name in FIGURES}
        figures |= {name: getattr(self, name) for name in GAP}
        costs = {name: None if f is None else getattr(self, name) for name in COSTS}
        return {
            "model": self.name,
            "winner": self.winner,
            "rows": None if f is None else f.n,
            **{n: None if x is None or math.isnan(x) else x for n, x in figures.items()},
            **costs,
            "scored": self.scored or None,
            "fixed": None if f is None else list(f.fixed),
            "reason": self.reason or None,
            "dropped": self.dropped or None,
        }

    def __str__(self) -> str:
        f = self.figures
        if f is None:
            return f"<Entry {self.name}: {self.reason}>"
        dropped = self.dropped and f"; {self.dropped}"
        return f"<Entry {self.name}: accuracy {f.accuracy:.6f}, log-loss {f.log_loss:.6f}{dropped}>"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ShortRepr, Mapping[str, Entry]):
    """A leaderboard of models on the same rows: a mapping from names to entries, the best first.

    Attributes
    ----------
    entries
        The models, the best first; those that were dropped stand after those that were not, and
        last those that could not be used.
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
    _blended: Callable[[Sequence[str]], Any] = field(repr=False)

    @property
    def best(self) -> Entry:
        """The winner."""
        return self.entries[0]

    def __getitem__(self, name: str) -> Entry:
        """Return the entry of a model, by its name."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(f"{name!r} is not on the board" + did_you_mean(str(name), self))

    def __iter__(self) -> Iterator[str]:
        return (entry.name for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def blend(self) -> Any:
        """Return a `Blend` of the models of the board, fitted to the same rows.

        Returns
        -------
        Blend
            Of all models that were neither dropped nor refused, but for the prior and estimators of
            arrays, which no file of a model holds. Its weights come from held-out posteriors; one
            that helps little is left out (`dropped_`).

        Raises
        ------
        DataError
            When no such model is on the board, or workers read the rows.

        Notes
        -----
        The members are fitted anew, to the same folds where the board has them: the rows are read
        again, as `Blend.fit` does, and have to be what they were. A board that is pickled keeps
        for this the rows themselves where they are in memory, and of files their paths.

        Examples
        --------
        >>> import fastbayes as fb
        >>> a, b = list("00110011") * 60, list("01010101") * 60
        >>> table = {"a": a, "b": b, "y": ["n" if x == z else "p" for x, z in zip(a, b)]}
        >>> [*fb.compare(table, "y", models=["naive-bayes", "tan"]).blend().members_]
        ['tan']
        """
        return self._blended([e.name for e in self.entries if e.model is not None])

    @property
    def table(self) -> pa.Table:
        """The leaderboard as an Arrow table, one row a model, null for what is not known."""
        rows = [entry.to_dict() for entry in self.entries]
        types = {
            "model": pa.string(),
            "winner": pa.bool_(),
            **dict.fromkeys(("rows", *FIGURES, *GAP, *COSTS[:2]), pa.float64()),
            **dict.fromkeys(COSTS[2:], pa.int64()),
            "scored": pa.string(),
            "fixed": pa.list_(pa.string()),
            "reason": pa.string(),
            "dropped": pa.string(),
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
        # What is alike for all models stands in no column.
        more: dict[str, Callable[[Entry], str]] = {}
        if any(entry.dropped for entry in used):
            more["rows"] = lambda entry: f"{figures_of(entry).n:,.10g}"
        if any(_fixed(figures_of(entry)) for entry in used):
            more["learned from all rows"] = lambda entry: ", ".join(_fixed(figures_of(entry)))
        how = _how(figures_of(used[0]))
        head = f"{how} of {self.rows:,.10g} rows, {len(self.classes):,} classes"
        rows = [(*_HEAD, *more), *((*_cells(e), *(f(e) for f in more.values())) for e in used)]
        lines = [head, "", *aligned(rows, len(used[:1]))]
        noted = [(e.name, e.dropped or e.reason) for e in self.entries]
        lines += [f"  {name}: {why}" for name, why in noted if why]
        shared = ", ".join(f"{what} {seconds:.3g} s" for what, seconds in self.seconds.items())
        return "\n".join(
            [*lines, "", *_calibrated(used), *_clipped(used), f"shared by all: {shared}"]
        )


def _how(figures: Validation) -> str:
    return f"{len(figures.folds)} folds" if figures.method == "k-fold" else figures.method


def _fixed(figures: Validation) -> list[str]:
    """Return what was learned from all rows, but for classes and values, which always are."""
    return [what for what in figures.fixed if what != "schema"]


def figures_of(entry: Entry) -> Validation:
    """Return the figures of a model that was used."""
    assert entry.figures is not None
    return entry.figures


def _cells(entry: Entry) -> tuple[str, ...]:
    f = figures_of(entry)
    gap = "" if math.isnan(entry.gap) else f"{entry.gap:.6f} ± {entry.gap_error:.1g}"
    return (
        entry.name,
        f"{f.accuracy:.6f}",
        f"{f.log_loss:.6f}",
        "" if entry.winner else gap,
        "" if math.isnan(f.auc) else f"{f.auc:.6f}",
        f"{f.brier:.6f}",
        f"{entry.fit_seconds:.3g}",
        f"{entry.predict_seconds:.3g}",
        "" if entry.memory is None else size(entry.memory),
        "" if entry.parameters is None else f"{entry.parameters:,}",
    )


def _calibrated(used: Sequence[Entry]) -> list[str]:
    """Return a line that says what the temperature of the winner, which is the first, does."""
    winner = used[0]
    if math.isnan(winner.temperature):
        return []
    said = f"its model is calibrated by the temperature {winner.temperature:.4g}"
    held = "" if math.isnan(winner.calibrated) else f", log-loss {winner.calibrated:.6f}"
    learned = dict.fromkeys(what for entry in used for what in _fixed(figures_of(entry)))
    if held and learned:  # by the winner, or by one that it was chosen among
        held += f" ({', '.join(learned)} of all rows: it may promise too much; use folds)"
    return [f"{winner.name}: {said}{held}"]


def _clipped(used: Sequence[Entry]) -> list[str]:
    """Return a line that says of which models log-losses would be infinite, or nearly so."""
    found = [
        f"{entry.name} {figures_of(entry).clipped:,.10g}"
        for entry in used
        if figures_of(entry).clipped
    ]
    if not found:
        return []
    return [f"rows whose class had a probability below {CLIP:g}, taken as that: {', '.join(found)}"]


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries by log-loss, equals by parameters and then by name.

    Those that were dropped follow, then those that were not used.
    """
    used = sorted((e for e in entries if e.figures is not None and not e.dropped), key=_loss)
    result: list[Entry] = []
    while rest := used[len(result) :]:
        most = _loss(rest[0]) + SAME * max(abs(_loss(rest[0])), SAME)
        equal = [e for e in rest if _loss(e) <= most]
        result += sorted(equal, key=lambda e: (_size(e), e.name))
    result += sorted((e for e in entries if e.dropped), key=lambda e: (_loss(e), e.name))
    return result + [e for e in entries if e.figures is None]


def _loss(entry: Entry) -> float:
    return float(np.nan_to_num(figures_of(entry).log_loss, nan=np.inf))


def _size(entry: Entry) -> float:
    return math.inf if entry.parameters is None else entry.parameters
