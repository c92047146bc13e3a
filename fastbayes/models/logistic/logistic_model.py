"""What a fitted logistic regression keeps, and what its parameters mean for a schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.errors import SchemaError
from fastbayes.core.layout import Layout
from fastbayes.core.schema import Schema, labels
from fastbayes.core.warn import warn
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.logistic.linear import Coefficients
from fastbayes.models.logistic.logistic_fit import Memory
from fastbayes.models.logistic.minimise import Found
from fastbayes.statistics.bundle import Statistics

PREFIX = "logistic."
HEADER = ("converged", "n_iter", "norm", "objective")
STANDS = ("sizes", "center", "scale")


@dataclass(frozen=True, eq=False)
class Fit:
    """What a fit left behind, beside statistics.

    coefficients  what scores rows
    layout        where the coefficients stood when they were fitted; None of a converted model
    memory        the rows as a quadratic, for more rows to come
    converged     whether the minimiser got there; None of a converted model
    n_iter        its steps
    norm          gradient norm
    objective     value at the end
    trace         (any, 4)
    information   (M, M, P, P) second derivatives of the objective, where they were asked for
    references    (d,) value of each categorical column that others are compared with; of
                  coefficients that a penalty tells apart none
    """

    coefficients: Coefficients
    layout: Layout | None = None
    memory: Memory | None = None
    converged: bool | None = None
    n_iter: int = 0
    norm: float = 0.0
    objective: float = 0.0
    trace: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    information: Floats | None = None
    references: NDArray[np.int64] | None = None

    @classmethod
    def of_one_class(cls, stats: Statistics, pairs: Sequence[tuple[int, int]]) -> Self:
        """Return the fit to rows of a single class: there is nothing to tell apart."""
        heights = np.array([f.size + 2 for f in stats.schema.categorical], np.int64)
        rows = [*heights, *(heights[a] * heights[b] for a, b in pairs)]
        offsets = np.cumsum([0, *rows], dtype=np.int64)
        p = len(stats.schema.numeric)
        nothing = np.zeros((int(offsets[-1]), 1))
        told = np.zeros(1), nothing, offsets, np.zeros(p), np.zeros((p, 1))
        return cls(Coefficients.of(*told, pairs=pairs), converged=True, n_iter=1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a header and named arrays from which `from_state` rebuilds."""
        told = {name: getattr(self, name) for name in ("trace", "information", "references")}
        layout, memory = self.layout, self.memory
        parts: dict[str, Mapping[str, NDArray[Any]]] = {
            "coefficients": self.coefficients.arrays(),
            "told": {name: array for name, array in told.items() if array is not None},
            "layout": {} if layout is None else {n: getattr(layout, n) for n in STANDS},
            "memory": {} if memory is None else memory.arrays(),
        }
        named = {
            f"{PREFIX}{part}.{name}": array
            for part, arrays in parts.items()
            for name, array in arrays.items()
        }
        return {name: getattr(self, name) for name in HEADER}, named

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return what `state` described.

        Raises KeyError, ValueError when header and arrays do not fit together.
        """
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            if key.startswith(PREFIX):
                part, _, name = key.removeprefix(PREFIX).partition(".")
                parts.setdefault(part, {})[name] = array
        coefficients = Coefficients.from_arrays(parts["coefficients"])
        layout = memory = None
        if "layout" in parts:
            stands = {name: np.array(array) for name, array in parts["layout"].items()}
            layout = Layout(**stands, pairs=coefficients.pairs, n_outputs=coefficients.n_outputs)
        if "memory" in parts:
            memory = Memory.from_arrays(
                {name: np.array(array) for name, array in parts["memory"].items()}
            )
            if layout is None or memory.theta.shape != (layout.n_rows, layout.n_outputs):
                raise ValueError("what is remembered of earlier rows is of another layout")
        told: dict[str, Any] = dict(parts["told"])
        if (bent := told.get("information")) is not None:
            m, size = coefficients.n_outputs, 0 if layout is None else layout.n_rows
            if bent.shape != (m, m, size, size):
                raise ValueError("the second derivatives are not those of the coefficients")
        if (references := told.get("references")) is not None:
            if references.shape != (len(coefficients.sizes),):
                raise ValueError("the values to compare with are not those of the columns")
            if (references >= coefficients.sizes).any():
                raise ValueError("a value to compare with is none of its column")
        return cls(coefficients, layout, memory, **header, **told)


def balanced(counts: NDArray[Any]) -> Floats:
    """Return weights with which all classes that occur weigh the same, and all together as before.

    counts  (n_classes,) rows, or sums of their weights.
    """
    seen = counts > 0
    return np.where(seen, counts.sum() / (seen.sum() * np.where(seen, counts, 1.0)), 1.0)


def given_class_weight(weight: Mapping[Any, float], classes: NDArray[Any]) -> Floats:
    """Return the weight of each class, 1 for those that are not named.

    A class that is no text may be named by how it reads, as files and commands must.

    Raises ValueError when a name is no class, or a weight is negative or not finite.
    """
    known = classes.tolist()
    texts, found = [str(label) for label in known], np.ones(len(known))
    for label, value in weight.items():
        if label not in known and label not in texts:
            raise ValueError(f"class_weight: there is no class {label!r}; there are {known}")
        if not (isinstance(value, (int, float, np.number)) and 0 <= value < math.inf):
            raise ValueError(f"class_weight[{label!r}]={value!r}: use a finite number >= 0")
        found[known.index(label) if label in known else texts.index(label)] = value
    if not found.any():
        raise ValueError("class_weight: every weight is 0; give one of them more")
    return found


def as_given(params: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return parameters that were kept as JSON: pairs as tuples, weights by the classes."""
    told = dict(params)
    if told.get("interactions") is not None:
        told["interactions"] = [tuple(pair) for pair in told["interactions"]]
    if isinstance(told.get("class_weight"), Mapping):
        # JSON knows no keys but text.
        known = {str(label): label for label in labels(schema.classes).tolist()}
        told["class_weight"] = {known.get(k, k): w for k, w in told["class_weight"].items()}
    return told


