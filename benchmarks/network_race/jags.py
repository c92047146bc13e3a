"""A discrete Bayesian network for JAGS: its model, its data, a run, and what the draws say."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# A command whose answer, a line, tells when the sweeps begin and when they end.
MARK = "pwd"


class Drawn(NamedTuple):
    """What a run gave.

    seconds    wall time of the sweeps that are retained, compiling and burn-in apart
    marginals  {node: (states,) shares of the sweeps}
    """

    seconds: float
    marginals: dict[int, Floats]


def model(parents: Sequence[Sequence[int]]) -> str:
    """Return the model: node v is x[v + 1], its table p<v>, the node's states along the last axis.

    >>> print(model([(), (0,)]))
    model {
      x[1] ~ dcat(p0[])
      x[2] ~ dcat(p1[x[1], ])
    }
    """
    lines = []
    for v, above in enumerate(parents):
        given = "".join(f"x[{p + 1}], " for p in above)
        lines.append(f"  x[{v + 1}] ~ dcat(p{v}[{given}])")
    return "\n".join(["model {", *lines, "}"])


def data(tables: Sequence[Floats], evidence: Mapping[int, int]) -> str:
    """Return tables and evidence as R would dump them; states count from 1, NA is not observed.

    >>> print(data([np.array([0.25, 0.75])], {}))
    "p0" <- c(0.25, 0.75)
    "x" <- c(NA)
    """
    lines = []
    for v, table in enumerate(tables):
        numbers = ", ".join(map(repr, np.asarray(table, np.float64).ravel(order="F").tolist()))
        shape = ", ".join(f"{n}L" for n in table.shape)
        whole = f"structure(c({numbers}), .Dim = c({shape}))" if table.ndim > 1 else f"c({numbers})"
        lines.append(f'"p{v}" <- {whole}')
    observed = ", ".join(
        f"{evidence[v] + 1}" if v in evidence else "NA" for v in range(len(tables))
    )
    return "\n".join([*lines, f'"x" <- c({observed})'])


def commands(free: Sequence[int], sweeps: int, burn_in: int) -> str:
    """Return what JAGS is told: one chain, all states of all nodes retained."""
    return "\n".join(
        [
            "model in model.txt",
            "data in data.txt",
            "compile",
            "parameters in start.txt",
            "initialize",
            f"update {burn_in}, by(0)",
            *(f"monitor x[{v + 1}]" for v in free),
            MARK,
            f"update {sweeps}, by(0)",
            MARK,
            "coda *",
            "exit",
            "",
        ]
    )


def run(
    command: Sequence[str],
    folder: Path,
    parents: Sequence[Sequence[int]],
    tables: Sequence[Floats],
    evidence: Mapping[int, int],
    sweeps: int,
    *,
    burn_in: int = 100,
    seed: int = 1,
) -> Drawn:
    """Sample in a process of its own.

    Raises RuntimeError with what JAGS said where it did not do so.
    """
    free = [v for v in range(len(tables)) if v not in evidence]
    (folder / "model.txt").write_text(model(parents) + "\n", "ascii")
    (folder / "data.txt").write_text(data(tables, evidence) + "\n", "ascii")
    start = f'".RNG.name" <- "base::Mersenne-Twister"\n".RNG.seed" <- {seed}\n'
    (folder / "start.txt").write_text(start, "ascii")
    (folder / "run.cmd").write_text(commands(free, sweeps, burn_in), "ascii")
    said, marks = [], []
    # Line by line, so that a mark arrives when it is made.
    with subprocess.Popen(
        ["stdbuf", "-oL", *command, "run.cmd"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            if line.strip() == str(folder.resolve()):
                marks.append(time.perf_counter())
    if child.returncode or len(marks) != 2:
        raise RuntimeError(f"JAGS failed: {''.join(said)}")
    draws = dict(traces(folder))
    sizes = {v: tables[v].shape[-1] for v in free}
    found = {v: np.bincount(draws[v], minlength=sizes[v] + 1)[1:] / sweeps for v in free}
    return Drawn(marks[1] - marks[0], found)


def traces(folder: Path) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each monitored node and its states, counted from 1, as JAGS wrote them."""
    # A line of each file: iteration and value; name, first line and last line.
    values = np.fromstring((folder / "CODAchain1.txt").read_text("ascii"), sep=" ")[1::2]
    for line in (folder / "CODAindex.txt").read_text("ascii").splitlines():
        name, first, last = line.split()
        node = int(name.removeprefix("x[").removesuffix("]")) - 1
        yield node, values[int(first) - 1 : int(last)].astype(np.int64)
