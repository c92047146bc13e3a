"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

import fastbayes as fb
from fastbayes.cli.linear_options import OPTIONS as LINEAR
from fastbayes.cli.values import (
    kinds,
    method,
    n_bytes,
    names,
    pseudo_count,
    pseudo_rows,
    share,
    super_parents,
)
from fastbayes.core.errors import DataError
from fastbayes.core.loss import loss_matrix
from fastbayes.models.registry import by_name
from fastbayes.networks.search.score import SCORES
from fastbayes.networks.search.structure_search import SEARCHES
from fastbayes.scan.density_spec import KINDS

MODELS = by_name()
CHOOSE_ALPHA = ("naive-bayes", "spode", "tan", "weighted-naive-bayes")

Command = Callable[..., Any]


def takers(parameter: str) -> list[str]:
    """Return the models that take a parameter: their constructors are the table of what does."""
    return [m for m, entry in MODELS.items() if parameter in entry.load()._declared]


def of_models(option: str, *, help: str, **attributes: Any) -> Command:
    """Return an option named as a parameter of models; its help says which have it."""
    who = takers(option.removeprefix("--").replace("-", "_"))
    of = "" if len(who) == len(MODELS) else f" ({', '.join(who)})"
    named = option.removeprefix("--").replace("-", "_")
    return click.option(option, named, help=f"{help}{of}", **attributes)


