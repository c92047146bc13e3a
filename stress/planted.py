"""Known faults, planted one at a time in a copy of the package: the stress test finds each.

A fault is a text of a file and what stands there instead, wherever it stands. It is looked for by
one category, which the table names, for a few minutes at most.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from stress.runner import ROOT, Failure, Run

MINUTES = 6.0
LONGEST = 70


class Fault(NamedTuple):
    """A fault, and the category that looks for it."""

    name: str
    category: str
    file: str
    text: str
    instead: str
    kernels: str = "never"  # most faults of kernels are planted in numpy: that compiles nothing


FILES, PAGES = "core/files.py", "kernels/compiled/reading/pages.py"
FAULTS = [
    Fault("a rename before fsync", "disks", FILES,
          "        sync(temporary)\n        _check", "        _check"),
    Fault("parts that are not synced", "disks", "scan/outputs/prediction_parts.py",
          "            sync(file)\n", ""),
    Fault("a file written in its place", "disks", FILES,
          "        yield temporary\n        sync(temporary)",
          "        yield (temporary := target)\n        sync(temporary)"),
    Fault("what was abandoned stays", "stops", FILES,
          "                    if _locked(descriptor):", "                    if False:"),
    Fault("an unfinished file stays", "disks", FILES,
          "            stack.callback(_remove_whole, path)\n", ""),
    Fault("a swallowed error", "disks", FILES,
          "{remedy}\") from error\n        raise\n", "{remedy}\") from error\n"),
    Fault("a digest nobody compares", "model_files", FILES,
          "len(digest) != 64 or _digest(blob, digest) != digest", "False"),
    Fault("counts of a file are not checked", "model_files", "statistics/folded.py",
          'if "count" in key and not', 'if False and not'),
    Fault("parameters that are not checked", "public_api", "models/estimator/protocol.py",
          "            parameter.validate(name, getattr(self, name))\n", "            pass\n"),
    Fault("a segment counted twice after a stop", "stops", "scan/engine.py",
          "        done, rows, start, _ = kept\n",
          "        done, rows, start, _ = kept\n        done -= 1\n"),
    Fault("a checkpoint that ends the count", "disks", "scan/checkpoint.py",
          "        except (OSError, DataError) as error:",
          "        except ZeroDivisionError as error:"),
    Fault("a hang-up that is not heeded", "stops", "cli/stopping.py",
          '("SIGINT", "SIGTERM", "SIGHUP")', '("SIGINT", "SIGTERM")'),
    Fault("a stop that exits with 0", "stops", "cli/__init__.py",
          "ctx.exit(stop.exit_code)", "ctx.exit(0)"),
    Fault("an error of the system as a traceback", "disks", "cli/__init__.py",
          "except (fb.FastBayesError, OSError, ValueError, MemoryError)",
          "except (fb.FastBayesError, MemoryError)"),
    Fault("a row cut within its quotes", "text_formats", "data/text.py",
          "        if edge % 2 == 0:", "        if True:"),
    Fault("a quoted cell that is never missing", "text_formats", "data/text.py",
          "quoted_strings_can_be_null=True", "quoted_strings_can_be_null=False"),
    Fault("a checksum nobody compares", "bytes_of_tables", PAGES,
          "crc32(source, begin, end) != page[p.CHECKSUM]", "False", "always"),
    Fault("a dropped bounds check of a dictionary", "bytes_of_tables", PAGES,
          "    return p.OUTSIDE if top > most else p.SOUND", "    return p.SOUND", "always"),
    Fault("weights that are not added", "public_api", "kernels/numpy/counting/count.py",
          "np.add.at(cells, index, 1.0 if weight is None else weight)",
          "np.add.at(cells, index, 1.0)"),
    Fault("a sum that starts at the wrong element", "public_api", "kernels/numpy/counting/count.py",
          "        cells += np.bincount(index, minlength=cells.size)",
          "        cells += np.bincount(index[1:], minlength=cells.size)"),
    Fault("a sum that changes what it adds to", "public_api", "statistics/base.py",
          "self._specs[k].merge(mine[k], theirs[k]) for k in mine",
          "self._specs[k].merge(mine[k], theirs[k], out=mine[k]) for k in mine"),
    Fault("one class forgotten", "public_api", "kernels/numpy/counting/count.py",
          "    add_rows(y.astype(np.intp), weight, out)",
          "    add_rows(y[:-1].astype(np.intp), None if weight is None else weight[:-1], out)"),
    Fault("an overflow that is not documented", "public_api", "models/estimator/parameters.py",
          "0 <= (real := as_float(value)) <= most", "0 <= (real := float(value)) <= most"),
    Fault("what is done once for many blocks", "public_api", "models/estimator/model.py",
          "            dispatch.in_python()\n", "", "always"),
    Fault("no work when the interpreter ends", "lifetimes", "core/threads.py",
          "pool.submit(copy_context().run, function, *arguments)\n    except RuntimeError:",
          "pool.submit(copy_context().run, function, *arguments)\n    except ZeroDivisionError:"),
    Fault("memory that is kept for ever", "leaks", "core/threads.py",
          "    if threads is None:\n        return default_threads()\n",
          "    _local.__dict__.setdefault('kept', []).append(bytes(8000))\n"
          "    if threads is None:\n        return default_threads()\n"),
]  # fmt: skip


def find(name: str, workers: int) -> int:
    """Plant each fault, or the one of this name; return 1 unless all were found."""
    faults = [fault for fault in FAULTS if not name or fault.name == name]
    if not faults:
        names = "\n  ".join(fault.name for fault in FAULTS)
        print(f"no fault {name!r}; there are\n  {names}", file=sys.stderr)
        return 2
    for fault in faults:
        if fault.text not in (ROOT / "fastbayes" / fault.file).read_text():
            print(f"{fault.name}: its text is not in {fault.file}", file=sys.stderr)
            return 2
    missed: list[str] = []
    print("| planted fault | found by | after | which said |\n|---|---|--:|---|")
    waiting, lock = list(faults), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                fault = waiting.pop(0)
            begun = time.monotonic()
            failure = planted(fault)
            by = fault.category if failure else "**nobody**"
            said = failure.what.strip().splitlines()[-1][:LONGEST] if failure else ""
            said = said.replace("|", "/").replace(tempfile.gettempdir(), "")
            seconds = time.monotonic() - begun
            with lock:
                print(f"| {fault.name} | {by} | {seconds:.0f} s | `{said}` |", flush=True)
                if not failure:
                    missed.append(fault.name)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"\n{len(faults) - len(missed)} of {len(faults)} found")
    return 1 if missed else 0


def planted(fault: Fault) -> Failure | None:
    """Return the first case that fails where a fault is."""
    with tempfile.TemporaryDirectory(prefix="stress-planted-") as folder:
        root = Path(folder)
        for part in ("fastbayes", "stress", "tests"):
            caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, root / part, ignore=caches)
        file = root / "fastbayes" / fault.file
        changed = file.read_text().replace(fault.text, fault.instead)
        compile(changed, file.name, "exec")  # or any case would find it
        file.write_text(changed)
        run = Run(
            *([fault.category], 0, 60 * MINUTES),
            workers=1,
            root=root,
            stop=True,
            kernels=fault.kernels,
        )
        run.go()
        return run.failures[0] if run.failures else None
