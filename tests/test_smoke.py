"""One short trial of every model and of every command: what breaks most is seen in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pytest
from commands import parquet, run, tennis

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.models.registry import MODELS, by_name

TABLE = tennis(60)
NUMBERS = pa.table(
    {"a": np.arange(60) % 7 / 2, "b": np.arange(60) % 11 / 3, "y": ["n", "p", "p"] * 20}
)
CELLS = np.random.default_rng(0).integers(0, 3, (60, 4))


def fitted(name: str) -> tuple[Any, Any]:
    """Return a fitted model and rows for it."""
    model = MODELS[name].load()()
    if name == "GaussianBayes":
        return model.fit(NUMBERS, "y"), NUMBERS.drop_columns("y")
    if name == "Calibrated" or MODELS[name].name:
        return model.fit(TABLE, "play"), TABLE.drop_columns("play")
    return model.fit(CELLS, NUMBERS["y"].to_pylist()), CELLS


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, tmp_path: Path) -> None:
    model, rows = fitted(name)
    proba = model.predict_proba(rows)
    assert proba.shape == (60, len(model.classes_))
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
    assert {*model.predict(rows)} <= {*model.classes_}
    model.save(tmp_path / "model.fb")
    again = fb.load(tmp_path / "model.fb")
    assert type(again) is type(model)
    assert again.predict_proba(rows).tobytes() == proba.tobytes()
    assert repr(type(model)()) == f"{name}()"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return files by the words of the commands below that name them."""
    folder = tmp_path_factory.mktemp("smoke")
    found = {
        name: folder / name for name in ("half.fbs", "other.fbs", "model.fb", "net.bif", "out")
    }
    found["DATA"] = parquet(TABLE, folder / "data.parquet")
    for part, name in (("1/2", "half.fbs"), ("2/2", "other.fbs")):
        run("count", found["DATA"], "--target", "play", "--part", part, "-o", found[name])
    run("fit", found["DATA"], "--target", "play", "-o", found["model.fb"])
    run("network", "learn", found["DATA"], "--discretize", "quantile", "-o", found["net.bif"])
    return found


COMMANDS = {
    "compare": "DATA --target play --models naive-bayes,tan",
    "count": "DATA --target play -o out.fbs",
    "doctor": "",
    "evaluate": "model.fb DATA",
    "explain": "model.fb DATA --row 0",
    "fit": "DATA --target play --model tan -o out.fb",
    "generate": "--preset flights --rows 50 -o out",
    "inspect": "DATA --target play",
    "learning-curve": "DATA --target play --models naive-bayes --sizes 10,20 --repeats 2",
    "merge": "half.fbs other.fbs -o out.fbs",
    "network learn": "DATA --discretize width -o out.bif",
    "network query": "net.bif --target play",
    "network sample": "net.bif --rows 5 -o out.parquet",
    "network show": "net.bif",
    "predict": "model.fb DATA -o out.parquet",
    "warmup": None,  # compiles for a minute: in test_environment
}


def commands(group: click.Group, before: str = "") -> Iterator[str]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_has_a_trial() -> None:
    assert sorted(commands(main)) == sorted(COMMANDS)


@pytest.mark.parametrize("command", [c for c, args in COMMANDS.items() if args is not None])
def test_command(command: str, files: dict[str, Path], tmp_path: Path) -> None:
    def word(text: str) -> Any:
        return tmp_path / text if text.startswith("out") else files.get(text, text)

    run(*command.split(), *map(word, (COMMANDS[command] or "").split()))
    run(*command.split(), "--help")


def test_compare__knows_every_model_that_takes_part() -> None:
    board = fb.compare(TABLE, "play")
    always = {n for n, e in by_name().items() if any(c.when == "always" for c in e.candidates)}
    assert always <= {entry.name for entry in board.entries}
