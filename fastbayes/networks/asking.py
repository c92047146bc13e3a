"""What a network answers: posteriors, the most probable state of all nodes, ln P(evidence)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastbayes.networks import inference
from fastbayes.networks.answer import Answer
from fastbayes.networks.dag import Names
from fastbayes.networks.tables import Tables


class Asking(Tables):
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
    ) -> Answer:
        """Return P(targets | evidence).

        Parameters
        ----------
        targets
            A node, or several of which the joint distribution is wanted.
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
        given = self._evidence(evidence)
        names = self._named(targets)
        if not names:
            raise ValueError("there is no target: name a node")
        if method not in ("exact", "gibbs", "likelihood_weighting"):
            raise ValueError(f"method={method!r}: use 'exact', 'gibbs' or 'likelihood_weighting'")
        places = [self.nodes.index(name) for name in names]
        coded = self.coded(sparse=method == "exact")
        about = (tuple(names), tuple(self.states[n] for n in names))
        if method == "exact":
            return Answer(*about, *inference.joint_posterior(coded, given, places, max_cells))
        told: dict[str, Any] = {"draws": draws, "seed": seed, "threads": threads}
        if method == "gibbs":
            told |= {"burn_in": burn_in, "thin": thin, "chains": chains}
            told |= {"blocks": blocks, "max_block": max_block}
        # Imported here: samplers are not needed to ask what can be computed.
        from fastbayes.networks.gibbs import gibbs
        from fastbayes.networks.weighting import likelihood_weighting

        draw = gibbs if method == "gibbs" else likelihood_weighting
        found = draw(coded, given, places, **told)
        figures = found.mcse, found.ess, found.r_hat
        return Answer(*about, found.probabilities, found.log_evidence, method, *figures)

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
