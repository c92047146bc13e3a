"""The unrestricted classifier: the joint table of all columns, drawn to the product of margins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import SchemaError
from fastbayes.core.iteration import Convergence
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.arrays import alike
from fastbayes.kernels.shared.codes import MOST_CODES, columns_of
from fastbayes.kernels.shared.posterior import JointScorer, to_class, to_posterior
from fastbayes.kernels.shared.scoring import EXACT, largest_sum
from fastbayes.models.discrete.one_dependence import by_chain_rule, code_rows
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import own_likelihood, without
from fastbayes.models.estimator.parameters import (
    CLASS_PRIOR,
    DISCRETIZE,
    SUMMED_OUT,
    UNSEEN,
    fitted,
    number,
    parameter,
    pseudo_count,
    tolerance,
)
from fastbayes.models.estimator.sampling import drawn_values, value_codes
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, best_of, log_prior, logs
from fastbayes.statistics.bundle import Statistics

TAU = tolerance(
    'tau="loo" stops where ln tau lies in an interval of this width, as far as rounding tells, and '
    "keeps three digits of tau, for the peak is flat.",
    1e-9,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
T = TypeVar("T")

# Cells whose order is kept, each once for every pattern of missing columns.
ORDERED = 1 << 24


class CellIndex:
    """Cells of a table as numbers, and those in which some columns are known, sorted.

    keys    (n, m) codes.
    widths  (m,) codes of each column.
    """

    def __init__(self, keys: Ints, widths: Sequence[int]) -> None:
        # A column at a time is read; these lie side by side.
        self._columns = np.ascontiguousarray(keys.T)
        self._words: list[dict[int, int]] = []
        self._room: list[int] = []
        most = room = MOST_CODES
        for j, width in enumerate(map(int, widths)):
            # As many columns to a number as it identifies, together with a place among the cells.
            if room * width >= most:
                most = MOST_CODES // max(len(keys), 1) if self._words else most
                self._words.append({})
                self._room.append(1)
                room = 1
            self._words[-1] = {i: step * width for i, step in self._words[-1].items()} | {j: 1}
            room *= width
            self._room[-1] = room
        self._whole = self._numbers(self._columns, np.ones(len(self._columns), np.bool_))

    def _numbers(self, codes: Ints, known: Bools) -> list[Ints]:
        """Return the numbers of codes (m, n), an unknown one being 0."""
        return [self._number(codes, word, known) for word in self._words]

    def _number(self, codes: Ints, word: dict[int, int], known: Bools) -> Ints:
        """Return the numbers of some columns of codes (m, n), an unknown one being 0."""
        number = np.zeros(codes.shape[1], np.int64)
        for j, step in word.items():
            if known[j]:  # codes may be of a narrower type
                number += np.multiply(codes[j], step, dtype=np.int64)
        return number

    def by(self, known: Bools) -> SortedCells:
        """Return the cells by the columns that are known."""
        numbers = [
            whole - self._number(self._columns, steps, ~known)
            for whole, steps in zip(self._whole, self._words, strict=True)
        ]
        n = self._columns.shape[1]
        order, begins = np.arange(n), np.arange(min(n, 1))
        # Cells that come in order are still in stretches that are: a stable sort merges these.
        for word in numbers[::-1]:
            order = order[np.argsort(word[order], kind="stable")]
        distinct: list[Ints] = []
        for word, room in zip(numbers, self._room, strict=True):
            packed = word[order]
            if distinct:
                packed += np.repeat(np.arange(len(begins)) * room, np.diff(begins, append=n))
            begins = np.append(begins[:1], 1 + np.flatnonzero(packed[1:] != packed[:-1]))
            distinct.append(packed[begins])

        begins = np.append(begins, n)
        return SortedCells(self, known, order.astype(np.uint32), begins, distinct)

    def find(self, codes: Ints, known: Bools, distinct: Sequence[Ints]) -> Ints:
        """Return which of the distinct cells each of some codes is, (n_rows,); -1 for none."""
        if not self._columns.shape[1]:
            return np.full(codes.shape[1], -1)
        at, there = np.zeros(codes.shape[1], np.int64), np.ones(codes.shape[1], np.bool_)
        asked = self._numbers(codes, known)
        for word, room, there_are in zip(asked, self._room, distinct, strict=True):
            packed = at * room + word
            at = np.minimum(np.searchsorted(there_are, packed), len(there_are) - 1)
            there &= there_are[at] == packed
        return np.where(there, at, -1)


class SortedCells(NamedTuple):
    """Cells in an order in which those follow each other that agree in some columns.

    made_by   what made them
    known     (m,) the columns
    order     (n,) cells
    begins    (n_groups + 1,) where each group of those that agree begins; at last n
    distinct  numbers of the groups, as the index has them
    """

    made_by: CellIndex
    known: Bools
    order: NDArray[np.uint32]
    begins: Ints
    distinct: Sequence[Ints]

    def find(self, codes: Ints) -> Ints:
        """Return the group of each of the codes (m, n_rows), -1 where there is none."""
        return self.made_by.find(codes, self.known, self.distinct)

    def cells(self, places: Ints) -> Ints:
        """Return the cells at some places of the order."""
        return self.order[places].astype(np.int64)

    def sums(self, terms: Floats, groups: Ints) -> Floats:
        """Return the sums over the cells of some groups, (n_asked, ...)."""
        if not len(groups):
            return np.zeros((0, *terms.shape[1:]))
        first, cells = self.members(groups)
        return np.asarray(np.add.reduceat(terms[cells], first[:-1], axis=0))

    def members(self, groups: Ints) -> tuple[Ints, Ints]:
        """Return the cells of some groups, one group after the other.

        Where each begins among them, and at last how many they are; and the cells.
        """
        size = self.begins[groups + 1] - self.begins[groups]
        first = np.append(0, np.cumsum(size))
        places = np.repeat(self.begins[groups] - first[:-1], size) + np.arange(first[-1])
        return first, self.order[places]


def kept_orders(n: int) -> int:
    """Return for how many patterns of missing columns the order of n cells is kept."""
    return ORDERED // max(n, 1) + 1


class Patterns(dict[bytes, T]):
    """What was made for patterns of columns: of the first ones, for they come again in each block.

    most  How many are kept.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def of(self, pattern: Bools, make: Callable[[], T]) -> T:
        """Return what was made for a pattern, or make it."""
        name = pattern.tobytes()
        if (found := self.get(name)) is None:
            found = make()
            if len(self) < self.most:
                self[name] = found
        return found


