"""How good probabilities are, summed up batch by batch.

Every figure is a sum over rows (weight w counts as w rows), so evaluations of parts merge into the
evaluation of the whole. The AUC needs ranks: they are exact up to a bounded number of scores, and
beyond it those of a histogram whose error is bounded and reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastbayes.core.decisions import check_proba, conditional_risk, loss_matrix, minimum_risk
from fastbayes.core.errors import DataError
from fastbayes.core.text_tables import ShortRepr, aligned
from fastbayes.evaluation.roc_auc import RocAuc
from fastbayes.kernels.shared.nested import CLIP
from fastbayes.models.estimator.log_space import row_argmax, row_max, row_sum

N_BINS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(ShortRepr):
    """How often the predicted class was right, by the confidence of the prediction.

    Attributes
    ----------
    lower, upper
        (10,) bounds of the bins of confidence (the probability of the predicted class): a bin
        holds lower <= confidence < upper, the last also 1.
    n
        (10,) weighted rows.
    confidence
        (10,) their mean confidence, NaN in an empty bin.
    accuracy
        (10,) the share that was right, NaN in an empty bin.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    n: NDArray[Any]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    def __str__(self) -> str:
        rows = [("confidence from", "to", "rows", "confidence", "accuracy")]
        rows += [
            (f"{low:.1f}", f"{high:.1f}", f"{n:,.10g}", f"{p:.4f}", f"{right:.4f}")
            for low, high, n, p, right in zip(*vars(self).values(), strict=True)
        ]
        return "\n".join(aligned(rows))


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(ShortRepr):
    """Figures of a classifier on labelled rows.

    Attributes
    ----------
    classes
        (n_classes,) labels.
    n
        Rows, or the sum of their weights.
    accuracy
        Share of rows whose most probable class is the true one, ties to the first class.
    log_loss
        Mean of -ln p(true class), in nats, p clipped at 1e-15.
    clipped
        Rows (by weight) whose p(true class) was below 1e-15.
    brier
        Mean over rows of the sum over classes of (p - truth)^2: between 0 and 2 for any number of
        classes (Brier 1950); for two classes twice the one-sided form.
    auc
        Area under the ROC curve of the second of two classes; for more classes the mean, over those
        that have one, of one against the rest. A class that did not occur, or no other did, has
        none; NaN where none has one.
    auc_method
        "exact", or "histogram" when there were too many rows to keep their scores.
    auc_error
        The exact AUC is within this distance.
    calibration
        Confidence against accuracy.
    calibration_error
        Mean over rows of |accuracy - confidence| of their bin.
    confusion
        (n_classes, n_classes) weighted rows: row = truth, column = most probable class.
    expected_loss
        Mean loss incurred by the decisions of least risk; without a loss matrix 1 - accuracy.
    bayes_risk
        Mean loss that the probabilities themselves expect of these decisions.
    """

    classes: NDArray[Any]
    n: float
    accuracy: float
    log_loss: float
    clipped: float
    brier: float
    auc: float
    auc_method: str
    auc_error: float
    calibration: Calibration
    calibration_error: float
    confusion: NDArray[Any]
    expected_loss: float
    bayes_risk: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists for JSON, None where undefined."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        error = "" if self.auc_method == "exact" else f" ± {self.auc_error:.1g}, by histogram"
        lines = [
            f"rows               {self.n:,}",
            f"accuracy           {self.accuracy:.6f}",
            f"log-loss           {self.log_loss:.6f} nats, {self.clipped:,} rows clipped",
            f"Brier score        {self.brier:.6f}",
            f"AUC                {self.auc:.6f}{error}",
            f"calibration error  {self.calibration_error:.6f}",
            f"expected loss      {self.expected_loss:.6f}, foreseen {self.bayes_risk:.6f}",
            "",
            "confusion (row = truth, column = prediction)",
        ]
        names = [str(label) for label in self.classes.tolist()]
        cells = [[f"{count:,}" for count in row] for row in self.confusion.tolist()]
        width = max(len(text) for text in [*names, *(cell for row in cells for cell in row)])
        for name, row in zip(["", *names], [names, *cells], strict=True):
            lines.append("  ".join(text.rjust(width) for text in [name, *row]))
        return "\n".join(lines)


