"""Commands about counts and what is in a file: count, merge, inspect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import fastbayes as fb
from fastbayes.cli.help import COMMON, BriefCommand
from fastbayes.cli.network import describe
from fastbayes.cli.options import (
    DISCRETIZE,
    FILES,
    FORCE,
    JSON,
    MEMORY_LIMIT,
    NUMERIC,
    READING,
    STDIN,
    TARGET,
    THREADS,
    Range,
    check_file,
    files_of,
    folds,
    given,
    of_columns,
    output,
    rejected,
    statistics_from,
)
from fastbayes.cli.progress import bar
from fastbayes.cli.show import (
    blended,
    calibration,
    coefficient_lines,
    coefficients,
    fields,
    learned,
    listed,
    said_in_words,
    said_of,
    show,
    size,
    table,
    text,
)
from fastbayes.core.date_parts import PARTS, holds
from fastbayes.core.domains import decoded, default_kind
from fastbayes.core.files import (
    DIGEST_KEY,
    HEADER_KEY,
    Version,
    atomic,
    check_apart,
    check_target,
    version_of,
)
from fastbayes.core.text_tables import visible
from fastbayes.data.lake_tables import delta_table
from fastbayes.data.source import open_source
from fastbayes.scan.density_spec import DensitySpec
from fastbayes.scan.outputs.prediction_metadata import said_by_file, said_by_table

LARGEST = 5  # pairs that are named


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes count penguins.csv --target island --pairs \\\n"
        "    --null-values NA -o penguins.fbs",
        "fastbayes fit --statistics penguins.fbs --model tan -o of-counts.fb",
        "fastbayes count penguins.csv --target island --pairs --update -o penguins.fbs",
        "fastbayes count 'flights/*.parquet' --target delayed --part 1/2 -o part-1.fbs",
        "fastbayes count 'flights/*.parquet' --target delayed --part 2/2 -o part-2.fbs",
    ],
)
@click.argument("data", nargs=-1, required=True)
@TARGET
@output("File to write (.fbs).")
@click.option(
    "--part",
    metavar="I/N",
    help="Count one of N parts of the files, of about as many bytes each: 1/N to N/N.",
)
@click.option(
    "--schema",
    type=click.Path(),
    metavar="FILE",
    help="Take columns, declared values and cut points from statistics, so that both merge.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Count those files alone that are not in OUTPUT yet, and add them to it.",
    **COMMON,
)
@click.option(
    "--checkpoint",
    type=click.Path(),
    help="Directory that keeps the work done: the same command goes on after a stop.",
)
@click.option(
    "--checkpoint-seconds",
    type=Range(0),
    metavar="S",
    help="Least time between two writes of the checkpoint; default: 20, 0: as often as can be.",
)
@click.option(
    "--pairs", is_flag=True, help="Count pairs of values, for SPODE, TAN and AODE.", **COMMON
)
@click.option("--triples", is_flag=True, help="Count triples and pairs of values, for A2DE.")
@click.option(
    "--scatter", is_flag=True, help="Take scatter matrices of numeric columns, for GaussianBayes."
)
@click.option(
    "--cells",
    is_flag=True,
    help="Count the joint values of all categorical columns, for JointBayes and JointGaussian.",
)
@click.option(
    "--cell-scatter",
    is_flag=True,
    help="Take scatter matrices of numeric columns in each cell, for JointGaussian.",
)
@NUMERIC
@DISCRETIZE
@click.option(
    "--folds",
    callback=folds,
    metavar="K|COLUMN",
    help="Count K folds of the rows apart, or one for each value of a column.",
)
@READING
@FILES
@FORCE
@JSON
def count(
    data: tuple[str, ...],
    target: str,
    output: str,
    part: str | None,
    schema: str | None,
    update: bool,
    numeric: Any,
    discretize: Any,
    folds: int | str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Count DATA once into a file of statistics.

    A job of many machines counts a part on each (--part), and merge adds them up. A job of every
    day counts what is new (--update): run again, it changes nothing.
    """
    # A job that is run again once it is complete must not fail.
    again = options["checkpoint"] is not None and not force and Path(output).exists()
    # What is updated are statistics, and no data.
    check_file(output, *(() if update else data), schema, force=force or update or again)
    if STDIN in data and (update or part):
        flag = "--update" if update else "--part"
        raise click.UsageError(f"{flag} goes with files, not with standard input (-)")
    if update and (part or schema):
        raise click.UsageError("--update goes without --part and --schema")
    if (update or schema) and discretize is not None:
        raise click.UsageError("--discretize goes without --update and --schema, which say that")
    if schema is not None:
        options["schema"] = statistics_from(schema)
    before = version_of(output) if update else None
    if update:
        options["update"] = statistics_from(output) if before else True
    files = source = files_of(data[0] if len(data) == 1 else [*data], options)
    if isinstance(files, fb.Files) and files.on_error != "stop":
        options["on_error"] = "skip"
    if part is not None:
        source = fb.engines.part(source, *_numbers_of(part))
    if numeric is not None:
        options["numeric"] = numeric
    if discretize is not None:
        cut = numeric is not None and DensitySpec(numeric).cut
        if options["cells"] and not options["cell_scatter"]:
            cut, options["families"] = True, []  # none, but their columns are cut
        if not (options["pairs"] or options["triples"] or cut):
            raise click.UsageError(
                "--discretize goes with --pairs, --triples, --cells or --numeric mdl"
            )
        options["discretize"] = of_columns(discretize, options["columns"], options["exclude"])
    if folds is not None:
        options["folds"] = folds
    with bar("counting", source) as steps:
        # What is complete has no rows to be read.
        progress = partial(_refuse, output) if again else steps
        stats = fb.count(source, target, progress=progress, **options)
    if again and stats != statistics_from(output):
        _refuse(output)
    done = again or stats is options.get("update")
    if not done:
        _save(stats, output, force=force or update, before=before)
    _report(stats, output, as_json, "already complete: " * done, **rejected(files))


