"""Graphs learned from data: what was asked for, which search finds it, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from fastbayes.core.numbers import check_seed, check_whole, is_number
from fastbayes.core.suggestions import use_one_of
from fastbayes.networks.graph.dag import DAG, pairs
from fastbayes.networks.search.node_rows import ReadOptions, read_rows
from fastbayes.networks.search.score import FamilyScores, ScoreRule, masks_of, members
from fastbayes.networks.search.searches import Climber, Limits, Move, along_order, best_graph, tree
from fastbayes.statistics.bundle import Statistics

SEARCHES = ("hill_climb", "tabu", "k2", "chow_liu", "exact")

Edges = Iterable[tuple[str, str]]


class SearchStep(NamedTuple):
    """One step of a search.

    Parameters
    ----------
    move
        "add", "drop" or "reverse" the edge parent -> node; "restart" goes to another graph, the
        neighbour of the best one so far, with neither parent nor node.
    parent, node
        The ends of the edge.
    gain
        What the score improved by, higher is better whatever the score.
    score
        The score of the graph after it, lower is better for "mdl" and "aic".
    seconds
        Since the search began.
    """

    move: str
    parent: str | None
    node: str | None
    gain: float
    score: float
    seconds: float


@dataclass(frozen=True)
class Learned:
    """A graph found in data.

    Parameters
    ----------
    names
        The nodes, in the order of the columns.
    states
        {node: its values}.
    parents
        {node: its parents}, in the order of the columns.
    score
        The score of the graph, lower is better for "mdl" and "aic".
    trace
        The steps of the search; with restarts the last one need not lead to the best graph.
    statistics
        Counts of the families found, (*parents, node) each, in the order of `names`.
    rows
        Sum of the weights of the rows that the score is of: those without missing values.
    left_out
        Rows with missing values.
    finished
        Whether the search ended before `time_limit` did.
    """

    names: tuple[str, ...]
    states: dict[str, tuple[Any, ...]]
    parents: dict[str, tuple[str, ...]]
    score: float
    trace: tuple[SearchStep, ...]
    statistics: Statistics
    rows: float
    left_out: int
    finished: bool

    def __repr__(self) -> str:
        edges = sum(map(len, self.parents.values()))
        ended = "" if self.finished else ", stopped by the time limit"
        return (
            f"<Learned graph of {len(self.names):,} nodes and {edges:,} edges: score "
            f"{self.score:.6g} after {len(self.trace):,} steps, {self.rows:,.10g} rows{ended}>"
        )


@dataclass(frozen=True, eq=False)
class SearchOptions:
    """What to search for, and how: the options of `BayesianNetwork.learn` about the graph."""

    score: str = "mdl"
    ess: float = 1.0
    search: str = "hill_climb"
    max_parents: int | None = None
    required: Edges = ()
    forbidden: Edges = ()
    order: Sequence[str] | None = None
    start: Any = None
    restarts: int = 20
    seed: int = 0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        search = self.search
        if search not in SEARCHES:
            raise ValueError(f"search={search!r}: {use_one_of(search, SEARCHES)}")
        if search == "k2" and self.order is None:
            raise ValueError(
                "search='k2' chooses parents along an order of the nodes: give order=[...]"
            )
        if self.start is not None and search not in ("hill_climb", "tabu"):
            raise ValueError(f"start: search={search!r} begins nowhere; leave it out")
        if search == "chow_liu" and (
            self.max_parents is not None or [*self.required, *self.forbidden]
        ):
            raise ValueError(
                "search='chow_liu' is a tree over all nodes: leave out required, forbidden and "
                "max_parents, or use another search"
            )
        if self.max_parents is not None:
            check_whole("max_parents", self.max_parents, 0)
        check_whole("restarts", self.restarts, 0)
        check_seed(self.seed)
        seconds = self.time_limit
        if seconds is not None and not (is_number(seconds) and seconds >= 0):
            raise ValueError(f"time_limit={seconds!r}: use seconds >= 0")


def learned(
    source: Any, *, progress: Callable[[SearchStep], object] | None = None, **options: Any
) -> Learned:
    """Learn a graph, by the options of `SearchOptions` and `ReadOptions`.

    What they mean, and what is raised, is said at `BayesianNetwork.learn`. Rows that do not fit in
    half of `memory_limit` are scanned again for every step of the search, which counts all the
    families of the step at once.

    Equal scores are ordered by the names of the nodes, so that neither the order of the columns
    nor of the rows, nor the threads change the graph. A score compares graphs over the same rows
    only: that is why rows are complete, or missing values states.

    Examples
    --------
    >>> table = {"a": list("00110011"), "b": list("00110011"), "c": list("01010101")}
    >>> found = learned(table)
    >>> found.parents
    {'a': (), 'b': ('a',), 'c': ()}
    >>> round(found.score, 6)  # 2 x 8 ln 2, and 4 parameters at ½ ln 8
    15.249238
    """
    return _result(*_searched(source, progress, options))


def learned_parents(source: Any, **options: Any) -> dict[str, tuple[str, ...]]:
    """Return the parents of each node as `learned` finds them; nothing more is counted."""
    scores, parents, _ = _searched(source, None, options)
    return _by_name(scores, parents)


def _searched(
    source: Any, progress: Callable[[SearchStep], object] | None, options: dict[str, Any]
) -> tuple[FamilyScores, list[int], _Watch]:
    """Return what scored families, the parents of each node that were found, and the trace."""
    reads = {field.name for field in fields(ReadOptions)}.intersection(options)
    reading = ReadOptions(**{name: options.pop(name) for name in reads})
    asked = SearchOptions(**options)
    rule = ScoreRule(asked.score, asked.ess)
    rows = read_rows(source, reading)
    names = rows.names
    limits, places = _limits(names, asked)
    begin = _start(asked.start, names, limits)
    scores = FamilyScores(rows, rule)
    watch = _Watch(rule, names, asked.time_limit, progress)
    if asked.search == "chow_liu":
        parents = tree(scores, names, places[0] if places else 0)
        _check_along(parents, limits, names)
    elif asked.search == "exact":
        parents = best_graph(scores, limits)
    elif asked.search == "k2":
        parents = along_order(scores, limits, places, watch)
    else:
        climber = Climber(scores, limits, begin)
        once = climber.climb if asked.search == "hill_climb" else climber.tabu
        if once(watch):
            random = np.random.default_rng(asked.seed)

            def again() -> bool:
                watch(None, climber.score)
                return once(watch)

            climber.restart(random, asked.restarts, again)
        parents = climber.parents
    return scores, parents, watch


class _Watch:
    """Keeps the trace, tells the progress, and watches the clock."""

    def __init__(
        self,
        rule: ScoreRule,
        names: Sequence[str],
        time_limit: float | None,
        progress: Callable[[SearchStep], object] | None,
    ) -> None:
        self.rule, self.names, self.progress = rule, names, progress
        self.time_limit = np.inf if time_limit is None else time_limit
        self.begin = time.perf_counter()
        self.trace: list[SearchStep] = []
        self.finished = True

    def __call__(self, move: Move | None, score: float) -> bool:
        """Say a move, or a restart; return whether to go on."""
        said: tuple[str, str | None, str | None, float] = ("restart", None, None, 0.0)
        if move is not None:
            said = (move.kind, self.names[move.u], self.names[move.v], move.gain)
        seconds = time.perf_counter() - self.begin
        step = SearchStep(*said, self.rule.sign * score, seconds)
        self.trace.append(step)
        if self.progress is not None:
            self.progress(step)
        self.finished = self.finished and seconds < self.time_limit
        return self.finished


def _limits(names: Sequence[str], asked: SearchOptions) -> tuple[Limits, list[int]]:
    must, not_ = (
        masks_of(_parents_of(edges, what), names)
        for what, edges in (("required", asked.required), ("forbidden", asked.forbidden))
    )
    places: list[int] = []
    if asked.order is not None:
        order = [*asked.order]  # an iterator would be at its end after the check
        if len(order) != len(names) or any(name not in order for name in names):
            raise ValueError(f"order={order}: name every one of {list(names)} once")
        places = [names.index(name) for name in order]
        before = 0
        for v in places:
            not_[v] |= ((1 << len(names)) - 1) & ~before & ~(1 << v)
            before |= 1 << v
    most = len(names) if asked.max_parents is None else int(asked.max_parents)
    for v, name in enumerate(names):
        if both := members(must[v] & not_[v]):
            raise ValueError(
                f"the edge {names[both[0]]!r} -> {name!r} is required, and forbidden or against "
                "the order"
            )
        if must[v].bit_count() > most:
            raise ValueError(
                f"node {name!r} has {must[v].bit_count()} required parents, more than "
                f"max_parents={most}"
            )
    DAG(_named(must, names))
    return Limits(must, not_, most), places


def _check_along(parents: Sequence[int], limits: Limits, names: Sequence[str]) -> None:
    """Refuse a tree that goes against the order, of which only the root could be followed."""
    against = [(members(above & limits.forbidden[v]), v) for v, above in enumerate(parents)]
    for us, v in against:
        if us:
            order = list(DAG(_named(parents, names)).order)
            raise ValueError(
                f"the tree that search='chow_liu' finds from {order[0]!r} has the edge "
                f"{names[us[0]]!r} -> {names[v]!r}, against the order: leave the order out, use "
                f"order={order}, or another search"
            )


def _parents_of(edges: Edges, what: str) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for parent, child in pairs(edges, f"{what}: "):
        result.setdefault(child, []).append(parent)
    return result


def _named(masks: Sequence[int], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(names[u] for u in members(masks[v])) for v, name in enumerate(names)}


def _start(start: Any, names: Sequence[str], limits: Limits) -> list[int]:
    if start is None:
        return list(limits.required)
    given = getattr(start, "parents", start)
    masks = masks_of(given if isinstance(given, Mapping) else _parents_of(given, "start"), names)
    for v, name in enumerate(names):
        if masks[v] & limits.forbidden[v]:
            raise ValueError(f"start: node {name!r} has a parent that is forbidden")
        if masks[v].bit_count() > limits.max_parents:
            raise ValueError(f"start: node {name!r} has more than {limits.max_parents} parents")
        masks[v] |= limits.required[v]
    DAG(_named(masks, names))
    return masks


def _by_name(scores: FamilyScores, parents: list[int]) -> dict[str, tuple[str, ...]]:
    """Return the parents of each node, both in the order of the columns."""
    columns = [feature.name for feature in scores.rows.schema.categorical]
    where = {name: j for j, name in enumerate(columns)}
    named = _named(parents, scores.rows.names)
    return {name: tuple(sorted(named[name], key=where.__getitem__)) for name in columns}


def _result(scores: FamilyScores, parents: list[int], watch: _Watch) -> Learned:
    """Return the graph in the order of the columns, with the counts of its families."""
    rows, found = scores.rows, _by_name(scores, parents)
    where, columns = {name: j for j, name in enumerate(found)}, [*found]
    families = [tuple(where[n] for n in (*found[name], name)) for name in columns]
    wanted: dict[str, dict[str, Any]] = {"values": {}, "families": {"families": families}}
    states = dict(zip(rows.names, rows.states, strict=True))
    return Learned(
        names=tuple(columns),
        states={name: states[name] for name in columns},
        parents=found,
        score=scores.rule.sign * scores.total(parents) + 0.0,  # never -0
        trace=tuple(watch.trace),
        statistics=rows.reading.scan(rows.opened, wanted),
        rows=rows.total,
        left_out=rows.left_out,
        finished=watch.finished,
    )
