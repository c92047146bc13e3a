"""Pictures of results with matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from fastbayes.core.errors import FastBayesError
from fastbayes.core.files import atomic, check_target


def figure(instead: str) -> tuple[Any, Any]:
    """Return a new figure and its axes; no window, and no state of pyplot, is touched.

    Parameters
    ----------
    instead
        What to use without matplotlib.

    Raises
    ------
    FastBayesError
        When matplotlib is not installed; the message names the extra.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise FastBayesError(
            f"drawing needs matplotlib: install fastbayes[plot], or use {instead}"
        ) from error
    made = matplotlib.Figure(figsize=(7, 4.5), layout="constrained")
    return made, made.subplots()


def check_picture(path: str | os.PathLike[str], made: Any, *, force: bool) -> None:
    """Raise unless a figure may be written to a file: before long work, not after it.

    Parameters
    ----------
    path
        The file; its suffix says the format, such as .png, .svg or .pdf.
    made
        A figure.
    force
        Whether to replace a file that is there.

    Raises
    ------
    DataError
        When the file exists and `force` is not set, or it cannot be made.
    ValueError
        When matplotlib does not know the format.
    """
    if Path(path).suffix[1:].lower() not in made.canvas.get_supported_filetypes():
        raise ValueError(
            f"{os.fspath(path)}: the suffix says the format: name a file such as curve.png, "
            "curve.svg or curve.pdf"
        )
    check_target(path, force=force)


def written(made: Any, path: str | os.PathLike[str] | None, *, force: bool) -> Any:
    """Return a figure, once it is written to a file where there is a path.

    Parameters
    ----------
    made
        The figure.
    path
        The file; its suffix says the format, such as .png, .svg or .pdf.
    force
        Whether to replace a file that is there.

    Raises
    ------
    DataError
        When the file exists and `force` is not set, or it cannot be written.
    ValueError
        When matplotlib does not know the format.
    """
    if path is not None:
        check_picture(path, made, force=force)
        with atomic(path, force=force) as temporary:
            made.savefig(temporary, dpi=150)
    return made
