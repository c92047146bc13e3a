"""Networks with names that are hard to write, and what goes wrong in files."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from fastbayes.core.errors import FileFormatError
from fastbayes.networks.network import BayesianNetwork

# What a quoting rule may stumble on.
HARD = [
    "", " ", "a b", "tab\there", "two\nlines", "\r", "a,b", "(x)", "{x}", "[0,1)", "a;b", "a|b",
    'say "no"', "back\\slash", '\\"', "\\", "//", "/*", "*/", "a/b", "a//b", "/*x*/", "<1", ">=10",
    "-1", "+2.50", "0", "007", "1e5", "nan", "table", "default", "property", "probability", "é",
    "日本", "\ufeff", "\u00a0", "\u2028", "&amp;", "<b>", "]]>", "'", "%", "=", "_", "--",
]  # fmt: skip
names = st.sampled_from(HARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def networks(draw: Any, text: st.SearchStrategy[str] = names) -> BayesianNetwork:
    """Draw a network of a few nodes; probabilities have all their digits."""
    nodes = draw(st.lists(text, min_size=1, max_size=5, unique=True))
    states = {n: draw(st.lists(text, min_size=1, max_size=3, unique=True)) for n in nodes}
    order = draw(st.permutations(nodes))
    parents = {
        node: draw(st.lists(st.sampled_from(order[:i]), max_size=3, unique=True)) if i else []
        for i, node in enumerate(order)
    }
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    tables = {}
    for node in nodes:
        shape = [len(states[n]) for n in (*parents[node], node)]
        table = random.gamma(0.2, size=shape) + 1e-300
        tables[node] = table / table.sum(axis=-1, keepdims=True)
    return BayesianNetwork(states, parents, tables)


def check_posteriors(shared_data: Path, name: str, suffix: str, folder: Path) -> None:
    """Hold what a file says against recorded posteriors, and the file written again, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = BayesianNetwork.read_bif(shared_data / "bif" / f"{name}.bif")
    again = folder / f"{name}{suffix}"
    network.write(again)
    network = BayesianNetwork.read(again)
    with open(shared_data / "exact" / "bn_posteriors.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["network"] == name]
    assert rows
    bound = 1e-7 if name == "sachs" else 1e-12
    for row in rows:
        evidence = json.loads(row["evidence"])
        found = network.query(row["variable"], evidence).probability(
            {row["variable"]: row["state"]}
        )
        assert abs(found - float(row["probability"])) <= bound


def read_file(path: Path, text: str | bytes) -> BayesianNetwork:
    """Return the network of a file of this text."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return BayesianNetwork.read(path)


def refused_file(path: Path, text: str | bytes) -> str:
    """Return what is said of a file of this text behind its name, in a line of no great length."""
    with pytest.raises(FileFormatError) as error:
        read_file(path, text)
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 1000
    assert said.startswith(str(path))
    return said.removeprefix(str(path)).removeprefix(", ")
