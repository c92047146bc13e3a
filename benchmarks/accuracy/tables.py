"""The tables and their folds: scikit-learn's, and those of a directory of reference tables.

One frame serves every side: numbers are floats, categorical columns have the categorical type of
pandas with the declared values, and what is missing is missing. fastbayes, LightGBM and
scikit-learn's gradient boosting take it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

N_FOLDS = 10
SKLEARN = ("iris", "wine", "breast_cancer", "digits")
# What a directory of reference tables has besides `tables/NAME.csv`.
REFERENCE = "REFERENCE.csv"
# Methods of Weka that the reference lists for some tables alone do not take part.
WEKA = "weka_"


@dataclass(frozen=True)
class Table:
    """A table with a class and ten stratified folds.

    name   of the table
    X      (n_rows, n_columns) floats, NaN where missing, and categories
    y      (n_rows,) text
    fold   (n_rows,) 0 to 9
    given  whether the folds were read, so that figures of other systems are of the same folds
    weka   {method: (accuracy, log-loss in nats)} of Weka on these folds
    """

    name: str
    X: pd.DataFrame
    y: NDArray[Any]
    fold: NDArray[np.int64]
    given: bool
    weka: dict[str, tuple[float, float]]


def of_sklearn(name: str) -> Table:
    """Return a table that comes with scikit-learn, in folds drawn with seed 0."""
    from sklearn import datasets
    from sklearn.model_selection import StratifiedKFold

    found = getattr(datasets, f"load_{name}")(as_frame=True)
    y = np.asarray(found.target_names).astype(str)[found.target]
    fold = np.empty(len(y), np.int64)
    splits = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y)
    for i, (_, rows) in enumerate(splits):
        fold[rows] = i
    return Table(f"sklearn-{name}", found.data.astype(float), y, fold, False, {})


def of_directory(folder: Path, name: str, weka: dict[str, tuple[float, float]]) -> Table:
    """Return `tables/NAME.csv`, whose last column is the class, with its domains and folds."""
    domains = json.loads((folder / "domains" / f"{name}.json").read_text("utf-8"))
    # Text such as "None" is a value; an empty cell alone is missing.
    path = folder / "tables" / f"{name}.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    y = frame.pop(frame.columns[-1]).to_numpy(str)
    for column in frame:
        domain = domains[column]
        frame[column] = (
            frame[column].astype(float)
            if domain == "numeric"
            else pd.Categorical(frame[column], categories=domain)
        )
    folds = pd.read_csv(folder / "folds" / f"{name}.csv").sort_values("row")
    return Table(name, frame, y, folds["fold"].to_numpy(np.int64), True, weka)


def weka_figures(folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return {table: {method: (accuracy, log-loss)}} of Weka, of methods that took every table."""
    lines = pd.read_csv(folder / REFERENCE)
    lines = lines[lines["method"].str.startswith(WEKA)]
    n_tables = lines.groupby("method")["dataset"].transform("nunique")
    lines = lines[n_tables == lines["dataset"].nunique()]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for line in lines.to_dict("records"):
        figures = line["accuracy_pct"] / 100, line["logloss_nats_clip1e-15"]
        found.setdefault(line["dataset"], {})[line["method"].removeprefix(WEKA)] = figures
    return found


def names(folder: Path) -> list[str]:
    """Return the names of all tables: scikit-learn's, and those with folds where the folder is."""
    given = sorted(path.stem for path in (folder / "folds").glob("*.csv"))
    return [*(f"sklearn-{name}" for name in SKLEARN), *given]


def tables(folder: Path, chosen: list[str]) -> Iterator[Table]:
    """Yield the tables chosen, in order."""
    weka = weka_figures(folder) if (folder / REFERENCE).exists() else {}
    for name in chosen:
        if name.startswith("sklearn-"):
            yield of_sklearn(name.removeprefix("sklearn-"))
        else:
            yield of_directory(folder, name, weka.get(name, {}))
