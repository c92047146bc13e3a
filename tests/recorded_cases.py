"""What models and statistics said when they were recorded: every class, every option in use.

`python tests/recorded_cases.py` writes tests/recorded anew, which is right only when a number is
meant to change; the files there were written before the package was rearranged.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import fastbayes as fb

FOLDER = Path(__file__).with_name("recorded")
ROWS = 200
SCORED = 40

TEXT = ["sky", "wind", "code", "flag"]
NUMBERS = ["warm", "wide", "whole"]


def table() -> pa.Table:
    """Return the recorded rows: text, numbers, truth values, gaps, weights and folds."""
    return pq.read_table(FOLDER / "rows.parquet")


def made_table() -> pa.Table:
    rng = np.random.default_rng(11)
    y = rng.integers(0, 3, ROWS)

    def gaps(values: Any, share: float) -> pa.Array:
        return pa.array(values, mask=rng.random(ROWS) < share)

    sky = np.array(["sun", "rain", "é", "fog"])[(y + (rng.random(ROWS) < 0.4)) % 4]
    which = np.where(sky == "sun", y % 2, rng.integers(0, 3, ROWS))
    wind = np.array(["low", "high", "gale"])[which]
    code = (3 * y + rng.integers(0, 4, ROWS)).astype(np.int64)
    warm = rng.normal(size=ROWS) + 0.8 * y
    return pa.table(
        {
            "sky": gaps(sky, 0.1),
            "wind": gaps(wind, 0.05).dictionary_encode(),
            "code": code,
            "flag": gaps(rng.random(ROWS) < 0.3 + 0.2 * (y == 1), 0.1),
            "warm": gaps(warm, 0.08),
            "wide": np.round(1e9 + 50 * y + 0.5 * warm + rng.standard_cauchy(ROWS), 3),
            "whole": gaps(rng.poisson(3 + 2 * y).astype(np.int32), 0.1),
            "weight": rng.integers(1, 9, ROWS) / 4,
            "fold": rng.integers(0, 3, ROWS),
            "y": gaps(np.array(["no", "yes", "ü"])[y], 0.02),
        }
    )


def part(rows: pa.Table, columns: list[str]) -> pa.Table:
    return rows.select([*columns, "y"])


def cells(rows: pa.Table) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return codes for the drop-ins, and labels."""
    some = rows.drop_null()
    columns = [some[n].to_numpy() for n in ("code", "whole")]
    return np.stack([*columns, (some["warm"].to_numpy() > 0) * 2], axis=1), some["y"].to_numpy()


ALL = [*TEXT, *NUMBERS]
FORCED = {"categorical": ["code"]}
DOMAINS = {"sky": ["sun", "rain", "é", "fog", "snow"], "y": ["no", "yes", "ü"]}
GRAPH = [("y", "sky"), ("y", "wind"), ("sky", "wind"), ("code", "y"), ("flag", "code")]

