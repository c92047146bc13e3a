"""What a network answers: posteriors, the most probable state of all nodes, ln P(evidence)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastbayes.core.batch import BLOCK_ROWS, Batch
from fastbayes.core.date_parts import DatePart
from fastbayes.core.domains import array_of, canonical_values, is_category
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.picks import unknown_column
from fastbayes.core.schema import Feature, Schema
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.data.encode import Encoder, checked_weights
from fastbayes.data.memory import is_name, to_array
from fastbayes.data.segments import Place, Segment, Source
from fastbayes.data.source import as_at_fit, open_source
from fastbayes.data.unify import is_text
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.codes import columns_of
from fastbayes.networks.graph.coded import Coded, Floats
from fastbayes.networks.graph.dag import Names
from fastbayes.networks.graph.query_result import QueryResult, QueryResults, as_column
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.infer import inference
from fastbayes.networks.infer.row_posteriors import Column, RowEvidence, RowPosteriors
from fastbayes.scan import row_blocks

logger = logging.getLogger("fastbayes")


class QueryMixin(NetworkTables):
    """A network that answers questions, and for the rows of tables, files and streams."""

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
            {node: its state, or a number for the bin that it falls into}.
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
            Whether nodes are drawn together that probabilities of 0, or near 0, tie together.
        max_block
            Joint states that nodes may have which zeros tie together.
        threads
            Worker threads of random draws.
        max_cells
            Numbers that the largest table of exact inference may have, 8 bytes each.

        Returns
        -------
        QueryResult
            The probability of each joint state; `probability({node: state})`, `table`. Of random
            draws also `mcse`, `ess` and, of chains, `r_hat`.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When exact inference takes a larger table; the message names its nodes.
        ValueError
            When a name is no node, or a state is not one of its states.

        Notes
        -----
        Nodes that are neither targets nor evidence nor above one of them are left out; the others
        are summed out in an order of fewest new neighbours. The time is that of the largest table.
        With `blocks=False, chains=1, thin=1, burn_in=0` Gibbs sampling is that of the textbooks.

        Random draws warn where they cannot say how far they are off: of a probability that never
        changed (its `mcse`, `ess` and `r_hat` are NaN, unless zeros leave nothing else), of an R̂
        over 1.01, of an effective sample size under 400, of nodes that are tied together without
        being drawn together. Likelihood weighting also counts how many rows it has at least if rows
        that it did not draw have the largest weight there is: that, too, should be 400.

        References
        ----------
        Koller, Friedman (2009), Probabilistic graphical models, algorithms 9.1, 12.2 and 12.4;
        Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Rank-normalization, folding, and
        localization: an improved R-hat for assessing convergence of MCMC.

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
        run = _run(method, draws, seed, threads, burn_in, thin, chains, blocks, max_block)
        return self._drawn([names], coded, given, method, run)[0]

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
            {node: its state, or a number for the bin that it falls into}.
        targets
            A node or several, observed or not; None: all that are not observed.
        method, draws, burn_in, thin, chains, seed, blocks, max_block, threads, max_cells
            As in `query`. Random draws are the same as those of a query with the same seed.

        Returns
        -------
        QueryResults
            {node: `QueryResult`}; `table` has a row for each state of each node.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When exact inference takes a larger table; the message names its nodes.
        ValueError
            When a name is no node, or a state is not one of its states.

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
            found, log_evidence = inference.marginals(
                coded, given, [self.nodes.index(name) for name in names], max_cells
            )
            pairs = zip(names, found, strict=True)
            return QueryResults(
                (self._answer([name], p, log_evidence) for name, p in pairs), log_evidence
            )
        run = _run(method, draws, seed, threads, burn_in, thin, chains, blocks, max_block)
        drawn = self._drawn([[name] for name in names], coded, given, method, run)
        return QueryResults(drawn, drawn[0].log_evidence)

    def _asked(
        self, evidence: Mapping[str, Any] | None, method: str
    ) -> tuple[dict[int, int], Coded]:
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
        from fastbayes.networks.sample.estimates import gibbs_of_groups, weighting_of_groups

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
            {node: its state, or a number for the bin that it falls into}.
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
            {node: its state, or a number for the bin that it falls into}.
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

    # -- rows of tables, files and streams ---------------------------------------------------------

    def predict_proba(
        self,
        data: Any,
        target: str,
        *,
        unseen: str = "ignore",
        impossible: str = "prior",
        null_values: Sequence[str] | None = None,
        filesystem: Any = None,
        threads: int | None = None,
        max_cells: float = inference.LARGEST,
    ) -> Floats:
        """Return P(target | row) of every row.

        Parameters
        ----------
        data
            As `source` in `fastbayes.count`. Columns that are nodes are the evidence; a missing
            value is the state None, where there is one, else it is not observed, nor is a node
            without a column. The target's own column and columns that are no nodes are not read.
            Bins are given as numbers, or as themselves; parts of dates that the network learned
            from, as columns of their own, or as the dates.
        target
            A node.
        unseen
            What a value does that is no state of its node: "ignore" takes it as missing, "error"
            raises.
        impossible
            What a row of probability 0 gets: "prior", the target's distribution without evidence,
            or "error".
        null_values
            Strings that mean missing.
        filesystem
            A pyarrow or fsspec file system for paths.
        threads
            Worker threads; they never change a bit of the result.
        max_cells
            Numbers that the tables of one row may have, where nodes are not observed.

        Returns
        -------
        numpy.ndarray
            (n_rows, states of the target); rows sum to 1. What observed nodes cut off from the
            target is not looked at: a row is impossible where the rest of it is. One that is so
            only elsewhere has the posterior that the rest gives; `log_evidences` says -inf of it.

        Raises
        ------
        DataError
            When a value is no state, or a row impossible, and that is an error; when a text is
            none of the bins of its node.
        MemoryLimitError
            When a row takes larger tables; the message names the nodes.
        SchemaError
            When no column is a node, or one is of another type than the states.

        Notes
        -----
        What is observed cuts the target off from the rest of the network. What is left is one
        table of posteriors where that is small, and a row a look-up; else rows are summed out
        side by side, equal ones once.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> data = {"rain": ["no", "no", "no", "yes"], "wet": [False, True, False, True]}
        >>> network = BayesianNetwork.from_edges([("rain", "wet")]).fit(data, alpha=0)
        >>> network.predict_proba({"wet": [True, None]}, "rain").round(12).tolist()
        [[0.5, 0.5], [0.75, 0.25]]
        """
        self._check_fitted()
        (name,) = self._named([target])
        if impossible not in ("prior", "error"):
            raise ValueError(f"impossible={impossible!r}: use 'prior' or 'error'")
        rows = opened(
            *(data, self.states, self._cuts, self._parts),
            without=name,
            null_values=null_values,
            filesystem=filesystem,
        )
        place = self.nodes.index(name)
        nothing = np.full(len(self.states[name]), np.nan) if impossible == "error" else None
        posteriors = RowPosteriors(self.coded(sparse=True), place, rows.nodes, max_cells, nothing)

        def score(batch: Batch, out: Floats) -> int:
            return posteriors.posterior(rows.observed(batch), out, batch.cells)

        found, lost = scored(rows, score, len(self.states[name]), unseen=unseen, threads=threads)
        if lost and impossible == "error":
            first = int(np.flatnonzero(np.isnan(found[:, 0]))[0])
            raise DataError(
                f"row {first} is impossible, and {lost - 1:,} more: the network gives it "
                "probability 0; drop it, smooth the tables, or use impossible='prior'"
            )
        if lost:
            logger.info("%d rows are impossible: they have the prior of %r", lost, name)
        return found

    def predict(self, data: Any, target: str, **options: Any) -> NDArray[Any]:
        """Return the most probable state of a node for every row.

        Parameters
        ----------
        data, target
            As in `predict_proba`.
        **options
            As in `predict_proba`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) states; of equally probable ones the first.
        """
        best = self.predict_proba(data, target, **options).argmax(axis=1)
        return np.asarray(as_column(self.states[target]).to_numpy(zero_copy_only=False))[best]

    def log_evidences(
        self,
        data: Any,
        *,
        unseen: str = "ignore",
        null_values: Sequence[str] | None = None,
        filesystem: Any = None,
        threads: int | None = None,
    ) -> Floats:
        """Return ln P(row) of every row.

        Parameters
        ----------
        data
            As in `predict_proba`; what is not observed is summed out.
        unseen, null_values, filesystem, threads
            As in `predict_proba`.

        Returns
        -------
        numpy.ndarray
            (n_rows,) nats; -inf where a row is impossible.

        Raises
        ------
        DataError
            When a value is no state, and that is an error.
        MemoryLimitError
            When a row takes larger tables; the message names the nodes.
        """
        how = {"null_values": null_values, "filesystem": filesystem}
        return self._log_evidences(data, None, unseen=unseen, threads=threads, **how)

    def _log_evidences(
        self,
        data: Any,
        weight: str | None,
        *,
        unseen: str = "ignore",
        threads: int | None = None,
        **how: Any,
    ) -> Floats:
        """Return ln P(row) of every row, times its weight where a column holds weights."""
        self._check_fitted()
        rows = opened(data, self.states, self._cuts, self._parts, weight=weight, **how)
        evidence = RowEvidence(self.coded(sparse=True), rows.nodes)

        def score(batch: Batch, out: Floats) -> int:
            found = out[: batch.n_rows, 0]
            evidence.log_evidence(rows.observed(batch), found)
            if batch.weight is not None:
                found *= batch.weight
                out[batch.n_rows :] = 0.0  # for rows that weigh nothing, which are not among them
            return 0

        found, _ = scored(rows, score, 1, unseen=unseen, threads=threads)
        return found[:, 0]

    def log_likelihood(self, data: Any, *, sample_weight: Any = None, **options: Any) -> float:
        """Return the sum of ln P(row) over all rows.

        Parameters
        ----------
        data
            As in `predict_proba`; what is not observed is summed out.
        sample_weight
            The name of a weight column of data, or (n_rows,) weights, finite and not negative.
        **options
            As in `log_evidences`.

        Returns
        -------
        float
            Nats; -inf where a row is impossible.

        Raises
        ------
        SchemaError
            When the weight column is not there, or weights are no numbers.
        DataError
            When a weight is negative, not finite or missing, the message names its row; or there
            are not as many as rows.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> data = {"rain": ["no", "no", "no", "yes"], "wet": [False, True, False, True]}
        >>> network = BayesianNetwork.from_edges([("rain", "wet")]).fit(data, alpha=0)
        >>> round(network.log_likelihood(data), 6)
        -4.158883
        """
        if is_name(sample_weight):
            return float(self._log_evidences(data, str(sample_weight), **options).sum())
        weight = None
        if sample_weight is not None:
            column = to_array("sample_weight", sample_weight)
            kernels = dispatch.load("reading.encode", float(len(column)))
            weight = checked_weights("sample_weight", column, Place("", 0), kernels)
        each = self.log_evidences(data, **options)
        if weight is None:
            return float(each.sum())
        if weight.shape != each.shape:
            raise DataError(f"sample_weight has shape {weight.shape}; give {len(each)} weights")
        return float((weight[weight > 0] * each[weight > 0]).sum())


@dataclass
class NetworkRows:
    """Rows to be scored.

    source  where they come from
    schema  the nodes that are among the columns
    nodes   their places in the network, in the order of the schema
    labels  places in the schema of columns in which bins are given as text
    weight  name of the weight column
    moved   by node of which the state None is not the last one: the place of the state that each
            code means, and what the codes beyond become
    """

    source: Source
    schema: Schema
    nodes: list[int]
    labels: list[int]
    weight: str | None = None
    moved: Mapping[int, NDArray[np.uint32]] = field(default_factory=dict)

    def observed(self, batch: Batch) -> dict[int, Column]:
        """Return the states of each node in the rows of a batch, by their places."""
        codes = {self.nodes[j]: column for j, column in columns_of(batch.codes).items()}
        for node in self.moved.keys() & codes.keys():
            codes[node] = self.moved[node].astype(codes[node].dtype)[codes[node]]
        return codes


def opened(
    data: Any,
    states: Mapping[str, Sequence[Any]],
    cuts: Mapping[str, Floats],
    parts: Mapping[str, DatePart],
    *,
    without: str | None = None,
    weight: str | None = None,
    null_values: Sequence[str] | None = None,
    filesystem: Any = None,
) -> NetworkRows:
    """Open data of which some columns are nodes, or parts of dates are; bins may be text.

    Raises SchemaError when no column is a node, the states of a node are no column's, or there is
    no such weight column.
    """
    # Which of both a text file has for bins is inferred.
    values = schema_for({n: known for n, known in states.items() if n not in cuts}, {})
    source = open_source(
        data, filesystem=filesystem, **{**as_at_fit(values), "null_values": null_values}
    )
    there = source.schema.names
    if weight is not None and weight not in there:
        raise SchemaError(unknown_column(weight, there, source.description))
    dated = {n: part for n, part in parts.items() if n not in there and part.column in there}
    names = [n for n in states if (n in there or n in dated) and n not in (without, weight)]
    if not names and without not in there:
        raise SchemaError(
            f"{source.description}: no column is a node; the columns are "
            f"{there[:9]}, the nodes {list(states)[:9]}"
        )
    texts = [n for n in names if n in cuts and n in there and is_text(source.schema.field(n).type)]
    whole = schema_for(states, {n: points for n, points in cuts.items() if n not in texts})
    features = tuple(replace(f, part=dated.get(f.name)) for f in whole.features if f.name in names)
    for feature in features:
        if feature.values is not None and not is_category(feature.values.type):
            raise SchemaError(
                f"node {feature.name!r}: its states are {feature.values.type}, which are no "
                "categories of a column; give the network its states as text, and cast the column "
                "to string"
            )
    schema = replace(whole, features=features, null_values=tuple(null_values or ()))
    return NetworkRows(
        source.only([*schema.columns, *([weight] if weight else [])]) if names else source,
        schema,
        [i for i, n in enumerate(states) if n in names],
        [names.index(n) for n in texts],
        weight,
        {i: _moved(known) for i, known in enumerate(states.values()) if None in known[:-1]},
    )


def _moved(states: Sequence[Any]) -> NDArray[np.uint32]:
    """Return the places of states by their codes: values in their order, None, an unseen one."""
    gap = states.index(None)
    others = [place for place in range(len(states)) if place != gap]
    return np.array([*others, gap, len(states)], np.uint32)


def scored(
    rows: NetworkRows,
    score: Callable[[Batch, Floats], int],
    width: int,
    *,
    unseen: str = "ignore",
    threads: int | None = None,
) -> tuple[Floats, int]:
    """Return score(batch, out) of all rows in order, (n_rows, width), and the sum of its results.

    Raises DataError when a value is no state and `unseen` is "error", or a text no bin; the message
    names column, value and row.
    """
    if unseen not in ("ignore", "error"):
        raise ValueError(f"unseen={unseen!r}: use 'ignore' or 'error'")
    source = rows.source
    encoder = Encoder.applying_to(rows.schema, source.schema, unseen=unseen, weight=rows.weight)
    encoder.expect(source.n_rows)
    known = source.in_memory and source.n_rows is not None
    out = np.empty(((source.n_rows or 0) if known else 0, width))

    def one(item: tuple[Segment, int]) -> tuple[list[Floats], int, NDArray[np.int64]]:
        segment, start = item
        pieces, done, lost = list[Floats](), 0, 0
        unknown = np.zeros(len(rows.nodes), np.int64)
        for block, encoded in row_blocks.encoded_blocks(segment, encoder):
            n = block.num_rows
            for j in rows.labels:
                if encoded.unseen[j]:
                    raise _no_bin(rows.schema.features[j], block, segment.place(done))
            piece = out[start + done : start + done + n] if known else np.empty((n, width))
            lost += score(encoded.batch, piece)
            unknown += encoded.unseen
            done += n
            if not known:
                pieces.append(piece)
        return pieces, lost, unknown

    def items() -> Iterator[tuple[Segment, int]]:
        start = 0
        for segment in source.segments(BLOCK_ROWS):
            yield segment, start
            start += (segment.n_rows or 0) if known else 0

    pieces, total, lost = [out], np.zeros(len(rows.nodes), np.int64), 0
    for some, n, unknown in in_order(one, items(), resolved_threads(threads)):
        pieces += some
        lost += n
        total += unknown
    found = out if known else np.concatenate(pieces)
    for feature, n in zip(rows.schema.features, total.tolist(), strict=True):
        if 1 < n == len(found):  # as after a file of another program, where all states are text
            logger.warning(
                "column %r: none of its values is a state of the node, such as %r; write them so, "
                "or the column says nothing",
                feature.name,
                feature.values[0].as_py() if feature.values else None,
            )
        elif n:
            logger.info("column %r: %d values are no states of the node", feature.name, n)
    return found, lost


def _no_bin(feature: Feature, block: Any, place: Place) -> DataError:
    """Return what is wrong with a text that is no bin: it is not a value that was never seen."""
    assert feature.values is not None
    column = block.column(feature.name)
    known = pc.is_in(column.cast(pa.string()), value_set=feature.values)
    at = pc.index(pc.or_(known, column.is_null()), False).as_py()
    return DataError(
        f"column {feature.name!r}, {place.row(at)}: {column[at].as_py()!r} is neither a number nor "
        f"one of the bins {feature.values.to_pylist()}; correct it, or cast the column to a number"
    )


def schema_for(states: Mapping[str, Sequence[Any]], cuts: Mapping[str, Floats]) -> Schema:
    """Return the schema that codes values as places among the states that are not None.

    The next code is that of a missing value, which is None where that is a state. `cuts` are
    the cut points of nodes whose states are bins. Raises SchemaError when the states of a node are
    of several types.
    """
    features = []
    for node, values in states.items():
        if node in cuts:
            features.append(Feature.binned(node, cuts[node]))
            continue
        known = [value for value in values if value is not None]
        try:
            column = array_of(known)
            if is_category(column.type):  # others, such as dates, are refused where they are read
                column = canonical_values(node, column)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"node {node!r}: its states {known} are of several types; no column has such"
            ) from error
        features.append(Feature(node, "categorical", column, True))
    return Schema(None, pa.array([None], pa.null()), tuple(features))


def _run(method: str, draws: int, seed: Any, threads: int | None, *chain: Any) -> dict[str, Any]:
    """Return the options of a sampler; those of `chain` are the Gibbs sampler's alone."""
    run = {"draws": draws, "seed": seed, "threads": threads}
    names = ("burn_in", "thin", "chains", "blocks", "max_block")
    return run | (dict(zip(names, chain, strict=True)) if method == "gibbs" else {})
