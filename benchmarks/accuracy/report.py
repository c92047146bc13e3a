"""The figures as Markdown: means over tables, what each table shows, and what is claimed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.measured import BLEND, COMPARE
from benchmarks.accuracy.rivals import LIGHTGBM, RIVALS, VOTE
from benchmarks.accuracy.tables import N_FOLDS
from benchmarks.table import row

Floats = NDArray[np.float64]

# What is claimed of the tables whose folds are given.
MOST_NATS, MOST_ABOVE_LIGHTGBM, MOST_BIAS = 1.0, 0.1, 0.02
WEKA = "Weka "
# Of figures that say what a model says of itself: by whom.
SAID = {"held_out": "blend", "compared": "compare"}
THEIRS = (*RIVALS, VOTE)


@dataclass(frozen=True)
class Side:
    """A model on several tables.

    accuracy, log_loss, seconds  (n_tables,) means over the rows of the folds run, and the median
                                 seconds of a fold; NaN where there is none
    bias                         {who said it: (n_tables,) log-loss of test rows less the held-out
                                 one of the rows of training, means over the folds}
    """

    accuracy: Floats
    log_loss: Floats
    seconds: Floats
    bias: dict[str, Floats]

    @property
    def on(self) -> NDArray[np.bool_]:
        """The tables on which it has figures, of every fold."""
        return ~np.isnan(self.log_loss)


def sides_of(lines: list[dict[str, Any]]) -> dict[str, Side]:
    """Return every model's figures over some tables; Weka's where they are of the same folds."""
    names = dict.fromkeys(name for line in lines for name in line["models"])
    found = {name: _side(name, lines) for name in names}
    whole = [line["given_folds"] and len(line["folds"]) == N_FOLDS for line in lines]
    if all(whole):
        gap = np.full(len(lines), np.nan)
        for name in dict.fromkeys(name for line in lines for name in line["weka"]):
            figures = [line["weka"].get(name, {}) for line in lines]
            accuracy, log_loss = (
                np.array([f.get(what, np.nan) for f in figures])
                for what in ("accuracy", "log_loss")
            )
            found[WEKA + name] = Side(accuracy, log_loss, gap, {})
    return found


def _side(name: str, lines: list[dict[str, Any]]) -> Side:
    def mean(what: str) -> Floats:
        """Return the means over rows, NaN where a fold has no figure."""
        return np.array([_mean(line, name, what) for line in lines])

    losses = mean("log_loss")
    bias = {who: losses - mean(what) for what, who in SAID.items()}
    times = [line["models"].get(name, {}).get("seconds", [None]) for line in lines]
    seconds = [math.nan if None in each else float(np.median(each)) for each in times]
    bias = {who: each for who, each in bias.items() if not np.isnan(each).all()}
    return Side(mean("accuracy"), losses, np.array(seconds), bias)


def _mean(line: dict[str, Any], name: str, what: str) -> float:
    values = line["models"].get(name, {}).get(what, [None])
    return math.nan if None in values else float(np.average(values, weights=line["fold_rows"]))


def render(results: dict[str, Any]) -> str:
    """Return all of it as Markdown, with the machine, the versions and the date."""
    groups = {
        "tables with folds of their own": [t for t in results["tables"] if t["given_folds"]],
        "tables of scikit-learn": [t for t in results["tables"] if not t["given_folds"]],
    }
    parts = []
    for title, lines in groups.items():
        if lines:
            sides = sides_of(lines)
            parts += [*_means(f"{len(lines)} {title}", sides), ""]
            parts += [*_by_table(lines, sides), ""]
    claimed = groups["tables with folds of their own"]
    if claimed:
        parts += [*claims(sides_of(claimed), claimed), ""]
    return "\n".join([*parts, *_about(results)])


def _means(title: str, sides: dict[str, Side]) -> Iterator[str]:
    """Yield a table of every model beside the blend, each on the tables that it takes."""
    blend = sides[BLEND]
    yield row(
        [title, "tables", "accuracy", "log-loss", "blend's there", "blend better / worse",
         "training time, blend = 1", "test − held-out"]
    )  # fmt: skip
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"

    def rank(one: tuple[str, Side]) -> tuple[int, float]:
        side = one[1]
        return -int(side.on.sum()), float(side.log_loss[side.on].sum())

    for name, side in sorted(sides.items(), key=rank):
        on = side.on & blend.on
        if not on.any():
            continue
        ours, theirs = blend.log_loss[on], side.log_loss[on]
        ratio = np.exp(np.mean(np.log(side.seconds[on] / blend.seconds[on])))
        compared = f"{(ours < theirs).sum()} / {(ours > theirs).sum()}"
        yield row(
            [
                f"**{name}**" if name == BLEND else name,
                str(on.sum()),
                f"{side.accuracy[on].mean():.4f}",
                f"{theirs.mean():.4f}",
                "" if name == BLEND else f"{ours.mean():.4f}",
                "" if name == BLEND else compared,
                "" if np.isnan(ratio) else f"{ratio:.3g}",
                "<br>".join(_bias(who, each) for who, each in side.bias.items()),
            ]
        )


def _bias(who: str, each: Floats) -> str:
    mean, error, n = bias_of(each)
    spread = "" if math.isnan(error) else f" ± {error:.3f}"  # of a single table
    return f"{mean:+.3f}{spread} ({who}" + (f", {n})" if n < len(each) else ")")


def bias_of(each: Floats) -> tuple[float, float, int]:
    """Return the mean over tables, its standard error (NaN of one), and of how many."""
    each = each[~np.isnan(each)]
    error = each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    return float(each.mean()), float(error), len(each)


def _by_table(lines: list[dict[str, Any]], sides: dict[str, Side]) -> Iterator[str]:
    """Yield the log-loss of every table by those that matter, and the best of the others."""
    shown = [name for name in (BLEND, COMPARE, LIGHTGBM, VOTE) if name in sides]
    yield row(["log-loss", "rows", "columns", "classes", *shown, "best of all others"])
    yield "|---|--:|--:|--:|" + "--:|" * len(shown) + "---|"
    others = {name: side for name, side in sides.items() if name not in (BLEND, COMPARE)}
    for i, line in enumerate(lines):
        known = {n: side.log_loss[i] for n, side in others.items() if side.on[i]}
        best = min(known, key=known.__getitem__, default=None)
        columns = line["numeric"] + line["categorical"]
        yield row(
            [
                line["name"],
                *(f"{n:,}" for n in (line["rows"], columns, line["classes"])),
                *(_nats(sides[name].log_loss[i]) for name in shown),
                "" if best is None else f"{_nats(known[best])} {best}",
            ]
        )


def _nats(x: float) -> str:
    return "" if math.isnan(x) else f"{x:.3f}"


def claims(sides: dict[str, Side], lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is claimed of the tables with folds of their own, and whether it is missed."""
    blend = sides[BLEND]
    loss = blend.log_loss.mean()
    all_others = {n: s for n, s in sides.items() if n not in (BLEND, COMPARE)}
    # Who does not take every table is compared on those that it takes.
    ahead = {
        name: side.log_loss[side.on].mean()
        for name, side in all_others.items()
        if side.on.any() and side.log_loss[side.on].mean() <= blend.log_loss[side.on].mean()
    }
    said = f"mean log-loss {loss:.4f}, better than that of every other on the same tables"
    yield _claim(said, not ahead, ", ".join(f"{n} {v:.4f}" for n, v in ahead.items()))
    if VOTE in sides:
        ours, theirs = blend.accuracy.mean(), sides[VOTE].accuracy.mean()
        yield _claim(f"accuracy {ours:.4f}, at least the vote's {theirs:.4f}", ours >= theirs, "")
    worst = int(blend.log_loss.argmax())
    yield _claim(
        f"no table above {MOST_NATS:g} nats (most: {blend.log_loss[worst]:.3f}, "
        f"{lines[worst]['name']})",
        blend.log_loss[worst] <= MOST_NATS,
        "",
    )
    if LIGHTGBM in sides:
        above = blend.log_loss - sides[LIGHTGBM].log_loss
        most = int(above.argmax())
        yield _claim(
            f"none more than {MOST_ABOVE_LIGHTGBM:g} above LightGBM (most: {above[most]:+.3f}, "
            f"{lines[most]['name']})",
            above[most] <= MOST_ABOVE_LIGHTGBM,
            "",
        )
    off = []
    for name, side in sides.items():
        for who, each in side.bias.items():
            mean, error, _ = bias_of(each)
            if not (abs(mean) <= MOST_BIAS and abs(mean) <= 2 * error):
                off.append(f"{name} {mean:+.3f} ± {error:.3f} ({who})")
    yield _claim(
        f"test − held-out log-loss within ± {MOST_BIAS:g} and two standard errors of 0, of every "
        "model that says one",
        not off,
        "; ".join(off),
    )


