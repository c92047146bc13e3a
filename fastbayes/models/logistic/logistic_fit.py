"""Fitting a logistic regression: the objective, where to begin, the minimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.iteration import Found
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Alignment
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.smoothing import check_finite
from fastbayes.models.logistic.information import ExpandedRows
from fastbayes.models.logistic.minimise import (
    Iterate,
    Recorder,
    absolute_penalty,
    by_scipy,
    descent,
    newton,
)
from fastbayes.scan.packed_rows import (
    OfBatch,
    PackedRows,
    Reading,
    RowsElsewhere,
    over_packed,
    read_rows,
)
from fastbayes.statistics.bundle import Statistics

# From coefficients to others of the same scores.
Projection = Callable[[Floats], Floats]

# Coefficients of which all second derivatives are kept, and cells that may be read for them.
MOST_KEPT, MOST_CELLS = 512, 2e8


@dataclass(frozen=True, eq=False)
class Memory:
    """The loss of earlier rows, as a quadratic around coefficients (Laplace's approximation).

    theta      (P, M) where the loss was looked at
    gradient   (P, M) its derivatives there
    curvature  (P, M) its second derivatives there, or all of them, (P M, P M)
    loss       the loss there
    weight     sum of the weights of the rows
    """

    theta: Floats
    gradient: Floats
    curvature: Floats
    loss: float
    weight: float

    @property
    def full(self) -> bool:
        """Whether all second derivatives are kept, not only those of each coefficient by itself."""
        return self.curvature.shape != self.theta.shape

    def product(self, direction: Floats) -> Floats:
        """Return the second derivatives times a direction."""
        if not self.full:
            return np.asarray(self.curvature * direction)
        return np.asarray((self.curvature @ direction.ravel()).reshape(direction.shape))

    def value_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the quadratic and its gradient."""
        away = theta - self.theta
        bent = self.product(away)
        value = self.loss + float((self.gradient * away).sum()) + float((away * bent).sum()) / 2
        return value, self.gradient + bent

    def diagonal(self) -> Floats:
        """Return the second derivatives of each coefficient by itself, (P, M)."""
        if not self.full:
            return self.curvature
        return np.ascontiguousarray(np.diag(self.curvature)).reshape(self.theta.shape)

    def moved(self, rows: NDArray[np.int64]) -> Memory:
        """Return the same of a layout that has more rows.

        rows  (P,) the row that each had, -1 for a new one: of it nothing is known.
        """
        kept = rows >= 0

        def spread(array: Floats) -> Floats:
            out = np.zeros((len(rows), array.shape[1]))
            out[kept] = array[rows[kept]]
            return out

        if not self.full:
            curvature = spread(self.curvature)
        else:
            m = self.theta.shape[1]
            cells = np.zeros((len(rows), m, len(rows), m))
            before = self.curvature.reshape(len(self.theta), m, len(self.theta), m)
            at, of = np.flatnonzero(kept), rows[kept]
            cells[at[:, None], :, at] = before[of[:, None], :, of]
            curvature = cells.reshape(len(rows) * m, len(rows) * m)
        return Memory(spread(self.theta), spread(self.gradient), curvature, self.loss, self.weight)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return named arrays from which `from_arrays` rebuilds."""
        sums = np.array([self.loss, self.weight])
        return {"theta": self.theta, "gradient": self.gradient, "curvature": self.curvature,
                "sums": sums}  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.float64]]) -> Memory:
        """Return what `arrays` described.

        Raises ValueError when they do not fit together.
        """
        theta, gradient, curvature = (arrays[n] for n in ("theta", "gradient", "curvature"))
        fits = curvature.shape in (theta.shape, (theta.size, theta.size))
        if not (fits and gradient.shape == theta.shape and len(arrays["sums"]) == 2):
            raise ValueError("what is remembered of earlier rows does not fit together")
        return cls(theta, gradient, curvature, *arrays["sums"].tolist())


def rows_before(before: Layout, after: Layout, to: Alignment) -> NDArray[np.int64]:
    """Return the row that each row of a layout had before more values were seen, -1 for new ones.

    before, after  The layouts; pairs are of the same columns.
    to             Where values and numbers of the schema after stand in the one before.
    """
    found = np.full(after.n_rows, -1, np.int64)
    found[0] = 0
    old, new = before.rows, after.rows
    codes = []
    for j, (place, values) in enumerate(zip(to.categorical, to.values, strict=True)):
        size, had = int(after.sizes[j]), int(before.sizes[place])
        code = np.full(size, -1, np.int64)
        code[: len(values)] = values
        known = int((values >= 0).sum())
        if size > len(values) and had > known:
            code[-1] = had - 1  # missing is a value, the last one
        codes.append(code)
        at = slice(new.values[j], new.values[j] + size)
        found[at] = np.where(code >= 0, old.values[place] + code, -1)
    numeric = new.numeric + np.arange(after.n_numeric)
    found[numeric] = np.where(to.numeric >= 0, old.numeric + to.numeric, -1)
    for i, (a, b) in enumerate(after.pairs):
        v, w = codes[a][:, None], codes[b][None, :]
        width = before.sizes[before.pairs[i][1]]
        cells = np.where((v >= 0) & (w >= 0), old.pairs[i] + v * width + w, -1)
        found[new.pairs[i] : new.pairs[i] + cells.size] = cells.ravel()
    return found


class Penalised:
    """Σ w_r loss_r + ½ Σ penalty theta² of rows, and what is remembered of earlier ones.

    penalty  (P, 1) of squared coefficients.
    """

    def __init__(self, rows: PackedRows, penalty: Floats, memory: Memory | None = None) -> None:
        self.rows, self.penalty, self.memory = rows, penalty, memory
        self.total = rows.total + (0.0 if memory is None else memory.weight)

    @property
    def passes(self) -> float:
        """Times that the rows have been read."""
        return self.rows.passes

    def value_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient."""
        loss, gradient = self.rows.sums(self.rows.gradient.loss_gradient(theta))
        value = loss + float((self.penalty * theta * theta).sum()) / 2
        gradient = gradient + self.penalty * theta
        if self.memory is not None:
            before, pull = self.memory.value_gradient(theta)
            value, gradient = value + before, gradient + pull
        return value, gradient

    def hessian_product(self, theta: Floats) -> Callable[[Floats], Floats]:
        """Return the function from a direction to the Hessian's product with it."""
        hessian = self.rows.hessian(theta)
        whole = None if (matrix := hessian.matrix()) is None else self.rows.sums(matrix)

        def product(direction: Floats) -> Floats:
            bent: Floats
            if whole is None:
                bent = self.rows.sums(hessian.product(direction))
            else:  # by no BLAS, whose threads take longer to begin
                bent = np.einsum("ij,j->i", whole, direction.ravel()).reshape(direction.shape)
            bent = bent + self.penalty * direction
            return bent if self.memory is None else bent + self.memory.product(direction)

        return product

    def curvature(self, theta: Floats) -> Floats:
        """Return the diagonal of the Hessian."""
        found: Floats = self.rows.sums(self.rows.gradient.curvature(theta)) + self.penalty
        return found if self.memory is None else found + self.memory.diagonal()


def remembered(rows: PackedRows, theta: Floats, memory: Memory | None) -> Memory:
    """Return the loss of rows as a quadratic around some coefficients, added to what was known.

    All second derivatives are kept where the coefficients are few and the rows not too many;
    elsewhere those of each coefficient by itself.
    """
    loss, gradient = rows.sums(rows.gradient.loss_gradient(theta))
    p, m = theta.shape
    size = p * m
    if (
        (memory is None or memory.full)
        and size <= MOST_KEPT
        and size * p * rows.n_rows <= MOST_CELLS
    ):
        hessian = rows.hessian(theta)
        if (matrix := hessian.matrix(size)) is not None:
            curvature = rows.sums(matrix)
        else:
            own = max(1, m - 1)  # what all classes share bends nothing: the last one follows
            units = np.eye(size).reshape(p, m, p, m)[:, :own].reshape(p * own, p, m)
            found = np.array([rows.sums(hessian.product(unit)) for unit in units])
            found = found.reshape(p, own, size)
            if m > 1:
                found = np.concatenate([found, -found.sum(axis=1, keepdims=True)], axis=1)
            curvature = found.reshape(size, size)
            curvature = (curvature + curvature.T) / 2
    else:
        curvature = rows.sums(rows.gradient.curvature(theta))
    if memory is None:
        return Memory(theta, gradient, curvature, loss, rows.total)
    before, pull = memory.value_gradient(theta)
    earlier = memory.curvature
    if earlier.shape != curvature.shape:
        if memory.full:
            curvature = np.diag(curvature.ravel())
        else:
            earlier = memory.diagonal()
    return Memory(
        theta,
        gradient + pull,
        curvature + earlier,
        loss + before,
        rows.total + memory.weight,
    )


# Rows of the larger sample, for each coefficient and at least; it must be a quarter of all or less,
# and the larger the more there are: a pass over all may be a scan.
SAMPLED, LEAST_SAMPLE, STEP, MOST_STEP = 64, 1 << 14, 4, 48
# The smaller one is this share of the larger.
NESTED = 8
# How far the gradient of a sample is worth taking down, where that of all rows then differs, and
# steps for it at most.
LOOSE, MOST_LOOSE = 0.02, 30
# Least variance within the classes, of the overall one, with which naive Bayes is a beginning:
# rows that are surer than sure have no curvature.
LEAST_VARIANCE = 0.02
# Logarithm of the share of a class that has no row: what is left of it pulls at nothing.
NEVER = -22.0
# Halvings of what naive Bayes says of the columns, at most.
MOST_HALVINGS = 6
# A coefficient whose curvature is this share of that at even odds has run away.
RUN_AWAY = 1e-5
# A squared coefficient whose penalty is so many times the weight of the rows is 0, or nearly.
OVERWHELMED = 1e6
# Penalties are no larger, so that their products stay finite.
MOST_PENALTY = 1e280


def layout_of(
    stats: Statistics,
    pairs: Sequence[tuple[int, int]] = (),
    before: tuple[Layout, NDArray[np.int64]] | None = None,
) -> Layout:
    """Return where the coefficients of counted rows stand.

    pairs   Places of the categorical columns whose values interact.
    before  An earlier layout, and where it had each numeric column that it knew a value of, else
            -1: centers and scales stay.

    A missing value that is a value of its own, and occurs, is the last one of its column.
    """
    schema, moments = stats.schema, stats.moments
    sizes = np.array([f.size for f in schema.categorical], np.int64)
    if schema.missing == "category":
        sizes += (stats.values.missing != 0).any(axis=1)
    count = moments.count.sum(axis=1)
    share = moments.count / np.maximum(count, 1e-300)[:, None]
    first = moments.mean[:, :1]
    # Around a number near all of them no digits are lost.
    center = first[:, 0] + (share * ((moments.mean - first) + moments.rest)).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = (moments.mean - center[:, None]) + moments.rest
        scatter = (moments.scatter + moments.count * apart**2).sum(axis=1)
    check_finite(scatter, [feature.name for feature in schema.numeric])
    scale = np.sqrt(scatter / np.maximum(count, 1e-300))
    # What varies by rounding only is constant.
    scale = np.where(scale > 1e-14 * np.abs(center), scale, 1.0)
    center, scale = np.where(count > 0, center, 0.0), np.where(count > 0, scale, 1.0)
    if before is not None:
        layout, place = before
        known = place >= 0
        center[known], scale[known] = layout.center[place[known]], layout.scale[place[known]]
    return Layout.of(sizes, len(schema.classes), center=center, scale=scale, pairs=pairs)


def penalty_of(layout: Layout, strength: float, power: int, *, standardize: bool) -> Floats:
    """Return what each coefficient's `power` is weighed by, (P, 1), in the layout's units.

    The penalty is of coefficients in these, or in the units of the columns.
    """
    found = np.full((layout.n_rows, 1), strength)
    found[layout.rows.intercept] = 0.0
    if not standardize:
        with np.errstate(over="ignore"):
            found[layout.numeric, 0] /= np.maximum(layout.scale**power, 1e-300)
    return np.minimum(found, MOST_PENALTY)


def naive_bayes_start(stats: Statistics, layout: Layout, class_weight: Floats | None) -> Floats:
    """Return the coefficients that naive Bayes with shared variances has, (P, M)."""
    values, moments = stats.values, stats.moments
    weight = np.ones(len(values.class_counts)) if class_weight is None else class_weight
    counts = values.class_counts * weight
    theta = np.zeros((layout.n_rows, len(counts)))
    theta[0] = _logs((counts + 1) / (counts.sum() + len(counts)), counts)
    for j, (at, size) in enumerate(zip(layout.rows.values, layout.sizes, strict=True)):
        here = values.counts[values.offsets[j] : values.offsets[j] + size] * weight + 1.0
        theta[at : at + size] = np.log(here / here.sum(axis=0))
    n = moments.count * weight
    variance = (moments.scatter * weight).sum(axis=1) / np.maximum(n.sum(axis=1), 1e-300)
    variance = np.maximum(variance / layout.scale**2, LEAST_VARIANCE)
    apart = ((moments.mean - layout.center[:, None]) + moments.rest) / layout.scale[:, None]
    apart = np.where(moments.count > 0, apart, 0.0)
    theta[layout.numeric] = apart / variance[:, None]
    theta[0] -= (apart**2 / variance[:, None]).sum(axis=0) / 2
    if layout.n_outputs == 1:
        return np.ascontiguousarray(theta[:, 1:] - theta[:, :1])
    return theta


def prior_start(stats: Statistics, layout: Layout, class_weight: Floats | None) -> Floats:
    """Return the coefficients that say the classes' shares of every row, (P, M)."""
    theta = np.zeros((layout.n_rows, layout.n_outputs))
    counts = stats.values.class_counts * (1.0 if class_weight is None else class_weight)
    shares = _logs(counts + 1.0, counts)
    theta[0] = shares[1] - shares[0] if layout.n_outputs == 1 else shares - shares.mean()
    return theta


def _logs(shares: Floats, counts: Floats) -> Floats:
    """Return the logarithms of classes' shares, next to nothing where there are no rows.

    A class without rows, as there may be where a fold is left out, has its best intercept at minus
    infinity: Newton's steps would take it there by one each.
    """
    return np.where(counts > 0, np.log(shares), NEVER)


def drawn_back(
    objective: Penalised, theta: Floats, base: Floats, absolute: Floats | None
) -> Floats:
    """Return coefficients drawn halfway to others as long as that lowers the objective.

    Naive Bayes counts what columns have in common once for each: it is surer than it should be.

    absolute  Weights of the coefficients' absolute values, which are part of the objective.
    """

    def value_at(theta: Floats) -> float:
        return objective.value_gradient(theta)[0] + absolute_penalty(theta, absolute)

    value, step = value_at(theta), theta - base
    for _ in range(MOST_HALVINGS):
        step = step / 2
        reached = value_at(base + step)
        if not reached < value:
            break
        theta, value = base + step, reached
    return theta


def _mean(part: Floats) -> Floats:
    """Return the mean of each row, (n, 1)."""
    return np.asarray(part.mean(axis=1, keepdims=True))


def _median(part: Floats) -> Floats:
    """Return the lower median of each row, (n, 1): one of the numbers, which then is 0."""
    middle = (part.shape[1] - 1) // 2
    return np.take(np.partition(part, middle, axis=1), [middle], axis=1)


def _means(part: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Return the mean of each run of so many rows, (n_runs, M)."""
    return np.asarray(np.add.reduceat(part, np.cumsum(sizes) - sizes) / sizes[:, None])


def _medians(part: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Return the lower median of each run of so many rows, (n_runs, M)."""
    run, middle = (
        np.repeat(np.arange(len(sizes)), sizes),
        np.cumsum(sizes) - sizes + (sizes - 1) // 2,
    )
    ascending = [column[np.lexsort((column, run))] for column in part.T]
    return np.stack(ascending, axis=1)[middle]


def centred(stats: Statistics, layout: Layout, power: int) -> Projection:
    """Return the function to coefficients of the same scores, and no larger penalty.

    What all classes share is nothing to any posterior. What all values of a column share, the
    intercept can say, where the column is never missing. A sum of squares is least around the
    mean, of absolute values around the median: then one of them is 0.

    power   2 of squares, 1 of absolute values.
    """
    values = stats.values
    middle, of_columns = (_mean, _means) if power == 2 else (_median, _medians)
    shifted = []
    for j, (at, size) in enumerate(zip(layout.rows.values, layout.sizes, strict=True)):
        here = values.counts[values.offsets[j] : values.offsets[j] + size]
        seen = np.flatnonzero((here != 0).any(axis=1))
        # A missing value has no row, unless it is a value.
        if len(seen) and here.sum() >= values.class_counts.sum() * (1 - 1e-12):
            shifted.append(at + seen)
    rows = np.concatenate(shifted) if shifted else np.zeros(0, np.int64)
    sizes = np.array([len(some) for some in shifted], np.int64)

    def project(theta: Floats) -> Floats:
        theta = theta.copy()
        if layout.n_outputs > 1:
            theta[1:] -= middle(theta[1:])
        if len(sizes):
            shared = of_columns(theta[rows], sizes)
            theta[rows] -= np.repeat(shared, sizes, axis=0)
            theta[0] += shared.sum(axis=0)
        if layout.n_outputs > 1:
            theta[1:] -= middle(theta[1:])
            theta[0] -= theta[0].mean()
        return theta

    return project


def intercepts_centred(theta: Floats, layout: Layout) -> Floats:
    """Return coefficients whose intercepts, in the units of the columns, sum to 0 over classes."""
    theta = theta.copy()
    if layout.n_outputs > 1:
        intercept = theta[0] - (layout.center / layout.scale) @ theta[layout.numeric]
        theta[0] -= intercept.mean()
    return theta


def steps_of_samples(n_rows: int, layout: Layout) -> tuple[int, ...]:
    """Return of how many rows each sample has one, the sparsest first; none where rows are few.

    No room decides it: with other samples the steps, and the last digits, would be others.
    """
    wanted = max(SAMPLED * layout.n_rows * layout.n_outputs, LEAST_SAMPLE, n_rows // MOST_STEP)
    step = n_rows // wanted
    return (step * NESTED, step) if step >= STEP else ()


def solve(
    model: Any,
    reading: Reading,
    n_rows: int,
    stats: Statistics,
    theta: Floats,
    memory: Memory | None,
    base: Floats | None = None,
    *,
    remember: bool = True,
) -> tuple[Found[Floats], Memory | None, bool]:
    """Return where a fit ended, the rows as a quadratic, and whether classes were separable.

    Separable: all rows, or some of them, can be told apart without error.

    n_rows   How many there are, more or less.
    stats    Counts of these and of all earlier rows.
    theta    (P, M) where to begin.
    base     To which the beginning may be drawn back; None where it stays as it is.
    remember Whether rows may follow these, for which they are remembered.
    """
    layout = reading.layout
    steps = steps_of_samples(n_rows, layout) if model.solver == "newton-cg" else ()
    *samples, rows = read_rows(reading, n_rows, steps)
    if isinstance(rows, RowsElsewhere) and ExpandedRows.need(theta.size):
        rows = ExpandedRows.like(rows, ahead=model.solver == "newton-cg")
    l1, strength = model._penalty == "l1", 0.0 if model._penalty is None else 1.0 / model.C
    given = {"standardize": model.standardize}
    squared = penalty_of(layout, 0.0 if l1 else strength, 2, **given)
    absolute = penalty_of(layout, strength, 1, **given) + np.zeros_like(theta) if l1 else None
    project: Projection = centred(stats, layout, 1 if l1 else 2) if memory is None else np.copy
    theta = project(theta)
    # What a penalty overwhelms is 0: elsewhere the objective would be nothing but that penalty.
    theta = np.where(squared > OVERWHELMED * rows.total, 0.0, theta)
    parts = [Penalised(part, squared, memory) for part in samples]
    whole = Penalised(rows, squared, memory)
    if base is not None:
        theta = project(drawn_back(parts[0] if parts else whole, theta, project(base), absolute))
    theta, trace = _of_samples(parts, rows.n_rows, theta, absolute, project, model)
    options: dict[str, Any] = {
        "tol": float(model.tol),
        "max_iter": int(model.max_iter),
        "what": f"solver={model.solver!r}",
    }
    if model.solver == "newton-cg":
        options["recorder"] = Recorder(whole, before=spent_on(trace))
        if parts and absolute is None:
            options |= {"sample": parts[-1], "share": samples[-1].n_rows / max(rows.n_rows, 1)}
        found = newton(whole, theta, absolute=absolute, project=project, **options)
    elif model.solver == "gradient":
        found = descent(whole, theta, rate=model.learning_rate, **options)
    else:
        found = by_scipy(whole, theta, model.solver, **options)
    theta = intercepts_centred(project(found.point), layout)
    separable = model._penalty is None and memory is None and runs_away(rows, theta)
    if separable:
        found = replace(found, converged=False)
    found = replace(found, point=theta, trace=np.concatenate([trace, found.trace]))
    after = remembered(samples[-1] if samples else rows, theta, memory) if remember else None
    if model.solver != "newton-cg":
        # These ended before the coefficients were centred, which lowers the penalty.
        found = replace(found, loss=whole.value_gradient(theta)[0])
    return found, after, separable


def _of_samples(
    parts: Sequence[Penalised],
    n_rows: int,
    theta: Floats,
    absolute: Floats | None,
    project: Projection,
    model: Any,
) -> tuple[Floats, Floats]:
    """Return where samples lead to, one after the other, and the points on the way."""
    trace = np.zeros((0, len(Iterate._fields)))
    for part in parts:
        share = part.rows.n_rows / max(n_rows, 1)
        found = newton(
            part,
            theta,
            tol=model.tol,
            max_iter=min(model.max_iter, MOST_LOOSE),
            ratio=LOOSE,
            absolute=absolute,
            project=project,
            recorder=Recorder(part, share),
        )
        theta, more = found.point, found.trace
        # One pass over a sample is a share of one over all rows.
        more[:, PASSES] = spent_on(trace) + share * more[:, PASSES]
        trace = np.concatenate([trace, more])
    return theta, trace


PASSES = Iterate._fields.index("passes")


def spent_on(trace: Floats) -> float:
    """Return the passes over all rows that a trace took."""
    return float(trace[-1, PASSES]) if len(trace) else 0.0


class Misjudged(NamedTuple):
    """A pass over rows, wherever they are, that counts those whose own class is not the likeliest.

    theta  (P, M) coefficients
    """

    theta: Floats

    def of(self, gradient: Any) -> OfBatch:
        """Return the pass where the rows are."""
        return over_packed(gradient, self.over(gradient))

    def over(self, gradient: Any) -> Callable[[Any], float]:
        """Return the pass over packed rows."""
        margins = gradient.margins(self.theta)

        def run(packed: Any) -> float:
            m, n = margins(packed), packed.n_rows
            classes, weight = packed.classes[:n], packed.weight
            if m.shape[1] == 1:
                short = m[:, 0] * (2.0 * classes - 1) <= 0
            else:
                own = m[np.arange(n), classes]
                m[np.arange(n), classes] = -np.inf
                short = own <= m.max(axis=1)
            weighted = weight is not None and len(weight) > 0
            return float((short & (weight[:n] > 0)).sum() if weighted else short.sum())

        return run


def runs_away(rows: PackedRows, theta: Floats) -> bool:
    """Return whether a larger margin would make the loss of some rows ever smaller.

    All rows are right, or a coefficient is where its rows have hardly any curvature left.
    """
    misjudged = Misjudged(theta)
    if isinstance(rows, RowsElsewhere):
        wrong = rows.passed(misjudged)
    else:
        wrong = rows.sums(misjudged.over(rows.gradient))
    if not wrong:
        return True
    bent = rows.sums(rows.gradient.curvature(theta))
    even = rows.sums(rows.gradient.curvature(np.zeros_like(theta)))
    return bool(((even > 0) & (bent < RUN_AWAY * even)).any())
