"""Maps that make posteriors agree with frequencies, learned from held-out rows: kept, or summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.iteration import Convergence, Found, Step, Steps, converged
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.estimator.explanation import LEAST_NATS
from fastbayes.models.estimator.log_space import (
    Floats,
    log_sum_exp,
    normalise,
    row_argmax,
    row_max,
    row_sum,
)

# Log posteriors that are kept (64 MiB); of more rows there are sums, in scans of their own.
MOST_KEPT = 2**23
# Bins of log odds: bits of the mantissa, and magnitudes below and above which all are one.
MANTISSA_BITS, LEAST, MOST = 7, 2.0**-12, 2.0**20
# Of a row's own class, what is clipped in the loss.
LOST = float(np.log(CLIP))
# What an impossible class counts as in sums: its products stay finite, and are 0.
NEVER = -1e100
# While so large a share of the blocks is pooled at once numpy does it, then a stack.
WORTHWHILE = 0.05

# Scans all held-out rows into what `make` gives, which has update and merge.
Scan = Callable[[Callable[[], Any]], Any]


class PosteriorRows(NamedTuple):
    """Rows with their log posteriors by models that had not seen them.

    log_posterior  (n, n_classes) nats, -inf where a class is impossible
    y              (n,) class codes
    weight         (n,) weights
    """

    log_posterior: Floats
    y: NDArray[np.intp]
    weight: Floats

    def blocks(self) -> list[PosteriorRows]:
        """Return the rows in blocks, so that what is computed of them stays small."""
        return [self.some(slice(at, at + BLOCK_ROWS)) for at in range(0, len(self.y), BLOCK_ROWS)]

    def some(self, which: Any) -> PosteriorRows:
        """Return the rows that an index picks."""
        return PosteriorRows(self.log_posterior[which], self.y[which], self.weight[which])


class RowSums:
    """Sums over rows, which blocks update and parts merge.

    Rows that weigh nothing, or are impossible under every class, say nothing.
    """

    _names: ClassVar[tuple[str, ...]]

    def update(self, log_posterior: Floats, y: NDArray[Any], weight: Floats | None = None) -> None:
        """Add rows."""
        self._add(possible(log_posterior, y, weight))

    def merge(self, other: Self) -> None:
        """Add the rows of another."""
        for name in self._names:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums as named arrays, which `take` adds to others."""
        return {name: np.asarray(getattr(self, name)) for name in self._names}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """Add the rows of the arrays of such sums."""
        for name in self._names:
            setattr(self, name, getattr(self, name) + arrays[name])

    def _add(self, rows: PosteriorRows) -> None:
        raise NotImplementedError


