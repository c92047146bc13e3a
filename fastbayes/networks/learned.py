"""Networks whose graph comes from data, or from an order of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from fastbayes.networks.fitting import Fitting
from fastbayes.networks.graph.dag import DAG
from fastbayes.networks.graph.minimal import ordered_parents
from fastbayes.networks.graph.parameters import TablePrior
from fastbayes.networks.search.structure_search import Edges, Learned, learned


class LearnMixin(Fitting):
    """A network that learns its graph."""

    # What the search of `learn` found, and the way to it.
    search_: Learned

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
        progress: Callable[[Any], object] | None = None,
    ) -> Self:
        """Learn a graph, and its tables, from data.

        Parameters
        ----------
        data
            As `source` in `fastbayes.count`; every column is a node, whole numbers are states.
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
            All nodes: edges only go from earlier to later ones.
        start
            The graph that climbs begin with: {node: parents}, edges, or a network.
        restarts
            Further climbs from graphs near the best one; 0 is the textbook algorithm.
        seed
            Seed of the restarts.
        time_limit
            Seconds after which a climb stops.
        alpha, prior
            Of the tables, as in `fit`.
        ess
            Equivalent sample size of "bdeu", as score and as prior.
        columns
            Columns to read; all by default.
        sample_weight
            Name of the weight column, or (n_rows,) weights.
        domains
            {column: its values}.
        categorical
            Names or indices of columns whose fractions are states.
        discretize
            How other columns of fractions become bins, as in `fit`.
        missing
            "complete" leaves out rows with a missing value; "category" makes it a state, None.
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
            When a column is not there, or holds fractions that are not cut.
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
            return cls.learn(source, search="k2", order=list(order), **options)
        if options:
            raise ValueError(f"{next(iter(options))}: only data can be scored; leave it out")
        network = cls._of(ordered_parents(order, source))
        network._declared = dict(getattr(source, "states", {}))
        return network
