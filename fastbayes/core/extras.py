"""Packages that only some calls need."""

from __future__ import annotations

import importlib
from typing import Any

from fastbayes.core.errors import FastBayesError


def needed(module: str, message: str, error: type[Exception] = FastBayesError) -> Any:
    """Return a module of a package; raise an error that says how to install it where it is not.

    What a package lacks that is there is no reason to install it: that error passes.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as lacking:
        if lacking.name not in (module, module.partition(".")[0]):
            raise
        raise error(message) from lacking
