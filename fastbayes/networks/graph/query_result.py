"""What a query of a network answers: how probable each state of some nodes is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fastbayes.core.domains import array_of
from fastbayes.core.picks import free_name
from fastbayes.networks.graph.coded import Floats
from fastbayes.networks.graph.node_states import NodeStates

# Rows of an answer that are printed.
SHOWN = 20
# How each figure is printed.
FORMS = {"probability": ".6f", "mcse": ".2g", "ess": ".0f", "r_hat": ".3f"}


@dataclass(frozen=True, eq=False, repr=False)
class QueryResult:
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
        Monte-Carlo standard error of each probability: 0 where it is certain, NaN where it never
        changed. None of exact answers.
    ess
        Effective sample size of each probability; NaN where it never changed. None of exact
        answers.
    r_hat
        Rank-normalised split-R̂ of each probability: chains that agree have 1. NaN where it never
        changed, None of other methods than Gibbs sampling.

    Examples
    --------
    >>> answer = QueryResult(("rain",), (("no", "yes"),), np.array([0.75, 0.25]))
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
            {target: state}, or a number for the bin that it falls into; the targets that are not
            named are summed out.

        Returns
        -------
        float
            P(states | evidence).

        Raises
        ------
        ValueError
            When a name is no target, or a state is not one of its states.
        """
        at: list[Any] = [slice(None)] * len(self.targets)
        for name, state in states.items():
            if name not in self.targets:
                raise ValueError(f"{name!r} is not among the targets {list(self.targets)}")
            axis = self.targets.index(name)
            at[axis] = NodeStates(name, self.states[axis]).code(state)
        return float(self.probabilities[tuple(at)].sum())

    @property
    def table(self) -> pa.Table:
        """One row per joint state: a column for each target, and `probability`.

        Of estimates also `mcse`, `ess` and `r_hat`.
        """
        codes = np.indices(self.probabilities.shape).reshape(len(self.targets), -1)
        columns = [as_column(values) for values in self.states]
        found: dict[str, Any] = {
            str(name): column.take(pa.array(code))
            for name, column, code in zip(self.targets, columns, codes, strict=True)
        }
        for name, figures in self.figures.items():
            found[free_name(name, found)] = pa.array(np.ascontiguousarray(figures).ravel())
        return pa.table(found)

    @property
    def figures(self) -> dict[str, Floats]:
        """What is known of each joint state: `probability`, of estimates also `mcse` and others."""
        found = {name: getattr(self, name) for name in FORMS if name != "probability"}
        known = {name: values for name, values in found.items() if values is not None}
        return {"probability": self.probabilities, **known}

    def __str__(self) -> str:
        lines = [[*map(str, self.targets), *self.figures], *itertools.islice(self.rows(), SHOWN)]
        text = aligned(lines, len(self.targets))
        if self.probabilities.size > SHOWN:
            text.append(f"... and {self.probabilities.size - SHOWN:,} more")
        return "\n".join(text)

    def rows(self) -> Iterator[list[str]]:
        """Yield the joint states and what is known of each, as words."""
        flat = [(values.ravel(), FORMS[name]) for name, values in self.figures.items()]
        for row, states in enumerate(itertools.product(*self.states)):
            yield [*map(str, states), *(f"{values[row]:{form}}" for values, form in flat)]

    def __repr__(self) -> str:
        of = ", ".join(map(str, self.targets))
        return (
            f"<QueryResult: P({of} | evidence), {self.probabilities.size:,} states, {self.method}>"
        )


class QueryResults(Mapping[str, QueryResult]):
    """P(node | evidence) of several nodes, each by itself: a mapping from nodes to answers.

    Parameters
    ----------
    answers
        One for each node, all by the same method.
    log_evidence
        ln P(evidence) in nats; None where the method does not give it.

    Examples
    --------
    >>> rain = QueryResult(("rain",), (("no", "yes"),), np.array([0.75, 0.25]))
    >>> wet = QueryResult(("wet",), (("no", "yes"),), np.array([0.5, 0.5]))
    >>> answers = QueryResults([rain, wet])
    >>> answers["rain"].probability({"rain": "yes"})
    0.25
    >>> print(answers)
    node  state  probability
    rain  no        0.750000
    rain  yes       0.250000
    wet   no        0.500000
    wet   yes       0.500000
    """

    def __init__(self, answers: Iterable[QueryResult], log_evidence: float | None = None) -> None:
        self._answers = {answer.targets[0]: answer for answer in answers}
        self.log_evidence = log_evidence

    def __getitem__(self, node: str) -> QueryResult:
        return self._answers[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def table(self) -> pa.Table:
        """One row per state of each node: `node`, `state`, `probability`.

        Of estimates also `mcse`, `ess` and `r_hat`. States are text unless those of all nodes have
        one type.
        """
        states = [as_column(answer.states[0]) for answer in self.values()]
        if len({column.type for column in states}) > 1:
            states = [_as_text(answer.states[0]) for answer in self.values()]
        sizes = [answer.probabilities.size for answer in self.values()]
        number = pa.array(np.repeat(np.arange(len(self)), sizes))
        found: dict[str, Any] = {
            "node": as_column([*self]).take(number),
            "state": pa.chunked_array(states, None if states else pa.null()),
        }
        for name in self._figures:
            found[name] = np.concatenate(
                [np.empty(0), *(answer.figures[name] for answer in self.values())]
            )
        return pa.table(found)

    @property
    def _figures(self) -> list[str]:
        first = next(iter(self.values()), None)
        return [*first.figures] if first else ["probability"]

    def text(self, most: int | None = None) -> str:
        """Return a table of words: a line for each state of each node, or the first few of them."""
        rows = ([str(node), *row] for node, answer in self.items() for row in answer.rows())
        lines = aligned([["node", "state", *self._figures], *itertools.islice(rows, most)], 2)
        if left := sum(1 for _ in rows):
            lines.append(f"... and {left:,} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text(SHOWN)

    def __repr__(self) -> str:
        method = next((answer.method for answer in self.values()), "nothing asked")
        return f"<QueryResults: {len(self):,} nodes, {method}>"


def aligned(lines: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return lines of words as columns, so many of them at the left of their column."""
    width = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            word.ljust(n) if j < left else word.rjust(n)
            for j, (word, n) in enumerate(zip(line, width, strict=True))
        ).rstrip()
        for line in lines
    ]


def as_column(states: Sequence[Any]) -> pa.Array:
    """Return states as an Arrow array; as text where they are of several types.

    Raises OverflowError where a whole number does not fit in 64 bits, or not beside the others.
    """
    try:
        return array_of(states)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _as_text(states)


def _as_text(states: Sequence[Any]) -> pa.Array:
    return pa.array([None if state is None else str(state) for state in states], pa.string())
