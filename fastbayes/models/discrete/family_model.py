"""Models that multiply P(c) by a table P(x_j | parents, c) for each feature."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch, Codes
from fastbayes.core.errors import SchemaError
from fastbayes.core.iteration import slowest
from fastbayes.models.discrete.hierarchical import TOL, backed_off
from fastbayes.models.discrete.one_dependence import OneDependence, by_chain_rule, code_rows
from fastbayes.models.discrete.structure import Family, class_node, tree_dot
from fastbayes.models.estimator.base import Classifier, Scans
from fastbayes.models.estimator.column_table import Distribution
from fastbayes.models.estimator.iterative import Iterative
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.loo_base import LooRows, LooScorer, Without, without
from fastbayes.models.estimator.parameters import fitted
from fastbayes.models.estimator.sampling import drawn_codes, value_codes
from fastbayes.models.estimator.smoothing import CountTables, Smoothing, logs, missing_as_value
from fastbayes.networks.graph.coded import Coded
from fastbayes.networks.infer.inference import joint_posterior
from fastbayes.networks.infer.scorer import ClassNetwork, Network, NetworkScorer
from fastbayes.networks.network import BayesianNetwork
from fastbayes.statistics import FamilyCounts
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE, APART, BELOW

# Numbers of the tables of all families together that are worked out at once.
MOST_AT_ONCE = 1 << 19


def with_families(
    stats: Statistics,
    families: Sequence[Family],
    blocks: Sequence[NDArray[Any]],
    missing: NDArray[np.bool_],
    class_is: Sequence[int] | None = None,
) -> Statistics:
    """Return statistics with families of these counts; in some columns values may be missing."""
    values, shape = stats.values, stats.values.shape
    counts = FamilyCounts(shape, weighted=values.weighted, families=families, class_is=class_is)
    counts.layout = counts.layout.resized(shape.sizes, missing, shape.n_classes)
    none = np.zeros(0, values.counts.dtype)
    counts.flat = np.concatenate([none, *(block.reshape(-1) for block in blocks)])
    parts: dict[str, Any] = {**stats.parts, "families": counts.settled()}
    return replace(stats, parts=parts, folds=(), fold_names=())


def from_pairs(stats: Statistics, families: Sequence[Family]) -> Statistics:
    """Return statistics with families of at most two features, from those of pairs."""
    values, blocks = stats.values, list[NDArray[Any]]()
    missing = np.asarray((values.missing != 0).any(axis=1))
    for *_, j in families:
        first = values.offsets[j]
        blocks.append(values.counts[first : first + values.shape.sizes[j] + missing[j]])
    widths = values.shape.sizes + missing
    pairs = [
        block if len(f) == 1 else _fitting(stats.pairs.block(*f), widths[[*f]].tolist())
        for f, block in zip(families, blocks, strict=True)
    ]
    only: dict[str, Any] = {"values": values}
    return with_families(replace(stats, parts=only), families, pairs, missing)


def _fitting(block: NDArray[Any], widths: Sequence[int]) -> NDArray[Any]:
    """Return the counts of a pair with so many codes of either feature.

    Folds that were added up may have cells for missing values that lie in none of their rows.
    """
    if block.shape[:-1] == tuple(widths):
        return block
    result = np.zeros((*widths, block.shape[-1]), block.dtype)
    both = tuple(slice(min(pair)) for pair in zip(block.shape, widths, strict=False))
    result[both] = block[both]
    return result


class FamilyTables(CountTables):
    """Value and family counts, with S_j + 2 codes per feature: its values, missing, unseen.

    The families of the statistics are the structure, in its order; of the parents of a feature the
    first k are taken, and the others summed over.

    families  parents and feature of each family, parents without a value left out
    class_is  what the class is in each of them, APART or ABOVE
    above     parents of the class, those without a value left out

    Raises SchemaError when a feature has two families, or a parent does not stand before it.
    """

    def __init__(
        self, stats: Statistics, k: int | None = None, *, missing: str, unseen: str
    ) -> None:
        super().__init__(stats.values, missing=missing, unseen=unseen)
        self._counts, names = stats.families, stats.schema.names
        self.families: list[Family] = []
        self.class_is = list[int]()
        self.above: Family = ()
        self._places, self._below = list[int](), -1
        before: set[int] = set()
        for q, (family, part) in enumerate(
            zip(self._counts.families, self._counts.class_is, strict=True)
        ):
            *parents, j = family
            of_class = part == BELOW
            node = "the class" if of_class else f"column {names[j]!r}"
            if self._below >= 0 if of_class else j in before:
                raise SchemaError(f"{node} has two families; a network has one of it")
            known = family if of_class else parents
            if late := [names[p] for p in known if p not in before]:
                of = "the class" if of_class else repr(names[j])
                raise SchemaError(
                    f"column {late[0]!r} is a parent of {of}, but has no family before it"
                )
            if of_class:
                self._below, self.above = q, tuple(p for p in family if self.choices[p])
                continue
            before.add(j)
            self.families.append((*(p for p in parents[:k] if self.choices[p]), j))
            self.class_is.append(part)
            self._places.append(q)
        if under := self._under().intersection(self.above):
            raise SchemaError(f"column {names[min(under)]!r} is both above and below the class")

    def _under(self) -> set[int]:
        """Return the features below the class."""
        found: set[int] = set()
        for (*parents, j), part in zip(self.families, self.class_is, strict=True):
            if part == ABOVE or not found.isdisjoint(parents):
                found.add(j)
        return found

    def over(self) -> set[int]:
        """Return the features above the class."""
        found = {*self.above}
        for *parents, j in reversed(self.families):
            if j in found:
                found.update(parents)
        return found

    def counts(self, q: int, k: int | None = None) -> Floats:
        """Return n(c, parents, x_j) of family q, (S_p + 2, ..., S_j + 2, K), of k parents at most.

        0 where a code is not counted.
        """
        *parents, j = self.families[q]
        return self._laid_out(self._places[q], (*parents[:k], j))

    def class_counts(self) -> Floats:
        """Return n(parents, c) of a class with parents, (S_p + 2, ..., K); 0 if not counted."""
        return self._laid_out(self._below, self.above)

    def _laid_out(self, place: int, kept: Family) -> Floats:
        block = self._counts.group(place)
        if block.ndim > len(kept) + 1:
            features = enumerate(self._counts.features(place))
            block = block.sum(axis=tuple(a for a, f in features if f not in kept))
        sizes = self.sizes[list(kept)].tolist()
        result = np.zeros((*[size + 2 for size in sizes], self.n_classes))
        result[tuple(map(slice, block.shape[:-1]))] = block
        for axis, (f, size) in enumerate(zip(kept, sizes, strict=True)):
            if block.shape[axis] > size and not self.as_value[f]:
                result[(slice(None),) * axis + (size,)] = 0.0
        return result

    def ratio(self, q: int, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + S_j mass) of cells of family q."""
        *parents, j = self.families[q]
        states = self.n_classes if self.class_is[q] == ABOVE else 1
        return self._spread(smoothing, parents, states).ratio(n, total, self.choices[j])

    def class_ratio(self, smoothing: Smoothing, n: Floats, total: Floats) -> Floats:
        """Return (n + mass) / (total + K mass) of cells of the family of the class."""
        return self._spread(smoothing, self.above).ratio(n, total, self.n_classes)

    def _spread(self, smoothing: Smoothing, parents: Sequence[int], states: int = 1) -> Smoothing:
        """Return the rule of each distribution: BDeu spreads its mass over all of them."""
        if smoothing.kind != "bdeu":
            return smoothing
        rule = copy.copy(smoothing)
        rule.m = smoothing.m / max(states * math.prod(self.choices[list(parents)].tolist()), 1.0)
        return rule

    def table(self, q: int, smoothing: Smoothing) -> Floats:
        """Return ln P(x_j | parents, c), or ln P(x_j | parents) for all classes, of family q.

        Shaped as its counts; 0 where x_j is no observation.
        """
        n, j = self.counts(q), self.families[q][-1]
        whole, apart = n.shape, self.class_is[q] == APART
        if apart:
            n = n.sum(axis=-1, keepdims=True)
        table = self.ratio(q, smoothing, n, n.sum(axis=-2, keepdims=True))
        table[..., self.hidden[self.offsets[j] : self.offsets[j + 1]], :] = 1.0
        table = logs(table)
        return np.broadcast_to(table, whole) if apart else table

    def tables(self, smoothing: Smoothing) -> list[Floats]:
        """Return the `table` of each family: all at once where cells are few."""
        every = range(len(self.families))
        cells = sum(math.prod((self.sizes[[*f]] + 2).tolist()) for f in self.families)
        cells *= self.n_classes
        if not 0 < cells <= MOST_AT_ONCE or smoothing.kind == "bdeu" or APART in self.class_is:
            return [self.table(q, smoothing) for q in every]
        counts = [self.counts(q) for q in every]
        # A line is a distribution of a feature; all lines stand one below the other.
        feature = np.array([j for *_, j in self.families])
        lines = np.array([n[..., 0, 0].size for n in counts])
        of_line = np.repeat(feature, lines)
        width = self.sizes[of_line] + 2
        begins = np.cumsum(width) - width
        n = np.concatenate([n.reshape(-1, self.n_classes) for n in counts])
        line = np.repeat(np.arange(len(width)), width)
        total = np.add.reduceat(n, begins)[line]
        table = smoothing.ratio(n, total, self.choices[of_line][line][:, None])
        table[self.hidden[self.offsets[of_line][line] + np.arange(len(line)) - begins[line]]] = 1.0
        parts = np.split(logs(table), np.cumsum(lines * (self.sizes[feature] + 2))[:-1])
        return [part.reshape(n.shape) for part, n in zip(parts, counts, strict=True)]

    def of_class(self, smoothing: Smoothing) -> Floats:
        """Return P(c | parents), (S_p + 2, ..., K)."""
        n = self.class_counts()
        return self.class_ratio(smoothing, n, n.sum(axis=-1, keepdims=True))

    def network(
        self,
        tables: Sequence[Floats],
        names: Sequence[str],
        says: Floats | None = None,
        summed: Sequence[Floats] | None = None,
        says_summed: Floats | None = None,
    ) -> Network:
        """Return the network of tables of the families; `says` is of a class with parents."""
        hidden = np.split(self.hidden, self.offsets[1:])[:-1]
        parts = self.families, tables, hidden, self.choices.astype(np.int64), names
        if says is None:
            return Network(*parts, summed)
        return ClassNetwork(self.above, says, *parts, summed, says_summed)

    def margin(self, tables: Sequence[Floats], of_class: Floats, names: Sequence[str]) -> Floats:
        """Return P(c) of a class with parents, which are summed out of the tables of all families.

        Raises MemoryLimitError when that takes too large a table; the message names its nodes.
        """
        m, states = len(names), self.choices.astype(np.int64)
        parents: list[Family] = [*[()] * m, self.above]
        at: list[Any] = [slice(int(n)) for n in states]
        dense = [np.zeros(0)] * m + [of_class[tuple(at[p] for p in self.above)]]
        above = self.over()
        for family, table in zip(self.families, tables, strict=True):
            if family[-1] in above:
                here = *(at[f] for f in family), 0
                dense[family[-1]], parents[family[-1]] = np.exp(table[here]), family[:-1]
        coded = Coded((*names, "the class"), np.append(states, self.n_classes), parents, dense)
        return joint_posterior(coded, {}, [m])[0]


