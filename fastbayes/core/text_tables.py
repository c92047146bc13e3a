"""Results as text: aligned columns, and a short form for `repr`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unicodedata import category

import pyarrow as pa

# The most lines and columns of a `repr`.
LINES, COLUMNS = 20, 100
# Categories of characters that do not stand for themselves on a terminal.
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """Return text in which what a terminal would obey is spelled out as Python's `repr` does.

    These are control characters, with which ANSI sequences begin, marks that turn the direction of
    writing, line ends and halves of surrogate pairs: a name in the data may hold any of them.
    """
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if category(c) in OBEYED else c for c in text
    )


def aligned(rows: Sequence[Sequence[str]], winners: int = 0) -> list[str]:
    """Return rows as lines of aligned columns, the first column to the left, winners marked."""
    rows = [[*map(visible, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, (name, *cells) in enumerate(rows):
        mark = "* " if 0 < i <= winners else "  "
        given = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append(mark + "  ".join([name.ljust(widths[0]), *given]))
    return lines


def size(n_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def brief(text: str) -> str:
    """Return at most 20 lines of 100 columns of a text: the first and the last of them."""
    lines = text.split("\n")
    if len(lines) > LINES:
        last = LINES // 4
        first = LINES - last - 1
        lines[first:-last] = [f"  ... {len(lines) - first - last:,} lines more; print shows all"]
    return "\n".join(
        line if len(line) <= COLUMNS else line[: COLUMNS - 4].rstrip() + " ..." for line in lines
    )


class ShortRepr:
    """A result whose `repr` is the short form of its `str`."""

    def __repr__(self) -> str:
        return brief(str(self))


def cell(value: Any) -> str:
    """Return a value of a table as people read it: five figures, nothing where it is null."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 1e4 else f"{value:.5g}"
    return str(value)


def lines_of(table: pa.Table) -> list[str]:
    """Return an Arrow table as lines of aligned columns, its names first."""
    columns = [[*map(cell, column.to_pylist())] for column in table.columns]
    return aligned([table.column_names, *zip(*columns, strict=True)])
