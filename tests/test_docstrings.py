"""Every public name explains itself, and its Parameters section names its signature exactly."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import fastbayes

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def sections(docstring: str) -> dict[str, str]:
    """Return numpydoc section title -> text."""
    pieces = SECTION.split(inspect.cleandoc(docstring))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def documented(text: str) -> list[str]:
    """Return the names of a Parameters or Attributes section, in order."""
    heads = [line for line in text.splitlines() if line and not line[0].isspace()]
    return [name.strip() for line in heads for name in line.split(":")[0].split(",")]


def declared(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function as numpydoc spells them, without self."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = list(inspect.signature(function).parameters.values())
    return [stars.get(p.kind, "") + p.name for p in parameters if p.name not in ("self", "cls")]


def faults(item: Any, signature: Callable[..., Any] | None, titles: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the docstring of an item called as `signature` says."""
    docstring = getattr(item, "__doc__", None)
    if not docstring or not docstring.strip():
        return ["no docstring"]
    summary = inspect.cleandoc(docstring).split("\n\n")[0]
    found = [] if summary.endswith(".") else [f"the summary is no sentence: {summary!r}"]
    if signature is not None:
        text = sections(docstring)
        names = next((documented(text[title]) for title in titles if title in text), [])
        if names != declared(signature):
            found.append(f"documents {names}, takes {declared(signature)}")
    return found


def public(
    package: Any = fastbayes, prefix: str = ""
) -> Iterator[tuple[str, Any, Callable[..., Any] | None, tuple[str, ...]]]:
    """Yield (name, item, the signature to hold it against, the sections that may list it)."""
    for own in package.__all__:
        name, item = prefix + own, getattr(package, own)
        if inspect.isfunction(item):
            yield name, item, item, ("Parameters",)
        elif inspect.isclass(item):
            exception = issubclass(item, BaseException)
            # The fields of a result are what it holds; nobody builds one by hand.
            titles = (
                ("Parameters", "Attributes") if dataclasses.is_dataclass(item) else ("Parameters",)
            )
            yield name, item, None if exception else item, titles
            yield from methods(name, item)
        elif inspect.ismodule(item):
            yield name, item, None, ()
            yield from public(item, f"{name}.")


def methods(owner: str, cls: type) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    for name, member in inspect.getmembers_static(cls):
        function = getattr(member, "__func__", member)
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{owner}.{name}", member, None, ()
        elif inspect.isfunction(function) and function.__module__.startswith("fastbayes"):
            yield f"{owner}.{name}", function, function, ("Parameters",)


def test_public_names_document_themselves() -> None:
    cases = list(public())
    assert cases
    found = {name: faults(item, signature, titles) for name, item, signature, titles in cases}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def good(a: int, *rest: int, b: int = 0, **options: int) -> None:
    """Do one thing.

    Parameters
    ----------
    a
        First.
    *rest
        More.
    b : int, default 0
        With a colon: still b.
    **options
        Others.

    Returns
    -------
    nothing
    """


def bare(a: int) -> None: ...


def silent(a: int) -> None:
    """Do one thing."""


def stale(a: int) -> None:
    """Do one thing.

    Parameters
    ----------
    a, b
        b is gone.
    """


def vague() -> None:
    """one thing"""


def test_rule_sees_a_fault() -> None:
    assert faults(good, good, ("Parameters",)) == []
    for bad in (bare, silent, stale, vague):
        assert faults(bad, bad, ("Parameters",)), bad.__name__