# name -> (class, parameters, columns); "weight": fitted with the weights.
TABLE_MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "nb": ("NaiveBayes", {}, ALL),
    "nb-ml-domains": ("NaiveBayes", {"alpha": 0.0, "domains": DOMAINS, **FORCED}, ALL),
    "nb-loo-category": ("NaiveBayes", {"alpha": "loo", "missing": "category"}, ALL),
    "nb-smooth-fast": (
        "NaiveBayes",
        {"unseen": "smooth", "missing": "category", "precision": "fast", "ddof": 1, **FORCED},
        ALL,
    ),
    "nb-error-prior": ("NaiveBayes", {"unseen": "error", "class_prior": [0.2, 0.5, 0.3]}, ALL),
    "nb-averaged": (
        "NaiveBayes",
        {"feature_averaging": True, "class_prior": "uniform", "variance": "shared"},
        ALL,
    ),
    "nb-averaged-third": ("NaiveBayes", {"feature_averaging": 0.3, "alpha": 0.5, **FORCED}, TEXT),
    "nb-single": (
        "NaiveBayes",
        {"variance": "single", "var_floor": 1e-3, "class_prior": "empirical"},
        NUMBERS,
    ),
    "nb-kde": ("NaiveBayes", {"numeric": "kde"}, ALL),
    "nb-histogram": ("NaiveBayes", {"numeric": "histogram"}, NUMBERS),
    "nb-mdl": ("NaiveBayes", {"numeric": "mdl"}, ALL),
    "nb-auto": ("NaiveBayes", {"numeric": "auto"}, ALL),
    "nb-each": (
        "NaiveBayes",
        {"numeric": {"warm": "kde", "wide": "histogram", "whole": [2.0, 5.0]}},
        ALL,
    ),
    "nb-em": ("NaiveBayes", {"unlabelled": "em"}, ALL),
    "nb-weight": ("NaiveBayes", {"numeric": {"warm": "kde"}, **FORCED}, [*ALL, "weight"]),
    "spode": ("SPODE", {}, ALL),
    "spode-loo": ("SPODE", {"super_parent": "loo", "alpha": "loo", **FORCED}, TEXT),
    "spode-cv": ("SPODE", {"super_parent": "cv", "missing": "category"}, TEXT),
    "spode-cmi": ("SPODE", {"super_parent": "cmi", "class_prior": "uniform"}, ALL),
    "spode-named": ("SPODE", {"super_parent": "wind", "unseen": "smooth"}, ALL),
    "tan": ("TAN", {}, ALL),
    "tan-hdp": ("TAN", {"smoothing": "hdp", **FORCED}, TEXT),
    "tan-bic": ("TAN", {"prune": "bic", "alpha": "loo", "discretize": "quantile"}, ALL),
    "tan-aic-root": ("TAN", {"prune": "aic", "root": "flag", "precision": "fast"}, ALL),
    "tan-category": (
        "TAN",
        {"missing": "category", "unseen": "smooth", "discretize": ("width", 4), **FORCED},
        [*ALL, "weight"],
    ),
    "aode": ("AODE", {}, ALL),
    "aode-weights": ("AODE", {"weights": "mutual_information", "subsumption": 5, **FORCED}, TEXT),
    "aode-given": ("AODE", {"weights": {"sky": 2.0, "code": 1.0}, "min_count": 20, **FORCED}, TEXT),
    "aode-select": ("AODE", {"select": "leave_one_out", "class_prior": "empirical"}, ALL),
    "aode-m": (
        "AODE",
        {"smoothing": "m_estimate", "m": 2.0, "missing": "category", "unseen": "smooth"},
        ALL,
    ),
    "aode-fast": ("AODE", {"precision": "fast", "discretize": {"warm": [0.0]}}, [*ALL, "weight"]),
    "a2de": ("A2DE", {}, TEXT),
    "a2de-m": (
        "A2DE",
        {"smoothing": "m_estimate", "subsumption": 5, "min_count": 3, "class_prior": "uniform"},
        TEXT,
    ),
    "kdb": ("KDB", {}, ALL),
    "kdb-naive": ("KDB", {"k": 0}, ALL),
    "kdb-one-hdp": ("KDB", {"k": 1, "smoothing": "hdp", "missing": "category"}, ALL),
    "kdb-three-hdp": ("KDB", {"k": 3, "smoothing": "hdp", **FORCED}, TEXT),
    "kdb-select": ("KDB", {"select": "leave_one_out", "criterion": "error"}, ALL),
    "kdb-weight": ("KDB", {"k": 2, "alpha": 0.3, "unseen": "smooth"}, [*ALL, "weight"]),
    "network": ("NetworkClassifier", {}, ALL),
    "network-given": ("NetworkClassifier", {"network": GRAPH, **FORCED}, TEXT),
    "network-bdeu": (
        "NetworkClassifier",
        {"network": GRAPH, "smoothing": "bdeu", "ess": 3.0, "class_prior": "uniform", **FORCED},
        TEXT,
    ),
    "network-tree": ("NetworkClassifier", {"search": "chow_liu", "missing": "category"}, TEXT),
    "network-k2": (
        "NetworkClassifier",
        {"search": "k2", "graph_score": "bdeu", "max_parents": 2, "order": ["y", *TEXT], **FORCED},
        TEXT,
    ),
    "gaussian": ("GaussianBayes", {}, NUMBERS),
    "gaussian-tied": ("GaussianBayes", {"covariance": "tied", "ddof": 1}, NUMBERS),
    "gaussian-diagonal": ("GaussianBayes", {"covariance": "diagonal"}, [*NUMBERS, "weight"]),
    "gaussian-spherical": ("GaussianBayes", {"covariance": "spherical"}, ["warm", "whole"]),
    "gaussian-oas": ("GaussianBayes", {"shrinkage": "auto", "missing": "impute_mean"}, NUMBERS),
    "gaussian-shrunk": ("GaussianBayes", {"shrinkage": 0.3, "class_prior": "uniform"}, NUMBERS),
    "gaussian-niw": ("GaussianBayes", {"prior": "niw"}, NUMBERS),
    "joint-bayes": ("JointBayes", {}, TEXT),
    "joint-bayes-loo": ("JointBayes", {"tau": "loo", "alpha": 0.5, "missing": "category"}, ALL),
    "joint-gaussian": ("JointGaussian", {"density": "normal"}, ALL),
    "joint-gaussian-tau": (
        "JointGaussian",
        {"tau": 2.0, "backoff": 30.0, "alpha": 2.0, "density": "normal"},
        ALL,
    ),
    "joint-gaussian-naive": (
        "JointGaussian",
        {"cells": "naive", "missing": "category", "density": "normal"},
        ALL,
    ),
    "logistic": ("LogisticRegression", {"standard_errors": True}, ALL),
    "logistic-l1": ("LogisticRegression", {"penalty": "l1", "C": 0.5, **FORCED}, ALL),
    "logistic-none": (
        "LogisticRegression",
        {"penalty": None, "tol": 1e-4, "class_weight": "balanced"},
        ["sky", "warm"],
    ),
    "logistic-pairs": (
        "LogisticRegression",
        {"interactions": [("sky", "wind")], "missing": "category", "init": "zeros"},
        ALL,
    ),
    "weighted": ("WeightedNaiveBayes", {}, ALL),
    "weighted-l2": ("WeightedNaiveBayes", {"l2": 10.0, "alpha": "loo", **FORCED}, ALL),
}
# The defaults when they were recorded.
BEFORE = {
    "NaiveBayes": {"var_floor": 1e-9, "parametric": "gaussian"},
    "GaussianBayes": {"singular": "shrink"},
    "TAN": {"concentration": 0.0},
    "KDB": {"concentration": 0.0},
}
TABLE_MODELS = {
    name: (kind, BEFORE.get(kind, {}) | params, columns)
    for name, (kind, params, columns) in TABLE_MODELS.items()
}
DROP_INS: dict[str, tuple[str, dict[str, Any]]] = {
    "categorical-nb": ("CategoricalNB", {}),
    "categorical-nb-min": ("CategoricalNB", {"min_categories": 20, "alpha": 0.5}),
    "multinomial-nb": ("MultinomialNB", {"fit_prior": False}),
    "complement-nb": ("ComplementNB", {"norm": True}),
    "bernoulli-nb": ("BernoulliNB", {"binarize": 1.0}),
    "bernoulli-nb-plain": ("BernoulliNB", {"class_prior": [0.2, 0.3, 0.5]}),
    "gaussian-nb": ("GaussianNB", {}),
    "gaussian-nb-priors": ("GaussianNB", {"priors": [0.2, 0.3, 0.5], "var_smoothing": 1e-3}),
}
CALIBRATED: dict[str, Callable[[], Any]] = {
    "calibrated": lambda: fb.Calibrated(fb.NaiveBayes(var_floor=1e-9, parametric="gaussian")),
    "calibrated-isotonic": lambda: fb.Calibrated(
        fb.TAN(alpha=0.5, concentration=0.0), method="isotonic"
    ),
    "calibrated-folds": lambda: fb.Calibrated(fb.AODE(), validation="k_fold", folds=3),
}
COUNTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "values": ({}, ALL),
    "values-no-moments": ({"moments": False, "missing": "category"}, ALL),
    "values-domains": ({"domains": DOMAINS, "null_values": ["low"]}, ALL),
    "values-weight": ({"sample_weight": "weight", **FORCED}, [*ALL, "weight"]),
    "values-folds": ({"folds": "fold"}, [*ALL, "fold"]),
    "values-folds-place": ({"folds": 4, **FORCED}, ALL),
    "pairs": ({"pairs": True}, ALL),
    "pairs-weight": ({"pairs": True, "sample_weight": "weight"}, [*ALL, "weight"]),
    "pairs-folds": ({"pairs": True, "folds": "fold", "discretize": "width"}, [*ALL, "fold"]),
    "triples": ({"triples": True, **FORCED}, TEXT),
    "families": ({"families": [("sky",), ("sky", "wind"), ("sky", "wind", "flag")]}, TEXT),
    "scatter": ({"scatter": True}, NUMBERS),
    "scatter-weight": ({"scatter": True, "sample_weight": "weight"}, [*NUMBERS, "weight"]),
    "cells": ({"cells": True, "missing": "category"}, TEXT),
    "cell-scatter": ({"cells": ["sky", "wind"], "cell_scatter": True}, ["sky", "wind", "warm"]),
    "sketches": ({"numeric": "kde"}, NUMBERS),
    "sketches-weight": ({"numeric": "auto", "sample_weight": "weight"}, [*NUMBERS, "weight"]),
    "no-target": ({"target": None}, ALL),
}


