"""Models and statistics: bytes that a disk changed, and contents that a hostile writer changed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from model_mutations import array_mutations, header_mutations
from mutating import mutations
from test_hostile_models import FOREIGN, MADE, use

import fastbayes as fb
from fastbayes.core import files
from stress.tables import Rng, one_of

ABOUT = (
    "changed bytes are refused; a changed parameter, size or array behind a right digest is "
    "refused, or the model works"
)
BATCH = 200


@cache
def made(name: str) -> Any:
    """Return a model or statistics, fitted once for a process."""
    return MADE[name][0]()


def case(rng: Rng, folder: Path) -> str:
    """Load one changed file, and use what it holds."""
    os.environ["FASTBAYES_KERNELS"] = "never"
    name = one_of(rng, sorted(MADE))
    path = folder / "model.fb"
    fb.save(made(name), path)
    kind = one_of(rng, ["bytes", "header", "header", "array", "nothing"])
    header, arrays = files.read(path)
    what = kind
    if kind == "bytes":
        whole = path.read_bytes()
        ((what, blob),) = mutations(whole, rng.integers(2**32), 1)
        path.write_bytes(blob)
        kind = "nothing" if blob == whole else kind
    elif kind == "header":
        what, header = next(header_mutations(header, rng))
        files.write(path, header, arrays, force=True)
    elif kind == "array":
        what, arrays = next(array_mutations(arrays, rng))
        files.write(path, header, arrays, force=True)
    try:
        held = fb.load(path)
    except (fb.DataError, fb.MemoryLimitError) as error:
        assert "model.fb" in str(error) or not isinstance(error, fb.FileFormatError), what
        assert kind != "nothing", f"{name}: {error}"
        return f"{kind}: refused"
    assert kind != "bytes", f"{name}, {what}: loaded in spite of its digest"
    try:
        use(held, MADE[name][1])
    except Exception as error:
        ours = isinstance(error, fb.FastBayesError) or type(error).__name__ == "NotFittedError"
        if not (ours and any(part in str(error) for part in FOREIGN.split("|"))):
            raise AssertionError(f"{name}, {what}: {error!r}") from error
        return f"{kind}: refused when asked"
    if kind == "nothing":
        again = folder / "again.fb"
        fb.save(held, again)
        assert again.read_bytes() == path.read_bytes(), f"{name}: saved again, other bytes"
    return f"{kind}: works"
