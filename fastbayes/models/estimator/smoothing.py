"""From counts and moments to parameters: counts as scoring reads them, and all smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError
from fastbayes.core.iteration import Found, Step, Steps, converged
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.log_space import Floats
from fastbayes.statistics import PairCounts, ValueCounts

Ints = NDArray[np.int64]

# Counts below this have their logarithms looked up: the table stays in the second-level cache.
MOST_LOGS = 1 << 15
# Bytes of counts of which all logarithms may be kept.
MOST_BYTES = 1 << 25
# Numbers of the tables of all features that are made at once: so many are made in no time.
TOGETHER = 1 << 21
PRIORS = (
    "use None, 'empirical', 'uniform' or a list of a probability for each class, in their order"
)


class Smoothing:
    """What is added to each count: alpha ("laplace"), or m spread over a distribution's cells."""

    def __init__(self, kind: str = "laplace", alpha: float = 1.0, m: float = 1.0) -> None:
        self.kind, self.alpha, self.m = kind, alpha, m

    def mass(self, cells: Any) -> Any:
        """Return the pseudo-count of one of so many cells."""
        if self.kind == "laplace":
            return np.full(np.shape(cells), self.alpha) if np.ndim(cells) else self.alpha
        return self.m / np.maximum(cells, 1)

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n + mass) / (total + cells mass); 0/0 is its limit 1/cells."""
        mass = self.mass(cells)
        below = total + cells * mass
        if np.all(below > 0):
            return np.asarray((n + mass) / below)
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = 1.0 / np.maximum(cells, 1)
            return np.asarray(np.where(below > 0, (n + mass) / below, limit))

    def ratio_within(
        self, n: Floats, total: Floats, cells: NDArray[Any], bounds: NDArray[np.int64]
    ) -> Floats:
        """Return `ratio` of cells (n, n_cells, K), by the totals of their distributions.

        total   (n, n_distributions, K)
        cells   (n_distributions,) values that each shares its mass among
        bounds  (n_distributions + 1,) first cell of each, and the number of all cells
        """
        kernels = dispatch.load("fitting.ratios", n.size)
        mass, cells = self.mass(cells), np.asarray(cells, np.float64)
        found: Floats = kernels.ratios(n, total, mass, cells, bounds)
        return found

    def joint(self, n: Floats, known: Floats, total: Any, cells: Any, prior: Any) -> Floats:
        """Return P(c, v) from n(c, v), with as many classes as the last axis has.

        (n + mass) / (total + K cells mass), or of a given prior P(c) its product with (n + mass) /
        (known + cells mass), the mass being that of one of all K cells.
        """
        k = n.shape[-1]
        if prior is None:
            return self.ratio(n, total, k * cells)
        mass = self.mass(k * cells)
        below = known + cells * mass
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(below > 0, (n + mass) / below, 1.0 / np.maximum(cells, 1))
        return np.asarray(prior * share)


def totals_within(n: Floats, bounds: Ints) -> Floats:
    """Return the totals of distributions, (n, n_distributions, K), as `ratio_within` takes them."""
    found: Floats = dispatch.load("fitting.ratios", n.size).totals(n, bounds)
    return found


class WithOthers(NamedTuple):
    """Counts of one feature's values together with those of all others.

    rows    (n,) rows of the other features in `CountTables`
    widths  (m - 1,) rows of each
    counts  (S_p + 2, n, n_classes)
    """

    rows: NDArray[np.int64]
    widths: NDArray[np.int64]
    counts: Floats

    @property
    def bounds(self) -> Ints:
        """First row of each of the other features, and the number of rows, (m,)."""
        return np.concatenate(([0], np.cumsum(self.widths)))

    def known(self) -> Floats:
        """Return n(c, x_p = a, x_j known) of each other feature, (S_p + 2, m - 1, n_classes)."""
        return totals_within(self.counts, self.bounds) if len(self.widths) else self.counts

    def together(self) -> Floats:
        """Return n(c, x_p = a, x_j known) in the rows of x_j, (S_p + 2, n, n_classes)."""
        return np.repeat(self.known(), self.widths, axis=1) if len(self.widths) else self.counts


def missing_as_value(values: ValueCounts, missing: str) -> NDArray[np.bool_]:
    """Return for which features a missing value that occurs is a value of its own, (m,)."""
    return np.asarray((values.missing != 0).any(axis=1) & (missing == "category"))


class CountTables:
    """Value and pair counts in S_j + 2 rows per feature: its values, missing, unseen.

    With missing="category" a missing value that occurred is a value of its own; with
    unseen="smooth" an unseen one has the mass of a count of 0, otherwise it is not observed.

    sizes, choices  (m,) S_j, and the values that smoothing shares its mass among
    offsets         (m + 1,) first row of each feature
    n               (n_rows, K) counts; 0 in rows that are not observed
    counted         rows that are observed values of the data
    known           (m, K) rows in which a feature is observed
    hidden          (n_rows,) whether a code is no observation: it is marginalised out
    feature         (n_rows,) the feature of each row
    """

    def __init__(
        self, values: ValueCounts, pairs: PairCounts | None = None, *, missing: str, unseen: str
    ) -> None:
        self.values = values
        self.pairs = pairs or PairCounts(values.shape, pairs=np.empty((0, 2), np.int64))
        sizes = self.sizes = values.shape.sizes
        m = len(sizes)
        self.n_classes = values.shape.n_classes
        self.as_value = as_value = missing_as_value(values, missing)
        self.choices = (sizes + as_value).astype(np.float64)
        self.offsets = np.concatenate(([0], np.cumsum(sizes + 2))).astype(np.int64)
        self.feature = np.repeat(np.arange(m), sizes + 2)
        gaps = self.offsets[:-1] + sizes
        self.hidden = np.zeros(self.offsets[-1], np.bool_)
        smooth = (unseen == "smooth") & (self.choices > 0)
        self.hidden[gaps + 1] = ~smooth
        # A missing value that was never counted is an unseen one, where it is a category.
        self.hidden[gaps] = ~as_value & ~(smooth & (missing == "category"))
        # Row of each slot: every feature before has one row more than slots.
        self._rows = np.arange(values.offsets[-1]) + np.repeat(np.arange(m), sizes + 1)
        self._counted = np.ones(values.offsets[-1], np.bool_)
        self._counted[values.offsets[1:] - 1] = as_value
        self._is_counted = np.zeros(self.offsets[-1], np.bool_)
        self.n = np.zeros((self.offsets[-1], self.n_classes))
        self.counted = self._rows[self._counted]
        self._is_counted[self.counted] = True
        self.n[self.counted] = values.counts[self._counted]
        self.known = np.add.reduceat(self.n, self.offsets[:-1])

    @property
    def gaps(self) -> NDArray[np.int64]:
        """The code of each feature for what is no observation: missing, or else unseen, (m,)."""
        return self.sizes + ~self.hidden[self.offsets[1:] - 2]

    def likelihood(self, smoothing: Smoothing) -> Floats:
        """Return P(x_j = v | c), (n_rows, K); 1 where a code is no observation."""
        table = smoothing.ratio(
            self.n, self.known[self.feature], self.choices[self.feature][:, None]
        )
        table[self.hidden] = 1.0
        return table

    def beside(self, p: int) -> WithOthers:
        """Return n(c, x_p = a, x_j = b) of the other features; 0 where a code is not counted."""
        slots = np.flatnonzero(np.repeat(np.arange(len(self.sizes)), self.sizes + 1) != p)
        counted = self._counted[slots]
        rows = np.flatnonzero(self.feature != p)
        counts = np.zeros((self.sizes[p] + 2, len(rows), self.n_classes))
        at = np.searchsorted(rows, self._rows[slots[counted]])
        counts[:-1, at] = self.pairs.beside(p)[:, counted]
        if not self.as_value[p]:
            counts[self.sizes[p]] = 0.0
        widths = np.delete(self.sizes, p) + 2
        return WithOthers(rows, widths, counts)

    def spread(self, beside: WithOthers, table: Floats | None = None) -> Floats:
        """Return counts, or a table of their shape, in all rows: (S_p + 2, n_rows, K).

        The rows of p itself are 0. They are never touched, so that they take no memory where p
        has very many values.
        """
        counts = beside.counts if table is None else table
        result = np.zeros((len(counts), self.offsets[-1], self.n_classes))
        result[:, beside.rows] = counts
        return result

    def at(self, p: int, value: Ints, rows: Ints) -> Floats:
        """Return n(c, x_p = a, x_j = b) of some cells, (..., K).

        As `beside` has them, without reading more of the tables than those cells need.

        value  (n,) codes of p
        rows   (..., n) rows of other features
        """
        feature = self.feature[rows]
        steps, code = self.pairs.layout.steps_from(p), rows - self.offsets[feature]
        counts = self.pairs.at(steps, value, feature, code).astype(np.float64)
        counts[~(self._is_counted[self.offsets[p] + value] & self._is_counted[rows])] = 0.0
        return counts

    def known_at(self, p: int, value: Ints, rows: Ints) -> Floats:
        """Return n(c, x_p = a, x_j known), (..., K), of the cells of `at`."""
        feature, own = self.feature[rows], self.offsets[p] + value
        here, paired = self._is_counted[own], self.pairs.layout.steps_from(p).widths > 0
        # Where nothing is missing in a feature, all rows with a value know it.
        together = np.where(paired[feature][..., None], self.n[own], 0.0)
        gaps = self.pairs.layout.missing & ~self.as_value & paired
        some, at = np.unique(value[here], return_inverse=True)
        for j in np.flatnonzero(gaps).tolist():
            known = np.zeros((len(value), self.n_classes))
            known[here] = self.pairs.block(p, j)[some, : self.sizes[j]].sum(axis=1)[at.reshape(-1)]
            together = np.where((feature == j)[..., None], known, together)
        return together

    def conditional(self, p: int, smoothing: Smoothing) -> ConditionalTable:
        """Return P(x_j = b | c, x_p = a)."""
        return ConditionalTable(self, p, smoothing)

    def conditionals(self, features: Iterable[int], smoothing: Smoothing) -> Iterator[Floats]:
        """Yield P(x_j = b | c, x_p = a) of features p, as the array of `conditional` has it.

        Where that of all features is small, it is made at once.
        """
        layout, (n, k) = self.pairs.layout, self.n.shape
        if not (layout.complete and layout.total and n * n * k <= TOGETHER):
            yield from (np.asarray(self.conditional(p, smoothing)) for p in features)
            return
        cells = layout.widths[layout.first] * layout.widths[layout.second]
        pair = np.repeat(np.arange(len(cells)), cells)
        place = np.arange(len(pair)) - (np.cumsum(cells) - cells)[pair]
        a, b = np.divmod(place, layout.widths[layout.second][pair])
        one, other = self.offsets[layout.first[pair]] + a, self.offsets[layout.second[pair]] + b
        counted = np.flatnonzero(self._is_counted[one] & self._is_counted[other])
        one, other = one[counted], other[counted]
        counts = np.zeros((n, n, k))
        counts[one, other] = counts[other, one] = self.pairs.flat.reshape(-1, k)[counted]
        known = totals_within(counts, self.offsets)
        table = smoothing.ratio_within(counts, known, self.choices, self.offsets)
        table[:, self.hidden] = 1.0
        for p in features:
            yield table[self.offsets[p] : self.offsets[p + 1]]

    def log_sums(self, smoothing: Smoothing) -> LogSums | None:
        """Return the function from rows (m, n) to Σ_j ln P(x_j | c, x_p) of all p, (m, n, K).

        None where a count of 0 may have no logarithm, where pairs were left out, and where weights
        were added and values are missing that are no observations: the rows that know both features
        are those that know one less others, and sums of weights are off by their rounding.
        """
        gaps = self.pairs.layout.missing & ~self.as_value
        smooth = smoothing.kind == "laplace" and smoothing.alpha > 0
        if not smooth or (self.pairs.weighted and gaps.any()):
            return None
        layout = self.pairs.layout
        return LogSums(self, smoothing.alpha, gaps) if layout.complete and layout.total else None

    def family(self, p: int, j: int) -> Floats:
        """Return n(c, x_p = a, x_j = b), (S_p + 2, S_j + 2, K); 0 where a code is not counted."""
        block = self.pairs.block(p, j)
        result = np.zeros((self.sizes[p] + 2, self.sizes[j] + 2, self.n_classes))
        result[: block.shape[0], : block.shape[1]] = block
        if not self.as_value[p]:
            result[self.sizes[p]] = 0.0
        if not self.as_value[j]:
            result[:, self.sizes[j]] = 0.0
        return result

    def known_together(self) -> Floats:
        """Return the rows in which both features of each pair are observed, (m, m)."""
        layout, m = self.pairs.layout, len(self.sizes)
        if layout.total:
            rows = np.add.reduceat(self.pairs.flat, layout.starts[layout.cells > 0])
        total = np.zeros(len(layout.first))
        total[layout.cells > 0] = rows if layout.total else 0
        gap = layout.missing & ~self.as_value
        for q in np.flatnonzero(gap[layout.first] | gap[layout.second]).tolist():
            total[q] = self.family(int(layout.first[q]), int(layout.second[q])).sum()
        result = np.zeros((m, m))
        result[layout.first, layout.second] = result[layout.second, layout.first] = total
        return result


class LogSums:
    """Σ_j ln P(x_j | c, x_p), over the features j other than p, of all features p at once.

    What a pair was counted is the same whichever of both is the parent. It is divided by numbers
    that differ between the x_j of a parent by how many values these have, unless some are missing.

    gaps  (m,) features of which a missing value is no observation
    """

    def __init__(self, cells: CountTables, alpha: float, gaps: NDArray[np.bool_]) -> None:
        self._cells, self._alpha, self._gaps = cells, alpha, gaps
        layout, k = cells.pairs.layout, cells.n_classes
        every = np.arange(len(cells.sizes))
        low, high = np.minimum.outer(every, every), np.maximum.outer(every, every)
        # Where the cells of features j and p begin, (m, m), and how far it is to the next value of
        # each; of p itself always the first ones, which say nothing.
        apart, left = low < high, every[:, None] < every
        self._begin = layout.starts[np.where(apart, layout.find(low, high), 0)] // k
        self._of_p = np.where(left, 1, layout.widths[:, None]) * apart
        self._of_j = np.where(left, layout.widths, 1) * apart
        # What has no cell was counted 0 times.
        self._counts = np.concatenate([cells.pairs.flat.reshape(-1, k), np.zeros((1, k), np.int64)])
        most = math.inf if cells.pairs.weighted else cells.values.class_counts.max()
        self._known = np.log(np.arange(most + 1) + alpha) if most < MOST_LOGS else None
        self._logs: Floats | None = None
        self._until_all = self._counts.size if self._counts.nbytes <= MOST_BYTES else math.inf

    def __call__(self, rows: Ints) -> Floats:
        """Return the sums of rows (m, n), in nats, (m, n, K); what is hidden says nothing."""
        cells, gaps, every = self._cells, self._gaps, np.arange(len(rows))
        code, shown = rows - cells.offsets[:-1, None], ~cells.hidden[rows]
        seen = cells._is_counted[rows] & (code < cells.pairs.layout.widths[:, None])
        # Features j come first, p and classes last: so all inner loops are long ones.
        logs = self._logs_at(self._at(every, code, seen, code, seen))
        logs[~shown] = 0.0
        logs[every, :, every] = 0.0
        found, n = logs.sum(axis=0), cells.n[rows.T]
        whole = shown & ~gaps[:, None]
        for choices in np.unique(cells.choices[~gaps & (cells.choices > 0)]).tolist():
            alike = whole & (cells.choices == choices)[:, None]
            others = (alike.sum(axis=0) - alike).T
            found -= others[..., None] * np.log(n + choices * self._alpha)
        if gaps.any():
            some = np.flatnonzero(gaps)
            missing = np.broadcast_to(cells.sizes[some, None], (len(some), rows.shape[1]))
            at = self._at(some, code, seen, missing, np.ones_like(missing, np.bool_))
            known = n - self._counts.take(at, axis=0)
            with np.errstate(divide="ignore", invalid="ignore"):
                below = np.log(known + (cells.choices[some] * self._alpha)[:, None, None, None])
            below[~shown[some]] = 0.0
            below[np.arange(len(some)), :, some] = 0.0
            found -= below.sum(axis=0)
        return found.swapaxes(0, 1)

    def _logs_at(self, at: Ints) -> Floats:
        """Return ln(count + alpha) of cells (...), in nats, (..., K)."""
        if self._logs is None:
            # Once more are looked up than there are, all of them are worth having.
            self._until_all -= at.size * self._counts.shape[1]
            if self._until_all > 0:
                return self._log(self._counts.take(at, axis=0))
            self._logs = self._log(self._counts)
        return self._logs.take(at, axis=0)

    def _log(self, counts: NDArray[Any]) -> Floats:
        # Small whole numbers are all that most tables count: of these the logarithms are known.
        known = np.log(counts + self._alpha) if self._known is None else self._known.take(counts)
        return np.asarray(known)

    def _at(
        self, others: Ints, code: Ints, seen: NDArray[Any], other: Ints, there: NDArray[Any]
    ) -> Ints:
        """Return where n(c, x_p = code, x_j = other) stands, (n_others, n, m); of no cell the end.

        seen, there  whether a feature, and one of the others, has cells
        """
        begin, of_p, of_j = (part[others, None] for part in (self._begin, self._of_p, self._of_j))
        at = begin + code.T * of_p + other[:, :, None] * of_j
        return np.where(seen.T & there[:, :, None], at, len(self._counts) - 1)


class ConditionalTable:
    """P(x_j = b | c, x_p = a), (S_p + 2, n_rows, K), indexed or made an array.

    (n(c, a, b) + mass) / (n(c, a, x_j known) + S_j mass); 1 where b is no observation. The rows of
    p itself mean nothing.
    """

    def __init__(self, cells: CountTables, p: int, smoothing: Smoothing) -> None:
        self._cells, self._p, self._smoothing = cells, p, smoothing

    def __getitem__(self, at: tuple[Ints, Ints]) -> Floats:
        """Return some cells, (..., K), by values (n,) and rows (..., n)."""
        cells, rows = self._cells, at[1]
        choices = cells.choices[cells.feature[rows]][..., None]
        table = self._smoothing.ratio(cells.at(self._p, *at), cells.known_at(self._p, *at), choices)
        table[..., cells.hidden[rows], :] = 1.0
        return table

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """Return the whole table."""
        cells = self._cells
        beside = cells.beside(self._p)
        given = beside.known(), np.delete(cells.choices, self._p), beside.bounds
        table = self._smoothing.ratio_within(beside.counts, *given)
        table[:, cells.hidden[beside.rows]] = 1.0
        return cells.spread(beside, table)


def check_finite(squares: Floats, names: Sequence[str]) -> None:
    """Raise DataError where sums of squares, (..., p), overflow, with the name of the column."""
    if not (fine := np.isfinite(squares)).all():
        column = names[int(np.argwhere(~fine)[0][-1])]
        raise DataError(f"column {column!r}: squares of its values overflow; rescale it")


def logs(probabilities: Floats) -> Floats:
    """Return logarithms; ln 0 is -inf."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


