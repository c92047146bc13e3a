"""pyAgrum in an interpreter of its own: a request as JSON on stdin, the reply on stdout.

`pyagrum_formats` runs this file as a script, with the bytes that it may take. It imports nothing
of fastbayes, and `pyagrum_formats` nothing of pyAgrum: what is wrong with a file can end pyAgrum's
process, or keep it from ever ending.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

Reply = dict[str, Any]


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def bound(room: int) -> None:
    """Let this process take so many bytes more; where the system cannot tell, time bounds them."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = taken + room if hard == resource.RLIM_INFINITY else min(taken + room, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def read(gum: Any, file: str) -> Reply:
    """Return the nodes with their states, and the families with their numbers."""
    network = gum.loadBN(file)
    names = [network.variable(node).name() for node in sorted(network.nodes())]
    families = []
    for name in names:
        table = network.cpt(name)
        # The axes of its arrays are its names from the last to the first, the node.
        node, *above = table.names
        families.append([node, above[::-1], table.toarray().ravel().tolist()])
    return {
        "nodes": [[name, list(network.variable(name).labels())] for name in names],
        "families": families,
    }


def write(gum: Any, file: str, nodes: list[list[Any]]) -> Reply:
    """Write nodes (name, states, parents, numbers), parents before children."""
    made = gum.BayesNet()
    # Some formats name parents before they are declared unless those come first.
    for name, states, _, _ in nodes:
        made.add(gum.LabelizedVariable(name, name, states))
    for name, _, parents, numbers in nodes:
        # The last axis of an array is its second name: parents come from the last to the first.
        for parent in reversed(parents):
            made.addArc(parent, name)
        made.cpt(name).fillWith(numbers)
    gum.saveBN(made, file)
    return lost(gum, file, nodes)


def lost(gum: Any, file: str, nodes: list[list[Any]]) -> Reply:
    """Return under `lost` what the file just written says otherwise: it is read to find out."""
    try:
        found = read(gum, file)
    except Exception as error:
        return {"lost": first_line(error)}
    same = dict(found["nodes"]) == {name: states for name, states, _, _ in nodes}
    above = {name: {*parents} for name, parents, _ in found["families"]}
    same = same and above == {name: {*parents} for name, _, parents, _ in nodes}
    return {} if same else {"lost": "names or states are others there"}


def answer(task: str, file: str, **asked: Any) -> Reply:
    """Return what was found, or under `missing` or `refused` why nothing was."""
    try:
        import pyagrum

        if file.lower().endswith(".o3prm"):
            with contextlib.suppress(ModuleNotFoundError):  # older ones have it built in
                import pyagrum.prm
    except ImportError as error:
        return {"missing": first_line(error)}
    bound(int(sys.argv[1]))
    try:
        work = read if task == "read" else write
        # O3PRM is found by its whole path only.
        return work(pyagrum, os.path.abspath(file), **asked)
    except Exception as error:  # its own, and whatever C++ throws
        return {"refused": first_line(error)}


def main() -> None:
    """Answer one request."""
    # What pyAgrum prints by itself goes to stderr, not into the reply.
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)
        os.environ["OMP_NUM_THREADS"] = "1"  # nothing to share out; stacks would take of the room
        asked = json.loads(sys.stdin.buffer.read())
        sys.path[:] = asked.pop("sys.path")
        out.write(json.dumps(answer(**asked)))


if __name__ == "__main__":
    main()
