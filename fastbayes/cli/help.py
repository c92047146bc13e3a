"""Help: what commands show of themselves, and what they say to a word that they do not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fastbayes.core.suggestions import did_you_mean

GIVEN = "fastbayes.given"  # the words after a command, in the context's `meta`
LEAF = "fastbayes.leaf"  # the context of the command that is run, groups being passed
ALL = "fastbayes.all"  # whether its help shows every option
FEW = 13  # options of which the short help leaves none out


class Option(click.Option):
    """An option that knows whether it is a common one, which the short help shows."""

    def __init__(self, *args: Any, common: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.common = common


COMMON: dict[str, Any] = {"cls": Option, "common": True}


class Documented(click.Command):
    """A command whose help ends with examples, and which guesses what a wrong word stands for."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line in "\n".join(self.examples).splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option or choice is an error that names the nearest."""
        ctx.meta[GIVEN], ctx.meta[LEAF] = [*args], ctx
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flags = [flag for option in self.get_params(ctx) for flag in option.opts]
            hint = did_you_mean(error.option_name, flags) or _all_options(ctx)
            raise click.UsageError(f"no such option {error.option_name}{hint}", ctx) from error
        except click.BadParameter as error:
            if (option := error.param) is not None and isinstance(option.type, click.Choice):
                hint = did_you_mean(given_to(ctx, option), option.type.choices)
                vars(error)["message"] = error.message.rstrip(".") + hint  # click calls it final
            raise


def _all_options(ctx: click.Context) -> str:
    return f"; see {ctx.command_path} --help"


class BriefCommand(Documented):
    """A command; the short help of one with many options shows those alone that are common."""

    everything = "Show all options and exit."

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help=self.everything,
        )
        self.params.append(self.help_all)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are asked for."""
        records = [option.get_help_record(ctx) for option in self.shown(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])

    def shown(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options that the help shows."""
        options = self.get_params(ctx)
        own = [one for one in options if isinstance(one, click.Option) and one != self.help_all]
        if ctx.meta.get(ALL) or len(own) <= FEW:
            return [*own]
        helping = (self.help_all, self.get_help_option(ctx))
        return [one for one in options if getattr(one, "common", False) or one in helping]


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Group(Documented, click.Group):
    """A group of commands, which guesses what a wrong command stands for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; of an unknown one the error names the nearest."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            hint = did_you_mean(name, self.commands) or _all_options(ctx)
            raise click.UsageError(f"no such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def leaf() -> click.Context | None:
    """Return the context of the command that is run; None where none is."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(LEAF)


def given_to(ctx: click.Context, option: click.Parameter) -> Any:
    """Return what was written for an option, also before it is its turn to be read, or None."""
    options, _, _ = ctx.command.make_parser(ctx).parse_args([*ctx.meta.get(GIVEN, ())])
    found = options.get(str(option.name))
    return found if isinstance(found, str) else None
