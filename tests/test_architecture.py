"""The floors of the house, held by reading the source: imports only go down, flags stay off."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fastbayes"

FLOORS = {
    "errors": 0, "_jit": 0, "_registry": 0,
    "caution": 1, "kernels": 1, "plain": 1, "domains": 1, "schema": 1, "batch": 1, "layout": 1,
    "minimise": 1, "minimise_sparse": 1,
    "loss": 1, "decisions": 1, "ranks": 1, "intervals": 1,
    "statistics": 2, "data": 2, "files": 2, "checkpoint": 2,
    "engine": 3, "folding": 3, "remarks": 3, "discretization": 3,
    "numeric_kinds": 3, "equal_rows": 3, "packed_rows": 3,
    "classifiers": 4, "networks": 4, "counting": 4, "planning": 4, "sink": 4,
    "validation": 5, "evaluation": 5, "environment": 5, "generate": 5,
    "scoring": 5, "fold_training": 5, "cross_validation": 5,
    "both_ways": 5, "contest": 5, "comparison": 5, "leaderboard": 5, "export": 5, "engines": 5,
    "learning": 5, "calibration": 5, "held_out_posteriors": 5,
    "plots": 5, "curve_table": 5, "crossing": 5, "learners": 5, "laboratory": 5,
    "learning_curves": 5, "sweeps": 5, "thresholds": 5,
    "__init__": 6, "cli": 6, "report": 6, "__main__": 6,
}  # fmt: skip

# Neighbours on one floor that may look at each other, in this direction only.
SIDEWAYS = {
    ("kernels", "plain"),
    ("kernels", "batch"),
    ("plain", "batch"),
    ("minimise_sparse", "minimise"),
    ("kernels", "layout"),
    ("plain", "layout"),
    ("decisions", "loss"),
    ("schema", "domains"),
    ("statistics", "files"),
    ("discretization", "engine"),
    ("packed_rows", "engine"),
    ("packed_rows", "equal_rows"),
    ("engine", "folding"),
    ("checkpoint", "files"),
    ("checkpoint", "statistics"),
    ("classifiers", "networks"),
    ("networks", "sink"),
    ("planning", "counting"),
    ("networks", "counting"),
    ("evaluation", "validation"),
    ("scoring", "validation"),
    ("fold_training", "scoring"),
    ("cross_validation", "fold_training"),
    ("cross_validation", "scoring"),
    ("cross_validation", "validation"),
    ("held_out_posteriors", "fold_training"),
    ("held_out_posteriors", "scoring"),
    ("calibration", "held_out_posteriors"),
    ("calibration", "scoring"),
    ("learning", "calibration"),
    ("leaderboard", "cross_validation"),
    ("contest", "both_ways"),
    ("contest", "cross_validation"),
    ("contest", "fold_training"),
    ("contest", "leaderboard"),
    ("contest", "scoring"),
    ("comparison", "contest"),
    ("comparison", "leaderboard"),
    ("curve_table", "leaderboard"),
    ("curve_table", "plots"),
    ("crossing", "curve_table"),
    ("learners", "calibration"),
    ("learners", "comparison"),
    ("learners", "fold_training"),
    ("learners", "validation"),
    ("laboratory", "fold_training"),
    ("laboratory", "learners"),
    ("laboratory", "scoring"),
    ("laboratory", "validation"),
    ("sweeps", "cross_validation"),
    ("sweeps", "leaderboard"),
    ("sweeps", "learning"),
    ("sweeps", "plots"),
    ("sweeps", "scoring"),
    ("sweeps", "validation"),
    ("thresholds", "sweeps"),
    ("thresholds", "validation"),
    ("learning_curves", "curve_table"),
    ("learning_curves", "laboratory"),
    ("learning_curves", "learners"),
    # The command line is a user of the public names.
    ("cli", "__init__"),
    ("report", "__init__"),
    ("__main__", "cli"),
}

# Libraries: the units that may use them (numba, pickle) or must not (pyarrow).
NUMBA = {"kernels", "_jit"}
NO_ARROW = {"kernels", "plain"}
PICKLE = {"_jit"}  # numba keeps machine code so; nothing a user hands over goes that way
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

FORBIDDEN_NAMES = {"prange", "jitclass", "guvectorize"}
FORBIDDEN_FLAGS = {"parallel", "fastmath", "allow_pickle"}
MOST_LINES = 450


def imports(tree: ast.AST) -> list[str]:
    """Return the dotted names a module imports anywhere, inside functions and by name too."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            starts = [getattr(a, "values", [a])[0] for a in node.args]  # of an f-string, its start
            found += [s.value for s in starts if isinstance(s, ast.Constant)]
    return found


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def faults(unit: str, source: str) -> list[str]:
    """Return what the file of this unit (its first name under fastbayes) does against the rules."""
    tree = ast.parse(source)
    found = []
    if unit not in FLOORS:
        return [f"{unit} has no floor: give it one in FLOORS"]
    for name in imports(tree):
        first, _, rest = name.partition(".")
        if name.startswith("."):
            found.append(f"relative import {name}")
        if first == "numba" and unit not in NUMBA:
            found.append(f"numba outside kernels/: {name}")
        if first == "pyarrow" and unit in NO_ARROW:
            found.append(f"pyarrow in {unit}/: {name}")
        if unit not in PICKLE and PICKLES & {first, name.rpartition(".")[2]}:
            found.append(f"pickle: {name}")
        if first == "fastbayes" and unit != "_jit":
            found += upward(unit, rest)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in FORBIDDEN_NAMES or (name in PICKLES and unit not in PICKLE):
                found.append(f"{name} in line {node.lineno}")
        if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_FLAGS and not off(node.value):
            found.append(f"{node.arg}= in line {node.value.lineno}")
    if source.count("\n") > MOST_LINES:
        found.append(f"{source.count(chr(10))} lines do not read in one sitting")
    return found


