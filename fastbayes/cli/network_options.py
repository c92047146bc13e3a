"""Options of the commands about networks, and what their values mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli.show import listed
from fastbayes.cli.values import method
from fastbayes.core.errors import DataError
from fastbayes.networks.formats import format_of

MODEL_SUFFIX = ".fb"

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def by_suffix(check: Callable[[str], object]) -> Callback:
    """Return a callback that refuses an output whose name says no format."""

    def apply(_: click.Context, __: click.Parameter, value: str) -> str:
        try:
            check(value)
        except DataError as error:
            raise click.BadParameter(str(error)) from error
        return value

    return apply


def file_of_network(path: str) -> None:
    """Raise unless a network can be written to a file of this name."""
    if Path(path).suffix.lower() != MODEL_SUFFIX:
        format_of(path)


def edges(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[Any]:
    """Return a->b as (a, b)."""
    found = []
    for text in value:
        ends = [end.strip() for end in text.split("->")]
        if len(ends) != 2 or not all(ends):
            raise click.BadParameter(f"{text!r} is no edge; write PARENT->CHILD, in quotes")
        found.append((ends[0], ends[1]))
    return found


def cuts(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Return how to cut columns where there is no class."""
    if value is not None and value.partition(":")[0] == "mdl":
        raise click.BadParameter("mdl needs a class; write quantile, width or quantile:20")
    return method(ctx, parameter, value)


def evidence(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is not NODE=STATE."""
    for text in value:
        if "=" not in text:
            raise click.BadParameter(f"{text!r}: write NODE=STATE")
    return value


NETWORK = click.argument("network", type=click.Path())
EVIDENCE = click.option(
    "--evidence",
    "-e",
    multiple=True,
    callback=evidence,
    metavar="NODE=STATE",
    help="What is observed; once for each node.",
)
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True)


def network_from(path: str) -> fb.BayesianNetwork:
    """Return the network in a file, or that of a model, which may be one."""
    if Path(path).suffix.lower() != MODEL_SUFFIX:
        return fb.BayesianNetwork.read(path)
    held = fb.load(path)
    if isinstance(held, fb.BayesianNetwork):
        return held
    if not hasattr(held, "to_network"):
        raise DataError(f"{path}: holds {type(held).__name__}, which is no network")
    made: fb.BayesianNetwork = held.to_network()
    return made


def node_of(network: fb.BayesianNetwork, text: str) -> Any:
    """Return the node of this name; names are text here, whatever they are in the network."""
    found: dict[str, Any] = {str(node): node for node in network.nodes}
    if text not in found:
        raise DataError(f"there is no node {text!r}; there are {listed([*found])}")
    return found[text]


def _texts(network: fb.BayesianNetwork, node: Any) -> dict[str, Any]:
    """Return the states of a node by what they are as text."""
    return {str(state): state for state in network.states.get(node, ())}


def observed(network: fb.BayesianNetwork, given: Sequence[str]) -> dict[Any, Any]:
    """Return NODE=STATE as {node: state}; names and states may hold equals signs."""
    found: dict[Any, Any] = {}
    known = {str(node): node for node in network.nodes}
    for text in given:
        splits = [(text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "="]
        splits += [(name.strip(), state.strip()) for name, state in splits]
        named = [(name, state) for name, state in splits if name in known] or splits[:1]
        name, wanted = next(
            ((n, s) for n, s in named if n in known and s in _texts(network, known[n])), named[0]
        )
        node = node_of(network, name)
        states = _texts(network, node)
        if wanted not in states:
            raise DataError(f"node {name!r} has no state {wanted!r}; it has {listed([*states])}")
        if node in found:
            raise DataError(f"node {name!r} is observed twice")
        found[node] = states[wanted]
    return found