class Evaluator:
    """An evaluation in the making: update with batches, merge with others, read the result.

    `loss` is whatever `decisions.loss_matrix` takes, None: every mistake costs 1. Without `ranks`
    the AUC is NaN; what it needs may take `room` bytes.

    Examples
    --------
    >>> evaluator = Evaluator(["no", "yes"])
    >>> evaluator.update([[0.75, 0.25], [0.5, 0.5]], [0, 1])
    >>> evaluator.result().accuracy
    0.5
    """

    def __init__(
        self,
        classes: ArrayLike,
        *,
        loss: Any = None,
        ranks: bool = True,
        room: float = math.inf,
    ) -> None:
        self._classes = np.asarray(classes)
        n_classes = len(self._classes)
        zero_one = 1.0 - np.eye(n_classes)
        self._zero_one = loss is None
        self._loss = zero_one if loss is None else loss_matrix(loss, self._classes)[0]
        self._weighted = False
        # Sums over rows: log-loss, Brier score, incurred loss, foreseen loss, clipped rows.
        self._sums = np.zeros(5)
        self._confusion = np.zeros((n_classes, n_classes))
        # Per bin of confidence: rows, confidence, right predictions.
        self._bins = np.zeros((3, N_BINS))
        self._ranks, self._ranked, self.room = RocAuc(n_classes, room), ranks, room

    @property
    def n_rows(self) -> float:
        """Rows so far, or the sum of their weights."""
        return float(self._confusion.sum())

    def update(self, proba: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None) -> None:
        """Add (n_rows, n_classes) probabilities, class codes and weights, each 1 by default.

        Raises DataError at a value that is no probability, class or weight; it names the row, and
        adds nothing.
        """
        p, truth, w = self._check(proba, y, weight)
        rows = np.arange(len(p))
        n_classes = len(self._classes)
        p_true = p[rows, truth]
        predicted, confidence = row_argmax(p), row_max(p)
        wrong = predicted != truth
        self._weighted |= weight is not None
        if self._zero_one:
            incurred, foreseen = wrong, 1 - confidence
        else:
            decision = minimum_risk(p, self._loss)
            incurred = self._loss[decision, truth]
            foreseen = conditional_risk(p, self._loss)[rows, decision]
        summands = (
            -np.log(np.maximum(p_true, CLIP)),
            row_sum(p * p) + (1 - 2 * p_true),
            incurred,
            foreseen,
            p_true < CLIP,
        )
        # Not w @ x: BLAS would wake threads of its own, against those that work already.
        self._sums += [np.sum(w * x) for x in summands]
        cells = np.bincount(truth * n_classes + predicted, w, n_classes**2)
        self._confusion += cells.reshape(n_classes, n_classes)
        bins = np.searchsorted(np.arange(1, N_BINS) / N_BINS, confidence, side="right")
        for total, values in zip(self._bins, (1.0, confidence, ~wrong), strict=True):
            total += np.bincount(bins, w * values, N_BINS)
        if self._ranked:
            self._ranks.update(p, truth, w)

    def merge(self, other: Evaluator) -> None:
        """Add the rows that another evaluator has seen, of the same classes and loss."""
        if not np.array_equal(self._classes, other._classes):
            raise DataError("evaluations of different classes do not merge: evaluate both anew")
        if not np.array_equal(self._loss, other._loss):
            raise DataError("evaluations under different losses do not merge: evaluate both anew")
        self._weighted |= other._weighted
        self._sums += other._sums
        self._confusion += other._confusion
        self._bins += other._bins
        self._ranks.merge(other._ranks)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums as named arrays, which `take` adds to another evaluator."""
        sums = {"sums": self._sums, "confusion": self._confusion, "bins": self._bins}
        return {**sums, "weighted": np.array([self._weighted]), **self._ranks.arrays()}

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add the rows of the arrays of an evaluator of the same classes and loss."""
        self._weighted |= bool(arrays["weighted"][0])
        self._sums += arrays["sums"]
        self._confusion += arrays["confusion"]
        self._bins += arrays["bins"]
        self._ranks.take(arrays)

    def result(self, where: str = "") -> Evaluation:
        """Return the figures of all rows so far, a value; DataError where there are none.

        `where` says in the error of what data they are.
        """
        total = self.n_rows
        if not total > 0:
            nothing = "nothing to evaluate: there are no rows, or all weights are zero"
            raise DataError(f"{where}: {nothing}" if where else nothing)
        log_loss, brier, incurred, foreseen = (self._sums[:4] / total).tolist()
        n, confidence, right = self._bins
        mean = np.full((2, N_BINS), np.nan)
        np.divide(self._bins[1:], n, out=mean, where=n > 0)
        bounds = np.arange(N_BINS + 1) / N_BINS
        auc, auc_error = self._ranks.auc()
        return Evaluation(
            classes=self._classes,
            n=self._count(total),
            accuracy=float(np.trace(self._confusion) / total),
            log_loss=log_loss,
            clipped=self._count(self._sums[4]),
            brier=brier,
            auc=auc,
            auc_method="exact" if self._ranks.exact else "histogram",
            auc_error=auc_error,
            calibration=Calibration(bounds[:-1], bounds[1:], self._count(n), mean[0], mean[1]),
            calibration_error=float(np.abs(right - confidence).sum() / total),
            confusion=self._count(self._confusion),
            expected_loss=incurred,
            bayes_risk=foreseen,
        )

    def _count(self, value: Any) -> Any:
        """Return counted rows as integers, as long as no row had a weight."""
        values = np.array(value) if self._weighted else np.array(value).astype(np.int64)
        return values if values.ndim else values.item()

    def _check(
        self, proba: ArrayLike, y: ArrayLike, weight: ArrayLike | None
    ) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
        """Return probabilities, class codes and weights, once they are such."""
        p, n_classes = check_proba(proba), len(self._classes)
        if p.shape[1] != n_classes:
            raise DataError(f"{p.shape[1]} columns of probabilities for {n_classes} classes")
        off = np.abs(row_sum(p) - 1) > 1e-6
        _refuse(off, lambda row: f"the probabilities sum to {p[row].sum()}, not to 1")
        truth = np.asarray(y)
        if truth.shape != (len(p),) or (len(truth) and truth.dtype.kind not in "iu"):
            raise DataError(
                f"class codes must be {len(p)} integers, these are {truth.dtype} of shape "
                f"{truth.shape}"
            )
        strange = (truth < 0) | (truth >= n_classes)
        _refuse(strange, lambda row: f"class code {truth[row]} of {n_classes} classes")
        if weight is None:
            return p, truth.astype(np.intp), np.ones(len(p))
        w = np.asarray(weight, np.float64)
        if w.shape != (len(p),):
            raise DataError(f"{len(p)} rows with weights of shape {w.shape}: give one per row")
        wrong, rule = ~(np.isfinite(w) & (w >= 0)), "a weight must be finite and not negative"
        _refuse(wrong, lambda row: f"weight {w[row]}: {rule}")
        return p, truth.astype(np.intp), w


def _refuse(wrong: NDArray[np.bool_], problem: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"row {row}: {problem(row)}")


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, Calibration):
        return {name: _plain(part) for name, part in vars(value).items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
