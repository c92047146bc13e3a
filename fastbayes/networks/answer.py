"""What a query of a network answers: how probable each joint state of some nodes is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Rows of an answer that are printed.
SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """P(targets | evidence), exact or estimated from random draws.

    Parameters
    ----------
    targets
        Names of the nodes asked for.
    states
        States of each of them.
    probabilities
        (states of each target ...); they sum to 1.
    log_evidence
        ln P(evidence) in nats; None where the method does not give it.
    method
        "exact", "gibbs" or "likelihood_weighting".
    mcse
        Monte-Carlo standard error of each probability; None of exact answers.
    ess
        Effective sample size of each probability; None of exact answers.
    r_hat
        Split-R̂ of each probability: chains that agree have 1. None of exact answers.

    Examples
    --------
    >>> answer = Answer(("rain",), (("no", "yes"),), np.array([0.75, 0.25]))
    >>> answer.probability({"rain": "yes"})
    0.25
    >>> print(answer)
    rain  probability
    no       0.750000
    yes      0.250000
    """

    targets: tuple[str, ...]
    states: tuple[tuple[Any, ...], ...]
    probabilities: Floats
    log_evidence: float | None = None
    method: str = "exact"
    mcse: Floats | None = None
    ess: Floats | None = None
    r_hat: Floats | None = None

    def probability(self, states: Mapping[str, Any]) -> float:
        """Return the probability of one state of every target, or of some of them.

        Parameters
        ----------
        states
            {target: state}; the targets that are not named are summed out.

        Returns
        -------
        float
            P(states | evidence).

        Raises
        ------
        ValueError
            When a name is no target, or a state is none of its states.
        """
        at: list[Any] = [slice(None)] * len(self.targets)
        for name, state in states.items():
            if name not in self.targets:
                raise ValueError(f"{name!r} is not among the targets {list(self.targets)}")
            axis = self.targets.index(name)
            if state not in self.states[axis]:
                known = list(self.states[axis])
                raise ValueError(f"node {name!r}: {state!r} is none of its states {known}")
            at[axis] = self.states[axis].index(state)
        return float(self.probabilities[tuple(at)].sum())

    @property
    def table(self) -> pa.Table:
        """One row per joint state: a column for each target, and `probability`.

        Of estimates also `mcse`, `ess` and `r_hat`.
        """
        codes = np.indices(self.probabilities.shape).reshape(len(self.targets), -1)
        columns = [as_column(values) for values in self.states]
        found: dict[str, Any] = {
            name: column.take(pa.array(code))
            for name, column, code in zip(self.targets, columns, codes, strict=True)
        }
        for name in ("probability", "mcse", "ess", "r_hat"):
            figures = self.probabilities if name == "probability" else getattr(self, name)
            if figures is not None:
                while name in found:
                    name += "_"
                found[name] = pa.array(np.ascontiguousarray(figures).ravel())
        return pa.table(found)

    def __str__(self) -> str:
        figures = {"probability": (self.probabilities, ".6f")}
        for name, form in (("mcse", ".2g"), ("ess", ".0f"), ("r_hat", ".3f")):
            if getattr(self, name) is not None:
                figures[name] = getattr(self, name), form
        lines = [[*self.targets, *figures]]
        joint = itertools.product(*self.states)
        flat = [(values.ravel(), form) for values, form in figures.values()]
        for row, states in enumerate(itertools.islice(joint, SHOWN)):
            lines.append([*map(str, states), *(f"{values[row]:{form}}" for values, form in flat)])
        width = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = len(self.targets)
        text = [
            "  ".join(
                word.ljust(n) if j < left else word.rjust(n)
                for j, (word, n) in enumerate(zip(line, width, strict=True))
            ).rstrip()
            for line in lines
        ]
        if self.probabilities.size > SHOWN:
            text.append(f"... and {self.probabilities.size - SHOWN:,} more")
        return "\n".join(text)

    def __repr__(self) -> str:
        of = ", ".join(map(str, self.targets))
        return f"<Answer: P({of} | evidence), {self.probabilities.size:,} states, {self.method}>"


def as_column(states: Sequence[Any]) -> pa.Array:
    """Return states as an Arrow array; as text where they are of several types."""
    try:
        return pa.array(states)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if state is None else str(state) for state in states])
