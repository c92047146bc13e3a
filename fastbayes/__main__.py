"""The command line: `python -m fastbayes`, and the script of that name."""

from __future__ import annotations

import signal


def run() -> None:
    """Run the command line."""
    # Until a command runs there is nothing to clean up: Ctrl-C ends imports without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fastbayes.cli import main

    main(prog_name="fastbayes")


if __name__ == "__main__":
    run()
