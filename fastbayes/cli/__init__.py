"""The command line: results on stdout, log on stderr; exit 0 done, 1 bad data, 2 bad usage."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import click

import fastbayes as fb
from fastbayes.cli import models, statistics, tools
from fastbayes.errors import FastBayesError, FastBayesWarning


class Group(click.Group):
    """Commands whose data errors are one line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn the errors that a user can mend into one line."""
        try:
            return super().invoke(ctx)
        except FastBayesError as error:
            self._fail(ctx, error)
        except (OSError, ValueError, MemoryError) as error:
            if isinstance(error, click.ClickException):
                raise
            self._fail(ctx, error)
        except KeyboardInterrupt:
            click.echo("interrupted; nothing was written", err=True)
            ctx.exit(130)

    @staticmethod
    def _fail(ctx: click.Context, error: Exception) -> None:
        if ctx.params.get("verbose"):
            raise error
        said = str(error) or type(error).__name__
        click.echo(f"error: {' '.join(said.split())}", err=True)
        ctx.exit(1)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fb.__version__, prog_name="fastbayes")
@click.option("-v", "--verbose", is_flag=True, help="Say more, and show the traceback of errors.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no remarks.")
@click.pass_context
def main(ctx: click.Context, verbose: bool, quiet: bool) -> None:
    """Bayesian classifiers at the speed of reading the data.

    DATA is a file, a glob in quotes, a directory or a URI of Parquet, Arrow IPC, CSV, JSON lines
    or ORC.
    """
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("fastbayes").setLevel(level)
    ctx.obj = {"quiet": quiet}

    def say(message: Any, category: Any, *rest: Any, **more: Any) -> None:
        if not quiet:
            click.echo(f"note: {message}", err=True)

    warnings.showwarning = say
    warnings.simplefilter("once", FastBayesWarning)


for command in (*models.COMMANDS, *statistics.COMMANDS, *tools.COMMANDS):
    main.add_command(command)
