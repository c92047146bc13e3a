"""A Bayesian network of discrete variables, as a value."""

from __future__ import annotations

from fastbayes.networks.fitting import LearnMixin
from fastbayes.networks.formats import FormatsMixin
from fastbayes.networks.picture import PlotMixin
from fastbayes.networks.query import QueryMixin
from fastbayes.networks.sampling import SampleMixin


class BayesianNetwork(QueryMixin, SampleMixin, LearnMixin, FormatsMixin, PlotMixin):
    """Discrete variables, what each depends on, and how probable its states are then.

    Parameters
    ----------
    states
        {node: its states}, one or more, all different; the nodes are in this order.
    parents
        {node: its parents}; a node that is not named has none.
    tables
        {node: P(node | parents)}, arrays (n_states of each parent ..., n_states): the axes are the
        parents in their order, the node comes last. They are kept as they are, not scaled.

    Attributes
    ----------
    nodes
        Names of the nodes.
    states, parents, tables
        As given: tuples and read-only float64 arrays. States and tables are empty where only the
        graph is known (`from_edges`), until `fit`.
    children
        {node: its children}.
    order
        The nodes, each after its parents.

    Raises
    ------
    ValueError
        When a parent is no node, parents go round in a circle, a table has another shape, holds
        what is no probability, or a row of it does not sum to 1 to 1e-9; when a state is a whole
        number that does not fit in 64 bits. The message names the node.

    Examples
    --------
    >>> import numpy as np
    >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    >>> tables = {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]}
    >>> network = BayesianNetwork(states, {"wet": ["rain"]}, tables)
    >>> np.exp(network.log_joint({"rain": "no", "wet": ["no", "yes"]})).tolist()
    [0.375, 0.375]
    """
