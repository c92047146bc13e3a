"""`predict` as a filter: what comes over a pipe is answered as a file of it would be."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from commands import parquet, run, tennis

import fastbayes as fb
from fastbayes.cli import EXIT_CODES, main
from fastbayes.data import pipes, text
from fastbayes.data.pipes import Pipe
from fastbayes.data.source import open_source
from fastbayes.scan.outputs.json_lines import lines_of

ROWS = 3000
PROGRAM = [sys.executable, "-m", "fastbayes"]


def table_of(rows: int = ROWS) -> pa.Table:
    ids = pa.array([f"row {i}" for i in range(rows)])
    return tennis(rows).drop_columns("play").add_column(0, "id", ids)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    run("fit", parquet(tennis(), folder / "d.parquet"), "--target", "play", "-o", folder / "m.fb")
    return folder / "m.fb"


def as_csv(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pc.write_csv(table, sink)
    return sink.getvalue()


def as_json(table: pa.Table) -> bytes:
    return b"".join(lines_of(batch).to_pybytes() for batch in table.to_batches())


def as_stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return sink.getvalue()


def as_arrow_file(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return sink.getvalue()


INPUTS = {"csv": as_csv, "jsonl": as_json, "ipc": as_stream, "arrow": as_arrow_file}
OUTPUTS = {"csv": ".csv", "jsonl": ".jsonl", "ipc": ".arrow", "parquet": ".parquet"}


def piped(given: bytes, *args: Any, code: int = 0) -> tuple[bytes, str]:
    """Run a command with something on its standard input; return what it prints on each."""
    done = CliRunner().invoke(main, [str(arg) for arg in args], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout_bytes, done.stderr


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a few thousand bytes at a time, and keep a few of them."""
    for name in ("BLOCK_BYTES", "LEAST_INFER_BYTES"):
        monkeypatch.setattr(text, name, 5000)
    monkeypatch.setattr(text, "_HEADER_BYTES", 1000)
    monkeypatch.setattr(pipes, "KEPT_BYTES", 12_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("to", OUTPUTS)
@pytest.mark.parametrize("given", INPUTS)
def test_pipe__says_what_a_file_would(model: Path, tmp_path: Path, given: str, to: str) -> None:
    held = INPUTS[given](table_of())
    (data := tmp_path / f"d.{'arrow' if given == 'ipc' else given}").write_bytes(held)
    asked = ["--proba", "--format", to]
    run("predict", model, data, *asked, "-o", (file := tmp_path / f"o{OUTPUTS[to]}"))
    printed, said = piped(held, "predict", model, "-", *asked, "-o", "-")
    assert said == ""
    if to == "ipc":
        assert pa.ipc.open_stream(printed).read_all() == pa.ipc.open_file(file).read_all()
    elif to == "parquet":
        assert pq.read_table(io.BytesIO(printed)) == pq.read_table(file)
    else:
        assert printed == file.read_bytes()
    # The same from a pipe into a file, from a file into a pipe, and where the format is said.
    run("predict", model, data, *asked, "--force", "-o", file)
    assert piped(b"", "predict", model, data, *asked, "-o", "-")[0] == printed
    as_said = "ipc" if given == "arrow" else given
    options = [*asked, "--input-format", as_said, "--force", "-o", tmp_path / f"p{OUTPUTS[to]}"]
    piped(held, "predict", model, "-", *options)
    assert (tmp_path / f"p{OUTPUTS[to]}").read_bytes() == file.read_bytes()


def test_pipe__csv_is_the_default_output(model: Path) -> None:
    printed, _ = piped(as_stream(table_of(9)), "predict", model, "-", "--keys", "id", "-o", "-")
    names, first, *_ = printed.decode().splitlines()
    assert (names, first[:9]) == ('"id","prediction"', '"row 0","')


def test_pipes__one_after_another(model: Path) -> None:
    """What one prints another reads: an Arrow stream keeps types and columns."""
    keys = ["--keys", "id,sky,warmth,degrees"]
    given = as_csv(table_of())
    first, _ = piped(given, "predict", model, "-", *keys, "--format", "ipc", "-o", "-")
    second, _ = piped(first, "predict", model, "-", "--keys", "id", "-o", "-")
    once, _ = piped(given, "predict", model, "-", "--keys", "id", "-o", "-")
    assert second == once


# -- what cannot be


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("row", [1, 2900])
def test_pipe__errors_name_the_row(model: Path, kind: str, row: int) -> None:
    table = table_of()
    degrees = [20.5] * ROWS
    lines = INPUTS[kind](table.set_column(3, "degrees", pa.array(degrees))).splitlines(True)
    at = row + (kind == "csv")  # behind the row of names
    lines[at] = lines[at].replace(b"20.5", b"warm" if kind == "csv" else b'"warm"')
    _, said = piped(b"".join(lines), "predict", model, "-", "-o", "-", code=1)
    assert f"stdin, row {row}: column 'degrees'" in said
    assert "warm" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "stdin is empty"),
        (b"sky\nrain\n", "no column 'warmth' in stdin"),
        (b"PAR1....", "stdin is Parquet, which is not read from its beginning; name the file"),
        (b"\x1f\x8b......", "stdin is compressed by gzip; name the file, or unpack it"),
        (b"\xff\xff\xff\xff", "stdin: .*it must be an Arrow IPC stream"),
        (as_stream(table_of())[:-9000], "stdin: "),
        (b"[1, 2]\n3\n", "stdin, row 0: 1 cells instead of 2: .* the delimiter ','$"),
    ],
)
def test_pipe__that_cannot_be_read(model: Path, given: bytes, said: str) -> None:
    _, found = piped(given, "predict", model, "-", "-o", "-", code=1)
    (line,) = [line for line in found.splitlines() if line.startswith("Error: ")]
    assert re.search(f"^Error: {said}", line), line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-", "-", "-o", "-"], "standard input (-) goes alone"),
        (["-", "--json", "-o", "-"], "--json prints on stdout"),
        (["-", "--on-error", "skip-rows", "-o", "-"], "--on-error goes with files"),
        (["-", "--storage-option", "a=b", "-o", "-"], "--storage-option goes with files"),
        (["d.csv", "--input-format", "csv", "-o", "-"], "--input-format goes with standard"),
        (["-", "--format", "delta", "-o", "-"], "takes one format"),
        (["-", "--partition-by", "id", "-o", "-"], "without parts"),
        (["-", "--parts", "-o", "-"], "without parts"),
        (["-", "--format", "jsnl", "-o", "-"], "did you mean 'jsonl'"),
    ],
)
def test_pipe__usage(model: Path, options: list[str], said: str) -> None:
    printed, found = piped(as_csv(table_of(3)), "predict", model, *options, code=2)
    assert printed == b""
    assert said in found


