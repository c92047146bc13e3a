"""Networks in the formats of other programs, read and written by pyAgrum."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastbayes.core.errors import DataError, FileFormatError
from fastbayes.core.files import atomic
from fastbayes.networks.io.parsed_network import (
    SIX_DIGITS,
    Family,
    NetworkBuilder,
    ParsedNetwork,
    TableRow,
    check_whole,
    contents,
    names_of,
)

# Hugin, older GeNIe, O3PRM. Formats that run what they hold, such as pickle, are not among them;
# nor those whose tables pyAgrum takes to count the first parent fastest, which are ours: XDSL, UAI.
SUFFIXES = (".net", ".dsl", ".o3prm")
# What a name may be in all of them, but for their own words, such as "node".
PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# The script that has pyAgrum to itself. Imported here, it could end the process of the user: of
# warnings made errors (`-W error`, pytest's `filterwarnings`) its import dies by a null pointer
# (swig issue 3061), and some broken files it reads into all memory, where no Ctrl-C stops it.
CHILD = Path(__file__).with_name("pyagrum_process.py")
# Seconds until it is given up: some, and some per byte of the network (it takes under 1e-7).
LONGEST, LONGEST_PER_BYTE = 60.0, 1e-6
# Bytes it may take, likewise (it takes 6 per byte, the reply up to 40).
ROOM, ROOM_PER_BYTE = 1 << 30, 100


def _ask(
    path: str | os.PathLike[str], task: str, failure: type[DataError], n_bytes: int, **asked: Any
) -> dict[str, Any]:
    """Return what pyAgrum says in an interpreter of its own, which finds what this one finds."""
    name, to = os.fspath(path), f"{task} it"
    extra = f"{Path(path).suffix} is read and written by pyagrum, which"
    if find_spec("pyagrum") is None:
        raise DataError(f"{name}: {extra} is not installed: pip install fastbayes[bn]")
    remedy = {
        "read": "save the network as .bif or .xml where it comes from; these need no pyagrum",
        "write": "write .bif or .xml, which need no pyagrum",
    }[task]
    request = json.dumps({"task": task, "sys.path": [*map(str, sys.path)], **asked})
    n_bytes += len(request)
    longest, room = LONGEST + LONGEST_PER_BYTE * n_bytes, ROOM + ROOM_PER_BYTE * n_bytes
    try:
        done = subprocess.run(
            [sys.executable or "", "-P", "-W", "ignore", os.fspath(CHILD), str(room)],
            input=request.encode("ascii"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=longest,
        )
    except subprocess.TimeoutExpired as error:
        raise failure(
            f"{name}: pyagrum did not {to} in {longest:.0f} s and was stopped; {remedy}"
        ) from error
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise DataError(
            f"{name}: {extra} runs in an interpreter of its own, and {sys.executable!r} does not "
            f"start ({said}); {remedy}"
        ) from error
    if done.returncode or not done.stdout:
        code = done.returncode
        how = f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
        raise failure(f"{name}: pyagrum broke down when it should {to} ({how}); {remedy}")
    reply: dict[str, Any] = json.loads(done.stdout)
    if "missing" in reply:
        said = reply["missing"]
        raise DataError(f"{name}: {extra} does not start ({said}): pip install fastbayes[bn]")
    if "refused" in reply:
        raise failure(f"{name}: pyagrum does not {to} ({reply['refused']})")
    return reply


def read(path: str | os.PathLike[str]) -> ParsedNetwork:
    """Read a network from a file of another program, whose suffix says the format.

    Raises DataError when pyagrum is not installed, or does not take the file; it is stopped after a
    minute and a second per megabyte of the file.
    """
    size = len(contents(path))  # says in our words when there is nothing to read
    found = _ask(path, "read", FileFormatError, size, file=os.fspath(path))
    declared = NetworkBuilder(path, most_off=SIX_DIGITS)
    for name, states in found["nodes"]:
        declared.node(name, states, 0)
    for name, parents, numbers in found["families"]:
        declared.family(Family(name, tuple(parents), 0, table=TableRow((), numbers, 0)))
    return declared.parts()


def write(network: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to a file of another program, with six digits of each probability.

    Raises DataError when pyagrum is not installed, or the file, read again, has other names.
    """
    check_whole(network, path)
    names, states = names_of(network)
    nodes = [
        (
            names[node],
            states[node],
            [names[parent] for parent in network.parents[node]],
            network.tables[node].ravel().tolist(),
        )
        for node in network.order
    ]
    with atomic(path, force=force) as temporary:
        reply = _ask(path, "write", DataError, 0, file=os.fspath(temporary), nodes=nodes)
        if "lost" in reply:
            told = [text for node, some, _, _ in nodes for text in (node, *some)]
            odd = [repr(text) for text in told if not PLAIN.fullmatch(text)]
            single = [node for node, some, _, _ in nodes if len(some) < 2]
            which = ", ".join(odd[:3]) or "nodes and states"
            remedy = f"rename {which} to letters, digits and '_'"
            if single and not odd:
                remedy = f"leave out {single[0]!r}, which has one state"
            raise DataError(
                f"{os.fspath(path)}: {Path(path).suffix} cannot hold the network, pyagrum does not "
                f"read it again ({reply['lost'].replace(os.fspath(temporary), 'the file')}); write "
                f".bif or .xml, or {remedy}"
            )
