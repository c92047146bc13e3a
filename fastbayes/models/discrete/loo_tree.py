"""Rows scored by SPODE and TAN without them; the structure stays."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.scoring import children_first
from fastbayes.models.discrete.one_dependence import code_rows
from fastbayes.models.estimator.count_tables import Smoothing, logs
from fastbayes.models.estimator.log_space import Floats, log_sum_exp
from fastbayes.models.estimator.loo_base import LooRows, LooScorer, PriorWithout, Without, without

# Numbers of a message at a time, where a feature and its parent are summed out.
MESSAGE = 2**18
Ints = NDArray[np.int64]


class LooTree(LooScorer):
    """A forest of features by the counts without each row.

    A row was counted at an edge if both ends are observed. Where a parent is summed out, the edges
    around it are those of all rows: such rows, too, are scored cell by cell.

    Parameters
    ----------
    model
        A fitted `SPODE` or `TAN`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.cells, self.precision = model._cells, model.precision
        self.rule = Smoothing(alpha=model.alpha_)
        self.parents: Ints = model._parents
        self.tables: list[Floats] = model._tables
        named = model.get_params(deep=False).get("super_parent") in model.schema_.names
        self.fixed = (
            "schema",
            *(["alpha"] if model.alpha == "loo" else []),
            *([] if named else ["structure"]),
        )
        # Parents that are missing in some row.
        holes = (self.cells.values.missing != 0).any(axis=1) & ~self.cells.as_value
        inner = np.unique(self.parents[self.parents >= 0])
        self.holes: list[int] = inner[holes[inner]].tolist()
        self.hidden = [self.cells.hidden[rows] for rows in self.cells.rows]
        self.prior = PriorWithout(
            self.cells.values.class_counts, self.rule, model.class_prior, model.class_log_prior_
        )

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        rule = Without(self.rule)
        less = [
            self.cells.root(j, rule) if p < 0 else self.cells.edge(p, j, rule)
            for j, p in enumerate(self.parents.tolist())
        ]
        scorer, nothing = dispatch.load("factors", cells).TreeScorer, np.zeros(self.cells.n_classes)
        others, own = (
            scorer(nothing, self.parents, tables, self.hidden, self.precision)
            for tables in (self.tables, less)
        )
        return others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        super()._joint(rows, others, own, out)
        if self.holes or rows.gone is not None:
            codes = code_rows(rows.batch, self.cells.offsets) - self.cells.offsets[:-1, None]
            special = np.zeros(len(out), np.bool_) if rows.gone is None else rows.gone < 1
            for p in self.holes:
                special |= self.hidden[p][codes[p]]
            some = np.flatnonzero(special)
            gone = np.ones(len(some)) if rows.gone is None else rows.gone[some]
            y = rows.y[some]
            out[some, y] = self.own_likelihood(codes[:, some], y, gone)
        out += self.prior(rows.y, rows.gone)

    @cached_property
    def _families(self) -> list[tuple[Floats, Floats]]:
        """Counts of each feature below its parent, (S_parent + 2, S_j + 2, K), and their sums."""
        found = []
        for j, p in enumerate(self.parents.tolist()):
            rows = self.cells.rows[j]
            n = self.cells.n[rows][None] if p < 0 else self.cells.family(p, j)
            found.append((n, n.sum(axis=1)))
        return found

    def own_likelihood(self, codes: Ints, y: NDArray[np.intp], gone: Floats) -> Floats:
        """Return ln P(x | class of the row) by the counts without each row, (n_rows,).

        Parameters
        ----------
        codes
            (m, n_rows) codes.
        y
            (n_rows,) classes.
        gone
            (n_rows,) what each row takes out of the counts.
        """
        total = np.zeros(len(y))
        lost = [hidden[column] for hidden, column in zip(self.hidden, codes, strict=True)]
        nowhere = np.zeros(len(y), np.bool_)
        # What the features below say of each state of one that is not observed: (row, state).
        below: dict[int, Floats] = {}
        for j in children_first(self.parents):
            p = int(self.parents[j])
            up = nowhere if p < 0 else lost[p]
            here = np.flatnonzero(~up & ~lost[j])
            if len(here):
                value = codes[p, here] if p >= 0 else 0
                n, known = self._families[j]
                c = y[here]
                left = without(n[value, codes[j, here], c], gone[here])
                ratio = self.rule.ratio(
                    left, without(known[value, c], gone[here]), self.cells.choices[j]
                )
                total[here] += logs(ratio)
            if j in below and len(here := np.flatnonzero(~up & lost[j])):
                value = codes[p, here][:, None] if p >= 0 else np.zeros((len(here), 1), np.int64)
                told = self._message(j, value, codes[j, here], y[here], below[j][here])
                total[here] += told[:, 0]
            if len(here := np.flatnonzero(up)):
                held = below.setdefault(p, np.zeros((len(y), self._states(p))))
                every = np.arange(held.shape[1])[None]
                seen, gap = here[~lost[j][here]], here[lost[j][here]]
                held[seen] += self._message(j, every, codes[j, seen], y[seen], None)
                if j in below:
                    held[gap] += self._message(j, every, codes[j, gap], y[gap], below[j][gap])
        return total

    def _states(self, j: int) -> int:
        # A feature without values takes part with one, its code of missing.
        return max(len(self.hidden[j]) - 2, 1)

    def _message(
        self, j: int, of: Ints, codes: Ints, y: NDArray[np.intp], below: Floats | None
    ) -> Floats:
        """Return ln P(x_j and below | parent, class) for codes `of` of the parent, (rows, of)."""
        table = self.tables[j]
        if below is None:
            return table[of, codes[:, None], y[:, None]]
        states = np.arange(below.shape[1])
        result = np.empty((len(y), of.shape[1]))
        step = max(1, MESSAGE // max(1, of.shape[1] * len(states)))
        for lo in range(0, len(y), step):
            some = slice(lo, lo + step)
            parent = of if len(of) == 1 else of[some]
            joint = table[parent[:, :, None], states, y[some, None, None]] + below[some, None]
            result[some] = log_sum_exp(joint.reshape(-1, len(states))).reshape(-1, of.shape[1])
        return result
