"""What each preset is: columns, cardinalities, skew, dependence, missing values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Categorical:
    """Values drawn from one distribution for each (class, parent value).

    values     at most 128 strings (a dictionary column), integers or booleans
    parent     an earlier categorical column; None: the class alone
    skew       base probability of the i-th value is proportional to (i + 1) ** -skew
    modal      base probability of the first value, the others sharing the rest by `skew`
    by_class   concentration of the Dirichlet of each class around the base
    by_parent  concentration of the Dirichlet of each parent value around its class;
               small concentrations mean strong dependence
    missing    share of nulls
    """

    name: str
    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    parent: str | None = None
    skew: float = 0.5
    modal: float | None = None
    by_class: float = 60.0
    by_parent: float = 60.0
    missing: float = 0.0


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric column: mean + sd * z, or mean * exp(sd * z), with z about standard normal.

    parent      an earlier column: a categorical one shifts z, a numeric one correlates with it
    separation  standard deviation of the shifts of z between classes and parent values
    log         whether the column is log-normal
    integer     whether it is rounded to int32
    low, high   clip the column here
    """

    name: str
    mean: float = 0.0
    sd: float = 1.0
    parent: str | None = None
    separation: float = 0.5
    log: bool = False
    integer: bool = False
    low: float = -np.inf
    high: float = np.inf
    missing: float = 0.0


@dataclass(frozen=True, slots=True)
class Identifier:
    """Strings of many distinct values: the frequent ones differ with the class and the parent.

    Value v has density proportional to v ** (-2/3), rotated by an offset of its own for each
    (class, parent value).
    """

    name: str
    prefix: str
    distinct: int
    parent: str | None = None
    missing: float = 0.0


