"""What a test may lack on a developer's machine, and never under CI=true."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest


def needs(*modules: str) -> None:
    """Skip the test where a module is missing."""
    for module in modules:
        _or_skip(find_spec(module) is not None, f"{module} is missing: install it")


def needs_java() -> None:
    """Skip the test where there is no Java."""
    there = os.environ.get("JAVA_HOME") or shutil.which("java")
    _or_skip(bool(there), "Spark needs Java: install it, or set JAVA_HOME")


def _or_skip(there: bool, why: str) -> None:
    if not there:
        assert os.environ.get("CI") != "true", why
        pytest.skip(why)
