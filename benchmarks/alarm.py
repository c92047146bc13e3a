"""A network of the size and shape of ALARM, its tables drawn from a seed, and samples of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Beinlich, Suermondt, Chavez, Cooper (1989): 37 nodes, 46 edges, 509 free parameters.
SIZES = {
    "ANAPHYLAXIS": 2, "ARTCO2": 3, "BP": 3, "CATECHOL": 2, "CO": 3, "CVP": 3, "DISCONNECT": 2,
    "ERRCAUTER": 2, "ERRLOWOUTPUT": 2, "EXPCO2": 4, "FIO2": 2, "HISTORY": 2, "HR": 3, "HRBP": 3,
    "HREKG": 3, "HRSAT": 3, "HYPOVOLEMIA": 2, "INSUFFANESTH": 2, "INTUBATION": 3,
    "KINKEDTUBE": 2, "LVEDVOLUME": 3, "LVFAILURE": 2, "MINVOL": 4, "MINVOLSET": 3, "PAP": 3,
    "PCWP": 3, "PRESS": 4, "PULMEMBOLUS": 2, "PVSAT": 3, "SAO2": 3, "SHUNT": 2,
    "STROKEVOLUME": 3, "TPR": 3, "VENTALV": 4, "VENTLUNG": 4, "VENTMACH": 4, "VENTTUBE": 4,
}  # fmt: skip
PARENTS = {
    "CVP": ("LVEDVOLUME",), "PCWP": ("LVEDVOLUME",), "HISTORY": ("LVFAILURE",),
    "TPR": ("ANAPHYLAXIS",), "BP": ("CO", "TPR"), "CO": ("HR", "STROKEVOLUME"),
    "HRBP": ("ERRLOWOUTPUT", "HR"), "HREKG": ("ERRCAUTER", "HR"), "HRSAT": ("ERRCAUTER", "HR"),
    "PAP": ("PULMEMBOLUS",), "SAO2": ("PVSAT", "SHUNT"),
    "PRESS": ("INTUBATION", "KINKEDTUBE", "VENTTUBE"), "EXPCO2": ("ARTCO2", "VENTLUNG"),
    "MINVOL": ("INTUBATION", "VENTLUNG"), "LVEDVOLUME": ("HYPOVOLEMIA", "LVFAILURE"),
    "STROKEVOLUME": ("HYPOVOLEMIA", "LVFAILURE"),
    "CATECHOL": ("ARTCO2", "INSUFFANESTH", "SAO2", "TPR"), "HR": ("CATECHOL",),
    "SHUNT": ("INTUBATION", "PULMEMBOLUS"), "PVSAT": ("FIO2", "VENTALV"), "ARTCO2": ("VENTALV",),
    "VENTALV": ("INTUBATION", "VENTLUNG"), "VENTLUNG": ("INTUBATION", "KINKEDTUBE", "VENTTUBE"),
    "VENTTUBE": ("DISCONNECT", "VENTMACH"), "VENTMACH": ("MINVOLSET",),
}  # fmt: skip


def tables(seed: int = 1) -> dict[str, NDArray[np.float64]]:
    """Return P(node | parents), (values of parents ..., values), one value mostly likely."""
    random = np.random.default_rng(seed)
    return {
        node: random.dirichlet(np.full(size, 0.4), tuple(SIZES[p] for p in PARENTS.get(node, ())))
        for node, size in SIZES.items()
    }


def codes(rows: int, seed: int = 2) -> dict[str, NDArray[np.uint8]]:
    """Return samples of the network."""
    random, given = np.random.default_rng(seed), tables()
    drawn: dict[str, NDArray[np.uint8]] = {}
    waiting = list(SIZES)
    while waiting:
        node = next(n for n in waiting if drawn.keys() >= {*PARENTS.get(n, ())})
        waiting.remove(node)
        bounds = given[node].cumsum(axis=-1)[..., :-1]
        its = bounds[tuple(drawn[p] for p in PARENTS.get(node, ()))]
        drawn[node] = (random.random(rows)[:, None] >= its).sum(axis=1).astype(np.uint8)
    return {node: drawn[node] for node in SIZES}


def table(rows: int, seed: int = 2) -> pa.Table:
    """Return samples of the network as dictionary columns."""
    return pa.table(
        {
            node: pa.DictionaryArray.from_arrays(
                pa.array(values.astype(np.int32)),
                pa.array([f"state {k}" for k in range(SIZES[node])]),
            )
            for node, values in codes(rows, seed).items()
        }
    )
