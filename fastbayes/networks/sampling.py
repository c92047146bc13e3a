"""Random rows of a network, given evidence or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from fastbayes.core.batch import BLOCK_ROWS
from fastbayes.core.files import atomic, check_target
from fastbayes.core.numbers import check_seed, check_whole
from fastbayes.core.threads import in_order, resolved_threads
from fastbayes.networks.graph.coded import Floats, Ints, SparseTable
from fastbayes.networks.graph.query_result import as_column
from fastbayes.networks.graph.tables import NetworkTables
from fastbayes.networks.infer import inference
from fastbayes.scan.outputs.row_files import format_of, prepared, writing
from fastbayes.scan.request import Progress

# Rows drawn from one seed sequence. Changing it changes every sample.
CHUNK = BLOCK_ROWS


class _Draw(NamedTuple):
    """How one node is drawn.

    given  nodes drawn before, and the places of their states in `steps`
    steps  (joint states of the given nodes, n_states) cumulative probabilities; from the last
           state that is possible on they are infinite
    sparse the table that keeps some of its rows, which `steps` are of
    """

    node: int
    given: tuple[int, ...]
    shape: tuple[int, ...]
    steps: Floats
    sparse: SparseTable | None = None

    @classmethod
    def of(cls, step: inference.DrawStep) -> Self:
        """Return how a node is drawn whose distribution this is."""
        if isinstance(step.table, SparseTable):
            return cls(step.node, step.given, (), _steps(step.table.rows), step.table)
        return cls(step.node, step.given, step.table.shape[:-1], _steps(step.table))

    def codes(self, drawn: Mapping[int, Ints], uniform: Floats) -> Ints:
        """Return the state in whose step a uniform number falls: one of probability 0 has none."""
        row: Any = np.zeros(len(uniform), np.int64)
        if self.sparse is not None:
            row = self.sparse.row([drawn[v] for v in self.given])
        else:
            for v, size in zip(self.given, self.shape, strict=True):
                row = row * size + drawn[v]
        n = self.steps.shape[1]
        if n <= 16:
            code = np.zeros(len(uniform), np.int64)
            for k in range(n - 1):
                code += uniform >= self.steps[row, k]
            return code
        # The first step above the number, by halving.
        code, step = np.zeros(len(uniform), np.int64), 1 << (n - 1).bit_length()
        while step:
            beyond = np.minimum(code + step, n)
            fits = (code + step < n) & (self.steps[row, beyond - 1] <= uniform)
            code = np.where(fits, code + step, code)
            step >>= 1
        return code


def _steps(table: Floats) -> Floats:
    """Return cumulative probabilities by row, infinite from the last possible state on."""
    flat = table.reshape(-1, table.shape[-1])
    steps = np.cumsum(flat, axis=1)
    later = np.cumsum(flat[:, ::-1], axis=1)[:, ::-1]
    above = np.concatenate([later[:, 1:], np.zeros((len(flat), 1))], axis=1)
    return np.where(above > 0, steps, np.inf)


class SampleMixin(NetworkTables):
    """A network from which rows can be drawn."""

    def sample(
        self,
        n: int,
        evidence: Mapping[str, Any] | None = None,
        seed: int | None = None,
        *,
        threads: int | None = None,
        max_cells: float = inference.LARGEST,
    ) -> pa.Table:
        """Draw rows from the network, or from those in which the evidence holds.

        Parameters
        ----------
        n
            Number of rows.
        evidence
            {node: its state, or a number in its bin}: rows are drawn from P(nodes | evidence),
            none is thrown away.
        seed
            Seed of the random numbers; the same seed gives the same rows.
        threads
            Worker threads; they never change a row.
        max_cells
            Numbers that the largest table of exact inference may have, which evidence takes.

        Returns
        -------
        pyarrow.Table
            A column for each node; text is dictionary-encoded.

        Raises
        ------
        DataError
            When the evidence is impossible.
        MemoryLimitError
            When the evidence takes a larger table.

        Examples
        --------
        >>> from fastbayes.networks.network import BayesianNetwork
        >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
        >>> tables = {"rain": [0.75, 0.25], "wet": [[0.5, 0.5], [0.0, 1.0]]}
        >>> network = BayesianNetwork(states, {"wet": ["rain"]}, tables)
        >>> network.sample(1000, {"wet": "no"}, seed=1)["rain"].unique().to_pylist()
        ['no']
        """
        return pa.Table.from_batches(
            self._batches(n, evidence, seed, threads, max_cells), self._columns()
        )

    def sample_to(
        self,
        path: str | os.PathLike[str],
        n: int,
        evidence: Mapping[str, Any] | None = None,
        seed: int | None = None,
        *,
        format: str | None = None,
        force: bool = False,
        threads: int | None = None,
        max_cells: float = inference.LARGEST,
        progress: Progress | None = None,
    ) -> None:
        """Draw rows into a file, however many: memory holds a few blocks of them.

        Parameters
        ----------
        path
            A file of Parquet, Arrow IPC, CSV or JSON lines.
        n, evidence, seed
            As in `sample`; the rows are the same.
        format
            "parquet", "ipc", "csv" or "jsonl", where the name does not say it.
        force
            Whether to replace a file that is there.
        threads, max_cells
            As in `sample`.
        progress
            Called with the number of rows done since the last call.

        Raises
        ------
        DataError
            When the evidence is impossible, or the file exists and `force` is not set.
        SchemaError
            When the format is unknown.
        """
        kind = format_of(path, format)
        check_target(path, force=force)
        batches = self._batches(n, evidence, seed, threads, max_cells)
        with (
            atomic(path, force=force) as temporary,
            writing(kind, temporary, self._columns()) as write,
        ):
            for batch in batches:
                write(prepared(kind, batch))
                if progress is not None:
                    progress(batch.num_rows)

    def _columns(self) -> pa.Schema:
        kinds = [values.type for values in self._values()]
        return pa.schema(list(zip(map(str, self.nodes), kinds, strict=True)))

    def _values(self) -> list[pa.Array]:
        """Return the states of each node, of which text is encoded, and None is null."""
        columns = [as_column(self.states[node]) for node in self.nodes]
        return [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in columns]

    def _batches(
        self,
        n: int,
        evidence: Mapping[str, Any] | None,
        seed: int | None,
        threads: int | None,
        max_cells: float,
    ) -> Iterator[pa.RecordBatch]:
        self._check_fitted()
        check_whole("n", n, 0)
        check_seed(seed)
        steps = inference.drawing(self.coded(sparse=True), self._evidence(evidence), max_cells)
        draws = [_Draw.of(step) for step in steps]
        schema, values = self._columns(), self._values()
        entropy = np.random.SeedSequence(seed).entropy

        def drawn(chunk: int) -> pa.RecordBatch:
            rows = min(CHUNK, int(n) - chunk * CHUNK)
            random = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(chunk,)))
            codes: dict[int, Ints] = {}
            for draw in draws:
                codes[draw.node] = draw.codes(codes, random.random(rows))
            columns = [known.take(pa.array(codes[v])) for v, known in enumerate(values)]
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        return in_order(drawn, range(-(-int(n) // CHUNK)), resolved_threads(threads))
