"""What a network answers: posteriors, the most probable state of all nodes, ln P(evidence)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.graph.dag import Names
from fastbayes.networks.graph.query_result import QueryResult, QueryResults
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.infer import inference


class QueryMixin(NetworkTables):
    """A network that answers questions."""

    def query(
        self,
        targets: Names,
        evidence: Mapping[str, Any] | None = None,
        method: str = "exact",
        *,
        draws: int = 1_000_000,
        burn_in: int = 1_000,
        thin: int = 1,
        chains: int = 32,
        seed: int | None = None,
        blocks: bool = True,
        max_block: int = 1024,
        threads: int | None = None,
        max_cells: float = inference.LARGEST,
    ) -> QueryResult:
        """Return P(targets | evidence).

        Parameters
        ----------
        targets
            A node, or several of which the joint distribution is wanted; `marginals` answers
            each by itself.
        evidence
            {node: its state}.
        method
            "exact", variable elimination; "gibbs", random draws of all nodes given the evidence;
            "likelihood_weighting", random rows weighted by how probable they make the evidence.
        draws
            Sweeps to retain over all chains, or rows of likelihood weighting.
        burn_in
            Sweeps of each chain before the first is retained.
        thin
            One sweep of so many is retained.
        chains
            Chains of Gibbs sampling.
        seed
            Seed of random draws: the same seed gives the same bits on any number of threads.
        blocks
            Whether nodes that probabilities of 0 tie together are drawn together.
        max_block
            Joint states that such nodes may have.
        threads
            Worker threads of random draws.
        max_cells
            Numbers that the largest table of exact inference may have, 8 bytes each.

        Returns
        -------
        Answer
            The probability of each joint state; `probability({node: state})`, `table`. Of random
            draws also `mcse`, `ess` and, of chains, `r_hat`.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When exact inference takes a larger table; the message names its nodes.
        ValueError
            When a name is no node, or a state is none of its states.

        Notes
        -----
        Nodes that are neither targets nor evidence nor above one of them are left out; the others
        are summed out in an order of fewest new neighbours. The time is that of the largest table.
        With `blocks=False, chains=1, thin=1, burn_in=0` Gibbs sampling is that of the textbooks.

        References
        ----------
        Koller, Friedman (2009), Probabilistic graphical models, algorithms 9.1, 12.2 and 12.4.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
        >>> tables = {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]}
        >>> network = BayesianNetwork(states, {"wet": ["rain"]}, tables)
        >>> print(network.query("rain", {"wet": "yes"}))
        rain  probability
        no       0.600000
        yes      0.400000
        """
        given, coded = self._asked(evidence, method)
        names = self._named(targets)
        if not names:
            raise ValueError("there is no target: name a node")
        if method == "exact":
            places = [self.nodes.index(name) for name in names]
            return self._answer(names, *inference.joint_posterior(coded, given, places, max_cells))
        options = {"draws": draws, "seed": seed, "threads": threads}
        if method == "gibbs":
            options |= {"burn_in": burn_in, "thin": thin, "chains": chains}
            options |= {"blocks": blocks, "max_block": max_block}
        return self._drawn([names], coded, given, method, options)[0]

    def marginals(
        self,
        evidence: Mapping[str, Any] | None = None,
        targets: Names | None = None,
        method: str = "exact",
        *,
        draws: int = 1_000_000,
        burn_in: int = 1_000,
        thin: int = 1,
        chains: int = 32,
        seed: int | None = None,
        blocks: bool = True,
        max_block: int = 1024,
        threads: int | None = None,
        max_cells: float = inference.LARGEST,
    ) -> QueryResults:
        """Return P(node | evidence) of every node that is not observed, or of some nodes.

        Parameters
        ----------
        evidence
            {node: its state}.
        targets
            A node or several, observed or not; None: all that are not observed.
        method, draws, burn_in, thin, chains, seed, blocks, max_block, threads, max_cells
            As in `query`. Random draws are the same as those of a query with the same seed.

        Returns
        -------
        Answers
            {node: `QueryResult`}; `table` has a row for each state of each node.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When exact inference takes a larger table; the message names its nodes.
        ValueError
            When a name is no node, or a state is none of its states.

        Notes
        -----
        All nodes are answered from one elimination, or one run of the sampler: it hardly takes
        longer than the query of one node.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"], "slip": ["no", "yes"]}
        >>> tables = {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]}
        >>> tables["slip"] = [[1.0, 0.0], [0.5, 0.5]]
        >>> network = BayesianNetwork(states, {"wet": ["rain"], "slip": ["wet"]}, tables)
        >>> answers = network.marginals({"wet": "yes"})
        >>> answers["slip"].probability({"slip": "yes"})
        0.5
        >>> print(answers)
        node  state  probability
        rain  no        0.600000
        rain  yes       0.400000
        slip  no        0.500000
        slip  yes       0.500000
        """
        given, coded = self._asked(evidence, method)
        if targets is None:
            names = [n for v, n in enumerate(self.nodes) if v not in given]
        elif not (names := self._named(targets)):
            raise ValueError("there is no target: name a node, or leave out targets")
        if not names:
            # All is observed: there is nothing to ask, but whether it is possible.
            if (log_evidence := inference.log_evidence(coded, given, max_cells)) == -math.inf:
                raise inference.impossible(coded, given)
            return QueryResults([], log_evidence)
        if method == "exact":
            nodes = [self.nodes.index(name) for name in names]
            found, log_evidence = inference.marginals(coded, given, nodes, max_cells)
            pairs = zip(names, found, strict=True)
            return QueryResults(
                (self._answer([name], p, log_evidence) for name, p in pairs), log_evidence
            )
        options = {"draws": draws, "seed": seed, "threads": threads}
        if method == "gibbs":
            options |= {"burn_in": burn_in, "thin": thin, "chains": chains}
            options |= {"blocks": blocks, "max_block": max_block}
        drawn = self._drawn([[name] for name in names], coded, given, method, options)
        return QueryResults(drawn, drawn[0].log_evidence)

    def _asked(
        self, evidence: Mapping[str, Any] | None, method: str
    ) -> tuple[dict[int, int], Coded]:
        """Return the evidence and the network as numbers."""
        given = self._evidence(evidence)
        if method not in ("exact", "gibbs", "likelihood_weighting"):
            raise ValueError(f"method={method!r}: use 'exact', 'gibbs' or 'likelihood_weighting'")
        return given, self.coded(sparse=method == "exact")

    def _answer(self, names: Sequence[str], *figures: Any) -> QueryResult:
        return QueryResult(tuple(names), tuple(self.states[name] for name in names), *figures)

    def _drawn(
        self,
        groups: Sequence[Sequence[str]],
        coded: Coded,
        given: Mapping[int, int],
        method: str,
        options: Mapping[str, Any],
    ) -> list[QueryResult]:
        """Return the answer for each group of nodes from one run of a sampler."""
        # Imported here: samplers are not needed to ask what can be computed.
        from fastbayes.networks.sample.gibbs import gibbs_of_groups
        from fastbayes.networks.sample.weighting import weighting_of_groups

        draw = gibbs_of_groups if method == "gibbs" else weighting_of_groups
        place = {name: v for v, name in enumerate(self.nodes)}
        results = draw(coded, given, [[place[n] for n in names] for names in groups], **options)
        return [
            self._answer(
                *(names, found.probabilities, found.log_evidence, method),
                *(found.mcse, found.ess, found.r_hat),
            )
            for names, found in zip(groups, results, strict=True)
        ]

    def log_evidence(
        self, evidence: Mapping[str, Any], *, max_cells: float = inference.LARGEST
    ) -> float:
        """Return ln P(evidence).

        Parameters
        ----------
        evidence
            {node: its state}.
        max_cells
            Numbers that the largest table may have.

        Returns
        -------
        float
            Nats; -inf where the evidence is impossible.

        Raises
        ------
        MemoryLimitError
            When it takes a larger table.
        """
        return inference.log_evidence(self.coded(sparse=True), self._evidence(evidence), max_cells)

    def most_probable(
        self,
        evidence: Mapping[str, Any] | None = None,
        *,
        max_cells: float = inference.LARGEST,
    ) -> dict[str, Any]:
        """Return the most probable joint state of all nodes, the most probable explanation.

        Parameters
        ----------
        evidence
            {node: its state}.
        max_cells
            Numbers that the largest table may have.

        Returns
        -------
        dict
            {node: its state}, the evidence included. How probable it is says `log_joint`.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When it takes a larger table.

        Notes
        -----
        It is not made of the most probable state of each node: these may exclude each other.

        References
        ----------
        Koller, Friedman (2009), algorithm 13.1.
        """
        states, _ = inference.most_probable(
            self.coded(sparse=True), self._evidence(evidence), max_cells
        )
        return {n: self.states[n][s] for n, s in zip(self.nodes, states, strict=True)}