Column = Categorical | Number | Identifier


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of table: its columns, each naming its parent, and the target, written last."""

    about: str
    target: Categorical
    columns: tuple[Column, ...]


def _names(prefix: str, n: int) -> tuple[str, ...]:
    """Return n values that sort in their order."""
    return tuple(f"{prefix}{i:0{len(str(n - 1))}d}" for i in range(n))


def _classes(n: int, skew: float = 0.3) -> Categorical:
    return Categorical("class", _names("class", n), skew=skew)


def _tree(n: int, low: int, high: int, **options: Any) -> tuple[Categorical, ...]:
    """Return n categorical columns of low to high values; column i hangs from (i - 1) // 2."""
    names = _names("x", n)
    return tuple(
        Categorical(
            name,
            _names("v", low + i * 13 % (high - low + 1)),
            parent=names[(i - 1) // 2] if i else None,
            skew=(0.2, 0.6, 1.0)[i % 3],
            **options,
        )
        for i, name in enumerate(names)
    )


def _numbers(n: int, separation: float, parents: tuple[str, ...] = ()) -> tuple[Number, ...]:
    """Return n numeric columns on several scales, each below the one before or below `parents`."""
    names = _names("u", n)
    above: tuple[str | None, ...] = parents or (None, *names[:-1])
    return tuple(
        Number(name, mean=10.0 * i, sd=(0.01, 1.0, 50.0)[i % 3], parent=above[i % len(above)],
               separation=separation)
        for i, name in enumerate(names)
    )  # fmt: skip


_FLIGHTS = Preset(
    "flights that leave late or not: text, integers, numbers, a flag, a few missing",
    Categorical("delayed", ("no", "yes"), modal=0.79),
    (
        Categorical("carrier", ("WN", "DL", "AA", "OO", "UA", "B6", "AS", "YX", "NK", "MQ", "F9"),
                    skew=0.8),
        Categorical("origin", _names("A", 60), parent="carrier", skew=0.9, by_class=900,
                    by_parent=600),
        Categorical("dest", _names("B", 60), parent="origin", skew=0.9, by_class=900,
                    by_parent=600),
        Categorical("month", tuple(range(1, 13)), skew=0, by_class=200),
        Categorical("weekday", ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
                    skew=0, by_class=300),
        Categorical("dep_hour", tuple(range(5, 24)), parent="carrier", skew=0, by_class=120,
                    by_parent=120),
        Categorical("holiday", (False, True), parent="month", modal=0.95),
        Categorical("aircraft", ("B738", "A320", "A321", "E75L", "CRJ9", "B739", "A319", "B752"),
                    parent="carrier", skew=0.4, by_class=300, by_parent=5),
        Identifier("tail_number", "N", 5000, parent="aircraft"),
        Number("distance", mean=800, sd=0.6, parent="dest", separation=0.3, log=True,
               integer=True, low=60, high=5000),
        Number("air_time", mean=115, sd=65, parent="distance", separation=0.1, low=18,
               missing=0.01),
        Number("taxi_out", mean=15, sd=0.35, parent="origin", separation=0.3, log=True),
        Number("wind_knots", mean=9, sd=0.5, parent="month", separation=0.3, log=True,
               missing=0.03),
        Categorical("sky", ("clear", "few", "scattered", "broken", "overcast", "storm"),
                    parent="month", skew=0.7, by_class=30, missing=0.02),
    ),
)  # fmt: skip

_SURVEY = Preset(
    "a questionnaire: integers, booleans, text, 2-18 % missing in every column, 3 classes",
    Categorical("satisfaction", ("low", "middle", "high"), skew=-0.4),
    (
        Number("age", mean=46, sd=17, integer=True, low=18, high=99, missing=0.02),
        Categorical("region", ("north", "east", "south", "west", "centre", "islands"),
                    skew=0.6, by_class=200, missing=0.02),
        Categorical("education", ("primary", "secondary", "vocational", "bachelor", "master"),
                    parent="region", skew=0.2, missing=0.04),
        Categorical("employed", (True, False), parent="education", by_parent=20, missing=0.03),
        Number("income", mean=32_000, sd=0.55, parent="education", separation=0.3, log=True,
               missing=0.18),
        Categorical("household", tuple(range(1, 9)), skew=0.9, by_class=200, missing=0.02),
        Categorical("children", (False, True), parent="household", by_parent=4, missing=0.02),
        Categorical("owner", (False, True), parent="household", by_parent=20, missing=0.05),
        Categorical("channel", ("web", "phone", "post", "interview", "proxy"),
                    skew=2.5, missing=0.02),
        *(Categorical(f"q{i:02d}", (3, 4, 2, 5, 1), parent=f"q{i - 1:02d}" if i else None,
                      skew=0.4, by_class=30, by_parent=60, missing=0.05 + i * 0.005)
          for i in range(12)),
    ),
)  # fmt: skip

_WORDS = tuple(
    Categorical(f"word{i:03d}", tuple(range(8)), modal=0.97 - 0.5 / (1 + i), skew=2, by_class=150)
    for i in range(200)
)

_FEW = _tree(4, 2, 12)
_TREE = _tree(15, 2, 10, by_class=80, by_parent=100)

PRESETS: dict[str, Preset] = {
    "flights": _FLIGHTS,
    "survey": _SURVEY,
    "cat": Preset("30 categorical columns of 2-12 values, 4 classes",
                  _classes(4), _tree(30, 2, 12, by_class=90, by_parent=60)),
    "binary": Preset("50 categorical columns of 2-4 values, 2 classes",
                     _classes(2), _tree(50, 2, 4, by_class=90, by_parent=120)),
    "long": Preset("20 categorical columns of 2-8 values, 2 classes: for many rows",
                   _classes(2), _tree(20, 2, 8, by_class=50, by_parent=60)),
    "wide": Preset("300 categorical columns of 2-5 values, 2 classes",
                   _classes(2), _tree(300, 2, 5, by_class=500, by_parent=500)),
    "gauss": Preset("30 double columns, each correlated with the one before, 3 classes",
                    _classes(3), _numbers(30, 0.3)),
    "mixed": Preset("10 double and 15 categorical columns, 3 classes", _classes(3),
                    (*_TREE, *_numbers(10, 0.3, parents=tuple(c.name for c in _TREE)))),
    "skewed": Preset("30 columns whose commonest value fills about 97 % of the rows, 2 classes",
                     Categorical("class", ("common", "rare"), modal=0.9),
                     _tree(30, 2, 12, modal=0.97, by_class=80, by_parent=150)),
    "high": Preset("4 text columns of 1e3, 1e4, 1e5 and 1e6 values, 4 of 2-12, 2 classes",
                   _classes(2),
                   (*_FEW, *(Identifier(f"id{e}", f"k{e}_", 10**e, parent=_FEW[e - 3].name)
                             for e in range(3, 7)))),
    "text-counts": Preset("200 columns of small counts, most of them 0, 4 classes",
                          _classes(4), _WORDS),
}  # fmt: skip
