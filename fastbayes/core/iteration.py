"""The loop of every fit that iterates: it keeps the best point and the trace, and says how it ends.

A method is a generator: it yields the points that it reaches, the first of them where it begins,
and returns why it gives up, or nothing where its last point is as good as any. It neither counts
its steps nor keeps the best of them: `converged` does. `squarem` is the method of fits whose step
is a map of distributions, as that of expectation maximisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import ConvergenceWarning, warn
from fastbayes.core.numbers import check_whole, is_number

Floats = NDArray[np.float64]
T = TypeVar("T")

NOT_ENOUGH = "raise `max_iter`, or `tol`"


def check_iteration(tol: Any, max_iter: Any, name: str = "tol") -> None:
    """Raise ValueError where a bound of the error, or of steps, cannot be used."""
    if not (is_number(tol) and 0 < tol < math.inf):
        raise ValueError(f"{name}={tol!r}: use a finite number > 0")
    check_whole("max_iter", max_iter, 1)


class Step(NamedTuple, Generic[T]):
    """A point that a method reached.

    point  parameters
    loss   what is minimised, there
    error  how far it may be from the end, in units of `tol`
    note   what the trace keeps of it
    done   whether it is the end
    """

    point: T
    loss: float
    error: float
    note: Any
    done: bool


Steps = Generator[Step[T], None, str]


@dataclass(frozen=True, eq=False)
class Convergence:
    """How a fit went; by default one that has a closed form.

    converged  whether the method got where `tol` says
    n_iter     steps
    trace      (n_iter + 1, ...) of each point, the first of them where the method began; (0,)
               without a method
    error      how far the parameters may be from the end, in units of `tol`
    reason     that it did not converge, and the remedy
    """

    converged: bool = True
    n_iter: int = 1
    trace: Floats = field(default_factory=lambda: np.zeros(0))
    error: float = 0.0
    reason: str = ""

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a fitted model."""
        return {"converged_": self.converged, "n_iter_": self.n_iter, "trace_": self.trace}

    def warn(self) -> None:
        """Warn where the fit did not converge."""
        if self.reason:
            warn(self.reason, ConvergenceWarning)

    def state(self) -> list[Any]:
        """Return what `of_state` rebuilds it from, for the header of a file."""
        return [self.converged, self.n_iter, self.trace.tolist()]

    @classmethod
    def of_state(cls, state: Any) -> Self:
        """Return what `state` described; raises ValueError where that is no fit."""
        done, n_iter, trace = state
        if any(type(v) is not kind for v, kind in ((done, bool), (n_iter, int), (trace, list))):
            raise ValueError("nothing says how the fit converged")
        notes = np.array(trace, np.float64)
        if notes.shape not in ((0,), (n_iter + 1,)) or np.isnan(notes).any():
            raise ValueError(f"a fit of {n_iter} steps has a trace of shape {notes.shape}")
        return cls(done, n_iter, notes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Found(Convergence, Generic[T]):
    """Where a fit ended.

    point  parameters: the last ones of a fit that converged, else the best ones seen
    loss   what was minimised, there
    """

    point: T
    loss: float


def converged(steps: Steps[T], *, tol: float, max_iter: int, what: str, measure: str) -> Found[T]:
    """Return where the steps of a method lead to, after `max_iter` of them at most.

    steps     Of the method, which ends with one that is done.
    tol       As the method has it, for the message.
    max_iter  Steps at most.
    what      What is fitted, for the message.
    measure   What `tol` is a bound of, for the message.
    """
    step = best = next(steps)
    trace, why, done = [best.note], NOT_ENOUGH, best.done
    while not done and len(trace) <= max_iter:
        try:
            step = next(steps)
        except StopIteration as end:
            why = str(end.value)
            done = not why
            break
        trace.append(step.note)
        done = step.done
        if step.loss <= best.loss:
            best = step
    steps.close()
    best = step if done else best
    n_iter = len(trace) - 1
    reason = (
        f"{what} did not converge in {n_iter} steps: {measure} is {best.error:.3g}, tol={tol:g}; "
        f"{why}"
    )
    return Found(
        point=best.point,
        loss=best.loss,
        converged=done,
        n_iter=n_iter,
        trace=np.array(trace, np.float64),
        error=best.error,
        reason="" if done else reason,
    )


def slowest(fits: Sequence[Convergence]) -> Convergence:
    """Return the convergence of the fit that is farthest from its end, of those with most steps."""
    return max(fits, key=lambda fit: (not fit.converged, fit.n_iter), default=Convergence())


# Sums of log likelihoods are off by some units in the last place: smaller differences do not count.
NOISE = 64 * 2.0**-52


Distributions = Sequence[Floats]


def squarem(
    step: Callable[[Distributions], tuple[Distributions, float]], start: Distributions, tol: float
) -> Steps[Distributions]:
    """Yield the points of an accelerated ascent.

    step   From distributions, which are the last axes of arrays, to better ones, and the log
           likelihood of those that were given: one step of expectation maximisation.
    start  Where to begin.
    tol    Stop where a plain step changes no probability by more than this; it is taken, too.

    Two plain steps r = F(x) - x and v = F(F(x)) - F(x) - r, a = |r| / |v|, are followed by a leap
    to ln x + 2 a r + a^2 v, with r and v of ln x: in logarithms it never leads out of the simplex.
    One that lowers the likelihood is replaced by the second plain step. A step yields one point,
    and takes one call of `step`: where the leap was in vain, the point before it once more.

    References
    ----------
    Varadhan, Roland (2008), Simple and globally convergent methods for accelerating the convergence
    of any EM algorithm, Scandinavian Journal of Statistics 35, scheme S3.
    """

    def point(at: Distributions, after: Distributions, value: float) -> Step[Distributions]:
        error = max(
            (float(np.abs(b - a).max(initial=0.0)) for a, b in zip(at, after, strict=True)),
            default=0.0,
        )
        done = error <= tol
        return Step(after if done else at, -value, error, value, done)

    at = start
    after, value = step(at)
    yield point(at, after, value)
    best = value
    while True:
        second, value = step(after)
        plain = point(after, second, value)
        yield plain
        best = max(best, value)
        length = _length(at, after, second)
        begin, at, after = at, after, second
        if length > 1.0:
            tried = [_leap(*parts, length) for parts in zip(begin, at, after, strict=True)]
            beyond, there = step(tried)
            good = there >= best - NOISE * abs(best)
            if good:
                at, after, best = tried, beyond, max(best, there)
            yield point(at, after, there) if good else plain


def _length(begin: Distributions, first: Distributions, second: Distributions) -> float:
    """Return how many plain steps a leap is worth, by scheme S3; 1 where they do not shrink."""
    moved = bent = 0.0
    for a, b, c in zip(begin, first, second, strict=True):
        moved += float(((b - a) ** 2).sum())
        bent += float(((c - 2 * b + a) ** 2).sum())
    return math.sqrt(moved / bent) if bent > 0 else 1.0


def _leap(begin: Floats, first: Floats, second: Floats, length: float) -> Floats:
    """Return distributions that so long a leap leads to; what is 0 stays so, and nothing else."""
    open_ = (begin > 0) & (first > 0) & (second > 0)
    a, b, c = (np.log(np.where(open_, p, 1.0)) for p in (begin, first, second))
    far = np.where(open_, a + 2 * length * (b - a) + length**2 * (c - 2 * b + a), -np.inf)
    top = far.max(axis=-1, keepdims=True)
    far = np.exp(far - np.where(np.isneginf(top), 0.0, top))
    far = np.where(open_, np.maximum(far, np.finfo(np.float64).tiny), 0.0)
    total = far.sum(axis=-1, keepdims=True)
    return np.where(total > 0, far / np.where(total > 0, total, 1.0), second)
