"""A standing stress test: hostile files, hostile moments, hostile parameters, all from a seed.

`stress/cases` has one file for each category. A category is a module with

ABOUT   what is tried and what must hold, in a line
case    case(rng, folder) -> str: try one thing, drawn from rng, in an empty folder. It returns what
        came of it in a few words, which are counted, and raises where a promise was broken

and, where they differ from those of `stress.child`, SECONDS (of one case), BYTES (that the process
may hold), BATCH (cases of one process). The cases of a category are numbered, and number N of a
seed is the same case in every run.
"""