class JointTable:
    """P(v | c) = (n_vc + tau prod_j P(v_j | c)) / (n_c + tau), where columns may be unknown.

    stats            Statistics with values and cells of all columns.
    tau              Pseudo-count of the product of the margins; "loo" for that of largest
                     leave-one-out likelihood.
    alpha            Pseudo-count of each value in a margin.
    missing, unseen  As in `CountTables`.
    joint            Whether rows of cells count; else there are the margins alone.
    tol, max_iter    Of the search for tau.

    Attributes
    ----------
    cells         Counts of values: the margins, and which codes are no observation.
    keys, counts  (n, m) codes of the cells in which every column is observed, and (n, K) their
                  rows.
    search        How tau was found.
    totals        (K,) rows of all of these, n_c.
    log_margins   (n_codes, K) ln P(v_j | c), S_j + 2 rows for each column; 0 where a code is no
                  observation.
    void          (m,) columns that no row knows: cells are those of the others. Their code in a
                  cell is that of a missing value, as if it were observed.
    """

    def __init__(
        self,
        stats: Statistics,
        *,
        tau: float | str,
        alpha: float,
        missing: str,
        unseen: str,
        joint: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
    ) -> None:
        found, m = stats.cells, len(stats.schema.categorical)
        if len(found.columns) < m:
            raise SchemaError(
                f"the cells of the statistics are those of {len(found.columns)} columns out of "
                f"{m}; count again with cells=True"
            )
        self.rule = Smoothing(alpha=alpha)
        self.cells = CountTables(stats.values, missing=missing, unseen=unseen)
        keys = found.keys
        keys = np.where(keys < 0, self.cells.sizes.astype(keys.dtype), keys)
        gaps = self.cells.hidden[self.cells.offsets[:-1, None] + keys.T]
        self.void: Bools = gaps.all(axis=1) & bool(len(keys))
        self._hidden = self.cells.hidden & ~self.void[self.cells.feature]
        whole = ~(gaps & ~self.void[:, None]).any(axis=0) & joint
        # In the order in which an index of them reads: it needs no copy.
        self.keys = np.asfortranarray(keys[whole])
        self.counts = found.counts[whole].astype(np.float64)
        self.totals: Floats = self.counts.sum(axis=0)
        self.log_margins = logs(self.cells.likelihood(self.rule))
        self.widths = (self.cells.sizes + 2).tolist()
        self.search = Convergence()
        if tau == "loo" and joint:
            tau = self._best_tau(tol, max_iter)
        self.tau = 1.0 if not joint else float(tau)
        self._patterns: Patterns[SortedCells] = Patterns(kept_orders(len(self.keys)))

    def _best_tau(self, tol: float, max_iter: int) -> float:
        """Return the tau under which complete rows are likeliest, each by the counts of the others.

        The sum over rows of ln((n_vc - 1 + tau prod_j P(v_j | c)) / (n_c - 1 + tau)), the margins
        less the row, too; n - 1 is read as n - min(n, 1).
        """
        at, c = np.nonzero(self.counts)
        n = self.counts[at, c]
        gone = np.minimum(n, 1.0)
        rows = self.cells.offsets[:-1, None] + self.keys[at].T
        margins = own_likelihood(self.cells, self.rule, rows, c, gone)
        left, totals = without(n, gone), without(self.totals[c], gone)
        # What is impossible under any tau cannot choose one.
        given = (left > 0) | np.isfinite(margins)
        if not given.any():
            return 1.0
        n, margins, left, totals = (part[given] for part in (n, margins, left, totals))
        scale = max(1.0, float(self.totals.mean()))
        # Rows that are alone in their cell have the margins by any tau, but for its share.
        shared = left > 0
        alone, of_alone = n[~shared].sum(), (n * margins)[~shared].sum()
        below, which = np.unique(totals, return_inverse=True)
        rows = np.bincount(which.ravel(), n)
        n, margins, log_left = n[shared], margins[shared], np.log(left[shared])

        def score(share: float) -> float:
            tau = share * scale
            of_margins = math.log(tau) * alone + of_alone - float(np.log(below + tau) @ rows)
            return of_margins + float(np.logaddexp(log_left, math.log(tau) + margins) @ n)

        self.search = best = best_of(score, tol, max_iter, "tau='loo'")
        # The peak is flat: more digits would be those of rounding, other ones for other batches.
        return float(f"{best.point * scale:.3g}")

    def margin(self, place: int) -> Floats:
        """Return P(v_j | c) of one column, all others summed out, (S_j, K)."""
        first, states = int(self.cells.offsets[place]), int(self.cells.choices[place])
        alone = np.exp(self.log_margins[first : first + states])
        if self.void[place]:
            return alone
        counts = np.zeros((states, self.cells.n_classes))
        np.add.at(counts, self.keys[:, place], self.counts)
        total = self.totals + self.tau
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(total > 0, (counts + self.tau * alone) / total, alone)

    def hidden(self, codes: Ints) -> Bools:
        """Return which codes of (m, n) are no observation."""
        if not len(codes):
            return np.zeros(codes.shape, np.bool_)
        return np.asarray(self._hidden[self.cells.offsets[:-1, None] + codes])

    def in_cells(self, codes: Ints) -> Ints:
        """Return codes (m, n) as cells have them."""
        if not self.void.any():
            return codes
        return np.where(self.void[:, None], self.cells.sizes[:, None], codes)

    def aside(self, codes: Ints) -> Floats:
        """Return ln P of the values of columns that no row knows, of codes (m, n), (n, K)."""
        if not self.void.any():
            return np.zeros((codes.shape[1], len(self.totals)))
        return self.of_margins(codes, np.repeat(~self.void[:, None], codes.shape[1], axis=1))

    def matching(self, codes: Ints, hidden: Bools) -> Floats:
        """Return the rows of the cells that agree with what is observed, (n, K)."""
        result = np.zeros((codes.shape[1], len(self.totals)))
        for known, rows in patterns(~hidden):
            cells = self._patterns.of(known, partial(self._index.by, known))
            at = cells.find(codes[:, rows])
            there = at >= 0
            result[rows[there]] = cells.sums(self.counts, at[there])
        return result

    @cached_property
    def _index(self) -> CellIndex:
        return CellIndex(self.keys, self.widths)

    def of_margins(self, codes: Ints, hidden: Bools | None = None) -> Floats:
        """Return sum_j ln P(v_j | c) over what is observed, (n, K).

        `hidden` hides more than is hidden by itself.
        """
        total = np.zeros((codes.shape[1], len(self.totals)))
        for j, first in enumerate(self.cells.offsets[:-1].tolist()):
            term = self.log_margins[first + codes[j]]
            total += term if hidden is None else np.where(hidden[j][:, None], 0.0, term)
        return total

    def smoothed(self, n: Floats, margins: Floats, totals: Any) -> Floats:
        """Return ln((n + tau e^margins) / (totals + tau)); 0/0 is the margins."""
        below = totals + self.tau
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.logaddexp(np.log(n), np.log(self.tau) + margins)
            return np.asarray(np.where(below > 0, above - np.log(below), margins))

    def log_likelihood(self, codes: Ints) -> Floats:
        """Return ln P(what is observed | c) of codes (m, n), (n, K)."""
        n = self.matching(codes, self.hidden(codes))
        return self.smoothed(n, self.of_margins(codes), self.totals)

    def tie(self, log_prior: Floats) -> float:
        """Return how close to each other log joints are equal."""
        largest = largest_sum(log_prior, self.log_margins, self.cells.offsets)
        most = [self.tau, float(self.totals.max(initial=0.0)) + self.tau]
        return EXACT * (largest + sum(abs(float(np.log(x))) for x in most if x > 0))


