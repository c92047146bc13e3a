"""The plan of the house, held by reading the source: imports only go down, flags stay off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From the ground up. A folder imports only from those before it, a sub-folder from those before it
# in its folder; "" are the files that lie in the folder itself, "fastbayes" is the public face.
FOLDERS = {
    "core": ("",),
    "kernels": ("", "shared", "numpy", "compiled"),
    "data": ("",),
    "statistics": ("",),
    "scan": ("", "outputs"),
    "networks": ("graph", "infer", "sample", "search", "io", ""),
    "models": (
        *("", "estimator", "numeric", "logistic", "discrete", "joint", "sklearn"),
        "leave_one_out",
    ),
    "evaluation": ("", "validate", "calibrate", "curves"),
    "generate": ("",),
    "engines": ("",),
    "fastbayes": ("",),
    "cli": ("",),
    "__main__": ("",),
}
FLOORS = {
    (folder, room): (i, j)
    for i, (folder, rooms) in enumerate(FOLDERS.items())
    for j, room in enumerate(rooms)
}

NUMBA = {"kernels"}
NO_ARROW = {"kernels"}
# Numba keeps machine code by pickle; nothing of a user goes that way.
LOADER = "fastbayes.kernels.dispatch"
# What does the same in two ways: reached through the loader, and never one through the other.
BACK_ENDS = {("kernels", "numpy"), ("kernels", "compiled")}
# Kernels of different folders need nothing of one another.
KERNEL_FOLDERS = {"reading", "counting", "fitting", "scoring"}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_NAMES = {"prange", "jitclass", "guvectorize"}
FORBIDDEN_FLAGS = {"parallel", "fastmath", "allow_pickle"}

# Words that say nothing to who knows the field; they may stand in sentences, not in names.
BANNED = (
    *("door", "of_model", "methods", "both_ways", "numeric_kinds", "contest", "laboratory"),
    *("learners", "remarks", "caution", "cautions", "answer", "answers", "asking", "learning"),
    *("folding", "equal_rows", "ranks", "plain", "ties", "cells", "taken_apart", "left_out"),
    *("storing", "filing", "declared", "foreign", "told", "gone", "doubtful", "settled", "rest"),
)


def modules() -> dict[str, Path]:
    """Return the modules of the package by their dotted names."""
    found = {}
    for path in sorted((ROOT / "fastbayes").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere, inside functions and by name too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            starts = [getattr(a, "values", [a])[0] for a in node.args]  # of an f-string, its start
            yield from (s.value for s in starts if isinstance(s, ast.Constant))


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def module_of(name: str) -> str:
    """Return the module of the package that an imported name is, or is taken from."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def place(module: str) -> tuple[str, str]:
    """Return the folder and the sub-folder of a module."""
    parts = module.split(".")[1:]
    if not parts:
        return "fastbayes", ""
    folder, inside = parts[0], parts[1:]
    is_package = MODULES.get(module, Path()).name == "__init__.py"
    return folder, inside[0] if len(inside) > 1 or (inside and is_package) else ""


def loaded(function: str) -> set[str]:
    """Return the kernel modules that the package names in calls of a function of the loader."""
    return {
        node.args[0].value
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and called(node) == function and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }


def back_end(name: str) -> set[str]:
    """Return the kernel modules of a back end, as the loader names them."""
    prefix = f"fastbayes.kernels.{name}."
    names = {module.removeprefix(prefix) for module in MODULES if module.startswith(prefix)}
    return {name for name in names if "." in name}


