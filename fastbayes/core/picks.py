"""Which columns are meant: names, patterns and indices, against the columns that there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

import numpy as np

from fastbayes.core.errors import SchemaError, refuse
from fastbayes.core.suggestions import meant_column
from fastbayes.core.text_tables import visible

T = TypeVar("T")
# Names, patterns such as "id_*", or indices; one stands for itself.
Picks: TypeAlias = "Iterable[str | int] | str | int | None"


def several(picks: Picks, option: str = "categorical") -> list[str | int]:
    """Return picks as a list that can be read twice; `option` is that in which they are given."""
    if picks is None:
        return []
    if isinstance(picks, (str, int, np.integer)):
        return [picks if isinstance(picks, str) else int(picks)]
    if not isinstance(picks, Iterable):
        raise SchemaError(f"{option}={picks!r}: use a name, or a list of names")
    return [str(pick) if isinstance(pick, str) else pick for pick in picks]


def is_pattern(pick: Any) -> bool:
    """Return whether a pick stands for all names that match it, as those of files do."""
    return isinstance(pick, str) and any(mark in pick for mark in "*?[")


def chosen(
    names: Sequence[str],
    picks: Picks,
    option: str = "categorical",
    *,
    apart: Iterable[str] = (),
    index: Iterable[str] = (),
    where: str = "",
) -> list[str]:
    """Return the columns that picks stand for, each once, in the order of the picks.

    A name stands for its column even where it looks like a pattern. `option` is that in which they
    are given, `apart` are columns that no pattern and no number stands for, `index` those that were
    the index of a pandas frame, which no pattern stands for, `where` says in messages what has the
    columns.

    Raises
    ------
    SchemaError
        When a name or an index is not there, or a pattern matches nothing; the message names it and
        close ones.
    """
    apart, index = {*apart}, {*index}
    features = [name for name in names if name not in apart] if apart else names
    known, found = {*names}, dict[str, None]()
    for pick in several(picks, option):
        if isinstance(pick, (int, np.integer)) and not isinstance(pick, bool):
            refuse(
                not -len(features) <= pick < len(features),
                f"{option}: no column {pick}; there are {len(features)} features",
                SchemaError,
            )
            found[features[int(pick)]] = None
        elif isinstance(pick, str) and pick in known:
            found[str(pick)] = None
        else:
            matching = [n for n in features if n not in index and _matches(n, [pick])]
            if not matching:
                told = unknown_column(pick, features, where, index, pattern=is_pattern(pick))
                raise SchemaError(f"{option}: {told}")
            found |= dict.fromkeys(matching)
    return list(found)


def by_name(picks: Picks, columns: Sequence[str], option: str = "categorical") -> list[str]:
    """Return picks with the name of a column for each index, which counts the `columns`.

    Features may be parts of columns, and only names and patterns stand for these.

    Raises
    ------
    SchemaError
        When there is no column for an index.
    """
    given = several(picks, option)
    return [p if isinstance(p, str) else chosen(columns, [p], option)[0] for p in given]


def named_in(*options: Any) -> list[str]:
    """Return the names of which options say something: keys of mappings, items of lists."""
    found: list[str] = []
    for option in options:
        if isinstance(option, (Mapping, list)):
            found += [name for name in option if isinstance(name, str)]
    return found


def unknown_column(
    name: Any,
    names: Sequence[str],
    where: str,
    index: Collection[str] = (),
    *,
    pattern: bool = False,
) -> str:
    """Return the message for a column that is not there: close matches, and what there is.

    Of the `index` of a pandas frame it says how to read it. `pattern` is whether the name was to
    stand for all that match it. It is one line, whatever the names hold.
    """
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    what = f"no column {'matches ' if pattern else ''}{name!r}"
    here, of_what = (f" in {where}", "its columns") if where else ("", "the features")
    if meant := [n for n in index if n == name or (pattern and _matches(n, [name]))]:
        how = "name it without a pattern" if pattern else "name it in `columns`"
        how = f"{how}, or make it" if meant[0] in names else "make it"
        hint = f"; {meant[0]!r} is the index of a pandas frame: {how} a column by reset_index()"
    else:
        hint = meant_column(name, names)
    return visible(f"{what}{here}; {of_what} are: {shown}{hint}")


def free_name(name: str, *taken: Collection[str]) -> str:
    """Return a name that no column has yet, with as few underscores at its end as that takes."""
    while any(name in names for names in taken):
        name += "_"
    return name


class Chooser(ABC):
    """What chooses columns to read, once it is known which there are."""

    @abstractmethod
    def of(self, names: Sequence[str], where: str, index: Sequence[str] = ()) -> list[str]:
        """Return the columns to read out of those that `where` has.

        Those that were the `index` of a pandas frame are read where they are asked for alone.
        """

    @property
    @abstractmethod
    def asked(self) -> Sequence[str]:
        """The names that it says itself, whether or not there are such columns."""

    @abstractmethod
    def __contains__(self, name: str) -> bool:
        """Return whether a column may be read, as far as its name tells."""


@dataclass(frozen=True)
class Every(Chooser):
    """All columns, those that are `named` among them."""

    named: tuple[str, ...] = ()

    @property
    def asked(self) -> Sequence[str]:
        """The columns that are named."""
        return self.named

    def of(self, names: Sequence[str], where: str, index: Sequence[str] = ()) -> list[str]:
        """Return the columns that there are."""
        return [*names]

    def __contains__(self, name: str) -> bool:
        """Return whether a column may be read."""
        return True


class AllButIndex(Every):
    """All columns, of those that were the index of a pandas frame the ones that are `named`."""

    def of(self, names: Sequence[str], where: str, index: Sequence[str] = ()) -> list[str]:
        """Return the columns to read out of those that there are.

        Raises
        ------
        SchemaError
            When there are none but the index.
        """
        found = [name for name in names if name not in index or name in self.named]
        refuse(
            not found,
            f"{where} has no column but the index of a pandas frame, {', '.join(index)}; name it "
            "in `columns`, or make it a column by reset_index()",
            SchemaError,
        )
        return found


@dataclass(frozen=True)
class Selection(Chooser):
    """Columns to read of a source, said by patterns, or by what is left out.

    Parameters
    ----------
    columns
        Those that take part; None for all.
    exclude
        Those that do not.
    keep
        Columns that are read besides, such as the class; no pattern stands for them.
    named
        Columns that something else is said of, which are as any other if they were an index.
    """

    columns: Picks = None
    exclude: Picks = None
    keep: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @classmethod
    def made(
        cls,
        columns: Picks,
        exclude: Picks,
        keep: Iterable[str] = (),
        named: Iterable[str] = (),
    ) -> Selection | None:
        """Return a selection; None where that is all columns."""
        taken = None if columns is None else tuple(several(columns, "columns"))
        left_out = tuple(several(exclude, "exclude"))
        if taken is None and not left_out:
            return None
        return cls(taken, left_out, tuple(dict.fromkeys(keep)), tuple(named))

    @property
    def asked(self) -> Sequence[str]:
        """The names that stand for themselves."""
        picks = [*several(self.columns), *several(self.exclude), *self.keep, *self.named]
        return [pick for pick in picks if isinstance(pick, str) and not is_pattern(pick)]

    def of(self, names: Sequence[str], where: str, index: Sequence[str] = ()) -> list[str]:
        """Return the columns to read out of those that there are.

        Those that were an `index` are counted as others are, and are read where a name or a number
        in `columns` stands for them, or they are `named`.

        Raises
        ------
        SchemaError
            When a pick stands for nothing, `exclude` names a column that is needed, or nothing is
            left.
        """
        index = [name for name in index if name not in self.named]
        taken = [n for n in names if n not in self.keep and n not in index]
        if self.columns is not None:
            taken = chosen(
                names, self.columns, "columns", apart=self.keep, index=index, where=where
            )
        left_out = {*chosen(names, self.exclude, "exclude", apart=self.keep, where=where)}
        for name in self.keep:
            refuse(
                name in left_out,
                f"exclude: column {name!r} holds the classes, weights or folds, which are needed",
                SchemaError,
            )
            if name not in names:
                raise SchemaError(unknown_column(name, names, where, index))
        features = [n for n in taken if n not in left_out and n not in self.keep]
        refuse(
            not features,
            f"columns and exclude leave no column of {where}; name fewer in exclude",
            SchemaError,
        )
        return [*features, *self.keep]

    def __contains__(self, name: str) -> bool:
        """Return whether a column may be read, as far as its name tells; an index takes any."""
        if name in self.keep:
            return True
        taken = several(self.columns)
        every = self.columns is None or any(not isinstance(pick, str) for pick in taken)
        return (every or _matches(name, taken)) and not _matches(name, several(self.exclude))


def _matches(name: str, picks: Iterable[Any]) -> bool:
    return any(pick == name or (is_pattern(pick) and fnmatchcase(name, pick)) for pick in picks)


class ByPick(Mapping[str, T]):
    """Something said of columns, by their names or by patterns; a name itself comes first."""

    def __init__(self, said: Mapping[str, T]) -> None:
        self._said = dict(said)
        self._patterns = [pick for pick in said if is_pattern(pick)]

    def __getitem__(self, name: str) -> T:
        if name not in self._said:
            name = next((p for p in self._patterns if fnmatchcase(name, p)), name)
        return self._said[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)