def _save(stats: fb.Statistics, output: str, *, force: bool, before: Version | None) -> None:
    """Write statistics; what they were added to, its version `before`, may not be another now."""
    blob = stats.to_bytes()
    with atomic(output, force=force, expecting=before) as temporary:
        temporary.write_bytes(blob)


def _refuse(output: str, _: int = 0) -> None:
    check_target(output, force=False)


def _numbers_of(part: str) -> tuple[int, int]:
    i, slash, n = part.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise click.BadParameter(f"{part!r}: write 1/8 for the first of eight, to 8/8")
    return int(i), int(n)


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes merge part-1.fbs part-2.fbs -o flights.fbs",
        "fastbayes merge flights.fbs --minus part-1.fbs -o rest.fbs",
    ],
)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--minus",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Take the rows of this file out; may be given several times.",
)
@click.option(
    "--allow-overlap",
    is_flag=True,
    help="Let rows count that are in already, and take rows out that are not known to be in.",
)
@output("File to write (.fbs); it may be one of FILES.")
@FORCE
@JSON
def merge(
    files: tuple[str, ...],
    minus: tuple[str, ...],
    allow_overlap: bool,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Add the statistics of several FILES into one.

    Data that two of them were counted from are refused, since their rows would count twice. With
    --minus a window slides: merge w.fbs today.fbs --minus old.fbs -o w.fbs. Run again, that
    changes nothing.
    """
    added = {Path(path).resolve() for path in files}
    before = version_of(output) if Path(output).resolve() in added else None
    force = force or before is not None
    check_target(output, force=force)
    check_apart(output, (path for path in minus if Path(path).resolve() not in added))
    if not allow_overlap:
        _once(files, "count double")
        _once(minus, "be taken out twice")
    total = fb.merge(files, minus=minus, allow_overlap=allow_overlap)
    _save(total, output, force=force, before=before)
    _report(total, output, as_json)


def _once(paths: Sequence[str], happens: str) -> None:
    """Raise DataError where one file is named twice, to whose rows that would happen."""
    seen: set[Path] = set()
    for path in paths:
        if (real := Path(path).resolve()) in seen:
            raise fb.DataError(
                f"{path} is named twice; its rows would {happens}: name it once, or allow the "
                "overlap (--allow-overlap)"
            )
        seen.add(real)


def _report(
    stats: fb.Statistics, output: str, as_json: bool, before: str = "", **more: Any
) -> None:
    if before and not as_json:
        click.echo(visible(f"{before}{output}"))
    summary = {**_statistics(stats), **more, "output": output}
    show(summary, as_json, _lines(summary))


@click.command(
    cls=BriefCommand,
    examples=[
        "fastbayes inspect penguins.csv --target species",
        "fastbayes inspect penguins.fb",
        "fastbayes inspect penguins.fbs --json",
    ],
)
@click.argument("path")
@click.option("--target", help="Column of DATA that holds the class.")
@click.option("--pairs", is_flag=True, help="Plan to count pairs of values, too.")
@click.option("--triples", is_flag=True, help="Plan to count triples and pairs of values, too.")
@click.option("--scatter", is_flag=True, help="Plan to take scatter matrices, too.")
@NUMERIC
@DISCRETIZE
@FILES
@MEMORY_LIMIT
@THREADS
@JSON
@click.pass_context
def inspect(
    ctx: click.Context, /, path: str, target: str | None, as_json: bool, **planning: Any
) -> None:
    """Say what is in a model, statistics or DATA.

    Of DATA: the columns, how they would be used, and the memory that counting them needs.
    """
    ours = path != STDIN and _written_by_us(path)
    for option, _ in given(ctx, {"target": target, **planning}).values() if ours else ():
        raise click.UsageError(
            f"{option} goes with DATA: {path} is a file of a model or statistics.", ctx
        )
    source = files_of(path, planning)
    if not ours:
        for name in ("numeric", "discretize"):
            if planning[name] is None:
                del planning[name]
        summary = _data(source, target, planning)
        show(summary, as_json, _data_lines(summary))
        return
    held = fb.load(path)
    if isinstance(held, fb.BayesianNetwork):
        describe(held, as_json)
        return
    stats = held if isinstance(held, fb.Statistics) else held.statistics_
    if not isinstance(stats, fb.Statistics):
        raise fb.SchemaError(
            f"{path}: holds a model of bare arrays, without named columns; fastbayes.load it in "
            "Python, where model.table('x0') says what it learned"
        )
    summary = _statistics(stats)
    inner = held.model_ if isinstance(held, fb.Calibrated) else held
    found = {} if held is stats else {**learned(inner), **calibration(held), **blended(held)}
    parents = found.pop("parents", {})
    if held is not stats:
        made = {"model": repr(held), "digest": held.digest(), "parameters": held.n_parameters_}
        summary = {**made, **found, **summary}
    missing = _missing(stats)
    summary["columns"] = {
        f.name: {
            "kind": f.kind,
            "values": None if f.values is None else f.values.to_pylist(),
            "declared": f.declared,
            **({} if f.cuts is None else {"cuts": f.cuts.tolist(), "bins": f.intervals}),
            **({"parents": parents[f.name]} if f.name in parents else {}),
            **({"missing": missing[f.name]} if f.name in missing else {}),
            **({} if held is stats else said_of(inner, f.name)),
        }
        for f in stats.schema.features
    }
    if held is not stats:
        summary |= coefficients(inner)
    show(summary, as_json, _lines(summary))


def _written_by_us(path: str) -> bool:
    """Return whether a file is a model or statistics, by its suffix or by what it holds."""
    if path.endswith((".fb", ".fbs")):
        return True
    try:
        with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
            return {HEADER_KEY, DIGEST_KEY} <= {*(reader.schema.metadata or {})}
    except (OSError, pa.ArrowException):
        return False  # opening it as data says what is wrong


def _statistics(stats: fb.Statistics) -> dict[str, Any]:
    schema = stats.schema
    labels, counts = schema.classes.to_pylist(), stats.values.class_counts.tolist()
    return {
        "target": schema.target,
        "total_weight" if stats.weighted else "rows": stats.n_rows,
        "rows_without_class": stats.dropped_rows,
        "classes": {str(label): n for label, n in zip(labels, counts, strict=True)},
        "categorical": {f.name: f.size for f in schema.categorical},
        "numeric": [f.name for f in schema.numeric],
        "missing": schema.missing,
        "null_values": schema.null_values,
        "bytes": stats.nbytes,
        "counts": {name: _count(part) for name, part in stats.parts.items()},
        **({"folds": len(stats.folds)} if stats.folds else {}),
        "source": [*(p for file in stats.ledger for p in file.paths), *stats.provenance],
    }


def _missing(stats: fb.Statistics) -> dict[str, float]:
    """Return the share of the rows in which each column is missing, where that was counted."""
    schema, total, values = stats.schema, max(float(stats.n_rows), 1e-300), stats.values
    lost = dict(zip([f.name for f in schema.categorical], values.missing.sum(axis=1), strict=True))
    known = None
    if "moments" in stats.parts:
        known = stats.moments.count.sum(axis=1)
    elif "scatter" in stats.parts:
        known = stats.scatter.known().sum(axis=0)
    if known is not None:
        lost |= zip([f.name for f in schema.numeric], stats.n_rows - known, strict=True)
    return {name: float(n) / total for name, n in lost.items()}


def _count(part: Any) -> dict[str, int]:
    """Return how much one kind of counts holds: bytes, and groups of features if it has them."""
    groups = {} if part.n_groups is None else {"groups": part.n_groups}
    return {**groups, "bytes": part.nbytes}


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    columns = summary.get("columns", {})
    categorical = summary["categorical"]
    n_values = sum(categorical.values())
    shown = {
        **summary,
        "categorical": f"{len(categorical):,} columns of {n_values:,} values together"
        if categorical
        else None,
        "numeric": f"{len(summary['numeric']):,} columns" if summary["numeric"] else None,
        "bytes": None,
        "columns": None,
        "coefficients": None,
        "counts": [
            f"{count['groups']:,} {name} in {size(count['bytes'])}"
            for name, count in summary["counts"].items()
            if "groups" in count
        ],
        "size": size(summary["bytes"]),
        "output": summary.get("output"),
    }
    yield from fields(shown)
    given = any(column.get("parents") for column in columns.values())
    rows = [
        (name, *_given(column, given), *_domain(column), *said_in_words(column))
        for name, column in columns.items()
    ]
    yield from table(rows)
    if "coefficients" in summary:
        yield from coefficient_lines(summary["coefficients"])


def _given(column: dict[str, Any], given: bool) -> tuple[str, ...]:
    """Return what a column depends on, where any column depends on another."""
    parents = column.get("parents")
    return (f"given {' and '.join(parents)}" if parents else "",) * given


def _domain(column: dict[str, Any]) -> tuple[str, str]:
    if column["values"] is None:
        return "numeric", ""
    if "bins" in column:
        n_bins = len(column["bins"])
        return f"{n_bins:,} bin{'s' * (n_bins != 1)}", listed(column["bins"])
    declared = " (declared)" if column["declared"] else ""
    values = [text(value) for value in column["values"]]
    return f"{len(values):,} values{declared}", listed(values)


def _data(data: Any, target: str | None, planning: dict[str, Any]) -> dict[str, Any]:
    source = open_source(data)
    columns: dict[str, dict[str, Any]] = {}
    for field in source.schema:
        columns[field.name] = {"type": str(decoded(field.type))}
    for name, why in source.handed_over().items():
        columns[name]["by_pyarrow"] = why
    if "discretize" in planning:
        planning["discretize"] = of_columns(planning["discretize"], source.schema.names)
    plan = fb.plan(data, target, **planning)
    for name, column in columns.items():
        if name == target:
            column["kind"] = "target"
        elif name in source.index_columns:
            column["kind"] = "index"
        elif name in plan.unusable:
            column |= {"kind": "unusable", "why": plan.unusable[name]}
        else:
            kind = source.schema.field(name).type
            column["kind"] = holds(kind) or default_kind(name, kind)
            parts = [f"{name}.{part}" for part in PARTS.get(column["kind"], ())]
            column["bytes"] = sum(plan.columns[part] for part in parts or [name])
    delta = delta_table(data) if isinstance(data, str) else None
    if delta is not None:
        made = said_by_table(delta)
    else:
        made = said_by_file(source.versions[0][0]) if source.versions else None
    return {
        "source": source.description,
        **({} if made is None else {"predictions": made}),
        "rows": source.n_rows,
        "target": target,
        "columns": columns,
        "plan": {
            "bytes": plan.total,
            "reading_bytes": plan.reading,
            "classes": plan.n_classes,
            "exact": plan.exact,
            **({} if plan.pairs is None else {"pairs": _pairs(plan.pairs)}),
        },
    }


def _pairs(plan: Any) -> dict[str, Any]:
    blocks = plan.blocks()
    largest = blocks.sort_by([("bytes", "descending")]).slice(0, LARGEST)
    return {
        "bytes": plan.total,
        "groups": len(blocks),
        "scans": plan.scans,
        "strategies": plan.strategies,
        "largest": largest.to_pylist(),
    }


def _data_lines(summary: dict[str, Any]) -> Iterator[str]:
    plan = summary["plan"]
    least = "" if plan["exact"] else "at least "
    rest = "" if summary["target"] else " for each class; --target COLUMN tells how many"
    rows = "unknown before they are read" if summary["rows"] is None else summary["rows"]
    yield from fields(
        {
            "source": summary["source"],
            **_predictions(summary.get("predictions")),
            "rows": rows,
            "target": summary["target"],
            "counting": f"needs {least}{size(plan['bytes'])}{rest}",
            "reading": f"takes about {size(plan['reading_bytes'])}",
            **_pair_fields(plan.get("pairs"), least),
        }
    )
    yield from table(
        [
            (name, column["type"], column["kind"], _needs(column), _reader(column))
            for name, column in summary["columns"].items()
        ]
    )


def _predictions(made: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a file says of the model whose predictions it holds."""
    if made is None:
        return {}
    said = {name: made.get(name) for name in ("written_by", "classes")}
    return {
        "predictions of": made.get("target"),
        "model": made.get("model"),
        "digest": made.get("digest"),
        **said,
    }


def _pair_fields(pairs: dict[str, Any] | None, least: str) -> dict[str, Any]:
    if pairs is None:
        return {}
    scans = pairs["scans"]
    several = ""
    if scans is None:
        most = pairs["largest"][0]
        alone = f"{most['feature_a']} x {most['feature_b']}"
        several = f", over the limit, as {alone} is alone: models of pairs refuse"
    elif scans > 1:
        several = (
            f", over the limit: TAN and KDB take {scans:,} scans, and refuse if the pairs that "
            "they keep exceed it; others refuse"
        )
    return {
        "pairs": f"{pairs['groups']:,} need {least}{size(pairs['bytes'])}{several}",
        "counted by": pairs["strategies"],
        "largest": [
            f"{block['feature_a']} x {block['feature_b']} {size(block['bytes'])}"
            for block in pairs["largest"]
        ],
    }


def _needs(column: dict[str, Any]) -> str:
    needed = size(column["bytes"]) if "bytes" in column else ""
    return str(column.get("why", needed))


def _reader(column: dict[str, Any]) -> str:
    return f"read by pyarrow: {column['by_pyarrow']}" if "by_pyarrow" in column else ""


COMMANDS = (count, merge, inspect)