class Gaussians(NamedTuple):
    """Per (numeric feature, class): log N(x) = constant - half_precision ((x - mean) - rest)^2."""

    mean: Floats
    half_precision: Floats
    constant: Floats
    rest: Floats  # what rounding took from the mean


def log_prior(
    class_counts: NDArray[Any],
    alpha: float,
    class_prior: str | ArrayLike | None,
    classes: NDArray[Any] | None = None,
) -> Floats:
    """Return ln P(c), (n_classes,) in nats.

    `class_prior` is None (alpha is added to each count), "empirical" (unsmoothed), "uniform" or
    (n_classes,) probabilities; where these have an index, such as a pandas Series, it must be in
    the order of the classes. Other values are a ValueError.
    """
    k = len(class_counts)
    total = float(class_counts.sum())
    if class_prior is None:
        prior = (class_counts + alpha) / (total + k * alpha) if total + alpha else np.ones(k) / k
    elif isinstance(class_prior, str):
        if class_prior == "uniform":
            prior = np.full(k, 1.0 / k)
        elif class_prior == "empirical":
            prior = class_counts / total if total else np.full(k, 1.0 / k)
        else:
            raise ValueError(f"class_prior={class_prior!r}: {PRIORS}")
    else:
        try:
            prior = np.asarray(class_prior, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"class_prior={class_prior!r}: {PRIORS}") from error
        if prior.shape != (k,):
            raise ValueError(f"class_prior has shape {prior.shape}, but there are {k} classes")
        if not (np.isfinite(prior).all() and (prior >= 0).all()):
            raise ValueError("class_prior holds a value that is not a probability")
        if not math.isclose(prior.sum(), 1.0, rel_tol=0, abs_tol=1e-8):
            raise ValueError(f"class_prior sums to {prior.sum():.12g}; it must sum to 1")
        index = getattr(class_prior, "index", None)
        if classes is not None and index is not None and not callable(index):
            given = list(index)
            if given not in (classes.tolist(), list(range(k))):
                raise ValueError(
                    f"class_prior has the index {given}, but the classes are {classes.tolist()}; "
                    "reindex it by these"
                )
    return logs(np.asarray(prior, dtype=np.float64))


