"""What is added from outside the package works like what is in it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import test_statistics_laws as laws
from commands import run
from making import random_table
from model_laws import LAWS as LAWS_OF_MODELS
from recorded_cases import table as recorded_rows
from sklearn.utils.estimator_checks import estimator_checks_generator

import fastbayes as fb
from fastbayes.core.batch import Batch
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.models import registry as models
from fastbayes.models.estimator.base import Classifier
from fastbayes.models.estimator.parameters import UNSEEN, fitted, number, parameter
from fastbayes.scan.fold_statistics import others
from fastbayes.statistics.base import CLASSES, NUMERIC, Floats, Statistic, array
from fastbayes.statistics.registry import REGISTRY, register


class Extremes(Statistic):
    """Least and greatest value of each numeric column within each class."""

    name = "extremes"
    title = "extremes"
    numeric_as = "numbers"

    least: Floats = array(NUMERIC, CLASSES, merge=np.minimum, empty=np.inf)
    greatest: Floats = array(NUMERIC, CLASSES, merge=np.maximum, empty=-np.inf)

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch."""
        assert batch.classes is not None
        weighs = np.True_ if batch.weight is None else batch.weight > 0
        for j, values in enumerate(batch.numeric):
            known = ~np.isnan(values) & weighs
            labels, values = batch.classes[known], values[known]
            np.minimum.at(self.least[j], labels, values)
            np.maximum.at(self.greatest[j], labels, values)


@pytest.fixture
def _registered() -> Iterator[None]:
    register(Extremes)
    yield
    REGISTRY.pop(Extremes.name, None)