def _claim(said: str, met: bool, why: str) -> str:
    return f"- {said}" if met else f"- {said}: **missed**" + (f" ({why})" if why else "")


def _about(results: dict[str, Any]) -> Iterator[str]:
    machine = results["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    n_folds = len(results["tables"][0]["folds"])
    folds = "Ten" if n_folds == N_FOLDS else f"{n_folds} of ten"
    yield (
        f"{folds} stratified folds. Means over tables; log-loss in nats. A model that does "
        "not take every table stands beside the blend on those that it takes. Training: processor "
        "seconds on one thread, the median fold of a table, geometric mean of the ratios. "
        "Test − held-out: the log-loss of test rows less what was said of the rows of training "
        "(by the blend of its members, by `compare`), ± a standard error over the tables. Weka's "
        "figures are recorded ones, of the same folds."
    )
    for name, package in results["absent"].items():
        yield f"Absent: {name} ({package} is not installed)."
    for line in results["tables"]:
        for name, why in line["failed"].items():
            first = next(iter(why.values()))
            folds = f"{len(why)} of {len(line['folds'])} folds"
            yield f"Without figures on {line['name']}: {name}, in {folds} ({first})."
    yield (
        f"{machine['processor']}, {machine['platform']}, Python {machine['python']}, {versions}. "
        f"{results['date'][:10]}."
    )
