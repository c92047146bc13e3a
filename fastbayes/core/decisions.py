"""What to do, given a posterior and what each mistake costs.

The conditional risk of decision i is R(i|x) = sum_j loss[i, j] P(j|x): rows of a loss matrix are
decisions, columns are the truth.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.errors import DataError, refuse
from fastbayes.core.one_thread import FEWEST, pieces
from fastbayes.core.suggestions import did_you_mean


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
            f"{labels.tolist()}{did_you_mean(unknown[0], labels.tolist())}"
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
    refuse(
        _labelled(loss) is not None,
        "this loss has labels, and probabilities do not say which classes they are of: pass a "
        "matrix with a row for each decision and a column for each class, in the order of those of "
        "the probabilities, or the labelled loss to `decide` of the model",
    )
    if isinstance(loss, np.ma.MaskedArray) and (hidden := np.ma.getmaskarray(loss)).any():
        place = " under truth ".join(map(str, np.argwhere(hidden)[0].tolist()))
        raise DataError(f"the cost of decision {place} is masked: a cost must be a finite number")
    try:
        matrix = np.asarray(loss)
        real = not np.iscomplexobj(matrix)
        matrix = np.array(loss, np.float64) if real else matrix
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"a loss must be a matrix of numbers: {error}") from error
    refuse(not real, "the costs are complex: a cost must be a real number; pass numpy.real(loss)")
    refuse(
        matrix.ndim != 2 or matrix.shape[1] != n_classes or not len(matrix),
        f"a loss for {n_classes} classes is (n_decisions, {n_classes}), this one has shape "
        f"{matrix.shape}",
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
    refuse(not names, "the loss is an empty table: name the decisions in its first column")
    return columns[0], names[1:], list(zip(*columns[1:], strict=True))


def _from_dicts(loss: Mapping[Any, Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
    rows = list(loss)
    for row in rows:
        refuse(
            not isinstance(loss[row], Mapping),
            f"the loss of decision {row!r} must map each truth to its cost",
        )
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
        refuse(
            position in found and position is not None,
            f"the loss names {axis} {name!r} twice: keep one",
        )
        found.append(position)
    return found


def _order(rows: list[Any], labels: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the order of the rows of a labelled loss, and their labels in that order."""
    refuse(not rows, "the loss has no decisions: add at least one row")
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
        number = math.nan if np.iscomplexobj(cost) else float(cost)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"the cost of decision {decision!r} under truth {truth!r} is {cost!r}: a cost must be "
            "a finite number"
        )
    return number


__all__ = [
    "Decisions",
    "bayes_risk",
    "check_proba",
    "conditional_risk",
    "decide",
    "loss_matrix",
    "minimum_risk",
]


def conditional_risk(proba: ArrayLike, loss: ArrayLike) -> NDArray[np.float64]:
    """Return the expected loss of every decision for every row.

    Parameters
    ----------
    proba
        (n_rows, n_classes) posterior probabilities.
    loss
        (n_decisions, n_classes) cost of each decision (row) under each truth (column).

    Returns
    -------
    risk
        (n_rows, n_decisions), in the unit of the loss.

    Raises
    ------
    DataError
        A probability is not in [0, 1], a cost is not finite, or the shapes do not fit.

    References
    ----------
    Duda, Hart, Stork (2001), Pattern Classification, equation 2.13.

    Examples
    --------
    >>> conditional_risk([[0.5, 0.5]], [[0, 4], [1, 0]]).tolist()
    [[2.0, 0.5]]
    """
    probabilities = check_proba(proba)
    return _risk(probabilities, plain_matrix(loss, probabilities.shape[1]))


