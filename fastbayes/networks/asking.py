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
            "exact": variable elimination.
        max_cells
            Numbers that the largest table of exact inference may have, 8 bytes each.

        Returns
        -------
        Answer
            The probability of each joint state; `probability({node: state})`, `table`.

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

        References
        ----------
        Koller, Friedman (2009), Probabilistic graphical models, algorithm 9.1.

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
        if method != "exact":
            raise ValueError(f"method={method!r}: use 'exact'")
        places = [self.nodes.index(name) for name in names]
        found, total = inference.joint_posterior(self.coded(), given, places, max_cells)
        return Answer(tuple(names), tuple(self.states[n] for n in names), found, total)

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
        return inference.log_evidence(self.coded(), self._evidence(evidence), max_cells)

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
        states, _ = inference.most_probable(self.coded(), self._evidence(evidence), max_cells)
        return {n: self.states[n][s] for n, s in zip(self.nodes, states, strict=True)}