def pairs_of(
    interactions: Iterable[tuple[str, str]] | None, schema: Schema
) -> list[tuple[int, int]]:
    """Return the places of pairs of columns among the categorical ones.

    Raises SchemaError when a column is not there or not categorical, or stands twice in a pair; or
    a pair is named twice.
    """
    names = [f.name for f in schema.categorical]
    found: list[tuple[int, int]] = []
    for pair in interactions or ():
        two = isinstance(pair, Iterable) and not isinstance(pair, str) and len(tuple(pair)) == 2
        if not two:
            raise SchemaError(f"interactions: {pair!r} is no pair of columns")
        a, b = pair
        for name in (a, b):
            if name not in names:
                kind = "numeric" if name in schema.names else "not there"
                raise SchemaError(
                    f"interactions: column {name!r} is {kind}; pairs are of categorical columns: "
                    f"name it in `categorical`, or use some of {names[:10]}"
                )
        if a == b:
            raise SchemaError(f"interactions: column {a!r} stands twice in a pair")
        place = names.index(a), names.index(b)
        if place in found or place[::-1] in found:
            raise SchemaError(f"interactions: the pair {a!r}, {b!r} is named twice")
        found.append(place)
    return found


def names_of(coefficients: Coefficients, schema: Schema) -> list[tuple[Any, Any]]:
    """Return (column, value) of each coefficient, in their order."""
    values = []
    for feature, size in zip(schema.categorical, coefficients.sizes.tolist(), strict=True):
        assert feature.values is not None
        known = feature.intervals or feature.values.to_pylist()
        values.append([*known, *[None] * (size - len(known))])
    names = [f.name for f in schema.categorical]
    found: list[tuple[Any, Any]] = [
        (name, value) for name, some in zip(names, values, strict=True) for value in some
    ]
    found += [(f.name, None) for f in schema.numeric]
    for a, b in coefficients.pairs:
        found += [((names[a], names[b]), (v, w)) for v in values[a] for w in values[b]]
    return found


def theta_by_name(
    layout: Layout,
    schema: Schema,
    names: Sequence[tuple[Any, Any]],
    coef: Floats,
    intercept: Floats,
) -> Floats:
    """Return coefficients that go by names as a layout has them; 0 for new names."""
    empty = np.zeros((layout.n_rows, layout.n_outputs))
    here = names_of(Coefficients.from_theta(empty, layout), schema)
    known = dict(zip(names, coef.T, strict=True))
    theta = np.zeros((layout.n_rows, layout.n_outputs))
    for at, name in enumerate(here, 1):
        theta[at] = known.get(name, 0.0)
    theta[0] = intercept + layout.center @ theta[layout.numeric]
    theta[layout.numeric] *= layout.scale[:, None]
    return theta


def cautions(model: Any, found: Found, separable: bool, stats: Statistics) -> None:
    """Warn of a fit that did not end at a minimum."""
    if separable:
        warn(
            "some rows can be told apart without error, so that without a penalty there is no "
            "optimum: their coefficients grow beyond all bounds, and are as the last step left "
            "them; use penalty='l2' with a large C"
        )
    elif not found.converged:
        warn(
            f"solver={model.solver!r} did not converge in {found.n_iter} steps: the gradient norm "
            f"is {found.norm:.3g}, tol={model.tol:g}; {found.reason}"
        )
    counts = stats.values.class_counts
    if len(counts) > 1 and (counts == 0).any():
        label = stats.schema.classes[int((counts == 0).argmax())].as_py()
        warn(
            f"class {label!r} has no row: its intercept is as small as `tol` lets it be; learn "
            "from rows of it, too"
        )
