"""`python -m fastbayes` is the command line."""

from __future__ import annotations

import signal

# Until a command runs there is nothing to clean up: Ctrl-C ends the imports without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from fastbayes.cli import main

main(prog_name="fastbayes")
