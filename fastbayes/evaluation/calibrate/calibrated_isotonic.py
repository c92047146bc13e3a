"""Isotonic calibration: for each class the rising curve that fits its frequencies best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.evaluation.calibrate.calibrated_rows import OddsBins, RowBuffer, log_odds, of_class
from fastbayes.evaluation.calibrate.calibrated_temperature import Scan
from fastbayes.models.estimator.log_space import Floats, row_sum

# While so large a share of the blocks is pooled at once numpy does it, then a stack.
WORTHWHILE = 0.05


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
        p = np.empty_like(log_posterior)
        for c, (at, value) in enumerate(self.curves):
            p[:, c] = np.interp(odds[:, c], at, value)
        if len(self.curves) < p.shape[1]:
            p[:, 1] = p[:, 0]
            np.subtract(1.0, p[:, 1], out=p[:, 0])
        else:
            p /= row_sum(p)[:, None]
        np.log(p, out=log_posterior)

    @classmethod
    def learned(cls, kept: RowBuffer, scan: Scan, n_classes: int) -> Self:
        """Return the curves of least squared error, which are those of least log-loss too.

        Parameters
        ----------
        kept
            The rows, or the first of them.
        scan
            Scans all of them, where they were not all kept.
        n_classes
            Number of classes.
        """
        if not kept.complete:
            binned = scan(partial(OddsBins, n_classes)).curves()
            return cls(tuple(rising_share(*curve) for curve in binned))
        rows = kept.rows()
        odds, members = log_odds(rows.log_posterior), of_class(rows)
        return cls(
            tuple(
                rising_share(*grouped(x, member, rows.weight))
                for x, member in zip(odds.T, members.T, strict=True)
            )
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `of` rebuilds it from."""
        named: dict[str, NDArray[Any]] = {
            "ends": np.cumsum([len(at) for at, _ in self.curves], dtype=np.int64)
        }
        for name, parts in zip(("log_odds", "share"), zip(*self.curves, strict=True), strict=True):
            named[name] = np.concatenate(parts)
        return named

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the map that `arrays` described."""
        at = arrays["ends"][:-1]
        parts = (np.split(arrays[name], at) for name in ("log_odds", "share"))
        return cls(tuple(zip(*parts, strict=True)))


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
    none at the highest: no probability is 0 or 1, and log-losses stay finite.

    Parameters
    ----------
    x
        (n,) different log odds, ascending.
    members, weight
        (n,) rows of the class, and all rows, at each.

    Returns
    -------
    tuple
        Log odds and probability at the ends of the level parts, both ascending.
    """
    if not len(x):
        return np.zeros(1), np.full(1, 0.5)
    members, weight = members.copy(), weight.copy()
    members[0] += 1
    weight[0] += 1
    weight[-1] += 1
    value, size = pooled(members, weight)
    last = np.cumsum(size) - 1
    first = last - size + 1
    at = np.stack([first, last], axis=1).ravel()
    # A level part of a single log odds has one end.
    single = np.concatenate([[True], at[1:] != at[:-1]])
    return x[at][single], np.repeat(value, 2)[single]


def pooled(total: Floats, weight: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the rising values closest to means in weighted squares, as level parts.

    Parameters
    ----------
    total, weight
        (n,) sums in order, and their weights > 0: the means are total / weight.

    Returns
    -------
    tuple
        The value of each level part, strictly ascending, and how many means it takes.

    Notes
    -----
    Pool adjacent violators: the order of pooling does not matter, so that whole falling runs are
    pooled at once for as long as that gets on, and the rest by a stack, in linear time.

    References
    ----------
    Ayer, Brunk, Ewing, Reid, Silverman (1955), An empirical distribution function for sampling
    with incomplete information, Annals of Mathematical Statistics 26.
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
