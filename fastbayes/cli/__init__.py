"""The command line: results on stdout, log on stderr, exit codes as below."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli import models, network, statistics, tools
from fastbayes.cli.gates import FAILED
from fastbayes.cli.help import Group
from fastbayes.cli.options import OF_STDOUT
from fastbayes.cli.remedies import in_options
from fastbayes.cli.show import remarks
from fastbayes.cli.stopping import Stopped, stoppable
from fastbayes.core.errors import refuse
from fastbayes.core.files import FULL
from fastbayes.core.text_tables import visible

SIGPIPE = 13  # of which Windows has no name

EXIT_CODES = {
    "0": "done",
    "1": "data or files cannot be used; of doctor: something is wrong",
    "2": "wrong usage",
    str(FAILED): "of evaluate: it fails by --fail-if or --baseline",
    "128 + n": "ended by signal n; 141: nobody reads what it prints any more",
}


class Commands(Group):
    """Commands whose failures are one line, with an exit code by their kind."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the exit codes mean, and the examples."""
        with formatter.section("Exit codes"):
            formatter.write_dl([*EXIT_CODES.items()])
        super().format_epilog(ctx, formatter)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments; what --version and --help print may fail as anything else."""
        refuse(
            sys.stdout is None,
            "standard output is closed, and what is printed would be lost; redirect it, to "
            "/dev/null if nobody wants it",
            click.UsageError,
        )
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            _drop_stdout()
            raise click.exceptions.Exit(128 + SIGPIPE) from error
        except OSError as error:
            raise click.ClickException(_said(error)) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn the errors that a user can mend into one line."""
        verbose, quiet = ctx.params["verbose"], ctx.params["quiet"]
        try:
            with stoppable(), remarks(verbose=verbose, quiet=quiet):
                return super().invoke(ctx)
        except Stopped as stop:
            with suppress(OSError):  # the terminal has hung up: nobody reads this
                click.echo("Interrupted: nothing half-written is left.", err=True)
            ctx.exit(stop.exit_code)
        except BrokenPipeError:  # whoever read stdout has seen enough
            _drop_stdout()
            ctx.exit(128 + SIGPIPE)
        except (fb.FastBayesError, OSError, ValueError, MemoryError) as error:
            if verbose:
                raise
            raise click.ClickException(_said(error)) from error
        except click.ClickException as error:
            vars(error)["message"] = visible(in_options(error.message))  # click calls it final
            raise


def _drop_stdout() -> None:
    """Let what waits to be printed go nowhere: nobody reads it any more."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _fails_stdout(error: OSError) -> bool:
    """Return whether an error is that of printing, or of writing predictions to stdout."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    by_echo = frame is not None and frame.tb_frame.f_code is click.echo.__code__
    return by_echo or error.filename == OF_STDOUT


def _said(error: Exception) -> str:
    """Return what an error says, in one line."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror and _fails_stdout(error):
        _drop_stdout()
        said = f"{OF_STDOUT}: {error.strerror.lower()}"
    elif isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if error.errno in FULL:
            said += "; nothing was written: free some space, or name another place"
    elif isinstance(error, MemoryError) and not said:
        said = "out of memory; read fewer --columns, or use fewer --threads"
    return visible(in_options(" ".join(said.split()))) or type(error).__name__


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=[
        "fastbayes fit penguins.csv --target species --null-values NA -o penguins.fb",
        "fastbayes predict penguins.fb penguins.csv -o predicted.csv",
        "fastbayes evaluate penguins.fb penguins.csv",
    ],
)
@click.version_option(fb.__version__, prog_name="fastbayes")
@click.option("-v", "--verbose", is_flag=True, help="Say more, and show the traceback of errors.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no remarks.")
def main(verbose: bool, quiet: bool) -> None:
    """Bayesian classifiers at the speed of reading the data.

    DATA is a file, a glob in quotes, a directory or a URI of Parquet, Arrow IPC, CSV, JSON lines
    or ORC.
    """


for command in (
    *models.COMMANDS,
    *statistics.COMMANDS,
    *network.COMMANDS,
    *tools.COMMANDS,
):
    main.add_command(command)
