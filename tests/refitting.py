"""Leave-one-out the slow way: every row is taken out of the data and a model fitted to the rest."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastbayes as fb
from fastbayes.models.joint import cell_gaussians
from fastbayes.models.numeric.conjugate import KEYS, ColumnSpreads, prior_of

TARGET, WEIGHT = "y", "w"


def random_rows(
    seed: int, n: int = 24, *, weights: tuple[float, ...] | None = None, numeric: int = 0
) -> pa.Table:
    """Return rows with missing cells, a class of one row, a value seen once and one seen thrice."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for j, values in enumerate(("ab", "pqr", "stuv")):
        cells = rng.choice(list(values), n)
        columns[f"x{j}"] = pa.array(cells, mask=rng.random(n) < 0.15)
    rare = np.array(["common"] * n, object)
    rare[:3], rare[3] = "thrice", "once"
    columns["rare"] = pa.array(rng.permutation(rare))
    for j in range(numeric):
        numbers = rng.normal(size=n) + rng.integers(0, 3, n)
        columns[f"z{j}"] = pa.array(numbers, mask=rng.random(n) < 0.15)
    labels = rng.choice(["no", "yes"], n).astype(object)
    labels[rng.integers(n)] = "alone"
    columns[TARGET] = pa.array(labels)
    if weights is not None:
        columns[WEIGHT] = pa.array(rng.choice(weights, n))
    return pa.table(columns)


def counted(table: pa.Table, **options: Any) -> fb.Statistics:
    weight = WEIGHT if WEIGHT in table.column_names else None
    return fb.count(table, TARGET, sample_weight=weight, **options)


def fixed(model: Any, stats: fb.Statistics) -> Any:
    """Return a model with these parameters whose structure is the one that all rows give."""
    kind, params = type(model), model.get_params(deep=False)
    if isinstance(model, fb.SPODE):
        params["super_parent"] = kind(**params).fit_statistics(stats).super_parent_
    if isinstance(model, fb.TAN):
        parents = kind(**params).fit_statistics(stats)._parents
        structure = {"_parents": parents, "information_": None}
        kind = type(kind.__name__, (kind,), {"_structure": lambda *_: structure})
    if isinstance(model, fb.AODE):
        whole = kind(**params).fit_statistics(stats)
        implied, names = whole._implied, stats.schema.names
        params["weights"] = dict(zip(names, whole.super_parent_weights_, strict=True))
        read = kind._read
        kind = type("AODE", (kind,), {"_read": lambda *a: read(*a) | {"_implied": implied}})
    if isinstance(model, fb.GaussianBayes) and model.prior is not None:
        whole = kind(**params).fit_statistics(stats)
        told = whole._rule(stats), whole._sums(stats)
        prior = prior_of(model.prior, told[1], told[0])
        params["prior"] = {name: getattr(prior, name) for name in KEYS}
    if params.get("alpha") == "loo":
        params["alpha"] = type(model)(**params).fit_statistics(stats).alpha_
    if params.get("tau") == "loo":
        params["tau"] = type(model)(**params).fit_statistics(stats).tau_
    return kind(**params)


def students_prior(model: Any, stats: fb.Statistics) -> ColumnSpreads:
    """Return what all rows say of the columns of Student's t, which is their prior."""
    places = list(
        type(model)(**model.get_params()).fit_statistics(stats)._densities.students.places
    )
    moments = stats.moments.arrays()
    return ColumnSpreads.of(
        *(moments[name][places] for name in ("count", "mean", "rest", "scatter"))
    )


def refitted(model: Any, table: pa.Table, **options: Any) -> NDArray[np.float64]:
    """Return the posterior of each row by a model fitted to the others, in the schema of all."""
    stats = counted(table, **options)
    model, schema = fixed(model, stats), stats.schema
    told = {
        **options,
        "domains": {f.name: f.values for f in schema.categorical if f.cuts is None},
        "discretize": {f.name: f.cuts for f in schema.features if f.cuts is not None},
    }
    told["domains"][TARGET] = schema.classes
    found = []
    same = nullcontext()
    if isinstance(model, fb.JointGaussian) and model.density == "student":
        # The prior of all rows stays, as leave-one-out says.
        prior = type(model)(**model.get_params()).fit_statistics(stats)._mixture.gaussians.prior
        same = patch.object(cell_gaussians, "prior_of", return_value=prior)
    if isinstance(model, fb.NaiveBayes) and model.numeric != "gaussian":
        same = patch.object(ColumnSpreads, "of", return_value=students_prior(model, stats))
    for r in range(table.num_rows):
        weight = np.ones(table.num_rows)
        if WEIGHT in table.column_names:
            weight = table[WEIGHT].to_numpy().copy()
        weight[r] -= min(weight[r], 1)
        rest = table.drop_columns(list({WEIGHT} & {*table.column_names}))
        rest = rest.append_column(WEIGHT, pa.array(weight)).filter(pa.array(weight > 0))
        row = table.select(schema.names).slice(r, 1)
        with same:
            found.append(model.fit_statistics(counted(rest, **told)).predict_proba(row))
    return np.concatenate(found)