def minimum_risk(
    proba: ArrayLike, loss: ArrayLike | None = None, reject: float | None = None
) -> NDArray[np.intp]:
    """Return the decision of least expected loss for every row.

    Parameters
    ----------
    proba
        (n_rows, n_classes) posterior probabilities.
    loss
        (n_decisions, n_classes) cost of each decision (row) under each truth (column); None: every
        mistake costs 1, so that the decision is the most probable class.
    reject
        Cost of making no decision, taken only where it is below the least expected loss.

    Returns
    -------
    index
        (n_rows,) row of the loss matrix, -1 for reject; ties go to the lowest.

    Raises
    ------
    DataError
        A probability is not in [0, 1], a cost is not finite, or the shapes do not fit.

    Examples
    --------
    >>> minimum_risk([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]], [[0, 4], [1, 0]], reject=0.45).tolist()
    [0, -1, -1]
    """
    return least_risk(proba, loss, reject)[0]


def least_risk(
    proba: ArrayLike, loss: ArrayLike | None = None, reject: float | None = None
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return what `minimum_risk` returns, and the expected loss of each decision, (n_rows,)."""
    probabilities = check_proba(proba)
    return _decide(probabilities, _loss(loss, probabilities), _cost(reject))


def bayes_risk(
    proba: ArrayLike, loss: ArrayLike | None = None, reject: float | None = None
) -> float:
    """Return the mean of the least expected loss: what the best decisions will cost.

    Parameters
    ----------
    proba
        (n_rows, n_classes) posterior probabilities.
    loss
        (n_decisions, n_classes) cost of each decision (row) under each truth (column); None: every
        mistake costs 1, and only then 1 - risk is the accuracy to expect.
    reject
        Cost of making no decision.

    Returns
    -------
    risk
        In the unit of the loss, per row.

    Raises
    ------
    DataError
        There are no rows, a probability is not in [0, 1], a cost is not finite, or the shapes do
        not fit.

    Examples
    --------
    >>> bayes_risk([[0.75, 0.25], [0.5, 0.5]])
    0.375
    """
    risk = least_risk(proba, loss, reject)[1]
    refuse(not len(risk), "the Bayes risk of no rows is undefined: pass at least one row")
    return float(np.mean(risk))


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decision of least expected loss for each row, which compares like the array of labels.

    Attributes
    ----------
    decision
        (n_rows,) label of the decision; with a reject cost an object array, None where rejected.
    index
        (n_rows,) row of the loss matrix, -1 where rejected.
    expected_loss
        (n_rows,) expected loss of the decision, in the unit of the loss.
    runner_up
        (n_rows,) label of the second best decision, None where that is to reject or there is none.
    """

    decision: NDArray[Any]
    index: NDArray[np.intp]
    expected_loss: NDArray[np.float64]
    runner_up: NDArray[Any]

    def __len__(self) -> int:
        return len(self.decision)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.decision)

    def __getitem__(self, rows: Any) -> Any:
        """Return one row's label, or the decisions of several rows."""
        if np.ndim(self.index[rows]) == 0:
            return self.decision[rows]
        parts = (self.decision, self.index, self.expected_loss, self.runner_up)
        return Decisions(*(part[rows] for part in parts))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.decision, dtype, copy=copy)

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self.decision == np.asarray(other))

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self.decision != np.asarray(other))

    __hash__ = None  # type: ignore[assignment]


def decide(
    proba: ArrayLike, classes: ArrayLike, loss: Any = None, reject: float | None = None
) -> Decisions:
    """Return the decision of least expected loss, its loss and the runner-up for every row.

    Parameters
    ----------
    proba
        (n_rows, n_classes) posterior probabilities.
    classes
        (n_classes,) labels in the order of the columns of `proba`.
    loss
        Whatever `loss_matrix` takes; None: every mistake costs 1.
    reject
        Cost of making no decision, taken only where it is below the least expected loss.

    Returns
    -------
    decisions
        One per row; ties go to the first decision.

    Raises
    ------
    DataError
        A probability is not in [0, 1], or the loss does not fit the classes; names row or label.
    """
    probabilities = check_proba(proba)
    labels = np.asarray(classes)
    refuse(
        len(labels) != probabilities.shape[1],
        f"{probabilities.shape[1]} columns of probabilities for {len(labels)} classes",
    )
    if loss is None:
        matrix, names = _loss(None, probabilities), labels
    else:
        matrix, names = loss_matrix(loss, labels)
    cost = _cost(reject)
    index, expected = _decide(probabilities, matrix, cost)
    runner_up = _runner_up(probabilities, matrix, cost, index)
    optional = cost is not None or len(names) == 1
    return Decisions(
        _label(names, index, cost is not None), index, expected, _label(names, runner_up, optional)
    )


