"""Values that another value of the same row implies: they are left out of the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.count_tables import CountTables
from fastbayes.models.estimator.log_space import Floats

# Rows that a value must occur in before what always comes with it counts as implied.
THRESHOLD = 100.0

# Sums of weights closer than this share of themselves are equal.
ROUNDING = 1e-12


def checked_threshold(subsumption: Any) -> float | None:
    """Return how often a value must occur to imply another, None where nothing is implied.

    Raises
    ------
    ValueError
        When it is neither a bool nor a number > 0.
    """
    if isinstance(subsumption, (bool, np.bool_)):
        return THRESHOLD if subsumption else None
    if isinstance(subsumption, (int, float, np.number)) and subsumption > 0:
        return float(subsumption)
    raise ValueError(f"subsumption={subsumption!r}: use False, True, or a number > 0")


class Subsumption:
    """Which values imply which, and rows without the implied ones.

    Parameters
    ----------
    cells
        Counts, in which a code that is no observation stands for what is left out.
    names
        Names of the features.
    threshold
        Rows, by weight, in which the implying value occurs at least.

    Attributes
    ----------
    rules
        (n_rules, 4) feature and code that imply, feature and code that are implied.

    Notes
    -----
    Value a of feature i implies value b of j where every row that has a has b. What is implied
    says nothing new: it is left out. Of values that imply each other the first by feature name
    stays. Implication is transitive, so that the order of the rules does not matter.
    """

    def __init__(self, cells: CountTables, names: Sequence[str], threshold: float) -> None:
        m = len(names)
        rank = np.argsort(np.argsort(np.array(names, dtype=object)))
        total, found = cells.n.sum(axis=1), []
        for i in range(m):
            own = total[cells.offsets[i] : cells.offsets[i + 1], None]
            rows, _, counts = cells.beside(i)
            both, other = counts.sum(axis=2), total[rows]
            implies = (own >= threshold) & (both >= own * (1 - ROUNDING))
            back = (other >= threshold) & (both >= other * (1 - ROUNDING))
            first = (rank[i] < rank)[cells.feature[rows]]
            a, column = np.nonzero(implies & (first | ~back))
            row = rows[column]
            j = cells.feature[row]
            found.append(np.stack((np.full(len(a), i), a, j, row - cells.offsets[j]), axis=1))
        self.rules = np.concatenate(found) if found else np.zeros((0, 4), np.int64)
        # Of each pair of features what each value implies, -1 for nothing.
        self._implied: list[tuple[int, int, NDArray[np.int64]]] = []
        pairs, pair_of = np.unique(self.rules[:, [0, 2]], axis=0, return_inverse=True)
        for q, (i, j) in enumerate(pairs.tolist()):
            _, a, _, b = self.rules[pair_of.reshape(-1) == q].T
            implied = np.full(cells.sizes[i] + 2, -1)
            implied[a] = b
            self._implied.append((i, j, implied))
        # The code of what is left out: missing, or unseen where missing is a value.
        self._gap = cells.gaps

    def resolved(self, batch_codes: Sequence[Codes], cells: float) -> tuple[Codes, ...]:
        """Return the codes of rows, of a job of so many cells, without what others imply."""
        leave_out = dispatch.load("subsumption", cells).leave_out
        new = [group.codes.copy() if self._implied else group.codes for group in batch_codes]
        place = {
            int(feature): (g, i)
            for g, group in enumerate(batch_codes)
            for i, feature in enumerate(group.features)
        }
        for i, j, implied in self._implied:
            (g, row), (h, column) = place[i], place[j]
            x, y = batch_codes[g].codes[row], batch_codes[h].codes[column]
            leave_out(x, y, implied, int(self._gap[j]), new[h][column])
        return tuple(
            group._replace(codes=codes) for group, codes in zip(batch_codes, new, strict=True)
        )

    def of_batch(self, batch: Batch) -> Batch:
        """Return the batch without the values that others imply."""
        return replace(batch, codes=self.resolved(batch.codes, batch.cells))


class SubsumptionScorer:
    """A scorer of rows from which implied values were taken out.

    Parameters
    ----------
    scorer
        What scores the rows that remain.
    subsumption
        What is implied.
    cells
        Cells of the job.
    """

    def __init__(self, scorer: Any, subsumption: Subsumption, cells: float) -> None:
        self._scorer = scorer
        self._resolved = partial(subsumption.resolved, cells=cells)

    def log_joint(self, batch_codes: Sequence[Codes], numeric: Any, out: Floats) -> None:
        """Write the log joint of every row and class into `out` (n_rows, n_classes)."""
        self._scorer.log_joint(self._resolved(batch_codes), numeric, out)

    def posterior(self, batch_codes: Sequence[Codes], numeric: Any, out: Floats) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        return int(self._scorer.posterior(self._resolved(batch_codes), numeric, out))

    def predict(self, batch_codes: Sequence[Codes], numeric: Any, out: NDArray[np.intp]) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return int(self._scorer.predict(self._resolved(batch_codes), numeric, out))
