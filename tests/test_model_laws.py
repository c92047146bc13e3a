"""The laws of classifiers, over the registry and over what options change most."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from model_laws import LAWS
from recorded_cases import ALL, NUMBERS, TABLE_MODELS, TEXT, table

import fastbayes as fb
from fastbayes.models.registry import by_name

# Of the options, those that change how rows are counted or scored, not with which numbers.
OPTIONS = (
    *("nb-ml-domains", "nb-smooth-fast", "nb-averaged", "nb-kde", "nb-histogram", "nb-auto"),
    *("nb-mdl", "nb-em"),
    *("spode-loo", "tan-hdp", "tan-category", "aode-weights", "aode-m", "a2de-m", "kdb-three-hdp"),
    *("network-given", "network-tree", "joint-bayes-loo"),
    *("gaussian-tied", "gaussian-oas", "gaussian-diagonal", "gaussian-spherical"),
    *("joint-gaussian-naive", "logistic-l1", "logistic-none", "logistic-pairs", "weighted-l2"),
)
COLUMNS = {"GaussianBayes": NUMBERS, "A2DE": TEXT, "JointBayes": TEXT}
MODELS = {e.cls: (e.cls, {}, COLUMNS.get(e.cls, ALL)) for e in by_name().values()}
CASES = MODELS | {name: TABLE_MODELS[name] for name in OPTIONS}
# Models that learn from the rows themselves, which no count replaces, and the laws of counts.
FROM_ROWS = {"WeightedNaiveBayes", "weighted-l2", "spode-loo", "LogisticRegression", "Blend"}
FROM_ROWS |= {name for name in CASES if name.startswith("logistic-")}
OF_COUNTS = {"a_count_is_all_that_is_learned", "batches_are_the_whole"}
# Models that hold rows out by their places, and the laws of rows that are cut into others.
BY_PLACE = {"Blend"}
OF_ROWS = {
    *("order_of_rows", "a_weight_is_how_often_a_row_stands"),
    *("rows_without_a_class_are_no_rows", "files_are_tables_and_give_the_model_back"),
}
EXACT = {"LogisticRegression": {"tol": 1e-9}}  # to be compared, a minimum is found to more figures


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.FastBayesWarning)
        yield


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("case", "law"),
    [
        (c, law)
        for c in CASES
        for law in LAWS
        if not (c in FROM_ROWS and law in OF_COUNTS) and not (c in BY_PLACE and law in OF_ROWS)
    ],
)
def test_law(case: str, law: str, rows: pa.Table) -> None:
    kind, parameters, columns = CASES[case]
    parameters = EXACT.get(kind, {}) | parameters
    some = rows.select([*(c for c in columns if c != "weight"), "y"]).filter(rows["y"].is_valid())
    LAWS[law](lambda: getattr(fb, kind)(**parameters), some)


class Centred(fb.NaiveBayes):
    """Breaks two laws: what it says of a row depends on the others, and on their order."""

    def log_joint(self, X: Any) -> Any:
        return super().log_joint(X) + super().log_joint(X)[0]

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) * np.linspace(0.5, 1, len(X))[:, None]


@pytest.mark.parametrize(
    "law", ["rows_do_not_see_each_other", "posteriors_are_the_joint_normalised"]
)
def test_law__can_be_broken(law: str, rows: pa.Table) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](Centred, rows.select([*TEXT, "y"]).drop_null())
