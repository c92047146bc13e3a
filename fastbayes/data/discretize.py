"""Cut points of numeric columns: Fayyad-Irani, quantiles, equal widths, or as they are given."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.domains import checked_cuts
from fastbayes.core.errors import SchemaError
from fastbayes.core.numbers import is_whole
from fastbayes.core.suggestions import meant_column
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.cuts import scatter_of, x_log_x
from fastbayes.kernels.shared.sketch import (
    FRACTION_BITS,
    Entries,
    allowed,
    keys,
    least_shift,
    numbers,
    split,
)

# Entries (cell and class) of a sketch. A column with no more different pairs of value and class
# is held exactly; of a million different numbers there are some thousands of ranges. Four times
# as many take twice the time, since they do not fit the second-level cache.
LIMIT = 16_384
# Whatever so few rows hold is kept exactly.
FEW_ROWS = 65_536
# Weights of a profile, 128 MiB of them: 256 classes may have as many cells as there ever are.
MOST_WEIGHTS = 1 << 24
# Weights beyond this could overflow their sums.
GREATEST_WEIGHT = 2.0**32


class Profile(NamedTuple):
    """The values of a column, or ranges of them, in ascending order.

    least, greatest  (n,) float64             extremes of each range; equal for a single value
    weight           (n, n_classes) float64   rows, or the sum of their weights
    """

    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    weight: NDArray[np.float64]


class Rows(NamedTuple):
    """Values of a column, with labels and weights as `split` gives them."""

    values: NDArray[np.float64]
    labels: NDArray[np.uint16]
    whole: NDArray[np.int64]
    fraction: NDArray[np.int64]


NO_ROWS = Rows(*(np.empty(0, kind) for kind in ("f8", "u2", "i8", "i8")))


class ValueSketch:
    """Class weights of the values of a numeric column, in bounded memory.

    At most `limit` entries (cell and class) are kept, or `few` as long as all rows together weigh
    no more than that. The cells are as small as the limit allows: the values of a cell agree in all
    but the lowest `shift` bits of their order-preserving integers, and `shift` is the least one for
    which there are not too many entries. That depends on the rows as a set and on nothing else, so
    they may come in any order and batches, and sketches add in any order, to the same bits.

    The first `few` rows are held as they are: sorted once, they are their own entries.
    """

    def __init__(self, limit: int = LIMIT, few: int = FEW_ROWS) -> None:
        self.limit = limit
        self.few = few
        self._rows: list[Rows] = []
        self._n_held = 0
        self.job = math.inf
        self._cells: Any = None

    def update(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.uint16],
        weight: tuple[NDArray[np.int64], NDArray[np.int64]],
        cells: float = math.inf,
    ) -> None:
        """Add a block of rows; NaN is left out.

        Weights are as `split` gives them, up to `GREATEST_WEIGHT`. `cells` are the rows x columns
        of the whole job: whether compiling pays is decided at the first block.
        """
        if not (self._rows or self._cells):
            self.job = cells
        self._add(Rows(values, labels, *weight))

    def _add(self, rows: Rows) -> None:
        if self._cells is None and self._n_held + len(rows.values) <= self.few:
            # The caller may write new values where these are; the rest is shared by all columns.
            self._rows.append(rows._replace(values=rows.values.copy()))
            self._n_held += len(rows.values)
        else:
            self._spilled().add(*rows)

    def _spilled(self) -> Any:
        """Return the cells, with the rows that were held."""
        if self._cells is None:
            self._cells = dispatch.load("counting.sketch", self.job).SketchEntries(
                self.limit, self.few
            )
            held, self._rows, self._n_held = self._rows, [], 0
            for rows in held:
                self._cells.add(*rows)
        return self._cells

    def merge(self, other: ValueSketch) -> None:
        """Add the rows of another sketch."""
        if not (self._rows or self._cells):
            self.job = other.job
        if self._cells is None and self._n_held + other._n_held <= self.few:
            self._rows += other._rows  # which nobody changes once they are held
            self._n_held += other._n_held
        else:
            for rows in other._rows:
                self._spilled().add(*rows)
        if other._cells is not None:
            self.take(*other.state())

    def state(self) -> tuple[Entries, int]:
        """Return the entries and the shift, of which `take` makes the sketch again."""
        entries = self._entries()  # may make the cells larger
        return entries, self.shift

    def take(self, entries: Entries, shift: int) -> None:
        """Add the entries of another sketch."""
        if not (self._rows or self._cells):
            self.job = float(len(entries.label))
        self._spilled().take(entries, shift)

    @property
    def nbytes(self) -> int:
        """Bytes held, without labels and weights, which all columns share."""
        held = sum(rows.values.nbytes for rows in self._rows)
        return held if self._cells is None else held + int(self._cells.nbytes)

    @property
    def shift(self) -> int:
        """Bits that the cells are short of; 0 where every value is held exactly."""
        self._entries()
        return 0 if self._cells is None else int(self._cells.shift)

    def _entries(self) -> Entries:
        """Return the entries, or all rows where these are few enough, in any order."""
        if self._cells is not None:
            return self._cells.entries()
        parts = zip(NO_ROWS, *self._rows, strict=True)
        rows = Rows(*(np.concatenate(arrays) for arrays in parts))
        key = keys(rows.values)
        found = Entries(rows.labels, key, key, rows.whole, rows.fraction)
        gone = np.isnan(rows.values) | ((rows.whole | rows.fraction) == 0)
        if gone.any():
            found = Entries(*(array[~gone] for array in found))
        # Few rows may weigh as much as many.
        if len(found.least) > allowed(found.whole, found.fraction, self.limit, self.few):
            return self._spilled().entries()
        return found


def profiles(sketches: Sequence[ValueSketch], classes: NDArray[np.intp]) -> list[Profile]:
    """Return the cells of columns with the weights of these classes, by their codes.

    There are at most `MOST_WEIGHTS` weights of each: of hundreds of classes, the cells are larger.
    All are looked at together: of few rows calls take longer than what they do.
    """
    limit = max(1, MOST_WEIGHTS // max(1, len(classes)))
    wholes, cells = [], []
    for sketch in sketches:
        whole = sketch._entries()
        order = np.argsort(whole.least)
        whole = Entries(*(array[order] for array in whole))
        least, shift = whole.least, 0 if sketch._cells is None else int(sketch._cells.shift)
        if len(least) > limit:
            shift = least_shift([least[1:] ^ least[:-1]], shift, limit)
        wholes.append(whole)
        cells.append(least >> np.uint64(shift))
    entries = Entries(*(np.concatenate(arrays) for arrays in zip(*wholes, strict=True)))
    cell, ends = np.concatenate(cells), np.cumsum([len(some) for some in cells])
    new = np.ones(len(cell), np.bool_)
    new[1:] = cell[1:] != cell[:-1]
    new[ends[:-1][ends[:-1] < len(new)]] = True
    first, behind = np.flatnonzero(new), np.cumsum(new)
    place = np.empty(len(classes), np.intp)
    place[classes] = np.arange(len(classes))
    at = (behind - 1) * len(classes) + place[entries.label]
    sums = [np.zeros(len(first) * len(classes), np.int64) for _ in range(2)]
    for total, part in zip(sums, (entries.whole, entries.fraction), strict=True):
        if part.any():
            np.add.at(total, at, part)
    weight = sums[0].astype(np.float64)
    if sums[1].any():
        sums[0] += sums[1] >> FRACTION_BITS
        weight = sums[0] + (sums[1] & ((1 << FRACTION_BITS) - 1)) / (1 << FRACTION_BITS)
    greatest = np.maximum.reduceat(entries.greatest, first) if len(first) else entries.greatest
    parts = (
        numbers(entries.least[first]),
        numbers(greatest),
        weight.reshape(len(first), len(classes)),
    )
    bounds = np.concatenate([[0], behind])[np.concatenate([[0], ends])].tolist()
    return [Profile(*(part[a:b] for part in parts)) for a, b in itertools.pairwise(bounds)]


METHODS = ("mdl", "quantile", "width")
DEFAULT_BINS = 10
# Of equal widths only the extremes matter: a sketch of few cells keeps them.
_EXTREMES = 64, 64
# Entropies that differ by less than rounding are equal: then the lowest cut is taken.
_SAME = 1e-12


class Method(NamedTuple):
    """How to cut a column: "mdl", or into a number of bins by "quantile" or "width"."""

    kind: str
    bins: int = DEFAULT_BINS


Cuts = NDArray[np.float64]


def methods(
    discretize: Any, numeric: Sequence[str], others: Sequence[str] = (), loose: Sequence[str] = ()
) -> dict[str, Method | Cuts]:
    """Return how each numeric column is to be cut, and each other one that has cut points.

    `discretize` is "mdl", "quantile", "width", ("quantile", n) or ("width", n) for all columns; or
    one of these, or a list of cut points, by column name: columns that it does not name take "mdl".
    Of the `others`, which are categorical, the `loose` could be numbers as well (truth values,
    columns of nothing but nulls) and may have cut points.

    Raises SchemaError when a name is not that of a numeric column, or cut points are not ascending,
    and ValueError when a method is not known.
    """
    if not isinstance(discretize, Mapping):
        return dict.fromkeys(numeric, _method(discretize, "discretize"))
    asked = {name: _asked(name, discretize.get(name, "mdl")) for name in numeric}
    for name, given in discretize.items():
        if name in loose and not isinstance(how := _asked(name, given), Method):
            asked[name] = how
        elif name in others:
            raise SchemaError(
                f"discretize: column {name!r} is categorical; leave it out of `discretize`, or "
                "out of `categorical` and `domains` if it holds numbers"
            )
        elif name not in numeric:
            raise SchemaError(
                f"discretize: there is no column {name!r}; the numeric columns are {list(numeric)}"
                f"{meant_column(name, [*numeric, *others])}"
            )
    return asked


def _asked(name: str, given: Any) -> Method | Cuts:
    named = isinstance(given, str) or (
        isinstance(given, tuple) and any(isinstance(part, str) for part in given)
    )
    # A list is what a model file makes of a tuple.
    named |= isinstance(given, list) and given[:1] in [[kind] for kind in METHODS]
    return _method(given, f"discretize[{name!r}]") if named else checked_cuts(name, given)


def _method(given: Any, what: str) -> Method:
    kind: Any = given
    bins: Any = DEFAULT_BINS
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] in METHODS[1:]:
        kind, bins = given
    if not isinstance(kind, str) or kind not in METHODS:
        raise ValueError(
            f"{what}={given!r}: use 'mdl', 'quantile', 'width', ('quantile', n), ('width', n), or "
            "{column: one of these or a list of cut points}"
        )
    if not (is_whole(bins) and 2 <= bins <= 1 << 16):
        raise ValueError(f"{what}={given!r}: the bins must be a whole number from 2 to 65536")
    return Method(kind, int(bins))


class CutLearner:
    """Learns the cut points of several columns, each cut as `asked`, from one pass over their rows.

    Several threads may update at once: a column is held by one of them at a time, and no sum
    depends on the order of rows. Learners of different rows merge.
    """

    def __init__(self, asked: Mapping[str, Method]) -> None:
        self.asked = dict(asked)
        self.sketches = {
            name: ValueSketch(*_EXTREMES) if method.kind == "width" else ValueSketch()
            for name, method in asked.items()
        }
        self._locks = {name: threading.Lock() for name in asked}

    def update(
        self,
        columns: Sequence[NDArray[np.float64]],
        labels: NDArray[np.unsignedinteger],
        weight: NDArray[np.float64] | None,
        cells: float = math.inf,
    ) -> None:
        """Add rows: one array per column in the order of `asked`, class codes, weights.

        Weights are at most `GREATEST_WEIGHT`. `cells` are the rows x columns of the whole job:
        whether compiling pays.
        """
        labels, parts = labels.astype(np.uint16), split(weight, len(labels))
        for (name, sketch), values in zip(self.sketches.items(), columns, strict=True):
            with self._locks[name]:
                sketch.update(values, labels, parts, cells)

    def merge(self, other: CutLearner) -> None:
        """Add the rows of another learner."""
        for name, sketch in self.sketches.items():
            with self._locks[name]:
                sketch.merge(other.sketches[name])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the learner as named arrays, of which `take` makes it again."""
        found: dict[str, NDArray[Any]] = {}
        for i, sketch in enumerate(self.sketches.values()):
            entries, shift = sketch.state()
            found |= {f"{i}.{key}": array for key, array in entries._asdict().items()}
            found[f"{i}.shift"] = np.array([shift])
        return found

    def take(self, arrays: Mapping[str, NDArray[Any]], codes: NDArray[np.unsignedinteger]) -> None:
        """Add the rows of another learner, by its arrays; its classes have these codes here."""
        for i, sketch in enumerate(self.sketches.values()):
            entries = Entries(*(arrays[f"{i}.{key}"] for key in Entries._fields))
            label = codes.astype(np.uint16)[entries.label]
            sketch.take(entries._replace(label=label), int(arrays[f"{i}.shift"][0]))


