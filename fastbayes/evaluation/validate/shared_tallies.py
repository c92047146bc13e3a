"""What one scan counts for models that see numeric columns in the same ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastbayes.core.batch import Batch
from fastbayes.data.encode import Encoder
from fastbayes.evaluation.validate.member_rows import MemberRows
from fastbayes.scan.dual_encoding import Views, also_in_bins, dual_encoding
from fastbayes.statistics.bundle import Statistics

# How a model sees numeric columns: as numbers, or in bins by a rule that has this name.
Way = str
NUMBERS: Way = ""
# Statistics of joint values, and of the numbers in them.
OF_CELLS = ("cells", "cell_scatter")
# Makes of rows as they are encoded what a model sees of them; None: all.
View = Callable[[Batch], Batch] | None


@dataclass(frozen=True)
class OtherBins:
    """Makes bins of rows that were encoded in others.

    numbers  gives the rows with numeric columns as numbers
    rows     cuts these
    """

    numbers: View
    rows: MemberRows

    def __call__(self, batch: Batch) -> Batch:
        """Return rows in bins."""
        return self.rows.batch(batch if self.numbers is None else self.numbers(batch))


@dataclass
class SharedTally:
    """What one scan counts, of all rows or without a fold: numeric columns in bins by a rule.

    way         in which the columns are cut
    both        whether they are counted as numbers, too: then rows are encoded by its schema
    learned     whether cut points depend on the rows
    pairs       whether pairs of columns are counted
    of_numbers  statistics of numbers besides moments
    cells       whether joint values are counted without a fold, and numbers in them: of all rows
                they are left to the model, which does not keep them while others are fitted
    besides     bytes that were held already when all rows were counted
    stats       counts of all rows, by folds
    """

    way: Way
    both: bool
    learned: bool
    pairs: bool = False
    of_numbers: Sequence[str] = ()
    cells: bool = False
    besides: int = 0
    stats: Statistics | None = None

    @property
    def ways(self) -> tuple[Way, ...]:
        """How its models see numeric columns."""
        return (NUMBERS, self.way) if self.both else (self.way,)

    @property
    def counted(self) -> list[str]:
        """The statistics."""
        return ["values", "moments", *["pairs"] * self.pairs, *self.of_numbers]

    def counted_without(self, encoder: Encoder) -> dict[str, dict[str, Any]]:
        """Return the statistics of rows without a fold, and options of each."""
        wanted: dict[str, dict[str, Any]] = {name: {} for name in self.counted}
        if self.cells:
            # Bins of numbers stand behind the columns that are categories as they are.
            n = len(encoder.books) - len(also_in_bins(encoder))
            wanted |= {name: {"columns": range(n)} for name in OF_CELLS}
        return wanted

    def encoder(self, learning: Callable[..., Encoder], cuts: Any) -> Encoder:
        """Return an encoder of rows that are to be counted, with cut points by way."""
        points = cuts.get(self.way)
        return dual_encoding(learning, points) if self.both else learning(cuts=points)

    def seen(self, stats: Statistics) -> dict[Way, Statistics]:
        """Return counts as models see them."""
        if not self.both:
            return {self.way: stats}
        views = Views(stats.schema)
        parts = {name: part for name, part in stats.parts.items() if name not in OF_CELLS}
        bins = views.counted(replace(stats, parts=parts), bins=True)
        return {self.way: bins, NUMBERS: views.counted(stats, bins=False)}
