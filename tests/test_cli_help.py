"""What commands say of themselves, and to a word that they do not know."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from commands import fails, parquet, run, tennis

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.cli.help import FEW, Documented
from fastbayes.cli.options import ModelOption, takers
from fastbayes.models.registry import by_name

PENGUINS = Path(fb.__file__).parent / "examples" / "penguins.csv"


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


COMMANDS = dict([((), main), *commands(main)])
NAMES = {" ".join(words): words for words in COMMANDS}


def flags(text: str) -> set[str]:
    """Return the long options of a help page that have a line of their own."""
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_help__ends_with_examples(name: str) -> None:
    command, shown = COMMANDS[NAMES[name]], run(*NAMES[name], "--help").stdout
    assert isinstance(command, Documented)
    lines = shown.split("Examples:\n")[1].splitlines()
    assert lines == [f"  {line}" for line in "\n".join(command.examples).splitlines()]
    assert max(map(len, lines)) <= 80


def test_examples__run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(PENGUINS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fb, "warmup", dict)  # minutes, in which nothing is shown that is not so
    examples = [line for one in COMMANDS.values() for line in one.examples]  # type: ignore[attr-defined]
    # Tables are made first.
    made = sorted(dict.fromkeys(examples), key=lambda line: "generate" not in line)
    assert len(made) > len(COMMANDS)
    for line in made:
        command, _, file = line.replace("\\\n", "").partition(" < ")
        program, *words = shlex.split(command)
        assert program == "fastbayes"
        run(*words, stdin=Path(file).read_bytes() if file else None)


@pytest.mark.parametrize("name", NAMES)
def test_examples__say_how_missing_values_are_written(name: str) -> None:
    command = COMMANDS[NAMES[name]]
    assert isinstance(command, Documented)
    if "null_values" not in {option.name for option in command.get_params(click.Context(command))}:
        return
    for example in command.examples:
        words = shlex.split(example)
        # No value of these two columns is missing, and an update takes it from the statistics.
        known = "penguins.csv" not in words or not {"island,year", "--update"}.isdisjoint(words)
        assert known or words[words.index("--null-values") + 1] == "NA"


def test_help__of_fit_shows_ten_options() -> None:
    short = flags(run("fit", "--help").stdout) - {"--help", "--help-all"}
    assert short >= {"--target", "--output", "--model", "--columns", "--missing"}
    assert 10 <= len(short) <= 12


@pytest.mark.parametrize("name", sorted({*NAMES} - {"", "network"}))
def test_help_all__shows_every_option(name: str) -> None:
    words = NAMES[name]
    command = COMMANDS[words]
    options = [o for o in command.get_params(click.Context(command)) if o.name != "help_all"]
    every = flags(run(*words, "--help-all").stdout)
    short = flags(run(*words, "--help").stdout) - {"--help-all"}
    for option in options:
        assert isinstance(option, click.Argument) or every & {*option.opts}
    assert short <= every
    assert len(short) <= FEW + 1
    assert (short == every) == (len(every) - 1 <= FEW)


@pytest.mark.parametrize("model", by_name())
def test_help__of_a_model_shows_what_it_takes(model: str) -> None:
    fit = COMMANDS[("fit",)]
    shown = flags(run("fit", "--model", model, "--help").stdout)
    assert shown == flags(run("fit", "-h", "--model", model).stdout)
    for option in fit.get_params(click.Context(fit)):
        if isinstance(option, ModelOption):
            assert (option.opts[0] in shown) == (model in takers(str(option.name)))
    assert {"--target", "--output", "--help"} <= shown
    assert "--help-all" in shown


@pytest.mark.parametrize("words", [["--help", "--model", "tann"], ["--model", "tann", "--help"]])
def test_help__of_a_model_that_is_not_there(tmp_path: Path, words: list[str]) -> None:
    assert "did you mean 'tan'?" in fails("fit", *words, folder=tmp_path, code=2)


# -- did you mean --------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory with data, a model and a network."""
    parquet(tennis(), tmp_path / "d.parquet")
    monkeypatch.chdir(tmp_path)
    run("fit", "d.parquet", "--target", "play", "-o", "m.fb")
    run("network", "learn", "d.parquet", "--columns", "sky,warmth,play", "-o", "n.bif")
    table = tennis().rename_columns(["sky", "warmth", "degrees", "played"])
    parquet(table.set_column(3, "play", [["ye"] * 1000]), tmp_path / "other.parquet")
    costs = '{"yes": {"yes": 0, "not": 1}, "no": {"yes": 1, "not": 0}}'
    (tmp_path / "loss.json").write_text(costs)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("predcit m.fb d.parquet", "predict"),
        ("network lern d.parquet", "learn"),
        ("fit d.parquet --traget play -o x.fb", "--target"),
        ("fit d.parquet --target play --model navie-bayes -o x.fb", "naive-bayes"),
        ("fit d.parquet --target Play -o x.fb", "play"),
        ("fit d.parquet --target pley -o x.fb", "play"),
        ("fit d.parquet --target play --weight degres -o x.fb", "degrees"),
        ("fit d.parquet --target play --columns sky,warmt -o x.fb", "warmth"),
        ("fit d.parquet --target play --categorical degree -o x.fb", "degrees"),
        ("fit d.parquet --target play --numeric gausian -o x.fb", "gaussian"),
        ("fit d.parquet --target play --numeric dergees=kde -o x.fb", "degrees"),
        ("fit d.parquet --target play --model tan --root skye -o x.fb", "sky"),
        ("fit d.parquet --target play --model aode --weights skye=1 -o x.fb", "sky"),
        ("fit d.parquet --target play --model logistic --class-weight yess=2 -o x.fb", "yes"),
        ("count d.parquet --target play --folds ski -o x.fbs", "sky"),
        ("compare d.parquet --target play --models tann,aode", "tan"),
        ("learning-curve d.parquet --target play --models tann", "tan"),
        ("predict m.fb d.parquet --keys skye -o x.csv", "sky"),
        ("predict m.fb d.parquet --loss loss.json -o x.csv", "no"),
        ("evaluate m.fb d.parquet --target playy", "play"),
        ("evaluate m.fb d.parquet --weight degres", "degrees"),
        ("evaluate m.fb other.parquet", "yes"),
        ("network query n.bif --target skyy", "sky"),
        ("network query n.bif -e sky=rian", "rain"),
        ("network show n.bif --separated sky wormth", "warmth"),
        ("network learn d.parquet --columns sky,wormth -o x.bif", "warmth"),
        ("network learn d.parquet --columns sky,warmth --required sky->wormth -o x.bif", "warmth"),
        ("network learn d.parquet --score bdue -o x.bif", "bdeu"),
        ("generate --preset flihgts --rows 5 -o x", "flights"),
    ],
)
def test_typo__gets_the_nearest(made: Path, line: str, meant: str) -> None:
    words = shlex.split(line)
    code = run(*words, code=None).exit_code
    said = fails(*words, folder=made, code=code)
    if meant:
        assert f"did you mean '{meant}'?" in said or f"did you mean '{meant}' or " in said
