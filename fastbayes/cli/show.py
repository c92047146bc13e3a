"""How results and remarks are shown."""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

from fastbayes.cli.remedies import in_options
from fastbayes.core.errors import FastBayesWarning
from fastbayes.core.text_tables import cell, visible
from fastbayes.core.text_tables import size as size

MOST = 12  # entries of a list that are shown


def show(result: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print a result on stdout, as JSON or in lines."""
    if as_json:
        click.echo(json.dumps(plain(result), indent=2, allow_nan=False))
        return
    for line in lines:
        click.echo(visible(line.rstrip()))


def plain(value: Any) -> Any:
    """Return a value as JSON knows it; a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def fields(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line per entry that says something."""
    said = {key: text(value) for key, value in summary.items()}
    said = {key: value for key, value in said.items() if value}
    width = max(map(len, said), default=0)
    for key, value in said.items():
        name = key.replace("_", " ") if key.islower() else key
        yield f"{name:<{width}}  {value}"


def text(value: Any) -> str:
    """Return a value as people read it; nothing for what is empty."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, Mapping):
        return listed([f"{key} {text(item)}" for key, item in value.items()])
    if isinstance(value, list | tuple):
        return listed([text(item) for item in value])
    return cell(value)


def listed(entries: Sequence[str]) -> str:
    """Return the first entries of a list and how many more there are."""
    more = f" and {len(entries) - MOST:,} more" if len(entries) > MOST else ""
    return ", ".join(entries[:MOST]) + more


def learned(model: Any) -> dict[str, Any]:
    """Return what a fitted model has found out besides its parameters."""
    names = ["variance_floored", "constant", "singular", "super_parent"]
    if getattr(model, "select", None) is not None:
        names += ["k", "n_selected"]
    found: dict[str, Any] = {
        name: getattr(model, f"{name}_") for name in names if hasattr(model, f"{name}_")
    }
    if {*(kinds := getattr(model, "numeric_", {})).values()} - {"gaussian"}:
        found["densities"] = kinds
    if hasattr(model, "weights_"):
        found["weights"] = model.weights_
    if hasattr(model, "gradient_norm_"):
        names = ["converged", "n_iter", "gradient_norm", "objective"]
        found |= {name: getattr(model, f"{name}_") for name in names if hasattr(model, f"{name}_")}
    if hasattr(model, "parents_"):
        found["parents"] = {
            name: [above] if isinstance(above, str) else list(above or ())
            for name, above in model.parents_.items()
        }
    return found


def coefficients(model: Any) -> dict[str, Any]:
    """Return the lines of a table of coefficients; nothing of a model that makes none."""
    if not hasattr(model, "coefficients"):
        return {}
    return {"coefficients": model.coefficients().to_pylist()}


def coefficient_lines(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the first coefficients, without what none of them has."""
    some = lines[:MOST]
    names = [name for name in some[0] if any(line[name] is not None for line in some)]
    yield ""
    yield from table([names, *([cell(line[name]) for name in names] for line in some)])
    if len(lines) > MOST:
        yield f"  and {len(lines) - MOST:,} more: see --json"


def said_of(model: Any, name: str) -> dict[str, Any]:
    """Return what tells the classes apart in a column; nothing where coefficients say it."""
    if hasattr(model, "coefficients") or not hasattr(model, "table"):
        return {}
    found, said = model.table(name), dict[str, Any]()
    if found.telling:
        said["telling"] = [*found.telling]
    if "mean" in found.table.column_names:
        labels = map(str, found.table["class"].to_pylist())
        numbers = (found.table[key].to_pylist() for key in ("mean", "standard_deviation"))
        said["numbers"] = {
            label: {"mean": mean, "standard_deviation": deviation}
            for label, mean, deviation in zip(labels, *numbers, strict=True)
        }
    return said


def said_in_words(column: Mapping[str, Any]) -> tuple[str, str]:
    """Return the share missing of a column, and what tells the classes apart in it."""
    missing = f"{column['missing']:.3g} missing" if column.get("missing") else ""
    telling = [
        f"{one['class']} {cell(one['value']) or 'missing'} {one['log_ratio']:+.3g}"
        for one in column.get("telling", ())
    ]
    numbers = [
        f"{label} {cell(of['mean'])} ± {cell(of['standard_deviation'])}"
        for label, of in column.get("numbers", {}).items()
    ]
    return missing, listed(telling or numbers)


def calibration(model: Any) -> dict[str, Any]:
    """Return how the posteriors of a calibrated model were mapped; nothing of another."""
    if not hasattr(model, "calibration_"):
        return {}
    before, after = model.log_loss_
    return {
        "calibrated_by": model.calibration_.method,
        "temperature": getattr(model.calibration_, "temperature", None),
        "held_out_by": model.validation_,
        "log_loss": {"before": before, "after": after},
    }


def blended(model: Any) -> dict[str, Any]:
    """Return what a blend is made of; nothing of another model."""
    if not hasattr(model, "members_"):
        return {}
    linear, blend = model.log_loss_
    return {
        "members": {name: member.weight for name, member in model.members_.items()},
        "dropped": model.dropped_,
        "log_loss": {"blend": blend, "linear": linear, **model.member_log_loss_},
    }


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows in aligned columns."""
    rows = [[*map(visible, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))


def on_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that the caller has closed is None."""
    return stream is not None and stream.isatty()


def say(message: str) -> None:
    """Print a line on stderr, above a progress bar if there is one.

    Where stderr takes nothing, as on a full disk, the line is lost: no work ends for a remark.
    """
    message = "\n".join(map(visible, message.split("\n")))
    with suppress(OSError):
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(message, file=sys.stderr)
        else:
            click.echo(message, err=True)


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"note: {in_options(record.getMessage())}")


@contextmanager
def remarks(*, verbose: bool, quiet: bool) -> Iterator[None]:
    """Print what the library logs, and each of its warnings once, on stderr."""
    logger, handler, said = logging.getLogger("fastbayes"), _Remarks(), set()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)

    def once(message: Warning | str, *_: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            say(f"note: {in_options(str(message))}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if quiet else "always", FastBayesWarning)
            warnings.showwarning = once  # type: ignore[assignment]
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
