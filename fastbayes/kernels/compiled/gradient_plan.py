"""Which columns of a linear model are joined into one code, and where their cells are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.layout import Layout
from fastbayes.kernels.compiled.joint_tables import LARGEST, pack
from fastbayes.kernels.dispatch import readonly
from fastbayes.kernels.shared.arrays import Floats, Ints
from fastbayes.kernels.shared.codes import Columns


@dataclass(frozen=True, slots=True, eq=False)
class GradientPlan:
    """Groups of columns; those whose codes fit 16 bits come first. Arguments of the kernels.

    A group's code is Σ radix times code of its members, a radix being the product of the sizes of
    the members before. A value that is missing or unseen has the code `known`.
    """

    bounds: Ints  # group g has the members [bounds[g], bounds[g + 1])
    column: Ints  # categorical feature of each member
    size: Ints  # its codes
    known: Ints  # its values
    row: Ints  # coefficients' row of its first value, -1 where another group has them
    radix: Ints  # factor of each member's code in its group's
    pairs: Ints  # (n_pairs, 4): group, both members, coefficients' row
    start: Ints  # first cell of each group, and the number of all cells

    @property
    def narrow(self) -> int:
        """Number of groups whose codes fit 16 bits."""
        return int((np.diff(self.start) <= 2**16).sum())


def plan_of(layout: Layout, absent: NDArray[np.bool_], width: int) -> GradientPlan:
    """Return the groups for rows in which some values of the features flagged are absent.

    width  numbers in a cell
    """
    sizes = np.maximum(layout.sizes + absent, 1)
    # A cell is read in one table and added to in another; both are to stay in the cache.
    bytes_ = 2 * 8 * width
    parts = _joined(sizes, layout.pairs, LARGEST // bytes_)
    products = np.array([np.prod(sizes[part], dtype=np.float64) for part in parts])
    order, _, bounds = pack(np.minimum(products, 2**53).astype(np.int64), bytes_)
    groups = [
        [j for part in order[begin:end] for j in parts[part]]
        for begin, end in itertools.pairwise(bounds)
        if end > begin
    ]
    rows = layout.rows
    members = [[(j, int(rows.values[j])) for j in group] for group in groups]
    group_of = {j: g for g, group in enumerate(groups) for j in group}
    pairs = []
    for (a, b), row in zip(layout.pairs, rows.pairs.tolist(), strict=True):
        g = group_of[a]
        if g != group_of[b]:
            g = len(members)
            members.append([(a, -1), (b, -1)])
        places = [j for j, _ in members[g]]
        pairs.append((g, places.index(a), places.index(b), row))
    return _laid_out(layout, sizes, members, pairs)


def _joined(sizes: Ints, pairs: Iterable[tuple[int, int]], most: int) -> list[list[int]]:
    """Return the columns, those of a pair together where their codes are no more than `most`."""
    parts = {j: [j] for j in range(len(sizes))}
    for a, b in pairs:
        if parts[a] is not parts[b]:
            both = parts[a] + parts[b]
            if np.prod(sizes[both], dtype=np.float64) <= most:
                parts.update(dict.fromkeys(both, both))
    return [part for j, part in parts.items() if part[0] == j]


def _laid_out(
    layout: Layout,
    sizes: Ints,
    members: list[list[tuple[int, int]]],
    pairs: list[tuple[int, int, int, int]],
) -> GradientPlan:
    cells = np.array([np.prod([sizes[j] for j, _ in group]) for group in members], np.int64)
    order = np.argsort(cells > 2**16, kind="stable")
    place = np.argsort(order)
    ordered = [members[g] for g in order]
    flat = np.array([m for group in ordered for m in group], np.int64).reshape(-1, 2)
    bounds = np.cumsum([0, *map(len, ordered)])
    moved = [(g, bounds[g] + a, bounds[g] + b, row) for h, a, b, row in pairs for g in [place[h]]]
    radix = [math.prod(sizes[j] for j, _ in m[:q]) for m in ordered for q in range(len(m))]
    parts = (
        bounds,
        flat[:, 0],
        sizes[flat[:, 0]],
        layout.sizes[flat[:, 0]],
        flat[:, 1],
        np.array(radix),
        np.array(moved, np.int64).reshape(-1, 4),
        np.cumsum([0, *cells[order]]),
    )
    return GradientPlan(*[readonly(part.astype(np.int64)) for part in parts])


def joint_codes(
    plan: GradientPlan, columns: Columns, n_rows: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]:
    """Return the codes of the narrow and of the wide groups, (groups, n_rows up to eights)."""
    n_groups = len(plan.start) - 1
    padded = padding(n_rows)
    narrow = np.zeros((plan.narrow, padded), np.uint16)
    wide = np.zeros((n_groups - plan.narrow, padded), np.uint32)
    for g in range(n_groups):
        out = narrow[g, :n_rows] if g < plan.narrow else wide[g - plan.narrow, :n_rows]
        for q in range(plan.bounds[g], plan.bounds[g + 1]):
            code = columns[int(plan.column[q])]
            if plan.size[q] > plan.known[q]:
                code = np.minimum(code, code.dtype.type(plan.known[q]))
            out += np.multiply(code, plan.radix[q], dtype=out.dtype, casting="unsafe")
    return narrow, wide


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows to go over again and again; all that is beyond the last is 0.

    plan         which columns are joined
    codes, wide  (groups, n_rows up to eights) uint16 and uint32
    numbers      (n_numeric, n_rows up to eights) z = (x - center) / scale, 0 where missing
    classes      (n_rows up to eights,) uint8 of two classes, else uint16; None where none are known
    weight       (n_rows up to eights,), or empty where every row weighs 1
    kept         bytes that a Hessian may keep of them beside
    """

    n_rows: int
    plan: GradientPlan
    codes: NDArray[np.uint16]
    wide: NDArray[np.uint32]
    numbers: Floats
    classes: NDArray[np.unsignedinteger] | None
    weight: Floats
    kept: int

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take, and what a Hessian may keep of them."""
        parts = (self.codes, self.wide, self.numbers, self.classes, self.weight)
        return self.kept + sum(part.nbytes for part in parts if part is not None)


def packed_by(
    plan: GradientPlan, layout: Layout, columns: Columns, batch: Batch, weight: Floats | None
) -> Packed:
    """Return a copy of a batch's rows, of these weights."""
    codes, wide = joint_codes(plan, columns, batch.n_rows)
    n, padded = batch.n_rows, padding(batch.n_rows)
    numbers = np.zeros((layout.n_numeric, padded))
    for z, x, center, scale in zip(
        numbers[:, :n], batch.numeric, layout.center, layout.scale, strict=True
    ):
        np.subtract(x, center, out=z)
        z /= scale
        z[np.isnan(z)] = 0.0
    classes: NDArray[np.unsignedinteger] | None = None
    own = np.zeros(0 if weight is None else padded)
    if batch.classes is not None:
        classes = np.zeros(padded, np.uint8 if layout.n_outputs == 1 else np.uint16)
        classes[:n] = batch.classes
        classes = readonly(classes)
    if weight is not None:
        own[:n] = weight
    kept = 4 * layout.n_outputs * padded
    return Packed(
        n, plan, readonly(codes), readonly(wide), readonly(numbers), classes, readonly(own), kept
    )


def padding(n_rows: int) -> int:
    """Return so many rows up to eights, the rows that vectors take at a time."""
    return -(-n_rows // 8) * 8


def absent_in(layout: Layout, columns: Columns) -> NDArray[np.bool_]:
    """Return of each categorical feature whether a value is missing or unseen."""
    absent = np.zeros(len(layout.sizes), np.bool_)
    for j, column in columns.items():
        absent[j] = column.max(initial=0) >= layout.sizes[j] and len(column) > 0
    return absent