def cuts_of(
    sketches: Sequence[ValueSketch],
    names: Sequence[str],
    hows: Sequence[Sequence[Method]],
    classes: NDArray[np.intp],
) -> list[list[Cuts]]:
    """Return the cut points of columns of these names, each by some methods of its own.

    `classes` are the class codes in sorted order. A sketch that was asked for by "width" knows no
    more than the extremes.
    """
    found = profiles(sketches, classes)
    jobs = min((sketch.job for sketch in sketches), default=math.inf)
    by_mdl = [at for at, some in enumerate(hows) if any(how.kind == "mdl" for how in some)]
    mdl = dict(zip(by_mdl, mdl_cuts_of([found[at] for at in by_mdl], jobs), strict=True))

    def points(at: int, how: Method) -> list[float]:
        match how.kind:
            case "mdl":
                return mdl[at]
            case "quantile":
                return quantile_cuts(found[at], how.bins)
            case _:
                return width_cuts(found[at], how.bins)

    return [
        [checked_cuts(name, points(at, how)) for how in some]
        for at, (name, some) in enumerate(zip(names, hows, strict=True))
    ]


def between(lower: float, upper: float) -> float:
    """Return the midpoint of two numbers; it is below the upper one even where they touch."""
    middle = (lower + upper) / 2 if math.isfinite(lower + upper) else lower / 2 + upper / 2
    return middle if lower <= middle < upper else lower