def given(ctx: click.Context, parameters: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return by parameter what was said on the command line: the option and its value."""
    return {
        option.name: (option.opts[0], parameters[option.name])
        for option in ctx.command.params
        if option.name in parameters
        and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }


def unfitted(ctx: click.Context, model: str, parameters: Mapping[str, Any], **more: Any) -> Any:
    """Return a model with the parameters that were given; others have the model's defaults."""
    told = given(ctx, parameters)
    for name, (option, _) in told.items():
        if model not in takers(name):
            raise click.UsageError(
                f"{option} does not go with --model {model}, but with {', '.join(takers(name))}",
                ctx,
            )
    if parameters["alpha"] == "loo" and model not in CHOOSE_ALPHA:
        raise click.UsageError(f"--alpha loo goes with --model {' or '.join(CHOOSE_ALPHA)}", ctx)
    if "criterion" in told and parameters["select"] is None:
        raise click.UsageError("--criterion goes with --select leave_one_out", ctx)
    if "m" in told and parameters.get("smoothing") != "m_estimate":
        raise click.UsageError("--m goes with --smoothing m_estimate", ctx)
    made = MODELS[model].load()(**{n: value for n, (_, value) in told.items()}, **more)
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


FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
THREADS = click.option("--threads", type=click.IntRange(1), help="Worker threads; default: all.")
WEIGHT = click.option("--weight", "sample_weight", help="Column that holds the weight of each row.")
LOSS = click.option(
    "--loss",
    type=click.Path(),
    help="JSON file {decision: {truth: cost}}: decide by least expected cost.",
)
MODEL_FILE = click.argument("model", type=click.Path())
MEMORY_LIMIT = click.option(
    "--memory-limit",
    callback=n_bytes,
    metavar="SIZE",
    help="Bytes for the counts, for example 500M.",
)
# Parameters of `fastbayes.count` that are no model's, and those that are.
READ = ("sample_weight", "null_values", "memory_limit", "threads")


def reading(**missing: str) -> Callable[[Command], Command]:
    """Return the options of commands that count, with more of what a missing value may be."""
    also = "".join(f", or {what}" for what in missing.values())
    return together(
        click.option(
            "--columns",
            callback=names,
            metavar="A,B,...",
            help="Features to read; the others are not decoded.",
        ),
        click.option(
            "--categorical",
            callback=names,
            metavar="A,B,...",
            help="Columns that are categories whatever their type.",
        ),
        WEIGHT,
        click.option(
            "--null-values", callback=names, metavar="A,B,...", help="Texts that mean missing."
        ),
        click.option(
            "--missing",
            type=click.Choice(["marginalize", "category", *missing]),
            default="marginalize",
            show_default=True,
            help=f"A missing value says nothing, or is a value of its own{also}.",
        ),
        MEMORY_LIMIT,
        THREADS,
    )


READING = reading()
DISCRETIZE = click.option(
    "--discretize",
    callback=method,
    metavar="mdl|quantile[:N]|width[:N]|FILE",
    help="How numeric columns become bins where pairs are counted, or a model or statistics FILE "
    "whose cut points to take; default: mdl.",
)
NUMERIC = of_models(
    "--numeric",
    callback=kinds,
    metavar="|".join(KINDS) + "|A=KIND,...",
    help="How numeric columns are described; default: gaussian.",
)
# Named as the parameters of the models: those that were not given are left to the model.
MODEL = together(
    click.option(
        "--model", type=click.Choice(list(MODELS)), default="naive-bayes", show_default=True
    ),
    of_models(
        "--alpha",
        callback=pseudo_count,
        metavar="NUMBER|loo",
        default="1",
        show_default=True,
        help="Pseudo-count of every value and class; 'loo' chooses it by leave-one-out "
        f"({', '.join(CHOOSE_ALPHA)}).",
    ),
    of_models(
        "--class-prior",
        type=click.Choice(["empirical", "uniform"]),
        help="Class prior; default: the classes' shares, smoothed by alpha.",
    ),
    of_models(
        "--unseen",
        type=click.Choice(["ignore", "smooth", "error"]),
        help="A value that was not seen at fit says nothing (the default), counts as smoothed, or "
        "is an error.",
    ),
    NUMERIC,
    of_models(
        "--variance",
        type=click.Choice(["per_class", "shared", "single"]),
        help="Variances of numeric columns: one per class (the default), shared by classes, or one "
        "for all.",
    ),
    of_models(
        "--feature-averaging",
        is_flag=True,
        help="Average over all models that leave categorical columns out.",
    ),
    DISCRETIZE,
    of_models(
        "--super-parent",
        metavar="loo_joint|cmi|loo|cv|COLUMN",
        help="Parent of all others, or how to choose it; default: loo_joint.",
    ),
    of_models("--root", metavar="COLUMN", help="Root of the tree; default: the most informative."),
    of_models(
        "--prune",
        type=click.Choice(["bic", "aic"]),
        help="Keep the edges that are worth their parameters; default: a tree over all columns.",
    ),
    of_models("--k", type=click.IntRange(0), help="Most parents of a column; default: 2."),
    of_models(
        "--select",
        type=click.Choice(["leave_one_out"]),
        help="Choose among nested models by leave-one-out, in one more scan.",
    ),
    of_models(
        "--criterion",
        type=click.Choice(["log_loss", "error"]),
        help="What the selected model has least of; default: log_loss.",
    ),
    of_models(
        "--min-count",
        type=click.FloatRange(0),
        help="Rows in which a value must occur to be a super-parent; default: 1.",
    ),
    of_models(
        "--weights",
        callback=super_parents,
        metavar="uniform|mutual_information|A=2,B=1,...",
        help="How much each super-parent says; default: uniform.",
    ),
    of_models(
        "--subsumption",
        type=click.FloatRange(0, min_open=True),
        metavar="ROWS",
        help="Leave out what another value of the row implies, one seen in so many rows, for "
        "example 100.",
    ),
    of_models(
        "--smoothing",
        type=click.Choice(["laplace", "m_estimate", "hdp", "bdeu"]),
        help="alpha for every cell (laplace, the default), m for every distribution (m_estimate: "
        "averages alone), ess for every table (bdeu: network), or drawn to fewer parents (hdp: the "
        "others).",
    ),
    of_models(
        "--ess", type=click.FloatRange(0), help="Equivalent sample size of bdeu; default: 1."
    ),
    of_models(
        "--graph-score",
        type=click.Choice(SCORES),
        help="What the graph is best by; default: mdl.",
    ),
    of_models(
        "--search",
        type=click.Choice(SEARCHES),
        help="How the graph is looked for; default: hill_climb.",
    ),
    of_models(
        "--order",
        callback=names,
        metavar="A,B,...",
        help="All columns and the class: edges only go from earlier to later ones.",
    ),
    of_models("--max-parents", type=click.IntRange(0), help="Most parents of a node."),
    of_models(
        "--covariance",
        type=click.Choice(["full", "tied", "diagonal", "spherical"]),
        help="Covariances: one per class (full, the default), one for all (tied), variances of "
        "columns (diagonal), or one variance per class (spherical).",
    ),
    of_models(
        "--shrinkage",
        callback=share,
        metavar="SHARE|auto",
        help="Share of the diagonal in a covariance; auto: what is best by the number of rows.",
    ),
    of_models(
        "--singular",
        type=click.Choice(["shrink", "diagonal", "error"]),
        help="A covariance without inverse is shrunk (the default), loses its correlations, or is "
        "an error.",
    ),
    of_models(
        "--prior",
        type=click.Choice(["niw"]),
        help="Integrate means and covariances out: normal-inverse-Wishart.",
    ),
    of_models("--ddof", type=click.IntRange(0, 1), help="Variance divisor n - ddof; default: 0."),
    of_models(
        "--cells",
        type=click.Choice(["joint", "naive"]),
        help="Whether values of categorical columns are one joint value (the default), or "
        "independent within a class.",
    ),
    of_models(
        "--backoff",
        type=click.FloatRange(0),
        help="Rows of its class that each cell is drawn to; default: 10.",
    ),
    of_models(
        "--tau",
        callback=pseudo_rows,
        metavar="NUMBER|loo",
        help="Rows of each class spread as if columns were independent; 'loo' chooses it by "
        "leave-one-out; default: 1, of joint-gaussian loo.",
    ),
    of_models("--m", type=click.FloatRange(0), help="Pseudo-count of a distribution (m_estimate)."),
    of_models(
        "--l2",
        type=click.FloatRange(0),
        help="How strongly weights of columns are drawn to 1; default: 1.",
    ),
    *(of_models(option, **told) for option, told in LINEAR),
)


def model_from(path: str) -> Any:
    """Return the model in a file."""
    held = fb.load(path)
    if isinstance(held, fb.Statistics):
        raise DataError(
            f"{path}: holds statistics, not a model; make one: fastbayes fit --statistics {path} "
            "-o model.fb"
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


def loss_from(path: str | None, model: Any) -> Any:
    """Return the loss in a JSON file, once it fits the classes of a model."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            loss = json.load(file, object_pairs_hook=_once)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; name a JSON file of costs") from error
    except ValueError as error:
        raise DataError(
            f"{path}: no loss matrix ({error}); write JSON {{decision: {{truth: cost}}}}"
        ) from error
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
