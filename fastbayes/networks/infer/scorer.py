"""Scoring of rows by a network of features under each class; what is hidden is summed out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Codes
from fastbayes.core.errors import MemoryLimitError
from fastbayes.kernels import dispatch
from fastbayes.kernels.shared.arrays import alike
from fastbayes.kernels.shared.codes import indices_of
from fastbayes.kernels.shared.hidden import HiddenCodes
from fastbayes.kernels.shared.posterior import JointScorer
from fastbayes.kernels.shared.scoring import EXACT, largest_term
from fastbayes.networks.graph.coded import Floats, Ints, holding
from fastbayes.networks.infer.inference import Factor, Order, best_order, log_eliminated

Bools = NDArray[np.bool_]
Family = tuple[int, ...]

# Numbers of the largest table that a row may need: 128 MiB.
LARGEST = 1 << 24
# Numbers of a table for several rows at a time: they stay in cache.
CELLS = 1 << 18
# Cells of a table up to which rows are not distinguished by which children are observed.
SMALL = 1 << 10


class Network:
    """Tables of a network of features, and which features of a row must be summed out.

    families  features of each family, parents first, the feature itself last; parents stand in
              families before. A feature in no family is left out
    tables    one per family: (S_1 + 2, ..., S_j + 2, n_classes) ln P(x_j | parents, c). Missing is
              S, unseen S + 1; -inf is a legal entry. 0 where x_j is no observation
    hidden    one per feature: (S_j + 2,) bool, codes that are no observations
    states    (n_features,) a hidden feature is summed out over its codes below this
    names     (n_features,) for messages
    summed    stand for `tables` in families of which something is hidden; None for these
    """

    def __init__(
        self,
        families: Sequence[Family],
        tables: Sequence[Floats],
        hidden: Sequence[Bools],
        states: Ints,
        names: Sequence[str],
        summed: Sequence[Floats] | None = None,
    ) -> None:
        self.families, self.tables = list(families), list(tables)
        self.summed = self.tables if summed is None else list(summed)
        self.hidden, self.states, self.names = list(hidden), states, names
        self.n_features = len(self.hidden)
        self._inner = HiddenCodes(self.hidden, {p for family in families for p in family[:-1]})
        # Families of each feature.
        self._with = holding(enumerate(families))

    def factors(self) -> list[tuple[Family, Floats]]:
        """Return the tables, (joint codes, n_classes), with 0 where a parent is no observation."""
        result = []
        for family, table in zip(self.families, self.tables, strict=True):
            table = table.copy()
            for axis, feature in enumerate(family[:-1]):
                table[(slice(None),) * axis + (self.hidden[feature],)] = 0.0
            result.append((family, table.reshape(-1, table.shape[-1])))
        return result

    def _known(self, batch_codes: Sequence[Codes], n_rows: int) -> Sequence[Codes]:
        return batch_codes

    def rows(self, batch_codes: Sequence[Codes], n_rows: int) -> Bools:
        """Return the rows in which something must be summed out, (n_rows,)."""
        batch_codes = self._known(batch_codes, n_rows)
        found = self._inner.rows(batch_codes, n_rows)
        if not found.any():
            return found
        return np.asarray(self._needed(self._missing(indices_of(batch_codes))).any(axis=0))

    def _missing(self, columns: dict[int, Ints]) -> Bools:
        """Return which features of each row are no observations, (n_features, n_rows)."""
        return np.array([flags[columns[j]] for j, flags in enumerate(self.hidden)])

    def _needed(self, missing: Bools) -> Bools:
        """Return which of them must be summed out: those with something observed below."""
        needed = np.zeros_like(missing)
        for *parents, child in reversed(self.families):
            observed = ~missing[child] | needed[child]
            for parent in parents:
                needed[parent] |= missing[parent] & observed
        return needed

    def add(self, batch_codes: Sequence[Codes], out: Floats) -> None:
        """Add ln P(x | c) of every row and class to `out` (n_rows, n_classes).

        Raises MemoryLimitError when the sum needs a table beyond `LARGEST`.
        """
        batch_codes = self._known(batch_codes, len(out))
        columns = indices_of(batch_codes)
        missing = self._missing(columns)
        for family, table in zip(self.families, self.tables, strict=True):
            whole = np.flatnonzero(~missing[[*family]].any(axis=0))
            out[whole] += table[tuple(columns[feature][whole] for feature in family)]
        self.add_hidden(batch_codes, out)

    def add_hidden(self, batch_codes: Sequence[Codes], out: Floats) -> None:
        """Add what the families of which a parent is hidden say, as `add` does."""
        columns = indices_of(self._known(batch_codes, len(out)))
        missing = self._missing(columns)
        k = out.shape[1]
        for hidden, families, (scopes, order), rows in self._parts(self._needed(missing), missing):
            cells = order.cells * k
            # What a family's own table takes is no more than what is held already.
            if cells > max(LARGEST, *(self.tables[q].size for q in families)):
                names = ", ".join(repr(self.names[h]) for h in hidden)
                raise MemoryLimitError(
                    f"summing out columns {names} takes a table of {cells:,.0f} numbers for a row, "
                    f"over {LARGEST:,}; fill in these values, use missing='category', or fewer "
                    "parents"
                )
            step = max(1, CELLS // int(cells))
            for lo in range(0, len(rows), step):
                some = rows[lo : lo + step]
                factors = [
                    Factor(scope, self._factor(q, scope, columns, some))
                    for q, scope in zip(families, scopes, strict=True)
                ]
                out[some] += log_eliminated(factors, order.nodes)

    def _eliminated(self, hidden: Family, families: Sequence[int]) -> tuple[list[Family], Order]:
        """Return the hidden features of each family, and the order in which to sum them out."""
        scopes = [tuple(sorted(set(self.families[q]).intersection(hidden))) for q in families]
        return scopes, best_order(scopes, {h: int(self.states[h]) for h in hidden}, hidden)

    def _factor(self, q: int, scope: Family, columns: dict[int, Ints], rows: Ints) -> Floats:
        """Return the table of a family as (n_rows or 1, states of hidden ones, n_classes)."""
        family, axes = self.families[q], {h: 1 + i for i, h in enumerate(scope)}
        index = []
        for feature in family:
            shape = [1] * (1 + len(scope))
            here = feature not in axes
            values = columns[feature][rows] if here else np.arange(self.states[feature])
            shape[axes.get(feature, 0)] = -1
            index.append(values.reshape(shape))
        return self.summed[q][tuple(index)]

    def _parts(
        self, needed: Bools, missing: Bools
    ) -> Iterator[tuple[Family, list[int], tuple[list[Family], Order], Ints]]:
        """Yield hidden features that hang together, their families, as `_eliminated`, and rows."""
        label = self._labels(needed, missing)
        observed = np.array([~missing[f[-1]] | needed[f[-1]] for f in self.families])
        # Cells that are summed out, by the first of those that they hang together with: others,
        # which may be nearly all, cost nothing.
        features, at = (label >= 0).nonzero()
        roots = label[features, at]
        order = np.argsort(roots, kind="stable")
        ends = np.flatnonzero(np.diff(roots[order])) + 1
        for some in np.split(order, ends) if len(order) else ():
            nodes, which = np.unique(features[some], return_inverse=True)
            rows, where = np.unique(at[some], return_inverse=True)
            part = np.zeros((len(nodes), len(rows)), np.bool_)
            part[which, where] = True
            for pattern, equal in alike(part):
                hidden, same = tuple(nodes[pattern].tolist()), rows[equal]
                touched = sorted({q for h in hidden for q in self._with[h]})
                says = observed[touched][:, same]
                # A family whose child is not observed has factor 1: as long as nothing becomes
                # large by it, it is taken along where other rows need it.
                families = [q for q, some in zip(touched, says, strict=True) if some.any()]
                if (found := self._eliminated(hidden, families))[1].cells <= SMALL:
                    yield hidden, families, found, same
                    continue
                for chosen, these in alike(says):
                    families = [touched[i] for i in np.flatnonzero(chosen)]
                    yield hidden, families, self._eliminated(hidden, families), same[these]

    def _labels(self, needed: Bools, missing: Bools) -> Ints:
        """Return for each hidden feature the first one that it hangs together with, else -1."""
        none = len(missing)
        label = np.where(needed, np.arange(none)[:, None], none)
        some = {*np.flatnonzero(needed.any(axis=1)).tolist()}
        held = [[j for j in family if j in some] for family in self.families]
        # Where it says something, a family joins those of its features that are hidden.
        joins = [
            (members, ~missing[family[-1]] | needed[family[-1]])
            for members, family in zip(held, self.families, strict=True)
            if len(members) > 1
        ]
        while True:
            before = label.copy()
            for members, says in joins:
                least = np.where(says, label[members].min(axis=0), none)
                for feature in members:
                    np.minimum(label[feature], least, out=label[feature], where=needed[feature])
            if np.array_equal(before, label):
                break
        return np.where(needed, label, -1)


class NetworkScorer:
    """Log joints, posteriors and predictions of a network; immutable, thread-safe.

    log_prior  (n_classes,) nats
    precision  "exact" or "fast", for rows in which no parent is hidden; the others are exact
    cells      cells of the job, on which numpy or compiled kernels are chosen
    shared     positions of families that say the same of all classes: where nothing is hidden, only
               log joints look at them
    """

    def __init__(
        self,
        log_prior: Floats,
        network: Network,
        precision: str,
        cells: float,
        shared: Collection[int] = (),
    ) -> None:
        factors = network.factors()
        sizes = np.array(
            [len(flags) - 2 for flags in network.hidden[: network.n_features]], np.int64
        )
        make = dispatch.load("scoring.factors", cells).FactorScorer
        self._network = network
        self._complete = self._telling = make(log_prior, factors, sizes, precision)
        if shared:
            # A row that no class can have made takes the prior, whatever family says so.
            telling = [
                factor
                for q, factor in enumerate(factors)
                if q not in shared or np.isneginf(factor[1]).any()
            ]
            self._telling = make(log_prior, telling, sizes, precision)
        self._summing = _Summing(log_prior, network)

    @property
    def _tie(self) -> float:
        return max(self._complete._tie, self._summing._tie)

    def _whole(self, method: str) -> Any:
        """Return what gives this answer for rows in which nothing is hidden."""
        return self._complete if method == "log_joint" else self._telling

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        """Write ln P(c, x) of every row and class into `out` (n_rows, n_classes)."""
        self._answer("log_joint", batch_codes, out)

    def posterior(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> int:
        """Write P(c | x) into `out` (n_rows, n_classes); return how many rows took the prior."""
        return self._answer("posterior", batch_codes, out)

    def predict(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: NDArray[np.intp]
    ) -> int:
        """Write the most probable class of every row; return how many rows took the prior."""
        return self._answer("predict", batch_codes, out)

    def _answer(self, method: str, batch_codes: Sequence[Codes], out: NDArray[Any]) -> int:
        hidden = self._network.rows(batch_codes, len(out))
        if not hidden.any():
            return getattr(self._whole(method), method)(batch_codes, (), out) or 0
        lost = 0
        for scorer, rows in ((self._whole(method), ~hidden), (self._summing, hidden)):
            some = np.flatnonzero(rows)
            codes = [group._replace(codes=group.codes[:, some]) for group in batch_codes]
            answer = np.empty((len(some), *out.shape[1:]), out.dtype)
            lost += getattr(scorer, method)(codes, (), answer) or 0
            out[some] = answer
        return lost


class _Summing(JointScorer):
    """Scores rows in which parents are hidden."""

    def __init__(self, log_prior: Floats, network: Network) -> None:
        largest = sum(map(largest_term, [log_prior, *network.tables]))
        largest += sum(map(math.log, network.states[network.states > 0]))
        super().__init__(np.array(log_prior, np.float64), EXACT * largest)
        self._network = network

    def log_joint(
        self, batch_codes: Sequence[Codes], numeric: Sequence[Floats], out: Floats
    ) -> None:
        out[:] = self._log_prior
        self._network.add(batch_codes, out)


class ClassNetwork(Network):
    """Tables of a network of features that knows the parents of the class as well.

    The class is known in every row: it is as a feature below its parents, of one code that is
    always observed, whose table says how the parents speak for each class.

    above        parents of the class
    says         (S_1 + 2, ..., n_classes) ln [P(c | parents) / P(c)]
    says_summed  stands for `says` where a parent of the class is hidden; None for this
    """

    def __init__(
        self,
        above: Family,
        says: Floats,
        families: Sequence[Family],
        tables: Sequence[Floats],
        hidden: Sequence[Bools],
        states: Ints,
        names: Sequence[str],
        summed: Sequence[Floats] | None = None,
        says_summed: Floats | None = None,
    ) -> None:
        self.class_feature = len(hidden)
        table = _as_child(says)
        last = table if says_summed is None else _as_child(says_summed)
        super().__init__(
            [*families, (*above, self.class_feature)],
            [*tables, table],
            [*hidden, np.array([False, True, True])],
            np.append(states, 1),
            [*names, "the class"],
            None if summed is None else [*summed, last],
        )
        self.n_features = self.class_feature

    def factors(self) -> list[tuple[Family, Floats]]:
        """Return the tables; that of the class is one over its parents."""
        *factors, (family, table) = super().factors()
        k = table.shape[-1]
        return [*factors, (family[:-1], np.ascontiguousarray(table.reshape(-1, 3, k)[:, 0]))]

    def _known(self, batch_codes: Sequence[Codes], n_rows: int) -> Sequence[Codes]:
        if any(self.class_feature in group.features for group in batch_codes):
            return batch_codes
        codes = np.zeros((1, n_rows), np.uint8)
        return [*batch_codes, Codes(np.array([self.class_feature]), codes, np.array([3]))]


def _as_child(says: Floats) -> Floats:
    """Return the table of a feature of one code, and of places for no observation."""
    table = np.zeros((*says.shape[:-1], 3, says.shape[-1]))
    table[..., 0, :] = says
    return table
