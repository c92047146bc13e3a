"""What kernels compile is what they declare: a specialisation nobody asked for costs seconds."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fastbayes.kernels.compiled
import fastbayes.kernels.numpy

PREFIX, NUMPY = "fastbayes.kernels.compiled.", "fastbayes.kernels.numpy."


def declares(name):
    return hasattr(importlib.import_module(PREFIX + name), "SIGNATURES")


MODULES = [
    name
    for found in pkgutil.walk_packages(fastbayes.kernels.compiled.__path__, PREFIX)
    if declares(name := found.name.removeprefix(PREFIX))
]


def dispatchers(module):
    """Return what `kernel` compiled in this module itself, or in one that declares nothing."""
    others = {PREFIX + name for name in MODULES} - {module.__name__}
    return {
        name: value
        for name, value in vars(module).items()
        if hasattr(value, "py_func") and value.__module__ not in others
    }


@pytest.mark.compiled
@pytest.mark.parametrize("name", MODULES)
def test_compiled_signatures_are_the_declared_ones(name):
    module = importlib.import_module(PREFIX + name)
    assert set(dispatchers(module)) == set(module.SIGNATURES)
    importlib.import_module(f"exercises.{name}").exercise(module)
    for kernel, declared in module.SIGNATURES.items():
        compiled = {tuple(map(str, s)) for s in dispatchers(module)[kernel].signatures}
        assert compiled == set(declared), kernel


TWINS = [
    found.name.removeprefix(NUMPY)
    for found in pkgutil.walk_packages(fastbayes.kernels.numpy.__path__, NUMPY)
    if not found.ispkg
]


@pytest.mark.parametrize("name", TWINS)
def test_exercise_runs_on_numpy_too(name):
    exercise = importlib.import_module(f"exercises.{name}").exercise
    exercise(importlib.import_module(NUMPY + name))
