"""The command line: results on stdout, log on stderr; exit 0 done, 1 bad data, 2 bad usage."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

import fastbayes as fb
from fastbayes.errors import FastBayesError, FastBayesWarning

MODELS = {"naive-bayes": "NaiveBayes"}

Command = Callable[..., Any]


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


def _options(*options: Command) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def _names(_: Any, __: Any, value: str | None) -> list[str] | None:
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
THREADS = click.option("--threads", type=click.IntRange(1), help="Worker threads; default: all.")
READING = _options(
    click.option("--columns", callback=_names, help="Columns to read, separated by commas."),
    click.option("--categorical", callback=_names, help="Columns to treat as categories."),
    click.option("--weight", help="Column that holds the weight of each row."),
    click.option("--null-values", callback=_names, help="Texts that mean missing."),
    click.option("--memory-limit", type=str, help="Bytes for the counts, for example 500M."),
    click.option(
        "--missing",
        type=click.Choice(["marginalize", "category"]),
        default="marginalize",
        show_default=True,
        help="Missing values say nothing, or are a value of their own.",
    ),
    THREADS,
)
MODEL = _options(
    click.option("--model", type=click.Choice(sorted(MODELS)), default="naive-bayes",
                 show_default=True),
    click.option("--alpha", default="1", show_default=True,
                 help="Pseudo-count of every value, or 'loo' to choose it by leave-one-out."),
    click.option("--class-prior", type=click.Choice(["empirical", "uniform"]),
                 help="Class prior; default: smoothed by alpha."),
    click.option("--variance", type=click.Choice(["per_class", "shared", "single"]),
                 default="per_class", show_default=True),
    click.option("--unseen", type=click.Choice(["ignore", "smooth", "error"]), default="ignore",
                 show_default=True, help="What a value not seen at fit does."),
)


def _bytes(text: str | None) -> int | None:
    """Return a size such as 500M or 2GiB in bytes."""
    if text is None:
        return None
    units = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
    number = text.upper().removesuffix("B")
    unit = number.lstrip("0123456789.")
    try:
        return int(float(number.removesuffix(unit)) * units[unit])
    except (KeyError, ValueError) as error:
        raise click.BadParameter(f"{text!r} is no size; write for example 500M or 2GiB") from error


def _alpha(text: str) -> float | str:
    if text == "loo":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"--alpha {text!r}: a number >= 0, or 'loo'") from error


def _print(result: Any, as_json: bool, lines: Callable[[], Iterator[str]]) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=2, default=_jsonable))
        return
    for line in lines():
        click.echo(line)


def _jsonable(value: Any) -> Any:
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)


@contextmanager
def _bar(what: str, rows: int | None = None) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on a terminal; otherwise nothing."""
    quiet = (click.get_current_context().obj or {}).get("quiet")
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, total=rows, unit=" rows", unit_scale=True, file=sys.stderr) as bar:
        yield bar.update


def _rows(data: str) -> int | None:
    from fastbayes.data.source import open_source

    return open_source(data).n_rows


def _count(data: str, target: str, options: dict[str, Any], **more: Any) -> fb.Statistics:
    with _bar("counting", _rows(data) if sys.stderr.isatty() else None) as progress:
        return fb.count(
            data,
            target,
            sample_weight=options["weight"],
            columns=options["columns"],
            categorical=options["categorical"],
            null_values=options["null_values"],
            missing=options["missing"],
            memory_limit=_bytes(options["memory_limit"]),
            threads=options["threads"],
            progress=progress,
            **more,
        )


