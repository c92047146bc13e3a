"""Commands about Bayesian networks: learn, query, sample, show."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, cast

import click

import fastbayes as fb
from fastbayes.cli.help import COMMON, BriefCommand, Group
from fastbayes.cli.options import (
    DATES,
    EXCLUDE,
    FILES,
    FORCE,
    JSON,
    MEMORY_LIMIT,
    THREADS,
    WEIGHT,
    Range,
    check_file,
    defaulted,
    files_of,
    keep_cuts,
    listing,
    method,
    output,
    reader,
    together,
)
from fastbayes.cli.progress import bar
from fastbayes.cli.show import fields, listed, on_terminal, say, show, table
from fastbayes.core.errors import DataError, refuse
from fastbayes.core.suggestions import did_you_mean
from fastbayes.core.text_tables import visible
from fastbayes.networks.formats import format_of
from fastbayes.networks.graph.node_states import NodeStates
from fastbayes.networks.search.score import SCORES
from fastbayes.networks.search.structure_search import SEARCHES
from fastbayes.scan.outputs.row_files import format_of as rows_format

MODEL_SUFFIX = ".fb"


def file_of_network(path: str) -> None:
    """Raise unless a network can be written to a file of this name."""
    if Path(path).suffix.lower() != MODEL_SUFFIX:
        format_of(path, [MODEL_SUFFIX])


def edges(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[Any]:
    """Return a->b as (a, b)."""
    found = []
    for text in value:
        ends = [end.strip() for end in text.split("->")]
        refuse(
            len(ends) != 2 or not all(ends),
            f"{text!r} is no edge; write PARENT->CHILD, in quotes",
            click.BadParameter,
        )
        found.append((ends[0], ends[1]))
    return found


@reader
def cuts(value: str) -> Any:
    """Return how to cut columns where there is no class."""
    without_class = "mdl needs a class; write quantile, width or quantile:20"
    refuse(value.partition(":")[0] == "mdl", without_class, click.BadParameter)
    return method(None, None, value)


def evidence(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is not NODE=STATE."""
    for text in value:
        refuse("=" not in text, f"{text!r}: write NODE=STATE", click.BadParameter)
    return value


EDGES: dict[str, Any] = {"multiple": True, "callback": edges, "metavar": "A->B"}
NETWORK = click.argument("network", type=click.Path())
EVIDENCE = click.option(
    "--evidence",
    "-e",
    multiple=True,
    callback=evidence,
    metavar="NODE=STATE",
    help="What is observed, or a number for its bin; once for each node.",
)
SEED = defaulted("--seed", type=click.IntRange(0), default=0)


def network_from(path: str) -> fb.BayesianNetwork:
    """Return the network in a file, or that of a model, which may be one."""
    if Path(path).suffix.lower() != MODEL_SUFFIX:
        return fb.BayesianNetwork.read(path)
    held = fb.load(path)
    if isinstance(held, fb.BayesianNetwork):
        return held
    refuse(
        not hasattr(held, "to_network"),
        f"{path}: holds {type(held).__name__}, which is no network",
    )
    return cast(fb.BayesianNetwork, held.to_network())


def node_of(network: fb.BayesianNetwork, text: str) -> Any:
    """Return the node of this name; names are text here, whatever they are in the network."""
    found: dict[str, Any] = {str(node): node for node in network.nodes}
    if text not in found:
        nodes = f"{listed([*found])}{did_you_mean(text, found)}"
        raise DataError(f"there is no node {text!r}; there are {nodes}")
    return found[text]