def test_other_commands__say_what_they_cannot_do_in_one_scan(model: Path, tmp_path: Path) -> None:
    given = as_csv(tennis())
    data = tmp_path / "d.csv"
    data.write_bytes(given)
    target = ["--target", "play"]
    piped(given, "count", "-", *target, "-o", tmp_path / "s.fbs")
    assert fb.load(tmp_path / "s.fbs") == fb.count(data, "play")
    piped(given, "fit", "-", *target, "-o", tmp_path / "m.fb")
    assert fb.load(tmp_path / "m.fb").statistics_ == fb.count(data, "play")
    judged = [piped(given, "evaluate", model, one, "--json")[0] for one in ("-", data)]
    assert judged[0] == judged[1]
    explained = [piped(given, "explain", model, one, "--row", "7")[0] for one in ("-", data)]
    assert explained[0] == explained[1]
    out = ["-o", tmp_path / "x"]
    for args in (
        ["fit", "-", *target, "--model", "tan", *out],
        ["compare", "-", *target],
        ["inspect", "-"],
    ):
        _, said = piped(given, *args, code=1)
        assert "stdin can be read only once" in said
    for option in (["--update"], ["--part", "1/2"]):
        _, said = piped(given, "count", "-", *target, *option, *out, code=2)
        assert f"{option[0]} goes with files, not with standard input" in said
    _, said = piped(given, "count", "-", *target, "--checkpoint", tmp_path / "c", *out, code=1)
    assert "a checkpoint needs files" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("small")