def log_likelihood(
    counts: ValueCounts, alpha: float, *, missing: str, unseen: str
) -> tuple[Floats, NDArray[np.int64]]:
    """Return ln P(x_j = v | c) = ln((n_cv + alpha) / (n_c,known(j) + S_j alpha)) and its offsets.

    The table is (n_slots, n_classes) with S_j + 2 rows per feature: its values, the missing
    value (factor 1, or a value of its own under "category") and an unseen value (factor 1, or
    under "smooth" the mass of a value that was never counted). 0/0 is its limit 1/S_j.
    """
    cells = CountTables(counts, missing=missing, unseen=unseen)
    return logs(cells.likelihood(Smoothing(alpha=alpha))), cells.offsets


def leave_one_out_log_joint(counts: ValueCounts, missing: str) -> Callable[[float], float]:
    """Return the leave-one-out log joint of naive Bayes as a function of alpha, in nats.

    The sum over rows of ln P(c, x) with that row taken out of every count, from counts alone:
    sum_c n_c ln((n_c - 1 + a)/(N - 1 + K a)) + sum_jcv n_cv ln((n_cv - 1 + a)/(n_c - 1 + S_j a)),
    n - 1 read as n - min(n, 1) and 0/0 as its limit 1/K or 1/S_j.
    """
    n_c = counts.class_counts.astype(np.float64)
    cells = CountTables(counts, missing=missing, unseen="ignore")
    feature = cells.feature[cells.counted]
    n, known, choices = cells.n[cells.counted], cells.known[feature], cells.choices[feature, None]

    def log_joint(alpha: float) -> float:
        of_class = left_out(n_c, n_c.sum(keepdims=True), np.array([len(n_c)]), alpha)
        return of_class + left_out(n, known, choices, alpha)

    return log_joint