def upward(unit: str, imported: str) -> list[str]:
    """Return the fault of importing `fastbayes.<imported>` from this unit, if it is one."""
    target = imported.partition(".")[0]
    if target not in FLOORS:
        target = "__init__"  # a name of the package itself
    if target == unit:
        return []
    if target == "kernels":
        return [f"fastbayes.{imported}: kernels are reached through _jit.load"]
    if (unit, target) in SIDEWAYS or FLOORS[target] < FLOORS[unit]:
        return []
    return [f"floor {FLOORS[unit]} imports fastbayes.{imported} of floor {FLOORS[target]}"]


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_file_keeps_the_rules(path: Path) -> None:
    unit = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert faults(unit, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("statistics", "from fastbayes.engine import scan"),
        ("statistics", "def f():\n    import fastbayes.classifiers.base"),
        ("statistics", "from fastbayes import classifiers"),
        ("files", "from fastbayes import __version__"),
        ("__init__", "from fastbayes.cli import main"),
        ("files", "from fastbayes.statistics import base"),
        ("networks", "from fastbayes.classifiers import base"),
        ("data", "import importlib\nimportlib.import_module('fastbayes.cli')"),
        ("data", "from .source import read"),
        ("engine", "from fastbayes.kernels import count"),
        ("cli", "import fastbayes.kernels.count"),
        ("engine", "import numba"),
        ("plain", "def f():\n    from numba import njit"),
        ("plain", "import pyarrow as pa"),
        ("kernels", "import pyarrow.compute"),
        ("files", "import pickle"),
        ("files", "from joblib import dump"),
        ("files", "import numpy as np\nnp.load('x', allow_pickle=True)"),
        ("kernels", "@njit(parallel=True)\ndef f(): ..."),
        ("kernels", "@njit(fastmath={'contract'})\ndef f(): ..."),
        ("kernels", "for i in numba.prange(3): ..."),
        ("kernels", "@jitclass\nclass A: ..."),
        ("errors", "\n" * (MOST_LINES + 1)),
        ("attic", ""),
    ],
)
def test_rules_see_a_fault(unit: str, source: str) -> None:
    assert faults(unit, source)


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("statistics", "from fastbayes.files import write"),
        ("classifiers", "from fastbayes.networks.dag import DAG"),
        ("classifiers", "from fastbayes._jit import load\nload('count')"),
        ("kernels", "from fastbayes._jit import kernel\nimport numba\nnjit(fastmath=False)"),
        ("cli", "from fastbayes import validation"),
        ("cli", "import fastbayes as fb"),
    ],
)
def test_rules_let_the_lawful_pass(unit: str, source: str) -> None:
    assert faults(unit, source) == []
