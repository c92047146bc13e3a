"""Options: what their values mean, those that commands share, and those models declare."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import signature
from itertools import chain
from typing import Any

import click
from click.core import ParameterSource

import fastbayes as fb
from fastbayes.cli.help import COMMON, BriefCommand, Option, given_to
from fastbayes.core.decisions import loss_matrix
from fastbayes.core.errors import DataError, refuse
from fastbayes.core.files import check_apart, check_target
from fastbayes.core.numbers import is_number
from fastbayes.core.picks import Picks, Selection
from fastbayes.core.suggestions import use_one_of
from fastbayes.data.files import ON_ERROR
from fastbayes.data.filesource import SCHEMA_MODES
from fastbayes.data.paths import local_paths
from fastbayes.data.pipes import Pipe
from fastbayes.models.estimator.parameters import Parameter
from fastbayes.models.registry import by_name, candidates
from fastbayes.networks.search.score import SCORES
from fastbayes.scan.density_spec import KINDS

Reader = Callable[[Any, Any, str | None], Any]

STDIN = STDOUT = "-"
# What messages call it.
OF_STDOUT = "standard output"

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def reader(read: Callable[[str], Any], *words: str) -> Reader:
    """Return the callback of an option that reads its value, if it is given and none of `words`."""
    return lambda _, __, value: value if value is None or value in words else read(value)


@reader
def names(value: str) -> list[str]:
    """Return the texts between commas; one that holds a comma stands in double quotes."""
    try:
        row = next(csv.reader([value], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise click.BadParameter(f"{value!r}: {error}") from error
    return [name.strip() for name in row if name.strip()]


def number(says: str, good: Callable[[float], bool], *words: str) -> Reader:
    """Return what reads a number, or one of some words; of another value an error `says` what."""

    def read(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        refuse(not good(found), f"{value!r} is {says}", click.BadParameter)
        return found

    return reader(read, *words)


class Range(click.FloatRange):
    """A range of numbers; NaN, which compares with no bound, is in none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number that a text says; of NaN, and out of range, an error of usage."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found


pseudo_count = number("neither a number >= 0 nor 'loo'", lambda x: 0 <= x < math.inf, "loo")
share = number("neither a number from 0 to 1 nor 'auto'", lambda x: 0 <= x <= 1, "auto")
strength = number("no number above 0", lambda x: x > 0)


@reader
def n_bytes(value: str) -> int:
    """Return a size such as 500M or 2GiB in bytes."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([KMG]I?|)B?", value.strip().upper())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size; write for example 500M or 2GiB")
    return int(float(found[1]) * UNITS[found[2]])


# Under this name a command holds the file whose cut points it takes.
CUTS_OF = "fastbayes.cuts_of"


@reader
def method(value: str) -> Any:
    """Return how to cut numeric columns: a word, a word and a number of bins, or a file's cuts."""
    if value.endswith((".fb", ".fbs")):
        cuts = {name: points.tolist() for name, points in _cut_points(fb.load(value))}
        if not cuts:
            raise DataError(
                f"{value}: holds no cut points; name a file of columns in bins, as count --pairs, "
                "network learn and fit write"
            )
        click.get_current_context().meta[CUTS_OF] = value
        return cuts
    word, colon, bins = value.partition(":")
    if not colon and word in ("mdl", "quantile", "width"):
        return word
    many = bins.isdecimal() and 2 <= int(bins) <= 1 << 16
    if word not in ("quantile", "width") or not many:
        raise click.BadParameter(
            f"{value!r}: write mdl, quantile, width, quantile:20, or a .fb or .fbs file"
        )
    return word, int(bins)