def _state(network: fb.BayesianNetwork, node: Any, text: str) -> Any:
    """Return the state that a text is, or the bin that a number falls into."""
    states = network.states.get(node, ())
    texts = {str(state): state for state in states}
    if text in texts:
        return texts[text]
    known = NodeStates(str(node), states)
    if known.cuts is None:
        those = f"{listed([*texts])}{did_you_mean(text, texts)}"
        raise DataError(f"node {str(node)!r} has no state {text!r}; it has {those}")
    try:
        return states[known.code(_number_or_text(text))]
    except ValueError as error:
        raise DataError(str(error)) from error


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def observed(network: fb.BayesianNetwork, given: Sequence[str]) -> dict[Any, Any]:
    """Return NODE=STATE as {node: state}; names and states may hold equals signs."""
    found: dict[Any, Any] = {}
    known = {str(node): node for node in network.nodes}
    for text in given:
        splits = [(text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "="]
        splits += [(name.strip(), state.strip()) for name, state in splits]
        named = [(name, state) for name, state in splits if name in known] or splits[:1]
        first: DataError | None = None
        for name, wanted in named:
            try:
                node = node_of(network, name)
                state = _state(network, node, wanted)
                break
            except DataError as error:
                first = first or error
        else:
            assert first is not None
            raise first
        refuse(node in found, f"node {name!r} is observed twice")
        found[node] = state
    return found


def _default(function: Any, option: str) -> Any:
    return signature(function).parameters[option].default


@click.group(
    cls=Group,
    examples=[
        "fastbayes network learn penguins.csv --null-values NA \\\n"
        "    --columns species,island,sex -o net.bif",
        "fastbayes network query net.bif --target species",
    ],
)
def network() -> None:
    """Bayesian networks: learn, query, sample, show.

    NETWORK is a file: .bif, .xml (XMLBIF), .xdsl, .uai (which has no names), a model (.fb), or with
    the extra `bn` .net, .dsl or .o3prm.
    """


@network.command(
    cls=BriefCommand,
    examples=[
        "fastbayes network learn penguins.csv --null-values NA \\\n"
        "    --columns species,island,sex -o net.bif",
        "fastbayes network learn penguins.csv --null-values NA \\\n"
        "    --discretize quantile -o numbers.bif",
        "fastbayes network learn penguins.csv --null-values NA \\\n"
        "    --columns island,sex --score bdeu -o n.fb",
    ],
)
@click.argument("data")
@output("File to write: .bif, .xml, or .fb, which keeps numbers as numbers, too.", file_of_network)
@defaulted("--score", type=click.Choice([*SCORES]), default="mdl", **COMMON)
@defaulted("--search", type=click.Choice([*SEARCHES]), default="hill_climb", **COMMON)
@click.option("--max-parents", type=click.IntRange(0), help="Most parents of a node.", **COMMON)
@click.option("--required", help="An edge that the graph must have.", **EDGES)
@click.option("--forbidden", help="An edge that it must not have.", **EDGES)
@listing(
    "--order", help="All nodes: edges only go from earlier to later ones. --search k2 needs it."
)
@defaulted(
    "--restarts",
    type=click.IntRange(0),
    default=_default(fb.BayesianNetwork.learn, "restarts"),
    help="Further climbs, from graphs near the best one.",
)
@SEED
@click.option(
    "--time-limit",
    type=Range(0, min_open=True),
    metavar="SECONDS",
    help="Stop climbing then.",
)
@defaulted("--alpha", type=Range(0), default=1.0, help="Pseudo-count of every cell of a table.")
@defaulted(
    "--prior",
    type=click.Choice(["laplace", "bdeu"]),
    default="laplace",
    help="Add alpha to every cell, or spread ess over the cells of each table.",
)
@defaulted(
    "--ess",
    type=Range(0, min_open=True),
    default=1.0,
    help="Equivalent sample size of bdeu, as score and as prior.",
)
@listing("--columns", help="Columns to read, the nodes, by names or patterns ('id_*').", **COMMON)
@EXCLUDE
@listing("--categorical", help="Columns whose numbers are states, by names or patterns.", **COMMON)
@click.option(
    "--discretize",
    callback=cuts,
    metavar="quantile[:N]|width[:N]|FILE",
    help="How other columns of numbers become bins.",
    **COMMON,
)
@DATES
@defaulted(
    "--missing",
    type=click.Choice(["complete", "category"]),
    default="complete",
    help="Search without rows that miss a value, which tables count, or make it a state.",
    **COMMON,
)
@together(
    WEIGHT,
    listing("--null-values", help="Texts that mean missing."),
    FILES,
    MEMORY_LIMIT,
    THREADS,
    FORCE,
    JSON,
)
def learn(data: str, output: str, force: bool, as_json: bool, **options: Any) -> None:
    """Learn graph and tables from DATA, every column of which is a node.

    Numbers, whole ones too, are cut into bins (--discretize), or named in --categorical.
    """
    check_file(output, data, force=force)
    keep_cuts(options)
    source = files_of(data, options)
    with _steps() as progress:
        found = fb.BayesianNetwork.learn(source, progress=progress, **options)
    if output.lower().endswith(MODEL_SUFFIX):
        found.save(output, force=force)
    else:
        found.write(output, force=force)
    search = found.search_
    if not search.finished:
        say("note: the time limit ended the search; a longer one may find a better graph")
    summary = {
        "nodes": len(found.nodes),
        "edges": found.edges,
        "parameters": found.n_parameters(),
        options["score"]: search.score,
        "rows": search.rows,
        "rows_left_out": search.left_out,
        "steps": len(search.trace),
        "finished": search.finished,
        "output": output,
    }
    shown = {**summary, "edges": len(found.edges)}
    show(summary, as_json, [*fields(shown), *_families(found)])


@contextmanager
def _steps() -> Iterator[Callable[[Any], object] | None]:
    """Show the current score on a terminal; else nothing."""
    quiet = click.get_current_context().find_root().params.get("quiet")
    if quiet or not on_terminal(sys.stderr):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc="learning", unit=" steps", ncols=80, nrows=24, file=sys.stderr) as shown:

        def update(step: Any) -> None:
            shown.set_postfix_str(f"score {step.score:,.6g}", refresh=False)
            shown.update()

        yield update