def left_out(
    n: Floats, known: Floats, choices: NDArray[Any], mass: Any, rows: Floats | None = None
) -> float:
    """Return the sum of rows ln((n - 1 + mass)/(known - 1 + choices mass)), in nats.

    n is the count of each cell, `known` that of all the cells of its distribution, which are
    `choices` many. n - 1 is read as n - min(n, 1) and 0/0 as its limit 1/choices. `rows` of each
    cell are scored, at most n; None means all.
    """
    above, below = n - np.minimum(n, 1) + mass, known - np.minimum(known, 1) + choices * mass
    rows = n if rows is None else rows
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(below > 0, above / below, 1 / choices)
        return float(np.where(rows > 0, rows * np.log(ratio), 0.0).sum())


def best_of(
    score_of: Callable[[float], float], tol: float, max_iter: int, what: str
) -> Found[float]:
    """Return the number in [1e-6, 1e4] of the highest score, to half the digits.

    The search ends where its logarithm lies in an interval of width `tol`.
    """
    return converged(
        _golden_section(score_of, tol),
        tol=tol,
        max_iter=max_iter,
        what=what,
        measure="the width of the interval of its logarithm",
    )


def _golden_section(score_of: Callable[[float], float], tol: float) -> Steps[float]:
    """Yield ever better numbers in [1e-6, 1e4]; the trace keeps their scores."""

    def score(log_alpha: float) -> float:
        return score_of(math.exp(log_alpha))

    grid = np.linspace(math.log(1e-6), math.log(1e4), 47)
    scores = [score(t) for t in grid]
    at = int(np.argmax(scores))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    best = scores[at], float(grid[at])
    # The sum is smooth and has one peak between the neighbours of the best point.
    ratio = (math.sqrt(5) - 1) / 2
    while (error := float(high - low)) > tol:
        yield Step(math.exp(best[1]), -best[0], error, best[0], done=False)
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        found = score(a), score(b)
        best = max(best, *zip(found, (a, b), strict=True))
        if found[0] >= found[1]:
            high = b
        else:
            low = a
    yield Step(math.exp((low + high) / 2), -best[0], error, best[0], done=True)
    return ""


