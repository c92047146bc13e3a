"""Why a model says what it says of rows: contributions that add up to the log joint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.numbers import is_whole
from fastbayes.core.text_tables import cell
from fastbayes.models.estimator.log_space import Floats

PRIOR, REMAINDER = "(prior)", "(remainder)"  # as coefficients have "(intercept)"
# The least that a feature says of a class where a remainder follows: the log of the smallest
# number, so that what is ruled out and what is not add up.
LEAST_NATS = float(np.log(np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class Explanation:
    """Why a model says what it says: contributions in nats that add up to the log joint.

    Parameters
    ----------
    contributions
        (n_rows, n_features, n_classes): ln P(x_j | c), 0 where the value is missing.
    prior
        (n_classes,): ln P(c).
    features
        Feature names, in the order of the second axis.
    classes
        Class labels, in the order of the last axis.
    unseen
        Number of values that were never seen at fit, by column.
    prior_rows
        Number of rows that are impossible under every class, which the prior answers.
    super_parents
        (n_rows, n_features, n_classes) of averages over super-parents, None of other models: the
        share of each super-parent in the probability of a row and class. Shares sum to 1; a row
        that naive Bayes answers, and an impossible class, has none.
    rows
        The rows that are explained: a table, parts of dates in it, or (n_rows, n_features) numbers
        of a model of arrays.
    remainder
        (n_rows, n_classes) nats of a blend and of a calibrated model, None of other models: what
        members say together, or a map makes of it all, beyond contributions and prior, with which
        it adds up to the log joint. After a temperature it is the same for all classes of a row.
    """

    contributions: Floats
    prior: Floats
    features: tuple[str, ...]
    classes: NDArray[Any]
    unseen: dict[str, int]
    prior_rows: int
    super_parents: Floats | None = None
    rows: Any = field(default=None, repr=False)
    remainder: Floats | None = None

    def table(self, row: int = 0) -> pa.Table:
        """Return what each column of a row says, the one that says most first.

        Parameters
        ----------
        row
            Which row, counted from 0.

        Returns
        -------
        pyarrow.Table
            `column`, `value` (as text, null where it is missing), and for each class
            `contribution_<class>` in nats: what the value adds to its log joint, less the mean
            over the classes. The first line, "(prior)", is ln P(c) less its mean, the last of a
            blend or a calibrated model "(remainder)"; the others are sorted by the largest absolute
            contribution. The lines sum to the log joint less its mean, so that their differences
            are log odds. A value that makes a class impossible has -inf there, and means are over
            the classes that are possible.

        Raises
        ------
        ValueError
            When there is no such row.

        Examples
        --------
        >>> import fastbayes as fb
        >>> rows = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
        >>> explained = fb.NaiveBayes().fit(rows, "play").explain({"sky": ["sun"]})
        >>> explained.table(0).select(["column", "value"]).to_pylist()
        [{'column': '(prior)', 'value': None}, {'column': 'sky', 'value': 'sun'}]
        >>> explained.table(0)["contribution_yes"].to_numpy().round(4)  # ln 3 / 2 nats
        array([0.    , 0.5493])
        """
        n_rows = len(self.contributions)
        if not (is_whole(row) and 0 <= row < n_rows):
            rows = f"{n_rows:,} row{'s' * (n_rows != 1)}"
            raise ValueError(f"row={row!r}: there are {rows}, counted from 0")
        rest = [] if self.remainder is None else [self.remainder[row]]
        parts = centred(np.vstack([self.prior, self.contributions[row], *rest]))
        first, last = parts[:1], parts[len(parts) - len(rest) :]
        parts = parts[1 : len(parts) - len(rest)]
        order = np.argsort(-np.abs(parts).max(axis=1, initial=0.0), kind="stable")
        parts = np.vstack([first, parts[order], last])
        values = self._values(int(row))
        none, others = [None] * len(rest), [REMAINDER] * len(rest)
        columns: dict[str, Any] = {
            "column": [PRIOR, *(self.features[j] for j in order), *others],
            "value": pa.array([None, *(values[j] for j in order), *none], pa.string()),
        }
        for label, part in zip(self.classes.tolist(), parts.T, strict=True):
            columns[f"contribution_{label}"] = np.ascontiguousarray(part)
        return pa.table(columns)

    def _values(self, row: int) -> list[str | None]:
        """Return the values of a row as text, None where they are missing."""
        if isinstance(self.rows, pa.Table):
            found = [self.rows[name][row].as_py() for name in self.features]
        elif self.rows is not None:
            found = self.rows[row].tolist()
        else:
            found = [None] * len(self.features)
        return [None if value is None or value != value else cell(value) for value in found]


def centred(parts: Floats) -> Floats:
    """Return (n_parts, n_classes) less the mean of each over the classes that are possible.

    Those are the classes of a finite sum, or where no sum is, those that each part leaves.
    """
    with np.errstate(invalid="ignore"):
        possible = np.isfinite(parts.sum(axis=0))
    over = possible & np.isfinite(parts) if possible.any() else np.isfinite(parts)
    total = np.where(over, parts, 0.0).sum(axis=1, keepdims=True)
    return np.asarray(parts - total / np.maximum(over.sum(axis=1, keepdims=True), 1))
