"""The rivals, each as a user would write it in a few lines; those not installed are absent.

Trees take categories as they are, or in the order of their domain (the forest); logistic regression
takes one indicator for each value, and numbers that are imputed by their mean and standardised. All
run on one thread with seed 0; what is not named here is the library's default.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

LIGHTGBM, REGULARISED = "LightGBM", "LightGBM, 60 trees at rate 0.05"
BOOSTING, FOREST, LOGISTIC = "HistGradientBoosting", "RandomForest(500)", "LogisticRegression"
VOTE = "soft vote of four"
# Whose posteriors the vote is the mean of.
VOTERS = (FOREST, REGULARISED, BOOSTING, LOGISTIC)

Make = Callable[[pd.DataFrame], Any]


def lightgbm(**options: Any) -> Make:
    """Return what makes LightGBM, which takes categories and missing values as they are."""

    def make(X: pd.DataFrame) -> Any:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(**options, n_jobs=1, random_state=0, verbose=-1)

    return make


def boosting(X: pd.DataFrame) -> Any:
    """Return scikit-learn's gradient boosting, which takes both as they are, too."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)


def forest(X: pd.DataFrame) -> Any:
    """Return a forest of codes in the order of the domains and of numbers."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    nominal = list(X.select_dtypes("category"))
    encoder = OrdinalEncoder(
        categories=[X[name].cat.categories for name in nominal],
        handle_unknown="use_encoded_value",  # what is missing, which trees take as NaN
        unknown_value=np.nan,
    )
    columns = make_column_transformer((encoder, nominal), remainder="passthrough")
    trees = RandomForestClassifier(500, min_samples_leaf=2, n_jobs=1, random_state=0)
    return make_pipeline(columns, trees)


def logistic(X: pd.DataFrame) -> Any:
    """Return logistic regression of indicators and of standardised numbers."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    nominal, numbers = list(X.select_dtypes("category")), list(X.select_dtypes("number"))
    scaled = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    indicators = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((scaled, numbers), (indicators, nominal))
    return make_pipeline(columns, LogisticRegression(max_iter=1000))


# What each is, and the package that it takes.
RIVALS: dict[str, tuple[str, Make]] = {
    LIGHTGBM: ("lightgbm", lightgbm()),
    REGULARISED: ("lightgbm", lightgbm(n_estimators=60, learning_rate=0.05)),
    BOOSTING: ("sklearn", boosting),
    FOREST: ("sklearn", forest),
    LOGISTIC: ("sklearn", logistic),
}


def absent() -> dict[str, str]:
    """Return the package that each rival lacks that cannot take part, and so the vote."""
    found = {name: p for name, (p, _) in RIVALS.items() if find_spec(p) is None}
    lacking = [found[name] for name in VOTERS if name in found]
    return found | ({VOTE: lacking[0]} if lacking else {})


def vote(posteriors: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the mean of the posteriors of those that vote, (n_rows, n_classes)."""
    return np.mean([posteriors[name] for name in VOTERS], axis=0)
