"""The loss of rows under a linear model, and its gradient: a value that adds and ships."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastbayes.core import files
from fastbayes.core.errors import FileFormatError, SchemaError

Floats = NDArray[np.float64]
SUMS = ("n_rows", "weight", "loss", "gradient")


@dataclass(frozen=True, eq=False, repr=False)
class LossGradient:
    """Loss and gradient of logistic regression, summed over rows.

    Sums of parts are the sum of the whole: any engine that maps batches and merges can fit.

    Parameters
    ----------
    n_rows
        Number of rows.
    weight
        Sum of their weights, class weights multiplied in.
    loss
        Σ w_r loss_r in nats, without a penalty.
    gradient
        (1 + n_coefficients, n_outputs): its derivatives by the intercepts and, in the order of
        `coef_names_` and the units of the columns, by the coefficients.
    at
        Mark of the coefficients at which they were taken: only sums of the same ones add up.

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
    >>> model = fb.LogisticRegression().fit(table, "play")
    >>> whole = model.loss_gradient(table, "play")
    >>> parts = [model.loss_gradient({n: c[i : i + 2] for n, c in table.items()}, "play")
    ...          for i in (0, 2)]
    >>> (parts[0] + parts[1]).allclose(whole)
    True
    """

    n_rows: float
    weight: float
    loss: float
    gradient: Floats
    at: str = ""

    @staticmethod
    def mark(theta: Floats) -> str:
        """Return the mark of coefficients.

        Parameters
        ----------
        theta
            The coefficients.

        Returns
        -------
        str
            The same for the same numbers only.
        """
        return hashlib.sha256(np.ascontiguousarray(theta).tobytes()).hexdigest()[:16]

    def __repr__(self) -> str:
        p, m = self.gradient.shape
        return f"<LossGradient of {self.n_rows:,.10g} rows: loss {self.loss:.6g}, ({p}, {m})>"

    @property
    def nbytes(self) -> int:
        """Bytes held by the gradient."""
        return self.gradient.nbytes

    def _summed(self, function: Callable[..., Any], *others: LossGradient) -> Self:
        """Return a function of each sum, and of those of others."""
        values = {name: [getattr(s, name) for s in (self, *others)] for name in SUMS}
        return replace(self, **{name: function(*held) for name, held in values.items()})

    def _with(self, other: LossGradient, sign: float) -> Self:
        if self.gradient.shape != other.gradient.shape or self.at != other.at:
            raise SchemaError(
                "gradients at different coefficients do not add up: take both with one model"
            )
        return self._summed(lambda mine, theirs: mine + sign * theirs, other)

    def __add__(self, other: LossGradient) -> Self:
        return self._with(other, 1.0) if isinstance(other, LossGradient) else NotImplemented

    def __radd__(self, other: object) -> Self:
        # `sum` starts from 0.
        return self if other == 0 else NotImplemented

    def __sub__(self, other: LossGradient) -> Self:
        return self._with(other, -1.0) if isinstance(other, LossGradient) else NotImplemented

    def __mul__(self, factor: float) -> Self:
        if not (isinstance(factor, (int, float, np.number)) and np.isfinite(factor)):
            raise ValueError(f"a gradient can be scaled by a finite number, not {factor!r}")
        return self._summed(lambda value: value * float(factor))

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LossGradient):
            return NotImplemented
        return self.at == other.at and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in SUMS
        )

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: LossGradient, rtol: float = 1e-9) -> bool:
        """Return whether all numbers agree, relative to the larger of loss and gradient.

        Parameters
        ----------
        other
            What to compare with.
        rtol
            Relative tolerance.
        """
        if self.gradient.shape != other.gradient.shape or self.at != other.at:
            return False
        scale = max(float(np.abs(self.gradient).max(initial=0.0)), abs(self.loss))
        return bool(
            np.allclose(
                (self.n_rows, self.weight, self.loss),
                (other.n_rows, other.weight, other.loss),
                rtol=rtol,
                atol=rtol * scale,
            )
            and np.allclose(self.gradient, other.gradient, rtol=rtol, atol=rtol * scale)
        )

    # -- keeping -------------------------------------------------------------------------------

    def to_table(self) -> pa.Table:
        """Return one row: number of rows, weight, loss, gradient row by row, outputs, mark.

        Returns
        -------
        pyarrow.Table
            What `from_table` takes; tables of parts may be concatenated before.
        """
        return pa.table(
            {
                "n_rows": [float(self.n_rows)],
                "weight": [float(self.weight)],
                "loss": [float(self.loss)],
                "gradient": pa.array([self.gradient.ravel()], pa.list_(pa.float64())),
                "n_outputs": [self.gradient.shape[1]],
                "at": [self.at],
            }
        )

    @classmethod
    def from_table(cls, table: Any) -> Self:
        """Return the sum of the rows of tables that `to_table` returned.

        Parameters
        ----------
        table
            Anything that Arrow reads as a table.

        Returns
        -------
        LossGradient
            The sum, row by row in order.

        Raises
        ------
        SchemaError
            When a column is not there, there is no row, or rows are of different coefficients.
        """
        rows = pa.table(table)
        names = ("n_rows", "weight", "loss", "gradient", "n_outputs", "at")
        if missing := [name for name in names if name not in rows.schema.names]:
            raise SchemaError(f"there is no column {missing[0]!r}; to_table writes {names}")
        if not rows.num_rows:
            raise SchemaError("the table has no row, and so no coefficients: leave it out")
        parts = []
        for row in rows.select(names).to_pylist():
            gradient = np.array(row["gradient"], np.float64).reshape(-1, row["n_outputs"])
            parts.append(cls(*(row["n_rows"], row["weight"], row["loss"]), gradient, at=row["at"]))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write it to a file that `load` reads.

        Parameters
        ----------
        path
            The file to write.
        force
            Whether to replace a file that is there.

        Raises
        ------
        DataError
            When the file exists and `force` is not set, or it cannot be written.
        """
        sums = np.array([self.n_rows, self.weight, self.loss], np.float64)
        header = {"kind": "loss_gradient", "at": self.at}
        files.write(path, header, {"sums": sums, "gradient": self.gradient}, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path
            The file to read.

        Returns
        -------
        LossGradient
            Equal to what was written.

        Raises
        ------
        FileFormatError
            When the file is not one of these, or is damaged.
        """
        header, arrays = files.read(path)
        sums, gradient = arrays.get("sums"), arrays.get("gradient")
        if header.get("kind") != "loss_gradient" or sums is None or gradient is None:
            raise FileFormatError(f"{path}: holds no LossGradient; LossGradient.save writes one")
        if sums.shape != (3,) or gradient.ndim != 2 or gradient.dtype != np.float64:
            raise FileFormatError(f"{path}: the parts do not fit together; write it again")
        n_rows, weight, loss = sums.tolist()
        return cls(n_rows, weight, loss, np.array(gradient), at=str(header.get("at", "")))