def _families(network: fb.BayesianNetwork) -> Iterator[str]:
    for node, above in network.parents.items():
        if above:
            yield f"  {node} given {listed([*map(str, above)])}"


@network.command(
    cls=BriefCommand,
    examples=[
        "fastbayes network query net.bif --target species",
        "fastbayes network query net.bif -t species -e island=Biscoe -e sex=male",
        "fastbayes network query numbers.bif -t species -e body_mass_g=4200",
    ],
)
@NETWORK
@click.option(
    "--target",
    "-t",
    "targets",
    multiple=True,
    metavar="NODE",
    help="A node asked for; of several the joint distribution. Default: --marginals.",
)
@click.option(
    "--marginals",
    is_flag=True,
    help="Each node by itself: the targets, or all nodes that are not observed.",
)
@EVIDENCE
@defaulted(
    "--method",
    "how",
    type=click.Choice(["exact", "gibbs", "likelihood_weighting"]),
    default="exact",
)
@click.option(
    "--draws",
    type=click.IntRange(1),
    help=f"Draws to retain; default: {_default(fb.BayesianNetwork.query, 'draws'):,}.",
)
@click.option("--burn-in", type=click.IntRange(0), help="Sweeps before the first one; gibbs.")
@click.option("--thin", type=click.IntRange(1), help="Retain one sweep of so many; gibbs.")
@click.option("--chains", type=click.IntRange(1), help="Chains; gibbs.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the draws; default: 0.")
@THREADS
@JSON
@click.pass_context
def query(
    ctx: click.Context,
    /,
    network: str,
    targets: tuple[str, ...],
    marginals: bool,
    evidence: tuple[str, ...],
    how: str,
    as_json: bool,
    threads: int | None,
    **options: Any,
) -> None:
    """Say how probable the states of nodes are, given what is observed."""
    shared = {name: value for name, value in options.items() if value is not None}
    alone = {"burn_in", "thin", "chains"} if how != "gibbs" else set()
    for name in shared if how == "exact" else shared.keys() & alone:
        option = f"--{name.replace('_', '-')}"
        raise click.UsageError(f"{option} does not go with --method {how}", ctx)
    held = network_from(network)
    asked = [node_of(held, name) for name in targets]
    given = observed(held, evidence)
    random = {} if how == "exact" else {"seed": 0, "threads": threads, **shared}
    if marginals or not asked:
        found = held.marginals(given, asked or None, how, **random)
        about: dict[str, Any] = {"targets": [*found]}
        log_evidence = found.log_evidence
        rows, lines = found.table, found.text().splitlines()
    else:
        answer = held.query(asked, given, how, **random)
        about, log_evidence = {"targets": answer.targets}, answer.log_evidence
        rows, lines = answer.table, str(answer).splitlines()
    about |= {"evidence": given, "method": how, "log_evidence": log_evidence}
    if given and log_evidence is not None:
        lines.append(f"P(evidence)  {math.exp(log_evidence):.6g}")
    show({**about, "answer": rows.to_pylist()}, as_json, lines)