def fitted(name: str, rows: pa.Table) -> Any:
    """Return the model of this name, fitted to the rows."""
    if name in DROP_INS:
        kind, params = DROP_INS[name]
        return getattr(fb, kind)(**params).fit(*cells(rows))
    if name in CALIBRATED:
        return CALIBRATED[name]().fit(part(rows, TEXT), "y")
    kind, params, columns = TABLE_MODELS[name]
    weight = "weight" if "weight" in columns else None
    return getattr(fb, kind)(**params).fit(part(rows, columns), "y", sample_weight=weight)


def network(rows: pa.Table) -> Any:
    return fb.BayesianNetwork.learn(
        rows.select(ALL), discretize="quantile", categorical=["code"], seed=1
    )


def said(name: str, model: Any, rows: pa.Table) -> dict[str, NDArray[Any]]:
    """Return what the model says of the first rows, by question; what it lacks is left out."""
    if name in DROP_INS:
        few: Any = cells(rows)[0][:SCORED]
    else:
        few = rows.slice(0, SCORED).select(list(model.feature_names_in_))
    asked: dict[str, Callable[[], Any]] = {
        "proba": lambda: model.predict_proba(few),
        "log_joint": lambda: model.log_joint(few),
        "contributions": lambda: model.explain(few).contributions,
        "shares": lambda: model.explain(few).super_parents,
        "n_parameters": lambda: model.n_parameters_,
        "sample": lambda: json.dumps(model.sample(8, seed=3).to_pydict()),
        "left_out": lambda: left_out(name, model, rows),
        "network": lambda: model.to_network().n_parameters(),
        "linear": lambda: model.to_logistic().log_joint(few),
    }
    found = {}
    for what, ask in asked.items():
        with contextlib.suppress(fb.FastBayesError, AttributeError):
            answer = ask()
            if answer is not None:
                found[what] = np.asarray(answer)
    return found


