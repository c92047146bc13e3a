"""Pictures of results with matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastbayes.core.extras import needed
from fastbayes.core.files import atomic, check_target


def figure(instead: str) -> tuple[Any, Any]:
    """Return a new figure and its axes; no window, and no state of pyplot, is touched.

    Without matplotlib FastBayesError names the extra, and what to use `instead`.
    """
    said = f"drawing needs matplotlib: install fastbayes[plot], or use {instead}"
    matplotlib = needed("matplotlib.figure", said)
    made = matplotlib.Figure(figsize=(7, 4.5), layout="constrained")
    return made, made.subplots()


def check_picture(path: str | os.PathLike[str], made: Any, *, force: bool) -> None:
    """Raise unless a figure may be written to a file: before long work, not after it.

    The suffix says the format: ValueError where matplotlib does not know it, DataError where the
    file exists without `force`, or cannot be made.
    """
    if Path(path).suffix[1:].lower() not in made.canvas.get_supported_filetypes():
        raise ValueError(
            f"{os.fspath(path)}: the suffix says the format: name a file such as curve.png, "
            "curve.svg or curve.pdf"
        )
    check_target(path, force=force)


def written(made: Any, path: str | os.PathLike[str] | None, *, force: bool) -> Any:
    """Return a figure, once it is written to a file where there is a path; see `check_picture`."""
    if path is not None:
        check_picture(path, made, force=force)
        with atomic(path, force=force) as temporary:
            made.savefig(temporary, dpi=150)
    return made
