"""The recipes of docs/engines.md run as they stand there, and do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from extras import needs, needs_java

import fastbayes as fb

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "engines.md").read_text("utf-8")


class Block(NamedTuple):
    """Code of the page: a file where it has a name, else to be run."""

    language: str
    name: str
    text: str


def blocks() -> dict[str, list[Block]]:
    """Return the code of the page by the headings above it."""
    found = defaultdict(list)
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        code = r"(?:^`([\w.]+)`:\n\n)?^```(\w+)\n(.*?)^```$"
        for name, language, text in re.findall(code, section, re.MULTILINE | re.DOTALL):
            found[heading].append(Block(language, name, text))
    return dict(found)


BLOCKS = blocks()


class Checked(NamedTuple):
    """What holds after a recipe of Python, and what it needs."""

    check: str
    needs: tuple[str, ...] = ()
    java: bool = False
    slow: bool = False


TREE = 'assert model.statistics_ == fb.TAN().fit("flights", "delayed").statistics_\n'
SAME = TREE + "assert same.statistics_ == model.statistics_\n"
ADDED = TREE + 'assert stats.allclose(fb.count("flights", "delayed"))\n'
PREDICTED = """
import pyarrow.parquet as pq
table = pq.read_table("predicted")
assert table.num_rows == 20_000
rows = table.select(pq.read_schema("flights/part-00000.parquet").names)
"""
LABELS = "assert table['prediction'].to_pylist() == model.predict(rows).tolist()\n"
POSTERIORS = """
proba = model.predict_proba(rows)
assert abs(table["proba_yes"].to_numpy() - proba[:, 1]).max() < 1e-12
"""
PIPELINE = """
from pyspark.ml.functions import vector_to_array
import fastbayes as fb
table = scored.withColumn("probability", vector_to_array("probability")).toArrow()
assert table.num_rows == 20_000
classifier = fb.load("delayed.fb")
assert "far" in classifier.feature_names_in_
assert table["prediction"].to_pylist() == classifier.predict(table).tolist()
proba = classifier.predict_proba(table)
assert all(abs(a - b).max() < 1e-12 for a, b in zip(table["probability"].to_numpy(), proba))
"""
# Spark repeats a batch whose commit it does not find.
REPEATED = """
assert fb.Statistics.load(COUNTED).allclose(fb.count("flights", "delayed"))
assert [entry.path for entry in model.statistics_.ledger] == [f"flights/{i}" for i in range(4)]
for commit in Path("checkpoint/commits").glob("*3*"):
    commit.unlink()
repeated, before = [], COUNTED.read_bytes()
again = stream.writeStream.foreachBatch(lambda rows, i: (repeated.append(i), add(rows, i)))
again = again.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
again.start().awaitTermination()
assert repeated == [3], repeated
assert COUNTED.read_bytes() == before
"""
FLIGHT = """
assert predicted["prediction"].to_pylist() == model.predict(rows.slice(0, 1000)).tolist()
proba = model.predict_proba(rows.slice(0, 1000))
assert abs(predicted["proba_yes"].to_numpy() - proba[:, 1]).max() < 1e-12
assert stats.allclose(fb.count(rows, "delayed"))
"""
HTTP = """
from urllib.error import HTTPError
proba = model.predict_proba(features)
assert single["prediction"] == model.predict(features)[0]
assert abs(single["proba"]["yes"] - proba[0, 1]) < 1e-12
assert table["prediction"].to_pylist() == model.predict(features).tolist()
assert abs(table["proba_yes"].to_numpy() - proba[:, 1]).max() < 1e-12
threading.Thread(target=server.serve_forever, daemon=True).start()
for kind, body, why in (
    ("application/json", b'{"carrier": "AA"}', "no column"),
    ("application/json", b"{", "Expecting"),
    ("application/json", b"[" * 100_000, "recursion"),
    (ARROW, b"x", "Corrupted"),
):
    try:
        ask(kind, body)
        raise SystemExit("it was taken")
    except HTTPError as error:
        said = error.read().decode()
        assert error.code == 400 and why in said, said
