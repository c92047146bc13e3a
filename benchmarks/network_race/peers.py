"""The process in which peers live: an interpreter of their own answers `asked.py`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCRIPT = Path(__file__).resolve().parent / "asked.py"


class Peers:
    """Asks the peers that an interpreter has; one process, so that they are warm as we are.

    Parameters
    ----------
    python
        The interpreter.

    Attributes
    ----------
    versions
        {peer: its version} of those that are there.
    """

    versions: dict[str, str]

    def __init__(self, python: str) -> None:
        self._child = subprocess.Popen(
            [python, "-W", "ignore", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.versions = self.ask("present")

    def ask(self, action: str, **told: Any) -> dict[str, Any]:
        """Return what a function of `asked` returns; raise RuntimeError where it did."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(json.dumps({"do": action, **told}), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the peers' process ended at {action}, status {self._child.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{action} failed: {reply['error']}")
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()
