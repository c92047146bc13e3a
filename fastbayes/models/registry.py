"""The models: one line for each, from which files, command line, compare and public names read."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast


class Effort(NamedTuple):
    """What a model takes to learn from rows and to score them, about; or a part of that.

    nanoseconds  of processor time, for every set of columns that are looked at together, of each
                 row and of each of their joint values
    together     how many columns are looked at together. None: all of them, and what takes time are
                 their joint values that occur, each row's at most
    by_class     whether that is once for every class
    once         nanoseconds of each joint value of every set in addition, whatever the rows
    numbers      whether the columns are those alone that are seen as numbers
    by_cell      whether that is, besides, once for all joint values of the other columns within a
                 class that occur, each row's at most, where there are such columns
    """

    nanoseconds: float
    together: int | None = 1
    by_class: bool = False
    once: float = 0.0
    numbers: bool = False
    by_cell: bool = False

    def seconds(
        self, n_rows: float, sizes: Sequence[int], n_classes: int, n_numbers: int = 0
    ) -> float:
        """Return the seconds of so many rows of columns with these numbers of values.

        A number that is no bin counts as one value; there are `n_numbers` of them.
        """
        joint = math.prod(float(max(size, 1)) for size in sizes)
        times = float(n_classes if self.by_class else 1)
        if self.by_cell and joint > 1:
            times += min(n_rows, joint * n_classes)
        if self.together is None:
            return self.nanoseconds * 1e-9 * times * min(n_rows, joint)
        # Sets of so many columns, and the sum over them of their joint values, by their number.
        sets, cells = ([1.0] + [0.0] * self.together for _ in range(2))
        for size in [1] * n_numbers if self.numbers else sizes:
            for k in range(self.together, 0, -1):
                sets[k] += sets[k - 1]
                cells[k] += cells[k - 1] * max(size, 1)
        each = self.nanoseconds * (n_rows * sets[-1] + cells[-1])
        return 1e-9 * times * (each + self.once * cells[-1])


@dataclass(frozen=True)
class Candidate:
    """A way in which a model takes part in `compare`.

    suffix      added to the name of the model
    parameters  of the constructor that differ from the defaults
    when        "always"; "numeric", where some column is numeric; "all_numeric", where every column
                is; or "gaps", where some value is missing, of categories or of bins
    effort      what it takes, in parts that add, for `compare` to leave it out unasked where that
                is long; of none: never
    """

    suffix: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    when: Literal["always", "numeric", "all_numeric", "gaps"] = "always"
    effort: tuple[Effort, ...] = ()

    @property
    def of_numbers(self) -> bool:
        """Whether it takes part only where some column is numeric."""
        return self.when in ("numeric", "all_numeric")

    def seconds(
        self, n_rows: float, sizes: Sequence[int], n_classes: int, n_numbers: int = 0
    ) -> float:
        """Return the seconds that it takes; as `Effort.seconds`."""
        return sum(part.seconds(n_rows, sizes, n_classes, n_numbers) for part in self.effort)


@dataclass(frozen=True)
class ModelEntry:
    """A class of models.

    cls         name of the class: what files and the public names say
    where       the module that has it, or the class itself
    name        what the command line and `compare` call it; "" for models of arrays and of models
    candidates  how it takes part in `compare`
    loo         what makes the scorer of rows without themselves (a `LooScorer`) from a fitted
                model: a class or function, its name and module below `fastbayes.models`, or nothing
    """

    cls: str
    where: Any
    name: str = ""
    candidates: tuple[Candidate, ...] = ()
    loo: Any = ""

    def make(self, candidate: Candidate) -> Any:
        """Return an unfitted model as it takes part in `compare`."""
        return self.load()(**candidate.parameters)

    def load(self) -> Any:
        """Return the class; its module is imported on first use."""
        if not isinstance(self.where, str):
            return self.where
        return getattr(importlib.import_module(self.where), self.cls)

    def loo_scorer(self) -> Callable[[Any], Any]:
        """Return what makes the scorer of rows without themselves from a fitted model."""
        if not isinstance(self.loo, str):
            return cast("Callable[[Any], Any]", self.loo)
        module, _, name = self.loo.rpartition(".")
        made: Callable[[Any], Any] = getattr(
            importlib.import_module(f"fastbayes.models.{module}"), name
        )
        return made


# What counts pairs of columns, or triples of them, searches, or goes over the rows again and again:
# measured on 2,000 to 50,000 rows of 20 to 250 columns, and what their joint values take whatever
# the rows on 14 and 300 rows of 1,000 columns; SPODE reads those of every parent that it tries.
PAIRS = (Candidate(effort=(Effort(0.5, together=2, once=150.0),)),)
EVERY_PARENT = (Candidate(effort=(Effort(0.5, together=2, once=400.0),)),)
TRIPLES = (Candidate(effort=(Effort(10.0, together=3, by_class=True),)),)
SEARCH = (Candidate(effort=(Effort(40.0, together=2),)),)
# What solves for a covariance of all numbers, which takes the cube of their number whatever the
# rows: measured on 300 to 20,000 rows of 250 to 5,000 numbers, on one thread of BLAS.
SOLVING = (
    Effort(0.05, together=2, numbers=True),
    Effort(0.0, together=3, by_class=True, once=3.0, numbers=True),
)
# What holds all joint values that occur: measured on a million rows, most of them different, with
# four numbers for each in addition, and with a covariance for each.
JOINT = (Effort(3e3, together=None),)
JOINT_NUMBERS = (
    Effort(14e3, together=None),
    Effort(0.3, together=2, numbers=True),
    Effort(0.0, together=3, by_class=True, once=5.0, numbers=True, by_cell=True),
)
# What describes each number in several ways, of which the values choose: measured on 300 to 20,000
# rows.
CHOOSING = (Effort(75.0, by_class=True, once=4e5, numbers=True),)

# In addition to "mdl", which makes one bin of a column that tells of the class only together with
# another. All that are cut so share their counts.
QUANTILE = Candidate(
    "-quantile",
    {"discretize": ("quantile", 5)},
    when="numeric",
    effort=(Effort(1.0, together=2, once=600.0),),
)

# That a value is missing may say something of the class. The counts are those of the others.
MISSING = Candidate("-missing", {"missing": "category"}, when="gaps", effort=PAIRS[0].effort)

FAMILIES = "discrete.family_model.LooFamilies"

MODELS: dict[str, ModelEntry] = {}


def register(
    cls: str | type,
    where: str = "",
    name: str = "",
    candidates: tuple[Candidate, ...] = (),
    loo: Any = "",
) -> None:
    """Add a class of models, or one by its name and module; the rest is as in `ModelEntry`.

    Raises ValueError when another class has the name.
    """
    name_of, at = (cls, where) if isinstance(cls, str) else (cls.__name__, cls)
    entry = ModelEntry(name_of, at, name, candidates, loo)
    if entry.cls in MODELS or (name and name in by_name()):
        raise ValueError(f"a model {entry.cls!r} or {name!r} is registered already")
    MODELS[entry.cls] = entry


def by_name() -> dict[str, ModelEntry]:
    """Return the models that have a name on the command line, by it."""
    return {entry.name: entry for entry in MODELS.values() if entry.name}


def candidates() -> dict[str, tuple[ModelEntry, Candidate]]:
    """Return all that may take part in `compare`, by name."""
    return {e.name + c.suffix: (e, c) for e in by_name().values() for c in e.candidates}


register(
    "NaiveBayes",
    "fastbayes.models.discrete.naive_bayes",
    "naive-bayes",
    (
        # Densities of few rows that are no narrower than these rows make sure.
        Candidate(parameters={"numeric": "student"}),
        Candidate("-bins", {"numeric": "mdl"}, when="numeric"),
        Candidate("-auto", {"numeric": "auto"}, when="numeric", effort=CHOOSING),
    ),
    "discrete.naive_bayes.LooNaive",
)
register("SPODE", "fastbayes.models.discrete.spode", "spode", EVERY_PARENT, FAMILIES)
register("TAN", "fastbayes.models.discrete.tan", "tan", (*PAIRS, QUANTILE), FAMILIES)
register("KDB", "fastbayes.models.discrete.kdb", "kdb", PAIRS, FAMILIES)
register(
    "AODE",
    "fastbayes.models.discrete.aode",
    "aode",
    (*PAIRS, QUANTILE, MISSING),
    "discrete.aode.LooAverage",
)
register("A2DE", "fastbayes.models.discrete.a2de", "a2de", TRIPLES)
register(
    "JointBayes",
    "fastbayes.models.joint.joint",
    "joint-bayes",
    (Candidate(effort=JOINT),),
    "leave_one_out.loo_joint.LooJoint",
)
register(
    "JointGaussian",
    "fastbayes.models.joint.joint_gaussian",
    "joint-gaussian",
    (Candidate(when="numeric", effort=JOINT_NUMBERS),),
    "leave_one_out.loo_joint.LooJointGaussian",
)
register(
    "GaussianBayes",
    "fastbayes.models.numeric.gaussian",
    "gaussian-bayes",
    (
        # Densities of few rows that are no narrower than these rows make sure.
        Candidate(parameters={"prior": "niw"}, when="all_numeric", effort=SOLVING),
        Candidate(
            "-tied",
            {"covariance": "tied", "prior": "niw"},
            when="all_numeric",
            effort=SOLVING,
        ),
    ),
    "leave_one_out.loo_quadratic.loo_gaussian_bayes",
)
register(
    "WeightedNaiveBayes",
    "fastbayes.models.discrete.weighted_naive_bayes",
    "weighted-naive-bayes",
    (Candidate(effort=(Effort(60.0, by_class=True),)),),
)
register(
    "LogisticRegression",
    "fastbayes.models.logistic.logistic",
    "logistic",
    (
        # Of many correlated columns counts say far too much to begin with. A smaller `tol` takes
        # twice the time, and changes the log-loss of held-out rows by less than 1e-5.
        Candidate(
            parameters={"standardize": True, "init": "zeros", "tol": 0.01},
            effort=(Effort(40.0, by_class=True),),
        ),
        # A weak penalty: it is there for rules, and other models are for noise.
        Candidate(
            "-pairs",
            {"interactions": "auto", "discretize": "mdl", "C": 10.0, "tol": 0.3},
            # All pairs are counted and judged, and a pass over the rows is for as many of them as
            # there are columns: measured on 300 to 50,000 rows, 3 to 1,000 columns, 2 to 1,000
            # classes.
            effort=(
                Effort(1.0, together=2),
                Effort(0.0, together=2, by_class=True, once=90.0),
                Effort(40.0, by_class=True),
            ),
        ),
    ),
)
register("NetworkClassifier", "fastbayes.models.discrete.network", "network", SEARCH, FAMILIES)
register("Calibrated", "fastbayes.evaluation.calibrate.calibration")
register("Blend", "fastbayes.evaluation.calibrate.blend", "blend")
register("CategoricalNB", "fastbayes.models.sklearn.naive_bayes")
register("MultinomialNB", "fastbayes.models.sklearn.naive_bayes")
register("ComplementNB", "fastbayes.models.sklearn.naive_bayes")
register("BernoulliNB", "fastbayes.models.sklearn.naive_bayes")
register("GaussianNB", "fastbayes.models.sklearn.naive_bayes")