def _cut_points(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns that statistics, a model or a network cut into bins, and where."""
    if isinstance(held, fb.BayesianNetwork):
        yield from held._cuts.items()
        return
    schema = held.schema if isinstance(held, fb.Statistics) else getattr(held, "schema_", None)
    # What learned from bare arrays has no columns.
    for feature in () if schema is None else schema.features:
        if feature.cuts is not None:
            yield feature.name, feature.cuts


def keep_cuts(options: dict[str, Any]) -> None:
    """Keep of an option `discretize` what it says of the columns that are read, if it is given."""
    if (discretize := options.pop("discretize")) is not None:
        options["discretize"] = of_columns(discretize, options["columns"], options["exclude"])


def of_columns(discretize: Any, columns: Picks, exclude: Picks = None) -> Any:
    """Return what a file says of the columns that are read."""
    taking = Selection.made(columns, exclude)
    if taking is None or not isinstance(discretize, dict):
        return discretize
    return {name: cuts for name, cuts in discretize.items() if name in taking}


def weights(says: str, *words: str) -> Reader:
    """Return what reads the weights of A=2,B=1, or one of some words; without these, any word."""

    def read(value: str) -> str | dict[str, float]:
        if not words and "=" not in value:
            return value
        try:
            return {name: float(weight) for name, weight in _by_name(value)}
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: write {says}") from error

    return reader(read, *words)


super_parents = weights("a number after each =")
class_weight = weights("balanced, or a number after each class as A=2,B=1", "balanced")


@reader
def kinds(value: str) -> str | dict[str, str]:
    """Return the kind of density of all numeric columns, or those of A=kde,B=mdl."""
    found = dict(_by_name(value)) if "=" in value else {"": value}
    for name, kind in found.items():
        where = f"{name}={kind}: " if name else ""
        refuse(
            kind not in KINDS,
            f"{where}{kind!r}: {use_one_of(kind, KINDS)}",
            click.BadParameter,
        )
    return found if "=" in value else value


def _by_name(value: str) -> list[tuple[str, str]]:
    """Return the names and what is said of each in A=2,B=1."""
    pairs = (part.rpartition("=") for part in names(None, None, value))
    return [(name.strip(), said.strip()) for name, _, said in pairs]


@reader
def parts(value: str) -> dict[str, list[str]]:
    """Return the parts of dates and times of A=weekday+hour,B=number."""
    found = {name: said.split("+") for name, said in _by_name(value)}
    refuse(
        not all(found) or not all(all(some) for some in found.values()),
        f"{value!r}: write parts after each = as when=weekday+hour, or when=number",
        click.BadParameter,
    )
    return found


@reader
def folds(value: str) -> int | str:
    """Return a number of folds, or the name of a column."""
    if not value.isdecimal():
        return value
    refuse(
        int(value) < 2,
        f"{value} folds leave no rows to learn from: write 2 or more, or a column",
        click.BadParameter,
    )
    return int(value)


def candidates_named(*besides: str, words: Sequence[str] = ()) -> Reader:
    """Return what reads names of models that may be compared, or one of some words.

    Those of `besides` are names, too.
    """

    def read(value: str) -> list[str]:
        found: list[str] = names(None, None, value)
        known = [*candidates(), *besides]
        for place, name in enumerate(found):
            refuse(name not in known, f"{name!r}: {use_one_of(name, known)}", click.BadParameter)
            refuse(name in found[:place], f"{name!r} stands twice", click.BadParameter)
        refuse(not found, "name one at least", click.BadParameter)
        return found

    return reader(read, *words)


def interactions(value: str) -> int | list[tuple[str, str]]:
    """Return the pairs of A:B,C:D, or how many there may be."""
    if value.isdecimal():
        return int(value)
    found = []
    for part in names(None, None, value):
        first, _, second = (end.strip() for end in part.partition(":"))
        refuse(not (first and second), f"{part!r}: write two columns as A:B", click.BadParameter)
        found.append((first, second))
    return found


Command = Callable[..., Any]


def declared(parameter: str) -> dict[str, Parameter]:
    """Return what models declare of a parameter, by model."""
    found = {model: entry.load()._declared for model, entry in by_name().items()}
    return {model: has[parameter] for model, has in found.items() if parameter in has}


def takers(parameter: str, value: Any = None) -> list[str]:
    """Return the models that take a parameter, and a value of it if there is one."""

    def allows(one: Parameter) -> bool:
        try:
            one.validate(parameter, one.default if value is None else value)
        except ValueError:
            return False
        return True

    return [model for model, one in declared(parameter).items() if allows(one)]


class ModelOption(Option):
    """An option about models; its help says which have the parameter of its name.

    {LOO} in the help is those that choose it by leave-one-out, {MODELS} all that may be compared.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help."""
        name, plain = str(self.name), self.help
        who = takers(name)
        some = 0 < len(who) < len(by_name()) and not _asked(ctx)
        of = f" ({', '.join(who)})" if some else ""
        named = {"{LOO}": takers(name, "loo"), "{MODELS}": [*candidates()]}
        try:
            self.help = f"{plain}{of}"
            for word, models in named.items():
                self.help = self.help.replace(word, ", ".join(models))
            return super().get_help_record(ctx)
        finally:
            self.help = plain


def _asked(ctx: click.Context) -> str | None:
    """Return the model that stands besides --help, checked; None where none does."""
    options = {option.name: option for option in ctx.command.get_params(ctx)}
    if "model" not in options or not isinstance(options["model"].type, click.Choice):
        return None
    asked = given_to(ctx, options["model"])
    return None if asked is None else str(options["model"].type_cast_value(ctx, asked))


def given(ctx: click.Context, parameters: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return by parameter what was said on the command line: the option and its value."""
    return {
        option.name: (option.opts[0], parameters[option.name])
        for option in ctx.command.get_params(ctx)
        if option.name in parameters
        and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }


def unfitted(ctx: click.Context, model: str, parameters: Mapping[str, Any], **more: Any) -> Any:
    """Return a model with the parameters that were given; others have the model's defaults."""
    found = given(ctx, parameters)
    for name, (option, _) in found.items():
        if model not in (who := takers(name)):
            raise click.UsageError(
                f"{option} does not go with --model {model}, but with {', '.join(who)}", ctx
            )
    if parameters["alpha"] == "loo" and model not in (who := takers("alpha", "loo")):
        raise click.UsageError(f"--alpha loo goes with --model {' or '.join(who)}", ctx)
    if "criterion" in found and parameters["select"] is None:
        raise click.UsageError("--criterion goes with --select leave_one_out", ctx)
    if "m" in found and parameters.get("smoothing") != "m_estimate":
        raise click.UsageError("--m goes with --smoothing m_estimate", ctx)
    if "concentration" in found and parameters.get("smoothing") != "hdp":
        raise click.UsageError("--concentration goes with --smoothing hdp", ctx)
    made = by_name()[model].load()(**{n: value for n, (_, value) in found.items()}, **more)
    try:
        made._check_parameters()
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error
    return made


def together(*options: Command) -> Callable[[Command], Command]:
    """Return one decorator for several options, shown in this order."""

    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def listing(*flags: str, **attributes: Any) -> Command:
    """Return an option that is a list of names."""
    return click.option(*flags, callback=names, metavar="A,B,...", **attributes)


def defaulted(*flags: str, **attributes: Any) -> Command:
    """Return an option whose help shows its default."""
    return click.option(*flags, show_default=True, **attributes)


def a_path(value: str) -> None:
    """Raise DataError where an output is no path: standard output takes predictions alone."""
    refuse(value == STDOUT, "- is standard output, which takes predictions alone: a path is needed")


def output(help: str, check: Callable[[str], object] = a_path, *, required: bool = True) -> Command:
    """Return the option of a file to write, refused where the `check` of its name fails."""

    def checked(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        try:
            if value is not None:
                check(value)
        except DataError as error:
            raise click.BadParameter(str(error)) from error
        return value

    return click.option(
        "-o",
        "--output",
        required=required,
        type=click.Path(),
        callback=checked,
        help=help,
        **COMMON,
    )


def check_file(target: str, *read: str | None, force: bool) -> None:
    """Raise DataError unless a file may be written, and is none that these names stand for.

    Nor may it be the one whose cut points are taken.
    """
    check_target(target, force=force)
    cuts = click.get_current_context().meta.get(CUTS_OF)
    names = [name for name in (*read, cuts) if name is not None and name != STDIN]
    check_apart(target, chain.from_iterable(map(local_paths, names)))


FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.", **COMMON)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.", **COMMON)
TARGET = click.option("--target", required=True, help="Column that holds the class.", **COMMON)
THREADS = click.option("--threads", type=click.IntRange(1), help="Worker threads; default: all.")
WEIGHT = click.option("--weight", "sample_weight", help="Column that holds the weight of each row.")
LOSS = click.option(
    "--loss",
    type=click.Path(),
    help="JSON file {decision: {truth: cost}}: decide by least expected cost.",
)
MISSING_COLUMNS = click.option(
    "--missing-columns",
    type=click.Choice(["error", "marginalize"]),
    help="A column of the model that DATA lacks is an error, or missing in all rows.",
)
MODEL_FILE = click.argument("model", type=click.Path())
MEMORY_LIMIT = click.option(
    "--memory-limit",
    callback=n_bytes,
    metavar="SIZE",
    help="Bytes for the counts, for example 500M.",
)
COLUMNS = listing(
    "--columns",
    help="Features to read, by names or patterns ('id_*'); the others are not decoded.",
    **COMMON,
)
EXCLUDE = listing("--exclude", help="Columns to leave out, by names or patterns.", **COMMON)
CATEGORICAL = listing(
    "--categorical",
    help="Columns that are categories whatever their type, by names or patterns.",
    **COMMON,
)
DATES = click.option(
    "--dates",
    callback=parts,
    metavar="A=PART+PART,B=number,...",
    help="Parts of dates and times, of year, month, weekday, hour and elapsed, or number for "
    "elapsed time alone; default: those that the span of the column says.",
)


def storage_options(
    _: click.Context, __: click.Parameter, value: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return options of a file system: what is JSON is read so (true, 5, {...}), else as text."""
    found: dict[str, Any] = {}
    for item in value:
        key, equals, said = item.partition("=")
        refuse(not (key and equals), f"{item!r}: write KEY=VALUE", click.BadParameter)
        try:
            found[key] = json.loads(said)
        except ValueError:
            found[key] = said
    return found or None


FILES = together(
    click.option(
        "--schema-mode",
        type=click.Choice(SCHEMA_MODES),
        help="Read all columns of all files, null where a file lacks one (union, the default); "
        "stop at the first difference (strict); or read the columns of the first file, which "
        "others must have (first).",
    ),
    click.option(
        "--partitions/--no-partitions",
        default=None,
        help="Whether directories KEY=VALUE are columns; default: they are.",
    ),
    click.option(
        "--on-error",
        type=click.Choice(ON_ERROR),
        help="Stop at what cannot be used (the default); leave out files that cannot be opened or "
        "do not go with the others, and say so (skip; count leaves out row groups that cannot be "
        "read, too); or single rows of CSV and JSON lines, too (skip-rows).",
    ),
    click.option(
        "--rejects",
        type=click.Path(),
        metavar="FILE",
        help="File for rows that --on-error skip-rows leaves out: .csv or .jsonl.",
    ),
    click.option(
        "--max-rejected",
        type=Range(0, 1),
        metavar="SHARE",
        help="Share of the rows of a file that may be left out; default: 0.05.",
    ),
    click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        callback=storage_options,
        metavar="KEY=VALUE",
        help="Option of the file system that a URI names, for example region=eu-west-1; may be "
        "given several times.",
    ),
)
# Parameters of `fastbayes.Files` besides the source.
OF_FILES = [*signature(fb.Files).parameters][1:]


def files_of(data: Any, options: dict[str, Any]) -> Any:
    """Return DATA as it is to be read by the options of `FILES`, which are taken out of all.

    "-" is standard input, in the format that an option `input_format` may say.
    """
    format = options.pop("input_format", None)
    if data == STDIN:
        odd = [name for name in OF_FILES if options.pop(name) not in (None, ())]
        if odd:
            raise click.UsageError(f"{_flag(odd[0])} goes with files, not with standard input (-)")
        refuse(sys.stdin is None, "-: standard input is closed", click.UsageError)
        return Pipe(sys.stdin.buffer, format)
    if format is not None:
        raise click.UsageError("--input-format goes with standard input (-): files say theirs")
    if isinstance(data, list) and STDIN in data:
        raise click.UsageError("standard input (-) goes alone, without files besides")
    said = {name: options.pop(name) for name in OF_FILES}
    said = {name: value for name, value in said.items() if value is not None}
    if said.keys() & {"rejects", "max_rejected"} and said.get("on_error") != "skip-rows":
        raise click.UsageError("--rejects and --max-rejected go with --on-error skip-rows")
    return fb.Files(data, **said) if said and data is not None else data


def _flag(name: str) -> str:
    return f"--{name.removesuffix('s') if name == 'storage_options' else name}".replace("_", "-")


def rejected(source: Any) -> dict[str, int]:
    """Return how many rows were left out, where that was asked for."""
    asked = isinstance(source, fb.Files) and source.on_error == "skip-rows"
    return {"rejected_rows": source.rejected_rows} if asked else {}


# Parameters of `fastbayes.count` that are no model's, and those that are.
READ = ("sample_weight", "null_values", "memory_limit", "threads")


def reading(**missing: str) -> Callable[[Command], Command]:
    """Return the options of commands that count, with more of what a missing value may be."""
    also = "".join(f", or {what}" for what in missing.values())
    return together(
        COLUMNS,
        EXCLUDE,
        CATEGORICAL,
        DATES,
        WEIGHT,
        listing("--null-values", help="Texts that mean missing."),
        defaulted(
            "--missing",
            type=click.Choice(["marginalize", "category", *missing]),
            default="marginalize",
            help=f"A missing value says nothing, or is a value of its own{also}.",
            **COMMON,
        ),
        MEMORY_LIMIT,
        THREADS,
    )


READING = reading()


def _says(help: str, metavar: str | None = None, **attributes: Any) -> dict[str, Any]:
    return {"help": help, "metavar": metavar, **attributes}


NOT_NEGATIVE, POSITIVE = Range(0), Range(0, min_open=True)

# Parameters whose values are Python's, or that commands have as options of their own.
LIBRARY_ONLY = {
    *("categorical", "columns", "dates", "domains", "exclude", "forbidden", "memory_limit"),
    *("missing", "missing_columns", "network", "precision", "required", "restarts", "seed"),
    *("threads", "unlabelled", "var_floor", "warm_start"),
}
# What the command line says of parameters of models, in this order; a parameter that was not given
# is left to the model. Without a metavar, type or flag the values are those that models declare.
OPTIONS: dict[str, dict[str, Any]] = {
    "alpha": _says(
        "Pseudo-count of every value and class; 'loo' chooses it by leave-one-out ({LOO}).",
        "NUMBER|loo",
        callback=pseudo_count,
        default="1",
        show_default=True,
        common=True,
    ),
    "class_prior": _says(
        "Class prior; default: the classes' shares, smoothed by alpha.",
        type=click.Choice(["empirical", "uniform"]),
    ),
    "unseen": _says(
        "A value that was not seen at fit says nothing (the default), counts as smoothed, or is an "
        "error."
    ),
    "numeric": _says(
        "How numeric columns are described; default: gaussian.",
        "|".join(KINDS) + "|A=KIND,...",
        callback=kinds,
    ),
    "parametric": _says(
        "What --numeric auto may choose: Student's t, which is as wide as few rows make it (the "
        "default), or a normal density."
    ),
    "variance": _says(
        "Variances of numeric columns: one per class (the default), shared by classes, or one for "
        "all."
    ),
    "feature_averaging": _says(
        "Average over all models that leave categorical columns out.", is_flag=True
    ),
    "discretize": _says(
        "How numeric columns become bins where pairs are counted, or a model or statistics FILE "
        "whose cut points to take; default: mdl.",
        "mdl|quantile[:N]|width[:N]|FILE",
        callback=method,
    ),
    "super_parent": _says(
        "Parent of all others, or how to choose it; default: loo_joint.",
        "loo_joint|cmi|loo|cv|COLUMN",
    ),
    "root": _says("Root of the tree; default: the most informative.", "COLUMN"),
    "prune": _says(
        "Keep the edges that are worth their parameters; default: a tree over all columns."
    ),
    "k": _says("Most parents of a column; default: 2.", type=click.IntRange(0)),
    "select": _says("Choose among nested models by leave-one-out, in one more scan."),
    "criterion": _says("What the selected model has least of; default: log_loss."),
    "min_count": _says(
        "Rows in which a value must occur to be a super-parent; default: 1.", type=NOT_NEGATIVE
    ),
    "weights": _says(
        "How much each super-parent says; default: uniform.",
        "uniform|mutual_information|A=2,B=1,...",
        callback=super_parents,
    ),
    "subsumption": _says(
        "Leave out what another value of the row implies, one seen in so many rows, for example "
        "100.",
        "ROWS",
        type=POSITIVE,
    ),
    "smoothing": _says(
        "alpha for every cell (laplace, the default), m for every distribution (m_estimate: "
        "averages alone), ess for every table (bdeu: network), or drawn to fewer parents (hdp: the "
        "others)."
    ),
    "concentration": _says(
        "Of smoothing hdp: rows of a node that are as likely as not to have half of the say before "
        "any is seen; 0: no prior; default: 5.",
        type=NOT_NEGATIVE,
    ),
    "ess": _says("Equivalent sample size of bdeu; default: 1.", type=NOT_NEGATIVE),
    "graph_score": _says("What the graph is best by; default: mdl.", type=click.Choice(SCORES)),
    "search": _says("How the graph is looked for; default: hill_climb."),
    "order": _says(
        "All columns and the class: edges only go from earlier to later ones.",
        "A,B,...",
        callback=names,
    ),
    "max_parents": _says("Most parents of a node.", type=click.IntRange(0)),
    "covariance": _says(
        "Covariances: one per class (full, the default), one for all (tied), variances of columns "
        "(diagonal), or one variance per class (spherical)."
    ),
    "shrinkage": _says(
        "Share of the diagonal in a covariance; auto: what is best by the number of rows.",
        "SHARE|auto",
        callback=share,
    ),
    "singular": _says(
        "A covariance without inverse takes rows of that within all classes (the default), is "
        "shrunk, loses its correlations, or is an error."
    ),
    "prior": _says(
        "Integrate means and covariances out: normal-inverse-Wishart.", type=click.Choice(["niw"])
    ),
    "ddof": _says("Variance divisor n - ddof; default: 0.", type=click.IntRange(0, 1)),
    "cells": _says(
        "Whether values of categorical columns are one joint value (the default), or independent "
        "within a class."
    ),
    "backoff": _says(
        "Rows of its class that each cell is drawn to; default: 10.", type=NOT_NEGATIVE
    ),
    "density": _says(
        "Of numbers: Student's t, which is as wide as few rows make it (the default), or normal."
    ),
    "tau": _says(
        "Rows of each class spread as if columns were independent; 'loo' chooses it by "
        "leave-one-out; default: 1, of joint-gaussian loo.",
        "NUMBER|loo",
        callback=pseudo_count,
    ),
    "m": _says("Pseudo-count of a distribution (m_estimate).", type=NOT_NEGATIVE),
    "l2": _says("How strongly weights of columns are drawn to 1; default: 1.", type=NOT_NEGATIVE),
    "penalty": _says("Penalty of coefficients; default: l2."),
    "C": _says("Inverse strength of the penalty; default: 1.", "NUMBER", callback=strength),
    "standardize": _says(
        "Penalise coefficients of numbers in units of their columns' standard deviations.",
        is_flag=True,
    ),
    "solver": _says("How the optimum is looked for; default: newton-cg."),
    "learning_rate": _says("Length of steps of gradient.", type=POSITIVE),
    "init": _says("Where to begin; default: naive_bayes."),
    "class_weight": _says(
        "What weights of rows are multiplied by, by class.",
        "balanced|A=2,B=1,...",
        callback=class_weight,
    ),
    "interactions": _says(
        "Pairs of categorical columns whose values have coefficients together; a number: so many "
        "at most, those that tell most of the class together; auto: as many as take little time.",
        "all|auto|N|A:B,C:D,...",
        callback=reader(interactions, "all", "auto"),
    ),
    "tol": _says(
        "Where the steps of a fit stop: by the gradient norm; default: 1e-6, of "
        "weighted-naive-bayes 1e-8; other models by how much a parameter still moves; default: "
        "1e-9, of smoothing hdp 1e-3.",
        type=POSITIVE,
    ),
    "max_iter": _says(
        "Steps of a fit at most; default: 200, of weighted-naive-bayes 100, of naive-bayes, spode, "
        "joint-bayes and joint-gaussian 10000.",
        type=click.IntRange(1),
    ),
    "members": _says(
        "Models that are combined; default: those that the columns allow.",
        "A,B,...",
        callback=candidates_named(),
    ),
    "race": _says(
        "Fit every member to all folds, also one to which the first fold gives no weight.",
        is_flag=True,
        flag_value=False,
    ),
    "folds": _says(
        "Folds that the members are weighted by; default: by the number of rows, as in compare.",
        type=click.IntRange(2),
    ),
    "standard_errors": _says(
        "Keep what standard errors and Wald intervals of the coefficients need.", is_flag=True
    ),
}
DISCRETIZE = click.option("--discretize", **OPTIONS["discretize"])
NUMERIC = click.option("--numeric", cls=ModelOption, **OPTIONS["numeric"])


class ModelCommand(BriefCommand):
    """A command with --model and the options of all models that are registered when it runs."""

    everything = "Show all options and exit; with --model NAME, --help shows those of this model."

    def shown(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options that the help shows: those of the model besides it, or else of all."""
        found, model = super().shown(ctx), _asked(ctx)
        if model is None:
            return found
        of_model = {o for o in self.get_params(ctx) if isinstance(o, ModelOption)}
        taken = {option for option in of_model if model in takers(str(option.name))}
        kept = {*found} - of_model | taken
        return [option for option in self.get_params(ctx) if option in kept]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, and those of models after the output."""
        own = super().get_params(ctx)
        taken = [str(option.name) for option in own]
        at = taken.index("output") + 1
        found = [option for option in _options(tuple(by_name())) if option.name not in taken]
        return [*own[:at], *found, *own[at:]]


@lru_cache(maxsize=1)
def _options(models: tuple[str, ...]) -> list[click.Option]:
    """Return --model and the options of these models, which are all that have a name."""
    choice = click.Choice(models)
    found: list[click.Option] = [
        Option(
            ["--model"],
            type=choice,
            default="naive-bayes",
            show_default=True,
            metavar="NAME",
            help=f"Kind of model: {', '.join(models)}.",
            common=True,
        )
    ]
    for name in dict.fromkeys([*OPTIONS, *_of_others()]):
        parameters = [*declared(name).values()]
        options = OPTIONS[name] if name in OPTIONS else _derived(parameters[0])
        if not (options["metavar"] or options.keys() & {"type", "is_flag"}):
            options = options | _choice(parameters)
        # The option of what is so by default says that it is not to be.
        no = "no-" * (options.get("flag_value") is False)
        found.append(ModelOption([f"--{no}{name.replace('_', '-')}", name], **options))
    return found


def _of_others() -> list[str]:
    """Return the parameters that have no entry above: what models added later declare."""
    models = (entry.load() for entry in by_name().values())
    return [name for cls in models for name in cls._declared if name not in LIBRARY_ONLY]


def _derived(parameter: Parameter) -> dict[str, Any]:
    """Return the option of a parameter of which the declaration alone is known."""
    found = _says(" ".join(parameter.doc.partition(".")[0].split()) + ".")
    if isinstance(parameter.default, bool):
        found |= {"is_flag": True, "flag_value": not parameter.default}
        found["help"] = f"Turn off: {found['help']}" if parameter.default else found["help"]
    elif not parameter.choices:
        found["type"] = type(parameter.default) if is_number(parameter.default) else str
    return found


def _choice(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the type of an option whose values are declared; "none" stands for None."""
    values = [*dict.fromkeys(value for one in parameters for value in one.choices)]
    words = [value for value in values if value is not None]
    if words == values or parameters[0].default is None:
        return {"type": click.Choice(words)}
    return {
        "type": click.Choice([*words, "none"]),
        "callback": lambda _, __, value: None if value == "none" else value,
    }


def model_from(path: str) -> Any:
    """Return the model in a file."""
    held = fb.load(path)
    refuse(
        isinstance(held, fb.Statistics),
        f"{path}: holds statistics, not a model; make one: fastbayes fit --statistics {path} "
        "-o model.fb",
    )
    return held


def statistics_from(path: str) -> fb.Statistics:
    """Return the statistics in a file."""
    held = fb.load(path)
    if not isinstance(held, fb.Statistics):
        raise DataError(
            f"{path}: holds a model, not statistics; name a file made by count or merge"
        )
    return held


def json_from(path: str, what: str, remedy: str, hook: Callable[..., Any] | None = None) -> Any:
    """Return what a JSON file holds; raise DataError with a remedy where it holds not `what`."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, object_pairs_hook=hook)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; name a file of {what}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: no {what} ({error}); {remedy}") from error


def loss_from(path: str | None, model: Any) -> Any:
    """Return the loss in a JSON file, once it fits the classes of a model."""
    if path is None:
        return None
    loss = json_from(path, "costs", "write JSON {decision: {truth: cost}}", _once)
    try:
        loss_matrix(loss, model.classes_)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return loss


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, in which a name must not stand twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands twice")
    return found
