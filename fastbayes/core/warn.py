"""Warnings that point at the line of the caller, however deep the place that warns."""

from __future__ import annotations

import sys
import warnings

from fastbayes.core.errors import FastBayesWarning


def warn(message: str, category: type[Warning] = FastBayesWarning) -> None:
    """Warn, as from the first frame outside fastbayes.

    Parameters
    ----------
    message
        What was done that the caller may not expect.
    category
        Class of the warning.
    """
    frame, level = sys._getframe().f_back, 2
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("fastbayes."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