@main.command()
@click.argument("data", required=False)
@click.option("--target", help="Column that holds the class.")
@click.option("--statistics", type=click.Path(), help="Fit counts made by `count` or `merge`.")
@click.option("-o", "--output", required=True, type=click.Path(), help="Model file to write (.fb).")
@MODEL
@READING
@FORCE
@JSON
def fit(
    data: str | None,
    target: str | None,
    statistics: str | None,
    output: str,
    model: str,
    alpha: str,
    class_prior: str | None,
    variance: str,
    unseen: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a model from DATA, or from counts, into a file."""
    if (data is None) == (statistics is None):
        raise click.UsageError("give either DATA with --target, or --statistics FILE")
    fb.files.check_target(output, force=force)
    if statistics is not None:
        stats = fb.Statistics.load(statistics)
        options["missing"] = stats.schema.missing
    elif target is None:
        raise click.UsageError("--target is needed: the column that holds the class")
    else:
        stats = _count(str(data), target, options)
    fitted = getattr(fb, MODELS[model])(
        alpha=_alpha(alpha),
        class_prior=class_prior,
        variance=variance,
        unseen=unseen,
        missing=options["missing"],
    ).fit_statistics(stats)
    fitted.save(output, force=force)
    summary = {
        "model": model,
        "rows": stats.n_rows,
        "dropped_rows": stats.dropped_rows,
        "features": len(stats.schema.names),
        "classes": fitted.classes_,
        "parameters": fitted.n_parameters_,
        "alpha": fitted.alpha_,
        "output": output,
    }
    _print(summary, as_json, lambda: _fields(summary))


def _fields(summary: dict[str, Any]) -> Iterator[str]:
    width = max(len(key) for key in summary)
    for key, value in summary.items():
        if hasattr(value, "tolist"):
            value = ", ".join(map(str, value.tolist()[:20])) + (" …" if len(value) > 20 else "")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
        yield f"{key.replace('_', ' '):<{width}}  {value}"


def _loss(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise fb.DataError(
            f"{path}: no loss matrix ({error}); write JSON {{decision: {{truth: cost}}}}"
        ) from error


@main.command()
@click.argument("model", type=click.Path())
@click.argument("data")
@click.option("-o", "--output", required=True, type=click.Path(),
              help="File to write: .parquet, .arrow or .csv.")
@click.option("--proba", is_flag=True, help="Write the probability of each class.")
@click.option("--explain", is_flag=True, help="Write which column speaks most for the prediction.")
@click.option("--loss", type=click.Path(), help="JSON {decision: {truth: cost}}: decide by it.")
@click.option("--reject", type=float, help="Cost of not deciding.")
@click.option("--keys", callback=_names, help="Columns of DATA to copy; default: those unknown.")
@THREADS
@FORCE
@JSON
def predict(model: str, data: str, output: str, loss: str | None, as_json: bool,
            **options: Any) -> None:
    """Apply MODEL to DATA, writing one row per row."""
    fb.files.check_target(output, force=options["force"])
    fitted = fb.load(model)
    with _bar("predicting", _rows(data) if sys.stderr.isatty() else None) as progress:
        done = fb.predict_to(fitted, data, output, loss=_loss(loss), progress=progress, **options)
    summary = {
        "rows": done.rows,
        "unseen_values": done.unseen,
        "rows_from_prior": done.prior_rows,
        "output": output,
    }
    _print(summary, as_json, lambda: _fields(summary))


@main.command()
@click.argument("model", type=click.Path())
@click.argument("data")
@click.option("--target", help="Column that holds the class; default: the model's own.")
@click.option("--weight", help="Column that holds the weight of each row.")
@click.option("--loss", type=click.Path(), help="JSON {decision: {truth: cost}}.")
@THREADS
@JSON
def evaluate(model: str, data: str, target: str | None, weight: str | None, loss: str | None,
             threads: int | None, as_json: bool) -> None:
    """Judge MODEL on DATA whose classes are known."""
    fitted = fb.load(model)
    with _bar("scoring", _rows(data) if sys.stderr.isatty() else None) as progress:
        result = fb.evaluate(
            fitted, data, target, sample_weight=weight, loss=_loss(loss), threads=threads,
            progress=progress,
        )
    _print(result.to_dict(), as_json, result.lines)


@main.command()
@click.argument("data")
@click.option("--target", required=True, help="Column that holds the class.")
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write (.fbs).")
@click.option("--checkpoint", type=click.Path(file_okay=False),
              help="Directory that keeps the work done, so that a stopped count goes on.")
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
              help="Stop at a file part that cannot be read, or leave it out and say so.")
@READING
@FORCE
@JSON
def count(data: str, target: str, output: str, checkpoint: str | None, on_error: str, force: bool,
          as_json: bool, **options: Any) -> None:
    """Count DATA once into a file of statistics."""
    fb.files.check_target(output, force=force)
    stats = _count(data, target, options, checkpoint=checkpoint, on_error=on_error)
    stats.save(output, force=force)
    _describe(stats, output, as_json)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write (.fbs).")
@FORCE
@JSON
def merge(files: tuple[str, ...], output: str, force: bool, as_json: bool) -> None:
    """Add the statistics of several FILES into one."""
    fb.files.check_target(output, force=force)
    total = fb.Statistics.load(files[0])
    for path in files[1:]:
        total = total + fb.Statistics.load(path)
    total.save(output, force=force)
    _describe(total, output, as_json)


def _summary(stats: fb.Statistics) -> dict[str, Any]:
    schema = stats.schema
    return {
        "target": schema.target,
        "rows": stats.n_rows,
        "dropped_rows": stats.dropped_rows,
        "classes": {
            str(label): n
            for label, n in zip(
                schema.classes.to_pylist(), stats.values.class_counts.tolist(), strict=True
            )
        },
        "categorical": {f.name: f.size for f in schema.categorical},
        "numeric": [f.name for f in schema.numeric],
        "weighted": stats.weighted,
        "missing": schema.missing,
        "bytes": stats.nbytes,
        "source": list(stats.provenance),
    }


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    yield f"target    {summary['target']}: " + ", ".join(
        f"{label} {n:,}" for label, n in list(summary["classes"].items())[:20]
    )
    dropped = f", {summary['dropped_rows']:,} without a class" if summary["dropped_rows"] else ""
    unit = "total weight" if summary["weighted"] else "rows"
    yield f"{unit:<9} {summary['rows']:,}{dropped}"
    for name, size in summary["categorical"].items():
        yield f"  {name}: {size:,} values"
    for name in summary["numeric"]:
        yield f"  {name}: numeric"
    yield f"bytes     {summary['bytes']:,}"


def _describe(stats: fb.Statistics, output: str, as_json: bool) -> None:
    summary = {**_summary(stats), "output": output}
    _print(summary, as_json, lambda: _lines(summary))


@main.command()
@click.argument("path")
@click.option("--target", help="For DATA: column that holds the class, to plan the memory.")
@JSON
def inspect(path: str, target: str | None, as_json: bool) -> None:
    """Say what is in a model, in statistics, or in DATA."""
    if path.endswith((".fb", ".fbs")):
        held = fb.load(path)
        stats = getattr(held, "statistics_", held)
        summary = _summary(stats)
        if stats is not held:
            summary |= {"model": repr(held), "parameters": held.n_parameters_}
    else:
        summary = _inspect_data(path, target)
        _print(summary, as_json, lambda: _data_lines(summary))
        return

    def lines() -> Iterator[str]:
        if "model" in summary:
            yield f"model     {summary['model']}, {summary['parameters']:,} parameters"
        yield from _lines(summary)

    _print(summary, as_json, lines)


def _inspect_data(path: str, target: str | None) -> dict[str, Any]:
    from fastbayes.data.source import open_source
    from fastbayes.schema import default_kind

    source = open_source(path)
    plan = None if target is None else fb.plan(path, target)
    return {
        "source": source.description,
        "rows": source.n_rows,
        "columns": {
            f.name: {"type": str(f.type), "kind": default_kind(f.name, f.type)}
            for f in source.schema
        },
        "plan": None if plan is None else {
            "bytes": plan.total, "columns": plan.columns, "classes": plan.n_classes,
            "exact": plan.exact,
        },
    }


def _data_lines(summary: dict[str, Any]) -> Iterator[str]:
    rows = "unknown" if summary["rows"] is None else f"{summary['rows']:,}"
    yield f"source    {summary['source']}"
    yield f"rows      {rows}"
    plan = summary["plan"]
    for name, column in summary["columns"].items():
        needs = f", {plan['columns'][name]:,} bytes" if plan and name in plan["columns"] else ""
        yield f"  {name}: {column['kind']} ({column['type']}){needs}"
    if plan:
        least = "" if plan["exact"] else " at least: domains may grow"
        yield f"plan      {plan['bytes']:,} bytes{least}"


@main.command()
@click.option("--preset", required=True, help="What the table is like; see --list.")
@click.option("--rows", required=True, type=click.IntRange(0), help="Number of rows.")
@click.option("-o", "--output", required=True, type=click.Path(), help="Directory to write.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--missing", type=float, help="Share of missing values; default: the preset's.")
@click.option("--files", type=click.IntRange(1), help="Number of files.")
@click.option("--row-group-rows", type=click.IntRange(1), help="Rows of a row group.")
@click.option("--format", type=click.Choice(["parquet", "ipc", "csv"]), default="parquet",
              show_default=True)
@click.option("--list", "_list", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda ctx, _, value: _list_presets(ctx) if value else None,
              help="List the presets.")
@FORCE
@JSON
def generate(preset: str, rows: int, output: str, as_json: bool, **options: Any) -> None:
    """Make a realistic table of any size; the same seed makes the same rows."""
    from fastbayes.generate import generate as make

    given = {k: v for k, v in options.items() if v is not None}
    with _bar("generating", rows) as progress:
        done = make(preset, rows, output, progress=progress, **given)
    summary = vars(done) if hasattr(done, "__dict__") else done._asdict()
    _print(summary, as_json, lambda: _fields(summary))


def _list_presets(ctx: click.Context) -> None:
    from fastbayes.generate import presets

    for name, about in presets().items():
        click.echo(f"{name:<10} {about}")
    ctx.exit()


@main.command()
@JSON
def warmup(as_json: bool) -> None:
    """Compile every kernel now, so that the first job does not wait."""
    seconds = fb.warmup()
    _print(seconds, as_json, lambda: (f"{k:<10} {v:6.2f} s" for k, v in seconds.items()))


@main.command()
@JSON
def doctor(as_json: bool) -> None:
    """Say what this installation is and what is wrong with it."""
    from fastbayes.environment import doctor as examine

    checks = examine()
    result = {
        "versions": fb.show_versions(),
        "checks": [{"name": n, "ok": ok, "found": found} for n, ok, found in checks],
    }

    def lines() -> Iterator[str]:
        for name, value in result["versions"].items():  # type: ignore[attr-defined]
            yield f"{name:<20} {value if value is not None else '-'}"
        for name, ok, found in checks:
            yield f"{'ok' if ok else 'WRONG':<6} {name}: {found}"

    _print(result, as_json, lines)
    if not all(ok for _, ok, _ in checks):
        click.get_current_context().exit(1)