def patterns(bits: Bools) -> list[tuple[Bools, Ints]]:
    """Return the different columns of (m, n) bits, and where each of them stands."""
    m, n = bits.shape
    if bits.all():
        return [(np.ones(m, np.bool_), np.arange(n))] if n else []
    return list(alike(bits))


def distinct_codes(
    batch_codes: Sequence[Codes], n_rows: int, widths: Sequence[int], cells: float
) -> tuple[NDArray[np.uint32], Ints]:
    """Return the number of each row's cell, and the codes of the cells, (m, n_cells)."""
    if not len(widths) or not n_rows:
        return np.zeros(n_rows, np.uint32), np.zeros((len(widths), min(n_rows, 1)), np.int64)
    found = columns_of(batch_codes)
    columns = [found[feature] for feature in range(len(widths))]
    group, first = dispatch.load("counting.joint_codes", cells).factorise(columns, widths)
    return group, np.array([column[first] for column in columns], np.int64)


class JointTableScorer(JointScorer):
    """Log joints, posteriors and predictions of a joint table; immutable, thread-safe.

    What rows have in common is worked out once for each different row of a block.

    log_prior  (n_classes,) nats.
    table      P(v | c).
    cells      Cells of the job, on which numpy or compiled kernels are chosen.
    """

    def __init__(self, log_prior: Floats, table: JointTable, cells: float) -> None:
        super().__init__(np.array(log_prior, np.float64), table.tie(log_prior))
        self._table, self._job = table, cells

    def _distinct(
        self, batch_codes: Sequence[Codes], n_rows: int
    ) -> tuple[NDArray[np.uint32], Floats]:
        group, codes = distinct_codes(batch_codes, n_rows, self._table.widths, self._job)
        table = self._table
        given = table.log_likelihood(table.in_cells(codes)) + table.aside(codes)
        return group, self._log_prior + given

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        group, joint = self._distinct(batch_codes, len(out))
        out[:] = joint[group]

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        return self._answer(to_posterior, batch_codes, out)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return self._answer(to_class, batch_codes, out, len(self._log_prior))

    def _answer(
        self, finish: Any, batch_codes: Sequence[Codes], out: NDArray[Any], *more: int
    ) -> int:
        group, joint = self._distinct(batch_codes, len(out))
        answer = np.empty((len(joint), *out.shape[1:]), out.dtype)
        finish(joint.T, self._log_prior, self._tie, *more, answer)
        out[:] = answer[group]
        lost = np.isneginf(joint).all(axis=1)
        return int(np.bincount(group, minlength=len(joint))[lost].sum()) if lost.any() else 0