class RowBuffer(RowSums):
    """The first rows, as many as fit in memory; `complete` tells whether these are all."""

    def __init__(self, n_classes: int) -> None:
        self._parts: list[PosteriorRows] = []
        self._room = max(MOST_KEPT // n_classes, 1)
        self._n_classes = n_classes
        self.complete = True

    def _add(self, rows: PosteriorRows) -> None:
        if len(rows.y) > self._room:
            self.complete = False
            rows = rows.some(np.arange(self._room))
        self._room -= len(rows.y)
        self._parts.append(rows)

    def merge(self, other: RowBuffer) -> None:
        """Add the rows of another, which come after these."""
        for part in other._parts:
            self._add(part)
        self.complete &= other.complete

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the rows as named arrays, which `take` adds to others."""
        return {**self.rows()._asdict(), "complete": np.array(self.complete)}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """Add the rows of such arrays, which come after these."""
        self._add(PosteriorRows(*(arrays[name] for name in PosteriorRows._fields)))
        self.complete &= bool(arrays["complete"])

    def rows(self) -> PosteriorRows:
        """Return all rows that were kept, in order."""
        empty = PosteriorRows(np.empty((0, self._n_classes)), np.empty(0, np.intp), np.empty(0))
        return PosteriorRows(*map(np.concatenate, zip(empty, *self._parts, strict=True)))


class CalibrationLosses(RowSums):
    """Log-loss of rows before and after a map of their posteriors, probabilities clipped at 1e-15.

    Sums over rows; `total` is that of the weights.
    """

    _names = ("before", "after", "total")

    def __init__(self, calibration: Any) -> None:
        self._map = calibration
        self.before = self.after = self.total = 0.0

    def _add(self, rows: PosteriorRows) -> None:
        mapped = rows.log_posterior.copy()
        self._map(mapped)
        self.before += _log_loss(rows.log_posterior, rows)
        self.after += _log_loss(mapped, rows)
        self.total += float(rows.weight.sum())

    def means(self) -> tuple[float, float]:
        """Return the mean log-losses before and after the map; 0 without rows."""
        per_row = max(self.total, np.finfo(float).tiny)
        return self.before / per_row, self.after / per_row


class OddsBins(RowSums):
    """Rows by their log odds of each class against the others, in bins of equal ratios.

    Of two classes only the second is looked at.
    """

    _names = ("_sums",)

    def __init__(self, n_classes: int) -> None:
        n_bins = int(_bin(np.array([MOST]))[0]) + 1
        # Weight, weight of the rows of the class, and weighted log odds.
        self._sums = np.zeros((3, 1 if n_classes == 2 else n_classes, n_bins))

    def _add(self, rows: PosteriorRows) -> None:
        odds, members = log_odds(rows.log_posterior), of_class(rows)
        for c, (x, member) in enumerate(zip(odds.T, members.T, strict=True)):
            bins = _bin(x)
            for total, values in zip(self._sums[:, c], (1.0, member, x), strict=True):
                total += np.bincount(bins, rows.weight * values, len(total))

    def curves(self) -> list[tuple[Floats, Floats, Floats]]:
        """Return mean log odds, rows of the class and rows in each bin that holds rows."""
        used = (sums[:, sums[0] > 0] for sums in self._sums.transpose(1, 0, 2))
        return [(odds / weight, members, weight) for weight, members, odds in used]


def possible(log_posterior: Floats, y: NDArray[Any], weight: Floats | None) -> PosteriorRows:
    """Return rows but those that weigh nothing, or are impossible under every class."""
    w = np.ones(len(y)) if weight is None else weight
    given = ~np.isneginf(log_posterior).all(axis=1) & (w > 0)
    rows = PosteriorRows(log_posterior, y.astype(np.intp), w)
    return rows if given.all() else rows.some(given)


def log_odds(log_posterior: Floats) -> Floats:
    """Return the log odds of each class against the others, of two classes those of the second.

    (n_rows, n_classes), or (n_rows, 1) of two, between -2^20 and 2^20; rows are normalised.
    """
    n_rows, n_classes = log_posterior.shape
    if n_classes == 2:
        odds = log_posterior[:, 1:] - log_posterior[:, :1]
    else:
        best, every = row_argmax(log_posterior), np.arange(n_rows)
        with np.errstate(divide="ignore"):  # a class that is certain
            odds = log_posterior - np.log1p(-np.exp(np.minimum(log_posterior, 0.0)))
        # What is left of the other classes has lost its digits in 1 - p.
        others = log_posterior.copy()
        others[every, best] = -np.inf
        odds[every, best] = log_posterior[every, best] - log_sum_exp(others)
    return np.asarray(np.clip(odds, -MOST, MOST))


def of_class(rows: PosteriorRows) -> NDArray[np.bool_]:
    """Return whether rows are of each class, of two classes the second; shaped like `log_odds`."""
    n_classes = rows.log_posterior.shape[1]
    wanted = np.array([1]) if n_classes == 2 else np.arange(n_classes)
    return np.asarray(rows.y[:, None] == wanted)


def own_of(rows: PosteriorRows) -> Floats:
    """Return the log posterior of each row's own class."""
    return np.asarray(rows.log_posterior[np.arange(len(rows.y)), rows.y])


def _log_loss(log_posterior: Floats, rows: PosteriorRows) -> float:
    given = own_of(rows._replace(log_posterior=log_posterior))
    return float(-np.sum(rows.weight * np.maximum(given, LOST)))


def _bin(odds: Floats) -> NDArray[np.int64]:
    """Return bins that rise with the log odds: sign, exponent and leading mantissa bits."""
    shift = 52 - MANTISSA_BITS
    least, most = (int(np.float64(edge).view(np.int64)) >> shift for edge in (LEAST, MOST))
    size = np.abs(odds)
    rank = np.where(size < LEAST, 0, (size.view(np.int64) >> shift) - least + 1)
    return np.asarray(np.where(odds < 0, -rank, rank) + (most - least + 1))


@dataclass(frozen=True)
class Temperature:
    """Posteriors to the power of 1/T, made to sum to 1.

    Parameters
    ----------
    temperature
        T > 0: above 1 posteriors become less sure, below 1 surer. Their order stays.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.
    """

    method: ClassVar[str] = "temperature"
    temperature: float

    def __call__(self, log_posterior: Floats) -> None:
        """Change log posteriors in place, (n_rows, n_classes) nats."""
        log_posterior /= self.temperature
        normalise(log_posterior, np.zeros(log_posterior.shape[1]))

    def explained(self, nats: Floats) -> Floats:
        """Return what is left of summands of the log joint: odds to the power of 1/T are of them.

        What they lack of the log joint is then the same for all classes of a row.
        """
        return np.asarray(nats / self.temperature)

    def summands(self, nats: Floats) -> Floats:
        """Return them so that a remainder completes them: what is impossible stays so."""
        return nats

    def remainder(self, nats: Floats) -> Floats:
        """Return what the log joint has beyond summands, (n_rows, n_classes), without rounding."""
        known = np.where(np.isfinite(nats), nats, -np.inf).max(axis=1, keepdims=True)
        return np.broadcast_to(np.where(np.isfinite(known), known, 0.0), nats.shape).copy()

    @classmethod
    def learned(
        cls, kept: RowBuffer, scan: Scan, n_classes: int, tol: float, max_iter: int
    ) -> tuple[Self, Convergence]:
        """Return the temperature of least log-loss, and how it was found."""
        rows = kept.rows()
        blocks = rows.blocks()

        def sums(power: float, lost: bool) -> TemperatureLoss:
            found = TemperatureLoss(power, lost)
            for block in blocks:
                found.update(*block)
            return found

        lost, found = True, least(partial(sums, lost=True), 1.0, tol, max_iter)
        if (own_of(rows) < LOST).any():
            # Far beyond the clip, they may weigh more than all others, and gain nothing.
            other = least(partial(sums, lost=False), 1.0, tol, max_iter)
            if sums(other.point, False).clipped < sums(found.point, True).clipped:
                lost, found = False, other
        if not kept.complete:
            every = partial(TemperatureLoss, lost=lost)
            found = least(lambda p: scan(partial(every, p)), found.point, tol, max_iter)
        return cls(1.0 / found.point), found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `of` rebuilds it from."""
        return {"temperature": np.array([self.temperature])}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the map that `arrays` described."""
        (temperature,) = arrays["temperature"].tolist()
        if not 0 < temperature < math.inf:
            raise ValueError(f"{temperature!r} is no temperature")
        return cls(float(temperature))


class TemperatureLoss(RowSums):
    """Log-loss of rows whose posteriors are raised to a power 1/T, with its two derivatives.

    A row whose own class is impossible is lost at any power, and left out; so is one whose own
    class is below `CLIP`, unless `lost`. `clipped` is the loss that is reported, of all of them.
    """

    _names = ("loss", "slope", "curvature", "clipped")

    def __init__(self, power: float, lost: bool = True) -> None:
        self.power, self.lost = power, lost
        self.loss = self.slope = self.curvature = self.clipped = 0.0

    def _add(self, rows: PosteriorRows) -> None:
        s, _, w = rows
        own = own_of(rows)
        if (never := np.isneginf(own)).any():
            s, own, w = s[~never], own[~never], w[~never]
        s = np.maximum(s, NEVER)
        raised = s * self.power
        top = row_max(raised)
        p = np.exp(raised - top[:, None])
        total = row_sum(p)
        p /= total[:, None]
        mean, log_total = row_sum(p * s), top + np.log(total)
        self.clipped += float(np.sum(w * np.minimum(log_total - self.power * own, -LOST)))
        if not self.lost:
            w = np.where(own < LOST, 0.0, w)
        self.loss += float(np.sum(w * (log_total - self.power * own)))
        self.slope += float(np.sum(w * (mean - own)))
        self.curvature += float(np.sum(w * row_sum(p * (s - mean[:, None]) ** 2)))


def least(
    sums: Callable[[float], TemperatureLoss], start: float, tol: float, max_iter: int
) -> Found[float]:
    """Return the power of least log-loss, by Newton's method kept between bounds.

    `sums` gives the loss of all rows at a power. What is minimised is that loss plus power - 1 -
    ln power, which weighs as much as one row: of rows that are all told apart, or all mistaken, the
    power is still a number. It is 1 where the loss of probabilities clipped at 1e-15 would be above
    what it is without a map.
    """
    at = cache(sums)
    found = converged(
        _newton(at, start, tol),
        tol=tol,
        max_iter=max_iter,
        what="the temperature",
        measure="its relative change",
    )
    return replace(found, point=1.0) if at(found.point).clipped > at(1.0).clipped else found


def _newton(sums: Callable[[float], TemperatureLoss], start: float, tol: float) -> Steps[float]:
    """Yield powers of ever less loss, which the trace keeps."""
    power, below, above = start, 0.0, np.inf
    while True:
        found = sums(power)
        loss = found.loss + power - 1 - math.log(power)
        slope = found.slope + 1 - 1 / power
        below, above = (power, above) if slope < 0 else (below, power)
        step = power - slope / (found.curvature + 1 / power**2)
        error = abs(step - power) / power
        # The last step is taken: what is left then is the square of its change.
        yield Step(step if error <= tol else power, loss, error, loss, error <= tol)
        if not below < step < above:
            step = (below + above) / 2 if above < np.inf else 2 * power
        power = step


@dataclass(frozen=True)
class Isotonic:
    """Each class's share of the rows as a rising curve of its log odds, made to sum to 1.

    Parameters
    ----------
    curves
        Log odds and probability at the ends of the level parts, for each class; of two classes
        for the second. Between them the curve is straight.

    References
    ----------
    Zadrozny, Elkan (2002), Transforming classifier scores into accurate multiclass probability
    estimates, KDD.
    """

    method: ClassVar[str] = "isotonic"
    curves: tuple[tuple[Floats, Floats], ...]

    def __call__(self, log_posterior: Floats) -> None:
        """Change log posteriors in place, (n_rows, n_classes) nats."""
        odds = log_odds(log_posterior)
        shares = zip(odds.T, self.curves, strict=True)
        p = np.stack([np.interp(x, *curve) for x, curve in shares], axis=1)
        if len(self.curves) < log_posterior.shape[1]:
            p = np.concatenate([1.0 - p, p], axis=1)
        else:
            p /= row_sum(p)[:, None]
        np.log(p, out=log_posterior)

    def explained(self, nats: Floats) -> Floats:
        """Return summands of the log joint as they were: a curve takes their sum alone."""
        return nats

    def summands(self, nats: Floats) -> Floats:
        """Return them so that a remainder completes them: curves rule nothing out."""
        return np.clip(nats, LEAST_NATS, -LEAST_NATS)

    def remainder(self, nats: Floats) -> Floats:
        """Return what the log joint has beyond summands, (n_rows, n_classes)."""
        return nats

    @classmethod
    def learned(
        cls, kept: RowBuffer, scan: Scan, n_classes: int, tol: float, max_iter: int
    ) -> tuple[Self, Convergence]:
        """Return the curves of least squared error, which are those of least log-loss too."""
        if kept.complete:
            rows = kept.rows()
            classes = zip(log_odds(rows.log_posterior).T, of_class(rows).T, strict=True)
            found = [grouped(x, member, rows.weight) for x, member in classes]
        else:
            found = scan(partial(OddsBins, n_classes)).curves()
        return cls(tuple(rising_share(*curve) for curve in found)), Convergence()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `of` rebuilds it from."""
        log_odds, shares = (np.concatenate(parts) for parts in zip(*self.curves, strict=True))
        ends = np.cumsum([len(at) for at, _ in self.curves], dtype=np.int64)
        return {"ends": ends, "log_odds": log_odds, "share": shares}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the map that `arrays` described."""
        ends, *held = (arrays[name] for name in ("ends", "log_odds", "share"))
        if not all(len(ends) and array.shape == (ends[-1],) for array in held):
            raise ValueError("the curves of a map end elsewhere")
        curves = tuple(zip(*(np.split(array, ends[:-1]) for array in held), strict=True))
        for odds, share in curves:
            rising = len(odds) and (np.diff(odds) >= 0).all() and (np.diff(share) >= 0).all()
            if not (rising and 0 < share[0] <= share[-1] < 1):
                raise ValueError("a curve of a map does not rise between 0 and 1")
        return cls(curves)


def grouped(x: Floats, member: NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the different log odds, ascending, with the members and the rows at each."""
    order = np.argsort(x, kind="stable")
    x, w = x[order], weight[order]
    first = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]])) if len(x) else order
    if not len(first):
        return x, w, w
    members = np.add.reduceat(np.where(member[order], w, 0.0), first)
    return x[first], members, np.add.reduceat(w, first)


def rising_share(x: Floats, members: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the rising curve of the share of members, strictly between 0 and 1.

    One row more is put at each end of the curve, a member at the lowest log odds and one that is
    none at the highest: no probability is 0 or 1, and log-losses stay finite. `x` are different log
    odds, ascending; the curve is given by those at the ends of its level parts.
    """
    if not len(x):
        return np.zeros(1), np.full(1, 0.5)
    members, weight = members.copy(), weight.copy()
    members[0] += 1
    weight[0] += 1
    weight[-1] += 1
    value, size = pooled(members, weight)
    last = np.cumsum(size) - 1
    at = np.stack([last - size + 1, last], axis=1).ravel()
    # A level part of a single log odds has one end.
    single = np.concatenate([[True], at[1:] != at[:-1]])
    return x[at][single], np.repeat(value, 2)[single]


def pooled(total: Floats, weight: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the rising values closest to the means total / weight in weighted squares.

    They are level parts: the value of each, strictly ascending, and how many means it takes.

    Pool adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman 1955): the order of pooling does
    not matter, so that whole falling runs are pooled at once for as long as that gets on, and the
    rest by a stack, in linear time.
    """
    size = np.ones(len(total), np.int64)
    while True:
        mean = total / weight
        first = np.flatnonzero(np.concatenate([[True], mean[1:] > mean[:-1]]))
        gone = len(mean) - len(first)
        if not gone:
            return mean, size
        total, weight, size = (np.add.reduceat(part, first) for part in (total, weight, size))
        if gone < WORTHWHILE * len(mean):
            return _stacked(total, weight, size)


def _stacked(
    total: Floats, weight: Floats, size: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return what `pooled` does, one block after the other."""
    blocks: list[tuple[float, float, int]] = []
    for t, w, n in zip(total.tolist(), weight.tolist(), size.tolist(), strict=True):
        while blocks and t * blocks[-1][1] <= blocks[-1][0] * w:
            before = blocks.pop()
            t, w, n = before[0] + t, before[1] + w, before[2] + n
        blocks.append((t, w, n))
    sums, weights, sizes = zip(*blocks, strict=True)
    return np.array(sums) / np.array(weights), np.array(sizes, np.int64)


MAPS: dict[str, type[Temperature] | type[Isotonic]] = {
    "temperature": Temperature,
    "isotonic": Isotonic,
}