class AsNetwork(Classifier):
    """A classifier that multiplies P(c) by one P(x_j | parents, c) for each feature.

    A subclass says what each feature depends on (`_dependencies`) and gives the tables
    (`_log_tables`).
    """

    class_log_prior_: Floats = fitted("(n_classes,) nats.")

    def _dependencies(self) -> Mapping[str, Sequence[str]]:
        """Return the parents of each feature besides the class."""
        raise NotImplementedError

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        """Yield each feature and (S_parent + 2, ..., S_j + 2, n_classes) ln P(x_j | parents, c)."""
        raise NotImplementedError

    def to_dot(self) -> str:
        """Return the structure in Graphviz' language.

        Returns
        -------
        str
            A directed graph from the class to every feature, and from feature to feature.
        """
        self._check_fitted()
        return tree_dot(self.schema_.target or "class", self._dependencies())

    def to_network(self) -> BayesianNetwork:
        """Return the model as a Bayesian network of the class and the features.

        Returns
        -------
        BayesianNetwork
            The class is a node with the labels as states; the parents of a feature are the class
            and then its own. Values are states; so are the bins of a column that was cut, as
            text, and None where missing is a value. A column without a value is left out, and so
            is one that was not selected.

        Raises
        ------
        SchemaError
            When a column is numeric: the nodes of a network are discrete.
        """
        self._check_fitted()
        schema, above = self.schema_, self._dependencies()
        target = class_node(schema.target or "class", above)
        for feature in schema.numeric:
            raise SchemaError(
                f"column {feature.name!r} has a density; the nodes of a network are "
                "discrete: name it in `categorical`, or use a model that cuts it into bins"
            )
        as_value = missing_as_value(self.statistics_.values, self.missing)
        states: dict[str, list[Any]] = {target: schema.classes.to_pylist()}
        for feature, more in zip(schema.features, as_value, strict=True):
            assert feature.values is not None
            values = feature.values.to_pylist() if feature.cuts is None else feature.intervals
            states[feature.name] = [*values, None] if more else [*values]
        prior = np.exp(self.class_log_prior_)
        tables: dict[str, Floats] = {target: prior / prior.sum()}
        parents: dict[str, tuple[str, ...]] = {target: ()}
        log_tables = dict(self._log_tables())
        for name in above:
            if states[name]:
                # A parent without a value stands at its code of missing, the first one.
                here = [slice(len(states[n])) if states[n] else 0 for n in (*above[name], name)]
                tables[name] = np.exp(np.moveaxis(log_tables[name], -1, 0)[(slice(None), *here)])
                parents[name] = (target, *(p for p in above[name] if states[p]))
        return BayesianNetwork({node: states[node] for node in parents}, parents, tables)


