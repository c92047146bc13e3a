"""What a network learns from data: its tables, and how well its graph fits them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.iteration import Convergence, check_iteration
from fastbayes.core.picks import Picks, several
from fastbayes.networks.graph.coded import Floats, Ints, from_counts, rows_of
from fastbayes.networks.graph.dag import DAG, ordered_parents
from fastbayes.networks.graph.parameters import Completed, TablePrior, by_expectation
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.search.node_rows import ReadOptions, Wide, held, read_rows, states_of
from fastbayes.networks.search.score import FamilyScores, ScoreRule, family_score, masks_of
from fastbayes.networks.search.structure_search import Edges, Learned, learned
from fastbayes.scan.request import Progress
from fastbayes.statistics.bundle import Statistics


class LearnMixin(NetworkTables):
    """A network that learns its tables, and its graph, from data."""

    # What the search of `learn` found, and the way to it.
    search_: Learned

    def fit(
        self,
        data: Any,
        *,
        alpha: float = 1.0,
        prior: str = "laplace",
        ess: float = 1.0,
        missing: str = "available",
        categorical: Picks = None,
        discretize: Any = None,
        sample_weight: Any = None,
        domains: Mapping[str, Any] | None = None,
        null_values: Sequence[str] | None = None,
        filesystem: Any = None,
        tol: float = 1e-10,
        max_iter: int = 10_000,
        threads: int | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn the tables of the graph.

        Parameters
        ----------
        data
            As `source` in `fastbayes.count`, a column for each node; other columns are not read.
            Numbers, whole ones too, are not states unless `categorical` or `domains` names their
            column, `discretize` cuts it, or the network has states of the node already: these
            stay what they are, values or bins. A node "when.hour" is that part of a column "when"
            of dates or times, where it is no column itself; parts are as in `fastbayes.count`.
        alpha
            Added to every count (Laplace); 0 is maximum likelihood.
        prior
            "laplace", or "bdeu", which spreads `ess` over the cells of each table.
        ess
            Equivalent sample size of "bdeu", in weight units.
        missing
            "available" counts a row in those families in which it has no missing value; "em"
            fills in missing values by expectation maximisation, exactly, which networks with few
            missing values in a row can; "category" makes missing a state, None. Where a network
            was made with the state None, it is one of "available", too, and none of "em".
        categorical
            Names, patterns or indices of columns whose numbers are states. In CSV, a state is the
            text that stands there.
        discretize
            How other columns of numbers become bins: "quantile", "width", ("quantile", n),
            ("width", n), or {column: one of these or its cut points}. None refuses them, but where
            the network has bins.
        sample_weight
            Name of the weight column, or (n_rows,) weights.
        domains
            {node: its states}; those of a network that was made with states are declared so, and
            others, observed. A value outside is an error.
        null_values
            Strings that mean missing.
        filesystem
            A pyarrow or fsspec file system for paths.
        tol
            Expectation maximisation stops where a step changes no probability by more than this.
        max_iter
            Its steps, at most; then there is a warning, and the best tables seen are kept.
        threads
            Worker threads; they never change a bit of the result.
        memory_limit
            Bytes that the counts may take.
        progress
            Called with the number of rows done since the last call.

        Returns
        -------
        Self
            This network, with `states`, `tables`, and `statistics_`, from which they come.
            `converged_`, `n_iter_` and `trace_` tell how "em" went: whether it got where `tol`
            says, its steps, and, of the first tables and after every step, the log likelihood of
            the rows (plus alpha, or what "bdeu" adds to a cell, times the sum of the log
            probabilities). Counting is one step, without a trace.

        Raises
        ------
        SchemaError
            When a column is not there, or holds numbers that are neither cut nor states.
        MemoryLimitError
            When the counts do not fit, before they are allocated, and a family alone takes them;
            the message names it by its last column.
        DataError
            When there are no rows, or all weigh nothing; when a value lies outside a declared
            domain.

        Warns
        -----
        ConvergenceWarning
            When `max_iter` steps of expectation maximisation were not enough.

        Notes
        -----
        One scan; memory is that of the tables, and with "em" that of the different rows. A
        configuration of parents that never occurs has the row of the prior, 1 / r. Expectation
        maximisation climbs from tables of the rows in which a family is observed to one of several
        local optima. A node that no row observes has states from `domains`, whose labels are
        arbitrary: tables of its children begin with draws, always the same ones. Where the
        counts of all families do not fit, the widest ones are counted apart, in a scan each, and
        only configurations that occur are kept (`SparseTable`): `statistics_` is without these.

        References
        ----------
        Heckerman, Geiger, Chickering (1995), Learning Bayesian networks, section 5. Varadhan,
        Roland (2008), Simple and globally convergent methods for accelerating the convergence of
        any EM algorithm, Scandinavian Journal of Statistics 35.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> data = {"rain": ["no", "no", "no", "yes"], "wet": [False, True, False, True]}
        >>> network = BayesianNetwork.from_edges([("rain", "wet")]).fit(data, alpha=0)
        >>> network.tables["rain"].tolist()
        [0.75, 0.25]
        >>> network.query("rain", {"wet": True}).probability({"rain": "yes"})
        0.5
        """
        rule = TablePrior(prior, alpha, ess)
        rule.check()
        if missing not in ("available", "em", "category"):
            raise ValueError(f"missing={missing!r}: use 'available', 'em' or 'category'")
        check_iteration(tol, max_iter)
        if not self.nodes:
            raise ValueError("the graph has no node: there is nothing to learn")
        families = {node: (*self.parents[node], node) for node in self.nodes}
        reading = self._as_known(
            categorical=categorical,
            discretize=discretize,
            sample_weight=sample_weight,
            domains=domains,
            missing=missing,
            null_values=null_values,
            filesystem=filesystem,
            threads=threads,
            memory_limit=memory_limit,
            progress=progress,
        )
        if missing != "em":
            stats, wide = reading.counted_apart(data, families)
            return self._take(stats, rule, wide=wide, missing=missing)
        stats = reading.counted(data, self.nodes, families.values(), cells=self.nodes)
        places = self._ordered_states(stats, missing)[1]
        cells = stats.cells
        names = [stats.schema.names[j] for j in cells.columns]
        codes = [_placed(cells.keys[:, names.index(n)], places[n]) for n in self.nodes]
        place = {node: i for i, node in enumerate(self.nodes)}
        never = {n for n, column in zip(self.nodes, codes, strict=True) if column.max() < 0}
        found = by_expectation(
            Completed(np.stack(codes, axis=1), cells.counts[:, 0]),
            [str(node) for node in self.nodes],
            [tuple(place[p] for p in self.parents[node]) for node in self.nodes],
            [*self._first_tables(self._counts(stats, places, {}), never)],
            rule,
            tol=tol,
            max_iter=max_iter,
        )
        tables = dict(zip(self.nodes, found.point, strict=True))
        self._take(stats, rule, tables, convergence=found, missing=missing)
        found.warn()
        return self

    def _first_tables(
        self, counts: Iterable[tuple[str, Any, Any]], never: Container[str]
    ) -> Iterator[Floats]:
        """Yield the tables that expectation maximisation begins with: no cell of them is closed.

        They are those of the rows in which a family is observed. Of children of nodes that `never`
        are there is no such row. Even tables of these are a saddle point, at which the states of
        the parent are alike, and no step leaves it: theirs are drawn, always the same.
        """
        even, random = TablePrior("bdeu", ess=1.0), np.random.default_rng(0)
        for node, table, _ in counts:
            if any(parent in never for parent in self.parents[node]):
                yield random.dirichlet(np.ones(table.shape[-1]), table.shape[:-1])
            else:
                yield even.table(table)

    def _take(
        self,
        stats: Statistics,
        rule: TablePrior,
        tables: Mapping[str, Any] | None = None,
        wide: Mapping[str, Wide] | None = None,
        convergence: Convergence | None = None,
        missing: str = "category",
    ) -> Self:
        """Set states and tables, those of the counts unless given, and how they were found."""
        states, places = self._ordered_states(stats, missing)
        if tables is None:
            tables = {
                node: rule.table(counts)
                if cells is None
                else from_counts(*cells, rule.of_cell(math.prod(cells[0])))
                for node, counts, cells in self._counts(stats, places, wide or {})
            }
        self._fill(states, tables)
        self.statistics_ = stats
        vars(self).update((convergence or Convergence()).attributes())
        return self

    def _counts(
        self, stats: Statistics, places: Mapping[str, Ints], wide: Mapping[str, Wide]
    ) -> Iterator[tuple[str, Any, tuple[list[int], Ints, Any] | None]]:
        """Yield each node with the counts of its family, states in the network's order.

        Of a wide family there are shape, codes and counts of the cells that are known instead.
        """
        groups = itertools.count()
        for node in self.nodes:
            family = (*self.parents[node], node)
            if node not in wide:
                counts = stats.families.group(next(groups))[..., 0]
                # A declared state beyond those that were counted: None, where nothing is missing.
                more = [
                    (0, max(0, int(places[n].max()) + 1 - size))
                    for n, size in zip(family, counts.shape, strict=True)
                ]
                counts = np.pad(counts, more)[np.ix_(*(places[n] for n in family))]
                yield node, np.ascontiguousarray(counts), None
                continue
            columns = zip(wide[node].codes.T, family, strict=True)
            codes = np.stack([_placed(column, places[n]) for column, n in columns], axis=1)
            known = (codes >= 0).all(axis=1)
            shape = [len(places[n]) for n in family]
            yield node, None, (shape, codes[known], wide[node].counts[known])

    def _as_known(
        self, *, categorical: Picks, domains: Mapping[str, Any] | None, missing: str, **options: Any
    ) -> ReadOptions:
        """Return how data are read where the options leave open what the states say.

        States that were given are declared. Nodes that have bins keep them; the numbers of others
        that have states are categories.
        """
        if missing == "available" and any(None in states for states in self._declared.values()):
            missing = "category"  # counts of missing values that are no state are left out later
        bins = {n: cuts for n, cuts in self._cuts.items() if n not in (domains or {})}
        known = {n: [v for v in s if v is not None] for n, s in self._declared.items()}
        known = {n: values for n, values in known.items() if n not in bins}
        others = [n for n in self.states if n not in bins and n not in known]
        texts = [n for n in others if any(isinstance(v, str) for v in self.states[n])]
        return ReadOptions(
            categorical=[*texts, *several(categorical)],
            categories=others,
            bins=bins,
            dates=self._parts,
            domains=known | dict(domains or {}),
            missing=missing,
            **options,
        )

    def _ordered_states(
        self, stats: Statistics, missing: str
    ) -> tuple[dict[str, list[Any]], dict[str, Ints]]:
        """Return the states of each node, declared and kept ones in order, and their codes.

        None is a state where `missing`, as the user said it, is "category" and a value is missing,
        and where it was declared: one that was not counted has the code after all others.
        """
        found = states_of(stats)
        kept = {**{n: self.states.get(n, ()) for n in self._cuts}, **self._declared}
        states, places = {}, {}
        for node in self.nodes:
            codes = {value: code for code, value in enumerate(found[node])}
            gap = None in self._declared.get(node, ()) and missing in ("available", "category")
            if gap:
                codes.setdefault(None, len(codes))
            elif missing != "category":
                codes.pop(None, None)
            # Decimals are counted as the floats that they are nearest to.
            mine = [float(v) if isinstance(v, Decimal) else v for v in kept.get(node, ())]
            listed = dict.fromkeys([*(v for v in mine if v in codes), *codes])
            states[node] = [*listed]
            places[node] = np.array([codes[value] for value in listed], np.int64)
        return states, places

    def score(
        self,
        data: Any,
        score: str = "mdl",
        *,
        ess: float = 1.0,
        missing: str = "complete",
        categorical: Picks = None,
        discretize: Any = None,
        sample_weight: Any = None,
        domains: Mapping[str, Any] | None = None,
        null_values: Sequence[str] | None = None,
        filesystem: Any = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> float:
        """Return how well the graph fits data; the tables play no part.

        Parameters
        ----------
        data
            As in `fit`.
        score
            "mdl", the description length, ½ ln N |B| - LL, which is -BIC, where N is the sum of
            the weights, but at least 1; "aic", |B| - LL; both are better where lower. "loglik", LL;
            "bdeu" and "k2", ln P(data | graph); these are better where higher.
        ess
            Equivalent sample size of "bdeu".
        missing
            "complete" leaves out rows with a missing value, as `learn` does: scores of several
            graphs are of the same rows then. "available" and "category" are as in `fit`.
        categorical, discretize, sample_weight, domains, null_values, filesystem
            As in `fit`.
        threads, memory_limit, progress
            As in `fit`.

        Returns
        -------
        float
            Nats. |B| counts all configurations of parents, those included that never occur.

        Raises
        ------
        SchemaError
            When a column is not there, or holds numbers that are neither cut nor states.
        DataError
            When there are no rows, or none is complete.
        MemoryLimitError
            When the counts do not fit; the message names the family by its last column.

        Notes
        -----
        One scan; with "complete", and values that are missing, two more.

        References
        ----------
        Rissanen (1978); Schwarz (1978); Cooper, Herskovits (1992), equation 8; Heckerman, Geiger,
        Chickering (1995), equation 28.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> data = {"a": list("nnyy"), "b": list("nnyy")}
        >>> tied, apart = ([("a", "b")], []), ([], ["a", "b"])
        >>> [round(BayesianNetwork.from_edges(*g).score(data), 3) for g in (tied, apart)]
        [4.852, 6.931]
        """
        rule = ScoreRule(score, ess)
        if missing not in ("complete", "available", "category"):
            raise ValueError(f"missing={missing!r}: use 'complete', 'available' or 'category'")
        if not self.nodes:
            raise ValueError("the graph has no node: there is nothing to score")
        families = {node: (*self.parents[node], node) for node in self.nodes}
        if missing == "complete":
            data = held(data)
        reading = self._as_known(
            categorical=categorical,
            discretize=discretize,
            sample_weight=sample_weight,
            domains=domains,
            missing=missing,
            null_values=null_values,
            filesystem=filesystem,
            threads=threads,
            memory_limit=memory_limit,
            progress=progress,
        )
        stats, wide = reading.counted_apart(data, families)
        if missing == "complete" and stats.values.missing.any():
            rows = read_rows(data, replace(reading.of_nodes(self.nodes), progress=None))
            scores = FamilyScores(rows, rule)
            return rule.sign * scores.total(masks_of(self.parents, rows.names)) + 0.0  # never -0
        _, places = self._ordered_states(stats, missing)
        total = float(stats.n_rows)
        parts = []
        for _, counts, cells in self._counts(stats, places, wide):
            above = None
            if cells is not None:
                counts, above = rows_of(*cells)[1], math.prod(cells[0][:-1])
            parts.append(family_score(counts, rule, total, above))
        return rule.sign * math.fsum(parts) + 0.0  # never -0

    @classmethod
    def learn(
        cls,
        data: Any,
        score: str = "mdl",
        search: str = "hill_climb",
        *,
        max_parents: int | None = None,
        required: Edges = (),
        forbidden: Edges = (),
        order: Sequence[str] | None = None,
        start: Any = None,
        restarts: int = 20,
        seed: int = 0,
        time_limit: float | None = None,
        alpha: float = 1.0,
        prior: str = "laplace",
        ess: float = 1.0,
        columns: Picks = None,
        exclude: Picks = None,
        dates: Mapping[str, Any] | None = None,
        sample_weight: Any = None,
        domains: Mapping[str, Any] | None = None,
        categorical: Picks = None,
        discretize: Any = None,
        missing: str = "complete",
        null_values: Sequence[str] | None = None,
        filesystem: Any = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Self:
        """Learn a graph, and its tables, from data.

        Parameters
        ----------
        data
            As `source` in `fastbayes.count`; every column is a node. Numbers, whole ones too, are
            not states unless `categorical` or `domains` names their column, or `discretize` cuts
            it.
        score
            "mdl", "aic", "bdeu", "k2" or "loglik", as in `score`.
        search
            "hill_climb", "tabu", both with `restarts`; "k2" chooses parents along `order`;
            "chow_liu" is the tree of the highest likelihood; "exact" the best graph of all, to
            about 20 nodes.
        max_parents
            Most parents of a node.
        required, forbidden
            Edges (parent, child) that the graph must have, and must not have.
        order
            All nodes: edges only go from earlier to later ones. The tree of "chow_liu" begins at
            the first, and is refused where it goes against the others.
        start
            The graph that climbs begin with: {node: parents}, edges, or a network.
        restarts
            Further climbs from graphs near the best one, which lack some of its edges or have
            others besides; 0 is the textbook algorithm.
        seed
            Seed of the restarts.
        time_limit
            Seconds after which a climb stops.
        alpha, prior
            Of the tables, as in `fit`.
        ess
            Equivalent sample size of "bdeu", as score and as prior.
        columns, exclude
            Columns to read, all by default, and those to leave out: by names, patterns ("id_*") or
            indices.
        dates
            {column of dates or times: its parts}, which are nodes, "when.weekday"; by default those
            that the span of the column says; see `fastbayes.count`.
        sample_weight
            Name of the weight column, or (n_rows,) weights.
        domains
            {column: its values}.
        categorical
            Names, patterns or indices of columns whose numbers are states, as in `fit`.
        discretize
            How other columns of numbers become bins, as in `fit`; None refuses them.
        missing
            "complete" searches among the rows without a missing value; the tables then count all
            rows, as "available" of `fit` does. "category" makes missing a state, None.
        null_values
            Strings that mean missing.
        filesystem
            A pyarrow or fsspec file system for paths.
        threads
            Worker threads; they never change a bit of the result.
        memory_limit
            Bytes for rows and counts.
        progress
            Called with every step of the search.

        Returns
        -------
        Self
            The network; `search_` holds the score, the trace of the search and the counts.

        Raises
        ------
        ValueError
            When an option cannot be used, or demands contradict each other.
        SchemaError
            When a column is not there, or holds numbers that are neither cut nor states.
        DataError, MemoryLimitError
            As `fastbayes.count` does; when no row is complete.

        References
        ----------
        Chow, Liu (1968); Cooper, Herskovits (1992); Silander, Myllymäki (2006); Glover (1989).

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> table = {"a": list("00110011"), "b": list("00110011"), "c": list("01010101")}
        >>> BayesianNetwork.learn(table).edges
        [('a', 'b')]
        """
        rule = TablePrior(prior, alpha, ess)
        rule.check()
        found = learned(
            data,
            score=score,
            ess=ess,
            search=search,
            max_parents=max_parents,
            required=required,
            forbidden=forbidden,
            order=order,
            start=start,
            restarts=restarts,
            seed=seed,
            time_limit=time_limit,
            columns=columns,
            exclude=exclude,
            dates=dates,
            sample_weight=sample_weight,
            domains=domains,
            categorical=categorical,
            discretize=discretize,
            missing=missing,
            null_values=null_values,
            filesystem=filesystem,
            threads=threads,
            memory_limit=memory_limit,
            progress=progress,
        )
        network = cls._of({name: found.parents[name] for name in found.names})
        network._take(found.statistics, rule)
        network.search_ = found
        return network

    @classmethod
    def from_order(cls, order: Sequence[str], source: Any, **options: Any) -> Self:
        """Return a network in which the parents of a node come before it, and are the fewest.

        Parameters
        ----------
        order
            The nodes.
        source
            A network or graph, whose d-separations are the independences; a function
            independent(x, y, given), which says them of a distribution; or data, from which K2
            chooses the parents by their score.
        **options
            With data, those of `learn`: `score`, `max_parents`, `required`, `forbidden`, `alpha`
            and so on.

        Returns
        -------
        Self
            From a network or a function the graph alone, to be `fit`; from data also the tables.

        Raises
        ------
        ValueError
            When the order does not name every node once.

        References
        ----------
        Pearl (1988), section 3.3. Cooper, Herskovits (1992).

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> alarm = [("B", "A"), ("E", "A"), ("A", "J"), ("A", "M")]
        >>> alarm = BayesianNetwork.from_edges(alarm)
        >>> orders = "BEAJM", "MJABE", "MJEBA"
        >>> [BayesianNetwork.from_order(o, alarm).n_parameters(2) for o in orders]
        [10, 13, 31]
        """
        if not (isinstance(source, DAG) or callable(source)):
            if "search" in options:
                raise ValueError(
                    f"search={options['search']!r}: an order is searched by K2; leave it out, or "
                    "use learn(order=...)"
                )
            return cls.learn(source, search="k2", order=list(order), **options)
        if options:
            raise ValueError(f"{next(iter(options))}: only data can be scored; leave it out")
        network = cls._of(ordered_parents(order, source))
        network._declared = dict(getattr(source, "states", {}))
        return network


def _placed(codes: NDArray[Any], places: Ints) -> Ints:
    """Return codes in another order of the values; what has no place is missing, -1."""
    back = np.full(max(int(codes.max(initial=-1)), int(places.max())) + 2, -1, np.int64)
    back[places] = np.arange(len(places))
    return back[codes]
