"""What `__init__` imports on first use; written by tests/public_api.py."""

from fastbayes import engines as engines
from fastbayes.core.decisions import bayes_risk as bayes_risk
from fastbayes.core.decisions import conditional_risk as conditional_risk
from fastbayes.core.decisions import minimum_risk as minimum_risk
from fastbayes.core.errors import ConvergenceWarning as ConvergenceWarning
from fastbayes.core.errors import DataError as DataError
from fastbayes.core.errors import FastBayesError as FastBayesError
from fastbayes.core.errors import FastBayesWarning as FastBayesWarning
from fastbayes.core.errors import FileFormatError as FileFormatError
from fastbayes.core.errors import MemoryLimitError as MemoryLimitError
from fastbayes.core.errors import NotFittedError as NotFittedError
from fastbayes.core.errors import SchemaError as SchemaError
from fastbayes.evaluation.calibrate.calibration import Calibrated as Calibrated
from fastbayes.evaluation.curves.curve_table import Crossover as Crossover
from fastbayes.evaluation.curves.curve_table import LearningCurve as LearningCurve
from fastbayes.evaluation.curves.curve_table import crossover as crossover
from fastbayes.evaluation.curves.learning_curves import learning_curve as learning_curve
from fastbayes.evaluation.curves.sweeps import Sweep as Sweep
from fastbayes.evaluation.curves.sweeps import ThresholdSweep as ThresholdSweep
from fastbayes.evaluation.curves.sweeps import alpha_sweep as alpha_sweep
from fastbayes.evaluation.curves.sweeps import threshold_sweep as threshold_sweep
from fastbayes.evaluation.environment import show_versions as show_versions
from fastbayes.evaluation.environment import warmup as warmup
from fastbayes.evaluation.validate.comparison import compare as compare
from fastbayes.evaluation.validate.cross_validation import evaluate as evaluate
from fastbayes.evaluation.validate.cross_validation import k_fold as k_fold
from fastbayes.evaluation.validate.cross_validation import leave_one_out as leave_one_out
from fastbayes.models.discrete.a2de import A2DE as A2DE
from fastbayes.models.discrete.aode import AODE as AODE
from fastbayes.models.discrete.kdb import KDB as KDB
from fastbayes.models.discrete.naive_bayes import NaiveBayes as NaiveBayes
from fastbayes.models.discrete.network import NetworkClassifier as NetworkClassifier
from fastbayes.models.discrete.spode import SPODE as SPODE
from fastbayes.models.discrete.tan import TAN as TAN
from fastbayes.models.discrete.weighted_naive_bayes import WeightedNaiveBayes as WeightedNaiveBayes
from fastbayes.models.estimator.store import load as load
from fastbayes.models.estimator.store import save as save
from fastbayes.models.joint.joint import JointBayes as JointBayes
from fastbayes.models.joint.joint_gaussian import JointGaussian as JointGaussian
from fastbayes.models.logistic.logistic import LogisticRegression as LogisticRegression
from fastbayes.models.numeric.gaussian import GaussianBayes as GaussianBayes
from fastbayes.models.sklearn.naive_bayes import BernoulliNB as BernoulliNB
from fastbayes.models.sklearn.naive_bayes import CategoricalNB as CategoricalNB
from fastbayes.models.sklearn.naive_bayes import ComplementNB as ComplementNB
from fastbayes.models.sklearn.naive_bayes import GaussianNB as GaussianNB
from fastbayes.models.sklearn.naive_bayes import MultinomialNB as MultinomialNB
from fastbayes.networks.network import BayesianNetwork as BayesianNetwork
from fastbayes.scan.counting import count as count
from fastbayes.scan.planning import Plan as Plan
from fastbayes.scan.planning import plan as plan
from fastbayes.scan.sink import predict_to as predict_to
from fastbayes.statistics.bundle import Statistics as Statistics
from fastbayes.statistics.loss_gradient import LossGradient as LossGradient

__version__: str
__all__: list[str]
