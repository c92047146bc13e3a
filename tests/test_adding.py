"""What is added from outside the package works like what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import test_statistics_laws as laws
from making import random_table

import fastbayes as fb
from fastbayes.core.batch import Batch
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
    with pytest.raises(fb.DataError, match=r"extremes do not come apart.*count the remaining rows"):
        stats - stats
    with pytest.raises(fb.SchemaError, match="extremes have no table; save them to a file"):
        stats.to_table()
    with pytest.raises(ValueError, match="extremes=True wants numeric columns as they are"):
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