server.shutdown()
"""
PYTHON = {
    "Processes of this machine": Checked(TREE),
    "Dask": Checked(SAME + PREDICTED + LABELS, ("distributed", "dask.dataframe"), slow=True),
    "Spark": Checked(SAME + PREDICTED + POSTERIORS, ("pyspark",), java=True, slow=True),
    "Pipeline of Spark": Checked(PIPELINE, ("pyspark",), java=True, slow=True),
    "Structured Streaming": Checked(REPEATED, ("pyspark",), java=True, slow=True),
    "Whatever maps": Checked(ADDED),
    "Ray": Checked(ADDED, ("ray",), slow=True),
    "Arrow Flight": Checked(FLIGHT, ("pyarrow.flight",)),
    "HTTP": Checked(HTTP),
}
SHELL = ["Array of SLURM", "Indexed job of Kubernetes", "A window of days", "Airflow"]


def test_every_recipe_is_run() -> None:
    assert [*BLOCKS] == ["Recipes for engines", *(h for h in BLOCKS if h in {*PYTHON, *SHELL})]
    assert len(BLOCKS) == 1 + len(PYTHON) + len(SHELL)
    assert sum(map(len, BLOCKS.values())) == PAGE.count("\n```") / 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the data that the page begins with."""
    path = tmp_path_factory.mktemp("data")
    (block,) = BLOCKS["Recipes for engines"]
    run(path, sys.executable, "-c", block.text)
    return path


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """Return a directory where a recipe runs: with the data, and `fastbayes` as a command."""
    for name in ("flights", "lake"):
        (tmp_path / name).symlink_to(data / name)
    command = f'exec {shlex.quote(sys.executable)} -m fastbayes "$@"'
    program(tmp_path, "fastbayes", f"#!/bin/sh\n{command}\n")
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    """Write a program that recipes find by its name."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(text)
    (folder / "bin" / name).chmod(0o755)


def run(folder: Path, *command: str) -> None:
    """Run a command in a directory; it must end with exit code 0."""
    spark = "--master local[2] --conf spark.ui.enabled=false --conf "
    spark += "spark.ui.showConsoleProgress=false pyspark-shell"
    variables = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "PYSPARK_SUBMIT_ARGS": spark,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


def script(heading: str, folder: Path) -> str:
    """Write the files of a recipe, and return what is to be run."""
    for block in BLOCKS[heading]:
        if block.name:
            (folder / block.name).write_text(block.text)
    return "\n".join(block.text for block in BLOCKS[heading] if not block.name)


def marked(heading: str) -> object:
    return pytest.param(heading, marks=[pytest.mark.slow] * PYTHON[heading].slow)


@pytest.mark.parametrize("heading", [*map(marked, PYTHON)])
def test_python(heading: str, folder: Path) -> None:
    checked = PYTHON[heading]
    needs(*checked.needs)
    if checked.java:
        needs_java()
    check = "\n".join(f"    {line}" for line in checked.check.splitlines())
    text = f'{script(heading, folder)}\nif __name__ == "__main__":\n{check}\n'
    (folder / "recipe.py").write_text(text)
    run(folder, sys.executable, "recipe.py")


@pytest.mark.slow
def test_window(folder: Path) -> None:
    first, nightly = (block.text for block in BLOCKS["A window of days"])
    run(folder, "bash", "-euc", first)
    run(folder, "bash", "-euc", nightly)
    once = (folder / "w.fbs").read_bytes()
    run(folder, "bash", "-euc", nightly)
    assert (folder / "w.fbs").read_bytes() == once
    expected = fb.count([folder / "lake" / f"day-{i}" for i in range(2, 9)], "delayed")
    assert fb.Statistics.load(folder / "w.fbs").allclose(expected, 1e-9)


def whole(folder: Path) -> fb.Statistics:
    """Return what the parts of an array add up to."""
    schema = fb.Statistics.load(folder / "schema.fbs")
    return fb.count(folder / "flights", "delayed", pairs=True, schema=schema)


# Runs at once what it is given, of an array every task.
SBATCH = """#!/bin/bash
set -eu
while [ $# -gt 0 ]; do
    case $1 in
        --parsable | --wait | --dependency=afterok:7) shift ;;
        --wrap) exec bash -euc "$2" ;;
        *) script=$1; shift ;;
    esac
