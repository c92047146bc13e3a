"""Rows without a class, used with the class they are expected to have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import DataError
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoder, Place
from fastbayes.data.segments import join
from fastbayes.data.source import open_source
from fastbayes.models.estimator.base import Classifier
from fastbayes.scan import engine
from fastbayes.statistics import REGISTRY
from fastbayes.statistics.bundle import Statistics

STEPS = 10_000
TOLERANCE = 1e-9


def expectation_maximisation(
    model: Classifier, labelled: Statistics, rows: list[pa.RecordBatch], weight: str | None
) -> Statistics:
    """Return the statistics of the labelled rows and of the others at their expected classes.

    Maximises the likelihood of the generative model in which the class of those rows is hidden
    (Nigam, McCallum, Thrun, Mitchell 2000, section 3), starting from the labelled rows. Values
    that occur only in unlabelled rows join the domains; equal rows are scored once.
    """
    if not labelled.n_rows:
        raise DataError("no row has a class: unlabelled rows need some labelled ones to start from")
    table = pa.Table.from_batches([join(rows)])
    if labelled.schema.target in table.column_names:
        table = table.drop_columns([labelled.schema.target])
    schema = _joint_schema(labelled, table, weight)
    batch = _distinct(_encoded(schema, table, weight))
    start = labelled.aligned(schema)
    worker = type(model)(**model.get_params(deep=False))
    stats, expected = start, np.zeros((batch.n_rows, len(schema.classes)))
    for _ in range(STEPS):
        worker._learned(stats)
        posterior = np.empty_like(expected)
        worker._scorer(batch.cells).posterior(batch.codes, batch.numeric, posterior)
        change = np.abs(posterior - expected).max(initial=0.0)
        expected = posterior
        stats = start + _expected_counts(schema, batch, expected, list(labelled.parts))
        if change <= TOLERANCE:
            return Statistics(schema, stats.parts, 0, labelled.provenance)
    raise DataError(
        f"unlabelled='em' did not settle in {STEPS} steps (last change {change:.2g}); use "
        "unlabelled='ignore'"
    )


def _joint_schema(labelled: Statistics, table: pa.Table, weight: str | None) -> Schema:
    """Return the schema of the labelled rows with the values of the others."""
    own = labelled.schema
    encoder = Encoder.learning(
        table.schema,
        None,
        weight=weight,
        domains={f.name: f.values for f in own.categorical if f.declared and f.cuts is None},
        categorical=[f.name for f in own.categorical if f.cuts is None],
        cuts={f.name: f.cuts for f in own.categorical if f.cuts is not None},
        missing=own.missing,
        null_values=own.null_values,
    )
    others = engine.scan(open_source(table), encoder, ("values",)).schema
    same_classes = replace(
        others,
        target=own.target,
        classes=own.classes,
        classes_declared=own.classes_declared,
    )
    return own.union(same_classes)


def _encoded(schema: Schema, table: pa.Table, weight: str | None) -> Batch:
    encoder = Encoder.applying_to(schema, table.schema, weight=weight)
    block = table.combine_chunks().to_batches()
    rows = block[0] if block else pa.RecordBatch.from_pylist([], schema=table.schema)
    batch = encoder.encode(rows, Place("rows without a class", 0)).batch
    # Counting wants S_j codes, and one more where a value is missing.
    codes = tuple(
        Codes(features, matrix, sizes - 2 + batch.missing[features])
        for features, matrix, sizes in batch.codes
    )
    return replace(batch, codes=codes)


def _distinct(batch: Batch) -> Batch:
    """Return the distinct rows of a batch, weighted by how often they occur."""
    columns = [group.codes[i] for group in batch.codes for i in range(len(group.codes))]
    columns += [x.view(np.uint64) for x in batch.numeric]
    if not columns or not batch.n_rows:
        return batch
    table = np.ascontiguousarray(np.stack([c.astype(np.uint64) for c in columns], axis=1))
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    weight = np.bincount(group, weights=batch.weight, minlength=len(first)).astype(np.float64)
    return replace(
        batch,
        n_rows=len(first),
        codes=tuple(
            Codes(f, np.ascontiguousarray(codes[:, first]), sizes)
            for f, codes, sizes in batch.codes
        ),
        numeric=tuple(np.ascontiguousarray(x[first]) for x in batch.numeric),
        weight=weight,
    )


def _expected_counts(
    schema: Schema, batch: Batch, expected: NDArray[np.float64], names: list[str]
) -> Statistics:
    """Return the statistics of rows that belong to each class with a probability."""
    weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    parts = {name: REGISTRY[name].zeros(schema.shape, weighted=True) for name in names}
    for c in range(len(schema.classes)):
        share = replace(
            batch,
            classes=np.full(batch.n_rows, c, dtype=np.uint8 if c < 256 else np.uint16),
            n_classes=len(schema.classes),
            weight=np.ascontiguousarray(weight * expected[:, c]),
        )
        for part in parts.values():
            part.update(share)
    return Statistics(schema, parts)
