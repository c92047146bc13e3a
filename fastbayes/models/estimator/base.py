"""Classifiers of tables: how they learn from statistics, and how they score rows in order."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, Self
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.batch import BLOCK_ROWS, GREATEST, Batch
from fastbayes.core.date_parts import named_parts
from fastbayes.core.domains import cast_domain, common_type, declared, domain, same_values
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.core.layout import Layout
from fastbayes.core.picks import Picks, Selection, by_name, chosen, several
from fastbayes.core.schema import Schema, labels
from fastbayes.data.dates import with_parts
from fastbayes.data.encode import Encoder, LookedUp
from fastbayes.data.folds import Folds
from fastbayes.data.memory import to_array
from fastbayes.data.segments import Segment, Source, check_rereadable
from fastbayes.kernels import dispatch
from fastbayes.models.estimator.column_table import (
    ClassNumbers,
    ColumnTable,
    Distribution,
    of_numbers,
    of_values,
)
from fastbayes.models.estimator.inputs import declared_classes, open_features, open_training
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.model import Model, ScoreRows
from fastbayes.models.estimator.parameters import (
    discretize_from_json,
    fitted,
    memory_limit,
    parameter,
    readable_again,
    worker_threads,
)
from fastbayes.models.estimator.predictor import Predictor
from fastbayes.models.estimator.smoothing import Smoothing
from fastbayes.scan import engine, row_blocks
from fastbayes.scan.budget import default_limit, encoded_width
from fastbayes.scan.data_warnings import remark
from fastbayes.scan.date_spans import date_parts
from fastbayes.scan.discretization import numeric_cuts
from fastbayes.scan.packed_rows import Reading, in_memory, rereadable
from fastbayes.scan.request import Progress
from fastbayes.scan.row_sums import Result, Summing, Sums, Work, scanned_again
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.parts import Wanted
from fastbayes.statistics.registry import option_of

# Rows of a block for which the work of beginning one is nothing.
LEAST_ROWS = 4_096


@dataclass
class Tally:
    """What a scan of new rows came across."""

    unseen: NDArray[np.int64]
    prior_rows: int = 0  # impossible under every class: answered from the prior


class KeptScorers:
    """The scorers of a model as its attributes are.

    Fitted arrays cannot be written to from now on: a scorer would not see it.
    """

    def __init__(self, model: TableRows) -> None:
        self._attributes = vars(model).copy()
        for name, value in self._attributes.items():
            if name.endswith("_") and isinstance(value, np.ndarray):
                value.flags.writeable = False
        self._made: dict[bool, Any] = {}

    def of(self, model: TableRows) -> bool:
        """Return whether the model has the attributes that it had."""
        now, then = vars(model), self._attributes
        return now.keys() == then.keys() and all(now[name] is then[name] for name in then)

    def scorer(self, model: TableRows, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        kind = dispatch.compiled(cells)
        if kind not in self._made:
            self._made[kind] = model._scorer(cells)
        return self._made[kind]


# Not attributes: what predicts leaves a model as it was, and a model is pickled without them.
_SCORERS: WeakKeyDictionary[TableRows, KeptScorers] = WeakKeyDictionary()


def forget_scorers(model: TableRows) -> None:
    """Let go of the scorers of a model; they are made anew when it scores again."""
    _SCORERS.pop(model, None)


class TableRows(Model):
    """A model of named columns; it scores batches of codes and numbers.

    A subclass gives a scorer (`_scorer`), contributions (`_contributions`), and if it averages
    over super-parents (`_averages`) their shares in what it says (`_shares`).
    """

    _averages: ClassVar[bool] = False

    schema_: Schema = fitted("Columns, domains, cut points and classes.")
    # Parameters, or those of the model that a meta-estimator holds.
    unseen: str = fitted()
    threads: int | None = fitted()

    def _scorer(self, cells: float) -> Any:
        """Return the scorer for a job of this many cells."""
        raise NotImplementedError

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | c) of every row into `out`, (n_rows, n_features, n_classes)."""
        raise NotImplementedError(f"{type(self).__name__} does not explain (`_contributions`)")

    def _shares(self, batch: Batch, out: Floats) -> Floats:
        """Write contributions, and return the share of each super-parent, shaped like them."""
        raise NotImplementedError

    def _scorers(self) -> Callable[[float], Any]:
        """Return a function from the cells of a job to its scorer, made once per kind.

        They are kept until an attribute of the model is set anew.
        """
        kept = _SCORERS.get(self)
        if kept is None or not kept.of(self):
            kept = _SCORERS[self] = KeptScorers(self)
        return partial(kept.scorer, self)

    def predictor(self) -> Predictor:
        """Return the fitted model in the form that takes one row at a time, a dict or Arrow's.

        Returns
        -------
        Predictor
            Of the model as it is now; it answers in microseconds.
        """
        return Predictor(self)

    def _scored(
        self,
        X: Any,
        answer: ScoreRows,
        width: int | None = None,
        labels: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        scorers = self._scorers()

        def score(batch: Batch, out: NDArray[Any]) -> int | None:
            return answer(scorers(batch.cells), (batch.codes, batch.numeric), out)

        def repeatable(rows: LookedUp) -> bool:
            may = getattr(scorers(rows.cells), "repeatable", None)
            return may is not None and (may(False) or (may(True) and rows.complete()))

        return self._scan(open_features(self, X), score, width, labels, repeatable)[0]

    def _explained(self, X: Any) -> tuple[Floats, dict[str, int], Floats | None, Any]:
        source = rereadable(open_features(self, X))  # for the values, which are shown, too
        shape = 1 + self._averages, len(self.schema_.features), len(self.classes_)

        def score(batch: Batch, out: NDArray[Any]) -> int:
            parts = out.reshape(batch.n_rows, *shape)
            if self._averages:
                parts[:, 1] = self._shares(batch, parts[:, 0])
            else:
                self._contributions(batch, parts[:, 0])
            return 0

        flat, tally = self._scan(source, score, math.prod(shape))
        parts = flat.reshape(len(flat), *shape)
        shares = parts[:, 1] if self._averages else None
        return parts[:, 0], self._unseen(tally), shares, with_parts(in_memory(source), self.schema_)

    def _scan(
        self,
        source: Source,
        score: Callable[[Batch, NDArray[Any]], int | None],
        width: int | None,
        labels: NDArray[Any] | None = None,
        repeatable: Callable[[LookedUp], bool] = lambda rows: False,
    ) -> tuple[NDArray[Any], Tally]:
        """Return score(batch, out) of all rows, in order; or the labels at these positions.

        Where repeatable(rows) it does nothing with rows but call kernels.
        """
        encoder = Encoder.applying_to(self.schema_, source.schema, unseen=self.unseen)
        encoder.expect(source.n_rows)
        tail = () if width is None else (width,)
        kind = np.dtype(np.float64) if labels is None else labels.dtype
        out = np.empty((source.n_rows or 0, *tail), dtype=kind)
        as_objects = out.dtype.hasobject
        tally = Tally(np.zeros(len(self.schema_.categorical), dtype=np.int64))

        def answer(rows: LookedUp, answers: NDArray[Any], threads: int) -> int:
            """Write the answers of rows; return how many are impossible under every class."""
            lost: list[Any] = []

            def one_block(batch: Batch, at: int) -> None:
                piece = answers[at : at + batch.n_rows]
                found = piece if labels is None else np.empty(batch.n_rows, np.intp)
                lost.append(score(batch, found))
                if labels is not None:
                    dispatch.load("scoring.posterior", batch.cells).to_labels(found, labels, piece)

            row_blocks.over_blocks(
                rows,
                one_block,
                moving=[] if as_objects else [(answers.view(np.uint8), answers.strides[0])],
                repeatable=repeatable(rows),
                blank=True,
                threads=threads,
            )
            return sum(int(n) for n in lost if n is not None)

        def one(
            item: tuple[Segment, NDArray[Any] | None], threads: int
        ) -> tuple[int, list[NDArray[Any]], NDArray[np.int64], int]:
            segment, part = item
            done, unseen, prior_rows = 0, np.zeros_like(tally.unseen), 0
            pieces = []
            for rows, known in row_blocks.looked_up(segment, encoder, late):
                if part is not None:
                    answers = part[done : done + rows.num_rows]
                else:
                    answers = np.empty((rows.num_rows, *tail), dtype=out.dtype)
                    pieces.append(answers)
                prior_rows += answer(known, answers, threads)
                unseen += known.unseen()
                done += rows.num_rows
            return done, pieces, unseen, prior_rows

        share = engine.share_of(
            source,
            self.threads,
            getattr(self, "memory_limit", None),
            besides=out.nbytes,
            width=encoded_width(encoder) + 8 * math.prod(tail),
        )
        source, threads = share.source, share.threads
        # Small row groups come as one; of large ones numbers are decoded block by block.
        late = encoder.plain_numbers() if source.rows_of_segment() >= BLOCK_ROWS else []
        if not late:
            source = source.merging()
        rows = row_blocks.rows_at_once(source, threads)
        parts = row_blocks.SEGMENTS * threads if threads > 1 else 1
        many = row_blocks.rows_on_all(source, encoder, threads, rows)
        if source.in_memory and (few := len(out) // parts) < BLOCK_ROWS:
            # Few rows that take long each are for all threads; rows are scored one by one anyhow.
            rows, many = max(few, LEAST_ROWS), 0

        def items(rows: int) -> Iterator[tuple[Segment, NDArray[Any] | None]]:
            """Yield segments with the range of the answers that is theirs, if that is known."""
            start = 0
            for segment in source.segments(rows):
                if source.n_rows is None or segment.n_rows is None:
                    yield segment, None
                else:
                    yield segment, out[start : start + segment.n_rows]
                    start += segment.n_rows

        filled = 0
        for done, pieces, unseen, prior_rows in share.on_all(one, items, rows, many):
            if pieces and filled + done > len(out):
                # Cheap in small steps, too: the system moves pages, not bytes.
                out.resize((max(filled + done, len(out) * 5 // 4), *tail), refcheck=False)
            if pieces:
                np.concatenate(pieces, out=out[filled : filled + done])
            filled += done
            tally.unseen += unseen
            tally.prior_rows += prior_rows
        if filled < len(out):
            out.resize((filled, *tail), refcheck=False)
        self._report(tally)
        return out, tally

    def _report(self, tally: Tally) -> None:
        for name, n in self._unseen(tally).items():
            logger.info("column %r: %d values were not seen at fit", name, n)
        if tally.prior_rows:
            logger.info("%d rows are impossible under every class", tally.prior_rows)

    def _unseen(self, tally: Tally) -> dict[str, int]:
        names = [f.name for f in self.schema_.categorical]
        return {name: int(n) for name, n in zip(names, tally.unseen, strict=True) if n}

    def _feature_names(self) -> tuple[str, ...]:
        return self.schema_.names

    def _target_column(self, codes: NDArray[np.intp]) -> tuple[str, Any]:
        return self.schema_.target or "class", self.schema_.classes.take(codes)


logger = logging.getLogger("fastbayes")


@dataclass
class Scans:
    """Scans over one source, which a model learns from."""

    source: Any
    learning: Callable[..., Encoder]
    cuts: dict[str, NDArray[np.float64]] | None
    unlabelled: list[pa.RecordBatch]
    first: bool  # not a later batch
    progress: Progress | None = None
    besides: Callable[[], int] = int  # tells bytes within the memory limit that are held
    n_rows: int | None = None  # about how many there are, where they have been counted
    last: bool = False  # no later batch will be learned by the model

    def count(
        self,
        model: Classifier,
        wanted: Wanted,
        known: Schema | None = None,
        folds: Folds | None = None,
        *,
        fewer: bool = True,
    ) -> Statistics:
        """Scan once; `known` is the schema that an earlier scan of the same rows found.

        `fewer` is as in `engine.scan`.
        """
        encoder = self.learning(cuts=self.cuts)
        if known is not None:
            encoder.know(known)
            self.unlabelled.clear()
        return engine.scan(
            self.source,
            encoder,
            wanted,
            threads=model.threads,
            memory_limit=model.memory_limit,
            progress=self.progress,
            unlabelled=self.unlabelled,
            classless=not self.first,
            folds=folds,
            besides=self.besides(),
            fewer=fewer,
        )

    def places(self, names: Sequence[str]) -> list[int]:
        """Return where the source has features that a model was fitted with."""
        # An encoder numbers the columns as they stand in the source.
        here = [feature.name for feature, _ in self.learning(cuts=self.cuts).features]
        if missing := [name for name in names if name not in here]:
            raise SchemaError(f"column {missing[0]!r} is not there; the model was fitted with it")
        return [here.index(name) for name in names]

    def again(self, model: Classifier, schema: Schema, work: Work[Result]) -> Iterator[Result]:
        """Yield what `work` makes of each segment and its encoded blocks, in one more scan.

        The rows are encoded by the schema that they were counted with; results come in order.
        """
        yield from scanned_again(
            self.source,
            schema,
            self._weight,
            work,
            threads=model.threads,
            memory_limit=model.memory_limit,
            progress=self.progress,
        )

    def summed(self, model: Classifier, schema: Schema, work: Work[Sums], start: Sums) -> Sums:
        """Return the sums of the arrays that `work` makes of segments, wherever the rows are.

        `start` are those of no rows; see `again`.
        """
        request = Summing(schema, self._weight, work, start, model.memory_limit)
        return request.of(self.source, model.threads, self.progress)

    @property
    def _weight(self) -> str | None:
        return self.learning(cuts=self.cuts).weight

    def reading(
        self, model: Any, schema: Schema, layout: Layout, class_weight: Floats | None = None
    ) -> Reading:
        """Return how the rows are packed, in half of the memory that the model may take."""
        encoder = self.learning()  # tells names: the schema has the cut points
        assert encoder.target is not None
        limit = default_limit() if model.memory_limit is None else int(model.memory_limit)
        share = engine.share_of(self.source, model.threads, model.memory_limit)
        room, threads = (limit - share.charged) / 2, share.threads
        names = encoder.target.name, encoder.weight
        return Reading(share.source, schema, layout, *names, class_weight, threads, room)

    def check_rereadable(self, need: str, instead: str = "") -> None:
        """Raise SchemaError where the rows can be read only once, but a model needs more."""
        check_rereadable(self.source, need, instead)

    def check_unchanged(self, same: Any) -> None:
        """Raise DataError where another scan of the source has not found the same rows."""
        if not same:
            raise DataError(f"{self.source.description} changed while it was read; fit again")


class Classifier(TableRows):
    """A classifier of tables whose parameters are read off statistics.

    A subclass says which statistics it needs (`_statistics`), checks its parameters
    (`_check_parameters`), reads the statistics (`_read`), gives a scorer (`_scorer`), and where
    it can explains (`_contributions`) and draws rows (`_drawn`).
    """

    _allow_nan: ClassVar[bool] = True
    _statistics: ClassVar[tuple[str, ...]] = ("values", "moments")
    # Of these, what the model also does without, in statistics that it is given.
    _dispensable: ClassVar[tuple[str, ...]] = ()
    _discretizes: ClassVar[bool] = False
    # Whether its statistics are counted in one scan, even if memory is too small for them.
    _at_once: ClassVar[bool] = True
    _has_densities: ClassVar[bool] = True

    domains: Mapping[str, Any] | None = parameter(
        "Declared values by column name: smoothing counts them, other values are an error.",
        default=None,
    )
    categorical: Picks = parameter(
        "Names, patterns or indices of columns to treat as categorical whatever their type.",
        default=None,
        check=readable_again("columns"),
    )
    columns: Picks = parameter(
        """
        Columns that take part besides the class and the weight, by names, patterns ("id_*") or
        indices; all by default.
        """,
        default=None,
        check=readable_again("columns"),
        filed=False,
    )
    exclude: Picks = parameter(
        "Columns to leave out, given in the same way; no pattern stands for the class or weight.",
        default=None,
        check=readable_again("columns"),
        filed=False,
    )
    dates: Mapping[str, Any] | None = parameter(
        """
        {column of dates or times: its parts}, some of "year", "month", "weekday", "hour" and
        "elapsed"; or "number" for elapsed time alone. By default those that the span of the column
        says, as in `fastbayes.count`.
        """,
        default=None,
        filed=False,
    )
    missing: str = parameter(
        '"marginalize": a missing value says nothing; "category": it is a value of its own.',
        default="marginalize",
        choices=("marginalize", "category"),
    )
    missing_columns: str = parameter(
        """
        A column that is not there at predict is an error ("error"), or missing in all rows
        ("marginalize"; not with missing="category").
        """,
        default="error",
        choices=("error", "marginalize"),
        filed=False,
    )
    threads: int | None = parameter(
        "Worker threads, by default one for each processor that the process may use, by its "
        "container's quota, too; they never change a bit of a result.",
        default=None,
        check=worker_threads,
    )
    memory_limit: int | None = parameter(
        "Bytes that a call may add to the process, as in `fastbayes.count`; answers count, too.",
        default=None,
        check=memory_limit,
    )
    discretize: Any = fitted()  # a parameter of classes with `_discretizes`

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Learn from data in one scan.

        Parameters
        ----------
        X
            A path, glob, list of paths, directory or URI; a table, frame, array, dataset or
            stream. Missing values are nulls, and NaN in numeric columns.
        y
            The name of the class column of X, or (n_rows,) labels; rows without one are left out.
        sample_weight
            The name of a weight column of X, or (n_rows,) weights, finite and not negative.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used; the message names file, column, value, row and remedy.
        """
        self._learned(self._count(X, y, sample_weight))
        remark(self.statistics_, densities=self._has_densities)
        self._caution()
        return self

    def _has_class(self, y: Any) -> NDArray[np.bool_] | None:
        """Return where a row has a class; the others are left out, as they are by `fit`."""
        if y is None:
            return None
        labels = to_array("class", y)
        known = pc.invert(pc.is_null(labels, nan_is_null=True)).to_numpy(zero_copy_only=False)
        return None if known.all() or not known.any() else known

    def partial_fit(
        self, X: Any, y: Any = None, *, classes: ArrayLike | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn from more data, as one `fit` on all of it does, but for what is not learned anew.

        Bins that are learned, the parents of `KDB` and the graph that `NetworkClassifier` learns
        stay those of the first batch; with these, any batching gives what one `fit` gives. But for
        `NaiveBayes(unlabelled="em")`: rows without a class get their expected ones from the
        labelled rows of their own batch, which are not looked at again.

        Parameters
        ----------
        X
            As in `fit`. New values and new classes may appear.
        y
            As in `fit`.
        classes
            All classes, if they are known beforehand: others are then an error. A list, or an array
            of one dimension, of text, truth values or numbers.
        sample_weight
            As in `fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        DataError
            When the data cannot be used or do not fit what was learned before.
        """
        first = not self.__sklearn_is_fitted__()
        counted = self._count(X, y, sample_weight, classes, first=first)
        self._learned(counted if first else self.statistics_ + counted)
        self._caution()
        return self

    def _count(
        self, X: Any, y: Any, sample_weight: Any, classes: Any = None, *, first: bool = True
    ) -> Statistics:
        self._check_parameters()
        opened = open_training(self, X, y, sample_weight, reset=first)
        domains = {**opened.domains, **declared(self.domains)}
        categorical = self.categorical
        if not first:
            known = self.schema_
            coded = [f for f in known.categorical if f.cuts is None]
            if known.classes_declared:
                domains[opened.target] = known.classes
            # A column of nothing but nulls so far is of no kind yet, unless the user chose one.
            picked = {*chosen(known.names, by_name(self.categorical, known.columns))}
            picked |= {f.name for f in coded if not f.void}
            here = {*opened.source.schema.names} - {opened.target, opened.weight}
            here |= {f.name for f in known.features if f.column in here}
            domains = {f.name: f.values for f in coded if f.declared and f.name in here} | domains
            categorical = sorted(picked & here)
        if classes is not None:
            domains[opened.target] = declared_classes(classes)
        taken = (opened.target, opened.weight)
        features = [name for name in opened.source.schema.names if name not in taken]
        dates = self.dates
        if not first:
            dates = {name: some for name, some in known.parts.items() if name in features}
        parts = date_parts(opened.source, features, dates, threads=self.threads)
        domains = {name: values for name, values in domains.items() if name not in parts}
        learning = partial(
            Encoder.learning,
            opened.source.schema,
            opened.target,
            parts=parts if first else {**known.parts, **parts},
            weight=opened.weight,
            domains=domains,
            categorical=categorical,
            missing=self._counts_missing,
            keep_unlabelled=self._keeps_unlabelled(),
        )
        if not first:
            # The error of a column that is used as weights comes where weights are read.
            names = [f.name for f, _ in learning().features]
            _check_same_columns([n for n in self.schema_.names if n not in taken], names)
        scans = self._scans(opened.source, learning, first=first)
        stats = self._scanned(scans)
        if first:
            check_learnable(stats, opened.source.description)
        return self._with_unlabelled(stats, scans.unlabelled, opened.weight)

    def _scans(
        self,
        source: Any,
        learning: Callable[..., Encoder],
        *,
        first: bool = True,
        progress: Progress | None = None,
    ) -> Scans:
        """Return scans over a source, once it is known where its numeric columns are cut."""
        cuts, encoder = None, learning()
        if first:
            given = encoder, self._counted_first(), self.threads, self.memory_limit
            engine.foreseen(source, *given, () if self._at_once else ("pairs", "families"))
        if (to_cut := self._to_cut(encoder, None if first else self.schema_)) is not None:
            cuts = numeric_cuts(
                source,
                *to_cut,
                threads=self.threads,
                memory_limit=self.memory_limit,
                progress=progress,
            )
        return Scans(source, learning, cuts, [], first, progress)

    def _counted_first(self) -> tuple[str, ...]:
        """Return the names of the statistics that the first scan counts."""
        return self._statistics

    def _to_cut(self, encoder: Encoder, known: Schema | None = None) -> tuple[Encoder, Any] | None:
        """Return an encoder of the columns that are cut into bins, and how; None without such.

        `known` is what was learned before: its cut points stay.
        """
        if not self._discretizes:
            return None
        if known is None:
            return encoder, self.discretize
        options = self.discretize
        if not isinstance(options, Mapping):
            options = {f.name: options for f, book in encoder.features if book is None}
        # A column of nothing but nulls so far is cut now.
        return encoder, {
            **options,
            **{f.name: f.cuts for f in known.features if f.cuts is not None},
        }

    def _set_rule(self, discretize: Any, cuts: Mapping[str, Any]) -> None:
        """Set the parameter that says how numeric columns are cut, which they all are.

        `cuts` are the points by column to which the rule has led.
        """
        self.set_params(discretize=discretize)

    def _scanned(self, scans: Scans) -> Statistics:
        """Return the statistics of all rows; a subclass may need several scans."""
        return scans.count(self, {name: {} for name in self._statistics})

    @property
    def _counts_missing(self) -> str:
        """What a missing value is in counting, which `missing` says where it says nothing else."""
        return self.missing

    def _keeps_unlabelled(self) -> bool:
        return False

    def _with_unlabelled(
        self, stats: Statistics, rows: list[pa.RecordBatch], weight: str | None
    ) -> Statistics:
        if stats.dropped_rows:
            logger.info("%s rows without a class were left out", stats.dropped_rows)
        return stats

    def _suited(self, stats: Any) -> Statistics:
        self._check_suits(stats)
        return stats

    def _check_suits(self, stats: Any, whole: str = "") -> None:
        """Raise SchemaError where rows were counted in a way that is not the model's.

        `whole` is what they were counted for with other models, such as "a comparison": that is to
        be asked for with the option then.
        """
        what = "the rows" if whole else "the statistics"
        counted, not_counted = f"{what} were counted", f"{what} were not counted"

        def unsuited(why: str, option: str, remedy: str) -> NoReturn:
            if whole:
                remedy = (
                    f"all models of {whole} read the rows alike: ask for that with {option}, or "
                    "leave the model out"
                )
            raise SchemaError(f"{why}; {remedy}")

        if not isinstance(stats, Statistics):
            raise SchemaError(
                f"{type(self).__name__} is fitted from statistics of tables, as "
                f"fastbayes.count returns them, not from {type(stats).__name__}"
            )
        schema = stats.schema
        if schema.missing != self._counts_missing:
            unsuited(
                f"{counted} with missing={schema.missing!r}, the model has "
                f"missing={self._counts_missing!r}",
                f"missing={self._counts_missing!r}",
                "use one of them for both, or "
                f"statistics.treating_missing({self._counts_missing!r})",
            )
        for option in ("columns", "exclude"):
            picks = several(getattr(self, option), option)
            if not all(isinstance(pick, str) for pick in picks):
                unsuited(
                    f"{option}={picks!r}: an index counts the columns of rows, and says nothing of "
                    "those that were counted",
                    f"`{option}` instead",
                    "use names, or patterns of names",
                )
        values_of = {f.name: f.values for f in schema.features}
        taking = Selection.made(self.columns, self.exclude)
        if taking is not None and (other := [n for n in schema.columns if n not in taking]):
            unsuited(
                f"{counted} with column {other[0]!r}, which the model leaves out by `columns` or "
                "`exclude`",
                "`exclude`" if self.columns is None else "`columns`",
                "count again with these, or change them",
            )
        forced = {*chosen(schema.names, by_name(self.categorical, schema.columns))}
        numbers = (f for f in schema.features if f.kind == "numeric" or f.cuts is not None)
        for name in (f.name for f in numbers if f.name in forced):
            unsuited(
                f"{counted} with column {name!r} as numeric, the model has it in `categorical`",
                "`categorical`",
                "count again with it",
            )
        for column, asked in (self.dates or {}).items():
            have = {part.part for part in schema.parts.get(column, ())}
            if have != {*named_parts(column, asked)}:
                unsuited(
                    f"{not_counted} with the model's dates[{column!r}]",
                    "`dates`",
                    "count again with these dates, or leave them out",
                )
        for name, wanted in (self.domains or {}).items():
            values = schema.classes if name == schema.target else values_of.get(name)
            if values is None or not _same_domain(name, wanted, values):
                unsuited(
                    f"{not_counted} with the model's domains[{name!r}]",
                    "`domains`",
                    "count again with these domains, or leave them out",
                )

    def _features_of(self, stats: Statistics) -> tuple[Sequence[str] | None, int]:
        return stats.schema.columns, len(stats.schema.columns)

    # -- what was learned about a column -------------------------------------------------------

    def _value_smoothing(self) -> Smoothing:
        """Return what makes P(value | class) of the counts of a column alone."""
        return Smoothing(alpha=0.0)

    def _choices(self, place: int) -> int:
        """Return the values of a categorical column, one more where missing is one."""
        values = self.statistics_.values
        last = int(values.offsets[place + 1]) - 1
        as_value = self.missing == "category" and bool(values.counts[last].any())
        return int(values.shape.sizes[place]) + as_value

    def _value_counts(self, place: int) -> NDArray[Any]:
        """Return the counts of the values of a categorical column, as many as are choices."""
        values = self.statistics_.values
        first = int(values.offsets[place])
        return values.counts[first : first + self._choices(place)]

    def _margin(self, place: int) -> Floats:
        """Return P(value | class) of a categorical column, as many values as are choices."""
        counts = self._value_counts(place)
        return self._value_smoothing().ratio(counts, counts.sum(axis=0), float(len(counts)))

    def _distribution(self, place: int) -> Distribution:
        """Return what the model has of a categorical column, by its place among these."""
        return Distribution((), self._margin(place), self._value_counts(place))

    def _class_numbers(self, place: int) -> ClassNumbers:
        """Return what the model has of a numeric column, by its place among these."""
        nothing = np.full(len(self.classes_), np.nan)
        if (moments := self.statistics_.parts.get("moments")) is None:
            return ClassNumbers("numbers of each class", nothing, nothing, nothing, nothing)
        rows = moments.count[place]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(rows > 0, moments.mean[place] + moments.rest[place], np.nan)
            deviation = np.sqrt(moments.scatter[place] / rows)
        missing = self.statistics_.values.class_counts - rows
        says = "mean and standard deviation of each class"
        return ClassNumbers(says, mean, deviation, rows, missing)

    def _column_table(self, j: int) -> ColumnTable:
        schema, values = self.schema_, self.statistics_.values
        feature = schema.features[j]
        place = schema.places[feature.kind].index(j)
        if feature.values is None:
            found = self._class_numbers(place)
            return of_numbers(feature.name, found, self.classes_, values.class_counts)
        shown = self._distribution(place)
        return of_values(
            schema.categorical,
            place,
            shown,
            self.classes_,
            margin=self._margin(place) if shown.parents else shown.probability,
            class_counts=values.class_counts,
            missing=values.counts[int(values.offsets[place + 1]) - 1],
        )

    def _loaded(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], source: str
    ) -> Statistics:
        if "discretize" in self.get_params(deep=False):
            self.discretize = discretize_from_json(self.discretize)
        return Statistics.from_state(header, arrays, source)

    def _learned(self, stats: Statistics) -> Self:
        for name in self._statistics:
            if name not in stats.parts and name not in self._dispensable:
                option = option_of(name)
                raise SchemaError(f"the statistics hold no {name}; count again with {option}")
        if stats.schema.target is None or not len(stats.schema.classes):
            raise DataError(
                "the statistics hold no class: all rows were taken away, or there was no target; "
                "count again with a target"
            )
        if not (total := float(stats.values.class_counts.sum())) <= GREATEST:
            raise DataError(
                f"the weights of the rows sum to {total:g}, over {GREATEST:g}; scale them down"
            )
        super()._learned(stats)
        self.schema_ = stats.schema
        self.classes_ = labels(stats.schema.classes)
        return self


def check_learnable(stats: Statistics, where: str) -> None:
    """Raise DataError where statistics hold nothing that a model could be made of."""
    why = None
    if not stats.n_rows:
        why = "every weight is zero" if stats.weighted else "there are no rows"
    elif not stats.schema.names:
        why = "there is no column besides the target"
    if why is not None:
        raise DataError(f"{where}: nothing to learn from, {why}")
    classes = stats.schema.classes
    if pa.types.is_floating(classes.type) and np.isinf(classes.to_numpy()).any():
        raise DataError(
            f"{where}: column {stats.schema.target!r} holds infinity as a class; leave such rows "
            "out, or cast the column to string"
        )


def _check_same_columns(known: Sequence[str], names: Sequence[str]) -> None:
    """Raise SchemaError where a batch has other columns than those learned before."""
    for some, others, what in (known, names, "missing"), (names, known, "new"):
        if apart := [name for name in some if name not in {*others}]:
            raise SchemaError(
                f"the columns of this batch differ from those of the first: column {apart[0]!r} "
                f"is {what}; the first had {list(known)}; give each batch the same columns, "
                "or fit again"
            )


def _same_domain(name: str, wanted: Any, counted: pa.Array) -> bool:
    values = domain(name, wanted)
    kind = common_type(name, values.type, counted.type)
    return same_values(*(cast_domain(name, v, kind) for v in (values, counted)))
