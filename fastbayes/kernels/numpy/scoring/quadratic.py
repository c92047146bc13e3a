"""Scoring of normal and Student t densities in numpy: the twin of `compiled.quadratic`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.kernels.shared.arrays import Floats
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.kernels.shared.quadratic import (
    Flags,
    Marginal,
    Quadratics,
    features_used,
    kept,
    known_part,
    patterns,
    tie_of,
)


class QuadraticScorer(JointScorer):
    """Log joints, posteriors and predictions of normal or t densities; immutable, thread-safe.

    Parameters
    ----------
    log_prior, mean, rest, whiten, level, dof
        Densities of rows without missing values, as of `shared.quadratic.Quadratics`.
    marginal
        For a row with missing values (NaN): a function of (p,) bool, what is known, that gives
        mean, rest, whiten, level and dof of the known features alone.

    Notes
    -----
    log joint = log_prior + level - ½ |z|², or with dof ν: log_prior + level - ½ (ν + p_c) ln(1 +
    |z|² / ν); z = whiten (x - mean - rest), p_c the nonzero rows of whiten. A row that knows
    nothing gets the prior.

    Numbers of any size are compared. A log joint less than the least float is the least float;
    posteriors and classes come from differences between the classes, which are computed where
    squares would overflow and, with a shared matrix, where they would round them away.
    """

    def __init__(
        self,
        log_prior: Floats,
        mean: Floats,
        rest: Floats,
        whiten: Floats,
        level: Floats,
        dof: Floats | None,
        marginal: Marginal,
    ) -> None:
        whole = Quadratics(log_prior, mean, rest, whiten, level, dof)
        self._used = features_used(whole.whiten)
        self._whole = whole.only(self._used)
        self._n_features = whole.mean.shape[1]
        self._marginal = marginal
        self._known = lru_cache(kept(len(whole.start), len(self._used)))(self._pattern)
        super().__init__(whole.log_prior, tie_of(whole))

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c) + ln p(x | c) of every row and class into `out` (n_rows, n_classes)."""
        self._write(numeric, False, out)

    def _compared(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        self._write(numeric, True, out)

    def _write(self, numeric: Sequence[Floats], relative: bool, out: Floats) -> None:
        x = np.empty((len(out), len(self._used)))
        for i, j in enumerate(self._used.tolist()):
            x[:, i] = numeric[j]
        missing = np.isnan(x)
        some = missing.any(axis=1)
        out[~some] = self._whole.joint(x[~some], relative)
        incomplete = np.flatnonzero(some)
        for known, which in self._grouped(missing[incomplete]):
            rows = incomplete[which]
            out[rows] = self._known(known.tobytes()).joint(x[np.ix_(rows, known)], relative)

    def _grouped(self, missing: Flags) -> Iterator[tuple[Flags, NDArray[np.intp]]]:
        packed = np.packbits(missing, axis=1)
        words = np.zeros((len(missing), -(-packed.shape[1] // 8) * 8), np.uint8)
        words[:, : packed.shape[1]] = packed
        order, starts = patterns(words.view(np.uint64).T)
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield ~missing[order[begin]], order[begin:end]

    def _pattern(self, known: bytes) -> Quadratics:
        return known_part(self._marginal, self._log_prior, self._used, self._n_features, known)
