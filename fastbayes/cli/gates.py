"""Gates: an evaluation fails a job where a figure is bad, or worse than it was."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import click

from fastbayes.cli.options import json_from
from fastbayes.core.errors import DataError
from fastbayes.core.numbers import as_float
from fastbayes.core.suggestions import use_one_of
from fastbayes.evaluation.validation import Evaluation

FAILED = 3  # exit code where a gate fails
SAME = 1e-9  # the tolerance, unless it is given: figures of the same rows differ by rounding

COMPARES: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(rf"\s*([\w-]+)\s*({'|'.join(COMPARES)})\s*(\S+)\s*")
FIGURES = [field.name for field in fields(Evaluation) if field.type == "float"]
# What a model is better by: the more of it (1), or the less (-1).
BETTER = {
    **dict.fromkeys(("accuracy", "auc"), 1),
    **dict.fromkeys(("log_loss", "brier", "calibration_error", "expected_loss"), -1),
}


@dataclass(frozen=True)
class Condition:
    """What a figure must not be, such as log_loss > 0.4."""

    figure: str
    sign: str
    bound: float

    def failed(self, found: Mapping[str, Any]) -> str | None:
        """Return how an evaluation fails, None where it does not; what is undefined fails."""
        value, said = found[self.figure], f"--fail-if {self.figure} {self.sign} {self.bound:g}"
        if value is None:
            return f"{self.figure} is undefined: {said}"
        if COMPARES[self.sign](value, self.bound):
            return f"{self.figure} is {value:.6g}: {said}"
        return None


def conditions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> list[Condition]:
    """Read conditions: the name of a figure, an operator, a number."""
    return [_condition(text) for text in given]


def _condition(text: str) -> Condition:
    found = CONDITION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: write a condition such as 'log_loss > 0.4'")
    name, sign, written = found.groups()
    figure = name.replace("-", "_")
    if figure not in FIGURES:
        known = use_one_of(figure, FIGURES)
        raise click.BadParameter(f"{text!r}: there is no figure {name!r}: {known}")
    try:
        bound = float(written)
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise click.BadParameter(f"{text!r}: {written!r} is no number")
    return Condition(figure, sign, bound)


@dataclass(frozen=True)
class Baseline:
    """An earlier evaluation, than which no figure may be worse by more than the tolerance."""

    path: str
    figures: Mapping[str, Any]
    tolerance: float

    @classmethod
    def read(cls, path: str, tolerance: float) -> Baseline:
        """Read what `evaluate --json` printed; raise DataError where a file is not that."""
        found = json_from(path, "figures", "name what evaluate --json wrote")
        known = found if isinstance(found, dict) else {}
        for name in BETTER:
            value = known.get(name, "")
            number = type(value) in (int, float) and math.isfinite(as_float(value))
            if value is not None and not number:
                lack = f"{name} is no number" if name in known else f"holds no {name}"
                raise DataError(f"{path}: {lack}; name what evaluate --json wrote")
        return cls(path, known, tolerance)

    def failed(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield which figures are worse, and by how much; what was undefined is not compared."""
        if self.figures.get("classes") != found["classes"]:
            raise DataError(f"{self.path}: of other classes; evaluate the old model on these data")
        for name, sign in BETTER.items():
            before, now = self.figures[name], found[name]
            if before is None:
                continue
            if now is None:
                yield f"{name} is undefined, but {before:.6g} in {self.path}"
            elif (worse := sign * (before - now)) > self.tolerance:
                yield (
                    f"{name} is {now:.6g}, by {worse:.3g} worse than {before:.6g} in {self.path} "
                    f"(--tolerance {self.tolerance:g})"
                )