def test_source__is_read_once() -> None:
    source = open_source(Pipe(io.BytesIO(as_csv(table_of()))))
    rows = [batch for segment in source.segments(256) for batch in segment.batches()]
    assert sum(batch.num_rows for batch in rows) == ROWS
    with pytest.raises(fb.DataError, match="stdin can be read only once and has been"):
        list(source.segments(256))
    assert (source.rereadable, source.n_rows, [*source.ledger()]) == (False, None, [])


# -- as a process


def test_reader__that_has_seen_enough_ends_it_quietly(model: Path, tmp_path: Path) -> None:
    data = parquet(table_of(300_000), tmp_path / "d.parquet")
    for kind in OUTPUTS:
        command = [*PROGRAM, "predict", str(model), str(data), "--format", kind, "-o", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(4)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to /dev/full")
def test_stdout__that_takes_nothing_is_named_in_one_line(model: Path, tmp_path: Path) -> None:
    data = parquet(table_of(300), tmp_path / "d.parquet")

    def ended(words: Sequence[Any], end: str) -> tuple[int, list[str]]:
        line = f"{shlex.join(map(str, [*PROGRAM, *words]))} {end}"
        done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    full = "Error: standard output: no space left on device"
    for words in (["--version"], ["inspect", data], ["predict", model, data, "-o", "-"]):
        code, said = ended(words, "> /dev/full")
        assert (code, len(said)) == (1, 1)
        assert said[0].startswith(full)
    words = ["predict", model, "-", "-o", "-"]
    assert ended(words, "<&-")[1][-1] == "Error: -: standard input is closed"
    process = subprocess.Popen([*PROGRAM, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.skipif(sys.platform == "win32", reason="closes file descriptors as a shell does")
def test_stdout__that_is_closed_is_refused_by_every_command(model: Path, tmp_path: Path) -> None:
    data, out = parquet(table_of(300), tmp_path / "d.parquet"), tmp_path / "p.csv"
    for words in (
        ["evaluate", model, data],
        ["predict", model, data, "-o", "-"],
        ["predict", model, data, "-o", out],
        ["--version"],
        ["fit", "--help"],
    ):
        line = f"{shlex.join(map(str, [*PROGRAM, *words]))} >&-"
        done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: standard output is closed")
    assert not out.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="closes file descriptors as a shell does")
def test_stderr__that_is_closed_costs_no_result(model: Path, tmp_path: Path) -> None:
    data, net = parquet(table_of(300), tmp_path / "d.parquet"), tmp_path / "n.fb"

    def ended(*words: Any) -> tuple[int, str]:
        line = f"{shlex.join(map(str, [*PROGRAM, *words]))} 2>&-"
        done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout

    assert ended("predict", model, data, "-o", tmp_path / "p.csv")[0] == 0
    assert pc.read_csv(tmp_path / "p.csv").num_rows == 300
    learn = ("network", "learn", data, "--categorical", "*", "--discretize", "quantile")
    assert ended(*learn, "-o", net)[0] == 0
    assert ended("network", "show", net, "--dot")[0] == 0
    assert ended("inspect", tmp_path / "nothing.csv") == (1, "")


@pytest.mark.skipif(sys.platform == "win32", reason="closes file descriptors as a shell does")
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_stream__that_is_closed_is_no_file_that_is_written(closed: str, tmp_path: Path) -> None:
    """Libraries of C print to descriptor 2, whatever that is."""
    code = (
        "import sys\nfrom fastbayes.__main__ import run\n"
        "try:\n    run()\nfinally:\n    file = open(sys.argv.pop(), 'w')\n"
        "    print(file.fileno() > 2, sys.stderr.fileno(), file=file)"
    )
    words = [sys.executable, "-c", code, "--version", str(tmp_path / "a")]
    done = subprocess.run(["sh", "-c", f"{shlex.join(words)} {closed}"], check=False)
    assert done.returncode == (2 if ">&-" in closed.split() else 0)
    assert (tmp_path / "a").read_text() == "True 2\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to /dev/full")
def test_a_remark__that_cannot_be_printed_costs_no_model(tmp_path: Path) -> None:
    data = parquet(tennis(300), tmp_path / "d.parquet")
    words = ["fit", data, "--target", "play", "--model", "logistic", "--max-iter", 1]
    line = shlex.join(map(str, [*PROGRAM, *words, "-o", tmp_path / "m.fb"]))
    for end in ("2> /dev/full", ""):
        command = ["sh", "-c", f"{line} {end}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert ("did not converge" in done.stderr) == (not end)
        assert (tmp_path / "m.fb").exists()
        (tmp_path / "m.fb").unlink()


@pytest.mark.parametrize("stopped", [False, True])
def test_rows__come_while_others_are_still_written(model: Path, *, stopped: bool) -> None:
    """Nothing waits for the end: the first answers are there while the pipe is open."""
    table, pieces, written = table_of(10_000), list[bytes](), 0
    command = [*PROGRAM, "predict", str(model), "-", "--format", "ipc", "-o", "-"]
    given = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **given) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_collect, args=(process.stdout.fileno(), pieces))
        reader.start()
        writer = pa.ipc.new_stream(process.stdin, table.schema)
        while sum(map(len, pieces)) < 10_000:
            assert written < 1000
            writer.write_table(table)
            written += 1
            time.sleep(0.01)
        if stopped:  # while it waits for rows
            process.send_signal(signal.SIGTERM)
            assert process.stderr.read() == b"Interrupted: nothing half-written is left.\n"
        else:
            writer.close()
            process.stdin.close()
        assert process.wait(60) == (128 + signal.SIGTERM if stopped else 0)
        reader.join(60)
    if not stopped:
        rows = pa.ipc.open_stream(b"".join(pieces)).read_all()
        assert rows["id"].to_pylist() == table["id"].to_pylist() * written