def check_proba(proba: ArrayLike) -> NDArray[np.float64]:
    """Return probabilities as float64, once they are a matrix of numbers in [0, 1].

    Parameters
    ----------
    proba
        (n_rows, n_classes).

    Returns
    -------
    proba
        The same, float64.

    Raises
    ------
    DataError
        Not a matrix, or a value outside [0, 1]; names row and column.
    """
    try:
        probabilities = np.asarray(proba, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"probabilities must be a matrix of numbers: {error}") from error
    refuse(
        probabilities.ndim != 2 or probabilities.shape[1] == 0,
        f"probabilities must be (n_rows, n_classes), these have shape {probabilities.shape}",
    )
    # A sum of many probabilities may exceed 1 by rounding.
    wrong = ~((probabilities >= 0) & (probabilities <= 1 + 1e-9))
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"row {row}, class {column}: {probabilities[row, column]} is no probability; pass "
            "what predict_proba returns"
        )
    return probabilities


def _loss(loss: Any, proba: NDArray[np.float64]) -> NDArray[np.float64]:
    n_classes = proba.shape[1]
    return 1.0 - np.eye(n_classes) if loss is None else plain_matrix(loss, n_classes)


def _cost(reject: float | None) -> float | None:
    if reject is None:
        return None
    try:
        cost = float(reject)
    except (TypeError, ValueError, OverflowError):
        cost = math.nan
    refuse(
        not math.isfinite(cost),
        f"the cost of rejecting is {reprlib.repr(reject)}: it must be a finite number, or None",
    )
    return cost


def _risk(proba: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.empty((len(proba), len(matrix)))
    for rows in pieces(len(proba), matrix.size, FEWEST):
        np.matmul(proba[rows], matrix.T, out=found[rows])
    return found


def _regret(proba: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the risk less what no decision can change, so that ties are exact.

    Under the loss 1 - I this is -proba: the decision is then the argmax, where 1 - proba would
    have lost the last bits of a close race.
    """
    return _risk(proba, matrix - matrix.max(axis=0))


def _decide(
    proba: NDArray[np.float64], matrix: NDArray[np.float64], reject: float | None
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the decision of each row, -1 for reject, and its expected loss."""
    index = np.argmin(_regret(proba, matrix), axis=1)
    expected = _of(_risk(proba, matrix), index)
    if reject is None:
        return index, expected
    rejected = reject < expected
    return np.where(rejected, -1, index), np.where(rejected, reject, expected)


def _runner_up(
    proba: NDArray[np.float64],
    matrix: NDArray[np.float64],
    reject: float | None,
    index: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return the second best decision of each row, -1 where that is to reject or there is none."""
    regret = _regret(proba, matrix)
    best = np.argmin(regret, axis=1)
    second = np.full(len(proba), -1)
    if len(matrix) > 1:
        np.put_along_axis(regret, best[:, None], np.inf, axis=1)
        second = np.argmin(regret, axis=1)
        if reject is not None:
            second = np.where(reject < _of(_risk(proba, matrix), second), -1, second)
    return np.where(index == -1, best, second)


def _of(values: NDArray[np.float64], index: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the chosen value of each row."""
    return np.take_along_axis(values, index[:, None], axis=1)[:, 0]


def _label(names: NDArray[Any], index: NDArray[np.intp], optional: bool) -> NDArray[Any]:
    """Return labels for indices; where -1 is possible an object array with None for it."""
    if not optional:
        return names[index]
    labels = names.astype(object)[index]
    labels[index == -1] = None
    return labels
