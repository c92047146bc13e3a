"""Numbers in networks: one rule for columns of them by path and by frame, and bins as evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastbayes as fb
from fastbayes import BayesianNetwork
from fastbayes.core.domains import cut_points, intervals
from fastbayes.core.errors import DataError, SchemaError
from fastbayes.networks.graph.node_states import NodeStates
from fastbayes.networks.search import node_rows
from tests.commands import answer, run

N = 400
EDGES = [("species", "body_mass_g"), ("species", "flipper"), ("species", "sex")]


def penguins(seed: int = 0) -> pa.Table:
    """Return rows like those of the Palmer penguins: whole numbers, fractions, text, holes."""
    random = np.random.default_rng(seed)
    species = random.choice(["Adelie", "Chinstrap", "Gentoo"], N)
    heavy = species == "Gentoo"
    mass = (3700 + 1300 * heavy + random.normal(0, 300, N)).round(-1).astype(np.int64)
    columns = {
        "species": species,
        "body_mass_g": mass,
        "year": random.integers(2007, 2010, N),
        "flipper": (190 + 27 * heavy + random.normal(0, 6, N)).round(1),
        "sex": random.choice(["female", "male"], N),
    }
    holes = {name: random.random(N) < 0.02 for name in ("body_mass_g", "flipper", "sex")}
    return pa.table({n: pa.array(v, mask=holes.get(n)) for n, v in columns.items()})


def _written(write: Callable[[pa.Table, Path], Any], name: str) -> Callable[..., Path]:
    def source(table: pa.Table, folder: Path) -> Path:
        write(table, folder / name)
        return folder / name

    return source


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": _written(pc.write_csv, "t.csv"),
    "parquet": _written(pq.write_table, "t.parquet"),
    "ipc": _written(feather.write_feather, "t.arrow"),
    "arrow": lambda table, _: table,
    "stream": lambda table, _: table.to_reader(max_chunksize=64),
    "narrow": lambda table, _: table.set_column(2, "year", table["year"].cast(pa.uint16())),
    "pandas": lambda table, _: table.to_pandas(),
    "pandas-nullable": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, _: pl.from_arrow(table),
    "lazy": lambda table, _: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "dict": lambda table, _: table.to_pydict(),
}


def as_text(network: BayesianNetwork) -> tuple[Any, ...]:
    """Return a network with its states as text; whole ones without a point, as a file has them."""
    states = {
        n: [str(int(s)) if isinstance(s, float) else str(s) for s in known]
        for n, known in network.states.items()
    }
    return network.parents, states, {n: t.tolist() for n, t in network.tables.items()}


# -- columns of numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("form", SOURCES)
@pytest.mark.parametrize("missing", ["complete", "category"])
def test_sources__give_equal_networks(form: str, missing: str, tmp_path: Path) -> None:
    """SEMANTICS 1: integers are numeric, by path and by frame alike."""
    how: Any = {"discretize": ("quantile", 5), "missing": missing, "restarts": 0}
    wanted = BayesianNetwork.learn(penguins(), **how)
    found = BayesianNetwork.learn(SOURCES[form](penguins(), tmp_path), **how)
    assert found == wanted
    assert "body_mass_g" in [n for edge in found.edges for n in edge]
    assert len([s for s in found.states["body_mass_g"] if s is not None]) == 5
    graph = BayesianNetwork.from_edges(EDGES)
    told: Any = {"discretize": {"body_mass_g": [3500, 4500], "flipper": [200]}}
    again = BayesianNetwork.from_edges(EDGES)
    assert again.fit(SOURCES[form](penguins(), tmp_path), **told) == graph.fit(penguins(), **told)
    assert again.score(SOURCES[form](penguins(), tmp_path)) == graph.score(penguins())


@pytest.mark.parametrize("form", SOURCES)
def test_categorical__makes_states_of_numbers(form: str, tmp_path: Path) -> None:
    """In CSV they are the text that stands there, as for classifiers; answers are the same."""
    how: Any = {"discretize": "quantile", "exclude": "fl*", "restarts": 0}
    wanted = BayesianNetwork.learn(penguins(), categorical=["year"], **how)
    found = BayesianNetwork.learn(SOURCES[form](penguins(), tmp_path), categorical="y*", **how)
    assert found.states["year"] == (("2007", "2008", "2009") if form == "csv" else
                                    (2007, 2008, 2009))  # fmt: skip
    assert as_text(found) == as_text(wanted)
    for year in (2008, 2008.0, np.int32(2008)):
        evidence = {"year": year, "body_mass_g": 4200}
        assert np.array_equal(
            found.query("species", evidence).probabilities,
            wanted.query("species", evidence).probabilities,
        )
    with pytest.raises(ValueError, match=r"node 'year': 2010 is not one of its states \["):
        found.query("species", {"year": 2010})


@pytest.mark.parametrize("form", SOURCES)
def test_numbers__that_nothing_cuts_are_those_of_classifiers(form: str, tmp_path: Path) -> None:
    stats = fb.count(SOURCES[form](penguins(), tmp_path), "species")
    numeric = [feature.name for feature in stats.schema.numeric]
    assert numeric == ["body_mass_g", "year", "flipper"]
    for name in numeric:
        cut = {n: [2008.0] for n in numeric if n != name}
        message = rf"column '{name}' holds numbers;.*`discretize`.*`categorical`"
        with pytest.raises(SchemaError, match=message):
            BayesianNetwork.learn(SOURCES[form](penguins(), tmp_path), discretize=cut)
        with pytest.raises(SchemaError, match=message):
            BayesianNetwork.from_edges([(name, "sex")]).fit(SOURCES[form](penguins(), tmp_path))
    with pytest.raises(SchemaError, match=r"'body_mass_g' holds numbers \(and 2 more columns do\)"):
        BayesianNetwork.learn(SOURCES[form](penguins(), tmp_path))


def test_domains__make_states_of_numbers() -> None:
    years = {"year": [2006, 2007, 2008, 2009]}
    network = BayesianNetwork.learn(penguins().select(["year", "sex"]), domains=years)
    assert network.states["year"] == (2006, 2007, 2008, 2009)
    with pytest.raises(SchemaError, match="column 'year' is categorical"):
        BayesianNetwork.learn(
            penguins().select(["year"]), domains=years, discretize={"year": [2008]}
        )
    with pytest.raises(SchemaError, match="column 'sex' is categorical"):
        BayesianNetwork.learn(penguins().select(["sex"]), discretize={"sex": "width"})


@pytest.mark.parametrize("missing", ["available", "category"])
def test_wide_families__are_read_with_all_options(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """What is said of other columns does not matter where a family is counted apart."""
    options: Any = {
        "discretize": {"body_mass_g": ("quantile", 40), "flipper": ("quantile", 40)},
        "categorical": ["year"],
        "domains": {"sex": ["female", "male", "unknown"]},
        "missing": missing,
    }
    edges = [(n, "sex") for n in ("body_mass_g", "flipper")] + [("year", "species")]
    whole = BayesianNetwork.from_edges(edges).fit(penguins(), **options)
    monkeypatch.setattr(node_rows, "NARROW", 100)
    apart = BayesianNetwork.from_edges(edges)
    apart.fit(penguins(), memory_limit=60_000, threads=1, **options)
    table = apart.tables["sex"]
    assert not isinstance(table, np.ndarray)
    grid = np.ix_(*map(np.arange, table.shape))
    np.testing.assert_allclose(table.gathered(grid), whole.tables["sex"], rtol=1e-12)


def test_fit__keeps_states_and_bins() -> None:
    network = BayesianNetwork.learn(
        penguins(), discretize={"body_mass_g": "width", "flipper": [200.0]}, categorical="year"
    )
    states = dict(network.states)
    other = penguins(1)
    network.fit(other)
    assert network.states == states
    fresh = BayesianNetwork.from_edges(network.edges, nodes=network.nodes)
    cuts = {n: cut_points(states[n]) for n in ("body_mass_g", "flipper")}
    assert fresh.fit(other, discretize=cuts, categorical="year").tables.keys() == states.keys()
    assert all(np.array_equal(t, fresh.tables[n]) for n, t in network.tables.items())
    network.fit(other, discretize={"flipper": [195.0, 210.0]})
    assert network.states["body_mass_g"] == states["body_mass_g"]
    assert network.states["flipper"] == ("(-inf, 195]", "(195, 210]", "(210, inf)")
    network.fit(other, discretize={"year": [2008.0]})
    assert network.states["year"] == ("(-inf, 2008]", "(2008, inf)")
    years = sorted({*other["year"].to_pylist()})
    assert network.fit(other, domains={"year": years}).states["year"] == tuple(years)


# -- numbers as evidence -----------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
cuts_given = st.lists(finite.map(lambda x: x + 0.0), max_size=12, unique=True).map(sorted)


@settings(max_examples=200)
@given(cuts=cuts_given, numbers=st.lists(finite, max_size=20), gap=st.data())
def test_a_number__finds_the_bin_of_a_naive_twin(
    cuts: list[float], numbers: list[float], gap: st.DataObject
) -> None:
    """Bin k is (cuts[k - 1], cuts[k]], the first without a lower and the last without an end."""
    bins = intervals(np.array(cuts, np.float64))
    states: list[Any] = [*bins]
    if (at := gap.draw(st.none() | st.integers(0, len(bins)))) is not None:
        states.insert(at, None)
    known = NodeStates("x", states)
    assert known.cuts is not None
    assert known.cuts.tolist() == cuts
    ends = [-math.inf, *cuts, math.inf]
    for number in [*numbers, *cuts]:
        (wanted,) = (k for k in range(len(bins)) if ends[k] < number <= ends[k + 1])
        assert wanted == np.searchsorted(cuts, number)
        place = states.index(bins[wanted])
        assert known.code(number) == known.code(np.float64(number)) == place
        assert known.code(bins[wanted]) == place
        assert known.code(Fraction(number)) == known.code(Decimal(number)) == place


@pytest.mark.parametrize(
    "states",
    [
        [],
        ["a", "b"],
        ["(-inf, 2]"],
        ["(-inf, 2]", "(3, inf)"],
        ["(2, inf)", "(-inf, 2]"],
        ["(-inf, 3]", "(3, 2]", "(2, inf)"],
        ["(-inf, nan]", "(nan, inf)"],
        ["(-inf, 2.0]", "(2.0, inf)"],
        ["(-inf, x]", "(x, inf)"],
        [1, 2],
        [None, "a"],
    ],
    ids=str,
)
def test_states__that_are_no_bins(states: list[Any]) -> None:
    assert cut_points(states) is None
    with pytest.raises(ValueError, match=r"node 'x': 2\.5 is not one of its states"):
        NodeStates("x", states).code(2.5)


def learned(missing: str = "complete") -> BayesianNetwork:
    return BayesianNetwork.learn(penguins(), discretize="quantile", missing=missing, restarts=0)


def reread(form: str, network: BayesianNetwork, folder: Path) -> BayesianNetwork:
    """Return a network as it comes back from a file."""
    path = folder / f"n{form}"
    if form == ".fb":
        network.save(path)
        return fb.load(path)
    if form:
        network.write(path)
        return BayesianNetwork.read(path)
    return network


@pytest.mark.parametrize("form", ["", ".fb", ".bif", ".xml"])
def test_evidence__by_number_is_that_of_its_bin(form: str, tmp_path: Path) -> None:
    network = reread(form, learned(), tmp_path)
    cuts = cut_points(network.states["body_mass_g"])
    assert cuts is not None
    for number in (0, 3000, cuts[2], np.nextafter(cuts[2], np.inf), 4200.0, np.uint16(4200),
                   np.float32(4200.5), -1e300, 10**15, True):  # fmt: skip
        label = network.states["body_mass_g"][int(np.searchsorted(cuts, float(number)))]
        by_number, by_label = {"body_mass_g": number}, {"body_mass_g": label}
        asked = network.query(["species", "sex"], by_number)
        assert np.array_equal(
            asked.probabilities, network.query(["species", "sex"], by_label).probabilities
        )
        assert network.log_evidence(by_number) == network.log_evidence(by_label)
        assert network.most_probable(by_number) == network.most_probable(by_label)
        assert network.most_probable(by_number)["body_mass_g"] == label
        assert network.marginals(by_number)["year"].probabilities.tolist() == (
            network.marginals(by_label)["year"].probabilities.tolist()
        )
        for method in ("gibbs", "likelihood_weighting"):
            drawn = [
                network.query("species", e, method, draws=100_000, chains=4, seed=1)
                for e in (by_number, by_label)
            ]
            assert np.array_equal(drawn[0].probabilities, drawn[1].probabilities)
        assert network.sample(20, by_number, 1).equals(network.sample(20, by_label, 1))
        back = network.query("body_mass_g")
        assert back.probability(by_number) == back.probability(by_label)
    row = {"species": "Gentoo", "body_mass_g": 4200, "year": 2008, "flipper": 201.5, "sex": "male"}
    assert network.log_joint({**row, "flipper": [201.5, 180]})[0] == pytest.approx(
        network.log_evidence(row), rel=1e-12
    )


@pytest.mark.parametrize("form", ["", ".fb", ".bif"])
def test_rows__of_numbers_and_of_bins_say_the_same(form: str, tmp_path: Path) -> None:
    """Queries are the twin of scores of rows, in which bins may be numbers, or text."""
    network = reread(form, learned(), tmp_path)
    data = penguins(2).slice(0, 40)
    rows = data.drop_columns("species").to_pylist()
    proba = network.predict_proba(data, "species")
    for row, found in zip(rows, proba, strict=True):
        evidence = {n: v for n, v in row.items() if v is not None}
        np.testing.assert_allclose(found, network.query("species", evidence).probabilities)
    drawn = network.sample(300, seed=3)
    pc.write_csv(data, tmp_path / "numbers.csv")
    pc.write_csv(drawn, tmp_path / "bins.csv")
    pq.write_table(drawn, tmp_path / "bins.parquet")
    assert np.array_equal(network.predict_proba(tmp_path / "numbers.csv", "species"), proba)
    codes = {n: [network.states[n].index(v) for v in drawn[n].to_pylist()] for n in network.nodes}
    twin = BayesianNetwork(
        {n: range(len(s)) for n, s in network.states.items()}, network.parents, network.tables
    )
    wanted = twin.log_evidences(codes)
    for source in (drawn, tmp_path / "bins.csv", tmp_path / "bins.parquet", drawn.to_pandas()):
        np.testing.assert_allclose(network.log_evidences(source), wanted, rtol=1e-12)
    states = dict(network.states)
    assert network.fit(drawn).states == states
    assert network.fit(data.append_column("more", data["sex"])).states == states


def test_texts__that_are_no_bins_are_refused_whatever_unseen_does(tmp_path: Path) -> None:
    network = learned()
    for unseen in ("ignore", "error"):
        for rows in (
            {"body_mass_g": [None, "4200"]},
            pd.DataFrame({"body_mass_g": [None, "4200"]}),
        ):
            with pytest.raises(DataError, match=r"'body_mass_g', row 1.*'4200'"):
                network.predict_proba(rows, "species", unseen=unseen)
    (tmp_path / "t.csv").write_text("body_mass_g\n4200\n\nheavy\n")
    with pytest.raises(DataError, match=r"column 'body_mass_g', row 0 of .*: '4200' is neither"):
        network.predict_proba(tmp_path / "t.csv", "species")
    found = network.predict_proba(tmp_path / "t.csv", "species", null_values=["heavy"])
    wanted = network.query("species", {"body_mass_g": 4200}).probabilities
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "None is a missing value; leave out"),
        (math.nan, "nan is a missing value; leave out"),
        (np.float32("nan"), r".*nan.* is a missing value"),
        (math.inf, r"inf is infinite; give a finite number, or one of its bins \['\(-inf"),
        (-math.inf, "-inf is infinite"),
        (Decimal("inf"), "inf is infinite"),
        (10**400, "inf is infinite"),
        ("4200", r"'4200' is neither a number nor one of its bins \['\(-inf"),
        ([4200], r"\[4200\] is neither a number"),
        (1j, "1j is neither a number"),
    ],
    ids=lambda v: str(v)[:12],
)
def test_evidence__that_has_no_bin_is_refused_by_name(value: Any, message: str) -> None:
    network = learned()
    for ask in (network.marginals, network.log_evidence, network.most_probable,
                lambda e: network.sample(3, e)):  # fmt: skip
        with pytest.raises(ValueError, match=f"node 'body_mass_g': {message}"):
            ask({"body_mass_g": value})
    with pytest.raises(ValueError, match=f"node 'body_mass_g': {message}"):
        network.query("body_mass_g").probability({"body_mass_g": value})


def test_evidence__of_categories_is_refused_with_what_is_near() -> None:
    network = learned("category")
    with pytest.raises(ValueError, match=r"'Gento' is not one of .*; did you mean 'Gentoo'\?"):
        network.query("sex", {"species": "Gento"})
    with pytest.raises(ValueError, match="node 'species': None is a missing value"):
        network.query("sex", {"species": None})
    # Where a missing value is a state, it is evidence.
    assert network.query("species", {"body_mass_g": None}).probabilities.sum() == pytest.approx(1)
    thousand = NodeStates("t", [f"s{i}" for i in range(1000)])
    with pytest.raises(ValueError, match=r"'s19', \.\.\. \(1,000 in all\)\]; did you mean"):
        thousand.code("s1000")


@pytest.mark.parametrize(
    ("states", "given", "said"),
    [
        ([0, 1], "1", "write 1, not '1'"),
        ([False, True], "True", "write True, not 'True'"),
        ([False, True], "true", r"did you mean True\?"),
    ],
)
def test_evidence__of_another_type_is_told_the_type(states: Any, given: Any, said: str) -> None:
    network = BayesianNetwork({"k": states}, {}, {"k": [0.5, 0.5]})
    with pytest.raises(ValueError, match=f"is not one of its states .*; {said}$"):
        network.query("k", {"k": given})


def test_classifiers__as_networks_take_numbers() -> None:
    X = penguins(3).drop_columns("species")
    for model in (fb.TAN(), fb.NaiveBayes(numeric="mdl"), fb.NetworkClassifier()):
        network = model.fit(penguins(), "species").to_network()
        np.testing.assert_allclose(
            network.predict_proba(X, "species"), model.predict_proba(X), rtol=1e-9
        )
        asked = network.query("species", {"body_mass_g": 4200, "year": 2009}).probabilities
        row = pa.table({n: pa.nulls(1, X.schema.field(n).type) for n in X.column_names})
        row = row.set_column(0, "body_mass_g", pa.array([4200]))
        row = row.set_column(1, "year", pa.array([2009]))
        np.testing.assert_allclose(asked, model.predict_proba(row)[0], rtol=1e-9)


# -- from a shell ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".fb", ".bif"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_command_line__cuts_numbers_and_takes_them(form: str, suffix: str, tmp_path: Path) -> None:
    data, path = SOURCES[form](penguins(), tmp_path), tmp_path / f"n{suffix}"
    asked = ("network", "learn", data, "-o", path, "--restarts", 0, "--exclude", "fl*")
    said = run(*asked, code=1).stderr
    assert "column 'body_mass_g' holds numbers (and 1 more columns do)" in said
    assert "--discretize" in said
    assert "--categorical" in said
    run(*asked, "--discretize", "quantile:6", "--categorical", "y*")
    network = reread("", BayesianNetwork.learn(
        penguins(), discretize=("quantile", 6), categorical="year", exclude="flipper", restarts=0
    ), tmp_path)  # fmt: skip
    wanted = network.query("species", {"body_mass_g": 4200, "year": 2008})
    query = ("network", "query", path, "-t", "species")
    found = answer(*query, "-e", "body_mass_g=4200", "-e", "year=2008", "--json")
    assert [row["probability"] for row in found["answer"]] == wanted.probabilities.tolist()
    assert str(found["evidence"]["year"]) == "2008"
    bins = network.states["body_mass_g"]
    assert found["evidence"]["body_mass_g"] == bins[NodeStates("", bins).code(4200)]
    again = answer(*query, "-e", f"body_mass_g={bins[0]}", "-e", "year = 2008", "--json")
    assert again["evidence"]["body_mass_g"] == bins[0]
    for wrong, message in (
        ("body_mass_g=heavy", "'body_mass_g': 'heavy' is neither a number nor one of its bins"),
        ("body_mass_g=nan", "'body_mass_g': nan is a missing value"),
        ("body_mass_g=-inf", "'body_mass_g': -inf is infinite"),
        ("year=2010", "node 'year' has no state '2010'"),
        ("body=1", "there is no node 'body'"),
    ):
        assert message in run(*query, "-e", wrong, code=1).stderr
    run("network", "sample", path, "--rows", 5, "-e", "body_mass_g=4200", "-o", tmp_path / "s.csv")
    drawn = pc.read_csv(tmp_path / "s.csv")["body_mass_g"].to_pylist()
    assert {*drawn} == {found["evidence"]["body_mass_g"]}
