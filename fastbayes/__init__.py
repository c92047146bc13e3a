"""Bayesian classifiers at the speed of reading; the sufficient statistic is a value.

>>> import fastbayes as fb
>>> table = {"sky": ["sun", "sun", "rain"], "play": ["yes", "yes", "no"]}
>>> fb.NaiveBayes().fit(table, "play").predict({"sky": ["rain"]})
array(['no'], dtype='<U3')
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastbayes.calibration import Calibrated
from fastbayes.classifiers.a2de import A2DE
from fastbayes.classifiers.aode import AODE
from fastbayes.classifiers.drop_in import (
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    GaussianNB,
    MultinomialNB,
)
from fastbayes.classifiers.gaussian import GaussianBayes
from fastbayes.classifiers.joint import JointBayes
from fastbayes.classifiers.joint_gaussian import JointGaussian
from fastbayes.classifiers.kdb import KDB
from fastbayes.classifiers.logistic import LogisticRegression
from fastbayes.classifiers.naive_bayes import NaiveBayes
from fastbayes.classifiers.network import NetworkClassifier
from fastbayes.classifiers.spode import SPODE
from fastbayes.classifiers.store import load, save
from fastbayes.classifiers.tan import TAN
from fastbayes.classifiers.weighted_naive_bayes import WeightedNaiveBayes
from fastbayes.comparison import compare
from fastbayes.counting import count
from fastbayes.cross_validation import k_fold, leave_one_out
from fastbayes.crossing import Crossover, crossover
from fastbayes.curve_table import LearningCurve
from fastbayes.decisions import bayes_risk, conditional_risk, minimum_risk
from fastbayes.environment import show_versions, warmup
from fastbayes.errors import (
    DataError,
    FastBayesError,
    FastBayesWarning,
    FileFormatError,
    MemoryLimitError,
    NotFittedError,
    SchemaError,
)
from fastbayes.evaluation import evaluate
from fastbayes.learning_curves import learning_curve
from fastbayes.networks.network import BayesianNetwork
from fastbayes.planning import Plan, plan
from fastbayes.sink import predict_to
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.loss_gradient import LossGradient
from fastbayes.sweeps import Sweep, alpha_sweep
from fastbayes.thresholds import ThresholdSweep, threshold_sweep

try:
    __version__ = version("fastbayes")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = [
    "A2DE",
    "AODE",
    "KDB",
    "SPODE",
    "TAN",
    "BayesianNetwork",
    "BernoulliNB",
    "Calibrated",
    "CategoricalNB",
    "ComplementNB",
    "Crossover",
    "DataError",
    "FastBayesError",
    "FastBayesWarning",
    "FileFormatError",
    "GaussianBayes",
    "GaussianNB",
    "JointBayes",
    "JointGaussian",
    "LearningCurve",
    "LogisticRegression",
    "LossGradient",
    "MemoryLimitError",
    "MultinomialNB",
    "NaiveBayes",
    "NetworkClassifier",
    "NotFittedError",
    "Plan",
    "SchemaError",
    "Statistics",
    "Sweep",
    "ThresholdSweep",
    "WeightedNaiveBayes",
    "alpha_sweep",
    "bayes_risk",
    "compare",
    "conditional_risk",
    "count",
    "crossover",
    "evaluate",
    "k_fold",
    "learning_curve",
    "leave_one_out",
    "load",
    "minimum_risk",
    "plan",
    "predict_to",
    "save",
    "show_versions",
    "threshold_sweep",
    "warmup",
]
