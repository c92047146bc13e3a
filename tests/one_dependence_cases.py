"""Random small tables for SPODE, TAN and AODE: what is fitted, how, and what is asked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from comparing import Rows, frame
from hypothesis import assume
from hypothesis import strategies as st
from oracles.naive_bayes import MISSING
from oracles.one_dependence import AODE, SPODE, TAN

import fastbayes as fb

MODELS = {"SPODE": fb.SPODE, "TAN": fb.TAN, "AODE": fb.AODE}
ORACLES = {"SPODE": SPODE, "TAN": TAN, "AODE": AODE}

LABELS = [["no", "yes"], [3, 1, 2], [False, True]]
# Values that occur, values that are declared besides.
POOLS: list[tuple[list[Any], list[Any]]] = [
    (["a", "b"], []),
    (["p", "q"], ["r"]),
    (["NA", "None", "ü"], []),
    ([5, -1], [7]),
    ([True, False], []),
    (["only"], []),
    (["only"], ["never"]),
    ([], []),
    ([], ["u", "v"]),
]
STRANGE: dict[type, list[Any]] = {str: ["strange"], int: [99], bool: []}


@dataclass
class Problem:
    rows: Rows
    classes: list[Any]
    types: dict[str, pa.DataType]
    weights: list[float] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    asked: Rows = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(self.types)

    @property
    def X(self) -> pa.Table:
        return frame(self.rows, self.types)

    def model(self, kind: str, **options: Any) -> Any:
        """Return a model, not yet fitted."""
        integers = [j for j, t in self.types.items() if pa.types.is_integer(t)]
        return MODELS[kind](categorical=integers or None, **self.all(options))

    def all(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the problem and others, weights given to two columns."""
        if options.get("weights") == "given":
            options = options | {"weights": {self.columns[0]: 2, self.columns[-1]: 0.5}}
        return self.options | options

    def fit(self, kind: str, **options: Any) -> Any:
        y = pa.array(self.classes)
        return self.model(kind, **options).fit(self.X, y, sample_weight=self.weights)

    def count(self) -> fb.Statistics:
        """Return the counts that serve all models."""
        integers = [j for j, t in self.types.items() if pa.types.is_integer(t)]
        return fb.count(
            self.X,
            pa.array(self.classes),
            pairs=True,
            moments=False,
            sample_weight=self.weights,
            domains=self.options["domains"],
            categorical=integers or None,
            missing=self.options["missing"],
        )

    def oracle(self, kind: str, **options: Any) -> Any:
        known = ORACLES[kind](**self.all(options))
        return known.fit(self.rows, self.classes, self.weights)

    def every_row(self) -> pa.Table:
        """Return all combinations of the values of the domains."""
        values = self.oracle("AODE").values
        cells = [[None if v is MISSING else v for v in values[j]] or [None] for j in self.columns]
        every = [dict(zip(self.columns, x, strict=True)) for x in itertools.product(*cells)]
        return frame(every, self.types)

    def alike(self, **changes: Any) -> Problem:
        return replace(self, **changes)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    complete: bool = False,
    weighted: bool = True,
    missing: tuple[str, ...] = ("marginalize", "category"),
    alphas: tuple[float, ...] = (0, 0.001, 0.5, 1, 3.25),
) -> Problem:
    kinds = [(v, more) for v, more in POOLS if v] if complete else POOLS
    pools = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    names = draw(st.permutations("abcd"))[: len(pools)]  # their order is not that of the columns
    cells, odd, types, domains = {}, {}, {}, {}
    for j, (values, more) in zip(names, pools, strict=True):
        every = [*values, *more]
        holes = [] if complete else [None]
        cells[j] = st.sampled_from([*values, *values, *holes])
        odd[j] = st.sampled_from([*every, None, *(STRANGE[type(every[0])] if every else [])])
        types[j] = pa.array(every).type if every else pa.string()
        if every and (more or draw(st.booleans())):
            domains[j] = every
    rows = draw(st.lists(st.fixed_dictionaries(cells), min_size=2, max_size=16))
    n = len(rows)
    label = st.sampled_from(draw(st.sampled_from(LABELS)))
    weight = st.sampled_from([0, 0.25, 0.5, 1, 2, 3.5])
    p = Problem(
        rows,
        draw(st.lists(label, min_size=n, max_size=n)),
        types,
        draw(st.none() | st.lists(weight, min_size=n, max_size=n)) if weighted else None,
    )
    kept = {c for c, w in zip(p.classes, p.weights or [1] * n, strict=True) if w}
    assume(len(kept) > 1)
    given = [0.5**i for i in range(1, len(kept))] + [0.5 ** (len(kept) - 1)]
    p.options = {
        "alpha": draw(st.sampled_from(alphas)),
        "class_prior": draw(st.sampled_from([None, None, "empirical", "uniform", given])),
        "missing": draw(st.sampled_from(missing)),
        "unseen": draw(st.sampled_from(["ignore", "smooth"])),
        "domains": domains or None,
    }
    p.asked = rows + draw(st.lists(st.fixed_dictionaries(odd), min_size=1, max_size=6))
    return p


@st.composite
def averages(draw: st.DrawFn) -> dict[str, Any]:
    """Return parameters of AODE."""
    return {
        "min_count": draw(st.sampled_from([0, 1, 1.5, 3, 100])),
        "smoothing": draw(st.sampled_from(["laplace", "m_estimate"])),
        "m": draw(st.sampled_from([0, 0.5, 1, 4])),
        "weights": draw(st.sampled_from(["uniform", "uniform", "mutual_information", "given"])),
    }
