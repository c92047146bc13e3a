"""How labelled rows are encoded to be scored, those of each fold for the models without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, taken
from fastbayes.core.schema import Schema
from fastbayes.data.encode import Encoded, Encoder, filtered
from fastbayes.data.folds import Folds
from fastbayes.data.segments import Segment
from fastbayes.scan import row_blocks
from fastbayes.scan.fold_statistics import fold_positions

Positions = NDArray[np.int64]


class Part(NamedTuple):
    """Rows of a block that belong to one fold.

    fold   index of the fold
    batch  the rows with their classes, encoded for the models of this fold
    rows   their positions in the block; None: all of it
    """

    fold: int
    batch: Batch
    rows: Positions | None


class ScoredBlock(NamedTuple):
    """Rows as they came, and those of them that take part.

    encoded  how all of them were encoded, where one encoder has done it
    """

    n_rows: int
    parts: Sequence[Part]
    encoded: Encoded | None = None

    def weights(self) -> NDArray[np.float64]:
        """Return the weight of each row, (n_rows,), 0 where it takes no part."""
        found = np.zeros(self.n_rows)
        for _, batch, rows in self.parts:
            given = 1.0 if batch.weight is None else batch.weight
            found[slice(None) if rows is None else rows] = given
        return found


# Encodes the blocks of a segment.
Parts = Callable[[Segment], Iterator[ScoredBlock]]


class Encoding(Protocol):
    """Says how rows are encoded to be scored."""

    def parts(self, columns: pa.Schema, n_rows: int | None, *, once: bool = False) -> Parts:
        """Return what encodes the blocks of so many rows, if that is known, of these columns.

        `once` says that there is a single block.
        """
        ...


@dataclass(frozen=True)
class RowEncoding:
    """How rows are encoded to be scored; it may be pickled and goes to where they are.

    Parameters
    ----------
    schemas
        Of the models: one of all, or one of the models without each fold.
    target, weight
        Columns of the classes and the weights.
    unseen
        What a value outside the schema is, as `Encoder.applying_to` has it.
    folds
        Which fold a row belongs to; they are known from a scan.
    check
        Looks at what was encoded of each block, where one encoder does it.
    """

    schemas: Sequence[Schema]
    target: str | None
    weight: str | None
    unseen: str = "ignore"
    folds: Folds | None = None
    check: Callable[[Encoded], None] | None = None

    def parts(self, columns: pa.Schema, n_rows: int | None, *, once: bool = False) -> Parts:
        """Return what encodes the blocks of so many rows: see `Encoding`."""

        def encoder(fold: int) -> Encoder:
            found = Encoder.applying_to(
                self.schemas[fold],
                columns,
                unseen=self.unseen,
                target=self.target,
                weight=self.weight,
            )
            found.expect(n_rows)
            return found

        order = [] if self.folds is None else self.folds.names()[0]
        if self.folds is None or len(self.schemas) == 1:
            return _parts_by_one(encoder(0), self.folds, order, self.check)
        if once:  # those of all folds are not held together
            return _parts_by_encoder(self.folds, order, encoder)
        encoders = [encoder(fold) for fold in range(len(self.schemas))]
        return _parts_by_encoder(self.folds, order, encoders.__getitem__)


def _parts_by_one(
    encoder: Encoder,
    folds: Folds | None,
    order: Sequence[int],
    check: Callable[[Encoded], None] | None,
) -> Parts:
    """Return what encodes blocks by one encoder, checks them, and splits them into folds."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block, encoded in row_blocks.encoded_blocks(segment, encoder):
            if check is not None:
                check(encoded)
            found = [Part(0, encoded.batch, encoded.kept)]
            if folds is not None:
                codes = folds.of(segment, done, block)
                kept = np.arange(block.num_rows) if encoded.kept is None else encoded.kept
                found = [
                    Part(fold, taken(encoded.batch, rows), kept[rows])
                    for fold, rows in fold_positions(order, codes[kept])
                ]
            done += block.num_rows
            yield ScoredBlock(block.num_rows, found, encoded)

    return parts


def _parts_by_encoder(
    folds: Folds, order: Sequence[int], encoder: Callable[[int], Encoder]
) -> Parts:
    """Return what splits blocks into folds, each with the encoder that is given for it."""

    def parts(segment: Segment) -> Iterator[ScoredBlock]:
        done = 0
        for block in segment.batches():
            codes = folds.of(segment, done, block)
            place = segment.place(done)
            done += block.num_rows
            found = []
            for fold, rows in fold_positions(order, codes):
                mine = np.zeros(block.num_rows, np.bool_)
                mine[rows] = True
                encoded = encoder(fold).encode(filtered(block, mine), place)
                # The codes last until the thread encodes again.
                batch = taken(encoded.batch, np.arange(encoded.batch.n_rows))
                found.append(
                    Part(fold, batch, rows if encoded.kept is None else rows[encoded.kept])
                )
            yield ScoredBlock(block.num_rows, found)

    return parts
