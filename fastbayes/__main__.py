"""The command line: `python -m fastbayes`, and the script of that name."""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib.abc import MetaPathFinder


def run() -> None:
    """Run the command line."""
    # Until a command runs there is nothing to clean up: Ctrl-C ends imports without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Of the standard streams the caller may have closed some: the first file that is written would
    # be what libraries of C take for stderr.
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    if sys.stderr is None:  # or remarks and errors would be printed on stdout
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    from fastbayes.cli import main

    _without_pandas()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks is shown escaped, as stderr does.
        sys.stdout.reconfigure(errors="backslashreplace")
    main(prog_name="fastbayes")


class _NoPandas(MetaPathFinder):
    """Finds no pandas, as if it were not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not asked for", name=fullname)


def _without_pandas() -> None:
    """Have pyarrow find no pandas: no command uses it, and importing it takes a third of a second.

    Whatever Python object pyarrow converts first, it asks for pandas, once. A Series would be an
    array of any objects to it then, until it converts something to pandas or from it: commands make
    none.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


if __name__ == "__main__":
    run()