def mdl_cuts(profile: Profile, cells: float = math.inf) -> list[float]:
    """Return the cut points of a column as `mdl_cuts_of` finds those of several."""
    (cuts,) = mdl_cuts_of([profile], cells)
    return cuts


def mdl_cuts_of(profiles: Sequence[Profile], cells: float = math.inf) -> list[list[float]]:
    """Return the cut points that the minimum description length principle accepts, ascending.

    Columns are cut together, in rounds. `cells` are the rows x columns of the whole job: whether
    compiling pays.

    A range of N rows is cut where the class entropy within both sides is least, the lowest such
    cut if there are several, if the gain exceeds (log2(N - 1) + D)/N with D = log2(3^k - 2) -
    (k E - k1 E1 - k2 E2), entropies E in bits and k the classes that occur; then both sides
    likewise. N is the sum of weights (Fayyad, Irani 1993, Multi-interval discretization of
    continuous-valued attributes for classification learning, IJCAI, section 3).
    """
    found: list[list[float]] = [[] for _ in profiles]
    if not profiles:
        return found
    # Of each column the weights up to its first 0, 1, 2 ... values, one column behind the other.
    n_values = np.array([len(profile.least) for profile in profiles], np.int64)
    begin = np.cumsum(n_values + 1) - (n_values + 1)
    cumulated = np.zeros((profiles[0].weight.shape[1], int((n_values + 1).sum())))
    for profile, at, n in zip(profiles, begin.tolist(), n_values.tolist(), strict=True):
        np.cumsum(profile.weight.T, axis=1, out=cumulated[:, at + 1 : at + 1 + n])
    known = np.zeros(0)
    if cumulated.sum(axis=0).max() <= FEW_ROWS and (cumulated == np.floor(cumulated)).all():
        cumulated, known = cumulated.astype(np.int64), _x_log_x_of_counts()
    scatter_of_cuts = dispatch.load("fitting.cuts", cells).scatter_of_cuts
    of, first, last = np.arange(len(profiles)), begin, begin + n_values
    while len(able := np.flatnonzero(last - first >= 2)):
        of, first, last = of[able], first[able], last[able]
        scatter = scatter_of_cuts(cumulated, known, first, last)
        lengths = last - first - 1
        starts = np.cumsum(lengths) - lengths
        whole = cumulated[:, last] - cumulated[:, first]
        weight = whole.sum(axis=0).astype(np.float64)
        noise = _SAME * weight * np.log(np.maximum(weight, 1.0))
        least = np.minimum.reduceat(scatter, starts) + noise
        good = np.flatnonzero(scatter <= np.repeat(least, lengths))
        at = good[np.searchsorted(good, starts)]
        cut = first + (at - starts) + 1
        left = cumulated[:, cut] - cumulated[:, first]
        parts = np.stack([whole, left, whole - left], axis=1)
        some = _accepted(parts, scatter_of(parts, known), scatter[at], noise)
        of, first, cut, last = of[some], first[some], cut[some], last[some]
        for column, value in zip(of.tolist(), (cut - begin[of]).tolist(), strict=True):
            _, greatest, _ = profile = profiles[column]
            found[column].append(between(float(greatest[value - 1]), float(profile.least[value])))
        of = np.concatenate([of, of])
        first, last = np.concatenate([first, cut]), np.concatenate([cut, last])
    return [sorted(cuts) for cuts in found]