def off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def faults(module: str, source: str) -> list[str]:
    """Return what a module of the package does against the rules."""
    tree, here = ast.parse(source), place(module)
    if tree.body and here not in FLOORS:
        return [f"{'/'.join(here)} has no place: give it one in FOLDERS"]
    found = []
    for name in imports(tree):
        first = name.partition(".")[0]
        if name.startswith("."):
            found.append(f"relative import {name}")
        if first == "numba" and here[0] not in NUMBA:
            found.append(f"numba outside kernels/: {name}")
        if first == "pyarrow" and here[0] in NO_ARROW:
            found.append(f"pyarrow in {here[0]}/: {name}")
        if module != LOADER and PICKLES & {first, name.rpartition(".")[2]}:
            found.append(f"pickle: {name}")
        if first == "fastbayes":
            found += wrong_way(module, module_of(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in FORBIDDEN_NAMES or (name in PICKLES and module != LOADER):
                found.append(f"{name} in line {node.lineno}")
        if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_FLAGS and not off(node.value):
            found.append(f"{node.arg}= in line {node.value.lineno}")
    return found


def apart(module: str, imported: str) -> bool:
    """Return whether both are kernels, for different work."""
    ours, its = (name.split(".")[3:4] for name in (module, imported))
    return ours != its and {*ours, *its} <= KERNEL_FOLDERS


def wrong_way(module: str, imported: str) -> list[str]:
    """Return the fault of importing one module from another, if it is one."""
    here, there = place(module), place(imported)
    if module == LOADER or (here == there and not apart(module, imported)):
        return []
    if there in BACK_ENDS:
        return [f"{imported}: a back end is reached through {LOADER} alone"]
    if there not in FLOORS:
        return [f"{imported} has no place: give it one in FOLDERS"]
    if FLOORS[there] < FLOORS[here]:
        return []
    return [f"{imported} is of {'/'.join(there)}, above {'/'.join(here)}"]


@pytest.mark.parametrize("module", MODULES)
def test_module_keeps_the_rules(module: str) -> None:
    assert faults(module, MODULES[module].read_text(encoding="utf-8")) == []


def test_no_two_files_need_each_other() -> None:
    needs = {}
    for module, path in MODULES.items():
        names = imports(ast.parse(path.read_text(encoding="utf-8")))
        needs[module] = {module_of(n) for n in names if n.startswith("fastbayes")} - {module}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name of each class with the module that has it."""
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, module


def test_class_names_are_unique() -> None:
    """A name means one class; a compiled kernel and its numpy twin share theirs by contract."""
    found: dict[str, list[str]] = {}
    for name, module in classes():
        found.setdefault(name, []).append(module)
    twins = "fastbayes.kernels.compiled.", "fastbayes.kernels.numpy."
    twice = {
        name: where
        for name, where in found.items()
        if len(where) > 1 and sorted(where) != [twin + where[0].split(".", 3)[-1] for twin in twins]
    }
    assert twice == {}


def test_names_are_the_field_s_words() -> None:
    stems = [(module, module.rpartition(".")[2]) for module in MODULES]
    stems += [(f"{m}.{c}", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", c).lower()) for c, m in classes()]
    wrong = [
        where for where, stem in stems if stem in BANNED or stem.startswith(("left_out_", "taken_"))
    ]
    assert wrong == []


def test_kernels_have_twins_where_something_calls_them() -> None:
    twins, by_size = back_end("numpy"), loaded("load")
    assert by_size <= twins & back_end("compiled")
    assert loaded("compiled_module") <= back_end("compiled") - twins
    assert twins == by_size | loaded("numpy_twin")


def test_every_place_is_used() -> None:
    assert {place(module) for module in MODULES} >= {*FLOORS}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("statistics.new", "from fastbayes.scan.engine import scan"),
        ("statistics.new", "def f():\n    import fastbayes.models.estimator.base"),
        ("statistics.new", "from fastbayes import models"),
        ("core.new", "from fastbayes import __version__"),
        ("core.new", "from fastbayes.statistics import ValueCounts"),
        ("generate", "from fastbayes.cli import main"),
        ("networks.graph.new", "from fastbayes.networks.infer.scorer import Batch"),
        ("networks.graph.new", "from fastbayes.networks.network import BayesianNetwork"),
        ("networks.new", "from fastbayes.models.estimator import base"),
        ("data.new", "import importlib\nimportlib.import_module('fastbayes.cli')"),
        ("data.new", "from .source import read"),
        ("scan.new", "from fastbayes.kernels.compiled import counting"),
        ("cli.new", "import fastbayes.kernels.compiled.counting.count"),
        ("scan.new", "from fastbayes.kernels.numpy.counting import count"),
        ("kernels.compiled.new", "from fastbayes.kernels.numpy.counting.count import add_counts"),
        ("kernels.numpy.new", "from fastbayes.kernels.compiled.counting import count"),
        (
            "kernels.compiled.counting.new",
            "from fastbayes.kernels.compiled.scoring import density",
        ),
        ("kernels.numpy.scoring.new", "from fastbayes.kernels.numpy.counting.count import f"),
        ("kernels.shared.new", "from fastbayes.kernels.numpy.counting import count"),
        ("kernels.dispatch_new", "from fastbayes.kernels.shared import arrays"),
        ("scan.new", "import numba"),
        ("kernels.numpy.new", "import pyarrow as pa"),
        ("kernels.compiled.new", "import pyarrow.compute"),
        ("core.new", "import pickle"),
        ("core.new", "from joblib import dump"),
        ("core.new", "import numpy as np\nnp.load('x', allow_pickle=True)"),
        ("kernels.compiled.new", "@njit(parallel=True)\ndef f(): ..."),
        ("kernels.compiled.new", "@njit(fastmath={'contract'})\ndef f(): ..."),
        ("kernels.compiled.new", "for i in numba.prange(3): ..."),
        ("kernels.compiled.new", "@jitclass\nclass A: ..."),
        ("attic.new", "import os"),
        ("models.attic.new", "import os"),
    ],
)
def test_rules_see_a_fault(module: str, source: str) -> None:
    assert faults(f"fastbayes.{module}", source)


def test_rules_see_what_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "fastbayes.core.attic.x", Path("x.py"))
    assert faults("fastbayes.scan.new", "from fastbayes.core.attic.x import y")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("statistics.new", "from fastbayes.core.files import write"),
        ("networks.new", "from fastbayes.networks.graph.dag import DAG"),
        ("models.discrete.new", "from fastbayes.kernels.dispatch import load\nload('count')"),
        ("models.discrete.new", "from fastbayes.kernels.shared.scoring import EXACT"),
        ("kernels.numpy.new", "from fastbayes.kernels.shared import density"),
        (
            "kernels.compiled.counting.new",
            "from fastbayes.kernels.compiled.counting import count\n"
            "from fastbayes.kernels.compiled.simd import lanes",
        ),
        ("kernels.compiled.new", "from fastbayes.kernels import dispatch\nnjit(fastmath=False)"),
        ("cli.new", "from fastbayes.evaluation import validation"),
        ("cli.new", "import fastbayes as fb"),
    ],
)
def test_rules_let_the_lawful_pass(module: str, source: str) -> None:
    assert faults(f"fastbayes.{module}", source) == []
