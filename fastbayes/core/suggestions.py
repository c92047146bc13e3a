"""Did you mean: the names that one which is not there is likely to stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 3  # names that are suggested


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """Return "; did you mean 'x' or 'y'?" with the nearest names, or "" where none is near.

    For a name that exists as another type, 1 for '1', the answer says which one to write.
    """
    shown = {str(known): _shown(known) for known in names}
    found = near(name, shown)
    if (text := str(name)) in found:
        return f"; write {shown[text]}, not {_shown(name)}"
    return f"; did you mean {' or '.join(shown[text] for text in found)}?" if found else ""


def meant_column(name: object, columns: Iterable[str]) -> str:
    """Return what `did_you_mean` says of a column; of a struct or date the columns made of it."""
    names = [*columns]
    if within := [known for known in names if known.startswith(f"{name}.")]:
        return f"; of {_shown(name)} there are {', '.join(map(repr, within[:MOST]))}"
    return did_you_mean(name, names)


def _shown(name: object) -> str:
    return repr(str(name)) if isinstance(name, str) else str(name)


def near(name: object, names: Iterable[object]) -> list[str]:
    """Return the names nearest to one, by difflib whatever their case, the nearest first."""
    known: dict[str, list[str]] = {}
    for text in map(str, names):
        known.setdefault(text.casefold(), []).append(text)
    close = difflib.get_close_matches(str(name).casefold(), known, n=MOST)
    return [text for key in close for text in known[key]][:MOST]


def use_one_of(value: object, choices: Iterable[object]) -> str:
    """Return "use one of 'a', 'b'", and which of them a wrong value is likely to stand for."""
    known = [*choices]
    return f"use one of {', '.join(map(repr, known))}{did_you_mean(value, known)}"
