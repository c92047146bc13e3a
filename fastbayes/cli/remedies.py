"""Messages of the library, which name parameters of Python, said by the options of a command.

The library has one message for both audiences: it writes a parameter as Python does, `name=value`,
or its name in backticks, with an underscore, or before a colon where a message of columns begins.
Here it becomes the option of that name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import click

from fastbayes.cli.help import leaf

# Texts in quotes are those of the data, and what stands between slashes is a path: both stay.
_TEXT = r"""(?<!\w)(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")(?!\w)"""
_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
_VALUE = rf"True|False|None|{_TEXT}|{_NUMBER}|\[[^\]]*\]|\{{[^}}]*\}}|\([^)]*\)"
_HERE, _END = r"(?<![\w/\\.=-])", r"(?![\w/\\=-]|\.\w)"
PARAMETER = re.compile(
    rf"""(?P<text>{_TEXT})
    |{_HERE}(?P<set>[A-Za-z_]\w*)=(?:(?P<value>{_VALUE}){_END}|(?=[\s;,)]|$))
    |{_HERE}(?P<of>[a-z_]\w*)\[(?P<key>{_TEXT})\]
    |^(?P<head>[a-z]+)(?=:\ (?:there\ is\ )?(?:no\ )?column\b)
    |`(?P<quoted>[A-Za-z_]\w*)`
    |{_HERE}(?P<plain>[a-z]+(?:_[a-z]+)+){_END}""",
    re.VERBOSE,
)


def in_options(message: str) -> str:
    """Return a message in which parameters are the options of the command that is run."""
    ctx = leaf()
    return message if ctx is None else PARAMETER.sub(lambda found: _said(ctx, found), message)


def _said(ctx: click.Context, found: re.Match[str]) -> str:
    whole, value = found[0], found["value"]
    name = found["set"] or found["of"] or found["quoted"] or found["head"] or found["plain"]
    if name is None:
        return whole
    for where, option in _options(ctx, name):
        if value is None or _takes(option, value):
            return where + _written(option, value) + (f" of {found['key']}" if found["key"] else "")
    # Of what only Python can say, a word is an end: it must not look like an option.
    if found["set"] and value is not None and not value[0].isdigit():
        return f"{name} (in Python)" if value == "True" else f"{name} {value} (in Python)"
    return f"{name} of {found['key']} (in Python)" if found["of"] else whole


def _options(ctx: click.Context, name: str) -> Iterator[tuple[str, click.Option]]:
    """Yield the options for a parameter, and how to call those of other commands.

    Those of this command come first, then those of its module: some make the files that it reads.
    """
    root = ctx.find_root()
    others = [("", ctx)]
    if isinstance(root.command, click.Group):
        module = getattr(ctx.command.callback, "__module__", None)
        commands = sorted(
            root.command.commands.items(),
            key=lambda of: getattr(of[1].callback, "__module__", None) != module,
        )
        others += [(f"{n} ", click.Context(c, root, n)) for n, c in commands if c != ctx.command]
    for where, each in others:
        for option in each.command.get_params(each):
            flags = [flag.lstrip("-").replace("-", "_") for flag in option.opts]
            if isinstance(option, click.Option) and name in (option.name, *flags):
                yield where, option


def _takes(option: click.Option, value: str) -> bool:
    """Return whether an option can say a value: one of a word may be given without it for True."""
    if value == "True" and isinstance(option.flag_value, str):
        return True
    return option.is_flag == (value in ("True", "False"))


def _written(option: click.Option, value: str | None) -> str:
    """Return an option with a value as on a command line."""
    flag = max(option.opts, key=len)
    if value is None or value == "True":
        return flag
    if value == "False":
        return max(option.secondary_opts, key=len, default=f"no {flag}")
    if value == "None":
        return f"no {flag}"
    try:  # a number stays as it is written, with its thousands
        return f"{flag} {value if value[-1].isdigit() else _word(ast.literal_eval(value))}"
    except (ValueError, SyntaxError):
        return f"{flag} {value}"


def _of_name(value: Any) -> str:
    """Return what stands after the name of a column: a comma would end it there."""
    return "+".join(map(_word, value)) if isinstance(value, list) else _word(value)


def _word(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, dict):
        pairs = ((_word(name), _of_name(of)) for name, of in value.items())
        return ",".join(f"{name}={said}" for name, said in pairs) or "''"
    if isinstance(value, list | tuple | set):
        return ",".join(map(_word, value)) or "''"
    text = str(value)
    return text if text and not re.search(r"[\s,'\"]", text) else repr(text)
