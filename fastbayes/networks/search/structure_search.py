"""Graphs learned from data: what was asked for, which search finds it, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.search.score import ScoreRule, masks_of, members
from fastbayes.networks.search.search_climb import Climber, Limits, Move
from fastbayes.networks.search.search_exact import best_graph
from fastbayes.networks.search.search_order import along_order, tree
from fastbayes.networks.search.search_rows import CompleteRows, read_rows
from fastbayes.networks.search.search_scores import FamilyScores
from fastbayes.scan import engine
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


def learned(
    source: Any,
    *,
    score: str = "mdl",
    ess: float = 1.0,
    search: str = "hill_climb",
    max_parents: int | None = None,
    required: Edges = (),
    forbidden: Edges = (),
    order: Sequence[str] | None = None,
    start: Any = None,
    restarts: int = 20,
    seed: int = 0,
    time_limit: float | None = None,
    columns: Sequence[str] | None = None,
    sample_weight: Any = None,
    domains: Mapping[str, Any] | None = None,
    categorical: Iterable[str | int] | None = None,
    discretize: Any = None,
    missing: str = "complete",
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    progress: Callable[[SearchStep], object] | None = None,
) -> Learned:
    """Learn a graph.

    Parameters
    ----------
    source
        As in `count`. Every column is a category, whole numbers too.
    score
        "mdl", "aic", "bdeu", "k2" or "loglik"; see `ScoreRule`. "loglik" alone rewards every edge:
        set `max_parents` then.
    ess
        Equivalent sample size of BDeu.
    search
        "hill_climb" adds, drops and reverses edges as long as that gains; "tabu" goes on where
        nothing gains; both do so again from `restarts` graphs near the best one. "k2" chooses
        parents among the nodes before a node in `order`. "chow_liu" is the tree of the highest
        likelihood, whatever the score. "exact" is the best graph of all, to about 20 nodes.
    max_parents
        Most parents of a node.
    required, forbidden
        Edges (parent, child) that the graph must have, and must not have.
    order
        All nodes; edges only go from earlier to later ones. "k2" needs it; of "chow_liu" the first
        is the root (by default the first by name).
    start
        Where "hill_climb" and "tabu" begin: {node: parents}, edges, or an object with `parents`. By
        default without edges but the required ones.
    restarts
        Further climbs of "hill_climb" and "tabu"; 0 is the textbook algorithm.
    seed
        Of what is random about restarts.
    time_limit
        Seconds after which a climb stops; `Learned.finished` tells.
    columns
        Columns to read; all by default.
    sample_weight
        Name of the weight column, or (n_rows,) weights.
    domains
        HasParameters values by column name: they count in |B| even if they never occur.
    categorical
        Names or indices of columns whose fractions are categories.
    discretize
        How columns of fractions become bins: "quantile", "width", ("quantile", n), ("width", n), or
        {column: any of these or cut points}.
    missing
        "complete" leaves out rows with a missing value in any column; "category" makes it a value.
    null_values
        Strings that mean missing.
    filesystem
        A pyarrow or fsspec file system for paths.
    threads
        Worker threads; they never change a bit of the result.
    memory_limit
        Bytes for rows and counts. Rows that do not fit in half of it are scanned again for every
        step of the search, which counts all the families of the step at once.
    progress
        Called with every `SearchStep`, which holds the current score.

    Returns
    -------
    Learned
        The graph, its score, the trace of the search and the counts of the families found.

    Raises
    ------
    ValueError
        When an option cannot be used, or demands contradict each other: the message names them.
    SchemaError
        When a column is not there, or holds fractions.
    DataError, MemoryLimitError
        As `count` does; when no row is complete.

    Notes
    -----
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
    rule = ScoreRule(score, ess)
    _check(search, order, start, required, forbidden, max_parents, restarts, time_limit)
    rows = read_rows(
        source,
        columns=columns,
        sample_weight=sample_weight,
        domains=domains,
        categorical=categorical,
        discretize=discretize,
        missing=missing,
        null_values=null_values,
        filesystem=filesystem,
        threads=threads,
        memory_limit=memory_limit,
    )
    names = rows.names
    limits, places = _limits(rows, required, forbidden, order, max_parents)
    begin = _start(start, names, limits)
    scores = FamilyScores(rows, rule, threads=threads, memory_limit=memory_limit)
    watch = _Watch(rule, names, time_limit, progress)
    if search == "chow_liu":
        parents = tree(scores, names.index(order[0]) if order else 0)
    elif search == "exact":
        parents = best_graph(scores, limits, memory_limit=memory_limit)
    elif search == "k2":
        parents = along_order(scores, limits, places, watch)
    else:
        climber = Climber(scores, limits, begin)
        once = climber.climb if search == "hill_climb" else climber.tabu
        if once(watch):
            random = np.random.default_rng(seed)

            def again() -> bool:
                watch.restarted(climber.score)
                return once(watch)

            climber.restart(random, restarts, again)
        parents = climber.parents
    return _result(rows, scores, parents, watch, threads, memory_limit)


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

    def __call__(self, move: Move, score: float) -> bool:
        return self._tell(move.kind, self.names[move.u], self.names[move.v], move.gain, score)

    def restarted(self, score: float) -> None:
        self._tell("restart", None, None, 0.0, score)

    def _tell(
        self, move: str, parent: str | None, node: str | None, gain: float, score: float
    ) -> bool:
        seconds = time.perf_counter() - self.begin
        step = SearchStep(move, parent, node, gain, self.rule.sign * score, seconds)
        self.trace.append(step)
        if self.progress is not None:
            self.progress(step)
        self.finished = self.finished and seconds < self.time_limit
        return self.finished