done
last=$(sed -n 's/^#SBATCH --array=1-//p' "$script")
for task in $(seq "$last"); do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$last bash "$script" >&2
done
echo 7
"""


@pytest.mark.slow
def test_slurm(folder: Path) -> None:
    program(folder, "sbatch", SBATCH)
    run(folder, "bash", "-euc", script("Array of SLURM", folder))
    assert fb.Statistics.load(folder / "all.fbs") == whole(folder)
    assert isinstance(fb.load(folder / "tan.fb"), fb.TAN)
    before = {path: path.read_bytes() for path in folder.glob("part-?.fbs")}
    assert len(before) == 4
    run(folder, "sbatch", "count.sbatch")  # every task once more
    assert before == {path: path.read_bytes() for path in before}


# Runs the pods of a job one after another, the first of them once more than it needs.
KUBECTL = f"""#!{sys.executable}
import os, subprocess, sys, yaml

if sys.argv[1:3] == ["apply", "-f"]:
    job = yaml.safe_load(open(sys.argv[3]))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["completionMode"] == "Indexed"
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {{m["name"] for m in container["volumeMounts"]}} == {{v["name"] for v in pod["volumes"]}}
    for i in [0, *range(job["spec"]["completions"])]:
        given = os.environ | {{"JOB_COMPLETION_INDEX": str(i)}}
        subprocess.run([*container["command"], *container["args"]], env=given, check=True)
else:
    assert sys.argv[1] == "wait" and sys.argv[-1] == "job/" + "count", sys.argv
"""


@pytest.mark.slow
def test_kubernetes(folder: Path) -> None:
    needs("yaml")
    program(folder, "kubectl", KUBECTL)
    run(folder, "bash", "-euc", script("Indexed job of Kubernetes", folder))
    assert fb.Statistics.load(folder / "all.fbs") == whole(folder)


# What the recipe uses of Airflow, of which nothing runs: the commands are read off.
AIRFLOW = """
TASKS, AFTER = [], []


class CronDataIntervalTimetable:
    def __init__(self, cron, timezone):
        pass


class DAG:
    def __init__(self, dag_id, *, schedule, start_date, catchup, max_active_runs, default_args):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


class BashOperator:
    def __init__(self, *, task_id, bash_command, cwd):
        self.command = bash_command
        TASKS.append(self)

    def __rshift__(self, after):
        AFTER.append((self, after))
        return after
"""
NIGHT = """
from datetime import date, timedelta
from types import SimpleNamespace
import subprocess
import jinja2
from airflow.sdk import AFTER, TASKS

assert AFTER == [*zip(TASKS, TASKS[1:])]
macros = SimpleNamespace(ds_add=lambda ds, n: str(date.fromisoformat(ds) + timedelta(n)))
for task in TASKS:
    command = jinja2.Template(task.command).render(ds="2026-01-08", macros=macros)
    for attempt in range(2):
        subprocess.run(["bash", "-euc", command], check=True)
"""


@pytest.mark.slow
def test_airflow(folder: Path, data: Path) -> None:
    """Airflow itself is too much for a test: a stand-in reads the commands, which run twice."""
    needs("jinja2")
    operators = "airflow/providers/standard/operators/bash.py"
    imported = "from airflow.sdk import BashOperator\n"
    for path, text in (("airflow/sdk.py", AIRFLOW), (operators, imported)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "lake").unlink()
    (folder / "lake").mkdir()
    days = []
    for i in range(1, 9):
        day = folder / "lake" / f"2026-01-{i:02}"
        day.symlink_to(data / "lake" / f"day-{i}")
        days.append(fb.count(day, "delayed"))
    first, nightly = (block.text for block in BLOCKS["Airflow"])
    run(folder, "bash", "-euc", first)
    (folder / "recipe.py").write_text(f"{nightly}\n{NIGHT}")
    run(folder, sys.executable, "recipe.py")
    assert fb.Statistics.load(folder / "week.fbs").allclose(fb.merge(days[1:]), 1e-9)
    assert isinstance(fb.load(folder / "delayed.fb"), fb.NaiveBayes)