@network.command(
    cls=BriefCommand,
    examples=[
        "fastbayes network sample net.bif --rows 1000 -o sampled.csv",
        "fastbayes network sample net.bif --rows 9 -e species=Gentoo -o gentoo.csv",
    ],
)
@NETWORK
@click.option("--rows", type=click.IntRange(0), required=True, help="Number of rows.")
@output("File to write: .parquet, .arrow, .csv or .jsonl.", rows_format)
@EVIDENCE
@SEED
@THREADS
@FORCE
@JSON
def sample(
    network: str,
    rows: int,
    output: str,
    evidence: tuple[str, ...],
    seed: int,
    threads: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Draw rows, of those in which the evidence holds; memory holds a few blocks of them.

    The same seed draws the same rows.
    """
    check_file(output, network, force=force)
    held = network_from(network)
    given = observed(held, evidence)
    with bar("drawing", rows) as progress:
        held.sample_to(output, rows, given, seed, force=force, threads=threads, progress=progress)
    summary = {"rows": rows, "columns": [*held.nodes], "evidence": given, "output": output}
    show(summary, as_json, fields({**summary, "columns": len(held.nodes)}))


@network.command(
    "show",
    cls=BriefCommand,
    examples=[
        "fastbayes network show net.bif",
        "fastbayes network show net.bif --dot",
        "fastbayes network show net.bif --separated sex island --given species",
    ],
)
@NETWORK
@click.option("--dot", is_flag=True, help="Print the graph for Graphviz.")
@click.option(
    "--separated",
    nargs=2,
    metavar="A B",
    help="Say whether two nodes are independent by the graph.",
)
@click.option("--given", multiple=True, metavar="NODE", help="Given this node, too.")
@JSON
@click.pass_context
def display(
    ctx: click.Context,
    /,
    network: str,
    dot: bool,
    separated: tuple[str, str] | None,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show nodes, states, edges and parameters, the graph, or what is independent of what."""
    if dot and (as_json or separated):
        raise click.UsageError("--dot is alone: it prints the graph", ctx)
    if given and not separated:
        raise click.UsageError("--given goes with --separated", ctx)
    held = network_from(network)
    if dot:
        # Exact for whoever reads it, harmless where a terminal does.
        as_text = visible if on_terminal(sys.stdout) else str
        click.echo("\n".join(map(as_text, held.to_dot().split("\n"))))
        return
    if separated:
        x, y = (node_of(held, name) for name in separated)
        z = [node_of(held, name) for name in given]
        independent = held.d_separated([x], [y], z)
        said = "independent" if independent else "dependent"
        line = f"{x} and {y} are {said}" + (f" given {listed([*map(str, z)])}" if z else "")
        show({"x": x, "y": y, "given": z, "independent": independent}, as_json, [line])
        return
    describe(held, as_json)


def describe(held: fb.BayesianNetwork, as_json: bool) -> None:
    """Show nodes, states, edges and parameters of a network."""
    summary = {
        "nodes": len(held.nodes),
        "edges": held.edges,
        "parameters": held.n_parameters() if held.tables else None,
        "columns": {
            str(node): {
                "states": held.states.get(node),
                "parents": held.parents[node],
                "children": held.children[node],
            }
            for node in held.nodes
        },
    }
    shown = {**summary, "edges": len(held.edges), "columns": None}
    show(summary, as_json, [*fields(shown), *_nodes(held)])


def _nodes(network: fb.BayesianNetwork) -> Iterator[str]:
    given = any(network.parents.values())
    yield from table(
        [
            (
                str(node),
                *([_given(network, node)] if given else []),
                *([_states(network, node)] if network.states else []),
            )
            for node in network.nodes
        ]
    )


def _given(network: fb.BayesianNetwork, node: Any) -> str:
    above = network.parents[node]
    return f"given {listed([*map(str, above)])}" if above else ""


def _states(network: fb.BayesianNetwork, node: Any) -> str:
    states = [str(state) for state in network.states[node]]
    return f"{len(states):,} state{'s' * (len(states) != 1)}: {listed(states)}"


COMMANDS = (network,)