def _check(
    search: str,
    order: Sequence[str] | None,
    start: Any,
    required: Edges,
    forbidden: Edges,
    max_parents: int | None,
    restarts: int,
    time_limit: float | None,
) -> None:
    """Raise ValueError where options cannot be used, or not together."""
    if search not in SEARCHES:
        raise ValueError(f"search={search!r}: use one of {', '.join(map(repr, SEARCHES))}")
    if search == "k2" and order is None:
        raise ValueError(
            "search='k2' chooses parents along an order of the nodes: give order=[...]"
        )
    if start is not None and search not in ("hill_climb", "tabu"):
        raise ValueError(f"start: search={search!r} begins nowhere; leave it out")
    if search == "chow_liu" and (max_parents is not None or [*required, *forbidden]):
        raise ValueError(
            "search='chow_liu' is a tree over all nodes: leave out required, forbidden and "
            "max_parents, or use another search"
        )
    for name, value in (("max_parents", max_parents), ("restarts", restarts)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if value is not None and (not whole or value < 0):
            raise ValueError(f"{name}={value!r}: use a whole number >= 0")
    if time_limit is not None and not time_limit >= 0:
        raise ValueError(f"time_limit={time_limit!r}: use seconds >= 0")


def _limits(
    rows: CompleteRows,
    required: Edges,
    forbidden: Edges,
    order: Sequence[str] | None,
    max_parents: int | None,
) -> tuple[Limits, list[int]]:
    """Return what the graph may be, and the nodes in the order given."""
    names = rows.names
    must, not_ = (
        masks_of(_parents_of(edges, what), names)
        for what, edges in (("required", required), ("forbidden", forbidden))
    )
    places: list[int] = []
    if order is not None:
        if sorted(order) != sorted(names):
            raise ValueError(f"order={list(order)}: name every one of {list(names)} once")
        places = [names.index(name) for name in order]
        before = 0
        for v in places:
            not_[v] |= ((1 << len(names)) - 1) & ~before & ~(1 << v)
            before |= 1 << v
    most = len(names) if max_parents is None else int(max_parents)
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


def _parents_of(edges: Edges, what: str) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for edge in edges:
        if isinstance(edge, str) or len(edge) != 2:
            raise ValueError(f"{what}: {edge!r} is no edge: use pairs (parent, child)")
        parent, child = edge
        result.setdefault(child, []).append(parent)
    return result


def _named(masks: Sequence[int], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(names[u] for u in members(masks[v])) for v, name in enumerate(names)}


def _start(start: Any, names: Sequence[str], limits: Limits) -> list[int]:
    """Return the graph to begin with."""
    if start is None:
        return list(limits.required)
    given = getattr(start, "parents", start)
    parents = given if isinstance(given, Mapping) else _parents_of(given, "start")
    masks = masks_of(parents, names)
    for v, name in enumerate(names):
        if masks[v] & limits.forbidden[v]:
            raise ValueError(f"start: node {name!r} has a parent that is forbidden")
        if masks[v].bit_count() > limits.max_parents:
            raise ValueError(f"start: node {name!r} has more than {limits.max_parents} parents")
        masks[v] |= limits.required[v]
    DAG(_named(masks, names))
    return masks


def _result(
    rows: CompleteRows,
    scores: FamilyScores,
    parents: list[int],
    watch: _Watch,
    threads: int | None,
    memory_limit: int | None,
) -> Learned:
    """Return the graph in the order of the columns, with the counts of its families."""
    columns = [feature.name for feature in rows.schema.categorical]
    where = {name: j for j, name in enumerate(columns)}
    named = _named(parents, rows.names)
    found = {name: tuple(sorted(named[name], key=where.__getitem__)) for name in columns}
    families = [tuple(where[n] for n in (*found[name], name)) for name in columns]
    statistics = engine.scan(
        rows.source,
        rows.learning(),
        {"values": {}, "families": {"families": families}},
        threads=threads,
        memory_limit=memory_limit,
    )
    states = dict(zip(rows.names, rows.states, strict=True))
    return Learned(
        names=tuple(columns),
        states={name: states[name] for name in columns},
        parents=found,
        score=scores.rule.sign * scores.total(parents) + 0.0,  # never -0
        trace=tuple(watch.trace),
        statistics=statistics,
        rows=rows.total,
        left_out=rows.left_out,
        finished=watch.finished,
    )
