"""`merge`: statistics added and taken away as jobs do, where nothing may count twice."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.ledger import CountedFile, Ledger, overlap
from fastbayes.statistics.bundle import Statistics

Given: TypeAlias = "Statistics | str | os.PathLike[str]"


class _Holders(defaultdict[str, list[tuple[str, CountedFile]]]):
    """By the digest of a file: what it was counted into."""

    def __init__(self) -> None:
        super().__init__(list)


class _Named(NamedTuple):
    """Statistics, and what messages call them."""

    name: str
    stats: Statistics


def merge(
    statistics: Given | Iterable[Given],
    *,
    minus: Given | Iterable[Given] = (),
    allow_overlap: bool = False,
) -> Statistics:
    """Return the sum of statistics of different rows, without those of others.

    `+` and `-` are plain algebra. This is for jobs, which may run twice: it holds against one
    another the files, and their row groups, that each was counted from (`Statistics.ledger`).
    Files are recognised by their size, their first and last 64 KiB, not by their paths; other rows
    by the name that `count(batch=)` gave them, and rows without one are not known again.

    Parameters
    ----------
    statistics
        Statistics, or paths of their files; one, or several.
    minus
        Those to take out, all of whose rows are in; one, several or none.
    allow_overlap
        Whether rows may be in several times, and rows may be taken out that are not known to be in.

    Returns
    -------
    Statistics
        The sum. A slide, with something to take out, that was applied to the first statistics
        already leaves them as they are: the second run of a job changes nothing.

    Raises
    ------
    DataError
        When a file is in two of them, or one that is to be taken out is not in; the message names
        it.
    SchemaError
        When statistics were counted with other columns or options.
    FileFormatError
        When a file is not one of statistics, or is damaged.
    ValueError
        When there are no statistics.

    Examples
    --------
    >>> import fastbayes as fb
    >>> days = [fb.count({"x": [x], "y": ["a"]}, "y") for x in "pqr"]
    >>> week = fb.merge(days[:2])
    >>> fb.merge([week, days[2]], minus=[days[0]]).n_rows
    2
    """
    more: Iterator[_Named] = (
        _named(given, f"statistics {i}") for i, given in enumerate(_several(statistics), 1)
    )
    out = [
        _named(given, f"what is to be taken out ({i})")
        for i, given in enumerate(_several(minus), 1)
    ]
    if (first := next(more, None)) is None:
        raise ValueError("there are no statistics to merge; give at least one")
    if out:
        rest = [*more]
        more = iter(rest)
        if rest and not allow_overlap and _applied(first, rest, out):
            return first.stats
    total, holders = _without_ledger(first.stats), _Holders()
    _enter(first, holders, allow_overlap=allow_overlap)
    ledgers = [first.stats.ledger]
    for one in more:
        _enter(one, holders, allow_overlap=allow_overlap)
        ledgers.append(one.stats.ledger)
        try:
            total = total + _without_ledger(one.stats)
        except SchemaError as error:
            raise SchemaError(f"{one.name} does not go with those before it: {error}") from error
    ledger = Ledger.sum(ledgers)
    for one in out:
        if not allow_overlap:
            for file in ledger.lacking(one.stats.ledger):
                raise DataError(
                    f"{one.name}: {file.path} is not in what it is to be taken out of; leave it "
                    "out, or allow the overlap"
                )
        ledger = ledger - one.stats.ledger
        try:
            total = total - _without_ledger(one.stats)
        except (SchemaError, DataError) as error:
            raise type(error)(f"{one.name} cannot be taken out: {error}") from error
    return replace(total, ledger=ledger)


def _several(given: Given | Iterable[Given]) -> Iterable[Given]:
    return [given] if isinstance(given, (Statistics, str, os.PathLike)) else given


def _named(given: Given, name: str) -> _Named:
    if isinstance(given, Statistics):
        return _Named(name, given)
    return _Named(os.fspath(given), Statistics.load(given))


def _without_ledger(stats: Statistics) -> Statistics:
    # Ten thousand sums would copy ten thousand ledgers.
    return replace(stats, ledger=Ledger())


def _applied(first: _Named, rest: list[_Named], out: list[_Named]) -> bool:
    """Return whether the first statistics hold all that is to be added, nothing of the others."""
    ledger = first.stats.ledger
    known = all(one.stats.ledger for one in (first, *rest, *out))
    added = Ledger.sum(one.stats.ledger for one in rest)
    taken = (one.stats.ledger for one in out)
    return known and not (
        next(ledger.lacking(added), None) or any(next(ledger.common(t), None) for t in taken)
    )


def _enter(one: _Named, holders: _Holders, *, allow_overlap: bool) -> None:
    """Note whose the files are; refuse one whose rows are in already."""
    for file in one.stats.ledger:
        for other, held in holders[file.digest] * (not allow_overlap):
            if overlap(held.runs, file.runs):
                same = "" if held.path == file.path else f", with the same bytes as {held.path},"
                raise DataError(
                    f"{one.name}: {file.path}{same} is in {other} already, and its rows would "
                    "count twice; leave one of them out, or allow the overlap"
                )
        holders[file.digest].append((one.name, file))