def left_out(name: str, model: Any, rows: pa.Table) -> NDArray[np.float64]:
    if name in DROP_INS or name in CALIBRATED:
        raise AttributeError("leave_one_out is for models of tables")
    kind, params, columns = TABLE_MODELS[name]
    weight = "weight" if "weight" in columns else None
    given = (
        model
        if hasattr(model, "select") or params.get("super_parent") in ("loo", "cv")
        else (getattr(fb, kind)(**params))
    )
    return np.asarray(
        fb.leave_one_out(given, model.statistics_, part(rows, columns), sample_weight=weight).proba
    )


def counted(name: str, rows: pa.Table) -> fb.Statistics:
    options, columns = COUNTS[name]
    given = part(rows, columns) if options.get("target", "y") else rows.select(columns)
    return fb.count(given, **{"target": "y", **options})


MODELS = [*TABLE_MODELS, *DROP_INS, *CALIBRATED]


def said_by_network(model: Any, rows: pa.Table) -> NDArray[np.float64]:
    few = rows.slice(0, SCORED)
    return np.asarray(model.predict_proba(few.select([n for n in ALL if n != "sky"]), "sky"))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pq.write_table(made_table(), FOLDER / "rows.parquet", compression="zstd")
    rows, answers = table(), dict[str, NDArray[Any]]()
    for name in MODELS:
        model = fitted(name, rows)
        model.save(FOLDER / f"{name}.fb", force=True)
        answers |= {f"{name}.{what}": found for what, found in said(name, model, rows).items()}
    for name in COUNTS:
        counted(name, rows).save(FOLDER / f"{name}.fbs", force=True)
    network(rows).save(FOLDER / "bayesian-network.fb", force=True)
    answers["bayesian-network.proba"] = said_by_network(network(rows), rows)
    np.savez_compressed(FOLDER / "answers.npz", **answers)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
