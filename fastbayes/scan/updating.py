"""An update: files that are new, or a named batch of rows, added to statistics of earlier ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastbayes.core.errors import DataError, SchemaError, refuse
from fastbayes.core.ledger import Ledger, batch_of
from fastbayes.data.filesource import FileSource
from fastbayes.data.paths import FILES
from fastbayes.data.source import Source
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.registry import option_of


class Updating:
    """What rows are added to; nothing, if not asked for.

    Parameters
    ----------
    update
        Statistics; True where there are none yet; False or None where nothing is updated.
    batch
        Name of the rows; None of files, which are recognised without.

    Attributes
    ----------
    known
        The statistics to update; None without.
    """

    def __init__(self, update: Any, batch: Any) -> None:
        if batch is not None and not (isinstance(batch, str) and batch):
            raise ValueError(f"batch={batch!r}: give the rows a name, or None")
        if update is not None and not isinstance(update, (bool, Statistics)):
            raise ValueError(f"update={update!r}: use statistics, or True where there are none yet")
        self.known = update if isinstance(update, Statistics) else None
        self._asked, self._batch = bool(update), batch

    def check_options(self, weight: Any, *others: Any) -> None:
        """Raise ValueError or SchemaError where the options of the count do not go with it.

        weight  of the new rows
        others  None each, but where nothing is updated
        """
        if self._asked and any(option is not None for option in others):
            raise ValueError("`update` goes without `schema`, `folds` and `checkpoint`")
        if self.known is None:
            return
        refuse(
            bool(self.known.folds),
            "the statistics to update hold folds, of which new rows would have none: count all "
            "files again with folds",
            SchemaError,
        )
        refuse(
            self.known.weighted and weight is None,
            "the statistics to update hold weights of rows, and new rows would weigh 1: name the "
            "column of their weights (sample_weight)",
            SchemaError,
        )

    def names(self, asked: Sequence[str]) -> list[str]:
        """Return the statistics to count: those that are held, of an update."""
        if self.known is None:
            return list(asked)
        if not self.known.ledger:
            raise DataError(
                "the statistics to update do not say which files or batches they were counted "
                "from: their rows were in memory and have no name, or an earlier version wrote "
                "them; count anew"
            )
        usual = {"values", "moments"}
        if lacking := [name for name in asked if name not in usual | {*self.known.parts}]:
            raise SchemaError(
                f"the statistics to update hold no {lacking[0]}; count all files again with "
                f"{option_of(lacking[0])}"
            )
        return list(self.known.parts)

    def rows(self, opened: Source) -> Source | None:
        """Return the rows that are to be counted; None where all of them were."""
        counted = Ledger() if self.known is None else self.known.ledger
        if self._batch is not None:
            if opened.versions:
                raise DataError(
                    f"{opened.description}: files are recognised without a name; leave batch out"
                )
            return None if counted.of(batch_of(self._batch).digest) is not None else opened
        if isinstance(opened, FileSource) and self._asked:
            new = opened.without(counted)
            return opened if new is None and self.known is None else new
        if self._asked and opened.n_rows != 0:
            raise DataError(
                f"{opened.description}: an update tells new rows by files, or by a name; name "
                f"the rows (batch, in Python), or {FILES}"
            )
        return opened

    @property
    def may_lack_classes(self) -> bool:
        """Whether rows none of which has a class are no error, for others come before or after."""
        return self._batch is not None or self.known is not None

    def added(self, stats: Statistics) -> Statistics:
        """Return the statistics with those of the new rows.

        A file that could not be read before, and now is in, is no longer among those left out.
        """
        if self._batch is not None:
            stats = replace(stats, ledger=Ledger([batch_of(self._batch)]))
        if self.known is None:
            return stats
        counted = [path for file in stats.ledger for path in file.paths]
        notes = [note for note in self.known.provenance if not _is_of(note, counted)]
        return replace(self.known, provenance=tuple(notes)) + stats

    def without_rows(self, notes: Sequence[str]) -> Statistics:
        """Return the statistics where no rows are new, with notes of what was left out."""
        known = self.known
        assert known is not None
        new = [note for note in notes if note not in known.provenance]
        return replace(known, provenance=(*known.provenance, *new)) if new else known


def _is_of(note: str, paths: Sequence[str]) -> bool:
    """Return whether a note says that one of these files was left out."""
    return note.startswith("left out: ") and any(
        path in note and re.search(rf"(?<!\S){re.escape(path)}(?![^\s:;,])", note) for path in paths
    )
