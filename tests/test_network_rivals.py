"""What the race of networks says to others, and how it counts: peers themselves are not needed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import alarm, network_rivals
from benchmarks.network_race import asked, gibbs, jags, learning
from benchmarks.network_race.common import Side, as_table, network, rate_lines
from benchmarks.network_race.peers import Peers


def side(seconds: list[float], units: float, *, ours: bool = False) -> Side:
    turns = [{"seconds": s, "units": units} for s in seconds]
    return Side(lambda turn: turns[turn], ours, turns)


def test_jags_model__node_of_two_parents_is_indexed_by_them_in_their_order() -> None:
    lines = jags.model([(), (), (1, 0)]).splitlines()
    assert lines == [
        "model {",
        "  x[1] ~ dcat(p0[])",
        "  x[2] ~ dcat(p1[])",
        "  x[3] ~ dcat(p2[x[2], x[1], ])",
        "}",
    ]


def test_jags_data__first_axis_varies_fastest_and_states_count_from_one() -> None:
    tables = [np.array([0.5, 0.5]), np.array([[0.25, 0.75], [1.0, 0.0]])]
    assert jags.data(tables, {1: 0}).splitlines() == [
        '"p0" <- c(0.5, 0.5)',
        '"p1" <- structure(c(0.25, 1.0, 0.75, 0.0), .Dim = c(2L, 2L))',
        '"x" <- c(NA, 1)',
    ]


def test_jags_data__numbers_are_those_of_the_tables() -> None:
    third = np.array([1 / 3, 2 / 3])
    text = jags.data([third], {}).splitlines()[0].partition("c(")[2].rstrip(")")
    assert [float(word) for word in text.split(", ")] == third.tolist()


def test_jags_commands__monitors_what_is_free_between_burn_in_and_the_marks() -> None:
    lines = jags.commands([0, 2], 70, 5).splitlines()
    at = {line: i for i, line in enumerate(lines) if line != jags.MARK}
    first, last = (i for i, line in enumerate(lines) if line == jags.MARK)
    assert at["update 5, by(0)"] < at["monitor x[1]"] < at["monitor x[3]"] < first
    assert lines[first + 1 : last] == ["update 70, by(0)"]
    assert "monitor x[2]" not in at


def test_jags_traces__each_node_has_its_lines(tmp_path: Path) -> None:
    (tmp_path / "CODAindex.txt").write_text("x[2] 1 3\nx[10] 4 6\n")
    (tmp_path / "CODAchain1.txt").write_text("1 2\n2 1\n3 2\n1 3\n2 3\n3 1\n")
    found = {node: values.tolist() for node, values in jags.traces(tmp_path)}
    assert found == {1: [2, 1, 2], 9: [3, 3, 1]}


def test_description_length__is_what_score_says() -> None:
    codes = alarm.codes(2_000)
    table = as_table(codes, network().states)
    for parents in ({}, alarm.PARENTS):
        graph = type(network())(network().states, parents, _even(parents))
        found = learning.description_length(codes, parents)
        assert found == pytest.approx(graph.score(table), rel=1e-12)


def _even(parents: dict[str, tuple[str, ...]]) -> dict[str, np.ndarray]:
    sizes = alarm.SIZES
    return {
        node: np.full([*(sizes[p] for p in parents.get(node, ())), size], 1 / size)
        for node, size in sizes.items()
    }


def test_error__is_nothing_of_exact_marginals_and_refuses_others() -> None:
    true = gibbs.exact(gibbs.THREE)
    assert true.keys() == alarm.SIZES.keys() - {*gibbs.THREE}
    assert gibbs.error(true, gibbs.THREE) == 0
    off = {name: p + 0.01 for name, p in true.items()}
    assert gibbs.error(off, gibbs.THREE) == pytest.approx(0.01)
    with pytest.raises(AssertionError):
        gibbs.error({name: p[::-1] for name, p in true.items()}, gibbs.THREE)


@pytest.mark.filterwarnings("ignore:these estimates may be wrong")
def test_ours__samples_what_is_asked() -> None:
    options = network_rivals.Options(None, None, Path(), 1, [], [], 0, 0, 0, [])
    samplers = gibbs.samplers(options, gibbs.THREE)
    assert all(name.startswith("fastbayes") for name in samplers)
    turn = samplers["fastbayes, one chain, one thread"](100, 1)
    assert turn["units"] == (100 + gibbs.BURN_IN) * 34


def test_rate_lines__ratio_is_per_unit_within_a_turn() -> None:
    sides = {"fastbayes, a": side([1.0, 4.0, 2.0], 1e6, ours=True), "b": side([3.0, 4.0, 5.0], 10)}
    assert rate_lines("t", sides, "rows")[2:] == [
        "| | rows/s | ours, a |",
        "|---|--:|--:|",
        "| fastbayes, a | 500,000 |  |",
        "| b | 2.5 | 250,000 × as fast |",
        "",
    ]


def test_absent_peers_are_named() -> None:
    options = network_rivals.Options(None, None, Path(), 1, [], [], 0, 0, 0, [])
    said = [*network_rivals.absent(options, None)]
    assert [line.split()[0] for line in said] == ["JAGS", "pyAgrum", "pgmpy"]


def test_peers__answer_and_their_failures_are_ours() -> None:
    with Peers(sys.executable) as peers:
        assert peers.versions == asked.present()
        with pytest.raises(RuntimeError, match="KeyError"):
            peers.ask("nothing of that name")
        assert peers.ask("present") == peers.versions


def test_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        network_rivals.asked_for(["--parts", "gibs"])
    assert "gibs: use gibbs, learn, rows, scan" in capsys.readouterr().err