class JointBayes(Classifier, Iterative):
    """The unrestricted Bayes classifier of discrete columns: it counts how often a row occurs.

    Notes
    -----
    P(c, v) = P(c) P(v | c) with P(c) = (n_c + alpha)/(N + K alpha) over all rows, and P(v | c) =
    (n_vc + tau prod_j P(v_j | c)) / (n_c + tau). There n_vc and n_c count the rows in which every
    column is known, and P(v_j | c) = (n(c, v_j) + alpha) / (n(c, j known) + S_j alpha) those in
    which column j is. A class without complete rows has the product of margins, and a column that
    no row knows is left out. Values unknown at predict are summed over exactly: the rows of all
    cells that agree with the others, and tau times the product of their margins. Memory is that of
    the cells that occur, refused over `memory_limit`.

    `explain` splits the log joint by the chain rule, in column order: ln P(x_j | x_1 ... x_j-1, c).

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> model = fb.JointBayes(tau=1).fit(table, "y")
    >>> model.predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    >>> model.predict_proba({"a": ["0"], "b": ["1"]})  # (1 + 1/4) / 3 against (0 + 1/4) / 3
    array([[0.16666667, 0.83333333]])
    """

    tau: float | str = parameter(
        """
        Pseudo-rows of each class that are spread as if columns were independent given the class: 0
        is maximum likelihood in the joint table, "loo" the number that maximises the leave-one-out
        likelihood, from 1e-6 to 1e4 times the rows of a class in the mean.
        """,
        default=1.0,
        check=number(besides=("loo",)),
    )
    alpha: float = parameter(
        "Pseudo-count of every value of a single column, and of every class: 1 is Laplace.",
        default=1.0,
        check=pseudo_count(),
    )
    class_prior: str | ArrayLike | None = CLASS_PRIOR
    discretize: Any = DISCRETIZE
    missing: str = SUMMED_OUT
    unseen: str = UNSEEN
    tol: float = TAU
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    tau_: float = fitted("The pseudo-rows in use.")
    n_cells_: int = fitted("Different rows that occurred, of those in which every column is known.")
    _table: JointTable = fitted()

    _statistics: ClassVar[tuple[str, ...]] = ("values", "cells")
    _discretizes: ClassVar[bool] = True

    # -- learning ------------------------------------------------------------------------------

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        for feature in stats.schema.numeric:
            raise SchemaError(
                f"the statistics were counted with column {feature.name!r} as numeric; JointBayes "
                "needs it discrete: count again with cells=True and numeric='mdl', which cuts "
                "it into bins, or name it in `categorical`"
            )
        return stats

    def _read(self, stats: Statistics) -> dict[str, Any]:
        table = JointTable(
            stats,
            tau=self.tau,
            alpha=float(self.alpha),
            missing=self.missing,
            unseen=self.unseen,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        counts, classes = stats.values.class_counts, stats.schema.class_labels
        prior = log_prior(counts, float(self.alpha), self.class_prior, classes)
        return {
            "class_log_prior_": prior,
            "tau_": table.tau,
            **self._went(table.search),
            "n_cells_": len(table.keys),
            "_table": table,
        }

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, and K (prod_j S_j - 1) of the joint distributions."""
        self._check_fitted()
        k = len(self.classes_)
        sizes = [max(int(s), 1) for s in self._table.cells.choices]
        return k - 1 + k * (math.prod(sizes) - 1)

    def _margin(self, place: int) -> Floats:
        return self._table.margin(place)

    def _scorer(self, cells: float) -> Any:
        return JointTableScorer(self.class_log_prior_, self._table, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write what each feature adds to ln P(the features before it | c)."""
        cells = self._table.cells
        scorer = JointTableScorer(np.zeros(cells.n_classes), self._table, batch.cells)
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        out[:] = by_chain_rule(scorer, range(len(codes)), codes, cells)

    def _drawn(self, codes: NDArray[np.intp], random: np.random.Generator) -> dict[str, Any]:
        drawn = drawn_cells(self._table, codes, random)
        features = enumerate(self.schema_.features)
        return {feature.name: drawn_values(feature, drawn[j], random) for j, feature in features}


def drawn_cells(
    table: JointTable,
    classes: NDArray[np.intp],
    random: np.random.Generator,
    *,
    counted: bool = False,
) -> NDArray[np.int64]:
    """Return codes drawn from P(v | c) for rows of these classes, (m, n_rows).

    A row is one of those counted, or with the chance of tau in n_c + tau one of independent values;
    where these are not wanted, they are left to classes without counts.
    """
    cells = table.cells
    drawn = np.empty((len(cells.sizes), len(classes)), np.int64)
    margins = np.exp(table.log_margins)
    for j, (first, states) in enumerate(zip(cells.offsets, cells.choices, strict=False)):
        shares, none = margins[first : first + int(states)], cells.sizes[j]
        drawn[j] = value_codes(shares, classes, random) if len(shares) else none
    with np.errstate(invalid="ignore"):
        share = np.nan_to_num(table.totals / (table.totals + table.tau * (not counted)))
    again = random.random(len(classes)) < share[classes]
    for c in np.flatnonzero(table.totals > 0).tolist():
        rows = np.flatnonzero(again & (classes == c))
        steps = np.cumsum(table.counts[:, c])
        at = np.searchsorted(steps, random.random(len(rows)) * steps[-1], side="right")
        seen = np.flatnonzero(~table.void)
        drawn[seen[:, None], rows] = table.keys[np.minimum(at, len(steps) - 1)].T[seen]
    return drawn
