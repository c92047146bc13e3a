"""How numeric columns are described: the parameter `numeric` of `NaiveBayes` and of `count`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastbayes.core.domains import checked_cuts, described, same_cuts
from fastbayes.core.errors import SchemaError
from fastbayes.core.schema import Schema
from fastbayes.core.suggestions import meant_column, use_one_of
from fastbayes.data.columns import Codebook
from fastbayes.data.encode import Book, Encoder

KINDS = ("gaussian", "student", "kde", "histogram", "mdl", "auto")
# Those that are read off the values themselves, as far as a sketch has them.
SKETCHED = ("kde", "histogram", "auto")
# Those whose parameters maximise the likelihood of the rows.
LIKELIEST = ("gaussian", "mdl")


class DensitySpec:
    """The kind of density of each numeric column.

    Parameters
    ----------
    numeric
        One of `KINDS` for all columns, or {column: one of them, or cut points}; columns that it
        does not name are "gaussian".

    Raises
    ------
    ValueError
        When a kind is not known.
    SchemaError
        When cut points are not ascending.
    """

    def __init__(self, numeric: Any) -> None:
        self.default = "gaussian"
        self.by_name: dict[str, str] = {}
        self.points: dict[str, Any] = {}
        if not isinstance(numeric, Mapping):
            self.default = _kind(numeric, "numeric")
            return
        for name, given in numeric.items():
            if isinstance(given, str):
                self.by_name[name] = _kind(given, f"numeric[{name!r}]")
            else:
                self.points[name] = checked_cuts(name, given)
                self.by_name[name] = "mdl"

    def of(self, name: str) -> str:
        """Return the kind of a column."""
        return self.by_name.get(name, self.default)

    @property
    def sketched(self) -> bool:
        """Whether values are to be sketched."""
        return any(kind in SKETCHED for kind in (self.default, *self.by_name.values()))

    @property
    def likeliest(self) -> bool:
        """Whether all densities are those of maximum likelihood."""
        return all(kind in LIKELIEST for kind in (self.default, *self.by_name.values()))

    @property
    def chooses(self) -> bool:
        """Whether a kind is to be chosen by the rows."""
        return "auto" in (self.default, *self.by_name.values())

    @property
    def cut(self) -> bool:
        """Whether columns are to be cut into bins."""
        return "mdl" in (self.default, *self.by_name.values())

    def check(self, numeric: Iterable[str], others: Sequence[str]) -> None:
        """Raise SchemaError where a kind is given for what is no numeric column.

        `numeric` are the columns that may be named, `others` those that are categories.
        """
        known = [*numeric] if self.by_name else []
        for name in self.by_name:
            if name in others:
                raise SchemaError(
                    f"numeric: column {name!r} is categorical; leave it out of `numeric`, or out "
                    "of `categorical` and `domains` if it holds numbers"
                )
            if name not in known:
                raise SchemaError(
                    f"numeric: there is no column {name!r}; the numeric columns are {known}"
                    f"{meant_column(name, [*known, *others])}"
                )

    def check_counted(self, schema: Schema) -> None:
        """Raise SchemaError where columns were counted as other than they are to be described.

        Statistics of bins suit the default, too: there is nothing else to be had from them.
        """
        for feature in schema.numeric:
            if self.of(feature.name) == "mdl":
                raise SchemaError(
                    f"the statistics were counted with column {feature.name!r} as a number, the "
                    "model wants it in bins; count again with numeric='mdl'"
                )
        binned = [f for f in schema.categorical if f.cuts is not None]
        for feature in binned:
            kind, points = self.of(feature.name), self.points.get(feature.name)
            if kind not in ("mdl", "auto") and (self.by_name or self.default != "gaussian"):
                raise SchemaError(
                    f"the statistics were counted with column {feature.name!r} in bins, the model "
                    f"describes it by numeric={kind!r}; count again with numeric={kind!r}"
                )
            if points is not None and not same_cuts(points, feature.cuts):
                raise SchemaError(
                    f"the statistics were counted with column {feature.name!r} "
                    f"{described(feature.cuts)}, the model has {described(points)}; count again"
                )
        named = [*schema.numeric, *binned, *(f for f in schema.features if f.void)]
        names = dict.fromkeys(f.name for f in named)
        self.check(names, [name for name in schema.names if name not in names])

    def by_column(self, schema: Schema, chosen: Sequence[str]) -> dict[str, str]:
        """Return the kind of each numeric column, in order; `chosen` are those not in bins."""
        numbers = iter(chosen)
        return {
            f.name: next(numbers) if f.values is None else "mdl"
            for f in schema.features
            if f.values is None or f.cuts is not None
        }

    def to_cut(
        self, encoder: Encoder, discretize: Any = "mdl", known: Schema | None = None
    ) -> tuple[Encoder, dict[str, Any]] | None:
        """Return an encoder of the columns that are to be cut alone, and how; None without such.

        Parameters
        ----------
        encoder
            An encoder that learns, made without cut points.
        discretize
            How columns are cut that were given no points, as in `count`.
        known
            What was learned before: its cut points stay.

        Raises
        ------
        SchemaError
            When a kind is given for what is no numeric column.
        """
        books = {feature.name: book for feature, book in encoder.features}
        numeric = {name for name, book in books.items() if book is None}
        open_ = [name for name, book in books.items() if book is None or _void(book)]
        self.check(open_, [*(books.keys() - open_)])
        by_column = discretize if isinstance(discretize, Mapping) else {}
        default = "mdl" if isinstance(discretize, Mapping) else discretize
        options = {
            name: self.points.get(name, by_column.get(name, default))
            for name in books
            if name in numeric and self.of(name) == "mdl"
        }
        if known is not None:
            void = {f.name for f in known.features if f.void}
            options = {name: how for name, how in options.items() if name in void}
            kept = {f.name: f.cuts for f in known.features if f.cuts is not None}
            options |= {name: cuts for name, cuts in kept.items() if name in numeric}
        if not options:
            return None
        features = [
            (feature, book) for feature, book in encoder.features if feature.name in options
        ]
        alone = Encoder(features, encoder.target, template=encoder.template, weight=encoder.weight)
        return alone, options


def _kind(given: Any, what: str) -> str:
    if not isinstance(given, str) or given not in KINDS:
        raise ValueError(
            f"{what}={given!r}: give {{column: kind or cut points}}, or {use_one_of(given, KINDS)}"
        )
    return given


def _void(book: Book | None) -> bool:
    """Return whether a column has held nothing but nulls: it may be of any kind yet."""
    return isinstance(book, Codebook) and not book.fixed and pa.types.is_null(book.kind)
