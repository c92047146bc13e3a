"""`python -m fastbayes` is the command line."""

from __future__ import annotations

from fastbayes.cli import main

main(prog_name="fastbayes")
