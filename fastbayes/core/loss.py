"""A loss matrix from whatever a user writes it in, its labels checked against the classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError


def loss_matrix(loss: Any, classes: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return a loss as a matrix in the order of the classes, with the labels of its rows.

    Parameters
    ----------
    loss
        A matrix or nested list, columns in the order of the classes; or labelled: a dict
        {decision: {truth: cost}}, a pandas DataFrame (index = decision, columns = truth), or an
        Arrow table or polars frame whose first column names the decisions. Labels read from text
        match classes of other types by their text.
    classes
        (n_classes,) labels of the truth.

    Returns
    -------
    matrix, decisions
        (n_decisions, n_classes) float64 and (n_decisions,) labels. The decisions are the classes,
        in their order, and then any others in the order given; or others only ("treat", "wait").
        A matrix without labels decides among the classes if it is square, else its rows are
        labelled by their numbers.

    Raises
    ------
    DataError
        A label is missing, unknown or twice there, or a cost is not a finite number; names the
        decision and the truth.

    Examples
    --------
    >>> loss_matrix({"ill": {"well": 1, "ill": 0}, "well": {"well": 0, "ill": 9}}, ["ill", "well"])
    (array([[0., 1.],
           [9., 0.]]), array(['ill', 'well'], dtype='<U4'))
    """
    labels = np.asarray(classes)
    labelled = _labelled(loss)
    if labelled is None:
        matrix = plain_matrix(loss, len(labels))
        return matrix, labels if len(matrix) == len(labels) else np.arange(len(matrix))
    rows, columns, costs = labelled
    truth = _positions(columns, labels, "truth")
    unknown = [name for name, position in zip(columns, truth, strict=True) if position is None]
    if unknown:
        raise DataError(
            f"the loss has a cost for truth {unknown[0]!r}, which is no class; the classes are "
            f"{labels.tolist()}"
        )
    lacking = [label for i, label in enumerate(labels.tolist()) if i not in truth]
    if lacking:
        raise DataError(f"the loss has no cost for truth {lacking[0]!r}: add its column")
    order, decisions = _order(rows, labels)
    where = [truth.index(i) for i in range(len(labels))]
    values = [[_number(costs[r][c], rows[r], columns[c]) for c in where] for r in order]
    return np.array(values, np.float64).reshape(len(order), len(labels)), decisions


def plain_matrix(loss: Any, n_classes: int) -> NDArray[np.float64]:
    """Return a loss without labels as a matrix with one column per class.

    Parameters
    ----------
    loss
        A matrix or nested list.
    n_classes
        Columns that it must have.

    Returns
    -------
    matrix
        (n_decisions, n_classes) float64, a copy.

    Raises
    ------
    DataError
        The shape does not fit, a cost is not a finite number, or there are labels.
    """
    if _labelled(loss) is not None:
        raise DataError(
            "this loss has labels, which need the classes: pass loss_matrix(loss, classes)[0]"
        )
    try:
        matrix = np.array(loss, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"a loss must be a matrix of numbers: {error}") from error
    if matrix.ndim != 2 or matrix.shape[1] != n_classes or not len(matrix):
        raise DataError(
            f"a loss for {n_classes} classes is (n_decisions, {n_classes}), this one has shape "
            f"{matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        decision, truth = np.argwhere(~np.isfinite(matrix))[0].tolist()
        raise DataError(
            f"the cost of decision {decision} under truth {truth} is {matrix[decision, truth]}: "
            "a cost must be finite"
        )
    return matrix


def _labelled(loss: Any) -> tuple[list[Any], list[Any], Sequence[Sequence[Any]]] | None:
    """Return (decisions, truths, costs by row) of a labelled loss, None if it has no labels."""
    if isinstance(loss, Mapping):
        return _from_dicts(loss)
    if hasattr(loss, "index") and hasattr(loss, "columns") and hasattr(loss, "to_numpy"):  # pandas
        return loss.index.tolist(), loss.columns.tolist(), loss.to_numpy().tolist()
    if hasattr(loss, "column_names") and hasattr(loss, "to_pylist"):  # Arrow
        names, columns = list(loss.column_names), [column.to_pylist() for column in loss.columns]
    elif hasattr(loss, "get_columns"):  # polars
        names, columns = list(loss.columns), [column.to_list() for column in loss.get_columns()]
    else:
        return None
    if not names:
        raise DataError("the loss is an empty table: name the decisions in its first column")
    return columns[0], names[1:], list(zip(*columns[1:], strict=True))


def _from_dicts(loss: Mapping[Any, Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
    rows = list(loss)
    for row in rows:
        if not isinstance(loss[row], Mapping):
            raise DataError(f"the loss of decision {row!r} must map each truth to its cost")
    columns = list(dict.fromkeys(truth for row in rows for truth in loss[row]))
    for row in rows:
        for truth in columns:
            if truth not in loss[row]:
                raise DataError(f"the loss has no cost for decision {row!r} under truth {truth!r}")
    return rows, columns, [[loss[row][truth] for truth in columns] for row in rows]


def _positions(names: Sequence[Any], labels: NDArray[Any], axis: str) -> list[int | None]:
    """Return the class of each name, None for a name that is no class."""
    exact = {label: i for i, label in enumerate(labels.tolist())}
    # JSON and column names know text only; JSON writes booleans in lower case.
    texts = {str(label): i for label, i in exact.items()}
    texts |= {str(label).lower(): i for label, i in exact.items() if isinstance(label, bool)}
    found: list[int | None] = []
    for name in names:
        position = exact.get(name)
        if position is None and isinstance(name, str):
            position = texts.get(name)
        if position in found and position is not None:
            raise DataError(f"the loss names {axis} {name!r} twice: keep one")
        found.append(position)
    return found


def _order(rows: list[Any], labels: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the order of the rows of a labelled loss, and their labels in that order."""
    if not rows:
        raise DataError("the loss has no decisions: add at least one row")
    positions = _positions(rows, labels, "decision")
    classes, others = (
        [p for p in positions if p is not None],
        [r for r, position in enumerate(positions) if position is None],
    )
    if len({rows[r] for r in others}) < len(others):
        name = next(rows[r] for r in others if rows.count(rows[r]) > 1)
        raise DataError(f"the loss names decision {name!r} twice: keep one")
    if not classes:
        return others, _array([rows[r] for r in others])
    lacking = sorted(set(range(len(labels))) - set(classes))
    if lacking:
        # A slip of the pen in a class would otherwise pass for a decision of its own.
        raise DataError(
            f"the loss has no row for decision {labels[lacking[0]]!s}: add it, or give the "
            f"decisions other names than classes (its rows are {rows})"
        )
    order = [positions.index(i) for i in range(len(labels))] + others
    if not others:
        return order, labels
    return order, _array([*labels.tolist(), *(rows[r] for r in others)])


def _array(names: list[Any]) -> NDArray[Any]:
    """Return labels as an array: of text if all are, else of objects."""
    return np.array(names, None if all(isinstance(name, str) for name in names) else object)


def _number(cost: Any, decision: Any, truth: Any) -> float:
    try:
        number = float(cost)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"the cost of decision {decision!r} under truth {truth!r} is {cost!r}: a cost must be "
            "a finite number"
        )
    return number
