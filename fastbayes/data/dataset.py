"""pyarrow datasets and scanners; this module alone imports pyarrow.dataset."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from fastbayes.data.formats import dictionary_type
from fastbayes.data.memory import StreamSource
from fastbayes.data.segments import Source

# Read ahead by Arrow's scanner, in batches and in files: its defaults hold a row group of four
# files and sixteen batches of each.
_BATCHES_AHEAD = 4
_FILES_AHEAD = 1
_ROWS = 65_536


def open_dataset(source: Any, options: dict[str, Any]) -> Source:
    """Open a pyarrow Dataset (may be scanned again) or Scanner (may not)."""
    if isinstance(source, ds.Scanner):
        return StreamSource(
            source.to_reader,
            source.projected_schema,
            rereadable=False,
            description="pyarrow.dataset.Scanner",
            native=source,
            **options,
        )
    dataset = _with_dictionaries(source)

    def stream() -> pa.RecordBatchReader:
        return dataset.scanner(
            columns=options["columns"],
            batch_size=_ROWS,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        ).to_reader()

    return StreamSource(
        stream,
        dataset.schema,
        rereadable=True,
        description=f"pyarrow.dataset.{type(source).__name__}",
        native=source,
        **options,
    )


def _with_dictionaries(dataset: ds.Dataset) -> ds.Dataset:
    """Return a Parquet dataset so that strings are read as dictionaries, any other as it is."""
    if not isinstance(dataset, ds.FileSystemDataset):
        return dataset
    if not isinstance(dataset.format, ds.ParquetFileFormat):
        return dataset
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # a filtered dataset does not give its fragments away, nor its filter
        return dataset
    constant = {
        name
        for fragment in fragments
        for name in ds.get_partition_keys(fragment.partition_expression)
    }
    schema = pa.schema(
        [
            field.with_type(dictionary_type(field.type) or field.type)
            if field.name not in constant
            else field
            for field in dataset.schema
        ]
    )
    text = {field.name for field in dataset.schema if dictionary_type(field.type) is not None}
    file_format = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(
            dictionary_columns=text,
            coerce_int96_timestamp_unit=dataset.format.read_options.coerce_int96_timestamp_unit,
        )
    )
    rebuilt = [
        file_format.make_fragment(
            fragment.path,
            fragment.filesystem,
            partition_expression=fragment.partition_expression,
            row_groups=[group.id for group in fragment.row_groups] if _chosen(fragment) else None,
        )
        for fragment in fragments
    ]
    return ds.FileSystemDataset(rebuilt, schema, file_format, dataset.filesystem)


def _chosen(fragment: Any) -> bool:
    """Return whether only some row groups of the file belong to the fragment."""
    return fragment.num_row_groups < fragment.metadata.num_row_groups
