"""Messages of the library say on the command line what its options are called."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from commands import fails

from fastbayes.cli import main
from fastbayes.cli.help import LEAF
from fastbayes.cli.remedies import in_options


@pytest.mark.parametrize(
    ("words", "message", "said"),
    [
        (["fit"], "overwrite it with force=True", "overwrite it with --force"),
        (["fit"], "over memory_limit=20,000,000: less", "over --memory-limit 20,000,000: less"),
        (["fit"], "raise memory_limit", "raise --memory-limit"),
        (["fit"], "name it in `categorical`", "name it in --categorical"),
        (["fit"], "use unseen='ignore', or fit again", "use --unseen ignore, or fit again"),
        (["predict"], "use unseen='ignore'", "use fit --unseen ignore"),
        (["fit"], "columns=[...] selects those", "--columns ... selects those"),
        (["fit"], "columns=[] selects nothing", "--columns '' selects nothing"),
        (["fit"], "categorical=['a b', 'c'] reads", "--categorical 'a b',c reads"),
        (["fit"], "weights={'a': 0.0}: none", "--weights a=0.0: none"),
        (
            ["fit"],
            "name them in dates={'d': ['month', 'hour'], 'e': 'number'}, or",
            "name them in --dates d=month+hour,e=number, or",
        ),
        (["merge"], "with the same columns=", "with the same count --columns"),
        (["merge"], "missing='category'", "count --missing category"),
        (["count"], "their weights (sample_weight)", "their weights (--weight)"),
        (["count"], "count again with numeric='kde'", "count again with --numeric kde"),
        (["predict"], "leave out with proba='all'", "leave out with --proba all"),
        (["predict"], "known; use proba=True", "known; use --proba"),
        (["fit"], "raise `max_iter`, or `tol`", "raise --max-iter, or --tol"),
        (["predict"], "keys: no column 'a' there", "--keys: no column 'a' there"),
        (["fit"], "discretize: there is no column 'a'", "--discretize: there is no column 'a'"),
        (["predict"], "keys: cannot be read", "keys: cannot be read"),
        (["predict"], "with parts=False, one file", "with --no-parts, one file"),
        (["network", "query"], "use method='gibbs'", "use --method gibbs"),
        (["network", "query"], "blocks=True draws", "blocks (in Python) draws"),
        (["count"], "add it to domains['x']", "add it to domains of 'x' (in Python)"),
        (["learning-curve"], "or a smaller test=", "or a smaller --test"),
        # Texts of the data, paths and plain words stay.
        (["fit"], "no column 'force=True' there", "no column 'force=True' there"),
        (["fit"], "/lake/alpha=1/d.parquet: empty", "/lake/alpha=1/d.parquet: empty"),
        (["fit"], "lake/missing=None/x: empty", "lake/missing=None/x: empty"),
        (["fit"], "memory_limit.csv: no rows", "memory_limit.csv: no rows"),
        (["fit"], "the machine's columns=['a'] isn't", "the machine's --columns a isn't"),
        (["fit"], "the columns are missing", "the columns are missing"),
    ],
)
def test_parameters__are_the_options_of_the_command(
    words: list[str], message: str, said: str
) -> None:
    command: click.Command = main
    with click.Context(main) as ctx:
        for word in words:
            assert isinstance(command, click.Group)
            command = command.commands[word]
        ctx.meta[LEAF] = click.Context(command, ctx)
        assert in_options(message) == said
    assert in_options(message) == message


def test_a_message__that_needs_no_option_is_as_it_was() -> None:
    with click.Context(main):
        assert in_options("overwrite it with force=True") == "overwrite it with force=True"


def test_a_cell__whose_columns_are_called_like_options(tmp_path: Path) -> None:
    rows = [f"u{i % 2},{i % 4},{i}.5,{'ab'[i % 2]}" for i in range(16)]
    (tmp_path / "t.csv").write_text("\n".join(["target,threads,num,y", *rows, "zz,0,4,a"]))
    says = fails(
        *("fit", tmp_path / "t.csv", "--target", "y", "--model", "joint-gaussian"),
        *("--categorical", "threads", "--density", "normal", "--backoff", 0),
        *("-o", tmp_path / "m.fb"),
        folder=tmp_path,
    )
    assert "cell {'target': 'zz', 'threads': '0'} of class 'a'" in says