def _accepted(parts: NDArray[Any], scatter: Floats, cut: Floats, noise: Floats) -> NDArray[np.intp]:
    """Return which of n ranges are to be cut.

    parts    (n_classes, 3, n) class weights of each, and of what is left and right of the cut
    scatter  (3, n) N times the class entropy in nats of each
    cut      (n,) that of both sides together
    noise    (n,) what rounding may make of such numbers
    """
    some = np.flatnonzero(scatter[0] - cut > noise)
    parts, scatter, cut = parts[..., some], scatter[:, some], cut[some]
    k, total = np.add.reduce(parts != 0, axis=0), np.add.reduce(parts, axis=0)
    entropy = scatter / total / math.log(2)
    gain = (scatter[0] - cut) / total[0] / math.log(2)
    code = k[0] * math.log2(3) + np.log1p(-2 * 3.0 ** -k[0]) / math.log(2)  # log2(3^k - 2)
    entropies = k[0] * entropy[0] - k[1] * entropy[1] - k[2] * entropy[2]
    cost = np.log2(np.maximum(total[0] - 1, 1.0)) + code - entropies
    return np.asarray(some[gain > cost / total[0]])


@lru_cache(maxsize=1)
def _x_log_x_of_counts() -> Floats:
    """Return x ln x of all numbers that few rows can be."""
    return x_log_x(np.arange(FEW_ROWS + 1.0), np.zeros(0))


def quantile_cuts(profile: Profile, bins: int) -> list[float]:
    """Return the cut points of bins that hold equal shares of the rows, as far as values allow.

    Cut i stands behind the first value up to which there is at least a share i / bins of the
    weight, half way to the next one. Equal cuts are one, and none stands behind the last value.
    """
    cumulated = profile.weight.sum(axis=1).cumsum()
    if not len(cumulated):
        return []
    wanted = cumulated[-1] * np.arange(1, bins) / bins * (1 - _SAME)
    behind = np.searchsorted(cumulated, wanted, side="left").tolist()
    behind = sorted({i for i in behind if i < len(cumulated) - 1})
    return [between(float(profile.greatest[i]), float(profile.least[i + 1])) for i in behind]


def width_cuts(profile: Profile, bins: int) -> list[float]:
    """Return the cut points of bins of equal width between the least and the greatest value."""
    if not len(profile.least):
        return []
    low, high = float(profile.least[0]), float(profile.greatest[-1])
    steps = [i / bins for i in range(1, bins)]
    cuts = {low * (1 - step) + high * step for step in steps}
    return sorted(cut for cut in cuts if low <= cut < high)