LAWS: list[Any] = [
    laws.test_identity_commutative_associative,
    laws.test_rows_together_are_parts_added,
    laws.test_what_was_added_can_be_taken_away,
    laws.test_operations_leave_their_operands_alone,
    laws.test_row_order_does_not_matter,
    laws.test_arrays_say_it_all,
    laws.test_scaling_is_weighing,
    laws.test_take__there_and_back,
    laws.test_take__commutes_with_adding,
    laws.test_take__new_cells_are_empty,
    laws.test_grown__values_and_classes_may_come_later,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("weighted", [False, True])
def test_statistic__obeys_the_laws(law: Any, weighted: bool) -> None:
    law(kind=Extremes, weighted=weighted)


def test_statistic__weight_is_how_often_a_row_stands() -> None:
    laws.test_weight_is_how_often_a_row_stands(kind=Extremes)


TABLE = random_table(150_000)


def counted(table: pa.Table = TABLE, **options: Any) -> fb.Statistics:
    return fb.count(table, "y", statistics=["extremes"], **options)


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("options", [{}, {"cells": True}, {"scatter": True, "moments": False}])
def test_statistic__is_counted_with_the_others(options: Any) -> None:
    stats = counted(**options)
    found = stats.parts["extremes"]
    assert isinstance(found, Extremes)
    assert {*stats.parts} == {*fb.count(TABLE, "y", **options).parts, "extremes"}
    for j, feature in enumerate(stats.schema.numeric):
        column = TABLE[feature.name].cast(pa.float64())
        for c, label in enumerate(stats.schema.classes):
            mine = column.filter(pc.equal(TABLE["y"], label).combine_chunks())
            extremes = pc.min_max(pc.drop_null(pc.if_else(pc.is_nan(mine), None, mine))).as_py()
            assert (found.least[j, c], found.greatest[j, c]) == tuple(extremes.values())


@pytest.mark.usefixtures("_registered")
def test_statistic__threads_parts_and_files_change_no_bit(tmp_path: Path) -> None:
    whole = counted(threads=1)
    assert counted(threads=3) == whole
    halves = [counted(TABLE.slice(0, 40_000)), counted(TABLE.slice(40_000))]
    assert (halves[0] + halves[1]).parts["extremes"] == whole.parts["extremes"]
    assert (halves[1] + halves[0]).parts["extremes"] == whole.parts["extremes"]
    whole.save(tmp_path / "whole.fbs")
    assert fb.Statistics.load(tmp_path / "whole.fbs") == whole
    del REGISTRY["extremes"]
    with pytest.raises(fb.FileFormatError, match="no statistic is called 'extremes'; there are"):
        fb.Statistics.load(tmp_path / "whole.fbs")


@pytest.mark.usefixtures("_registered")
def test_statistic__of_folds() -> None:
    stats = counted(folds=3)
    assert stats.parts["extremes"] == counted().parts["extremes"]
    rest = others(stats, 1).parts["extremes"]
    assert rest == stats.folds[0].parts["extremes"] + stats.folds[2].parts["extremes"]


@pytest.mark.usefixtures("_registered")
def test_statistic__what_it_cannot_do_is_said() -> None:
    stats = counted()
    with pytest.raises(
        fb.DataError, match=r"extremes: parts of it cannot be taken away; count the remaining rows"
    ):
        stats - stats
    with pytest.raises(fb.SchemaError, match="extremes have no table; save them to a file"):
        stats.to_table()
    with pytest.raises(
        ValueError, match=r"statistics=\['extremes'\] wants numeric columns as they are"
    ):
        counted(pairs=True)
    with pytest.raises(fb.MemoryLimitError, match="numeric columns need"):
        counted(memory_limit=10)


def test_statistic__that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no statistic is called 'extremes'; .*'values'"):
        counted()


def test_register__refuses_a_name_that_is_taken() -> None:
    class Other(Extremes):
        name = "values"

    with pytest.raises(ValueError, match="the name 'values' stands for ValueCounts"):
        register(Other)


# -- a classifier --------------------------------------------------------------------------------


class RangeScorer(JointScorer):
    """ln P(c) - sum_j ln(width of column j within class c), where every number is within."""

    def __init__(self, log_prior: Floats, least: Floats, greatest: Floats) -> None:
        super().__init__(log_prior, tie=1e-9)
        self.least, self.greatest = least, greatest

    def log_joint(self, batch_codes: Any, numeric: Sequence[Floats], out: Floats) -> None:
        out[:] = self._log_prior + self.terms(numeric, len(out)).sum(axis=1)

    def terms(self, numeric: Sequence[Floats], n_rows: int) -> Floats:
        """Return (n_rows, n_numeric, n_classes) log densities; 0 where a number is missing."""
        found = np.zeros((n_rows, len(numeric), len(self._log_prior)))
        for j, values in enumerate(numeric):
            within = (values[:, None] >= self.least[j]) & (values[:, None] <= self.greatest[j])
            with np.errstate(invalid="ignore"):
                level = -np.log(self.greatest[j] - self.least[j])
            known = ~np.isnan(values)
            found[known, j] = np.where(within[known], level, -np.inf)
        return found


class Ranges(Classifier):
    """Uniform densities of numeric columns within each class, over a range somewhat wider."""

    _statistics = ("values", "extremes")
    _poor_score = True  # where ranges overlap they say nothing

    margin: float = parameter(
        "Share of its width by which a range is widened.", default=0.1, check=number()
    )
    unseen: str = UNSEEN
    class_log_prior_: Floats = fitted("(n_classes,) nats.")
    _scores: RangeScorer = fitted()

    def _read(self, stats: fb.Statistics) -> dict[str, Any]:
        extremes, rows = stats.parts["extremes"], stats.values.class_counts
        assert isinstance(extremes, Extremes)
        whole = extremes.greatest.max(axis=1) - extremes.least.min(axis=1)
        wider = self.margin * np.where(np.isfinite(whole) & (whole > 0), whole, 1.0)[:, None]
        log_prior = np.log(rows / rows.sum())
        scores = RangeScorer(log_prior, extremes.least - wider, extremes.greatest + wider)
        return {"class_log_prior_": log_prior, "_scores": scores}

    @property
    def n_parameters_(self) -> int:
        """Free parameters: a prior for each class but one, two ends of each range."""
        return len(self.classes_) - 1 + 2 * self._scores.least.size

    def _log_prior(self) -> Floats:
        return self.class_log_prior_

    def _scorer(self, cells: float) -> RangeScorer:
        return self._scores

    def _contributions(self, batch: Batch, out: Floats) -> None:
        where = [f.kind == "numeric" for f in self.schema_.features]
        out[:] = 0.0
        out[:, where] = self._scores.terms(batch.numeric, len(out))


@pytest.fixture
def _known(_registered: None) -> Iterator[None]:
    models.register(Ranges, name="ranges", candidates=(models.Candidate(),))
    yield
    del models.MODELS["Ranges"]


ROWS = recorded_rows().select(["sky", "warm", "whole", "y"]).drop_null()


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("law", LAWS_OF_MODELS)
def test_classifier__obeys_the_laws(law: str) -> None:
    LAWS_OF_MODELS[law](Ranges, ROWS)


@pytest.mark.usefixtures("_known")
@pytest.mark.filterwarnings("ignore::fastbayes.FastBayesWarning")
def test_classifier__passes_the_checks_of_scikit_learn() -> None:
    for estimator, check in estimator_checks_generator(Ranges()):
        with contextlib.suppress(SkipTest):
            check(estimator)


def test_subclass__may_write_its_init() -> None:
    """As scikit-learn's estimators do."""

    class Doubtful(fb.NaiveBayes):
        def __init__(self, alpha: float = 5.0, extra: int = 1) -> None:
            super().__init__(alpha=alpha)
            self.extra = extra

    class More(Doubtful):
        pass

    assert More(extra=3).get_params() == {"alpha": 5.0, "extra": 3}
    assert repr(More(alpha=2.0)) == "More(alpha=2.0)"
    fitted_model = Doubtful().fit(ROWS, "y")
    assert fitted_model.alpha_ == 5.0
    with pytest.raises(ValueError, match="alpha=-1"):
        Doubtful(alpha=-1).fit(ROWS, "y")


def test_laws__of_statistics_are_all_here() -> None:
    known = {f.__name__ for f in LAWS} | {"test_weight_is_how_often_a_row_stands"}
    assert known == {
        name
        for name, f in vars(laws).items()
        if name.startswith("test_") and "kind" in inspect.signature(f).parameters
    }


@pytest.mark.usefixtures("_known")
def test_classifier__is_compared_by_name() -> None:
    board = fb.compare(ROWS, "y", models=["ranges", "naive-bayes"], folds=3)
    assert {entry.name for entry in board.entries} == {"ranges", "naive-bayes"}
    assert np.isfinite(board["ranges"].figures.log_loss)


@pytest.mark.usefixtures("_known")
def test_classifier__on_the_command_line(tmp_path: Path) -> None:
    data, file, out = (tmp_path / name for name in ("rows.parquet", "ranges.fb", "out.parquet"))
    pq.write_table(ROWS, data)
    run("fit", data, "--target", "y", "--model", "ranges", "--margin", "0.25", "-o", file)
    model = fb.load(file)
    assert type(model) is Ranges
    assert model.margin == 0.25
    run("predict", file, data, "-o", out)
    assert pq.read_table(out).num_rows == len(ROWS)
    assert "Ranges" in run("inspect", file).output
    assert "ranges" in run("compare", data, "--target", "y", "--folds", "3").output
