"""What results look like in a notebook: a short table or a line, numbers rounded."""

from __future__ import annotations

import numpy as np
import pytest

import fastbayes as fb
from fastbayes.core.text_tables import COLUMNS, LINES, brief

RANDOM = np.random.default_rng(0)
TABLE = {
    "a": RANDOM.integers(0, 4, 200).astype(str),
    "b": RANDOM.integers(0, 3, 200).astype(str),
    "x": RANDOM.normal(size=200),
    "y": RANDOM.choice([f"a class with a long name {i}" for i in range(12)], 200),
}
NUMBERS = np.c_[TABLE["x"], TABLE["x"] ** 2]


def _curve():
    return fb.learning_curve(["naive-bayes", "tan", "kdb"], TABLE, "y", repeats=2)


def _learned():
    return fb.BayesianNetwork.learn({name: TABLE[name] for name in "aby"}, restarts=2).search_


RESULTS = {
    "evaluation": (lambda: fb.evaluate(fb.NaiveBayes().fit(TABLE, "y"), TABLE, "y"), "accuracy"),
    "k_fold": (lambda: fb.k_fold(fb.NaiveBayes(), TABLE, "y", folds=3), "k-fold, schema fixed"),
    "comparison": (lambda: fb.compare(TABLE, "y"), "log-loss"),
    "entry": (lambda: fb.compare(TABLE, "y", models="tan").best, "<Entry tan: accuracy"),
    "curve": (_curve, "2 repeats"),
    "crossover": (lambda: fb.crossover(_curve(), "naive-bayes", "tan"), "tan overtakes"),
    "alpha sweep": (lambda: fb.alpha_sweep(fb.NaiveBayes(), TABLE, "y"), "best"),
    "threshold sweep": (lambda: fb.threshold_sweep(NUMBERS, TABLE["y"]), "best"),
    "plan": (lambda: fb.plan(TABLE, "y", pairs=True), "<Plan of 200 rows, 12 classes"),
    "pair plan": (lambda: fb.plan(TABLE, "y", pairs=True).pairs, "bytes, 1 scan>"),
    "search": (_learned, "<Learned graph of 3 nodes"),
    "calibration": (
        lambda: fb.evaluate(fb.NaiveBayes().fit(TABLE, "y"), TABLE, "y").calibration,
        "confidence",
    ),
    "column": (lambda: fb.TAN().fit(TABLE, "y").table("a"), "P(value | class"),
    "importance": (lambda: fb.NaiveBayes().fit(TABLE, "y").importance(TABLE), "mean_log_odds"),
    "statistics": (lambda: fb.count(TABLE, "y"), "<Statistics of 'y'"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_repr_is_short(name):
    make, words = RESULTS[name]
    lines = repr(make()).split("\n")
    assert any(words in line for line in lines)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def test_repr_of_what_is_short_is_its_text():
    sweep = fb.alpha_sweep(fb.NaiveBayes(), TABLE, "y", [0.1, 1, 10])
    assert repr(sweep) == str(sweep)


def test_brief_keeps_the_first_and_the_last_lines():
    lines = brief("\n".join(map(str, range(100)))).split("\n")
    assert lines[:2] == ["0", "1"]
    assert lines[-1] == "99"
    assert len(lines) == LINES
    assert "81 lines more" in lines[14]
    assert brief("x" * 200) == "x" * 96 + " ..."