# The least variance of a class, as a share of the variance within all classes: a deviation of a
# fifth. Columns of real tables hardly fall below it but where a class has one value.
LEAST_WITHIN = 0.04


class Spread(NamedTuple):
    """Gaussian parameters with what was done to get them."""

    gaussians: Gaussians
    variance: Floats  # (n_numeric, n_classes) as used
    floored: NDArray[np.bool_]  # (n_numeric, n_classes) raised to the floor
    constant: NDArray[np.bool_]  # (n_numeric,) constant within every class: factor 1
    floor: Floats  # (n_numeric,) least variance


def spread_of(
    n: Floats,
    mean: Floats,
    rest: Floats,
    scatter: Floats,
    *,
    names: Sequence[str],
    ddof: int,
    variance: str,
    var_floor: float | str,
) -> Spread:
    """Return the normal densities of moments, each (..., n_numeric, n_classes).

    A scatter is divided by n - ddof. A variance is "per_class", "shared" (over classes) or "single"
    (over classes and features), and at least var_floor times that of all classes together; by
    "within" those per class are at least LEAST_WITHIN times that within the classes. What is pooled
    is pooled over the last two axes: those before hold moments of other data.
    """
    total = n.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grand = np.where(total > 0, (n * mean).sum(axis=-1) / total, 0.0)
        within = scatter.sum(axis=-1)
        between = (n * (mean - grand[..., None]) ** 2).sum(axis=-1)
        overall = np.where(total > 0, (within + between) / total, 0.0)
        classes = (n > 0).sum(axis=-1)
        shared = within / (total - ddof * classes)
        shared = np.where(np.isfinite(shared) & (shared > 0), shared, 0.0)
        if variance == "single":
            pooled = (within, total - ddof * classes)
            single = np.divide(*(part.sum(axis=-1)[..., None, None] for part in pooled))
            used = np.where(np.isfinite(single), single, 0.0) + np.zeros(n.shape)
        elif variance == "shared":
            used = shared[..., None] + np.zeros(n.shape)
        else:
            used = np.where(n > ddof, scatter / (n - ddof), shared[..., None])
    check_finite(overall, names)
    constant = within == 0
    if isinstance(var_floor, str):
        # What is pooled is no less than what it is pooled from.
        share = LEAST_WITHIN if variance == "per_class" else 0.0
        floor = np.divide(share * within, total, out=np.zeros_like(within), where=total > 0)
    else:
        floor = var_floor * overall
    floor = floor[..., None]
    floored = (used < floor) & ~constant[..., None]
    used = np.where(floored, floor, used)
    # A class without a known value is described by the pooled moments.
    centre = np.where(n > 0, mean, grand[..., None])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        half = np.where(constant[..., None], 0.0, 0.5 / used)
        level = np.where(constant[..., None], 0.0, -0.5 * np.log(2 * math.pi * used))
    if not (np.isfinite(half).all() and np.isfinite(level).all()):
        wrong = np.argwhere(~(np.isfinite(half) & np.isfinite(level)))[0]
        feature = int(wrong[-2])
        if used[tuple(wrong)] > 0:
            raise DataError(
                f"column {names[feature]!r}: squares of its values underflow; rescale it"
            )
        raise DataError(
            f"column {names[feature]!r} has variance 0 in a class and var_floor={var_floor}; "
            "raise var_floor or leave the column out"
        )
    rest = np.where(n > 0, rest, 0.0)
    return Spread(Gaussians(centre, half, level, rest), used, floored, constant, floor[..., 0])
