"""KDB: each feature depends on the class and on up to k others."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

from fastbayes.core.errors import MemoryLimitError, SchemaError
from fastbayes.core.iteration import Convergence
from fastbayes.models.discrete.family_model import BackOff, FamilyTables, from_pairs
from fastbayes.models.discrete.hierarchical import CONCENTRATION, SWEEPS, TOL
from fastbayes.models.discrete.one_dependence import check_all_pairs
from fastbayes.models.discrete.selective import CRITERIA, network_losses, reduced
from fastbayes.models.discrete.structure import Family, information_in_runs, k_dependent
from fastbayes.models.estimator.base import Scans
from fastbayes.models.estimator.log_space import Floats
from fastbayes.models.estimator.parameters import MAX_ITER, fitted, parameter, tolerance, whole
from fastbayes.models.estimator.smoothing import CountTables
from fastbayes.statistics.bundle import Statistics
from fastbayes.statistics.family_counts import ABOVE
from fastbayes.statistics.parts import Wanted

logger = logging.getLogger("fastbayes")


class KDB(BackOff):
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
    rows below were drawn from that distribution rather than repeated, on average. The a are the
    likeliest, under the prior of `concentration`, one level given the others. Both are found in
    turn until they settle: no sampling, so that equal counts give equal numbers. Rows whose later
    parents are missing count where the others are.

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
        "Most parents of a feature besides the class: 0 is naive Bayes.",
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
    concentration: float = CONCENTRATION
    tol: float = tolerance(
        'smoothing="hdp" stops where a sweep moves the logarithm of no concentration by more.', TOL
    )
    max_iter: int = replace(MAX_ITER, default=SWEEPS)
    trace_: Floats = fitted(
        """
        (n_iter_ + 1,) of "hdp" by how much the logarithm of a concentration moved in each sweep,
        of the feature that took most; empty without iteration.
        """
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

    _statistics: ClassVar[tuple[str, ...]] = ("values", "families")
    _at_once = False

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
        pairs = stats.pairs if self.k else None
        cells = CountTables(stats.values, pairs, missing=self.missing, unseen=self.unseen)
        return k_dependent(cells, stats.schema.names, int(self.k))

    def _counted_first(self) -> tuple[str, ...]:
        return ("values", "pairs") if self.k else ("values",)

    def _scanned(self, scans: Scans) -> Statistics:
        if not scans.first:
            return self._same_families(scans)
        if self.k > 1:
            scans.check_rereadable(f"KDB(k={self.k}) takes two scans, one for its structure")
        if self.select is not None:
            scans.check_rereadable(f"KDB(select={self.select!r}) takes one more scan")
        try:
            wanted: Wanted = {name: {} for name in self._counted_first()}
            found = scans.count(self, wanted, fewer=not (self.k and scans.source.rereadable))
            families = self._structure(found)
            counted = from_pairs(found, families) if self.k <= 1 else None
        except MemoryLimitError as error:
            if not scans.source.rereadable:
                raise
            logger.info("%s; the structure is found in several scans", error)
            found, cells, information, _ = information_in_runs(self, scans)
            families = k_dependent(cells, found.schema.names, int(self.k), information)
            counted = None
        if counted is None:
            counted = self._families(scans, families, known=found)
        return counted if self.select is None else self._selected(scans, counted)

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
        if {*stats.families.class_is} - {ABOVE}:
            raise SchemaError(
                "the families are those of a network in which some column does not depend on the "
                "class: NetworkClassifier reads them"
            )
        return FamilyTables(stats, int(self.k), missing=self.missing, unseen=self.unseen)

    def _read(self, stats: Statistics) -> dict[str, Any]:
        found = self._went(Convergence()) | super()._read(stats)
        names = stats.schema.names
        above = {names[j]: tuple(names[p] for p in up) for *up, j in found["_cells"].families}
        return found | {
            "parents_": above,
            "k_": max(map(len, above.values()), default=0),
            "n_selected_": len(above),
        }
