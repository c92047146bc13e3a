"""KDB: each feature depends on the class and on up to k others."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastbayes.core.batch import Batch
from fastbayes.core.errors import DataError, MemoryLimitError, SchemaError
from fastbayes.models.discrete.as_network import AsNetwork
from fastbayes.models.discrete.families import (
    Family,
    FamilyTables,
    from_pairs,
    k_dependent,
    no_pairs,
)
from fastbayes.models.discrete.hierarchical import backed_off, check_smoothing
from fastbayes.models.discrete.one_dependence import (
    OneDependence,
    by_chain_rule,
    check_all_pairs,
    code_rows,
)
from fastbayes.models.discrete.selective import (
    CRITERIA,
    check_rereadable,
    network_losses,
    reduced,
)
from fastbayes.models.discrete.streaming import information_in_runs
from fastbayes.models.discrete.tan import dependence
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.count_tables import CountTables
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import fitted, parameter, whole
from fastbayes.models.estimator.sampling import drawn_codes
from fastbayes.networks.infer.scorer import Network, NetworkScorer
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import numbered

logger = logging.getLogger("fastbayes")


class KDB(AsNetwork, OneDependence):
    """k-dependence Bayes: each feature depends on the class and on up to k other features.

    Notes
    -----
    Features are taken by falling I(X_j; C); the parents of each are the k before it of largest
    I(X_i; X_j | C), from unsmoothed counts of the rows where both are known, ties by name.
    P(c, x) = P(c) prod_j P(x_j | parents, c), with P(x_j | parents, c) = (n(c, parents, x_j) +
    alpha) / (n(c, parents, j known) + S_j alpha). `fit` takes two scans, one of pairs, which tells
    the structure, and one of families; with k <= 1 the first says it all. Where the counts of all
    pairs exceed the memory limit, some are counted in each of several scans. `partial_fit` keeps
    the structure of the first batch, so that counts add up: its result is that of `fit` where the
    structure is. `fit_statistics` takes the structure from the families that were counted, in
    their order and with at most k parents each; `families` says which to count. Memory is 8 K
    times the sum of the products of S over families.

    Selection scores the (k + 1) times m nested structures of each row at once (Martínez et al.
    2016), counts less the row itself, in a time of k m K; of equal losses the fewest parents, then
    the fewest features win. Where a parent is missing, those before it are the parents there.

    With "hdp" each P(x | p_1 ... p_d, c) = (t_x + a_d P(x | p_1 ... p_(d-1), c)) / (t + a_d), down
    to P(x | c) and P(x): t are the counts where all parents are given, and above these how many
    rows below were drawn from that distribution rather than repeated, on average. The a are those
    of largest likelihood. Both are found in turn until they settle: no sampling, so that equal
    counts give equal numbers. Rows whose later parents are missing count where the others are.

    A hidden parent is summed out exactly, by eliminating one feature after the other; a row for
    which that takes a table of more than 16 million numbers is an error.

    References
    ----------
    Sahami (1996), Learning limited dependence Bayesian classifiers, KDD, section 3. Martínez,
    Webb, Chen, Zaidi (2016), Scalable learning of Bayesian network classifiers, Journal of Machine
    Learning Research 17, 44. Petitjean, Buntine, Webb, Zaidi (2018), Accurate parameter estimation
    for Bayesian network classifiers using hierarchical Dirichlet processes, Machine Learning 107
    ("hdp").

    Examples
    --------
    >>> import fastbayes as fb
    >>> table = {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"], "y": ["n", "p", "p", "n"]}
    >>> model = fb.KDB(k=1).fit(table, "y")
    >>> model.parents_
    {'a': (), 'b': ('a',)}
    >>> model.predict({"a": ["0", "1"], "b": ["1", "1"]})
    array(['p', 'n'], dtype='<U1')
    """

    k: int = parameter(
        "Most parents of a feature beside the class: 0 is naive Bayes.",
        default=2,
        kw_only=False,
        check=whole(0),
    )
    select: str | None = parameter(
        """
        None, or "leave_one_out": `fit` takes one more scan to choose, among all structures of the
        first features and of at most k parents, the one that predicts each row best by the counts
        of the others. `fit_statistics` has no rows to choose by: it takes what was counted.
        """,
        default=None,
        choices=(None, "leave_one_out"),
    )
    criterion: str = parameter(
        """
        What is least in the best structure: "log_loss", or "error", the share of rows whose most
        probable class is another.
        """,
        default="log_loss",
        choices=CRITERIA,
    )
    smoothing: str = parameter(
        """
        "laplace": alpha is added to every count; "hdp": P(x | parents, c) is drawn towards the
        distributions with fewer parents, the last one dropped first, by hierarchical Dirichlet
        distributions whose concentrations are learned; alpha is then the pseudo-count of P(x)
        alone. Selection goes by "laplace" all the same.
        """,
        default="laplace",
        choices=("laplace", "hdp"),
    )
    parents_: dict[str, tuple[str, ...]] = fitted(
        """
        {feature: its parents, the one of most information first}, in the order in which features
        were taken; features that were not selected are left out.
        """
    )
    k_: int = fitted("Most parents that a feature has.")
    n_selected_: int = fitted("Features in the structure.")
    statistics_: Any = fitted(
        "The `Statistics` that every parameter is read from; their families are the structure."
    )
    _cells: FamilyTables = fitted()
    _network: Network = fitted()

    _statistics: ClassVar[tuple[str, ...]] = ("values", "families")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_smoothing(self.smoothing, self.alpha)

    # -- learning ------------------------------------------------------------------------------

    def families(self, stats: Statistics) -> list[tuple[str, ...]]:
        """Return the families that the structure needs, for `fastbayes.count` to count.

        Parameters
        ----------
        stats
            Statistics with counts of all pairs.

        Returns
        -------
        list of tuple
            For each feature in the order of the structure: its parents and itself, by name.

        Examples
        --------
        >>> import fastbayes as fb
        >>> table = {"a": [True, False], "b": [True, False], "y": ["n", "p"]}
        >>> pairs = fb.count(table, "y", pairs=True)
        >>> fb.KDB(k=1).families(pairs)
        [('a',), ('a', 'b')]
        """
        self._check_parameters()
        names = stats.schema.names
        return [tuple(names[j] for j in family) for family in self._structure(stats)]

    def _structure(self, stats: Statistics) -> list[Family]:
        check_all_pairs(stats)
        pairs = stats.pairs if self.k else no_pairs(stats)
        cells = CountTables(stats.values, pairs, missing=self.missing, unseen=self.unseen)
        return k_dependent(cells, stats.schema.names, int(self.k))

    def _scanned(self, scans: Scans) -> Statistics:
        if not scans.first:
            names = self.schema_.names
            known = [tuple(names[j] for j in f) for f in self.statistics_.families.families]
            # An encoder numbers the columns as they stand in the source.
            here = [feature.name for feature, _ in scans.learning(cuts=scans.cuts).features]
            return self._families(scans, numbered(known, here))
        if self.k > 1 and not scans.source.rereadable:
            raise SchemaError(
                f"{scans.source.description} can be read only once, but KDB(k={self.k}) takes two "
                "scans, one for its structure: pass a table or a path"
            )
        if self.select is not None:
            check_rereadable(self, scans)
        try:
            found = scans.count(self, {"values": {}, "pairs": {}} if self.k else {"values": {}})
            families = self._structure(found)
            counted = from_pairs(found, families) if self.k <= 1 else None
        except MemoryLimitError as error:
            if not scans.source.rereadable:
                raise
            logger.info("%s; the structure is found in several scans", error)
            found, cells, information, _ = information_in_runs(self, scans, dependence)
            families = k_dependent(cells, found.schema.names, int(self.k), information)
            counted = None
        if counted is None:
            counted = self._families(scans, families, found)
            if counted.values != found.values:
                raise DataError(f"{scans.source.description} changed while it was read; fit again")
        return counted if self.select is None else self._selected(scans, counted)

    def _families(
        self, scans: Scans, families: list[Family], known: Statistics | None = None
    ) -> Statistics:
        wanted = {"values": {}, "families": {"families": families}}
        return scans.count(self, wanted, None if known is None else known.schema)

    def _selected(self, scans: Scans, stats: Statistics) -> Statistics:
        """Return the counts of the best of the nested structures."""
        if not stats.n_rows:
            return stats
        cells, prior = self._cells_of(stats), self._prior_of(stats)
        losses = network_losses(self, scans, stats, cells, prior)
        k, n_features = losses.best(self.criterion, 1)
        logger.info(
            "selected k=%d and %d of %d features: %s %.6g by leave-one-out",
            *(k, n_features, len(cells.families), self.criterion),
            getattr(losses, self.criterion)[k, n_features],
        )
        return reduced(stats, k, n_features)

    def _suited(self, stats: Any) -> Statistics:
        stats = super()._suited(stats)
        if "families" in stats.parts:
            return stats
        if self.k == 0 or ("pairs" in stats.parts and self.k == 1):
            return from_pairs(stats, self._structure(stats))
        how = "count pairs=True for the structure, then again" * ("pairs" not in stats.parts)
        raise SchemaError(
            f"the statistics hold no families, which KDB(k={self.k}) needs: {how or 'count again'} "
            "with families=model.families(statistics)"
        )

    def _cells_of(self, stats: Statistics) -> FamilyTables:
        return FamilyTables(stats, int(self.k), missing=self.missing, unseen=self.unseen)

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found, smoothing, names = super()._read(stats), self._smoothing(), stats.schema.names
        cells: FamilyTables = found["_cells"]
        tables = []
        for q, (*parents, j) in enumerate(cells.families):
            if self.smoothing == "hdp":
                totals = [cells.counts(q, depth) for depth in range(len(parents) + 1)]
                tables.append(backed_off(totals, cells, j, smoothing.alpha))
            else:
                tables.append(cells.table(q, smoothing))
        states = cells.choices.astype(np.int64)
        hidden = [~cells.shown(j) for j in range(len(names))]
        above = {names[j]: tuple(names[p] for p in up) for *up, j in cells.families}
        return found | {
            "parents_": above,
            "k_": max(map(len, above.values()), default=0),
            "n_selected_": len(above),
            "_network": Network(cells.families, tables, hidden, states, names),
        }

    # -- answers -------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Free parameters: K - 1, and K (S_j - 1) times the values of the parents of each j."""
        self._check_fitted()
        sizes, k = self._cells.choices.astype(np.int64).tolist(), len(self.classes_)
        each = [
            math.prod(sizes[p] for p in parents) * max(sizes[j] - 1, 0)
            for *parents, j in self._cells.families
        ]
        return k - 1 + k * sum(each)

    def _dependencies(self) -> dict[str, tuple[str, ...]]:
        return self.parents_

    def _log_tables(self) -> Iterator[tuple[str, Floats]]:
        network, names = self._network, self.schema_.names
        for family, table in zip(network.families, network.tables, strict=True):
            yield names[family[-1]], table

    def _scorer(self, cells: float) -> Any:
        return NetworkScorer(self.class_log_prior_, self._network, self.precision, cells)

    def _contributions(self, batch: Batch, out: Floats) -> None:
        """Write ln P(x_j | parents, c); where a parent is not observed, by the chain rule.

        In such rows a feature gets what its value adds to ln P(the features before it | c).
        """
        cells, network = self._cells, self._network
        codes = code_rows(batch, cells.offsets) - cells.offsets[:-1, None]
        out[:] = 0.0
        for family, table in zip(network.families, network.tables, strict=True):
            out[:, family[-1]] = table[tuple(codes[j] for j in family)]
        rows = np.flatnonzero(network.rows(batch.codes, batch.n_rows))
        if len(rows):
            scorer = NetworkScorer(np.zeros(cells.n_classes), network, "exact", 0)
            order = [family[-1] for family in network.families]
            out[rows] = by_chain_rule(scorer, order, codes[:, rows], cells)

    def _drawn_codes(
        self, codes: NDArray[np.intp], random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Draw features in the order of the structure; those that are in no family are missing."""
        cells, network = self._cells, self._network
        drawn = np.broadcast_to(cells.sizes[:, None], (len(cells.sizes), len(codes))).copy()
        for (*parents, j), table in zip(network.families, network.tables, strict=True):
            if states := int(cells.choices[j]):
                given = table[tuple(drawn[p] for p in parents)] if parents else table[None]
                rows = np.arange(len(codes)) if parents else 0
                drawn[j] = drawn_codes(np.exp(given[rows, :states, codes]), random)
        return list(drawn)