class FamilyModel(AsNetwork, OneDependence):
    """A network of features below the class: a structure, and a table for each family.

    A subclass learns the structure. It gives the tables of counts of its families (`_cells_of`),
    or reads them itself (`_read`); all that a fitted model answers follows from them.
    """

    _cells: FamilyTables = fitted()
    _rule: Smoothing = fitted()
    _network: Network = fitted()

    # -- learning ------------------------------------------------------------------------------

    def _families(
        self,
        scans: Scans,
        families: Sequence[Family],
        class_is: Sequence[int] | None = None,
        known: Statistics | None = None,
    ) -> Statistics:
        """Return the counts of families; `known` are statistics of the same rows."""
        options = {"families": families} | ({} if class_is is None else {"class_is": class_is})
        schema = known.schema if known is not None else None
        counted = scans.count(self, {"values": {}, "families": options}, schema)
        scans.check_unchanged(known is None or counted.values == known.values)
        return counted

    def _same_families(self, scans: Scans) -> Statistics:
        """Return the counts of the families that the model was fitted to."""
        known, at = self.statistics_.families, scans.places(self.schema_.names)
        families = [tuple(at[j] for j in family) for family in known.families]
        return self._families(scans, families, known.class_is)

    def _tables_of(
        self, cells: FamilyTables, smoothing: Smoothing
    ) -> tuple[list[Floats], dict[str, Any]]:
        """Return ln P(x_j | parents, c) of each family, and attributes that tell how it went."""
        return cells.tables(smoothing), {}

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, rule = super()._read(stats), self._smoothing()
        cells, names = found["_cells"], stats.schema.names
        tables, more = self._tables_of(cells, rule)
        return found | more | {"_rule": rule, "_network": cells.network(tables, names)}

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: S_j - 1 times the joint values of the parents of each node."""
        self._check_fitted()
        cells, k = self._cells, len(self.classes_)
        sizes: list[int] = cells.choices.astype(np.int64).tolist()
        each = [
            math.prod(sizes[p] for p in parents)
            * max(sizes[j] - 1, 0)
            * (k if part == ABOVE else 1)
            for (*parents, j), part in zip(cells.families, cells.class_is, strict=True)
        ]
        return (k - 1) * math.prod(sizes[p] for p in cells.above) + sum(each)

    def _dependencies(self) -> Mapping[str, Sequence[str]]:
        names = self.schema_.names
        return {names[j]: tuple(names[p] for p in parents) for *parents, j in self._cells.families}

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        for family, table in zip(self._cells.families, self._network.tables, strict=False):
            yield self.schema_.names[family[-1]], table

    def _value_smoothing(self) -> Smoothing:
        return self._rule

    def _distribution(self, place: int) -> Distribution:
        cells = self._cells
        children = [family[-1] for family in cells.families]
        if place not in children:
            return super()._distribution(place)._replace(note="which the model leaves out")
        q = children.index(place)
        family = cells.families[q]
        shown = tuple(slice(int(cells.choices[j])) for j in family)
        counts = cells.counts(q)[shown].astype(self.statistics_.values.counts.dtype)
        note = "the same in all classes" if cells.class_is[q] == APART else ""
        return Distribution(family[:-1], np.exp(self._network.tables[q][shown]), counts, note)

    def _network_scorer(
        self, log_prior: Floats, network: Network, precision: str, cells: float
    ) -> Any:
        """Return what scores rows by a network like that of the model."""
        return NetworkScorer(log_prior, network, precision, cells)

    def _scorer(self, cells: float) -> Any:
        prior, network = self.class_log_prior_, self._network
        return self._network_scorer(prior, network, self.precision, cells)

    def _likelihood(self) -> Any:
        """Return what scores ln P(x | c)."""
        return self._network_scorer(np.zeros(len(self.classes_)), self._network, "exact", 0)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | parents); where one is not observed, or the class has some, as follows.

        A feature gets what its value adds to ln P(the features before it | c).
        """
        cells, network = self._cells, self._network
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        out[:] = 0.0
        rows = np.arange(batch.n_rows)
        if not cells.above:
            for family, table in zip(network.families, network.tables, strict=True):
                out[:, family[-1]] = table[tuple(codes[j] for j in family)]
            rows = np.flatnonzero(network.rows(batch.codes, batch.n_rows))
        if len(rows):
            order = [family[-1] for family in cells.families]
            out[rows] = by_chain_rule(self._likelihood(), order, codes[:, rows], cells)

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Draw features in the order of the structure, those above the class given what is below.

        Those that are in no family are missing.
        """
        cells, above, before = self._cells, self._cells.over(), list[int]()
        drawn = np.broadcast_to(cells.sizes[:, None], (len(cells.sizes), len(codes))).copy()
        for (*parents, j), table in zip(cells.families, self._network.tables, strict=False):
            if states := int(cells.choices[j]):
                if j in above:
                    drawn[j] = drawn_codes(self._given_class(j, drawn, before, codes), random)
                else:
                    given = np.exp(np.moveaxis(table[..., :states, :], -2, 0))
                    cell = np.ravel_multi_index(
                        (*(drawn[p] for p in parents), codes), given.shape[1:]
                    )
                    drawn[j] = value_codes(given.reshape(states, -1), cell, random)
            before.append(j)
        return list(drawn)

    def _given_class(
        self, j: int, drawn: NDArray[np.int64], before: list[int], codes: NDArray[np.intp]
    ) -> Floats:
        """Return P(x_j | features drawn before, c) up to a factor, (n_rows, S_j)."""
        cells, scorer, every = self._cells, self._likelihood(), np.arange(len(codes))
        partial = np.broadcast_to(cells.gaps[:, None], drawn.shape).astype(np.uint32)
        partial[before] = drawn[before]
        joint = np.empty((len(codes), int(cells.choices[j])))
        out = np.empty((len(codes), cells.n_classes))
        group = Codes(np.arange(len(partial)), partial, cells.sizes + 2)
        for v in range(joint.shape[1]):
            partial[j] = v
            scorer.log_joint([group], (), out)
            joint[:, v] = out[every, codes]
        top = joint.max(axis=1, keepdims=True)
        return np.asarray(np.exp(joint - np.where(np.isneginf(top), 0.0, top)))


class _Together(Without):
    """A rule of smoothing that finds one row less in each total: one that was in another cell."""

    def ratio(self, n: NDArray[Any], total: NDArray[Any], cells: Any) -> Floats:
        """Return (n + mass) / (total - 1 + cells mass); 0/0 is its limit 1/cells."""
        return Smoothing.ratio(self, n, without(total), cells)


class BackOff(FamilyModel, Iterative):
    """A network whose tables may be drawn to those with fewer parents; a subclass says when."""

    # parameters of the models that are one
    smoothing: str = fitted()
    concentration: float = fitted()
    tol: Any = fitted()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.smoothing == "hdp" and self.alpha == "loo":
            raise ValueError(
                "alpha='loo' is chosen for smoothing='laplace'; give a number with 'hdp'"
            )

    def _tables_of(
        self, cells: FamilyTables, smoothing: Smoothing
    ) -> tuple[list[Floats], dict[str, Any]]:
        if self.smoothing != "hdp":
            return super()._tables_of(cells, smoothing)
        tol = TOL if self.tol is None else float(self.tol)
        fits = [
            backed_off(
                [cells.counts(q, depth) for depth in range(len(family))],
                *(cells, family[-1], smoothing.alpha),
                tol=tol,
                max_iter=int(self.max_iter),
                half=float(self.concentration),
            )
            for q, family in enumerate(cells.families)
        ]
        return [table for table, _ in fits], self._went(slowest([fit for _, fit in fits]))


class LooFamilies(LooScorer):
    """A structure of features by the counts without each row.

    A row was counted in a family if all of it is observed: the others, over which hidden parents
    are summed out, are those of all rows. In families in which the class has no part the row is
    missing whatever the class. Where the class has parents, P(c | parents) stands for P(c): the
    row is missing in all classes of its parents' state.

    Raises SchemaError when the class has parents, and P(c) matters: where it was given, or a row
    may be impossible. It is then a sum over tables, all of which the row changes.
    """

    def __init__(self, model: Any) -> None:
        self.cells: FamilyTables = model._cells
        super().__init__(model, self.cells.values.class_counts, model._rule)
        self.precision, self.names = model.precision, model.schema_.names
        self.scorer = model._network_scorer
        options = model.get_params(deep=False)
        given = options.get("super_parent") in self.names or options.get("network") is not None
        learned = ("alpha",) if model.alpha == "loo" else ()
        self.fixed = ("schema", *learned, *(() if given else ("structure",)))
        self.tables = model._network.tables[: len(self.cells.families)]
        if self.cells.above and (model.class_prior is not None or not self.rule.mass(1)):
            names = [self.names[p] for p in self.cells.above]
            raise SchemaError(
                f"the class has parents in the network, {names}: with a class_prior, or without "
                "smoothing, it does not come apart row by row; use k_fold, or alpha > 0 and "
                "class_prior=None"
            )
        self.network = self._network(self.tables, self.rule)

    def _network(self, tables: list[Floats], rule: Smoothing) -> Network:
        """Return the network of some tables; where something is hidden, those of all rows hold."""
        mine = self.cells
        summed = None if tables is self.tables else self.tables
        if not mine.above:
            return mine.network(tables, self.names, summed=summed)
        says, whole = logs(mine.of_class(rule)), logs(mine.of_class(self.rule))
        return mine.network(tables, self.names, says, summed, whole)

    def _scorers(self, cells: float) -> tuple[Any, Any]:
        mine, rule = self.cells, Without(self.rule)
        less = [mine.table(q, rule) for q in range(len(mine.families))]
        others, prior = self.tables, np.zeros(mine.n_classes)
        if APART in mine.class_is or mine.above:
            pairs = zip(mine.class_is, less, others, strict=True)
            others = [own if part == APART else whole for part, own, whole in pairs]
        networks = self._network(others, _Together(self.rule)), self._network(less, rule)
        of_others, own = (self.scorer(prior, n, self.precision, cells) for n in networks)
        return of_others, own

    def _joint(self, rows: LooRows, others: Any, own: Any, out: Floats) -> None:
        super()._joint(rows, others, own, out)
        if not self.cells.above:
            out += self.prior(rows.y, rows.gone)

    def _cell_by_cell(self, rows: LooRows, some: NDArray[np.int64], gone: Floats) -> Floats:
        """Return ln P(x | c), or ln P(x, c) of a class with parents, of rows that weigh `gone`."""
        mine = self.cells
        at = code_rows(rows.batch, mine.offsets)[:, some]
        codes, shown = at - mine.offsets[:-1, None], ~mine.hidden[at]
        taken = gone[:, None] * (rows.y[some][:, None] == np.arange(mine.n_classes))
        total = np.zeros((len(some), mine.n_classes))
        groups = rows.batch.codes
        self.network.add_hidden([g._replace(codes=g.codes[:, some]) for g in groups], total)
        for q, family in enumerate(mine.families):
            whole = np.flatnonzero(shown[[*family]].all(axis=0))
            *above, value = (codes[j, whole] for j in family)
            n, less = mine.counts(q), taken[whole]
            if mine.class_is[q] == APART:
                n, less = n.sum(axis=-1, keepdims=True), gone[whole, None]
            left = without(n[(*above, value)], less)
            together = without(n.sum(axis=-2)[tuple(above)], less)
            total[whole] += logs(mine.ratio(q, self.rule, left, together))
        if mine.above:
            whole = np.flatnonzero(shown[[*mine.above]].all(axis=0))
            n = mine.class_counts()[tuple(codes[j, whole] for j in mine.above)]
            together = without(n.sum(axis=-1), gone[whole])[:, None]
            left = without(n, taken[whole])
            total[whole] += logs(mine.class_ratio(self.rule, left, together))
        return total