def _collect(descriptor: int, pieces: list[bytes]) -> None:
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)


def test_exit_codes__are_those_that_help_lists(model: Path, tmp_path: Path) -> None:
    shown = run("--help").stdout
    data = parquet(tennis(), tmp_path / "d.parquet")
    run("evaluate", model, data, code=0)
    run("evaluate", model, tmp_path / "none.parquet", code=1)
    run("evaluate", model, data, "--fail-fi", "x", code=2)
    run("evaluate", model, data, "--fail-if", "accuracy >= 0", code=3)
    # 128 + n: test_cli_stopping, and the tests above.
    assert [*EXIT_CODES] == ["0", "1", "2", "3", "128 + n"]
    for code in EXIT_CODES:
        assert f"  {code} " in shown


def rows_of(n: int) -> Iterator[pa.RecordBatch]:
    for _ in range(n):
        yield from table_of(10).to_batches()


def test_files__that_are_open_get_what_is_made(model: Path, tmp_path: Path) -> None:
    fitted = fb.load(model)
    with open(tmp_path / "o.csv", "wb") as file:
        done = fb.predict_to(fitted, rows_of(3), file, format="csv")
        assert not file.closed
    assert done.rows == 30
    assert (tmp_path / "o.csv").read_bytes().count(b"\n") == 31
    with pytest.raises(fb.SchemaError, match="an open file takes one format"):
        fb.predict_to(fitted, rows_of(1), io.BytesIO())
    for taken in (io.TextIOWrapper(io.BytesIO()), io.StringIO()):
        with pytest.raises(fb.DataError, match=r"takes text: open a binary file \(mode 'wb'\)"):
            fb.predict_to(fitted, rows_of(1), taken, format="csv")  # type: ignore[arg-type]
    with pytest.raises(fb.DataError, match="neither a path nor an open binary file"):
        fb.predict_to(fitted, rows_of(1), 3)  # type: ignore[arg-type]
