"""The states of a node, and which of them is meant by a value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fastbayes.core.domains import cut_points
from fastbayes.core.suggestions import did_you_mean

# States that a message lists.
SHOWN = 20


class NodeStates:
    """The states of one node.

    values  the states, all different: values; or bins as `intervals` writes them, "(-inf, 2.5]" and
            "(2.5, inf)"; and None where a missing value is a state
    codes   {state: its place}
    cuts    cut points of the bins, ascending; None where the states are no bins
    """

    def __init__(self, node: str, values: Sequence[Any]) -> None:
        self.node = node
        self.codes = {value: code for code, value in enumerate(values)}
        known = [value for value in values if value is not None]
        self.cuts = cut_points(known)
        # The places of the bins.
        self._bins = [] if self.cuts is None else [self.codes[value] for value in known]

    def code(self, value: Any) -> int:
        """Return the place of the state that a value is, or of the bin that it falls into.

        A number is also the text that reads like it: a text file may have given the states.

        Raises ValueError when it is none of the states, is missing or is infinite; the message
        names the node, the value, and the states that there are.
        """
        try:
            if (found := self.codes.get(value)) is not None:
                return found
        except TypeError:  # a list or the like, which is no state
            raise self._unknown(value) from None
        plain = value.item() if isinstance(value, np.generic) else value
        number = _as_float(plain)
        if plain is None or (number is not None and math.isnan(number)):
            raise ValueError(
                f"node {self.node!r}: {value!r} is a missing value; leave out a node that is not "
                "observed"
            )
        if number is None:
            raise self._unknown(value)
        if self.cuts is None:
            if (text := _text(plain)) in self.codes:
                return self.codes[text]
            alike = [code for state, code in self.codes.items() if _same_number(state, plain)]
            if len(alike) == 1:
                return alike[0]
            raise self._unknown(value)
        if math.isinf(number):
            raise ValueError(
                f"node {self.node!r}: {number} is infinite; give a finite number, or one of its "
                f"bins {self._listed()}"
            )
        # As in columns of numbers: bin k is (cuts[k - 1], cuts[k]].
        return self._bins[np.searchsorted(self.cuts, number, side="left")]

    def _listed(self) -> str:
        known = [*self.codes]
        more = f", ... ({len(known):,} in all)" if len(known) > SHOWN else ""
        return f"[{', '.join(map(repr, known[:SHOWN]))}{more}]"

    def _unknown(self, value: Any) -> ValueError:
        bins = "neither a number nor one of its bins"
        what = "not one of its states" if self.cuts is None else bins
        return ValueError(
            f"node {self.node!r}: {value!r} is {what} {self._listed()}"
            f"{did_you_mean(value, self.codes)}"
        )


def _as_float(value: Any) -> float | None:
    """Return a number as float64 has it, None of what is no number."""
    number = isinstance(value, (Real, Decimal))
    try:
        return float(value) if number else None
    except OverflowError:  # of a whole number
        return math.inf if value > 0 else -math.inf


def _same_number(state: Any, number: Any) -> bool:
    """Return whether a state is a number in other words: "1e+10", or a decimal beside a float."""
    value = _as_float(number)
    if isinstance(number, bool) or value is None or math.isinf(value):
        return False
    if not isinstance(state, str):
        return Decimal in (type(state), type(number)) and _as_float(state) == value
    if not state.isascii() or "_" in state:  # which Python reads as numbers, and nobody else does
        return False
    try:
        found = float(state)
    except ValueError:
        return False
    # Whole numbers that floats do not tell apart are written with all digits.
    return found == value and not (abs(found) >= 2**53 and state.lstrip("+-").isdigit())


def _text(number: Any) -> str:
    """Return a number as a text file has it: whole ones without a point."""
    whole = isinstance(number, float) and number.is_integer()
    return str(int(number) if whole else number)
